"""What output perturbation's own noise allows: less than any mechanism of the same ε may.

Conventions
-----------
As in :mod:`expost.risk.guarantee` and :mod:`expost.risk.tail`. P(−ℓ > c) where the row was there
is P(ℓ > c) where it was not: every test is a threshold c on ℓ, and for c < 0 it is the one at −c
with the two worlds, and detected and missed, exchanged.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from expost._numerics import ROUNDOFF
from expost.numbers import upper_text
from expost.risk.epsilon_delta import EpsilonDelta
from expost.risk.guarantee import Guarantee, Parameter, count, down, extended, level, rate, up
from expost.risk.tail import LossTail

__all__ = ["NormLaplaceNoise"]

# Closer laws are bounded by those at this separation: parts of it must not underflow.
_LEAST_SEPARATION = 1e-290
# Past this t + d float64 no longer resolves the law, and the figures of its ε are used.
_LARGEST = 1e12
_RIGHT = 0.5 * math.pi
# The angle of a threshold, to about eight digits.
_HALVINGS = 36


@dataclass(frozen=True, kw_only=True)
class NormLaplaceNoise(Guarantee):
    """Noise of density ∝ exp(−β∥b∥) in ``dimension`` d, ``separation`` t = β·sensitivity = ε.

    The law of ℓ is :class:`expost.noise.NormLaplaceLaw`, with ∣ℓ∣ ≤ t: pure ε-DP at ε = t. In d ≥ 2
    the largest loss needs the noise to point straight away from the other model, so all figures but
    the largest loss are smaller than pure ε allows. 0 ≤ t ≤ ∞; figures are exact but for rounding,
    and those of pure ε past t + d = 1e12.

    Parameters
    ----------
    separation : float
        t = β·sensitivity = ε.
    dimension : int
        The number d of coordinates of the noise.
    """

    separation: float
    dimension: int

    LAW = "norm-laplace"
    PARAMETER = Parameter(name="separation", high=1e12)

    def __post_init__(self) -> None:
        object.__setattr__(self, "separation", extended("separation", self.separation))
        object.__setattr__(self, "dimension", count("dimension", self.dimension))

    def delta(self, epsilon: float) -> float:
        """Return E[(1 − e^(ε−ℓ))₊] by quadrature, 0 from t on; d = 1: 1 − e^((ε−t)/2)."""
        epsilon = extended("epsilon", epsilon)
        t = self.separation
        if t == math.inf:
            return 1.0
        if epsilon >= t:
            return 0.0
        if self._is_beyond:
            return EpsilonDelta(epsilon=t).delta(epsilon)
        bound = up(-math.expm1(epsilon - t) / (1 + math.exp(-t)), most=1.0)
        if self.dimension == 1:
            return up(-math.expm1(0.5 * (epsilon - t)), most=bound)
        # What underflows is still not 0.
        excess = max(self._tail.excess(self._tail.angle(epsilon)), math.ulp(0.0))
        return min(self._raised(excess), bound)

    def epsilon(self, delta: float) -> float:
        """Return the ε with δ(ε) = ``delta``, at most t; d = 1: t + 2 log(1 − δ)."""
        delta = level("delta", delta)
        t = self.separation
        if delta == 0 or t in (0.0, math.inf):
            return t
        if self._is_beyond:
            return EpsilonDelta(epsilon=t).epsilon(delta)
        if self.dimension == 1:
            return _raised_sum(t, 2 * math.log1p(-down(delta)))
        below, _ = self._tail.angle_where(self._tail.excess, self._lowered(delta))
        return min(self._tail.loss(below), t)

    def loss(self, delta: float = 0.0) -> float:
        """Return the (1 − δ)-quantile of ℓ in [0, t]; d = 1: t, at δ > ½ t + 2 log(2(1 − δ))."""
        delta = level("delta", delta)
        t = self.separation
        if delta == 0 or t in (0.0, math.inf):
            return t
        if self._is_beyond:
            return EpsilonDelta(epsilon=t).loss(delta)
        if self.dimension == 1:
            return _raised_sum(t, 2 * math.log(2 * (1 - delta))) if delta > 0.5 else t
        below, _ = self._tail.angle_where(self._tail.present, self._lowered(delta))
        return min(self._tail.loss(below), t)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return P(ℓ > c) at the c where P(−ℓ > c) = fpr (Neyman and Pearson).

        d = 1 has atoms at ±t, where the test is randomised: e^t·fpr up to fpr = e^(−t)/2, then
        1 − e^(−t)/(4fpr) up to ½, then 1 − e^(−t)(1 − fpr).
        """
        fpr = rate("false_positive_rate", false_positive_rate)
        if self.separation == math.inf:
            return 1.0
        if self.separation == 0 or fpr in (0.0, 1.0):
            return fpr
        most = EpsilonDelta(epsilon=self.separation).true_positive_rate(fpr)
        if self._is_beyond:
            return most
        power = up(self._power_on_a_line(fpr)) if self.dimension == 1 else self._power(fpr)
        return max(min(power, most), fpr)

    def describe(self) -> str:
        """Return a description, as 'norm-Laplace noise in 6 dimensions, epsilon = 1'."""
        dimensions = "1 dimension" if self.dimension == 1 else f"{self.dimension} dimensions"
        return f"norm-Laplace noise in {dimensions}, epsilon = {upper_text(self.separation)}"

    def _power_on_a_line(self, fpr: float) -> float:
        t = self.separation
        if fpr >= 0.5:
            return math.exp(-t) * fpr - math.expm1(-t)
        if t + math.log(2 * fpr) <= 0:
            return math.exp(t) * fpr
        return 1 - math.exp(-t) / (4 * fpr)

    def _power(self, fpr: float) -> float:
        """Return the supporting line of the curve at the threshold c, for d ≥ 2.

        For every c ≥ 0 the noise is a (c, δ(c)) mechanism, whose rates bound its own; at the right
        c they are equal. So an error of the angle makes a bound too, and counts squared.
        """
        tail = self._tail
        if fpr <= tail.absent(_RIGHT):
            below, _ = tail.angle_where(tail.absent, fpr, halvings=_HALVINGS)
        else:
            below, _ = tail.angle_where(tail.present, 1 - fpr, halvings=_HALVINGS)
        threshold = min(tail.loss(below), self.separation)
        slip = self.delta(threshold)
        if not slip < 1:
            return 1.0
        return EpsilonDelta(epsilon=threshold, delta=slip).true_positive_rate(fpr)

    @property
    def _is_beyond(self) -> bool:
        return self.dimension > 1 and self.separation + self.dimension > _LARGEST

    @cached_property
    def _tail(self) -> LossTail:
        separation = max(self.separation, _LEAST_SEPARATION)
        return LossTail(separation=separation, dimension=self.dimension)

    def _raised(self, value: float) -> float:
        return value * (1 + self._tail.error)

    def _lowered(self, value: float) -> float:
        return value / (1 + 2 * self._tail.error)


def _raised_sum(largest: float, change: float) -> float:
    """Return largest + change, with change ≤ 0, rounded up and kept to [0, largest]."""
    slack = 4 * ROUNDOFF * (largest - change)
    return min(max(largest + change + slack, 0.0), largest)
