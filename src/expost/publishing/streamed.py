"""A published report of a table of any length, and its bounds beside the exact losses, in parts.

The report is made from the tangent of J at θ, which is a sum over blocks (R&W Alg. 2); whatever the
rows' number, it holds θ, d numbers and d² more. The comparison is a map over blocks: a part is the
same bytes whoever made it, and a part that is there is not made again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from expost._order import Histogram
from expost.engine import Engine
from expost.engine.progress import SILENT, Progress
from expost.files.parts import Part, PartStore
from expost.glm import Objective
from expost.mechanisms.publishing import TangentMechanism, person_costs
from expost.profiles.streamed_losses import BlockLosses
from expost.publishing.compare import ComparisonFigures, ratios
from expost.publishing.publish import Asked
from expost.publishing.report import PublishedReport
from expost.rows import RowBlock, RowStream
from expost.types import Audience, FloatArray

__all__ = ["CostTable", "compared_parts", "figures_of", "streamed_report"]

# Exact values of ε between which those of rows are interpolated, and the powers of two they span.
_COSTS, _OCTAVES = 4000, 30
# What the separations of rows, which count θ's whole cell, may be past that of the worst row.
_ROOM = 1 + 1e-6


def streamed_report(asked: Asked, losses: BlockLosses, problem: Objective) -> PublishedReport:
    """The report that was asked for; a data-dependent one draws, and spends.

    ``losses``  of the model's rows, by which these have been found to be the right ones.
    """
    if asked.extra is None:
        return asked.report(None)
    tangent = losses.tangent
    assert tangent is not None
    return asked.report(replace(tangent, objective=problem))


@dataclass(frozen=True, kw_only=True, eq=False)
class CostTable:
    """The least ε at δ of Gaussian mechanisms, at the μ of ``points`` (ascending from 0).

    ε is convex in μ (:func:`~expost.mechanisms.publishing.person_costs`), so that a chord lies
    above it: by at most 3e-5 of it, or of 1e-4 where that is more. The points are public constants:
    unlike those of ``person_costs`` they do not depend on which rows are asked for together.
    """

    points: FloatArray
    costs: FloatArray

    @classmethod
    def of(cls, how: TangentMechanism) -> "CostTable":
        """For all rows there can be under ``how``."""
        slope, curvature = np.array([how.slope_bound]), np.array([how.how.loss.curvature_bound])
        top = float(np.max(how.separations(slope, curvature))) * _ROOM
        points = np.append(0.0, np.geomspace(top * 2.0**-_OCTAVES, top, _COSTS))
        return cls(points=points, costs=person_costs(points, how.budget.delta))

    def __call__(self, separation: FloatArray, delta: float) -> FloatArray:
        """The costs of rows; past the last point nothing is known, and so they are infinite."""
        found = np.interp(separation, self.points, self.costs, right=np.inf) * (1 + 1e-15)
        return np.where(separation > 0, found, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class _ComparedPart:
    """Work out one part: bounds and exact losses of the rows of one item."""

    stream: RowStream
    losses: BlockLosses
    report: PublishedReport
    store: PartStore

    def __call__(self, numbered: tuple[int, Any]) -> Part:
        """Write it."""
        number, item = numbered
        blocks = [self._columns(block) for block in self.stream.blocks(item)]
        table = pa.concat_tables(blocks).combine_chunks()
        return self.store.write(
            number, table.replace_schema_metadata({"audience": Audience.FAIL.value})
        )

    def _columns(self, block: RowBlock) -> Any:
        """The columns of a comparison in memory, for one block."""
        loss = self.losses(RowBlock.of(block.X, block.y)).loss
        bound, first, second, everything = self.report.told(block.X, block.y, *self._costs)
        exposure = np.abs(loss)
        columns: dict[str, Any] = {"row": np.arange(block.start, block.start + len(block))}
        if block.ids is not None:
            columns["id"] = pa.array(block.ids, pa.string())
        return pa.table(
            columns
            | {
                "loss": loss,
                "exposure": exposure,
                "bound": bound,
                "ratio": ratios(bound, exposure),
                "epsilon_gradient": first,
                "epsilon_hessian": second,
                "everything": everything,
            }
        )

    @cached_property
    def _costs(self) -> tuple[CostTable, ...]:
        return () if self.report.tangent is None else (CostTable.of(self.report.tangent),)


def compared_parts(
    stream: RowStream,
    losses: BlockLosses,
    report: PublishedReport,
    store: PartStore,
    engine: Engine,
    progress: Progress = SILENT,
) -> dict[int, Part]:
    """All rows' bounds beside their losses, as parts of ``store``; those that are there stay."""
    finished = store.finished()
    progress.rows(stream.count)
    for part in finished.values():
        progress.advance(part.rows)
    task = _ComparedPart(stream=stream, losses=losses, report=report, store=store)
    # So that no worker has to.
    _ = task._costs, report.exposure_bound
    missing = ((n, item) for n, item in enumerate(stream.items()) if n not in finished)
    for part in engine.map(task, missing):
        finished[part.index] = part
        progress.advance(part.rows)
    return {number: finished[number] for number in sorted(finished)}


# -- aggregates ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Tops:
    """How many rows there are, how many fail, and the largest figures among them.

    ``exposure``, ``bound``  (the largest one, the largest finite one, how many are infinite)
    """

    rows: int
    failures: int
    exposure: tuple[float, float, int]
    bound: tuple[float, float, int]

    def merged(self, other: "_Tops") -> "_Tops":
        """Both together."""
        return _Tops(
            rows=self.rows + other.rows,
            failures=self.failures + other.failures,
            exposure=_both(self.exposure, other.exposure),
            bound=_both(self.bound, other.bound),
        )


def _top(values: FloatArray) -> tuple[float, float, int]:
    finite = np.isfinite(values)
    largest = float(np.max(values[finite], initial=0.0))
    return float(np.max(values)), largest, int(np.count_nonzero(~finite))


def _both(
    one: tuple[float, float, int], other: tuple[float, float, int]
) -> tuple[float, float, int]:
    return max(one[0], other[0]), max(one[1], other[1]), one[2] + other[2]


@dataclass(frozen=True, kw_only=True)
class _TopsOf:
    """Those of one part."""

    store: PartStore

    def __call__(self, part: Part) -> _Tops:
        """Read it."""
        exposure, bound = _read(self.store, part)
        return _Tops(
            rows=len(bound),
            failures=int(np.count_nonzero(exposure > bound)),
            exposure=_top(exposure),
            bound=_top(bound),
        )


@dataclass(frozen=True, kw_only=True)
class _CountsOf:
    """The counts of one part: of exposures, of bounds, and of exposure/bound.

    Not of the ratio itself, of which a row that loses next to nothing has any size: a histogram
    tells values apart within forty powers of two below the largest.
    """

    store: PartStore
    tops: _Tops

    def __call__(self, part: Part) -> tuple[Histogram, Histogram, Histogram]:
        """Read it, and count."""
        exposure, bound = _read(self.store, part)
        return (
            Histogram.of(exposure, self.tops.exposure[1]),
            Histogram.of(bound, self.tops.bound[1]),
            # Shares past 2 are told apart no more: the median is not among them, or bounds are
            # worth nothing.
            Histogram.of(np.minimum(_shares(exposure, bound), 2.0), 2.0),
        )


def _read(store: PartStore, part: Part) -> tuple[FloatArray, FloatArray]:
    table = store.read(part, ["exposure", "bound"])
    exposure, bound = (table.column(name).to_numpy() for name in ("exposure", "bound"))
    if not (np.all(exposure >= 0) and np.all(bound >= 0)):
        raise ArithmeticError("an exposure or a bound is not a number")
    return exposure, bound


def _shares(exposure: FloatArray, bound: FloatArray) -> FloatArray:
    """exposure/bound, whose inverse is the ratio."""
    ratio = ratios(bound, exposure)
    with np.errstate(divide="ignore"):
        return 1 / ratio


def figures_of(
    store: PartStore, parts: Mapping[int, Part], report: PublishedReport, engine: Engine
) -> ComparisonFigures:
    """What :class:`~expost.publishing.compare.Comparison` says of all rows.

    Medians are good to 2⁻¹⁰ of themselves, a median ratio past 2³⁹ is told as infinite; the others
    are exact.
    """
    ordered = [parts[number] for number in sorted(parts)]
    tops = reduce(_Tops.merged, engine.map(_TopsOf(store=store), ordered))
    counts: tuple[Histogram, ...] | None = None
    for found in engine.map(_CountsOf(store=store, tops=tops), ordered):
        if counts is None:
            counts = found
            continue
        for one, other in zip(counts, found, strict=True):
            one.merge(other)
    assert counts is not None
    exposure, bound, share = counts
    with np.errstate(divide="ignore"):
        ratio = float(np.mean(1 / _middle(share)))
    return ComparisonFigures(
        rows=tops.rows,
        failures=tops.failures,
        fails_with=report.fails_with,
        median_exposure=float(np.mean(_middle(exposure))),
        largest_exposure=tops.exposure[0],
        median_bound=float(np.mean(_middle(bound))),
        largest_bound=tops.bound[0],
        median_ratio=ratio,
        median_error=Histogram.RELATIVE_ERROR,
    )


def _middle(counts: Histogram) -> FloatArray:
    """Return the two values in the middle, whose mean is the median."""
    rows = counts.count
    return counts.at(np.array([(rows + 1) // 2, rows // 2 + 1]))
