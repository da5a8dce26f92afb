"""Quantiles of the largest eigenvalue of GOE(d), the noise on a published Hessian (R&W Alg. 2).

The distribution is exact (a Pfaffian of the kind of Chiani 2014, "Distribution of the largest
eigenvalue for real Wishart and Gaussian random matrices …", J. Multivariate Anal. 129), but in a
basis in which nothing cancels: float64 gives 1 − F to about 13 digits however far out.
docs/theory/goe.md derives every formula used here.

Conventions
-----------
GOE(d)    symmetric d×d matrix, entries off the diagonal N(0, 1), on it N(0, 2), independent. The
          eigenvalues have a joint density ∝ Π∣λᵢ − λⱼ∣ exp(−Σλ²/4), the largest is about 2√d.
F, tail   F(x) = P(λ_max ≤ x); ``tail`` is 1 − p where F⁻¹(p) is wanted.
φ_n       Heₙ(x) e^(−x²/4) / √(√(2π) n!), orthonormal on the line: ``wave`` holds φ₀(x), φ₁(x), …
T_mn      ∫_x^∞ φ_m φ_n (``overlap``);   τ_n = ∫_x^∞ φ_n (``beyond``).
c_n       n even: ∫φ_n over the line. n odd: ∬ sgn(t − s) φ₀(s) φ_n(t) ds dt / c₀. (``whole``)
pairs     d even: (φ_n, −φ_n'/2), n = 0, 2, …, d−2. d odd: φ₀ with the border of the Pfaffian,
          then n = 1, 3, …, d−2. On the whole line the skew matrix of the pairs is J, the direct
          sum of [[0, 1], [−1, 0]]; on (−∞, x] it is J − E(x), so F = Pf(J − E), and E is small
          in the tail.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import erfc, ndtri

from expost import _checks
from expost._numerics import bracket_root
from expost.errors import ConvergenceError, InvalidInput
from expost.types import FloatArray, IntArray

__all__ = ["goe_largest_eigenvalue_quantile"]

# Exact up to here (a third of a second at the end: d³ an evaluation); by the expected number of
# alternate eigenvalues up to there (d an evaluation, half a second); by concentration beyond.
_LARGEST_EXACT = 200
_LARGEST_COUNTED = 20_000
# The tail is taken this much larger than computed. Measured errors are below 1e-13 (exact) and
# 1e-11 (counted), docs/evidence/goe.json; what the margin costs in x is below 1e-7.
_MARGIN_EXACT = 1e-11
_MARGIN_COUNTED = 1e-9
# An F below this is not resolved: a smaller p gets the quantile of this one.
_LEAST = 1e-6
# Further out the φ_n underflow.
_LEAST_TAIL = 1e-250

_C0 = 2 * math.sqrt(math.pi) * (2 * math.pi) ** -0.25


def goe_largest_eigenvalue_quantile(p: float, d: int, *, upper: bool = False) -> float:
    """Return x with P(λ_max ≤ x) ≥ p for the largest eigenvalue of GOE(d), rounded up.

    How far above the quantile x may lie:

    - d ≤ 200: 1e-7 (absolute) for p from 1e-4 up; a p below 1e-6 is taken as 1e-6.
    - d ≤ 20,000: x solves E⌈#{λ > x}/2⌉ = 1 − p, a bound of 1 − F (Markov). In units of d^(−1/6),
      the width of the law of λ_max: 1e-8 above at p = .99 and beyond, 1e-6 at .9, 0.0005 at .5, 0.1
      at .1 (checked up to d = 3,000).
    - beyond: x = 2√d + √2 Φ⁻¹(p) (2√d for p < ½), by Gaussian concentration: about √2 Φ⁻¹(p) above.

    At d = 1 it is √2 Φ⁻¹(p). F is exact up to rounding; the margin that is added for it is a
    hundred times what was measured against an independent computation in 300 and more digits
    (docs/evidence/goe.json), not the result of interval arithmetic.

    Parameters
    ----------
    p : float
        A probability strictly between 0 and 1.
    d : int
        The dimension.
    upper : bool, default=False
        Whether ``p`` is the probability of *exceeding* x instead, for tails that 1 − p would round
        (down to 1e-250).

    Returns
    -------
    float
        x.

    Raises
    ------
    InvalidInput
        If an argument is out of range.
    ConvergenceError
        If the quantile is not bracketed.
    """
    level = _checks.probability("p", p)
    dimension = _checks.integer("d", d, least=1)
    if not isinstance(upper, bool | np.bool_):
        raise InvalidInput(f"upper={upper!r}: must be True or False.")
    tail = level if upper else 1 - level
    if not tail >= _LEAST_TAIL:
        raise InvalidInput(f"p={p!r}: with upper=True must be at least {_LEAST_TAIL:g}.")
    return _quantile(min(tail, 1 - _LEAST), dimension)


@lru_cache(maxsize=1024)
def _quantile(tail: float, d: int) -> float:
    # λ_max ≥ M₁₁ ~ N(0, 2), so this bounds the quantile from below.
    low = -math.sqrt(2) * float(ndtri(tail))
    high = concentration_bound(tail, d)
    if d > _LARGEST_COUNTED:
        return high
    if d <= _LARGEST_EXACT:
        return _exceeded_with(tail, d, low, high, exact=True)
    # The count is at most d, and 0 where λ_max ≤ x: its mean is below d(1 − F).
    counted = _exceeded_with(tail, d, low, concentration_bound(tail / d, d), exact=False)
    return min(counted, high)


def _exceeded_with(tail: float, d: int, low: float, high: float, *, exact: bool) -> float:
    """Return the least x at which 1 − F, or the alternate count, with its margin is < ``tail``."""
    above_x = survival if exact else alternate_count
    enlarged = 1 + (_MARGIN_EXACT if exact else _MARGIN_COUNTED)

    def room(x: FloatArray) -> FloatArray:
        # Products of two tails underflow harmlessly next to single ones.
        with np.errstate(under="ignore"):
            return np.asarray(tail - enlarged * above_x(float(x), d))

    _, above = bracket_root(room, low, high)
    if not float(room(above)) > 0:
        raise ConvergenceError(
            f"the quantile of GOE({d}) exceeded with probability {tail:g} was not bracketed."
        )
    return float(above)


def concentration_bound(tail: float, d: int) -> float:
    """Return 2√d + √2 max(0, Φ⁻¹(1 − tail)), rounded up: P(λ_max > it) ≤ ``tail``.

    λ_max is √2-Lipschitz and convex in d(d+1)/2 standard normals, so P(λ_max > median + √2 t) ≤
    1 − Φ(t) and its median is at most its mean, which is at most 2√d (Slepian–Fernique).
    """
    bound = 2 * math.sqrt(d) + math.sqrt(2) * max(0.0, -float(ndtri(tail)))
    return bound * (1 + 1e-14)


def survival(x: float, d: int) -> float:
    """Return 1 − F(x), to about 13 digits; 1 where F is below 5e-7.

    Gaussian elimination of J − E a pair at a time: the k-th pivot is F_2k/F_2k−2 of the smaller
    ensembles (F_2k+1/F_2k−1 for odd d), so it lies in (0, 1) and no exchange of rows is needed.
    Only its difference from 1 is formed, which keeps the tail's digits.
    """
    rest = tail_matrix(x, d)
    log_f = 0.0
    while len(rest):
        excess = float(rest[0, 1])
        log_f += math.log1p(-excess) if excess < 1 else -math.inf
        # F is smaller for a larger matrix (interlacing): it need not be followed further down,
        # where the pivots would be rounding errors.
        if not log_f > math.log(_LEAST / 2):
            return 1.0
        update = np.outer(rest[0, 2:] / (1 - excess), rest[1, 2:])
        rest = rest[2:, 2:] + (update - update.T)
    return -math.expm1(log_f)


def tail_matrix(x: float, d: int) -> FloatArray:
    """Return E(x) = J − A(x), A the skew products ∬_{s,t≤x} sgn(t − s) f(s) g(t) ds dt.

    With f_j = φ_j, g_k = −φ_k'/2 (docs/theory/goe.md, section 3):
    E(f_j, g_k) = φ_k(x)(c_j − τ_j)/2 + T_jk;  E(f_j, f_k) = c_j τ_k − c_k τ_j − Q_jk;
    E(g_j, g_k) = ¼∫_x^∞ (φ_j φ_k' − φ_j' φ_k). The border, divided by c₀, takes the place of g
    in the first pair of odd d: E(f_j, border) = τ_j/c₀, E(border, g_k) = −φ_k(x)/(2c₀).
    """
    wave, whole, beyond = _functions(x, d + 2)
    overlap = _overlap(x, wave)
    odd = d % 2
    slopes: IntArray = np.arange(odd, d - odd, 2, dtype=np.int64)
    values = np.concatenate(([0], slopes)) if odd else slopes
    size = len(values)

    mixed = np.empty((size, size))
    mixed[:, odd:] = 0.5 * np.outer(whole[values] - beyond[values], wave[slopes])
    mixed[:, odd:] += overlap[np.ix_(values, slopes)]
    # ∫_x^∞ φ_j φ_k', with φ_k' = (√k φ_k−1 − √(k+1) φ_k+1)/2. (√0 meets index −1.)
    turn = 0.5 * np.sqrt(slopes) * overlap[np.ix_(slopes, slopes - 1)]
    turn -= 0.5 * np.sqrt(slopes + 1) * overlap[np.ix_(slopes, slopes + 1)]
    both_slopes = np.zeros((size, size))
    both_slopes[odd:, odd:] = 0.25 * (turn - turn.T)
    if odd:
        mixed[:, 0] = beyond[values] / _C0
        both_slopes[1:, 0] = 0.5 / _C0 * wave[slopes]
        both_slopes[0, 1:] = -both_slopes[1:, 0]
    lever: FloatArray = np.outer(whole[values], beyond[values])

    matrix = np.empty((2 * size, 2 * size))
    matrix[0::2, 1::2] = mixed
    matrix[1::2, 0::2] = -mixed.T
    matrix[0::2, 0::2] = lever - lever.T - _double_tail(values, wave, whole, beyond, overlap)
    matrix[1::2, 1::2] = both_slopes
    return matrix


def alternate_count(x: float, d: int) -> float:
    """Return E⌈N/2⌉, N = #{λ > x}: of the 1st, 3rd, 5th … largest eigenvalues, those above x.

    Pf(J − ξE) = E(1 − ξ)^⌈N/2⌉ (docs/theory/goe.md, section 4), so this is ½tr(J⁻¹E), that is
    Σ_n [T_nn + ½φ_n(x)(c_n − τ_n)], and ½erfc(x/2) more for odd d. It is at least P(N ≥ 1) =
    1 − F(x), and larger only by P(λ₃ > x) + P(λ₅ > x) + …. From the largest zero of φ_d upwards
    every term is positive.
    """
    wave, whole, beyond = _functions(x, d + 1)
    odd = d % 2
    terms = 0.5 * wave * (whole - beyond) + _squares_beyond(x, wave)
    return float(terms[odd : d - odd : 2].sum()) + odd * 0.5 * float(erfc(0.5 * x))


def _functions(x: float, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return φ_n(x), c_n and τ_n(x) for n < ``count``.

    c_n = √((n−1)/n) c_n−2 and τ_n = √((n−1)/n) τ_n−2 + (2/√n) φ_n−1(x), so that τ_n/c_n is a
    running sum; c₁ = 4/c₀, τ₀ = ½ c₀ erfc(x/2), τ₁ = 2φ₀(x).
    """
    wave = _waves(x, count)
    degree = np.arange(2, count)
    whole, step = np.empty(count), np.empty(count)
    for parity, first in enumerate((_C0, 4 / _C0)):
        ratio = np.sqrt((degree[parity::2] - 1) / degree[parity::2])
        whole[parity::2] = first * np.concatenate(([1.0], np.cumprod(ratio)))
    step[0] = 0.5 * float(erfc(0.5 * x))
    step[1:] = 2 * wave[:-1] / (np.sqrt(np.arange(1, count)) * whole[1:])
    beyond = np.empty(count)
    for parity in (0, 1):
        beyond[parity::2] = whole[parity::2] * np.cumsum(step[parity::2])
    return wave, whole, beyond


def _waves(x: float, count: int) -> FloatArray:
    """Return φ_n(x) by √(n+1) φ_n+1 = x φ_n − √n φ_n−1, with a power of two apart.

    φ₀ = (2π)^(−1/4) e^(−x²/4) may underflow where φ_n does not.
    """
    log2_first = (-0.25 * x * x - 0.25 * math.log(2 * math.pi)) / math.log(2)
    power = math.floor(log2_first)
    before, now = 0.0, 2.0 ** (log2_first - power)
    digits, powers = [], []
    for n in range(count):
        digits.append(now)
        powers.append(power)
        before, now = now, (x * now - math.sqrt(n) * before) / math.sqrt(n + 1)
        if abs(now) + abs(before) > 2.0**300:
            before, now, power = before * 2.0**-300, now * 2.0**-300, power + 300
    return np.ldexp(digits, powers)


def _squares_beyond(x: float, wave: FloatArray) -> FloatArray:
    """Return T_nn = T_n−1,n−1 + φ_n(x)φ_n−1(x)/√n, from T₀₀ = ½erfc(x/√2)."""
    steps = wave[1:] * wave[:-1] / np.sqrt(np.arange(1, len(wave)))
    return np.cumsum(np.concatenate(([0.5 * float(erfc(x / math.sqrt(2)))], steps)))


def _overlap(x: float, wave: FloatArray) -> FloatArray:
    """Return T_mn; for m ≠ n it is (φ_m'φ_n − φ_mφ_n')(x)/(m − n), as φ_n'' = (x²/4 − n − ½)φ_n."""
    degree = np.arange(len(wave) - 1)
    wave, after = wave[:-1], wave[1:]
    lower = np.concatenate(([0.0], wave[:-1]))
    slope = 0.5 * (np.sqrt(degree) * lower - np.sqrt(degree + 1) * after)
    product = np.outer(slope, wave)
    apart = np.subtract.outer(degree, degree)
    np.fill_diagonal(apart, 1)
    overlap: FloatArray = (product - product.T) / apart
    np.fill_diagonal(overlap, _squares_beyond(x, wave))
    return overlap


def _double_tail(
    degrees: IntArray,
    wave: FloatArray,
    whole: FloatArray,
    beyond: FloatArray,
    overlap: FloatArray,
) -> FloatArray:
    """Return Q_mn = ∫_x^∞ (τ_m φ_n − τ_n φ_m) dt between the ``degrees``.

    Q_mn = √((n−1)/n) Q_m,n−2 + (2/√n)(τ_m φ_n−1(x) − 2T_m,n−1), so that Q_mn/c_n is a running
    sum from n = m on (for φ₀ among odd degrees from n = 1, with Q_0,−1 = 0).
    """
    before = degrees - 1
    step = np.outer(beyond[degrees], wave[before]) - 2 * overlap[np.ix_(degrees, before)]
    scale = np.zeros(len(degrees))
    scale[1:] = 2 / (np.sqrt(degrees[1:]) * whole[degrees[1:]])
    half: FloatArray = np.cumsum(np.triu(step * scale, 1), axis=1) * whole[degrees]
    return half - half.T
