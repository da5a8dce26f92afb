"""The losses of a model's rows, block by block, from what is known of all of them together.

Whoever has a :class:`BlockLosses` can work out the losses of any block: it holds O(d²) numbers, and
what steps are refined by where they need it, and travels to where the rows are.
"""

from dataclasses import dataclass, field

from expost.errors import WrongRows
from expost.glm import Objective
from expost.mechanisms import (
    Mechanism,
    ObjectivePerturbation,
    OutputPerturbation,
    RowLosses,
    Tangent,
)
from expost.mechanisms.output import TOLERANCE
from expost.neighbouring.expansion import Expansion, expand_curvature
from expost.neighbouring.shifts import Shifts
from expost.neighbouring.streamed import streamed_curvature
from expost.neighbouring.streamed_refinement import Refinement, refinement_of
from expost.profiles.target import without_noise
from expost.release import Release
from expost.rows import RowBlock
from expost.types import FloatArray, Neighbouring

__all__ = ["BlockLosses", "BlockNeighbours", "block_losses", "unreleased"]


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockNeighbours:
    """The minimisers without each row of one block, as seen from the base."""

    base: FloatArray
    base_error: float
    distance: FloatArray
    error_bound: FloatArray
    shifts: Shifts
    relation: Neighbouring = Neighbouring.REMOVE


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockLosses:
    """The losses of the rows of any block of one data set, under one released model.

    ``expansion``   of J at its minimiser, for output perturbation and models without noise;
    ``refinement``  what its steps are refined by;
    ``tangent``     of J at θ, for objective perturbation.
    """

    theta: FloatArray
    mechanism: Mechanism
    expansion: Expansion | None = None
    refinement: Refinement = field(default_factory=Refinement)
    tangent: Tangent | None = None

    def neighbours(self, block: RowBlock) -> BlockNeighbours:
        """Where the minimiser goes without each of its rows, certified."""
        expansion = self.expansion
        assert expansion is not None
        shifts, distance, error = self.refinement.steps(expansion, block)
        return BlockNeighbours(
            base=expansion.base.theta,
            base_error=expansion.base_error,
            distance=distance,
            error_bound=error,
            shifts=shifts,
        )

    def __call__(self, block: RowBlock) -> RowLosses:
        """The losses of its rows."""
        if self.tangent is not None:
            return self.tangent.block_losses(block)
        how = self.mechanism
        plain = without_noise(how) if isinstance(how, ObjectivePerturbation) else how
        assert isinstance(plain, OutputPerturbation)
        return plain.row_losses(self.theta, self.neighbours(block))


def block_losses(release: Release, problem: Objective) -> BlockLosses:
    """What every block's losses follow from: a few passes over the rows, which are checked."""
    how, theta = release.mechanism, release.theta
    if problem.count != how.rows:
        raise WrongRows(
            f"the table has {problem.count} rows: the model was made from {how.rows}; pass its"
            " training rows."
        )
    if isinstance(how, ObjectivePerturbation) and how.is_private:
        tangent = Tangent.at(how, problem, theta)
        tangent.check_rows()
        return BlockLosses(theta=theta, mechanism=how, tangent=tangent.detached())
    expansion = _expanded(problem, how)
    plain = without_noise(how) if isinstance(how, ObjectivePerturbation) else how
    assert isinstance(plain, OutputPerturbation)
    plain.check_rows(theta, expansion.base.theta, expansion.base_error)
    return _refined(problem, how, theta, expansion)


def unreleased(problem: Objective, how: Mechanism) -> BlockLosses:
    """Return where the minimiser goes without each row of any block, before there is a model."""
    expansion = _expanded(problem, how)
    return _refined(problem, how, expansion.base.theta, expansion)


def _expanded(problem: Objective, how: Mechanism) -> Expansion:
    base = problem.minimiser(TOLERANCE)
    return expand_curvature(
        streamed_curvature(problem, base),
        signs=(-1,),
        rows_after=problem.count - 1,
        keep_total_penalty=how.kind == "objective",
    )


def _refined(
    problem: Objective, how: Mechanism, theta: FloatArray, expansion: Expansion
) -> BlockLosses:
    refinement = refinement_of(problem, expansion)
    return BlockLosses(
        theta=theta,
        mechanism=how,
        expansion=refinement.steadied(expansion),
        refinement=refinement,
    )
