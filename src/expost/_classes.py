"""Labels of more than two classes: whole numbers inside, anything outside."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost import _validate
from expost._labels import _vector
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["class_codes", "class_set"]


def class_set(labels: Any, classes: Sequence[Any] | None = None) -> NDArray[Any]:
    """The classes, sorted: those given, or those read from the labels."""
    try:
        found = np.unique(_vector(labels))
        known = found if classes is None else np.unique(_validate.array(classes, "classes"))
    except TypeError:
        raise InvalidInput("y holds labels of different types: use one type for all.") from None
    if classes is not None:
        if np.ndim(classes) != 1 or len(known) != len(classes):
            raise InvalidInput(f"classes={classes!r}: must name labels that all differ.")
        if not np.all(np.isin(found, known)):
            raise InvalidInput(
                f"y holds labels beside classes={known.tolist()!r}: each must be one of them."
            )
    if not all(map(_validate.is_text, known.tolist())):
        raise InvalidInput(f"classes: one of the labels {_validate.LONE}.")
    if len(found) == 1:
        raise InvalidInput(
            "y holds one class only: a classifier needs rows of two classes to be fitted."
        )
    return known


def class_codes(labels: Any, classes: NDArray[Any]) -> FloatArray:
    """The place of each label among the sorted ``classes``."""
    values = _vector(labels)
    codes = np.full(len(values), np.nan)
    for code, label in enumerate(classes):
        codes[values == label] = code
    if np.any(np.isnan(codes)):
        raise InvalidInput(
            f"y holds labels beside {classes.tolist()!r}: every label must be one of them."
        )
    return codes
