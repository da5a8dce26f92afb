"""The map of feature rows into the unit ball, and of θ back to coefficients.

Conventions
-----------
d        feature columns;  p = d + 1 with an intercept, else d.
q        ``data_norm``: the public bound on ∥x∥, beyond which a row is clipped onto the ball.
s        ``intercept_scaling``: the constant feature that carries the intercept.
κ        1 − (p + 12)u, u = 2⁻⁵³: compensates in advance what the roundings may add.

    row = κ · (√(1 − s²) · x/q,  s)        with an intercept;  κ · x/q without.

Why κ. A row passes the clipping test when its *computed* length ∥x∥ is at most q. Where a square
may over- or underflow the row is divided by its largest entry first (u) and scaled back (2u). It is
squared and summed (γ_d, halved by the root) and rooted (u), so the true length is at most
(1 + (d/2 + 4)u)q; the quotient by which a row is multiplied and the product add 2u to each entry,
and √(1 − s²) and s at most 3u. With d/2 + 9 ≤ p + 12 the exact norm of the stored row is ≤ 1. (The
usual 1 − (d + 4)u serves x/∥x∥ alone; a constant column and a clipping test cost more.)
"""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost._numerics import ROUNDOFF, row_blocks
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["UnitBall", "default_intercept", "default_norm"]

# With a smaller bound a coefficient θ/q could overflow.
_SMALLEST_NORM = 1e-150
_SLACK = 12
# Between these the square of a length has lost nothing by over- or underflow that counts.
_SMALLEST_SQUARE, _LARGEST_SQUARE = 1e-250, 1e300
# Rows that are mapped at a time: they stay in the cache.
_CHUNK_ROWS = 2**10
# The largest number of columns among which the constant feature counts as one more.
_SHARED = 7


def default_norm(columns: int) -> float:
    """Return √p/2: half the root mean square length of rows of p standardised columns."""
    return math.sqrt(columns) / 2


def default_intercept(columns: int) -> float:
    """Return 1/√(min(p, 7) + 1): the constant counts as one more column, of at most seven.

    The constant has s² of the squared length of a row, to which the noise is calibrated.
    Where p columns and the constant share it equally, s² = 1/(p + 1), a base rate far from one half
    is not learnt among many columns: its penalty in log-odds is Λ/s². docs/utility.md derives and
    measures the rule.
    """
    return 1 / math.sqrt(min(columns, _SHARED) + 1)


@dataclass(frozen=True, kw_only=True)
class UnitBall:
    """The public map from feature rows to rows of norm at most 1 (module docstring: formula).

    Parameters
    ----------
    data_norm : float
        The bound q on ∥x∥, at least 1e-150.
    fit_intercept : bool
        Whether to add a constant last coordinate.
    intercept_scaling : float, default=0.1
        The length s of that coordinate, in (0, 1).

    Raises
    ------
    InvalidInput
        If a parameter is out of its range.
    """

    data_norm: float
    fit_intercept: bool
    intercept_scaling: float = 0.1

    def __post_init__(self) -> None:
        norm = _checks.positive("data_norm", self.data_norm)
        if not norm >= _SMALLEST_NORM:
            raise InvalidInput(
                f"data_norm={norm!r}: must be at least {_SMALLEST_NORM:g}; rescale the features."
            )
        if not isinstance(self.fit_intercept, bool):
            raise InvalidInput(f"fit_intercept={self.fit_intercept!r}: must be True or False.")
        scaling = _checks.probability("intercept_scaling", self.intercept_scaling)
        object.__setattr__(self, "data_norm", norm)
        object.__setattr__(self, "intercept_scaling", scaling)

    def rows(self, X: Any) -> tuple[FloatArray, int]:
        """Map rows into the unit ball.

        Parameters
        ----------
        X : Any
            (n, d) the feature rows.

        Returns
        -------
        rows : ndarray of shape (n, p)
            The rows in the unit ball.
        clipped : int
            The number of rows that were clipped.

        Raises
        ------
        InvalidInput
            For a NaN, an infinity or an entry above 1e150, before anything is clipped: NaN would
            pass through a clip.
        """
        # Entries of a plain matrix are checked by the squares of its rows (:meth:`_into`).
        features = X if _is_plain(X) else _checks.matrix(X, min_rows=1)
        count, width = features.shape
        factor, constant = self.factors(width)
        rows = np.empty((count, width + self.fit_intercept))
        clipped = 0
        for start in range(0, count, _CHUNK_ROWS):
            chunk = slice(start, start + _CHUNK_ROWS)
            outside = self._into(rows[chunk, :width], features[chunk], factor)
            clipped += int(np.count_nonzero(outside))
        if self.fit_intercept:
            rows[:, width] = constant
        return rows, clipped

    def _into(self, rows: FloatArray, x: FloatArray, factor: float) -> NDArray[np.bool_]:
        """Write factor·x/max(q, ∥x∥) of each row; return which rows are longer than q."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            square = np.einsum("ij,ij->i", x, x)
            length = np.sqrt(square)
            outside: NDArray[np.bool_] = length > self.data_norm
            np.multiply(x, (factor / np.maximum(length, self.data_norm))[:, None], out=rows)
        extreme = np.flatnonzero(~((square >= _SMALLEST_SQUARE) & (square <= _LARGEST_SQUARE)))
        if len(extreme):
            some = _checks.matrix(x[extreme], min_rows=1)
            peak, direction, length = _polar(some)
            with np.errstate(over="ignore", under="ignore"):
                beyond = (peak / self.data_norm) * length > 1
                inside = some / self.data_norm
            inside[beyond] = direction[beyond] / length[beyond, None]
            rows[extreme], outside[extreme] = inside * factor, beyond
        return outside

    def coefficients(self, theta: FloatArray) -> tuple[FloatArray, float]:
        """Return (coef, intercept) with coef·x + intercept = θ·row for every x not clipped.

        Parameters
        ----------
        theta : FloatArray
            (p,) θ.

        Returns
        -------
        coef : ndarray of shape (d,)
            The coefficients of the features.
        intercept : float
            0 without ``fit_intercept``.

        Raises
        ------
        InvalidInput
            If θ is not finite, or has no coordinate for a feature.
        """
        vector = self._vector("theta", theta)
        width = len(vector) - self.fit_intercept
        if not width >= 1:
            raise InvalidInput("theta has no coordinate for a feature: must have at least one.")
        factor, constant = self.factors(width)
        coef = vector[:width] * factor / self.data_norm
        return coef, float(vector[width] * constant) if self.fit_intercept else 0.0

    def theta(self, coef: FloatArray, intercept: float = 0.0) -> FloatArray:
        """Return the θ (p,) with these :meth:`coefficients`.

        Parameters
        ----------
        coef : FloatArray
            (d,) the coefficients of the features.
        intercept : float, default=0.0
            The intercept; 0 without ``fit_intercept``.

        Returns
        -------
        FloatArray
            (p,) θ.

        Raises
        ------
        InvalidInput
            If a number is not finite, or there is an intercept without ``fit_intercept``.
        """
        vector = self._vector("coef", coef)
        if not math.isfinite(intercept):
            raise InvalidInput(f"intercept={intercept!r}: must be finite.")
        factor, constant = self.factors(len(vector))
        theta = vector * self.data_norm / factor
        if self.fit_intercept:
            return np.append(theta, intercept / constant)
        if intercept != 0:
            raise InvalidInput(
                f"intercept={intercept!r}: must be 0 where fit_intercept is False; pass a UnitBall"
                " with fit_intercept=True."
            )
        return theta

    @staticmethod
    def largest_norm(X: Any) -> float:
        """Return the largest norm of the rows, rounded up so that none is clipped.

        It is read from the data and therefore not private, of which the caller must warn.

        Parameters
        ----------
        X : Any
            (n, d) the feature rows.

        Returns
        -------
        float
            The norm; 1 if every row is 0.

        Raises
        ------
        InvalidInput
            For a NaN, an infinity or an entry above 1e150.
        """
        features = _checks.matrix(X, min_rows=1)
        largest = 0.0
        for block in row_blocks(*features.shape):
            peak, _, length = _polar(features[block])
            largest = max(largest, float(np.max(peak * length)))
        if largest == 0:
            return 1.0
        # 8u covers the roundings of both sides of the clipping test; nextafter the subnormals.
        up = max(largest * (1 + 8 * ROUNDOFF), math.nextafter(largest, math.inf))
        return max(up, _SMALLEST_NORM)

    def to_json(self) -> dict[str, Any]:
        """Return the three constants, as JSON values.

        Returns
        -------
        dict[str, Any]
            The constants by their names.
        """
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> "UnitBall":
        """Invert :meth:`to_json`; refuse any other value.

        Parameters
        ----------
        value : Any
            The JSON values.

        Returns
        -------
        UnitBall
            The map that was written.

        Raises
        ------
        InvalidInput
            If ``value`` is anything else.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(value, dict) or set(value) != names:
            raise InvalidInput(
                f"unit_ball: must be an object of exactly {', '.join(sorted(names))}."
            )
        try:
            return cls(**value)
        except OverflowError:  # an integer too large for float64
            raise InvalidInput("unit_ball: its numbers must be within float64.") from None

    def factors(self, width: int) -> tuple[float, float]:
        """Return the factor of x/q, and the constant coordinate (0 without an intercept).

        Parameters
        ----------
        width : int
            The number d of features.

        Returns
        -------
        factor : float
            κ√(1 − s²), or κ without an intercept.
        constant : float
            κs.
        """
        shrink = 1 - (width + self.fit_intercept + _SLACK) * ROUNDOFF
        if not self.fit_intercept:
            return shrink, 0.0
        scaling = self.intercept_scaling
        return math.sqrt(1 - scaling * scaling) * shrink, scaling * shrink

    @staticmethod
    def _vector(name: str, value: FloatArray) -> FloatArray:
        array = np.asarray(value, dtype=np.float64)
        if array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)):
            raise InvalidInput(f"{name}: must be a finite vector of at least one entry.")
        return array


def _is_plain(X: Any) -> bool:
    """Return whether ``X`` is a matrix of float64 by rows, with at least one row and column."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.size > 0
        and X.dtype == np.float64
        and (X.flags.c_contiguous)
    )


def _polar(features: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (peak, x/peak, ∥x/peak∥) of each row, peak = max∣xⱼ∣ (1 for a row of zeros).

    The largest entry of x/peak is 1, so its square sum neither overflows nor underflows.
    """
    peak = np.maximum(features.max(axis=1), -features.min(axis=1))
    peak[peak == 0] = 1.0
    with np.errstate(under="ignore"):
        direction = features / peak[:, None]
        length = np.sqrt(np.einsum("ij,ij->i", direction, direction))
    return peak, direction, length
