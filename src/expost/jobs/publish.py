"""``expost publish`` and ``expost lookup``: a report that may leave the building, and its answers.

The report is of the one model that was released; θ is never drawn again. report.json is on the disk
before anything exact is computed beside it, and what it released beyond the model is in the ledger
before it is there to be seen.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from expost.engine.progress import SILENT, Progress
from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.groups.columns import printable
from expost.jobs import stream_publish
from expost.jobs.ledger import check_ledgers, model_notices
from expost.jobs.output import check_place, made_now, writing
from expost.jobs.pages import named_source, store_page
from expost.jobs.publish_asked import (
    REPORT,
    Outcome,
    PublishJob,
    asked_of,
    drawn_report,
    earlier,
    keep_report,
    ledgers_of,
    lister_of,
    opened_for,
    store_report_page,
)
from expost.jobs.runs import Run, running
from expost.jobs.streaming import inputs_of, is_streamed, task_of
from expost.jobs.table import Rows, noted
from expost.jobs.workspace import Workspace
from expost.profiles.verb import profile
from expost.publishing.compare import Comparison
from expost.publishing.publish import Asked, publish
from expost.publishing.report import Answer, PublishedReport
from expost.release import Release
from expost.report import collect
from expost.rounding import nats, percent_at_most, upper_text
from expost.types import Audience

__all__ = [
    "PHASES",
    "Outcome",
    "PublishJob",
    "answer_lines",
    "answers_json",
    "look_up",
    "outcome_lines",
    "run",
    "store_answers",
]

# How often `run` reports a phase.
PHASES = 3
_LONGEST_NOTICE = 400
_NOT_PUBLISHED = "nothing was published; free some space, or name another folder"


def run(job: PublishJob, progress: Progress = SILENT) -> Outcome:
    """Do the job; ``progress`` is told of ``PHASES`` phases."""
    with noted() as notes:
        check_place(job.out, resume=job.streaming.resume, force=job.force, lost=job.lost)
        if job.kind == "data-dependent":
            check_ledgers(ledgers_of(job), job.out)
        progress.phase("reading the table")
        release = Release.load(job.model)
        if job.kind != "data-dependent":
            # A ledger that is named and not there is a mistake, to be reported before any work.
            model_notices(job.model, job.ledger, None)
        asked, opened = asked_of(job, release), opened_for(job, release)
        blocks = opened is not None and is_streamed(
            job.streaming, job.out, opened[0].rows, len(opened[1].feature_names)
        )
        more = {
            "model": release.to_json()["sha256"],
            "rows": None if opened is None else opened[0].rows,
        }
        with running(
            job.out,
            task_of("publish", job, more),
            resume=job.streaming.resume,
            force=job.force,
            blocks=blocks,
            lost=job.lost,
            inputs=inputs_of(job),
            releases=(REPORT,),
        ) as begun:
            if opened is not None and blocks:
                return stream_publish.run(job, asked, opened, begun, notes, progress)
            rows = None
            if opened is not None:
                table, encoding = opened
                rows = Rows(table=table, encoding=encoding, encoded=encoding.encode_table(table))
            return _in_memory(job, asked, rows, begun, notes, progress)


def _in_memory(
    job: PublishJob,
    asked: Asked,
    rows: Rows | None,
    begun: Run,
    notes: Callable[[], list[str]],
    progress: Progress,
) -> Outcome:
    X, y = (None, None) if rows is None else (rows.encoded.X, rows.labels)
    report, written_over = drawn_report(job, begun, asked), tuple[str, ...]()
    if report is None:
        report = publish(
            asked.release,
            X,
            y,
            kind=job.kind,
            failure_probability=job.failure_probability,
            epsilon_gradient=job.epsilon_gradient,
            epsilon_hessian=job.epsilon_hessian,
            delta=job.delta,
        )
        written_over = earlier(job, asked.release)
        with writing(job.out, _NOT_PUBLISHED):
            keep_report(begun, report)
    progress.phase("writing the report")
    files = {"report": job.out / REPORT}
    with writing(job.out, _NOT_PUBLISHED):
        if rows is not None and report.released is not None:
            # Again after a crash: the process that was killed may have reached one of two ledgers.
            lister = lister_of(job, report, rows.digest, begun)
            write_json(files["report"], report.audience, report.to_json(), before=lister)
            files["ledger"], listed = lister.ledgers[0], lister.notices
        else:
            write_json(files["report"], report.audience, report.to_json())
            digest = None if rows is None else rows.digest
            listed = model_notices(job.model, job.ledger, digest)
    files |= store_report_page(job, report, begun)
    progress.phase("comparing it with the exact losses")
    comparison = None
    if rows is not None:
        result = profile(asked.release, X, y, ids=rows.ids)
        comparison = Comparison.of(report, result, X, y)
        files |= _store_comparison(job, comparison)
    found = () if rows is None else rows.notices
    return Outcome(
        report=report,
        comparison=comparison,
        files=files,
        notices=(*written_over, *listed, *found, *notes()),
    )


def _store_comparison(job: PublishJob, comparison: Comparison) -> dict[str, Path]:
    with writing(job.out, "report.json is there, and holds; free some space for the comparison"):
        return {
            "comparison": comparison.to_json(job.out / "comparison.json"),
            "table": comparison.to_parquet(job.out / "comparison.parquet"),
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
            {
                "label": answer.label,
                "exposure": answer.exposure,
                "belief": answer.belief,
                "epsilon_gradient": answer.epsilon_gradient,
                "epsilon_hessian": answer.epsilon_hessian,
                "delta": answer.delta,
                "everything": answer.everything,
                "belief_in_everything": answer.belief_in_everything,
                "fails_with": answer.fails_with,
                "everything_fails_with": answer.everything_fails_with,
                "notes": list(answer.notes),
            }
            for answer in answers
        ],
    }
