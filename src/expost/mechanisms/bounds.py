"""Upper bounds of the exposure of a row that need no other row (R&W Algorithm 2, Thms 8, 9).

A bound is a function of the row z, the released θ and public constants; a data-dependent one also
of the noisy ĝ and Ĥ (:mod:`expost.mechanisms.publishing`). It holds whether z is in the data (then
of its removal) or not (then of its addition).

Conventions
-----------
ρ      ``failure``: the probability that one part of the bound fails, over the noise, for a z that
       was fixed before the noise was drawn.
s      ∥∇ℓ_z∥ = ∣f′∣∥x∥;   u = x/∥x∥;   g, H as in :mod:`expost.mechanisms.tangent`.
cell   every point within ``reach_of_cell`` of θ. f′ and f″ are taken at their largest over the
       cell, g at its farthest (∥H∥ ≤ λ + nc moves it): the bound is of the probability of the
       grid's cell, not of the density at its centre alone.

Objective perturbation: ∣loss∣ ≤ volume + noise
-----------------------------------------------
volume    1/(1 − f″μ) = 1 + f″m for a row in the data, m ≤ ∥x∥²/λ its leverage without itself; a
          row outside adds log(1 + f″μ), μ ≤ ∥x∥²/λ. So both are at most log(1 + f″∥x∥²/λ). With Ĥ
          also at most −log(1 − f″μ̄): with t = σ₃F⁻¹(1−ρ), H ≽ Ĥ − tI but with probability ρ, and
          H ≽ λI always, so H ≽ α(Ĥ − tI) + (1−α)λI for every α in [0, 1] and

              μ ≤ μ̄ = min over α of xᵀ(α(Ĥ − tI) + (1−α)λI)⁻¹x.

          α = 1 is erratum 6's; α = λ/(λ + t) gives (1 + t/λ)·xᵀĤ⁻¹x, R&W's 3/2 where λ ≥ 2t.
gaussian  noise = s²/2σ² + s·T/σ², T a bound on ∣g·u∣: g = −b, and u is fixed, so σΦ⁻¹(1−ρ/2) is one
          although f′ depends on b; with ĝ also ∣ĝ·u∣ + σ₂Φ⁻¹(1−ρ/2) (erratum 6).
laplace   noise = β·∣∥g ∓ ∇ℓ∥ − ∥g∥∣ ≤ βs. The direction of b is uniform and independent of ∥b∥, so
          ∣cos(b, u)∣ ≤ C and ∥b∥ ≥ R but with probability ρ/2 each (cos² is Beta(½, (d−1)/2)), and

              noise ≤ β(√(R² + 2sRC + s²) − R):

          upwards √(r² + 2srC + s²) − r falls with r = ∥b∥ to its limit sC, downwards
          r − √(r² − 2srC + s²) grows to the same. With ĝ, ∣g·u∣ ≤ T: upwards √(r² + 2sT + s²) − r,
          downwards r − √(r² − 2sT + s²), both falling with r, at r = R where T ≤ R; else βs.
softmax   K classes (:mod:`expost.losses`), g as a matrix G (K, d), r = K − 1; data-independent.
          volume: both determinants are at most log det(I + aS) with a = ∥x∥²/λ (R&W Thm 8), which
          is Σ log(1 + apₖ) + log Σ pₖ/(1 + apₖ), since S is diag p less a matrix of rank one.
          gaussian: u = Σ over k ≠ y of pₖ(eₖ − e_y), so ∣g·∇ℓ∣ ≤ (1 − p_y)·max∣(Gₖ − G_y)·x∣. Each
          of these r is N(0, 2σ²∥x∥²) for a z fixed beforehand: all stay below
          √2σ∥x∥Φ⁻¹(1 − ρ/2r) but with probability ρ (erratum 5: ρ/r for ρ), however p depends on b.
          laplace: at most β∥∇ℓ∥, with certainty. Where Θ moves by no more than m/∥x∥, log pₖ moves
          by at most √2·m: over the cell every pₖ, 1 − p_y and S keep within a factor of e^(√2·m).

Output perturbation
-------------------
∇J(A; D₋) = −v/(n−1) with v = ΛA + ∇ℓ_z(A), and J is Λ-strongly convex: the neighbour lies within
∥v∥/(Λ(n−1)) of A (with one row more: /(n+1)), and ∥θ − A∥ ≤ r but with probability ρ. With
A = a·u + A⊥,

    ∥v∥² = Λ²∥A⊥∥² + (Λa + f′(a∥x∥)∥x∥)²,   ∥A⊥∥ ≤ ∥θ⊥∥ + √(r² − (a − θ·u)²),

and the second bracket grows with a: on each of many pieces of a's range it is largest at an end, so
that the supremum over the whole ball is bounded piece by piece.

laplace   ∣loss∣ ≤ β·distance: it holds for every z at once, also one picked after seeing θ.
gaussian  ∣loss∣ ≤ μ²/2 + μΦ⁻¹(1−ρ/4), μ = distance/σ: b is independent of the shift. ρ/2 for each.

Pure ε caps what norm-Laplace noise can lose.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import betaincinv, gammaincinv, ndtri

from expost._numerics import ROUNDOFF, gamma, row_blocks, row_norms, row_products
from expost.glm import predictors
from expost.losses import Kinked, Loss, SoftmaxDerivatives
from expost.mechanisms.base import TOLERANCE
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.output import OutputPerturbation
from expost.mechanisms.publishing import NoisyTangent, TangentMechanism
from expost.noise import NormLaplace, goe_largest_eigenvalue_quantile
from expost.types import FloatArray

__all__ = ["ExposureBound", "ObjectiveBound", "OutputBound", "normal_quantile"]

# Quantiles are taken this much farther out than SciPy's, which are good to about 1e-12.
_QUANTILE_ERROR = 1e-9
# How many pieces a's range is cut into (even, so that θ·u is an end of one).
_PIECES = 128
# Rows × pieces at a time.
_BLOCK = 2**18
# What a handful of roundings can take from a bound.
_UP = 1 + 1e-12


class ExposureBound(Protocol):
    """An upper bound of the exposure of any row, from a published report."""

    @property
    def failure_probability(self) -> float:
        """The probability that the whole bound fails, for one z fixed beforehand."""

    @property
    def is_uniform(self) -> bool:
        """Whether it holds for every z at once, also one picked after seeing θ."""

    def exposure(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return the bounds (m,) of rows (m, d) of the unit ball, labels as the loss takes them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectiveBound:
    """The bound under objective perturbation; data-dependent where ``released`` is given."""

    mechanism: ObjectivePerturbation
    theta: FloatArray
    failure: float
    tangent: TangentMechanism | None = None
    released: NoisyTangent | None = None

    is_uniform = False

    @property
    def failure_probability(self) -> float:
        """ρ, or 3ρ with ĝ and Ĥ."""
        return min(self.failure * (1 if self.released is None else 3), 1.0)

    @property
    def _moved(self) -> float:
        """How far g may move within θ's cell."""
        return self.mechanism.steepest * self.mechanism.reach_of_cell

    def _room(self, X: FloatArray) -> float:
        """Bound the error of predictors, a row of length 1: over θ's cell, and by rounding."""
        return self.mechanism.reach_of_cell + gamma(X.shape[1] + 2) * float(
            np.linalg.norm(self.theta)
        )

    def exposure(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return (m,) volume + noise; of more than two classes ``y`` holds classes from 0 up."""
        bound = np.empty(len(X))
        exposure = self._exposure if self.mechanism.loss.outputs == 1 else self._softmax_exposure
        for block in row_blocks(len(X), X.shape[1] * self.mechanism.loss.outputs):
            bound[block] = exposure(X[block], y[block])
        bound *= _UP
        if self.mechanism.noise == "laplace":
            bound = np.minimum(bound, self.mechanism.worst_case)
        return _no_nan(bound)

    def _exposure(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Bound the exposure under a loss of one output."""
        norms = upper_norms(X)
        slope, curvature = self.derivatives(X, y, norms)
        noise = self.noise_bound(slope, norms, self.inner_bound(X, norms))
        return noise + self.volume_bound(X, norms, curvature)

    def _softmax_exposure(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Bound the exposure under softmax regression."""
        mechanism, norms = self.mechanism, upper_norms(X)
        derivatives = mechanism.loss.at(predictors(X, self.theta, mechanism.loss.outputs), y)
        assert isinstance(derivatives, SoftmaxDerivatives)
        # A relative error of p acts like as large a change of its logarithm.
        growth = np.exp(math.sqrt(2) * norms * self._room(X) + 4096 * ROUNDOFF)
        length = derivatives.length * growth * norms
        volume = softmax_volume(derivatives, growth * norms**2 / mechanism.penalty_sum)
        if mechanism.noise == "laplace":
            return length / mechanism.resolution + volume
        missed = derivatives.rest[np.arange(len(X)), y.astype(np.int64)] * growth * norms
        tail = self.failure / (2 * (mechanism.loss.outputs - 1))
        across = math.sqrt(2) * (mechanism.resolution * normal_quantile(tail) + 2 * self._moved)
        noise: FloatArray = (length**2 / 2 + missed * across) / mechanism.resolution**2
        return noise + volume

    def derivatives(
        self, X: FloatArray, y: FloatArray, norms: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return (sup ∣f′∣, sup f″) over θ's cell."""
        # A row's ε follows from this: it must not depend on the other rows.
        loss, z = self.mechanism.loss, row_products(X, self.theta)
        move = norms * self._room(X) + 1e-15 * (1 + np.abs(z))
        # f′ grows with z: its size is largest at an end.
        slope = np.maximum(np.abs(loss.slope(z - move, y)), np.abs(loss.slope(z + move, y)))
        return slope * _UP, _largest_curvature(loss, z, y, move)

    def volume_bound(self, X: FloatArray, norms: FloatArray, curvature: FloatArray) -> FloatArray:
        """Bound what the determinants can lose."""
        plain: FloatArray = np.log1p(curvature * norms**2 / self.mechanism.penalty_sum)
        if self.released is None:
            return plain
        leverage = curvature * self.leverage_bound(X, norms)
        usable = leverage < 1
        published = -np.log1p(-np.where(usable, leverage, 0.0))
        return np.where(usable, np.minimum(plain, published), plain)

    def leverage_bound(self, X: FloatArray, norms: FloatArray) -> FloatArray:
        """Return μ̄: the least of the bounds on xᵀH⁻¹x over α, at every point of the cell."""
        values, vectors = self._spectrum
        squares = (X @ vectors) ** 2
        penalty, shift = self.mechanism.penalty_sum, self.hessian_shift
        best = norms**2 / penalty
        for share in (penalty / (penalty + shift), 0.25, 0.5, 0.75, 0.9, 1.0):
            floor = share * (values - shift) + (1 - share) * penalty
            if float(floor.min()) > 0:
                best = np.minimum(best, squares @ (1 / floor))
        # Over the cell every f″ changes by at most e^(M·reach), rows being at most 1 long.
        ratio = self.mechanism.loss.third_ratio or 0.0
        return best * math.exp(ratio * self.mechanism.reach_of_cell) * _UP

    @cached_property
    def _spectrum(self) -> tuple[FloatArray, FloatArray]:
        assert self.released is not None
        values, vectors = np.linalg.eigh(self.released.hessian)
        return values, vectors

    @cached_property
    def hessian_shift(self) -> float:
        """t: σ₃F⁻¹(1−ρ), what the grid and rounding hide, and the error of the eigenvalues."""
        assert self.tangent is not None
        d, tangent = self.mechanism.dimension, self.tangent
        quantile = goe_largest_eigenvalue_quantile(self.failure, d, upper=True)
        largest = float(np.max(np.abs(self._spectrum[0])))
        hidden = d * tangent.hessian_grid.step / 2 + tangent.hessian_rounding
        return tangent.hessian_scale * max(quantile, 0.0) + hidden + 32 * gamma(d + 8) * d * largest

    @cached_property
    def direction_bound(self) -> float:
        """T of the data-independent bound under Gaussian noise: ∣b·u∣, anywhere in the cell."""
        return self.mechanism.resolution * normal_quantile(self.failure / 2) + 2 * self._moved

    def inner_bound(self, X: FloatArray, norms: FloatArray) -> FloatArray | None:
        """Bound ∣g·x∣ from ĝ; None without it."""
        if self.released is None or self.tangent is None:
            return None
        tangent = self.tangent
        slack = tangent.gradient_scale * normal_quantile(self.failure / 2) + self._moved
        slack += (
            tangent.gradient_grid.diagonal(self.mechanism.dimension) / 2 + tangent.gradient_rounding
        )
        size = gamma(X.shape[1] + 2) * float(np.linalg.norm(self.released.gradient))
        inner: FloatArray = np.abs(X @ self.released.gradient) + norms * (slack + size)
        return inner

    def noise_bound(
        self, slope: FloatArray, norms: FloatArray, inner: FloatArray | None
    ) -> FloatArray:
        """Bound ∣log p_b(g) − log p_b(g ∓ ∇ℓ)∣; ``inner`` bounds ∣g·x∣."""
        if isinstance(self.mechanism.law, NormLaplace):
            return self._laplace_noise(self.mechanism.law, slope * norms, norms, inner)
        across = norms * self.direction_bound
        if inner is not None:
            across = np.minimum(across, inner)
        scale = self.mechanism.resolution
        return slope / scale * (slope * norms**2 / 2 + across) / scale

    def _laplace_noise(
        self, law: NormLaplace, step: FloatArray, norms: FloatArray, inner: FloatArray | None
    ) -> FloatArray:
        norm = least_norm(law, self.failure / 2)
        angle = largest_cosine(law.dimension, self.failure / 2)
        # From the exact minimiser to any point of the cell both norms change by the move of g.
        bound = np.minimum(step, _grown(norm, norm * angle, step) + 4 * self._moved)
        if inner is not None:
            near = max(norm - 2 * self._moved, 0.0)
            reach = inner / np.where(norms > 0, norms, 1.0)
            # r − √(r² − 2s·T + s²), below 0 where the step lengthens g.
            shrunk = -_grown(near, -np.minimum(reach, near), step)
            back = np.where(reach <= near, shrunk, step)
            bound = np.minimum(bound, np.maximum(_grown(near, reach, step), back))
        return law.rate * bound


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputBound:
    """The bound under output perturbation: data-independent."""

    mechanism: OutputPerturbation
    theta: FloatArray
    failure: float

    @property
    def failure_probability(self) -> float:
        """ρ."""
        return self.failure

    @property
    def is_uniform(self) -> bool:
        """Norm-Laplace noise: ∥b∥ ≤ r is all that it needs."""
        return self.mechanism.noise == "laplace"

    def exposure(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return (m,) β·distance, or μ²/2 + μΦ⁻¹(1−ρ/4)."""
        mechanism = self.mechanism
        separation = self.distance_bound(X, y) / mechanism.resolution * _UP
        if self.is_uniform:
            return _no_nan(np.minimum(separation, mechanism.worst_case))
        # Within the cell b moves by its diagonal at most.
        room = mechanism.grid.diagonal(mechanism.dimension) / mechanism.resolution
        quantile = normal_quantile(self.failure / 4) + room
        return _no_nan(separation * (separation / 2 + quantile) * _UP)

    @cached_property
    def radius(self) -> float:
        """r: how far A may be from θ; ρ, or half of it under Gaussian noise."""
        mechanism = self.mechanism
        share = self.failure if self.is_uniform else self.failure / 2
        noise = mechanism.law.norm_exceeded_with(share) * (1 + _QUANTILE_ERROR)
        return (
            noise
            + mechanism.grid.diagonal(mechanism.dimension) / 2
            + TOLERANCE / mechanism.regularization
        )

    def distance_bound(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Bound the distance (m,) of the neighbour of any A within r, at most the sensitivity."""
        mechanism = self.mechanism
        pull = np.empty(len(X))
        step = max(1, _BLOCK // _PIECES)
        for start in range(0, len(X), step):
            some = slice(start, start + step)
            pull[some] = self.largest_pull(X[some], y[some])
        # Each end is known to η/Λ.
        distance = (pull / (mechanism.rows - 1) + 2 * TOLERANCE) / mechanism.regularization
        return np.minimum(distance, mechanism.sensitivity)

    def largest_pull(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return an upper bound of sup ∥ΛA + ∇ℓ(A)∥ over the ball of radius r around θ.

        Parameters
        ----------
        X : FloatArray
            (m, d) rows of the unit ball.
        y : FloatArray
            (m,) their labels.

        Returns
        -------
        FloatArray
            (m,) the bound of each row.
        """
        mechanism, theta, d = self.mechanism, self.theta, X.shape[1]
        norms, length = upper_norms(X), float(np.linalg.norm(theta))
        along = X @ theta / np.where(norms > 0, norms, 1.0)
        # What rounding can hide of the part of θ across x.
        across = np.sqrt(
            np.maximum((length - np.abs(along)) * (length + np.abs(along)), 0.0)
            + 8 * gamma(d + 8) * length**2
        )
        radius = self.radius + gamma(d + 8) * length
        turn = np.linspace(-np.pi / 2, np.pi / 2, _PIECES + 1)
        at = along[:, None] + radius * np.sin(turn)
        slope = mechanism.loss.slope(at * norms[:, None], y[:, None])
        size = np.abs(mechanism.regularization * at + slope * norms[:, None])
        inner = np.maximum(size[:, :-1], size[:, 1:])
        widest = np.maximum(np.cos(turn[:-1]), np.cos(turn[1:]))
        outer = mechanism.regularization * (across[:, None] + radius * widest)
        pull: FloatArray = np.max(np.hypot(inner, outer), axis=1)
        return pull * (1 + 1e-9)


def softmax_volume(derivatives: SoftmaxDerivatives, share: FloatArray) -> FloatArray:
    """Return log det(I + aS) for a = ``share``, and what rounding can hide of it."""
    scaled = derivatives.p * share[:, None]
    grown = np.log1p(scaled).sum(axis=1)
    fallen = np.log1p(-np.einsum("ij,ij->i", derivatives.p, scaled / (1 + scaled)))
    # The two parts cancel where p_y is near 1; by its trace S is never larger than this either.
    volume = grown + fallen + 64 * ROUNDOFF * (grown - fallen)
    bound: FloatArray = np.minimum(volume, derivatives.trace * share * _UP)
    return bound


def upper_norms(X: FloatArray) -> FloatArray:
    """Return ∥x∥ of each row, rounded up."""
    return row_norms(X) * (1 + 2 * gamma(X.shape[1] + 4))


def normal_quantile(tail: float) -> float:
    """Return Φ⁻¹(1 − ``tail``), rounded up."""
    return max(-float(ndtri(tail)), 0.0) * (1 + _QUANTILE_ERROR)


def largest_cosine(dimension: int, tail: float) -> float:
    """Return C with P(∣cos∣ > C) ≤ ``tail`` between a fixed and a uniform direction, rounded up."""
    if dimension == 1:
        return 1.0
    sine_square = float(betaincinv((dimension - 1) / 2, 0.5, tail))
    return min(math.sqrt(max(1 - sine_square * (1 - _QUANTILE_ERROR), 0.0)) * _UP, 1.0)


def least_norm(law: NormLaplace, tail: float) -> float:
    """Return R with P(∥b∥ < R) ≤ ``tail``, rounded down."""
    return float(gammaincinv(law.dimension, tail)) / law.rate * (1 - _QUANTILE_ERROR)


def _grown(norm: float, inner: FloatArray | float, step: FloatArray) -> FloatArray:
    """Return √(r² + 2s·i + s²) − r for i = ``inner`` ≥ −r, without subtracting."""
    added = step * (step + 2 * inner)
    total = np.sqrt(np.maximum(norm * norm + added, 0.0)) + norm
    return added / np.where(total > 0, total, 1.0)


def _largest_curvature(loss: Loss, z: FloatArray, y: FloatArray, move: FloatArray) -> FloatArray:
    """Return sup f″ over z ± ``move``."""
    bound = loss.curvature_bound
    if isinstance(loss, Kinked):
        # f″ is 0 or its bound: 0 only where no point of the range lies between the knots.
        inside = loss.beyond(z, y) <= move + 4 * ROUNDOFF * (1 + np.abs(z))
        return np.where(inside, bound, 0.0)
    growth = np.exp(np.minimum((loss.third_ratio or 0.0) * move, 700.0))
    return np.minimum(loss.curvature(z, y) * growth * _UP, bound)


def _no_nan(bound: FloatArray) -> FloatArray:
    """Return the bound, infinite where it is not a number: that proves nothing."""
    return np.where(np.isnan(bound), np.inf, bound)
