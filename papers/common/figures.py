"""Everything that reproductions draw with, and figures of several displays side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from expost import _checks
from papers.common.curves import Curve, CurvesDisplay, Guide, draw_curve
from papers.common.display import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    Display,
    few_ticks,
    percents,
    plain,
    png,
)
from papers.common.series import Band, BandsDisplay, DotsDisplay, RanksDisplay, ranked
from papers.common.series import Series as NamedSeries

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "INK",
    "LIGHTEST",
    "ORANGE",
    "ORDERED",
    "PURPLE",
    "Band",
    "BandsDisplay",
    "Curve",
    "CurvesDisplay",
    "Display",
    "DotsDisplay",
    "Guide",
    "NamedSeries",
    "RanksDisplay",
    "draw_curve",
    "few_ticks",
    "intervals",
    "panels",
    "percents",
    "plain",
    "png",
    "ranked",
]

# The lightest yellow of viridis is lost on white.
ORDERED, LIGHTEST = "viridis", 0.92


def panels(
    displays: Sequence[Display], *, columns: int, size: tuple[float, float] = (5.2, 4.2)
) -> Any:
    """Return one figure of several displays, ``columns`` in a row, each of ``size`` inches."""
    from matplotlib.figure import Figure

    columns = _checks.integer("columns", columns, least=1)
    rows = -(-len(displays) // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for display, ax in zip(displays, axes, strict=False):
        display.plot(ax)
    for ax in axes[len(displays) :]:
        ax.remove()
    return figure


def intervals(estimates: Sequence[Any], label: str | None, colour: str, marker: str) -> NamedSeries:
    """Values with their ends, each with ``value``, ``low`` and ``high``; NaN for None."""
    value, low, high = (
        np.array(
            [np.nan if estimate is None else getattr(estimate, name) for estimate in estimates]
        )
        for name in ("value", "low", "high")
    )
    return NamedSeries(values=value, low=low, high=high, label=label, colour=colour, marker=marker)
