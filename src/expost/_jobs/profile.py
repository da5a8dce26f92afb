"""``expost profile``: release one model of a table, profile it, write the report.

θ is drawn once, and model.json is on the disk before anything is computed from it; the ledger lists
it before it is there to be seen. A model that exists is copied only after its rows have been found
to be the right ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from expost._files import write_bytes, write_json
from expost._groups import Grouping
from expost._jobs.choices import Chosen
from expost._jobs.folder import check_folder, remove_stale, writing
from expost._jobs.ledger import Lister, check_ledgers, ledgers_for, model_notices
from expost._jobs.pages import made_now, write_summary
from expost._jobs.table import (
    OF_AN_ENCODING,
    Rows,
    TableJob,
    check_no_feature,
    check_options,
    key_options,
    noted,
    read_rows,
    refuse_fixed,
)
from expost._ledger import Entry, now
from expost._privacy_profile import PrivacyProfile
from expost._profile import profile
from expost._progress import SILENT, Progress
from expost.data import Encoding, NumericEntry
from expost.errors import InvalidInput
from expost.estimators import ESTIMATORS
from expost.glm import minimise
from expost.mechanisms import Release
from expost.report import Accuracy, Choice, Origin, Summary, collect, render_html
from expost.types import FloatArray

__all__ = ["PHASES", "Outcome", "ProfileJob", "run"]

# How often `run` reports a phase.
PHASES = 6
# The options that a model has settled, beside those of its encoding.
_OF_A_MODEL = ("epsilon", "delta", "noise", "loss", "regularization", "label_bound", "seed")
# Columns with more levels than this say little as groups.
_MOST_LEVELS = 50
# Columns that are read in one pass over the table.
_COLUMNS_A_PASS = 16


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


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it: the results, and the files that hold them."""

    release: Release
    profile: PrivacyProfile
    summary: Summary
    files: dict[str, Path]


def run(job: ProfileJob, progress: Progress = SILENT) -> Outcome:
    """Do the job; ``progress`` is told of ``PHASES`` phases."""
    with noted() as notes:
        _check(job)
        progress.phase("reading the table")
        loaded = None if job.model is None else Release.load(job.model)
        rows = _read_for(job, loaded)
        progress.phase("fitting the model")
        files = {"model": job.out / "model.json"}
        if loaded is None:
            release = _released(job, rows)
            # Stored before anything is computed from it: no second one is ever drawn.
            lister = _store_new(job, release, rows)
            files["ledger"], listed = lister.ledgers[0], lister.notices
        else:
            release = loaded
            assert job.model is not None
            listed = model_notices(job.model, job.ledger, rows.digest)
        ids, groups = (rows.ids, None) if job.group_column is None else (None, rows.ids)
        progress.phase(f"finding every {'row' if groups is None else 'person'}'s neighbour")
        result = profile(release, rows.encoded.X, rows.labels, ids=ids, groups=groups)
        progress.phase("averaging over the models it might have been")
        _ = result.typical
        progress.phase("collecting the report")
        found = _Found(rows=rows, release=release, result=result)
        summary = _summary(job, found, [*listed, *notes()])
        progress.phase("writing the report")
        if loaded is not None:
            _store_copy(job, release)
        files |= _write(job.out, rows.encoding, result, summary)
    return Outcome(release=release, profile=result, summary=summary, files=files)


def _check(job: ProfileJob) -> None:
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
    kept = job.model is not None and job.model.resolve() == (job.out / "model.json").resolve()
    lost = "" if kept else " (a model.json in it is then lost, but what it spent is not)"
    check_folder(job.out, force=job.force, lost=lost)
    if job.model is None:
        check_ledgers(ledgers_for(job.out, job.ledger), job.out)


def _store_new(job: ProfileJob, release: Release, rows: Rows) -> Lister:
    """Write the model.json that was drawn; when all of it is on the disk, and before it appears,
    it is listed, so that no crash leaves a release that is not."""
    path, value = job.out / "model.json", release.to_json()

    def entries(data: str) -> tuple[Entry, ...]:
        named = {"name": str(path), "made": now(), "data": data}
        return (Entry.of_model(release, value["sha256"], **named),)

    lister = Lister(ledgers_for(job.out, job.ledger), rows.digest, entries)
    with writing(job.out, "nothing was released; free some space, or name another folder"):
        # Results of an earlier run belong to another model.
        remove_stale(job.out, keep=[job.encoding])
        write_json(path, release.audience, value, before=lister)
    return lister


def _store_copy(job: ProfileJob, release: Release) -> None:
    """Write a copy of the model.json that was given."""
    assert job.model is not None
    given = job.model.read_bytes()
    with writing(job.out, "nothing was released; free some space, or name another folder"):
        remove_stale(job.out, keep=[job.encoding])
        write_bytes(job.out / "model.json", release.audience, given)


def _read_for(job: ProfileJob, loaded: Release | None) -> Rows:
    """The table, as the model reads it if there is one."""
    if loaded is None:
        return read_rows(job, group=job.group_column)
    if loaded.encoding is None:
        raise InvalidInput(
            f"{job.model}: was not made from a table; profile it in Python with expost.profile."
        )
    encoding = Encoding.from_json(loaded.encoding)
    if encoding.target.column != job.target:
        raise InvalidInput(
            f"target={job.target!r}: the model predicts {encoding.target.column!r}; name that."
        )
    check_no_feature(job.group_column, encoding, "model")
    table = encoding.open(job.source, **key_options(job.id_column, job.group_column))
    return Rows(table=table, encoding=encoding, encoded=encoding.encode_table(table))


def _released(job: ProfileJob, rows: Rows) -> Release:
    """Fit and release one model, with the encoding as part of it."""
    encoding = rows.encoding
    options: dict[str, Any] = {
        "epsilon": 1.0 if job.epsilon is None else job.epsilon,
        "delta": job.delta,
        "mechanism": job.mechanism or "output",
        "noise": job.noise or "laplace",
        "regularization": "auto" if job.regularization is None else job.regularization,
        "random_state": job.seed,
        **rows.bounds,
    }
    if encoding.target.classes is None:
        options["label_bound"] = job.label_bound
    estimator = ESTIMATORS[job.loss or "logistic"](**options)
    release: Release = estimator.fit(rows.encoded.X, rows.labels).release_
    return replace(
        release,
        encoding=encoding.to_json(),
        feature_names=encoding.feature_names,
        read_from_data=(*encoding.read_from_data, *release.read_from_data),
    )


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The rows, the model, and what it gives away of them."""

    rows: Rows
    release: Release
    result: PrivacyProfile


def _summary(job: ProfileJob, found: _Found, notes: list[str]) -> Summary:
    rows, result = found.rows, found.result
    encoding = rows.encoding
    explanation = result.explain(
        _readable(encoding, rows.encoded.X), feature_names=encoding.feature_names
    )
    return collect(
        result,
        release=found.release,
        source=job.name,
        made=made_now(),
        choices=_choices(job, encoding, found.release),
        accuracy=_accuracy(found),
        groups=tuple(sorted(_groups(found), key=_unevenness, reverse=True)),
        explanation=explanation,
        notices=(*rows.notices, *notes),
    )


def _groups(found: _Found) -> Iterator[Grouping]:
    """The exposures by each column of numbers or of few levels, a few columns at a time."""
    names = [
        entry.name
        for entry in found.rows.encoding.entries
        if entry.kind == "numeric" or len(entry.features) <= _MOST_LEVELS
    ]
    for start in range(0, len(names), _COLUMNS_A_PASS):
        some = names[start : start + _COLUMNS_A_PASS]
        cells = pa.Table.from_batches(found.rows.table.blocks(columns=some))
        for name in some:
            yield found.result.by(cells.column(name).combine_chunks(), name=name)


def _unevenness(grouping: Grouping) -> float:
    """How far the exposed rows are spread over the groups otherwise than all rows are."""
    return sum(abs(group.top_share - group.share) for group in grouping.groups)


def _readable(encoding: Encoding, X: FloatArray) -> FloatArray:
    """The features in the units of the table, for a person to read."""
    readable = X.copy()
    position = 0
    for entry in encoding.entries:
        if isinstance(entry, NumericEntry):
            readable[:, position] = X[:, position] * entry.scale + entry.mean
        position += len(entry.features)
    return readable


def _choices(job: ProfileJob, encoding: Encoding, release: Release) -> tuple[Choice, ...]:
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


def _accuracy(found: _Found) -> Accuracy:
    """How good the released model is on these rows, beside knowing nothing and beside ε = ∞."""
    release, near = found.release, found.result.neighbours
    problem = release.problem(found.rows.encoded.X, found.rows.labels)
    exact = minimise(problem).theta if near is None else near.base
    released, noiseless = (problem.X @ theta for theta in (release.theta, exact))
    if release.classes is None:
        spread = float(np.var(problem.y)) or 1.0
        scores = [1 - float(np.mean((z - problem.y) ** 2)) / spread for z in (released, noiseless)]
        return Accuracy(measure="R²", released=scores[0], base_rate=0.0, noiseless=scores[1])
    share = float(np.mean(problem.y > 0))
    hits = [float(np.mean((z > 0) == (problem.y > 0))) for z in (released, noiseless)]
    return Accuracy(released=hits[0], base_rate=max(share, 1 - share), noiseless=hits[1])


def _write(
    out: Path, encoding: Encoding, result: PrivacyProfile, summary: Summary
) -> dict[str, Path]:
    """The curator's files, each whole or absent."""
    page = render_html(summary).encode()
    remedy = "model.json is there: free some space, and profile it with --model"
    with writing(out, remedy):
        encoding_file = encoding.save(out / encoding.audience.file_name("encoding", "json"))
        json_file = result.to_json(out / "profile.json")
        assert isinstance(json_file, Path)
        table_file = result.to_parquet(out / "profile.parquet")
        report = out / summary.audience.file_name("report", "html")
        write_bytes(report, summary.audience, page)
        summary_file = write_summary(out, summary)
    return {
        "encoding": encoding_file,
        "profile": json_file,
        "table": table_file,
        "summary": summary_file,
        "report": report,
    }
