"""The options of ``expost profile``: their checks, the table they open, the origin of settings."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expost import _checks
from expost.data import Encoding, Table
from expost.engine import Engine
from expost.errors import InvalidInput
from expost.jobs.requests import ProfileRequest
from expost.jobs.streaming import is_streamed
from expost.jobs.table import (
    OF_AN_ENCODING,
    Chosen,
    budget_of,
    check_no_feature,
    check_options,
    key_options,
    model_encoding,
    opened,
    refuse_fixed,
)
from expost.neighbouring.persons import read_persons
from expost.profiles.profile import Profile
from expost.profiles.verb import checked_top
from expost.release import Release
from expost.report import Origin, Page, Setting

__all__ = [
    "Outcome",
    "check_request",
    "open_for_profile",
    "settings_of",
]

# The options that a model fixes, in addition to those of its encoding.
_OF_A_MODEL = (
    *("epsilon", "delta", "max_rows_per_person", "noise", "loss", "regularization"),
    "private_encoding",
    *("label_range", "margin", "seed"),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The release, its profile and page, and the files that hold them."""

    release: Release
    profile: Profile
    page: Page
    files: dict[str, Path]


def check_request(job: ProfileRequest) -> None:
    """Refuse options that are wrong for every table, before one is read."""
    if job.person_column is not None and job.id_column is not None:
        raise InvalidInput(
            "--id cannot be combined with --person, which identifies the lines of every result."
        )
    if job.person_column == job.target:
        raise InvalidInput(f"--person {job.person_column!r}: is the target; name another column.")
    if job.max_rows_per_person is not None:
        _checks.integer("max_rows_per_person", job.max_rows_per_person, least=1)
    for name in ("max_rows_per_person", "cap_rows"):
        if job.is_given(name) and job.person_column is None:
            option = "--" + name.replace("_", "-")
            raise InvalidInput(f"{option}: name the column of persons with --person.")
    checked_top(job.top, noisy=job.model is None and job.epsilon < math.inf)
    if job.cap_rows and job.model is None and job.max_rows_per_person is None:
        raise InvalidInput("--cap-rows: give the number of rows with --max-rows-per-person.")
    if job.model is None:
        check_options(job, job.epsilon)
    else:
        refuse_fixed(job, "model", (*_OF_A_MODEL, "classes", *OF_AN_ENCODING, "encoding"))


def open_for_profile(
    job: ProfileRequest, release: Release | None, engine: Engine | None = None
) -> tuple[Table, Encoding]:
    """Open the table, with the encoding of the model if there is one; no row is held."""
    if release is None:
        histograms = budget_of(
            job,
            epsilon=job.epsilon,
            rows_per_person=job.max_rows_per_person or 1,
            random_state=job.seed,
            private_encoding=job.private_encoding,
        ).histogram_release()
        return opened(
            job,
            job.person_column,
            lambda table: limited(job, table, None),
            release=histograms,
            engine=engine,
        )
    remedy = "profile it in Python with expost.profile"
    encoding = model_encoding(release, job.model, job.target, remedy=remedy)
    check_no_feature(job.person_column, encoding, "model")
    keys = key_options(job.id_column, job.person_column)
    table = encoding.open(job.source, engine=engine, **keys)
    return limited(job, table, release), encoding


def limited(job: ProfileRequest, table: Table, release: Release | None) -> Table:
    """Return the table with at most as many rows of a person as the model is calibrated to.

    More are left out with ``--cap-rows``, and refused if a model is to be drawn.
    """
    most = job.max_rows_per_person
    if job.model is not None and release is not None:
        most = release.mechanism.rows_per_person if job.cap_rows else None
    # Persons in blocks are refused later, and nothing may be held.
    blocks = is_streamed(job.streaming, job.out, table.rows, len(table.names))
    if job.person_column is None or most is None or blocks:
        return table
    if job.model is not None and most == 1:
        raise InvalidInput("--cap-rows: the model is calibrated to single rows; leave it out.")
    persons = read_persons(table.column(job.person_column).to_pylist(), table.rows)
    if persons.largest <= most:
        return table
    beyond = int(np.count_nonzero(persons.sizes > most))
    persons_have = "1 person has" if beyond == 1 else f"{beyond:,} persons have"
    if not job.cap_rows:
        raise InvalidInput(
            f"--max-rows-per-person {most}: {persons_have} more rows (at most {persons.largest:,});"
            f" keep the first {most} of each with --cap-rows, or raise the limit."
        )
    kept = persons.first_rows(most)
    left = table.rows - len(kept)
    kept_out = f"{left:,} of {table.rows:,} rows were left out (--cap-rows)"
    notice = f"{kept_out}: {persons_have} more than {most}."
    return table.kept(kept, notice)


def settings_of(job: ProfileRequest, encoding: Encoding, release: Release) -> tuple[Setting, ...]:
    """Return every constant that the result depends on, and its origin."""
    mechanism, ball = release.mechanism, release.ball
    settled = None if job.model is None else Origin.MODEL
    chosen = Chosen(job=job, encoding=encoding, settled=settled)
    source = "a seed" if release.seeded else "the operating system"
    randomness = source if mechanism.is_private else "none, epsilon is infinite"
    intercept = f"{ball.intercept_scaling:g} in each row" if ball.fit_intercept else "none"
    return (
        *chosen.target(release.label_scale),
        chosen.setting("epsilon", f"{mechanism.epsilon:g}", job.is_given("epsilon")),
        *chosen.model(mechanism, intercept=intercept),
        chosen.setting("randomness", randomness, job.seed is not None),
        *chosen.table(),
        *_persons(job, mechanism.rows_per_person),
    )


def _persons(job: ProfileRequest, rows_per_person: int) -> tuple[Setting, ...]:
    """Return the settings of persons: their column, and the rows each may have."""
    settings = []
    if job.person_column is not None:
        by = f"by {job.person_column!r}"
        settings.append(Setting(name="persons", value=by, origin=Origin.GIVEN))
    if rows_per_person > 1:
        origin = Origin.GIVEN if job.model is None else Origin.MODEL
        most = f"at most {rows_per_person:,}" + (", others left out" if job.cap_rows else "")
        settings.append(Setting(name="rows per person", value=most, origin=origin))
    return tuple(settings)
