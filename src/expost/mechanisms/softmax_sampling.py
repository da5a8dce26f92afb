"""Many releases of a softmax regression by objective perturbation at once, for simulation.

As :mod:`expost.mechanisms.sampling` does it for two classes: chord steps for all models together,
with the one factor of the unperturbed Hessian.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.linalg

from expost.glm import Objective, minimise
from expost.losses import SoftmaxDerivatives
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.person_losses import person_losses
from expost.mechanisms.softmax import SoftmaxTangent
from expost.neighbouring.persons import Persons
from expost.types import FloatArray, Neighbouring

__all__ = ["drawn_softmax_losses", "softmax_minimisers", "typical_softmax_exposures"]

# The gradient (averaged) at which a simulated model is good enough.
_GRADIENT = 1e-10
_STEPS = 40
# Predictors held at a time.
_BLOCK = 2**20
# Models behind the typical exposures of a profile, and their seed: the same profile twice is one.
_MODELS = 64
_SEED = 0


def softmax_minimisers(problem: Objective, linear: FloatArray) -> FloatArray:
    """(m, K·d) minimisers of J + c·θ for the rows c of ``linear``, averaged form.

    A model that chord steps do not bring there is minimised on its own.
    """
    base = minimise(problem, tolerance=_GRADIENT).theta
    curved = np.zeros((problem.dimension, problem.dimension))
    for block in problem.held.blocks():
        part = problem.held.X[block]
        found = SoftmaxDerivatives.of(
            part @ problem.matrix(base).T, problem.held.y[block].astype(np.int64)
        )
        curved += found.curvature_sum(part)
    hessian = curved / problem.count
    hessian[np.diag_indices_from(hessian)] += problem.penalty
    factor = scipy.linalg.cho_factor(hessian)
    step = max(1, _BLOCK // (problem.count * problem.loss.outputs))
    models = np.tile(base, (len(linear), 1))
    for start in range(0, len(linear), step):
        some = slice(start, start + step)
        models[some] = _chord(problem, factor, models[some], linear[some])
    return models


def _chord(
    problem: Objective,
    factor: tuple[FloatArray, bool],
    models: FloatArray,
    linear: FloatArray,
) -> FloatArray:
    """Steps with one factor for all models while the slowest one still gains."""
    models, before = models.copy(), np.full(len(models), np.inf)
    moving = np.arange(len(models))
    for _ in range(_STEPS):
        gradient = _gradients(problem, models[moving]) + linear[moving]
        size = np.linalg.norm(gradient, axis=1)
        going = (size > _GRADIENT) & (size < 0.7 * before[moving])
        before[moving] = size
        moving, gradient = moving[going], gradient[going]
        if not len(moving):
            break
        models[moving] -= scipy.linalg.cho_solve(factor, gradient.T).T
    for place in np.flatnonzero(~(before <= _GRADIENT)):
        tilted = replace(problem, linear=linear[place])
        found = minimise(tilted, tolerance=_GRADIENT, start=models[place])
        models[place] = found.theta
    return models


def _gradients(problem: Objective, models: FloatArray) -> FloatArray:
    """(m, K·d) ∇J of the unperturbed objective at each model."""
    K, d, count = problem.loss.outputs, problem.columns, len(models)
    total = np.zeros((count * K, d))
    for block in problem.held.blocks():
        X = problem.held.X[block]
        z = (X @ models.reshape(count * K, d).T).reshape(-1, K)
        u = SoftmaxDerivatives.of(z, np.repeat(problem.held.y[block].astype(np.int64), count)).slope
        total += u.reshape(len(X), count * K).T @ X
    gradient: FloatArray = total.reshape(count, K * d) / problem.count + problem.penalty * models
    return gradient


def drawn_softmax_losses(
    mechanism: ObjectivePerturbation,
    problem: Objective,
    relation: Neighbouring,
    entering: tuple[FloatArray, FloatArray] | None,
    size: int,
    rng: np.random.Generator,
    persons: Persons | None = None,
) -> Iterator[FloatArray]:
    """The loss of every row, or person, in each of ``size`` releases θ ~ p(· ∣ D)."""
    noise = mechanism.law.sample(size, rng)
    for theta in softmax_minimisers(problem, noise / mechanism.rows):
        tangent = SoftmaxTangent.at(mechanism, problem, theta)
        if persons is not None:
            yield person_losses(tangent, persons).loss
        elif relation is Neighbouring.REMOVE:
            yield tangent.removal_losses()
        else:
            yield tangent.row_losses(relation, entering).loss


def typical_softmax_exposures(
    mechanism: ObjectivePerturbation,
    problem: Objective,
    relation: Neighbouring = Neighbouring.REMOVE,
    entering: tuple[FloatArray, FloatArray] | None = None,
    persons: Persons | None = None,
) -> tuple[FloatArray, FloatArray]:
    """E∣loss∣ over θ ~ p(· ∣ D) and its standard error, from 64 releases of a fixed seed."""
    rng = np.random.default_rng(_SEED)
    exposures = np.abs(
        list(drawn_softmax_losses(mechanism, problem, relation, entering, _MODELS, rng, persons))
    )
    spread: FloatArray = exposures.std(axis=0) / math.sqrt(_MODELS - 1)
    return exposures.mean(axis=0), spread
