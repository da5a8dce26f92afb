"""Leave-one-out predictions of all rows together: what each row does to its own prediction.

The scores are those of leave-one-out cross-validation, row by row from certified predictors, so
they come with certified intervals. The gap to the scores with the row is how far the model
overfits.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from expost.labels import LabelScale
from expost.mechanisms import RowLosses
from expost.neighbouring.influence import Exact, OwnPredictors
from expost.profiles.fit import FitScores
from expost.types import FloatArray

__all__ = ["LeftOut", "TopRows", "in_label_units", "largest_changes"]


@dataclass(frozen=True, kw_only=True)
class TopRows:
    """The rows that were refined to their exact leave-one-out model.

    Attributes
    ----------
    top : int
        The number of rows that were to be ranked.
    refined : int
        The number of rows that were refined for it.
    certified : int
        The number of top rows that certifiably move the model farther than every row that was not
        refined.
    """

    top: int
    refined: int
    certified: int

    @classmethod
    def of(cls, exact: Exact | None) -> "TopRows | None":
        """Return the numbers of some refined rows."""
        if exact is None:
            return None
        return cls(top=exact.top, refined=len(exact.numbers), certified=exact.certified)

    @property
    def is_certified(self) -> bool:
        """Whether these are certifiably the rows with the largest shifts."""
        return self.certified >= self.top


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """How the predictions of some rows change when each of them leaves.

    Attributes
    ----------
    scores : FitScores
        The scores of predictions with the row, without it, and at the worse and the better end of
        the certified intervals of those without it.
    flipped : int
        The number of rows whose predicted class certifiably changes; 0 for a regression.
    undecided : int
        The number of rows where that is not known; 0 for a regression.
    change : float
        The largest change of a prediction, from above.
    row : int
        The row of that change.
    """

    rows: int = 0
    scores: FitScores = field(default_factory=FitScores)
    flipped: int = 0
    undecided: int = 0
    change: float = -1.0
    row: int = 0
    is_probability: bool = False

    @classmethod
    def of(cls, predictors: OwnPredictors, y: FloatArray, *, start: int = 0) -> "LeftOut":
        """Return the summary of rows with labels ``y``; ``start`` is the number of the first."""
        loss, without, error = predictors.loss, predictors.without, predictors.without_error
        if predictors.is_classification:
            worse, better = without - y * error, without + y * error
        else:
            far = np.abs(without - y)
            away = np.where(without >= y, 1.0, -1.0)
            worse, better = without + away * error, without - away * np.minimum(error, far)
        flips = np.zeros(len(y), dtype=np.int8)
        if predictors.is_classification:
            flips = predictors.flips
        change = largest_changes(predictors)
        row = int(np.argmax(change))
        # (What is not certified is infinite, and its scores are at the ends.)
        worse, better = (np.clip(z, -1e100, 1e100) for z in (worse, better))
        return cls(
            rows=len(y),
            scores=FitScores.of_predictors(
                (predictors.value, without, worse, better),
                y,
                loss,
                signs=predictors.is_classification,
            ),
            flipped=int(np.count_nonzero(flips == 1)),
            undecided=int(np.count_nonzero(flips == -1)),
            change=float(change[row]),
            row=start + row,
            is_probability=predictors.is_probability,
        )

    def merged(self, other: "LeftOut") -> "LeftOut":
        """Return the summary of the rows of both; the rows of ``other`` come later."""
        if not self.rows or not other.rows:
            return self if self.rows else other
        larger = self if self.change >= other.change else other
        return replace(
            larger,
            rows=self.rows + other.rows,
            scores=self.scores.merged(other.scores),
            flipped=self.flipped + other.flipped,
            undecided=self.undecided + other.undecided,
        )

    def fields(self) -> dict[str, Any]:
        """Return what JSON holds."""
        scores = self.scores
        measures: dict[str, tuple[float, ...]] = {scores.measure: scores.score}
        measures |= {"auc": scores.auc} if scores.auc else {}
        measures |= {"log_loss": scores.log_loss} if scores.log_losses else {}
        names = ("with_the_row", "without_the_row", "at_worst", "at_best")
        return {
            "rows": self.rows,
            "flipped": self.flipped,
            "undecided": self.undecided,
            "largest_change": self.change,
            "largest_change_row": self.row,
            "scores": {
                name: dict(zip(names, values, strict=True)) for name, values in measures.items()
            },
        }


def largest_changes(predictors: OwnPredictors) -> FloatArray:
    """Return (n,) the change of each row's prediction, from above."""
    before, low, high = predictors.prediction, predictors.low, predictors.high
    with np.errstate(invalid="ignore"):
        change = np.maximum(np.abs(high - before), np.abs(before - low))
    return np.where(np.isnan(change), np.inf, change)


def in_label_units(losses: RowLosses, scale: LabelScale | None) -> RowLosses:
    """Return losses whose predictions of a regression are in the units of its labels."""
    if scale is None or losses.predictors is None:
        return losses
    return replace(losses, predictors=replace(losses.predictors, label_scale=scale))
