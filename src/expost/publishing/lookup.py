"""Lookup of one row: values as on a form, encoded as the features of a model.

Values are treated as cells of the training table: a missing value is imputed, or counts as missing
if the encoding has missing cells, and an unknown level counts as none. A note reports each such
case.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit

from expost import _checks
from expost.data import Encoding, LevelEntry, NumericEntry
from expost.errors import InvalidInput
from expost.notices import listed
from expost.numbers import range_text
from expost.release import Release
from expost.results import Displayed
from expost.types import Audience, FloatArray

__all__ = [
    "LARGEST",
    "Answer",
    "Form",
    "cut_note",
    "cut_range",
    "form_number",
    "missing_fault",
    "missing_note",
    "number_fault",
    "size_fault",
    "unknown_note",
]

# The largest number that a person may give.
LARGEST = 1e150

# A decimal number as encoding.js reads it: float() takes "1_000", "nan" and digits of any script.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
# One decimal comma. Before three digits it may separate thousands, and is refused.
_COMMA = re.compile(r"([+-]?\d*),(\d{1,2}|\d{4,})", re.ASCII)

# The largest number of levels listed in a note.
_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class Answer(Displayed):
    """The bounds of a report for one row with one label.

    Parameters
    ----------
    exposure : float
        At most, in nats: of θ alone, whether or not the row is in the data.
    epsilon_gradient, epsilon_hessian : float
        What the report's own releases cost the row, each at ``delta``; 0 in a data-independent
        report.
    everything : float
        At most, in nats: of θ and the report's releases together.
    fails_with, everything_fails_with : float
        The probabilities that those bounds fail; of several labels, that one of them does.
    notes : tuple[str, ...], default=()
        Changes to the values: cut, clipped, missing, unknown.
    audience : Audience, default=Audience.PUBLIC
        That of the report: the result depends on the report and the row only.
    """

    label: Any
    exposure: float
    epsilon_gradient: float
    epsilon_hessian: float
    delta: float
    everything: float
    fails_with: float
    everything_fails_with: float
    notes: tuple[str, ...] = ()
    audience: Audience = Audience.PUBLIC

    @property
    def certainty(self) -> float:
        """The largest certainty, present or absent, of an attacker who knows θ; prior ½."""
        return float(expit(self.exposure))

    @property
    def certainty_in_everything(self) -> float:
        """The largest certainty of an attacker who knows θ and the report; prior ½."""
        return float(expit(self.everything))


@dataclass(frozen=True, kw_only=True)
class Form:
    """The values that a lookup needs, and their encoding as one row of features.

    Parameters
    ----------
    encoding : Encoding | None
        The table's, or None if the model was made from plain numbers.
    names : tuple[str, ...]
        The columns that must have a value.
    unused : tuple[str, ...], default=()
        Columns of the table that the model leaves out.
    """

    encoding: Encoding | None
    names: tuple[str, ...]
    unused: tuple[str, ...] = ()

    @classmethod
    def of(cls, encoding: Encoding | None, release: Release) -> "Form":
        """Return the form of a model."""
        if encoding is not None:
            return cls(
                encoding=encoding,
                names=tuple(entry.name for entry in encoding.entries),
                unused=tuple(name for name, _ in encoding.dropped),
            )
        width = np.shape(release.coefficients[0])[-1]
        names = release.feature_names or tuple(f"column {index}" for index in range(width))
        return cls(encoding=None, names=names)

    def features(self, values: Mapping[str, Any]) -> tuple[FloatArray, tuple[str, ...]]:
        """Return the features (k,) of {column: value}, and notes on changed values."""
        if not isinstance(values, Mapping):
            raise InvalidInput(
                f"values: is a {type(values).__name__}, must be a mapping {{column: value}}; the"
                f" columns are {listed(self.names)}."
            )
        self._check_names(values)
        notes = [
            f"{name!r} is not used by the model: it was left out."
            for name in values
            if name in self.unused
        ]
        if self.encoding is None:
            return np.array([form_number(name, values[name]) for name in self.names]), tuple(notes)
        cells: dict[str, Any] = {}
        for entry in self.encoding.entries:
            value, tokens = values[entry.name], self.encoding.missing
            if isinstance(entry, NumericEntry):
                amount, note = _numeric_cell(entry, value, tokens)
                cells[entry.name] = pa.array([amount], pa.float64())
            else:
                level, note = _level_cell(entry, value, tokens)
                cells[entry.name] = pa.array([level], pa.string())
            notes += [] if note is None else [note]
        # The encoder requires a label too; it is not used.
        target = self.encoding.target
        cells[target.column] = (
            pa.array([0.0], pa.float64())
            if target.classes is None
            else pa.array([target.classes[0]], pa.string())
        )
        return self.encoding.encode(pa.table(cells)).X[0], tuple(notes)

    def _check_names(self, values: Mapping[str, Any]) -> None:
        target = None if self.encoding is None else self.encoding.target.column
        for name in values:
            if target is not None and name == target:
                raise InvalidInput(f"{name!r}: is what the model predicts; give it as the label.")
            if name not in (*self.names, *self.unused):
                raise InvalidInput(
                    f"{name!r}: is no column of the model; it has {listed(self.names)}."
                    f"{_checks.did_you_mean(name, self.names)}"
                )
        absent = [name for name in self.names if name not in values]
        if absent:
            empty = "" if self.encoding is None else " (an empty one where it is not known)"
            raise InvalidInput(f"{listed(absent)}: must be given as well, each a value{empty}.")


def form_number(name: str, value: Any) -> float:
    """Return ``value``, a number or a string of one, as a finite float.

    A string may have a decimal comma that cannot be read as one between thousands, and "−".
    """
    if isinstance(value, str):
        text = value.strip().replace("−", "-")
        comma = _COMMA.fullmatch(text)
        text = text if comma is None else f"{comma[1]}.{comma[2]}"
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if is_number and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if abs(number) <= LARGEST:
            return number
        if abs(number) > LARGEST:
            raise InvalidInput(size_fault(name))
    # The value is personal data, and is not printed.
    raise InvalidInput(number_fault(name))


def number_fault(name: str) -> str:
    """Return the sentence for what is not a number, or could be read as two."""
    return f"{name}: must be a number such as 3.5, without a comma or a space between thousands."


def size_fault(name: str) -> str:
    """Return the sentence for a number that is too large to compute with."""
    return f"{name}: is too large a number."


def missing_fault(name: str) -> str:
    """Return the sentence for a missing number where the model knows none."""
    return f"{name}: must have a value: the model knows no missing ones."


def missing_note(entry: NumericEntry | LevelEntry) -> str | None:
    """Return the sentence for a missing value of a column; None where it is refused."""
    if isinstance(entry, NumericEntry):
        counts = None if entry.fill is None else "counts as missing"
    else:
        counts = "counts as missing" if entry.missing_level else "counts as none of its levels"
    if counts is None:
        return None
    return f"{entry.name!r} has no value: it {counts}, as it would have in training."


def cut_range(entry: NumericEntry) -> tuple[float, float] | None:
    """Return the range past which a number is cut; None: it is not."""
    if entry.cut is None:
        return None
    most = entry.cut * entry.scale
    return entry.mean - most, entry.mean + most


def cut_note(entry: NumericEntry) -> str | None:
    """Return the sentence for a number past the range of its column; None: it has none."""
    ends = cut_range(entry)
    if ends is None:
        return None
    return (
        f"{entry.name!r} lies outside of {range_text(*ends)}: it was cut to that range, as it would"
        " have been in training."
    )


def unknown_note(entry: LevelEntry) -> str:
    """Return the sentence for a value that is none of the levels of a column."""
    levels = ", ".join(map(repr, entry.levels[:_LISTED]))
    more = ", …" if len(entry.levels) > _LISTED else ""
    return (
        f"The value of {entry.name!r} is none of its levels ({levels}{more}): it counts as none of"
        " them, as it would have in training; if it is misspelled, look the row up again."
    )


def _is_missing(value: Any, tokens: tuple[str, ...]) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str) and (value.strip() == "" or value.strip() in tokens)


def _numeric_cell(
    entry: NumericEntry, value: Any, tokens: tuple[str, ...]
) -> tuple[float | None, str | None]:
    """Return the cell, None for a missing one, and a note."""
    if not _is_missing(value, tokens):
        number = form_number(entry.name, value)
        is_inside = entry.cut is None or abs(number - entry.mean) <= entry.cut * entry.scale
        return number, None if is_inside else cut_note(entry)
    if entry.fill is None:
        raise InvalidInput(missing_fault(entry.name))
    return None, missing_note(entry)


def _level_cell(
    entry: LevelEntry, value: Any, tokens: tuple[str, ...]
) -> tuple[str | None, str | None]:
    """Return the cell, None for a missing one, and a note."""
    if _is_missing(value, tokens):
        return None, missing_note(entry)
    text = _text(value)
    return text, None if text in entry.levels else unknown_note(entry)


def _text(value: Any) -> str:
    """Return a level as the string of its cell: 1 and 1.0 are "1", True is "true"."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()
