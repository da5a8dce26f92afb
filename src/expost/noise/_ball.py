"""The probability of a ball under spherically symmetric noise: one quadrature for both noises.

Conventions
-----------
r, R     ∥b∥ and its law (``radial``), in units of the noise.
ρ, c     ``offset``: distance of the ball's centre from the origin; ``radius`` of the ball.
near     ∣c − ρ∣ and ``far`` = c + ρ: the spheres with r in between cross the ball's surface.
u        r − near, in [0, 2·min(ρ, c)]: a tiny ball far out keeps its digits.
h        the cosine at which they cross, (r² + ρ² − c²)/(2rρ);
         sin² = (far² − r²)(r² − near²)/(4r²ρ²).

    P = P(R ≤ c − ρ) + ∫ f_R(r)·cap(r) dr over [near, far],   cap = P(a direction's cosine ≥ h)

For Gaussian noise this is the non-central χ² distribution, whose library routines were found
wrong in the tail (0 for 1e-202) and NaN for an offset of 1e6.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import betainc

from expost._numerics import bracket_root, gauss_legendre, row_blocks
from expost.types import FloatArray

__all__ = ["Radial", "ball_probability"]

# A panel spans at most 15 widths of the integrand: 32 nodes are then right to 1e-12.
_NODES = 32
# What is left out is e^−46 = 1e-20 of the integrand's largest value.
_DROP = 46.0
# Where c ≈ ρ the cap changes over lengths of near ≪ far: panels that grow by this factor follow.
_GROWTH = 30.0
_GROWN = 4
# Widths 1/√d of the cosine within which a cap goes from nothing to everything.
_CAP_WIDTHS = 9.0


@dataclass(frozen=True, kw_only=True)
class Radial:
    """The law of r = ∥b∥, of density ∝ r^(d−1)·kernel(r) with a log-concave kernel."""

    dimension: int
    cdf: Callable[[FloatArray], FloatArray]
    log_kernel: Callable[[FloatArray], FloatArray]
    log_kernel_slope: Callable[[FloatArray], FloatArray]
    log_normaliser: float

    @property
    def reach(self) -> float:
        """Beyond it the density of either noise is below e^−700, for every d."""
        return 2.0 * self.dimension + 2000.0

    def density(self, r: FloatArray) -> FloatArray:
        """Return the density of ∥b∥ at r > 0."""
        return np.exp((self.dimension - 1) * np.log(r) + self.log_kernel(r) - self.log_normaliser)


@dataclass(frozen=True, kw_only=True)
class _Ball:
    """One ball a row; ρ and c positive and finite."""

    offset: FloatArray
    radius: float

    @property
    def near(self) -> FloatArray:
        return np.abs(self.radius - self.offset)

    @property
    def span(self) -> FloatArray:
        return 2 * np.minimum(self.radius, self.offset)

    def cosine(self, u: FloatArray) -> FloatArray:
        r = self.near + u
        excess = (self.offset - self.radius) * ((self.offset + self.radius) / r)
        return 0.5 * (r / self.offset + excess / self.offset)

    def squared_sine(self, u: FloatArray) -> FloatArray:
        near, r = self.near, self.near + u
        outer = (self.span - u) / self.offset * ((near + self.span + r) / r)
        return np.clip(0.25 * outer * (u / self.offset) * ((near + r) / r), 0.0, 1.0)

    def crossing(self, cosine: float) -> FloatArray:
        """Return u of the sphere that crosses the ball's surface at ``cosine`` ≤ 0, where c > ρ."""
        along = cosine * self.offset
        inside = np.maximum((self.radius - self.offset) * (self.radius + self.offset), 0.0)
        root = np.sqrt(along**2 + inside)
        return np.maximum(inside / np.maximum(root - along, 1e-300) - self.near, 0.0)


def ball_probability(
    offset: FloatArray, radius: float, radial: Radial, *, unit: float
) -> FloatArray:
    """Return P(∥b − p∥ ≤ c) for ∥p∥ = ``offset`` and c = ``radius``; ``radial``: law of ∥b∥/unit.

    Right to about 1e-11 relative, far in the tails too.
    """
    with np.errstate(over="ignore"):
        flat = _in_units(np.ravel(offset) / unit, radius / unit, radial)
    return flat.reshape(offset.shape)


def _in_units(offset: FloatArray, radius: float, radial: Radial) -> FloatArray:
    result = radial.cdf(np.maximum(radius - offset, 0.0))
    # Around the origin, or too far away to matter, no sphere crosses the ball's surface.
    ordinary = np.flatnonzero((offset > 0) & (np.abs(radius - offset) < radial.reach))
    for block in row_blocks(len(ordinary), 4 * _NODES):
        rows = ordinary[block]
        result[rows] += _crossed(_Ball(offset=offset[rows], radius=radius), radial)
    return np.clip(result, 0.0, 1.0)


def _crossed(ball: _Ball, radial: Radial) -> FloatArray:
    """Return ∫ f_R·cap over [near, far], panel by panel."""
    points, weights = gauss_legendre(_NODES)
    # u = left + half·(1 − cos φ): the square roots in which a cap starts and ends become smooth.
    turn = 0.5 * np.pi * (points + 1)
    rise, rate = 2 * np.sin(0.5 * turn) ** 2, 0.5 * np.pi * weights * np.sin(turn)
    total = np.zeros_like(ball.offset)
    column = _Ball(offset=ball.offset[:, None], radius=ball.radius)
    edges = _panels(ball, radial)
    for left, right in pairwise(edges):
        if np.any(right > left):
            half = 0.5 * (right - left)[:, None]
            u = left[:, None] + half * rise
            r = np.maximum(column.near + u, np.finfo(np.float64).tiny)
            integrand = radial.density(r) * _cap(column, u, radial.dimension)
            total += (half * rate * integrand).sum(axis=1)
    return total


def _cap(ball: _Ball, u: FloatArray, dimension: int) -> FloatArray:
    """Return the share of directions whose cosine is at least h; in one dimension, ½."""
    if dimension == 1:
        return np.full_like(u, 0.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = 0.5 * betainc(0.5 * (dimension - 1), 0.5, ball.squared_sine(u))
        return np.where(ball.cosine(u) >= 0, half, 1 - half)


def _panels(ball: _Ball, radial: Radial) -> FloatArray:
    """Return edges in u (k, n), ascending, between which the integrand is smooth.

    f_R·cap is at most e^E with E = (d−1)·log y + log kernel, y = r where h < 0 and r·sin where
    h ≥ 0: E is concave in r, so that its support is one interval, given by a mode and two edges.
    """
    power = radial.dimension - 1
    near, span = ball.near, ball.span

    def envelope(u: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(ball.cosine(u) < 0, 1.0, ball.squared_sine(u))
            bent = power * (np.log(near + u) + 0.5 * np.log(share)) if power else 0.0
        return bent + radial.log_kernel(near + u)

    def fall(u: FloatArray) -> FloatArray:
        r = near + u
        with np.errstate(divide="ignore", invalid="ignore"):
            crossed = r / (u * (r + near)) - r / ((span - u) * (near + span + r))
            slope = power * np.where(ball.cosine(u) < 0, 1 / r, crossed) if power else 0.0
        return -(slope + radial.log_kernel_slope(r))

    top = np.minimum(span, radial.reach - near)
    mode, above = bracket_root(fall, 0.0, top)
    mode = np.where(mode > 0, mode, above)
    floor = envelope(mode) - _DROP
    low, _ = bracket_root(lambda u: envelope(u) - floor, 0.0, mode)
    _, high = bracket_root(lambda u: floor - envelope(u), mode, top)
    cuts = [mode, *(near * (_GROWTH**k - 1) for k in range(1, _GROWN + 1))]
    steepest = _CAP_WIDTHS / np.sqrt(radial.dimension)
    if steepest < 1:
        crosses = ball.radius > ball.offset
        cuts += [np.where(crosses, ball.crossing(h), 0.0) for h in (-steepest, 0.0)]
    edges = np.stack([low, *(np.clip(cut, low, high) for cut in cuts), high])
    return np.sort(edges, axis=0)
