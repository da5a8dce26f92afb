"""Any mechanism of which (ε, δ) is all that is known."""

import math
from dataclasses import dataclass
from typing import Any

from scipy.special import expit

from expost._numerics import ROUNDOFF
from expost.errors import InvalidInput
from expost.files.sealed import number, plain
from expost.numbers import upper_text
from expost.risk.guarantee import (
    Guarantee,
    Parameter,
    down,
    extended,
    level,
    rate,
    short_of_one,
    up,
)

__all__ = ["EpsilonDelta"]


@dataclass(frozen=True, init=False, repr=False)
class EpsilonDelta(Guarantee):
    """Any mechanism with P(S) ≤ e^ε Q(S) + δ for all S, in both directions; 0 ≤ ε ≤ ∞, 0 ≤ δ < 1.

    The two are kept as ``guaranteed_epsilon`` and ``guaranteed_delta``: ``epsilon`` and ``delta``
    are the curve through them.

    Parameters
    ----------
    epsilon : float
        ε, possibly infinite.
    delta : float, default=0.0
        δ; 0 for pure ε-DP.

    Attributes
    ----------
    guaranteed_epsilon, guaranteed_delta : float
        The two parameters.

    Formal guarantees
    -----------------
    All figures are tight: some (ε, δ) mechanism reaches each. ``delta``, ``advantage`` and
    ``true_positive_rate`` are those of one pair that dominates all others (Kairouz, Oh and
    Viswanath 2015): with probability δ the secret is revealed, else randomised response at ε.
    ``loss`` does not shrink under post-processing, and a two-point mechanism of its own reaches it.
    ε = ∞ guarantees nothing: δ(ε'), advantage, posterior and every rate are 1.
    """

    guaranteed_epsilon: float
    guaranteed_delta: float

    LAW = "epsilon-delta"
    PARAMETER = Parameter(name="epsilon", high=1e300, with_delta=True)

    def __init__(self, *, epsilon: float, delta: float = 0.0) -> None:
        object.__setattr__(self, "guaranteed_epsilon", extended("epsilon", epsilon))
        object.__setattr__(self, "guaranteed_delta", level("delta", delta))

    def _constants(self) -> dict[str, Any]:
        return {"epsilon": plain(self.guaranteed_epsilon), "delta": self.guaranteed_delta}

    @classmethod
    def _from_constants(cls, constants: dict[str, Any]) -> "EpsilonDelta":
        if constants.keys() != {"epsilon", "delta"}:
            raise InvalidInput("guarantee: must have an epsilon and a delta, and nothing else.")
        epsilon = number(constants["epsilon"], "guarantee.epsilon", infinite=True)
        return cls(epsilon=epsilon, delta=number(constants["delta"], "guarantee.delta"))

    def __repr__(self) -> str:
        return f"EpsilonDelta(epsilon={self.guaranteed_epsilon!r}, delta={self.guaranteed_delta!r})"

    @property
    def has_delta(self) -> bool:
        """Whether δ > 0."""
        return self.guaranteed_delta > 0

    def delta(self, epsilon: float) -> float:
        """Return δ + (1 − δ)(e^ε − e^ε')/(1 + e^ε) at ε' < ε, and δ from ε on.

        At 0 it is (e^ε − 1 + 2δ)/(e^ε + 1), the advantage (erratum 9).
        """
        below = extended("epsilon", epsilon)
        most, slip = self.guaranteed_epsilon, self.guaranteed_delta
        if most == math.inf:
            return 1.0
        if below >= most:
            return slip
        # 1 − e^(ε'−ε) over 1 + e^(−ε): nothing overflows, and near ε = 0 nothing cancels.
        response = -math.expm1(below - most) * float(expit(most))
        # The same from 1, where that has more digits.
        rest = (1 - slip) * (math.exp(-most) + math.exp(below - most)) * float(expit(most))
        return short_of_one(rest) if rest < 0.5 else up(slip + (1 - slip) * response)

    def epsilon(self, delta: float) -> float:
        """Return ε + log(1 − (δ' − δ)(1 + e^(−ε))/(1 − δ)), at least 0; infinite for δ' < δ."""
        allowed = level("delta", delta)
        most, slip = self.guaranteed_epsilon, self.guaranteed_delta
        if allowed < slip or most == math.inf:
            return math.inf
        if allowed >= self.delta(0.0):
            return 0.0
        # Rounded down, so that ε' is rounded up and keeps δ'.
        share = max(down(down(allowed) - slip), 0.0) / (1 - slip) * (1 + math.exp(-most))
        fall = -math.log1p(-share) if share < 1 else 0.0
        return min(max(most - fall + 4 * ROUNDOFF * (most + fall), 0.0), most)

    def loss(self, delta: float = 0.0) -> float:
        """Return the least b that bounds every (ε, δ) mechanism's evidence, except with P ≤ δ'.

        min(ε − log(1 − δ/δ'), −log(1 − [(1 − δ')(e^ε − 1) + δ]/δ')), each where it is defined.
        The first is erratum 10, P(ℓ > b) ≤ δ/(1 − e^(ε−b)); the second is the smaller one for
        δ' − δ > (1 − δ')e^ε and holds because what is left of Q must lie somewhere. Infinite for
        δ' ≤ δ unless δ = 0, and ε at δ' = δ = 0.
        """
        allowed = level("delta", delta)
        most, slip = self.guaranteed_epsilon, self.guaranteed_delta
        if most == math.inf or (slip > 0 and not allowed > slip):
            return math.inf
        if allowed == 0:
            return most
        first = most + _minus_log_rest(slip / allowed)
        second = math.inf
        # Where e^ε could overflow, the second is not defined anyway.
        if most < -math.log1p(-allowed) + 1:
            second = _minus_log_rest(((1 - allowed) * math.expm1(most) + slip) / allowed)
        bound = min(first, second)
        return bound if slip == 0 and bound == most else up(bound)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return min(1, δ + e^ε·fpr, 1 − e^(−ε)(1 − δ − fpr)) (Wasserman and Zhou 2010)."""
        fpr = rate("false_positive_rate", false_positive_rate)
        most, slip = self.guaranteed_epsilon, self.guaranteed_delta
        if most == math.inf:
            return 1.0
        if fpr == 0:
            return slip
        # 1 − e^(−ε)(1 − δ − fpr): from 1 where that has more digits, else a sum of positive terms.
        rest = math.exp(-most) * max((1 - fpr) - slip, 0.0)
        power = up(math.exp(-most) * (slip + fpr) - math.expm1(-most))
        if rest < 0.5:
            power = short_of_one(rest)
        # Elsewhere the other bound is at least 1, and e^ε might overflow.
        if math.log(fpr) + most < 0:
            # In two halves: e^ε alone may be past float64 where fpr is next to 0.
            half = math.exp(0.5 * most)
            power = min(power, up(slip + half * (half * fpr)))
        return max(power, fpr)

    def describe(self) -> str:
        """Return a description, as 'epsilon = 1, delta = 1e-05'; 'epsilon = 1' for δ = 0."""
        if self.guaranteed_epsilon == math.inf:
            return "no guarantee"
        slip = f", delta = {upper_text(self.guaranteed_delta)}" if self.guaranteed_delta else ""
        return f"epsilon = {upper_text(self.guaranteed_epsilon)}{slip}"


def _minus_log_rest(share: float) -> float:
    """Return −log(1 − share), rounded up; infinite from 1 on."""
    # Before the logarithm: near 1 its rounding is what counts.
    share = up(share)
    return -math.log1p(-share) if share < 1 else math.inf
