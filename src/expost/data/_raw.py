"""A source as raw columns of a relation: SQL expressions with the types that it declares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from expost.data._duck import Relation
from expost.errors import InvalidInput

__all__ = ["Origin", "RawColumn", "RawType", "absent", "check_names", "declared", "plain", "typed"]

# cell: of a CSV file. mixed: text, numbers perhaps, of a source that does not say which; like a
# cell's its kind is found by looking. other: cannot become a feature (dates, lists, binary …).
RawType = Literal["cell", "mixed", "text", "integer", "float", "boolean", "other"]


@dataclass(frozen=True, kw_only=True)
class RawColumn:
    """A column as its source has it; ``categorical`` where the source declares it so."""

    name: str
    sql: str
    type: RawType
    described: str
    categorical: bool = False


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
    return InvalidInput(f"column {name!r}: is not in {label}, whose columns are {shown}.")
