"""The chart of the privacy profile as lines and ticks, ready to be drawn as SVG.

x: the rank, the most exposed row first, on a log scale, for it is the first rows that matter.
y: the exposure (or the distance), on a log scale; what lies far below the rest is cut off.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from expost.report.axes import LogScale, Tick, log_ticks, points
from expost.report.profile_part import ProfilePart
from expost.report.wording import count, number_down, number_up

__all__ = ["Chart", "profile_chart"]

WIDTH, HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 18, 16, 58
# Decades that are shown at most.
_DEPTH = 6


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines as the ``points`` of an SVG polyline; ``worst_case`` is the height of a level line.

    ``x``, ``y``  the scales that they are drawn by: the page's script draws on.
    """

    left: float
    right: float
    top: float
    bottom: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_label: str
    y_label: str
    scores: str
    typical: str | None
    worst_case: float | None
    description: str
    x: LogScale
    y: LogScale

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the drawing."""
        return WIDTH, HEIGHT


def profile_chart(part: ProfilePart) -> Chart | None:
    """The chart of a part's curve, or None where every score is 0."""
    curve = part.curve
    series = [point.score for point in curve]
    typical = [point.typical for point in curve if point.typical is not None]
    promise = part.worst_case if math.isfinite(part.worst_case) else None
    positive = [value for value in (*series, *typical) if value > 0]
    if not positive:
        return None
    low, high = _limits(series, typical, promise)
    x = LogScale(low=1, high=max(curve[-1].rank, 2), start=_LEFT, end=WIDTH - _RIGHT)
    y = LogScale(low=low, high=high, start=HEIGHT - _BOTTOM, end=_TOP)
    ranks = [point.rank for point in curve]
    unit = "" if part.is_noiseless else " (nats)"
    return Chart(
        left=_LEFT,
        right=WIDTH - _RIGHT,
        top=_TOP,
        bottom=HEIGHT - _BOTTOM,
        x_ticks=_rank_ticks(curve[-1].rank, x),
        y_ticks=log_ticks(y),
        x_label=f"rank of the {part.unit}, most exposed first (log scale)",
        y_label=f"{part.measure}{unit}",
        scores=points(ranks, series, x, y),
        typical=points(ranks, typical, x, y) if typical else None,
        worst_case=None if promise is None else round(y(promise), 1),
        description=(
            f"The {part.measure} of {count(curve[-1].rank)} {part.unit}s by rank: the largest"
            f" is {number_up(series[0])}, the smallest {number_down(series[-1])}."
        ),
        x=x,
        y=y,
    )


def _limits(
    scores: Sequence[float], typical: Sequence[float], promise: float | None
) -> tuple[float, float]:
    """The ends of the y axis: from a little above all to the least that is worth showing."""
    top = max([*scores, *typical, promise or 0.0])
    # The last rows of a profile may lose next to nothing: they would take up all of the height.
    body = sorted(value for value in (*scores, *typical) if value > 0)
    least = max(body[len(body) // 50], top * 10.0**-_DEPTH)
    return least / 1.3, top * 1.3


def _rank_ticks(rows: int, x: LogScale) -> tuple[Tick, ...]:
    """Powers of ten, and the last rank where it does not crowd them."""
    ranks = [10**power for power in range(len(str(rows))) if 10**power <= rows]
    if rows >= 6 * ranks[-1] or len(ranks) == 1:
        ranks.append(rows)
    elif rows > ranks[-1]:
        ranks[-1] = rows
    return tuple(Tick(at=round(x(rank), 1), label=count(rank)) for rank in dict.fromkeys(ranks))
