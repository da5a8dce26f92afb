"""The second-order expansion of J at the base, which a step to any neighbour starts from.

Conventions
-----------
Each neighbour changes one row or two: rows enter (sign +1) or leave (−1). With m₀ = n rows before
and m after, p and p' the penalty before and after, k = (m₀p − m p')∘Â, w = sign·f″/m and
L = Σ f″ x xᵀ over D, all at Â:

    −F̃(Â)  = (k − Σ sign·f′ x)/m            what pulls the minimiser away
    B       = diag(p') + L/m,   H' = B + Σ w x xᵀ
    δ       = a₀ + Σ s·B⁻¹x,    a₀ = B⁻¹k/m

One vector and one scalar a changed row: the scalars solve s = −sign·f′/m − w(x·δ), a system as
large as the number of changed rows (Sherman–Morrison for one). The (n, d) array of shifts is
never held.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from expost._numerics import ROUNDOFF, gamma, row_blocks
from expost.errors import ConvergenceError
from expost.glm import Constants, Minimiser, Objective
from expost.losses import Logistic, Loss
from expost.neighbouring.certificate import Knots, point_error
from expost.types import FloatArray, IntArray

__all__ = [
    "Change",
    "Curvature",
    "Expansion",
    "Linearised",
    "Step",
    "ThirdBound",
    "expand",
    "expand_curvature",
    "largest_gram",
    "linearise",
    "long_part",
    "third_moments",
]


# Eigenvectors of the long rows that the third-order bound follows one by one.
_DIRECTIONS = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """One changed row for every neighbour: it enters (``sign`` +1) or leaves (−1) the data."""

    sign: int
    X: FloatArray
    y: FloatArray
    norms: FloatArray
    norm_squares: FloatArray
    z: FloatArray
    slope: FloatArray
    curvature: FloatArray

    def take(self, rows: slice | IntArray) -> "Change":
        """The same for some of the neighbours."""
        return Change(
            sign=self.sign,
            X=self.X[rows],
            y=self.y[rows],
            norms=self.norms[rows],
            norm_squares=self.norm_squares[rows],
            z=self.z[rows],
            slope=self.slope[rows],
            curvature=self.curvature[rows],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """The scalars of a Newton step: what the certificate needs of it beside its length.

    ``scales``  s of each changed row.
    ``kept``    a lower bound on 1 − ∣w∣·xᵀB⁻¹x of the row that leaves (1 if none does): since
                H' ≽ B − ∣w∣x xᵀ ≽ (1 − ∣w∣xᵀB⁻¹x)·B, that share of B's curvature is kept.
    """

    changes: tuple[Change, ...]
    scales: tuple[FloatArray, ...]
    kept: FloatArray

    @cached_property
    def stretch(self) -> FloatArray:
        """Σ∣s∣∥x∥."""
        total = np.abs(self.scales[0]) * self.changes[0].norms
        for scale, change in zip(self.scales[1:], self.changes[1:], strict=True):
            total += np.abs(scale) * change.norms
        return total

    def take(self, rows: slice | IntArray) -> "Step":
        """The same for some of the neighbours."""
        return Step(
            changes=tuple(change.take(rows) for change in self.changes),
            scales=tuple(scale[rows] for scale in self.scales),
            kept=self.kept[rows],
        )


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Curvature:
    """J at the base as a whole, without its rows: O(d²) numbers, and all that an expansion needs.

    ``second``     Σ f″x xᵀ;  ``weight``  Σ f″∥x∥².
    ``long_rows``  Σ f″(∥x∥ − r)x xᵀ over the few rows that are longer than the common norm r.
    ``residual``   the largest ∣f′∣ + ∣y∣, for f′ of a regression rounds with y.
    ``knots``      where f″ jumps, for a loss whose f″ does.
    ``terms``      additions that an entry of the sums went through at most: the rows of a block,
                   and the blocks.
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
class Linearised:
    """The rows at the base: what expansions for neighbours of any size have in common.

    ``data``    every row's predictor and derivatives.
    ``second``  Σ f″x xᵀ.
    """

    problem: Objective
    base: Minimiser
    data: Change
    second: FloatArray

    @cached_property
    def curvature(self) -> Curvature:
        """The same without the rows."""
        problem, data = self.problem, self.data
        blocks, knots = list(problem.held.blocks()), None
        if problem.loss.third_ratio is None:
            knots = Knots.of(problem, data.z, problem.constants.margin_error(self.base.theta))
        return Curvature(
            constants=problem.constants,
            rows=problem.count,
            terms=blocks[0].stop + len(blocks),
            penalty=problem.penalty,
            base=self.base,
            second=self.second,
            weight=float(data.curvature @ data.norm_squares),
            longest=problem.rows.longest,
            common_norm=problem.rows.common_norm,
            long_rows=self._long_rows,
            residual=float(np.max(np.abs(data.slope) + np.abs(data.y))),
            knots=knots,
        )

    @cached_property
    def _long_rows(self) -> FloatArray:
        problem = self.problem
        common = problem.rows.common_norm
        long = np.flatnonzero(problem.held.norms > common)
        extra = np.zeros_like(self.second)
        for block in row_blocks(len(long), problem.columns):
            rows = long[block]
            extra += long_part(
                problem.held.X[rows], self.data.curvature[rows], problem.held.norms[rows], common
            )
        return extra

    @cached_property
    def largest_gram(self) -> float:
        """The largest eigenvalue of XᵀX, rounded up."""
        return largest_gram(self.problem)

    @cached_property
    def tensor(self) -> FloatArray:
        """Σ f‴ x⊗x⊗x of the logistic loss, as a (d, d²) matrix."""
        problem = self.problem
        return third_moments(problem.held.X, problem.held.y, self.base.theta, problem.loss)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExpandedRows:
    """The rows behind an expansion, where they are in memory.

    ``changes``  which of them leave, and which others enter: one or two for each neighbour.
    """

    linear: Linearised
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Expansion:
    """J expanded at the base for neighbours of m rows: all that a step to any of them needs.

    ``changed``  how many rows a neighbour changes; ``signs`` whether each of them enters or leaves
                 (empty for persons, whose rows are gathered where they are needed).
    ``residual`` the largest ∣f′∣ + ∣y∣ of a row that may change.
    ``rows``     the rows themselves and those that enter, where they are in memory.
    """

    curved: Curvature
    signs: tuple[int, ...]
    changed: int
    residual: float
    rows: "ExpandedRows | None"
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
        """ℓ."""
        return self.curved.constants.loss

    @property
    def columns(self) -> int:
        """The number d of columns."""
        return self.curved.constants.columns

    @property
    def linear(self) -> Linearised:
        """The rows at the base, for what needs them all at once."""
        assert self.rows is not None
        return self.rows.linear

    @property
    def changes(self) -> tuple[Change, ...]:
        """The rows that leave or enter, one or two for each neighbour."""
        assert self.rows is not None
        return self.rows.changes

    @property
    def problem(self) -> Objective:
        """The rows and constants of J."""
        return self.linear.problem

    @property
    def base(self) -> Minimiser:
        """Â."""
        return self.curved.base

    @property
    def spread(self) -> float:
        """M·X: how fast the curvature can change along a step; 0 where that is not what bounds."""
        return (self.loss.third_ratio or 0.0) * self.largest_norm

    @property
    def floor(self) -> float:
        """The least penalty after the change: strong convexity that needs no curvature."""
        return float(np.min(self.penalty_after))

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
        directions = np.zeros((self.columns, 0))
        if self.third_bound is not None:
            directions = self.third_bound.directions
        turned = self.rotation.T @ self.offset
        return np.vstack(
            [
                turned,
                2 * turned / self.eigenvalues,
                ((self.rotation.T @ directions) / self.eigenvalues[:, None]).T,
            ]
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

    @property
    def neighbours(self) -> int:
        """How many neighbours there are."""
        return len(self.changes[0].X)

    @cached_property
    def changed_curvature(self) -> float:
        """The most that the changed rows of one neighbour can weigh."""
        return self.changed * self.heaviest

    @cached_property
    def heaviest(self) -> float:
        """The most that one row can weigh, sup f″·X²/m."""
        return self.loss.curvature_bound * self.largest_norm**2 / self.rows_after

    @cached_property
    def linear_rounding(self) -> tuple[float, float]:
        """(relative, absolute): what rounding leaves of the linear system, to a step of length ℓ.

        The Hessian's error and that of x·δ grow with the step; those of f′, of the predictor, of
        the scalars and of the pull do not. Each is taken for the row where it is largest: they
        are far below what the step itself leaves.
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
        absolute = 32 * ROUNDOFF * len(self.signs) ** 2 * slope / m
        return relative, absolute + self.changed_curvature * shaken + self.pull_error

    @cached_property
    def common_curvature(self) -> float | None:
        """A lower bound on every neighbour's least curvature at Â, where one serves them all."""
        if self.loss.third_ratio is None:
            return self.floor
        leaving = any(sign < 0 for sign in self.signs)
        least = self.lowest - (self.heaviest if leaving else 0.0)
        return max(self.floor, least) if least >= self.lowest / 2 else None

    def curvature(self, step: Step) -> FloatArray | float:
        """A lower bound on each neighbour's least Hessian eigenvalue at Â."""
        if self.common_curvature is not None:
            return self.common_curvature
        removed: FloatArray | float = 0.0
        for change in step.changes:
            if change.sign < 0:
                weight = (1 + self.curvature_error) / self.rows_after
                removed = removed + weight * change.curvature * change.norm_squares
        shared = step.kept * (self.lowest + self.slack) - self.slack
        return np.maximum(self.floor, np.maximum(self.lowest - removed, shared))


def long_part(X: FloatArray, curvature: FloatArray, norms: FloatArray, common: float) -> FloatArray:
    """What rows longer than ``common`` add to Σ f″(∥x∥ − r)x xᵀ."""
    part: FloatArray = (X * (curvature * (norms - common))[:, None]).T @ X
    return part


def third_moments(X: FloatArray, y: FloatArray, theta: FloatArray, loss: Loss) -> FloatArray:
    """Σ f‴ x⊗x⊗x of the logistic loss at ``theta``, as a (d, d²) matrix."""
    assert isinstance(loss, Logistic)
    d = X.shape[1]
    tensor = np.zeros((d, d * d))
    for block in row_blocks(len(X), d * d):
        part = X[block]
        third = loss.third(part @ theta, y[block])
        outer = (part[:, :, None] * part[:, None, :]).reshape(len(part), d * d)
        tensor += (part * third[:, None]).T @ outer
    return tensor


def largest_gram(problem: Objective) -> float:
    """The largest eigenvalue of XᵀX, rounded up."""
    gram = np.zeros((problem.columns, problem.columns))
    for block in problem.held.blocks():
        gram += problem.held.X[block].T @ problem.held.X[block]
    return float(np.linalg.eigvalsh(gram)[-1]) * (1 + 1e-10)


def linearise(problem: Objective, base: Minimiser) -> Linearised:
    """Every row's predictor and derivatives at the base, and Σ f″x xᵀ, in one pass."""
    n = problem.count
    z, slope, curvature = np.empty(n), np.empty(n), np.empty(n)
    second = np.zeros((problem.columns, problem.columns))
    space: FloatArray | None = None
    for block in problem.held.blocks():
        part = problem.held.X[block]
        z[block] = part @ base.theta
        slope[block], curvature[block] = problem.loss.derivatives(z[block], problem.held.y[block])
        if space is None:
            space = np.empty_like(part)
        weighted = np.multiply(part, curvature[block, None], out=space[: len(part)])
        second += weighted.T @ part
    data = Change(
        sign=-1,
        X=problem.held.X,
        y=problem.held.y,
        norms=problem.held.norms,
        norm_squares=problem.held.norms * problem.held.norms,
        z=z,
        slope=slope,
        curvature=curvature,
    )
    return Linearised(problem=problem, base=base, data=data, second=second)


def expand(
    linear: Linearised,
    changes: tuple[Change, ...] = (),
    *,
    rows_after: int,
    changed: int | None = None,
    keep_total_penalty: bool = False,
) -> Expansion:
    """What a step to any neighbour needs, from what :func:`linearise` found.

    A neighbour keeps the penalty p of the averaged objective, or the total m·p of the sum.
    """
    found = expand_curvature(
        linear.curvature,
        signs=tuple(change.sign for change in changes),
        rows_after=rows_after,
        changed=changed,
        longest=max([0.0, *(float(change.norms.max()) for change in changes)]),
        residual=max(
            [0.0, *(float(np.max(np.abs(c.slope) + np.abs(c.y))) for c in changes)],
        ),
        keep_total_penalty=keep_total_penalty,
    )
    return replace(found, rows=ExpandedRows(linear=linear, changes=changes))


def expand_curvature(
    curved: Curvature,
    *,
    signs: tuple[int, ...],
    rows_after: int,
    changed: int | None = None,
    longest: float = 0.0,
    residual: float | None = None,
    keep_total_penalty: bool = False,
) -> Expansion:
    """The same from what is known of all rows together.

    ``longest``, ``residual``: of rows that enter, where there are any.
    """
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
        signs=signs,
        changed=len(signs) if changed is None else changed,
        residual=curved.residual if residual is None else residual,
        rows=None,
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
        # A kinked loss's curvature may be gone one ulp away: only the penalty is sure.
        base_lowest=base_penalty if loss.third_ratio is None else max(base_penalty, base_lowest),
        loss_curvature=float(eigenvalues[-1]) + slack - float(np.min(penalty_after)),
    )


def _third_order(
    curved: Curvature, curvature: FloatArray, m: int
) -> tuple[FloatArray | None, ThirdBound | None]:
    """T from above, as a matrix and in the parts that a Newton step uses."""
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
    """λ, Q and Q diag(1/λ)Qᵀ of a matrix whose eigenvalues are all at least ``floor``.

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
