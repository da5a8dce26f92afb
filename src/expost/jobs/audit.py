"""``expost audit``: attack a model of a table, and report the results.

Nothing is released and no released model is drawn again. The results are curator-only, and written
completely or not at all; finished reference models are stored for ``--resume``.
"""

import hashlib
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy.special import bdtrc

from expost import _checks
from expost.auditing.arrays import read_arrays
from expost.auditing.attacks import ATTACKS
from expost.auditing.audit import audit, audit_arrays
from expost.auditing.model_files import check_trust
from expost.auditing.result import Audit
from expost.auditing.targets import EstimatorTarget, target_of
from expost.engine import SILENT, Progress
from expost.errors import InvalidInput
from expost.files.atomic import write_bytes, write_json
from expost.files.model_format import ModelFormat, model_format
from expost.jobs.audit_files import EMPTY, FileReader, ReferenceTrainer
from expost.jobs.audit_rows import (
    EstimatorReader,
    ModelReader,
    Part,
    group_columns,
    is_number,
    named_estimator,
    propensities,
)
from expost.jobs.options import TABLE, flag_of, options_of
from expost.jobs.output import check_place, writing
from expost.jobs.pages import write_page
from expost.jobs.requests import AuditRequest, EpsilonRequest, command_line
from expost.jobs.runs import Run, running
from expost.jobs.streaming import inputs_of, task_of
from expost.jobs.table import model_encoding, noted
from expost.jobs.workspace import Workspace
from expost.release import Release
from expost.report import (
    Context,
    Origin,
    Page,
    Setting,
    page_of,
    render_html,
    render_markdown,
)
from expost.report.document import Code
from expost.report.drawing import plot
from expost.types import Audience

__all__ = ["Outcome", "phases", "run"]

# The number of phases that `run` reports, without the training of references.
_PHASES = 4
# The options that do not apply to a file of answers.
_OF_TABLES = (
    *("source", "target", "holdout", "population", "id_column", "groups", "drop", "missing"),
    *("references", "workers", "propensity"),
)
# The options of a saved model of another library.
_OF_FILES = ("trust_pickle", "trust_types", "classes")
# The formats that need trust.
_TRUSTED = {"trust_pickle": ModelFormat.PICKLE, "trust_types": ModelFormat.SKOPS}
_NO_REFERENCES = (
    "The saved model cannot be trained again, so there are no reference models, and attacks that"
    " compare with some were not made. Name the class it was trained by with --estimator to train"
    " references."
)
_OTHER_TRAINER = (
    "References were trained by {estimator}, which may differ from how the saved model was trained:"
    " per-row AUCs are those of {estimator}, and attacks may be weaker than with its own training."
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The audit, its page, and the files that hold them."""

    audit: Audit
    page: Page
    files: dict[str, Path]


def phases(job: AuditRequest) -> int:
    """Return the number of phases that ``run`` reports."""
    return _PHASES + (1 if _trains(job) else 0)


def _trains(job: AuditRequest) -> bool:
    """Return whether references are trained."""
    return job.arrays is None and job.references > 0 and not _lacks_trainer(job)


def _lacks_trainer(job: AuditRequest) -> bool:
    """Return whether the model is a file of which no other can be trained."""
    if job.model is None or job.estimator is not None:
        return False
    kind = model_format(job.model)
    return kind is not None and kind.is_foreign and not kind.keeps_training


def _is_foreign(job: AuditRequest) -> bool:
    """Return whether the model is a file of another library."""
    if job.model is None:
        return False
    kind = model_format(job.model)
    return kind is None or kind.is_foreign


def run(job: AuditRequest, progress: Progress = SILENT) -> Outcome:
    """Run the job; ``progress`` receives ``phases(job)`` phases."""
    with noted() as notes:
        check_job(job)
        model = None if job.model is None else _digest(job.model)
        with running(
            job.out,
            task_of("audit", job, {"model": model}),
            resume=job.resume,
            force=job.force,
            blocks=False,
            inputs=inputs_of(job),
        ) as run:
            return _attacked(job, run, notes, progress)


def _digest(path: Path) -> str:
    """Return the checksum of the model's file, which is not interpreted here."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None


def _attacked(
    job: AuditRequest, run: Run, notes: Callable[[], list[str]], progress: Progress
) -> Outcome:
    # A resumed run has the same seed.
    seed = int(run.salt, 16) % 2**32 if job.seed is None else job.seed
    progress.phase("reading the answers" if job.arrays is not None else "reading the tables")
    attacked = _attack_rows if job.arrays is None else _attack_answers
    result, notices = attacked(job, seed, run, progress)
    progress.phase("collecting the report")
    page = page_of(
        result,
        context=Context(
            settings=_settings(job, seed),
            notices=(*notices, *notes()),
            source=job.title,
            made=run.made,
        ),
        next_steps=_next(job, result),
    )
    progress.phase("writing the report")
    files = _write(run.workspace, result, page)
    return Outcome(audit=result, page=page, files=files)


# -- the options ---------------------------------------------------------------------------------


def check_job(job: AuditRequest) -> None:
    """Refuse options that are wrong for every table."""
    given = [name for name in ("model", "estimator", "arrays") if getattr(job, name) is not None]
    if len(given) != 1 and not (given == ["model", "estimator"] and _is_foreign(job)):
        raise InvalidInput("--model, --estimator, --arrays: give exactly one; it is attacked.")
    if _checks.integer("references", job.references, least=0) == 1:
        raise InvalidInput("references=1: must be 0, or at least 2: one with a row, one without.")
    _checks.probability("delta", job.delta)
    _checks.probability("confidence", job.confidence)
    for name in job.attacks or ():
        _checks.one_of("attack", name, tuple(ATTACKS))
    if job.seed is not None:
        _checks.integer("seed", job.seed, least=0)
    if job.workers is not None and job.workers != -1:
        _checks.integer("workers", job.workers, least=1)
    _check_sources(job)
    check_place(job.out, resume=job.resume, force=job.force)


def _check_sources(job: AuditRequest) -> None:
    """Refuse options that cannot be combined."""
    if job.arrays is not None:
        for name in _OF_TABLES:
            if job.is_given(name):
                flag = flag_of(name, options_of(AuditRequest)[name])
                raise InvalidInput(
                    f"{flag} cannot be combined with --arrays: its file holds all that is attacked."
                )
        return
    if job.source is None or job.target is None:
        raise InvalidInput(
            "DATA, --target: name the table of the model, and the column to predict."
        )
    _check_model(job)
    if job.model is not None and job.holdout is None:
        raise InvalidInput(
            "--holdout: an attack on an existing model needs rows that it was not trained on;"
            " name a table of such rows."
        )
    if job.coins and job.holdout is None:
        raise InvalidInput(
            "--coins needs --holdout: without it, expost chooses the members at random itself."
        )
    if job.propensity is not None and (job.holdout is None or job.coins):
        raise InvalidInput(
            "--propensity needs --holdout, and cannot be combined with --coins, which are a"
            " propensity of 0.5."
        )


def _check_model(job: AuditRequest) -> None:
    """Refuse options that do not apply to the model."""
    flags = options_of(AuditRequest)
    if job.model is not None and _is_foreign(job):
        kind = check_trust(job.model, trust_pickle=job.trust_pickle)
        for name, own in _TRUSTED.items():
            if job.is_given(name) and kind is not own:
                raise InvalidInput(
                    f"{flag_of(name, flags[name])}: is for {own.value}, and {job.model} is"
                    f" {kind.value}; leave it out."
                )
        if job.is_given("references") and job.references and _lacks_trainer(job):
            raise InvalidInput(
                f"--references: {job.model} cannot be trained again; name the class that trains"
                " references with --estimator, or leave --references out."
            )
        return
    refused = dict.fromkeys(_OF_FILES, "is for a saved model of another library")
    if job.model is not None:
        refused |= dict.fromkeys(("drop", "missing"), "the model has its own")
    for name, reason in refused.items():
        if job.is_given(name):
            flag = flag_of(name, flags[name])
            raise InvalidInput(f"{flag}: {reason}; leave {flag} out.")


# -- attacks -------------------------------------------------------------------------------------


def _attack_answers(
    job: AuditRequest, seed: int, run: Run, progress: Progress
) -> tuple[Audit, Sequence[str]]:
    """Attack answers that a model gave elsewhere; return the result and notices."""
    del run  # the attacks are fast: no step is stored
    assert job.arrays is not None
    content = read_arrays(job.arrays)
    if content.member is None:
        raise InvalidInput(
            f"{job.arrays}: does not state the members; add 'member', 1 or 0 for each row."
        )
    progress.phase("attacking")
    result = audit_arrays(
        content,
        attacks=job.attacks,
        coins=job.coins,
        delta=job.delta,
        confidence=job.confidence,
        random_state=seed,
    )
    return result, ()


def _attack_rows(
    job: AuditRequest, seed: int, run: Run, progress: Progress
) -> tuple[Audit, Sequence[str]]:
    """Attack a model, or an estimator that is trained here; return the result and notices."""
    reader = _reader(job)
    model, train, notices = _attacked_model(job, reader)
    members = reader.read(job.source)
    others = None if job.holdout is None else reader.read(job.holdout)
    outside = None if job.population is None else reader.read(job.population, keyed=False)
    if others is not None:
        _check_apart(members, others)
        if job.model is None:
            model = _fitted(model, members, seed)
    sources = [job.source] if job.holdout is None else [job.source, job.holdout]
    groups = group_columns(job.groups, sources, reader.missing)
    references = job.references if _trains(job) else 0
    progress.phase(f"training {references} reference models" if references else "attacking")
    keys = [*(members.ids or ()), *((others.ids or ()) if others is not None else ())]
    result = audit(
        model,
        members.X,
        members.labels,
        None if others is None else others.X,
        None if others is None else others.labels,
        train=train,
        population=None if outside is None else (outside.X, outside.labels),
        attacks=job.attacks,
        references=references,
        groups=groups,
        ids=keys or None,
        coins=job.coins,
        propensity=None
        if job.propensity is None
        else propensities(job.propensity, sources, reader.missing),
        delta=job.delta,
        confidence=job.confidence,
        random_state=seed,
        workers=job.workers,
        checkpoint=run.workspace.make_step("references") if references else None,
        progress=_Trained(progress, rows=_count(members) + _count(others)),
    )
    if isinstance(reader, FileReader) and job.model is not None:
        name = f"{job.model.name}, {reader.loaded.description}"
        result = replace(result, description=name)
    return result, [*notices, *_notices(members, others, outside)]


def _attacked_model(
    job: AuditRequest, reader: ModelReader | EstimatorReader | FileReader
) -> tuple[Any, Any, list[str]]:
    """Return what is attacked, the training function of its references, and notices."""
    if not isinstance(reader, FileReader):
        estimator = None if job.estimator is None else named_estimator(job.estimator)
        return (job.model if estimator is None else estimator), None, []
    if job.estimator is None:
        return reader.model, None, [] if reader.loaded.is_trainable else [_NO_REFERENCES]
    if reader.loaded.is_trainable:
        raise InvalidInput(
            f"--estimator: {job.model} holds an estimator, which is trained again for references;"
            " leave --estimator out."
        )
    if getattr(reader.model, "predicts_numbers", False):
        raise InvalidInput(
            f"--estimator: {job.model} predicts numbers; references are trained for"
            " classification only. Leave --estimator out."
        )
    trainer = ReferenceTrainer(estimator=named_estimator(job.estimator))
    return reader.model, trainer, [_OTHER_TRAINER.format(estimator=job.estimator)]


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
    """Progress of reference models, counted in rows: each is one pass over all attacked rows."""

    def __init__(self, progress: Progress, *, rows: int) -> None:
        self._progress, self._rows = progress, rows
        self._reported: int | None = None

    def __call__(self, finished: int, models: int) -> None:
        if self._reported is None:
            # Models from a checkpoint took no time.
            self._progress.rows((models - finished) * self._rows)
        else:
            self._progress.advance((finished - self._reported) * self._rows)
        self._reported = finished
        if finished == models:
            self._progress.phase("attacking")


def _weights(job: AuditRequest) -> str | None:
    """Return the column of propensities, if there is one."""
    return None if job.propensity is None or is_number(job.propensity) else job.propensity


def _reader(job: AuditRequest) -> ModelReader | EstimatorReader | FileReader:
    assert job.target is not None
    # The column of propensities is no feature.
    weights = _weights(job)
    drop = job.drop if weights is None else (*job.drop, weights)
    if job.model is None:
        return EstimatorReader.of(
            job.source,
            target=job.target,
            id_column=job.id_column,
            drop=drop,
            missing=job.missing,
        )
    if _is_foreign(job):
        return FileReader.of(
            job.model,
            job.source,
            target=job.target,
            id_column=job.id_column,
            drop=drop,
            missing=job.missing if job.is_given("missing") else None,
            classes=job.classes,
            trust_pickle=job.trust_pickle,
            trust_types=job.trust_types,
        )
    release = Release.load(job.model)
    remedy = "audit it in Python with expost.audit"
    encoding = model_encoding(release, job.model, job.target, remedy=remedy)
    return ModelReader(encoding=encoding, id_column=job.id_column)


def _fitted(estimator: Any, members: Part, seed: int) -> Any:
    """Train the target as references are trained; a failure is one sentence."""
    target = target_of(estimator, members.labels).trained(
        members.X, members.labels, seed, name="the target"
    )
    assert isinstance(target, EstimatorTarget)
    return target.estimator


def _check_apart(members: Part, others: Part) -> None:
    """Refuse non-members that are members."""
    if members.ids is not None and others.ids is not None:
        shared = len(set(members.ids) & set(others.ids))
        if shared:
            raise InvalidInput(
                f"--holdout: {shared} of its ids are in DATA too; leave those rows out, because the"
                " model was trained on them."
            )
    known, rows = Counter(_rows_of(members)), list(_rows_of(others))
    same = sum(row in known for row in rows)
    repeated = sum(count for count in known.values() if count > 1)
    # Rows of few values repeat themselves, in the table as between tables: others like them would
    # repeat those of DATA so often in one case of a thousand at most.
    share = repeated / known.total()
    by_chance = bdtrc(same - 1, len(rows), share) if same else 1.0
    mostly = 2 * same > len(rows) and share < 0.5 and by_chance < 1e-3
    if mostly or known == Counter(rows):
        raise InvalidInput(
            f"--holdout: {same} of its {len(rows)} rows are rows of DATA, on which the model was"
            " trained; name a table of other rows."
        )


def _alike(option: str, part: Part, members: Part) -> list[str]:
    """Return a notice on rows that are in both tables; some may be by chance."""
    known = set(_rows_of(members))
    same = sum(row in known for row in _rows_of(part))
    if not same:
        return []
    return [
        f"{option}: {same} of its {len(part.X)} rows are identical to rows of DATA; leave out"
        " those of the same persons."
    ]


def _rows_of(part: Part) -> Iterator[tuple[Any, Any]]:
    if hasattr(part.X, "iloc"):
        pandas = sys.modules["pandas"]
        hashes = pandas.util.hash_pandas_object(part.X, index=False)
        return zip(hashes.tolist(), part.labels.tolist(), strict=True)
    return ((x.tobytes(), y) for x, y in zip(part.X, part.labels.tolist(), strict=True))


# -- files ---------------------------------------------------------------------------------------


def _settings(job: AuditRequest, seed: int) -> tuple[Setting, ...]:
    """Return every constant that the result depends on, and its origin."""

    def setting(name: str, value: object, given: bool) -> Setting:
        origin = Origin.GIVEN if given else Origin.DEFAULT
        return Setting(name=name, value=str(value), origin=origin)

    attacked = {
        "model": None if job.model is None else job.model.name,
        "estimator": job.estimator,
        "arrays": None if job.arrays is None else job.arrays.name,
        "target": job.target,
        "holdout": None if job.holdout is None else Path(job.holdout).name,
        "population": None if job.population is None else Path(job.population).name,
    }
    settings = [setting(name, value, True) for name, value in attacked.items() if value is not None]
    settings.append(setting("members", *_chosen_by(job)))
    if job.trust_pickle:
        settings.append(setting("trust pickle", "yes", True))
    if job.trust_types:
        settings.append(setting("trusted types", ", ".join(job.trust_types), True))
    if job.classes is not None:
        settings.append(setting("classes", ", ".join(job.classes), True))
    if job.groups:
        settings.append(setting("groups", ", ".join(job.groups), True))
    if job.arrays is None:
        count = job.references if _trains(job) else 0
        settings.append(setting("references", count, job.is_given("references")))
    attacks = "all that are possible" if job.attacks is None else ", ".join(job.attacks)
    settings.append(setting("attacks", attacks, job.attacks is not None))
    for name in ("delta", "confidence"):
        settings.append(setting(name, f"{getattr(job, name):g}", job.is_given(name)))
    settings.append(
        setting("seed", seed if job.seed is not None else f"{seed}, drawn", job.seed is not None)
    )
    is_file = _is_foreign(job)
    if job.arrays is None and (job.model is None or is_file):
        missing = EMPTY if is_file and not job.is_given("missing") else job.missing
        text = ", ".join(map(repr, missing)) or "none"
        settings.append(setting("missing cells", text, job.is_given("missing")))
        if job.drop:
            settings.append(setting("dropped columns", ", ".join(map(repr, job.drop)), True))
    return tuple(settings)


def _chosen_by(job: AuditRequest) -> tuple[str, bool]:
    if job.arrays is None and job.holdout is None:
        return "half of the rows of the table, chosen here at random", False
    if job.coins:
        return "stated to be chosen by fair coins", True
    if job.propensity is not None:
        return f"stated to be chosen with probability {job.propensity}", True
    return "as given; not known to be chosen at random", True


def _next(job: AuditRequest, result: Audit) -> tuple[Code, ...]:
    """Return the next command: the choice of an ε, if there is a table."""
    loss = ("--loss", "squared") if result.fit is not None and result.fit.is_regression else ()
    choose = command_line(job, "epsilon", EpsilonRequest, (TABLE,), *loss, drop=_weights(job))
    return () if choose is None else (Code(text=shlex.join(choose), purpose="recommend an ε"),)


def _write(workspace: Workspace, result: Audit, page: Page) -> dict[str, Path]:
    """Write the curator's files: all of them, or none."""
    out, audience = workspace.out, page.audience
    pages = {
        "report": ("report", "html", render_html(page).encode()),
        "text": ("report", "md", render_markdown(page).encode()),
        "roc": ("roc", "png", _drawn(result, "roc")),
    }
    if "exposures" in page.documents[0].figures:
        pages["exposure"] = ("exposure", "png", _drawn(result, "exposures"))
    files: dict[str, Path] = {}
    with writing(out, "free some space, or name another folder"), workspace.all_or_none():
        written = result.to_json(out / "audit.json")
        assert isinstance(written, Path)
        files["audit"] = written
        files["rows"] = result.to_parquet(out / "audit.parquet")
        path = out / Audience.NEEDS_REVIEW.file_name("figures", "json")
        files["figures"] = write_json(path, Audience.NEEDS_REVIEW, _aggregate(result))
        for name, (stem, suffix, content) in pages.items():
            path = out / audience.file_name(stem, suffix)
            files[name] = write_bytes(path, audience, content)
        files["summary"] = write_page(out, page)
        workspace.remove_results(keep=files.values())
    return files


def _drawn(result: Audit, kind: str) -> bytes:
    """Return a figure of the audit as the bytes of a PNG file."""
    return plot(result, kind=kind).png()


def _aggregate(result: Audit) -> dict[str, Any]:
    """Return the figures without rows; curator-only if a group is small."""
    content = result.aggregate()
    if any(table.audience is Audience.CURATOR_ONLY for table in result.disparity):
        content |= {
            "audience": Audience.CURATOR_ONLY.value,
            "meaning": Audience.CURATOR_ONLY.meaning,
        }
    return content
