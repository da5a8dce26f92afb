"""The minimiser A(D) of a regularised generalised linear model, with its certificate.

Conventions
-----------
J(θ) = (1/n) Σ f(zᵢ; yᵢ) + ½ Σⱼ pⱼ θⱼ² + c·θ, zᵢ the q linear predictors of row i (see
:mod:`expost.losses`), p the ``penalty`` (one number Λ for every coefficient in the private
estimators; 0 for the intercept of some scikit-learn models), c the ``linear`` term: 0 unless the
objective is perturbed.
η        ``gradient_bound``: a proved bound on ∥∇J(θ)∥, rounding included.

Each pass visits the rows in blocks: memory beyond the rows is O(block·d + (q·d)²).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import scipy.linalg

from expost._numerics import ROUNDOFF, UNDERFLOW, CompensatedSum, gamma
from expost.errors import ConvergenceError, InvalidInput
from expost.losses import Array, Derivatives, Loss
from expost.rows import HeldRows, RowBlock, Rows, TableRows, held
from expost.types import FloatArray

__all__ = [
    "Constants",
    "Minimiser",
    "Objective",
    "gradient_at",
    "minimise",
    "predictors",
    "two_classes_only",
]

T = TypeVar("T")

# Rows summed by one BLAS dot product; longer sums are compensated, so that the error bound of a
# gradient does not grow with n.
_CHUNK = 1024
# Rows of a table whose minimiser is the start of the search.
_FIRST_ROWS = 2**13
# Of no more rows in memory a pass takes less than a search over the first ones.
_FEW_ROWS = 2**15
_NEWTON_STEPS = 200
# The line search: octaves below the longest step, then passes over the rows, and parts of an
# interval that each pass tries.
_LINE_OCTAVES, _LINE_PASSES, _LINE_POINTS = 60, 4, 16


def predictors(X: Array, theta: Array, outputs: int) -> Array:
    """Return the linear predictors of the rows X: (m,) for one output, else (m, q)."""
    product: Array = X @ (theta if outputs == 1 else theta.reshape(outputs, -1).T)
    return product


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The constants of a pass over rows; small, so that they can be sent to the rows.

    Parameters
    ----------
    columns : int
        The number d of columns of X.
    label_size : float
        The largest ∣y∣.
    """

    loss: Loss
    columns: int
    label_size: float

    def at(self, X: FloatArray, y: FloatArray, theta: FloatArray) -> Derivatives:
        """Return the derivatives of the losses of some rows at ``theta``."""
        return self.loss.at(predictors(X, theta, self.loss.outputs), y)

    def margin_error(self, theta: FloatArray) -> float:
        """Return ε with ∥computed − true∥ ≤ ε·∥xᵢ∥ for the predictors of every row."""
        return gamma(self.columns + 2) * float(np.linalg.norm(theta))

    def slope_error(
        self, theta: FloatArray, derivatives: Derivatives, norms: FloatArray
    ) -> FloatArray:
        """Bound the error of each computed ∇f: of its predictors and of its evaluation."""
        margin = self.margin_error(theta) * norms
        if self.loss.third_ratio is None:
            steepest: FloatArray | float = self.loss.curvature_bound
        else:
            # ∇²f changes by at most e^(M·margin) over the error of the predictors.
            growth = np.exp(np.minimum(self.loss.third_ratio * margin, 700.0))
            steepest = np.minimum(self.loss.curvature_bound, derivatives.steepness * growth)
        return margin * steepest + derivatives.rounding(self.label_size)


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective:
    """The objective J over some rows; all sums of derivatives over rows are formed here.

    Parameters
    ----------
    penalty : FloatArray
        (q·d,) p.
    linear : FloatArray, optional
        (q·d,) c; None is 0.
    """

    rows: Rows
    loss: Loss
    penalty: FloatArray
    linear: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.linear is not None and self.linear.shape != (self.dimension,):
            raise InvalidInput("linear: must hold one number for each coefficient.")
        if not (self.penalty.shape == (self.dimension,) and bool(np.all(self.penalty >= 0))):
            raise InvalidInput("penalty: must hold one number ≥ 0 for each coefficient.")
        if self.loss.outputs > 1 and not bool(np.all(self.penalty > 0)):
            raise InvalidInput("penalty: more than one output needs numbers > 0.")
        if isinstance(self.rows, HeldRows):
            self.loss.check_labels(self.rows.y)

    @classmethod
    def of(
        cls,
        *,
        X: FloatArray,
        y: FloatArray,
        loss: Loss,
        penalty: FloatArray | float,
        linear: FloatArray | None = None,
    ) -> "Objective":
        """Return J over arrays in memory; a number as ``penalty`` is that of every coefficient."""
        if not isinstance(penalty, np.ndarray):
            penalty = np.full(loss.outputs * X.shape[1], penalty)
        return cls(rows=HeldRows(X=X, y=y), loss=loss, penalty=penalty, linear=linear)

    @property
    def count(self) -> int:
        """The number n of rows."""
        return self.rows.count

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return self.rows.columns

    @property
    def dimension(self) -> int:
        """The number q·d of coefficients."""
        return self.loss.outputs * self.rows.columns

    @property
    def held(self) -> HeldRows:
        """The rows, which must all be in memory."""
        return held(self.rows, "this computation")

    @property
    def table(self) -> TableRows:
        """The rows, which must be read from a table."""
        assert isinstance(self.rows, TableRows)
        return self.rows

    def map(self, task: Callable[[RowBlock], T]) -> Iterator[T]:
        """Yield the result of ``task`` for every block of rows, in their order."""
        return self.rows.map(task)

    def matrix(self, theta: Array) -> Array:
        """Return the coefficients as (q, d)."""
        return theta.reshape(self.loss.outputs, self.columns)

    def with_linear(self, linear: FloatArray) -> "Objective":
        """Return J with another linear term c."""
        return replace(self, linear=linear)

    @property
    def has_many_rows(self) -> bool:
        """Whether a pass over all rows takes longer than a search over the first ones."""
        return not self.rows.is_held or self.rows.count > _FEW_ROWS

    # Not a cached property: those of Python 3.11 share one lock, which a worker would wait for.
    def start(self) -> FloatArray:
        """Return the start of the search: 0, or the minimiser over the first of many rows.

        It saves passes over the rows, and is computed where they are.
        """
        if not self.has_many_rows:
            return np.zeros(self.dimension)
        task = _FirstFit(loss=self.loss, penalty=self.penalty, linear=self.linear)
        return self.rows.on_first(task, _FIRST_ROWS)

    def minimiser(self, tolerance: float, *, start: FloatArray | None = None) -> "Minimiser":
        """Return A(D), with a proved ∥∇J∥ ≤ ``tolerance``; it is computed once.

        A minimiser with a smaller bound that is known already is returned too.
        """
        for known in self._minimisers:
            if known.gradient_bound <= tolerance:
                return known
        self._minimisers.append(minimise(self, tolerance=tolerance, start=start))
        return self._minimisers[-1]

    @cached_property
    def _minimisers(self) -> list["Minimiser"]:
        return []

    @cached_property
    def constants(self) -> Constants:
        """The constants of its passes."""
        return Constants(loss=self.loss, columns=self.columns, label_size=self.rows.label_size)

    def hessian(self, theta: FloatArray) -> FloatArray:
        """Return ∇²J at ``theta``, by one pass over the rows."""
        total = np.zeros((self.dimension, self.dimension))
        for part in self.map(_Curvature(constants=self.constants, theta=theta)):
            total += part
        return total / self.count + np.diag(self.penalty)

    @property
    def natural_tolerance(self) -> float:
        """The tolerance of the gradient for rows of any length: 1e-12 of the longest."""
        return 1e-12 * max(self.rows.longest, 1e-280)


def two_classes_only(objective: Objective) -> Objective:
    """Return ``objective`` if it has one output; refuse more than two classes."""
    if objective.loss.outputs > 1:
        raise InvalidInput(
            f"the model has {objective.loss.outputs} classes: only models of two classes are"
            " supported here; fitting, predicting and profiling support more."
        )
    return objective


@dataclass(frozen=True, kw_only=True, eq=False)
class _Curvature:
    """The sum Σ∇²ℓ of one block."""

    constants: Constants
    theta: FloatArray

    def __call__(self, block: RowBlock) -> FloatArray:
        return self.constants.at(block.X, block.y, self.theta).curvature_sum(block.X)


@dataclass(frozen=True, kw_only=True, eq=False)
class _FirstFit:
    """The minimiser over some rows. It need not be exact: it is the start of a search."""

    loss: Loss
    penalty: FloatArray
    linear: FloatArray | None

    def __call__(self, block: RowBlock) -> FloatArray:
        """Minimise over the rows of ``block``."""
        first = Objective.of(
            X=block.X, y=block.y, loss=self.loss, penalty=self.penalty, linear=self.linear
        )
        return minimise(first, tolerance=1e-6, require=False).theta


@dataclass(frozen=True, kw_only=True, eq=False)
class Minimiser:
    """The computed A(D): ∥∇J(θ)∥ ≤ ``gradient_bound``, proved with rounding included.

    Parameters
    ----------
    hessian : FloatArray, optional
        ∇²J at θ or next to it, where it was requested.
    """

    theta: FloatArray
    gradient_bound: float
    iterations: int
    hessian: FloatArray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pass:
    """The result of one pass over the rows at a point."""

    value: float
    gradient: FloatArray
    rounding: float
    hessian: FloatArray | None

    @property
    def gradient_bound(self) -> float:
        return float(np.linalg.norm(self.gradient)) * (1 + 1e-12) + self.rounding + UNDERFLOW


def minimise(
    objective: Objective,
    *,
    tolerance: float = 1e-12,
    start: FloatArray | None = None,
    require: bool = True,
    curved: bool = False,
) -> Minimiser:
    """Minimise J by Newton–Cholesky until the proved bound on ∥∇J∥ is at most ``tolerance``.

    Where rounding in float64 keeps the bound above the tolerance, the last steps compute the
    gradient in extended precision.

    Parameters
    ----------
    objective : Objective
        J.
    tolerance : float, default=1e-12
        The bound on ∥∇J∥ to reach.
    start : FloatArray, optional
        (q·d,) the first point; by default :meth:`Objective.start`.
    require : bool, default=True
        Whether to raise if the bound cannot be reached.
    curved : bool, default=False
        Whether to return ∇²J too, at the last point computed without extended precision.

    Raises
    ------
    ConvergenceError
        If the bound cannot be reached and ``require`` is set.
    """
    theta = (objective.start() if start is None else start).copy()
    state, before = _evaluate(objective, theta), None
    steps = 0
    while not (bound := state.gradient_bound) <= tolerance and steps < _NEWTON_STEPS:
        state = _with_hessian(objective, theta, state)
        last = not curved and _is_last_step(before, state, tolerance)
        advanced = _newton_step(objective, theta, state, last=last)
        if advanced is None:
            break
        before = state
        theta, state = advanced
        steps += 1
    if not bound <= tolerance:
        state = _with_hessian(objective, theta, state)
        theta, bound = _polish(objective, theta, state, tolerance)
    if require and not bound <= tolerance:
        raise ConvergenceError(
            f"the minimiser was computed only to a gradient of {bound:.2g}, not {tolerance:.2g}:"
            " raise regularization or epsilon, or rescale the columns."
        )
    hessian = state.hessian if curved else None
    return Minimiser(theta=theta, gradient_bound=bound, iterations=steps, hessian=hessian)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """The sums of a block: Σf, Σ∇ℓ in two parts, its rounding error, Σ∇²ℓ."""

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
        """Compute the sums."""
        X, norms, loss = block.X, block.norms, self.constants.loss
        z = predictors(X, self.theta, loss.outputs)
        derivatives = loss.at(z, block.y)
        gradient = CompensatedSum((len(self.theta),))
        for start in range(0, len(X), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            gradient.add((derivatives.slope[chunk].T @ X[chunk]).ravel())
        error = self.constants.slope_error(self.theta, derivatives, norms)
        return _Sums(
            value=float(np.sum(loss.value(z, block.y))),
            gradient=gradient,
            rounding=float(norms @ (error + gamma(_CHUNK + 4) * derivatives.length)),
            curved=derivatives.curvature_sum(X) if self.hessian else None,
        )


def _evaluate(objective: Objective, theta: FloatArray, *, hessian: bool = True) -> _Pass:
    """Return J, ∇J, the rounding error of ∇J and ∇²J at ``theta``."""
    n, size = objective.count, objective.dimension
    value, rounding = CompensatedSum(), 0.0
    gradient = CompensatedSum((size,))
    curved = np.zeros((size, size)) if hessian else None
    task = _Evaluate(constants=objective.constants, theta=theta, hessian=hessian)
    for sums in objective.map(task):
        value.add(np.asarray(sums.value))
        gradient.merge(sums.gradient)
        rounding += sums.rounding
        if curved is not None and sums.curved is not None:
            curved += sums.curved
    penalty = objective.penalty
    length = float(np.linalg.norm(penalty * theta))
    mean = gradient.value / n
    linear = np.zeros(size) if objective.linear is None else objective.linear
    length += float(np.linalg.norm(linear))
    return _Pass(
        value=float(value.value) / n + 0.5 * float(penalty @ theta**2) + float(linear @ theta),
        gradient=mean + penalty * theta + linear,
        rounding=1.01 * rounding / n + 8 * ROUNDOFF * (float(np.linalg.norm(mean)) + length),
        hessian=None if curved is None else curved / n + np.diag(penalty),
    )


def gradient_at(objective: Objective, theta: FloatArray) -> FloatArray:
    """Return ∇J at ``theta``, by one pass over the rows."""
    return _evaluate(objective, theta, hessian=False).gradient


def _with_hessian(objective: Objective, theta: FloatArray, state: _Pass) -> _Pass:
    """Return ``state`` with ∇²J, by one more pass where it has none."""
    return state if state.hessian is not None else replace(state, hessian=objective.hessian(theta))


def _is_last_step(before: _Pass | None, state: _Pass, tolerance: float) -> bool:
    """Return whether the next step is expected to reach ``tolerance``.

    ∥∇J∥ after a Newton step is about C times its square before; C is taken from the last step.
    """
    if before is None:
        return False
    earlier, here = (float(np.linalg.norm(each.gradient)) for each in (before, state))
    return earlier > 0 and here * (here / earlier) ** 2 + state.rounding <= tolerance / 4


def _newton_step(
    objective: Objective, theta: FloatArray, state: _Pass, *, last: bool = False
) -> tuple[FloatArray, _Pass] | None:
    """Take one Newton step with a line search; return None where rounding prevents progress.

    ``last``: ∇²J after the step is probably not needed, and is not computed.
    """
    assert state.hessian is not None
    try:
        step = -scipy.linalg.cho_solve(scipy.linalg.cho_factor(state.hessian), state.gradient)
    except scipy.linalg.LinAlgError:
        return None
    candidate = theta + step
    after = _evaluate(objective, candidate, hessian=not last)
    if float(np.linalg.norm(after.gradient)) <= 0.5 * float(np.linalg.norm(state.gradient)):
        return candidate, after
    candidate = theta + _line_minimum(objective, theta, step) * step
    after = _evaluate(objective, candidate)
    # Near the optimum a descent is below the rounding of J; only the gradient could still shrink.
    if not after.value < state.value - 64 * ROUNDOFF * (1 + abs(state.value)):
        return None
    return candidate, after


@dataclass(frozen=True, kw_only=True, eq=False)
class _Along:
    """The sums Σ f′·(x·step) of one block at several points θ + length·step."""

    loss: Loss
    theta: FloatArray
    step: FloatArray
    lengths: FloatArray

    def __call__(self, block: RowBlock) -> FloatArray:
        """Return one number for each length."""
        z = predictors(block.X, self.theta, self.loss.outputs)
        along = predictors(block.X, self.step, self.loss.outputs)
        return np.array(
            [
                np.vdot(self.loss.slope(z + length * along, block.y), along)
                for length in self.lengths
            ]
        )


def _line_minimum(objective: Objective, theta: FloatArray, step: FloatArray) -> float:
    """Return the length of the step that minimises J along a descent direction.

    The derivative along the step is increasing and changes sign there. It needs only the predictors
    of θ and of the step, and one pass tries many lengths. The search matters for the Huber hinge at
    a small Λ: where every row lies on a linear piece, a Newton step is a gradient step of length
    1/Λ.
    """
    inner = float(objective.penalty @ (theta * step))
    if objective.linear is not None:
        inner += float(objective.linear @ step)
    square = float(objective.penalty @ step**2)
    low, high = 0.0, 2.0
    # First the power of two, then parts of it: J is flat around its minimum.
    lengths = np.ldexp(2.0, -np.arange(_LINE_OCTAVES, -1, -1))
    for _ in range(1 + _LINE_PASSES):
        task = _Along(loss=objective.loss, theta=theta, step=step, lengths=lengths)
        total = np.zeros(len(lengths))
        for part in objective.map(task):
            total += part
        rising = np.flatnonzero(~(total / objective.count + inner + lengths * square <= 0))
        first = int(rising[0]) if len(rising) else len(lengths)
        low = float(lengths[first - 1]) if first else low
        high = float(lengths[first]) if first < len(lengths) else high
        lengths = np.linspace(low, high, _LINE_POINTS + 1)[1:-1]
    return low


def _polish(
    objective: Objective, theta: FloatArray, state: _Pass, tolerance: float
) -> tuple[FloatArray, float]:
    """Take Newton steps with the gradient in extended precision, while the bound shrinks."""
    bound = state.gradient_bound
    if state.hessian is None or not np.finfo(np.longdouble).eps < 2 * ROUNDOFF / 1000:
        return theta, bound
    try:
        factor = scipy.linalg.cho_factor(state.hessian)
    except scipy.linalg.LinAlgError:
        return theta, bound
    best = theta
    for _ in range(6):
        gradient, rounding = _long_gradient(objective, theta)
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
    """The sums of one block in extended precision: Σ u ⊗ x, Σ∥x∥∥u∥, Σ∥x∥·error of u, Σ∥x∥²."""

    constants: Constants
    theta: FloatArray

    def __call__(self, block: RowBlock) -> tuple[Array, float, float, float, int]:
        """Return the four sums, and the number of rows."""
        wide, norms, loss = np.longdouble, block.norms, self.constants.loss
        part, labels = block.X.astype(wide), block.y.astype(wide)
        derivatives = loss.at(predictors(part, self.theta.astype(wide), loss.outputs), labels)
        error = derivatives.long_rounding(float(np.finfo(wide).eps), self.constants.label_size)
        return (
            (derivatives.slope.T @ part).ravel(),
            float(norms @ derivatives.length),
            float(np.sum(norms * error)),
            float(norms @ norms),
            len(block),
        )


def _long_gradient(objective: Objective, theta: FloatArray) -> tuple[FloatArray, float]:
    """Return ∇J in the platform's extended precision, rounded once at the end, and its error."""
    wide = np.longdouble
    unit = float(np.finfo(wide).eps)
    total: Array = np.zeros(objective.dimension, dtype=wide)
    size = evaluated = squares = 0.0
    blocks = longest = 0
    for part in objective.map(_LongSums(constants=objective.constants, theta=theta)):
        total += part[0]
        size, evaluated, squares = size + part[1], evaluated + part[2], squares + part[3]
        blocks, longest = blocks + 1, max(longest, part[4])
    n, d = objective.count, objective.columns
    length = float(np.linalg.norm(theta))
    wide_gradient = total / n + objective.penalty * theta.astype(wide)
    if objective.linear is not None:
        wide_gradient = wide_gradient + objective.linear
    gradient = wide_gradient.astype(np.float64)
    steepest = objective.loss.curvature_bound * squares / n * length
    rounding = evaluated / n + unit * (
        (longest + blocks + 64) * size / n
        + (d + 2) * steepest
        + 4 * float(np.max(objective.penalty)) * length
        + (0.0 if objective.linear is None else 4 * float(np.linalg.norm(objective.linear)))
    )
    return gradient, 2 * rounding + 2 * ROUNDOFF * float(np.linalg.norm(gradient))
