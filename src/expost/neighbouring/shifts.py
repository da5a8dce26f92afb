"""A(D') − A(D) of every neighbour: held as a few numbers each, with lengths and errors."""

from dataclasses import dataclass

import numpy as np

from expost._numerics import row_blocks, row_norms
from expost.types import FloatArray, IntArray

__all__ = ["Shifts", "Steps"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Shifts:
    """shiftᵢ = constant + scaleᵢ·(Xᵢ @ matrix), computed when needed, by blocks.

    Where ``matrix`` is None it is the identity. The shifts of the rows ``known``, ascending, are
    ``exact``.
    """

    constant: FloatArray
    scale: FloatArray
    X: FloatArray
    matrix: FloatArray | None
    known: IntArray | None = None
    exact: FloatArray | None = None

    @classmethod
    def dense(cls, array: FloatArray) -> "Shifts":
        """Return shifts that are known as an (n, d) array."""
        ones = np.ones(len(array))
        return cls(constant=np.zeros(array.shape[1]), scale=ones, X=array, matrix=None)

    @property
    def shape(self) -> tuple[int, int]:
        """(neighbours, coordinates)."""
        return len(self.scale), len(self.constant)

    def block(self, where: slice | IntArray) -> FloatArray:
        """Return the shifts of some neighbours."""
        total = np.tile(self.constant, (len(self.scale[where]), 1))
        part = self.X[where] if self.matrix is None else self.X[where] @ self.matrix
        total += self.scale[where, None] * part
        if self.known is not None and self.exact is not None and len(self.known):
            rows = np.arange(len(self.scale))[where]
            index = np.minimum(np.searchsorted(self.known, rows), len(self.known) - 1)
            refined = self.known[index] == rows
            total[refined] = self.exact[index[refined]]
        return total

    def all(self) -> FloatArray:
        """Return every shift, (n, d)."""
        result = np.empty(self.shape)
        for where in row_blocks(*self.shape):
            result[where] = self.block(where)
        return result

    def inner(self, vector: FloatArray) -> FloatArray:
        """Return inner products with one vector: a matrix–vector product, not n of them."""
        image = vector if self.matrix is None else self.matrix @ vector
        total = np.full(self.shape[0], float(self.constant @ vector))
        total += self.scale * (self.X @ image)
        if self.known is not None and self.exact is not None:
            total[self.known] = self.exact @ vector
        return total

    def inners(self, vectors: FloatArray, where: slice) -> FloatArray:
        """Return (m, p) inner products of a block of p neighbours with m vectors (m, d)."""
        if self.known is not None:
            return np.asarray(vectors @ self.block(where).T)
        images = vectors if self.matrix is None else vectors @ self.matrix
        total = np.repeat((vectors @ self.constant)[:, None], len(self.scale[where]), axis=1)
        part = images @ self.X[where].T
        part *= self.scale[where]
        total += part
        return total

    def norms(self) -> FloatArray:
        """Return the lengths, from the shifts themselves: expanding the square would cancel."""
        result = np.empty(self.shape[0])
        for where in row_blocks(*self.shape):
            result[where] = row_norms(self.block(where))
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """Shifts to some neighbours, their lengths ``distance``, and a bound on each one's error."""

    shifts: Shifts
    distance: FloatArray
    error: FloatArray

    def loose(self, tolerance: float) -> IntArray:
        """Return the neighbours whose error is more than that share of their distance."""
        return np.flatnonzero(~(self.error <= tolerance * self.distance))
