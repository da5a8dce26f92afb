"""A(D') of every neighbouring data set D': where its minimiser lies, with a certificate.

``neighbours`` is the function users call. Methods, from cheap to costly:

worst-case  LeBlond's 2R − A: a gradient step that takes the Hessian for ΛI.
newton      one Newton step with the neighbour's own Hessian, all rows in one O(nd²) pass.
exact       newton, then refined until the certificate is below the tolerance.
retrain     brute force, one minimisation a row; the reference of the tests.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from expost import _checks, notices
from expost._numerics import ROUNDOFF
from expost.engine import engine_of
from expost.errors import InvalidInput, PrecisionWarning
from expost.glm import Minimiser, Objective, minimise
from expost.labels import signs, two_classes
from expost.losses import Kinked, Loss, Squared, make_loss
from expost.neighbouring.certificate import proved
from expost.neighbouring.change import Change, ChangedGroup, EvaluatedRows
from expost.neighbouring.expansion import Expansion, curvature_of, expand
from expost.neighbouring.knots import energy_norms
from expost.neighbouring.one_row import OneRow
from expost.neighbouring.persons import Persons, read_persons
from expost.neighbouring.refine import (
    LOOSE,
    Neighbourhood,
    Refinement,
    refine,
    refinement_for,
    within_sphere,
)
from expost.neighbouring.several_rows import SeveralRows
from expost.neighbouring.shifts import Shifts, Steps
from expost.neighbouring.worst_case import curvature_ratio, worst_case_error, worst_case_shifts
from expost.results import Displayed
from expost.types import Audience, FloatArray, Neighbouring

__all__ = ["METHODS", "Neighbours", "neighbours", "neighbours_of", "tight_neighbours"]

METHODS = ("worst-case", "newton", "exact", "retrain")
# Of "exact": the error bound to stop at, as a share of the distance.
_TOLERANCE = 1e-9
# A refined step may be this much longer, in ∥δ∥_B, than the Newton step that it begins with.
_FARTHER = 1.5


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Neighbours(Displayed):
    """The minimisers of neighbouring data sets, relative to the base A(D).

    The sphere (Okumura et al. 2015; LeBlond Eq. 4–7) and the smaller co-coercive ball both hold
    A(Dᵢ): ``sphere_centre``, ``sphere_radius``, ``ball_centre``, ``ball_radius``.

    Attributes
    ----------
    base : FloatArray
        (d,) A(D).
    base_error : float
        A bound on the error of ``base``.
    distance : FloatArray
        (n,) ∥A(Dᵢ) − A(D)∥.
    error_bound : FloatArray
        (n,) a proved bound on the error of each shift: floating point, the approximation of the
        method and the residual of the base are all in it.
    method : str
        The method by which each minimiser was computed.
    shifts : Shifts
        The shifts in the form in which they are held.
    shift : FloatArray
        (n, d) A(Dᵢ) − A(D), computed when it is read.
    change : Change
        Which rows leave and enter. With ``persons`` a neighbour lacks all rows of a person, and
        there is one for each of them.
    data : Objective | None
        J over D; None for a block of rows that were read, which has no sphere.
    keep_total_penalty : bool
        Whether a neighbour keeps n·Λ instead of Λ.
    """

    base: FloatArray
    base_error: float
    distance: FloatArray
    error_bound: FloatArray
    method: str
    shifts: Shifts
    change: Change
    data: Objective | None = None
    keep_total_penalty: bool = False

    audience = Audience.CURATOR_ONLY

    @property
    def relation(self) -> Neighbouring:
        """Which data sets count as neighbours."""
        return self.change.relation

    @property
    def persons(self) -> Persons | None:
        """Whose row each row is, where all rows of a person leave."""
        return self.change.persons

    @property
    def rows_after(self) -> int:
        """The number of rows of a neighbour; of persons, of the smallest one."""
        return self.change.rows_after(self.objective.count)

    @property
    def objective(self) -> Objective:
        """J over D."""
        if self.data is None:
            raise InvalidInput("neighbours: a block of rows does not have the whole data.")
        return self.data

    @cached_property
    def worst_case(self) -> Shifts:
        """A_wc − A of every neighbour (LeBlond Eq. 5): a step that takes the Hessian for ΛI."""
        rows = self.change.changed_rows(self.base, self.objective.loss)
        return worst_case_shifts(
            self.objective, self.base, self.change, rows, self.keep_total_penalty
        )

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
        return curvature_ratio(self.objective, self.change, self.rows_after)

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


def neighbours(
    X: Any,
    y: Any,
    *,
    loss: str | Loss = "logistic",
    regularization: float = 1.0,
    method: str = "newton",
    relation: Neighbouring | str = Neighbouring.REMOVE,
    candidates: tuple[Any, Any] | None = None,
    persons: Any = None,
    tolerance: float | None = None,
) -> Neighbours:
    """Return the minimiser of every neighbouring data set, with certified errors.

    J = (1/n) Σ ℓ + (Λ/2)∥θ∥² with Λ = ``regularization`` of the averaged form, which a neighbour
    keeps. Rows are taken as they are: no scaling, no intercept (``UnitBall`` adds both).

    Parameters
    ----------
    X : array of shape (n, d)
        The rows.
    y : array of shape (n,)
        The labels. Those of classification losses are any two values, the larger one positive.
    loss : str or Loss, default="logistic"
        The loss of a row.
    regularization : float, default=1.0
        Λ.
    method : {"worst-case", "newton", "exact", "retrain"}, default="newton"
        How each minimiser is computed, from cheap to costly.
    relation : {"remove", "add", "replace"}, default="remove"
        "remove": each row of X. "add": each of ``candidates``. "replace": row i of X by candidate
        i; a single candidate replaces each.
    candidates : tuple of arrays (rows, labels), default=None
        The rows that enter.
    persons : sequence of n labels, default=None
        Whose row each row is: all rows of a person are removed at once, and the result has one
        entry a person, in the order in which they first appear. "remove" only.
    tolerance : float, default=None
        "exact" only: the largest error_bound/distance to stop at (1e-9 if None).

    Returns
    -------
    Neighbours
        The shifts, their lengths and their certified error bounds.

    Raises
    ------
    InvalidInput
        If an argument is out of range, or does not fit the relation or the method.
    """
    X = _checks.matrix(X)
    regularization = _checks.regularization(regularization)
    relation = Neighbouring.parse(relation)
    owners = None if persons is None else read_persons(persons, len(X), relation)
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
    objective = Objective.of(X=X, y=target, loss=loss, penalty=penalty)
    entering = _candidates(candidates, relation, objective, classes)
    base = minimise(objective, tolerance=objective.natural_tolerance, require=False)
    return neighbours_of(
        objective,
        base,
        Change.of(objective.held, relation, entering, owners),
        method=method,
        tolerance=tolerance,
    )


def neighbours_of(
    objective: Objective,
    base: Minimiser,
    change: Change | None = None,
    *,
    method: str = "newton",
    keep_total_penalty: bool = False,
    tolerance: float | None = None,
    warn: bool = True,
) -> Neighbours:
    """Return the neighbours of a base that is fitted already; see :func:`neighbours`.

    Parameters
    ----------
    objective : Objective
        J over the data.
    base : Minimiser
        Its minimiser.
    change : Change, optional
        Which rows leave and enter; None: each row of the data leaves.
    method : str, default="newton"
        As in :func:`neighbours`.
    keep_total_penalty : bool, default=False
        Whether the neighbour keeps n·Λ instead of Λ, as a scikit-learn model of fixed C or alpha
        would when it is refitted.
    tolerance : float, optional
        As in :func:`neighbours`.
    warn : bool, default=True
        Whether to warn of shifts that do not reach the tolerance.

    Returns
    -------
    Neighbours
        The shifts, their lengths and their certified error bounds.

    Raises
    ------
    InvalidInput
        If the method does not exist, or takes no tolerance.
    """
    _checks.one_of("method", method, METHODS)
    if tolerance is not None:
        tolerance = _checks.positive("tolerance", tolerance)
        if method != "exact":
            raise InvalidInput(f"tolerance={tolerance!r}: only method='exact' takes one.")
    goal = None if method != "exact" else tolerance or _TOLERANCE
    change = Change.of(objective.held) if change is None else change
    rows = change.changed_rows(base.theta, objective.loss)
    parts = list(_expansions(objective, base, change, rows, keep_total_penalty))
    if method == "worst-case":
        shifts = worst_case_shifts(objective, base.theta, change, rows, keep_total_penalty)
        distance, error = shifts.norms(), np.empty(len(change))
        for group, expansion in parts:
            some = distance[group.where]
            error[group.where] = worst_case_error(objective, change, expansion, group, some)
    elif method == "retrain":
        shift, error = _retrain(objective, base, change, keep_total_penalty)
        shifts, distance = Shifts.dense(shift), np.linalg.norm(shift, axis=1)
    else:
        steps = _steps(objective, change, parts, goal)
        shifts, distance, error = steps.shifts, steps.distance, steps.error
    error = proved(error)
    if warn and goal is not None:
        missed = len(Steps(shifts=shifts, distance=distance, error=error).loose(goal))
        if missed:
            notices.warn(
                f"{missed} of {len(distance)} shifts have an error bound above {goal:.1g} of their"
                " distance, which float64 cannot improve; see their error_bound.",
                PrecisionWarning,
                stacklevel=3,
            )
    return Neighbours(
        base=base.theta,
        base_error=min(expansion.base_error for _, expansion in parts),
        distance=distance,
        error_bound=error,
        method=method,
        shifts=shifts,
        change=change,
        data=objective,
        keep_total_penalty=keep_total_penalty,
    )


def tight_neighbours(
    objective: Objective,
    base: Minimiser,
    change: Change | None = None,
    *,
    keep_total_penalty: bool = False,
) -> Neighbours:
    """Return Newton's neighbours, refined where the certificate leaves more than 1e-3 open."""
    return neighbours_of(
        objective,
        base,
        change,
        method="exact",
        tolerance=LOOSE,
        keep_total_penalty=keep_total_penalty,
        warn=False,
    )


def _expansions(
    objective: Objective,
    base: Minimiser,
    change: Change,
    rows: EvaluatedRows,
    keep_total_penalty: bool,
) -> Iterator[tuple[ChangedGroup, Expansion]]:
    """Yield the neighbours by the number of rows that they change; one pass serves them all.

    Each number of rows has its own expansion, since the rows that are left are averaged over.
    """
    # Rows that leave are all rows of the data: they need not be evaluated twice.
    is_whole = change.entering is None and rows.X is objective.held.X
    curved = curvature_of(objective, base, rows if is_whole else None)
    for group in change.groups(rows):
        leaving = int(np.count_nonzero(group.signs < 0))
        yield (
            group,
            expand(
                curved,
                leaving=leaving,
                entering=len(group.signs) - leaving,
                changed=None if change.entering is None else rows,
                keep_total_penalty=keep_total_penalty,
            ),
        )


def _steps(
    objective: Objective,
    change: Change,
    parts: list[tuple[ChangedGroup, Expansion]],
    tolerance: float | None,
) -> Steps:
    """Return a Newton step to each neighbour.

    ``tolerance``: the share of a distance that an error may be without being refined.
    """
    refinement: Refinement | None = None
    done = []
    for group, expansion in parts:
        near: Neighbourhood
        if change.is_one_row:
            near, steps = OneRow.of(expansion, group.rows, objective=objective)
        else:
            near, steps = SeveralRows.of(expansion, group, objective)
        if tolerance is not None and len(steps.loose(tolerance)):
            if refinement is None:
                refinement = _refinement(objective, change, expansion, steps, tolerance)
            near = near.refined_by(refinement)
            steps = refine(near, steps, tolerance)
        done.append(replace(steps, error=within_sphere(near, steps)))
    if len(done) == 1:
        return done[0]
    shift = np.empty((len(change), objective.columns))
    distance, error = np.empty((2, len(change)))
    for (group, _), steps in zip(parts, done, strict=True):
        shift[group.where] = steps.shifts.all()
        distance[group.where], error[group.where] = steps.distance, steps.error
    return Steps(shifts=Shifts.dense(shift), distance=distance, error=error)


def _refinement(
    objective: Objective, change: Change, expansion: Expansion, steps: Steps, tolerance: float
) -> Refinement:
    """Return what the loose steps are refined by.

    Not by kink rows for persons: their steps are long, and pass the knots of too many rows.
    """
    is_kinked = isinstance(objective.loss, Kinked)
    if is_kinked and change.persons is not None and not change.persons.are_rows:
        return Refinement()
    reach = 0.0
    if is_kinked:
        loose = steps.shifts.all()[steps.loose(tolerance)]
        reach = _FARTHER * float(np.max(energy_norms(expansion, loose)))
    return refinement_for(objective, expansion, reach)


def _retrain(
    objective: Objective, base: Minimiser, change: Change, keep_total_penalty: bool
) -> tuple[FloatArray, FloatArray]:
    """Minimise every neighbour's own objective; return the shifts, and bounds on their errors."""
    rows, penalty = objective.held, objective.penalty

    def retrained(index: int) -> tuple[FloatArray, float, float]:
        X, y = rows.X, rows.y
        if change.leaving is not None:
            gone = index if change.persons is None else change.persons.rows_of(index)
            X, y = np.delete(X, gone, axis=0), np.delete(y, gone)
        if change.entering is not None:
            X = np.vstack([X, change.entering.X[index]])
            y = np.append(y, change.entering.y[index])
        after = penalty * (rows.count / len(X)) if keep_total_penalty else penalty
        neighbour = Objective.of(X=X, y=y, loss=objective.loss, penalty=after)
        goal = neighbour.natural_tolerance / 100
        minimiser = minimise(neighbour, tolerance=goal, start=base.theta, require=False)
        least = max(min(float(np.min(after)), float(np.min(penalty))), 1e-300)
        return minimiser.theta - base.theta, minimiser.gradient_bound, least

    with engine_of("local") as engine:
        results = list(engine.map(retrained, range(len(change))))
    shift, gradient, least = (np.array(part) for part in zip(*results, strict=True))
    rounding = ROUNDOFF * (float(np.linalg.norm(base.theta)) + np.linalg.norm(shift, axis=1))
    return shift, (gradient + base.gradient_bound) / least + rounding


def _same_length(y: Any, rows: int, name: str = "y") -> None:
    shape = np.shape(y) if hasattr(y, "shape") else (len(y) if hasattr(y, "__len__") else 0,)
    entries = shape[0] if shape else 0
    if entries != rows:
        raise InvalidInput(f"{name} has {entries} entries: must have one for each of {rows} rows.")


def _candidates(
    candidates: tuple[Any, Any] | None,
    relation: Neighbouring,
    objective: Objective,
    classes: Any,
) -> tuple[FloatArray, FloatArray] | None:
    """Return the rows that enter, checked, with labels −1 and +1."""
    if relation is Neighbouring.REMOVE:
        if candidates is not None:
            raise InvalidInput("candidates: relation='remove' takes none; leave it out.")
        return None
    if not isinstance(candidates, Sequence) or len(candidates) != 2:
        raise InvalidInput(f"candidates: relation={relation.value!r} needs a pair (rows, labels).")
    rows = _checks.matrix(candidates[0], name="candidates[0]", min_rows=1)
    if rows.shape[1] != objective.columns:
        raise InvalidInput(
            f"candidates[0] has {rows.shape[1]} columns: must have {objective.columns}, as X has."
        )
    _same_length(candidates[1], len(rows), "candidates[1]")
    if classes is None:
        labels = _checks.vector(candidates[1], name="candidates[1]", length=len(rows))
    else:
        labels = signs(candidates[1], classes)
    return rows, labels
