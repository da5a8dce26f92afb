"""``expost publish`` of a table that is not held: in blocks of rows, gone on with after a crash.

A report is drawn once: it is kept in the run's own folder before the ledger lists it, and listed
before it has its place. The comparison is made there too and gets its place at once, when its last
part is there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from expost.data import Encoding, Table
from expost.engine import Engine, engine_of
from expost.engine.progress import Progress
from expost.files.atomic import write_json
from expost.files.parts import PartStore
from expost.glm import Objective
from expost.jobs.facts import known_rows, salted
from expost.jobs.ledger import model_notices
from expost.jobs.output import writing
from expost.jobs.publish_asked import (
    REPORT,
    Outcome,
    PublishJob,
    drawn_report,
    earlier,
    keep_report,
    lister_of,
    store_report_page,
)
from expost.jobs.runs import Run
from expost.jobs.table import table_notices
from expost.losses import Squared
from expost.preparing import Facts
from expost.profiles.streamed_losses import BlockLosses, block_losses
from expost.profiles.target import find_target
from expost.publishing.compare import ComparisonFigures
from expost.publishing.publish import Asked
from expost.publishing.report import PublishedReport
from expost.publishing.streamed import compared_parts, figures_of, streamed_report
from expost.rows import RowStream, TableRows
from expost.types import Audience

__all__ = ["run"]

_REMEDY = "progress was saved: free some space, and continue with --resume"


def run(
    job: PublishJob,
    asked: Asked,
    opened: tuple[Table, Encoding],
    begun: Run,
    notes: Callable[[], list[str]],
    progress: Progress,
) -> Outcome:
    """Do the job, or continue it."""
    table, encoding = opened
    with engine_of(job.streaming.engine or "local") as engine, writing(job.out, _REMEDY):
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
        files |= store_report_page(job, report, begun)
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

    @property
    def rows(self) -> TableRows:
        """The rows of the table."""
        return TableRows(stream=self.stream, engine=self.engine, progress=self.progress)

    @cached_property
    def facts(self) -> Facts:
        """One look at all rows."""
        return known_rows(self.run, self.table, self.rows, hold=False)[1]

    @cached_property
    def problem(self) -> Objective:
        """The rows as the model's objective sees them."""
        how = self.asked.release.mechanism
        return Objective(
            rows=replace(self.rows, summary=self.facts.summary),
            loss=how.loss,
            penalty=np.full(self.stream.columns, how.total_regularization),
        )

    @cached_property
    def losses(self) -> BlockLosses:
        """What every row's loss follows from; rows that cannot have made the model are refused."""
        return block_losses(self.asked.release, self.problem)

    def report(self) -> tuple[PublishedReport, dict[str, Path], tuple[str, ...]]:
        """The report of this run, its files, and what the ledger says now."""
        notices: tuple[str, ...] = ()
        report = drawn_report(self.job, self.run, self.asked)
        if report is None:
            # Before anything of an earlier run is removed the rows are known to be the right ones.
            _ = self.losses
            notices = earlier(self.job, self.asked.release)
            report = streamed_report(self.asked, self.losses, self.problem)
            keep_report(self.run, report)
        self.progress.phase("writing the report")
        path, files = self.job.out / REPORT, dict[str, Path]()
        if self.asked.extra is None:
            listed = model_notices(self.job.model, self.job.ledger, salted(self.facts))
        else:
            # Again after a crash: the one who was killed may have reached one of two ledgers.
            lister = lister_of(self.job, report, salted(self.facts), self.run)
            lister()
            listed, files["ledger"] = lister.notices, lister.ledgers[0]
        write_json(path, report.audience, report.to_json())
        return report, {"report": path} | files, (*notices, *listed)

    def comparison(self, report: PublishedReport) -> tuple[ComparisonFigures, dict[str, Path]]:
        """All rows' bounds beside their losses, and their aggregates."""
        name = Audience.FAIL.file_name("comparison", "parquet")
        place = self.job.out / name
        target = find_target(self.asked.release, None)
        assert target is not None
        description = target.describe()
        store = PartStore(folder=place)
        if not store.is_finished:
            store = self.run.store("comparison")
            parts = compared_parts(
                self.stream, self.losses, report, store, self.engine, self.progress
            )
            self.run.check_rows(parts, self.table.rows)
            store.finish(parts, {"model": description})
            store = self.run.workspace.place(store, name)
        parts = {part.index: part for part in store.parts()}
        figures = figures_of(store, parts, report, self.engine)
        path = self.job.out / Audience.FAIL.file_name("comparison", "json")
        value = {**figures.to_json(description), "table": place.name}
        write_json(path, Audience.FAIL, value)
        return figures, {"comparison": path, "table": place}
