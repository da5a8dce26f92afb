"""Tails of the loss under norm-Laplace noise, each right to a small *relative* error.

Conventions
-----------
t, d     ``separation`` > 0, finite, and ``dimension`` ≥ 2, as in :mod:`expost.noise._angle`.
ψ        ℓ = t·cos ψ. Where the row was there its density over [0, π] is ∝ e^h(ψ),

             h(ψ) = −t sin²(ψ/2) + (d−2) log sin ψ + log(1 + sin²ψ/κ),

         and where it was not, the same times e^(−t cos ψ).
tails    for ψ in [0, π/2], that is c = t·cos ψ ≥ 0:
             present  P(ℓ > c),  absent  Q(ℓ > c) = P(−ℓ > c),
             excess   δ(c) = P(ℓ > c) − e^c Q(ℓ > c) = E_P[(1 − e^(c−ℓ))₊].

:mod:`expost.noise._angle` serves a million rows and is right to 1e-11 of the whole; a guarantee is
evaluated at δ = 1e-300. Here one pair of laws is served: the interval is narrowed to where the
integrand lives, which is located on a grid, and integrated there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from expost._numerics import ROUNDOFF, bracket_root, gauss_legendre
from expost.noise._angle import log_height
from expost.noise._bessel import ratio_below
from expost.types import FloatArray

__all__ = ["LossTail"]

# What lies this far below the peak, e^−60 of it, is left out.
_DROP = 60.0
_GRID = 129
_ROUNDS = 24
_PANELS = 8
_NODES = 32
_LEAST = 1e-9
_RIGHT = 0.5 * math.pi


@dataclass(frozen=True, kw_only=True)
class LossTail:
    """The three tails as functions of ψ, for one t > 0 and d ≥ 2, each increasing in ψ."""

    separation: float
    dimension: int

    @property
    def error(self) -> float:
        """Relative error of each tail, with room: rounding in the exponents is what counts."""
        return 1e-12 + 32 * ROUNDOFF * (self.separation + self.dimension)

    def present(self, angle: float) -> float:
        """Return P(ℓ > t cos ψ)."""
        return self._share(self._log_height, angle)

    def absent(self, angle: float) -> float:
        """Return Q(ℓ > t cos ψ) = P(−ℓ > t cos ψ)."""
        return self._share(self._log_height_absent, angle)

    def excess(self, angle: float) -> float:
        """Return δ(t cos ψ), an integral of positive terms."""

        def height(at: FloatArray) -> FloatArray:
            # t(cos ψ' − cos ψ) for ψ' ≤ ψ.
            over = 2 * self.separation * np.sin(0.5 * (angle + at)) * np.sin(0.5 * (angle - at))
            with np.errstate(divide="ignore"):
                lift: FloatArray = np.log(-np.expm1(-np.maximum(over, 0.0)))
            return self._log_height(at) + lift

        return self._share(height, angle)

    def angle_where(
        self, tail: Callable[[float], float], mass: float, *, halvings: int = 120
    ) -> tuple[float, float]:
        """Return angles with tail(below) ≤ ``mass`` < tail(above), neighbours by default.

        ``tail`` is one of the three. Below 1e-9 cos ψ is 1 in float64, and (0, 1e-9) is returned;
        (π/2, π/2) where no angle has so much.
        """
        if tail(_LEAST) > mass:
            return 0.0, _LEAST
        if tail(_RIGHT) <= mass:
            return _RIGHT, _RIGHT
        below, above = bracket_root(
            lambda angle: np.array(tail(float(angle)) - mass), _LEAST, _RIGHT, halvings=halvings
        )
        return float(below), float(above)

    def angle(self, loss: float) -> float:
        """Return ψ with t·cos ψ = ``loss`` in [0, t], accurate near both ends."""
        share = 0.5 * (self.separation - loss) / self.separation
        return 2 * math.asin(math.sqrt(min(max(share, 0.0), 0.5)))

    def loss(self, angle: float) -> float:
        """Return t·cos ψ, rounded up; 0 at π/2."""
        if angle >= _RIGHT:
            return 0.0
        return self.separation * min((1 - 2 * math.sin(0.5 * angle) ** 2) + 4 * ROUNDOFF, 1.0)

    @cached_property
    def _inverse_kappa(self) -> float:
        """1/κ = (t/(2(d−1)))·K_{d/2−1}(t/2)/K_{d/2}(t/2)."""
        ratio = ratio_below(self.dimension - 2, np.array([0.5 * self.separation]))
        return self.separation * float(ratio[0]) / (2 * (self.dimension - 1))

    @cached_property
    def _log_total(self) -> float:
        """Log of ∫ e^h over [0, π]: both signs of ℓ, folded onto [0, π/2]."""

        def height(at: FloatArray) -> FloatArray:
            both: FloatArray = np.log1p(np.exp(-self.separation * np.cos(at)))
            return self._log_height(at) + both

        return _log_integral(height, _RIGHT)

    def _share(self, height: Callable[[FloatArray], FloatArray], angle: float) -> float:
        return math.exp(_log_integral(height, angle) - self._log_total) if angle > 0 else 0.0

    def _log_height(self, angle: FloatArray) -> FloatArray:
        return log_height(angle, self.separation, self.dimension, self._inverse_kappa)

    def _log_height_absent(self, angle: FloatArray) -> FloatArray:
        return self._log_height(angle) - self.separation * np.cos(angle)


def _log_integral(height: Callable[[FloatArray], FloatArray], high: float) -> float:
    """Return log ∫ e^height over [0, high] for a height with one peak.

    −inf where nothing is left in float64.
    """
    low, high = _support(height, 0.0, high)
    points, weights = gauss_legendre(_NODES)
    edges = np.linspace(low, high, _PANELS + 1)
    half = 0.5 * np.diff(edges)[:, None]
    value = height((0.5 * (edges[:-1] + edges[1:])[:, None] + half * points).ravel())
    peak = float(np.max(value))
    if not peak > -math.inf:
        return -math.inf
    mass = np.exp(value - peak) @ (half * weights).ravel()
    return peak + math.log(float(mass))


def _support(
    height: Callable[[FloatArray], FloatArray], low: float, high: float
) -> tuple[float, float]:
    """Narrow [low, high] to where the height is within _DROP of its peak, and a cell beyond.

    The first grid takes the peak too low and keeps too much, never too little: each round refines
    what was kept, until that no longer halves.
    """
    for _ in range(_ROUNDS):
        grid = np.linspace(low, high, _GRID)
        value = height(grid)
        kept = np.flatnonzero(value >= np.max(value) - _DROP)
        start, end = max(int(kept[0]) - 1, 0), min(int(kept[-1]) + 1, _GRID - 1)
        low, high = float(grid[start]), float(grid[end])
        if 2 * (end - start) > _GRID:
            break
    return low, high
