"""What a privacy guarantee allows an attacker.

Conventions
-----------
P, Q       the laws of the release with and without the row (or with it and with another one).
ℓ          log P/Q at the release, in nats; > 0 is evidence that the row was there.
δ(ε)       sup over neighbouring data sets and both directions of P(S) − e^ε Q(S): the privacy
           curve. It defines a guarantee, and every figure here is a bound that follows from it, or
           from the law of ℓ where that is known.
posterior  sigmoid(logit(prior) + ℓ): the probability that the row was there, for an attacker who
           knows every other row (D5.3 Def. 4).
advantage  2·P(the Bayes adversary with prior ½ is right) − 1 = δ(0), the total variation
           (D5.3 Def. 5, erratum 9).

Every figure is an upper bound, rounded up: a guarantee is never shown stronger than it is. NaN
fails every check.

Noise of a log-concave density on a function of bounded sensitivity is described by one pair of
laws: ℓ = log p(b) − log p(b − s·v) is convex in the distance s and 0 at s = 0, so once above c ≥ 0
it stays there. Hence P(ℓ > c) grows with the separation, and so does δ(ε) = ∫ e^(ε−c) P(ℓ > c) dc
over c > ε: the pair that is furthest apart bounds every other pair, in every figure
(docs/theory/mathematics-risk.md).
"""

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.files.sealed import from_fields, to_fields

if TYPE_CHECKING:
    from expost.risk.gaussian import GaussianNoise

__all__ = ["Guarantee", "Parameter"]

# Sixteen unit roundoffs: more than a handful of additions, products and library functions err.
_FEW_ROUNDINGS = 2.0**-49
# Past this an integer need not be a float64.
_LARGEST_COUNT = 2**53


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """The number that distinguishes the guarantees of a family, for :func:`expost.risk.calibrate`.

    Parameters
    ----------
    name : str
        The keyword of the family's constructor.
    low, high : float
        The range in which it is searched.
    is_noise : bool, default=False
        Whether every figure falls as it grows; without it every figure grows with it.
    with_delta : bool, default=False
        Whether the constructor also takes the ``delta`` of the guarantee itself.
    """

    name: str
    low: float = sys.float_info.min
    high: float = 1e150
    is_noise: bool = False
    with_delta: bool = False


class Guarantee(ABC):
    """A guarantee about any two neighbouring data sets.

    Attributes
    ----------
    LAW : str | None
        The name of the guarantee in JSON; None where it cannot be listed in a ledger.
    PARAMETER : Parameter | None
        What :func:`expost.risk.calibrate` solves for; None where it cannot.
    is_gaussian : bool
        Whether its curve is that of Gaussian noise of one μ, so that attacks may be held against
        that curve.

    Formal guarantees
    -----------------
    For every pair of neighbours and every attacker: ``delta`` is nonincreasing in ε,
    ``epsilon`` in δ, ``loss`` in δ; ``true_positive_rate`` is nondecreasing and concave in the
    false-positive rate and never below it. NaN and values out of range raise.
    """

    LAW: ClassVar[str | None] = None
    PARAMETER: ClassVar[Parameter | None] = None
    is_gaussian: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "LAW" in vars(cls) and cls.LAW is not None:
            _LAWS[cls.LAW] = cls

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return δ(ε), ε ≥ 0.

        Parameters
        ----------
        epsilon : float
            ε ≥ 0 at which the curve is read.

        Returns
        -------
        float
            δ, rounded up.

        Raises
        ------
        InvalidInput
            If ``epsilon`` is negative or NaN.
        """

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Return the least ε ≥ 0 with δ(ε) ≤ ``delta``, 0 ≤ δ < 1; infinite where there is none.

        Parameters
        ----------
        delta : float
            δ in [0, 1).

        Returns
        -------
        float
            ε, rounded up.

        Raises
        ------
        InvalidInput
            If ``delta`` is not in [0, 1).
        """

    @abstractmethod
    def loss(self, delta: float = 0.0) -> float:
        """Return the least b that the evidence for the truth passes with P ≤ ``delta``, 0 ≤ δ < 1.

        That is P(ℓ > b) ≤ δ where the row was there and P(−ℓ > b) ≤ δ where it was not. Evidence
        against the truth counts in neither: where the row was there P(ℓ < −b) is at most e^(−b)
        times P(−ℓ > b) where it was not, so that P(∣ℓ∣ > b) ≤ δ(1 + e^(−b)) in either world, and
        may be above δ. b is at least ε(δ), and not the same (erratum 10). Infinite where nothing
        is guaranteed.

        Parameters
        ----------
        delta : float, default=0.0
            δ in [0, 1).

        Returns
        -------
        float
            b in nats, rounded up.

        Raises
        ------
        InvalidInput
            If ``delta`` is not in [0, 1).
        """

    @abstractmethod
    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return the largest true-positive rate of any test at this false-positive rate.

        Parameters
        ----------
        false_positive_rate : float
            The share of absent rows that the test accuses, in [0, 1].

        Returns
        -------
        float
            The rate, rounded up.

        Raises
        ------
        InvalidInput
            If ``false_positive_rate`` is not in [0, 1].
        """

    @abstractmethod
    def describe(self) -> str:
        """Return the guarantee in a few words, as 'epsilon = 1, delta = 1e-05'.

        Returns
        -------
        str
            The description.
        """

    @property
    def advantage(self) -> float:
        """δ(0): the Bayes adversary's expected membership advantage, at most."""
        return self.delta(0.0)

    def keeps(self, epsilon: float, delta: float) -> bool:
        """Return whether it is (ε, δ)-DP.

        Parameters
        ----------
        epsilon : float
            ε ≥ 0.
        delta : float
            δ in [0, 1).

        Returns
        -------
        bool
            True if δ(ε) ≤ ``delta``.
        """
        return self.delta(epsilon) <= delta

    @property
    def has_delta(self) -> bool:
        """Whether δ > 0 is part of it: then no posterior is bounded at δ itself (erratum 10)."""
        return False

    @property
    def gaussian(self) -> "GaussianNoise | None":
        """The Gaussian noise whose curve is that of the guarantee, or None."""
        return None

    @property
    def draft(self) -> "Guarantee | None":
        """Cheaper figures that are nearly the same, for a search; None where these are cheap."""
        return None

    def posterior(self, prior: float = 0.5, *, delta: float = 0.0) -> float:
        """Return the largest posterior, exceeded with probability ``delta`` at most.

        sigmoid(logit(prior) + b), b = ``loss(delta)`` (D5.3 Thm 2, any prior).

        Parameters
        ----------
        prior : float, default=0.5
            The attacker's probability of presence before the release, in (0, 1).
        delta : float, default=0.0
            The probability with which the posterior may be exceeded, in [0, 1).

        Returns
        -------
        float
            The posterior, rounded up.

        Raises
        ------
        InvalidInput
            If ``prior`` or ``delta`` is outside its range.
        """
        prior = _checks.probability("prior", prior)
        return posterior_after(prior, self.loss(delta))

    def one_in(self, prior: float = 0.5, *, delta: float = 0.0) -> float:
        """Return k with posterior = 1/k, rounded down: the size of a group to hide in (HIPAA).

        k = 1 + (1/prior − 1)e^(−b), b = ``loss(delta)``.

        Parameters
        ----------
        prior : float, default=0.5
            The attacker's probability of presence before the release, in (0, 1).
        delta : float, default=0.0
            The probability with which the posterior may be exceeded, in [0, 1).

        Returns
        -------
        float
            k ≥ 1.

        Raises
        ------
        InvalidInput
            If ``prior`` or ``delta`` is outside its range.
        """
        prior = _checks.probability("prior", prior)
        return one_in_after(prior, self.loss(delta))

    def to_json(self) -> dict[str, Any]:
        """Return the name of the law and its constants, as a ledger lists them.

        Returns
        -------
        dict[str, Any]
            The law and its constants.

        Raises
        ------
        InvalidInput
            If a ledger cannot list the guarantee.
        """
        if self.LAW is None:
            raise InvalidInput(f"guarantee: a {type(self).__name__} cannot be listed in a ledger.")
        return {"law": self.LAW, **self._constants()}

    @classmethod
    def from_json(cls, value: Any) -> "Guarantee":
        """Invert :meth:`to_json`, for a law of any name.

        Parameters
        ----------
        value : Any
            What :meth:`to_json` returned.

        Returns
        -------
        Guarantee
            The guarantee.

        Raises
        ------
        InvalidInput
            If the law is not known, or a constant is invalid.
        """
        law = value.get("law") if isinstance(value, dict) else None
        if not isinstance(law, str) or law not in _LAWS:
            raise InvalidInput(
                f"guarantee.law={law!r}: is not known; the file may need a newer expost."
            )
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
    """Return 1/posterior = 1 + (1 − prior)e^(−loss)/prior, rounded down; 1/prior at loss 0."""
    if not loss >= 0:
        raise InvalidInput(f"loss={loss!r}: must be a number of at least 0.")
    if loss == 0:
        return min(1 / prior, sys.float_info.max)
    others = down((1 - prior) * math.exp(-loss) / prior)
    return min(max(math.nextafter(1 + others, 0.0), 1.0), sys.float_info.max)


def posterior_after(prior: float, loss: float) -> float:
    """Return sigmoid(logit(prior) + loss) = prior/(prior + (1 − prior)e^(−loss)), rounded up.

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


def doubt_after(prior: float, loss: float) -> float:
    """Return 1 − posterior = (1 − prior)e^(−loss)/(prior + (1 − prior)e^(−loss))."""
    if not loss >= 0:
        raise InvalidInput(f"loss={loss!r}: must be a number of at least 0.")
    rest = (1 - prior) * math.exp(-loss)
    return rest / (prior + rest)


def extended(name: str, value: Any) -> float:
    """Return ``value`` as a number in [0, ∞]."""
    # A plain comparison with 0 would let False pass, and an array of one zero.
    number = isinstance(value, int | float | np.integer | np.floating)
    if number and not isinstance(value, bool) and value == 0:
        return 0.0
    return _checks.positive(name, value, finite=False)


def count(name: str, value: Any) -> int:
    """Return ``value`` as a number of releases, steps or dimensions: an integer from 1 to 2⁵³."""
    number = _checks.integer(name, value, least=1)
    if not number <= _LARGEST_COUNT:
        raise InvalidInput(f"{name}: must be an integer of at most 2**53.")
    return number


def level(name: str, value: Any) -> float:
    """Return ``value`` as a probability in [0, 1)."""
    number = extended(name, value)
    if not number < 1:
        raise InvalidInput(f"{name}={value!r}: must be at least 0 and below 1.")
    return number


def rate(name: str, value: Any) -> float:
    """Return ``value`` as a probability in [0, 1]."""
    number = extended(name, value)
    if not number <= 1:
        raise InvalidInput(f"{name}={value!r}: must lie between 0 and 1.")
    return number


def up(value: float, *, most: float = math.inf, error: float = _FEW_ROUNDINGS) -> float:
    """Return ``value`` ≥ 0 raised by its relative ``error``, at most ``most``, a proved bound."""
    return min(value * (1 + error), most)


def down(value: float) -> float:
    """Return ``value`` ≥ 0 lowered by twice as much as :func:`up` raises: up(down(x)) ≤ x."""
    return value * (1 - 2 * _FEW_ROUNDINGS)


def short_of_one(rest: float) -> float:
    """Return 1 − ``rest`` for a rest ≤ ½, rounded up: near 1 the rest has more digits."""
    return min(math.nextafter(1 - rest * (1 - _FEW_ROUNDINGS), math.inf), 1.0)
