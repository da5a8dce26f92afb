"""The losses of persons under objective perturbation: all rows of a person leave at once.

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
from expost._persons import Persons
from expost._removed import chunks, persons_at_once, terms
from expost.mechanisms.group_promise import group_guarantee, group_worst_case
from expost.mechanisms.row_losses import RowLosses
from expost.mechanisms.tangent import Tangent, uncertain_rows
from expost.types import FloatArray, IntArray, Neighbouring

__all__ = ["person_losses"]

# Past this a factor of e^s says nothing.
_FAR = 600.0


def person_losses(tangent: Tangent, persons: Persons) -> RowLosses:
    """log p(θ ∣ D) − log p(θ ∣ D without a person's rows) of every person, with its interval."""
    if persons.are_rows:
        return tangent.row_losses()
    how, columns = tangent.mechanism, tangent.problem.columns
    loss, error, distance, limit = np.empty((4, len(persons)))
    at_theta = _Rows.of(tangent)
    for chosen, rows in persons.by_size():
        size = int(rows.shape[1])
        limit[chosen] = group_worst_case(how, size)[0] if how.noise == "laplace" else np.inf
        step = persons_at_once(min(size, columns) * columns)
        for start in range(0, len(chosen), step):
            some = chosen[start : start + step]
            found = at_theta.losses(rows[start : start + step])
            loss[some], error[some], distance[some] = found
    if how.grid.is_clamped(tangent.theta):
        # Its cell is unbounded.
        error = np.full_like(loss, np.inf)
    error = np.where(np.isnan(error), np.inf, error) + 8 * ROUNDOFF * np.abs(loss)
    worst, passed = group_worst_case(how, persons.largest)
    return RowLosses(
        loss=loss,
        low=np.maximum(loss - error, -limit),
        high=np.minimum(loss + error, limit),
        distance=distance,
        distance_error=np.zeros_like(distance),
        relation=Neighbouring.REMOVE,
        law=None,
        worst_case=worst,
        worst_case_passed=passed,
        guarantee=group_guarantee(how, persons.largest),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
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
    def of(cls, tangent: Tangent) -> "_Rows":
        """One pass over the rows."""
        problem, theta, how = tangent.problem, tangent.theta, tangent.mechanism
        z = problem.X @ theta
        slope, curvature = problem.loss.derivatives(z, problem.y)
        rounding = problem.slope_error(theta, slope, curvature, problem.norms)
        bound, reach = problem.loss.curvature_bound, how.reach_of_cell
        values = scipy.linalg.eigvalsh(tangent.hessian)
        condition = float(values[-1]) / max(float(values[0]), 1e-12 * how.penalty_sum)
        d = problem.columns
        return cls(
            tangent=tangent,
            slope=slope,
            curvature=curvature,
            moved=problem.norms * (bound * problem.norms * reach + rounding),
            curved=bound * problem.norms**2 / how.penalty_sum,
            uncertain=uncertain_rows(problem, z, problem.y, problem.norms, reach),
            shaken=2 * math.sqrt(d * condition) * gamma(d + 8),
        )

    def losses(self, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(loss, its error, ∥G∥) of the persons with these rows (p, k)."""
        tangent, d = self.tangent, self.tangent.problem.columns
        weights = [self.curvature]
        if np.any(self.uncertain[rows]):
            bound = tangent.problem.loss.curvature_bound
            weights += [np.where(self.uncertain, f, self.curvature) for f in (0.0, bound)]
        shift, grams = self._summed(rows, weights)
        distance, norm = row_norms(shift), float(np.linalg.norm(tangent.gradient))
        size = np.abs(self.slope[rows]) * tangent.problem.norms[rows]
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
            X = problem.X[part]
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
        """−Σ log(1 − w), and how far it may be off."""
        tangent, d = self.tangent, self.tangent.problem.columns
        curved = self.curved[rows]
        most = np.sum(np.log1p(curved), axis=1)
        most = np.minimum(most, d * np.log1p(np.sum(curved, axis=1) / d)) * (1 + 1e-12)
        longest = tangent.problem.norms[rows].max(axis=1)
        # f″ at the exact minimiser, at a predictor that is rounded, and its own rounding.
        reach = tangent.mechanism.reach_of_cell + tangent.problem.margin_error(tangent.theta)
        own = (tangent.problem.loss.third_ratio or 0.0) * reach * longest + 32 * ROUNDOFF
        factor = np.exp(np.minimum(tangent.spread + own, _FAR))[:, None]
        size = grams[0].shape[1]
        rounding = self.shaken + gamma(terms(rows, d) + 32 * size + d)

        def ends(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
            w = np.maximum(np.linalg.eigvalsh(gram), 0.0)
            slack = rounding * np.trace(gram, axis1=1, axis2=2)
            return w, slack[:, None]

        def volume(w: FloatArray) -> FloatArray:
            inside = np.minimum(w, 1 - ROUNDOFF)
            total: FloatArray = np.minimum(-np.log1p(-inside).sum(axis=1), most)
            return total

        found = [ends(gram) for gram in grams]
        value = volume(found[0][0])
        (below, under), (above, over) = found[1:] if len(found) > 1 else 2 * found
        low = volume(np.maximum(below - under, 0.0) / factor)
        high = volume((above + over) * factor)
        error: FloatArray = np.maximum(np.maximum(high - value, value - low), 0.0)
        return value, error + 16 * size * ROUNDOFF * (1 + value)
