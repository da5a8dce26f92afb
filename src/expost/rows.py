"""Encoded rows of the unit ball in one fixed order, visited in blocks any number of times.

:class:`HeldRows` are arrays in memory. :class:`TableRows` are read from a table in every pass, by
an engine. All computations on rows use passes (:meth:`Rows.map`) and do not depend on the source.

The size of a block depends on the numbers of rows and columns alone, and results are combined in
the order of the blocks. Results are therefore the same, byte for byte, for any files, workers and
machines.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost import _checks
from expost._numerics import gamma, row_blocks, row_norms
from expost._order import Histogram
from expost.data.encoding import Encoded, Encoding
from expost.data.histograms import Counted
from expost.data.readers import Reader, reader_of
from expost.data.sources import Table
from expost.data.unit_ball import UnitBall
from expost.engine import SILENT, Engine, Progress
from expost.errors import InvalidInput
from expost.files.digest import LEAF
from expost.files.parts import Part, PartStore
from expost.labels import LabelScale
from expost.types import FloatArray, IntArray

__all__ = [
    "LONGEST_ROW",
    "BlockSummary",
    "HeldRows",
    "PartTask",
    "RemainingRows",
    "RowBlock",
    "RowStream",
    "RowSummary",
    "Rows",
    "TableRows",
    "block_rows",
    "held",
    "rows_at",
    "without",
]

T = TypeVar("T")

# Fourth powers of a row's length, over Λ², must not overflow.
LONGEST_ROW = 1e30
# A block that is read has at most this many rows, and this many entries of float64 (8 MiB).
_BLOCK_ROWS = 2**15
_BLOCK_ENTRIES = 2**20
# Rows lie in the unit ball; their lengths are rounded up.
_TOP = 1.001


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowBlock:
    """Consecutive rows of a pass over the data.

    Parameters
    ----------
    norms : FloatArray
        Upper bounds on the lengths of the rows.
    start : int, default=0
        The number of the first row, counted from 0.
    ids : NDArray[np.object_], optional
        The keys of the rows, where the source has them.
    encoded : Encoded, optional
        The rows as encoded features, before the map into the unit ball; ``clipped`` of them are
        longer than the encoding's bound.
    cells : NDArray[np.int32], optional
        (m, p) the rows' cells in the histograms of a private encoding.
    """

    X: FloatArray
    y: FloatArray
    norms: FloatArray
    start: int = 0
    ids: NDArray[np.object_] | None = None
    encoded: Encoded | None = None
    clipped: int = 0
    cells: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, X: FloatArray, y: FloatArray, **known: Any) -> "RowBlock":
        """Return the rows with their norms; refuse rows too long for a certificate."""
        norms = row_norms(X)
        if not norms.max(initial=0.0) <= LONGEST_ROW:
            raise InvalidInput(f"X holds a row longer than {LONGEST_ROW:g}: rescale its columns.")
        # Rounded up: norms are used in bounds.
        return cls(X=X, y=y, norms=norms * (1 + 2 * gamma(X.shape[1] + 4)), **known)

    def take(self, index: NDArray[Any]) -> "RowBlock":
        """Return some of the rows, by a mask or by their indices in the block."""
        return RowBlock(X=self.X[index], y=self.y[index], norms=self.norms[index])

    def __len__(self) -> int:
        return len(self.y)


class Rows(Protocol):
    """A sequence of n rows in one fixed order; ``is_held``: whether they are arrays in memory."""

    is_held: ClassVar[bool]

    @property
    def count(self) -> int:
        """The number n of rows."""
        ...

    @property
    def columns(self) -> int:
        """The number d of columns."""
        ...

    @property
    def longest(self) -> float:
        """The largest row norm, rounded up."""
        ...

    @property
    def common_norm(self) -> float:
        """The 31/32 quantile of the row norms, approximately."""
        ...

    @property
    def label_size(self) -> float:
        """The largest ∣y∣."""
        ...

    @property
    def counted(self) -> Counted | None:
        """The counts that a private encoding was made from, where there is one."""
        ...

    def map(self, task: Callable[[RowBlock], T]) -> Iterator[T]:
        """Yield the result of ``task`` for every block, in their order.

        A task must not keep a block. It is pickled if the engine runs it in other processes.
        """
        ...

    def on_first(self, task: Callable[[RowBlock], T], count: int) -> T:
        """Return the result of ``task`` for the first ``count`` rows as one block."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HeldRows:
    """Rows in memory: arrays X (n, d) and y (n,).

    Parameters
    ----------
    ids : NDArray[np.object_], optional
        The keys of the rows, or None.
    encoded : FloatArray, optional
        The encoded features before the map into the unit ball, or None.
    cells : NDArray[np.int32], optional
        (n, p) the rows' cells in the histograms of a private encoding, whose counts are
        ``counted``, or None.
    """

    X: FloatArray
    y: FloatArray
    ids: NDArray[np.object_] | None = None
    encoded: FloatArray | None = None
    cells: NDArray[np.int32] | None = None
    counted: Counted | None = None

    norms: FloatArray = field(init=False)
    is_held: ClassVar[bool] = True

    def __post_init__(self) -> None:
        parts = [RowBlock.of(self.X[b], self.y[b]).norms for b in self.blocks()]
        object.__setattr__(self, "norms", np.concatenate(parts) if parts else np.empty(0))

    @property
    def count(self) -> int:
        """The number n of rows."""
        return len(self.X)

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return int(self.X.shape[1])

    def blocks(self) -> Iterator[slice]:
        """Yield the slice of the rows of each block."""
        return row_blocks(self.count, self.columns)

    def map(self, task: Callable[[RowBlock], T]) -> Iterator[T]:
        """Yield the result of ``task`` for every block, in their order."""
        for block in self.blocks():
            yield task(self._block(block))

    def on_first(self, task: Callable[[RowBlock], T], count: int) -> T:
        """Return the result of ``task`` for the first ``count`` rows as one block."""
        return task(self._block(slice(0, min(count, self.count))))

    def _block(self, block: slice) -> RowBlock:
        return RowBlock(
            X=self.X[block], y=self.y[block], norms=self.norms[block], start=block.start
        )

    def take(self, index: IntArray | NDArray[np.bool_]) -> "HeldRows":
        """Return some of the rows."""
        return HeldRows(X=self.X[index], y=self.y[index])

    @cached_property
    def common_norm(self) -> float:
        """The 31/32 quantile of the row norms."""
        rank = self.count - 1 - self.count // 32
        return float(np.partition(self.norms, rank)[rank])

    @cached_property
    def longest(self) -> float:
        """The largest row norm, rounded up."""
        return float(self.norms.max())

    @cached_property
    def label_size(self) -> float:
        """The largest ∣y∣."""
        return float(np.max(np.abs(self.y)))


def held(rows: Rows, caller: str) -> HeldRows:
    """Return rows that are in memory; refuse others on behalf of ``caller``, which needs all."""
    if not isinstance(rows, HeldRows):
        raise InvalidInput(
            f"{caller} needs all rows in memory: pass arrays, or give the table more memory."
        )
    return rows


# -- rows without some of them -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RemainingRows:
    """The rows of a table without some of them, in their order.

    Parameters
    ----------
    rows : Rows
        All rows.
    removed : IntArray
        The numbers of those that are left out, ascending and different.
    """

    rows: Rows
    removed: IntArray

    is_held: ClassVar[bool] = False
    counted: ClassVar[None] = None

    @property
    def count(self) -> int:
        """The number of the remaining rows."""
        return self.rows.count - len(self.removed)

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return self.rows.columns

    @property
    def longest(self) -> float:
        """A bound on the row norms: the largest one of all rows."""
        return self.rows.longest

    @property
    def common_norm(self) -> float:
        """The 31/32 quantile of the row norms, approximately: that of all rows."""
        return self.rows.common_norm

    @property
    def label_size(self) -> float:
        """A bound on ∣y∣: the largest one of all rows."""
        return self.rows.label_size

    def map(self, task: Callable[[RowBlock], T]) -> Iterator[T]:
        """Yield the result of ``task`` for the remaining rows of every block, in their order."""
        return self.rows.map(_Chosen(task=task, numbers=self.removed, keep=False))

    def on_first(self, task: Callable[[RowBlock], T], count: int) -> T:
        """Return the result of ``task`` for about the first ``count`` rows as one block."""
        chosen: Callable[[RowBlock], T] = _Chosen(task=task, numbers=self.removed, keep=False)
        return self.rows.on_first(chosen, count + len(self.removed))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Chosen:
    """A task on the rows of a block that are listed (``keep``), or on the others."""

    task: Callable[[RowBlock], Any]
    numbers: IntArray
    keep: bool

    def __call__(self, block: RowBlock) -> Any:
        """Run the task."""
        first, last = np.searchsorted(self.numbers, (block.start, block.start + len(block)))
        listed = np.zeros(len(block), dtype=bool)
        listed[self.numbers[first:last] - block.start] = True
        if not self.keep and first == last:
            return self.task(block)
        return self.task(block.take(listed if self.keep else ~listed))


def without(rows: Rows, removed: IntArray) -> Rows:
    """Return the rows without those of these numbers.

    Parameters
    ----------
    rows : Rows
        All rows.
    removed : IntArray
        Row numbers from 0, ascending and different.

    Returns
    -------
    Rows
        Arrays where the rows are arrays; else they are left out in every pass.
    """
    if isinstance(rows, HeldRows):
        kept = np.ones(rows.count, dtype=bool)
        kept[removed] = False
        return rows.take(kept)
    return RemainingRows(rows=rows, removed=removed)


def rows_at(rows: Rows, numbers: IntArray) -> RowBlock:
    """Return the rows of these numbers, by one pass.

    Parameters
    ----------
    rows : Rows
        All rows.
    numbers : IntArray
        Row numbers from 0, ascending and different.

    Returns
    -------
    RowBlock
        The rows in their order, in memory.
    """
    if isinstance(rows, HeldRows):
        return RowBlock(X=rows.X[numbers], y=rows.y[numbers], norms=rows.norms[numbers])
    parts = list(rows.map(_Chosen(task=_same, numbers=numbers, keep=True)))
    return RowBlock(
        X=np.concatenate([part.X for part in parts]),
        y=np.concatenate([part.y for part in parts]),
        norms=np.concatenate([part.norms for part in parts]),
    )


def _same(block: RowBlock) -> RowBlock:
    return block


# -- rows that are read --------------------------------------------------------------------------


def block_rows(columns: int) -> int:
    """Return the number of rows of a block: a multiple of a leaf of the data's digest."""
    return min(_BLOCK_ROWS, max(LEAF, _BLOCK_ENTRIES // max(columns, 1) // LEAF * LEAF))


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStream:
    """The encoded rows of a table, read again in every pass. It is pickled for its readers.

    Parameters
    ----------
    label_scale : LabelScale, optional
        The scaling and clipping of the labels of a regression; None for none.
    counted : Counted, optional
        The counts that a private encoding was made from, where there is one.
    """

    reader: Reader
    encoding: Encoding
    ball: UnitBall
    label_scale: LabelScale | None = None
    id_column: str | None = None
    counted: Counted | None = None

    @classmethod
    def of(
        cls,
        table: Table,
        encoding: Encoding,
        ball: UnitBall,
        *,
        label_scale: LabelScale | None = None,
        size: int | None = None,
    ) -> "RowStream":
        """Return the rows of ``table`` in blocks of ``size`` rows (None: by the columns)."""
        histograms, counted, kinds = encoding.histograms, None, encoding.kinds
        if histograms is not None:
            counted = Counted.of_release(table, histograms)
            kinds = counted.kinds | kinds
        table = table.retyped(kinds)
        key = table.id_column
        wanted = [*kinds, *([] if key is None else [key])]
        width = len(encoding.feature_names) + ball.fit_intercept
        size = block_rows(width) if size is None else _checks.integer("size", size, least=1)
        if size > _BLOCK_ROWS:
            # The proved bounds on sums assume it.
            raise InvalidInput(f"size={size}: a block has at most {_BLOCK_ROWS} rows.")
        reader = reader_of(table, wanted, size)
        return cls(
            reader=reader,
            encoding=encoding,
            ball=ball,
            label_scale=label_scale,
            id_column=key,
            counted=counted,
        )

    @classmethod
    def of_arrays(
        cls,
        X: Any,
        y: Any,
        ball: UnitBall,
        *,
        classes: Sequence[Any] | None = None,
        label_scale: LabelScale | None = None,
        size: int | None = None,
    ) -> "RowStream":
        """Return the rows of Dask arrays X (n, d) and y (n,), without any encoding of X.

        ``classes``: the labels in y, of two the first one is −1; None: y is a number.
        """
        from expost.data.dask_rows import array_encoding, array_table

        table = array_table(X, y, text=classes is not None)
        encoding = array_encoding(X.shape[1], ball, classes)
        return cls.of(table, encoding, ball, label_scale=label_scale, size=size)

    @property
    def count(self) -> int:
        """The number n of rows."""
        return self.reader.rows

    @property
    def columns(self) -> int:
        """The number d of columns, with the intercept's."""
        return len(self.encoding.feature_names) + self.ball.fit_intercept

    def items(self) -> Iterator[Any]:
        """Yield the items to read, in order; see :class:`~expost.data.readers.Reader`."""
        return self.reader.items()

    def blocks(self, item: Any) -> Iterator[RowBlock]:
        """Yield the blocks of an item, in order."""
        for block in self.reader.blocks(item):
            encoded = self.encoding.encode(block.batch, first_row=block.start + 1)
            X, clipped = self.ball.rows(encoded.X)
            y = encoded.y
            if self.label_scale is not None:
                y = self.label_scale.inside(y)
            ids = None
            if self.id_column is not None:
                ids = np.array(block.batch.column(self.id_column).to_pylist(), dtype=object)
            cells = None if self.counted is None else self.counted.cells(block.batch)
            yield RowBlock.of(
                X,
                y,
                start=block.start,
                ids=ids,
                encoded=encoded,
                clipped=clipped,
                cells=cells,
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockSummary:
    """The number and the lengths of the rows of a block, and the largest ∣y∣."""

    rows: int
    longest: float
    label_size: float
    norms: Histogram

    @classmethod
    def of(cls, block: RowBlock) -> "BlockSummary":
        """Summarise the rows of a block."""
        norms = Histogram(_TOP)
        norms.add(np.minimum(block.norms, _TOP))
        return cls(
            rows=len(block),
            longest=float(block.norms.max()),
            label_size=float(np.max(np.abs(block.y))),
            norms=norms,
        )


@dataclass(frozen=True, kw_only=True)
class RowSummary:
    """The longest row, the largest ∣y∣, and a length that most rows do not exceed."""

    longest: float
    label_size: float
    common_norm: float

    @classmethod
    def of(cls, blocks: Iterable[BlockSummary], rows: int) -> "RowSummary":
        """Combine the blocks of ``rows`` rows; refuse a table whose number of rows changed."""
        longest = size = 0.0
        counted = 0
        norms = Histogram(_TOP)
        for block in blocks:
            longest, size = max(longest, block.longest), max(size, block.label_size)
            counted += block.rows
            norms.merge(block.norms)
        if counted != rows:
            raise InvalidInput(
                f"the table had {rows} rows and now has {counted}: it changed while it was being"
                " read; start again."
            )
        common = float(norms.at(np.array([rows - rows // 32]))[0])
        return cls(longest=longest, label_size=size, common_norm=common)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TableRows:
    """Rows that an engine reads from a table in every pass; each worker holds one block.

    Parameters
    ----------
    summary : RowSummary, optional
        The summary of all rows; None: one more pass computes it when it is needed.
    """

    stream: RowStream
    engine: Engine
    progress: Progress = SILENT
    summary: RowSummary | None = None

    is_held: ClassVar[bool] = False

    @property
    def count(self) -> int:
        """The number n of rows."""
        return self.stream.count

    @property
    def counted(self) -> Counted | None:
        """The counts that a private encoding was made from, where there is one."""
        return self.stream.counted

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return self.stream.columns

    def map(self, task: Callable[[RowBlock], T]) -> Iterator[T]:
        """Yield the result of ``task`` for every block, in their order."""
        return chain.from_iterable(self.map_items(task))

    def map_items(self, task: Callable[[RowBlock], T]) -> Iterator[list[T]]:
        """Yield the results of ``task`` as one list per item of the engine."""
        self.progress.rows(self.count)
        for rows, results in self.engine.map(_Blockwise(self.stream, task), self.stream.items()):
            self.progress.advance(rows)
            yield results

    def on_first(self, task: Callable[[RowBlock], T], count: int) -> T:
        """Return the result of ``task`` for the first ``count`` rows, computed where they are."""
        first = tuple(islice(self.stream.items(), -(-count // self.stream.reader.size)))
        results: list[T] = list(self.engine.map(_OnFirst(self.stream, task, count), [first]))
        return results[0]

    def write_parts(
        self, task: "PartTask[Any]", store: PartStore, *, finished: Mapping[int, Part] | None = None
    ) -> dict[int, Part]:
        """Write one part per item, with a line for each row; skip parts that are finished.

        A part has the same bytes on any engine. ``finished``: None reads them from ``store``.
        """
        parts = dict(store.finished() if finished is None else finished)
        self.progress.rows(self.count)
        self.progress.advance(sum(part.rows for part in parts.values()))
        write = _WritePart(self.stream, task, store)
        missing = ((n, item) for n, item in enumerate(self.stream.items()) if n not in parts)
        for part in self.engine.map(write, missing):
            parts[part.index] = part
            self.progress.advance(part.rows)
        if sum(part.rows for part in parts.values()) != self.count:
            raise InvalidInput(
                f"{store.folder}: its parts do not hold every row once; pass --force without"
                " --resume to start again, or name another folder."
            )
        return {number: parts[number] for number in sorted(parts)}

    def with_stream(self, **changes: Any) -> Self:
        """Return the rows with other settings of the stream."""
        return replace(self, stream=replace(self.stream, **changes))

    @property
    def longest(self) -> float:
        """The largest row norm, rounded up."""
        return self._summary.longest

    @property
    def common_norm(self) -> float:
        """The 31/32 quantile of the row norms, approximately."""
        return self._summary.common_norm

    @property
    def label_size(self) -> float:
        """The largest ∣y∣."""
        return self._summary.label_size

    @cached_property
    def _summary(self) -> RowSummary:
        if self.summary is not None:
            return self.summary
        return RowSummary.of(self.map(BlockSummary.of), self.count)


class PartTask(Protocol[T]):
    """A task that computes a part of a table of results. It is pickled and sent to the rows."""

    def __call__(self, block: RowBlock) -> tuple[Mapping[str, Any], T]:
        """Return the columns of the rows of a block by name, and a note about them."""
        ...

    def about(self, notes: Sequence[T]) -> Mapping[str, str]:
        """Return the metadata of a part from the notes about its blocks."""
        ...


class _WritePart:
    """The task to write the part of one item: the numbers, ids and columns of its rows."""

    def __init__(self, stream: RowStream, task: PartTask[Any], store: PartStore) -> None:
        self._stream, self._task, self._store = stream, task, store

    def __call__(self, numbered: tuple[int, Any]) -> Part:
        """Write the part of this number."""
        number, item = numbered
        tables, notes = [], []
        for block in self._stream.blocks(item):
            columns, note = self._task(block)
            keys: dict[str, Any] = {"row": np.arange(block.start, block.start + len(block))}
            if block.ids is not None:
                keys["id"] = pa.array(block.ids, pa.string())
            tables.append(pa.table({**keys, **columns}))
            notes.append(note)
        table = pa.concat_tables(tables).combine_chunks()
        about = dict(self._task.about(notes))
        return self._store.write(number, table.replace_schema_metadata(about))


class _Blockwise:
    """A task on every block of an item, with the number of its rows."""

    def __init__(self, stream: RowStream, task: Callable[[RowBlock], Any]) -> None:
        self._stream, self._task = stream, task

    def __call__(self, item: Any) -> tuple[int, list[Any]]:
        """Return the number of rows and the results, block by block."""
        rows, results = 0, []
        for block in self._stream.blocks(item):
            rows += len(block)
            results.append(self._task(block))
        return rows, results


class _OnFirst:
    """A task on the first rows of some items, as one block of any size."""

    def __init__(self, stream: RowStream, task: Callable[[RowBlock], Any], count: int) -> None:
        self._stream, self._task, self._count = stream, task, count

    def __call__(self, items: Sequence[Any]) -> Any:
        """Return the result of the task."""
        X, y, read = list[FloatArray](), list[FloatArray](), 0
        for block in chain.from_iterable(self._stream.blocks(item) for item in items):
            X.append(block.X)
            y.append(block.y)
            read += len(block)
            if read >= self._count:
                break
        rows = np.concatenate(X)[: self._count], np.concatenate(y)[: self._count]
        return self._task(RowBlock.of(*rows))
