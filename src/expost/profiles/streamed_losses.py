"""The losses of a model's rows, block by block, from what is known of all of them together.

A :class:`BlockLosses` computes the losses of any block. It holds O(d²) numbers, and what steps are
refined by where they need it, and is sent to the workers that read the rows.
"""

from dataclasses import dataclass, replace

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
from expost.neighbouring.leave_one_out import LeaveOneOut
from expost.neighbouring.neighbours import Neighbours
from expost.profiles.target import without_noise
from expost.release import Release
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = ["BlockLosses", "block_losses", "unreleased"]


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockLosses:
    """The losses of the rows of any block of one data set, under one released model.

    ``leave_one_out``  finds the minimisers without each row, for output perturbation and models
                       without noise;
    ``tangent``        of J at θ, for objective perturbation.
    """

    theta: FloatArray
    mechanism: Mechanism
    leave_one_out: LeaveOneOut | None = None
    tangent: Tangent | None = None

    def neighbours(self, block: RowBlock) -> Neighbours:
        """Return the certified minimisers without each row of ``block``."""
        assert self.leave_one_out is not None
        return self.leave_one_out(block)

    def __call__(self, block: RowBlock) -> RowLosses:
        """Return the losses of the rows of ``block``."""
        if self.tangent is not None:
            return self.tangent.block_losses(block)
        how = self.mechanism
        plain = without_noise(how) if isinstance(how, ObjectivePerturbation) else how
        assert isinstance(plain, OutputPerturbation)
        return plain.row_losses(self.theta, self.neighbours(block))


def block_losses(release: Release, problem: Objective) -> BlockLosses:
    """Return what every block's losses follow from, after a few passes over the rows."""
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
    losses = replace(unreleased(problem, how), theta=theta)
    plain = without_noise(how) if isinstance(how, ObjectivePerturbation) else how
    assert isinstance(plain, OutputPerturbation)
    assert losses.leave_one_out is not None
    expansion = losses.leave_one_out.expansion
    plain.check_rows(theta, expansion.base.theta, expansion.base_error)
    return losses


def unreleased(problem: Objective, how: Mechanism) -> BlockLosses:
    """Return where the minimiser goes without each row of any block, before there is a model."""
    base = problem.minimiser(TOLERANCE)
    found = LeaveOneOut.of(problem, base, keep_total_penalty=how.kind == "objective")
    return BlockLosses(theta=base.theta, mechanism=how, leave_one_out=found)
