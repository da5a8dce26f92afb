"""The rows of a table as an estimator needs them: read once, in memory or in passes.

The first pass over a table collects what an estimator needs of all rows together (:class:`Facts`),
and keeps the rows in memory if they fit. Everything after it works on :class:`~expost.rows.Rows`,
which are the same for both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from expost.files.digest import LEAF, Content, leaves
from expost.glm import Objective
from expost.labels import LabelScale
from expost.losses import Loss
from expost.release import Release
from expost.rows import BlockSummary, HeldRows, RowBlock, Rows, RowSummary, TableRows
from expost.types import FloatArray, IntArray

__all__ = ["Facts", "content_without", "objective_of", "objective_over", "read_rows", "rescaled"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What one pass collects about all rows together.

    Parameters
    ----------
    classes : tuple[int, ...]
        The rows of each class, in the order of the encoding's classes; of a regression the rows
        with labels ≤ 0 and > 0.
    labels : tuple[float, float]
        The least and the largest label.
    past : int
        Labels past the label range of the stream, where it has one.
    clipped : int
        Rows that are longer than the encoding's ``data_norm``.
    unknown : Mapping[str, int]
        By column, cells that are no level of the encoding.
    content : bytes
        The digest of the rows; see :mod:`expost.files.digest`.
    summary : RowSummary
        Lengths of the rows.
    """

    rows: int
    classes: tuple[int, ...]
    labels: tuple[float, float]
    past: int
    clipped: int
    unknown: Mapping[str, int]
    content: bytes
    summary: RowSummary


@dataclass(frozen=True, kw_only=True, eq=False)
class _BlockFacts:
    """The facts of one block, and the block itself where rows are kept."""

    classes: np.ndarray[Any, Any]
    labels: tuple[float, float]
    past: int
    clipped: int
    unknown: Mapping[str, int]
    leaves: bytes
    summary: BlockSummary
    kept: RowBlock | None


def _codes(y: FloatArray, classes: int | None) -> FloatArray:
    """Return the index of each row's class; of two classes, or of numbers, whether y > 0."""
    return y if classes is not None and classes > 2 else (y > 0).astype(float)


@dataclass(frozen=True, kw_only=True)
class _FactsOf:
    """A pass that collects the facts of each block; ``classes``: their number, or None."""

    classes: int | None
    label_scale: LabelScale | None
    keep: bool

    def __call__(self, block: RowBlock) -> _BlockFacts:
        """Return the facts of ``block``."""
        encoded = block.encoded
        assert encoded is not None
        y, codes = encoded.y, _codes(encoded.y, self.classes)
        return _BlockFacts(
            classes=np.bincount(codes.astype(np.int64), minlength=self.classes or 2),
            labels=(float(y.min()), float(y.max())),
            past=0 if self.label_scale is None else self.label_scale.past(y),
            clipped=block.clipped,
            unknown=encoded.unknown,
            leaves=leaves(encoded.X, y if self.classes is None else codes),
            summary=BlockSummary.of(block),
            kept=block if self.keep else None,
        )


def read_rows(rows: TableRows, *, hold: bool = False) -> tuple[Rows, Facts]:
    """Visit all rows once: return them, in memory if ``hold``, and their facts."""
    stream = rows.stream
    names = stream.encoding.target.classes
    content = Content(len(stream.encoding.feature_names), names)
    task = _FactsOf(
        classes=None if names is None else len(names), label_scale=stream.label_scale, keep=hold
    )
    keeper = _Keeper(rows) if hold else None
    classes = np.zeros(2 if names is None else len(names), dtype=np.int64)
    past = clipped = 0
    labels, unknown = (np.inf, -np.inf), dict[str, int]()

    def summaries() -> Iterator[BlockSummary]:
        nonlocal past, clipped, labels, classes
        for part in rows.map(task):
            classes = classes + part.classes
            past, clipped = past + part.past, clipped + part.clipped
            labels = min(labels[0], part.labels[0]), max(labels[1], part.labels[1])
            for name, count in part.unknown.items():
                unknown[name] = unknown.get(name, 0) + count
            content.add(part.summary.rows, part.leaves)
            if keeper is not None and part.kept is not None:
                keeper.add(part.kept)
            yield part.summary

    summary = RowSummary.of(summaries(), stream.count)
    facts = Facts(
        rows=stream.count,
        classes=tuple(classes.tolist()),
        labels=labels,
        past=past,
        clipped=clipped,
        unknown=unknown,
        content=content.value,
        summary=summary,
    )
    return replace(rows, summary=summary) if keeper is None else keeper.rows(), facts


@dataclass(frozen=True, kw_only=True, eq=False)
class _EncodedWithout:
    """A pass that returns the encoded rows and labels of a block without some of the rows."""

    removed: IntArray
    classes: int | None

    def __call__(self, block: RowBlock) -> tuple[FloatArray, FloatArray]:
        """Return the features and the labels, as :class:`_FactsOf` digests them."""
        encoded = block.encoded
        assert encoded is not None
        numbers = np.arange(block.start, block.start + len(block))
        kept = ~np.isin(numbers, self.removed)
        labels = encoded.y if self.classes is None else _codes(encoded.y, self.classes)
        return encoded.X[kept], labels[kept]


def content_without(rows: TableRows, removed: IntArray) -> bytes:
    """Return the digest of a table without some rows: :attr:`Facts.content` of such a table.

    The encoded rows pass through this process, in their order: for rows that fit into memory.
    """
    names = rows.stream.encoding.target.classes
    features = len(rows.stream.encoding.feature_names)
    task = _EncodedWithout(removed=removed, classes=None if names is None else len(names))
    content = Content(features, names)
    X, y = np.empty((0, features)), np.empty(0)
    for part, labels in rows.map(task):
        X, y = np.concatenate([X, part]), np.concatenate([y, labels])
        whole = len(y) // LEAF * LEAF
        content.add(whole, leaves(X[:whole], y[:whole]))
        X, y = X[whole:], y[whole:]
    content.add(len(y), leaves(X, y))
    return content.value


class _Keeper:
    """Arrays of all rows of a table, filled block by block."""

    def __init__(self, rows: TableRows) -> None:
        features = len(rows.stream.encoding.feature_names)
        self._X = np.empty((rows.count, rows.columns))
        self._y = np.empty(rows.count)
        self._encoded = np.empty((rows.count, features))
        keyed = rows.stream.id_column is not None
        self._ids = np.empty(rows.count, dtype=object) if keyed else None
        self._counted = rows.counted
        width = 0 if self._counted is None else len(self._counted.columns)
        self._cells = np.empty((rows.count, width), dtype=np.int32) if width else None

    def add(self, block: RowBlock) -> None:
        """Copy a block; rows past the number that the table had are counted elsewhere."""
        where = slice(block.start, block.start + len(block))
        if where.stop > len(self._y) or block.encoded is None:
            return
        self._X[where], self._y[where], self._encoded[where] = block.X, block.y, block.encoded.X
        if self._ids is not None:
            self._ids[where] = block.ids
        if self._cells is not None and block.cells is not None:
            self._cells[where] = block.cells

    def rows(self) -> HeldRows:
        """Return all rows."""
        return HeldRows(
            X=self._X,
            y=self._y,
            ids=self._ids,
            encoded=self._encoded,
            cells=self._cells,
            counted=self._counted,
        )


def objective_over(rows: Rows, loss: Loss, regularization: float) -> Objective:
    """Return J over rows in memory or of a table, one penalty for all coefficients."""
    penalty = np.full(loss.outputs * rows.columns, regularization)
    return Objective(rows=rows, loss=loss, penalty=penalty)


def rescaled(rows: Rows, scale: LabelScale, facts: Facts) -> Rows:
    """Return rows that were read before the range of their labels was known, with it."""
    if isinstance(rows, TableRows):
        size = float(np.max(np.abs(scale.inside(np.array(facts.labels)))))
        summary = replace(facts.summary, label_size=size)
        return replace(rows.with_stream(label_scale=scale), summary=summary)
    assert isinstance(rows, HeldRows)
    return replace(rows, y=scale.inside(rows.y))


def objective_of(release: Release, rows: Rows) -> Objective:
    """Return the objective of a released model over its rows."""
    mechanism = release.mechanism
    return objective_over(rows, mechanism.loss, mechanism.total_regularization)
