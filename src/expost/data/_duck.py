"""The one place that talks to DuckDB.

Every query runs on its own cursor, so that one stream never cuts another short. DuckDB's messages
quote the line they fail on; they are therefore replaced, never passed on.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from expost.errors import InvalidInput

__all__ = ["Relation", "glob_quoted", "identifier", "string"]

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


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Something to select from: an SQL ``FROM`` clause, and what must hold while it is read.

    ``label`` names it in messages; ``arrow`` is the table called ``source`` in ``clause`` where
    the rows are in memory; ``files`` are the files behind it, with size and time of change.
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
        with self._cursor() as cursor:
            row: tuple[Any, ...] = cursor.sql(self._select(expressions, stages)).fetchall()[0]
        return row

    def batches(
        self, expressions: Sequence[str], *stages: Sequence[str], size: int
    ) -> Iterator[Any]:
        """Arrow record batches of ``expressions``, in order, of at most ``size`` rows."""
        with self._cursor() as cursor:
            rows = cursor.sql(self._select(expressions, stages))
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
    def _cursor(self) -> Iterator[Any]:
        self._check_unchanged()
        try:
            with _connection(os.getpid()).cursor() as cursor:
                if self.arrow is not None:
                    cursor.register("source", self.arrow)
                yield cursor
        except (duckdb.Error, pa.ArrowException) as error:
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
