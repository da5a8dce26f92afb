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
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from expost import _checks
from expost._numerics import ROUNDOFF
from expost.accounting import gaussian_epsilon, gaussian_epsilon_below, gaussian_scale
from expost.errors import InvalidInput, WrongRows
from expost.glm import Minimiser
from expost.losses import Loss, Squared
from expost.mechanisms.grid import Grid
from expost.mechanisms.row_losses import RowLosses
from expost.neighbouring.neighbours import Neighbours
from expost.noise import Gaussian, GaussianLaw, LossLaw, NormLaplace, NormLaplaceLaw
from expost.risk import EpsilonDelta, GaussianNoise, Guarantee, NormLaplaceNoise
from expost.types import FloatArray, Neighbouring

__all__ = ["NOISES", "OutputPerturbation", "automatic_regularization", "share_of"]

NOISES = ("laplace", "gaussian")
# η: the certified gradient of every minimiser that is released.
TOLERANCE = 1e-12
# How improbable a noise must be before the rows are taken for the wrong ones.
_IMPLAUSIBLE = 1e-9
# The probability that a coordinate is clamped.
_CLAMPED = 1e-12
# A good θ is taken to have this norm where Λ is chosen without the data.
_REFERENCE_NORM = 1.0
# Past this ε float64 does not resolve the δ of Gaussian noise.
_LARGEST_GAUSSIAN = 1e12
# The few operations behind the figures of several rows round up.
_UP = 1 + 16 * ROUNDOFF


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation:
    """The public constants of one release by output perturbation.

    ``rows_per_person`` is k: (ε, δ) holds for all rows of a person who has at most k.
    """

    epsilon: float
    delta: float | None = None
    noise: str = "laplace"
    loss: Loss
    regularization: float
    rows: int
    dimension: int
    rows_per_person: int = 1

    kind = "output"

    def __post_init__(self) -> None:
        _checks.one_of("noise", self.noise, NOISES)
        # Kept as plain numbers: they are written to model.json.
        plain = {
            "epsilon": _checks.positive("epsilon", self.epsilon, finite=False),
            "regularization": _checks.regularization(self.regularization),
            "rows": _checks.whole("rows", self.rows, least=2),
            "dimension": _checks.whole("dimension", self.dimension, least=1),
            "rows_per_person": _checks.rows_per_person(self.rows_per_person),
        }
        if self.delta is not None:
            plain["delta"] = _checks.probability("delta", self.delta)
        if not self.epsilon >= 1e-50:
            raise InvalidInput(f"epsilon={self.epsilon!r}: must be at least 1e-50.")
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if self.noise == "gaussian":
            if self.delta is None:
                raise InvalidInput(
                    "delta=None: Gaussian noise needs a delta between 0 and 1; give one well"
                    " below 1/n, or take noise='laplace'."
                )
        elif self.delta is not None:
            raise InvalidInput(
                f"delta={self.delta!r}: norm-Laplace noise promises pure epsilon and takes none;"
                " leave it out, or take noise='gaussian'."
            )

    @property
    def is_private(self) -> bool:
        """Whether there is any noise."""
        return self.epsilon < math.inf

    @property
    def total_regularization(self) -> float:
        """The Λ of the objective that is minimised: the one that was asked for."""
        return self.regularization

    @property
    def worst_case(self) -> float:
        """The exposure of one row that is guaranteed, ε/k; see :meth:`worst_case_of`."""
        return share_of(self.epsilon, 1, self.rows_per_person)

    @property
    def derived(self) -> dict[str, float]:
        """What follows from the constants, and is written beside them."""
        scale = self.resolution if self.is_private else 0.0
        return {"sensitivity": self.sensitivity, "scale": scale}

    @property
    def sensitivity(self) -> float:
        """Δ: how far one row can move the released centre."""
        lipschitz = self.loss.lipschitz(self.regularization)
        return 2 * (lipschitz / self.rows + TOLERANCE) / self.regularization

    @property
    def calibrated_sensitivity(self) -> float:
        """kΔ: how far the rows of one person can move the released centre."""
        return self.rows_per_person * self.sensitivity

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
        return _resolution(self.law)

    @property
    def unit_noise(self) -> NormLaplace | Gaussian:
        """The noise at β = 1 or σ = 1: that of every ε is ``resolution`` times it."""
        if self.noise == "laplace":
            return NormLaplace(rate=1.0, dimension=self.dimension)
        return Gaussian(scale=1.0, dimension=self.dimension)

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

    @cached_property
    def grid(self) -> Grid:
        """The grid of the release, a function of public constants alone."""
        reach = self.loss.solution_bound(self.regularization)
        reach += self.law.norm_exceeded_with(_CLAMPED)
        return Grid.for_noise(reach=reach, resolution=self.resolution, dimension=self.dimension)

    def release(self, base: Minimiser, rng: np.random.Generator | None = None) -> FloatArray:
        """Draw the one θ that is released, from the operating system's randomness.

        ``rng`` is for simulation and tests: whoever knows its seed can take the noise off.
        """
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
            below, _ = self.law.norm_tails(distance + slack)
            _, above = self.law.norm_tails(max(distance - slack, 0.0))
            plausible = float(above) >= _IMPLAUSIBLE / 2 and float(below) >= _IMPLAUSIBLE / 2
        if not plausible:
            raise WrongRows(
                "X, y: these rows cannot have made this model (its noise would have a norm of"
                f" {distance:.3g}, outside its law at {_IMPLAUSIBLE:g}); pass the training rows,"
                " in their order and with their encoding."
            )

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

    @property
    def worst_case_passed(self) -> float:
        """The probability with which the exposure of one row may pass ``worst_case``."""
        return self.worst_case_of(1)[1]

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

    def _noiseless(self, neighbours: Neighbours) -> RowLosses:
        """Without noise two points either coincide or prove which they are."""
        return RowLosses.without_noise(
            neighbours.distance, neighbours.error_bound, neighbours.relation
        )


def automatic_regularization(
    *,
    epsilon: float,
    delta: float | None,
    noise: str,
    loss: Loss,
    rows: int,
    dimension: int,
    rows_per_person: int = 1,
) -> float:
    """Λ from n, d, ε and k alone: no look at the data, so it costs no privacy.

    Minimises over a grid of Λ the expected excess risk of the noise plus the bias of the penalty,

        (c + Λ)/2 · E∥b∥² + Λ/2 · R²,     c = sup f″·d⁻¹ (a row spreads over d coordinates),

    for a useful θ of norm R = 1 (in units of the labels), and never goes below 1/n, the default
    of scikit-learn.
    """
    floor = 1 / rows
    grid = np.geomspace(1e-8, 1e3, 441)
    if not epsilon < math.inf:
        return floor
    mechanism = OutputPerturbation(
        epsilon=epsilon,
        delta=delta,
        noise=noise,
        loss=loss,
        regularization=1.0,
        rows=rows,
        dimension=dimension,
        rows_per_person=rows_per_person,
    )
    # Either noise scales with the sensitivity: one calibration serves every Λ.
    unit = _mean_square_norm(mechanism.law) / mechanism.sensitivity**2

    def expected_risk(value: float) -> float:
        spread = unit * replace(mechanism, regularization=value).sensitivity ** 2
        noise_risk = (loss.curvature_bound / dimension + value) / 2 * spread
        return noise_risk + value / 2 * _reference_square(loss)

    return min([floor, *map(float, grid[grid >= floor])], key=expected_risk)


def share_of(epsilon: float, rows: int, rows_per_person: int) -> float:
    """ε·rows/k, rounded up."""
    if rows == rows_per_person or not epsilon < math.inf:
        return epsilon
    exact = Fraction(epsilon) * rows / rows_per_person
    share = rows * epsilon / rows_per_person
    return share if Fraction(share) >= exact else math.nextafter(share, math.inf)


def _resolution(law: NormLaplace | Gaussian) -> float:
    """1/β or σ: the length over which the density hardly changes."""
    return 1 / law.rate if isinstance(law, NormLaplace) else law.scale


def _mean_square_norm(law: NormLaplace | Gaussian) -> float:
    """E∥b∥²: d(d+1)/β² or dσ²."""
    spread = law.dimension + 1 if isinstance(law, NormLaplace) else 1
    return law.dimension * spread * _resolution(law) ** 2


def _reference_square(loss: Loss) -> float:
    """R², in units of the labels where they have one."""
    unit = loss.label_bound if isinstance(loss, Squared) else 1.0
    return (_REFERENCE_NORM * unit) ** 2
