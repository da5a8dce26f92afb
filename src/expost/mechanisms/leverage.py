"""What the determinants of objective perturbation are made of: eigenvalues of H^(−½)WH^(−½).

Conventions
-----------
H    ∇²J(θ; D) = Σ∇²ℓ + λI of the summed objective at the released θ, (q·d, q·d).
W    Σ∇²ℓ of the rows that change; ∇²ℓ = S ⊗ x xᵀ with S = ∇²f = RRᵀ (:mod:`expost.losses`).
w    the eigenvalues of H^(−½)WH^(−½): det(I ∓ H⁻¹W) = Π(1 ∓ w). By Sylvester's identity they are
     those of RᵀMR, where M[a, b] = xᵀ(H⁻¹)ₐᵦx has only q rows: w = f″·xᵀH⁻¹x where q = 1.

Rows that leave together have the volume −Σ log(1 − w), a row that enters has Σ log(1 + w). Either
is log det(I + H'⁻¹W) for an H' ≽ λI of other rows, so it lies between 0 and what W alone allows.

An exact minimiser near θ has other w: within a factor of e^(±spread), because W and H each change
by such a factor in the order of quadratic forms. Rounding moves them by ``slack`` at most.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from expost._numerics import ROUNDOFF, gamma
from expost.losses import Derivatives, ScalarDerivatives, SoftmaxDerivatives
from expost.types import FloatArray

__all__ = ["ChangedRows", "Hessian", "Leverage", "leverage_of", "log_volume", "volume_of"]

# Past this a factor of e^s proves nothing.
_FAR = 700.0
# A block of a table has at most so many rows.
_BLOCK_ROWS = 2**15


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangedRows:
    """Rows that leave (``sign`` 1) or enter (−1) at θ, with bounds on their errors.

    Parameters
    ----------
    lengths : FloatArray
        ∥x∥; ``norms`` the same, rounded up.
    derivatives : Derivatives
        u and S at θ.
    gradient_error : FloatArray
        How far ∇ℓ may be off: at the exact minimiser, and by rounding.
    spread : FloatArray
        log of the factor by which S may differ there.
    most : FloatArray
        The largest volume that the row can have.
    uncertain : NDArray[np.bool_]
        Whether a knot of the loss may lie between θ and the exact minimiser.
    """

    sign: int
    X: FloatArray
    lengths: FloatArray
    norms: FloatArray
    derivatives: Derivatives
    gradient_error: FloatArray
    spread: FloatArray
    most: FloatArray
    uncertain: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Hessian:
    """H as computed, and bounds on its rounding.

    Parameters
    ----------
    penalty : float
        λ.
    outputs : int
        q.
    weight : float
        tr Σ∇²ℓ, by which the rounding of sums is measured.
    block_rows : int
        The most rows of one block; sums over blocks are compensated.
    """

    matrix: FloatArray
    penalty: float
    outputs: int
    weight: float
    block_rows: int

    @property
    def columns(self) -> int:
        """d."""
        return len(self.matrix) // self.outputs

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The smallest eigenvalue, at least 1e-12·λ, and the largest one."""
        values = scipy.linalg.eigvalsh(self.matrix)
        return max(float(values[0]), 1e-12 * self.penalty), float(values[-1])

    @cached_property
    def factor(self) -> FloatArray:
        """The lower triangular L with H = LLᵀ."""
        factor: FloatArray = scipy.linalg.cholesky(self.matrix, lower=True)
        return factor

    @cached_property
    def inverse_factor(self) -> FloatArray:
        """The lower triangular L⁻¹, whose rounding is not bounded."""
        inverse, failed = scipy.linalg.lapack.dtrtri(self.factor, lower=1)
        return np.full_like(self.factor, np.nan) if failed else inverse

    @cached_property
    def sum_error(self) -> float:
        """A bound of ∥computed H − H∥ for the S that were computed."""
        terms = self.block_rows + 2 * self.outputs + 64
        return gamma(terms) * (self.weight + self.penalty)

    @property
    def least(self) -> float:
        """A lower bound on the eigenvalues of the computed H, for H ≽ λI."""
        return max(self.penalty - self.sum_error, 1e-300)

    @cached_property
    def sum_spread(self) -> float:
        """log of the factor by which the rounding of sums may have changed H.

        Where q = 1 the same for every table, of blocks as long as they may be.
        """
        if self.outputs == 1:
            return 2 * gamma(_BLOCK_ROWS + 64) * self.weight / self.extremes[0]
        share = self.sum_error / self.least
        return float(-np.log1p(-share)) if share < 1 else np.inf

    @cached_property
    def factor_spread(self) -> float:
        """log of the factor by which LLᵀ and solves with L may differ from H."""
        lowest, highest = self.extremes
        return 16 * gamma(len(self.matrix) + 8) * highest / lowest

    @cached_property
    def root_error(self) -> float:
        """A bound of the relative error of vectors L⁻¹v."""
        lowest, highest = self.extremes
        size = len(self.matrix)
        return 2 * float(np.sqrt(size * highest / lowest)) * gamma(size + 8)


@dataclass(frozen=True, kw_only=True, eq=False)
class _ScalarLeverage:
    """w = f″·∥L⁻¹x∥²: the rounding of L and of solves with it is in the spread."""

    hessian: Hessian

    @property
    def spread(self) -> float:
        """What solves with H add to the spread of w."""
        return self.hessian.factor_spread

    def eigenvalues(self, rows: ChangedRows) -> FloatArray:
        """Return w (m, 1)."""
        return self._own(rows, self._roots(rows))[:, None]

    def simulated_eigenvalues(self, rows: ChangedRows) -> FloatArray:
        """Return w (m, 1) by a product with L⁻¹: faster, without bounds of rounding."""
        roots = scipy.linalg.blas.dtrmm(1.0, self.hessian.inverse_factor, rows.X.T, lower=1)
        return self._own(rows, roots)[:, None]

    def slack(self, rows: ChangedRows) -> FloatArray:
        """Bound (m,) how far rounding may have moved w beyond the spread."""
        return np.zeros(len(rows.X))

    def after(
        self, first: ChangedRows, second: ChangedRows, spread: float, leaving_error: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return (w, slack, spread) of ``second``, taken with H from which ``first`` has left.

        ``spread`` is that of H, and ``leaving_error`` the error of the first row's volume.
        """
        left, right = self._roots(first), self._roots(second)
        mixed = np.einsum("ij,ij->j", left, right) ** 2
        gone = _curvature(first) / np.maximum(1 - self._own(first, left), 1e-300)
        w = self._own(second, right) + _curvature(second) * gone * mixed
        moved = 2 * (spread + first.spread + second.spread) + 4 * leaving_error
        return w[:, None], np.zeros(len(w)), moved

    def _roots(self, rows: ChangedRows) -> FloatArray:
        """Return (d, m) L⁻¹x as columns."""
        roots: FloatArray = scipy.linalg.solve_triangular(self.hessian.factor, rows.X.T, lower=True)
        return roots

    def _own(self, rows: ChangedRows, roots: FloatArray) -> FloatArray:
        square: FloatArray = np.einsum("ij,ij->j", roots, roots)
        return _curvature(rows) * square


def _curvature(rows: ChangedRows) -> FloatArray:
    assert isinstance(rows.derivatives, ScalarDerivatives)
    return rows.derivatives.curvature


@dataclass(frozen=True, kw_only=True, eq=False)
class _MatrixLeverage:
    """The same for q > 1: the eigenvalues of RᵀMR for R = √P·Π, with M from products with H⁻¹."""

    hessian: Hessian
    reevaluated: float

    spread = 0.0

    @cached_property
    def _inverse(self) -> FloatArray:
        """H⁻¹ as (q, d, q, d)."""
        q, d = self.hessian.outputs, self.hessian.columns
        factor = scipy.linalg.cho_factor(self.hessian.matrix)
        inverse = scipy.linalg.cho_solve(factor, np.eye(q * d))
        return (0.5 * (inverse + inverse.T)).reshape(q, d, q, d)

    @cached_property
    def _form_error(self) -> float:
        """A bound of the error of M over ∥x∥²: of the inverse, from its residual, and of products.

        ∥P − H⁻¹∥ ≤ ∥I − HP∥/λ_min(H), and λ_min(H) is λ: along (1, …, 1) nothing curves.
        """
        matrix, size = self.hessian.matrix, len(self.hessian.matrix)
        inverse = self._inverse.reshape(size, size)
        length = float(np.linalg.norm(inverse))
        residual = float(np.linalg.norm(np.eye(size) - matrix @ inverse))
        residual += gamma(size + 8) * (float(np.linalg.norm(matrix)) * length + size)
        return residual / self.hessian.least + gamma(2 * self.hessian.columns + 16) * length

    def eigenvalues(self, rows: ChangedRows) -> FloatArray:
        values = np.linalg.eigvalsh(_symmetric(self._gram(rows, rows)))
        return np.asarray(np.maximum(values, 0.0))

    simulated_eigenvalues = eigenvalues

    def slack(self, rows: ChangedRows) -> FloatArray:
        unit = 0.5 * self._form_error
        unit += gamma(16 * self.hessian.outputs + 64) / self.hessian.least
        slack: FloatArray = rows.norms**2 * unit
        return slack

    def after(
        self, first: ChangedRows, second: ChangedRows, spread: float, leaving_error: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        own = _symmetric(self._gram(first, first))
        cross = self._gram(first, second)
        rest = np.eye(own.shape[1]) - own
        other = self._gram(second, second)
        other += np.swapaxes(cross, 1, 2) @ np.linalg.solve(rest, cross)
        w = np.maximum(np.linalg.eigvalsh(_symmetric(other)), 0.0)
        # Errors e of the three Gram matrices move W₂ by at most e(1 + c∥cross∥)² + ce², where
        # c = 1/(1 − max W₁ − 2e) bounds both inverses; ce < 1 where c > 0.
        error = self.slack(first) + self.slack(second)
        left = 1 - np.clip(np.linalg.eigvalsh(own)[:, -1], 0.0, 1 - ROUNDOFF) - 2 * error
        with np.errstate(divide="ignore", over="ignore"):
            steep = 1 + np.linalg.norm(cross, axis=(1, 2)) / np.maximum(left, 1e-300)
            error = np.where(left > 0, 2 * error * steep**2, np.inf)
        # The first row's p was computed twice: H without it is off by what the two differ in.
        twice = float(np.expm1(self.reevaluated)) * first.norms**2 / self.hessian.penalty
        return w, error, spread + second.spread + twice

    def _forms(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return (m, q, q) the forms leftᵀ(H⁻¹)ₐᵦ right of pairs of rows."""
        q, d = self.hessian.outputs, self.hessian.columns
        forms = np.empty((len(left), q, q))
        for a in range(q):
            # Those of a row with itself are symmetric.
            first = a if left is right else 0
            columns = self._inverse[a, :, first:].reshape(d, -1)
            products = (left @ columns).reshape(-1, q - first, d)
            forms[:, a, first:] = np.einsum("ikj,ij->ik", products, right)
            if left is right:
                forms[:, a:, a] = forms[:, a, a:]
        return forms

    def _gram(self, left: ChangedRows, right: ChangedRows) -> FloatArray:
        """Return (m, q, q) R₁ᵀM₁₂R₂."""
        s, t = _root(left)[:, :, None], _root(right)[:, None, :]
        gram: FloatArray = s * self._forms(left.X, right.X) * t
        gram -= s * np.sum(s * gram, axis=1, keepdims=True)
        gram -= np.sum(gram * t, axis=2, keepdims=True) * t
        return gram


Leverage = _ScalarLeverage | _MatrixLeverage


def leverage_of(hessian: Hessian, reevaluated: float) -> Leverage:
    """Return the computation of w: by scalars for one output, by q × q matrices for more.

    ``reevaluated``: log of the factor by which an S may differ where it is computed twice.
    """
    if hessian.outputs == 1:
        return _ScalarLeverage(hessian=hessian)
    return _MatrixLeverage(hessian=hessian, reevaluated=reevaluated)


def _root(rows: ChangedRows) -> FloatArray:
    assert isinstance(rows.derivatives, SoftmaxDerivatives)
    root: FloatArray = np.sqrt(rows.derivatives.p)
    return root


def _symmetric(matrices: FloatArray) -> FloatArray:
    symmetric: FloatArray = 0.5 * (matrices + np.swapaxes(matrices, 1, 2))
    return symmetric


def volume_of(w: FloatArray, sign: int, most: FloatArray) -> FloatArray:
    """Return −Σ log(1 − w) (``sign`` 1) or Σ log(1 + w) (−1) over w (m, r), at most ``most``."""
    inside = np.minimum(w, 1 - ROUNDOFF) if sign > 0 else w
    total: FloatArray = np.minimum(-sign * np.log1p(-sign * inside).sum(axis=1), most)
    return total


def log_volume(
    w: FloatArray,
    *,
    sign: int,
    slack: FloatArray,
    spread: FloatArray,
    most: FloatArray,
    ends: tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the volume of rows that leave (``sign`` 1) or enter (−1), and a bound on its error.

    ``ends``: the w and slack from which the lower and the upper end are computed, where the
    curvature itself is not known.
    """
    reach = np.minimum(spread, _FAR)[:, None]
    (below, under), (above, over) = ((w, slack), (w, slack)) if ends is None else ends
    value = volume_of(w, sign, most)
    with np.errstate(over="ignore"):
        high = volume_of((above + over[:, None]) * np.exp(reach), sign, most)
    low = volume_of(np.maximum(below - under[:, None], 0.0) * np.exp(-reach), sign, most)
    error: FloatArray = np.maximum(np.maximum(high - value, value - low), 0.0)
    return value, error + 16 * w.shape[1] * ROUNDOFF * (1 + value)
