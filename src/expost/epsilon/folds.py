"""The rows on which utility is measured, and which of them are held out.

A row's fold follows from a key and its number in the table. It does not depend on where the rows
are or on the size of blocks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput
from expost.glm import Objective
from expost.rows import HeldRows, RowBlock
from expost.types import FloatArray, IntArray

__all__ = ["MOST_ROWS", "HeldOutRows"]

# Rows that utility is measured on at most, and entries of them: 128 MiB.
MOST_ROWS = 50_000
_ENTRIES = 2**24
# Keys of the two hashes.
_GAMMA, _OTHER = 0x9E3779B97F4A7C15, 0x5851F42D4C957F2D


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOutRows:
    """Rows in memory, all of a table or a sample of it, and the fold of each.

    Folds are stratified: the numbers of rows of two folds, and those of each class, differ by at
    most one.

    Parameters
    ----------
    rows : HeldRows
        (m,) rows.
    fold : IntArray
        (m,) the fold of each row, counted from 0.
    order : NDArray[np.uint64]
        (m,) random numbers by which a part of the rows is chosen.
    """

    rows: HeldRows
    fold: IntArray
    order: NDArray[np.uint64]
    count: int

    @classmethod
    def of(cls, objective: Objective, count: int, key: int) -> "HeldOutRows":
        """Take the rows of an objective, or 50,000 of them, in one pass."""
        most = min(MOST_ROWS, max(1, _ENTRIES // objective.columns))
        task = _Chosen(key=key, share=most / objective.count)
        parts = [part for part in objective.map(task) if part is not None]
        X, y, order = (np.concatenate(column) for column in zip(*parts, strict=True))
        classes = np.zeros(len(y), dtype=np.int64)
        if objective.loss.is_classification:
            # Labels are classes counted from 0, or ±1 where there are two.
            classes = np.maximum(y, 0).astype(np.int64)
            totals = np.bincount(classes, minlength=max(2, objective.loss.outputs))
            short = int(totals.min()) < 2 * count
            reason = f"the rarest class has {totals.min()} rows, and every fold needs two of each"
        else:
            short = len(y) < 4 * count
            reason = f"{len(y)} rows are too few"
        if short:
            raise InvalidInput(
                f"folds={count!r}: {reason}; take fewer folds, or 0 to leave the utility out."
            )
        fold = np.empty(len(y), dtype=np.int64)
        fold[np.lexsort((order, classes))] = np.arange(len(y)) % count
        return cls(rows=HeldRows(X=X, y=y), fold=fold, order=order, count=count)

    def split(self, fold: int) -> tuple[HeldRows, HeldRows]:
        """Return the rows outside of a fold, and those in it."""
        return self.rows.take(self.fold != fold), self.rows.take(self.fold == fold)

    def inner(self, fold: int, count: int, most: int) -> "HeldOutRows":
        """Return at most ``most`` of the rows outside of a fold, in folds of their own."""
        kept = np.flatnonzero(self.fold != fold)
        kept = kept[np.argsort(self.order[kept], kind="stable")[:most]]
        inner_fold = np.empty(len(kept), dtype=np.int64)
        inner_fold[np.argsort(self.rows.y[kept], kind="stable")] = np.arange(len(kept)) % count
        return HeldOutRows(
            rows=self.rows.take(kept), fold=inner_fold, order=self.order[kept], count=count
        )


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Take each row of a block with probability ``share``, by a hash of its number."""

    key: int
    share: float

    def __call__(self, block: RowBlock) -> tuple[FloatArray, FloatArray, NDArray[np.uint64]] | None:
        """Return the rows, labels and hashes of those that are taken, or None."""
        number = np.arange(block.start, block.start + len(block))
        order = _hash(number, self.key ^ _OTHER)
        if self.share >= 1:
            return block.X, block.y, order
        taken = _hash(number, self.key) < np.uint64(int(self.share * 2.0**64))
        return (block.X[taken], block.y[taken], order[taken]) if np.any(taken) else None


def _hash(value: IntArray, key: int) -> NDArray[np.uint64]:
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014) of key + value·γ."""
    mixed = value.astype(np.uint64) * np.uint64(_GAMMA) + np.uint64(key)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
