"""The rows of persons who leave, and the Hessian without them.

Conventions (those of :mod:`expost.neighbouring.expansion`, at Â)
-----------------------------------------------------
S, k     the rows of one person and their number; m = n − k rows are left.
X, R     (k, d) those rows; R² = diag(f″/m).
W        XᵀR²X, so that H' = B − W: persons with as many rows share B and its inverse.
pull     −F̃(Â) = (k + Σ_S f′x)/m, and the Newton step solves H'δ = pull.

H' is solved with through the smaller of two systems: for k ≤ d rows through I − R(XB⁻¹Xᵀ)R, of k
rows (Woodbury), else through H' itself, for which the rows are summed up once, a few at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from expost._numerics import ROUNDOFF, UNDERFLOW, CompensatedSum, gamma, row_norms
from expost.losses import ScalarDerivatives
from expost.neighbouring.expansion import Expansion
from expost.neighbouring.newton import solve_small
from expost.types import FloatArray, IntArray

__all__ = ["FewRows", "ManyRows", "Operator", "Pull", "chunks", "persons_at_once", "terms"]

# Entries of rows, or of matrices, that are gathered at a time: 2 MiB.
_ENTRIES = 2**18
# Rows of one person that one dot product sums; longer sums are compensated.
_CHUNK = 4096


def persons_at_once(width: int) -> int:
    """How many persons are worked on together where each takes ``width`` entries."""
    return max(1, _ENTRIES // max(width, 1))


def chunks(rows: IntArray, columns: int) -> Iterator[IntArray]:
    """The index (p, k) by columns, a few rows of each person at a time."""
    step = _step(rows, columns)
    for start in range(0, rows.shape[1], step):
        yield rows[:, start : start + step]


def _step(rows: IntArray, columns: int) -> int:
    return max(1, min(_CHUNK, _ENTRIES // (len(rows) * columns)))


def terms(rows: IntArray, columns: int) -> float:
    """How many roundings a sum over one person's rows meets, chunk by chunk."""
    size, step = int(rows.shape[1]), _step(rows, columns)
    return min(size, step) + size / step + 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Pull:
    """What pulls the minimiser away from Â when the rows of p persons leave.

    ``value``   (p, d) −F̃(Â).
    ``error``   (p,) a bound on its error, of f′, of the predictors and of the sums.
    ``weight``  (p,) Σ f″∥x∥²/m.
    """

    value: FloatArray
    error: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, rows: IntArray) -> "Pull":
        """Of the persons whose rows are ``rows`` (p, k)."""
        problem, data, m = expansion.problem, expansion.linear.data, expansion.rows_after
        total = CompensatedSum((len(rows), problem.columns))
        lost, weight = np.zeros(len(rows)), np.zeros(len(rows))
        rounding = gamma(terms(rows, problem.columns))
        for part in chunks(rows, problem.columns):
            slope, curvature, norms = data.slope[part], data.curvature[part], data.norms[part]
            total.add(np.einsum("pk,pkd->pd", slope, problem.held.X[part]))
            found = ScalarDerivatives(
                slope=slope,
                curvature=curvature,
                is_classification=problem.loss.is_classification,
            )
            error = problem.constants.slope_error(expansion.base.theta, found, norms)
            lost += np.einsum("pk,pk->p", norms, error + rounding * np.abs(slope))
            weight += np.einsum("pk,pk->p", curvature, data.norm_squares[part])
        value = expansion.pull + total.value / m
        size = np.linalg.norm(value, axis=1) + float(np.linalg.norm(expansion.pull))
        error = 1.01 * lost / m + expansion.pull_error + 8 * ROUNDOFF * size + UNDERFLOW
        return cls(value=value, error=error, weight=weight / m)


class Operator(ABC):
    """H'(Â) of p persons.

    ``lowest`` (p,) a lower bound on its least eigenvalue, but for the penalty's own.
    """

    lowest: FloatArray

    @abstractmethod
    def solve(self, right: FloatArray) -> FloatArray:
        """H'⁻¹ applied to each row of ``right`` (p, d)."""

    @abstractmethod
    def apply(self, vectors: FloatArray) -> FloatArray:
        """H' applied to each row."""

    @abstractmethod
    def removed(self, vectors: FloatArray) -> FloatArray:
        """(p,) vᵀWv."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FewRows(Operator):
    """k ≤ d: ``system`` is I − R(XB⁻¹Xᵀ)R, ``images`` XB⁻¹."""

    hessian: FloatArray
    inverse: FloatArray
    X: FloatArray
    root: FloatArray
    images: FloatArray
    system: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, rows: IntArray, weight: FloatArray) -> "FewRows":
        """Prepare the solves without ``rows``."""
        X = expansion.problem.held.X[rows]
        root = np.sqrt(expansion.linear.data.curvature[rows] / expansion.rows_after)
        _, size, columns = X.shape
        images = (X.reshape(-1, columns) @ expansion.inverse).reshape(X.shape)
        taken = np.matmul(images, X.transpose(0, 2, 1))
        taken *= root[:, :, None] * root[:, None, :]
        return cls(
            hessian=expansion.hessian,
            inverse=expansion.inverse,
            X=X,
            root=root,
            images=images,
            system=np.eye(size) - taken,
            lowest=_least_few(expansion, taken, weight),
        )

    def solve(self, right: FloatArray) -> FloatArray:
        """Solve with the Hessian without the rows."""
        solved = right @ self.inverse
        along = self.root * np.einsum("pkd,pd->pk", self.X, solved)
        parts = self.root * solve_small(self.system, along)
        solved += np.einsum("pk,pkd->pd", parts, self.images)
        return solved

    def apply(self, vectors: FloatArray) -> FloatArray:
        """Multiply by the Hessian without the rows."""
        along = self.root**2 * np.einsum("pkd,pd->pk", self.X, vectors)
        image: FloatArray = vectors @ self.hessian - np.einsum("pk,pkd->pd", along, self.X)
        return image

    def removed(self, vectors: FloatArray) -> FloatArray:
        """Return vᵀRv for each vector v, R the part of the Hessian that leaves."""
        along = self.root * np.einsum("pkd,pd->pk", self.X, vectors)
        return row_norms(along) ** 2


def _least_few(expansion: Expansion, taken: FloatArray, weight: FloatArray) -> FloatArray:
    """H' ≽ B − (Σ f″∥x∥²/m)I, and H' ≽ (1 − ν)B with ν the largest eigenvalue of R(XB⁻¹Xᵀ)R.

    The second is looked at only where the first leaves less than half of B's least eigenvalue.
    """
    heavier = weight * (1 + expansion.curvature_error)
    least = expansion.lowest - heavier
    poor = ~(least >= expansion.lowest / 2)
    if np.any(poor):
        some = taken[poor]
        symmetric = 0.5 * (some + some.transpose(0, 2, 1))
        largest = np.linalg.eigvalsh(symmetric)[:, -1]
        rounding = expansion.leverage_error * weight[poor]
        rounding += gamma(16 * len(symmetric[0])) * np.trace(symmetric, axis1=1, axis2=2)
        kept = np.maximum(1 - (1 + expansion.curvature_error) * (largest + rounding), 0.0)
        shared = kept * (expansion.lowest + expansion.slack) - expansion.slack
        least[poor] = np.maximum(least[poor], shared)
    return least


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyRows(Operator):
    """k > d: ``hessian`` and ``inverse`` are H' and H'⁻¹ (p, d, d), ``taken`` is W."""

    hessian: FloatArray
    inverse: FloatArray
    taken: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, expansion: Expansion, rows: IntArray, weight: FloatArray) -> "ManyRows":
        """Prepare the solves without ``rows``."""
        problem, m = expansion.problem, expansion.rows_after
        d = problem.columns
        taken = np.zeros((len(rows), d, d))
        for part in chunks(rows, d):
            X = problem.held.X[part]
            scaled = X * (expansion.linear.data.curvature[part] / m)[:, :, None]
            taken += np.matmul(scaled.transpose(0, 2, 1), X)
        taken = 0.5 * (taken + taken.transpose(0, 2, 1))
        hessian = expansion.hessian - taken
        return cls(
            hessian=hessian,
            inverse=_inverses(hessian, expansion.floor),
            taken=taken,
            lowest=_least_many(expansion, hessian, weight, terms(rows, d)),
        )

    def solve(self, right: FloatArray) -> FloatArray:
        """Solve with the Hessian without the rows."""
        return _each(self.inverse, right)

    def apply(self, vectors: FloatArray) -> FloatArray:
        """Multiply by the Hessian without the rows."""
        return _each(self.hessian, vectors)

    def removed(self, vectors: FloatArray) -> FloatArray:
        """Return vᵀRv for each vector v, R the part of the Hessian that leaves."""
        form: FloatArray = np.einsum("pd,pd->p", _each(self.taken, vectors), vectors)
        return form


def _inverses(hessian: FloatArray, floor: float) -> FloatArray:
    """H'⁻¹ of each person; where rounding has lost what the penalty gives, with that put back.

    Nothing is proved of it: what a solve leaves is measured.
    """
    try:
        return np.asarray(np.linalg.inv(hessian))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        clipped = np.maximum(values, max(floor, 1e-300))
        inverse: FloatArray = np.matmul(vectors / clipped[:, None, :], vectors.transpose(0, 2, 1))
        return inverse


def _least_many(
    expansion: Expansion, hessian: FloatArray, weight: FloatArray, roundings: float
) -> FloatArray:
    """H' ≽ B − (Σ f″∥x∥²/m)I, or its least eigenvalue where that leaves less than half of B's."""
    least = expansion.lowest - weight * (1 + expansion.curvature_error)
    poor = ~(least >= expansion.lowest / 2)
    if np.any(poor):
        size = float(np.linalg.norm(expansion.hessian)) + weight[poor]
        slack = expansion.hessian_error + 16 * len(expansion.hessian) * ROUNDOFF * size
        slack += (expansion.curvature_error + gamma(roundings)) * weight[poor]
        least[poor] = np.linalg.eigvalsh(hessian[poor])[:, 0] - slack
    return least


def _each(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """A matrix times a vector for each person."""
    image: FloatArray = np.matmul(matrices, vectors[:, :, None])[:, :, 0]
    return image
