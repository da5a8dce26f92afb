"""Figures of many trainings: a few named cases side by side, each with values or an interval.

:mod:`expost.report.display` has what all figures share.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.errors import InvalidInput
from expost.report.display import BLUE, Display
from expost.report.paper_displays import Guide
from expost.types import Audience, FloatArray

__all__ = ["CasesDisplay", "Series"]

# All that belongs to one case stays within this width of its place.
_WIDTH = 0.6


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """One value for each case, with an interval where there is one.

    ``values``  (k,); ``low`` and ``high`` (k,), or None; ``clouds`` k arrays of single values that
    are drawn as faint points behind, or None.
    """

    values: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    clouds: tuple[FloatArray, ...] | None = None
    label: str | None = None
    colour: str = BLUE
    marker: str = "o"


@dataclass(frozen=True, kw_only=True, eq=False)
class CasesDisplay(Display):
    """Cases from left to right, the series of each beside one another, over guide lines."""

    cases: tuple[str, ...]
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()
    ylabel: str
    title: str = ""

    audience = Audience.PASS
    size = (6.8, 4.2)

    def __post_init__(self) -> None:
        for one in self.series:
            given = (one.values, one.low, one.high, one.clouds)
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
        for number, one in enumerate(self.series):
            at = places + _WIDTH * ((number + 0.5) / count - 0.5)
            for place, cloud in zip(at, one.clouds or (), strict=False):
                # Side by side in their order: nothing is drawn at random.
                spread = _WIDTH / count * (np.linspace(0, 1, len(cloud)) - 0.5)
                ax.plot(place + spread, cloud, ls="", marker=".", ms=3, color=one.colour, alpha=0.3)
            if one.low is not None and one.high is not None:
                ax.vlines(at, one.low, one.high, color=one.colour, lw=1.6)
            ax.plot(
                at, one.values, ls="", marker=one.marker, ms=6, color=one.colour, label=one.label
            )
        ax.set_xticks(places, self.cases)
        ax.set(xlim=(-0.5, len(self.cases) - 0.5), ylabel=self.ylabel)
        if self.title:
            ax.set_title(self.title, fontsize="medium")
        labels = [one.label for one in self.series] + [guide.label for guide in self.guides]
        if any(labels):
            ax.legend(fontsize="small", loc="best")
