"""Which ε, and why: the verdict on a set of rows.

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
from expost.rounding import Side, at_most, fixed, lower_text, plain, significant

__all__ = [
    "GRID",
    "MEASURE_NAMES",
    "Recommendation",
    "Verdict",
    "decide",
    "score_text",
    "search",
]

# Values of ε that are tried where none are given, and beyond them if no one of these is enough.
GRID = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_BEYOND = (30.0, 100.0)
# Halvings of the step between the last value that is not enough and the first that is.
_HALVINGS = 2
# A gain is taken for real from so many standard errors on, and counts from so large a share of the
# best reachable one on: models of much noise are constant, and a constant may beat another.
_REAL, _LITTLE = 2.0, 0.05
MEASURE_NAMES = {"log_loss": "log loss", "r2": "R²", "auc": "AUC", "accuracy": "accuracy"}


class Verdict(Enum):
    """What the answer amounts to."""

    ENOUGH = "enough"
    MOST = "most"
    NONE = "none"
    USELESS = "useless"


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """A verdict, its ε and its reasons.

    ``epsilon``         the ε to use; None for "none" and "useless".
    ``ceiling``         the largest ε that keeps the limit.
    ``enough``          the smallest ε tried that is enough, or would be; None if none is.
    ``share``           of the best reachable gain at ``epsilon`` (of "none", at the ceiling).
    ``rows_needed``     rows of the same population with which the ceiling would be enough (of
                        "none": better than the base rate), about; None where it is not known.
    ``columns_needed``  coefficients with which the ceiling would beat the base rate, about.
    ``reasons``         sentences; the first is the verdict.
    """

    verdict: Verdict
    epsilon: float | None
    ceiling: float
    enough: float | None = None
    share: float | None = None
    rows_needed: int | None = None
    columns_needed: int | None = None
    reasons: tuple[str, ...]


def search(trials: Trials, ceiling: float, share: float, epsilons: tuple[float, ...]) -> Utility:
    """Try the values of ε that the verdict needs, and return their scores.

    ``epsilons``  what to try beside the ceiling; none: a grid, and values between its points where
                  the first that is enough lies.
    """
    wanted = sorted({*(epsilons or GRID), *([ceiling] if ceiling > 0 else [])}, reverse=True)
    trials.score(*wanted)
    found = trials.utility()
    if epsilons or not _is_real(found.leading.best_gain, found.leading.best_error):
        return found
    for epsilon in _BEYOND:
        if _first_enough(found, share) is not None:
            break
        trials.score(epsilon)
        found = trials.utility()
    for _ in range(_HALVINGS):
        place = _first_enough(found, share)
        if place is None or place == 0:
            break
        below, above = found.epsilons[place - 1 : place + 1].tolist()
        middle = float(significant(math.sqrt(below * above), 2))
        if not below < middle < above:
            break
        trials.score(middle)
        found = trials.utility()
    return found


def _is_real(gain: float, error: float) -> bool:
    return gain > _REAL * error


def _first_enough(utility: Utility, share: float) -> int | None:
    """Return the place of the smallest ε that is enough, with every larger one."""
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
        return _unmeasured(ceiling)
    curve = utility.leading
    if not _is_real(curve.best_gain, curve.best_error):
        return Recommendation(
            verdict=Verdict.USELESS, epsilon=None, ceiling=ceiling, reasons=(_useless(utility),)
        )
    place = _first_enough(utility, share)
    enough = None if place is None else float(utility.epsilons[place])
    if place is not None and enough is not None and enough <= ceiling:
        return Recommendation(
            verdict=Verdict.ENOUGH,
            epsilon=enough,
            ceiling=ceiling,
            enough=enough,
            share=float(curve.share[place]),
            reasons=(_enough(utility, place),),
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
            rows_needed=needed,
            reasons=(_most(utility, top, enough, needed, share),),
        )
    better = _first_better(utility)
    needed = columns = None
    if better is not None and ceiling > 0:
        needed = _rows_needed(plan, ceiling, better)
        columns = _columns_needed(plan, ceiling, better)
    few = None if columns is None else (columns, plan(ceiling).dimension)
    return Recommendation(
        verdict=Verdict.NONE,
        epsilon=None,
        ceiling=ceiling,
        enough=enough,
        share=float(curve.share[top]) if ceiling > 0 else None,
        rows_needed=needed,
        columns_needed=columns,
        reasons=(_none(utility, ceiling, better, needed, few),),
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
    place = int(missing[-1]) + 1 if len(missing) else 0
    return float(utility.epsilons[place]) if place < len(good) else None


def _rows_needed(plan: Plan, ceiling: float, epsilon: float) -> int:
    """Return the rows with which the noise ratio at the ceiling is that of ``epsilon`` now."""
    return plan(ceiling).forecast.rows_needed(plan(epsilon).forecast.noise_ratio)


def _columns_needed(plan: Plan, ceiling: float, epsilon: float) -> int | None:
    """Return the coefficients with which the ratio at the ceiling is that of ``epsilon`` now.

    The length of Gaussian noise grows like the square root of their number. None below 1, and for
    another noise.
    """
    how = plan(ceiling)
    if how.delta is None:
        return None
    ratio = plan(epsilon).forecast.noise_ratio / how.forecast.noise_ratio
    return math.floor(how.dimension * ratio**2) or None


# -- sentences -------------------------------------------------------------------------------------


def score_text(measure: str, value: float) -> str:
    """Return a score as a person reads it: a share of rows, or a plain number."""
    if measure == "accuracy":
        return f"{100 * value:.1f} %"
    return f"{value:.3f}".replace("-", "−")


def _figures(utility: Utility, place: int | None) -> str:
    """Return the leading measure there, by the base rate and at best."""
    name, curve = utility.measure, utility.leading
    base, best = score_text(name, curve.base_rate), score_text(name, curve.best)
    here = "" if place is None else f"{score_text(name, float(curve.mean[place]))}, "
    return f"held-out {MEASURE_NAMES[name]} {here}{base} by the base rate, {best} at best"


def _percent(share: float, side: Side) -> str:
    """Return a share of the reachable gain, rounded to the safe side."""
    return f"{fixed(share, 0, side, percent=True)} %"


def _learnt(curve: Curve, place: int) -> str:
    share = min(float(curve.share[place]), 1.0)
    return f"{_percent(share, 'down')} of what can be learnt from these columns"


def _enough(utility: Utility, place: int) -> str:
    curve = utility.leading
    left = max(float(curve.gap[place]) / curve.best_gain, 0.0)
    more = (
        "more buys nothing that can be measured"
        if curve.gap[place] <= curve.gap_error[place]
        else f"more buys at most {_percent(left, 'up')}"
    )
    return (
        f"ε = {_short(float(utility.epsilons[place]))} is enough: {_learnt(curve, place)}"
        f" ({_figures(utility, place)}); {more}."
    )


def _most(
    utility: Utility, place: int, enough: float | None, needed: int | None, share: float
) -> str:
    asked = _percent(share, "nearest")
    if enough is None:
        onward = f"no ε that was tried reaches {asked}"
    else:
        onward = f"{asked} would take ε = {at_most(enough)}"
        onward += "" if needed is None else f", or about {_count(needed)} rows"
    return (
        f"ε = {_short(float(utility.epsilons[place]))} is the most that the limit allows:"
        f" {_learnt(utility.leading, place)} ({_figures(utility, place)}); {onward}."
    )


def _none(
    utility: Utility,
    ceiling: float,
    better: float | None,
    needed: int | None,
    columns: tuple[int, int] | None,
) -> str:
    if not ceiling > 0:
        return "No ε keeps the limit on the posterior: allow a larger one, or take another noise."
    place = int(np.searchsorted(utility.epsilons, ceiling))
    onward = "; no ε that was tried does"
    if better is not None:
        few = "" if columns is None else f", or {columns[0]} coefficients instead of {columns[1]}"
        rows = "" if needed is None else f", or about {_count(needed)} rows"
        onward = f"; that would take ε = {at_most(better)}{rows}{few}"
    return (
        "No ε within the limit makes a model that is better than the base rate: at"
        f" ε = {_short(ceiling)}, the most it allows, {_figures(utility, place)}{onward}."
    )


def _useless(utility: Utility) -> str:
    curve = utility.leading
    return (
        "Useless even without noise: these columns are not shown to predict the label"
        f" ({_figures(utility, None)}, a gain of {curve.best_gain:.2g} with a standard error of"
        f" {curve.best_error:.2g}). No ε helps; take other columns or more rows."
    )


def _unmeasured(ceiling: float) -> Recommendation:
    if not ceiling > 0:
        reason = "No ε keeps the limit on the posterior: allow a larger one."
        return Recommendation(
            verdict=Verdict.NONE, epsilon=None, ceiling=ceiling, reasons=(reason,)
        )
    reason = (
        f"ε = {_short(ceiling)} is the most that the limit allows; what a model is worth there was"
        " not measured."
    )
    return Recommendation(verdict=Verdict.MOST, epsilon=ceiling, ceiling=ceiling, reasons=(reason,))


def _count(value: int) -> str:
    """Return a number of rows or columns with two digits, rounded up."""
    return plain(significant(value, 2, "up"))


def _short(epsilon: float) -> str:
    return lower_text(epsilon, 3)
