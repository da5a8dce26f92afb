"""The charts of an audit, ready to be drawn as SVG: ROC curves on log scales, and the exposures.

The ROC chart has both axes on a log scale (Carlini et al. 2022): what matters is how many members
are found where hardly anybody else is taken for one, and that corner a linear chart does not show.
A curve that already finds some without a single false one begins at the left edge.

What was counted on finitely many rows is a step function: the TPR at an FPR of x is that of the
last point whose FPR is at most x, as in the figures beside the chart. A straight line to the next
point would show members found that no threshold finds.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from expost.report.audit_part import AuditPart, CurvePoint
from expost.report.axes import LinearScale, LogScale, Tick, linear_ticks, log_ticks, points
from expost.report.wording import count, number, percent

__all__ = ["AuditChart", "Curve", "Dot", "roc_chart", "scatter_chart"]

WIDTH = 640
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 18, 16, 58
_ROC_HEIGHT, _SCATTER_HEIGHT = 460, 320
# Lines that the style sheet tells apart by colour and dash: the best attack has one of its own,
# and past the last the others take turns.
_STYLES = 12
# Ticks as a share of rows are written in per cent down to here.
_SHORTEST = 1e-4


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line: its class in the style sheet, its points, its name."""

    style: str
    points: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A row."""

    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class AuditChart:
    """One chart: axes with their words, lines from the front to the back, dots."""

    key: str
    title: str
    description: str
    height: int
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_label: str
    y_label: str
    curves: tuple[Curve, ...] = ()
    dots: tuple[Dot, ...] = ()

    left = _LEFT
    right = WIDTH - _RIGHT
    top = _TOP

    @property
    def bottom(self) -> int:
        """Where the axis of x is."""
        return self.height - _BOTTOM

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the drawing."""
        return WIDTH, self.height


def roc_chart(part: AuditPart) -> AuditChart:
    """All attacks, the coin, and what the promise allows."""
    low = roc_floor(part)
    x = LogScale(low=low, high=1.0, start=_LEFT, end=WIDTH - _RIGHT)
    y = LogScale(low=low, high=1.0, start=_ROC_HEIGHT - _BOTTOM, end=_TOP)
    curves = [
        Curve(
            style=f"attack attack-{place if place == 0 else 1 + (place - 1) % (_STYLES - 1)}",
            points=_line(stepped(_rates(attack.curve)), x, y),
            name=f"{attack.name}, AUC {attack.auc.value:.3f}",
        )
        for place, attack in enumerate(part.attacks)
    ]
    if part.promised:
        curves.append(
            Curve(
                style="noiseless",
                points=_line(_rates(part.promised), x, y),
                name="the most that the promise allows on average",
            )
        )
    coin = points([low, 1.0], [low, 1.0], x, y)
    curves.append(Curve(style="worst", points=coin, name="a coin"))
    return AuditChart(
        key="roc",
        title="How many members each attack finds, by how many others it takes for members",
        description=_roc_words(part),
        height=_ROC_HEIGHT,
        x_ticks=_share_ticks(x),
        y_ticks=_share_ticks(y),
        x_label="others taken for members (log scale)",
        y_label="members found (log scale)",
        curves=tuple(curves),
    )


def roc_floor(part: AuditPart) -> float:
    """Where the log axes begin: at one row of those that are fewer in number, or below."""
    fewest = min(part.members, part.others)
    return 10.0 ** -max(1, math.ceil(math.log10(fewest)))


def stepped(rates: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The corners of the steps through (FPR, TPR): to the right, and up where the next one is."""
    yield from rates[:1]
    for (before, held), (false, true) in pairwise(rates):
        if before < false and held < true:
            yield false, held
        yield false, true


def _rates(curve: Iterable[CurvePoint]) -> list[tuple[float, float]]:
    return [(one.false_positive_rate, one.true_positive_rate) for one in curve]


def _line(rates: Iterable[tuple[float, float]], x: LogScale, y: LogScale) -> str:
    """Through these (FPR, TPR); a rate of 0 stands at the edge, where the chart ends."""
    kept = [(max(false, x.low), max(true, y.low)) for false, true in rates]
    return points([false for false, _ in kept], [true for _, true in kept], x, y)


def _share_ticks(scale: LogScale) -> tuple[Tick, ...]:
    """Powers of ten in per cent."""
    powers = range(round(math.log10(scale.low)), 1)
    return tuple(
        Tick(at=round(scale(10.0**power), 1), label=_share_text(10.0**power)) for power in powers
    )


def _share_text(share: float) -> str:
    return f"{100 * share:g}\N{NO-BREAK SPACE}%" if share >= _SHORTEST else number(share)


def _roc_words(part: AuditPart) -> str:
    each = "; ".join(
        f"{one.name}: {percent(one.tpr_at_1_percent.value)} of the members at 1 % of the others,"
        f" {percent(one.tpr_at_01_percent.value)} at 0.1 %"
        for one in part.attacks
    )
    return f"A coin finds as many members as others. {each}."


def scatter_chart(part: AuditPart) -> AuditChart | None:
    """How often each member is told apart, over what theory says of it; None without either."""
    if len(part.scatter) < 2 or part.measure is None:
        return None
    measured = [one.measured for one in part.scatter]
    least, most = min(measured), max(measured)
    x = LogScale(low=least / 1.2, high=most * 1.2, start=_LEFT, end=WIDTH - _RIGHT)
    floor = min(0.4, min(one.told_apart for one in part.scatter))
    low = math.floor(10 * floor) / 10
    y = LinearScale(low=low, high=1.0, start=_SCATTER_HEIGHT - _BOTTOM, end=_TOP)
    coin = points([x.low, x.high], [0.5, 0.5], x, y)
    return AuditChart(
        key="scatter",
        title="What theory says of each member, and how often attacks tell it apart",
        description=(
            f"{count(len(part.scatter))} members, their {part.measure} from {number(least)}"
            f" to {number(most)}; {' '.join(_correlated(part))}"
        ).strip(),
        height=_SCATTER_HEIGHT,
        x_ticks=log_ticks(x, most=8),
        y_ticks=linear_ticks(y, percent=True),
        x_label=f"{part.measure}, log scale",
        y_label="told apart",
        curves=(Curve(style="worst", points=coin, name="a coin"),),
        dots=tuple(
            Dot(x=round(x(one.measured), 1), y=round(y(one.told_apart), 1)) for one in part.scatter
        ),
    )


def _correlated(part: AuditPart) -> list[str]:
    return [f"rank correlation of {one.what} {one.value:.2f}." for one in part.correlations]
