"""The verdict on a set of rows: the recommended ε and the reasons.

The rule
--------
gain      how much better a model is than the base rate, on rows it has not seen. SE is the standard
          error of a mean over folds.
ceiling   the largest ε that keeps the limit on the posterior of a row.
enough    the smallest ε tried from which on, for it and every larger one tried, the gain is within
          max(SE of the gap, 5 %) of that of the best reachable model, and above two SE.

useless   the gain of the best reachable model is not above two SE: no ε.
enough    enough ≤ ceiling: ε = enough.
most      the ceiling, where the gain is above two SE and above 5 % of the best reachable one, and
          the worst release has one.
none      otherwise: no ε within the limit makes a model that is better than the base rate.

Where the utility is not measured, the ceiling is the most that is allowed, and nothing more is
known.
"""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from expost.epsilon.limit import Plan
from expost.epsilon.utility import Curve, Trials, Utility
from expost.numbers import significant

__all__ = ["GRID", "Recommendation", "Verdict", "decide", "search"]

# Values of ε that are tried where none are given, and beyond them if no one of these is enough.
GRID = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_BEYOND = (30.0, 100.0)
# Halvings of the step between the last value that is not enough and the first that is.
_HALVINGS = 2
# A gain is taken for real from so many standard errors on, and counts from so large a share of the
# best reachable one on: models of much noise are constant, and a constant may beat another.
_REAL, _LITTLE = 2.0, 0.05


class Verdict(Enum):
    """The kinds of recommendation."""

    ENOUGH = "enough"
    MOST = "most"
    NONE = "none"
    USELESS = "useless"


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """A verdict, its ε and what it follows from.

    Parameters
    ----------
    epsilon : float | None
        The ε to use; None for "none" and "useless".
    ceiling : float
        The largest ε that keeps the limit.
    enough : float, optional
        The smallest ε tried that is enough, or would be; None if none is.
    better : float, optional
        Of "none": the smallest ε from which on all that were tried beat the base rate; None if none
        does.
    share : float, optional
        The share of the best reachable gain at ``epsilon`` (of "none", at the ceiling).
    required_share : float, optional
        The share of the best reachable gain that is enough.
    rows_needed : int, optional
        Rows of the same population with which the ceiling would be enough (of "none": better than
        the base rate), about; None where it is not known.
    columns_needed : int, optional
        Coefficients with which the ceiling would beat the base rate, about.
    """

    verdict: Verdict
    epsilon: float | None
    ceiling: float
    enough: float | None = None
    better: float | None = None
    share: float | None = None
    required_share: float | None = None
    rows_needed: int | None = None
    columns_needed: int | None = None


def search(trials: Trials, ceiling: float, share: float, epsilons: tuple[float, ...]) -> Utility:
    """Try the values of ε that the verdict needs, and return their scores.

    Parameters
    ----------
    epsilons : tuple[float, ...]
        The values to try in addition to the ceiling; none: a grid, refined around the first value
        that is enough.
    """
    wanted = sorted({*(epsilons or GRID), *([ceiling] if ceiling > 0 else [])}, reverse=True)
    trials.score(*wanted)
    utility = trials.utility()
    if epsilons or not _is_real(utility.leading.best_gain, utility.leading.best_error):
        return utility
    for epsilon in _BEYOND:
        if _first_enough(utility, share) is not None:
            break
        trials.score(epsilon)
        utility = trials.utility()
    for _ in range(_HALVINGS):
        index = _first_enough(utility, share)
        if index is None or index == 0:
            break
        below, above = utility.epsilons[index - 1 : index + 1].tolist()
        between = float(significant(math.sqrt(below * above), 2))
        if not below < between < above:
            break
        trials.score(between)
        utility = trials.utility()
    return utility


def _is_real(gain: float, error: float) -> bool:
    return gain > _REAL * error


def _first_enough(utility: Utility, share: float) -> int | None:
    """Return the index of the smallest ε that is enough, with every larger one."""
    curve = utility.leading
    allowed = np.maximum(curve.gap_error, (1 - share) * curve.best_gain)
    good = (curve.gap <= allowed) & (curve.gain > _REAL * curve.gain_error)
    if not good[-1]:
        return None
    missing = np.flatnonzero(~good)
    return int(missing[-1]) + 1 if len(missing) else 0


def decide(
    plan: Plan | None, ceiling: float, utility: Utility | None, *, share: float
) -> Recommendation:
    """Apply the rule of this module; ``plan`` is needed with a utility alone."""
    if utility is None or plan is None:
        verdict, epsilon = (Verdict.MOST, ceiling) if ceiling > 0 else (Verdict.NONE, None)
        return Recommendation(verdict=verdict, epsilon=epsilon, ceiling=ceiling)
    curve = utility.leading
    if not _is_real(curve.best_gain, curve.best_error):
        return Recommendation(
            verdict=Verdict.USELESS, epsilon=None, ceiling=ceiling, required_share=share
        )
    index = _first_enough(utility, share)
    enough = None if index is None else float(utility.epsilons[index])
    if index is not None and enough is not None and enough <= ceiling:
        return Recommendation(
            verdict=Verdict.ENOUGH,
            epsilon=enough,
            ceiling=ceiling,
            enough=enough,
            share=float(curve.share[index]),
            required_share=share,
        )
    top = int(np.searchsorted(utility.epsilons, ceiling))
    if ceiling > 0 and _are_better(curve)[top]:
        needed = None if enough is None else _rows_needed(plan, ceiling, enough)
        return Recommendation(
            verdict=Verdict.MOST,
            epsilon=ceiling,
            ceiling=ceiling,
            enough=enough,
            share=float(curve.share[top]),
            required_share=share,
            rows_needed=needed,
        )
    better = _first_better(utility)
    needed = columns = None
    if better is not None and ceiling > 0:
        needed = _rows_needed(plan, ceiling, better)
        columns = _columns_needed(plan, ceiling, better)
    return Recommendation(
        verdict=Verdict.NONE,
        epsilon=None,
        ceiling=ceiling,
        enough=enough,
        better=better,
        share=float(curve.share[top]) if ceiling > 0 else None,
        required_share=share,
        rows_needed=needed,
        columns_needed=columns,
    )


def _are_better(curve: Curve) -> NDArray[np.bool_]:
    """(k,) whether models at each ε are better than the base rate, the worst of them included."""
    least = np.maximum(_REAL * curve.gain_error, _LITTLE * curve.best_gain)
    better: NDArray[np.bool_] = (curve.gain > least) & (curve.least_gain > 0)
    return better


def _first_better(utility: Utility) -> float | None:
    """Return the smallest ε from which on all that were tried beat the base rate."""
    good = _are_better(utility.leading)
    missing = np.flatnonzero(~good)
    index = int(missing[-1]) + 1 if len(missing) else 0
    return float(utility.epsilons[index]) if index < len(good) else None


def _rows_needed(plan: Plan, ceiling: float, epsilon: float) -> int:
    """Return the rows with which the noise ratio at the ceiling is that of ``epsilon`` now."""
    return plan(ceiling).forecast.rows_needed(plan(epsilon).forecast.noise_ratio)


def _columns_needed(plan: Plan, ceiling: float, epsilon: float) -> int | None:
    """Return the coefficients with which the ratio at the ceiling is that of ``epsilon`` now.

    The length of Gaussian noise grows like the square root of their number. None below 1, and for
    another noise.
    """
    mechanism = plan(ceiling)
    if mechanism.delta is None:
        return None
    ratio = plan(epsilon).forecast.noise_ratio / mechanism.forecast.noise_ratio
    return math.floor(mechanism.dimension * ratio**2) or None
