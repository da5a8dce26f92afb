"""Frames with text, ranges of columns and pipelines: what the command line does, in Python."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.csv
import pyarrow.parquet
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler

import expost
import streams
from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from expost.data import Encoding
from expost.errors import (
    ClippedRowsWarning,
    InvalidInput,
    PrivacyLeakWarning,
    UnscaledColumnsWarning,
)
from expost.jobs.profile import run
from expost.report import document_of
from expost.types import Audience

pytestmark = [
    pytest.mark.filterwarnings("ignore::expost.errors.ClippedRowsWarning"),
    pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning"),
    pytest.mark.filterwarnings("ignore::expost.errors.UselessModelWarning"),
]
leaks = pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning")

COLUMNS = ["age", "hours", "city"]
PUBLIC = {
    "columns": {
        "age": {"mean": 45, "scale": 20},
        "hours": {"mean": 40, "scale": 10},
        "city": {"levels": ["Bergen", "Oslo", "Paris"]},
    },
    "target": {"column": "income", "classes": ["high", "low"]},
}
QUESTION = {"models": 20, "folds": 2, "epsilons": (0.5, 4.0), "random_state": 3}

FRAMES = {
    "pandas": lambda table: (table.select(COLUMNS).to_pandas(), table["income"].to_pandas()),
    "polars": lambda table: (
        pl.from_arrow(table).select(COLUMNS),
        pl.from_arrow(table)["income"],
    ),
    "Arrow": lambda table: (table.select(COLUMNS), table["income"]),
    "dict": lambda table: (table.select(COLUMNS).to_pydict(), table["income"].to_pylist()),
}


@pytest.fixture(scope="module")
def table():
    return streams.table()


@pytest.fixture(scope="module")
def by_command_line(table, tmp_path_factory):
    """The releases of ``expost profile`` with a seed: all read from the data, and nothing read."""
    folder = tmp_path_factory.mktemp("cli")
    source, encoding = folder / "people.csv", folder / "encoding.json"
    pyarrow.csv.write_csv(table.select([*COLUMNS, "income"]), source)
    encoding.write_text(json.dumps(PUBLIC))
    results = {}
    for name, given in (("read", None), ("given", encoding)):
        options = {"encoding": given, "drop": None, "id_column": None, "seed": 1, "engine": None}
        settled = ("mechanism", "noise", "data_norm", "regularization", "delta")
        options |= dict.fromkeys(settled, "auto")
        results[name] = run(streams.job(source, folder / name, **options)).release
    return results


# -- the estimators --------------------------------------------------------------------------------


@leaks
@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize(("name", "given"), [("read", {}), ("given", PUBLIC)])
def test_a_frame_makes_the_model_of_the_command_line(by_command_line, table, kind, name, given):
    X, y = FRAMES[kind](table)
    if name == "read":
        given = {"target": {"column": "income"}}
    model = PrivateLogisticRegression(encoding=given, random_state=1).fit(X, y)
    wanted = by_command_line[name]
    assert np.array_equal(model.release_.theta, wanted.theta)
    assert model.release_.to_json() == wanted.to_json()
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == COLUMNS
    # p counts the columns of the table, not their six features.
    assert model.release_.ball.data_norm == pytest.approx(np.sqrt(3) / 2)
    assert model.release_.ball.intercept_scaling == pytest.approx(1 / np.sqrt(4))


@leaks
def test_a_model_of_a_frame_is_profiled_by_the_command_line(program, table, tmp_path):
    X, y = FRAMES["pandas"](table)
    model = PrivateLogisticRegression(encoding={}).fit(X, y)
    source = tmp_path / "people.csv"
    pyarrow.csv.write_csv(table, source)
    done = program(
        "profile", source, "--target", "income", "--model", model.save(tmp_path / "model.json"),
        "--out", tmp_path / "report",
    )  # fmt: skip
    assert done.code == 0, done.err
    lines = pyarrow.parquet.read_table(next((tmp_path / "report").glob("*.parquet")))
    wanted = expost.profile(model, X, y)
    assert np.array_equal(lines["loss"].to_numpy(), wanted.loss)
    assert np.array_equal(expost.profile(model, table.to_pandas()).loss, wanted.loss)


@pytest.mark.parametrize("form", ["Encoding", "JSON", "path", "part", "part in a file"])
def test_an_encoding_is_given_in_any_form(table, tmp_path, form):
    X, y = FRAMES["pandas"](table)
    whole = PrivateLogisticRegression(encoding=PUBLIC).fit(X, y).release_.table_encoding
    path = tmp_path / "encoding.json"
    path.write_text(json.dumps(whole.to_json() if form == "path" else PUBLIC))
    given = {
        "Encoding": whole,
        "JSON": whole.to_json(),
        "path": str(path),
        "part": PUBLIC,
        "part in a file": path,
    }[form]
    model = PrivateLogisticRegression(encoding=given, random_state=0)
    assert model.encoding is given
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        model.fit(X, y)
    copy = clone(model).fit(X, y)
    assert np.array_equal(copy.release_.theta, model.release_.theta)
    assert model.release_.read_from_data == ()
    assert Encoding.from_json(model.release_.encoding) == whole


def test_predictions_read_columns_by_their_names(table, tmp_path):
    X, y = FRAMES["pandas"](table)
    model = PrivateLogisticRegression(encoding=PUBLIC, epsilon=20).fit(X, y)
    assert model.score(X, y) > 0.7
    wanted = model.decision_function(X)
    # A naive encoding of the same rows.
    ages, hours = (
        np.clip((X[c] - m) / s, -2, 2) for c, m, s in (("age", 45, 20), ("hours", 40, 10))
    )
    features = np.column_stack(
        [ages, hours, *(X["city"] == c for c in ("Bergen", "Oslo", "Paris"))]
    )
    features *= np.minimum(1, np.sqrt(3) / 2 / np.linalg.norm(features, axis=1))[:, None]
    np.testing.assert_allclose(features @ model.coef_[0] + model.intercept_, wanted, rtol=1e-9)
    loaded = PrivateLogisticRegression.load(model.save(tmp_path / "model.json"))
    for fitted in (model, loaded):
        for frame in (X[["city", "hours", "age"]], X.assign(other="x"), pl.DataFrame(X)):
            assert np.array_equal(fitted.decision_function(frame), wanted)
        assert np.array_equal(fitted.predict(X.iloc[[5]]), fitted.predict(X)[[5]])
        with pytest.raises(InvalidInput, match="'city': is not in the table"):
            fitted.predict(X[["age", "hours"]])
        with pytest.raises(InvalidInput, match=r"no column names.* 'age'"):
            fitted.predict(X.to_numpy())
    again = loaded.fit(X, y)
    assert again.release_.encoding == model.release_.encoding


@pytest.mark.parametrize("labels", [(0, 1), (False, True), (0.0, 1.0), (" no", " yes"), (2, 10)])
def test_classes_are_those_of_the_labels(table, labels):
    X, y = FRAMES["pandas"](table)
    spoken = np.where(y == "high", labels[1], labels[0])
    public = {"columns": PUBLIC["columns"]}
    model = PrivateLogisticRegression(encoding=public, classes=labels, epsilon=20, random_state=0)
    model.fit(X, spoken)
    assert model.classes_.tolist() == list(labels)
    assert model.predict(X).dtype == spoken.dtype
    assert model.score(X, spoken) > 0.7
    assert roc_auc_score(spoken == labels[1], model.decision_function(X)) > 0.8
    losses = expost.profile(model, X, spoken).loss
    assert np.array_equal(expost.profile(model, X.assign(y=spoken)).loss, losses)


def test_more_classes_and_numbers(table):
    X, _ = FRAMES["pandas"](table)
    public = {"columns": PUBLIC["columns"]}
    three = np.digitize(X["age"], [40, 60])
    model = PrivateLogisticRegression(encoding=public, classes=[0, 1, 2], epsilon=20)
    assert model.fit(X, three).predict_proba(X).shape == (len(X), 3)
    with pytest.raises(InvalidInput, match="3 classes: exactly two"):
        PrivateLinearSVC(encoding=public, classes=[0, 1, 2]).fit(X, three)
    ridge = PrivateRidge(encoding=public, label_range=(0, 100), epsilon=50).fit(X, X["age"])
    assert ridge.predict(X).shape == (len(X),)
    assert len(expost.profile(ridge, X, X["age"])) == len(X)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"encoding": {}, "ranges": {}}, "ranges: cannot be combined with encoding"),
        ({"encoding": 3}, "must be an Encoding, its JSON object, or the path"),
        ({"encoding": {"data_norm": 2}, "data_norm": 3.0}, "the encoding has its own"),
        ({"ranges": {"aged": (0, 1)}}, "X has no column 'aged'"),
        ({"ranges": [(0, 1)]}, "has 1 pairs: must have one for each of 3 columns"),
        ({"ranges": {"age": (1, 1)}}, "low must be below high"),
        ({"ranges": {"age": (0, np.inf)}}, "must be a number of at most"),
        ({"ranges": {"age": 3}}, "must be a pair"),
        ({"ranges": 3}, "ranges: must be pairs"),
        ({"ranges": {"city": (0, 1)}}, "column 'city'"),
    ],
)
def test_bad_encodings_are_refused(table, parameters, expected):
    X, y = FRAMES["pandas"](table)
    model = PrivateLogisticRegression(**parameters)
    with pytest.raises(InvalidInput, match=expected):
        model.fit(X, y)
    assert not hasattr(model, "release_")


def test_labels_of_another_length_are_refused(table):
    X, y = FRAMES["pandas"](table)
    with pytest.raises(InvalidInput, match=r"y has 399 entries.* 400"):
        PrivateLogisticRegression(encoding=PUBLIC).fit(X, y[:-1])
    with pytest.raises(InvalidInput, match="X: has a column 'income'"):
        PrivateLogisticRegression(encoding=PUBLIC).fit(X.assign(income=y), y)
    with pytest.raises(InvalidInput, match="pass the labels"):
        PrivateLogisticRegression(encoding=PUBLIC).fit(X, None)


def test_text_is_named_by_its_columns(table):
    X, y = FRAMES["pandas"](table)
    for frame in (X, pl.DataFrame(X)):
        with pytest.raises(InvalidInput, match=r"column 'city'; encode .* give encoding="):
            PrivateLogisticRegression().fit(frame, y)
    with pytest.raises(InvalidInput, match="column 2; encode"):
        PrivateLogisticRegression().fit(X.to_numpy(), y)
    model = PrivateLogisticRegression(classes=["high", "low"], data_norm=100.0)
    model.fit(X[["age", "hours"]], y)
    with pytest.raises(InvalidInput, match="column 1"):
        expost.profile(model, X[["age", "city"]].to_numpy(), y)


# -- ranges ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cancer():
    """Columns of scales from .004 to 880, and ranges rounded outward to one digit."""
    X, y = load_breast_cancer(return_X_y=True)
    digit = 10 ** np.floor(np.log10(X.max(axis=0)))
    return X, y, np.column_stack([np.zeros(X.shape[1]), np.ceil(X.max(axis=0) / digit) * digit])


def test_ranges_are_the_remedy_for_unscaled_columns(cancer):
    """How columns are named: tests/test_defaults.py."""
    X, y, ranges = cancer
    with pytest.warns(UnscaledColumnsWarning, match=r"columns 0, 1, 2, 3, 4 .*ranges="):
        PrivateLogisticRegression(classes=[0, 1]).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ClippedRowsWarning)
        model = PrivateLogisticRegression(classes=[0, 1], ranges=ranges).fit(X, y)
    assert model.release_.audience is Audience.PUBLIC


@pytest.mark.filterwarnings("ignore::expost.errors.UnscaledColumnsWarning")
def test_ranges_make_unscaled_columns_useful(cancer):
    """At ε = 3, over ten releases: the mean AUC and accuracy; 63 % of the rows are benign."""
    X, y, ranges = cancer
    scores = {}
    for name, given in (("as they are", None), ("ranges", ranges)):
        models = [
            PrivateLogisticRegression(3.0, classes=[0, 1], ranges=given, random_state=seed)
            for seed in range(10)
        ]
        for model in models:
            model.fit(X, y)
        areas = [roc_auc_score(y, model.decision_function(X)) for model in models]
        scores[name] = np.mean(areas), np.mean([model.score(X, y) for model in models])
    assert scores["ranges"][0] > max(0.97, scores["as they are"][0])
    assert scores["ranges"][1] > max(0.8, scores["as they are"][1] + 0.05)


def test_ranges_are_mapped_to_one_and_cut():
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 15, size=(200, 2))
    y = (X.sum(axis=1) > 10).astype(int)
    parameters = {"epsilon": 10.0, "classes": [0, 1], "random_state": 0}
    model = PrivateLogisticRegression(**parameters, ranges=[(0, 10), (-5, 15)]).fit(X, y)
    scaled = np.column_stack([np.clip((X[:, 0] - 5) / 5, -1, 1), (X[:, 1] - 5) / 10])
    plain = PrivateLogisticRegression(**parameters).fit(scaled, y)
    np.testing.assert_allclose(model.release_.theta, plain.release_.theta, rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(scaled), rtol=1e-9)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2
    np.testing.assert_allclose(
        expost.profile(model, X, y).loss, expost.profile(plain, scaled, y).loss, rtol=1e-6
    )
    with pytest.raises(InvalidInput, match=r"X has 3 columns.* 2"):
        model.predict(np.ones((4, 3)))
    frame = pd.DataFrame(X, columns=["a", "b"])
    named = PrivateLogisticRegression(**parameters, ranges={"a": (0, 10), "b": (-5, 15)})
    assert np.array_equal(named.fit(frame, y).release_.theta, model.release_.theta)


# -- the verbs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_choose_epsilon_takes_frames_with_text(table, kind):
    X, y = FRAMES[kind](table)
    choice = expost.choose_epsilon(X, y, **QUESTION)
    whole = expost.choose_epsilon(table.select([*COLUMNS, "income"]), target="income", **QUESTION)
    given = expost.choose_epsilon(X, y, encoding={}, **QUESTION)
    for other in (whole, given):
        assert other.description == choice.description
        assert np.array_equal(other.sweep.epsilons, choice.sweep.epsilons)
        assert np.array_equal(other.utility.leading.mean, choice.utility.leading.mean)
        assert other.notices == choice.notices
        assert other.read_from_data == choice.read_from_data
    assert any("the levels of 'city'" in name for name in choice.read_from_data)
    public = expost.choose_epsilon(X, y, encoding=PUBLIC, **QUESTION)
    assert public.read_from_data == ()


def test_choose_epsilon_takes_the_ranges_of_a_table(table):
    X, y = FRAMES["pandas"](table)
    ranges = {"age": (18, 80), "hours": (0, 100)}
    frame = X[["age", "hours"]]
    apart = expost.choose_epsilon(frame, y, ranges=ranges, classes=["high", "low"], **QUESTION)
    together = expost.choose_epsilon(
        frame.assign(income=y), target="income", ranges=ranges, classes=["high", "low"], **QUESTION
    )
    assert np.array_equal(together.utility.leading.mean, apart.utility.leading.mean)
    assert together.read_from_data == ()


def pipeline(*steps):
    return make_pipeline(*steps, PrivateLogisticRegression(classes=["high", "low"]))


def columns():
    return make_column_transformer(
        (StandardScaler(), ["age", "hours"]), (OneHotEncoder(sparse_output=False), ["city"])
    )


READ = ("'columntransformer.standardscaler' (StandardScaler)", "(OneHotEncoder)")


def test_choose_epsilon_takes_pipelines(table):
    X, y = FRAMES["pandas"](table)
    model = pipeline(columns())
    choice = expost.choose_epsilon(X, y, estimator=model, **QUESTION)
    # It was fitted to the rows in a copy.
    with pytest.raises(NotFittedError):
        model[0].transform(X)
    Z = columns().fit_transform(X)
    alone = expost.choose_epsilon(Z, y, estimator=model[-1], **QUESTION)
    assert np.array_equal(alone.utility.leading.mean, choice.utility.leading.mean)
    for name in READ:
        assert any(name in read for read in choice.read_from_data)
        assert not any(name in read for read in alone.read_from_data)
    with pytest.raises(InvalidInput, match="noise: the estimator has its own"):
        expost.choose_epsilon(X, y, estimator=model, noise="laplace", **QUESTION)
    with pytest.raises(InvalidInput, match="estimator: StandardScaler"):
        expost.choose_epsilon(Z, y, estimator=StandardScaler(), **QUESTION)


def test_fitted_steps_are_named_and_lower_the_audience(table, tmp_path):
    X, y = FRAMES["pandas"](table)
    model = pipeline(columns()).fit(X, y)
    profile = expost.profile(model, X, y)
    Z = model[:-1].transform(X)
    assert np.array_equal(profile.loss, expost.profile(model[-1], Z, y).loss)
    assert all(any(name in notice for notice in profile.notices) for name in READ)
    assert profile.release.audience is Audience.NEEDS_REVIEW
    assert "reviewed before you share" in document_of(profile).verdict.more
    assert model[-1].release_.read_from_data == ()
    with pytest.warns(PrivacyLeakWarning, match=r"standardscaler' \(StandardScaler\)"):
        report = expost.publish(model, X, y)
    assert report.audience is Audience.NEEDS_REVIEW
    for name in READ:
        assert sum(name in read for read in report.read_from_data) == 1
        assert any(name in line for line in report.statements)
        assert name in str(report)
    # The model alone is the one that was released, and the ledger knows it by its checksum.
    assert report.to_json()["model"] == model[-1].release_.to_json()
    again = expost.PublishedReport.load(report.save(tmp_path / "report.json"))
    assert again.to_json() == report.to_json()
    # Rows are those that the steps return, and the answer says so.
    assert np.array_equal(report.bound(Z, y), expost.publish(model[-1]).bound(Z, y))
    (answer, _) = again.lookup(dict.fromkeys(again.form.names, 0.5))
    assert "steps of the pipeline" in answer.notes[0]
    with pytest.raises(InvalidInput, match="pass arrays or frames as X and y"):
        expost.publish(model, table.to_pandas())


def test_the_remainder_of_a_column_transformer_is_a_step(table):
    X, y = FRAMES["pandas"](table)
    inner = make_column_transformer(
        (FunctionTransformer(lambda a: a / 40), ["age"]), remainder=StandardScaler()
    )
    model = pipeline(inner).fit(X[["age", "hours"]], y)
    with pytest.warns(PrivacyLeakWarning, match=r"remainder' \(StandardScaler\)"):
        assert expost.publish(model).audience is Audience.NEEDS_REVIEW


def test_steps_that_need_no_fit_are_not_named(table):
    X, y = FRAMES["pandas"](table)
    X = X[["age", "hours"]]
    inner = make_column_transformer((FunctionTransformer(lambda a: a / 40), ["age", "hours"]))
    model = pipeline(inner, "passthrough", Normalizer()).fit(X, y)
    assert expost.profile(model, X, y).notices == ()
    assert any(
        "Read" in notice
        for notice in expost.profile(pipeline(StandardScaler()).fit(X, y), X, y).notices
    )
    report = expost.publish(model, X, y)
    assert report.audience is Audience.PUBLIC
    assert report.read_from_data == ()
    assert [step.fitted for step in report.steps] == [False, False]
    alone = expost.publish(model[-1]).to_json()
    own = ("statements", "steps", "sha256")
    assert {name: value for name, value in report.to_json().items() if name not in own} == {
        name: value for name, value in alone.items() if name not in own
    }


@pytest.mark.parametrize("kind", FRAMES)
def test_reports_take_frames(table, kind):
    X, y = FRAMES[kind](table)
    model = PrivateLogisticRegression(encoding=PUBLIC).fit(X, y)
    report = expost.publish(model, X, y)
    assert report.to_json() == expost.publish(model).to_json()
    assert report.audience is Audience.PUBLIC


@pytest.mark.parametrize("engine", [None, "local:2"])
def test_reports_of_frames_whose_constants_were_read(table, engine):
    X, y = FRAMES["pandas"](table)
    with pytest.warns(PrivacyLeakWarning):
        model = PrivateLogisticRegression(encoding={"target": {"column": "income"}}).fit(X, y)
    with pytest.warns(PrivacyLeakWarning, match="the mean and scale of 'age'"):
        report = expost.publish(model, X, y)
    assert report.audience is Audience.NEEDS_REVIEW
    assert report.read_from_data == model.release_.read_from_data
    # The same of the table that holds both, in memory or in blocks.
    with pytest.warns(PrivacyLeakWarning, match="the mean and scale of 'age'"):
        whole = expost.publish(model, table.to_pandas(), engine=engine)
    assert whole.to_json() == report.to_json()
