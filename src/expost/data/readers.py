"""Readers of the rows of a table in blocks of one size, for any number of passes.

A reader yields *items*, small enough to be sent to a worker, and reads the blocks of an item in any
process. Parquet files can be read from any position: an item is a range of rows, and a worker reads
its own rows. All other sources (CSV, SQL, tables in memory) are read from their start by one
reader, and an item is a block itself.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.parquet

from expost.data._duck import Relation, Stamp, as_double, check_unchanged, plain
from expost.data._origins import reading_arrow
from expost.data.sources import Table, in_blocks
from expost.errors import InvalidInput

__all__ = ["Block", "CellReader", "HandedReader", "ParquetReader", "Reader", "TableReader"]
__all__ += ["reader_of", "spans"]

# Rows that are decoded at a time.
_FETCH = 2**14
# Types whose numbers float64 represents exactly.
_EXACT = (pa.float64(), pa.float32(), pa.int32(), pa.int16(), pa.int8(), pa.uint16(), pa.uint8())
# Consecutive blocks that one worker reads: a row group is decoded once.
_BLOCKS_AN_ITEM = 4


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows ``start`` to ``start + batch.num_rows``, counted from 0."""

    start: int
    batch: Any


class Reader(Protocol):
    """A reader of blocks of typed cells in the order of the table, all of one size but the last."""

    @property
    def rows(self) -> int:
        """The number of rows."""

    @property
    def size(self) -> int:
        """The number of rows of each block but the last."""

    def items(self) -> Iterator[Any]:
        """Yield the items to read, in order."""

    def blocks(self, item: Any) -> Iterator[Block]:
        """Yield the blocks of an item, in order."""


@dataclass(frozen=True, kw_only=True)
class TableReader:
    """A reader of any table, from its start."""

    table: Table
    columns: tuple[str, ...]
    size: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.table.rows

    def items(self) -> Iterator[Block]:
        """Yield the blocks."""
        start = 0
        for batch in self.table.blocks(self.size, columns=self.columns):
            yield Block(start=start, batch=batch)
            start += batch.num_rows

    def blocks(self, item: Block) -> Iterator[Block]:
        """Yield the block."""
        yield item

    def __reduce__(self) -> tuple[type["HandedReader"], tuple[int, int]]:
        """Pickle as a reader that receives blocks and cannot read the table."""
        return HandedReader, (self.rows, self.size)


@dataclass(frozen=True)
class HandedReader:
    """A :class:`TableReader` in another process: it receives blocks and cannot read the table."""

    rows: int
    size: int

    def items(self) -> Iterator[Block]:
        """Raise :class:`InvalidInput`: this process has only the blocks that it receives."""
        raise InvalidInput("only the process that opened a table can read it from its start.")

    def blocks(self, item: Block) -> Iterator[Block]:
        """Yield the block."""
        yield item


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


@dataclass(frozen=True, kw_only=True)
class CellReader:
    """A reader whose items hold no rows, and which computes the typed cells of each block.

    ``names``        the columns to decode, and their names in ``expressions``.
    ``expressions``  the typed cells, one for each of ``columns``.
    """

    label: str
    names: tuple[tuple[str, str], ...]
    expressions: tuple[str, ...]
    columns: tuple[str, ...]
    rows: int
    size: int

    @classmethod
    def of(cls, table: Table, columns: Sequence[str], size: int, **source: Any) -> Self:
        """Return the reader of some columns of a table; ``source`` are fields of the subclass."""
        return cls(
            label=table.label,
            names=tuple((name, table.origin[name].sql) for name in columns),
            expressions=tuple(table.expression(name) for name in columns),
            columns=tuple(columns),
            rows=table.rows,
            size=size,
            **source,
        )

    def block(self, start: int, raw: Any) -> Block:
        """Return the block of the raw cells of some rows; plain numbers need no SQL."""
        shorts = [short for _, short in self.names]
        cells = {
            index: raw.column(short).cast(pa.float64()).combine_chunks()
            for index, short in enumerate(shorts)
            if self.expressions[index] == as_double(short) and raw.column(short).type in _EXACT
        }
        others = [index for index in range(len(shorts)) if index not in cells]
        if others:
            held = raw.select([shorts[index] for index in others])
            relation = Relation(label=self.label, clause="source", arrow=held)
            wanted = [self.expressions[index] for index in others]
            table = pa.Table.from_batches(relation.batches(wanted, size=max(raw.num_rows, 1)))
            for index, column in zip(others, table.combine_chunks().columns, strict=True):
                cells[index] = column.combine_chunks()
        arrays = [_single_array(cells[index]) for index in range(len(shorts))]
        return Block(
            start=start, batch=pa.RecordBatch.from_arrays(arrays, names=list(self.columns))
        )


@dataclass(frozen=True, kw_only=True)
class ParquetReader(CellReader):
    """A reader of Parquet files from any position.

    ``files``       in their order, with size and time of change.
    ``partitions``  (column, its cell in each file), for columns in the names of folders.
    """

    files: tuple[Stamp, ...]
    partitions: tuple[tuple[str, tuple[str | None, ...]], ...] = ()

    def items(self) -> Iterator[Span]:
        """Yield ranges of a few blocks."""
        return spans(self.rows, self.size)

    def blocks(self, item: Span) -> Iterator[Block]:
        """Yield the blocks of a range."""
        start = item.start
        for batches in in_blocks(self._batches(item), self.size):
            raw = pa.Table.from_batches(batches)
            arrays = {short: plain(raw.column(name)) for name, short in self.names}
            block = self.block(start, pa.table(arrays))
            yield block
            start += block.batch.num_rows

    def _batches(self, item: Span) -> Iterator[Any]:
        """Yield record batches of exactly the rows of the range."""
        cells = dict(self.partitions)
        wanted = [name for name, _ in self.names if name not in cells]
        for number, group, first, count in self._groups:
            start, stop = max(item.start, first), min(item.stop, first + count)
            if not start < stop:
                continue
            position = first
            constants = {name: by_file[number] for name, by_file in cells.items()}
            with self._open(number) as file:
                for batch in file.iter_batches(
                    _FETCH, row_groups=[group], columns=wanted, use_threads=False
                ):
                    low, high = max(start - position, 0), min(stop - position, batch.num_rows)
                    if low < high:
                        yield _with_constants(batch.slice(low, high - low), constants)
                    position += batch.num_rows
                    if position >= stop:
                        break

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


def _single_array(column: Any) -> Any:
    """Return a column as one array."""
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def _with_constants(batch: Any, cells: dict[str, str | None]) -> Any:
    """Return ``batch`` with columns of one cell each."""
    for name, cell in cells.items():
        column = pa.repeat(pa.scalar(cell, type=pa.string()), batch.num_rows)
        batch = batch.append_column(name, column)
    return batch


def reader_of(table: Table, columns: Sequence[str], size: int) -> Reader:
    """Return the reader of a table's ``columns``, in blocks of ``size`` rows."""
    # Imported here: it imports this module.
    from expost.data.dask_rows import DaskFeed, DaskReader

    origin = table.origin
    if isinstance(origin.relation.arrow, DaskFeed):
        return DaskReader.of(table, columns, size, parts=origin.relation.arrow.parts)
    if not origin.parquet:
        return TableReader(table=table, columns=tuple(columns), size=size)
    return ParquetReader.of(
        table, columns, size, files=origin.relation.files, partitions=origin.partitions
    )
