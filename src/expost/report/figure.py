"""Figures as data: panels of lines, bands and reference lines over two axes.

A figure computes nothing and names roles ("main", "limit") instead of colours. It is drawn as SVG
for pages (:mod:`expost.report.svg`) and by matplotlib for ``plot()``
(:mod:`expost.report.drawing`), with the same colours and dashes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Axis", "Band", "Figure", "Line", "Panel", "Rule"]

Role = Literal["main", "second", "third", "fourth", "fifth", "limit"]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis from ``low`` to ``high``.

    Parameters
    ----------
    label : str
        What the axis shows, with its unit.
    low, high : float
        The ends; both positive on a log scale.
    log : bool
        Whether the scale is logarithmic.
    format : {"number", "percent", "count"}
        How tick labels are written.
    categories : tuple of str
        Names at 0, 1, 2, …; then ``low`` is -0.5 and ``high`` is one half past the last.
    quantity : str
        The name of the axis for scripts: "epsilon" or "rank"; empty: none uses it.
    """

    label: str
    low: float
    high: float
    log: bool = False
    format: Literal["number", "percent", "count"] = "number"
    categories: tuple[str, ...] = ()
    quantity: str = ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A series of points.

    Parameters
    ----------
    name : str
        The name in the legend; empty: not listed.
    x, y : sequence of float
        The points, in the order in which they are joined.
    role : Role
        The role of the series, which determines its colour and dashes.
    dots : bool
        Whether single points are drawn instead of a line.
    radius : float
        The radius of single points, in pixels of the page.
    step : bool
        Whether the line is a step function that is continuous from the right.
    low, high : sequence of float or None
        Ends of a vertical error bar at each point.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    role: Role = "main"
    dots: bool = False
    radius: float = 4.0
    step: bool = False
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, kw_only=True)
class Band:
    """The area between two curves."""

    name: str
    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    role: Role = "main"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A reference line at one axis, or a shaded range.

    Parameters
    ----------
    name : str
        The name in the legend.
    at : float
        Where the line is, or the range begins.
    axis : Literal["x", "y"], default="y"
        The axis that ``at`` lies on.
    to : float, optional
        Where the range ends; None: a line.
    role : Role, default="limit"
        What the line stands for, which sets its style.
    label : str, default=""
        Written next to the line inside the panel.
    """

    name: str
    at: float
    axis: Literal["x", "y"] = "y"
    to: float | None = None
    role: Role = "limit"
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes and its contents."""

    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...] = ()
    bands: tuple[Band, ...] = ()
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One or more panels.

    Parameters
    ----------
    key : str
        The name of the figure: unique on a page, and the ``kind`` of ``plot()``.
    description : str
        The contents of the figure, for screen readers.
    panels : tuple of Panel
        The panels, from top to bottom.
    caption : str
        A sentence below the figure.
    beside : bool
        Whether matplotlib draws the panels side by side, under one legend. A page does so with all
        figures where there is room.
    """

    key: str
    description: str
    panels: tuple[Panel, ...]
    caption: str = ""
    beside: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts but the labels of ticks, each once."""
        texts = [self.description]
        for panel in self.panels:
            texts += [panel.title, panel.x.label, panel.y.label]
            named: tuple[Line | Band | Rule, ...] = (*panel.lines, *panel.bands, *panel.rules)
            texts += [each.name for each in named]
            texts += [rule.label for rule in panel.rules]
        return tuple(filter(None, dict.fromkeys(texts)))
