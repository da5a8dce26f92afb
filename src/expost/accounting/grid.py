"""The laws of the loss on a grid, tilted, and convolved with themselves.

Conventions
-----------
As in :mod:`expost.accounting.curve`: h the ``spacing``, k a label, θ the ``order`` of the tilt, r_k
the ``offsets``.
"""

import math
from dataclasses import dataclass

import numpy as np

from expost._numerics import ROUNDOFF
from expost.accounting.laws import StepLaw
from expost.accounting.rdp import Steps, gathered, oriented
from expost.types import FloatArray

__all__ = [
    "Labels",
    "Window",
    "anchored",
    "chernoff",
    "convolved",
    "head_of",
    "labels_of",
    "span_of",
    "window_of",
]

# A window that may grow to here is made whole.
_SMALL_WINDOW = 2**16
# Where there are no more sums of labels than that, they are added up without a transform.
_DIRECT = 2**15


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """The tilted masses of one law's labels first, first + 1, …; ``weights`` add up to 1.

    Parameters
    ----------
    log_total : float
        log of what the tilted masses added up to, log Z.
    hidden : float
        The mass, not tilted, of the losses that were cut off above.
    lumped : float
        The share of the weights that was raised to the first label.
    count : int
        The number of such releases.
    """

    first: int
    weights: FloatArray
    offsets: FloatArray
    log_total: float
    hidden: float
    lumped: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Window:
    """The labels low … high that hold the composed, tilted law but for ``outside`` at each end."""

    low: int
    high: int
    mean: float
    outside: float
    open_above: bool

    @property
    def points(self) -> int:
        """How many labels."""
        return self.high - self.low + 1


def head_of(law: StepLaw, backward: bool, log_cut: float) -> tuple[FloatArray, FloatArray]:
    """Return a law's nodes without the largest losses, whose mass is at most e^``log_cut``."""
    losses, log_masses = gathered(law, backward)
    tail = np.logaddexp.accumulate(log_masses[::-1])[::-1]
    kept = max(int(np.searchsorted(-tail, -log_cut, side="left")), 1)
    return losses[:kept], log_masses[:kept]


def span_of(head: tuple[FloatArray, FloatArray], order: float, share: float) -> tuple[float, float]:
    """Return (low, high): the mass below low, raised to it, is at most ``share`` of the tilted one.

    Nothing lies above high.
    """
    losses, log_masses = head
    total = float(np.logaddexp.reduce(log_masses + order * losses))
    raised = np.logaddexp.accumulate(log_masses) + order * losses
    first = int(np.searchsorted(raised, total + math.log(share)))
    return float(losses[min(first, len(losses) - 1)]), float(losses[-1])


def anchored(steps: Steps, spacing: float) -> float:
    """Return a slightly finer spacing, at which an atom of the first law with one is a label."""
    for law, _ in steps:
        if law.atom >= spacing:
            return law.atom / math.ceil(law.atom / spacing)
    return spacing


def labels_of(
    law: StepLaw,
    backward: bool,
    spacing: float,
    order: float,
    span: tuple[float, float],
    count: int,
) -> Labels:
    """Return a law on the grid: losses above the span are hidden, those below it raised to it."""
    first = math.floor(span[0] / spacing)
    last = math.ceil(span[1] / spacing)
    size = last - first + 2
    weights, changes, leaps = np.zeros(size), np.zeros(size), np.zeros(size)
    hidden = lumped = 0.0
    lift = max(spacing - 600.0, 0.0)
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
        index = (label - first).astype(np.int64)
        for share, step, gap in (
            (1 - upward, 0, -rest),
            (upward * math.exp(min(order * spacing, 700.0)), 1, spacing - rest),
        ):
            part = mass * share
            weights += np.bincount(index + step, part, size)
            # e^(kh − ℓ) − 1, and what is past e^600 of it in units of e^lift.
            changes += np.bincount(index + step, part * np.expm1(np.minimum(gap, 600.0)), size)
            if lift > 0:
                lifted = np.where(gap > 600, np.exp(gap - lift), 0.0)
                leaps += np.bincount(index + step, part * lifted, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        offsets = -np.log1p(np.where(weights > 0, changes / weights, 0.0))
        if lift > 0:
            leap = lift + np.log(np.where(weights > 0, leaps / weights, 0.0))
            offsets = -np.logaddexp(-offsets, leap)
    # A label is never further from the loss than the spacing.
    offsets = np.maximum(offsets, -spacing)
    weights[0] += lumped
    total = float(weights.sum())
    return Labels(
        first=first,
        weights=weights / total,
        offsets=np.where(weights > 0, offsets, 0.0),
        log_total=reference + math.log(total),
        hidden=hidden,
        lumped=lumped / total,
        count=count,
    )


def _moment(weights: FloatArray, values: FloatArray, order: float) -> float:
    """Return log Σ w e^(order·value)."""
    exponent = order * values
    peak = float(np.max(exponent[weights > 0]))
    return peak + math.log(float(weights @ np.exp(np.minimum(exponent - peak, 0.0))))


def chernoff(
    parts: list[tuple[FloatArray, FloatArray, int]], sign: float, probability: float
) -> float:
    """Return c with P(sign·Σ(value − mean) > c) ≤ ``probability``, values drawn by weight."""
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


def window_of(labels: list[Labels], spacing: float, outside: float) -> Window:
    """Return the window of the composed law, but for ``outside`` at each end (Chernoff's bound)."""
    parts = []
    for each in labels:
        losses = spacing * (each.first + np.arange(len(each.weights), dtype=np.float64))
        parts.append((each.weights, losses, each.count))
    mean = sum(count * float(weights @ values) for weights, values, count in parts)
    low = math.floor((mean - chernoff(parts, -1.0, outside)) / spacing)
    high = math.ceil((mean + chernoff(parts, 1.0, outside)) / spacing)
    least = sum(each.count * each.first for each in labels)
    most = sum(each.count * (each.first + len(each.weights) - 1) for each in labels)
    low, high = max(low - 1, least), min(high + 1, most)
    # Where there is not much more, nothing is left beyond.
    if most - low < _SMALL_WINDOW:
        high = most
    return Window(low=min(low, high), high=high, mean=mean, outside=outside, open_above=high < most)


def convolved(labels: list[Labels], window: Window) -> tuple[FloatArray, float]:
    """Return the composed masses over the window, and a bound of the transform's error in each."""
    if 1 + sum(each.count * (len(each.weights) - 1) for each in labels) <= _DIRECT:
        start = window.low - sum(each.count * each.first for each in labels)
        return _convolved_directly(labels)[start : start + window.points], 0.0
    # Imported here: few compositions need it, and its import takes longer than this package's.
    from scipy.fft import irfft, next_fast_len, rfft

    size = int(next_fast_len(window.points, real=True))
    # A transform of n numbers errs by about u·log₂ n of their sum.
    rounding = 8 * ROUNDOFF * math.log2(size + 1)
    log_size = np.zeros(size // 2 + 1)
    turn = np.zeros(size // 2 + 1)
    each_of = []
    for each in labels:
        index = (each.first + np.arange(len(each.weights))) % size
        folded = np.bincount(index, each.weights, size)
        # Less its unit at 0, here and below: where a release hardly ever changes anything, what is
        # rounded is the change.
        folded[0] -= 1
        change = min(float(np.abs(folded).sum()), 1.0)
        transform = rfft(folded)
        log_of, turn_of = _log_of(transform.real, transform.imag)
        log_size += each.count * log_of
        turn += each.count * turn_of
        each_of.append((each.count * change, log_of))
    magnitude = np.exp(log_size)
    real = np.expm1(log_size) - 2 * magnitude * np.sin(0.5 * turn) ** 2
    composed = real + 1j * magnitude * np.sin(turn)
    change = math.sqrt(2 * float(np.vdot(composed, composed).real) / size)
    wrong = 4 * ROUNDOFF * magnitude * (np.abs(log_size) + np.abs(turn))
    for changes, log_of in each_of:
        wrong += changes * rounding * np.exp(np.minimum(log_size - log_of, 0.0))
    error = rounding * change + 2 * float(wrong.sum()) / size
    masses = np.roll(irfft(composed, size), -window.low)[: window.points]
    if window.low <= 0 <= window.high:
        masses[-window.low] += 1
    return masses, error


def _convolved_directly(labels: list[Labels]) -> FloatArray:
    """Return all composed masses as sums of positive terms: right to rounding, however small."""
    masses = np.ones(1)
    for each in labels:
        power, left = each.weights, each.count
        while left:
            if left % 2:
                masses = np.convolve(masses, power)
            left //= 2
            if left:
                power = np.convolve(power, power)
    return masses


def _log_of(real: FloatArray, imaginary: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log∣1 + z∣ and the angle of 1 + z, with all digits where z is small."""
    square = (1 + real) ** 2 + imaginary**2
    change = np.maximum(real * (2 + real) + imaginary**2, -0.5)
    log_size = 0.5 * np.where(square > 0.5, np.log1p(change), np.log(np.maximum(square, 1e-300)))
    return log_size, np.arctan2(imaginary, 1 + real)
