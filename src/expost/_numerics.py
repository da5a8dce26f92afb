"""Root finding, quadrature, compensated sums and row blocks.

Conventions
-----------
u        the unit roundoff, 2⁻⁵³.
γ_k      k·u / (1 − k·u): any order of summing k products errs by at most γ_k Σ∣aᵢbᵢ∣ (Higham,
         *Accuracy and Stability of Numerical Algorithms*, §3.1).
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost.types import FloatArray

__all__ = [
    "ROUNDOFF",
    "UNDERFLOW",
    "CompensatedSum",
    "bracket_root",
    "cached_rows",
    "gamma",
    "gauss_legendre",
    "row_blocks",
    "row_norms",
    "row_products",
    "solve_small",
    "spawned_seeds",
    "weighted_gram",
]

ROUNDOFF = 2.0**-53
# Exceeds what a norm can lose by the underflow of squares and products; added to error bounds.
UNDERFLOW = 1e-150

# Rows per block: fixed by the width alone, so that no result depends on the number of workers.
_BLOCK_ENTRIES = 2**18
_BLOCK_ROWS = 2**15
# Entries of a product that is read again at once: 512 KiB.
_CACHED_ENTRIES = 2**16


def gamma(k: float) -> float:
    """Return γ_k, the relative error of a sum of ``k`` products in any order."""
    product = k * ROUNDOFF
    if not product < 0.5:
        raise ArithmeticError(f"a sum of {k:g} terms is too long for an error bound in float64")
    return product / (1 - product)


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices that cover ``rows``, of at most 2 MiB of float64 and 32,768 rows each.

    A vector of a block's rows then stays in the cache of one core while it is certified.
    """
    step = min(_BLOCK_ROWS, max(64, _BLOCK_ENTRIES // max(columns, 1)))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def cached_rows(columns: int) -> int:
    """Return the number of rows whose products stay in the cache of one core: 512 KiB, 64 rows."""
    return min(_BLOCK_ROWS, max(64, _CACHED_ENTRIES // max(columns, 1)))


def weighted_gram(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Return Σ w x xᵀ for w ≥ 0, by additions that are no more than one for each row.

    As RᵀR of R = √w·x, of which BLAS computes one half; √w and the product with it add three
    roundings to each term. A few rows at a time, so that R is in the cache when it is read.
    """
    count, columns = rows.shape
    step = cached_rows(columns)
    roots = np.sqrt(weights)[:, None]
    space = np.empty((min(step, count), columns), dtype=np.result_type(rows, weights))
    total = np.zeros((columns, columns))
    for start in range(0, count, step):
        part = rows[start : start + step]
        scaled = np.multiply(part, roots[start : start + step], out=space[: len(part)])
        total += scaled.T @ scaled
    return total


def row_norms(rows: FloatArray) -> FloatArray:
    """Return the lengths of the rows, also of those whose squares underflow."""
    norms: FloatArray = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    tiny = norms < 1e-140
    if np.any(tiny):
        # Scaled by a power of two, which is exact.
        norms[tiny] = np.linalg.norm(np.ldexp(rows[tiny], 700), axis=1) * 2.0**-700
    return norms


def row_products(rows: FloatArray, vector: FloatArray) -> FloatArray:
    """Return x·v of every row, by additions that do not depend on the other rows.

    BLAS sums the last rows of a block in a different order, so that removing one row would change
    the last digit of another. A sum with the sensitivity of one row cannot allow that: a function
    of x·v may jump.
    """
    products: FloatArray = np.einsum("ij,j->i", np.ascontiguousarray(rows), vector)
    return products


def solve_small(systems: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a small system (p, k, k) for each right-hand side (p, k); NaN where one is singular."""
    try:
        return np.asarray(np.linalg.solve(systems, right[:, :, None])[:, :, 0])
    except np.linalg.LinAlgError:
        # One is singular. The sign tells which: the determinant itself may underflow.
        singular = ~(np.abs(np.linalg.slogdet(systems)[0]) > 0)
    safe = np.where(singular[:, None, None], np.eye(systems.shape[1]), systems)
    try:
        solved = np.linalg.solve(safe, right[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        return np.full(right.shape, np.nan)
    return np.where(singular[:, None], np.nan, solved)


class CompensatedSum:
    """A running sum of arrays whose error does not grow with the number of terms.

    Knuth's two-sum keeps what each addition drops; of K terms pₖ, merged ones included, the total
    then errs by at most u∣Σpₖ∣ + γ_2K² Σ∣pₖ∣ (Ogita, Rump and Oishi 2005, Prop. 4.5).
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self._total = np.zeros(shape)
        self._dropped = np.zeros(shape)

    def add(self, term: FloatArray) -> None:
        """Add ``term``."""
        total = self._total + term
        back = total - self._total
        self._dropped += (self._total - (total - back)) + (term - back)
        self._total = total

    def merge(self, other: "CompensatedSum") -> None:
        """Add the terms of another sum."""
        self.add(other._total)
        self.add(other._dropped)

    @property
    def value(self) -> FloatArray:
        """The sum of all terms."""
        return self._total + self._dropped


@lru_cache(maxsize=32)
def gauss_legendre(nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return the nodes and weights of the Gauss–Legendre rule on [−1, 1]."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    points.setflags(write=False)
    weights.setflags(write=False)
    return points, weights


# So many points are interpolated at most; a function that needs more is bisected from there on.
_INTERPOLATED = 20
# Brackets of so few floating-point numbers are halved: interpolation there follows rounding.
_FEW_FLOATS = 16.0
# With fewer halvings the ends are those of bisection, else neighbours.
_ALL_HALVINGS = 60


def bracket_root(
    function: Callable[[FloatArray], FloatArray],
    low: FloatArray | float,
    high: FloatArray | float,
    *,
    halvings: int = 120,
) -> tuple[FloatArray, FloatArray]:
    """Shrink [low, high] around the sign change of an increasing function.

    Works on arrays, entry by entry. Returns ``(below, above)`` with function(below) ≤ 0 <
    function(above), adjacent in float64 where ``halvings`` suffice. The caller takes the end that
    is *more exposed*, so that a rounded root never guarantees too much. A NaN counts as positive,
    which moves ``above`` down, where the caller checks it. ``low`` is returned unchanged where the
    function is positive throughout, and ``high`` where it is nowhere positive.

    The ends are those of bisection, by the geometric mean where they are far apart: they do not
    depend on the last digits of the values. Points are interpolated first, and bisection asks only
    for signs that do not follow from them: a smooth function is called about ten times instead of
    fifty.
    """
    low, high = np.broadcast_arrays(
        np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    )
    known = _interpolated_bracket(function, low, high, halvings)
    if halvings >= _ALL_HALVINGS and np.all(np.nextafter(known[0], np.inf) >= known[1]):
        return known
    below, above = low.copy(), high.copy()
    for _ in range(halvings):
        middle = _midpoint(below, above)
        if np.all((middle == below) | (middle == above)):
            break
        negative, open_ = middle <= known[0], (middle > known[0]) & (middle < known[1])
        if np.any(open_):
            negative = np.where(open_, function(middle) <= 0, negative)
        below = np.where(negative, middle, below)
        above = np.where(negative, above, middle)
    return below, above


def _interpolated_bracket(
    function: Callable[[FloatArray], FloatArray], low: FloatArray, high: FloatArray, halvings: int
) -> tuple[FloatArray, FloatArray]:
    """Return ends around the sign change, as near as bisection would leave them.

    An end that was never passed stays where it was. Chandrupatla (1997).
    """
    # x₁ is the latest end, x₂ the other one, x₃ the end before x₁; fᵢ is NaN where it is unknown.
    x1, x2 = low.copy(), high.copy()
    x3 = f1 = f2 = f3 = np.full(x1.shape, np.nan)
    negative = np.ones(x1.shape, dtype=bool)
    least = np.where(_are_far(x1, x2), 0.0, (x2 - x1) * 2.0**-halvings)
    for step in range(halvings + _INTERPOLATED):
        middle = _midpoint(x1, x2)
        finished = (middle == x1) | (middle == x2) | (np.abs(x2 - x1) <= least)
        if np.all(finished):
            break
        at = middle
        if step < _INTERPOLATED:
            away = _interpolated(x1, x2, x3, f1, f2, f3)
            at = np.where(
                finished | (away == 0), middle, 0.5 * (x1 + x2) + away * (0.5 * (x2 - x1))
            )
        value = function(at)
        # A bracket that is finished keeps its ends: entries do not depend on each other.
        now = np.where(finished, negative, value <= 0)
        same, other = (now == negative) & ~finished, now != negative
        x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
        x2, f2 = np.where(other, x1, x2), np.where(other, f1, f2)
        x1, f1 = np.where(finished, x1, at), np.where(finished, f1, value)
        negative = now
    return np.where(negative, x1, x2), np.where(negative, x2, x1)


def _midpoint(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the geometric mean of positive numbers that are far apart, else the arithmetic."""
    middle = first + 0.5 * (second - first)
    far = _are_far(np.minimum(first, second), np.maximum(first, second))
    if np.any(far):
        roots = np.sqrt(np.where(far, first, 1.0)) * np.sqrt(np.where(far, second, 1.0))
        middle = np.where(far, roots, middle)
    return middle


def _are_far(low: FloatArray, high: FloatArray) -> NDArray[np.bool_]:
    return (low > 0) & (high > 4 * low)


def _interpolated(
    x1: FloatArray, x2: FloatArray, x3: FloatArray, f1: FloatArray, f2: FloatArray, f3: FloatArray
) -> FloatArray:
    """Return the next point, from the middle (0) towards x₁ (−1) or x₂ (1).

    The quadratic through three points, as a function of their values, where it is monotone between
    them, else the middle; a little past the root, so that the other end follows.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        width = x2 - x1
        share, ratio = width / (x2 - x3), (f1 - f2) / (f3 - f2)
        floats = np.abs(width) / np.spacing(np.maximum(np.abs(x1), np.abs(x2)))
        used = (ratio**2 < share) & ((1 - ratio) ** 2 < 1 - share) & (floats > _FEW_FLOATS)
        used &= ~_are_far(np.minimum(x1, x2), np.maximum(x1, x2))
        if not np.any(used):
            return np.zeros(x1.shape)
        part = f1 / (f2 - f1) * f3 / (f2 - f3)
        part += (x3 - x1) / width * f1 / (f3 - f1) * f2 / (f3 - f2)
        most = 1 - 4 / floats
        return np.where(used, np.clip(2 * part - 1, -most, most), 0.0)


def spawned_seeds(
    random_state: int | np.random.Generator | None, count: int
) -> list[np.random.SeedSequence]:
    """Return ``count`` independent seeds, all of them before the first draw."""
    if isinstance(random_state, np.random.Generator):
        words = [int(word) for word in random_state.integers(2**32, size=8)]
        return np.random.SeedSequence(words).spawn(count)
    if random_state is not None:
        random_state = _checks.integer("random_state", random_state, least=0)
    return np.random.SeedSequence(random_state).spawn(count)
