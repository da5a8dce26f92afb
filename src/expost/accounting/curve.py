"""The privacy curve of composed releases, near one δ: a bound from above and one from below.

Conventions
-----------
h, k     the spacing of the grid and a label on it: the loss kh.
L        the composed loss Σℓ, under P.
above    Each ℓ in [kh, (k+1)h] is moved to one of the ends, so that the masses of P and of Q both
         stay what they are ('connect the dots', Doroshenko et al. 2022): the pair on the grid,
         L⁺, dominates the true one, δ⁺(ε) ≥ δ(ε).
below    The label alone, told instead of ℓ, is a post-processing: its pair is dominated. Label
         k then has the loss kh + r_k, r_k = log(p_k/q_k) − kh with q_k the true mass of Q; so
         L⁻ = L⁺ + Σr, and
             δ(ε) ≥ δ⁺(ε + c) − P(Σr < −c, L⁺ > ε + c).
         r is of second order in h: so is the gap between the two bounds.
θ        The masses are tilted to p e^(θkh)/Z before they are convolved: what the Fourier transform
         rounds is then small against what is asked for, also where that is 1e-300.
R(ε)     every error of the transform, of the window and of the cut is added to δ⁺, and taken off
         from the bound below.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import lfilter

from expost._numerics import ROUNDOFF
from expost.accounting.laws import StepLaw
from expost.accounting.rdp import (
    Cumulants,
    Steps,
    best_order,
    gathered,
    order_at,
    oriented,
    revealed,
    saving,
)
from expost.errors import ConvergenceError
from expost.types import FloatArray

__all__ = ["Effort", "LossCurve", "loss_curve"]

# Points of the composed law's window, and labels of one release; 2²¹ is about 100 MiB at work.
_LARGEST_WINDOW = 2**21
_MOST_LABELS = 2**19
_SMALL_WINDOW = 2**16
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
_KEPT = 2**15


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How a curve is worked out; each choice gives valid bounds.

    ``spacing``: of the grid, in standard deviations of one (average) release. ``cut``: the share of
    δ that the largest losses may have together and count as infinite. ``target``: an ε near ε(δ),
    where it is known; the tilt is then aimed at it, which is better where single releases decide
    over the sum, and the errors are kept small against what is left there.
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
        """δ⁺(ε), linear in e^ε between the points: a chord of a convex function lies above it."""
        place = np.searchsorted(self.epsilons, epsilons, side="right") - 1
        left = np.clip(place, 0, None)
        right = np.minimum(left + 1, len(self.epsilons) - 1)
        gap = self.epsilons[right] - self.epsilons[left]
        over = np.clip(epsilons - self.epsilons[left], 0.0, gap)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.exp(over - gap) * np.expm1(-over) / np.expm1(-gap)
            scaled = self.upper[left] + share * (self.upper[right] - self.upper[left])
        scaled = np.where(gap > 0, scaled, self.upper[left])
        with np.errstate(divide="ignore"):
            found = np.exp(np.minimum(np.log(scaled) + self.log_scale, 0.0))
        before = self.epsilons[0] - np.minimum(epsilons, self.epsilons[0])
        deltas: FloatArray = np.minimum(found - self.reach * np.expm1(-before), 1.0)
        return deltas

    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 with δ⁺(ε) ≤ ``delta``; infinite where the curve ends above it."""
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
        found = left + math.log1p(share * math.expm1(right - left))
        return min(found * (1 + 8 * ROUNDOFF), right)

    def epsilon_below(self, delta: float) -> float:
        """An ε ≥ 0 with δ(ε) ≥ ``delta`` where it is positive: no smaller ε will do."""
        reached = np.flatnonzero(self.lower >= self._scaled(delta))
        if not len(reached):
            return 0.0
        return max(float(self.epsilons[reached[-1]]) - self.shift, 0.0)

    def delta_below(self, epsilon: float) -> float:
        """A lower bound of δ(ε)."""
        place = int(np.searchsorted(self.epsilons, epsilon + self.shift, side="left"))
        if place == len(self.epsilons) or not self.lower[place] > 0:
            return 0.0
        return _unscaled(float(self.lower[place]), self.log_scale)

    def _scaled(self, delta: float) -> float:
        return _scaled(delta, self.log_scale)


def loss_curve(steps: Steps, backward: bool, log_delta: float, effort: Effort) -> LossCurve:
    """The curve of Σ ``count`` releases of each law near δ = e^``log_delta``."""
    releases = sum(count for _, count in steps)
    heads = [_head(law, backward, log_delta + math.log(effort.cut / releases)) for law, _ in steps]
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
    # Where the loss hardly varies, an error of 1e-4 of it is small enough.
    spacing = effort.spacing * max(math.sqrt(spread), 0.01 * abs(mean)) / math.sqrt(releases)
    # A tilt that changes much from one label to the next says nothing.
    order = min(order, _STEEPEST / spacing)
    share = 1.0 if effort.target is None else _share(cumulants, order, log_delta, effort.target)
    spans = [_span(head, order, share * _LUMPED / releases) for head in heads]
    for low, high in spans:
        # No more labels than that, and sums of labels that float64 holds.
        spacing = max(spacing, (high - low) / _MOST_LABELS, 1e-13 * releases * max(high, -low))
    for _ in range(8):
        spacing = _anchored(steps, spacing)
        order = min(order, _STEEPEST / spacing)
        labels = [
            _labels(law, backward, spacing, order, span, count)
            for (law, count), span in zip(steps, spans, strict=True)
        ]
        window = _window(labels, spacing, share * _OUTSIDE * _kernel_peak(order))
        if window.points <= _LARGEST_WINDOW:
            return _composed(steps, labels, window, spacing, order, share)
        spacing *= 1.1 * window.points / _LARGEST_WINDOW
    raise ConvergenceError(
        f"no grid of {_LARGEST_WINDOW} points holds the composed loss of {releases} releases at"
        f" delta={math.exp(log_delta):.3g}: use fewer releases, more noise or a larger delta."
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Labels:
    """The tilted masses of one law's labels first, first + 1, …; ``weights`` add up to 1."""

    first: int
    weights: FloatArray
    offsets: FloatArray
    log_total: float
    hidden: float
    lumped: float
    count: int


@dataclass(frozen=True, kw_only=True)
class _Window:
    """The labels low … high that hold the composed, tilted law but for ``outside`` at each end."""

    low: int
    high: int
    mean: float
    outside: float
    open_above: bool

    @property
    def points(self) -> int:
        return self.high - self.low + 1


def _share(cumulants: Cumulants, order: float, log_delta: float, target: float) -> float:
    """About how much of the tilted mass it is that makes up δ(target), at most 1."""
    log_share = log_delta + order * target - cumulants.at(order)[0] - math.log(_kernel_peak(order))
    return math.exp(min(max(log_share, -60.0), 0.0))


def _head(law: StepLaw, backward: bool, log_cut: float) -> tuple[FloatArray, FloatArray]:
    """A law's nodes without the largest losses, whose mass is at most e^``log_cut``."""
    losses, log_masses = gathered(law, backward)
    tail = np.logaddexp.accumulate(log_masses[::-1])[::-1]
    kept = max(int(np.searchsorted(-tail, -log_cut, side="left")), 1)
    return losses[:kept], log_masses[:kept]


def _span(head: tuple[FloatArray, FloatArray], order: float, share: float) -> tuple[float, float]:
    """(low, high): what lies below low, raised to it, is ``share`` of the tilted mass at most.

    Nothing lies above high.
    """
    losses, log_masses = head
    total = float(np.logaddexp.reduce(log_masses + order * losses))
    raised = np.logaddexp.accumulate(log_masses) + order * losses
    first = int(np.searchsorted(raised, total + math.log(share)))
    return float(losses[min(first, len(losses) - 1)]), float(losses[-1])


def _anchored(steps: Steps, spacing: float) -> float:
    """The spacing made a little finer, so that an atom of the first law that has one is a label."""
    for law, _ in steps:
        if law.atom >= spacing:
            return law.atom / math.ceil(law.atom / spacing)
    return spacing


def _labels(
    law: StepLaw,
    backward: bool,
    spacing: float,
    order: float,
    span: tuple[float, float],
    count: int,
) -> _Labels:
    first = math.floor(span[0] / spacing)
    last = math.ceil(span[1] / spacing)
    size = last - first + 2
    weights, changes = np.zeros(size), np.zeros(size)
    hidden = lumped = 0.0
    losses, log_masses = gathered(law, backward)
    reference = float(np.max(log_masses + order * np.minimum(losses, span[1])))
    # A label may lie a rounding inside of the span that it ends.
    low, high = min(first * spacing, span[0]), max(last * spacing, span[1])
    for block in law.nodes(spacing, *((-high, -low) if backward else (low, high))):
        at, log_mass = oriented(block, backward)
        beyond = at > high
        hidden += float(np.exp(log_mass[beyond]).sum())
        at, log_mass = at[~beyond], log_mass[~beyond]
        under = at < low
        lumped += float(np.exp(log_mass[under] + order * low - reference).sum())
        at, log_mass = at[~under], log_mass[~under]
        label = np.clip(np.floor(at / spacing), first, last)
        rest = np.clip(at - label * spacing, 0.0, spacing)
        upward = np.clip(np.expm1(-rest) / math.expm1(-spacing), 0.0, 1.0)
        mass = np.exp(log_mass + order * label * spacing - reference)
        place = (label - first).astype(np.int64)
        for share, step, gap in (
            (1 - upward, 0, -rest),
            (upward * math.exp(min(order * spacing, 700.0)), 1, spacing - rest),
        ):
            part = mass * share
            weights += np.bincount(place + step, part, size)
            changes += np.bincount(place + step, part * np.expm1(np.minimum(gap, 600.0)), size)
    with np.errstate(divide="ignore", invalid="ignore"):
        offsets = -np.log1p(np.where(weights > 0, changes / weights, 0.0))
    weights[0] += lumped
    total = float(weights.sum())
    return _Labels(
        first=first,
        weights=weights / total,
        offsets=np.where(weights > 0, offsets, 0.0),
        log_total=reference + math.log(total),
        hidden=hidden,
        lumped=lumped / total,
        count=count,
    )


def _moment(weights: FloatArray, values: FloatArray, order: float) -> float:
    """log Σ w e^(order·value)."""
    exponent = order * values
    peak = float(np.max(exponent[weights > 0]))
    return peak + math.log(float(weights @ np.exp(np.minimum(exponent - peak, 0.0))))


def _chernoff(
    parts: list[tuple[FloatArray, FloatArray, int]], sign: float, probability: float
) -> float:
    """c with P(sign·Σ(value − mean) > c) ≤ ``probability``, values drawn by their weights."""
    centred, spread, widest = [], 0.0, 0.0
    for weights, values, count in parts:
        around = sign * (values - float(weights @ values))
        spread += count * float(weights @ around**2)
        widest = max(widest, float(np.max(np.abs(around))))
        centred.append((weights, around, count))
    if not spread > 0:
        return 0.0
    level = -math.log(probability)
    best = math.inf
    # The first suit a sum of many, the others one that its largest terms decide.
    normal = math.sqrt(2 * level / spread)
    for order in (normal, 0.5 * normal, *(room / widest for room in (80.0, 40.0, 20.0, 10.0, 5.0))):
        moment = sum(count * _moment(weights, values, order) for weights, values, count in centred)
        best = min(best, (moment + level) / order)
    return min(best, widest * sum(count for _, _, count in parts))


def _window(labels: list[_Labels], spacing: float, outside: float) -> _Window:
    parts = []
    for each in labels:
        losses = spacing * (each.first + np.arange(len(each.weights), dtype=np.float64))
        parts.append((each.weights, losses, each.count))
    mean = sum(count * float(weights @ values) for weights, values, count in parts)
    low = math.floor((mean - _chernoff(parts, -1.0, outside)) / spacing)
    high = math.ceil((mean + _chernoff(parts, 1.0, outside)) / spacing)
    least = sum(each.count * each.first for each in labels)
    most = sum(each.count * (each.first + len(each.weights) - 1) for each in labels)
    low, high = max(low - 1, least), min(high + 1, most)
    # Where there is not much more, nothing is left beyond.
    if most - low < _SMALL_WINDOW:
        high = most
    return _Window(
        low=min(low, high), high=high, mean=mean, outside=outside, open_above=high < most
    )


def _convolved(labels: list[_Labels], window: _Window) -> tuple[FloatArray, float]:
    """The composed masses over the window and a bound of what the transform got wrong in each."""
    if sum(each.count for each in labels) == 1:
        start = window.low - labels[0].first
        return labels[0].weights[start : start + window.points], 0.0
    size = int(next_fast_len(window.points, real=True))
    # A transform of n numbers errs by about u·log₂ n of their sum.
    rounding = 8 * ROUNDOFF * math.log2(size + 1)
    log_size = np.zeros(size // 2 + 1)
    turn = np.zeros(size // 2 + 1)
    sizes = []
    for each in labels:
        place = (each.first + np.arange(len(each.weights))) % size
        folded = np.bincount(place, each.weights, size)
        # Less its unit at 0: where a release hardly ever changes anything, digits are kept.
        folded[0] -= 1
        change = float(np.abs(folded).sum())
        transform = rfft(folded)
        real, imaginary = transform.real, transform.imag
        change_of = real * (2 + real) + imaginary**2
        square = (1 + real) ** 2 + imaginary**2
        size_of = 0.5 * np.where(
            square > 0.5, np.log1p(np.maximum(change_of, -0.5)), np.log(np.maximum(square, 1e-300))
        )
        log_size += each.count * size_of
        turn += each.count * np.arctan2(imaginary, 1 + real)
        sizes.append((each.count, rounding * min(change, 1.0) + 4 * ROUNDOFF, size_of))
    magnitude = np.exp(log_size)
    error = rounding * math.sqrt(2 * float(magnitude @ magnitude) / size)
    for count, wrong, size_of in sizes:
        others = np.exp(np.minimum(log_size - size_of, 0.0))
        error += count * wrong * 2 * float(others.sum()) / size
    masses = irfft(magnitude * np.exp(1j * turn), size)
    return np.roll(masses, -window.low)[: window.points], error


def _composed(
    steps: Steps,
    labels: list[_Labels],
    window: _Window,
    spacing: float,
    order: float,
    share: float,
) -> LossCurve:
    masses, error = _convolved(labels, window)
    log_scale = sum(each.count * each.log_total for each in labels) - order * window.mean
    start = max(window.low, 0)
    if order > 0:
        start = max(start, math.ceil((window.mean - _LARGEST_UNTILT / order) / spacing))
    start = min(start, window.high)
    place = np.arange(start, window.high + 1)
    # e^(θ·mean − θkh): takes the tilt off again.
    untilt = np.exp(order * (window.mean - spacing * place))
    masses = (np.maximum(masses[start - window.low :], 0.0) + error) * untilt
    beyond = window.outside * float(untilt[-1]) if window.open_above else 0.0
    told, lost = _infinite(steps, labels)
    told, lost = _scaled(told, log_scale), _scaled(lost, log_scale)
    infinite = beyond + told + lost
    # δ(kh) = (1 − e^(−h))·P(L > kh) + e^(−h)·δ((k+1)h), from the top: positive terms only.
    tail = np.concatenate([np.cumsum(masses[:0:-1])[::-1], [0.0]]) + infinite
    stay = math.exp(-spacing)
    upper, _ = lfilter([-math.expm1(-spacing)], [1.0, -stay], tail[::-1], zi=[stay * infinite])
    slack = 1e-9 + 1e-13 * sum(each.count for each in labels)
    upper = upper[::-1] * (1 + slack)
    shift, stray = _shift(labels, share * _STRAY)
    stray += 2 * window.outside
    lower = upper * (1 - 2 * slack) - beyond - lost
    wrong = 2 * error * _kernel_sum(order, spacing, len(place)) + stray * _kernel_peak(order)
    kept = np.arange(0, len(place), max(len(place) // _KEPT, 1))
    kept = np.unique(np.append(kept, len(place) - 1))
    # What the transform or the window may have added to the masses.
    doubt = float(untilt.sum()) * error + 2 * window.outside * float(untilt[0])
    left = 1 - _unscaled(float(masses.sum()) - 2 * doubt, log_scale) * (1 - slack)
    reach = _unscaled(float(masses @ np.exp(spacing * (start - place))), log_scale) + left
    return LossCurve(
        epsilons=spacing * np.maximum(place[kept], 0),
        upper=np.maximum.accumulate(upper[kept][::-1])[::-1],
        lower=(lower - wrong * untilt)[kept],
        reach=min(reach * (1 + slack), 1.0),
        shift=shift,
        log_scale=log_scale,
        points=window.points,
    )


def _infinite(steps: Steps, labels: list[_Labels]) -> tuple[float, float]:
    """What is told outright, and what was cut off."""
    told = revealed(steps)
    rest = sum(
        each.count * math.log1p(-each.hidden / (1 - law.revealed))
        for (law, _), each in zip(steps, labels, strict=True)
    )
    return told, -(1 - told) * math.expm1(rest)


def _scaled(value: float, log_scale: float) -> float:
    """``value`` in units of e^log_scale."""
    return math.exp(min(math.log(value) - log_scale, 700.0)) if value > 0 else 0.0


def _unscaled(value: float, log_scale: float) -> float:
    """A probability out of those units."""
    return math.exp(min(math.log(value) + log_scale, 0.0)) if value > 0 else 0.0


def _kernel_peak(order: float) -> float:
    """The largest e^(−θx)(1 − e^(−x)) over x > 0: θ^θ/(1+θ)^(1+θ)."""
    return math.exp(saving(order)) if order > 0 else 1.0


def _kernel_sum(order: float, spacing: float, points: int) -> float:
    """Σ e^(−θx)(1 − e^(−x)) over x = h, 2h, …, ``points`` of them at most."""
    rise = -math.expm1(-spacing)
    most = points * min(1.0, points * spacing)
    fall = math.expm1(order * spacing) if order * spacing < 700 else math.inf
    if not fall > 0:
        return most
    return min(most, rise / -math.expm1(-(1 + order) * spacing) / fall)


def _shift(labels: list[_Labels], share: float) -> tuple[float, float]:
    """(c, η): P(Σr < −c) ≤ η under the tilted law.

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
    return max(_chernoff(parts, -1.0, share) - mean, 0.0), stray
