"""The verb ``publish``: a report of one released model, to be published."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from expost import _checks
from expost.errors import InvalidInput, WrongRows
from expost.glm import Objective
from expost.mechanisms import Mechanism, RowLosses, Tangent
from expost.mechanisms.publishing import PublishingBudget, TangentMechanism
from expost.neighbouring.change import Change
from expost.profiles.verb import Target, find_target
from expost.publishing.report import KINDS, PublishedReport, check_publishable
from expost.release import Release
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = ["ReleasedRows", "ReportPlan", "publish"]


def publish(model: Any, X: Any = None, y: Any = None, **options: Any) -> PublishedReport:
    """Return a report that bounds the exposure of any row under ``model`` (R&W Alg. 2).

    Rows are arrays in memory; the options are documented at :func:`expost.publish`.
    """
    request = ReportPlan.of(model, **options)
    if X is None and y is None and request.tangent_mechanism is None:
        return request.report(None)
    if X is None or y is None:
        raise InvalidInput(
            "X, y: pass both, or neither."
            if request.tangent_mechanism is None
            else "X, y: a data-dependent report needs the rows of the model; pass them."
        )
    return request.report(ReleasedRows.of_arrays(request.target, X, y))


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportPlan:
    """A checked request for a report: every check that needs no rows has been made.

    Parameters
    ----------
    tangent_mechanism : TangentMechanism | None
        How a data-dependent report releases a gradient and a Hessian in addition to the model;
        None: it is data-independent.
    """

    target: Target
    failure_probability: float
    tangent_mechanism: TangentMechanism | None

    @property
    def release(self) -> Release:
        """The model of the report."""
        assert self.target.release is not None
        return self.target.release

    @property
    def file_name(self) -> str:
        """The name of its file, which states its audience."""
        return self._report().audience.file_name("report", "json")

    @classmethod
    def of(
        cls,
        model: Any,
        *,
        kind: str = "data-independent",
        failure_probability: float = 1e-6,
        epsilon_gradient: float | None = None,
        epsilon_hessian: float | None = None,
        delta: float | None = None,
    ) -> "ReportPlan":
        """Check the arguments of :func:`expost.publish`."""
        _checks.one_of("kind", kind, KINDS)
        rho = _checks.probability("failure_probability", failure_probability)
        target = _target(model)
        release, model_mechanism = target.release, target.mechanism
        assert release is not None
        check_publishable(release)
        if kind != "data-dependent":
            _refuse_budget(
                epsilon_gradient=epsilon_gradient, epsilon_hessian=epsilon_hessian, delta=delta
            )
            return cls(target=target, failure_probability=rho, tangent_mechanism=None)
        model_mechanism.check_report()
        budget = _budget(model_mechanism, rho, epsilon_gradient, epsilon_hessian, delta)
        mechanism = model_mechanism.tangent_mechanism(budget, release.theta)
        mechanism.check()
        return cls(target=target, failure_probability=rho, tangent_mechanism=mechanism)

    def report(self, rows: "ReleasedRows | None") -> PublishedReport:
        """Return the report; a data-dependent one draws noise and spends privacy budget.

        Parameters
        ----------
        rows : ReleasedRows | None
            The rows of the model, if available; a data-dependent report needs them.
        """
        mechanism, spent = self.tangent_mechanism, dict[str, Any]()
        if mechanism is not None:
            assert rows is not None
            assert rows.tangent is not None
            spent = {"budget": mechanism.budget, "released": mechanism.release(rows.tangent)}
        return self._report(**spent)

    def _report(self, **spent: Any) -> PublishedReport:
        return PublishedReport(
            release=self.release,
            failure_probability=self.failure_probability,
            steps=self.target.preprocessing.named_steps,
            **spent,
        )

    def matches(self, report: PublishedReport) -> bool:
        """Return whether a report is one that was requested: of this model, for this budget."""
        mechanism = self.tangent_mechanism
        return (
            report.release.to_json() == self.release.to_json()
            and report.steps == self.target.preprocessing.named_steps
            and report.failure_probability == self.failure_probability
            and report.budget == (None if mechanism is None else mechanism.budget)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedRows:
    """The training rows of a released model, in memory or read from a table, checked.

    Parameters
    ----------
    tangent : Tangent | None
        Of the objective at θ, under objective perturbation. It is computed once, for the report and
        for the losses.
    losses : callable
        Returns the losses of the rows of any block. Where they follow from the leave-one-out
        minimisers of rows in memory, all are computed with the first block.
    """

    release: Release
    objective: Objective
    tangent: Tangent | None
    losses: Callable[[RowBlock], FloatArray]

    @classmethod
    def of(cls, release: Release, objective: Objective) -> "ReleasedRows":
        """Check that ``objective`` has the training rows; refuse rows that cannot be."""
        mechanism, theta = release.mechanism, release.theta
        losses: Callable[[RowBlock], FloatArray]
        if not objective.rows.is_held:
            prepared = mechanism.prepare(objective, theta)
            tangent, losses = prepared.tangent, partial(_row_losses, prepared)
            tangent = None if tangent is None else replace(tangent, objective=objective)
            return cls(release=release, objective=objective, tangent=tangent, losses=losses)
        tangent = mechanism.check(objective, theta)
        if tangent is not None:
            losses = partial(_row_losses, tangent.detached().block_losses)
            return cls(release=release, objective=objective, tangent=tangent, losses=losses)

        @cache
        def all_losses() -> FloatArray:
            return mechanism.losses(objective, theta, Change.of(objective.held)).loss

        return cls(
            release=release,
            objective=objective,
            tangent=None,
            losses=lambda block: all_losses()[block.start : block.start + len(block)],
        )

    @classmethod
    def of_arrays(cls, model: Release | Target, X: Any, y: Any) -> "ReleasedRows":
        """Check rows as :func:`expost.profile` takes them, with their labels."""
        target = Target.of(model) if isinstance(model, Release) else model
        release, mechanism = target.release, target.mechanism
        assert release is not None
        objective = target.objective(X, y)
        if objective.count != mechanism.rows:
            raise WrongRows(
                f"X has {objective.count} rows: the model was made from {mechanism.rows}; pass its"
                " training rows."
            )
        return cls.of(release, objective)


def _row_losses(prepared: Callable[[RowBlock], RowLosses], block: RowBlock) -> FloatArray:
    """Return the losses of the rows of a block, without their intervals."""
    return prepared(block).loss


def _target(model: Any) -> Target:
    target = find_target(model, None)
    if target is None or target.release is None:
        raise InvalidInput(
            f"model: {type(model).__name__} was not released by expost; pass a fitted expost"
            " estimator, its release_, or the path of a model.json. Other models can be"
            " attacked: expost.audit."
        )
    return target


def _budget(
    mechanism: Mechanism,
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
    delta = mechanism.delta if delta is None else delta
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
                f"{name}={value!r}: a data-independent report spends nothing; leave it out, or use"
                " kind='data-dependent'."
            )
