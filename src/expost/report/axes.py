"""Scales and ticks of the charts, in the units of the drawing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from expost.report.wording import number

__all__ = ["LinearScale", "LogScale", "Tick", "linear_ticks", "log_ticks", "points"]

# 10⁻⁷ needs no factor before it.
_ONE_TIMES = "1\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}"


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A place on an axis, in the units of the drawing, and what it says."""

    at: float
    label: str


@dataclass(frozen=True, kw_only=True)
class LinearScale:
    """low … high to start … end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where ``value`` is drawn."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True, kw_only=True)
class LogScale:
    """low … high to start … end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where ``value`` is drawn."""
        if not value > 0:
            # A zero lies below every log scale: at its end, outside of the clipped area.
            return self.start + 10 * (self.start - self.end)
        share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return self.start + share * (self.end - self.start)


def points(
    xs: Sequence[float],
    ys: Sequence[float],
    x: LinearScale | LogScale,
    y: LinearScale | LogScale,
) -> str:
    """The ``points`` of an SVG polyline."""
    return " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(xs, ys, strict=True))


def log_ticks(scale: LogScale, *, most: int | None = None) -> tuple[Tick, ...]:
    """Powers of ten, also 2 and 5 times them where the axis is short; at most ``most`` powers."""
    low, high = scale.low, scale.high
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
    if most is not None and len(powers) > most:
        step = -(-len(powers) // most)
        powers = range(step * math.ceil(powers[0] / step), powers[-1] + 1, step)
    values = [float(f"{factor}e{power}") for power in powers for factor in factors]
    return tuple(
        Tick(at=round(scale(value), 1), label=number(value).removeprefix(_ONE_TIMES))
        for value in values
        if low <= value <= high
    )


def linear_ticks(scale: LinearScale, *, percent: bool) -> tuple[Tick, ...]:
    """Three to six round numbers."""
    width = scale.high - scale.low
    unit = 10.0 ** math.floor(math.log10(width))
    step = next(unit * part for part in (0.2, 0.5, 1, 2) if width / (unit * part) <= 5)
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step * (100 if percent else 1)) + 1e-9))
    ticks = []
    for place in range(first, last + 1):
        value = place * step
        text = f"{100 * value:.{digits}f} %" if percent else f"{value:.{digits}f}"
        ticks.append(Tick(at=round(scale(value), 1), label=text.replace("-", "−")))
    return tuple(ticks)
