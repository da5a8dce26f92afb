"""The expected exposure of very many rows: the exact law, tabulated where that is faster.

Under norm-Laplace noise E∣ℓ∣/t is one analytic function of x = log t in each dimension. A table
of it is a Chebyshev interpolant on pieces of unit length in x, of degree 17. Its nearest
singularities lie at ∣Im x∣ ≥ π/2 (the Bessel functions have none in the right half plane), so that
the interpolant converges like 6⁻ᵏ; each piece is checked against the law between its nodes when it
is made, and one that misses ``TABLE_ERROR`` is not used.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.polynomial import chebyshev

from expost._numerics import row_blocks
from expost.noise import LossLaw
from expost.types import FloatArray

__all__ = ["TABLE_ERROR", "Table", "expected_exposures"]

# Largest relative difference from the law that a table may show where it is checked.
TABLE_ERROR = 1e-12
_DEGREE = 17
# Nodes and check points of one piece: below so many rows a table does not pay.
_COST = 2 * (_DEGREE + 1)
_PIECE = 1.0


def expected_exposures(
    law: Callable[[FloatArray], LossLaw], distance: FloatArray, scales: FloatArray
) -> FloatArray:
    """Return E∣ℓ∣ at separations ``scales`` (k,) × ``distance`` (n,), as (k, n).

    ``law`` maps separations to their law. To 1e-11 relative, with a table or without.
    """
    order = np.argsort(distance, kind="stable")
    ascending = distance[order]
    positive = ascending[ascending > 0]
    result = np.zeros((len(scales), len(distance)))
    if not len(positive):
        return result
    pieces = _Pieces(law)
    for row, scale in zip(result, scales, strict=True):
        for block in row_blocks(len(ascending), 1):
            with np.errstate(over="ignore", under="ignore"):
                separation = scale * ascending[block]
            row[order[block]] = pieces.exposures(separation)
    return result


class _Pieces:
    """The pieces of one law's table, made when they are first needed."""

    def __init__(self, law: Callable[[FloatArray], LossLaw]) -> None:
        self._law = law
        self._coefficients: dict[int, FloatArray | None] = {}

    def exposures(self, separation: FloatArray) -> FloatArray:
        """Return E∣ℓ∣ of ascending separations, piece by piece."""
        result = np.zeros(len(separation))
        ordinary = slice(
            int(np.searchsorted(separation, 0.0, side="right")),
            int(np.searchsorted(separation, math.inf, side="left")),
        )
        result[ordinary.stop :] = math.inf
        t = separation[ordinary]
        x = np.log(t)
        numbers = np.floor(x / _PIECE).astype(np.int64)
        starts = np.flatnonzero(np.diff(numbers, prepend=np.nan))
        for start, stop in pairwise([*starts, len(t)]):
            here = slice(start, stop)
            result[ordinary][here] = self._piece(int(numbers[start]), t[here], x[here])
        return result

    def _piece(self, number: int, t: FloatArray, x: FloatArray) -> FloatArray:
        if number not in self._coefficients and len(t) < _COST:
            return self._law(t).expected_exposure
        if number not in self._coefficients:
            self._coefficients[number] = self.interpolate(number)
        coefficients = self._coefficients[number]
        if coefficients is None:
            return self._law(t).expected_exposure
        value: FloatArray = t * chebyshev.chebval(2 * (x / _PIECE - number) - 1, coefficients)
        return value

    def interpolate(self, number: int) -> FloatArray | None:
        """Return Chebyshev coefficients of E∣ℓ∣/t on one piece, or None if they are inaccurate."""

        def ratio(node: FloatArray) -> FloatArray:
            t = np.exp(_PIECE * (number + 0.5 * (node + 1)))
            return self._law(t).expected_exposure / t

        nodes = chebyshev.chebpts1(_DEGREE + 1)
        # As many nodes as coefficients: the fit is the interpolant.
        coefficients = np.asarray(chebyshev.chebfit(nodes, ratio(nodes), _DEGREE), np.float64)
        between = np.cos(np.pi * np.arange(_DEGREE + 2) / (_DEGREE + 1))
        exact = ratio(between)
        error = np.max(np.abs(chebyshev.chebval(between, coefficients) / exact - 1))
        return coefficients if error <= TABLE_ERROR else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """E∣ℓ∣ of rows by their distance at one scale, from a table of the law that is made once.

    Every value comes from the table, so that no byte of it depends on the order of calls or on how
    rows were cut into blocks. ``first`` is the number of the first piece. Outside of the table, and
    where it is not accurate enough, the law itself is evaluated.
    """

    law: Callable[[FloatArray], LossLaw]
    scale: float
    first: int
    pieces: tuple[FloatArray | None, ...]

    @classmethod
    def of(cls, law: Callable[[FloatArray], LossLaw], scale: float, most: float) -> "Table":
        """Return the table for separations up to ``most``, and down to 2⁻⁶⁰ of it."""
        last = math.floor(math.log(most) / _PIECE)
        first = last - math.ceil(60 * math.log(2) / _PIECE)
        made = _Pieces(law)
        pieces = tuple(made.interpolate(number) for number in range(first, last + 1))
        return cls(law=law, scale=scale, first=first, pieces=pieces)

    def __call__(self, distance: FloatArray) -> FloatArray:
        """Return E∣ℓ∣ at each ``distance``."""
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            t = self.scale * distance
            x = np.log(t)
        # What is not a number may be anything.
        result = np.where(t >= 0, np.where(t < np.inf, 0.0, np.inf), np.inf)
        ordinary = (t > 0) & (t < np.inf)
        numbers = np.floor(np.where(ordinary, x, 0.0) / _PIECE).astype(np.int64)
        for number in np.unique(numbers[ordinary]):
            here = np.flatnonzero((numbers == number) & ordinary)
            index = int(number) - self.first
            piece = self.pieces[index] if 0 <= index < len(self.pieces) else None
            if piece is None:
                result[here] = self.law(t[here]).expected_exposure
            else:
                nodes = 2 * (x[here] / _PIECE - number) - 1
                result[here] = t[here] * chebyshev.chebval(nodes, piece)
        return result
