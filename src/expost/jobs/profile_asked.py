"""What ``expost profile`` is asked, and what every way of doing it shares."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from expost.data import Encoding, Table
from expost.errors import InvalidInput
from expost.files.atomic import is_same_file
from expost.jobs.choices import Chosen
from expost.jobs.ledger import Lister, ledgers_for
from expost.jobs.model_file import MODEL
from expost.jobs.runs import Run, running
from expost.jobs.streaming import inputs_of, task_of
from expost.jobs.table import (
    OF_AN_ENCODING,
    TableJob,
    check_no_feature,
    check_options,
    key_options,
    opened,
    refuse_fixed,
)
from expost.ledger import Entry, Ledger, now
from expost.profiles.profile import Profile
from expost.release import Release
from expost.report import Choice, Origin, Summary

__all__ = [
    "Outcome",
    "ProfileJob",
    "check_asked",
    "choices_of",
    "completed",
    "lister_of",
    "opened_for",
    "running_profile",
]

# The options that a model has settled, beside those of its encoding.
_OF_A_MODEL = ("epsilon", "delta", "noise", "loss", "regularization", "label_bound", "seed")


@dataclass(frozen=True, kw_only=True)
class ProfileJob(TableJob):
    """A table, and the model to release of it, or the one that was.

    ``group_column``  says whose row each row is, where persons are profiled and not rows.
    ``ledger``        lists the release, or tells of the model; None: the one in its folder.
    """

    epsilon: float | None = None
    group_column: str | None = None
    model: Path | None = None
    ledger: Path | None = None

    @property
    def keeps_model(self) -> bool:
        """Whether the model to profile is the one in the folder of the results."""
        return self.model is not None and is_same_file(self.model, self.out / MODEL)

    @property
    def lost(self) -> str:
        """What writing over an earlier run costs."""
        if self.keeps_model:
            return ""
        return " (a model.json in it is then lost, but what it spent is not)"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it: the results, and the files that hold them."""

    release: Release
    profile: Profile
    summary: Summary
    files: dict[str, Path]


def check_asked(job: ProfileJob) -> None:
    """Refuse what no table can make right, before one is read."""
    if job.group_column is not None and job.id_column is not None:
        raise InvalidInput(
            "--id: leave it out beside --group, whose persons are the keys of every result."
        )
    if job.group_column == job.target:
        raise InvalidInput(f"--group {job.group_column!r}: is the target; name another column.")
    if job.model is None:
        check_options(job, job.epsilon)
    else:
        refuse_fixed(job, "model", (*_OF_A_MODEL, "classes", *OF_AN_ENCODING, "encoding"))


def opened_for(job: ProfileJob, release: Release | None) -> tuple[Table, Encoding]:
    """The table, as the model reads it if there is one; no row is held."""
    if release is None:
        return opened(job, job.group_column)
    if release.encoding is None:
        raise InvalidInput(
            f"{job.model}: was not made from a table; profile it in Python with expost.profile."
        )
    encoding = Encoding.from_json(release.encoding)
    if encoding.target.column != job.target:
        raise InvalidInput(
            f"target={job.target!r}: the model predicts {encoding.target.column!r}; name that."
        )
    check_no_feature(job.group_column, encoding, "model")
    table = encoding.open(job.source, **key_options(job.id_column, job.group_column))
    return table, encoding


def completed(release: Release, encoding: Encoding) -> Release:
    """The release with the encoding as part of it."""
    return replace(
        release,
        encoding=encoding.to_json(),
        feature_names=encoding.feature_names,
        read_from_data=(*encoding.read_from_data, *release.read_from_data),
    )


@contextmanager
def running_profile(
    job: ProfileJob, given: Release | None, table: Table, *, blocks: bool
) -> Iterator[Run]:
    """Run the job; ``given`` is the model to profile, if none is to be drawn."""
    encoding = None if job.encoding is None else job.encoding.read_bytes()
    more = {
        "model": None if given is None else given.to_json()["sha256"],
        "encoding": None if encoding is None else hashlib.sha256(encoding).hexdigest(),
        "rows": table.rows,
    }
    with running(
        job.out,
        task_of("profile", job, more),
        resume=job.streaming.resume,
        force=job.force,
        blocks=blocks,
        lost=job.lost,
        inputs=[path for path in inputs_of(job) if not (job.keeps_model and path == job.model)],
        releases=() if job.keeps_model else (MODEL,),
    ) as begun:
        yield begun


def lister_of(
    job: ProfileJob, release: Release, digest: Callable[[Ledger], str], run: Run
) -> Lister:
    """Lists the release; to be called when all of it is on the disk, and before it appears, so
    that no crash leaves a release that is not listed."""
    path, written = job.out / MODEL, release.to_json()

    def entries(data: str) -> tuple[Entry, ...]:
        lines = release.entries(written, name=str(path), made=now(), data=data)
        return tuple(replace(line, run=run.identity) for line in lines)

    return Lister(ledgers_for(job.out, job.ledger), digest, entries)


def choices_of(job: ProfileJob, encoding: Encoding, release: Release) -> tuple[Choice, ...]:
    """Every constant that shaped the result, and where it came from."""
    how, ball = release.mechanism, release.ball
    settled = None if job.model is None else Origin.MODEL
    chosen = Chosen(job=job, encoding=encoding, settled=settled)
    source = "a seed" if release.seeded else "the operating system"
    randomness = source if how.is_private else "none, epsilon is infinite"
    intercept = f"{ball.intercept_scaling:g} in each row" if ball.fit_intercept else "none"
    return (
        *chosen.target(how),
        chosen.choice("epsilon", f"{how.epsilon:g}", job.epsilon),
        *chosen.model(how, intercept=intercept),
        chosen.choice("randomness", randomness, job.seed),
        *chosen.table(),
        *_grouped(job),
    )


def _grouped(job: ProfileJob) -> tuple[Choice, ...]:
    """Whose row each row is; no model has settled that."""
    if job.group_column is None:
        return ()
    return (Choice(name="persons", value=f"by {job.group_column!r}", origin=Origin.GIVEN),)
