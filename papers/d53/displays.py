"""The figures of MOSAICrOWN D5.3: two worlds and the boundary between them (Figs 3.2 and 4.1).

:mod:`papers.common.figures` has what all figures share. Nothing
of any person's data is in them: they show formulas.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.errors import InvalidInput
from expost.types import Audience, FloatArray
from papers.common.figures import BLUE, INK, ORANGE, Curve, Display, draw_curve

__all__ = ["Region", "WorldsDisplay"]

# Behind the curves: where the attacker says D, and where D'.
_SHADE = 0.09


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """What lies between the axis and a curve: x and y, each (k,). ``hatch`` is matplotlib's."""

    x: FloatArray
    y: FloatArray
    label: str
    colour: str
    hatch: str = ""

    def __post_init__(self) -> None:
        if np.shape(self.x) != np.shape(self.y) or np.ndim(self.x) != 1:
            raise InvalidInput(
                f"x has shape {np.shape(self.x)} and y {np.shape(self.y)}: must be two vectors of"
                " one length."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class WorldsDisplay(Display):
    """Curves over the output r of a mechanism, with the boundary between saying D and saying D'.

    ``sides``  what is said left and right of the boundary; "" for nothing.
    ``most``   the end of the vertical axis, which begins at 0.
    """

    curves: tuple[Curve, ...]
    boundary: float
    regions: tuple[Region, ...] = ()
    xlabel: str
    ylabel: str
    title: str
    legend_title: str | None = None
    legend_at: str = "upper right"
    sides: tuple[str, str] = ("", "")
    most: float

    audience = Audience.PUBLIC
    size = (6.0, 4.2)

    def __post_init__(self) -> None:
        if not self.curves:
            raise InvalidInput("curves: are none; give at least one.")
        if not math.isfinite(self.boundary):
            raise InvalidInput(f"boundary={self.boundary!r}: must be a number.")

    def _draw(self, ax: Any) -> None:
        """Draw both sides, the regions, the curves in their order, and the boundary."""
        ends = min(curve.x[0] for curve in self.curves), max(curve.x[-1] for curve in self.curves)
        ax.axvspan(ends[0], self.boundary, color=ORANGE, alpha=_SHADE, lw=0)
        ax.axvspan(self.boundary, ends[1], color=BLUE, alpha=_SHADE, lw=0)
        for region in self.regions:
            ax.fill_between(
                region.x,
                0,
                region.y,
                facecolor=(*_rgb(region.colour), 0.45),
                edgecolor=region.colour,
                hatch=region.hatch,
                lw=0,
                label=region.label,
            )
        for curve in self.curves:
            draw_curve(ax, curve)
        ax.axvline(self.boundary, color=INK, ls=":", lw=1.4)
        for text, align, gap, colour in zip(
            self.sides, ("right", "left"), (-6, 6), (ORANGE, BLUE), strict=True
        ):
            ax.annotate(
                text,
                xy=(self.boundary, 0.97),
                xycoords=("data", "axes fraction"),
                xytext=(gap, 0),
                textcoords="offset points",
                ha=align,
                va="top",
                fontsize="small",
                color=colour,
            )
        ax.set(xlim=ends, ylim=(0, self.most), xlabel=self.xlabel, ylabel=self.ylabel)
        ax.set_title(self.title, fontsize="medium")
        labels = [curve.label for curve in self.curves] + [region.label for region in self.regions]
        if any(labels):
            ax.legend(
                title=self.legend_title,
                loc=self.legend_at,
                fontsize="small",
                title_fontsize="small",
            )


def _rgb(colour: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return float(red), float(green), float(blue)
