"""A source as raw columns of a relation, and the one place that talks to DuckDB.

A raw column is an SQL expression with the type that its source declares. Every relation names its
columns c0, c1, …, so no name a user chose is ever part of an expression.

Every query runs on its own cursor, so that one stream never cuts another short. DuckDB's messages
quote the line they fail on; they are therefore replaced, never passed on.
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
    # Nothing is fetched from the network, and no Python variable is taken for a table.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    # Rows come in the order of the file.
    "preserve_insertion_order": "true",
    # No row is ever spilled into a temporary file.
    "temp_directory": "",
}
_COLUMN = re.compile(r"\bc[0-9]+\b")
# Rows that DuckDB pulls at a time.
_FETCH = 2**14
# The decimal numbers; DuckDB's own cast also takes 1_000, +-1, nan and inf.
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"

# cell: of a CSV file. mixed: text, numbers perhaps, of a source that does not say which; like a
# cell's its kind is found by looking. other: cannot become a feature (dates, lists, binary …).
RawType = Literal["cell", "mixed", "text", "integer", "float", "boolean", "other"]
# A file with its size and time of change.
Stamp = tuple[Path, int, int]


def string(text: str) -> str:
    """``text`` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def glob_quoted(path: Path) -> str:
    """``path`` as an SQL string that DuckDB's globbing reads as this one file."""
    literal = "".join(f"[{mark}]" if mark in "*?[" else mark for mark in str(path.absolute()))
    return string(literal)


@cache
def _connection(process: int) -> Any:
    """One database a process: starting one takes longer than reading a small table.

    A child that was forked starts its own, since DuckDB's threads do not live on in it. Nothing is
    stored in it; a table in memory is registered with the cursor that reads it and no other.
    """
    del process
    return duckdb.connect(":memory:", config=_SETTINGS)


class Feed(Protocol):
    """Rows that come from elsewhere, in one order, each time they are asked for."""

    @property
    def types(self) -> Sequence[Any]:
        """The Arrow types of the columns c0, c1, …; None for those that cannot be used."""

    def batches(self, places: Sequence[int]) -> Iterator[Any]:
        """Arrow record batches whose first columns are these; raises :class:`InvalidInput`."""


class _Pulled:
    """The columns of a feed that a query names, as DuckDB pulls them.

    DuckDB would wrap an error of the feed into one of its own: it is kept as ``fault``.
    """

    def __init__(self, feed: Feed, query: str) -> None:
        self._feed, types = feed, feed.types
        # A token that reads like a column only brings one more than is needed.
        named = {int(name.removeprefix("c")) for name in _COLUMN.findall(query)}
        self._places = sorted(n for n in named if n < len(types) and types[n] is not None)
        # Rows are counted by a column of nothing, where no other is asked for.
        fields = [(f"c{place}", types[place]) for place in self._places]
        self._schema = pa.schema(fields or [("nothing", pa.null())])
        self.fault: InvalidInput | None = None

    def reader(self) -> Any:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[Any]:
        try:
            for batch in self._feed.batches(self._places):
                arrays = batch.columns[: len(self._places)] or [pa.nulls(batch.num_rows)]
                whole = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
                for start in range(0, whole.num_rows, _FETCH):
                    yield whole.slice(start, _FETCH)
        except InvalidInput as fault:
            self.fault = fault
            raise


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Something to select from: an SQL ``FROM`` clause, and what must hold while it is read.

    ``label`` names it in messages; ``arrow`` is the table called ``source`` in ``clause`` where
    the rows are in memory, or the :class:`Feed` that they come from; ``files`` are the files behind
    it, with size and time of change.
    """

    label: str
    clause: str
    arrow: Any = field(default=None, repr=False, compare=False)
    files: tuple[Stamp, ...] = ()

    def one(self, expressions: Sequence[str], *stages: Sequence[str]) -> tuple[Any, ...]:
        """The single row of the aggregate ``expressions``, over the last of the ``stages``.

        A stage is a list of expressions over the stage before it, the first over the relation.
        DuckDB computes each once; aliases used within one ``SELECT`` it would compute again.
        """
        query = self._select(expressions, stages)
        with self._cursor(query) as cursor:
            row: tuple[Any, ...] = cursor.sql(query).fetchall()[0]
        return row

    def batches(
        self, expressions: Sequence[str], *stages: Sequence[str], size: int
    ) -> Iterator[Any]:
        """Arrow record batches of ``expressions``, in order, of at most ``size`` rows."""
        query = self._select(expressions, stages)
        with self._cursor(query) as cursor:
            rows = cursor.sql(query)
            # DuckDB before 1.5 has the other name only.
            read = getattr(rows, "to_arrow_reader", None) or rows.fetch_arrow_reader
            yield from read(size)

    def first_row(self, condition: str, *stages: Sequence[str]) -> int | None:
        """The first row, counted from 1, where ``condition`` holds."""
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
        pulled: _Pulled | None = None
        try:
            with _connection(os.getpid()).cursor() as cursor:
                if isinstance(self.arrow, pa.Table):
                    cursor.register("source", self.arrow)
                elif self.arrow is not None:
                    pulled = _Pulled(self.arrow, query)
                    cursor.register("source", pulled.reader())
                yield cursor
        except RuntimeError as error:
            # What DuckDB makes of Ctrl-C (and of SIGTERM) while a query runs.
            if "interrupted" in str(error).lower():
                raise KeyboardInterrupt from None
            raise
        # What DuckDB streams as Arrow fails with an OSError.
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if pulled is not None and pulled.fault is not None:
                raise pulled.fault from None
            raise InvalidInput(
                f"{self.label}: could not be read to its end ({type(error).__name__}); check the"
                " file, or write it again."
            ) from None


def check_unchanged(stamp: Stamp) -> None:
    """Raise unless a file is as it was when the source was opened."""
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
    """A column as its source has it; ``categorical`` where the source declares it so."""

    name: str
    sql: str
    type: RawType
    described: str
    categorical: bool = False

    def text(self, missing: Sequence[str]) -> str:
        """The cell as text without spaces around it; null if it is one of the ``missing`` tokens.

        A float that is a whole number is written without its point, like an integer.
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
                    f"column {self.name!r}: is of type {self.described}: must be numbers, text or"
                    " booleans; convert it, or leave it out (--drop)."
                )
        for token in missing:
            cell = f"nullif({cell}, {string(token)})"
        return cell

    def number(self, missing: Sequence[str]) -> str:
        """The cell as a DOUBLE, where it is known to be a number or missing."""
        if self.type not in ("integer", "float"):
            return as_double(self.text(missing))
        value = as_double(self.sql)
        for token in map(_finite, missing):
            value = value if token is None else f"nullif({value}, CAST({token!r} AS DOUBLE))"
        return value

    def typed(self, kind: str, missing: Sequence[str]) -> str:
        """The cell as the ``kind`` that its table settled on."""
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

    ``doubtful_header``: a CSV file whose first line may have been a row. ``parquet``: its files can
    be entered anywhere. ``partitions``: (column, its cell in each file), for columns that the names
    of their folders hold. ``key``: the column that a database orders the rows by.
    """

    relation: Relation
    columns: tuple[RawColumn, ...]
    rows: int
    doubtful_header: bool = False
    parquet: bool = False
    partitions: tuple[tuple[str, tuple[str | None, ...]], ...] = ()
    key: str | None = None

    def __getitem__(self, name: str) -> RawColumn:
        """The column called ``name``."""
        return next(column for column in self.columns if column.name == name)


def plain(array: Any) -> Any:
    """``array`` in a type that DuckDB scans: no dictionaries, half floats or wide decimals."""
    type_ = array.type
    if pa.types.is_dictionary(type_):
        array = array.cast(type_.value_type)
        type_ = array.type
    if pa.types.is_null(type_):
        return array.cast(pa.string())
    if pa.types.is_decimal(type_):
        # Arrow's own cast multiplies by a power of ten, and is not the nearest number.
        return array.cast(pa.string()).cast(pa.float64())
    if pa.types.is_float16(type_):
        return array.cast(pa.float64())
    if pa.types.is_string_view(type_):
        return array.cast(pa.large_string())
    return array


def typed(name: str, sql: str, type_: Any) -> RawColumn:
    """The raw column that an Arrow type declares."""
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
    """Turn what Arrow raises for the cells of a column into a sentence that names it."""
    try:
        yield
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"column {name!r}: cannot be read as a column of one type; convert it to numbers or"
            " text."
        ) from None


def declared(label: str, schema: Any) -> list[RawColumn]:
    """The raw columns c0, c1, … of an Arrow schema, whose names need not be text where it is read
    from a file."""
    try:
        return [typed(field.name, f"c{index}", field.type) for index, field in enumerate(schema)]
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{label}: the name of a column is not UTF-8 text; rename it, or write it again."
        ) from None


def check_names(label: str, names: Sequence[str]) -> None:
    """Names are present, free of control characters, and differ in more than their case."""
    if not names:
        raise InvalidInput(f"{label}: has no columns: must have at least one.")
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise InvalidInput(f"{label}: column {position} has no name; name every column.")
        if any(ord(mark) < 32 or ord(mark) == 127 for mark in name):
            raise InvalidInput(
                f"{label}: the name of column {position} holds a control character; rename it."
            )
        # Positions, not names: without a header the first line is a row.
        other = seen.setdefault(name.casefold(), position)
        if other != position:
            raise InvalidInput(
                f"{label}: columns {other} and {position} have the same name, but for case at most:"
                " names must differ; rename one (or is the header line missing?)."
            )


def absent(name: str, label: str, names: Sequence[str]) -> InvalidInput:
    """The error about a column that is not there."""
    shown = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
    return InvalidInput(
        f"column {name!r}: is not in {label}, whose columns are {shown}.{did_you_mean(name, names)}"
    )


def as_double(sql: str) -> str:
    """A cell that is a number, as float64."""
    return f"CAST({sql} AS DOUBLE)"


def is_number(cell: str, cast: str) -> str:
    """Whether the text ``cell``, whose TRY_CAST is ``cast``, is a finite :data:`NUMBER`.

    Equal to the regular expression (a test compares them) and five times as fast.
    """
    return f"isfinite({cast}) AND NOT contains({cell}, '_') AND NOT starts_with({cell}, '+-')"


def _finite(token: str) -> float | None:
    try:
        value = float(token)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None
