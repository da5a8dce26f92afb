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
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import ndtr

from expost import _checks
from expost._numerics import ROUNDOFF
from expost.accounting import gaussian_epsilon, gaussian_epsilon_below, gaussian_scale
from expost.errors import InvalidInput, WrongRows
from expost.glm import Minimiser, Objective
from expost.losses import Loss
from expost.mechanisms.base import (
    IMPLAUSIBLE,
    TOLERANCE,
    ClosedForm,
    Perturbation,
    is_plausible,
    register,
    share_of,
)
from expost.mechanisms.grid import Grid
from expost.mechanisms.row_losses import RowLosses, mean_exposures
from expost.neighbouring.change import Change
from expost.neighbouring.leave_one_out import LeaveOneOut
from expost.neighbouring.neighbours import Neighbours, tight_neighbours
from expost.noise import Gaussian, GaussianLaw, LossLaw, Noise, NormLaplace, NormLaplaceLaw
from expost.noise.transition import Transition, transition
from expost.risk import EpsilonDelta, GaussianNoise, Guarantee, NormLaplaceNoise
from expost.rows import RowBlock
from expost.types import FloatArray, Neighbouring

if TYPE_CHECKING:
    from expost.mechanisms.bounds import ExposureBound
    from expost.mechanisms.publishing import NoisyTangent, TangentMechanism

__all__ = [
    "MinimiserLosses",
    "MinimiserPerturbation",
    "MinimiserSampler",
    "OutputPerturbation",
    "minimiser_losses",
]

# The probability that a coordinate is clamped.
_CLAMPED = 1e-12
# A good θ is taken to have this norm where Λ is chosen without the data.
_REFERENCE_NORM = 1.0
# Past this ε float64 does not resolve the δ of Gaussian noise.
_LARGEST_GAUSSIAN = 1e12
# Models behind expected exposures that have no closed form, and their seed.
_MODELS = 64
_SEED = 0
# What a few roundings can take from a bound.
_UP = 1 + 16 * ROUNDOFF


@dataclass(frozen=True, kw_only=True)
class MinimiserPerturbation(Perturbation):
    """Noise on the minimiser: θ = A(D) + b, on the grid.

    A subclass says what b is (``law``, ``unit_noise``, ``resolution``), what the loss of a row is
    (:meth:`row_losses`) and what is guaranteed.
    """

    @property
    def sensitivity(self) -> float:
        """Δ: how far one row can move the released centre."""
        lipschitz = self.loss.lipschitz(self.regularization)
        return 2 * (lipschitz / self.rows + TOLERANCE) / self.regularization

    @property
    def calibrated_sensitivity(self) -> float:
        """kΔ: how far the rows of one person can move the released centre."""
        return self.rows_per_person * self.sensitivity

    @property
    @abstractmethod
    def law(self) -> Noise:
        """The noise b."""

    @property
    @abstractmethod
    def unit_noise(self) -> Noise:
        """The noise at resolution 1: that of every ε is ``resolution`` times it."""

    @property
    @abstractmethod
    def resolution(self) -> float:
        """The length over which the density of b hardly changes."""

    @abstractmethod
    def row_losses(self, theta: FloatArray, neighbours: Neighbours) -> RowLosses:
        """Return log p(θ ∣ D) − log p(θ ∣ D') for every neighbour, with its interval.

        For ADD the sign is turned, so that > 0 always is evidence that the row was there.
        """

    @abstractmethod
    def guarantee(self, rows: int = 1) -> Guarantee:
        """Return what two data sets are guaranteed, one of which lacks ``rows`` rows."""

    @abstractmethod
    def bound(
        self,
        theta: FloatArray,
        failure: float,
        tangent: "TangentMechanism | None" = None,
        released: "NoisyTangent | None" = None,
    ) -> "ExposureBound":
        """Return the bound of a published report, which needs no row but the reader's own."""

    @property
    def derived(self) -> dict[str, float]:
        """What follows from the constants, and is written beside them."""
        scale = self.resolution if self.is_private else 0.0
        return {"sensitivity": self.sensitivity, "scale": scale}

    @classmethod
    def automatic_regularization(cls, **constants: Any) -> float:
        """Λ from n, d, ε and k alone: no look at the data, so it costs no privacy.

        Minimises over a grid of Λ the expected excess risk of the noise plus the bias of the
        penalty,

            (c + Λ)/2 · E∥b∥² + Λ/2 · R²,     c = sup f″·d⁻¹ (a row spreads over d coordinates),

        for a useful θ of norm R = 1 (in units of the labels), and never goes below 1/n, the default
        of scikit-learn.
        """
        mechanism = cls(regularization=1.0, **constants)
        loss, floor = mechanism.loss, 1 / mechanism.rows
        grid = np.geomspace(1e-8, 1e3, 441)
        if not mechanism.is_private:
            return floor
        # The noise scales with the sensitivity: one calibration serves every Λ.
        unit = mechanism.law.mean_square / mechanism.sensitivity**2

        def expected_risk(value: float) -> float:
            spread = unit * replace(mechanism, regularization=value).sensitivity ** 2
            noise_risk = (loss.curvature_bound / mechanism.dimension + value) / 2 * spread
            return noise_risk + value / 2 * _reference_square(loss)

        return min([floor, *map(float, grid[grid >= floor])], key=expected_risk)

    @cached_property
    def grid(self) -> Grid:
        """The grid of the release, a function of public constants alone."""
        reach = self.loss.solution_bound(self.regularization)
        reach += self.law.norm_exceeded_with(_CLAMPED)
        return Grid.for_noise(reach=reach, resolution=self.resolution, dimension=self.dimension)

    def release(self, objective: Objective, rng: np.random.Generator | None = None) -> FloatArray:
        """Draw the one θ that is released, from the operating system's randomness.

        ``rng`` is for simulation and tests: its seed reveals the noise.
        """
        self.check_classes()
        return self.add_noise(objective.minimiser(TOLERANCE), rng)

    def add_noise(self, base: Minimiser, rng: np.random.Generator | None = None) -> FloatArray:
        """Return A(D) + b on the grid; see :meth:`release`."""
        if not base.gradient_bound <= TOLERANCE:
            raise InvalidInput("base: its certified gradient must be at most 1e-12.")
        if not self.is_private:
            return base.theta.copy()
        noise = self.law.sample_secure() if rng is None else self.law.sample(1, rng)[0]
        return self.grid.snap(base.theta + noise)

    def check_rows(self, theta: FloatArray, base: FloatArray, base_error: float) -> None:
        """Refuse rows that cannot have made ``theta``: a noise outside its own law at 1e-9."""
        distance = float(np.linalg.norm(theta - base))
        if not self.is_private:
            plausible = distance <= base_error + 1e-8 * (1 + float(np.linalg.norm(theta)))
        else:
            # The noise before rounding is known to half a cell and the error of the base.
            slack = self.grid.diagonal(self.dimension) / 2 + base_error
            plausible = is_plausible(self.law, distance, slack)
        if not plausible:
            raise WrongRows(
                "X, y: these rows cannot have made this model (its noise would have a norm of"
                f" {distance:.3g}, outside its law at {IMPLAUSIBLE:g}); pass the training rows,"
                " in their order and with their encoding."
            )

    def check(self, objective: Objective, theta: FloatArray) -> None:
        """Refuse rows that cannot have made ``theta``."""
        check_count(self, objective)
        base = objective.minimiser(TOLERANCE)
        self.check_rows(theta, base.theta, base.gradient_bound / self.regularization)

    def losses(self, objective: Objective, theta: FloatArray, change: Change) -> RowLosses:
        """Return the losses of all rows in memory, from the leave-one-out minimisers."""
        return minimiser_losses(self, objective, theta, change)

    def prepare(
        self, objective: Objective, theta: FloatArray, *, expected: bool = False
    ) -> "MinimiserLosses":
        """Return what the losses of any block follow from; sampling needs no pass of its own."""
        return MinimiserLosses.of(self, objective, theta)

    def sampler(self, objective: Objective, exact: FloatArray | None = None) -> "MinimiserSampler":
        """Return releases of these rows at any ε; ``exact``: the minimiser, where it is known."""
        return MinimiserSampler(mechanism=self, objective=objective, exact=exact)

    def gradient_variance(self, mean_square_curvature: float) -> float:
        """θ = A + b: the gradients at θ sum to −nΛθ + nHb, about."""
        each = self.law.mean_square / self.dimension
        return each * self.rows**2 * mean_square_curvature


@dataclass(frozen=True, kw_only=True, eq=False)
class MinimiserLosses:
    """The losses of the rows of any block under noise on the minimiser."""

    mechanism: MinimiserPerturbation
    theta: FloatArray
    leave_one_out: LeaveOneOut

    tangent: ClassVar[None] = None

    @classmethod
    def of(
        cls,
        mechanism: MinimiserPerturbation,
        objective: Objective,
        theta: FloatArray,
        *,
        keep_total_penalty: bool = False,
    ) -> "MinimiserLosses":
        """Prepare for the rows of ``objective``, which are checked."""
        check_count(mechanism, objective)
        base = objective.minimiser(TOLERANCE)
        found = LeaveOneOut.of(objective, base, keep_total_penalty=keep_total_penalty)
        mechanism.check_rows(theta, base.theta, found.expansion.base_error)
        return cls(mechanism=mechanism, theta=theta, leave_one_out=found)

    def __call__(self, block: RowBlock) -> RowLosses:
        """Return the losses of the rows of ``block``."""
        near = self.leave_one_out(block)
        return _with_draws(self.mechanism, self.mechanism.row_losses(self.theta, near), near)


def minimiser_losses(
    mechanism: MinimiserPerturbation,
    objective: Objective,
    theta: FloatArray,
    change: Change,
    *,
    keep_total_penalty: bool = False,
) -> RowLosses:
    """Return the losses of all rows in memory under noise on the minimiser."""
    mechanism.check_classes()
    base = objective.minimiser(TOLERANCE)
    near = tight_neighbours(objective, base, change, keep_total_penalty=keep_total_penalty)
    mechanism.check_rows(theta, near.base, near.base_error)
    found = _with_draws(mechanism, mechanism.row_losses(theta, near), near)
    found = replace(found, neighbours=near)
    persons = change.persons
    if persons is None or persons.are_rows or not mechanism.is_private:
        return found
    worst, passed = mechanism.worst_case_of(persons.largest)
    return replace(
        found,
        worst_case=worst,
        worst_case_passed=passed,
        guarantee=mechanism.guarantee(persons.largest),
    )


def check_count(mechanism: Perturbation, objective: Objective) -> None:
    """Refuse rows of another number than the model was made from."""
    mechanism.check_classes()
    if objective.count != mechanism.rows:
        raise WrongRows(
            f"the table has {objective.count} rows: the model was made from {mechanism.rows}; pass"
            " its training rows."
        )


def _with_draws(mechanism: MinimiserPerturbation, losses: RowLosses, near: Neighbours) -> RowLosses:
    """Return the losses, with sampled ones where they have no law in closed form."""
    if losses.noiseless or losses.law is not None:
        return losses

    def draw(size: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        for noise in mechanism.law.sample(size, rng):
            yield mechanism.row_losses(near.base + noise, near).loss

    return replace(
        losses,
        draw=draw,
        sampled=lambda: mean_exposures(draw(_MODELS, np.random.default_rng(_SEED))),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class MinimiserSampler:
    """Noise on a minimiser at any ε, through sampled releases and exact losses.

    ``mechanism``  its own ε is not used.
    ``exact``      the minimiser of ``objective``, where it is known.
    """

    mechanism: MinimiserPerturbation
    objective: Objective
    exact: FloatArray | None = None

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.objective.count

    @property
    def description(self) -> str:
        """What would be released, in one line."""
        return self.mechanism.describe(epsilon=False)

    def sample(self, epsilon: float, size: int, rng: np.random.Generator) -> FloatArray:
        """Return ``size`` releases; the draws of every ε are multiples of one another."""
        return self.perturbed(epsilon, self.mechanism.unit_noise.sample(size, rng))

    def perturbed(self, epsilon: float, unit_noise: FloatArray) -> FloatArray:
        """Return the releases with these noises, in units of the resolution at ε."""
        exact = self.exact
        if exact is None:
            exact = self.objective.minimiser(TOLERANCE).theta
        return exact + replace(self.mechanism, epsilon=epsilon).resolution * unit_noise

    def losses(
        self, epsilon: float, models: FloatArray, seed: np.random.SeedSequence
    ) -> FloatArray:
        """Return (m, n) the loss of every row in each model, exactly; ``seed`` is not needed."""
        how = replace(self.mechanism, epsilon=epsilon)
        task = _BlockDraws(mechanism=how, models=models, leave_one_out=self._leave_one_out)
        return np.concatenate(list(self.objective.map(task)), axis=1)

    @cached_property
    def _leave_one_out(self) -> LeaveOneOut:
        return LeaveOneOut.of(self.objective, self.objective.minimiser(TOLERANCE))


@dataclass(frozen=True, kw_only=True, eq=False)
class _BlockDraws:
    """(m, rows) the losses of the rows of a block in each of the models."""

    mechanism: MinimiserPerturbation
    models: FloatArray
    leave_one_out: LeaveOneOut

    def __call__(self, block: RowBlock) -> FloatArray:
        near = self.leave_one_out(block)
        return np.stack([self.mechanism.row_losses(theta, near).loss for theta in self.models])


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
        if self.noise == "laplace":
            rate = self.epsilon / self.calibrated_sensitivity
            return NormLaplace(rate=rate, dimension=self.dimension)
        assert self.delta is not None
        scale = gaussian_scale(self.epsilon, self.delta, self.calibrated_sensitivity)
        return Gaussian(scale=scale, dimension=self.dimension)

    @property
    def resolution(self) -> float:
        """1/β or σ."""
        return self.law.resolution

    @property
    def unit_noise(self) -> NormLaplace | Gaussian:
        """The noise at β = 1 or σ = 1: that of every ε is ``resolution`` times it."""
        if self.noise == "laplace":
            return NormLaplace(rate=1.0, dimension=self.dimension)
        return Gaussian(scale=1.0, dimension=self.dimension)

    @property
    def closed_form(self) -> ClosedForm:
        """The mechanism itself: the law of a loss depends on the row's distance alone."""
        return self

    def transition(self, tolerance: float) -> Transition:
        """Return the separations at which a row leaves its first regime and reaches its second."""
        return transition(noise=self.noise, dimension=self.dimension, tolerance=tolerance)

    def loss_law(self, separation: FloatArray) -> LossLaw:
        """The law of the loss of rows at β·distance, or distance/σ, = ``separation``: free of ε."""
        if self.noise == "laplace":
            return NormLaplaceLaw(separation=separation, dimension=self.dimension)
        return GaussianLaw(separation=separation)

    def epsilon_at(self, separation: float, distance: FloatArray) -> FloatArray:
        """The largest ε that leaves rows at ``distance`` (n,) at most this ``separation``.

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
        """The least ε that brings a row at ``distance`` to this ``separation``, rounded up."""
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
        """log p(θ ∣ D) − log p(θ ∣ D') for every neighbour, with its interval.

        For ADD the sign is turned, so that > 0 always is evidence that the row was there.
        """
        if not self.is_private:
            return self._noiseless(neighbours)
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
        """Return what two data sets are guaranteed of which one lacks ``rows`` rows of the other.

        Tighter than (ε, δ), because the noise is known. Also where the rows are replaced.

        Formal guarantees
        -----------------
        The centres are at most rows·Δ apart, and the noise has one law: norm-Laplace noise at
        separation rows·Δβ = ε·rows/k, Gaussian noise at μ = rows·Δ/σ. At rows = k that is ε, or
        δ(ε) ≤ δ. Rounding to the grid comes after the noise and adds nothing.
        """
        rows = _checks.whole("rows", rows, least=1)
        if not self.is_private:
            return EpsilonDelta(epsilon=math.inf)
        if self.noise == "laplace":
            share = share_of(self.epsilon, rows, self.rows_per_person)
            return NormLaplaceNoise(separation=share, dimension=self.dimension)
        mu = rows * self.sensitivity / self.resolution
        return GaussianNoise(mu=math.nextafter(mu, math.inf) if rows == 1 else mu * _UP)

    def worst_case_of(self, rows: int) -> tuple[float, float]:
        """Return (b, p): the exposure of ``rows`` rows together passes b with probability ≤ p.

        Formal guarantees
        -----------------
        norm-Laplace  b = ε·rows/k is never passed: ∣∥b∥ − ∥b − s∥∣ ≤ ∥s∥.
        Gaussian      b = ε·rows/k + rows·(rows − k)₊μ²/2 with μ = Δ/σ. P(∣ℓ∣ > b) grows with the
                      distance, and at rows·Δ it is Φ(m/2 − b/m) + Φ(−m/2 − b/m), m = rows·μ. The
                      first argument is at most that of k rows at ε.
        """
        rows = _checks.whole("rows", rows, least=1)
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
        """How much the log ratio of two cells differs from that of the densities at their centre.

        norm-Laplace: each log density varies by β·√d·2^(k−1) from a cell's centre; Gaussian: the
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
    ) -> "ExposureBound":
        """Return the bound of a published report, which is data-independent."""
        from expost.mechanisms.bounds import OutputBound

        return OutputBound(how=self, theta=theta, failure=failure)

    def _noiseless(self, neighbours: Neighbours) -> RowLosses:
        """Without noise two points either coincide or prove which they are."""
        return RowLosses.without_noise(
            neighbours.distance, neighbours.error_bound, neighbours.relation
        )


def _reference_square(loss: Loss) -> float:
    """R², in units of the labels where they have one."""
    unit = 1.0 if loss.label_bound is None else loss.label_bound
    return (_REFERENCE_NORM * unit) ** 2
