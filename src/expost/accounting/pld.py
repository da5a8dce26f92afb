"""Figures of composed releases from their privacy-loss distribution, each a bound.

Conventions
-----------
As in :mod:`expost.accounting.curve`. All figures follow from the curve δ(ε), the larger of the two
directions, and hold for every pair of neighbours that the releases' pairs dominate, also where a
release is chosen after seeing those before it, and for whatever is computed from the releases.

TPR(u)   inf over ε ≥ 0 of δ(ε) + e^ε u and of 1 − e^(−ε)(1 − δ(ε) − u).
loss(δ₀) the least b with P(ℓ > b) ≤ δ₀ for *every* such pair. Of S = {ℓ > b} is known that
         P(S) > e^b Q(S) and P(S) ≤ TPR(Q(S)), and a pair that reveals S alone reaches it. So b is
         log(δ₀/u) with TPR(u) = δ₀: the infimum of ε − log(1 − δ(ε)/δ₀) and
         −log[(1 − δ(ε) − (1 − δ₀)e^ε)/δ₀] (erratum 10; Guarantee.loss). The (1 − δ₀)-quantile of
         the dominating pair's own loss is smaller, and no bound: later releases may depend on
         earlier ones (a row whose gradient vanishes once it is learnt keeps its evidence), and a
         release may be merged with another.

A curve is tight near the δ that it was made for, so each figure searches for its own: from the
level that Rényi divergences suggest, downwards.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from expost._numerics import ROUNDOFF
from expost.accounting.curve import Effort, LossCurve, loss_curve
from expost.accounting.rdp import (
    Steps,
    estimated_delta,
    estimated_true_positive_rate,
    mironov_epsilon,
    renyi_true_positive_rate,
    revealed,
    tight_delta,
    tight_epsilon,
)
from expost.errors import ConvergenceError
from expost.types import FloatArray

__all__ = ["EPSILON_TOLERANCE", "LEAST_DELTA", "PrivacyLoss", "summed"]

# Relative width of the interval of ε at which no finer grid is tried.
EPSILON_TOLERANCE = 1e-3
# What share of δ each refinement takes for infinite: rare, large losses need a coarse grid.
_CUTS = (1e-4, 1e-2)
# Below it, figures come from Rényi divergences alone.
LEAST_DELTA = 1e-300
_LOWEST_LEVEL = -300
_LEVELS = 12
_ROUNDING = 1e-6

_Figure = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True, kw_only=True)
class PrivacyLoss:
    """Releases of the given laws, so many of each, all on the same data; at least one.

    Parameters
    ----------
    steps : Steps
        The laws of the releases, and the number of releases of each.
    draft : bool, default=False
        Whether a coarser grid is enough. Bounds hold as before, and are wider.

    Formal guarantees
    -----------------
    ``epsilon_interval`` and ``delta_interval`` hold the figure of the dominating pair; all others
    return an upper bound that is at most that of the Rényi divergences. The grid is refined where
    the interval of ε is wider than 1e-3 of itself, twice at most; that is a few seconds, 500 MiB.
    A ``draft`` has 2.5 times fewer points and is not refined: for a search.
    """

    steps: Steps
    draft: bool = False

    @property
    def largest(self) -> float:
        """The largest finite loss there can be, infinite where there is none."""
        return summed(count * law.largest for law, count in self.steps)

    @property
    def revealed(self) -> float:
        """The probability that one of the releases reveals the row."""
        return revealed(self.steps)

    def epsilon(self, delta: float) -> float:
        """Return the least ε ≥ 0 that provably keeps δ(ε) ≤ ``delta``, 0 ≤ δ < 1.

        Parameters
        ----------
        delta : float
            δ in [0, 1).

        Returns
        -------
        float
            ε, rounded up.
        """
        return self.epsilon_interval(delta)[1]

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """Return (low, high): no ε < low keeps ``delta``, and high does.

        Parameters
        ----------
        delta : float
            δ in [0, 1).

        Returns
        -------
        tuple[float, float]
            The lower and the upper end.
        """
        if delta < self.revealed:
            return math.inf, math.inf
        if delta == self.revealed:
            return (self.largest if delta == 0 else 0.0), self.largest
        low, high = 0.0, min(self.largest, tight_epsilon(self.steps, delta).value)
        if delta < LEAST_DELTA or high == 0:
            return low, high
        for curves in _curves(self.steps, _level(delta), self.draft):
            low = max(low, *(curve.epsilon_below(delta) for curve in curves))
            high = min(high, max(curve.epsilon(delta) for curve in curves))
        return _interval(low, high)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of δ(ε), ε ≥ 0.

        Parameters
        ----------
        epsilon : float
            ε ≥ 0.

        Returns
        -------
        float
            The bound on δ.
        """
        return self.delta_interval(epsilon)[1]

    def delta_interval(self, epsilon: float) -> tuple[float, float]:
        """Return (low, high) around δ(ε).

        Parameters
        ----------
        epsilon : float
            ε ≥ 0.

        Returns
        -------
        tuple[float, float]
            The lower and the upper end.
        """
        revealing = self.revealed
        if revealing == 1 or epsilon >= self.largest:
            return revealing, revealing
        low, high = revealing, tight_delta(self.steps, epsilon)
        walk = _Walk(min(high, estimated_delta(self.steps, epsilon)))
        for level in walk:
            for curves in _curves(self.steps, level, self.draft):
                low = max(low, *(curve.delta_below(epsilon) for curve in curves))
                high = min(high, float(_worst(curves, np.array([epsilon]))[0]))
            walk.record(high, sharp=low >= 0.5 * high)
        return _interval(low, high)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return an upper bound of TPR(u), 0 ≤ u ≤ 1.

        Parameters
        ----------
        false_positive_rate : float
            The share u of absent rows that the test accuses, in [0, 1].

        Returns
        -------
        float
            The bound on the share of present rows that the best test accuses.
        """
        u, revealing = false_positive_rate, self.revealed
        if u == 0:
            return revealing
        if revealing == 1 or u == 1:
            return 1.0

        def rate(epsilon: FloatArray, delta: FloatArray) -> FloatArray:
            rising = delta + np.exp(np.minimum(epsilon + math.log(u), 1.0))
            rates: FloatArray = 1 - np.exp(-epsilon) * np.maximum(1 - delta - u, 0.0)
            return np.minimum(rising, rates)

        bound = renyi_true_positive_rate(self.steps, u)
        least = self._least(
            rate, bound, _level(min(bound, estimated_true_positive_rate(self.steps, u)))
        )
        return min(max(u, least), 1.0)

    def loss(self, delta: float) -> float:
        """Return the least b ≥ 0 with a proof of P(ℓ > b) ≤ ``delta`` for every pair, 0 ≤ δ < 1.

        Parameters
        ----------
        delta : float
            δ in [0, 1).

        Returns
        -------
        float
            b in nats, rounded up.
        """
        if delta == 0 and self.revealed == 0:
            return self.largest
        if not delta > self.revealed:
            return math.inf

        def bound(epsilon: FloatArray, curve: FloatArray) -> FloatArray:
            with np.errstate(divide="ignore", over="ignore"):
                first = epsilon - np.log1p(-np.minimum(curve / delta, 1.0))
                left = (1 - curve - (1 - delta) * np.exp(np.minimum(epsilon, 700.0))) / delta
                second = -np.log(np.maximum(left, 0.0))
            return np.maximum(np.minimum(first, second), 0.0)

        if self.revealed == 0:
            known = max(min(self.largest, mironov_epsilon(self.steps, delta).value), 0.0)
        else:
            # A release that reveals the row with probability δ' can as well spread that over finite
            # losses, past the largest one of the dominating pair: only the curve bounds every pair
            # (erratum 10).
            share = self.revealed / delta * (1 + 4 * ROUNDOFF)
            known = self.largest - math.log1p(-share) if share < 1 else math.inf
        if delta < LEAST_DELTA:
            return known
        # Never below ε(δ), whose own bound may be a little larger.
        return max(self._least(bound, known, _level(delta)), self.epsilon(delta))

    def _least(self, figure: _Figure, known: float, level: int) -> float:
        """Return the least of ``figure(ε, δ(ε))`` over ε, and of ``known``, rounded up."""
        best = known
        walk = _Walk(10.0**level)
        for level in walk:
            deepest, sharp = 1.0, False
            for curves in _curves(self.steps, level, self.draft):
                epsilon = np.concatenate([[0.0], *(curve.epsilons for curve in curves)])
                delta = _worst(curves, epsilon)
                values = figure(epsilon, delta)
                index = int(np.argmin(values))
                best = min(best, float(values[index]))
                deepest = min(deepest, float(delta[index]))
                sharp |= bool(epsilon[index] < curves[0].epsilons[-1])
            walk.record(deepest, sharp=sharp)
        return min(best * (1 + 16 * ROUNDOFF), known)


class _Walk:
    """The levels to visit, from a first guess, until a recorded δ is of a visited level.

    Where that δ is not sharp, the search continues downwards in growing steps: a curve that ends
    before the needed ε, or rounds more than there is, proves only that δ is smaller.
    """

    def __init__(self, guess: float) -> None:
        self._next: int | None = _level(guess)
        self._visited: set[int] = set()
        self._step = 1
        self._least = math.inf
        self._idle = 0

    def __iter__(self) -> Iterator[int]:
        for _ in range(_LEVELS):
            if self._next is None:
                return
            self._visited.add(self._next)
            yield self._next

    def record(self, delta: float, *, sharp: bool) -> None:
        """Record the δ of the level that came last."""
        following, deepest = _level(delta), min(self._visited)
        # After too deep a step, the search returns.
        if not sharp and (following < deepest or following in self._visited):
            following = max(min(following, deepest - self._step), _LOWEST_LEVEL)
            self._step *= 2
            self._idle += delta > 0.5 * self._least
            self._least = min(self._least, delta)
        self._next = None if following in self._visited or self._idle > 2 else following


def _interval(low: float, high: float) -> tuple[float, float]:
    """Return both bounds; raise if they contradict each other."""
    if not low <= high * (1 + _ROUNDING):
        raise ConvergenceError(
            f"the bounds {low!r} and {high!r} of the privacy-loss distribution contradict each"
            " other: the parameters are too extreme; use less extreme ones."
        )
    return min(low, high), high


def summed(losses: Iterable[float]) -> float:
    """Return the sum, exactly rounded; infinite where it is past float64."""
    try:
        return math.fsum(losses)
    except OverflowError:
        return math.inf


@lru_cache(maxsize=32)
def _curves(steps: Steps, level: int, draft: bool) -> tuple[tuple[LossCurve, ...], ...]:
    """Return curves near δ = 10^level for each direction, repeated with more effort if needed."""
    releases = sum(count for _, count in steps)
    spacing = (2.5 if draft else 1.0) * min(0.01, 8e-4 * math.sqrt(releases))
    directions = (False,) if all(law.symmetric for law, _ in steps) else (False, True)
    log_delta = level * math.log(10)
    first = tuple(
        loss_curve(steps, back, log_delta, Effort(spacing=spacing)) for back in directions
    )
    attempts = [first]
    for cut in () if draft else _CUTS:
        if _relative_gap(attempts, level) <= EPSILON_TOLERANCE:
            break
        finer = []
        for back, *tried in zip(directions, *attempts, strict=True):
            target = min(curve.epsilon(10.0 ** (level + 0.5)) for curve in tried)
            effort = Effort(
                spacing=spacing / 4,
                cut=cut,
                target=target if target < math.inf else tight_epsilon(steps, 10.0**level).value,
            )
            finer.append(loss_curve(steps, back, log_delta, effort))
        attempts.append(tuple(finer))
    return tuple(attempts)


def _relative_gap(attempts: list[tuple[LossCurve, ...]], level: int) -> float:
    """Return the width of the interval of ε mid-level, relative to ε at its lower end."""
    middle = 10.0 ** (level + 0.5)
    high = min(max(curve.epsilon(middle) for curve in curves) for curves in attempts)
    low = max(max(curve.epsilon_below(middle) for curve in curves) for curves in attempts)
    scale = min(max(curve.epsilon(10.0**level) for curve in curves) for curves in attempts)
    if high == 0 or not scale < math.inf:
        return 0.0 if high == 0 else math.inf
    return (high - low) / scale


def _level(delta: float) -> int:
    """Return the integer n with 10ⁿ ≤ δ < 10ⁿ⁺¹, kept to what float64 holds."""
    if not delta > LEAST_DELTA:
        return _LOWEST_LEVEL
    return min(math.floor(math.log10(delta)), -1)


def _worst(curves: tuple[LossCurve, ...], epsilon: FloatArray) -> FloatArray:
    deltas: FloatArray = np.maximum.reduce([curve.deltas(epsilon) for curve in curves])
    return deltas
