"""The kinds of values that a summary is made of: each as plain JSON and back, and its schema.

What is read came from outside: a value that does not fit is refused with the place where it stands,
and every text becomes one printable line, as it was when a summary was collected.
"""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from expost.errors import ExpostError
from expost.groups.columns import printable
from expost.report.docstrings import described

__all__ = [
    "BASIC",
    "Figure",
    "Fixed",
    "Kind",
    "Many",
    "Members",
    "Misfit",
    "Names",
    "Optional",
    "Record",
    "Text",
    "Truth",
    "Whole",
]

_INFINITIES = {"infinity": math.inf, "-infinity": -math.inf}
# The longest text of a summary is a command, which cut off would be another.
_LONGEST = 10**6
# Past this a reader that knows one kind of number alone cannot tell integers apart.
_LARGEST = 2**53 - 1
# How much of a name that nobody knows is shown.
_SHOWN = 60


class Misfit(Exception):
    """A value that does not fit, and the way to it from the outside in."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = []

    def within(self, step: str) -> "Misfit":
        """The same, seen from one level further out."""
        self.steps.insert(0, step)
        return self

    def __str__(self) -> str:
        return f"{''.join(self.steps).lstrip('.') or 'summary'}: {self.problem}"


Names = Callable[[type], str]


class Kind(ABC):
    """What is known of one type."""

    @abstractmethod
    def plain(self, value: Any) -> Any:
        """The plain form of a value."""

    @abstractmethod
    def parse(self, plain: Any) -> Any:
        """The value of a plain form; raises :class:`Misfit`."""

    @abstractmethod
    def refer(self, name_of: Names) -> dict[str, Any]:
        """The schema where the type is used."""

    def body(self, name_of: Names) -> dict[str, Any]:
        """The schema where it is defined."""
        return self.refer(name_of)

    def inner(self) -> Iterator["Kind"]:
        """The kinds that it is made of."""
        return iter(())

    def plain_many(self, values: Sequence[Any]) -> list[Any]:
        """Many at once."""
        return list(map(self.plain, values))

    def parse_many(self, plain: list[Any]) -> tuple[Any, ...] | None:
        """Many at once where all are as they should be, or None; a profile has 250,000 figures."""
        return None


class Text(Kind):
    """One line."""

    def plain(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise _wrong("a text", value)
        return str(value)

    def parse(self, plain: Any) -> str:
        if not isinstance(plain, str):
            raise _wrong("a text", plain)
        if not len(plain) <= _LONGEST:
            raise Misfit(f"is a text of {len(plain):,} characters, and may have {_LONGEST:,}")
        return printable(plain, _LONGEST)

    def parse_many(self, plain: list[Any]) -> tuple[Any, ...] | None:
        usual = set(map(type, plain)) <= {str} and all(map(str.isprintable, plain))
        return tuple(plain) if usual and max(map(len, plain), default=0) <= _LONGEST else None

    def refer(self, name_of: Names) -> dict[str, Any]:
        return {"$ref": "#/$defs/text"}


class Whole(Kind):
    """A whole number."""

    def plain(self, value: Any) -> Any:
        if isinstance(value, bool):
            raise _wrong("a whole number", value)
        return operator.index(value)

    def parse(self, plain: Any) -> int:
        # JSON has one kind of number: 3.0 is whole.
        whole = isinstance(plain, int) or (isinstance(plain, float) and plain.is_integer())
        if isinstance(plain, bool) or not whole:
            raise _wrong("a whole number", plain)
        if not abs(plain) <= _LARGEST:
            raise Misfit("must be a whole number of at most 2**53 − 1 in magnitude")
        return int(plain)

    def plain_many(self, values: Sequence[Any]) -> list[Any]:
        usual = set(map(type, values)) <= {int}
        return list(values) if usual else super().plain_many(values)

    def parse_many(self, plain: list[Any]) -> tuple[Any, ...] | None:
        usual = (
            set(map(type, plain)) == {int} and max(plain) <= _LARGEST and min(plain) >= -_LARGEST
        )
        return tuple(plain) if usual else None

    def refer(self, name_of: Names) -> dict[str, Any]:
        return {"$ref": "#/$defs/whole"}


class Figure(Kind):
    """A float; an infinity is a word, and NaN is nothing."""

    def plain(self, value: Any) -> Any:
        number = float(value)
        if math.isnan(number):
            raise Misfit("is not a number")
        if math.isinf(number):
            return "infinity" if number > 0 else "-infinity"
        return number

    def parse(self, plain: Any) -> float:
        if isinstance(plain, str) and plain in _INFINITIES:
            return _INFINITIES[plain]
        if isinstance(plain, bool) or not isinstance(plain, int | float):
            raise _wrong('a number, "infinity" or "-infinity"', plain)
        try:
            number = float(plain)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise Misfit("must be a number that float64 holds")
        return number

    def plain_many(self, values: Sequence[Any]) -> list[Any]:
        usual = set(map(type, values)) <= {float} and all(map(math.isfinite, values))
        return list(values) if usual else super().plain_many(values)

    def parse_many(self, plain: list[Any]) -> tuple[Any, ...] | None:
        usual = set(map(type, plain)) <= {float} and all(map(math.isfinite, plain))
        return tuple(plain) if usual else None

    def refer(self, name_of: Names) -> dict[str, Any]:
        return {"$ref": "#/$defs/figure"}


class Truth(Kind):
    """True or false."""

    def plain(self, value: Any) -> Any:
        return bool(value)

    def parse(self, plain: Any) -> bool:
        if not isinstance(plain, bool):
            raise _wrong("true or false", plain)
        return plain

    def refer(self, name_of: Names) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Members(Kind):
    """Some members of an enum whose values are texts; all of them where it is used by its name."""

    enum: type[Enum]
    members: tuple[Enum, ...]

    def plain(self, value: Any) -> Any:
        if value not in self.members:
            raise _wrong(self._words, value)
        return value.value

    def parse(self, plain: Any) -> Enum:
        for member in self.members:
            if isinstance(plain, str) and member.value == plain:
                return member
        raise _wrong(self._words, plain)

    @property
    def _words(self) -> str:
        return " or ".join(f'"{member.value}"' for member in self.members)

    def refer(self, name_of: Names) -> dict[str, Any]:
        if self.members == tuple(self.enum):
            return {"$ref": f"#/$defs/{name_of(self.enum)}"}
        return {"enum": [member.value for member in self.members]}

    def body(self, name_of: Names) -> dict[str, Any]:
        whole, _ = described(self.enum)
        return {"description": whole, "enum": [each.value for each in self.enum]}


@dataclass(frozen=True)
class Optional(Kind):
    """Of a kind, or None."""

    item: Kind

    def plain(self, value: Any) -> Any:
        return None if value is None else self.item.plain(value)

    def parse(self, plain: Any) -> Any:
        return None if plain is None else self.item.parse(plain)

    def refer(self, name_of: Names) -> dict[str, Any]:
        return {"anyOf": [self.item.refer(name_of), {"type": "null"}]}

    def inner(self) -> Iterator[Kind]:
        yield self.item


@dataclass(frozen=True)
class Many(Kind):
    """A tuple of any length."""

    item: Kind

    def plain(self, value: Any) -> Any:
        try:
            return self.item.plain_many(value)
        except Misfit:
            return [_at(place, self.item.plain, each) for place, each in enumerate(value)]

    def parse(self, plain: Any) -> Any:
        if not isinstance(plain, list):
            raise _wrong("a list", plain)
        quick = self.item.parse_many(plain)
        if quick is not None:
            return quick
        return tuple(_at(place, self.item.parse, each) for place, each in enumerate(plain))

    def refer(self, name_of: Names) -> dict[str, Any]:
        return {"type": "array", "items": self.item.refer(name_of)}

    def inner(self) -> Iterator[Kind]:
        yield self.item


@dataclass(frozen=True)
class Fixed(Kind):
    """A tuple of one kind for each place."""

    items: tuple[Kind, ...]

    def plain(self, value: Any) -> Any:
        if len(value) != len(self.items):
            raise Misfit(f"must have {len(self.items)} entries")
        return [_at(place, self.items[place].plain, each) for place, each in enumerate(value)]

    def parse(self, plain: Any) -> Any:
        if not isinstance(plain, list) or len(plain) != len(self.items):
            raise _wrong(f"a list of {len(self.items)} entries", plain)
        return tuple(_at(place, self.items[place].parse, each) for place, each in enumerate(plain))

    def refer(self, name_of: Names) -> dict[str, Any]:
        return {
            "type": "array",
            "prefixItems": [item.refer(name_of) for item in self.items],
            "items": False,
            "minItems": len(self.items),
        }

    def inner(self) -> Iterator[Kind]:
        yield from self.items


@dataclass(frozen=True)
class Record(Kind):
    """A dataclass: every field by its name, none missing and none besides."""

    notion: type
    parts: dict[str, Kind]

    def plain(self, value: Any) -> Any:
        if type(value) is not self.notion:
            raise _wrong(f"a {self.notion.__name__}", value)
        return {
            name: _at(name, kind.plain, getattr(value, name)) for name, kind in self.parts.items()
        }

    def parse(self, plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise _wrong("an object", plain)
        if plain.keys() != self.parts.keys():
            raise self._other_fields(plain)
        values = {name: _at(name, kind.parse, plain[name]) for name, kind in self.parts.items()}
        try:
            return self.notion(**values)
        except ExpostError as error:
            raise Misfit(f"does not hold together ({str(error).rstrip('.')})") from None

    def _other_fields(self, plain: dict[Any, Any]) -> Misfit:
        for name in self.parts:
            if name not in plain:
                return Misfit(f"has no field {name!r}")
        unknown = next(name for name in plain if name not in self.parts)
        return Misfit(f"has a field {printable(unknown, _SHOWN)!r}, which nothing here has")

    def refer(self, name_of: Names) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{name_of(self.notion)}"}

    def body(self, name_of: Names) -> dict[str, Any]:
        whole, told = described(self.notion, self.parts)
        return {
            "description": whole,
            "type": "object",
            "properties": {
                name: _with_text(told.get(name), kind.refer(name_of))
                for name, kind in self.parts.items()
            },
            "required": list(self.parts),
            "additionalProperties": False,
        }

    def inner(self) -> Iterator[Kind]:
        yield from self.parts.values()


BASIC: dict[str, Any] = {
    "figure": {
        "description": "A number; JSON has no infinity, so it is a word.",
        "anyOf": [{"type": "number"}, {"enum": list(_INFINITIES)}],
    },
    "text": {
        "description": "One line; whatever cannot be printed in it is spelled out when it is read.",
        "type": "string",
        "maxLength": _LONGEST,
    },
    "whole": {
        "description": "A whole number that every reader can tell from its neighbours.",
        "type": "integer",
        "minimum": -_LARGEST,
        "maximum": _LARGEST,
    },
}


def _with_text(description: str | None, body: dict[str, Any]) -> dict[str, Any]:
    return body if description is None else {"description": description, **body}


def _at(step: str | int, convert: Callable[[Any], Any], value: Any) -> Any:
    """Convert one entry; what does not fit says where it stands."""
    try:
        return convert(value)
    except Misfit as misfit:
        raise misfit.within(f"[{step}]" if isinstance(step, int) else f".{step}") from None


def _wrong(wanted: str, found: Any) -> Misfit:
    """What was found is named by its sort alone: it may be of any length."""
    match found:
        case None:
            sort = "null"
        case bool():
            sort = "a truth value"
        case str():
            sort = f"{printable(found, 20)!r}"
        case int() | float():
            sort = "a number"
        case list() | tuple():
            sort = f"a list of {len(found):,}"
        case _:
            sort = "an object"
    return Misfit(f"must be {wanted}, not {sort}")
