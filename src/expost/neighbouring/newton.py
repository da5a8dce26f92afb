"""One Newton step to every neighbour from the expansion at the base, with its certificate.

A block of steps is worked out from a few inner products a row (:class:`_Products`); the (n, d)
array of shifts is never held. :func:`shift_error` turns what a step leaves of the gradient into a
bound on the error of the shift, for this step and for those of :mod:`expost.neighbouring.refine`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expost._numerics import ROUNDOFF, UNDERFLOW, gamma, row_blocks, row_norms
from expost.neighbouring.certificate import point_error
from expost.neighbouring.expansion import Change, Expansion, Step
from expost.neighbouring.shifts import Shifts
from expost.types import FloatArray

__all__ = ["certified", "newton_shifts", "newton_steps", "shift_error", "solve_small"]

# A squared length is expanded unless the expansion loses more than this factor.
_CANCELLATION = 100.0
# Entries of a product that is read again at once: 512 KiB.
_CACHED_ENTRIES = 2**16


def newton_shifts(expansion: Expansion) -> tuple[Step, Shifts, FloatArray, FloatArray]:
    """One Newton step to every neighbour: its scalars, the shifts, their lengths and errors."""
    return newton_steps(expansion, expansion.changes)


def newton_steps(
    expansion: Expansion, changes: tuple[Change, ...]
) -> tuple[Step, Shifts, FloatArray, FloatArray]:
    """The same to some neighbours: those that differ from D by ``changes``."""
    count = len(changes[0].X)
    scales = tuple(np.empty(count) for _ in changes)
    kept, distance, error = np.empty(count), np.empty(count), np.empty(count)
    whole = Step(changes=changes, scales=scales, kept=kept)
    terms = tuple((s, change.X) for s, change in zip(scales, changes, strict=True))
    shifts = Shifts(constant=expansion.offset, terms=terms, matrix=expansion.inverse)
    d = expansion.columns
    # One for each changed row, and one for products of two.
    space = np.empty((len(scales) + 1, d, max(64, _CACHED_ENTRIES // d)))
    for rows in row_blocks(count, d):
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
        loose = expansion.solve_error + gamma(2 * expansion.columns + 16)
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
        # s·B⁻¹x is known to κ(∥δ∥ + ∥a₀∥), for Σ∣s∣∥x∥ ≤ λ_max(B)(∥δ∥ + ∥a₀∥); so (v·δ)² is off by
        # at most ∥v∥²κ(1 + κ)(5∥δ∥² + 3∥a₀∥²).
        largest = expansion.loss_curvature + float(np.max(expansion.penalty_after))
        kappa = loose * largest * expansion.inverse_norm * len(step.scales)
        followed = float(np.sum(third.directions**2)) * kappa * (1 + kappa)
        bound = np.maximum(energy, 0.0, out=energy)
        bound *= third.common
        square *= third.rest + 5 * followed
        bound += square
        bound += 3 * followed * offset * offset
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
    try:
        return np.asarray(np.linalg.solve(systems, right[:, :, None])[:, :, 0])
    except np.linalg.LinAlgError:
        # One of them is; by its sign, since a determinant itself may underflow.
        singular = ~(np.abs(np.linalg.slogdet(systems)[0]) > 0)
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
    with np.errstate(over="ignore", invalid="ignore"):
        growth = np.exp(expansion.spread * length)
        if expansion.third_bound is not None:
            remainder = products.third_order(expansion, step, length)
            remainder *= (0.5 * (1 + expansion.curvature_error)) * growth
        elif expansion.knots is not None:
            remainder = expansion.knots.remainder(length)
            for change in step.changes:
                if change.sign > 0:
                    weight = expansion.loss.curvature_bound / expansion.rows_after * change.norms**2
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
    dot, offset = gamma(2 * expansion.columns + 16), float(np.linalg.norm(expansion.offset))
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
    error = certified(expansion, residual, length, lowest, decay)
    # Forming a shift, its length and inner products with it by way of B⁻¹b round too.
    tiny = UNDERFLOW * (1 + 1 / expansion.floor) if expansion.floor > 0 else UNDERFLOW
    error += (2 * _CANCELLATION * gamma(2 * expansion.columns + 16)) * length
    # (u = Qᵀx errs by γ√d∥x∥, and a length by at most √_CANCELLATION times what its parts do).
    wide = 2 * math.sqrt(_CANCELLATION * expansion.columns)
    error += (wide * dot * expansion.inverse_norm) * step.stretch
    error += 8 * ROUNDOFF * offset + tiny
    return error


def certified(
    expansion: Expansion,
    residual: FloatArray,
    length: FloatArray,
    lowest: FloatArray | float,
    decay: FloatArray,
    weight: FloatArray | float | None = None,
) -> FloatArray:
    """The error of shifts of this length that leave a tilted gradient of norm ≤ ``residual``.

    ``weight`` bounds Σ f″∥x∥²/m over the changed rows, where that is known for each neighbour.
    """
    error = point_error(
        residual,
        floor=expansion.floor,
        curvature=lowest,
        spread=expansion.spread,
        decay=decay,
    )
    changed = expansion.changed_curvature if weight is None else weight
    error += _tilt(expansion, lowest, length, error, decay, changed)
    return error


def _tilt(
    expansion: Expansion,
    lowest: FloatArray | float,
    length: FloatArray,
    error: FloatArray,
    decay: FloatArray,
    changed: FloatArray | float,
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
    eta, ratio = expansion.base.gradient_bound, expansion.curved.rows / expansion.rows_after
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

    if expansion.loss.third_ratio is None or not expansion.base_lowest > 0:
        return apart()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        inverse = 1 / np.asarray(lowest)
        # The neighbour's own end moves by at most 3(m₀/m)η/μ' while v ≤ ½.
        way = length + error
        way += (3 * ratio * eta) * inverse + expansion.base_error
        way *= spread
        scale = 2.72 * 1.65 * eta / expansion.base_lowest
        together = (1.3 * scale * expansion.loss_curvature) * way
        together += scale * (changed + penalty / expansion.rows_after)
        together *= inverse
    near = way <= 0.5
    return together if np.all(near) else np.where(near, together, apart())
