"""The data-independent bound of a person's exposure for more than two classes.

Conventions are those of :mod:`expost.mechanisms.bounds` and :mod:`expost.losses`: ∇ℓ = u ⊗ x with
u = p − e_y, ∇²ℓ = S ⊗ x xᵀ, and g = −b as a matrix G (K, d).

volume    removing: −log det(I − H⁻¹∇²ℓ) = log det(I + H₋⁻¹∇²ℓ) with H₋ = H − ∇²ℓ ≽ λI; adding:
          log det(I + H⁻¹∇²ℓ). Both are at most log det(I + aS) with a = ∥x∥²/λ (R&W Thm 8), which
          is Σ log(1 + apₖ) + log Σ pₖ/(1 + apₖ), for S is diag p less a matrix of rank one.
gaussian  u = Σ over k ≠ y of pₖ(eₖ − e_y), so ∣g·∇ℓ∣ ≤ (1 − p_y)·max∣(Gₖ − G_y)·x∣. Each of these
          r = K − 1 is N(0, 2σ²∥x∥²) for a z fixed beforehand: all stay below √2σ∥x∥Φ⁻¹(1 − ρ/2r)
          but with probability ρ (erratum 5: ρ/r for ρ), however p depends on b.
laplace   at most β∥∇ℓ∥, with certainty.
cell      where Θ moves by no more than m/∥x∥, log pₖ moves by at most √2·m: every pₖ, 1 − p_y and S
          keep within a factor of e^(√2·m).
"""

import math
from dataclasses import dataclass

import numpy as np

from expost._numerics import ROUNDOFF, gamma, row_blocks
from expost.losses import Softmax, SoftmaxDerivatives
from expost.mechanisms.bounds import normal_quantile, upper_norms
from expost.mechanisms.objective import ObjectivePerturbation
from expost.types import FloatArray, IntArray

__all__ = ["SoftmaxBound"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxBound:
    """The bound under objective perturbation, K classes."""

    how: ObjectivePerturbation
    theta: FloatArray
    failure: float

    is_uniform = False

    @property
    def failure_probability(self) -> float:
        """ρ."""
        return self.failure

    @property
    def _classes(self) -> int:
        assert isinstance(self.how.loss, Softmax)
        return self.how.loss.classes

    def exposure(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """(m,) volume + noise; ``y`` holds classes from 0 up."""
        bound = np.empty(len(X))
        for block in row_blocks(len(X), X.shape[1] * self._classes):
            bound[block] = self._block(X[block], y[block].astype(np.int64))
        bound *= 1 + 1e-12
        if self.how.noise == "laplace":
            bound = np.minimum(bound, self.how.worst_case)
        return np.where(np.isnan(bound), np.inf, bound)

    def _block(self, X: FloatArray, codes: IntArray) -> FloatArray:
        norms = upper_norms(X)
        found = SoftmaxDerivatives.of(X @ self.theta.reshape(self._classes, -1).T, codes)
        room = gamma(X.shape[1] + 2) * float(np.linalg.norm(self.theta))
        room += self.how.reach_of_cell
        # A relative error of p acts like as large a change of its logarithm.
        growth = np.exp(math.sqrt(2) * norms * room + 4096 * ROUNDOFF)
        missed = found.rest[np.arange(len(X)), codes] * growth
        length = found.length * growth * norms
        return self._noise(length, missed * norms) + volume_bound(
            found, growth * norms**2 / self.how.penalty_sum
        )

    def _noise(self, length: FloatArray, missed: FloatArray) -> FloatArray:
        """From ∥∇ℓ∥ and (1 − p_y)∥x∥ at their largest."""
        how = self.how
        if how.noise == "laplace":
            return length / how.resolution
        tail = self.failure / (2 * (self._classes - 1))
        moved = 2 * how.steepest * how.reach_of_cell
        across = math.sqrt(2) * (how.resolution * normal_quantile(tail) + moved)
        return (length**2 / 2 + missed * across) / how.resolution**2


def volume_bound(found: SoftmaxDerivatives, share: FloatArray) -> FloatArray:
    """log det(I + aS) for a = ``share``, and what rounding can hide of it."""
    scaled = found.p * share[:, None]
    grown = np.log1p(scaled).sum(axis=1)
    fallen = np.log1p(-np.einsum("ij,ij->i", found.p, scaled / (1 + scaled)))
    # The two parts cancel where p_y is near 1; by its trace S is never larger than this either.
    volume = grown + fallen + 64 * ROUNDOFF * (grown - fallen)
    bound: FloatArray = np.minimum(volume, found.trace * share * (1 + 1e-12))
    return bound
