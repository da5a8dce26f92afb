"""Saved models of a real table, in every format, with the answers that they gave before."""

from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

COLUMNS = ("mean radius", "mean texture", "mean smoothness", "worst area")
LABELS = ("malignant", "benign")


@dataclass(frozen=True)
class Saved:
    """A file, the options that the command needs for it, and P(label) of every row before saving."""

    path: Path
    options: tuple[str, ...]
    classes: tuple[str, ...]
    answers: np.ndarray


def patients() -> pd.DataFrame:
    """569 patients: four numbers and one word; the label last."""
    data = load_breast_cancer(as_frame=True)
    frame = data.data[list(COLUMNS)].copy()
    frame["shape"] = np.where(data.data["mean concavity"] > 0.06, "irregular", "round")
    frame["diagnosis"] = np.array(LABELS)[data.target]
    return frame


def halves() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Members and non-members, split at random."""
    frame = patients().sample(frac=1.0, random_state=3)
    return frame.iloc[:284], frame.iloc[284:]


def write_tables(folder: Path) -> tuple[Path, Path]:
    """Both halves as CSV files."""
    paths = folder / "members.csv", folder / "others.csv"
    for path, frame in zip(paths, halves(), strict=True):
        frame.to_csv(path, index=False)
    return paths


def rows(*, categories: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The features of members and of all rows, members first."""
    members, others = halves()
    features = pd.concat([members, others]).drop(columns="diagnosis")
    if categories:
        features["shape"] = features["shape"].astype("category")
    return features.iloc[: len(members)], features


def forest() -> object:
    members, _ = halves()
    encoder = make_column_transformer((OneHotEncoder(), ["shape"]), remainder="passthrough")
    model = make_pipeline(encoder, RandomForestClassifier(25, random_state=0))
    return model.fit(rows()[0], members["diagnosis"])


def save(kind: str, folder: Path) -> Saved:
    """Train a model and save it in this format."""
    return {
        "joblib": _joblib,
        "compressed": _compressed,
        "skops": _skops,
        "xgboost-json": _xgboost_json,
        "xgboost-ubj": _xgboost_ubj,
        "lightgbm": _lightgbm,
        "onnx": _onnx,
        "onnx-matrix": _onnx_matrix,
    }[kind](folder)


KINDS = ("joblib", "compressed", "skops", "xgboost-json", "xgboost-ubj", "lightgbm")
KINDS += ("onnx", "onnx-matrix")


def _estimator(path, options):
    model = forest()
    return model, Saved(path, options, tuple(model.classes_), model.predict_proba(rows()[1]))


def _joblib(folder):
    path = folder / "forest.joblib"
    model, saved = _estimator(path, ("--trust-pickle",))
    joblib.dump(model, path)
    return saved


def _compressed(folder):
    path = folder / "forest.model"
    model, saved = _estimator(path, ("--trust-pickle",))
    joblib.dump(model, path, compress=3)
    return saved


def _skops(folder):
    from skops import io

    path = folder / "forest.skops"
    model, saved = _estimator(path, ("--trust-type", "sklearn.tree._tree.Tree"))
    io.dump(model, path)
    return saved


def _xgboost(path):
    import xgboost

    members, _ = halves()
    train, every = rows(categories=True)
    model = xgboost.XGBClassifier(n_estimators=20, enable_categorical=True, n_jobs=1)
    model.fit(train, (members["diagnosis"] == LABELS[1]).astype(int))
    model.save_model(path)
    return Saved(path, ("--classes", ",".join(LABELS)), LABELS, model.predict_proba(every))


def _xgboost_json(folder):
    return _xgboost(folder / "booster.json")


def _xgboost_ubj(folder):
    return _xgboost(folder / "booster.ubj")


def _lightgbm(folder):
    import lightgbm

    members, _ = halves()
    train, every = rows(categories=True)
    model = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1)
    model.fit(train, members["diagnosis"])
    path = folder / "booster.txt"
    model.booster_.save_model(path)
    names = tuple(model.classes_)
    return Saved(path, ("--classes", ",".join(names)), names, model.predict_proba(every))


def _onnx(folder):
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    path = folder / "forest.onnx"
    model, saved = _estimator(path, ())
    types = [(name, FloatTensorType([None, 1])) for name in COLUMNS]
    types.append(("shape", StringTensorType([None, 1])))
    path.write_bytes(skl2onnx.to_onnx(model, initial_types=types).SerializeToString())
    return saved


def _onnx_matrix(folder):
    """One matrix of numbers without names, and probabilities without classes."""
    import skl2onnx

    members, _ = halves()
    train, every = (part[list(COLUMNS)].to_numpy(np.float32) for part in rows())
    model = RandomForestClassifier(25, random_state=0).fit(train, members["diagnosis"])
    path = folder / "matrix.bin"
    graph = skl2onnx.to_onnx(model, train[:1], options={"zipmap": False})
    path.write_bytes(graph.SerializeToString())
    names = tuple(model.classes_)
    options = ("--classes", ",".join(names), "--drop", "shape")
    return Saved(path, options, names, model.predict_proba(every))
