"""Labels: ±1, class codes or numbers of a bounded size inside, anything outside."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from expost import _checks
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["LabelScale", "class_codes", "class_set", "signs", "two_classes"]


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


@dataclass(frozen=True, kw_only=True)
class LabelScale:
    """How labels of a regression become numbers of size ≤ ``bound``: (y − centre)/scale, clipped.

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
        """Return the scale of the labels that were read; any serves labels that are all equal."""
        return cls.within((low, high)) if low < high else cls(centre=low)

    @property
    def ends(self) -> tuple[float, float]:
        """(low, high): the least and the largest label that is not clipped."""
        reach = self.scale * self.bound
        return self.centre - reach, self.centre + reach

    def inside(self, y: Any) -> FloatArray:
        """Return labels as the loss takes them."""
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
