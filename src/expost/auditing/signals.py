"""Signals: the answers of models, mapped to the labels of the game, as numbers for each row.

Conventions
-----------
p    (n, K) probabilities of K classes, one row each.
φ    log p_y − log Σ_{k≠y} p_k, y the row's own class: the log odds (Carlini et al. 2022, section
     VI.A). The other classes are summed and not taken from 1, which would round to 0. Within
     ± LARGEST.
ℓ    −log p_y, so that φ = −log(e^ℓ − 1).

A regression has no classes. Its rows have ℓ = (y − ŷ)²/(2s²), minus the log of a normal density
of standard deviation s relative to its peak; s is one number for all models. φ follows from ℓ as
above.

All models of one game have the same K classes. A model that was trained on fewer of them has
probability 0 for the missing classes. Rows may be arrays, sparse matrices, frames of pandas or
polars, or tensors.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from expost import _checks
from expost.auditing.evidence import LARGEST, Confidences
from expost.errors import InvalidInput
from expost.labels import _vector
from expost.types import FloatArray

__all__ = [
    "VIEWS",
    "Labels",
    "Signals",
    "as_rows",
    "blocks_of_rows",
    "confidence",
    "confidence_of_losses",
    "confidence_of_squares",
    "count_rows",
    "probabilities_of_scores",
    "stack_rows",
    "take_rows",
    "views",
]

# The number of largest probabilities kept of a row (Shokri et al. 2017, section VI.E: three are
# nearly as good as all).
VIEWS = 3
# The tolerance of the sum of probabilities of single precision.
_SLACK = 1e-3
# Probabilities that are requested at a time.
_BLOCK = 2**22


def confidence(probabilities: Any, labels: Any, *, name: str = "the model") -> Confidences:
    """Return (n,) φ of (n, K) ``probabilities``; ``labels`` (n,) codes each row's own class."""
    p = _checked(probabilities, name)
    classes = np.asarray(labels)
    if classes.shape != (len(p),) or classes.dtype.kind not in "iu":
        raise InvalidInput(f"labels: must be {len(p)} numbers of classes, one a row.")
    if len(p) and not (classes.min() >= 0 and classes.max() < p.shape[1]):
        raise InvalidInput(f"labels: must lie from 0 to {p.shape[1] - 1}, the classes of {name}.")
    rows = np.arange(len(p))
    own = p[rows, classes]
    others = p.copy()
    others[rows, classes] = 0.0
    with np.errstate(divide="ignore"):
        return _clipped(np.log(own) - np.log(others.sum(axis=1)))


def confidence_of_losses(losses: Any, *, name: str = "the model") -> Confidences:
    """Return φ = −log(e^ℓ − 1) of losses ℓ = −log p ≥ 0 of any shape; ∞ is allowed, NaN is not."""
    loss = np.asarray(losses)
    if loss.dtype.kind not in "biuf":
        raise InvalidInput(f"losses: {name} gives {loss.dtype} values; must be numbers.")
    loss = loss.astype(np.float64, copy=False)
    if not np.all(loss >= 0):
        raise InvalidInput(
            f"losses: {name} has NaN or negative values; must be −log p of each row's own label, at"
            " least 0."
        )
    with np.errstate(divide="ignore", over="ignore"):
        # Where e^ℓ overflows, φ is clipped anyway.
        return _clipped(-np.log(np.expm1(loss)))


def confidence_of_squares(
    predictions: Any, targets: FloatArray, scale: float, *, name: str = "the model"
) -> Confidences:
    """Return (n,) φ of a regression (module docstring), s = ``scale``."""
    if not scale > 0:
        raise InvalidInput(f"scale={scale!r}: must be > 0.")
    predicted = np.asarray(predictions, dtype=np.float64)
    if predicted.shape == (len(targets), 1):
        predicted = predicted[:, 0]
    if predicted.shape != targets.shape or not np.all(np.isfinite(predicted)):
        raise InvalidInput(f"{name}: must predict one finite number for each row.")
    with np.errstate(over="ignore"):
        return confidence_of_losses(((predicted - targets) / scale) ** 2 / 2, name=name)


def views(probabilities: Any, *, name: str = "the model") -> Confidences:
    """Return (n, c) the c = min(3, K) largest probabilities of each row, falling."""
    p = _checked(probabilities, name)
    kept = min(VIEWS, p.shape[1])
    largest = np.partition(p, p.shape[1] - kept, axis=1)[:, p.shape[1] - kept :]
    return np.ascontiguousarray(np.sort(largest, axis=1)[:, ::-1], dtype=np.float32)


def probabilities_of_scores(scores: Any, *, name: str = "the model") -> FloatArray:
    """Return (n, K) the softmax of ``scores`` (n, K); (n, 2) of scores (n,) of the second class.

    A margin is not a log odds, but attacks need only its order and its differences.
    """
    logits = np.asarray(scores, dtype=np.float64)
    if logits.ndim not in (1, 2) or not np.all(np.isfinite(logits)):
        raise InvalidInput(f"{name}: has scores that are not finite numbers, one row each.")
    if logits.ndim == 1:
        logits = np.column_stack([-logits / 2, logits / 2])
    raised = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    shares: FloatArray = raised / raised.sum(axis=1, keepdims=True)
    return shares


def _checked(probabilities: Any, name: str) -> NDArray[np.float64]:
    """Return (n, K) probabilities that are ≥ 0 and sum to 1 in every row, or raise."""
    p = np.asarray(probabilities)
    if p.ndim != 2 or p.shape[1] < 1 or p.dtype.kind not in "biuf":
        raise InvalidInput(
            f"{name}: gives probabilities of shape {p.shape} and type {p.dtype}; must be a number"
            " for each row and class."
        )
    p = p.astype(np.float64, copy=False)
    if not np.all(p >= 0):
        raise InvalidInput(
            f"{name}: gives probabilities that are NaN or negative. If they are logits,"
            " apply a softmax, or a sigmoid to one output (export an ONNX model with it)."
        )
    if not np.all(np.abs(p.sum(axis=1) - 1) <= _SLACK):
        raise InvalidInput(
            f"{name}: has probabilities that do not sum to 1 in every row; pass those of all"
            " classes, after the softmax."
        )
    return p


def _clipped(log_odds: FloatArray) -> Confidences:
    """Return float32 within ± LARGEST, the values of p = 0 and p = 1."""
    return np.clip(log_odds, -LARGEST, LARGEST).astype(np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Signals:
    """The signals of n rows: φ (n,) and the largest probabilities (n, c); c = 0 for regression."""

    confidence: Confidences
    views: Confidences


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """The labels of the game.

    Parameters
    ----------
    classes : NDArray[Any] | None
        (K,) all labels of the game, sorted; None for a regression.
    scale : float, default=1.0
        Of a regression: s, the labels' standard deviation (module docstring).
    """

    classes: NDArray[Any] | None
    scale: float = 1.0

    @classmethod
    def of_classes(cls, y: Any, known: Any = None) -> "Labels":
        """Return the classes of ``y``, and those ``known`` to a model."""
        labels = _plain(y)
        if known is not None:
            before = _plain(known)
            _same_type(labels, before)
            labels = np.concatenate([labels, before])
        return cls(classes=np.unique(labels))

    @classmethod
    def of_numbers(cls, y: Any) -> "Labels":
        """Return the labels of a regression."""
        spread = float(np.std(_checks.vector(y)))
        return cls(classes=None, scale=spread if spread > 0 else 1.0)

    def numbers(self, y: Any) -> NDArray[np.int32]:
        """Return (n,) the code of each label, its index among the classes; 0 for a regression."""
        if self.classes is None:
            return np.zeros(len(_checks.vector(y)), dtype=np.int32)
        values = _plain(y)
        _same_type(values, self.classes)
        indices = np.minimum(np.searchsorted(self.classes, values), len(self.classes) - 1)
        if not np.all(self.classes[indices] == values):
            raise InvalidInput(
                "y: holds labels that are not among the classes of the target; pass all labels when"
                " the target is made."
            )
        return indices.astype(np.int32)

    def of_probabilities(
        self, evaluate: Callable[[Any], tuple[Any, Any]], X: Any, y: Any, name: str
    ) -> Signals:
        """Return the signals of a classifier; ``evaluate`` returns probabilities and classes."""
        X, numbers = as_rows(X), self.numbers(y)
        _check_length(X, len(numbers))
        assert self.classes is not None
        own, largest = [], []
        for rows, part in blocks_of_rows(X, max(1, _BLOCK // len(self.classes))):
            p = self._all_columns(*evaluate(part), count_rows(part), name)
            own.append(confidence(p, numbers[rows], name=name))
            largest.append(views(p, name=name))
        return Signals(confidence=np.concatenate(own), views=np.concatenate(largest))

    def of_predictions(self, predict: Callable[[Any], Any], X: Any, y: Any, name: str) -> Signals:
        """Return the signals of a regression."""
        X, labels = as_rows(X), _checks.vector(y)
        _check_length(X, len(labels))
        log_odds = confidence_of_squares(predict(X), labels, self.scale, name=name)
        return Signals(confidence=log_odds, views=np.empty((len(log_odds), 0), dtype=np.float32))

    def _all_columns(self, p: Any, known: Any, rows: int, name: str) -> NDArray[Any]:
        """Return (rows, K), zeros for the classes that the model was not trained on."""
        assert self.classes is not None
        try:
            probabilities = np.asarray(p)
        except ValueError:
            raise InvalidInput(f"{name}: answers rows with lists of different lengths.") from None
        if probabilities.shape != (rows, len(known)):
            raise InvalidInput(
                f"{name}: answers {rows} rows with shape {probabilities.shape}; must be ({rows},"
                f" {len(known)}), a probability for each class."
            )
        columns = self.numbers(known)
        if np.array_equal(columns, np.arange(len(self.classes))):
            return probabilities
        whole = np.zeros((rows, len(self.classes)), dtype=probabilities.dtype)
        whole[:, columns] = probabilities
        return whole


def _check_length(X: Any, labels: int) -> None:
    if count_rows(X) != labels:
        raise InvalidInput(f"y has {labels} entries: must have one for each of {len(X)} rows.")


def _plain(labels: Any) -> NDArray[Any]:
    """Return a vector of numbers or of strings; objects of one type get that type."""
    values = _vector(labels)
    if values.dtype != object:
        return values
    if all(isinstance(value, str) for value in values):
        return values.astype(str)
    if all(isinstance(value, int | float | np.number | np.bool_) for value in values):
        return np.array(values.tolist())
    raise InvalidInput("y holds labels of different types: use only strings, or only numbers.")


def _same_type(first: NDArray[Any], second: NDArray[Any]) -> None:
    """Refuse to mix numbers and strings: NumPy would convert silently, and 1.0 is not '1'."""
    numeric = [values.dtype.kind in "biuf" for values in (first, second)]
    if numeric[0] != numeric[1]:
        raise InvalidInput("y: its labels are strings and the model's are numbers, or vice versa.")


def as_rows(X: Any, *, name: str = "X") -> Any:
    """Return ``X``, as an array if it is a list; at least one row."""
    if isinstance(X, np.ma.MaskedArray):
        raise InvalidInput(f"{name}: is a masked array; fill or drop what is masked.")
    if isinstance(X, list | tuple):
        X = _checks.array(X, name)
    if not hasattr(X, "shape") or not len(X.shape) >= 1 or not X.shape[0] >= 1:
        raise InvalidInput(f"{name}: must be rows, an array or a frame, and at least one.")
    return X.tocsr() if _is_sparse(X) else X


def count_rows(X: Any) -> int:
    """Return the number of rows."""
    return int(X.shape[0])


def take_rows(X: Any, rows: NDArray[np.intp]) -> Any:
    """Return the rows of these indices."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def blocks_of_rows(X: Any, size: int) -> Iterator[tuple[slice, Any]]:
    """Yield ``X`` itself if it has at most ``size`` rows, else blocks of that many, in order."""
    rows = count_rows(X)
    if rows <= size:
        yield slice(0, rows), X
        return
    for start in range(0, rows, size):
        part = slice(start, min(start + size, rows))
        yield part, X.iloc[part] if hasattr(X, "iloc") else X[part]


def stack_rows(first: Any, second: Any) -> Any:
    """Return the rows of ``first``, then those of ``second``; both must be of one kind."""
    first, second = as_rows(first), as_rows(second)
    if first.shape[1:] != second.shape[1:]:
        raise InvalidInput(
            f"X has rows of shape {first.shape[1:]}, the others of {second.shape[1:]}: they must"
            " have the same columns."
        )
    if _is_sparse(first) and _is_sparse(second):
        return scipy.sparse.vstack([first, second], format="csr")
    if hasattr(first, "columns") or hasattr(second, "columns"):
        return _frames(first, second)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        try:
            return np.concatenate([first, second])
        except TypeError:
            raise InvalidInput(
                f"X holds {first.dtype} values, the others {second.dtype}: they must be of one"
                " type."
            ) from None
    raise InvalidInput(
        f"X is a {type(first).__name__}, the others are a {type(second).__name__}: rows in question"
        " must be of one kind, arrays or frames."
    )


def _is_sparse(X: Any) -> bool:
    return bool(scipy.sparse.issparse(X))


def _frames(first: Any, second: Any) -> Any:
    """Return both frames of pandas or polars, stacked; neither library is imported here."""
    if type(first) is not type(second) or list(first.columns) != list(second.columns):
        raise InvalidInput("X and the others: must be frames of one kind with the same columns.")
    if hasattr(first, "iloc"):
        return sys.modules["pandas"].concat([first, second], ignore_index=True)
    return first.vstack(second)
