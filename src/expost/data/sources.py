"""Tables that are read in blocks and in order, by DuckDB.

    table = open_table("people.csv", id_column="number", missing=("", "?"))
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
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from expost import _checks
from expost._order import median
from expost.data._csv import DELIMITERS
from expost.data._duck import Origin, RawColumn, Relation, absent, is_number
from expost.data._origins import open_origin
from expost.data._query import query_of
from expost.errors import InvalidInput
from expost.types import IntArray

__all__ = ["Column", "Kind", "Table", "in_blocks", "open_table"]

Kind = Literal["numeric", "text", "boolean"]

# Squares and products of two entries must not overflow (as in _checks).
_LARGEST = 1e150
_LONGEST = 2**53
_NOT_FINITE = "[+-]?(nan|inf|infinity)"
# Tokens that commonly mean "missing"; other cells are never shown, they may be personal.
_USUAL_TOKENS = frozenset(
    {"", "?", "-", "--", ".", "*", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing"}
)

# Rows that are read at a time; blocks of another size are assembled from them.
_FETCH = 2**14
_AGGREGATES = 5
# Cells that may be held in memory, to count distinct keys or to compute a median.
_HELD = 2**22


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name
        Its name.
    kind
        "numeric", "text" or "boolean".
    missing
        The number of its missing cells.
    low, high
        The range of the cells of a numeric column that are not missing (0 if there are none).
    notice
        A note on a possibly unintended effect, or "".
    """

    name: str
    kind: Kind
    missing: int
    low: float = field(default=0.0, repr=False)
    high: float = field(default=0.0, repr=False)
    notice: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose rows are read on demand, in blocks, always in the same order.

    Attributes
    ----------
    label
        The name of the table in messages.
    columns
        The columns without the id column.
    rows
        The number of rows.
    id_column
        The column of the ids, whose cells are always strings; None without one.
    missing
        The tokens of a missing cell.
    origin
        The source of the rows.
    left_out
        Notes on rows that were left out.
    """

    label: str
    columns: tuple[Column, ...]
    rows: int
    id_column: str | None
    missing: tuple[str, ...]
    origin: Origin = field(repr=False)
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, without the id column."""
        return tuple(column.name for column in self.columns)

    @property
    def notices(self) -> tuple[str, ...]:
        """Notes on possibly unintended effects, each a sentence."""
        notices = [*(column.notice for column in self.columns if column.notice), *self.left_out]
        if self.origin.doubtful_header:
            notices.insert(
                0,
                f"{self.label}: the first line is taken as the header, although a name in it is a"
                " number.",
            )
        return tuple(notices)

    def __getitem__(self, name: str) -> Column:
        """Return the column ``name``."""
        for column in self.columns:
            if column.name == name:
                return column
        raise absent(name, self.label, self.names)

    def require(self, names: Iterable[str]) -> None:
        """Raise :class:`InvalidInput` unless every one of ``names`` is a column."""
        for name in names:
            self[name]

    def blocks(self, size: int = _FETCH, *, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows in order, in blocks.

        Parameters
        ----------
        size
            The number of rows of each block; the last may have fewer.
        columns
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
        wanted = list(columns)
        expressions = [self.expression(name) for name in wanted]
        batches = self.origin.relation.batches(expressions, size=min(size, _FETCH))
        count = 0
        for arrays in map(_joined, in_blocks(batches, size)):
            block = pa.RecordBatch.from_arrays(arrays, names=wanted)
            count += block.num_rows
            yield block
        if count != self.rows:
            raise InvalidInput(
                f"{self.label}: had {self.rows} rows and now has {count}: it changed while it was"
                " being read; start again."
            )

    def column(self, name: str) -> Any:
        """Return a column as an Arrow array: float64, string or boolean, null where missing."""
        chunks = [block.column(0) for block in self.blocks(columns=[name])]
        return pa.concat_arrays(chunks)

    def levels(self, names: Sequence[str], *, at_most: int) -> dict[str, tuple[str, ...] | None]:
        """Return the distinct cells of string columns, sorted, in one pass.

        Parameters
        ----------
        names
            The columns.
        at_most
            A column with more distinct cells has None.
        """
        levels: dict[str, set[str] | None] = {name: set() for name in names}
        for block in self.blocks(columns=list(levels)) if levels else ():
            for name, cells in zip(list(levels), block.columns, strict=True):
                known = levels[name]
                if known is not None:
                    known.update(cells.drop_null().unique().to_pylist())
                    levels[name] = known if len(known) <= at_most else None
        return {
            name: None if known is None else tuple(sorted(known)) for name, known in levels.items()
        }

    def median(self, name: str) -> float:
        """Return the median of the cells of a numeric column that are not missing."""
        if (
            self.rows > _HELD
            and self.origin.relation.aggregate([f"count({self.expression(name)})"])[0]
        ):
            return median(lambda: map(_present, self.blocks(columns=[name])))
        (value,) = self.origin.relation.aggregate([f"median({self.expression(name)})"])
        if value is None:
            raise InvalidInput(f"column {name!r}: has no numbers, so it has no median.")
        return float(value)

    def retyped(self, kinds: Mapping[str, Kind]) -> "Table":
        """Return the table with the named columns read as these ``kinds``, text or numeric."""
        changed = {name: kind for name, kind in kinds.items() if self[name].kind != kind}
        if not changed:
            return self
        _, columns = _scan(self.origin, list(changed), self.missing, changed)
        new = {column.name: column for column in columns}
        return replace(self, columns=tuple(new.get(column.name, column) for column in self.columns))

    def kept(self, index: IntArray, notice: str) -> "Table":
        """Return the table with only the rows at ``index``, which are held in memory.

        ``notice`` describes the rows that are left out.
        """
        wanted = [*self.names, *([] if self.id_column is None else [self.id_column])]
        raws = [self.origin[name] for name in wanted]
        batches = self.origin.relation.batches([raw.sql for raw in raws], size=_FETCH)
        table = pa.Table.from_batches(batches)
        cells = [f"c{position}" for position in range(len(raws))]
        held = table.rename_columns(cells).take(pa.array(index)).combine_chunks()
        relation = Relation(label=self.label, clause="source", arrow=held)
        origin = replace(
            self.origin,
            relation=relation,
            columns=tuple(replace(raw, sql=sql) for raw, sql in zip(raws, cells, strict=True)),
            rows=len(index),
            parquet=False,
            partitions=(),
        )
        kinds: dict[str, Kind] = {
            column.name: column.kind for column in self.columns if column.kind != "boolean"
        }
        rows, columns = _scan(origin, self.names, self.missing, kinds)
        return replace(self, columns=tuple(columns), rows=rows, origin=origin, left_out=(notice,))

    def expression(self, name: str) -> str:
        """Return the SQL of the cell of a column, as its kind in the table."""
        if name == self.id_column:
            return self.origin[name].text(self.missing)
        kind = self[name].kind  # first: it raises if there is no such column
        return self.origin[name].typed(kind, self.missing)


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
) -> Table:
    """Open a table and check every cell of its columns once.

    Parameters
    ----------
    source
        A CSV or TSV path (also gzipped), a Parquet or Arrow (Feather) path, a glob of these (read
        in the order of the names), a folder of Parquet files (``year=2024/…`` is a column too),
        ``postgresql://user@host/database``, ``sqlite:///file.db`` or an SQLite path, a
        :class:`Query`, a pandas or polars frame, a pyarrow table or dataset, or a dict of columns.
    columns
        The columns to read; all by default.
    id_column
        The column of the ids: never missing, and different in each row.
    ids_repeat
        Whether the id column identifies persons: the rows of one person have the same id, and
        there are at least two persons.
    missing
        The tokens of a missing cell.
    kinds
        The kinds of columns that are known: "numeric" or "text".
    delimiter
        The delimiter of a CSV file; by default it is read from the header.
    query
        For a database: one SELECT, or the name of a table. All passes read the rows of this
        moment, in the order of ``id_column``, which is required.

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
    origin = open_origin(query_of(source, query, id_column), delimiter=delimiter)
    label = origin.relation.label
    names = [column.name for column in origin.columns]
    known = dict(kinds or {})
    # The column that orders the rows of a database is a key, and a feature only if it is named.
    every = [name for name in names if name != origin.key]
    wanted = every if columns is None else _names("columns", columns)
    for name in [*wanted, *known, *([] if id_column is None else [id_column])]:
        if name not in names:
            raise absent(name, label, names)
    for kind in known.values():
        _checks.one_of("kinds", kind, ("numeric", "text"))
    if origin.rows == 0:
        raise InvalidInput(f"{label}: has no rows: must have at least one.")
    features = [name for name in names if name in set(wanted) and name != id_column]
    rows, scanned = _scan(origin, features, tokens, known)
    if rows != origin.rows:
        raise InvalidInput(
            f"{label}: has {origin.rows} rows, of which DuckDB read {rows}; write it again."
        )
    table = Table(
        label=label,
        columns=tuple(scanned),
        rows=rows,
        id_column=id_column,
        missing=tokens,
        origin=origin,
    )
    if id_column is not None:
        _check_ids(table, id_column, repeat=ids_repeat)
    return table


def _scan(
    origin: Origin, names: Sequence[str], missing: tuple[str, ...], kinds: Mapping[str, Kind]
) -> tuple[int, list[Column]]:
    """Return the number of rows, and each named column after one scan of its cells."""
    scans = [
        _ColumnScan(origin=origin, raw=origin[name], missing=missing, kind=kinds.get(name))
        for name in names
    ]
    stages: tuple[list[str], ...] = (["1 AS one"], ["one"], ["one"])
    aggregates = ["count(one)"]
    for index, scan in enumerate(scans):
        for stage, expressions in zip(stages, scan.stages(index), strict=True):
            stage += expressions
        aggregates += scan.aggregates(index)
    rows, *figures = origin.relation.aggregate(aggregates, *stages)
    return int(rows), [
        scan.column(int(rows), figures[_AGGREGATES * index : _AGGREGATES * (index + 1)])
        for index, scan in enumerate(scans)
    ]


@dataclass(frozen=True, kw_only=True)
class _ColumnScan:
    """One scan of all cells of a column; ``kind`` is its kind if that is known.

    A scan is five aggregates: present (not missing), numbers, low, high and infinite. A column is
    read again only for the details of a message: only some of its cells are numbers, or some
    exceed 2⁵³.
    """

    origin: Origin
    raw: RawColumn
    missing: tuple[str, ...]
    kind: Kind | None

    def __post_init__(self) -> None:
        declared = "text" if self.raw.categorical else self.raw.type
        if declared == "other":
            self.raw.text(())  # raises: the type cannot be used
        possible = ("boolean" if declared == "boolean" else "numeric", "text")
        if self.kind is not None and self.kind not in possible:
            raise InvalidInput(
                f"column {self.raw.name!r}: is of type {self.raw.described}: cannot be read as"
                f" {self.kind}; must be one of {', '.join(possible)}."
            )

    @property
    def _family(self) -> Literal["cells", "integer", "float", "plain"]:
        """The type of the scan; plain: only missing cells are counted."""
        if self.raw.type in ("integer", "float"):
            as_text = self.kind == "text" or (self.raw.categorical and self.kind is None)
            return "plain" if as_text else "integer" if self.raw.type == "integer" else "float"
        guessed = self.raw.type in ("cell", "mixed") and self.kind is None
        return "cells" if guessed or self.kind == "numeric" else "plain"

    def stages(self, index: int) -> tuple[list[str], list[str], list[str]]:
        """Return expressions over the relation, and two stages over these.

        In the last one t is the cell, w its value as a DOUBLE if it has one, v that value if it is
        a finite number; each name ends in ``index``.
        """
        t, w, v = f"t{index}", f"w{index}", f"v{index}"
        cell = f"{self.raw.text(self.missing)} AS {t}"
        match self._family:
            case "cells":
                value, test = f"TRY_CAST({t} AS DOUBLE)", is_number(t, w)
            case "plain":
                value, test = "CAST(NULL AS DOUBLE)", "false"
            case "integer" | "float":
                number = f"{self.raw.number(self.missing)} AS {w}"
                finite = f"CASE WHEN isfinite({w}) THEN {w} END AS {v}"
                return [f"{self.raw.sql} AS {t}", number], [t, w], [t, w, finite]
        return [cell], [t, f"{value} AS {w}"], [t, w, f"CASE WHEN {test} THEN {w} END AS {v}"]

    def aggregates(self, index: int) -> list[str]:
        """Return the SQL of the five aggregates over the last stage."""
        t, w, v = f"t{index}", f"w{index}", f"v{index}"
        present = w if self._family in ("integer", "float") else t
        return [
            f"count({present})",
            f"count({v})",
            f"min({v})",
            f"max({v})",
            f"count(CASE WHEN isinf({w}) THEN 1 END)",
        ]

    def column(self, rows: int, figures: Sequence[Any]) -> Column:
        """Return the column with these five aggregates; raise :class:`InvalidInput` on a fault."""
        present, numbers, infinite = int(figures[0]), int(figures[1]), int(figures[4])
        low, high = (0.0 if figure is None else float(figure) for figure in figures[2:4])
        name, missing = self.raw.name, rows - present
        match self._family:
            case "plain":
                boolean = self.raw.type == "boolean" and self.kind != "text"
                kind: Kind = "boolean" if boolean and not self.raw.categorical else "text"
                return Column(name=name, kind=kind, missing=missing)
            case "cells":
                if numbers < present or (present == 0 and self.kind is None):
                    notice = self._explain(present, numbers, infinite)
                    return Column(name=name, kind="text", missing=missing, notice=notice)
            case "integer" | "float":
                if infinite:
                    raise self._fault("isinf({w})", "is infinite: must be finite; drop or fill it")
                if numbers < present:
                    raise self._fault(
                        "isnan({w})",
                        "is NaN: a missing cell must be null (None; .fill_nan(None) in polars)",
                    )
        self._check_size(low, high)
        return Column(name=name, kind="numeric", missing=missing, low=low, high=high)

    @property
    def _where(self) -> str:
        return f"{self.origin.relation.label}, column {self.raw.name!r}"

    def _check_size(self, low: float, high: float) -> None:
        """Raise unless integers are exact in float64 and squares do not overflow."""
        largest = max(-low, high)
        if largest >= _LONGEST and self._family != "float":
            integer = "t0" if self._family == "integer" else "TRY_CAST(t0 AS HUGEINT)"
            # A decimal number, 1e20 or 12345678901234567890.5, is meant as a float.
            shape = "true" if self._family == "integer" else "regexp_full_match(t0, '[+-]?[0-9]+')"
            past = f"coalesce({integer} > {_LONGEST} OR {integer} < -{_LONGEST}, true)"
            condition = f"abs(v0) >= {_LONGEST} AND {shape} AND {past}"
            if self._first_row(condition) is not None:
                raise self._fault(
                    condition,
                    "is an integer past 2**53, which float64 cannot represent exactly;"
                    " rescale the column, leave it out, or name it as the id column",
                )
        if not largest <= _LARGEST:
            raise self._fault(
                f"abs({{v}}) > {_LARGEST}",
                f"is too large: must be at most {_LARGEST:g} in magnitude; rescale the column",
            )

    def _explain(self, present: int, numbers: int, infinite: int) -> str:
        """Return the notice of a column that is partly numeric; raise if it must be numeric."""
        if numbers == 0 and infinite == 0 and self.kind is None:
            return ""
        words, overflow, first, last = self.origin.relation.aggregate(
            [
                f"count(CASE WHEN regexp_full_match(lower(t0), '{_NOT_FINITE}') THEN 1 END)",
                "count(CASE WHEN isinf(w0) AND regexp_matches(t0, '[0-9]') THEN 1 END)",
                "min(CASE WHEN v0 IS NULL THEN t0 END)",
                "max(CASE WHEN v0 IS NULL THEN t0 END)",
            ],
            *self.stages(0),
        )
        if numbers == 0 and overflow == 0 and self.kind is None:
            return ""
        others = present - numbers
        not_number = "{t} IS NOT NULL AND {v} IS NULL"
        if others == words + overflow:
            problem = "is not a finite number" if words else "is too large for float64"
            raise self._fault(
                not_number,
                f"{problem}: rescale the column, or declare the cell missing (missing=…)",
            )
        token = first if first == last and str(first).lower() in _USUAL_TOKENS else None
        hint = "" if token is None else f"; if {token!r} means missing, declare it so (missing=…)"
        if self.kind == "numeric":
            raise self._fault(
                not_number,
                f"is not a number ({others} of {present} cells are not), and the column was"
                f" declared numeric{hint}",
            )
        return (
            f"column {self.raw.name!r}: {others} of {present} cells are not numbers, so it is read"
            f" as text{hint}."
        )

    def _fault(self, condition: str, problem: str) -> InvalidInput:
        """Return the error about the first row where ``condition`` on {t}, {w} and {v} holds."""
        row = self._first_row(condition.format(t="t0", w="w0", v="v0"))
        at = "" if row is None else f", row {row}"
        return InvalidInput(f"{self._where}{at}: {problem}.")

    def _first_row(self, condition: str) -> int | None:
        return self.origin.relation.first_row(condition, *self.stages(0))


def _present(block: Any) -> Any:
    """Return the numbers of a block of one column that are not missing."""
    return block.column(0).drop_null().to_numpy(zero_copy_only=False)


def _check_ids(table: Table, name: str, *, repeat: bool) -> None:
    """Raise unless every row has an id, and all differ; if ids ``repeat``, at least two."""
    relation, cell = table.origin.relation, table.origin[name].text(table.missing)
    # The key of a database is compared with the one before whenever it is read.
    ordered = name == table.origin.key and not repeat
    (present,) = relation.aggregate(["count(id)"], [f"{cell} AS id"])
    # In several passes, by the hashes of the ids, each of which fits into memory.
    passes = 0 if ordered else -(-table.rows // _HELD)
    queries = [
        f"count(DISTINCT id) FILTER (hash(id) % {passes} = {number})" for number in range(passes)
    ]
    counts = (relation.aggregate([query], [f"{cell} AS id"])[0] for query in queries)
    distinct = present if ordered else sum(counts)
    column = f"{table.label}, {'person' if repeat else 'id'} column {name!r}"
    if present < table.rows:
        row = relation.first_row("id IS NULL", [f"{cell} AS id"])
        remedy = (
            "every row must have a person; give the row its own entry if it is the only one of a"
            " person."
            if repeat
            else "every row must have an id."
        )
        raise InvalidInput(f"{column}, row {row}: is missing: {remedy}")
    if repeat and distinct < 2:
        raise InvalidInput(
            f"{column}: one person owns every row, so that no row would be left to train on without"
            " that person; name another column."
        )
    if distinct < present and not repeat:
        raise InvalidInput(
            f"{column}: {present - distinct} row(s) repeat the id of another: it must be different"
            " in each; name another column."
        )


def in_blocks(batches: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Yield the parts of ``batches`` that make up blocks of ``size`` rows; the last is shorter."""
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
                yield pending
                pending, count = [], 0
    if pending:
        yield pending


def _joined(batches: list[Any]) -> list[Any]:
    return [
        pa.concat_arrays([batch.column(index) for batch in batches])
        for index in range(batches[0].num_columns)
    ]


def _names(parameter: str, names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{parameter}={names!r}: must be a list of column names.")
    return list(names)


def _tokens(missing: Sequence[str]) -> tuple[str, ...]:
    return tuple(token.strip() for token in _names("missing", missing))
