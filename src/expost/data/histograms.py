"""Noisy histograms of the columns of a table, and the encoding that follows from them.

Conventions
-----------
p        the columns that are counted: those whose constants are not given.
cell     of a numeric column one of 8 to 64 bins of equal width over its public range, which values
         outside of it are cut to; of a column of levels, a level. Missing cells are a cell of
         their own. Every row is in exactly one cell of each column.
c, N     the count of a cell, and the noisy count that is released: c + noise, rounded to a grid.
σ, T     the scale of the noise, and the threshold of levels. The bins and the missing cells are
         public, so that all of their N are released. Which levels there are is not: the level of a
         cell with c ≥ 1 is released, with its N, if N > T.

The encoding is a function of what is released, so it reveals no more. A mean and a scale follow
from the bins with N > 2σ; a level that was not released makes zeros, as unknown ones do. How the
noise is calibrated, and what the histogram reveals about each row, is in
:mod:`expost.mechanisms.encoded`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expost.data._entries import Entry, LevelEntry, Mark, NumericEntry, finite, members
from expost.data.sources import Kind, Table
from expost.errors import InvalidInput
from expost.types import FloatArray, IntArray

__all__ = [
    "Counted",
    "CountedColumn",
    "HistogramColumn",
    "Histograms",
    "LevelHistogram",
    "NumericHistogram",
    "bins_for",
    "released_columns",
]

_FEWEST_BINS, _MOST_BINS = 8, 64
# A bin of a uniform column holds so many standard deviations of the noise.
_ROWS_A_BIN = 8.0
# Counts of bins, and of missing cells, up to these multiples of the noise count as noise.
_NOTICEABLE, _PRESENT = 2.0, 3.0
# The levels of a column that are counted; a name has as many as there are rows.
_MOST_LEVELS = 100_000
# A column with more released levels is no use as 0/1 features.
_MOST_FEATURES = 1_000


def bins_for(rows: int, scale: float) -> int:
    """Return the number of bins of a numeric column, from public constants alone."""
    return int(min(max(rows / (_ROWS_A_BIN * scale), _FEWEST_BINS), _MOST_BINS))


# -- what is released --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NumericHistogram:
    """The noisy counts of the bins of [``low``, ``high``], and of missing cells."""

    name: str
    low: float
    high: float
    counts: tuple[float, ...]
    missing: float

    KIND: ClassVar[str] = "numeric"

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InvalidInput(f"column {self.name!r}: its range must be (low, high), low < high.")
        if not _FEWEST_BINS <= len(self.counts) <= _MOST_BINS:
            raise InvalidInput(f"column {self.name!r}: its histogram must have 8 to 64 bins.")

    def entry(self, scale: float) -> NumericEntry:
        """Return how the column is encoded; ``scale`` is σ."""
        counts, bins = np.array(self.counts), len(self.counts)
        weight = np.where(counts > _NOTICEABLE * scale, counts, 0.0)
        if not weight.any():
            # Nothing but noise: any value of the range is as good.
            weight = np.ones(bins)
        weight = weight / weight.sum()
        width = (self.high - self.low) / bins
        centres = self.low + width * (np.arange(bins) + 0.5)
        mean = float(weight @ centres)
        # Of a value that is uniform within its bin.
        variance = float(weight @ (centres - mean) ** 2) + width**2 / 12
        return NumericEntry(
            name=self.name,
            mean=mean,
            scale=math.sqrt(variance),
            mark=Mark.PRIVATE,
            fill=mean,
            fill_mark=Mark.PRIVATE,
            indicator=self.missing > _PRESENT * scale,
        )


@dataclass(frozen=True, kw_only=True)
class LevelHistogram:
    """The noisy counts of the levels that passed the threshold, and of missing cells."""

    name: str
    levels: tuple[str, ...]
    counts: tuple[float, ...]
    missing: float

    KIND: ClassVar[str] = "levels"

    def __post_init__(self) -> None:
        if len(self.levels) != len(self.counts) or len(set(self.levels)) != len(self.levels):
            raise InvalidInput(f"column {self.name!r}: must have one count for each level.")

    def entry(self, scale: float) -> LevelEntry | None:
        """Return how the column is encoded; None where no level passed the threshold."""
        missing = Mark.PRIVATE if self.missing > _PRESENT * scale else None
        if not self.levels and missing is None:
            return None
        return LevelEntry(
            name=self.name, levels=self.levels, mark=Mark.PRIVATE, missing_mark=missing
        )


HistogramColumn = NumericHistogram | LevelHistogram
_KINDS: dict[str, type[NumericHistogram] | type[LevelHistogram]] = {
    kind.KIND: kind for kind in (NumericHistogram, LevelHistogram)
}


@dataclass(frozen=True, kw_only=True)
class Histograms:
    """The noisy histograms of the columns of a table: one release.

    Attributes
    ----------
    columns : tuple[HistogramColumn, ...]
        The histogram of each column.
    scale : float
        σ of the noise on every count.
    threshold : float
        T.
    step : float
        The step of the grid that the noisy counts lie on.
    rows : int
        The number n of rows.
    epsilon : float
        ε of the counts, with ``delta``.
    delta : float
        δ of the noise.
    threshold_delta : float
        δ of the levels that pass the threshold.
    rows_per_person : int
        k: the guarantee holds for all rows of a person who has at most k.
    replaces : bool
        Whether it also covers a row that is replaced.
    seeded : bool
        Whether the noise came from a seed.
    """

    columns: tuple[HistogramColumn, ...]
    scale: float
    threshold: float
    step: float
    rows: int
    epsilon: float
    delta: float
    threshold_delta: float
    rows_per_person: int = 1
    replaces: bool = False
    seeded: bool = False

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidInput("histograms: must hold at least one column.")
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise InvalidInput("histograms: a column stands in them twice.")
        levels = self.open_columns > 0
        if not (self.rows >= 2 and self.rows_per_person >= 1 and self.scale > 0):
            raise InvalidInput("histograms: rows, rows_per_person and scale must be positive.")
        if not (0 < self.delta < 1 and 0 <= self.threshold_delta < 1 and self.epsilon > 0):
            raise InvalidInput("histograms: epsilon and the deltas must be positive.")
        if levels is not (self.threshold_delta > 0):
            raise InvalidInput("histograms: threshold_delta belongs to columns of levels.")
        numeric = [column for column in self.columns if isinstance(column, NumericHistogram)]
        if any(len(column.counts) != self.bins for column in numeric):
            raise InvalidInput("histograms: all numeric columns must have as many bins.")

    @property
    def bins(self) -> int:
        """The number of bins of every numeric column."""
        numeric = (column for column in self.columns if isinstance(column, NumericHistogram))
        return next((len(column.counts) for column in numeric), _FEWEST_BINS)

    @property
    def open_columns(self) -> int:
        """The number of columns whose levels are not public."""
        return sum(isinstance(column, LevelHistogram) for column in self.columns)

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each column is read as."""
        return {
            column.name: "text" if isinstance(column, LevelHistogram) else "numeric"
            for column in self.columns
        }

    def entries(self) -> dict[str, Entry | None]:
        """Return the entry of each column; None where there is nothing to encode."""
        return {column.name: column.entry(self.scale) for column in self.columns}

    def to_json(self) -> dict[str, Any]:
        """Return the release as JSON values."""
        constants = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "columns"
        }
        columns = [
            {
                "kind": column.KIND,
                **{
                    field.name: list(value) if isinstance(value, tuple) else value
                    for field in fields(column)
                    for value in [getattr(column, field.name)]
                },
            }
            for column in self.columns
        ]
        return {**constants, "columns": columns}

    @classmethod
    def from_json(cls, value: Any) -> "Histograms":
        """Return the release that :meth:`to_json` wrote; anything else is refused."""
        names = [field.name for field in fields(cls)]
        known = members("histograms", value, required=names)
        if not isinstance(known["columns"], list):
            raise InvalidInput("histograms.columns: must be a list.")
        for name in ("replaces", "seeded"):
            if not isinstance(known[name], bool):
                raise InvalidInput(f"histograms.{name}: must be true or false.")
        for name in ("rows", "rows_per_person"):
            if not isinstance(known[name], int) or isinstance(known[name], bool):
                raise InvalidInput(f"histograms.{name}: must be an integer.")
        for name in ("scale", "threshold", "step", "epsilon", "delta", "threshold_delta"):
            known[name] = finite(f"histograms.{name}", known[name])
            if not known[name] >= 0:
                raise InvalidInput(f"histograms.{name}: must be at least 0.")
        known["columns"] = tuple(_column_from_json(column) for column in known["columns"])
        return cls(**known)


def _column_from_json(value: Any) -> HistogramColumn:
    """Return the histogram of one column."""
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if kind not in _KINDS:
        raise InvalidInput(f"histograms.columns: the kind must be one of {', '.join(_KINDS)}.")
    own = _KINDS[kind]
    names = [field.name for field in fields(own)]
    known = members("histograms.columns", value, required=("kind", *names))
    del known["kind"]
    where = f"histograms of {known['name']!r}"
    if not isinstance(known["name"], str) or not isinstance(known["counts"], list):
        raise InvalidInput("histograms.columns: need a name and a list of counts.")
    known["counts"] = tuple(finite(where, count) for count in known["counts"])
    for name in ("low", "high", "missing"):
        if name in known:
            known[name] = finite(f"{where}.{name}", known[name])
    if "levels" in known:
        levels = known["levels"]
        if not isinstance(levels, list) or not all(isinstance(level, str) for level in levels):
            raise InvalidInput(f"{where}: its levels must be strings.")
        known["levels"] = tuple(levels)
    return own(**known)


# -- the counts of a table ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CountedColumn:
    """The cells of a column and their counts (m,), the missing cell last.

    Attributes
    ----------
    range : tuple[float, float] | None
        (low, high) of a numeric column; None of a column of levels.
    levels : tuple[str, ...]
        The levels that the column holds, sorted; empty for numbers.
    """

    name: str
    counts: IntArray
    range: tuple[float, float] | None = None
    levels: tuple[str, ...] = ()

    def cells(self, values: Any) -> NDArray[np.int32]:
        """Return the cell of each of ``values``, an Arrow array."""
        if self.range is not None:
            return _bins(values, self.range, len(self.counts) - 1)
        index = pc.index_in(values, value_set=pa.array(self.levels, type=values.type))
        indices = np.asarray(pc.fill_null(index, -1), dtype=np.int32)
        if np.any((indices < 0) & ~np.asarray(values.is_null())):
            raise InvalidInput(
                f"column {self.name!r}: holds a level that it did not hold before: the table"
                " changed while it was being read; start again."
            )
        return np.where(indices < 0, len(self.levels), indices).astype(np.int32)


def _bins(values: Any, ends: tuple[float, float], bins: int) -> NDArray[np.int32]:
    """Return the bin of each number, values outside of the range in its first or last one."""
    low, high = ends
    numbers = np.asarray(pc.fill_null(values, low), dtype=np.float64)
    with np.errstate(over="ignore"):
        places = np.floor((numbers - low) * (bins / (high - low)))
    index = np.clip(places, 0, bins - 1).astype(np.int32)
    return np.where(np.asarray(values.is_null()), bins, index).astype(np.int32)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Counted:
    """The exact counts of the cells of some columns of a table. They are not private."""

    columns: tuple[CountedColumn, ...]

    @classmethod
    def of(
        cls, table: Table, columns: Mapping[str, tuple[float, float] | None], bins: int
    ) -> "Counted":
        """Count the cells in one pass; ``columns`` have a range, or None if they have levels."""
        table = table.retyped(
            {name: "text" if ends is None else "numeric" for name, ends in columns.items()}
        )
        numbers = {name: np.zeros(bins + 1, dtype=np.int64) for name in columns}
        levels: dict[str, dict[str | None, int]] = {name: {} for name in columns}
        task = _BlockCounts(ranges=tuple(columns.values()), bins=bins)
        for counts in table.map(task, list(columns)):
            for (name, ends), own in zip(columns.items(), counts, strict=True):
                if ends is not None:
                    numbers[name] += own
                else:
                    _add(levels[name], own, name)
        return cls(
            columns=tuple(
                _counted_levels(name, levels[name])
                if ends is None
                else CountedColumn(name=name, counts=numbers[name], range=ends)
                for name, ends in columns.items()
            )
        )

    @classmethod
    def of_release(cls, table: Table, release: Histograms) -> "Counted":
        """Count the cells of a table as a release of it counted them."""
        ranges = {
            column.name: (column.low, column.high) if isinstance(column, NumericHistogram) else None
            for column in release.columns
        }
        table.require(ranges)
        return cls.of(table, ranges, release.bins)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each column is read as."""
        return {
            column.name: "text" if column.range is None else "numeric" for column in self.columns
        }

    def cells(self, block: Any) -> NDArray[np.int32]:
        """Return the cells (m, p) of the rows of a block."""
        columns = [column.cells(block.column(column.name)) for column in self.columns]
        return np.stack(columns, axis=1)

    def cells_of(self, table: Table) -> NDArray[np.int32]:
        """Return the cells (n, p) of all rows of a table."""
        blocks = table.retyped(self.kinds).blocks(columns=self.names)
        return np.concatenate([self.cells(block) for block in blocks])


@dataclass(frozen=True, kw_only=True)
class _BlockCounts:
    """The task that counts the cells of a block; ``ranges``: None for a column of levels."""

    ranges: tuple[tuple[float, float] | None, ...]
    bins: int

    def __call__(self, batch: Any) -> list[Any]:
        """Return the counts of each column: of its bins, or pairs of a level and its count."""
        return [
            pc.value_counts(cells).to_pylist()
            if ends is None
            else np.bincount(_bins(cells, ends, self.bins), minlength=self.bins + 1)
            for ends, cells in zip(self.ranges, batch.columns, strict=True)
        ]


def _add(counts: dict[str | None, int], pairs: list[dict[str, Any]], name: str) -> None:
    """Add the levels of a block to the counts of a column."""
    for pair in pairs:
        counts[pair["values"]] = counts.get(pair["values"], 0) + pair["counts"]
    if len(counts) > _MOST_LEVELS:
        raise InvalidInput(
            f"column {name!r}: has more than {_MOST_LEVELS:,} levels; drop it, or name it as the"
            " id column."
        )


def _counted_levels(name: str, counts: dict[str | None, int]) -> CountedColumn:
    """Return a column of levels from its counts; None is the missing cell."""
    levels = tuple(sorted(level for level in counts if level is not None))
    each = [*(counts[level] for level in levels), counts.get(None, 0)]
    return CountedColumn(name=name, counts=np.array(each), levels=levels)


def released_columns(
    counted: Iterable[CountedColumn], noisy: Sequence[FloatArray], threshold: float
) -> tuple[HistogramColumn, ...]:
    """Return what is released of noisy counts: every bin, and the levels past the threshold."""
    released: list[HistogramColumn] = []
    for column, counts in zip(counted, noisy, strict=True):
        *cells, missing = map(float, counts)
        if column.range is not None:
            low, high = column.range
            released.append(
                NumericHistogram(
                    name=column.name, low=low, high=high, counts=tuple(cells), missing=missing
                )
            )
            continue
        passed = [
            (level, count)
            for level, count in zip(column.levels, cells, strict=True)
            if count > threshold
        ]
        if len(passed) > _MOST_FEATURES:
            raise InvalidInput(
                f"column {column.name!r}: more than {_MOST_FEATURES:,} levels would be released;"
                " drop it, or give its levels."
            )
        released.append(
            LevelHistogram(
                name=column.name,
                levels=tuple(level for level, _ in passed),
                counts=tuple(count for _, count in passed),
                missing=missing,
            )
        )
    return tuple(released)
