"""Tables of a Dask cluster, frames and pairs of arrays, whose rows stay where they are.

A collection is partitions that are not computed yet. Blocks of rows have a size of their own,
so each is cut out of one partition or several, on the cluster; what this process has is the
recipe. Only to open a frame (kinds, levels, medians) its rows are read here, a partition at a
time, as those of a file would be.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from expost.data._duck import Origin, RawColumn, Relation, check_names, one_type, plain, typed
from expost.data._entries import Mark, NumericEntry, Target, class_labels
from expost.data.encoding import Encoding
from expost.data.readers import Block, CellReader, spans
from expost.data.sources import Column, Table
from expost.data.unit_ball import UnitBall
from expost.engine.dask import computing
from expost.errors import InvalidInput, require

__all__ = ["DaskFeed", "DaskReader", "array_encoding", "array_table", "frame_origin"]

_NOTHING = "nothing"
_START = b"start"
_TARGET = "y"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parts:
    """The partitions of a collection.

    ``graph``    how each is computed; ``sources`` are the keys of each: (frame,), or (X, y).
    ``lengths``  their numbers of rows.
    ``column``   (values, place) -> the cells of a column.
    ``names``    of the columns, and their Arrow ``types``; none where it cannot be used.
    """

    graph: Mapping[Any, Any] = field(repr=False)
    sources: tuple[tuple[Any, ...], ...]
    lengths: tuple[int, ...]
    column: Callable[[Sequence[Any], int], Any]
    names: tuple[str, ...]
    types: tuple[Any, ...]

    @cached_property
    def holder(self) -> Any:
        return _holder(self.graph)

    @property
    def rows(self) -> int:
        return sum(self.lengths)

    def cut(self, place: int, columns: Sequence[int], low: int, high: int) -> Any:
        """Rows ``low`` to ``high`` of a partition as an Arrow table, not yet computed."""
        dask = require("dask", caller="a Dask collection", extra="dask")
        held = [_one_key(self.graph, key) for key in self.sources[place]]
        wanted = tuple((number, self.names[number], self.types[number]) for number in columns)
        recipe = _Cut(
            column=self.column, wanted=wanted, low=low, high=high, length=self.lengths[place]
        )
        return dask.delayed(recipe, pure=True)(*held)


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """Some rows of some columns of a partition."""

    column: Callable[[Sequence[Any], int], Any]
    wanted: tuple[tuple[int, str, Any], ...]
    low: int
    high: int
    length: int

    __name__ = "rows"

    def __call__(self, *values: Any) -> Any:
        """The table; columns are called c0, c1, … by their places."""
        if {len(value) for value in values} != {self.length}:
            raise InvalidInput(
                "a partition changed while the table was being read; persist the collection, or"
                " make it of what does not change."
            )
        rows = slice(self.low, self.high)
        if not self.wanted:
            return pa.table({_NOTHING: pa.nulls(self.high - self.low)})
        return pa.table(
            {
                f"c{number}": _arrow(name, self.column(values, number)[rows], type_)
                for number, name, type_ in self.wanted
            }
        )


def _frame_column(values: Sequence[Any], number: int) -> Any:
    return values[0].iloc[:, number]


def _array_column(values: Sequence[Any], number: int) -> Any:
    X, y = values
    return y if number == X.shape[1] else np.ascontiguousarray(X[:, number], dtype=np.float64)


def _arrow(name: str, cells: Any, type_: Any) -> Any:
    """Cells of a column; a NaN is missing."""
    with one_type(name):
        array = plain(pa.array(cells, from_pandas=True)).cast(type_)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _joined(start: int, *tables: Any) -> Any:
    """One table, which says the number of its first row."""
    return pa.concat_tables(tables).replace_schema_metadata({_START: str(start).encode()})


def _one_key(graph: Mapping[Any, Any], key: Any) -> Any:
    """One key of a graph with what it needs alone: a graph is walked whenever it is sent."""
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph
    from dask.optimization import cull

    needed, _ = cull(graph, [key])
    layer = f"expost-{key}"
    return Delayed(
        key, HighLevelGraph.from_collections(layer, needed, dependencies=()), layer=layer
    )


def _holder(graph: Mapping[Any, Any]) -> Any:
    """The client of the cluster that holds parts of the graph already; None if none does."""
    if "distributed" not in sys.modules:
        return None
    future = sys.modules["distributed"].Future
    return next((node.client for node in graph.values() if isinstance(node, future)), None)


def _value(recipe: Any, holder: Any, **options: Any) -> Any:
    """What a recipe gives; by the cluster that holds parts of it, if one does."""
    with computing():
        if holder is not None:
            return holder.compute(recipe, sync=True)
        return recipe.compute(**options)


@dataclass(frozen=True, kw_only=True, eq=False)
class DaskFeed:
    """The partitions one after another, to see all rows here."""

    parts: _Parts

    @property
    def types(self) -> tuple[Any, ...]:
        """The Arrow types of the columns; None for those that cannot be used."""
        return self.parts.types

    def batches(self, places: Sequence[int]) -> Iterator[Any]:
        """The rows of each partition."""
        for number, length in enumerate(self.parts.lengths):
            recipe = self.parts.cut(number, places, 0, length)
            yield from _value(recipe, self.parts.holder).to_batches()


@dataclass(frozen=True, kw_only=True, eq=False)
class DaskReader(CellReader):
    """Blocks of a collection, each cut out where its rows are.

    An item is a recipe for the rows of a few blocks, the same ones for all partitions; items that
    need one partition follow one another, so that it is there still. ``parts`` does not travel:
    elsewhere the rows of an item are there already.
    """

    parts: _Parts | None = field(repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "parts": None}

    def items(self) -> Iterator[Any]:
        """The recipes, in order."""
        if self.parts is None:
            raise InvalidInput(
                "a Dask collection is cut into blocks by the process that opened it."
            )
        dask = require("dask", caller="a Dask collection", extra="dask")
        places = [int(short.removeprefix("c")) for _, short in self.names]
        lengths, ends = self.parts.lengths, list(accumulate(self.parts.lengths))
        for span in spans(self.rows, self.size):
            cuts = []
            for number in range(bisect_right(ends, span.start), bisect_left(ends, span.stop) + 1):
                first = ends[number] - lengths[number]
                low, high = max(span.start - first, 0), min(span.stop, ends[number]) - first
                if low < high:
                    cuts.append(self.parts.cut(number, places, low, high))
            yield dask.delayed(_joined, pure=True)(span.start, *cuts)

    def blocks(self, item: Any) -> Iterator[Block]:
        """The blocks of an item; computed here, if the cluster has not."""
        table = item
        if not isinstance(table, pa.Table):
            holder = None if self.parts is None else self.parts.holder
            table = _value(item, holder, scheduler="synchronous")
        start = int(table.schema.metadata[_START])
        for low in range(0, table.num_rows, self.size):
            yield self.block(start + low, table.slice(low, self.size))


def frame_origin(frame: Any) -> Origin:
    """A Dask dataframe as raw columns: one look at each partition, where it is."""
    label = "the dataframe"
    dask = require("dask", caller="a Dask dataframe", extra="dask")
    names = list(frame.columns)
    if not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{label}: the name of a column is no text; rename it.")
    check_names(label, names)
    # Optimised once: partitions may be put together, and must be the same ones in every pass.
    frame = frame.optimize()
    keys, graph = list(frame.__dask_keys__()), dict(frame.__dask_graph__())
    look = dask.delayed(_shape, pure=True)
    looks = dask.delayed(list)([look(_one_key(graph, key)) for key in keys])
    found = _value(looks, _holder(graph))
    columns, types = [], []
    for number, name in enumerate(names):
        column, type_ = _declared(name, number, [shape[1][number] for shape in found])
        columns.append(column)
        types.append(type_)
    parts = _Parts(
        graph=graph,
        sources=tuple((key,) for key in keys),
        lengths=tuple(shape[0] for shape in found),
        column=_frame_column,
        names=tuple(names),
        types=tuple(types),
    )
    relation = Relation(label=label, clause="source", arrow=DaskFeed(parts=parts))
    return Origin(relation=relation, columns=tuple(columns), rows=parts.rows)


def _shape(frame: Any) -> tuple[int, list[Any]]:
    """The rows of a partition, and the Arrow type of each of its columns."""
    types = []
    for number, name in enumerate(frame.columns):
        cells = frame.iloc[:, number]
        # Any object may stand in such a column.
        cells = cells if cells.dtype == object else cells.iloc[:0]
        with one_type(name):
            types.append(pa.array(cells, from_pandas=True).type)
    return len(frame), types


def _declared(name: str, number: int, types: Sequence[Any]) -> tuple[RawColumn, Any]:
    """The raw column, and the type of its cells; none if it cannot be used."""
    known = [type_ for type_ in types if not pa.types.is_null(type_)] or [pa.string()]
    cells = {plain(pa.array([], type_)).type for type_ in known if _usable(type_)}
    column = typed(name, f"c{number}", known[0])
    if column.type == "other":
        return column, None
    if len(cells) != 1 or len({_usable(type_) for type_ in known}) != 1:
        raise InvalidInput(
            f"column {name!r}: its partitions are of different types"
            f" ({', '.join(sorted(map(str, {*known})))}); convert it with astype."
        )
    return column, cells.pop()


def _usable(type_: Any) -> bool:
    return typed("", "", type_).type != "other"


def array_table(X: Any, y: Any, *, text: bool) -> Table:
    """Dask arrays X (n, d) and y (n,) as a table of columns x0, x1, … and y.

    ``text``: the labels are classes, not numbers. Nothing is computed, unless the arrays do not
    know their own lengths.
    """
    if getattr(X, "ndim", None) != 2 or getattr(y, "ndim", None) != 1:
        raise InvalidInput("X and y: must be Dask arrays of shapes (n, d) and (n,).")
    for name, array in (("X", X), ("y", y)):
        if any(np.isnan(length) for length in array.chunks[0]):
            raise InvalidInput(
                f"{name}: does not know its own length; call {name}.compute_chunk_sizes() first."
            )
    if X.shape[0] != y.shape[0]:
        raise InvalidInput(f"X and y: have {X.shape[0]} and {y.shape[0]} rows: must be as many.")
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise InvalidInput("X: must have at least one row and one column.")
    X = X.rechunk({1: -1})
    y = y.rechunk((X.chunks[0],))
    width = X.shape[1]
    names = (*(f"x{place}" for place in range(width)), _TARGET)
    label_type = _label_type(y.dtype)
    types = (*(pa.float64(),) * width, label_type)
    parts = _Parts(
        graph=_graph_of(X, y),
        sources=tuple(((X.name, place, 0), (y.name, place)) for place in range(len(X.chunks[0]))),
        lengths=tuple(map(int, X.chunks[0])),
        column=_array_column,
        names=names,
        types=types,
    )
    raw = tuple(
        typed(name, f"c{place}", type_)
        for place, (name, type_) in enumerate(zip(names, types, strict=True))
    )
    relation = Relation(label="the arrays", clause="source", arrow=DaskFeed(parts=parts))
    kinds = [Column(name=name, kind="numeric", missing=0) for name in names[:-1]]
    kinds.append(Column(name=_TARGET, kind="text" if text else "numeric", missing=0))
    return Table(
        label="the arrays",
        columns=tuple(kinds),
        rows=parts.rows,
        id_column=None,
        missing=(),
        origin=Origin(relation=relation, columns=raw, rows=parts.rows),
    )


def _graph_of(*arrays: Any) -> Mapping[Any, Any]:
    dask = require("dask", caller="Dask arrays", extra="dask")
    graph: dict[Any, Any] = {}
    for array in dask.optimize(*arrays):
        graph |= dict(array.__dask_graph__())
    return graph


def _label_type(dtype: Any) -> Any:
    if dtype.kind == "b":
        return pa.bool_()
    if dtype.kind in "iu":
        return pa.int64()
    return pa.float64() if dtype.kind == "f" else pa.string()


def array_encoding(columns: int, ball: UnitBall, classes: Sequence[Any] | None) -> Encoding:
    """The encoding of :func:`array_table`: numbers as they are."""
    return Encoding(
        entries=tuple(
            NumericEntry(name=f"x{place}", mean=0.0, scale=1.0, mark=Mark.GIVEN, cut=None)
            for place in range(columns)
        ),
        target=Target(
            column=_TARGET,
            classes=None if classes is None else class_labels("classes", classes),
            mark=Mark.GIVEN,
        ),
        data_norm=ball.data_norm,
        data_norm_mark=Mark.GIVEN,
        missing=(),
    )
