"""SQLite: one read transaction on one read-only connection, for all passes.

A cell of SQLite has a class of its own, whatever its column declares. A column whose cells are all
of one class, or all numbers, has that type; one of several classes is text that is looked at as the
cells of a CSV file are.
"""

import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from expost.data._query import SQLITE_MARK, Query
from expost.data._raw import RawType
from expost.data._snapshot import Selected, cell, check_columns, wrapped
from expost.errors import InvalidInput

__all__ = ["SqliteSnapshot"]

_FETCH = 2**12
_EXACT = 2**53
_CLASSES = ("integer", "real", "text", "blob")
_REASONS = {
    "no such table": "the query names a table that does not exist",
    "no such column": "the query names a column that does not exist",
    "no such function": "the query names a function that does not exist",
    "syntax error": "the query is not one SELECT that SQLite understands",
    "incomplete input": "the query is not one SELECT that SQLite understands",
    "locked": "another program is writing to the database; try again",
    "decode": "a text is not UTF-8; convert it in the query",
    "malformed": "is damaged; restore it from a copy",
    "not a database": "is not an SQLite database",
    "readonly": "the query writes; it must only read",
}


class SqliteSnapshot:
    """The rows of a query, as they were when it was first asked."""

    def __init__(self, query: Query) -> None:
        self._query = query
        _check_file(query)
        with self._told():
            address = f"file:{quote(str(query.path.absolute()))}?mode=ro"
            # One connection for the threads that pull from it: SQLite makes them wait in turn.
            self._connection = sqlite3.connect(
                address, uri=True, isolation_level=None, check_same_thread=False
            )
            self._close = weakref.finalize(self, self._connection.close)
            self._connection.execute("PRAGMA query_only = 1")
            # Rows are sorted in memory if no index orders them, never in a file.
            self._connection.execute("PRAGMA temp_store = memory")
            self._connection.execute("BEGIN")
            found = self._connection.execute(wrapped(query, ["*"], "LIMIT 0")).description
            names = [str(entry[0]) for entry in found]
            check_columns(query, names)
            self.rows, self.columns = self._looked(names)

    @property
    def order(self) -> str:
        """The key, a text by its bytes."""
        return f"{cell(str(self._query.key))} COLLATE BINARY"

    def run(self, sql: str, schema: Any) -> Iterator[Any]:
        """The batches of a SELECT."""
        with self._told():
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

    def _looked(self, names: Sequence[str]) -> tuple[int, tuple[Selected, ...]]:
        """The number of rows, and every column after one look at the classes of its cells."""
        counts = ["count(*)"]
        for name in names:
            kind = f"typeof({cell(name)})"
            counts += [f"coalesce(sum({kind} = '{each}'), 0)" for each in _CLASSES]
            counts.append(
                f"coalesce(sum({kind} = 'integer'"
                f" AND {cell(name)} NOT BETWEEN -{_EXACT} AND {_EXACT}), 0)"
            )
        # Few columns at a time: SQLite limits the columns of a result.
        found: list[int] = []
        for start in range(0, len(counts), 1_000):
            part = counts[start : start + 1_000]
            found += self._connection.execute(wrapped(self._query, part)).fetchone()
        width = len(_CLASSES) + 1
        columns = [
            self._selected(name, *found[1 + width * place : 1 + width * (place + 1)])
            for place, name in enumerate(names)
        ]
        return found[0], tuple(columns)

    def _selected(
        self, name: str, integers: int, reals: int, texts: int, blobs: int, long: int
    ) -> Selected:
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
            # An integer that float64 rounds would not be noticed among its numbers.
            kind = "mixed" if long else "float"
        elif integers:
            kind = "integer"
        if name == self._query.key and kind not in ("integer", "text"):
            raise InvalidInput(
                f"{self._query.label}, id column {name!r}: holds cells of several types, or no"
                " integers and no text: must be all integers or all text; cast it in the query."
            )
        return Selected(
            name=name,
            sql=cell(name),
            type=kind,
            described="blob" if blobs else kind,
            arrow=kinds.get(kind, pa.string()),
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say what went wrong in our own words: SQLite's may quote a cell."""
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning, pa.ArrowException, UnicodeError) as error:
            words = str(error)
            reason = next(
                (reason for sign, reason in _REASONS.items() if sign in words),
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
    """Cells of any class as text, where that is what the column holds."""
    return [_text(each) for each in cells] if pa.types.is_string(field.type) else cells


def _text(value: Any) -> str | None:
    """A number as it is written in a CSV file, a whole one without its point."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        value = int(value)
    return repr(value)
