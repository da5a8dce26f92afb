"""The losses of rows under objective perturbation, from one tangent of J at θ.

Conventions
-----------
g, H  ∇J(θ; D) and ∇²J(θ; D) of the summed objective at the released θ, so that b = −g.
G, W  Σ∇ℓ and Σ∇²ℓ of the rows that change: of one row, or of all rows of a person
      (:mod:`expost.mechanisms.person_losses`). For q outputs ∇ℓ = u ⊗ x and ∇²ℓ = S ⊗ x xᵀ
      (:mod:`expost.losses`).

θ ↦ b is a bijection with Jacobian −H, so p(θ ∣ D) = p_b(g)·det H, and for rows that leave

    loss = [log p_b(g) − log p_b(g − G)] − log det(I − H⁻¹W)    (R&W Thm 6, Cor. 7, erratum 5)

A row that enters has −[log p_b(g) − log p_b(g + ∇ℓ)] + log det(I + H⁻¹∇²ℓ); where one replaces
another, the second determinant is taken with H from which the first has left. The bracket is the
loss of the noise for the shift ±G, as under output perturbation; the determinants are those of
:mod:`expost.mechanisms.leverage`.

What was released is the exact minimiser θ* rounded to a grid, computed to ∥∇J∥ ≤ 1e-12: θ* lies
within ``reach_of_cell`` of θ. Every loss comes as an interval that holds it at every such θ*: g
moves by at most ∥H∥ times that, ∇ℓ by c∥x∥² times that, and S and H by a factor e^(±spread) where
∣f‴∣ ≤ M f″. A row of the Huber hinge that is that close to a knot counts with any f″.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from expost._numerics import ROUNDOFF, CompensatedSum, gamma, row_blocks, row_norms, row_products
from expost.glm import Constants, Objective, predictors
from expost.losses import Derivatives, Kinked, Loss
from expost.mechanisms.leverage import (
    ChangedRows,
    Hessian,
    Leverage,
    leverage_of,
    log_volume,
    volume_of,
)
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.row_losses import RowLosses
from expost.neighbouring.change import Change
from expost.rows import RowBlock
from expost.types import FloatArray, Neighbouring

__all__ = ["Tangent", "uncertain_rows"]

# Entries of sums that a pass over the rows returns for each block: 32 MiB.
_ENTRIES = 2**22

# (loss, its error, the length of the shift of b) of some rows or persons.
_Losses = tuple[FloatArray, FloatArray, FloatArray]
# 1 or −1 for rows that leave or enter, the rows, their labels.
_Part = tuple[int, FloatArray, FloatArray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tangent:
    """J at a released θ: what every row's loss is made of (R&W: g and H).

    Parameters
    ----------
    mechanism : ObjectivePerturbation
        The mechanism that released θ.
    constants : Constants
        The constants of a pass over the rows.
    objective : Objective | None
        The rows; None where the tangent was sent to where some of them are.
    theta : FloatArray
        (q·d,) the released θ.
    gradient : FloatArray
        (q·d,) g = ∇J(θ; D) of the summed objective, so that b = −g.
    rounding : float
        How far the computed g may be from the true one at θ.
    curvature : Hessian
        H.
    longest : float
        The largest row norm.
    loose : float
        Σ∥x∥² of the rows near a knot of the loss.
    """

    mechanism: ObjectivePerturbation
    constants: Constants
    objective: Objective | None
    theta: FloatArray
    gradient: FloatArray
    rounding: float
    curvature: Hessian
    longest: float
    loose: float

    @classmethod
    def at(
        cls, mechanism: ObjectivePerturbation, objective: Objective, theta: FloatArray
    ) -> "Tangent":
        """Return the tangent at ``theta``, by one pass over the rows.

        Parameters
        ----------
        mechanism : ObjectivePerturbation
            The mechanism that released ``theta``.
        objective : Objective
            J over the training rows.
        theta : FloatArray
            (q·d,) the released θ.

        Returns
        -------
        Tangent
            g and H, with bounds on their errors.
        """
        (tangent,) = cls.at_each(mechanism, objective, theta[None])
        return tangent

    @classmethod
    def at_each(
        cls, mechanism: ObjectivePerturbation, objective: Objective, thetas: FloatArray
    ) -> Iterator["Tangent"]:
        """Yield the tangents at several points, a few of them for each pass over the rows.

        Parameters
        ----------
        mechanism : ObjectivePerturbation
            The mechanism that released the points.
        objective : Objective
            J over the training rows.
        thetas : FloatArray
            (m, q·d) the points.

        Yields
        ------
        "Tangent"
            The tangent at the next point.
        """
        step = max(1, _ENTRIES // objective.dimension**2)
        for start in range(0, len(thetas), step):
            some = thetas[start : start + step]
            sums = [_Sums(objective.dimension) for _ in some]
            task = _TangentSums(
                constants=objective.constants, thetas=some, reach=mechanism.reach_of_cell
            )
            for parts in objective.map(task):
                for total, part in zip(sums, parts, strict=True):
                    total.add(part)
            for theta, total in zip(some, sums, strict=True):
                yield cls._of(mechanism, objective, theta, total)

    @classmethod
    def _of(
        cls,
        mechanism: ObjectivePerturbation,
        objective: Objective,
        theta: FloatArray,
        sums: "_Sums",
    ) -> "Tangent":
        penalty, hessian = mechanism.penalty_sum, sums.hessian.value
        weight = float(np.trace(hessian))
        gradient = sums.gradient.value + penalty * theta
        hessian[np.diag_indices_from(hessian)] += penalty
        return cls(
            mechanism=mechanism,
            constants=objective.constants,
            objective=objective,
            theta=theta,
            gradient=gradient,
            rounding=sums.rounding + 8 * ROUNDOFF * (_norm(gradient) + penalty * _norm(theta)),
            curvature=Hessian(
                matrix=hessian,
                penalty=penalty,
                outputs=objective.loss.outputs,
                weight=weight,
                block_rows=sums.block_rows,
            ),
            longest=objective.rows.longest,
            loose=sums.loose,
        )

    @property
    def hessian(self) -> FloatArray:
        """H (q·d, q·d)."""
        return self.curvature.matrix

    @property
    def problem(self) -> Objective:
        """The objective, for what needs all rows at once."""
        assert self.objective is not None
        return self.objective

    @property
    def reach(self) -> float:
        """How far an exact minimiser's predictors may be, a row of length 1: cell and rounding."""
        return self.mechanism.reach_of_cell + self.constants.margin_error(self.theta)

    @cached_property
    def spread(self) -> float:
        """log of the factor by which H at the exact minimiser may differ from the computed one."""
        loss, curvature = self.constants.loss, self.curvature
        spread = (loss.third_ratio or 0.0) * self.reach * self.longest
        # What rows at a knot may add to H or take from it.
        lowest = max(curvature.extremes[0], curvature.penalty) if self.loose else 1.0
        jump = loss.curvature_bound * self.loose / lowest
        spread += -math.log1p(-jump) if jump < 1 else math.inf
        return spread + (loss.curvature_rounding + curvature.sum_spread)

    @cached_property
    def gradient_error(self) -> float:
        """How far g may be from that of the exact minimiser, rounding included."""
        mechanism = self.mechanism
        spread = self.spread + self.curvature.factor_spread
        highest = self.curvature.extremes[1] * math.exp(min(spread, 50.0))
        # The solver's own residual is one of the gradient.
        return (
            self.rounding
            + min(highest, mechanism.steepest) * mechanism.half_cell
            + mechanism.rows * mechanism.tolerance
        )

    @cached_property
    def leverage(self) -> Leverage:
        """The eigenvalues of single rows."""
        twice = 2 * self.constants.loss.curvature_rounding
        twice += 4 * self.constants.margin_error(self.theta)
        return leverage_of(self.curvature, twice)

    def detached(self) -> "Tangent":
        """Return the tangent without the rows, small enough to be sent to where they are.

        Returns
        -------
        Tangent
            The same tangent with ``objective`` = None.
        """
        alone = replace(self, objective=None)
        # Computed here, once for all blocks.
        _ = alone.gradient_error, alone.leverage
        return alone

    def check_rows(self) -> None:
        """Refuse rows that cannot have made θ: a noise outside its own law at 1e-9."""
        mechanism, slack = self.mechanism, self.gradient_error
        if mechanism.is_private and mechanism.grid.is_clamped(self.theta):
            return
        mechanism.check_noise(
            _norm(self.gradient), slack, without=slack + 1e-8 * mechanism.steepest
        )

    # -- rows ------------------------------------------------------------------------------------

    def block_losses(self, block: RowBlock) -> RowLosses:
        """Return log p(θ ∣ D) − log p(θ ∣ D₋ᵢ) of the rows of a block, with its interval.

        Parameters
        ----------
        block : RowBlock
            Rows of the training data, each of which leaves.

        Returns
        -------
        RowLosses
            One loss for each row.
        """
        return self.collected(self._certified([(1, block.X, block.y)]), Neighbouring.REMOVE)

    def row_losses(self, change: Change | None = None) -> RowLosses:
        """Return log p(θ ∣ D) − log p(θ ∣ D') of rows that change.

        Where rows enter alone the sign is turned, so that > 0 always is evidence that the row was
        there.

        Parameters
        ----------
        change : Change, optional
            The rows that leave or enter; None: each row leaves on its own.

        Returns
        -------
        RowLosses
            One loss for each neighbouring data set, with its interval.
        """
        change = Change.of(self.problem.held) if change is None else change
        loss, error, distance = self._blockwise(self._certified, change)
        return self.collected((loss, error, distance), change.relation)

    def sampled_losses(self, change: Change) -> FloatArray:
        """Return the losses of :meth:`row_losses` without their intervals, for simulation.

        Parameters
        ----------
        change : Change
            The rows that leave or enter.

        Returns
        -------
        FloatArray
            (n,) the losses in nats.
        """
        (loss,) = self._blockwise(lambda changes: (self._loss(changes),), change)
        return loss

    def sampled_block_losses(self, block: RowBlock) -> FloatArray:
        """Return the losses of :meth:`block_losses` without their intervals, for simulation.

        Parameters
        ----------
        block : RowBlock
            Rows of the training data, each of which leaves.

        Returns
        -------
        FloatArray
            (m,) the losses in nats.
        """
        return self._loss([(1, block.X, block.y)])

    def changed_blocks(self, change: Change, theta: FloatArray) -> list[list[ChangedRows]]:
        """Return the rows that change at another ``theta``, in blocks.

        They depend on the mechanism and on ``theta``, not on the rest of the tangent.

        Parameters
        ----------
        change : Change
            The rows that leave or enter.
        theta : FloatArray
            (q·d,) the other point.

        Returns
        -------
        list[list[ChangedRows]]
            The blocks, each with its parts that leave or enter.
        """
        fixed = replace(self, theta=theta)
        return [[fixed.changed(*part) for part in block] for block in self._blocks(change)]

    def control_losses(
        self, blocks: Sequence[Sequence[ChangedRows]]
    ) -> tuple[FloatArray, FloatArray]:
        """Return the loss of the noise alone for the shifts G of ``blocks``, and ∥G∥.

        Of rows at a θ that was fixed before b was drawn (:meth:`changed_blocks`) its law is known
        (:meth:`expost.noise.Noise.law`): a control variate for :meth:`sampled_losses`.

        Parameters
        ----------
        blocks : Sequence[Sequence[ChangedRows]]
            The rows that change, from :meth:`changed_blocks`.

        Returns
        -------
        tuple[FloatArray, FloatArray]
            (n,) the losses, and (n,) ∥G∥.
        """
        losses, distances = zip(*map(self._noise_loss, blocks), strict=True)
        return np.concatenate(losses), np.concatenate(distances)

    def control_block_losses(
        self, block: RowBlock, theta: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return :meth:`control_losses` of the rows of a block, each of which leaves.

        Parameters
        ----------
        block : RowBlock
            Rows of the training data.
        theta : FloatArray
            (q·d,) the point that was fixed before the noise was drawn.

        Returns
        -------
        tuple[FloatArray, FloatArray]
            (m,) the losses, and (m,) ∥G∥.
        """
        return self._noise_loss([replace(self, theta=theta).changed(1, block.X, block.y)])

    def _noise_loss(self, parts: Sequence[ChangedRows]) -> tuple[FloatArray, FloatArray]:
        """Return the noise's part of the losses of some neighbours, and the shifts of b."""
        inner, distance = self._shift(parts)
        law = self.mechanism.law
        return parts[0].sign * law.loss_from(_norm(self.gradient), inner, distance), distance

    def _blockwise(
        self, losses: Callable[[list[_Part]], tuple[FloatArray, ...]], change: Change
    ) -> tuple[FloatArray, ...]:
        """Return what ``losses`` computes for blocks of the rows that change, put together."""
        parts = [losses(block) for block in self._blocks(change)]
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def _blocks(self, change: Change) -> list[list[_Part]]:
        """Return the rows that change, in blocks; refuse labels that the loss does not take."""
        sides = [(1, change.leaving), (-1, change.entering)]
        whole = [(sign, side.X, side.y) for sign, side in sides if side is not None]
        for _, _, y in whole:
            self.constants.loss.check_labels(y)
        blocks = list(row_blocks(len(change), len(self.theta))) or [slice(0)]
        return [[(sign, X[b], y[b]) for sign, X, y in whole] for b in blocks]

    def changed(self, sign: int, X: FloatArray, y: FloatArray) -> ChangedRows:
        """Return rows that leave or enter, with what the loss needs of them.

        Parameters
        ----------
        sign : int
            1 for rows that leave, −1 for rows that enter.
        X, y : FloatArray
            The rows and their labels.

        Returns
        -------
        ChangedRows
            The rows with their derivatives at θ.
        """
        loss = self.constants.loss
        lengths = row_norms(X)
        norms = lengths * (1 + 2 * gamma(X.shape[1] + 4))
        z = predictors(X, self.theta, loss.outputs)
        derivatives = loss.at(z, y)
        return ChangedRows(
            sign=sign,
            X=X,
            lengths=lengths,
            norms=norms,
            derivatives=derivatives,
            gradient_error=self._gradient_error(derivatives, norms),
            spread=self.row_spread(norms),
            most=self._most(norms),
            uncertain=uncertain_rows(loss, z, y, norms, self.reach),
        )

    def _gradient_error(self, derivatives: Derivatives, norms: FloatArray) -> FloatArray:
        """Bound the error of each ∇ℓ: at the exact minimiser, and by rounding."""
        steepest = self.constants.loss.curvature_bound * norms
        rounding = self.constants.slope_error(self.theta, derivatives, norms)
        error: FloatArray = norms * (steepest * self.reach + rounding)
        return error

    def row_spread(self, norms: FloatArray) -> FloatArray:
        """Return log of the factor by which S of rows so long may differ at the exact minimiser.

        Parameters
        ----------
        norms : FloatArray
            (m,) the lengths of the rows.

        Returns
        -------
        FloatArray
            (m,) the logarithms.
        """
        loss = self.constants.loss
        spread: FloatArray = (loss.third_ratio or 0.0) * self.reach * norms
        return spread + loss.curvature_rounding

    def _most(self, norms: FloatArray) -> FloatArray:
        """Return the largest volume that rows so long can have."""
        rank, curvature = self.constants.loss.determinant
        most: FloatArray = rank * np.log1p(curvature * norms**2 / self.mechanism.penalty_sum)
        return most

    def _shift(self, parts: Sequence[ChangedRows]) -> tuple[FloatArray, FloatArray]:
        """Return (s·g, ∥s∥) of the shift s = ±∇ℓ of b, or ∇ℓ₁ − ∇ℓ₂."""
        first = parts[0]
        if len(parts) == 1:
            along = predictors(first.X, self.gradient, self.constants.loss.outputs)
            products = first.sign * first.derivatives.slope * along
            inner = products.reshape(len(first.X), -1).sum(axis=1)
            return inner, first.derivatives.length * first.lengths
        shift = sum(part.sign * _gradients(part) for part in parts)
        return np.asarray(shift) @ self.gradient, row_norms(np.asarray(shift))

    def _volume(self, parts: Sequence[ChangedRows]) -> tuple[FloatArray, FloatArray]:
        """Return the determinants' part of the loss, and a bound on its error."""
        first, spread = parts[0], self.spread + self.leverage.spread
        w, slack = self.leverage.eigenvalues(first), self.leverage.slack(first)
        value, error = _row_volume(first, w, slack, spread + first.spread)
        if len(parts) == 1:
            return value, error
        second = parts[1]
        after = self.leverage.after(first, second, spread, error)
        entering, entering_error = _row_volume(second, *after)
        return value - entering, error + entering_error

    def _certified(self, changes: list[_Part]) -> _Losses:
        """Return the losses of some neighbours, their errors and the shifts of b."""
        parts = [self.changed(*change) for change in changes]
        inner, distance = self._shift(parts)
        volume, volume_error = self._volume(parts)
        if not self.mechanism.is_private:
            return volume, volume_error, distance
        law, norm = self.mechanism.law, _norm(self.gradient)
        moved = np.sum([part.gradient_error for part in parts], axis=0)
        loss = parts[0].sign * law.loss_from(norm, inner, distance)
        error = law.loss_error(norm, distance, moved, self.gradient_error)
        return loss + volume, error + volume_error, distance

    def _loss(self, changes: list[_Part]) -> FloatArray:
        """Return the losses of some neighbours, without the bounds where that is quicker."""
        if len(changes) > 1:
            return self._certified(changes)[0]
        part = self.changed(*changes[0])
        inner, distance = self._shift([part])
        loss = part.sign * self.mechanism.law.loss_from(_norm(self.gradient), inner, distance)
        return loss + volume_of(self.leverage.simulated_eigenvalues(part), part.sign, part.most)

    def collected(
        self,
        losses: _Losses,
        relation: Neighbouring = Neighbouring.REMOVE,
        *,
        rows: int = 1,
        limit: FloatArray | None = None,
    ) -> RowLosses:
        """Return losses with their intervals and what is guaranteed.

        Parameters
        ----------
        losses : _Losses
            (n,) the losses, and the lower and upper ends of their intervals.
        relation : Neighbouring, default=Neighbouring.REMOVE
            How the neighbouring data set differs.
        rows : int, default=1
            The most that change at once.
        limit : FloatArray, optional
            What pure ε allows each person, where persons have several rows.

        Returns
        -------
        RowLosses
            The losses in the form that all mechanisms share.
        """
        loss, error, distance = losses
        mechanism = self.mechanism
        if not mechanism.is_private:
            return RowLosses.without_noise(distance, np.zeros(len(distance)), relation)
        if mechanism.grid.is_clamped(self.theta):
            # Its cell is unbounded.
            error = np.full_like(loss, np.inf)
        # The half-widths are infinite where nothing is proved.
        error = np.where(np.isnan(error), np.inf, error) + 8 * ROUNDOFF * np.abs(loss)
        worst, passed = mechanism.worst_case_of(rows)
        if relation is not Neighbouring.REMOVE:
            passed = mechanism.worst_case_passed_by(relation)
        # Pure ε bounds every loss, whatever the interval is.
        most = limit if limit is not None else worst if mechanism.noise == "laplace" else np.inf
        covered = mechanism.covers(relation)
        return RowLosses(
            loss=loss,
            low=np.maximum(loss - error, -most),
            high=np.minimum(loss + error, most),
            distance=distance,
            distance_error=np.zeros_like(distance),
            relation=relation,
            law=None,
            worst_case=worst if covered else np.inf,
            worst_case_passed=passed if covered else 0.0,
            guarantee=mechanism.guarantee(rows) if covered else None,
        )


def _row_volume(
    part: ChangedRows, w: FloatArray, slack: FloatArray, spread: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the volume of single rows and its error; at a knot anything up to the largest."""
    ends = None
    if np.any(part.uncertain):
        at_knot = part.uncertain[:, None]
        ends = ((np.where(at_knot, 0.0, w), slack), (np.where(at_knot, np.inf, w), slack))
    return log_volume(w, sign=part.sign, slack=slack, spread=spread, most=part.most, ends=ends)


def _gradients(part: ChangedRows) -> FloatArray:
    """Return (m, q·d) ∇ℓ."""
    slope = part.derivatives.slope.reshape(len(part.X), -1)
    gradients: FloatArray = (slope[:, :, None] * part.X[:, None, :]).reshape(len(part.X), -1)
    return gradients


class _Sums:
    """What a pass adds up at one θ: Σ∇ℓ, Σ∇²ℓ, their rounding, rows near knots, rows a block."""

    def __init__(self, dimension: int) -> None:
        self.gradient = CompensatedSum((dimension,))
        self.hessian = CompensatedSum((dimension, dimension))
        self.rounding = self.loose = 0.0
        self.block_rows = 0

    def add(self, part: tuple[FloatArray, FloatArray, float, float, int]) -> None:
        """Add the sums of one block."""
        self.gradient.add(part[0])
        self.hessian.add(part[1])
        self.rounding += part[2]
        self.loose += part[3]
        self.block_rows = max(self.block_rows, part[4])


@dataclass(frozen=True, kw_only=True, eq=False)
class _TangentSums:
    """Σ∇ℓ, Σ∇²ℓ, the rounding error of the first, Σ∥x∥² of rows near a knot; at each θ."""

    constants: Constants
    thetas: FloatArray
    reach: float

    def __call__(self, block: RowBlock) -> list[tuple[FloatArray, FloatArray, float, float, int]]:
        """Return the sums of one block, and its number of rows."""
        return [self._at(theta, block) for theta in self.thetas]

    def _at(
        self, theta: FloatArray, block: RowBlock
    ) -> tuple[FloatArray, FloatArray, float, float, int]:
        X, y, norms, constants = block.X, block.y, block.norms, self.constants
        loss = constants.loss
        # So that a row that is removed changes what no other adds: those of one output may be
        # published.
        z = row_products(X, theta) if loss.outputs == 1 else predictors(X, theta, loss.outputs)
        derivatives = loss.at(z, y)
        error = constants.slope_error(theta, derivatives, norms)
        near = uncertain_rows(loss, z, y, norms, self.reach + constants.margin_error(theta))
        return (
            (derivatives.slope.T @ X).ravel(),
            derivatives.curvature_sum(X),
            float(norms @ (error + gamma(len(X) + 4) * derivatives.length)),
            float(np.sum(near * norms**2)),
            len(X),
        )


def uncertain_rows(
    loss: Loss, z: FloatArray, y: FloatArray, norms: FloatArray, reach: float
) -> NDArray[np.bool_]:
    """Return whether each predictor may pass a knot of the Huber hinge within ``reach`` of θ."""
    if not isinstance(loss, Kinked):
        return np.zeros(len(z), dtype=bool)
    slack = norms * (reach + 1e-15 * (1 + np.abs(z)))
    return np.asarray(loss.knot_distance(z, y) <= slack + 4 * ROUNDOFF * (1 + np.abs(z)))


def _norm(vector: FloatArray) -> float:
    return float(np.linalg.norm(vector))
