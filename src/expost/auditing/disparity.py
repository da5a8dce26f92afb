"""Disparate vulnerability: the same attack by class, or by group.

An attack that detects few members overall may detect many of one group. The AUC of a group is that
of its own members and non-members. Hits are counted at *one* threshold, that of all rows at a
false-positive rate: the attacker does not know the groups.
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

# Figures of a group with fewer members, or non-members, would disclose single rows.
FEW = 5


@dataclass(frozen=True, kw_only=True)
class GroupFigures:
    """The attack's figures on one group of rows.

    Parameters
    ----------
    auc : Interval | None
        Within the group; None where it has fewer than five members or non-members.
    true_positive_rate, false_positive_rate : Share | None
        At the threshold of all rows.
    """

    label: str
    members: int
    non_members: int
    auc: Interval | None
    true_positive_rate: Share | None
    false_positive_rate: Share | None

    @property
    def lift(self) -> float | None:
        """TPR/FPR, true hits per false hit; None if unknown."""
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
        """Needs review; curator-only if a group has only a few rows."""
        small = any(min(group.members, group.non_members) < FEW for group in self.groups)
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
            "groups": [group.to_json() for group in self.groups],
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
    """Return the figures by the levels, or the quantile bins, of ``column`` (a cell per row)."""
    read = read_column(column, name, len(scores))
    partition = read.partition(bins)
    codes = partition.parts(read)
    threshold = threshold_at(scores, truth, false_positive_rate)
    groups = [
        _figures(scores, truth, codes == code, printable(label), threshold, confidence)
        for code, label in enumerate(partition.labels)
        if np.any(codes == code)
    ]
    groups.sort(key=lambda group: 1.0 if group.auc is None else -group.auc.value)
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
