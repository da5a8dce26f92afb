"""Losses of generalised linear models of one or several outputs, with the bounds of the proofs.

Conventions
-----------
q        the number of outputs: 1, or the number K of classes for softmax regression.
z        the linear predictors of a row: x·θ where q = 1, else Θx (q,), θ being Θ (q, d) flattened.
y        the label: ±1 for two classes, a class counted from 0 for softmax, real for regression.
f(z; y)  the loss of one row, with u = ∇f (q,) and S = ∇²f (q, q): ∇ℓ = u ⊗ x and ∇²ℓ = S ⊗ x xᵀ.
         Where q = 1 these are f′·x and f″·x xᵀ, and arrays have no axis for the output.
Rows lie in the unit ball wherever a bound on the gradient or the solution is stated.

A loss is a frozen value. Its functions take arrays of any floating type and keep it, so that the
minimiser can be polished in extended precision.

Softmax (E and Var are over k ~ p = softmax(z); range(w) = max w − min w ≤ √2∥w∥)
---------------------------------------------------------------------------------
f          log Σₖ e^(zₖ) − z_y, u = p − e_y, S = diag p − p pᵀ. S is singular along (1, …, 1):
           only a penalty Λ > 0 makes the minimiser unique.
gradient   ∥u∥² = (1 − p_y)² + Σ over k ≠ y of pₖ² ≤ 2(1 − p_y)² ≤ 2.
curvature  wᵀSw = Var(w) ≤ range(w)²/4 ≤ ∥w∥²/2 (Popoviciu).
volume     S has an eigenvalue 0 and K − 1 others of sum 1 − ∥p∥² ≤ 1 − 1/K, so by the concavity of
           the logarithm log det(I + tS) ≤ (K − 1)·log(1 + t/K), with equality at p = 1/K.
third      the derivative of wᵀS(z + sh)w in s is E[(w − Ew)²(h − Eh)], at most range(h)·Var(w) in
           size, so S(z + h) lies between e^(±√2∥h∥)·S(z): where Θ moves by Δ, all ∇²ℓ keep
           within a factor of e^(±√2∥x∥∥Δ∥) (the binary logistic loss has 1 for √2).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from expost import _checks
from expost._numerics import ROUNDOFF, gamma, weighted_gram
from expost.errors import InvalidInput
from expost.files.sealed import OPTIONAL
from expost.types import FloatArray, IntArray

__all__ = [
    "LOSSES",
    "Derivatives",
    "Huber",
    "HuberHinge",
    "Kinked",
    "Logistic",
    "Loss",
    "ScalarDerivatives",
    "Softmax",
    "SoftmaxDerivatives",
    "Squared",
    "default_margin",
    "make_loss",
]

Array: TypeAlias = NDArray[Any]

# Roundings of one evaluation of f, f′ or f″ (a few operations and one exponential).
_EVALUATION = 16
# Roundings of p relative to itself: of exp(t) with t down to −745, of the sum and the quotient.
_EXPONENTIAL = 1600
# The largest margin a: e^a times the least number of float64 is still negligible.
_LARGEST_MARGIN = 100.0


class Derivatives(Protocol):
    """The derivatives u = ∇f and S = ∇²f of some rows, and the sums that a pass forms of them."""

    @property
    def slope(self) -> Array:
        """The gradients u: (m,) where q = 1, else (m, q)."""
        ...

    @property
    def length(self) -> FloatArray:
        """The norms ∥u∥ (m,)."""
        ...

    @property
    def steepness(self) -> FloatArray:
        """A bound (m,) on the largest eigenvalue of S; where q = 1, f″ itself."""
        ...

    def rounding(self, label_size: float) -> FloatArray:
        """Bound the error of each computed u at the given predictors."""
        ...

    def long_rounding(self, unit: float, label_size: float) -> FloatArray | float:
        """Bound the error of u beyond 64 roundings of u itself, with ``unit`` as roundoff."""
        ...

    def curvature_sum(self, X: FloatArray) -> FloatArray:
        """Return Σ S ⊗ x xᵀ (q·d, q·d) over the rows X."""
        ...

    def roots(self) -> FloatArray:
        """Return R (m, q, q) with S = RRᵀ."""
        ...

    def take(self, index: IntArray) -> "Derivatives":
        """Return the derivatives of some of the rows."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class ScalarDerivatives:
    """The derivatives f′ and f″ of some rows of a loss with one output."""

    slope: Array
    curvature: Array
    is_classification: bool

    @property
    def length(self) -> FloatArray:
        """The sizes ∣f′∣."""
        return np.abs(self.slope)

    @property
    def steepness(self) -> FloatArray:
        """The second derivatives f″."""
        return self.curvature

    def rounding(self, label_size: float) -> FloatArray:
        """Bound the error of each computed f′; the error of z − y includes one of the label."""
        size = self.length if self.is_classification else self.length + label_size
        return _EVALUATION * ROUNDOFF * size

    def long_rounding(self, unit: float, label_size: float) -> float:
        """Bound the error that the label adds; the 64 roundings of f′ cover the rest."""
        return 0.0 if self.is_classification else 64 * unit * label_size

    def curvature_sum(self, X: FloatArray) -> FloatArray:
        """Return Σ f″x xᵀ."""
        return weighted_gram(X, self.curvature)

    def roots(self) -> FloatArray:
        """Return √f″ (m, 1, 1)."""
        roots: FloatArray = np.sqrt(self.curvature)[:, None, None]
        return roots

    def take(self, index: IntArray) -> "ScalarDerivatives":
        """Return the derivatives of some of the rows."""
        return replace(self, slope=self.slope[index], curvature=self.curvature[index])


class Loss(Protocol):
    """A loss f that is convex, with its derivative f′ and f″ ≥ 0."""

    @property
    def name(self) -> str:
        """The name of the loss in the API."""
        ...

    @property
    def outputs(self) -> int:
        """The number q of linear predictors of a row."""
        ...

    @property
    def is_classification(self) -> bool:
        """Whether labels are ±1 or classes."""
        ...

    @property
    def likelihood(self) -> "Loss | None":
        """The loss that is −log of the predicted probability of y; None where there is none."""
        ...

    @property
    def has_bounded_slope(self) -> bool:
        """Whether ∥∇f∥ is bounded over all predictors."""
        ...

    @property
    def label_bound(self) -> float | None:
        """The bound Y with ∣y∣ ≤ Y of a regression; None for classes."""
        ...

    @property
    def curvature_bound(self) -> float:
        """The bound sup f″; for q outputs, on the largest eigenvalue of ∇²f."""
        ...

    @property
    def third_ratio(self) -> float | None:
        """The least M with ∣f‴∣ ≤ M·f″ everywhere, or None where f‴ does not exist."""
        ...

    @property
    def determinant(self) -> tuple[int, float]:
        """The pair (r, c) with log det(I + t·∇²f) ≤ r·log(1 + c·t), t ≥ 0; r·c bounds the trace."""
        ...

    @property
    def vertices(self) -> int:
        """The number of vectors whose convex hull with 0 contains ∇f, for a given label."""
        ...

    @property
    def curvature_rounding(self) -> float:
        """The log of the factor by which the computed ∇²f may differ from the exact one."""
        ...

    def value(self, z: Array, y: Array) -> Array:
        """Return f(z; y)."""
        ...

    def slope(self, z: Array, y: Array) -> Array:
        """Return f′(z; y)."""
        ...

    def curvature(self, z: Array, y: Array) -> Array:
        """Return f″(z; y)."""
        ...

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return (f′, f″), at little more than the cost of one of them."""
        ...

    def at(self, z: Array, y: Array) -> Derivatives:
        """Return both derivatives, with their rounding errors and sums."""
        ...

    def check_labels(self, y: FloatArray) -> None:
        """Refuse labels for which f is not defined."""
        ...

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """Return f′(z + step; y) − f′(z; y), without cancellation."""
        ...

    def lipschitz(self, regularization: float) -> float:
        """Return L, a bound on ∥∇ℓ∥ at any minimiser of J on any rows in the unit ball."""
        ...

    def solution_bound(self, regularization: float) -> float:
        """Return a bound on ∥A∥ for any rows in the unit ball."""
        ...


class _Scalar(ABC):
    """A loss with one output."""

    outputs: ClassVar[int] = 1
    is_classification: ClassVar[bool] = True
    vertices: ClassVar[int] = 1
    curvature_rounding: ClassVar[float] = 2 * _EVALUATION * ROUNDOFF

    @property
    def curvature_bound(self) -> float:
        """The bound sup f″."""
        raise NotImplementedError

    @property
    def determinant(self) -> tuple[int, float]:
        """The pair (1, sup f″)."""
        return 1, self.curvature_bound

    @abstractmethod
    def slope(self, z: Array, y: Array) -> Array:
        """Return f′(z; y)."""

    @abstractmethod
    def curvature(self, z: Array, y: Array) -> Array:
        """Return f″(z; y)."""

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return (f′, f″)."""
        return self.slope(z, y), self.curvature(z, y)

    def at(self, z: Array, y: Array) -> ScalarDerivatives:
        """Return f′ and f″, with their rounding errors and sums."""
        slope, curvature = self.derivatives(z, y)
        return ScalarDerivatives(
            slope=slope, curvature=curvature, is_classification=self.is_classification
        )

    def check_labels(self, y: FloatArray) -> None:  # noqa: B027 (no label is refused by default)
        """Accept every label: f is defined for all numbers."""


@dataclass(frozen=True, kw_only=True)
class Logistic(_Scalar):
    """The logistic loss f = log(1 + e^(a − yz)) of margin a.

    Bounds: ∣f′∣ ≤ 1, f″ ≤ 1/4, ∣f‴∣ ≤ f″, ∣f⁗∣ ≤ f″.

    With w = z − ya it is the loss of margin 0 at w. With s = σ(yw): f″ = s(1−s), f‴ = ±f″(1−2s),
    f⁗ = f″(1 − 6s(1−s)). w is not formed where f′ and f″ are needed to a few roundings of
    themselves: it is one rounding off, which is ∣w∣ of them in e^(−∣w∣).
    """

    margin: float = field(default=0.0, metadata=OPTIONAL)

    name: ClassVar[str] = "logistic"
    has_bounded_slope: ClassVar[bool] = True
    label_bound: ClassVar[float | None] = None
    curvature_bound: ClassVar[float] = 0.25
    third_ratio: ClassVar[float | None] = 1.0

    def __post_init__(self) -> None:
        margin = _checks.between("margin", self.margin, 0.0, _LARGEST_MARGIN)
        object.__setattr__(self, "margin", margin)

    @property
    def likelihood(self) -> Loss:
        """The loss of margin 0: predictions are σ(z) for any margin."""
        return self if not self.margin else Logistic()

    def _odds(self, z: Array, y: Array) -> Array:
        """Return e^(−∣z∣) times e^a where yz > 0, else times e^(−a): e^(±(yz − a))."""
        factor = np.exp(np.asarray(self.margin, dtype=np.asarray(z).dtype))
        near = np.exp(-np.abs(z))
        odds: Array = np.where(y * z > 0, near * factor, near / factor)
        return odds

    def _shares(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return (σ(a − yz), σ(yz − a)), each to a few roundings of itself."""
        odds, beyond = self._odds(z, y), y * z > 0
        part, rest = odds / (1 + odds), 1 / (1 + odds)
        return np.where(beyond, part, rest), np.where(beyond, rest, part)

    def value(self, z: Array, y: Array) -> Array:
        """Return log(1 + e^(a − yz))."""
        value: Array
        if not self.margin:
            value = np.logaddexp(0, -y * z)
        else:
            value = np.log1p(self._odds(z, y)) + np.where(y * z > 0, 0, self.margin - y * z)
        return value

    def slope(self, z: Array, y: Array) -> Array:
        """Return −y σ(a − yz)."""
        share = self._shares(z, y)[0] if self.margin else expit(-y * z)
        return -y * share

    def curvature(self, z: Array, y: Array) -> Array:
        """Return σ(w) σ(−w)."""
        return self.derivatives(z, y)[1] if self.margin else expit(z) * expit(-z)

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return (f′, f″) from one exponential: for q = σ(−∣z∣) ≤ ½, 1 − q is as accurate as q.

        q = e/(1 + e) with e = e^(−∣z∣) is four roundings of e, 1 + e and the quotient off, like
        1 − q; ``expit`` itself takes longer than all of this.
        """
        if self.margin:
            share, rest = self._shares(z, y)
            # Rounding must not exceed the bound.
            return -y * share, np.minimum(share * rest, self.curvature_bound)
        small = np.exp(-np.abs(z))
        small = small / (1 + small)
        large = 1 - small
        chosen = np.where(y * z > 0, small, large)
        return -y * chosen, small * large

    def third(self, z: Array, y: Array) -> Array:
        """Return f‴ = f″·(1 − 2σ(w)), with 1 − 2σ(w) = −tanh(w/2)."""
        return -self.curvature(z, y) * np.tanh(self._shifted(z, y) / 2)

    def _shifted(self, z: Array, y: Array) -> Array:
        """Return w = z − ya."""
        shifted: Array = z - y * self.margin if self.margin else z
        return shifted

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """Return σ(w+s) − σ(w) = σ(w)σ(−w)·(e^s − 1) / (σ(−w) + σ(w)e^s) for ∣s∣ < 1.

        For larger steps the two values differ by a factor of at least e^(1/2) on the side of 0
        where both are below ½. Their difference does not cancel there, and the product could
        underflow.
        """
        near = np.clip(step, -1.0, 1.0)
        up, down = self._sides(z, y)
        product: Array = up * down * np.expm1(near) / (down + up * np.exp(near))
        if np.all(np.abs(step) < 1):
            return product
        above, below = self._sides(z + step, y)
        far = np.where(self._shifted(z, y) + step / 2 < 0, above - up, down - below)
        return np.where(np.abs(step) < 1, product, far)

    def _sides(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return (σ(w), σ(−w))."""
        if not self.margin:
            return expit(z), expit(-z)
        share, rest = self._shares(z, y)
        return np.where(y > 0, rest, share), np.where(y > 0, share, rest)

    def lipschitz(self, regularization: float) -> float:
        """Return 1 on the unit ball."""
        return 1.0

    def solution_bound(self, regularization: float) -> float:
        """Return the bound by ∥A∥ ≤ L/Λ from ∇J = 0 and (Λ/2)∥A∥² ≤ J(A) ≤ J(0) = log(1 + e^a)."""
        start = math.log(2) if not self.margin else math.log1p(math.exp(self.margin))
        return min(1 / regularization, math.sqrt(2 * start / regularization))


class Kinked(_Scalar):
    """A loss whose f″ is ``curvature_bound`` between two knots and 0 beyond them: no f‴."""

    width: float
    third_ratio: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        width = _checks.positive("width", self.width)
        if not width <= 1:
            raise InvalidInput(f"width={width!r}: must be at most 1.")
        object.__setattr__(self, "width", width)

    @abstractmethod
    def beyond(self, z: Array, y: Array) -> Array:
        """Return the distance of z beyond the nearer knot; negative between the knots."""

    def curvature(self, z: Array, y: Array) -> Array:
        """Return ``curvature_bound`` between the knots."""
        return np.where(self.beyond(z, y) < 0, self.curvature_bound, 0.0)

    def knot_distance(self, z: Array, y: Array) -> Array:
        """Return the distance that z may move before f″ changes."""
        distance: Array = np.abs(self.beyond(z, y))
        return distance


@dataclass(frozen=True, kw_only=True)
class HuberHinge(Kinked):
    """The hinge smoothed by a parabola around its corner (Chaudhuri et al. 2011, Eq. 7).

    With u = yz and width h: 0 for u > 1+h, (1+h−u)²/(4h) for ∣1−u∣ ≤ h, 1−u for u < 1−h. Then
    ∣f′∣ ≤ 1 and f″ ≤ 1/(2h); f″ jumps at the knots u = 1 ± h, so there is no f‴.
    """

    width: float = 0.5

    name: ClassVar[str] = "huber-hinge"
    likelihood: ClassVar[Loss | None] = None
    has_bounded_slope: ClassVar[bool] = True
    label_bound: ClassVar[float | None] = None

    @property
    def curvature_bound(self) -> float:
        """The bound 1/(2h)."""
        return 1 / (2 * self.width)

    def value(self, z: Array, y: Array) -> Array:
        """Return f, which has three pieces."""
        gap = 1 + self.width - y * z
        parabola = gap * gap / (4 * self.width)
        return np.where(gap <= 0, 0, np.where(gap >= 2 * self.width, gap - self.width, parabola))

    def slope(self, z: Array, y: Array) -> Array:
        """Return −y·clip((1+h−u)/(2h), 0, 1)."""
        return -y * np.clip((1 + self.width - y * z) / (2 * self.width), 0, 1)

    def beyond(self, z: Array, y: Array) -> Array:
        """Return ∣1 − yz∣ − h."""
        beyond: Array = np.abs(1 - y * z) - self.width
        return beyond

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """Return the integral of f″ over [u, u + y·step]: its overlap with (1−h, 1+h)."""
        u, move = y * z, y * step
        start = np.clip(u - 1, -self.width, self.width)
        # (u − 1) + move would lose a tiny move; inside the parabola it is kept exactly.
        low = np.maximum(np.minimum(move, self.width - (u - 1)), -self.width - (u - 1))
        inside = np.abs(u - 1) <= self.width
        end = np.clip((u - 1) + move, -self.width, self.width)
        overlap = np.where(inside, low, end - start)
        increment: Array = y * overlap * self.curvature_bound
        return increment

    def lipschitz(self, regularization: float) -> float:
        """Return 1 on the unit ball."""
        return 1.0

    def solution_bound(self, regularization: float) -> float:
        """Return the bound by ∥A∥ ≤ L/Λ and (Λ/2)∥A∥² ≤ J(0) = f(0) = 1.

        f(0) = 1 holds for h ≤ 1; (1+h)²/(4h) = 1 at h = 1.
        """
        return min(1 / regularization, math.sqrt(2 / regularization))


@dataclass(frozen=True, kw_only=True)
class Huber(Kinked):
    """Huber's loss of a regression with ∣y∣ ≤ 1: (z − y)²/2 up to ∣z − y∣ = h, then linear.

    ∣f′∣ ≤ h and f″ ≤ 1; f″ jumps at the knots ∣z − y∣ = h, so there is no f‴. f′ has both signs
    for any label: it lies between the two ``vertices`` −h and h.
    """

    width: float = 0.5

    name: ClassVar[str] = "huber"
    is_classification: ClassVar[bool] = False
    likelihood: ClassVar[Loss | None] = None
    has_bounded_slope: ClassVar[bool] = True
    label_bound: ClassVar[float | None] = 1.0
    curvature_bound: ClassVar[float] = 1.0
    vertices: ClassVar[int] = 2

    def value(self, z: Array, y: Array) -> Array:
        """Return f, a parabola continued by two lines."""
        gap = np.abs(z - y)
        near = np.minimum(gap, self.width)
        value: Array = near * (gap - near / 2)
        return value

    def slope(self, z: Array, y: Array) -> Array:
        """Return z − y, clipped to ±h."""
        slope: Array = np.clip(z - y, -self.width, self.width)
        return slope

    def beyond(self, z: Array, y: Array) -> Array:
        """Return ∣z − y∣ − h."""
        beyond: Array = np.abs(z - y) - self.width
        return beyond

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """Return the integral of f″ over the step: its overlap with (y − h, y + h)."""
        gap = z - y
        # gap + step would lose a tiny step; inside the parabola it is kept exactly.
        inner = np.maximum(np.minimum(step, self.width - gap), -self.width - gap)
        outer = self.slope(gap + step, np.zeros_like(gap)) - self.slope(z, y)
        return np.where(np.abs(gap) <= self.width, inner, outer)

    def lipschitz(self, regularization: float) -> float:
        """Return the width, on the unit ball."""
        return self.width

    def solution_bound(self, regularization: float) -> float:
        """Return the bound by ∥A∥ ≤ L/Λ and (Λ/2)∥A∥² ≤ J(0) ≤ sup f(0) = h(1 − h/2)."""
        most = self.width * (1 - self.width / 2)
        return min(self.width / regularization, math.sqrt(2 * most / regularization))


@dataclass(frozen=True, kw_only=True)
class Squared(_Scalar):
    """The squared loss f = (z − y)²/2, ∣y∣ ≤ ``label_bound`` Y: f″ = 1, f‴ = 0.

    It is Lipschitz only near minimisers.

    With singular values s of X/√n (s ≤ 1: rows in the unit ball), A = V diag(s/(s² + Λ)) Uᵀy/√n,
    so ∥A∥ ≤ Y·max s/(s² + Λ) over s ≤ 1 = Y/(2√Λ) for Λ ≤ 1 and Y/(1 + Λ) beyond; and
    ∥∇ℓ∥ = ∣z − y∣∥x∥ ≤ Y + ∥A∥.
    """

    label_bound: float

    name: ClassVar[str] = "squared"
    is_classification: ClassVar[bool] = False
    likelihood: ClassVar[Loss | None] = None
    has_bounded_slope: ClassVar[bool] = False
    curvature_bound: ClassVar[float] = 1.0
    third_ratio: ClassVar[float | None] = 0.0

    def __post_init__(self) -> None:
        bound = _checks.positive("label_bound", self.label_bound)
        if not bound <= 1e100:
            raise InvalidInput(f"label_bound={bound!r}: must be at most 1e100; rescale the labels.")
        object.__setattr__(self, "label_bound", bound)

    def value(self, z: Array, y: Array) -> Array:
        """Return (z − y)²/2."""
        gap: Array = z - y
        return gap * gap / 2

    def slope(self, z: Array, y: Array) -> Array:
        """Return z − y."""
        gap: Array = z - y
        return gap

    def curvature(self, z: Array, y: Array) -> Array:
        """Return f″ = 1."""
        return np.ones_like(z)

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """Return the step itself."""
        return step

    def lipschitz(self, regularization: float) -> float:
        """Return Y + sup∥A∥."""
        return self.label_bound + self.solution_bound(regularization)

    def solution_bound(self, regularization: float) -> float:
        """Return Y·max over s ≤ 1 of s/(s² + Λ)."""
        if regularization <= 1:
            return self.label_bound / (2 * math.sqrt(regularization))
        return self.label_bound / (1 + regularization)


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxDerivatives:
    """The probabilities p and u = p − e_y of some rows (m, K), each accurate to a few roundings.

    Parameters
    ----------
    rest : Array
        1 − pₖ, as the sum of the others: it does not cancel where pₖ is near 1.
    slope : Array
        u.
    drift : Array
        (m,) Σ pₖ∣tₖ∣ with tₖ = zₖ − max z, the total effect of the rounding of t.
    """

    p: Array
    rest: Array
    slope: Array
    drift: Array

    @classmethod
    def of(cls, z: Array, codes: IntArray) -> "SoftmaxDerivatives":
        """Evaluate at the predictors (m, K) of rows of the classes (m,)."""
        t = z - z.max(axis=1, keepdims=True)
        p = np.exp(t)
        p /= p.sum(axis=1, keepdims=True)
        rest = p @ (1 - np.eye(p.shape[1], dtype=p.dtype))
        u, each = p.copy(), np.arange(len(p))
        u[each, codes] = -rest[each, codes]
        return cls(p=p, rest=rest, slope=u, drift=-np.einsum("ij,ij->i", p, t))

    @cached_property
    def length(self) -> FloatArray:
        """The norms ∥u∥."""
        norms: FloatArray = np.sqrt(np.einsum("ij,ij->i", self.slope, self.slope)).astype(
            np.float64
        )
        return norms

    @cached_property
    def trace(self) -> FloatArray:
        """The trace tr S = Σ pₖ(1 − pₖ), which no eigenvalue of S exceeds."""
        trace: FloatArray = np.einsum("ij,ij->i", self.p, self.rest).astype(np.float64)
        return trace

    @property
    def steepness(self) -> FloatArray:
        """The bound 2·tr S, which also holds for S at the rounded p."""
        return 2 * self.trace

    def rounding(self, label_size: float = 0.0) -> FloatArray:
        """Bound the error of u at the given z."""
        return self.long_rounding(ROUNDOFF)

    def long_rounding(self, unit: float, label_size: float = 0.0) -> FloatArray:
        """Bound the error of u at the given z, with ``unit`` as roundoff.

        tₖ is off by ∣tₖ∣·unit, which makes the exponential off by as much relatively, and the
        exponential, the sum and the quotient by K + 10 roundings: pₖ is off by pₖ(∣tₖ∣ + drift +
        K + 10) units, and the entry of y by no more than the others together.
        """
        missed = 0.5 * np.abs(self.slope).sum(axis=1).astype(np.float64)
        drift = self.drift.astype(np.float64)
        terms = 2 * self.slope.shape[1] + 40
        bound: FloatArray = 2 * unit * (drift + missed * (drift + terms))
        return bound

    def curvature_sum(self, X: FloatArray) -> FloatArray:
        """Return Σ S ⊗ x xᵀ (K·d, K·d): products for the blocks on and above the diagonal."""
        K, d = self.p.shape[1], X.shape[1]
        total = np.empty((K, d, K, d))
        for a in range(K):
            total[a, :, a] = (X * (self.p[:, a] * self.rest[:, a])[:, None]).T @ X
            for b in range(a + 1, K):
                total[a, :, b] = -((X * (self.p[:, a] * self.p[:, b])[:, None]).T @ X)
                total[b, :, a] = total[a, :, b].T
        return total.reshape(K * d, K * d)

    def roots(self) -> FloatArray:
        """Return R = √P·Π (m, K, K), P = diag p, with the projection Π = I − √p√pᵀ.

        Π has 1 − pₖ on its diagonal, which is summed and not subtracted.
        """
        root = np.sqrt(self.p)
        projection = -root[:, :, None] * root[:, None, :]
        classes = np.arange(root.shape[1])
        projection[:, classes, classes] = self.rest
        roots: FloatArray = root[:, :, None] * projection
        return roots

    def take(self, index: IntArray) -> "SoftmaxDerivatives":
        """Return the derivatives of some of the rows."""
        return SoftmaxDerivatives(
            p=self.p[index],
            rest=self.rest[index],
            slope=self.slope[index],
            drift=self.drift[index],
        )


@dataclass(frozen=True, kw_only=True)
class Softmax:
    """The softmax loss f = log Σ e^(zₖ) − z_y of ``classes`` K; the module states its bounds.

    z (m, K) holds one predictor per class and y (m,) the class, 0 … K − 1.
    """

    classes: int

    name: ClassVar[str] = "softmax"
    is_classification: ClassVar[bool] = True
    has_bounded_slope: ClassVar[bool] = True
    label_bound: ClassVar[float | None] = None
    curvature_bound: ClassVar[float] = 0.5
    third_ratio: ClassVar[float | None] = math.sqrt(2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", _checks.integer("classes", self.classes, least=2))

    @property
    def outputs(self) -> int:
        """The number K of classes."""
        return self.classes

    @property
    def likelihood(self) -> Loss:
        """The loss itself: predictions are softmax(z)."""
        return self

    @property
    def determinant(self) -> tuple[int, float]:
        """The pair (K − 1, 1/K)."""
        return self.classes - 1, 1 / self.classes

    @property
    def vertices(self) -> int:
        """The number K − 1: one vector eₖ − e_y for every other class."""
        return self.classes - 1

    @property
    def curvature_rounding(self) -> float:
        """Four relative errors of p: each has the effect of an equal change of z."""
        return 4 * gamma(_EXPONENTIAL + self.classes)

    def at(self, z: Array, y: Array) -> SoftmaxDerivatives:
        """Return p and u, with their rounding errors and sums."""
        return SoftmaxDerivatives.of(z, self._codes(z, y))

    def check_labels(self, y: FloatArray) -> None:
        """Refuse labels that are not classes from 0 to K − 1."""
        with np.errstate(invalid="ignore"):
            codes = y.astype(np.int64)
        if not (np.array_equal(codes, y) and np.all((codes >= 0) & (codes < self.classes))):
            raise InvalidInput(f"y: must hold classes from 0 to {self.classes - 1}.")

    def _codes(self, z: Array, y: Array) -> IntArray:
        if not (z.ndim == 2 and z.shape[1] == self.classes and y.shape == (len(z),)):
            raise InvalidInput(
                f"z: softmax of {self.classes} classes needs an array of {self.classes} predictors"
                " for each row."
            )
        return y.astype(np.int64)

    def value(self, z: Array, y: Array) -> Array:
        """Return log Σ e^(zₖ) − z_y (n,)."""
        top, chosen = z.max(axis=1), z[np.arange(len(z)), self._codes(z, y)]
        value: Array = np.log(np.exp(z - top[:, None]).sum(axis=1)) + (top - chosen)
        return value

    def slope(self, z: Array, y: Array) -> Array:
        """Return u = p − e_y (n, K)."""
        return self.at(z, y).slope

    def curvature(self, z: Array, y: Array) -> Array:
        """Return S = diag p − p pᵀ (n, K, K)."""
        return self.derivatives(z, y)[1]

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return (u, S)."""
        here = self.at(z, y)
        curvature = -here.p[:, :, None] * here.p[:, None, :]
        classes = np.arange(self.classes)
        curvature[:, classes, classes] = here.p * here.rest
        return here.slope, curvature

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """Return p(z + a) − p(z), by p·(e^(a − c) − 1), c = log E[e^a], where ∣a∣ < 1."""
        p = self.at(z, y).p
        near = np.clip(step, -1.0, 1.0)
        mean = np.log1p(np.einsum("ij,ij->i", p, np.expm1(near)))
        far = self.at(z + step, y).p - p
        small = np.abs(step).max(axis=1, keepdims=True) < 1
        return np.where(small, p * np.expm1(near - mean[:, None]), far)

    def lipschitz(self, regularization: float) -> float:
        """Return √2 on the unit ball."""
        return math.sqrt(2)

    def solution_bound(self, regularization: float) -> float:
        """Return the bound by ∥A∥ ≤ √2/Λ from ∇J = 0 and (Λ/2)∥A∥² ≤ J(0) = log K."""
        return min(
            math.sqrt(2) / regularization, math.sqrt(2 * math.log(self.classes) / regularization)
        )


def default_margin(noise_ratio: float) -> float:
    """Return clip(3 + log₁₀ r, 0, 3): 0 for models near a non-private one, 3 from r = 1 on."""
    return min(max(3 + math.log10(max(noise_ratio, 1e-300)), 0.0), 3.0)


# By their names, which model.json holds too. A new loss is one more entry.
LOSSES: dict[str, type[Loss]] = {
    kind.name: kind for kind in (Logistic, HuberHinge, Huber, Squared, Softmax)
}


def make_loss(
    name: str | Loss, *, label_bound: float | None = None, width: float = 0.5, margin: float = 0.0
) -> Loss:
    """Return a loss by its name.

    Parameters
    ----------
    name : str | Loss
        "logistic", "huber-hinge", "huber" or "squared"; a loss is returned as it is.
    label_bound : float, optional
        The bound on ∣y∣, for the squared loss only.
    width : float, default=0.5
        The width h of the two Huber losses.
    margin : float, default=0.0
        The margin a of the logistic loss.

    Raises
    ------
    InvalidInput
        If the name is unknown, or the squared loss has no ``label_bound``.
    """
    if isinstance(name, Logistic | HuberHinge | Huber | Squared):
        return name
    match _checks.one_of("loss", name, ("logistic", "huber-hinge", "huber", "squared")):
        case "logistic":
            return Logistic(margin=margin)
        case "huber-hinge":
            return HuberHinge(width=width)
        case "huber":
            return Huber(width=width)
        case _:
            if label_bound is None:
                raise InvalidInput(
                    "label_bound=None: the squared loss needs a bound on ∣y∣; give one that does"
                    " not depend on the data."
                )
            return Squared(label_bound=label_bound)
