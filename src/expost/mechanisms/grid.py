"""The grid that a released θ lies on, so that its low bits reveal nothing.

A float64 sum A + b shows in its low bits which A it came from (Mironov 2012; Haney et al. 2022).
So a release is clamped to ∣θⱼ∣ ≤ B and rounded to multiples of 2^k, B and k fixed by public
constants that do not depend on the data:

    2^k ≥ 2¹⁰·ulp(B)           the arithmetic is finer than the grid by ten bits everywhere, and
    √d·2^k ≤ 2⁻¹⁰·resolution   the grid is finer than the noise by ten bits;

where both cannot hold the release is refused. Within that the grid is twenty bits finer than the
noise where the arithmetic allows it: a coarser one would blur the losses, a finer one brings the
low bits closer.
"""

import math
from dataclasses import dataclass

import numpy as np

from expost.errors import ReleaseRefused
from expost.types import FloatArray

__all__ = ["Grid"]

_SPARE_BITS = 10
_SHARP_BITS = 20


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Multiples of 2^``exponent`` within ±``clamp``.

    Parameters
    ----------
    clamp : float
        The largest absolute value of a coordinate.
    exponent : int
        k; the step of the grid is 2^k.
    """

    clamp: float
    exponent: int

    @classmethod
    def for_noise(cls, *, reach: float, resolution: float, dimension: int) -> "Grid":
        """Return the grid for a noise of this size.

        Parameters
        ----------
        reach : float
            A bound on a coordinate of θ that fails with negligible probability only.
        resolution : float
            The length over which the noise's density hardly changes: 1/β or σ.
        dimension : int
            The number of coordinates.

        Returns
        -------
        Grid
            A grid whose rounding is negligible against the noise.

        Raises
        ------
        ReleaseRefused
            If the noise has no finite scale, or float64 is too coarse for it.
        """
        if not (reach < math.inf and 0 < resolution < math.inf):
            raise ReleaseRefused("the noise has no finite scale: raise epsilon or regularization.")
        # The clamp is a power of two, so that it lies on the grid.
        clamp = 2.0 ** math.ceil(math.log2(reach))
        noise_exponent = math.floor(math.log2(resolution / math.sqrt(dimension)))
        finest = round(math.log2(math.ulp(clamp))) + _SPARE_BITS
        exponent = max(noise_exponent - _SHARP_BITS, finest)
        if not exponent <= noise_exponent - _SPARE_BITS:
            raise ReleaseRefused(
                f"no grid is both finer than the noise (scale {resolution:.3g}) and coarser than"
                f" float64 at {clamp:.3g}: the low bits of a release would reveal data; lower"
                " epsilon or raise regularization."
            )
        return cls(clamp=clamp, exponent=exponent)

    @property
    def step(self) -> float:
        """2^k."""
        return 2.0**self.exponent

    def snap(self, theta: FloatArray) -> FloatArray:
        """Clamp, then round to the nearest multiple of the step; −0.0 becomes 0.0.

        Parameters
        ----------
        theta : FloatArray
            (d,) or (m, d) points.

        Returns
        -------
        FloatArray
            The points on the grid.

        Raises
        ------
        ReleaseRefused
            If a coordinate is not finite.
        """
        if not bool(np.all(np.isfinite(theta))):
            raise ReleaseRefused("the noised coefficients are not finite: nothing is released.")
        return np.round(np.clip(theta, -self.clamp, self.clamp) / self.step) * self.step + 0.0

    def holds(self, theta: FloatArray) -> bool:
        """Return whether ``theta`` lies on the grid.

        Parameters
        ----------
        theta : FloatArray
            (d,) a point.

        Returns
        -------
        bool
            True if all coordinates are multiples of the step within the clamp.
        """
        return bool(np.all(np.abs(theta) <= self.clamp)) and np.array_equal(self.snap(theta), theta)

    def is_clamped(self, theta: FloatArray) -> bool:
        """Return whether a coordinate lies on the clamp, where its cell is unbounded.

        Parameters
        ----------
        theta : FloatArray
            (d,) a point.

        Returns
        -------
        bool
            True if one is.
        """
        return bool(np.any(np.abs(theta) >= self.clamp))

    def diagonal(self, dimension: int) -> float:
        """Return the largest distance within one cell, √d·2^k.

        Parameters
        ----------
        dimension : int
            The number d of coordinates.

        Returns
        -------
        float
            The distance.
        """
        return math.sqrt(dimension) * self.step
