"""Tables that are read in blocks and in order, in passes of an engine.

    table = open_table("people.csv", id_column="number", missing=("", "NA"))
    for block in table.blocks(10_000): ...

Conventions
-----------
kind       ``numeric`` (float64), ``text`` (string) or ``boolean``. A CSV column is numeric if each
           of its cells that is not missing is a finite decimal number, else text. Frames, Arrow
           and Parquet declare their types; a categorical is text.
missing    Cells that equal one of the declared tokens are null. Spaces around a cell do not
           count. All other cells are kept.
row        counted from 1 in messages, without the header.

No cell is repaired or shown. ``table.notices`` lists possibly unintended effects.

Passes
------
Opening a table is one pass, which reads each cell once: kinds, missing cells, ranges, levels, means
and standard deviations, ids and the structure of a file. :meth:`Table.levels`,
:meth:`Table.retyped` and the constants of an encoding are taken from its summary and need none.
More passes are needed for medians, because only the last row shows which columns have missing
cells, and for ids that do not fit into memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expost import _checks
from expost._order import median
from expost.data import _summaries
from expost.data._cells import Kind, absent, floats
from expost.data._columns import MOST_LEVELS, CellSummary, Column, ColumnScan
from expost.data._csv import DELIMITERS
from expost.data._feeds import Origin, StreamFeed
from expost.data._origins import open_origin
from expost.data._query import query_of
from expost.data._summaries import block_rows, distinct_ids, run_pass, summarise
from expost.data.readers import CellReader, reader_of
from expost.errors import InvalidInput
from expost.types import IntArray

if TYPE_CHECKING:
    from expost.engine import Engine

__all__ = ["Column", "Kind", "Table", "open_table", "origin_of"]

T = TypeVar("T")

# Rows that are read at a time.
_FETCH = 2**14


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose rows are read on demand, in blocks, always in the same order.

    Attributes
    ----------
    label : str
        The name of the table in messages.
    columns : tuple[Column, ...]
        The columns without the id column.
    rows : int
        The number of rows.
    id_column : str | None
        The column of the ids, whose cells are always strings; None without one.
    missing : tuple[str, ...]
        The tokens of a missing cell.
    origin : Origin
        The source of the rows.
    left_out : tuple[str, ...]
        Notes on rows that were left out.
    engine : Engine | None
        The workers of the passes; None: threads of this process.
    """

    label: str
    columns: tuple[Column, ...]
    rows: int
    id_column: str | None
    missing: tuple[str, ...]
    origin: Origin = field(repr=False)
    left_out: tuple[str, ...] = ()
    engine: "Engine | None" = field(default=None, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, without the id column."""
        return tuple(column.name for column in self.columns)

    @property
    def notices(self) -> tuple[str, ...]:
        """Notes on possibly unintended effects, each a sentence."""
        columns = (column.notice for column in self.columns)
        notices = [*filter(None, (self.origin.notice, *columns)), *self.left_out]
        if self.origin.doubtful_header:
            notices.insert(
                0,
                f"{self.label}: the first line is taken as the header, although a name in it is a"
                " number.",
            )
        return tuple(notices)

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def __getitem__(self, name: str) -> Column:
        """Return the column ``name``."""
        try:
            return self._by_name[name]
        except KeyError:
            raise absent(name, self.label, self.names) from None

    def require(self, names: Iterable[str]) -> None:
        """Refuse names that are no columns.

        Parameters
        ----------
        names : Iterable[str]
            The names.

        Raises
        ------
        InvalidInput
            If one of them is not a column.
        """
        for name in names:
            self[name]

    def blocks(self, size: int = _FETCH, *, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows in order, in blocks.

        Parameters
        ----------
        size : int, default=16384
            The number of rows of each block; the last may have fewer.
        columns : Sequence[str], optional
            The names of the columns, which may include the id column; all by default.

        Yields
        ------
        pyarrow.RecordBatch
            float64, string or boolean columns, null where missing.

        Raises
        ------
        InvalidInput
            If the table changed while it was being read.
        """
        size = _checks.integer("size", size, least=1)
        if columns is None:
            columns = (*self.names, *([] if self.id_column is None else [self.id_column]))
        reader = reader_of(self, columns, size, aligned=True)
        for item in reader.items():
            for block in reader.blocks(item):
                yield block.batch

    def map(self, task: Callable[[Any], T], columns: Sequence[str]) -> Iterator[T]:
        """Yield the result of a task for each block of typed cells, in order, on the engine.

        Parameters
        ----------
        task : callable
            Takes a record batch of :meth:`blocks`. It is pickled where the workers are processes.
        columns : Sequence[str]
            The names of the columns.

        Yields
        ------
        T
            The result of a block.
        """
        reader = reader_of(self, columns, block_rows(len(columns)), aligned=True)
        for results in run_pass(self.engine, _Blockwise(reader, task), reader.items()):
            yield from results

    def column(self, name: str) -> Any:
        """Return a column as an array.

        Parameters
        ----------
        name : str
            Its name.

        Returns
        -------
        pyarrow.Array
            float64, string or boolean, null where missing.
        """
        chunks = [block.column(0) for block in self.blocks(columns=[name])]
        return pa.concat_arrays(chunks)

    def levels(self, names: Sequence[str], *, at_most: int) -> dict[str, tuple[str, ...] | None]:
        """Return the distinct cells of string columns, sorted.

        Parameters
        ----------
        names : Sequence[str]
            The columns.
        at_most : int
            A column with more distinct cells has None.

        Returns
        -------
        dict[str, tuple[str, ...] | None]
            The distinct cells of each column, without missing ones.
        """
        levels = {name: summary.levels for name, summary in self.summaries(names).items()}
        many = [name for name, known in levels.items() if known is None]
        if at_most > MOST_LEVELS and many:
            levels |= self._all_levels(many, at_most)
        return {
            name: None if known is None or len(known) > at_most else tuple(sorted(known))
            for name, known in levels.items()
        }

    def _all_levels(self, names: list[str], at_most: int) -> dict[str, frozenset[str] | None]:
        """Return the distinct cells of columns with more of them than a summary has, in a pass."""
        levels: dict[str, set[str] | None] = {name: set() for name in names}
        for distinct in self.map(_distinct, names):
            for name, cells in zip(names, distinct, strict=True):
                known = levels[name]
                if known is not None:
                    known.update(cells)
                    levels[name] = known if len(known) <= at_most else None
        return {name: None if known is None else frozenset(known) for name, known in levels.items()}

    def summaries(self, names: Sequence[str]) -> dict[str, CellSummary]:
        """Return the summaries of columns; those that were not read yet are, in one pass.

        Parameters
        ----------
        names : Sequence[str]
            The columns.

        Returns
        -------
        dict[str, CellSummary]
            The summary of each column.
        """
        known = {name: self[name].summary for name in names}
        unread = [name for name, summary in known.items() if summary is None]
        if unread:
            new = _scanned(self, {name: self[name].kind for name in unread})
            known |= {column.name: column.summary for column in new}
        return {name: summary for name, summary in known.items() if summary is not None}

    def median(self, name: str) -> float:
        """Return the median of the cells of a numeric column that are not missing.

        Parameters
        ----------
        name : str
            The column.

        Returns
        -------
        float
            The median.

        Raises
        ------
        InvalidInput
            If the column has no numbers.
        """
        return self.medians([name])[name]

    def medians(self, names: Sequence[str]) -> dict[str, float]:
        """Return the medians of numeric columns, of as many in one pass as memory holds.

        Parameters
        ----------
        names : Sequence[str]
            The columns.

        Returns
        -------
        dict[str, float]
            The median of each column.

        Raises
        ------
        InvalidInput
            If a column has no numbers.
        """
        summaries = self.summaries(names)
        for name, summary in summaries.items():
            if not summary.numbers:
                raise InvalidInput(f"column {name!r}: has no numbers, so it has no median.")
        medians, waiting = dict[str, float](), list(names)
        while waiting:
            count = max(1, _summaries.HELD // self.rows)
            some, waiting = waiting[:count], waiting[count:]
            if self.rows > _summaries.HELD:
                medians[some[0]] = median(partial(self._numbers, some[0]))
                continue
            parts = list(self.map(_present, some))
            for index, name in enumerate(some):
                ordered = np.sort(np.concatenate([part[index] for part in parts]))
                lower, upper = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
                # Halved first: the sum of two may overflow.
                medians[name] = float(lower if lower == upper else 0.5 * lower + 0.5 * upper)
        return medians

    def _numbers(self, name: str) -> Iterator[Any]:
        """Yield the numbers of a column in blocks, without the missing ones."""
        return (columns[0] for columns in self.map(_present, [name]))

    def retyped(self, kinds: Mapping[str, Kind]) -> "Table":
        """Return the table with the named columns read as these ``kinds``, text or numeric.

        Parameters
        ----------
        kinds : Mapping[str, Kind]
            The new kinds by column.

        Returns
        -------
        Table
            The table; itself if nothing changes.

        Raises
        ------
        InvalidInput
            If a column does not exist, or cannot be read as the kind.
        """
        changed = {name: kind for name, kind in kinds.items() if self[name].kind != kind}
        if not changed:
            return self
        new = {column.name: column for column in _scanned(self, changed)}
        return replace(self, columns=tuple(new.get(column.name, column) for column in self.columns))

    def kept(self, index: IntArray, notice: str) -> "Table":
        """Return the table with only some rows, which are held in memory.

        Parameters
        ----------
        index : IntArray
            The indices of these rows.
        notice : str
            A description of the rows that are left out.

        Returns
        -------
        Table
            The table, with ``notice`` among its notices.
        """
        wanted = [*self.names, *([] if self.id_column is None else [self.id_column])]
        raws = tuple(self.origin[name] for name in wanted)
        indices = [self.origin.index(name) for name in wanted]
        feed, size = self.origin.feed, block_rows(len(wanted))
        blocks = (
            block.batch
            for item in feed.items(indices, size, rows=self.rows, aligned=True)
            for block in feed.blocks(item, indices, size)
        )
        names = [f"c{position}" for position in range(len(wanted))]
        batches = [
            pa.RecordBatch.from_arrays(batch.columns[: len(wanted)], names=names)
            for batch in blocks
        ]
        held = pa.Table.from_batches(batches).take(pa.array(index)).combine_chunks()
        origin = Origin(
            label=self.label,
            feed=StreamFeed.held(self.label, held),
            columns=raws,
            rows=len(index),
            doubtful_header=self.origin.doubtful_header,
            key=self.origin.key,
            notice=self.origin.notice,
        )
        kinds: dict[str, Kind | None] = {
            column.name: None if column.kind == "boolean" else column.kind
            for column in self.columns
        }
        table = replace(self, columns=(), rows=len(index), origin=origin, left_out=(notice,))
        scans = [ColumnScan.of(origin, name, kind) for name, kind in kinds.items()]
        return replace(table, columns=tuple(_summarised(table, scans)))

    def kind(self, name: str) -> Kind:
        """Return the kind that the cells of a column are read as; ids are always strings.

        Parameters
        ----------
        name : str
            The column.

        Returns
        -------
        Kind
            "numeric", "text" or "boolean".
        """
        return "text" if name == self.id_column else self[name].kind


@dataclass(frozen=True)
class _Blockwise:
    """A task on every block of an item."""

    reader: CellReader
    task: Callable[[Any], Any]

    def __call__(self, item: Any) -> list[Any]:
        """Return the results, block by block."""
        return [self.task(block.batch) for block in self.reader.blocks(item)]


def _distinct(batch: Any) -> list[list[str]]:
    return [cells.unique().drop_null().to_pylist() for cells in batch.columns]


def _present(batch: Any) -> list[Any]:
    """Return the numbers of each column that are not missing."""
    return [floats(cells.drop_null()) for cells in batch.columns]


def origin_of(source: Any) -> Origin:
    """Return a source before any of its rows is read: its label, its columns and its key.

    Parameters
    ----------
    source : Any
        A source of :func:`open_table`.
    """
    return open_origin(query_of(source, None, None))


def open_table(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    ids_repeat: bool = False,
    missing: Sequence[str] = ("",),
    kinds: Mapping[str, Kind] | None = None,
    delimiter: str | None = None,
    query: str | None = None,
    engine: "Engine | None" = None,
) -> Table:
    """Open a table and check every cell of its columns, in one pass.

    Parameters
    ----------
    source : Any
        A CSV or TSV path (also gzipped), a Parquet or Arrow (Feather) path, a glob of these (read
        in the order of the names), a folder of Parquet files (``year=2024/…`` is a column too),
        ``postgresql://user@host/database``, ``sqlite:///file.db`` or an SQLite path, a
        :class:`Query`, a pandas or polars frame, a pyarrow table or dataset, or a dict of columns.
    columns : Sequence[str], optional
        The columns to read; all by default.
    id_column : str, optional
        The column of the ids: never missing, and different in each row.
    ids_repeat : bool, default=False
        Whether the id column identifies persons: the rows of one person have the same id, and
        there are at least two persons.
    missing : Sequence[str], default=("",)
        The tokens of a missing cell.
    kinds : Mapping[str, Kind], optional
        The kinds of columns that are known: "numeric" or "text".
    delimiter : str, optional
        The delimiter of a CSV file; by default it is read from the header.
    query : str, optional
        For a database: one SELECT, or the name of a table. All passes read the rows of this
        moment, in the order of ``id_column``, which is required.
    engine : Engine, optional
        The workers of all passes (:func:`expost.engine.engine_of`), which must outlive the table;
        by default threads of this process.

    Returns
    -------
    Table
        The table, whose rows are read on demand.

    Raises
    ------
    InvalidInput
        If the source cannot be read, or a cell is not valid. No cell is shown.
    """
    tokens = _tokens(missing)
    if delimiter is not None:
        _checks.one_of("delimiter", delimiter, DELIMITERS)
    origin = open_origin(query_of(source, query, id_column), delimiter=delimiter, engine=engine)
    label = origin.label
    names = [column.name for column in origin.columns]
    known = dict(kinds or {})
    # The column that orders the rows of a database is a key, and a feature only if it is named.
    every = [name for name in names if name != origin.key]
    wanted = every if columns is None else _names("columns", columns)
    present, chosen = frozenset(names), frozenset(wanted)
    for name in [*wanted, *known, *([] if id_column is None else [id_column])]:
        if name not in present:
            raise absent(name, label, names)
    for kind in known.values():
        _checks.one_of("kinds", kind, ("numeric", "text"))
    if origin.rows == 0:
        raise InvalidInput(f"{label}: has no rows: must have at least one.")
    features = [name for name in names if name in chosen and name != id_column]
    scans = [ColumnScan.of(origin, name, known.get(name)) for name in features]
    table = Table(
        label=label,
        columns=(),
        rows=0,
        id_column=id_column,
        missing=tokens,
        origin=origin,
        engine=engine,
    )
    return _opened(table, scans, ids_repeat=ids_repeat)


def _opened(table: Table, scans: Sequence[ColumnScan], *, ids_repeat: bool) -> Table:
    """Return the table after its first pass."""
    origin, name = table.origin, table.id_column
    key = None if name is None else ColumnScan.of(origin, name, "text")
    if not scans and key is None and origin.rows is not None:
        return replace(table, rows=origin.rows)
    # The key of a database is compared with the one before whenever it is read.
    counted = key is not None and not ids_repeat and name != origin.key
    summary = summarise(
        origin, scans, table.missing, key=key, hold_ids=counted, engine=table.engine
    )
    rows = summary.rows
    if origin.rows not in (None, rows):
        raise InvalidInput(
            f"{table.label}: has {origin.rows} rows, of which {rows} could be read; write it again."
        )
    columns = [
        scan.column(table.label, rows, cells)
        for scan, cells in zip(scans, summary.columns, strict=True)
    ]
    if key is not None:
        owner = "person" if ids_repeat else "id"
        column = f"{table.label}, {owner} column {name!r}"
        if summary.without_id is not None:
            remedy = (
                "every row must have a person; give the row its own entry if it is the only one of"
                " a person."
                if ids_repeat
                else "every row must have an id."
            )
            raise InvalidInput(f"{column}, row {summary.without_id}: is missing: {remedy}")
        if ids_repeat and not summary.distinct_ids:
            raise InvalidInput(
                f"{column}: one person owns every row, so that no row would be left to train on"
                " without that person; name another column."
            )
        if counted:
            if summary.ids is not None:
                distinct = pc.count_distinct(summary.ids).as_py()
            else:
                distinct = distinct_ids(origin, key, table.missing, rows, table.engine)
            if distinct < rows:
                raise InvalidInput(
                    f"{column}: {rows - distinct} row(s) repeat the id of another: it must be"
                    " different in each; name another column."
                )
    return replace(table, columns=tuple(columns), rows=rows, origin=replace(origin, rows=rows))


def _scanned(table: Table, kinds: Mapping[str, Kind]) -> list[Column]:
    """Return columns of a table as these kinds; a pass reads those that were not summarised so."""
    scans = {
        name: ColumnScan.of(table.origin, name, None if kind == "boolean" else kind)
        for name, kind in kinds.items()
    }
    columns = {}
    unread = []
    for name, scan in scans.items():
        summary = table[name].summary
        if summary is None or (scan.has_numbers and not summary.has_numbers):
            unread.append(scan)
        else:
            columns[name] = scan.column(table.label, table.rows, summary)
    columns |= {column.name: column for column in _summarised(table, unread)}
    return [columns[name] for name in kinds]


def _summarised(table: Table, scans: Sequence[ColumnScan]) -> list[Column]:
    """Return columns after one pass over their cells."""
    if not scans:
        return []
    summary = summarise(table.origin, scans, table.missing, engine=table.engine)
    return [
        scan.column(table.label, table.rows, cells)
        for scan, cells in zip(scans, summary.columns, strict=True)
    ]


def _names(parameter: str, names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{parameter}={names!r}: must be a list of column names.")
    return list(names)


def _tokens(missing: Sequence[str]) -> tuple[str, ...]:
    return tuple(token.strip() for token in _names("missing", missing))
