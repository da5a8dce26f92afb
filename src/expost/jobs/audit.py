"""``expost audit``: attack a model of a table, and say what the attacks get out of it.

Nothing is released and no released model is drawn again. What is written is for the curator, whole
or not at all; references that are finished are kept for ``--resume``.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expost import _checks
from expost.attacks.arrays import read_arrays
from expost.attacks.catalogue import ATTACKS
from expost.attacks.targets import EstimatorTarget, target_of
from expost.audits.audit import audit, audit_arrays
from expost.audits.result import Audit
from expost.data import MISSING
from expost.engine import SILENT, Progress
from expost.errors import InvalidInput
from expost.files.atomic import write_bytes, write_json
from expost.jobs.audit_rows import (
    EstimatorReader,
    ModelReader,
    Part,
    Reader,
    group_columns,
    named_estimator,
)
from expost.jobs.output import check_place, writing
from expost.jobs.pages import write_summary
from expost.jobs.runs import Run, running
from expost.jobs.streaming import inputs_of, task_of
from expost.jobs.table import model_encoding, noted
from expost.jobs.workspace import Workspace
from expost.release import Release
from expost.report import (
    Choice,
    Origin,
    Summary,
    collect,
    render_html,
    render_markdown,
)
from expost.report.audit_displays import ExposureDisplay, RocDisplay
from expost.types import Audience

__all__ = ["AuditJob", "Outcome", "phases", "run"]

# How often `run` reports a phase, beside the one of references.
_PHASES = 4
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


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it: the result, its summary, and the files that hold them."""

    audit: Audit
    summary: Summary
    files: dict[str, Path]


def phases(job: AuditJob) -> int:
    """How often ``run`` reports a phase."""
    trains = job.arrays is None and asked(job, "references") > 0
    return _PHASES + (1 if trains else 0)


def run(job: AuditJob, progress: Progress = SILENT) -> Outcome:
    """Do the job; ``progress`` is told of ``phases(job)`` phases."""
    with noted() as notes:
        check_job(job)
        model = None if job.model is None else hashlib.sha256(_content(job.model)).hexdigest()
        with running(
            job.out,
            task_of("audit", job, {"model": model}),
            resume=job.resume,
            force=job.force,
            blocks=False,
            inputs=inputs_of(job),
        ) as begun:
            return _attacked(job, begun, notes, progress)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None


def _attacked(
    job: AuditJob, begun: Run, notes: Callable[[], list[str]], progress: Progress
) -> Outcome:
    # The run that is resumed has the same seed.
    seed = int(begun.salt, 16) % 2**32 if job.seed is None else job.seed
    progress.phase("reading the answers" if job.arrays is not None else "reading the tables")
    attacked = _attack_rows if job.arrays is None else _attack_answers
    result, notices = attacked(job, seed, begun, progress)
    progress.phase("collecting the report")
    summary = collect(
        result,
        choices=_choices(job, seed),
        notices=(*notices, *notes()),
        source=job.name,
        made=begun.made,
    )
    progress.phase("writing the report")
    files = _write(begun.workspace, result, summary)
    return Outcome(audit=result, summary=summary, files=files)


# -- the options ---------------------------------------------------------------------------------


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


# -- what is attacked ------------------------------------------------------------------------------


def _attack_answers(
    job: AuditJob, seed: int, begun: Run, progress: Progress
) -> tuple[Audit, Sequence[str]]:
    """Attack the answers of a model that is not asked again; return the result, and notices."""
    del begun  # nothing is worth keeping
    assert job.arrays is not None
    content = read_arrays(job.arrays)
    if content.member is None:
        raise InvalidInput(
            f"{job.arrays}: does not say who was a member; add 'member', 1 or 0 for each row."
        )
    progress.phase("attacking")
    result = audit_arrays(
        content,
        attacks=job.attacks,
        coins=job.coins,
        delta=asked(job, "delta"),
        confidence=asked(job, "confidence"),
        random_state=seed,
    )
    return result, ()


def _attack_rows(
    job: AuditJob, seed: int, begun: Run, progress: Progress
) -> tuple[Audit, Sequence[str]]:
    """Attack a model of rows, or what makes one; return the result, and notices."""
    model = job.model if job.estimator is None else named_estimator(job.estimator)
    reader = _reader(job)
    members = reader.read(job.source)
    others = None if job.holdout is None else reader.read(job.holdout)
    outside = None if job.population is None else reader.read(job.population, keyed=False)
    if others is not None:
        _check_apart(members, others)
        if job.estimator is not None:
            model = _fitted(model, members, seed)
    sources = [job.source] if job.holdout is None else [job.source, job.holdout]
    groups = group_columns(job.groups, sources, reader.missing)
    references = asked(job, "references")
    progress.phase(f"training {references} reference models" if references else "attacking")
    keys = [*(members.ids or ()), *((others.ids or ()) if others is not None else ())]
    result = audit(
        model,
        members.X,
        members.labels,
        None if others is None else others.X,
        None if others is None else others.labels,
        population=None if outside is None else (outside.X, outside.labels),
        attacks=job.attacks,
        references=references,
        groups=groups,
        ids=keys or None,
        coins=job.coins,
        delta=asked(job, "delta"),
        confidence=asked(job, "confidence"),
        random_state=seed,
        workers=job.workers,
        checkpoint=begun.workspace.make_step("references") if references else None,
        progress=_Trained(progress, rows=_count(members) + _count(others)),
    )
    return result, _notices(members, others, outside)


def _notices(members: Part, others: Part | None, outside: Part | None) -> Sequence[str]:
    parts = (members, others, outside)
    notices = [notice for part in parts if part is not None for notice in part.notices]
    if others is not None and others.ids is None:
        notices += _alike("--holdout", others, members)
    if outside is not None:
        notices += _alike("--population", outside, members)
    return [*dict.fromkeys(notices)]


def _count(part: Part | None) -> int:
    return 0 if part is None else len(part.labels)


class _Trained:
    """Tells of reference models as of rows: each goes once over all rows that are attacked."""

    def __init__(self, progress: Progress, *, rows: int) -> None:
        self._progress, self._rows = progress, rows
        self._told: int | None = None

    def __call__(self, finished: int, models: int) -> None:
        if self._told is None:
            # Those of a checkpoint took no time.
            self._progress.rows((models - finished) * self._rows)
        else:
            self._progress.advance((finished - self._told) * self._rows)
        self._told = finished
        if finished == models:
            self._progress.phase("attacking")


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
    remedy = "audit it in Python with expost.audit"
    encoding = model_encoding(release, job.model, job.target, remedy=remedy)
    return ModelReader(encoding=encoding, id_column=job.id_column)


def _fitted(estimator: Any, members: Part, seed: int) -> Any:
    """The target, as references are trained: a failure is one sentence."""
    target = target_of(estimator, members.labels).trained(
        members.X, members.labels, seed, name="the target"
    )
    assert isinstance(target, EstimatorTarget)
    return target.estimator


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


def _alike(option: str, part: Part, members: Part) -> list[str]:
    """How many rows stand in both tables; some may by chance, so that it is said and no more."""
    known = set(_rows_of(members))
    same = sum(row in known for row in _rows_of(part))
    if not same:
        return []
    return [
        f"{option}: {same} of its {len(part.X)} rows are in DATA too, cell for cell; leave out"
        " those that are of the same persons."
    ]


def _rows_of(part: Part) -> Iterator[tuple[bytes, Any]]:
    return ((x.tobytes(), y) for x, y in zip(part.X, part.labels.tolist(), strict=True))


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
        told.append(choice("references", asked(job, "references"), job.references is not None))
    attacks = "all that can be made" if job.attacks is None else ", ".join(job.attacks)
    told.append(choice("attacks", attacks, job.attacks is not None))
    for name in ("delta", "confidence"):
        told.append(choice(name, f"{asked(job, name):g}", getattr(job, name) is not None))
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


def _write(workspace: Workspace, result: Audit, summary: Summary) -> dict[str, Path]:
    """The curator's files: all of them whole, or none."""
    out, mark, part = workspace.out, summary.audience, summary.audit
    assert part is not None
    pages = {
        "report": ("report", "html", render_html(summary).encode()),
        "text": ("report", "md", render_markdown(summary).encode()),
        "roc": ("roc", "png", _drawn(RocDisplay.from_part(part))),
    }
    if part.scatter:
        pages["exposure"] = ("exposure", "png", _drawn(ExposureDisplay.from_part(part)))
    files: dict[str, Path] = {}
    with writing(out, "free some space, or name another folder"), workspace.all_or_none():
        written = result.to_json(out / "audit.json")
        assert isinstance(written, Path)
        files["audit"] = written
        files["rows"] = result.to_parquet(out / "audit.parquet")
        path = out / Audience.REVIEW.file_name("figures", "json")
        files["figures"] = write_json(path, Audience.REVIEW, _aggregate(result))
        for name, (stem, suffix, content) in pages.items():
            path = out / mark.file_name(stem, suffix)
            files[name] = write_bytes(path, mark, content)
        files["summary"] = write_summary(out, summary)
        workspace.remove_results(keep=files.values())
    return files


def _drawn(display: RocDisplay | ExposureDisplay) -> bytes:
    return display.png()


def _aggregate(result: Audit) -> dict[str, Any]:
    """The figures without rows; a group of a few rows is treated as those are."""
    content = result.aggregate()
    if any(table.audience is Audience.FAIL for table in result.disparity):
        content |= {"audience": Audience.FAIL.value, "meaning": Audience.FAIL.meaning}
    return content
