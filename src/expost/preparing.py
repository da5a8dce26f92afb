"""One private model of rows that do not fit into memory: the estimators' own way, in passes.

The first pass says of the rows what an estimator would see of them at once (:class:`Facts`); the
minimiser then asks for its own. Nothing of the rows is held but what the model is made of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from expost import _checks
from expost.estimators import Estimator, Prepared, PrivateRidge
from expost.files.digest import Content, leaves
from expost.glm import Objective
from expost.losses import Loss, Squared
from expost.rows import BlockSummary, RowBlock, RowSummary, TableRows

__all__ = ["Facts", "facts_of", "prepared_stream"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What one pass finds out of all rows together.

    ``positive``       rows of the second class, or labels > 0.
    ``largest_label``  the largest ∣y∣.
    ``past``           labels past the bound of the stream, where it has one.
    ``clipped``        rows that are longer than the encoding says any is.
    ``unknown``        by column, cells that are no level of the encoding.
    ``content``        the digest of the rows; see :mod:`expost.files.digest`.
    ``look``           what a :class:`Objective` asks of them first.
    """

    rows: int
    positive: int
    largest_label: float
    past: int
    clipped: int
    unknown: Mapping[str, int]
    content: bytes
    look: RowSummary


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The same of one block."""

    positive: int
    largest_label: float
    past: int
    clipped: int
    unknown: Mapping[str, int]
    leaves: bytes
    look: BlockSummary


@dataclass(frozen=True, kw_only=True)
class _See:
    """RowSummary at one block; labels of two classes are told by their places."""

    classified: bool
    label_bound: float | None

    def __call__(self, block: RowBlock) -> _Seen:
        """What is seen."""
        encoded = block.encoded
        assert encoded is not None
        y = encoded.y
        size = np.abs(y)
        bound = np.inf if self.label_bound is None else self.label_bound
        return _Seen(
            positive=int(np.count_nonzero(y > 0)),
            largest_label=float(size.max()),
            past=int(np.count_nonzero(size > bound)),
            clipped=block.clipped,
            unknown=encoded.unknown,
            leaves=leaves(encoded.X, (y > 0).astype(float) if self.classified else y),
            look=BlockSummary.of(block),
        )


def facts_of(rows: TableRows) -> Facts:
    """RowSummary at all rows once."""
    stream = rows.stream
    classes = stream.encoding.target.classes
    content = Content(len(stream.encoding.feature_names), classes)
    task = _See(classified=classes is not None, label_bound=stream.label_bound)
    positive = past = clipped = 0
    largest, unknown = 0.0, dict[str, int]()

    def looks() -> Iterator[BlockSummary]:
        nonlocal positive, past, clipped, largest
        for seen in rows.map(task):
            positive, past = positive + seen.positive, past + seen.past
            clipped, largest = clipped + seen.clipped, max(largest, seen.largest_label)
            for name, count in seen.unknown.items():
                unknown[name] = unknown.get(name, 0) + count
            content.add(seen.look.rows, seen.leaves)
            yield seen.look

    look = RowSummary.of(looks(), stream.count)
    return Facts(
        rows=stream.count,
        positive=positive,
        largest_label=largest,
        past=past,
        clipped=clipped,
        unknown=unknown,
        content=content.value,
        look=look,
    )


def prepared_stream(
    estimator: Estimator,
    rows: TableRows,
    facts: Facts,
) -> Prepared:
    """The rows as the estimator sees them, and how it would release a model; spends nothing.

    The encoding's bounds and classes are the estimator's.
    """
    stream = rows.stream
    classes, read, clipped = stream.encoding.target.classes, [], []
    loss, bound = _loss(estimator, facts)
    if bound is None and isinstance(loss, Squared):
        read.append("label_bound (the largest label)")
    if facts.past:
        clipped.append(
            f"{facts.past} labels are past label_bound={bound:g} and were clipped to it."
        )
    if facts.clipped:
        clipped.append(
            f"{facts.clipped} rows are longer than data_norm={stream.ball.data_norm:g} and were"
            " clipped to it; give a larger bound if that is too many."
        )
    rows = replace(rows, summary=facts.look)
    if isinstance(loss, Squared):
        rows = rows.with_stream(label_bound=loss.label_bound)
    how = estimator.how(loss, stream.count, stream.columns)
    return Prepared(
        objective=Objective(
            rows=rows, loss=loss, penalty=np.full(stream.columns, how.total_regularization)
        ),
        mechanism=how,
        ball=stream.ball,
        classes=None if classes is None else np.array(classes),
        feature_names=stream.encoding.feature_names,
        read_from_data=tuple(read),
        clipped=tuple(clipped),
    )


def _loss(estimator: Estimator, facts: Facts) -> tuple[Loss, float | None]:
    """The loss, and the label bound that was given."""
    if not isinstance(estimator, PrivateRidge):
        return estimator.own_loss(), None
    if estimator.label_bound is None:
        # Any positive bound serves labels that are all 0.
        return Squared(label_bound=facts.largest_label or 1.0), None
    bound = _checks.positive("label_bound", estimator.label_bound)
    return Squared(label_bound=bound), bound
