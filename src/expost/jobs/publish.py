"""``expost publish`` and ``expost lookup``: a report for publication, and its answers.

The report is of the one released model; θ is never drawn again. It is report.json if it may be
published, and report.CURATOR-ONLY.json if it needs a review. A report is drawn once: it is stored
in the run's folder before the ledger lists it, listed before it appears, and on the disk before
anything exact is computed. The comparison with the exact losses is a file, or with blocks a folder
of parts that appears atomically.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from expost.data import Encoding, Table
from expost.engine import SILENT, Engine, Progress
from expost.errors import ExpostError, InvalidInput
from expost.files.atomic import write_json
from expost.files.parts import PartStore
from expost.groups.columns import printable
from expost.jobs.ledger import (
    Lister,
    check_ledgers,
    ledger_in,
    ledgers_for,
    listed_for,
    model_notices,
)
from expost.jobs.output import CONTINUE, REPORTS, check_place, made_now, writing
from expost.jobs.pages import check_answer, named_source, store_answer, store_page
from expost.jobs.requests import LookupRequest, PublishRequest
from expost.jobs.runs import Run
from expost.jobs.streaming import TableWork, running_job, salted
from expost.jobs.table import model_encoding, noted, table_notices
from expost.jobs.workspace import Workspace
from expost.numbers import upper_text
from expost.preparing import Facts, objective_of
from expost.publishing.compare import (
    TABLE,
    Comparison,
    compare,
    compare_parts,
    read_comparison,
)
from expost.publishing.publish import ReleasedRows, ReportPlan
from expost.publishing.report import Answer, PublishedReport
from expost.release import Release
from expost.report import Context, document_of, page_of, render_text
from expost.rows import Rows
from expost.types import Audience

__all__ = ["PHASES", "Outcome", "answer_lines", "answers_json", "look_up"]
__all__ += ["outcome_lines", "run", "run_lookup"]

# How often `run` reports a phase.
PHASES = 3
_LONGEST_NOTICE = 400
_NOT_PUBLISHED = "nothing was published; free some space, or name another folder"
_NO_COMPARISON = "the report was written and is valid; free some space for the comparison"
# The figures of an answer in JSON.
_FIGURES = (
    *("label", "exposure", "certainty", "epsilon_gradient", "epsilon_hessian", "delta"),
    *("everything", "certainty_in_everything", "fails_with", "everything_fails_with"),
)
# The results of an earlier report that a new one replaces; those of a profile are kept.
_COMPARISONS = tuple(
    Audience.CURATOR_ONLY.file_name("comparison", suffix) for suffix in ("json", "parquet")
)
_PAGE = (("report", "html"), ("report", "md"), ("summary", "json"))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The report, its comparison with the exact losses if a table was given, and the files."""

    report: PublishedReport
    comparison: Comparison | None
    files: dict[str, Path]
    notices: tuple[str, ...]

    def scalars(self) -> dict[str, Any]:
        """Return the public figures: those of the model, and the failure probability of a bound."""
        report = self.report
        own = {"kind": report.kind, "audience": report.audience.value}
        return {**report.release.scalars(), **own, "fails_with": report.fails_with}

    def to_json(self) -> dict[str, Any]:
        """Return all figures, for the curator."""
        content: dict[str, Any] = {
            "report": {
                "kind": self.report.kind,
                "audience": self.report.audience.value,
                "read_from_data": list(self.report.read_from_data),
                "fails_with": self.report.fails_with,
            },
            "forecast": self.report.release.mechanism.forecast.fields(),
            "notices": [*self.report.statements, *self.notices],
        }
        if self.comparison is not None:
            content["comparison"] = self.comparison.summary()
        return content


def run(job: PublishRequest, progress: Progress = SILENT) -> Outcome:
    """Run the job; ``progress`` receives ``PHASES`` phases."""
    with noted() as notes:
        check_place(job.out, resume=job.resume, force=job.force, lost=job.lost)
        if job.kind == "data-dependent":
            check_ledgers(_ledgers(job), job.out)
        progress.phase("reading the table")
        release = Release.load(job.model)
        if job.kind != "data-dependent":
            # A named ledger that does not exist is an error, reported before any work.
            model_notices(job.model, job.ledger, job.source, None)
        plan = _plan(job, release)
        more: dict[str, Any] = {"model": release.to_json()["sha256"]}
        options: dict[str, Any] = {"lost": job.lost, "releases": (plan.file_name,)}
        if job.source is not None:
            with job.streaming.workers() as engine:
                opened = _opened(job, release, engine)
                _check_names(job, plan.file_name)
                with _Work.start(
                    "publish", job, opened, notes, progress, engine, more=more, plan=plan, **options
                ) as work:
                    return work.done()
        if job.kind == "data-dependent":
            raise InvalidInput(
                "DATA: a data-dependent report needs the table that the model was made from; name"
                " it, with its --target."
            )
        _check_names(job, plan.file_name)
        more["rows"] = None
        with running_job("publish", job, blocks=False, more=more, **options) as run_:
            report, files, notices = _Publication(job, plan, run_).report(None, progress)
            return Outcome(
                report=report,
                comparison=None,
                files=files | _store_page(job, report, run_),
                notices=(*notices, *notes()),
            )


def _ledgers(job: PublishRequest) -> tuple[Path, ...]:
    """Return the ledgers of the model's data set, from which a report elsewhere spends too."""
    ledger = job.ledger or ledger_in(job.model.parent)
    return ledgers_for(job.model.parent, ledger, job.source)


def _plan(job: PublishRequest, release: Release) -> ReportPlan:
    """Return the plan of the report; options that do not depend on the rows are checked."""
    return ReportPlan.of(
        release,
        kind=job.kind,
        failure_probability=job.failure_probability,
        epsilon_gradient=job.epsilon_gradient,
        epsilon_hessian=job.epsilon_hessian,
        delta=job.delta,
    )


def _opened(job: PublishRequest, release: Release, engine: Engine) -> tuple[Table, Encoding]:
    """Open the table with the model's encoding; no row is held."""
    remedy = "publish it in Python with expost.publish, or without a table"
    encoding = model_encoding(release, job.model, job.target, remedy=remedy)
    return encoding.open(job.source, id_column=job.id_column, engine=engine), encoding


@dataclass(frozen=True)
class _Publication:
    """The report of a run, drawn once and listed before it appears."""

    job: PublishRequest
    plan: ReportPlan
    run: Run

    def report(
        self, rows: "_Work | None", progress: Progress
    ) -> tuple[PublishedReport, dict[str, Path], tuple[str, ...]]:
        """Return the report, its files, and the notices of the ledger.

        Parameters
        ----------
        rows : _Work | None
            The rows of the model, if a table of them is given.
        """
        job, plan, remedy = self.job, self.plan, _NOT_PUBLISHED
        if rows is not None and rows.blocks:
            remedy = CONTINUE
        notices, digest = tuple[str, ...](), None if rows is None else salted(rows.facts)
        report = self._drawn()
        if report is None:
            # The rows are checked before anything of an earlier run is removed.
            report = plan.report(None if rows is None else rows.released)
            notices = _earlier(job.out / plan.file_name, plan.release)
            with writing(job.out, remedy):
                # Remove the results of an earlier report.
                page = (report.audience.file_name(*names) for names in _PAGE)
                self.run.workspace.remove((*_COMPARISONS, *page))
                self.run.keep("report", report.to_json())
        progress.phase("writing the report")
        files = {"report": job.out / plan.file_name}
        with writing(job.out, remedy):
            if digest is None or plan.tangent_mechanism is None:
                write_json(files["report"], report.audience, report.to_json())
                listed = model_notices(job.model, job.ledger, job.source, digest)
            else:
                # Again after a crash: the killed process may have updated one of two ledgers.
                lister = Lister(
                    release=report,
                    path=files["report"],
                    ledgers=_ledgers(job),
                    digest=digest,
                    run=self.run,
                    model=job.model,
                )
                write_json(files["report"], report.audience, report.to_json(), before=lister)
                listed, files["ledger"] = lister.notices, lister.ledgers[0]
        return report, files, (*notices, *listed)

    def _drawn(self) -> PublishedReport | None:
        """Return the report that this run has drawn, or None; no second one is drawn."""
        job, run = self.job, self.run
        report = run.kept("report", PublishedReport.from_json)
        spends = self.plan.tangent_mechanism is not None
        listed = listed_for(_ledgers(job) if spends else (), run.identity, "report")
        if listed and (report is None or report.to_json()["sha256"] not in listed):
            # The ledger decides, not the folder: its entries were released.
            (path, *_) = listed.values()
            raise InvalidInput(
                f"out={str(job.out)!r}: the report of this run is listed in {path}, but its file is"
                " gone; it is not drawn a second time: draw another one with --force, which"
                " spends its epsilon again."
            )
        if report is not None and not self.plan.matches(report):
            raise InvalidInput(
                f"out={str(job.out)!r}: the report that this run drew differs from the requested"
                " one; name another folder."
            )
        return report


def _check_names(job: PublishRequest, name: str) -> None:
    """Refuse a folder with a report for other readers, or with the page of another command."""
    for other in REPORTS:
        if other != name and (job.out / other).exists():
            raise InvalidInput(
                f"out={str(job.out)!r}: holds {other}, and this report is {name}, for other"
                " readers; name another folder."
            )
    page = Path(name).with_suffix(".html").name
    if name != "report.json" and (job.out / page).exists() and not (job.out / name).exists():
        raise InvalidInput(
            f"out={str(job.out)!r}: holds {page}, which this command did not write and would"
            " overwrite; name another folder."
        )


def _earlier(path: Path, release: Release) -> tuple[str, ...]:
    """Return what an overwritten report of the same model has spent."""
    if not path.exists():
        return ()
    try:
        before = PublishedReport.load(path)
    except ExpostError:
        return ()
    spent = before.budget
    if spent is None or not np.array_equal(before.release.theta, release.theta):
        return ()
    return (
        "The overwritten report has spent epsilon"
        f" {upper_text(spent.epsilon_gradient)} + {upper_text(spent.epsilon_hessian)} (delta"
        f" {upper_text(spent.delta)} each) on the same rows. This remains spent, in addition to"
        " what this report spends.",
    )


def _store_page(job: PublishRequest, report: PublishedReport, run: Run) -> dict[str, Path]:
    """Write the page of the report, for the same readers; it holds nothing of the table."""
    source = named_source(job.model, report.audience, usual="model.json", what="a released model")
    page = page_of(report, context=Context(source=source, made=run.made))
    remedy = "the report was written and is valid; free some space for its page"
    files = store_page(run.workspace, page, alone=False, remedy=remedy)
    return {"page": files["report"], "text": files["text"], "summary": files["summary"]}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Work(TableWork):
    """The steps of a run with a table; each continues where an earlier process stopped."""

    job: PublishRequest
    plan: ReportPlan

    def done(self) -> Outcome:
        """Run every step that is not finished."""
        job, progress = self.job, self.progress
        _ = self.facts
        publication = _Publication(job, self.plan, self.run)
        report, files, notices = publication.report(self, progress)
        files |= _store_page(job, report, self.run)
        progress.phase("comparing it with the exact losses")
        with writing(job.out, CONTINUE if self.blocks else _NO_COMPARISON):
            comparison, compared = self._compared(report)
        reading = table_notices(self.table, self.encoding, self.facts.unknown)
        return Outcome(
            report=report,
            comparison=comparison,
            files=files | compared,
            notices=(*notices, *reading, *self.notes()),
        )

    @cached_property
    def _known(self) -> tuple[Rows, Facts]:
        release = self.plan.release
        _, rows, facts = self.known_rows(release.ball, release.label_scale)
        return rows, facts

    @property
    def facts(self) -> Facts:
        """The facts about the rows from one pass."""
        return self._known[1]

    @cached_property
    def released(self) -> ReleasedRows:
        """The rows of the model; rows that cannot have made it are refused."""
        release = self.plan.release
        return ReleasedRows.of(release, objective_of(release, self._known[0]))

    def _compared(self, report: PublishedReport) -> tuple[Comparison, dict[str, Path]]:
        """Compare all bounds with the exact losses, and write the files."""
        out, table = self.job.out, self.job.out / TABLE
        if self.blocks:
            store = PartStore(folder=table)
            description = self.plan.release.mechanism.describe()
            if not store.is_finished:
                store = self.run.store("comparison")
                parts = compare_parts(report, self.released, store)
                self.run.check_rows(parts, self.table.rows)
                store.finish(parts, {"model": description})
                store = self.run.workspace.deliver(store, TABLE)
            comparison = read_comparison(report, description, store, self.engine)
        else:
            comparison = compare(report, self.released)
            table = comparison.to_parquet(out / "comparison.parquet")
        return comparison, {
            "comparison": comparison.to_json(out / "comparison.json"),
            "table": table,
        }


def outcome_lines(outcome: Outcome) -> list[str]:
    """Return the lines that ``expost publish`` prints."""
    report, files = outcome.report, outcome.files
    lines = [render_text(document_of(report, file=str(files["report"])))]
    if outcome.comparison is not None:
        lines += ["", render_text(document_of(outcome.comparison))]
    if outcome.notices:
        notices = (f"  {printable(notice, _LONGEST_NOTICE)}" for notice in outcome.notices)
        lines += ["", "Notices", *notices]
    lines += ["", "Files", *(f"  {name:<10} {path}" for name, path in files.items())]
    return [*lines, "", f"Report: {files['page'].resolve()}"]


# -- lookup --------------------------------------------------------------------------------------


def look_up(
    path: Path, values: Sequence[str], label: str | None
) -> tuple[PublishedReport, tuple[Answer, ...]]:
    """Return a report and its answers to a person with these COLUMN=VALUE strings."""
    report = PublishedReport.load(path)
    known = (*report.form.names, *report.form.unused)
    given: dict[str, str] = {}
    for text in values:
        name, value = _parted(text, known)
        if name in given:
            raise InvalidInput(f"--set {name}: was given twice; give each column once.")
        given[name] = value
    return report, report.lookup(given, label)


def run_lookup(
    request: LookupRequest,
) -> tuple[PublishedReport, tuple[Answer, ...], dict[str, Path]]:
    """Return the report, its answers, and the files of their page.

    The page is about one row, and only its owner can read it.
    """
    check_answer(request)
    report, answers = look_up(request.report, request.values, request.label)

    def store(workspace: Workspace) -> dict[str, Path]:
        shown = {"usual": "report.json", "what": "a published report"}
        source = named_source(request.report, report.audience, **shown)
        context = Context(source=source, made=made_now())
        page = page_of(report, answers=answers, context=context)
        return store_page(workspace, page, readers=Audience.CURATOR_ONLY)

    return report, answers, store_answer(request, [request.report], store)


def _parted(text: str, known: Sequence[str]) -> tuple[str, str]:
    """Return COLUMN and VALUE; the name of a column may contain '='."""
    own = [name for name in known if text.startswith(f"{name}=")]
    if own:
        name = max(own, key=len)
        return name, text[len(name) + 1 :]
    name, sign, value = text.partition("=")
    if not sign:
        raise InvalidInput(f"--set {text!r}: must be COLUMN=VALUE, as --set age=39.")
    return name.strip(), value


def answer_lines(report: PublishedReport, answers: Sequence[Answer]) -> list[str]:
    """Return the lines that ``expost lookup`` prints."""
    return [render_text(document_of(report, answers=answers))]


def answers_json(report: PublishedReport, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the answers as JSON."""
    return {
        "kind": report.kind,
        "audience": report.audience.value,
        "read_from_data": list(report.read_from_data),
        "holds_for_all_rows_at_once": report.exposure_bound.is_uniform,
        "answers": [
            {name: getattr(answer, name) for name in _FIGURES} | {"notes": list(answer.notes)}
            for answer in answers
        ],
    }
