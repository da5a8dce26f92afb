"""The losses of persons under objective perturbation: all rows of a person leave at once."""

import numpy as np

from expost._numerics import ROUNDOFF
from expost.mechanisms.person_rows import PersonRows
from expost.mechanisms.person_softmax import SoftmaxPersonRows
from expost.mechanisms.row_losses import RowLosses
from expost.mechanisms.softmax import SoftmaxTangent
from expost.mechanisms.tangent import Tangent
from expost.neighbouring.persons import Persons
from expost.neighbouring.removed import persons_at_once
from expost.types import Neighbouring

__all__ = ["person_losses"]


def person_losses(tangent: Tangent | SoftmaxTangent, persons: Persons) -> RowLosses:
    """log p(θ ∣ D) − log p(θ ∣ D without a person's rows) of every person, with its interval."""
    if persons.are_rows:
        return tangent.row_losses()
    how = tangent.mechanism
    loss, error, distance, limit = np.empty((4, len(persons)))
    at_theta: PersonRows | SoftmaxPersonRows = (
        SoftmaxPersonRows.of(tangent)
        if isinstance(tangent, SoftmaxTangent)
        else PersonRows.of(tangent)
    )
    for chosen, rows in persons.by_size():
        size = int(rows.shape[1])
        limit[chosen] = how.worst_case_of(size)[0] if how.noise == "laplace" else np.inf
        step = persons_at_once(at_theta.width(size))
        for start in range(0, len(chosen), step):
            some = chosen[start : start + step]
            found = at_theta.losses(rows[start : start + step])
            loss[some], error[some], distance[some] = found
    if how.grid.is_clamped(tangent.theta):
        # Its cell is unbounded.
        error = np.full_like(loss, np.inf)
    error = np.where(np.isnan(error), np.inf, error) + 8 * ROUNDOFF * np.abs(loss)
    worst, passed = how.worst_case_of(persons.largest)
    return RowLosses(
        loss=loss,
        low=np.maximum(loss - error, -limit),
        high=np.minimum(loss + error, limit),
        distance=distance,
        distance_error=np.zeros_like(distance),
        relation=Neighbouring.REMOVE,
        law=None,
        worst_case=worst,
        worst_case_passed=passed,
        guarantee=how.guarantee(persons.largest),
    )
