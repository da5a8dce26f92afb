"""Sums over the rows of persons for more than two classes (see :mod:`.softmax`, `.person_rows`).

∇²ℓ = S ⊗ x xᵀ = Σ_c v_c v_cᵀ with v_c = R_c ⊗ x, R_c the columns of R = √P·Π, S = RRᵀ: a row is K
vectors of K·d entries, and all else is as for two classes with f″ = 1. Π = I − √p√pᵀ has 1 − pₖ on
its diagonal, which is summed and not subtracted.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from expost._numerics import gamma, row_norms
from expost.losses import SoftmaxDerivatives
from expost.mechanisms.person_rows import log_volume
from expost.mechanisms.softmax import SoftmaxTangent
from expost.neighbouring.removed import chunks, terms
from expost.types import FloatArray, IntArray

__all__ = ["SoftmaxPersonRows"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxPersonRows:
    """A tangent with the factor LLᵀ of H, and what the factor and solves with it lose.

    ``shaken``   a relative error of the vectors L⁻¹v.
    ``spread``   log of the factor by which H may differ, its own rounding included.
    """

    tangent: SoftmaxTangent
    factor: FloatArray
    shaken: float
    spread: float

    @classmethod
    def of(cls, tangent: SoftmaxTangent) -> "SoftmaxPersonRows":
        """Of what :class:`SoftmaxTangent` found in its pass."""
        dimension = tangent.problem.dimension
        values = scipy.linalg.eigvalsh(tangent.hessian)
        least = max(float(values[0]), 1e-12 * tangent.mechanism.penalty_sum)
        condition = float(values[-1]) / least
        return cls(
            tangent=tangent,
            factor=scipy.linalg.cholesky(tangent.hessian, lower=True),
            shaken=2 * math.sqrt(dimension * condition) * gamma(dimension + 8),
            spread=tangent.spread + 16 * gamma(dimension + 8) * condition,
        )

    def width(self, size: int) -> int:
        """Entries for each person of ``size`` rows: of her vectors, or of a matrix."""
        problem = self.tangent.problem
        return min(size, problem.columns) * problem.loss.outputs * problem.dimension

    def losses(self, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(loss, its error, ∥G∥) of the persons with these rows (p, k)."""
        tangent, problem, how = self.tangent, self.tangent.problem, self.tangent.mechanism
        K, dimension, entries = problem.loss.outputs, problem.dimension, self.width(1)
        few = rows.shape[1] <= problem.columns
        shift, moved, gram = np.zeros((len(rows), dimension)), np.zeros(len(rows)), _NOTHING
        rounding = gamma(terms(rows, entries))
        for part in [rows] if few else chunks(rows, entries):
            X, norms = problem.held.X[part], problem.held.norms[part]
            flat = X.reshape(-1, problem.columns)
            z = flat @ problem.matrix(tangent.theta).T
            found = SoftmaxDerivatives.of(z, problem.held.y[part].reshape(-1).astype(np.int64))
            u = found.slope.reshape(*part.shape, K)
            shift += np.einsum("pck,pcj->pkj", u, X).reshape(len(rows), dimension)
            error = problem.constants.slope_error(tangent.theta, found, norms.reshape(-1))
            error = (error + rounding * found.length).reshape(part.shape)
            moved += np.sum(norms * (0.5 * norms * how.reach_of_cell + error), axis=1)
            vectors = np.einsum("mac,mj->mcaj", _roots(found), flat).reshape(-1, dimension)
            turned = scipy.linalg.solve_triangular(self.factor, vectors.T, lower=True)
            scaled = np.ascontiguousarray(turned.T).reshape(len(rows), -1, dimension)
            other = scaled.transpose(0, 2, 1)
            gram = gram + (np.matmul(scaled, other) if few else np.matmul(other, scaled))
        norm, distance = float(np.linalg.norm(tangent.gradient)), row_norms(shift)
        loss = how.law.loss_from(norm, shift @ tangent.gradient, distance)
        error = how.law.loss_error(norm, distance, 1.01 * moved, tangent.gradient_error)
        volume, volume_error = self._volume(rows, gram)
        return loss + volume, error + volume_error, distance

    def _volume(self, rows: IntArray, gram: FloatArray) -> tuple[FloatArray, FloatArray]:
        """log det(I + H₋⁻¹W) ≤ Σ (K − 1)·log(1 + ∥x∥²/(Kλ)); W has rank (K − 1)d at most."""
        problem, penalty = self.tangent.problem, self.tangent.mechanism.penalty_sum
        rank = problem.loss.outputs - 1
        norms = problem.held.norms[rows]
        curved = norms**2 / (problem.loss.outputs * penalty)
        most = rank * np.sum(np.log1p(curved), axis=1)
        directions = rank * problem.columns
        most = np.minimum(most, directions * np.log1p(rank * np.sum(curved, axis=1) / directions))
        spread = self.spread + self.tangent.moved(norms.max(axis=1))
        rounding = self.shaken + gamma(terms(rows, self.width(1)) + problem.dimension + 64)
        return log_volume([gram], rounding=rounding, spread=spread, most=most)


_NOTHING: Any = 0.0


def _roots(found: SoftmaxDerivatives) -> FloatArray:
    """(m, K, K) R = √P·Π."""
    root = np.sqrt(found.p)
    projection = -root[:, :, None] * root[:, None, :]
    classes = np.arange(root.shape[1])
    projection[:, classes, classes] = found.rest
    roots: FloatArray = root[:, :, None] * projection
    return roots
