"""Newton steps to the neighbours without a person, with their certificate.

All rows of a person leave at once (:mod:`expost.neighbouring.removed` has the conventions). What a
solve leaves of the linear system is *measured*, so that no bound depends on how it was solved; sums
over the data leave her rows out, rather than take them off again, so that a person may own most of
it.
"""

from dataclasses import dataclass, replace

import numpy as np

from expost._numerics import ROUNDOFF, UNDERFLOW, gamma, row_norms
from expost.losses import Logistic
from expost.neighbouring.expansion import Expansion
from expost.neighbouring.newton import certified
from expost.neighbouring.refine import Block, Neighbourhood, hessian_at, increment_error, increments
from expost.neighbouring.removed import (
    FewRows,
    ManyRows,
    Operator,
    Pull,
    chunks,
    persons_at_once,
    terms,
)
from expost.types import FloatArray, IntArray

__all__ = ["WithoutPersons"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Removal(Block):
    """The neighbours without one of p persons who have k rows each.

    ``rows``   (p, k) their rows; ``owner`` (n,) the person of every row of the data.
    ``left``   (p,) ∥H'δ − pull∥ of their Newton steps.
    """

    expansion: Expansion
    persons: IntArray
    rows: IntArray
    owner: IntArray
    pull: Pull
    operator: Operator
    left: FloatArray

    @classmethod
    def of(
        cls, expansion: Expansion, persons: IntArray, rows: IntArray, owner: IntArray
    ) -> "_Removal":
        """Gather what is needed of their rows; no step is taken yet."""
        pull = Pull.of(expansion, rows)
        few = rows.shape[1] <= expansion.problem.columns
        kind: type[FewRows] | type[ManyRows] = FewRows if few else ManyRows
        return cls(
            expansion=expansion,
            persons=persons,
            rows=rows,
            owner=owner,
            pull=pull,
            operator=kind.of(expansion, rows, pull.weight),
            left=np.full(len(rows), np.nan),
        )

    @property
    def weight(self) -> FloatArray:
        return self.pull.weight

    def solve(self, right: FloatArray) -> FloatArray:
        return self.operator.solve(right)

    def apply(self, vectors: FloatArray) -> FloatArray:
        return self.operator.apply(vectors)

    def bend(self, vectors: FloatArray) -> FloatArray:
        problem = self.expansion.problem
        assert isinstance(problem.loss, Logistic)
        total, data = np.zeros_like(vectors), self.expansion.linear.data
        for part in chunks(self.rows, problem.columns):
            X = problem.held.X[part]
            third = problem.loss.third(data.z[part], data.y[part])
            along = np.einsum("pkd,pd->pk", X, vectors)
            total -= np.einsum("pk,pkd->pd", third * along**2, X)
        return total / self.expansion.rows_after

    def third(self, vectors: FloatArray) -> FloatArray:
        """T over the rows that stay is at most what it is over all, less M·r·W."""
        expansion = self.expansion
        assert expansion.third is not None
        assert expansion.third_bound is not None
        square = np.einsum("pd,pd->p", vectors, vectors)
        form: FloatArray = np.einsum("pd,pd->p", vectors @ expansion.third, vectors)
        off, common = expansion.curvature_error, expansion.third_bound.common
        rounding = gamma(terms(self.rows, len(expansion.third)) + 2 * len(expansion.third) + 16)
        size = float(np.linalg.norm(expansion.third)) + common * self.weight
        form = (1 + off) * form - (1 - off) * common * self.operator.removed(vectors)
        bound: FloatArray = np.maximum(form, 0.0) + rounding * size * square
        return bound

    def gradient(self, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        expansion, problem, m = self.expansion, self.expansion.problem, self.expansion.rows_after
        # Her own rows are left out of the sum, rather than taken off it again.
        local = np.full(int(self.owner.max()) + 1, -1)
        local[self.persons] = np.arange(len(self.persons))
        total, moved = increments(expansion, shift, local[self.owner])
        length = np.linalg.norm(shift, axis=1)
        gradient = expansion.penalty_after * shift + total / m - self.pull.value
        with np.errstate(over="ignore"):
            uncertain = increment_error(expansion, length)
        rounding = (
            gamma(problem.count + problem.columns + 64) * moved / m
            + uncertain
            + self.pull.error
            + 8 * ROUNDOFF * np.linalg.norm(self.pull.value, axis=1)
            + 4 * ROUNDOFF * float(np.max(expansion.penalty_after)) * length
        )
        return gradient, 1.01 * rounding

    def hessian(self, shift: FloatArray) -> FloatArray:
        theta = self.expansion.base.theta + shift[0]
        return hessian_at(self.expansion, theta, self.owner != self.persons[0])

    def error(
        self,
        length: FloatArray,
        remainder: FloatArray,
        decay: FloatArray,
        *,
        measured: bool = False,
        lowest: FloatArray | float | None = None,
    ) -> FloatArray:
        expansion, d = self.expansion, self.expansion.problem.columns
        residual = remainder if measured else remainder + self._linear(length)
        least: FloatArray | float = expansion.floor
        if lowest is not None:
            least = lowest
        elif expansion.problem.loss.third_ratio is not None:
            least = np.maximum(expansion.floor, self.operator.lowest)
        weight = (1 + expansion.curvature_error) * self.weight
        error = certified(expansion, residual, length, least, decay, weight)
        # Of the length, and of inner products with the shift.
        tiny = UNDERFLOW * (1 + 1 / expansion.floor) if expansion.floor > 0 else UNDERFLOW
        return error + 8 * gamma(d + 16) * length + tiny

    def _linear(self, length: FloatArray) -> FloatArray:
        """What is left of the linear system, as measured, and the rounding of measuring it."""
        expansion, d = self.expansion, self.expansion.problem.columns
        evaluated = gamma(terms(self.rows, d) + 2 * d + 16)
        relative = expansion.hessian_error + expansion.curvature_error * self.weight
        relative += evaluated * (float(np.linalg.norm(expansion.hessian)) + self.weight)
        pulled = np.linalg.norm(self.pull.value, axis=1)
        rounding = relative * length + 8 * ROUNDOFF * pulled + self.pull.error
        residual: FloatArray = (1 + 1e-9) * (self.left + rounding)
        return residual

    def newton(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Steps, their lengths and errors, and what they leave of the linear system."""
        step = self.solve(self.pull.value)
        length = row_norms(step)
        left = row_norms(self.apply(step) - self.pull.value)
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(self.expansion.spread * length)
            if self.expansion.third is not None:
                remainder = 0.5 * growth * self.third(step)
            elif self.expansion.knots is not None:
                remainder = self.expansion.knots.remainder(length)
            else:
                remainder = np.zeros(len(length))
        error = replace(self, left=left).error(length, remainder, 1 / growth)
        return step, length, error, left


@dataclass(frozen=True, kw_only=True, eq=False)
class WithoutPersons(Neighbourhood):
    """All neighbours without one of the persons who have k rows.

    ``shift``, ``length``, ``errors``  of one Newton step to each.
    ``left``    what the solves left of the linear systems.
    """

    expansion: Expansion
    persons: IntArray
    rows: IntArray
    owner: IntArray
    shift: FloatArray
    length: FloatArray
    errors: FloatArray
    left: FloatArray

    @classmethod
    def of(
        cls, expansion: Expansion, persons: IntArray, rows: IntArray, owner: IntArray
    ) -> "WithoutPersons":
        """One Newton step to each neighbour, in blocks of persons."""
        length, errors, left = np.empty((3, len(persons)))
        shift = np.empty((len(persons), expansion.problem.columns))
        step = persons_at_once(_width(expansion, rows))
        for start in range(0, len(persons), step):
            some = slice(start, start + step)
            block = _Removal.of(expansion, persons[some], rows[some], owner)
            shift[some], length[some], errors[some], left[some] = block.newton()
        # What is not a number proves nothing.
        errors[np.isnan(errors)] = np.inf
        return cls(
            expansion=expansion,
            persons=persons,
            rows=rows,
            owner=owner,
            shift=shift,
            length=length,
            errors=errors,
            left=left,
        )

    @property
    def width(self) -> int:
        """Numbers held for each person."""
        return _width(self.expansion, self.rows)

    def newton(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the Newton steps, their lengths and their errors."""
        return self.shift, self.length, self.errors

    def take(self, rows: IntArray) -> _Removal:
        """Return the removals of some persons."""
        block = _Removal.of(self.expansion, self.persons[rows], self.rows[rows], self.owner)
        return replace(block, left=self.left[rows])


def _width(expansion: Expansion, rows: IntArray) -> int:
    """Entries for each person: of her rows, or of a matrix where they are more than d."""
    columns = expansion.problem.columns
    return min(int(rows.shape[1]), columns) * columns
