"""The losses of all rows under objective perturbation, from one tangent of the objective at θ.

Conventions
-----------
g, H  ∇J(θ; D) and ∇²J(θ; D) of the summed objective at the released θ, so that b = −g.

θ ↦ b is a bijection with Jacobian −H, so p(θ ∣ D) = p_b(g)·det H; for a generalised linear loss

    loss = [log p_b(g) − log p_b(g − ∇ℓ)] − log(1 − f″μ),    μ = xᵀH⁻¹x    (R&W Cor. 7, erratum 5)

for a row that leaves; one that enters has −[log p_b(g) − log p_b(g + ∇ℓ)] + log(1 + f″μ). The
bracket is the loss of the noise for the shift ±∇ℓ, as under output perturbation.

What was released is the exact minimiser θ* rounded to a grid, and found to ∥∇J∥ ≤ 1e-12: θ* lies
within ``reach_of_cell`` of θ. Every loss comes as an interval that holds it at every such θ*: g
moves by at most ∥H∥ times that, ∇ℓ by c∥x∥² times that, and f″ and H by a factor e^(±spread) where
∣f‴∣ ≤ M f″. A row of the Huber hinge that is that close to a knot counts with any f″.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from expost._numerics import ROUNDOFF, CompensatedSum, gamma, row_blocks, row_norms, row_products
from expost.errors import WrongRows
from expost.glm import Constants, Objective
from expost.losses import HuberHinge, Loss, ScalarDerivatives
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.row_losses import RowLosses
from expost.rows import RowBlock
from expost.types import FloatArray, Neighbouring

__all__ = ["Tangent", "uncertain_rows"]

# How improbable a noise must be before the rows are taken for the wrong ones.
_IMPLAUSIBLE = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class Tangent:
    """J at a released θ: what every row's loss is made of (R&W: g and H).

    ``objective``       the rows; None where the tangent has gone to where some of them are.
    ``gradient_error``  how far g may be from that of the exact minimiser, rounding included.
    ``spread``          log of the factor by which H and every f″ may differ there.
    """

    mechanism: ObjectivePerturbation
    constants: Constants
    objective: Objective | None
    theta: FloatArray
    gradient: FloatArray
    gradient_error: float
    factor: FloatArray
    spread: float
    hessian: FloatArray

    @classmethod
    def at(
        cls, mechanism: ObjectivePerturbation, problem: Objective, theta: FloatArray
    ) -> "Tangent":
        """One pass over the rows."""
        gradient = CompensatedSum((problem.columns,))
        curved = CompensatedSum((problem.columns, problem.columns))
        rounding = loose = 0.0
        # Where the exact minimiser's predictors may be: θ's cell, and their own rounding.
        reach = mechanism.reach_of_cell + problem.constants.margin_error(theta)
        task = _TangentSums(constants=problem.constants, theta=theta, reach=reach)
        for part in problem.map(task):
            gradient.add(part[0])
            curved.add(part[1])
            rounding += part[2]
            loose += part[3]
        hessian, penalty = curved.value, mechanism.penalty_sum
        weight = float(np.trace(hessian))
        total = gradient.value + penalty * theta
        rounding += 8 * ROUNDOFF * (float(np.linalg.norm(total)) + penalty * _norm(theta))
        hessian[np.diag_indices_from(hessian)] += penalty
        values = scipy.linalg.eigvalsh(hessian)
        lowest, highest = float(values[0]), float(values[-1])
        ratio = problem.loss.third_ratio or 0.0
        spread = ratio * reach * problem.rows.longest
        # What rows at a knot may add to H or take from it.
        jump = problem.loss.curvature_bound * loose / max(lowest, penalty)
        spread += math.inf if not jump < 1 else -math.log1p(-jump)
        # Of f″, of its sums over a block, of the factor and the solves with it.
        spread += 32 * ROUNDOFF + 2 * gamma(2**15 + 64) * weight / lowest
        spread += 16 * gamma(problem.columns + 8) * highest / lowest
        steepest = min(highest * math.exp(min(spread, 50.0)), mechanism.steepest)
        return cls(
            mechanism=mechanism,
            constants=problem.constants,
            objective=problem,
            theta=theta,
            gradient=total,
            # The solver's own residual is one of the gradient.
            gradient_error=rounding
            + steepest * mechanism.half_cell
            + mechanism.rows * mechanism.tolerance,
            factor=scipy.linalg.cholesky(hessian, lower=True),
            spread=spread,
            hessian=hessian,
        )

    def check_rows(self) -> None:
        """Refuse rows that cannot have made θ: a noise outside its own law at 1e-9."""
        how, norm, slack = self.mechanism, _norm(self.gradient), self.gradient_error
        if not how.is_private:
            plausible = norm <= slack + 1e-8 * how.steepest
        elif how.grid.is_clamped(self.theta):
            plausible = True
        else:
            below, _ = how.law.norm_tails(norm + slack)
            _, above = how.law.norm_tails(max(norm - slack, 0.0))
            plausible = float(above) >= _IMPLAUSIBLE / 2 and float(below) >= _IMPLAUSIBLE / 2
        if not plausible:
            raise WrongRows(
                "X, y: these rows cannot have made this model (its noise would have a norm of"
                f" {norm:.3g}, outside its law at {_IMPLAUSIBLE:g}); pass the training rows, in"
                " their order and with their encoding."
            )

    @property
    def problem(self) -> Objective:
        """The rows, for what needs them all at once."""
        assert self.objective is not None
        return self.objective

    def block_losses(self, block: RowBlock) -> RowLosses:
        """log p(θ ∣ D) − log p(θ ∣ D₋ᵢ) of the rows of a block, with its interval."""
        loss, error, distance = self._block([self._changed(block.X, block.y)], Neighbouring.REMOVE)
        return self._collected(loss, error, distance, Neighbouring.REMOVE)

    def row_losses(
        self,
        relation: Neighbouring = Neighbouring.REMOVE,
        entering: tuple[FloatArray, FloatArray] | None = None,
    ) -> RowLosses:
        """log p(θ ∣ D) − log p(θ ∣ D') with its interval; of ``entering`` rows for ADD, REPLACE.

        For ADD the sign is turned, so that > 0 always is evidence that the row was there.
        """
        problem = self.problem
        changes: list[tuple[FloatArray, FloatArray]] = []
        if relation is not Neighbouring.ADD:
            changes.append((problem.held.X, problem.held.y))
        if relation is not Neighbouring.REMOVE:
            assert entering is not None
            changes.append(entering)
        rows = len(changes[0][0])
        loss, error, distance = np.empty(rows), np.empty(rows), np.empty(rows)
        for block in row_blocks(rows, problem.columns):
            parts = [self._changed(X[block], y[block]) for X, y in changes]
            loss[block], error[block], distance[block] = self._block(parts, relation)
        if not self.mechanism.is_private:
            return RowLosses.without_noise(distance, np.zeros(rows), relation)
        return self._collected(loss, error, distance, relation)

    def _changed(self, X: FloatArray, y: FloatArray) -> "_Changed":
        """Rows that leave or enter, with what the loss needs of them."""
        constants = self.constants
        reach = self.mechanism.reach_of_cell + constants.margin_error(self.theta)
        norms = row_norms(X) * (1 + 2 * gamma(X.shape[1] + 4))
        z = X @ self.theta
        found = constants.loss.at(z, y)
        assert isinstance(found, ScalarDerivatives)
        slope, curvature = found.slope, found.curvature
        rounding = constants.slope_error(self.theta, found, norms)
        steepest = constants.loss.curvature_bound * norms
        return _Changed(
            X=X,
            slope=slope,
            curvature=curvature,
            most_curved=constants.loss.curvature_bound * norms**2 / self.mechanism.penalty_sum,
            uncertain=uncertain_rows(constants.loss, z, y, norms, reach),
            norms=norms,
            gradient_error=norms * (steepest * reach + rounding),
            spread=(constants.loss.third_ratio or 0.0) * reach * norms + 32 * ROUNDOFF,
            roots=scipy.linalg.solve_triangular(self.factor, X.T, lower=True),
        )

    def _block(
        self, parts: list["_Changed"], relation: Neighbouring
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(loss, its error, the length of the shift of b) for a block of neighbours."""
        signs = {
            Neighbouring.REMOVE: (1.0,),
            Neighbouring.ADD: (-1.0,),
            Neighbouring.REPLACE: (1.0, -1.0),
        }[relation]
        if len(parts) == 1:
            slope = signs[0] * parts[0].slope
            distance = np.abs(slope) * row_norms(parts[0].X)
            inner = slope * (parts[0].X @ self.gradient)
        else:
            pairs = zip(signs, parts, strict=True)
            shift = sum((sign * part.slope)[:, None] * part.X for sign, part in pairs)
            distance, inner = row_norms(np.asarray(shift)), np.asarray(shift) @ self.gradient
        volume, volume_error = _volume(parts, relation, self.spread)
        if not self.mechanism.is_private:
            return volume, volume_error, distance
        law, norm = self.mechanism.law, _norm(self.gradient)
        moved = np.sum([part.gradient_error for part in parts], axis=0)
        loss = law.loss_from(norm, inner, distance)
        error = law.loss_error(norm, distance, moved, self.gradient_error)
        if relation is Neighbouring.ADD:
            loss = -loss
        return loss + volume, error + volume_error, distance

    def _collected(
        self, loss: FloatArray, error: FloatArray, distance: FloatArray, relation: Neighbouring
    ) -> RowLosses:
        how = self.mechanism
        if how.grid.is_clamped(self.theta):
            # Its cell is unbounded.
            error = np.full_like(loss, np.inf)
        error = np.where(np.isnan(error), np.inf, error) + 8 * ROUNDOFF * np.abs(loss)
        # Pure ε bounds every loss, whatever the interval says.
        limit = how.worst_case if how.noise == "laplace" else np.inf
        # Gaussian noise is not calibrated for an exchange.
        promised = how.noise == "laplace" or relation is not Neighbouring.REPLACE
        return RowLosses(
            loss=loss,
            low=np.maximum(loss - error, -limit),
            high=np.minimum(loss + error, limit),
            distance=distance,
            distance_error=np.zeros_like(distance),
            relation=relation,
            law=None,
            worst_case=how.worst_case if promised else np.inf,
            worst_case_passed=how.worst_case_passed_by(relation) if promised else 0.0,
            guarantee=how.guarantee() if promised else None,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _TangentSums:
    """Σ∇ℓ, Σ∇²ℓ, the rounding error of the first, Σ∥x∥² of rows near a knot."""

    constants: Constants
    theta: FloatArray
    reach: float

    def __call__(self, block: RowBlock) -> tuple[FloatArray, FloatArray, float, float]:
        """Those of one block."""
        X, y, norms, constants = block.X, block.y, block.norms, self.constants
        # So that a row that is removed changes what no other adds (these sums may be published).
        z = row_products(X, self.theta)
        found = constants.loss.at(z, y)
        error = constants.slope_error(self.theta, found, norms)
        near = uncertain_rows(constants.loss, z, y, norms, self.reach)
        return (
            found.slope @ X,
            found.curvature_sum(X),
            float(norms @ (error + gamma(len(X) + 4) * found.length)),
            float(np.sum(near * norms**2)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Changed:
    """Rows that leave or enter: f′, f″, what may be off about them, and H^(−½)x as columns.

    ``most_curved``  c∥x∥²/λ, which f″μ of a row that enters cannot pass.
    ``uncertain``    whether a knot of the loss may lie between θ and the exact minimiser.
    ``spread``       log of the factor by which the row's own f″ may differ there.
    """

    X: FloatArray
    slope: FloatArray
    curvature: FloatArray
    most_curved: FloatArray
    uncertain: NDArray[np.bool_]
    norms: FloatArray
    gradient_error: FloatArray
    spread: FloatArray
    roots: FloatArray

    @property
    def leverage(self) -> FloatArray:
        """f″·xᵀH⁻¹x."""
        square: FloatArray = np.einsum("ij,ij->j", self.roots, self.roots)
        return self.curvature * square


def _volume(
    parts: list[_Changed], relation: Neighbouring, spread: float
) -> tuple[FloatArray, FloatArray]:
    """The determinants' part of the loss, and a bound on its error.

    Removing: −log(1 − h), h = f″μ; adding: log(1 + h); replacing: −log of the product of what the
    first leaves and the second adds to it, h₂ then taken with the first row gone.
    """
    first = parts[0].leverage
    match relation:
        case Neighbouring.REMOVE:
            return _leaving(first, parts[0], spread + parts[0].spread)
        case Neighbouring.ADD:
            return _entering(first, parts[0], spread + parts[0].spread)
        case Neighbouring.REPLACE:
            leaving, leaving_error = _leaving(first, parts[0], spread + parts[0].spread)
            mixed = np.einsum("ij,ij->j", parts[0].roots, parts[1].roots) ** 2
            gone = parts[0].curvature / np.maximum(1 - first, 1e-300)
            second = parts[1].leverage + parts[1].curvature * gone * mixed
            both = 2 * (spread + parts[0].spread + parts[1].spread)
            entering, entering_error = _entering(second, parts[1], both + 4 * leaving_error)
            return leaving - entering, leaving_error + entering_error


def _leaving(h: FloatArray, part: _Changed, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
    """−log(1 − h) and how far it may be off, where h may be e^(±spread) times itself."""
    h = np.minimum(h, 1 - ROUNDOFF)
    # A row's f″μ with itself in H is h' / (1 + h') with h' ≤ most_curved, so the volume is bounded.
    most = np.log1p(part.most_curved)
    with np.errstate(over="ignore"):
        high = np.minimum(h * np.exp(np.minimum(spread, 700.0)), 1 - ROUNDOFF)
    return _bracketed(
        -np.log1p(-h),
        -np.log1p(-h * np.exp(-np.minimum(spread, 700.0))),
        np.minimum(-np.log1p(-high), most),
        part,
        most,
    )


def _entering(h: FloatArray, part: _Changed, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log(1 + h) and how far it may be off."""
    most = np.log1p(part.most_curved)
    with np.errstate(over="ignore"):
        high = np.log1p(h * np.exp(np.minimum(spread, 700.0)))
    low = np.log1p(h * np.exp(-np.minimum(spread, 700.0)))
    return _bracketed(np.log1p(h), low, np.minimum(high, most), part, most)


def _bracketed(
    value: FloatArray, low: FloatArray, high: FloatArray, part: _Changed, most: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The value, and its distance to the farther end; at a knot anything up to ``most``."""
    low = np.where(part.uncertain, 0.0, low)
    high = np.where(part.uncertain, most, high)
    error = np.maximum(np.maximum(high - value, value - low), 0.0)
    return value, error + 16 * ROUNDOFF * (1 + value)


def uncertain_rows(
    loss: Loss, z: FloatArray, y: FloatArray, norms: FloatArray, reach: float
) -> NDArray[np.bool_]:
    """Whether the predictor may pass a knot of the Huber hinge within ``reach`` of θ."""
    if not isinstance(loss, HuberHinge):
        return np.zeros(len(z), dtype=bool)
    distance = np.abs(np.abs(1 - y * z) - loss.width)
    slack = norms * (reach + 1e-15 * (1 + np.abs(z)))
    return np.asarray(distance <= slack + 4 * ROUNDOFF * (1 + np.abs(z)))


def _norm(vector: FloatArray) -> float:
    return float(np.linalg.norm(vector))
