"""Sources as relations of raw columns, which DuckDB reads.

A raw column is an SQL expression with the type that its source declares. Every relation names its
columns c0, c1, …, so that no name of a user is part of an expression.

Every query runs on its own cursor, so that streams do not interrupt each other. DuckDB's messages
quote the line of a fault; they are therefore replaced, never passed on.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import duckdb
import pyarrow as pa

from expost._checks import did_you_mean
from expost.errors import InvalidInput

__all__ = ["NUMBER", "Feed", "Origin", "RawColumn", "RawType", "Relation", "absent", "as_double"]
__all__ += ["check_names", "check_unchanged", "declared", "glob_quoted", "identifier", "is_number"]
__all__ += ["one_type", "plain", "string", "typed"]

_SETTINGS = {
    # No extension is downloaded, and no Python variable is used as a table.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    # Rows come in the order of the file.
    "preserve_insertion_order": "true",
    # No row is ever spilled into a temporary file.
    "temp_directory": "",
}
_COLUMN = re.compile(r"\bc[0-9]+\b")
# Rows that DuckDB reads at a time.
_FETCH = 2**14
# The decimal numbers; DuckDB's own cast also accepts 1_000, +-1, nan and inf.
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"

# cell: of a CSV file. mixed: strings that may be numbers, of a source that does not declare it; the
# kind of both is determined by a scan. other: cannot become a feature (dates, lists, binary …).
RawType = Literal["cell", "mixed", "text", "integer", "float", "boolean", "other"]
# A file with its size and time of change.
Stamp = tuple[Path, int, int]


def string(value: str) -> str:
    """Return ``value`` as an SQL string."""
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return ``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def glob_quoted(path: Path) -> str:
    """Return ``path`` as an SQL string whose only match as a glob is this file."""
    literal = "".join(f"[{mark}]" if mark in "*?[" else mark for mark in str(path.absolute()))
    return string(literal)


@cache
def _connection(process: int) -> Any:
    """Return the one database of a process: starting one takes longer than reading a small table.

    A forked child starts its own, because DuckDB's threads do not continue in it. The database
    stores nothing: a table in memory is registered only with the cursor that reads it.
    """
    del process
    return duckdb.connect(":memory:", config=_SETTINGS)


class Feed(Protocol):
    """Rows of another source, in the same order in every pass."""

    @property
    def types(self) -> Sequence[Any]:
        """The Arrow types of the columns c0, c1, …; None for columns that cannot be used."""

    def batches(self, indices: Sequence[int]) -> Iterator[Any]:
        """Yield Arrow record batches that start with these columns; raise :class:`InvalidInput`."""


class _FeedReader:
    """A reader of those columns of a feed that a query names.

    DuckDB would replace an error of the feed by its own: it is kept as ``fault``.
    """

    def __init__(self, feed: Feed, query: str) -> None:
        self._feed, types = feed, feed.types
        # Another token of the same form only adds a column that is not needed.
        named = {int(name.removeprefix("c")) for name in _COLUMN.findall(query)}
        self._indices = sorted(n for n in named if n < len(types) and types[n] is not None)
        # A column of nulls counts the rows, where the query names no column.
        fields = [(f"c{index}", types[index]) for index in self._indices]
        self._schema = pa.schema(fields or [("nothing", pa.null())])
        self.fault: InvalidInput | None = None

    def reader(self) -> Any:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[Any]:
        try:
            for batch in self._feed.batches(self._indices):
                arrays = batch.columns[: len(self._indices)] or [pa.nulls(batch.num_rows)]
                rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
                for start in range(0, rows.num_rows, _FETCH):
                    yield rows.slice(start, _FETCH)
        except InvalidInput as fault:
            self.fault = fault
            raise


@dataclass(frozen=True, kw_only=True)
class Relation:
    """An SQL ``FROM`` clause, and the files that must not change while it is read.

    ``label`` is its name in messages; ``arrow`` is the table in memory that ``clause`` calls
    ``source``, or the :class:`Feed` of the rows; ``files`` are its files, with size and time of
    change.
    """

    label: str
    clause: str
    arrow: Any = field(default=None, repr=False, compare=False)
    files: tuple[Stamp, ...] = ()

    def aggregate(self, expressions: Sequence[str], *stages: Sequence[str]) -> tuple[Any, ...]:
        """Return the single row of the aggregate ``expressions``, over the last of the ``stages``.

        A stage is a list of expressions over the stage before it, the first over the relation.
        DuckDB computes each once, but would repeat an alias used within one ``SELECT``.
        """
        query = self._select(expressions, stages)
        with self._cursor(query) as cursor:
            row: tuple[Any, ...] = cursor.sql(query).fetchall()[0]
        return row

    def batches(
        self, expressions: Sequence[str], *stages: Sequence[str], size: int
    ) -> Iterator[Any]:
        """Yield Arrow record batches of ``expressions``, in order, of at most ``size`` rows."""
        query = self._select(expressions, stages)
        with self._cursor(query) as cursor:
            rows = cursor.sql(query)
            # DuckDB before 1.5 has only the other name.
            read = getattr(rows, "to_arrow_reader", None) or rows.fetch_arrow_reader
            yield from read(size)

    def first_row(self, condition: str, *stages: Sequence[str]) -> int | None:
        """Return the first row, counted from 1, where ``condition`` holds."""
        passed = 0
        for batch in self.batches([f"coalesce({condition}, false)"], *stages, size=_FETCH):
            holds = batch.column(0).to_numpy(zero_copy_only=False)
            if holds.any():
                return passed + int(holds.argmax()) + 1
            passed += batch.num_rows
        return None

    def _select(self, expressions: Sequence[str], stages: Sequence[Sequence[str]]) -> str:
        source = self.clause
        for stage in stages:
            source = f"(SELECT {', '.join(stage)} FROM {source})"
        return f"SELECT {', '.join(expressions)} FROM {source}"

    @contextmanager
    def _cursor(self, query: str) -> Iterator[Any]:
        for stamp in self.files:
            check_unchanged(stamp)
        feed: _FeedReader | None = None
        try:
            with _connection(os.getpid()).cursor() as cursor:
                if isinstance(self.arrow, pa.Table):
                    cursor.register("source", self.arrow)
                elif self.arrow is not None:
                    feed = _FeedReader(self.arrow, query)
                    cursor.register("source", feed.reader())
                yield cursor
        except RuntimeError as error:
            # DuckDB raises this for Ctrl-C (and SIGTERM) while a query runs.
            if "interrupted" in str(error).lower():
                raise KeyboardInterrupt from None
            raise
        # A stream of DuckDB's Arrow batches raises an OSError.
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if feed is not None and feed.fault is not None:
                raise feed.fault from None
            raise InvalidInput(
                f"{self.label}: could not be read to its end ({type(error).__name__}); check the"
                " file, or write it again."
            ) from None


def check_unchanged(stamp: Stamp) -> None:
    """Raise if a file has changed since the source was opened."""
    path, size, changed = stamp
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
    if (status.st_size, status.st_mtime_ns) != (size, changed):
        raise InvalidInput(f"{path}: changed while it was being read; start again.")


# -- raw columns ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RawColumn:
    """A column of a source; ``categorical`` if the source declares it so."""

    name: str
    sql: str
    type: RawType
    described: str
    categorical: bool = False

    def text(self, missing: Sequence[str]) -> str:
        """Return the SQL of the cell as a trimmed string; null for the ``missing`` tokens.

        An integral float has no point, like an integer.
        """
        sql = self.sql
        match self.type:
            case "cell":
                cell = f"trim(coalesce({sql}, ''))"
            case "text" | "mixed":
                cell = f"trim(CAST({sql} AS VARCHAR))"
            case "float":
                cell = (
                    f"CASE WHEN {sql} = trunc({sql}) AND abs({sql}) < 9007199254740992"
                    f" THEN CAST(CAST({sql} AS BIGINT) AS VARCHAR)"
                    f" ELSE CAST(CAST({sql} AS DOUBLE) AS VARCHAR) END"
                )
            case "integer" | "boolean":
                cell = f"CAST({sql} AS VARCHAR)"
            case "other":
                raise InvalidInput(
                    f"column {self.name!r}: is of type {self.described}: must be numbers, strings"
                    " or booleans; convert it, or leave it out (--drop)."
                )
        for token in missing:
            cell = f"nullif({cell}, {string(token)})"
        return cell

    def number(self, missing: Sequence[str]) -> str:
        """Return the SQL of the cell as a DOUBLE; it must be a number or missing."""
        if self.type not in ("integer", "float"):
            return as_double(self.text(missing))
        value = as_double(self.sql)
        for token in map(_finite, missing):
            value = value if token is None else f"nullif({value}, CAST({token!r} AS DOUBLE))"
        return value

    def typed(self, kind: str, missing: Sequence[str]) -> str:
        """Return the SQL of the cell as the ``kind`` that its table has determined."""
        match kind:
            case "numeric":
                return self.number(missing)
            case "text":
                return self.text(missing)
            case "boolean":
                return self.sql
        raise AssertionError(kind)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A relation, its raw columns and its number of rows.

    ``doubtful_header``: the first line of a CSV file may be a row. ``parquet``: the rows can be
    read from any position. ``partitions``: (column, its cell in each file), for columns in the
    names of folders. ``key``: the column that a database orders the rows by.
    """

    relation: Relation
    columns: tuple[RawColumn, ...]
    rows: int
    doubtful_header: bool = False
    parquet: bool = False
    partitions: tuple[tuple[str, tuple[str | None, ...]], ...] = ()
    key: str | None = None

    def __getitem__(self, name: str) -> RawColumn:
        """Return the column ``name``."""
        return next(column for column in self.columns if column.name == name)


def plain(array: Any) -> Any:
    """Return ``array`` in a type that DuckDB reads: no dictionary, half float or wide decimal."""
    type_ = array.type
    if pa.types.is_dictionary(type_):
        array = array.cast(type_.value_type)
        type_ = array.type
    if pa.types.is_null(type_):
        return array.cast(pa.string())
    if pa.types.is_decimal(type_):
        # Arrow's own cast multiplies by a power of ten, which is not the nearest float.
        return array.cast(pa.string()).cast(pa.float64())
    if pa.types.is_float16(type_):
        return array.cast(pa.float64())
    if pa.types.is_string_view(type_):
        return array.cast(pa.large_string())
    return array


def typed(name: str, sql: str, type_: Any) -> RawColumn:
    """Return the raw column that an Arrow type declares."""
    categorical = pa.types.is_dictionary(type_)
    value = type_.value_type if categorical else type_
    kind: RawType = "other"
    if pa.types.is_integer(value):
        kind = "integer"
    elif pa.types.is_floating(value) or pa.types.is_decimal(value):
        kind = "float"
    elif pa.types.is_boolean(value):
        kind = "boolean"
    elif (
        pa.types.is_string(value)
        or pa.types.is_large_string(value)
        or pa.types.is_string_view(value)
        or pa.types.is_null(value)
    ):
        kind = "text"
    return RawColumn(name=name, sql=sql, type=kind, described=str(type_), categorical=categorical)


@contextmanager
def one_type(name: str) -> Iterator[None]:
    """Replace Arrow's errors about the cells of a column by one that names the column."""
    try:
        yield
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"column {name!r}: cannot be read as a column of one type; convert it to numbers or"
            " strings."
        ) from None


def declared(label: str, schema: Any) -> list[RawColumn]:
    """Return the raw columns c0, c1, … of an Arrow schema.

    The names in a file may be invalid UTF-8, which is refused.
    """
    try:
        return [typed(field.name, f"c{index}", field.type) for index, field in enumerate(schema)]
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{label}: the name of a column is not UTF-8; rename it, or write the file again."
        ) from None


def check_names(label: str, names: Sequence[str]) -> None:
    """Raise unless all names are present, free of control characters, and differ without case."""
    if not names:
        raise InvalidInput(f"{label}: has no columns: must have at least one.")
    positions: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise InvalidInput(f"{label}: column {position} has no name; name every column.")
        if any(ord(mark) < 32 or ord(mark) == 127 for mark in name):
            raise InvalidInput(
                f"{label}: the name of column {position} holds a control character; rename it."
            )
        # Positions are shown, not names: without a header the first line is a row.
        other = positions.setdefault(name.casefold(), position)
        if other != position:
            raise InvalidInput(
                f"{label}: columns {other} and {position} have the same name, apart from case:"
                " names must differ; rename one (or is the header line missing?)."
            )


def absent(name: str, label: str, names: Sequence[str]) -> InvalidInput:
    """Return the error about a column that does not exist."""
    shown = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
    return InvalidInput(
        f"column {name!r}: is not in {label}, whose columns are {shown}.{did_you_mean(name, names)}"
    )


def as_double(sql: str) -> str:
    """Return the SQL of a number as a DOUBLE."""
    return f"CAST({sql} AS DOUBLE)"


def is_number(cell: str, cast: str) -> str:
    """Return the SQL of whether ``cell``, whose TRY_CAST is ``cast``, is a finite :data:`NUMBER`.

    It is equivalent to the regular expression (a test compares them) and five times as fast.
    """
    return f"isfinite({cast}) AND NOT contains({cell}, '_') AND NOT starts_with({cell}, '+-')"


def _finite(token: str) -> float | None:
    try:
        value = float(token)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None
