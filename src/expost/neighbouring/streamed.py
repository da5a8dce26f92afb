"""J over rows that do not fit into memory: every pass is a map over blocks, reduced in their order.

What is held is a block for each worker, and O(d²). The mathematics is that of :mod:`expost.glm`,
:mod:`expost.neighbouring.expansion` and :mod:`expost.neighbouring.newton`, which ask for passes and
do not know who makes them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, Self, TypeVar

import numpy as np

from expost._order import Histogram
from expost.data.stream import RowStream, StreamBlock
from expost.engine import Engine
from expost.engine.progress import SILENT, Progress
from expost.errors import InvalidInput
from expost.glm import Constants, Minimiser, Objective, Problem, RowBlock, minimise
from expost.losses import HuberHinge, Loss
from expost.neighbouring.certificate import KnotBins, Knots
from expost.neighbouring.expansion import Change, Curvature, long_part
from expost.types import FloatArray

__all__ = ["BlockLook", "Look", "StreamedProblem", "change_of", "folded", "streamed_curvature"]

T = TypeVar("T")


# Rows with which the search for a minimiser begins.
_FIRST_ROWS = 2**13
# Rows lie in the unit ball; their lengths are rounded up.
_TOP = 1.001


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockLook:
    """How long the rows of a block are, and its largest ∣y∣."""

    rows: int
    longest: float
    label_size: float
    norms: Histogram

    @classmethod
    def of(cls, block: StreamBlock) -> "BlockLook":
        """Look at the rows."""
        rows = RowBlock.of(block.X, block.y)
        norms = Histogram(_TOP)
        norms.add(np.minimum(rows.norms, _TOP))
        return cls(
            rows=len(rows),
            longest=float(rows.norms.max()),
            label_size=float(np.max(np.abs(rows.y))),
            norms=norms,
        )


@dataclass(frozen=True, kw_only=True)
class Look:
    """The longest row, the largest ∣y∣, and a length that most rows do not exceed."""

    longest: float
    label_size: float
    common_norm: float

    @classmethod
    def of(cls, blocks: Iterable[BlockLook], rows: int) -> "Look":
        """What the blocks of ``rows`` rows have together."""
        longest = size = 0.0
        counted = 0
        norms = Histogram(_TOP)
        for block in blocks:
            longest, size = max(longest, block.longest), max(size, block.label_size)
            counted += block.rows
            norms.merge(block.norms)
        if counted != rows:
            raise InvalidInput(
                f"the table had {rows} rows and now has {counted}: it changed while it was being"
                " read; start again."
            )
        common = float(norms.at(np.array([rows - rows // 32]))[0])
        return cls(longest=longest, label_size=size, common_norm=common)


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamedProblem(Objective):
    """J over a stream of rows of the unit ball, worked on by an engine."""

    stream: RowStream
    engine: Engine
    loss: Loss
    penalty: FloatArray
    linear: FloatArray | None = None
    progress: Progress = SILENT
    seen: Look | None = None

    def __post_init__(self) -> None:
        self._check()

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.stream.rows

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return self.stream.columns

    def fold(self, task: Callable[[RowBlock], T]) -> Iterator[T]:
        """``task`` of every block, in their order."""
        for results in folded(self.stream, self.engine, _OnRows(task), self.progress):
            yield from results

    def with_linear(self, linear: FloatArray) -> Self:
        """The same rows under another linear term c; they are not looked at again."""
        return replace(self, linear=linear, seen=self._look)

    @cached_property
    def start(self) -> FloatArray:
        """The minimiser over the first rows alone, found where they are: passes are saved."""
        task = _FirstFit(self.stream, self.loss, self.penalty, self.linear)
        first = tuple(islice(self.stream.items(), -(-_FIRST_ROWS // self.stream.reader.size)))
        (theta,) = self.engine.map(task, [first])
        return theta

    def minimiser(self, tolerance: float) -> Minimiser:
        """A(D), with a proved ∥∇J∥ ≤ ``tolerance``; found once."""
        if tolerance not in self._minimisers:
            self._minimisers[tolerance] = super().minimiser(tolerance)
        return self._minimisers[tolerance]

    @cached_property
    def _minimisers(self) -> dict[float, Minimiser]:
        return {}

    @property
    def longest(self) -> float:
        """The largest row norm."""
        return self._look.longest

    @property
    def common_norm(self) -> float:
        """A length that about thirty-one rows of thirty-two do not exceed."""
        return self._look.common_norm

    @property
    def label_size(self) -> float:
        """The largest ∣y∣."""
        return self._look.label_size

    @cached_property
    def _look(self) -> Look:
        """What is known of all rows; one pass, unless somebody has seen them."""
        if self.seen is not None:
            return self.seen
        found = folded(self.stream, self.engine, BlockLook.of, self.progress)
        return Look.of(chain.from_iterable(found), self.rows)


def folded(
    stream: RowStream, engine: Engine, task: Callable[[StreamBlock], T], progress: Progress = SILENT
) -> Iterator[list[T]]:
    """``task`` of every block of a stream, in their order: a list for each item of the stream."""
    progress.rows(stream.rows)
    for rows, results in engine.map(_Blockwise(stream, task), stream.items()):
        progress.advance(rows)
        yield results


class _Blockwise:
    """A task of every block of an item, and how many rows those have."""

    def __init__(self, stream: RowStream, task: Callable[[StreamBlock], Any]) -> None:
        self._stream, self._task = stream, task

    def __call__(self, item: Any) -> tuple[int, list[Any]]:
        """What the task gives, block by block."""
        rows, found = 0, []
        for block in self._stream.blocks(item):
            rows += len(block)
            found.append(self._task(block))
        return rows, found


class _OnRows:
    """A task of rows as a pass over the data sees them."""

    def __init__(self, task: Callable[[RowBlock], Any]) -> None:
        self._task = task

    def __call__(self, block: StreamBlock) -> Any:
        """What it gives."""
        return self._task(RowBlock.of(block.X, block.y))


class _FirstFit:
    """The minimiser over the first rows of some items; blocks of another size change nothing."""

    def __init__(
        self, stream: RowStream, loss: Loss, penalty: FloatArray, linear: FloatArray | None
    ) -> None:
        self._stream, self._loss, self._penalty, self._linear = stream, loss, penalty, linear

    def __call__(self, items: Sequence[Any]) -> FloatArray:
        """It need not be exact: it is where a search begins."""
        X, y, held = list[FloatArray](), list[FloatArray](), 0
        for block in chain.from_iterable(self._stream.blocks(item) for item in items):
            X.append(block.X)
            y.append(block.y)
            held += len(block)
            if held >= _FIRST_ROWS:
                break
        problem = Problem(
            X=np.concatenate(X)[:_FIRST_ROWS],
            y=np.concatenate(y)[:_FIRST_ROWS],
            loss=self._loss,
            penalty=self._penalty,
            linear=self._linear,
        )
        return minimise(problem, tolerance=1e-6, require=False).theta


def change_of(block: RowBlock, theta: FloatArray, loss: Loss, *, sign: int = -1) -> Change:
    """The rows of a block as rows that leave (or enter), with their derivatives at ``theta``."""
    z = block.X @ theta
    slope, curvature = loss.derivatives(z, block.y)
    return Change(
        sign=sign,
        X=block.X,
        y=block.y,
        norms=block.norms,
        norm_squares=block.norms * block.norms,
        z=z,
        slope=slope,
        curvature=curvature,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _CurvatureSums:
    """Σ f″x xᵀ, Σ f″∥x∥², what long rows add, the largest residual, where f″ jumps, the rows."""

    constants: Constants
    theta: FloatArray
    common_norm: float

    def __call__(
        self, block: RowBlock
    ) -> tuple[FloatArray, float, FloatArray, float, KnotBins | None, int]:
        """Those of one block."""
        constants, data = self.constants, change_of(block, self.theta, self.constants.loss)
        second = (data.X * data.curvature[:, None]).T @ data.X
        long = np.flatnonzero(data.norms > self.common_norm)
        extra = long_part(data.X[long], data.curvature[long], data.norms[long], self.common_norm)
        knots = None
        if constants.loss.third_ratio is None:
            knots = KnotBins.of(constants, data.z, data.y, data.norms, self.theta)
        residual = float(np.max(np.abs(data.slope) + np.abs(data.y)))
        weight = float(data.curvature @ data.norm_squares)
        return second, weight, extra, residual, knots, len(block)


def streamed_curvature(problem: StreamedProblem, base: Minimiser) -> Curvature:
    """J at the base as a whole: one pass."""
    d = problem.columns
    second, extra = np.zeros((d, d)), np.zeros((d, d))
    weight = residual = 0.0
    longest_block = blocks = 0
    bins: KnotBins | None = None
    task = _CurvatureSums(
        constants=problem.constants, theta=base.theta, common_norm=problem.common_norm
    )
    for part in problem.fold(task):
        second += part[0]
        weight += part[1]
        extra += part[2]
        residual = max(residual, part[3])
        bins = part[4] if bins is None else bins.merged(part[4])
        longest_block, blocks = max(longest_block, part[5]), blocks + 1
    return Curvature(
        constants=problem.constants,
        rows=problem.rows,
        terms=longest_block + blocks,
        penalty=problem.penalty,
        base=base,
        second=second,
        weight=weight,
        longest=problem.longest,
        common_norm=problem.common_norm,
        long_rows=extra,
        residual=residual,
        knots=_knots(problem.loss, bins),
    )


def _knots(loss: Loss, bins: KnotBins | None) -> Knots | None:
    return bins.knots(loss) if bins is not None and isinstance(loss, HuberHinge) else None
