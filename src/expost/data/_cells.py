"""Raw columns: the cells that a source has, and their values as numbers or as trimmed strings.

All functions are pure, from an Arrow array to an Arrow array of the same length.

Conventions
-----------
string    without the spaces around it; null where it is one of the tokens of a missing cell. An
          integral float has no point, like an integer; other floats have their shortest digits.
number    the nearest float64 of a decimal number (:data:`NUMBER`): no 1_000, nan or inf.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost._checks import did_you_mean
from expost.errors import InvalidInput
from expost.types import FloatArray, IntArray

__all__ = ["LONGEST", "NUMBER", "Kind", "RawColumn", "RawType", "absent", "check_names"]
__all__ += ["booleans", "declared", "floats", "is_number", "one_type", "parsed", "plain"]
__all__ += ["string_bytes", "trimmed", "typed", "valid"]

# The decimal numbers.
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
# Integers up to here are exact in float64.
LONGEST = 2**53
# Unicode's separators of words (Zs).
_SPACE = ord(" ")
_SPACES = "".join([" \xa0\u1680", *map(chr, range(0x2000, 0x200B)), "\u202f\u205f\u3000"])

# cell: of a CSV file. mixed: strings that may be numbers, of a source that does not declare it; the
# kind of both follows from all cells. other: cannot become a feature (dates, lists, binary …).
RawType = Literal["cell", "mixed", "text", "integer", "float", "boolean", "other"]
Kind = Literal["numeric", "text", "boolean"]


@dataclass(frozen=True, kw_only=True)
class RawColumn:
    """A column of a source; ``categorical`` if the source declares it so."""

    name: str
    type: RawType
    described: str
    categorical: bool = False

    @property
    def is_numeric(self) -> bool:
        """Whether the source declares numbers."""
        return self.type in ("integer", "float")

    def check_usable(self) -> None:
        """Refuse a type that cannot become a feature."""
        if self.type == "other":
            raise InvalidInput(
                f"column {self.name!r}: is of type {self.described}: must be numbers, strings"
                " or booleans; convert it, or leave it out (--drop)."
            )

    def text(self, cells: Any, missing: Sequence[str]) -> Any:
        """Return the cells as trimmed strings; null for the ``missing`` tokens."""
        self.check_usable()
        match self.type:
            case "float":
                strings = _float_text(cells)
            case "integer" | "boolean":
                strings = cells.cast(pa.string())
            case _:
                strings = trimmed(
                    cells if pa.types.is_string(cells.type) else cells.cast(pa.string())
                )
        return _without(strings, pa.array(missing, pa.string()))

    def number(self, cells: Any, missing: Sequence[str]) -> Any:
        """Return the cells as float64; each must be a number or missing."""
        if not self.is_numeric:
            strings = self.text(cells, missing)
            try:
                return parsed(strings)
            except pa.ArrowInvalid:
                raise InvalidInput(
                    f"column {self.name!r}: a cell is no number any more: the table changed while"
                    " it was being read; start again."
                ) from None
        # Not safe: integers past 2**53 are refused when a table is opened.
        is_float = pa.types.is_float64(cells.type)
        values = cells if is_float else cells.cast(pa.float64(), safe=False)
        tokens = [token for token in map(_finite, missing) if token is not None]
        return _without(values, pa.array(tokens, pa.float64())) if tokens else values

    def typed(self, cells: Any, kind: Kind, missing: Sequence[str]) -> Any:
        """Return the cells as the ``kind`` that their table has determined."""
        match kind:
            case "numeric":
                return self.number(cells, missing)
            case "text":
                return self.text(cells, missing)
            case "boolean":
                return cells


def trimmed(strings: Any) -> Any:
    """Return ``strings`` without the spaces around them, and the same array if there are none."""
    offsets, content = string_bytes(strings)
    if content.max(initial=0) >= 128:
        return pc.utf8_trim(strings, _SPACES)
    held = offsets[:-1] < offsets[1:]
    starts, ends = offsets[:-1][held], offsets[1:][held] - 1
    around = np.any(content[starts] == _SPACE) or np.any(content[ends] == _SPACE)
    return pc.ascii_trim(strings, " ") if around else strings


# -- Arrow arrays as NumPy arrays; Arrow's own conversions import pandas where it is installed -----


def string_bytes(strings: Any) -> tuple[IntArray, NDArray[np.uint8]]:
    """Return the offsets (n + 1,) of an array of strings, from 0 on, and the bytes of all."""
    _, offsets, content = strings.buffers()
    if not len(strings) or offsets is None:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    held = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return ends.astype(np.int64) - ends[0], held[ends[0] : ends[-1]]


def valid(array: Any) -> NDArray[np.bool_]:
    """Return which cells are not null."""
    bits = array.buffers()[0]
    if not array.null_count or bits is None:
        return np.full(len(array), not array.null_count)
    return _bits(bits, array)


def booleans(array: Any) -> NDArray[np.bool_]:
    """Return booleans, False for null."""
    if not len(array):
        return np.empty(0, dtype=bool)
    values = _bits(array.buffers()[1], array)
    return values & valid(array) if array.null_count else values


def floats(array: Any) -> FloatArray:
    """Return float64 numbers, NaN for null; the array may not be written to."""
    if not len(array):
        return np.empty(0)
    values = np.frombuffer(array.buffers()[1], np.float64)
    values = values[array.offset : array.offset + len(array)]
    return np.where(valid(array), values, np.nan) if array.null_count else values


def _bits(buffer: Any, array: Any) -> NDArray[np.bool_]:
    start, stop = array.offset // 8, -(-(array.offset + len(array)) // 8)
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8)[start:stop], bitorder="little")
    return bits[array.offset % 8 :][: len(array)].view(np.bool_)


# -- numbers ---------------------------------------------------------------------------------------


def is_number(strings: Any) -> Any:
    """Return whether each string is a decimal number; one past the range of float64 is too."""
    return pc.match_substring_regex(strings, rf"\A{NUMBER}\z")


def parsed(strings: Any) -> Any:
    """Return decimal numbers, nan and inf as the nearest float64; raise for any other string."""
    try:
        return strings.cast(pa.float64())
    except pa.ArrowInvalid:
        # Arrow did not always read a plus.
        if not pc.any(pc.starts_with(strings, "+")).as_py():
            raise
        return pc.replace_substring_regex(strings, r"\A\+([0-9.])", r"\1").cast(pa.float64())


def _float_text(cells: Any) -> Any:
    """Return floats as strings, by their distinct values, as they are often codes of levels."""
    encoded = cells.cast(pa.float64()).dictionary_encode()
    strings = [_shortest(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(strings, pa.string()).take(encoded.indices)


def _shortest(value: float) -> str:
    integral = value.is_integer() and abs(value) < LONGEST
    return str(int(value)) if integral else repr(value)


def _without(values: Any, tokens: Any) -> Any:
    """Return ``values`` with null in the place of ``tokens``."""
    if not len(tokens):
        return values
    are = pc.is_in(values, value_set=tokens)
    if not are.true_count:
        return values
    return pc.if_else(are, pa.scalar(None, values.type), values)


def _finite(token: str) -> float | None:
    try:
        value = float(token)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


# -- the columns that a source declares ----------------------------------------------------------


def plain(array: Any) -> Any:
    """Return ``array`` in a plain type: no dictionary, half float, decimal or view."""
    type_ = array.type
    if pa.types.is_dictionary(type_):
        array = array.cast(type_.value_type)
        type_ = array.type
    if pa.types.is_null(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return array.cast(pa.string())
    if pa.types.is_decimal(type_):
        # Arrow's own cast multiplies by a power of ten, which is not the nearest float.
        return array.cast(pa.string()).cast(pa.float64())
    if pa.types.is_float16(type_):
        return array.cast(pa.float64())
    return array


def typed(name: str, type_: Any) -> RawColumn:
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
    return RawColumn(name=name, type=kind, described=str(type_), categorical=categorical)


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


def declared(label: str, schema: Any) -> tuple[RawColumn, ...]:
    """Return the raw columns of an Arrow schema.

    The names in a file may be invalid UTF-8, which is refused.
    """
    try:
        return tuple(typed(field.name, field.type) for field in schema)
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{label}: the name of a column is not UTF-8; rename it, or write the file again."
        ) from None


def check_names(label: str, names: Sequence[str], *, start: int = 1) -> None:
    """Raise unless all names are present, free of control characters, and differ without case.

    ``start`` is the position of the first column in the file.
    """
    if not names:
        raise InvalidInput(f"{label}: has no columns: must have at least one.")
    positions: dict[str, int] = {}
    for position, name in enumerate(names, start=start):
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
