"""Files of expost's own that are read again: models, reports, encodings, ledgers, summaries, arrays."""

import functools
import hashlib
import io
import json
import math
import random
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import expost
from expost.auditing.arrays import read_arrays as read_attack
from expost.data import Encoding, open_table
from expost.data._reading import Given
from expost.errors import InvalidInput
from expost.files.atomic import read_json
from expost.files.parts import PartStore
from expost.ledger import Entry, Ledger, entries_of
from expost.mechanisms.publishing import PublishingBudget
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.report import Context, Page, document_of, page_of, parse_json, render_json, render_text
from expost.report.document import Origin, Setting
from expost.types import Audience
from program import people
from report.conftest import noiseless, synthetic
from settings import OUTPUT

from .damage import altered, damaged, spelled
from .harness import Target

TABLE = people(40)
COLUMNS = {name: list(cells) for name, *cells in zip(*TABLE, strict=True)}
BUDGET = PublishingBudget(epsilon_gradient=0.4, epsilon_hessian=0.2, delta=1e-6)
GIVEN = {
    "columns": {
        "age": {"mean": 45, "scale": 20},
        "city": {"levels": ["Oslo", "Bergen", "Paris"], "missing_level": True},
        "smoker": {"levels": ["true", "false"]},
        "hours": {"mean": 40, "scale": 10, "fill": 40},
    },
    "dropped": ["number"],
    "target": {"column": "income", "classes": ["<=50K", ">50K"]},
    "data_norm": 5,
}


@functools.cache
def encodings() -> tuple[Encoding, ...]:
    """One given, one read from the data, one of a regression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = open_table(COLUMNS, missing=("", "?"))
        keyed = open_table(COLUMNS, missing=("", "?"), id_column="number")
        return (
            Encoding.read(table, target="income", given=GIVEN),
            Encoding.read(keyed, target="income"),
            Encoding.read(keyed, target="age", regression=True),
        )


@functools.cache
def releases() -> tuple[Release, ...]:
    """Of every mechanism, noise and loss; the first of a table."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(60, 3))
    y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    three = np.array(["a", "b", "c"])[np.arange(60) % 3]
    bounds: dict[str, Any] = {"data_norm": 2.0, "classes": ("no", "yes")}
    gaussian: dict[str, Any] = {"noise": "gaussian", "delta": 1e-6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoding = encodings()[0]
        encoded = encoding.encode_table(open_table(COLUMNS, missing=("", "?")))
        labels = [encoding.target.classes[int(sign > 0)] for sign in encoded.y]  # type: ignore[index]
        of_table = expost.PrivateLogisticRegression(
            1.0, data_norm=5.0, classes=encoding.target.classes, random_state=1, **OUTPUT
        ).fit(encoded.X, labels)
        objective = expost.PrivateLogisticRegression(
            1.0, mechanism="objective", regularization="for-publishing", publishing=BUDGET,
            random_state=1, **gaussian, **bounds,
        ).fit(X, y)  # fmt: skip
        many = expost.PrivateLogisticRegression(
            1.0, mechanism="objective", noise="laplace", regularization=1.0, data_norm=2.0,
            classes=("a", "b", "c"), random_state=1,
        ).fit(X, three)  # fmt: skip
        svc = expost.PrivateLinearSVC(math.inf, random_state=1, **bounds, **OUTPUT).fit(X, y)
        ridge = expost.PrivateRidge(
            2.0,
            data_norm=2.0,
            label_range=(-1.0, 1.0),
            huber_width=None,
            random_state=1,
            **{**OUTPUT, **gaussian},
        ).fit(X, X[:, 0])
    first = replace(
        of_table.release_,
        encoding=encoding.to_json(),
        feature_names=encoding.feature_names,
        seeded=False,
    )
    return (
        first,
        replace(objective.release_, seeded=False),
        replace(many.release_, seeded=False),
        svc.release_,
        ridge.release_,
    )


@functools.cache
def reports() -> tuple[PublishedReport, ...]:
    """Two of the model alone, and one that released more."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(60, 3))
    y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spent = expost.publish(
            releases()[1], X, y, kind="data-dependent",
            epsilon_gradient=0.4, epsilon_hessian=0.2,
        )  # fmt: skip
        return (spent, *(expost.publish(release) for release in releases()[:3]))


@functools.cache
def ledger() -> Ledger:
    """Four releases."""
    made = "2026-01-31T12:00:00Z"
    entries = [
        entry
        for index, release in enumerate(releases()[:3])
        for entry in release.entries(
            {"sha256": f"{index:064x}"}, name="model.json", made=made, data=None
        )
    ]
    written = {"sha256": "f" * 64, "model": {"sha256": "e" * 64}}
    *_, spent = reports()[0].entries(written, name="report.json", made=made, data="0" * 64)
    return Ledger(salt="0123456789abcdef" * 4, entries=(*entries, spent))


def pages() -> tuple[Page, ...]:
    """Pages of one result and of several: with noise, without it, and of a ledger."""
    context = Context(
        settings=(Setting(name="data_norm", value="2.2", origin=Origin.READ),),
        notices=("column 'a' is a key",),
        source="people.csv",
        made="2026-11-18",
    )
    return (
        page_of(synthetic(12), context=context),
        page_of(noiseless(9), ledger()),
        page_of(reports()[0]),
    )


@functools.cache
def bases(kind: str) -> tuple[Any, ...]:
    """Whole files of a kind, as values."""
    match kind:
        case "model":
            return tuple(release.to_json() for release in releases())
        case "published":
            return tuple(report.to_json() for report in reports())
        case "encoding":
            return tuple(json.loads(json.dumps(encoding.to_json())) for encoding in encodings())
        case "ledger":
            return (ledger().to_json(), Ledger(salt="0" * 64).to_json())
        case "summary":
            return tuple(json.loads(render_json(page)) for page in pages())
    raise AssertionError(kind)


# Making --------------------------------------------------------------------------------------------


def signed(value: Any) -> Any:
    """With checksums that fit, the inner one first: who edits a file can do that too."""
    if isinstance(value, dict) and "sha256" in value:
        if isinstance(value.get("model"), dict) and "sha256" in value["model"]:
            value["model"] = signed(value["model"])
        fields = {name: field for name, field in value.items() if name != "sha256"}
        value["sha256"] = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return value


def content(rng: random.Random, kind: str) -> bytes:
    """A whole file of a kind, altered in what it says or damaged in its bytes."""
    value = rng.choice(bases(kind))
    if rng.random() < 0.7:
        value = altered(rng, value)
        return spelled(rng, signed(value) if rng.random() < 0.8 else value)
    data = json.dumps(value, indent=rng.choice([None, 1])).encode()
    return damaged(rng, data, json.dumps(rng.choice(bases("encoding"))).encode())


def _file_of(kind: str) -> Any:
    def make(rng: random.Random, folder: Path) -> Path:
        path = folder / f"{kind}.json"
        path.write_bytes(content(rng, kind))
        return path

    return make


# Reading -------------------------------------------------------------------------------------------


def same(first: Any, second: Any) -> bool:
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def described(value: dict[str, Any]) -> dict[str, Any]:
    """What a model.json says, but for what follows from it by floating-point work."""
    mechanism = {**value["mechanism"]}
    for name in Release.from_json(value).mechanism.derived:
        del mechanism[name]
    return {**value, "mechanism": mechanism, "sha256": ""}


def read_model(path: Path) -> None:
    release = Release.load(path)
    assert same(described(release.to_json()), described(read_json(path)))
    assert np.all(np.isfinite(release.theta))
    assert same(Release.from_json(release.to_json()).to_json(), release.to_json())
    coefficients, intercept = release.coefficients
    assert np.all(np.isfinite(coefficients))
    assert np.all(np.isfinite(intercept))
    assert release.mechanism.worst_case > 0
    assert repr(release)
    # What follows from a model that was read: its line in a ledger.
    (entry,) = entries_of(path)
    assert Entry.from_json(entry.to_json()) == entry
    release.save(path)
    assert same(Release.load(path).to_json(), release.to_json())


def read_published(path: Path) -> None:
    report = PublishedReport.load(path)
    mine, theirs = report.to_json(), read_json(path)
    assert same(described(mine.pop("model")), described(theirs.pop("model")))
    for value in (mine, theirs):
        value["sha256"] = ""
        if value["released"] is not None:
            value["released"]["scales"] = ""
    assert same(mine, theirs)
    assert same(PublishedReport.from_json(report.to_json()).to_json(), report.to_json())
    assert render_text(document_of(report))
    assert 0 < report.fails_with <= 1
    # An answer, or a sentence that says why there is none.
    try:
        answers = report.lookup(dict.fromkeys(report.form.names, 1))
    except InvalidInput:
        return
    assert all(answer.exposure > 0 for answer in answers)


def read_encoding(path: Path) -> None:
    encoding = Encoding.load(path)
    assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding
    assert len(encoding.feature_names) == len(set(encoding.feature_names))
    assert encoding.data_norm > 0
    encoding.save(path)
    assert Encoding.load(path) == encoding


def make_given(rng: random.Random, folder: Path) -> Path:
    path = folder / "given.json"
    path.write_bytes(spelled(rng, altered(rng, GIVEN)))
    return path


def read_given(path: Path) -> None:
    value = read_json(path)
    if isinstance(value, dict) and "format" in value:
        Encoding.from_json(value)
        return
    given = Given.from_json(value)
    assert given.data_norm is None or 0 < given.data_norm < math.inf
    for entry in given.entries.values():
        assert entry.to_json()


def read_ledger(path: Path) -> None:
    loaded = Ledger.load(path)
    assert loaded.to_json() == read_json(path)
    assert same(Ledger.from_json(loaded.to_json()).to_json(), loaded.to_json())
    assert loaded.epsilon_by_addition >= 0
    assert 0 <= loaded.delta_by_addition <= 1
    assert repr(loaded)


def make_summary(rng: random.Random, folder: Path) -> bytes:
    del folder
    return content(rng, "summary")


def read_summary(text: bytes) -> None:
    parsed = parse_json(text)
    assert parse_json(render_json(parsed).encode()) == parsed
    assert parsed.audience in (Audience.CURATOR_ONLY, Audience.PUBLIC, Audience.NEEDS_REVIEW)


def make_arrays(rng: random.Random, folder: Path) -> Path:
    """What an attack is given in an npz file."""
    draw = np.random.default_rng(rng.randrange(2**32))
    chances = draw.uniform(size=(4, 8))
    both = np.stack([chances, 1 - chances], axis=-1)
    arrays: dict[str, Any] = {
        "probabilities": both[0],
        "member": np.arange(8) % 2,
        "labels": np.arange(8) % 2,
        "references": both[1:],
        "inside": draw.integers(0, 2, size=(3, 8)),
    }
    for name in rng.sample(sorted(arrays), rng.choice([0, 0, 1, 2])):
        arrays[name] = rng.choice(
            [
                np.array([], dtype=float), np.array(1.0), np.full((8, 2), np.nan), np.array(["a"] * 8),
                arrays[name].astype(complex), arrays[name].astype("f2"), arrays[name][:-1],
                np.arange(8).astype("M8[s]"), np.full(8, 1e308), np.zeros((8, 0)), np.zeros((0, 2)),
                np.zeros((3, 8, 2, 1)), arrays[name].astype("S5"), np.full((8, 2), np.inf),
            ]
        )  # fmt: skip
    stream = io.BytesIO()
    (np.savez if rng.random() < 0.7 else np.savez_compressed)(stream, **arrays)
    data = stream.getvalue()
    path = folder / "arrays.npz"
    path.write_bytes(damaged(rng, data, data) if rng.random() < 0.7 else data)
    return path


def read_arrays(path: Path) -> None:
    arrays = read_attack(path)
    assert np.all(np.isfinite(arrays.evidence.confidence))
    assert arrays.member is None or len(arrays.member) == len(arrays.evidence.confidence)


def make_store(rng: random.Random, folder: Path) -> Path:
    import pyarrow as pa

    store = PartStore.at(folder / "run")
    parts = {index: store.write(index, pa.table({"x": [index, 2]})) for index in range(2)}
    store.finish(parts, {"made": "now"})
    if rng.random() < 0.1:
        return folder / "run"
    path = rng.choice(sorted((folder / "run").iterdir()))
    data = path.read_bytes()
    if path.suffix == ".json" and rng.random() < 0.6:
        path.write_bytes(spelled(rng, altered(rng, json.loads(data))))
    else:
        path.write_bytes(damaged(rng, data, data))
    return folder / "run"


def read_store(folder: Path) -> None:
    store = PartStore.at(folder)
    for table in store.tables():
        assert table.column_names == ["x"]
        assert table.num_rows == 2
    assert all(part.rows == 2 for part in store.finished().values())


PARSERS = {
    target.name: target
    for target in (
        Target(name="model", make=_file_of("model"), read=read_model),
        Target(name="published", make=_file_of("published"), read=read_published),
        Target(name="encoding", make=_file_of("encoding"), read=read_encoding),
        Target(name="given", make=make_given, read=read_given),
        Target(name="ledger", make=_file_of("ledger"), read=read_ledger),
        Target(name="summary", make=make_summary, read=read_summary),
        Target(name="arrays", make=make_arrays, read=read_arrays),
        Target(name="store", make=make_store, read=read_store, writes=True),
    )
}
