"""The chart of a promise: belief and advantage over ε (D5.3 Fig. 4.2), as two panels."""

from expost.report.axes import linear_ticks, points
from expost.report.panel import Line, Panel, epsilon_axis, epsilon_label, marked, upright
from expost.report.risk_part import RiskCurve, RiskPart
from expost.report.wording import number, percent_up

__all__ = ["risk_panels"]

# The asked δ stands out; the paper's and the plain ones follow in this order.
_ASKED, _PRINTED, _PURE = "scores", "noiseless", "worst"
_OTHERS = ("typical", "attack attack-2", "attack attack-3")


def risk_panels(part: RiskPart) -> tuple[Panel, ...]:
    """Two panels, or none where there are no curves."""
    if not part.curves or part.epsilon is None:
        return ()
    low, high = part.curves[-1].points[0].epsilon, part.curves[-1].points[-1].epsilon
    mark = marked("chosen", part.epsilon, epsilon_label("asked", part.epsilon), low=low, high=high)
    axis = epsilon_axis(low, high, marks=(mark,))
    panels = []
    for key, title, floor in (
        ("belief", "How sure an attacker can get that a person is in the data", part.prior),
        ("advantage", "How much better than a coin she guesses", 0.0),
    ):
        y = upright(min(floor, 1.0), 1.0)
        lines, said = [], []
        for curve, style in zip(part.curves, _styles(part.curves), strict=True):
            known = [
                (point.epsilon, value)
                for point in curve.points
                if (value := point.belief if key == "belief" else point.advantage) is not None
            ]
            if not known:
                continue
            epsilons, values = zip(*known, strict=True)
            drawn = points(epsilons, values, axis.x, y)
            lines.append(Line(style=style, points=drawn, name=curve.name))
            said.append(
                f"{curve.name}: from {percent_up(values[0])} at ε = {number(epsilons[0])} to"
                f" {percent_up(values[-1])} at ε = {number(epsilons[-1])}"
            )
        panels.append(
            axis.panel(
                key=f"risk-{key}",
                title=title,
                description="; ".join(said) + ".",
                y_ticks=linear_ticks(y, percent=True),
                lines=lines,
            )
        )
    return tuple(panels)


def _styles(curves: tuple[RiskCurve, ...]) -> list[str]:
    """A class of the style sheet for each; where δ = 0 was asked for, that is what stands out."""
    *gaussian, _, pure = curves
    others = iter(_OTHERS)
    styles = [_ASKED if curve.asked else next(others) for curve in gaussian]
    return [*styles, _PRINTED, _ASKED if pure.asked else _PURE]
