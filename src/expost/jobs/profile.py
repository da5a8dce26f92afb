"""``expost profile``: release one model of a table, profile it, write the report.

θ is drawn once, and model.json is on the disk before anything is computed from it; the ledger lists
it before it is there to be seen. A model that exists is copied only after its rows have been found
to be the right ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from expost.data import Encoding, NumericEntry
from expost.engine.progress import SILENT, Progress
from expost.files.atomic import write_bytes
from expost.glm import minimise
from expost.groups.exposure import Grouping
from expost.jobs import stream_profile
from expost.jobs.ledger import Lister, check_ledgers, ledgers_for, model_notices
from expost.jobs.model_file import (
    MODEL,
    copy_model,
    drawn_before,
    drawn_in,
    store_drawn,
    store_model,
)
from expost.jobs.output import check_place, writing
from expost.jobs.pages import write_summary
from expost.jobs.profile_asked import (
    Outcome,
    ProfileJob,
    check_asked,
    choices_of,
    completed,
    estimator_of,
    lister_of,
    opened_for,
    running_profile,
)
from expost.jobs.runs import Run
from expost.jobs.streaming import is_streamed
from expost.jobs.table import Rows, noted
from expost.profiles.profile import Profile
from expost.profiles.verb import profile
from expost.release import Release
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
        table, encoding = opened_for(job, loaded or _drawn_before(job))
        blocks = is_streamed(job.streaming, job.out, table.rows, len(encoding.feature_names))
        with running_profile(job, loaded, table, blocks=blocks) as begun:
            if blocks:
                opened = (table, encoding)
                return stream_profile.run(job, loaded, opened, begun, notes, progress)
            rows = Rows(table=table, encoding=encoding, encoded=encoding.encode_table(table))
            return _in_memory(job, loaded, rows, begun, notes, progress)


def _check(job: ProfileJob) -> None:
    """Refuse what no table can make right, before one is read."""
    check_asked(job)
    check_place(job.out, resume=job.streaming.resume, force=job.force, lost=job.lost)
    if job.model is None:
        check_ledgers(ledgers_for(job.out, job.ledger), job.out)


def _drawn_before(job: ProfileJob) -> Release | None:
    """The model that the run which is to be resumed has drawn, if it has."""
    drawn = drawn_before(job.out, job.ledger) if job.streaming.resume else None
    return None if drawn is None else drawn.release


def _in_memory(
    job: ProfileJob,
    loaded: Release | None,
    rows: Rows,
    begun: Run,
    notes: Callable[[], list[str]],
    progress: Progress,
) -> Outcome:
    progress.phase("fitting the model")
    files = {"model": job.out / MODEL}
    if loaded is None:
        release, lister, fitting = _released(job, rows, begun, notes)
        files["ledger"], listed = lister.ledgers[0], lister.notices
    else:
        release, fitting = loaded, ()
        assert job.model is not None
        listed = model_notices(job.model, job.ledger, rows.digest)
    before = len(notes())
    ids, groups = (rows.ids, None) if job.group_column is None else (None, rows.ids)
    progress.phase(f"finding every {'row' if groups is None else 'person'}'s neighbour")
    result = profile(release, rows.encoded.X, rows.labels, ids=ids, groups=groups)
    progress.phase("averaging over the models it might have been")
    _ = result.expected
    progress.phase("collecting the report")
    found = _Found(rows=rows, release=release, result=result)
    noticed = [*listed, *fitting, *notes()[before if loaded is None else 0 :]]
    summary = _summary(job, found, noticed, begun.made)
    progress.phase("writing the report")
    if loaded is not None:
        with writing(job.out, "nothing was released; free some space, or name another folder"):
            copy_model(begun, loaded, job.model)
    files |= _write(job.out, rows.encoding, result, summary)
    return Outcome(release=release, profile=result, summary=summary, files=files)


def _released(
    job: ProfileJob, rows: Rows, begun: Run, notes: Callable[[], list[str]]
) -> tuple[Release, Lister, tuple[str, ...]]:
    """The one model of this run, stored before anything is computed from it."""
    drawn = drawn_in(begun, job.ledger)
    if drawn is not None:
        lister = lister_of(job, drawn.release, rows.digest, begun)
        store_drawn(begun, drawn, lister)
        return drawn.release, lister, drawn.fitting
    fitted = estimator_of(job, rows.encoding).fit(rows.encoded.X, rows.labels)
    release = completed(fitted.release_, rows.encoding)
    lister, fitting = lister_of(job, release, rows.digest, begun), tuple(notes())
    store_model(begun, release, lister, reading=rows.notices, fitting=fitting)
    return release, lister, fitting


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The rows, the model, and what it gives away of them."""

    rows: Rows
    release: Release
    result: Profile


def _summary(job: ProfileJob, found: _Found, notes: list[str], made: str) -> Summary:
    rows, result = found.rows, found.result
    encoding = rows.encoding
    explanation = result.explain(
        _readable(encoding, rows.encoded.X), feature_names=encoding.feature_names
    )
    return collect(
        result,
        release=found.release,
        source=job.name,
        made=made,
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
    released, noiseless = (problem.held.X @ theta for theta in (release.theta, exact))
    if release.classes is None:
        spread = float(np.var(problem.held.y)) or 1.0
        scores = [
            1 - float(np.mean((z - problem.held.y) ** 2)) / spread for z in (released, noiseless)
        ]
        return Accuracy(measure="R²", released=scores[0], base_rate=0.0, noiseless=scores[1])
    share = float(np.mean(problem.held.y > 0))
    hits = [float(np.mean((z > 0) == (problem.held.y > 0))) for z in (released, noiseless)]
    return Accuracy(released=hits[0], base_rate=max(share, 1 - share), noiseless=hits[1])


def _write(out: Path, encoding: Encoding, result: Profile, summary: Summary) -> dict[str, Path]:
    """The curator's files, each whole or absent."""
    page = render_html(summary).encode()
    with writing(out, "free some space, and continue with --resume"):
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
