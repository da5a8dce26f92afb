"""The cells of one column of a table: their summary, and the column that follows from it.

A summary holds all that is needed of a column to open a table and to encode it: missing cells,
ranges, faults with their first row, levels, mean and standard deviation. Only the last cell decides
whether a column consists of numbers, so cells are summarised as strings and as numbers at the same
time. The summaries of consecutive rows are merged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data._cells import (
    LONGEST,
    Kind,
    RawColumn,
    booleans,
    floats,
    is_number,
    parsed,
    valid,
)
from expost.data._feeds import Origin
from expost.errors import InvalidInput
from expost.types import FloatArray, IntArray

__all__ = ["MOST_LEVELS", "CellSummary", "Column", "ColumnScan"]

# Levels of one column that are kept; a column of names has one per row.
MOST_LEVELS = 1_000
# Squares and products of two entries must not overflow (as in _checks).
_LARGEST = 1e150
_WORD = r"(?i)\A[+-]?(nan|inf|infinity)\z"
_DIGITS = r"\A[+-]?[0-9]+\z"
# Tokens that commonly mean "missing"; other cells are never shown, they may be personal.
_USUAL_TOKENS = frozenset(
    {"", "?", "-", "--", ".", "*", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing"}
)
# Rows that show whether a column has few distinct cells: if nearly each is another, fewer do.
_PROBE, _SPARE = 2**11, 2**6

Fault = Literal["infinite", "nan", "other", "long", "large"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name : str
        Its name.
    kind : Kind
        "numeric", "text" or "boolean".
    missing : int
        The number of its missing cells.
    low, high : float
        The range of the cells of a numeric column that are not missing (0 if there are none).
    notice : str
        A note on a possibly unintended effect, or "".
    summary : CellSummary | None
        The summary of its cells; None if they were not read.
    """

    name: str
    kind: Kind
    missing: int
    low: float = field(default=0.0, repr=False)
    high: float = field(default=0.0, repr=False)
    notice: str = field(default="", repr=False)
    summary: "CellSummary | None" = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class CellSummary:
    """The cells of a column in some rows.

    Attributes
    ----------
    has_numbers : bool
        Whether the column was summarised as numbers, too.
    strings : int
        The number of cells that are not missing as strings.
    present : int
        The number of cells that are not missing as numbers, where the column was summarised as
        such, else as strings.
    numbers : int
        The number of cells that are finite numbers.
    low, high, mean, spread : float
        The range of these numbers, their mean and their standard deviation.
    words : int
        The number of cells such as nan and inf.
    overflow : int
        The number of numbers past the range of float64.
    other : str | None
        The only string that is no number; None if there is none or more than one.
    others_differ : bool
        Whether there is more than one such string.
    first : tuple[tuple[Fault, int], ...]
        The first row, counted from 1, of each fault.
    levels : frozenset[str] | None
        The distinct strings; None for more than ``MOST_LEVELS``.
    """

    has_numbers: bool
    strings: int = 0
    present: int = 0
    numbers: int = 0
    low: float = math.inf
    high: float = -math.inf
    words: int = 0
    overflow: int = 0
    other: str | None = None
    others_differ: bool = False
    first: tuple[tuple[Fault, int], ...] = ()
    levels: frozenset[str] | None = frozenset()
    mean: float = 0.0
    spread: float = 0.0

    def merged(self, later: "CellSummary") -> "CellSummary":
        """Return the summary of these rows and of ``later`` ones; moments are merged elsewhere."""
        levels = None
        if self.levels is not None and later.levels is not None:
            levels = self.levels | later.levels
            levels = levels if len(levels) <= MOST_LEVELS else None
        differ = self.others_differ or later.others_differ
        differ = differ or (None not in (self.other, later.other) and self.other != later.other)
        known = self.other if self.other is not None else later.other
        return CellSummary(
            has_numbers=self.has_numbers,
            strings=self.strings + later.strings,
            present=self.present + later.present,
            numbers=self.numbers + later.numbers,
            low=min(self.low, later.low),
            high=max(self.high, later.high),
            words=self.words + later.words,
            overflow=self.overflow + later.overflow,
            other=None if differ else known,
            others_differ=differ,
            first=tuple((dict(later.first) | dict(self.first)).items())
            if later.first
            else self.first,
            levels=levels,
        )


# -- the cells of one column of a block ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ColumnScan:
    """A column that is summarised; ``kind`` is its kind if that is known."""

    index: int
    raw: RawColumn
    kind: Kind | None

    @classmethod
    def of(cls, origin: Origin, name: str, kind: Kind | None) -> "ColumnScan":
        """Return the scan of a column; refuse a kind that it cannot have."""
        raw = origin[name]
        raw.check_usable()
        declared = "text" if raw.categorical else raw.type
        possible = ("boolean" if declared == "boolean" else "numeric", "text")
        if kind is not None and kind not in possible:
            raise InvalidInput(
                f"column {raw.name!r}: is of type {raw.described}: cannot be read as"
                f" {kind}; must be one of {', '.join(possible)}."
            )
        return cls(index=origin.index(name), raw=raw, kind=kind)

    @property
    def has_numbers(self) -> bool:
        """Whether the cells are summarised as numbers, too."""
        if self.raw.is_numeric:
            return not (self.kind == "text" or (self.raw.categorical and self.kind is None))
        guessed = self.raw.type in ("cell", "mixed") and self.kind is None
        return guessed or self.kind == "numeric"

    def summary(
        self, cells: Any, missing: Sequence[str], start: int
    ) -> tuple[CellSummary, FloatArray | None]:
        """Summarise the cells of rows from ``start`` on; return their numbers, NaN for none."""
        # Null, −0 (printed like 0) and the tokens of a missing cell are no levels of their own.
        counted = _Counted.of(cells, start, few=MOST_LEVELS + 2 + len(missing))
        values = counted.values
        if self.raw.is_numeric and counted.codes is None:
            # Too many to be levels: only tokens that are numbers can be equal to one.
            strings, levels = None, None
            text = counted.count(~_is_token(self.raw, values, missing))
        else:
            strings = self.raw.text(values, missing)
            # The same array: no cell was trimmed or missing, so the distinct cells are many.
            many = counted.codes is None and strings is values
            levels = None if many else _levels(strings)
            text = counted.count(valid(strings))
        if not self.has_numbers:
            known = CellSummary(has_numbers=False, strings=text, present=text, levels=levels)
            return known, None
        figures, numbers = self._numbers(counted, strings, missing)
        summary = CellSummary(has_numbers=True, strings=text, levels=levels, **figures)
        return summary, counted.rows(numbers)

    def _numbers(
        self, counted: "_Counted", strings: Any, missing: Sequence[str]
    ) -> tuple[dict[str, Any], FloatArray]:
        """Return the figures of the cells as numbers, and the numbers of the distinct cells."""
        if self.raw.is_numeric:
            array = cells = self.raw.number(counted.values, missing)
        else:
            array, cells = _numbers_in(strings), strings
        values = floats(array)
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
        faults: dict[Fault, NDArray[np.bool_]] = {}
        figures: dict[str, Any] = {}
        # NaN is neither: one stands for a null.
        if math.isfinite(low) and math.isfinite(high):
            count = counted.total
        else:
            finite, present = np.isfinite(values), valid(cells)
            others = present & ~finite
            values = np.where(finite, values, np.nan)
            low = float(np.min(values, initial=math.inf, where=finite))
            high = float(np.max(values, initial=-math.inf, where=finite))
            count = counted.count(finite)
            if others.any():
                raw = floats(array)
                faults |= {"infinite": np.isinf(raw), "nan": np.isnan(raw) & present}
                faults["other"] = others
                figures["present"] = counted.count(present)
                if strings is not None:
                    figures |= _others(counted, strings, raw, others)
        if max(-low, high) >= LONGEST:
            faults["large"] = np.abs(values) > _LARGEST
            faults["long"] = self._is_long(counted.values, strings, values)
        first = ((fault, counted.first(mask)) for fault, mask in faults.items())
        figures = {"present": count, "numbers": count, "low": low, "high": high} | figures
        figures["first"] = tuple((fault, row) for fault, row in first if row is not None)
        return figures, values

    def _is_long(self, raw: Any, strings: Any, values: FloatArray) -> NDArray[np.bool_]:
        """Return which cells are integers that float64 does not represent exactly."""
        past = np.isfinite(values) & (np.abs(values) >= LONGEST)
        if self.raw.type == "float":
            return np.zeros(len(past), dtype=bool)
        if self.raw.type != "integer":
            # A decimal number, 1e20 or 12345678901234567890.5, is meant as a float.
            past &= booleans(pc.match_substring_regex(strings, _DIGITS))
        cells = (raw if self.raw.type == "integer" else strings).filter(pa.array(past)).to_pylist()
        past[past] = [_exceeds(str(cell)) for cell in cells]
        return past

    # -- what the cells of all rows make of it ---------------------------------------------------

    def column(self, label: str, rows: int, summary: CellSummary) -> Column:
        """Return the column with this summary; raise :class:`InvalidInput` on a fault."""
        name, first = self.raw.name, dict(summary.first)

        def fault(kind: Fault, problem: str) -> InvalidInput:
            return InvalidInput(f"{label}, column {name!r}, row {first[kind]}: {problem}.")

        as_text = Column(name=name, kind="text", missing=rows - summary.strings, summary=summary)
        if not self.has_numbers:
            boolean = self.raw.type == "boolean" and self.kind != "text"
            return (
                replace(as_text, kind="boolean")
                if boolean and not self.raw.categorical
                else as_text
            )
        present, numbers = summary.present, summary.numbers
        if self.raw.is_numeric:
            if "infinite" in first:
                raise fault("infinite", "is infinite: must be finite; drop or fill it")
            if "nan" in first:
                raise fault(
                    "nan", "is NaN: a missing cell must be null (None; .fill_nan(None) in polars)"
                )
        elif numbers < present or (present == 0 and self.kind is None):
            others, bad = present - numbers, summary.words + summary.overflow
            if numbers == summary.overflow == 0 and self.kind is None:
                return as_text
            if others == bad:
                problem = "is not a finite number" if summary.words else "is too large for float64"
                raise fault(
                    "other",
                    f"{problem}: rescale the column, or declare the cell missing (missing=…)",
                )
            token = summary.other
            hint = ""
            if token is not None and token.lower() in _USUAL_TOKENS:
                hint = f"; if {token!r} means missing, declare it so (missing=…)"
            if self.kind == "numeric":
                raise fault(
                    "other",
                    f"is not a number ({others} of {present} cells are not), and the column was"
                    f" declared numeric{hint}",
                )
            notice = (
                f"column {name!r}: {others} of {present} cells are not numbers, so it is read as"
                f" text{hint}."
            )
            return replace(as_text, notice=notice)
        if "long" in first:
            raise fault(
                "long",
                "is an integer past 2**53, which float64 cannot represent exactly; rescale the"
                " column, leave it out, or name it as the id column",
            )
        if "large" in first:
            raise fault(
                "large",
                f"is too large: must be at most {_LARGEST:g} in magnitude; rescale the column",
            )
        low, high = (summary.low, summary.high) if numbers else (0.0, 0.0)
        return Column(
            name=name,
            kind="numeric",
            missing=rows - present,
            low=low,
            high=high,
            summary=summary,
        )


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """The cells of a block as distinct ``values``, or all of them if there are many.

    Attributes
    ----------
    codes : NDArray[np.int32] | None
        The index of each cell in ``values``; None: the cells themselves.
    counts : IntArray | None
        The count of each value; None: one each.
    """

    values: Any
    codes: NDArray[np.int32] | None
    counts: IntArray | None
    start: int

    @classmethod
    def of(cls, cells: Any, start: int, few: int) -> "_Counted":
        """Return the cells; at most ``few`` distinct ones among the first rows are few."""
        all_cells = cls(values=cells, codes=None, counts=None, start=start)
        for rows in (few + _SPARE, _PROBE):
            if len(cells) > rows and len(cells.slice(0, rows).unique()) > few:
                return all_cells
        encoded = pc.dictionary_encode(cells, null_encoding="encode")
        if len(encoded.dictionary) > few:
            return all_cells
        codes = np.frombuffer(encoded.indices.buffers()[1], np.int32)[: len(cells)]
        counts = np.bincount(codes, minlength=len(encoded.dictionary))
        return cls(values=encoded.dictionary, codes=codes, counts=counts, start=start)

    @property
    def total(self) -> int:
        """The number of cells."""
        return len(self.values) if self.codes is None else len(self.codes)

    def count(self, mask: NDArray[np.bool_]) -> int:
        """Return the number of cells whose value is in ``mask``."""
        return int(np.count_nonzero(mask) if self.counts is None else self.counts[mask].sum())

    def first(self, mask: NDArray[np.bool_]) -> int | None:
        """Return the row, counted from 1, of the first of them."""
        if not mask.any():
            return None
        return self.start + 1 + int(np.argmax(self.rows(mask)))

    def rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the value of each cell."""
        return values if self.codes is None else values[self.codes]


def _levels(strings: Any) -> frozenset[str] | None:
    """Return the distinct strings; None for too many."""
    if len(strings) > MOST_LEVELS:
        for rows in (_PROBE, len(strings)):
            distinct = strings.slice(0, rows).unique()
            if len(distinct) > MOST_LEVELS + 1:  # one of them may be null
                return None
            if rows >= len(strings):
                break
        strings = distinct
    levels = frozenset(strings.to_pylist()) - {None}
    return levels if len(levels) <= MOST_LEVELS else None


def _is_token(raw: RawColumn, values: Any, missing: Sequence[str]) -> NDArray[np.bool_]:
    """Return which numbers are missing, or printed like a token of a missing cell."""
    absent = ~valid(values)
    # Rare enough to be slow: a token that is a number.
    for token in missing:
        try:
            number = float(token)
        except ValueError:
            continue
        near = booleans(pc.equal(values.cast(pa.float64(), safe=False), number))
        if near.any():
            printed = raw.text(values.filter(pa.array(near)), ()).to_pylist()
            absent[near] |= np.array([text == token for text in printed])
    return absent


def _numbers_in(strings: Any) -> Any:
    """Return the decimal numbers in ``strings`` as float64, null for any other string."""
    try:
        return parsed(strings)
    except pa.ArrowInvalid:
        numeric = is_number(strings)
        return parsed(pc.if_else(numeric, strings, pa.scalar(None, pa.string())))


def _others(
    counted: _Counted, strings: Any, values: FloatArray, others: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return the figures of the strings that are no finite numbers."""
    words = others & booleans(pc.match_substring_regex(strings, _WORD))
    distinct = strings.filter(pa.array(others)).unique()
    return {
        "words": counted.count(words),
        "overflow": counted.count(others & np.isinf(values) & ~words),
        "other": distinct[0].as_py() if len(distinct) == 1 else None,
        "others_differ": len(distinct) > 1,
    }


def _exceeds(cell: str) -> bool:
    """Return whether the integer ``cell`` is past 2⁵³ in magnitude."""
    digits = cell.lstrip("+-").lstrip("0")
    return len(digits) > 16 or int(digits or "0") > LONGEST
