"""How well a released model predicts its own rows, compared with the base rate.

Conventions
-----------
base rate   predicts the most frequent class, each class with its share of the rows, or the mean.
log loss    −log of the probability of a row's class, in nats, averaged; only for log losses.
AUC         the area under the ROC curve, of two classes. Scores are counted in bins, so that blocks
            of rows can be merged; scores of one bin count as equal, which moves the area by at most
            half of the share of pairs (one row of each class) that share a bin.

These are figures of exact rows, curator-only. On its own training rows they favour a model: one
that is not better than the base rate there is not better elsewhere. One that is better need not be:
if the columns do not predict the label, the best of all models with k coefficients still gains
χ²(k)/(2n) nats a row (Wilks 1938). A gain up to a high quantile of that law is no evidence.
"""

import math
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from scipy.special import chdtri, expit

from expost.forecast import Forecast
from expost.glm import Objective, predictors
from expost.losses import Loss
from expost.numbers import fixed
from expost.rows import RowBlock
from expost.types import FloatArray, IntArray

__all__ = ["FitScores", "fit_of", "useless_sentence"]

_REMEDY = "Use a larger epsilon, more rows or fewer columns."
# Bins of asinh(z/_FINEST), from −_WIDEST to _WIDEST; what lies beyond counts as the last bin.
_BINS, _FINEST, _WIDEST = 2048, 1 / 64, 64.0
# How often the gain of labels that no column predicts may count as evidence.
_CHANCE = 0.025
_NO_NOISE = "The columns do not predict the label, or the regularization is too large."


@dataclass(frozen=True, kw_only=True)
class FitScores:
    """How well models predict some rows: the released one and, if known, one of ε = ∞.

    Classes: the number of rows that each predicts ``right``, the sums of their ``log_losses`` (none
    for a loss that is not a log loss), and the rows of each class (``classes``). Numbers: the
    sums of squared ``errors``, and the labels' mean and sum of squared deviations (``spread``).
    Two classes: ``binned`` counts the rows by model, class and bin of their scores. The models have
    ``coefficients`` that can vary, not counting those that leave every prediction as it is.
    """

    rows: int = 0
    coefficients: int = 0
    right: tuple[int, ...] = ()
    log_losses: tuple[float, ...] = ()
    classes: tuple[int, ...] = ()
    binned: tuple[int, ...] = field(default=(), repr=False)
    errors: tuple[float, ...] = ()
    mean: float = 0.0
    spread: float = 0.0

    @classmethod
    def of(
        cls, block: RowBlock, models: tuple[FloatArray, ...], loss: Loss, *, signs: bool = False
    ) -> "FitScores":
        """Return the scores of coefficient vectors on the rows of a block."""
        z = tuple(predictors(block.X, theta, loss.outputs) for theta in models)
        result = cls.of_predictors(z, block.y, loss, signs=signs)
        # The same vector can be added to the coefficients of all classes.
        free = block.X.shape[1] * max(loss.outputs - 1, 1)
        return replace(result, coefficients=free)

    @classmethod
    def of_predictors(
        cls, z: tuple[FloatArray, ...], y: FloatArray, loss: Loss, *, signs: bool = False
    ) -> "FitScores":
        """Return the scores of the linear predictors of each model for rows with labels ``y``.

        ``signs``: labels are ±1, and the sign of a predictor is the class, for any loss.
        """
        if not (loss.is_classification or signs):
            mean = float(np.mean(y))
            return cls(
                rows=len(y),
                errors=tuple(float(np.sum((each - y) ** 2)) for each in z),
                mean=mean,
                spread=float(np.sum((y - mean) ** 2)),
            )
        several = loss.outputs > 1
        codes = y.astype(int) if several else (y > 0).astype(int)
        chosen = [each.argmax(axis=1) if several else (each > 0).astype(int) for each in z]
        scored = loss.likelihood
        losses = [] if scored is None else [float(np.sum(scored.value(each, y))) for each in z]
        counts = np.bincount(codes, minlength=max(loss.outputs, 2))
        return cls(
            rows=len(y),
            right=tuple(int(np.count_nonzero(each == codes)) for each in chosen),
            log_losses=tuple(losses),
            classes=tuple(counts.tolist()),
            binned=()
            if several
            else tuple(np.concatenate([_binned(e, codes) for e in z]).tolist()),
        )

    def merged(self, other: "FitScores") -> "FitScores":
        """Return the scores on the rows of both (Chan, Golub and LeVeque 1983, for the spread)."""
        rows, step = self.rows + other.rows, other.mean - self.mean
        if not rows:
            return self
        names = ("right", "log_losses", "classes", "binned", "errors")
        sums = {name: _added(getattr(self, name), getattr(other, name)) for name in names}
        return FitScores(
            rows=rows,
            coefficients=max(self.coefficients, other.coefficients),
            **sums,
            mean=self.mean + step * (other.rows / rows),
            spread=self.spread + other.spread + step * step * (self.rows * other.rows / rows),
        )

    @property
    def measure(self) -> str:
        """The name of the score: "accuracy", or "R²" for a regression."""
        return "accuracy" if self.classes else "R²"

    @property
    def score(self) -> tuple[float, ...]:
        """The accuracy, or R², of each model."""
        if self.classes:
            return tuple(right / self.rows for right in self.right)
        spread = self.spread / self.rows or 1.0
        return tuple(1 - error / self.rows / spread for error in self.errors)

    @property
    def auc(self) -> tuple[float, ...]:
        """The AUC of each model; none unless there are rows of two classes."""
        if not self.binned or len(self.classes) != 2 or not min(self.classes):
            return ()
        by_model = np.array(self.binned).reshape(-1, 2, _BINS)
        below = np.cumsum(by_model[:, 0], axis=1) - by_model[:, 0] / 2
        return tuple((np.sum(by_model[:, 1] * below, axis=1) / np.prod(self.classes)).tolist())

    @property
    def base_score(self) -> float:
        """The accuracy of the most frequent class, or the R² of the mean: 0."""
        return max(self.classes) / self.rows if self.classes else 0.0

    @property
    def log_loss(self) -> tuple[float, ...]:
        """The log loss of each model; none if its loss is not a log loss."""
        return tuple(total / self.rows for total in self.log_losses)

    @property
    def base_log_loss(self) -> float:
        """The log loss of the shares of the classes: their entropy."""
        shares = [count / self.rows for count in self.classes if count]
        return -math.fsum(share * math.log(share) for share in shares)

    @property
    def _scaled_log_loss(self) -> float:
        """The log loss of σ(a·score + b) for the best a ≥ 0 and b (Platt 1999); less is possible.

        a·score + b is linear in the columns, so that the law of the best model's gain bounds it.
        """
        # Imported here: only losses without a likelihood need it.
        from scipy.optimize import minimize

        counts = np.array(self.binned[: 2 * _BINS]).reshape(2, _BINS)
        used = np.flatnonzero(counts.any(axis=0))
        below, above = counts[:, used]
        along = (used + 0.5) / _BINS * 2 - 1
        scores = np.sinh(along * np.arcsinh(_WIDEST / _FINEST))
        scores /= np.abs(scores).max()

        def loss(line: FloatArray) -> tuple[float, FloatArray]:
            z = line[0] * scores + line[1]
            slope = above * -expit(-z) + below * expit(z)
            total = above @ np.logaddexp(0, -z) + below @ np.logaddexp(0, z)
            return total / self.rows, np.array([slope @ scores, slope.sum()]) / self.rows

        best = minimize(loss, np.zeros(2), jac=True, bounds=[(0, None), (None, None)])
        return float(min(best.fun, self.base_log_loss))

    @property
    def is_useless(self) -> bool:
        """Whether the released model is not better than the base rate.

        By log loss if there is one: if one class is rare, predicting the other has a high accuracy.
        """
        if self.log_losses:
            return not self.log_loss[0] < self.base_log_loss
        return not self.score[0] > self.base_score

    @property
    def gain(self) -> float:
        """The gain over the base rate in nats a row, by the likelihood of the labels.

        Without a log loss it is that of the best line through the scores of two classes, or that of
        normal errors.
        """
        if self.log_losses:
            return self.base_log_loss - self.log_loss[0]
        if self.classes:
            return self.base_log_loss - self._scaled_log_loss
        return -math.log1p(-self.score[0]) / 2 if self.score[0] < 1 else math.inf

    @property
    def is_within_chance(self) -> bool:
        """Whether labels that the columns do not predict could give such a gain on these rows."""
        chance = float(chdtri(self.coefficients, _CHANCE)) if self.coefficients else 0.0
        return 2 * self.rows * self.gain <= chance

    def fields(self) -> dict[str, Any]:
        """Return what JSON holds: the figures of the released model and of the base rate."""
        known = len(self.log_losses) > 0
        return {
            "measure": self.measure,
            "released": self.score[0],
            "base_rate": self.base_score,
            "auc": self.auc[0] if self.auc else None,
            "log_loss": self.log_loss[0] if known else None,
            "base_rate_log_loss": self.base_log_loss if known else None,
        }

    @property
    def words(self) -> str:
        """The figures of the released model and of the base rate, in words."""
        if not self.classes:
            return f"R² {fixed(self.score[0], 3)} on its rows, 0 by their mean".replace("-", "−")
        right = fixed(self.score[0], 1, percent=True), fixed(self.base_score, 1, percent=True)
        text = f"it predicts {right[0]} % of its rows, the base rate {right[1]} %"
        if not self.log_losses:
            return text
        return f"{text}; log loss {self.log_loss[0]:.3f} (base rate {self.base_log_loss:.3f})"


def fit_of(objective: Objective, *models: FloatArray, signs: bool = False) -> FitScores:
    """Return the scores of coefficient vectors on all rows of an objective."""
    scores = objective.map(_Scored(models=models, loss=objective.loss, signs=signs))
    return reduce(FitScores.merged, scores, FitScores())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scored:
    """Score models on the rows of a block."""

    models: tuple[FloatArray, ...]
    loss: Loss
    signs: bool

    def __call__(self, block: RowBlock) -> FitScores:
        """Return the scores."""
        return FitScores.of(block, self.models, self.loss, signs=self.signs)


def useless_sentence(fit: FitScores | None, forecast: Forecast | None) -> str | None:
    """Return the warning for a model that is not better than the base rate; None for others.

    The measured figures decide where their gain cannot be chance; else a forecast does too.
    """
    if fit is not None and fit.is_useless:
        noisy = forecast is None or forecast.noise_ratio > 0
        better = bool(fit.classes) and fit.score[0] > fit.base_score
        subject = "The probabilities of this model are" if better else "This model is"
        remedy = _REMEDY if noisy else _NO_NOISE
        return f"{subject} no better than the base rate: {fit.words}. {remedy}"
    if forecast is None or forecast.warning is None:
        return None
    if fit is not None and not fit.is_within_chance:
        return None
    measured = "" if fit is None else f" Measured, {fit.words}."
    return f"{forecast.warning}{measured}"


def _binned(scores: FloatArray, codes: IntArray) -> IntArray:
    """Count the rows of class 0 and of class 1 by the bin of their scores."""
    along = np.arcsinh(scores / _FINEST) / np.arcsinh(_WIDEST / _FINEST)
    bins = np.clip(np.floor((along + 1) / 2 * _BINS), 0, _BINS - 1).astype(np.int64)
    return np.bincount(codes * _BINS + bins, minlength=2 * _BINS)


def _added(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the sums of the entries; nothing counted yet is an empty tuple."""
    if not (first and second):
        return first or second
    return tuple(np.add(first, second).tolist())
