"""A shallow regression tree whose leaves are read as plain conditions on columns.

Every column is given to the tree as small integer codes: exact in the float32 that scikit-learn
works in, whatever the values are, and each cut between two codes is a number of few digits that is
both shown and applied.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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

# The tree looks at so many rows and at so many places to cut a column; it then sorts all rows.
_MOST_ROWS = 100_000
_MOST_CUTS = 512
# A question that explains less of the variation than this says nothing and is not asked.
_WORTHWHILE = 0.001
# How conditions name the rows of other levels, and those with missing cells.
_BARE = ("another one", "missing")


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """The leaves of a tree as a rule that divides any rows with the same columns.

    ``labels``   of the leaves, as plain conditions.
    ``notices``  what to state about how it was grown.
    """

    labels: tuple[str, ...]
    notices: tuple[str, ...]
    _features: tuple["_Feature", ...] = ()
    _model: Any = None
    _places: IntArray | None = None

    def parts(self, columns: Sequence[Numbers | Levels], rows: int) -> IntArray:
        """Return the leaf of each of ``rows`` rows, by their ``columns``."""
        codes = np.zeros(rows, dtype=np.int64)
        if self._places is not None:
            for block in row_blocks(rows, len(self._features)):
                some = [column.take(block) for column in columns]
                codes[block] = self._places[self._model.apply(self._encoded(some))]
        return codes

    def _encoded(self, columns: Sequence[Numbers | Levels]) -> NDArray[np.float32]:
        """Return the features of some rows; those that no question is about are left 0."""
        encoded = np.zeros((len(columns[0]), len(self._features)), dtype=np.float32)
        used = np.unique(self._model.tree_.feature)
        used = used[used >= 0]
        if len(used):
            encoded[:, used] = _encoded([self._features[place] for place in used], columns)
        return encoded


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

    ``least``    the smallest leaf of all rows, or the least sum of ``weights`` (m,) in a leaf; on
                 a sample it is as large a share of that.
    ``total``    the number of all rows, or the sum of their weights, where these are a sample
                 (:func:`sample_rows`); None: these are all rows.
    ``whole``    the columns of all rows, where these are a sample of rows in memory.
    """
    sampled = total is not None
    if total is None:
        total = float(len(target) if weights is None else weights.sum())
    limit = _smallest_leaf(least, total, len(target), weighted=weights is not None)
    complete = whole is not None or not sampled
    features = tuple(
        feature
        for place, (column, cells) in enumerate(zip(columns, whole or columns, strict=True))
        for feature in _features(place, column, cells, complete=complete)
    )
    notices: tuple[str, ...] = ()
    if sampled:
        rows = f"{len(target):,} rows drawn at random"
        notices = (f"The tree was grown on {rows}; its figures are of all.",)
    if not features or limit is None or not np.ptp(target) > 0:
        return Tree(labels=("all rows",), notices=notices)
    # Imported where a tree is grown: it imports a third of scikit-learn.
    from sklearn.tree import DecisionTreeRegressor

    model = DecisionTreeRegressor(
        max_depth=depth,
        min_impurity_decrease=_WORTHWHILE * _variance(target, weights),
        random_state=0,
        **limit,
    )
    model.fit(_encoded(features, columns), target, sample_weight=weights)
    paths = _paths(model.tree_)
    places = np.zeros(model.tree_.node_count, dtype=np.int64)
    places[list(paths)] = np.arange(len(paths))
    labels = tuple(_conjunction(path, features) for path in paths.values())
    return Tree(labels=labels, notices=notices, _features=features, _model=model, _places=places)


def _smallest_leaf(
    least: int, total: float, sampled: int, *, weighted: bool
) -> dict[str, Any] | None:
    """Return the option that states it; None where there is no room for two leaves."""
    if not weighted:
        smallest = max(1, math.ceil(least * sampled / total))
        return {"min_samples_leaf": smallest} if sampled >= 2 * smallest else None
    # Three thirds of a person may add up to a little less than one.
    fraction = (least - 1e-6) / total
    return {"min_weight_fraction_leaf": fraction} if fraction <= 0.5 else None


def _variance(values: FloatArray, weights: FloatArray | None) -> float:
    return float(np.average((values - np.average(values, weights=weights)) ** 2, weights=weights))


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
    place: int
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
        said = []
        if above is not None and above >= 0:
            said.append(f"{self.name} > {number_text(self.cuts[above])}")
        if below is not None:
            text = f"{self.name} <= {number_text(self.cuts[below])}"
            said.append(f"({text} or missing)" if above is None and self.has_missing else text)
        return said


@dataclass(frozen=True, kw_only=True, eq=False)
class _Indicator:
    """Whether a row is in one part of a column: code 1 states ``yes``, code 0 states ``no``."""

    place: int
    partition: Partition
    level: int
    yes: str
    no: str

    def encode(self, column: Any, codes: IntArray | None) -> IntArray:
        """Return the codes of the cells, from their parts."""
        return np.where(codes == self.level, 1, 0)

    def conditions(self, above: int | None, below: int | None) -> list[str]:
        """Return what above < code ≤ below states."""
        return [self.no if above is None else self.yes]


_Feature = _Cuts | _Indicator


def _features(
    place: int, column: Numbers | Levels, whole: Numbers | Levels, *, complete: bool
) -> list[_Feature]:
    """Return what the tree may ask of a column; ``complete``: ``whole`` is of all rows."""
    if isinstance(column, Levels):
        assert isinstance(whole, Levels)
        return _level_features(place, whole)
    assert isinstance(whole, Numbers)
    missing = bool(np.isnan(whole.values).any())
    distinct, counts = np.unique(column.values[~np.isnan(column.values)], return_counts=True)
    if len(distinct) == 0 or (len(distinct) == 1 and not missing):
        return []
    if len(distinct) == 2 and np.all((whole.values == 0) | (whole.values == 1)):
        yes, no = f"{column.name} is 1", f"{column.name} is {'0' if complete else 'not 1'}"
        is_one = Bins(labels=("0", "1", OTHER, MISSING), edges=np.array([0.0, 1.0]), exact=True)
        return [_Indicator(place=place, partition=is_one, level=1, yes=yes, no=no)]
    cuts = _cuts(distinct, counts)
    return [_Cuts(name=column.name, place=place, cuts=cuts, has_missing=missing)]


def _level_features(place: int, column: Levels) -> list[_Feature]:
    partition = column.partition()
    present = [int(p) for p in np.flatnonzero(np.bincount(partition.parts(column)))]
    other = len(partition.labels) - 2
    levels = {p: partition.labels[p] if p < other else _BARE[p - other] for p in present}
    yes = {place: f"{column.name} is {level}" for place, level in levels.items()}
    no = {place: f"{column.name} is not {level}" for place, level in levels.items()}
    if len(present) < 2:
        return []
    if len(present) == 2:
        # Of two levels, not the one is the other.
        no[present[1]] = yes[present[0]]
        del present[0]
    return [
        _Indicator(place=place, partition=partition, level=level, yes=yes[level], no=no[level])
        for level in present
    ]


def _cuts(distinct: FloatArray, counts: NDArray[Any]) -> FloatArray:
    """Places between neighbouring values, at most 512 of them, evenly spread over the rows."""
    gaps = np.arange(len(distinct) - 1)
    if len(gaps) > _MOST_CUTS:
        wanted = np.arange(1, _MOST_CUTS + 1) / (_MOST_CUTS + 1) * counts.sum()
        gaps = np.unique(np.minimum(np.searchsorted(np.cumsum(counts), wanted), gaps[-1]))
    return np.array(
        [_short_between(float(distinct[gap]), float(distinct[gap + 1])) for gap in gaps]
    )


def _short_between(low: float, high: float) -> float:
    """A number t of few digits with low ≤ t < high; a row's own value only if it is whole."""
    middle = 0.5 * low + 0.5 * high
    for digits in range(1, 18):
        short = float(f"{middle:.{digits}g}")
        if low < short < high:
            return short
        if low.is_integer() and float(f"{low:.{digits}g}") == low:
            return low
    return low


def _encoded(
    features: Sequence[_Feature], columns: Sequence[Numbers | Levels]
) -> NDArray[np.float32]:
    parts: dict[int, IntArray] = {}
    for feature in features:
        if isinstance(feature, _Indicator) and feature.place not in parts:
            parts[feature.place] = feature.partition.parts(columns[feature.place])
    return np.column_stack(
        [feature.encode(columns[feature.place], parts.get(feature.place)) for feature in features]
    ).astype(np.float32)


_Path = dict[int, tuple[int | None, int | None]]


def _paths(tree: Any) -> dict[int, _Path]:
    """For every leaf, the codes (above, below] that its path leaves of each feature it asks for."""
    found: dict[int, _Path] = {}
    waiting: list[tuple[int, _Path]] = [(0, {})]
    while waiting:
        node, path = waiting.pop()
        left, right = int(tree.children_left[node]), int(tree.children_right[node])
        if left < 0:
            found[node] = path
            continue
        feature, cut = int(tree.feature[node]), math.floor(tree.threshold[node])
        above, below = path.get(feature, (None, None))
        # A path only narrows, so the last cut on either side is the one that counts.
        waiting.append((right, {**path, feature: (cut, below)}))
        waiting.append((left, {**path, feature: (above, cut)}))
    return found


def _conjunction(path: _Path, features: Sequence[_Feature]) -> str:
    """The conditions of a path; one level that it names makes "is not" another idle."""
    steps = [(features[place], *limits) for place, limits in path.items()]
    named = {
        feature.place
        for feature, above, _ in steps
        if isinstance(feature, _Indicator) and above is not None
    }
    said = [
        condition
        for feature, above, below in steps
        if not (isinstance(feature, _Indicator) and above is None and feature.place in named)
        for condition in feature.conditions(above, below)
    ]
    return " and ".join(said)
