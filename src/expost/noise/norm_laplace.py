"""Norm-Laplace noise, of density ∝ exp(−β∥b∥)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammainccinv, gammaln

from expost import _checks
from expost._checks import nonnegative, points, spread, triple
from expost.noise import _secure
from expost.noise._ball import Radial, ball_probability
from expost.noise.base import rounding_of
from expost.noise.law import NormLaplaceLaw
from expost.types import FloatArray

__all__ = ["NormLaplace"]


@dataclass(frozen=True, kw_only=True)
class NormLaplace:
    """b ∈ R^d with density Γ(d/2)/(2 π^(d/2) Γ(d))·β^d·exp(−β∥b∥).

    ∥b∥ ~ Gamma(d, 1/β) and the direction is uniform (DESIGN erratum 1: the paper's normaliser
    β/2 is that of d = 1). ``rate`` is β; with β = ε/sensitivity no exposure passes ε.
    See :class:`expost.noise.Noise` for the methods.

    Parameters
    ----------
    rate : float
        β > 0. With β = ε/sensitivity no exposure exceeds ε.
    dimension : int
        The number d of coordinates.
    """

    rate: float
    dimension: int

    def __post_init__(self) -> None:
        _checks.positive("rate", self.rate)
        _checks.integer("dimension", self.dimension, least=1)

    @property
    def resolution(self) -> float:
        """1/β."""
        return 1 / self.rate

    @property
    def mean_square(self) -> float:
        """E∥b∥² = d(d + 1)/β²: ∥b∥ ~ Gamma(d, 1/β)."""
        return self.dimension * (self.dimension + 1) * self.resolution**2

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw (size, d) for simulation."""
        _checks.integer("size", size, least=0)
        norm = rng.standard_gamma(self.dimension, size)
        return self._assemble(norm, rng.standard_normal((size, self.dimension)))

    def sample_secure(self, size: int | None = None) -> FloatArray:
        """Draw (d,), or (size, d), from the CSPRNG; Gamma(d) as a sum of d exponentials."""
        count = 1 if size is None else _checks.integer("size", size, least=0)
        shape = (count, self.dimension)
        draws = self._assemble(_secure.exponentials(shape).sum(axis=1), _secure.normals(shape))
        return draws[0] if size is None else draws

    def _assemble(self, norm: FloatArray, direction: FloatArray) -> FloatArray:
        length = np.linalg.norm(direction, axis=1)
        scaled: FloatArray = direction * (norm / self.rate / length)[:, None]
        return scaled

    def log_density(self, noise: Any) -> FloatArray:
        """Return log p at each row of ``noise``."""
        d = self.dimension
        constant = d * np.log(self.rate) + gammaln(0.5 * d) - gammaln(d)
        constant -= np.log(2) + 0.5 * d * np.log(np.pi)
        falling: FloatArray = self.rate * np.linalg.norm(points("noise", noise, d), axis=-1)
        return float(constant) - falling

    def coverage(self, offset_norm: Any, radius: float) -> FloatArray:
        """Return P(∥b − p∥ ≤ radius), by quadrature over ∥b∥."""
        offset = nonnegative("offset_norm", offset_norm)
        _checks.positive("radius", radius)
        d = self.dimension
        radial = Radial(
            dimension=d,
            cdf=lambda r: gammainc(d, r),
            log_kernel=np.negative,
            log_kernel_slope=lambda r: -np.ones_like(r),
            log_normaliser=float(gammaln(d)),
        )
        return ball_probability(offset, radius, radial, unit=1 / self.rate)

    def norm_tails(self, norm: Any) -> tuple[FloatArray, FloatArray]:
        """Return (P(∥b∥ < norm), P(∥b∥ > norm)): Gamma(d, 1/β)."""
        scaled = self.rate * nonnegative("norm", norm)
        return gammainc(self.dimension, scaled), gammaincc(self.dimension, scaled)

    def norm_exceeded_with(self, probability: float) -> float:
        """Return the norm that ∥b∥ exceeds with ``probability``."""
        survival = _checks.probability("probability", probability)
        return float(gammainccinv(self.dimension, survival)) / self.rate

    def loss(self, noise: Any, shift: Any) -> FloatArray:
        """Return β(∥b − s∥ − ∥b∥) = β s·(s − 2b)/(∥b − s∥ + ∥b∥): norms are not subtracted."""
        b, s = points("noise", noise, self.dimension), points("shift", shift, self.dimension)
        numerator: FloatArray = (s * (s - 2 * b)).sum(axis=-1)
        return self._quotient(
            numerator, np.linalg.norm(b - s, axis=-1) + np.linalg.norm(b, axis=-1)
        )

    def loss_from(self, noise_norm: Any, inner: Any, distance: Any) -> FloatArray:
        """Return β(∥s∥² − 2b·s)/(∥b − s∥ + ∥b∥) with ∥b − s∥² = ∥b∥² − 2b·s + ∥s∥².

        Where b ≈ s that square is rounding, possibly below 0, and is taken for 0: the
        denominator still holds ∥b∥, and :meth:`loss_error` counts what is lost.
        """
        norm, product, apart = triple(noise_norm, inner, distance)
        numerator = apart * apart - 2 * product
        rest = np.sqrt(np.maximum(norm * norm + numerator, 0.0))
        largest = self.rate * apart
        return np.clip(self._quotient(numerator, rest + norm), -largest, largest)

    def loss_in_place(self, noise_norm: float, excess: NDArray[Any], scratch: NDArray[Any]) -> None:
        """Overwrite the excess x by √(r² + x) − r = x/(√(r² + x) + r), r = ∥b∥, at β = 1."""
        np.add(excess, noise_norm * noise_norm, out=scratch)
        np.maximum(scratch, 0.0, out=scratch)
        np.sqrt(scratch, out=scratch)
        np.add(scratch, noise_norm, out=scratch)
        np.divide(excess, scratch, out=excess)

    def _quotient(self, numerator: FloatArray, total: FloatArray) -> FloatArray:
        # Both norms are 0 only if b = s = 0, where the loss is 0.
        return self.rate * (numerator / np.where(total > 0, total, 1.0))

    def loss_error(
        self,
        noise_norm: Any,
        distance: Any,
        shift_error: Any,
        base_error: Any = 0.0,
        *,
        inner_error: Any = 0.0,
    ) -> FloatArray:
        """Bound the error of :meth:`loss_from`.

        With g(b, s) = ∥b − s∥ − ∥b∥: ∣g(b', s') − g(b', s)∣ ≤ ∥s' − s∥, and ∇_b g is the
        difference of two unit vectors, at most min(2, 2∥s∥/(∥b − s∥ + ∥b∥)) long (Dunkl and
        Williams 1964); on the way from b to b' that sum is at least max(m, 2m − ∥s∥) with
        m = ∥b∥ − base_error.
        """
        norm, apart, moved, base, inner = spread(
            noise_norm=noise_norm,
            distance=distance,
            shift_error=shift_error,
            base_error=base_error,
            inner_error=inner_error,
        )
        least = norm - base
        total = np.maximum(least, 2 * least - apart)
        steep = 2 * apart / np.where(total > apart, total, np.where(apart > 0, apart, 1.0))
        unit = rounding_of(self.dimension)
        change = moved + np.minimum(steep, 2.0) * base
        return self.rate * (change + _arithmetic(norm, apart, inner, unit)) * (1 + 4 * unit)

    def law(self, distance: Any) -> NormLaplaceLaw:
        """Return the exact law of the loss; it depends on β·distance and d alone."""
        separation = self.rate * nonnegative("distance", distance)
        return NormLaplaceLaw(separation=separation, dimension=self.dimension)


def _arithmetic(norm: FloatArray, apart: FloatArray, inner: FloatArray, unit: float) -> FloatArray:
    """Bound the error of loss/β by rounding (``unit``, relative) and an error ``inner`` of b·s.

    Errors δN of the numerator N = ∥s∥² − 2b·s and δD of the denominator D ≥ max(∥b∥, ∥s∥) move
    N/D, at most ∥s∥ in size, by at most (δN + ∥s∥δD)/(D − δD). Twice (δN + ∥s∥δD)/D covers that
    for δD ≤ D/2; beyond, as D ≤ 3·max(∥b∥, ∥s∥), four times it passes the 2∥s∥ that the clipping
    in ``loss_from`` guarantees anyway.
    """
    numerator = unit * (apart * apart + 2 * norm * apart) + 2 * inner
    square = unit * (norm + apart) ** 2 + 2 * inner
    # ∣√x − √y∣ ≤ ∣x − y∣/√x and ≤ √∣x − y∣, and ∥b − s∥ ≥ ∣∥b∥ − ∥s∥∣.
    gap = np.maximum(np.abs(norm - apart), np.sqrt(square))
    denominator = square / np.where(gap > 0, gap, 1.0) + unit * norm
    largest = np.maximum(norm, apart)
    quotient = (numerator + apart * denominator) / np.where(largest > 0, largest, 1.0)
    return np.minimum(4 * quotient, 2 * apart) + unit * apart
