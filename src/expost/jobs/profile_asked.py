"""The options of ``expost profile``: checked, the table that they open, where choices come from."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expost import _checks
from expost.data import Encoding, Table
from expost.errors import InvalidInput
from expost.estimators import PrivateLogisticRegression
from expost.files.atomic import is_same_file
from expost.jobs.ledger import MODEL
from expost.jobs.streaming import is_streamed
from expost.jobs.table import (
    OF_AN_ENCODING,
    Chosen,
    TableJob,
    check_no_feature,
    check_options,
    key_options,
    model_encoding,
    opened,
    refuse_fixed,
)
from expost.losses import Loss
from expost.neighbouring.persons import read_persons
from expost.profiles.profile import Profile
from expost.release import Release
from expost.report import Choice, Origin, Summary

__all__ = [
    "Outcome",
    "ProfileJob",
    "check_asked",
    "choices_of",
    "opened_for",
]

# The options that a model has settled, beside those of its encoding.
_OF_A_MODEL = (
    *("epsilon", "delta", "max_rows_per_person", "noise", "loss", "regularization"),
    *("label_range", "margin", "seed"),
)


@dataclass(frozen=True, kw_only=True)
class ProfileJob(TableJob):
    """A table, and the model to release of it, or the one that was.

    ``margin``               that of the logistic loss, or "auto".
    ``person_column``        identifies the person of each row; persons are profiled, not rows.
    ``max_rows_per_person``  the number of rows of a person that ε and δ are calibrated to.
    ``cap_rows``             whether rows beyond that number are left out; else they are refused.
    ``ledger``               lists the release, or names the model; None: the one in its folder.
    """

    epsilon: float | None = None
    margin: float | str | None = None
    person_column: str | None = None
    max_rows_per_person: int | None = None
    cap_rows: bool = False
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
    if job.person_column is not None and job.id_column is not None:
        raise InvalidInput(
            "--id: leave it out beside --person, whose persons are the keys of every result."
        )
    if job.person_column == job.target:
        raise InvalidInput(f"--person {job.person_column!r}: is the target; name another column.")
    if job.max_rows_per_person is not None:
        _checks.whole("max_rows_per_person", job.max_rows_per_person, least=1)
    for name in ("max_rows_per_person", "cap_rows"):
        if getattr(job, name) and job.person_column is None:
            option = "--" + name.replace("_", "-")
            raise InvalidInput(f"{option}: name the column of persons with --person.")
    if job.cap_rows and job.model is None and job.max_rows_per_person is None:
        raise InvalidInput("--cap-rows: say with --max-rows-per-person how many rows are kept.")
    if job.model is None:
        check_options(job, job.epsilon)
        _check_margin(job)
    else:
        refuse_fixed(job, "model", (*_OF_A_MODEL, "classes", *OF_AN_ENCODING, "encoding"))


def _check_margin(job: ProfileJob) -> None:
    """Refuse a margin that no logistic loss has, or that of another loss."""
    if job.margin is None:
        return
    if job.loss not in (None, "logistic"):
        raise InvalidInput(
            f"margin={job.margin!r}: only the logistic loss has one; leave --margin or --loss out."
        )
    PrivateLogisticRegression(margin=job.margin).loss_of(2)


def opened_for(job: ProfileJob, release: Release | None) -> tuple[Table, Encoding]:
    """The table, as the model reads it if there is one; no row is held."""
    if release is None:
        return opened(job, job.person_column, lambda table: limited(job, table, None))
    remedy = "profile it in Python with expost.profile"
    encoding = model_encoding(release, job.model, job.target, remedy=remedy)
    check_no_feature(job.person_column, encoding, "model")
    table = encoding.open(job.source, **key_options(job.id_column, job.person_column))
    return limited(job, table, release), encoding


def limited(job: ProfileJob, table: Table, release: Release | None) -> Table:
    """Return the table with at most as many rows of a person as the model is calibrated to.

    More are left out with ``--cap-rows``, and refused where a model is to be drawn.
    """
    most = job.max_rows_per_person
    if job.model is not None and release is not None:
        most = release.mechanism.rows_per_person if job.cap_rows else None
    # In blocks persons are refused later, and nothing may be held.
    blocks = is_streamed(job.streaming, job.out, table.rows, len(table.names))
    if job.person_column is None or most is None or blocks:
        return table
    if job.model is not None and most == 1:
        raise InvalidInput("--cap-rows: the model is calibrated to single rows; leave it out.")
    persons = read_persons(table.column(job.person_column).to_pylist(), table.rows)
    if persons.largest <= most:
        return table
    beyond = int(np.count_nonzero(persons.sizes > most))
    who = "1 person has" if beyond == 1 else f"{beyond:,} persons have"
    if not job.cap_rows:
        raise InvalidInput(
            f"--max-rows-per-person {most}: {who} more rows, the most {persons.largest:,}; keep the"
            f" first {most} of each with --cap-rows, or raise the limit."
        )
    kept = persons.first_rows(most)
    left = table.rows - len(kept)
    notice = f"{left:,} of {table.rows:,} rows were left out (--cap-rows): {who} more than {most}."
    return table.kept(kept, notice)


def choices_of(job: ProfileJob, encoding: Encoding, release: Release) -> tuple[Choice, ...]:
    """Every constant that shaped the result, and where it came from."""
    how, ball = release.mechanism, release.ball
    settled = None if job.model is None else Origin.MODEL
    chosen = Chosen(job=job, encoding=encoding, settled=settled)
    source = "a seed" if release.seeded else "the operating system"
    randomness = source if how.is_private else "none, epsilon is infinite"
    intercept = f"{ball.intercept_scaling:g} in each row" if ball.fit_intercept else "none"
    return (
        *chosen.target(release.label_scale),
        chosen.choice("epsilon", f"{how.epsilon:g}", job.epsilon),
        *chosen.model(how, intercept=intercept),
        *_margin(chosen, job, how.loss),
        chosen.choice("randomness", randomness, job.seed),
        *chosen.table(),
        *_persons(job, how.rows_per_person),
    )


def _margin(chosen: Chosen, job: ProfileJob, loss: Loss) -> tuple[Choice, ...]:
    """Return the margin of the loss, where it has one or was asked for one."""
    margin = getattr(loss, "margin", 0.0)
    if not margin and job.margin is None:
        return ()
    asked = None if job.margin == "auto" else job.margin
    return (chosen.choice("margin", f"{margin:.6g}", asked, Origin.RULE),)


def _persons(job: ProfileJob, rows_per_person: int) -> tuple[Choice, ...]:
    """Whose row each row is, which no model has settled, and how many a person may have."""
    choices = []
    if job.person_column is not None:
        by = f"by {job.person_column!r}"
        choices.append(Choice(name="persons", value=by, origin=Origin.GIVEN))
    if rows_per_person > 1:
        origin = Origin.GIVEN if job.model is None else Origin.MODEL
        most = f"at most {rows_per_person:,}" + (", others left out" if job.cap_rows else "")
        choices.append(Choice(name="rows per person", value=most, origin=origin))
    return tuple(choices)
