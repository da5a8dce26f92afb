"""The chart of audits over ε: panels for AUC, advantage, and how theory and attacks relate."""

from collections.abc import Sequence

from expost.report.audits_part import AuditsPart, SweepLine
from expost.report.axes import linear_ticks, points
from expost.report.panel import Axis, Line, Panel, epsilon_axis, upright
from expost.report.wording import number, share

__all__ = ["audit_panels"]

# Room at both ends of the axis.
_ROOM = 1.3


def audit_panels(part: AuditsPart) -> tuple[Panel, ...]:
    """Two or three panels; none of a single ε."""
    lines = part.lines
    if len(lines) < 2:
        return ()
    axis = epsilon_axis(lines[0].epsilon / _ROOM, lines[-1].epsilon * _ROOM)
    sure = share(part.confidence)
    panels = [_auc(lines, axis, sure), _advantage(lines, axis, sure)]
    related = [line for line in lines if line.relation is not None]
    if len(related) >= 2:
        panels.append(_relation(related, axis, sure))
    return tuple(panels)


def _auc(lines: Sequence[SweepLine], axis: Axis, sure: str) -> Panel:
    return _panel(
        axis,
        key="audits-auc",
        title="How often the best attack picks the member out of a pair",
        name="the best attack (AUC)",
        epsilons=[line.epsilon for line in lines],
        values=[(line.auc.value, line.auc.low, line.auc.high) for line in lines],
        level=(0.5, "a coin"),
        sure=sure,
    )


def _advantage(lines: Sequence[SweepLine], axis: Axis, sure: str) -> Panel:
    allowed = [(line.epsilon, line.allowed) for line in lines if line.allowed is not None]
    return _panel(
        axis,
        key="audits-advantage",
        title="How much better than a coin it guesses, beside what the promise allows",
        name="the best attack (advantage)",
        epsilons=[line.epsilon for line in lines],
        values=[(one.value, one.low, one.high) for one in (line.advantage for line in lines)],
        level=(0.0, "a coin"),
        sure=sure,
        allowed=allowed,
    )


def _relation(lines: Sequence[SweepLine], axis: Axis, sure: str) -> Panel:
    related = [line.relation for line in lines if line.relation is not None]
    return _panel(
        axis,
        key="audits-relation",
        title="How alike theory and attacks rank the rows",
        name="rank correlation",
        epsilons=[line.epsilon for line in lines],
        values=[(one.value, one.low, one.high) for one in related],
        level=(0.0, "nothing in common"),
        sure=sure,
    )


def _panel(
    axis: Axis,
    *,
    key: str,
    title: str,
    name: str,
    epsilons: list[float],
    values: list[tuple[float, float, float]],
    level: tuple[float, str],
    sure: str,
    allowed: Sequence[tuple[float, float]] = (),
) -> Panel:
    """One figure with its interval over ε, and a level line."""
    middle, low, high = (list(column) for column in zip(*values, strict=True))
    y = upright(min(*low, level[0]) - 0.05, 1.0)
    lines = [Line(style="scores", points=points(epsilons, middle, axis.x, y), name=name)]
    if allowed:
        places, most = zip(*allowed, strict=True)
        drawn = points(places, most, axis.x, y)
        lines.append(Line(style="noiseless", points=drawn, name="the most that the promise allows"))
    lines.append(Line(style="worst", points=axis.level(level[0], y), name=level[1]))
    said = "; ".join(
        f"{value:.2f}".replace("-", "−") + f" at ε = {number(epsilon)}"
        for epsilon, value in zip(epsilons, middle, strict=True)
    )
    return axis.panel(
        key=key,
        title=title,
        description=f"{name}: {said}.",
        y_ticks=linear_ticks(y, percent=False),
        lines=lines,
        band=axis.band(epsilons, low, high, y),
        band_name=f"its interval at {sure}",
    )
