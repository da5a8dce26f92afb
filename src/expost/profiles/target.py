"""A model whose mechanism is known, bound to its rows, and the losses of those rows."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.glm import Objective
from expost.losses import Softmax
from expost.mechanisms import (
    Mechanism,
    ObjectivePerturbation,
    OutputPerturbation,
    RowLosses,
    Tangent,
)
from expost.mechanisms.output import TOLERANCE
from expost.mechanisms.person_losses import person_losses
from expost.mechanisms.sampling import drawn_losses, expected_exposures
from expost.neighbouring.change import Change
from expost.neighbouring.neighbours import Neighbours, tight_neighbours
from expost.neighbouring.persons import Persons
from expost.release import Release
from expost.rounding import for_persons, upper_text
from expost.types import FloatArray, Neighbouring

__all__ = ["SEEDED", "Target", "find_target", "losses_of", "without_noise"]

SEEDED = "The noise was drawn from a seed: whoever knows it can take it off."

# So many of the constants that were read from the data are named; the rest are counted.
_NAMED = 4


def losses_of(
    theta: FloatArray,
    how: Mechanism,
    problem: Objective,
    relation: Neighbouring,
    entering: tuple[FloatArray, FloatArray] | None,
    persons: Persons | None = None,
) -> tuple[RowLosses, Neighbours | None]:
    """What the mechanism says of every row, and the neighbours where it goes through them.

    With ``persons`` of every person, all of whose rows are removed at once.
    """
    whole, persons = persons, None if persons is None or persons.are_rows else persons
    several = problem.loss.outputs > 1
    if several and not isinstance(how, ObjectivePerturbation):
        raise InvalidInput("mechanism: only objective perturbation takes more than two classes.")
    if several and persons is not None and not how.is_private:
        raise InvalidInput(
            "persons: a model of more than two classes without noise is profiled row by row; leave"
            " persons out."
        )
    if isinstance(how, ObjectivePerturbation) and (how.is_private or several):
        return _tangent_losses(theta, how, problem, relation, entering, persons), None
    base = problem.minimiser(TOLERANCE)
    near = tight_neighbours(
        problem,
        base,
        Change.of(problem.held, relation, entering, whole),
        keep_total_penalty=how.kind == "objective",
    )
    plain = without_noise(how) if isinstance(how, ObjectivePerturbation) else how
    plain.check_rows(theta, near.base, near.base_error)
    losses = plain.row_losses(theta, near)
    if persons is None or not how.is_private:
        return losses, near
    worst, passed = how.worst_case_of(persons.largest)
    promised = how.guarantee(persons.largest)
    losses = replace(losses, worst_case=worst, worst_case_passed=passed, guarantee=promised)
    return losses, near


def without_noise(how: ObjectivePerturbation) -> OutputPerturbation:
    """At ε = ∞ both mechanisms release the minimiser."""
    return OutputPerturbation(
        epsilon=np.inf,
        loss=how.loss,
        regularization=how.total_regularization,
        rows=how.rows,
        dimension=how.dimension,
    )


def _tangent_losses(
    theta: FloatArray,
    how: ObjectivePerturbation,
    problem: Objective,
    relation: Neighbouring,
    entering: tuple[FloatArray, FloatArray] | None,
    persons: Persons | None,
) -> RowLosses:
    """Return the losses under objective perturbation."""
    tangent = Tangent.at(how, problem, theta)
    tangent.check_rows()
    found = (
        tangent.row_losses(relation, entering)
        if persons is None
        else person_losses(tangent, persons)
    )
    if not how.is_private:
        return found
    return replace(
        found,
        sampled=lambda: expected_exposures(how, problem, relation, entering, persons),
        draw=lambda size, rng: drawn_losses(how, problem, relation, entering, size, rng, persons),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A model whose mechanism is known: a release, or bare coefficients."""

    release: Release | None
    theta: FloatArray
    mechanism: Mechanism

    def bind(self, X: Any, y: Any) -> tuple[FloatArray, Mechanism, Objective, tuple[str, ...]]:
        """θ, its mechanism, and the rows as its objective sees them."""
        if self.release is not None:
            _check_names(self.release, X)
            found = self.release.objective(X, y)
            return self.theta, self.mechanism, found, _notices(self.release)
        rows, loss = _checks.matrix(X, min_rows=1), self.mechanism.loss
        width = len(self.theta) / (loss.classes if isinstance(loss, Softmax) else 1)
        if rows.shape[1] != width:
            raise InvalidInput(f"X has {rows.shape[1]} columns: the coefficients have {width:g}.")
        target, penalty = _checks.vector(y, length=len(rows)), self.mechanism.total_regularization
        problem: Objective
        if isinstance(loss, Softmax):
            problem = Objective.of(X=rows, y=target, loss=loss, penalty=penalty)
        else:
            problem = Objective.of(
                X=rows, y=target, loss=loss, penalty=np.full(len(self.theta), penalty)
            )
        if float(problem.held.norms.max()) > 1 + 1e-9:
            raise InvalidInput(
                "X: with bare coefficients its rows must lie in the unit ball; divide them by the"
                " data norm, or pass the estimator."
            )
        if loss.outputs > 1:
            return self.theta, self.mechanism, problem, ()
        if loss.is_classification and not np.all(np.abs(problem.held.y) == 1):
            raise InvalidInput("y: with bare coefficients its labels must be −1 and +1.")
        bound = getattr(loss, "label_bound", np.inf)
        if not float(np.max(np.abs(problem.held.y))) <= bound:
            raise InvalidInput(
                f"y: with bare coefficients no label may be past label_bound={bound:g}; clip them."
            )
        return self.theta, self.mechanism, problem, ()

    @property
    def notices(self) -> tuple[str, ...]:
        """What whoever reads of the model must know."""
        return () if self.release is None else _notices(self.release)

    def describe(self) -> str:
        """Return one sentence about the model."""
        how = self.mechanism
        noise = f"{how.noise} noise" if how.is_private else "no noise"
        delta = "" if how.delta is None else f", delta={upper_text(how.delta)}"
        return (
            f"{how.loss.name} by {how.kind} perturbation, {noise},"
            f" epsilon={upper_text(how.epsilon)}{delta}{for_persons(how.rows_per_person)},"
            f" regularization={how.total_regularization:.4g}, n={how.rows}, d={how.dimension}"
        )


def find_target(model: Any, mechanism: Mechanism | None) -> Target | None:
    """What is known of the model, or None for one whose mechanism is not."""
    if isinstance(model, str | Path):
        model = Release.load(model)
    release = model if isinstance(model, Release) else getattr(model, "release_", None)
    if isinstance(release, Release):
        return Target(release=release, theta=release.theta, mechanism=release.mechanism)
    if mechanism is not None:
        theta = _checks.vector(model, name="model", length=mechanism.dimension)
        return Target(release=None, theta=theta, mechanism=mechanism)
    return None


def _check_names(release: Release, X: Any) -> None:
    """A frame's columns must be those that the model was made with, in their order."""
    names = getattr(X, "columns", None)
    if release.feature_names is None or names is None:
        return
    found = tuple(str(name) for name in names)
    if found != release.feature_names:
        raise InvalidInput(
            "X: its columns are not those of the model, in their order; the model was made with"
            f" {', '.join(release.feature_names)}."
        )


def _notices(release: Release) -> tuple[str, ...]:
    notices = []
    if not release.mechanism.is_private:
        notices.append("epsilon=inf: the model carries no noise, so every loss is infinite.")
    elif not release.mechanism.worst_case < np.inf:
        notices.append(
            "Objective perturbation promises no epsilon for the squared loss, whose gradient is not"
            " bounded: the losses here are what it gives away."
        )
    if release.read_from_data:
        read = release.read_from_data
        more = (
            f" and {len(read) - _NAMED} more, which model.json lists" if len(read) > _NAMED else ""
        )
        notices.append(
            f"Read from the data, which is not private: {', '.join(read[:_NAMED])}{more}."
        )
    if release.seeded:
        notices.append(SEEDED)
    return tuple(notices)
