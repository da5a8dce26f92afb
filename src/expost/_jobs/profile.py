"""``expost profile``: release one model of a table, profile it, write the report.

θ is drawn once, and model.json is on the disk before anything is computed from it; the ledger lists
it before it is there to be seen. A model that exists is copied only after its rows have been found
to be the right ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from expost._files import write_bytes, write_json
from expost._groups import Grouping
from expost._jobs import stream_profile
from expost._jobs.folder import remove_stale, writing
from expost._jobs.ledger import Lister, check_ledgers, ledgers_for, model_notices
from expost._jobs.pages import made_now, write_summary
from expost._jobs.profile_asked import (
    Outcome,
    ProfileJob,
    check_asked,
    choices_of,
    completed,
    estimator_of,
    lister_of,
    opened_for,
)
from expost._jobs.streaming import abandon, check_place, is_streamed
from expost._jobs.table import Rows, noted
from expost._privacy_profile import PrivacyProfile
from expost._profile import profile
from expost._progress import SILENT, Progress
from expost.data import Encoding, NumericEntry
from expost.glm import minimise
from expost.mechanisms import Release
from expost.report import Accuracy, Summary, collect, render_html
from expost.types import FloatArray

__all__ = ["PHASES", "Outcome", "ProfileJob", "run"]

# How often `run` reports a phase.
PHASES = 6
# Columns with more levels than this say little as groups.
_MOST_LEVELS = 50
# Columns that are read in one pass over the table.
_COLUMNS_A_PASS = 16


def run(job: ProfileJob, progress: Progress = SILENT) -> Outcome:
    """Do the job; ``progress`` is told of ``PHASES`` phases."""
    with noted() as notes:
        _check(job)
        progress.phase("reading the table")
        loaded = None if job.model is None else Release.load(job.model)
        known = loaded or stream_profile.drawn_before(job)
        table, encoding = opened_for(job, known)
        if is_streamed(job.streaming, table.rows, len(encoding.feature_names)):
            return stream_profile.run(job, loaded, (table, encoding), notes, progress)
        rows = Rows(table=table, encoding=encoding, encoded=encoding.encode_table(table))
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
    check_asked(job)
    check_place(job.out, job.streaming, force=job.force, lost=job.lost)
    if job.model is None:
        check_ledgers(ledgers_for(job.out, job.ledger), job.out)


def _released(job: ProfileJob, rows: Rows) -> Release:
    """Fit and release one model, with the encoding as part of it."""
    fitted = estimator_of(job, rows.encoding).fit(rows.encoded.X, rows.labels)
    return completed(fitted.release_, rows.encoding)


def _store_new(job: ProfileJob, release: Release, rows: Rows) -> Lister:
    """Write the model.json that was drawn; it is listed before it appears."""
    lister = lister_of(job, release, rows.digest)
    with writing(job.out, "nothing was released; free some space, or name another folder"):
        # Results of an earlier run belong to another model.
        abandon(job.out)
        remove_stale(job.out, keep=[job.encoding])
        write_json(job.out / "model.json", release.audience, release.to_json(), before=lister)
    return lister


def _store_copy(job: ProfileJob, release: Release) -> None:
    """Write a copy of the model.json that was given."""
    assert job.model is not None
    given = job.model.read_bytes()
    with writing(job.out, "nothing was released; free some space, or name another folder"):
        abandon(job.out)
        remove_stale(job.out, keep=[job.encoding])
        write_bytes(job.out / "model.json", release.audience, given)


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
        choices=choices_of(job, encoding, found.release),
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
