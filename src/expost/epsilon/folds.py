"""Which rows are held out: folds of rows in memory or read in blocks, by a keyed hash.

A row's fold follows from a key, its class and the number of earlier rows of that class. It does not
depend on where the rows are or on the size of blocks, and folds are stratified.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.glm import Objective
from expost.rows import HeldRows, RowBlock, Rows
from expost.types import FloatArray, IntArray

__all__ = ["MOST_SCORED", "Folds"]

T = TypeVar("T")
# Rows of a fold that are scored at most: a share of them is then known to 0.4 %.
MOST_SCORED = 20_000
# Entries of all scored rows together: 128 MiB.
_ENTRIES = 2**24
# Keys of the two hashes.
_GAMMA, _OTHER = 0x9E3779B97F4A7C15, 0x5851F42D4C957F2D


@dataclass(frozen=True, kw_only=True, eq=False)
class Folds:
    """Which of ``count`` folds each row is in, and which rows of a fold are scored.

    Number the rows class by class, and in a class in their order: i = 0 … n − 1. Every ``count``
    consecutive numbers are in different folds, in an order that a hash of ``key`` and their numbers
    gives. Numbers of two classes have one common order, and so have the last ones. So the numbers
    of rows of two folds, and those of each class, differ by at most one.

    ``totals``  (c,) the rows of each class.
    ``before``  (b,) the number of the first row of each block, and (b, c) the rows of each class
                before it; None where all rows are one class.
    ``step``    one row of so many of a class is scored, a random one.
    """

    count: int
    key: int
    totals: tuple[int, ...]
    before: tuple[IntArray, IntArray] | None = None
    step: int = 1

    @classmethod
    def of(cls, objective: Objective, count: int, key: int) -> "Folds":
        """Return the folds of rows; the classes are counted in one pass."""
        if not objective.loss.is_classification:
            totals, before = np.array([objective.count]), None
            short = objective.count < 4 * count
            why = f"{objective.count} rows are too few"
        else:
            task = partial(_count_classes, max(2, objective.loss.outputs))
            starts, counts = zip(*objective.map(task), strict=True)
            running = np.cumsum(counts, axis=0)
            totals, before = running[-1], (np.array(starts), running - np.array(counts))
            short = min(totals) < 2 * count
            why = f"the rarest class has {min(totals)} rows, and every fold needs two of each"
        if short:
            raise InvalidInput(
                f"folds={count!r}: {why}; take fewer folds, or 0 to leave the utility out."
            )
        folds = cls(count=count, key=key, totals=tuple(totals.tolist()), before=before)
        most = min(MOST_SCORED, max(1, _ENTRIES // (objective.columns * count)))
        return replace(folds, step=-(-int(folds.sizes.sum(axis=0).max()) // most))

    @cached_property
    def starts(self) -> IntArray:
        """(c,) the number i of the first row of each class."""
        return np.cumsum([0, *self.totals[:-1]])

    @cached_property
    def _common(self) -> IntArray:
        """(count,) the place of each fold in the common order."""
        return np.argsort(_hash(np.arange(self.count), self.key ^ _OTHER))

    @cached_property
    def sizes(self) -> IntArray:
        """(c, count) the rows of each class in each fold."""
        first, place = self.starts[:, None] - 1 - self._common, np.array(self.totals)[:, None]
        sizes: IntArray = (first + place) // self.count - first // self.count
        return sizes

    def places(self, block: RowBlock) -> tuple[IntArray, IntArray]:
        """Return the class and the number i of each row of a block."""
        if self.before is None:
            number = np.arange(block.start, block.start + len(block))
            return np.zeros_like(number), number
        classes, number = _classes(block.y), np.empty(len(block), dtype=np.int64)
        starts, before = self.before
        for code, first in enumerate(self.starts + before[np.searchsorted(starts, block.start)]):
            here = np.flatnonzero(classes == code)
            number[here] = np.arange(first, first + len(here))
        return classes, number

    def where(self, block: RowBlock) -> IntArray:
        """Return the fold of each row of a block."""
        return self._where(self.places(block)[1])

    def _where(self, number: IntArray) -> IntArray:
        group, inverse = np.unique(number // self.count, return_inverse=True)
        each = group[:, None] * self.count + np.arange(self.count)
        order = np.argsort(np.argsort(_hash(each, self.key), axis=1), axis=1)
        ends = np.array([*self.starts[1:], sum(self.totals)])
        shared = np.isin(group, ends[ends % self.count > 0] // self.count)
        order[shared] = np.argsort(self._common)
        folds: IntArray = order[inverse, number % self.count]
        return folds

    def scored(self, block: RowBlock) -> tuple[IntArray, IntArray]:
        """Return the fold of each row of a block, and which rows are scored."""
        classes, number = self.places(block)
        where, start = self._where(number), self.starts[classes]
        # A class that begins within a group has no row there in the folds before its beginning.
        missing = self._common[where] < start % self.count
        place = number // self.count - start // self.count - missing
        run = place // self.step
        size = np.minimum(self.step, self.sizes[classes, where] - run * self.step)
        chosen = _hash(start + run * self.count + where, self.key ^ _OTHER) % size.astype(np.uint64)
        return where, np.flatnonzero(place - run * self.step == chosen.astype(np.int64))

    def without(self, rows: Rows, fold: int) -> Rows:
        """Return the rows that are not in ``fold``."""
        if isinstance(rows, HeldRows):
            return rows.take(np.concatenate(list(rows.map(self.where))) != fold)
        return _KeptRows(rows=rows, folds=self, fold=fold)


def _count_classes(classes: int, block: RowBlock) -> tuple[int, IntArray]:
    """Return the number of the first row of a block, and the number of its rows of each class."""
    return block.start, np.bincount(_classes(block.y), minlength=classes)


def _classes(y: FloatArray) -> IntArray:
    """Return classes counted from 0: labels are those, or ±1 where there are two."""
    return np.maximum(y, 0).astype(np.int64)


def _hash(value: IntArray, key: int) -> NDArray[np.uint64]:
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014) of key + value·γ."""
    mixed = value.astype(np.uint64) * np.uint64(_GAMMA) + np.uint64(key)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@dataclass(frozen=True, kw_only=True, eq=False)
class _KeptRows:
    """The rows of a table that are not in one fold, read in passes over all of them."""

    rows: Rows
    folds: Folds
    fold: int

    is_held: ClassVar[bool] = False

    @property
    def count(self) -> int:
        """The number of rows that are not in the fold."""
        return self.rows.count - int(self.folds.sizes[:, self.fold].sum())

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return self.rows.columns

    @property
    def longest(self) -> float:
        """The largest norm of all rows, which bounds those that are kept."""
        return self.rows.longest

    @property
    def common_norm(self) -> float:
        """A length that most of all rows do not exceed."""
        return self.rows.common_norm

    @property
    def label_size(self) -> float:
        """The largest ∣y∣ of all rows, which bounds those that are kept."""
        return self.rows.label_size

    def map(self, task: Callable[[RowBlock], T]) -> Iterator[T]:
        """Yield the result of ``task`` for the kept rows of every block that has any."""
        for results in self.rows.map(partial(_on_kept, task, self.folds, self.fold)):
            yield from results

    def on_first(self, task: Callable[[RowBlock], T], count: int) -> T:
        """Return the result of ``task`` for the first rows, kept or not: a search begins there."""
        return self.rows.on_first(task, count)


def _on_kept(task: Callable[[RowBlock], T], folds: Folds, fold: int, block: RowBlock) -> list[T]:
    """Apply a task to the rows of a block that are not in a fold: one result in a list, or none."""
    kept = folds.where(block) != fold
    return [task(block.take(kept))] if np.any(kept) else []
