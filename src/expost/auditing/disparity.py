"""Disparate vulnerability: the same attack by class, or by group.

An attack that finds few of all rows may find many of one group. Within each group its ROC curve is
drawn from the group's own members and non-members. Its hits are counted at *one* threshold, that of
all rows at a false-positive rate: the attacker does not know the groups.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost._counts import Share
from expost.auditing.evidence import Flags
from expost.auditing.roc import Interval, auc, threshold_at
from expost.groups.columns import printable, read_column
from expost.results import Displayed
from expost.types import Audience, FloatArray

__all__ = ["Disparity", "GroupFigures", "disparity"]

# A group of fewer members, or non-members, shows what they have to hide, and has no curve.
FEW = 5


@dataclass(frozen=True, kw_only=True)
class GroupFigures:
    """One group: its members and non-members, and what the attack got out of them.

    ``auc``  within the group; None where it has fewer than five members or non-members.
    ``true_positive_rate``, ``false_positive_rate``  at the threshold of all rows.
    """

    label: str
    members: int
    non_members: int
    auc: Interval | None
    true_positive_rate: Share | None
    false_positive_rate: Share | None

    @property
    def lift(self) -> float | None:
        """How many members are found for one that is taken for one: TPR/FPR; None if unknown."""
        hit, miss = self.true_positive_rate, self.false_positive_rate
        if hit is None or miss is None or miss.hits == 0:
            return None
        return hit.value / miss.value

    def to_json(self) -> dict[str, Any]:
        """Every figure by name."""
        return {
            "label": self.label,
            "members": self.members,
            "non_members": self.non_members,
            "auc": None if self.auc is None else self.auc.to_json(),
            "true_positive_rate": _share(self.true_positive_rate),
            "false_positive_rate": _share(self.false_positive_rate),
        }


@dataclass(frozen=True, kw_only=True)
class Disparity(Displayed):
    """The figures of ``attack`` by the levels of ``column``, most vulnerable first."""

    column: str
    attack: str
    false_positive_rate: float
    groups: tuple[GroupFigures, ...]
    notices: tuple[str, ...] = ()

    @property
    def audience(self) -> Audience:
        """Aggregates need a review; a group of a few rows is treated as those are."""
        small = any(min(one.members, one.non_members) < FEW for one in self.groups)
        return Audience.CURATOR_ONLY if small else Audience.NEEDS_REVIEW

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[GroupFigures]:
        return iter(self.groups)

    def to_json(self) -> dict[str, Any]:
        """Every figure by name."""
        return {
            "column": self.column,
            "attack": self.attack,
            "audience": self.audience.value,
            "false_positive_rate": self.false_positive_rate,
            "groups": [one.to_json() for one in self.groups],
            "notices": list(self.notices),
        }


def disparity(
    scores: FloatArray,
    truth: Flags,
    column: Any,
    *,
    name: str,
    attack: str,
    confidence: float = 0.95,
    false_positive_rate: float = 0.01,
    bins: int = 4,
) -> Disparity:
    """``scores`` of all rows by the levels, or the quantile bins, of ``column`` (a cell a row)."""
    read = read_column(column, name, len(scores))
    partition = read.partition(bins)
    codes = partition.parts(read)
    threshold = threshold_at(scores, truth, false_positive_rate)
    groups = [
        _figures(scores, truth, codes == code, printable(label), threshold, confidence)
        for code, label in enumerate(partition.labels)
        if np.any(codes == code)
    ]
    groups.sort(key=lambda one: 1.0 if one.auc is None else -one.auc.value)
    return Disparity(
        column=name,
        attack=attack,
        false_positive_rate=false_positive_rate,
        groups=tuple(groups),
        notices=partition.notices,
    )


def _figures(
    scores: FloatArray,
    truth: Flags,
    within: Flags,
    label: str,
    threshold: float,
    confidence: float,
) -> GroupFigures:
    inside, outside = within & truth, within & ~truth
    members, non_members = int(inside.sum()), int(outside.sum())
    enough = min(members, non_members) >= FEW

    def share(rows: Flags) -> Share | None:
        total = int(rows.sum())
        if total < FEW:
            return None
        hits = int(np.count_nonzero(scores[rows] > threshold))
        return Share(hits=hits, trials=total, confidence=confidence)

    return GroupFigures(
        label=label,
        members=members,
        non_members=non_members,
        auc=auc(scores[within], truth[within], confidence=confidence) if enough else None,
        true_positive_rate=share(inside),
        false_positive_rate=share(outside),
    )


def _share(share: Share | None) -> dict[str, float] | None:
    if share is None:
        return None
    return {"value": share.value, "low": share.low, "high": share.high}
