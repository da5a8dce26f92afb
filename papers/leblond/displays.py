"""Figures 2, 3, 4 and 8 of LeBlond et al., drawn from result objects.

All of these show exact figures of single rows: for the curator only where the data is not public.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.mechanisms import RowLosses
from expost.neighbouring.neighbours import Neighbours
from expost.types import FloatArray
from papers.common.figures import BLUE, GREEN, GREY, INK, LIGHTEST, ORANGE, ORDERED, Display

__all__ = ["HeatMapDisplay", "SamplesDisplay", "SphereDisplay", "WorstCaseDisplay"]

# A ball that is smaller beside its sphere is hidden by the points that it holds.
_SMALL = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class WorstCaseDisplay(Display):
    """LeBlond Fig. 2: the worst-case points A_wc(yᵢ) over the neighbours A(yᵢ), d = 2.

    Both (n, 2) as seen from A(x), the origin.
    """

    shift: FloatArray
    worst_case: FloatArray
    method: str

    size = (5.4, 4.8)

    @classmethod
    def from_neighbours(cls, neighbours: Neighbours) -> "WorstCaseDisplay":
        """Of neighbours that were found by a better method than "worst-case"."""
        _two_columns(neighbours)
        if neighbours.method == "worst-case":
            raise InvalidInput(
                "neighbours: were found by method='worst-case', so there is nothing to compare;"
                " pass those of method='exact'."
            )
        return cls(
            shift=neighbours.shift,
            worst_case=neighbours.worst_case.all(),
            method=neighbours.method,
        )

    def _draw(self, ax: Any) -> None:
        """Draw both sets of points, and A(x)."""
        guess = {"marker": "o", "mfc": "none", "mec": ORANGE, "ms": 5, "mew": 0.7}
        points = {"marker": ".", "color": BLUE, "ms": 2.5}
        common = {"ls": "", "rasterized": True}
        ax.plot(*self.worst_case.T, label=r"$A_{wc}(y_i)$, worst case", **guess, **common)
        ax.plot(*self.shift.T, label=rf"$A(y_i)$, {self.method}", **points, **common)
        _base_point(ax, INK)
        _plane(ax)


@dataclass(frozen=True, kw_only=True, eq=False)
class SphereDisplay(Display):
    """LeBlond Fig. 3: Okumura's sphere and the co-coercive ball around one A(yᵢ), d = 2.

    The ball takes the place of the half-plane of Zhou et al.: it lies in the sphere and holds
    A(yᵢ) as well (see :class:`~expost.neighbouring.Neighbours`). Everything as seen from A(x), the
    origin.
    """

    row: int
    shift: FloatArray
    worst_case: FloatArray
    sphere_centre: FloatArray
    sphere_radius: float
    ball_centre: FloatArray
    ball_radius: float

    size = (6.6, 4.8)

    @classmethod
    def from_neighbours(cls, neighbours: Neighbours, row: int) -> "SphereDisplay":
        """Return the bounds of the neighbour without ``row`` (counted from 0)."""
        _two_columns(neighbours)
        if _checks.integer("row", row, least=0) >= len(neighbours):
            raise InvalidInput(f"row={row!r}: must be below {len(neighbours)}, counted from 0.")
        block = slice(row, row + 1)
        return cls(
            row=row,
            shift=neighbours.shifts.block(block)[0],
            worst_case=neighbours.worst_case.block(block)[0],
            sphere_centre=neighbours.sphere_centre[row] - neighbours.base,
            sphere_radius=float(neighbours.sphere_radius[row]),
            ball_centre=neighbours.ball_centre[row] - neighbours.base,
            ball_radius=float(neighbours.ball_radius[row]),
        )

    def _draw(self, ax: Any) -> None:
        """Draw sphere, ball and the three points; a small ball once more, larger."""
        self._shapes(ax)
        _base_point(ax, INK)
        ax.set_title(f"without row {self.row}", fontsize="medium")
        _plane(ax)
        _view(ax, self.sphere_centre, 1.12 * self.sphere_radius)
        ax.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize="small")
        if 0 < self.ball_radius < _SMALL * self.sphere_radius:
            inset = ax.inset_axes((0.34, 0.34, 0.32, 0.32), xticks=[], yticks=[])
            self._shapes(inset)
            _view(inset, self.ball_centre, 1.3 * self.ball_radius)
            inset.set_aspect("equal")
            ax.indicate_inset_zoom(inset, edgecolor=GREY)

    def _shapes(self, ax: Any) -> None:
        from matplotlib.patches import Circle

        sphere, ball = tuple(self.sphere_centre), tuple(self.ball_centre)
        outer = {"fill": False, "ec": GREY, "lw": 1.6, "label": "sphere (Okumura)"}
        inner = {"fc": GREEN + "40", "ec": GREEN, "lw": 1.6, "label": "ball (co-coercive)"}
        guess = {"marker": "o", "mfc": "none", "mec": ORANGE, "ms": 10, "mew": 1.6, "ls": ""}
        ax.add_patch(Circle(sphere, self.sphere_radius, **outer))
        ax.add_patch(Circle(ball, self.ball_radius, **inner))
        ax.plot(*self.worst_case, label=r"$A_{wc}(y_i)$", **guess)
        ax.plot(*self.shift, marker=".", color=BLUE, ms=8, ls="", label="$A(y_i)$")


@dataclass(frozen=True, kw_only=True, eq=False)
class HeatMapDisplay(Display):
    """LeBlond Fig. 4: the neighbours A(yᵢ), coloured by their rows' exposure in a model M, d = 2.

    4a is M at A(x): the exposure is β times the distance. In 4b M lies elsewhere: rows whose
    neighbour is as far from M as A(x) is are not exposed. Everything as seen from A(x).
    """

    shift: FloatArray
    model: FloatArray
    exposure: FloatArray

    size = (6.0, 4.8)

    @classmethod
    def from_losses(
        cls, neighbours: Neighbours, losses: RowLosses, *, model: Any
    ) -> "HeatMapDisplay":
        """``losses`` are the mechanism's at ``model`` (2,): ``row_losses(model, neighbours)``."""
        _two_columns(neighbours)
        if len(losses.loss) != len(neighbours):
            raise InvalidInput(
                f"losses has {len(losses.loss)} rows: must have one for each of {len(neighbours)}"
                " neighbours."
            )
        if not np.all(np.isfinite(losses.loss)):
            raise InvalidInput("losses: are infinite; a model without noise has no heat map.")
        return cls(
            shift=neighbours.shift,
            model=_checks.vector(model, name="model", length=2) - neighbours.base,
            exposure=np.abs(losses.loss),
        )

    def _draw(self, ax: Any) -> None:
        """Draw the points, the least exposed first, so that the exposed ones are on top."""
        order = np.argsort(self.exposure, kind="stable")
        style = {"cmap": "cividis", "s": 9, "marker": "*", "lw": 0.3, "rasterized": True}
        drawn = ax.scatter(*self.shift[order].T, c=self.exposure[order], **style)
        ax.plot(*self.model, marker="o", color=INK, ms=8, ls="", label="$M$")
        _base_point(ax, ORANGE)
        ax.figure.colorbar(drawn, ax=ax, label="exposure (nats)")
        _plane(ax)


@dataclass(frozen=True, kw_only=True, eq=False)
class SamplesDisplay(Display):
    """One panel of LeBlond Fig. 8: models drawn for the base and for its neighbours, d = 2.

    ``base``        (m, 2) models of the data itself, drawn as black crosses.
    ``neighbours``  (k, m, 2) models of each of k neighbours, drawn as circles of one colour each.
    ``order``       (k,) a place from 0 to 1 on the ordered scale for each neighbour.
    """

    base: FloatArray
    neighbours: FloatArray
    order: FloatArray
    title: str

    size = (4.4, 4.2)

    def __post_init__(self) -> None:
        if self.base.ndim != 2 or self.base.shape[1] != 2:
            raise InvalidInput(f"base has shape {self.base.shape}: must be (m, 2), of two columns.")
        if self.neighbours.ndim != 3 or self.neighbours.shape[2] != 2:
            raise InvalidInput(
                f"neighbours has shape {self.neighbours.shape}: must be (k, m, 2), of two columns."
            )
        if self.order.shape != (len(self.neighbours),):
            raise InvalidInput(
                f"order has shape {self.order.shape}: must hold one number for each of"
                f" {len(self.neighbours)} neighbours."
            )

    def _draw(self, ax: Any) -> None:
        """Draw the circles and, over them, the crosses; each panel has its own scale."""
        count, size = self.neighbours.shape[:2]
        ax.scatter(
            *self.neighbours.reshape(count * size, 2).T,
            c=np.repeat(self.order, size),
            cmap=ORDERED,
            vmin=0,
            vmax=1 / LIGHTEST,
            s=9,
            lw=0,
            alpha=0.8,
            rasterized=True,
        )
        ax.plot(*self.base.T, marker="x", color=INK, ms=5.5, mew=1.4, ls="")
        ax.set_title(self.title, fontsize="medium")
        ax.locator_params(nbins=4)
        ax.ticklabel_format(style="sci", scilimits=(-2, 3))
        ax.tick_params(labelsize="small")


def _two_columns(neighbours: Neighbours) -> None:
    if len(neighbours.base) != 2:
        raise InvalidInput(
            f"neighbours: have {len(neighbours.base)} coordinates; this figure needs two: pass"
            " neighbours of two columns."
        )


def _base_point(ax: Any, colour: str) -> None:
    ax.plot(0, 0, marker="x", color=colour, ms=9, mew=2, ls="", label="$A(x)$")


def _plane(ax: Any) -> None:
    """Both coordinates on one scale, with few numbers on them."""
    ax.set_aspect("equal")
    ax.set(xlabel=r"$\theta_1 - A_1(x)$", ylabel=r"$\theta_2 - A_2(x)$")
    ax.locator_params(nbins=5)
    ax.ticklabel_format(style="sci", scilimits=(-3, 3))
    ax.legend(loc="best", fontsize="small")


def _view(ax: Any, centre: FloatArray, reach: float) -> None:
    """Set the limits of the axes, which circles do not widen."""
    ax.set_xlim(centre[0] - reach, centre[0] + reach)
    ax.set_ylim(centre[1] - reach, centre[1] + reach)
