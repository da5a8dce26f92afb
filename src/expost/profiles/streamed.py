"""The privacy profile of a table of any length, in parts (LeBlond 4.3).

Three steps, of which only the first one goes over the rows:

losses   every worker works out the losses of its rows and writes them as a part;
digest   each part's counts are added up: quantiles and ranks follow from a histogram;
ranks    every part is written again with each row's rank among all.

A part is the same bytes whoever made it, and a part that is there is not made again. What a worker
sends back is a few counts, and those of its rows that may be among the most exposed of all.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit

from expost._order import Histogram, ranking
from expost.engine import Engine
from expost.engine.progress import SILENT, Progress
from expost.errors import InvalidInput
from expost.files.parts import Part, PartStore
from expost.mechanisms import OutputPerturbation, RowLosses
from expost.noise.tabulated import Table as ExposureTable
from expost.profiles.figures import BELIEF
from expost.profiles.streamed_losses import BlockLosses
from expost.profiles.streamed_posterior import BeliefDigest
from expost.rows import RowBlock, RowStream
from expost.types import Audience, FloatArray

__all__ = [
    "Digest",
    "Fits",
    "Tops",
    "digest",
    "most_exposed",
    "ranked_parts",
    "row_parts",
    "tops_of",
]

# The key of what a part says of itself.
_ABOUT = b"expost"
# What is kept of the most exposed rows.
_TOP_COLUMNS = ("row", "id", "loss", "loss_low", "loss_high", "typical", "distance")


# -- losses ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fits:
    """How well two models predict some rows: the released one, and the one without noise.

    Of classes: how many rows each gets ``right``. Of numbers: the ``errors`` squared and added up,
    and the labels' mean and squared deviations. Two add up to those of both.
    """

    rows: int = 0
    right: tuple[int, int] = (0, 0)
    errors: tuple[float, float] = (0.0, 0.0)
    mean: float = 0.0
    spread: float = 0.0

    @classmethod
    def of(cls, block: RowBlock, models: tuple[FloatArray, FloatArray]) -> "Fits":
        """Those of a block."""
        z = [block.X @ theta for theta in models]
        mean = float(np.mean(block.y))
        return cls(
            rows=len(block),
            right=_pair(int(np.count_nonzero((one > 0) == (block.y > 0))) for one in z),
            errors=_pair(float(np.sum((one - block.y) ** 2)) for one in z),
            mean=mean,
            spread=float(np.sum((block.y - mean) ** 2)),
        )

    def merged(self, other: "Fits") -> "Fits":
        """Both together (Chan, Golub and LeVeque 1983, for the spread)."""
        rows, step = self.rows + other.rows, other.mean - self.mean
        if not rows:
            return self
        return Fits(
            rows=rows,
            right=_pair(sum(both) for both in zip(self.right, other.right, strict=True)),
            errors=_pair(sum(both) for both in zip(self.errors, other.errors, strict=True)),
            mean=self.mean + step * (other.rows / rows),
            spread=self.spread + other.spread + step * step * (self.rows * other.rows / rows),
        )


def _pair(values: Iterable[Any]) -> tuple[Any, Any]:
    first, second = values
    return first, second


@dataclass(frozen=True, kw_only=True)
class Tops:
    """The largest finite figures of some rows, by which histograms know where to begin.

    ``loss``  of either end of a loss's interval, in size;  ``fits`` of the models.
    """

    exposure: float = 0.0
    loss: float = 0.0
    typical: float = 0.0
    distance: float = 0.0
    fits: Fits = Fits()

    def merged(self, other: "Tops") -> "Tops":
        """Both together."""
        names = ("exposure", "loss", "typical", "distance")
        most = {name: max(getattr(self, name), getattr(other, name)) for name in names}
        return Tops(**most, fits=self.fits.merged(other.fits))

    def to_json(self) -> str:
        """As a part holds it; every digit is kept."""
        fits = {**self.fits.__dict__}
        return json.dumps({**self.__dict__, "fits": fits}, allow_nan=False)

    @classmethod
    def from_json(cls, text: bytes) -> "Tops":
        """The inverse."""
        value = json.loads(text)
        fits = value.pop("fits")
        fits |= {name: tuple(fits[name]) for name in ("right", "errors")}
        return cls(**value, fits=Fits(**fits))


@dataclass(frozen=True, kw_only=True)
class _RowPart:
    """Work out one part: the losses of the rows of one item."""

    stream: RowStream
    losses: BlockLosses
    typical: ExposureTable | None
    models: tuple[FloatArray, FloatArray]
    store: PartStore

    def __call__(self, numbered: tuple[int, Any]) -> Part:
        """Write it."""
        number, item = numbered
        tables, tops = [], Tops()
        for block in self.stream.blocks(item):
            rows = RowBlock.of(block.X, block.y)
            found = _columns(block.start, block.ids, self.losses(rows), self.typical)
            tops = tops.merged(replace(_tops(found), fits=Fits.of(rows, self.models)))
            tables.append(found)
        whole = pa.concat_tables(tables).combine_chunks()
        about = {_ABOUT: tops.to_json().encode()}
        return self.store.write(number, whole.replace_schema_metadata(about))


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
    if losses.noiseless:
        columns["typical"] = exposure
    elif typical is not None:
        columns["typical"] = typical(losses.distance)
    columns |= {"distance": losses.distance, "distance_error": losses.distance_error}
    return pa.table(columns)


def _tops(table: Any) -> Tops:
    def most(*names: str) -> float:
        found = [np.abs(table.column(name).to_numpy()) for name in names]
        return max(float(np.max(one[np.isfinite(one)], initial=0.0)) for one in found)

    known = "typical" in table.column_names
    return Tops(
        exposure=most("exposure"),
        loss=most("loss", "loss_low", "loss_high"),
        typical=most("typical") if known else 0.0,
        distance=most("distance"),
    )


def row_parts(
    stream: RowStream,
    losses: BlockLosses,
    models: tuple[FloatArray, FloatArray],
    store: PartStore,
    engine: Engine,
    progress: Progress = SILENT,
    *,
    finished: Mapping[int, Part],
) -> dict[int, Part]:
    """The losses of all rows as parts of ``store``; those that are ``finished`` are not made again.

    ``models``  the released θ, and the one without noise: how well they predict is noted too.
    """
    how = losses.mechanism
    typical = None
    if isinstance(how, OutputPerturbation) and how.is_private:
        typical = ExposureTable.of(
            how.loss_law, 1 / how.resolution, how.sensitivity / how.resolution
        )
    progress.rows(stream.count)
    progress.advance(sum(part.rows for part in finished.values()))
    parts = dict(finished)
    task = _RowPart(stream=stream, losses=losses, typical=typical, models=models, store=store)
    missing = ((n, item) for n, item in enumerate(stream.items()) if n not in finished)
    for part in engine.map(task, missing):
        parts[part.index] = part
        progress.advance(part.rows)
    if sum(part.rows for part in parts.values()) != stream.count:
        raise InvalidInput(
            f"{store.folder}: its parts do not hold every row once; pass --force without --resume"
            " to start again, or name another folder."
        )
    return {number: parts[number] for number in sorted(parts)}


# -- digest ----------------------------------------------------------------------------------------


class _TopsOf:
    """What a part says of itself."""

    def __init__(self, store: PartStore) -> None:
        self._store = store

    def __call__(self, part: Part) -> Tops:
        """Read it."""
        return Tops.from_json(self._store.about(part)[_ABOUT])


def tops_of(store: PartStore, parts: Mapping[int, Part], engine: Engine) -> Tops:
    """The largest figures of all parts together."""
    total = Tops()
    for one in engine.map(_TopsOf(store), [parts[number] for number in sorted(parts)]):
        total = total.merged(one)
    return total


@dataclass(frozen=True, kw_only=True, eq=False)
class Digest:
    """What is known of all rows of some parts together; two add up to that of both.

    ``scores``     exposures, or distances where there is no noise; ``infinite`` ones are counted.
    ``half_width`` the largest proved half width of a loss's interval, but for ``unproved`` rows.
    ``least``      the largest lower end of an exposure's interval; ``outer`` the largest upper end.
    ``farthest``   the largest distance, with its error;  ``nearest`` the least one above 0.
    ``loose``      rows whose certificate leaves more than a thousandth of their distance open.
    ``beliefs``    how sure an attacker gets of them; None where there is no noise.
    """

    rows: int
    inside: int
    unproved: int
    loose: int
    infinite: int
    past_promise: int
    proved_past: int
    past_belief: int
    half_width: float
    least: float
    outer: float
    farthest: float
    nearest: float
    scores: Histogram
    typical: Histogram | None
    distance: Histogram
    beliefs: BeliefDigest | None

    def merged(self, other: "Digest") -> "Digest":
        """Both together."""
        self.scores.merge(other.scores)
        self.distance.merge(other.distance)
        if self.typical is not None and other.typical is not None:
            self.typical.merge(other.typical)
        counts = (
            *("rows", "inside", "unproved", "loose", "infinite"),
            *("past_promise", "proved_past", "past_belief"),
        )
        most = ("half_width", "least", "outer", "farthest")
        return replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in counts},
            **{name: max(getattr(self, name), getattr(other, name)) for name in most},
            nearest=min(self.nearest, other.nearest),
            beliefs=None
            if self.beliefs is None or other.beliefs is None
            else self.beliefs.merged(other.beliefs),
        )


@dataclass(frozen=True, kw_only=True)
class _DigestOf:
    """The digest of one part."""

    store: PartStore
    tops: Tops
    worst_case: float
    noiseless: bool

    def __call__(self, part: Part) -> Digest:
        """Read the part, and count."""
        table = self.store.read(part)
        names = ("loss", "loss_low", "loss_high", "exposure", "distance", "distance_error")
        loss, low, high, exposure, distance, error = (
            table.column(name).to_numpy() for name in names
        )
        scores = distance if self.noiseless else exposure
        if not np.all(scores >= 0):
            raise ArithmeticError("an exposure is not a number")
        with np.errstate(invalid="ignore"):
            half = np.zeros(len(loss)) if self.noiseless else 0.5 * (high - low)
        proved = np.isfinite(half)
        least = np.maximum(np.maximum(low, -high), 0.0)
        typical = None
        if "typical" in table.column_names and not self.noiseless:
            typical = Histogram.of(table.column("typical").to_numpy(), self.tops.typical)
        return Digest(
            rows=len(loss),
            inside=int(np.count_nonzero(loss > 0)),
            unproved=int(np.count_nonzero(~proved)),
            loose=int(np.count_nonzero(error > 1e-3 * distance)),
            infinite=int(np.count_nonzero(np.isinf(scores))),
            past_promise=int(np.count_nonzero(exposure > self.worst_case)),
            proved_past=int(np.count_nonzero(least > self.worst_case)),
            past_belief=int(np.count_nonzero(expit(exposure) > BELIEF)),
            half_width=float(np.max(half[proved], initial=0.0)),
            least=float(np.max(least)),
            outer=float(np.max(np.maximum(np.abs(low), np.abs(high)))),
            farthest=float(np.max(distance + error)),
            nearest=float(np.min(distance[distance > 0], initial=np.inf)),
            scores=Histogram.of(
                scores, self.tops.distance if self.noiseless else self.tops.exposure
            ),
            typical=typical,
            distance=Histogram.of(distance, self.tops.distance),
            beliefs=None if self.noiseless else BeliefDigest.of(table, self.tops.loss),
        )


def digest(
    store: PartStore,
    parts: Mapping[int, Part],
    tops: Tops,
    engine: Engine,
    *,
    worst_case: float,
    noiseless: bool,
) -> Digest:
    """All parts together, in their order."""
    task = _DigestOf(store=store, tops=tops, worst_case=worst_case, noiseless=noiseless)
    total: Digest | None = None
    for one in engine.map(task, [parts[number] for number in sorted(parts)]):
        total = one if total is None else total.merged(one)
    assert total is not None
    return total


# -- ranks -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _RankedPart:
    """A part with each row's rank among all rows, and how far that may be off.

    ``most``  how many of the most exposed rows of all are wanted.
    """

    source: PartStore
    store: PartStore
    scores: Histogram
    noiseless: bool
    most: int

    def __call__(self, asked: tuple[Part, Part | None]) -> tuple[Part, Any]:
        """Write it, unless it is there; its rows that may be among the most exposed of all."""
        part, made = asked
        table = self.source.read(part)
        least, last = self.scores.ranks(self._scores(table))
        if made is None:
            place = table.column_names.index("loss")
            # The middle of the ranks that rows of its bucket have, and half their number.
            ranked = table.add_column(place, "rank", pa.array((least + last + 1) // 2))
            ranked = ranked.add_column(
                place + 1, "rank_error", pa.array((last - least + 1) // 2)
            ).replace_schema_metadata({"audience": Audience.FAIL.value})
            made = self.store.write(part.index, ranked)
        names = [name for name in _TOP_COLUMNS if name in table.column_names]
        chosen = table.select(names).take(np.flatnonzero(least <= self.most))
        return made, most_exposed(chosen, self.most, noiseless=self.noiseless)

    def _scores(self, table: Any) -> FloatArray:
        values: FloatArray = table.column("distance" if self.noiseless else "exposure").to_numpy()
        return values


def most_exposed(table: Any, most: int, *, noiseless: bool) -> Any:
    """The ``most`` most exposed rows, in order; equal ones by distance, then as in the table."""
    loss, distance = (table.column(name).to_numpy() for name in ("loss", "distance"))
    exposure = np.zeros(len(loss)) if noiseless else np.abs(loss)
    order = ranking(exposure, distance)[:most]
    return table.replace_schema_metadata(None).take(order).combine_chunks()


def ranked_parts(
    source: PartStore,
    parts: Mapping[int, Part],
    store: PartStore,
    scores: Histogram,
    engine: Engine,
    *,
    noiseless: bool,
    most: int,
    progress: Progress = SILENT,
) -> tuple[dict[int, Part], Any]:
    """Every part again with ranks, 1 for the most exposed row; those that are there stay.

    Beside them the ``most`` most exposed rows, in order: these ranks are exact.
    """
    finished = store.finished()
    task = _RankedPart(source=source, store=store, scores=scores, noiseless=noiseless, most=most)
    asked = [(parts[number], finished.get(number)) for number in sorted(parts)]
    progress.rows(sum(part.rows for part in parts.values()))
    top: list[Any] = []
    for (part, _), (made, some) in zip(asked, engine.map(task, asked), strict=True):
        finished[part.index] = made
        progress.advance(part.rows)
        top.append(some)
        if sum(len(one) for one in top) > 2 * most:
            top = [most_exposed(pa.concat_tables(top), most, noiseless=noiseless)]
    return finished, most_exposed(pa.concat_tables(top), most, noiseless=noiseless)
