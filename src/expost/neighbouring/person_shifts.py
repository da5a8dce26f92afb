"""The shift of every person, by any method: persons with as many rows go together.

Each number of rows k has its own expansion, since n − k rows are left and averaged over; the pass
over the data behind it is shared.
"""

from collections.abc import Callable
from dataclasses import dataclass

import joblib
import numpy as np

from expost._numerics import ROUNDOFF, gamma, row_norms
from expost.glm import Objective, minimise
from expost.neighbouring.expansion import Expansion, Linearised, expand
from expost.neighbouring.grouped import WithoutPersons
from expost.neighbouring.persons import Persons
from expost.neighbouring.refine import refined, warn_of
from expost.neighbouring.removed import Pull, persons_at_once
from expost.neighbouring.shifts import Shifts, SummedShifts
from expost.types import FloatArray, IntArray

__all__ = ["PersonShifts", "person_shifts"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PersonShifts:
    """What a method finds, person by person."""

    shifts: Shifts
    distance: FloatArray
    error: FloatArray
    worst_case: SummedShifts
    base_error: float


def person_shifts(
    linear: Linearised,
    persons: Persons,
    *,
    method: str,
    keep_total_penalty: bool,
    tolerance: float,
    warn: bool,
) -> PersonShifts:
    """The minimisers without each person, as seen from the base."""
    problem = linear.problem
    count = len(persons)
    distance, error = np.empty((2, count))
    shift = np.empty((0 if method == "worst-case" else count, problem.columns))
    factor, scale, base_error = np.empty(count), np.empty(problem.count), np.inf
    find = _METHODS[method]
    for chosen, rows in persons.by_size():
        size = rows.shape[1]
        expansion = expand(
            linear,
            rows_after=problem.count - size,
            changed=size,
            keep_total_penalty=keep_total_penalty,
        )
        base_error = min(base_error, expansion.base_error)
        factor[chosen], scale[rows] = _worst_case_scales(expansion, rows)
        found = find(_Sized(expansion=expansion, persons=chosen, rows=rows, all=persons), tolerance)
        distance[chosen], error[chosen] = found.distance, found.error
        if method != "worst-case":
            shift[chosen] = found.shift
    worst_case = SummedShifts(
        direction=linear.base.theta, factor=factor, scale=scale, X=problem.held.X, persons=persons
    )
    error[np.isnan(error)] = np.inf
    if warn and method == "exact":
        warn_of(distance, error, tolerance, stacklevel=5)
    return PersonShifts(
        shifts=Shifts.dense(worst_case.all() if method == "worst-case" else shift),
        distance=distance,
        error=error,
        worst_case=worst_case,
        base_error=base_error,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sized:
    """Persons with as many rows, and their expansion."""

    expansion: Expansion
    persons: IntArray
    rows: IntArray
    all: Persons


@dataclass(frozen=True, kw_only=True, eq=False)
class _Found:
    shift: FloatArray
    distance: FloatArray
    error: FloatArray


def _worst_case_scales(expansion: Expansion, rows: IntArray) -> tuple[float, FloatArray]:
    """A_wc − A = pull/Λ' = (n p − m p')/(m p')·Â + Σ f′x/(m p'); NaN if penalties differ."""
    m, penalty = expansion.rows_after, expansion.penalty_after
    if not (penalty[0] > 0 and np.all(penalty == penalty[0])):
        return np.nan, np.full(rows.shape, np.nan)
    factor = float(expansion.penalty_change[0]) / m / float(penalty[0])
    return factor, expansion.linear.data.slope[rows] / m / float(penalty[0])


def _newton(sized: _Sized, tolerance: float) -> _Found:
    near = WithoutPersons.of(sized.expansion, sized.persons, sized.rows, sized.all.owner)
    return _within_sphere(sized, *near.newton())


def _exact(sized: _Sized, tolerance: float) -> _Found:
    near = WithoutPersons.of(sized.expansion, sized.persons, sized.rows, sized.all.owner)
    return _within_sphere(sized, *refined(near, tolerance))


def _within_sphere(
    sized: _Sized, shift: FloatArray, distance: FloatArray, error: FloatArray
) -> _Found:
    """Where a certificate proves nothing, the sphere still does: error ≤ ∥δ∥ + ∥A_wc − A∥."""
    error = np.where(np.isnan(error), np.inf, error)
    poor = np.flatnonzero(error > distance)
    floor = sized.expansion.floor
    if len(poor) and floor > 0:
        size, uncertain, _ = _pulled(sized.expansion, sized.rows[poor])
        reach = distance[poor] + size * (1 + 1e-9) / floor + _both_ends(sized, uncertain)
        error[poor] = np.fmin(error[poor], reach)
    return _Found(shift=shift, distance=distance, error=error)


def _pulled(expansion: Expansion, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(∥pull∥, a bound on its error, ∥pull/p'∥) of each person."""
    size, error, distance = np.empty((3, len(rows)))
    step = persons_at_once(rows.shape[1] * expansion.problem.columns)
    for start in range(0, len(rows), step):
        some = slice(start, start + step)
        pull = Pull.of(expansion, rows[some])
        size[some], error[some] = row_norms(pull.value), pull.error
        with np.errstate(divide="ignore", invalid="ignore"):
            distance[some] = row_norms(pull.value / expansion.penalty_after)
    return size, error, distance


def _both_ends(sized: _Sized, uncertain: FloatArray) -> FloatArray:
    """What the base's residual and an uncertain pull can do to a shift, each end on its own."""
    expansion = sized.expansion
    problem = expansion.problem
    eta = expansion.base.gradient_bound * (1 + problem.count / expansion.rows_after)
    least = max(min(expansion.floor, float(np.min(problem.penalty))), 1e-300)
    return (eta + uncertain) / least


def _worst_case(sized: _Sized, tolerance: float) -> _Found:
    """∥A' − A_wc∥ ≤ ∥A_wc − A∥/(1 + κ): the proof asks nothing of which rows leave."""
    expansion, problem = sized.expansion, sized.expansion.problem
    _, uncertain, distance = _pulled(expansion, sized.rows)
    if not np.all(expansion.penalty_after == expansion.penalty_after[0]):
        distance = np.full(len(distance), np.nan)
    gram = expansion.linear.largest_gram
    smoothness = problem.loss.curvature_bound * gram / expansion.rows_after
    kappa = float(problem.penalty[0]) / smoothness if smoothness > 0 else np.inf
    rounding = gamma(problem.columns + sized.rows.shape[1] + 64) * 8
    error = distance / (1 + kappa) * (1 + 1e-9) + _both_ends(sized, 2 * uncertain)
    return _Found(
        shift=np.empty((0, problem.columns)), distance=distance, error=error + rounding * distance
    )


def _retrain(sized: _Sized, tolerance: float) -> _Found:
    """Minimise every neighbour's own objective."""
    base, problem = sized.expansion.base, sized.expansion.problem

    def one(rows: IntArray) -> tuple[FloatArray, float]:
        rest = Objective.of(
            X=np.delete(problem.held.X, rows, axis=0),
            y=np.delete(problem.held.y, rows),
            loss=problem.loss,
            penalty=sized.expansion.penalty_after,
        )
        goal = rest.natural_tolerance / 100
        found = minimise(rest, tolerance=goal, start=base.theta, require=False)
        return found.theta - base.theta, found.gradient_bound

    found = joblib.Parallel(n_jobs=-1, prefer="threads")(
        joblib.delayed(one)(rows) for rows in sized.rows
    )
    shift = np.array([pair[0] for pair in found])
    gradient = np.array([pair[1] for pair in found])
    distance = np.linalg.norm(shift, axis=1)
    rounding = ROUNDOFF * (float(np.linalg.norm(base.theta)) + distance)
    least = max(min(sized.expansion.floor, float(np.min(problem.penalty))), 1e-300)
    error = (gradient + base.gradient_bound) / least + rounding
    return _Found(shift=shift, distance=distance, error=error)


_METHODS: dict[str, Callable[[_Sized, float], _Found]] = {
    "newton": _newton,
    "exact": _exact,
    "worst-case": _worst_case,
    "retrain": _retrain,
}
