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

from expost._numerics import ROUNDOFF, gamma
from expost.glm import Constants, Objective
from expost.losses import HuberHinge, Loss
from expost.types import FloatArray

__all__ = ["KnotBins", "Knots", "knot_reach", "point_error"]


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
    row at once. ``rounding`` is the relative error of those sums, which do not cancel, while their
    difference may.
    """

    reach: FloatArray
    square_sums: FloatArray
    linear_sums: FloatArray
    rounding: float

    @classmethod
    def of(cls, problem: Objective, z: FloatArray, margin_error: float) -> "Knots":
        """Sort the rows by how far θ must move until they reach a knot; m = 1."""
        norms = problem.held.norms
        distance, reach = knot_reach(problem.loss, z, problem.held.y, norms, margin_error)
        order = np.argsort(reach, kind="stable")
        factor = problem.loss.curvature_bound * (1 + 1e-9)
        zero = np.zeros(1)
        return cls(
            reach=reach[order],
            square_sums=factor * np.concatenate([zero, np.cumsum(norms[order] ** 2)]),
            linear_sums=factor * np.concatenate([zero, np.cumsum((norms * distance)[order])]),
            rounding=gamma(len(norms) + 8),
        )

    def scaled(self, factor: float) -> "Knots":
        """The same remainder times ``factor``."""
        return Knots(
            reach=self.reach,
            square_sums=self.square_sums * factor,
            linear_sums=self.linear_sums * factor,
            rounding=self.rounding,
        )

    def remainder(self, length: FloatArray) -> FloatArray:
        """The bound at each ``length`` ρ."""
        passed = np.searchsorted(self.reach, length)
        square, linear = self.square_sums[passed], self.linear_sums[passed]
        moved = square * length
        # The difference of the two cumulative sums carries the rounding of both.
        return np.maximum(moved - linear, 0.0) + 2 * self.rounding * (moved + linear)


# Bins of a sixty-fourth of an octave each, from 2⁻⁴⁰ to 2⁴⁰.
_MANTISSA, _SHIFT = 6, 46
_FIRST = (1023 - 40) << _MANTISSA
_BINS = 80 << _MANTISSA


@dataclass(frozen=True, kw_only=True, eq=False)
class KnotBins:
    """The same for rows that come in blocks: Σ∥x∥² by how far θ must move to a row's knot.

    A row counts as if its knot were at the near edge of its bin, nearer than it is by 2⁻⁶ of the
    way at most, so that the remainder is bounded from above; blocks add up, in their order.
    """

    squares: FloatArray

    @classmethod
    def of(
        cls,
        constants: Constants,
        z: FloatArray,
        y: FloatArray,
        norms: FloatArray,
        theta: FloatArray,
    ) -> "KnotBins":
        """The rows of one block."""
        reach = knot_reach(constants.loss, z, y, norms, constants.margin_error(theta))[1]
        finite = norms > 0
        places = (np.ascontiguousarray(reach[finite]).view(np.int64) >> _SHIFT) - _FIRST
        # The first bin begins at 0.
        np.clip(places, 0, _BINS - 1, out=places)
        return cls(
            squares=np.bincount(places, weights=norms[finite] ** 2, minlength=_BINS).astype(float)
        )

    def merged(self, other: "KnotBins | None") -> "KnotBins":
        """Both together."""
        assert other is not None
        return KnotBins(squares=self.squares + other.squares)

    def knots(self, loss: HuberHinge) -> Knots:
        """The bound that they give; m = 1."""
        edges = ((np.arange(_BINS) + _FIRST) << _SHIFT).view(np.float64)
        edges[0] = 0.0
        # What Σ∥x∥² of a bin was rounded by counts alike in both sums: a factor of their
        # difference, below 1e-9 for a million blocks.
        factor, zero = loss.curvature_bound * (1 + 1e-9), np.zeros(1)
        return Knots(
            reach=edges,
            square_sums=factor * np.concatenate([zero, np.cumsum(self.squares)]),
            linear_sums=factor * np.concatenate([zero, np.cumsum(self.squares * edges)]),
            rounding=gamma(_BINS + 8),
        )


def knot_reach(
    loss: Loss, z: FloatArray, y: FloatArray, norms: FloatArray, margin_error: float
) -> tuple[FloatArray, FloatArray]:
    """Each predictor's way to its nearest knot, and how far θ must move for it; rounded down."""
    assert isinstance(loss, HuberHinge)
    # The predictor itself is known to margin_error·∥x∥, and 1 − yz is rounded: a knot that close
    # counts as reached.
    close = 2 * margin_error * norms + 4 * ROUNDOFF
    distance = np.maximum(loss.knot_distance(z, y) * (1 - 1e-12) - close, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return distance, np.where(norms > 0, distance / norms, np.inf)
