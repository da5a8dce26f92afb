"""Labels of any type as ±1, as class codes or as numbers of a bounded size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["LabelScale", "class_codes", "class_set", "label_array", "signs", "two_classes"]


def two_classes(labels: Any, classes: Sequence[Any] | None = None) -> NDArray[Any]:
    """Return the two classes, the second one positive: those given, or those of the labels."""
    try:
        known = present = np.unique(_vector(labels))
    except TypeError:
        raise InvalidInput("y holds labels of different types: use one type for both.") from None
    if classes is not None:
        known = _checks.array(classes, "classes")
        if known.shape != (2,) or known[0] == known[1]:
            raise InvalidInput(f"classes={classes!r}: must name two different labels.")
    _check_classes(present, known, given=classes is not None)
    if len(known) != 2:
        raise InvalidInput(
            f"y holds {len(known)} classes: exactly two are needed here; Only binary"
            " classification is supported. Fit one class against the rest."
        )
    return known


def class_set(labels: Any, classes: Sequence[Any] | None = None) -> NDArray[Any]:
    """Return the classes, sorted: those given, or those of the labels."""
    try:
        present = np.unique(_vector(labels))
        known = present if classes is None else np.unique(_checks.array(classes, "classes"))
    except TypeError:
        raise InvalidInput("y holds labels of different types: use one type for all.") from None
    if classes is not None and (np.ndim(classes) != 1 or len(known) != len(classes)):
        raise InvalidInput(f"classes={classes!r}: must name labels that all differ.")
    _check_classes(present, known, given=classes is not None)
    return known


def _check_classes(present: NDArray[Any], known: NDArray[Any], *, given: bool) -> None:
    """Raise unless all ``present`` labels are known and can be encoded, and there are several."""
    if given and not np.all(np.isin(present, known)):
        raise InvalidInput(
            f"y holds labels other than classes={known.tolist()!r}: each must be one of them."
        )
    if not all(map(_checks.is_encodable, known.tolist())):
        raise InvalidInput(f"classes: one of the labels {_checks.LONE_SURROGATE}.")
    if len(present) == 1:
        raise InvalidInput(
            "y holds one class only: a classifier needs rows of two classes to be fitted."
        )


def signs(labels: Any, classes: NDArray[Any]) -> FloatArray:
    """Return −1 for the first class, +1 for the second."""
    return np.where(class_codes(labels, classes) == 1, 1.0, -1.0)


def class_codes(labels: Any, classes: NDArray[Any]) -> FloatArray:
    """Return the index of each label among the ``classes``."""
    values = _vector(labels)
    codes = np.full(len(values), np.nan)
    for code, label in enumerate(classes):
        codes[values == label] = code
    if np.any(np.isnan(codes)):
        raise InvalidInput(
            f"y holds labels other than {classes.tolist()!r}: every label must be one of them."
        )
    return codes


def label_array(y: Any) -> NDArray[Any]:
    """Return labels of any type as an array of one dimension."""
    array = _checks.array(y, "y")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidInput(f"y has {array.ndim} dimensions: must have one.")
    return array


def _vector(labels: Any) -> NDArray[Any]:
    """Return labels as an array of one dimension; refuse sparse, complex and missing ones."""
    if _checks.is_sparse(labels) or isinstance(labels, np.ma.MaskedArray):
        raise InvalidInput("y: must be a plain array of labels, neither sparse nor masked.")
    values = label_array(labels)
    if values.dtype.kind == "c":
        raise InvalidInput("y holds complex labels: must be strings, integers or real numbers.")
    if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
        raise InvalidInput("y holds NaN or infinite labels: drop those rows.")
    if values.dtype == object and any(map(_checks.is_missing, values)):
        raise InvalidInput("y holds missing labels: drop those rows.")
    return values


@dataclass(frozen=True, kw_only=True)
class LabelScale:
    """The map of regression labels to numbers of size ≤ ``bound``: (y − centre)/scale, clipped.

    A label range [low, high] has centre (low + high)/2, scale (high − low)/2 and bound 1.
    """

    centre: float = 0.0
    scale: float = 1.0
    bound: float = 1.0

    @classmethod
    def within(cls, label_range: Any) -> "LabelScale":
        """Return the scale of a range (low, high)."""
        ends = _checks.array(label_range, "label_range")
        if ends.shape != (2,) or ends.dtype.kind not in "iuf" or not np.all(np.isfinite(ends)):
            raise InvalidInput(f"label_range={label_range!r}: must be two numbers, low and high.")
        low, high = float(ends[0]), float(ends[1])
        if not 0 < high - low < 2e100 or not max(abs(low), abs(high)) <= 1e100:
            raise InvalidInput(
                f"label_range={label_range!r}: low must be below high, and both at most 1e100 in"
                " size."
            )
        return cls(centre=low / 2 + high / 2, scale=(high - low) / 2)

    @classmethod
    def read(cls, low: float, high: float) -> "LabelScale":
        """Return the scale of labels from ``low`` to ``high``; of equal labels, scale 1."""
        return cls.within((low, high)) if low < high else cls(centre=low)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest label that is not clipped, (low, high)."""
        reach = self.scale * self.bound
        return self.centre - reach, self.centre + reach

    def inside(self, y: Any) -> FloatArray:
        """Return the labels, scaled and clipped, for the loss."""
        inside: FloatArray = np.clip((y - self.centre) / self.scale, -self.bound, self.bound)
        return inside

    def outside(self, z: Any) -> FloatArray:
        """Return predictions in the units of the labels, clipped to their range."""
        outside: FloatArray = self.centre + self.scale * np.clip(z, -self.bound, self.bound)
        return outside

    def past(self, y: Any) -> int:
        """Count the labels that are clipped by more than rounding."""
        sizes = np.abs((y - self.centre) / self.scale)
        slack = 1e-12 * (self.bound + abs(self.centre) / self.scale)
        return int(np.count_nonzero(sizes > self.bound + slack))
