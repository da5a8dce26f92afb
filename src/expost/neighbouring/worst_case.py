"""LeBlond's A_wc = 2R − A: a step to a neighbour that takes the Hessian for that of the penalty.

With ``κ`` = Λ/L, L the largest eigenvalue that the Hessian of the mean loss can have anywhere, the
co-coercivity of the loss's gradient gives ∥A(D') − A_wc∥ ≤ ∥A_wc − A∥/(1 + κ).
"""

import numpy as np

from expost._numerics import gamma
from expost.glm import Objective
from expost.neighbouring.certificate import endpoint_error
from expost.neighbouring.change import Change, ChangedGroup, EvaluatedRows, persons_at_once
from expost.neighbouring.changed_hessian import pull_errors
from expost.neighbouring.expansion import Expansion
from expost.neighbouring.one_row import pull_error
from expost.neighbouring.shifts import Shifts
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = ["curvature_ratio", "worst_case_error", "worst_case_shifts"]


def worst_case_shifts(
    objective: Objective,
    theta: FloatArray,
    change: Change,
    rows: EvaluatedRows,
    keep_total_penalty: bool = False,
) -> Shifts:
    """Return A_wc − A = (k − Σ sign·f′x)/(m p') of every neighbour; NaN if penalties differ.

    ``rows`` are the changed rows at ``theta``.
    """
    n, penalty = objective.count, float(objective.penalty[0])
    if not (penalty > 0 and np.all(objective.penalty == penalty)):
        penalty = np.nan
    if change.is_one_row:
        m = change.rows_after(n)
        pull = objective.penalty * (0 if keep_total_penalty else n - m) * theta / m
        inverse = 1 / (penalty * (n / m) if keep_total_penalty else penalty)
        sign = 1 if change.leaving is None else -1
        return Shifts(
            constant=np.where(pull == 0, 0.0, pull) * inverse,
            scale=-sign * rows.slope / m * inverse,
            X=rows.X,
            matrix=None,
        )
    shift = np.empty((len(change), objective.columns))
    for group in change.groups(rows):
        m = n + int(group.signs.sum())
        after = penalty * (n / m) if keep_total_penalty else penalty
        factor = penalty * (0 if keep_total_penalty else n - m) / m / after
        step = persons_at_once(group.size * objective.columns)
        for start in range(0, len(group), step):
            some = group.take(slice(start, start + step))
            shift[some.where] = factor * theta
            for part, sigma in some.chunks():
                scale = sigma * part.slope / m / after
                shift[some.where] += (scale[:, :, None] * part.X).sum(axis=1)
    return Shifts.dense(shift)


def worst_case_error(
    objective: Objective,
    change: Change,
    expansion: Expansion,
    group: ChangedGroup,
    distance: FloatArray,
) -> FloatArray:
    """Return a bound on ∥A(D') − A_wc∥ of neighbours whose A_wc is ``distance`` away."""
    kappa = curvature_ratio(objective, change, expansion.rows_after)
    error = distance / (1 + kappa) * (1 + 1e-9)
    if change.is_one_row:
        return error + endpoint_error(expansion, pull_error(expansion))
    uncertain = pull_errors(expansion, group)
    # The error of the pull moves the centre and its distance; both are rounded sums.
    changed = expansion.leaving + expansion.entering
    rounding = gamma(objective.columns + changed + 64) * 8
    return error + endpoint_error(expansion, 2 * uncertain) + rounding * distance


def curvature_ratio(objective: Objective, change: Change, rows_after: int) -> float:
    """Return κ for neighbours of ``rows_after`` rows."""
    largest = largest_gram(objective)
    if change.entering is not None:
        X = change.entering.X
        largest += float(np.max(np.einsum("ij,ij->i", X, X)))
    smoothness = objective.loss.curvature_bound * largest / rows_after
    return float(objective.penalty[0]) / smoothness if smoothness > 0 else np.inf


def largest_gram(objective: Objective) -> float:
    """Return the largest eigenvalue of XᵀX, rounded up."""
    gram = np.zeros((objective.columns, objective.columns))
    for part in objective.map(_gram):
        gram += part
    return float(np.linalg.eigvalsh(gram)[-1]) * (1 + 1e-10)


def _gram(block: RowBlock) -> FloatArray:
    """Return XᵀX of one block."""
    gram: FloatArray = block.X.T @ block.X
    return gram
