"""The losses of all rows of a softmax regression under objective perturbation (R&W Thm 6).

Conventions (those of :mod:`expost.losses` and :mod:`expost.mechanisms.tangent`)
---------------------------------------------------------------------------------
g, H  ∇J(θ; D) and ∇²J(θ; D) of the summed objective at the released θ, so that b = −g.
M     (K, K) of a row: M[a, b] = xᵀ(H⁻¹)ₐᵦx, with (H⁻¹)ₐᵦ the (d, d) block of two classes.

For a row that leaves, with ∇ℓ = u ⊗ x and ∇²ℓ = S ⊗ x xᵀ,

    loss = [log p_b(g) − log p_b(g − ∇ℓ)] − log det(I − H⁻¹∇²ℓ)        (Thm 6, erratum 5)

and det(I − H⁻¹∇²ℓ) = det(I − W) (Sylvester), where W = RᵀMR is only K by K: S = RRᵀ for
R = √P·Π, P = diag p, and Π = I − √p√pᵀ, a projection. M comes from one matrix product with H⁻¹.
A row that enters has −[log p_b(g) − log p_b(g + ∇ℓ)] + log det(I + W); where one replaces another,
the second W is that of H without the first, M₂₂ + M₂₁R(I − W)⁻¹RᵀM₁₂ in the place of M₂₂.

What was released is the exact minimiser θ* rounded to a grid: every loss comes as an interval that
holds it at each θ* within ``reach_of_cell`` of θ. There g is off by at most ∥H∥ times that, ∇ℓ by
½∥x∥² times that, and each ∇²ℓ by a factor of e^(±√2∥x∥·reach), in the order of quadratic forms. So
is H by the largest of these factors, and the eigenvalues of W by the product of both.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from expost._numerics import ROUNDOFF, CompensatedSum, gamma, row_blocks, row_norms
from expost.errors import InvalidInput, WrongRows
from expost.glm import Objective
from expost.losses import SoftmaxDerivatives
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.row_losses import RowLosses
from expost.types import FloatArray, IntArray, Neighbouring

__all__ = ["SoftmaxTangent"]

# How improbable a noise must be before the rows are taken for the wrong ones.
_IMPLAUSIBLE = 1e-9
# Past this a factor of e^s says nothing.
_FAR = 600.0
# Roundings of p relative to itself: of exp(t) with t down to −745, of the sum and the quotient.
_EXPONENTIAL = 1600


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxTangent:
    """J at a released θ: what every row's loss is made of.

    ``rounding``  how far the computed g may be from the true one at θ.
    ``weight``    Σ tr S∥x∥², by which the rounding of H is measured.
    """

    mechanism: ObjectivePerturbation
    problem: Objective
    theta: FloatArray
    gradient: FloatArray
    rounding: float
    hessian: FloatArray
    weight: float

    @classmethod
    def at(
        cls, mechanism: ObjectivePerturbation, problem: Objective, theta: FloatArray
    ) -> "SoftmaxTangent":
        """One pass over the rows."""
        gradient = CompensatedSum((problem.loss.outputs, problem.columns))
        hessian = np.zeros((problem.dimension, problem.dimension))
        rounding = weight = 0.0
        for block in problem.held.blocks():
            X, norms = problem.held.X[block], problem.held.norms[block]
            found = SoftmaxDerivatives.of(
                X @ problem.matrix(theta).T, problem.held.y[block].astype(np.int64)
            )
            gradient.add(found.slope.T @ X)
            hessian += found.curvature_sum(X)
            error = problem.constants.slope_error(theta, found, norms)
            rounding += float(norms @ (error + gamma(len(X) + 4) * found.length))
            weight += float(norms**2 @ found.trace)
        penalty = mechanism.penalty_sum
        total = gradient.value.ravel() + penalty * theta
        hessian[np.diag_indices_from(hessian)] += penalty
        return cls(
            mechanism=mechanism,
            problem=problem,
            theta=theta,
            gradient=total,
            rounding=rounding + 8 * ROUNDOFF * (_norm(total) + penalty * _norm(theta)),
            hessian=hessian,
            weight=weight,
        )

    @cached_property
    def _inverse(self) -> FloatArray:
        """H⁻¹ as (K, d, K, d)."""
        K, d = self.problem.loss.outputs, self.problem.columns
        factor = scipy.linalg.cho_factor(self.hessian)
        inverse = scipy.linalg.cho_solve(factor, np.eye(K * d))
        return (0.5 * (inverse + inverse.T)).reshape(K, d, K, d)

    @cached_property
    def _form_error(self) -> float:
        """A bound on the error of M over ∥x∥²: of the inverse, from its residual, and of products.

        ∥P − H⁻¹∥ ≤ ∥I − HP∥/λ_min(H), and λ_min(H) is λ: along (1, …, 1) nothing curves.
        """
        dimension = self.problem.dimension
        inverse = self._inverse.reshape(dimension, dimension)
        size = _norm(inverse)
        residual = _norm(np.eye(dimension) - self.hessian @ inverse)
        residual += gamma(dimension + 8) * (_norm(self.hessian) * size + dimension)
        return residual / self._lowest + gamma(2 * self.problem.columns + 16) * size

    @cached_property
    def _accumulated(self) -> float:
        """A bound on ∥computed H − H∥ for the p that was computed: rounded sums of S ⊗ x xᵀ."""
        blocks = list(self.problem.held.blocks())
        longest = max(block.stop - block.start for block in blocks)
        terms = longest + len(blocks) + 2 * self.problem.loss.outputs + 64
        return gamma(terms) * (self.weight + self.mechanism.penalty_sum)

    @property
    def _lowest(self) -> float:
        return max(self.mechanism.penalty_sum - self._accumulated, 1e-300)

    def moved(self, norms: FloatArray | float) -> FloatArray:
        """log of the factor by which S of rows so long may differ from the computed one."""
        reach = self.mechanism.reach_of_cell + self.problem.constants.margin_error(self.theta)
        moved: FloatArray = math.sqrt(2) * np.asarray(norms) * reach + 4 * self._evaluated
        return moved

    @property
    def _evaluated(self) -> float:
        """A relative error of p acts like as large a change of z."""
        return gamma(_EXPONENTIAL + self.problem.loss.outputs)

    @cached_property
    def spread(self) -> float:
        """log of the factor by which H at the exact minimiser may differ from the computed one."""
        share = self._accumulated / self._lowest
        moved = float(self.moved(float(self.problem.held.norms.max())))
        return moved + (-math.log1p(-share) if share < 1 else math.inf)

    @cached_property
    def gradient_error(self) -> float:
        """How far g may be from that of the exact minimiser, rounding included."""
        last = self.problem.dimension - 1
        (highest,) = scipy.linalg.eigvalsh(self.hessian, subset_by_index=[last, last])
        highest *= 1 + 16 * gamma(last + 9)
        steepest = min(highest * math.exp(min(self.spread, 50.0)), self.mechanism.steepest)
        # The solver's own residual is one of the gradient.
        residual = self.mechanism.rows * self.mechanism.tolerance
        return self.rounding + float(steepest) * self.mechanism.half_cell + residual

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

    def row_losses(
        self,
        relation: Neighbouring = Neighbouring.REMOVE,
        entering: tuple[FloatArray, FloatArray] | None = None,
    ) -> RowLosses:
        """log p(θ ∣ D) − log p(θ ∣ D') with its interval; of ``entering`` rows for ADD, REPLACE.

        For ADD the sign is turned, so that > 0 always is evidence that the row was there. A single
        row may replace every row.
        """
        changes = self._changes(relation, entering)
        rows = len(changes[0][0])
        loss, error, distance = np.empty(rows), np.empty(rows), np.empty(rows)
        for block in row_blocks(rows, self.problem.dimension):
            parts = [self._changed(X[block], y[block]) for X, y in changes]
            distance[block], loss[block], error[block] = self._noise(parts, relation)
            volume, volume_error = self._volume(parts, relation)
            loss[block] += volume
            error[block] += volume_error
        if not self.mechanism.is_private:
            return RowLosses.without_noise(distance, np.zeros(rows), relation)
        return self._collected(loss, error, distance, relation)

    def removal_losses(self) -> FloatArray:
        """(n,) the losses of removal alone, without their intervals: for simulation."""
        loss = np.empty(self.problem.count)
        for block in self.problem.held.blocks():
            part = self._changed(self.problem.held.X[block], self.problem.held.y[block])
            _, inner, distance = self._shift([part], Neighbouring.REMOVE)
            eigenvalues = np.minimum(self._eigenvalues(part), 1 - ROUNDOFF)
            loss[block] = self.mechanism.law.loss_from(_norm(self.gradient), inner, distance)
            loss[block] -= np.log1p(-eigenvalues).sum(axis=1)
        return loss

    def _changes(
        self, relation: Neighbouring, entering: tuple[FloatArray, FloatArray] | None
    ) -> list[tuple[FloatArray, FloatArray]]:
        """The rows that leave, and those that enter."""
        problem = self.problem
        changes = [] if relation is Neighbouring.ADD else [(problem.held.X, problem.held.y)]
        if relation is not Neighbouring.REMOVE:
            assert entering is not None
            X, y = entering
            if relation is Neighbouring.REPLACE and len(X) == 1:
                X, y = np.tile(X, (problem.count, 1)), np.tile(y, problem.count)
            if relation is Neighbouring.REPLACE and len(X) != problem.count:
                raise InvalidInput(
                    f"candidates[0] has {len(X)} rows: relation='replace' needs one, or one for"
                    f" each of the {problem.count} rows of X."
                )
            changes.append((X, y))
        return changes

    def _changed(self, X: FloatArray, y: FloatArray) -> "_Changed":
        """Rows that leave or enter, with what the loss needs of them."""
        problem = self.problem
        norms = row_norms(X) * (1 + 2 * gamma(X.shape[1] + 4))
        found = SoftmaxDerivatives.of(X @ problem.matrix(self.theta).T, self._codes(y))
        return _Changed(X=X, found=found, norms=norms, root=np.sqrt(found.p))

    def _codes(self, y: FloatArray) -> IntArray:
        """Return labels as classes, checked."""
        self.problem.loss.check_labels(y)
        return y.astype(np.int64)

    def _shift(
        self, parts: list["_Changed"], relation: Neighbouring
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(sign, s·g, ∥s∥) of the shift s = ±∇ℓ of b, or ∇ℓ₁ − ∇ℓ₂."""
        G = self.problem.matrix(self.gradient)
        sign = np.array(-1.0 if relation is Neighbouring.ADD else 1.0)
        first = parts[0]
        if len(parts) == 1:
            inner = sign * np.einsum("ij,ij->i", first.found.slope, first.X @ G.T)
            return sign, inner, first.found.length * row_norms(first.X)
        second = parts[1]
        shift = first.found.slope[:, :, None] * first.X[:, None, :]
        shift -= second.found.slope[:, :, None] * second.X[:, None, :]
        flat = shift.reshape(len(shift), -1)
        return sign, flat @ self.gradient, row_norms(flat)

    def _noise(
        self, parts: list["_Changed"], relation: Neighbouring
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(∥s∥, the noise's part of the loss, its error)."""
        sign, inner, distance = self._shift(parts, relation)
        if not self.mechanism.is_private:
            return distance, np.zeros_like(distance), np.zeros_like(distance)
        law, norm = self.mechanism.law, _norm(self.gradient)
        reach, moved = self.mechanism.reach_of_cell, np.zeros_like(distance)
        for part in parts:
            error = self.problem.constants.slope_error(self.theta, part.found, part.norms)
            moved += part.norms * (0.5 * part.norms * reach + error)
        loss = law.loss_from(norm, inner, distance)
        return distance, sign * loss, law.loss_error(norm, distance, moved, self.gradient_error)

    def _forms(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """(m, K, K) the forms leftᵀ(H⁻¹)ₐᵦ right of pairs of rows."""
        K, d = self.problem.loss.outputs, self.problem.columns
        forms = np.empty((len(left), K, K))
        for a in range(K):
            # Those of a row with itself are symmetric.
            first = a if left is right else 0
            columns = self._inverse[a, :, first:].reshape(d, -1)
            products = (left @ columns).reshape(-1, K - first, d)
            forms[:, a, first:] = np.einsum("ikj,ij->ik", products, right)
            if left is right:
                forms[:, a:, a] = forms[:, a, a:]
        return forms

    def _gram(self, left: "_Changed", right: "_Changed") -> FloatArray:
        """(m, K, K) R₁ᵀM₁₂R₂."""
        s, t = left.root[:, :, None], right.root[:, None, :]
        gram: FloatArray = s * self._forms(left.X, right.X) * t
        gram -= s * np.sum(s * gram, axis=1, keepdims=True)
        gram -= np.sum(gram * t, axis=2, keepdims=True) * t
        return gram

    def _eigenvalues(self, part: "_Changed") -> FloatArray:
        """(m, K) those of W, 0 and up."""
        values = np.linalg.eigvalsh(_symmetric(self._gram(part, part)))
        return np.asarray(np.maximum(values, 0.0), dtype=np.float64)

    def _slack(self, part: "_Changed") -> FloatArray:
        """How far rounding may have put the eigenvalues of W off."""
        K = self.problem.loss.outputs
        unit = 0.5 * self._form_error + gamma(16 * K + 64) / self._lowest
        slack: FloatArray = part.norms**2 * unit
        return slack

    def _volume(
        self, parts: list["_Changed"], relation: Neighbouring
    ) -> tuple[FloatArray, FloatArray]:
        """The determinants' part of the loss, and a bound on its error."""
        first = parts[0]
        spread = self.spread + self.moved(first.norms)
        slack = self._slack(first)
        match relation:
            case Neighbouring.REMOVE:
                return self._log_volume(-1, self._eigenvalues(first), slack, spread, first)
            case Neighbouring.ADD:
                return self._log_volume(+1, self._eigenvalues(first), slack, spread, first)
            case Neighbouring.REPLACE:
                return self._exchanged(first, parts[1], slack, spread)

    def _exchanged(
        self, first: "_Changed", second: "_Changed", slack: FloatArray, spread: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """−log det(I − W₁) − log det(I + W₂), W₂ of H without the first row."""
        own = _symmetric(self._gram(first, first))
        cross = self._gram(first, second)
        w = np.clip(np.linalg.eigvalsh(own), 0.0, 1 - ROUNDOFF)
        leaving, leaving_error = self._log_volume(-1, w, slack, spread, first)
        rest = np.eye(own.shape[1]) - own
        other = self._gram(second, second)
        other += np.swapaxes(cross, 1, 2) @ np.linalg.solve(rest, cross)
        v = np.maximum(np.linalg.eigvalsh(_symmetric(other)), 0.0)
        # Errors e of the three Gram matrices move W₂ by at most e(1 + c∥cross∥)² + ce², where
        # c = 1/(1 − max W₁ − 2e) bounds both inverses; ce < 1 where c > 0.
        error = slack + self._slack(second)
        left = 1 - w[:, -1] - 2 * error
        with np.errstate(divide="ignore", over="ignore"):
            steep = 1 + np.linalg.norm(cross, axis=(1, 2)) / np.maximum(left, 1e-300)
            error = np.where(left > 0, 2 * error * steep**2, np.inf)
        # The first row's p was computed twice: H without it is off by what the two differ in.
        twice = np.expm1(8 * self._evaluated + 4 * self.problem.constants.margin_error(self.theta))
        spread = self.spread + self.moved(second.norms)
        spread = spread + twice * first.norms**2 / self.mechanism.penalty_sum
        entering, entering_error = self._log_volume(+1, v, error, spread, second)
        return leaving - entering, leaving_error + entering_error

    def _log_volume(
        self, sign: int, w: FloatArray, slack: FloatArray, spread: FloatArray, part: "_Changed"
    ) -> tuple[FloatArray, FloatArray]:
        """±log det(I ± W) from the eigenvalues of W, and how far it may be off.

        In either case it is log det(I + H'⁻¹∇²ℓ) for an H' of other rows, at least λ: it lies
        between 0 and (K − 1)·log(1 + ∥x∥²/(Kλ)).
        """
        K = self.problem.loss.outputs
        most = (K - 1) * np.log1p(part.norms**2 / (K * self.mechanism.penalty_sum))

        def volume(w: FloatArray) -> FloatArray:
            inside = np.minimum(w, 1 - ROUNDOFF) if sign < 0 else w
            total: FloatArray = np.minimum(sign * np.log1p(sign * inside).sum(axis=1), most)
            return total

        factor = np.exp(np.minimum(spread, _FAR))[:, None]
        value = volume(w)
        high = volume((w + slack[:, None]) * factor)
        low = volume(np.maximum(w - slack[:, None], 0.0) / factor)
        error: FloatArray = np.maximum(high - value, value - low)
        return value, error + 16 * K * ROUNDOFF * (1 + value)

    def _collected(
        self, loss: FloatArray, error: FloatArray, distance: FloatArray, relation: Neighbouring
    ) -> RowLosses:
        how = self.mechanism
        if how.grid.is_clamped(self.theta):
            # Its cell is unbounded.
            error = np.full_like(loss, np.inf)
        error = np.where(np.isnan(error), np.inf, error) + 8 * ROUNDOFF * np.abs(loss)
        # Gaussian noise is calibrated to a row that leaves or enters, not to one for another.
        promised = how.noise == "laplace" or relation is not Neighbouring.REPLACE
        limit = how.worst_case if how.noise == "laplace" else np.inf
        return RowLosses(
            loss=loss,
            low=np.maximum(loss - error, -limit),
            high=np.minimum(loss + error, limit),
            distance=distance,
            distance_error=np.zeros_like(distance),
            relation=relation,
            law=None,
            worst_case=how.worst_case if promised else math.inf,
            worst_case_passed=how.worst_case_passed_by(relation) if promised else 0.0,
            guarantee=how.guarantee() if promised else None,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Changed:
    """Rows that leave or enter, with p and u; ``root`` is √p."""

    X: FloatArray
    found: SoftmaxDerivatives
    norms: FloatArray
    root: FloatArray


def _symmetric(matrices: FloatArray) -> FloatArray:
    symmetric: FloatArray = 0.5 * (matrices + np.swapaxes(matrices, 1, 2))
    return symmetric


def _norm(array: FloatArray) -> float:
    return float(np.linalg.norm(array))
