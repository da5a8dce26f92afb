"""A(D') − A(D) of every neighbour, held as a few numbers each and formed when asked for."""

from dataclasses import dataclass

import numpy as np

from expost._numerics import row_blocks, row_norms
from expost.neighbouring.persons import Persons
from expost.types import FloatArray

__all__ = ["Shifts", "SummedShifts"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Shifts:
    """shiftᵢ = constant + Σ scaleᵢ·(rowᵢ @ matrix), computed when asked for, by blocks."""

    constant: FloatArray
    terms: tuple[tuple[FloatArray, FloatArray], ...]
    matrix: FloatArray | None

    @classmethod
    def dense(cls, array: FloatArray) -> "Shifts":
        """Shifts that are known as an (n, d) array."""
        ones = np.ones(len(array))
        return cls(constant=np.zeros(array.shape[1]), terms=((ones, array),), matrix=None)

    @property
    def shape(self) -> tuple[int, int]:
        """(neighbours, coordinates)."""
        return len(self.terms[0][0]), len(self.constant)

    def block(self, rows: slice) -> FloatArray:
        """The shifts of a block of neighbours."""
        total = np.tile(self.constant, (len(self.terms[0][0][rows]), 1))
        for scale, X in self.terms:
            part = X[rows] if self.matrix is None else X[rows] @ self.matrix
            total += scale[rows, None] * part
        return total

    def all(self) -> FloatArray:
        """Every shift, (n, d)."""
        result = np.empty(self.shape)
        for rows in row_blocks(*self.shape):
            result[rows] = self.block(rows)
        return result

    def inner(self, vector: FloatArray) -> FloatArray:
        """Inner products with one vector: a matrix–vector product, not n of them."""
        image = vector if self.matrix is None else self.matrix @ vector
        total = np.full(self.shape[0], float(self.constant @ vector))
        for scale, X in self.terms:
            total += scale * (X @ image)
        return total

    def inners(self, vectors: FloatArray, rows: slice) -> FloatArray:
        """(m, rows) inner products of a block of neighbours with m vectors (m, d): one product."""
        images = vectors if self.matrix is None else vectors @ self.matrix
        total = np.repeat((vectors @ self.constant)[:, None], len(self.terms[0][0][rows]), axis=1)
        for scale, X in self.terms:
            part = images @ X[rows].T
            part *= scale[rows]
            total += part
        return total

    def norms(self) -> FloatArray:
        """Lengths, from the shifts themselves: expanding the square would cancel."""
        result = np.empty(self.shape[0])
        for rows in row_blocks(*self.shape):
            part = self.block(rows)
            result[rows] = row_norms(part)
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class SummedShifts:
    """shift = factor·direction + Σ scaleᵢxᵢ over a person's rows, computed when asked for.

    ``factor`` (persons,), ``direction`` (d,), ``scale`` (n,); the methods are those of
    :class:`Shifts`.
    """

    direction: FloatArray
    factor: FloatArray
    scale: FloatArray
    X: FloatArray
    persons: Persons

    @property
    def shape(self) -> tuple[int, int]:
        """(persons, coordinates)."""
        return len(self.factor), len(self.direction)

    def block(self, rows: slice) -> FloatArray:
        """The shifts of a block of persons."""
        chosen = np.arange(len(self.factor))[rows]
        total = self.factor[chosen, None] * self.direction
        if not len(chosen):
            return total
        sizes = self.persons.sizes[chosen]
        first = int(self.persons.starts[chosen[0]])
        for part in row_blocks(int(sizes.sum()), len(self.direction)):
            index = self.persons.rows[first + part.start : first + part.stop]
            place = self.persons.owner[index] - chosen[0]
            # A person's rows stand together: each sum is one stretch of them.
            begins = np.flatnonzero(np.diff(place, prepend=-1))
            sums = np.add.reduceat(self.scale[index, None] * self.X[index], begins, axis=0)
            total[place[begins]] += sums
        return total

    def all(self) -> FloatArray:
        """Every shift, (persons, d)."""
        return self.block(slice(None))

    def inner(self, vector: FloatArray) -> FloatArray:
        """Inner products with one vector."""
        along = self.scale * (self.X @ vector)
        summed = np.bincount(self.persons.owner, weights=along, minlength=len(self.factor))
        inner: FloatArray = self.factor * float(self.direction @ vector) + summed
        return inner

    def inners(self, vectors: FloatArray, rows: slice) -> FloatArray:
        """(m, rows) inner products of a block of persons with m vectors (m, d)."""
        return vectors @ self.block(rows).T

    def norms(self) -> FloatArray:
        """Lengths."""
        result = np.empty(self.shape[0])
        for rows in row_blocks(*self.shape):
            result[rows] = row_norms(self.block(rows))
        return result
