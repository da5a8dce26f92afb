"""What DP-SGD allows: Gaussian noise on clipped gradients of Poisson samples, over many steps.

Conventions
-----------
σ, q, T    ``noise_multiplier`` (noise over clipping norm), ``sampling_rate``, ``steps``.
evidence   of all steps together, for an attacker who sees every noisy gradient (D5.3 Alg. 1); an
           attacker who sees only the last model has less.

Figures come from the privacy-loss distribution (:mod:`expost.accounting.pld`), which keeps its own
error bound; for q = 1 from the closed form, μ = √T/σ (2√T/σ where a row is replaced).
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri

from expost import _checks
from expost.accounting import gaussian_epsilon_below
from expost.accounting.laws import SampledGaussian, SampledRows, StepLaw
from expost.accounting.pld import PrivacyLoss
from expost.errors import ConvergenceError, InvalidInput
from expost.risk.gaussian import GaussianNoise
from expost.risk.guarantee import Guarantee, Parameter, count, extended, level, rate, up
from expost.types import Neighbouring

__all__ = ["DPSGD"]

# Where the distribution was tried (tests/risk/test_dpsgd.py); without sampling all is closed form.
_LEAST_NOISE, _MOST_NOISE = 1e-4, 1e8
_LEAST_RATE = 1e-10


@dataclass(frozen=True, kw_only=True)
class DPSGD(Guarantee):
    """T steps of a sum of gradients clipped to norm C, of rows drawn with probability q, plus σC·N.

    REMOVE and ADD are one relation, whose figures are the worse of both directions. REPLACE is for
    a row exchanged for another one.

    Parameters
    ----------
    noise_multiplier : float
        σ, the standard deviation of the noise over C.
    sampling_rate : float, default=1.0
        q, the probability that a row takes part in a step; 1: full batch.
    steps : int, default=1
        T, the number of steps.
    relation : Neighbouring, default=Neighbouring.REMOVE
        How the neighbouring data set differs.
    rows_per_person : int, default=1
        k: all rows of a person are removed, up to k of them, each sampled on its own.

    Formal guarantees
    -----------------
    The row's gradient may depend on all steps before it. ``delta``, ``epsilon``, ``advantage`` and
    ``true_positive_rate`` are those of the pair that dominates all others, from above, to about
    1e-4 of themselves (``epsilon_interval``). ``loss`` bounds the evidence of every pair: a
    gradient that vanishes once the row is learnt, as a hinge's does, keeps the evidence there
    is, so for T > 1 it is larger than the quantile of the dominating pair's own loss, also for
    q = 1 (docs of :mod:`expost.accounting.pld`).
    """

    noise_multiplier: float
    sampling_rate: float = 1.0
    steps: int = 1
    relation: Neighbouring = Neighbouring.REMOVE
    rows_per_person: int = 1

    PARAMETER = Parameter(
        name="noise_multiplier", low=_LEAST_NOISE, high=_MOST_NOISE, is_noise=True
    )

    def __post_init__(self) -> None:
        noise = _checks.positive("noise_multiplier", self.noise_multiplier)
        sampled = rate("sampling_rate", self.sampling_rate)
        if not sampled > 0:
            raise InvalidInput(f"sampling_rate={self.sampling_rate!r}: must lie in (0, 1].")
        if sampled < 1 and not (_LEAST_NOISE <= noise <= _MOST_NOISE and sampled >= _LEAST_RATE):
            raise InvalidInput(
                f"noise_multiplier={noise!r}, sampling_rate={sampled!r}: with sampling the noise"
                f" must lie between {_LEAST_NOISE:g} and {_MOST_NOISE:g} and the rate be at least"
                f" {_LEAST_RATE:g}; bound it by a case that lies there."
            )
        object.__setattr__(self, "noise_multiplier", noise)
        object.__setattr__(self, "sampling_rate", sampled)
        object.__setattr__(self, "steps", count("steps", self.steps))
        object.__setattr__(self, "relation", Neighbouring.parse(self.relation))
        _checks.rows_per_person(self.rows_per_person)
        if self.rows_per_person > 1 and self.relation is Neighbouring.REPLACE:
            raise InvalidInput(
                f"rows_per_person={self.rows_per_person}: persons are removed, not replaced; use"
                " relation='remove'."
            )

    def delta(self, epsilon: float) -> float:
        """Return δ(ε) ≥ 0."""
        epsilon = extended("epsilon", epsilon)
        if self.gaussian is not None:
            return self.gaussian.delta(epsilon)
        return 0.0 if epsilon == math.inf else checked(self.privacy_loss.delta(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return the least ε ≥ 0 with δ(ε) ≤ ``delta``; infinite at 0."""
        return self.epsilon_interval(delta)[1]

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """Return (low, high) around the dominating pair's ε(δ); the second is guaranteed.

        Parameters
        ----------
        delta : float
            δ in [0, 1).

        Returns
        -------
        tuple[float, float]
            The lower and the upper end.
        """
        delta = level("delta", delta)
        if delta == 0:
            return math.inf, math.inf
        if self.gaussian is not None:
            low = float(gaussian_epsilon_below(np.array([self.gaussian.mu]), delta)[0])
            return low, self.gaussian.epsilon(delta)
        low, high = self.privacy_loss.epsilon_interval(delta)
        return checked(low), checked(high)

    def loss(self, delta: float = 0.0) -> float:
        """Return the least b that the evidence for the truth passes with P ≤ ``delta``.

        Infinite at 0. For every pair and in either world; P(∣ℓ∣ > b) is at most δ(1 + e^(−b)).
        q = 1 and T = 1: that of Gaussian noise. q = 1: log(δ/u), where the test with
        Φ(Φ⁻¹(u) + μ) = δ has the false-positive rate u.
        """
        delta = level("delta", delta)
        if delta == 0:
            return math.inf
        if self.gaussian is None:
            return checked(self.privacy_loss.loss(delta))
        if self.steps == 1:
            return self.gaussian.loss(delta)
        return gaussian_loss(self.gaussian.mu, delta)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return the largest true-positive rate of any test, of all pairs and both directions."""
        fpr = rate("false_positive_rate", false_positive_rate)
        if self.gaussian is not None:
            return self.gaussian.true_positive_rate(fpr)
        return up(checked(self.privacy_loss.true_positive_rate(fpr)), most=1.0)

    def describe(self) -> str:
        """Return a description: 'DP-SGD, noise multiplier 1.1, sampling rate 0.01, 100 steps'."""
        steps = "1 step" if self.steps == 1 else f"{self.steps} steps"
        relation = ", a row replaced" if self.relation is Neighbouring.REPLACE else ""
        if self.rows_per_person > 1:
            relation = f", a person with {self.rows_per_person} rows removed"
        return (
            f"DP-SGD, noise multiplier {self.noise_multiplier:g}, sampling rate"
            f" {self.sampling_rate:g}, {steps}{relation}"
        )

    @property
    def gaussian(self) -> GaussianNoise | None:
        """The plain Gaussian noise that this is where every row is in every step, else None."""
        if self.sampling_rate < 1:
            return None
        moved = 2.0 if self.relation is Neighbouring.REPLACE else float(self.rows_per_person)
        # Three roundings, towards less noise.
        mu = moved * math.sqrt(self.steps) / self.noise_multiplier
        return GaussianNoise(mu=mu * (1 + 2.0**-51))

    @property
    def law(self) -> StepLaw:
        """One step's law of the loss."""
        if self.rows_per_person > 1:
            return SampledRows(
                mu=math.nextafter(1 / self.noise_multiplier, math.inf),
                rate=self.sampling_rate,
                rows=self.rows_per_person,
            )
        return SampledGaussian(
            mu=math.nextafter(1 / self.noise_multiplier, math.inf),
            rate=self.sampling_rate,
            replace=self.relation is Neighbouring.REPLACE,
        )

    @property
    def privacy_loss(self) -> PrivacyLoss:
        """The composed privacy-loss distribution of all steps."""
        return PrivacyLoss(steps=((self.law, self.steps),))

    def keeps(self, epsilon: float, delta: float) -> bool:
        """Return whether ε(δ) ≤ ``epsilon``: the distribution has more digits of ε than of δ."""
        return self.epsilon(delta) <= epsilon

    @property
    def draft(self) -> "DPSGD | None":
        """The same of a coarser distribution; None for q = 1, which has closed forms."""
        return None if self.sampling_rate == 1 else _Draft(**vars(self))


class _Draft(DPSGD):
    """DP-SGD by a coarser distribution, for a search."""

    @property
    def privacy_loss(self) -> PrivacyLoss:
        return PrivacyLoss(steps=((self.law, self.steps),), draft=True)


def gaussian_loss(mu: float, delta: float) -> float:
    """Return log(δ/u), Φ(Φ⁻¹(u) + μ) = δ, rounded up: the least b for all that the noise bounds.

    That includes releases that react to those before them, and whatever is computed from them.
    """
    if mu == 0:
        return 0.0
    if delta == 0 or mu == math.inf:
        return math.inf
    log_rate = float(log_ndtr(float(ndtri(delta)) - mu * (1 + 2.0**-50)))
    return max(math.log(delta) - log_rate + 2.0**-46 * (1 + abs(log_rate)), 0.0)


def checked(value: float) -> float:
    """Return ``value``, which must be a number ≥ 0: NaN is no privacy."""
    if not value >= 0:
        raise ConvergenceError(
            "the privacy-loss distribution gave no number: the noise multiplier, the sampling rate"
            " or the steps are too extreme; use less extreme ones."
        )
    return value
