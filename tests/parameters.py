"""Whether each parameter of a function reaches its validator.

The values that validators refuse are tested once, in tests/test_validate.py.
"""

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from expost.errors import InvalidInput

# Neither a number, a name, a flag nor an object that anything takes.
WRONG = (math.nan, -1, "nonsense", object())


def every_parameter_reaches(
    call: Callable[..., Any],
    good: dict[str, Any],
    names: Iterable[str] = (),
    wrong: Iterable[Any] = WRONG,
) -> None:
    """Check that each of ``names`` (or of ``good``) is refused by its name where it is wrong."""
    call(**good)
    for name in names or good:
        for value in wrong:
            with pytest.raises(InvalidInput, match=name):
                call(**{**good, name: value})


def refuse_nan(
    function: Callable, given: dict[str, object], *, skip: tuple[str, ...] = ()
) -> list[str]:
    """Check that every numeric parameter refuses NaN by its name; return the parameters."""
    names = [name for name in numeric_parameters(function) if name not in skip]
    for name in names:
        with pytest.raises(InvalidInput, match=name):
            function(**given | {name: math.nan})
    return names


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
