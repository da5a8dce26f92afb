"""Losses of generalised linear models, with the bounds that the proofs use.

Conventions
-----------
z        the linear predictor x·θ; y the label (±1 for classification, real for regression).
f(z; y)  the loss of one row: ℓ(θ; x, y) = f(x·θ; y), so ∇ℓ = f′·x and ∇²ℓ = f″·x xᵀ.
Rows lie in the unit ball wherever a bound on the gradient or the solution is stated.

A loss is a frozen value. Its functions take arrays of any floating type and keep it, so that the
minimiser can be polished in extended precision.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from expost import _checks
from expost.errors import InvalidInput

__all__ = ["HuberHinge", "Logistic", "Loss", "Squared", "make_loss"]

Array: TypeAlias = NDArray[Any]


class Loss(Protocol):
    """What every loss offers, and the law they share: f convex, f′ its derivative, f″ ≥ 0.

    ``curvature_bound``   sup f″.
    ``third_ratio``       the least M with ∣f‴∣ ≤ M·f″ everywhere, or None where f‴ does not exist.
    ``is_classification`` whether y is ±1.
    """

    @property
    def name(self) -> str:
        """How users call it."""
        ...

    @property
    def is_classification(self) -> bool:
        """Whether labels are ±1."""
        ...

    @property
    def curvature_bound(self) -> float:
        """Sup f″."""
        ...

    @property
    def third_ratio(self) -> float | None:
        """Least M with ∣f‴∣ ≤ M f″, or None."""
        ...

    def value(self, z: Array, y: Array) -> Array:
        """F(z; y)."""
        ...

    def slope(self, z: Array, y: Array) -> Array:
        """F′(z; y)."""
        ...

    def curvature(self, z: Array, y: Array) -> Array:
        """F″(z; y)."""
        ...

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """(f′, f″), for little more than the price of one."""
        ...

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """F′(z + step; y) − f′(z; y), without cancellation."""
        ...

    def lipschitz(self, regularization: float) -> float:
        """L: a bound on ∥∇ℓ∥ at any minimiser of J on any rows in the unit ball."""
        ...

    def solution_bound(self, regularization: float) -> float:
        """A bound on ∥A∥ for any rows in the unit ball."""
        ...


@dataclass(frozen=True, kw_only=True)
class Logistic:
    """f = log(1 + e^(−yz)): ∣f′∣ ≤ 1, f″ ≤ 1/4, ∣f‴∣ ≤ f″, ∣f⁗∣ ≤ f″.

    With s = σ(yz): f″ = s(1−s), f‴ = ±f″(1−2s), f⁗ = f″(1 − 6s(1−s)).
    """

    name: ClassVar[str] = "logistic"
    is_classification: ClassVar[bool] = True
    curvature_bound: ClassVar[float] = 0.25
    third_ratio: ClassVar[float | None] = 1.0

    def value(self, z: Array, y: Array) -> Array:
        """Log(1 + e^(−yz))."""
        value: Array = np.logaddexp(0, -y * z)
        return value

    def slope(self, z: Array, y: Array) -> Array:
        """−y σ(−yz)."""
        return -y * expit(-y * z)

    def curvature(self, z: Array, y: Array) -> Array:
        """σ(z) σ(−z)."""
        return expit(z) * expit(-z)

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Both from q = σ(−∣z∣) ≤ ½, one exponential: 1 − q is as accurate as q."""
        small = expit(-np.abs(z))
        large = 1 - small
        chosen = np.where(y * z > 0, small, large)
        return -y * chosen, small * large

    def third(self, z: Array, y: Array) -> Array:
        """F‴ = f″·(1 − 2σ(z)); 1 − 2σ(z) = −tanh(z/2)."""
        return -self.curvature(z, y) * np.tanh(z / 2)

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """σ(z+a) − σ(z) = σ(z)σ(−z)·(e^a − 1) / (σ(−z) + σ(z)e^a) for ∣a∣ < 1.

        Past that the two values differ by a factor of at least e^(1/2) on the side of 0 where both
        are below ½, so there their difference does not cancel, and the product could underflow.
        """
        near = np.clip(step, -1.0, 1.0)
        up, down = expit(z), expit(-z)
        product = up * down * np.expm1(near) / (down + up * np.exp(near))
        left = expit(z + step) - up
        right = down - expit(-z - step)
        far = np.where(z + step / 2 < 0, left, right)
        return np.where(np.abs(step) < 1, product, far)

    def lipschitz(self, regularization: float) -> float:
        """1 on the unit ball."""
        return 1.0

    def solution_bound(self, regularization: float) -> float:
        """∥A∥ ≤ L/Λ from ∇J = 0, and (Λ/2)∥A∥² ≤ J(A) ≤ J(0) = log 2."""
        return min(1 / regularization, math.sqrt(2 * math.log(2) / regularization))


@dataclass(frozen=True, kw_only=True)
class HuberHinge:
    """The hinge smoothed by a parabola around its corner (Chaudhuri et al. 2011, Eq. 7).

    With u = yz and width h: 0 for u > 1+h, (1+h−u)²/(4h) for ∣1−u∣ ≤ h, 1−u for u < 1−h. Then
    ∣f′∣ ≤ 1 and f″ ≤ 1/(2h); f″ jumps at the knots u = 1 ± h, so there is no f‴.
    """

    width: float = 0.5

    name: ClassVar[str] = "huber-hinge"
    is_classification: ClassVar[bool] = True
    third_ratio: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        width = _checks.positive("width", self.width)
        if not width <= 1:
            raise InvalidInput(f"width={width!r}: must be at most 1.")
        object.__setattr__(self, "width", width)

    @property
    def curvature_bound(self) -> float:
        """1/(2h)."""
        return 1 / (2 * self.width)

    def value(self, z: Array, y: Array) -> Array:
        """The three pieces."""
        gap = 1 + self.width - y * z
        parabola = gap * gap / (4 * self.width)
        return np.where(gap <= 0, 0, np.where(gap >= 2 * self.width, gap - self.width, parabola))

    def slope(self, z: Array, y: Array) -> Array:
        """−y·clip((1+h−u)/(2h), 0, 1)."""
        return -y * np.clip((1 + self.width - y * z) / (2 * self.width), 0, 1)

    def curvature(self, z: Array, y: Array) -> Array:
        """1/(2h) between the knots."""
        return np.where(np.abs(1 - y * z) < self.width, self.curvature_bound, 0.0)

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """(f′, f″)."""
        return self.slope(z, y), self.curvature(z, y)

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """Integral of f″ over [u, u + y·step]: the overlap with (1−h, 1+h)."""
        u, move = y * z, y * step
        start = np.clip(u - 1, -self.width, self.width)
        # (u − 1) + move would lose a tiny move; inside the parabola it is kept exactly.
        low = np.maximum(np.minimum(move, self.width - (u - 1)), -self.width - (u - 1))
        inside = np.abs(u - 1) <= self.width
        end = np.clip((u - 1) + move, -self.width, self.width)
        overlap = np.where(inside, low, end - start)
        increment: Array = y * overlap * self.curvature_bound
        return increment

    def knot_distance(self, z: Array, y: Array) -> Array:
        """How far z may move before f″ changes."""
        distance: Array = np.abs(np.abs(1 - y * z) - self.width)
        return distance

    def lipschitz(self, regularization: float) -> float:
        """1 on the unit ball."""
        return 1.0

    def solution_bound(self, regularization: float) -> float:
        """∥A∥ ≤ L/Λ, and (Λ/2)∥A∥² ≤ J(0) = f(0) = 1 (for h ≤ 1; (1+h)²/(4h) = 1 at h = 1)."""
        return min(1 / regularization, math.sqrt(2 / regularization))


@dataclass(frozen=True, kw_only=True)
class Squared:
    """f = (z − y)²/2 with ∣y∣ ≤ ``label_bound`` Y: f″ = 1, f‴ = 0; Lipschitz only near minimisers.

    With singular values s of X/√n (s ≤ 1: rows in the unit ball), A = V diag(s/(s² + Λ)) Uᵀy/√n,
    so ∥A∥ ≤ Y·max s/(s² + Λ) over s ≤ 1 = Y/(2√Λ) for Λ ≤ 1 and Y/(1 + Λ) beyond; and
    ∥∇ℓ∥ = ∣z − y∣∥x∥ ≤ Y + ∥A∥.
    """

    label_bound: float

    name: ClassVar[str] = "squared"
    is_classification: ClassVar[bool] = False
    curvature_bound: ClassVar[float] = 1.0
    third_ratio: ClassVar[float | None] = 0.0

    def __post_init__(self) -> None:
        bound = _checks.positive("label_bound", self.label_bound)
        if not bound <= 1e100:
            raise InvalidInput(f"label_bound={bound!r}: must be at most 1e100; rescale the labels.")
        object.__setattr__(self, "label_bound", bound)

    def value(self, z: Array, y: Array) -> Array:
        """(z − y)²/2."""
        gap: Array = z - y
        return gap * gap / 2

    def slope(self, z: Array, y: Array) -> Array:
        """Z − y."""
        gap: Array = z - y
        return gap

    def curvature(self, z: Array, y: Array) -> Array:
        """1."""
        return np.ones_like(z)

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """(f′, f″)."""
        return self.slope(z, y), self.curvature(z, y)

    def increment(self, z: Array, y: Array, step: Array) -> Array:
        """The step itself."""
        return step

    def lipschitz(self, regularization: float) -> float:
        """Y + sup∥A∥."""
        return self.label_bound + self.solution_bound(regularization)

    def solution_bound(self, regularization: float) -> float:
        """Y·max over s ≤ 1 of s/(s² + Λ)."""
        if regularization <= 1:
            return self.label_bound / (2 * math.sqrt(regularization))
        return self.label_bound / (1 + regularization)


def make_loss(name: str | Loss, *, label_bound: float | None = None, width: float = 0.5) -> Loss:
    """The loss that ``name`` names; ``label_bound`` is needed by the squared loss alone."""
    if isinstance(name, Logistic | HuberHinge | Squared):
        return name
    match _checks.one_of("loss", name, ("logistic", "huber-hinge", "squared")):
        case "logistic":
            return Logistic()
        case "huber-hinge":
            return HuberHinge(width=width)
        case _:
            if label_bound is None:
                raise InvalidInput(
                    "label_bound=None: the squared loss needs a bound on ∣y∣; give one that you"
                    " know without the data."
                )
            return Squared(label_bound=label_bound)
