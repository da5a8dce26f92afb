"""The utility of a released model on held-out rows, over ε.

Each fold is held out once. Models of the other rows are drawn at each ε, with the noise and the Λ
of a release of all n rows, and scored on the rows that were held out. All ε share their draws
(:mod:`expost.epsilon.ranked` explains why).

The average over the training rows stands for the average over all n rows. It is of fewer rows, so
that the scores are a little too low (docs/utility.md). So are those of large tables, of which
50,000 rows are used, with the noise of all rows.

They are compared with two models without noise: the base rate, which depends on the labels alone,
and the best reachable model, whose Λ is tuned on folds of the training rows (nested folds), so that
held-out rows are not used. A given margin applies to all models; an automatic one is that of each
ε, and none without noise.

The gain of a model is how much better it is than the base rate. Gains and their differences are
taken fold by fold, and standard errors are those over the folds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from expost.engine import SILENT, Progress
from expost.epsilon.folds import HeldOutRows
from expost.epsilon.limit import Plan
from expost.epsilon.sweep import child
from expost.errors import InvalidInput
from expost.glm import Objective, minimise
from expost.losses import Loss
from expost.mechanisms import Mechanism
from expost.rows import HeldRows
from expost.types import FloatArray

__all__ = ["MEASURES", "Curve", "Trials", "Utility", "measures_of"]

# The measures; the first that applies leads. Of log loss less is better.
MEASURES = ("log_loss", "r2", "auc", "accuracy")
# A function of (predictors (m, n) or (m, n, q), labels (n,)) that scores each of m models.
Scorer = Callable[[FloatArray, FloatArray], FloatArray]
# By fold, a point near the minimiser.
_Bases = dict[int, FloatArray]
# Scores of rows held at a time.
_BLOCK_SCORES = 2**20
_TAIL = 0.05
# The penalties λ = nΛ that the best reachable model is tuned over, and how.
_PENALTIES = 10.0 ** np.arange(1.0, -2.1, -0.5)
_INNER_FOLDS = 3
_INNER_ROWS = 4_000
# The gradient (averaged) at which a model is good enough to be scored.
_FIT = 1e-6
# The same where models are only compared: J is within this of its minimum, gradient²/(2Λ).
_ROUGHLY = 1e-5
# The gradient at which the search for the minimiser without noise ends, and those with noise begin.
_NEAR = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """One measure over ε.

    Parameters
    ----------
    mean : FloatArray
        (k,) over folds and releases.
    low, high : FloatArray
        (k,) nine of ten releases score between them: what a single release may get.
    error : FloatArray
        (k,) the standard error of the mean.
    base_rate : float
        What a model that knows nothing but the labels gets on the same folds.
    best : float
        What the best reachable model gets: not released, not private.
    gain : FloatArray
        (k,) by how much the mean is better than the base rate; ``gain_error`` its standard error,
        ``least_gain`` (k,) that of the worst release, folds being equal.
    gap : FloatArray
        (k,) by how much the best reachable model is better; ``gap_error`` alike.
    best_gain : float
        By how much the best reachable model is better than the base rate; ``best_error`` its
        standard error.
    """

    mean: FloatArray
    low: FloatArray
    high: FloatArray
    error: FloatArray
    base_rate: float
    best: float
    gain: FloatArray
    gain_error: FloatArray
    least_gain: FloatArray
    gap: FloatArray
    gap_error: FloatArray
    best_gain: float
    best_error: float

    @property
    def share(self) -> FloatArray:
        """(k,) the gain as a share of that of the best reachable model; NaN where that has none."""
        if not self.best_gain > 0:
            return np.full(len(self.gain), np.nan)
        return self.gain / self.best_gain


@dataclass(frozen=True, kw_only=True, eq=False)
class Utility:
    """The held-out scores of released models over ε.

    Parameters
    ----------
    measure : str
        The measure by which ε is recommended.
    folds : int
        The number of folds, with ``releases`` models of each at each ε.
    rows : int
        The number of rows that were used.
    curves : dict[str, Curve]
        By measure: ``log_loss`` (nats) of a likelihood, ``auc`` of two classes, ``accuracy`` of
        classes, ``r2`` of a regression.
    """

    epsilons: FloatArray
    measure: str
    folds: int
    releases: int
    rows: int
    curves: dict[str, Curve]

    @property
    def leading(self) -> Curve:
        """The curve of ``measure``."""
        return self.curves[self.measure]


def measures_of(loss: Loss) -> tuple[str, ...]:
    """Return the measures that apply to a loss, the leading one first."""
    return tuple(name for name in MEASURES if name in _scorers(loss))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fold:
    """One fold: rows to train on, and rows to score models on.

    Parameters
    ----------
    known : FloatArray
        (1, s) or (1, s, q) the predictors of the base rate for the scored rows.
    """

    train: HeldRows
    scored: HeldRows
    known: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Trials:
    """Models on held-out rows, drawn and scored at any ε, each once.

    Parameters
    ----------
    objective : Objective
        Its rows, and the loss of the best reachable model; its penalty is not used.
    plan : Plan
        How a model of all rows would be released at each ε, with the loss of that ε.
    measure : str, optional
        The leading measure; None: the first that applies.
    progress : Progress, default=SILENT
        Notified of the rows that models were trained on.

    Attributes
    ----------
    scores : dict[float, dict[str, FloatArray]]
        By ε and measure (folds, releases): the score of each model.
    """

    objective: Objective
    plan: Plan
    folds: int
    releases: int
    seed: np.random.SeedSequence
    measure: str | None = None
    progress: Progress = SILENT
    scores: dict[float, dict[str, FloatArray]] = field(default_factory=dict, init=False)
    _bases: _Bases = field(default_factory=dict, init=False)

    @property
    def leading(self) -> str:
        """The leading measure."""
        return measures_of(self.objective.loss)[0] if self.measure is None else self.measure

    @cached_property
    def rows(self) -> HeldOutRows:
        """The rows that are used, and their folds."""
        key = int(np.random.default_rng(self.seed).integers(2**64, dtype=np.uint64))
        return HeldOutRows.of(self.objective, self.folds, key)

    @cached_property
    def _parts(self) -> list[_Fold]:
        loss, parts = self.objective.loss, list[_Fold]()
        for fold in range(self.folds):
            train, scored = self.rows.split(fold)
            known = _base_rate(loss, train.y)
            shape = (1, scored.count) if loss.outputs == 1 else (1, scored.count, loss.outputs)
            parts.append(_Fold(train=train, scored=scored, known=np.broadcast_to(known, shape)))
        return parts

    @cached_property
    def _ends(self) -> dict[str, FloatArray]:
        """By measure (2, folds): the scores of the base rate and of the best reachable model."""
        loss, scorers = self.objective.loss, _scorers(self.objective.loss)
        scores: dict[str, list[tuple[float, float]]] = {name: [] for name in scorers}
        for number, part in enumerate(self._parts):
            X, y = part.scored.X, part.scored.y
            best = self._tuned(self.rows.inner(number, _INNER_FOLDS, _INNER_ROWS))
            theta = _fit(part.train, loss, best / part.train.count)
            reached = _predictors(X, theta[None, :], loss)
            for name, score in scorers.items():
                scores[name].append((float(score(part.known, y)[0]), float(score(reached, y)[0])))
        return {name: np.array(ends).T for name, ends in scores.items()}

    def _tuned(self, rows: HeldOutRows) -> float:
        """Return the penalty λ whose models score best on the folds of ``rows``."""
        loss, name = self.objective.loss, self.leading
        score, totals = _scorers(loss)[name], np.zeros(len(_PENALTIES))
        for fold in range(rows.count):
            train, scored = rows.split(fold)
            theta = None
            for index, penalty in enumerate(_PENALTIES):
                theta = _fit(train, loss, penalty / train.count, theta)
                value = float(score(_predictors(scored.X, theta[None, :], loss), scored.y)[0])
                totals[index] += _better(name) * value
        return float(_PENALTIES[np.argmax(totals)])

    def score(self, *epsilons: float) -> None:
        """Draw and score the models of each ε, unless that was done."""
        missing = [epsilon for epsilon in epsilons if epsilon not in self.scores]
        self._announce(len(missing))
        scorers = _scorers(self.objective.loss)
        for epsilon in missing:
            mechanism = self.plan(epsilon)
            self.scores[epsilon] = self._scored(
                mechanism, self.releases, scorers, self._bases, _FIT
            )

    def compare(self, mechanisms: Sequence[Mechanism], releases: int) -> FloatArray:
        """Return (k,) the mean of the leading measure of models by other mechanisms.

        Parameters
        ----------
        mechanisms : Sequence[Mechanism]
            Mechanisms of one kind and noise, each at its own ε.
        releases : int
            The number of models of each fold by each of them.
        """
        self._announce(len(mechanisms))
        scorers = {self.leading: _scorers(self.objective.loss)[self.leading]}
        bases = _Bases(self._bases)
        scores: dict[float, float] = {}
        # The minimiser of one ε is near that of the next.
        for mechanism in sorted(mechanisms, key=lambda each: each.epsilon, reverse=True):
            gradient = min(float(np.sqrt(2 * mechanism.total_regularization * _ROUGHLY)), _NEAR)
            scored = self._scored(mechanism, releases, scorers, bases, gradient)
            scores[mechanism.epsilon] = float(scored[self.leading].mean())
        return np.array([scores[mechanism.epsilon] for mechanism in mechanisms])

    def _announce(self, epsilons: int) -> None:
        self.progress.rows(epsilons * (self.folds - 1) * self.rows.rows.count)

    def _scored(
        self,
        mechanism: Mechanism,
        releases: int,
        scorers: dict[str, Scorer],
        bases: _Bases,
        tolerance: float,
    ) -> dict[str, FloatArray]:
        """Return (folds, releases) of each measure.

        Parameters
        ----------
        bases : _Bases
            By fold a point near the minimiser; replaced by a nearer one.
        tolerance : float
            The largest gradient at a minimiser.
        """
        loss = mechanism.loss
        scores: dict[str, list[FloatArray]] = {name: [] for name in scorers}
        for number, part in enumerate(self._parts):
            penalty = np.full(mechanism.dimension, mechanism.total_regularization)
            training = Objective(rows=part.train, loss=loss, penalty=penalty)
            near = minimise(training, tolerance=_NEAR, start=bases.get(number), curved=True)
            bases[number] = near.theta
            rng = np.random.default_rng(child(self.seed, number))
            draws = mechanism.unit_noise.sample(releases, rng)
            sampler = mechanism.sampler(training, near)
            # Its ε is that of the model alone, where an encoding spends a part.
            models = sampler.perturbed(sampler.mechanism.epsilon, draws, tolerance)
            scored = _scored(part.scored.X, part.scored.y, models, loss, scorers)
            for name, values in scored.items():
                scores[name].append(values)
            self.progress.advance(part.train.count)
        return {name: np.stack(values) for name, values in scores.items()}

    def utility(self) -> Utility:
        """Return the scores of every ε that was tried."""
        epsilons = sorted(self.scores)
        curves = {
            name: _curve(name, np.stack([self.scores[e][name] for e in epsilons]), self._ends[name])
            for name in measures_of(self.objective.loss)
        }
        return Utility(
            epsilons=np.array(epsilons),
            measure=self.leading,
            folds=self.folds,
            releases=self.releases,
            rows=self.rows.rows.count,
            curves=curves,
        )


def _fit(
    rows: HeldRows, loss: Loss, regularization: float, start: FloatArray | None = None
) -> FloatArray:
    """Return the minimiser without noise."""
    penalty = np.full(loss.outputs * rows.columns, regularization)
    objective = Objective(rows=rows, loss=loss, penalty=penalty)
    return minimise(objective, tolerance=_FIT, start=start).theta


def _base_rate(loss: Loss, y: FloatArray) -> FloatArray:
    """Return the predictors (q,) that fit the labels alone: log odds, or the mean."""
    if not loss.is_classification:
        return np.array([np.mean(y)])
    counts = np.bincount(np.maximum(y, 0).astype(np.int64), minlength=max(2, loss.outputs))
    odds: FloatArray = np.log(counts)
    return odds if loss.outputs > 1 else np.array([odds[1] - odds[0]])


def _better(measure: str) -> float:
    """Return 1 where more is better, −1 where less is."""
    return -1.0 if measure == "log_loss" else 1.0


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
    scores = {name: np.empty(len(models)) for name in scorers}
    step = max(1, _BLOCK_SCORES // (len(y) * loss.outputs))
    for start in range(0, len(models), step):
        some = slice(start, start + step)
        z = _predictors(X, models[some], loss)
        for name, score in scorers.items():
            scores[name][some] = score(z, y)
    return scores


def _scorers(loss: Loss) -> dict[str, Scorer]:
    """Return the measures that apply: an AUC is of two classes, log loss of a probability."""
    if not loss.is_classification:
        return {"r2": _r2}
    scorers: dict[str, Scorer] = {"accuracy": _accuracy}
    if loss.outputs == 1:
        scorers["auc"] = _auc
    if loss.likelihood is not None:
        scorers["log_loss"] = partial(_log_loss, loss.likelihood)
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
    """Return P(a positive row scores above a negative one), ties half."""
    upper, lower = np.sort(margins[:, y > 0], axis=1), np.sort(margins[:, y < 0], axis=1)
    if upper.shape[1] > lower.shape[1]:
        # The same for mirrored scores: the smaller class is searched in the larger one.
        upper, lower = -lower[:, ::-1], -upper[:, ::-1]
    below = [
        float(np.sum(np.searchsorted(many, few, "left") + np.searchsorted(many, few, "right")))
        for few, many in zip(upper, lower, strict=True)
    ]
    return np.array(below) / float(2 * upper.shape[1] * lower.shape[1])


def _r2(margins: FloatArray, y: FloatArray) -> FloatArray:
    """Return 1 − Σ(y − z)²/Σ(y − mean)²."""
    spread = float(np.sum((y - np.mean(y)) ** 2))
    if not spread > 0:
        raise InvalidInput(
            "y: is constant in a fold, so that R² is not defined; folds=0 leaves it out."
        )
    missed: FloatArray = np.sum((margins - y) ** 2, axis=1)
    return 1 - missed / spread


def _curve(name: str, scores: FloatArray, ends: FloatArray) -> Curve:
    """Return the curve of one measure.

    Parameters
    ----------
    scores : FloatArray
        (k, folds, releases).
    ends : FloatArray
        (2, folds) of the base rate and of the best reachable model.
    """
    everything = scores.reshape(len(scores), -1)
    low, high = np.quantile(everything, (_TAIL, 1 - _TAIL), axis=1)
    means = scores.mean(axis=2)
    base, best = ends
    sign = _better(name)
    gains, gaps = sign * (means - base), sign * (best - means)
    return Curve(
        mean=means.mean(axis=1),
        low=low,
        high=high,
        error=_standard_error(means),
        base_rate=float(base.mean()),
        best=float(best.mean()),
        gain=gains.mean(axis=1),
        gain_error=_standard_error(gains),
        least_gain=gains.mean(axis=1) + np.min(sign * (scores - means[:, :, None]), axis=(1, 2)),
        gap=gaps.mean(axis=1),
        gap_error=_standard_error(gaps),
        best_gain=float(np.mean(sign * (best - base))),
        best_error=float(_standard_error(sign * (best - base))),
    )


def _standard_error(values: FloatArray) -> FloatArray:
    """Return the standard error of means over the last axis."""
    error: FloatArray = np.std(values, axis=-1, ddof=1) / np.sqrt(values.shape[-1])
    return error
