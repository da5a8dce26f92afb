"""Gaussian noise, N(0, σ²I)."""

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
from expost.noise.law import GaussianLaw
from expost.types import FloatArray

__all__ = ["Gaussian"]


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """b ∈ R^d with density (2πσ²)^(−d/2) exp(−∥b∥²/(2σ²)); ``scale`` is σ.

    ∥b∥²/σ² ~ χ²_d. σ from ε and δ: :func:`expost.accounting.gaussian_scale`.
    See :class:`expost.noise.Noise` for the methods.

    Parameters
    ----------
    scale : float
        σ > 0, the standard deviation of a coordinate.
    dimension : int
        The number d of coordinates.
    """

    scale: float
    dimension: int

    def __post_init__(self) -> None:
        _checks.positive("scale", self.scale)
        _checks.integer("dimension", self.dimension, least=1)

    @property
    def resolution(self) -> float:
        """σ."""
        return self.scale

    @property
    def mean_square(self) -> float:
        """E∥b∥² = dσ²."""
        return self.dimension * self.resolution**2

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw (size, d) for simulation."""
        _checks.integer("size", size, least=0)
        return self.scale * rng.standard_normal((size, self.dimension))

    def sample_secure(self, size: int | None = None) -> FloatArray:
        """Draw (d,), or (size, d), from the CSPRNG."""
        count = 1 if size is None else _checks.integer("size", size, least=0)
        draws = self.scale * _secure.normals((count, self.dimension))
        return draws[0] if size is None else draws

    def log_density(self, noise: Any) -> FloatArray:
        """Return log p at each row of ``noise``."""
        scaled = points("noise", noise, self.dimension) / self.scale
        squared: FloatArray = (scaled * scaled).sum(axis=-1)
        constant = self.dimension * (np.log(self.scale) + 0.5 * np.log(2 * np.pi))
        return -0.5 * squared - float(constant)

    def coverage(self, offset_norm: Any, radius: float) -> FloatArray:
        """Return P(∥b − p∥ ≤ radius): the non-central χ² distribution, by quadrature over ∥b∥."""
        offset = nonnegative("offset_norm", offset_norm)
        _checks.positive("radius", radius)
        half = 0.5 * self.dimension
        radial = Radial(
            dimension=self.dimension,
            cdf=lambda r: np.asarray(gammainc(half, 0.5 * r * r), dtype=np.float64),
            log_kernel=lambda r: -0.5 * r * r,
            log_kernel_slope=np.negative,
            log_normaliser=float(gammaln(half) + (half - 1) * np.log(2)),
        )
        return ball_probability(offset, radius, radial, unit=self.scale)

    def norm_tails(self, norm: Any) -> tuple[FloatArray, FloatArray]:
        """Return (P(∥b∥ < norm), P(∥b∥ > norm)): the χ_d distribution."""
        with np.errstate(over="ignore"):
            squared = 0.5 * (nonnegative("norm", norm) / self.scale) ** 2
        half = np.asarray(0.5 * self.dimension)
        return gammainc(half, squared), gammaincc(half, squared)

    def norm_exceeded_with(self, probability: float) -> float:
        """Return the norm that ∥b∥ exceeds with ``probability``."""
        survival = _checks.probability("probability", probability)
        return self.scale * float(np.sqrt(2 * gammainccinv(0.5 * self.dimension, survival)))

    def loss(self, noise: Any, shift: Any) -> FloatArray:
        """Return (∥s∥² − 2b·s)/(2σ²)."""
        b = points("noise", noise, self.dimension) / self.scale
        s = points("shift", shift, self.dimension) / self.scale
        twice: FloatArray = (s * (s - 2 * b)).sum(axis=-1)
        return 0.5 * twice

    def loss_from(self, noise_norm: Any, inner: Any, distance: Any) -> FloatArray:
        """Return (∥s∥² − 2b·s)/(2σ²); ``noise_norm`` is checked and not needed."""
        _, product, apart = triple(noise_norm, inner, distance)
        return (0.5 * apart * apart - product) / self.scale / self.scale

    def loss_in_place(self, noise_norm: float, excess: NDArray[Any], scratch: NDArray[Any]) -> None:
        """Overwrite the excess x by x/2, at σ = 1."""
        np.multiply(excess, 0.5, out=excess)

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

        2σ²(ℓ(b', s') − ℓ(b, s)) = (s' − s)·(s' + s − 2b') − 2(b' − b)·s, hence
        [(∥b∥ + ∥s∥ + e/2)·e + (∥s∥ + e)·base_error]/σ² with e = shift_error; then the rounding
        of ∥s∥² and b·s.
        """
        norm, apart, moved, base, inner = spread(
            noise_norm=noise_norm,
            distance=distance,
            shift_error=shift_error,
            base_error=base_error,
            inner_error=inner_error,
        )
        with np.errstate(invalid="ignore"):
            change = (norm + apart + 0.5 * moved) * moved + (apart + moved) * base
        # Infinity times 0: a shift that is not bounded leaves the loss unbounded.
        change = np.where(np.isnan(change), np.inf, change)
        unit = rounding_of(self.dimension)
        bound: FloatArray = change + unit * (0.5 * apart * apart + norm * apart) + inner
        return bound / self.scale / self.scale * (1 + 4 * unit)

    def law(self, distance: Any) -> GaussianLaw:
        """Return the exact law of the loss, N(μ²/2, μ²) with μ = distance/σ."""
        return GaussianLaw(separation=nonnegative("distance", distance) / self.scale)
