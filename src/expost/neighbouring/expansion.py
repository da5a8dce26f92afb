"""The second-order expansion of J at the base, which a step to any neighbour starts from.

Conventions
-----------
Rows enter (sign +1) or leave (−1). With m₀ = n rows before and m after, p and p' the penalty before
and after, k = (m₀p − m p')∘Â, w = sign·f″/m and L = Σ f″ x xᵀ over D, all at Â:

    −F̃(Â)  = (k − Σ sign·f′ x)/m            what pulls the minimiser away
    B       = diag(p') + L/m,   H' = B + Σ w x xᵀ
    δ       = a₀ + Σ s·B⁻¹x,    a₀ = B⁻¹k/m

One vector and one scalar a changed row: the scalars solve s = −sign·f′/m − w(x·δ), a system as
large as the number of changed rows. :mod:`expost.neighbouring.one_row` has one of them
(Sherman–Morrison), :mod:`expost.neighbouring.several_rows` any number.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from expost._numerics import ROUNDOFF, UNDERFLOW, gamma, weighted_gram
from expost.errors import ConvergenceError
from expost.glm import Constants, Minimiser, Objective
from expost.losses import Loss
from expost.neighbouring.certificate import point_error
from expost.neighbouring.change import EvaluatedRows
from expost.neighbouring.knots import KnotBins, KnotDistances, Knots
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = [
    "CANCELLATION",
    "Curvature",
    "Expansion",
    "Linear",
    "ThirdBound",
    "ThirdOrderTerms",
    "curvature_of",
    "expand",
]

# A squared length is expanded unless the expansion loses more than this factor.
CANCELLATION = 100.0
# Eigenvectors of the long rows that the third-order bound follows one by one.
_DIRECTIONS = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class ThirdBound:
    """An upper bound on T = (M/m) Σ f″∥x∥x xᵀ that costs no second pass over all rows.

    Most rows are no longer than a ``common`` norm r; with E = (M/m) Σ f″(∥x∥ − r)x xᵀ over the
    few that are,

        T ≼ r·(M/m)Σ f″x xᵀ + E ≼ M·r·L/m + Σ v vᵀ + rest·I,

    v the leading eigenvectors of E times the root of their eigenvalue (``directions``, d × k). So
    δᵀTδ needs δᵀLδ, which a Newton step has for nothing, and k inner products. ``common`` holds
    the factor M, ``ratio`` is M.
    """

    common: float
    directions: FloatArray
    rest: float
    ratio: float


class Linear(NamedTuple):
    """A bound of the form a∥δ∥ + b∣s∣∥x∥ + c for each step δ = a₀ + s·B⁻¹x."""

    per_length: float
    per_stretch: float
    alone: float

    def at(self, length: FloatArray, stretch: FloatArray) -> FloatArray:
        """Return the bounds of steps with these ∥δ∥ and ∣s∣∥x∥."""
        bound = self.per_length * length
        bound += self.per_stretch * stretch
        bound += self.alone
        return bound


@dataclass(frozen=True, kw_only=True, eq=False)
class ThirdOrderTerms:
    """½(1 + ε)δᵀTδ from above, δ = a₀ + s·B⁻¹x: what is the same for all steps of one row.

        form·s(x·δ + x·a₀) + quadratic∥δ∥² + both∥δ∥∣s∣∥x∥ + stretch∣s∣∥x∥ + alone + Σ(v·δ)²,

    the first two being the energy δᵀLδ times ½(1 + ε)·M·r, the next two its rounding, and
    ``along`` v·a₀ of the directions v, which are those of :class:`ThirdBound` times √(½(1 + ε)).
    """

    form: float
    quadratic: float
    both: float
    stretch: float
    alone: float
    along: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Curvature:
    """J at the base as a whole: O(d²) numbers from one pass, and all that an expansion needs.

    Attributes
    ----------
    terms : int
        The largest number of additions that an entry of the sums went through: the rows of a block,
        and the blocks.
    second : FloatArray
        Σ f″x xᵀ.
    weight : float
        Σ f″∥x∥².
    long_rows : FloatArray
        Σ f″(∥x∥ − r)x xᵀ over the few rows that are longer than the common norm r.
    residual : float
        The largest ∣f′∣ + ∣y∣, because f′ of a regression rounds with y; of classes 2.
    knots : Knots | None
        Where f″ jumps, for a loss whose f″ does.
    """

    constants: Constants
    rows: int
    terms: int
    penalty: FloatArray
    base: Minimiser
    second: FloatArray
    weight: float
    longest: float
    common_norm: float
    long_rows: FloatArray
    residual: float
    knots: Knots | None


@dataclass(frozen=True, kw_only=True, eq=False)
class _CurvatureSums:
    """What one block adds to :class:`Curvature`."""

    second: FloatArray
    weight: float
    long_rows: FloatArray
    residual: float
    knots: KnotDistances | KnotBins | None
    rows: int


@dataclass(frozen=True, kw_only=True, eq=False)
class _SumCurvature:
    """A pass that sums the curvature of the rows of each block at ``theta``.

    Attributes
    ----------
    evaluated : EvaluatedRows | None
        All rows at ``theta``, where they are known; None: a block is evaluated here.
    """

    constants: Constants
    theta: FloatArray
    common_norm: float
    is_held: bool
    evaluated: EvaluatedRows | None = None

    def __call__(self, block: RowBlock) -> _CurvatureSums:
        """Return the sums of one block."""
        loss = self.constants.loss
        if self.evaluated is None:
            rows = EvaluatedRows.of(block, self.theta, loss)
        else:
            rows = self.evaluated.take(slice(block.start, block.start + len(block)))
        knots: KnotDistances | KnotBins | None = None
        if loss.third_ratio is None:
            kind = KnotDistances if self.is_held else KnotBins
            knots = kind.of(self.constants, rows, self.theta)
        long = np.flatnonzero(rows.norms > self.common_norm)
        excess = rows.curvature[long] * (rows.norms[long] - self.common_norm)
        return _CurvatureSums(
            second=weighted_gram(rows.X, rows.curvature),
            weight=float(rows.curvature @ rows.norm_squares),
            long_rows=weighted_gram(rows.X[long], excess),
            residual=rows.residual(loss),
            knots=knots,
            rows=len(block),
        )


def curvature_of(
    objective: Objective, base: Minimiser, evaluated: EvaluatedRows | None = None
) -> Curvature:
    """Return J at the base as a whole, in one pass over the rows.

    ``evaluated``: all rows of ``objective`` at the base, where they are known already.
    """
    d, rows = objective.columns, objective.rows
    second, long_rows = np.zeros((d, d)), np.zeros((d, d))
    weight = residual = 0.0
    longest_block = blocks = 0
    knots: KnotDistances | KnotBins | None = None
    task = _SumCurvature(
        constants=objective.constants,
        theta=base.theta,
        common_norm=rows.common_norm,
        is_held=rows.is_held,
        evaluated=evaluated,
    )
    for sums in objective.map(task):
        second += sums.second
        weight += sums.weight
        long_rows += sums.long_rows
        residual = max(residual, sums.residual)
        knots = sums.knots if knots is None else knots.merged(sums.knots)  # type: ignore[arg-type]
        longest_block, blocks = max(longest_block, sums.rows), blocks + 1
    return Curvature(
        constants=objective.constants,
        rows=objective.count,
        terms=longest_block + blocks,
        penalty=objective.penalty,
        base=base,
        second=second,
        weight=weight,
        longest=rows.longest,
        common_norm=rows.common_norm,
        long_rows=long_rows,
        residual=residual,
        knots=None if knots is None else knots.knots(objective.loss),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Expansion:
    """J expanded at the base for neighbours of m rows: all that a step to any of them needs.

    Attributes
    ----------
    leaving, entering : int
        The numbers of rows that leave and enter at each neighbour.
    residual : float
        The largest ∣f′∣ + ∣y∣ of a row that may change.
    pull : FloatArray
        k/m.
    third : FloatArray | None
        T from above, as a matrix.
    third_bound : ThirdBound | None
        T from above, in the parts that a Newton step uses.
    lowest : float
        A lower bound on B's least eigenvalue.
    slack : float
        What was taken off for ``lowest``.
    base_lowest : float
        A lower bound on the least curvature of J itself around the base.
    """

    curved: Curvature
    leaving: int
    entering: int
    residual: float
    rows_after: int
    penalty_after: FloatArray
    penalty_change: FloatArray

    pull: FloatArray
    hessian: FloatArray
    eigenvalues: FloatArray
    rotation: FloatArray
    inverse: FloatArray
    third: FloatArray | None
    third_bound: ThirdBound | None
    knots: Knots | None
    largest_norm: float
    curvature_error: float
    hessian_error: float
    solve_error: float
    pull_error: float
    lowest: float
    slack: float
    base_lowest: float
    loss_curvature: float

    @property
    def loss(self) -> Loss:
        """The loss."""
        return self.curved.constants.loss

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return self.curved.constants.columns

    @property
    def base(self) -> Minimiser:
        """The computed minimiser Â."""
        return self.curved.base

    @property
    def spread(self) -> float:
        """M·X: how fast the curvature can change along a step; 0 where that is not what bounds."""
        return (self.loss.third_ratio or 0.0) * self.largest_norm

    @cached_property
    def floor(self) -> float:
        """The least penalty after the change: strong convexity that needs no curvature."""
        return float(np.min(self.penalty_after))

    @property
    def least_penalty(self) -> float:
        """Strong convexity at either end; tiny where a coordinate is not penalised at all."""
        return max(min(self.floor, float(np.min(self.curved.penalty))), 1e-300)

    @cached_property
    def base_error(self) -> float:
        """A bound on ∥Â − A∥."""
        return float(
            point_error(
                self.base.gradient_bound,
                floor=float(np.min(self.curved.penalty)),
                curvature=self.base_lowest,
                spread=self.spread,
                decay=1.0,
            )
        )

    @cached_property
    def leverage_error(self) -> float:
        """ε with ∣computed − true∣ ≤ ε∥x∥² for every xᵀB⁻¹x."""
        solve = self.solve_error + gamma(2 * self.columns + 8)
        return 4 * solve * self.inverse_norm

    @cached_property
    def inverse_norm(self) -> float:
        """∥B⁻¹∥, in Frobenius' norm."""
        return float(np.linalg.norm(self.inverse))

    @cached_property
    def probes(self) -> FloatArray:
        """What gives x·a₀, 2B⁻¹x·a₀ and B⁻¹x·v from u = Qᵀx, one a row."""
        turned = self.rotation.T @ self.offset
        directions = (self.rotation.T @ self._directions) / self.eigenvalues[:, None]
        return np.vstack([turned, 2 * turned / self.eigenvalues, directions.T])

    @cached_property
    def _directions(self) -> FloatArray:
        """(d, k) the directions v of the third-order bound, times √(½(1 + ε))."""
        if self.third_bound is None:
            return np.zeros((self.columns, 0))
        return self.third_bound.directions * math.sqrt(self._half)

    @property
    def _half(self) -> float:
        """½(1 + ε): the factor of δᵀTδ, ε the error of f″ and of the sum of its parts."""
        return 0.5 * (1 + self.curvature_error) * (1 + 64 * ROUNDOFF)

    @cached_property
    def third_order_terms(self) -> ThirdOrderTerms:
        """What δᵀTδ is bounded by, for a loss with a third derivative."""
        third = self.third_bound
        assert third is not None
        offset = float(np.linalg.norm(self.offset))
        pull = float(np.linalg.norm(self.pull))
        form = self._half * third.common
        # B·(B⁻¹x) = x and Ba₀ = k/m but for ``loose``, the error of the solves and of sums. With
        # ∣s∣∥B⁻¹x∥ ≤ ∥δ∥ + ∥a₀∥ and b = ∣s∣∥x∥: s²xᵀB⁻¹x and s²(B⁻¹x)ᵀB(B⁻¹x) are each known to
        # loose·b(∥δ∥ + ∥a₀∥), 2s·x·a₀ and 2s(B⁻¹x)ᵀBa₀ to loose·2b∥a₀∥, and the rest is for the
        # products with s.
        loose = self.solve_error + gamma(2 * self.columns + 16)
        energy = float(self.pull @ self.offset) + (loose * pull + self.pull_error) * offset
        # s·B⁻¹x is known to κ(∥δ∥ + ∥a₀∥), for ∣s∣∥x∥ ≤ λ_max(B)(∥δ∥ + ∥a₀∥); so (v·δ)² is off by
        # at most ∥v∥²κ(1 + κ)(5∥δ∥² + 3∥a₀∥²).
        largest = self.loss_curvature + float(np.max(self.penalty_after))
        kappa = loose * largest * self.inverse_norm
        followed = float(np.sum(self._directions**2)) * kappa * (1 + kappa)
        return ThirdOrderTerms(
            form=form,
            # (The energy is δᵀBδ less that of the penalty, which is rounded down.)
            quadratic=self._half * third.rest
            + 5 * followed
            - form * self.floor * (1 - 8 * ROUNDOFF),
            both=3 * form * loose,
            stretch=8 * form * loose * offset,
            alone=form * energy + 3 * followed * offset * offset,
            along=self._directions.T @ self.offset,
        )

    @cached_property
    def forms(self) -> FloatArray:
        """1/λ and 1/λ², one a row."""
        return np.vstack([1 / self.eigenvalues, 1 / self.eigenvalues**2])

    @cached_property
    def offset(self) -> FloatArray:
        """The common vector a₀."""
        offset: FloatArray = self.inverse @ self.pull
        return offset

    @cached_property
    def changed_curvature(self) -> float:
        """The most that the changed rows of one neighbour can weigh."""
        return (self.leaving + self.entering) * self.heaviest

    @cached_property
    def heaviest(self) -> float:
        """The most that one row can weigh, sup f″·X²/m."""
        return self.loss.curvature_bound * self.largest_norm**2 / self.rows_after

    @cached_property
    def shift_rounding(self) -> Linear:
        """The error of a shift that is formed from its scalars, of its length and inner products.

        u = Qᵀx errs by γ√d∥x∥, and a length by at most √CANCELLATION times what its parts do.
        """
        dot = gamma(2 * self.columns + 16)
        wide = 2 * math.sqrt(CANCELLATION * self.columns)
        tiny = UNDERFLOW * (1 + 1 / self.floor) if self.floor > 0 else UNDERFLOW
        return Linear(
            per_length=2 * CANCELLATION * dot,
            per_stretch=wide * dot * self.inverse_norm,
            alone=8 * ROUNDOFF * float(np.linalg.norm(self.offset)) + tiny,
        )

    @cached_property
    def linear_rounding(self) -> Linear:
        """What rounding leaves of the linear system of one changed row.

        The Hessian's error and that of x·δ grow with the step, and that of B⁻¹x with ∣s∣∥x∥; those
        of f′, of the predictor, of the scalars and of the pull do not. Each is taken for the row
        where it is largest: they are far below what the step itself leaves.
        """
        m = self.rows_after
        offset = float(np.linalg.norm(self.offset))
        # Of sums of d products through the rotation: x·a₀ errs by dot·∥x∥∥a₀∥, xᵀB⁻¹x by
        # dot·∥x∥∥B⁻¹x∥.
        dot = 4 * math.sqrt(self.columns) * gamma(2 * self.columns + 16)
        # ∣f′∣ ≤ 1 for the classification losses; f′ = z − y rounds with y.
        slope = self.largest_norm
        if not self.loss.is_classification:
            slope *= self.residual
        shaken = (
            self.curved.constants.margin_error(self.base.theta) + (16 * ROUNDOFF + 4 * dot) * offset
        )
        relative = self.hessian_error + self.changed_curvature * (3 * dot + self.curvature_error)
        absolute = 32 * ROUNDOFF * slope / m
        return Linear(
            per_length=relative,
            per_stretch=16 * ROUNDOFF + self.solve_error,
            alone=absolute + self.changed_curvature * shaken + self.pull_error,
        )

    @cached_property
    def common_curvature(self) -> float | None:
        """A lower bound on the least curvature at Â of all neighbours, where one serves them all.

        For neighbours that change one row.
        """
        if self.loss.third_ratio is None:
            return self.floor
        least = self.lowest - (self.heaviest if self.leaving else 0.0)
        return max(self.floor, least) if least >= self.lowest / 2 else None


def expand(
    curved: Curvature,
    *,
    leaving: int = 1,
    entering: int = 0,
    changed: EvaluatedRows | None = None,
    keep_total_penalty: bool = False,
) -> Expansion:
    """Return what a step to any neighbour needs.

    Parameters
    ----------
    curved : Curvature
        J at the base.
    leaving : int, default=1
        The number of rows that leave at each neighbour.
    entering : int, default=0
        The number of rows that enter at each neighbour.
    changed : EvaluatedRows, optional
        The rows that may change; None: those of the data.
    keep_total_penalty : bool, default=False
        Whether a neighbour keeps the total m·p of the sum, not p of the average.
    """
    rows_after = curved.rows - leaving + entering
    residual = curved.residual if changed is None else changed.residual(curved.constants.loss)
    longest = 0.0 if changed is None else float(changed.norms.max())
    base, second = curved.base, curved.second
    loss, m, n, d = curved.constants.loss, rows_after, curved.rows, curved.constants.columns
    penalty_after = curved.penalty * (n / m) if keep_total_penalty else curved.penalty
    # m₀p − m p', without subtracting: the products would round apart.
    penalty_change = curved.penalty * (0 if keep_total_penalty else n - m)
    margin = curved.constants.margin_error(base.theta)
    weight = curved.weight
    longest = max(longest, curved.longest)
    # f″ at a predictor known to margin·∥x∥, and the rounding of f″ itself.
    drift = min((loss.third_ratio or 0.0) * margin * longest, 700.0)
    off = float(np.expm1(drift)) + 16 * ROUNDOFF
    summing = gamma(curved.terms + 8) * weight
    hessian = second / m + np.diag(penalty_after)
    third, third_bound = _third_order(curved, second / m, m)
    size = float(np.linalg.norm(hessian))
    eigenvalues, rotation, inverse = _decompose(hessian, float(np.min(penalty_after)))
    spread_out = gamma(2 * d + 8) * size * float(np.linalg.norm(inverse))
    misfit = float(np.linalg.norm(hessian @ inverse - np.eye(d)))
    hessian_error = (off * weight + summing) / m + 8 * ROUNDOFF * size
    slack = hessian_error + 16 * d * ROUNDOFF * size
    pull = penalty_change * base.theta / m
    offset = inverse @ pull
    pull_size = float(np.linalg.norm(pull)) + size * float(np.linalg.norm(offset))
    if keep_total_penalty:
        # The penalty after the change is itself rounded.
        pull_size += float(np.linalg.norm(penalty_after * base.theta))
    base_penalty = float(np.min(curved.penalty))
    # The base's own Hessian is (m/n)B + diag(p − (m/n)p').
    base_lowest = (m / n) * (float(eigenvalues[0]) - slack) + float(
        np.min(curved.penalty - (m / n) * penalty_after)
    )
    return Expansion(
        curved=curved,
        leaving=leaving,
        entering=entering,
        residual=residual,
        rows_after=m,
        penalty_after=penalty_after,
        penalty_change=penalty_change,
        pull=pull,
        hessian=hessian,
        eigenvalues=eigenvalues,
        rotation=rotation,
        inverse=inverse,
        third=third,
        third_bound=third_bound,
        knots=None if curved.knots is None else curved.knots.scaled(1 / m),
        largest_norm=longest,
        curvature_error=off,
        hessian_error=hessian_error,
        solve_error=misfit + 2 * spread_out,
        pull_error=float(np.linalg.norm(pull - hessian @ offset)) + gamma(d + 8) * pull_size,
        lowest=float(eigenvalues[0]) - slack,
        slack=slack,
        # A kinked loss's curvature may be gone one ulp away: only the penalty is certain.
        base_lowest=base_penalty if loss.third_ratio is None else max(base_penalty, base_lowest),
        loss_curvature=float(eigenvalues[-1]) + slack - float(np.min(penalty_after)),
    )


def _third_order(
    curved: Curvature, curvature: FloatArray, m: int
) -> tuple[FloatArray | None, ThirdBound | None]:
    """Return T from above, as a matrix and in the parts that a Newton step uses."""
    ratio, columns = curved.constants.loss.third_ratio, curved.constants.columns
    if not ratio:
        return None, None
    common = curved.common_norm
    extra = curved.long_rows * (ratio / m)
    values, vectors = np.linalg.eigh(extra)
    leading = min(_DIRECTIONS, len(values))
    # Rounding of the sums and of the decomposition, for either part.
    slack = gamma(curved.terms + 64 * columns) * (
        float(np.trace(extra)) + ratio * common * float(np.trace(curvature))
    )
    bound = ThirdBound(
        common=ratio * common,
        directions=vectors[:, -leading:] * np.sqrt(np.maximum(values[-leading:], 0.0)),
        rest=(max(float(values[-leading - 1]), 0.0) if leading < len(values) else 0.0) + slack,
        ratio=ratio,
    )
    identity = np.eye(columns)
    return ratio * common * curvature + extra + slack * identity, bound


def _decompose(hessian: FloatArray, floor: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return λ, Q and Q diag(1/λ)Qᵀ of a matrix whose eigenvalues are all at least ``floor``.

    Rounding may have lost the smallest ones; what raising them does to the inverse is measured as
    part of ``solve_error``.
    """
    eigenvalues, rotation = np.linalg.eigh(hessian)
    eigenvalues = np.maximum(eigenvalues, floor)
    if not eigenvalues[0] > 0:
        raise ConvergenceError(
            "the Hessian is not positive definite in float64: raise regularization, or drop"
            " columns that repeat others."
        )
    inverse = (rotation / eigenvalues) @ rotation.T
    return eigenvalues, rotation, (inverse + inverse.T) / 2
