"""Softmax regression: one predictor a class, and the certified minimiser of its objective.

Conventions
-----------
K, d     classes and columns; Θ is (K, d), flattened class by class into θ (K·d,).
z = Θx   the predictors (K,) of a row, p = softmax(z), y its class, counted from 0.
f(z; y)  log Σₖ e^(zₖ) − z_y, with u = ∇f = p − e_y and S = ∇²f = diag p − p pᵀ, so that a row
         has ∇ℓ = u ⊗ x and ∇²ℓ = S ⊗ x xᵀ.
J(Θ)     (1/n) Σ f(Θxᵢ; yᵢ) + (Λ/2)∥Θ∥² + c·θ. S is singular along (1, …, 1); Λ > 0 is what
         makes the minimiser unique.

Bounds (E and Var are over k ~ p; range(w) = max w − min w ≤ √2∥w∥)
-------------------------------------------------------------------
gradient   ∥u∥² = (1 − p_y)² + Σ over k ≠ y of pₖ² ≤ 2(1 − p_y)² ≤ 2.
curvature  wᵀSw = Var(w) ≤ range(w)²/4 ≤ ∥w∥²/2 (Popoviciu).
volume     S has K − 1 eigenvalues of sum 1 − ∥p∥² ≤ 1 − 1/K beside a 0, so by the concavity of
           the logarithm log det(I + tS) ≤ (K − 1)·log(1 + t/K), with equality at p = 1/K.
third      the derivative of wᵀS(z + sh)w in s is E[(w − Ew)²(h − Eh)], at most range(h)·Var(w) in
           size, so S(z + h) lies between e^(±√2∥h∥)·S(z): where Θ moves by Δ, all ∇²ℓ keep
           within a factor of e^(±√2∥x∥∥Δ∥) (the binary logistic loss has 1 for √2).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.linalg

from expost import _checks
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
from expost.glm import LONGEST_ROW, Minimiser, Problem
from expost.losses import Array
from expost.types import FloatArray, IntArray

__all__ = ["Residuals", "Softmax", "SoftmaxProblem", "minimise_softmax", "two_classes_only"]

# Rows summed by one BLAS product; longer sums are compensated (see expost.glm).
_CHUNK = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Residuals:
    """p and u = p − e_y of some rows (m, K), each entry to a few roundings of itself.

    ``rest``   1 − pₖ, as the sum of the others: it does not cancel where pₖ is near 1.
    ``drift``  (m,) Σ pₖ∣tₖ∣ with tₖ = zₖ − max z, which the rounding of t adds up to.
    """

    p: Array
    rest: Array
    u: Array
    drift: Array

    @classmethod
    def of(cls, z: Array, codes: IntArray) -> "Residuals":
        """From the predictors (m, K) and the classes (m,)."""
        t = z - z.max(axis=1, keepdims=True)
        p = np.exp(t)
        p /= p.sum(axis=1, keepdims=True)
        rest = p @ (1 - np.eye(p.shape[1], dtype=p.dtype))
        u, each = p.copy(), np.arange(len(p))
        u[each, codes] = -rest[each, codes]
        return cls(p=p, rest=rest, u=u, drift=-np.einsum("ij,ij->i", p, t))

    @cached_property
    def length(self) -> FloatArray:
        """∥u∥."""
        norms: FloatArray = np.sqrt(np.einsum("ij,ij->i", self.u, self.u)).astype(np.float64)
        return norms

    @cached_property
    def trace(self) -> FloatArray:
        """tr S = Σ pₖ(1 − pₖ), which no eigenvalue of S passes."""
        trace: FloatArray = np.einsum("ij,ij->i", self.p, self.rest).astype(np.float64)
        return trace

    def rounding(self, unit: float) -> FloatArray:
        """A bound on the error of u for the z that was given, roundings being ``unit``.

        tₖ is off by ∣tₖ∣·unit, which makes the exponential off by as much relatively, and the
        exponential, the sum and the quotient by K + 10 roundings: pₖ is off by pₖ(∣tₖ∣ + drift +
        K + 10) units, and the entry of y by no more than the others together.
        """
        missed = 0.5 * np.abs(self.u).sum(axis=1).astype(np.float64)
        drift = self.drift.astype(np.float64)
        terms = 2 * self.u.shape[1] + 40
        bound: FloatArray = 2 * unit * (drift + missed * (drift + terms))
        return bound

    def add_curvature(self, total: FloatArray, X: FloatArray) -> None:
        """Add Σ S ⊗ x xᵀ to ``total`` (K, d, K, d), in the blocks on and above the diagonal."""
        for a in range(self.p.shape[1]):
            total[a, :, a] += (X * (self.p[:, a] * self.rest[:, a])[:, None]).T @ X
            for b in range(a + 1, self.p.shape[1]):
                total[a, :, b] -= (X * (self.p[:, a] * self.p[:, b])[:, None]).T @ X


@dataclass(frozen=True, kw_only=True)
class Softmax:
    """f = log Σ e^(zₖ) − z_y for ``classes`` K: see the module for its bounds.

    z (…, K) holds one predictor a class and y (…,) the class, 0 … K − 1. A linear predictor alone,
    as the losses of :mod:`expost.losses` take it, is refused.
    """

    classes: int

    name: ClassVar[str] = "softmax"
    is_classification: ClassVar[bool] = True
    curvature_bound: ClassVar[float] = 0.5
    third_ratio: ClassVar[float | None] = math.sqrt(2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", _checks.whole("classes", self.classes, least=2))

    def _residuals(self, z: Array, y: Array) -> Residuals:
        return Residuals.of(z, self._codes(z, y))

    def _codes(self, z: Array, y: Array) -> IntArray:
        if not (z.ndim == 2 and z.shape[1] == self.classes and y.shape == (len(z),)):
            raise InvalidInput(_two_classes_only(self.classes))
        return y.astype(np.int64)

    def value(self, z: Array, y: Array) -> Array:
        """(n,) log Σ e^(zₖ) − z_y."""
        top, chosen = z.max(axis=1), z[np.arange(len(z)), self._codes(z, y)]
        value: Array = np.log(np.exp(z - top[:, None]).sum(axis=1)) + (top - chosen)
        return value

    def slope(self, z: Array, y: Array) -> Array:
        """(n, K) u = p − e_y."""
        return self._residuals(z, y).u

    def curvature(self, z: Array, y: Array) -> Array:
        """(n, K, K) S = diag p − p pᵀ."""
        return self.derivatives(z, y)[1]

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """(u, S)."""
        found = self._residuals(z, y)
        curvature = -found.p[:, :, None] * found.p[:, None, :]
        places = np.arange(self.classes)
        curvature[:, places, places] = found.p * found.rest
        return found.u, curvature

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """p(z + a) − p(z) = p·(e^(a − c) − 1), c = log E[e^a], for ∣a∣ < 1; beyond, as it is."""
        p = self._residuals(z, y).p
        near = np.clip(step, -1.0, 1.0)
        mean = np.log1p(np.einsum("ij,ij->i", p, np.expm1(near)))
        far = self._residuals(z + step, y).p - p
        small = np.abs(step).max(axis=1, keepdims=True) < 1
        return np.where(small, p * np.expm1(near - mean[:, None]), far)

    def lipschitz(self, regularization: float) -> float:
        """√2 on the unit ball."""
        return math.sqrt(2)

    def solution_bound(self, regularization: float) -> float:
        """∥A∥ ≤ √2/Λ from ∇J = 0, and (Λ/2)∥A∥² ≤ J(0) = log K."""
        return min(
            math.sqrt(2) / regularization, math.sqrt(2 * math.log(self.classes) / regularization)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxProblem:
    """The data and constants of J; ``penalty`` is Λ and ``linear`` the (K·d,) vector c.

    ``y`` holds the classes as whole numbers from 0 to K − 1; ``norms`` bound ∥x∥ from above.
    """

    X: FloatArray
    y: FloatArray
    loss: Softmax
    penalty: float
    linear: FloatArray | None = None

    norms: FloatArray = field(init=False)
    codes: IntArray = field(init=False)

    def __post_init__(self) -> None:
        if not self.penalty > 0:
            raise InvalidInput(f"penalty={self.penalty!r}: must be a number > 0.")
        if self.linear is not None and self.linear.shape != (self.dimension,):
            raise InvalidInput("linear: must hold one number for each class and column.")
        object.__setattr__(self, "codes", self.checked(self.y))
        norms = row_norms(self.X)
        if not norms.max(initial=0.0) <= LONGEST_ROW:
            raise InvalidInput(f"X holds a row longer than {LONGEST_ROW:g}: rescale its columns.")
        object.__setattr__(self, "norms", norms * (1 + 2 * gamma(self.columns + 4)))

    def with_linear(self, linear: FloatArray) -> "SoftmaxProblem":
        """The same rows under another linear term c."""
        return replace(self, linear=linear)

    def checked(self, y: FloatArray) -> IntArray:
        """``y`` as whole numbers, each of them a class."""
        with np.errstate(invalid="ignore"):
            codes = y.astype(np.int64)
        if not (np.array_equal(codes, y) and np.all((codes >= 0) & (codes < self.loss.classes))):
            raise InvalidInput(f"y: must hold classes from 0 to {self.loss.classes - 1}.")
        return codes

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return len(self.X)

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return int(self.X.shape[1])

    @property
    def dimension(self) -> int:
        """K·d, the number of coordinates of θ."""
        return self.loss.classes * self.columns

    def blocks(self) -> Iterator[slice]:
        """Row blocks."""
        return row_blocks(self.rows, self.dimension)

    def matrix(self, theta: Array) -> Array:
        """Θ (K, d)."""
        return theta.reshape(self.loss.classes, self.columns)

    def square(self, total: FloatArray) -> FloatArray:
        """(K·d, K·d) from its blocks on and above the diagonal (K, d, K, d)."""
        for a in range(self.loss.classes):
            for b in range(a):
                total[a, :, b] = total[b, :, a].T
        return total.reshape(self.dimension, self.dimension)

    def margin_error(self, theta: FloatArray) -> float:
        """ε with ∥computed − true∥ ≤ ε·∥x∥ for the predictors Θx of every row."""
        return gamma(self.columns + 2) * float(np.linalg.norm(theta))

    def slope_error(self, theta: FloatArray, found: Residuals, norms: FloatArray) -> FloatArray:
        """A bound on the error of each computed u: of its predictors, and of the function."""
        margin = self.margin_error(theta) * norms
        growth = np.exp(np.minimum(math.sqrt(2) * margin, 700.0))
        steepest = np.minimum(0.5, 2 * found.trace * growth)
        return margin * steepest + found.rounding(ROUNDOFF)


def two_classes_only(problem: Problem | SoftmaxProblem) -> Problem:
    """``problem``, for what works on models of two classes; one of more classes is refused."""
    if isinstance(problem, SoftmaxProblem):
        raise InvalidInput(_two_classes_only(problem.loss.classes))
    return problem


def _two_classes_only(classes: int) -> str:
    return (
        f"the model has {classes} classes: only models of two classes are supported here; fitting,"
        " predicting and profiling take more."
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pass:
    """What one pass over the rows gives at a point."""

    value: float
    gradient: FloatArray
    rounding: float
    hessian: FloatArray

    @property
    def gradient_bound(self) -> float:
        return _norm(self.gradient) * (1 + 1e-12) + self.rounding + UNDERFLOW


def minimise_softmax(
    problem: SoftmaxProblem,
    *,
    tolerance: float = 1e-12,
    start: FloatArray | None = None,
) -> Minimiser:
    """Newton–Cholesky until the proved bound on ∥∇J∥ is at most ``tolerance``.

    As :func:`expost.glm.minimise`: the last steps take their gradient in extended precision where
    rounding in float64 is in the way, and :class:`ConvergenceError` is raised where the bound
    cannot be reached.
    """
    theta = np.zeros(problem.dimension) if start is None else start.copy()
    state = _evaluate(problem, theta)
    for iteration in range(200):
        if state.gradient_bound <= tolerance:
            return Minimiser(theta=theta, gradient_bound=state.gradient_bound, iterations=iteration)
        advanced = _newton_step(problem, theta, state)
        if advanced is None:
            break
        theta, state = advanced
    theta, bound = _polish(problem, theta, state, tolerance)
    if not bound <= tolerance:
        raise ConvergenceError(
            f"the minimiser was found only to a gradient of {bound:.2g}, not {tolerance:.2g}:"
            " raise regularization or epsilon."
        )
    return Minimiser(theta=theta, gradient_bound=bound, iterations=iteration)


def _evaluate(problem: SoftmaxProblem, theta: FloatArray) -> _Pass:
    """J, ∇J, the rounding error of ∇J and ∇²J at ``theta``."""
    n, K, d = problem.rows, problem.loss.classes, problem.columns
    value, gradient, rounding = CompensatedSum(), CompensatedSum((K, d)), 0.0
    curved = np.zeros((K, d, K, d))
    for block in problem.blocks():
        part, norms = problem.X[block], problem.norms[block]
        z = part @ problem.matrix(theta).T
        found = Residuals.of(z, problem.codes[block])
        value.add(np.sum(problem.loss.value(z, problem.y[block])))
        for start in range(0, len(part), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            gradient.add(found.u[chunk].T @ part[chunk])
        error = problem.slope_error(theta, found, norms)
        rounding += float(norms @ (error + gamma(_CHUNK + 4) * found.length))
        found.add_curvature(curved, part)
    mean, tilt = gradient.value.ravel() / n, _tilt(problem)
    size = _norm(mean) + problem.penalty * _norm(theta) + _norm(tilt)
    hessian = problem.square(curved) / n
    hessian[np.diag_indices_from(hessian)] += problem.penalty
    return _Pass(
        value=float(value.value) / n
        + 0.5 * problem.penalty * float(theta @ theta)
        + float(tilt @ theta),
        gradient=mean + problem.penalty * theta + tilt,
        rounding=1.01 * rounding / n + 8 * ROUNDOFF * size,
        hessian=hessian,
    )


def _newton_step(
    problem: SoftmaxProblem, theta: FloatArray, state: _Pass
) -> tuple[FloatArray, _Pass] | None:
    """One Newton step with a line search, or None where rounding leaves nothing to gain."""
    try:
        step = -scipy.linalg.cho_solve(scipy.linalg.cho_factor(state.hessian), state.gradient)
    except scipy.linalg.LinAlgError:
        return None
    candidate = theta + step
    after = _evaluate(problem, candidate)
    if _norm(after.gradient) <= 0.5 * _norm(state.gradient):
        return candidate, after
    candidate = theta + _line_minimum(problem, theta, step) * step
    after = _evaluate(problem, candidate)
    # Near the optimum J no longer resolves a descent; then only its gradient could still shrink.
    if not after.value < state.value - 64 * ROUNDOFF * (1 + abs(state.value)):
        return None
    return candidate, after


def _line_minimum(problem: SoftmaxProblem, theta: FloatArray, step: FloatArray) -> float:
    """Where the increasing derivative of J along a descent direction changes its sign."""
    z, along = (problem.X @ problem.matrix(vector).T for vector in (theta, step))
    inner = problem.penalty * float(theta @ step) + float(_tilt(problem) @ step)
    square = problem.penalty * float(step @ step)

    def derivative(length: FloatArray) -> FloatArray:
        u = Residuals.of(z + float(length) * along, problem.codes).u
        pull = float(np.einsum("ij,ij->", u, along)) / problem.rows
        return np.asarray(pull + inner + float(length) * square)

    below, _ = bracket_root(derivative, 0.0, 2.0, halvings=60)
    return float(below)


def _polish(
    problem: SoftmaxProblem, theta: FloatArray, state: _Pass, tolerance: float
) -> tuple[FloatArray, float]:
    """Newton steps with the gradient in extended precision, while they help."""
    bound = state.gradient_bound
    if not np.finfo(np.longdouble).eps < 2 * ROUNDOFF / 1000:
        return theta, bound
    try:
        factor = scipy.linalg.cho_factor(state.hessian)
    except scipy.linalg.LinAlgError:
        return theta, bound
    best = theta
    for _ in range(6):
        gradient, rounding = _long_gradient(problem, theta)
        here = _norm(gradient) * (1 + 1e-12) + rounding + UNDERFLOW
        if here < bound:
            best, bound = theta, here
        elif theta is not best:
            break
        if bound <= tolerance / 4:
            break
        theta = theta - scipy.linalg.cho_solve(factor, gradient)
    return best, bound


def _long_gradient(problem: SoftmaxProblem, theta: FloatArray) -> tuple[FloatArray, float]:
    """∇J in the platform's extended precision, rounded once at the end, and its error."""
    wide = np.longdouble
    unit = float(np.finfo(wide).eps)
    long_theta = theta.astype(wide)
    total: Array = np.zeros((problem.loss.classes, problem.columns), dtype=wide)
    size = evaluated = 0.0
    for block in problem.blocks():
        part, norms = problem.X[block].astype(wide), problem.norms[block]
        found = Residuals.of(part @ problem.matrix(long_theta).T, problem.codes[block])
        total += found.u.T @ part
        size += float(norms @ found.length)
        evaluated += float(norms @ found.rounding(unit))
    n, d, length, tilt = problem.rows, problem.columns, _norm(theta), _tilt(problem)
    wide_gradient = total.ravel() / n + problem.penalty * long_theta + tilt
    gradient = wide_gradient.astype(np.float64)
    rounding = evaluated / n + unit * (
        (n + 64) * size / n
        + (d + 2) * 0.5 * float(np.mean(problem.norms**2)) * length
        + 4 * problem.penalty * length
        + 4 * _norm(tilt)
    )
    return gradient, 2 * rounding + 2 * ROUNDOFF * _norm(gradient)


def _tilt(problem: SoftmaxProblem) -> FloatArray:
    return np.zeros(problem.dimension) if problem.linear is None else problem.linear


def _norm(vector: FloatArray) -> float:
    return float(np.linalg.norm(vector))
