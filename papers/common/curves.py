"""Curves with guide lines, over ε, rank or error rates.

:mod:`papers.common.display` has what all figures share. What is ordered (ε, rank, distance) is
coloured along viridis, what is not by Okabe and Ito's colours.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.types import FloatArray
from papers.common.display import BLUE, INK, Display

__all__ = ["Curve", "CurvesDisplay", "Guide", "draw_curve"]

# The lightest yellow of viridis is lost on white.
_ORDERED, _LIGHTEST = "viridis", 0.92


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """One line, or points where ``style`` is "": x and y, each (k,).

    ``colour`` is a colour, or a place from 0 to 1 on the ordered scale. ``spread`` (k,) is drawn
    as a band of that half width; ``size`` is that of the marker.
    """

    x: FloatArray
    y: FloatArray
    label: str | None = None
    colour: str | float = BLUE
    style: Any = "-"
    marker: str = ""
    width: float = 1.6
    size: float = 4.5
    spread: FloatArray | None = None

    def __post_init__(self) -> None:
        if np.shape(self.x) != np.shape(self.y) or np.ndim(self.x) != 1:
            raise InvalidInput(
                f"x has shape {np.shape(self.x)} and y {np.shape(self.y)}: must be two vectors of"
                " one length."
            )


@dataclass(frozen=True, kw_only=True)
class Guide:
    """A straight line to guide the eye: at this ``at`` of the "x" or the "y" axis."""

    at: float
    label: str | None = None
    axis: str = "x"
    style: Any = "--"
    colour: str = INK

    def __post_init__(self) -> None:
        _checks.one_of("axis", self.axis, ("x", "y"))


@dataclass(frozen=True, kw_only=True, eq=False)
class CurvesDisplay(Display):
    """Curves with guide lines, on linear or logarithmic axes.

    ``beside``: the legend stands right of the axes instead of inside them.
    """

    curves: tuple[Curve, ...]
    guides: tuple[Guide, ...] = ()
    xlabel: str
    ylabel: str
    title: str = ""
    legend_title: str | None = None
    log_x: bool = True
    log_y: bool = True
    limits_y: tuple[float, float] | None = None
    beside: bool = False

    @property
    def size(self) -> tuple[float, float]:
        """A legend beside the axes takes room."""
        return (7.0, 4.4) if self.beside else (6.2, 4.4)

    def _draw(self, ax: Any) -> None:
        """Draw the curves in their order, over the guides."""
        if self.log_x:
            ax.set_xscale("log")
        if self.log_y:
            ax.set_yscale("log")
        for guide in self.guides:
            line = ax.axvline if guide.axis == "x" else ax.axhline
            line(guide.at, color=guide.colour, ls=guide.style, lw=1.2, label=guide.label, zorder=1)
        for curve in self.curves:
            draw_curve(ax, curve)
        ax.set(xlabel=self.xlabel, ylabel=self.ylabel)
        if self.limits_y is not None:
            ax.set_ylim(*self.limits_y)
        if self.title:
            ax.set_title(self.title, fontsize="medium")
        labels = [curve.label for curve in self.curves] + [guide.label for guide in self.guides]
        if any(labels):
            position: dict[str, Any] = {"loc": "best"}
            if self.beside:
                position = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
            ax.legend(title=self.legend_title, fontsize="small", title_fontsize="small", **position)


def draw_curve(ax: Any, curve: Curve) -> None:
    """Draw a line, or points, with the band around it."""
    colour = _colour(curve.colour)
    if curve.spread is not None:
        low, high = curve.y - curve.spread, curve.y + curve.spread
        ax.fill_between(curve.x, low, high, color=colour, alpha=0.25, lw=0)
    ax.plot(
        curve.x,
        curve.y,
        color=colour,
        ls=curve.style or "none",
        lw=curve.width,
        marker=curve.marker or None,
        ms=curve.size,
        label=curve.label,
    )


def _colour(colour: str | float) -> Any:
    if isinstance(colour, str):
        return colour
    from matplotlib import colormaps

    return colormaps[_ORDERED](_LIGHTEST * float(np.clip(colour, 0.0, 1.0)))
