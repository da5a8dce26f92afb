"""D5.3 Fig. 4.2: belief and advantage over ε for several δ, with what was asked marked.

:mod:`expost.report.display` has what all figures share. What is ordered (δ) is coloured along
viridis. Its mark is that of what it draws.
"""

import math
from dataclasses import dataclass
from typing import Any

from expost.report.display import GREY, GRID, INK, ORANGE, PanelsDisplay, percents
from expost.report.wording import number, number_up
from expost.risk.answer import Identifiability
from expost.risk.curves import DeltaCurves, RiskCurves
from expost.types import Audience

__all__ = ["AskedPoint", "RiskDisplay"]

# The lightest yellow of viridis is lost on white.
_ORDERED, _LIGHTEST = "viridis", 0.85
# 10⁻⁶ needs no factor before it.
_ONE_TIMES = "1\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}"


@dataclass(frozen=True, kw_only=True)
class AskedPoint:
    """What was asked: its ε, its figures (None where there is none) and their texts."""

    epsilon: float
    epsilon_text: str
    belief: float | None
    belief_text: str
    advantage: float
    advantage_text: str


@dataclass(frozen=True, kw_only=True, eq=False)
class RiskDisplay(PanelsDisplay):
    """Two panels over ε: how sure an attacker gets, and how often she is right beyond chance."""

    curves: RiskCurves
    asked: AskedPoint | None = None
    audience: Audience = Audience.PASS

    is_marked = True
    size = (10.4, 5.6)
    grid = (1, 2)

    @classmethod
    def from_identifiability(cls, found: Identifiability) -> "RiskDisplay":
        """The curves around an answer, with it marked."""
        curves = found.curves()
        epsilon, advantage = found.epsilon, found.advantage
        assert epsilon is not None
        assert advantage is not None
        first = found.routes[0].key
        belief = found.belief
        return cls(
            curves=curves,
            asked=AskedPoint(
                epsilon=epsilon,
                epsilon_text=found.figure("epsilon").shown[first],
                belief=belief,
                belief_text="" if belief is None else found.figure("belief").shown[first],
                advantage=advantage,
                advantage_text=found.figure("advantage").shown[first],
            ),
            audience=found.audience,
        )

    def _draw(self, axes: Any) -> None:
        colours = _colours(len(self.curves.deltas))
        self._beliefs(axes[0], colours)
        self._advantages(axes[1], colours)
        for ax in axes:
            ax.set_xscale("log")
            ax.set_xlim(self.curves.epsilon[0], self.curves.epsilon[-1])
            ax.set_xlabel("ε")
            ax.grid(color=GRID, lw=0.7)
            ax.set_axisbelow(True)

    def _beliefs(self, ax: Any, colours: list[Any]) -> None:
        curves = self.curves
        for part, colour in zip(curves.deltas, colours, strict=True):
            ax.plot(part.epsilon, part.belief, color=colour, lw=1.8, label=_gaussian(part))
        loosest = curves.deltas[0]
        ax.plot(
            curves.epsilon, loosest.any_belief, color=GREY, ls=":", lw=1.8, label="any mechanism"
        )
        ax.plot(
            curves.epsilon,
            curves.pure_belief,
            color=INK,
            ls="--",
            lw=1.4,
            label="paper (Thm 2)",
        )
        ax.set(
            title=r"$\rho_\beta$: how sure an attacker can get",
            ylabel="belief that a person was there",
            ylim=(curves.prior - 0.02 * (1 - curves.prior), 1 + 0.02 * (1 - curves.prior)),
        )
        percents(ax.yaxis)
        if self.asked is not None and self.asked.belief is not None:
            self._mark(ax, self.asked.belief, self.asked.belief_text)
        _legend(ax, _passed(curves))

    def _advantages(self, ax: Any, colours: list[Any]) -> None:
        curves = self.curves
        for part, colour in zip(curves.deltas, colours, strict=True):
            ax.plot(part.epsilon, part.advantage, color=colour, lw=1.8, label=_gaussian(part))
        for part, colour in zip(curves.deltas, colours, strict=True):
            ax.plot(
                curves.epsilon,
                part.paper_advantage,
                color=colour,
                ls="--",
                lw=1.4,
                label=f"paper (Thm 3), δ = {_power(part.delta)}",
            )
        ax.plot(
            curves.epsilon,
            curves.pure_advantage,
            color=GREY,
            ls=":",
            lw=1.8,
            label="any mechanism at δ = 0",
        )
        ax.set(
            title=r"$\rho_\alpha$: how much better than a coin she guesses",
            ylabel="membership advantage",
            ylim=(-0.02, 1.02),
        )
        if self.asked is not None:
            self._mark(ax, self.asked.advantage, self.asked.advantage_text)
        _legend(ax, "dashed: as printed in the paper")

    def _mark(self, ax: Any, value: float, text: str) -> None:
        """The asked point, with its ε and its figure beside it, where there is room."""
        assert self.asked is not None
        epsilon = self.asked.epsilon
        ax.axvline(epsilon, color=ORANGE, lw=1.0, zorder=1)
        ax.plot(epsilon, value, marker="o", color=ORANGE, ms=8, ls="", zorder=5)
        low, high = self.curves.epsilon[0], self.curves.epsilon[-1]
        is_left = epsilon < math.sqrt(low * high) * (high / low) ** 0.25
        ax.annotate(
            f"ε = {self.asked.epsilon_text}: {text}",
            (epsilon, value),
            xytext=(10 if is_left else -10, -6),
            textcoords="offset points",
            ha="left" if is_left else "right",
            va="top",
            color=ORANGE,
            fontweight="bold",
            bbox={"boxstyle": "square,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.85},
        )


def _gaussian(part: DeltaCurves) -> str:
    return f"Gaussian noise, δ = {_power(part.delta)}"


def _power(delta: float) -> str:
    return number(delta).removeprefix(_ONE_TIMES)


def _legend(ax: Any, title: str) -> None:
    """Below the axes, where no curve and no mark can be."""
    ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncols=2,
        fontsize="small",
        title=title,
        title_fontsize="small",
        frameon=False,
    )


def _passed(curves: RiskCurves) -> str:
    """With which probability the beliefs may be passed."""
    if all(part.exceeded == 10 * part.delta for part in curves.deltas):
        return "passed with a probability of at most δ (any mechanism: 10·δ)"
    each = ", ".join(number_up(part.exceeded) for part in curves.deltas)
    return f"passed with a probability of at most δ (any mechanism: {each})"


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    scale = colormaps[_ORDERED]
    return [scale(_LIGHTEST * place / max(count - 1, 1)) for place in range(count)]
