"""Summaries of the cells of a table, made by one pass over its blocks and merged in their order.

A summary holds all that is needed to open a table and to encode it: missing cells, ranges, faults
with their first row, levels, means and standard deviations. Only the last cell decides whether a
column consists of numbers, so cells are summarised as strings and as numbers at the same time.

No figure depends on the size of the blocks: a block has whole *leaves* of ``LEAF`` rows, and
moments are computed for each leaf and merged in the order of the leaves.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal

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
    string_bytes,
    valid,
)
from expost.data._feeds import Feed, Origin
from expost.errors import InvalidInput
from expost.types import FloatArray, IntArray

if TYPE_CHECKING:
    from expost.engine import Engine

__all__ = ["LEAF", "MOST_LEVELS", "CellSummary", "Column", "ColumnScan", "TableSummary"]
__all__ += ["block_rows", "distinct_ids", "run_pass", "summarise"]

# Rows whose moments are computed together.
LEAF = 2**10
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
# A block has at most this many rows, and about this many cells.
_BLOCK_ROWS = 2**15
_BLOCK_CELLS = 2**20
# Rows that show whether a column has few distinct cells.
_PROBE = 2 * LEAF
# Cells that may be held in memory, to count distinct ids or to compute a median.
HELD = 2**22

Fault = Literal["infinite", "nan", "other", "long", "large"]


def block_rows(columns: int) -> int:
    """Return the number of rows of a block of raw cells: some leaves, fewer of a wide table."""
    return min(_BLOCK_ROWS, max(LEAF, _BLOCK_CELLS // max(columns, 1) // LEAF * LEAF))


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
            first=tuple((dict(later.first) | dict(self.first)).items()),
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
        counted = _Counted.of(cells, start)
        values = counted.values
        if self.raw.is_numeric and counted.codes is None:
            # Too many to be levels: only tokens that are numbers can be equal to one.
            strings, levels = None, None
            text = counted.count(~_is_token(self.raw, values, missing))
        else:
            strings = self.raw.text(values, missing)
            levels = _levels(strings)
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
    def of(cls, cells: Any, start: int) -> "_Counted":
        if len(cells) > _PROBE and len(cells.slice(0, _PROBE).unique()) > MOST_LEVELS:
            return cls(values=cells, codes=None, counts=None, start=start)
        encoded = pc.dictionary_encode(cells, null_encoding="encode")
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
        strings = strings.unique()
        if len(strings) > MOST_LEVELS + 1:  # one of them may be null
            return None
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


# -- moments ---------------------------------------------------------------------------------------


def _leaf_moments(numbers: FloatArray, *, complete: bool) -> FloatArray:
    """Return (count, mean, rest of the mean, deviation) of each leaf, (4, k).

    ``complete``: no number is NaN, which stands for none.

    The mean of numbers that are large and close together is rounded by more than they differ: the
    rest is what rounding took from it.
    """
    whole = len(numbers) // LEAF * LEAF
    parts = []
    if whole:
        parts.append(_moments(numbers[:whole].reshape(-1, LEAF).copy(), complete))
    if whole < len(numbers):
        parts.append(_moments(numbers[whole:].reshape(1, -1).copy(), complete))
    return np.concatenate(parts, axis=1)


def _moments(X: FloatArray, complete: bool) -> FloatArray:
    """Return the moments of each row of ``X``, which is overwritten."""
    absent = None if complete else np.isnan(X)
    count = np.full(len(X), X.shape[1]) if absent is None else (~absent).sum(axis=1)
    some = np.maximum(count, 1)

    def summed(values: FloatArray) -> FloatArray:
        if absent is not None:
            values[absent] = 0.0
        sums: FloatArray = values.sum(axis=1)
        return sums

    # Columns that are too large for this are refused.
    with np.errstate(over="ignore", invalid="ignore"):
        mean = summed(X) / some
        X -= mean[:, None]
        rest = summed(X) / some
        X -= rest[:, None]
        if absent is not None:
            X[absent] = 0.0
        most = np.maximum(X.max(axis=1), -X.min(axis=1))
        size = np.zeros(len(X), dtype=np.int32)
        if np.any(~((most > 1e-100) & (most < 1e100)) & (most != 0)):
            # Scaled by a power of two, which is exact: squares of tiny numbers would be 0.
            size = np.frexp(most)[1]
            X = np.ldexp(X, -size[:, None])
        spread = np.ldexp(np.sqrt(np.square(X, out=X).sum(axis=1) / some), size)
    return np.stack([count, mean, rest, spread])


class _Moments:
    """Count, mean and standard deviation of each column, merged leaf by leaf.

    With the share w of the later rows and δ the difference of the means, the variance is
    (1 − w)·s² + w·t² + w(1 − w)·δ² (Chan, Golub & LeVeque 1983). Standard deviations are merged by
    ``hypot``, so that nothing over- or underflows, and means are sums of two float64.
    """

    def __init__(self, columns: int) -> None:
        self._count, self._rest = np.zeros(columns), np.zeros(columns)
        self.mean, self.spread = np.zeros(columns), np.zeros(columns)

    def add(self, leaves: FloatArray) -> None:
        """Merge the leaves (4, columns, k) of a block, in their order."""
        with np.errstate(over="ignore", invalid="ignore"):
            for count, mean, rest, spread in np.moveaxis(leaves, 2, 0):
                total = self._count + count
                share = count / np.maximum(total, 1)
                step = share * (mean - self.mean)
                new = self.mean + step
                # What rounding took from the sum (Knuth's two-sum).
                taken = (self.mean - (new - (new - self.mean))) + (step - (new - self.mean))
                difference = (mean - self.mean) + (rest - self._rest)
                self._rest = self._rest + taken + share * (rest - self._rest)
                self.mean = new
                within = np.hypot(np.sqrt(1 - share) * self.spread, np.sqrt(share) * spread)
                self.spread = np.hypot(within, np.sqrt(share * (1 - share)) * difference)
                self._count = total


# -- the pass --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _BlockSummary:
    """``columns`` and leaves (4, columns, k) of a block, and its ids where they are held."""

    rows: int
    columns: tuple[CellSummary, ...]
    leaves: FloatArray
    ids: Any
    without_id: int | None
    distinct_ids: bool


@dataclass(frozen=True, kw_only=True)
class _Summarise:
    """The task of the pass; ``hold_ids``: whether the ids of a block are returned."""

    feed: Feed
    columns: tuple[ColumnScan, ...]
    key: ColumnScan | None
    hold_ids: bool
    missing: tuple[str, ...]
    size: int

    @property
    def indices(self) -> list[int]:
        key = [] if self.key is None else [self.key.index]
        return [*(column.index for column in self.columns), *key]

    def __call__(self, item: Any) -> list[_BlockSummary]:
        blocks = self.feed.blocks(item, self.indices, self.size)
        return [self._block(block.start, block.batch) for block in blocks]

    def _block(self, start: int, batch: Any) -> _BlockSummary:
        summaries = []
        leaves = np.zeros((4, len(self.columns), -(-batch.num_rows // LEAF)))
        for position, column in enumerate(self.columns):
            cells = batch.column(position)
            summary, numbers = column.summary(cells, self.missing, start)
            summaries.append(summary)
            if numbers is not None:
                complete = summary.numbers == batch.num_rows
                leaves[:, position] = _leaf_moments(numbers, complete=complete)
        ids, without_id, distinct = None, None, False
        if self.key is not None:
            cells = batch.column(len(self.columns))
            ids = self.key.raw.text(cells, self.missing)
            if ids.null_count:
                without_id = start + 1 + int(np.argmin(valid(ids)))
            distinct = len(ids.unique()) > 1
        return _BlockSummary(
            rows=batch.num_rows,
            columns=tuple(summaries),
            leaves=leaves,
            ids=ids if self.hold_ids else None if ids is None else ids.slice(0, 1),
            without_id=without_id,
            distinct_ids=distinct,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class TableSummary:
    """The rows of a table, the summary of each column, and what is known of its ids.

    Attributes
    ----------
    ids : pyarrow.ChunkedArray | None
        All ids; None if there are none, or too many to hold.
    without_id : int | None
        The first row, counted from 1, that has none.
    """

    rows: int
    columns: tuple[CellSummary, ...]
    ids: Any
    without_id: int | None
    distinct_ids: bool


def run_pass(engine: "Engine | None", task: Any, items: Iterable[Any]) -> Iterator[Any]:
    """Yield the results of ``task``; without an engine by threads, of a single item here."""
    from expost.engine import LocalEngine

    if engine is not None:
        yield from engine.map(task, items)
        return
    iterator = iter(items)
    head = list(islice(iterator, 2))
    if len(head) < 2:
        yield from map(task, head)
        return
    with closing(LocalEngine()) as own:
        # Taken out of the list, so that no block is held twice.
        yield from own.map(task, chain((head.pop(0) for _ in range(2)), iterator))


def summarise(
    origin: Origin,
    columns: Sequence[ColumnScan],
    missing: tuple[str, ...],
    *,
    key: ColumnScan | None = None,
    hold_ids: bool = False,
    engine: "Engine | None" = None,
) -> TableSummary:
    """Summarise columns, and the ids in the column ``key``, in one pass over all rows."""
    width = len(columns) + (key is not None)
    task = _Summarise(
        feed=origin.feed,
        columns=tuple(columns),
        key=key,
        hold_ids=hold_ids and (origin.rows or 0) <= HELD,
        missing=missing,
        size=block_rows(width),
    )
    items = origin.feed.items(task.indices, task.size, rows=origin.rows, aligned=True)
    rows, moments = 0, _Moments(len(columns))
    summaries = [CellSummary(has_numbers=column.has_numbers) for column in columns]
    ids: list[Any] | None = []
    without_id, first_id, distinct = None, None, False
    for block in (block for blocks in run_pass(engine, task, items) for block in blocks):
        rows += block.rows
        summaries = [a.merged(b) for a, b in zip(summaries, block.columns, strict=True)]
        moments.add(block.leaves)
        without_id = block.without_id if without_id is None else without_id
        if block.ids is None:
            continue
        own = block.ids[0].as_py()
        distinct = distinct or block.distinct_ids or (rows > block.rows and own != first_id)
        first_id = own
        if ids is not None:
            ids.append(block.ids)
            ids = ids if rows <= HELD else None
    whole = task.hold_ids and ids is not None
    return TableSummary(
        rows=rows,
        columns=tuple(
            replace(summary, mean=float(mean), spread=float(spread))
            for summary, mean, spread in zip(summaries, moments.mean, moments.spread, strict=True)
        ),
        ids=pa.chunked_array(ids, pa.string()) if whole else None,
        without_id=without_id,
        distinct_ids=distinct,
    )


# -- more ids than memory holds --------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _ShareOfIds:
    """The task that returns the ids of one share, by their hashes."""

    feed: Feed
    key: ColumnScan
    missing: tuple[str, ...]
    size: int
    share: int
    shares: int

    def __call__(self, item: Any) -> list[Any]:
        parts = []
        for block in self.feed.blocks(item, [self.key.index], self.size):
            ids = self.key.raw.text(block.batch.column(0), self.missing)
            parts.append(ids.filter(pa.array(_hashes(ids) % self.shares == self.share)))
        return parts


def distinct_ids(
    origin: Origin, key: ColumnScan, missing: tuple[str, ...], rows: int, engine: "Engine | None"
) -> int:
    """Return the number of distinct ids, in several passes, each of which fits into memory."""
    shares = -(-rows // HELD)
    size, count = block_rows(1), 0
    for share in range(shares):
        task = _ShareOfIds(
            feed=origin.feed, key=key, missing=missing, size=size, share=share, shares=shares
        )
        items = origin.feed.items([key.index], size, rows=rows, aligned=True)
        parts = [part for ids in run_pass(engine, task, items) for part in ids]
        count += pc.count_distinct(pa.chunked_array(parts, pa.string())).as_py()
    return count


def _hashes(strings: Any) -> NDArray[np.uint64]:
    """Return a hash of each string, the same in every process."""
    offsets, content = string_bytes(strings)
    lengths = np.diff(offsets)
    position = np.arange(len(content)) - np.repeat(offsets[:-1], lengths)
    # Σ (byte + 1)·pᵏ modulo 2⁶⁴; the upper bits depend on every byte.
    powers = np.full(int(lengths.max(initial=0)) + 1, np.uint64(0x9E3779B97F4A7C15))
    powers = np.cumprod(powers)
    terms = (content.astype(np.uint64) + np.uint64(1)) * powers[position]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms)])
    hashes: NDArray[np.uint64] = sums[offsets[1:]] - sums[offsets[:-1]]
    return (hashes * np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(33)
