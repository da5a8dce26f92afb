"""``expost epsilon``: look at the rows of a table, and say which ε is worth using.

Nothing is released, and no model is drawn that leaves the computer's memory. What is written is for
the curator: the choice was made by looking at the rows.
"""

import inspect
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expost._choice import EpsilonChoice
from expost._epsilon import choose_epsilon
from expost._files import write_bytes
from expost._jobs.choices import Chosen
from expost._jobs.folder import check_folder, remove_stale, writing
from expost._jobs.pages import made_now, write_summary
from expost._jobs.table import Rows, TableJob, check_options, noted, read_rows
from expost._progress import SILENT, Progress
from expost._recommend import rounded_down
from expost._sampled import SampledSweep
from expost._sweep import LawSweep
from expost.data import Encoding
from expost.mechanisms import Mechanism
from expost.mechanisms.sampling import ObjectiveSampler
from expost.report import Choice, Summary, collect, render_html
from expost.report.transition_display import TransitionDisplay

__all__ = ["PHASES", "EpsilonJob", "Outcome", "run"]

# How often `run` reports a phase.
PHASES = 4
# Bounds that are named in one notice; encoding.json lists all of them.
_NAMED = 6
# The options that go to `choose_epsilon` as they are, under the names that they have there.
_QUESTION = (
    "epsilons",
    "models",
    "tolerance",
    "rows",
    "max_belief",
    "prior",
    "quantile",
    "utility",
    "folds",
)
_DEFAULTS = {name: p.default for name, p in inspect.signature(choose_epsilon).parameters.items()}
# What they are called in the report.
_NAMES = {"epsilons": "values of epsilon", "rows": "share of rows", "utility": "least utility"}


@dataclass(frozen=True, kw_only=True)
class EpsilonJob(TableJob):
    """A table, and what is asked about ε; None where the default of ``choose_epsilon`` stands."""

    epsilons: tuple[float, ...] | None = None
    models: int | None = None
    tolerance: float | None = None
    rows: float | None = None
    max_belief: float | None = None
    prior: float | None = None
    quantile: float | None = None
    utility: float | None = None
    folds: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it; ``command`` is what to type next, or None."""

    choice: EpsilonChoice
    summary: Summary
    command: tuple[str, ...] | None
    files: dict[str, Path]


def run(job: EpsilonJob, progress: Progress = SILENT) -> Outcome:
    """Do the job; ``progress`` is told of ``PHASES`` phases."""
    with noted() as notes:
        check_options(job)
        check_folder(job.out, force=job.force)
        progress.phase("reading the table")
        rows = read_rows(job)
        progress.phase("following every row over epsilon, and models on held-out rows")
        choice = choose_epsilon(rows.encoded.X, rows.labels, **_options(job, rows))
        progress.phase("collecting the report")
        command = _command(job, choice)
        summary = collect(
            choice,
            command=None if command is None else shlex.join(command),
            choices=_choices(job, rows.encoding, choice),
            notices=(*_leaks(rows.encoding), *rows.notices, *notes()),
            source=job.name,
            made=made_now(),
        )
        progress.phase("writing the report")
        files = _write(job, rows.encoding, choice, summary)
    return Outcome(choice=choice, summary=summary, command=command, files=files)


def _options(job: EpsilonJob, rows: Rows) -> dict[str, Any]:
    """What `choose_epsilon` is asked: the defaults that nobody changed are left to it."""
    names = ("mechanism", "delta", "noise", "loss", "label_bound", *_QUESTION)
    given = {name: getattr(job, name) for name in names if getattr(job, name) is not None}
    return {
        **given,
        **rows.bounds,
        "regularization": "auto" if job.regularization is None else job.regularization,
        "random_state": job.seed,
        "ids": rows.ids,
    }


def _mechanism(choice: EpsilonChoice) -> Mechanism:
    sweep = choice.sweep
    if isinstance(sweep, LawSweep):
        return sweep.mechanism
    assert isinstance(sweep, SampledSweep)
    assert isinstance(sweep.mechanism, ObjectiveSampler)
    return sweep.mechanism.mechanism


def _choices(job: EpsilonJob, encoding: Encoding, choice: EpsilonChoice) -> tuple[Choice, ...]:
    """Every constant that shaped the answer, and where it came from."""
    how = _mechanism(choice)
    chosen = Chosen(job=job, encoding=encoding)
    scaling = _DEFAULTS["intercept_scaling"]
    asked = [
        chosen.choice(_NAMES.get(name, name), _value(job, name), getattr(job, name))
        for name in _QUESTION
    ]
    seed = "drawn anew" if job.seed is None else str(job.seed)
    return (
        *chosen.target(how),
        *chosen.model(how, intercept=f"{scaling:g} in each row", remark=", that of epsilon = 1"),
        *asked,
        chosen.choice("seed", seed, job.seed),
        *chosen.table(),
    )


def _value(job: EpsilonJob, name: str) -> str:
    given = getattr(job, name)
    value = _DEFAULTS[name] if given is None else given
    if name == "epsilons":
        return "25 around the transition" if value is None else ", ".join(f"{e:g}" for e in value)
    words = {"quantile": "none, the mean is bounded", "utility": "none"}
    return words[name] if value is None else f"{value:g}"


def _leaks(encoding: Encoding) -> tuple[str, ...]:
    read = encoding.read_from_data
    if not read:
        return ()
    file = encoding.audience.file_name("encoding", "json")
    more = f" and {len(read) - _NAMED} more, which {file} lists" if len(read) > _NAMED else ""
    return (f"Read from the data, which is not private: {', '.join(read[:_NAMED])}{more}.",)


def _command(job: EpsilonJob, choice: EpsilonChoice) -> tuple[str, ...] | None:
    """The command that releases and profiles a model at the recommended ε.

    Never with the seed: that was for the simulation, and a seeded release is not private.
    """
    if choice.recommended is None or not isinstance(job.source, str):
        return None
    how = _mechanism(choice)
    options: list[tuple[str, object]] = [
        ("target", job.target),
        ("id", job.id_column),
        *(("drop", name) for name in job.drop or ()),
        *(("missing", token) for token in job.missing or ()),
        ("encoding", job.encoding),
        ("data-norm", job.data_norm),
        ("classes", None if job.classes is None else ",".join(job.classes)),
        ("label-bound", job.label_bound),
        ("epsilon", f"{rounded_down(choice.recommended):g}"),
        ("mechanism", job.mechanism),
        ("noise", job.noise),
        ("delta", job.delta),
        ("loss", job.loss),
        # Every digit: ε was chosen for this very Λ.
        ("regularization", how.regularization),
        ("out", job.out / "profile"),
    ]
    parts = [part for name, value in options if value is not None for part in (f"--{name}", value)]
    return ("expost", "profile", job.source, *map(str, parts))


def _write(
    job: EpsilonJob, encoding: Encoding, choice: EpsilonChoice, summary: Summary
) -> dict[str, Path]:
    """The curator's files: all of them whole, or none."""
    out = job.out
    page = render_html(summary).encode()
    assert summary.epsilon is not None
    picture = TransitionDisplay(part=summary.epsilon).png()
    mark = summary.audience
    files: dict[str, Path] = {}
    with writing(out, "nothing is left of this run; free some space, or name another folder"):
        try:
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
            remove_stale(out, keep=[*files.values(), job.encoding])
        except BaseException:
            for path in files.values():
                path.unlink(missing_ok=True)
            raise
    return files
