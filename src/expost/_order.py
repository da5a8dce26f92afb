"""Order statistics, exact or counted, and the rule by which rows are ranked.

:class:`OrderStatistics` is the interface that results use for a column of all rows.
:class:`Sorted` holds the values. :class:`Histogram` counts them in constant memory.

Conventions
-----------
ranks      of values count from 1, the smallest; ranks of rows count from 1, the most exposed.
shares     the quantile at a share is the ``inverted_cdf`` one: the least value that at least this
           share of the values do not exceed.
rounding   ``at_most``, ``quantile`` and ``median`` are never less than the exact statistic and
           ``at_least`` is never more, so that an exposure is never understated.

The histogram. The upper bits of a positive float64 are the integer part of a piecewise linear
logarithm: shifting 43 bits away leaves the exponent and nine bits of the mantissa, a bucket number
that never falls as the value grows. Counting bucket numbers is one shift and one ``bincount`` per
block, and the counts of two streams are summed when they are merged.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.types import FloatArray, IntArray

__all__ = [
    "Histogram",
    "OrderStatistics",
    "SignedHistogram",
    "Sorted",
    "median",
    "rank_numbers",
    "ranking",
    "share_ranks",
    "top_weights",
]

_MANTISSA = 9
_SHIFT = 52 - _MANTISSA
# A value that is smaller than the largest by this many powers of two counts as 0.
_OCTAVES = 40
# The least top that a histogram is made with, for values that are all 0.
_LEAST_TOP = 1e-200
# The shifts of the four digits of sixteen bits, and the sign bit.
_DIGITS = (48, 32, 16, 0)
_SIGN = np.uint64(1) << np.uint64(63)
_Lookup = Callable[[IntArray], FloatArray]


def ranking(score: FloatArray, distance: FloatArray) -> IntArray:
    """Return the row indices (n,), the most exposed row first.

    Rows are ordered by ``score``, the largest first; equal scores by ``distance``, the largest
    first; rows equal in both keep their order. A score or distance that is not a number counts as
    infinite. Every ranking of rows in the package is this one.
    """
    keys = [-np.where(np.isnan(values), np.inf, values) for values in (distance, score)]
    return np.lexsort(keys)


def rank_numbers(order: IntArray) -> IntArray:
    """Return the rank of each row (n,), 1 for the first of ``order``, a permutation of the rows."""
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.arange(1, len(order) + 1)
    return numbers


def share_ranks(count: int, shares: FloatArray) -> IntArray:
    """Return the ranks, 1 for the least, of the ``inverted_cdf`` quantiles of ``count`` values."""
    ranks: IntArray = np.maximum(np.ceil(count * shares - 1) + 1, 1).astype(np.int64)
    return ranks


def top_weights(statistics: "OrderStatistics", values: FloatArray, top: int) -> FloatArray:
    """Return the share of each of the ``values`` that is among the ``top`` largest: from 0 to 1.

    Values that tie at the edge (values of one bucket of a histogram) share the remaining ranks, so
    that no weight depends on the order of the rows. The weights of all values sum to ``top``.
    """
    least, most = statistics.ranks(values)
    return np.clip((top + 1 - least) / (most + 1 - least), 0.0, 1.0)


class OrderStatistics(Protocol):
    """Order statistics of a multiset of numbers, which may be infinite but not NaN.

    Formal guarantees
    -----------------
    With v₍ᵣ₎ the r-th smallest value: ``at_least([r])`` ≤ v₍ᵣ₎ ≤ ``at_most([r])``, and the two
    differ by at most ``error``, relative (a histogram adds 2⁻⁴⁰ of its top). The smallest and the
    largest are exact. All are functions of the multiset alone: they depend neither on the order of
    the values nor on the blocks in which they were counted and merged.
    """

    @property
    def count(self) -> int:
        """The number of values."""

    @property
    def smallest(self) -> float:
        """The smallest value; ∞ if there is none."""

    @property
    def largest(self) -> float:
        """The largest value; −∞ if there is none."""

    @property
    def least_positive(self) -> float:
        """The smallest value > 0; ∞ if there is none."""

    @property
    def error(self) -> float:
        """The relative error of ``at_most``, ``at_least``, ``quantile`` and ``median``."""

    def at(self, ranks: IntArray) -> FloatArray:
        """Return the values at ``ranks`` (r,), to the nearest."""

    def at_least(self, ranks: IntArray) -> FloatArray:
        """Return the values at ``ranks`` (r,), rounded down."""

    def at_most(self, ranks: IntArray) -> FloatArray:
        """Return the values at ``ranks`` (r,), rounded up."""

    def ranks(self, values: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the (least, most) rank of each of the counted ``values``, 1 for the largest.

        Values that tie share their ranks: least is one more than the number of larger values, most
        counts the value itself and its ties too. Values of one bucket of a histogram tie.
        """

    def merge(self, other: Self) -> None:
        """Include the values of ``other``, which is not changed."""

    def quantile(self, shares: FloatArray) -> FloatArray:
        """Return the quantiles at these ``shares`` of the values, rounded up."""
        return self.at_most(share_ranks(self.count, np.asarray(shares)))

    @property
    def median(self) -> float:
        """The median, the mean of the two middle values where their number is even, rounded up."""
        middle = np.array([self.count // 2 + 1, (self.count + 1) // 2])
        return float(np.mean(self.at_most(middle)))


class Sorted(OrderStatistics):
    """Exact order statistics of values that are held in memory."""

    error = 0.0

    def __init__(self, values: FloatArray) -> None:
        if np.any(np.isnan(values)):
            raise ArithmeticError("a value is not a number")
        self._ascending: FloatArray = np.sort(values)

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self._ascending)

    @property
    def smallest(self) -> float:
        """The smallest value; ∞ if there is none."""
        return float(self._ascending[0]) if self.count else math.inf

    @property
    def largest(self) -> float:
        """The largest value; −∞ if there is none."""
        return float(self._ascending[-1]) if self.count else -math.inf

    @property
    def least_positive(self) -> float:
        """The smallest value > 0; ∞ if there is none."""
        index = int(np.searchsorted(self._ascending, 0.0, side="right"))
        return float(self._ascending[index]) if index < self.count else math.inf

    def at(self, ranks: IntArray) -> FloatArray:
        """Return the values at ``ranks`` (r,), exactly."""
        _check_ranks(ranks, self.count)
        return self._ascending[ranks - 1]

    at_least = at
    at_most = at

    def ranks(self, values: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the (least, most) rank of each of the held ``values``, 1 for the largest."""
        larger = self.count - np.searchsorted(self._ascending, values, side="right")
        return larger + 1, self.count - np.searchsorted(self._ascending, values, side="left")

    def merge(self, other: "Sorted") -> None:
        """Include the values of ``other``."""
        self._ascending = np.sort(np.concatenate([self._ascending, other._ascending]))


class Histogram(OrderStatistics):
    """Counts of the values ≥ 0 of a stream in buckets of a piecewise linear logarithm.

    Parameters
    ----------
    top : float
        A bound on the finite values. Larger ones are counted together.

    Formal guarantees
    -----------------
    :meth:`at` returns the r-th smallest value to within ``RELATIVE_ERROR`` = 2⁻¹⁰ of itself, or,
    where it lies below 2⁻⁴⁰·top, to within that; ``at_least`` and ``at_most`` are the ends of its
    bucket. Memory: 20,482 counts, whatever the number of values.
    """

    RELATIVE_ERROR = 2.0 ** -(_MANTISSA + 1)
    ABSOLUTE_ERROR = 2.0**-_OCTAVES

    error = 2 * RELATIVE_ERROR

    def __init__(self, top: float) -> None:
        if not 1e-250 < top < math.inf:
            raise InvalidInput(f"top={top!r}: must be a finite number > 1e-250.")
        # The first bucket holds all values below 2⁻⁴⁰·top, where the second one ends.
        self._size = (_OCTAVES << _MANTISSA) + 2
        self._first = _buckets(np.array([top]))[0] - self._size + 1
        self._counts = np.zeros(self._size, dtype=np.int64)
        self._infinite = 0
        self._smallest = self._least_positive = math.inf
        self._largest_finite = -math.inf

    @classmethod
    def of(cls, values: FloatArray, top: float) -> "Histogram":
        """Count ``values``; where all of them are 0, ``top`` may be 0 too."""
        histogram = cls(max(top, _LEAST_TOP))
        histogram.add(values)
        return histogram

    @property
    def count(self) -> int:
        """The number of values."""
        return int(self._counts.sum())

    @property
    def smallest(self) -> float:
        """The smallest value, exactly; ∞ if there is none."""
        return self._smallest

    @property
    def largest(self) -> float:
        """The largest value, exactly; −∞ if there is none."""
        return math.inf if self._infinite else self._largest_finite

    @property
    def least_positive(self) -> float:
        """The smallest value > 0, exactly; ∞ if there is none."""
        return self._least_positive

    def add(self, values: FloatArray) -> None:
        """Count a block of values; NaN and values below 0 are refused."""
        if not np.all(values >= 0):
            raise ArithmeticError("a value is not a number of at least 0")
        if not len(values):
            return
        buckets = _buckets(values)
        buckets -= self._first
        # Infinite values and those above the top count in the last bucket.
        np.clip(buckets, 0, self._size - 1, out=buckets)
        self._counts += np.bincount(buckets, minlength=self._size)
        smallest, largest = float(values.min()), float(values.max())
        self._smallest = min(self._smallest, smallest)
        positive = smallest if smallest > 0 else _least_positive(values)
        self._least_positive = min(self._least_positive, positive)
        if largest == math.inf:
            finite = values[values < math.inf]
            self._infinite += len(values) - len(finite)
            largest = float(np.max(finite, initial=-math.inf))
        self._largest_finite = max(self._largest_finite, largest)

    def merge(self, other: "Histogram") -> None:
        """Include the values that another histogram with the same top has counted."""
        if other._first != self._first:
            raise InvalidInput("other: must have the same top; make both with one bound.")
        self._counts += other._counts
        self._infinite += other._infinite
        self._smallest = min(self._smallest, other._smallest)
        self._least_positive = min(self._least_positive, other._least_positive)
        self._largest_finite = max(self._largest_finite, other._largest_finite)

    def ranks(self, values: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the (least, most) rank of each of the counted ``values``, 1 for the largest."""
        buckets = np.clip(_buckets(values) - self._first, 0, self._size - 1)
        above = np.cumsum(self._counts[::-1])[::-1]
        larger = np.append(above[1:], 0)
        return larger[buckets] + 1, above[buckets]

    def at(self, ranks: IntArray) -> FloatArray:
        """Return the values at ``ranks`` (r,): the middles of their buckets."""
        buckets, edges, width = self._buckets_at(ranks)
        middle: FloatArray = edges + 0.5 * width
        return self._with_infinite(ranks, np.where(buckets == 0, 0.0, middle))

    def at_least(self, ranks: IntArray) -> FloatArray:
        """Return lower bounds on the values at ``ranks``: the lower ends of their buckets."""
        buckets, edges, _ = self._buckets_at(ranks)
        least = np.maximum(np.where(buckets == 0, 0.0, edges), self._smallest)
        last = ranks == self.count - self._infinite
        return self._with_infinite(ranks, np.where(last, self._largest_finite, least))

    def at_most(self, ranks: IntArray) -> FloatArray:
        """Return upper bounds on the values at ``ranks``: the upper ends of their buckets."""
        buckets, edges, width = self._buckets_at(ranks)
        most = edges + width
        # The first bucket holds nothing but zeros where no positive value lies in it.
        most = np.where((buckets == 0) & (self._least_positive > most), 0.0, most)
        past = (buckets == self._size - 1) | (most > self._largest_finite)
        most = np.where(past, self._largest_finite, most)
        return self._with_infinite(ranks, np.where(ranks == 1, self._smallest, most))

    def _with_infinite(self, ranks: IntArray, values: FloatArray) -> FloatArray:
        """Return ``values`` with ∞ at the ranks of infinite values."""
        return np.where(ranks > self.count - self._infinite, np.inf, values)

    def _buckets_at(self, ranks: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the buckets at ``ranks``, their lower ends, and their widths."""
        _check_ranks(ranks, self.count)
        buckets = np.searchsorted(np.cumsum(self._counts), ranks, side="left")
        edges = ((buckets + self._first) << _SHIFT).view(np.float64)
        # Within an octave a bucket is as wide as 2⁻⁹ of the octave's start.
        octave = np.ldexp(1.0, np.frexp(edges)[1] - 1)
        return buckets, edges, octave * (2 * self.RELATIVE_ERROR)


class SignedHistogram(OrderStatistics):
    """Counts of values of either sign: a histogram of those ≥ 0 and one of the others' sizes.

    Parameters
    ----------
    top : float
        A bound on the sizes of the finite values.
    """

    error = Histogram.error

    def __init__(self, values: FloatArray, top: float) -> None:
        if np.any(np.isnan(values)):
            raise ArithmeticError("a value is not a number")
        self._raised = Histogram.of(values[values >= 0], top)
        self._lowered = Histogram.of(-values[values < 0], top)

    @property
    def count(self) -> int:
        """The number of values."""
        return self._raised.count + self._lowered.count

    @property
    def smallest(self) -> float:
        """The smallest value, exactly; ∞ if there is none."""
        return -self._lowered.largest if self._lowered.count else self._raised.smallest

    @property
    def largest(self) -> float:
        """The largest value, exactly; −∞ if there is none."""
        return self._raised.largest if self._raised.count else -self._lowered.smallest

    @property
    def least_positive(self) -> float:
        """The smallest value > 0, exactly; ∞ if there is none."""
        return self._raised.least_positive

    def at(self, ranks: IntArray) -> FloatArray:
        """Return the values at ``ranks`` (r,), to the nearest."""
        return self._at(ranks, self._lowered.at, self._raised.at)

    def at_least(self, ranks: IntArray) -> FloatArray:
        """Return the values at ``ranks`` (r,), rounded down."""
        return self._at(ranks, self._lowered.at_most, self._raised.at_least)

    def at_most(self, ranks: IntArray) -> FloatArray:
        """Return the values at ``ranks`` (r,), rounded up."""
        return self._at(ranks, self._lowered.at_least, self._raised.at_most)

    def ranks(self, values: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the (least, most) rank of each of the counted ``values``, 1 for the largest."""
        least, most = self._raised.ranks(np.maximum(values, 0.0))
        first, last = self._lowered.ranks(np.maximum(-values, 0.0))
        behind, below = self.count + 1, values < 0
        return np.where(below, behind - last, least), np.where(below, behind - first, most)

    def merge(self, other: "SignedHistogram") -> None:
        """Include the values that another histogram with the same top has counted."""
        self._raised.merge(other._raised)
        self._lowered.merge(other._lowered)

    def _at(self, ranks: IntArray, lowered: _Lookup, raised: _Lookup) -> FloatArray:
        """Return the values at ``ranks`` from the histogram that holds them."""
        _check_ranks(ranks, self.count)
        below = self._lowered.count
        negative = ranks <= below
        values = np.empty(len(ranks))
        values[negative] = -lowered(below + 1 - ranks[negative])
        values[~negative] = raised(ranks[~negative] - below)
        return values


def _check_ranks(ranks: IntArray, count: int) -> None:
    if np.any((ranks < 1) | (ranks > count)):
        raise InvalidInput(f"ranks: must lie between 1 and {count}.")


def _least_positive(values: FloatArray) -> float:
    return float(np.min(values[values > 0], initial=math.inf))


def _buckets(values: FloatArray) -> NDArray[Any]:
    return np.ascontiguousarray(values).view(np.int64) >> _SHIFT


# -- the exact median, in passes ------------------------------------------------------------------


def median(passes: Callable[[], Iterable[FloatArray]]) -> float:
    """Return the exact median of more numbers than memory holds: four passes, a table of counts.

    The median is the middle number, or the mean of the two in the middle. Each call of ``passes``
    returns the same numbers, at least one, in blocks.

    The bits of a float64, inverted for negative numbers, are integers in the same order. Each pass
    takes the numbers that agree with the bits known so far and counts them by their next sixteen
    bits. The wanted rank determines these sixteen bits.
    """
    count = sum(len(block) for block in passes())
    lower = _number_at(passes, (count - 1) // 2)
    upper = lower if count % 2 else _number_at(passes, count // 2)
    # Halved first: the sum of two may overflow.
    return lower if lower == upper else 0.5 * lower + 0.5 * upper


def _number_at(passes: Callable[[], Iterable[FloatArray]], rank: int) -> float:
    """Return the number at ``rank``, counted from 0 for the smallest."""
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
    """Return integers in the order of ``numbers``; −0 has the same as 0."""
    bits = (numbers + 0.0).view(np.uint64)
    keys: NDArray[np.uint64] = np.where(bits & _SIGN, ~bits, bits ^ _SIGN)
    return keys
