"""Tables, read in blocks and in order, from anything that DuckDB reads.

    table = open_table("people.csv", id_column="number", missing=("", "?"))
    for block in table.blocks(10_000): ...

Conventions
-----------
kind       ``numeric`` (float64), ``text`` (string) or ``boolean``. A CSV column is numeric if each
           of its cells that is not missing is a finite decimal number, else text. Frames, Arrow
           and Parquet declare their types; a categorical is text.
missing    Cells that equal one of the declared tokens are null. Spaces around a cell do not
           count. What is not declared stays what it is.
row        counted from 1 in messages, without the header.

No cell is repaired or shown. ``table.notices`` says what a person may not have meant.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from expost import _checks
from expost._order import median
from expost.data._csv import DELIMITERS
from expost.data._duck import Origin, RawColumn, Relation, absent, is_number
from expost.data._origins import raw
from expost.data._query import query_of
from expost.errors import InvalidInput
from expost.types import IntArray

__all__ = ["Column", "Kind", "Table", "in_blocks", "open_table"]

Kind = Literal["numeric", "text", "boolean"]

# Squares and products of two entries must not overflow (as in _validate).
_LARGEST = 1e150
_LONGEST = 2**53
_NOT_FINITE = "[+-]?(nan|inf|infinity)"
# Tokens that commonly mean "missing"; others are never shown, they may be somebody's.
_USUAL_TOKENS = frozenset(
    {"", "?", "-", "--", ".", "*", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing"}
)

# Rows that are fetched at a time; a block of another size is put together from these.
_FETCH = 2**14
_AGGREGATES = 5
# Cells that may be held at once, to tell keys apart or to find a median.
_HELD = 2**22


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table: its kind, how many of its cells are missing, and its range.

    ``low`` and ``high`` are of a numeric column's cells that are not missing (0 if there are
    none); ``notice`` says what a person may not have meant, or is empty.
    """

    name: str
    kind: Kind
    missing: int
    low: float = field(default=0.0, repr=False)
    high: float = field(default=0.0, repr=False)
    notice: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows that are read when asked for, in blocks, always in the same order.

    ``columns`` leaves out the id column, whose cells are text whatever they look like; ``label``
    names the table in messages, ``left_out`` says which rows it lacks.
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
        """What a person may not have meant, a sentence each."""
        notices = [*(column.notice for column in self.columns if column.notice), *self.left_out]
        if self.origin.doubtful_header:
            notices.insert(
                0,
                f"{self.label}: the first line is taken as the header, although a name in it is a"
                " number.",
            )
        return tuple(notices)

    def __getitem__(self, name: str) -> Column:
        """The column called ``name``."""
        for column in self.columns:
            if column.name == name:
                return column
        raise absent(name, self.label, self.names)

    def require(self, names: Iterable[str]) -> None:
        """Raise unless every one of ``names`` is a column."""
        for name in names:
            self[name]

    def blocks(self, size: int = _FETCH, *, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Arrow record batches of exactly ``size`` rows (the last may be shorter), in order.

        ``columns`` names those wanted, the id column perhaps among them; all if None.
        """
        size = _checks.whole("size", size, least=1)
        if columns is None:
            columns = (*self.names, *([] if self.id_column is None else [self.id_column]))
        wanted = list(columns)
        expressions = [self.expression(name) for name in wanted]
        batches = self.origin.relation.batches(expressions, size=min(size, _FETCH))
        seen = 0
        for arrays in map(_joined, in_blocks(batches, size)):
            block = pa.RecordBatch.from_arrays(arrays, names=wanted)
            seen += block.num_rows
            yield block
        if seen != self.rows:
            raise InvalidInput(
                f"{self.label}: had {self.rows} rows and now has {seen}: it changed while it was"
                " being read; start again."
            )

    def column(self, name: str) -> Any:
        """One whole column as an Arrow array: float64, string or boolean, null where missing."""
        chunks = [block.column(0) for block in self.blocks(columns=[name])]
        return pa.concat_arrays(chunks)

    def levels(self, names: Sequence[str], *, at_most: int) -> dict[str, tuple[str, ...] | None]:
        """The distinct cells of text columns, sorted, in one pass; None if past ``at_most``."""
        found: dict[str, set[str] | None] = {name: set() for name in names}
        for block in self.blocks(columns=list(found)) if found else ():
            for name, cells in zip(list(found), block.columns, strict=True):
                seen = found[name]
                if seen is not None:
                    seen.update(cells.drop_null().unique().to_pylist())
                    found[name] = seen if len(seen) <= at_most else None
        return {name: None if seen is None else tuple(sorted(seen)) for name, seen in found.items()}

    def median(self, name: str) -> float:
        """The median of the cells of a numeric column that are not missing."""
        if self.rows > _HELD and self.origin.relation.one([f"count({self.expression(name)})"])[0]:
            return median(lambda: map(_present, self.blocks(columns=[name])))
        (value,) = self.origin.relation.one([f"median({self.expression(name)})"])
        if value is None:
            raise InvalidInput(f"column {name!r}: has no numbers, so it has no median.")
        return float(value)

    def retyped(self, kinds: Mapping[str, Kind]) -> "Table":
        """The same table with the named columns read as ``kinds``: text, or numeric."""
        changed = {name: kind for name, kind in kinds.items() if self[name].kind != kind}
        if not changed:
            return self
        _, columns = _scan(self.origin, list(changed), self.missing, changed)
        new = {column.name: column for column in columns}
        return replace(self, columns=tuple(new.get(column.name, column) for column in self.columns))

    def kept(self, index: IntArray, notice: str) -> "Table":
        """Return the table with the rows at ``index`` alone, which are held in memory.

        ``notice`` says which rows it lacks.
        """
        wanted = [*self.names, *([] if self.id_column is None else [self.id_column])]
        raws = [self.origin[name] for name in wanted]
        batches = self.origin.relation.batches([raw.sql for raw in raws], size=_FETCH)
        whole = pa.Table.from_batches(batches)
        cells = [f"c{place}" for place in range(len(raws))]
        held = whole.rename_columns(cells).take(pa.array(index)).combine_chunks()
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
        """The cell of a column as SQL, typed as the table reads it."""
        if name == self.id_column:
            return self.origin[name].text(self.missing)
        kind = self[name].kind  # first: it says so if there is no such column
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
    """Open a table and look at every wanted cell of it once.

    Args:
        source: a CSV or TSV path (also gzipped), a Parquet or Arrow (Feather) path, a glob of
            these (read in the order of the names), a folder of Parquet files (``year=2024/…`` is a
            column too), ``postgresql://user@host/database``, ``sqlite:///file.db`` or an SQLite
            path, a :class:`Query`, a pandas or polars frame, a pyarrow table or dataset, a dict of
            columns.
        columns: those wanted; all if None. The others are not looked at.
        id_column: the key of the rows: present, and different in each.
        ids_repeat: the id column says whose row each row is: rows of one person have the same,
            and there are at least two persons.
        missing: the tokens that stand for a missing cell.
        kinds: columns whose kind is known beforehand: "numeric" or "text".
        delimiter: of a CSV file; read from its header if None.
        query: of a database: one SELECT, or the name of a table. All passes see the rows that are
            there now, in the order of ``id_column``, which a database must have.
    """
    tokens = _tokens(missing)
    if delimiter is not None:
        _checks.one_of("delimiter", delimiter, DELIMITERS)
    origin = raw(query_of(source, query, id_column), delimiter=delimiter)
    label = origin.relation.label
    names = [column.name for column in origin.columns]
    known = dict(kinds or {})
    # What orders the rows of a database is a key, never a feature by itself.
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
    rows, looked = _scan(origin, features, tokens, known)
    if rows != origin.rows:
        raise InvalidInput(
            f"{label}: has {origin.rows} rows, of which DuckDB read {rows}; write it again."
        )
    table = Table(
        label=label,
        columns=tuple(looked),
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
    """The number of rows, and each named column after one scan of its cells."""
    scans = [
        _ColumnScan(origin=origin, raw=origin[name], missing=missing, asked=kinds.get(name))
        for name in names
    ]
    stages: tuple[list[str], ...] = (["1 AS one"], ["one"], ["one"])
    aggregates = ["count(one)"]
    for index, scan in enumerate(scans):
        for stage, expressions in zip(stages, scan.stages(index), strict=True):
            stage += expressions
        aggregates += scan.aggregates(index)
    rows, *figures = origin.relation.one(aggregates, *stages)
    return int(rows), [
        scan.judge(int(rows), figures[_AGGREGATES * index : _AGGREGATES * (index + 1)])
        for index, scan in enumerate(scans)
    ]


@dataclass(frozen=True, kw_only=True)
class _ColumnScan:
    """One scan of all cells of a column; ``asked`` is its kind where that is known beforehand.

    A scan is five aggregates: present (not missing), numbers, low, high and infinite. A column is
    read again only if something about it must be explained: its cells are numbers in part, or past
    2⁵³.
    """

    origin: Origin
    raw: RawColumn
    missing: tuple[str, ...]
    asked: Kind | None

    def __post_init__(self) -> None:
        declared = "text" if self.raw.categorical else self.raw.type
        if declared == "other":
            self.raw.text(())  # raises: the type cannot be used
        possible = ("boolean" if declared == "boolean" else "numeric", "text")
        if self.asked is not None and self.asked not in possible:
            raise InvalidInput(
                f"column {self.raw.name!r}: is of type {self.raw.described}: cannot be read as"
                f" {self.asked}; must be one of {', '.join(possible)}."
            )

    @property
    def _family(self) -> Literal["cells", "integer", "float", "plain"]:
        """How the column is scanned; plain: only its missing cells are counted."""
        if self.raw.type in ("integer", "float"):
            as_text = self.asked == "text" or (self.raw.categorical and self.asked is None)
            return "plain" if as_text else "integer" if self.raw.type == "integer" else "float"
        guessed = self.raw.type in ("cell", "mixed") and self.asked is None
        return "cells" if guessed or self.asked == "numeric" else "plain"

    def stages(self, index: int) -> tuple[list[str], list[str], list[str]]:
        """Expressions over the relation, and twice over those before.

        At the end t is the cell, w its value as a DOUBLE if it has one, v that value if it is a
        finite number; each name ends in ``index``.
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
        """The five aggregates over the last stage."""
        t, w, v = f"t{index}", f"w{index}", f"v{index}"
        present = w if self._family in ("integer", "float") else t
        return [
            f"count({present})",
            f"count({v})",
            f"min({v})",
            f"max({v})",
            f"count(CASE WHEN isinf({w}) THEN 1 END)",
        ]

    def judge(self, rows: int, figures: Sequence[Any]) -> Column:
        """The column that the five ``figures`` show, or :class:`InvalidInput`."""
        present, numbers, infinite = int(figures[0]), int(figures[1]), int(figures[4])
        low, high = (0.0 if figure is None else float(figure) for figure in figures[2:4])
        name, missing = self.raw.name, rows - present
        match self._family:
            case "plain":
                boolean = self.raw.type == "boolean" and self.asked != "text"
                kind: Kind = "boolean" if boolean and not self.raw.categorical else "text"
                return Column(name=name, kind=kind, missing=missing)
            case "cells":
                if numbers < present or (present == 0 and self.asked is None):
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
        """Integers are exact in float64, and squares do not overflow."""
        largest = max(-low, high)
        if largest >= _LONGEST and self._family != "float":
            whole = "t0" if self._family == "integer" else "TRY_CAST(t0 AS HUGEINT)"
            # A float written out, 1e20 or 12345678901234567890.5, is what it says.
            shape = "true" if self._family == "integer" else "regexp_full_match(t0, '[+-]?[0-9]+')"
            past = f"coalesce({whole} > {_LONGEST} OR {whole} < -{_LONGEST}, true)"
            condition = f"abs(v0) >= {_LONGEST} AND {shape} AND {past}"
            if self._first_row(condition) is not None:
                raise self._fault(
                    condition,
                    "is an integer past 2**53, which float64 cannot tell from its neighbours;"
                    " rescale the column, leave it out, or name it as the id column",
                )
        if not largest <= _LARGEST:
            raise self._fault(
                f"abs({{v}}) > {_LARGEST}",
                f"is too large: must be at most {_LARGEST:g} in magnitude; rescale the column",
            )

    def _explain(self, present: int, numbers: int, infinite: int) -> str:
        """The notice of a column that is numeric in part; raises where it should be throughout."""
        if numbers == 0 and infinite == 0 and self.asked is None:
            return ""
        words, overflow, first, last = self.origin.relation.one(
            [
                f"count(CASE WHEN regexp_full_match(lower(t0), '{_NOT_FINITE}') THEN 1 END)",
                "count(CASE WHEN isinf(w0) AND regexp_matches(t0, '[0-9]') THEN 1 END)",
                "min(CASE WHEN v0 IS NULL THEN t0 END)",
                "max(CASE WHEN v0 IS NULL THEN t0 END)",
            ],
            *self.stages(0),
        )
        if numbers == 0 and overflow == 0 and self.asked is None:
            return ""
        others = present - numbers
        not_number = "{t} IS NOT NULL AND {v} IS NULL"
        if others == words + overflow:
            what = "is not a finite number" if words else "is too large for float64"
            raise self._fault(
                not_number,
                f"{what}: every number must be; rescale the column, or declare the cell missing"
                " (missing=…)",
            )
        token = first if first == last and str(first).lower() in _USUAL_TOKENS else None
        hint = "" if token is None else f"; if {token!r} means missing, declare it so (missing=…)"
        if self.asked == "numeric":
            raise self._fault(
                not_number,
                f"is not a number ({others} of {present} cells are not), and the column was"
                f" declared numeric{hint}",
            )
        return (
            f"column {self.raw.name!r}: {others} of {present} cells are not numbers, so it is read"
            f" as text{hint}."
        )

    def _fault(self, condition: str, what: str) -> InvalidInput:
        """The error about the first row where ``condition`` on {t}, {w} and {v} holds."""
        row = self._first_row(condition.format(t="t0", w="w0", v="v0"))
        at = "" if row is None else f", row {row}"
        return InvalidInput(f"{self._where}{at}: {what}.")

    def _first_row(self, condition: str) -> int | None:
        return self.origin.relation.first_row(condition, *self.stages(0))


def _present(block: Any) -> Any:
    """The numbers of a block of one column."""
    return block.column(0).drop_null().to_numpy(zero_copy_only=False)


def _check_ids(table: Table, name: str, *, repeat: bool) -> None:
    """Every row has an id, and no two rows have the same; or not all of them, if ids repeat."""
    relation, cell = table.origin.relation, table.origin[name].text(table.missing)
    # The key of a database is compared with the one before whenever it is read.
    ordered = name == table.origin.key and not repeat
    (present,) = relation.one(["count(id)"], [f"{cell} AS id"])
    # So many at a time as memory holds, by their hashes.
    shares = 0 if ordered else -(-table.rows // _HELD)
    several = [
        f"count(DISTINCT id) FILTER (hash(id) % {shares} = {share})" for share in range(shares)
    ]
    found = (relation.one([one], [f"{cell} AS id"])[0] for one in several)
    distinct = present if ordered else sum(found)
    column = f"{table.label}, {'person' if repeat else 'id'} column {name!r}"
    if present < table.rows:
        row = relation.first_row("id IS NULL", [f"{cell} AS id"])
        remedy = (
            "it is not known whose row that is; give it an entry of its own if it is nobody else's."
            if repeat
            else "every row must have an id."
        )
        raise InvalidInput(f"{column}, row {row}: is missing: {remedy}")
    if repeat and distinct < 2:
        raise InvalidInput(
            f"{column}: one person owns every row, and nothing would be left to train on without"
            " her; name another column."
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
