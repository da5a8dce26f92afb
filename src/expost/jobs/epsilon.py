"""``expost epsilon``: follow the rows of a table over ε, and recommend an ε.

One path for rows in memory and for rows in blocks. Nothing is released, and no model is drawn that
leaves the computer's memory. What is written is for the curator: the choice was made by looking at
the rows. Of rows in blocks the long step leaves parts with one line for each row, which are not
made again; everything else follows from them, from a few passes over the rows, and from a seed that
the run keeps.
"""

import hashlib
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expost.data import Encoding, Table
from expost.engine import SILENT, Engine, Progress, engine_of
from expost.epsilon.choice import TABLE, EpsilonChoice
from expost.epsilon.choose import Question, choose_for, seeds_of
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
from expost.jobs.facts import known_rows, table_rows
from expost.jobs.output import check_place, writing
from expost.jobs.pages import write_summary
from expost.jobs.runs import Run, running
from expost.jobs.streaming import inputs_of, is_streamed, task_of
from expost.jobs.table import check_options, estimator_of, noted, opened, table_notices
from expost.preparing import Facts, ball_of, prepared
from expost.report import Summary, collect, render_html
from expost.report.transition_display import TransitionDisplay
from expost.results import row_keys
from expost.rows import HeldRows

__all__ = ["PHASES", "EpsilonJob", "Outcome", "run"]

# How often `run` reports a phase.
PHASES = 4
_CONTINUE = "progress was saved: free some space, and continue with --resume"
_NOTHING = "nothing is left of this run; free some space, or name another folder"


def run(job: EpsilonJob, progress: Progress = SILENT) -> Outcome:
    """Do the job; ``progress`` hears of ``PHASES`` phases."""
    with noted() as notes:
        check_options(job)
        check_place(job.out, resume=job.streaming.resume, force=job.force)
        question = question_of(job)
        progress.phase("reading the table")
        table, encoding = opened(job)
        blocks = is_streamed(job.streaming, job.out, table.rows, len(encoding.feature_names))
        given = None if job.encoding is None else job.encoding.read_bytes()
        more = {
            "encoding": None if given is None else hashlib.sha256(given).hexdigest(),
            "rows": table.rows,
        }
        with (
            running(
                job.out,
                task_of("epsilon", job, more),
                resume=job.streaming.resume,
                force=job.force,
                blocks=blocks,
                inputs=inputs_of(job),
            ) as begun,
            engine_of(job.streaming.engine or "local") as engine,
        ):
            work = _Work(
                job=job,
                run=begun,
                blocks=blocks,
                engine=engine,
                progress=progress,
                table=table,
                encoding=encoding,
            )
            return work.done(question, notes)


def question_of(job: EpsilonJob) -> Question:
    """Return what is asked, checked; the defaults that nobody changed are those of the verb."""
    return Question.of(
        **{name: getattr(job, name) for name in QUESTION if getattr(job, name) is not None}
    )


@dataclass(frozen=True, kw_only=True)
class _Work:
    """One run, from the table to the page."""

    job: EpsilonJob
    run: Run
    blocks: bool
    engine: Engine
    progress: Progress
    table: Table
    encoding: Encoding

    def done(self, question: Question, notes: Callable[[], list[str]]) -> Outcome:
        """Take every step that has not been taken."""
        job, progress = self.job, self.progress
        store = self._store() if self.blocks else None
        choice, facts = self._choice(question, store)
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
        with self._writing():
            files = self._write(choice, summary, store)
        return Outcome(choice=choice, summary=summary, command=command, files=files)

    def _store(self) -> PartStore:
        """Return where the parts are; a table that has appeared is checked once more."""
        workspace = self.run.workspace
        with writing(self.job.out, _CONTINUE):
            if self.run.kept("begun", bool) is None:
                # What is there belongs to an earlier run, and would be read as this one's.
                workspace.remove_results()
                self.run.keep("begun", True)
            else:
                workspace.take_back(TABLE, "epsilon")
            return self.run.store("epsilon")

    def _choice(self, question: Question, store: PartStore | None) -> tuple[EpsilonChoice, Facts]:
        # The ε of the estimator matters for an automatic Λ alone.
        estimator = estimator_of(self.job, self.encoding, epsilon=1.0)
        source = table_rows(
            (self.table, self.encoding),
            ball_of(estimator, self.encoding),
            self.job.label_bound,
            self.engine,
            self.progress,
        )
        rows, facts = known_rows(self.run, self.table, source, hold=store is None)
        self.progress.phase("following every row over epsilon, and models on held-out rows")
        ready = prepared(estimator, rows, source, facts)
        ids = rows.ids if isinstance(rows, HeldRows) else None
        with writing(self.job.out, _CONTINUE):
            choice = choose_for(
                ready,
                question,
                self._seeds(),
                store=store,
                ids=None if ids is None else row_keys(list(ids), rows.count),
            )
        return choice, facts

    def _seeds(self) -> list[np.random.SeedSequence]:
        """Return the seeds that were asked for, or the run's own: a resumed run has the same."""
        if self.job.seed is not None:
            return seeds_of(self.job.seed)
        return np.random.SeedSequence(int(self.run.salt, 16)).spawn(2)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Name the remedy if the disk is full; a run without parts that fails leaves nothing."""
        workspace = self.run.workspace
        if self.blocks:
            with writing(self.job.out, _CONTINUE):
                yield
            return
        with writing(self.job.out, _NOTHING):
            # What an earlier run left, a table in parts above all, would stand in the way.
            workspace.remove_results()
            try:
                yield
            except BaseException:
                workspace.remove([*workspace.written])
                raise

    def _write(
        self, choice: EpsilonChoice, summary: Summary, store: PartStore | None
    ) -> dict[str, Path]:
        """Write the curator's files, each whole; of parts the table comes last."""
        out, mark = self.job.out, summary.audience
        assert summary.epsilon is not None
        page = render_html(summary).encode()
        picture = TransitionDisplay(part=summary.epsilon).png()
        path = out / self.encoding.audience.file_name("encoding", "json")
        files = {
            "encoding": self.encoding.save(path),
            "epsilon": Path(choice.to_json(out / "epsilon.json")),
        }
        if store is None:
            files["table"] = choice.to_parquet(out / "epsilon.parquet")
        files["picture"] = write_bytes(out / mark.file_name("transition", "png"), mark, picture)
        files["report"] = write_bytes(out / mark.file_name("report", "html"), mark, page)
        files["summary"] = write_summary(out, summary)
        if store is not None:
            assert choice.parts is not None
            self.run.check_rows(choice.parts, self.table.rows)
            store.finish(choice.parts, {"model": choice.description, "unit": "row"})
            files["table"] = self.run.workspace.place(store, TABLE).folder
        return files
