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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from expost._numerics import (
    ROUNDOFF,
    UNDERFLOW,
    CompensatedSum,
    gamma,
    row_blocks,
    row_norms,
    solve_small,
)
from expost.glm import Objective
from expost.losses import Logistic, ScalarDerivatives
from expost.neighbouring.certificate import certified_error
from expost.neighbouring.change import ChangedGroup, persons_at_once
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

__all__ = ["SeveralRows", "pull_errors"]


def _pull_value(expansion: Expansion, changed: ChangedGroup) -> FloatArray:
    """Return (p, d) −F̃(Â), which pulls the minimiser of each neighbour away from Â."""
    total: CompensatedSum | None = None
    for part, sigma in changed.chunks():
        value: FloatArray = np.einsum("pk,pkd->pd", part.slope * sigma, part.X)
        # A sum of one term needs no compensation.
        if part.slope.shape[1] < changed.size:
            total = CompensatedSum(value.shape) if total is None else total
            total.add(value)
            value = total.value
    value /= expansion.rows_after
    value += expansion.pull
    return value


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pull:
    """The pull of each neighbour in numbers (p,).

    ``length``   ∥F̃(Â)∥.
    ``error``    a bound on the error of F̃(Â), of f′, of the predictors and of the sums.
    ``weight``   Σ f″∥x∥²/m over the changed rows.
    """

    length: FloatArray
    error: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup, length: FloatArray) -> "_Pull":
        """Sum over the changed rows; ``length`` is known."""
        constants, m = expansion.curved.constants, expansion.rows_after
        lost, weight = np.zeros((2, len(changed)))
        rounding = gamma(changed.roundings)
        for part, _ in changed.chunks():
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
        size = length + float(np.linalg.norm(expansion.pull))
        error = 1.01 * lost / m + expansion.pull_error + 8 * ROUNDOFF * size + UNDERFLOW
        return cls(length=length, error=error, weight=weight / m)


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
    def forms(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        """Return (p,) Σ f″(x·v)²/m over the rows that leave, Σ f″∥x∥(x·v)²/m over the others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _FewRows(_Operator):
    """H' through k rows that leave: ``system`` is I − R(XB⁻¹Xᵀ)R, ``images`` XB⁻¹."""

    hessian: FloatArray
    inverse: FloatArray
    X: FloatArray
    root: FloatArray
    images: FloatArray
    system: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup, pull: _Pull) -> "_FewRows":
        """Prepare the solves."""
        rows = changed.gathered
        root = np.sqrt(rows.curvature / expansion.rows_after)
        images = _images(expansion, rows.X)
        taken = np.matmul(images, rows.X.transpose(0, 2, 1))
        taken *= root[:, :, None] * root[:, None, :]
        return cls(
            hessian=expansion.hessian,
            inverse=expansion.inverse,
            X=rows.X,
            root=root,
            images=images,
            system=np.eye(taken.shape[1]) - taken,
            lowest=_least_of_few(expansion, taken, pull.weight),
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
        along = self.root**2 * np.einsum("pkd,pd->pk", self.X, vectors)
        image: FloatArray = vectors @ self.hessian - np.einsum("pk,pkd->pd", along, self.X)
        return image

    def forms(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        return row_norms(self._along(vectors)) ** 2, 0.0


def _images(expansion: Expansion, X: FloatArray) -> FloatArray:
    """Return XB⁻¹ of the rows (p, k, d)."""
    images: FloatArray = (X.reshape(-1, expansion.columns) @ expansion.inverse).reshape(X.shape)
    return images


def _least_of_few(expansion: Expansion, taken: FloatArray, weight: FloatArray) -> FloatArray:
    """Bound H' ≽ B − (Σ f″∥x∥²/m)I, and H' ≽ (1 − ν)B, over the rows that leave.

    ν is the largest eigenvalue of R(XB⁻¹Xᵀ)R, which is computed only where the first bound leaves
    less than half of B's least eigenvalue.
    """
    least = expansion.lowest - weight * (1 + expansion.curvature_error)
    poor = ~(least >= expansion.lowest / 2)
    if np.any(poor):
        symmetric = 0.5 * (taken[poor] + taken[poor].transpose(0, 2, 1))
        largest = np.linalg.eigvalsh(symmetric)[:, -1]
        rounding = expansion.leverage_error * weight[poor]
        rounding += gamma(16 * len(symmetric[0])) * np.trace(symmetric, axis1=1, axis2=2)
        least[poor] = np.maximum(least[poor], _share(expansion, largest + rounding))
    return least


def _share(expansion: Expansion, taken: FloatArray) -> FloatArray:
    """Return a lower bound on the least eigenvalue of (1 − ν)B, for ν up to ``taken``."""
    kept = np.maximum(1 - (1 + expansion.curvature_error) * taken, 0.0)
    return kept * (expansion.lowest + expansion.slack) - expansion.slack


@dataclass(frozen=True, kw_only=True, eq=False)
class _Replacement(_Operator):
    """H' where x₀ leaves and x₁ enters, in closed form: no small system for each neighbour.

    ``weight``  (p, 2) f″/m of both rows.
    ``slope``   (p, 2) σf′/m.
    ``g00``, ``g01``, ``g11``  (p,) the entries of XB⁻¹Xᵀ.
    ``pull_length``            (p,) ∥F̃(Â)∥.
    """

    expansion: Expansion
    X: FloatArray
    norms: FloatArray
    weight: FloatArray
    slope: FloatArray
    g00: FloatArray
    g01: FloatArray
    g11: FloatArray
    pull_length: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup) -> "_Replacement":
        """Prepare the solves."""
        rows, m = changed.gathered, expansion.rows_after
        weight, slope = rows.curvature / m, rows.slope * (changed.sigma / m)
        g00, g01, g11, length = np.empty((4, len(changed)))
        for some in _few(len(changed), expansion):
            X = rows.X[some]
            images = _images(expansion, X)
            g00[some] = np.einsum("pd,pd->p", images[:, 0], X[:, 0])
            g01[some] = np.einsum("pd,pd->p", images[:, 0], X[:, 1])
            g11[some] = np.einsum("pd,pd->p", images[:, 1], X[:, 1])
            pull = np.einsum("pk,pkd->pd", slope[some], X)
            pull += expansion.pull
            length[some] = row_norms(pull)
        # As for rows that leave, with ν = f″x₀ᵀB⁻¹x₀/m. The row that enters only adds curvature.
        heavy = weight[:, 0] * rows.norm_squares[:, 0]
        taken = weight[:, 0] * g00
        taken += expansion.leverage_error * heavy + gamma(32) * taken
        least = expansion.lowest - heavy * (1 + expansion.curvature_error)
        return cls(
            expansion=expansion,
            X=rows.X,
            norms=rows.norms,
            weight=weight,
            slope=slope,
            g00=g00,
            g01=g01,
            g11=g11,
            pull_length=length,
            lowest=np.maximum(least, _share(expansion, taken)),
        )

    def _scales(self, along: FloatArray) -> FloatArray:
        """Return c (p, 2) with H'⁻¹r = B⁻¹r + Σ c·B⁻¹x, from ``along`` = XB⁻¹r.

        c = σw(x·H'⁻¹r) are two equations, whose determinant (1 − w₀g₀₀)(1 + w₁g₁₁) + w₀w₁g₀₁² is a
        sum of numbers that are not negative.
        """
        w0, w1 = self.weight[:, 0], self.weight[:, 1]
        y0, y1 = w0 * along[:, 0], w1 * along[:, 1]
        kept, grown = 1 - w0 * self.g00, 1 + w1 * self.g11
        scale = np.empty_like(along)
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = 1 / (kept * grown + w0 * w1 * self.g01**2)
            scale[:, 0] = (grown * y0 - w0 * self.g01 * y1) * inverse
            scale[:, 1] = -(kept * y1 + w1 * self.g01 * y0) * inverse
        return scale

    def solve(self, right: FloatArray) -> FloatArray:
        along = np.einsum("pkd,pd->pk", self.X, right @ self.expansion.inverse)
        total = right + np.einsum("pk,pkd->pd", self._scales(along), self.X)
        solved: FloatArray = total @ self.expansion.inverse
        return solved

    def apply(self, vectors: FloatArray) -> FloatArray:
        along = self.weight * np.einsum("pkd,pd->pk", self.X, vectors) * [1, -1]
        image: FloatArray = vectors @ self.expansion.hessian
        image -= np.einsum("pk,pkd->pd", along, self.X)
        return image

    def forms(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        form = self.weight * np.einsum("pkd,pd->pk", self.X, vectors) ** 2
        return form[:, 0], form[:, 1] * self.norms[:, 1]

    def newton(self, step: FloatArray, left: FloatArray) -> None:
        """Write the Newton steps, and (p,) what is left of the linear systems.

        The steps are a₀ + Σ s·B⁻¹x, since B⁻¹pull is, with σf′/m for s.
        """
        expansion, slope = self.expansion, self.slope
        along = self.X @ expansion.offset
        along[:, 0] += self.g00 * slope[:, 0] + self.g01 * slope[:, 1]
        along[:, 1] += self.g01 * slope[:, 0] + self.g11 * slope[:, 1]
        scale = slope + self._scales(along)
        for some in _few(len(step), expansion):
            X, part = self.X[some], step[some]
            np.matmul(np.einsum("pk,pkd->pd", scale[some], X), expansion.inverse, out=part)
            part += expansion.offset
            along = self.weight[some] * np.einsum("pkd,pd->pk", X, part)
            along[:, 1] *= -1
            image = part @ expansion.hessian
            image -= np.einsum("pk,pkd->pd", along + slope[some], X)
            image -= expansion.pull
            left[some] = row_norms(image)


def _few(count: int, expansion: Expansion) -> Iterator[slice]:
    """Yield places of replacements whose rows fit in a core's cache (256 KiB)."""
    return row_blocks(count, 16 * expansion.columns)


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
        taken = np.zeros((len(changed), d, d))
        for part, _ in changed.chunks():
            scaled = part.X * (part.curvature / m)[:, :, None]
            taken += np.matmul(scaled.transpose(0, 2, 1), part.X)
        taken = 0.5 * (taken + taken.transpose(0, 2, 1))
        hessian = expansion.hessian - taken
        return cls(
            hessian=hessian,
            inverse=_inverses(hessian, expansion.floor),
            taken=taken,
            lowest=_least_of_many(expansion, hessian, pull.weight, changed.roundings),
        )

    def solve(self, right: FloatArray) -> FloatArray:
        return _each(self.inverse, right)

    def apply(self, vectors: FloatArray) -> FloatArray:
        return _each(self.hessian, vectors)

    def forms(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        return np.einsum("pd,pd->p", _each(self.taken, vectors), vectors), 0.0


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
class SeveralRows(Neighbourhood):
    """Neighbours that change k rows each.

    ``left``  (p,) ∥H'δ − pull∥ of the Newton steps.
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
        # What is not a number proves nothing.
        error[np.isnan(error)] = np.inf
        return near, Steps(shifts=Shifts.dense(shift), distance=distance, error=error)

    def _newton(self, step: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Write the Newton steps to ``step`` and what the solves leave to ``left``.

        Return the lengths of the steps and their errors.
        """
        expansion = self.expansion
        if isinstance(self.operator, _Replacement):
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
        return _pull_value(self.expansion, self.changed)

    @cached_property
    def pull(self) -> _Pull:
        """What pulls the minimisers away from Â, in numbers."""
        if self.changed.is_replaced:
            assert isinstance(self.operator, _Replacement)
            length = self.operator.pull_length
        else:
            length = np.linalg.norm(self.pull_value, axis=1)
        return _Pull.of(self.expansion, self.changed, length)

    @cached_property
    def operator(self) -> _Operator:
        """H'(Â) of each neighbour."""
        if self.changed.is_replaced:
            return _Replacement.of(self.expansion, self.changed)
        few = self.changed.size <= self.expansion.columns
        kind: type[_FewRows | _ManyRows] = _FewRows if few else _ManyRows
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
        """T over the rows that stay is at most what it is over all, less M·r·W."""
        expansion = self.expansion
        assert expansion.third is not None
        assert expansion.third_bound is not None
        square = np.einsum("pd,pd->p", vectors, vectors)
        form = np.empty(len(vectors))
        replaced = self.changed.is_replaced
        for some in _few(len(form), expansion) if replaced else [slice(None)]:
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


def pull_errors(expansion: Expansion, changed: ChangedGroup) -> FloatArray:
    """Return (p,) a bound on the error of F̃(Â) of each neighbour."""
    error = np.empty(len(changed))
    step = persons_at_once(changed.size * expansion.columns)
    for start in range(0, len(error), step):
        some = slice(start, start + step)
        part = changed.take(some)
        length = np.linalg.norm(_pull_value(expansion, part), axis=1)
        error[some] = _Pull.of(expansion, part, length).error
    return error
