"""What a data-dependent privacy report releases, and what that spends (R&W Algorithm 2, Thm 10).

Conventions
-----------
g, H   ∇J(θ; D) and ∇²J(θ; D) of the summed objective at the released θ (``tangent``).
ξ      how steep a row can be at θ: ∣f′∣ is largest at the worst margin that the unit ball allows,
       so ∥∇ℓ∥ ≤ ∣f′(−∥θ∥; Y)∣ with Y = 1 or the label bound. θ is public by then, which is why
       this may depend on it, and why the squared loss has a ξ here.
c      sup f″, so ∇²ℓ = f″·x xᵀ has Frobenius norm at most c.
GOE(d) (M + Mᵀ)/√2 for M of independent normals: variance 1 off the diagonal, 2 on it. Its density
       at a symmetric matrix S is ∝ exp(−∥S∥²_F/4).

Formal guarantees
-----------------
ĝ = g + N(0, σ₂²I)      one row more or less moves g by ∇ℓ(θ), so its privacy loss is that of a
                        Gaussian mechanism with μ₂ = ∥∇ℓ∥/σ₂ ≤ ξ/σ₂.
Ĥ = H + σ₃·GOE(d)       a shift S has the loss N(∥S∥²_F/(4σ₃²), ∥S∥²_F/(2σ₃²)): a Gaussian
                        mechanism with μ₃ = f″∥x∥²/(√2·σ₃) ≤ c/(√2·σ₃) (erratum 6).

σ₂ and σ₃ are those of the analytic Gaussian mechanism at (ε₂, δ) and (ε₃, δ). Given θ the pair is
one Gaussian mechanism with μ² = μ₂² + μ₃². The sensitivities include what floating-point sums can
add. Both releases are rounded to grids that public constants fix, as θ is, and the grids reach past
anything that can be drawn: nothing is ever clamped.

λ ≥ 2σ₃F⁻¹(1−ρ/2), F the law of GOE(d)'s largest eigenvalue, makes the published leverage at most
three times the true one (Thm 10.3); the bound itself needs no such λ.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from expost import _checks
from expost._numerics import ROUNDOFF, CompensatedSum, gamma, row_products
from expost.accounting import gaussian_epsilon, gaussian_epsilon_below, gaussian_scale
from expost.errors import InvalidInput, ReleaseRefused
from expost.losses import Kinked, Loss
from expost.mechanisms.base import Mechanism
from expost.mechanisms.grid import Grid
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.tangent import Tangent
from expost.noise import Gaussian, draw, goe_largest_eigenvalue_quantile
from expost.numbers import lower_text, upper_text
from expost.risk import GaussianNoise
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = [
    "CostTable",
    "FarFromKnots",
    "NoisyTangent",
    "PublishingBudget",
    "TangentMechanism",
    "exact_costs",
    "regularization_for_publishing",
    "steady_hessian",
    "steepest_slope",
]

# The operating system's normals end at 9.42, a GOE entry at √2 times that.
_LARGEST_NORMAL = 9.5
# Two machines may compute a scale with different last digits.
_SAME = 1e-9
_LEAST_REGULARIZATION = 1e-100
# The relative rounding of a sum over rows as ``Tangent.at`` makes it, whatever their number: blocks
# of at most 2¹⁵ rows, whose sums are compensated; f′ and f″ err by a few units each.
_ROUNDING = gamma(2**15 + 2048)
# Exact values of ε between which those of rows are interpolated, and the powers of two they span.
_COSTS, _OCTAVES = 4000, 30
# What the separations of rows, which count θ's whole cell, may be past that of the worst row.
_ROOM = 1 + 1e-6


@dataclass(frozen=True, kw_only=True)
class PublishingBudget:
    """What a data-dependent report may spend beyond the model, and how often it may fail.

    Attributes
    ----------
    epsilon_gradient, epsilon_hessian : float
        ε₂ and ε₃, each at ``delta``.
    delta : float
        δ of each of the two releases.
    failure_probability : float
        ρ: each of the report's three parts fails with at most this probability, the whole with 3ρ.
    """

    epsilon_gradient: float
    epsilon_hessian: float
    delta: float
    failure_probability: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("epsilon_gradient", "epsilon_hessian"):
            object.__setattr__(self, name, _checks.positive(name, getattr(self, name)))
        for name in ("delta", "failure_probability"):
            object.__setattr__(self, name, _checks.probability(name, getattr(self, name)))

    def hessian_scale(self, loss: Loss, rows: int) -> float:
        """Return σ₃, by the analytic Gaussian mechanism at the sensitivity c/√2.

        Parameters
        ----------
        loss : Loss
            The loss of one row, with the bound c of its curvature.
        rows : int
            The number n of training rows, on which the rounding of the sum depends.

        Returns
        -------
        float
            σ₃, rounded up.
        """
        moved = loss.curvature_bound + 2 * _hessian_sum_rounding(loss, rows)
        return _scale(self.epsilon_hessian, self.delta, moved / math.sqrt(2))

    def penalty(self, loss: Loss, rows: int, dimension: int) -> float:
        """Return the least λ that a model needs for this report: 2σ₃F⁻¹(1−ρ/2).

        Parameters
        ----------
        loss : Loss
            The loss of one row, with the bound c of its curvature.
        rows : int
            The number n of training rows.
        dimension : int
            The number of coefficients.

        Returns
        -------
        float
            λ of the summed objective.
        """
        quantile = goe_largest_eigenvalue_quantile(
            self.failure_probability / 2, dimension, upper=True
        )
        return 2 * self.hessian_scale(loss, rows) * max(quantile, 0.0)

    def check_penalty(self, mechanism: Mechanism) -> None:
        """Refuse a model whose λ is too small, naming the one that is needed.

        Parameters
        ----------
        mechanism : Mechanism
            The mechanism of the model.

        Raises
        ------
        ReleaseRefused
            If its λ is below the one that is needed.
        """
        needed = self.penalty(mechanism.loss, mechanism.rows, mechanism.dimension)
        penalty = mechanism.rows * mechanism.total_regularization
        if not penalty >= needed * (1 - _SAME):
            raise ReleaseRefused(
                f"regularization: a data-dependent report at epsilon_hessian="
                f"{self.epsilon_hessian:g}, delta={self.delta:g} needs a model with lambda of at"
                f" least {_up(needed)} (regularization of at least {_up(needed / mechanism.rows)}),"
                f" and this one has {lower_text(penalty, 4)}"
                f" ({lower_text(mechanism.total_regularization, 4)}); fit with"
                " regularization='for-publishing' and publishing=PublishingBudget(…), raise"
                " epsilon_hessian, or use kind='data-independent'."
            )


def regularization_for_publishing(publishing: PublishingBudget, **constants: Any) -> float:
    """Return Λ = λ/n, λ = max(what ε needs, what the report needs), from public constants.

    ``constants`` are those of :class:`~expost.mechanisms.ObjectivePerturbation` but for Λ.
    """
    bare = ObjectivePerturbation(regularization=_LEAST_REGULARIZATION, **constants)
    report = publishing.penalty(bare.loss, bare.rows, bare.dimension)
    # A little more than what ε needs, or rounding could take it for too little.
    return max(bare.penalty_sum, report) / bare.rows * (1 + _SAME)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyTangent:
    """The released ĝ (d,) and Ĥ (d, d), on their grids."""

    gradient: FloatArray
    hessian: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class TangentMechanism:
    """The mechanism that releases ĝ and Ĥ at one θ: public constants, and θ itself."""

    budget: PublishingBudget
    mechanism: ObjectivePerturbation
    theta: FloatArray

    @cached_property
    def slope_bound(self) -> float:
        """ξ, the largest ∥∇ℓ∥ that a row of the unit ball can have at θ."""
        return steepest_slope(self.mechanism.loss, float(np.linalg.norm(self.theta)))

    @cached_property
    def gradient_rounding(self) -> float:
        """How far the computed g may be from the true one, whatever the rows."""
        mechanism, length = self.mechanism, float(np.linalg.norm(self.theta))
        each = self.slope_bound + mechanism.loss.curvature_bound * length
        return _ROUNDING * (mechanism.rows * each + mechanism.penalty_sum * length)

    @cached_property
    def hessian_rounding(self) -> float:
        """How far the computed H may be from the true one (spectral norm), whatever the rows."""
        mechanism, length = self.mechanism, float(np.linalg.norm(self.theta))
        summed = _hessian_sum_rounding(mechanism.loss, mechanism.rows)
        # f″ at predictors that are rounded; where it jumps, rows that close to a knot are left out.
        drift = (mechanism.loss.third_ratio or 0.0) * gamma(mechanism.dimension + 2) * length
        shaken = mechanism.rows * mechanism.loss.curvature_bound * math.expm1(min(drift, 700.0))
        return summed + shaken + _ROUNDING * mechanism.penalty_sum

    @cached_property
    def gradient_scale(self) -> float:
        """σ₂."""
        sensitivity = self.slope_bound + 2 * self.gradient_rounding
        return _scale(self.budget.epsilon_gradient, self.budget.delta, sensitivity)

    @cached_property
    def hessian_scale(self) -> float:
        """σ₃."""
        return self.budget.hessian_scale(self.mechanism.loss, self.mechanism.rows)

    @cached_property
    def gradient_grid(self) -> Grid:
        """The grid of ĝ."""
        mechanism = self.mechanism
        reach = mechanism.rows * self.slope_bound + mechanism.penalty_sum * float(
            np.linalg.norm(self.theta)
        )
        reach += self.gradient_rounding + _LARGEST_NORMAL * self.gradient_scale
        return Grid.for_noise(
            reach=reach, resolution=self.gradient_scale, dimension=mechanism.dimension
        )

    @cached_property
    def hessian_grid(self) -> Grid:
        """The grid of Ĥ's entries."""
        mechanism = self.mechanism
        noise = math.sqrt(2) * _LARGEST_NORMAL * self.hessian_scale
        return Grid.for_noise(
            reach=mechanism.steepest + self.hessian_rounding + noise,
            resolution=self.hessian_scale,
            dimension=mechanism.dimension**2,
        )

    @property
    def derived(self) -> dict[str, float]:
        """The two scales, which are written with the constants that they follow from."""
        return {"gradient": self.gradient_scale, "hessian": self.hessian_scale}

    def check(self) -> None:
        """Refuse before anything is computed: a λ too small, or no safe grid."""
        self.budget.check_penalty(self.mechanism)
        _ = self.gradient_grid, self.hessian_grid

    def release(self, tangent: Tangent, rng: np.random.Generator | None = None) -> NoisyTangent:
        """Draw ĝ and Ĥ from the operating system's randomness; ``rng`` is for tests."""
        self.check()
        d = self.mechanism.dimension
        noise = draw(Gaussian(scale=self.gradient_scale, dimension=d), rng)
        square = draw(Gaussian(scale=self.hessian_scale, dimension=d * d), rng).reshape(d, d)
        ensemble = (square + square.T) / math.sqrt(2)
        return NoisyTangent(
            gradient=self.gradient_grid.snap(tangent.gradient + noise),
            hessian=self.hessian_grid.snap(steady_hessian(tangent) + ensemble),
        )

    def holds(self, released: NoisyTangent) -> bool:
        """Return whether this mechanism can have released it: shape, symmetry and grids."""
        d, (gradient, hessian) = self.mechanism.dimension, (released.gradient, released.hessian)
        return (
            gradient.shape == (d,)
            and hessian.shape == (d, d)
            and bool(np.all(np.isfinite(gradient)))
            and bool(np.all(np.isfinite(hessian)))
            and np.array_equal(hessian, hessian.T)
            and self.gradient_grid.holds(gradient)
            and self.hessian_grid.holds(hessian)
        )

    def separations(
        self, slope: FloatArray, curvature: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return (μ₂, μ₃) of rows with these ∥∇ℓ∥ and f″∥x∥² at θ (R&W Thm 10.2)."""
        known = self.separation_constants()
        first = (slope + known["gradient_added"]) / known["gradient_scale"]
        return first, (curvature + known["hessian_added"]) / known["hessian_scale"]

    def separation_constants(self) -> dict[str, float]:
        """Return the constants of :meth:`separations`: what is added, then what it is over."""
        moved = 2 * _hessian_sum_rounding(self.mechanism.loss, self.mechanism.rows)
        return {
            "gradient_added": 2 * self.gradient_rounding,
            "gradient_scale": self.gradient_scale,
            "hessian_added": moved,
            "hessian_scale": math.sqrt(2) * self.hessian_scale,
        }

    @cached_property
    def _worst(self) -> tuple[float, float]:
        """(μ₂, μ₃) of the worst row there can be."""
        slope, curvature = (
            np.array([self.slope_bound]),
            np.array([self.mechanism.loss.curvature_bound]),
        )
        first, second = self.separations(slope, curvature)
        return float(first[0]), float(second[0])

    @cached_property
    def costs(self) -> "CostTable":
        """The ε of any row, from its μ: the points depend on public constants and θ alone."""
        return CostTable.of(max(self._worst) * _ROOM, self.budget.delta)

    @cached_property
    def separation(self) -> float:
        """μ of both releases together, for the worst row there can be."""
        return float(np.hypot(*self._worst))

    @property
    def guarantee(self) -> GaussianNoise:
        """The guarantee of ĝ and Ĥ together beyond θ, for rows that are removed or added."""
        return GaussianNoise(mu=math.nextafter(self.separation, math.inf))

    @property
    def epsilon_together(self) -> float:
        """The ε of both releases together at 2δ, exactly: one Gaussian mechanism of this μ."""
        delta = 2 * self.budget.delta
        return 0.0 if delta >= 1 else gaussian_epsilon(self.separation, delta)


def steady_hessian(tangent: Tangent) -> FloatArray:
    """Return H, or where f″ jumps a lower bound of it at every point of θ's cell.

    A row of the Huber hinge that is within θ's cell of a knot counts with f″ = 0. Each row still
    adds at most c·x xᵀ, so the sensitivity is the same.
    """
    loss, objective = tangent.constants.loss, tangent.objective
    if not isinstance(loss, Kinked):
        return tangent.hessian
    assert objective is not None
    room = tangent.mechanism.reach_of_cell + tangent.constants.margin_error(tangent.theta)
    d = tangent.constants.columns
    # Summed again: taking the others off H would round more than a sum may.
    hessian = CompensatedSum((d, d))
    for part in objective.map(FarFromKnots(loss=loss, theta=tangent.theta, room=room)):
        hessian.add(part)
    return hessian.value + tangent.mechanism.penalty_sum * np.eye(d)


@dataclass(frozen=True, kw_only=True, eq=False)
class FarFromKnots:
    """Σ f″x xᵀ of the rows of a block that are farther than ``room`` from a knot.

    Whether a row counts depends on its own bits alone, not on the other rows of the block.

    Parameters
    ----------
    loss : Kinked
        The loss, whose f″ jumps at its knots.
    theta : FloatArray
        (d,) where f″ is taken.
    room : float
        The distance that θ may move.
    """

    loss: Kinked
    theta: FloatArray
    room: float

    def __call__(self, block: RowBlock) -> FloatArray:
        """Return the sum."""
        X, y, loss = block.X, block.y, self.loss
        z = row_products(X, self.theta)
        far = loss.knot_distance(z, y) > block.norms * self.room + 1e-15 * (1 + np.abs(z))
        part: FloatArray = (X * (loss.curvature(z, y) * far)[:, None]).T @ X
        return part


def steepest_slope(loss: Loss, length: float) -> float:
    """Return sup ∣f′(z; y)∣ over ∣z∣ ≤ ``length`` and all labels: f′ grows, so at an end."""
    label = 1.0 if loss.label_bound is None else loss.label_bound
    slope = loss.slope(np.array([-length * (1 + 1e-12)]), np.array([label]))
    return float(np.abs(slope)[0]) * (1 + 1e-12)


@dataclass(frozen=True, kw_only=True, eq=False)
class CostTable:
    """The least ε at δ of Gaussian mechanisms, exact at the μ of ``points`` (ascending from 0).

    ε(μ) is the supremum over a of log(Φ(−a) − δ) − log Φ(−μ−a) (the best test is a threshold), each
    of them convex in μ since Φ is log-concave. So is ε, and a chord lies above it: by at most 3e-5
    of it, or of 1e-4 where that is more. The points are the same for all rows, so that the ε of a
    row does not depend on the other rows of the call.
    """

    points: FloatArray
    costs: FloatArray

    @classmethod
    def of(cls, top: float, delta: float) -> "CostTable":
        """Return the table for μ up to ``top``."""
        points = np.append(0.0, np.geomspace(top * 2.0**-_OCTAVES, top, _COSTS))
        return cls(points=points, costs=exact_costs(points, delta))

    def __call__(self, separation: FloatArray) -> FloatArray:
        """Return the ε of rows; past the last point nothing is known, and so it is infinite."""
        cost = np.interp(separation, self.points, self.costs, right=np.inf) * (1 + 1e-15)
        return np.where(separation > 0, cost, 0.0)


def exact_costs(separation: FloatArray, delta: float) -> FloatArray:
    """Return the least ε at δ of Gaussian mechanisms with these μ, rounded up.

    At most the μ²/2 + μ√(2 ln(1/δ)) of R&W Thm 10.2.
    """
    # The largest ε that still passes a slightly smaller δ, and one float more.
    below = gaussian_epsilon_below(separation, delta * (1 - 1e-9))
    return np.where(below > 0, np.nextafter(below, np.inf), 0.0)


def _hessian_sum_rounding(loss: Loss, rows: int) -> float:
    """Bound the error of the computed Σ f″x xᵀ, given its terms as they were computed.

    Those are the same for a row whatever the other rows are, so that f″ may jump.
    """
    return _ROUNDING * rows * loss.curvature_bound


def _scale(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return σ, which grows with the sensitivity: one calibration serves every θ."""
    return _unit_scale(epsilon, delta) * sensitivity * (1 + 8 * ROUNDOFF)


@lru_cache(maxsize=64)
def _unit_scale(epsilon: float, delta: float) -> float:
    return gaussian_scale(epsilon, delta, 1.0)


def _up(number: float) -> str:
    """Return four digits, rounded up: a model with that much is enough."""
    if not 0 < number < math.inf:
        raise InvalidInput("epsilon_hessian: no finite noise serves it; raise it.")
    return upper_text(number, 4)
