"""Neighbours that change one row: a Newton step to each from the expansion, with its certificate.

A block of steps is worked out from a few inner products a row (:class:`_Products`); the (n, d)
array of shifts is never held. :func:`_shift_error` turns what a step leaves of the gradient into a
bound on the error of the shift, for this step and for those of :mod:`expost.neighbouring.refine`.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from expost._numerics import ROUNDOFF, UNDERFLOW, gamma, row_blocks, row_norms, solve_small
from expost.glm import Objective
from expost.losses import Logistic
from expost.neighbouring.certificate import certified_error
from expost.neighbouring.change import EvaluatedRows
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

__all__ = ["OneRow", "forming_error", "pull_error"]

# A squared length is expanded unless the expansion loses more than this factor.
_CANCELLATION = 100.0
# Entries of a product that is read again at once: 512 KiB.
_CACHED_ENTRIES = 2**16


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """The scalars of Newton steps δ = a₀ + s·B⁻¹x, one for each changed row.

    ``sign``   +1 where the row enters, −1 where it leaves.
    ``scale``  s.
    ``kept``   a lower bound on 1 − ∣w∣·xᵀB⁻¹x of a row that leaves (1 of one that enters): since
               H' ≽ B − ∣w∣x xᵀ ≽ (1 − ∣w∣xᵀB⁻¹x)·B, that share of B's curvature is kept.
    """

    rows: EvaluatedRows
    sign: int
    scale: FloatArray
    kept: FloatArray

    @cached_property
    def stretch(self) -> FloatArray:
        """∣s∣∥x∥."""
        return np.abs(self.scale) * self.rows.norms

    def take(self, index: IntArray) -> "Step":
        """Return the steps to some of the neighbours."""
        return Step(
            rows=self.rows.take(index),
            sign=self.sign,
            scale=self.scale[index],
            kept=self.kept[index],
        )

    def curvature(self, expansion: Expansion) -> FloatArray | float:
        """Return a lower bound on each neighbour's least Hessian eigenvalue at Â."""
        if expansion.common_curvature is not None:
            return expansion.common_curvature
        removed: FloatArray | float = 0.0
        if self.sign < 0:
            weight = (1 + expansion.curvature_error) / expansion.rows_after
            removed = weight * self.rows.curvature * self.rows.norm_squares
        shared = self.kept * (expansion.lowest + expansion.slack) - expansion.slack
        return np.maximum(expansion.floor, np.maximum(expansion.lowest - removed, shared))


@dataclass(frozen=True, kw_only=True, eq=False)
class OneRow(Neighbourhood):
    """Neighbours that change one row each, by the Newton step to each of them."""

    step: Step

    @classmethod
    def of(
        cls,
        expansion: Expansion,
        rows: EvaluatedRows,
        *,
        objective: Objective | None = None,
        refinement: Refinement | None = None,
    ) -> tuple["OneRow", Steps]:
        """Take one Newton step to the neighbour of each of ``rows``."""
        count, d = len(rows), expansion.columns
        scale, kept, distance, error = np.empty((4, count))
        shifts = Shifts(constant=expansion.offset, scale=scale, X=rows.X, matrix=expansion.inverse)
        # One for the changed rows, and one for their squares.
        space = np.empty((2, d, max(64, _CACHED_ENTRIES // d)))
        sign = 1 if expansion.entering else -1
        for where in row_blocks(count, d):
            part = rows.take(where)
            products = _Products.of(expansion, part, space)
            step = _solve(expansion, part, sign, products)
            scale[where], kept[where] = step.scale, step.kept
            length, cancelled = products.length(expansion, step)
            if np.any(cancelled):
                length[cancelled] = row_norms(shifts.block(where)[cancelled])
            distance[where] = length
            error[where] = _newton_error(expansion, step, products, length)
        # 0·∞ and the like: what is not a number proves nothing.
        error[np.isnan(error)] = np.inf
        near = cls(
            expansion=expansion,
            step=Step(rows=rows, sign=sign, scale=scale, kept=kept),
            refinement=refinement or Refinement(),
            objective=objective,
        )
        return near, Steps(shifts=shifts, distance=distance, error=error)

    @property
    def width(self) -> int:
        """Entries that are held for each neighbour."""
        return self.expansion.columns

    def take(self, index: IntArray) -> "OneRow":
        """Return some of the neighbours."""
        return replace(self, step=self.step.take(index))

    def pull_bound(self, index: IntArray) -> tuple[FloatArray, float]:
        """Return ∥F̃(Â)∥ of some neighbours from above, and a bound on the error of F̃(Â)."""
        expansion, rows = self.expansion, self.step.rows
        size = np.abs(rows.slope[index]) * rows.norms[index] / expansion.rows_after
        return float(np.linalg.norm(expansion.pull)) + size, pull_error(expansion)

    @property
    def _row_weight(self) -> FloatArray:
        """w = sign·f″/m."""
        return self.step.sign * self.step.rows.curvature / self.expansion.rows_after

    def _along(self, vectors: FloatArray) -> FloatArray:
        """Return x·v of each changed row and vector."""
        products: FloatArray = np.einsum("ij,ij->i", self.step.rows.X, vectors)
        return products

    @property
    def weight(self) -> FloatArray:
        """(p,) f″∥x∥²/m of the changed rows."""
        rows = self.step.rows
        return np.asarray(rows.curvature * rows.norms**2 / self.expansion.rows_after)

    def solve(self, right: FloatArray) -> FloatArray:
        """Solve by the formula of Sherman and Morrison."""
        weight, inverse = self._row_weight, self.expansion.inverse
        solved = right @ inverse
        image = self.step.rows.X @ inverse
        system = 1 + weight * self._along(image)
        part = solve_small(system[:, None, None], (weight * self._along(solved))[:, None])
        solved -= part * image
        return solved

    def apply(self, vectors: FloatArray) -> FloatArray:
        """Return H'(Â) applied to each vector."""
        image = vectors @ self.expansion.hessian
        image += (self._row_weight * self._along(vectors))[:, None] * self.step.rows.X
        return image

    def third_derivative_sum(self, vectors: FloatArray) -> FloatArray:
        """Return sign·f‴x(x·v)²/m of the changed rows."""
        loss, rows = self.expansion.loss, self.step.rows
        assert isinstance(loss, Logistic)
        third = loss.third(rows.z, rows.y) * self.step.sign / self.expansion.rows_after
        total: FloatArray = (third * self._along(vectors) ** 2)[:, None] * rows.X
        return total

    def third_order_form(self, vectors: FloatArray) -> FloatArray:
        """Return (p,) an upper bound on vᵀTv."""
        expansion, rows = self.expansion, self.step.rows
        assert expansion.third is not None
        form: FloatArray = np.einsum("ij,ij->i", vectors @ expansion.third, vectors)
        if self.step.sign > 0:
            weight = rows.curvature * rows.norms / expansion.rows_after
            form += weight * self._along(vectors) ** 2
        return form * (1 + expansion.curvature_error)

    def gradient(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return F̃(Â + δ), and a bound on its rounding error."""
        expansion, rows = self.expansion, self.step.rows
        m, loss, d = expansion.rows_after, expansion.loss, expansion.columns
        total, uncertain = self._moved(shift)
        length = np.linalg.norm(shift, axis=1)
        margin = expansion.curved.constants.margin_error(expansion.base.theta)
        growth = loss.increment(rows.z, rows.y, self._along(shift))
        total += (self.step.sign * (growth + rows.slope) / m)[:, None] * rows.X
        size = np.abs(rows.slope) + (0 if loss.is_classification else np.abs(rows.y))
        # The changed row's own predictor and step, through a slope of at most sup f″.
        lost = 2 * margin + gamma(d + 2) * length
        uncertain += loss.curvature_bound * rows.norms**2 / m * lost
        rounding = (
            gamma(d + 64) * (np.abs(growth) * rows.norms) / m
            + uncertain
            + 64 * ROUNDOFF * (size * rows.norms / m + float(np.linalg.norm(expansion.pull)))
        )
        return total - expansion.pull, 1.01 * rounding

    def _moved(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return p'∘δ + Σ x[f′(z + x·δ) − f′(z)]/m over the data, and a bound on its error."""
        kinks = self.refinement.kinks
        if kinks is None:
            return self._moved_by_all(shift)
        total, error = moved_by_kinks(self.expansion, kinks, shift)
        far = np.flatnonzero(~(error < np.inf))
        if len(far) and self.objective is not None:
            total[far], error[far] = self._moved_by_all(shift[far])
        return total, error

    def _moved_by_all(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the same from a pass over the rows."""
        expansion, objective = self.expansion, self.objective
        assert objective is not None
        total, moved = increments(objective, expansion.base.theta, shift)
        length = np.linalg.norm(shift, axis=1)
        with np.errstate(over="ignore"):
            error = increment_error(objective, expansion, length)
        error += gamma(objective.count + objective.columns + 64) * moved / expansion.rows_after
        error += 4 * ROUNDOFF * float(np.max(expansion.penalty_after)) * length
        return expansion.penalty_after * shift + total / expansion.rows_after, error

    def hessian(self, shift: FloatArray) -> FloatArray:
        """Return the Hessian at Â + δ of the only neighbour."""
        assert self.objective is not None
        rows, theta = self.step.rows, self.expansion.base.theta + shift[0]
        hessian = hessian_at(self.objective, self.expansion, theta)
        curvature = self.expansion.loss.curvature(rows.X @ theta, rows.y)
        weight = self.step.sign * curvature / self.expansion.rows_after
        hessian += (rows.X * weight[:, None]).T @ rows.X
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
        return _shift_error(
            self.expansion, self.step, length, remainder, decay, measured=measured, lowest=lowest
        )


def pull_error(expansion: Expansion) -> float:
    """Return a bound on the error of F̃(Â) of every neighbour."""
    loss, pull = expansion.loss, float(np.linalg.norm(expansion.pull))
    steepest = loss.curvature_bound * expansion.largest_norm**2
    margin = expansion.curved.constants.margin_error(expansion.base.theta)
    rounding = margin * steepest + 64 * ROUNDOFF * (
        expansion.largest_norm * loss.lipschitz(max(expansion.floor, 1e-300)) + pull
    )
    return 4 * rounding / expansion.rows_after


@dataclass(frozen=True, kw_only=True, eq=False)
class _Products:
    """The inner products that a block of steps consists of: scalars a row, never an (n, d) array.

    ``along``     x·a₀
    ``back``      2·B⁻¹x·a₀
    ``probed``    B⁻¹x·v for each direction v of the third-order bound
    ``leverage``  x·B⁻¹x
    ``overlap``   B⁻¹x·B⁻¹x
    """

    along: FloatArray
    back: FloatArray
    probed: FloatArray
    leverage: FloatArray
    overlap: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, rows: EvaluatedRows, space: FloatArray) -> "_Products":
        """Form one n×d×d product, u = Qᵀx with B = Q diag(λ)Qᵀ: its squares hold the rest.

        x·B⁻¹x = Σ u²/λ and ∥B⁻¹x∥² = Σ u²/λ². It goes through ``space``, a few rows at a time, so
        that what the product writes is still in the core's cache when it is read.
        """
        count, few = len(rows), space.shape[2]
        probes, forms = np.empty((len(expansion.probes), count)), np.empty((2, count))
        for start in range(0, count, few):
            part = slice(start, min(start + few, count))
            within = slice(0, part.stop - start)
            turned = np.matmul(expansion.rotation.T, rows.X[part].T, out=space[0][:, within])
            np.matmul(expansion.probes, turned, out=probes[:, part])
            square = np.multiply(turned, turned, out=space[1][:, within])
            np.matmul(expansion.forms, square, out=forms[:, part])
        return cls(
            along=probes[0], back=probes[1], probed=probes[2:], leverage=forms[0], overlap=forms[1]
        )

    def length(self, expansion: Expansion, step: Step) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return ∥δ∥ from ∥a₀∥² + 2s(p·a₀) + s²∥p∥², and where that sum cancels too much."""
        offset = float(expansion.offset @ expansion.offset)
        parts = self.overlap * (step.scale * step.scale)
        square = self.back * step.scale
        square += parts
        square += offset
        parts += offset
        parts *= 1 / _CANCELLATION
        # Squares that underflow count as cancelled.
        cancelled = ~(square > np.maximum(parts, 1e-250, out=parts))
        return np.sqrt(np.maximum(square, 0.0, out=square)), cancelled

    def third_order(self, expansion: Expansion, step: Step, length: FloatArray) -> FloatArray:
        """Return an upper bound on δᵀTδ, by the third-order bound of the expansion."""
        third = expansion.third_bound
        assert third is not None
        offset = float(np.linalg.norm(expansion.offset))
        pull = float(np.linalg.norm(expansion.pull))
        square = length * length
        # Bp = x and Ba₀ = k/m but for the error of the solves; sums round.
        loose = expansion.solve_error + gamma(2 * expansion.columns + 16)
        energy = self.along * step.scale
        energy *= 2
        energy += (1 + loose) * (self.leverage * (step.scale * step.scale))
        energy -= expansion.floor * square
        slack = loose * length
        slack += 4 * loose * offset
        slack *= step.stretch
        energy += slack
        energy += (
            float(expansion.pull @ expansion.offset)
            + (loose * pull + expansion.pull_error) * offset
        )
        # s·B⁻¹x is known to κ(∥δ∥ + ∥a₀∥), for ∣s∣∥x∥ ≤ λ_max(B)(∥δ∥ + ∥a₀∥); so (v·δ)² is off by
        # at most ∥v∥²κ(1 + κ)(5∥δ∥² + 3∥a₀∥²).
        largest = expansion.loss_curvature + float(np.max(expansion.penalty_after))
        kappa = loose * largest * expansion.inverse_norm
        followed = float(np.sum(third.directions**2)) * kappa * (1 + kappa)
        bound = np.maximum(energy, 0.0, out=energy)
        bound *= third.common
        square *= third.rest + 5 * followed
        bound += square
        bound += 3 * followed * offset * offset
        along = self.probed * step.scale
        along += (third.directions.T @ expansion.offset)[:, None]
        bound += np.einsum("ij,ij->j", along, along)
        if step.sign > 0:
            reach = self.along + self.leverage * step.scale
            weight = third.ratio / expansion.rows_after
            bound += weight * (step.rows.curvature * step.rows.norms * reach * reach)
        return bound


def _solve(expansion: Expansion, rows: EvaluatedRows, sign: int, products: _Products) -> Step:
    """Return the scalar s of each changed row, s + w(x·δ) = −sign·f′/m, and what is kept."""
    m = expansion.rows_after
    weight = rows.curvature * (sign / m)
    pull = rows.slope * (sign / m) + weight * products.along
    kept = np.ones(len(rows))
    if sign < 0 and expansion.common_curvature is None:
        rounding = expansion.leverage_error * rows.norm_squares
        heavier = weight * (1 + expansion.curvature_error)
        kept = np.maximum(1 + heavier * (products.leverage + rounding), 0.0)
    scale = -pull / (1 + weight * products.leverage)
    return Step(rows=rows, sign=sign, scale=scale, kept=kept)


def _newton_error(
    expansion: Expansion, step: Step, products: _Products, length: FloatArray
) -> FloatArray:
    """Return the certificate of one Newton step."""
    with np.errstate(over="ignore", invalid="ignore"):
        growth = np.exp(expansion.spread * length)
        if expansion.third_bound is not None:
            remainder = products.third_order(expansion, step, length)
            remainder *= (0.5 * (1 + expansion.curvature_error)) * growth
        elif expansion.knots is not None:
            remainder = expansion.knots.remainder(length)
            if step.sign > 0:
                steepest = expansion.loss.curvature_bound / expansion.rows_after
                remainder += steepest * step.rows.norms**2 * length
        else:
            remainder = np.zeros(len(length))
    return _shift_error(expansion, step, length, remainder, 1 / growth)


def _shift_error(
    expansion: Expansion,
    step: Step,
    length: FloatArray,
    remainder: FloatArray,
    decay: FloatArray,
    *,
    measured: bool = False,
    lowest: FloatArray | float | None = None,
) -> FloatArray:
    """Return the error of shifts that leave ``remainder`` of the tilted gradient.

    ``measured``: ``remainder`` is the whole residual as evaluated, with its own rounding, not what
    a bound leaves after exact linear algebra. ``decay`` is e^(−τ). ``lowest``: the neighbour's
    least curvature where the step ends, if it was measured there; else it is inferred from Â.
    """
    residual = remainder
    if not measured:
        relative, absolute = expansion.linear_rounding
        residual = relative * length
        residual += (16 * ROUNDOFF + expansion.solve_error) * step.stretch
        residual += absolute
        residual += remainder
    if lowest is None:
        lowest = step.curvature(expansion)
    error = certified_error(expansion, residual, length, lowest, decay)
    error += forming_error(expansion, step, length)
    return error


def forming_error(expansion: Expansion, step: Step, length: FloatArray) -> FloatArray:
    """Bound the rounding of forming shifts, their lengths and inner products by way of B⁻¹b."""
    dot, offset = gamma(2 * expansion.columns + 16), float(np.linalg.norm(expansion.offset))
    tiny = UNDERFLOW * (1 + 1 / expansion.floor) if expansion.floor > 0 else UNDERFLOW
    error = (2 * _CANCELLATION * dot) * length
    # (u = Qᵀx errs by γ√d∥x∥, and a length by at most √_CANCELLATION times what its parts do).
    wide = 2 * math.sqrt(_CANCELLATION * expansion.columns)
    error += (wide * dot * expansion.inverse_norm) * step.stretch
    error += 8 * ROUNDOFF * offset + tiny
    return error
