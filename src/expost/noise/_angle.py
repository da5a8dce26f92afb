"""The one-dimensional law behind a row's loss under norm-Laplace noise, as a quadrature rule.

Conventions
-----------
t        ``separation``: β·distance, the largest loss there can be.
d        ``dimension``, here at least 2 (d = 1 has atoms and is done in :mod:`expost.noise.law`).
ψ        ``angle``: the loss is ℓ = t·cos ψ. DESIGN's density of ℓ becomes, over [0, π],

             p(ψ) ∝ e^(−t sin²(ψ/2)) sin^(d−2)ψ (1 + sin²ψ/κ),   t/2·(cos ψ − 1) = −t sin²(ψ/2),

         κ = (2(d−1)/t)·K_{d/2}(t/2)/K_{d/2−1}(t/2). It is smooth to the ends for every d ≥ 2.
folding  p(π − ψ) = e^(−t cos ψ) p(ψ): given a = ∣ℓ∣ the sign is + with probability sigmoid(a).
         So everything is an integral over [0, π/2] of positive terms, and nothing cancels
         however small t is.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from expost._numerics import bracket_root, gauss_legendre
from expost.noise._bessel import ratio_below
from expost.types import FloatArray

__all__ = ["DROP", "NODES", "FoldedAngle", "log_height"]

# The rule covers the angles whose density is above e^−46 = 1e-20 of its mode, at most 25 standard
# widths; with 48 nodes it is then right to rounding (tests/noise/test_law.py compares).
NODES = 48
DROP = 46.0
# Newton's steps towards the edge come from outside and stay there: too few cost accuracy of the
# rule, never mass.
_EDGE_STEPS = 8
_PANELS = 8
_PANEL_NODES = 24


@dataclass(frozen=True, kw_only=True)
class FoldedAngle:
    """The angles ψ in [low, high] ⊂ [0, π/2] that carry the law, one interval a row.

    All fields but ``dimension`` have one entry a row; t must be positive and finite.
    """

    separation: FloatArray
    dimension: int
    inverse_kappa: FloatArray
    peak: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, separation: FloatArray, dimension: int) -> "FoldedAngle":
        """Return the law's support for each t.

        The density is a mixture of e^(…)sin^(d−2) and e^(…)sin^d: the first reaches furthest to
        the left, the second furthest to the right, and their modes have closed forms.
        """
        ratio = ratio_below(dimension - 2, separation / 2)
        inverse_kappa = separation * ratio / (2 * (dimension - 1))
        middle, _ = _mode(separation, dimension - 1)
        return cls(
            separation=separation,
            dimension=dimension,
            inverse_kappa=inverse_kappa,
            peak=log_height(middle, separation, dimension, inverse_kappa),
            low=_lower_edge(separation, dimension - 2),
            high=_upper_edge(separation, dimension),
        )

    def rule(
        self, low: FloatArray, high: FloatArray, nodes: int = NODES
    ) -> tuple[FloatArray, FloatArray]:
        """Return (∣ℓ∣, weight), each (n, nodes): ∫ p over [low, high], both signs of ℓ together.

        Weights are relative to the mode of each row and not normalised: see :meth:`total`.
        """
        points, weights = gauss_legendre(nodes)
        half = 0.5 * (high - low)
        angle = (0.5 * (low + high))[:, None] + half[:, None] * points
        separation = self.separation[:, None]
        height = np.exp(
            log_height(angle, separation, self.dimension, self.inverse_kappa[:, None])
            - self.peak[:, None]
        )
        exposure = separation * np.cos(angle)
        return exposure, half[:, None] * weights * height * (1 + np.exp(-exposure))

    def total(self) -> FloatArray:
        """Return the normaliser of :meth:`rule`'s weights."""
        _, weight = self.rule(self.low, self.high)
        mass: FloatArray = weight.sum(axis=1)
        return mass

    def angle_of(self, exposure: FloatArray) -> FloatArray:
        """Return ψ in the support with t·cos ψ = ``exposure`` ≤ t, accurate near both ends."""
        share = np.clip(0.5 * (self.separation - exposure) / self.separation, 0.0, 0.5)
        angle: FloatArray = 2 * np.arcsin(np.sqrt(share))
        return np.clip(angle, self.low, self.high)

    def log_density(self, loss: FloatArray, total: FloatArray) -> FloatArray:
        """Return the log density of ℓ itself: inf at the ends ±t where d = 2, −inf beyond them."""
        t, d = self.separation, self.dimension
        with np.errstate(divide="ignore", invalid="ignore"):
            squared_sine = ((t - loss) / t) * ((t + loss) / t)
            bent = 0.5 * (d - 3) * np.log(squared_sine) if d != 3 else np.zeros_like(t)
            value = (
                -0.5 * (t - loss)
                + bent
                + np.log1p(self.inverse_kappa * squared_sine)
                - self.peak
                - np.log(total)
                - np.log(t)
            )
        return np.where(np.abs(loss) <= t, value, -np.inf)

    def tail(self, exposure: FloatArray, sign: FloatArray) -> FloatArray:
        """Return the unnormalised P(sign·ℓ > ``exposure``) for exposure ≥ 0, sign = ±1."""
        return self._signed_mass(self.low, self.angle_of(exposure), sign, NODES)

    def _signed_mass(
        self, low: FloatArray, high: FloatArray, sign: FloatArray, nodes: int
    ) -> FloatArray:
        exposure, weight = self.rule(low, high, nodes)
        mass: FloatArray = (weight * expit(sign[:, None] * exposure)).sum(axis=1)
        return mass

    def tail_angle(self, mass: FloatArray, sign: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the neighbouring angles (below, above) around P(sign·ℓ > t cos ψ) = ``mass``.

        Panels first, so that the root is sought where a short rule is exact.
        """
        edges = self.low[:, None] + (self.high - self.low)[:, None] * np.linspace(0, 1, _PANELS + 1)
        masses = np.stack(
            [
                self._signed_mass(edges[:, k], edges[:, k + 1], sign, _PANEL_NODES)
                for k in range(_PANELS)
            ],
            axis=1,
        )
        before = np.concatenate([np.zeros((len(mass), 1)), np.cumsum(masses, axis=1)], axis=1)
        panel = np.clip((before[:, 1:-1] <= mass[:, None]).sum(axis=1), 0, _PANELS - 1)
        row = np.arange(len(mass))
        start, missing = edges[row, panel], mass - before[row, panel]
        return bracket_root(
            lambda angle: self._signed_mass(start, angle, sign, _PANEL_NODES) - missing,
            start,
            edges[row, panel + 1],
        )


def log_height(
    angle: FloatArray,
    separation: FloatArray | float,
    dimension: int,
    inverse_kappa: FloatArray | float,
) -> FloatArray:
    """Return log p(ψ), not normalised."""
    sine = np.sin(angle)
    height: FloatArray = np.log1p(inverse_kappa * sine * sine)
    height = height - separation * np.sin(0.5 * angle) ** 2
    if dimension > 2:
        # An interval may shrink to the point 0, where the density is 0.
        with np.errstate(divide="ignore"):
            height = height + (dimension - 2) * np.log(sine)
    return height


def _mode(separation: FloatArray, power: int) -> tuple[FloatArray, FloatArray]:
    """Return (ψ, cos ψ) where −t sin²(ψ/2) + m log sin ψ is largest.

    There (t/2) sin²ψ = m cos ψ, hence cos ψ = t/(m + √(m² + t²)), sin²ψ = 2m/(m + √(m² + t²)).
    """
    scale = power + np.hypot(power, separation)
    cosine = separation / scale
    return np.arctan2(np.sqrt(2 * power / scale), cosine), cosine


def _lower_edge(separation: FloatArray, power: int) -> FloatArray:
    """Return the lower edge: left of its mode the log density falls faster than its parabola."""
    if power == 0:
        return np.zeros_like(separation)
    angle, cosine = _mode(separation, power)
    # −h'' = (t/2) cos ψ + m/sin²ψ, and m/sin²ψ = ½(m + √(m² + t²)).
    curvature = 0.5 * (separation * cosine + power + np.hypot(power, separation))
    return np.maximum(angle - np.sqrt(2 * DROP / curvature), 0.0)


def _upper_edge(separation: FloatArray, power: int) -> FloatArray:
    """Return the upper edge, by Newton on a concave function, from outside: it stays outside."""
    mode, _ = _mode(separation, power)
    floor = power * np.log(np.sin(mode)) - separation * np.sin(0.5 * mode) ** 2 - DROP
    # sin(ψ/2) ≥ √2 ψ/π on [0, π/2] and log sin ψ ≤ 0 bound the height by −2tψ²/π².
    with np.errstate(over="ignore"):
        reach: FloatArray = np.pi * np.sqrt(-0.5 * floor / separation)
    edge = np.minimum(0.5 * np.pi, reach)
    for _ in range(_EDGE_STEPS):
        sine = np.sin(edge)
        height = power * np.log(sine) - separation * np.sin(0.5 * edge) ** 2
        slope = power * np.cos(edge) / sine - 0.5 * separation * sine
        outside = height < floor
        edge = edge - np.where(outside, height - floor, 0.0) / np.where(outside, slope, -1.0)
    return edge
