"""How useful a released model is, on rows it has not seen, over ε.

Each fold is held out once. The objective is minimised on the other rows, noise of every ε is added
to the minimiser as a release of those rows would (n of the fold, so that it is a little pessimistic
for all n rows), and the noisy models are scored on the rows held out, at most 20,000 of a fold. The
draws are shared by all ε (:mod:`expost.epsilon.ranked` says why).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from expost.errors import InvalidInput
from expost.glm import Objective, minimise
from expost.losses import Loss
from expost.mechanisms import Mechanism, OutputPerturbation
from expost.mechanisms.sampling import ObjectiveSampler
from expost.types import FloatArray, IntArray

__all__ = [
    "FIT",
    "MEASURES",
    "MOST_SCORED",
    "Curve",
    "HeldOut",
    "Utility",
    "check_folds",
    "held_out_utility",
    "knows_nothing",
    "utility_of",
]

# Where larger is better; log loss is the other way round.
MEASURES = ("accuracy", "auc", "log_loss", "r2")
# A function of (margins (m, n), labels (n,)) that scores each row of margins.
Scorer = Callable[[FloatArray, FloatArray], FloatArray]
# Scores of rows held at a time.
_BLOCK_SCORES = 2**20
# Rows of a fold that are scored at most: a share of them is then known to 0.4 %.
MOST_SCORED = 20_000
_TAIL = 0.05
# The gradient that a fold's minimiser is found to.
FIT = 1e-9


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
        """Those that apply, by name."""
        found = ((name, getattr(self, name)) for name in MEASURES)
        return {name: curve for name, curve in found if curve is not None}

    @property
    def leading(self) -> tuple[str, Curve]:
        """The measure by which ε is recommended: accuracy, or R²."""
        name = "r2" if self.accuracy is None else "accuracy"
        curve = self.curves[name]
        return name, curve


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """One fold: what models of the other rows are scored on.

    ``exact``    (d,) the minimiser of the other rows.
    ``X, y``     rows of the fold.
    ``known``    the margin that fits the other rows' labels alone.
    ``models``   a function of ε: releases (m, d) of the other rows.
    """

    exact: FloatArray
    X: FloatArray
    y: FloatArray
    known: float
    models: Callable[[float], FloatArray]


def held_out_utility(
    problem: Objective,
    mechanism: Mechanism,
    epsilons: FloatArray,
    *,
    folds: int,
    releases: int,
    rng: np.random.Generator,
) -> Utility:
    """Score ``releases`` models a fold at each ε."""
    parts = _parts(problem, folds, rng)
    draws = mechanism.unit_noise.sample(folds * releases, rng).reshape(folds, releases, -1)
    held = (
        _held_out(problem, mechanism, part, noise) for part, noise in zip(parts, draws, strict=True)
    )
    return utility_of(held, problem.loss, epsilons, folds=folds, releases=releases)


def utility_of(
    held: Iterable[HeldOut], loss: Loss, epsilons: FloatArray, *, folds: int, releases: int
) -> Utility:
    """The scores of each fold's models at each ε, put together."""
    scorers = _scorers(loss)
    scores: dict[str, list[FloatArray]] = {name: [] for name in scorers}
    rest: dict[str, list[tuple[float, float]]] = {name: [] for name in scorers}
    for fold in held:
        X, y = fold.X, fold.y
        by_epsilon = [_scored(X, y, fold.models(float(epsilon)), scorers) for epsilon in epsilons]
        known = np.full((1, len(y)), fold.known)
        for name, score in scorers.items():
            scores[name].append(np.stack([found[name] for found in by_epsilon]))
            ends = float(score(known, y)[0]), float(score((X @ fold.exact)[None, :], y)[0])
            rest[name].append(ends)
    curves = {name: _curve(scores[name], rest[name]) for name in scorers}
    return Utility(epsilons=epsilons, folds=folds, releases=releases, **curves)


def _held_out(
    problem: Objective, mechanism: Mechanism, part: IntArray, noise: FloatArray
) -> HeldOut:
    kept = np.setdiff1d(np.arange(problem.count), part)
    fold = replace(problem, rows=problem.held.take(kept))
    exact = minimise(fold, tolerance=FIT).theta
    test = _thinned(part, problem)
    positive = int(np.count_nonzero(fold.held.y > 0))
    return HeldOut(
        exact=exact,
        X=problem.held.X[test],
        y=problem.held.y[test],
        known=knows_nothing(problem.loss, fold.count, positive, float(np.sum(fold.held.y))),
        models=_models(fold, replace(mechanism, rows=fold.count), exact, noise),
    )


def _models(
    fold: Objective, mechanism: Mechanism, exact: FloatArray, noise: FloatArray
) -> Callable[[float], FloatArray]:
    """A function of ε: the releases (m, d) of the fold's rows with these draws of unit noise."""
    if isinstance(mechanism, OutputPerturbation):
        return lambda epsilon: exact + replace(mechanism, epsilon=epsilon).resolution * noise
    sampler = ObjectiveSampler(mechanism=mechanism, problem=fold)
    return lambda epsilon: sampler.perturbed(epsilon, noise)


def _parts(problem: Objective, folds: int, rng: np.random.Generator) -> list[IntArray]:
    """Disjoint folds that cover the rows, each with its share of either class."""
    order = rng.permutation(problem.count)
    rarest = None
    if problem.loss.is_classification:
        order = order[np.argsort(problem.held.y[order], kind="stable")]
        rarest = int(
            min(np.count_nonzero(problem.held.y > 0), np.count_nonzero(problem.held.y < 0))
        )
    check_folds(folds, problem.count, rarest)
    return [order[start::folds] for start in range(folds)]


def check_folds(folds: int, rows: int, rarest: int | None) -> None:
    """Refuse more folds than there are rows for; ``rarest``: the rows of the rarer class."""
    if rarest is not None and rarest < 2 * folds:
        raise InvalidInput(
            f"folds={folds!r}: the rarer class has {rarest} rows, and every fold needs two of"
            " either; take fewer folds, or 0 to leave the utility out."
        )
    if rarest is None and rows < 4 * folds:
        raise InvalidInput(
            f"folds={folds!r}: {rows} rows are too few; take fewer folds, or 0 to leave the utility"
            " out."
        )


def _thinned(part: IntArray, problem: Objective) -> IntArray:
    """At most about 20,000 rows of a fold; of either class the same share, but one at least."""
    step = -(-len(part) // MOST_SCORED)
    positive = (
        problem.held.y[part] > 0 if problem.loss.is_classification else np.ones(len(part), bool)
    )
    return np.concatenate([part[positive][::step], part[~positive][::step]])


def knows_nothing(loss: Loss, rows: int, positive: int, total: float) -> float:
    """The margin that fits ``rows`` labels alone: log odds of the classes, or their mean."""
    if not loss.is_classification:
        return total / rows
    return float(np.log(positive / (rows - positive)))


def _scored(
    X: FloatArray, y: FloatArray, models: FloatArray, scorers: dict[str, Scorer]
) -> dict[str, FloatArray]:
    """(m,) of each measure."""
    found = {name: np.empty(len(models)) for name in scorers}
    step = max(1, _BLOCK_SCORES // len(y))
    for start in range(0, len(models), step):
        some = slice(start, start + step)
        margins = models[some] @ X.T
        for name, score in scorers.items():
            found[name][some] = score(margins, y)
    return found


def _scorers(loss: Loss) -> dict[str, Scorer]:
    """The measures that apply; only a logistic model gives probabilities."""
    if not loss.is_classification:
        return {"r2": _r2}
    scorers: dict[str, Scorer] = {"accuracy": _accuracy, "auc": _auc}
    if loss.name == "logistic":
        scorers["log_loss"] = _log_loss
    return scorers


def _accuracy(margins: FloatArray, y: FloatArray) -> FloatArray:
    share: FloatArray = np.mean((margins > 0) == (y > 0), axis=1)
    return share


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


def _log_loss(margins: FloatArray, y: FloatArray) -> FloatArray:
    """Mean of log(1 + e^(−y·margin)), in nats."""
    mean: FloatArray = np.mean(np.logaddexp(0.0, -y * margins), axis=1)
    return mean


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
