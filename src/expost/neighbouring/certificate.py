"""The distance between a computed and a true neighbouring minimiser: bounds proved row by row.

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

from typing import TYPE_CHECKING

import numpy as np

from expost.types import FloatArray

if TYPE_CHECKING:
    from expost.neighbouring.expansion import Expansion

__all__ = ["base_residual_error", "certified_error", "endpoint_error", "point_error", "proved"]


def point_error(
    residual: FloatArray | float,
    *,
    floor: float,
    curvature: FloatArray | float,
    spread: float,
    decay: FloatArray | float,
) -> FloatArray:
    """Return an upper bound on ∥θ − minimiser∥ where the gradient at θ has norm ≤ ``residual``.

    Along the segment to the minimiser the Hessian is at least floor + c·e^(−u·spread) at distance
    u, with c = (curvature − floor)·decay: ``curvature`` is the least eigenvalue at the expansion
    point, ``decay`` = e^(−τ) what the path from there to θ can have left of it. So the error r
    satisfies

        floor·r + c(1 − e^(−r·spread))/spread ≤ residual,

    and with (1 − e^(−v))/v ≥ 1/(1 + v) it is a root of a quadratic, at most
    residual/(floor + c − residual·spread) where that is positive. ``curvature`` must be at least
    ``floor``. (Dividing by the curvature alone is not rigorous: it may fall along the path.)
    Infinite where nothing is proved.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        left = np.asarray(residual, dtype=np.float64)
        # The quotient is rounded up by way of its denominator.
        down = 1 - 1e-12
        steepness = (down * (curvature - floor)) * decay
        steepness += down * floor
        steepness = steepness - (down * spread) * left
        # Where the residual outweighs the curvature, strong convexity alone holds.
        steepness = np.fmax(steepness, down * floor)
        if floor > 0:
            return np.asarray(left / steepness)
        return np.where(steepness > 0, left / steepness, np.inf)


def certified_error(
    expansion: "Expansion",
    residual: FloatArray,
    length: FloatArray,
    lowest: FloatArray | float,
    decay: FloatArray,
    weight: FloatArray | float | None = None,
) -> FloatArray:
    """Return the error of shifts of this length that leave a tilted gradient ≤ ``residual``.

    ``lowest`` is the neighbour's least curvature; ``weight`` bounds Σ f″∥x∥²/m over the changed
    rows, where that is known for each neighbour.
    """
    error = point_error(
        residual,
        floor=expansion.floor,
        curvature=lowest,
        spread=expansion.spread,
        decay=decay,
    )
    changed = expansion.changed_curvature if weight is None else weight
    error += base_residual_error(expansion, lowest, length, error, decay, changed)
    return error


def base_residual_error(
    expansion: "Expansion",
    lowest: FloatArray | float,
    length: FloatArray,
    error: FloatArray,
    decay: FloatArray,
    changed: FloatArray | float,
) -> FloatArray:
    """Return what the residual η of the base costs each shift.

    Tilting both problems by t·g, t from 0 to 1, moves the shift at the rate
    H'⁻¹[(m₀/m)H − H']H⁻¹g. The bracket is what the changed rows and penalty contribute, c, plus
    what the loss's Hessian varies between the two ends, at most (e^v − 1)λ: λ its largest
    eigenvalue, v the spread times the distance of any two points on the path. H and H' are at
    least e^(−v) of their least eigenvalues μ, μ' where they are known. For v ≤ ½, with e^v ≤ 1.65,
    e^v − 1 ≤ 1.3v and e^(2v) ≤ 2.72:

        ∥change of the shift∥ ≤ 2.72·η·(1.65·c + 1.65·1.3·v·λ)/(μ μ').

    Else each end counts on its own: the base by its error, the neighbour by the same bound for a
    residual of (m₀/m)η.
    """
    eta, ratio = expansion.base.gradient_bound, expansion.curved.rows / expansion.rows_after
    spread, penalty = expansion.spread, float(np.abs(expansion.penalty_change).max())

    def apart() -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            left = decay * np.maximum(1 - spread * error, 0.0)
        return expansion.base_error + point_error(
            np.full(len(length), ratio * eta),
            floor=expansion.floor,
            curvature=lowest,
            spread=spread,
            decay=np.where(np.isnan(left), 0.0, left),
        )

    if expansion.loss.third_ratio is None or not expansion.base_lowest > 0:
        return apart()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        inverse = 1 / np.asarray(lowest)
        # The neighbour's own end moves by at most 3(m₀/m)η/μ' while v ≤ ½.
        ends = (3 * ratio * eta) * inverse + expansion.base_error
        scale = (2.72 * 1.65 * eta / expansion.base_lowest) * inverse
        rate = (1.3 * expansion.loss_curvature * spread) * scale
        together = length + error
        farthest = together.max(initial=0.0) + ends.max()
        near = None if spread * farthest <= 0.5 else spread * (together + ends) <= 0.5
        together *= rate
        together += rate * ends + scale * (changed + penalty / expansion.rows_after)
    return together if near is None else np.where(near, together, apart())


def proved(error: FloatArray) -> FloatArray:
    """Return the errors, infinite where they are not numbers (0·∞ and the like prove nothing)."""
    is_number = not np.isnan(error.max(initial=0.0))
    return error if is_number else np.where(np.isnan(error), np.inf, error)


def endpoint_error(expansion: "Expansion", pull_error: FloatArray | float) -> FloatArray | float:
    """Return what the base's residual and the error of a pull can do to a shift.

    Each end counts on its own, by strong convexity alone.
    """
    eta = expansion.base.gradient_bound * (1 + expansion.curved.rows / expansion.rows_after)
    return (eta + pull_error) / expansion.least_penalty
