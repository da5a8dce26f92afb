"""Noise on a minimiser, θ = A(D) + b: everything but the law of b.

The losses of rows follow from the leave-one-out minimisers (:mod:`expost.neighbouring`), in memory
and in blocks. A subclass defines b, the loss of a row, and the guarantee.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from expost.errors import InvalidInput
from expost.glm import Minimiser, Objective, minimise
from expost.losses import Loss
from expost.mechanisms.base import GRADIENT, TOLERANCE, Sampler
from expost.mechanisms.grid import Grid
from expost.mechanisms.perturbation import Perturbation
from expost.mechanisms.row_losses import RowLosses, mean_exposures
from expost.neighbouring.change import Change
from expost.neighbouring.influence import Exact, Influence
from expost.neighbouring.leave_one_out import LeaveOneOut
from expost.neighbouring.neighbours import Neighbours, tight_neighbours
from expost.noise import draw
from expost.rows import RowBlock
from expost.types import FloatArray

if TYPE_CHECKING:
    from expost.mechanisms.bounds import ExposureBound
    from expost.mechanisms.publishing import NoisyTangent, TangentMechanism

__all__ = [
    "InfluenceLosses",
    "MinimiserLosses",
    "MinimiserPerturbation",
    "MinimiserSampler",
    "influence_losses",
]

# The probability that a coordinate is clamped.
_CLAMPED = 1e-12
# A good θ is taken to have this norm where Λ is chosen without the data.
_REFERENCE_NORM = 1.0
# Models behind expected exposures that have no closed form, and their seed.
_MODELS = 64
_SEED = 0


@dataclass(frozen=True, kw_only=True)
class MinimiserPerturbation(Perturbation):
    """Noise on the minimiser: θ = A(D) + b, on the grid.

    A subclass defines b (``law``, and ``unit_noise`` if it is neither norm-Laplace nor Gaussian),
    the loss of a row (:meth:`row_losses`) and the guarantee.
    """

    @property
    def sensitivity(self) -> float:
        """Δ, the largest distance by which one row moves the released centre."""
        lipschitz = self.loss.lipschitz(self.regularization)
        return 2 * (lipschitz / self.rows + TOLERANCE) / self.regularization

    @property
    def calibrated_sensitivity(self) -> float:
        """kΔ, the largest distance by which the rows of one person move the released centre."""
        return self.rows_per_person * self.sensitivity

    @abstractmethod
    def row_losses(self, theta: FloatArray, neighbours: Neighbours) -> RowLosses:
        """Return log p(θ ∣ D) − log p(θ ∣ D') for every neighbour, with its interval.

        For ADD the sign is turned, so that > 0 always is evidence that the row was there.

        Parameters
        ----------
        theta : FloatArray
            (q·d,) the released θ.
        neighbours : Neighbours
            The minimisers of the neighbouring data sets, with their errors.

        Returns
        -------
        RowLosses
            One loss for each neighbour.

        Raises
        ------
        WrongRows
            If the rows cannot have made ``theta``.
        """

    @abstractmethod
    def bound(
        self,
        theta: FloatArray,
        failure: float,
        tangent: "TangentMechanism | None" = None,
        released: "NoisyTangent | None" = None,
        labels: int = 1,
    ) -> "ExposureBound":
        """Return the bound of a published report, which needs no row but the reader's own."""

    @property
    def derived(self) -> dict[str, float]:
        """What follows from the constants, and is written with them."""
        scale = self.resolution if self.is_private else 0.0
        return {"sensitivity": self.sensitivity, "scale": scale}

    @classmethod
    def automatic_regularization(cls, **constants: Any) -> float:
        """Return a Λ of n, d, ε and k alone: it does not depend on the data.

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
        if self.calibrated is not None:
            return self.first.grid
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
        """Return A(D) + b on the grid; see :meth:`release`.

        Parameters
        ----------
        base : Minimiser
            The computed A(D).
        rng : np.random.Generator, optional
            For simulation and tests, since its seed reveals the noise; None: the operating system's
            randomness.

        Returns
        -------
        FloatArray
            (d,) θ on the grid.

        Raises
        ------
        ConvergenceError
            If the gradient at ``base`` is above the tolerance that the noise is calibrated to.
        InvalidInput
            If the certified gradient at ``base`` is above 1e-12, to which the noise is calibrated.
        """
        if not base.gradient_bound <= TOLERANCE:
            raise InvalidInput("base: its certified gradient must be at most 1e-12.")
        if not self.is_private:
            return base.theta.copy()
        return self.grid.snap(base.theta + draw(self.law, rng))

    def check_rows(self, theta: FloatArray, base: FloatArray, base_error: float) -> None:
        """Refuse rows that cannot have made ``theta``: a noise outside its own law at 1e-9.

        Parameters
        ----------
        theta : FloatArray
            (q·d,) the released θ.
        base : FloatArray
            (d,) A(D) of the rows.
        base_error : float
            A bound on its error.

        Raises
        ------
        WrongRows
            If the rows cannot have made ``theta``.
        """
        # The noise before rounding is known to half a cell and the error of the base.
        slack = self.grid.diagonal(self.dimension) / 2 + base_error if self.is_private else 0.0
        without = base_error + 1e-8 * (1 + float(np.linalg.norm(theta)))
        self.check_noise(float(np.linalg.norm(theta - base)), slack, without=without)

    def check(self, objective: Objective, theta: FloatArray) -> None:
        """Refuse rows that cannot have made ``theta``."""
        self.check_count(objective)
        base = objective.minimiser(TOLERANCE)
        self.check_rows(theta, base.theta, base.gradient_bound / self.regularization)

    def losses(
        self,
        objective: Objective,
        theta: FloatArray,
        change: Change,
        *,
        keep_total_penalty: bool = False,
    ) -> RowLosses:
        """Return the losses of all rows in memory, from the leave-one-out minimisers.

        Parameters
        ----------
        objective : Objective
            J over the training rows.
        theta : FloatArray
            (q·d,) the released θ.
        change : Change
            The rows that leave or enter.
        keep_total_penalty : bool, default=False
            Whether the summed penalty nΛ stays as it is where rows leave; otherwise Λ does.

        Returns
        -------
        RowLosses
            One loss for each neighbouring data set.

        Raises
        ------
        WrongRows
            If the rows cannot have made ``theta``.
        """
        self.check_classes()
        base = objective.minimiser(TOLERANCE)
        if not self.is_private and change.is_single_removal:
            influence = Influence.of(objective, base, keep_total_penalty=keep_total_penalty)
            self.check_rows(theta, base.theta, influence.expansion.base_error)
            return influence_losses(influence, objective, change)
        near = tight_neighbours(objective, base, change, keep_total_penalty=keep_total_penalty)
        self.check_rows(theta, near.base, near.base_error)
        losses = replace(_with_draws(self, self.row_losses(theta, near), near), neighbours=near)
        persons = change.persons
        if persons is None or persons.are_rows or not self.is_private:
            return losses
        worst, passed = self.worst_case_of(persons.largest)
        return replace(
            losses,
            worst_case=worst,
            worst_case_passed=passed,
            guarantee=self.guarantee(persons.largest),
        )

    def prepare(
        self,
        objective: Objective,
        theta: FloatArray,
        *,
        expected: bool = False,
        keep_total_penalty: bool = False,
    ) -> "MinimiserLosses | InfluenceLosses":
        """Return what the losses of any block follow from; sampling needs no pass of its own.

        Parameters
        ----------
        objective : Objective
            J over the training rows.
        theta : FloatArray
            (q·d,) the released θ.
        expected : bool, default=False
            Not used: the law of a loss is known.
        keep_total_penalty : bool, default=False
            Whether the summed penalty nΛ stays as it is where rows leave; otherwise Λ does.

        Returns
        -------
        MinimiserLosses or InfluenceLosses
            A function of a block of rows.

        Raises
        ------
        WrongRows
            If the rows cannot have made ``theta``.
        """
        self.check_count(objective)
        base = objective.minimiser(TOLERANCE)
        if not self.is_private:
            influence = Influence.of(objective, base, keep_total_penalty=keep_total_penalty)
            self.check_rows(theta, base.theta, influence.expansion.base_error)
            return InfluenceLosses(mechanism=self, influence=influence)
        leave_one_out = LeaveOneOut.of(objective, base, keep_total_penalty=keep_total_penalty)
        self.check_rows(theta, base.theta, leave_one_out.expansion.base_error)
        return MinimiserLosses(mechanism=self, theta=theta, leave_one_out=leave_one_out)

    def sampler(self, objective: Objective, near: Minimiser | None = None) -> "MinimiserSampler":
        """Return releases of these rows at any ε; ``near``: about the minimiser."""
        return MinimiserSampler(mechanism=self, objective=objective, near=near)

    def gradient_variance(self, mean_square_curvature: float) -> float:
        """Return the variance of a coordinate of nHb: gradients at θ = A + b sum to −nΛθ + nHb."""
        each = self.law.mean_square / self.dimension
        return each * self.rows**2 * mean_square_curvature


@dataclass(frozen=True, kw_only=True, eq=False)
class MinimiserLosses:
    """The losses of the rows of any block under noise on the minimiser."""

    mechanism: MinimiserPerturbation
    theta: FloatArray
    leave_one_out: LeaveOneOut

    tangent: ClassVar[None] = None
    exact: ClassVar[None] = None

    def refined(self, objective: Objective, *, top: int) -> "MinimiserLosses":
        """Return these losses: all are certified."""
        return self

    def __call__(self, block: RowBlock) -> RowLosses:
        """Return the losses of the rows of ``block``."""
        near = self.leave_one_out(block)
        return _with_draws(self.mechanism, self.mechanism.row_losses(self.theta, near), near)


@dataclass(frozen=True, kw_only=True, eq=False)
class InfluenceLosses:
    """The losses of the rows of any block without noise: infinite, with each row's influence."""

    mechanism: MinimiserPerturbation
    influence: Influence

    tangent: ClassVar[None] = None

    @property
    def exact(self) -> Exact | None:
        """The rows that were refined to their leave-one-out minimiser; None for none."""
        return self.influence.exact

    def refined(self, objective: Objective, *, top: int) -> "InfluenceLosses":
        """Return the same with the ``top`` rows of the largest shifts refined."""
        return replace(self, influence=self.influence.refined(objective, top=top))

    def __call__(self, block: RowBlock) -> RowLosses:
        """Return the losses of the rows of ``block``."""
        return RowLosses.of_influence(self.influence, *self.influence(block))


def influence_losses(influence: Influence, objective: Objective, change: Change) -> RowLosses:
    """Return the losses of all rows in memory, which leave one at a time."""
    near, predictors = objective.rows.on_first(influence, objective.count)
    near = replace(
        near,
        data=objective,
        change=change,
        keep_total_penalty=not np.any(influence.expansion.penalty_change),
    )
    return RowLosses.of_influence(influence, near, predictors)


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
        sampled=lambda: mean_exposures(draw(_MODELS, np.random.default_rng(_SEED)), len(near)),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class MinimiserSampler(Sampler):
    """Noise on a minimiser at any ε, through sampled releases and exact losses.

    Parameters
    ----------
    near : Minimiser, optional
        A point near the minimiser of ``objective``, where one is known.
    """

    mechanism: MinimiserPerturbation
    near: Minimiser | None = None

    def perturbed(
        self, epsilon: float, unit_noise: FloatArray, tolerance: float = GRADIENT
    ) -> FloatArray:
        """Return the releases with these noises, in units of the resolution at ε."""
        near = self.near
        if near is None:
            near = self.objective.minimiser(tolerance)
        elif not near.gradient_bound <= tolerance:
            near = minimise(self.objective, tolerance=tolerance, start=near.theta)
        return near.theta + replace(self.mechanism, epsilon=epsilon).resolution * unit_noise

    def losses(
        self, epsilon: float, models: FloatArray, seed: np.random.SeedSequence
    ) -> FloatArray:
        """Return (m, n) the loss of every row in each model, exactly; ``seed`` is not needed."""
        mechanism = replace(self.mechanism, epsilon=epsilon)
        task = _BlockDraws(mechanism=mechanism, models=models, leave_one_out=self._leave_one_out)
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


def _reference_square(loss: Loss) -> float:
    """Return R², in units of the labels where they have one."""
    unit = 1.0 if loss.label_bound is None else loss.label_bound
    return (_REFERENCE_NORM * unit) ** 2
