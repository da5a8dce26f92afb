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
        """Pickle as a reader that receives blocks and cannot read the table."""
        return HandedReader, (self.rows, self.size)


@dataclass(frozen=True)
class HandedReader:
    """A :class:`TableReader` in another process: blocks are handed to it, it cannot read."""

    rows: int
    size: int

    def items(self) -> Iterator[Block]:
        """Raise: a process that receives blocks has none to hand out."""
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
class CellReader:
    """A reader whose items hold no rows; each block becomes typed cells as a whole table's would.

    ``names``        the columns to decode, and what they are called in ``expressions``.
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
        """The reader of some columns of a table; ``source`` says where its rows are."""
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
        """The block of the raw cells of some rows; plain numbers are taken as they are."""
        shorts = [short for _, short in self.names]
        cells = {
            number: raw.column(short).cast(pa.float64()).combine_chunks()
            for number, short in enumerate(shorts)
            if self.expressions[number] == as_double(short) and raw.column(short).type in _EXACT
        }
        others = [number for number in range(len(shorts)) if number not in cells]
        if others:
            held = raw.select([shorts[number] for number in others])
            relation = Relation(label=self.label, clause="source", arrow=held)
            wanted = [self.expressions[number] for number in others]
            found = pa.Table.from_batches(relation.batches(wanted, size=max(raw.num_rows, 1)))
            for number, column in zip(others, found.combine_chunks().columns, strict=True):
                cells[number] = column.combine_chunks()
        arrays = [_one(cells[number]) for number in range(len(shorts))]
        return Block(
            start=start, batch=pa.RecordBatch.from_arrays(arrays, names=list(self.columns))
        )


@dataclass(frozen=True, kw_only=True)
class ParquetReader(CellReader):
    """Parquet files, entered anywhere.

    ``files``       in their order, with size and time of change.
    ``partitions``  (column, its cell in each file), for columns that the folders' names hold.
    """

    files: tuple[Stamp, ...]
    partitions: tuple[tuple[str, tuple[str | None, ...]], ...] = ()

    def items(self) -> Iterator[Span]:
        """Ranges of a few blocks."""
        return spans(self.rows, self.size)

    def blocks(self, item: Span) -> Iterator[Block]:
        """The blocks of a range."""
        start = item.start
        for batches in in_blocks(self._batches(item), self.size):
            raw = pa.Table.from_batches(batches)
            arrays = {short: plain(raw.column(name)) for name, short in self.names}
            block = self.block(start, pa.table(arrays))
            yield block
            start += block.batch.num_rows

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
        check_unchanged(self.files[number])
        path = self.files[number][0]
        # A page is decoded when it is read, and may be damaged where the rest is whole.
        with reading_arrow(path, "Parquet"), pa.parquet.ParquetFile(path) as file:
            yield file


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
        return DaskReader.of(table, columns, size, parts=origin.relation.arrow.parts)
    if not origin.parquet:
        return TableReader(table=table, columns=tuple(columns), size=size)
    return ParquetReader.of(
        table, columns, size, files=origin.relation.files, partitions=origin.partitions
    )
