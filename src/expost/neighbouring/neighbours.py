"""A(D₋ᵢ) for every row: where each neighbouring data set's minimiser lies, with a certificate.

``neighbours`` is the function users call. Methods, from cheap to costly:

worst-case  LeBlond's 2R − A: a gradient step that takes the Hessian for ΛI.
newton      one Newton step with the neighbour's own Hessian, all rows in one O(nd²) pass.
exact       newton, then refined until the certificate is below the tolerance.
retrain     brute force, one minimisation a row; the reference of the tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import joblib
import numpy as np

from expost import _checks
from expost._numerics import ROUNDOFF, gamma, row_norms
from expost.errors import InvalidInput
from expost.glm import Minimiser, Objective, minimise
from expost.labels import signs, two_classes
from expost.losses import Loss, Squared, make_loss
from expost.neighbouring.exact import refine
from expost.neighbouring.expansion import Change, Expansion, expand, largest_gram, linearise
from expost.neighbouring.newton import newton_shifts
from expost.neighbouring.person_shifts import person_shifts
from expost.neighbouring.persons import Persons, read_groups
from expost.neighbouring.shifts import Shifts, SummedShifts
from expost.results import Displayed
from expost.rounding import upper_text
from expost.rows import LONGEST_ROW
from expost.types import Audience, FloatArray, Neighbouring

__all__ = [
    "LOOSE",
    "METHODS",
    "Neighbours",
    "entering_rows",
    "neighbours",
    "neighbours_of",
    "sound_error",
    "tight_neighbours",
]

METHODS = ("worst-case", "newton", "exact", "retrain")
# Of "exact": the error bound to stop at, as a share of the distance.
_TOLERANCE = 1e-9
# Newton's certificate is refined where it leaves more than this share of a distance open.
LOOSE = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Neighbours(Displayed):
    """The minimisers of all neighbouring data sets, as seen from the base A(D).

    ``base``         (d,) A(D); its own error is at most ``base_error``.
    ``distance``     (n,) ∥A(Dᵢ) − A(D)∥.
    ``error_bound``  (n,) a proved bound on the error of each shift: floating point, the
                     approximation of the method and the residual of the base are all in it.
    ``shift``        (n, d) A(Dᵢ) − A(D), computed when asked for.

    The sphere (Okumura et al. 2015; LeBlond Eq. 4–7) and the smaller co-coercive ball both hold
    A(Dᵢ): ``sphere_centre``, ``sphere_radius``, ``ball_centre``, ``ball_radius``.

    With ``persons`` a neighbour lacks all rows of a person, and there is one for each of them;
    ``rows_after`` is then what the person with most rows leaves.
    """

    base: FloatArray
    base_error: float
    distance: FloatArray
    error_bound: FloatArray
    method: str
    relation: Neighbouring
    shifts: Shifts
    problem: Objective
    worst_case: Shifts | SummedShifts
    rows_after: int
    persons: Persons | None = None

    audience = Audience.FAIL

    @property
    def shift(self) -> FloatArray:
        """(n, d) A(Dᵢ) − A(D)."""
        return self.shifts.all()

    @cached_property
    def worst_case_distance(self) -> FloatArray:
        """(n,) ∥A_wc − A∥, the diameter of the sphere."""
        return self.worst_case.norms()

    @cached_property
    def curvature_ratio(self) -> float:
        """κ = Λ/L, L the largest eigenvalue that the mean loss's Hessian can have anywhere."""
        entering = None
        if self.relation is not Neighbouring.REMOVE and isinstance(self.worst_case, Shifts):
            entering = self.worst_case.terms[-1][1]
        return _curvature_ratio(self.problem, entering, self.rows_after)

    @property
    def sphere_centre(self) -> FloatArray:
        """(n, d) R of LeBlond Eq. 4: half way from A to A_wc."""
        return self.base + 0.5 * self.worst_case.all()

    @property
    def sphere_radius(self) -> FloatArray:
        """(n,) r of LeBlond Eq. 7; A itself lies on the sphere."""
        return 0.5 * self.worst_case_distance

    @property
    def ball_centre(self) -> FloatArray:
        """(n, d) centre of the ball whose diameter runs from A_wc to (A + κA_wc)/(1+κ)."""
        kappa = self.curvature_ratio
        return self.base + (1 + 2 * kappa) / (2 * (1 + kappa)) * self.worst_case.all()

    @property
    def ball_radius(self) -> FloatArray:
        """(n,) ∥A_wc − A∥ / (2(1 + κ))."""
        return self.worst_case_distance / (2 * (1 + self.curvature_ratio))

    def __len__(self) -> int:
        return len(self.distance)

    def __repr__(self) -> str:
        n, d = self.shifts.shape
        return f"Neighbours({n} × {d}, method={self.method!r}, relation={self.relation.value!r})"

    def __str__(self) -> str:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.error_bound / self.distance
            relative = float(np.max(np.where(self.error_bound == 0, 0.0, ratio)))
        whose = ""
        if self.persons is not None:
            whose = f", persons of up to {self.persons.largest} rows"
        return (
            f"{len(self)} neighbours ({self.relation.value}{whose}) by method {self.method!r}\n"
            f"distance     median {np.median(self.distance):.3g},"
            f" largest {np.max(self.distance):.3g}\n"
            f"error bound  largest {upper_text(float(np.max(self.error_bound)), 3)},"
            f" largest of its distance {upper_text(relative, 3)}\n"
            f"{self.audience.value}: {self.audience.meaning}"
        )


def neighbours(
    X: Any,
    y: Any,
    *,
    loss: str | Loss = "logistic",
    regularization: float = 1.0,
    method: str = "newton",
    relation: Neighbouring | str = Neighbouring.REMOVE,
    candidates: tuple[Any, Any] | None = None,
    groups: Any = None,
    tolerance: float | None = None,
) -> Neighbours:
    """The minimiser of every neighbouring data set.

    J = (1/n) Σ ℓ + (Λ/2)∥θ∥² with Λ = ``regularization`` of the averaged form, which a neighbour
    keeps. Rows are taken as they are: no scaling, no intercept (``UnitBall`` adds both).

    ``relation``    "remove" (each row of X), "add" (each of ``candidates`` = (rows, labels)), or
                    "replace" (row i of X by candidate i; a single candidate replaces each).
    ``groups``      whose row each row is, one label a row: all rows of a person are removed at
                    once, and the result has one entry a person, in the order in which they first
                    appear. "remove" only.
    ``tolerance``   "exact" alone: the largest error_bound/distance to stop at, default 1e-9.

    Labels of classification losses are any two values, the larger one positive.
    """
    X = _checks.matrix(X)
    regularization = _checks.regularization(regularization)
    relation = Neighbouring.parse(relation)
    persons = None if groups is None else read_groups(groups, len(X), relation)
    classes = None
    if loss == "squared":
        target = _checks.vector(y, length=len(X))
        loss = Squared(label_bound=max(float(np.max(np.abs(target))), 1e-300))
    else:
        loss = make_loss(loss)
        if loss.is_classification:
            _same_length(y, len(X))
            classes = two_classes(y)
            target = signs(y, classes)
        else:
            target = _checks.vector(y, length=len(X))
    penalty = np.full(X.shape[1], regularization)
    problem = Objective.of(X=X, y=target, loss=loss, penalty=penalty)
    entering = _candidates(candidates, relation, problem, classes)
    base = minimise(problem, tolerance=problem.natural_tolerance, require=False)
    return neighbours_of(
        problem,
        base,
        method=method,
        relation=relation,
        entering=entering,
        persons=persons,
        tolerance=tolerance,
    )


def neighbours_of(
    problem: Objective,
    base: Minimiser,
    *,
    method: str = "newton",
    relation: Neighbouring = Neighbouring.REMOVE,
    entering: tuple[FloatArray, FloatArray] | None = None,
    persons: Persons | None = None,
    keep_total_penalty: bool = False,
    tolerance: float | None = None,
    warn: bool = True,
) -> Neighbours:
    """:func:`neighbours` from a base that is fitted already.

    ``keep_total_penalty``: the neighbour keeps n·Λ instead of Λ, as a scikit-learn model of fixed
    C or alpha would when it is refitted.
    """
    _checks.one_of("method", method, METHODS)
    if tolerance is not None:
        tolerance = _checks.positive("tolerance", tolerance)
        if method != "exact":
            raise InvalidInput(f"tolerance={tolerance!r}: only method='exact' takes one.")
    linear = linearise(problem, base)
    if persons is not None and not persons.are_rows:
        found = person_shifts(
            linear,
            persons,
            method=method,
            keep_total_penalty=keep_total_penalty,
            tolerance=tolerance or _TOLERANCE,
            warn=warn,
        )
        return Neighbours(
            base=base.theta,
            base_error=found.base_error,
            distance=found.distance,
            error_bound=found.error,
            method=method,
            relation=relation,
            shifts=found.shifts,
            problem=problem,
            worst_case=found.worst_case,
            rows_after=problem.count - persons.largest,
            persons=persons,
        )
    rows_after, changes = _changes(problem, base, linear.data, relation, entering)
    expansion = expand(
        linear, changes, rows_after=rows_after, keep_total_penalty=keep_total_penalty
    )
    worst_case = _worst_case_shifts(expansion)
    match method:
        case "newton":
            _, shifts, distance, error = newton_shifts(expansion)
        case "exact":
            shifts, distance, error = refine(expansion, tolerance or _TOLERANCE, warn=warn)
        case "worst-case":
            shifts = worst_case
            distance = shifts.norms()
            error = _worst_case_error(expansion, worst_case, relation, distance)
        case _:
            shifts, distance, error = _retrain(expansion)
    if method == "retrain":
        error[np.isnan(error)] = np.inf
    else:
        error = sound_error(expansion, changes, distance, error)
    return Neighbours(
        base=base.theta,
        base_error=expansion.base_error,
        distance=distance,
        error_bound=error,
        method=method,
        relation=relation,
        shifts=shifts,
        problem=problem,
        worst_case=worst_case,
        rows_after=rows_after,
        persons=persons,
    )


def tight_neighbours(problem: Objective, base: Minimiser, **options: Any) -> Neighbours:
    """Newton's neighbours, refined where their certificate leaves more than 1e-3 open."""
    near = neighbours_of(problem, base, **options)
    if np.all(near.error_bound <= LOOSE * near.distance):
        return near
    return neighbours_of(problem, base, method="exact", tolerance=LOOSE, warn=False, **options)


def _same_length(y: Any, rows: int, name: str = "y") -> None:
    shape = np.shape(y) if hasattr(y, "shape") else (len(y) if hasattr(y, "__len__") else 0,)
    entries = shape[0] if shape else 0
    if entries != rows:
        raise InvalidInput(f"{name} has {entries} entries: must have one for each of {rows} rows.")


def _candidates(
    candidates: tuple[Any, Any] | None,
    relation: Neighbouring,
    problem: Objective,
    classes: Any,
) -> tuple[FloatArray, FloatArray] | None:
    """Check the rows that enter, and give them labels of the inside."""
    if relation is Neighbouring.REMOVE:
        if candidates is not None:
            raise InvalidInput("candidates: relation='remove' takes none; leave it out.")
        return None
    if not isinstance(candidates, Sequence) or len(candidates) != 2:
        raise InvalidInput(f"candidates: relation={relation.value!r} needs a pair (rows, labels).")
    rows = _checks.matrix(candidates[0], name="candidates[0]", min_rows=1)
    if rows.shape[1] != problem.columns:
        raise InvalidInput(
            f"candidates[0] has {rows.shape[1]} columns: must have {problem.columns}, as X has."
        )
    _same_length(candidates[1], len(rows), "candidates[1]")
    if classes is None:
        labels = _checks.vector(candidates[1], name="candidates[1]", length=len(rows))
    else:
        labels = signs(candidates[1], classes)
    return entering_rows((rows, labels), relation, problem)


def entering_rows(
    candidates: tuple[FloatArray, FloatArray], relation: Neighbouring, problem: Objective
) -> tuple[FloatArray, FloatArray]:
    """The rows that enter, one for each neighbour: a single candidate may replace every row."""
    rows, labels = candidates
    if relation is Neighbouring.REPLACE and len(rows) == 1:
        rows, labels = np.tile(rows, (problem.count, 1)), np.tile(labels, problem.count)
    if relation is Neighbouring.REPLACE and len(rows) != problem.count:
        raise InvalidInput(
            f"candidates[0] has {len(rows)} rows: relation='replace' needs one, or one for each"
            f" of the {problem.count} rows of X."
        )
    return rows, labels


def _changes(
    problem: Objective,
    base: Minimiser,
    data: Change,
    relation: Neighbouring,
    entering: tuple[FloatArray, FloatArray] | None,
) -> tuple[int, tuple[Change, ...]]:
    """How many rows a neighbour has, and which rows leave (of the ``data``) or enter."""
    match relation:
        case Neighbouring.REMOVE:
            return problem.count - 1, (data,)
        case Neighbouring.ADD:
            assert entering is not None
            return problem.count + 1, (_entering(problem, base, *entering),)
        case Neighbouring.REPLACE:
            assert entering is not None
            return problem.count, (data, _entering(problem, base, *entering))


def _entering(problem: Objective, base: Minimiser, X: FloatArray, y: FloatArray) -> Change:
    """Rows that enter, with their predictors and derivatives at the base."""
    norms = row_norms(X) * (1 + 2 * gamma(X.shape[1] + 4))
    if not norms.max() <= LONGEST_ROW:
        raise InvalidInput(f"candidates hold a row longer than {LONGEST_ROW:g}: rescale them.")
    z = X @ base.theta
    slope, curvature = problem.loss.derivatives(z, y)
    return Change(
        sign=+1,
        X=X,
        y=y,
        norms=norms,
        norm_squares=norms * norms,
        z=z,
        slope=slope,
        curvature=curvature,
    )


def _worst_case_shifts(expansion: Expansion) -> Shifts:
    """LeBlond's A_wc − A = (k − Σ sign·f′x)/(m p'): the neighbour's pull through H = diag(p')."""
    m = expansion.rows_after
    penalty = expansion.penalty_after
    with np.errstate(divide="ignore"):
        inverse = 1 / penalty
    equal = bool(np.all(penalty == penalty[0])) and penalty[0] > 0
    return Shifts(
        constant=np.where(expansion.pull == 0, 0.0, expansion.pull)
        * np.where(equal, inverse, np.nan),
        terms=tuple(
            (-change.sign * change.slope / m * (1 / penalty[0] if equal else np.nan), change.X)
            for change in expansion.changes
        ),
        matrix=None,
    )


def _curvature_ratio(problem: Objective, entering: FloatArray | None, rows_after: int) -> float:
    largest = largest_gram(problem)
    if entering is not None:
        largest += float(np.max(np.einsum("ij,ij->i", entering, entering)))
    smoothness = problem.loss.curvature_bound * largest / rows_after
    return float(problem.penalty[0]) / smoothness if smoothness > 0 else np.inf


def _worst_case_error(
    expansion: Expansion, worst_case: Shifts, relation: Neighbouring, distance: FloatArray
) -> FloatArray:
    """∥A(Dᵢ) − A_wc∥ ≤ ∥A_wc − A∥/(1 + κ), from the co-coercivity of the loss's gradient."""
    entering = None if relation is Neighbouring.REMOVE else worst_case.terms[-1][1]
    kappa = _curvature_ratio(expansion.problem, entering, expansion.rows_after)
    return distance / (1 + kappa) * (1 + 1e-9) + _both_ends(expansion)


def _both_ends(expansion: Expansion) -> float:
    """What the base's residual and rounding can do to a shift, each end on its own."""
    curved, loss = expansion.curved, expansion.loss
    ratio = curved.rows / expansion.rows_after
    eta = expansion.base.gradient_bound * (1 + ratio)
    steepest = loss.curvature_bound * expansion.largest_norm**2
    rounding = curved.constants.margin_error(expansion.base.theta) * steepest + 64 * ROUNDOFF * (
        expansion.largest_norm * loss.lipschitz(max(expansion.floor, 1e-300))
        + float(np.linalg.norm(expansion.pull))
    )
    return (eta + 4 * rounding / expansion.rows_after) / _least_penalty(expansion)


def _least_penalty(expansion: Expansion) -> float:
    """Strong convexity at either end; tiny where a coordinate is not penalised at all."""
    return max(min(expansion.floor, float(np.min(expansion.curved.penalty))), 1e-300)


def _distance_bound(
    expansion: Expansion, changes: tuple[Change, ...], distance: FloatArray
) -> FloatArray:
    """Where a certificate proves nothing, the sphere still does: error ≤ ∥δ∥ + ∥A_wc − A∥."""
    m, floor = expansion.rows_after, expansion.floor
    if not floor > 0:
        return np.full(len(distance), np.inf)
    reach = np.full(len(distance), float(np.linalg.norm(expansion.pull)))
    for change in changes:
        reach += np.abs(change.slope) * change.norms / m
    return distance + reach * (1 + 1e-9) / floor + _both_ends(expansion)


def sound_error(
    expansion: Expansion, changes: tuple[Change, ...], distance: FloatArray, error: FloatArray
) -> FloatArray:
    """``error`` where it is a number, and never more than what the sphere proves."""
    # What is not a number proves nothing.
    error[np.isnan(error)] = np.inf
    if np.any(error > distance):
        return np.fmin(error, _distance_bound(expansion, changes, distance))
    return error


def _retrain(expansion: Expansion) -> tuple[Shifts, FloatArray, FloatArray]:
    """Minimise every neighbour's own objective."""
    base = expansion.base

    def one(index: int) -> tuple[FloatArray, float]:
        neighbour = _neighbour_problem(expansion, index)
        tolerance = neighbour.natural_tolerance / 100
        found = minimise(neighbour, tolerance=tolerance, start=base.theta, require=False)
        return found.theta - base.theta, found.gradient_bound

    found = joblib.Parallel(n_jobs=-1, prefer="threads")(
        joblib.delayed(one)(index) for index in range(expansion.neighbours)
    )
    shift = np.array([pair[0] for pair in found])
    gradient = np.array([pair[1] for pair in found])
    distance = np.linalg.norm(shift, axis=1)
    rounding = ROUNDOFF * (float(np.linalg.norm(base.theta)) + distance)
    error = (gradient + base.gradient_bound) / _least_penalty(expansion) + rounding
    return Shifts.dense(shift), distance, error


def _neighbour_problem(expansion: Expansion, index: int) -> Objective:
    """The neighbouring data set itself."""
    problem = expansion.problem
    X, y = problem.held.X, problem.held.y
    for change in expansion.changes:
        if change.sign < 0:
            X, y = np.delete(X, index, axis=0), np.delete(y, index)
        else:
            X, y = np.vstack([X, change.X[index]]), np.append(y, change.y[index])
    return Objective.of(X=X, y=y, loss=problem.loss, penalty=expansion.penalty_after)
