"""``expost audit --model FILE``: every format end to end, and files that must not be loaded."""

import json
import os
import pickle
import re
import zipfile

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LinearRegression, LogisticRegression

import expost
from auditing.saved_models import COLUMNS, KINDS, forest, halves, patients, rows, save, write_tables
from expost.auditing import arrays_of, audit_arrays, load_model
from expost.errors import InvalidInput
from expost.files import model_format as formats
from expost.jobs import audit as audit_job
from program import page_in

pytest.importorskip("skops")


class Undrawn:
    def png(self):
        return b"\x89PNG"


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    monkeypatch.setattr(audit_job, "plot", lambda result, kind: Undrawn())


@pytest.fixture
def ask(program, tmp_path):
    """Run ``expost audit`` on the patients; results go to tmp_path/o."""
    members, others = write_tables(tmp_path)

    def call(path, *options, data=members, holdout=others, target="diagnosis"):
        where = ("audit", data, "--target", target, "--holdout", holdout, "--seed", "1")
        return program(*where, "--model", path, "--out", tmp_path / "o", "--force", *options)

    return call


def result_of(folder) -> dict:
    return json.loads((folder / "audit.CURATOR-ONLY.json").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_the_figures_of_its_answers(ask, tmp_path, kind):
    saved = save(kind, tmp_path)
    done = ask(saved.path, *saved.options, "--attack", "loss")
    assert (done.code, done.err) == (0, "")
    answer = result_of(tmp_path / "o")
    labels = np.concatenate([half["diagnosis"] for half in halves()])
    codes = np.array([saved.classes.index(label) for label in labels])
    member = np.arange(len(labels)) < len(halves()[0])
    expected = audit_arrays(
        arrays_of(probabilities=saved.answers, labels=codes, member=member), attacks=["loss"]
    )
    assert answer["rows"]["member"] == member.tolist()
    np.testing.assert_allclose(
        answer["rows"]["score_loss"], expected.scores["loss"], rtol=2e-3, atol=2e-3
    )
    for name in ("auc", "tpr_at_1_percent"):
        ours = answer["attacks"]["loss"][name]["value"]
        assert ours == pytest.approx(getattr(expected.figures["loss"], name).value, abs=0.004)
    # Power: another order of the classes is another audit.
    wrong = audit_arrays(
        arrays_of(probabilities=saved.answers[:, ::-1], labels=codes, member=member),
        attacks=["loss"],
    )
    assert abs(wrong.figures["loss"].auc.value - expected.figures["loss"].auc.value) > 0.02
    # The halves are a random split: no shift.
    assert answer["shift"]["detected"] is False
    assert saved.path.name in answer["model"]


def test_an_estimator_in_a_file_is_trained_again(ask, tmp_path):
    saved = save("joblib", tmp_path)
    done = ask(saved.path, *saved.options, "--references", "8")
    assert done.code == 0, done.err
    answer = result_of(tmp_path / "o")
    assert answer["references"] == 8
    assert {"lira-online", "rmia-online"} <= set(answer["attacks"])
    assert [each["method"] for each in answer["lower_bounds"]] == ["Many trainings of one row"]


def test_a_booster_has_references_only_from_an_estimator(ask, tmp_path):
    saved = save("lightgbm", tmp_path)
    done = ask(saved.path, *saved.options)
    assert done.code == 0
    assert result_of(tmp_path / "o")["references"] == 0
    assert "--estimator" in done.out
    refused = ask(saved.path, *saved.options, "--references", "4")
    assert refused.code == 2
    assert "--estimator" in refused.err
    trained = ask(
        *(saved.path, *saved.options, "--references", "8"),
        *("--estimator", "sklearn.tree.DecisionTreeClassifier"),
    )
    assert trained.code == 0, trained.err
    answer = result_of(tmp_path / "o")
    assert answer["references"] == 8
    assert "lira-online" in answer["attacks"]
    # Trees say nothing about the ε of a booster.
    assert answer["lower_bounds"] == []


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_categories_of_boosters(ask, tmp_path, library):
    """Unseen categories are missing cells, integers stay integers, and "01" is not 1."""
    booster = pytest.importorskip(library)
    rng = np.random.default_rng(5)
    count = 600
    frame = pd.DataFrame({"size": rng.normal(size=count), "town": rng.integers(1, 6, count)})
    frame["code"] = np.array(["01", "02", "1", "2"])[rng.integers(0, 4, count)]
    chance = 0.1 + 0.8 * ((frame["town"] % 2 == 0) ^ frame["code"].isin(["01", "2"]))
    frame["diagnosis"] = (rng.random(count) < chance).astype(int)
    features = frame.drop(columns="diagnosis").astype({"town": "category", "code": "category"})
    path = tmp_path / "booster.json"
    if library == "xgboost":
        model = booster.XGBClassifier(n_estimators=20, enable_categorical=True, n_jobs=1)
        model.fit(features[:300], frame["diagnosis"][:300]).save_model(path)
    else:
        model = booster.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1)
        model.fit(features[:300], frame["diagnosis"][:300]).booster_.save_model(path)
    # The first seven non-members have categories that the model has not seen: missing for it.
    features.loc[300:306, ["town", "code"]] = np.nan
    expected = model.predict_proba(features)[np.arange(count), frame["diagnosis"]]
    members, others = frame[:300], frame[300:].copy()
    others.iloc[:7, [1, 2]] = [9, "09"]
    members.to_csv(tmp_path / "a.csv", index=False)
    others.to_csv(tmp_path / "b.csv", index=False)
    tables = {"data": tmp_path / "a.csv", "holdout": tmp_path / "b.csv"}
    done = ask(path, "--attack", "loss", **tables)
    assert done.code == 0, done.err
    answer = result_of(tmp_path / "o")
    np.testing.assert_allclose(np.exp(answer["rows"]["score_loss"]), expected, rtol=1e-4, atol=1e-5)
    for column in ("town", "code"):
        assert f"column '{column}': 7 cells hold a category" in done.out
    # Power: a column of other categories altogether is an error.
    members.assign(town=members["town"] + 20).to_csv(tmp_path / "a.csv", index=False)
    refused = ask(path, **tables)
    assert refused.code == 2
    assert "column 'town': holds none of the categories" in refused.err


def test_a_regression_in_a_file(ask, tmp_path):
    members, _ = halves()
    features = members.drop(columns=["diagnosis", "worst area", "shape"])
    path = tmp_path / "line.joblib"
    joblib.dump(LinearRegression().fit(features, members["worst area"]), path)
    done = ask(path, "--trust-pickle", "--references", "2", target="worst area")
    assert done.code == 0, done.err
    assert "loss" in result_of(tmp_path / "o")["attacks"]
    # The next command is of a regression, too.
    (step,) = page_in(tmp_path / "o").steps
    assert step.text.endswith(" --target 'worst area' --loss squared")


def test_a_column_that_is_left_out_is_not_said_to_be_absent(ask, tmp_path):
    saved = save("onnx", tmp_path)
    for options in (("--drop", COLUMNS[0]), ("--propensity", COLUMNS[0])):
        done = ask(saved.path, *options)
        assert done.code == 2
        assert "does not have" not in done.err
        assert "column 'mean_radius', which is named by" in done.err


@pytest.mark.parametrize("option", [("--trust-pickle",), ("--trust-type", "a.b")], ids=str)
def test_trust_that_a_file_does_not_need_is_refused(ask, tmp_path, option):
    done = ask(save("onnx", tmp_path).path, *option)
    assert done.code == 2
    assert option[0] in done.err
    assert "is ONNX" in done.err


def test_what_was_left_out_is_among_the_settings(ask, tmp_path):
    saved = save("onnx-matrix", tmp_path)
    settings = {
        options: (tmp_path / "o" / "report.CURATOR-ONLY.md").read_text()
        for options in ((), ("--missing", "?"))
        if ask(saved.path, *saved.options, "--attack", "loss", *options).code == 0
    }
    for text in settings.values():
        assert "| dropped columns | 'shape' | given |" in text
    assert "| missing cells | '' | default |" in settings[()]
    assert "| missing cells | '?' | given |" in settings["--missing", "?"]


@pytest.mark.parametrize("kind", ["joblib", "onnx", "lightgbm"])
def test_the_remedy_for_labels_of_other_names_is_one_that_the_model_takes(ask, tmp_path, kind):
    """Trained on 0 and 1, with words in the table."""
    members, _ = halves()
    X, y = members[list(COLUMNS)], (members["diagnosis"] == "benign").astype(int)
    path, options = tmp_path / "numbered", ["--drop", "shape", "--references", "0"]
    if kind == "lightgbm":
        lightgbm = pytest.importorskip("lightgbm")
        lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(X, y).booster_.save_model(path)
    elif kind == "onnx":
        skl2onnx = pytest.importorskip("skl2onnx")
        rows = X.to_numpy(np.float32)
        graph = skl2onnx.to_onnx(LogisticRegression().fit(rows / 100, y), rows[:1])
        path.write_bytes(graph.SerializeToString())
    else:
        joblib.dump(LogisticRegression(max_iter=5000).fit(X, y), path)
        options.append("--trust-pickle")
    done = ask(path, *options)
    assert done.code == 2
    assert "its classes are '0', '1'" in done.err
    # The option is named where it is taken, and only there.
    named = ask(path, *options, "--classes", "malignant,benign")
    assert ("--classes" in done.err) == (named.code == 0) == (kind == "lightgbm")
    assert kind == "lightgbm" or "write these numbers into it" in done.err


def test_names_of_labels_are_refused_for_a_booster_of_numbers(ask, tmp_path):
    xgboost = pytest.importorskip("xgboost")
    members, _ = halves()
    data = xgboost.DMatrix(members[list(COLUMNS)], label=members["diagnosis"] == "benign")
    booster = xgboost.train({"objective": "reg:logistic", "nthread": 1}, data, 3)
    booster.save_model(tmp_path / "numbers.json")
    done = ask(tmp_path / "numbers.json")
    assert done.code == 2
    assert "holds strings" in done.err
    assert "--classes" not in done.err
    done = ask(tmp_path / "numbers.json", "--classes", "malignant,benign")
    assert done.code == 2
    assert "predicts numbers (reg:logistic)" in done.err


def test_scores_of_an_unknown_objective_are_not_taken_for_predictions(ask, tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    members, _ = halves()
    data = lightgbm.Dataset(members[list(COLUMNS[:3])], label=members["diagnosis"] == "benign")

    def own(scores, rows):
        p = 1 / (1 + np.exp(-scores))
        return p - rows.get_label(), p * (1 - p)

    booster = lightgbm.train({"objective": own, "verbose": -1, "num_threads": 1}, data, 3)
    booster.save_model(tmp_path / "own.txt")
    done = ask(tmp_path / "own.txt", target="worst area")
    assert done.code == 2
    assert "an objective of its own" in done.err
    assert "--arrays" in done.err


# Files that are refused -------------------------------------------------------------------------


class Payload:
    """Unpickling it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "model.onnx", "model.json", "model"])
@pytest.mark.parametrize("compress", [0, 3, ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3)])
def test_no_pickle_runs_without_the_flag(ask, tmp_path, name, compress):
    canary, path = tmp_path / "canary", tmp_path / name
    joblib.dump(Payload(canary), tmp_path / "made", compress=compress)
    (tmp_path / "made").rename(path)
    done = ask(path)
    assert done.code == 2
    assert "--trust-pickle" in done.err
    assert "Traceback" not in done.err
    assert not canary.exists()
    assert not (tmp_path / "o").exists()


def test_the_canary_works(tmp_path):
    """With the flag the code runs, which is what the flag states."""
    canary = tmp_path / "canary"
    (tmp_path / "evil").write_bytes(pickle.dumps(Payload(canary)))
    joblib.load(tmp_path / "evil")
    assert canary.exists()


class Majority(ClassifierMixin, BaseEstimator):
    """A classifier that skops cannot know: the shares of the classes, for every row."""

    def fit(self, X, y):
        self.classes_, counts = np.unique(np.asarray(y, dtype=str), return_counts=True)
        self.shares_ = counts / len(y)
        return self

    def predict_proba(self, X):
        return np.tile(self.shares_, (len(X), 1))


def test_untrusted_types_of_skops_are_named(ask, tmp_path):
    from skops import io

    path, members = tmp_path / "majority.skops", halves()[0]
    io.dump(Majority().fit(members, members["diagnosis"]), path)
    done = ask(path)
    assert done.code == 2
    name = f"{Majority.__module__}.Majority"
    assert f"--trust-type {name}" in done.err
    assert ask(path, "--trust-type", f"{name}s").code == 2
    trusted = ask(path, "--trust-type", name, "--references", "0")
    assert trusted.code == 0, trusted.err


def test_trust_is_asked_for_where_it_can_be_given(tmp_path):
    """In Python by load_model, in the command that `profile` names; and what trust means."""
    import skops.io

    X, y = rows()[0], halves()[0]["diagnosis"]
    path = save("joblib", tmp_path).path
    with pytest.raises(InvalidInput, match=r"load_model\(path, trust_pickle=True\)\.answering\(\)"):
        expost.audit(path, X, y, X, y)
    skops.io.dump(Majority().fit(X, y), tmp_path / "m.skops")
    with pytest.raises(InvalidInput, match="may run code when it is loaded"):
        expost.audit(tmp_path / "m.skops", X, y, X, y)
    with pytest.raises(InvalidInput, match=r"--holdout OTHERS --trust-pickle"):
        expost.profile(path, X, y)
    with pytest.raises(InvalidInput, match=r"expost\.audit"):
        expost.publish(forest())


def test_a_booster_that_splits_absent_columns_is_refused(ask, tmp_path):
    saved = save("lightgbm", tmp_path)
    text = saved.path.read_text()
    line = re.search(r"^split_feature=.*$", text, re.MULTILINE)[0]
    saved.path.write_text(text.replace(line, re.sub(r"\d(?=\D|$)", "9", line, count=1), 1))
    done = ask(saved.path, *saved.options)
    assert done.code == 2
    assert "splits a column that the model does not have (5 columns)" in done.err


def linear_onnx(path, weights, activation):
    """A network x·W of two columns, with this activation."""
    import onnx
    from onnx import TensorProto, helper

    def value(name, width):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])

    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "W"], ["z"]),
            helper.make_node(activation, ["z"], ["y"]),
        ],
        "g",
        [value("x", 2)],
        [value("y", weights.shape[1])],
        [onnx.numpy_helper.from_array(weights.astype(np.float32), "W")],
    )
    sets = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), path)


def test_one_output_is_not_taken_for_a_regression_of_two_labels(ask, tmp_path):
    """Logits of a network, and its probabilities, with and without the names of the labels."""
    pytest.importorskip("onnx")
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    frame["diagnosis"] = (frame["a"] + 0.5 * rng.normal(size=400) > 0).astype(int)
    frame[:200].to_csv(tmp_path / "a.csv", index=False)
    frame[200:].to_csv(tmp_path / "b.csv", index=False)
    tables = {"data": tmp_path / "a.csv", "holdout": tmp_path / "b.csv"}
    path, weights = tmp_path / "m.onnx", np.array([[2.0], [0.0]])
    for activation in ("Identity", "Sigmoid"):
        linear_onnx(path, weights, activation)
        done = ask(path, **tables)
        assert done.code == 2
        assert "--classes" in done.err
    done = ask(path, "--classes", "0,1", **tables)
    assert done.code == 0, done.err
    assert result_of(tmp_path / "o")["fit"]["members"] > 0.8
    for outputs in (weights, np.hstack([-weights, weights])):
        linear_onnx(path, outputs, "Identity")
        done = ask(path, "--classes", "0,1", **tables)
        assert done.code == 2
        assert "logits" in done.err
    # A regression is one, with a notice.
    for name in ("a", "b"):
        table = pd.read_csv(tmp_path / f"{name}.csv")
        table["diagnosis"] = 2 * table["a"] + rng.normal(size=200)
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    linear_onnx(path, weights, "Identity")
    done = ask(path, **tables)
    assert done.code == 0, done.err
    assert "taken for a regression" in done.out


def test_a_pickle_in_a_zip_is_no_skops_file(ask, tmp_path):
    canary, path = tmp_path / "canary", tmp_path / "model.skops"
    with zipfile.ZipFile(path, "w") as content:
        content.writestr("data.pkl", pickle.dumps(Payload(canary)))
    done = ask(path)
    assert done.code == 2
    assert "known format" in done.err
    assert not canary.exists()


@pytest.mark.parametrize(
    "kind", ["joblib", "skops", "xgboost-json", "xgboost-ubj", "lightgbm", "onnx"]
)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_a_broken_file_is_one_sentence(ask, tmp_path, kind, share):
    saved = save(kind, tmp_path)
    content = saved.path.read_bytes()
    saved.path.write_bytes(content[: int(len(content) * share)])
    done = ask(saved.path, *saved.options)
    assert done.code == 2
    assert done.err.count("\n") <= 1
    assert "Traceback" not in done.err
    assert str(saved.path) in done.err


def test_a_broken_file_does_not_reach_a_parser_that_reads_past_it(tmp_path):
    """XGBoost crashes at about one end of twenty; a whole file may have any name."""
    saved = save("xgboost-ubj", tmp_path)
    content = saved.path.read_bytes()
    for end in range(3, len(content), 97):
        saved.path.write_bytes(content[:end])
        with pytest.raises(InvalidInput, match="is not whole"):
            load_model(saved.path)
    for damaged in (content + b"}", content.replace(b"[$", b"[q"), content.replace(b"#L", b"#?")):
        saved.path.write_bytes(damaged)
        with pytest.raises(InvalidInput, match="is not whole"):
            load_model(saved.path)
    for value in (b"Z", b"U\x01", b"SU\x02ab", b"[#U\x02TF", b"[TFN]", b"[$dU\x00"):
        saved.path.write_bytes(b"{U\x01a" + value)
        with pytest.raises(InvalidInput, match="is not whole"):
            load_model(saved.path)
    renamed = tmp_path / "model.json"
    renamed.write_bytes(content)
    assert load_model(renamed).width == load_model(save("xgboost-ubj", tmp_path).path).width


def test_other_files_and_large_ones_are_refused(ask, tmp_path, monkeypatch):
    for content in (b"", b"a,b\n1,2\n", b"\x00" * 100, b"CBM1" + b"x" * 50):
        (tmp_path / "m").write_bytes(content)
        done = ask(tmp_path / "m")
        assert done.code == 2
        assert "known format" in done.err
    saved = save("lightgbm", tmp_path)
    monkeypatch.setattr(formats, "MOST_BYTES", 100)
    done = ask(saved.path, *saved.options)
    assert done.code == 2
    assert "GiB" in done.err
    assert ask(tmp_path / "absent").code == 2
    assert ask(tmp_path).code == 2


def test_files_that_an_onnx_model_names_are_not_read(ask, tmp_path, monkeypatch):
    """Weights may lie in other files, at paths that the model chooses."""
    import onnx
    from onnx import TensorProto, helper

    weight = helper.make_tensor(
        "w", TensorProto.FLOAT, [4, 1], np.ones(4, np.float32).tobytes(), raw=True
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "inside.onnx")
    onnx.save(
        model, "outside.onnx", save_as_external_data=True, location="weights", size_threshold=0
    )
    options = ("--drop", "shape", "--drop", "diagnosis")
    frame = patients()
    frame.assign(size=frame["worst area"]).to_csv("members.csv", index=False)
    frame.assign(size=frame["worst area"] + 1).to_csv("others.csv", index=False)
    whole = ask(tmp_path / "inside.onnx", *options, target="size")
    assert whole.code == 0, whole.err
    done = ask(tmp_path / "outside.onnx", *options, target="size")
    assert done.code == 2
    assert "cannot be loaded" in done.err


# Columns, labels, options -----------------------------------------------------------------------


def test_columns_are_found_by_name_in_any_order(ask, tmp_path):
    saved = save("xgboost-json", tmp_path)
    assert ask(saved.path, *saved.options, "--attack", "loss").code == 0
    before = result_of(tmp_path / "o")["attacks"]
    for name, half in zip(("members.csv", "others.csv"), halves(), strict=True):
        mixed = half[[*half.columns[::-1]]].assign(extra=1)
        mixed.to_csv(tmp_path / name, index=False)
    done = ask(saved.path, *saved.options, "--attack", "loss")
    assert done.code == 0, done.err
    assert result_of(tmp_path / "o")["attacks"]["loss"]["auc"] == before["loss"]["auc"]


def test_a_version_that_predicts_categories_wrongly_is_refused(ask, tmp_path, monkeypatch):
    saved = save("xgboost-json", tmp_path)
    monkeypatch.setattr("xgboost.__version__", "3.1.0")
    done = ask(saved.path, *saved.options, "--attack", "loss")
    assert done.code == 2
    assert "3.1.0" in done.err
    assert "install a later version" in done.err


def test_a_missing_column_is_named(ask, tmp_path):
    saved = save("xgboost-json", tmp_path)
    for name, half in zip(("members.csv", "others.csv"), halves(), strict=True):
        half.rename(columns={"mean radius": "mean_radios"}).to_csv(tmp_path / name, index=False)
    done = ask(saved.path, *saved.options)
    assert done.code == 2
    assert "'mean radius'" in done.err
    assert "Did you mean 'mean_radios'?" in done.err


def test_no_order_of_classes_or_columns_is_guessed(ask, tmp_path):
    saved = save("xgboost-json", tmp_path)
    done = ask(saved.path)
    assert done.code == 2
    assert "--classes" in done.err
    assert ask(saved.path, "--classes", "a,b,c").code == 2
    assert ask(saved.path, "--classes", "malignant,other").code == 2
    saved = save("onnx-matrix", tmp_path)
    done = ask(saved.path, "--classes", "benign,malignant")
    assert done.code == 2
    assert "--drop" in done.err
    # A column too few is not repaired by leaving out more.
    done = ask(saved.path, *saved.options, "--drop", COLUMNS[0])
    assert (done.code, done.out) == (2, "")
    assert "--drop" not in done.err
    assert "the table that the model was trained on" in done.err.replace("\n", " ")
    # A model that knows its classes is not told others.
    saved = save("onnx", tmp_path)
    assert ask(saved.path, "--classes", "malignant,benign").code == 2


def test_missing_strings_are_not_guessed(ask, tmp_path):
    """scikit-learn has a category for them, XGBoost a branch, and ONNX nothing."""
    members, _ = halves()
    holes = members.assign(shape=members["shape"].where(np.arange(len(members)) > 5))
    holes.to_csv(tmp_path / "members.csv", index=False)
    saved = save("xgboost-json", tmp_path)
    assert ask(saved.path, *saved.options, "--attack", "loss").code == 0
    saved = save("onnx", tmp_path)
    done = ask(saved.path)
    assert done.code == 2
    assert "'shape'" in done.err
    assert "missing" in done.err
    # Numbers that are strings in one of the tables.
    members.assign(**{"mean radius": "?"}).to_csv(tmp_path / "members.csv", index=False)
    done = ask(saved.path)
    assert done.code == 2
    assert "'mean_radius'" in done.err


def test_labels_0_and_1_need_no_names(ask, tmp_path):
    saved = save("xgboost-json", tmp_path)
    for name, half in zip(("members.csv", "others.csv"), halves(), strict=True):
        codes = (half["diagnosis"] == "benign").astype(int)
        half.assign(diagnosis=codes).to_csv(tmp_path / name, index=False)
    done = ask(saved.path, "--attack", "loss")
    assert done.code == 0, done.err
    assert result_of(tmp_path / "o")["attacks"]["loss"]["auc"]["value"] > 0.5


def test_options_of_files_are_refused_for_others(program, tmp_path):
    members, _ = write_tables(tmp_path)
    done = program(
        *("audit", members, "--target", "diagnosis", "--estimator"),
        *("sklearn.tree.DecisionTreeClassifier", "--trust-pickle", "--out", tmp_path / "o"),
    )
    assert done.code == 2
    assert "--trust-pickle" in done.err
    done = program(
        *("audit", members, "--target", "diagnosis", "--estimator"),
        *("sklearn.tree.DecisionTreeClassifier", "--propensity", "0.5", "--out", tmp_path / "o"),
    )
    assert done.code == 2
    assert "--holdout" in done.err


# Shift and propensities -------------------------------------------------------------------------


def test_a_shift_is_an_alert_everywhere(ask, tmp_path):
    saved = save("onnx", tmp_path)
    frame = patients().sort_values("mean texture")
    middle = len(frame) // 2
    frame.iloc[:middle].to_csv(tmp_path / "members.csv", index=False)
    frame.iloc[middle:].to_csv(tmp_path / "others.csv", index=False)
    done = ask(saved.path)
    assert done.code == 0
    assert done.out.startswith("Members and non-members differ")
    answer = result_of(tmp_path / "o")
    assert answer["shift"]["detected"] is True
    assert answer["shift"]["blind_auc"]["value"] > 0.95
    document = page_in(tmp_path / "o").get("audit")
    assert document.alerts[0].severity == "problem"
    assert any(section.id == "attack-shift" for section in document.sections)
    # A bound that rests on estimated propensities is not among the proved ones.
    assert answer["lower_bounds"] == []
    assert answer["shift"]["estimated_bound"]["assumption"]


def test_known_propensities_give_a_proved_bound(ask, tmp_path):
    """Rows were included with a probability of their own, in a column that is no feature."""
    rng = np.random.default_rng(0)
    frame = patients()
    chance = np.where(frame["mean texture"] > 18, 0.7, 0.3)
    inside = rng.random(len(frame)) < chance
    frame = frame.assign(chance=chance)
    frame[inside].to_csv(tmp_path / "members.csv", index=False)
    frame[~inside].to_csv(tmp_path / "others.csv", index=False)
    saved = save("onnx", tmp_path)
    done = ask(saved.path, "--propensity", "chance")
    assert done.code == 0, done.err
    answer = result_of(tmp_path / "o")
    (bound,) = answer["lower_bounds"]
    assert bound["method"] == "One training, propensities"
    assert bound["assumption"] == ""
    assert answer["members_chosen_by"] == "propensity"
    # A shift by design is no alert.
    assert not done.out.startswith("Members and non-members differ")
    for wrong in ("0", "1.5", "nobody", "shape"):
        assert ask(saved.path, "--propensity", wrong).code == 2


# Python -----------------------------------------------------------------------------------------


def test_the_same_in_python(tmp_path):
    import expost

    saved = save("xgboost-json", tmp_path)
    train, every = rows()
    members, others = halves()
    loaded = expost.auditing.load_model(saved.path)
    assert loaded.columns == (*COLUMNS, "shape")
    model = loaded.answering(classes=saved.classes)
    audit = expost.audit(
        *(model, train, members["diagnosis"], every.iloc[len(train) :], others["diagnosis"]),
        references=0,
        random_state=1,
    )
    assert audit.figures["loss"].auc.value > 0.5
    assert audit.shift is not None
    # The path alone: labels are 0 and 1.
    codes = [(half["diagnosis"] == "benign").astype(int) for half in halves()]
    again = expost.audit(
        *(saved.path, train, codes[0], every.iloc[len(train) :], codes[1]),
        references=0,
        random_state=1,
    )
    assert again.figures["loss"].auc.value == audit.figures["loss"].auc.value
