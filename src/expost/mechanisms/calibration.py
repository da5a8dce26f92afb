"""The tight calibrations of objective perturbation: persons, and coupled slope and curvature.

Persons with up to k rows, Gaussian noise
-----------------------------------------
k, ε, δ     the number of rows of a person, and the guarantee for all of them together.
T₁ … T_k    what each row adds to the gradient in units of σ, whatever θ is: Tᵢ lies in the convex
            hull of 0 and r vectors that are at most A long. r = 1 for two classes, where A = L/σ;
            r = K − 1 and A = √2/σ for K classes.
F(ξ)        max over v ∈ V = T₁ + … + T_k of ∥v∥²/2 + v·ξ, with ξ ~ N(0, I).
δ_Gauss(ε, μ)  Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

The privacy loss of a person whose rows leave is at most Σ (the determinants' parts) + F(b/σ), and
that of a person whose rows enter at most F(−b/σ): G = Σ∇ℓᵢ, so that G/σ ∈ V, whatever G depends on,
and log det(I + H₋⁻¹W) ≤ Σ log det(I + ∇²ℓᵢ/λ) for W = Σ∇²ℓᵢ and H₋ ≽ λI (Hadamard, Fischer).

sum       E(1 − e^(ε − F))₊ ≤ r·Σⱼ e^(ε₁ + … + εⱼ₋₁)·δ_Gauss(εⱼ, A) for all εⱼ ≥ 0 of sum ε.

          *Proof.* Let Vⱼ = T₁ + … + Tⱼ, φ the density of ξ and mⱼ(ξ) = min over v ∈ Vⱼ of φ(ξ + v).
          Then m₀ = φ, m_k = φe^(−F), and mⱼ₊₁(ξ) is the least mⱼ(ξ + a) over a ∈ Tⱼ₊₁. −log mⱼ is
          convex, a maximum of convex functions, so that a is 0 or one of the r vectors. The value
          is ∫(φ − e^ε m_k)₊, and φ − e^ε m_k = Σⱼ e^(ε₁ + … + εⱼ₋₁)(mⱼ₋₁ − e^(εⱼ)mⱼ), so it is
          enough that ∫(mⱼ(ξ) − e^ε mⱼ(ξ + a))₊dξ ≤ δ_Gauss(ε, ∥a∥) for ε ≥ 0; a = 0 adds nothing.
          With η = ξ + a let v(η) be the vertex of Vⱼ at which mⱼ(η) = φ(η + v). Then
          mⱼ(ξ + a) = φ(ξ + v + a), and mⱼ(ξ) ≤ φ(ξ + v). v(η) is the gradient of the convex
          function max over v of ∥v∥²/2 + v·η, hence η ↦ η + v(η) is one-to-one; off finitely many
          hyperplanes it is a translation. So the integral is at most
          ∫(φ(ζ) − e^ε φ(ζ + a))₊dζ = δ_Gauss(ε, ∥a∥), which grows with ∥a∥. ∎

Gaussian  For ε ≥ k(k − 1)A²/2 that is r·δ_Gauss(ε, kA), with no factor for the number of rows:
          εⱼ = ε/k + (j − (k + 1)/2)A² are at least 0, and N(0, 1) against N(kA, 1) has the same
          half-line as the best test of all k steps from N((j − 1)A, 1) to N(jA, 1). k equal rows of
          slope L reach it.

chain     Let δ₁(ε) bound P(S) − e^ε Q(S) of any two data sets of which one has a row more, in one
          direction. For k rows Σⱼ e^(ε₁ + … + εⱼ₋₁)·δ₁(εⱼ) does, for all εⱼ of sum ε: P₀ − e^ε P_k
          telescopes as above over the data sets between. With εⱼ = ε/k for all j it is the common
          (ε, δ₁·(e^ε − 1)/(e^(ε/k) − 1)); with the εⱼ above a Gaussian mechanism loses nothing.

Logistic loss
-------------
Of a row p = ∣f′∣ ∈ [0, 1] and f″ = p(1 − p): the slope and the curvature cannot both be large. With
∥x∥ = 1 (a shorter row, p′ = p∥x∥, has p′(1 − p′) ≥ p(1 − p)∥x∥²) the loss of a removal is at most

    h(Z) = max over p of [u(p) + p²A²/2 + pAZ],      u(p) = log(1 + p(1 − p)/λ),  A = 1/σ,

Z ~ N(0, 1). h grows with Z, so that δ(ε) = ∫ φ(z)(1 − e^(ε − h(z)))₊ dz is one tail; δ(ε) of an
addition is at most that of a Gaussian mechanism. The loss of an addition is at most the same
maximum with −p²A²/2 (docs/theory/objective.md, 3). Under norm-Laplace noise the determinants of an
exchange differ by (1 + f″m)/(1 + f″′m′), both leverages without either row, so its exposure is at
most

    β + max over p of [βp + u(p)].

For persons with k rows δ(ε) of a removal is chained (see above), and where log(1 + c/λ)
is counted k times the Gaussian bound holds as well. Of k rows

    loss ≤ Σᵢ [u(pᵢ) + k·pᵢ²A²/2 + pᵢAZᵢ],      as (Σpᵢ)² ≤ k·Σpᵢ²,

so that it passes b with probability at most k·P(h_k(Z) > b/k), where h_k is h with k·p²A²/2.

Softmax regression
------------------
Of a row with u = p − e_y and S = diag p − ppᵀ, the noise meets ∥u∥² = 1 − 2p_y + ∥p∥² and the
determinants tr S = 1 − ∥p∥²: not both are large. With s = ∥x∥ ≤ 1 and r = K − 1 the determinants'
part of a removal is at most D = log det(I + s²S/λ), which is at most s²·tr S/λ, and at most
c₁ = r·log(1 + 1/(Kλ)) (:mod:`expost.losses`). A share w of it is bounded by the first, the rest by
the second.

gaussian  D + s²∥u∥²/(2σ²) + (s/σ)u·Z ≤ (1 − w)c₁ + [w·s²(1 − ∥p∥²)/λ + s²∥u∥²/(2σ²) + (s/σ)u·Z].
          The bracket is convex in p as long as w/λ ≤ 1/(2σ²), so it is largest at a vertex of the
          simplex, where S = 0: 0 at e_y, and s²/σ² + (s/σ)(Zₖ − Z_y), convex in s, at eₖ. So with
          w = min(1, λ/(2σ²)) and μ = √2/σ

              loss ≤ (1 − w)c₁ + max(0, maxₖ [1/σ² + (Zₖ − Z_y)/σ]),
              δ(ε) ≤ r·δ_Gauss(ε − (1 − w)c₁, μ).

laplace   With m = ∥u∥, tr S = 2(1 − p_y) − m² ≤ 2 − m² ≤ 2√2(√2 − m), so that βm + w·tr S/λ ≤ √2·β
          as long as w ≤ βλ/(2√2): a removal loses at most √2·β + (1 − w)c₁. An exchange adds the
          other row's √2·β; its determinants only help.

So determinants cost nothing once λ ≥ 2σ², or λ ≥ 8/ε.

persons   Of k rows the sum of the brackets, with ∥Σ(s/σ)u ⊗ x∥²/2 for their squares, is convex in
          the p of each row alone as long as w/λ ≤ 1/(2σ²), so it is largest where every p is a
          vertex: loss ≤ k(1 − w)c₁ + F, with F as above, and
          δ(ε) ≤ r·δ_Gauss(ε − k(1 − w)c₁, kμ) where ε − k(1 − w)c₁ ≥ k(k − 1)μ²/2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from scipy.special import ndtr, ndtri

from expost._numerics import ROUNDOFF, bracket_root, cached_rows, gauss_legendre
from expost.accounting import gaussian_delta, gaussian_scale
from expost.errors import ConvergenceError
from expost.types import FloatArray

__all__ = [
    "chained",
    "logistic_delta",
    "logistic_passed",
    "logistic_quantile",
    "logistic_rate",
    "logistic_scale",
    "person_delta",
    "person_scale",
    "softmax_rate",
    "softmax_scale",
    "softmax_spent",
]

# -- persons with several rows ---------------------------------------------------------------------

# The few operations behind each figure round up.
_UP = 1 + 16 * ROUNDOFF
# Values of δ₁ that a chain is made of; with n of them its δ is too large by about ε²/8n² of itself.
_POINTS = 17
# Relative error of δ_Gauss, with room.
_DELTA_ERROR = 1e-11
# Past this e^ε is beyond float64.
_LARGEST = 700.0


def person_scale(epsilon: float, delta: float, sensitivity: float, rows: int) -> float:
    """Return the least σ with δ_Gauss(ε, kA) ≤ δ and ε ≥ k(k − 1)A²/2, A = sensitivity/σ."""
    least = gaussian_scale(epsilon, delta, rows * sensitivity)
    return max(least, sensitivity * math.sqrt(rows * (rows - 1) / (2 * epsilon)) * _UP)


def person_delta(epsilon: float, reach: float, rows: int) -> float:
    """Bound E(1 − e^(ε − F))₊ for r = 1 and A = ``reach``, rounded up; at most 1."""
    if not epsilon >= 0:
        return 1.0
    if _least_share(epsilon, reach=reach, rows=rows) >= 0:
        return min(_gaussian(epsilon, rows * reach), 1.0)
    return chained(lambda share: _gaussian(share, reach), epsilon, reach=reach, rows=rows)


def _gaussian(epsilon: float, mu: float) -> float:
    """Return δ_Gauss, rounded up."""
    return gaussian_delta(max(epsilon, 0.0), mu * _UP) * (1 + _DELTA_ERROR)


def chained(curve: Callable[[float], float], epsilon: float, *, reach: float, rows: int) -> float:
    """Bound δ(ε) of k rows by δ₁, the ``curve`` of one row; at most 1.

    εⱼ = ε/k + (j − (k + 1)/2)A² with A = ``reach``, or with a smaller step where ε₁ would be below
    0; one row is the curve itself. δ₁ is convex in e^ε, so that chords between a few values lie
    above it.
    """
    if rows == 1:
        return curve(epsilon)
    least = max(_least_share(epsilon, reach=reach, rows=rows), 0.0)
    shares = least + np.arange(rows) * ((epsilon / rows - least) * 2 / (rows - 1))
    at = np.linspace(least, shares[-1], min(rows, _POINTS))
    if not epsilon < _LARGEST:
        return 1.0
    values = np.array([curve(float(share)) for share in at])
    deltas = np.interp(np.expm1(shares - least), np.expm1(at - least), values)
    before = np.cumsum(shares) - shares
    # The shares add up to ε but for rounding.
    return min(float(np.sum(np.exp(before) * deltas)) * (1 + 1e-9), 1.0)


def _least_share(epsilon: float, *, reach: float, rows: int) -> float:
    """Return ε₁ = ε/k − (k − 1)A²/2."""
    return epsilon / rows - (rows - 1) / 2 * reach * reach


# -- the logistic loss -----------------------------------------------------------------------------

# Slopes p at which a maximum is taken; between them it is larger by at most Δp²/8·sup∣g″∣.
_SLOPES = np.linspace(0.0, 1.0, 1025)
# So many values of z at a time, whose table stays in the cache of one core.
_CACHED_ROWS = cached_rows(len(_SLOPES))
_NODES = 8
_PANELS = 100
# Past so many standard deviations beyond the start of the tail nothing is left of it.
_TAIL = 14.0
# Relative error of the quadrature, with room: h has a kink where the best slope jumps to 1, and the
# panel that holds it errs by some 1e-7.
_ERROR = 1e-5
# The scale is computed to 1e-6 of itself, and rounded up.
_ROOM = 1e-6
_HALVINGS = 22
# A penalty that no model has; the rule for Λ uses the noise there.
_VAST = 1e9
# Of persons to 1e-4 of what the determinants cost.
_PERSON_HALVINGS = 13


def _volume(penalty: float) -> tuple[FloatArray, float]:
    """Return u at every slope, and a bound on what a maximum may miss between two of them."""
    values = np.log1p(_SLOPES * (1 - _SLOPES) / penalty)
    curved = (2 * (penalty + 0.25) + 1) / penalty**2
    return values, curved


def _slack(curved: float) -> float:
    step = float(_SLOPES[1] - _SLOPES[0])
    return step * step / 8 * curved


@lru_cache(maxsize=256)
def logistic_rate(epsilon: float, penalty: float) -> float:
    """Return the largest β at which an exchange of one row has exposure ≤ ε, rounded down.

    βp + u(p) is concave. Its maximum is at p = 1 if β ≥ 1/λ, and the exposure then 2β: the
    determinants cost nothing. Else it is where u′(p) = −β, a root of
    βp² + (2 − β)p − (1 + βλ) = 0.
    """
    if penalty * epsilon >= 2:
        return epsilon / 2

    def passed(rate: FloatArray) -> FloatArray:
        lean = 2 - rate
        p = 2 * (1 + rate * penalty) / (lean + np.sqrt(lean**2 + 4 * rate * (1 + rate * penalty)))
        p = np.minimum(p, 1.0)
        return (rate * (1 + p) + np.log1p(p * (1 - p) / penalty)) * (1 + 1e-12) - epsilon

    below, _ = bracket_root(passed, np.array([0.0]), np.array([epsilon / 2]))
    rate = float(below[0])
    if not (rate > 0 and passed(below)[0] <= 0):
        raise ConvergenceError("the penalty is too small for this epsilon: raise it.")
    return rate


@lru_cache(maxsize=256)
def logistic_scale(epsilon: float, delta: float, penalty: float, rows: int = 1) -> float:
    """Return the least σ with which removing and adding ``rows`` rows are (ε, δ), rounded up."""
    least = person_scale(epsilon, delta, 1.0, rows)
    spent = rows * float(np.log1p(0.25 / penalty))
    if not spent < epsilon:
        raise ConvergenceError("the penalty is too small for this epsilon: raise it.")
    most = person_scale(epsilon - spent, delta, 1.0, rows)

    def kept(scale: FloatArray) -> FloatArray:
        reach = 1 / scale
        return np.array([delta - _person_delta(epsilon, float(a), penalty, rows) for a in reach])

    # Mostly the determinant costs nothing: the noise for adding a row is enough, but for rounding.
    enough = least * (1 + _ROOM)
    if _is_free(epsilon, 1 / enough, penalty, rows) or kept(np.array([enough]))[0] >= 0:
        return enough
    # The wider noise is proved without the coupling.
    halvings = _HALVINGS if rows == 1 else _PERSON_HALVINGS
    _, above = bracket_root(kept, np.array([enough]), np.array([most]), halvings=halvings)
    return float(above[0])


@lru_cache(maxsize=256)
def logistic_delta(epsilon: float, reach: float, penalty: float, rows: int) -> float:
    """Bound δ(ε) of ``rows`` rows that are removed or added at A = ``reach``; at most 1."""
    added = person_delta(epsilon, reach, rows)
    if _is_free(epsilon, reach, penalty, rows):
        return added
    spent = rows * float(np.log1p(0.25 / penalty))
    removed = person_delta(epsilon - spent * (1 + 1e-12), reach, rows)
    return max(added, min(removed, _person_delta(epsilon, reach, penalty, rows)))


@lru_cache(maxsize=256)
def logistic_passed(
    epsilon: float, reach: float, penalty: float, *, rows: int = 1, added: bool = False
) -> float:
    """Return P(h_k(Z) > ε): k times it bounds P(loss of a removal of k rows > kε).

    A = ``reach``, k = ``rows``. ``added``: the same for the loss of an addition of one row, whose
    h has −p²A²/2.
    """
    highest = _Highest.of(reach, penalty, times=-1 if added else rows)
    return float(ndtr(-highest.start(epsilon)))


def logistic_quantile(quantile: float, reach: float, penalty: float) -> float:
    """Return h(z_q), rounded up: h grows, so it bounds the q-quantile of the loss of a removal."""
    return float(_Highest.of(reach, penalty)(ndtri(np.array([quantile])))[0])


def _is_free(epsilon: float, reach: float, penalty: float, rows: int) -> bool:
    """Return whether the determinants of several rows provably cost nothing: λε₁ ≥ 1.

    h(z) ≥ ε then is A²/2 + Az for every share ε of the chain (docs/theory/objective.md, 3). A
    single row is integrated, unless the penalty is out of all proportion.
    """
    applies = rows > 1 or penalty >= _VAST
    return applies and penalty * _least_share(epsilon, reach=reach, rows=rows) >= 1 + 1e-9


def _person_delta(epsilon: float, reach: float, penalty: float, rows: int) -> float:
    """Return δ(ε) of a removal of ``rows`` rows, rounded up."""
    return chained(lambda share: _delta(share, reach, penalty), epsilon, reach=reach, rows=rows)


@dataclass(frozen=True, kw_only=True)
class _Highest:
    """h with ``times``·p²A²/2, as a function of z, rounded up.

    ``fixed`` is what does not depend on z, at every slope; ``slack`` what the maximum may miss
    between two slopes.
    """

    reach: float
    fixed: FloatArray
    slack: float

    @classmethod
    def of(cls, reach: float, penalty: float, times: int = 1) -> Self:
        """Return h at A = ``reach``."""
        values, curved = _volume(penalty)
        fixed = values + times * 0.5 * (reach * _SLOPES) ** 2
        slack = _slack(curved + abs(times) * reach * reach)
        return cls(reach=reach, fixed=fixed, slack=slack)

    def __call__(self, z: FloatArray) -> FloatArray:
        """Return h at every z; they grow.

        h is convex. Where one slope is best at both ends of a run of z, it is best in between.
        """
        highest = np.empty(z.shape)
        for start in range(0, len(z), _CACHED_ROWS):
            part = z[start : start + _CACHED_ROWS] * self.reach
            first, last = np.argmax(np.multiply.outer(part[[0, -1]], _SLOPES) + self.fixed, axis=-1)
            slopes = slice(first, first + 1) if first == last else slice(None)
            table = np.multiply.outer(part, _SLOPES[slopes])
            table += self.fixed[slopes]
            np.max(table, axis=-1, out=highest[start : start + _CACHED_ROWS])
        return highest + self.slack

    def start(self, epsilon: float) -> float:
        """Return the z from which on h passes ε, rounded down."""
        if not self.slack <= epsilon:
            return -math.inf
        # Each slope but 0 passes ε from a z of its own.
        room = epsilon - self.slack - self.fixed[1:]
        room -= 4 * ROUNDOFF * (epsilon + self.slack + np.abs(self.fixed[1:]))
        return float(np.min(room / (self.reach * _SLOPES[1:])))


def _delta(epsilon: float, reach: float, penalty: float) -> float:
    """Return ∫ φ(z)(1 − e^(ε − h(z)))₊ dz, rounded up."""
    highest = _Highest.of(reach, penalty)
    start = highest.start(epsilon)
    begin = max(start, -_TAIL)
    end = max(begin, 0.0) + _TAIL
    points, weights = gauss_legendre(_NODES)
    edges = np.linspace(begin, end, _PANELS + 1)
    half = 0.5 * (edges[1:] - edges[:-1])
    z = (0.5 * (edges[1:] + edges[:-1])[:, None] + half[:, None] * points).ravel()
    weight = (half[:, None] * weights).ravel()
    lost = -np.expm1(np.minimum(epsilon - highest(z), 0.0))
    total = float(np.sum(weight * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * lost))
    # What lies left of the range counts whole if the tail begins there; right of it always.
    outside = float(ndtr(-end)) + (float(ndtr(-_TAIL)) if start < -_TAIL else 0.0)
    return total * (1 + _ERROR) + outside


# -- softmax regression ----------------------------------------------------------------------------

_SOFTMAX_HALVINGS = 60


def _most_spent(epsilon: float, penalty: float, classes: int, rows: int = 1) -> float:
    """Return c₁ of every row, together."""
    spent = rows * ((classes - 1) * math.log1p(1 / (classes * penalty)))
    if not spent < epsilon:
        raise ConvergenceError("the penalty is too small for this epsilon: raise it.")
    return spent


def softmax_spent(scale: float, penalty: float, classes: int) -> float:
    """Return (1 − w)c₁: what of ε the determinants may cost under Gaussian noise."""
    left = max(0.0, 1 - penalty / (2 * scale * scale))
    return left * _most_spent(math.inf, penalty, classes)


def softmax_rate(epsilon: float, penalty: float, classes: int) -> float:
    """Return the largest β with 2√2·β + (1 − w)c₁ ≤ ε, w = min(1, βλ/(2√2)), rounded down."""
    longest = 2 * math.sqrt(2)
    rate = epsilon / longest
    if penalty * epsilon < 8:
        spent = _most_spent(epsilon, penalty, classes)
        # λc₁ ≤ 1 − 1/K.
        rate = (epsilon - spent) / (longest * (1 - penalty * spent / 8))
    return rate * (1 - 1e-14)


@lru_cache(maxsize=256)
def softmax_scale(
    epsilon: float, delta: float, penalty: float, classes: int, rows: int = 1
) -> float:
    """Return the least σ with which removing and adding ``rows`` rows are (ε, δ), rounded up."""
    share, sensitivity = delta / (classes - 1), math.sqrt(2)
    least = person_scale(epsilon, share, sensitivity, rows)
    if penalty >= 2 * least**2 * (1 + 1e-14):
        return least
    spent = _most_spent(epsilon, penalty, classes, rows)
    # Proved without the coupling.
    most = person_scale(epsilon - spent, share, sensitivity, rows)

    def kept(scale: FloatArray) -> FloatArray:
        sigma = float(scale)
        left = epsilon - rows * softmax_spent(sigma, penalty, classes)
        if left < rows * (rows - 1) / sigma**2 * (1 + 1e-14):
            return np.asarray(-1.0)
        mu = math.nextafter(rows * sensitivity / sigma, math.inf)
        return np.asarray(share - gaussian_delta(left, mu) * (1 + _DELTA_ERROR))

    _, above = bracket_root(kept, least, most, halvings=_SOFTMAX_HALVINGS)
    return float(above) if kept(above) >= 0 else most
