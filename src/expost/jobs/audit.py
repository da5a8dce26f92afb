"""``expost audit``: attack a model of a table, and say what the attacks get out of it.

Nothing is released and no released model is drawn again. What is written is for the curator, whole
or not at all; references that are finished are kept for ``--resume``.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expost.attacks.arrays import read_arrays
from expost.attacks.targets import EstimatorTarget, target_of
from expost.audits.audit import audit, audit_arrays
from expost.audits.result import Audit
from expost.data import Encoding
from expost.engine import SILENT, Progress
from expost.errors import InvalidInput
from expost.files.atomic import write_bytes, write_json
from expost.jobs.audit_asked import AuditJob, asked, check_job
from expost.jobs.audit_model import named_estimator
from expost.jobs.audit_rows import EstimatorReader, ModelReader, Part, Reader, group_columns
from expost.jobs.output import writing
from expost.jobs.pages import write_summary
from expost.jobs.runs import Run, running
from expost.jobs.streaming import inputs_of, task_of
from expost.jobs.table import MISSING, noted
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
    found = _Answers.of(job, seed) if job.arrays is not None else _Rows.of(job, seed)
    result = found.attacked(begun, progress)
    progress.phase("collecting the report")
    summary = collect(
        result,
        choices=_choices(job, seed),
        notices=(*found.notices, *notes()),
        source=job.name,
        made=begun.made,
    )
    progress.phase("writing the report")
    files = _write(begun.workspace, result, summary)
    return Outcome(audit=result, summary=summary, files=files)


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

    def attacked(self, begun: Run, progress: Progress) -> Audit:
        progress.phase("attacking")
        return audit_arrays(
            self.content,
            attacks=self.job.attacks,
            coins=self.job.coins,
            delta=asked(self.job, "delta"),
            confidence=asked(self.job, "confidence"),
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
        told = [notice for part in parts if part is not None for notice in part.notices]
        if self.others is not None and self.others.ids is None:
            told += _alike("--holdout", self.others, self.members)
        if self.population is not None:
            told += _alike("--population", self.population, self.members)
        return tuple(dict.fromkeys(told))

    def attacked(self, begun: Run, progress: Progress) -> Audit:
        job, members, others, outside = self.job, self.members, self.others, self.population
        references = asked(job, "references")
        progress.phase(f"training {references} reference models" if references else "attacking")
        keys = [*(members.ids or ()), *((others.ids or ()) if others is not None else ())]
        return audit(
            self.model,
            members.X,
            members.labels,
            None if others is None else others.X,
            None if others is None else others.labels,
            population=None if outside is None else (outside.X, outside.labels),
            attacks=job.attacks,
            references=references,
            groups=self.groups,
            ids=keys or None,
            coins=job.coins,
            delta=asked(job, "delta"),
            confidence=asked(job, "confidence"),
            random_state=self.seed,
            workers=job.workers,
            checkpoint=begun.workspace.make_step("references") if references else None,
            progress=_Trained(progress, rows=_count(members) + _count(others)),
        )


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
    with writing(out, "free some space, or name another folder"):
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
            files["summary"] = write_summary(out, summary)
            workspace.remove_results(keep=files.values())
        except BaseException:
            workspace.remove([*workspace.written])
            raise
    return files


def _drawn(display: RocDisplay | ExposureDisplay) -> bytes:
    return display.png()


def _aggregate(result: Audit) -> dict[str, Any]:
    """The figures without rows; a group of a few rows is as good as those."""
    content = result.aggregate()
    if any(table.audience is Audience.FAIL for table in result.disparity):
        content |= {"audience": Audience.FAIL.value, "meaning": Audience.FAIL.meaning}
    return content
