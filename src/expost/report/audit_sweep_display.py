"""The figure of audits over ε: what attacks reach beside what the promise allows.

:mod:`expost.report.display` has what all figures share. It shows aggregates alone: for review.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from expost.audits.sweep import AuditSweep
from expost.report.display import BLUE, GREY, INK, ORANGE, PanelsDisplay
from expost.types import Audience, FloatArray

__all__ = ["AuditSweepDisplay"]


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditSweepDisplay(PanelsDisplay):
    """Two panels over ε, each (k,) with its interval; NaN where there is none.

    ``advantage``    (k, 3) value, low and high of the best attack;  ``allowed`` (k,) by ε.
    ``correlation``  (k, 3) of what theory says of the members and how often they are told apart.
    """

    epsilons: FloatArray
    advantage: FloatArray
    allowed: FloatArray
    correlation: FloatArray

    audience = Audience.REVIEW
    is_marked = True
    size = (9.6, 4.0)
    grid = (1, 2)

    @classmethod
    def from_sweep(cls, sweep: AuditSweep) -> "AuditSweepDisplay":
        """The figures of a sweep."""
        nothing = (np.nan, np.nan, np.nan)
        best = [one.figures[one.best].advantage for one in sweep.audits]
        bounds = [one.advantage_bound for one in sweep.audits]
        related = [
            nothing if one is None else (one.value, one.low, one.high) for one in sweep.correlations
        ]
        return cls(
            epsilons=np.array(sweep.epsilons),
            advantage=np.array([(one.value, one.low, one.high) for one in best]),
            allowed=np.array([np.nan if bound is None else bound for bound in bounds]),
            correlation=np.array(related),
        )

    def _draw(self, axes: Any) -> None:
        reached, related = axes
        self._interval(reached, self.advantage, BLUE, "reached by the best attack")
        reached.plot(
            self.epsilons, self.allowed, color=INK, ls="--", marker="_", label="allowed by ε"
        )
        reached.set(ylabel="advantage", ylim=(min(-0.05, np.nanmin(self.advantage)), 1.05))
        self._interval(related, self.correlation, ORANGE, "with its interval")
        related.set(ylabel="rank correlation of theory and attacks", ylim=(-0.55, 1.05))
        for ax in axes:
            ax.axhline(0, color=GREY, ls=":", lw=1.4, zorder=1)
            ax.set(xscale="log", xlabel="ε")
            ax.legend(loc="upper left", fontsize="small")

    def _interval(self, ax: Any, values: FloatArray, colour: str, label: str) -> None:
        ax.vlines(self.epsilons, values[:, 1], values[:, 2], color=colour, lw=1.6)
        ax.plot(self.epsilons, values[:, 0], color=colour, marker="o", ms=5, lw=1.2, label=label)
