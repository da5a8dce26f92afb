"""How well each row alone is told from its model: over models with it and models without it.

For row i, references are of two kinds, trained with the row and without. Of one of each kind,

    told_apart_i = P(φ_in > φ_out) + ½·P(φ_in = φ_out)

is how often the one with the row is found by its confidence in it: the area under the row's own
ROC curve (Mann and Whitney 1947), ½ where nothing shows. It is a figure of the row and of how
models are trained, as the typical exposure is, not of the one target.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from expost.attacks.evidence import Confidences, Flags
from expost.types import FloatArray

__all__ = ["ToldApart", "told_apart"]

# Confidences ranked at a time.
_BLOCK = 2**22


@dataclass(frozen=True, kw_only=True, eq=False)
class ToldApart:
    """``value`` (n,) as above, NaN for a row that all references have, or none; ``error`` (n,)."""

    value: FloatArray
    error: FloatArray


def told_apart(confidence: Confidences, inside: Flags) -> ToldApart:
    """Of each column of ``confidence`` (m, n), by ``inside`` (m, n).

    The standard error is Hanley and McNeil's (1982, Eq. 2), from below that of one pair in all:
    where every pair is right it is not 0, but what the rule of three leaves.
    """
    models, rows = confidence.shape
    value, error = np.full(rows, np.nan), np.full(rows, np.nan)
    step = max(1, _BLOCK // max(models, 1))
    for start in range(0, rows, step):
        block = slice(start, start + step)
        within = np.asarray(inside[:, block])
        with_row = within.sum(axis=0).astype(np.float64)
        without = models - with_row
        both = (with_row > 0) & (without > 0)
        if not np.any(both):
            continue
        ranks = rankdata(np.asarray(confidence[:, block]), axis=0)
        total = np.where(within, ranks, 0.0).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            area = (total - with_row * (with_row + 1) / 2) / (with_row * without)
            spread = _standard_error(area, with_row, without)
        value[block] = np.where(both, area, np.nan)
        error[block] = np.where(both, spread, np.nan)
    return ToldApart(value=value, error=error)


def _standard_error(area: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """√[(A(1−A) + (m₁−1)(Q₁−A²) + (m₂−1)(Q₂−A²))/(m₁m₂)], Q₁ = A/(2−A), Q₂ = 2A²/(1+A).

    The larger of those for A and for 1 − A, at an A kept from 0 and 1 by half a pair.
    """
    room = 0.5 / (first * second)
    kept = np.clip(area, room, 1 - room)

    def variance(a: FloatArray) -> FloatArray:
        one, two = a / (2 - a), 2 * a**2 / (1 + a)
        spread = a * (1 - a) + (first - 1) * (one - a**2) + (second - 1) * (two - a**2)
        return spread / (first * second)

    return np.asarray(np.sqrt(np.maximum(variance(kept), variance(1 - kept))))
