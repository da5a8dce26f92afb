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
from expost.auditing.training import without_warnings
from expost.errors import InvalidInput
from expost.results import Displayed
from expost.types import Audience

__all__ = ["DEFAULT_EPSILONS", "AuditSweep", "audit_sweep"]

DEFAULT_EPSILONS = (0.1, 1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class AuditSweep(Displayed):
    """One audit for each ε, in rising order; see :func:`audit_sweep`."""

    epsilons: tuple[float, ...]
    audits: tuple[Audit, ...]

    @property
    def audience(self) -> Audience:
        """The table is made of aggregates; the audits in it are for the curator."""
        return Audience.NEEDS_REVIEW

    def __len__(self) -> int:
        return len(self.audits)

    def __iter__(self) -> Iterator[tuple[float, Audit]]:
        return iter(zip(self.epsilons, self.audits, strict=True))

    @property
    def correlations(self) -> tuple[Correlation | None, ...]:
        """Of expected exposure and per-row AUC, at each ε."""
        return tuple(_last(one) for one in self.audits)

    @property
    def beaten(self) -> tuple[tuple[float, str], ...]:
        """(ε, attack) of every advantage whose interval lies above what the guarantee allows.

        Of so many intervals some would by chance: they are taken so wide (Bonferroni) that all
        of them hold together at the confidence that was asked for.
        """
        tried = sum(len(one.figures) for one in self.audits)
        return tuple(
            (epsilon, name)
            for epsilon, one in self
            for name, found in one.figures.items()
            if one.advantage_bound is not None
            and found.advantage.low > one.advantage_bound
            and _widened(one, name, tried).low > one.advantage_bound
        )

    def to_json(self) -> dict[str, Any]:
        """Every figure by ε, without a row's."""
        return {
            "format": "expost-audit-sweep/1",
            "audience": self.audience.value,
            "warning": WARNING,
            "beaten": [list(one) for one in self.beaten],
            "audits": [{"epsilon": epsilon, **one.aggregate()} for epsilon, one in self],
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
    """Audit ``model``, an expost estimator that is not fitted, at each of ``epsilons``.

    The same coins decide at every ε who is a member, and the same parts of the rows train its
    references. ``options`` are those of :func:`expost.audit`.
    """
    last = model[-1] if isinstance(model, Pipeline) else model
    if not hasattr(last, "get_params") or "epsilon" not in last.get_params():
        raise InvalidInput("model: must be an estimator with the parameter epsilon.")
    if "checkpoint" in options or "exposure" in options or "X_out" in options:
        raise InvalidInput("options: checkpoint, exposure and X_out are those of one audit.")
    if isinstance(epsilons, str) or not hasattr(epsilons, "__iter__"):
        raise InvalidInput(f"epsilons={epsilons!r}: must be a list of numbers.")
    asked = sorted({_checks.positive("epsilons", one) for one in epsilons})
    if not asked:
        raise InvalidInput("epsilons: must name at least one.")
    seed = random_state
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    return AuditSweep(
        epsilons=tuple(asked),
        audits=tuple(
            audit(_at(model, epsilon), X, y, random_state=seed, **options) for epsilon in asked
        ),
    )


def _at(model: Any, epsilon: float) -> Any:
    with without_warnings():
        fresh = clone(model)
    (fresh[-1] if isinstance(fresh, Pipeline) else fresh).set_params(epsilon=epsilon)
    return fresh


def _widened(one: Audit, name: str, tried: int) -> Interval:
    """The attack's advantage with the interval of one of ``tried``."""
    confidence = 1 - (1 - one.confidence) / tried
    return figures(one.scores[name], one.truth, confidence=confidence).advantage


def _last(one: Audit) -> Correlation | None:
    """The correlation that is of no single model, where it is known."""
    return one.correlations[-1] if one.correlations else None
