"""How sure an attacker who was undecided gets of the rows of some parts, counted (D5.3 Lemma 1).

What is not known counts as exposed, as in :mod:`expost.profiles.posterior`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from expost._order import Histogram, ranking
from expost.mechanisms import Mechanism, OutputPerturbation, RowLosses
from expost.profiles.posterior import RowIdentifiability, belief_levels
from expost.types import FloatArray, IntArray, Neighbouring

__all__ = ["BeliefDigest", "Extreme"]

_PRIOR = 0.5
_COLUMNS = ("loss", "loss_low", "loss_high", "distance", "distance_error")


@dataclass(frozen=True, kw_only=True)
class Extreme:
    """One row that no other passes."""

    row: int
    key: Any
    figures: tuple[float, ...]

    def __getitem__(self, name: str) -> float:
        return self.figures[_COLUMNS.index(name)]

    @classmethod
    def at(cls, table: Any, place: int) -> "Extreme":
        """The row of a part."""
        row = int(table.column("row")[place].as_py())
        return cls(
            row=row,
            key=table.column("id")[place].as_py() if "id" in table.column_names else row,
            figures=tuple(float(table.column(name)[place].as_py()) for name in _COLUMNS),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class BeliefDigest:
    """Beliefs in the rows of some parts; two add up to those of both.

    ``above``, ``doubted``  how many beliefs may pass each level, in or out.
    ``surest``, ``least``, ``farthest``  whose presence is believed most, and least, and who moves
                            the model most.
    ``raised``, ``lowered``  the sizes of the upper ends of losses ≥ 0, and of those below;
                            ``certain`` of the first are infinite.
    """

    above: tuple[int, ...]
    doubted: tuple[int, ...]
    surest: Extreme
    least: Extreme
    farthest: Extreme
    raised: Histogram
    lowered: Histogram
    certain: int
    top: float

    @classmethod
    def of(cls, table: Any, top: float) -> "BeliefDigest":
        """Those of one part; ``top`` is the largest finite end of a loss of all parts."""
        low, high, distance, error = (table.column(name).to_numpy() for name in _COLUMNS[1:])
        high = np.where(np.isnan(high), np.inf, high)
        low = np.where(np.isnan(low), -np.inf, low)
        order = ranking(high, distance)
        raised, lowered = Histogram(max(top, 1e-200)), Histogram(max(top, 1e-200))
        raised.add(high[high >= 0])
        lowered.add(-high[high < 0])
        return cls(
            above=tuple(int(np.sum(expit(high) > level)) for level in belief_levels(_PRIOR)),
            doubted=tuple(int(np.sum(expit(-low) > level)) for level in belief_levels(1 - _PRIOR)),
            surest=Extreme.at(table, int(order[0])),
            least=Extreme.at(table, int(np.argmin(low))),
            farthest=Extreme.at(table, int(np.argmax(distance + error))),
            raised=raised,
            lowered=lowered,
            certain=int(np.sum(np.isinf(high) & (high > 0))),
            top=top,
        )

    def merged(self, other: "BeliefDigest") -> "BeliefDigest":
        """Both together; equal rows in the order of the table."""
        self.raised.merge(other.raised)
        self.lowered.merge(other.lowered)
        return BeliefDigest(
            above=tuple(map(sum, zip(self.above, other.above, strict=True))),
            doubted=tuple(map(sum, zip(self.doubted, other.doubted, strict=True))),
            surest=min(self.surest, other.surest, key=_by_belief),
            least=min(self.least, other.least, key=_by_doubt),
            farthest=min(self.farthest, other.farthest, key=_by_distance),
            raised=self.raised,
            lowered=self.lowered,
            certain=self.certain + other.certain,
            top=self.top,
        )

    def at_most(self, ranks: IntArray) -> FloatArray:
        """The upper ends of the losses at ``ranks``, 1 for the least: no less than they are."""
        below = self.lowered.count
        found = np.full(len(ranks), np.inf)
        negative, positive = ranks <= below, ranks > below
        if np.any(negative):
            found[negative] = -self.lowered.at_least(below + 1 - ranks[negative])
        if np.any(positive):
            found[positive] = np.minimum(self.raised.at_most(ranks[positive] - below), self.top)
        return np.where(ranks > below + self.raised.count - self.certain, np.inf, found)

    def extremes(
        self, how: Mechanism, *, description: str, notices: tuple[str, ...]
    ) -> RowIdentifiability:
        """What an attacker can tell of the three rows that no other passes."""
        rows = list({one.row: one for one in (self.surest, self.least, self.farthest)}.values())
        loss, low, high, distance, error = (
            np.array([one[name] for one in rows]) for name in _COLUMNS
        )
        losses = RowLosses(
            loss=loss,
            low=low,
            high=high,
            distance=distance,
            distance_error=error,
            relation=Neighbouring.REMOVE,
            law=how.law.law(distance) if isinstance(how, OutputPerturbation) else None,
            far_law=how.law.law(distance + error) if isinstance(how, OutputPerturbation) else None,
            worst_case=how.worst_case,
            worst_case_passed=how.worst_case_passed,
            guarantee=how.guarantee,
        )
        return RowIdentifiability(
            losses=losses,
            prior=_PRIOR,
            description=description,
            ids=tuple(one.key for one in rows),
            notices=notices,
        )


def _by_belief(one: Extreme) -> tuple[float, float, int]:
    high = one["loss_high"]
    return (-np.inf if np.isnan(high) else -high, -one["distance"], one.row)


def _by_doubt(one: Extreme) -> tuple[float, int]:
    low = one["loss_low"]
    return (-np.inf if np.isnan(low) else low, one.row)


def _by_distance(one: Extreme) -> tuple[float, int]:
    return (-(one["distance"] + one["distance_error"]), one.row)
