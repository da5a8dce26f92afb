"""How precisely the ratio of two laws of a model is known, from public constants alone.

Conventions (docs/theory/erasure.md, sections 5 and 6)
------------------------------------------------------
ℓ        log P − log Q at θ, where Q is the law of a model with some rows fewer, or more.
h        a bound on the error of the computed ℓ, at any θ that P or Q draws but with probability
         ``UNLIKELY``.
V        the volume −Σ log(1 − w) of the rows that change; w/(1 − w) are the eigenvalues of
         H₋^(−½)WH₋^(−½), H₋ ≽ λI without these rows, so that Σ w/(1 − w) ≤ τ = k·r·c/λ.
"""

import math

from expost._numerics import ROUNDOFF, gamma
from expost.losses import Kinked
from expost.mechanisms.base import TOLERANCE
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.output import OutputPerturbation
from expost.mechanisms.perturbation import Perturbation
from expost.noise import Gaussian, NormLaplace

__all__ = [
    "UNLIKELY",
    "clamp_probability",
    "has_ratio_error",
    "largest_volume",
    "noise_error",
    "ratio_error",
]

# The probability of a noise longer than the bounds assume.
UNLIKELY = 1e-12
# Rows that a block of a table has at most: sums over blocks are compensated.
_BLOCK_ROWS = 2**15
# The largest relative change of 1 − w at which −log(1 − w) is taken for nearly linear.
_SMALL = 0.1


def ratio_error(before: Perturbation, after: Perturbation) -> float:
    """Return h for a change from one number of rows to another.

    Parameters
    ----------
    before, after : Perturbation
        The mechanism with the two numbers of rows.

    Returns
    -------
    float
        The bound in nats; infinite where nothing is bounded by public constants.
    """
    changed = abs(before.rows - after.rows)
    if isinstance(before, OutputPerturbation) and isinstance(after, OutputPerturbation):
        return _output_error(before, after, changed)
    larger = before if before.rows > after.rows else after
    if isinstance(larger, ObjectivePerturbation) and has_ratio_error(larger):
        return _objective_error(larger, changed)
    return math.inf


def has_ratio_error(mechanism: ObjectivePerturbation) -> bool:
    """Return whether slopes and changes of curvature of the loss are bounded.

    Parameters
    ----------
    mechanism : ObjectivePerturbation
        The mechanism.

    Returns
    -------
    bool
        False for losses with knots or with slopes that are not bounded.
    """
    return mechanism.loss.has_bounded_slope and not isinstance(mechanism.loss, Kinked)


def clamp_probability(mechanism: Perturbation) -> float:
    """Bound the probability that a release lies on the clamp of its grid.

    Parameters
    ----------
    mechanism : Perturbation
        The mechanism of the release.

    Returns
    -------
    float
        The probability, rounded up; 1 of a mechanism that is not known here.
    """
    if not isinstance(mechanism, OutputPerturbation | ObjectivePerturbation):
        return 1.0
    # What is within half a step of the clamp is rounded to it.
    spare = mechanism.grid.clamp * (1 - 1e-9) - mechanism.grid.step
    spare -= mechanism.loss.solution_bound(mechanism.total_regularization)
    if isinstance(mechanism, ObjectivePerturbation):
        spare = (spare - mechanism.reach_of_cell) * mechanism.penalty_sum
    else:
        spare -= TOLERANCE / mechanism.regularization
    return float(mechanism.law.norm_tails(max(spare, 0.0))[1]) * (1 + 1e-6)


def noise_error(
    law: NormLaplace | Gaussian, norm: float, apart: float, shift_error: float, base_error: float
) -> float:
    """Bound the error of ``law.loss(b, s)``: of s and b, and of rounding.

    Norm-Laplace: ∥b − s∥ − ∥b∥ changes by at most ``shift_error`` + 2·``base_error``. The numerator
    s·(s − 2b) is rounded by at most ∥s∥·∥s − 2b∥ ≤ ∥s∥D units, D = ∥b − s∥ + ∥b∥ being the
    denominator, and the quotient is at most ∥s∥: rounding is 8∥s∥ units at most. (That of
    ``law.loss_from`` is √unit where ∥b∥ ≈ ∥s∥.)

    Parameters
    ----------
    law : NormLaplace or Gaussian
        The noise.
    norm, apart : float
        ∥b∥ and ∥s∥, or bounds on them.
    shift_error, base_error : float
        Bounds on the errors of s and b.

    Returns
    -------
    float
        The bound in nats.
    """
    if isinstance(law, Gaussian):
        return float(law.loss_error(norm, apart, shift_error, base_error))
    unit = gamma(law.dimension + 16)
    return law.rate * (shift_error + 2 * base_error + 8 * unit * apart) * (1 + 4 * unit)


def _output_error(before: OutputPerturbation, after: OutputPerturbation, changed: int) -> float:
    """Return h of output perturbation."""
    law = before.law
    apart = changed * max(before.sensitivity, after.sensitivity)
    reach = math.sqrt(before.dimension) * before.grid.clamp
    moved = 2 * TOLERANCE / before.regularization + 8 * ROUNDOFF * reach
    longest = law.norm_exceeded_with(UNLIKELY) + apart
    return noise_error(law, longest, apart, 2 * moved, 2 * moved) * (1 + 1e-9)


def largest_volume(mechanism: ObjectivePerturbation, rows: int) -> float:
    """Return the largest volume of so many rows in the unit ball.

    Parameters
    ----------
    mechanism : ObjectivePerturbation
        The mechanism.
    rows : int
        The number of rows that leave or enter.

    Returns
    -------
    float
        A bound on V.
    """
    rank, curvature = mechanism.loss.determinant
    curved = curvature / mechanism.penalty_sum * (1 + 1e-9)
    directions = rank * mechanism.dimension / mechanism.loss.outputs
    each = rank * rows * math.log1p(curved)
    return min(each, directions * math.log1p(rank * rows * curved / directions)) * (1 + 1e-9)


def _objective_error(mechanism: ObjectivePerturbation, rows: int) -> float:
    """Return h of objective perturbation: the loss of ``rows`` rows of D that leave.

    Line by line what :mod:`expost.mechanisms.tangent` and :mod:`expost.mechanisms.person_losses`
    add up, each at its largest.
    """
    loss, law, penalty = mechanism.loss, mechanism.law, mechanism.penalty_sum
    n, slope = mechanism.rows, mechanism.slope_bound
    dimension, steepest = mechanism.dimension, mechanism.steepest
    size = math.sqrt(dimension) * mechanism.grid.clamp
    margin = gamma(dimension // loss.outputs + 2) * size
    reach = mechanism.reach_of_cell + margin
    # The derivatives of a loss as they are computed, at predictors of at most this size.
    evaluated = loss.curvature_bound * margin
    evaluated += 2 * ROUNDOFF * (2 * loss.outputs + 64 + 4 * size) * (slope + 1)
    moved = rows * (loss.curvature_bound * reach + evaluated)
    moved += rows * gamma(rows + dimension + 64) * slope
    apart = rows * slope * (1 + 1e-9)
    # θ may have been drawn with the rows or without them: g is −b, or −b and their gradients.
    longest = law.norm_exceeded_with(UNLIKELY) + apart
    base = n * (evaluated + gamma(_BLOCK_ROWS + 4) * slope)
    base += 8 * ROUNDOFF * (longest + 2 * penalty * size)
    base += 1.01 * steepest * mechanism.half_cell + n * mechanism.tolerance
    longest += base
    # Rounding is largest at ∥g∥ = ∥G∥ for norm-Laplace noise, far out for Gaussian noise.
    noise = float(max(law.loss_error([apart, longest], apart, 1.1 * moved, base)))
    if isinstance(law, Gaussian):
        largest = (longest + apart / 2) * apart / law.scale**2
    else:
        largest = law.rate * apart
    volume = largest_volume(mechanism, rows)
    eigenvalues = min(rows * loss.outputs, dimension)
    grown = _volume_error(mechanism, rows, reach, volume)
    rounding = 32 * eigenvalues * ROUNDOFF * (1 + volume) + 16 * ROUNDOFF * (largest + volume)
    return (noise + grown + rounding) * (1 + 1e-6)


def _volume_error(
    mechanism: ObjectivePerturbation, rows: int, reach: float, volume: float
) -> float:
    """Return the error of the determinants' part.

    The ends of an interval are w₀(1 + 3.3·spread) + 3.3·slack at most, w₀ the eigenvalues at θ. So
    1 − w changes by a share ζ = 3.3(spread·x + slack·(1 + x)), x = w₀/(1 − w₀), and −log(1 − w)
    by less than 1.06ζ where ζ ≤ 0.1; Σx ≤ τ.
    """
    loss, penalty, steepest = mechanism.loss, mechanism.penalty_sum, mechanism.steepest
    n, dimension = mechanism.rows, mechanism.dimension
    rank, curvature = loss.determinant
    spread = 2 * (loss.third_ratio or 0.0) * reach * (1 + 1e-9) + 2 * loss.curvature_rounding
    spread += 4 * gamma(_BLOCK_ROWS + 2 * loss.outputs + 64) * (1 + n * rank / penalty)
    spread += 16 * gamma(dimension + 8) * steepest / penalty
    eigenvalues = min(rows * loss.outputs, dimension)
    root = 2 * math.sqrt(dimension * steepest / penalty) * gamma(dimension + 8)
    root += gamma(rows + 3 * dimension + 128) + gamma(32 * eigenvalues)
    # Of the trace of the Gram matrix, Σw ≤ V.
    slack = root * volume
    total = rows * rank * curvature / penalty
    steep = 1.1 * 3.3 * (spread * total + slack * (1 + total))
    if not steep <= _SMALL:
        return math.inf
    return 1.1 * 1.06 * 3.3 * (spread * total + slack * (eigenvalues + total))
