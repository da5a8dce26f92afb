"""The exact law of a row's loss: no sampling, for every separation at once.

Conventions
-----------
ℓ           the loss log p(b) − log p(b − s) with b drawn from p: the row was there.
separation  how far apart the two laws of the model are in units of the noise: t = β·distance
            under norm-Laplace noise (the largest loss), μ = distance/σ under Gaussian noise.
a           ∣ℓ∣, the exposure. Both noises are symmetric, so that p(ℓ)/p(−ℓ) = e^ℓ: given a, the
            sign is + with probability sigmoid(a). Therefore E[ℓ] = E[a tanh(a/2)],
            TV = E[tanh(a/2)], E[sigmoid(ℓ)] = ½(1 + E[tanh²(a/2)]): sums of positive terms.

Separation 0 (the model does not depend on the row) is the constant loss 0; separation ∞ (no
noise) is the constant loss ∞.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.special import erf, ndtr, ndtri

from expost import _checks
from expost._checks import levels, nonnegative, numbers
from expost._numerics import row_blocks
from expost.noise._angle import FoldedAngle
from expost.noise._exposure import (
    BLOCK_WIDTH,
    by_blocks,
    expected_posterior,
    gaussian_exposure,
    norm_laplace_exposure,
)
from expost.types import FloatArray

__all__ = ["GaussianLaw", "LossLaw", "NormLaplaceLaw"]


@runtime_checkable
class LossLaw(Protocol):
    """The law of the loss ℓ of rows at the given separations, when the row was in the data.

    Formal guarantees
    -----------------
    E[exp(−ℓ)] = 1 and p(−ℓ) = e^(−ℓ) p(ℓ). Expectations are right to about 1e-12 relative,
    ``cdf`` and ``survival`` to 1e-11 absolute, and ``quantile`` inverts ``cdf`` to 1e-10 in
    probability, taking the more exposed end of its bracket. Everything is an array shaped like
    ``separation``; an argument is broadcast against it.

    ======================  ==================  ===================
    at separation           0                   ∞
    ======================  ==================  ===================
    loss, exposure          0                   ∞
    posterior, advantage    the prior, 0        1, 1
    ======================  ==================  ===================
    """

    @property
    def separation(self) -> FloatArray:
        """t or μ, one entry a row."""

    def density(self, loss: Any) -> FloatArray:
        """Return the density of ℓ at ``loss`` (of its continuous part: atoms are not in it).

        Parameters
        ----------
        loss : Any
            Values of ℓ in nats, broadcast against the rows.

        Returns
        -------
        FloatArray
            The density per nat.
        """

    def cdf(self, loss: Any) -> FloatArray:
        """Return P(ℓ ≤ ``loss``).

        Parameters
        ----------
        loss : Any
            Values of ℓ in nats, broadcast against the rows.

        Returns
        -------
        FloatArray
            The probabilities.
        """

    def survival(self, loss: Any) -> FloatArray:
        """Return P(ℓ > ``loss``), without the cancellation of 1 − cdf.

        Parameters
        ----------
        loss : Any
            Values of ℓ in nats, broadcast against the rows.

        Returns
        -------
        FloatArray
            The probabilities.
        """

    def quantile(self, probability: Any) -> FloatArray:
        """Return the smallest value with cdf ≥ ``probability``.

        Parameters
        ----------
        probability : Any
            Probabilities in [0, 1], broadcast against the rows.

        Returns
        -------
        FloatArray
            The quantiles in nats.
        """

    @property
    def expected_loss(self) -> FloatArray:
        """E[ℓ], the Kullback–Leibler divergence of the two laws of the model."""

    @property
    def expected_exposure(self) -> FloatArray:
        """E∣ℓ∣: a row's entry in the expected profile (LeBlond 4.4)."""

    @property
    def advantage(self) -> FloatArray:
        """P(ℓ > 0) − P(ℓ < 0): total variation, the Bayes adversary's membership advantage."""

    def expected_posterior(self, prior: float = 0.5) -> FloatArray:
        """Return E[sigmoid(logit(prior) + ℓ)]: the expected posterior that the row was there.

        Parameters
        ----------
        prior : float, default=0.5
            The attacker's probability of presence before the release, in (0, 1).

        Returns
        -------
        FloatArray
            (n,) the expected posteriors.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class NormLaplaceLaw:
    """The law of ℓ under noise of density ∝ exp(−β∥b∥) in d dimensions; ∣ℓ∣ ≤ t = β·distance.

    d ≥ 2: density ∝ e^(ℓ/2) (1 − ℓ²/t²)^((d−3)/2) [κ + 1 − ℓ²/t²] (DESIGN.md; see
    :mod:`expost.noise._angle`). d = 1: atoms ½ at t and ½e^(−t) at −t, between them the density
    ¼e^((ℓ−t)/2).

    Parameters
    ----------
    separation : FloatArray
        (n,) t ≥ 0.
    dimension : int
        The number d of coordinates of the noise.
    """

    separation: FloatArray
    dimension: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "separation", nonnegative("separation", self.separation))
        _checks.integer("dimension", self.dimension, least=1)

    def density(self, loss: Any) -> FloatArray:
        """Return the density of ℓ at ``loss``; d = 1: without the atoms at ±t."""
        return self._at(loss, _at_zero_density, 0.0, self._density)

    def cdf(self, loss: Any) -> FloatArray:
        """Return P(ℓ ≤ ``loss``)."""
        return self._at(loss, _at_zero_cdf, 0.0, self._cdf)

    def survival(self, loss: Any) -> FloatArray:
        """Return P(ℓ > ``loss``)."""
        return self._at(loss, _at_zero_survival, 1.0, self._survival)

    def quantile(self, probability: Any) -> FloatArray:
        """Return the smallest ℓ with cdf ≥ ``probability``."""
        return self._at(levels(probability), np.zeros_like, np.inf, self._quantile)

    @property
    def expected_loss(self) -> FloatArray:
        """E[ℓ]; d = 1: t + e^(−t) − 1."""
        return self._moments[0]

    @property
    def expected_exposure(self) -> FloatArray:
        """E∣ℓ∣; E∣ℓ∣/t runs from Γ(d/2)/(√π Γ((d+1)/2)) at t → 0 to 1."""
        return self._moments[1]

    @property
    def advantage(self) -> FloatArray:
        """Total variation; d = 1: 1 − e^(−t/2)."""
        return self._moments[2]

    def expected_posterior(self, prior: float = 0.5) -> FloatArray:
        """Return E[sigmoid(logit(prior) + ℓ)]."""

        def exposure(separation: FloatArray, turn: float) -> tuple[FloatArray, FloatArray]:
            return norm_laplace_exposure(separation, self.dimension, turn)

        return expected_posterior(self.separation, exposure, prior)

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Loss, exposure and advantage in one pass: the rule is what costs."""

        def moments(separation: FloatArray) -> FloatArray:
            exposure, weight = norm_laplace_exposure(separation, self.dimension, 0.0)
            lean = weight * np.tanh(0.5 * exposure)
            return np.stack(
                [(lean * exposure).sum(axis=1), (weight * exposure).sum(axis=1), lean.sum(axis=1)],
                axis=-1,
            )

        limit = np.array([np.inf, np.inf, 1.0])
        flat = by_blocks(self.separation.ravel(), moments, at_zero=0.0, at_infinity=limit, width=3)
        # Rounding of the weights must not lift a figure past its proved bound.
        bound = np.stack([self.separation.ravel()] * 2 + [np.ones(self.separation.size)], axis=-1)
        figures = np.minimum(flat, bound)
        # They are cached and returned again, so that they are read-only.
        figures.setflags(write=False)
        loss, exposure, advantage = figures.T
        shape = self.separation.shape
        return loss.reshape(shape), exposure.reshape(shape), advantage.reshape(shape)

    def _at(
        self,
        argument: Any,
        at_zero: Callable[[FloatArray], FloatArray],
        at_infinity: float,
        compute: Callable[[FloatArray, FloatArray], FloatArray],
    ) -> FloatArray:
        values, separation = np.broadcast_arrays(numbers("loss", argument), self.separation)
        flat, apart = values.ravel(), separation.ravel()
        result = np.where(apart == 0, at_zero(flat), at_infinity)
        ordinary = np.flatnonzero((apart > 0) & (apart < np.inf))
        for block in row_blocks(len(ordinary), BLOCK_WIDTH):
            rows = ordinary[block]
            result[rows] = compute(flat[rows], apart[rows])
        return result.reshape(values.shape)

    def _density(self, loss: FloatArray, separation: FloatArray) -> FloatArray:
        if self.dimension == 1:
            inside = np.abs(loss) < separation
            exponent = np.where(inside, 0.5 * (loss - separation), -np.inf)
            return 0.25 * np.exp(exponent)
        angle = FoldedAngle.of(separation, self.dimension)
        with np.errstate(over="ignore"):
            return np.exp(angle.log_density(loss, angle.total()))

    def _cdf(self, loss: FloatArray, separation: FloatArray) -> FloatArray:
        if self.dimension == 1:
            below = 0.5 * np.exp(0.5 * np.minimum(loss - separation, 0.0))
            return np.where(loss < -separation, 0.0, np.where(loss >= separation, 1.0, below))
        tail = self._tail(loss, separation)
        return np.where(loss < 0, tail, 1 - tail)

    def _survival(self, loss: FloatArray, separation: FloatArray) -> FloatArray:
        if self.dimension == 1:
            return 1 - self._cdf(loss, separation)
        tail = self._tail(loss, separation)
        return np.where(loss < 0, 1 - tail, tail)

    def _tail(self, loss: FloatArray, separation: FloatArray) -> FloatArray:
        """Return P(ℓ < loss) where loss < 0, P(ℓ > loss) where it is not."""
        angle = FoldedAngle.of(separation, self.dimension)
        tail = angle.tail(np.abs(loss), np.where(loss < 0, -1.0, 1.0)) / angle.total()
        return np.where(np.abs(loss) >= separation, 0.0, np.minimum(tail, 1.0))

    def _quantile(self, probability: FloatArray, separation: FloatArray) -> FloatArray:
        if self.dimension == 1:
            return _quantile_one(probability, separation)
        angle = FoldedAngle.of(separation, self.dimension)
        total = angle.total()
        negative = probability * total <= angle.tail(
            np.zeros_like(separation), -np.ones_like(separation)
        )
        share = np.where(negative, probability, 1 - probability)
        below, above = angle.tail_angle(share * total, np.where(negative, -1.0, 1.0))
        # ℓ = ±t cos ψ with the angle taken on the more exposed side.
        size = separation * (1 - 2 * np.sin(0.5 * np.where(negative, above, below)) ** 2)
        loss = np.where(negative, -size, size)
        loss = np.where(probability == 0, -separation, loss)
        return np.clip(np.where(probability == 1, separation, loss), -separation, separation)


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianLaw:
    """The law of ℓ under N(0, σ²I) noise in any dimension: N(μ²/2, μ²), μ = distance/σ.

    Parameters
    ----------
    separation : FloatArray
        (n,) μ ≥ 0.
    """

    separation: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "separation", nonnegative("separation", self.separation))

    def density(self, loss: Any) -> FloatArray:
        """Return the density of N(μ²/2, μ²) at ``loss``; at μ = 0 infinite at 0 and 0 elsewhere."""
        score, mu = self._score(numbers("loss", loss))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            value = np.exp(-0.5 * score**2) / (mu * np.sqrt(2 * np.pi))
        return np.where(mu == 0, np.where(np.isnan(score), np.inf, 0.0), value)

    def cdf(self, loss: Any) -> FloatArray:
        """Return Φ((``loss`` − μ²/2)/μ)."""
        score, _ = self._score(numbers("loss", loss))
        return ndtr(np.where(np.isnan(score), np.inf, score))

    def survival(self, loss: Any) -> FloatArray:
        """Return Φ((μ²/2 − ``loss``)/μ), DESIGN erratum 10."""
        score, _ = self._score(numbers("loss", loss))
        return ndtr(-np.where(np.isnan(score), np.inf, score))

    def quantile(self, probability: Any) -> FloatArray:
        """Return μ²/2 + μ Φ⁻¹(``probability``), rounded up."""
        level, mu = np.broadcast_arrays(levels(probability), self.separation)
        score = ndtri(level)
        with np.errstate(invalid="ignore", over="ignore"):
            # Upwards by a few roundings of the terms: the sum's, the product's, the inverse's.
            value = mu * (0.5 * mu + score) + 2.0**-49 * mu * (0.5 * mu + np.abs(score))
        value = np.where(mu == 0, 0.0, value)
        return np.where(mu == np.inf, np.inf, value)

    @property
    def expected_loss(self) -> FloatArray:
        """μ²/2."""
        with np.errstate(over="ignore"):
            return 0.5 * self.separation**2

    @property
    def expected_exposure(self) -> FloatArray:
        """E∣N(μ²/2, μ²)∣ = μ√(2/π) e^(−μ²/8) + (μ²/2) erf(μ/√8)."""
        mu = self.separation
        finite = np.where(mu < np.inf, mu, 0.0)
        with np.errstate(over="ignore", under="ignore"):
            density = finite * np.sqrt(2 / np.pi) * np.exp(-(finite**2) / 8)
            value = density + 0.5 * finite**2 * erf(finite / np.sqrt(8))
        return np.where(mu < np.inf, value, np.inf)

    @property
    def advantage(self) -> FloatArray:
        """2Φ(μ/2) − 1 = erf(μ/√8)."""
        advantage: FloatArray = erf(self.separation / np.sqrt(8))
        return advantage

    def expected_posterior(self, prior: float = 0.5) -> FloatArray:
        """Return E[sigmoid(logit(prior) + ℓ)], by quadrature over a = ∣ℓ∣."""
        return expected_posterior(self.separation, gaussian_exposure, prior)

    def _score(self, loss: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ((loss − μ²/2)/μ, μ); NaN exactly where μ = 0 and loss = 0."""
        values, mu = np.broadcast_arrays(loss, self.separation)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            score = values / mu - 0.5 * mu
        return np.where(mu == np.inf, -np.inf, score), mu


def _quantile_one(probability: FloatArray, separation: FloatArray) -> FloatArray:
    """Invert ½e^((ℓ−t)/2) at d = 1; atoms take the levels above ½ and below ½e^(−t)."""
    level = np.maximum(probability, np.finfo(np.float64).tiny)
    fall = -2 * np.log(2 * level)
    # Upwards by a few roundings of the terms.
    loss = separation - fall + 2.0**-50 * (separation + np.abs(fall))
    loss = np.where(probability > 0.5, separation, np.where(probability > 0, loss, -separation))
    return np.clip(loss, -separation, separation)


def _at_zero_density(loss: FloatArray) -> FloatArray:
    return np.where(loss == 0, np.inf, 0.0)


def _at_zero_cdf(loss: FloatArray) -> FloatArray:
    return np.where(loss >= 0, 1.0, 0.0)


def _at_zero_survival(loss: FloatArray) -> FloatArray:
    return np.where(loss < 0, 1.0, 0.0)
