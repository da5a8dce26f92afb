"""A small table with its models, and the command that erases persons from them."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from expost import PrivateLogisticRegression
from expost.data import Encoding, open_table
from program import people, text

ROWS = 120
COLUMNS = {
    "age": {"mean": 45, "scale": 20},
    "smoker": {"levels": ["true", "false"]},
    "hours": {"mean": 40, "scale": 10, "fill": 40, "cut": None},
}
CITIES = ["Bergen", "Oslo", "Paris"]
INCOMES = ["<=50K", ">50K"]
# By the name of a mechanism: the target, and the options of the estimator.
MODELS = {
    "output laplace": ("income", {"mechanism": "output", "noise": "laplace", "delta": None}),
    "output gaussian": ("income", {"mechanism": "output", "noise": "gaussian"}),
    "objective laplace": ("income", {"mechanism": "objective", "noise": "laplace", "delta": None}),
    "objective gaussian": ("income", {"mechanism": "objective", "noise": "gaussian"}),
    "three classes": ("city", {"mechanism": "objective", "noise": "gaussian"}),
}


def table(rows: int = ROWS, rows_per_person: int = 1) -> list[list[str]]:
    """People, of whom each has so many rows; keys are strings of their own."""
    lines = people(rows)
    for number, line in enumerate(lines[1:]):
        line[0] = f"key-{7919 * (number // rows_per_person + 1):06d}"
    return lines


def write(path: Path, lines: list[list[str]]) -> Path:
    path.write_text(text(lines))
    return path


def without(path: Path, keys: set[str], to: Path) -> Path:
    """The same table without the rows of these keys."""
    with path.open() as file:
        lines = list(csv.reader(file))
    return write(to, [line for line in lines if line[0] not in keys])


def make_model(path: Path, folder: Path, name: str = "objective gaussian", **more) -> Path:
    """A model.json of a table, whose constants are known without the data: it is public."""
    target, options = MODELS[name]
    classes = CITIES if target == "city" else INCOMES
    given = {"columns": COLUMNS, "target": {"classes": classes}, "data_norm": 5}
    opened = open_table(str(path), columns=[*COLUMNS, target], missing=("", "?"))
    encoding = Encoding.read(opened, target=target, given=given)
    encoded = encoding.encode_table(encoding.open(path))
    codes = encoded.y.astype(int) if len(classes) > 2 else (encoded.y > 0).astype(int)
    model = PrivateLogisticRegression(data_norm=5.0, classes=classes, **options, **more)
    release = model.fit(encoded.X, np.array(classes)[codes]).release_
    release = replace(release, encoding=encoding.to_json(), feature_names=encoding.feature_names)
    folder.mkdir(exist_ok=True)
    return release.save(folder / "model.json")
