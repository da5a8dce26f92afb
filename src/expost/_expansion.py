"""The second-order expansion of J at the base, and one Newton step to every neighbour from it.

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
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from expost._certificate import Knots, point_error
from expost._numerics import ROUNDOFF, UNDERFLOW, gamma, row_blocks, row_norms
from expost.errors import ConvergenceError
from expost.glm import Minimiser, Problem
from expost.types import FloatArray, IntArray

__all__ = [
    "Change",
    "Expansion",
    "Shifts",
    "Step",
    "expand",
    "linearise",
    "newton_shifts",
    "shift_error",
    "solve_small",
]


# A squared length is expanded unless the expansion loses more than this factor.
_CANCELLATION = 100.0
# Entries of a product that is read again at once: 256 KiB.
_CACHED_ENTRIES = 2**16
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
class Shifts:
    """shiftᵢ = constant + Σ scaleᵢ·(rowᵢ @ matrix), computed when asked for, by blocks."""

    constant: FloatArray
    terms: tuple[tuple[FloatArray, FloatArray], ...]
    matrix: FloatArray | None

    @classmethod
    def dense(cls, array: FloatArray) -> "Shifts":
        """Shifts that are known as an (n, d) array."""
        ones = np.ones(len(array))
        return cls(constant=np.zeros(array.shape[1]), terms=((ones, array),), matrix=None)

    @property
    def shape(self) -> tuple[int, int]:
        """(neighbours, coordinates)."""
        return len(self.terms[0][0]), len(self.constant)

    def block(self, rows: slice) -> FloatArray:
        """The shifts of a block of neighbours."""
        total = np.tile(self.constant, (len(self.terms[0][0][rows]), 1))
        for scale, X in self.terms:
            part = X[rows] if self.matrix is None else X[rows] @ self.matrix
            total += scale[rows, None] * part
        return total

    def all(self) -> FloatArray:
        """Every shift, (n, d)."""
        result = np.empty(self.shape)
        for rows in row_blocks(*self.shape):
            result[rows] = self.block(rows)
        return result

    def inner(self, vector: FloatArray) -> FloatArray:
        """Inner products with one vector: a matrix–vector product, not n of them."""
        image = vector if self.matrix is None else self.matrix @ vector
        total = np.full(self.shape[0], float(self.constant @ vector))
        for scale, X in self.terms:
            total += scale * (X @ image)
        return total

    def norms(self) -> FloatArray:
        """Lengths, from the shifts themselves: expanding the square would cancel."""
        result = np.empty(self.shape[0])
        for rows in row_blocks(*self.shape):
            part = self.block(rows)
            result[rows] = row_norms(part)
        return result


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
class Expansion:
    """J expanded at the base for neighbours of m rows: all that a step to any of them needs."""

    problem: Problem
    base: Minimiser
    changes: tuple[Change, ...]
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
    def spread(self) -> float:
        """M·X: how fast the curvature can change along a step; 0 where that is not what bounds."""
        return (self.problem.loss.third_ratio or 0.0) * self.largest_norm

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
                floor=float(np.min(self.problem.penalty)),
                curvature=self.base_lowest,
                spread=self.spread,
                decay=1.0,
            )
        )

    @cached_property
    def leverage_error(self) -> float:
        """ε with ∣computed − true∣ ≤ ε∥x∥² for every xᵀB⁻¹x."""
        solve = self.solve_error + gamma(2 * self.problem.columns + 8)
        return 4 * solve * self.inverse_norm

    @cached_property
    def inverse_norm(self) -> float:
        """∥B⁻¹∥, in Frobenius' norm."""
        return float(np.linalg.norm(self.inverse))

    @cached_property
    def probes(self) -> FloatArray:
        """What gives x·a₀, 2B⁻¹x·a₀ and B⁻¹x·v from u = Qᵀx, one a row."""
        directions = np.zeros((self.problem.columns, 0))
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
        return len(self.changes) * self.heaviest

    @cached_property
    def heaviest(self) -> float:
        """The most that one row can weigh, sup f″·X²/m."""
        return self.problem.loss.curvature_bound * self.largest_norm**2 / self.rows_after

    @cached_property
    def linear_rounding(self) -> tuple[float, float]:
        """(relative, absolute): what rounding leaves of the linear system, to a step of length ℓ.

        The Hessian's error and that of x·δ grow with the step; those of f′, of the predictor, of
        the scalars and of the pull do not. Each is taken for the row where it is largest: they
        are far below what the step itself leaves.
        """
        problem, m = self.problem, self.rows_after
        offset = float(np.linalg.norm(self.offset))
        # Of sums of d products through the rotation: x·a₀ errs by dot·∥x∥∥a₀∥, xᵀB⁻¹x by
        # dot·∥x∥∥B⁻¹x∥.
        dot = 4 * math.sqrt(problem.columns) * gamma(2 * problem.columns + 16)
        # ∣f′∣ ≤ 1 for the classification losses; f′ = z − y rounds with y.
        slope = self.largest_norm
        if not problem.loss.is_classification:
            slope *= max(
                float(np.max(np.abs(change.slope) + np.abs(change.y))) for change in self.changes
            )
        shaken = problem.margin_error(self.base.theta) + (16 * ROUNDOFF + 4 * dot) * offset
        relative = self.hessian_error + self.changed_curvature * (3 * dot + self.curvature_error)
        absolute = 32 * ROUNDOFF * len(self.changes) ** 2 * slope / m
        return relative, absolute + self.changed_curvature * shaken + self.pull_error

    @cached_property
    def common_curvature(self) -> float | None:
        """A lower bound on every neighbour's least curvature at Â, where one serves them all."""
        if self.problem.loss.third_ratio is None:
            return self.floor
        leaving = any(change.sign < 0 for change in self.changes)
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


def linearise(problem: Problem, base: Minimiser) -> tuple[Change, FloatArray]:
    """Every row's predictor and derivatives at the base, and Σ f″x xᵀ, in one pass."""
    n = problem.rows
    z, slope, curvature = np.empty(n), np.empty(n), np.empty(n)
    second = np.zeros((problem.columns, problem.columns))
    space: FloatArray | None = None
    for block in problem.blocks():
        part = problem.X[block]
        z[block] = part @ base.theta
        slope[block], curvature[block] = problem.loss.derivatives(z[block], problem.y[block])
        if space is None:
            space = np.empty_like(part)
        weighted = np.multiply(part, curvature[block, None], out=space[: len(part)])
        second += weighted.T @ part
    data = Change(
        sign=-1,
        X=problem.X,
        y=problem.y,
        norms=problem.norms,
        norm_squares=problem.norms * problem.norms,
        z=z,
        slope=slope,
        curvature=curvature,
    )
    return data, second


def expand(
    problem: Problem,
    base: Minimiser,
    data: Change,
    second: FloatArray,
    changes: tuple[Change, ...],
    *,
    rows_after: int,
    keep_total_penalty: bool = False,
) -> Expansion:
    """What a step to any neighbour needs, from what :func:`linearise` found.

    A neighbour keeps the penalty p of the averaged objective, or the total m·p of the sum.
    """
    loss, m, n = problem.loss, rows_after, problem.rows
    penalty_after = problem.penalty * (n / m) if keep_total_penalty else problem.penalty
    # m₀p − m p', without subtracting: the products would round apart.
    penalty_change = problem.penalty * (0 if keep_total_penalty else n - m)
    margin = problem.margin_error(base.theta)
    weight = float(data.curvature @ data.norm_squares)
    longest = max(float(change.norms.max()) for change in (data, *changes))
    # f″ at a predictor known to margin·∥x∥, and the rounding of f″ itself.
    drift = min((loss.third_ratio or 0.0) * margin * longest, 700.0)
    off = float(np.expm1(drift)) + 16 * ROUNDOFF
    summing = gamma(min(n, 2**18) + n / 64 + 8) * weight
    hessian = second / m + np.diag(penalty_after)
    third, third_bound = _third_order(problem, data, second / m, m)
    size = float(np.linalg.norm(hessian))
    eigenvalues, rotation, inverse = _decompose(hessian)
    spread_out = gamma(2 * problem.columns + 8) * size * float(np.linalg.norm(inverse))
    misfit = float(np.linalg.norm(hessian @ inverse - np.eye(problem.columns)))
    hessian_error = (off * weight + summing) / m + 8 * ROUNDOFF * size
    slack = hessian_error + 16 * problem.columns * ROUNDOFF * size
    pull = penalty_change * base.theta / m
    offset = inverse @ pull
    pull_size = float(np.linalg.norm(pull)) + size * float(np.linalg.norm(offset))
    if keep_total_penalty:
        # The penalty after the change is itself rounded.
        pull_size += float(np.linalg.norm(penalty_after * base.theta))
    base_penalty = float(np.min(problem.penalty))
    # The base's own Hessian is (m/n)B + diag(p − (m/n)p').
    base_lowest = (m / n) * (float(eigenvalues[0]) - slack) + float(
        np.min(problem.penalty - (m / n) * penalty_after)
    )
    return Expansion(
        problem=problem,
        base=base,
        changes=changes,
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
        knots=Knots.of(problem, data.z, margin, 1 / m) if loss.third_ratio is None else None,
        largest_norm=longest,
        curvature_error=off,
        hessian_error=hessian_error,
        solve_error=misfit + 2 * spread_out,
        pull_error=float(np.linalg.norm(pull - hessian @ offset))
        + gamma(problem.columns + 8) * pull_size,
        lowest=float(eigenvalues[0]) - slack,
        slack=slack,
        # A kinked loss's curvature may be gone one ulp away: only the penalty is sure.
        base_lowest=base_penalty if loss.third_ratio is None else max(base_penalty, base_lowest),
        loss_curvature=float(eigenvalues[-1]) + slack - float(np.min(penalty_after)),
    )


def _third_order(
    problem: Problem, data: Change, curvature: FloatArray, m: int
) -> tuple[FloatArray | None, ThirdBound | None]:
    """T from above, as a matrix and in the parts that a Newton step uses."""
    ratio = problem.loss.third_ratio
    if not ratio:
        return None, None
    common = problem.common_norm
    long = np.flatnonzero(problem.norms > common)
    extra = np.zeros_like(curvature)
    for block in row_blocks(len(long), problem.columns):
        rows = long[block]
        part = problem.X[rows]
        weight = data.curvature[rows] * (problem.norms[rows] - common)
        extra += (part * weight[:, None]).T @ part
    extra *= ratio / m
    values, vectors = np.linalg.eigh(extra)
    leading = min(_DIRECTIONS, len(values))
    # Rounding of the sums and of the decomposition, for either part.
    slack = gamma(2**18 + 64 * problem.columns) * (
        float(np.trace(extra)) + ratio * common * float(np.trace(curvature))
    )
    bound = ThirdBound(
        common=ratio * common,
        directions=vectors[:, -leading:] * np.sqrt(np.maximum(values[-leading:], 0.0)),
        rest=(max(float(values[-leading - 1]), 0.0) if leading < len(values) else 0.0) + slack,
        ratio=ratio,
    )
    identity = np.eye(problem.columns)
    return ratio * common * curvature + extra + slack * identity, bound


def _decompose(hessian: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """λ, Q and Q diag(1/λ)Qᵀ of a positive definite matrix."""
    eigenvalues, rotation = np.linalg.eigh(hessian)
    if not eigenvalues[0] > 0:
        raise ConvergenceError(
            "the Hessian is not positive definite in float64: raise regularization, or drop"
            " columns that repeat others."
        )
    inverse = (rotation / eigenvalues) @ rotation.T
    return eigenvalues, rotation, (inverse + inverse.T) / 2


def newton_shifts(expansion: Expansion) -> tuple[Step, Shifts, FloatArray, FloatArray]:
    """One Newton step to every neighbour: its scalars, the shifts, their lengths and errors."""
    count = expansion.neighbours
    scales = tuple(np.empty(count) for _ in expansion.changes)
    kept, distance, error = np.empty(count), np.empty(count), np.empty(count)
    whole = Step(changes=expansion.changes, scales=scales, kept=kept)
    terms = tuple((s, change.X) for s, change in zip(scales, expansion.changes, strict=True))
    shifts = Shifts(constant=expansion.offset, terms=terms, matrix=expansion.inverse)
    d = expansion.problem.columns
    # One for each changed row, and one for products of two.
    space = np.empty((len(scales) + 1, d, max(64, _CACHED_ENTRIES // d)))
    for rows in row_blocks(count, expansion.problem.columns):
        # Views: what the block writes, the whole step holds.
        step = whole.take(rows)
        products = _Products.of(expansion, step, space)
        _solve_scales(expansion, step, products)
        length, cancelled = products.length(expansion, step)
        if np.any(cancelled):
            length[cancelled] = row_norms(shifts.block(rows)[cancelled])
        distance[rows] = length
        error[rows] = _newton_error(expansion, step, products, length)
    # 0·∞ and the like: what is not a number proves nothing.
    error[np.isnan(error)] = np.inf
    return whole, shifts, distance, error


@dataclass(frozen=True, kw_only=True, eq=False)
class _Products:
    """The inner products that a block of steps consists of: scalars a row, never an (n, d) array.

    ``along[k]``        x_k·a₀
    ``back[k]``         2·B⁻¹x_k·a₀
    ``probed[k]``       B⁻¹x_k·v for each direction v of the third-order bound
    ``leverage[k][l]``  x_k·B⁻¹x_l
    ``overlap[k][l]``   B⁻¹x_k·B⁻¹x_l
    """

    along: list[FloatArray]
    back: list[FloatArray]
    probed: list[FloatArray]
    leverage: list[list[FloatArray]]
    overlap: list[list[FloatArray]]

    @classmethod
    def of(cls, expansion: Expansion, step: Step, space: FloatArray) -> "_Products":
        """One n×d×d product a changed row, u = Qᵀx with B = Q diag(λ)Qᵀ: its squares hold the rest.

        x·B⁻¹x = Σ u²/λ and ∥B⁻¹x∥² = Σ u²/λ². It goes through ``space``, a few rows at a time, so
        that what the product writes is still in the core's cache when it is read.
        """
        rows = [change.X for change in step.changes]
        count, size, few = len(rows[0]), len(rows), space.shape[2]
        probes = [np.empty((len(expansion.probes), count)) for _ in rows]
        leverage = [[np.empty(0)] * size for _ in rows]
        overlap = [[np.empty(0)] * size for _ in rows]
        pairs = [(k, j) for k in range(size) for j in range(k, size)]
        forms = {pair: np.empty((2, count)) for pair in pairs}
        for start in range(0, count, few):
            part = slice(start, min(start + few, count))
            within = slice(0, part.stop - start)
            turned = [
                np.matmul(expansion.rotation.T, X[part].T, out=out[:, within])
                for X, out in zip(rows, space, strict=False)
            ]
            for k, one in enumerate(turned):
                np.matmul(expansion.probes, one, out=probes[k][:, part])
            for k, j in pairs:
                square = np.multiply(turned[k], turned[j], out=space[-1][:, within])
                np.matmul(expansion.forms, square, out=forms[k, j][:, part])
        for k, j in pairs:
            leverage[k][j] = leverage[j][k] = forms[k, j][0]
            overlap[k][j] = overlap[j][k] = forms[k, j][1]
        return cls(
            along=[probe[0] for probe in probes],
            back=[probe[1] for probe in probes],
            probed=[probe[2:] for probe in probes],
            leverage=leverage,
            overlap=overlap,
        )

    def length(self, expansion: Expansion, step: Step) -> tuple[FloatArray, NDArray[np.bool_]]:
        """∥δ∥ from ∥a₀∥² + 2Σ s·(p·a₀) + ΣΣ s s'(p·p'), and where that sum cancels too much."""
        offset = float(expansion.offset @ expansion.offset)
        parts = _parts(self.overlap, step.scales)
        square = _combine(self.back, step.scales)
        square += parts if len(step.scales) == 1 else _form(self.overlap, step.scales)
        square += offset
        parts += offset
        parts *= 1 / _CANCELLATION
        # Squares that underflow count as cancelled.
        cancelled = ~(square > np.maximum(parts, 1e-250, out=parts))
        return np.sqrt(np.maximum(square, 0.0, out=square)), cancelled

    def third_order(self, expansion: Expansion, step: Step, length: FloatArray) -> FloatArray:
        """An upper bound on δᵀTδ (see :class:`ThirdBound`)."""
        third = expansion.third_bound
        assert third is not None
        offset = float(np.linalg.norm(expansion.offset))
        pull = float(np.linalg.norm(expansion.pull))
        square = length * length
        # Bp = x and Ba₀ = k/m but for the error of the solves; sums round.
        loose = expansion.solve_error + gamma(2 * expansion.problem.columns + 16)
        energy = _combine(self.along, step.scales)
        energy *= 2
        parts = _parts(self.leverage, step.scales)
        if len(step.scales) > 1:
            energy += _form(self.leverage, step.scales)
            energy += loose * parts
        else:
            energy += (1 + loose) * parts
        energy -= expansion.floor * square
        slack = loose * length
        slack += 4 * loose * offset
        slack *= step.stretch
        energy += slack
        energy += (
            float(expansion.pull @ expansion.offset)
            + (loose * pull + expansion.pull_error) * offset
        )
        bound = np.maximum(energy, 0.0, out=energy)
        bound *= third.common
        square *= third.rest
        bound += square
        along = _combine(self.probed, step.scales)
        along += (third.directions.T @ expansion.offset)[:, None]
        bound += np.einsum("ij,ij->j", along, along)
        for k, change in enumerate(step.changes):
            if change.sign > 0:
                reach = self.along[k] + _combine(self.leverage[k], step.scales)
                bound += (
                    third.ratio
                    / expansion.rows_after
                    * (change.curvature * change.norms * reach * reach)
                )
        return bound


def _combine(vectors: list[FloatArray], scales: tuple[FloatArray, ...]) -> FloatArray:
    """Σ s·v, as a new array."""
    total = vectors[0] * scales[0]
    for vector, scale in zip(vectors[1:], scales[1:], strict=True):
        total += vector * scale
    return total


def _form(matrix: list[list[FloatArray]], scales: tuple[FloatArray, ...]) -> FloatArray:
    """ΣΣ s_k s_l M_kl, as a new array."""
    return _combine([_combine(row, scales) for row in matrix], scales)


def _parts(matrix: list[list[FloatArray]], scales: tuple[FloatArray, ...]) -> FloatArray:
    """K·Σ s_k² M_kk: at least every partial sum of :func:`_form`, and without cancellation."""
    total = matrix[0][0] * (scales[0] * scales[0])
    for k, scale in enumerate(scales[1:], start=1):
        total += matrix[k][k] * (scale * scale)
    if len(scales) > 1:
        total *= len(scales)
    return total


def _solve_scales(expansion: Expansion, step: Step, products: _Products) -> None:
    """Fill in the scalars s of each changed row, s + w(x·δ) = −sign·f′/m, and what is kept."""
    m, changes = expansion.rows_after, step.changes
    weights = [change.curvature * (change.sign / m) for change in changes]
    pulls = [
        change.slope * (change.sign / m) + weight * along
        for change, weight, along in zip(changes, weights, products.along, strict=True)
    ]
    step.kept[:] = 1.0
    for k, change in enumerate(changes):
        if change.sign < 0 and expansion.common_curvature is None:
            rounding = expansion.leverage_error * change.norm_squares
            heavier = weights[k] * (1 + expansion.curvature_error)
            step.kept[:] = np.maximum(1 + heavier * (products.leverage[k][k] + rounding), 0.0)
    if len(changes) == 1:
        step.scales[0][:] = -pulls[0] / (1 + weights[0] * products.leverage[0][0])
        return
    size = len(changes)
    system = np.empty((len(pulls[0]), size, size))
    for a in range(size):
        for b in range(size):
            system[:, a, b] = (a == b) + weights[a] * products.leverage[a][b]
    solved = solve_small(system, -np.stack(pulls, axis=1))
    for a in range(size):
        step.scales[a][:] = solved[:, a]


def solve_small(systems: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a small system a row; NaN, which no bound survives, where one is singular."""
    singular = ~(np.abs(np.linalg.det(systems)) > 0)
    safe = np.where(singular[:, None, None], np.eye(systems.shape[1]), systems)
    try:
        solved = np.linalg.solve(safe, right[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        return np.full(right.shape, np.nan)
    return np.where(singular[:, None], np.nan, solved)


def _newton_error(
    expansion: Expansion, step: Step, products: _Products, length: FloatArray
) -> FloatArray:
    """The certificate of one Newton step (DESIGN.md, *Neighbour points*)."""
    problem = expansion.problem
    with np.errstate(over="ignore", invalid="ignore"):
        growth = np.exp(expansion.spread * length)
        if expansion.third_bound is not None:
            remainder = products.third_order(expansion, step, length)
            remainder *= (0.5 * (1 + expansion.curvature_error)) * growth
        elif expansion.knots is not None:
            remainder = expansion.knots.remainder(length)
            for change in step.changes:
                if change.sign > 0:
                    weight = problem.loss.curvature_bound / expansion.rows_after * change.norms**2
                    remainder += weight * length
        else:
            remainder = np.zeros(len(length))
    return shift_error(expansion, step, length, remainder, 1 / growth)


def shift_error(
    expansion: Expansion,
    step: Step,
    length: FloatArray,
    remainder: FloatArray,
    decay: FloatArray,
    *,
    measured: bool = False,
    lowest: FloatArray | float | None = None,
) -> FloatArray:
    """From the residual that the step leaves to the error of the shift, rounding included.

    ``measured``: ``remainder`` is the whole residual as evaluated, with its own rounding, not
    what a bound leaves after exact linear algebra. ``decay`` is e^(−τ). ``lowest``: the
    neighbour's least curvature where the step ends, if it was measured there; else it is inferred
    from Â.
    """
    dot, offset = gamma(2 * expansion.problem.columns + 16), float(np.linalg.norm(expansion.offset))
    residual = remainder
    if not measured:
        relative, absolute = expansion.linear_rounding
        count = len(step.changes)
        residual = relative * length
        residual += (16 * ROUNDOFF * count**2 + expansion.solve_error) * step.stretch
        residual += absolute
        residual += remainder
    if lowest is None:
        lowest = expansion.curvature(step)
    error = point_error(
        residual,
        floor=expansion.floor,
        curvature=lowest,
        spread=expansion.spread,
        decay=decay,
    )
    error += _tilt(expansion, lowest, length, error, decay)
    # Forming a shift, its length and inner products with it by way of B⁻¹b round too.
    tiny = UNDERFLOW * (1 + 1 / expansion.floor) if expansion.floor > 0 else UNDERFLOW
    error += (2 * _CANCELLATION * gamma(2 * expansion.problem.columns + 16)) * length
    # (u = Qᵀx errs by γ√d∥x∥, and a length by at most √_CANCELLATION times what its parts do).
    wide = 2 * math.sqrt(_CANCELLATION * expansion.problem.columns)
    error += (wide * dot * expansion.inverse_norm) * step.stretch
    error += 8 * ROUNDOFF * offset + tiny
    return error


def _tilt(
    expansion: Expansion,
    lowest: FloatArray | float,
    length: FloatArray,
    error: FloatArray,
    decay: FloatArray,
) -> FloatArray:
    """What the residual η of the base costs each shift.

    Tilting both problems by t·g, t from 0 to 1, moves the shift at the rate
    H'⁻¹[(m₀/m)H − H']H⁻¹g. The bracket is what the changed rows and penalty contribute, c, plus
    what the loss's Hessian varies between the two ends, at most (e^v − 1)λ: λ its largest
    eigenvalue, v the spread times the distance of any two points on the way. H and H' are at
    least e^(−v) of their least eigenvalues μ, μ' where they are known. For v ≤ ½, with e^v ≤ 1.65,
    e^v − 1 ≤ 1.3v and e^(2v) ≤ 2.72:

        ∥change of the shift∥ ≤ 2.72·η·(1.65·c + 1.65·1.3·v·λ)/(μ μ').

    Else each end counts on its own: the base by its error, the neighbour by the same bound for a
    residual of (m₀/m)η.
    """
    eta, ratio = expansion.base.gradient_bound, expansion.problem.rows / expansion.rows_after
    spread, penalty = expansion.spread, float(np.max(np.abs(expansion.penalty_change)))

    def apart() -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            left = decay * np.maximum(1 - spread * error, 0.0)
        return expansion.base_error + point_error(
            np.full(len(length), ratio * eta),
            floor=expansion.floor,
            curvature=lowest,
            spread=spread,
            decay=np.where(np.isnan(left), 0.0, left),
        )

    if expansion.problem.loss.third_ratio is None or not expansion.base_lowest > 0:
        return apart()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        inverse = 1 / np.asarray(lowest)
        # The neighbour's own end moves by at most 3(m₀/m)η/μ' while v ≤ ½.
        way = length + error
        way += (3 * ratio * eta) * inverse + expansion.base_error
        way *= spread
        scale = 2.72 * 1.65 * eta / expansion.base_lowest
        together = (1.3 * scale * expansion.loss_curvature) * way
        together += scale * (expansion.changed_curvature + penalty / expansion.rows_after)
        together *= inverse
    near = way <= 0.5
    return together if np.all(near) else np.where(near, together, apart())
