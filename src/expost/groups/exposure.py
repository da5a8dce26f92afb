"""Which groups hold the exposed rows: by the parts of one column, or by a shallow tree over many.

Conventions
-----------
scores      (n,) exposures, or distances where there is no noise; ≥ 0, infinite ones allowed.
top         the most exposed 1 % of the rows, ⌈n/100⌉ of them. Rows that tie at its edge share the
            places that are left, so that no figure depends on the order of the rows.
persons     where all rows of a person are removed at once, a score is a person's, and each of her
            rows counts with it: figures are of rows of exposed persons.
top_share   how much of the top lies in a group;  lift = top_share / share, 1 if the group is
            exposed like everybody.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from expost import _checks
from expost._order import Sorted, top_weights
from expost.errors import InvalidInput
from expost.files.sealed import plain
from expost.groups.columns import Parts, printable, read_column, read_columns
from expost.groups.tree import grow
from expost.results import Displayed
from expost.rounding import upper_text
from expost.types import Audience, FloatArray, IntArray

__all__ = ["Explanation", "Group", "Grouping", "explain_exposure", "group_exposure", "printable"]

_TOP = 0.01
# A group of fewer rows, or persons, shows what they have to hide.
_FEW = 5
_DEEPEST = 3


@dataclass(frozen=True, kw_only=True)
class Group:
    """Some of the rows, and how exposed they are; see the conventions of this module.

    ``persons``  how many have rows in it, where scores are of persons; else None.
    """

    label: str
    rows: int
    share: float
    mean: float
    median: float
    largest: float
    top_share: float
    lift: float
    persons: int | None = None

    @property
    def members(self) -> int:
        """How many persons, or rows on their own, the group is made of."""
        return self.rows if self.persons is None else self.persons

    def to_json(self) -> dict[str, Any]:
        """Return every figure by name, as strict JSON."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}


@dataclass(frozen=True, kw_only=True)
class _Table(Displayed):
    """What a grouping and an explanation share: groups that hold all rows, and a way to show them.

    ``notices``  what the reader must know about how the groups were made.
    """

    groups: tuple[Group, ...]
    notices: tuple[str, ...] = ()

    @property
    def audience(self) -> Audience:
        """Aggregates need a review; a group of a few rows (persons) is as good as those."""
        small = any(group.members < _FEW for group in self.groups)
        return Audience.FAIL if small else Audience.REVIEW

    @property
    def rows(self) -> int:
        """How many rows there are in all groups."""
        return sum(group.rows for group in self.groups)

    @property
    def of_persons(self) -> bool:
        """Whether each row counts with the score of its person."""
        return any(group.persons is not None for group in self.groups)

    @property
    def title(self) -> str:
        """What was grouped, in one line."""
        counted = ", each with its person's exposure," if self.of_persons else ""
        return f"{self.rows:,} rows{counted}"

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def __str__(self) -> str:
        rows = [self._headings, *(_cells(group) for group in self.groups)]
        widths = [max(len(row[place]) for row in rows) for place in range(len(self._headings))]
        table = [
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        mark = f"{self.audience.value}: {self.audience.meaning}"
        return "\n".join([self.title, *table, *self.notices, mark])

    @property
    def _headings(self) -> tuple[str, ...]:
        return ("group", "rows", *(("persons",) if self.of_persons else ()), *_FIGURES)

    def to_json(self) -> dict[str, Any]:
        """All of it, ready for ``json.dumps``."""
        return {
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "groups": [group.to_json() for group in self.groups],
            "notices": list(self.notices),
        }


@dataclass(frozen=True, kw_only=True)
class Grouping(_Table):
    """How exposed the parts of one column are: its levels, or quantile bins of its numbers.

    Numbers keep their order; other levels stand with the most exposed first.
    """

    name: str

    @property
    def title(self) -> str:
        """What was grouped, in one line."""
        return f"{super().title} by {self.name}"

    def to_json(self) -> dict[str, Any]:
        """All of it, ready for ``json.dumps``."""
        return {"name": self.name, **super().to_json()}


@dataclass(frozen=True, kw_only=True)
class Explanation(_Table):
    """The leaves of a shallow decision tree, the most exposed first, as plain conditions.

    ``explained``  the share of the variation of log(1 + score/u), u the 90 % quantile, that
                   lies between leaves: near 0, these columns do not say who is exposed.
    """

    explained: float

    @property
    def title(self) -> str:
        """What was grouped, in one line."""
        return (
            f"{super().title} by a decision tree, which explains {self.explained:.0%} of how"
            " their exposures differ"
        )

    def to_json(self) -> dict[str, Any]:
        """All of it, ready for ``json.dumps``."""
        return {"explained": self.explained, **super().to_json()}


_FIGURES = ("share", "mean", "median", "largest", "of the top 1 %", "lift")


def _cells(group: Group) -> tuple[str, ...]:
    return (
        group.label,
        f"{group.rows:,}",
        *(() if group.persons is None else (f"{group.persons:,}",)),
        f"{group.share:.1%}",
        f"{group.mean:.3g}",
        f"{group.median:.3g}",
        upper_text(group.largest, 3),
        f"{group.top_share:.1%}",
        f"{group.lift:.2f}",
    )


def group_exposure(
    scores: Any,
    column: Any,
    *,
    name: str = "column",
    bins: int = 4,
    owner: IntArray | None = None,
) -> Grouping:
    """The scores by the parts of ``column`` (n,): an array, list, Series or Arrow array.

    Text, booleans, categories and integers of few values are taken by level (of more than 50 the
    largest), other numbers by ``bins`` quantile bins, of which ties may leave fewer; missing cells
    are a group of their own. ``owner`` (n,) is the person of each row where scores are of persons,
    one score a person.
    """
    checked = _by_row(scores, owner)
    bins = _checks.whole("bins", bins, least=1)
    read = read_column(column, printable(name), len(checked))
    parts, notices = read.parts(bins).largest()
    groups = _groups(checked, parts, owner)
    return Grouping(
        name=read.name,
        groups=groups if parts.ordered else _most_exposed_first(groups),
        notices=notices,
    )


def explain_exposure(
    scores: Any,
    X: Any,
    *,
    feature_names: Sequence[str] | None = None,
    depth: int = 3,
    owner: IntArray | None = None,
) -> Explanation:
    """Groups of exposed rows as conditions on the columns of ``X``, a matrix or a frame.

    A regression tree of at most ``depth`` ≤ 3 questions, whose leaves hold at least five rows and
    1 % of all, grown on log(1 + score/u), u the 90 % quantile (on ranks, where a score is
    infinite), so that it looks for the exposed rows. The same input gives the same tree.
    With an ``owner`` (n,) of each row every person counts once, whatever her rows, and a leaf holds
    rows of at least five persons: it would else single out whoever has many rows.
    """
    checked = _by_row(scores, owner)
    if _checks.whole("depth", depth, least=1) > _DEEPEST:
        raise InvalidInput(
            f"depth={depth!r}: must be at most {_DEEPEST}; groups of more conditions are not read."
        )
    columns = read_columns(X, feature_names, len(checked))
    target = _target(checked)
    weights = None if owner is None else 1 / np.bincount(owner)[owner]
    least = max(_FEW, math.ceil(_TOP * (len(checked) if owner is None else len(scores))))
    parts, notices = grow(target, columns, depth=depth, least=least, weights=weights)
    return Explanation(
        groups=_most_exposed_first(_groups(checked, parts, owner)),
        explained=_explained(target, parts.codes),
        notices=notices,
    )


def _by_row(scores: Any, owner: IntArray | None) -> FloatArray:
    checked = _checked(scores)
    return checked if owner is None else checked[owner]


def _checked(scores: Any) -> FloatArray:
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or len(array) < 1:
        raise InvalidInput(f"scores has shape {array.shape}: must be (n,), one for each row.")
    if not np.all(array >= 0):
        raise InvalidInput("scores: must be exposures or distances, numbers ≥ 0 and not NaN.")
    return array


def _groups(scores: FloatArray, parts: Parts, owner: IntArray | None) -> tuple[Group, ...]:
    """The figures of every part that has rows."""
    persons = None if owner is None else _persons(parts, owner)
    order = np.argsort(parts.codes, kind="stable")
    counts = np.bincount(parts.codes, minlength=len(parts.labels))
    weights = top_weights(Sorted(scores), scores, math.ceil(_TOP * len(scores)))
    held = np.bincount(parts.codes, weights=weights, minlength=len(parts.labels)) / weights.sum()
    ends = np.cumsum(counts)
    found = []
    for place, label in enumerate(parts.labels):
        count, end = int(counts[place]), int(ends[place])
        if count == 0:
            continue
        # Sorted, so that sums do not depend on the order of the rows either.
        own = np.sort(scores[order[end - count : end]])
        share = count / len(scores)
        found.append(
            Group(
                label=label,
                rows=count,
                share=share,
                mean=float(own.mean()),
                median=float(np.median(own)),
                largest=float(own[-1]),
                top_share=float(held[place]),
                lift=float(held[place]) / share,
                persons=None if persons is None else int(persons[place]),
            )
        )
    return tuple(found)


def _persons(parts: Parts, owner: IntArray) -> IntArray:
    """How many persons have rows in each part; one may have rows in several."""
    everyone = int(owner.max()) + 1
    pairs = np.unique(parts.codes * everyone + owner)
    return np.bincount(pairs // everyone, minlength=len(parts.labels))


def _most_exposed_first(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: (-group.mean, -group.lift, group.label)))


def _target(scores: FloatArray) -> FloatArray:
    """log(1 + score/u), u the 90 % quantile: the exposed rows stand out from the many.

    With the median for u, or with ranks, the tree divides the many: on Adult (six columns) its
    leaves then find half of the most exposed 1 %, so they find 86 %.
    """
    if not np.all(np.isfinite(scores)):
        ranks: FloatArray = rankdata(scores) / len(scores)
        return ranks
    positive = scores[scores > 0]
    unit = float(np.quantile(positive, 0.9)) if len(positive) else 1.0
    with np.errstate(over="ignore"):
        return np.log1p(np.minimum(scores / unit, 1e300))


def _explained(target: FloatArray, leaf: IntArray) -> float:
    """1 − (variation within leaves)/(variation of all)."""
    total = float(np.sum((target - target.mean()) ** 2))
    if not total > 0:
        return 0.0
    means = np.bincount(leaf, weights=target) / np.maximum(np.bincount(leaf), 1)
    within = float(np.sum((target - means[leaf]) ** 2))
    return min(max(1 - within / total, 0.0), 1.0)
