"""Many releases by objective perturbation at once, for simulation.

Each model minimises the same objective with another linear term. From the unperturbed minimiser
they take chord steps together, all with the one factor of its Hessian: a few matrix products for
all models, and as many passes over the rows. A model that does not get there is minimised on its
own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

import numpy as np
import scipy.linalg

from expost.errors import InvalidInput
from expost.glm import Minimiser, Objective, minimise
from expost.losses import Loss
from expost.mechanisms.base import GRADIENT, Sampler
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.person_losses import person_losses
from expost.mechanisms.row_losses import RowLosses, controlled_exposures, mean_exposures
from expost.mechanisms.tangent import Tangent
from expost.neighbouring.change import Change
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = [
    "ObjectiveSampler",
    "SampledTangents",
    "TangentLosses",
    "drawn_losses",
    "expected_exposures",
    "perturbed_minimisers",
    "tangent_losses",
]

_STEPS = 40
# Predictors held at a time.
_BLOCK = 2**20
# Models behind the expected exposures of a profile, and their seed: a profile is reproducible.
_MOST_MODELS, _FEWEST_MODELS = 64, 8
_SEED = 0
# n·(q·d)² times the number of models stays below this where that leaves enough of them.
_WORK = 2**29
# Past so many coefficients the tangents of 64 models take more than some 500 MiB.
_MOST_COEFFICIENTS = 512


def perturbed_minimisers(
    objective: Objective,
    linear: FloatArray,
    tolerance: float = GRADIENT,
    base: Minimiser | None = None,
) -> FloatArray:
    """Return (m, q·d) minimisers of J + c·θ for the rows c of ``linear``, averaged form.

    Parameters
    ----------
    tolerance : float, default=GRADIENT
        The largest gradient that is left.
    base : Minimiser, optional
        Where they begin: near the minimiser of J.
    """
    least = float(np.min(objective.penalty))
    # Large noise leaves a gradient that float64 cannot make smaller.
    reach = float(np.max(np.linalg.norm(linear, axis=1), initial=0.0))
    goal = max(tolerance, 1e-15 * reach * (1 + objective.loss.curvature_bound / least))
    if base is None:
        base = objective.minimiser(tolerance)
    hessian = objective.hessian(base.theta) if base.hessian is None else base.hessian
    factor = scipy.linalg.cho_factor(hessian)
    models = np.tile(base.theta, (len(linear), 1))
    before = np.full(len(models), np.inf)
    moving = np.arange(len(models))
    for left in range(_STEPS, 0, -1):
        at = models[moving]
        gradient = _mean(objective, _GradientSums(loss=objective.loss, models=at))
        gradient += at * objective.penalty
        gradient += linear[moving]
        size = np.linalg.norm(gradient, axis=1)
        # A model that is done takes no more steps, nor one that would not get there in those left.
        with np.errstate(divide="ignore"):
            rate = np.log(before[moving] / size)
            going = (size > goal) & (left * rate > np.log(size / goal))
        before[moving] = size
        moving, gradient = moving[going], gradient[going]
        if not len(moving):
            break
        models[moving] -= scipy.linalg.cho_solve(factor, gradient.T).T
    for index in np.flatnonzero(~(before <= goal)):
        alone = objective.with_linear(linear[index])
        models[index] = minimise(alone, tolerance=goal, start=models[index]).theta
    return models


def _mean(objective: Objective, task: Callable[[RowBlock], FloatArray]) -> FloatArray:
    """Return the sum that ``task`` forms over all rows, divided by their number."""
    mean: FloatArray = sum(objective.map(task), start=np.zeros(1)) / objective.count
    return mean


@dataclass(frozen=True, kw_only=True, eq=False)
class _GradientSums:
    """(m, q·d) Σ∇ℓ of one block at each of the models, some of them at a time."""

    loss: Loss
    models: FloatArray

    def __call__(self, block: RowBlock) -> FloatArray:
        q, (n, d) = self.loss.outputs, block.X.shape
        step = max(1, _BLOCK // (n * q))
        total = np.empty_like(self.models)
        for start in range(0, len(self.models), step):
            some = self.models[start : start + step]
            each = (some.reshape(-1, d) @ block.X.T).reshape(len(some), q, n)
            if q == 1:
                slope = self.loss.slope(each[:, 0], block.y)
            else:
                z = each.swapaxes(1, 2).reshape(len(some) * n, q)
                slope = self.loss.slope(z, np.tile(block.y, len(some)))
                slope = slope.reshape(len(some), n, q).swapaxes(1, 2).reshape(-1, n)
            total[start : start + step] = (slope @ block.X).reshape(len(some), q * d)
        return total


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectiveSampler(Sampler):
    """Objective perturbation on fixed rows at any ε, through sampled releases and exact losses.

    The penalty of ``objective`` is replaced by that of each ε. ``near``: a point near the minimiser
    at the ε of ``mechanism``, where one is known.
    """

    mechanism: ObjectivePerturbation
    near: Minimiser | None = None

    def perturbed(
        self, epsilon: float, unit_noise: FloatArray, tolerance: float = GRADIENT
    ) -> FloatArray:
        """Return the releases with these noises, in units of the resolution at ε."""
        mechanism, problem = self._at(epsilon)
        linear = mechanism.resolution / mechanism.rows * unit_noise
        base = self.near if epsilon == self.mechanism.epsilon else None
        return perturbed_minimisers(problem, linear, tolerance, base)

    def losses(
        self, epsilon: float, models: FloatArray, seed: np.random.SeedSequence
    ) -> FloatArray:
        """Return (m, n) the loss of every row in each model, exactly; ``seed`` is not needed."""
        mechanism, problem = self._at(epsilon)
        tangents, losses = Tangent.at_each(mechanism, problem, models), list[FloatArray]()
        step = max(1, _BLOCK // problem.dimension**2)
        while some := tuple(replace(tangent, objective=None) for tangent in islice(tangents, step)):
            blocks = problem.map(_SampledLosses(tangents=some))
            losses.append(np.concatenate(list(blocks), axis=1))
        return np.concatenate(losses)

    def _at(self, epsilon: float) -> tuple[ObjectivePerturbation, Objective]:
        mechanism = replace(self.mechanism, epsilon=epsilon)
        return mechanism, replace(
            self.objective, penalty=np.full(mechanism.dimension, mechanism.total_regularization)
        )


def tangent_losses(
    mechanism: ObjectivePerturbation, objective: Objective, theta: FloatArray, change: Change
) -> RowLosses:
    """Return the losses of all rows in memory; refuse rows that cannot have made ``theta``."""
    persons = change.persons
    if persons is not None and not mechanism.is_private and not persons.are_rows:
        raise InvalidInput(
            "persons: a model of more than two classes without noise is profiled row by row; leave"
            " persons out."
        )
    tangent = Tangent.at(mechanism, objective, theta)
    tangent.check_rows()
    losses = tangent.row_losses(change) if persons is None else person_losses(tangent, persons)
    if not mechanism.is_private:
        return losses
    return replace(
        losses,
        sampled=lambda: expected_exposures(mechanism, objective, change),
        draw=lambda size, rng: drawn_losses(mechanism, objective, change, size, rng),
    )


def drawn_losses(
    mechanism: ObjectivePerturbation,
    objective: Objective,
    change: Change,
    size: int,
    rng: np.random.Generator,
) -> Iterator[FloatArray]:
    """Yield the loss of every row, or person, in each of ``size`` releases θ ~ p(· ∣ D)."""
    for tangent in _drawn_tangents(mechanism, objective, size, rng):
        if change.persons is None:
            yield tangent.sampled_losses(change)
        else:
            yield person_losses(tangent, change.persons).loss


def expected_exposures(
    mechanism: ObjectivePerturbation, objective: Objective, change: Change
) -> tuple[FloatArray, FloatArray]:
    """Return E∣loss∣ over θ ~ p(· ∣ D) and its standard error, from releases of a fixed seed.

    Rows have the loss of the noise at A(D) as their control variate, and :func:`model_count`
    releases; persons are means over 64.
    """
    rng = np.random.default_rng(_SEED)
    if change.persons is not None:
        drawn = drawn_losses(mechanism, objective, change, _MOST_MODELS, rng)
        return mean_exposures(drawn, len(change))
    fixed = objective.minimiser(GRADIENT).theta
    tangents = _drawn_tangents(mechanism, objective, model_count(objective), rng)

    def sampled() -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        blocks = None
        for tangent in tangents:
            blocks = blocks or tangent.changed_blocks(change, fixed)
            yield tangent.sampled_losses(change), *tangent.control_losses(blocks)

    return controlled_exposures(sampled(), mechanism.law, len(change))


def model_count(objective: Objective) -> int:
    """Return the number of releases behind expected exposures: 64, of large tables fewer.

    Standard errors of 8 with the control variate over those of 64 without, of the median row and of
    the most exposed one: .4 and below .01 on Adult (48,842 × 109) at ε = 1, where 15 % of the rows
    have a larger one; 1.5 and .3 on 5,000 of its rows at ε = .1, where θ varies more.
    """
    affordable = _WORK // max(1, objective.count * objective.dimension**2)
    return max(_FEWEST_MODELS, min(_MOST_MODELS, affordable))


@dataclass(frozen=True, kw_only=True, eq=False)
class TangentLosses:
    """The losses of the rows of any block under objective perturbation.

    Parameters
    ----------
    sampled : SampledTangents | None
        The releases that expected exposures are means over; None where these are not needed,
        without noise, and where they would take too much memory.
    """

    tangent: Tangent
    sampled: "SampledTangents | None"

    exact: ClassVar[None] = None

    @property
    def mechanism(self) -> ObjectivePerturbation:
        """The mechanism of the model."""
        return self.tangent.mechanism

    @classmethod
    def of(
        cls,
        mechanism: ObjectivePerturbation,
        objective: Objective,
        theta: FloatArray,
        *,
        expected: bool,
    ) -> "TangentLosses":
        """Prepare for the rows of ``objective``, which are checked."""
        tangent = mechanism.check(objective, theta)
        sampled, size = None, mechanism.dimension
        if expected and mechanism.is_private and size <= _MOST_COEFFICIENTS:
            sampled = SampledTangents.of(mechanism, objective)
        return cls(tangent=tangent.detached(), sampled=sampled)

    def refined(self, objective: Objective, *, top: int) -> "TangentLosses":
        """Return these losses: all are certified."""
        return self

    def __call__(self, block: RowBlock) -> RowLosses:
        """Return the losses of the rows of ``block``."""
        losses, sampled = self.tangent.block_losses(block), self.sampled
        if sampled is None:
            return losses
        return replace(losses, sampled=lambda: sampled.exposures(block))


@dataclass(frozen=True, kw_only=True, eq=False)
class _SampledLosses:
    """The losses of the rows of any block in each of m releases."""

    tangents: tuple[Tangent, ...]

    def __call__(self, block: RowBlock) -> FloatArray:
        """Return (m, rows) losses."""
        return np.stack([tangent.sampled_block_losses(block) for tangent in self.tangents])


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledTangents:
    """The tangents of m sampled releases: expected exposures of the rows of any block.

    They hold m·(q·d)² numbers and no row, and are sent to where the rows are.

    Parameters
    ----------
    fixed : FloatArray
        A(D), at which the control variate of expected exposures is taken.
    """

    tangents: tuple[Tangent, ...]
    fixed: FloatArray

    @classmethod
    def of(cls, mechanism: ObjectivePerturbation, objective: Objective) -> "SampledTangents":
        """Sample the releases of :func:`expected_exposures`, by some passes over the rows."""
        rng = np.random.default_rng(_SEED)
        drawn = _drawn_tangents(mechanism, objective, model_count(objective), rng)
        tangents = tuple(replace(tangent, objective=None) for tangent in drawn)
        return cls(tangents=tangents, fixed=objective.minimiser(GRADIENT).theta)

    def exposures(self, block: RowBlock) -> tuple[FloatArray, FloatArray]:
        """Return E∣loss∣ of the rows of a block, and its standard error."""
        sampled = (
            (tangent.sampled_block_losses(block), *tangent.control_block_losses(block, self.fixed))
            for tangent in self.tangents
        )
        return controlled_exposures(sampled, self.tangents[0].mechanism.law, len(block))


def _drawn_tangents(
    mechanism: ObjectivePerturbation, objective: Objective, size: int, rng: np.random.Generator
) -> Iterator[Tangent]:
    noise = mechanism.law.sample(size, rng)
    models = perturbed_minimisers(objective, noise / mechanism.rows)
    return Tangent.at_each(mechanism, objective, models)
