"""The one place that talks to DuckDB.

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
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from expost.errors import InvalidInput

__all__ = ["Feed", "Relation", "glob_quoted", "identifier", "string"]

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

    def schema(self, names: Sequence[str]) -> Any:
        """The Arrow schema of those of the columns ``names`` (c0, c1, …) that it has."""

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Arrow record batches of these columns; raises :class:`InvalidInput`."""


class _Pulled:
    """A feed as DuckDB pulls it, which would wrap an error into one of its own: kept here."""

    def __init__(self, feed: Feed, names: Sequence[str]) -> None:
        self._feed, self._names = feed, names
        self.fault: InvalidInput | None = None

    def reader(self) -> Any:
        return pa.RecordBatchReader.from_batches(self._feed.schema(self._names), self._batches())

    def _batches(self) -> Iterator[Any]:
        try:
            yield from self._feed.batches(self._names)
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
    files: tuple[tuple[Path, int, int], ...] = ()

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
        for batch in self.batches([f"coalesce({condition}, false)"], *stages, size=2**14):
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
        self._check_unchanged()
        pulled: _Pulled | None = None
        try:
            with _connection(os.getpid()).cursor() as cursor:
                if isinstance(self.arrow, pa.Table):
                    cursor.register("source", self.arrow)
                elif self.arrow is not None:
                    # A token that reads like a column only brings one more than is needed.
                    pulled = _Pulled(self.arrow, sorted(set(_COLUMN.findall(query))))
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

    def _check_unchanged(self) -> None:
        for path, size, changed in self.files:
            try:
                status = path.stat()
            except OSError as error:
                raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
            if (status.st_size, status.st_mtime_ns) != (size, changed):
                raise InvalidInput(f"{path}: changed while it was being read; start again.")
