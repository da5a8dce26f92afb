"""Exposure by group: by the parts of one column, or by a shallow decision tree over many.

Conventions
-----------
scores      (n,) exposures, or distances where there is no noise; ≥ 0, infinite ones allowed.
top         the most exposed 1 % of the rows, ⌈n/100⌉ of them. Rows that tie at its boundary are
            counted in equal fractions, so that no figure depends on the order of the rows.
persons     if all rows of a person are removed at once, a score is a person's, and each row of the
            person has it: figures are of rows of exposed persons.
top_share   the share of the top in a group;  lift = top_share / share, 1 if the group is as exposed
            as all rows.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost._order import OrderStatistics, Sorted, top_weights
from expost.errors import InvalidInput
from expost.files.sealed import plain
from expost.groups.columns import Partition, printable, read_column, read_columns
from expost.groups.tree import Tree, grow, sample_rows
from expost.results import Displayed
from expost.types import Audience, FloatArray, IntArray

__all__ = [
    "Explanation",
    "Group",
    "Grouping",
    "PartCounts",
    "RowScores",
    "checked_depth",
    "explain_exposure",
    "exposed_weights",
    "group_exposure",
    "printable",
    "smallest_leaf",
    "tree_target",
]

_TOP = 0.01
# Figures of a group with fewer rows, or persons, would disclose single ones.
_FEW = 5
_DEEPEST = 3


@dataclass(frozen=True, kw_only=True)
class Group:
    """Some of the rows, and how exposed they are; see the conventions of this module.

    Parameters
    ----------
    persons : int, optional
        The number of persons with rows in it, if scores are of persons; else None.
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
        """The number of persons, or of independent rows, in the group."""
        return self.rows if self.persons is None else self.persons

    def to_json(self) -> dict[str, Any]:
        """Return every figure by name, as strict JSON."""
        fields: dict[str, Any] = plain(self.__dict__)
        return fields


@dataclass(frozen=True, kw_only=True)
class _Table(Displayed):
    """The common part of a grouping and an explanation: groups that cover all rows.

    Parameters
    ----------
    notices : tuple[str, ...], default=()
        What the reader must know about how the groups were made.
    """

    groups: tuple[Group, ...]
    notices: tuple[str, ...] = ()

    @property
    def audience(self) -> Audience:
        """Needs review; curator-only if a group has only a few rows (persons)."""
        small = any(group.members < _FEW for group in self.groups)
        return Audience.CURATOR_ONLY if small else Audience.NEEDS_REVIEW

    @property
    def rows(self) -> int:
        """The number of rows in all groups."""
        return sum(group.rows for group in self.groups)

    @property
    def of_persons(self) -> bool:
        """Whether each row has the score of its person."""
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
    """Exposure by the parts of one column: its levels, or quantile bins of its numbers.

    Numbers keep their order; other levels are sorted, the most exposed first.
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

    Parameters
    ----------
    explained : float
        The share of the variation of log(1 + score/u), u the 90 % quantile, that lies between
        leaves: near 0, these columns do not explain which rows are exposed.
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


@dataclass(frozen=True, kw_only=True, eq=False)
class RowScores:
    """The score of each row (n,), ≥ 0, and what all groupings of them share.

    Parameters
    ----------
    owner : IntArray, optional
        (n,) the person of each row where scores are of ``members`` persons.
    """

    values: FloatArray
    members: int
    owner: IntArray | None = None

    @classmethod
    def of(cls, scores: Any, owner: IntArray | None = None) -> "RowScores":
        """Check scores, one for each row or, with an ``owner`` of each row, for each person."""
        array = np.asarray(scores, dtype=np.float64)
        if array.ndim != 1 or len(array) < 1:
            raise InvalidInput(f"scores has shape {array.shape}: must be (n,), one for each row.")
        if not np.all(array >= 0):
            raise InvalidInput("scores: must be exposures or distances, numbers ≥ 0 and not NaN.")
        values = array if owner is None else array[owner]
        return cls(values=values, members=len(array), owner=owner)

    @cached_property
    def statistics(self) -> Sorted:
        """The order statistics of all rows."""
        return Sorted(self.values)

    @cached_property
    def exposed(self) -> FloatArray:
        """(n,) how much of each row is among the most exposed 1 %."""
        return exposed_weights(self.values, self.statistics)

    def persons(self, codes: IntArray, parts: int) -> IntArray | None:
        """Return how many persons have a row in each part; None where rows have no owner."""
        return None if self.owner is None else _persons(codes, parts, self.owner)


def group_exposure(
    scores: Any,
    column: Any,
    *,
    name: str = "column",
    bins: int = 4,
    owner: IntArray | None = None,
) -> Grouping:
    """Return the scores by the parts of ``column`` (n,): an array, list, Series or Arrow array.

    Strings, booleans, categories and integers of few values are grouped by level (of more than 50
    the largest), other numbers by ``bins`` quantile bins, or fewer if there are ties; missing cells
    are a group of their own. ``owner`` (n,) is the person of each row if scores are of persons, one
    score per person. Scores that are grouped several times are passed as :class:`RowScores`.
    """
    rows = scores if isinstance(scores, RowScores) else RowScores.of(scores, owner)
    bins = _checks.integer("bins", bins, least=1)
    read = read_column(column, printable(name), len(rows.values))
    partition = read.partition(bins)
    codes, parts = partition.parts(read), len(partition.labels)
    counted = PartCounts.of(codes, parts, rows.values, rows.exposed)
    return counted.grouping(partition, read.name, rows.persons(codes, parts))


def explain_exposure(
    scores: Any,
    X: Any,
    *,
    feature_names: Sequence[str] | None = None,
    depth: int = 3,
    owner: IntArray | None = None,
) -> Explanation:
    """Return groups of exposed rows as conditions on the columns of ``X``, a matrix or a frame.

    A regression tree of at most ``depth`` ≤ 3 splits, whose leaves hold at least five rows and 1 %
    of all, grown on log(1 + score/u), u the 90 % quantile (on ranks, if a score is infinite), so
    that it separates the exposed rows. The same input gives the same tree. With an ``owner`` (n,)
    of each row every person has the same weight, and a leaf holds rows of at least five persons:
    otherwise it could single out a person with many rows.
    """
    rows = scores if isinstance(scores, RowScores) else RowScores.of(scores, owner)
    depth, owner = checked_depth(depth), rows.owner
    n = len(rows.values)
    columns = read_columns(X, feature_names, n)
    target = tree_target(rows.values, rows.statistics)
    weights = None if owner is None else 1 / np.bincount(owner)[owner]
    sample = sample_rows(n)
    tree = grow(
        target[sample],
        [column.take(sample) for column in columns],
        depth=depth,
        least=smallest_leaf(rows.members),
        weights=None if weights is None else weights[sample],
        total=None if len(sample) == n else float(n if weights is None else weights.sum()),
        whole=None if len(sample) == n else columns,
    )
    codes, leaves = tree.parts(columns, n), len(tree.labels)
    counted = PartCounts.of(codes, leaves, rows.values, rows.exposed, target=target)
    return counted.explanation(tree, rows.persons(codes, leaves))


def exposed_weights(scores: FloatArray, statistics: OrderStatistics) -> FloatArray:
    """Return how much of each row is among the most exposed 1 % of all rows.

    Parameters
    ----------
    statistics : OrderStatistics
        The order statistics of the scores of all rows.
    """
    return top_weights(statistics, scores, math.ceil(_TOP * statistics.count))


def checked_depth(depth: int) -> int:
    """Return the depth of a tree; refuse one whose leaves have too many conditions to be read."""
    if _checks.integer("depth", depth, least=1) > _DEEPEST:
        raise InvalidInput(
            f"depth={depth!r}: must be at most {_DEEPEST}; more conditions are not readable."
        )
    return depth


def smallest_leaf(members: int) -> int:
    """Return the least number of rows, or persons, of a leaf of a tree over so many."""
    return max(_FEW, math.ceil(_TOP * members))


@dataclass(frozen=True, kw_only=True, eq=False)
class PartCounts:
    """The rows of each part of a partition, and their scores; merged over blocks of rows.

    Parameters
    ----------
    rows, sums, top : IntArray, FloatArray
        (k,) the number of rows, the sum of their scores, and how much of the most exposed 1 % of
        all rows they are.
    scores : tuple[OrderStatistics | None, ...]
        The order statistics of each part; None for a part without rows.
    centre, squares : FloatArray
        (k,) the mean and the summed squared deviations of the rows' targets, where a tree was
        grown.
    """

    rows: IntArray
    sums: FloatArray
    top: FloatArray
    scores: tuple[OrderStatistics | None, ...]
    centre: FloatArray
    squares: FloatArray

    @classmethod
    def of(
        cls,
        codes: IntArray,
        parts: int,
        scores: FloatArray,
        weights: FloatArray,
        statistics: Callable[[FloatArray], OrderStatistics] = Sorted,
        *,
        target: FloatArray | None = None,
    ) -> "PartCounts":
        """Count the rows of a block.

        Parameters
        ----------
        codes : IntArray
            The part of each row, of so many ``parts``.
        weights : FloatArray
            How much of each row is among the most exposed 1 %.
        statistics : callable, default=Sorted
            Makes the order statistics of the scores of one part.
        """
        # There are few parts: a stable sort of 16-bit integers takes linear time.
        order = np.argsort(codes.astype(np.int16), kind="stable")
        rows = np.bincount(codes, minlength=parts)
        ends = np.cumsum(rows)
        # Sorted, so that sums do not depend on the order of the rows either.
        own = [np.sort(scores[order[end - n : end]]) for n, end in zip(rows, ends, strict=True)]
        centre, squares = np.zeros(parts), np.zeros(parts)
        if target is not None:
            centre = _sums(codes, target, parts) / np.maximum(rows, 1)
            squares = _sums(codes, (target - centre[codes]) ** 2, parts)
        return cls(
            rows=rows,
            sums=np.array([np.sum(some) for some in own]),
            top=_sums(codes, weights, parts),
            scores=tuple(statistics(some) if len(some) else None for some in own),
            centre=centre,
            squares=squares,
        )

    def merged(self, other: "PartCounts") -> "PartCounts":
        """Return the counts of the rows of both; the order statistics of ``self`` are reused."""
        rows, step = self.rows + other.rows, other.centre - self.centre
        share = other.rows / np.maximum(rows, 1)
        return PartCounts(
            rows=rows,
            sums=self.sums + other.sums,
            top=self.top + other.top,
            scores=tuple(map(_merged, self.scores, other.scores)),
            centre=self.centre + step * share,
            squares=self.squares + other.squares + step * step * share * self.rows,
        )

    def groups(self, labels: tuple[str, ...], persons: IntArray | None) -> tuple[Group, ...]:
        """Return the figures of every part that has rows."""
        total, held = int(self.rows.sum()), self.top / self.top.sum()
        return tuple(
            Group(
                label=label,
                rows=int(self.rows[index]),
                share=(share := int(self.rows[index]) / total),
                mean=float(self.sums[index]) / int(self.rows[index]),
                median=own.median,
                largest=own.largest,
                top_share=float(held[index]),
                lift=float(held[index]) / share,
                persons=None if persons is None else int(persons[index]),
            )
            for index, (label, own) in enumerate(zip(labels, self.scores, strict=True))
            if own is not None
        )

    def grouping(
        self, partition: Partition, name: str, persons: IntArray | None = None
    ) -> Grouping:
        """Return the groups of a column."""
        groups = self.groups(partition.labels, persons)
        return Grouping(
            name=name,
            groups=groups if partition.ordered else _most_exposed_first(groups),
            notices=partition.notices,
        )

    def explanation(self, tree: Tree, persons: IntArray | None = None) -> Explanation:
        """Return the leaves of a tree."""
        return Explanation(
            groups=_most_exposed_first(self.groups(tree.labels, persons)),
            explained=self._explained,
            notices=tree.notices,
        )

    @property
    def _explained(self) -> float:
        """1 − (variation within leaves)/(variation of all)."""
        mean = float(self.rows @ self.centre) / float(self.rows.sum())
        within = float(self.squares.sum())
        between = float(self.rows @ (self.centre - mean) ** 2)
        if not within + between > 0:
            return 0.0
        return min(max(between / (within + between), 0.0), 1.0)


def _sums(codes: IntArray, weights: FloatArray, parts: int) -> FloatArray:
    """Return the sum of the weights in each part."""
    sums: NDArray[Any] = np.bincount(codes, weights=weights, minlength=parts)
    return sums.astype(np.float64)


def _merged(
    first: OrderStatistics | None, second: OrderStatistics | None
) -> OrderStatistics | None:
    if first is not None and second is not None:
        first.merge(second)
    return second if first is None else first


def _persons(codes: IntArray, parts: int, owner: IntArray) -> IntArray:
    """Return how many persons have rows in each part; one may have rows in several."""
    persons = int(owner.max()) + 1
    pairs = np.unique(codes * persons + owner)
    return np.bincount(pairs // persons, minlength=parts)


def _most_exposed_first(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: (-group.mean, -group.lift, group.label)))


def tree_target(scores: FloatArray, statistics: OrderStatistics) -> FloatArray:
    """Return log(1 + score/u), u the 90 % quantile, which emphasises the exposed rows.

    With the median for u, or with ranks, the tree divides the many other rows: on Adult (six
    columns) its leaves then contain half of the most exposed 1 %, with this target 86 %. If a score
    is infinite, the rank of each row as a share of all.

    Parameters
    ----------
    statistics : OrderStatistics
        The order statistics of the scores of all rows.
    """
    if not statistics.largest < math.inf:
        least, most = statistics.ranks(scores)
        return (statistics.count + 1 - 0.5 * (least + most)) / statistics.count
    with np.errstate(over="ignore"):
        return np.log1p(np.minimum(scores / _unit(statistics), 1e300))


def _unit(statistics: OrderStatistics) -> float:
    """Return the 90 % quantile of the positive scores, between two of them."""
    positive = int(statistics.ranks(np.zeros(1))[0][0]) - 1
    if not positive:
        return 1.0
    below = math.floor(0.9 * (positive - 1))
    ranks = statistics.count - positive + 1 + np.array([below, min(below + 1, positive - 1)])
    return float(np.quantile(statistics.at(ranks), 0.9 * (positive - 1) - below))
