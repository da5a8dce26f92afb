"""A step of DP-SGD in a hidden batch: the adversary does not see whether the row was in it.

Conventions
-----------
q         the sampling rate: the probability that the row is in the batch.
L         (1−q) + q·e^a, the likelihood ratio of a step with the row in the data and without, with
          a = (2r·g − ∥g∥²)/(2s²), r the noisy sum less the other sampled gradients.
m         ∥g∥/s. Where the row was not in the batch, a = mz − m²/2 with z standard normal: the
          noise does not depend on the row.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import logsumexp

from expost import _checks
from expost.types import FloatArray, IntArray

__all__ = ["UNSEEN_FAILS", "drawn_losses", "hidden_term", "unseen_interval", "unseen_mean"]

# With this probability at most a row's interval fails where steps were not computed.
UNSEEN_FAILS = 1e-6
# λ over which Markov's inequality is minimised.
_ORDERS = np.geomspace(1.0, 1e4, 60)
# Steps that are drawn at a time.
_DRAWN_STEPS = 4096
# Of a quadrature; a λ that needs more is left out.
_MOST_NODES = 250_000


def hidden_term(exponent: Any, rate: float) -> FloatArray:
    """Return log L = log((1−q) + q·e^a) without overflow, or cancellation near a = 0."""
    a = np.asarray(exponent, dtype=np.float64)
    if rate == 1:
        return a
    rate = _checks.probability("rate", rate)
    near = np.log1p(rate * np.expm1(np.clip(a, -1.0, 1.0)))
    far = np.logaddexp(math.log1p(-rate), math.log(rate) + a)
    return np.where(np.abs(a) <= 1, near, far)


def unseen_mean(separation: Any, rate: float, most: float) -> FloatArray:
    """Estimate E[log L] of a row that was not in the batch, at m = ``separation`` ≤ ``most``."""
    mean: FloatArray = np.interp(separation, *_mean_table(rate, most))
    return mean


@lru_cache(maxsize=16)
def _mean_table(rate: float, most: float) -> tuple[FloatArray, FloatArray]:
    """Return m from 0 to ``most``, and E[log L] there, by the trapezoidal rule."""
    grid, z = np.linspace(0.0, most, 129), np.linspace(-12.0, 12.0, 1201)
    weights = np.exp(-0.5 * z * z) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    return grid, hidden_term(grid[:, None] * (z - 0.5 * grid[:, None]), rate) @ weights


def drawn_losses(
    separation: FloatArray, rate: float, steps: int, runs: int, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """Yield (n,) losses of rows in each of ``runs`` runs; a row has the same m at all steps.

    Rows of one run share its draws, taken at a grid of m: each row's own law is right, what they
    have in common is not.
    """
    grid = np.linspace(0.0, max(float(np.max(separation)), 1e-300), 65)
    for _ in range(runs):
        total = np.zeros(len(grid))
        for start in range(0, steps, _DRAWN_STEPS):
            count = min(_DRAWN_STEPS, steps - start)
            inside = rng.random((count, 1)) < rate
            # r = b + g where the row was in the batch.
            exponent = grid * (rng.standard_normal((count, 1)) + (inside - 0.5) * grid)
            total += hidden_term(exponent, rate).sum(axis=0)
        loss: FloatArray = np.interp(separation, grid, total)
        yield loss


def unseen_interval(
    unseen: IntArray, rate: float, separation: float, *, replaced: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Return (low, high): the sum of the terms of unseen steps, except with probability 1e-6.

    The row was in none of these batches, and of its gradient only m ≤ ``separation`` is known
    (C/s). For λ ≥ 1 and for λ < 0 E[L^λ] is an f-divergence of the step's two laws and grows with
    m (data processing: noise and shrinking lead from a longer gradient to a shorter one). So
    exp(λ Σ log L − k·log E[L^λ]), taken at the largest m, is a supermartingale over k steps
    however gradients react, and Markov's inequality bounds the sum on both sides. ``replaced``:
    one such sum less another.
    """
    tail = math.log((4 if replaced else 2) / UNSEEN_FAILS)
    counts, where = np.unique(unseen, return_inverse=True)

    def bound(sign: float) -> FloatArray:
        moments = np.array([_log_moment(sign * order, separation, rate) for order in _ORDERS])
        best = ((np.maximum(counts, 1)[:, None] * moments + tail) / _ORDERS).min(axis=1)
        return np.where(counts > 0, best, 0.0)

    above = bound(1.0)
    # No term is below log(1−q).
    below = np.minimum(bound(-1.0), -counts * math.log1p(-rate))
    if replaced:
        above = below = above + below
    return -below[where], above[where]


def _log_moment(order: float, separation: float, rate: float) -> float:
    """Return log E[L^order] by the trapezoidal rule, rounded up; infinite for too many nodes."""
    if order == 1:
        return 0.0
    # The slope of log L is at most m, and at most qm where a ≤ 0: the peak lies within.
    start = -14 - max(-order, 0.0) * rate * separation
    end = 14 + max(order, 0.0) * separation
    # L has no zero within π/m of the real line, so that the rule errs by less than e^(−4π²).
    step = min(0.05, 0.5 / separation)
    if not (end - start) / step <= _MOST_NODES:
        return math.inf
    z = np.arange(start, end + step, step)
    logs = order * hidden_term(separation * (z - 0.5 * separation), rate) - 0.5 * z * z
    return float(logsumexp(logs)) + math.log(step / math.sqrt(2 * math.pi)) + 1e-12
