"""Output perturbation: θ = A(D) + b (Chaudhuri et al. 2011, Algorithm 1; LeBlond 3.2).

Formal guarantees
-----------------
With L a bound on ∥∇ℓ∥ at minimisers and rows in the unit ball, removing, adding or replacing one
row moves A by at most 2L/(nΛ): for removal ∇J(A; D₋ᵢ) = −(∇ℓᵢ − mean ∇ℓ)/(n−1) has norm at most
2L/n, and J is Λ-strongly convex. A minimiser with ∥∇J∥ ≤ η is off by at most η/Λ, so the
sensitivity is

    Δ = 2L/(nΛ) + 2η/Λ.

laplace    density ∝ exp(−β∥b∥), β = ε/Δ: pure ε, and every row's exposure is at most ε.
gaussian   σ by the analytic Gaussian mechanism at Δ: (ε, δ); with μ = Δ/σ an exposure passes ε
           with probability at most Φ(μ/2 − ε/μ) + Φ(−μ/2 − ε/μ).
persons    m rows that leave, enter or are replaced at once move A by at most mΔ. For rows S that
           leave, ∇J(A; D without S) = −(Σ_S ∇ℓᵢ − m·mean ∇ℓ)/(n − m), and Σ_S ∇ℓᵢ − m·mean ∇ℓ =
           (1 − m/n)Σ_S − (m/n)Σ_rest is at most 2mL(n − m)/n long; the solver adds 2η/Λ once. So m
           rows are guaranteed what one row is at mΔ. ``rows_per_person`` k calibrates to kΔ: (ε, δ)
           then holds for all rows of a person who has at most k.

The noise scale is a public constant: p(· ∣ D) and p(· ∣ D₋ᵢ) share it. What is released is A + b
clamped and rounded to a public grid; the interval of each loss is widened by what the grid hides.

| case | what happens |
|---|---|
| ε = ∞ | θ = A exactly; every loss whose distance is not provably 0 is infinite |
| θ on the clamp | its cell is unbounded: the interval is the widest the noise allows |
| rows that cannot have made θ | refused (``WrongRows``) |
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import ndtr

from expost import _checks
from expost._numerics import ROUNDOFF
from expost.accounting import gaussian_epsilon, gaussian_epsilon_below, gaussian_scale
from expost.errors import InvalidInput
from expost.mechanisms.base import TOLERANCE, ClosedForm, Mechanism, register
from expost.mechanisms.minimiser import MinimiserPerturbation
from expost.mechanisms.perturbation import share_of
from expost.mechanisms.row_losses import RowLosses
from expost.neighbouring.neighbours import Neighbours
from expost.noise import Gaussian, GaussianLaw, LossLaw, NormLaplace, NormLaplaceLaw
from expost.noise.transition import Transition, transition
from expost.risk import EpsilonDelta, GaussianNoise, Guarantee, NormLaplaceNoise
from expost.types import FloatArray, Neighbouring

if TYPE_CHECKING:
    from expost.mechanisms.bounds import ExposureBound
    from expost.mechanisms.publishing import NoisyTangent, TangentMechanism

__all__ = ["GradientNoise", "OutputPerturbation"]

# Past this ε float64 does not resolve the δ of Gaussian noise.
_LARGEST_GAUSSIAN = 1e12
# The least ε that a mechanism takes.
_LEAST_EPSILON = 1e-50
# What a few roundings can take from a bound.
_UP = 1 + 16 * ROUNDOFF


@register
@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(MinimiserPerturbation):
    """The public constants of one release by output perturbation."""

    kind: ClassVar[str] = "output"

    @cached_property
    def law(self) -> NormLaplace | Gaussian:
        """The noise."""
        if not self.is_private:
            raise InvalidInput("epsilon=inf: a release without noise has no noise law.")
        if self.calibrated is not None:
            return self.first.law
        if self.noise == "laplace":
            rate = self.epsilon / self.calibrated_sensitivity
            return NormLaplace(rate=rate, dimension=self.dimension)
        assert self.delta is not None
        scale = gaussian_scale(self.epsilon, self.delta, self.calibrated_sensitivity)
        return Gaussian(scale=scale, dimension=self.dimension)

    def epsilon_with(self, rows: int) -> float:
        """Return the ε of ``rows`` rows with the noise of this release, which a row moves by Δ.

        Norm-Laplace: ε·Δ(rows)/Δ(n). Gaussian: the least ε of μ = kΔ(rows)/σ at δ. Rounded up.
        """
        if not self.is_private or rows == self.rows:
            return self.epsilon
        lipschitz = self.loss.lipschitz(self.regularization)
        moved = 2 * (lipschitz / rows + TOLERANCE) / self.regularization
        if self.noise == "laplace":
            return self.epsilon * (moved / self.sensitivity) * _UP
        assert self.delta is not None
        mu = self.rows_per_person * moved / self.resolution * _UP
        return max(gaussian_epsilon(mu, self.delta) * _UP, _LEAST_EPSILON)

    @property
    def closed_form(self) -> ClosedForm:
        """The mechanism itself: the law of a loss depends on the row's distance alone."""
        return self

    def transition(self, tolerance: float) -> Transition:
        """Return the separations at which a row leaves its first regime and reaches its second."""
        return transition(noise=self.noise, dimension=self.dimension, tolerance=tolerance)

    def loss_law(self, separation: FloatArray) -> LossLaw:
        """Return the law of losses at ``separation`` = β·distance or distance/σ: free of ε."""
        if self.noise == "laplace":
            return NormLaplaceLaw(separation=separation, dimension=self.dimension)
        return GaussianLaw(separation=separation)

    def epsilon_at(self, separation: float, distance: FloatArray) -> FloatArray:
        """Return the largest ε that leaves rows at ``distance`` (n,) at most this ``separation``.

        Rounded down: the noise of what is returned is enough. Infinite at distance 0, and 0 where
        no ε is small enough: at a fixed δ, Gaussian noise stays finite as ε → 0.
        """
        with np.errstate(divide="ignore", over="ignore"):
            # kΔ over the resolution that is needed, distance/separation.
            scaled = self.calibrated_sensitivity * (separation / distance) * (1 - 8 * ROUNDOFF)
        if self.noise == "laplace":
            return scaled
        assert self.delta is not None
        return gaussian_epsilon_below(scaled, self.delta)

    def epsilon_from(self, separation: float, distance: float) -> float:
        """Return the least ε that brings a row at ``distance`` to ``separation``, rounded up."""
        if not distance > 0:
            return math.inf
        scaled = self.calibrated_sensitivity * (separation / distance) * (1 + 8 * ROUNDOFF)
        if self.noise == "laplace":
            return scaled
        assert self.delta is not None
        epsilon = gaussian_epsilon(scaled, self.delta)
        # The scale of a release is rounded up, by 1e-5 of itself at most: step up until it serves.
        step = 1e-13
        while step < 1e-3 and 0 < epsilon < _LARGEST_GAUSSIAN:
            if replace(self, epsilon=epsilon).resolution * separation <= distance:
                break
            epsilon *= 1 + step
            step *= 4
        return epsilon

    def row_losses(self, theta: FloatArray, neighbours: Neighbours) -> RowLosses:
        """Return log p(θ ∣ D) − log p(θ ∣ D') for every neighbour, with its interval.

        For ADD the sign is turned, so that > 0 always is evidence that the row was there.
        """
        if not self.is_private:
            return RowLosses.without_noise(
                neighbours.distance, neighbours.error_bound, neighbours.relation
            )
        noise = theta - neighbours.base
        norm = float(np.linalg.norm(noise))
        inner = neighbours.shifts.inner(noise)
        distance = neighbours.distance
        loss = self.law.loss_from(norm, inner, distance)
        error = self.law.loss_error(
            norm, distance, neighbours.error_bound, neighbours.base_error
        ) + self._grid_width(theta, distance + neighbours.error_bound)
        if neighbours.relation is Neighbouring.ADD:
            loss = -loss
        # A bound that is not a number proves nothing.
        error = np.where(np.isnan(error), np.inf, error)
        return RowLosses(
            loss=loss,
            low=loss - error,
            high=loss + error,
            distance=distance,
            distance_error=neighbours.error_bound,
            relation=neighbours.relation,
            law=self.law.law(distance),
            far_law=self.law.law(distance + neighbours.error_bound),
            worst_case=self.worst_case,
            worst_case_passed=self.worst_case_passed,
            guarantee=self.guarantee(),
        )

    def guarantee(self, rows: int = 1) -> Guarantee:
        """Return the guarantee for two data sets, one of which lacks ``rows`` rows of the other.

        Tighter than (ε, δ), because the noise is known. Also where the rows are replaced.

        Formal guarantees
        -----------------
        The centres are at most rows·Δ apart, and the noise has one law: norm-Laplace noise at
        separation rows·Δβ = ε·rows/k, Gaussian noise at μ = rows·Δ/σ. At rows = k that is ε, or
        δ(ε) ≤ δ. Rounding to the grid comes after the noise and adds nothing.
        """
        rows = _checks.integer("rows", rows, least=1)
        if not self.is_private:
            return EpsilonDelta(epsilon=math.inf)
        if self.noise == "laplace":
            share = share_of(self.epsilon, rows, self.rows_per_person)
            return NormLaplaceNoise(separation=share, dimension=self.dimension)
        mu = rows * self.sensitivity / self.resolution
        return GaussianNoise(mu=math.nextafter(mu, math.inf) if rows == 1 else mu * _UP)

    def loss_passed(self, bound: float, *, two_sided: bool = False) -> float:
        """Bound the probability with which the loss (exposure) of any row passes ``bound`` ≥ 0.

        That of a row which moves the minimiser by Δ: the probability grows with the distance.
        """
        if not self.is_private:
            return 1.0
        law = self.loss_law(np.array([self.sensitivity / self.resolution * _UP]))
        tails = float(law.survival(np.array([bound]))[0])
        if two_sided:
            tails += float(law.cdf(np.array([-bound]))[0])
        # The law's figures are right to 1e-11; a norm-Laplace loss has a largest value.
        return 0.0 if tails == 0 else min(tails + 2e-11, 1.0)

    def worst_case_of(self, rows: int) -> tuple[float, float]:
        """Return (b, p): the exposure of ``rows`` rows together passes b with probability ≤ p.

        Formal guarantees
        -----------------
        - norm-Laplace: b = ε·rows/k is never passed: ∣∥b∥ − ∥b − s∥∣ ≤ ∥s∥.
        - Gaussian: b = ε·rows/k + rows·(rows − k)₊μ²/2 with μ = Δ/σ. P(∣ℓ∣ > b) grows with the
          distance, and at rows·Δ it is Φ(m/2 − b/m) + Φ(−m/2 − b/m), m = rows·μ. The first argument
          is at most that of k rows at ε.
        """
        rows = _checks.integer("rows", rows, least=1)
        bound = share_of(self.epsilon, rows, self.rows_per_person)
        if self.noise == "laplace" or not self.is_private:
            return bound, 0.0
        mu = self.sensitivity / self.resolution
        if rows > self.rows_per_person:
            bound = (bound + rows * (rows - self.rows_per_person) * mu * mu / 2) * _UP
        mu *= rows
        passed = float(ndtr(mu / 2 - bound / mu) + ndtr(-mu / 2 - bound / mu))
        return bound, passed if rows == 1 else min(passed * _UP, 1.0)

    def _grid_width(self, theta: FloatArray, distance: FloatArray) -> FloatArray:
        """Bound by how much the log ratio of two cells differs from that at their centres.

        Norm-Laplace: each log density varies by β·√d·2^(k−1) from a cell's centre; Gaussian: the
        log ratio is linear with slope ∥s∥/σ². A clamped coordinate's cell is unbounded.
        """
        diagonal = self.grid.diagonal(self.dimension)
        if isinstance(self.law, NormLaplace):
            if self.grid.is_clamped(theta):
                return 2 * self.law.rate * distance
            return np.minimum(self.law.rate * diagonal, 2 * self.law.rate * distance)
        if self.grid.is_clamped(theta):
            return np.full(len(distance), np.inf)
        return distance * (diagonal / (2 * self.resolution**2))

    def bound(
        self,
        theta: FloatArray,
        failure: float,
        tangent: "TangentMechanism | None" = None,
        released: "NoisyTangent | None" = None,
        labels: int = 1,
    ) -> "ExposureBound":
        """Return the bound of a published report, which is data-independent."""
        from expost.mechanisms.output_bound import OutputBound

        return OutputBound(mechanism=self, theta=theta, failure=failure, labels=labels)


@dataclass(frozen=True, kw_only=True)
class GradientNoise(OutputPerturbation):
    """The noise that objective perturbation adds to the sum of gradients, at any ε.

    Its scale is that at Λ → ∞, where determinants cost nothing. That of a release is not smaller,
    so that a row's separation is not underestimated.

    Parameters
    ----------
    slope : float
        L, a bound on the length of a row's gradient.
    """

    slope: float

    @classmethod
    def of(cls, mechanism: Mechanism) -> "GradientNoise":
        """Return the noise of an objective perturbation."""
        rank, _ = mechanism.loss.determinant
        return cls(
            epsilon=mechanism.epsilon,
            delta=None if mechanism.delta is None else mechanism.delta / rank,
            noise=mechanism.noise,
            loss=mechanism.loss,
            regularization=mechanism.regularization,
            rows=mechanism.rows,
            dimension=mechanism.dimension,
            rows_per_person=mechanism.rows_per_person,
            slope=mechanism.loss.lipschitz(mechanism.total_regularization),
        )

    @property
    def sensitivity(self) -> float:
        """L under Gaussian noise; 2L under norm-Laplace noise, which also covers an exchange."""
        return self.slope if self.noise == "gaussian" else 2 * self.slope
