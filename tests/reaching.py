"""Whether each parameter of a function reaches its validator.

What validators refuse is tested once, in tests/test_validate.py.
"""

import math
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
    """Each of ``names`` (or of ``good``) is refused by its name where its value is wrong."""
    call(**good)
    for name in names or good:
        for value in wrong:
            with pytest.raises(InvalidInput, match=name):
                call(**{**good, name: value})
