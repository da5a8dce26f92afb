"""Figures as SVG, with the colours, dashes and ticks that matplotlib's drawings share.

Presentation is by CSS classes alone: the page's content policy forbids style attributes. Scripts
identify an axis by ``data-x`` and ``data-y`` ("low high log") and by ``data-quantity``.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from expost.numbers import count, number
from expost.report.figure import Axis, Figure, Line, Panel, Role, Rule

__all__ = ["STYLES", "Style", "figure_key", "panel_svg", "role_css", "spaced", "ticks"]

_WIDTH, _HEIGHT = 640, 290
_LEFT, _WIDE_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 200, 20, 32, 56
# The height of one category, the letters that fit next to it in a narrow and in a wide drawing, and
# the width of a letter below an axis.
_CATEGORY, _LETTERS, _WIDE_LETTERS, _LETTER = 34, 17, 27, 10
# Lines of more points are thinned: points within one pixel are one stroke.
_MOST_POINTS = 1000
# Values outside of the panel, and infinite ones, are drawn this many panels away at most.
_FAR = 10
_DOT = Markup('<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="{:g}"/>')
# Before %, around × 10 and in ε = 1.
_SPACES = re.compile(r"(?<=\d) %| × (?=10)|(?<=[εδμσ]) = (?=[\d∞])|(?<=±) (?=\d)")
_Scale = Callable[[float], float]


@dataclass(frozen=True, kw_only=True)
class Style:
    """The style of a role: its colour on white and on dark ground, dashes and width."""

    colour: str
    dark: str
    dashes: tuple[int, ...] = ()
    width: float = 2.0


# The palette of Okabe and Ito, for the colour-blind; purple and orange are darkened, so that all
# have a contrast of 3 on white. Dashes differ as well.
STYLES: Mapping[Role, Style] = {
    "main": Style(colour="#0072b2", dark="#6fb2fb", width=2.6),
    "second": Style(colour="#d55e00", dark="#f0a35e", dashes=(8, 5)),
    "third": Style(colour="#00855f", dark="#5fe0b2", dashes=(10, 3, 2, 3)),
    "fourth": Style(colour="#b8508c", dark="#f08fc0", dashes=(3, 3)),
    "fifth": Style(colour="#a06a00", dark="#e8c14f", dashes=(14, 5)),
    "limit": Style(colour="#5b6570", dark="#a5afba", dashes=(2, 4), width=1.8),
}


def role_css() -> str:
    """Return the rules of the style sheet that draw each role."""
    light = "".join(f" --{role}: {style.colour};" for role, style in STYLES.items())
    dark = "".join(f" --{role}: {style.dark};" for role, style in STYLES.items())
    rules = "".join(
        f".expost .{role} {{ --role: var(--{role}); --dashes: {_dashes(style)};"
        f" --width: {style.width}; }}\n"
        for role, style in STYLES.items()
    )
    return (
        f".expost {{{light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ .expost {{{dark} }} }}\n{rules}"
    )


def _dashes(style: Style) -> str:
    return " ".join(map(str, style.dashes)) or "none"


def spaced(text: str) -> str:
    """Return text in which no line ends between a number and its symbol, unit or power of ten."""
    return _SPACES.sub(lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


# -- axes ------------------------------------------------------------------------------------------


def ticks(axis: Axis) -> list[tuple[float, str]]:
    """Return round values on an axis with their labels, or its categories."""
    if axis.categories:
        return [(float(index), name) for index, name in enumerate(axis.categories)]
    if axis.low == axis.high:
        return [(axis.low, _label(axis, axis.low))]
    values = _log_values(axis) if axis.log else []
    values = values if len(values) > 1 else _linear_values(axis)
    low, high = sorted((axis.low, axis.high))
    room = 1e-9 * (high - low)
    return [(value, _label(axis, value)) for value in values if low - room <= value <= high + room]


def _log_values(axis: Axis) -> list[float]:
    powers = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    decades = math.log10(axis.high / axis.low)
    factors = (1, 2, 5) if decades < 2.5 else (1,)
    step = max(1, -(-len(powers) // 8))
    kept = [power for power in powers if power % step == 0]
    values = [float(f"{factor}e{power}") for power in kept for factor in factors]
    return [value for value in values if axis.low <= value <= axis.high * (1 + 1e-12)]


def _linear_values(axis: Axis) -> list[float]:
    low, high = sorted((axis.low, axis.high))
    width = high - low
    unit = 10.0 ** math.floor(math.log10(width))
    step = next(unit * part for part in (0.2, 0.5, 1, 2) if width / (unit * part) < 6.001)
    if axis.format == "count":
        step = max(step, 1.0)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def _label(axis: Axis, value: float) -> str:
    if axis.format == "percent":
        return f"{number(100 * value, digits=5)} %"
    if axis.format == "count":
        return count(round(value))
    return number(value, digits=4)


def _scale(axis: Axis, start: float, end: float) -> _Scale:
    size = end - start

    def at(value: float) -> float:
        if axis.low == axis.high:
            share = 0.5
        elif axis.log:
            share = (
                math.log(value / axis.low) / math.log(axis.high / axis.low)
                if 0 < value < math.inf
                else (_FAR if value > 0 else -_FAR)
            )
        else:
            share = (value - axis.low) / (axis.high - axis.low)
        return start + min(max(share, -_FAR), _FAR) * size

    return at


# -- panels ----------------------------------------------------------------------------------------


def panel_svg(figure: Figure, panel: Panel, key: str) -> Markup:
    """Return one panel; ``key`` is the prefix of its ids."""
    return Markup("\n").join(_elements(figure, panel, key))


def figure_key(figure: Figure) -> Markup:
    """Return the legend: each name once, with its style."""
    items: list[tuple[str, str, str]] = []
    for panel in figure.panels:
        items += [(line.name, line.role, "dot" if line.dots else "series") for line in panel.lines]
        items += [(band.name, band.role, "area") for band in panel.bands]
        items += [
            (rule.name, rule.role, "series" if rule.to is None else "shade") for rule in panel.rules
        ]
    named = [item for item in dict.fromkeys(items) if item[0]]
    if not named:
        return Markup("")
    entry = Markup('<li><svg viewBox="0 0 36 12" aria-hidden="true">{}</svg> <span>{}</span></li>')
    entries = Markup("\n").join(
        entry.format(_swatch(kind, role), spaced(name)) for name, role, kind in named
    )
    return Markup('<ul class="legend">\n{}\n</ul>').format(entries)


def _swatch(kind: str, role: str) -> Markup:
    match kind:
        case "dot":
            return Markup('<circle class="dot {}" cx="18" cy="6" r="4"/>').format(role)
        case "area" | "shade":
            return Markup('<rect class="{} {}" x="0" y="0" width="36" height="12"/>').format(
                kind, role
            )
        case _:
            return Markup('<line class="series {}" x1="0" y1="6" x2="36" y2="6"/>').format(role)


@dataclass(frozen=True, kw_only=True)
class _Area:
    """The area between the axes, and the places of values in it."""

    left: float
    right: float
    top: float
    bottom: float
    height: float
    x: _Scale
    y: _Scale


def _area(panel: Panel) -> _Area:
    height: float = _HEIGHT
    if panel.y.categories:
        height = _TOP + _BOTTOM + _CATEGORY * len(panel.y.categories)
    left: float = _WIDE_LEFT if panel.y.categories else _LEFT
    right, bottom = _WIDTH - _RIGHT, height - _BOTTOM
    return _Area(
        left=left,
        right=right,
        top=_TOP,
        bottom=bottom,
        height=height,
        x=_scale(panel.x, left, right),
        y=_scale(panel.y, bottom, _TOP),
    )


def _elements(figure: Figure, panel: Panel, key: str) -> Iterator[Markup]:
    area = _area(panel)
    yield Markup(
        '<svg viewBox="0 0 {} {:g}" role="img" aria-labelledby="{}-title {}-text" data-x="{}"'
        ' data-y="{}"{}>'
    ).format(
        _WIDTH,
        area.height,
        key,
        key,
        _data(panel.x),
        _data(panel.y),
        Markup(' data-quantity="{}"').format(panel.x.quantity) if panel.x.quantity else "",
    )
    yield Markup('<title id="{}-title">{}</title>').format(key, spaced(panel.title))
    yield Markup('<desc id="{}-text">{}</desc>').format(key, spaced(figure.description))
    yield Markup(
        '<clipPath id="{}-area"><rect x="{:g}" y="{:g}" width="{:g}" height="{:g}"/></clipPath>'
    ).format(key, area.left, area.top, area.right - area.left, area.bottom - area.top)
    yield from _axes(panel, area)
    yield Markup('<g clip-path="url(#{}-area)">').format(key)
    for rule in panel.rules:
        yield _rule(rule, area)
    for band in panel.bands:
        upper, lower = _points(band.x, band.high, area), _points(band.x, band.low, area)
        yield Markup('<polygon class="area {}" points="{}"/>').format(
            band.role, _text_of([*upper, *lower[::-1]])
        )
    # The first line is drawn last, on top of the others.
    for line in reversed(panel.lines):
        yield from _line(line, area)
    yield Markup("</g>")
    for line in reversed(panel.lines):
        if line.dots:
            yield from _dots(line, area)
    yield from _rule_labels(panel, area)
    yield Markup("</svg>")


def _data(axis: Axis) -> str:
    return f"{float(axis.low)!r} {float(axis.high)!r} {'log' if axis.log else 'linear'}"


def _axes(panel: Panel, area: _Area) -> Iterator[Markup]:
    grid = Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>')
    text = Markup('<text class="tick{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
    for value, label in ticks(panel.y):
        height = area.y(value)
        yield grid.format("grid", area.left, height, area.right, height)
        names = {"": label}
        if panel.y.categories and len(label) > _LETTERS:
            names = {
                " narrow": _shortened(label, _LETTERS),
                " wide": _shortened(label, _WIDE_LETTERS),
            }
        for fit, name in names.items():
            yield text.format(fit, area.left - 9, height + 5, "end", spaced(name))
    places = ticks(panel.x)
    letters = max(3, int((area.right - area.left) / max(len(places), 1) / _LETTER))
    for value, label in places:
        at = area.x(value)
        shown = _shortened(label, letters) if panel.x.categories else label
        yield grid.format("notch", at, area.bottom, at, area.bottom + 5)
        # At the ends a label hangs on its tick, so that it stays within the drawing.
        anchor = "end" if at > area.right - 12 else "middle"
        yield text.format(
            "", at + (10 if anchor == "end" else 0), area.bottom + 23, anchor, spaced(shown)
        )
    yield grid.format("axis", area.left, area.bottom, area.right, area.bottom)
    title = Markup('<text class="axis-title" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
    yield title.format(area.right, area.height - 6, "end", spaced(panel.x.label))
    yield title.format(4, area.top - 13, "start", spaced(panel.y.label))


def _rule(rule: Rule, area: _Area) -> Markup:
    along = area.x if rule.axis == "x" else area.y
    if rule.to is not None:
        low, high = sorted((along(rule.at), along(rule.to)))
        box = (
            (low, area.top, high - low, area.bottom - area.top)
            if rule.axis == "x"
            else (area.left, low, area.right - area.left, high - low)
        )
        return Markup(
            '<rect class="shade {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>'
        ).format(rule.role, *box)
    at = along(rule.at)
    ends = (at, area.top, at, area.bottom) if rule.axis == "x" else (area.left, at, area.right, at)
    return Markup(
        '<line class="series {}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'
    ).format(rule.role, *ends)


def _rule_labels(panel: Panel, area: _Area) -> Iterator[Markup]:
    """Yield the labels of reference lines.

    Those of vertical lines are above the panel, or below one another if there is no room. Those of
    horizontal lines are at their right ends, or at their left ends if there are others.
    """
    text = Markup('<text class="rule-label" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
    labelled = [rule for rule in panel.rules if rule.label and _is_inside(rule, panel)]
    # The label of the axis is above the panel, too.
    taken, line = [(0.0, 12.0 + _LETTER * len(panel.y.label))], 0
    for rule in labelled:
        if rule.axis == "y":
            continue
        at, width = area.x(rule.at), _LETTER * len(rule.label)
        middle = max(min(at, area.right + _RIGHT - width / 2), width / 2)
        ends = middle - width / 2, middle + width / 2
        if all(ends[0] > high or ends[1] < low for low, high in taken):
            taken.append(ends)
            yield text.format(middle, area.top - 9, "middle", spaced(rule.label))
            continue
        line += 1
        has_room = area.right - at > width
        side, anchor = (7, "start") if has_room else (-7, "end")
        yield text.format(at + side, area.top + 22 * line - 6, anchor, spaced(rule.label))
    end, anchor = (area.left + 4, "start") if line else (area.right - 4, "end")
    for rule in labelled:
        if rule.axis == "y":
            at = area.y(rule.at)
            height = at - 7 if at > area.top + 20 else at + 18
            yield text.format(end, height, anchor, spaced(rule.label))


def _is_inside(rule: Rule, panel: Panel) -> bool:
    axis = panel.x if rule.axis == "x" else panel.y
    low, high = sorted((axis.low, axis.high))
    return low <= rule.at <= high


def _line(line: Line, area: _Area) -> Iterator[Markup]:
    if line.low is not None and line.high is not None:
        bar = Markup('<line class="bar {}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>')
        for value, low, high in zip(line.x, line.low, line.high, strict=True):
            at = area.x(value)
            yield bar.format(line.role, at, area.y(low), at, area.y(high))
    if line.dots:
        return
    for piece in _pieces(_points(line.x, line.y, area)):
        if len(piece) == 1:
            yield _DOT.format(line.role, *piece[0], line.radius)
            continue
        drawn = _thinned(_stepped(piece) if line.step else piece)
        yield Markup('<polyline class="series {}" points="{}"/>').format(line.role, _text_of(drawn))


def _dots(line: Line, area: _Area) -> Iterator[Markup]:
    """Yield the points inside the area, complete also on its edge."""
    places = ((round(x, 1), round(y, 1)) for x, y in _points(line.x, line.y, area))
    for x, y in dict.fromkeys(places):
        if area.left <= x <= area.right and area.top <= y <= area.bottom:
            yield _DOT.format(line.role, x, y, line.radius)


_Points = list[tuple[float, float]]


def _points(xs: Sequence[float], ys: Sequence[float], area: _Area) -> _Points:
    return [(area.x(float(a)), area.y(float(b))) for a, b in zip(xs, ys, strict=True)]


def _pieces(points: _Points) -> Iterator[_Points]:
    """Yield the pieces of a line that is interrupted at unknown values."""
    piece: _Points = []
    for point in points:
        if math.isnan(point[0]) or math.isnan(point[1]):
            if piece:
                yield piece
            piece = []
        else:
            piece.append(point)
    if piece:
        yield piece


def _stepped(points: _Points) -> _Points:
    steps = points[:1]
    for (_, before), (at, height) in pairwise(points):
        steps += [(at, before), (at, height)]
    return steps


def _thinned(points: _Points) -> _Points:
    """Return the first, lowest, highest and last of many points in one column of pixels."""
    if len(points) <= _MOST_POINTS:
        return points
    xs, ys = np.array(points).T
    starts = np.flatnonzero(np.diff(np.round(xs), prepend=np.nan) != 0).tolist()
    kept: set[int] = set()
    for start, end in zip(starts, [*starts[1:], len(xs)], strict=True):
        column = ys[start:end]
        kept |= {start, start + int(column.argmin()), start + int(column.argmax()), end - 1}
    return [points[index] for index in sorted(kept)]


def _text_of(points: _Points) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in points)


def _shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
