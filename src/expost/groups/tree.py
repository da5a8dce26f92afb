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
from sklearn.tree import DecisionTreeRegressor

from expost._numerics import row_blocks
from expost.groups.columns import MISSING, OTHER, Levels, Numbers, Parts, number_text
from expost.types import FloatArray, IntArray

__all__ = ["grow"]

# The tree looks at so many rows and at so many places to cut a column; it then sorts all rows.
_MOST_ROWS = 100_000
_MOST_CUTS = 512
# A question that explains less of the variation than this says nothing and is not asked.
_WORTHWHILE = 0.001


def grow(
    target: FloatArray,
    columns: Sequence[Numbers | Levels],
    *,
    depth: int,
    least: int,
    weights: FloatArray | None = None,
) -> tuple[Parts, tuple[str, ...]]:
    """The leaves of a tree that predicts ``target`` (n,), and what to say about how it was grown.

    ``least`` is the smallest leaf of n rows, or the least sum of ``weights`` (n,) in a leaf; on a
    sample it is as large a share of that.
    """
    rows = len(target)
    sample, notices = _sample(rows)
    counted = None if weights is None else weights[sample]
    limit = _smallest_leaf(least, rows, len(sample), weights)
    features = [feature for column in columns for feature in _features(column, sample)]
    if not features or limit is None or not np.ptp(target[sample]) > 0:
        whole = Parts(codes=np.zeros(rows, dtype=np.int64), labels=("all rows",), ordered=False)
        return whole, notices
    tree = DecisionTreeRegressor(
        max_depth=depth,
        min_impurity_decrease=_WORTHWHILE * _variance(target[sample], counted),
        random_state=0,
        **limit,
    )
    tree.fit(_encoded(features, sample), target[sample], sample_weight=counted)
    nodes = np.empty(rows, dtype=np.int64)
    for block in row_blocks(rows, len(features)):
        nodes[block] = tree.apply(_encoded(features, block))
    paths = _paths(tree.tree_)
    place = np.zeros(tree.tree_.node_count, dtype=np.int64)
    place[list(paths)] = np.arange(len(paths))
    labels = tuple(_conjunction(path, features) for path in paths.values())
    return Parts(codes=place[nodes], labels=labels, ordered=False), notices


def _smallest_leaf(
    least: int, rows: int, sampled: int, weights: FloatArray | None
) -> dict[str, Any] | None:
    """What the tree is told about it; None where there is no room for two of them."""
    if weights is None:
        smallest = max(1, math.ceil(least * sampled / rows))
        return {"min_samples_leaf": smallest} if sampled >= 2 * smallest else None
    # Three thirds of a person may add up to a little less than one.
    fraction = (least - 1e-6) / float(weights.sum())
    return {"min_weight_fraction_leaf": fraction} if fraction <= 0.5 else None


def _variance(values: FloatArray, weights: FloatArray | None) -> float:
    if weights is None:
        return float(np.var(values))
    return float(np.average((values - np.average(values, weights=weights)) ** 2, weights=weights))


def _sample(rows: int) -> tuple[IntArray, tuple[str, ...]]:
    if rows <= _MOST_ROWS:
        return np.arange(rows), ()
    chosen = np.sort(np.random.default_rng(0).choice(rows, _MOST_ROWS, replace=False))
    notice = f"The tree was grown on {_MOST_ROWS:,} rows drawn at random; its figures are of all."
    return chosen, (notice,)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cuts:
    """Numbers as the count of cuts below them: code ≤ c means value ≤ cuts[c]; −1 is missing."""

    name: str
    values: FloatArray
    cuts: FloatArray
    has_missing: bool

    def encode(self, rows: IntArray | slice) -> IntArray:
        values = self.values[rows]
        return np.where(np.isnan(values), -1, np.searchsorted(self.cuts, values)).astype(np.int64)

    def conditions(self, above: int | None, below: int | None) -> list[str]:
        """What above < code ≤ below says."""
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
    """Whether a row of a column is of one level: code 1 says ``yes``, code 0 says ``no``."""

    codes: IntArray
    level: int
    yes: str
    no: str

    def encode(self, rows: IntArray | slice) -> IntArray:
        return np.where(self.codes[rows] == self.level, 1, 0)

    def conditions(self, above: int | None, below: int | None) -> list[str]:
        """What above < code ≤ below says."""
        return [self.no if above is None else self.yes]


_Feature = _Cuts | _Indicator


def _features(column: Numbers | Levels, sample: IntArray) -> list[_Feature]:
    """What the tree may ask of a column."""
    if isinstance(column, Levels):
        return _level_features(column)
    values, missing = column.values, bool(np.isnan(column.values).any())
    drawn = values[sample]
    distinct, counts = np.unique(drawn[~np.isnan(drawn)], return_counts=True)
    if len(distinct) == 0 or (len(distinct) == 1 and not missing):
        return []
    if len(distinct) == 2 and np.all((values == 0) | (values == 1)):
        codes, name = values.astype(np.int64), column.name
        return [_Indicator(codes=codes, level=1, yes=f"{name} is 1", no=f"{name} is 0")]
    cuts = _cuts(distinct, counts)
    return [_Cuts(name=column.name, values=values, cuts=cuts, has_missing=missing)]


def _level_features(column: Levels) -> list[_Feature]:
    parts, _ = column.levels.largest()
    present = [int(p) for p in np.flatnonzero(np.bincount(parts.codes))]
    bare = {MISSING: "missing", OTHER: "another one"}
    levels = {place: bare.get(parts.labels[place], parts.labels[place]) for place in present}
    yes = {place: f"{column.name} is {level}" for place, level in levels.items()}
    no = {place: f"{column.name} is not {level}" for place, level in levels.items()}
    if len(present) < 2:
        return []
    if len(present) == 2:
        # Of two levels, not the one is the other.
        no[present[1]] = yes[present[0]]
        del present[0]
    return [
        _Indicator(codes=parts.codes, level=place, yes=yes[place], no=no[place])
        for place in present
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


def _encoded(features: Sequence[_Feature], rows: IntArray | slice) -> NDArray[np.float32]:
    return np.column_stack([feature.encode(rows) for feature in features]).astype(np.float32)


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
        id(feature.codes)
        for feature, above, _ in steps
        if isinstance(feature, _Indicator) and above is not None
    }
    said = [
        condition
        for feature, above, below in steps
        if not (isinstance(feature, _Indicator) and above is None and id(feature.codes) in named)
        for condition in feature.conditions(above, below)
    ]
    return " and ".join(said)
