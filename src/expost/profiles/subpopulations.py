"""Exposures by column, and the decision tree, of rows that lie in parts: two passes over the cells.

rules    a sample of at most 100,000 rows determines levels, edges of bins and the tree;
counts   every worker divides its rows by these rules and counts them; the counts are merged.

Of at most 100,000 rows the sample is all of them, and the rules are those of rows in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
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
from expost.numbers import upper_text
from expost.rows import RowStream
from expost.types import FloatArray, IntArray

__all__ = ["PartCells", "readable_features"]

# Groups that are counted in one pass: each has a histogram of 160 kB.
_GROUPS_A_PASS = 256
# Entries of the sample of encoded rows that a tree is grown on: 128 MiB.
_SAMPLE_ENTRIES = 2**24


def readable_features(encoding: Encoding, X: FloatArray) -> FloatArray:
    """Return encoded rows in the units of the table, which are readable."""
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

    Parameters
    ----------
    stream : RowStream
        Reads the cells again. Its items have the numbers of the parts.
    store : PartStore
        The parts; the column ``measure`` of them holds the scores.
    scores : OrderStatistics
        The order statistics of the scores of all rows; ``top`` the largest finite one.
    """

    stream: RowStream
    store: PartStore
    measure: str
    scores: OrderStatistics
    top: float

    def explored(
        self, names: Sequence[str], engine: Engine, *, depth: int | None = 3, bins: int = 4
    ) -> tuple[tuple[Grouping, ...], Explanation | None]:
        """Return the exposures by each of the columns ``names``, and by a tree over all columns.

        Both take as few passes as possible. Without a ``depth`` no tree is grown.
        """
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
            chosen = dict(zip(names[start:stop], rules[start:stop], strict=True))
            # The leaves of the tree are counted last.
            task = partial(_counts_of_part, self, chosen, tree if stop == len(names) else None)
            total: list[PartCounts] = reduce(_merged, engine.map(task, self._items()))
            counted += total
        groupings = [
            counts.grouping(rule, printable(name))
            for counts, rule, name in zip(counted, rules, names, strict=False)
        ]
        notices = self._notices(len(cells))
        return (
            tuple(
                replace(grouping, notices=(*grouping.notices, *notices)) for grouping in groupings
            ),
            None if tree is None else counted[-1].explanation(tree),
        )

    def _sample(self, names: Sequence[str], encoded: bool, engine: Engine) -> Any:
        """Return the cells, the encoded features and the scores of a sample of the rows."""
        width = len(self.stream.encoding.feature_names)
        most = _SAMPLE_ENTRIES // max(width, 1) if encoded else None
        rows = sample_rows(self.stream.count, most)
        task = partial(_sample_of_part, self, list(names), encoded, rows)
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
    for index, number in enumerate(groups):
        if index > start and total + number > _GROUPS_A_PASS:
            yield start, index
            start, total = index, 0
        total += number
    yield start, len(groups)


def _sample_of_part(
    cells: PartCells, names: list[str], encoded: bool, rows: IntArray, numbered: tuple[Part, Any]
) -> tuple[Any, FloatArray, FloatArray]:
    """Return the cells, the encoded features and the scores of those ``rows`` that a part holds."""
    tables, features, chosen = [], [], []
    width = len(cells.stream.encoding.feature_names) if encoded else 0
    for start, batch, scores in cells.blocks(*numbered):
        first, last = np.searchsorted(rows, [start, start + batch.num_rows])
        index = rows[first:last] - start
        some = batch.take(pa.array(index))
        tables.append(pa.Table.from_batches([some]).select(names))
        X = np.zeros((len(index), width))
        features.append(cells.features(some, start) if X.size else X)
        chosen.append(scores[index])
    return pa.concat_tables(tables), np.concatenate(features), np.concatenate(chosen)


def _counts_of_part(
    cells: PartCells,
    rules: Mapping[str, Partition],
    tree: Tree | None,
    numbered: tuple[Part, Any],
) -> list[PartCounts]:
    """Return the counts of the rows of a part by the rule of each column, and by the tree."""
    blocks = cells.blocks(*numbered)
    return reduce(_merged, (list(_counts(cells, rules, tree, *block)) for block in blocks))


def _merged(first: list[PartCounts], second: list[PartCounts]) -> list[PartCounts]:
    return [mine.merged(theirs) for mine, theirs in zip(first, second, strict=True)]


def _counts(
    cells: PartCells,
    rules: Mapping[str, Partition],
    tree: Tree | None,
    start: int,
    batch: Any,
    scores: FloatArray,
) -> Iterator[PartCounts]:
    """Yield the counts of a block of rows."""
    rows, weights = len(scores), exposed_weights(scores, cells.scores)
    histogram = partial(Histogram.of, top=cells.top)
    for name, rule in rules.items():
        column = read_column(batch.column(name), printable(name), rows)
        codes, parts = rule.parts(column), len(rule.labels)
        yield PartCounts.of(codes, parts, scores, weights, histogram)
    if tree is not None:
        X = cells.features(batch, start)
        columns = read_columns(X, cells.stream.encoding.feature_names, rows)
        target = tree_target(scores, cells.scores)
        codes, parts = tree.parts(columns, rows), len(tree.labels)
        yield PartCounts.of(codes, parts, scores, weights, histogram, target=target)
