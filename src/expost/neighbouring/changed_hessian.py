"""The Hessian of a neighbour that changes several rows: solved with, applied, bounded from below.

Conventions (those of :mod:`expost.neighbouring.several_rows`)
--------------------------------------------------------------
H' = B − W is solved with through the smaller of two systems: for few rows through σ − R(XB⁻¹Xᵀ)R,
of k rows (Woodbury), else through H' itself, for which the rows are summed up once, a few at a
time. One row that leaves and one that enters are a system of two rows, solved in closed form.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from expost._numerics import (
    ROUNDOFF,
    UNDERFLOW,
    CompensatedSum,
    gamma,
    row_blocks,
    row_norms,
    solve_small,
)
from expost.losses import ScalarDerivatives
from expost.neighbouring.change import ChangedGroup, persons_at_once
from expost.neighbouring.expansion import Expansion
from expost.types import FloatArray

__all__ = [
    "FewRows",
    "ManyRows",
    "Operator",
    "Pull",
    "Replacement",
    "few",
    "pull_errors",
    "pull_value",
]


def pull_value(expansion: Expansion, changed: ChangedGroup) -> FloatArray:
    """Return (p, d) −F̃(Â), which pulls the minimiser of each neighbour away from Â."""
    total: CompensatedSum | None = None
    for part, sigma in changed.chunks():
        value: FloatArray = np.einsum("pk,pkd->pd", part.slope * sigma, part.X)
        # A sum of one term needs no compensation.
        if part.slope.shape[1] < changed.size:
            total = CompensatedSum(value.shape) if total is None else total
            total.add(value)
            value = total.value
    value /= expansion.rows_after
    value += expansion.pull
    return value


@dataclass(frozen=True, kw_only=True, eq=False)
class Pull:
    """The pull of each neighbour in numbers (p,).

    Attributes
    ----------
    length : FloatArray
        ∥F̃(Â)∥.
    error : FloatArray
        A bound on the error of F̃(Â), of f′, of the predictors and of the sums.
    weight : FloatArray
        Σ f″∥x∥²/m over the changed rows.
    """

    length: FloatArray
    error: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup, length: FloatArray) -> "Pull":
        """Sum over the changed rows; ``length`` is known."""
        constants, m = expansion.curved.constants, expansion.rows_after
        lost, weight = np.zeros((2, len(changed)))
        rounding = gamma(changed.roundings)
        for part, _ in changed.chunks():
            derivatives = ScalarDerivatives(
                slope=part.slope,
                curvature=part.curvature,
                is_classification=expansion.loss.is_classification,
            )
            # Rows that enter may have larger labels than the data.
            largest = max(constants.label_size, float(np.max(np.abs(part.y))))
            known = replace(constants, label_size=largest)
            error = known.slope_error(expansion.base.theta, derivatives, part.norms)
            lost += np.einsum("pk,pk->p", part.norms, error + rounding * np.abs(part.slope))
            weight += np.einsum("pk,pk->p", part.curvature, part.norm_squares)
        size = length + float(np.linalg.norm(expansion.pull))
        error = 1.01 * lost / m + expansion.pull_error + 8 * ROUNDOFF * size + UNDERFLOW
        return cls(length=length, error=error, weight=weight / m)


class Operator(ABC):
    """H'(Â) of p neighbours.

    ``lowest`` (p,) a lower bound on its least eigenvalue, but for the penalty's own.
    """

    lowest: FloatArray

    @abstractmethod
    def solve(self, right: FloatArray) -> FloatArray:
        """Return H'⁻¹ applied to each row of ``right`` (p, d)."""

    @abstractmethod
    def apply(self, vectors: FloatArray) -> FloatArray:
        """Return H' applied to each row."""

    @abstractmethod
    def forms(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        """Return (p,) Σ f″(x·v)²/m over the rows that leave, Σ f″∥x∥(x·v)²/m over the others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FewRows(Operator):
    """H' through k rows that leave: ``system`` is I − R(XB⁻¹Xᵀ)R, ``images`` XB⁻¹."""

    hessian: FloatArray
    inverse: FloatArray
    X: FloatArray
    root: FloatArray
    images: FloatArray
    system: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup, pull: Pull) -> "FewRows":
        """Prepare the solves."""
        rows = changed.gathered
        root = np.sqrt(rows.curvature / expansion.rows_after)
        images = _images(expansion, rows.X)
        taken = np.matmul(images, rows.X.transpose(0, 2, 1))
        taken *= root[:, :, None] * root[:, None, :]
        return cls(
            hessian=expansion.hessian,
            inverse=expansion.inverse,
            X=rows.X,
            root=root,
            images=images,
            system=np.eye(taken.shape[1]) - taken,
            lowest=_least_of_few(expansion, taken, pull.weight),
        )

    def _along(self, vectors: FloatArray) -> FloatArray:
        """Return RXv of each vector v."""
        along: FloatArray = self.root * np.einsum("pkd,pd->pk", self.X, vectors)
        return along

    def solve(self, right: FloatArray) -> FloatArray:
        """Return H'⁻¹ applied to each row."""
        solved = right @ self.inverse
        parts = self.root * solve_small(self.system, self._along(solved))
        solved += np.einsum("pk,pkd->pd", parts, self.images)
        return solved

    def apply(self, vectors: FloatArray) -> FloatArray:
        """Return H' applied to each row."""
        along = self.root**2 * np.einsum("pkd,pd->pk", self.X, vectors)
        image: FloatArray = vectors @ self.hessian - np.einsum("pk,pkd->pd", along, self.X)
        return image

    def forms(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        """Return the two sums for each row."""
        return row_norms(self._along(vectors)) ** 2, 0.0


def _images(expansion: Expansion, X: FloatArray) -> FloatArray:
    """Return XB⁻¹ of the rows (p, k, d)."""
    images: FloatArray = (X.reshape(-1, expansion.columns) @ expansion.inverse).reshape(X.shape)
    return images


def _least_of_few(expansion: Expansion, taken: FloatArray, weight: FloatArray) -> FloatArray:
    """Bound H' ≽ B − (Σ f″∥x∥²/m)I, and H' ≽ (1 − ν)B, over the rows that leave.

    ν is the largest eigenvalue of R(XB⁻¹Xᵀ)R, which is computed only where the first bound leaves
    less than half of B's least eigenvalue.
    """
    least = expansion.lowest - weight * (1 + expansion.curvature_error)
    poor = ~(least >= expansion.lowest / 2)
    if np.any(poor):
        symmetric = 0.5 * (taken[poor] + taken[poor].transpose(0, 2, 1))
        largest = np.linalg.eigvalsh(symmetric)[:, -1]
        rounding = expansion.leverage_error * weight[poor]
        rounding += gamma(16 * len(symmetric[0])) * np.trace(symmetric, axis1=1, axis2=2)
        least[poor] = np.maximum(least[poor], _share(expansion, largest + rounding))
    return least


def _share(expansion: Expansion, taken: FloatArray) -> FloatArray:
    """Return a lower bound on the least eigenvalue of (1 − ν)B, for ν up to ``taken``."""
    kept = np.maximum(1 - (1 + expansion.curvature_error) * taken, 0.0)
    return kept * (expansion.lowest + expansion.slack) - expansion.slack


@dataclass(frozen=True, kw_only=True, eq=False)
class Replacement(Operator):
    """H' where x₀ leaves and x₁ enters, in closed form: no small system for each neighbour.

    Attributes
    ----------
    weight : FloatArray
        (p, 2) f″/m of both rows.
    slope : FloatArray
        (p, 2) σf′/m.
    g00, g01, g11 : FloatArray
        (p,) the entries of XB⁻¹Xᵀ.
    pull_length : FloatArray
        (p,) ∥F̃(Â)∥.
    """

    expansion: Expansion
    X: FloatArray
    norms: FloatArray
    weight: FloatArray
    slope: FloatArray
    g00: FloatArray
    g01: FloatArray
    g11: FloatArray
    pull_length: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup) -> "Replacement":
        """Prepare the solves."""
        rows, m = changed.gathered, expansion.rows_after
        weight, slope = rows.curvature / m, rows.slope * (changed.sigma / m)
        g00, g01, g11, length = np.empty((4, len(changed)))
        for some in few(len(changed), expansion):
            X = rows.X[some]
            images = _images(expansion, X)
            g00[some] = np.einsum("pd,pd->p", images[:, 0], X[:, 0])
            g01[some] = np.einsum("pd,pd->p", images[:, 0], X[:, 1])
            g11[some] = np.einsum("pd,pd->p", images[:, 1], X[:, 1])
            pull = np.einsum("pk,pkd->pd", slope[some], X)
            pull += expansion.pull
            length[some] = row_norms(pull)
        # As for rows that leave, with ν = f″x₀ᵀB⁻¹x₀/m. The row that enters only adds curvature.
        heavy = weight[:, 0] * rows.norm_squares[:, 0]
        taken = weight[:, 0] * g00
        taken += expansion.leverage_error * heavy + gamma(32) * taken
        least = expansion.lowest - heavy * (1 + expansion.curvature_error)
        return cls(
            expansion=expansion,
            X=rows.X,
            norms=rows.norms,
            weight=weight,
            slope=slope,
            g00=g00,
            g01=g01,
            g11=g11,
            pull_length=length,
            lowest=np.maximum(least, _share(expansion, taken)),
        )

    def _scales(self, along: FloatArray) -> FloatArray:
        """Return c (p, 2) with H'⁻¹r = B⁻¹r + Σ c·B⁻¹x, from ``along`` = XB⁻¹r.

        c = σw(x·H'⁻¹r) are two equations, whose determinant (1 − w₀g₀₀)(1 + w₁g₁₁) + w₀w₁g₀₁² is a
        sum of numbers that are not negative.
        """
        w0, w1 = self.weight[:, 0], self.weight[:, 1]
        y0, y1 = w0 * along[:, 0], w1 * along[:, 1]
        kept, grown = 1 - w0 * self.g00, 1 + w1 * self.g11
        scale = np.empty_like(along)
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = 1 / (kept * grown + w0 * w1 * self.g01**2)
            scale[:, 0] = (grown * y0 - w0 * self.g01 * y1) * inverse
            scale[:, 1] = -(kept * y1 + w1 * self.g01 * y0) * inverse
        return scale

    def solve(self, right: FloatArray) -> FloatArray:
        """Return H'⁻¹ applied to each row."""
        along = np.einsum("pkd,pd->pk", self.X, right @ self.expansion.inverse)
        total = right + np.einsum("pk,pkd->pd", self._scales(along), self.X)
        solved: FloatArray = total @ self.expansion.inverse
        return solved

    def apply(self, vectors: FloatArray) -> FloatArray:
        """Return H' applied to each row."""
        along = self.weight * np.einsum("pkd,pd->pk", self.X, vectors) * [1, -1]
        image: FloatArray = vectors @ self.expansion.hessian
        image -= np.einsum("pk,pkd->pd", along, self.X)
        return image

    def forms(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        """Return the two sums for each row."""
        form = self.weight * np.einsum("pkd,pd->pk", self.X, vectors) ** 2
        return form[:, 0], form[:, 1] * self.norms[:, 1]

    def newton(self, step: FloatArray, left: FloatArray) -> None:
        """Write the Newton steps, and (p,) what is left of the linear systems.

        The steps are a₀ + Σ s·B⁻¹x, since B⁻¹pull is, with σf′/m for s.
        """
        expansion, slope = self.expansion, self.slope
        along = self.X @ expansion.offset
        along[:, 0] += self.g00 * slope[:, 0] + self.g01 * slope[:, 1]
        along[:, 1] += self.g01 * slope[:, 0] + self.g11 * slope[:, 1]
        scale = slope + self._scales(along)
        for some in few(len(step), expansion):
            X, part = self.X[some], step[some]
            np.matmul(np.einsum("pk,pkd->pd", scale[some], X), expansion.inverse, out=part)
            part += expansion.offset
            along = self.weight[some] * np.einsum("pkd,pd->pk", X, part)
            along[:, 1] *= -1
            image = part @ expansion.hessian
            image -= np.einsum("pk,pkd->pd", along + slope[some], X)
            image -= expansion.pull
            left[some] = row_norms(image)


def few(count: int, expansion: Expansion) -> Iterator[slice]:
    """Yield slices of replacements whose rows fit in a core's cache (256 KiB)."""
    return row_blocks(count, 16 * expansion.columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyRows(Operator):
    """H' of more than d rows that leave: ``hessian``, ``inverse`` (p, d, d), and ``taken`` = W."""

    hessian: FloatArray
    inverse: FloatArray
    taken: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, changed: ChangedGroup, pull: Pull) -> "ManyRows":
        """Prepare the solves."""
        m, d = expansion.rows_after, expansion.columns
        taken = np.zeros((len(changed), d, d))
        for part, _ in changed.chunks():
            scaled = part.X * (part.curvature / m)[:, :, None]
            taken += np.matmul(scaled.transpose(0, 2, 1), part.X)
        taken = 0.5 * (taken + taken.transpose(0, 2, 1))
        hessian = expansion.hessian - taken
        return cls(
            hessian=hessian,
            inverse=_inverses(hessian, expansion.floor),
            taken=taken,
            lowest=_least_of_many(expansion, hessian, pull.weight, changed.roundings),
        )

    def solve(self, right: FloatArray) -> FloatArray:
        """Return H'⁻¹ applied to each row."""
        return _each(self.inverse, right)

    def apply(self, vectors: FloatArray) -> FloatArray:
        """Return H' applied to each row."""
        return _each(self.hessian, vectors)

    def forms(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        """Return the two sums for each row."""
        return np.einsum("pd,pd->p", _each(self.taken, vectors), vectors), 0.0


def _inverses(hessian: FloatArray, floor: float) -> FloatArray:
    """Return H'⁻¹ of each neighbour; eigenvalues that rounding lost are raised to ``floor``.

    Nothing is proved of it: what a solve leaves is measured.
    """
    try:
        return np.asarray(np.linalg.inv(hessian))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        clipped = np.maximum(values, max(floor, 1e-300))
        inverse: FloatArray = np.matmul(vectors / clipped[:, None, :], vectors.transpose(0, 2, 1))
        return inverse


def _least_of_many(
    expansion: Expansion, hessian: FloatArray, weight: FloatArray, roundings: float
) -> FloatArray:
    """Bound H' ≽ B − (Σ f″∥x∥²/m)I, or by its least eigenvalue where that leaves too little."""
    least = expansion.lowest - weight * (1 + expansion.curvature_error)
    poor = ~(least >= expansion.lowest / 2)
    if np.any(poor):
        size = float(np.linalg.norm(expansion.hessian)) + weight[poor]
        slack = expansion.hessian_error + 16 * len(expansion.hessian) * ROUNDOFF * size
        slack += (expansion.curvature_error + gamma(roundings)) * weight[poor]
        least[poor] = np.linalg.eigvalsh(hessian[poor])[:, 0] - slack
    return least


def _each(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return a matrix times a vector for each neighbour."""
    image: FloatArray = np.matmul(matrices, vectors[:, :, None])[:, :, 0]
    return image


def pull_errors(expansion: Expansion, changed: ChangedGroup) -> FloatArray:
    """Return (p,) a bound on the error of F̃(Â) of each neighbour."""
    error = np.empty(len(changed))
    step = persons_at_once(changed.size * expansion.columns)
    for start in range(0, len(error), step):
        some = slice(start, start + step)
        part = changed.take(some)
        length = np.linalg.norm(pull_value(expansion, part), axis=1)
        error[some] = Pull.of(expansion, part, length).error
    return error
