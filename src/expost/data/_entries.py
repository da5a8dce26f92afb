"""The entries of an encoding: how a column becomes features, and the origin of the constants.

An entry is a public constant of the preprocessing: removing a row never changes it. Each is marked
``given`` (by a person, independent of these rows) or ``read from the data`` (which is not private).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data.sources import Kind
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["Entry", "LevelEntry", "Mark", "NumericEntry", "Target", "entry_from_json", "label"]

# A column of more labels is unlikely to hold classes.
MOST_CLASSES = 100
# A range is divided into at most so many bins.
_MOST_BINS = 64
# Standard deviations from the mean at which a number is cut by default.
CUT = 2.0


class Mark(Enum):
    """The origin of a constant.

    A person, the data, a rule that uses only public facts, or a private release
    (:mod:`expost.data.histograms`).
    """

    GIVEN = "given"
    READ = "read from the data"
    RULE = "rule"
    PRIVATE = "released privately"


def _from_data(*constants: tuple[str, Mark | None]) -> tuple[str, ...]:
    """Return those of the pairs (constant, mark) that were read from the data."""
    return tuple(constant for constant, mark in constants if mark is Mark.READ)


def _indices(cells: Any, labels: Sequence[str]) -> NDArray[Any]:
    """Return the index of each cell among ``labels``, −1 for none of them."""
    indices = pc.index_in(cells, value_set=pa.array(labels, type=cells.type))
    return np.asarray(pc.fill_null(indices, -1))


@dataclass(frozen=True, kw_only=True)
class NumericEntry:
    """The encoding (x − mean)/scale of a number x, cut to [−cut, cut].

    Attributes
    ----------
    name : str
        The column.
    mean, scale : float
        The constants of the formula; ``scale`` > 0.
    mark : Mark
        The origin of both.
    cut : float | None
        The bound on the magnitude; None: numbers are not cut.
    fill : float | None
        The number that replaces a missing x; None: a missing x is refused.
    fill_mark : Mark | None
        The origin of ``fill``.
    indicator : bool
        Whether a missing x also sets a second, 0/1 feature.
    unit : str | None
        The unit of x as a form shows it, e.g. "years"; a person gave it.
    """

    name: str
    mean: float
    scale: float
    mark: Mark
    cut: float | None = CUT
    fill: float | None = None
    fill_mark: Mark | None = None
    indicator: bool = True
    unit: str | None = None

    kind: ClassVar[Kind] = "numeric"

    @property
    def marks_missing(self) -> bool:
        """Whether missing cells have a feature of their own."""
        return self.fill is not None and self.indicator

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return (self.name, f"{self.name} is missing") if self.marks_missing else (self.name,)

    @property
    def read_from_data(self) -> tuple[str, ...]:
        """Its constants that were read from the data, for a sentence."""
        return _from_data(
            (f"the mean and scale of {self.name!r}", self.mark),
            (f"the median of {self.name!r}", self.fill_mark),
        )

    def encode(self, cells: Any, first_row: int, features: FloatArray) -> int:
        """Write the features of the cells.

        Parameters
        ----------
        cells : pyarrow.Array
            The float64 cells of m rows, null where missing.
        first_row : int
            The number of the first row, for messages.
        features : FloatArray
            (width, m) the array that is written to.

        Returns
        -------
        int
            The number of cells of no level, which is 0.

        Raises
        ------
        InvalidInput
            If a cell is missing and there is no ``fill``, or a feature overflows.
        """
        if self.fill is None and cells.null_count:
            absent = np.asarray(cells.is_null())
            raise InvalidInput(
                f"column {self.name!r}, row {first_row + int(absent.argmax())}: is missing, and the"
                " encoding has no fill for the column; give it one."
            )
        values = np.asarray(cells if self.fill is None else pc.fill_null(cells, self.fill))
        with np.errstate(over="ignore", invalid="ignore"):
            standard = np.subtract(values, self.mean, out=features[0])
            standard /= self.scale
        finite = np.isfinite(standard)
        if not finite.all():
            raise InvalidInput(
                f"column {self.name!r}, row {first_row + int(finite.argmin())}: overflows when"
                " divided by the column's scale; give a larger scale."
            )
        if self.cut is not None:
            np.clip(standard, -self.cut, self.cut, out=standard)
        if self.marks_missing:
            features[1] = np.asarray(cells.is_null())
        return 0

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON values.

        Returns
        -------
        dict[str, Any]
            The constants of the entry, each with its origin.
        """
        value: dict[str, Any] = {
            "kind": "numeric",
            "mean": self.mean,
            "scale": self.scale,
            "cut": self.cut,
            "origin": self.mark.value,
        }
        if self.fill is not None and self.fill_mark is not None:
            value |= {"fill": self.fill, "fill_origin": self.fill_mark.value}
            if not self.indicator:
                value["indicator"] = False
        return value if self.unit is None else value | {"unit": self.unit}


@dataclass(frozen=True, kw_only=True)
class LevelEntry:
    """The encoding of a string by one 0/1 feature per level, and one for missing cells.

    The latter exists if ``missing_level``. A cell of no level has zeros, and is counted.

    Attributes
    ----------
    name : str
        The column.
    levels : tuple[str, ...]
        The levels, in the order of their features.
    mark : Mark
        The origin of the levels.
    missing_mark : Mark | None
        The origin of the feature for missing cells; None if there is none.
    """

    name: str
    levels: tuple[str, ...]
    mark: Mark
    missing_mark: Mark | None = None

    kind: ClassVar[Kind] = "text"

    @property
    def missing_level(self) -> bool:
        """Whether missing cells have a feature of their own."""
        return self.missing_mark is not None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        names = tuple(f"{self.name}={level}" for level in self.levels)
        return (*names, f"{self.name} is missing") if self.missing_level else names

    @property
    def read_from_data(self) -> tuple[str, ...]:
        """Its constants that were read from the data, for a sentence."""
        return _from_data(
            (f"the levels of {self.name!r}", self.mark),
            (f"that cells of {self.name!r} are missing", self.missing_mark),
        )

    def encode(self, cells: Any, first_row: int, features: FloatArray) -> int:
        """Write the features of the cells.

        Parameters
        ----------
        cells : pyarrow.Array
            The string cells of m rows, null where missing.
        first_row : int
            The number of the first row, for messages.
        features : FloatArray
            (width, m) the array that is written to.

        Returns
        -------
        int
            The number of cells of no level.
        """
        del first_row  # every cell has features
        index = _indices(cells, self.levels)
        absent = np.asarray(cells.is_null())
        features[:] = 0.0
        known = np.flatnonzero((index >= 0) & ~absent)
        features[index[known], known] = 1.0
        unknown = len(index) - len(known)
        if self.missing_level:
            features[-1, absent] = 1.0
            unknown -= int(np.count_nonzero(absent))
        return unknown

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON values.

        Returns
        -------
        dict[str, Any]
            The constants of the entry, each with its origin.
        """
        value: dict[str, Any] = {
            "kind": "levels",
            "levels": list(self.levels),
            "origin": self.mark.value,
        }
        if self.missing_mark is not None:
            value |= {"missing_level": True, "missing_origin": self.missing_mark.value}
        return value


Entry = NumericEntry | LevelEntry


@dataclass(frozen=True, kw_only=True)
class Target:
    """The column to predict: ``classes``, or a number (None).

    Two classes become −1 and +1, in their order; more are counted from 0.

    Attributes
    ----------
    column : str
        The column.
    classes : tuple[str, ...] | None
        Its labels; None: it is a number.
    mark : Mark
        The origin of the classes.
    """

    column: str
    classes: tuple[str, ...] | None
    mark: Mark

    @property
    def kind(self) -> Kind:
        """The kind of its column."""
        return "numeric" if self.classes is None else "text"

    @property
    def read_from_data(self) -> tuple[str, ...]:
        """Its constants that were read from the data, for a sentence."""
        return _from_data((f"the classes of {self.column!r}", self.mark))

    def encode(self, cells: Any, first_row: int) -> FloatArray:
        """Return the labels of some rows.

        Parameters
        ----------
        cells : pyarrow.Array
            The cells of the column in m rows.
        first_row : int
            The number of the first row, for messages.

        Returns
        -------
        FloatArray
            (m,) ±1, classes counted from 0, or the numbers.

        Raises
        ------
        InvalidInput
            If a cell is missing, or none of the classes.
        """
        absent = np.asarray(cells.is_null())
        if absent.any():
            raise self._fault(first_row + int(absent.argmax()), "is missing: every row needs one")
        if self.classes is None:
            return np.asarray(cells, dtype=np.float64)
        index = _indices(cells, self.classes)
        other = index < 0
        if other.any():
            raise self._fault(first_row + int(other.argmax()), f"is {none_of(self.classes)}")
        return 2.0 * index - 1.0 if len(self.classes) == 2 else index.astype(np.float64)

    def labels(self, y: FloatArray) -> list[str]:
        """Return the class of each y: by its sign, or its number.

        Parameters
        ----------
        y : FloatArray
            (n,) labels of :meth:`encode`; of two classes any numbers.

        Returns
        -------
        list[str]
            The n classes.

        Raises
        ------
        InvalidInput
            If the target is a number.
        """
        if self.classes is None:
            raise InvalidInput(f"target {self.column!r}: is a number, so it has no classes.")
        indices = np.asarray(y) > 0 if len(self.classes) == 2 else np.asarray(y)
        return [self.classes[int(index)] for index in indices]

    def _fault(self, row: int, problem: str) -> InvalidInput:
        return InvalidInput(f"target {self.column!r}, row {row}: {problem}.")

    def to_json(self) -> dict[str, Any]:
        """Return the target as JSON values.

        Returns
        -------
        dict[str, Any]
            The column, its classes and their origin.
        """
        classes = None if self.classes is None else list(self.classes)
        return {"column": self.column, "classes": classes, "origin": self.mark.value}

    @classmethod
    def from_json(cls, value: Any) -> "Target":
        """Invert :meth:`to_json`; refuse any other value.

        Parameters
        ----------
        value : Any
            The JSON values.

        Returns
        -------
        Target
            The target that was written.

        Raises
        ------
        InvalidInput
            If ``value`` is anything else.
        """
        fields = members("target", value, required=("column", "classes", "origin"))
        if not isinstance(fields["column"], str):
            raise InvalidInput("target.column: must be the name of a column.")
        classes = fields["classes"]
        labels = None if classes is None else class_labels("target.classes", classes)
        if labels is not None and all(isinstance(entry, str) for entry in classes):
            # Not stripped: a label read from the data may start or end with a Unicode space.
            labels = tuple(classes)
        return cls(
            column=fields["column"],
            classes=labels,
            mark=mark("target.origin", fields["origin"]),
        )


def label(value: Any, *, name: str) -> str:
    """Return a label or level as the string of its cells: "1" for 1 and 1.0, "true" for True."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating) and math.isfinite(value):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    raise InvalidInput(f"{name}: must be a string, a finite number or a boolean.")


def class_labels(name: str, value: Any) -> tuple[str, ...]:
    """Return ``value`` as at least two different labels."""
    labels = distinct_labels(name, value)
    if not 2 <= len(labels) <= MOST_CLASSES:
        raise InvalidInput(
            f"{name}: has {len(labels)} labels: must have at least two and at most {MOST_CLASSES}."
        )
    return labels


def none_of(classes: tuple[str, ...]) -> str:
    """Return "none of the classes …", with the first few of them, for a sentence."""
    if len(classes) == 2:
        return f"neither {classes[0]!r} nor {classes[1]!r}"
    shown = ", ".join(map(repr, classes[:5]))
    return f"none of the {len(classes)} classes {shown}{', …' if len(classes) > 5 else ''}"


def distinct_labels(name: str, value: Any) -> tuple[str, ...]:
    """Return ``value`` as different labels."""
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence | np.ndarray):
        raise InvalidInput(f"{name}: must be a list of labels.")
    labels = tuple(label(entry, name=name) for entry in value)
    if len(set(labels)) != len(labels):
        raise InvalidInput(f"{name}: holds a label twice: all must differ.")
    return labels


def entry_from_json(name: str, value: Any, *, strict: bool) -> Entry:
    """Return the entry for the column ``name``.

    Not ``strict``: as a person writes it, {"mean": 40, "scale": 15}, {"range": [0, 100]} or
    {"levels": ["a", "b"]}; constants without a mark are then given.
    """
    where = f"columns[{name!r}]"
    if not strict and isinstance(value, Mapping) and "range" in value:
        fields = members(where, value, required=("range",), optional=("kind", "fill", "unit"))
        if fields.get("kind", "numeric") != "numeric":
            raise InvalidInput(f"{where}.kind: must be 'numeric' with a range.")
        low, high = range_of(f"{where}.range", fields["range"])
        value = {"mean": low + (high - low) / 2, "scale": (high - low) / 2, "cut": 1.0}
        value |= {key: fields[key] for key in ("fill", "unit") if fields.get(key) is not None}
    if isinstance(value, Mapping) and "levels" in value:
        return _level_entry(name, where, value, strict)
    return _numeric_entry(name, where, value, strict)


def range_of(where: str, value: Any) -> tuple[float, float]:
    """``value`` as a range (low, high)."""
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != 2:
        raise InvalidInput(f"{where}: must be a pair (low, high).")
    low, high = (finite(where, end) for end in value)
    if not (low < high and math.isfinite(_MOST_BINS / (high - low))):
        raise InvalidInput(f"{where}=({low:g}, {high:g}): low must be below high.")
    return low, high


def _numeric_entry(name: str, where: str, value: Any, strict: bool) -> NumericEntry:
    required = ("kind", "mean", "scale", "cut", "origin") if strict else ("mean", "scale")
    optional = ("kind", "origin", "cut", "fill", "fill_origin", "indicator", "unit")
    fields = members(where, value, required=required, optional=optional)
    if not isinstance(fields.get("indicator", True), bool):
        raise InvalidInput(f"{where}.indicator: must be true or false.")
    unit = fields.get("unit")
    if unit is not None and not (isinstance(unit, str) and unit.strip()):
        raise InvalidInput(f"{where}.unit: must be a string such as 'years'.")
    if fields.get("kind", "numeric") != "numeric":
        raise InvalidInput(f"{where}.kind: must be 'numeric' with a mean and a scale.")
    scale = finite(f"{where}.scale", fields["scale"])
    if not scale > 0:
        raise InvalidInput(f"{where}.scale={scale!r}: must be > 0.")
    cut = fields.get("cut", CUT)
    if cut is not None and not finite(f"{where}.cut", cut) > 0:
        raise InvalidInput(f"{where}.cut={cut!r}: must be > 0, or null for none.")
    fill = fields.get("fill")
    if strict and ("fill" in fields) != ("fill_origin" in fields):
        raise InvalidInput(f"{where}: fill and fill_origin must be given together.")
    return NumericEntry(
        name=name,
        mean=finite(f"{where}.mean", fields["mean"]),
        scale=scale,
        mark=_given(where, fields, "origin"),
        cut=None if cut is None else float(cut),
        fill=None if fill is None else finite(f"{where}.fill", fill),
        fill_mark=None if fill is None else _given(where, fields, "fill_origin"),
        indicator=fields.get("indicator", True),
        unit=None if unit is None else unit.strip(),
    )


def _level_entry(name: str, where: str, value: Any, strict: bool) -> LevelEntry:
    required = ("kind", "levels", "origin") if strict else ("levels",)
    optional = ("kind", "origin", "missing_level", "missing_origin")
    fields = members(where, value, required=required, optional=optional)
    if fields.get("kind", "levels") != "levels":
        raise InvalidInput(f"{where}.kind: must be 'levels' with a list of levels.")
    levels = distinct_labels(f"{where}.levels", fields["levels"])
    if strict and all(isinstance(level, str) for level in fields["levels"]):
        # As they were written: a level that was read may begin or end with a blank of Unicode.
        levels = tuple(fields["levels"])
    missing_level = fields.get("missing_level", False)
    if not isinstance(missing_level, bool):
        raise InvalidInput(f"{where}.missing_level: must be true or false.")
    if strict and missing_level != ("missing_origin" in fields):
        raise InvalidInput(f"{where}: missing_level and missing_origin must be given together.")
    if not levels and not missing_level:
        raise InvalidInput(f"{where}.levels: is empty: must name at least one level.")
    return LevelEntry(
        name=name,
        levels=levels,
        mark=_given(where, fields, "origin"),
        missing_mark=_given(where, fields, "missing_origin") if missing_level else None,
    )


def _given(where: str, fields: Mapping[str, Any], name: str) -> Mark:
    """Return the mark ``name``; GIVEN by default."""
    return mark(f"{where}.{name}", fields.get(name, Mark.GIVEN.value))


def members(
    where: str, value: Any, *, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Return ``value`` as an object that has every ``required`` member and no unknown one."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{where}: must be a JSON object.")
    absent = [name for name in required if name not in value]
    if absent:
        raise InvalidInput(f"{where}: lacks {', '.join(map(repr, absent))}.")
    unknown = [name for name in value if name not in (*required, *optional)]
    if unknown:
        allowed = ", ".join(map(repr, dict.fromkeys((*required, *optional))))
        raise InvalidInput(f"{where}: has an unknown member {unknown[0]!r}; it may have {allowed}.")
    return dict(value)


def finite(where: str, value: Any) -> float:
    """Return ``value`` as a finite float of at most 1e150 in magnitude."""
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if isinstance(value, bool) or not is_number or not abs(value) <= 1e150:
        raise InvalidInput(f"{where}: must be a number of at most 1e150 in magnitude.")
    return float(value)


def mark(where: str, value: Any) -> Mark:
    """Return ``value`` as a mark."""
    try:
        return Mark(value)
    except ValueError:
        names = " or ".join(repr(member.value) for member in Mark)
        raise InvalidInput(f"{where}: must be {names}.") from None
