"""The given part of an encoding, and the reading of the rest from the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from expost import _checks
from expost.data import _entries
from expost.data._columns import MOST_LEVELS, CellSummary
from expost.data._entries import Entry, LevelEntry, Mark, NumericEntry, Target
from expost.data.sources import Column, Kind, Table
from expost.errors import InvalidInput, PrivacyLeakWarning
from expost.notices import listed, warn

__all__ = [
    "Given",
    "check_classes",
    "check_rows",
    "countable_columns",
    "encoding_template",
    "missing_constants",
    "read_columns",
    "read_target",
    "warn_of_leak",
]

# What a template has for a column.
_TEMPLATE = frozenset({"kind", "range", "fill", "levels", "missing_level"})


@dataclass(frozen=True, kw_only=True)
class Given:
    """The part of an encoding that a person gave.

    Attributes
    ----------
    entries : Mapping[str, Entry]
        The columns whose constants are known.
    ranges : Mapping[str, tuple[float, float]]
        The ranges of the numeric columns that were given as one.
    blank : Mapping[str, Kind]
        The columns that are named without constants, by their kind: a template that was not filled
        in.
    fills : Mapping[str, float]
        The numbers that stand for missing cells of ``ranges``.
    missing_levels : tuple[str, ...]
        The columns of ``blank`` whose missing cells have a feature of their own.
    units : Mapping[str, str]
        The units of numeric columns.
    """

    entries: Mapping[str, Entry]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    blank: Mapping[str, Kind] = field(default_factory=dict)
    fills: Mapping[str, float] = field(default_factory=dict)
    missing_levels: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    target: str | None = None
    classes: tuple[str, ...] | None = None
    data_norm: float | None = None

    @classmethod
    def from_json(cls, value: Any) -> "Given":
        """Read {"columns": {…}, "dropped": […], "target": {…}, "data_norm": …}, any of these."""
        fields = _entries.members(
            "encoding", value, required=(), optional=("columns", "dropped", "target", "data_norm")
        )
        columns = fields.get("columns", {})
        if not isinstance(columns, Mapping):
            raise InvalidInput("encoding.columns: must be an object, an entry for each column.")
        dropped = fields.get("dropped", [])
        if not isinstance(dropped, Sequence) or not all(isinstance(name, str) for name in dropped):
            raise InvalidInput("encoding.dropped: must be a list of column names.")
        target = _entries.members(
            "target", fields.get("target", {}), required=(), optional=("column", "classes")
        )
        classes, norm = target.get("classes"), fields.get("data_norm")
        blank = {name: kind for name, value in columns.items() if (kind := _blank(value))}
        filled = {name: value for name, value in columns.items() if name not in blank}
        if norm is not None and not _entries.finite("data_norm", norm) > 0:
            raise InvalidInput(f"data_norm={norm!r}: must be > 0.")
        entries = {
            name: _entries.entry_from_json(name, entry, strict=False)
            for name, entry in filled.items()
        }
        return cls(
            entries=entries,
            units={
                name: entry.unit
                for name, entry in entries.items()
                if isinstance(entry, NumericEntry) and entry.unit is not None
            },
            ranges={
                name: _entries.range_of(f"columns[{name!r}].range", entry["range"])
                for name, entry in filled.items()
                if "range" in entry
            },
            blank=blank,
            fills={
                name: _entries.finite(f"columns[{name!r}].fill", entry["fill"])
                for name, entry in filled.items()
                if "range" in entry and entry.get("fill") is not None
            },
            missing_levels=tuple(name for name in blank if columns[name].get("missing_level")),
            dropped=tuple(dropped),
            target=target.get("column"),
            classes=None if classes is None else _entries.class_labels("target.classes", classes),
            data_norm=None if norm is None else float(norm),
        )

    def with_target(self, target: str, classes: Sequence[Any] | None, regression: bool) -> "Given":
        """Return this with the classes that were passed separately; both must agree."""
        if self.target not in (None, target):
            raise InvalidInput(f"target={target!r}: the given encoding is for {self.target!r}.")
        passed = None if classes is None else _entries.class_labels("classes", classes)
        if passed is not None and self.classes not in (None, passed):
            raise InvalidInput(f"classes={list(passed)!r}: the given encoding names others.")
        both = self.classes if passed is None else passed
        if regression and both is not None:
            raise InvalidInput("classes: must be left out for a numeric target.")
        return replace(self, classes=both)


def _blank(value: Any) -> Kind | None:
    """Return the kind of a column that is named without constants; None where it has some."""
    if not isinstance(value, Mapping) or not value.keys() <= _TEMPLATE:
        return None
    if value.get("range") is not None or value.get("levels") is not None:
        return None
    numeric = value.get("kind") == "numeric" or "range" in value
    return "numeric" if numeric else "text" if value.get("kind", "levels") == "levels" else None


def encoding_template(
    table: Table, *, target: str | None = None, drop: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the part of an encoding that names the columns of a table, to be filled in.

    Parameters
    ----------
    table : Table
        The table; its columns and their kinds are read, and nothing else.
    target : str, optional
        The column to predict.
    drop : sequence of str
        Columns to leave out.

    Returns
    -------
    dict[str, Any]
        The part in the form of ``encoding.json``, with None in the place of each constant.

    Raises
    ------
    InvalidInput
        If a column to leave out is not in the table.
    """
    table.require(drop)
    columns: dict[str, Any] = {}
    for column in table.columns:
        if column.name == target or column.name in drop:
            continue
        if column.kind == "numeric":
            columns[column.name] = {"kind": "numeric", "range": None, "fill": None}
        else:
            columns[column.name] = {"kind": "levels", "levels": None, "missing_level": False}
    value: dict[str, Any] = {"columns": columns, "dropped": list(drop)}
    return value if target is None else {**value, "target": {"column": target, "classes": None}}


def missing_constants(value: Any, table: Table, *, target: str | None = None) -> dict[str, str]:
    """Return what a part of an encoding lacks, by column: what would be read from the data.

    Parameters
    ----------
    value : Any
        A part of an encoding, in the form of ``encoding.json``.
    table : Table
        The table that it is for.
    target : str, optional
        The column to predict; by default the one that the part names.

    Returns
    -------
    dict[str, str]
        What to give for each column; empty if nothing is missing.

    Raises
    ------
    InvalidInput
        If ``value`` is no part of an encoding.
    """
    part = Given.from_json(value)
    target = target or part.target
    lacks = {}
    for column in table.columns:
        name = column.name
        blank = part.blank.get(name)
        if name == target:
            continue
        if blank is not None:
            lacks[name] = "range: [low, high]" if blank == "numeric" else "levels: [...]"
        elif name in part.entries and column.missing and not _takes_missing(part.entries[name]):
            lacks[name] = _MISSING_CELLS[part.entries[name].kind]
        elif name not in part.entries and name not in part.dropped:
            kind = "a range" if column.kind == "numeric" else "levels"
            lacks[name] = f"is not in the file; give {kind}, or drop it"
    if target is None:
        lacks["(target)"] = "which column is predicted: --target"
    elif part.classes is None:
        lacks[target] = "classes of the target: [...], unless it is a number"
    return lacks


# What an entry lacks where cells are missing.
_MISSING_CELLS: dict[Kind, str] = {
    "numeric": "fill: a number for missing cells, which there are",
    "text": "missing_level: true, as cells are missing",
}


def _takes_missing(entry: Entry) -> bool:
    """Return whether an entry encodes missing cells."""
    return entry.missing_level if isinstance(entry, LevelEntry) else entry.fill is not None


def countable_columns(
    table: Table, target: str, given: Given
) -> dict[str, tuple[float, float] | None]:
    """Return the columns that a private encoding counts: with a range, or None if of levels.

    Refuse a table of which more than that would have to be read: every column must be named.
    """
    check_rows(table)
    _check_names(table, target, given)
    columns: dict[str, tuple[float, float] | None] = {}
    unknown = []
    for column in table.columns:
        name = column.name
        if name in given.ranges:
            columns[name] = given.ranges[name]
        elif given.blank.get(name) == "text":
            columns[name] = None
        elif name != target and name not in (*given.dropped, *given.entries):
            unknown.append(name)
    if unknown:
        raise InvalidInput(
            f"private_encoding: nothing is known of {_checks.named(unknown)} without the data;"
            ' name each in the encoding, as {"range": [low, high]} or {"kind": "levels"}, or drop'
            " it. `expost encoding DATA --template` writes a file to fill in."
        )
    if not columns:
        raise InvalidInput(
            "private_encoding: every column has its constants already, so nothing is to be"
            " released; leave private_encoding out."
        )
    return columns


def read_columns(
    table: Table,
    target: str,
    given: Given,
    released: Mapping[str, Entry | None] | None = None,
) -> tuple[list[Entry], list[tuple[str, Mark]]]:
    """Return the entries of all columns but the target, given or read, and the dropped columns.

    Parameters
    ----------
    table : Table
        The table, of at least two rows.
    target : str
        The column to predict.
    given : Given
        The part that a person gave.
    released : Mapping[str, Entry | None], optional
        The entries that follow from a private release; None where there is nothing to encode.
    """
    check_rows(table)
    _check_names(table, target, given)
    released = released or {}
    unfilled = [name for name in given.blank if name not in released]
    if unfilled:
        raise InvalidInput(
            f"encoding: no range or levels yet for {_checks.named(unfilled)}; fill them in, or take"
            " the column out of the file to have them read from the data. With --private-encoding"
            " levels may stay empty."
        )
    own = {
        name: _with_given_missing(entry, given)
        for name, entry in released.items()
        if entry is not None
    }
    given = replace(
        given,
        entries={**given.entries, **own},
        dropped=(*given.dropped, *(name for name, entry in released.items() if entry is None)),
        blank={},
    )
    kinds: dict[str, Kind] = {name: entry.kind for name, entry in given.entries.items()}
    kinds |= {column.name: "text" for column in table.columns if column.kind == "boolean"}
    table = table.retyped(kinds)
    features = [
        column
        for column in table.columns
        if column.name != target and column.name not in given.dropped
    ]
    unknown = [column for column in features if column.name not in given.entries]
    summaries = table.summaries([column.name for column in unknown])
    levels = table.levels(
        [column.name for column in unknown if column.kind == "text"], at_most=MOST_LEVELS
    )
    medians = table.medians(
        [
            column.name
            for column in features
            if column.kind == "numeric"
            and 0 < column.missing < table.rows
            and column.name not in released
            and getattr(given.entries.get(column.name), "fill", None) is None
        ]
    )
    entries: list[Entry] = []
    dropped = [(name, Mark.PRIVATE if name in released else Mark.GIVEN) for name in given.dropped]
    for column in features:
        entry = given.entries.get(column.name)
        if entry is None and column.kind == "numeric":
            entry = _numeric_entry(column, table.rows, summaries[column.name])
        elif entry is None:
            entry = _level_entry(column, levels[column.name])
        if entry is None:
            dropped.append((column.name, Mark.READ))
        else:
            is_released = column.name in released
            entries.append(entry if is_released else _with_missing(table, column, entry, medians))
    if not entries and released:
        raise InvalidInput(
            f"{table.label}: no level of any column passed the threshold of the private encoding:"
            " there are too few rows for this epsilon. Give the levels, or a larger epsilon or"
            " share. Nothing was released."
        )
    if not entries:
        raise InvalidInput(
            f"{table.label}: has no feature columns: at least one besides the target must vary."
        )
    return entries, dropped


def _with_given_missing(entry: Entry, given: Given) -> Entry:
    """Return an entry of a private release, its missing cells encoded as a person gave it."""
    if isinstance(entry, LevelEntry):
        given_level = entry.name in given.missing_levels
        return replace(entry, missing_mark=Mark.GIVEN) if given_level else entry
    fill, unit = given.fills.get(entry.name), given.units.get(entry.name)
    entry = replace(entry, unit=unit)
    return entry if fill is None else replace(entry, fill=fill, fill_mark=Mark.GIVEN)


def _check_names(table: Table, target: str, given: Given) -> None:
    """Raise unless every named column is in the table, and is named once."""
    names = [target, *given.entries, *given.blank, *given.dropped]
    table.require(names)
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(
                f"column {name!r}: must be the target, encoded or dropped, only one of these."
            )


def check_rows(table: Table) -> None:
    """Raise unless there are two rows: a row's exposure is relative to the others."""
    if not table.rows >= 2:
        raise InvalidInput(f"{table.label}: has {table.rows} row(s): must have at least 2.")


def _numeric_entry(column: Column, rows: int, summary: CellSummary) -> NumericEntry | None:
    """Return the entry of a numeric column; None if it is constant."""
    if column.low < column.high:
        # The deviation of a few subnormals may round to 0.
        scale = max(summary.spread, float(np.finfo(np.float64).smallest_subnormal))
        return NumericEntry(name=column.name, mean=summary.mean, scale=scale, mark=Mark.READ)
    if 0 < column.missing < rows:
        # All its numbers are equal: only a missing cell carries information.
        return NumericEntry(name=column.name, mean=column.low, scale=1.0, mark=Mark.READ)
    return None


def _level_entry(column: Column, levels: tuple[str, ...] | None) -> LevelEntry | None:
    """Return the entry of a string column; None if it is constant."""
    if levels is None:
        hint = f" ({column.notice.rstrip('.')})" if column.notice else ""
        raise InvalidInput(
            f"column {column.name!r}: has more than {MOST_LEVELS:,} levels: drop it, name it as"
            f" the id column, or give its levels{hint}."
        )
    if len(levels) + (column.missing > 0) < 2:
        return None
    return LevelEntry(name=column.name, levels=levels, mark=Mark.READ)


def _with_missing(
    table: Table, column: Column, entry: Entry, medians: Mapping[str, float]
) -> Entry:
    """Return ``entry`` with a fill or a level for missing cells, if it needs one."""
    if column.missing == 0:
        return entry
    if isinstance(entry, LevelEntry):
        return entry if entry.missing_level else replace(entry, missing_mark=Mark.READ)
    if entry.fill is not None:
        return entry
    if column.missing == table.rows:
        raise InvalidInput(
            f"column {column.name!r}: has no number to compute a fill from; give a fill, or drop"
            " the column."
        )
    return replace(entry, fill=medians[column.name], fill_mark=Mark.READ)


def read_target(table: Table, target: str, given: Given, *, regression: bool) -> Target:
    """Return the target: a number, the given classes, or those of the data, sorted."""
    table = table.retyped({target: "numeric" if regression else "text"})
    absent = table[target].missing
    if absent:
        raise InvalidInput(
            f"target {target!r}: is missing in {absent} of {table.rows} rows: every row needs one;"
            " drop these rows."
        )
    if regression:
        return Target(column=target, classes=None, mark=Mark.GIVEN)
    if given.classes is not None:
        check_classes(table, target, given.classes)
        return Target(column=target, classes=given.classes, mark=Mark.GIVEN)
    labels = table.levels([target], at_most=_entries.MOST_CLASSES)[target]
    if labels is None:
        raise InvalidInput(
            f"target {target!r}: has more than {_entries.MOST_CLASSES} classes; name a column with"
            " fewer labels, or choose a regression (loss=squared) if it is a number."
        )
    if len(labels) == 1:
        raise _one_class(target)
    return Target(column=target, classes=tuple(sorted(labels, key=_natural)), mark=Mark.READ)


def check_classes(table: Table, target: str, classes: tuple[str, ...]) -> None:
    """Refuse a column ``target`` that holds a label not in ``classes``, or a single class."""
    labels = table.levels([target], at_most=len(classes))[target]
    if labels is None or not set(labels) <= set(classes):
        raise InvalidInput(
            f"target {target!r}: holds a label that is {_entries.none_of(classes)}: every row must"
            " be one of the classes."
        )
    if len(labels) == 1:
        raise _one_class(target)


def _one_class(target: str) -> InvalidInput:
    return InvalidInput(f"target {target!r}: has one class only: at least two are needed.")


def _natural(level: str) -> tuple[float, str]:
    """Return the key by which labels are sorted: numbers by value, others as strings after them."""
    try:
        return float(level), level
    except ValueError:
        return np.inf, level


def warn_of_leak(read: Sequence[str]) -> None:
    """Warn once of all constants that were read from the data."""
    if not read:
        return
    warn(
        f"read from the data, which is not private: {listed(read)}. Give them in an encoding to"
        " keep the guarantee of epsilon.",
        PrivacyLeakWarning,
        stacklevel=3,
    )
