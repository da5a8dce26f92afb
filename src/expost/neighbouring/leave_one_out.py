"""The leave-one-out minimisers of the rows of any block, from a few passes over all rows.

The error of a Newton step falls like 1/n, so that of rows that are read nearly every one needs to
be refined or none does. The first rows decide for all of them; every certificate holds in
either case.
"""

from dataclasses import dataclass, field

import numpy as np

from expost.glm import Minimiser, Objective
from expost.losses import Kinked
from expost.neighbouring.change import Change, EvaluatedRows
from expost.neighbouring.expansion import Expansion, curvature_of, expand
from expost.neighbouring.knots import energy_norms
from expost.neighbouring.neighbours import Neighbours
from expost.neighbouring.one_row import OneRow
from expost.neighbouring.refine import (
    LOOSE,
    Refinement,
    is_refinable,
    refine,
    refinement_for,
    within_sphere,
)
from expost.rows import RowBlock, block_rows

__all__ = ["LeaveOneOut"]

# The rows that decide, at most: no more than a block of a table.
_FIRST = 2**15
# So small a share of loose rows is not worth a pass of so many products: several seconds.
_FEW, _COSTLY = 1e-3, 2**36
# A step that is refined may be longer than Newton's, and another row's than those of the first.
_FARTHER = 2.0


@dataclass(frozen=True, kw_only=True, eq=False)
class LeaveOneOut:
    """Leave-one-out minimisers of the rows of any block: O(d²) numbers, small enough for workers.

    Attributes
    ----------
    refinement : Refinement
        What the steps are refined by, where they need it.
    """

    expansion: Expansion
    refinement: Refinement = field(default_factory=Refinement)

    @classmethod
    def of(
        cls, objective: Objective, base: Minimiser, *, keep_total_penalty: bool = False
    ) -> "LeaveOneOut":
        """Prepare for the rows of ``objective``: one pass, or two where steps need refinement."""
        curved = curvature_of(objective, base)
        expansion = expand(curved, keep_total_penalty=keep_total_penalty)
        return cls(expansion=expansion).refined(objective)

    def refined(self, objective: Objective) -> "LeaveOneOut":
        """Return the same with a refinement, if the first rows need one."""
        expansion = self.expansion
        if not is_refinable(expansion):
            return self
        count = min(_FIRST, block_rows(expansion.columns), objective.count)
        task = _FirstSteps(leave_one_out=self)
        loose, longest = objective.rows.on_first(task, count)
        is_costly = objective.count * expansion.columns**3 > _COSTLY
        if not loose or (
            loose <= _FEW * count and is_costly and not isinstance(expansion.loss, Kinked)
        ):
            return self
        refinement = refinement_for(objective, expansion, _FARTHER * longest)
        return LeaveOneOut(
            expansion=refinement.with_known_curvature(expansion), refinement=refinement
        )

    def __call__(self, block: RowBlock) -> Neighbours:
        """Return the certified leave-one-out minimisers of the rows of ``block``."""
        expansion = self.expansion
        rows = EvaluatedRows.of(block, expansion.base.theta, expansion.loss)
        near, steps = OneRow.of(expansion, rows, refinement=self.refinement)
        steps = refine(near, steps, LOOSE)
        return Neighbours(
            base=expansion.base.theta,
            base_error=expansion.base_error,
            distance=steps.distance,
            error_bound=within_sphere(near, steps),
            method="exact",
            shifts=steps.shifts,
            change=Change(leaving=block),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _FirstSteps:
    """The number of loose Newton steps to the neighbours of a block, and the largest ∥δ∥_B."""

    leave_one_out: LeaveOneOut

    def __call__(self, block: RowBlock) -> tuple[int, float]:
        """Take the steps."""
        near = self.leave_one_out(block)
        loose = int(np.count_nonzero(~(near.error_bound <= LOOSE * near.distance)))
        return loose, float(np.max(energy_norms(self.leave_one_out.expansion, near.shift)))
