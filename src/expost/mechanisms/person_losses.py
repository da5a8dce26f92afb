"""The losses of persons under objective perturbation: all rows of a person leave at once.

Conventions (those of :mod:`expost.mechanisms.tangent` and :mod:`expost.mechanisms.leverage`)
----------------------------------------------------------------------------------------------
G, W  Σ∇ℓ and Σ∇²ℓ of the k rows of one person.

    loss = [log p_b(g) − log p_b(g − G)] − Σ log(1 − w)

The w are the eigenvalues of H^(−½)WH^(−½), or of the Gram matrix of the vectors H^(−½)(R_c ⊗ x),
R_c the columns of R and S = RRᵀ: the smaller of the two. The volume is at most
r·Σ log(1 + c∥x∥²/λ), (r, c) the ``determinant`` of the loss, and at most
r·d·log(1 + Σc∥x∥²/(dλ)). A row of the Huber hinge that may pass a knot counts with f″ = 0 at the
lower end and with f″ = c at the upper one.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from expost._numerics import ROUNDOFF, gamma, row_norms
from expost.losses import Derivatives, ScalarDerivatives
from expost.mechanisms.leverage import log_volume
from expost.mechanisms.row_losses import RowLosses
from expost.mechanisms.tangent import Tangent
from expost.neighbouring.change import chunks, persons_at_once, terms
from expost.neighbouring.persons import Persons
from expost.rows import RowBlock
from expost.types import FloatArray, IntArray

__all__ = ["loss_of_rows", "person_losses"]


def person_losses(tangent: Tangent, persons: Persons) -> RowLosses:
    """Return log p(θ ∣ D) − log p(θ ∣ D without a person's rows), with its interval."""
    if persons.are_rows:
        return tangent.row_losses()
    held = tangent.problem.held
    block = RowBlock(X=held.X, y=held.y, norms=held.norms)
    mechanism, at_theta = tangent.mechanism, _PersonRows.of(tangent, block)
    loss, error, distance, limit = np.empty((4, len(persons)))
    for chosen, rows in persons.by_size():
        size = int(rows.shape[1])
        limit[chosen] = mechanism.worst_case_of(size)[0] if mechanism.noise == "laplace" else np.inf
        step = persons_at_once(at_theta.width(size))
        for start in range(0, len(chosen), step):
            some = chosen[start : start + step]
            of_some = at_theta.losses(rows[start : start + step])
            loss[some], error[some], distance[some] = of_some
    return tangent.collected((loss, error, distance), rows=persons.largest, limit=limit)


def loss_of_rows(tangent: Tangent, block: RowBlock) -> tuple[float, float]:
    """Return log p(θ ∣ D) − log p(θ ∣ D without the rows of a block), and a bound on its error.

    Parameters
    ----------
    tangent : Tangent
        J over all rows D at θ.
    block : RowBlock
        Rows of D, which leave together.

    Returns
    -------
    tuple[float, float]
        The loss in nats, and the half-width of its interval; infinite where nothing is proved.
    """
    at_theta = _PersonRows.of(tangent, block)
    loss, error, _ = at_theta.losses(np.arange(len(block))[None])
    half = float(error[0]) + 8 * ROUNDOFF * abs(float(loss[0]))
    return float(loss[0]), half if half < np.inf else np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class _PersonRows:
    """Rows at θ, each (n,), and what sums over a person's rows are made of.

    Parameters
    ----------
    block : RowBlock
        The rows.
    gradient_error : FloatArray
        How far ∇ℓ may be off: at the exact minimiser, and by rounding.
    uncertain : NDArray[np.bool_]
        Whether a knot of the loss may lie between θ and the exact minimiser.
    """

    tangent: Tangent
    block: RowBlock
    derivatives: Derivatives
    gradient_error: FloatArray
    uncertain: NDArray[np.bool_]

    @classmethod
    def of(cls, tangent: Tangent, block: RowBlock) -> "_PersonRows":
        """Evaluate every row of ``block``."""
        whole = tangent.changed(1, block.X, block.y)
        return cls(
            tangent=tangent,
            block=block,
            derivatives=whole.derivatives,
            gradient_error=whole.gradient_error,
            uncertain=whole.uncertain,
        )

    def width(self, size: int) -> int:
        """Return the entries for each person of ``size`` rows: of the vectors, or of a matrix."""
        problem = self.tangent.problem
        return min(size, problem.columns) * problem.loss.outputs * problem.dimension

    def losses(self, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return (loss, its error, ∥G∥) of the persons with these rows (p, k)."""
        tangent, law = self.tangent, self.tangent.mechanism.law
        shift, grams = self._sums(rows)
        distance, norm = row_norms(shift), float(np.linalg.norm(tangent.gradient))
        size = (self.derivatives.length * self.block.norms)[rows]
        rounding = gamma(terms(rows, self.width(1)))
        moved = 1.01 * np.sum(self.gradient_error[rows] + rounding * size, axis=1)
        loss = law.loss_from(norm, shift @ tangent.gradient, distance)
        error = law.loss_error(norm, distance, moved, tangent.gradient_error)
        volume, volume_error = self._volume(rows, grams)
        return loss + volume, error + volume_error, distance

    def _sums(self, rows: IntArray) -> tuple[FloatArray, list[FloatArray]]:
        """Return G (p, q·d) and a matrix whose eigenvalues are the w; three matrices at knots."""
        problem = self.tangent.problem
        d, dimension = problem.columns, problem.dimension
        # For no more rows than columns the Gram matrix of all, in one piece; else sums of q·d.
        few = rows.shape[1] <= d
        shift = np.zeros((len(rows), dimension))
        grams: list[FloatArray] = []
        at_knots = bool(np.any(self.uncertain[rows]))
        for part in [rows] if few else chunks(rows, self.width(1)):
            X = self.block.X[part]
            slope = self.derivatives.slope[part]
            shift += np.einsum("pk...,pkd->p...d", slope, X).reshape(len(rows), dimension)
            flat = part.ravel()
            variants = self._variants(flat) if at_knots else [self.derivatives.take(flat)]
            products = [self._product(each, X, few) for each in variants]
            grams = products if not grams else [a + b for a, b in zip(grams, products, strict=True)]
        return shift, grams

    def _product(self, derivatives: Derivatives, X: FloatArray, few: bool) -> FloatArray:
        """Return the Gram matrix of each person's vectors H^(−½)(R_c ⊗ x), or their Σvvᵀ."""
        vectors = np.einsum("mac,mj->mcaj", derivatives.roots(), X.reshape(-1, X.shape[2]))
        flat = vectors.reshape(-1, self.tangent.problem.dimension)
        factor = self.tangent.curvature.factor
        turned = scipy.linalg.solve_triangular(factor, flat.T, lower=True)
        scaled = np.ascontiguousarray(turned.T).reshape(len(X), -1, flat.shape[1])
        other = scaled.transpose(0, 2, 1)
        product: FloatArray = np.matmul(scaled, other) if few else np.matmul(other, scaled)
        return product

    def _variants(self, index: IntArray) -> list[Derivatives]:
        """Return the rows as computed, with the least and with the largest f″ near a knot."""
        derivatives = self.derivatives.take(index)
        assert isinstance(derivatives, ScalarDerivatives)
        near, bound = self.uncertain[index], self.tangent.constants.loss.curvature_bound
        curvatures = (np.where(near, value, derivatives.curvature) for value in (0.0, bound))
        return [
            derivatives,
            *(replace(derivatives, curvature=curvature) for curvature in curvatures),
        ]

    def _volume(self, rows: IntArray, grams: list[FloatArray]) -> tuple[FloatArray, FloatArray]:
        tangent, norms = self.tangent, self.block.norms[rows]
        rank, curvature = tangent.constants.loss.determinant
        curved = curvature * norms**2 / tangent.mechanism.penalty_sum
        directions = rank * tangent.problem.columns
        most = np.minimum(
            rank * np.sum(np.log1p(curved), axis=1),
            directions * np.log1p(rank * np.sum(curved, axis=1) / directions),
        ) * (1 + 1e-12)
        whole = tangent.spread + tangent.curvature.factor_spread
        spread = whole + tangent.row_spread(norms.max(axis=1))
        rounding = tangent.curvature.root_error
        rounding += gamma(terms(rows, self.width(1)) + tangent.problem.dimension + 64)
        spectra = [_eigenvalues(gram, rounding) for gram in grams]
        w, slack = spectra[0]
        ends = (spectra[1], spectra[2]) if len(spectra) > 1 else None
        return log_volume(w, sign=1, slack=slack, spread=spread, most=most, ends=ends)


def _eigenvalues(gram: FloatArray, rounding: float) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvalues of each matrix, and how far rounding may have moved them."""
    slack = (rounding + gamma(32 * gram.shape[1])) * np.trace(gram, axis1=1, axis2=2)
    return np.maximum(np.linalg.eigvalsh(gram), 0.0), slack
