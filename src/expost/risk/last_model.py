"""What the final model of DP-SGD would reveal if every loss were linear: a heuristic.

Conventions
-----------
As in :mod:`expost.risk.dpsgd`: σ, q, T. Under a linear loss a row has the same gradient at every
step, whatever the parameters, so that the final model is a function of the sum of all noisy sums.
In units of the noise on that sum, σC√T, and along the gradient of a row of full length,

    P = Σ_k Binomial(k; T, q)·N(kν, 1)   with the row,   Q = N(0, 1)   without it,   ν = 1/(σ√T):

the row was in k batches. log P/Q grows with the position, so that every figure is one quantile.

No loss of a network is linear: these figures bound nothing. Nasr et al. (2024, The Last Iterate
Advantage) propose them as a heuristic, and give losses that break it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp, ndtri, xlog1py, xlogy

from expost import _checks
from expost._numerics import bracket_root
from expost.errors import InvalidInput
from expost.risk.guarantee import count, rate
from expost.types import FloatArray

__all__ = ["LinearLastModel"]

# Numbers of batches that together are less likely are left out; the ends and length of a search.
_LEAST_MASS = 1e-20
_FURTHEST = 40.0
_HALVINGS = 80


@dataclass(frozen=True, kw_only=True)
class LinearLastModel:
    """The final model of T steps of DP-SGD as if every loss were linear. Not a guarantee.

    Parameters
    ----------
    noise_multiplier : float
        σ, the standard deviation of the noise over the clipping norm.
    sampling_rate : float, default=1.0
        q, the probability that a row takes part in a step; 1: full batch.
    steps : int, default=1
        T, the number of steps.

    Notes
    -----
    For q = 1 and for T = 1 the figures are those of the transcript.
    """

    noise_multiplier: float
    sampling_rate: float = 1.0
    steps: int = 1

    def __post_init__(self) -> None:
        noise = _checks.positive("noise_multiplier", self.noise_multiplier)
        sampled = rate("sampling_rate", self.sampling_rate)
        if not sampled > 0:
            raise InvalidInput(f"sampling_rate={self.sampling_rate!r}: must lie in (0, 1].")
        object.__setattr__(self, "noise_multiplier", noise)
        object.__setattr__(self, "sampling_rate", sampled)
        object.__setattr__(self, "steps", count("steps", self.steps))

    def epsilon(self, delta: float) -> float:
        """Return the ε with δ(ε) = ``delta``, the larger of both directions.

        Parameters
        ----------
        delta : float
            δ in (0, 1).

        Returns
        -------
        float
            ε ≥ 0. It is an estimate.
        """
        delta = _checks.probability("delta", delta)

        def removed(position: float) -> float:
            ratio = self._log_ratio(position)
            return math.exp(self._right(position)) - math.exp(ratio + float(log_ndtr(-position)))

        def added(position: float) -> float:
            ratio = self._log_ratio(position)
            return math.exp(float(log_ndtr(position))) - math.exp(self._left(position) - ratio)

        # At the ε = ±ℓ of a position; the first falls with the position, the second grows.
        present = self._where(lambda position: delta - removed(position))
        absent = self._where(lambda position: added(position) - delta)
        return max(self._log_ratio(present), -self._log_ratio(absent), 0.0)

    def loss(self, delta: float) -> float:
        """Return what the evidence for the truth passes with probability ``delta``.

        Parameters
        ----------
        delta : float
            The probability, in (0, 1).

        Returns
        -------
        float
            Nats. It is an estimate.
        """
        delta = _checks.probability("delta", delta)
        present = self._where(lambda position: delta - math.exp(self._right(position)))
        absent = float(ndtri(delta))
        return max(self._log_ratio(present), -self._log_ratio(absent), 0.0)

    @cached_property
    def _counts(self) -> tuple[FloatArray, FloatArray]:
        """The numbers k of batches that are not negligible, and their log probabilities."""
        total, q = self.steps, self.sampling_rate
        k = np.arange(total + 1.0)
        log_mass = gammaln(total + 1) - gammaln(k + 1) - gammaln(total - k + 1)
        log_mass += xlogy(k, q) + xlog1py(total - k, -q)
        kept = log_mass > math.log(_LEAST_MASS / (total + 1))
        return k[kept], log_mass[kept]

    @property
    def _means(self) -> FloatArray:
        return self._counts[0] / (self.noise_multiplier * math.sqrt(self.steps))

    def _log_ratio(self, position: float) -> float:
        """Return log P/Q, which grows with the position."""
        means = self._means
        return float(logsumexp(self._counts[1] + means * (position - 0.5 * means)))

    def _right(self, position: float) -> float:
        """Return the log probability of P right of the position."""
        return float(logsumexp(self._counts[1] + log_ndtr(self._means - position)))

    def _left(self, position: float) -> float:
        """Return the log probability of P left of the position."""
        return float(logsumexp(self._counts[1] + log_ndtr(position - self._means)))

    def _where(self, increasing: Callable[[float], float]) -> float:
        """Return the position at which the function changes its sign."""

        def function(position: FloatArray) -> FloatArray:
            return np.asarray(increasing(float(position)))

        most = float(np.max(self._means)) + _FURTHEST
        return float(bracket_root(function, -_FURTHEST, most, halvings=_HALVINGS)[0])
