"""Output perturbation with independent Laplace noise on every coefficient, as a plug-in.

One file of another package: installed with an entry point of the group ``expost.mechanisms``, all
of expost knows it as ``mechanism="coordinate"``.

Formal guarantees
-----------------
k rows move A(D) by at most kΔ in the Euclidean norm, so by at most √d·kΔ in the ℓ₁ norm. With
b of density ∝ exp(−∥b∥₁/s) and s = √d·kΔ/ε, the loss (∥b − v∥₁ − ∥b∥₁)/s of a shift v is at most
∥v∥₁/s ≤ ε: pure ε, whether rows are removed, added or replaced.

The law of a loss depends on the whole shift and not on its length alone: there is no closed form in
the distance, so that expected exposures and the sweep over ε are sampled.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv

from expost import _checks
from expost._numerics import ROUNDOFF
from expost.errors import InvalidInput, WrongRows
from expost.mechanisms import MinimiserPerturbation, RowLosses
from expost.mechanisms.base import IMPLAUSIBLE
from expost.mechanisms.output_bound import OutputBound
from expost.mechanisms.perturbation import share_of
from expost.noise import NormLaplace
from expost.risk import EpsilonDelta
from expost.types import Neighbouring

__all__ = ["CoordinatePerturbation"]


@dataclass(frozen=True, kw_only=True)
class CoordinateLaplace:
    """b ∈ R^d with density (2s)^(−d) exp(−∥b∥₁/s); ``scale`` is s."""

    scale: float
    dimension: int

    @property
    def resolution(self):
        return self.scale

    @property
    def mean_square(self):
        return 2 * self.dimension * self.scale**2

    @property
    def _line(self):
        """In one dimension norm-Laplace noise is Laplace noise."""
        return NormLaplace(rate=1 / self.scale, dimension=1)

    def sample(self, size, rng):
        return self._line.sample(size * self.dimension, rng).reshape(size, self.dimension)

    def sample_secure(self, size=None):
        count = 1 if size is None else size
        draws = self._line.sample_secure(count * self.dimension).reshape(count, self.dimension)
        return draws[0] if size is None else draws

    def log_density(self, noise):
        return -np.abs(noise).sum(axis=-1) / self.scale - self.dimension * math.log(2 * self.scale)

    def norm_exceeded_with(self, probability):
        """∥b∥ ≤ ∥b∥₁, and ∥b∥₁/s ~ Gamma(d, 1)."""
        return self.scale * float(gammainccinv(self.dimension, probability))


@dataclass(frozen=True, kw_only=True)
class CoordinatePerturbation(MinimiserPerturbation):
    """The public constants of one release."""

    kind: ClassVar[str] = "coordinate"
    noises: ClassVar[dict[str, bool]] = {"laplace": False}

    @cached_property
    def law(self):
        if not self.is_private:
            raise InvalidInput("epsilon=inf: a release without noise has no noise law.")
        widest = math.sqrt(self.dimension) * self.calibrated_sensitivity * (1 + 8 * ROUNDOFF)
        return CoordinateLaplace(scale=widest / self.epsilon, dimension=self.dimension)

    @property
    def unit_noise(self):
        return CoordinateLaplace(scale=1.0, dimension=self.dimension)

    @property
    def resolution(self):
        return self.law.scale

    def check_rows(self, theta, base, base_error):
        if not self.is_private:
            return super().check_rows(theta, base, base_error)
        length = float(np.abs(theta - base).sum()) / self.resolution
        slack = self.grid.step * self.dimension / 2 + math.sqrt(self.dimension) * base_error
        slack /= self.resolution
        tails = (
            gammainc(self.dimension, length + slack),
            gammaincc(self.dimension, max(length - slack, 0.0)),
        )
        if not min(tails) >= IMPLAUSIBLE / 2:
            raise WrongRows("X, y: these rows cannot have made this model.")
        return None

    def row_losses(self, theta, neighbours):
        relation, distance = neighbours.relation, neighbours.distance
        if not self.is_private:
            return RowLosses.without_noise(distance, neighbours.error_bound, relation)
        shift, noise, scale = neighbours.shifts.all(), theta - neighbours.base, self.resolution
        length = np.abs(shift).sum(axis=1)
        loss = (np.abs(noise - shift) - np.abs(noise)).sum(axis=1) / scale
        # Errors of a shift and of the base in the ℓ₁ norm; the base stands in both terms.
        wrong = math.sqrt(self.dimension) * (neighbours.error_bound + 2 * neighbours.base_error)
        # Over a cell each log density varies by half a step for every coordinate.
        cell = np.full(len(loss), self.dimension * self.grid.step)
        if self.grid.is_clamped(theta):
            cell = np.full(len(loss), np.inf)
        rounding = 8 * (self.dimension + 4) * ROUNDOFF * (np.abs(noise).sum() + length)
        error = (wrong + np.minimum(cell, 2 * (length + wrong)) + rounding) / scale
        error = np.where(np.isnan(error), np.inf, error)
        if relation is Neighbouring.ADD:
            loss = -loss
        return RowLosses(
            loss=loss,
            low=np.maximum(loss - error, -self.worst_case),
            high=np.minimum(loss + error, self.worst_case),
            distance=distance,
            distance_error=neighbours.error_bound,
            relation=relation,
            law=None,
            worst_case=self.worst_case,
            guarantee=self.guarantee(),
        )

    def guarantee(self, rows=1):
        rows = _checks.integer("rows", rows, least=1)
        return EpsilonDelta(epsilon=share_of(self.epsilon, rows, self.rows_per_person))

    def worst_case_of(self, rows):
        return share_of(self.epsilon, rows, self.rows_per_person), 0.0

    def bound(self, theta, failure, tangent=None, released=None, labels=1):
        return CoordinateBound(mechanism=self, theta=theta, failure=failure)


@dataclass(frozen=True, kw_only=True, eq=False)
class CoordinateBound:
    """∥v∥₁ ≤ √d∥v∥, and ∥v∥ as under output perturbation."""

    mechanism: CoordinatePerturbation
    theta: np.ndarray
    failure: float

    is_uniform = True

    @property
    def failure_probability(self):
        return self.failure

    def exposure(self, X, y):
        mechanism = self.mechanism
        distance = OutputBound(mechanism=mechanism, theta=self.theta, failure=self.failure)
        most = math.sqrt(mechanism.dimension) * distance.distance_bound(X, y) / mechanism.resolution
        return np.minimum(
            np.where(np.isnan(most), np.inf, most * (1 + 1e-12)), mechanism.worst_case
        )

    def formula(self):
        """A page has no script for it: people use ``expost lookup``."""
