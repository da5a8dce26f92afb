"""How useful a released model is, on rows it has not seen, over ε.

Each fold is held out once. The objective is minimised on the other rows, noise of every ε is added
to the minimiser as a release of those rows would (n of the fold, so that it is a little pessimistic
for all n rows), and the noisy models are scored on the rows held out, at most 20,000 of a fold. The
draws are shared by all ε (:mod:`expost.epsilon.ranked` says why).

The fold of a row does not depend on where the rows are or on the size of blocks
(:mod:`expost.epsilon.folds`).

Minimisers. Those without each fold are a few standard errors of a coefficient away from the
minimiser of all rows. Newton's method with the Hessian there finds all of them in a few passes that
the folds share:

    θ_f ← θ_f − H_f⁻¹ ∇J_f(θ_f),      H_f = ∇²J_f at the minimiser of all rows.

A fold whose gradient does not shrink this way (a Huber hinge whose rows cross a knot) is minimised
separately.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
import scipy.linalg

from expost.epsilon.folds import Folds
from expost.errors import InvalidInput
from expost.glm import Objective, minimise, predictors
from expost.losses import Loss
from expost.mechanisms import Mechanism
from expost.mechanisms.base import TOLERANCE
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = ["MEASURES", "Curve", "HeldOut", "Utility", "held_out_utility"]

# Where larger is better; log loss is the other way round.
MEASURES = ("accuracy", "auc", "log_loss", "r2")
# A function of (predictors (m, n) or (m, n, q), labels (n,)) that scores each of m models.
Scorer = Callable[[FloatArray, FloatArray], FloatArray]
# Scores of rows held at a time.
_BLOCK_SCORES = 2**20
_TAIL = 0.05
# The gradient that a fold's minimiser is found to.
_FIT = 1e-9
# Shared steps before a fold is minimised separately.
_STEPS = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """One measure over ε.

    ``mean``       (k,) over folds and releases.
    ``low, high``  (k,) nine of ten releases score between them: what a single release may get.
    ``error``      (k,) the standard error of the mean, from the folds' own means.
    ``base_rate``  what a model that knows nothing but the labels gets on the same folds.
    ``noiseless``  what ε = ∞ gets: not released, not private.
    """

    mean: FloatArray
    low: FloatArray
    high: FloatArray
    error: FloatArray
    base_rate: float
    noiseless: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Utility:
    """The held-out scores of released models over ε.

    ``accuracy``, ``auc``, ``log_loss`` of a classifier (``log_loss`` of a logistic one alone),
    ``r2`` of a regression; None where a measure does not apply. ``log_loss`` is in nats.
    """

    epsilons: FloatArray
    folds: int
    releases: int
    accuracy: Curve | None = None
    auc: Curve | None = None
    log_loss: Curve | None = None
    r2: Curve | None = None

    @property
    def curves(self) -> dict[str, Curve]:
        """The curves that apply, by name."""
        found = ((name, getattr(self, name)) for name in MEASURES)
        return {name: curve for name, curve in found if curve is not None}

    @property
    def leading(self) -> tuple[str, Curve]:
        """The measure by which ε is recommended: accuracy, or R²."""
        name = "r2" if self.accuracy is None else "accuracy"
        return name, self.curves[name]


# -- minimisers ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """One fold: what models of the other rows are scored on.

    ``exact``    (q·d,) the minimiser of the other rows.
    ``X, y``     scored rows of the fold.
    ``known``    the predictors (q,) that fit the labels of the other rows alone.
    ``models``   a function of ε: releases (m, q·d) of the other rows.
    """

    exact: FloatArray
    X: FloatArray
    y: FloatArray
    known: FloatArray
    models: Callable[[float], FloatArray]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """Sums over the rows of each fold of f at one θ, and the rows that are scored.

    ``labels``  (f,) Σy;  ``gradient`` (f, q·d) Σ∇ℓ;  ``hessian`` (f, q·d, q·d) Σ∇²ℓ.
    ``scored``  (X, y) of each fold.
    """

    labels: FloatArray
    gradient: FloatArray
    hessian: FloatArray
    scored: list[list[tuple[FloatArray, FloatArray]]]

    def merged(self, other: "_Sums") -> "_Sums":
        """Return the sums over the rows of both."""
        for mine, more in zip(self.scored, other.scored, strict=True):
            mine.extend(more)
        return _Sums(
            labels=self.labels + other.labels,
            gradient=self.gradient + other.gradient,
            hessian=self.hessian + other.hessian,
            scored=self.scored,
        )


def _fold_sums(loss: Loss, theta: FloatArray, folds: Folds, block: RowBlock) -> _Sums:
    """Return the sums of one block, at one θ for all folds."""
    z = predictors(block.X, theta, loss.outputs)
    where, scored = folds.scored(block)
    every = [np.flatnonzero(where == fold) for fold in range(folds.count)]
    chosen = [scored[where[scored] == fold] for fold in range(folds.count)]
    found = [(loss.at(z[some], block.y[some]), block.X[some]) for some in every]
    return _Sums(
        labels=np.array([np.sum(block.y[some]) for some in every]),
        gradient=np.stack([(at.slope.T @ X).ravel() for at, X in found]),
        hessian=np.stack([at.curvature_sum(X) for at, X in found]),
        scored=[[(block.X[some], block.y[some])] for some in chosen],
    )


def _kept_gradients(loss: Loss, thetas: FloatArray, folds: Folds, block: RowBlock) -> FloatArray:
    """Return (f, q·d) Σ∇ℓ over the rows of a block that are not in each fold, at its own θ."""
    f, q = folds.count, loss.outputs
    z = (block.X @ thetas.reshape(f * q, -1).T).reshape(len(block), f, q)
    where = folds.where(block)
    slopes = np.empty((f, q, len(block)))
    for fold in range(f):
        own = np.ascontiguousarray(z[:, fold, 0] if q == 1 else z[:, fold])
        slopes[fold] = np.where(where == fold, 0.0, loss.slope(own, block.y).T)
    gradients: FloatArray = slopes.reshape(f * q, -1) @ block.X
    return gradients.reshape(thetas.shape)


def _without_each(
    objective: Objective, folds: Folds, start: FloatArray
) -> tuple[FloatArray, _Sums]:
    """Return (f, q·d) the minimisers without each fold, ∥∇J_f∥ ≤ 1e-9, and the sums at ``start``.

    ``start``  the minimiser of all rows.
    """
    loss, penalty = objective.loss, objective.penalty
    sums = reduce(_Sums.merged, objective.map(partial(_fold_sums, loss, start, folds)))
    kept = (objective.count - folds.sizes.sum(axis=0))[:, None]
    curved = (sums.hessian.sum(axis=0) - sums.hessian) / kept[:, :, None] + np.diag(penalty)
    factors = [scipy.linalg.cho_factor(hessian) for hessian in curved]
    gradient = (sums.gradient.sum(axis=0) - sums.gradient) / kept + penalty * start
    thetas, before = np.tile(start, (folds.count, 1)), np.full(folds.count, np.inf)
    moving = np.ones(folds.count, dtype=bool)
    for _ in range(_STEPS):
        size = np.linalg.norm(gradient, axis=1)
        # A fold whose gradient grew has diverged; it is minimised separately below.
        moving &= (size > _FIT) & (size < before)
        if not np.any(moving):
            break
        for fold in np.flatnonzero(moving):
            thetas[fold] -= scipy.linalg.cho_solve(factors[fold], gradient[fold])
        before = size
        gradients = objective.map(partial(_kept_gradients, loss, thetas, folds))
        gradient = sum(gradients, np.zeros_like(thetas)) / kept + penalty * thetas
    for number in np.flatnonzero(~(np.linalg.norm(gradient, axis=1) <= _FIT)).tolist():
        alone = replace(objective, rows=folds.without(objective.rows, number))
        thetas[number] = minimise(alone, tolerance=_FIT, start=thetas[number]).theta
    return thetas, sums


# -- scores ----------------------------------------------------------------------------------------


def held_out_utility(
    objective: Objective,
    mechanism: Mechanism,
    epsilons: FloatArray,
    *,
    folds: int,
    releases: int,
    rng: np.random.Generator,
) -> Utility:
    """Score ``releases`` models a fold at each ε."""
    parts = Folds.of(objective, folds, key=int(rng.integers(2**64, dtype=np.uint64)))
    draws = mechanism.unit_noise.sample(folds * releases, rng).reshape(folds, releases, -1)
    base = objective.minimiser(TOLERANCE).theta
    thetas, sums = _without_each(objective, parts, base)

    def held_out(fold: int) -> HeldOut:
        X, y = (np.concatenate(column) for column in zip(*sums.scored[fold], strict=True))
        others = replace(objective, rows=parts.without(objective.rows, fold))
        sampler = mechanism.with_constants(rows=others.count).sampler(others, thetas[fold])
        return HeldOut(
            exact=thetas[fold],
            X=X,
            y=y,
            known=_known(objective.loss, parts, sums.labels, fold),
            models=lambda epsilon: sampler.perturbed(epsilon, draws[fold]),
        )

    held = map(held_out, range(folds))
    return _utility_of(held, objective.loss, epsilons, folds=folds, releases=releases)


def _known(loss: Loss, folds: Folds, labels: FloatArray, fold: int) -> FloatArray:
    """Return the predictors (q,) that fit the labels outside of ``fold``: log odds, or the mean."""
    kept = folds.sizes.sum(axis=1) - folds.sizes[:, fold]
    if not loss.is_classification:
        return np.array([(labels.sum() - labels[fold]) / kept.sum()])
    odds: FloatArray = np.log(kept)
    return odds if loss.outputs > 1 else np.array([odds[1] - odds[0]])


def _utility_of(
    held: Iterable[HeldOut], loss: Loss, epsilons: FloatArray, *, folds: int, releases: int
) -> Utility:
    """Return the scores of the models of each fold at each ε, together."""
    scorers = _scorers(loss)
    scores: dict[str, list[FloatArray]] = {name: [] for name in scorers}
    rest: dict[str, list[tuple[float, float]]] = {name: [] for name in scorers}
    for fold in held:
        X, y = fold.X, fold.y
        by_epsilon = [
            _scored(X, y, fold.models(float(epsilon)), loss, scorers) for epsilon in epsilons
        ]
        shape = (1, len(y)) if loss.outputs == 1 else (1, len(y), loss.outputs)
        known = np.broadcast_to(fold.known, shape)
        exact = _predictors(X, fold.exact[None, :], loss)
        for name, score in scorers.items():
            scores[name].append(np.stack([found[name] for found in by_epsilon]))
            ends = float(score(known, y)[0]), float(score(exact, y)[0])
            rest[name].append(ends)
    curves = {name: _curve(scores[name], rest[name]) for name in scorers}
    return Utility(epsilons=epsilons, folds=folds, releases=releases, **curves)


def _predictors(X: FloatArray, models: FloatArray, loss: Loss) -> FloatArray:
    """Return the predictors of the rows in each model: (m, n), or (m, n, q)."""
    if loss.outputs == 1:
        return models @ X.T
    several: FloatArray = models.reshape(len(models), loss.outputs, -1) @ X.T
    return several.transpose(0, 2, 1)


def _scored(
    X: FloatArray, y: FloatArray, models: FloatArray, loss: Loss, scorers: dict[str, Scorer]
) -> dict[str, FloatArray]:
    """Return (m,) of each measure."""
    found = {name: np.empty(len(models)) for name in scorers}
    step = max(1, _BLOCK_SCORES // (len(y) * loss.outputs))
    for start in range(0, len(models), step):
        some = slice(start, start + step)
        z = _predictors(X, models[some], loss)
        for name, score in scorers.items():
            found[name][some] = score(z, y)
    return found


def _scorers(loss: Loss) -> dict[str, Scorer]:
    """Return the measures that apply: an AUC is of two classes, log loss of a probability."""
    if not loss.is_classification:
        return {"r2": _r2}
    scorers: dict[str, Scorer] = {"accuracy": _accuracy}
    if loss.outputs == 1:
        scorers["auc"] = _auc
    if loss.is_likelihood:
        scorers["log_loss"] = partial(_log_loss, loss)
    return scorers


def _accuracy(z: FloatArray, y: FloatArray) -> FloatArray:
    right = (z > 0) == (y > 0) if z.ndim == 2 else np.argmax(z, axis=2) == y
    share: FloatArray = np.mean(right, axis=1)
    return share


def _log_loss(loss: Loss, z: FloatArray, y: FloatArray) -> FloatArray:
    """Return the mean of a loss that is −log of a probability, in nats."""
    value: FloatArray = np.stack([loss.value(model, y) for model in z]).mean(axis=1)
    return value


def _auc(margins: FloatArray, y: FloatArray) -> FloatArray:
    """P(a positive row scores above a negative one), ties half."""
    upper, lower = np.sort(margins[:, y > 0], axis=1), np.sort(margins[:, y < 0], axis=1)
    if upper.shape[1] > lower.shape[1]:
        # The same of the mirrored scores: the fewer rows are looked up among the more.
        upper, lower = -lower[:, ::-1], -upper[:, ::-1]
    below = [
        float(np.sum(np.searchsorted(many, few, "left") + np.searchsorted(many, few, "right")))
        for few, many in zip(upper, lower, strict=True)
    ]
    return np.array(below) / float(2 * upper.shape[1] * lower.shape[1])


def _r2(margins: FloatArray, y: FloatArray) -> FloatArray:
    """1 − Σ(y − z)²/Σ(y − mean)²."""
    spread = float(np.sum((y - np.mean(y)) ** 2))
    if not spread > 0:
        raise InvalidInput(
            "y: is constant in a fold, so that R² is not defined; folds=0 leaves it out."
        )
    missed: FloatArray = np.sum((margins - y) ** 2, axis=1)
    return 1 - missed / spread


def _curve(folds: list[FloatArray], rest: list[tuple[float, float]]) -> Curve:
    """``folds``: (k, releases) each; ``rest``: what knowing nothing and ε = ∞ get, by fold."""
    everything = np.concatenate(folds, axis=1)
    means = np.stack([scores.mean(axis=1) for scores in folds])
    low, high = np.quantile(everything, (_TAIL, 1 - _TAIL), axis=1)
    ignorant, noiseless = np.mean(np.array(rest), axis=0)
    return Curve(
        mean=means.mean(axis=0),
        low=low,
        high=high,
        error=means.std(axis=0, ddof=1) / np.sqrt(len(folds)),
        base_rate=float(ignorant),
        noiseless=float(noiseless),
    )
