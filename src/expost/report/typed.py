"""Frozen dataclasses as plain JSON values and back, and the schema of those, by their type hints.

One walk over the hints of a type gives a ``Kind`` (in ``_kinds.py``), which knows all three. Known
are text, whole numbers, figures (floats), truth values, enums and ``Literal`` members of one,
tuples of any or of a fixed length, dataclasses, and each of them or None.
"""

import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from expost.errors import InvalidInput
from expost.report._kinds import (
    BASIC,
    Figure,
    Fixed,
    Kind,
    Many,
    Members,
    Misfit,
    Optional,
    Record,
    Text,
    Truth,
    Whole,
)

__all__ = ["DIALECT", "definitions", "from_plain", "schema", "to_plain"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_T = TypeVar("_T")
_SIMPLE: dict[Any, Kind] = {str: Text(), int: Whole(), float: Figure(), bool: Truth()}


def to_plain(value: Any) -> Any:
    """A dataclass as dicts, lists, texts, numbers, truth values and None."""
    try:
        hint: Any = type(value)
        return _kind(hint).plain(value)
    except Misfit as misfit:
        raise InvalidInput(str(misfit)) from None


def from_plain(wanted: type[_T], value: Any) -> _T:
    """The dataclass that ``value`` is the plain form of; :class:`InvalidInput` if it is of none."""
    try:
        hint: Any = wanted
        return cast(_T, _kind(hint).parse(value))
    except Misfit as misfit:
        raise InvalidInput(f"{misfit}; make the summary again.") from None


def schema(wanted: type) -> dict[str, Any]:
    """The JSON schema of the plain form of a dataclass, with every notion under ``$defs``."""
    root, notions = definitions(wanted)
    return {"$schema": DIALECT, **root, "$defs": notions}


def definitions(wanted: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a dataclass itself, and those of all notions in it by name."""
    found = list(dict.fromkeys(_notions(_kind(wanted))))
    taken = [each.__name__ for each in found]

    def name_of(notion: type) -> str:
        # Two parts may have a notion of one name each.
        name = notion.__name__
        module = notion.__module__.rpartition(".")[2]
        return name if taken.count(name) == 1 else f"{module}.{name}"

    named = {name_of(each): _kind(each).body(name_of) for each in found if each is not wanted}
    return _kind(wanted).body(name_of), BASIC | dict(sorted(named.items()))


@cache
def _kind(hint: Any) -> Kind:
    """The kind of a type hint; a hint of another sort is a mistake in this package."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        others = [each for each in arguments if each is not types.NoneType]
        if len(others) == 1 and len(arguments) == 2:
            return Optional(_kind(others[0]))
    elif origin is Literal and all(isinstance(each, Enum) for each in arguments):
        return Members(type(arguments[0]), arguments)
    elif origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return Many(_kind(arguments[0]))
        return Fixed(tuple(map(_kind, arguments)))
    elif isinstance(hint, type) and issubclass(hint, Enum):
        return Members(hint, tuple(hint))
    elif isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return Record(hint, {field.name: _kind(hints[field.name]) for field in fields(hint)})
    raise TypeError(f"no plain form is known of {hint!r}")


def _notions(kind: Kind) -> Iterator[type]:
    """Every dataclass and every whole enum in a kind."""
    if isinstance(kind, Record):
        yield kind.notion
    elif isinstance(kind, Members) and kind.members == tuple(kind.enum):
        yield kind.enum
    for each in kind.inner():
        yield from _notions(each)
