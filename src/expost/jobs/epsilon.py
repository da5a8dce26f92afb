"""``expost epsilon``: look at the rows of a table, and say which ε is worth using.

Nothing is released, and no model is drawn that leaves the computer's memory. What is written is for
the curator: the choice was made by looking at the rows.
"""

import hashlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from expost.data import Encoding
from expost.engine.progress import SILENT, Progress
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.choose import choose_epsilon
from expost.files.atomic import write_bytes
from expost.jobs import stream_epsilon
from expost.jobs.epsilon_asked import (
    QUESTION,
    EpsilonJob,
    Outcome,
    choices_of,
    command_of,
    leaks_of,
)
from expost.jobs.output import check_place, writing
from expost.jobs.pages import write_summary
from expost.jobs.runs import Run, running
from expost.jobs.streaming import inputs_of, is_streamed, task_of
from expost.jobs.table import Rows, check_options, noted, opened
from expost.jobs.workspace import Workspace
from expost.report import Summary, collect, render_html
from expost.report.transition_display import TransitionDisplay

__all__ = ["PHASES", "EpsilonJob", "Outcome", "run"]

# How often `run` reports a phase.
PHASES = 4


def run(job: EpsilonJob, progress: Progress = SILENT) -> Outcome:
    """Do the job; ``progress`` is told of ``PHASES`` phases."""
    with noted() as notes:
        check_options(job)
        check_place(job.out, resume=job.streaming.resume, force=job.force)
        progress.phase("reading the table")
        table, encoding = opened(job)
        blocks = is_streamed(job.streaming, job.out, table.rows, len(encoding.feature_names))
        given = None if job.encoding is None else job.encoding.read_bytes()
        more = {
            "encoding": None if given is None else hashlib.sha256(given).hexdigest(),
            "rows": table.rows,
        }
        with running(
            job.out,
            task_of("epsilon", job, more),
            resume=job.streaming.resume,
            force=job.force,
            blocks=blocks,
            inputs=inputs_of(job),
        ) as begun:
            if blocks:
                return stream_epsilon.run(job, (table, encoding), begun, notes, progress)
            rows = Rows(table=table, encoding=encoding, encoded=encoding.encode_table(table))
            return _in_memory(job, rows, begun, notes, progress)


def _in_memory(
    job: EpsilonJob, rows: Rows, begun: Run, notes: Callable[[], list[str]], progress: Progress
) -> Outcome:
    progress.phase("following every row over epsilon, and models on held-out rows")
    choice = choose_epsilon(rows.encoded.X, rows.labels, **_options(job, rows))
    progress.phase("collecting the report")
    command = command_of(job, choice)
    summary = collect(
        choice,
        command=None if command is None else shlex.join(command),
        choices=choices_of(job, rows.encoding, choice),
        notices=(*leaks_of(rows.encoding), *rows.notices, *notes()),
        source=job.name,
        made=begun.made,
    )
    progress.phase("writing the report")
    files = _write(begun.workspace, rows.encoding, choice, summary)
    return Outcome(choice=choice, summary=summary, command=command, files=files)


def _options(job: EpsilonJob, rows: Rows) -> dict[str, Any]:
    """What `choose_epsilon` is asked: the defaults that nobody changed are left to it."""
    names = ("mechanism", "delta", "noise", "loss", "label_bound", *QUESTION)
    given = {name: getattr(job, name) for name in names if getattr(job, name) is not None}
    return {
        **given,
        **rows.bounds,
        "regularization": "auto" if job.regularization is None else job.regularization,
        "random_state": job.seed,
        "ids": rows.ids,
    }


def _write(
    workspace: Workspace, encoding: Encoding, choice: EpsilonChoice, summary: Summary
) -> dict[str, Path]:
    """The curator's files: all of them whole, or none."""
    out = workspace.out
    page = render_html(summary).encode()
    assert summary.epsilon is not None
    picture = TransitionDisplay(part=summary.epsilon).png()
    mark = summary.audience
    files: dict[str, Path] = {}
    with writing(out, "nothing is left of this run; free some space, or name another folder"):
        try:
            # What an earlier run left, a table in parts above all, would stand in the way.
            workspace.remove_results()
            path = out / encoding.audience.file_name("encoding", "json")
            files["encoding"] = encoding.save(path)
            written = choice.to_json(out / "epsilon.json")
            assert isinstance(written, Path)
            files["epsilon"] = written
            files["table"] = choice.to_parquet(out / "epsilon.parquet")
            path = out / mark.file_name("transition", "png")
            files["picture"] = write_bytes(path, mark, picture)
            path = out / mark.file_name("report", "html")
            files["report"] = write_bytes(path, mark, page)
            files["summary"] = write_summary(out, summary)
        except BaseException:
            workspace.remove([*workspace.written])
            raise
    return files
