"""Published bounds compared with the exact losses, row by row. Curator-only.

The comparison is a map over blocks of rows, in memory or read from a table. Its columns of rows in
memory are held; those of rows that are read are written as parts. Aggregates follow from one digest
of both, whose order statistics are exact or counted.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from expost._order import Histogram, OrderStatistics, Sorted
from expost.errors import InvalidInput
from expost.files.atomic import write_bytes
from expost.files.parts import Part, PartStore
from expost.files.sealed import plain
from expost.publishing.publish import ReleasedRows
from expost.publishing.report import PublishedReport
from expost.results import RowTable
from expost.rows import RowBlock
from expost.types import Audience, FloatArray

__all__ = ["TABLE", "Comparison", "ComparisonFigures", "compare", "read_comparison"]

_FORMAT = "expost-comparison/2"
# The table with a line for each row: a file, or a folder of parts.
TABLE = Audience.CURATOR_ONLY.file_name("comparison", "parquet")
# The key of the maxima in the metadata of a part.
_ABOUT = "expost"


@dataclass(frozen=True, kw_only=True)
class ComparisonFigures:
    """Aggregates of all rows; they depend on the data.

    Parameters
    ----------
    failures : int
        Rows whose exposure exceeds their bound.
    median_ratio : float
        The median of bound/exposure; infinite if most rows have no exposure.
    median_error : float, default=0.0
        The relative error of the medians: 0 for rows in memory; otherwise a median ratio above 2³⁹
        is reported as infinite.
    """

    rows: int
    failures: int
    fails_with: float
    median_exposure: float
    largest_exposure: float
    median_bound: float
    largest_bound: float
    median_ratio: float
    median_error: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(RowTable):
    """The published bound of each row compared with its exact exposure.

    Parameters
    ----------
    description : str
        The model in one line.
    held : Mapping[str, Any], optional
        The columns of rows in memory; None: they are in the parts of a table.
    """

    description: str
    figures: ComparisonFigures
    held: Mapping[str, Any] | None = None

    audience = Audience.CURATOR_ONLY

    def __len__(self) -> int:
        return self.figures.rows

    def columns(self) -> dict[str, Any]:
        """Return every per-row figure, by name."""
        if self.held is None:
            raise InvalidInput(
                "the comparison of rows that are read in blocks holds no figure of each row; read"
                f" the folder {TABLE}."
            )
        return dict(self.held)

    def summary(self) -> dict[str, Any]:
        """Return the figures by name, as JSON holds them."""
        aggregates = self.figures
        figures = {
            "rows": aggregates.rows,
            "failures": aggregates.failures,
            "fails_with": aggregates.fails_with,
            "median exposure": aggregates.median_exposure,
            "largest exposure": aggregates.largest_exposure,
            "median bound": plain(aggregates.median_bound),
            "largest bound": plain(aggregates.largest_bound),
            "median ratio": plain(aggregates.median_ratio),
        }
        error = aggregates.median_error
        return figures | ({"median error": error} if error else {})

    def to_json(self, path: str | Path) -> Path:
        """Write the comparison to a CURATOR-ONLY file.

        ``table`` holds the columns of rows in memory, or names the folder of the parts.
        """
        value = {
            "format": _FORMAT,
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "model": self.description,
            "rows": len(self),
            "summary": self.summary(),
            "table": TABLE if self.held is None else plain(self.columns()),
        }
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        return write_bytes(self.audience.path(path), self.audience, text.encode())


def compare(report: PublishedReport, rows: ReleasedRows) -> Comparison:
    """Return the report's bounds and the exact losses of rows in memory."""
    held = rows.objective.held
    blocks = [columns for columns, _ in held.map(_ComparedColumns.of(report, rows))]
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    keys = {} if held.ids is None else {"id": list(held.ids)}
    digest = _Digest.of(columns["exposure"], columns["bound"], lambda _, values: Sorted(values))
    return Comparison(
        description=rows.release.mechanism.describe(),
        figures=digest.figures(report.fails_with),
        held={"row": np.arange(held.count), **keys, **columns},
    )


def compare_parts(report: PublishedReport, rows: ReleasedRows, store: PartStore) -> dict[int, Part]:
    """Write the report's bounds and the exact losses of rows that are read, as parts."""
    return rows.objective.table.write_parts(_ComparedColumns.of(report, rows), store)


def read_comparison(
    report: PublishedReport, description: str, store: PartStore, engine: Any
) -> Comparison:
    """Return the comparison whose parts are in ``store``, which is finished."""
    parts = store.parts()
    maxima = reduce(_larger, engine.map(partial(_read_maxima, store), parts))
    digest = reduce(_Digest.merged, engine.map(partial(_read_digest, store, maxima), parts))
    return Comparison(description=description, figures=digest.figures(report.fails_with))


@dataclass(frozen=True, kw_only=True, eq=False)
class _ComparedColumns:
    """The columns of a comparison, and the largest finite exposure and bound."""

    losses: Callable[[RowBlock], FloatArray]
    report: PublishedReport

    @classmethod
    def of(cls, report: PublishedReport, rows: ReleasedRows) -> "_ComparedColumns":
        """Return the task; the common part of all bounds is computed here, once."""
        _ = report.exposure_bound, None if report.tangent is None else report.tangent.costs
        return cls(losses=rows.losses, report=report)

    def __call__(self, block: RowBlock) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """Return the columns of the rows of a block, and their maxima."""
        loss, bounds = self.losses(block), self.report.bounds(block.X, block.y)
        exposure = np.abs(loss)
        columns = {
            "loss": loss,
            "exposure": exposure,
            "bound": bounds.exposure,
            "ratio": _ratios(bounds.exposure, exposure),
            "epsilon_gradient": bounds.epsilon_gradient,
            "epsilon_hessian": bounds.epsilon_hessian,
            "everything": bounds.everything,
        }
        return columns, {name: _largest_finite(columns[name]) for name in ("exposure", "bound")}

    def about(self, notes: Sequence[dict[str, float]]) -> dict[str, str]:
        """Return the maxima of the rows of a part, and its audience."""
        return {"audience": Audience.CURATOR_ONLY.value, _ABOUT: json.dumps(reduce(_larger, notes))}


def _ratios(bound: FloatArray, exposure: FloatArray) -> FloatArray:
    """Return bound/exposure: at least 1 if the bound holds, infinite without exposure."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(exposure > 0, bound / np.where(exposure > 0, exposure, 1), np.inf)


# -- aggregates ------------------------------------------------------------------------------------


def _largest_finite(values: FloatArray) -> float:
    return float(np.max(values[np.isfinite(values)], initial=0.0))


def _larger(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    return {name: max(value, second[name]) for name, value in first.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Digest:
    """Order statistics of the exposures, the bounds and exposure/bound of some rows.

    Not of the ratio itself, which has any size where a row loses next to nothing: a histogram
    resolves values within forty powers of two below the largest.
    """

    failures: int
    exposure: OrderStatistics
    bound: OrderStatistics
    share: OrderStatistics

    @classmethod
    def of(
        cls,
        exposure: FloatArray,
        bound: FloatArray,
        statistics: Callable[[str, FloatArray], OrderStatistics],
    ) -> "_Digest":
        """Return the digest of rows; ``statistics`` makes those of a column by its name."""
        if not (np.all(exposure >= 0) and np.all(bound >= 0)):
            raise ArithmeticError("an exposure or a bound is not a number")
        with np.errstate(divide="ignore"):
            share = 1 / _ratios(bound, exposure)
        return cls(
            failures=int(np.count_nonzero(exposure > bound)),
            exposure=statistics("exposure", exposure),
            bound=statistics("bound", bound),
            share=statistics("share", share),
        )

    def merged(self, other: "_Digest") -> "_Digest":
        """Return the digest of the rows of both."""
        for name in ("exposure", "bound", "share"):
            getattr(self, name).merge(getattr(other, name))
        return replace(self, failures=self.failures + other.failures)

    def figures(self, fails_with: float) -> ComparisonFigures:
        """Return the aggregates; medians are accurate to half the error of the statistics."""
        with np.errstate(divide="ignore"):
            ratio = float(np.mean(1 / _median_values(self.share)))
        return ComparisonFigures(
            rows=self.bound.count,
            failures=self.failures,
            fails_with=fails_with,
            median_exposure=float(np.mean(_median_values(self.exposure))),
            largest_exposure=self.exposure.largest,
            median_bound=float(np.mean(_median_values(self.bound))),
            largest_bound=self.bound.largest,
            median_ratio=ratio,
            median_error=self.exposure.error / 2,
        )


def _median_values(statistics: OrderStatistics) -> FloatArray:
    """Return the two middle values, whose mean is the median."""
    rows = statistics.count
    return statistics.at(np.array([(rows + 1) // 2, rows // 2 + 1]))


def _read_maxima(store: PartStore, part: Part) -> dict[str, float]:
    """Return the largest finite exposure and bound of the rows of a part, which it stores."""
    maxima: dict[str, float] = json.loads(store.about(part)[_ABOUT.encode()])
    return maxima


def _read_digest(store: PartStore, maxima: dict[str, float], part: Part) -> _Digest:
    """Return the digest of the rows of a part, whose order statistics are counted."""
    table = store.read(part, ["exposure", "bound"])
    exposure, bound = (table.column(name).to_numpy() for name in ("exposure", "bound"))

    def counted(name: str, values: FloatArray) -> OrderStatistics:
        if name == "share":
            # The median is not among shares past 2, or bounds do not hold.
            return Histogram.of(np.minimum(values, 2.0), 2.0)
        return Histogram.of(values, maxima[name])

    return _Digest.of(exposure, bound, counted)
