"""Rows of a database as a feed: each pass runs the query again, and sees the same rows.

Every pass is one SELECT around the user's, ordered by the key, fetched a batch at a time. The key
is checked as it passes: each must be greater than the one before, so that none is missing or comes
twice, without a set of all keys. Messages of a database quote cells and addresses; they are
replaced, never passed on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from expost.data._duck import Relation
from expost.data._postgres import PostgresSnapshot
from expost.data._query import Query
from expost.data._raw import Origin, RawColumn
from expost.data._snapshot import Snapshot, wrapped
from expost.data._sqlite import SqliteSnapshot
from expost.errors import InvalidInput

__all__ = ["DatabaseFeed", "database"]


def database(query: Query) -> Origin:
    """The rows of a query, in the order of its key."""
    snapshot: Snapshot = (
        PostgresSnapshot(query) if query.kind == "postgresql" else SqliteSnapshot(query)
    )
    columns = tuple(
        RawColumn(name=column.name, sql=f"c{index}", type=column.type, described=column.described)
        for index, column in enumerate(snapshot.columns)
    )
    feed = DatabaseFeed(query=query, snapshot=snapshot)
    return Origin(
        relation=Relation(label=query.label, clause="source", arrow=feed),
        columns=columns,
        rows=snapshot.rows,
        key=query.key,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class DatabaseFeed:
    """Passes over a snapshot."""

    query: Query
    snapshot: Snapshot

    def schema(self, names: Sequence[str]) -> Any:
        """The columns asked for, and the key last."""
        fields = [
            (name, self.snapshot.columns[self._place(name)].arrow) for name in self._of(names)
        ]
        return pa.schema([*fields, ("key", self.snapshot.columns[self._key].arrow)])

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """The rows in the order of the key, which is checked."""
        chosen = [*map(self._place, self._of(names)), self._key]
        cells = [self.snapshot.columns[place].sql for place in chosen]
        sql = wrapped(self.query, cells, f"ORDER BY {self.snapshot.order}")
        check = _Increasing(f"{self.query.label}, id column {self.query.key!r}")
        for batch in self.snapshot.run(sql, self.schema(names)):
            try:
                batch.validate(full=True)
            except pa.ArrowException:
                raise InvalidInput(
                    f"{self.query.label}: sent text that is not UTF-8; convert it in the query."
                ) from None
            check.see(batch.column(batch.num_columns - 1))
            yield batch

    @cached_property
    def _key(self) -> int:
        return [column.name for column in self.snapshot.columns].index(str(self.query.key))

    def _of(self, names: Sequence[str]) -> list[str]:
        """Those of ``names`` that are columns and can be sent."""
        columns = self.snapshot.columns
        return [
            name
            for name in names
            if self._place(name) < len(columns) and columns[self._place(name)].type != "other"
        ]

    def _place(self, name: str) -> int:
        return int(name.removeprefix("c"))


class _Increasing:
    """Every key is greater than the one before: whole numbers, or the bytes of a text."""

    def __init__(self, label: str) -> None:
        self._label, self._seen = label, 0
        self._last: Any = None

    def see(self, keys: Any) -> None:
        """The keys of the next rows."""
        if keys.null_count:
            row = self._seen + pc.index(keys.is_null(), True).as_py() + 1
            raise InvalidInput(f"{self._label}, row {row}: is missing: every row must have an id.")
        if pa.types.is_string(keys.type):
            keys = pc.utf8_trim(keys, " ")  # as ids are compared
        if self._last is not None and len(keys):
            keys = pa.concat_arrays([self._last, keys])
        before, after = keys.slice(0, len(keys) - 1), keys.slice(1)
        if len(keys) > 1:
            place = pc.index(pc.greater(after, before), False).as_py()
            if place >= 0:
                row = self._seen + place + (1 if self._last is not None else 2)
                raise InvalidInput(
                    f"{self._label}, row {row}: {_fault(before[place], after[place])}"
                )
        self._seen += len(keys) - (self._last is not None and len(keys) > 0)
        self._last = keys.slice(len(keys) - 1) if len(keys) else self._last


def _fault(before: Any, after: Any) -> str:
    if before.equals(after):
        return (
            "repeats the id of another row: it must be different in each; name another column, or"
            " mend the query."
        )
    return "is out of order without the spaces around it; trim it in the query."
