"""Neighbours that change several rows: a person's rows leave, or one row leaves and one enters.

Conventions (those of :mod:`expost.neighbouring.expansion`, at Â)
-----------------------------------------------------------------
k        the number of rows that each of p neighbours changes, which share B and its inverse.
X, R     (k, d) the changed rows of one neighbour; R² = diag(f″/m).
σ        (k,) +1 for a row that leaves, −1 for one that enters.
W        XᵀRσRX, so that H' = B − W.
pull     −F̃(Â) = (k + Σ σf′x)/m, and the Newton step solves H'δ = pull.

H' is solved with through the smaller of two systems: for few rows through σ − R(XB⁻¹Xᵀ)R, of k rows
(Woodbury), else through H' itself, for which the rows are summed up once, a few at a time. What a
solve leaves of the linear system is *measured*, so that no bound depends on how it was solved. Sums
over the data leave out the rows that leave, rather than subtract them again, so that a person may
own most of the data.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from expost._numerics import ROUNDOFF, UNDERFLOW, CompensatedSum, gamma, row_norms, solve_small
from expost.glm import Objective
from expost.losses import Logistic, ScalarDerivatives
from expost.neighbouring.certificate import certified_error
from expost.neighbouring.change import ChangedGroup, persons_at_once
from expost.neighbouring.expansion import Expansion
from expost.neighbouring.refine import (
    Neighbourhood,
    Refinement,
    StepBlock,
    hessian_at,
    increment_error,
    increments,
    moved_by_kinks,
)
from expost.neighbouring.shifts import Shifts
from expost.types import FloatArray, IntArray

__all__ = ["SeveralRows"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pull:
    """What pulls the minimiser of each neighbour away from Â.

    ``value``    (p, d) −F̃(Â).
    ``error``    (p,) a bound on its error, of f′, of the predictors and of the sums.
    ``weight``   (p,) Σ f″∥x∥²/m over the changed rows.
    ``leaving``  (p,) the same over those that leave.
    """

    value: FloatArray
    error: FloatArray
    weight: FloatArray
    leaving: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup) -> "_Pull":
        """Sum over the changed rows."""
        constants, m = expansion.curved.constants, expansion.rows_after
        count, columns = len(changed.index), expansion.columns
        total = CompensatedSum((count, columns))
        lost, weight, leaving = np.zeros((3, count))
        rounding = gamma(changed.roundings)
        for part, sigma in changed.chunks():
            total.add(np.einsum("pk,pkd->pd", part.slope * sigma, part.X))
            found = ScalarDerivatives(
                slope=part.slope,
                curvature=part.curvature,
                is_classification=expansion.loss.is_classification,
            )
            # Rows that enter may have larger labels than the data.
            largest = max(constants.label_size, float(np.max(np.abs(part.y))))
            known = replace(constants, label_size=largest)
            error = known.slope_error(expansion.base.theta, found, part.norms)
            lost += np.einsum("pk,pk->p", part.norms, error + rounding * np.abs(part.slope))
            weight += np.einsum("pk,pk->p", part.curvature, part.norm_squares)
            leaves = np.where(sigma > 0, part.curvature, 0.0)
            leaving += np.einsum("pk,pk->p", leaves, part.norm_squares)
        value = expansion.pull + total.value / m
        size = np.linalg.norm(value, axis=1) + float(np.linalg.norm(expansion.pull))
        error = 1.01 * lost / m + expansion.pull_error + 8 * ROUNDOFF * size + UNDERFLOW
        return cls(value=value, error=error, weight=weight / m, leaving=leaving / m)


class _Operator(ABC):
    """H'(Â) of p neighbours.

    ``lowest`` (p,) a lower bound on its least eigenvalue, but for the penalty's own.
    """

    lowest: FloatArray

    @abstractmethod
    def solve(self, right: FloatArray) -> FloatArray:
        """Return H'⁻¹ applied to each row of ``right`` (p, d)."""

    @abstractmethod
    def apply(self, vectors: FloatArray) -> FloatArray:
        """Return H' applied to each row."""

    @abstractmethod
    def removed(self, vectors: FloatArray) -> FloatArray:
        """Return (p,) vᵀWv over the rows that leave."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _FewRows(_Operator):
    """H' through k rows: ``system`` is σ − R(XB⁻¹Xᵀ)R, ``images`` XB⁻¹."""

    hessian: FloatArray
    inverse: FloatArray
    X: FloatArray
    root: FloatArray
    sigma: FloatArray
    images: FloatArray
    system: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup, pull: _Pull) -> "_FewRows":
        """Prepare the solves."""
        rows = changed.rows.take(changed.index)
        root = np.sqrt(rows.curvature / expansion.rows_after)
        images = (rows.X.reshape(-1, expansion.columns) @ expansion.inverse).reshape(rows.X.shape)
        taken = np.matmul(images, rows.X.transpose(0, 2, 1))
        taken *= root[:, :, None] * root[:, None, :]
        return cls(
            hessian=expansion.hessian,
            inverse=expansion.inverse,
            X=rows.X,
            root=root,
            sigma=changed.sigma,
            images=images,
            system=np.diag(changed.sigma) - taken,
            lowest=_least_of_few(expansion, taken, changed.sigma, pull),
        )

    def _along(self, vectors: FloatArray) -> FloatArray:
        """Return RXv of each vector v."""
        along: FloatArray = self.root * np.einsum("pkd,pd->pk", self.X, vectors)
        return along

    def solve(self, right: FloatArray) -> FloatArray:
        solved = right @ self.inverse
        parts = self.root * solve_small(self.system, self._along(solved))
        solved += np.einsum("pk,pkd->pd", parts, self.images)
        return solved

    def apply(self, vectors: FloatArray) -> FloatArray:
        along = self.sigma * (self.root**2 * np.einsum("pkd,pd->pk", self.X, vectors))
        image: FloatArray = vectors @ self.hessian - np.einsum("pk,pkd->pd", along, self.X)
        return image

    def removed(self, vectors: FloatArray) -> FloatArray:
        return row_norms(np.where(self.sigma > 0, self._along(vectors), 0.0)) ** 2


def _least_of_few(
    expansion: Expansion, taken: FloatArray, sigma: FloatArray, pull: _Pull
) -> FloatArray:
    """Bound H' ≽ B − (Σ f″∥x∥²/m)I, and H' ≽ (1 − ν)B, over the rows that leave.

    ν is the largest eigenvalue of R(XB⁻¹Xᵀ)R. Of persons it is computed only where the first bound
    leaves less than half of B's least eigenvalue. Rows that enter only add curvature.
    """
    heavier = pull.leaving * (1 + expansion.curvature_error)
    least = expansion.lowest - heavier
    leaves = sigma > 0
    # Of a replacement ν is that of one row: always worth it.
    poor = ~(least >= expansion.lowest / 2) | ~np.all(leaves)
    if np.any(poor):
        some = np.where(leaves[:, None] & leaves, taken[poor], 0.0)
        symmetric = 0.5 * (some + some.transpose(0, 2, 1))
        largest = np.linalg.eigvalsh(symmetric)[:, -1]
        rounding = expansion.leverage_error * pull.leaving[poor]
        rounding += gamma(16 * len(symmetric[0])) * np.trace(symmetric, axis1=1, axis2=2)
        kept = np.maximum(1 - (1 + expansion.curvature_error) * (largest + rounding), 0.0)
        shared = kept * (expansion.lowest + expansion.slack) - expansion.slack
        least[poor] = np.maximum(least[poor], shared)
    return least


@dataclass(frozen=True, kw_only=True, eq=False)
class _ManyRows(_Operator):
    """H' of more than d rows that leave: ``hessian``, ``inverse`` (p, d, d), and ``taken`` = W."""

    hessian: FloatArray
    inverse: FloatArray
    taken: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup, pull: _Pull) -> "_ManyRows":
        """Prepare the solves."""
        m, d = expansion.rows_after, expansion.columns
        taken = np.zeros((len(changed.index), d, d))
        for part, _ in changed.chunks():
            scaled = part.X * (part.curvature / m)[:, :, None]
            taken += np.matmul(scaled.transpose(0, 2, 1), part.X)
        taken = 0.5 * (taken + taken.transpose(0, 2, 1))
        hessian = expansion.hessian - taken
        return cls(
            hessian=hessian,
            inverse=_inverses(hessian, expansion.floor),
            taken=taken,
            lowest=_least_of_many(expansion, hessian, pull.leaving, changed.roundings),
        )

    def solve(self, right: FloatArray) -> FloatArray:
        return _each(self.inverse, right)

    def apply(self, vectors: FloatArray) -> FloatArray:
        return _each(self.hessian, vectors)

    def removed(self, vectors: FloatArray) -> FloatArray:
        form: FloatArray = np.einsum("pd,pd->p", _each(self.taken, vectors), vectors)
        return form


def _inverses(hessian: FloatArray, floor: float) -> FloatArray:
    """Return H'⁻¹ of each neighbour; eigenvalues that rounding lost are raised to ``floor``.

    Nothing is proved of it: what a solve leaves is measured.
    """
    try:
        return np.asarray(np.linalg.inv(hessian))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        clipped = np.maximum(values, max(floor, 1e-300))
        inverse: FloatArray = np.matmul(vectors / clipped[:, None, :], vectors.transpose(0, 2, 1))
        return inverse


def _least_of_many(
    expansion: Expansion, hessian: FloatArray, weight: FloatArray, roundings: float
) -> FloatArray:
    """Bound H' ≽ B − (Σ f″∥x∥²/m)I, or by its least eigenvalue where that leaves too little."""
    least = expansion.lowest - weight * (1 + expansion.curvature_error)
    poor = ~(least >= expansion.lowest / 2)
    if np.any(poor):
        size = float(np.linalg.norm(expansion.hessian)) + weight[poor]
        slack = expansion.hessian_error + 16 * len(expansion.hessian) * ROUNDOFF * size
        slack += (expansion.curvature_error + gamma(roundings)) * weight[poor]
        least[poor] = np.linalg.eigvalsh(hessian[poor])[:, 0] - slack
    return least


def _each(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return a matrix times a vector for each neighbour."""
    image: FloatArray = np.matmul(matrices, vectors[:, :, None])[:, :, 0]
    return image


@dataclass(frozen=True, kw_only=True, eq=False)
class _SeveralRowsBlock(StepBlock):
    """Some of the neighbours that change k rows.

    ``left``  (p,) ∥H'δ − pull∥ of their Newton steps.
    """

    expansion: Expansion
    changed: ChangedGroup
    pull: _Pull
    operator: _Operator
    left: FloatArray
    refinement: Refinement
    objective: Objective

    @classmethod
    def of(
        cls,
        expansion: Expansion,
        changed: ChangedGroup,
        objective: Objective,
        refinement: Refinement,
        left: FloatArray,
    ) -> "_SeveralRowsBlock":
        """Gather what is needed of the changed rows; no step is taken yet."""
        pull = _Pull.of(expansion, changed)
        few = changed.index.shape[1] <= expansion.columns or changed.enters
        kind: type[_FewRows] | type[_ManyRows] = _FewRows if few else _ManyRows
        return cls(
            expansion=expansion,
            changed=changed,
            pull=pull,
            operator=kind.of(expansion, changed, pull),
            left=left,
            refinement=refinement,
            objective=objective,
        )

    @property
    def weight(self) -> FloatArray:
        return self.pull.weight

    def solve(self, right: FloatArray) -> FloatArray:
        return self.operator.solve(right)

    def apply(self, vectors: FloatArray) -> FloatArray:
        return self.operator.apply(vectors)

    def third_derivative_sum(self, vectors: FloatArray) -> FloatArray:
        loss, total = self.expansion.loss, np.zeros_like(vectors)
        assert isinstance(loss, Logistic)
        for part, sigma in self.changed.chunks():
            third = loss.third(part.z, part.y) * sigma
            along = np.einsum("pkd,pd->pk", part.X, vectors)
            total -= np.einsum("pk,pkd->pd", third * along**2, part.X)
        return total / self.expansion.rows_after

    def third_order_form(self, vectors: FloatArray) -> FloatArray:
        """T over the rows that stay is at most what it is over all, less M·r·W."""
        expansion = self.expansion
        assert expansion.third is not None
        assert expansion.third_bound is not None
        square = np.einsum("pd,pd->p", vectors, vectors)
        form: FloatArray = np.einsum("pd,pd->p", vectors @ expansion.third, vectors)
        off, bound = expansion.curvature_error, expansion.third_bound
        rounding = gamma(self.changed.roundings + 2 * len(expansion.third) + 16)
        size = float(np.linalg.norm(expansion.third)) + bound.common * self.weight
        form = (1 + off) * form - (1 - off) * bound.common * self.operator.removed(vectors)
        if self.changed.enters:
            entered = (1 + off) * bound.ratio * self._entered(vectors)
            form, size = form + entered, size + bound.ratio * expansion.largest_norm * self.weight
        upper: FloatArray = np.maximum(form, 0.0) + rounding * size * square
        return upper

    def _entered(self, vectors: FloatArray) -> FloatArray:
        """Return Σ f″∥x∥(x·v)²/m over the rows that enter."""
        total = np.zeros(len(vectors))
        for part, sigma in self.changed.chunks():
            along = np.einsum("pkd,pd->pk", part.X, vectors)
            weight = np.where(sigma < 0, part.curvature * part.norms, 0.0)
            total += np.einsum("pk,pk->p", weight, along**2)
        return total / self.expansion.rows_after

    def gradient(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        expansion = self.expansion
        length = np.linalg.norm(shift, axis=1)
        if self.refinement.kinks is None:
            moved, error = self._moved_by_all(shift)
        else:
            moved, error = self._moved_by_kinks(shift)
        gradient = moved - self.pull.value
        rounding = (
            error
            + self.pull.error
            + 8 * ROUNDOFF * np.linalg.norm(self.pull.value, axis=1)
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
        if self.changed.enters:
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
        leaving = self.changed.index[:, self.changed.sigma > 0]
        owner[leaving] = np.arange(len(leaving))[:, None]
        return owner

    def hessian(self, shift: FloatArray) -> FloatArray:
        theta, m = self.expansion.base.theta + shift[0], self.expansion.rows_after
        hessian = hessian_at(self.objective, self.expansion, theta, self._owner < 0)
        if self.changed.enters:
            enters = self.changed.rows.take(self.changed.index[0, self.changed.sigma < 0])
            weight = self.expansion.loss.curvature(enters.X @ theta, enters.y) / m
            hessian += (enters.X * weight[:, None]).T @ enters.X
        return hessian

    def error(
        self,
        length: FloatArray,
        remainder: FloatArray,
        decay: FloatArray,
        *,
        measured: bool = False,
        lowest: FloatArray | float | None = None,
    ) -> FloatArray:
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
        pulled = np.linalg.norm(self.pull.value, axis=1)
        rounding = relative * length + 8 * ROUNDOFF * pulled + self.pull.error
        residual: FloatArray = (1 + 1e-9) * (self.left + rounding)
        return residual

    def newton(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the Newton steps, their lengths and errors, and what the solves leave."""
        expansion = self.expansion
        step = self.solve(self.pull.value)
        length = row_norms(step)
        left = row_norms(self.apply(step) - self.pull.value)
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(expansion.spread * length)
            if expansion.third is not None:
                remainder = 0.5 * growth * self.third_order_form(step)
            elif expansion.knots is not None:
                remainder = expansion.knots.remainder(length)
                if self.changed.enters:
                    enters = self.changed.index[:, self.changed.sigma < 0]
                    squares = self.changed.rows.norm_squares[enters].sum(axis=1)
                    steepest = expansion.loss.curvature_bound / expansion.rows_after
                    remainder += steepest * squares * length
            else:
                remainder = np.zeros(len(length))
        error = replace(self, left=left).error(length, remainder, 1 / growth)
        return step, length, error, left


@dataclass(frozen=True, kw_only=True, eq=False)
class SeveralRows(Neighbourhood):
    """Neighbours that change k rows each, with a Newton step to each of them.

    ``left``  (p,) what the solves left of the linear systems.
    """

    objective: Objective
    changed: ChangedGroup
    left: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup, objective: Objective) -> "SeveralRows":
        """Take one Newton step to each neighbour, in blocks of neighbours."""
        count = len(changed.index)
        distance, error, left = np.empty((3, count))
        shift = np.empty((count, expansion.columns))
        step = persons_at_once(_width(expansion, changed.index))
        for start in range(0, count, step):
            some = slice(start, start + step)
            block = _SeveralRowsBlock.of(
                expansion, changed.take(some), objective, Refinement(), left[some]
            )
            shift[some], distance[some], error[some], left[some] = block.newton()
        # What is not a number proves nothing.
        error[np.isnan(error)] = np.inf
        return cls(
            expansion=expansion,
            shifts=Shifts.dense(shift),
            distance=distance,
            error=error,
            objective=objective,
            changed=changed,
            left=left,
        )

    @property
    def width(self) -> int:
        """Entries that a block holds for each neighbour."""
        return _width(self.expansion, self.changed.index)

    def take(self, index: IntArray) -> _SeveralRowsBlock:
        """Return some of the neighbours."""
        return _SeveralRowsBlock.of(
            self.expansion,
            self.changed.take(index),
            self.objective,
            self.refinement,
            self.left[index],
        )

    def pull_bound(self, index: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return ∥F̃(Â)∥ of some neighbours, and a bound on the error of F̃(Â)."""
        size, error = np.empty((2, len(index)))
        step = persons_at_once(self.changed.index.shape[1] * self.expansion.columns)
        for start in range(0, len(index), step):
            some = slice(start, start + step)
            pull = _Pull.of(self.expansion, self.changed.take(index[some]))
            size[some], error[some] = row_norms(pull.value), pull.error
        return size, error


def _width(expansion: Expansion, index: IntArray) -> int:
    """Return the entries for each neighbour: of its rows, or of a matrix where they are many."""
    return min(int(index.shape[1]), expansion.columns) * expansion.columns
