"""A(D): the minimiser of a regularised generalised linear model, with its certificate.

Conventions
-----------
J(θ) = (1/n) Σ f(xᵢ·θ; yᵢ) + ½ Σⱼ pⱼ θⱼ² + c·θ, p the ``penalty`` (one number Λ for every
coordinate in the private estimators; 0 for the intercept of some scikit-learn models), c the
``linear`` term: 0, but for an objective that is perturbed.
η        ``gradient_bound``: a proved bound on ∥∇J(θ)∥, rounding included.

Each pass streams over row blocks: memory beyond X is O(block·d + d²).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.linalg

from expost._numerics import (
    ROUNDOFF,
    UNDERFLOW,
    CompensatedSum,
    bracket_root,
    gamma,
    row_blocks,
    row_norms,
)
from expost.errors import ConvergenceError, InvalidInput
from expost.losses import Array, Loss
from expost.types import FloatArray

__all__ = ["LONGEST_ROW", "Minimiser", "Problem", "minimise"]

# Rows summed by one BLAS dot product; longer sums are compensated, so that the error bound of a
# gradient does not grow with n.
_CHUNK = 1024
# Fourth powers of a row's length, over Λ², must not overflow.
LONGEST_ROW = 1e30
# Relative error of one evaluation of f, f′ or f″ (a few roundings and one exponential).
_FUNCTION_ERROR = 16 * ROUNDOFF


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """The data and constants of J."""

    X: FloatArray
    y: FloatArray
    loss: Loss
    penalty: FloatArray
    linear: FloatArray | None = None

    norms: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        if self.linear is not None and self.linear.shape != (self.columns,):
            raise InvalidInput("linear: must hold one number for each column.")
        if not (self.penalty.shape == (self.columns,) and bool(np.all(self.penalty >= 0))):
            raise InvalidInput("penalty: must hold one number ≥ 0 for each column.")
        norms = np.empty(self.rows)
        for block in self.blocks():
            part = self.X[block]
            norms[block] = row_norms(part)
        if not norms.max(initial=0.0) <= LONGEST_ROW:
            raise InvalidInput(f"X holds a row longer than {LONGEST_ROW:g}: rescale its columns.")
        # Rounded up, for it is used in bounds.
        object.__setattr__(self, "norms", norms * (1 + 2 * gamma(self.columns + 4)))

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return len(self.X)

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return int(self.X.shape[1])

    def blocks(self) -> Iterator[slice]:
        """Row blocks."""
        return row_blocks(self.rows, self.columns)

    @cached_property
    def common_norm(self) -> float:
        """A length that thirty-one rows of thirty-two do not exceed."""
        rank = self.rows - 1 - self.rows // 32
        return float(np.partition(self.norms, rank)[rank])

    @property
    def natural_tolerance(self) -> float:
        """A gradient to aim at for rows of any length: 1e-12 of the longest."""
        return 1e-12 * max(float(self.norms.max()), 1e-280)

    def margin_error(self, theta: FloatArray) -> float:
        """ε with ∣computed − true∣ ≤ ε·∥xᵢ∥ for every predictor xᵢ·θ."""
        return gamma(self.columns + 2) * float(np.linalg.norm(theta))

    def slope_error(
        self, theta: FloatArray, slope: FloatArray, curvature: FloatArray, norms: FloatArray
    ) -> FloatArray:
        """A bound on the error of each computed f′: of the predictor, and of the function."""
        margin = self.margin_error(theta) * norms
        if self.loss.third_ratio is None:
            steepest: FloatArray | float = self.loss.curvature_bound
        else:
            # f″ changes by at most e^(M·margin) over the error of the predictor.
            growth = np.exp(np.minimum(self.loss.third_ratio * margin, 700.0))
            steepest = np.minimum(self.loss.curvature_bound, curvature * growth)
        size = np.abs(slope) if self.loss.is_classification else np.abs(slope) + self._label_size
        return margin * steepest + _FUNCTION_ERROR * size

    @cached_property
    def _label_size(self) -> float:
        return float(np.max(np.abs(self.y)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Minimiser:
    """A(D) as computed: ∥∇J(θ)∥ ≤ ``gradient_bound``, proved with rounding included."""

    theta: FloatArray
    gradient_bound: float
    iterations: int


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pass:
    """What one pass over the rows gives at a point."""

    value: float
    gradient: FloatArray
    rounding: float
    hessian: FloatArray | None

    @property
    def gradient_bound(self) -> float:
        return float(np.linalg.norm(self.gradient)) * (1 + 1e-12) + self.rounding + UNDERFLOW


def minimise(
    problem: Problem,
    *,
    tolerance: float = 1e-12,
    start: FloatArray | None = None,
    require: bool = True,
) -> Minimiser:
    """Newton–Cholesky until the proved bound on ∥∇J∥ is at most ``tolerance``.

    Where rounding in float64 is what keeps the bound above the tolerance, the last steps take
    their gradient in extended precision. Raises :class:`ConvergenceError` if the bound cannot be
    reached and ``require`` is set: no result is passed off as the minimiser that is not.
    """
    theta = np.zeros(problem.columns) if start is None else start.copy()
    state = _evaluate(problem, theta)
    for iteration in range(200):
        if state.gradient_bound <= tolerance:
            return Minimiser(theta=theta, gradient_bound=state.gradient_bound, iterations=iteration)
        advanced = _newton_step(problem, theta, state)
        if advanced is None:
            break
        theta, state = advanced
    theta, bound = _polish(problem, theta, state, tolerance)
    if require and not bound <= tolerance:
        raise ConvergenceError(
            f"the minimiser was found only to a gradient of {bound:.2g}, not {tolerance:.2g}:"
            " raise regularization or rescale the columns."
        )
    return Minimiser(theta=theta, gradient_bound=bound, iterations=iteration)


def _evaluate(problem: Problem, theta: FloatArray, *, hessian: bool = True) -> _Pass:
    """J, ∇J, the rounding error of ∇J and ∇²J at ``theta``."""
    X, y, loss, n = problem.X, problem.y, problem.loss, problem.rows
    value, rounding = CompensatedSum(), 0.0
    gradient = CompensatedSum((problem.columns,))
    curved = np.zeros((problem.columns, problem.columns)) if hessian else None
    for block in problem.blocks():
        part, labels, norms = X[block], y[block], problem.norms[block]
        z = part @ theta
        slope, curvature = loss.derivatives(z, labels)
        value.add(np.sum(loss.value(z, labels)))
        for start in range(0, len(part), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            gradient.add(slope[chunk] @ part[chunk])
        error = problem.slope_error(theta, slope, curvature, norms)
        rounding += float(norms @ (error + gamma(_CHUNK + 4) * np.abs(slope)))
        if curved is not None:
            curved += (part * curvature[:, None]).T @ part
    penalty = problem.penalty
    size = float(np.linalg.norm(penalty * theta))
    mean = gradient.value / n
    tilt = np.zeros(problem.columns) if problem.linear is None else problem.linear
    size += float(np.linalg.norm(tilt))
    return _Pass(
        value=float(value.value) / n + 0.5 * float(penalty @ theta**2) + float(tilt @ theta),
        gradient=mean + penalty * theta + tilt,
        rounding=1.01 * rounding / n + 8 * ROUNDOFF * (float(np.linalg.norm(mean)) + size),
        hessian=None if curved is None else curved / n + np.diag(penalty),
    )


def _newton_step(
    problem: Problem, theta: FloatArray, state: _Pass
) -> tuple[FloatArray, _Pass] | None:
    """One Newton step with a line search, or None where rounding leaves nothing to gain."""
    assert state.hessian is not None
    try:
        step = -scipy.linalg.cho_solve(scipy.linalg.cho_factor(state.hessian), state.gradient)
    except scipy.linalg.LinAlgError:
        return None
    candidate = theta + step
    after = _evaluate(problem, candidate)
    if float(np.linalg.norm(after.gradient)) <= 0.5 * float(np.linalg.norm(state.gradient)):
        return candidate, after
    candidate = theta + _line_minimum(problem, theta, step) * step
    after = _evaluate(problem, candidate)
    # Near the optimum J no longer resolves a descent; then only its gradient could still shrink.
    if not after.value < state.value - 64 * ROUNDOFF * (1 + abs(state.value)):
        return None
    return candidate, after


def _line_minimum(problem: Problem, theta: FloatArray, step: FloatArray) -> float:
    """The minimiser of J along a descent direction: where its increasing derivative changes sign.

    The derivative needs the predictors of θ and of the step alone, so each trial costs O(n). It
    matters for the Huber hinge at a small Λ: where every row lies on a linear piece, a Newton
    step is a gradient step of length 1/Λ.
    """
    z, along = problem.X @ theta, problem.X @ step
    inner = float(problem.penalty @ (theta * step))
    if problem.linear is not None:
        inner += float(problem.linear @ step)
    square = float(problem.penalty @ step**2)

    def derivative(length: FloatArray) -> FloatArray:
        slope = problem.loss.slope(z + float(length) * along, problem.y)
        return np.asarray(slope @ along / problem.rows + inner + float(length) * square)

    below, _ = bracket_root(derivative, 0.0, 2.0, halvings=60)
    return float(below)


def _polish(
    problem: Problem, theta: FloatArray, state: _Pass, tolerance: float
) -> tuple[FloatArray, float]:
    """Newton steps with the gradient in extended precision, while they help."""
    bound = state.gradient_bound
    if state.hessian is None or not np.finfo(np.longdouble).eps < 2 * ROUNDOFF / 1000:
        return theta, bound
    try:
        factor = scipy.linalg.cho_factor(state.hessian)
    except scipy.linalg.LinAlgError:
        return theta, bound
    best = theta
    for _ in range(6):
        gradient, rounding = _long_gradient(problem, theta)
        here = float(np.linalg.norm(gradient)) * (1 + 1e-12) + rounding + UNDERFLOW
        if here < bound:
            best, bound = theta, here
        elif theta is not best:
            break
        if bound <= tolerance / 4:
            break
        theta = theta - scipy.linalg.cho_solve(factor, gradient)
    return best, bound


def _long_gradient(problem: Problem, theta: FloatArray) -> tuple[FloatArray, float]:
    """∇J in the platform's extended precision, rounded once at the end, and its error."""
    wide = np.longdouble
    unit = float(np.finfo(wide).eps)
    long_theta = theta.astype(wide)
    total: Array = np.zeros(problem.columns, dtype=wide)
    size = 0.0
    for block in problem.blocks():
        part, labels = problem.X[block].astype(wide), problem.y[block].astype(wide)
        slope = problem.loss.slope(part @ long_theta, labels)
        total += slope @ part
        size += float(problem.norms[block] @ np.abs(slope))
    n, d = problem.rows, problem.columns
    length = float(np.linalg.norm(theta))
    wide_gradient = total / n + problem.penalty * long_theta
    if problem.linear is not None:
        wide_gradient = wide_gradient + problem.linear
    gradient = wide_gradient.astype(np.float64)
    steepest = problem.loss.curvature_bound * float(np.mean(problem.norms**2)) * length
    label = 0.0 if problem.loss.is_classification else problem._label_size
    rounding = unit * (
        (n + 64) * size / n
        + (d + 2) * steepest
        + 64 * label * float(np.mean(problem.norms))
        + 4 * float(np.max(problem.penalty)) * length
        + (0.0 if problem.linear is None else 4 * float(np.linalg.norm(problem.linear)))
    )
    return gradient, 2 * rounding + 2 * ROUNDOFF * float(np.linalg.norm(gradient))
