"""The privacy curve of composed releases, near one δ: a bound from above and one from below.

Conventions
-----------
h, k     the spacing of the grid and a label on it: the loss kh.
L        the composed loss Σℓ, under P.
above    Each ℓ in [kh, (k+1)h] is moved to one of the ends, so that the masses of P and of Q both
         stay what they are ('connect the dots', Doroshenko et al. 2022): the pair on the grid,
         L⁺, dominates the true one, δ⁺(ε) ≥ δ(ε).
below    The label alone, released instead of ℓ, is a post-processing: its pair is dominated. Label
         k then has the loss kh + r_k, r_k = log(p_k/q_k) − kh with q_k the true mass of Q; so
         L⁻ = L⁺ + Σr, and
             δ(ε) ≥ δ⁺(ε + c) − P(Σr < −c, L⁺ > ε + c).
         r is of second order in h: so is the gap between the two bounds.
θ        The masses are tilted to p e^(θkh)/Z before they are convolved: what the Fourier transform
         rounds is then small against what is needed, also where that is 1e-300.
errors   of the transform, of the window and of the largest losses, which are cut off, are added to
         δ⁺ and taken off from the bound below.
"""

import math
from dataclasses import dataclass

import numpy as np

from expost._numerics import ROUNDOFF
from expost.accounting.grid import (
    Labels,
    Window,
    anchored,
    chernoff,
    convolved,
    head_of,
    labels_of,
    span_of,
    window_of,
)
from expost.accounting.rdp import Cumulants, Steps, best_order, order_at, revealed, saving
from expost.errors import ConvergenceError
from expost.types import FloatArray

__all__ = ["Effort", "LossCurve", "loss_curve"]

# Points of the composed law's window, and labels of one release; 2²¹ is about 100 MiB at work.
_LARGEST_WINDOW = 2**21
_MOST_LABELS = 2**19
# Shares, of the tilted mass that makes up δ, that may lie outside of the window, be rounded up to
# the least label that is kept, and have an r that is not bounded.
_OUTSIDE = 1e-10
_LUMPED = 1e-8
_STRAY = 1e-6
_LARGEST_EXPONENT = 1e9
_STEEPEST = 10.0
# Exponents of the tilt that are taken off again: float64 ends at 709.
_LARGEST_UNTILT = 600.0
# Points that are kept.
_KEPT = 2**14


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The precision of a curve; each choice gives valid bounds.

    Parameters
    ----------
    spacing : float
        The spacing of the grid, in standard deviations of one (average) release.
    cut : float, default=1e-07
        The share of δ that the largest losses may have together and count as infinite.
    target : float, optional
        An ε near ε(δ), where it is known; the tilt is then aimed at it, which is better where
        single releases decide over the sum, and the errors are kept small against what is left
        there.
    """

    spacing: float
    cut: float = 1e-7
    target: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class LossCurve:
    """δ⁺ and a lower bound of δ at increasing ε ≥ 0, in units of e^``log_scale``.

    ``lower[i]`` bounds δ(``epsilons[i] − shift``) from below. To the left of the first point ε₀,
    δ(ε) ≤ δ(ε₀) + ``reach``·(1 − e^(ε−ε₀)), with reach = E_P[min(1, e^(ε₀−L))] ≤ 1.
    """

    epsilons: FloatArray
    upper: FloatArray
    lower: FloatArray
    reach: float
    shift: float
    log_scale: float
    points: int

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Return δ⁺(ε), linear in e^ε between the points: a chord of a convex curve lies above."""
        index = np.searchsorted(self.epsilons, epsilons, side="right") - 1
        left = np.clip(index, 0, None)
        right = np.minimum(left + 1, len(self.epsilons) - 1)
        gap = self.epsilons[right] - self.epsilons[left]
        over = np.clip(epsilons - self.epsilons[left], 0.0, gap)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.exp(over - gap) * np.expm1(-over) / np.expm1(-gap)
            scaled = self.upper[left] + share * (self.upper[right] - self.upper[left])
        scaled = np.where(gap > 0, scaled, self.upper[left])
        with np.errstate(divide="ignore"):
            between = np.exp(np.minimum(np.log(scaled) + self.log_scale, 0.0))
        before = self.epsilons[0] - np.minimum(epsilons, self.epsilons[0])
        deltas: FloatArray = np.minimum(between - self.reach * np.expm1(-before), 1.0)
        return deltas

    def epsilon(self, delta: float) -> float:
        """Return the least ε ≥ 0 with δ⁺(ε) ≤ ``delta``; infinite where the curve ends above it."""
        target = self._scaled(delta)
        first = float(self.epsilons[0])
        if self.upper[0] <= target:
            room = (delta - float(self.deltas(self.epsilons[:1])[0])) * (1 - 8 * ROUNDOFF)
            return max(first + math.log1p(-room / self.reach), 0.0) if room < self.reach else 0.0
        if not self.upper[-1] <= target:
            return math.inf
        # The last point above the target.
        last = int(np.searchsorted(-self.upper, -target, side="left")) - 1
        left, right = float(self.epsilons[last]), float(self.epsilons[last + 1])
        if right - left > 30:
            return right
        high, low = float(self.upper[last]), float(self.upper[last + 1])
        share = min((high - target) / (high - low), 1.0)
        crossing = left + math.log1p(share * math.expm1(right - left))
        return min(crossing * (1 + 8 * ROUNDOFF), right)

    def epsilon_below(self, delta: float) -> float:
        """Return an ε ≥ 0 with δ(ε) ≥ ``delta`` where it is positive: no smaller ε is enough."""
        reached = np.flatnonzero(self.lower >= self._scaled(delta))
        if not len(reached):
            return 0.0
        return max(float(self.epsilons[reached[-1]]) - self.shift, 0.0)

    def delta_below(self, epsilon: float) -> float:
        """Return a lower bound of δ(ε)."""
        index = int(np.searchsorted(self.epsilons, epsilon + self.shift, side="left"))
        if index == len(self.epsilons) or not self.lower[index] > 0:
            return 0.0
        return _unscaled(float(self.lower[index]), self.log_scale)

    def _scaled(self, delta: float) -> float:
        return _scaled(delta, self.log_scale)


def loss_curve(steps: Steps, backward: bool, log_delta: float, effort: Effort) -> LossCurve:
    """Return the curve of Σ ``count`` releases of each law near δ = e^``log_delta``."""
    releases = sum(count for _, count in steps)
    heads = [
        head_of(law, backward, log_delta + math.log(effort.cut / releases)) for law, _ in steps
    ]
    cumulants = Cumulants(
        parts=tuple(
            (head[0], head[1], count) for head, (_, count) in zip(heads, steps, strict=True)
        )
    )
    if effort.target is None:
        order = best_order(cumulants, -log_delta)
    else:
        order = order_at(cumulants, effort.target)
    # Past this, rounding of θℓ would count.
    largest = max(abs(float(losses[-1])) for losses, _ in heads)
    order = min(order, _LARGEST_EXPONENT / (releases * largest))
    _, mean, spread = cumulants.at(order)
    spacing = max(
        effort.spacing * math.sqrt(spread / releases),
        _coarse(0.01 * effort.spacing * abs(mean), releases),
    )
    # A tilt that changes much from one label to the next proves nothing.
    order = min(order, _STEEPEST / spacing)
    share = 1.0 if effort.target is None else _share(cumulants, order, log_delta, effort.target)
    spans = [span_of(head, order, share * _LUMPED / releases) for head in heads]
    for low, high in spans:
        # No more labels than that, and sums of labels that float64 holds.
        spacing = max(spacing, (high - low) / _MOST_LABELS, 1e-13 * releases * max(high, -low))
    for _ in range(8):
        spacing = anchored(steps, spacing)
        order = min(order, _STEEPEST / spacing)
        labels = [
            labels_of(law, backward, spacing, order, span, count)
            for (law, count), span in zip(steps, spans, strict=True)
        ]
        window = window_of(labels, spacing, share * _OUTSIDE * _kernel_peak(order))
        if window.points <= _LARGEST_WINDOW:
            return _composed(steps, labels, window, spacing, order, share)
        spacing *= 1.1 * window.points / _LARGEST_WINDOW
    raise ConvergenceError(
        f"no grid of {_LARGEST_WINDOW} points holds the composed loss of {releases} releases at"
        f" delta={math.exp(log_delta):.3g}: use fewer releases, more noise or a larger delta."
    )


def _coarse(error: float, releases: int) -> float:
    """Return the spacing that moves a sum by no more than ``error``: for sums that hardly vary.

    At random, √n·h; and upwards n·h²/2 at most, or n·h where h > 1.
    """
    upwards = error / releases
    return min(error / math.sqrt(releases), math.sqrt(upwards) if upwards < 1 else upwards)


def _share(cumulants: Cumulants, order: float, log_delta: float, target: float) -> float:
    """Estimate the share of the tilted mass that makes up δ(target), at most 1."""
    log_share = log_delta + order * target - cumulants.at(order)[0] - math.log(_kernel_peak(order))
    return math.exp(min(max(log_share, -60.0), 0.0))


def _composed(
    steps: Steps,
    labels: list[Labels],
    window: Window,
    spacing: float,
    order: float,
    share: float,
) -> LossCurve:
    """Return both bounds of the composed law, with the errors of all steps."""
    masses, error = convolved(labels, window)
    log_scale = sum(each.count * each.log_total for each in labels) - order * window.mean
    start = max(window.low, 0)
    if order > 0:
        start = max(start, math.ceil((window.mean - _LARGEST_UNTILT / order) / spacing))
    start = min(start, window.high)
    label = np.arange(start, window.high + 1)
    # e^(θ·mean − θkh): takes the tilt off again.
    untilt = np.exp(order * (window.mean - spacing * label))
    masses = (np.maximum(masses[start - window.low :], 0.0) + error) * untilt
    beyond = window.outside * float(untilt[-1]) if window.open_above else 0.0
    revealing, lost = _infinite(steps, labels)
    revealing, lost = _scaled(revealing, log_scale), _scaled(lost, log_scale)
    infinite = beyond + revealing + lost
    # δ(kh) = (1 − e^(−h))·P(L > kh) + e^(−h)·δ((k+1)h), from the top: positive terms only.
    tail = np.concatenate([np.cumsum(masses[:0:-1])[::-1], [0.0]]) + infinite
    stay = math.exp(-spacing)
    # Imported here: most programs need no curve, and scipy.signal imports scipy.stats.
    from scipy.signal import lfilter

    upper, _ = lfilter([-math.expm1(-spacing)], [1.0, -stay], tail[::-1], zi=[stay * infinite])
    slack = 1e-9 + 1e-13 * sum(each.count for each in labels)
    upper = upper[::-1] * (1 + slack)
    shift, stray = _shift(labels, share * _STRAY)
    stray += 2 * window.outside
    lower = upper * (1 - 2 * slack) - beyond - lost
    wrong = 2 * error * _kernel_sum(order, spacing, len(label)) + stray * _kernel_peak(order)
    kept = np.arange(0, len(label), max(len(label) // _KEPT, 1))
    kept = np.unique(np.append(kept, len(label) - 1))
    # What the transform or the window may have added to the masses.
    doubt = float(untilt.sum()) * error + 2 * window.outside * float(untilt[0])
    left = 1 - _unscaled(float(masses.sum()) - 2 * doubt, log_scale) * (1 - slack)
    reach = _unscaled(float(masses @ np.exp(spacing * (start - label))), log_scale) + left
    return LossCurve(
        epsilons=spacing * np.maximum(label[kept], 0),
        upper=np.maximum.accumulate(upper[kept][::-1])[::-1],
        lower=(lower - wrong * untilt)[kept],
        reach=min(reach * (1 + slack), 1.0),
        shift=shift,
        log_scale=log_scale,
        points=window.points,
    )


def _infinite(steps: Steps, labels: list[Labels]) -> tuple[float, float]:
    """Return the mass that is revealed, and the mass that was cut off."""
    revealing = revealed(steps)
    rest = sum(
        each.count * math.log1p(-each.hidden / (1 - law.revealed))
        for (law, _), each in zip(steps, labels, strict=True)
    )
    return revealing, -(1 - revealing) * math.expm1(rest)


def _scaled(value: float, log_scale: float) -> float:
    """Return ``value`` in units of e^log_scale."""
    return math.exp(min(math.log(value) - log_scale, 700.0)) if value > 0 else 0.0


def _unscaled(value: float, log_scale: float) -> float:
    """Return a probability from its value in units of e^log_scale."""
    return math.exp(min(math.log(value) + log_scale, 0.0)) if value > 0 else 0.0


def _kernel_peak(order: float) -> float:
    """Return the largest e^(−θx)(1 − e^(−x)) over x > 0: θ^θ/(1+θ)^(1+θ)."""
    return math.exp(saving(order)) if order > 0 else 1.0


def _kernel_sum(order: float, spacing: float, points: int) -> float:
    """Return Σ e^(−θx)(1 − e^(−x)) over x = h, 2h, …, ``points`` of them at most."""
    rise = -math.expm1(-spacing)
    most = points * min(1.0, points * spacing)
    fall = math.expm1(order * spacing) if order * spacing < 700 else math.inf
    if not fall > 0:
        return most
    return min(most, rise / -math.expm1(-(1 + order) * spacing) / fall)


def _shift(labels: list[Labels], share: float) -> tuple[float, float]:
    """Return (c, η): P(Σr < −c) ≤ η under the tilted law.

    The labels at the ends of a law, with hardly any mass, have an r of first order: such a label
    counts as lost, and only the others are bounded.
    """
    releases = sum(each.count for each in labels)
    stray = share + sum(each.count * each.lumped for each in labels)
    parts = []
    for each in labels:
        worst = np.argsort(each.offsets, kind="stable")
        lost = np.cumsum(each.weights[worst]) * releases <= share
        stray += each.count * float(each.weights[worst[lost]].sum())
        offsets = each.offsets.copy()
        offsets[worst[lost]] = 0.0
        parts.append((each.weights, offsets, each.count))
    mean = sum(count * float(weights @ values) for weights, values, count in parts)
    return max(chernoff(parts, -1.0, share) - mean, 0.0), stray
