"""The verb ``publish``: a report of one released model that may be published."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from expost import _checks
from expost.errors import InvalidInput, WrongRows
from expost.glm import Objective
from expost.mechanisms import Mechanism, RowLosses, Tangent
from expost.mechanisms.publishing import PublishingBudget, TangentMechanism
from expost.neighbouring.change import Change
from expost.publishing.report import KINDS, PublishedReport, check_publishable
from expost.release import Release
from expost.rows import RowBlock

__all__ = ["PublishRequest", "ReleasedRows", "describe", "publish"]


def publish(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    kind: str = "data-independent",
    failure_probability: float = 1e-6,
    epsilon_gradient: float | None = None,
    epsilon_hessian: float | None = None,
    delta: float | None = None,
) -> PublishedReport:
    """Return a report that bounds the exposure of any row under ``model`` (R&W Alg. 2).

    ``model``       a fitted expost estimator, a released model or the path of its model.json. The
                    report is of that one release; nothing is drawn again.
    ``X``, ``y``    the rows it was trained on, in their order. A data-independent report does not
                    need them; where they are given they are checked.
    ``kind``        "data-independent": from θ and public constants, nothing is spent. Of models by
                    objective perturbation also "data-dependent": a noisy gradient and a noisy
                    Hessian are released beside θ, which spends ``epsilon_gradient`` and
                    ``epsilon_hessian``, each at ``delta`` (the model's own where it has one), and
                    a second such report spends them again.
    ``failure_probability``  ρ. A data-independent bound fails with probability ρ, a data-dependent
                    one with 3ρ, for a row that was fixed before the noise was drawn.

    Refused are models that hold anything read from their rows, that carry no noise or the noise of
    a seed, and for a data-dependent report those with too little regularization.
    """
    request = PublishRequest.of(
        model,
        kind=kind,
        failure_probability=failure_probability,
        epsilon_gradient=epsilon_gradient,
        epsilon_hessian=epsilon_hessian,
        delta=delta,
    )
    if X is None and y is None and request.tangent_mechanism is None:
        return request.report(None)
    if X is None or y is None:
        raise InvalidInput(
            "X, y: pass both, or neither."
            if request.tangent_mechanism is None
            else "X, y: a data-dependent report needs the rows of the model; pass them."
        )
    return request.report(ReleasedRows.of_arrays(request.release, X, y))


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishRequest:
    """A report that can be made: all that can be refused without the rows has been checked.

    ``tangent_mechanism``  how a data-dependent report releases a gradient and a Hessian beside the
                           model; None: it is data-independent.
    """

    release: Release
    failure_probability: float
    tangent_mechanism: TangentMechanism | None

    @classmethod
    def of(
        cls,
        model: Any,
        *,
        kind: str,
        failure_probability: float,
        epsilon_gradient: float | None,
        epsilon_hessian: float | None,
        delta: float | None,
    ) -> "PublishRequest":
        """Check the arguments of :func:`publish`."""
        _checks.one_of("kind", kind, KINDS)
        rho = _checks.probability("failure_probability", failure_probability)
        release = _release(model)
        how = release.mechanism
        check_publishable(release)
        if kind != "data-dependent":
            _refuse_budget(
                epsilon_gradient=epsilon_gradient, epsilon_hessian=epsilon_hessian, delta=delta
            )
            return cls(release=release, failure_probability=rho, tangent_mechanism=None)
        how.check_report()
        budget = _budget(how, rho, epsilon_gradient, epsilon_hessian, delta)
        mechanism = how.tangent_mechanism(budget, release.theta)
        mechanism.check()
        return cls(release=release, failure_probability=rho, tangent_mechanism=mechanism)

    def report(self, rows: "ReleasedRows | None") -> PublishedReport:
        """Return the report; a data-dependent one draws, and spends.

        ``rows``  of the model, where they are at hand; a data-dependent report needs them.
        """
        if self.tangent_mechanism is None:
            return PublishedReport(
                release=self.release, failure_probability=self.failure_probability
            )
        assert rows is not None
        assert rows.tangent is not None
        return PublishedReport(
            release=self.release,
            failure_probability=self.failure_probability,
            budget=self.tangent_mechanism.budget,
            released=self.tangent_mechanism.release(rows.tangent),
        )

    def matches(self, report: PublishedReport) -> bool:
        """Return whether a report is one that was requested: of this model, for this budget."""
        mechanism = self.tangent_mechanism
        return (
            report.release.to_json() == self.release.to_json()
            and report.failure_probability == self.failure_probability
            and report.budget == (None if mechanism is None else mechanism.budget)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedRows:
    """The training rows of a released model, in memory or read from a table, checked.

    ``tangent``  of the objective at θ, under objective perturbation. It is computed once, for the
                 report and for the losses.
    ``losses``   computes the losses of the rows of any block.
    """

    release: Release
    objective: Objective
    tangent: Tangent | None
    losses: Callable[[RowBlock], RowLosses]

    @classmethod
    def of(cls, release: Release, objective: Objective) -> "ReleasedRows":
        """Check that ``objective`` has the training rows; refuse rows that cannot be."""
        how, theta = release.mechanism, release.theta
        losses: Callable[[RowBlock], RowLosses]
        if objective.rows.is_held:
            tangent = how.check(objective, theta)
            losses = _HeldLosses(release=release, objective=objective)
            if tangent is not None:
                losses = tangent.detached().block_losses
        else:
            found = losses = how.prepare(objective, theta)
            tangent = found.tangent
            tangent = None if tangent is None else replace(tangent, objective=objective)
        return cls(release=release, objective=objective, tangent=tangent, losses=losses)

    @classmethod
    def of_arrays(cls, release: Release, X: Any, y: Any) -> "ReleasedRows":
        """Check rows as the model's features, with their labels."""
        names = getattr(X, "columns", None)
        if release.feature_names is not None and names is not None:
            found = tuple(map(str, np.asarray(names)))
            if found != release.feature_names:
                raise InvalidInput(
                    "X: its columns are not those of the model, in their order; the model was made"
                    f" with {', '.join(release.feature_names)}."
                )
        objective, how = release.objective(X, y), release.mechanism
        if objective.count != how.rows:
            raise WrongRows(
                f"X has {objective.count} rows: the model was made from {how.rows}; pass its"
                " training rows."
            )
        return cls.of(release, objective)

    @property
    def description(self) -> str:
        """The model, in one line."""
        return describe(self.release)


def describe(release: Release) -> str:
    """Return a released model in one line."""
    return release.mechanism.describe()


@dataclass(frozen=True, kw_only=True, eq=False)
class _HeldLosses:
    """The losses of rows in memory, computed together when the first block is asked for."""

    release: Release
    objective: Objective

    @cached_property
    def _all(self) -> RowLosses:
        change = Change.of(self.objective.held)
        return self.release.mechanism.losses(self.objective, self.release.theta, change)

    def __call__(self, block: RowBlock) -> RowLosses:
        """Return the losses of the rows of a block, with their intervals."""
        here, found = slice(block.start, block.start + len(block)), self._all
        names = ("loss", "low", "high", "distance", "distance_error")
        return replace(
            found, law=None, far_law=None, **{name: getattr(found, name)[here] for name in names}
        )


def _release(model: Any) -> Release:
    if isinstance(model, str | Path):
        return Release.load(model)
    if isinstance(model, Pipeline):
        raise InvalidInput(
            "model: a Pipeline's other steps would not be in the report; transform the rows, and"
            " pass its last step."
        )
    release = model if isinstance(model, Release) else getattr(model, "release_", None)
    if not isinstance(release, Release):
        raise InvalidInput(
            f"model: {type(model).__name__} was not released by expost; pass a fitted expost"
            " estimator, its release_, or the path of a model.json."
        )
    return release


def _budget(
    how: Mechanism,
    rho: float,
    epsilon_gradient: float | None,
    epsilon_hessian: float | None,
    delta: float | None,
) -> PublishingBudget:
    if epsilon_gradient is None or epsilon_hessian is None:
        raise InvalidInput(
            "epsilon_gradient, epsilon_hessian: a data-dependent report spends both; give each a"
            " number > 0."
        )
    delta = how.delta if delta is None else delta
    if delta is None:
        raise InvalidInput(
            "delta=None: a data-dependent report adds Gaussian noise, and this model has no delta"
            " of its own; give one well below 1/n."
        )
    return PublishingBudget(
        epsilon_gradient=epsilon_gradient,
        epsilon_hessian=epsilon_hessian,
        delta=delta,
        failure_probability=rho,
    )


def _refuse_budget(**options: float | None) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(
                f"{name}={value!r}: a data-independent report spends nothing; leave it out, or take"
                " kind='data-dependent'."
            )
