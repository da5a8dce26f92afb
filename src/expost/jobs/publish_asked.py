"""What ``expost publish`` is asked, and what every way of doing it shares."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from expost.data import Encoding, Table
from expost.errors import ExpostError, InvalidInput
from expost.jobs.ledger import Lister, ledgers_for
from expost.jobs.pages import named_source, store_page
from expost.jobs.runs import Run
from expost.jobs.streaming import AS_USUAL, Streaming
from expost.ledger import Entry, Ledger, entries_of, now
from expost.publishing.compare import Comparison
from expost.publishing.publish import PublishRequest
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.report import collect
from expost.rounding import upper_text
from expost.types import Audience

__all__ = [
    "REPORT",
    "Outcome",
    "PublishJob",
    "drawn_report",
    "earlier",
    "keep_report",
    "ledgers_of",
    "lister_of",
    "opened_for",
    "request_of",
    "store_report_page",
]

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


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it."""

    report: PublishedReport
    comparison: Comparison | None
    files: dict[str, Path]
    notices: tuple[str, ...]


def request_of(job: PublishJob, release: Release) -> PublishRequest:
    """Return the request for the report; what does not depend on the rows is checked."""
    return PublishRequest.of(
        release,
        kind=job.kind,
        failure_probability=job.failure_probability,
        epsilon_gradient=job.epsilon_gradient,
        epsilon_hessian=job.epsilon_hessian,
        delta=job.delta,
    )


def opened_for(job: PublishJob, release: Release) -> tuple[Table, Encoding] | None:
    """The table as the model reads it, where one is given; no row is held."""
    if job.source is None:
        if job.kind == "data-dependent":
            raise InvalidInput(
                "DATA: a data-dependent report needs the table that the model was made from; name"
                " it, with its --target."
            )
        return None
    if release.encoding is None:
        raise InvalidInput(
            f"{job.model}: was not made from a table; publish it in Python with expost.publish, or"
            " without a table."
        )
    encoding = Encoding.from_json(release.encoding)
    if job.target is not None and encoding.target.column != job.target:
        raise InvalidInput(
            f"target={job.target!r}: the model predicts {encoding.target.column!r}; name that."
        )
    return encoding.open(job.source, id_column=job.id_column), encoding


def ledgers_of(job: PublishJob) -> tuple[Path, ...]:
    """Those of the data set, which the model's is: a report in another folder spends of it too."""
    return ledgers_for(job.model.parent, job.ledger)


def lister_of(
    job: PublishJob, report: PublishedReport, digest: Callable[[Ledger], str], run: Run
) -> Lister:
    """Lists a report that spends of the data, with its model; to be called before it appears."""
    path, written = job.out / REPORT, report.to_json()

    def entries(data: str) -> tuple[Entry, ...]:
        *_, line = report.entries(written, name=str(path), made=now(), data=data)
        return (*entries_of(job.model, data=data), replace(line, run=run.identity))

    return Lister(ledgers_of(job), digest, entries)


def drawn_report(job: PublishJob, run: Run, request: PublishRequest) -> PublishedReport | None:
    """Return the report that this run has drawn, if it has; no second one is drawn."""
    report = run.kept("report", PublishedReport.from_json)
    listed = {
        release: path
        for path in ledgers_of(job)
        if path.exists()
        for release in Ledger.load(path).of_run(run.identity, "report")
    }
    if listed and (report is None or report.to_json()["sha256"] not in listed):
        # The ledger is believed, not the folder: what it lists was released.
        (path, *_) = listed.values()
        raise InvalidInput(
            f"out={str(job.out)!r}: this run has drawn a report, which {path} lists and which is"
            " gone; it is not drawn a second time: draw another one with"
            " --force, which spends its epsilon again."
        )
    if report is not None and not request.matches(report):
        raise InvalidInput(
            f"out={str(job.out)!r}: the report that this run drew is not the one that is asked for;"
            " name another folder."
        )
    return report


def keep_report(run: Run, report: PublishedReport) -> None:
    """Keep a report that was drawn, and remove what belongs to an earlier one."""
    run.workspace.remove(_OF_A_REPORT)
    run.keep("report", report.to_json())


def earlier(job: PublishJob, release: Release) -> tuple[str, ...]:
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


def store_report_page(job: PublishJob, report: PublishedReport, run: Run) -> dict[str, Path]:
    """A page about report.json, for everybody who may have that: nothing of the table is on it."""
    source = named_source(job.model, report.audience, usual="model.json", what="a released model")
    summary = collect(report, source=source, made=run.made)
    remedy = "report.json is there, and holds; free some space for its page"
    files = store_page(run.workspace, summary, alone=False, remedy=remedy)
    return {"page": files["report"], "text": files["text"], "summary": files["summary"]}
