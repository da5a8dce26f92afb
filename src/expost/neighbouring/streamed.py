"""J at its minimiser as a whole: what steps to every neighbour start from."""

from dataclasses import dataclass

import numpy as np

from expost.glm import Constants, Minimiser, Objective
from expost.losses import HuberHinge, Loss
from expost.neighbouring.certificate import KnotBins, Knots
from expost.neighbouring.expansion import Change, Curvature, long_part
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = ["change_of", "streamed_curvature"]


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


def streamed_curvature(problem: Objective, base: Minimiser) -> Curvature:
    """J at the base as a whole: one pass."""
    d = problem.columns
    second, extra = np.zeros((d, d)), np.zeros((d, d))
    weight = residual = 0.0
    longest_block = blocks = 0
    bins: KnotBins | None = None
    task = _CurvatureSums(
        constants=problem.constants, theta=base.theta, common_norm=problem.rows.common_norm
    )
    for part in problem.map(task):
        second += part[0]
        weight += part[1]
        extra += part[2]
        residual = max(residual, part[3])
        bins = part[4] if bins is None else bins.merged(part[4])
        longest_block, blocks = max(longest_block, part[5]), blocks + 1
    return Curvature(
        constants=problem.constants,
        rows=problem.count,
        terms=longest_block + blocks,
        penalty=problem.penalty,
        base=base,
        second=second,
        weight=weight,
        longest=problem.rows.longest,
        common_norm=problem.rows.common_norm,
        long_rows=extra,
        residual=residual,
        knots=_knots(problem.loss, bins),
    )


def _knots(loss: Loss, bins: KnotBins | None) -> Knots | None:
    return bins.knots(loss) if bins is not None and isinstance(loss, HuberHinge) else None
