"""A(D): the minimiser of a regularised generalised linear model, with its certificate.

Conventions
-----------
J(θ) = (1/n) Σ f(xᵢ·θ; yᵢ) + ½ Σⱼ pⱼ θⱼ² + c·θ, p the ``penalty`` (one number Λ for every
coordinate in the private estimators; 0 for the intercept of some scikit-learn models), c the
``linear`` term: 0, but for an objective that is perturbed.
η        ``gradient_bound``: a proved bound on ∥∇J(θ)∥, rounding included.

Each pass streams over row blocks: memory beyond X is O(block·d + d²).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import scipy.linalg

from expost._numerics import (
    ROUNDOFF,
    UNDERFLOW,
    CompensatedSum,
    gamma,
    row_blocks,
    row_norms,
)
from expost.errors import ConvergenceError, InvalidInput
from expost.losses import Array, Loss
from expost.types import FloatArray

__all__ = ["LONGEST_ROW", "Constants", "Minimiser", "Objective", "Problem", "RowBlock", "minimise"]

T = TypeVar("T")

# Rows summed by one BLAS dot product; longer sums are compensated, so that the error bound of a
# gradient does not grow with n.
_CHUNK = 1024
# Fourth powers of a row's length, over Λ², must not overflow.
LONGEST_ROW = 1e30
# Relative error of one evaluation of f, f′ or f″ (a few roundings and one exponential).
_FUNCTION_ERROR = 16 * ROUNDOFF
# Of a line search: octaves below the longest step, then passes over the rows, and parts of an
# interval that each of them tries.
_LINE_OCTAVES, _LINE_PASSES, _LINE_POINTS = 60, 4, 16


@dataclass(frozen=True, kw_only=True, eq=False)
class RowBlock:
    """Some consecutive rows, as one pass over the data sees them; ``norms`` are rounded up."""

    X: FloatArray
    y: FloatArray
    norms: FloatArray

    @classmethod
    def of(cls, X: FloatArray, y: FloatArray) -> "RowBlock":
        """Rows that are no longer than a certificate can bear."""
        norms = row_norms(X)
        if not norms.max(initial=0.0) <= LONGEST_ROW:
            raise InvalidInput(f"X holds a row longer than {LONGEST_ROW:g}: rescale its columns.")
        # Rounded up, for it is used in bounds.
        return cls(X=X, y=y, norms=norms * (1 + 2 * gamma(X.shape[1] + 4)))

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What a pass needs to know beside the rows; small, so that it can travel to where they are.

    ``label_size``  the largest ∣y∣.
    """

    loss: Loss
    columns: int
    label_size: float

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
        size = np.abs(slope) if self.loss.is_classification else np.abs(slope) + self.label_size
        return margin * steepest + _FUNCTION_ERROR * size


class Objective(ABC):
    """J and its rows, which are gone through in blocks: in memory, from a file, on a cluster.

    What works on J asks for passes over the rows (:meth:`fold`), and never where they are. Blocks
    are fixed by the number of rows and columns alone, and what they give is put together in their
    order, so that neither workers nor machines change a byte.
    """

    loss: Loss
    penalty: FloatArray
    linear: FloatArray | None

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number n of rows."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """The number d of columns."""

    @abstractmethod
    def fold(self, task: Callable[[RowBlock], T]) -> Iterator[T]:
        """``task`` of every block, in their order. It must not hold on to a block."""

    @abstractmethod
    def with_linear(self, linear: FloatArray) -> Self:
        """The same rows under another linear term c."""

    @property
    @abstractmethod
    def longest(self) -> float:
        """The largest row norm."""

    @property
    @abstractmethod
    def common_norm(self) -> float:
        """A length that thirty-one rows of thirty-two do not exceed, or about so many."""

    @property
    @abstractmethod
    def label_size(self) -> float:
        """The largest ∣y∣."""

    def _check(self) -> None:
        if self.linear is not None and self.linear.shape != (self.columns,):
            raise InvalidInput("linear: must hold one number for each column.")
        if not (self.penalty.shape == (self.columns,) and bool(np.all(self.penalty >= 0))):
            raise InvalidInput("penalty: must hold one number ≥ 0 for each column.")

    @property
    def start(self) -> FloatArray:
        """Where the search for the minimiser begins."""
        return np.zeros(self.columns)

    def minimiser(self, tolerance: float) -> "Minimiser":
        """A(D), with a proved ∥∇J∥ ≤ ``tolerance``."""
        return minimise(self, tolerance=tolerance)

    @property
    def constants(self) -> Constants:
        """What its passes need to know beside the rows."""
        return Constants(loss=self.loss, columns=self.columns, label_size=self.label_size)

    @property
    def natural_tolerance(self) -> float:
        """A gradient to aim at for rows of any length: 1e-12 of the longest."""
        return 1e-12 * max(self.longest, 1e-280)

    def margin_error(self, theta: FloatArray) -> float:
        """ε with ∣computed − true∣ ≤ ε·∥xᵢ∥ for every predictor xᵢ·θ."""
        return self.constants.margin_error(theta)

    def slope_error(
        self, theta: FloatArray, slope: FloatArray, curvature: FloatArray, norms: FloatArray
    ) -> FloatArray:
        """A bound on the error of each computed f′: of the predictor, and of the function."""
        return self.constants.slope_error(theta, slope, curvature, norms)


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem(Objective):
    """J with its rows in memory."""

    X: FloatArray
    y: FloatArray
    loss: Loss
    penalty: FloatArray
    linear: FloatArray | None = None

    norms: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self._check()
        parts = [RowBlock.of(self.X[b], self.y[b]).norms for b in self.blocks()]
        object.__setattr__(self, "norms", np.concatenate(parts) if parts else np.empty(0))

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

    def fold(self, task: Callable[[RowBlock], T]) -> Iterator[T]:
        """``task`` of every block, in their order."""
        for block in self.blocks():
            yield task(RowBlock(X=self.X[block], y=self.y[block], norms=self.norms[block]))

    def with_linear(self, linear: FloatArray) -> Self:
        """The same rows under another linear term c."""
        return replace(self, linear=linear)

    @cached_property
    def common_norm(self) -> float:
        """A length that thirty-one rows of thirty-two do not exceed."""
        rank = self.rows - 1 - self.rows // 32
        return float(np.partition(self.norms, rank)[rank])

    @cached_property
    def longest(self) -> float:
        """The largest row norm."""
        return float(self.norms.max())

    @cached_property
    def label_size(self) -> float:
        """The largest ∣y∣."""
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
    problem: Objective,
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
    theta = (problem.start if start is None else start).copy()
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """What a block adds to a pass: Σf, Σf′x in two parts, its rounding error, Σf″x xᵀ."""

    value: float
    gradient: CompensatedSum
    rounding: float
    curved: FloatArray | None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Evaluate:
    """The sums of one block at ``theta``."""

    constants: Constants
    theta: FloatArray
    hessian: bool

    def __call__(self, block: RowBlock) -> _Sums:
        """Work them out."""
        X, norms, loss = block.X, block.norms, self.constants.loss
        z = X @ self.theta
        slope, curvature = loss.derivatives(z, block.y)
        gradient = CompensatedSum((X.shape[1],))
        for start in range(0, len(X), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            gradient.add(slope[chunk] @ X[chunk])
        error = self.constants.slope_error(self.theta, slope, curvature, norms)
        return _Sums(
            value=float(np.sum(loss.value(z, block.y))),
            gradient=gradient,
            rounding=float(norms @ (error + gamma(_CHUNK + 4) * np.abs(slope))),
            curved=(X * curvature[:, None]).T @ X if self.hessian else None,
        )


def _evaluate(problem: Objective, theta: FloatArray, *, hessian: bool = True) -> _Pass:
    """J, ∇J, the rounding error of ∇J and ∇²J at ``theta``."""
    n = problem.rows
    value, rounding = CompensatedSum(), 0.0
    gradient = CompensatedSum((problem.columns,))
    curved = np.zeros((problem.columns, problem.columns)) if hessian else None
    task = _Evaluate(constants=problem.constants, theta=theta, hessian=hessian)
    for sums in problem.fold(task):
        value.add(np.asarray(sums.value))
        gradient.merge(sums.gradient)
        rounding += sums.rounding
        if curved is not None and sums.curved is not None:
            curved += sums.curved
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
    problem: Objective, theta: FloatArray, state: _Pass
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Along:
    """Σ f′·(x·step) of one block at several points θ + length·step."""

    loss: Loss
    theta: FloatArray
    step: FloatArray
    lengths: FloatArray

    def __call__(self, block: RowBlock) -> FloatArray:
        """One number a length."""
        z, along = block.X @ self.theta, block.X @ self.step
        return np.array(
            [self.loss.slope(z + length * along, block.y) @ along for length in self.lengths]
        )


def _line_minimum(problem: Objective, theta: FloatArray, step: FloatArray) -> float:
    """The minimiser of J along a descent direction: where its increasing derivative changes sign.

    The derivative needs the predictors of θ and of the step alone, and a pass tries many lengths
    at once. It matters for the Huber hinge at a small Λ: where every row lies on a linear piece, a
    Newton step is a gradient step of length 1/Λ.
    """
    inner = float(problem.penalty @ (theta * step))
    if problem.linear is not None:
        inner += float(problem.linear @ step)
    square = float(problem.penalty @ step**2)
    low, high = 0.0, 2.0
    # First the power of two, then a few parts of it: J is flat around its minimum.
    lengths = np.ldexp(2.0, -np.arange(_LINE_OCTAVES, -1, -1))
    for _ in range(1 + _LINE_PASSES):
        task = _Along(loss=problem.loss, theta=theta, step=step, lengths=lengths)
        total = np.zeros(len(lengths))
        for part in problem.fold(task):
            total += part
        rising = np.flatnonzero(~(total / problem.rows + inner + lengths * square <= 0))
        place = int(rising[0]) if len(rising) else len(lengths)
        low = float(lengths[place - 1]) if place else low
        high = float(lengths[place]) if place < len(lengths) else high
        lengths = np.linspace(low, high, _LINE_POINTS + 1)[1:-1]
    return low


def _polish(
    problem: Objective, theta: FloatArray, state: _Pass, tolerance: float
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _LongSums:
    """Σ f′x of one block in extended precision, Σ∥x∥∣f′∣, Σ∥x∥, Σ∥x∥², and its rows."""

    loss: Loss
    theta: FloatArray

    def __call__(self, block: RowBlock) -> tuple[Array, float, float, float, int]:
        """The four sums, and the number."""
        wide = np.longdouble
        part, labels = block.X.astype(wide), block.y.astype(wide)
        slope = self.loss.slope(part @ self.theta.astype(wide), labels)
        norms = block.norms
        size = float(norms @ np.abs(slope))
        return slope @ part, size, float(np.sum(norms)), float(norms @ norms), len(block)


def _long_gradient(problem: Objective, theta: FloatArray) -> tuple[FloatArray, float]:
    """∇J in the platform's extended precision, rounded once at the end, and its error."""
    wide = np.longdouble
    unit = float(np.finfo(wide).eps)
    total: Array = np.zeros(problem.columns, dtype=wide)
    size = lengths = squares = 0.0
    blocks = longest = 0
    for part in problem.fold(_LongSums(loss=problem.loss, theta=theta)):
        total += part[0]
        size, lengths, squares = size + part[1], lengths + part[2], squares + part[3]
        blocks, longest = blocks + 1, max(longest, part[4])
    n, d = problem.rows, problem.columns
    length = float(np.linalg.norm(theta))
    wide_gradient = total / n + problem.penalty * theta.astype(wide)
    if problem.linear is not None:
        wide_gradient = wide_gradient + problem.linear
    gradient = wide_gradient.astype(np.float64)
    steepest = problem.loss.curvature_bound * squares / n * length
    label = 0.0 if problem.loss.is_classification else problem.label_size
    rounding = unit * (
        (longest + blocks + 64) * size / n
        + (d + 2) * steepest
        + 64 * label * lengths / n
        + 4 * float(np.max(problem.penalty)) * length
        + (0.0 if problem.linear is None else 4 * float(np.linalg.norm(problem.linear)))
    )
    return gradient, 2 * rounding + 2 * ROUNDOFF * float(np.linalg.norm(gradient))
