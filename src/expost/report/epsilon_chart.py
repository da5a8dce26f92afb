"""The charts of a choice of ε, ready to be drawn as SVG: panels over one log axis of ε.

From top to bottom: the posterior of a row, how far the rows have come from their first
plateau to their second regime, and how useful the model is. The range from ``low`` to ``high`` is
shaded in all of them; the recommended ε and the ceiling are upright lines.
"""

from dataclasses import replace

from expost.epsilon.recommend import score_text
from expost.report.axes import linear_ticks, points
from expost.report.epsilon_curves import is_shown
from expost.report.epsilon_part import EpsilonPart, UtilityCurve
from expost.report.panel import (
    Axis,
    Line,
    Mark,
    Panel,
    epsilon_axis,
    epsilon_label,
    marked,
    upright,
)
from expost.report.wording import number, percent, percent_up, share
from expost.rounding import rounded_down

__all__ = ["epsilon_panels", "utility_limits"]


def epsilon_panels(part: EpsilonPart) -> tuple[Panel, ...]:
    """Two panels, and a third where the utility was measured."""
    low, high = part.axis
    shade = None
    if part.low is not None and part.high is not None and part.low < part.high:
        shade = part.low, part.high
    axis = epsilon_axis(low, high, shade=shade, marks=_marks(part))
    panels = [_posterior_panel(part, axis), _way_panel(part, axis)]
    if part.utility is not None:
        panels.append(_utility_panel(part.utility, axis))
    return tuple(panels)


def _marks(part: EpsilonPart) -> tuple[Mark, ...]:
    """The recommended ε, and the ceiling where that is another."""
    wanted = []
    ceiling = None if part.ceiling is None else rounded_down(part.ceiling)
    if ceiling is not None and is_shown(ceiling) and ceiling != part.recommended:
        wanted.append(("limit", ceiling, "ceiling"))
    if part.recommended is not None:
        wanted.append(("chosen", part.recommended, "recommended"))
    low, high = part.axis
    marks = [
        marked(style, epsilon, epsilon_label(words, epsilon), low=low, high=high)
        for style, epsilon, words in wanted
    ]
    if len(marks) == 2 and abs(marks[0].at - marks[1].at) < 190:
        # Two labels at one place: let them hang on either side.
        first, second = sorted(marks, key=lambda mark: mark.at)
        marks = [replace(first, anchor="end"), replace(second, anchor="start")]
    return tuple(marks)


def _posterior_panel(part: EpsilonPart, axis: Axis) -> Panel:
    curve, limit = part.curve, part.limit
    epsilons = [point.epsilon for point in curve]
    y = upright(min(limit.prior, 1.0), 1.0)
    lines = [
        Line(
            style="scores",
            points=points(epsilons, [point.posterior for point in curve], axis.x, y),
            name="of the most exposed row",
        )
    ]
    middle = [point.middle_posterior for point in curve if point.middle_posterior is not None]
    if middle:
        lines.append(
            Line(
                style="typical",
                points=points(epsilons, middle, axis.x, y),
                name="of a middle row",
            )
        )
    lines.append(
        Line(
            style="worst",
            points=axis.level(limit.max_posterior, y),
            name=f"the limit, {share(limit.max_posterior)}",
        )
    )
    return axis.panel(
        key="posterior",
        title="Posterior probability that a row was in the training data",
        description=(
            f"The posterior of the most exposed row grows with ε from"
            f" {percent_up(curve[0].posterior)} at"
            f" ε = {number(curve[0].epsilon)} to {percent_up(curve[-1].posterior)} at"
            f" ε = {number(curve[-1].epsilon)}."
        ),
        y_ticks=linear_ticks(y, percent=True),
        lines=lines,
    )


def _way_panel(part: EpsilonPart, axis: Axis) -> Panel:
    curve = part.curve
    y = upright(0.0, 1.0)
    lines, said = [], []
    for style, name, value in (
        ("scores", "the most exposed row", [point.way for point in curve]),
        ("typical", "a middle row", [point.middle_way for point in curve]),
    ):
        known = [(p.epsilon, way) for p, way in zip(curve, value, strict=True) if way is not None]
        if not known:
            continue
        epsilons, ways = zip(*known, strict=True)
        lines.append(Line(style=style, points=points(epsilons, ways, axis.x, y), name=name))
        said.append(
            f"{name}: from {percent(_share(ways[0]))} at ε = {number(epsilons[0])} to"
            f" {percent(_share(ways[-1]))} at ε = {number(epsilons[-1])}"
        )
    return axis.panel(
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


def _utility_panel(utility: UtilityCurve, axis: Axis) -> Panel:
    found = utility.points
    epsilons = [point.epsilon for point in found]
    is_share = utility.measure == "accuracy"
    y = upright(*utility_limits(utility))
    low, high = [point.low for point in found], [point.high for point in found]
    first, last = (score_text(utility.measure, point.mean) for point in (found[0], found[-1]))
    return axis.panel(
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
                points=points(epsilons, [point.mean for point in found], axis.x, y),
                name="released models, on average",
            ),
            Line(
                style="noiseless",
                points=axis.level(utility.best, y),
                name=f"best reachable, {score_text(utility.measure, utility.best)}",
            ),
            Line(
                style="worst",
                points=axis.level(utility.base_rate, y),
                name=f"base rate, {score_text(utility.measure, utility.base_rate)}",
            ),
        ],
        band=axis.band(epsilons, low, high, y),
        band_name="nine releases of ten",
    )


def utility_limits(utility: UtilityCurve) -> tuple[float, float]:
    """The ends of the utility axis; what is far worse than the base rate is cut off."""
    worth = abs(utility.best - utility.base_rate)
    figures = [value for point in utility.points for value in (point.low, point.high)]
    least = min(*figures, utility.best, utility.base_rate)
    most = max(*figures, utility.best, utility.base_rate)
    # A noisy model may be worse than nothing by any amount.
    worst = max(worth, 0.1)
    if utility.measure == "log loss":
        most = min(most, max(utility.base_rate, utility.best) + worst)
    elif utility.measure != "accuracy":
        least = max(least, min(utility.base_rate, utility.best) - worst)
    margin = 0.06 * (most - least) or 0.05
    low, high = least - margin, most + margin
    return (max(low, 0.0), min(high, 1.0)) if utility.measure == "accuracy" else (low, high)
