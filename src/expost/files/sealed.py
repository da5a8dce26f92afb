"""Sealed JSON documents: a format, an audience and a checksum around fields, loaded strictly.

A sealed document is refused unless it is exactly what its class would write: the class reads the
fields and writes them again, and the two must agree. This comparison detects every edited,
additional or missing field; the checksum detects edits that leave the fields in agreement. Strict
JSON has no infinity and no NaN: infinities are the strings ``"infinity"`` and ``"-infinity"``.
"""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, get_type_hints

import numpy as np

from expost.errors import ExpostError, InvalidInput
from expost.files.atomic import read_json
from expost.types import Audience

__all__ = ["Sealed", "checksum", "from_fields", "number", "plain", "to_fields"]

_Record = TypeVar("_Record")
# Relative tolerance of a number that is computed from other fields: more than the roundings of
# another machine, less than any edit that matters.
_ULPS = 1e-9


class Sealed(ABC):
    """A document that is kept as sealed JSON.

    Attributes
    ----------
    FORMAT : str
        The name and version of the format.
    NOUN : str
        The document in messages, as "a released model".
    INNER : tuple[str, ...]
        Fields that are sealed documents themselves; their own classes check them.
    """

    FORMAT: ClassVar[str]
    NOUN: ClassVar[str]
    INNER: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def audience(self) -> Audience:
        """The audience of the document."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return the fields between the header and the checksum, as strict JSON.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """

    @classmethod
    @abstractmethod
    def from_content(cls, value: dict[str, Any]) -> Self:
        """Return the document with these fields; an error is reported as a refusal.

        Parameters
        ----------
        value : dict[str, Any]
            The fields of the document.

        Returns
        -------
        Self
            The document.

        Raises
        ------
        InvalidInput
            If a field is missing or invalid.
        """

    def derived(self) -> Iterable[tuple[str, ...]]:
        """Return the paths of numbers that are computed from other fields.

        Returns
        -------
        Iterable[tuple[str, ...]]
            The paths, each as the names of nested fields. They may differ by rounding.
        """
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return the sealed document.

        Returns
        -------
        dict[str, Any]
            The fields with header and checksum.
        """
        value = self._unsealed()
        return {**value, "sha256": checksum(value)}

    def _unsealed(self) -> dict[str, Any]:
        audience = self.audience
        header = {"format": self.FORMAT, "audience": audience.value, "meaning": audience.meaning}
        return header | self.content()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the document at ``path``, strictly.

        Parameters
        ----------
        path : str | Path
            The file.

        Returns
        -------
        Self
            The document.

        Raises
        ------
        InvalidInput
            If the file cannot be read, or holds another document.
        """
        value = read_json(path)
        try:
            return cls.from_json(value)
        except ExpostError as error:
            raise InvalidInput(f"{path}: is not {cls.NOUN} ({error})") from None

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Invert :meth:`to_json`; refuse every value that it could not have written.

        Parameters
        ----------
        value : Any
            The parsed JSON.

        Returns
        -------
        Self
            The document.

        Raises
        ------
        InvalidInput
            If the format is another, the checksum does not match, or the fields do not agree.
        """
        name = value.get("format") if isinstance(value, dict) else None
        if not isinstance(value, dict) or name != cls.FORMAT:
            raise InvalidInput(
                f"format={name!r}: must be {cls.FORMAT!r}; is it from a newer expost?"
            )
        theirs = {name: field for name, field in value.items() if name != "sha256"}
        if value.get("sha256") != checksum(theirs):
            raise InvalidInput(
                "sha256: does not match the other fields; the file was edited or damaged."
            )
        try:
            document = cls.from_content(value)
            mine = document._unsealed()
            for path in document.derived():
                _accept_rounding(mine, theirs, path)
            mine |= {name: theirs[name] for name in cls.INNER}
        except ExpostError:
            raise
        except (LookupError, TypeError, AttributeError, OverflowError, ValueError) as error:
            raise InvalidInput(f"a field is missing or has the wrong type: {error!r}.") from None
        if not _agree(mine, theirs):
            raise InvalidInput("its fields do not agree with each other; it was edited.")
        return document


def _accept_rounding(mine: dict[str, Any], theirs: dict[str, Any], path: tuple[str, ...]) -> None:
    """Copy the number at ``path`` from ``theirs`` if it equals mine up to rounding."""
    *outer, last = path
    for name in outer:
        mine, theirs = mine[name], theirs[name]
    written = number(theirs[last])
    if not abs(written - mine[last]) <= _ULPS * abs(written):
        raise InvalidInput(f"{'.'.join(path)}: does not follow from the other fields.")
    mine[last] = theirs[last]


def _agree(mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    # Compared as JSON: 1, 1.0 and True are equal in Python, and different fields.
    return _canonical(mine) == _canonical(theirs)


def checksum(value: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, for any order of its names, in hexadecimal."""
    return hashlib.sha256(_canonical(value)).hexdigest()


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


# -- fields of dataclasses -----------------------------------------------------------------------


# The metadata of a field that is left out of JSON if it has its default.
OPTIONAL: Mapping[str, bool] = {"optional": True}


def to_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON, without those that are None by default.

    Fields of ``metadata=OPTIONAL`` are left out too if they have their default.
    """
    values = {field: getattr(record, field.name) for field in fields(record)}
    return {
        field.name: value.to_json() if hasattr(value, "to_json") else plain(value)
        for field, value in values.items()
        if not (value is None and field.default is None)
        and not (field.metadata == OPTIONAL and value == field.default)
    }


def from_fields(cls: type[_Record], value: Any) -> _Record:
    """Invert :func:`to_fields`; require exactly the fields of ``cls``, of their declared types."""
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]  # a dataclass
    if not isinstance(value, dict) or not value.keys() <= known.keys():
        raise InvalidInput(
            f"{cls.__name__}: must be an object of {', '.join(known)}; it was edited."
        )
    if missing := [name for name in known.keys() - value if known[name].default is MISSING]:
        raise InvalidInput(f"{cls.__name__}: {min(missing)} is missing.")
    hints = get_type_hints(cls)
    return cls(**{name: _read(name, hints[name], field) for name, field in value.items()})


def _read(name: str, kind: Any, value: Any) -> Any:
    """Return a field as its declared type: a plain type, or a class with ``from_json``."""
    if kind is float:
        return number(value, name, infinite=True)
    if hasattr(kind, "from_json"):
        return kind.from_json(value)
    # bool is a subclass of int, but True is not a number here.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InvalidInput(f"{name}: has the wrong type.")
    return value


# -- numbers -------------------------------------------------------------------------------------


def number(value: Any, name: str = "a field", *, infinite: bool = False) -> float:
    """Return a JSON number as a float; the string "infinity" only if ``infinite``."""
    if infinite and value == "infinity":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{name}: must be a number.")
    try:
        converted = float(value)
    except OverflowError:
        converted = math.inf
    if not abs(converted) < math.inf:
        raise InvalidInput(f"{name}: must be a finite number.")
    return converted


# The types that JSON holds directly, besides finite floats.
_PLAIN = {bool, int, str, type(None)}


def plain(value: Any, *, missing: bool = False) -> Any:
    """Return numbers, arrays, sequences and mappings as strict JSON.

    Infinities become strings. NaN becomes null if values may be ``missing``, and otherwise raises
    ArithmeticError: a NaN is a fault of the program.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        if not math.isnan(value):
            return "infinity" if value > 0 else "-infinity"
        if not missing:
            raise ArithmeticError("a figure is not a number")
        return None
    if isinstance(value, list | tuple):
        # Columns of a large table are copied without a call for each number.
        kinds = set(map(type, value))
        if kinds <= _PLAIN or (kinds <= {float} and all(map(math.isfinite, value))):
            return list(value)
        return [plain(entry, missing=missing) for entry in value]
    if isinstance(value, Mapping):
        return {name: plain(entry, missing=missing) for name, entry in value.items()}
    return value
