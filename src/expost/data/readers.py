"""Readers of the rows of a table in blocks of one size, for any number of passes.

A reader yields the *items* of a feed (:mod:`expost.data._feeds`), small enough to be sent to a
worker, and reads the blocks of an item in any process. Raw cells become typed cells there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from expost.data._cells import Kind, RawColumn
from expost.data._feeds import Block, Feed

if TYPE_CHECKING:
    from expost.data.sources import Table

__all__ = ["Block", "CellReader", "Reader", "reader_of"]


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
class CellReader:
    """A reader of some columns of a feed.

    Attributes
    ----------
    columns : tuple[tuple[int, RawColumn, Kind], ...]
        The index of each column in the source, its raw column and its kind.
    aligned : bool
        As in :meth:`Feed.items <expost.data._feeds.Feed.items>`.
    """

    feed: Feed = field(repr=False)
    columns: tuple[tuple[int, RawColumn, Kind], ...]
    missing: tuple[str, ...]
    rows: int
    size: int
    aligned: bool = False

    @property
    def _indices(self) -> list[int]:
        return [index for index, _, _ in self.columns]

    def items(self) -> Iterator[Any]:
        """Yield the items to read, in order."""
        return self.feed.items(self._indices, self.size, rows=self.rows, aligned=self.aligned)

    def blocks(self, item: Any) -> Iterator[Block]:
        """Yield the blocks of an item, in order."""
        for block in self.feed.blocks(item, self._indices, self.size):
            yield Block(start=block.start, batch=self._typed(block.batch))

    def _typed(self, raw: Any) -> Any:
        """Return the typed cells of a block of raw cells."""
        cells = [
            column.typed(raw.column(position), kind, self.missing)
            for position, (_, column, kind) in enumerate(self.columns)
        ]
        return pa.RecordBatch.from_arrays(cells, names=[raw.name for _, raw, _ in self.columns])


def reader_of(
    table: "Table", columns: Sequence[str], size: int, *, aligned: bool = False
) -> CellReader:
    """Return the reader of a table's ``columns``, in blocks of ``size`` rows."""
    origin = table.origin
    kinds = {name: table.kind(name) for name in columns}  # raises if there is no such column
    return CellReader(
        feed=origin.feed,
        columns=tuple((origin.index(name), origin[name], kinds[name]) for name in columns),
        missing=table.missing,
        rows=table.rows,
        size=size,
        aligned=aligned,
    )
