"""Saved models answer as the library that made them: many classes, regressions, arrays, batches."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from expost.auditing import load_model
from expost.errors import InvalidInput
from expost.files.model_format import ModelFormat, model_format

WINE = load_wine()
X, Y = WINE.data[:, :4], WINE.target
FRAME = pd.DataFrame(X, columns=["alcohol", "malic acid", "ash", "alcalinity"])

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")


@pytest.mark.parametrize("objective", ["multi:softprob", "multi:softmax"])
@pytest.mark.parametrize("rows", [X, FRAME], ids=["arrays", "frame"])
def test_many_classes_of_xgboost(tmp_path, objective, rows):
    options = {"objective": objective, "num_class": 3, "max_depth": 3, "nthread": 1}
    booster = xgboost.train(options, xgboost.DMatrix(rows, Y), num_boost_round=8)
    booster.save_model(tmp_path / "m.json")
    loaded = load_model(tmp_path / "m.json")
    assert loaded.columns == (None if rows is X else tuple(FRAME.columns))
    assert loaded.width == 4
    model = loaded.answering()
    margins = booster.predict(xgboost.DMatrix(rows), output_margin=True).astype(float)
    expected = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(rows), expected, atol=1e-6)
    assert model.classes_.tolist() == [0, 1, 2]
    named = loaded.answering(classes=("a", "b", "c"))
    assert named.classes_.tolist() == ["a", "b", "c"]
    for wrong in (("a", "b"), ("a", "b", "b")):
        with pytest.raises(InvalidInput, match="3 outputs"):
            loaded.answering(classes=wrong)


def test_early_stopping_is_kept(tmp_path):
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 2, len(X))
    model = xgboost.XGBClassifier(n_estimators=50, early_stopping_rounds=2, n_jobs=1)
    model.fit(X, Y > 0, eval_set=[(X, noise)], verbose=False)
    model.save_model(tmp_path / "m.ubj")
    loaded = load_model(tmp_path / "m.ubj").answering()
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-7)
    # Power: more rounds answer otherwise.
    every = model.get_booster().predict(xgboost.DMatrix(X))
    assert np.max(np.abs(every - loaded.predict_proba(X)[:, 1])) > 1e-3


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_lightgbm(tmp_path, kind):
    options = {"verbose": -1, "n_jobs": 1, "n_estimators": 8}
    if kind == "classes":
        model = lightgbm.LGBMClassifier(**options).fit(FRAME, Y)
        expected = model.predict_proba(FRAME)
    else:
        model = lightgbm.LGBMRegressor(**options).fit(FRAME, X[:, 0])
        expected = model.predict(FRAME)
    model.booster_.save_model(tmp_path / "m.txt")
    loaded = load_model(tmp_path / "m.txt")
    # LightGBM replaces spaces in names.
    assert [name.replace("_", " ") for name in loaded.columns] == list(FRAME.columns)
    answers = loaded.answering()
    assert answers.predicts_numbers is (kind == "numbers")
    computed = answers.predict_proba(FRAME) if kind == "classes" else answers.predict(FRAME)
    np.testing.assert_allclose(computed, expected, atol=1e-9)


def test_a_regression_of_xgboost_and_other_objectives(tmp_path):
    data = xgboost.DMatrix(X, X[:, 0])
    booster = xgboost.train({"objective": "reg:squarederror", "nthread": 1}, data, 5)
    booster.save_model(tmp_path / "m.json")
    model = load_model(tmp_path / "m.json").answering()
    assert model.predicts_numbers
    np.testing.assert_allclose(model.predict(X), booster.predict(data), atol=1e-5)
    ranked = xgboost.DMatrix(X, Y)
    ranked.set_group([len(X)])
    booster = xgboost.train({"objective": "rank:pairwise", "nthread": 1}, ranked, 2)
    booster.save_model(tmp_path / "r.json")
    with pytest.raises(InvalidInput, match="rank:pairwise"):
        load_model(tmp_path / "r.json")


@pytest.mark.parametrize("batch", [None, 1, 50])
@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_onnx(tmp_path, kind, batch):
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.linear_model import LinearRegression, LogisticRegression

    if kind == "classes":
        model = LogisticRegression(max_iter=5000).fit(X, Y)
        expected = model.predict_proba(X)
    else:
        model = LinearRegression().fit(X, X[:, 0] + Y)
        expected = model.predict(X)
    graph = to_onnx(model, initial_types=[("rows", FloatTensorType([batch, 4]))])
    (tmp_path / "m").write_bytes(graph.SerializeToString())
    assert model_format(tmp_path / "m") is ModelFormat.ONNX
    answers = load_model(tmp_path / "m").answering(X[:3])
    assert answers.predicts_numbers is (kind == "numbers")
    computed = answers.predict_proba(X) if kind == "classes" else answers.predict(X)
    np.testing.assert_allclose(computed, expected, atol=1e-5)


def test_formats_are_recognised_by_content(tmp_path):
    path = tmp_path / "model.pkl"
    for content, kind in (
        (b'{"learner": {}}', ModelFormat.XGBOOST),
        (b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner", ModelFormat.XGBOOST),
        (b'{\n "format": "expost-model/1"}', ModelFormat.EXPOST),
        (b"tree\nversion=v4\n", ModelFormat.LIGHTGBM),
        (b"\x80\x04\x95", ModelFormat.PICKLE),
        (b"\x1f\x8b\x08", ModelFormat.PICKLE),
        (b"tree frogs", None),
        (b"", None),
    ):
        path.write_bytes(content)
        assert model_format(path) is kind, content
