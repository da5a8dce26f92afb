"""PostgreSQL: one snapshot, held by an open transaction; every pass has a connection of its own.

A connection can send one result at a time, and a pass may begin before another has ended; so the
transaction that is opened first exports its snapshot (pg_export_snapshot), and the passes, in
transactions that are REPEATABLE READ and READ ONLY too, take it over. The rows travel as a binary
COPY, batch by batch.
"""

import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa

from expost.data._query import Query
from expost.data._raw import typed
from expost.data._snapshot import Selected, cell, check_columns, wrapped
from expost.errors import InvalidInput, require

__all__ = ["PostgresSnapshot"]

_BATCH_BYTES = str(2**20)
_TYPE = b"POSTGRESQL:type"
# By their SQLSTATE, the longest that fits; the server's own words may quote a cell.
_REASONS = {
    "22": "a cell could not be computed or converted",
    "25006": "the query writes; it must only read",
    "0A000": "the query does what a read-only SELECT cannot",
    "42501": "the user may not read these rows",
    "42601": "the query is not one SELECT that the server understands",
    "42703": "the query names a column that does not exist",
    "42P01": "the query names a table that does not exist",
    "42883": "the query names a function that does not exist",
    "42": "the server does not understand the query",
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
    r"no pg_hba.conf entry": "does not let this user in from here",
    r"too many|remaining connection slots": "has no connection left; try again later",
    r"invalid": "its address holds a part that is not understood",
}


class PostgresSnapshot:
    """The rows of a query, as they were when it was first asked."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._dbapi = require("adbc_driver_postgresql.dbapi", caller="PostgreSQL", extra="postgres")
        holder = self._connect()
        # Closed with the last table that reads from it.
        self._close = weakref.finalize(self, holder.close)
        try:
            self._begin(holder)
        except BaseException:
            # Not when the error is forgotten: an open transaction keeps locks.
            self._close()
            raise

    def _begin(self, holder: Any) -> None:
        query = self._query
        with self._told(), holder.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # It waits, idle, for as long as the passes take.
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            cursor.execute("SELECT pg_export_snapshot()")
            self._name = str(cursor.fetchone()[0])
            schema = cursor.adbc_execute_schema(wrapped(query, ["*"]))
            check_columns(query, schema.names)
            self.columns = tuple(map(self._selected, schema))
            cursor.execute(wrapped(query, ["count(*)"]))
            self.rows = int(cursor.fetchone()[0])

    def _selected(self, field: Any) -> Selected:
        """A column; ``numeric`` is sent as text unless it is cast, keys of other types as text."""
        name, sql = field.name, cell(field.name)
        described = (field.metadata or {}).get(_TYPE, b"").decode() or str(field.type)
        if described == "numeric" and name != self._query.key:
            sql, arrow = f"{sql}::double precision", pa.float64()
        else:
            arrow = field.type
        column = typed(name, sql, arrow)
        kind = "other" if described == "money" else column.type
        if name == self._query.key and kind not in ("integer", "text"):
            sql, arrow, kind = f"{sql}::text", pa.string(), "text"
        elif kind == "text":
            sql, arrow = f"{sql}::text", pa.string()
        return Selected(name=name, sql=sql, type=kind, described=described, arrow=arrow)

    @cached_property
    def order(self) -> str:
        """Whole numbers by their size, all else by its bytes, whatever the server's language."""
        (key,) = (column for column in self.columns if column.name == self._query.key)
        # A UUID's bytes are in the order of its text, and its index can be used.
        plain = key.type == "integer" or key.described == "uuid"
        return cell(key.name) if plain else f'({key.sql}) COLLATE "C"'

    def run(self, sql: str, schema: Any) -> Iterator[Any]:
        """The batches of a SELECT, on a connection that ends with them."""
        with self._told(), self._connect() as connection, connection.cursor() as cursor:
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
    def _told(self) -> Iterator[None]:
        """Say what went wrong in our own words."""
        try:
            yield
        except (self._dbapi.Error, pa.ArrowException, OSError) as error:
            raise InvalidInput(f"{self._query.label}: {_reason(error)}.") from None


def _not_connected(error: Exception) -> str:
    for sign, reason in _CONNECTING.items():
        if re.search(sign, str(error)):
            return reason
    return "cannot be reached; start the server, or mend the address"


def _reason(error: Exception) -> str:
    state = getattr(error, "sqlstate", None) or ""
    for length in (5, 2):
        if state[:length] in _REASONS:
            return f"{_REASONS[state[:length]]} (SQLSTATE {state})"
    if state:
        return f"the server refused the query (SQLSTATE {state})"
    # What breaks off in mid-stream has words only.
    if re.search(_LOST, str(error)):
        return "the connection was lost before the last row; start again"
    return "the server could not compute every row; mend the query"
