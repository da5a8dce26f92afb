"""A model whose mechanism is known, bound to its rows, and the losses of those rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.glm import Objective
from expost.mechanisms import (
    Mechanism,
)
from expost.release import Release
from expost.types import FloatArray

__all__ = ["SEEDED", "Target", "find_target"]

SEEDED = "The noise was drawn from a seed: whoever knows it can take it off."

# So many of the constants that were read from the data are named; the rest are counted.
_NAMED = 4


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
        width = len(self.theta) / loss.outputs
        if rows.shape[1] != width:
            raise InvalidInput(f"X has {rows.shape[1]} columns: the coefficients have {width:g}.")
        target, penalty = _checks.vector(y, length=len(rows)), self.mechanism.total_regularization
        problem = Objective.of(X=rows, y=target, loss=loss, penalty=penalty)
        if float(problem.held.norms.max()) > 1 + 1e-9:
            raise InvalidInput(
                "X: with bare coefficients its rows must lie in the unit ball; divide them by the"
                " data norm, or pass the estimator."
            )
        if loss.outputs > 1:
            return self.theta, self.mechanism, problem, ()
        if loss.is_classification and not np.all(np.abs(problem.held.y) == 1):
            raise InvalidInput("y: with bare coefficients its labels must be −1 and +1.")
        bound = np.inf if loss.label_bound is None else loss.label_bound
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
        return self.mechanism.describe()


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
            f"{release.mechanism.kind.capitalize()} perturbation promises no epsilon for the"
            f" {release.mechanism.loss.name} loss, whose gradient is not bounded: the losses here"
            " are what it gives away."
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
