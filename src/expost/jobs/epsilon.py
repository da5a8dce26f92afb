"""``expost epsilon``: follow the rows of a table over ε, and recommend an ε.

One path for rows in memory and for rows in blocks. Nothing is released, and no model that is drawn
leaves memory. The results are curator-only: the choice was made by looking at
the rows. With blocks the long step writes parts with one line for each row, which are not
computed again; the rest follows from them, from a few passes over the rows, and from a seed that
the run stores.
"""

import inspect
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expost.data import Encoding
from expost.data.unit_ball import default_intercept
from expost.engine import SILENT, Progress
from expost.epsilon.choice import TABLE as PARTS_TABLE
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.choose import Question, choose_for, seeds_of
from expost.files.atomic import write_bytes
from expost.files.parts import PartStore
from expost.jobs.options import MODEL, TABLE
from expost.jobs.output import CONTINUE, NOTHING_LEFT, check_place, writing
from expost.jobs.pages import write_page
from expost.jobs.requests import EpsilonRequest, ProfileRequest, command_line
from expost.jobs.streaming import TableWork
from expost.jobs.table import (
    Chosen,
    check_options,
    label_scale_of,
    noted,
    opened,
    table_notices,
    target_notices,
    training_of,
)
from expost.numbers import lower_text
from expost.preparing import Facts
from expost.report import Context, Page, Setting, page_of, render_html
from expost.results import row_keys
from expost.rows import HeldRows

__all__ = ["PHASES", "QUESTION", "Outcome", "question_of", "run"]

# How often `run` reports a phase.
PHASES = 4
# The options that are passed to `choose_epsilon` unchanged.
QUESTION = tuple(inspect.signature(Question.of).parameters)
# Their names in the report.
_NAMES = {
    "epsilons": "values of epsilon",
    "rows": "share of rows past the transition",
    "share": "share of the gain",
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result; ``command`` releases a model at the recommended ε, or is None."""

    choice: EpsilonChoice
    page: Page
    command: tuple[str, ...] | None
    files: dict[str, Path]


def run(job: EpsilonRequest, progress: Progress = SILENT) -> Outcome:
    """Run the job; ``progress`` receives ``PHASES`` phases."""
    with noted() as notes:
        check_options(job)
        check_place(job.out, resume=job.resume, force=job.force)
        question = question_of(job)
        progress.phase("reading the table")
        with job.streaming.workers() as engine:
            table = opened(job, engine=engine)
            with _Work.start("epsilon", job, table, notes, progress, engine) as work:
                return work.done(question)


def question_of(job: EpsilonRequest) -> Question:
    """Return the question, checked."""
    return Question.of(**{name: getattr(job, name) for name in QUESTION})


class _Work(TableWork):
    """One run, from the table to the page."""

    job: EpsilonRequest

    def done(self, question: Question) -> Outcome:
        """Run every step that is not finished."""
        job, progress = self.job, self.progress
        store = self._store() if self.blocks else None
        choice, facts = self._choice(question, store)
        progress.phase("collecting the report")
        command = _command(job, choice)
        reading = (
            *target_notices(self.encoding.target),
            *table_notices(self.table, self.encoding, facts.unknown),
        )
        page = page_of(
            choice,
            context=Context(
                settings=_settings(job, self.encoding, choice),
                notices=(*reading, *self.notes()),
                source=job.title,
                made=self.run.made,
            ),
            command=None if command is None else shlex.join(command),
        )
        progress.phase("writing the report")
        with self._writing():
            files = self._write(choice, page, store)
        return Outcome(choice=choice, page=page, command=command, files=files)

    def _store(self) -> PartStore:
        """Return the store of the parts; a finished table is checked again."""
        workspace = self.run.workspace
        with writing(self.job.out, CONTINUE):
            if self.run.kept("started", bool) is None:
                # Results of an earlier run would be read as those of this run.
                workspace.remove_results()
                self.run.keep("started", True)
            else:
                workspace.take_back(PARTS_TABLE, "epsilon")
            return self.run.store("epsilon")

    def _choice(self, question: Question, store: PartStore | None) -> tuple[EpsilonChoice, Facts]:
        # Every ε on the grid has its own mechanism.
        training = training_of(self.job, self.encoding, epsilon=1.0)
        ball = training.ball(len(self.encoding.entries))
        source, rows, facts = self.known_rows(ball, label_scale_of(self.job))
        self.progress.phase("following every row over epsilon, and models on held-out rows")
        ready = training.ready_table(rows, source, facts)
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
        """Return the given seeds, or those of the run, which a resumed run shares."""
        if self.job.seed is not None:
            return seeds_of(self.job.seed)
        return np.random.SeedSequence(int(self.run.salt, 16)).spawn(2)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Report a full disk with its remedy; a run without parts that fails leaves nothing."""
        workspace = self.run.workspace
        if self.blocks:
            with writing(self.job.out, CONTINUE):
                yield
            return
        with writing(self.job.out, NOTHING_LEFT):
            # Results of an earlier run, above all a table in parts, would block the new files.
            workspace.remove_results()
            with workspace.all_or_none():
                yield

    def _write(self, choice: EpsilonChoice, page: Page, store: PartStore | None) -> dict[str, Path]:
        """Write the curator's files, each complete; a table of parts comes last."""
        out, audience = self.job.out, page.audience
        html = render_html(page).encode()
        path = out / self.encoding.audience.file_name("encoding", "json")
        files = {
            "encoding": self.encoding.save(path),
            "epsilon": Path(choice.to_json(out / "epsilon.json")),
        }
        if store is None:
            files["table"] = choice.to_parquet(out / "epsilon.parquet")
        if self.job.picture:
            path = out / audience.file_name("transition", "png")
            files["picture"] = write_bytes(path, audience, choice.plot("transition").png())
        files["report"] = write_bytes(out / audience.file_name("report", "html"), audience, html)
        files["summary"] = write_page(out, page)
        if store is not None:
            assert choice.parts is not None
            self.run.check_rows(choice.parts, self.table.rows)
            store.finish(choice.parts, {"model": choice.description, "unit": "row"})
            files["table"] = self.run.workspace.deliver(store, PARTS_TABLE).folder
        return files


# -- the report ----------------------------------------------------------------------------------


def _settings(
    job: EpsilonRequest, encoding: Encoding, choice: EpsilonChoice
) -> tuple[Setting, ...]:
    """Return every constant that the result depends on, and its origin."""
    assert choice.plan is not None
    mechanism = choice.mechanism or choice.plan(1.0)
    chosen = Chosen(job=job, encoding=encoding)
    scaling = default_intercept(len(encoding.entries))
    criteria = [
        chosen.setting(_NAMES.get(name, name), _value(job, name), job.is_given(name))
        for name in QUESTION
    ]
    seed = "drawn for this run" if job.seed is None else str(job.seed)
    return (
        *chosen.target(label_scale_of(job)),
        *chosen.model(
            mechanism,
            intercept=f"{scaling:g} in each row",
            remark=", that of this epsilon",
        ),
        *criteria,
        chosen.setting("seed", seed, job.seed is not None),
        *chosen.table(),
    )


def _value(job: EpsilonRequest, name: str) -> str:
    value = getattr(job, name)
    if name == "epsilons":
        return "a grid" if value is None else ", ".join(f"{e:g}" for e in value)
    if name == "measure":
        return "the first that applies" if value is None else value
    return f"{value:g}"


def _command(job: EpsilonRequest, choice: EpsilonChoice) -> tuple[str, ...] | None:
    """Return the command that releases and profiles a model at the recommended ε.

    The seed is left out: it is for the simulation, and a seeded release is not private.
    """
    if choice.recommended is None:
        return None
    release = ("--epsilon", lower_text(choice.recommended, 3), "--out", str(job.out / "profile"))
    return command_line(job, "profile", ProfileRequest, (TABLE, MODEL), *release)
