"""``expost publish`` of a table that is not held: in blocks of rows, gone on with after a crash.

A report is drawn once: it is kept in the run's own folder before the ledger lists it, and listed
before it has its place. The comparison is made there too and gets its place at once, when its last
part is there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from expost._comparison import ComparisonFigures
from expost._files import drafts, write_json
from expost._jobs.folder import writing
from expost._jobs.ledger import model_notices
from expost._jobs.publish_asked import (
    Outcome,
    PublishJob,
    earlier,
    lister_of,
    remove_earlier,
    store_report_page,
)
from expost._jobs.stream_facts import known_facts, salted
from expost._jobs.streaming import Run, running, task_of
from expost._jobs.table import table_notices
from expost._progress import Progress
from expost._publish import Asked
from expost._published import PublishedReport
from expost._store import PartStore
from expost._streamed import StreamedProblem
from expost._streamed_losses import BlockLosses, block_losses
from expost._streamed_publish import compared_parts, figures_of, streamed_report
from expost._streamed_release import Facts
from expost._target import find_target
from expost.data import Encoding, Table
from expost.data.stream import RowStream
from expost.engine import Engine, engine_of
from expost.errors import InvalidInput
from expost.losses import Squared
from expost.types import Audience

__all__ = ["run"]

_REMEDY = "what is finished is kept: free some space, and go on with --resume"


def run(
    job: PublishJob,
    asked: Asked,
    table: Table,
    encoding: Encoding,
    notes: Callable[[], list[str]],
    progress: Progress,
) -> Outcome:
    """Do the job, or go on with it."""
    task = task_of("publish", job, table, {"model": asked.release.to_json()["sha256"]})
    with (
        running(job.out, task, job.streaming, force=job.force, lost=job.lost) as begun,
        engine_of(job.streaming.engine or "local") as engine,
        writing(job.out, _REMEDY),
    ):
        work = _Work(
            job=job,
            asked=asked,
            table=table,
            stream=_stream(asked, table, encoding),
            engine=engine,
            run=begun,
            progress=progress,
        )
        _ = work.facts
        report, files, listed = work.report()
        files |= store_report_page(job, report, begun.made)
        progress.phase("comparing it with the exact losses")
        figures, compared = work.comparison(report)
    return Outcome(
        report=report,
        comparison=figures,
        files=files | compared,
        notices=(*listed, *table_notices(table, encoding, work.facts.unknown), *notes()),
    )


def _stream(asked: Asked, table: Table, encoding: Encoding) -> RowStream:
    loss = asked.release.mechanism.loss
    bound = loss.label_bound if isinstance(loss, Squared) else None
    return RowStream.of(table, encoding, asked.release.ball, label_bound=bound)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Work:
    """The steps of a run; each finds what an earlier process finished of it."""

    job: PublishJob
    asked: Asked
    table: Table
    stream: RowStream
    engine: Engine
    run: Run
    progress: Progress

    @cached_property
    def facts(self) -> Facts:
        """One look at all rows."""
        return known_facts(self.run, self.table, self.stream, self.engine, self.progress)

    @cached_property
    def problem(self) -> StreamedProblem:
        """The rows as the model's objective sees them."""
        how = self.asked.release.mechanism
        return StreamedProblem(
            stream=self.stream,
            engine=self.engine,
            loss=how.loss,
            penalty=np.full(self.stream.columns, how.total_regularization),
            progress=self.progress,
            seen=self.facts.look,
        )

    @cached_property
    def losses(self) -> BlockLosses:
        """What every row's loss follows from; rows that cannot have made the model are refused."""
        return block_losses(self.asked.release, self.problem)

    def report(self) -> tuple[PublishedReport, dict[str, Path], tuple[str, ...]]:
        """The report of this run, its files, and what the ledger says now."""
        notices: tuple[str, ...] = ()
        report = self._drawn()
        if report is None:
            # Before anything of an earlier run is removed the rows are known to be the right ones.
            _ = self.losses
            notices = earlier(self.job, self.asked.release)
            remove_earlier(self.job.out)
            report = streamed_report(self.asked, self.losses, self.problem)
            self.run.keep("report", report.to_json())
        self.progress.phase("writing the report")
        path, files = self.job.out / "report.json", dict[str, Path]()
        if self.asked.extra is None:
            listed = model_notices(self.job.model, self.job.ledger, salted(self.facts))
        else:
            # Again after a crash: the one who was killed may have reached one of two ledgers.
            lister = lister_of(self.job, report, salted(self.facts))
            lister()
            listed, files["ledger"] = lister.notices, lister.ledgers[0]
        for draft in drafts(path):
            # All of it is kept elsewhere.
            draft.unlink(missing_ok=True)
        write_json(path, report.audience, report.to_json())
        return report, {"report": path} | files, (*notices, *listed)

    def _drawn(self) -> PublishedReport | None:
        """The report that was drawn before a crash; no second one is."""
        value = self.run.kept("report")
        if value is None:
            return None
        report = PublishedReport.from_json(value)
        if not self.asked.made(report):
            raise InvalidInput(
                f"out={str(self.job.out)!r}: the report that this run drew is not the one that is"
                " asked for; name another folder."
            )
        return report

    def comparison(self, report: PublishedReport) -> tuple[ComparisonFigures, dict[str, Path]]:
        """All rows' bounds beside their losses, and their aggregates."""
        place = self.job.out / Audience.FAIL.file_name("comparison", "parquet")
        target = find_target(self.asked.release, None)
        assert target is not None
        description = target.describe()
        store = PartStore(folder=place)
        if not store.is_finished:
            store = self.run.store("comparison")
            parts = compared_parts(
                self.stream, self.losses, report, store, self.engine, self.progress
            )
            store.finish(parts, {"model": description})
            store = store.moved(place)
        parts = {part.index: part for part in store.parts()}
        figures = figures_of(store, parts, report, self.engine)
        path = self.job.out / Audience.FAIL.file_name("comparison", "json")
        value = {**figures.to_json(description), "table": place.name}
        write_json(path, Audience.FAIL, value)
        return figures, {"comparison": path, "table": place}
