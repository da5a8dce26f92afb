"""What a database shows of a query for as long as a run lasts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from expost.data._duck import identifier
from expost.data._query import Query
from expost.data._raw import RawType, absent, check_names

__all__ = ["Selected", "Snapshot", "cell", "check_columns", "wrapped"]


@dataclass(frozen=True, kw_only=True)
class Selected:
    """A column of a query: the SQL of its cell, and the Arrow type that the cell arrives in."""

    name: str
    sql: str
    type: RawType
    described: str
    arrow: Any = field(repr=False)


class Snapshot(Protocol):
    """The rows of one query, the same in every pass.

    ``order``  the SQL that the rows are ordered by: the key, as its bytes or as a whole number.
    """

    @property
    def columns(self) -> tuple[Selected, ...]:
        """Its columns."""

    @property
    def order(self) -> str:
        """What the rows are ordered by."""

    @property
    def rows(self) -> int:
        """How many rows there are."""

    def run(self, sql: str, schema: Any) -> Iterator[Any]:
        """Arrow record batches of a SELECT; raises :class:`~expost.errors.InvalidInput`."""


def wrapped(query: Query, expressions: Sequence[str], end: str = "") -> str:
    """``expressions`` over the rows of ``query``; a comment at its end ends with the line."""
    return f"SELECT {', '.join(expressions)} FROM (\n{query.statement}\n) AS q {end}".rstrip()


def cell(name: str) -> str:
    """The cell of a column of :func:`wrapped`."""
    return f"q.{identifier(name)}"


def check_columns(query: Query, names: Sequence[str]) -> None:
    """Names are fit to be used, and the key is one of them."""
    check_names(query.label, names)
    if query.key not in names:
        raise absent(str(query.key), query.label, names)
