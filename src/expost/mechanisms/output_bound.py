"""The bound of the exposure of a row under output perturbation, which needs no other row.

Conventions are those of :mod:`expost.mechanisms.bounds`.

∇J(A; D₋) = −v/(n−1) with v = ΛA + ∇ℓ_z(A), and J is Λ-strongly convex: the neighbour lies within
∥v∥/(Λ(n−1)) of A (with one row more: /(n+1)), and ∥θ − A∥ ≤ r but with probability ρ. With
A = a·u + A⊥,

    ∥v∥² = Λ²∥A⊥∥² + (Λa + f′(a∥x∥)∥x∥)²,   ∥A⊥∥ ≤ ∥θ⊥∥ + √(r² − (a − θ·u)²),

and the second bracket grows with a: on each of many pieces of a's range it is largest at an end, so
that the supremum over the whole ball is bounded piece by piece.

laplace   ∣loss∣ ≤ β·distance: it holds for every z at once, also one picked after seeing θ.
gaussian  ∣loss∣ ≤ μ²/2 + μΦ⁻¹(1−ρ/4), μ = distance/σ: b is independent of the shift. ρ/2 for each.

Several labels of one row, ``labels`` = m: ∥θ − A∥ ≤ r is one event for all of them, but the shift s
depends on y. So ρ/2m for each b·s/∥s∥, and Φ⁻¹(1−ρ/4m).

Pure ε caps what norm-Laplace noise can lose.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from expost._numerics import gamma
from expost.mechanisms.base import TOLERANCE
from expost.mechanisms.bounds import (
    QUANTILE_ERROR,
    UP,
    finite,
    no_nan,
    normal_quantile,
    shared_constants,
    upper_norms,
)
from expost.mechanisms.output import OutputPerturbation
from expost.types import FloatArray

__all__ = ["OutputBound"]

# How many pieces a's range is cut into (even, so that θ·u is an end of one).
_PIECES = 128
# Rows × pieces at a time.
_BLOCK = 2**18
# The ends of the pieces, as angles.
_TURN = np.linspace(-np.pi / 2, np.pi / 2, _PIECES + 1)
_WIDEST = np.maximum(np.cos(_TURN[:-1]), np.cos(_TURN[1:]))


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputBound:
    """The bound under output perturbation: data-independent."""

    mechanism: OutputPerturbation
    theta: FloatArray
    failure: float
    labels: int = 1

    @property
    def failure_probability(self) -> float:
        """ρ."""
        return self.failure

    @property
    def is_uniform(self) -> bool:
        """Norm-Laplace noise: ∥b∥ ≤ r is all that it needs."""
        return self.mechanism.noise == "laplace"

    def exposure(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return (m,) β·distance, or μ²/2 + μΦ⁻¹(1−ρ/4m) for m labels."""
        mechanism = self.mechanism
        separation = self.distance_bound(X, y) / mechanism.resolution * UP
        if self.is_uniform:
            return no_nan(np.minimum(separation, mechanism.worst_case))
        return no_nan(separation * (separation / 2 + self._quantile) * UP)

    @property
    def _quantile(self) -> float:
        """Φ⁻¹(1−ρ/4m); within the cell b moves by its diagonal at most."""
        mechanism = self.mechanism
        room = mechanism.grid.diagonal(mechanism.dimension) / mechanism.resolution
        return normal_quantile(self.failure / (4 * self.labels)) + room

    @cached_property
    def radius(self) -> float:
        """r: how far A may be from θ; ρ, or half of it under Gaussian noise."""
        mechanism = self.mechanism
        share = self.failure if self.is_uniform else self.failure / 2
        noise = mechanism.law.norm_exceeded_with(share) * (1 + QUANTILE_ERROR)
        return (
            noise
            + mechanism.grid.diagonal(mechanism.dimension) / 2
            + TOLERANCE / mechanism.regularization
        )

    def distance_bound(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Bound the distance (m,) of the neighbour of any A within r, at most the sensitivity."""
        mechanism = self.mechanism
        pull = np.empty(len(X))
        step = max(1, _BLOCK // _PIECES)
        for start in range(0, len(X), step):
            some = slice(start, start + step)
            pull[some] = self.largest_pull(X[some], y[some])
        # Each end is known to η/Λ.
        distance = (pull / (mechanism.rows - 1) + 2 * TOLERANCE) / mechanism.regularization
        return np.minimum(distance, mechanism.sensitivity)

    def largest_pull(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return an upper bound of sup ∥ΛA + ∇ℓ(A)∥ over the ball of radius r around θ.

        Parameters
        ----------
        X : FloatArray
            (m, d) rows of the unit ball.
        y : FloatArray
            (m,) their labels.

        Returns
        -------
        FloatArray
            (m,) the bound of each row.
        """
        mechanism, theta, d = self.mechanism, self.theta, X.shape[1]
        norms, length = upper_norms(X), float(np.linalg.norm(theta))
        along = X @ theta / np.where(norms > 0, norms, 1.0)
        # What rounding can hide of the part of θ across x.
        across = np.sqrt(
            np.maximum((length - np.abs(along)) * (length + np.abs(along)), 0.0)
            + 8 * gamma(d + 8) * length**2
        )
        radius = self.radius + gamma(d + 8) * length
        at = along[:, None] + radius * np.sin(_TURN)
        slope = mechanism.loss.slope(at * norms[:, None], y[:, None])
        size = np.abs(mechanism.regularization * at + slope * norms[:, None])
        inner = np.maximum(size[:, :-1], size[:, 1:])
        outer = mechanism.regularization * (across[:, None] + radius * _WIDEST)
        pull: FloatArray = np.max(np.hypot(inner, outer), axis=1)
        return pull * (1 + 1e-9)

    def formula(self) -> dict[str, Any]:
        """Return the constants."""
        mechanism, d = self.mechanism, len(self.theta)
        length = float(np.linalg.norm(self.theta))
        uniform = self.is_uniform
        return {
            "kind": "output",
            **shared_constants(mechanism.loss, self.theta, d),
            "length": length,
            "hidden": 8 * gamma(d + 8) * length**2,
            "radius": self.radius + gamma(d + 8) * length,
            "regularization": mechanism.regularization,
            "sines": np.sin(_TURN),
            "widest": _WIDEST,
            "others": mechanism.rows - 1,
            "tolerance": 2 * TOLERANCE,
            "sensitivity": mechanism.sensitivity,
            "scale": mechanism.resolution,
            "quantile": None if uniform else self._quantile,
            "cap": finite(mechanism.worst_case) if uniform else None,
        }
