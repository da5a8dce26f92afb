"""Neighbours that change one row: a Newton step to each from the expansion, with its certificate.

A block of steps is worked out from a few inner products a row (:class:`_Products`); the (n, d)
array of shifts is never held. :func:`_shift_error` turns what a step leaves of the gradient into a
bound on the error of the shift, for this step and for those of :mod:`expost.neighbouring.refine`.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from expost._numerics import ROUNDOFF, cached_rows, gamma, row_blocks, row_norms, solve_small
from expost.glm import Objective
from expost.losses import Logistic
from expost.neighbouring.certificate import certified_error, proved
from expost.neighbouring.change import EvaluatedRows
from expost.neighbouring.expansion import CANCELLATION, Expansion, Linear
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

__all__ = ["OneRow", "pull_error"]

# Rows whose scalars are worked out together: a dozen vectors of them stay in the core's cache.
_TOGETHER = 2**14


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """The scalars of Newton steps δ = a₀ + s·B⁻¹x, one for each changed row.

    Attributes
    ----------
    sign : int
        +1 where the row enters, −1 where it leaves.
    scale : FloatArray
        s.
    kept : FloatArray | None
        A lower bound on 1 − ∣w∣·xᵀB⁻¹x of a row that leaves: since
        H' ≽ B − ∣w∣x xᵀ ≽ (1 − ∣w∣xᵀB⁻¹x)·B, that share of B's curvature is kept. None where one
        curvature serves all neighbours, or the row enters.
    """

    rows: EvaluatedRows
    sign: int
    scale: FloatArray
    kept: FloatArray | None

    @cached_property
    def stretch(self) -> FloatArray:
        """∣s∣∥x∥."""
        return np.abs(self.scale) * self.rows.norms

    def take(self, index: slice | IntArray) -> "Step":
        """Return the steps to some of the neighbours; of a slice, views."""
        return Step(
            rows=self.rows.take(index),
            sign=self.sign,
            scale=self.scale[index],
            kept=None if self.kept is None else self.kept[index],
        )

    def curvature(self, expansion: Expansion) -> FloatArray | float:
        """Return a lower bound on each neighbour's least Hessian eigenvalue at Â."""
        if expansion.common_curvature is not None:
            return expansion.common_curvature
        least: FloatArray | float = expansion.lowest
        if self.sign < 0:
            weight = (1 + expansion.curvature_error) / expansion.rows_after
            least = least - weight * self.rows.curvature * self.rows.norm_squares
        if self.kept is not None:
            shared = self.kept * (expansion.lowest + expansion.slack) - expansion.slack
            least = np.maximum(least, shared)
        return np.maximum(expansion.floor, least)


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
        count = len(rows)
        scale, distance, error = np.empty((3, count))
        sign = 1 if expansion.entering else -1
        kept = None
        if sign < 0 and expansion.common_curvature is None:
            kept = np.empty(count)
        shifts = Shifts(constant=expansion.offset, scale=scale, X=rows.X, matrix=expansion.inverse)
        steps = Step(rows=rows, sign=sign, scale=scale, kept=kept)
        few = min(cached_rows(expansion.columns), _TOGETHER)
        space = np.empty((expansion.columns, few))
        together = _TOGETHER // few * few
        for start in range(0, count, together):
            where = slice(start, min(start + together, count))
            step = steps.take(where)
            products = _Products.of(expansion, step.rows, space)
            _solve(expansion, step, products)
            length = distance[where]
            cancelled = products.length(expansion, step, length)
            for some in row_blocks(len(cancelled), expansion.columns):
                chosen = cancelled[some]
                length[chosen] = row_norms(shifts.block(start + chosen))
            error[where] = _newton_error(expansion, step, products, length)
        near = cls(
            expansion=expansion,
            step=steps,
            refinement=refinement or Refinement(),
            objective=objective,
        )
        return near, Steps(shifts=shifts, distance=distance, error=proved(error))

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

    Attributes
    ----------
    along : FloatArray
        x·a₀.
    back : FloatArray
        2·B⁻¹x·a₀.
    probed : FloatArray
        B⁻¹x·v for each direction v of the third-order bound.
    leverage : FloatArray
        x·B⁻¹x.
    overlap : FloatArray
        B⁻¹x·B⁻¹x.
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
        count, few = len(rows), space.shape[1]
        probes, forms = np.empty((len(expansion.probes), count)), np.empty((2, count))
        for start in range(0, count, few):
            part = slice(start, min(start + few, count))
            within = slice(0, part.stop - start)
            turned = np.matmul(expansion.rotation.T, rows.X[part].T, out=space[:, within])
            np.matmul(expansion.probes, turned, out=probes[:, part])
            np.matmul(expansion.forms, np.square(turned, out=turned), out=forms[:, part])
        return cls(
            along=probes[0], back=probes[1], probed=probes[2:], leverage=forms[0], overlap=forms[1]
        )

    def length(self, expansion: Expansion, step: Step, out: FloatArray) -> IntArray:
        """Write ∥δ∥ from ∥a₀∥² + 2s(p·a₀) + s²∥p∥², p = B⁻¹x; return where that cancels too much.

        That is where ∥a₀∥² + s²∥p∥² exceeds 100∥δ∥², or squares underflow. With s∥p∥ ≤ ∥δ∥ + ∥a₀∥
        it is at most 73∥δ∥² where ∥a₀∥² ≤ 30∥δ∥²: of most blocks the shortest step rules it out.
        """
        offset = float(expansion.offset @ expansion.offset)
        square = np.multiply(self.overlap, step.scale, out=out)
        square += self.back
        square *= step.scale
        square += offset
        cancelled = np.empty(0, dtype=np.intp)
        if not square.min() > max(offset / 30, 1e-250):
            parts = self.overlap * (step.scale * step.scale)
            parts += offset
            parts *= 1 / CANCELLATION
            cancelled = np.flatnonzero(~(square > np.maximum(parts, 1e-250, out=parts)))
            np.maximum(square, 0.0, out=square)
        np.sqrt(square, out=out)
        return cancelled

    def residual(
        self,
        expansion: Expansion,
        step: Step,
        length: FloatArray,
        lowest: FloatArray | float,
    ) -> FloatArray:
        """Return an upper bound on ½(1 + ε)δᵀTδ, and what rounding adds to the residual."""
        terms, scale = expansion.third_order_terms, step.scale
        per_length, per_stretch, alone = _rounding(expansion, lowest)
        reach = self.leverage * scale
        reach += self.along
        bound = reach + self.along
        bound *= scale
        bound *= terms.form
        part = terms.quadratic * length
        part += per_length
        part *= length
        bound += part
        np.multiply(length, terms.both, out=part)
        part += terms.stretch + per_stretch
        part *= step.stretch
        bound += part
        bound += terms.alone + alone
        for probed, along in zip(self.probed, terms.along, strict=True):
            np.multiply(probed, scale, out=part)
            part += along
            part *= part
            bound += part
        if step.sign > 0:
            assert expansion.third_bound is not None
            weight = expansion.third_bound.ratio / expansion.rows_after
            weight *= 0.5 * (1 + expansion.curvature_error)
            bound += weight * (step.rows.curvature * step.rows.norms * reach * reach)
        return bound


def _solve(expansion: Expansion, step: Step, products: _Products) -> None:
    """Write the scalar s of each changed row, s + w(x·δ) = −sign·f′/m, and what is kept.

    Times m: s = −sign·(f′ + f″(x·a₀))/(m + sign·f″(x·B⁻¹x)).
    """
    rows, m = step.rows, expansion.rows_after
    pull = rows.curvature * products.along
    pull += rows.slope
    system = rows.curvature * products.leverage
    if step.sign < 0:
        np.subtract(m, system, out=system)
    else:
        np.subtract(-m, system, out=system)
    np.divide(pull, system, out=step.scale)
    if step.kept is not None:
        heaviest = products.leverage + expansion.leverage_error * rows.norm_squares
        heaviest *= rows.curvature * ((1 + expansion.curvature_error) / m)
        np.maximum(1 - heaviest, 0.0, out=step.kept)


def _newton_error(
    expansion: Expansion, step: Step, products: _Products, length: FloatArray
) -> FloatArray:
    """Return the certificate of one Newton step."""
    with np.errstate(over="ignore", invalid="ignore"):
        if expansion.third_bound is not None:
            growth = np.exp(expansion.spread * length)
            lowest = step.curvature(expansion)
            residual = products.residual(expansion, step, length, lowest)
            # (What rounding leaves does not grow along the step, but may be taken to.)
            residual *= growth
            return certified_error(expansion, residual, length, lowest, 1 / growth)
        remainder = np.zeros(len(length))
        if expansion.knots is not None:
            remainder = expansion.knots.remainder(length)
            if step.sign > 0:
                steepest = expansion.loss.curvature_bound / expansion.rows_after
                remainder += steepest * step.rows.norms**2 * length
    return _shift_error(expansion, step, length, remainder, np.ones(len(length)))


def _rounding(
    expansion: Expansion, lowest: FloatArray | float, *, measured: bool = False
) -> tuple[FloatArray | float, FloatArray | float, FloatArray | float]:
    """Return what rounding adds to a residual: a, b, c of a∥δ∥ + b∣s∣∥x∥ + c.

    An error e of the shift itself counts as a residual of ``lowest``·e, because no bound on an
    error divides its residual by more than ``lowest`` (:func:`point_error`).
    """
    formed, solved = expansion.shift_rounding, expansion.linear_rounding
    if measured:
        solved = Linear(0.0, 0.0, 0.0)
    return (
        solved.per_length + lowest * formed.per_length,
        solved.per_stretch + lowest * formed.per_stretch,
        solved.alone + lowest * formed.alone,
    )


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
    if lowest is None:
        lowest = step.curvature(expansion)
    per_length, per_stretch, alone = _rounding(expansion, lowest, measured=measured)
    residual = per_length * length
    residual += per_stretch * step.stretch
    residual += alone
    residual += remainder
    return certified_error(expansion, residual, length, lowest, decay)
