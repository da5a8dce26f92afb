"""Calibrate Gaussian noise in an objective for persons with up to k rows.

Conventions
-----------
k, ε, δ     the number of rows of a person, and what all of them together are guaranteed.
T₁ … T_k    what each row adds to the gradient in units of σ, whatever θ is: Tᵢ lies in the convex
            hull of 0 and r vectors that are at most A long. r = 1 for two classes, where A = L/σ;
            r = K − 1 and A = √2/σ for K classes.
F(ξ)        max over v ∈ V = T₁ + … + T_k of ∥v∥²/2 + v·ξ, with ξ ~ N(0, I).
δ_Gauss(ε, μ)  Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

The privacy loss of a person whose rows leave is at most Σ (the determinants' parts) + F(b/σ), and
that of a person whose rows enter at most F(−b/σ): G = Σ∇ℓᵢ, so that G/σ ∈ V, whatever G depends on,
and log det(I + H₋⁻¹W) ≤ Σ log det(I + ∇²ℓᵢ/λ) for W = Σ∇²ℓᵢ and H₋ ≽ λI (Hadamard, Fischer).

Formal guarantees
-----------------
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
"""

import math
from collections.abc import Callable

import numpy as np

from expost._numerics import ROUNDOFF
from expost.accounting import gaussian_delta, gaussian_scale

__all__ = ["chained", "least_share", "person_delta", "person_scale"]

# The few operations behind each figure round up.
_UP = 1 + 16 * ROUNDOFF
# Values of δ₁ that a chain is made of; with n of them its δ is too large by about ε²/8n² of itself.
_POINTS = 17
# Relative error of δ_Gauss, with room.
_ERROR = 1e-11
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
    if least_share(epsilon, reach=reach, rows=rows) >= 0:
        return min(_gaussian(epsilon, rows * reach), 1.0)
    return chained(lambda share: _gaussian(share, reach), epsilon, reach=reach, rows=rows)


def _gaussian(epsilon: float, mu: float) -> float:
    """δ_Gauss, rounded up."""
    return gaussian_delta(max(epsilon, 0.0), mu * _UP) * (1 + _ERROR)


def chained(curve: Callable[[float], float], epsilon: float, *, reach: float, rows: int) -> float:
    """Bound δ(ε) of k rows by δ₁, the ``curve`` of one row; at most 1.

    εⱼ = ε/k + (j − (k + 1)/2)A² with A = ``reach``, or with a smaller step where ε₁ would be below
    0; one row is the curve itself. δ₁ is convex in e^ε, so that chords between a few values lie
    above it.
    """
    if rows == 1:
        return curve(epsilon)
    least = max(least_share(epsilon, reach=reach, rows=rows), 0.0)
    shares = least + np.arange(rows) * ((epsilon / rows - least) * 2 / (rows - 1))
    at = np.linspace(least, shares[-1], min(rows, _POINTS))
    if not epsilon < _LARGEST:
        return 1.0
    values = np.array([curve(float(share)) for share in at])
    deltas = np.interp(np.expm1(shares - least), np.expm1(at - least), values)
    before = np.cumsum(shares) - shares
    # The shares add up to ε but for rounding.
    return min(float(np.sum(np.exp(before) * deltas)) * (1 + 1e-9), 1.0)


def least_share(epsilon: float, *, reach: float, rows: int) -> float:
    """ε₁ = ε/k − (k − 1)A²/2."""
    return epsilon / rows - (rows - 1) / 2 * reach * reach
