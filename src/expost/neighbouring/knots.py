"""The few rows whose f″ may jump on the way to any neighbour: all that the Huber hinge bends by.

Removing a row of n moves θ by O(1/n), so that a number of rows that does not grow with n pass a
knot (a few hundred, for d up to 50). On the way of every other row f′ is linear. With B the Hessian
of an :class:`~expost.neighbouring.expansion.Expansion` and h = xᵀB⁻¹x,

    ∣x·δ∣ ≤ √h·∥δ∥_B,

so a row whose predictor is √h·R or more away from its knots is linear for all steps of ∥δ∥_B ≤ R,
and Σ x[f′(z + x·δ) − f′(z)] over the data is (Σ f″x xᵀ)δ plus what the rows beside a knot add.
"""

from dataclasses import dataclass, replace

import numpy as np

from expost._numerics import gamma
from expost.glm import Objective
from expost.neighbouring.certificate import knot_reach
from expost.neighbouring.expansion import Expansion
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = ["BesideKnots", "energies"]

# Rows that are held at most; the farther ones then shorten the steps that can be followed.
_MOST = 4096


def energies(expansion: Expansion, shift: FloatArray) -> FloatArray:
    """(p,) ∥δ∥_B, rounded up."""
    square: FloatArray = np.einsum("ij,ij->i", shift @ expansion.hessian, shift)
    square += expansion.slack * np.einsum("ij,ij->i", shift, shift)
    return np.sqrt(np.maximum(square, 0.0)) * (1 + 1e-9)


# No repr: it would show rows.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BesideKnots:
    """The rows that may pass a knot in a step of ∥δ∥_B ≤ ``reach``.

    ``way``     ∥δ∥_B at which each of them may; rounded down.
    ``lowest``  a lower bound on the least eigenvalue of J's Hessian, times n/m, in all such steps.
    """

    X: FloatArray
    y: FloatArray
    z: FloatArray
    curvature: FloatArray
    norms: FloatArray
    way: FloatArray
    reach: float
    lowest: float = 0.0

    @classmethod
    def of(cls, objective: Objective, expansion: Expansion, reach: float) -> "BesideKnots":
        """One pass over the rows."""
        held: BesideKnots | None = None
        for part in objective.map(_Gather(expansion=expansion, reach=reach)):
            held = part if held is None else held._with(part)
        assert held is not None
        return replace(held, lowest=held._lowest(expansion))

    def _with(self, other: "BesideKnots") -> "BesideKnots":
        """Both together, but for the farthest of too many."""
        reach = min(self.reach, other.reach)
        together = BesideKnots(
            X=np.concatenate([self.X, other.X]),
            y=np.concatenate([self.y, other.y]),
            z=np.concatenate([self.z, other.z]),
            curvature=np.concatenate([self.curvature, other.curvature]),
            norms=np.concatenate([self.norms, other.norms]),
            way=np.concatenate([self.way, other.way]),
            reach=reach,
        )
        return together._nearest(_MOST)

    def _nearest(self, count: int) -> "BesideKnots":
        near = self.way < self.reach
        reach = self.reach
        if np.count_nonzero(near) > count:
            # Some of them at least are left out: those that are reached last.
            reach = float(np.partition(self.way[near], count)[count])
            near = self.way < reach
        if np.all(near):
            return self
        return BesideKnots(
            X=self.X[near],
            y=self.y[near],
            z=self.z[near],
            curvature=self.curvature[near],
            norms=self.norms[near],
            way=self.way[near],
            reach=reach,
        )

    def bends(self, expansion: Expansion, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Σ x[f′(z + x·δ) − f′(z) − f″x·δ] (p, d), and a bound on its error (p,).

        Rows that are linear are rounded with the Hessian, and are not in it. Infinite where a step
        is longer than what was gathered for.
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
        at = self.norms[self.way == 0]
        error += loss.curvature_bound * float(at @ at) * length
        within = energies(expansion, shift) <= self.reach
        return bend.T @ self.X, np.where(within, 1.01 * error, np.inf)

    def _lowest(self, expansion: Expansion) -> float:
        """All but these rows keep their f″: B less what they add to it now."""
        weight = self.curvature / expansion.rows_after
        steady = expansion.hessian - (self.X * weight[:, None]).T @ self.X
        rounding = gamma(len(self.y) + 16 * expansion.columns) * np.linalg.norm(expansion.hessian)
        least = float(np.linalg.eigvalsh(steady)[0]) - expansion.slack - 2 * float(rounding)
        return max(expansion.floor, least)

    def steadied(self, expansion: Expansion) -> Expansion:
        """The expansion with the curvature that the base is sure of, where its error is within."""
        if not _widest(expansion) * expansion.base_error <= self.reach:
            return expansion
        curved, m = expansion.curved, expansion.rows_after
        # The base's own Hessian is (m/n)B + diag(p − (m/n)p').
        change = float(np.min(curved.penalty - (m / curved.rows) * expansion.penalty_after))
        least = (m / curved.rows) * self.lowest * (1 - 1e-12) + change
        return replace(expansion, base_lowest=max(expansion.base_lowest, least))

    def curvature_at(
        self, expansion: Expansion, shift: FloatArray, error: FloatArray
    ) -> FloatArray | float:
        """A lower bound on each neighbour's least curvature anywhere within ``error`` of Â + δ."""
        leaving = sum(sign < 0 for sign in expansion.signs) * expansion.heaviest
        known = max(expansion.floor, self.lowest - leaving)
        with np.errstate(invalid="ignore"):
            farthest = energies(expansion, shift) + _widest(expansion) * error
        return np.where(farthest <= self.reach, known, expansion.floor)


def _widest(expansion: Expansion) -> float:
    """√∥B∥: ∥v∥_B ≤ that times ∥v∥."""
    return float(np.sqrt(expansion.eigenvalues[-1] + expansion.slack)) * (1 + 1e-9)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Gather:
    """Those of one block."""

    expansion: Expansion
    reach: float

    def __call__(self, block: RowBlock) -> BesideKnots:
        """RowSummary for them."""
        expansion = self.expansion
        loss, theta = expansion.loss, expansion.base.theta
        z = block.X @ theta
        margin = expansion.curved.constants.margin_error(theta)
        distance, _ = knot_reach(loss, z, block.y, block.norms, margin)
        turned = block.X @ expansion.rotation
        leverage = (turned * turned) @ (1 / expansion.eigenvalues)
        leverage += expansion.leverage_error * block.norms * block.norms
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            way = np.where(block.norms > 0, distance / np.sqrt(leverage), np.inf) * (1 - 1e-9)
        near = ~(way >= self.reach)
        found = BesideKnots(
            X=block.X[near],
            y=block.y[near],
            z=z[near],
            curvature=loss.curvature(z[near], block.y[near]),
            norms=block.norms[near],
            way=way[near],
            reach=self.reach,
        )
        return found._nearest(_MOST)
