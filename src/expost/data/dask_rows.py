"""Tables of a Dask cluster: frames and pairs of arrays, whose rows stay on the cluster.

A collection consists of partitions that are not computed yet. Blocks of rows have their own size,
so each is cut from one or several partitions, on the cluster; this process holds only the recipe.
Where the engine is not a cluster, rows are computed here.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from expost.data._cells import RawColumn, check_names, one_type, plain, typed
from expost.data._entries import Mark, NumericEntry, Target, class_labels
from expost.data._feeds import Block, Origin, aligned_spans, spans
from expost.data._summaries import run_pass
from expost.data.encoding import Encoding
from expost.data.frames import position_names
from expost.data.sources import Column, Table
from expost.data.unit_ball import UnitBall
from expost.engine.dask import computing
from expost.errors import InvalidInput, require

if TYPE_CHECKING:
    from expost.engine import Engine

__all__ = ["DaskFeed", "array_encoding", "array_table", "frame_origin"]

_NOTHING = "nothing"
_START = b"start"
_TARGET = "y"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parts:
    """The partitions of a collection.

    Attributes
    ----------
    graph : Mapping[Any, Any]
        The graph of their computation.
    sources : tuple[tuple[Any, ...], ...]
        The keys of each partition: (frame,), or (X, y).
    lengths : tuple[int, ...]
        Their numbers of rows.
    column : Callable[[Sequence[Any], int], Any]
        (values, index) -> the cells of a column.
    names : tuple[str, ...]
        The names of the columns.
    types : tuple[pyarrow.DataType | None, ...]
        Their Arrow types; None for a column that cannot be used.
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

    def cut(self, partition: int, columns: Sequence[int], low: int, high: int) -> Any:
        """Return rows ``low`` to ``high`` of a partition as an Arrow table, not yet computed."""
        dask = require("dask", caller="a Dask collection", extra="dask")
        held = [_one_key(self.graph, key) for key in self.sources[partition]]
        wanted = tuple((index, self.names[index], self.types[index]) for index in columns)
        recipe = _Cut(
            column=self.column, wanted=wanted, low=low, high=high, length=self.lengths[partition]
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
        """Return the table; the column of index i is called ci."""
        if {len(value) for value in values} != {self.length}:
            raise InvalidInput(
                "a partition changed while the table was being read; persist the collection, or"
                " create it from data that does not change."
            )
        rows = slice(self.low, self.high)
        if not self.wanted:
            return pa.table({_NOTHING: pa.nulls(self.high - self.low)})
        return pa.table(
            {
                f"c{index}": _arrow(name, self.column(values, index)[rows], type_)
                for index, name, type_ in self.wanted
            }
        )


def _frame_column(values: Sequence[Any], index: int) -> Any:
    return values[0].iloc[:, index]


def _array_column(values: Sequence[Any], index: int) -> Any:
    X, y = values
    return y if index == X.shape[1] else np.ascontiguousarray(X[:, index], dtype=np.float64)


def _arrow(name: str, cells: Any, type_: Any) -> Any:
    """Return the cells of a column as an Arrow array; a NaN is missing."""
    with one_type(name):
        array = plain(pa.array(cells, from_pandas=True)).cast(type_)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _joined(start: int, *tables: Any) -> Any:
    """Return one table, with the number of its first row in its metadata."""
    return pa.concat_tables(tables).replace_schema_metadata({_START: str(start).encode()})


def _one_key(graph: Mapping[Any, Any], key: Any) -> Any:
    """Return one key of a graph with only the tasks that it needs, which are faster to send."""
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph
    from dask.optimization import cull

    needed, _ = cull(graph, [key])
    layer = f"expost-{key}"
    return Delayed(
        key, HighLevelGraph.from_collections(layer, needed, dependencies=()), layer=layer
    )


def _holder(graph: Mapping[Any, Any]) -> Any:
    """Return the client of the cluster that holds parts of the graph; None if none does."""
    if "distributed" not in sys.modules:
        return None
    future = sys.modules["distributed"].Future
    return next((node.client for node in graph.values() if isinstance(node, future)), None)


def _value(recipe: Any, holder: Any, **options: Any) -> Any:
    """Compute a recipe, on the cluster that holds parts of it, if one does."""
    with computing():
        if holder is not None:
            return holder.compute(recipe, sync=True)
        return recipe.compute(**options)


@dataclass(frozen=True, kw_only=True, eq=False)
class DaskFeed:
    """The partitions of a collection, whose blocks are cut on the cluster.

    An item is a recipe for the rows of a few blocks, the same ones for all partitions; items of one
    partition follow each other, so that it is still in memory. ``parts`` is not pickled: a worker
    receives the rows of an item.
    """

    parts: _Parts | None = field(repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": None}

    def items(
        self, indices: Sequence[int], size: int, *, rows: int | None, aligned: bool = False
    ) -> Iterator[Any]:
        """Yield the recipes, in order."""
        if self.parts is None:
            raise InvalidInput(
                "only the process that opened a Dask collection can cut it into blocks."
            )
        dask = require("dask", caller="a Dask collection", extra="dask")
        lengths, ends = self.parts.lengths, list(accumulate(self.parts.lengths))
        for span in aligned_spans(ends, size) if aligned else spans(ends[-1], size):
            cuts = []
            first, last = bisect_right(ends, span.start), bisect_left(ends, span.stop)
            for partition in range(first, last + 1):
                start = ends[partition] - lengths[partition]
                low, high = max(span.start - start, 0), min(span.stop, ends[partition]) - start
                if low < high:
                    cuts.append(self.parts.cut(partition, indices, low, high))
            yield dask.delayed(_joined, pure=True)(span.start, *cuts)

    def blocks(self, item: Any, indices: Sequence[int], size: int) -> Iterator[Block]:
        """Yield the blocks of an item; compute it here, if the cluster has not."""
        table = item
        if not isinstance(table, pa.Table):
            holder = None if self.parts is None else self.parts.holder
            table = _value(item, holder, scheduler="synchronous")
        start = int(table.schema.metadata[_START])
        for low in range(0, table.num_rows, size):
            batch = table.slice(low, size).combine_chunks().to_batches()[0]
            yield Block(start=start + low, batch=batch)


@dataclass(frozen=True)
class _Computed:
    """The task that returns the value of an item; ``holder`` is not pickled."""

    holder: Any = None

    def __reduce__(self) -> tuple[type["_Computed"], tuple[()]]:
        return _Computed, ()

    def __call__(self, item: Any) -> Any:
        """Compute the item here, if the cluster has not."""
        if hasattr(item, "__dask_graph__"):
            return _value(item, self.holder, scheduler="synchronous")
        return item


def frame_origin(frame: Any, engine: "Engine | None" = None) -> Origin:
    """Return a Dask dataframe as raw columns, after one pass over its partitions.

    Each is computed by the ``engine``, to learn its length and the types of its columns.
    """
    label = "the dataframe"
    dask = require("dask", caller="a Dask dataframe", extra="dask")
    names = list(frame.columns)
    if not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{label}: the name of a column is not a string; rename it.")
    check_names(label, names)
    # Optimised once: partitions may be fused, and must be the same in every pass.
    frame = frame.optimize()
    keys, graph = list(frame.__dask_keys__()), dict(frame.__dask_graph__())
    shape_of = dask.delayed(_shape, pure=True)
    recipes = (shape_of(_one_key(graph, key)) for key in keys)
    shapes = list(run_pass(engine, _Computed(_holder(graph)), recipes))
    columns, types = [], []
    for index, name in enumerate(names):
        column, type_ = _declared(name, [shape[1][index] for shape in shapes])
        columns.append(column)
        types.append(type_)
    parts = _Parts(
        graph=graph,
        sources=tuple((key,) for key in keys),
        lengths=tuple(shape[0] for shape in shapes),
        column=_frame_column,
        names=tuple(names),
        types=tuple(types),
    )
    feed = DaskFeed(parts=parts)
    return Origin(label=label, feed=feed, columns=tuple(columns), rows=parts.rows)


def _shape(frame: Any) -> tuple[int, list[Any]]:
    """Return the number of rows of a partition, and the Arrow type of each of its columns."""
    types = []
    for index, name in enumerate(frame.columns):
        cells = frame.iloc[:, index]
        # Such a column may hold any object.
        cells = cells if cells.dtype == object else cells.iloc[:0]
        with one_type(name):
            types.append(pa.array(cells, from_pandas=True).type)
    return len(frame), types


def _declared(name: str, types: Sequence[Any]) -> tuple[RawColumn, Any]:
    """Return the raw column, and the type of its cells; None if it cannot be used."""
    known = [type_ for type_ in types if not pa.types.is_null(type_)] or [pa.string()]
    cells = {plain(pa.array([], type_)).type for type_ in known if _usable(type_)}
    column = typed(name, known[0])
    if column.type == "other":
        return column, None
    if len(cells) != 1 or len({_usable(type_) for type_ in known}) != 1:
        raise InvalidInput(
            f"column {name!r}: its partitions are of different types"
            f" ({', '.join(sorted(map(str, {*known})))}); convert it with astype."
        )
    return column, cells.pop()


def _usable(type_: Any) -> bool:
    return typed("", type_).type != "other"


def array_table(X: Any, y: Any, *, text: bool) -> Table:
    """Return Dask arrays X (n, d) and y (n,) as a table of columns x0, x1, … and y.

    ``text``: the labels are classes, not numbers. Nothing is computed.
    """
    if getattr(X, "ndim", None) != 2 or getattr(y, "ndim", None) != 1:
        raise InvalidInput("X and y: must be Dask arrays of shapes (n, d) and (n,).")
    for name, array in (("X", X), ("y", y)):
        if any(np.isnan(length) for length in array.chunks[0]):
            raise InvalidInput(
                f"{name}: has an unknown length; call {name}.compute_chunk_sizes() first."
            )
    if X.shape[0] != y.shape[0]:
        raise InvalidInput(
            f"X and y: have {X.shape[0]} and {y.shape[0]} rows: must have the same number."
        )
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise InvalidInput("X: must have at least one row and one column.")
    X = X.rechunk({1: -1})
    y = y.rechunk((X.chunks[0],))
    width = X.shape[1]
    names = (*position_names(width), _TARGET)
    label_type = _label_type(y.dtype)
    types = (*(pa.float64(),) * width, label_type)
    parts = _Parts(
        graph=_graph_of(X, y),
        sources=tuple(((X.name, chunk, 0), (y.name, chunk)) for chunk in range(len(X.chunks[0]))),
        lengths=tuple(map(int, X.chunks[0])),
        column=_array_column,
        names=names,
        types=types,
    )
    raw = tuple(typed(name, type_) for name, type_ in zip(names, types, strict=True))
    feed = DaskFeed(parts=parts)
    kinds = [Column(name=name, kind="numeric", missing=0) for name in names[:-1]]
    kinds.append(Column(name=_TARGET, kind="text" if text else "numeric", missing=0))
    return Table(
        label="the arrays",
        columns=tuple(kinds),
        rows=parts.rows,
        id_column=None,
        missing=(),
        origin=Origin(label="the arrays", feed=feed, columns=raw, rows=parts.rows),
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
    """Return the encoding of :func:`array_table`, which leaves numbers unchanged."""
    return Encoding(
        entries=tuple(
            NumericEntry(name=name, mean=0.0, scale=1.0, mark=Mark.GIVEN, cut=None)
            for name in position_names(columns)
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
