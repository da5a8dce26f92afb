"""Rényi divergences of composed releases, at real orders, and what ε they give.

Conventions
-----------
α, θ    the order and α − 1 > 0.
K(θ)    log E_P[e^(θℓ)] of the composed loss = θ·D_α(P∥Q): it is additive over releases, also
        where each is chosen after seeing those before (Mironov 2017, Prop. 1). Of the two
        directions the worse one counts.
δ       what is left of it after what the releases reveal outright, m = 1 − Π(1 − δᵢ).

Every order gives a valid bound; the best one is a root of an increasing function:

    Mironov 2017, Prop. 3 (D5.3 4.3)        ε = (K + log(1/δ))/θ,        θK' − K = log(1/δ)
    Canonne, Kamath, Steinke 2020, Prop. 12,
    as in dp_accounting                     ε = (K + log(1/δ) + θ log θ − (1+θ) log(1+θ))/θ,
                                            θK' − K + log(1 + θ) = log(1/δ)

The first is larger and proves more: P(ℓ > ε) ≤ δ for every pair of neighbours (Markov's
inequality), which no (ε, δ) guarantee implies (erratum 10). For Gaussian noise alone
K = θ(θ+1)μ²/2, and the first is μ²/2 + μ√(2 log(1/δ)) at α = 1 + √(2 log(1/δ))/μ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from expost._numerics import bracket_root
from expost.accounting.laws import SampledGaussian, StepLaw
from expost.types import FloatArray

__all__ = [
    "Cumulants",
    "RenyiBound",
    "Steps",
    "best_order",
    "estimated_delta",
    "estimated_true_positive_rate",
    "gathered",
    "mironov_epsilon",
    "order_at",
    "oriented",
    "renyi_advantage",
    "renyi_divergence",
    "renyi_true_positive_rate",
    "revealed",
    "saving",
    "tight_delta",
    "tight_epsilon",
]

Steps = tuple[tuple[StepLaw, int], ...]

_HALVINGS = 24
# Orders are sought up to here, in units of the composed loss's own scale.
_LARGEST_ORDER = 1e30


@dataclass(frozen=True, kw_only=True)
class RenyiBound:
    """A bound and the order α that gives it."""

    value: float
    order: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Cumulants:
    """K and its first two derivatives, of nodes counted ``count`` times each."""

    parts: tuple[tuple[FloatArray, FloatArray, int], ...]

    def at(self, order: float) -> tuple[float, float, float]:
        """Return (K, K', K'') at θ = ``order`` ≥ 0."""
        total = np.zeros(3)
        for losses, log_masses, count in self.parts:
            exponent = log_masses + order * losses
            peak = float(np.max(exponent))
            weight = np.exp(exponent - peak)
            mass = float(weight.sum())
            mean = float(weight @ losses) / mass
            spread = float(weight @ (losses - mean) ** 2) / mass
            total += count * np.array([peak + math.log(mass), mean, spread])
        return float(total[0]), float(total[1]), float(total[2])


def revealed(steps: Steps) -> float:
    """Return 1 − Π(1 − δᵢ): the probability that one of the releases reveals the row."""
    if any(law.revealed == 1 for law, _ in steps):
        return 1.0
    kept = sum(count * math.log1p(-law.revealed) for law, count in steps)
    return -math.expm1(kept) if kept < 0 else 0.0


def renyi_divergence(steps: Steps, order: float) -> float:
    """Return D_α of the composed releases for α = ``order`` > 1; infinite if any δᵢ > 0.

    Parameters
    ----------
    steps : Steps
        The laws of the releases, and the number of releases of each.
    order : float
        α > 1.

    Returns
    -------
    float
        D_α in nats, the larger of both directions.
    """
    if revealed(steps) > 0:
        return math.inf
    theta = order - 1
    return max(_log_moment(steps, back, theta) for back in _directions(steps)) / theta


def mironov_epsilon(steps: Steps, delta: float) -> RenyiBound:
    """Return Mironov's ε at ``delta`` > 0: P(ℓ > ε) ≤ δ in both worlds.

    Parameters
    ----------
    steps : Steps
        The laws of the releases, and the number of releases of each.
    delta : float
        δ in (0, 1).

    Returns
    -------
    RenyiBound
        ε, and the order α that gives it.
    """
    return _epsilon(steps, delta, lambda theta: 0.0, lambda theta: 0.0)


def tight_epsilon(steps: Steps, delta: float) -> RenyiBound:
    """Return the ε of dp_accounting's conversion at ``delta`` > 0, at least 0.

    Parameters
    ----------
    steps : Steps
        The laws of the releases, and the number of releases of each.
    delta : float
        δ in (0, 1).

    Returns
    -------
    RenyiBound
        ε, and the order α that gives it.
    """
    bound = _epsilon(steps, delta, saving, math.log1p)
    return RenyiBound(value=max(bound.value, 0.0), order=bound.order)


def tight_delta(steps: Steps, epsilon: float) -> float:
    """Return δ at ``epsilon`` ≥ 0 by dp_accounting's conversion, at most 1."""
    revealing = revealed(steps)
    if revealing == 1:
        return 1.0
    return min(1.0, revealing + _delta(steps, epsilon, _log_moment) * (1 + 1e-9))


def renyi_advantage(steps: Steps) -> float:
    """Bound δ(0) by :func:`tight_delta` and √(1 − e^(−D)), D → KL (Bretagnolle, Huber 1979)."""
    revealing = revealed(steps)
    if revealing == 1 or not steps:
        return revealing
    if revealing > 0:
        return tight_delta(steps, 0.0)
    spread = max(_cumulants(steps, back).at(0.0)[2] for back in _directions(steps))
    theta = 1e-3 / (1 + math.sqrt(spread))
    divergence = min(_log_moment(steps, back, theta) for back in _directions(steps)) / theta
    return min(tight_delta(steps, 0.0), math.sqrt(-math.expm1(-divergence)))


def estimated_delta(steps: Steps, epsilon: float) -> float:
    """Estimate δ by the nodes alone: no bound, but close where the bound is loose."""
    return _delta(steps, epsilon, _log_moment_of_nodes)


def renyi_true_positive_rate(steps: Steps, false_positive_rate: float) -> float:
    """Bound P(S) by (e^K Q(S)^θ)^(1/(1+θ)) for 0 < Q(S) < 1 (Hölder's inequality)."""
    revealing = revealed(steps)
    if revealing == 1:
        return 1.0
    return min(
        1.0, revealing + _true_positive_rate(steps, false_positive_rate, _log_moment) * (1 + 1e-9)
    )


def estimated_true_positive_rate(steps: Steps, false_positive_rate: float) -> float:
    """Estimate the true-positive rate by the nodes alone; no bound."""
    return _true_positive_rate(steps, false_positive_rate, _log_moment_of_nodes)


def best_order(cumulants: Cumulants, log_inverse_delta: float) -> float:
    """Return θ of the tight conversion for the cumulants of one direction."""
    return _root(lambda at: _excess(cumulants, at, math.log1p) - log_inverse_delta, cumulants)


def order_at(cumulants: Cumulants, epsilon: float) -> float:
    """Return θ of the least bound of δ(ε), for the cumulants of one direction."""
    return _root(lambda at: cumulants.at(at)[1] - math.log1p(1 / at) - epsilon, cumulants)


def saving(theta: float) -> float:
    """Return θ log θ − (1+θ) log(1+θ) ≤ 0, log of the largest e^(−θx)(1 − e^(−x)) over x > 0."""
    return -theta * math.log1p(1 / theta) - math.log1p(theta)


def _epsilon(
    steps: Steps,
    delta: float,
    saved: Callable[[float], float],
    slope: Callable[[float], float],
) -> RenyiBound:
    left = delta - revealed(steps)
    if not left > 0:
        return RenyiBound(value=math.inf, order=math.inf)
    target = -math.log(left)
    worst = RenyiBound(value=-math.inf, order=math.inf)
    for back in _directions(steps):
        cumulants = _cumulants(steps, back)

        def excess(at: float, cumulants: Cumulants = cumulants) -> float:
            return _excess(cumulants, at, slope) - target

        value, theta = min(
            ((_log_moment(steps, back, theta) + target + saved(theta)) / theta, theta)
            for theta in _orders(_root(excess, cumulants))
        )
        if value > worst.value:
            worst = RenyiBound(value=value, order=1 + theta)
    return worst


_Moment = Callable[[Steps, bool, float], float]


def _delta(steps: Steps, epsilon: float, moment: _Moment) -> float:
    """Return the least e^(K − θε)·θ^θ/(1+θ)^(1+θ) over θ."""
    worst = -math.inf
    for back in _directions(steps):
        best = order_at(_cumulants(steps, back), epsilon)
        least = min(
            moment(steps, back, theta) + saving(theta) - theta * epsilon for theta in _orders(best)
        )
        worst = max(worst, least)
    return math.exp(min(worst, 0.0))


def _true_positive_rate(steps: Steps, rate: float, moment: _Moment) -> float:
    log_rate = math.log(rate)
    worst = -math.inf
    for back in _directions(steps):
        cumulants = _cumulants(steps, back)

        def slope(at: float, cumulants: Cumulants = cumulants) -> float:
            total, mean, _ = cumulants.at(at)
            return (1 + at) * mean - total + log_rate

        least = min(
            (moment(steps, back, theta) + theta * log_rate) / (1 + theta)
            for theta in _orders(_root(slope, cumulants))
        )
        worst = max(worst, least)
    return math.exp(min(worst, 0.0))


def _excess(cumulants: Cumulants, theta: float, slope: Callable[[float], float]) -> float:
    """Return θK' − K and what the conversion adds; increasing in θ."""
    moment, mean, _ = cumulants.at(theta)
    return theta * mean - moment + slope(theta)


def _root(function: Callable[[float], float], cumulants: Cumulants) -> float:
    """Return θ > 0 where an increasing function crosses 0, to a few digits: any θ gives a bound."""
    spread = cumulants.at(0.0)[2]
    start = 1 / math.sqrt(spread) if spread > 0 else 1.0
    low = high = start
    while not function(high) > 0 and high < start * _LARGEST_ORDER:
        low, high = high, 8 * high
    while function(low) > 0 and low > start / _LARGEST_ORDER:
        low, high = low / 8, low
    below, _ = bracket_root(lambda at: np.array(function(float(at))), low, high, halvings=_HALVINGS)
    return float(below)


def _orders(best: float) -> list[float]:
    """Return the best θ by the nodes, and smaller ones: at large orders the remainder decides."""
    return [best * 2.0**-k for k in range(40)]


def _log_moment(steps: Steps, backward: bool, theta: float) -> float:
    """Return K(θ), never too small: the remainder of the nodes and their rounding are added."""
    total = 0.0
    for law, count in steps:
        if isinstance(law, SampledGaussian) and law.rate == 1:
            mu = 2 * law.mu if law.replace else law.mu
            moment = 0.5 * theta * (theta + 1) * mu**2
        else:
            moment = _moment(law, backward, theta)
            moment = float(np.logaddexp(moment, law.log_remainder(theta, backward)))
        total += count * (moment + 1e-13 * abs(moment))
    return total


def _log_moment_of_nodes(steps: Steps, backward: bool, theta: float) -> float:
    return sum(count * _moment(law, backward, theta) for law, count in steps)


def _moment(law: StepLaw, backward: bool, theta: float) -> float:
    """Return log E[e^(θℓ)] over the finite losses, by the nodes; with all its digits near 0.

    Past the order that they resolve, it grows by the largest loss at most.
    """
    if theta > law.resolved_order:
        resolved = law.resolved_order
        return _moment(law, backward, resolved) + (theta - resolved) * law.largest
    losses, log_masses = gathered(law, backward)
    exponent = theta * losses
    if float(np.max(exponent)) < 1:
        # The masses add up to 1 − revealed: what is left is of the size of θℓ.
        return math.log1p(float(np.exp(log_masses) @ np.expm1(exponent)) - law.revealed)
    return float(np.logaddexp.reduce(log_masses + exponent))


def _directions(steps: Steps) -> tuple[bool, ...]:
    return (False,) if all(law.symmetric for law, _ in steps) else (False, True)


@lru_cache(maxsize=32)
def _cumulants(steps: Steps, backward: bool) -> Cumulants:
    return Cumulants(parts=tuple((*gathered(law, backward), count) for law, count in steps))


@lru_cache(maxsize=32)
def gathered(law: StepLaw, backward: bool) -> tuple[FloatArray, FloatArray]:
    """Return all nodes of a law, unaligned, in increasing order of the loss."""
    blocks = [oriented(block, backward) for block in law.nodes(0.0, 0.0, 0.0)]
    losses, log_masses = (np.concatenate(each) for each in zip(*blocks, strict=True))
    order = np.argsort(losses, kind="stable")
    losses, log_masses = losses[order], log_masses[order]
    losses.setflags(write=False)
    log_masses.setflags(write=False)
    return losses, log_masses


def oriented(nodes: tuple[FloatArray, FloatArray], backward: bool) -> tuple[FloatArray, FloatArray]:
    """Return Nodes of ℓ under P, or of −ℓ under Q, whose masses are p e^(−ℓ)."""
    losses, log_masses = nodes
    return (-losses, log_masses - losses) if backward else nodes
