"""The laws of the privacy loss of one release, as quadrature nodes.

Conventions
-----------
P, Q       the laws of the release with and without the row, of the pair that dominates all others.
ℓ          log P/Q, drawn from P (forward) or log Q/P, drawn from Q (backward).
revealed   the mass that P puts where Q has none: the loss there is infinite.
node       (ℓ, log p): a loss and the log of the mass that P puts there. Nodes are those of
           Gauss–Legendre rules on panels so short that exp(θℓ)p is smooth on each; no panel
           crosses a multiple of ``spacing``, so that a function with kinks there is smooth too.

dp_accounting finds the masses as second differences of δ(ε) over the spacing: at the spacings that
10⁵ and more steps need, the rounding of δ counts as mass, and a million steps then have an
advantage of 0.75 where it is 0.49 (docs/evidence/risk-pld.json). Here every mass is an integral of
positive terms.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import gammaln, log_ndtr

from expost._numerics import gauss_legendre
from expost.noise._bessel import ratio_below
from expost.types import FloatArray

__all__ = ["NormLaplaceStep", "RandomizedResponse", "SampledGaussian", "SampledRows", "StepLaw"]

_NODES = 6
_FEW_NODES = 3
# Panels at a time: what is held is a few arrays of 2¹⁶ × 6 numbers.
_BLOCK = 2**16
# e^(−45²/2) = 1e-440: no probability of float64 lies beyond.
_REACH = 45.0

Nodes = tuple[FloatArray, FloatArray]


class StepLaw(Protocol):
    """The law of the loss of one release.

    Formal guarantees
    -----------------
    The masses of the nodes and ``revealed`` add up to 1 within 1e-13, and p e^(−ℓ), the masses of
    Q, to 1 − ``revealed``.
    """

    def __hash__(self) -> int:
        """Hash the law by its values: results are cached by it."""

    @property
    def symmetric(self) -> bool:
        """Whether −ℓ under Q has the law of ℓ under P."""

    @property
    def revealed(self) -> float:
        """The mass of the infinite loss, the same in both directions."""

    @property
    def largest(self) -> float:
        """The largest finite loss in either direction; infinite where there is none."""

    @property
    def atom(self) -> float:
        """A loss that has a mass of its own, as its negative has; 0 where there is none."""

    def nodes(self, spacing: float, low: float, high: float) -> Iterator[Nodes]:
        """Yield nodes in blocks, those of low ≤ ℓ ≤ high at least; no alignment for spacing = 0.

        Parameters
        ----------
        spacing : float
            The spacing of the grid of losses to which the nodes are aligned, in nats.
        low, high : float
            The range of losses ℓ that the nodes must cover.

        Returns
        -------
        Iterator[Nodes]
            The losses at the nodes of a block, and the logarithm of the mass of each under P.
        """

    @property
    def resolved_order(self) -> float:
        """The largest order at which the nodes give E[exp(order·loss)] without loss of digits."""

    def log_remainder(self, order: float, backward: bool) -> float:
        """Return log of a bound of what the nodes leave out of E[exp(order·loss)], order ≥ 0.

        Parameters
        ----------
        order : float
            The order θ ≥ 0 of the moment.
        backward : bool
            Whether the remainder is of the loss in the other direction, −ℓ under Q.

        Returns
        -------
        float
            The logarithm of the bound; −∞ if nothing is left out.
        """


@dataclass(frozen=True, kw_only=True)
class SampledGaussian:
    """N(0, 1) noise on a sum that the row enters with probability ``rate``, moving it by μ.

    Removing: P = (1−q)N(0, 1) + qN(μ, 1) against Q = N(0, 1), so ℓ = log(1 + q(e^y − 1)) with
    y = μz − μ²/2. Replacing: against Q = (1−q)N(0, 1) + qN(−μ, 1). Both increase in z.

    They dominate every pair of neighbours whose rows move the sum by at most μ: removing by Zhu,
    Dong and Wang 2022; replacing as dp_accounting has it, where rows that move the sum straight
    apart are the worst (tests/accounting/test_step_laws.py tries others).

    Parameters
    ----------
    mu : float
        How far the row moves the sum, in standard deviations of the noise.
    rate : float, default=1.0
        The probability q with which the row enters the sum.
    replace : bool, default=False
        Whether a row is replaced by another. Otherwise it is removed or added.
    """

    mu: float
    rate: float = 1.0
    replace: bool = False

    @property
    def symmetric(self) -> bool:
        """True for replacing, and for removing without sampling."""
        return self.replace or self.rate == 1

    @property
    def revealed(self) -> float:
        """0: no loss is infinite."""
        return 0.0

    @property
    def largest(self) -> float:
        """∞: forward there is no largest loss; backward −log(1 − q) is one."""
        return math.inf

    @property
    def atom(self) -> float:
        """0: the law is smooth."""
        return 0.0

    @property
    def resolved_order(self) -> float:
        """∞: where θμ is large, what counts lies beyond the nodes, and is bounded."""
        return math.inf

    def nodes(self, spacing: float, low: float, high: float) -> Iterator[Nodes]:
        """Yield nodes over z."""
        edges = self._mesh()
        if spacing:
            at = self._position(_lines(spacing, low, high))
            edges = np.union1d(edges, at[np.isfinite(at)])
            edges = edges[(edges >= -self._left) & (edges <= self.mu + _REACH)]
        # Where the loss bends, a panel is narrow if it is so against 1/μ.
        for z, log_weight in _rules(edges, 1 / (200 * max(1.0, 0.25 * self.mu))):
            yield self._loss(z), log_weight + self._log_density(z)

    def log_remainder(self, order: float, backward: bool) -> float:
        """Return log of a bound of ∫ beyond Z = μ + 45 of P·e^(θℓ): ℓ(z) ≤ ℓ(Z) + μ(z − Z).

        Replacing: and 1/(1 − q) to the power θ more. Backward, removing: of Q·e^(−θℓ) beyond −45,
        where e^(−ℓ) ≤ 1/(1 − q).
        """
        bounded = -order * math.log1p(-self.rate) if self.rate < 1 else 0.0
        if backward and not self.replace:
            return bounded + float(log_ndtr(-_REACH))
        alpha, end = order + 1, self.mu + _REACH
        top = float(self._tilt(np.array([self.mu * end - 0.5 * self.mu**2]))[0])
        bound = alpha * (top + self.mu * (0.5 * alpha * self.mu - end))
        bound += float(log_ndtr(alpha * self.mu - end))
        return bound + bounded if self.replace else bound

    @property
    def _left(self) -> float:
        return (self.mu if self.replace else 0.0) + _REACH

    def _mesh(self) -> FloatArray:
        """Return panels of 1/8 where a normal law has mass, and finer ones around the bends."""
        centres = [-self.mu, 0.0, self.mu] if self.replace else [0.0, self.mu]
        count = int(16 * _REACH)
        pieces = [centre + np.linspace(-_REACH, _REACH, count + 1) for centre in centres]
        if self.mu > 4 and self.rate < 1:
            # ℓ bends where both parts of the mixture weigh the same, within a few 1/μ.
            bend = 0.5 * self.mu + (math.log1p(-self.rate) - math.log(self.rate)) / self.mu
            near = np.linspace(-40 / self.mu, 40 / self.mu, 161)
            pieces += [bend + near, -bend + near] if self.replace else [bend + near]
        edges = np.unique(np.concatenate(pieces))
        return edges[(edges >= -self._left) & (edges <= self.mu + _REACH)]

    def _log_density(self, z: FloatArray) -> FloatArray:
        moved = -0.5 * (z - self.mu) ** 2
        if self.rate < 1:
            moved = np.logaddexp(math.log1p(-self.rate) - 0.5 * z**2, math.log(self.rate) + moved)
        density: FloatArray = moved - 0.5 * math.log(2 * math.pi)
        return density

    def _loss(self, z: FloatArray) -> FloatArray:
        if not self.replace:
            return self._tilt(self.mu * z - 0.5 * self.mu**2)
        return self._tilt(self.mu * z - 0.5 * self.mu**2) - self._tilt(
            -self.mu * z - 0.5 * self.mu**2
        )

    def _tilt(self, y: FloatArray) -> FloatArray:
        """Return log(1 + q(e^y − 1)), with all its digits where it is small."""
        if self.rate == 1:
            return y
        if self.rate > 0.5:
            return np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + y)
        small = np.log1p(self.rate * np.expm1(np.minimum(y, 50.0)))
        rest = math.log1p(-self.rate) - math.log(self.rate)
        return np.where(
            y < 50, small, math.log(self.rate) + y + np.log1p(np.exp(rest - np.maximum(y, 50.0)))
        )

    def _position(self, loss: FloatArray) -> FloatArray:
        """Return the z with this loss; −∞ or NaN where there is none."""
        mu, rate = self.mu, self.rate
        if rate == 1:
            return loss / ((2 if self.replace else 1) * mu) + (0.0 if self.replace else 0.5 * mu)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.replace:
                # sinh(μz − ℓ/2) = e^(μ²/2)(1−q)/q·sinh(ℓ/2).
                half = 0.5 * np.abs(loss)
                log_sinh = half + np.log(-0.5 * np.expm1(-2 * half))
                size = log_sinh + 0.5 * mu**2 + math.log1p(-rate) - math.log(rate)
                turn = np.where(
                    size > 20, size + math.log(2), np.arcsinh(np.exp(np.minimum(size, 20.0)))
                )
                return np.sign(loss) * (turn + half) / mu
            low = np.log1p(np.expm1(np.minimum(loss, 50.0)) / rate)
            high = loss - math.log(rate)
            return np.where(loss < 50, low, high) / mu + 0.5 * mu


@dataclass(frozen=True, kw_only=True)
class SampledRows:
    """N(0, 1) noise on a sum that each of k rows enters with probability ``rate``, moving it by μ.

    P = Σ_j Binomial(j; k, q)·N(jμ, 1) against Q = N(0, 1): all k rows of a person leave. It
    dominates every pair whose rows move the sum by at most μ each, in any directions (Ganesh 2024;
    tests/accounting/test_step_laws.py tries others). ℓ increases in z.

    Parameters
    ----------
    mu : float
        How far a row moves the sum, in standard deviations of the noise.
    rate : float
        The probability q with which each row enters the sum, below 1.
    rows : int
        k.
    """

    mu: float
    rate: float
    rows: int

    @property
    def symmetric(self) -> bool:
        """False."""
        return False

    @property
    def revealed(self) -> float:
        """0: no loss is infinite."""
        return 0.0

    @property
    def largest(self) -> float:
        """∞: forward there is no largest loss; backward −k·log(1 − q) is one."""
        return math.inf

    @property
    def atom(self) -> float:
        """0: the law is smooth."""
        return 0.0

    @property
    def resolved_order(self) -> float:
        """∞: what counts at large orders lies beyond the nodes, and is bounded."""
        return math.inf

    def nodes(self, spacing: float, low: float, high: float) -> Iterator[Nodes]:
        """Yield nodes over z."""
        edges = self._mesh()
        if spacing:
            edges = np.union1d(edges, self._positions(_lines(spacing, low, high)))
        for z, log_weight in _rules(edges, 1 / (200 * max(1.0, 0.25 * self.mu))):
            loss = self._loss(z)
            yield loss, log_weight + loss - 0.5 * z**2 - 0.5 * math.log(2 * math.pi)

    def log_remainder(self, order: float, backward: bool) -> float:
        """Return log of a bound of ∫ beyond Z = kμ + 45 of P·e^(θℓ): ℓ(z) ≤ ℓ(Z) + kμ(z − Z).

        Backward: of Q·e^(−θℓ) beyond −45, where e^(−ℓ) ≤ (1 − q)^(−k).
        """
        if backward:
            return -order * self.rows * math.log1p(-self.rate) + float(log_ndtr(-_REACH))
        alpha, slope, end = order + 1, self.rows * self.mu, self.rows * self.mu + _REACH
        top = float(self._loss(np.array([end]))[0])
        bound = alpha * (top + slope * (0.5 * alpha * slope - end))
        return bound + float(log_ndtr(alpha * slope - end))

    def _weights(self) -> tuple[FloatArray, FloatArray]:
        """Return j and the log of its probability."""
        j = np.arange(self.rows + 1.0)
        ways = gammaln(self.rows + 1) - gammaln(j + 1) - gammaln(self.rows - j + 1)
        return j, ways + j * math.log(self.rate) + (self.rows - j) * math.log1p(-self.rate)

    def _mesh(self) -> FloatArray:
        """Return panels of 1/8, and finer ones around the bends of ℓ where they are sharp."""
        end = self.rows * self.mu + _REACH
        pieces = [np.linspace(-_REACH, end, math.ceil(8 * (end + _REACH)) + 1)]
        if self.mu > 4:
            # ℓ bends where two neighbouring parts weigh the same, within a few 1/μ.
            j, log_weight = self._weights()
            bends = (j[:-1] + 0.5) * self.mu - np.diff(log_weight) / self.mu
            near = np.linspace(-40 / self.mu, 40 / self.mu, 161)
            pieces.append((bends[:, None] + near).ravel())
        edges = np.unique(np.concatenate(pieces))
        return edges[(edges >= -_REACH) & (edges <= end)]

    def _loss(self, z: FloatArray) -> FloatArray:
        j, log_weight = self._weights()
        total = np.full(np.shape(z), -math.inf)
        # Most of the mass is near ℓ = 0, where 1 + Σ w(e^y − 1) keeps the digits.
        small = np.zeros(np.shape(z))
        for step, weight in zip(j.tolist(), log_weight.tolist(), strict=True):
            y = step * self.mu * (z - 0.5 * step * self.mu)
            total = np.logaddexp(total, weight + y)
            small += math.exp(weight) * np.expm1(np.minimum(y, 50.0))
        near = np.abs(total) < 0.5
        loss: FloatArray = np.where(near, np.log1p(np.where(near, small, 0.0)), total)
        return loss

    def _positions(self, loss: FloatArray) -> FloatArray:
        """Return each z with one of these losses that lies between the ends of the mesh."""
        mesh = self._mesh()
        known = self._loss(mesh)
        inside: FloatArray = loss[(loss > known[0]) & (loss < known[-1])]
        if not len(inside):
            return inside
        at = np.searchsorted(known, inside)
        low, high = mesh[at - 1], mesh[at]
        for _ in range(50):
            middle = 0.5 * (low + high)
            above = self._loss(middle) > inside
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        position: FloatArray = low
        return position


@dataclass(frozen=True, kw_only=True)
class NormLaplaceStep:
    """Noise of density ∝ exp(−∥b∥) in d dimensions on a value that the row moves by ``separation``.

    d ≥ 2: ℓ = t·cos ψ with the density of :mod:`expost.noise._angle`; d = 1: half of the mass is at
    t, ½e^(−t) at −t, and ¼e^((ℓ−t)/2) lies between.

    Parameters
    ----------
    separation : float
        t = β·distance, in units of the noise's scale 1/β.
    dimension : int
        The number d of coordinates of the noise.
    """

    separation: float
    dimension: int

    @property
    def symmetric(self) -> bool:
        """True: the noise is symmetric."""
        return True

    @property
    def revealed(self) -> float:
        """0: norm-Laplace noise is pure."""
        return 0.0

    @property
    def largest(self) -> float:
        """t."""
        return self.separation

    @property
    def atom(self) -> float:
        """t where d = 1, else 0."""
        return self.separation if self.dimension == 1 else 0.0

    @property
    def resolved_order(self) -> float:
        """The order at which e^(θt cos ψ) is as wide as four panels."""
        if self.dimension == 1:
            return 40.0
        return 16 * (1 + self.dimension / self.separation)

    def log_remainder(self, order: float, backward: bool) -> float:
        """Return −∞: nothing is left out."""
        return -math.inf

    def nodes(self, spacing: float, low: float, high: float) -> Iterator[Nodes]:
        """Yield nodes over ψ, or over ℓ where d = 1."""
        t = self.separation
        lines = _lines(spacing, max(low, -t), min(high, t))
        if self.dimension == 1:
            yield np.array([-t, t]), np.array([-t, 0.0]) - math.log(2)
            mesh = np.linspace(-t, t, 2 * math.ceil(8 * min(t, 1e3) + 8) + 1)
            for loss, log_weight in _rules(np.union1d(mesh, lines), 0.04):
                yield loss, log_weight + 0.5 * (loss - t) - math.log(4)
            return
        width = 0.125 / math.sqrt(self.dimension + t)
        mesh = np.linspace(0.0, math.pi, math.ceil(math.pi / width) + 1)
        # Near ±t the arc cosine loses half of the digits; twice the arc sine does not.
        share = np.clip(0.5 * (1 - np.abs(lines) / t), 0.0, 0.5)
        turn = 2 * np.arcsin(np.sqrt(share))
        edges = np.union1d(mesh, np.where(lines > 0, turn, math.pi - turn))
        log_total = self._log_total(mesh)
        for angle, log_weight in _rules(edges, 0.04 * width):
            loss = t * (1 - 2 * np.sin(0.5 * angle) ** 2)
            yield loss, log_weight + self._log_height(angle) - log_total

    def _log_height(self, angle: FloatArray) -> FloatArray:
        t, d = self.separation, self.dimension
        ratio = float(ratio_below(d - 2, np.array([t / 2]))[0])
        sine = np.sin(angle)
        height: FloatArray = np.log1p(t * ratio / (2 * (d - 1)) * sine**2)
        height = height - t * np.sin(0.5 * angle) ** 2
        return height + (d - 2) * np.log(sine) if d > 2 else height

    def _log_total(self, mesh: FloatArray) -> float:
        parts = [log_weight + self._log_height(angle) for angle, log_weight in _rules(mesh, 0.0)]
        return float(np.logaddexp.reduce(np.concatenate(parts)))


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse:
    """The worst (ε, δ) mechanism: it reveals the row with probability δ, else has odds e^ε.

    It dominates every (ε, δ) mechanism (Kairouz, Oh and Viswanath 2015).

    Parameters
    ----------
    epsilon : float
        ε ≥ 0, the log odds of the answers that do not reveal the row.
    delta : float, default=0.0
        The probability δ with which the row is revealed.
    """

    epsilon: float
    delta: float = 0.0

    @property
    def symmetric(self) -> bool:
        """True: both worlds have the same law."""
        return True

    @property
    def revealed(self) -> float:
        """δ, or 1 where ε = ∞."""
        return 1.0 if self.epsilon == math.inf else self.delta

    @property
    def largest(self) -> float:
        """ε."""
        return 0.0 if self.epsilon == math.inf else self.epsilon

    @property
    def atom(self) -> float:
        """ε."""
        return self.largest

    @property
    def resolved_order(self) -> float:
        """∞: two atoms are exact."""
        return math.inf

    def log_remainder(self, order: float, backward: bool) -> float:
        """Return −∞: nothing is left out."""
        return -math.inf

    def nodes(self, spacing: float, low: float, high: float) -> Iterator[Nodes]:
        """Yield two nodes."""
        if self.revealed < 1:
            truth = -math.log1p(math.exp(-self.epsilon))
            masses = np.array([truth - self.epsilon, truth]) + math.log1p(-self.delta)
            yield np.array([-self.epsilon, self.epsilon]), masses


def _lines(spacing: float, low: float, high: float) -> FloatArray:
    """Return the multiples of ``spacing`` from low to high; none where it is 0."""
    if not spacing:
        return np.zeros(0)
    first, last = math.ceil(low / spacing), math.floor(high / spacing)
    lines: FloatArray = spacing * np.arange(first, last + 1, dtype=np.float64)
    return lines


def _rules(edges: FloatArray, narrow: float) -> Iterator[Nodes]:
    """Yield Gauss–Legendre nodes and log weights on panels, in blocks; few nodes on narrow ones."""
    width = np.diff(edges)
    for count, chosen in ((_NODES, width >= narrow), (_FEW_NODES, width < narrow)):
        points, weights = gauss_legendre(count)
        starts, widths = edges[:-1][chosen], width[chosen]
        for first in range(0, len(starts), _BLOCK):
            half = 0.5 * widths[first : first + _BLOCK, None]
            at = (starts[first : first + _BLOCK, None] + half) + half * points
            with np.errstate(divide="ignore"):
                log_weight = np.log(half * weights)
            yield at.ravel(), log_weight.ravel()
