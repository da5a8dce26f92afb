"""One private model of rows that do not fit into memory: the estimators' own way, in passes.

The first pass says of the rows what an estimator would see of them at once (:class:`Facts`); the
minimiser then asks for its own. Nothing of the rows is held but what the model is made of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from expost import _checks
from expost.data.stream import RowStream, StreamBlock
from expost.engine import Engine
from expost.engine.progress import SILENT, Progress
from expost.estimators import Estimator, Prepared, PrivateRidge
from expost.files.digest import Content, leaves
from expost.losses import Loss, Squared
from expost.neighbouring.streamed import BlockLook, Look, StreamedProblem, folded

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
    ``look``           what a :class:`StreamedProblem` asks of them first.
    """

    rows: int
    positive: int
    largest_label: float
    past: int
    clipped: int
    unknown: Mapping[str, int]
    content: bytes
    look: Look


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The same of one block."""

    positive: int
    largest_label: float
    past: int
    clipped: int
    unknown: Mapping[str, int]
    leaves: bytes
    look: BlockLook


@dataclass(frozen=True, kw_only=True)
class _See:
    """Look at one block; labels of two classes are told by their places."""

    classified: bool
    label_bound: float | None

    def __call__(self, block: StreamBlock) -> _Seen:
        """What is seen."""
        y = block.encoded.y
        size = np.abs(y)
        bound = np.inf if self.label_bound is None else self.label_bound
        return _Seen(
            positive=int(np.count_nonzero(y > 0)),
            largest_label=float(size.max()),
            past=int(np.count_nonzero(size > bound)),
            clipped=block.clipped,
            unknown=block.encoded.unknown,
            leaves=leaves(block.encoded.X, (y > 0).astype(float) if self.classified else y),
            look=BlockLook.of(block),
        )


def facts_of(stream: RowStream, engine: Engine, progress: Progress = SILENT) -> Facts:
    """Look at all rows once."""
    classes = stream.encoding.target.classes
    content = Content(len(stream.encoding.feature_names), classes)
    task = _See(classified=classes is not None, label_bound=stream.label_bound)
    positive = past = clipped = 0
    largest, unknown = 0.0, dict[str, int]()

    def looks() -> Iterator[BlockLook]:
        nonlocal positive, past, clipped, largest
        for seen in chain.from_iterable(folded(stream, engine, task, progress)):
            positive, past = positive + seen.positive, past + seen.past
            clipped, largest = clipped + seen.clipped, max(largest, seen.largest_label)
            for name, count in seen.unknown.items():
                unknown[name] = unknown.get(name, 0) + count
            content.add(seen.look.rows, seen.leaves)
            yield seen.look

    look = Look.of(looks(), stream.rows)
    return Facts(
        rows=stream.rows,
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
    stream: RowStream,
    engine: Engine,
    facts: Facts,
    progress: Progress = SILENT,
) -> Prepared:
    """The rows as the estimator sees them, and how it would release a model; spends nothing.

    The encoding's bounds and classes are the estimator's.
    """
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
    if isinstance(loss, Squared):
        stream = replace(stream, label_bound=loss.label_bound)
    how = estimator.how(loss, stream.rows, stream.columns)
    return Prepared(
        objective=StreamedProblem(
            stream=stream,
            engine=engine,
            loss=loss,
            penalty=np.full(stream.columns, how.total_regularization),
            progress=progress,
            seen=facts.look,
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
