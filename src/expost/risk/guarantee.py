"""What a promise of privacy allows an attacker, in the words of those who ask.

Conventions
-----------
P, Q       the laws of the release with and without the row (or with it and with another one).
ℓ          log P/Q at the release, in nats; > 0 is evidence that the row was there.
δ(ε)       sup over neighbouring data sets and both directions of P(S) − e^ε Q(S): the privacy
           curve. It is all that a promise is, and every figure here is a bound that follows from
           it, or from the law of ℓ where that is known.
belief     sigmoid(logit(prior) + ℓ): how sure an attacker who knows every other row is
           afterwards that the row was there (D5.3 Def. 4).
advantage  2·P(the Bayes adversary with prior ½ is right) − 1 = δ(0), the total variation
           (D5.3 Def. 5, erratum 9).

Every figure is an upper bound, rounded up: a promise is never shown stronger than it is.
"""

import math
import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from expost import _checks
from expost.errors import InvalidInput
from expost.files.sealed import from_fields, to_fields
from expost.risk._arguments import down, short_of_one, up

__all__ = ["Guarantee"]


class Guarantee(ABC):
    """A promise about any two neighbouring data sets.

    Formal guarantees
    -----------------
    For every pair of neighbours and every attacker: ``delta`` is nonincreasing in ε,
    ``epsilon`` in δ, ``loss`` in δ; ``true_positive_rate`` is nondecreasing and concave in the
    false-positive rate and never below it. NaN and values out of range raise.

    ``LAW``          the name of the guarantee in JSON; None where it cannot be listed in a ledger.
    ``is_gaussian``  whether its curve is that of Gaussian noise of one μ, so that attacks may be
                     held against that curve.
    """

    LAW: ClassVar[str | None] = None
    is_gaussian: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "LAW" in vars(cls) and cls.LAW is not None:
            _LAWS[cls.LAW] = cls

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """δ(ε), ε ≥ 0."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 with δ(ε) ≤ ``delta``, 0 ≤ δ < 1; infinite where there is none."""

    @abstractmethod
    def loss(self, delta: float = 0.0) -> float:
        """The least b that the evidence for the truth passes with P ≤ ``delta``, 0 ≤ δ < 1.

        That is P(ℓ > b) ≤ δ where the row was there and P(−ℓ > b) ≤ δ where it was not. Evidence
        against the truth counts in neither: where the row was there P(ℓ < −b) is at most e^(−b)
        times P(−ℓ > b) where it was not, so that P(∣ℓ∣ > b) ≤ δ(1 + e^(−b)) in either world, and
        may be above δ. b is at least ε(δ), and not the same (erratum 10). Infinite where nothing
        is promised.
        """

    @abstractmethod
    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The most rows that any test finds at this false-positive rate, 0 ≤ fpr ≤ 1."""

    @abstractmethod
    def describe(self) -> str:
        """The promise in a few words, as 'epsilon = 1, delta = 1e-05'."""

    @property
    def advantage(self) -> float:
        """δ(0): the Bayes adversary's expected membership advantage, at most."""
        return self.delta(0.0)

    def belief(self, prior: float = 0.5, *, delta: float = 0.0) -> float:
        """How sure an attacker can get, but with probability ``delta``, from ``prior``.

        sigmoid(logit(prior) + b), b = ``loss(delta)`` (D5.3 Thm 2, any prior).
        """
        prior = _checks.probability("prior", prior)
        return belief_after(prior, self.loss(delta))

    def one_in(self, prior: float = 0.5, *, delta: float = 0.0) -> float:
        """k with belief = 1/k, rounded down: as if the person were one of k alike (HIPAA's groups).

        k = 1 + (1/prior − 1)e^(−b), b = ``loss(delta)``.
        """
        prior = _checks.probability("prior", prior)
        return one_in_after(prior, self.loss(delta))

    def to_json(self) -> dict[str, Any]:
        """Return the name of the law and its constants, as a ledger lists them."""
        if self.LAW is None:
            raise InvalidInput(f"guarantee: a ledger knows no {type(self).__name__}.")
        return {"law": self.LAW, **self._constants()}

    @classmethod
    def from_json(cls, value: Any) -> "Guarantee":
        """Invert :meth:`to_json`, for a law of any name."""
        law = value.get("law") if isinstance(value, dict) else None
        if not isinstance(law, str) or law not in _LAWS:
            raise InvalidInput(f"guarantee.law={law!r}: is not known; is it from a newer expost?")
        constants = {name: constant for name, constant in value.items() if name != "law"}
        return _LAWS[law]._from_constants(constants)

    def _constants(self) -> dict[str, Any]:
        return to_fields(self)

    @classmethod
    def _from_constants(cls, constants: dict[str, Any]) -> "Guarantee":
        return from_fields(cls, constants)


# The guarantees that a ledger can list, by the name of their law.
_LAWS: dict[str, type[Guarantee]] = {}


def one_in_after(prior: float, loss: float) -> float:
    """1/belief = 1 + (1 − prior)e^(−loss)/prior, rounded down; 1/prior itself at loss 0."""
    if not loss >= 0:
        raise InvalidInput(f"loss={loss!r}: must be a number of at least 0.")
    if loss == 0:
        return min(1 / prior, sys.float_info.max)
    others = down((1 - prior) * math.exp(-loss) / prior)
    # Nobody hides among infinitely many.
    return min(max(math.nextafter(1 + others, 0.0), 1.0), sys.float_info.max)


def belief_after(prior: float, loss: float) -> float:
    """sigmoid(logit(prior) + loss) = prior/(prior + (1 − prior)e^(−loss)), rounded up.

    Nothing overflows; the prior itself at loss 0.
    """
    if not loss >= 0:
        raise InvalidInput(f"loss={loss!r}: must be a number of at least 0.")
    if loss == 0:
        return prior
    other = (1 - prior) * math.exp(-loss)
    if other < prior:
        return short_of_one(other / (prior + other))
    return up(prior / (prior + other), most=1.0)
