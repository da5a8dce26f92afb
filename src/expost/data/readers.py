"""Raw rows of a table again and again, in blocks of one size: the passes of a long computation.

A reader hands out *items*, small enough to travel, and reads the blocks of an item wherever it is
asked to. Parquet files can be entered anywhere, so that an item is a range of rows, and a worker
that has it reads its own rows. Everything else (CSV, SQL, tables in memory) is read from its
beginning by one reader, and an item is a block itself.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet

from expost.data._duck import Relation
from expost.data._raw import plain
from expost.data._sql import as_double
from expost.data.sources import Table, in_blocks
from expost.errors import InvalidInput

__all__ = [
    "Block",
    "HandedReader",
    "ParquetReader",
    "Reader",
    "TableReader",
    "reader_of",
    "typed_cells",
]

# Rows that are decoded at a time.
_FETCH = 2**14
# Numbers that float64 holds as they are.
_EXACT = (pa.float64(), pa.float32(), pa.int32(), pa.int16(), pa.int8(), pa.uint16(), pa.uint8())
# Blocks that one worker reads one after another: a row group is decoded once.
_BLOCKS_AN_ITEM = 4


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows ``start`` to ``start + batch.num_rows``, counted from 0."""

    start: int
    batch: Any


class Reader(Protocol):
    """Blocks of typed cells in the order of the table; every block but the last has one size."""

    @property
    def rows(self) -> int:
        """How many rows there are."""

    @property
    def size(self) -> int:
        """How many a block has, but for the last."""

    @property
    def travels(self) -> bool:
        """Whether items hold no rows, so that whoever gets one reads its own."""

    def items(self) -> Iterator[Any]:
        """What there is to read, in order."""

    def blocks(self, item: Any) -> Iterator[Block]:
        """The blocks of an item, in order."""


@dataclass(frozen=True, kw_only=True)
class TableReader:
    """Any table, from its beginning."""

    table: Table
    columns: tuple[str, ...]
    size: int

    travels = False

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.table.rows

    def items(self) -> Iterator[Block]:
        """The blocks themselves."""
        start = 0
        for batch in self.table.blocks(self.size, columns=self.columns):
            yield Block(start=start, batch=batch)
            start += batch.num_rows

    def blocks(self, item: Block) -> Iterator[Block]:
        """The block."""
        yield item

    def __reduce__(self) -> tuple[type["HandedReader"], tuple[int, int]]:
        """Elsewhere it is handed blocks: neither rows nor the way to them travel with it."""
        return HandedReader, (self.rows, self.size)


@dataclass(frozen=True)
class HandedReader:
    """A :class:`TableReader` in another process: blocks are handed to it, it cannot read."""

    rows: int
    size: int

    travels = False

    def items(self) -> Iterator[Block]:
        """There are none here."""
        raise InvalidInput("a table that is read from its beginning is read by one process only.")

    def blocks(self, item: Block) -> Iterator[Block]:
        """The block."""
        yield item


@dataclass(frozen=True, kw_only=True)
class Span:
    """Rows ``start`` to ``stop``, counted from 0."""

    start: int
    stop: int


def spans(rows: int, size: int) -> Iterator[Span]:
    """Ranges of a few blocks of ``size`` rows: they follow from these two numbers alone."""
    length = size * _BLOCKS_AN_ITEM
    for start in range(0, rows, length):
        yield Span(start=start, stop=min(start + length, rows))


@dataclass(frozen=True, kw_only=True)
class ParquetReader:
    """Parquet files, entered anywhere.

    ``files``        in their order, with size and time of change.
    ``partitions``   (column, its cell in each file), for columns that the folders' names hold.
    ``names``        the columns to decode, and what they are called in ``expressions``.
    ``expressions``  the typed cells, one for each of ``columns``.
    """

    label: str
    files: tuple[tuple[Path, int, int], ...]
    names: tuple[tuple[str, str], ...]
    expressions: tuple[str, ...]
    columns: tuple[str, ...]
    rows: int
    size: int
    partitions: tuple[tuple[str, tuple[str | None, ...]], ...] = ()

    travels = True

    def items(self) -> Iterator[Span]:
        """Ranges of a few blocks."""
        return spans(self.rows, self.size)

    def blocks(self, item: Span) -> Iterator[Block]:
        """The blocks of a range; each becomes typed cells as a whole table's would."""
        start = item.start
        for table in self._raw(item):
            cells = typed_cells(self.label, table, self.names, self.expressions)
            batch = pa.RecordBatch.from_arrays(cells, names=list(self.columns))
            yield Block(start=start, batch=batch)
            start += batch.num_rows

    def _raw(self, item: Span) -> Iterator[Any]:
        """Undecoded cells of the range, in tables of one block each."""
        return map(self._renamed, in_blocks(self._batches(item), self.size))

    def _batches(self, item: Span) -> Iterator[Any]:
        """Record batches that hold just the rows of the range."""
        cells = dict(self.partitions)
        wanted = [name for name, _ in self.names if name not in cells]
        for number, group, first, count in self._groups:
            start, stop = max(item.start, first), min(item.stop, first + count)
            if not start < stop:
                continue
            place = first
            held = {name: found[number] for name, found in cells.items()}
            with self._open(number) as file:
                for batch in file.iter_batches(
                    _FETCH, row_groups=[group], columns=wanted, use_threads=False
                ):
                    low, high = max(start - place, 0), min(stop - place, batch.num_rows)
                    if low < high:
                        yield _with_constants(batch.slice(low, high - low), held)
                    place += batch.num_rows
                    if place >= stop:
                        break

    @cached_property
    def _groups(self) -> list[tuple[int, int, int, int]]:
        """(number of the file, row group, its first row, its rows), in order."""
        found, first = [], 0
        for number in range(len(self.files)):
            with self._open(number) as file:
                metadata = file.metadata
                for group in range(metadata.num_row_groups):
                    count = metadata.row_group(group).num_rows
                    found.append((number, group, first, count))
                    first += count
        return found

    @contextmanager
    def _open(self, number: int) -> Iterator[Any]:
        path, size, changed = self.files[number]
        try:
            status = path.stat()
            if (status.st_size, status.st_mtime_ns) != (size, changed):
                raise InvalidInput(f"{path}: changed while it was being read; start again.")
            with pa.parquet.ParquetFile(path) as file:
                yield file
        except InvalidInput:
            raise
        except (FileNotFoundError, PermissionError) as error:
            raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
        # A page is decoded when it is read, and may be damaged where the rest is whole.
        except (pa.ArrowException, OSError, ValueError):
            raise InvalidInput(
                f"{path}: is not a whole Parquet file; write or copy it again."
            ) from None

    def _renamed(self, batches: Sequence[Any]) -> Any:
        table = pa.Table.from_batches(batches)
        arrays = {short: plain(table.column(name)) for name, short in self.names}
        return pa.table(arrays)


def typed_cells(
    label: str, table: Any, names: Sequence[tuple[str, str]], expressions: Sequence[str]
) -> list[Any]:
    """The typed cells of a block, column by column; plain numbers are taken as they are."""
    cells = {
        number: table.column(short).cast(pa.float64()).combine_chunks()
        for number, (_, short) in enumerate(names)
        if expressions[number] == as_double(short) and table.column(short).type in _EXACT
    }
    others = [number for number in range(len(names)) if number not in cells]
    if others:
        wanted = [expressions[number] for number in others]
        held = table.select([names[number][1] for number in others])
        relation = Relation(label=label, clause="source", arrow=held)
        found = pa.Table.from_batches(relation.batches(wanted, size=max(table.num_rows, 1)))
        for number, column in zip(others, found.combine_chunks().columns, strict=True):
            cells[number] = column.combine_chunks()
    return [_one(cells[number]) for number in range(len(names))]


def _one(column: Any) -> Any:
    """A column as one array."""
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def _with_constants(batch: Any, cells: dict[str, str | None]) -> Any:
    """``batch`` with columns of one cell each."""
    for name, cell in cells.items():
        column = pa.repeat(pa.scalar(cell, type=pa.string()), batch.num_rows)
        batch = batch.append_column(name, column)
    return batch


def reader_of(table: Table, columns: Sequence[str], size: int) -> Reader:
    """The reader of a table's ``columns``, in blocks of ``size`` rows."""
    # Imported here: it builds on this module.
    from expost.data.dask_rows import DaskFeed, DaskReader

    origin = table.origin
    if isinstance(origin.relation.arrow, DaskFeed):
        return DaskReader.of(table, columns, size)
    if not origin.parquet:
        return TableReader(table=table, columns=tuple(columns), size=size)
    needed = {name: origin[name].sql for name in columns}
    return ParquetReader(
        label=table.label,
        files=origin.relation.files,
        names=tuple(needed.items()),
        expressions=tuple(table.expression(name) for name in columns),
        columns=tuple(columns),
        rows=table.rows,
        size=size,
        partitions=origin.partitions,
    )
