"""Labels: ±1 or class codes inside, anything outside."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from expost import _checks
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["class_codes", "class_set", "signs", "two_classes"]


def two_classes(labels: Any, classes: Sequence[Any] | None = None) -> NDArray[Any]:
    """The two classes, second one positive: those given, or those read from the labels."""
    try:
        known = found = np.unique(_vector(labels))
    except TypeError:
        raise InvalidInput("y holds labels of different types: use one type for both.") from None
    if classes is not None:
        known = _checks.array(classes, "classes")
        if known.shape != (2,) or known[0] == known[1]:
            raise InvalidInput(f"classes={classes!r}: must name two different labels.")
    _check_classes(found, known, given=classes is not None)
    if len(known) != 2:
        raise InvalidInput(
            f"y holds {len(known)} classes: exactly two are needed here; Only binary"
            " classification is supported. Fit one class against the rest."
        )
    return known


def class_set(labels: Any, classes: Sequence[Any] | None = None) -> NDArray[Any]:
    """The classes, sorted: those given, or those read from the labels."""
    try:
        found = np.unique(_vector(labels))
        known = found if classes is None else np.unique(_checks.array(classes, "classes"))
    except TypeError:
        raise InvalidInput("y holds labels of different types: use one type for all.") from None
    if classes is not None and (np.ndim(classes) != 1 or len(known) != len(classes)):
        raise InvalidInput(f"classes={classes!r}: must name labels that all differ.")
    _check_classes(found, known, given=classes is not None)
    return known


def _check_classes(found: NDArray[Any], known: NDArray[Any], *, given: bool) -> None:
    """Every label that was ``found`` is known, can be written, and is not the only one."""
    if given and not np.all(np.isin(found, known)):
        raise InvalidInput(
            f"y holds labels beside classes={known.tolist()!r}: each must be one of them."
        )
    if not all(map(_checks.is_text, known.tolist())):
        raise InvalidInput(f"classes: one of the labels {_checks.LONE}.")
    if len(found) == 1:
        raise InvalidInput(
            "y holds one class only: a classifier needs rows of two classes to be fitted."
        )


def signs(labels: Any, classes: NDArray[Any]) -> FloatArray:
    """−1 for the first class, +1 for the second."""
    return np.where(class_codes(labels, classes) == 1, 1.0, -1.0)


def class_codes(labels: Any, classes: NDArray[Any]) -> FloatArray:
    """The index of each label among the ``classes``."""
    values = _vector(labels)
    codes = np.full(len(values), np.nan)
    for code, label in enumerate(classes):
        codes[values == label] = code
    if np.any(np.isnan(codes)):
        raise InvalidInput(
            f"y holds labels beside {classes.tolist()!r}: every label must be one of them."
        )
    return codes


def _vector(labels: Any) -> NDArray[Any]:
    if scipy.sparse.issparse(labels) or isinstance(labels, np.ma.MaskedArray):
        raise InvalidInput("y: must be a plain array of labels, neither sparse nor masked.")
    values = _checks.array(labels, "y")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InvalidInput(f"y has {values.ndim} dimensions: must have one.")
    if values.dtype.kind == "c":
        raise InvalidInput("y holds complex labels: must be text, whole or real numbers.")
    if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
        raise InvalidInput("y holds NaN or infinite labels: drop those rows.")
    if values.dtype == object and any(map(_checks.is_missing, values)):
        raise InvalidInput("y holds missing labels: drop those rows.")
    return values
