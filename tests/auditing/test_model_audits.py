"""Audits of a saved forest, boosters and an ONNX model of Adult, by the command (long)."""

import json

import joblib
import numpy as np
import pytest

import evidence
from papers.datasets import load_adult

NUMBERS = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
WORDS = ["workclass", "marital-status", "occupation", "sex"]
LABELS = ["<=50K", ">50K"]
ROWS, SEED = 2000, 20


@pytest.fixture(scope="module")
def people():
    """2,000 members, 2,000 others of the same draw, and 2,000 others above the age of forty."""
    table = load_adult().rows("train").table.to_pandas()
    table["income"] = table["income"].astype(str).str.strip(" .")
    # A string of ONNX cannot be missing.
    table[WORDS] = table[WORDS].fillna("?")
    table = table[[*NUMBERS, *WORDS, "income"]].sample(frac=1.0, random_state=SEED)
    rest = table.iloc[2 * ROWS :]
    return table.iloc[:ROWS], table.iloc[ROWS : 2 * ROWS], rest[rest["age"] > 40].iloc[:ROWS]


def forest(members):
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), WORDS), remainder="passthrough"
    )
    model = make_pipeline(encoder, RandomForestClassifier(100, random_state=SEED))
    return model.fit(members.drop(columns="income"), members["income"])


def saved(folder, members):
    """(file, options) of each model."""
    import skl2onnx
    import xgboost
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    model = forest(members)
    joblib.dump(model, folder / "forest.joblib")
    words = members[WORDS].astype("category")
    features = members.drop(columns="income").assign(**words)
    booster = xgboost.XGBClassifier(n_estimators=200, max_depth=8, enable_categorical=True)
    booster.fit(features, (members["income"] == LABELS[1]).astype(int))
    booster.save_model(folder / "booster.ubj")
    types = [(name, FloatTensorType([None, 1])) for name in NUMBERS]
    types += [(name, StringTensorType([None, 1])) for name in WORDS]
    graph = skl2onnx.to_onnx(model, initial_types=types)
    (folder / "forest.onnx").write_bytes(graph.SerializeToString())
    classes = ["--classes", ",".join(LABELS)]
    trainer = ["--estimator", "sklearn.ensemble.RandomForestClassifier", "--references", "16"]
    return {
        "forest (joblib), 16 references": (
            "forest.joblib",
            ["--trust-pickle", "--references", "16"],
        ),
        "booster (XGBoost)": ("booster.ubj", classes),
        "booster (XGBoost), 16 references by another class": ("booster.ubj", classes + trainer),
        "forest (ONNX)": ("forest.onnx", []),
    }


@pytest.mark.long
def test_audits_of_saved_models(people, program, tmp_path):
    members, others, older = people
    members.to_csv(tmp_path / "members.csv", index=False)
    others.to_csv(tmp_path / "others.csv", index=False)
    older.to_csv(tmp_path / "older.csv", index=False)
    figures = {}
    models = saved(tmp_path, members)
    cases = [(name, "others.csv", *model) for name, model in models.items()]
    cases.append(("forest (ONNX), others above the age of forty", "older.csv", "forest.onnx", []))
    for name, holdout, file, options in cases:
        out = tmp_path / "o"
        command = ["audit", tmp_path / "members.csv", "--target", "income"]
        command += ["--holdout", tmp_path / holdout, "--model", tmp_path / file, *options]
        done = program(*command, "--seed", SEED, "--out", out, "--force")
        assert done.code == 0, done.err
        answer = json.loads((out / "figures.CURATOR-ONLY.json").read_text())
        best = answer["attacks"][answer["best"]]
        figures[name] = {
            "verdict": done.out.splitlines()[0],
            "best": answer["best"],
            "auc": best["auc"],
            "tpr_at_1_percent": best["tpr_at_1_percent"],
            "loss_auc": answer["attacks"]["loss"]["auc"]["value"],
            "references": answer["references"],
            "blind_auc": answer["shift"]["blind_auc"]["value"],
            "shift_detected": answer["shift"]["detected"],
            "shift_p_value": answer["shift"]["p_value"],
            "estimated_bound": answer["shift"]["estimated_bound"]["epsilon"],
            "proved_bounds": [each["epsilon"] for each in answer["lower_bounds"]],
        }
        assert figures[name]["shift_detected"] is (holdout == "older.csv")
    # The forest and its ONNX file are one model.
    first, second = (figures[name]["loss_auc"] for name in (cases[0][0], "forest (ONNX)"))
    assert first == pytest.approx(second, abs=0.003)
    assert min(np.array([each["auc"]["value"] for each in figures.values()])) > 0.52
    evidence.record(
        "audit-model-files",
        command="pytest -m long tests/auditing/test_model_audits.py",
        seed=SEED,
        figures={"members": ROWS, "non_members": ROWS, "audits": figures},
    )
