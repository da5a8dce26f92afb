"""Neighbours that change several rows: a person's rows leave, or one row leaves and one enters.

Conventions (those of :mod:`expost.neighbouring.expansion`, at Â)
-----------------------------------------------------------------
k        the number of rows that each of p neighbours changes, which share B and its inverse.
X, R     (k, d) the changed rows of one neighbour; R² = diag(f″/m).
σ        (k,) +1 for a row that leaves, −1 for one that enters.
W        XᵀRσRX, so that H' = B − W.
pull     −F̃(Â) = (k + Σ σf′x)/m, and the Newton step solves H'δ = pull.

:mod:`expost.neighbouring.changed_hessian` solves with H'. What a solve leaves of the linear system
is *measured*, so that no bound depends on how it was solved. Sums over the data leave out the rows
that leave, rather than subtract them again, so that a person may own most of the data.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from expost._numerics import (
    ROUNDOFF,
    UNDERFLOW,
    gamma,
    row_norms,
)
from expost.glm import Objective
from expost.losses import Logistic
from expost.neighbouring.certificate import certified_error, proved
from expost.neighbouring.change import ChangedGroup, persons_at_once
from expost.neighbouring.changed_hessian import (
    FewRows,
    ManyRows,
    Operator,
    Pull,
    Replacement,
    few,
    pull_value,
)
from expost.neighbouring.expansion import Expansion
from expost.neighbouring.refine import (
    Neighbourhood,
    Refinement,
    hessian_at,
    increment_error,
    increments,
    moved_by_kinks,
)
from expost.neighbouring.shifts import Shifts, Steps
from expost.types import FloatArray, IntArray

__all__ = ["SeveralRows"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SeveralRows(Neighbourhood):
    """Neighbours that change k rows each.

    Attributes
    ----------
    left : FloatArray
        (p,) ∥H'δ − pull∥ of the Newton steps.
    """

    objective: Objective
    changed: ChangedGroup
    left: FloatArray

    @classmethod
    def of(
        cls, expansion: Expansion, changed: ChangedGroup, objective: Objective
    ) -> tuple["SeveralRows", Steps]:
        """Take one Newton step to each neighbour, in blocks of neighbours."""
        count = len(changed)
        distance, error, left = np.empty((3, count))
        shift = np.empty((count, expansion.columns))
        near = cls(expansion=expansion, objective=objective, changed=changed, left=left)
        step = persons_at_once(near.width)
        for start in range(0, count, step):
            some = slice(start, start + step)
            block = replace(near, changed=changed.take(some), left=left[some])
            distance[some], error[some] = block._newton(shift[some])
        return near, Steps(shifts=Shifts.dense(shift), distance=distance, error=proved(error))

    def _newton(self, step: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Write the Newton steps to ``step`` and what the solves leave to ``left``.

        Return the lengths of the steps and their errors.
        """
        expansion = self.expansion
        if isinstance(self.operator, Replacement):
            self.operator.newton(step, self.left)
        else:
            step[:] = self.solve(self.pull_value)
            self.left[:] = row_norms(self.apply(step) - self.pull_value)
        length = row_norms(step)
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(expansion.spread * length)
            if expansion.third is not None:
                remainder = 0.5 * growth * self.third_order_form(step)
            elif expansion.knots is not None:
                remainder = expansion.knots.remainder(length)
                if self.changed.is_replaced:
                    steepest = expansion.loss.curvature_bound / expansion.rows_after
                    remainder += steepest * self.changed.rows.norm_squares[:, 1] * length
            else:
                remainder = np.zeros(len(length))
        return length, self.shift_error(length, remainder, 1 / growth)

    @property
    def width(self) -> int:
        """Entries for each neighbour: of its rows, or of a matrix where they are many."""
        return min(self.changed.size, self.expansion.columns) * self.expansion.columns

    def take(self, index: IntArray) -> "SeveralRows":
        """Return some of the neighbours."""
        return replace(self, changed=self.changed.take(index), left=self.left[index])

    def pull_bound(self, index: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return ∥F̃(Â)∥ of some neighbours, and a bound on the error of F̃(Â)."""
        size, error = np.empty((2, len(index)))
        step = persons_at_once(self.changed.size * self.expansion.columns)
        for start in range(0, len(index), step):
            some = slice(start, start + step)
            block = self.take(index[some])
            size[some], error[some] = row_norms(block.pull_value), block.pull.error
        return size, error

    @cached_property
    def pull_value(self) -> FloatArray:
        """(p, d) −F̃(Â)."""
        return pull_value(self.expansion, self.changed)

    @cached_property
    def pull(self) -> Pull:
        """What pulls the minimisers away from Â, in numbers."""
        if self.changed.is_replaced:
            assert isinstance(self.operator, Replacement)
            length = self.operator.pull_length
        else:
            length = np.linalg.norm(self.pull_value, axis=1)
        return Pull.of(self.expansion, self.changed, length)

    @cached_property
    def operator(self) -> Operator:
        """H'(Â) of each neighbour."""
        if self.changed.is_replaced:
            return Replacement.of(self.expansion, self.changed)
        few = self.changed.size <= self.expansion.columns
        kind: type[FewRows | ManyRows] = FewRows if few else ManyRows
        return kind.of(self.expansion, self.changed, self.pull)

    @property
    def weight(self) -> FloatArray:
        """(p,) Σ f″∥x∥²/m over the changed rows."""
        return self.pull.weight

    def solve(self, right: FloatArray) -> FloatArray:
        """Return H'(Â)⁻¹ applied to each right-hand side."""
        return self.operator.solve(right)

    def apply(self, vectors: FloatArray) -> FloatArray:
        """Return H'(Â) applied to each vector."""
        return self.operator.apply(vectors)

    def third_derivative_sum(self, vectors: FloatArray) -> FloatArray:
        """Return Σ sign·f‴x(x·v)²/m over the changed rows."""
        loss, total = self.expansion.loss, np.zeros_like(vectors)
        assert isinstance(loss, Logistic)
        for part, sigma in self.changed.chunks():
            third = loss.third(part.z, part.y) * sigma
            along = np.einsum("pkd,pd->pk", part.X, vectors)
            total -= np.einsum("pk,pkd->pd", third * along**2, part.X)
        return total / self.expansion.rows_after

    def third_order_form(self, vectors: FloatArray) -> FloatArray:
        """Return (p,) an upper bound on vᵀTv: over the rows that stay, T over all less M·r·W."""
        expansion = self.expansion
        assert expansion.third is not None
        assert expansion.third_bound is not None
        square = np.einsum("pd,pd->p", vectors, vectors)
        form = np.empty(len(vectors))
        replaced = self.changed.is_replaced
        for some in few(len(form), expansion) if replaced else [slice(None)]:
            form[some] = np.einsum("pd,pd->p", vectors[some] @ expansion.third, vectors[some])
        off, bound = expansion.curvature_error, expansion.third_bound
        rounding = gamma(self.changed.roundings + 2 * len(expansion.third) + 16)
        size = float(np.linalg.norm(expansion.third)) + bound.common * self.weight
        removed, entered = self.operator.forms(vectors)
        form = (1 + off) * form - (1 - off) * bound.common * removed
        if replaced:
            form = form + (1 + off) * bound.ratio * entered
            size = size + bound.ratio * expansion.largest_norm * self.weight
        upper: FloatArray = np.maximum(form, 0.0) + rounding * size * square
        return upper

    def gradient(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return F̃(Â + δ), and a bound on its rounding error."""
        expansion = self.expansion
        length = np.linalg.norm(shift, axis=1)
        if self.refinement.kinks is None:
            moved, error = self._moved_by_all(shift)
        else:
            moved, error = self._moved_by_kinks(shift)
        gradient = moved - self.pull_value
        rounding = (
            error
            + self.pull.error
            + 8 * ROUNDOFF * self.pull.length
            + 4 * ROUNDOFF * float(np.max(expansion.penalty_after)) * length
        )
        return gradient, 1.01 * rounding

    def _moved_by_all(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return p'∘δ + Σ x[f′(z + x·δ) − f′(z)]/m over the neighbour's rows, and its error.

        A pass over the data leaves out the rows that leave.
        """
        expansion, objective, m = self.expansion, self.objective, self.expansion.rows_after
        total, moved = increments(objective, expansion.base.theta, shift, self._owner)
        length = np.linalg.norm(shift, axis=1)
        with np.errstate(over="ignore"):
            error = increment_error(objective, expansion, length)
        if self.changed.is_replaced:
            entered, size, lost = self._changed_increments(shift, of=-1)
            total, moved, error = total - entered, moved + size, error + lost
        error = gamma(objective.count + objective.columns + 64) * moved / m + error
        return expansion.penalty_after * shift + total / m, error

    def _moved_by_kinks(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the same from the rows near a kink; a pass where a shift is too long for them."""
        expansion, kinks = self.expansion, self.refinement.kinks
        assert kinks is not None
        total, error = moved_by_kinks(expansion, kinks, shift)
        removed, size, lost = self._changed_increments(shift, of=None)
        total = total - removed / expansion.rows_after
        error = error + lost + gamma(expansion.columns + 64) * size / expansion.rows_after
        far = np.flatnonzero(~(error < np.inf))
        if len(far):
            block = replace(self, changed=self.changed.take(far), refinement=Refinement())
            total[far], error[far] = block._moved_by_all(shift[far])
        return total, error

    def _changed_increments(
        self, shift: FloatArray, *, of: int | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return Σ σx[f′(z + x·δ) − f′(z)], Σ∥x∥∣…∣, and a bound on the error of the sum over m.

        Over the changed rows with σ = ``of``, or all of them.
        """
        expansion, loss = self.expansion, self.expansion.loss
        total, size, squares = np.zeros_like(shift), *np.zeros((2, len(shift)))
        for part, sigma in self.changed.chunks():
            along = np.einsum("pkd,pd->pk", part.X, shift)
            chosen = sigma if of is None else np.where(sigma == of, sigma, 0.0)
            growth = loss.increment(part.z, part.y, along) * chosen
            total += np.einsum("pk,pkd->pd", growth, part.X)
            size += np.einsum("pk,pk->p", np.abs(growth), part.norms)
            squares += np.einsum("pk,k->p", part.norm_squares, np.abs(chosen))
        margin = expansion.curved.constants.margin_error(expansion.base.theta)
        lost = 2 * margin + gamma(expansion.columns + 2) * np.linalg.norm(shift, axis=1)
        return total, size, loss.curvature_bound * squares / expansion.rows_after * lost

    @property
    def _owner(self) -> IntArray:
        """(n,) which neighbour of the block each row of the data leaves; −1: none."""
        owner = np.full(self.objective.count, -1)
        owner[self.changed.index] = np.arange(len(self.changed))[:, None]
        return owner

    def hessian(self, shift: FloatArray) -> FloatArray:
        """Return the Hessian at Â + δ of the only neighbour."""
        theta, m = self.expansion.base.theta + shift[0], self.expansion.rows_after
        hessian = hessian_at(self.objective, self.expansion, theta, self._owner < 0)
        if self.changed.is_replaced:
            X, y = self.changed.rows.X[0, 1:], self.changed.rows.y[0, 1:]
            weight = self.expansion.loss.curvature(X @ theta, y) / m
            hessian += (X * weight[:, None]).T @ X
        return hessian

    def shift_error(
        self,
        length: FloatArray,
        remainder: FloatArray,
        decay: FloatArray,
        *,
        measured: bool = False,
        lowest: FloatArray | float | None = None,
    ) -> FloatArray:
        """Return the error of shifts that leave ``remainder`` of the tilted gradient."""
        expansion, d = self.expansion, self.expansion.columns
        residual = remainder if measured else remainder + self._linear_residual(length)
        least: FloatArray | float = expansion.floor
        if lowest is not None:
            least = lowest
        elif expansion.loss.third_ratio is not None:
            least = np.maximum(expansion.floor, self.operator.lowest)
        weight = (1 + expansion.curvature_error) * self.weight
        error = certified_error(expansion, residual, length, least, decay, weight)
        # Of the length, and of inner products with the shift.
        tiny = UNDERFLOW * (1 + 1 / expansion.floor) if expansion.floor > 0 else UNDERFLOW
        return error + 8 * gamma(d + 16) * length + tiny

    def _linear_residual(self, length: FloatArray) -> FloatArray:
        """Bound what is left of the linear system, as measured, with the rounding of measuring."""
        expansion, d = self.expansion, self.expansion.columns
        evaluated = gamma(self.changed.roundings + 2 * d + 16)
        relative = expansion.hessian_error + expansion.curvature_error * self.weight
        relative += evaluated * (float(np.linalg.norm(expansion.hessian)) + self.weight)
        rounding = relative * length + 8 * ROUNDOFF * self.pull.length + self.pull.error
        residual: FloatArray = (1 + 1e-9) * (self.left + rounding)
        return residual
