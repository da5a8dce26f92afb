"""What a training function does, as far as it can be told: so that a checkpoint of another is not
taken for its own.

Its code, its constants, its defaults and what it closes over count; functions that it calls count
by their names. Two that differ deeper down have one fingerprint.
"""

import functools
import hashlib
import pickle
import re
from types import CodeType, FunctionType, MethodType
from typing import Any

import joblib

__all__ = ["fingerprint", "without_addresses"]

# Of an object without a repr of its own: another one in every process.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_DIGITS = 12


def fingerprint(function: Any) -> str:
    """Twelve hexadecimal digits, the same in every process with this Python."""
    return hashlib.sha256(repr(_parts(function)).encode()).hexdigest()[:_DIGITS]


def without_addresses(text: str) -> str:
    """A repr that is the same in every process."""
    return _ADDRESS.sub("", text)


def _parts(value: Any) -> Any:
    if isinstance(value, FunctionType):
        cells = tuple(_cell(cell) for cell in value.__closure__ or ())
        defaults = _parts((value.__defaults__, value.__kwdefaults__))
        return value.__qualname__, _code(value.__code__), defaults, cells
    if isinstance(value, MethodType):
        return _parts(value.__func__), _parts(value.__self__)
    if isinstance(value, functools.partial):
        return _parts(value.func), _parts(value.args), _parts(value.keywords)
    if isinstance(value, tuple | list):
        return [_parts(part) for part in value]
    if isinstance(value, dict):
        return [(repr(key), _parts(part)) for key, part in value.items()]
    if value is None or isinstance(value, str | bytes | int | float | complex | type):
        return repr(value)
    try:
        return joblib.hash(value)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError):
        # Not to be pickled: what its attributes say.
        return type(value).__qualname__, without_addresses(repr(value))


def _cell(cell: Any) -> Any:
    try:
        return _parts(cell.cell_contents)
    except ValueError:
        # Empty: a function that is not yet defined where this one is.
        return ""


def _code(code: CodeType) -> Any:
    return code.co_code, [_constant(part) for part in code.co_consts], code.co_names


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, frozenset):
        # Its order is another one in every process.
        return sorted(repr(part) for part in value)
    return repr(value)
