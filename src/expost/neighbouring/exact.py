"""Neighbours that change a row or two, refined until their certificate is below a tolerance."""

from dataclasses import dataclass

import numpy as np

from expost._numerics import ROUNDOFF, gamma
from expost.losses import HuberHinge, Logistic
from expost.neighbouring.expansion import Change, Expansion, Step
from expost.neighbouring.knots import BesideKnots, energies
from expost.neighbouring.newton import newton_shifts, shift_error, solve_small
from expost.neighbouring.refine import (
    Block,
    Neighbourhood,
    above,
    frozen_newton,
    hessian_at,
    increment_error,
    increments,
    refined,
    third_order,
    warn_of,
)
from expost.neighbouring.shifts import Shifts
from expost.types import FloatArray, IntArray

__all__ = ["refine", "refine_steps"]


def refine(
    expansion: Expansion, tolerance: float, *, warn: bool = True
) -> tuple[Shifts, FloatArray, FloatArray]:
    """Shifts with error_bound ≤ tolerance·distance wherever float64 can prove it."""
    shift, distance, error = refined(_Changed.of(expansion, tolerance), tolerance)
    if warn:
        warn_of(distance, error, tolerance, stacklevel=5)
    return Shifts.dense(shift), distance, error


def refine_steps(
    expansion: Expansion,
    step: Step,
    found: tuple[Shifts, FloatArray, FloatArray],
    *,
    tolerance: float,
    tensor: FloatArray | None,
    beside: BesideKnots | None,
) -> tuple[Shifts, FloatArray, FloatArray]:
    """Newton steps to some neighbours, improved by what is known of all rows together.

    ``found``      the shifts, their lengths and errors.
    ``tolerance``  the share of a distance that an error may be without being improved.
    ``tensor``     Σ f‴ x⊗x⊗x, for one step of third order;
    ``beside``     the rows beside a knot, for Newton steps with the frozen Hessian.
    """
    rows = above(found[1], found[2], tolerance)
    if not len(rows) or (tensor is None and beside is None):
        return found
    shift, distance, error = arrays = (found[0].all(), found[1], found[2])
    near = _Changed(expansion=expansion, step=step, found=arrays, third=tensor, beside=beside)
    if tensor is not None:
        third_order(near, rows, *arrays)
    if beside is not None:
        frozen_newton(near, rows, *arrays, tolerance)
    return Shifts.dense(shift), distance, error


@dataclass(frozen=True, kw_only=True, eq=False)
class _Changed(Neighbourhood):
    """Neighbours by the rows that enter or leave."""

    expansion: Expansion
    step: Step
    found: tuple[FloatArray, FloatArray, FloatArray]
    third: FloatArray | None = None
    beside: BesideKnots | None = None

    @classmethod
    def of(cls, expansion: Expansion, tolerance: float) -> "_Changed":
        step, shifts, distance, error = newton_shifts(expansion)
        found, beside = (shifts.all(), distance, error), None
        loose = above(distance, error, tolerance)
        if isinstance(expansion.loss, HuberHinge) and len(loose):
            # Refined steps are a little longer, some of them.
            reach = 1.5 * float(np.max(energies(expansion, found[0][loose])))
            if reach < np.inf:
                beside = BesideKnots.of(expansion.problem, expansion, reach)
                expansion = beside.steadied(expansion)
        return cls(expansion=expansion, step=step, found=found, beside=beside)

    @property
    def width(self) -> int:
        return self.expansion.columns * self.expansion.changed

    @property
    def tensor(self) -> FloatArray:
        return super().tensor if self.third is None else self.third

    def newton(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.found

    def take(self, rows: IntArray) -> "_ChangedRows":
        step = self.step.take(rows)
        return _ChangedRows(expansion=self.expansion, step=step, beside=self.beside)


@dataclass(frozen=True, kw_only=True, eq=False)
class _ChangedRows(Block):
    """Some of them."""

    expansion: Expansion
    step: Step
    beside: BesideKnots | None

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
        loss = self.expansion.loss
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
        expansion = self.expansion
        m, loss, d = expansion.rows_after, expansion.loss, expansion.columns
        total, uncertain = self._moved(shift)
        length = np.linalg.norm(shift, axis=1)
        margin = expansion.curved.constants.margin_error(expansion.base.theta)
        moved, pulls = np.zeros(len(shift)), np.zeros(len(shift))
        for change in self.changes:
            along = np.einsum("ij,ij->i", change.X, shift)
            growth = loss.increment(change.z, change.y, along)
            total += (change.sign * (growth + change.slope) / m)[:, None] * change.X
            size = np.abs(change.slope) + (0 if loss.is_classification else np.abs(change.y))
            moved += np.abs(growth) * change.norms
            pulls += size * change.norms
            # The changed row's own predictor and step, through a slope of at most sup f″.
            lost = 2 * margin + gamma(d + 2) * length
            uncertain += loss.curvature_bound * change.norms**2 / m * lost
        rounding = (
            gamma(d + 64) * moved / m
            + uncertain
            + 64 * ROUNDOFF * (pulls / m + float(np.linalg.norm(expansion.pull)))
        )
        return total - expansion.pull, 1.01 * rounding

    def _moved(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """p'∘δ + Σ x[f′(z + x·δ) − f′(z)]/m over the data, and a bound on its error."""
        if self.beside is None:
            return self._moved_by_all(shift)
        expansion, length = self.expansion, np.linalg.norm(shift, axis=1)
        bends, error = self.beside.bends(expansion, shift)
        total = shift @ expansion.hessian + bends / expansion.rows_after
        steepest = float(np.linalg.norm(expansion.hessian))
        error = error / expansion.rows_after
        error += (expansion.hessian_error + gamma(expansion.columns + 8) * steepest) * length
        far = np.flatnonzero(~(error < np.inf))
        if len(far) and expansion.rows is not None:
            total[far], error[far] = self._moved_by_all(shift[far])
        return total, error

    def _moved_by_all(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same by a pass over the rows."""
        expansion, problem = self.expansion, self.expansion.problem
        total, moved = increments(expansion, shift)
        length = np.linalg.norm(shift, axis=1)
        with np.errstate(over="ignore"):
            error = increment_error(expansion, length)
        error += gamma(problem.count + problem.columns + 64) * moved / expansion.rows_after
        error += 4 * ROUNDOFF * float(np.max(expansion.penalty_after)) * length
        return expansion.penalty_after * shift + total / expansion.rows_after, error

    def hessian(self, shift: FloatArray) -> FloatArray:
        problem, m = self.expansion.problem, self.expansion.rows_after
        theta = self.expansion.base.theta + shift[0]
        hessian = hessian_at(self.expansion, theta)
        for change in self.changes:
            weight = change.sign * problem.loss.curvature(change.X @ theta, change.y) / m
            hessian += (change.X * weight[:, None]).T @ change.X
        return hessian

    def steady(self, shift: FloatArray, error: FloatArray) -> FloatArray | float | None:
        if self.beside is None:
            return None
        return self.beside.curvature_at(self.expansion, shift, error)

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
