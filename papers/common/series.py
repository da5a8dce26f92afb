"""Figures by rank, by name and over time."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.errors import InvalidInput
from expost.types import FloatArray
from papers.common.curves import Guide
from papers.common.display import BLUE, GRID, Display, drawn_places, few_ticks, percents, plain

__all__ = [
    "Band",
    "BandsDisplay",
    "DotsDisplay",
    "RanksDisplay",
    "Series",
    "ranked",
]

# Of a name beside an axis; more would leave no room for the figure.
_LONGEST = 34
# Of all that belongs to one name, of the distance between two.
_WIDTH = 0.55
# Letters that a legend above the axes may be wide.
_LEGEND = 66


@dataclass(frozen=True, kw_only=True, eq=False)
class RanksDisplay(Display):
    """One value a row, the largest first, over a log scale of ranks, as in the report.

    ``values``       (n,) descending;  ``low`` and ``high`` (n,) of the same rows, or None.
    ``interval``     what the band between those is called.
    ``levels``       lines across; infinite ones have no place, and are left out.
    ``log_y``        what is 0 has no place on a log scale, and is left out.
    """

    values: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    interval: str = "proved interval"
    levels: tuple[Guide, ...] = ()
    label: str
    xlabel: str
    ylabel: str
    title: str = ""
    log_y: bool = False
    percent: bool = False

    is_marked = True

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            ends = getattr(self, name)
            if ends is not None and np.shape(ends) != np.shape(self.values):
                raise InvalidInput(f"{name}: must have one entry for each of the values.")

    def _draw(self, ax: Any) -> None:
        at, count = drawn_places(len(self.values)), len(self.values)
        if self.low is not None and self.high is not None:
            style = {"color": BLUE, "alpha": 0.25, "lw": 0, "label": self.interval}
            ax.fill_between(at + 1, self._shown(self.low)[at], self._shown(self.high)[at], **style)
        dots = "o" if count <= 40 else None
        values = self._shown(self.values)
        ax.plot(at + 1, values[at], color=BLUE, lw=2, marker=dots, label=self.label)
        for level in self.levels:
            if np.isfinite(level.at):
                ax.axhline(
                    level.at,
                    color=level.colour,
                    ls=level.style,
                    lw=1.6,
                    label=plain(level.label or ""),
                )
        if count > 1:
            ax.set_xscale("log")
            few_ticks(ax.xaxis, [1.0, float(count)])
        if self.log_y and np.any(self.values > 0):
            ax.set_yscale("log")
            ends = [float(np.nanmin(values)), float(np.nanmax(values))]
            few_ticks(
                ax.yaxis, [*ends, *(level.at for level in self.levels if 0 < level.at < np.inf)]
            )
        elif self.percent:
            percents(ax.yaxis)
        ax.set(xlabel=self.xlabel, ylabel=self.ylabel)
        if self.title:
            ax.set_title(plain(self.title), fontsize="medium")
        ax.grid(color=GRID, lw=0.7)
        ax.set_axisbelow(True)
        ax.legend(loc="best", fontsize="small")

    def _shown(self, values: FloatArray) -> FloatArray:
        known = np.where(np.isfinite(values), values, np.nan)
        return np.where(known > 0, known, np.nan) if self.log_y and np.any(known > 0) else known


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """One value for each name, with an interval where there is one.

    ``values``  (k,); ``low`` and ``high`` (k,), or None.
    """

    values: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    label: str | None = None
    colour: str = BLUE
    marker: str = "o"


@dataclass(frozen=True, kw_only=True, eq=False)
class DotsDisplay(Display):
    """Named lines from top to bottom, with a dot, and an interval, for each series.

    What is infinite stands at the right edge as ∞; what is not a number is left out.
    """

    names: tuple[str, ...]
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()
    xlabel: str
    title: str = ""
    log_x: bool = False
    percent: bool = False
    limits: tuple[float, float] | None = None

    is_marked = True

    def __post_init__(self) -> None:
        for series in self.series:
            given = (series.values, series.low, series.high)
            if any(len(part) != len(self.names) for part in given if part is not None):
                raise InvalidInput(f"series: must have one entry for each of {len(self.names)}.")

    @property
    def size(self) -> tuple[float, float]:
        """A line more is a little higher."""
        lines = len(self.names) * (1 + 0.35 * (len(self.series) - 1))
        return 6.8, min(max(1.9 + 0.3 * lines, 2.4), 16.0)

    def _draw(self, ax: Any) -> None:
        places = np.arange(len(self.names), dtype=np.float64)
        for guide in self.guides:
            style = {"color": guide.colour, "ls": guide.style, "lw": 1.4, "zorder": 1}
            ax.axvline(guide.at, label=guide.label, **style)
        for number, series in enumerate(self.series):
            at = places + _WIDTH * ((number + 0.5) / len(self.series) - 0.5)
            self._one(ax, series, at)
        if self.log_x:
            ax.set_xscale("log")
            few_ticks(
                ax.xaxis,
                [float(v) for series in self.series for v in series.values if 0 < v < np.inf],
            )
        elif self.percent:
            percents(ax.xaxis)
        ax.set_yticks(places, [plain(_short(name)) for name in self.names])
        ax.set(xlabel=self.xlabel, ylim=(len(self.names) - 0.4, -0.6))
        if self.limits is not None:
            ax.set_xlim(*self.limits)
        ax.grid(axis="x", color=GRID, lw=0.7)
        ax.set_axisbelow(True)
        _head(ax, self.title)

    @staticmethod
    def _one(ax: Any, series: Series, at: FloatArray) -> None:
        if series.low is not None and series.high is not None:
            known = np.isfinite(series.low) & np.isfinite(series.high)
            ax.hlines(at[known], series.low[known], series.high[known], color=series.colour, lw=1.6)
        known = np.isfinite(series.values)
        style = {"color": series.colour, "marker": series.marker, "ms": 6, "ls": ""}
        ax.plot(series.values[known], at[known], label=series.label, **style)
        for height in at[np.isposinf(series.values)]:
            ax.annotate(
                "∞",
                (1, height),
                xycoords=("axes fraction", "data"),
                xytext=(-4, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                color=series.colour,
                fontweight="bold",
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Band:
    """A line over time: ``middle`` (k,), between ``low`` and ``high`` (k,) where they are given."""

    x: FloatArray
    middle: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    label: str
    colour: str = BLUE
    style: Any = "-"


@dataclass(frozen=True, kw_only=True, eq=False)
class BandsDisplay(Display):
    """Lines with bands over steps, epochs or rounds, which are ``whole`` numbers; over guides."""

    bands: tuple[Band, ...]
    guides: tuple[Guide, ...] = ()
    xlabel: str
    ylabel: str
    title: str = ""
    percent: bool = False
    whole: bool = True

    is_marked = True

    def _draw(self, ax: Any) -> None:
        for guide in self.guides:
            line = ax.axvline if guide.axis == "x" else ax.axhline
            line(guide.at, color=guide.colour, ls=guide.style, lw=1.4, label=guide.label, zorder=1)
        for band in self.bands:
            if band.low is not None and band.high is not None:
                ax.fill_between(band.x, band.low, band.high, color=band.colour, alpha=0.2, lw=0)
            dots = "o" if len(band.x) <= 20 else None
            style = {"color": band.colour, "ls": band.style, "lw": 2, "marker": dots, "ms": 4}
            ax.plot(band.x, band.middle, label=plain(band.label), **style)
        if self.percent:
            percents(ax.yaxis)
        if self.whole:
            ax.locator_params(axis="x", integer=True)
        ax.set(xlabel=self.xlabel, ylabel=self.ylabel)
        if self.title:
            ax.set_title(plain(self.title), fontsize="medium")
        ax.grid(axis="y", color=GRID, lw=0.7)
        ax.set_axisbelow(True)
        ax.legend(loc="best", fontsize="small")


def _head(ax: Any, title: str) -> None:
    """Draw the legend above the axes, where it covers no line, and the title above it."""
    labels = ax.get_legend_handles_labels()[1]
    longest = max((len(label) for label in labels), default=0)
    columns = max(1, min(3, _LEGEND // (longest + 6)))
    lines = -(-len(labels) // columns)
    if lines:
        position = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
        ax.legend(ncols=columns, fontsize="small", frameon=False, **position)
    if title:
        ax.set_title(plain(title), fontsize="medium", pad=6 + 17 * lines)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def ranked(
    values: FloatArray,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
    *,
    label: str,
    ylabel: str = "exposure (nats)",
    unit: str = "row",
    **options: Any,
) -> RanksDisplay:
    """Return ``values`` (n,) in falling order, on log scales; infinite ones come first."""
    order = np.argsort(-values, kind="stable")
    return RanksDisplay(
        values=values[order],
        low=None if low is None else low[order],
        high=None if high is None else high[order],
        label=label,
        xlabel=f"rank of the {unit}, the largest first (log scale)",
        ylabel=ylabel,
        log_y=True,
        **options,
    )
