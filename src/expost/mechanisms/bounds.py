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
          is Σ log(1 + apₖ) + log Σ pₖ/(1 + apₖ), since S is diag p less a matrix of rank one. As
          Σpₖ = 1, the determinant less 1 is Σ pₖ(Π over j ≠ k of (1 + apⱼ) − 1): no term cancels.
          gaussian: u = Σ over k ≠ y of pₖ(eₖ − e_y), so ∣g·∇ℓ∣ ≤ (1 − p_y)·max∣(Gₖ − G_y)·x∣. Each
          of these r is N(0, 2σ²∥x∥²) for a z fixed beforehand: all stay below
          √2σ∥x∥Φ⁻¹(1 − ρ/2r) but with probability ρ (erratum 5: ρ/r for ρ), however p depends on b.
          laplace: at most β∥∇ℓ∥, with certainty. Where Θ moves by no more than m/∥x∥, log pₖ moves
          by at most √2·m: over the cell every pₖ, 1 − p_y and S keep within a factor of e^(√2·m).

Pure ε caps what norm-Laplace noise can lose.

Several labels of one row
-------------------------
``labels`` = m bounds of one x hold at once with the same failure probability. Every event above is
about x, b, ĝ and Ĥ, not about y, and counts once however many labels are shown, except for two.
softmax   Gaussian noise: the pairs (k, y). m labels have N = min(m(K−1), K(K−1)/2) of them, since
          (k, y) and (y, k) are the same one: ρ/N for each.
output    Gaussian noise: the shift depends on y (:mod:`expost.mechanisms.output_bound`).
"""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
from scipy.special import betaincinv, gammaincinv, ndtri

from expost._numerics import ROUNDOFF, gamma, row_blocks, row_norms, row_products
from expost.glm import predictors
from expost.losses import Kinked, Loss, SoftmaxDerivatives
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.publishing import NoisyTangent, TangentMechanism
from expost.noise import NormLaplace, goe_largest_eigenvalue_quantile
from expost.types import FloatArray

__all__ = [
    "QUANTILE_ERROR",
    "UP",
    "ExposureBound",
    "ObjectiveBound",
    "finite",
    "no_nan",
    "normal_quantile",
    "shared_constants",
    "upper_norms",
]

# Quantiles are taken this much farther out than SciPy's, which are good to about 1e-12.
QUANTILE_ERROR = 1e-9
# Exponentials of more would overflow.
_LARGEST_LOG = 600.0
# What a handful of roundings can take from a bound.
UP = 1 + 1e-12


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

    def formula(self) -> dict[str, Any] | None:
        """Return the public constants from which a page computes it; None where no page can."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectiveBound:
    """The bound under objective perturbation; data-dependent where ``released`` is given."""

    mechanism: ObjectivePerturbation
    theta: FloatArray
    failure: float
    tangent: TangentMechanism | None = None
    released: NoisyTangent | None = None
    labels: int = 1

    is_uniform = False

    @property
    def failure_probability(self) -> float:
        """ρ, or 3ρ with ĝ and Ĥ."""
        return min(self.failure * (1 if self.released is None else 3), 1.0)

    @property
    def _moved(self) -> float:
        """How far g may move within θ's cell."""
        return self.mechanism.steepest * self.mechanism.reach_of_cell

    @property
    def _columns(self) -> int:
        """The length of a row."""
        return len(self.theta) // self.mechanism.loss.outputs

    @cached_property
    def _room(self) -> float:
        """The error of predictors, a row of length 1: over θ's cell, and by rounding."""
        return self.mechanism.reach_of_cell + gamma(self._columns + 2) * float(
            np.linalg.norm(self.theta)
        )

    def exposure(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return (m,) volume + noise; of more than two classes ``y`` holds classes from 0 up."""
        bound = np.empty(len(X))
        exposure = self._exposure if self.mechanism.loss.outputs == 1 else self._softmax_exposure
        for block in row_blocks(len(X), X.shape[1] * self.mechanism.loss.outputs):
            bound[block] = exposure(X[block], y[block])
        bound *= UP
        if self.mechanism.noise == "laplace":
            bound = np.minimum(bound, self.mechanism.worst_case)
        return no_nan(bound)

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
        growth = np.exp(math.sqrt(2) * norms * self._room + 4096 * ROUNDOFF)
        length = derivatives.length * growth * norms
        volume = softmax_volume(derivatives, growth * norms**2 / mechanism.penalty_sum)
        if mechanism.noise == "laplace":
            return length / mechanism.resolution + volume
        missed = derivatives.rest[np.arange(len(X)), y.astype(np.int64)] * growth * norms
        noise: FloatArray = (length**2 / 2 + missed * self._across) / mechanism.resolution**2
        return noise + volume

    @property
    def _across(self) -> float:
        """A bound on ∣(Gₖ − G_y)·u∣ under Gaussian noise, for every k and the labels shown."""
        others = self.mechanism.loss.outputs - 1
        pairs = min(self.labels * others, (others + 1) * others / 2)
        quantile = normal_quantile(self.failure / (2 * pairs))
        return math.sqrt(2) * (self.mechanism.resolution * quantile + 2 * self._moved)

    def derivatives(
        self, X: FloatArray, y: FloatArray, norms: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return (sup ∣f′∣, sup f″) over θ's cell."""
        # A row's ε follows from this: it must not depend on the other rows.
        loss, z = self.mechanism.loss, row_products(X, self.theta)
        move = norms * self._room + 1e-15 * (1 + np.abs(z))
        # f′ grows with z: its size is largest at an end.
        slope = np.maximum(np.abs(loss.slope(z - move, y)), np.abs(loss.slope(z + move, y)))
        return slope * UP, _largest_curvature(loss, z, y, move)

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
        squares = (X @ self._spectrum[1]) ** 2
        best = norms**2 / self.mechanism.penalty_sum
        for weights in self._leverage_weights:
            best = np.minimum(best, squares @ weights)
        return best * self._leverage_growth * UP

    @cached_property
    def _leverage_weights(self) -> tuple[FloatArray, ...]:
        """The inverse eigenvalues of α(Ĥ − tI) + (1−α)λI, for each α where all are positive."""
        values, penalty, shift = self._spectrum[0], self.mechanism.penalty_sum, self.hessian_shift
        shares = (penalty / (penalty + shift), 0.25, 0.5, 0.75, 0.9, 1.0)
        floors = [share * (values - shift) + (1 - share) * penalty for share in shares]
        return tuple(1 / floor for floor in floors if float(floor.min()) > 0)

    @property
    def _leverage_growth(self) -> float:
        """By how much f″ changes over the cell: e^(M·reach), rows being at most 1 long."""
        return math.exp((self.mechanism.loss.third_ratio or 0.0) * self.mechanism.reach_of_cell)

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
        if self.released is None:
            return None
        inner: FloatArray = np.abs(X @ self.released.gradient) + norms * self._gradient_slack
        return inner

    @property
    def _gradient_slack(self) -> float:
        """A bound on ∣(g − ĝ)·u∣, rounding included."""
        tangent, released = self.tangent, self.released
        assert tangent is not None
        assert released is not None
        slack = tangent.gradient_scale * normal_quantile(self.failure / 2) + self._moved
        slack += (
            tangent.gradient_grid.diagonal(self.mechanism.dimension) / 2 + tangent.gradient_rounding
        )
        return slack + gamma(self._columns + 2) * float(np.linalg.norm(released.gradient))

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
        norm, angle = self._norm_and_cosine(law)
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

    def _norm_and_cosine(self, law: NormLaplace) -> tuple[float, float]:
        """Return (R, C) of norm-Laplace noise."""
        return least_norm(law, self.failure / 2), largest_cosine(law.dimension, self.failure / 2)

    def formula(self) -> dict[str, Any]:
        """Return the constants; those of ``noise`` and ``released`` have their names here."""
        mechanism, law = self.mechanism, self.mechanism.law
        noise: dict[str, Any]
        if isinstance(law, NormLaplace):
            norm, cosine = self._norm_and_cosine(law)
            noise = {"rate": law.rate, "norm": norm, "cosine": cosine, "moved": self._moved}
        elif mechanism.loss.outputs > 1:
            noise = {"scale": mechanism.resolution, "across": self._across}
        else:
            noise = {"scale": mechanism.resolution, "across": self.direction_bound}
        released = None
        if self.released is not None:
            released = {
                "gradient": self.released.gradient,
                "slack": self._gradient_slack,
                "vectors": self._spectrum[1].T,
                "weights": self._leverage_weights,
                "growth": self._leverage_growth,
            }
        return {
            "kind": "objective" if mechanism.loss.outputs == 1 else "softmax",
            **shared_constants(mechanism.loss, self.theta, self._columns),
            "room": self._room,
            "penalty": mechanism.penalty_sum,
            "noise": noise,
            "released": released,
            "cap": finite(mechanism.worst_case) if mechanism.noise == "laplace" else None,
        }


def shared_constants(loss: Loss, theta: FloatArray, columns: int) -> dict[str, Any]:
    """Return the constants of a formula that every bound has."""
    bounds = {"curvature_bound": loss.curvature_bound, "third_ratio": loss.third_ratio or 0.0}
    return {
        "loss": {"name": loss.name, **asdict(cast(Any, loss)), **bounds},
        "theta": theta,
        "norm_up": 1 + 2 * gamma(columns + 4),
    }


def finite(cap: float) -> float | None:
    """Return a number of a formula, None where it is infinite."""
    return cap if cap < math.inf else None


def softmax_volume(derivatives: SoftmaxDerivatives, share: FloatArray) -> FloatArray:
    """Return log det(I + aS) for a = ``share``, and what rounding can hide of it."""
    p, classes = derivatives.p, derivatives.p.shape[1]
    scaled = p * share[:, None]
    logs = np.log1p(scaled)
    total, others = logs.sum(axis=1), logs @ (1 - np.eye(classes))
    with np.errstate(over="ignore"):
        near = np.log1p(np.einsum("ij,ij->i", p, np.expm1(others)))
    far = total + np.log1p(-np.einsum("ij,ij->i", p, scaled / (1 + scaled)))
    volume = np.where(total < _LARGEST_LOG, near, far)
    # Sums of K terms, and exponentials of sums up to their total.
    rounding = 8 * (classes + 8) * (1 + total) * ROUNDOFF
    # By its trace S is never larger than this either.
    bound: FloatArray = np.minimum(volume * (1 + rounding), derivatives.trace * share * UP)
    return bound


def upper_norms(X: FloatArray) -> FloatArray:
    """Return ∥x∥ of each row, rounded up."""
    return row_norms(X) * (1 + 2 * gamma(X.shape[1] + 4))


def normal_quantile(tail: float) -> float:
    """Return Φ⁻¹(1 − ``tail``), rounded up."""
    return max(-float(ndtri(tail)), 0.0) * (1 + QUANTILE_ERROR)


def largest_cosine(dimension: int, tail: float) -> float:
    """Return C with P(∣cos∣ > C) ≤ ``tail`` between a fixed and a uniform direction, rounded up."""
    if dimension == 1:
        return 1.0
    sine_square = float(betaincinv((dimension - 1) / 2, 0.5, tail))
    return min(math.sqrt(max(1 - sine_square * (1 - QUANTILE_ERROR), 0.0)) * UP, 1.0)


def least_norm(law: NormLaplace, tail: float) -> float:
    """Return R with P(∥b∥ < R) ≤ ``tail``, rounded down."""
    return float(gammaincinv(law.dimension, tail)) / law.rate * (1 - QUANTILE_ERROR)


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
    return np.minimum(loss.curvature(z, y) * growth * UP, bound)


def no_nan(bound: FloatArray) -> FloatArray:
    """Return the bound, infinite where it is not a number: that proves nothing."""
    return np.where(np.isnan(bound), np.inf, bound)
