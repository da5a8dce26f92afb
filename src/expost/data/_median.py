"""The median of more numbers than memory holds: four passes, and a table of counts.

The bits of a float64, turned round for negative numbers, are whole numbers in the same order. A
pass counts by the next sixteen of them those numbers that agree in the bits that are known
already; the rank that is sought says which sixteen bits come next.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from expost.types import FloatArray

__all__ = ["median"]

_DIGITS = (48, 32, 16, 0)
_SIGN = np.uint64(1) << np.uint64(63)


def median(passes: Callable[[], Iterable[FloatArray]]) -> float:
    """The middle of the numbers of every pass, or the mean of the two in the middle.

    ``passes`` gives the same numbers, in blocks, each time that it is called; at least one.
    """
    count = sum(len(block) for block in passes())
    lower = _selected(passes, (count - 1) // 2)
    upper = lower if count % 2 else _selected(passes, count // 2)
    # Halved first: the sum of two may overflow.
    return lower if lower == upper else 0.5 * lower + 0.5 * upper


def _selected(passes: Callable[[], Iterable[FloatArray]], rank: int) -> float:
    """The number that ``rank`` others are not above."""
    known = np.uint64(0)
    for shift in _DIGITS:
        counts = np.zeros(2**16, dtype=np.int64)
        for block in passes():
            keys = _keys(block)
            if shift < 48:
                above = np.uint64(shift + 16)
                keys = keys[keys >> above == known >> above]
            digits = (keys >> np.uint64(shift)) & np.uint64(0xFFFF)
            counts += np.bincount(digits.astype(np.int64), minlength=2**16)
        digit = int(np.searchsorted(np.cumsum(counts), rank, side="right"))
        rank -= int(counts[:digit].sum())
        known |= np.uint64(digit) << np.uint64(shift)
    bits = known ^ _SIGN if known & _SIGN else ~known
    return float(np.array([bits]).view(np.float64)[0])


def _keys(numbers: FloatArray) -> NDArray[np.uint64]:
    """Whole numbers in the order of ``numbers``; −0 is the 0 that it equals."""
    bits = (numbers + 0.0).view(np.uint64)
    keys: NDArray[np.uint64] = np.where(bits & _SIGN, ~bits, bits ^ _SIGN)
    return keys
