"""Checks of what the promises take, and rounding towards more exposed. NaN fails every check."""

import math
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput

__all__ = ["between", "count", "down", "extended", "level", "rate", "short_of_one", "up"]

# Sixteen unit roundoffs: more than a handful of additions, products and library functions err.
_FEW_ROUNDINGS = 2.0**-49
# Past this an integer need not be a float64, and nobody counted so far.
_LARGEST_COUNT = 2**53


def extended(name: str, value: Any) -> float:
    """``value`` as a number in [0, ∞]."""
    # A plain comparison with 0 would let False pass, and an array of one zero.
    number = isinstance(value, int | float | np.integer | np.floating)
    if number and not isinstance(value, bool) and value == 0:
        return 0.0
    return _checks.positive(name, value, finite=False)


def count(name: str, value: Any) -> int:
    """``value`` as a number of releases, steps or dimensions: whole, from 1 to 2⁵³."""
    number = _checks.whole(name, value, least=1)
    if not number <= _LARGEST_COUNT:
        raise InvalidInput(f"{name}: must be a whole number of at most 2**53.")
    return number


def level(name: str, value: Any) -> float:
    """``value`` as a probability in [0, 1)."""
    number = extended(name, value)
    if not number < 1:
        raise InvalidInput(f"{name}={value!r}: must be at least 0 and below 1.")
    return number


def rate(name: str, value: Any) -> float:
    """``value`` as a probability in [0, 1]."""
    number = extended(name, value)
    if not number <= 1:
        raise InvalidInput(f"{name}={value!r}: must lie between 0 and 1.")
    return number


def between(name: str, value: Any, low: float, high: float, why: str) -> float:
    """``value`` strictly between ``low`` and ``high``; ``why`` says what stands at the ends."""
    number = extended(name, value)
    if not low < number < high:
        raise InvalidInput(
            f"{name}={value!r}: must lie strictly between {low!r} and {high!r}, {why}."
        )
    return number


def up(value: float, *, most: float = math.inf, error: float = _FEW_ROUNDINGS) -> float:
    """``value`` ≥ 0 raised by its relative ``error``, but not past ``most``, a proved bound."""
    return min(value * (1 + error), most)


def down(value: float) -> float:
    """``value`` ≥ 0 lowered by twice as much as :func:`up` raises: up(down(x)) ≤ x."""
    return value * (1 - 2 * _FEW_ROUNDINGS)


def short_of_one(rest: float) -> float:
    """1 − ``rest`` for a rest of at most ½, rounded up: near 1 it is the rest that has digits."""
    return min(math.nextafter(1 - rest * (1 - _FEW_ROUNDINGS), math.inf), 1.0)
