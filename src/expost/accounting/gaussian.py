"""ε, δ and the Gaussian mechanism, exactly.

Conventions
-----------
μ    sensitivity/σ: the two laws of the model are N(0, 1) and N(μ, 1) along one line.
δ    P(ℓ > ε) − e^ε·P(−ℓ > ε), with ℓ ~ N(μ²/2, μ²) the loss (Balle and Wang 2018, Thm 8):

         δ(ε, μ) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)
"""

import math

import numpy as np
from scipy.special import erfcx, ndtr, ndtri

from expost import _checks
from expost._numerics import ROUNDOFF, bracket_root, gauss_legendre
from expost.errors import ConvergenceError, InvalidInput
from expost.types import FloatArray

__all__ = [
    "gaussian_delta",
    "gaussian_deltas",
    "gaussian_epsilon",
    "gaussian_epsilon_below",
    "gaussian_scale",
]

# Relative error of gaussian_delta, with room: tests find 2e-13 against 50 digits.
_DELTA_ERROR = 1e-11
_NODES = 16
# From here on ε, about μ²/2, counts as infinite.
_HUGE_MU = 1e150
_TINY_MU = 1e-150
# σ is stepped up by this much at most.
_MOST_STEP = 1e-11


def gaussian_scale(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least σ with which N(0, σ²I) on a value of this L2 ``sensitivity`` is (ε, δ)-DP.

    The analytic Gaussian mechanism (Balle and Wang 2018), rounded up: δ(ε, sensitivity/σ) ≤ δ
    holds for what is returned, which is at most 1e-10 of itself too large. δ(ε, μ) increases with
    μ, so σ is the sensitivity over the largest μ that keeps δ.

    Parameters
    ----------
    epsilon : float
        ε > 0.
    delta : float
        δ in (0, 1).
    sensitivity : float
        The largest distance (L2) between the values of two neighbouring data sets.

    Returns
    -------
    float
        σ in the unit of ``sensitivity``.

    Raises
    ------
    InvalidInput
        If an argument is outside its range.
    ConvergenceError
        If float64 cannot hold σ.
    """
    epsilon = _checks.positive("epsilon", epsilon)
    delta = _checks.probability("delta", delta)
    sensitivity = _checks.positive("sensitivity", sensitivity)
    target = delta / (1 + _DELTA_ERROR)

    def passed(mu: FloatArray) -> FloatArray:
        return gaussian_deltas(np.array([epsilon]), mu) - target

    with np.errstate(all="ignore"):
        # δ(ε, μ) < P(ℓ > ε) = Φ(μ/2 − ε/μ), which is the target at this μ.
        z = -float(ndtri(target))
        root = math.sqrt(z * z + 2 * epsilon)
        least = max((2 * epsilon / (z + root) if z > 0 else root - z) * (1 - 1e-9), _TINY_MU)
        most = min(4 * least, _HUGE_MU)
        while most < _HUGE_MU and not passed(np.array([most]))[0] > 0:
            least, most = most, min(64 * most, _HUGE_MU)
        below, above = bracket_root(passed, np.array([least]), np.array([most]))
    scale, step = sensitivity / float(below[0]), ROUNDOFF
    # Computed δ(ε, μ) is not monotone to the last bits: step up until the guarantee holds.
    while not _keeps(epsilon, delta, sensitivity, scale) and step < _MOST_STEP:
        scale, step = scale * (1 + step), 2 * step
    inside = below[0] > _TINY_MU and above[0] < _HUGE_MU
    if not (inside and step < _MOST_STEP):
        raise ConvergenceError(
            f"no noise scale found for epsilon={epsilon!r}, delta={delta!r},"
            f" sensitivity={sensitivity!r}: too extreme for float64; use less extreme values."
        )
    return scale


def _keeps(epsilon: float, delta: float, sensitivity: float, scale: float) -> bool:
    """Return whether σ = ``scale`` keeps δ, rounding included; NaN does not."""
    if not 0 < scale < math.inf:
        return False
    mu = math.nextafter(sensitivity / scale, math.inf)
    return gaussian_delta(epsilon, mu) * (1 + _DELTA_ERROR) <= delta


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return δ(ε, μ) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), to about 1e-12 relative.

    ε ≥ 0 and μ ≥ 0 may be infinite; both infinite is refused.

    Parameters
    ----------
    epsilon : float
        ε ≥ 0.
    mu : float
        The distance of the two centres in standard deviations, μ = sensitivity/σ ≥ 0.

    Returns
    -------
    float
        δ, accurate to about 1e-12 relative.

    Raises
    ------
    InvalidInput
        If ``epsilon`` or ``mu`` is negative or NaN, or both are infinite.
    """
    epsilon, mu = _extended("epsilon", epsilon), _extended("mu", mu)
    if epsilon == mu == math.inf:
        raise InvalidInput("epsilon and mu are both infinite: δ is not defined; give one of them.")
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if mu == math.inf:
        return 1.0
    return float(gaussian_deltas(np.array([epsilon]), np.array([mu]))[0])


def gaussian_deltas(epsilon: FloatArray, mu: FloatArray) -> FloatArray:
    """Return δ(ε, μ) entry by entry, to about 1e-12 relative.

    With x = ε/μ it is ½e^(−(x−μ/2)²/2)·[erfcx((x−μ/2)/√2) − erfcx((x+μ/2)/√2)]. Where the two are
    close their difference is the integral of −erfcx'(y) = 2/√π − 2y·erfcx(y) between them.

    Parameters
    ----------
    epsilon : FloatArray
        (m,) finite ε ≥ 0.
    mu : FloatArray
        (m,) finite μ > 0.

    Returns
    -------
    FloatArray
        (m,) δ.
    """
    with np.errstate(over="ignore"):
        x, half = epsilon / mu, 0.5 * mu
    # The density of both laws where they cross; below e^−745 there is nothing left.
    fall = np.exp(-0.5 * np.minimum(np.abs(x - half), 40.0) ** 2)
    late = 0.5 * fall * erfcx((x + half) / math.sqrt(2))
    # erfcx of what is not below 0: on the other side Φ itself has no cancellation.
    early = np.where(
        x <= half, ndtr(half - x), 0.5 * fall * erfcx(np.maximum(x - half, 0.0) / math.sqrt(2))
    )
    delta = np.where(x - half > 38.5, 0.0, np.maximum(early - late, 0.0))
    close = mu < 0.25
    if np.any(close):
        drop = _erfcx_drop(np.minimum(x[close], 40.0) / math.sqrt(2), half[close] / math.sqrt(2))
        delta[close] = np.where(x[close] > 40, 0.0, 0.5 * fall[close] * drop)
    return delta


def _erfcx_drop(middle: FloatArray, half: FloatArray) -> FloatArray:
    """Return erfcx(middle − half) − erfcx(middle + half), by quadrature of the slope."""
    points, weights = gauss_legendre(_NODES)
    at = middle[:, None] + half[:, None] * points
    slope = 2 / math.sqrt(math.pi) - 2 * at * erfcx(at)
    drop: FloatArray = half * (slope @ weights)
    return drop


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the least ε ≥ 0 with δ(ε, μ) ≤ ``delta``, rounded up; infinite for μ = ∞.

    Parameters
    ----------
    mu : float
        The distance of the two centres in standard deviations, μ = sensitivity/σ ≥ 0.
    delta : float
        δ in [0, 1).

    Returns
    -------
    float
        ε ≥ 0, rounded up.

    Raises
    ------
    InvalidInput
        If ``mu`` or ``delta`` is outside its range.
    """
    mu = _extended("mu", mu)
    delta = _checks.probability("delta", delta)
    if mu >= _HUGE_MU:
        return math.inf
    target = delta / (1 + _DELTA_ERROR)
    if gaussian_delta(0.0, mu) <= target:
        return 0.0
    _, above = _epsilon_bracket(np.array([mu]), target)
    epsilon = float(above[0])
    if not gaussian_delta(epsilon, mu) <= target:
        raise ConvergenceError(
            f"no epsilon found for mu={mu!r}, delta={delta!r}; the values are too extreme."
        )
    return epsilon


def gaussian_epsilon_below(mu: FloatArray, delta: float) -> FloatArray:
    """Return the largest ε with δ(ε, μ) ≥ ``delta``, rounded down: its noise has at most this μ.

    For every entry of ``mu``; 0 where even ε → 0 needs a smaller μ, infinite for μ = ∞.

    Parameters
    ----------
    mu : FloatArray
        Bounds on μ, each ≥ 0.
    delta : float
        δ in (0, 1).

    Returns
    -------
    FloatArray
        ε of each entry of ``mu``, rounded down.

    Raises
    ------
    InvalidInput
        If ``mu`` or ``delta`` is outside its range.
    """
    mu = np.asarray(mu, dtype=np.float64)
    delta = _checks.probability("delta", delta)
    if not np.all(mu >= 0):
        raise InvalidInput("mu: must hold numbers of at least 0.")
    target = delta * (1 + _DELTA_ERROR)
    # ε is about μ²/2 there.
    epsilon = np.where(mu == math.inf, math.inf, np.where(mu >= _HUGE_MU, 1e299, 0.0))
    ordinary = (mu > 0) & (mu < _HUGE_MU)
    reached = np.zeros(mu.shape, dtype=bool)
    reached[ordinary] = (
        gaussian_deltas(np.zeros(np.count_nonzero(ordinary)), mu[ordinary]) >= target
    )
    below, _ = _epsilon_bracket(mu[reached], target)
    if not np.all(gaussian_deltas(below, mu[reached]) >= target):
        raise ConvergenceError(f"no epsilon found for delta={delta!r}; the values are too extreme.")
    epsilon[reached] = below
    return epsilon


def _epsilon_bracket(mu: FloatArray, target: float) -> tuple[FloatArray, FloatArray]:
    """Return (below, above): neighbours in float64 with δ(below, μ) ≥ target > δ(above, μ)."""
    # δ(ε, μ) < P(ℓ > ε) = Φ(μ/2 − ε/μ), which is the target at this ε.
    top = mu * (0.5 * mu - float(ndtri(target))) * (1 + 1e-9)
    return bracket_root(
        lambda epsilon: target - gaussian_deltas(epsilon, mu), np.zeros_like(mu), top
    )


def _extended(name: str, value: float) -> float:
    """Return ``value`` as a number in [0, ∞]."""
    return 0.0 if value == 0 else _checks.positive(name, value, finite=False)
