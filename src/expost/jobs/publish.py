"""``expost publish`` and ``expost lookup``: a report that may be published, and its answers.

The report is of the one model that was released; θ is never drawn again. A report is drawn once: it
is kept in the run's own folder before the ledger lists it, listed before it has its place, and on
the disk before anything exact is computed. The comparison with the exact losses is a
file, or of rows in blocks a folder of parts that appears whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from expost.data import Encoding, Table
from expost.engine import SILENT, Progress
from expost.errors import ExpostError, InvalidInput
from expost.files.atomic import write_json
from expost.files.parts import PartStore
from expost.groups.columns import printable
from expost.jobs.ledger import Lister, check_ledgers, ledgers_for, listed_for, model_notices
from expost.jobs.output import CONTINUE, check_place, made_now, writing
from expost.jobs.pages import named_source, store_page
from expost.jobs.runs import Run
from expost.jobs.streaming import AS_USUAL, Streaming, TableWork, running_job, salted
from expost.jobs.table import model_encoding, noted, table_notices
from expost.jobs.workspace import Workspace
from expost.preparing import Facts, objective_of
from expost.publishing.compare import (
    TABLE,
    Comparison,
    compare,
    compare_parts,
    read_comparison,
)
from expost.publishing.publish import PublishRequest, ReleasedRows
from expost.publishing.report import Answer, PublishedReport
from expost.release import Release
from expost.report import collect
from expost.rounding import nats, percent_at_most, upper_text
from expost.rows import Rows
from expost.types import Audience

__all__ = ["PHASES", "Outcome", "PublishJob", "answer_lines", "answers_json", "look_up"]
__all__ += ["outcome_lines", "run", "store_answers"]

# How often `run` reports a phase.
PHASES = 3
_LONGEST_NOTICE = 400
_NOT_PUBLISHED = "nothing was published; free some space, or name another folder"
_NO_COMPARISON = "report.json is there, and holds; free some space for the comparison"
# The figures of an answer that a program gets, by their names.
_FIGURES = (
    *("label", "exposure", "belief", "epsilon_gradient", "epsilon_hessian", "delta"),
    *("everything", "belief_in_everything", "fails_with", "everything_fails_with"),
)
REPORT = "report.json"
# The results of an earlier report that a new one replaces; those of a profile stay.
_OF_A_REPORT = (
    *(Audience.FAIL.file_name("comparison", suffix) for suffix in ("json", "parquet")),
    *("report.html", "report.md", "summary.json"),
)


@dataclass(frozen=True, kw_only=True)
class PublishJob:
    """A released model, and what its report may spend; the table of its rows where it is needed.

    ``ledger`` lists what the report spends; None: the one in the folder of the model.
    """

    model: Path
    out: Path
    source: Any = None
    target: str | None = None
    id_column: str | None = None
    kind: str = "data-independent"
    epsilon_gradient: float | None = None
    epsilon_hessian: float | None = None
    delta: float | None = None
    failure_probability: float = 1e-6
    ledger: Path | None = None
    force: bool = False
    streaming: Streaming = AS_USUAL

    lost = " (a report.json in it is then lost, but what it spent is not)"

    @property
    def ledgers(self) -> tuple[Path, ...]:
        """Those of the data set, which the model's is: a report elsewhere spends of it too."""
        return ledgers_for(self.model.parent, self.ledger)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it."""

    report: PublishedReport
    comparison: Comparison | None
    files: dict[str, Path]
    notices: tuple[str, ...]


def run(job: PublishJob, progress: Progress = SILENT) -> Outcome:
    """Do the job; ``progress`` is told of ``PHASES`` phases."""
    with noted() as notes:
        check_place(job.out, resume=job.streaming.resume, force=job.force, lost=job.lost)
        if job.kind == "data-dependent":
            check_ledgers(job.ledgers, job.out)
        progress.phase("reading the table")
        release = Release.load(job.model)
        if job.kind != "data-dependent":
            # A ledger that is named and not there is a mistake, to be reported before any work.
            model_notices(job.model, job.ledger, None)
        request, opened = _request(job, release), _opened(job, release)
        more: dict[str, Any] = {"model": release.to_json()["sha256"]}
        options: dict[str, Any] = {"lost": job.lost, "releases": (REPORT,)}
        if opened is not None:
            with _Work.begun(
                "publish", job, opened, notes, progress, more=more, request=request, **options
            ) as work:
                return work.done()
        more["rows"] = None
        with running_job("publish", job, blocks=False, more=more, **options) as begun:
            report, files, notices = _Publication(job, request, begun).report(None, progress)
            return Outcome(
                report=report,
                comparison=None,
                files=files | _store_page(job, report, begun),
                notices=(*notices, *notes()),
            )


def _request(job: PublishJob, release: Release) -> PublishRequest:
    """Return the request for the report; what does not depend on the rows is checked."""
    return PublishRequest.of(
        release,
        kind=job.kind,
        failure_probability=job.failure_probability,
        epsilon_gradient=job.epsilon_gradient,
        epsilon_hessian=job.epsilon_hessian,
        delta=job.delta,
    )


def _opened(job: PublishJob, release: Release) -> tuple[Table, Encoding] | None:
    """The table as the model reads it, where one is given; no row is held."""
    if job.source is None:
        if job.kind == "data-dependent":
            raise InvalidInput(
                "DATA: a data-dependent report needs the table that the model was made from; name"
                " it, with its --target."
            )
        return None
    remedy = "publish it in Python with expost.publish, or without a table"
    encoding = model_encoding(release, job.model, job.target, remedy=remedy)
    return encoding.open(job.source, id_column=job.id_column), encoding


@dataclass(frozen=True)
class _Publication:
    """The report of a run, drawn once and listed before it has its place."""

    job: PublishJob
    request: PublishRequest
    run: Run

    def report(
        self, rows: "_Work | None", progress: Progress
    ) -> tuple[PublishedReport, dict[str, Path], tuple[str, ...]]:
        """Return the report, its files, and what the ledger says now.

        ``rows``  the rows of the model, if a table of them is given.
        """
        job, request, remedy = self.job, self.request, _NOT_PUBLISHED
        if rows is not None and rows.blocks:
            remedy = CONTINUE
        notices, digest = tuple[str, ...](), None if rows is None else salted(rows.facts)
        report = self._drawn()
        if report is None:
            # The rows are found to be the right ones before anything of an earlier run is removed.
            report = request.report(None if rows is None else rows.released)
            notices = _earlier(job, request.release)
            with writing(job.out, remedy):
                # What belongs to an earlier report goes.
                self.run.workspace.remove(_OF_A_REPORT)
                self.run.keep("report", report.to_json())
        progress.phase("writing the report")
        files = {"report": job.out / REPORT}
        with writing(job.out, remedy):
            if digest is None or request.tangent_mechanism is None:
                write_json(files["report"], report.audience, report.to_json())
                listed = model_notices(job.model, job.ledger, digest)
            else:
                # Again after a crash: the process that was killed may have reached one of two.
                lister = Lister(
                    release=report,
                    path=job.out / REPORT,
                    ledgers=job.ledgers,
                    digest=digest,
                    run=self.run,
                    model=job.model,
                )
                write_json(files["report"], report.audience, report.to_json(), before=lister)
                listed, files["ledger"] = lister.notices, lister.ledgers[0]
        return report, files, (*notices, *listed)

    def _drawn(self) -> PublishedReport | None:
        """Return the report that this run has drawn, if it has; no second one is drawn."""
        job, run = self.job, self.run
        report = run.kept("report", PublishedReport.from_json)
        listed = listed_for(job.ledgers, run.identity, "report")
        if listed and (report is None or report.to_json()["sha256"] not in listed):
            # The ledger is believed, not the folder: what it lists was released.
            (path, *_) = listed.values()
            raise InvalidInput(
                f"out={str(job.out)!r}: this run has drawn a report, which {path} lists and which"
                " is gone; it is not drawn a second time: draw another one with --force, which"
                " spends its epsilon again."
            )
        if report is not None and not self.request.matches(report):
            raise InvalidInput(
                f"out={str(job.out)!r}: the report that this run drew is not the one that is asked"
                " for; name another folder."
            )
        return report


def _earlier(job: PublishJob, release: Release) -> tuple[str, ...]:
    """What a report of the same model that is written over has spent."""
    path = job.out / REPORT
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
        "The report.json that was written over had spent epsilon"
        f" {upper_text(spent.epsilon_gradient)} + {upper_text(spent.epsilon_hessian)} (delta"
        f" {upper_text(spent.delta)} each) of"
        " the same rows: that stays spent, and counts beside what this one spends.",
    )


def _store_page(job: PublishJob, report: PublishedReport, run: Run) -> dict[str, Path]:
    """A page about report.json, for everybody who may have that: nothing of the table is on it."""
    source = named_source(job.model, report.audience, usual="model.json", what="a released model")
    summary = collect(report, source=source, made=run.made)
    remedy = "report.json is there, and holds; free some space for its page"
    files = store_page(run.workspace, summary, alone=False, remedy=remedy)
    return {"page": files["report"], "text": files["text"], "summary": files["summary"]}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Work(TableWork):
    """The steps of a run with a table; each finds what an earlier process finished of it."""

    job: PublishJob
    request: PublishRequest

    def done(self) -> Outcome:
        """Take every step that has not been taken."""
        job, progress = self.job, self.progress
        _ = self.facts
        publication = _Publication(job, self.request, self.run)
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
        release = self.request.release
        _, rows, facts = self.known_rows(release.ball, release.label_scale)
        return rows, facts

    @property
    def facts(self) -> Facts:
        """What one pass found out about the rows."""
        return self._known[1]

    @cached_property
    def released(self) -> ReleasedRows:
        """The rows of the model; rows that cannot have made it are refused."""
        release = self.request.release
        return ReleasedRows.of(release, objective_of(release, self._known[0]))

    def _compared(self, report: PublishedReport) -> tuple[Comparison, dict[str, Path]]:
        """Compare all bounds with the exact losses, and write the files."""
        out, table = self.job.out, self.job.out / TABLE
        if self.blocks:
            store = PartStore(folder=table)
            description = self.request.release.mechanism.describe()
            if not store.is_finished:
                store = self.run.store("comparison")
                parts = compare_parts(report, self.released, store)
                self.run.check_rows(parts, self.table.rows)
                store.finish(parts, {"model": description})
                store = self.run.workspace.place(store, TABLE)
            comparison = read_comparison(report, description, store, self.engine)
        else:
            comparison = compare(report, self.released)
            table = comparison.to_parquet(out / "comparison.parquet")
        return comparison, {
            "comparison": comparison.to_json(out / "comparison.json"),
            "table": table,
        }


def outcome_lines(outcome: Outcome) -> list[str]:
    """What a curator reads at the end of a run."""
    lines = outcome.report.lines()
    if outcome.comparison is not None:
        lines += ["", *outcome.comparison.lines()]
    notices = [*outcome.report.statements[1:], *outcome.notices]
    lines += ["", "Notices", *(f"  {printable(notice, _LONGEST_NOTICE)}" for notice in notices)]
    lines += ["", "Files", *(f"  {name:<10} {path}" for name, path in outcome.files.items())]
    asked = " ".join(f"--set {_quoted(name)}=…" for name in outcome.report.form.names[:3])
    more = " …" if len(outcome.report.form.names) > 3 else ""
    return [
        *lines,
        "",
        "Next: anybody who has report.json asks about her own row",
        f"  expost lookup {outcome.files['report']} {asked}{more}",
        "",
        f"Report: {outcome.files['page'].resolve()}",
    ]


def _quoted(name: str) -> str:
    return f"'{name}'" if any(character in name for character in " '\"$`\\&|;<>()*?") else name


# -- lookup --------------------------------------------------------------------------------------


def look_up(
    path: Path, values: Sequence[str], label: str | None
) -> tuple[PublishedReport, tuple[Answer, ...]]:
    """Answer a person who gives COLUMN=VALUE for each column."""
    report = PublishedReport.load(path)
    known = (*report.form.names, *report.form.unused)
    given: dict[str, str] = {}
    for text in values:
        name, value = _parted(text, known)
        if name in given:
            raise InvalidInput(f"--set {name}: was given twice; give each column once.")
        given[name] = value
    return report, report.lookup(given, label)


def store_answers(
    report: PublishedReport, answers: Sequence[Answer], path: Path, workspace: Workspace
) -> dict[str, Path]:
    """Write a page for the person who asked; it is about one row, and for its owner alone."""
    source = named_source(path, report.audience, usual="report.json", what="a published report")
    summary = collect(report, answers=answers, source=source, made=made_now())
    return store_page(workspace, summary, readers=Audience.FAIL)


def _parted(text: str, known: Sequence[str]) -> tuple[str, str]:
    """COLUMN and VALUE; a column's name may hold '=' itself."""
    own = [name for name in known if text.startswith(f"{name}=")]
    if own:
        name = max(own, key=len)
        return name, text[len(name) + 1 :]
    name, sign, value = text.partition("=")
    if not sign:
        raise InvalidInput(f"--set {text!r}: must be COLUMN=VALUE, as --set age=39.")
    return name.strip(), value


def answer_lines(report: PublishedReport, answers: Sequence[Answer]) -> list[str]:
    """An answer in plain words."""
    lines: list[str] = []
    for answer in answers:
        lines += [*_answer_lines(report, answer), ""]
    if len(answers) > 1:
        lines += ["One of these is yours; the larger one holds whichever it is.", ""]
    if not report.exposure_bound.is_uniform:
        lines += [
            "This is about a row that was fixed before the model's noise was drawn, as yours was;",
            "it says nothing of rows that are made up or picked after looking at the model.",
        ]
    else:
        lines += ["This holds for all rows at once, also made-up ones."]
    return [*lines, *(f"Note: {printable(note, _LONGEST_NOTICE)}" for note in answers[0].notes)]


def _answer_lines(report: PublishedReport, answer: Answer) -> list[str]:
    label = "" if report.release.classes is None else f", if your label is {answer.label!r}"
    lines = [
        f"What this model can give away about you, at most{label}",
        f"  exposure  {nats(upper_text(answer.exposure, 3))}, whether or not you are in the data",
        "  belief    whoever had no idea whether your row is in the data (50 %) is at most"
        f" {percent_at_most(answer.belief)} sure of it,",
        "            in or out, after seeing the model",
    ]
    if report.budget is not None:
        costs = upper_text(answer.epsilon_gradient, 3), upper_text(answer.epsilon_hessian, 3)
        sure = percent_at_most(answer.belief_in_everything)
        lines += [
            f"  extra     the report's own gradient costs you epsilon {costs[0]}, its Hessian"
            f" {costs[1]} (delta {upper_text(answer.delta)} each);",
            f"            after seeing these as well, at most {sure} sure",
        ]
    else:
        lines.append("  extra     nothing: the report is made from the model alone")
    wrong = f"  wrong     with probability at most {upper_text(answer.fails_with, 3)}"
    if report.budget is not None:
        wrong += f" ({upper_text(answer.everything_fails_with, 3)} with the extra)"
    return [*lines, wrong]


def answers_json(report: PublishedReport, answers: Sequence[Answer]) -> dict[str, Any]:
    """The same for a program."""
    return {
        "kind": report.kind,
        "holds_for_all_rows_at_once": report.exposure_bound.is_uniform,
        "answers": [
            {name: getattr(answer, name) for name in _FIGURES} | {"notes": list(answer.notes)}
            for answer in answers
        ],
    }
