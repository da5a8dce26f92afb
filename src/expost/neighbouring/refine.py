"""Shifts refined until their certificate is below a tolerance: the same stages for all neighbours.

Each stage is used on the neighbours that the one before left above the tolerance:

1. a third-order step with the tensor K = Σ f‴ x⊗x⊗x of the logistic loss (d³ numbers, from one
   pass, for moderate d);
2. Newton steps with the frozen Hessian H'(Â). Their residual is known but for rounding: of the
   Huber hinge from the few rows near a kink (:class:`~expost.neighbouring.knots.KinkRows`), else,
   where J over all rows is at hand, from a pass of O(n) for each neighbour;
3. where J is at hand, damped Newton steps with the neighbour's own Hessian, one neighbour at a
   time.

The tilted gradient is evaluated as a *difference* from Â,

    F̃(Â + δ) = p'∘δ + (1/m) Σ x·[f′(z + x·δ) − f′(z)] + F̃(Â),

with the bracket free of cancellation, so that its rounding is relative to the shift.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from expost._numerics import gamma, row_blocks, row_norms, solve_small
from expost.glm import Objective
from expost.losses import Kinked, Logistic, Loss
from expost.neighbouring.certificate import endpoint_error, proved
from expost.neighbouring.expansion import Expansion
from expost.neighbouring.knots import KinkRows
from expost.neighbouring.shifts import Shifts, Steps
from expost.rows import RowBlock
from expost.types import FloatArray, IntArray

__all__ = [
    "LOOSE",
    "Neighbourhood",
    "Refinement",
    "hessian_at",
    "increment_error",
    "increments",
    "is_refinable",
    "moved_by_kinks",
    "refine",
    "refinement_for",
    "within_sphere",
]

# Newton's certificate is refined where it leaves more than this share of a distance open.
LOOSE = 1e-3
# Past this width the tensor (d³) and its products (n·d³) cost more than a Newton pass saves.
_TENSOR_COLUMNS = 128
# Neighbours that share one pass over the data, and what their solves may hold (32 MiB).
_PASS_ROWS = 256
_PASS_ENTRIES = 2**22


@dataclass(frozen=True, kw_only=True, eq=False)
class Refinement:
    """What one pass over all rows finds to refine steps by; small enough to be sent to workers.

    Attributes
    ----------
    tensor : FloatArray | None
        K as a (d, d²) matrix.
    kinks : KinkRows | None
        The rows near a kink of the Huber hinge.
    """

    tensor: FloatArray | None = None
    kinks: KinkRows | None = None

    def with_known_curvature(self, expansion: Expansion) -> Expansion:
        """Return the expansion with what is known of the curvature around the base."""
        return expansion if self.kinks is None else self.kinks.with_known_curvature(expansion)


def is_refinable(expansion: Expansion) -> bool:
    """Return whether one pass over the rows finds what steps can be refined by."""
    loss = expansion.loss
    is_smooth = isinstance(loss, Logistic) and expansion.columns <= _TENSOR_COLUMNS
    return is_smooth or isinstance(loss, Kinked)


def refinement_for(objective: Objective, expansion: Expansion, reach: float) -> Refinement:
    """Return what steps of ∥δ∥_B up to ``reach`` are refined by, from one pass over the rows."""
    if not is_refinable(expansion):
        return Refinement()
    if isinstance(expansion.loss, Kinked):
        if not reach < np.inf:
            return Refinement()
        return Refinement(kinks=KinkRows.of(objective, expansion, reach))
    tensor = np.zeros((expansion.columns, expansion.columns**2))
    assert isinstance(expansion.loss, Logistic)
    moments = _ThirdMoments(theta=expansion.base.theta, loss=expansion.loss)
    for part in objective.map(moments):
        tensor += part
    return Refinement(tensor=tensor)


@dataclass(frozen=True, kw_only=True, eq=False)
class _ThirdMoments:
    """A pass that sums K of the logistic loss at ``theta``."""

    theta: FloatArray
    loss: Logistic

    def __call__(self, block: RowBlock) -> FloatArray:
        """Return K of one block."""
        d = block.X.shape[1]
        tensor = np.zeros((d, d * d))
        for where in row_blocks(len(block), d * d):
            part = block.X[where]
            third = self.loss.third(part @ self.theta, block.y[where])
            outer = (part[:, :, None] * part[:, None, :]).reshape(len(part), d * d)
            tensor += (part * third[:, None]).T @ outer
        return tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbourhood(ABC):
    """Some neighbours of one expansion, p of them, as the stages of refinement use them.

    H' and F̃ are those of each neighbour; vectors and right-hand sides are (p, d).

    Attributes
    ----------
    refinement : Refinement
        What steps to them are refined by.
    objective : Objective | None
        J over all rows, for passes that serve single neighbours; None: the rows are elsewhere.
    """

    expansion: Expansion
    refinement: Refinement = field(default_factory=Refinement)
    objective: Objective | None = None

    @property
    @abstractmethod
    def width(self) -> int:
        """Entries that are held for each neighbour."""

    @property
    @abstractmethod
    def weight(self) -> FloatArray:
        """(p,) Σ f″∥x∥²/m over the changed rows."""

    @abstractmethod
    def take(self, index: IntArray) -> "Neighbourhood":
        """Return some of the neighbours."""

    @abstractmethod
    def pull_bound(self, index: IntArray) -> tuple[FloatArray, FloatArray | float]:
        """Return ∥F̃(Â)∥ of some neighbours from above, and a bound on the error of F̃(Â)."""

    @abstractmethod
    def solve(self, right: FloatArray) -> FloatArray:
        """Return H'(Â)⁻¹ applied to each right-hand side."""

    @abstractmethod
    def apply(self, vectors: FloatArray) -> FloatArray:
        """Return H'(Â) applied to each vector."""

    @abstractmethod
    def third_derivative_sum(self, vectors: FloatArray) -> FloatArray:
        """Return Σ sign·f‴x(x·v)²/m over the changed rows (logistic)."""

    @abstractmethod
    def third_order_form(self, vectors: FloatArray) -> FloatArray:
        """Return (p,) an upper bound on vᵀTv."""

    @abstractmethod
    def gradient(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return F̃(Â + δ), and a bound on its rounding error."""

    @abstractmethod
    def hessian(self, shift: FloatArray) -> FloatArray:
        """Return (d, d) the Hessian at Â + δ of the only neighbour."""

    @abstractmethod
    def shift_error(
        self,
        length: FloatArray,
        remainder: FloatArray,
        decay: FloatArray,
        *,
        measured: bool = False,
        lowest: FloatArray | float | None = None,
    ) -> FloatArray:
        """Return the error of shifts that leave ``remainder`` of the tilted gradient.

        ``measured``: ``remainder`` is the whole residual as evaluated, with its own rounding, not
        what a bound leaves after exact linear algebra. ``decay`` is e^(−τ). ``lowest``: the
        neighbour's least curvature where the step ends, if it was measured there; else it is
        inferred from Â.
        """

    def local_error(self, shift: FloatArray, residual: FloatArray) -> FloatArray | float:
        """Return another bound on the error of shifts that leave ``residual``, if there is one."""
        return np.inf

    def refined_by(self, refinement: Refinement) -> "Neighbourhood":
        """Return the same neighbours with what they are refined by."""
        expansion = refinement.with_known_curvature(self.expansion)
        return replace(self, refinement=refinement, expansion=expansion)


def refine(near: Neighbourhood, steps: Steps, tolerance: float) -> Steps:
    """Return the steps, each brought below the tolerance if it can be.

    Only the neighbours that are above it are worked on.
    """
    index = steps.loose(tolerance)
    tensor, kinks = near.refinement.tensor, near.refinement.kinks
    if not len(index) or (tensor is None and kinks is None and near.objective is None):
        return steps
    best = Steps(
        shifts=Shifts.dense(steps.shifts.all()),
        distance=steps.distance.copy(),
        error=steps.error.copy(),
    )
    if tensor is not None:
        _third_order(near, tensor, index, best)
        index = best.loose(tolerance)
    if len(index) and (kinks is not None or near.objective is not None):
        _frozen_newton(near, index, best, tolerance)
    if near.objective is not None:
        index = best.loose(tolerance)
        if near.expansion.loss.third_ratio is None:
            index = _promising(near, index, best, tolerance)
        for row in index:
            _own_newton(near, int(row), best, tolerance)
    return best


def _keep_better(best: Steps, index: IntArray, candidate: FloatArray, bound: FloatArray) -> None:
    """Take each candidate (a shift for each of ``index``) whose bound is the better one."""
    better = bound < best.error[index]
    chosen = index[better]
    best.shifts.X[chosen] = candidate[better]
    best.distance[chosen] = row_norms(candidate[better])
    best.error[chosen] = bound[better]


def within_sphere(near: Neighbourhood, steps: Steps) -> FloatArray:
    """Return the errors where they are numbers, and never more than what the sphere proves.

    Strong convexity alone gives ∥A' − A∥ ≤ ∥F̃(Â)∥/Λ, so that a shift of length ∥δ∥ errs by at most
    ∥δ∥ + ∥F̃(Â)∥/Λ.
    """
    distance, error = steps.distance, proved(steps.error)
    poor = np.flatnonzero(error > distance)
    floor = near.expansion.floor
    if len(poor) and floor > 0:
        pull, uncertain = near.pull_bound(poor)
        reach = distance[poor] + pull * (1 + 1e-9) / floor
        error = error.copy()
        error[poor] = np.fmin(error[poor], reach + endpoint_error(near.expansion, uncertain))
    return error


def _third_order(near: Neighbourhood, tensor: FloatArray, index: IntArray, best: Steps) -> None:
    """Add δ₂ = −½ H'⁻¹ Σ f‴ x (x·δ₁)²/m, with its certificate (logistic: ∣f⁗∣ ≤ f″).

    With q(v) = vᵀTv the residual that δ = δ₁ + δ₂ leaves is at most
    √(q(δ₁)q(δ₂)) + ½q(δ₂) + (τ/6)e^τ q(δ), plus what the two solves leave.
    """
    expansion = near.expansion
    assert expansion.third is not None
    tensor = tensor / expansion.rows_after
    d, changed = expansion.columns, expansion.leaving + expansion.entering
    for some in row_blocks(len(index), d * d):
        chosen = index[some]
        block = near.take(chosen)
        first = best.shifts.X[chosen]
        outer = (first[:, :, None] * first[:, None, :]).reshape(len(chosen), d * d)
        right = -0.5 * (outer @ tensor.T + block.third_derivative_sum(first))
        second = block.solve(right)
        both = first + second
        q1, q2, q = (block.third_order_form(v) for v in (first, second, both))
        length = np.linalg.norm(both, axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            travelled = expansion.spread * length
            remainder = np.sqrt(q1 * q2) + 0.5 * q2 + travelled / 6 * np.exp(travelled) * q
        # What the second solve leaves, and the rounding of its right-hand side.
        left = np.linalg.norm(block.apply(second) - right, axis=1)
        # (The tensor is summed over blocks of 64 rows to 2¹⁵.)
        terms = d * d + 2**15 + expansion.curved.rows / 64 + changed + 64
        rounding = gamma(terms) * 0.5 * np.einsum("ij,ij->i", first, first)
        remainder = (remainder + left) * (1 + 1e-9) + rounding * float(np.trace(expansion.third))
        steepest = float(np.linalg.norm(expansion.hessian)) + block.weight
        remainder += gamma(4 * d + changed) * steepest * np.linalg.norm(second, axis=1)
        bound = block.shift_error(length, remainder, np.exp(-travelled))
        _keep_better(best, chosen, both, proved(bound))


def increments(
    objective: Objective, theta: FloatArray, shift: FloatArray, owner: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return Σ x[f′(z + x·δ) − f′(z)] over the data (p, d), and Σ∥x∥∣…∣ (p,).

    Without the rows whose ``owner`` (n,) is the neighbour's number, where that is given.
    """
    total, moved = np.zeros_like(shift), np.zeros(len(shift))
    task = _Increments(loss=objective.loss, theta=theta, shift=shift, owner=owner)
    for part, size in objective.map(task):
        total += part
        moved += size
    return total, moved


@dataclass(frozen=True, kw_only=True, eq=False)
class _Increments:
    """A pass that sums what shifts change of f′; see :func:`increments`."""

    loss: Loss
    theta: FloatArray
    shift: FloatArray
    owner: IntArray | None

    def __call__(self, block: RowBlock) -> tuple[FloatArray, FloatArray]:
        """Return the two sums of one block."""
        shift, count = self.shift, len(self.shift)
        total, moved = np.zeros_like(shift), np.zeros(count)
        for where in row_blocks(len(block), max(count, block.X.shape[1])):
            part = block.X[where]
            z = (part @ self.theta)[:, None]
            growth = self.loss.increment(z, block.y[where][:, None], part @ shift.T)
            if self.owner is not None:
                owner = self.owner[block.start + where.start : block.start + where.stop]
                growth = np.where(owner[:, None] == np.arange(count), 0.0, growth)
            total += growth.T @ part
            moved += block.norms[where] @ np.abs(growth)
        return total, moved


def moved_by_kinks(
    expansion: Expansion, kinks: KinkRows, shift: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return p'∘δ + Σ x[f′(z + x·δ) − f′(z)]/m over the data, and a bound on its error.

    All rows but those near a kink are linear. The error is infinite where a shift is too long.
    """
    length = np.linalg.norm(shift, axis=1)
    nonlinear, error = kinks.nonlinearity(expansion, shift)
    total = shift @ expansion.hessian + nonlinear / expansion.rows_after
    steepest = float(np.linalg.norm(expansion.hessian))
    error = error / expansion.rows_after
    error += (expansion.hessian_error + gamma(expansion.columns + 8) * steepest) * length
    return total, error


def increment_error(objective: Objective, expansion: Expansion, length: FloatArray) -> FloatArray:
    """Bound Σ∥x∥·(error of f′(z + x·δ) − f′(z))/m from the errors of z and of x·δ."""
    loss = objective.loss
    margin = objective.constants.margin_error(expansion.base.theta)
    step = gamma(objective.columns + 2) * length
    rows = objective.rows
    squares = rows.count * rows.longest**2
    if rows.is_held:
        squares = float(np.sum(objective.held.norms**2))
    square = squares / expansion.rows_after
    anywhere = loss.curvature_bound * square * (2 * margin + step)
    if loss.third_ratio is None:
        return anywhere
    # Σ f″∥x∥²/m is the trace of the loss's Hessian; its growth along the step is at most e^τ.
    total = float(expansion.penalty_after.sum())
    trace = max(float(np.trace(expansion.hessian)) - total, 0.0)
    trace += gamma(4 * objective.columns) * (total + trace)
    growth = np.exp(expansion.spread * length)
    here = 1.01 * trace * growth * (step + (expansion.spread * 2 * margin) * length)
    return np.fmin(anywhere, here)


def _certify(
    expansion: Expansion,
    block: Neighbourhood,
    shift: FloatArray,
    residual: FloatArray,
    lowest: float | None = None,
) -> FloatArray:
    """Return the error for measured residuals; ``lowest`` is a curvature measured at Â + δ."""
    length, kinks = np.linalg.norm(shift, axis=1), block.refinement.kinks
    decay = np.exp(-expansion.spread * length) if lowest is None else np.ones(len(length))
    with np.errstate(over="ignore", invalid="ignore"):
        bound = block.shift_error(length, residual, decay, measured=True, lowest=lowest)
        if kinks is not None:
            known = kinks.curvature_lower_bound(expansion, shift, bound)
            bound = block.shift_error(length, residual, decay, measured=True, lowest=known)
        bound = np.fmin(bound, block.local_error(shift, residual))
    return proved(bound)


def _together(near: Neighbourhood, index: IntArray) -> list[IntArray]:
    """Return ``index`` in parts of neighbours that share a pass over the data."""
    size = max(1, min(_PASS_ROWS, _PASS_ENTRIES // near.width))
    return [index[start : start + size] for start in range(0, len(index), size)]


def _frozen_newton(near: Neighbourhood, index: IntArray, best: Steps, tolerance: float) -> None:
    """Take steps with H'(Â), which contract while τ is well below 1, until a row is tight."""
    for chosen in _together(near, index):
        current = best.shifts.X[chosen]
        before = np.full(len(chosen), np.inf)
        for _ in range(12):
            block = near.take(chosen)
            gradient, rounding = block.gradient(current)
            size = np.linalg.norm(gradient, axis=1)
            bound = _certify(near.expansion, block, current, size + rounding)
            _keep_better(best, chosen, current, bound)
            loose = ~(best.error[chosen] <= tolerance * best.distance[chosen])
            going = loose & (size < 0.5 * before)
            if not np.any(going):
                break
            moved = current - block.solve(gradient)
            chosen, current, before = chosen[going], moved[going], size[going]


def _promising(near: Neighbourhood, index: IntArray, best: Steps, tolerance: float) -> IntArray:
    """Return the neighbours whose certificate would be met if rounding were all that is left.

    For a loss with kinks: no step reduces what the residual of the base costs, and none finds more
    curvature.
    """
    kept = [index[:0]]
    for chosen in _together(near, index):
        block = near.take(chosen)
        _, rounding = block.gradient(best.shifts.X[chosen])
        bound = _certify(near.expansion, block, best.shifts.X[chosen], rounding)
        kept.append(chosen[bound <= tolerance * best.distance[chosen]])
    return np.concatenate(kept)


def _own_newton(near: Neighbourhood, row: int, best: Steps, tolerance: float) -> None:
    """Take damped Newton steps on F̃ with the Hessian where it stands.

    They always converge, and cost O(nd²) each.
    """
    assert near.objective is not None
    expansion, chosen = near.expansion, np.array([row])
    block = near.take(chosen)
    current = best.shifts.X[chosen]
    gradient, rounding = block.gradient(current)
    for _ in range(60):
        size = float(np.linalg.norm(gradient))
        hessian = block.hessian(current)
        lowest = _lowest(near.objective, expansion, hessian, expansion.base.theta + current[0])
        bound = _certify(expansion, block, current, np.array([size]) + rounding, lowest)
        _keep_better(best, chosen, current, bound)
        is_tight = best.error[row] <= tolerance * best.distance[row]
        if is_tight or size <= float(rounding[0]) / 8:
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
    objective: Objective,
    expansion: Expansion,
    theta: FloatArray,
    present: NDArray[np.bool_] | None = None,
) -> FloatArray:
    """Return P' + Σ f″x xᵀ/m at θ over the data, or over the rows that are ``present``."""
    hessian = np.diag(expansion.penalty_after).copy()
    task = _CurvatureAt(
        loss=objective.loss, theta=theta, rows_after=expansion.rows_after, present=present
    )
    for part in objective.map(task):
        hessian += part
    return hessian


@dataclass(frozen=True, kw_only=True, eq=False)
class _CurvatureAt:
    """A pass that sums f″x xᵀ/m at ``theta``; see :func:`hessian_at`."""

    loss: Loss
    theta: FloatArray
    rows_after: int
    present: NDArray[np.bool_] | None

    def __call__(self, block: RowBlock) -> FloatArray:
        """Return the sum over one block."""
        weight = self.loss.curvature(block.X @ self.theta, block.y) / self.rows_after
        if self.present is not None:
            weight = weight * self.present[block.start : block.start + len(block)]
        total: FloatArray = (block.X * weight[:, None]).T @ block.X
        return total


def _lowest(
    objective: Objective, expansion: Expansion, hessian: FloatArray, theta: FloatArray
) -> float | None:
    """Return a lower bound on the least eigenvalue of a computed Hessian, if one is needed."""
    ratio = objective.loss.third_ratio
    if ratio is None:
        return None
    rounding = gamma(objective.count + 16 * len(hessian)) * float(np.linalg.norm(hessian))
    # f″ at predictors that are off by the rounding of θ, of the shift and of the product.
    margin = 2 * objective.constants.margin_error(theta) * expansion.largest_norm
    rounding += float(np.expm1(min(ratio * margin, 700.0))) * float(np.trace(hessian))
    return max(expansion.floor, float(np.linalg.eigvalsh(hessian)[0]) - 4 * rounding)
