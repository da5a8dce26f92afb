"""``expost epsilon`` of a table of any length: in blocks of rows, gone on with after a crash.

The long step leaves parts with a line for each row, which are not made again; everything else
follows from them, from a few passes over the rows, and from a seed that the run keeps.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from expost.data import Encoding, Table, UnitBall
from expost.engine import Engine, engine_of
from expost.engine.progress import Progress
from expost.epsilon.choice import TABLE, EpsilonChoice
from expost.epsilon.choose import Question, choose_for, seeds_of
from expost.errors import InvalidInput
from expost.estimators import ESTIMATORS, Estimator
from expost.files.atomic import write_bytes
from expost.files.parts import PartStore
from expost.jobs.epsilon_asked import (
    QUESTION,
    EpsilonJob,
    Outcome,
    choices_of,
    command_of,
    leaks_of,
)
from expost.jobs.output import writing
from expost.jobs.pages import write_summary
from expost.jobs.runs import Run
from expost.jobs.table import table_notices
from expost.preparing import Facts, prepared, read_rows
from expost.report import Summary, collect, render_html
from expost.report.transition_display import TransitionDisplay
from expost.rows import RowStream, TableRows

__all__ = ["run"]

_CONTINUE = "progress was saved: free some space, and continue with --resume"


def run(
    job: EpsilonJob,
    opened: tuple[Table, Encoding],
    begun: Run,
    notes: Callable[[], list[str]],
    progress: Progress,
) -> Outcome:
    """Do the job, or continue it."""
    table, encoding = opened
    question = Question.of(
        **{name: getattr(job, name) for name in QUESTION if getattr(job, name) is not None}
    )
    with engine_of(job.streaming.engine or "local") as engine:
        work = _Work(
            job=job, run=begun, engine=engine, progress=progress, table=table, encoding=encoding
        )
        return work.done(question, notes)


@dataclass(frozen=True, kw_only=True)
class _Work:
    """One run, from the table to the page."""

    job: EpsilonJob
    run: Run
    engine: Engine
    progress: Progress
    table: Table
    encoding: Encoding

    def done(self, question: Question, notes: Callable[[], list[str]]) -> Outcome:
        """Take every step that has not been taken."""
        job, progress = self.job, self.progress
        with writing(job.out, _CONTINUE):
            store = self._store()
        estimator = _estimator(job, self.encoding)
        rows = self._rows(estimator)
        facts = self._facts(rows)
        progress.phase("following every row over epsilon, and models on held-out rows")
        ready = prepared(estimator, replace(rows, summary=facts.summary), rows, facts)
        with writing(job.out, _CONTINUE):
            choice = choose_for(ready, question, self._seeds(), store=store)
        progress.phase("collecting the report")
        command = command_of(job, choice)
        reading = table_notices(self.table, self.encoding, facts.unknown)
        summary = collect(
            choice,
            command=None if command is None else shlex.join(command),
            choices=choices_of(job, self.encoding, choice),
            notices=(*leaks_of(self.encoding), *reading, *notes()),
            source=job.name,
            made=self.run.made,
        )
        progress.phase("writing the report")
        with writing(job.out, _CONTINUE):
            files = self._write(choice, summary, store)
        return Outcome(choice=choice, summary=summary, command=command, files=files)

    def _store(self) -> PartStore:
        """Where the parts are: what has its place already is looked through once more."""
        workspace = self.run.workspace
        if self.run.kept("begun", bool) is None:
            # What is there belongs to an earlier run, and would be read as this one's.
            workspace.remove_results()
            self.run.keep("begun", True)
        else:
            workspace.take_back(TABLE, "epsilon")
        return self.run.store("epsilon")

    def _rows(self, estimator: Estimator) -> TableRows:
        ball = UnitBall(
            data_norm=self.encoding.data_norm,
            fit_intercept=estimator.fit_intercept,
            intercept_scaling=estimator.intercept_scaling,
        )
        stream = RowStream.of(self.table, self.encoding, ball, label_bound=self.job.label_bound)
        return TableRows(stream=stream, engine=self.engine, progress=self.progress)

    def _facts(self, rows: TableRows) -> Facts:
        """What one pass says of the rows, which must be those that the run was begun with."""
        _, facts = read_rows(rows)
        kept, found = self.run.kept("rows", str), facts.content.hex()
        if kept is None:
            self.run.keep("rows", found)
        elif kept != found:
            raise InvalidInput(
                f"{self.table.label}: its rows are not those that the run was begun with; name"
                " another folder."
            )
        return facts

    def _seeds(self) -> list[np.random.SeedSequence]:
        """Those that were asked for, or the run's own: a run that is gone on with has the same."""
        if self.job.seed is not None:
            return seeds_of(self.job.seed)
        return np.random.SeedSequence(int(self.run.salt, 16)).spawn(2)

    def _write(self, choice: EpsilonChoice, summary: Summary, store: PartStore) -> dict[str, Path]:
        """The curator's files, the table last: each whole, and the run is not at its end before."""
        out, mark = self.job.out, summary.audience
        assert summary.epsilon is not None
        assert choice.parts is not None
        files: dict[str, Path] = {}
        path = out / self.encoding.audience.file_name("encoding", "json")
        files["encoding"] = self.encoding.save(path)
        written = choice.to_json(out / "epsilon.json")
        assert isinstance(written, Path)
        files["epsilon"] = written
        path = out / mark.file_name("transition", "png")
        files["picture"] = write_bytes(path, mark, TransitionDisplay(part=summary.epsilon).png())
        path = out / mark.file_name("report", "html")
        files["report"] = write_bytes(path, mark, render_html(summary).encode())
        files["summary"] = write_summary(out, summary)
        self.run.check_rows(choice.parts, self.table.rows)
        store.finish(choice.parts, {"model": choice.description, "unit": "row"})
        files["table"] = self.run.workspace.place(store, TABLE).folder
        return files


def _estimator(job: EpsilonJob, encoding: Encoding) -> Estimator:
    """The estimator that would release the model; its ε matters for an automatic Λ alone."""
    loss, classes = job.loss or "logistic", encoding.target.classes
    bounds = {"label_bound": job.label_bound} if classes is None else {"classes": classes}
    return ESTIMATORS[loss](
        epsilon=1.0,
        mechanism=job.mechanism or "output",
        noise=job.noise or "laplace",
        delta=job.delta,
        regularization="auto" if job.regularization is None else job.regularization,
        data_norm=encoding.data_norm,
        **bounds,
    )
