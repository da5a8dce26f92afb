"""Sums over the rows of persons at a released θ, and what objective perturbation loses of them.

Conventions (those of :mod:`expost.mechanisms.tangent`)
-------------------------------------------------------
S, k  the rows of one person and their number; G = Σ_S ∇ℓ, W = Σ_S f″x xᵀ.

    loss = [log p_b(g) − log p_b(g − G)] − log det(I − H⁻¹W)

det(I − H⁻¹W) = Π(1 − w) over the eigenvalues w of H^(−½)WH^(−½), or of the Gram matrix of the
vectors √f″·H^(−½)x (Sylvester): the smaller of the two, d × d or k × k.

At the exact minimiser W and H may each differ by a factor within e^(±spread) in the order of
quadratic forms, so each w by the product of both; rounding moves all w by ``slack`` at most. The
volume −Σ log(1 − w) = log det(I + H₋⁻¹W), with H₋ ≽ λI, is never more than Σ log(1 + c∥x∥²/λ), nor
than d·log(1 + Σc∥x∥²/(dλ)). A row of the Huber hinge that may pass a knot counts with f″ = 0 at the
lower end and with f″ = c at the upper one.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from expost._numerics import ROUNDOFF, gamma, row_norms
from expost.losses import ScalarDerivatives
from expost.mechanisms.tangent import Tangent, uncertain_rows
from expost.neighbouring.removed import chunks, terms
from expost.types import FloatArray, IntArray

__all__ = ["PersonRows", "log_volume"]

# Past this a factor of e^s says nothing.
_FAR = 600.0


@dataclass(frozen=True, kw_only=True, eq=False)
class PersonRows:
    """Every row at θ, each (n,), and what sums over a person's rows are made of.

    ``moved``      how far ∇ℓ may be off: at the exact minimiser, and by rounding.
    ``curved``     c∥x∥²/λ.
    ``uncertain``  whether a knot of the loss may lie between θ and the exact minimiser.
    ``shaken``     a relative error of the vectors H^(−½)x.
    """

    tangent: Tangent
    slope: FloatArray
    curvature: FloatArray
    moved: FloatArray
    curved: FloatArray
    uncertain: NDArray[np.bool_]
    shaken: float

    @classmethod
    def of(cls, tangent: Tangent) -> "PersonRows":
        """One pass over the rows."""
        problem, theta, how = tangent.problem, tangent.theta, tangent.mechanism
        z = problem.held.X @ theta
        found = problem.loss.at(z, problem.held.y)
        assert isinstance(found, ScalarDerivatives)
        slope, curvature = found.slope, found.curvature
        rounding = problem.constants.slope_error(theta, found, problem.held.norms)
        bound, reach = problem.loss.curvature_bound, how.reach_of_cell
        values = scipy.linalg.eigvalsh(tangent.hessian)
        condition = float(values[-1]) / max(float(values[0]), 1e-12 * how.penalty_sum)
        d = problem.columns
        return cls(
            tangent=tangent,
            slope=slope,
            curvature=curvature,
            moved=problem.held.norms * (bound * problem.held.norms * reach + rounding),
            curved=bound * problem.held.norms**2 / how.penalty_sum,
            uncertain=uncertain_rows(
                problem.loss,
                z,
                problem.held.y,
                problem.held.norms,
                reach + problem.constants.margin_error(theta),
            ),
            shaken=2 * math.sqrt(d * condition) * gamma(d + 8),
        )

    def width(self, size: int) -> int:
        """Entries for each person of ``size`` rows: of her rows, or of a matrix."""
        columns = self.tangent.problem.columns
        return min(size, columns) * columns

    def losses(self, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(loss, its error, ∥G∥) of the persons with these rows (p, k)."""
        tangent, d = self.tangent, self.tangent.problem.columns
        weights = [self.curvature]
        if np.any(self.uncertain[rows]):
            bound = tangent.problem.loss.curvature_bound
            weights += [np.where(self.uncertain, f, self.curvature) for f in (0.0, bound)]
        shift, grams = self._summed(rows, weights)
        distance, norm = row_norms(shift), float(np.linalg.norm(tangent.gradient))
        size = np.abs(self.slope[rows]) * tangent.problem.held.norms[rows]
        moved = 1.01 * np.sum(self.moved[rows] + gamma(terms(rows, d)) * size, axis=1)
        law = tangent.mechanism.law
        loss = law.loss_from(norm, shift @ tangent.gradient, distance)
        error = law.loss_error(norm, distance, moved, tangent.gradient_error)
        volume, volume_error = self._volume(rows, grams)
        return loss + volume, error + volume_error, distance

    def _summed(
        self, rows: IntArray, weights: list[FloatArray]
    ) -> tuple[FloatArray, list[FloatArray]]:
        """G (p, d), and for each ``weights`` f″ (n,) a matrix whose eigenvalues are the w."""
        problem = self.tangent.problem
        d = problem.columns
        # For no more rows than columns their Gram matrix, in one piece; else sums of d × d.
        few = rows.shape[1] <= d
        shift = np.zeros((len(rows), d))
        grams: list[Any] = [0.0 for _ in weights]
        for part in [rows] if few else chunks(rows, d):
            X = problem.held.X[part]
            shift += np.einsum("pk,pkd->pd", self.slope[part], X)
            flat = np.asarray(X.reshape(-1, d).T)
            turned = scipy.linalg.solve_triangular(self.tangent.factor, flat, lower=True)
            roots = np.ascontiguousarray(turned.T).reshape(X.shape)
            for place, weight in enumerate(weights):
                scaled = roots * np.sqrt(weight[part])[:, :, None]
                other = scaled.transpose(0, 2, 1)
                pair = (scaled, other) if few else (other, scaled)
                grams[place] = grams[place] + np.matmul(*pair)
        return shift, grams

    def _volume(self, rows: IntArray, grams: list[FloatArray]) -> tuple[FloatArray, FloatArray]:
        tangent, d = self.tangent, self.tangent.problem.columns
        curved = self.curved[rows]
        most = np.sum(np.log1p(curved), axis=1)
        most = np.minimum(most, d * np.log1p(np.sum(curved, axis=1) / d))
        longest = tangent.problem.held.norms[rows].max(axis=1)
        # f″ at the exact minimiser, at a predictor that is rounded, and its own rounding.
        reach = tangent.mechanism.reach_of_cell + tangent.problem.constants.margin_error(
            tangent.theta
        )
        own = (tangent.problem.loss.third_ratio or 0.0) * reach * longest + 32 * ROUNDOFF
        rounding = self.shaken + gamma(terms(rows, d) + d)
        return log_volume(grams, rounding=rounding, spread=tangent.spread + own, most=most)


def log_volume(
    grams: list[FloatArray], *, rounding: float, spread: FloatArray, most: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """−Σ log(1 − w) over the eigenvalues w of each matrix (p, q, q), and how far it may be off.

    Rounding moves every w by ``rounding`` times the trace, the exact minimiser by a factor within
    e^(±spread); the volume never passes ``most``. Of three matrices the second and third are taken
    for the lower and the upper end.
    """
    size = grams[0].shape[1]
    factor = np.exp(np.minimum(spread, _FAR))[:, None]
    most = most * (1 + 1e-12)

    def eigenvalues(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
        slack = (rounding + gamma(32 * size)) * np.trace(gram, axis1=1, axis2=2)
        return np.maximum(np.linalg.eigvalsh(gram), 0.0), slack[:, None]

    def volume(w: FloatArray) -> FloatArray:
        inside = np.minimum(w, 1 - ROUNDOFF)
        total: FloatArray = np.minimum(-np.log1p(-inside).sum(axis=1), most)
        return total

    found = [eigenvalues(gram) for gram in grams]
    value = volume(found[0][0])
    (below, under), (above, over) = found[1:] if len(found) > 1 else 2 * found
    low = volume(np.maximum(below - under, 0.0) / factor)
    high = volume((above + over) * factor)
    error: FloatArray = np.maximum(np.maximum(high - value, value - low), 0.0)
    return value, error + 16 * size * ROUNDOFF * (1 + value)
