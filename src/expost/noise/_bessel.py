"""The ratio of neighbouring modified Bessel functions of the second kind, for any order.

K itself overflows long before the orders that models with thousands of coefficients need; the
ratio lies in (0, 1) and never does.
"""

from functools import lru_cache

import numpy as np
from numpy.polynomial import Polynomial
from scipy.special import k0e, k1e

from expost.types import FloatArray

__all__ = ["ratio_below"]

# Twice the order from which the uniform expansion is right to rounding (with _TERMS terms it errs
# by 2e-15 at order 31); below it the recurrence takes at most 31 steps.
_UNIFORM_FROM = 64
_TERMS = 9


def ratio_below(twice_order: int, argument: FloatArray) -> FloatArray:
    """Return K_ν(z)/K_{ν+1}(z), ν = ``twice_order``/2 ≥ 0, z > 0, to about 3e-15 relative.

    Whole and half orders are what dimension needs: ν = d/2 − 1.
    """
    if twice_order >= _UNIFORM_FROM:
        return _by_expansion(twice_order / 2, argument)
    return _by_recurrence(twice_order, argument)


def _by_recurrence(twice_order: int, argument: FloatArray) -> FloatArray:
    """Apply K_{ν−1} + (2ν/z)K_ν = K_{ν+1} (DLMF 10.29.1) upwards: positive terms, so stable."""
    if twice_order % 2:
        ratio, order = np.ones_like(argument), 0.5
        ratio = argument / (2 * order + argument * ratio)
    else:
        # Below 1e-300 K₁ overflows; the ratio there is 0 to within 1e-297.
        tiny = np.maximum(argument, 1e-300)
        ratio, order = k0e(tiny) / k1e(tiny), 0.0
    while order < twice_order / 2:
        order += 1
        ratio = argument / (2 * order + argument * ratio)
    return ratio


def _by_expansion(order: float, argument: FloatArray) -> FloatArray:
    """Apply Debye's uniform expansions of K_ν and K_ν' (DLMF 10.41.4, 10.41.6).

    From K_{ν+1} = (ν/z)K_ν − K_ν' the exponential factors cancel and nothing is subtracted:
    K_{ν+1}/K_ν = (ν + √(ν² + z²)·ΣV/ΣU)/z.
    """
    slant = np.hypot(order, argument)
    values, slopes = _debye_sums(order)
    cosine = order / slant
    return argument / (order + slant * (slopes(cosine) / values(cosine)))


@lru_cache(maxsize=64)
def _debye_sums(order: float) -> tuple[Polynomial, Polynomial]:
    """Return Σ (−1)^k U_k(p)/ν^k and Σ (−1)^k V_k(p)/ν^k as polynomials in p (DLMF 10.41.9)."""
    p = Polynomial([0.0, 1.0])
    p2 = p * p
    u = Polynomial([1.0])
    values, slopes = u, u
    for k in range(1, _TERMS + 1):
        bend = p2 * (1 - p2) * u.deriv()
        higher = 0.5 * bend + (Polynomial([1.0, 0.0, -5.0]) * u).integ() / 8
        v = higher - 0.5 * p * (1 - p2) * u - bend
        u = higher
        values = values + u * (-1 / order) ** k
        slopes = slopes + v * (-1 / order) ** k
    return values, slopes
