"""The verbs take a table of any length: the same answers in memory, in blocks and from arrays.

Tables of three classes go the same ways, at the command line too.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import expost
import streams
from expost.data import Encoding
from expost.jobs.profile import run

GIVEN = {
    "columns": {
        "age": {"mean": 40, "scale": 15},
        "hours": {"mean": 40, "scale": 10},
        "city": {"levels": ["Oslo", "Bergen", "Paris"]},
    },
    "dropped": ["pay"],
    "data_norm": 5,
}
QUESTION = {"models": 20, "folds": 2, "epsilons": (0.5, 4.0), "random_state": 3}


def labelled(classes):
    """A table whose target has two classes, or three."""
    table = streams.table()
    if classes == 2:
        return table
    age = table.column("age").to_numpy()
    label = np.where(age > 60, "high", np.where(age > 40, "middle", "low"))
    return table.set_column(table.column_names.index("income"), "income", pa.array(label))


@pytest.fixture(scope="module", params=[2, 3])
def made(request, tmp_path_factory):
    """A CSV, its encoding, and one public model of it by objective perturbation."""
    folder = tmp_path_factory.mktemp("made")
    source = folder / "people.csv"
    table = labelled(request.param)
    pyarrow.csv.write_csv(table, source)
    classes = sorted(set(table.column("income").to_pylist()))
    encoding = folder / "encoding.json"
    encoding.write_text(json.dumps({**GIVEN, "target": {"classes": classes}}))
    options = {"mechanism": "objective", "encoding": encoding, "drop": None, "seed": None}
    run(streams.job(source, folder / "model", engine=None, **options))
    return source, folder / "model" / "model.json"


def arrays(source, model):
    release = expost.Release.load(model)
    encoding = Encoding.from_json(release.encoding)
    encoded = encoding.encode_table(encoding.open(str(source)))
    return release, encoded.X, encoding.target.labels(encoded.y)


def test_a_profile_is_the_same_from_arrays_in_memory_and_in_blocks(made, tmp_path, monkeypatch):
    source, model = made
    release, X, labels = arrays(source, model)
    wanted = expost.profile(release, X, labels)
    held = expost.profile(model, source, ids="number")
    assert np.array_equal(held.loss, wanted.loss)
    assert np.array_equal(held.loss_low, wanted.loss_low)
    assert held.ids[:2] == ("p0", "p1")
    streams.small_blocks(monkeypatch)
    read = expost.profile(str(model), str(source), out=tmp_path / "o", engine="local:2")
    lines = pa.concat_tables(read.batches())
    scale = np.abs(wanted.loss).max()
    np.testing.assert_allclose(
        lines.column("loss").to_numpy(), wanted.loss, rtol=1e-9, atol=1e-11 * scale
    )
    # Expected exposures, groups and the tree are there too.
    np.testing.assert_allclose(lines.column("expected").to_numpy(), wanted.expected, rtol=1e-6)
    assert read.by("city").rows == len(wanted)
    assert read.explain().groups


def test_a_choice_is_the_same_in_memory_and_in_blocks(tmp_path, monkeypatch):
    """Of three classes too, see test_streamed_epsilon.py."""
    source = tmp_path / "people.csv"
    pyarrow.csv.write_csv(labelled(2), source)
    options = {"target": "income", "mechanism": "objective", "data_norm": 5.0, **QUESTION}
    held = expost.choose_epsilon(str(source), **options)
    streams.small_blocks(monkeypatch)
    read = expost.choose_epsilon(str(source), out=tmp_path / "o", engine="local:2", **options)
    assert read.recommended == pytest.approx(held.recommended, rel=1e-6)
    np.testing.assert_allclose(read.sweep.low, held.sweep.low, rtol=1e-6)
    assert (read.verdict, read.ceiling) == (held.verdict, held.ceiling)
    assert list(read.utility.curves) == list(held.utility.curves)
    for name, curve in held.utility.curves.items():
        assert read.utility.curves[name].mean == pytest.approx(curve.mean, rel=1e-6), name


def test_a_report_is_the_same_from_arrays_in_memory_and_in_blocks(made, monkeypatch):
    source, model = made
    release, X, labels = arrays(source, model)
    alone = expost.publish(model)
    for report in (
        expost.publish(release, X, labels),
        expost.publish(model, source),
        expost.publish(model, str(source), engine="local:2"),
    ):
        assert report.to_json() == alone.to_json()


def test_the_command_line_takes_three_classes(program, tmp_path):
    source = tmp_path / "people.csv"
    pyarrow.csv.write_csv(labelled(3), source)
    encoding = tmp_path / "encoding.json"
    encoding.write_text(json.dumps({**GIVEN, "target": {"classes": ["high", "low", "middle"]}}))
    table = (source, "--target", "income", "--id", "number", "--encoding", encoding)
    for extra in ((), ("--engine", "local:2")):
        out = tmp_path / f"profile{len(extra)}"
        done = program("profile", *table, "--out", out, *extra)
        assert done.code == 0, done.err
        assert "softmax by objective perturbation" in done.out
        result = program(
            "epsilon", *table, "--out", tmp_path / f"epsilon{len(extra)}", *extra,
            "--models", "20", "--folds", "2", "--epsilons", "0.5,4",
        )  # fmt: skip
        assert result.code == 0, result.err
        published = program(
            "publish", source, "--model", out / "model.json",
            "--out", tmp_path / f"publish{len(extra)}", *extra,
        )  # fmt: skip
        assert published.code == 0, published.err
    refusal = program("profile", *table, "--out", tmp_path / "x", "--mechanism", "output")
    assert "3 classes" in refusal.message
    assert not (tmp_path / "x").exists()
