"""Charts over one axis, ready to be drawn as SVG: panels that stand below one another.

Each panel is wide and low, so that several of them share a page and their axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from expost.report.axes import LinearScale, LogScale, Tick, log_ticks, points
from expost.report.wording import number

__all__ = [
    "Axis",
    "Line",
    "Mark",
    "Panel",
    "across",
    "epsilon_axis",
    "epsilon_label",
    "marked",
    "upright",
]

WIDTH, HEIGHT = 640, 222
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 18, 24, 46
# A label nearer to an end than this hangs on it.
_LABEL = 130


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve, or a level line: its class in the style sheet, its points, its name."""

    style: str
    points: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """An upright line, with its label above the area and the end that it hangs on."""

    style: str
    at: float
    label: str
    anchor: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart: a title that says what is seen, curves, and what they share with the others.

    ``band``   the points of a polygon around the first line, or None; ``band_name`` its name.
    ``shade``  where the transition is: left end and width, or None.
    """

    key: str
    title: str
    description: str
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]
    band: str | None
    band_name: str
    x_ticks: tuple[Tick, ...]
    x_label: str
    shade: tuple[float, float] | None
    marks: tuple[Mark, ...]

    left = _LEFT
    right = WIDTH - _RIGHT
    top = _TOP
    bottom = HEIGHT - _BOTTOM
    size = (WIDTH, HEIGHT)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What all panels share: the axis of x and what stands on it."""

    x: LinearScale | LogScale
    ticks: tuple[Tick, ...]
    label: str
    shade: tuple[float, float] | None = None
    marks: tuple[Mark, ...] = ()

    def level(self, height: float, scale: LinearScale) -> str:
        """A line at one height from end to end."""
        return points([self.x.low, self.x.high], [height, height], self.x, scale)

    def band(
        self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], y: LinearScale
    ) -> str:
        """The polygon between two curves over the same places."""
        return f"{points(xs, high, self.x, y)} {points(xs[::-1], low[::-1], self.x, y)}"

    def panel(
        self,
        *,
        key: str,
        title: str,
        description: str,
        y_ticks: tuple[Tick, ...],
        lines: Sequence[Line],
        band: str | None = None,
        band_name: str = "",
    ) -> Panel:
        """A panel over this axis."""
        return Panel(
            key=key,
            title=title,
            description=description,
            y_ticks=y_ticks,
            lines=tuple(lines),
            band=band,
            band_name=band_name,
            x_ticks=self.ticks,
            x_label=self.label,
            shade=self.shade,
            marks=self.marks,
        )


def epsilon_axis(
    low: float,
    high: float,
    *,
    shade: tuple[float, float] | None = None,
    marks: tuple[Mark, ...] = (),
) -> Axis:
    """ε on a log scale; ``shade`` from one ε to another."""
    x = _log_across(low, high)
    shaded = None
    if shade is not None:
        left, right = x(max(shade[0], low)), x(min(shade[1], high))
        shaded = round(left, 1), round(right - left, 1)
    return Axis(x=x, ticks=log_ticks(x, most=8), label="ε (log scale)", shade=shaded, marks=marks)


def across(low: float, high: float) -> LinearScale:
    """The scale of x, from end to end of a panel."""
    return LinearScale(low=low, high=high, start=_LEFT, end=WIDTH - _RIGHT)


def _log_across(low: float, high: float) -> LogScale:
    return LogScale(low=low, high=high, start=_LEFT, end=WIDTH - _RIGHT)


def upright(low: float, high: float) -> LinearScale:
    """The scale of y, from the foot of a panel to its top."""
    return LinearScale(low=low, high=high, start=HEIGHT - _BOTTOM, end=_TOP)


def marked(style: str, epsilon: float, label: str, *, low: float, high: float) -> Mark:
    """A mark at an ε of the axis from ``low`` to ``high``."""
    at = round(_log_across(low, high)(epsilon), 1)
    near_start, near_end = at < _LEFT + _LABEL, at > WIDTH - _RIGHT - _LABEL
    anchor = "start" if near_start else "end" if near_end else "middle"
    return Mark(style=style, at=at, label=label, anchor=anchor)


def epsilon_label(words: str, epsilon: float) -> str:
    """What stands above a mark."""
    return f"{words}: ε = {number(epsilon)}"
