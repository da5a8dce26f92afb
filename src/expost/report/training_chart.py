"""The charts of a run of DP-SGD: how losses grew over its epochs, and ε over its steps."""

from collections.abc import Sequence

from expost.report.axes import linear_ticks, points
from expost.report.panel import Axis, Line, Panel, across, upright
from expost.report.training_part import TrainingPart
from expost.report.wording import number_up, upper
from expost.rounding import nats

__all__ = ["training_panels"]


def training_panels(part: TrainingPart) -> tuple[Panel, ...]:
    """At most two panels, each with an axis of its own."""
    panels = []
    if len(part.epochs) >= 2:
        panels.append(_losses(part))
    if len(part.spent) >= 2:
        panels.append(_spent(part))
    return tuple(panels)


def _axis(low: int, high: int, label: str) -> Axis:
    x = across(low, high)
    whole = [tick for tick in linear_ticks(x, percent=False) if "." not in tick.label]
    return Axis(x=x, ticks=tuple(whole), label=label)


def _losses(part: TrainingPart) -> Panel:
    epochs = part.epochs
    axis = _axis(epochs[0].epoch, epochs[-1].epoch, "epoch")
    own = [abs(one.own) for one in epochs]
    y = upright(0.0, max(*own, *(one.largest for one in epochs)) * 1.05 or 1.0)
    places = [one.epoch for one in epochs]

    def line(style: str, values: Sequence[float], name: str) -> Line:
        return Line(style=style, points=points(places, values, axis.x, y), name=name)

    return axis.panel(
        key="training-losses",
        title="How the exposure grew, in nats",
        description=(
            f"The row that is most exposed in the end: {nats(number_up(own[0]))} after epoch"
            f" {places[0]}, {number_up(own[-1])} after epoch {places[-1]}."
        ),
        y_ticks=linear_ticks(y, percent=False),
        lines=[
            line("scores", own, "the row that is most exposed in the end"),
            line("noiseless", [one.largest for one in epochs], "the most exposed row so far"),
            line("typical", [one.late for one in epochs], "99 of 100 rows at most"),
            line("worst", [one.middle for one in epochs], "a middle row"),
        ],
    )


def _spent(part: TrainingPart) -> Panel:
    spent = part.spent
    axis = _axis(spent[0].steps, spent[-1].steps, "steps")
    values = [one.epsilon for one in spent]
    y = upright(0.0, max(values) * 1.05 or 1.0)
    drawn = points([one.steps for one in spent], values, axis.x, y)
    return axis.panel(
        key="training-spent",
        title=f"The ε that so many steps promise, at δ = {upper(part.delta)}",
        description=(
            f"From {number_up(values[0])} after {spent[0].steps} to {number_up(values[-1])} after"
            f" {spent[-1].steps} steps."
        ),
        y_ticks=linear_ticks(y, percent=False),
        lines=[Line(style="scores", points=drawn, name="any row of any data")],
    )
