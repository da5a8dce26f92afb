"""``expost epsilon``: follow the rows of a table over ε, and recommend an ε.

One path for rows in memory and for rows in blocks. Nothing is released, and no model is drawn that
leaves the computer's memory. What is written is for the curator: the choice was made by looking at
the rows. Of rows in blocks the long step leaves parts with one line for each row, which are not
made again; everything else follows from them, from a few passes over the rows, and from a seed that
the run keeps.
"""

import inspect
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expost.data import Encoding
from expost.data.unit_ball import default_intercept
from expost.engine import SILENT, Progress
from expost.epsilon.choice import TABLE, EpsilonChoice
from expost.epsilon.choose import Question, choose_epsilon, choose_for, seeds_of
from expost.files.atomic import write_bytes
from expost.files.parts import PartStore
from expost.jobs.output import CONTINUE, NOTHING_LEFT, check_place, writing
from expost.jobs.pages import write_summary
from expost.jobs.streaming import TableWork
from expost.jobs.table import (
    Chosen,
    TableJob,
    check_options,
    estimator_of,
    label_scale_of,
    noted,
    opened,
    table_notices,
)
from expost.preparing import Facts
from expost.report import Choice, Summary, collect, render_html
from expost.report.transition_display import TransitionDisplay
from expost.results import row_keys
from expost.rounding import lower_text
from expost.rows import HeldRows

__all__ = ["PHASES", "QUESTION", "EpsilonJob", "Outcome", "question_of", "run"]

# How often `run` reports a phase.
PHASES = 4
# The options that go to `choose_epsilon` as they are, under the names that they have there.
QUESTION = (
    "epsilons",
    "models",
    "tolerance",
    "rows",
    "max_posterior",
    "prior",
    "quantile",
    "share",
    "measure",
    "folds",
)
_DEFAULTS = {name: p.default for name, p in inspect.signature(choose_epsilon).parameters.items()}
# What they are called in the report.
_NAMES = {
    "epsilons": "values of epsilon",
    "rows": "share of rows past the transition",
    "share": "share of the gain",
}


@dataclass(frozen=True, kw_only=True)
class EpsilonJob(TableJob):
    """A table, and what is asked about ε; None where the default of ``choose_epsilon`` stands.

    ``picture``  also write the transition as a PNG.
    """

    epsilons: tuple[float, ...] | None = None
    models: int | None = None
    tolerance: float | None = None
    rows: float | None = None
    max_posterior: float | None = None
    prior: float | None = None
    quantile: float | None = None
    share: float | None = None
    measure: str | None = None
    folds: int | None = None
    picture: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it; ``command`` is what to type next, or None."""

    choice: EpsilonChoice
    summary: Summary
    command: tuple[str, ...] | None
    files: dict[str, Path]


def run(job: EpsilonJob, progress: Progress = SILENT) -> Outcome:
    """Do the job; ``progress`` hears of ``PHASES`` phases."""
    with noted() as notes:
        check_options(job)
        check_place(job.out, resume=job.streaming.resume, force=job.force)
        question = question_of(job)
        progress.phase("reading the table")
        with _Work.begun("epsilon", job, opened(job), notes, progress) as work:
            return work.done(question)


def question_of(job: EpsilonJob) -> Question:
    """Return the question, checked; defaults are those of the verb."""
    return Question.of(
        **{name: getattr(job, name) for name in QUESTION if getattr(job, name) is not None}
    )


class _Work(TableWork):
    """One run, from the table to the page."""

    job: EpsilonJob

    def done(self, question: Question) -> Outcome:
        """Take every step that has not been taken."""
        job, progress = self.job, self.progress
        store = self._store() if self.blocks else None
        choice, facts = self._choice(question, store)
        progress.phase("collecting the report")
        command = _command(job, choice)
        reading = table_notices(self.table, self.encoding, facts.unknown)
        summary = collect(
            choice,
            command=None if command is None else shlex.join(command),
            choices=_choices(job, self.encoding, choice),
            notices=(*reading, *self.notes()),
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
        with writing(self.job.out, CONTINUE):
            if self.run.kept("begun", bool) is None:
                # What is there belongs to an earlier run, and would be read as this one's.
                workspace.remove_results()
                self.run.keep("begun", True)
            else:
                workspace.take_back(TABLE, "epsilon")
            return self.run.store("epsilon")

    def _choice(self, question: Question, store: PartStore | None) -> tuple[EpsilonChoice, Facts]:
        # Every ε that is looked at has its own mechanism.
        estimator = estimator_of(self.job, self.encoding, epsilon=1.0)
        ball = estimator.ball(len(self.encoding.entries))
        source, rows, facts = self.known_rows(ball, label_scale_of(self.job))
        self.progress.phase("following every row over epsilon, and models on held-out rows")
        ready = estimator.ready_table(rows, source, facts)
        ids = rows.ids if isinstance(rows, HeldRows) else None
        with writing(self.job.out, CONTINUE):
            choice = choose_for(
                ready,
                question,
                self._seeds(),
                store=store,
                progress=self.progress,
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
            with writing(self.job.out, CONTINUE):
                yield
            return
        with writing(self.job.out, NOTHING_LEFT):
            # What an earlier run left, a table in parts above all, would stand in the way.
            workspace.remove_results()
            with workspace.all_or_none():
                yield

    def _write(
        self, choice: EpsilonChoice, summary: Summary, store: PartStore | None
    ) -> dict[str, Path]:
        """Write the curator's files, each whole; of parts the table comes last."""
        out, mark = self.job.out, summary.audience
        assert summary.epsilon is not None
        page = render_html(summary).encode()
        path = out / self.encoding.audience.file_name("encoding", "json")
        files = {
            "encoding": self.encoding.save(path),
            "epsilon": Path(choice.to_json(out / "epsilon.json")),
        }
        if store is None:
            files["table"] = choice.to_parquet(out / "epsilon.parquet")
        if self.job.picture:
            picture = TransitionDisplay(part=summary.epsilon).png()
            files["picture"] = write_bytes(out / mark.file_name("transition", "png"), mark, picture)
        files["report"] = write_bytes(out / mark.file_name("report", "html"), mark, page)
        files["summary"] = write_summary(out, summary)
        if store is not None:
            assert choice.parts is not None
            self.run.check_rows(choice.parts, self.table.rows)
            store.finish(choice.parts, {"model": choice.description, "unit": "row"})
            files["table"] = self.run.workspace.place(store, TABLE).folder
        return files


# -- what is reported ----------------------------------------------------------------------------


def _choices(job: EpsilonJob, encoding: Encoding, choice: EpsilonChoice) -> tuple[Choice, ...]:
    """Every constant that shaped the answer, and where it came from."""
    assert choice.plan is not None
    how = choice.mechanism or choice.plan(1.0)
    chosen = Chosen(job=job, encoding=encoding)
    scaling = default_intercept(len(encoding.entries))
    asked = [
        chosen.choice(_NAMES.get(name, name), _value(job, name), getattr(job, name))
        for name in QUESTION
    ]
    seed = "drawn for this run" if job.seed is None else str(job.seed)
    return (
        *chosen.target(label_scale_of(job)),
        *chosen.model(
            how,
            intercept=f"{scaling:g} in each row",
            remark=", that of this epsilon",
        ),
        *asked,
        chosen.choice("seed", seed, job.seed),
        *chosen.table(),
    )


def _joined(values: Sequence[object] | None) -> str | None:
    """Return values as an option takes them, with commas between them."""
    return None if values is None else ",".join(map(str, values))


def _value(job: EpsilonJob, name: str) -> str:
    given = getattr(job, name)
    value = _DEFAULTS[name] if given is None else given
    if name == "epsilons":
        return "a grid" if value is None else ", ".join(f"{e:g}" for e in value)
    if name == "measure":
        return "the first that applies" if value is None else value
    return f"{value:g}"


def _command(job: EpsilonJob, choice: EpsilonChoice) -> tuple[str, ...] | None:
    """The command that releases and profiles a model at the recommended ε.

    Never with the seed: that was for the simulation, and a seeded release is not private.
    """
    in_files = isinstance(job.source, str) and isinstance(job.encoding, Path | None)
    if choice.recommended is None or not in_files:
        return None
    options: list[tuple[str, object]] = [
        ("target", job.target),
        ("id", job.id_column),
        *(("drop", name) for name in job.drop or ()),
        *(("missing", token) for token in job.missing or ()),
        ("encoding", job.encoding),
        ("data-norm", job.data_norm),
        ("classes", _joined(job.classes)),
        ("label-range", _joined(job.label_range)),
        ("epsilon", lower_text(choice.recommended, 3)),
        ("mechanism", job.mechanism),
        ("noise", job.noise),
        ("delta", job.delta),
        ("loss", job.loss),
        ("regularization", job.regularization),
        ("out", job.out / "profile"),
    ]
    parts = [part for name, value in options if value is not None for part in (f"--{name}", value)]
    return ("expost", "profile", job.source, *map(str, parts))
