"""The losses of a perturbed fit whose solver stopped short of the minimiser.

Conventions
-----------
J, b     Σ ℓ(θ; xᵢ, yᵢ) + ½ Σⱼ Pⱼθⱼ² with the logistic loss and rows in the unit ball; what was
         minimised is J + b·θ, b of density ∝ exp(−β∥b∥). P may be 0 at the last coordinate, which
         is then an intercept, constant over the rows.
g, H, μ  ∇J and ∇²J at the θ that the solver came to; μ = xᵀH⁻¹x.

The loss is about the density of the minimiser θ*: β(∥g* − ∇ℓ∥ − ∥g*∥) − log(1 − f″μ) there
(DESIGN erratum 5, R&W Cor. 7). L-BFGS-B stops where no entry of the gradient passes a tolerance,
or where the objective has ceased to fall, so that g + b = r with a residual r that is not stored.
With ρ ≥ ∥r∥ in the norm of H⁻¹ and M² = max μᵢ, self-concordance (∣f‴∣ ≤ f″) gives

    ∥θ* − θ∥_H ≤ u = −ln(1 − Mρ)/M,    ∣x·(θ* − θ)∣ ≤ √μ·u,    e^(−Mu) H ≤ H* ≤ e^(Mu) H:

for v = θ* − θ and s = max∣xᵢ·v∣ ≤ M∥v∥_H, vᵀr ≥ ∥v∥²_H·(1 − e^(−s))/s. Every loss comes as the
interval of all such θ*.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from expost._numerics import ROUNDOFF, CompensatedSum, gamma, row_norms
from expost.errors import ConvergenceError, InvalidInput, WrongRows
from expost.glm import Objective, minimise
from expost.losses import Logistic, ScalarDerivatives
from expost.noise import NormLaplace
from expost.types import FloatArray

__all__ = ["FitLosses", "PerturbedFit"]

# How improbable a noise must be before the rows are taken for the wrong ones.
_IMPLAUSIBLE = 1e-9
# L-BFGS-B also stops at a relative decrease of 64 spacings of float64. What it leaves above the
# minimum is taken to be at most a hundred times such a decrease: no proof, but
# docs/evidence/diffprivlib.json has the most that was seen.
_LEFT = 100 * 64 * 2 * ROUNDOFF
_TRIALS = 4096
# The gradient (averaged) at which a simulated model is good enough.
_GRADIENT = 1e-10


@dataclass(frozen=True, kw_only=True, eq=False)
class FitLosses:
    """(n,) losses, the ends of their intervals, and ∥∇ℓ∥."""

    loss: FloatArray
    low: FloatArray
    high: FloatArray
    distance: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class PerturbedFit:
    """One perturbed objective and the θ that its solver came to.

    ``law``        of b.
    ``tolerance``  the largest entry of ∇J + b that the solver left; inf where that is not known.
    """

    problem: Objective
    theta: FloatArray
    law: NormLaplace
    tolerance: float

    def exact_losses(self, theta: FloatArray) -> FloatArray:
        """Return the losses at a θ that is the minimiser, (n,)."""
        return _Tangent.at(self.problem, theta, self.law).loss

    def drawn_losses(self, noise: FloatArray) -> FloatArray | None:
        """(n,) the losses of the minimiser for another b, or None where there is none to find."""
        if not self.has_minimiser(noise[-1:])[0]:
            return None
        tilted = replace(self.problem, linear=noise / self.problem.count)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                theta = minimise(tilted, tolerance=_GRADIENT).theta
            return self.exact_losses(theta)
        # Of NumPy and SciPy where a step overflowed, of ours where the objective is flat.
        except (ConvergenceError, ValueError):
            return None

    def has_minimiser(self, along: FloatArray) -> NDArray[np.bool_]:
        """Return whether J + b·θ has a minimiser, for b's entries ``along`` the last coordinate.

        Without a penalty there the rows must hold b: Σf′ lies strictly between −(the number of
        rows with y = +1) and the number of the others.
        """
        if self.problem.penalty[-1] > 0:
            return np.ones(len(along), dtype=bool)
        constant = float(self.problem.held.X[0, -1])
        positive = constant * int(np.count_nonzero(self.problem.held.y > 0))
        negative = constant * self.problem.count - positive
        return np.asarray((along < positive) & (along > -negative))

    def runaway_share(self) -> float:
        """Return how often b leaves no minimiser, from draws of a fixed seed."""
        rng, d = np.random.default_rng(0), self.problem.columns
        norm = rng.standard_gamma(d, _TRIALS) / self.law.rate
        cosine = np.sqrt(rng.beta(0.5, (d - 1) / 2, _TRIALS)) if d > 1 else np.ones(_TRIALS)
        along = norm * cosine * rng.choice([-1.0, 1.0], _TRIALS)
        return float(np.mean(~self.has_minimiser(along)))

    def check_rows(self) -> None:
        """Refuse rows that cannot have made θ: a noise outside its own law at 1e-9."""
        here = _Tangent.at(self.problem, self.theta, self.law)
        slack, _ = here.residual(self.tolerance)
        below, _ = self.law.norm_tails(here.norm + slack)
        _, above = self.law.norm_tails(max(here.norm - slack, 0.0))
        if not min(float(above), float(below)) >= _IMPLAUSIBLE / 2:
            raise WrongRows(
                "X, y: these rows cannot have made this model (its noise would lie outside its law"
                f" at {_IMPLAUSIBLE:g}); pass the training rows in their order, as they were passed"
                " to its fit."
            )

    def losses(self) -> FitLosses:
        """Return the loss of every row, with its interval."""
        here = _Tangent.at(self.problem, self.theta, self.law)
        slack, local = here.residual(self.tolerance)
        spread, margin = here.spread(local)
        reach = here.norms * (here.slope_change(margin) + here.slope_error)
        with np.errstate(invalid="ignore"):
            error = self.law.loss_error(here.norm, here.distance, reach, slack)
        error = np.where(np.isnan(error), np.inf, error)
        # Whatever b is, a shift changes its norm by no more than its own length.
        most = self.law.rate * np.minimum(here.distance + reach, here.norms)
        rounding = 16 * ROUNDOFF * (1 + np.abs(here.loss))
        smallest, largest = here.volumes(margin + spread)
        return FitLosses(
            loss=here.loss,
            low=np.maximum(here.noise_loss - error, -most) + smallest - rounding,
            high=np.minimum(here.noise_loss + error, most) + largest + rounding,
            distance=here.distance,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Inverse:
    """H⁻¹ of a positive definite H, by the Cholesky factor of H scaled to a unit diagonal.

    Scaled, a coordinate that hardly anything holds costs no accuracy (van der Sluis 1969).
    ``error`` bounds the relative error of every xᵀH⁻¹x.
    """

    factor: FloatArray
    scale: FloatArray
    error: float

    @classmethod
    def of(cls, hessian: FloatArray) -> "_Inverse | None":
        """None where H is flat along some direction to float64."""
        diagonal, d = np.diag(hessian), len(hessian)
        if not np.all(diagonal > 0):
            return None
        scale = 1 / np.sqrt(diagonal)
        if not np.all(np.isfinite(scale)):
            return None
        scaled = hessian * scale * scale[:, None]
        lowest = float(scipy.linalg.eigvalsh(scaled, subset_by_index=(0, 0))[0])
        error = 16 * gamma(d + 8) * d / lowest if lowest > 0 else math.inf
        if not error < 0.5:
            return None
        return cls(factor=scipy.linalg.cholesky(scaled, lower=True), scale=scale, error=error)

    def leverage(self, X: FloatArray) -> FloatArray:
        """Return xᵀH⁻¹x, (n,)."""
        half = scipy.linalg.solve_triangular(self.factor, (X * self.scale).T, lower=True)
        square: FloatArray = np.einsum("ij,ij->j", half, half)
        return square

    @property
    def matrix(self) -> FloatArray:
        """H⁻¹."""
        inverse = scipy.linalg.cho_solve((self.factor, True), np.diag(self.scale))
        result: FloatArray = self.scale[:, None] * inverse
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tangent:
    """J at a θ: g, and per row f′, f″, μ and h = f″xᵀH₋ᵢ⁻¹x.

    ``value``     J + b·θ for the b that θ implies.
    ``trace``     of H.  ``inverse``  H⁻¹.
    ``alone``     (n,) h, and ``alone_error`` the log of the factor that rounding may have cost it.
    """

    problem: Objective
    law: NormLaplace
    norms: FloatArray
    gradient: FloatArray
    rounding: float
    value: float
    slope: FloatArray
    slope_error: FloatArray
    curvature: FloatArray
    leverage: FloatArray
    alone: FloatArray
    alone_error: FloatArray
    trace: float
    inverse: FloatArray
    inverse_error: float

    @classmethod
    def at(cls, problem: Objective, theta: FloatArray, law: NormLaplace) -> "_Tangent":
        """Two passes over the rows, and one for each row that holds a direction by itself."""
        n, d = problem.held.X.shape
        gradient, value = CompensatedSum((d,)), CompensatedSum()
        norms, slope, slope_error, curvature, leverage = np.empty((5, n))
        for block in problem.held.blocks():
            X, y = problem.held.X[block], problem.held.y[block]
            z = X @ theta
            f1, f2 = problem.loss.derivatives(z, y)
            norms[block], slope[block], curvature[block] = row_norms(X), f1, f2
            slope_error[block] = problem.constants.slope_error(
                theta,
                ScalarDerivatives(slope=f1, curvature=f2, is_classification=True),
                problem.held.norms[block],
            )
            value.add(np.sum(problem.loss.value(z, y)))
            gradient.add(f1 @ X)
        penalty = n * problem.penalty
        total = gradient.value + penalty * theta
        hessian = _hessian(problem, curvature)
        inverse = _Inverse.of(hessian)
        if inverse is None:
            raise InvalidInput(
                "model: its coefficients have run off to where its objective is flat, as they do"
                " where the noise leaves no minimiser (an unpenalised intercept and few rows of one"
                " class); no loss can be computed."
            )
        for block in problem.held.blocks():
            leverage[block] = inverse.leverage(problem.held.X[block])
        alone, alone_error = _held_without(problem, curvature, leverage, inverse.error)
        # Rows come to us clipped and scaled: a few roundings each.
        rounding = problem.held.norms @ (slope_error + gamma(n + 4) + 16 * ROUNDOFF)
        size = np.linalg.norm(total) + np.linalg.norm(penalty * theta)
        return cls(
            problem=problem,
            law=law,
            norms=norms,
            gradient=total,
            rounding=float(rounding + 8 * ROUNDOFF * size),
            value=float(value.value - total @ theta + penalty @ theta**2 / 2),
            slope=slope,
            slope_error=slope_error,
            curvature=curvature,
            leverage=leverage,
            alone=alone,
            alone_error=alone_error,
            trace=float(np.trace(hessian)),
            inverse=inverse.matrix,
            inverse_error=inverse.error,
        )

    def residual(self, tolerance: float) -> tuple[float, float]:
        """Return bounds on ∥r∥ and on ∥r∥ in the norm of H⁻¹, for either test of the solver."""
        # The solver measures decreases against max(1, ∣objective∣) of the averaged form.
        left = math.sqrt(4 * _LEFT * max(abs(self.value), self.problem.count))
        far = math.sqrt(self.problem.columns) * tolerance + math.sqrt(self.trace) * left
        # rᵀH⁻¹r for an r whose entries, or whose norm, are bounded.
        entries, norm = float(np.sum(np.abs(self.inverse))), float(np.trace(self.inverse))
        local = math.sqrt(entries) * tolerance + math.sqrt(norm) * 2 * self.rounding
        return far + 2 * self.rounding, (local + left) * (1 + self.inverse_error)

    def spread(self, local: float) -> tuple[float, FloatArray]:
        """(Mu: the log of H's change, (n,) √μ·u: that of each predictor) between θ and θ*."""
        most = math.sqrt(float(np.max(self.leverage)) * (1 + self.inverse_error))
        spread = -math.log1p(-most * local) if most * local < 1 else math.inf
        share = np.sqrt(self.leverage) / most if most > 0 else np.zeros_like(self.leverage)
        return spread, np.where(share > 0, share * spread, 0.0)

    def slope_change(self, margin: FloatArray) -> FloatArray:
        """∣f′(z + a) − f′(z)∣ ≤ f″(e^∣a∣ − 1), and ≤ 1."""
        growth = np.expm1(np.minimum(margin, 700.0))
        return np.where(margin < 700, np.minimum(self.curvature * growth, 1.0), 1.0)

    @property
    def norm(self) -> float:
        """∥b∥ if θ were the minimiser."""
        return float(np.linalg.norm(self.gradient))

    @property
    def distance(self) -> FloatArray:
        """(n,) ∥∇ℓ∥, the shift of b."""
        return np.abs(self.slope) * self.norms

    @property
    def loss(self) -> FloatArray:
        """(n,) the losses if θ is the minimiser."""
        return self.noise_loss + np.log1p(self.alone)

    @property
    def noise_loss(self) -> FloatArray:
        """(n,) β(∥g − ∇ℓ∥ − ∥g∥)."""
        inner = self.slope * (self.problem.held.X @ self.gradient)
        return self.law.loss_from(self.norm, inner, self.distance)

    def volumes(self, change: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ends of −log(1 − f″μ) = log(1 + h), where h may be e^(±change) times itself.

        It is at most ln(1 + xᵀP⁻¹x/4), and what float64 cannot hold is not called infinite below.
        """
        change = change + self.alone_error
        with np.errstate(over="ignore", invalid="ignore"):
            low = np.minimum(self.alone, 1e300) * np.exp(-change)
            high = np.where(self.alone > 0, self.alone, 5e-324) * np.exp(change)
        penalty = self.problem.count * self.problem.penalty
        if np.all(penalty > 0):
            cap = Logistic.curvature_bound * (self.problem.held.X**2 @ (1 / penalty)) * (1 + 1e-12)
            low, high = np.minimum(low, cap), np.minimum(high, cap)
        return np.log1p(low), np.log1p(high)


def _hessian(problem: Objective, curvature: FloatArray) -> FloatArray:
    """Return ∇²J of the sum, from the rows' f″."""
    hessian = np.diag(problem.count * problem.penalty)
    for block in problem.held.blocks():
        X = problem.held.X[block]
        hessian += (X * curvature[block][:, None]).T @ X
    return hessian


def _held_without(
    problem: Objective, curvature: FloatArray, leverage: FloatArray, error: float
) -> tuple[FloatArray, FloatArray]:
    """h = f″xᵀH₋ᵢ⁻¹x of every row, and the log of the factor that rounding may have cost it.

    f″μ/(1 − f″μ), but where 1 − f″μ cancels: there H₋ᵢ is summed again. Such rows are few, for the
    f″μ of all rows sum to at most d. Nothing holds h down where only the row kept H from being
    flat: then it is infinite, which is how much such a row can lose.
    """
    inside = curvature * leverage
    crowded = inside > 0.9
    alone = np.where(crowded, np.inf, inside / np.where(crowded, 1.0, 1 - inside))
    lost = np.full_like(alone, 12 * error)
    for row in np.flatnonzero(crowded):
        others = curvature.copy()
        others[row] = 0.0
        without = _Inverse.of(_hessian(problem, others))
        if without is not None:
            alone[row] = curvature[row] * without.leverage(problem.held.X[row : row + 1])[0]
            lost[row] = 2 * without.error
    return alone, lost
