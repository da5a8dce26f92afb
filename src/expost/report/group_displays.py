"""Who is exposed, beside whom: groups of rows, published bounds beside exact losses, releases.

:mod:`expost.report.display` has what all figures share.
"""

import math
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.groups.exposure import Explanation, Group, Grouping
from expost.ledger import Ledger
from expost.publishing.compare import Comparison
from expost.report.display import (
    BLUE,
    GREEN,
    GREY,
    GRID,
    INK,
    ORANGE,
    Display,
    PanelsDisplay,
    few_ticks,
    percents,
    plain,
)
from expost.types import FloatArray

__all__ = ["ComparisonDisplay", "GroupsDisplay", "LedgerDisplay"]

_WIDTH = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupsDisplay(PanelsDisplay):
    """Groups from top to bottom: how exposed their rows are, and who the most exposed 1 % are."""

    groups: tuple[Group, ...]
    title: str

    is_marked = True
    grid = (1, 2)

    @classmethod
    def from_groups(cls, found: Grouping | Explanation) -> "GroupsDisplay":
        """The parts of a column, or the leaves of a tree."""
        return cls(groups=found.groups, title=found.title)

    @property
    def size(self) -> tuple[float, float]:
        """A group more is a little higher."""
        lines = sum(1 + _wrapped(group.label).count("\n") for group in self.groups)
        return 9.6, min(2.0 + 0.15 * len(self.groups) + 0.2 * lines, 16.0)

    def _draw(self, axes: Any) -> None:
        places = np.arange(len(self.groups))
        self._exposures(axes[0], places)
        self._shares(axes[1], places)
        names = [plain(_wrapped(group.label)) for group in self.groups]
        axes[0].set_yticks(places, names)
        axes[1].set_yticks(places, [""] * len(places))
        for ax in axes:
            ax.set_ylim(len(places) - 0.4, -0.6)
            ax.grid(axis="x", color=GRID, lw=0.7)
            ax.set_axisbelow(True)
            ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize="small")
        axes[0].figure.suptitle(plain(_short(self.title, 96)), fontsize="medium")

    def _exposures(self, ax: Any, places: Any) -> None:
        median, mean, largest = (
            _drawable([getattr(group, name) for group in self.groups])
            for name in ("median", "mean", "largest")
        )
        ax.hlines(places, median, largest, color=GREY, lw=1.2)
        ax.plot(median, places, color=BLUE, marker="o", ms=6, ls="", label="median")
        ax.plot(mean, places, color=GREEN, marker="D", ms=5, ls="", label="mean")
        ax.plot(largest, places, color=ORANGE, marker="^", ms=6, ls="", label="largest")
        positive = [float(v) for v in (*median, *mean, *largest) if v > 0]
        if positive:
            ax.set_xscale("log")
            few_ticks(ax.xaxis, positive)
        ax.set_xlabel("exposure (nats; distance without noise)")

    def _shares(self, ax: Any, places: Any) -> None:
        share = [group.share for group in self.groups]
        top = [group.top_share for group in self.groups]
        ax.hlines(places, share, top, color=GREY, lw=1.2)
        ax.plot(share, places, color=BLUE, marker="o", ms=6, ls="", label="of all rows")
        label = "of the most exposed 1 %"
        ax.plot(top, places, color=ORANGE, marker="^", ms=7, ls="", label=label)
        ax.set(xlabel="the group's share", xlim=(-0.03, 1.03))
        percents(ax.xaxis)


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparisonDisplay(Display):
    """Published bounds over exact exposures, a dot a row; a dot below the line is a failure.

    ``exposure``, ``bound``  (n,) in nats; what is 0 or infinite has no place on a log scale.
    """

    exposure: FloatArray
    bound: FloatArray
    failures: int

    is_marked = True
    size = (5.8, 5.0)

    @classmethod
    def from_comparison(cls, found: Comparison) -> "ComparisonDisplay":
        """The rows of a comparison."""
        columns, failures = found.columns(), found.figures.failures
        return cls(exposure=columns["exposure"], bound=columns["bound"], failures=failures)

    def _draw(self, ax: Any) -> None:
        exposure, bound = _drawable(self.exposure), _drawable(self.bound)
        both = np.isfinite(exposure) & np.isfinite(bound)
        style = {"color": BLUE, "marker": "o", "mew": 0, "ms": 3.5, "alpha": 0.45, "ls": ""}
        ax.plot(exposure[both], bound[both], rasterized=True, label="a row", **style)
        words = f"failures lie below: {self.failures:,} of {len(self.bound):,}"
        if np.any(both):
            ends = [float(np.min(exposure[both])), float(np.max(bound[both]))]
            ax.plot(ends, ends, color=INK, ls="--", lw=1.4, label=f"equal; {words}")
            ax.set(xscale="log", yscale="log")
        ax.set(xlabel="exact exposure (nats)", ylabel="published bound (nats)")
        ax.grid(color=GRID, lw=0.7)
        ax.set_axisbelow(True)
        ax.legend(loc="lower right", fontsize="small")


@dataclass(frozen=True, kw_only=True, eq=False)
class LedgerDisplay(Display):
    """What each listed release spends, and what all up to it do by addition.

    ``names``, ``epsilons``  of each release; infinite where nothing is promised.
    ``together``             (ε, δ) of all of them composed, or None where it was not asked for.
    """

    names: tuple[str, ...]
    epsilons: FloatArray
    together: tuple[float, float] | None = None

    is_marked = True

    @classmethod
    def from_ledger(cls, ledger: Ledger, delta: float | None = None) -> "LedgerDisplay":
        """All entries; with a ``delta``, what they are together at it."""
        promised = [entry.epsilon if entry.is_promised else math.inf for entry in ledger.entries]
        together = None
        if delta is not None and len(ledger):
            together = (ledger.composed(delta).row("pld").epsilon, delta)
        return cls(
            names=tuple(f"{entry.made[:10]} {entry.kind}" for entry in ledger.entries),
            epsilons=np.array(promised, dtype=np.float64),
            together=together,
        )

    @property
    def size(self) -> tuple[float, float]:
        """A release more is a little wider."""
        return min(4.4 + 0.35 * len(self.names), 16.0), 4.0

    def _draw(self, ax: Any) -> None:
        places = np.arange(1, len(self.names) + 1)
        own = _finite(self.epsilons)
        ax.bar(places, own, width=0.55, color=BLUE, label="each release")
        total = _finite(np.cumsum(self.epsilons))
        ax.step(places, total, where="mid", color=ORANGE, lw=2, ls="--", label="all by addition")
        if self.together is not None and math.isfinite(self.together[0]):
            epsilon, delta = self.together
            label = f"all composed, δ = {delta:g}"
            ax.axhline(epsilon, color=GREEN, ls="-.", lw=1.6, label=label)
        for place in places[~np.isfinite(self.epsilons)]:
            ax.annotate("∞", (place, 0.02), xycoords=("data", "axes fraction"), ha="center")
        rotated = {"rotation": 30, "ha": "right"} if len(places) > 3 else {}
        ax.set_xticks(places, [plain(name) for name in self.names], fontsize="small", **rotated)
        ax.set(xlabel="releases, in the order in which they were listed", ylabel="ε")
        ax.set(xlim=(0.4, max(len(places), 1) + 0.6))
        ax.set_ylim(bottom=0)
        if len(places):
            ax.legend(loc="upper left", fontsize="small")


def _drawable(values: Any) -> FloatArray:
    """What has a place on a log scale; NaN for the rest."""
    array = np.asarray(values, dtype=np.float64)
    return np.where((array > 0) & np.isfinite(array), array, np.nan)


def _finite(values: FloatArray) -> FloatArray:
    return np.where(np.isfinite(values), values, np.nan)


def _short(name: str, longest: int) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _wrapped(label: str) -> str:
    """A condition on a few lines."""
    return "\n".join(textwrap.wrap(label, _WIDTH, max_lines=3, placeholder=" …")) or label
