"""A shallow regression tree whose leaves are read as plain conditions on columns.

Every column is given to the tree as small integer codes, and each cut between two codes is a number
of few digits that is both shown and applied. At each node the tree takes the cut that lowers the
sum of squared deviations from the mean most, of equal cuts the first. scikit-learn grows the same
trees, but its import takes longer than the tree, which needs only sums over codes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from expost._numerics import row_blocks
from expost.groups.columns import (
    MISSING,
    OTHER,
    Bins,
    Levels,
    Numbers,
    Partition,
    number_text,
)
from expost.types import FloatArray, IntArray

__all__ = ["Tree", "grow", "sample_rows"]

_Codes: TypeAlias = NDArray[np.int16]

_IS_MISSING = " is missing"
# The tree is grown on at most this many rows and cuts per column; it then divides all rows.
_MOST_ROWS = 100_000
_MOST_CUTS = 512
# A split that explains less of the variation than this is not made.
_WORTHWHILE = 0.001
# The names of other levels, and of missing cells, in conditions.
_BARE = ("another one", "missing")


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """The leaves of a tree as a rule that divides any rows with the same columns.

    Parameters
    ----------
    labels : tuple[str, ...]
        The labels of the leaves, as plain conditions.
    notices : tuple[str, ...]
        What to state about how it was grown.
    """

    labels: tuple[str, ...]
    notices: tuple[str, ...]
    _features: tuple["_Feature", ...] = ()
    _root: "_Node" = 0

    def parts(self, columns: Sequence[Numbers | Levels], rows: int) -> IntArray:
        """Return the leaf of each of ``rows`` rows, by their ``columns``."""
        leaves = np.zeros(rows, dtype=np.int64)
        if isinstance(self._root, int):
            return leaves
        used = sorted(set(_questions(self._root)))
        features = [self._features[index] for index in used]
        for block in row_blocks(rows, len(features)):
            codes = _encoded(features, [column.take(block) for column in columns])
            by_feature = {index: codes[:, column_index] for column_index, index in enumerate(used)}
            leaves[block] = _leaves(self._root, by_feature, len(codes))
        return leaves


def grow(
    target: FloatArray,
    columns: Sequence[Numbers | Levels],
    *,
    depth: int,
    least: int,
    weights: FloatArray | None = None,
    total: float | None = None,
    whole: Sequence[Numbers | Levels] | None = None,
) -> Tree:
    """Grow a tree that predicts ``target`` (m,) from ``columns`` of the same rows.

    Parameters
    ----------
    least : int
        The smallest leaf of all rows, or the least sum of ``weights`` (m,) in a leaf; on a sample
        it is as large a share of that.
    total : float, optional
        The number of all rows, or the sum of their weights, where these are a sample
        (:func:`sample_rows`); None: these are all rows.
    whole : Sequence[Numbers | Levels], optional
        The columns of all rows, where these are a sample of rows in memory.
    """
    sampled = total is not None
    size = float(len(target) if weights is None else weights.sum())
    limit = _smallest_leaf(least, size, total or size, weighted=weights is not None)
    complete = whole is not None or not sampled
    features = tuple(
        feature
        for index, (column, cells) in enumerate(zip(columns, whole or columns, strict=True))
        for feature in _features(index, column, cells, complete=complete)
    )
    notices: tuple[str, ...] = ()
    if sampled:
        rows = f"{len(target):,} rows drawn at random"
        notices = (f"The tree was grown on {rows}; its figures are of all.",)
    if not features or limit is None or not np.ptp(target) > 0:
        return Tree(labels=("all rows",), notices=notices)
    growth = _Growth(least=limit, worthwhile=_WORTHWHILE * _variation(target, weights))
    root = growth.node(_encoded(features, columns), target, weights, depth=depth, path={})
    labels = tuple(_conjunction(path, features) for path in growth.paths)
    return Tree(labels=labels, notices=notices, _features=features, _root=root)


def _smallest_leaf(least: int, size: float, total: float, *, weighted: bool) -> float | None:
    """Return the least number of rows in a leaf, or the least sum of their weights.

    ``size`` rows, or their weights, of a ``total`` are sampled, and ``least`` is of all rows. None:
    there is no room for two leaves.
    """
    # Three thirds of a person may add up to a little less than one.
    smallest = (least - 1e-6 if weighted else least) * size / total
    smallest = smallest if weighted else max(1, math.ceil(smallest))
    return smallest if 2 * smallest <= size else None


# -- growing ---------------------------------------------------------------------------------------

# The codes (above, below] that a path leaves of each feature on it.
_Path = dict[int, tuple[int | None, int | None]]
# A question, or the index of a leaf.
_Node: TypeAlias = "_Question | int"


@dataclass(frozen=True, kw_only=True)
class _Question:
    """Whether the code of a feature is at most ``cut``: if so ``below`` is next, else ``above``."""

    feature: int
    cut: int
    below: _Node
    above: _Node


@dataclass(kw_only=True, eq=False)
class _Growth:
    """The growth of a tree, depth first, with the path to each leaf, in the order of the leaves.

    Parameters
    ----------
    least : float
        Rows in a leaf, or the sum of their weights.
    worthwhile : float
        The least by which a question lowers the sum of squared deviations.
    """

    least: float
    worthwhile: float
    paths: list[_Path] = field(default_factory=list)

    def node(
        self,
        codes: _Codes,
        target: FloatArray,
        weights: FloatArray | None,
        *,
        depth: int,
        path: _Path,
    ) -> _Node:
        """Return the tree of some rows, that has at most ``depth`` questions on a path."""
        best = self._best_cut(codes, target, weights) if depth else None
        if best is None:
            self.paths.append(path)
            return len(self.paths) - 1
        feature, cut = best
        is_below = codes[:, feature] <= cut
        above, below = path.get(feature, (None, None))

        def side(rows: NDArray[np.bool_], limits: tuple[int | None, int | None]) -> _Node:
            some = None if weights is None else weights[rows]
            # A path only narrows, so the last cut on either side applies.
            narrower = {**path, feature: limits}
            return self.node(codes[rows], target[rows], some, depth=depth - 1, path=narrower)

        return _Question(
            feature=feature,
            cut=cut,
            below=side(is_below, (above, cut)),
            above=side(~is_below, (cut, below)),
        )

    def _best_cut(
        self, codes: _Codes, target: FloatArray, weights: FloatArray | None
    ) -> tuple[int, int] | None:
        """Return the feature and the code of the best question; None: none is worthwhile."""
        deviations = target - np.average(target, weights=weights)
        if weights is not None:
            deviations = deviations * weights
        best, most = None, 0.0
        for feature in range(codes.shape[1]):
            # Codes begin at −1.
            shifted = codes[:, feature] + np.int16(1)
            size = np.bincount(shifted, weights).astype(float)
            present = np.flatnonzero(size)
            below = np.cumsum(size[present])
            above = below[-1] - below
            allowed = np.flatnonzero((below >= self.least) & (above >= self.least))
            if not len(allowed):
                continue
            # The deviations add up to 0: those above a cut are minus those below.
            moved = np.cumsum(np.bincount(shifted, deviations)[present])[allowed]
            gains = moved**2 * (1 / below[allowed] + 1 / above[allowed])
            index = int(np.argmax(gains))
            if gains[index] > most:
                most = float(gains[index])
                last = allowed[index]
                # Half way between two codes that rows here have.
                best = feature, int(present[last] + present[last + 1]) // 2 - 1
        return best if most >= self.worthwhile else None


def _variation(values: FloatArray, weights: FloatArray | None) -> float:
    """Return the sum of squared deviations from the mean."""
    squares = (values - np.average(values, weights=weights)) ** 2
    return float(squares.sum() if weights is None else squares @ weights)


def _questions(node: _Node) -> Iterator[int]:
    """Yield the features that a tree uses."""
    if not isinstance(node, int):
        yield node.feature
        yield from _questions(node.below)
        yield from _questions(node.above)


def _leaves(node: _Node, codes: Mapping[int, _Codes], rows: int) -> IntArray:
    """Return the leaf of each row, by the codes of the features that the tree uses."""
    if isinstance(node, int):
        return np.full(rows, node, dtype=np.int64)
    is_below = codes[node.feature] <= node.cut
    below, above = (_leaves(side, codes, rows) for side in (node.below, node.above))
    return np.where(is_below, below, above)


def sample_rows(rows: int, most: int | None = None) -> IntArray:
    """Return the rows that a tree is grown on, ascending: all, or 100,000 of them at random."""
    most = min(_MOST_ROWS, _MOST_ROWS if most is None else most)
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cuts:
    """Numbers as the count of cuts below them: code ≤ c means value ≤ cuts[c]; −1 is missing."""

    name: str
    index: int
    cuts: FloatArray
    has_missing: bool

    def encode(self, column: Any, codes: IntArray | None) -> IntArray:
        """Return the codes of the cells of ``column``."""
        values = column.values
        return np.where(np.isnan(values), -1, np.searchsorted(self.cuts, values)).astype(np.int64)

    def conditions(self, above: int | None, below: int | None) -> list[str]:
        """Return what above < code ≤ below states."""
        if above == -1 and below is None:
            return [f"{self.name} is known"]
        if above is None and below == -1:
            return [f"{self.name} is missing"]
        conditions = []
        if above is not None and above >= 0:
            conditions.append(f"{self.name} > {number_text(self.cuts[above])}")
        if below is not None:
            text = f"{self.name} <= {number_text(self.cuts[below])}"
            conditions.append(
                f"({text} or missing)" if above is None and self.has_missing else text
            )
        return conditions


@dataclass(frozen=True, kw_only=True, eq=False)
class _Indicator:
    """Whether a row is in one part of a column: code 1 states ``yes``, code 0 states ``no``.

    Of all parts with one ``owner`` a row is in one.
    """

    index: int
    owner: str
    partition: Partition
    level: int
    yes: str
    no: str

    def encode(self, column: Any, codes: IntArray | None) -> NDArray[np.bool_]:
        """Return the codes of the cells, from their parts."""
        return np.asarray(codes == self.level)

    def conditions(self, above: int | None, below: int | None) -> list[str]:
        """Return what above < code ≤ below states."""
        return [self.no if above is None else self.yes]


_Feature = _Cuts | _Indicator


def _features(
    index: int, column: Numbers | Levels, whole: Numbers | Levels, *, complete: bool
) -> list[_Feature]:
    """Return the features of a column; ``complete``: ``whole`` is of all rows."""
    if isinstance(column, Levels):
        assert isinstance(whole, Levels)
        return _level_features(index, whole)
    assert isinstance(whole, Numbers)
    if np.all((whole.values == 0) | (whole.values == 1)):
        # Most columns of encoded rows: they need not be sorted.
        if not len(column.values) or np.ptp(column.values) == 0:
            return []
        owner, yes, no = _indicated(column.name, complete=complete)
        is_one = Bins(labels=("0", "1", OTHER, MISSING), edges=np.array([0.0, 1.0]), exact=True)
        return [
            _Indicator(index=index, owner=owner, partition=is_one, level=1, yes=yes, no=no),
        ]
    missing = bool(np.isnan(whole.values).any())
    distinct, counts = np.unique(column.values[~np.isnan(column.values)], return_counts=True)
    if len(distinct) == 0 or (len(distinct) == 1 and not missing):
        return []
    cuts = _cuts(distinct, counts)
    return [_Cuts(name=column.name, index=index, cuts=cuts, has_missing=missing)]


def _indicated(name: str, *, complete: bool) -> tuple[str, str, str]:
    """Return the owner of a column of 0 and 1, and what 1 and 0 state.

    Columns of an encoding are indicators of levels and of missing cells.
    """
    column, equals, level = name.partition("=")
    if equals:
        return f"{column}=", f"{column} is {level}", f"{column} is not {level}"
    if name.endswith(_IS_MISSING):
        return name, name, f"{name.removesuffix(_IS_MISSING)} is known"
    return name, f"{name} is 1", f"{name} is {'0' if complete else 'not 1'}"


def _level_features(index: int, column: Levels) -> list[_Feature]:
    partition = column.partition()
    present = [int(p) for p in np.flatnonzero(np.bincount(partition.parts(column)))]
    other = len(partition.labels) - 2
    levels = {p: partition.labels[p] if p < other else _BARE[p - other] for p in present}
    yes = {index: f"{column.name} is {level}" for index, level in levels.items()}
    no = {index: f"{column.name} is not {level}" for index, level in levels.items()}
    if len(present) < 2:
        return []
    if len(present) == 2:
        # Of two levels, not the one is the other.
        no[present[1]] = yes[present[0]]
        del present[0]
    return [
        _Indicator(
            index=index,
            owner=column.name,
            partition=partition,
            level=level,
            yes=yes[level],
            no=no[level],
        )
        for level in present
    ]


def _cuts(distinct: FloatArray, counts: NDArray[Any]) -> FloatArray:
    """Return cuts between adjacent values, at most 512 of them, evenly spread over the rows."""
    gaps = np.arange(len(distinct) - 1)
    if len(gaps) > _MOST_CUTS:
        wanted = np.arange(1, _MOST_CUTS + 1) / (_MOST_CUTS + 1) * counts.sum()
        gaps = np.unique(np.minimum(np.searchsorted(np.cumsum(counts), wanted), gaps[-1]))
    return np.array(
        [_short_between(float(distinct[gap]), float(distinct[gap + 1])) for gap in gaps]
    )


def _short_between(low: float, high: float) -> float:
    """Return a t of few digits with low ≤ t < high; a row's own value only if an integer."""
    centre = 0.5 * low + 0.5 * high
    for digits in range(1, 18):
        short = float(f"{centre:.{digits}g}")
        if low < short < high:
            return short
        if low.is_integer() and float(f"{low:.{digits}g}") == low:
            return low
    return low


def _encoded(features: Sequence[_Feature], columns: Sequence[Numbers | Levels]) -> _Codes:
    """Return the codes (rows, features) of the cells."""
    parts: dict[int, IntArray] = {}
    for feature in features:
        if isinstance(feature, _Indicator) and feature.index not in parts:
            parts[feature.index] = feature.partition.parts(columns[feature.index])
    # Column order: columns are written here and read by the tree.
    encoded = np.empty((len(columns[0]), len(features)), dtype=np.int16, order="F")
    for index, feature in enumerate(features):
        encoded[:, index] = feature.encode(columns[feature.index], parts.get(feature.index))
    return encoded


def _conjunction(path: _Path, features: Sequence[_Feature]) -> str:
    """Return the conditions of a path, without "is not" of a column whose level is named."""
    steps = [(features[index], *limits) for index, limits in path.items()]
    named = {
        feature.owner
        for feature, above, _ in steps
        if isinstance(feature, _Indicator) and above is not None
    }
    conditions = [
        condition
        for feature, above, below in steps
        if not (isinstance(feature, _Indicator) and above is None and feature.owner in named)
        for condition in feature.conditions(above, below)
    ]
    return " and ".join(conditions)
