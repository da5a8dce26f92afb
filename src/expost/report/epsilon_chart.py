"""The charts of a choice of ε, ready to be drawn as SVG: panels over one log axis of ε.

From top to bottom: how sure an attacker gets of a row, how far the rows have come from their first
plateau to their second regime, and how useful the model is. The range from ``low`` to ``high`` is
shaded in all of them; the recommended ε and that of the belief bound are upright lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from expost._recommend import rounded_down
from expost.report.axes import LinearScale, LogScale, Tick, linear_ticks, log_ticks, points
from expost.report.epsilon_answer import score_text
from expost.report.epsilon_curves import is_shown
from expost.report.epsilon_part import EpsilonPart, UtilityCurve
from expost.report.wording import number, percent, share

__all__ = ["Line", "Mark", "Panel", "epsilon_panels", "utility_limits"]

WIDTH, HEIGHT = 640, 222
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 18, 24, 46


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve, or a level line: its class in the style sheet, its points, its name."""

    style: str
    points: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """An upright line at an ε, with its label above the area and the end that it hangs on."""

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
    shade: tuple[float, float] | None
    marks: tuple[Mark, ...]

    left = _LEFT
    right = WIDTH - _RIGHT
    top = _TOP
    bottom = HEIGHT - _BOTTOM
    size = (WIDTH, HEIGHT)


@dataclass(frozen=True, kw_only=True)
class _Shared:
    """What all panels have: the axis of ε and what stands on it."""

    x: LogScale
    x_ticks: tuple[Tick, ...]
    shade: tuple[float, float] | None
    marks: tuple[Mark, ...]

    def level(self, height: float, scale: LinearScale) -> str:
        """A line at one height from end to end."""
        return points([self.x.low, self.x.high], [height, height], self.x, scale)


def epsilon_panels(part: EpsilonPart) -> tuple[Panel, ...]:
    """Two panels, and a third where the utility was measured."""
    low, high = part.axis
    x = LogScale(low=low, high=high, start=_LEFT, end=WIDTH - _RIGHT)
    shared = _Shared(
        x=x, x_ticks=log_ticks(x, most=8), shade=_shade(part, x), marks=_marks(part, x)
    )
    panels = [_belief_panel(part, shared), _way_panel(part, shared)]
    if part.utility is not None:
        panels.append(_utility_panel(part.utility, shared))
    return tuple(panels)


def _scale(low: float, high: float) -> LinearScale:
    return LinearScale(low=low, high=high, start=HEIGHT - _BOTTOM, end=_TOP)


def _shade(part: EpsilonPart, x: LogScale) -> tuple[float, float] | None:
    if part.low is None or part.high is None or not part.low < part.high:
        return None
    left, right = x(max(part.low, x.low)), x(min(part.high, x.high))
    return round(left, 1), round(right - left, 1)


def _marks(part: EpsilonPart, x: LogScale) -> tuple[Mark, ...]:
    """The recommended ε, and the bound's own where that is another."""
    marks = []
    limit = None if part.limit is None else rounded_down(part.limit)
    if limit is not None and is_shown(limit) and limit != part.recommended:
        marks.append(_mark("limit", limit, "belief bound", x))
    if part.recommended is not None:
        marks.append(_mark("chosen", part.recommended, "recommended", x))
    if len(marks) == 2 and abs(marks[0].at - marks[1].at) < 190:
        # Two labels at one place: let them hang on either side.
        first, second = sorted(marks, key=lambda mark: mark.at)
        marks = [
            Mark(style=mark.style, at=mark.at, label=mark.label, anchor=anchor)
            for mark, anchor in ((first, "end"), (second, "start"))
        ]
    return tuple(marks)


def _mark(style: str, epsilon: float, words: str, x: LogScale) -> Mark:
    at = round(x(epsilon), 1)
    anchor = "start" if at < _LEFT + 130 else "end" if at > WIDTH - _RIGHT - 130 else "middle"
    return Mark(style=style, at=at, label=f"{words}: ε = {number(epsilon)}", anchor=anchor)


def _panel(
    shared: _Shared,
    *,
    key: str,
    title: str,
    description: str,
    y_ticks: tuple[Tick, ...],
    lines: Sequence[Line],
    band: str | None = None,
    band_name: str = "",
) -> Panel:
    return Panel(
        key=key,
        title=title,
        description=description,
        y_ticks=y_ticks,
        lines=tuple(lines),
        band=band,
        band_name=band_name,
        x_ticks=shared.x_ticks,
        shade=shared.shade,
        marks=shared.marks,
    )


def _belief_panel(part: EpsilonPart, shared: _Shared) -> Panel:
    curve, bound = part.curve, part.bound
    epsilons = [point.epsilon for point in curve]
    y = _scale(min(bound.prior, 1.0), 1.0)
    lines = [
        Line(
            style="scores",
            points=points(epsilons, [point.belief for point in curve], shared.x, y),
            name="of the most exposed row",
        )
    ]
    middle = [point.middle_belief for point in curve if point.middle_belief is not None]
    if middle:
        lines.append(
            Line(
                style="typical",
                points=points(epsilons, middle, shared.x, y),
                name="of a middle row",
            )
        )
    lines.append(
        Line(
            style="worst",
            points=shared.level(bound.largest, y),
            name=f"the bound, {share(bound.largest)}",
        )
    )
    return _panel(
        shared,
        key="belief",
        title="How sure an attacker gets that a row is in the data",
        description=(
            f"The belief in the most exposed row grows with ε from {percent(curve[0].belief)} at"
            f" ε = {number(curve[0].epsilon)} to {percent(curve[-1].belief)} at"
            f" ε = {number(curve[-1].epsilon)}."
        ),
        y_ticks=linear_ticks(y, percent=True),
        lines=lines,
    )


def _way_panel(part: EpsilonPart, shared: _Shared) -> Panel:
    curve = part.curve
    y = _scale(0.0, 1.0)
    lines, said = [], []
    for style, name, value in (
        ("scores", "the most exposed row", [point.way for point in curve]),
        ("typical", "a middle row", [point.middle_way for point in curve]),
    ):
        known = [(p.epsilon, way) for p, way in zip(curve, value, strict=True) if way is not None]
        if not known:
            continue
        epsilons, ways = zip(*known, strict=True)
        lines.append(Line(style=style, points=points(epsilons, ways, shared.x, y), name=name))
        said.append(
            f"{name}: from {percent(_share(ways[0]))} at ε = {number(epsilons[0])} to"
            f" {percent(_share(ways[-1]))} at ε = {number(epsilons[-1])}"
        )
    return _panel(
        shared,
        key="way",
        title="How much of the noise's protection a row has lost"
        if part.is_way
        else "How one-sided the evidence about a row is",
        description="; ".join(said) + ".",
        y_ticks=linear_ticks(y, percent=True),
        lines=lines,
    )


def _share(value: float) -> float:
    """At d = 2 the way dips a little below 0 first."""
    return min(max(value, 0.0), 1.0)


def _utility_panel(utility: UtilityCurve, shared: _Shared) -> Panel:
    found = utility.points
    epsilons = [point.epsilon for point in found]
    is_share = utility.measure == "accuracy"
    y = _scale(*utility_limits(utility))
    upper = points(epsilons, [point.high for point in found], shared.x, y)
    lower = points(epsilons[::-1], [point.low for point in found][::-1], shared.x, y)
    first, last = (score_text(utility.measure, point.mean) for point in (found[0], found[-1]))
    return _panel(
        shared,
        key="utility",
        title=f"What a released model is worth: {utility.measure} on rows it has not seen",
        description=(
            f"The mean {utility.measure} is {first} at ε = {number(epsilons[0])} and {last} at"
            f" ε = {number(epsilons[-1])}."
        ),
        y_ticks=linear_ticks(y, percent=is_share),
        lines=[
            Line(
                style="scores",
                points=points(epsilons, [point.mean for point in found], shared.x, y),
                name="released models, on average",
            ),
            Line(
                style="noiseless",
                points=shared.level(utility.noiseless, y),
                name=f"without noise, {score_text(utility.measure, utility.noiseless)}",
            ),
            Line(
                style="worst",
                points=shared.level(utility.base_rate, y),
                name=f"base rate, {score_text(utility.measure, utility.base_rate)}",
            ),
        ],
        band=f"{upper} {lower}",
        band_name="nine releases of ten",
    )


def utility_limits(utility: UtilityCurve) -> tuple[float, float]:
    """The ends of the utility axis; what lies far below the base rate is cut off."""
    worth = abs(utility.noiseless - utility.base_rate)
    figures = [value for point in utility.points for value in (point.low, point.high)]
    least = min(*figures, utility.noiseless, utility.base_rate)
    most = max(*figures, utility.noiseless, utility.base_rate)
    if utility.measure != "accuracy":
        # A noisy regression may be worse than nothing by any amount.
        floor = min(utility.base_rate, utility.noiseless) - max(worth, 0.1)
        least, most = max(least, floor), max(most, floor)
    margin = 0.06 * (most - least) or 0.05
    low, high = least - margin, most + margin
    return (max(low, 0.0), min(high, 1.0)) if utility.measure == "accuracy" else (low, high)
