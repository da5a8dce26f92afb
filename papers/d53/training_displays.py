"""Figures of many trainings: a few named cases side by side, each with values or an interval.

:mod:`papers.common.figures` has what all figures share.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logit

from expost.errors import InvalidInput
from expost.numbers import fixed
from expost.types import Audience, FloatArray
from papers.common.figures import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    Display,
    Guide,
    NamedSeries,
    RanksDisplay,
    percents,
    plain,
    ranked,
)

__all__ = [
    "CasesDisplay",
    "Histogram",
    "HistogramsDisplay",
    "Series",
    "experiment",
    "sensitivity",
]

# All that belongs to one case stays within this width of its place.
_WIDTH = 0.6
_BINS = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class Series(NamedSeries):
    """One value for each case; ``clouds``: k arrays of values, drawn as faint points, or None."""

    clouds: tuple[FloatArray, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class CasesDisplay(Display):
    """Cases from left to right, the series of each beside one another, over guide lines."""

    cases: tuple[str, ...]
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()
    ylabel: str
    title: str = ""

    audience = Audience.PUBLIC
    size = (6.8, 4.2)

    def __post_init__(self) -> None:
        for series in self.series:
            given = (series.values, series.low, series.high, series.clouds)
            if any(len(part) != len(self.cases) for part in given if part is not None):
                raise InvalidInput(
                    f"series: must have one entry for each of {len(self.cases)} cases."
                )

    def _draw(self, ax: Any) -> None:
        """Draw guides, clouds, intervals, and the values over them."""
        for guide in self.guides:
            ax.axhline(
                guide.at, color=guide.colour, ls=guide.style, lw=1.2, label=guide.label, zorder=1
            )
        places = np.arange(len(self.cases), dtype=np.float64)
        count = len(self.series)
        for number, series in enumerate(self.series):
            at = places + _WIDTH * ((number + 0.5) / count - 0.5)
            for centre, cloud in zip(at, series.clouds or (), strict=False):
                # Side by side in their order: nothing is drawn at random.
                spread = _WIDTH / count * (np.linspace(0, 1, len(cloud)) - 0.5)
                ax.plot(
                    centre + spread, cloud, ls="", marker=".", ms=3, color=series.colour, alpha=0.3
                )
            if series.low is not None and series.high is not None:
                ax.vlines(at, series.low, series.high, color=series.colour, lw=1.6)
            ax.plot(
                at,
                series.values,
                ls="",
                marker=series.marker,
                ms=6,
                color=series.colour,
                label=series.label,
            )
        ax.set_xticks(places, self.cases)
        ax.set(xlim=(-0.5, len(self.cases) - 0.5), ylabel=self.ylabel)
        if self.title:
            ax.set_title(self.title, fontsize="medium")
        labels = [series.label for series in self.series] + [guide.label for guide in self.guides]
        if any(labels):
            ax.legend(fontsize="small", loc="best")


@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """Values (k,) that are counted in bins."""

    values: FloatArray
    label: str
    colour: str = BLUE
    style: Any = "-"


@dataclass(frozen=True, kw_only=True, eq=False)
class HistogramsDisplay(Display):
    """Histograms over one linear axis, as shares of their values, with guide lines."""

    parts: tuple[Histogram, ...]
    guides: tuple[Guide, ...] = ()
    xlabel: str
    ylabel: str
    title: str = ""

    is_marked = True

    def _draw(self, ax: Any) -> None:
        known = [part.values[np.isfinite(part.values)] for part in self.parts]
        together = np.concatenate(known)
        if not len(together):
            raise InvalidInput("values: are all infinite; there is nothing to draw.")
        edges = np.histogram_bin_edges(together, bins=_BINS)
        for part, values in zip(self.parts, known, strict=True):
            shares = np.histogram(values, bins=edges)[0] / max(len(part.values), 1)
            ax.stairs(shares, edges, fill=True, color=part.colour, alpha=0.2)
            style = {"color": part.colour, "ls": part.style, "lw": 1.8}
            ax.stairs(shares, edges, label=plain(part.label), **style)
        for guide in self.guides:
            ax.axvline(guide.at, color=guide.colour, ls=guide.style, lw=1.4, label=guide.label)
        ax.set(xlabel=self.xlabel, ylabel=self.ylabel)
        ax.set_ylim(bottom=0)
        percents(ax.yaxis)
        if self.title:
            ax.set_title(plain(self.title), fontsize="medium")
        ax.legend(loc="best", fontsize="small")


def experiment(result: Any) -> Display:
    """Display the evidence at the end of every training, by its world."""
    last, edge = result.losses[:, -1], float(logit(result.belief))
    words = f"belief {result.belief:g}"
    return HistogramsDisplay(
        parts=(
            Histogram(values=last[result.truth], label="trained with the row (D)", colour=BLUE),
            Histogram(
                values=last[~result.truth],
                label="without it, or with another (D')",
                colour=ORANGE,
                style="--",
            ),
        ),
        guides=(
            Guide(at=0.0, style=":", colour=GREY, label="undecided"),
            Guide(at=edge, style="-.", colour=INK, label=words),
            Guide(at=-edge, style="-.", colour=INK),
        ),
        xlabel="evidence for the row after the last step (nats)",
        ylabel="share of the trainings",
        title=f"advantage {result.advantage}, at most {fixed(result.analytic_advantage, 3, 'up')}",
    )


def sensitivity(result: Any) -> RanksDisplay:
    """Return all neighbours by distance."""
    return ranked(
        np.ravel(result.distances),
        label=f"neighbours ({result.relation.value})",
        ylabel="distance from D",
        unit="neighbour",
    )
