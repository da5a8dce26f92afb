"""How far a computed neighbour can be from the true one: bounds proved row by row.

Conventions
-----------
Â          the base as computed, g = ∇J(Â; D) its residual, ∥g∥ ≤ η.
F̃          the neighbour's gradient less (m₀/m)·g, its *tilted* gradient: it belongs to a pair of
           problems of which Â is the exact base, so that the error of the base, which is common to
           both ends, does not count against the shift. m₀, m: rows of D and of the neighbour.
δ          the computed shift; M the least constant with ∣f‴∣ ≤ M f″; X the largest row norm;
           spread = M·X, τ = spread·∥δ∥.
B          the neighbour's Hessian at Â before the changed rows are taken out or put in.

Self-concordance gives f″(z + a) between f″(z)e^(−M∣a∣) and f″(z)e^(M∣a∣), and with it everything
here; nothing needs a second pass over the data.
"""

from dataclasses import dataclass

import numpy as np

from expost.glm import Problem
from expost.losses import HuberHinge
from expost.types import FloatArray

__all__ = ["Knots", "point_error"]


def point_error(
    residual: FloatArray | float,
    *,
    floor: float,
    curvature: FloatArray | float,
    spread: float,
    decay: FloatArray | float,
) -> FloatArray:
    """An upper bound on ∥θ − minimiser∥ where the gradient at θ has norm ≤ ``residual``.

    Along the segment to the minimiser the Hessian is at least floor + c·e^(−u·spread) at distance
    u, with c = (curvature − floor)·decay: ``curvature`` is the least eigenvalue at the expansion
    point, ``decay`` = e^(−τ) what the way from there to θ can have left of it. So the error r
    satisfies

        floor·r + c(1 − e^(−r·spread))/spread ≤ residual,

    and with (1 − e^(−v))/v ≥ 1/(1 + v) it is a root of a quadratic, at most
    residual/(floor + c − residual·spread) where that is positive. ``curvature`` must be at least
    ``floor``. (Dividing by the curvature alone is not rigorous: it may fall on the way.) Infinite
    where nothing is proved.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        left = np.asarray(residual, dtype=np.float64)
        # Strong convexity alone always holds.
        plain = left / floor if floor > 0 else np.where(left > 0, np.inf, 0.0)
        steepness = (np.asarray(curvature) - floor) * np.asarray(decay)
        steepness = steepness + floor
        steepness = steepness - spread * left
        # Where the residual outweighs the curvature, the curvature proves nothing.
        better = (1 + 1e-12) * left / steepness
        return np.where(steepness > 0, np.minimum(better, plain), plain)


@dataclass(frozen=True, kw_only=True, eq=False)
class Knots:
    """The Huber hinge's remainder after a Newton step of length ρ, as a function of ρ alone.

    ∥F̃(Â + δ)∥ ≤ Σⱼ ∥xⱼ∥(∥xⱼ∥ρ − distⱼ)₊/(2h·m), distⱼ the way of row j's predictor to its nearest
    knot: piecewise linear and convex in ρ, so sorted knots and cumulative sums answer for every
    row at once.
    """

    reach: FloatArray
    square_sums: FloatArray
    linear_sums: FloatArray

    @classmethod
    def of(cls, problem: Problem, z: FloatArray, margin_error: float) -> "Knots":
        """Sort the rows by how far θ must move until they reach a knot; m = 1."""
        assert isinstance(problem.loss, HuberHinge)
        norms = problem.norms
        # The predictor itself is known to margin_error·∥x∥: a knot that close counts as reached.
        distance = np.maximum(
            problem.loss.knot_distance(z, problem.y) * (1 - 1e-12) - 2 * margin_error * norms, 0.0
        )
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            reach = np.where(norms > 0, distance / norms, np.inf)
        order = np.argsort(reach, kind="stable")
        factor = problem.loss.curvature_bound * (1 + 1e-9)
        zero = np.zeros(1)
        return cls(
            reach=reach[order],
            square_sums=factor * np.concatenate([zero, np.cumsum(norms[order] ** 2)]),
            linear_sums=factor * np.concatenate([zero, np.cumsum((norms * distance)[order])]),
        )

    def scaled(self, factor: float) -> "Knots":
        """The same remainder times ``factor``."""
        return Knots(
            reach=self.reach,
            square_sums=self.square_sums * factor,
            linear_sums=self.linear_sums * factor,
        )

    def remainder(self, length: FloatArray) -> FloatArray:
        """The bound at each ``length`` ρ."""
        passed = np.searchsorted(self.reach, length)
        square, linear = self.square_sums[passed], self.linear_sums[passed]
        # The difference of the two cumulative sums carries their rounding.
        return np.maximum(square * length - linear, 0.0) + 1e-12 * (square * length + linear)
