"""What Gaussian noise allows, in closed forms."""

import math
from dataclasses import dataclass

from scipy.special import erf, erfc, ndtr, ndtri

from expost.accounting import gaussian_delta, gaussian_epsilon
from expost.numbers import upper_text
from expost.risk.guarantee import Guarantee, Parameter, extended, level, rate, short_of_one, up

__all__ = ["GaussianNoise"]

# Relative error of gaussian_delta, with room (2e-13 in tests/accounting/test_gaussian.py), and
# a little less than gaussian_epsilon leaves.
_DELTA_ERROR = 9e-12


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Guarantee):
    """Gaussian noise of σ = sensitivity/μ: N(0, 1) against N(μ, 1); ℓ ~ N(μ²/2, μ²), 0 ≤ μ ≤ ∞.

    k releases of μᵢ are one of √Σμᵢ²: ``delta``, ``epsilon``, ``advantage`` and
    ``true_positive_rate`` also where a release reacts to those before it, ``loss`` and posteriors
    only where all are fixed beforehand (else :class:`Composition`). Every figure is rounded up.

    Parameters
    ----------
    mu : float
        μ = sensitivity/σ.
    """

    mu: float

    LAW = "gaussian"
    PARAMETER = Parameter(name="mu", high=1e160)
    is_gaussian = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", extended("mu", self.mu))

    @property
    def gaussian(self) -> "GaussianNoise":
        """Itself."""
        return self

    def delta(self, epsilon: float) -> float:
        """Return Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle and Wang 2018, Thm 8).

        At ε = 0 it is 2Φ(μ/2) − 1.
        """
        epsilon = extended("epsilon", epsilon)
        # 2Φ(μ/2) − 1 = erf(μ/√8), which keeps its digits for small μ, and erfc its for large ones.
        rest = float(erfc(self.mu / math.sqrt(8)))
        advantage = short_of_one(rest) if rest < 0.5 else up(float(erf(self.mu / math.sqrt(8))))
        if epsilon == 0 or self.mu == math.inf:
            return advantage
        if epsilon == math.inf or self.mu == 0:
            return 0.0
        # What underflows is still not 0.
        delta = max(gaussian_delta(epsilon, self.mu), math.ulp(0.0))
        return up(delta, most=advantage, error=_DELTA_ERROR)

    def epsilon(self, delta: float) -> float:
        """Return the ε with δ(ε) = ``delta``; infinite at 0 unless μ = 0."""
        delta = level("delta", delta)
        if delta == 0:
            return 0.0 if self.mu == 0 else math.inf
        # δ(b) ≤ P(ℓ > b): near δ = 1 the loss is known to more digits.
        return min(gaussian_epsilon(self.mu, delta), self.loss(delta))

    def loss(self, delta: float = 0.0) -> float:
        """Return μ²/2 + μΦ⁻¹(1 − δ), at least 0: P(ℓ > b) = Φ(μ/2 − b/μ) (erratum 10)."""
        delta = level("delta", delta)
        if self.mu == 0:
            return 0.0
        if delta == 0 or self.mu == math.inf:
            return math.inf
        score = -float(ndtri(delta))
        loss = self.mu * (0.5 * self.mu + score)
        slack = 2.0**-49 * self.mu * (0.5 * self.mu + abs(score))
        return max(loss + slack, 0.0)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return Φ(Φ⁻¹(fpr) + μ) (Dong, Roth and Su 2019, Eq. 6)."""
        fpr = rate("false_positive_rate", false_positive_rate)
        if self.mu == math.inf:
            return 1.0
        if self.mu == 0 or fpr in (0.0, 1.0):
            return fpr
        score = float(ndtri(fpr))
        score += self.mu + 2.0**-49 * (abs(score) + self.mu)
        power = short_of_one(float(ndtr(-score))) if score > 0 else up(float(ndtr(score)))
        return max(power, fpr)

    def describe(self) -> str:
        """Return a description, as 'Gaussian noise, mu = 0.5'."""
        return f"Gaussian noise, mu = {upper_text(self.mu)}"
