"""The figure of a choice of ε: what an attacker learns, how the rows change, what a model is worth.

Like the other displays it holds what it draws and computes nothing (:mod:`expost.report.displays`).
For the curator only.
"""

import io
import math
from dataclasses import dataclass
from typing import Any

from expost._choice import EpsilonChoice
from expost._recommend import rounded_down
from expost.errors import InvalidInput
from expost.report.epsilon_answer import score_text
from expost.report.epsilon_chart import utility_limits
from expost.report.epsilon_summary import EpsilonSummary, collect_epsilon
from expost.report.wording import number, share
from expost.types import Audience

__all__ = ["TransitionDisplay"]

# Okabe and Ito's colours, as in the other displays.
_BLUE, _ORANGE, _GREEN, _PURPLE = "#0072B2", "#D55E00", "#009E73", "#882255"
_GREY = "#666666"
_SHADE = "#E3E6EA"


@dataclass(frozen=True, kw_only=True, eq=False)
class TransitionDisplay:
    """Panels over ε, one above the other: belief, transition, and utility where it was measured."""

    summary: EpsilonSummary

    audience = Audience.FAIL

    @classmethod
    def from_choice(cls, choice: EpsilonChoice) -> "TransitionDisplay":
        """The curves of a choice of ε."""
        return cls(summary=collect_epsilon(choice))

    @property
    def panels(self) -> int:
        """How many axes it takes: three, or two without a utility."""
        return 2 if self.summary.utility is None else 3

    def plot(self, axes: Any = None) -> Any:
        """Draw into ``axes``, or into those of a new figure; returns the array of them."""
        axes = self._new_axes() if axes is None else axes
        if len(axes) != self.panels:
            raise InvalidInput(f"axes: are {len(axes)}; this figure has {self.panels} panels.")
        self._belief(axes[0])
        self._way(axes[1])
        if self.summary.utility is not None:
            self._utility(axes[2])
        for ax in axes:
            self._shared(ax)
        self._labels(axes[0])
        axes[-1].set_xlabel("ε: more noise on the left, less on the right")
        return axes

    def png(self) -> bytes:
        """The figure as a PNG file."""
        stream = io.BytesIO()
        self.plot()[0].figure.savefig(stream, format="png", dpi=110)
        return stream.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()

    def _new_axes(self) -> Any:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.2, 2.35 * self.panels + 0.5), layout="constrained")
        return figure.subplots(self.panels, 1, sharex=True)

    def _shared(self, ax: Any) -> None:
        """The axis of ε, the transition, and the two marks."""
        summary = self.summary
        ax.set_xscale("log")
        ax.set_xlim(*summary.axis)
        low, high = summary.low, summary.high
        if low is not None and high is not None and low < high:
            right = min(high, summary.axis[1])
            ax.axvspan(max(low, summary.axis[0]), right, color=_SHADE, lw=0, zorder=0)
        if _is_apart(summary):
            assert summary.limit is not None
            ax.axvline(summary.limit, color=_PURPLE, lw=1.5, ls=(0, (4, 3)))
        if summary.recommended is not None:
            ax.axvline(summary.recommended, color="black", lw=1.5)
        ax.grid(axis="y", color="#DDDDDD", lw=0.7)
        ax.set_axisbelow(True)

    def _labels(self, ax: Any) -> None:
        """Above the first panel: what the upright lines and the shade are."""
        summary = self.summary
        style = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        style |= {"fontsize": "small", "va": "bottom"}
        middle = math.sqrt(summary.axis[0] * summary.axis[1])
        if summary.recommended is not None:
            side = "left" if summary.recommended < middle else "right"
            text = f"recommended: ε = {number(summary.recommended)}"
            ax.annotate(text, (summary.recommended, 1), xytext=(0, 3), ha=side, **style)
        if _is_apart(summary):
            assert summary.limit is not None
            side = "left" if summary.limit < middle else "right"
            text = f"belief bound: ε = {number(rounded_down(summary.limit))}"
            here = {**style, "color": _PURPLE}
            ax.annotate(text, (summary.limit, 1), xytext=(0, 15), ha=side, **here)

    def _belief(self, ax: Any) -> None:
        summary = self.summary
        epsilons = [point.epsilon for point in summary.curve]
        far = [point.belief for point in summary.curve]
        ax.plot(epsilons, far, color=_BLUE, lw=2, label="most exposed row")
        middle = [point.middle_belief for point in summary.curve]
        if middle[0] is not None:
            ax.plot(epsilons, middle, color=_ORANGE, lw=1.8, ls="--", label="middle row")
        bound = summary.bound.largest
        ax.axhline(bound, color=_GREY, lw=1.6, ls=":", label=f"bound, {share(bound)}")
        ax.set(ylabel="attacker's belief", ylim=(summary.bound.prior, 1.02))
        _percents(ax)
        ax.legend(loc="lower right", fontsize="small")

    def _way(self, ax: Any) -> None:
        summary = self.summary
        epsilons = [point.epsilon for point in summary.curve]
        far, middle = (
            [math.nan if way is None else way for way in ways]
            for ways in zip(*((p.way, p.middle_way) for p in summary.curve), strict=True)
        )
        ax.plot(epsilons, far, color=_BLUE, lw=2, label="most exposed row")
        ax.plot(epsilons, middle, color=_ORANGE, lw=1.8, ls="--", label="middle row")
        words = "protection lost" if summary.is_way else "one-sidedness"
        ax.set(ylabel=words, ylim=(-0.03, 1.03))
        _percents(ax)
        legend = {"loc": "upper left", "fontsize": "small", "alignment": "left"}
        ax.legend(title=self._range(), title_fontsize="small", **legend)

    def _range(self) -> str | None:
        low, high = self.summary.low, self.summary.high
        if low is None or high is None or not low < high:
            return None
        end = number(rounded_down(high)) if high < math.inf else "∞"
        return f"shaded: transition, {number(rounded_down(low))} to {end}"

    def _utility(self, ax: Any) -> None:
        found = self.summary.utility
        assert found is not None
        epsilons = [point.epsilon for point in found.points]
        low, high = ([getattr(p, end) for p in found.points] for end in ("low", "high"))
        ax.fill_between(
            epsilons, low, high, color=_BLUE, alpha=0.2, lw=0, label="nine releases of ten"
        )
        mean = [point.mean for point in found.points]
        ax.plot(epsilons, mean, color=_BLUE, lw=2, label="released, on average")
        for value, colour, dash, words in (
            (found.noiseless, _GREEN, "-.", "without noise"),
            (found.base_rate, _GREY, ":", "base rate"),
        ):
            text = f"{words}, {score_text(found.measure, value)}"
            ax.axhline(value, color=colour, lw=1.6, ls=dash, label=text)
        ax.set(ylabel=f"held-out {found.measure}", ylim=utility_limits(found))
        if found.measure == "accuracy":
            _percents(ax)
        ax.legend(loc="best", fontsize="small")


def _percents(ax: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    ax.yaxis.set_major_formatter(PercentFormatter(1.0))


def _is_apart(summary: EpsilonSummary) -> bool:
    """Whether the ε of the belief bound is on the axis, and is not the recommended one."""
    limit = summary.limit
    if limit is None or not 0 < limit < math.inf:
        return False
    return rounded_down(limit) != summary.recommended
