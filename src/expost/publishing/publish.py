"""The verb ``publish``: a report of one released model that may leave the building."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from expost import _checks
from expost.errors import InvalidInput, ReleaseRefused, WrongRows
from expost.glm import two_classes_only
from expost.losses import Softmax
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation, Tangent
from expost.mechanisms.publishing import PublishingBudget, TangentMechanism
from expost.publishing.publishable import check_publishable
from expost.publishing.report import KINDS, PublishedReport
from expost.release import Release
from expost.rounding import for_persons

__all__ = ["Asked", "publish"]


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
    """A report that tells anybody how much ``model`` can give her away, at most (R&W Alg. 2).

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
    asked = Asked.of(
        model,
        kind=kind,
        failure_probability=failure_probability,
        epsilon_gradient=epsilon_gradient,
        epsilon_hessian=epsilon_hessian,
        delta=delta,
    )
    if asked.extra is not None and (X is None or y is None):
        raise InvalidInput("X, y: a data-dependent report needs the rows of the model; pass them.")
    tangent = None
    if X is not None or y is not None:
        tangent = _checked_rows(asked.release, X, y)
    return asked.report(tangent)


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """A report that can be made: whatever can be refused is, before any row is touched.

    ``extra``  how a data-dependent one releases a gradient and a Hessian beside the model.
    """

    release: Release
    failure_probability: float
    extra: TangentMechanism | None

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
    ) -> "Asked":
        """What :func:`publish` is asked for."""
        _checks.one_of("kind", kind, KINDS)
        rho = _checks.probability("failure_probability", failure_probability)
        release = _release(model)
        how = release.mechanism
        check_publishable(release)
        if kind != "data-dependent":
            _refuse_budget(
                epsilon_gradient=epsilon_gradient, epsilon_hessian=epsilon_hessian, delta=delta
            )
            return cls(release=release, failure_probability=rho, extra=None)
        budget = _budget(how, rho, epsilon_gradient, epsilon_hessian, delta)
        assert isinstance(how, ObjectivePerturbation)
        extra = TangentMechanism(budget=budget, how=how, theta=release.theta)
        extra.check()
        return cls(release=release, failure_probability=rho, extra=extra)

    def report(self, tangent: Tangent | None) -> PublishedReport:
        """Make it; a data-dependent one draws from the tangent of the model's rows, and spends."""
        if self.extra is None:
            return PublishedReport(
                release=self.release, failure_probability=self.failure_probability
            )
        assert tangent is not None
        return PublishedReport(
            release=self.release,
            failure_probability=self.failure_probability,
            budget=self.extra.budget,
            released=self.extra.release(tangent),
        )

    def made(self, report: PublishedReport) -> bool:
        """Whether this is a report that was asked for: of this model, for this budget."""
        return (
            report.release.to_json() == self.release.to_json()
            and report.failure_probability == self.failure_probability
            and report.budget == (None if self.extra is None else self.extra.budget)
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
    how: ObjectivePerturbation | OutputPerturbation,
    rho: float,
    epsilon_gradient: float | None,
    epsilon_hessian: float | None,
    delta: float | None,
) -> PublishingBudget:
    if isinstance(how, OutputPerturbation):
        raise ReleaseRefused(
            "kind='data-dependent': the model is one by output perturbation, which has only a"
            " data-independent report; take that, or fit with mechanism='objective'."
        )
    if isinstance(how.loss, Softmax):
        raise ReleaseRefused(
            f"kind='data-dependent': the model has {how.loss.classes} classes, and only models of"
            " two have a data-dependent report; take kind='data-independent'."
        )
    if how.rows_per_person > 1:
        raise ReleaseRefused(
            f"kind='data-dependent': the model is calibrated{for_persons(how.rows_per_person)}, and"
            " such a report is for persons with one row; take kind='data-independent'."
        )
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


def _checked_rows(release: Release, X: Any, y: Any) -> Tangent | None:
    """Refuse rows that cannot have made the model; the tangent that a report may release."""
    if X is None or y is None:
        raise InvalidInput("X, y: pass both, or neither.")
    names = getattr(X, "columns", None)
    if release.feature_names is not None and names is not None:
        found = tuple(map(str, np.asarray(names)))
        if found != release.feature_names:
            raise InvalidInput(
                "X: its columns are not those of the model, in their order; the model was made"
                f" with {', '.join(release.feature_names)}."
            )
    problem, how = release.objective(X, y), release.mechanism
    if problem.count != how.rows:
        raise WrongRows(
            f"X has {problem.count} rows: the model was made from {how.rows}; pass its training"
            " rows."
        )
    if isinstance(how, ObjectivePerturbation):
        tangent = Tangent.at(how, problem, release.theta)
        tangent.check_rows()
        return tangent
    problem = two_classes_only(problem)
    base = release.minimiser(problem)
    how.check_rows(release.theta, base.theta, base.gradient_bound / how.regularization)
    return None
