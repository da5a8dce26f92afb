"""Neighbours that change a row or two, refined until their certificate is below a tolerance."""

from dataclasses import dataclass

import numpy as np

from expost._expansion import Change, Expansion, Step
from expost._newton import newton_shifts, shift_error, solve_small
from expost._numerics import ROUNDOFF, gamma
from expost._refinement import (
    Block,
    Neighbourhood,
    hessian_at,
    increment_error,
    increments,
    refined,
    warn_of,
)
from expost._shifts import Shifts
from expost.losses import Logistic
from expost.types import FloatArray, IntArray

__all__ = ["refine"]


def refine(
    expansion: Expansion, tolerance: float, *, warn: bool = True
) -> tuple[Shifts, FloatArray, FloatArray]:
    """Shifts with error_bound ≤ tolerance·distance wherever float64 can prove it."""
    shift, distance, error = refined(_Changed.of(expansion), tolerance)
    if warn:
        warn_of(distance, error, tolerance, stacklevel=5)
    return Shifts.dense(shift), distance, error


@dataclass(frozen=True, kw_only=True, eq=False)
class _Changed(Neighbourhood):
    """Neighbours by the rows that enter or leave."""

    expansion: Expansion
    step: Step
    found: tuple[FloatArray, FloatArray, FloatArray]

    @classmethod
    def of(cls, expansion: Expansion) -> "_Changed":
        step, shifts, distance, error = newton_shifts(expansion)
        return cls(expansion=expansion, step=step, found=(shifts.all(), distance, error))

    @property
    def width(self) -> int:
        return self.expansion.problem.columns * self.expansion.changed

    def newton(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.found

    def take(self, rows: IntArray) -> "_ChangedRows":
        return _ChangedRows(expansion=self.expansion, step=self.step.take(rows))


@dataclass(frozen=True, kw_only=True, eq=False)
class _ChangedRows(Block):
    """Some of them."""

    expansion: Expansion
    step: Step

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.step.changes

    @property
    def weight(self) -> FloatArray:
        total = sum(change.curvature * change.norms**2 for change in self.changes)
        return np.asarray(total / self.expansion.rows_after)

    def solve(self, right: FloatArray) -> FloatArray:
        """By Woodbury's formula for the changed rows."""
        changes, inverse = self.changes, self.expansion.inverse
        solved = right @ inverse
        images = [change.X @ inverse for change in changes]
        weights = [change.sign * change.curvature / self.expansion.rows_after for change in changes]
        size = len(changes)
        system = np.empty((len(right), size, size))
        against = np.empty((len(right), size))
        for a in range(size):
            against[:, a] = weights[a] * np.einsum("ij,ij->i", changes[a].X, solved)
            for b in range(size):
                cross = np.einsum("ij,ij->i", changes[a].X, images[b])
                system[:, a, b] = (a == b) + weights[a] * cross
        parts = solve_small(system, against)
        for a in range(size):
            solved -= parts[:, a, None] * images[a]
        return solved

    def apply(self, vectors: FloatArray) -> FloatArray:
        image = vectors @ self.expansion.hessian
        for change in self.changes:
            weight = change.sign * change.curvature / self.expansion.rows_after
            image += (weight * np.einsum("ij,ij->i", change.X, vectors))[:, None] * change.X
        return image

    def bend(self, vectors: FloatArray) -> FloatArray:
        loss = self.expansion.problem.loss
        assert isinstance(loss, Logistic)
        total = np.zeros_like(vectors)
        for change in self.changes:
            third = loss.third(change.z, change.y) * change.sign / self.expansion.rows_after
            total += (third * np.einsum("ij,ij->i", change.X, vectors) ** 2)[:, None] * change.X
        return total

    def third(self, vectors: FloatArray) -> FloatArray:
        assert self.expansion.third is not None
        form: FloatArray = np.einsum("ij,ij->i", vectors @ self.expansion.third, vectors)
        for change in self.changes:
            if change.sign > 0:
                weight = change.curvature * change.norms / self.expansion.rows_after
                form += weight * np.einsum("ij,ij->i", change.X, vectors) ** 2
        return form * (1 + self.expansion.curvature_error)

    def gradient(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        expansion, problem = self.expansion, self.expansion.problem
        m, loss, d = expansion.rows_after, problem.loss, problem.columns
        total, moved = increments(expansion, shift)
        length = np.linalg.norm(shift, axis=1)
        pulls = np.zeros(len(shift))
        uncertain = np.zeros(len(shift))
        for change in self.changes:
            along = np.einsum("ij,ij->i", change.X, shift)
            growth = loss.increment(change.z, change.y, along)
            total += (change.sign * (growth + change.slope))[:, None] * change.X
            size = np.abs(change.slope) + (0 if loss.is_classification else np.abs(change.y))
            moved += np.abs(growth) * change.norms
            pulls += size * change.norms
            # The changed row's own predictor and step, through a slope of at most sup f″.
            lost = 2 * problem.margin_error(expansion.base.theta) + gamma(d + 2) * length
            uncertain += loss.curvature_bound * change.norms**2 / m * lost
        gradient = expansion.penalty_after * shift + total / m - expansion.pull
        with np.errstate(over="ignore"):
            uncertain += increment_error(expansion, length)
        summing = gamma(problem.rows + d + 64)
        rounding = (
            summing * moved / m
            + uncertain
            + 64 * ROUNDOFF * (pulls / m + float(np.linalg.norm(expansion.pull)))
            + 4 * ROUNDOFF * float(np.max(expansion.penalty_after)) * length
        )
        return gradient, 1.01 * rounding

    def hessian(self, shift: FloatArray) -> FloatArray:
        problem, m = self.expansion.problem, self.expansion.rows_after
        theta = self.expansion.base.theta + shift[0]
        hessian = hessian_at(self.expansion, theta)
        for change in self.changes:
            weight = change.sign * problem.loss.curvature(change.X @ theta, change.y) / m
            hessian += (change.X * weight[:, None]).T @ change.X
        return hessian

    def error(
        self,
        length: FloatArray,
        remainder: FloatArray,
        decay: FloatArray,
        *,
        measured: bool = False,
        lowest: float | None = None,
    ) -> FloatArray:
        return shift_error(
            self.expansion, self.step, length, remainder, decay, measured=measured, lowest=lowest
        )
