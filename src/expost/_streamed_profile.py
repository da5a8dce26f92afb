"""The privacy profile of a table of any length, in parts (LeBlond 4.3).

Three steps, of which only the first one's second half goes over the rows:

losses   every worker works out the losses of its blocks and writes them as a part;
digest   each part's counts are added up: quantiles and ranks follow from a sketch;
ranks    every part is written again with each row's rank among all.

A part is the same bytes whoever made it, and a part that is there is not made again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit

from expost._sketch import Sketch
from expost._store import Part, PartStore
from expost._streamed_losses import BlockLosses
from expost._typical import Table as ExposureTable
from expost.data.stream import RowStream
from expost.engine import Engine
from expost.glm import RowBlock
from expost.mechanisms import OutputPerturbation, RowLosses

__all__ = ["Digest", "DigestOf", "TopRow", "digest", "ranked_parts", "row_parts"]

# The most exposed rows that are named.
_TOP = 20


@dataclass(frozen=True, kw_only=True)
class _RowPart:
    """Work out one part: the losses of the rows of one item."""

    stream: RowStream
    losses: BlockLosses
    typical: ExposureTable | None
    store: PartStore

    def __call__(self, numbered: tuple[int, Any]) -> Part:
        """Write it."""
        number, item = numbered
        blocks = [
            _columns(
                block.start, block.ids, self.losses(RowBlock.of(block.X, block.y)), self.typical
            )
            for block in self.stream.blocks(item)
        ]
        return self.store.write(number, pa.concat_tables(blocks).combine_chunks())


def _columns(start: int, ids: Any, losses: RowLosses, typical: ExposureTable | None) -> Any:
    """What the table says of the rows of a block; the names are those of a profile in memory."""
    columns: dict[str, Any] = {"row": np.arange(start, start + len(losses.loss))}
    if ids is not None:
        columns["id"] = pa.array(ids, pa.string())
    exposure = np.abs(losses.loss)
    columns |= {
        "loss": losses.loss,
        "loss_low": losses.low,
        "loss_high": losses.high,
        "exposure": exposure,
        "belief": expit(losses.loss),
        "confidence": expit(exposure),
    }
    if typical is not None:
        columns["typical"] = typical(losses.distance)
    columns |= {"distance": losses.distance, "distance_error": losses.distance_error}
    return pa.table(columns)


def row_parts(
    stream: RowStream,
    losses: BlockLosses,
    store: PartStore,
    engine: Engine,
    *,
    done: Callable[[int], None] = lambda rows: None,
) -> dict[int, Part]:
    """The losses of all rows as parts of ``store``; those that are there are left as they are."""
    how = losses.mechanism
    typical = None
    if isinstance(how, OutputPerturbation) and how.is_private:
        typical = ExposureTable.of(
            how.loss_law, 1 / how.resolution, how.sensitivity / how.resolution
        )
    finished = store.finished()
    for part in finished.values():
        done(part.rows)
    task = _RowPart(stream=stream, losses=losses, typical=typical, store=store)
    missing = ((n, item) for n, item in enumerate(stream.items()) if n not in finished)
    for part in engine.map(task, missing):
        finished[part.index] = part
        done(part.rows)
    return finished


@dataclass(frozen=True, kw_only=True)
class TopRow:
    """One of the most exposed rows."""

    row: int
    key: Any
    loss: float
    low: float
    high: float
    typical: float | None
    distance: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Digest:
    """What is known of all rows of some parts together; two add up to that of both.

    ``scores``     exposures, or distances where there is no noise.
    ``half_width`` the largest proved half width of a loss's interval, but for ``unproved`` rows.
    ``loose``      rows whose certificate leaves more than a thousandth of their distance open.
    """

    rows: int
    inside: int
    unproved: int
    loose: int
    half_width: float
    scores: Sketch
    typical: Sketch | None
    distance: Sketch
    top: tuple[TopRow, ...]

    def merged(self, other: "Digest") -> "Digest":
        """Both together."""
        self.scores.merge(other.scores)
        self.distance.merge(other.distance)
        if self.typical is not None and other.typical is not None:
            self.typical.merge(other.typical)
        # Equal exposures by distance, then in the order of the table, as in memory.
        rows = sorted(
            (*self.top, *other.top), key=lambda one: (-abs(one.loss), -one.distance, one.row)
        )
        return Digest(
            rows=self.rows + other.rows,
            inside=self.inside + other.inside,
            unproved=self.unproved + other.unproved,
            loose=self.loose + other.loose,
            half_width=max(self.half_width, other.half_width),
            scores=self.scores,
            typical=self.typical,
            distance=self.distance,
            top=tuple(rows[:_TOP]),
        )


@dataclass(frozen=True, kw_only=True)
class DigestOf:
    """The digest of one part. ``most``: what no exposure, typical exposure or distance passes."""

    store: PartStore
    most: float
    farthest: float
    noiseless: bool

    def __call__(self, part: Part) -> Digest:
        """Read the part, and count."""
        table = self.store.read(part)
        loss, low, high, distance, error = (
            table.column(name).to_numpy()
            for name in ("loss", "loss_low", "loss_high", "distance", "distance_error")
        )
        typical = table.column("typical").to_numpy() if "typical" in table.column_names else None
        exposure = distance if self.noiseless else np.abs(loss)
        half = np.zeros(len(loss)) if self.noiseless else 0.5 * (high - low)
        proved = np.isfinite(half)
        sketch = Sketch(self.farthest if self.noiseless else self.most)
        sketch.add(exposure)
        lengths = Sketch(self.farthest)
        lengths.add(distance)
        usual = None
        if typical is not None:
            usual = Sketch(self.most)
            usual.add(typical)
        order = np.lexsort((np.arange(len(loss)), -distance, -exposure))[:_TOP]
        rows = table.column("row").to_numpy()
        keys = table.column("id") if "id" in table.column_names else None
        return Digest(
            rows=len(loss),
            inside=int(np.count_nonzero(loss > 0)),
            unproved=int(np.count_nonzero(~proved)),
            loose=int(np.count_nonzero(error > 1e-3 * distance)),
            half_width=float(np.max(half[proved], initial=0.0)),
            scores=sketch,
            typical=usual,
            distance=lengths,
            top=tuple(
                TopRow(
                    row=int(rows[place]),
                    key=int(rows[place]) if keys is None else keys[int(place)].as_py(),
                    loss=float(loss[place]),
                    low=float(low[place]),
                    high=float(high[place]),
                    typical=None if typical is None else float(typical[place]),
                    distance=float(distance[place]),
                )
                for place in order
            ),
        )


def digest(of: DigestOf, parts: Mapping[int, Part], engine: Engine) -> Digest:
    """All parts together, in their order."""
    total: Digest | None = None
    for one in engine.map(of, [parts[number] for number in sorted(parts)]):
        total = one if total is None else total.merged(one)
    assert total is not None
    return total


@dataclass(frozen=True, kw_only=True)
class _RankedPart:
    """A part with each row's rank among all rows, and how far that may be off."""

    source: PartStore
    store: PartStore
    scores: Sketch
    noiseless: bool

    def __call__(self, part: Part) -> Part:
        """Write it."""
        table = self.source.read(part)
        name = "distance" if self.noiseless else "exposure"
        least, most = self.scores.ranks(table.column(name).to_numpy())
        place = table.column_names.index("loss")
        # The middle of the ranks that rows of its bucket have, and half their number.
        table = table.add_column(place, "rank", pa.array((least + most + 1) // 2))
        table = table.add_column(place + 1, "rank_error", pa.array((most - least + 1) // 2))
        return self.store.write(part.index, table)


def ranked_parts(
    source: PartStore,
    parts: Mapping[int, Part],
    store: PartStore,
    scores: Sketch,
    engine: Engine,
    *,
    noiseless: bool,
) -> dict[int, Part]:
    """Every part again with ranks, 1 for the most exposed row; those that are there stay."""
    finished = store.finished()
    task = _RankedPart(source=source, store=store, scores=scores, noiseless=noiseless)
    missing = [parts[number] for number in sorted(parts) if number not in finished]
    for part in engine.map(task, missing):
        finished[part.index] = part
    return finished
