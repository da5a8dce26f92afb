"""The main job, from a table to a folder: release one model, profile it, write the report.

θ is drawn once, and model.json is on the disk before anything is computed from it. A model that
exists is copied only after its rows have been found to be the right ones.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from expost import _validate
from expost._files import read_json, write_bytes
from expost._groups import Grouping
from expost._profile import PrivacyProfile, profile
from expost.data import (
    Encoded,
    Encoding,
    LevelEntry,
    Mark,
    NumericEntry,
    Table,
    open_table,
)
from expost.errors import InvalidInput, PrivacyLeakWarning, SeededReleaseWarning
from expost.estimators import ESTIMATORS
from expost.losses import make_loss
from expost.mechanisms import OutputPerturbation, Release
from expost.report import Accuracy, Choice, Origin, Summary, collect, render_html
from expost.types import Audience, FloatArray

__all__ = ["PHASES", "Job", "Outcome", "run"]

# How often `run` reports a phase.
PHASES = 5
_MISSING = ("", "?")
# The options that a model, or a whole encoding, has settled.
_OF_A_MODEL = ("epsilon", "delta", "noise", "loss", "regularization", "label_bound", "seed")
_OF_AN_ENCODING = ("data_norm", "drop", "missing")
# Columns with more levels than this say little as groups.
_MOST_LEVELS = 50
# Columns that are read in one pass over the table.
_COLUMNS_A_PASS = 16
# What a run leaves beside model.json.
_RESULTS = tuple(
    audience.file_name(stem, suffix)
    for audience in (Audience.PASS, Audience.FAIL)
    for stem, suffix in (
        ("encoding", "json"),
        ("profile", "json"),
        ("profile", "parquet"),
        ("report", "html"),
    )
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a person asked for; None where the default stands or the data decides."""

    source: Any
    target: str
    out: Path
    name: str
    epsilon: float | None = None
    delta: float | None = None
    noise: str | None = None
    loss: str | None = None
    regularization: float | str | None = None
    data_norm: float | None = None
    label_bound: float | None = None
    classes: tuple[str, str] | None = None
    id_column: str | None = None
    drop: tuple[str, ...] | None = None
    missing: tuple[str, ...] | None = None
    encoding: Path | None = None
    model: Path | None = None
    seed: int | None = None
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it: the results, and the files that hold them."""

    release: Release
    profile: PrivacyProfile
    summary: Summary
    files: dict[str, Path]


def run(job: Job, phase: Callable[[str], None] = lambda name: None) -> Outcome:
    """Do the job; ``phase`` is told what is being done, ``PHASES`` times."""
    with _noted() as notes:
        _check_options(job)
        _check_folder(job)
        phase("reading the table")
        loaded = None if job.model is None else Release.load(job.model)
        table, encoding = _opened(job, loaded)
        encoded = encoding.encode_table(table)
        phase("fitting the model")
        if loaded is None:
            release = _released(job, encoding, encoded)
            # Stored before anything is computed from it: no second one is ever drawn.
            _store_model(job, release)
        else:
            release = loaded
        phase("finding every row's neighbour")
        labels = _labels(encoding, encoded.y)
        ids = None if encoded.ids is None else list(encoded.ids)
        result = profile(release, encoded.X, labels, ids=ids)
        phase("averaging over the models it might have been")
        _ = result.typical
        phase("writing the report")
        found = _Found(
            table=table, encoding=encoding, encoded=encoded, release=release, result=result
        )
        summary = _summary(job, found, notes())
        if loaded is not None:
            _store_model(job, release)
        files = {"model": job.out / "model.json", **_write(job.out, encoding, result, summary)}
    return Outcome(release=release, profile=result, summary=summary, files=files)


@contextmanager
def _noted() -> Iterator[Callable[[], list[str]]]:
    """Turn warnings into notices of the report: at a command line nobody filters them."""
    # The model says these of itself, whole, whenever it is profiled.
    elsewhere = (PrivacyLeakWarning, SeededReleaseWarning)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield lambda: [
            str(entry.message) for entry in caught if not issubclass(entry.category, elsewhere)
        ]


def _check_options(job: Job) -> None:
    """Refuse what no table can make right, before one is read."""
    if job.model is not None:
        _refuse_fixed(job, "model", (*_OF_A_MODEL, "classes", *_OF_AN_ENCODING, "encoding"))
        return
    name = _validate.one_of("loss", job.loss or "logistic", tuple(ESTIMATORS))
    if name != "squared" and job.label_bound is not None:
        raise InvalidInput(
            f"label_bound={job.label_bound!r}: only the squared loss takes one; leave it out, or"
            " take loss='squared'."
        )
    regularization = job.regularization
    if isinstance(regularization, str):
        _validate.one_of("regularization", regularization, ("auto",))
        regularization = None
    # The mechanism checks its own constants; those of the data stand in as the least there are.
    OutputPerturbation(
        epsilon=1.0 if job.epsilon is None else job.epsilon,
        delta=job.delta,
        noise=job.noise or "laplace",
        loss=make_loss(name, label_bound=1.0 if job.label_bound is None else job.label_bound),
        regularization=1.0 if regularization is None else regularization,
        rows=2,
        dimension=1,
    )
    if job.data_norm is not None:
        _validate.positive("data_norm", job.data_norm)
    if job.seed is not None:
        _validate.whole("seed", job.seed, least=0)


def _refuse_fixed(job: Job, owner: str, names: tuple[str, ...]) -> None:
    """What exists has its constants; none can be asked for again."""
    for name in names:
        if getattr(job, name) is not None:
            option = "--" + name.replace("_", "-")
            raise InvalidInput(f"{option}: the {owner} has its own; leave {option} out.")


def _check_folder(job: Job) -> None:
    """Refuse a folder that cannot be written to, or that holds another run, before any work."""
    out = job.out
    nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise InvalidInput(f"out={str(out)!r}: {nearest} is a file; name a folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InvalidInput(
            f"out={str(out)!r}: {nearest} cannot be written to; name another folder, or change its"
            " mode."
        )
    if out.is_dir() and any(out.iterdir()) and not job.force:
        kept = job.model is not None and job.model.resolve() == (out / "model.json").resolve()
        lost = "" if kept else " (a model.json in it is then lost, but what it spent is not)"
        raise InvalidInput(
            f"out={str(out)!r}: is not empty; name another folder, or pass --force to write over"
            f" an earlier run{lost}."
        )


@contextmanager
def _writing(out: Path, remedy: str) -> Iterator[None]:
    """Say what could not be written, and leave no folder behind that is empty."""
    made = [folder for folder in (out, *out.absolute().parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise InvalidInput(
            f"out={str(out)!r}: cannot be written to ({error.strerror or error}); {remedy}."
        ) from None


def _store_model(job: Job, release: Release) -> None:
    """Write model.json: the one that was drawn, or a copy of the one that was given."""
    path = job.out / "model.json"
    given = None if job.model is None else job.model.read_bytes()
    with _writing(job.out, "nothing was released; free some space, or name another folder"):
        # Results of an earlier run belong to another model.
        for stale in (job.out / name for name in _RESULTS):
            if job.encoding is None or stale.resolve() != job.encoding.resolve():
                stale.unlink(missing_ok=True)
        if given is None:
            release.save(path)
        else:
            write_bytes(path, release.audience, given)


def _opened(job: Job, loaded: Release | None) -> tuple[Table, Encoding]:
    """The table, and how its columns become numbers."""
    if loaded is not None:
        return _opened_for(job, loaded)
    options: dict[str, Any] = {
        "target": job.target,
        "classes": job.classes,
        "regression": job.loss == "squared",
    }
    given = None if job.encoding is None else read_json(job.encoding)
    if job.encoding is not None and isinstance(given, dict) and "format" in given:
        # A whole encoding also says which cells are missing and which columns are read.
        _refuse_fixed(job, "encoding", _OF_AN_ENCODING)
        whole = Encoding.load(job.encoding)
        table = whole.open(job.source, id_column=job.id_column)
        return table, _sorted(Encoding.read(table, given=whole, **options))
    if job.data_norm is not None:
        if given is not None:
            raise InvalidInput("--data-norm: give it in the encoding, or leave --encoding out.")
        given = {"data_norm": job.data_norm}
    table = open_table(
        job.source,
        columns=_columns(job),
        id_column=job.id_column,
        missing=_MISSING if job.missing is None else job.missing,
    )
    return table, _sorted(Encoding.read(table, given=given, **options))


def _opened_for(job: Job, loaded: Release) -> tuple[Table, Encoding]:
    """The table as the model that exists reads it."""
    if loaded.encoding is None:
        raise InvalidInput(
            f"{job.model}: was not made from a table; profile it in Python with expost.profile."
        )
    encoding = Encoding.from_json(loaded.encoding)
    if encoding.target.column != job.target:
        raise InvalidInput(
            f"target={job.target!r}: the model predicts {encoding.target.column!r}; name that."
        )
    return encoding.open(job.source, id_column=job.id_column), encoding


def _sorted(encoding: Encoding) -> Encoding:
    """The same with sorted classes, as the estimators have them: θ and y must mean the same."""
    classes = encoding.target.classes
    if classes is None:
        return encoding
    first, second = sorted(classes)
    return replace(encoding, target=replace(encoding.target, classes=(first, second)))


def _columns(job: Job) -> list[str] | None:
    """All columns but those dropped, which are not even looked at; None if nothing is dropped."""
    if not job.drop:
        return None
    origin = open_table(job.source, columns=[]).origin
    names = [column.name for column in origin.columns]
    for name in job.drop:
        if name in (job.target, job.id_column):
            part = "the target" if name == job.target else "the id column"
            raise InvalidInput(f"drop={name!r}: is {part}; drop another column.")
        if name not in names:
            raise InvalidInput(
                f"drop={name!r}: is not a column of {origin.relation.label}; leave it out, or"
                " name a column as its header does."
            )
    return [name for name in names if name not in job.drop]


def _released(job: Job, encoding: Encoding, encoded: Encoded) -> Release:
    """Fit and release one model, with the encoding as part of it."""
    options: dict[str, Any] = {
        "epsilon": 1.0 if job.epsilon is None else job.epsilon,
        "delta": job.delta,
        "noise": job.noise or "laplace",
        "regularization": "auto" if job.regularization is None else job.regularization,
        "data_norm": encoding.data_norm,
        "random_state": job.seed,
    }
    if encoding.target.classes is None:
        options["label_bound"] = job.label_bound
    else:
        options["classes"] = encoding.target.classes
    estimator = ESTIMATORS[job.loss or "logistic"](**options)
    release: Release = estimator.fit(encoded.X, _labels(encoding, encoded.y)).release_
    return replace(
        release,
        encoding=encoding.to_json(),
        feature_names=encoding.feature_names,
        read_from_data=(*encoding.read_from_data, *release.read_from_data),
    )


def _labels(encoding: Encoding, y: FloatArray) -> Any:
    """Labels as the model knows them: class names, or numbers."""
    classes = encoding.target.classes
    return y if classes is None else np.where(y > 0, classes[1], classes[0])


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The rows, the model, and what it gives away of them."""

    table: Table
    encoding: Encoding
    encoded: Encoded
    release: Release
    result: PrivacyProfile


def _summary(job: Job, found: _Found, notes: list[str]) -> Summary:
    encoding, encoded, result = found.encoding, found.encoded, found.result
    explanation = result.explain(
        _readable(encoding, encoded.X), feature_names=encoding.feature_names
    )
    unknown = (
        f"column {name!r}: {count} cells hold no level of the encoding and count as none."
        for name, count in encoded.unknown.items()
    )
    keys = (
        f"column {entry.name!r}: has a level for most rows; if it is a key, name it with --id or"
        " leave it out with --drop."
        for entry in encoding.entries
        if isinstance(entry, LevelEntry) and len(entry.levels) > max(2, len(encoded.y) / 2)
    )
    return collect(
        result,
        release=found.release,
        source=job.name,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        choices=_choices(job, encoding, found.release),
        accuracy=_accuracy(found),
        groups=tuple(_groups(found)),
        explanation=explanation,
        notices=(*encoding.notices, *found.table.notices, *keys, *unknown, *notes),
    )


def _groups(found: _Found) -> Iterator[Grouping]:
    """The exposures by each column of numbers or of few levels, a few columns at a time."""
    names = [
        entry.name
        for entry in found.encoding.entries
        if entry.kind == "numeric" or len(entry.features) <= _MOST_LEVELS
    ]
    for start in range(0, len(names), _COLUMNS_A_PASS):
        some = names[start : start + _COLUMNS_A_PASS]
        cells = pa.Table.from_batches(found.table.blocks(columns=some))
        for name in some:
            yield found.result.by(cells.column(name).combine_chunks(), name=name)


def _readable(encoding: Encoding, X: FloatArray) -> FloatArray:
    """The features in the units of the table, for a person to read."""
    readable = X.copy()
    position = 0
    for entry in encoding.entries:
        if isinstance(entry, NumericEntry):
            readable[:, position] = X[:, position] * entry.scale + entry.mean
        position += len(entry.features)
    return readable


def _choices(job: Job, encoding: Encoding, release: Release) -> tuple[Choice, ...]:
    """Every constant that shaped the result, and where it came from."""
    how, ball, goal = release.mechanism, release.ball, encoding.target
    choices: list[Choice] = []

    def add(name: str, value: str, asked: object, otherwise: Origin = Origin.DEFAULT) -> None:
        origin = Origin.GIVEN if asked is not None else otherwise
        if job.model is not None:
            origin = Origin.MODEL
        choices.append(Choice(name=name, value=value, origin=origin))

    def given(mark: Mark) -> bool | None:
        return True if mark is Mark.GIVEN else None

    add("target", goal.column, job.target)
    if goal.classes is None:
        bound = getattr(how.loss, "label_bound", float("nan"))
        add("label_bound", f"{bound:.6g}", job.label_bound, Origin.READ)
    else:
        add("classes", ", ".join(goal.classes), given(goal.mark), Origin.READ)
    add("epsilon", f"{how.epsilon:g}", job.epsilon)
    if how.delta is not None:
        add("delta", f"{how.delta:g}", job.delta)
    add("noise", how.noise, job.noise)
    add("loss", how.loss.name, job.loss)
    asked = None if job.regularization == "auto" else job.regularization
    add("regularization", f"{how.regularization:.6g}", asked, Origin.RULE)
    add("data_norm", f"{ball.data_norm:.6g}", given(encoding.data_norm_mark), Origin.READ)
    intercept = f"{ball.intercept_scaling:g} in each row" if ball.fit_intercept else "none"
    add("intercept", intercept, None)
    add("rows", str(how.rows), None, Origin.READ)
    source = "a seed" if release.seeded else "the operating system"
    add("randomness", source if how.is_private else "none, epsilon is infinite", job.seed)
    missing = None if encoding.missing == _MISSING else encoding.missing
    add("missing cells", ", ".join(map(repr, encoding.missing)) or "none", missing)
    if job.drop:
        add("dropped columns", ", ".join(map(repr, job.drop)), job.drop)
    if job.encoding is not None:
        add("encoding", job.encoding.name, job.encoding)
    return tuple(choices)


def _accuracy(found: _Found) -> Accuracy:
    """How good the released model is on these rows, beside knowing nothing and beside ε = ∞."""
    release, near = found.release, found.result.neighbours
    assert near is not None
    problem = release.problem(found.encoded.X, _labels(found.encoding, found.encoded.y))
    released, noiseless = (problem.X @ theta for theta in (release.theta, near.base))
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
    with _writing(out, remedy):
        encoding_file = encoding.save(out / encoding.audience.file_name("encoding", "json"))
        json_file = result.to_json(out / "profile.json")
        assert isinstance(json_file, Path)
        table_file = result.to_parquet(out / "profile.parquet")
        report = out / summary.audience.file_name("report", "html")
        write_bytes(report, summary.audience, page)
    return {
        "encoding": encoding_file,
        "profile": json_file,
        "table": table_file,
        "report": report,
    }
