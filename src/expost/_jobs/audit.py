"""``expost audit``: attack a model of a table, and say what the attacks get out of it.

Nothing is released and no released model is drawn again. What is written is for the curator, whole
or not at all; references that are finished are kept where a checkpoint was asked for.
"""

import inspect
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from expost import _validate
from expost._audit import audit, audit_arrays
from expost._audit_result import Audit
from expost._files import write_bytes, write_json
from expost._jobs.audit_model import named_estimator
from expost._jobs.audit_rows import EstimatorReader, ModelReader, Part, Reader, group_columns
from expost._jobs.folder import check_folder, remove_stale, writing
from expost._jobs.table import MISSING, noted
from expost.attacks.arrays import read_arrays
from expost.attacks.catalogue import ATTACKS
from expost.attacks.targets import EstimatorTarget, target_of
from expost.data import Encoding
from expost.errors import InvalidInput
from expost.mechanisms import Release
from expost.report import (
    AuditSummary,
    Choice,
    Origin,
    collect_audit,
    render_audit_html,
    render_audit_markdown,
)
from expost.report.audit_displays import ExposureDisplay, RocDisplay
from expost.report.paper_displays import png
from expost.types import Audience

__all__ = ["AuditJob", "Outcome", "phases", "run"]

_DEFAULTS = {name: p.default for name, p in inspect.signature(audit).parameters.items()}
# How often `run` reports a phase, beside once a reference.
_PHASES = 4
# The options that a file of answers has settled.
_OF_TABLES = (
    *("source", "target", "holdout", "population", "id_column", "groups", "drop", "missing"),
    *("references", "workers", "checkpoint"),
)
# The file by which a checkpoint is known.
_SETTINGS = "settings.json"


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
    checkpoint: Path | None = None
    resume: bool = False
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it: the result, its summary, and the files that hold them."""

    audit: Audit
    summary: AuditSummary
    files: dict[str, Path]


def phases(job: AuditJob) -> int:
    """How often ``run`` reports a phase."""
    return _PHASES + (0 if job.arrays is not None else _asked(job, "references"))


def run(job: AuditJob, phase: Callable[[str], None] = lambda name: None) -> Outcome:
    """Do the job; ``phase`` is told what is being done."""
    with noted() as notes:
        _check(job)
        seed = secrets.randbits(32) if job.seed is None else job.seed
        phase("reading the answers" if job.arrays is not None else "reading the tables")
        found = _Answers.of(job, seed) if job.arrays is not None else _Rows.of(job, seed)
        phase("attacking")
        result = found.attacked(phase)
        phase("collecting the report")
        summary = collect_audit(
            result,
            choices=_choices(job, seed),
            notices=(*found.notices, *notes()),
            source=job.name,
            made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
        phase("writing the report")
        files = _write(job, result, summary)
    return Outcome(audit=result, summary=summary, files=files)


# -- what is refused before anything is read -------------------------------------------------------


def _asked(job: AuditJob, name: str) -> Any:
    given = getattr(job, name)
    return _DEFAULTS[name] if given is None else given


def _check(job: AuditJob) -> None:
    given = [name for name in ("model", "estimator", "arrays") if getattr(job, name) is not None]
    if len(given) != 1:
        raise InvalidInput(
            "--model, --estimator, --arrays: name exactly one; it says what is attacked."
        )
    if _validate.whole("references", _asked(job, "references"), least=0) == 1:
        raise InvalidInput("references=1: must be 0, or at least 2: one with a row, one without.")
    _validate.probability("delta", _asked(job, "delta"))
    _validate.probability("confidence", _asked(job, "confidence"))
    for name in job.attacks or ():
        _validate.one_of("attack", name, tuple(ATTACKS))
    if job.seed is not None:
        _validate.whole("seed", job.seed, least=0)
    if job.workers is not None and job.workers != -1:
        _validate.whole("workers", job.workers, least=1)
    _check_sources(job)
    _check_checkpoint(job)
    check_folder(job.out, force=job.force)


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


def _check_checkpoint(job: AuditJob) -> None:
    """A checkpoint is started once, and gone on with only where that was asked for."""
    if job.checkpoint is None:
        if job.resume:
            raise InvalidInput("--resume: name the --checkpoint to go on with.")
        return
    if job.seed is None:
        raise InvalidInput(
            "--checkpoint: needs --seed, so that the run that goes on with it is the same run."
        )
    if job.checkpoint.resolve() == job.out.resolve():
        raise InvalidInput("--checkpoint: must not be the folder of the results; name another.")
    begun = (job.checkpoint / _SETTINGS).exists()
    if begun and not job.resume:
        raise InvalidInput(
            f"checkpoint={str(job.checkpoint)!r}: holds references already; pass --resume to go on"
            " with them, or name another folder."
        )
    if job.resume and not begun:
        raise InvalidInput(
            f"checkpoint={str(job.checkpoint)!r}: holds nothing to go on with; leave --resume out."
        )


# -- what is attacked ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Answers:
    """Answers of a model that nobody asks again."""

    job: AuditJob
    seed: int
    content: Any
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: AuditJob, seed: int) -> "_Answers":
        assert job.arrays is not None
        content = read_arrays(job.arrays)
        if content.member is None:
            raise InvalidInput(
                f"{job.arrays}: does not say who was a member; add 'member', 1 or 0 for each row."
            )
        return cls(job=job, seed=seed, content=content)

    def attacked(self, phase: Callable[[str], None]) -> Audit:
        return audit_arrays(
            self.content,
            attacks=self.job.attacks,
            coins=self.job.coins,
            delta=_asked(self.job, "delta"),
            confidence=_asked(self.job, "confidence"),
            random_state=self.seed,
        )


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Rows, and the model or what makes one."""

    job: AuditJob
    seed: int
    model: Any
    members: Part
    others: Part | None
    population: Part | None
    groups: dict[str, Any]

    @classmethod
    def of(cls, job: AuditJob, seed: int) -> "_Rows":
        model = job.model if job.estimator is None else named_estimator(job.estimator)
        reader = _reader(job)
        members = reader.read(job.source)
        others = None if job.holdout is None else reader.read(job.holdout)
        population = None if job.population is None else reader.read(job.population, keyed=False)
        if others is not None:
            _check_apart(members, others)
            if job.estimator is not None:
                model = _fitted(model, members, seed)
        missing = _missing(reader)
        sources = [job.source] if job.holdout is None else [job.source, job.holdout]
        return cls(
            job=job,
            seed=seed,
            model=model,
            members=members,
            others=others,
            population=population,
            groups=group_columns(job.groups, sources, missing),
        )

    @property
    def notices(self) -> tuple[str, ...]:
        parts = (self.members, self.others, self.population)
        return tuple(
            dict.fromkeys(notice for part in parts if part is not None for notice in part.notices)
        )

    def attacked(self, phase: Callable[[str], None]) -> Audit:
        job, members, others, outside = self.job, self.members, self.others, self.population
        told = 0

        def progress(finished: int, models: int) -> None:
            nonlocal told
            while told < finished:
                told += 1
                phase(f"trained {told} of {models} reference models")

        keys = [*(members.ids or ()), *((others.ids or ()) if others is not None else ())]
        return audit(
            self.model,
            members.X,
            members.labels,
            None if others is None else others.X,
            None if others is None else others.labels,
            population=None if outside is None else (outside.X, outside.labels),
            attacks=job.attacks,
            references=_asked(job, "references"),
            groups=self.groups,
            ids=keys or None,
            coins=job.coins,
            delta=_asked(job, "delta"),
            confidence=_asked(job, "confidence"),
            random_state=self.seed,
            workers=job.workers,
            checkpoint=job.checkpoint,
            progress=progress,
        )


def _reader(job: AuditJob) -> Reader:
    assert job.target is not None
    if job.model is None:
        return EstimatorReader.of(
            job.source,
            target=job.target,
            id_column=job.id_column,
            drop=job.drop,
            missing=job.missing,
        )
    release = Release.load(job.model)
    if release.encoding is None:
        raise InvalidInput(
            f"{job.model}: was not made from a table; audit it in Python with expost.audit."
        )
    encoding = Encoding.from_json(release.encoding)
    if encoding.target.column != job.target:
        raise InvalidInput(
            f"target={job.target!r}: the model predicts {encoding.target.column!r}; name that."
        )
    return ModelReader(encoding=encoding, id_column=job.id_column)


def _fitted(estimator: Any, members: Part, seed: int) -> Any:
    """The target, as references are trained: a failure is one sentence."""
    target = target_of(estimator, members.labels).trained(
        members.X, members.labels, seed, name="the target"
    )
    assert isinstance(target, EstimatorTarget)
    return target.estimator


def _missing(reader: Reader) -> tuple[str, ...]:
    return reader.encoding.missing if isinstance(reader, ModelReader) else reader.missing


def _check_apart(members: Part, others: Part) -> None:
    """A row that the model was trained on is no other."""
    if members.ids is not None and others.ids is not None:
        shared = len(set(members.ids) & set(others.ids))
        if shared:
            raise InvalidInput(
                f"--holdout: {shared} of its ids are in DATA too; leave those rows out, for the"
                " model was trained on them."
            )
    same = (members.X.shape, members.labels.shape) == (others.X.shape, others.labels.shape)
    if same and np.array_equal(members.X, others.X):
        raise InvalidInput("--holdout: holds the rows of DATA; name a table of other rows.")


# -- what is told ----------------------------------------------------------------------------------


def _choices(job: AuditJob, seed: int) -> tuple[Choice, ...]:
    """Every constant that shaped the result, and where it came from."""

    def choice(name: str, value: object, given: bool) -> Choice:
        origin = Origin.GIVEN if given else Origin.DEFAULT
        return Choice(name=name, value=str(value), origin=origin)

    attacked = {
        "model": None if job.model is None else job.model.name,
        "estimator": job.estimator,
        "arrays": None if job.arrays is None else job.arrays.name,
        "target": job.target,
        "holdout": None if job.holdout is None else Path(job.holdout).name,
        "population": None if job.population is None else Path(job.population).name,
    }
    told = [choice(name, value, True) for name, value in attacked.items() if value is not None]
    told.append(choice("members", *_chosen_by(job)))
    if job.groups:
        told.append(choice("groups", ", ".join(job.groups), True))
    if job.arrays is None:
        told.append(choice("references", _asked(job, "references"), job.references is not None))
    attacks = "all that can be made" if job.attacks is None else ", ".join(job.attacks)
    told.append(choice("attacks", attacks, job.attacks is not None))
    for name in ("delta", "confidence"):
        told.append(choice(name, f"{_asked(job, name):g}", getattr(job, name) is not None))
    told.append(
        choice("seed", seed if job.seed is not None else f"{seed}, drawn", job.seed is not None)
    )
    if job.arrays is None and job.model is None:
        tokens = MISSING if job.missing is None else job.missing
        text = ", ".join(map(repr, tokens)) or "none"
        told.append(choice("missing cells", text, job.missing is not None))
        if job.drop:
            told.append(choice("dropped columns", ", ".join(map(repr, job.drop)), True))
    return tuple(told)


def _chosen_by(job: AuditJob) -> tuple[str, bool]:
    if job.arrays is None and job.holdout is None:
        return "a fair coin for each row of the table, tossed here", False
    if job.coins:
        return "said to be chosen by fair coins", True
    return "as given, by no known coins", True


def _write(job: AuditJob, result: Audit, summary: AuditSummary) -> dict[str, Path]:
    """The curator's files: all of them whole, or none."""
    out, mark = job.out, summary.audience
    pages = {
        "report": ("report", "html", render_audit_html(summary).encode()),
        "text": ("report", "md", render_audit_markdown(summary).encode()),
        "roc": ("roc", "png", _drawn(RocDisplay.from_summary(summary))),
    }
    if summary.scatter:
        pages["exposure"] = ("exposure", "png", _drawn(ExposureDisplay.from_summary(summary)))
    files: dict[str, Path] = {}
    with writing(out, "nothing is left of this run; free some space, or name another folder"):
        try:
            written = result.to_json(out / "audit.json")
            assert isinstance(written, Path)
            files["audit"] = written
            files["rows"] = result.to_parquet(out / "audit.parquet")
            path = out / Audience.REVIEW.file_name("figures", "json")
            files["figures"] = write_json(path, Audience.REVIEW, _aggregate(result))
            for name, (stem, suffix, content) in pages.items():
                path = out / mark.file_name(stem, suffix)
                files[name] = write_bytes(path, mark, content)
            remove_stale(out, keep=files.values())
        except BaseException:
            for path in files.values():
                path.unlink(missing_ok=True)
            raise
    return files


def _drawn(display: RocDisplay | ExposureDisplay) -> bytes:
    return png(display.plot().figure)


def _aggregate(result: Audit) -> dict[str, Any]:
    """The figures without rows; a group of a few rows is as good as those."""
    content = result.aggregate()
    if any(table.audience is Audience.FAIL for table in result.disparity):
        content |= {"audience": Audience.FAIL.value, "meaning": Audience.FAIL.meaning}
    return content
