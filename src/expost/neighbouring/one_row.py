"""Neighbours that change one row, as the refinement ladder sees them."""

from dataclasses import dataclass

import numpy as np

from expost._numerics import ROUNDOFF, gamma, solve_small
from expost.glm import Objective
from expost.losses import Logistic
from expost.neighbouring.change import EvaluatedRows
from expost.neighbouring.expansion import Expansion
from expost.neighbouring.newton import NewtonSteps, Step, shift_error
from expost.neighbouring.refine import (
    Neighbourhood,
    Refinement,
    StepBlock,
    hessian_at,
    increment_error,
    increments,
    moved_by_kinks,
)
from expost.types import FloatArray, IntArray

__all__ = ["OneRow"]


@dataclass(frozen=True, kw_only=True, eq=False)
class OneRow(Neighbourhood):
    """Neighbours that change one row each, with a Newton step to each of them."""

    step: Step

    @classmethod
    def of(
        cls,
        expansion: Expansion,
        rows: EvaluatedRows,
        *,
        objective: Objective | None = None,
        refinement: Refinement | None = None,
    ) -> "OneRow":
        """Take one Newton step to the neighbour of each of ``rows``."""
        steps = NewtonSteps.of(expansion, rows)
        return cls(
            expansion=expansion,
            shifts=steps.shifts,
            distance=steps.distance,
            error=steps.error,
            refinement=refinement or Refinement(),
            objective=objective,
            step=steps.step,
        )

    @property
    def width(self) -> int:
        """Entries that a block holds for each neighbour."""
        return self.expansion.columns

    def take(self, index: IntArray) -> "_OneRowBlock":
        """Return some of the neighbours."""
        return _OneRowBlock(
            expansion=self.expansion,
            step=self.step.take(index),
            refinement=self.refinement,
            objective=self.objective,
        )

    def pull_bound(self, index: IntArray) -> tuple[FloatArray, float]:
        """Return ∥F̃(Â)∥ of some neighbours from above, and a bound on the error of F̃(Â)."""
        expansion, rows = self.expansion, self.step.rows.take(index)
        loss, pull = expansion.loss, float(np.linalg.norm(expansion.pull))
        size = pull + np.abs(rows.slope) * rows.norms / expansion.rows_after
        steepest = loss.curvature_bound * expansion.largest_norm**2
        margin = expansion.curved.constants.margin_error(expansion.base.theta)
        rounding = margin * steepest + 64 * ROUNDOFF * (
            expansion.largest_norm * loss.lipschitz(max(expansion.floor, 1e-300)) + pull
        )
        return size, 4 * rounding / expansion.rows_after


@dataclass(frozen=True, kw_only=True, eq=False)
class _OneRowBlock(StepBlock):
    """Some of the neighbours that change one row."""

    expansion: Expansion
    step: Step
    refinement: Refinement
    objective: Objective | None

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
        image = vectors @ self.expansion.hessian
        image += (self._row_weight * self._along(vectors))[:, None] * self.step.rows.X
        return image

    def third_derivative_sum(self, vectors: FloatArray) -> FloatArray:
        loss, rows = self.expansion.loss, self.step.rows
        assert isinstance(loss, Logistic)
        third = loss.third(rows.z, rows.y) * self.step.sign / self.expansion.rows_after
        total: FloatArray = (third * self._along(vectors) ** 2)[:, None] * rows.X
        return total

    def third_order_form(self, vectors: FloatArray) -> FloatArray:
        expansion, rows = self.expansion, self.step.rows
        assert expansion.third is not None
        form: FloatArray = np.einsum("ij,ij->i", vectors @ expansion.third, vectors)
        if self.step.sign > 0:
            weight = rows.curvature * rows.norms / expansion.rows_after
            form += weight * self._along(vectors) ** 2
        return form * (1 + expansion.curvature_error)

    def gradient(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
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
        assert self.objective is not None
        rows, theta = self.step.rows, self.expansion.base.theta + shift[0]
        hessian = hessian_at(self.objective, self.expansion, theta)
        curvature = self.expansion.loss.curvature(rows.X @ theta, rows.y)
        weight = self.step.sign * curvature / self.expansion.rows_after
        hessian += (rows.X * weight[:, None]).T @ rows.X
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
        return shift_error(
            self.expansion, self.step, length, remainder, decay, measured=measured, lowest=lowest
        )
