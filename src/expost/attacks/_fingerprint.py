"""What a training function does, as far as it can be told: so that a checkpoint of another is not
taken for its own.

Its code, its constants, its defaults and what it closes over count; functions that it calls count
by their names. Two that differ deeper down have one fingerprint. Tensors and modules of torch count
by their numbers: pickled twice they are not the same.
"""

import functools
import hashlib
import pickle
import re
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

import joblib

__all__ = ["fingerprint", "without_addresses"]

# Of an object without a repr of its own: another one in every process.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_DIGITS = 12


def fingerprint(value: Any) -> str:
    """Twelve hexadecimal digits for a function or data, the same in every process of a Python."""
    return hashlib.sha256(repr(_parts(value)).encode()).hexdigest()[:_DIGITS]


def without_addresses(text: str) -> str:
    """A repr that is the same in every process."""
    return _ADDRESS.sub("", text)


def _parts(value: Any, around: tuple[Any, ...] = ()) -> Any:
    """Nested lists of text; ``around`` are the functions that hold ``value``."""
    if isinstance(value, FunctionType):
        if any(value is function for function in around):
            return value.__qualname__  # It calls itself.
        held = [_cell(cell) for cell in value.__closure__ or ()]
        held += [value.__defaults__, value.__kwdefaults__]
        inner = [_parts(part, (*around, value)) for part in held]
        return value.__qualname__, _code(value.__code__), inner
    if isinstance(value, MethodType):
        value = [value.__func__, value.__self__]
    elif isinstance(value, functools.partial):
        value = [value.func, value.args, value.keywords]
    elif hasattr(value, "state_dict") and not isinstance(value, type):
        value = [type(value), repr(value), dict(value.state_dict())]
    # A fitted estimator holds more than its parameters.
    elif is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "get_params"):
        value = [type(value), {field.name: getattr(value, field.name) for field in fields(value)}]
    if isinstance(value, tuple | list):
        return [_parts(part, around) for part in value]
    if isinstance(value, dict):
        return [(repr(key), _parts(part, around)) for key, part in value.items()]
    if value is None or isinstance(value, str | bytes | int | float | complex | type):
        return repr(value)
    return _hash(value)


def _hash(value: Any) -> str:
    try:
        array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
        return str(joblib.hash(array))
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError):
        # Not to be pickled: what it says of itself.
        return f"{type(value).__qualname__} {without_addresses(repr(value))}"


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        # Empty: what is not yet defined where the function is.
        return None


def _code(code: CodeType) -> Any:
    return code.co_code, [_constant(part) for part in code.co_consts], code.co_names


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, frozenset):
        # Its order is another one in every process.
        return sorted(repr(part) for part in value)
    return repr(value)
