"""Order statistics of a stream, to a stated relative error and without a sort.

The upper bits of a positive float64 are the integer part of a piecewise linear logarithm: shifting
43 bits away leaves the exponent and nine bits of the mantissa, a bucket number that never falls
as the value grows. Counting bucket numbers is one shift and one ``bincount`` a block; counts of
two streams add up to those of both.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.types import FloatArray, IntArray

__all__ = ["Sketch"]

_MANTISSA = 9
_SHIFT = 52 - _MANTISSA
# Below the largest by this many powers of two a value counts as 0.
_OCTAVES = 40


class Sketch:
    """Counts of the values ≥ 0 of a stream, none of them above ``top``.

    Formal guarantees
    -----------------
    :meth:`at` answers the r-th smallest value to within ``RELATIVE_ERROR`` = 2⁻¹⁰ of itself, or,
    where it lies below 2⁻⁴⁰·top, to within that. It is a function of the multiset of values alone:
    neither their order nor how they were split into blocks and merged matters. Memory: 20,482
    counts, whatever the number of values.
    """

    RELATIVE_ERROR = 2.0 ** -(_MANTISSA + 1)
    ABSOLUTE_ERROR = 2.0**-_OCTAVES

    def __init__(self, top: float) -> None:
        if not 1e-250 < top < math.inf:
            raise InvalidInput(f"top={top!r}: must be a finite number > 1e-250.")
        # The first bucket holds what lies below 2⁻⁴⁰·top, which the second one ends at.
        self._size = (_OCTAVES << _MANTISSA) + 2
        self._first = _buckets(np.array([top]))[0] - self._size + 1
        self._counts = np.zeros(self._size, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._counts.sum())

    def add(self, values: FloatArray) -> None:
        """Count a block of values; NaN or one below 0 is refused."""
        if not np.all(values >= 0):
            raise ArithmeticError("a value is not a number of at least 0")
        places = _buckets(values)
        places -= self._first
        # The roundings by which a value may pass its bound do not matter.
        np.clip(places, 0, self._size - 1, out=places)
        self._counts += np.bincount(places, minlength=self._size)

    def merge(self, other: "Sketch") -> None:
        """Count what another sketch with the same top has counted."""
        if other._first != self._first:
            raise InvalidInput("other: must have the same top; make both with one bound.")
        self._counts += other._counts

    def ranks(self, values: FloatArray) -> tuple[IntArray, IntArray]:
        """(least, most) rank that each of the counted ``values`` can have, 1 for the largest.

        Values of one bucket are not told apart: least is one more than the number of values in
        larger buckets, and most counts those of its own bucket too.
        """
        places = np.clip(_buckets(values) - self._first, 0, self._size - 1)
        above = np.cumsum(self._counts[::-1])[::-1]
        larger = np.append(above[1:], 0)
        return larger[places] + 1, above[places]

    def at(self, ranks: IntArray) -> FloatArray:
        """The values at ``ranks`` (r,), 1 for the smallest: the middles of their buckets."""
        places, edges, width = self._places(ranks)
        middle: FloatArray = edges + 0.5 * width
        return np.where(places == 0, 0.0, middle)

    def at_least(self, ranks: IntArray) -> FloatArray:
        """What the values at ``ranks`` are no less than: the lower ends of their buckets."""
        places, edges, _ = self._places(ranks)
        return np.where(places == 0, 0.0, edges)

    def at_most(self, ranks: IntArray) -> FloatArray:
        """What the values at ``ranks`` are no more than: the upper ends of their buckets."""
        _, edges, width = self._places(ranks)
        most: FloatArray = edges + width
        return most

    def _places(self, ranks: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """The buckets at ``ranks``, their lower ends, and how wide they are."""
        if np.any((ranks < 1) | (ranks > len(self))):
            raise InvalidInput(f"ranks: must lie between 1 and {len(self)}.")
        places = np.searchsorted(np.cumsum(self._counts), ranks, side="left")
        edges = ((places + self._first) << _SHIFT).view(np.float64)
        # Within an octave a bucket is as wide as 2⁻⁹ of the octave's start.
        octave = np.ldexp(1.0, np.frexp(edges)[1] - 1)
        return places, edges, octave * (2 * self.RELATIVE_ERROR)


def _buckets(values: FloatArray) -> NDArray[Any]:
    return np.ascontiguousarray(values).view(np.int64) >> _SHIFT
