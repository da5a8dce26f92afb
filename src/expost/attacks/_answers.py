"""Labels of the game, and answers of models brought to them.

Every model of one game is asked about the same K classes. One that was trained on fewer of them
gives the others probability 0: it has not heard of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost.attacks import _rows, signals
from expost.attacks.evidence import Confidences
from expost.errors import InvalidInput
from expost.labels import _vector

__all__ = ["Labels", "Signals"]

# Probabilities that are asked for at a time.
_BLOCK = 2**22


@dataclass(frozen=True, kw_only=True, eq=False)
class Signals:
    """Of n rows: φ (n,), and the largest probabilities (n, c); c = 0 for a regression."""

    confidence: Confidences
    views: Confidences


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """The labels of the game.

    ``classes``  (K,) every label that may be asked about, sorted; None for a regression.
    ``scale``    of a regression: s, the labels' standard deviation (:mod:`.signals`).
    """

    classes: NDArray[Any] | None
    scale: float = 1.0

    @classmethod
    def of_classes(cls, y: Any, known: Any = None) -> "Labels":
        """The labels in ``y`` and those that a model ``known`` already."""
        found = _plain(y)
        if known is not None:
            before = _plain(known)
            _same_type(found, before)
            found = np.concatenate([found, before])
        return cls(classes=np.unique(found))

    @classmethod
    def of_numbers(cls, y: Any) -> "Labels":
        """Of a regression."""
        spread = float(np.std(_checks.vector(y)))
        return cls(classes=None, scale=spread if spread > 0 else 1.0)

    def numbers(self, y: Any) -> NDArray[np.int32]:
        """(n,) the place of each label among the classes; zeros for a regression."""
        if self.classes is None:
            return np.zeros(len(_checks.vector(y)), dtype=np.int32)
        values = _plain(y)
        _same_type(values, self.classes)
        places = np.minimum(np.searchsorted(self.classes, values), len(self.classes) - 1)
        if not np.all(self.classes[places] == values):
            raise InvalidInput(
                "y: holds labels that are not among the classes of the rows in question; name them"
                " to the target when it is made."
            )
        return places.astype(np.int32)

    def of_probabilities(
        self, ask: Callable[[Any], tuple[Any, Any]], X: Any, y: Any, name: str
    ) -> Signals:
        """``ask`` gives the probabilities of some rows, and the classes of their columns."""
        X, numbers = _rows.whole(X), self.numbers(y)
        _check_length(X, len(numbers))
        assert self.classes is not None
        confidences, views = [], []
        for rows, part in _rows.blocks(X, max(1, _BLOCK // len(self.classes))):
            p = self._all_columns(*ask(part), _rows.count(part), name)
            confidences.append(signals.confidence(p, numbers[rows], name=name))
            views.append(signals.views(p, name=name))
        return Signals(confidence=np.concatenate(confidences), views=np.concatenate(views))

    def of_predictions(self, predict: Callable[[Any], Any], X: Any, y: Any, name: str) -> Signals:
        """Of a regression."""
        X, labels = _rows.whole(X), _checks.vector(y)
        _check_length(X, len(labels))
        found = signals.confidence_of_squares(predict(X), labels, self.scale, name=name)
        return Signals(confidence=found, views=np.empty((len(found), 0), dtype=np.float32))

    def _all_columns(self, p: Any, known: Any, rows: int, name: str) -> NDArray[Any]:
        """(rows, K), zeros for the classes that the model has not seen."""
        assert self.classes is not None
        try:
            found = np.asarray(p)
        except ValueError:
            raise InvalidInput(f"{name}: answers rows with lists of different lengths.") from None
        if found.shape != (rows, len(known)):
            raise InvalidInput(
                f"{name}: answers {rows} rows with shape {found.shape}; must be ({rows},"
                f" {len(known)}), a probability for each class."
            )
        places = self.numbers(known)
        if np.array_equal(places, np.arange(len(self.classes))):
            return found
        whole = np.zeros((rows, len(self.classes)), dtype=found.dtype)
        whole[:, places] = found
        return whole


def _check_length(X: Any, labels: int) -> None:
    if _rows.count(X) != labels:
        raise InvalidInput(f"y has {labels} entries: must have one for each of {len(X)} rows.")


def _plain(labels: Any) -> NDArray[Any]:
    """A vector of numbers or of text; objects of one type become what they are."""
    values = _vector(labels)
    if values.dtype != object:
        return values
    if all(isinstance(value, str) for value in values):
        return values.astype(str)
    if all(isinstance(value, int | float | np.number | np.bool_) for value in values):
        return np.array(values.tolist())
    raise InvalidInput("y holds labels of different types: use text for all, or numbers for all.")


def _same_type(one: NDArray[Any], other: NDArray[Any]) -> None:
    """NumPy would turn numbers into text without a word, and 1.0 is not '1'."""
    numeric = [values.dtype.kind in "biuf" for values in (one, other)]
    if numeric[0] != numeric[1]:
        raise InvalidInput("y: its labels are text and the model's are numbers, or the reverse.")
