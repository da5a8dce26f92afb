"""Rows of a database as a feed: each pass runs the query again and returns the same rows.

Every pass is one SELECT around the user's, ordered by the key, fetched in batches. Each key must be
greater than the one before, so that no key is missing or repeated; no set of all keys is needed.
Messages of a database quote cells and addresses; they are replaced, never passed on.
"""

import re
import sqlite3
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from expost.data._cells import RawColumn, RawType, absent, check_names, trimmed, typed
from expost.data._feeds import Origin, StreamFeed
from expost.data._query import SQLITE_MARK, Query
from expost.errors import InvalidInput, require

__all__ = ["database"]


@dataclass(frozen=True, kw_only=True)
class _Selected:
    """A column of a query: the SQL of its cell, and the Arrow type of the received cell."""

    name: str
    sql: str
    type: RawType
    described: str
    arrow: Any = field(repr=False)


class _Snapshot(ABC):
    """The rows of one query, the same in every pass."""

    columns: tuple[_Selected, ...]
    rows: int

    def __init__(self, query: Query) -> None:
        self._query = query

    @property
    @abstractmethod
    def order(self) -> str:
        """The SQL that the rows are ordered by: the key, as its bytes or as an integer."""

    @abstractmethod
    def run(self, sql: str, schema: Any) -> Iterator[Any]:
        """Yield the Arrow record batches of a SELECT; raise :class:`InvalidInput` on an error."""

    @property
    def key(self) -> _Selected:
        """The column that the rows are ordered by."""
        return next(column for column in self.columns if column.name == self._query.key)

    def batches(self, indices: Sequence[int], first: bool) -> Iterator[Any]:
        """Yield the rows in the order of the key, which is checked and is the last column."""
        query = self._query
        chosen = [*(self.columns[index] for index in indices), self.key]
        sql = _wrapped(query, [column.sql for column in chosen], f"ORDER BY {self.order}")
        schema = pa.schema([(f"c{index}", column.arrow) for index, column in enumerate(chosen)])
        check = _Increasing(f"{query.label}, id column {query.key!r}")
        for batch in self.run(sql, schema):
            try:
                batch.validate(full=True)
            except pa.ArrowException:
                raise InvalidInput(
                    f"{query.label}: a string is not UTF-8; convert it in the query."
                ) from None
            check.add(batch.column(len(indices)))
            yield batch


def _wrapped(query: Query, expressions: Sequence[str], end: str = "") -> str:
    """Return the SELECT of ``expressions`` over the rows of ``query``.

    The query has its own lines: a comment at its end must not comment out the rest.
    """
    return f"SELECT {', '.join(expressions)} FROM (\n{query.statement}\n) AS q {end}".rstrip()


def _cell(name: str) -> str:
    """Return the SQL of the cell of a column of :func:`_wrapped`."""
    quoted = name.replace('"', '""')
    return f'q."{quoted}"'


def _check_columns(query: Query, names: Sequence[str]) -> None:
    """Raise unless the names are valid and the key is one of them."""
    check_names(query.label, names)
    if query.key not in names:
        raise absent(str(query.key), query.label, names)


def database(query: Query) -> Origin:
    """Return the rows of a query, in the order of its key."""
    snapshot: _Snapshot = _Postgres(query) if query.kind == "postgresql" else _Sqlite(query)
    columns = tuple(
        RawColumn(name=column.name, type=column.type, described=column.described)
        for column in snapshot.columns
    )
    return Origin(
        label=query.label,
        feed=StreamFeed(label=query.label, batches=snapshot.batches),
        columns=columns,
        rows=snapshot.rows,
        key=query.key,
    )


class _Increasing:
    """A check that every key, an integer or a string, is greater than the one before."""

    def __init__(self, label: str) -> None:
        self._label, self._checked = label, 0
        self._last: Any = None

    def add(self, keys: Any) -> None:
        """Check the keys of the next rows."""
        if keys.null_count:
            row = self._checked + pc.index(keys.is_null(), True).as_py() + 1
            raise InvalidInput(f"{self._label}, row {row}: is missing: every row must have an id.")
        if pa.types.is_string(keys.type):
            keys = trimmed(keys)  # as ids are compared
        if self._last is not None and len(keys):
            keys = pa.concat_arrays([self._last, keys])
        before, after = keys.slice(0, len(keys) - 1), keys.slice(1)
        if len(keys) > 1:
            index = pc.index(pc.greater(after, before), False).as_py()
            if index >= 0:
                row = self._checked + index + (1 if self._last is not None else 2)
                raise InvalidInput(
                    f"{self._label}, row {row}: {_order_fault(before[index], after[index])}"
                )
        self._checked += len(keys) - (self._last is not None and len(keys) > 0)
        self._last = keys.slice(len(keys) - 1) if len(keys) else self._last


def _order_fault(before: Any, after: Any) -> str:
    if before.equals(after):
        return (
            "repeats the id of another row: it must be different in each; name another column, or"
            " fix the query."
        )
    return "is out of order without the spaces around it; trim it in the query."


# -- PostgreSQL -----------------------------------------------------------------------------------

_BATCH_BYTES = str(2**20)
_TYPE = b"POSTGRESQL:type"
# Reasons by SQLSTATE, the longest match first; the server's own message may quote a cell.
_STATES = {
    "22": "a cell could not be computed or converted",
    "25006": "the query writes; it must only read",
    "0A000": "the query uses a feature that a read-only SELECT does not have",
    "42501": "the user may not read these rows",
    "42601": "the query is not one SELECT that is valid",
    "42703": "the query names a column that does not exist",
    "42P01": "the query names a table that does not exist",
    "42883": "the query names a function that does not exist",
    "42": "the query is not valid",
    "53": "the server has too few resources",
    "57": "the server ended the connection or the query",
    "08": "the connection was lost",
}
_LOST = r"terminating|closed the connection|no connection|receive data|no COPY in progress"
_CONNECTING = {
    r"password authentication failed": "the user or the password is wrong",
    r"no password supplied": "needs a password: set PGPASSWORD, or write it into ~/.pgpass",
    r"role .* does not exist": "has no such user",
    r"database .* does not exist": "has no such database",
    r"no pg_hba.conf entry": "does not accept this user from this host",
    r"too many|remaining connection slots": "has no connection left; try again later",
    r"invalid": "its address has a part that is not valid",
}


class _Postgres(_Snapshot):
    """A snapshot of PostgreSQL, held by an open transaction; every pass has its own connection.

    A connection can send one result at a time, and a pass may start before another has ended. The
    first transaction therefore exports its snapshot (pg_export_snapshot), and the transactions of
    the passes, which are REPEATABLE READ and READ ONLY too, use it. The rows are sent as a binary
    COPY, in batches.
    """

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self._dbapi = require("adbc_driver_postgresql.dbapi", caller="PostgreSQL", extra="postgres")
        holder = self._connect()
        # Closed with the last table that reads from it.
        self._close = weakref.finalize(self, holder.close)
        try:
            self._begin(holder)
        except BaseException:
            # Closed now, not when the error is collected: an open transaction keeps locks.
            self._close()
            raise

    def _begin(self, holder: Any) -> None:
        query = self._query
        with self._translated_errors(), holder.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # The transaction is idle during all passes.
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            cursor.execute("SELECT pg_export_snapshot()")
            self._name = str(cursor.fetchone()[0])
            schema = cursor.adbc_execute_schema(_wrapped(query, ["*"]))
            _check_columns(query, schema.names)
            self.columns = tuple(map(self._selected, schema))
            cursor.execute(_wrapped(query, ["count(*)"]))
            self.rows = int(cursor.fetchone()[0])

    def _selected(self, field: Any) -> _Selected:
        """Return a column; ``numeric`` is cast to double, keys of other types to strings."""
        name, sql = field.name, _cell(field.name)
        described = (field.metadata or {}).get(_TYPE, b"").decode() or str(field.type)
        if described == "numeric" and name != self._query.key:
            sql, arrow = f"{sql}::double precision", pa.float64()
        else:
            arrow = field.type
        column = typed(name, arrow)
        kind = "other" if described == "money" else column.type
        if name == self._query.key and kind not in ("integer", "text"):
            sql, arrow, kind = f"{sql}::text", pa.string(), "text"
        elif kind == "text":
            sql, arrow = f"{sql}::text", pa.string()
        return _Selected(name=name, sql=sql, type=kind, described=described, arrow=arrow)

    @property
    def order(self) -> str:
        """The key: integers by size, others by their bytes, independent of the server's locale."""
        key = self.key
        # The bytes of a UUID are in the order of its string, and its index can be used.
        plain = key.type == "integer" or key.described == "uuid"
        return _cell(key.name) if plain else f'({key.sql}) COLLATE "C"'

    def run(self, sql: str, schema: Any) -> Iterator[Any]:
        """Yield the batches of a SELECT, on a connection of its own."""
        with (
            self._translated_errors(),
            self._connect() as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute(f"SET TRANSACTION SNAPSHOT '{self._name}'")
            cursor.adbc_statement.set_options(
                **{"adbc.postgresql.batch_size_hint_bytes": _BATCH_BYTES}
            )
            cursor.execute(sql)
            for batch in cursor.fetch_record_batch():
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def _connect(self) -> Any:
        try:
            connection = self._dbapi.connect(self._query.url)
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL client_encoding = 'UTF8'")
        except self._dbapi.Error as error:
            raise InvalidInput(f"{self._query.name}: {_not_connected(error)}.") from None
        return connection

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Replace the messages of the database, which may quote a cell."""
        try:
            yield
        except (self._dbapi.Error, pa.ArrowException, OSError) as error:
            raise InvalidInput(f"{self._query.label}: {_reason(error)}.") from None


def _not_connected(error: Exception) -> str:
    for pattern, reason in _CONNECTING.items():
        if re.search(pattern, str(error)):
            return reason
    return "cannot be reached; start the server, or fix the address"


def _reason(error: Exception) -> str:
    state = getattr(error, "sqlstate", None) or ""
    for length in (5, 2):
        if state[:length] in _STATES:
            return f"{_STATES[state[:length]]} (SQLSTATE {state})"
    if state:
        return f"the server refused the query (SQLSTATE {state})"
    # Errors in the middle of a stream have a message only.
    if re.search(_LOST, str(error)):
        return "the connection was lost before the last row; start again"
    return "the server could not compute every row; fix the query"


# -- SQLite ---------------------------------------------------------------------------------------

_FETCH = 2**12
_EXACT = 2**53
_CLASSES = ("integer", "real", "text", "blob")
_REASONS = {
    "no such table": "the query names a table that does not exist",
    "no such column": "the query names a column that does not exist",
    "no such function": "the query names a function that does not exist",
    "syntax error": "the query is not one SELECT that is valid in SQLite",
    "incomplete input": "the query is not one SELECT that is valid in SQLite",
    "locked": "another program is writing to the database; try again",
    "decode": "a string is not UTF-8; convert it in the query",
    "malformed": "is damaged; restore it from a copy",
    "not a database": "is not an SQLite database",
    "readonly": "the query writes; it must only read",
}


class _Sqlite(_Snapshot):
    """A snapshot of SQLite: one read transaction on one read-only connection, for all passes.

    Each cell of SQLite has its own class, independent of the declaration of its column. A column
    whose cells are all of one class, or all numbers, has that type. A column of several classes is
    read as strings, like the cells of a CSV file.
    """

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        _check_file(query)
        with self._translated_errors():
            address = f"file:{quote(str(query.path.absolute()))}?mode=ro"
            # One connection for all threads: SQLite serialises them.
            self._connection = sqlite3.connect(
                address, uri=True, isolation_level=None, check_same_thread=False
            )
            self._close = weakref.finalize(self, self._connection.close)
            self._connection.execute("PRAGMA query_only = 1")
            # Rows without an index in their order are sorted in memory, never in a file.
            self._connection.execute("PRAGMA temp_store = memory")
            self._connection.execute("BEGIN")
            header = self._connection.execute(_wrapped(query, ["*"], "LIMIT 0")).description
            names = [str(entry[0]) for entry in header]
            _check_columns(query, names)
            self.rows, self.columns = self._scan(names)

    @property
    def order(self) -> str:
        """The key, a string by its bytes."""
        return f"{_cell(str(self._query.key))} COLLATE BINARY"

    def run(self, sql: str, schema: Any) -> Iterator[Any]:
        """Yield the batches of a SELECT."""
        with self._translated_errors():
            cursor = self._connection.execute(sql)
            try:
                while rows := cursor.fetchmany(_FETCH):
                    arrays = [
                        pa.array(_converted(cells, field), type=field.type)
                        for cells, field in zip(zip(*rows, strict=True), schema, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            finally:
                cursor.close()

    def _scan(self, names: Sequence[str]) -> tuple[int, tuple[_Selected, ...]]:
        """Return the number of rows, and the columns, typed by the classes of their cells."""
        expressions = ["count(*)"]
        for name in names:
            kind = f"typeof({_cell(name)})"
            expressions += [f"coalesce(sum({kind} = '{cell_class}'), 0)" for cell_class in _CLASSES]
            expressions.append(
                f"coalesce(sum({kind} = 'integer'"
                f" AND {_cell(name)} NOT BETWEEN -{_EXACT} AND {_EXACT}), 0)"
            )
        # In several queries: SQLite limits the columns of a result.
        counts: list[int] = []
        for start in range(0, len(expressions), 1_000):
            part = expressions[start : start + 1_000]
            counts += self._connection.execute(_wrapped(self._query, part)).fetchone()
        width = len(_CLASSES) + 1
        columns = [
            self._selected(name, *counts[1 + width * index : 1 + width * (index + 1)])
            for index, name in enumerate(names)
        ]
        return counts[0], tuple(columns)

    def _selected(
        self, name: str, integers: int, reals: int, texts: int, blobs: int, long: int
    ) -> _Selected:
        kinds: dict[RawType, Any] = {
            "integer": pa.int64(),
            "float": pa.float64(),
            "other": pa.binary(),
        }
        kind: RawType = "text"
        if blobs:
            kind = "other"
        elif texts:
            kind = "mixed" if integers or reals else "text"
        elif reals:
            # As floats, integers that float64 cannot represent would be rounded silently.
            kind = "mixed" if long else "float"
        elif integers:
            kind = "integer"
        if name == self._query.key and kind not in ("integer", "text"):
            raise InvalidInput(
                f"{self._query.label}, id column {name!r}: holds several types: must be all"
                " integers or all strings; cast it in the query."
            )
        return _Selected(
            name=name,
            sql=_cell(name),
            type=kind,
            described="blob" if blobs else kind,
            arrow=kinds.get(kind, pa.string()),
        )

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Replace the messages of SQLite, which may quote a cell."""
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning, pa.ArrowException, UnicodeError) as error:
            message = str(error)
            reason = next(
                (reason for pattern, reason in _REASONS.items() if pattern in message),
                f"could not be read to its end ({type(error).__name__})",
            )
            raise InvalidInput(f"{self._query.label}: {reason}.") from None


def _check_file(query: Query) -> None:
    try:
        with query.path.open("rb") as file:
            mark = file.read(len(SQLITE_MARK))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is not a file name"
        raise InvalidInput(f"{query.name}: cannot be read ({reason}).") from None
    if mark != SQLITE_MARK:
        raise InvalidInput(f"{query.name}: is not an SQLite database.")


def _converted(cells: Sequence[Any], field: Any) -> Sequence[Any]:
    """Return the cells of a string column as strings, other cells unchanged."""
    return list(map(_string, cells)) if pa.types.is_string(field.type) else cells


def _string(value: Any) -> str | None:
    """Return a cell as a string: a number as in a CSV file, an integer without a point."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        value = int(value)
    return repr(value)
