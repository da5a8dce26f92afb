"""Whether each numeric parameter of a function reaches its validator."""

import inspect
import math
import types
import typing
from collections.abc import Callable

import pytest

from expost.errors import InvalidInput


def numeric_parameters(function: Callable) -> list[str]:
    """Return the parameters of ``function`` that are annotated as numbers."""
    hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    return [
        name
        for name in inspect.signature(function).parameters
        if _kinds(hints.get(name)) & {int, float}
    ]


def _kinds(hint: object) -> set[object]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return {kind for part in typing.get_args(hint) for kind in _kinds(part)}
    return {hint}


def refuse_nan(
    function: Callable, given: dict[str, object], *, skip: tuple[str, ...] = ()
) -> list[str]:
    """Check that every numeric parameter refuses NaN by its name; return the parameters.

    The validators themselves, and every other value that they refuse, are in test_validate.py.
    """
    names = [name for name in numeric_parameters(function) if name not in skip]
    for name in names:
        with pytest.raises(InvalidInput, match=name):
            function(**given | {name: math.nan})
    return names
