"""The figures of an audit: ROC curves on log scales, exposures beside attacks, accuracy by epochs.

:mod:`expost.report.display` has what all figures share. All of these are for the curator only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.attacks.snapshots import EpochTable
from expost.audits.result import Audit
from expost.errors import InvalidInput
from expost.report.audit_chart import roc_floor
from expost.report.audit_collect import collect_audit
from expost.report.audit_part import AuditPart, CurvePoint, ScatterPoint
from expost.report.display import (
    BLUE,
    GREEN,
    GREY,
    GRID,
    INK,
    ORANGE,
    PURPLE,
    Display,
    few_ticks,
    plain,
)
from expost.types import FloatArray

__all__ = ["EpochsDisplay", "ExposureDisplay", "RocDisplay"]

# Okabe and Ito's colours and dashes: the first line is the best attack.
_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, "#56B4E9", "#E69F00", INK)
_DASHES: tuple[Any, ...] = ("-", "--", (0, (2, 2)), "-.", (0, (8, 3)), (0, (4, 1, 1, 1)), ":")


@dataclass(frozen=True, kw_only=True, eq=False)
class RocDisplay(Display):
    """Curves by name, the best first; ``promised`` is what the promise allows, or empty.

    ``floor`` is where both log axes begin; rates of 0 stand there. Curves go by steps, for what was
    counted does: the TPR at an FPR is that of the last point before it. The promise is smooth.
    """

    curves: Mapping[str, tuple[CurvePoint, ...]]
    promised: tuple[CurvePoint, ...]
    floor: float

    is_marked = True
    size = (6.4, 5.6)

    @classmethod
    def from_audit(cls, audit: Audit) -> "RocDisplay":
        """All attacks of an audit."""
        return cls.from_part(collect_audit(audit))

    @classmethod
    def from_part(cls, part: AuditPart) -> "RocDisplay":
        """All attacks of a part."""
        curves = {f"{one.name}, AUC {one.auc.value:.3f}": one.curve for one in part.attacks}
        return cls(curves=curves, promised=part.promised, floor=roc_floor(part))

    def _draw(self, ax: Any) -> None:
        """Draw the curves, the coin, and the promise."""
        for place, (name, curve) in enumerate(self.curves.items()):
            style = {
                "color": _COLOURS[place % len(_COLOURS)],
                "ls": _DASHES[(place + place // len(_COLOURS)) % len(_DASHES)],
                "lw": 2.4 if place == 0 else 1.5,
                "zorder": 4 - place / len(self.curves),
            }
            ax.plot(*self._rates(curve), drawstyle="steps-post", label=plain(name), **style)
        if self.promised:
            label = "allowed by the promise, on average"
            ax.plot(*self._rates(self.promised), color=INK, lw=1.2, ls=(0, (10, 2)), label=label)
        ax.plot([self.floor, 1], [self.floor, 1], color=GREY, ls=":", lw=1.4, label="a coin")
        ax.set(
            xscale="log",
            yscale="log",
            xlim=(self.floor, 1),
            ylim=(self.floor, 1.05),
            xlabel="false positive rate",
            ylabel="true positive rate: members found",
        )
        ax.grid(color=GRID, lw=0.7)
        ax.set_axisbelow(True)
        ax.legend(loc="lower right", fontsize="small")

    def _rates(self, curve: tuple[CurvePoint, ...]) -> tuple[list[float], list[float]]:
        return (
            [max(point.false_positive_rate, self.floor) for point in curve],
            [max(point.true_positive_rate, self.floor) for point in curve],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ExposureDisplay(Display):
    """Members by what theory says and by how often they are told apart; ``title`` names ρ."""

    points: tuple[ScatterPoint, ...]
    measure: str
    title: str = ""

    is_marked = True
    size = (6.4, 4.2)

    @classmethod
    def from_audit(cls, audit: Audit) -> "ExposureDisplay":
        """The members of an audit of whom both are known."""
        return cls.from_part(collect_audit(audit))

    @classmethod
    def from_part(cls, part: AuditPart) -> "ExposureDisplay":
        """The members of a part."""
        if not part.scatter or part.measure is None:
            raise InvalidInput(
                "audit: knows no exposures, or has no references; audit an expost model with"
                " references."
            )
        title = "; ".join(
            f"rank correlation of {one.what}: {one.value:.2f}"
            for one in part.correlations
            if one.what.endswith("told apart")
        )
        return cls(points=part.scatter, measure=part.measure, title=title)

    def _draw(self, ax: Any) -> None:
        """Draw a dot a member, and the coin."""
        measured = [point.measured for point in self.points]
        told = [point.told_apart for point in self.points]
        ax.plot(measured, told, ls="", marker="o", ms=3.5, mew=0, color=BLUE, alpha=0.5)
        ax.axhline(0.5, color=GREY, ls=":", lw=1.4, label="a coin")
        ax.set(
            xscale="log",
            xlabel=self.measure,
            ylabel="told apart by references",
            ylim=(min(0.4, *told) - 0.02, 1.02),
        )
        few_ticks(ax.xaxis, measured)
        if self.title:
            ax.set_title(plain(self.title), fontsize="medium")
        ax.legend(loc="upper left", fontsize="small")


@dataclass(frozen=True, kw_only=True, eq=False)
class EpochsDisplay(Display):
    """What observers of several snapshots reach: the lecture's table, as lines.

    ``observed``  the sets of epochs that were seen, in words: k of them, from left to right.
    ``accuracy``  (k, 3) value, low and high of each attack, by its name.
    """

    observed: tuple[str, ...]
    accuracy: Mapping[str, FloatArray]

    is_marked = True

    def __post_init__(self) -> None:
        for name, values in self.accuracy.items():
            if np.shape(values) != (len(self.observed), 3):
                raise InvalidInput(
                    f"{name}: must have a value, its low and its high end for each of"
                    f" {len(self.observed)} observations."
                )

    @classmethod
    def from_tables(cls, tables: Mapping[str, EpochTable]) -> "EpochsDisplay":
        """Tables of the same sets of epochs, by the names of their attacks."""
        sets = {tuple(line.epochs for line in table.lines) for table in tables.values()}
        if len(sets) != 1:
            raise InvalidInput("tables: must be of the same sets of epochs, one table at least.")
        return cls(
            observed=tuple(", ".join(map(str, epochs)) for epochs in sets.pop()),
            accuracy={
                name: np.array(
                    [
                        (one.value, one.low, one.high)
                        for one in (line.figures.accuracy for line in table.lines)
                    ]
                )
                for name, table in tables.items()
            },
        )

    def _draw(self, ax: Any) -> None:
        """Draw the lines with their intervals, and the coin."""
        places = np.arange(len(self.observed))
        for place, (name, values) in enumerate(self.accuracy.items()):
            colour = _COLOURS[place % len(_COLOURS)]
            ax.fill_between(places, values[:, 1], values[:, 2], color=colour, alpha=0.15, lw=0)
            ax.plot(
                places,
                values[:, 0],
                color=colour,
                ls=_DASHES[place % len(_DASHES)],
                marker="o",
                ms=4,
                label=plain(name),
            )
        ax.axhline(0.5, color=GREY, ls=":", lw=1.4, label="a coin")
        ax.set_xticks(places, self.observed)
        ax.set(xlabel="observed epochs", ylabel="balanced accuracy of the attack")
        ax.legend(loc="best", fontsize="small")
