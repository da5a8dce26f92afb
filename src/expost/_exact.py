"""Shifts refined until their certificate is below a tolerance.

Three means, each used on the rows that the one before left above the tolerance:

1. a third-order step with the tensor K = Σ f‴ x⊗x⊗x (d³ numbers, so for moderate d),
2. Newton steps with the frozen Hessian H'(Â), in blocks: each is a pass of O(n) a row,
3. Newton steps with the row's own Hessian, damped, one row at a time.

The tilted gradient is evaluated as a *difference* from Â,

    F̃(Â + δ) = p'∘δ + (1/m) Σ x·[f′(z + x·δ) − f′(z)] + F̃(Â),

with the bracket free of cancellation, so that its rounding is relative to the shift.
"""

import warnings

import numpy as np

from expost._expansion import Change, Expansion, Shifts, Step
from expost._newton import newton_shifts, shift_error, solve_small
from expost._numerics import ROUNDOFF, gamma, row_blocks, row_norms
from expost.errors import PrecisionWarning
from expost.losses import Logistic
from expost.types import FloatArray, IntArray

__all__ = ["refine"]

# Past this width the tensor (d³) and its products (n·d³) cost more than a Newton pass saves.
_TENSOR_COLUMNS = 128
# Neighbours that share one pass over the data.
_PASS_ROWS = 256


def refine(
    expansion: Expansion, tolerance: float, *, warn: bool = True
) -> tuple[Shifts, FloatArray, FloatArray]:
    """Shifts with error_bound ≤ tolerance·distance wherever float64 can prove it."""
    step, newton, distance, error = newton_shifts(expansion)
    shift = newton.all()
    open_rows = _above(distance, error, tolerance)
    smooth = isinstance(expansion.problem.loss, Logistic)
    if len(open_rows) and smooth and expansion.problem.columns <= _TENSOR_COLUMNS:
        _third_order(expansion, open_rows, step, shift, distance, error)
        open_rows = _above(distance, error, tolerance)
    if len(open_rows):
        _frozen_newton(expansion, open_rows, step, shift, distance, error, tolerance)
        open_rows = _above(distance, error, tolerance)
    for row in open_rows:
        _own_newton(expansion, int(row), step, shift, distance, error, tolerance)
    missed = _above(distance, error, tolerance)
    if warn and len(missed):
        warnings.warn(
            f"{len(missed)} of {len(distance)} shifts have an error bound above {tolerance:.1g} of"
            " their distance, which float64 does not improve; their error_bound says by how much.",
            PrecisionWarning,
            stacklevel=4,
        )
    return Shifts.dense(shift), distance, error


def _above(distance: FloatArray, error: FloatArray, tolerance: float) -> IntArray:
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


def _solve(expansion: Expansion, changes: tuple[Change, ...], right: FloatArray) -> FloatArray:
    """H'(Â)⁻¹ applied to each row of ``right``, by Woodbury's formula for the changed rows."""
    solved = right @ expansion.inverse
    images = [change.X @ expansion.inverse for change in changes]
    weights = [change.sign * change.curvature / expansion.rows_after for change in changes]
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


def _apply(expansion: Expansion, changes: tuple[Change, ...], vectors: FloatArray) -> FloatArray:
    """H'(Â) applied to each row of ``vectors``."""
    image = vectors @ expansion.hessian
    for change in changes:
        weight = change.sign * change.curvature / expansion.rows_after
        image += (weight * np.einsum("ij,ij->i", change.X, vectors))[:, None] * change.X
    return image


def _third_order(
    expansion: Expansion,
    rows: IntArray,
    step: Step,
    shift: FloatArray,
    distance: FloatArray,
    error: FloatArray,
) -> None:
    """δ₂ = −½ H'⁻¹ Σ f‴ x (x·δ₁)²/m, and its certificate (logistic: ∣f⁗∣ ≤ f″).

    With q(v) = vᵀTv the residual that δ = δ₁ + δ₂ leaves is at most
    √(q(δ₁)q(δ₂)) + ½q(δ₂) + (τ/6)e^τ q(δ), plus what the two solves leave.
    """
    problem, m = expansion.problem, expansion.rows_after
    assert isinstance(problem.loss, Logistic)
    assert expansion.third is not None
    tensor = _tensor(expansion)
    d = problem.columns
    for block in row_blocks(len(rows), d * d):
        chosen = rows[block]
        part = step.take(chosen)
        changes = part.changes
        first = shift[chosen]
        outer = (first[:, :, None] * first[:, None, :]).reshape(len(chosen), d * d)
        right = outer @ tensor.T
        entered = np.zeros((3, len(chosen)))
        for change in changes:
            third = problem.loss.third(change.z, change.y) * change.sign / m
            right += (third * np.einsum("ij,ij->i", change.X, first) ** 2)[:, None] * change.X
        right *= -0.5
        second = _solve(expansion, changes, right)
        both = first + second
        for change in changes:
            if change.sign > 0:
                weight = change.curvature * change.norms / m
                for k, vectors in enumerate((first, second, both)):
                    entered[k] += weight * np.einsum("ij,ij->i", change.X, vectors) ** 2
        q1, q2, q = (
            (np.einsum("ij,ij->i", vectors @ expansion.third, vectors) + entered[k])
            * (1 + expansion.curvature_error)
            for k, vectors in enumerate((first, second, both))
        )
        length = np.linalg.norm(both, axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            travelled = expansion.spread * length
            remainder = np.sqrt(q1 * q2) + 0.5 * q2 + travelled / 6 * np.exp(travelled) * q
        # What the second solve leaves, and the rounding of its right-hand side.
        left = np.linalg.norm(_apply(expansion, changes, second) - right, axis=1)
        rounding = gamma(d * d + 2**18) * 0.5 * np.einsum("ij,ij->i", first, first)
        remainder = (remainder + left) * (1 + 1e-9) + rounding * float(np.trace(expansion.third))
        steepest = float(np.linalg.norm(expansion.hessian)) + sum(
            change.curvature * change.norms**2 / m for change in changes
        )
        remainder += gamma(4 * d) * steepest * np.linalg.norm(second, axis=1)
        bound = shift_error(expansion, part, length, remainder, np.exp(-travelled))
        _adopt(chosen, both, np.where(np.isnan(bound), np.inf, bound), shift, distance, error)


def _tensor(expansion: Expansion) -> FloatArray:
    """Σ f‴ x⊗x⊗x / m over D, as a (d, d²) matrix."""
    problem = expansion.problem
    assert isinstance(problem.loss, Logistic)
    d = problem.columns
    tensor = np.zeros((d, d * d))
    for block in row_blocks(problem.rows, d * d):
        part, labels = problem.X[block], problem.y[block]
        third = problem.loss.third(part @ expansion.base.theta, labels)
        outer = (part[:, :, None] * part[:, None, :]).reshape(len(part), d * d)
        tensor += (part * third[:, None]).T @ outer
    return tensor / expansion.rows_after


def _tilted_gradient(
    expansion: Expansion, changes: tuple[Change, ...], shift: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """F̃(Â + δ) for a block of neighbours, and a bound on its rounding error."""
    problem, m = expansion.problem, expansion.rows_after
    loss, d = problem.loss, problem.columns
    total = np.zeros_like(shift)
    moved = np.zeros(len(shift))
    for block in row_blocks(problem.rows, max(len(shift), d)):
        part = problem.X[block]
        z = (part @ expansion.base.theta)[:, None]
        growth = loss.increment(z, problem.y[block][:, None], part @ shift.T)
        total += growth.T @ part
        moved += problem.norms[block] @ np.abs(growth)
    length = np.linalg.norm(shift, axis=1)
    pulls = np.zeros(len(shift))
    uncertain = np.zeros(len(shift))
    for change in changes:
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
        uncertain += _increment_error(expansion, length)
    summing = gamma(problem.rows + d + 64)
    rounding = (
        summing * moved / m
        + uncertain
        + 64 * ROUNDOFF * (pulls / m + float(np.linalg.norm(expansion.pull)))
        + 4 * ROUNDOFF * float(np.max(expansion.penalty_after)) * length
    )
    return gradient, 1.01 * rounding


def _increment_error(expansion: Expansion, length: FloatArray) -> FloatArray:
    """Σ∥x∥·(error of f′(z + x·δ) − f′(z))/m from the errors of z and of x·δ."""
    problem = expansion.problem
    loss = problem.loss
    margin = problem.margin_error(expansion.base.theta)
    step = gamma(problem.columns + 2) * length
    square = float(np.sum(problem.norms**2)) / expansion.rows_after
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
    step: Step,
    shift: FloatArray,
    residual: FloatArray,
    lowest: float | None = None,
) -> FloatArray:
    """The bound of measured residuals; ``lowest`` is a curvature measured at Â + δ itself."""
    length = np.linalg.norm(shift, axis=1)
    decay = np.exp(-expansion.spread * length) if lowest is None else np.ones(len(length))
    with np.errstate(over="ignore", invalid="ignore"):
        bound = shift_error(
            expansion,
            step,
            length,
            residual,
            decay,
            measured=True,
            lowest=lowest,
        )
    return np.where(np.isnan(bound), np.inf, bound)


def _frozen_newton(
    expansion: Expansion,
    rows: IntArray,
    step: Step,
    shift: FloatArray,
    distance: FloatArray,
    error: FloatArray,
    tolerance: float,
) -> None:
    """Steps with H'(Â), which contract while τ is well below 1; each row stops when it is done."""
    for start in range(0, len(rows), _PASS_ROWS):
        chosen = rows[start : start + _PASS_ROWS]
        current = shift[chosen]
        before = np.full(len(chosen), np.inf)
        for _ in range(12):
            part = step.take(chosen)
            gradient, rounding = _tilted_gradient(expansion, part.changes, current)
            size = np.linalg.norm(gradient, axis=1)
            bound = _certify(expansion, part, current, size + rounding)
            _adopt(chosen, current, bound, shift, distance, error)
            going = ~(error[chosen] <= tolerance * distance[chosen]) & (size < 0.5 * before)
            if not np.any(going):
                break
            moved = current - _solve(expansion, part.changes, gradient)
            chosen, current, before = chosen[going], moved[going], size[going]


def _own_newton(
    expansion: Expansion,
    row: int,
    step: Step,
    shift: FloatArray,
    distance: FloatArray,
    error: FloatArray,
    tolerance: float,
) -> None:
    """Damped Newton on F̃ with the Hessian where it stands: sure to converge, O(nd²) a step."""
    chosen = np.array([row])
    part = step.take(chosen)
    current = shift[chosen]
    gradient, rounding = _tilted_gradient(expansion, part.changes, current)
    for _ in range(60):
        size = float(np.linalg.norm(gradient))
        hessian = _hessian_at(expansion, part.changes, current)
        lowest = _lowest(expansion, hessian, expansion.base.theta + current[0])
        bound = _certify(expansion, part, current, np.array([size]) + rounding, lowest)
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
            there, rounding_there = _tilted_gradient(expansion, part.changes, trial)
            # The slope along the step rises through 0 at its minimum: do not go far beyond.
            if float(there[0] @ direction) >= -0.5 * along:
                break
            damping /= 2
            if damping < 2**-40:
                return
        current, gradient, rounding = trial, there, rounding_there


def _hessian_at(expansion: Expansion, changes: tuple[Change, ...], shift: FloatArray) -> FloatArray:
    """The neighbour's Hessian at Â + δ."""
    problem, m = expansion.problem, expansion.rows_after
    theta = expansion.base.theta + shift[0]
    hessian = np.diag(expansion.penalty_after).copy()
    for block in problem.blocks():
        part = problem.X[block]
        weight = problem.loss.curvature(part @ theta, problem.y[block]) / m
        hessian += (part * weight[:, None]).T @ part
    for change in changes:
        weight = change.sign * problem.loss.curvature(change.X @ theta, change.y) / m
        hessian += (change.X * weight[:, None]).T @ change.X
    return hessian


def _lowest(expansion: Expansion, hessian: FloatArray, theta: FloatArray) -> float | None:
    """A lower bound on the least eigenvalue of a computed Hessian; None where none is needed."""
    problem, ratio = expansion.problem, expansion.problem.loss.third_ratio
    if ratio is None:
        return None
    rounding = gamma(problem.rows + 16 * len(hessian)) * float(np.linalg.norm(hessian))
    # f″ at predictors that are off by the rounding of θ, of the shift and of the product.
    margin = 2 * problem.margin_error(theta) * expansion.largest_norm
    rounding += float(np.expm1(min(ratio * margin, 700.0))) * float(np.trace(hessian))
    return max(expansion.floor, float(np.linalg.eigvalsh(hessian)[0]) - 4 * rounding)
