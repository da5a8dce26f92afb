"""Exposures by column, and the decision tree, of rows that lie in parts: two passes over the cells.

rules    a sample of at most 100,000 rows determines levels, edges of bins and the tree;
counts   every worker divides its rows by these rules and counts them; the counts are merged.

Of at most 100,000 rows the sample is all of them, and the rules are those of rows in memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from expost._order import Histogram, OrderStatistics
from expost.data import Encoding, NumericEntry
from expost.engine import Engine
from expost.errors import InvalidInput
from expost.files.parts import Part, PartStore
from expost.groups.columns import Partition, printable, read_column, read_columns
from expost.groups.exposure import (
    Explanation,
    Grouping,
    PartCounts,
    exposed_weights,
    smallest_leaf,
    tree_target,
)
from expost.groups.tree import Tree, grow, sample_rows
from expost.rounding import upper_text
from expost.rows import RowStream
from expost.types import FloatArray, IntArray

__all__ = ["PartCells", "readable_features"]

# Groups that are counted in one pass: each has a histogram of 160 kB.
_GROUPS_A_PASS = 256
# Entries of the sample of encoded rows that a tree is grown on: 128 MiB.
_SAMPLE_ENTRIES = 2**24


def readable_features(encoding: Encoding, X: FloatArray) -> FloatArray:
    """Return encoded rows in the units of the table, for a person to read."""
    readable = X.copy()
    position = 0
    for entry in encoding.entries:
        if isinstance(entry, NumericEntry):
            readable[:, position] = X[:, position] * entry.scale + entry.mean
        position += len(entry.features)
    return readable


@dataclass(frozen=True, kw_only=True, eq=False)
class PartCells:
    """The cells of the rows of a profile that lies in parts, with the rows' scores.

    ``stream``   reads the cells again. Its items have the numbers of the parts.
    ``store``    the parts; the column ``measure`` of them holds the scores.
    ``scores``   the order statistics of the scores of all rows; ``top`` the largest finite one.
    """

    stream: RowStream
    store: PartStore
    measure: str
    scores: OrderStatistics
    top: float

    def grouped(
        self, names: Sequence[str], engine: Engine, *, bins: int = 4
    ) -> tuple[Grouping, ...]:
        """Return the exposures by each of the columns ``names`` of the table."""
        return self._explored(names, None, engine, bins=bins)[0]

    def explained(self, engine: Engine, *, depth: int = 3) -> Explanation:
        """Return the groups of exposed rows, as a shallow tree over the encoded columns."""
        found = self._explored((), depth, engine)[1]
        assert found is not None
        return found

    def explored(
        self, names: Sequence[str], engine: Engine
    ) -> tuple[tuple[Grouping, ...], Explanation]:
        """Return both, in as few passes as possible."""
        groupings, explanation = self._explored(names, 3, engine)
        assert explanation is not None
        return groupings, explanation

    def _explored(
        self, names: Sequence[str], depth: int | None, engine: Engine, *, bins: int = 4
    ) -> tuple[tuple[Grouping, ...], Explanation | None]:
        unknown = [name for name in names if name not in self.stream.encoding.kinds]
        if unknown:
            raise InvalidInput(
                f"column {printable(unknown[0])!r}: must be one that the model's table has and"
                f" uses: {', '.join(map(printable, self.stream.encoding.kinds))}."
            )
        cells, X, scores = self._sample(names, depth is not None, engine)
        rules: list[Partition] = [
            read_column(cells.column(name), printable(name), len(cells)).partition(bins)
            for name in names
        ]
        tree = None if depth is None else self._tree(X, scores, depth)
        counted: list[PartCounts] = []
        for start, stop in _passes([len(rule.labels) for rule in rules]):
            task = _CountItem(
                cells=self,
                names=tuple(names[start:stop]),
                rules=tuple(rules[start:stop]),
                tree=tree if stop == len(names) else None,
            )
            counted += self._merged(task, engine)
        groupings = tuple(
            _noted(counts.grouping(rule, printable(name)), self._notices(len(cells)))
            for counts, rule, name in zip(counted, rules, names, strict=False)
        )
        # The leaves of the tree are counted last.
        return groupings, None if tree is None else counted[-1].explanation(tree)

    def _sample(self, names: Sequence[str], encoded: bool, engine: Engine) -> Any:
        """Return the cells, the encoded features and the scores of a sample of the rows."""
        width = len(self.stream.encoding.feature_names)
        most = _SAMPLE_ENTRIES // max(width, 1) if encoded else None
        task = _SampleItem(
            cells=self,
            names=tuple(names),
            encoded=encoded,
            rows=sample_rows(self.stream.count, most),
        )
        tables, features, scores = zip(*engine.map(task, self._items()), strict=True)
        return pa.concat_tables(tables), np.concatenate(features), np.concatenate(scores)

    def _tree(self, X: FloatArray, scores: FloatArray, depth: int) -> Tree:
        """Grow the tree on sampled rows."""
        n = self.stream.count
        return grow(
            tree_target(scores, self.scores),
            read_columns(X, self.stream.encoding.feature_names, len(X)),
            depth=depth,
            least=smallest_leaf(n),
            total=None if len(X) == n else float(n),
        )

    def _merged(self, task: "_CountItem", engine: Engine) -> list[PartCounts]:
        total: list[PartCounts] | None = None
        for counts in engine.map(task, self._items()):
            total = (
                counts
                if total is None
                else [one.merged(other) for one, other in zip(total, counts, strict=True)]
            )
        assert total is not None
        return total

    def _items(self) -> Iterator[tuple[Part, Any]]:
        """Yield every part with the item of the stream that holds its rows."""
        return zip(self.store.parts(), self.stream.items(), strict=True)

    def _notices(self, sampled: int) -> tuple[str, ...]:
        """Return what the reader of a grouping must know."""
        error = upper_text(100 * self.scores.error, 1)
        notices = [f"The rows were processed in blocks: medians are rounded up, by {error} %."]
        if sampled < self.stream.count:
            notices.append(
                f"Levels and bins were read from {sampled:,} rows drawn at random; the figures are"
                " of all rows."
            )
        return tuple(notices)

    def blocks(self, part: Part, item: Any) -> Iterator[tuple[int, Any, FloatArray]]:
        """Yield the number of the first row, the cells and the scores of each block of a part."""
        scores = self.store.read(part, [self.measure]).column(0).to_numpy()
        done = 0
        for block in self.stream.reader.blocks(item):
            rows = block.batch.num_rows
            yield block.start, block.batch, scores[done : done + rows]
            done += rows

    def features(self, batch: Any, start: int) -> FloatArray:
        """Return the encoded features of some cells, in the units of the table."""
        encoding = self.stream.encoding
        return readable_features(encoding, encoding.encode(batch, first_row=start + 1).X)


def _passes(groups: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the columns (start, stop) of each pass, given the number of groups of each column."""
    start = total = 0
    for place, number in enumerate(groups):
        if place > start and total + number > _GROUPS_A_PASS:
            yield start, place
            start, total = place, 0
        total += number
    yield start, len(groups)


def _noted(grouping: Grouping, notices: tuple[str, ...]) -> Grouping:
    return replace(grouping, notices=(*grouping.notices, *notices))


@dataclass(frozen=True, kw_only=True)
class _SampleItem:
    """Read the sampled rows of one item."""

    cells: PartCells
    names: tuple[str, ...]
    encoded: bool
    rows: IntArray

    def __call__(self, numbered: tuple[Part, Any]) -> tuple[Any, FloatArray, FloatArray]:
        """Return their cells, encoded features and scores."""
        tables, features, found = [], [], []
        for start, batch, scores in self.cells.blocks(*numbered):
            first, last = np.searchsorted(self.rows, [start, start + batch.num_rows])
            index = self.rows[first:last] - start
            some = batch.take(pa.array(index))
            tables.append(pa.Table.from_batches([some]).select(list(self.names)))
            width = len(self.cells.stream.encoding.feature_names)
            X = np.zeros((len(index), width if self.encoded else 0))
            features.append(self.cells.features(some, start) if X.size else X)
            found.append(scores[index])
        return pa.concat_tables(tables), np.concatenate(features), np.concatenate(found)


@dataclass(frozen=True, kw_only=True)
class _CountItem:
    """Divide the rows of one item by rules, and count them."""

    cells: PartCells
    names: tuple[str, ...] = ()
    rules: tuple[Partition, ...] = ()
    tree: Tree | None = None

    def __call__(self, numbered: tuple[Part, Any]) -> list[PartCounts]:
        """Return the counts of each rule, and of the tree."""
        total: list[PartCounts] | None = None
        for start, batch, scores in self.cells.blocks(*numbered):
            counts = list(self._counts(start, batch, scores))
            total = (
                counts
                if total is None
                else [one.merged(other) for one, other in zip(total, counts, strict=True)]
            )
        assert total is not None
        return total

    def _counts(self, start: int, batch: Any, scores: FloatArray) -> Iterator[PartCounts]:
        rows, weights = len(scores), exposed_weights(scores, self.cells.scores)
        for name, rule in zip(self.names, self.rules, strict=True):
            column = read_column(batch.column(name), printable(name), rows)
            yield PartCounts.of(rule.parts(column), scores, weights, self._histogram)
        if self.tree is not None:
            X = self.cells.features(batch, start)
            columns = read_columns(X, self.cells.stream.encoding.feature_names, rows)
            target = tree_target(scores, self.cells.scores)
            parts = self.tree.parts(columns, rows)
            yield PartCounts.of(parts, scores, weights, self._histogram, target=target)

    def _histogram(self, scores: FloatArray) -> Histogram:
        return Histogram.of(scores, self.cells.top)
