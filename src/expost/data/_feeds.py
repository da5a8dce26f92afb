"""Sources as feeds: blocks of raw cells, in the same order in every pass.

A feed yields *items*, which an engine may send to a worker, and reads the blocks of an item in any
process. Parquet files and Dask collections can be read from any position: an item is a range of
rows, and a worker reads its own rows. All other sources (CSV, SQL, tables in memory) are read from
their start by the process that opened them, and an item is a block itself.

All blocks but the last have the same number of rows, which does not depend on the source.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet

from expost.data._cells import RawColumn, plain
from expost.errors import InvalidInput

__all__ = ["Block", "Feed", "Origin", "ParquetFeed", "Span", "Stamp", "StreamFeed"]
__all__ += ["aligned_spans", "broken", "check_unchanged", "checked", "no_columns", "reading_arrow"]
__all__ += ["spans"]

# Rows of a table in memory, and the fewest of a Parquet file, that are read at a time.
_FETCH, _LEAST_FETCH = 2**14, 2**10
# Consecutive blocks that one worker reads: a row group is decoded once.
_BLOCKS_AN_ITEM = 4
# A file with its size and time of change.
Stamp = tuple[Path, int, int]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows ``start`` to ``start + batch.num_rows``, counted from 0."""

    start: int
    batch: Any


class Feed(Protocol):
    """Blocks of raw cells; the columns are named by their indices in the source."""

    def items(
        self, indices: Sequence[int], size: int, *, rows: int | None, aligned: bool = False
    ) -> Iterator[Any]:
        """Yield the items of blocks of ``size`` rows, in order.

        Parameters
        ----------
        indices : Sequence[int]
            The columns.
        size : int
            The number of rows of each block but the last.
        rows : int | None
            The number of rows that the source had; another one is refused. None if not known yet.
        aligned : bool, default=False
            Whether items end where the parts of the source do, so that each part is read once;
            otherwise they depend on ``size`` and ``rows`` alone.
        """

    def blocks(self, item: Any, indices: Sequence[int], size: int) -> Iterator[Block]:
        """Yield the blocks of an item; their batches start with these columns."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A feed, its raw columns and its number of rows.

    Attributes
    ----------
    rows : int | None
        The number of rows; None if only a pass can count them.
    files : tuple[Stamp, ...]
        Its files, which must not change.
    doubtful_header : bool
        Whether the first line of a CSV file may be a row.
    key : str | None
        The column that a database orders the rows by.
    notice : str
        A possibly unintended effect of opening it; empty if there is none.
    """

    label: str
    feed: Feed = field(repr=False)
    columns: tuple[RawColumn, ...]
    rows: int | None
    files: tuple[Stamp, ...] = ()
    doubtful_header: bool = False
    key: str | None = None
    notice: str = ""

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {column.name: index for index, column in enumerate(self.columns)}

    def __getitem__(self, name: str) -> RawColumn:
        """Return the column ``name``."""
        return self.columns[self._positions[name]]

    def index(self, name: str) -> int:
        """Return the index of the column ``name``."""
        return self._positions[name]


def check_unchanged(stamp: Stamp) -> None:
    """Raise if a file has changed since the source was opened."""
    path, size, changed = stamp
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
    if (status.st_size, status.st_mtime_ns) != (size, changed):
        raise InvalidInput(f"{path}: changed while it was being read; start again.")


def broken(path: Path, kind: str) -> InvalidInput:
    """Return the error about a damaged file."""
    return InvalidInput(
        f"{path}: is not a whole {kind} file, and could not be read to its end; write or copy it"
        " again."
    )


@contextmanager
def reading_arrow(path: Path, kind: str) -> Iterator[None]:
    """Replace Arrow's errors about a damaged file by one that names the file."""
    try:
        yield
    except InvalidInput:
        raise
    except (FileNotFoundError, PermissionError) as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
    except (pa.ArrowException, OSError, ValueError):
        raise broken(path, kind) from None


def checked(batch: Any) -> Any:
    """Validate every cell of a batch from elsewhere; return it in plain types."""
    batch.validate(full=True)
    return pa.RecordBatch.from_arrays(list(map(plain, batch.columns)), names=batch.schema.names)


def no_columns(rows: int) -> Any:
    """Return a batch of ``rows`` rows, of which no column is needed."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["nothing"])


def _in_blocks(batches: Iterator[Any], size: int, *, own: bool = True) -> Iterator[Any]:
    """Yield the rows of ``batches`` as batches of ``size`` rows; the last is shorter.

    ``own``: whether each has its own memory, because a slice is pickled with all that it is cut of.
    """
    pending: list[Any] = []
    count = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, size - count)
            pending.append(part)
            start += part.num_rows
            count += part.num_rows
            if count == size:
                yield _joined(pending) if own or len(pending) > 1 else pending[0]
                pending, count = [], 0
    if pending:
        yield _joined(pending) if own or len(pending) > 1 else pending[0]


def _joined(batches: list[Any]) -> Any:
    """Return the rows of all batches as one batch with its own memory."""
    columns = zip(*(batch.columns for batch in batches), strict=True)
    arrays = [pa.concat_arrays(list(parts)) for parts in columns]
    return pa.RecordBatch.from_arrays(arrays, names=batches[0].schema.names)


# -- from the start ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamFeed:
    """A source that is read from its start, by the process that opened it.

    Attributes
    ----------
    batches : Callable[[Sequence[int], bool], Iterator[Any]]
        Yields record batches of any size that start with the columns of these indices. The second
        argument is whether this is the first pass, which checks everything.
    """

    label: str
    batches: Callable[[Sequence[int], bool], Iterator[Any]] = field(repr=False)
    files: tuple[Stamp, ...] = ()

    @classmethod
    def held(cls, label: str, table: Any) -> "StreamFeed":
        """Return the feed of an Arrow table in memory; columns of no use are never read."""

        def batches(indices: Sequence[int], first: bool) -> Iterator[Any]:
            chosen = table.select(list(indices) or [0])
            for batch in chosen.to_batches(max_chunksize=_FETCH):
                try:
                    yield checked(batch) if indices else no_columns(batch.num_rows)
                except pa.ArrowException:
                    raise InvalidInput(
                        f"{label}: holds cells that Arrow cannot read, such as strings that are not"
                        " UTF-8; make it again."
                    ) from None

        return cls(label=label, batches=batches)

    def items(
        self, indices: Sequence[int], size: int, *, rows: int | None, aligned: bool = False
    ) -> Iterator[Block]:
        """Yield the blocks; refuse files that changed, and another number of rows."""
        for stamp in self.files:
            check_unchanged(stamp)
        start = 0
        for batch in _in_blocks(self.batches(indices, rows is None), size):
            yield Block(start=start, batch=batch)
            start += batch.num_rows
        for stamp in self.files:
            check_unchanged(stamp)
        if rows not in (None, start):
            raise InvalidInput(
                f"{self.label}: had {rows} rows and now has {start}: it changed while it was being"
                " read; start again."
            )

    def blocks(self, item: Block, indices: Sequence[int], size: int) -> Iterator[Block]:
        """Yield the block."""
        yield item

    def __reduce__(self) -> tuple[type["_HandedFeed"], tuple[()]]:
        """Pickle as a feed that receives blocks and cannot read the source."""
        return _HandedFeed, ()


class _HandedFeed:
    """A :class:`StreamFeed` in another process: it receives blocks and cannot read the source."""

    def items(
        self, indices: Sequence[int], size: int, *, rows: int | None, aligned: bool = False
    ) -> Iterator[Block]:
        """Raise :class:`InvalidInput`: this process has only the blocks that it receives."""
        raise InvalidInput("only the process that opened a table can read it from its start.")

    def blocks(self, item: Block, indices: Sequence[int], size: int) -> Iterator[Block]:
        """Yield the block."""
        yield item


# -- from any position ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Span:
    """Rows ``start`` to ``stop``, counted from 0."""

    start: int
    stop: int


def spans(rows: int, size: int) -> Iterator[Span]:
    """Yield ranges of a few blocks of ``size`` rows, which depend on these two numbers alone."""
    length = size * _BLOCKS_AN_ITEM
    for start in range(0, rows, length):
        yield Span(start=start, stop=min(start + length, rows))


def aligned_spans(ends: Sequence[int], size: int) -> Iterator[Span]:
    """Yield ranges of a few blocks or more, at the block ends next to the ``ends`` of parts.

    A part belongs to one range, except for less than a block.
    """
    rows, start = ends[-1] if ends else 0, 0
    for end in ends:
        stop = min(-(-end // size) * size, rows)
        if stop - start >= size * _BLOCKS_AN_ITEM or (end == rows and stop > start):
            yield Span(start=start, stop=stop)
            start = stop


@dataclass(frozen=True, kw_only=True)
class ParquetFeed:
    """Parquet files, which are read from any position.

    Attributes
    ----------
    names : tuple[str, ...]
        The names of the columns, except those in the names of folders.
    files : tuple[Stamp, ...]
        The files in their order, with size and time of change.
    partitions : tuple[tuple[str | None, ...], ...]
        The cells of each file, for each column in the names of folders.
    """

    names: tuple[str, ...]
    files: tuple[Stamp, ...]
    partitions: tuple[tuple[str | None, ...], ...] = ()

    def items(
        self, indices: Sequence[int], size: int, *, rows: int | None, aligned: bool = False
    ) -> Iterator[Span]:
        """Yield ranges of a few blocks."""
        ends = [first + count for _, _, first, count in self._groups]
        if aligned:
            return aligned_spans(ends, size)
        return spans(ends[-1] if rows is None else rows, size)

    def blocks(self, item: Span, indices: Sequence[int], size: int) -> Iterator[Block]:
        """Yield the blocks of a range."""
        start = item.start
        # Whole blocks, so that most of them are decoded at once and not joined.
        fetch = size * max(1, _LEAST_FETCH // size)
        for batch in _in_blocks(self._batches(item, indices, fetch), size, own=False):
            yield Block(start=start, batch=batch)
            start += batch.num_rows

    def _batches(self, item: Span, indices: Sequence[int], fetch: int) -> Iterator[Any]:
        """Yield record batches of exactly the rows of the range, at most ``fetch`` at a time."""
        own = [self.names[index] for index in indices if index < len(self.names)]
        begin = bisect_right([first + count for _, _, first, count in self._groups], item.start)
        held = takewhile(lambda group: group[2] < item.stop, self._groups[begin:])
        for number, groups in groupby(held, key=itemgetter(0)):
            numbers, firsts = zip(*((group, first) for _, group, first, _ in groups), strict=True)
            position = firsts[0]
            with self._open(number) as file:
                for batch in file.iter_batches(
                    fetch, row_groups=list(numbers), columns=own, use_threads=False
                ):
                    low = max(item.start - position, 0)
                    high = min(item.stop - position, batch.num_rows)
                    if low < high:
                        yield self._with_partitions(batch.slice(low, high - low), indices, number)
                    position += batch.num_rows
                    if position >= item.stop:
                        break

    def _with_partitions(self, batch: Any, indices: Sequence[int], number: int) -> Any:
        """Return the columns of these indices, those in the names of folders too."""
        arrays, read = [], dict(zip(batch.schema.names, batch.columns, strict=True))
        for index in indices:
            if index < len(self.names):
                array = plain(read[self.names[index]])
                if pa.types.is_string(array.type):
                    # Parquet does not ensure that strings are UTF-8.
                    array.validate(full=True)
            else:
                cell = self.partitions[index - len(self.names)][number]
                array = pa.repeat(pa.scalar(cell, type=pa.string()), batch.num_rows)
            arrays.append(array)
        if not arrays:
            return no_columns(batch.num_rows)
        return pa.RecordBatch.from_arrays(arrays, names=[f"c{index}" for index in indices])

    @cached_property
    def _groups(self) -> list[tuple[int, int, int, int]]:
        """The row groups in order: (number of the file, row group, its first row, its rows)."""
        groups, first = [], 0
        for number in range(len(self.files)):
            with self._open(number) as file:
                metadata = file.metadata
                for group in range(metadata.num_row_groups):
                    count = metadata.row_group(group).num_rows
                    groups.append((number, group, first, count))
                    first += count
        return groups

    @contextmanager
    def _open(self, number: int) -> Iterator[Any]:
        check_unchanged(self.files[number])
        path = self.files[number][0]
        # A page is decoded when it is read, and may be damaged although the rest is not.
        with reading_arrow(path, "Parquet"), pa.parquet.ParquetFile(path) as file:
            yield file
