"""The figures of Redberg & Wang: losses over the plane (Fig. 1), and their distributions (Fig. 3).

:mod:`papers.common.figures` has what all figures share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.types import FloatArray
from papers.common.figures import BLUE, INK, Display, Guide

__all__ = ["Distribution", "DistributionDisplay", "PlaneDisplay"]

_BINS = 70
# What is beyond is drawn in the last bin on its side: a few rows must not flatten the rest.
_TAIL = 5e-4
_REACH = 1.08


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaneDisplay(Display):
    """One panel of R&W Fig. 1: rows of the unit disc, coloured by their loss at one θ, d = 2.

    ``X``, ``y``  (n, 2) and (n,) of ±1, drawn as circles and triangles.
    ``exposure``  (n,) ∣loss∣, > 0: on a logarithmic scale, of its own for each panel.
    ``theta``     (2,) whose boundary x·θ = 0 is drawn, and the side that it calls +1.
    """

    X: FloatArray
    y: FloatArray
    exposure: FloatArray
    theta: FloatArray
    title: str

    size = (4.6, 4.0)

    def __post_init__(self) -> None:
        if self.X.ndim != 2 or self.X.shape[1] != 2:
            raise InvalidInput(f"X has shape {self.X.shape}: must be (n, 2), of two columns.")
        for name in ("y", "exposure"):
            if getattr(self, name).shape != (len(self.X),):
                raise InvalidInput(
                    f"{name} has shape {getattr(self, name).shape}: must hold one number for each"
                    f" of {len(self.X)} rows."
                )
        if self.theta.shape != (2,) or not float(np.linalg.norm(self.theta)) > 0:
            raise InvalidInput("theta: must be two numbers that are not both 0.")
        if not np.all(self.exposure > 0):
            raise InvalidInput("exposure: must be > 0 to have a place on a logarithmic scale.")

    def _draw(self, ax: Any) -> None:
        """Draw the rows, the least exposed first, and the boundary over them."""
        from matplotlib.colors import LogNorm
        from matplotlib.ticker import LogLocator

        low, high = (float(end) for end in np.quantile(self.exposure, [0.02, 1.0]))
        low = min(low, high / 2)
        scale = LogNorm(vmin=low, vmax=high)
        order = np.argsort(self.exposure, kind="stable")
        for label, marker in ((1.0, "o"), (-1.0, "^")):
            some = order[self.y[order] == label]
            drawn = ax.scatter(
                *self.X[some].T,
                c=self.exposure[some],
                norm=scale,
                cmap="viridis",
                marker=marker,
                s=11,
                lw=0,
                rasterized=True,
            )
        self._boundary(ax)
        ax.set_aspect("equal")
        ax.set(xlim=(-_REACH, _REACH), ylim=(-_REACH, _REACH), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        ax.tick_params(labelsize="small")
        ax.set_title(self.title, fontsize="medium")
        # A short scale has few powers of ten.
        steps = (1.0,) if high > 30 * low else (1.0, 2.0, 5.0)
        bar = ax.figure.colorbar(
            drawn, ax=ax, shrink=0.85, ticks=LogLocator(subs=steps), format="%g"
        )
        bar.ax.tick_params(labelsize="small")
        bar.minorticks_off()

    def _boundary(self, ax: Any) -> None:
        unit = self.theta / np.linalg.norm(self.theta)
        along = np.array([-unit[1], unit[0]])
        ax.plot(*np.outer([-2.0, 2.0], along).T, color=INK, lw=1.4)
        # Where the model says +1.
        ax.annotate(
            "",
            xytext=(0, 0),
            xy=tuple(0.42 * unit),
            arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.4},
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Distribution:
    """Values > 0, one for each row, that are counted in bins; infinite ones in the last."""

    values: FloatArray
    label: str
    colour: str = BLUE
    style: Any = "-"
    filled: bool = False

    def __post_init__(self) -> None:
        if np.ndim(self.values) != 1 or not len(self.values) or not np.all(self.values > 0):
            raise InvalidInput("values: must be a vector of numbers > 0, at least one.")


@dataclass(frozen=True, kw_only=True, eq=False)
class DistributionDisplay(Display):
    """R&W Fig. 3: histograms over one logarithmic axis, as shares of the rows, with guide lines.

    ``ends``  of the axis: those of nearly all values if None, see :meth:`ends_of`.
    """

    parts: tuple[Distribution, ...]
    guides: tuple[Guide, ...] = ()
    xlabel: str
    title: str = ""
    legend_at: str = "best"
    ends: tuple[float, float] | None = None

    size = (6.2, 4.0)

    @staticmethod
    def ends_of(parts: Sequence[Distribution]) -> tuple[float, float]:
        """Return the ends between which all but a few of the finite values of each part lie."""
        finite = [part.values[np.isfinite(part.values)] for part in parts]
        ends = [np.quantile(values, [_TAIL, 1 - _TAIL]) for values in finite if len(values)]
        if not ends:
            raise InvalidInput("values: are all infinite; there is nothing to draw.")
        low, high = min(float(end[0]) for end in ends), max(float(end[1]) for end in ends)
        return (low, high * (1 + 1e-9)) if high > low else (low / 2, high * 2)

    def _draw(self, ax: Any) -> None:
        """Draw the histograms; what lies past an end counts in the bin there."""
        ends = self.ends_of(self.parts) if self.ends is None else self.ends
        edges = np.geomspace(*ends, _BINS + 1)
        for part in self.parts:
            counts, _ = np.histogram(np.clip(part.values, edges[0], edges[-1]), bins=edges)
            if part.filled:
                ax.stairs(
                    counts / len(part.values), edges, fill=True, color=part.colour, alpha=0.25
                )
            ax.stairs(
                counts / len(part.values),
                edges,
                color=part.colour,
                ls=part.style,
                lw=1.6,
                label=part.label,
            )
        for guide in self.guides:
            _checks.one_of("axis", guide.axis, ("x",))
            ax.axvline(guide.at, color=guide.colour, ls=guide.style, lw=1.2, label=guide.label)
        ax.set_xscale("log")
        ax.set(xlabel=self.xlabel, ylabel="share of the rows")
        ax.set_ylim(bottom=0)
        if self.title:
            ax.set_title(self.title, fontsize="medium")
        ax.legend(loc=self.legend_at, fontsize="small")
