"""Shifts refined until their certificate is below a tolerance.

Three means, each used on the neighbours that the one before left above the tolerance:

1. a third-order step with the tensor K = Σ f‴ x⊗x⊗x (d³ numbers, so for moderate d),
2. Newton steps with the frozen Hessian H'(Â), in blocks: each is a pass of O(n) a row (of the
   Huber hinge of the few rows that are beside a knot, :mod:`expost.neighbouring.knots`),
3. Newton steps with the neighbour's own Hessian, damped, one neighbour at a time.

The tilted gradient is evaluated as a *difference* from Â,

    F̃(Â + δ) = p'∘δ + (1/m) Σ x·[f′(z + x·δ) − f′(z)] + F̃(Â),

with the bracket free of cancellation, so that its rounding is relative to the shift.
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from expost._numerics import gamma, row_blocks, row_norms
from expost.errors import PrecisionWarning
from expost.losses import Logistic
from expost.neighbouring.expansion import Expansion
from expost.neighbouring.newton import solve_small
from expost.notices import warn
from expost.types import FloatArray, IntArray

__all__ = [
    "Block",
    "Neighbourhood",
    "above",
    "frozen_newton",
    "hessian_at",
    "increment_error",
    "increments",
    "refined",
    "third_order",
    "warn_of",
]

# Past this width the tensor (d³) and its products (n·d³) cost more than a Newton pass saves.
_TENSOR_COLUMNS = 128
# Neighbours that share one pass over the data, and what their solves may hold (32 MiB).
_PASS_ROWS = 256
_PASS_ENTRIES = 2**22


class Block(ABC):
    """Some neighbours of one expansion, p of them, as the refinement sees them.

    H' and F̃ are those of each neighbour; vectors and right-hand sides are (p, d).
    """

    @property
    @abstractmethod
    def weight(self) -> FloatArray:
        """(p,) Σ f″∥x∥²/m over the changed rows."""

    @abstractmethod
    def solve(self, right: FloatArray) -> FloatArray:
        """H'(Â)⁻¹ applied to each right-hand side."""

    @abstractmethod
    def apply(self, vectors: FloatArray) -> FloatArray:
        """H'(Â) applied to each vector."""

    @abstractmethod
    def bend(self, vectors: FloatArray) -> FloatArray:
        """Σ sign·f‴x(x·v)²/m over the changed rows (logistic)."""

    @abstractmethod
    def third(self, vectors: FloatArray) -> FloatArray:
        """(p,) an upper bound on vᵀTv."""

    @abstractmethod
    def gradient(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """F̃(Â + δ), and a bound on its rounding error."""

    @abstractmethod
    def hessian(self, shift: FloatArray) -> FloatArray:
        """(d, d) the Hessian at Â + δ of the one neighbour that the block consists of."""

    def steady(self, shift: FloatArray, error: FloatArray) -> FloatArray | float | None:
        """A curvature that is sure anywhere within ``error`` of Â + δ, if one is known."""
        return None

    @abstractmethod
    def error(
        self,
        length: FloatArray,
        remainder: FloatArray,
        decay: FloatArray,
        *,
        measured: bool = False,
        lowest: FloatArray | float | None = None,
    ) -> FloatArray:
        """The error of shifts, as :func:`expost.neighbouring.newton.shift_error` says it."""


class Neighbourhood(ABC):
    """All neighbours of one expansion."""

    expansion: Expansion

    @property
    @abstractmethod
    def width(self) -> int:
        """Entries that a block holds for each neighbour."""

    @abstractmethod
    def newton(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """One Newton step to each neighbour: shifts (p, d), their lengths and errors."""

    @abstractmethod
    def take(self, rows: IntArray) -> Block:
        """Some of them."""

    @property
    def tensor(self) -> FloatArray:
        """K = Σ f‴ x⊗x⊗x over the data (logistic), as a (d, d²) matrix."""
        return self.expansion.linear.tensor


def refined(
    neighbourhood: Neighbourhood, tolerance: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shifts (p, d), their lengths and errors, each brought below the tolerance if it can be."""
    problem = neighbourhood.expansion.problem
    found = shift, distance, error = neighbourhood.newton()
    open_rows = above(distance, error, tolerance)
    smooth = isinstance(problem.loss, Logistic)
    if len(open_rows) and smooth and problem.columns <= _TENSOR_COLUMNS:
        third_order(neighbourhood, open_rows, *found)
        open_rows = above(distance, error, tolerance)
    if len(open_rows):
        frozen_newton(neighbourhood, open_rows, *found, tolerance)
        open_rows = above(distance, error, tolerance)
        if problem.loss.third_ratio is None:
            open_rows = _promising(neighbourhood, open_rows, shift, distance, tolerance)
    for row in open_rows:
        _own_newton(neighbourhood, int(row), *found, tolerance)
    return shift, distance, error


def warn_of(distance: FloatArray, error: FloatArray, tolerance: float, *, stacklevel: int) -> None:
    """Say how many shifts stayed above the tolerance."""
    missed = above(distance, error, tolerance)
    if len(missed):
        warn(
            f"{len(missed)} of {len(distance)} shifts have an error bound above {tolerance:.1g} of"
            " their distance, which float64 does not improve; their error_bound says by how much.",
            PrecisionWarning,
            stacklevel=stacklevel,
        )


def above(distance: FloatArray, error: FloatArray, tolerance: float) -> IntArray:
    """The neighbours whose error is more than that share of their distance."""
    return np.flatnonzero(~(error <= tolerance * distance))


def _adopt(
    rows: IntArray,
    candidate: FloatArray,
    bound: FloatArray,
    shift: FloatArray,
    distance: FloatArray,
    error: FloatArray,
) -> None:
    """Keep each candidate whose bound is the better one."""
    better = bound < error[rows]
    chosen = rows[better]
    shift[chosen] = candidate[better]
    distance[chosen] = row_norms(candidate[better])
    error[chosen] = bound[better]


def third_order(
    neighbourhood: Neighbourhood,
    rows: IntArray,
    shift: FloatArray,
    distance: FloatArray,
    error: FloatArray,
) -> None:
    """δ₂ = −½ H'⁻¹ Σ f‴ x (x·δ₁)²/m, and its certificate (logistic: ∣f⁗∣ ≤ f″).

    With q(v) = vᵀTv the residual that δ = δ₁ + δ₂ leaves is at most
    √(q(δ₁)q(δ₂)) + ½q(δ₂) + (τ/6)e^τ q(δ), plus what the two solves leave.
    """
    expansion = neighbourhood.expansion
    assert expansion.third is not None
    tensor = neighbourhood.tensor / expansion.rows_after
    d = expansion.columns
    for some in row_blocks(len(rows), d * d):
        chosen = rows[some]
        block = neighbourhood.take(chosen)
        first = shift[chosen]
        outer = (first[:, :, None] * first[:, None, :]).reshape(len(chosen), d * d)
        right = -0.5 * (outer @ tensor.T + block.bend(first))
        second = block.solve(right)
        both = first + second
        q1, q2, q = block.third(first), block.third(second), block.third(both)
        length = np.linalg.norm(both, axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            travelled = expansion.spread * length
            remainder = np.sqrt(q1 * q2) + 0.5 * q2 + travelled / 6 * np.exp(travelled) * q
        # What the second solve leaves, and the rounding of its right-hand side.
        left = np.linalg.norm(block.apply(second) - right, axis=1)
        # (The tensor is summed over blocks of 64 rows to 2¹⁵.)
        terms = d * d + 2**15 + expansion.curved.rows / 64 + expansion.changed + 64
        rounding = gamma(terms) * 0.5 * np.einsum("ij,ij->i", first, first)
        remainder = (remainder + left) * (1 + 1e-9) + rounding * float(np.trace(expansion.third))
        steepest = float(np.linalg.norm(expansion.hessian)) + block.weight
        remainder += gamma(4 * d + expansion.changed) * steepest * np.linalg.norm(second, axis=1)
        bound = block.error(length, remainder, np.exp(-travelled))
        _adopt(chosen, both, np.where(np.isnan(bound), np.inf, bound), shift, distance, error)


def increments(
    expansion: Expansion, shift: FloatArray, owner: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Σ x[f′(z + x·δ) − f′(z)] over the data (p, d), and Σ∥x∥∣…∣ (p,).

    Without the rows whose ``owner`` (n,) is the neighbour's number, where that is given.
    """
    problem = expansion.problem
    total, moved = np.zeros_like(shift), np.zeros(len(shift))
    for block in row_blocks(problem.count, max(len(shift), problem.columns)):
        part = problem.held.X[block]
        z = (part @ expansion.base.theta)[:, None]
        growth = problem.loss.increment(z, problem.held.y[block][:, None], part @ shift.T)
        if owner is not None:
            growth = np.where(owner[block][:, None] == np.arange(len(shift)), 0.0, growth)
        total += growth.T @ part
        moved += problem.held.norms[block] @ np.abs(growth)
    return total, moved


def increment_error(expansion: Expansion, length: FloatArray) -> FloatArray:
    """Σ∥x∥·(error of f′(z + x·δ) − f′(z))/m from the errors of z and of x·δ."""
    problem = expansion.problem
    loss = problem.loss
    margin = problem.constants.margin_error(expansion.base.theta)
    step = gamma(problem.columns + 2) * length
    square = float(np.sum(problem.held.norms**2)) / expansion.rows_after
    anywhere = loss.curvature_bound * square * (2 * margin + step)
    if loss.third_ratio is None:
        return anywhere
    # Σ f″∥x∥²/m is the trace of the loss's Hessian; its growth along the step is at most e^τ.
    total = float(expansion.penalty_after.sum())
    trace = max(float(np.trace(expansion.hessian)) - total, 0.0)
    trace += gamma(4 * problem.columns) * (total + trace)
    growth = np.exp(expansion.spread * length)
    here = 1.01 * trace * growth * (step + (expansion.spread * 2 * margin) * length)
    return np.fmin(anywhere, here)


def _certify(
    expansion: Expansion,
    block: Block,
    shift: FloatArray,
    residual: FloatArray,
    lowest: float | None = None,
) -> FloatArray:
    """The bound of measured residuals; ``lowest`` is a curvature measured at Â + δ itself."""
    length = np.linalg.norm(shift, axis=1)
    decay = np.exp(-expansion.spread * length) if lowest is None else np.ones(len(length))
    with np.errstate(over="ignore", invalid="ignore"):
        bound = block.error(length, residual, decay, measured=True, lowest=lowest)
        steady = block.steady(shift, bound)
        if steady is not None:
            bound = block.error(length, residual, decay, measured=True, lowest=steady)
    return np.where(np.isnan(bound), np.inf, bound)


def frozen_newton(
    neighbourhood: Neighbourhood,
    rows: IntArray,
    shift: FloatArray,
    distance: FloatArray,
    error: FloatArray,
    tolerance: float,
) -> None:
    """Steps with H'(Â), which contract while τ is well below 1; each row stops when it is done."""
    together = max(1, min(_PASS_ROWS, _PASS_ENTRIES // neighbourhood.width))
    for start in range(0, len(rows), together):
        chosen = rows[start : start + together]
        current = shift[chosen]
        before = np.full(len(chosen), np.inf)
        for _ in range(12):
            block = neighbourhood.take(chosen)
            gradient, rounding = block.gradient(current)
            size = np.linalg.norm(gradient, axis=1)
            bound = _certify(neighbourhood.expansion, block, current, size + rounding)
            _adopt(chosen, current, bound, shift, distance, error)
            going = ~(error[chosen] <= tolerance * distance[chosen]) & (size < 0.5 * before)
            if not np.any(going):
                break
            moved = current - block.solve(gradient)
            chosen, current, before = chosen[going], moved[going], size[going]


def _promising(
    neighbourhood: Neighbourhood,
    rows: IntArray,
    shift: FloatArray,
    distance: FloatArray,
    tolerance: float,
) -> IntArray:
    """Of a kinked loss those whose certificate would be met if rounding were all that is left.

    No step mends what the residual of the base costs, and none finds more curvature.
    """
    kept, together = [], max(1, min(_PASS_ROWS, _PASS_ENTRIES // neighbourhood.width))
    for start in range(0, len(rows), together):
        chosen = rows[start : start + together]
        block = neighbourhood.take(chosen)
        _, rounding = block.gradient(shift[chosen])
        bound = _certify(neighbourhood.expansion, block, shift[chosen], rounding)
        kept.append(chosen[bound <= tolerance * distance[chosen]])
    return np.concatenate(kept) if kept else rows


def _own_newton(
    neighbourhood: Neighbourhood,
    row: int,
    shift: FloatArray,
    distance: FloatArray,
    error: FloatArray,
    tolerance: float,
) -> None:
    """Damped Newton on F̃ with the Hessian where it stands: sure to converge, O(nd²) a step."""
    expansion, chosen = neighbourhood.expansion, np.array([row])
    block = neighbourhood.take(chosen)
    current = shift[chosen]
    gradient, rounding = block.gradient(current)
    for _ in range(60):
        size = float(np.linalg.norm(gradient))
        hessian = block.hessian(current)
        lowest = _lowest(expansion, hessian, expansion.base.theta + current[0])
        bound = _certify(expansion, block, current, np.array([size]) + rounding, lowest)
        _adopt(chosen, current, bound, shift, distance, error)
        if error[row] <= tolerance * distance[row] or size <= float(rounding[0]) / 8:
            return
        direction = solve_small(hessian[None], gradient)[0]
        if not np.all(np.isfinite(direction)):
            return
        along = abs(float(gradient[0] @ direction))
        damping = 1.0
        while True:
            trial = current - damping * direction
            there, rounding_there = block.gradient(trial)
            # The slope along the step rises through 0 at its minimum: do not go far beyond.
            if float(there[0] @ direction) >= -0.5 * along:
                break
            damping /= 2
            if damping < 2**-40:
                return
        current, gradient, rounding = trial, there, rounding_there


def hessian_at(
    expansion: Expansion, theta: FloatArray, present: NDArray[np.bool_] | None = None
) -> FloatArray:
    """P' + Σ f″x xᵀ/m at θ over the data, or over the rows that are ``present``."""
    problem, m = expansion.problem, expansion.rows_after
    hessian = np.diag(expansion.penalty_after).copy()
    for block in problem.held.blocks():
        part = problem.held.X[block]
        weight = problem.loss.curvature(part @ theta, problem.held.y[block]) / m
        if present is not None:
            weight = weight * present[block]
        hessian += (part * weight[:, None]).T @ part
    return hessian


def _lowest(expansion: Expansion, hessian: FloatArray, theta: FloatArray) -> float | None:
    """A lower bound on the least eigenvalue of a computed Hessian; None where none is needed."""
    problem, ratio = expansion.problem, expansion.problem.loss.third_ratio
    if ratio is None:
        return None
    rounding = gamma(problem.count + 16 * len(hessian)) * float(np.linalg.norm(hessian))
    # f″ at predictors that are off by the rounding of θ, of the shift and of the product.
    margin = 2 * problem.constants.margin_error(theta) * expansion.largest_norm
    rounding += float(np.expm1(min(ratio * margin, 700.0))) * float(np.trace(hessian))
    return max(expansion.floor, float(np.linalg.eigvalsh(hessian)[0]) - 4 * rounding)
