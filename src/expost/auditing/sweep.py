"""Audits of the same rows over ε: what attacks reach and what the guarantee allows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from expost import _checks
from expost.auditing.audit import audit
from expost.auditing.result import WARNING, Audit, Correlation
from expost.auditing.roc import Interval, figures
from expost.auditing.training import seed_number, without_warnings
from expost.errors import InvalidInput
from expost.results import Displayed
from expost.types import Audience

__all__ = ["DEFAULT_EPSILONS", "AuditSweep", "audit_sweep"]

DEFAULT_EPSILONS = (0.1, 1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class AuditSweep(Displayed):
    """One audit for each ε, in rising order; see :func:`audit_sweep`.

    Parameters
    ----------
    epsilons : tuple[float, ...]
        The values of ε, rising.
    audits : tuple[Audit, ...]
        The audit at each of them.
    """

    epsilons: tuple[float, ...]
    audits: tuple[Audit, ...]

    @property
    def audience(self) -> Audience:
        """Needs review: aggregates only. The audits themselves are curator-only."""
        return Audience.NEEDS_REVIEW

    def __len__(self) -> int:
        return len(self.audits)

    def __iter__(self) -> Iterator[tuple[float, Audit]]:
        return iter(zip(self.epsilons, self.audits, strict=True))

    @property
    def correlations(self) -> tuple[Correlation | None, ...]:
        """The correlation of expected exposure and per-row AUC, at each ε."""
        return tuple(_last(result) for result in self.audits)

    @property
    def beaten(self) -> tuple[tuple[float, str], ...]:
        """(ε, attack) of every advantage whose interval lies above the bound of the guarantee.

        Intervals are widened (Bonferroni), so that all of them hold simultaneously at the
        confidence.
        """
        tried = sum(len(result.figures) for result in self.audits)
        return tuple(
            (epsilon, name)
            for epsilon, result in self
            for name, attack_figures in result.figures.items()
            if result.advantage_bound is not None
            and attack_figures.advantage.low > result.advantage_bound
            and _widened(result, name, tried).low > result.advantage_bound
        )

    def to_json(self) -> dict[str, Any]:
        """Return every figure by ε, without those of single rows.

        Returns
        -------
        dict[str, Any]
            The values of ε, and the figures at each of them.
        """
        return {
            "format": "expost-audit-sweep/1",
            "audience": self.audience.value,
            "warning": WARNING,
            "beaten": [list(result) for result in self.beaten],
            "audits": [{"epsilon": epsilon, **result.aggregate()} for epsilon, result in self],
        }


def audit_sweep(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilons: Sequence[float] = DEFAULT_EPSILONS,
    random_state: int | None = None,
    **options: Any,
) -> AuditSweep:
    """Audit an unfitted expost estimator at each of ``epsilons``.

    The same rows are members at every ε, and references are trained on the same parts of the rows.

    Parameters
    ----------
    model : Any
        An unfitted expost estimator, or a Pipeline that ends in one.
    X, y : Any
        The pool of rows and their labels.
    epsilons : Sequence[float], default=DEFAULT_EPSILONS
        The values of ε.
    random_state : int, optional
        A seed; None: from the operating system.
    **options : Any
        As for :func:`expost.audit`.

    Returns
    -------
    AuditSweep

    Raises
    ------
    InvalidInput
        If the model has no parameter epsilon, or an option does not apply to several audits.
    """
    last = model[-1] if isinstance(model, Pipeline) else model
    if not hasattr(last, "get_params") or "epsilon" not in last.get_params():
        raise InvalidInput("model: must be an estimator with the parameter epsilon.")
    if "checkpoint" in options or "exposure" in options or "X_out" in options:
        raise InvalidInput("options: checkpoint, exposure and X_out apply to one audit only.")
    if isinstance(epsilons, str) or not hasattr(epsilons, "__iter__"):
        raise InvalidInput(f"epsilons={epsilons!r}: must be a list of numbers.")
    ordered = sorted({_checks.positive("epsilons", value) for value in epsilons})
    if not ordered:
        raise InvalidInput("epsilons: must name at least one.")
    seed = random_state
    if seed is None:
        seed = seed_number(np.random.SeedSequence())
    return AuditSweep(
        epsilons=tuple(ordered),
        audits=tuple(
            audit(_at(model, epsilon), X, y, random_state=seed, **options) for epsilon in ordered
        ),
    )


def _at(model: Any, epsilon: float) -> Any:
    with without_warnings():
        fresh = clone(model)
    (fresh[-1] if isinstance(fresh, Pipeline) else fresh).set_params(epsilon=epsilon)
    return fresh


def _widened(result: Audit, name: str, tried: int) -> Interval:
    """Return the attack's advantage with the Bonferroni interval of one of ``tried``."""
    confidence = 1 - (1 - result.confidence) / tried
    return figures(result.scores[name], result.truth, confidence=confidence).advantage


def _last(result: Audit) -> Correlation | None:
    """Return the last correlation, which does not depend on the one model; None if unknown."""
    return result.correlations[-1] if result.correlations else None
