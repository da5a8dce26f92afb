"""The per-row table of a profile as Parquet parts, for a table of any length.

Three steps, of which only the first one visits the rows:

losses   every worker computes the losses of its rows and writes them as a part;
digest   the digests of all parts are merged;
ranks    every part is written again with the rank of each row among all rows.

A part has the same bytes on any engine, and a finished part is not computed again. A worker returns
a few counts, and those of its rows that may be among the most exposed rows of all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from expost._order import OrderStatistics, ranking
from expost.engine import SILENT, Engine, Progress
from expost.errors import InvalidInput
from expost.files.parts import Part, PartStore
from expost.glm import Objective
from expost.labels import LabelScale
from expost.mechanisms import Losses, RowLosses
from expost.noise.tabulated import Table as ExposureTable
from expost.profiles.digest import (
    FIGURES,
    Digest,
    Maxima,
    PosteriorDigest,
    RowFigures,
    Terms,
    figure_columns,
)
from expost.profiles.fit import FitScores
from expost.profiles.left_out import LeftOut, in_label_units
from expost.profiles.subpopulations import PartCells
from expost.rows import RowBlock, RowStream
from expost.types import Audience, FloatArray

__all__ = [
    "RowParts",
    "digest_of_parts",
    "maxima_of_parts",
    "most_exposed",
    "ranked_parts",
    "row_parts",
]

# The key of the maxima in the metadata of a part.
_ABOUT = "expost"
# The columns that are kept of the most exposed rows.
_TOP_COLUMNS = (
    *("row", "id", "loss", "loss_low", "loss_high", "expected", "distance"),
    *("distance_error", "prediction", "prediction_without"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class RowParts:
    """The rows of a profile that lie on the disk.

    Parameters
    ----------
    store : PartStore
        The folder of parts, with one line for each row of the table.
    terms : Terms
        What the mechanism guarantees about the rows.
    maxima : Maxima
        The ranges of the histograms in ``digest``.
    digest : Digest
        What is known of all rows together.
    most : Any
        The most exposed rows, in the order of their ranks: a pyarrow table of their numbers, ids,
        losses with their intervals, expected exposures and distances.
    stream : RowStream, optional
        Reads the rows of the table again; None where it is not at hand.
    """

    store: PartStore
    terms: Terms
    maxima: Maxima
    digest: Digest
    most: Any
    stream: RowStream | None = None

    @property
    def cells(self) -> PartCells:
        """The cells of the rows, with their scores."""
        if self.stream is None:
            raise InvalidInput("profile: the table of its rows is not available; profile it again.")
        return PartCells(
            stream=self.stream,
            store=self.store,
            measure=self.terms.measure,
            scores=self.digest.scores,
            top=self.maxima.distance if self.terms.noiseless else self.maxima.exposure,
        )

    def posterior(self, prior: float) -> PosteriorDigest:
        """Return what an attacker with this prior learns of all rows; one pass over the parts."""
        statistics = self.maxima.statistics
        return reduce(
            PosteriorDigest.merged,
            (
                PosteriorDigest.of(columns, statistics, prior=prior, start=start, ids=ids)
                for columns, start, ids in map(_figures, self.store.tables())
            ),
        )


# -- losses ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _LossColumns:
    """The content of a part: the figures of its rows, and their maxima in its metadata."""

    losses: Losses
    expected: ExposureTable | None
    models: tuple[FloatArray, FloatArray]
    label_scale: LabelScale | None

    def __call__(self, block: RowBlock) -> tuple[dict[str, FloatArray], Maxima]:
        """Return the figures of the rows of a block, and their maxima."""
        losses = in_label_units(self.losses(block), self.label_scale)
        figures = RowFigures(losses=losses, expected=lambda: self._expected(losses))
        columns = figure_columns(figures)
        own = losses.predictors
        return columns, Maxima.of(
            columns,
            FitScores.of(block, self.models, self.losses.mechanism.loss),
            None if own is None else LeftOut.of(own, block.y, start=block.start),
        )

    def about(self, notes: Sequence[Maxima]) -> dict[str, str]:
        """Return the maxima of all rows of a part."""
        return {_ABOUT: reduce(Maxima.merged, notes, Maxima()).to_json()}

    def _expected(self, losses: RowLosses) -> FloatArray | None:
        """Return the expected exposures: from the law of a loss, or from sampled releases."""
        if losses.noiseless:
            return np.abs(losses.loss)
        if losses.sampled is not None:
            return losses.sampled()[0]
        return None if self.expected is None else self.expected(losses.distance)


def row_parts(
    objective: Objective,
    losses: Losses,
    models: tuple[FloatArray, FloatArray],
    store: PartStore,
    *,
    finished: Mapping[int, Part] | None = None,
    label_scale: LabelScale | None = None,
) -> dict[int, Part]:
    """Write the figures of all rows as parts of ``store``; ``finished`` parts are not made again.

    Parameters
    ----------
    models : tuple[FloatArray, FloatArray]
        The released θ and the one without noise, whose predictions are scored too.
    label_scale : LabelScale, optional
        The units of the labels of a regression.
    """
    mechanism = losses.mechanism.closed_form
    expected = None
    if mechanism is not None and mechanism.is_private:
        expected = ExposureTable.of(
            mechanism.loss_law,
            1 / mechanism.resolution,
            mechanism.sensitivity / mechanism.resolution,
        )
    task = _LossColumns(losses=losses, expected=expected, models=models, label_scale=label_scale)
    return objective.table.write_parts(task, store, finished=finished)


# -- digest ----------------------------------------------------------------------------------------


def _in_order(parts: Mapping[int, Part]) -> list[Part]:
    return [parts[number] for number in sorted(parts)]


def _maxima(store: PartStore, part: Part) -> Maxima:
    """Return the maxima that a part stores."""
    return Maxima.from_json(store.about(part)[_ABOUT.encode()])


def maxima_of_parts(store: PartStore, parts: Mapping[int, Part], engine: Engine) -> Maxima:
    """Return the maxima of the rows of all parts."""
    maxima = engine.map(partial(_maxima, store), _in_order(parts))
    return reduce(Maxima.merged, maxima, Maxima())


def _digest(store: PartStore, maxima: Maxima, terms: Terms, part: Part) -> Digest:
    """Return the digest of the rows of a part."""
    columns, start, ids = _figures(store.read(part))
    return Digest.of(columns, terms, maxima.statistics, start=start, ids=ids)


def _figures(table: Any) -> tuple[dict[str, FloatArray], int, Any]:
    """Return the figures of a part, the number of its first row, and the ids of its rows."""
    known = [name for name in FIGURES if name in table.column_names]
    columns = {name: table.column(name).to_numpy() for name in known}
    ids = table.column("id") if "id" in table.column_names else None
    return columns, int(table.column("row")[0].as_py()), ids


def digest_of_parts(
    store: PartStore, parts: Mapping[int, Part], maxima: Maxima, terms: Terms, engine: Engine
) -> Digest:
    """Return the digest of the rows of all parts, merged in their order."""
    task = partial(_digest, store, maxima, terms)
    return reduce(Digest.merged, engine.map(task, _in_order(parts)))


# -- ranks -----------------------------------------------------------------------------------------


def _ranked(
    source: PartStore,
    store: PartStore,
    scores: OrderStatistics,
    measure: str,
    most: int,
    task: tuple[Part, Part | None],
) -> tuple[Part, Any]:
    """Write a part with the rank of each row among all rows, and the error of the rank.

    A part that exists is not written again. Returns the part, and its candidates for the ``most``
    most exposed rows of all.
    """
    part, made = task
    table = source.read(part)
    least, last = scores.ranks(table.column(measure).to_numpy())
    if made is None:
        index = table.column_names.index("loss")
        # The middle of the ranks that rows of its bucket have, and half their number.
        ranked = table.add_column(index, "rank", pa.array((least + last + 1) // 2))
        ranked = ranked.add_column(
            index + 1, "rank_error", pa.array((last - least + 1) // 2)
        ).replace_schema_metadata({"audience": Audience.CURATOR_ONLY.value})
        made = store.write(part.index, ranked)
    names = [name for name in _TOP_COLUMNS if name in table.column_names]
    chosen = table.select(names).take(np.flatnonzero(least <= most))
    return made, most_exposed(chosen, most)


def most_exposed(table: Any, most: int) -> Any:
    """Return the ``most`` most exposed rows of a table in the order of its rows, ranked."""
    loss, distance = (table.column(name).to_numpy() for name in ("loss", "distance"))
    order = ranking(np.abs(loss), distance)[:most]
    return table.replace_schema_metadata(None).take(order).combine_chunks()


def ranked_parts(
    source: PartStore,
    parts: Mapping[int, Part],
    store: PartStore,
    digest: Digest,
    terms: Terms,
    engine: Engine,
    *,
    most: int,
    progress: Progress = SILENT,
) -> tuple[dict[int, Part], Any]:
    """Write every part again with ranks, 1 for the most exposed row; finished parts stay.

    Returns the parts and the ``most`` most exposed rows in order, whose ranks are exact.
    """
    finished = store.finished()
    task = partial(_ranked, source, store, digest.scores, terms.measure, most)
    tasks = [(part, finished.get(part.index)) for part in _in_order(parts)]
    progress.rows(sum(part.rows for part in parts.values()))
    top: list[Any] = []
    for (part, _), (made, some) in zip(tasks, engine.map(task, tasks), strict=True):
        finished[part.index] = made
        progress.advance(part.rows)
        top.append(some)
        if sum(len(table) for table in top) > 2 * most:
            top = [most_exposed(pa.concat_tables(top), most)]
    return finished, most_exposed(pa.concat_tables(top), most)
