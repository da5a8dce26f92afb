"""Which groups hold the exposed rows: by the parts of one column, or by a shallow tree over many.

Conventions
-----------
scores      (n,) exposures, or distances where there is no noise; ≥ 0, infinite ones allowed.
top         the most exposed 1 % of the rows, ⌈n/100⌉ of them. Rows that tie at its edge share the
            places that are left, so that no figure depends on the order of the rows.
top_share   how much of the top lies in a group;  lift = top_share / share, 1 if the group is
            exposed like everybody.

What a label says is the rule that was applied: edges and thresholds are first rounded to what is
shown, then used.
"""

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import rankdata
from sklearn.tree import DecisionTreeRegressor

from expost import _validate
from expost._numerics import row_blocks
from expost.errors import InvalidInput
from expost.types import Audience, FloatArray, IntArray

__all__ = ["Explanation", "Group", "Grouping", "explain_exposure", "group_exposure", "printable"]

_TOP = 0.01
# Past these a table is no longer read: the rest of the levels, or the integers, go together.
_MOST_LEVELS = 50
_MOST_INTEGERS = 20
# A group of fewer rows shows what its rows have to hide.
_FEW_ROWS = 5
_LONGEST_LABEL = 80
# The tree looks at so many rows and at so many places to cut a column; its figures are of all rows.
_TREE_ROWS = 100_000
_MOST_CUTS = 512
_DEEPEST = 3
_MISSING, _OTHER = "(missing)", "(other)"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Some of the rows, and how exposed they are; see the conventions of this module."""

    label: str
    rows: int
    share: float
    mean: float
    median: float
    largest: float
    top_share: float
    lift: float

    def to_json(self) -> dict[str, Any]:
        """Every figure by name; JSON has no infinity, so it is a word."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: "infinity" if value == math.inf else value for name, value in values.items()}


@dataclass(frozen=True, kw_only=True)
class _Table:
    """What a grouping and an explanation share: groups that cover all rows, and a way to show them.

    ``notices``  what the reader must know about how the groups were made.
    """

    groups: tuple[Group, ...]
    notices: tuple[str, ...] = ()

    @property
    def audience(self) -> Audience:
        """Aggregates need a review; a group of a few rows is as good as those rows."""
        small = any(group.rows < _FEW_ROWS for group in self.groups)
        return Audience.FAIL if small else Audience.REVIEW

    @property
    def rows(self) -> int:
        """How many rows there are in all groups."""
        return sum(group.rows for group in self.groups)

    @property
    def title(self) -> str:
        """What was grouped, in one line."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def __str__(self) -> str:
        rows = [_HEADINGS, *(_cells(group) for group in self.groups)]
        widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADINGS))]
        table = [
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        mark = f"{self.audience.value}: {self.audience.meaning}"
        return "\n".join([self.title, *table, *self.notices, mark])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(heading)}</th>" for heading in _HEADINGS)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(group)) + "</tr>"
            for group in self.groups
        )
        notes = [*self.notices, f"{self.audience.value}: {self.audience.meaning}"]
        return (
            f"<section><strong>{html.escape(self.title)}</strong>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            + "".join(f"<p>{html.escape(note)}</p>" for note in notes)
            + "</section>"
        )

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

    Numbers are in their order; other levels are too, the most exposed first.
    """

    name: str

    @property
    def title(self) -> str:
        """What was grouped, in one line."""
        return f"{self.rows:,} rows by {self.name}"

    def to_json(self) -> dict[str, Any]:
        """All of it, ready for ``json.dumps``."""
        return {"name": self.name, **super().to_json()}


@dataclass(frozen=True, kw_only=True)
class Explanation(_Table):
    """The leaves of a shallow decision tree, the most exposed first, as plain conditions.

    ``explained``  the share of the variation of log(1 + score/median) that lies between leaves:
                   near 0, these columns do not say who is exposed.
    """

    explained: float

    @property
    def title(self) -> str:
        """What was grouped, in one line."""
        return f"{self.rows:,} rows by a decision tree that explains {self.explained:.0%} of it"

    def to_json(self) -> dict[str, Any]:
        """All of it, ready for ``json.dumps``."""
        return {"explained": self.explained, **super().to_json()}


_HEADINGS = ("group", "rows", "share", "mean", "median", "largest", "of the top 1 %", "lift")


def _cells(group: Group) -> tuple[str, ...]:
    scores = (group.mean, group.median, group.largest)
    return (
        group.label,
        f"{group.rows:,}",
        f"{group.share:.1%}",
        *(f"{score:.3g}" for score in scores),
        f"{group.top_share:.1%}",
        f"{group.lift:.2f}",
    )


def printable(text: object, limit: int = _LONGEST_LABEL) -> str:
    """``text`` on one line, with what cannot be seen spelled out and what is too long cut off."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in str(text).encode("utf-8", "backslashreplace").decode()
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def group_exposure(scores: Any, column: Any, *, name: str = "column", bins: int = 4) -> Grouping:
    """The scores by the parts of ``column`` (n,).

    Text, booleans, categories and integers of few values are taken by level (of more than 50 the
    largest), other numbers by ``bins`` quantile bins, of which ties may leave fewer; missing cells
    are a group of their own. The column is an array, list, Series or Arrow array.
    """
    checked = _checked(scores)
    bins = _validate.whole("bins", bins, least=1)
    read = _read(column, printable(name), len(checked))
    parts = read.levels if isinstance(read, _Levels) else _parts(read, bins)
    parts, notices = _largest(parts)
    groups = _groups(checked, parts)
    if not parts.ordered:
        groups = _most_exposed_first(groups)
    return Grouping(name=read.name, groups=groups, notices=notices)


def explain_exposure(
    scores: Any, X: Any, *, feature_names: Sequence[str] | None = None, depth: int = 3
) -> Explanation:
    """Groups of exposed rows as conditions on the columns of ``X``, a matrix or a frame.

    A regression tree of at most ``depth`` ≤ 3 questions, whose leaves hold at least five rows and
    1 % of all, grown on log(1 + score/median) (on ranks, where a score is infinite): what counts
    is how many times more exposed rows are. The same input gives the same tree.
    """
    checked = _checked(scores)
    if _validate.whole("depth", depth, least=1) > _DEEPEST:
        raise InvalidInput(
            f"depth={depth!r}: must be at most {_DEEPEST}; groups of more conditions are not read."
        )
    rows = len(checked)
    columns = _columns(X, feature_names, rows)
    sample, notices = _sample(rows)
    features = [feature for column in columns for feature in _features(column, sample)]
    target = _target(checked)
    least = max(_FEW_ROWS, math.ceil(_TOP * len(sample)))
    if not features or len(sample) < 2 * least or np.ptp(target[sample]) == 0:
        leaf, labels = np.zeros(rows, dtype=np.int64), ("all rows",)
    else:
        tree = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=least, random_state=0)
        tree.fit(_encoded(features, sample), target[sample])
        leaf, labels = _leaves(tree, features, rows)
    parts = _Parts(codes=leaf, labels=labels, ordered=False)
    return Explanation(
        groups=_most_exposed_first(_groups(checked, parts)),
        explained=_explained(target, leaf),
        notices=notices,
    )


# ── the figures of groups ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parts:
    """A partition: the place of each row among ``labels``."""

    codes: IntArray
    labels: tuple[str, ...]
    ordered: bool


def _checked(scores: Any) -> FloatArray:
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or len(array) < 1:
        raise InvalidInput(f"scores has shape {array.shape}: must be (n,), one for each row.")
    if not np.all(array >= 0):
        raise InvalidInput("scores: must be exposures or distances, numbers ≥ 0 and not NaN.")
    return array


def _top_weights(scores: FloatArray) -> FloatArray:
    """(n,) how much of each row is among the most exposed 1 %: 1, 0, or its part of a tie."""
    places = math.ceil(_TOP * len(scores))
    edge = np.partition(scores, len(scores) - places)[len(scores) - places]
    above, tied = scores > edge, scores == edge
    left = places - np.count_nonzero(above)
    return np.where(above, 1.0, np.where(tied, left / np.count_nonzero(tied), 0.0))


def _groups(scores: FloatArray, parts: _Parts) -> tuple[Group, ...]:
    """The figures of every part that has rows."""
    order = np.argsort(parts.codes, kind="stable")
    counts = np.bincount(parts.codes, minlength=len(parts.labels))
    weights = _top_weights(scores)
    held = np.bincount(parts.codes, weights=weights, minlength=len(parts.labels)) / weights.sum()
    ends = np.cumsum(counts)
    found = []
    for place, label in enumerate(parts.labels):
        count, end = int(counts[place]), int(ends[place])
        if count == 0:
            continue
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
            )
        )
    return tuple(found)


def _most_exposed_first(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: (-group.mean, -group.lift, group.label)))


# ── reading a column ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True, eq=False)
class _Numbers:
    """A column of numbers; NaN where a cell is missing."""

    name: str
    values: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class _Levels:
    """A column of anything else, by level; missing cells are the last one."""

    name: str
    levels: _Parts


def _read(column: Any, name: str, rows: int) -> _Numbers | _Levels:
    """Any column as numbers or levels."""
    entries = len(column) if hasattr(column, "__len__") else None
    if isinstance(column, str | bytes) or getattr(column, "ndim", 1) != 1 or entries != rows:
        found = "no" if entries is None or isinstance(column, str | bytes) else f"{entries}"
        raise InvalidInput(
            f"{name} has {found} entries: must be a column of one value for each of {rows} rows."
        )
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiu":
        values = np.ma.filled(np.ma.asarray(column, dtype=np.float64), np.nan)
        return _Numbers(name=name, values=values)
    array = _arrow(column, name)
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        cast = array.cast(pa.float64(), safe=False)
        return _Numbers(name=name, values=cast.to_numpy(zero_copy_only=False))
    return _Levels(name=name, levels=_levels(array, name))


def _arrow(column: Any, name: str) -> Any:
    """The column as one Arrow array of a plain type; a mixture of types becomes text."""
    if hasattr(column, "to_arrow"):
        column = column.to_arrow()
    if isinstance(column, np.ma.MaskedArray):
        column = column.astype(object).filled(None)
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        try:
            column = pa.array(column, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            # NaN alone differs from itself; pandas' NA does not say whether it does.
            cells = [None if cell is None or (cell != cell) is True else cell for cell in column]
            column = pa.array([None if cell is None else str(cell) for cell in cells], pa.string())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_nested(column.type):
        raise InvalidInput(
            f"{name} holds {column.type} values: must hold numbers, text or booleans."
        )
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return column


def _levels(array: Any, name: str) -> _Parts:
    """The levels of a column in the order of their text, missing cells last."""
    encoded = array.dictionary_encode()
    labels = [_level_text(value) for value in encoded.dictionary.to_pylist()]
    place = np.empty(len(labels) + 1, dtype=np.int64)
    order = sorted(range(len(labels)), key=lambda level: labels[level])
    place[order] = np.arange(len(labels))
    place[-1] = len(labels)
    codes = encoded.indices.fill_null(len(labels)).to_numpy(zero_copy_only=False)
    return _Parts(
        codes=place[codes],
        labels=(*(labels[level] for level in order), _MISSING),
        ordered=False,
    )


def _level_text(value: object) -> str:
    return "(empty)" if value == "" else printable(value)


# ── parts of a column of numbers, and of too many levels ─────────────────────────────────────────


def _parts(column: _Numbers, bins: int) -> _Parts:
    """Integers of few values by value; other numbers by quantile bins."""
    known = ~np.isnan(column.values)
    values = np.sort(column.values[known])
    distinct = np.unique(values)
    whole = bool(np.all(np.isfinite(distinct) & (distinct == np.floor(distinct))))
    if whole and len(distinct) <= _MOST_INTEGERS:
        codes = np.searchsorted(distinct, column.values)
        labels = [f"{value:.0f}" for value in distinct + 0.0]
    else:
        edges = _edges(values, bins)
        codes = np.searchsorted(edges, column.values)
        labels = _bin_labels(edges)
    codes = np.where(known, codes, len(labels)).astype(np.int64)
    return _Parts(codes=codes, labels=(*labels, _MISSING), ordered=True)


def _edges(values: FloatArray, bins: int) -> FloatArray:
    """The inner edges of quantile bins (low, high] of sorted ``values``, none of them empty."""
    places = np.arange(1, bins) / bins
    quantiles = np.quantile(values, places, method="inverted_cdf")
    # As many digits as tell the edges apart that are apart: four at least.
    for digits in range(4, 18):
        rounded = np.array([float(f"{edge:.{digits}g}") for edge in quantiles])
        if len(np.unique(rounded)) == len(np.unique(quantiles)):
            break
    edges = np.unique(rounded)
    below = np.searchsorted(values, edges, side="right")
    _, first = np.unique(below, return_index=True)
    return edges[first][(below[first] > 0) & (below[first] < len(values))]


def _bin_labels(edges: FloatArray) -> list[str]:
    if len(edges) == 0:
        return ["all values"]
    text = [_number_text(edge) for edge in edges]
    between = [f"> {low} and <= {high}" for low, high in zip(text, text[1:], strict=False)]
    return [f"<= {text[0]}", *between, f"> {text[-1]}"]


def _number_text(value: float) -> str:
    """The number itself, without an exponent where it is of a usual size."""
    value = float(value) + 0.0
    text = f"{value:.15g}"
    return text if float(text) == value else repr(value)


def _largest(parts: _Parts) -> tuple[_Parts, tuple[str, ...]]:
    """At most 50 levels, the largest, with the others together; missing cells stay apart."""
    levels = len(parts.labels) - 1
    if levels <= _MOST_LEVELS:
        return parts, ()
    counts = np.bincount(parts.codes, minlength=levels + 1)[:-1]
    kept = np.sort(np.lexsort((np.arange(levels), -counts))[:_MOST_LEVELS])
    place = np.full(levels + 1, _MOST_LEVELS)
    place[kept] = np.arange(_MOST_LEVELS)
    place[-1] = _MOST_LEVELS + 1
    labels = (*(parts.labels[level] for level in kept), _OTHER, _MISSING)
    notice = f"{levels:,} levels: the {_MOST_LEVELS} largest are shown, the others as {_OTHER}."
    return _Parts(codes=place[parts.codes], labels=labels, ordered=parts.ordered), (notice,)


# ── the tree ─────────────────────────────────────────────────────────────────────────────────────


def _columns(X: Any, names: Sequence[str] | None, rows: int) -> list[_Numbers | _Levels]:
    """The columns of a frame, an Arrow table or a matrix, with their names."""
    if hasattr(X, "to_arrow"):
        X = X.to_arrow()
    cells: list[Any]
    if isinstance(X, pa.Table | pa.RecordBatch):
        own, cells = list(X.column_names), list(X.columns)
    elif hasattr(X, "iloc") and hasattr(X, "columns"):
        own = list(X.columns)
        cells = [X.iloc[:, place] for place in range(len(own))]
    else:
        kind = X.dtype.kind if isinstance(X, np.ndarray) and X.ndim == 2 else ""
        matrix = X if kind in "OUSb" and kind else _validate.matrix(X, min_rows=1)
        own = [f"column {place}" for place in range(matrix.shape[1])]
        cells = list(matrix.T)
    if names is None:
        names = own
    if isinstance(names, str) or len(names) != len(cells):
        raise InvalidInput(
            f"feature_names has {len(names)} entries: must have one for each of {len(cells)}"
            " columns of X."
        )
    return [_read(cell, printable(name), rows) for cell, name in zip(cells, names, strict=True)]


def _sample(rows: int) -> tuple[IntArray, tuple[str, ...]]:
    """The rows that the tree is grown on."""
    if rows <= _TREE_ROWS:
        return np.arange(rows), ()
    chosen = np.sort(np.random.default_rng(0).choice(rows, _TREE_ROWS, replace=False))
    notice = f"The tree was grown on {_TREE_ROWS:,} rows drawn at random; its figures are of all."
    return chosen, (notice,)


def _target(scores: FloatArray) -> FloatArray:
    """log(1 + score/median): the exposed rows stand out, the many small ones do not."""
    positive = scores[scores > 0]
    if not np.all(np.isfinite(scores)):
        ranks: FloatArray = rankdata(scores) / len(scores)
        return ranks
    unit = float(np.median(positive)) if len(positive) else 1.0
    with np.errstate(over="ignore"):
        return np.log1p(np.minimum(scores / unit, 1e300))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cuts:
    """Numbers as the count of cuts below them, so that code ≤ c means value ≤ cuts[c]; −1: missing.

    The tree asks for float32: codes are exact in it where the values need not be.
    """

    name: str
    values: FloatArray
    cuts: FloatArray
    has_missing: bool

    def encode(self, rows: IntArray | slice) -> IntArray:
        values = self.values[rows]
        return np.where(np.isnan(values), -1, np.searchsorted(self.cuts, values))

    def conditions(self, above: int | None, below: int | None) -> list[str]:
        """What above < code ≤ below says."""
        said = []
        if above == -1 and below is None:
            return [f"{self.name} is known"]
        if above is None and below == -1:
            return [f"{self.name} is missing"]
        if above is not None and above >= 0:
            said.append(f"{self.name} > {_number_text(self.cuts[above])}")
        if below is not None:
            text = f"{self.name} <= {_number_text(self.cuts[below])}"
            said.append(f"({text} or missing)" if above is None and self.has_missing else text)
        return said


@dataclass(frozen=True, kw_only=True, eq=False)
class _Indicator:
    """Whether a row is of one level: code 1 says ``yes``, code 0 says ``no``."""

    codes: IntArray
    level: int
    yes: str
    no: str

    def encode(self, rows: IntArray | slice) -> IntArray:
        return (self.codes[rows] == self.level).astype(np.int64)

    def conditions(self, above: int | None, below: int | None) -> list[str]:
        """What above < code ≤ below says."""
        return [self.no if above is None else self.yes]


_Feature = _Cuts | _Indicator


def _features(column: _Numbers | _Levels, sample: IntArray) -> list[_Feature]:
    """What the tree may ask of a column."""
    if isinstance(column, _Levels):
        return _level_features(column)
    drawn = column.values[sample]
    distinct, counts = np.unique(drawn[~np.isnan(drawn)], return_counts=True)
    missing = np.isnan(column.values)
    if np.array_equal(distinct, [0, 1]) and np.all(missing | np.isin(column.values, distinct)):
        if not missing.any():
            codes = column.values.astype(np.int64)
            yes, no = f"{column.name} is 1", f"{column.name} is 0"
            return [_Indicator(codes=codes, level=1, yes=yes, no=no)]
    if len(distinct) < 2 and not (missing.any() and len(distinct)):
        return []
    return [
        _Cuts(
            name=column.name,
            values=column.values,
            cuts=_cuts(distinct, counts),
            has_missing=bool(missing.any()),
        )
    ]


def _level_features(column: _Levels) -> list[_Feature]:
    parts, _ = _largest(column.levels)
    present = np.flatnonzero(np.bincount(parts.codes, minlength=len(parts.labels)))
    texts = {level: f"{column.name} is {_bare(parts.labels[level])}" for level in present}
    if len(present) < 2:
        return []
    if len(present) == 2:
        no, yes = present
        return [_Indicator(codes=parts.codes, level=int(yes), yes=texts[yes], no=texts[no])]
    return [
        _Indicator(
            codes=parts.codes,
            level=int(level),
            yes=texts[level],
            no=f"{column.name} is not {_bare(parts.labels[level])}",
        )
        for level in present
    ]


def _bare(label: str) -> str:
    return {_MISSING: "missing", _OTHER: "another one"}.get(label, label)


def _cuts(distinct: FloatArray, counts: IntArray) -> FloatArray:
    """Places between neighbouring values, at most 512 of them, evenly spread over the rows."""
    gaps = np.arange(len(distinct) - 1)
    if len(gaps) > _MOST_CUTS:
        wanted = np.arange(1, _MOST_CUTS + 1) / (_MOST_CUTS + 1) * counts.sum()
        gaps = np.unique(np.minimum(np.searchsorted(np.cumsum(counts), wanted), gaps[-1]))
    return np.array([_short_between(distinct[gap], distinct[gap + 1]) for gap in gaps])


def _short_between(low: float, high: float) -> float:
    """A number t of few digits with low ≤ t < high."""
    middle = 0.5 * low + 0.5 * high
    for digits in range(1, 18):
        for value in (middle, low):
            short = float(f"{value:.{digits}g}")
            if low <= short < high:
                return short
    return float(low)


def _encoded(features: Sequence[_Feature], rows: IntArray | slice) -> Any:
    return np.column_stack([feature.encode(rows) for feature in features]).astype(np.float32)


def _leaves(tree: Any, features: Sequence[_Feature], rows: int) -> tuple[IntArray, tuple[str, ...]]:
    """The leaf of every row, and what each leaf's conditions are."""
    nodes = np.empty(rows, dtype=np.int64)
    for block in row_blocks(rows, len(features)):
        nodes[block] = tree.apply(_encoded(features, block))
    paths = _paths(tree.tree_, len(features))
    place = np.zeros(tree.tree_.node_count, dtype=np.int64)
    place[list(paths)] = np.arange(len(paths))
    return place[nodes], tuple(_conjunction(path, features) for path in paths.values())


_Path = dict[int, tuple[int | None, int | None]]


def _paths(tree: Any, features: int) -> dict[int, _Path]:
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
    """The conditions of a path; a level that is settled makes its column's "is not" idle."""
    settled = {
        id(features[place].codes)
        for place, (above, _) in path.items()
        if isinstance(feature := features[place], _Indicator) and above is not None
    }
    said = [
        condition
        for place, (above, below) in path.items()
        if not (
            isinstance(feature := features[place], _Indicator)
            and above is None
            and id(feature.codes) in settled
        )
        for condition in features[place].conditions(above, below)
    ]
    return " and ".join(said) or "all rows"


def _explained(target: FloatArray, leaf: IntArray) -> float:
    """1 − (variation within leaves)/(variation of all)."""
    total = float(np.sum((target - target.mean()) ** 2))
    if not total > 0:
        return 0.0
    means = np.bincount(leaf, weights=target) / np.maximum(np.bincount(leaf), 1)
    within = float(np.sum((target - means[leaf]) ** 2))
    return min(max(1 - within / total, 0.0), 1.0)
