"""Knots of the Huber hinge, where its second derivative jumps.

Removing a row of n moves θ by O(1/n), so that a number of rows that does not grow with n pass a
knot (a few hundred, for d up to 50). Between θ and a neighbouring minimiser f′ of every other row
is linear. With B the Hessian of an :class:`~expost.neighbouring.expansion.Expansion` and
h = xᵀB⁻¹x,

    ∣x·δ∣ ≤ √h·∥δ∥_B,

so a row whose predictor is √h·R or more away from its knots is linear for all steps of ∥δ∥_B ≤ R,
and Σ x[f′(z + x·δ) − f′(z)] over the data is (Σ f″x xᵀ)δ plus what the rows near a knot add
(:class:`KinkRows`). :class:`Knots` bounds the same sum from lengths alone.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from expost._numerics import ROUNDOFF, gamma
from expost.glm import Constants, Objective
from expost.losses import Kinked, Loss
from expost.neighbouring.change import EvaluatedRows
from expost.rows import RowBlock
from expost.types import FloatArray

if TYPE_CHECKING:
    from expost.neighbouring.expansion import Expansion

__all__ = ["KinkRows", "KnotBins", "KnotDistances", "Knots", "energy_norms", "knot_reach"]

# Rows that KinkRows hold at most; the farther ones then shorten the steps that can be followed.
_MOST = 4096
# Bins of a sixty-fourth of an octave each, from 2⁻⁴⁰ to 2⁴⁰.
_MANTISSA, _SHIFT = 6, 46
_FIRST = (1023 - 40) << _MANTISSA
_BINS = 80 << _MANTISSA


def knot_reach(
    loss: Loss, z: FloatArray, y: FloatArray, norms: FloatArray, margin_error: float
) -> tuple[FloatArray, FloatArray]:
    """Return the distance of each predictor to its nearest knot, and of θ; rounded down."""
    assert isinstance(loss, Kinked)
    # The predictor itself is known to margin_error·∥x∥, and 1 − yz is rounded: a knot that close
    # counts as reached.
    close = 2 * margin_error * norms + 4 * ROUNDOFF
    distance = np.maximum(loss.knot_distance(z, y) * (1 - 1e-12) - close, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return distance, np.where(norms > 0, distance / norms, np.inf)


@dataclass(frozen=True, kw_only=True, eq=False)
class Knots:
    """The Huber hinge's remainder after a Newton step of length ρ, as a function of ρ alone.

    ∥F̃(Â + δ)∥ ≤ Σⱼ ∥xⱼ∥(∥xⱼ∥ρ − distⱼ)₊/(2h·m), distⱼ the distance of row j's predictor to its
    nearest knot: piecewise linear and convex in ρ, so sorted knots and cumulative sums serve every
    row at once. ``rounding`` is the relative error of those sums, which do not cancel, while their
    difference may.
    """

    reach: FloatArray
    square_sums: FloatArray
    linear_sums: FloatArray
    rounding: float

    @classmethod
    def of(cls, loss: Loss, reach: FloatArray, squares: FloatArray, linear: FloatArray) -> "Knots":
        """Return the remainder for m = 1 from ∥x∥² and ∥x∥·dist by ascending reach."""
        # What Σ∥x∥² of a bin was rounded by counts equally in both sums: a factor of their
        # difference, below 1e-9 for a million blocks.
        factor, zero = loss.curvature_bound * (1 + 1e-9), np.zeros(1)
        return cls(
            reach=reach,
            square_sums=factor * np.concatenate([zero, np.cumsum(squares)]),
            linear_sums=factor * np.concatenate([zero, np.cumsum(linear)]),
            rounding=gamma(len(reach) + 8),
        )

    def scaled(self, factor: float) -> "Knots":
        """Return the same remainder times ``factor``."""
        return replace(
            self, square_sums=self.square_sums * factor, linear_sums=self.linear_sums * factor
        )

    def remainder(self, length: FloatArray) -> FloatArray:
        """Return the bound at each ``length`` ρ."""
        passed = np.searchsorted(self.reach, length)
        square, linear = self.square_sums[passed], self.linear_sums[passed]
        moved = square * length
        # The difference of the two cumulative sums carries the rounding of both.
        return np.maximum(moved - linear, 0.0) + 2 * self.rounding * (moved + linear)


@dataclass(frozen=True, kw_only=True, eq=False)
class KnotDistances:
    """The norms of the rows of some blocks, and the distances of their predictors to knots.

    Three numbers a row: for rows in memory.
    """

    norms: tuple[FloatArray, ...]
    distance: tuple[FloatArray, ...]
    reach: tuple[FloatArray, ...]

    @classmethod
    def of(cls, constants: Constants, rows: EvaluatedRows, theta: FloatArray) -> "KnotDistances":
        """Return the distances of the rows of one block."""
        margin = constants.margin_error(theta)
        distance, reach = knot_reach(constants.loss, rows.z, rows.y, rows.norms, margin)
        return cls(norms=(rows.norms,), distance=(distance,), reach=(reach,))

    def merged(self, other: "KnotDistances") -> "KnotDistances":
        """Return the distances of the rows of both, in their order."""
        return KnotDistances(
            norms=self.norms + other.norms,
            distance=self.distance + other.distance,
            reach=self.reach + other.reach,
        )

    def knots(self, loss: Loss) -> Knots:
        """Sort the rows by how far θ must move until they reach a knot; m = 1."""
        reach, norms = np.concatenate(self.reach), np.concatenate(self.norms)
        order = np.argsort(reach, kind="stable")
        linear = (norms * np.concatenate(self.distance))[order]
        return Knots.of(loss, reach[order], norms[order] ** 2, linear)


@dataclass(frozen=True, kw_only=True, eq=False)
class KnotBins:
    """Σ∥x∥² of the rows of a block by the distance that θ must move until a row reaches its knot.

    As many numbers however many rows there are: for rows that are read. A row counts as if its
    knot were at the near edge of its bin, nearer than it is by 2⁻⁶ of the way at most, so that the
    remainder is bounded from above.
    """

    squares: FloatArray

    @classmethod
    def of(cls, constants: Constants, rows: EvaluatedRows, theta: FloatArray) -> "KnotBins":
        """Count the rows of one block."""
        margin = constants.margin_error(theta)
        reach = knot_reach(constants.loss, rows.z, rows.y, rows.norms, margin)[1]
        finite = rows.norms > 0
        bins = (np.ascontiguousarray(reach[finite]).view(np.int64) >> _SHIFT) - _FIRST
        # The first bin begins at 0.
        np.clip(bins, 0, _BINS - 1, out=bins)
        weights = rows.norms[finite] ** 2
        return cls(squares=np.bincount(bins, weights=weights, minlength=_BINS).astype(float))

    def merged(self, other: "KnotBins") -> "KnotBins":
        """Return the sums over the rows of both."""
        return KnotBins(squares=self.squares + other.squares)

    def knots(self, loss: Loss) -> Knots:
        """Return the bound that the bins give; m = 1."""
        edges = ((np.arange(_BINS) + _FIRST) << _SHIFT).view(np.float64)
        edges[0] = 0.0
        return Knots.of(loss, edges, self.squares, self.squares * edges)


def energy_norms(expansion: "Expansion", shift: FloatArray) -> FloatArray:
    """Return (p,) ∥δ∥_B = √(δᵀBδ), rounded up."""
    square: FloatArray = np.einsum("ij,ij->i", shift @ expansion.hessian, shift)
    square += expansion.slack * np.einsum("ij,ij->i", shift, shift)
    return np.sqrt(np.maximum(square, 0.0)) * (1 + 1e-9)


# No repr: it would show rows.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KinkRows:
    """The rows near a kink of the Huber hinge.

    They are the only ones whose second derivative can change in a step of ∥δ∥_B ≤ ``reach``.

    Attributes
    ----------
    reach_norm : FloatArray
        ∥δ∥_B at which each of them may pass a knot; rounded down.
    reach : float
        The largest ∥δ∥_B of such a step.
    least_eigenvalue : float
        A lower bound on that of J's Hessian, times n/m, in all such steps.
    """

    X: FloatArray
    y: FloatArray
    z: FloatArray
    curvature: FloatArray
    norms: FloatArray
    reach_norm: FloatArray
    reach: float
    least_eigenvalue: float = 0.0

    @classmethod
    def of(cls, objective: Objective, expansion: "Expansion", reach: float) -> "KinkRows":
        """Collect the rows in one pass."""
        collected: KinkRows | None = None
        for part in objective.map(_CollectKinkRows(expansion=expansion, reach=reach)):
            collected = part if collected is None else collected._joined(part)
        assert collected is not None
        return replace(collected, least_eigenvalue=collected._least_eigenvalue(expansion))

    def _take(self, index: NDArray[np.bool_], reach: float) -> "KinkRows":
        arrays = {name: getattr(self, name)[index] for name in _ARRAYS}
        return replace(self, reach=reach, **arrays)

    def _joined(self, other: "KinkRows") -> "KinkRows":
        """Return the rows of both; of too many, the nearest."""
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _ARRAYS
        }
        return replace(self, reach=min(self.reach, other.reach), **arrays).nearest(_MOST)

    def nearest(self, count: int) -> "KinkRows":
        """Return at most ``count`` rows within reach; leaving rows out shortens the reach."""
        near = self.reach_norm < self.reach
        reach = self.reach
        if np.count_nonzero(near) > count:
            # Some of them at least are left out: those that are reached last.
            reach = float(np.partition(self.reach_norm[near], count)[count])
            near = self.reach_norm < reach
        return self if np.all(near) else self._take(near, reach)

    def nonlinearity(
        self, expansion: "Expansion", shift: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return Σ x[f′(z + x·δ) − f′(z) − f″x·δ] (p, d), and a bound on its error (p,).

        Rows that are linear are rounded with the Hessian, and are not in it. Infinite where a step
        is longer than what was collected for.
        """
        loss, length = expansion.loss, np.linalg.norm(shift, axis=1)
        along = self.X @ shift.T
        growth = loss.increment(self.z[:, None], self.y[:, None], along)
        bend = growth - self.curvature[:, None] * along
        sizes = self.norms @ (np.abs(growth) + self.curvature[:, None] * np.abs(along))
        squares = self.norms @ self.norms
        margin = expansion.curved.constants.margin_error(expansion.base.theta)
        lost = 2 * margin + 2 * gamma(expansion.columns + 2) * length
        error = gamma(len(self.z) + 16) * sizes + loss.curvature_bound * squares * lost
        # One that is at a knot may have counted with another f″ where the Hessian was summed.
        at = self.norms[self.reach_norm == 0]
        error += loss.curvature_bound * float(at @ at) * length
        within = energy_norms(expansion, shift) <= self.reach
        return bend.T @ self.X, np.where(within, 1.01 * error, np.inf)

    def _least_eigenvalue(self, expansion: "Expansion") -> float:
        """Return a lower bound: all but these rows keep their f″, so B less what they add to it."""
        weight = self.curvature / expansion.rows_after
        rest = expansion.hessian - (self.X * weight[:, None]).T @ self.X
        rounding = gamma(len(self.y) + 16 * expansion.columns) * np.linalg.norm(expansion.hessian)
        least = float(np.linalg.eigvalsh(rest)[0]) - expansion.slack - 2 * float(rounding)
        return max(expansion.floor, least)

    def with_known_curvature(self, expansion: "Expansion") -> "Expansion":
        """Return the expansion with the base's curvature, where its error is within reach."""
        if not _largest_energy(expansion) * expansion.base_error <= self.reach:
            return expansion
        curved, m = expansion.curved, expansion.rows_after
        # The base's own Hessian is (m/n)B + diag(p − (m/n)p').
        change = float(np.min(curved.penalty - (m / curved.rows) * expansion.penalty_after))
        least = (m / curved.rows) * self.least_eigenvalue * (1 - 1e-12) + change
        return replace(expansion, base_lowest=max(expansion.base_lowest, least))

    def curvature_lower_bound(
        self, expansion: "Expansion", shift: FloatArray, error: FloatArray
    ) -> FloatArray | float:
        """Return a lower bound on each neighbour's curvature within ``error`` of Â + δ."""
        leaving = expansion.leaving * expansion.heaviest
        known = max(expansion.floor, self.least_eigenvalue - leaving)
        with np.errstate(invalid="ignore"):
            farthest = energy_norms(expansion, shift) + _largest_energy(expansion) * error
        return np.where(farthest <= self.reach, known, expansion.floor)


_ARRAYS = ("X", "y", "z", "curvature", "norms", "reach_norm")


def _largest_energy(expansion: "Expansion") -> float:
    """Return √∥B∥: ∥v∥_B ≤ that times ∥v∥."""
    return float(np.sqrt(expansion.eigenvalues[-1] + expansion.slack)) * (1 + 1e-9)


@dataclass(frozen=True, kw_only=True, eq=False)
class _CollectKinkRows:
    """A pass that collects the kink rows of each block."""

    expansion: "Expansion"
    reach: float

    def __call__(self, block: RowBlock) -> KinkRows:
        """Return the kink rows of one block."""
        expansion = self.expansion
        loss, theta = expansion.loss, expansion.base.theta
        z = block.X @ theta
        margin = expansion.curved.constants.margin_error(theta)
        distance, _ = knot_reach(loss, z, block.y, block.norms, margin)
        turned = block.X @ expansion.rotation
        leverage = (turned * turned) @ (1 / expansion.eigenvalues)
        leverage += expansion.leverage_error * block.norms * block.norms
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            norm = np.where(block.norms > 0, distance / np.sqrt(leverage), np.inf) * (1 - 1e-9)
        near = ~(norm >= self.reach)
        rows = KinkRows(
            X=block.X[near],
            y=block.y[near],
            z=z[near],
            curvature=loss.curvature(z[near], block.y[near]),
            norms=block.norms[near],
            reach_norm=norm[near],
            reach=self.reach,
        )
        return rows.nearest(_MOST)
