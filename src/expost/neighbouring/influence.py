"""How far each row moves the minimiser and its own prediction, for models without noise.

All rows cost three passes of O(nd²) products: one for the Hessian, one for the largest leverage and
one for the Newton step to each leave-one-out minimiser with its certificate. Only the rows with the
largest shifts are refined (:class:`Exact`), a block of them in each pass over the data. Rows in
memory and rows that are read go through the same passes.

The certificate in the norm of the Hessian
------------------------------------------
H' = B − f″x xᵀ/m is the neighbour's Hessian at the base Â, ∥v∥ = √(vᵀH'v), ∥r∥* = √(rᵀH'⁻¹r),
ℓ = x·B⁻¹x, k = 1 − f″ℓ/m. Then H' ≽ kB, and x·H'⁻¹x = ℓ/k of the row that leaves. With h² the
largest ℓ of any row over k, every row has ∣xⱼ·v∣ ≤ h∥v∥. Let δ be the step, τ ≥ max ∣xⱼ·δ∣ and M
the loss's constant ∣f‴∣ ≤ M·f″. Then ∣f′(z + s) − f′(z) − f″s∣ ≤ f″∣s∣ψ(M∣s∣),
ψ(t) = (eᵗ − 1 − t)/t, and by Cauchy and Schwarz the gradient that the step leaves is

    ∥F(Â + δ)∥* ≤ ρ = ψ(Mτ)∥δ∥ + what rounding and the base's own gradient leave.

The Hessian at Â + δ + te is at least e^(−Mτ − tMh∥e∥)H'. Integrated along the error e this gives

    e^(−Mτ)(1 − e^(−Mh∥e∥))/(Mh) ≤ ρ,   so   ∥e∥ ≤ −log(1 − Mhρe^(Mτ))/(Mh)

where Mhρe^(Mτ) < 1; else nothing is proved this way. The prediction of the row that leaves errs by
at most √(ℓ/k)·∥e∥, and the shift by ∥e∥/√λ_min(H'). Neither needs the row norms, so that a column
that is not penalised, or a level that few rows have, does not spoil it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from expost._numerics import ROUNDOFF, gamma, row_blocks
from expost.engine import SILENT, Progress
from expost.glm import Minimiser, Objective
from expost.labels import LabelScale
from expost.losses import Loss
from expost.neighbouring.change import Change, EvaluatedRows
from expost.neighbouring.expansion import Expansion, curvature_of, expand
from expost.neighbouring.neighbours import Neighbours
from expost.neighbouring.one_row import OneRow
from expost.neighbouring.refine import refine, within_sphere
from expost.rows import RowBlock
from expost.types import FloatArray, IntArray

__all__ = ["TOP", "Exact", "Influence", "OwnPredictors"]

# The rows that are refined by default.
TOP = 100
# Rows that are refined to certify which rows are the top ones, at most, as a multiple of them.
_LIMIT = 10
# The error bound of a refined row, as a share of its distance.
_EXACT = 1e-6
# Rows that are refined together, between two reports of progress.
_TOGETHER = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnPredictors:
    """The linear predictor of each row, x·A(D), and without the row, x·A(D₋ᵢ).

    Each is known to ± its error. Predictions are probabilities of the class +1 where the loss has
    them, else linear predictors, in the units of the labels where ``label_scale`` is known.
    ``signs``: the sign of a predictor is the class, also where the loss is one of regressions.
    """

    value: FloatArray
    value_error: FloatArray
    without: FloatArray
    without_error: FloatArray
    loss: Loss
    label_scale: LabelScale | None = None
    signs: bool = False

    @property
    def is_classification(self) -> bool:
        """Whether the sign of a predictor is the class."""
        return self.signs or self.loss.is_classification

    @property
    def is_probability(self) -> bool:
        """Whether predictions are probabilities."""
        return self.loss.likelihood is not None

    @property
    def prediction(self) -> FloatArray:
        """(n,) what A(D) predicts for each row."""
        return self._linked(self.value)

    @property
    def prediction_without(self) -> FloatArray:
        """(n,) what A(D₋ᵢ) predicts for row i."""
        return self._linked(self.without)

    @property
    def low(self) -> FloatArray:
        """(n,) the lower end of ``prediction_without``."""
        return self._outward(self.without - self.without_error, -1)

    @property
    def high(self) -> FloatArray:
        """(n,) the upper end of ``prediction_without``."""
        return self._outward(self.without + self.without_error, 1)

    def _linked(self, z: FloatArray) -> FloatArray:
        if self.is_probability:
            return np.asarray(expit(z))
        return z if self.label_scale is None else self.label_scale.outside(z)

    def _outward(self, z: FloatArray, sign: int) -> FloatArray:
        """Return predictions, moved by the rounding of the link."""
        with np.errstate(invalid="ignore"):
            ends = self._linked(z)
            scale = self.label_scale
            size = np.abs(ends) + (0.0 if scale is None else abs(scale.centre) + scale.scale)
            ends = ends + sign * 16 * ROUNDOFF * size
        return np.clip(ends, 0.0, 1.0) if self.is_probability else ends

    @property
    def flips(self) -> NDArray[np.int8]:
        """(n,) whether the sign of the predictor changes: 1 certainly, 0 certainly not, −1 unknown.

        For classes; the label of a predictor of 0 is −1.
        """
        positive, negative = (
            [z - error > 0 for z, error in pairs] for pairs in (self._pairs(1), self._pairs(-1))
        )
        same = (positive[0] & positive[1]) | (negative[0] & negative[1])
        opposite = (positive[0] & negative[1]) | (negative[0] & positive[1])
        return np.where(same, 0, np.where(opposite, 1, -1)).astype(np.int8)

    def _pairs(self, sign: int) -> list[tuple[FloatArray, FloatArray]]:
        return [
            (sign * self.value, self.value_error),
            (sign * self.without, self.without_error),
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Exact:
    """The rows that were refined to their leave-one-out minimiser.

    Attributes
    ----------
    numbers : IntArray
        (p,) the rows, ascending.
    shift : FloatArray
        (p, d) the shift of each.
    distance, error : FloatArray
        (p,) its length, and a bound on its error.
    reach : FloatArray
        (p,) x·shift.
    top : int
        The number of rows that were to be ranked.
    certified : int
        The number of them that certifiably move the model farther than every row that was not
        refined.
    """

    numbers: IntArray
    shift: FloatArray
    distance: FloatArray
    error: FloatArray
    reach: FloatArray
    top: int
    certified: int

    def within(self, block: RowBlock) -> tuple[IntArray, slice]:
        """Return the indices of refined rows in ``block``, and where they are here."""
        ends = np.searchsorted(self.numbers, [block.start, block.start + len(block)])
        part = slice(int(ends[0]), int(ends[1]))
        return self.numbers[part] - block.start, part


@dataclass(frozen=True, kw_only=True, eq=False)
class Influence:
    """The leave-one-out shift and prediction of the rows of any block, certified.

    It holds O(d²) numbers, and the refined rows; it is pickled to where rows are read.

    Attributes
    ----------
    expansion : Expansion
        J expanded at the base.
    leverage : float
        The largest x·B⁻¹x of a row, from above.
    exact : Exact | None
        The refined rows, or None.
    """

    expansion: Expansion
    leverage: float
    exact: Exact | None = None

    @classmethod
    def of(
        cls, objective: Objective, base: Minimiser, *, keep_total_penalty: bool = False
    ) -> "Influence":
        """Prepare for the rows of ``objective``: two passes."""
        expansion = expand(curvature_of(objective, base), keep_total_penalty=keep_total_penalty)
        largest = max(objective.map(_LargestLeverage(expansion=expansion)), default=0.0)
        return cls(expansion=expansion, leverage=largest)

    def refined(
        self, objective: Objective, *, top: int = TOP, progress: Progress = SILENT
    ) -> "Influence":
        """Return the same with the ``top`` rows of the largest shifts refined.

        Rows are refined in the order of the upper ends of their shifts, until no other row can be
        among the ``top`` ones or ten times as many are refined.
        """
        top = min(top, objective.count)
        if not top:
            return self
        rows = _merged(list(objective.map(_Candidates(influence=self, most=_LIMIT * top + 1))))
        rows = rows.take(slice(0, _LIMIT * top + 1))
        done: list[tuple[FloatArray, ...]] = []
        refined, most = 0, min(_LIMIT * top, len(rows))
        goal, certified = top, 0
        while refined < most and certified < top:
            goal = min(max(goal, refined + _TOGETHER), most)
            progress.rows(goal - refined)
            while refined < goal:
                some = slice(refined, min(refined + _TOGETHER, goal))
                done.append(self._refine(objective, rows.take(some).block))
                progress.advance(some.stop - refined)
                refined = some.stop
            lower = np.concatenate([part[1] - part[2] for part in done])
            beyond = float(rows.upper[refined]) if refined < len(rows) else -np.inf
            certified = min(int(np.count_nonzero(lower >= beyond)), top)
        shift, distance, error, reach = (np.concatenate(part) for part in zip(*done, strict=True))
        order = np.argsort(rows.numbers[:refined])
        return replace(
            self,
            exact=Exact(
                numbers=rows.numbers[:refined][order],
                shift=shift[order],
                distance=distance[order],
                error=error[order],
                reach=reach[order],
                top=top,
                certified=certified,
            ),
        )

    def _refine(self, objective: Objective, block: RowBlock) -> tuple[FloatArray, ...]:
        """Return the shifts of some rows, their lengths, their errors, and x·shift."""
        expansion = self.expansion
        rows = EvaluatedRows.of(block, expansion.base.theta, expansion.loss)
        first, steps = OneRow.of(expansion, rows, objective=objective)
        near = _Leaving.beyond(first, self.leverage)
        steps = refine(near, steps, _EXACT)
        shift = steps.shifts.all()
        reach = np.einsum("ij,ij->i", block.X, shift)
        return shift, steps.distance, within_sphere(near, steps), reach

    def __call__(self, block: RowBlock) -> tuple[Neighbours, OwnPredictors]:
        """Return the certified leave-one-out minimisers and predictors of the rows of a block."""
        expansion = self.expansion
        theta = expansion.base.theta
        rows = EvaluatedRows.of(block, theta, expansion.loss)
        first, steps = OneRow.of(expansion, rows)
        near = _Leaving.beyond(first, self.leverage)
        distance, energy = steps.distance, near.newton_error(steps.distance)
        error = np.fmin(within_sphere(near, steps), near.plain_error(energy, distance))
        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.fmin(near.own * energy, rows.norms * (error + expansion.base_error))
        reach, spoilt = near.newton_reach()
        shifts = steps.shifts
        if self.exact is not None:
            where, part = self.exact.within(block)
            distance[where], error[where] = self.exact.distance[part], self.exact.error[part]
            reach[where] = self.exact.reach[part]
            apart[where] = rows.norms[where] * (error[where] + expansion.base_error)
            spoilt[where] = gamma(expansion.columns + 2) * rows.norms[where] * distance[where]
            shifts = replace(shifts, known=where, exact=self.exact.shift[part])
        margin = expansion.curved.constants.margin_error(theta) * rows.norms
        without = rows.z + reach
        apart += spoilt + margin + 4 * ROUNDOFF * (np.abs(rows.z) + np.abs(reach))
        neighbours = Neighbours(
            base=theta,
            base_error=expansion.base_error,
            distance=distance,
            error_bound=_certain(error),
            method="newton" if self.exact is None else "newton, the largest exact",
            shifts=shifts,
            change=Change(leaving=block),
        )
        return neighbours, OwnPredictors(
            value=rows.z,
            value_error=_certain(rows.norms * expansion.base_error + margin),
            without=without,
            without_error=_certain(apart),
            loss=expansion.loss,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Leaving(OneRow):
    """Neighbours that lack one row each, with the certificate in the norm of the Hessian.

    Attributes
    ----------
    largest : float
        The largest x·B⁻¹x of a row, from above.
    leverage : FloatArray
        (p,) x·B⁻¹x of the rows that leave.
    """

    largest: float
    leverage: FloatArray

    @classmethod
    def beyond(cls, near: OneRow, largest: float) -> "_Leaving":
        """Return the same neighbours with their leverages."""
        leverage = _leverages(near.expansion, near.step.rows.X)
        return cls(
            expansion=near.expansion,
            refinement=near.refinement,
            objective=near.objective,
            step=near.step,
            largest=largest,
            leverage=leverage,
        )

    def take(self, index: IntArray) -> "_Leaving":
        """Return some of the neighbours."""
        return replace(self, step=self.step.take(index), leverage=self.leverage[index])

    @cached_property
    def above(self) -> FloatArray:
        """(p,) ℓ from above."""
        return _above(self.expansion, self.leverage, self.step.rows.norm_squares)

    @cached_property
    def kept(self) -> FloatArray:
        """(p,) k from below."""
        weight = self.step.rows.curvature * (1 + self.expansion.curvature_error)
        with np.errstate(invalid="ignore"):
            return _kept(1 - weight / self.expansion.rows_after * self.above)

    @cached_property
    def least(self) -> FloatArray:
        """(p,) λ_min(H') from below."""
        lowest = self.kept * max(self.expansion.lowest, 0.0)
        return np.maximum(lowest, self.expansion.floor)

    @cached_property
    def own(self) -> FloatArray:
        """(p,) √(x·H'⁻¹x) of the rows that leave, from above."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return _certain(np.sqrt(self.above / self.kept))

    def energy_error(
        self, size: FloatArray, length: FloatArray, residual: FloatArray, *, bends: bool
    ) -> FloatArray:
        """Return ∥e∥ from above where a step of ∥δ∥ ≤ ``size`` leaves ∥F∥ ≤ ``residual``.

        ``bends``: ``residual`` is that of the linear system, and what the curvature leaves is
        added. Infinite where nothing is proved.
        """
        expansion, ratio = self.expansion, self.expansion.loss.third_ratio
        if ratio is None:
            return np.full(len(size), np.inf)
        with np.errstate(all="ignore"):
            # Without tilting: the base's own gradient counts.
            base = expansion.base.gradient_bound * (expansion.curved.rows / expansion.rows_after)
            left = (residual + base) / np.sqrt(self.least)
            if not ratio:
                return _certain(left * (1 + 1e-9))
            farthest = np.sqrt(self.largest / self.kept)
            bend = ratio * np.fmin(farthest * size, expansion.largest_norm * length)
            if bends:
                left = left + _bent(bend) * size
            spent = ratio * farthest * left * np.exp(bend) * (1 + 1e-9)
            error = -np.log1p(-spent) / (ratio * farthest) * (1 + 1e-9)
            return np.where(spent < 1, _certain(error), np.inf)

    def newton_error(self, length: FloatArray) -> FloatArray:
        """Return ∥e∥ of the Newton steps, whose lengths are ``length``."""
        expansion, step = self.expansion, self.step
        residual = expansion.linear_rounding.at(length, step.stretch)
        return self.energy_error(self._newton_size(), length, residual, bends=True)

    def _newton_size(self) -> FloatArray:
        """Return ∥δ∥ of the Newton steps from above.

        δᵀBδ = a₀·k/m + 2s(x·a₀) + s²ℓ, less f″(x·δ)²/m with x·δ = x·a₀ + sℓ.
        """
        expansion, step = self.expansion, self.step
        offset, pull = (float(np.linalg.norm(v)) for v in (expansion.offset, expansion.pull))
        along, loose = step.rows.X @ expansion.offset, 8 * _loose(expansion)
        with np.errstate(all="ignore"):
            square = step.scale * step.scale * self.above
            square += 2 * step.scale * along + 2 * loose * step.stretch * offset
            square += float(expansion.pull @ expansion.offset)
            square += (loose * pull + expansion.pull_error) * offset
            square = np.maximum(square, 0.0) * _share(expansion) * (1 + 16 * ROUNDOFF)
            reach = np.abs(along + step.scale * self.leverage) - self._reach_error()
            weight = step.rows.curvature / expansion.rows_after * (1 - expansion.curvature_error)
            square -= weight * np.maximum(reach, 0.0) ** 2 * (1 - 1e-12)
            return _certain(np.sqrt(np.maximum(square, 0.0)))

    def _reach_error(self) -> FloatArray:
        """Bound the error of x·δ of the Newton steps, computed as x·a₀ + sℓ."""
        expansion, rows = self.expansion, self.step.rows
        error = 8 * _loose(expansion) * float(np.linalg.norm(expansion.offset)) * rows.norms
        error += np.abs(self.step.scale) * (expansion.leverage_error * rows.norm_squares)
        return error

    def newton_reach(self) -> tuple[FloatArray, FloatArray]:
        """Return x·δ of the Newton steps, and a bound on its error."""
        reach = self.step.rows.X @ self.expansion.offset + self.step.scale * self.leverage
        return reach, self._reach_error()

    def plain_error(self, energy: FloatArray, length: FloatArray) -> FloatArray:
        """Return the error of shifts whose ends err by ``energy`` in the norm of H'."""
        with np.errstate(all="ignore"):
            error = energy / np.sqrt(self.least) + self.expansion.base_error
        formed = self.expansion.shift_rounding.at(length, self.step.stretch)
        return _certain(error + formed)

    def local_error(self, shift: FloatArray, residual: FloatArray) -> FloatArray:
        """Return the error of shifts that leave ``residual``, by the norm of the Hessian."""
        length = np.linalg.norm(shift, axis=1)
        square = np.einsum("ij,ij->i", self.apply(shift), shift)
        square += (
            gamma(4 * self.expansion.columns + 16)
            * length**2
            * (float(np.linalg.norm(self.expansion.hessian)) + self.weight)
        )
        size = np.sqrt(np.maximum(square, 0.0) * _share(self.expansion))
        # The residual is that of the tilted gradient.
        return self.plain_error(self.energy_error(size, length, residual, bends=False), length)


def _loose(expansion: Expansion) -> float:
    """Return a bound on the relative error of inner products through B⁻¹."""
    rounding = gamma(2 * expansion.columns + 16) * float(np.sqrt(expansion.columns))
    return expansion.solve_error + rounding


def _bent(bend: FloatArray) -> FloatArray:
    """Return ψ(t) = (eᵗ − 1 − t)/t from above; of small t by (t/2)e^(t/2): it does not cancel."""
    exact = (np.expm1(bend) - bend) / bend * (1 + 1e-9)
    return np.where(bend < 1e-3, bend / 2 * np.exp(bend / 2), exact)


def _certain(values: FloatArray) -> FloatArray:
    """Return bounds, infinite where they are not numbers."""
    return np.where(np.isnan(values), np.inf, values)


def _leverages(expansion: Expansion, X: FloatArray) -> FloatArray:
    """Return x·B⁻¹x of each row."""
    leverage = np.empty(len(X))
    for where in row_blocks(*X.shape):
        np.einsum("ij,ij->i", X[where] @ expansion.inverse, X[where], out=leverage[where])
    return leverage


def _share(expansion: Expansion) -> float:
    """Return how much larger B may be than computed, or the other way around, as a factor."""
    known = expansion.lowest - expansion.hessian_error
    return 1 + expansion.hessian_error / known if known > 0 else np.inf


def _kept(values: FloatArray) -> FloatArray:
    """Return shares of at least 0; 0 where they are not numbers."""
    return np.maximum(np.where(np.isnan(values), 0.0, values), 0.0)


def _above(expansion: Expansion, leverage: FloatArray, norm_squares: FloatArray) -> FloatArray:
    """Return x·B⁻¹x of each row from above; infinite if B may be singular."""
    return np.asarray(_share(expansion) * (leverage + expansion.leverage_error * norm_squares))


@dataclass(frozen=True, kw_only=True, eq=False)
class _LargestLeverage:
    """A pass for the largest x·B⁻¹x of a row, from above."""

    expansion: Expansion

    def __call__(self, block: RowBlock) -> float:
        """Return the largest of a block."""
        leverage = _leverages(self.expansion, block.X)
        return float(np.max(_above(self.expansion, leverage, block.norms * block.norms)))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ranked:
    """Some rows, with their numbers and the upper ends of their shifts, the largest first."""

    upper: FloatArray
    numbers: IntArray
    block: RowBlock

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, index: IntArray | slice) -> "_Ranked":
        """Return some of them."""
        block = RowBlock(
            X=self.block.X[index], y=self.block.y[index], norms=self.block.norms[index]
        )
        return _Ranked(upper=self.upper[index], numbers=self.numbers[index], block=block)

    def first(self, most: int) -> "_Ranked":
        """Return the ``most`` largest; equal ends by number."""
        return self.take(np.lexsort((self.numbers, -self.upper))[:most])


def _merged(parts: list[_Ranked]) -> _Ranked:
    """Return the rows of all parts, the largest first."""

    def joined(name: Callable[[_Ranked], FloatArray]) -> FloatArray:
        return np.concatenate([name(part) for part in parts])

    block = RowBlock(
        X=joined(lambda part: part.block.X),
        y=joined(lambda part: part.block.y),
        norms=joined(lambda part: part.block.norms),
    )
    numbers = np.concatenate([part.numbers for part in parts])
    ranked = _Ranked(upper=joined(lambda part: part.upper), numbers=numbers, block=block)
    return ranked.first(len(ranked))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Candidates:
    """A pass for the rows of each block whose shifts may be largest."""

    influence: Influence
    most: int

    def __call__(self, block: RowBlock) -> _Ranked:
        """Return at most ``most`` of them."""
        near, _ = self.influence(block)
        numbers = block.start + np.arange(len(block))
        upper = near.distance + near.error_bound
        return _Ranked(upper=upper, numbers=numbers, block=block).first(self.most)
