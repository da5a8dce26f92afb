"""Which rows leave the data and which enter, for each neighbouring data set."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from expost._numerics import row_blocks, row_norms
from expost.errors import InvalidInput
from expost.losses import Loss
from expost.neighbouring.persons import Persons
from expost.rows import LONGEST_ROW, HeldRows, RowBlock
from expost.types import FloatArray, IntArray, Neighbouring

__all__ = [
    "Change",
    "ChangedGroup",
    "EvaluatedRows",
    "chunks",
    "entering_rows",
    "persons_at_once",
    "terms",
]

# Entries of rows, or of matrices, that are gathered at a time: 2 MiB.
_ENTRIES = 2**18
# Rows of one neighbour that one dot product sums; longer sums are compensated.
_CHUNK = 4096


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EvaluatedRows:
    """Rows with the linear predictor z and the derivatives f′, f″ of each at one θ."""

    X: FloatArray
    y: FloatArray
    norms: FloatArray
    z: FloatArray
    slope: FloatArray
    curvature: FloatArray

    @classmethod
    def of(cls, block: RowBlock, theta: FloatArray, loss: Loss) -> "EvaluatedRows":
        """Evaluate the rows of ``block`` at ``theta``."""
        z, slope, curvature = np.empty((3, len(block)))
        # The products of these slices have the same bits as those of the blocks of rows in memory.
        for where in row_blocks(*block.X.shape):
            z[where] = block.X[where] @ theta
            slope[where], curvature[where] = loss.derivatives(z[where], block.y[where])
        return cls(
            X=block.X,
            y=block.y,
            norms=block.norms,
            z=z,
            slope=slope,
            curvature=curvature,
        )

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: slice | IntArray) -> "EvaluatedRows":
        """Return some of the rows; an index (p, k) gives arrays with these two axes in front."""
        return EvaluatedRows(
            **{part.name: getattr(self, part.name)[index] for part in fields(self)}
        )

    def pairs(self) -> "EvaluatedRows":
        """Return consecutive rows in pairs: views with the axes (p, 2) in front."""
        return EvaluatedRows(
            **{
                part.name: getattr(self, part.name).reshape(
                    -1, 2, *getattr(self, part.name).shape[1:]
                )
                for part in fields(self)
            }
        )

    @property
    def norm_squares(self) -> FloatArray:
        """∥x∥², from above."""
        return self.norms * self.norms

    def residual(self, loss: Loss) -> float:
        """Return the largest ∣f′∣ + ∣y∣, with which f′ of a regression rounds; of classes 2."""
        if loss.is_classification:
            return 2.0
        return float(np.max(np.abs(self.slope) + np.abs(self.y)))


def persons_at_once(width: int) -> int:
    """Return the number of persons of a block, where each takes ``width`` entries."""
    return max(1, _ENTRIES // max(width, 1))


def chunks(rows: IntArray, columns: int) -> Iterator[IntArray]:
    """Yield the index (p, k) by columns, a few rows of each neighbour at a time."""
    step = _chunk_size(rows, columns)
    for start in range(0, rows.shape[1], step):
        yield rows[:, start : start + step]


def _chunk_size(rows: IntArray, columns: int) -> int:
    return max(1, min(_CHUNK, _ENTRIES // (len(rows) * columns)))


def terms(rows: IntArray, columns: int) -> float:
    """Return the number of roundings of a sum over one neighbour's rows, chunk by chunk."""
    size, step = int(rows.shape[1]), _chunk_size(rows, columns)
    return min(size, step) + size / step + 8


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ChangedGroup:
    """p neighbouring data sets that change k rows each.

    Attributes
    ----------
    where : IntArray
        (p,) their indices among all neighbours.
    rows : EvaluatedRows
        All rows that may change, or (p, k) those of each neighbour if they replace each other.
    index : IntArray
        (p, ·) the rows of D that leave (or the rows that enter, if none leaves).
    signs : FloatArray
        (k,) −1 for a row that leaves, +1 for one that enters.
    """

    where: IntArray
    rows: EvaluatedRows
    index: IntArray
    signs: FloatArray

    def __len__(self) -> int:
        return len(self.where)

    @property
    def size(self) -> int:
        """The number of rows that each neighbour changes."""
        return len(self.signs)

    @property
    def is_replaced(self) -> bool:
        """Whether a row leaves and one enters."""
        return self.size > int(self.index.shape[1])

    @property
    def sigma(self) -> FloatArray:
        """(k,) +1 for a row that leaves, −1 for one that enters."""
        return -self.signs

    @property
    def roundings(self) -> float:
        """The number of roundings of a sum over one neighbour's rows."""
        return terms(self.index, self.rows.X.shape[-1]) + self.is_replaced

    @cached_property
    def gathered(self) -> EvaluatedRows:
        """The changed rows of each neighbour, (p, k)."""
        return self.rows if self.is_replaced else self.rows.take(self.index)

    def chunks(self) -> Iterator[tuple[EvaluatedRows, FloatArray]]:
        """Yield a few changed rows of each neighbour at a time, and −sign of each."""
        done = 0
        for part in chunks(self.index, self.rows.X.shape[-1]):
            if part.shape == self.index.shape:
                yield self.gathered, self.sigma
            else:
                yield self.rows.take(part), self.sigma[done : done + part.shape[1]]
            done += part.shape[1]

    def take(self, index: IntArray | slice) -> "ChangedGroup":
        """Return some of the neighbours."""
        return replace(
            self,
            where=self.where[index],
            index=self.index[index],
            rows=self.rows.take(index) if self.is_replaced else self.rows,
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Change:
    """The difference of each of p neighbouring data sets from the data D.

    The relations "remove", "add" and "replace" have rows that leave, that enter, and both.

    Attributes
    ----------
    leaving : RowBlock | None
        Rows of D. Neighbour i lacks row i; with ``persons``, all rows of person i.
    entering : RowBlock | None
        Rows that are not in D. Neighbour i has row i in addition.
    persons : Persons | None
        The person of each row of D.
    """

    leaving: RowBlock | None = None
    entering: RowBlock | None = None
    persons: Persons | None = None

    def __post_init__(self) -> None:
        sizes = {len(block) for block in (self.leaving, self.entering) if block is not None}
        if not sizes:
            raise InvalidInput("change: needs rows that leave or rows that enter.")
        if self.persons is not None and (self.leaving is None or self.entering is not None):
            raise InvalidInput("change: all rows of a person can only leave.")
        if len(sizes) > 1:
            raise InvalidInput("change: as many rows must enter as leave.")

    @classmethod
    def of(
        cls,
        rows: HeldRows,
        relation: Neighbouring = Neighbouring.REMOVE,
        entering: tuple[FloatArray, FloatArray] | None = None,
        persons: Persons | None = None,
    ) -> "Change":
        """Return the change of every row (or person) of ``rows``; ``entering`` is (X, y)."""
        leaving = RowBlock(X=rows.X, y=rows.y, norms=rows.norms)
        if relation is Neighbouring.REMOVE:
            return cls(leaving=leaving, persons=persons)
        if entering is None:
            raise InvalidInput(f"change: relation={relation.value!r} needs rows that enter.")
        X, y = entering_rows(entering, relation, rows.count)
        if not row_norms(X).max(initial=0.0) <= LONGEST_ROW:
            raise InvalidInput(f"candidates hold a row longer than {LONGEST_ROW:g}: rescale them.")
        stay = relation is Neighbouring.ADD
        return cls(leaving=None if stay else leaving, entering=RowBlock.of(X, y))

    @property
    def relation(self) -> Neighbouring:
        """Which data sets count as neighbours."""
        if self.entering is None:
            return Neighbouring.REMOVE
        return Neighbouring.ADD if self.leaving is None else Neighbouring.REPLACE

    def __len__(self) -> int:
        if self.persons is not None:
            return len(self.persons)
        return len(self.leaving or self.entering or ())

    @property
    def is_single_removal(self) -> bool:
        """Whether every neighbour lacks exactly one row."""
        return self.is_one_row and self.relation is Neighbouring.REMOVE

    @property
    def is_one_row(self) -> bool:
        """Whether every neighbour changes exactly one row."""
        if self.persons is not None:
            return self.persons.are_rows
        return self.relation is not Neighbouring.REPLACE

    def rows_after(self, count: int) -> int:
        """Return the number of rows of the smallest neighbour of ``count`` rows."""
        leaving = 1 if self.persons is None else self.persons.largest
        return count - (self.leaving is not None) * leaving + (self.entering is not None)

    def changed_rows(self, theta: FloatArray, loss: Loss) -> EvaluatedRows:
        """Return all rows that may change, evaluated at ``theta``.

        Of a replacement the row that leaves and the one that enters are consecutive.
        """
        blocks = [block for block in (self.leaving, self.entering) if block is not None]
        if len(blocks) == 1:
            return EvaluatedRows.of(blocks[0], theta, loss)
        both = RowBlock(
            X=np.stack([block.X for block in blocks], axis=1).reshape(-1, len(theta)),
            y=np.stack([block.y for block in blocks], axis=1).ravel(),
            norms=np.stack([block.norms for block in blocks], axis=1).ravel(),
        )
        return EvaluatedRows.of(both, theta, loss)

    def groups(self, rows: EvaluatedRows) -> Iterator[ChangedGroup]:
        """Yield the neighbours by the number of ``rows`` (the changed ones) that they change."""
        if self.persons is not None:
            for where, index in self.persons.by_size():
                signs = np.full(index.shape[1], -1.0)
                yield ChangedGroup(where=where, rows=rows, index=index, signs=signs)
            return
        where, is_replaced = np.arange(len(self)), self.relation is Neighbouring.REPLACE
        sign = -1.0 if self.entering is None else 1.0
        yield ChangedGroup(
            where=where,
            rows=rows.pairs() if is_replaced else rows,
            index=where[:, None],
            signs=np.array([-1.0, 1.0] if is_replaced else [sign]),
        )


def entering_rows(
    candidates: tuple[FloatArray, FloatArray], relation: Neighbouring, count: int
) -> tuple[FloatArray, FloatArray]:
    """Return the rows that enter, one for each neighbour of ``count`` rows.

    A single candidate may replace every row.
    """
    rows, labels = candidates
    if relation is Neighbouring.REPLACE and len(rows) == 1:
        rows, labels = np.tile(rows, (count, 1)), np.tile(labels, count)
    if relation is Neighbouring.REPLACE and len(rows) != count:
        raise InvalidInput(
            f"candidates[0] has {len(rows)} rows: relation='replace' needs one, or one for each"
            f" of the {count} rows of X."
        )
    return rows, labels
