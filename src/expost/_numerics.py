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
    """
    below, above = np.broadcast_arrays(
        np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    )
    below, above = below.copy(), above.copy()
    for _ in range(halvings):
        middle = _midpoint(below, above)
        if np.all((middle == below) | (middle == above)):
            break
        negative = function(middle) <= 0
        below = np.where(negative, middle, below)
        above = np.where(negative, above, middle)
    return below, above


def _midpoint(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the geometric mean where both ends are positive and far apart, else the arithmetic."""
    with np.errstate(invalid="ignore"):
        far = (low > 0) & (high > 4 * low)
        return np.where(
            far,
            np.sqrt(np.where(far, low, 1.0)) * np.sqrt(np.where(far, high, 1.0)),
            low + 0.5 * (high - low),
        )


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
