"""The main job, from a table to a folder: release one model, profile it, write the report.

θ is drawn once, and model.json is on the disk before anything is computed from it.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from expost import _validate
from expost._files import write_bytes
from expost._profile import PrivacyProfile, profile
from expost.data import Encoded, Encoding, Mark, NumericEntry, Table, open_table
from expost.errors import InvalidInput
from expost.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from expost.mechanisms import Release
from expost.report import Accuracy, Choice, Origin, Summary, collect, render_html
from expost.types import FloatArray

__all__ = ["Job", "Outcome", "run"]

Estimator = PrivateLogisticRegression | PrivateLinearSVC | PrivateRidge
LOSSES: dict[str, type[Estimator]] = {
    "logistic": PrivateLogisticRegression,
    "huber-hinge": PrivateLinearSVC,
    "squared": PrivateRidge,
}
_MISSING = ("", "?")
# Columns with more levels than this say little as groups.
_MOST_LEVELS = 50


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
    drop: tuple[str, ...] = ()
    missing: tuple[str, ...] = _MISSING
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
    files: dict[str, Path] = field(default_factory=dict)


def run(job: Job, phase: Callable[[str], None] = lambda name: None) -> Outcome:
    """Do the job; ``phase`` is told what is being done."""
    with _noted() as notes:
        _check_folder(job)
        phase("reading the table")
        loaded = None if job.model is None else Release.load(job.model)
        table, encoding = _encoding(job, loaded)
        encoded = encoding.encode_table(table)
        phase("fitting the model")
        release = _released(job, encoding, encoded) if loaded is None else loaded
        _prepare_folder(job.out)
        files = {"model": job.out / "model.json"}
        # A model that was drawn is stored before anything is computed from it.
        release.save(files["model"])
        phase("finding every row's neighbour")
        labels = _labels(encoding, encoded.y)
        ids = None if encoded.ids is None else list(encoded.ids)
        result = profile(release, encoded.X, labels, ids=ids)
        phase("averaging over the models it might have been")
        _ = result.typical
        phase("writing the report")
        summary = _summary(job, table, encoding, encoded, release, result, notes)
        files["encoding"] = encoding.save(job.out / encoding.audience.file_name("encoding", "json"))
        files |= _write(job.out, result, summary)
    return Outcome(release=release, profile=result, summary=summary, files=files)


@contextmanager
def _noted() -> Iterator[list[str]]:
    """Turn warnings into notices of the report: at a command line nobody filters them."""
    notes: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: notes.append(str(message))
        yield notes


def _check_folder(job: Job) -> None:
    """Refuse to mix two runs in one folder, before any work is done."""
    out = job.out
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"out={str(out)!r}: is a file; name a folder.")
    if out.is_dir() and any(out.iterdir()) and not job.force:
        raise InvalidInput(
            f"out={str(out)!r}: is not empty; name another folder, or pass --force to write over"
            " an earlier run (its model.json is then lost, but what it spent is not)."
        )


def _prepare_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"out={str(out)!r}: cannot be made ({error.strerror}).") from None
    if not os.access(out, os.W_OK):
        raise InvalidInput(f"out={str(out)!r}: cannot be written to.")


def _encoding(job: Job, loaded: Release | None) -> tuple[Table, Encoding]:
    """The table, and how its columns become numbers."""
    if loaded is None:
        table = open_table(
            job.source, columns=_columns(job), id_column=job.id_column, missing=job.missing
        )
        regression = job.loss == "squared"
        given: Any = job.encoding
        if job.data_norm is not None:
            if job.encoding is not None:
                raise InvalidInput("data_norm: give it in the encoding, or leave the encoding out.")
            given = {"data_norm": _validate.positive("data_norm", job.data_norm)}
        encoding = Encoding.read(
            table, target=job.target, classes=job.classes, regression=regression, given=given
        )
        return table, encoding
    if loaded.encoding is None:
        raise InvalidInput(
            f"{job.model}: was not made from a table; profile it in Python with expost.profile."
        )
    _refuse_with_model(job)
    encoding = Encoding.from_json(loaded.encoding)
    if encoding.target.column != job.target:
        raise InvalidInput(
            f"target={job.target!r}: the model predicts {encoding.target.column!r}; name that."
        )
    return encoding.open(job.source, id_column=job.id_column), encoding


def _columns(job: Job) -> list[str] | None:
    """All columns but those dropped; None while nothing is dropped."""
    if not job.drop:
        return None
    everything = open_table(job.source, id_column=job.id_column, missing=job.missing)
    everything.require(job.drop)
    if job.target in job.drop:
        raise InvalidInput(f"drop={job.target!r}: is the target; drop another column.")
    return [name for name in everything.names if name not in job.drop]


def _refuse_with_model(job: Job) -> None:
    """A model that exists has its constants; none can be asked for again."""
    fixed = ("epsilon", "delta", "noise", "loss", "regularization", "data_norm", "label_bound")
    for name in (*fixed, "classes", "encoding", "seed"):
        if getattr(job, name) is not None:
            option = name.replace("_", "-")
            raise InvalidInput(
                f"--{option}: the model exists, and it has its own; leave --{option} out."
            )


def _released(job: Job, encoding: Encoding, encoded: Encoded) -> Release:
    """Fit and release one model, with the encoding as part of it."""
    name = _validate.one_of("loss", job.loss or "logistic", tuple(LOSSES))
    options: dict[str, Any] = {
        "epsilon": 1.0 if job.epsilon is None else job.epsilon,
        "delta": job.delta,
        "noise": job.noise or "laplace",
        "regularization": "auto" if job.regularization is None else job.regularization,
        "data_norm": encoding.data_norm,
        "random_state": job.seed,
    }
    if name == "squared":
        options["label_bound"] = job.label_bound
    else:
        if job.label_bound is not None:
            raise InvalidInput("label_bound: only the squared loss takes one; leave it out.")
        options["classes"] = encoding.target.classes
    model = LOSSES[name](**options).fit(encoded.X, _labels(encoding, encoded.y))
    return replace(
        model.release_,
        encoding=encoding.to_json(),
        feature_names=encoding.feature_names,
        read_from_data=(*encoding.read_from_data, *model.release_.read_from_data),
    )


def _labels(encoding: Encoding, y: FloatArray) -> Any:
    """Labels as the model knows them: class names, or numbers."""
    classes = encoding.target.classes
    return y if classes is None else np.where(y > 0, classes[1], classes[0])


def _summary(
    job: Job,
    table: Table,
    encoding: Encoding,
    encoded: Encoded,
    release: Release,
    result: PrivacyProfile,
    notes: list[str],
) -> Summary:
    groups = tuple(
        result.by(table.column(column.name), name=column.name)
        for column in table.columns
        if column.name != job.target and _tells_groups(encoding, column.name)
    )
    explanation = result.explain(
        _readable(encoding, encoded.X), feature_names=encoding.feature_names
    )
    unknown = tuple(
        f"column {name!r}: {count} cells hold no level of the encoding and count as none."
        for name, count in encoded.unknown.items()
    )
    notices = (*encoding.notices, *table.notices, *unknown, *notes)
    return collect(
        result,
        release=release,
        source=job.name,
        choices=_choices(job, encoding, release),
        accuracy=_accuracy(release, encoded.X, _labels(encoding, encoded.y)),
        groups=groups,
        explanation=explanation,
        notices=notices,
    )


def _tells_groups(encoding: Encoding, name: str) -> bool:
    for entry in encoding.entries:
        if entry.name == name:
            return entry.kind == "numeric" or len(entry.features) <= _MOST_LEVELS
    return False


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
    how = release.mechanism

    def origin(value: object, otherwise: Origin = Origin.DEFAULT) -> Origin:
        if job.model is not None:
            return Origin.MODEL
        return Origin.GIVEN if value is not None else otherwise

    norm = None if encoding.data_norm_mark is Mark.READ else encoding.data_norm
    choices = [
        Choice(name="epsilon", value=f"{how.epsilon:g}", origin=origin(job.epsilon)),
        Choice(name="noise", value=how.noise, origin=origin(job.noise)),
        Choice(name="loss", value=how.loss.name, origin=origin(job.loss)),
        Choice(
            name="regularization",
            value=f"{how.regularization:.6g}",
            origin=origin(
                None if job.regularization == "auto" else job.regularization, Origin.RULE
            ),
        ),
        Choice(
            name="data_norm",
            value=f"{release.ball.data_norm:.6g}",
            origin=origin(norm, Origin.READ),
        ),
        Choice(name="rows", value=str(how.rows), origin=Origin.READ),
        Choice(
            name="randomness",
            value="a seed" if release.seeded else "the operating system",
            origin=origin(job.seed),
        ),
        Choice(
            name="missing cells",
            value=", ".join(map(repr, encoding.missing)),
            origin=origin(None if encoding.missing == _MISSING else encoding.missing),
        ),
    ]
    if how.delta is not None:
        choices.insert(1, Choice(name="delta", value=f"{how.delta:g}", origin=origin(job.delta)))
    if encoding.target.classes is None:
        bound = getattr(how.loss, "label_bound", float("nan"))
        choices.append(
            Choice(
                name="label_bound",
                value=f"{bound:.6g}",
                origin=origin(job.label_bound, Origin.READ),
            )
        )
    else:
        choices.append(
            Choice(
                name="classes",
                value=", ".join(encoding.target.classes),
                origin=origin(job.classes, Origin.READ),
            )
        )
    return tuple(choices)


def _accuracy(release: Release, X: FloatArray, labels: Any) -> Accuracy:
    """How good the released model is on these rows, beside knowing nothing and beside ε = ∞."""
    problem = release.problem(X, labels)
    exact = release.minimiser(problem).theta
    if release.classes is None:
        spread = float(np.var(problem.y)) or 1.0
        scores = [
            1 - float(np.mean((problem.X @ theta - problem.y) ** 2)) / spread
            for theta in (release.theta, exact)
        ]
        return Accuracy(measure="R²", released=scores[0], base_rate=0.0, noiseless=scores[1])
    share = float(np.mean(problem.y > 0))
    hits = [
        float(np.mean((problem.X @ theta > 0) == (problem.y > 0)))
        for theta in (release.theta, exact)
    ]
    return Accuracy(released=hits[0], base_rate=max(share, 1 - share), noiseless=hits[1])


def _write(out: Path, result: PrivacyProfile, summary: Summary) -> dict[str, Path]:
    """The curator's files, each whole or absent."""
    page = render_html(summary).encode()
    report = out / result.audience.file_name("report", "html")
    json_file = result.to_json(out / "profile.json")
    assert isinstance(json_file, Path)
    return {
        "profile": json_file,
        "table": result.to_parquet(out / "profile.parquet"),
        "report": write_bytes(report, result.audience, page),
    }
