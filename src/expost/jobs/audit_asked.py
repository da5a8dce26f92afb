"""What a person asks of an audit, and what is refused before anything is read."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expost import _checks
from expost.attacks.catalogue import ATTACKS
from expost.audits.audit import audit
from expost.errors import InvalidInput
from expost.jobs.output import check_place

__all__ = ["AuditJob", "asked", "check_job"]

_DEFAULTS = {name: p.default for name, p in inspect.signature(audit).parameters.items()}
# The options that a file of answers has settled.
_OF_TABLES = (
    *("source", "target", "holdout", "population", "id_column", "groups", "drop", "missing"),
    *("references", "workers"),
)


@dataclass(frozen=True, kw_only=True)
class AuditJob:
    """A model of a table and what is asked of the attacks; None where a default stands.

    One of ``model`` (a model.json), ``estimator`` (a class by its name, with parameters) and
    ``arrays`` (a file of answers that were computed elsewhere) is what is attacked.
    ``source``   the rows that it was trained on; of an estimator without ``holdout`` the pool, of
                 which coins take half.
    ``coins``    state that independent fair coins chose the members.
    """

    out: Path
    name: str
    source: Any = None
    target: str | None = None
    model: Path | None = None
    estimator: str | None = None
    arrays: Path | None = None
    holdout: Any = None
    population: Any = None
    id_column: str | None = None
    groups: tuple[str, ...] = ()
    drop: tuple[str, ...] | None = None
    missing: tuple[str, ...] | None = None
    references: int | None = None
    attacks: tuple[str, ...] | None = None
    delta: float | None = None
    confidence: float | None = None
    coins: bool = False
    seed: int | None = None
    workers: int | None = None
    resume: bool = False
    force: bool = False


def asked(job: AuditJob, name: str) -> Any:
    """An option as it was given, or the default of :func:`expost.audit`."""
    given = getattr(job, name)
    return _DEFAULTS[name] if given is None else given


def check_job(job: AuditJob) -> None:
    """Refuse what no table can make right."""
    given = [name for name in ("model", "estimator", "arrays") if getattr(job, name) is not None]
    if len(given) != 1:
        raise InvalidInput(
            "--model, --estimator, --arrays: name exactly one; it says what is attacked."
        )
    if _checks.whole("references", asked(job, "references"), least=0) == 1:
        raise InvalidInput("references=1: must be 0, or at least 2: one with a row, one without.")
    _checks.probability("delta", asked(job, "delta"))
    _checks.probability("confidence", asked(job, "confidence"))
    for name in job.attacks or ():
        _checks.one_of("attack", name, tuple(ATTACKS))
    if job.seed is not None:
        _checks.whole("seed", job.seed, least=0)
    if job.workers is not None and job.workers != -1:
        _checks.whole("workers", job.workers, least=1)
    _check_sources(job)
    check_place(job.out, resume=job.resume, force=job.force)


def _check_sources(job: AuditJob) -> None:
    """Which options go together."""
    if job.arrays is not None:
        for name in _OF_TABLES:
            if getattr(job, name) not in (None, ()):
                raise InvalidInput(
                    f"{_option(name)}: a file of --arrays holds all that is attacked; leave"
                    f" {_option(name)} out."
                )
        return
    if job.source is None or job.target is None:
        raise InvalidInput(
            "DATA, --target: name the table that the model is of, and the column to predict."
        )
    if job.model is not None:
        for name in ("drop", "missing"):
            if getattr(job, name) is not None:
                raise InvalidInput(f"--{name}: the model has its own; leave --{name} out.")
        if job.holdout is None:
            raise InvalidInput(
                "--holdout: a model that exists is attacked with rows that it was not trained on"
                " beside its own; name a table of such rows."
            )
    if job.coins and job.holdout is None:
        raise InvalidInput("--coins: are tossed here where there is no --holdout; leave it out.")


def _option(name: str) -> str:
    names = {"source": "DATA", "id_column": "--id", "groups": "--group"}
    return names.get(name, f"--{name}")
