"""Many releases by objective perturbation at once, for simulation.

Each model minimises the same objective with another linear term. From the unperturbed minimiser
they take chord steps together, all with the one factor of its Hessian: a few matrix products for
all models. A model that does not get there is minimised on its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from expost.glm import Minimiser, Objective, minimise
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.person_losses import person_losses
from expost.mechanisms.tangent import Tangent
from expost.neighbouring.persons import Persons
from expost.rounding import for_persons, upper_text
from expost.types import FloatArray, Neighbouring

__all__ = ["ObjectiveSampler", "drawn_losses", "perturbed_minimisers", "typical_exposures"]

# The gradient (averaged) at which a simulated model is good enough.
_GRADIENT = 1e-10
_STEPS = 40
# Predictors held at a time.
_BLOCK = 2**20
# Models behind the typical exposures of a profile, and their seed: the same profile twice is one.
_MODELS = 64
_SEED = 0


def perturbed_minimisers(problem: Objective, linear: FloatArray) -> FloatArray:
    """(m, d) minimisers of J + c·θ for the rows c of ``linear`` (m, d), averaged form."""
    least = float(np.min(problem.penalty))
    # Large noise leaves a gradient that float64 cannot make smaller.
    reach = float(np.max(np.linalg.norm(linear, axis=1), initial=0.0))
    goal = max(_GRADIENT, 1e-15 * reach * (1 + problem.loss.curvature_bound / least))
    base = minimise(problem, tolerance=_GRADIENT)
    models = np.tile(base.theta, (len(linear), 1))
    step = max(1, _BLOCK // problem.count)
    factor = scipy.linalg.cho_factor(_hessian(problem, base))
    for start in range(0, len(linear), step):
        some = slice(start, start + step)
        models[some] = _chord(problem, factor, models[some], linear[some], goal)
    return models


def _hessian(problem: Objective, base: Minimiser) -> FloatArray:
    total = np.zeros((problem.columns, problem.columns))
    for block in problem.held.blocks():
        X = problem.held.X[block]
        _, curvature = problem.loss.derivatives(X @ base.theta, problem.held.y[block])
        total += (X * curvature[:, None]).T @ X
    hessian: FloatArray = total / problem.count + np.diag(problem.penalty)
    return hessian


def _chord(
    problem: Objective,
    factor: tuple[FloatArray, bool],
    models: FloatArray,
    linear: FloatArray,
    goal: float,
) -> FloatArray:
    """Steps with one factor for all models while the slowest one still gains."""
    models = models.copy()
    before = np.full(len(models), np.inf)
    moving = np.arange(len(models))
    for _ in range(_STEPS):
        gradient = _gradients(problem, models[moving], linear[moving])
        size = np.linalg.norm(gradient, axis=1)
        # What is done, and what does not shrink by half, is left.
        going = (size > goal) & (size < 0.5 * before[moving])
        before[moving] = size
        moving, gradient = moving[going], gradient[going]
        if not len(moving):
            break
        models[moving] -= scipy.linalg.cho_solve(factor, gradient.T).T
    for place in np.flatnonzero(~(before <= goal)):
        tilted = replace(problem, linear=linear[place])
        models[place] = minimise(tilted, tolerance=goal).theta
    return models


def _gradients(problem: Objective, models: FloatArray, linear: FloatArray) -> FloatArray:
    total = np.zeros_like(models)
    for block in problem.held.blocks():
        X = problem.held.X[block]
        slope, _ = problem.loss.derivatives(models @ X.T, problem.held.y[block])
        total += slope @ X
    gradient: FloatArray = total / problem.count + models * problem.penalty + linear
    return gradient


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectiveSampler:
    """Objective perturbation on fixed rows at any ε, through sampled releases and exact losses.

    ``mechanism``  its own ε plays no part.
    ``problem``    the rows; its penalty is that of each ε.
    """

    mechanism: ObjectivePerturbation
    problem: Objective

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.problem.count

    @property
    def description(self) -> str:
        """What would be released, in one line."""
        how = self.mechanism
        delta = "" if how.delta is None else f", delta={upper_text(how.delta)}"
        return (
            f"{how.loss.name} by objective perturbation, {how.noise} noise{delta}"
            f"{for_persons(how.rows_per_person)},"
            f" regularization={how.regularization:.4g}, n={how.rows}, d={how.dimension}"
        )

    def sample(self, epsilon: float, size: int, rng: np.random.Generator) -> FloatArray:
        """``size`` releases; the draws of every ε are multiples of one another."""
        return self.perturbed(epsilon, self.mechanism.unit_noise.sample(size, rng))

    def perturbed(self, epsilon: float, unit_noise: FloatArray) -> FloatArray:
        """The releases with these noises, in units of the resolution at ε."""
        how, problem = self._at(epsilon)
        return perturbed_minimisers(problem, how.resolution / how.rows * unit_noise)

    def losses(
        self, epsilon: float, models: FloatArray, seed: np.random.SeedSequence
    ) -> FloatArray:
        """(m, n) the loss of every row in each model, exactly; ``seed`` is not needed."""
        how, problem = self._at(epsilon)
        return np.stack([Tangent.at(how, problem, theta).row_losses().loss for theta in models])

    def _at(self, epsilon: float) -> tuple[ObjectivePerturbation, Objective]:
        how = replace(self.mechanism, epsilon=epsilon)
        return how, replace(self.problem, penalty=np.full(how.dimension, how.total_regularization))


def drawn_losses(
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
    for theta in perturbed_minimisers(problem, noise / mechanism.rows):
        tangent = Tangent.at(mechanism, problem, theta)
        if persons is None:
            yield tangent.row_losses(relation, entering).loss
        else:
            yield person_losses(tangent, persons).loss


def typical_exposures(
    mechanism: ObjectivePerturbation,
    problem: Objective,
    relation: Neighbouring = Neighbouring.REMOVE,
    entering: tuple[FloatArray, FloatArray] | None = None,
    persons: Persons | None = None,
) -> tuple[FloatArray, FloatArray]:
    """E∣loss∣ over θ ~ p(· ∣ D) and its standard error, from 64 releases of a fixed seed."""
    rows = problem.count if entering is None else len(entering[0])
    if persons is not None:
        rows = len(persons)
    total, squares = np.zeros(rows), np.zeros(rows)
    rng = np.random.default_rng(_SEED)
    for loss in drawn_losses(mechanism, problem, relation, entering, _MODELS, rng, persons):
        exposure = np.abs(loss)
        total += exposure
        squares += exposure**2
    mean = total / _MODELS
    variance = np.maximum(squares / _MODELS - mean**2, 0.0)
    return mean, np.sqrt(variance / (_MODELS - 1))
