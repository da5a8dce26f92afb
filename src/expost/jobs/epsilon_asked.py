"""What ``expost epsilon`` is asked, and what both ways of doing it share."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from expost.data import Encoding
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.choose import choose_epsilon
from expost.epsilon.sampled import SampledSweep
from expost.epsilon.sweep import LawSweep
from expost.jobs.choices import Chosen
from expost.jobs.table import TableJob
from expost.mechanisms import Mechanism
from expost.mechanisms.base import Sampler
from expost.report import Choice, Summary
from expost.rounding import lower_text

__all__ = ["QUESTION", "EpsilonJob", "Outcome", "choices_of", "command_of", "leaks_of"]

# Bounds that are named in one notice; encoding.json lists all of them.
_NAMED = 6
# The options that go to `choose_epsilon` as they are, under the names that they have there.
QUESTION = (
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


def _mechanism(choice: EpsilonChoice) -> Mechanism:
    sweep = choice.sweep
    if isinstance(sweep, LawSweep):
        return sweep.mechanism
    assert isinstance(sweep, SampledSweep)
    return cast(Sampler, sweep.mechanism).mechanism


def choices_of(job: EpsilonJob, encoding: Encoding, choice: EpsilonChoice) -> tuple[Choice, ...]:
    """Every constant that shaped the answer, and where it came from."""
    how = _mechanism(choice)
    chosen = Chosen(job=job, encoding=encoding)
    scaling = _DEFAULTS["intercept_scaling"]
    asked = [
        chosen.choice(_NAMES.get(name, name), _value(job, name), getattr(job, name))
        for name in QUESTION
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


def leaks_of(encoding: Encoding) -> tuple[str, ...]:
    """Which bounds were read from the data."""
    read = encoding.read_from_data
    if not read:
        return ()
    file = encoding.audience.file_name("encoding", "json")
    more = f" and {len(read) - _NAMED} more, which {file} lists" if len(read) > _NAMED else ""
    return (f"Read from the data, which is not private: {', '.join(read[:_NAMED])}{more}.",)


def command_of(job: EpsilonJob, choice: EpsilonChoice) -> tuple[str, ...] | None:
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
        ("epsilon", lower_text(choice.recommended, 3)),
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
