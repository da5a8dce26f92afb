"""Summaries of a table, made by one pass over its blocks and merged in their order.

Each column of each block is summarised (:mod:`expost.data._columns`), together with its moments and
with the ids of the rows.

No figure depends on the size of the blocks: a block has whole *leaves* of ``LEAF`` rows, and
moments are computed for each leaf and merged in the order of the leaves.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data._cells import string_bytes, valid
from expost.data._columns import CellSummary, ColumnScan
from expost.data._feeds import Feed, Origin
from expost.types import FloatArray

if TYPE_CHECKING:
    from expost.engine import Engine

__all__ = ["HELD", "LEAF", "TableSummary", "block_rows", "distinct_ids", "run_pass", "summarise"]

# Rows whose moments are computed together.
LEAF = 2**10
# A block has at most this many rows, and about this many cells.
_BLOCK_ROWS = 2**15
_BLOCK_CELLS = 2**20
# Numbers whose moments are computed while they are in the cache of a core.
_CACHED = 2**15
# Cells that may be held in memory, to count distinct ids or to compute a median.
HELD = 2**22


def block_rows(columns: int) -> int:
    """Return the number of rows of a block of raw cells: some leaves, fewer of a wide table.

    At least two leaves, because each column of each block takes some time of its own, and a power
    of two, so that blocks end where the row groups of many Parquet files do.
    """
    leaves = max(2, _BLOCK_CELLS // max(columns, 1) // LEAF)
    return min(_BLOCK_ROWS, LEAF << (leaves.bit_length() - 1))


# -- moments ---------------------------------------------------------------------------------------


def _leaf_moments(columns: Sequence[FloatArray], *, complete: bool) -> FloatArray:
    """Return (count, mean, rest of the mean, deviation) of each leaf of columns, (4, columns, k).

    ``complete``: no number is NaN, which stands for none.

    The mean of numbers that are large and close together is rounded by more than they differ: the
    rest is what rounding took from it.
    """
    rows = len(columns[0])
    parts = []
    for start, stop in ((0, rows // LEAF * LEAF), (rows // LEAF * LEAF, rows)):
        if start < stop:
            some = [numbers[start:stop] for numbers in columns]
            X = some[0] if len(some) == 1 else np.stack(some)
            moments = _moments(X.reshape(-1, min(LEAF, stop - start)), complete)
            parts.append(moments.reshape(4, len(columns), -1))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)


def _moments(X: FloatArray, complete: bool) -> FloatArray:
    """Return the moments of each row of ``X``."""
    absent = None if complete else np.isnan(X)
    count = np.full(len(X), X.shape[1]) if absent is None else (~absent).sum(axis=1)
    some = np.maximum(count, 1)

    def present(values: FloatArray) -> FloatArray:
        if absent is not None:
            values[absent] = 0.0
        return values

    # Columns that are too large for this are refused.
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        mean = (X if absent is None else np.where(absent, 0.0, X)).sum(axis=1) / some
        X = present(X - mean[:, None])
        rest = X.sum(axis=1) / some
        X -= rest[:, None]
        squares = np.square(present(X)).sum(axis=1)
        size = np.zeros(len(X), dtype=np.int32)
        odd = np.flatnonzero(~((squares > 1e-250) & (squares < 1e250)))
        if len(odd):
            # Scaled by a power of two, which is exact: squares of tiny numbers would be 0.
            size[odd] = np.frexp(np.abs(X[odd]).max(axis=1))[1]
            squares[odd] = np.square(np.ldexp(X[odd], -size[odd, None])).sum(axis=1)
        spread = np.ldexp(np.sqrt(squares / some), size)
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
        # Columns of a few rows are computed together, as many as stay in the cache.
        together = max(1, _CACHED // max(batch.num_rows, 1))
        waiting: dict[bool, dict[int, FloatArray]] = {True: {}, False: {}}
        last = len(self.columns) - 1
        for position, column in enumerate(self.columns):
            cells = batch.column(position)
            summary, numbers = column.summary(cells, self.missing, start)
            summaries.append(summary)
            if numbers is not None:
                waiting[summary.numbers == batch.num_rows][position] = numbers
            for complete, some in waiting.items():
                if some and (len(some) == together or position == last):
                    leaves[:, list(some)] = _leaf_moments([*some.values()], complete=complete)
                    some.clear()
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
