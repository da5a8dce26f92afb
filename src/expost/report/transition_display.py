"""The figure of a choice of ε: what an attacker learns, how the rows change, what a model is worth.

:mod:`expost.report.display` has what all figures share. For the curator only.
"""

import math
from dataclasses import dataclass
from typing import Any

from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.recommend import score_text
from expost.report.display import BLUE, GREEN, GREY, GRID, ORANGE, PanelsDisplay, percents
from expost.report.epsilon_chart import utility_limits
from expost.report.epsilon_part import EpsilonPart, collect_epsilon
from expost.report.wording import number_down, number_up, share
from expost.rounding import rounded_down
from expost.types import Audience

__all__ = ["TransitionDisplay"]

# Of a line that stands beside black ones; the shade lies behind all.
_WINE = "#882255"
_SHADE = "#E3E6EA"


@dataclass(frozen=True, kw_only=True, eq=False)
class TransitionDisplay(PanelsDisplay):
    """Panels over ε, one above the other: posterior, transition, and utility if measured."""

    part: EpsilonPart

    audience = Audience.FAIL
    is_marked = True

    @classmethod
    def from_choice(cls, choice: EpsilonChoice) -> "TransitionDisplay":
        """The curves of a choice of ε."""
        return cls(part=collect_epsilon(choice))

    @property
    def panels(self) -> int:
        """How many axes it takes: three, or two without a utility."""
        return 2 if self.part.utility is None else 3

    @property
    def grid(self) -> tuple[int, int]:
        """One above the other."""
        return self.panels, 1

    @property
    def size(self) -> tuple[float, float]:
        """Each panel is as high."""
        return 7.2, 2.35 * self.panels + 0.5

    def _draw(self, axes: Any) -> None:
        self._posterior(axes[0])
        self._way(axes[1])
        if self.part.utility is not None:
            self._utility(axes[2])
        for ax in axes:
            self._shared(ax)
        self._labels(axes[0])
        axes[-1].set_xlabel("ε: more noise on the left, less on the right")

    def _new_axes(self) -> Any:
        from matplotlib.figure import Figure

        figure = Figure(figsize=self.size, layout="constrained")
        return figure.subplots(*self.grid, sharex=True)

    def _shared(self, ax: Any) -> None:
        """The axis of ε, the transition, and the two marks."""
        part = self.part
        ax.set_xscale("log")
        ax.set_xlim(*part.axis)
        low, high = part.low, part.high
        if low is not None and high is not None and low < high:
            right = min(high, part.axis[1])
            ax.axvspan(max(low, part.axis[0]), right, color=_SHADE, lw=0, zorder=0)
        if _is_apart(part):
            assert part.ceiling is not None
            ax.axvline(part.ceiling, color=_WINE, lw=1.5, ls=(0, (4, 3)))
        if part.recommended is not None:
            ax.axvline(part.recommended, color="black", lw=1.5)
        ax.grid(axis="y", color=GRID, lw=0.7)
        ax.set_axisbelow(True)

    def _labels(self, ax: Any) -> None:
        """Above the first panel: what the upright lines and the shade are."""
        part = self.part
        style = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        style |= {"fontsize": "small", "va": "bottom"}
        middle = math.sqrt(part.axis[0] * part.axis[1])
        if part.recommended is not None:
            side = "left" if part.recommended < middle else "right"
            text = f"recommended: ε = {number_down(part.recommended)}"
            ax.annotate(text, (part.recommended, 1), xytext=(0, 3), ha=side, **style)
        if _is_apart(part):
            assert part.ceiling is not None
            side = "left" if part.ceiling < middle else "right"
            text = f"ceiling: ε = {number_down(part.ceiling)}"
            here = {**style, "color": _WINE}
            ax.annotate(text, (part.ceiling, 1), xytext=(0, 15), ha=side, **here)

    def _posterior(self, ax: Any) -> None:
        part = self.part
        epsilons = [point.epsilon for point in part.curve]
        far = [point.posterior for point in part.curve]
        ax.plot(epsilons, far, color=BLUE, lw=2, label="most exposed row")
        middle = [point.middle_posterior for point in part.curve]
        if middle[0] is not None:
            ax.plot(epsilons, middle, color=ORANGE, lw=1.8, ls="--", label="middle row")
        most = part.limit.max_posterior
        ax.axhline(most, color=GREY, lw=1.6, ls=":", label=f"limit, {share(most)}")
        ax.set(ylabel="posterior of presence", ylim=(part.limit.prior, 1.02))
        percents(ax.yaxis)
        ax.legend(loc="lower right", fontsize="small")

    def _way(self, ax: Any) -> None:
        part = self.part
        epsilons = [point.epsilon for point in part.curve]
        far, middle = (
            [math.nan if way is None else way for way in ways]
            for ways in zip(*((p.way, p.middle_way) for p in part.curve), strict=True)
        )
        ax.plot(epsilons, far, color=BLUE, lw=2, label="most exposed row")
        ax.plot(epsilons, middle, color=ORANGE, lw=1.8, ls="--", label="middle row")
        words = "protection lost" if part.is_way else "one-sidedness"
        ax.set(ylabel=words, ylim=(-0.03, 1.03))
        percents(ax.yaxis)
        legend = {"loc": "upper left", "fontsize": "small", "alignment": "left"}
        ax.legend(title=self._range(), title_fontsize="small", **legend)

    def _range(self) -> str | None:
        low, high = self.part.low, self.part.high
        if low is None or high is None or not low < high:
            return None
        end = number_up(high) if high < math.inf else "∞"
        return f"shaded: transition, {number_down(low)} to {end}"

    def _utility(self, ax: Any) -> None:
        found = self.part.utility
        assert found is not None
        epsilons = [point.epsilon for point in found.points]
        low, high = ([getattr(p, end) for p in found.points] for end in ("low", "high"))
        ax.fill_between(
            epsilons, low, high, color=BLUE, alpha=0.2, lw=0, label="nine releases of ten"
        )
        mean = [point.mean for point in found.points]
        ax.plot(epsilons, mean, color=BLUE, lw=2, label="released, on average")
        for value, colour, dash, words in (
            (found.best, GREEN, "-.", "best reachable"),
            (found.base_rate, GREY, ":", "base rate"),
        ):
            text = f"{words}, {score_text(found.measure, value)}"
            ax.axhline(value, color=colour, lw=1.6, ls=dash, label=text)
        ax.set(ylabel=f"held-out {found.measure}", ylim=utility_limits(found))
        if found.measure == "accuracy":
            percents(ax.yaxis)
        ax.legend(loc="best", fontsize="small")


def _is_apart(part: EpsilonPart) -> bool:
    """Whether the ceiling is on the axis, and is not the recommended ε."""
    ceiling = part.ceiling
    if ceiling is None or not 0 < ceiling < math.inf:
        return False
    return rounded_down(ceiling) != part.recommended
