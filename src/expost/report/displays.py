"""The figures of LeBlond et al., drawn from result objects.

:mod:`expost.report.display` has what all figures share. All of these are for the curator only:
they show exact figures of single rows.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.mechanisms import RowLosses
from expost.neighbouring.neighbours import Neighbours
from expost.profiles.profile import Profile
from expost.report.display import BLUE, GREEN, GREY, INK, ORANGE, Display, drawn_places
from expost.report.slider import curve_ranks
from expost.rounding import upper_text
from expost.types import FloatArray, IntArray

__all__ = ["HeatMapDisplay", "ProfileDisplay", "SphereDisplay", "WorstCaseDisplay"]

# A ball that is smaller beside its sphere is hidden by the points that it holds.
_SMALL = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class ProfileDisplay(Display):
    """The privacy profile: exposures by rank, typical ones, and what the mechanism promises.

    ``scores``   (n,) ascending: exposures, or distances where there is no noise.
    ``typical``  (n,) ascending in its own right, or None.
    ``ranks``    (n,) where these are a few of all rows: their ranks, from 1 for the least exposed.
    """

    scores: FloatArray
    typical: FloatArray | None
    worst_case: float | None
    measure: str
    unit: str = "row"
    ranks: IntArray | None = None

    is_marked = True

    @classmethod
    def from_profile(cls, profile: Profile) -> "ProfileDisplay":
        """Return the curves of a profile; of rows in blocks at a few hundred ranks."""
        at = np.arange(1, len(profile) + 1)
        if not profile.is_held:
            at = np.sort(len(profile) + 1 - curve_ranks(len(profile)))
        expected = profile.expected_scores
        return cls(
            scores=profile.scores.at_most(at),
            typical=None if expected is None else expected.at_most(at),
            worst_case=None if profile.is_noiseless else profile.worst_case,
            measure=profile.terms.measure,
            unit=profile.unit,
            ranks=None if profile.is_held else at,
        )

    def _draw(self, ax: Any) -> None:
        """Draw the curves; scores of 0 have no place on the log scale and are left out."""
        at = drawn_places(len(self.scores))
        x = at + 1 if self.ranks is None else self.ranks[at]
        ax.plot(x, _positive(self.scores)[at], color=BLUE, lw=2, label="this model")
        if self.typical is not None:
            typical = _positive(self.typical)[at]
            ax.plot(x, typical, color=ORANGE, lw=1.6, ls="--", label="typical model")
        if self.worst_case is not None:
            ax.axhline(
                self.worst_case,
                color=GREY,
                ls=":",
                lw=1.6,
                label=f"worst case, {upper_text(self.worst_case)}",
            )
        if np.any(self.scores > 0):
            ax.set_yscale("log")
        unit = " (nats)" if self.measure == "exposure" else ""
        ax.set(
            xlabel=f"rank of the {self.unit}, least exposed first", ylabel=f"{self.measure}{unit}"
        )
        ax.legend(loc="best")


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
        found = {"marker": ".", "color": BLUE, "ms": 2.5}
        common = {"ls": "", "rasterized": True}
        ax.plot(*self.worst_case.T, label=r"$A_{wc}(y_i)$, worst case", **guess, **common)
        ax.plot(*self.shift.T, label=rf"$A(y_i)$, {self.method}", **found, **common)
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
        """The bounds of the neighbour without ``row`` (counted from 0)."""
        _two_columns(neighbours)
        if _checks.whole("row", row, least=0) >= len(neighbours):
            raise InvalidInput(f"row={row!r}: must be below {len(neighbours)}, counted from 0.")
        one = slice(row, row + 1)
        return cls(
            row=row,
            shift=neighbours.shifts.block(one)[0],
            worst_case=neighbours.worst_case.block(one)[0],
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


def _positive(values: FloatArray) -> FloatArray:
    return np.where(values > 0, values, math.nan) if np.any(values > 0) else values


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
    """What is shown: circles do not widen the axes by themselves."""
    ax.set_xlim(centre[0] - reach, centre[0] + reach)
    ax.set_ylim(centre[1] - reach, centre[1] + reach)
