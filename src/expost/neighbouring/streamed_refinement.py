"""What the steps of streamed rows are refined by: O(d³) numbers, or a few rows beside a knot.

Rows in memory are refined one by one where Newton's certificate leaves more than a thousandth of
their distance open (:mod:`expost.neighbouring.refine`). Of a stream either nearly every row needs
it or none does, since the error of a step falls like 1/n; so the first rows decide for all of them.
Then

logistic     one pass sums K = Σ f‴ x⊗x⊗x, and loose rows take a step of third order;
Huber hinge  one pass gathers the rows beside a knot, a number that does not grow with n, and loose
             rows take Newton steps whose residual is known but for rounding.

Whatever the first rows say, every certificate holds.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.glm import Objective
from expost.losses import HuberHinge, Logistic, Loss
from expost.neighbouring.exact import refine_steps
from expost.neighbouring.expansion import Expansion, third_moments
from expost.neighbouring.knots import BesideKnots, energies
from expost.neighbouring.neighbours import LOOSE, sound_error
from expost.neighbouring.newton import newton_steps
from expost.neighbouring.shifts import Shifts
from expost.neighbouring.streamed import change_of
from expost.rows import RowBlock, RowStream
from expost.types import FloatArray

__all__ = ["Refinement", "refinement_for", "refinement_of"]

# The rows that decide: a block of a table of up to 128 columns.
_FIRST = 2**15
# Past this width K travels too slowly: 2 MiB.
_TENSOR_COLUMNS = 64
# So small a share of loose rows is not worth a pass of so many products: several seconds.
_FEW, _COSTLY = 1e-3, 2**36
# A step that is refined may be longer than Newton's, and another row's than those of the first.
_FARTHER = 2.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Refinement:
    """``tensor``: K as a (d, d²) matrix; ``beside``: the rows beside a knot; None: no need."""

    tensor: FloatArray | None = None
    beside: BesideKnots | None = None

    def steadied(self, expansion: Expansion) -> Expansion:
        """The expansion, with what is known of the curvature around it."""
        return expansion if self.beside is None else self.beside.steadied(expansion)

    def steps(self, expansion: Expansion, block: RowBlock) -> tuple[Shifts, FloatArray, FloatArray]:
        """The shifts without each row of a block, their lengths and errors."""
        change = change_of(block, expansion.base.theta, expansion.loss)
        step, *_ = newton = newton_steps(expansion, (change,))
        shifts, distance, error = refine_steps(
            expansion,
            step,
            newton[1:],
            tolerance=LOOSE,
            tensor=self.tensor,
            beside=self.beside,
        )
        return shifts, distance, sound_error(expansion, (change,), distance, error)


def refinement_of(problem: Objective, expansion: Expansion) -> Refinement:
    """What these rows need: the first of them decide, then one pass at most."""
    loss = expansion.loss
    smooth = isinstance(loss, Logistic) and expansion.columns <= _TENSOR_COLUMNS
    if not smooth and not isinstance(loss, HuberHinge):
        return Refinement()
    task, left = _FirstSteps(problem.table.stream, expansion), _FIRST
    loose, seen, longest = 0, 0, 0.0
    for item in problem.table.stream.items():
        (found,) = problem.table.engine.map(task, [item])
        for open_rows, energy in found:
            loose += int(np.count_nonzero(open_rows[:left]))
            longest = max(longest, float(np.max(energy[:left], initial=0.0)))
            seen, left = seen + len(energy), max(left - len(energy), 0)
        if not left:
            break
    few = loose <= _FEW * min(seen, _FIRST)
    costly = smooth and problem.count * expansion.columns**3 > _COSTLY
    if not loose or (few and costly):
        return Refinement()
    return refinement_for(problem, expansion, longest)


def refinement_for(problem: Objective, expansion: Expansion, longest: float) -> Refinement:
    """One pass: what steps of ∥δ∥_B up to about ``longest`` are refined by."""
    if isinstance(expansion.loss, HuberHinge):
        reach = _FARTHER * longest
        if not reach < np.inf:
            return Refinement()
        return Refinement(beside=BesideKnots.of(problem, expansion, reach))
    tensor = np.zeros((expansion.columns, expansion.columns**2))
    for part in problem.map(_Moments(loss=expansion.loss, theta=expansion.base.theta)):
        tensor += part
    return Refinement(tensor=tensor)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Moments:
    """K of one block."""

    loss: Loss
    theta: FloatArray

    def __call__(self, block: RowBlock) -> FloatArray:
        """The sum."""
        return third_moments(block.X, block.y, self.theta, self.loss)


class _FirstSteps:
    """Newton's steps of the rows of an item: whether each is loose, and its ∥δ∥_B."""

    def __init__(self, stream: RowStream, expansion: Expansion) -> None:
        self._stream, self._expansion = stream, expansion

    def __call__(self, item: Any) -> list[tuple[NDArray[np.bool_], FloatArray]]:
        """Those of every block."""
        expansion, found = self._expansion, []
        for block in self._stream.blocks(item):
            rows = RowBlock.of(block.X, block.y)
            shifts, distance, error = Refinement().steps(expansion, rows)
            found.append((~(error <= LOOSE * distance), energies(expansion, shifts.all())))
        return found
