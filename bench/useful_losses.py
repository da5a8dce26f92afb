"""Held-out quality of the default rules of the other losses: before, by default, at best.

    python bench/useful_losses.py                      all sections, printed
    python bench/useful_losses.py --only softmax       one section
    python bench/useful_losses.py --record             also writes docs/evidence/useful-losses.json
    python bench/useful_losses.py --current            "before" stays what is recorded

Sections: softmax regression, the Huber hinge and ridge regression. "before" is the package at
commit BEFORE with its defaults (softmax: mechanism="objective", which it needed), "default" the
current one with nothing set but ε, "oracle" the best of the factors of Λ in FACTORS on the
*held-out* rows, for each measure apart. Numbers are (x − mean)/standard deviation of the training
rows, cut at ±2 (not cut before); strings become one column a level. Ridge has a label range known
without the data (RANGES), before as its label bound. At most ROWS training rows are used.

None of these tables took part in choosing a rule: that was done on iris, wine and digits of
scikit-learn, tables.TUNING_TABLES and drawn ones. Diabetes also chose the width of Huber's loss.
"""

import measure  # isort: skip (it pins BLAS to one thread)
import argparse
import json
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tables
from sklearn.datasets import load_diabetes
from tables import TABLES

SEED = 18
EVIDENCE = Path(__file__).parent.parent / "docs" / "evidence" / "useful-losses.json"
BEFORE = "50f0466"
EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)
FACTORS = (1 / 16, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 16.0)
SPLITS = 3
ROWS, HELD_OUT = 10_000, 4_000

Columns = dict[str, NDArray[Any]]


# -- tables of more than two classes ---------------------------------------------------------------


def _classes(name: str, label: str, **known: Any) -> tuple[Columns, NDArray[Any]]:
    cells = tables._named(tables._records(name, known.get("delimiter", ",")), known.get("names"))
    cells.pop("", None)
    y = np.array(cells.pop(label))
    names = known.get("columns", list(cells))
    if known.get("strings"):
        return {key: np.array([f"{key} {cell}" for cell in cells[key]]) for key in names}, y
    return {key: tables._numbers(cells[key]) for key in names}, y


CAR = ["buying", "maint", "doors", "persons", "lug_boot", "safety", "class"]
SENSORS = [*(f"x{k}" for k in range(48)), "y"]
SOFTMAX: dict[str, Callable[[], tuple[Columns, NDArray[Any]]]] = {
    "satimage (6 classes)": lambda: _classes("satimage", "y"),
    "cardiotocography (3)": lambda: _classes(
        "cardiotocography", "NSP", delimiter=";", columns=tables._HEART
    ),
    "car (4)": lambda: _classes("car", "class", names=CAR, strings=True),
    "sensorless (11)": lambda: _classes("sensorless", "y", delimiter=" ", names=SENSORS),
}


def _two(name: str) -> Callable[[], tuple[Columns, NDArray[Any]]]:
    def read() -> tuple[Columns, NDArray[Any]]:
        table = TABLES[name]()
        return table.columns, np.where(table.y > 0, "yes", "no")

    return read


HINGE = {
    name: _two(name)
    for name in ("adult", "bank", "credit", "cardiotocography", "car", "wine", "heavy-tailed")
}


def _diabetes() -> tuple[Columns, NDArray[Any]]:
    data = load_diabetes(scaled=False)
    return {f"x{k}": column for k, column in enumerate(data.data.T)}, data.target


def _number(name: str, label: str) -> Callable[[], tuple[Columns, NDArray[Any]]]:
    def read() -> tuple[Columns, NDArray[Any]]:
        columns = dict(TABLES[name]().columns)
        y = columns.pop(label)
        return columns, y

    return read


def _drawn() -> tuple[Columns, NDArray[Any]]:
    rng = np.random.default_rng(1807)
    X = rng.standard_normal((6000, 15)) @ (np.eye(15) + 0.1 * rng.standard_normal((15, 15)))
    y = X @ rng.standard_normal(15)
    return {f"x{k}": column for k, column in enumerate(X.T)}, y + y.std() * rng.standard_normal(
        6000
    )


RIDGE = {
    "diabetes": _diabetes,
    "wine: alcohol": _number("wine", "alcohol"),
    "bank: age": _number("bank", "age"),
    "drawn (6,000 × 15)": _drawn,
}
RANGES = {
    "diabetes": (0, 400),
    "wine: alcohol": (8, 15),
    "bank: age": (18, 95),
    "drawn (6,000 × 15)": (-15, 15),
}
SECTIONS = {"softmax": SOFTMAX, "hinge": HINGE, "ridge": RIDGE}


# -- fits ------------------------------------------------------------------------------------------


class Split:
    """Encoded rows of one split, and p, the number of columns of the table."""

    def __init__(self, columns: Columns, y: NDArray[Any], split: int, *, cut: float) -> None:
        rng = np.random.default_rng([SEED, split, len(y)])
        order = rng.permutation(len(y))
        held = round(tables.HELD_OUT * len(y))
        train, test = np.sort(order[held:][:ROWS]), np.sort(order[:held][:HELD_OUT])
        X, X_test = tables.encode(columns, train, test)
        self.X, self.X_test = np.clip(X, -cut, cut), np.clip(X_test, -cut, cut)
        self.y, self.y_test = y[train], y[test]
        self.p = len(columns)


def estimator_of(section: str, name: str, classes: list[Any], **given: Any) -> Any:
    from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge

    if section == "ridge":
        return PrivateRidge(label_range=RANGES[name], **given)
    kind = PrivateLinearSVC if section == "hinge" else PrivateLogisticRegression
    return kind(classes=tuple(classes), **given)


def rate(model: Any, split: Split, classes: list[Any]) -> dict[str, float]:
    """R², or accuracy, and AUC of two classes or log loss of more."""
    if split.y.dtype.kind == "f":
        return {"R²": float(model.score(split.X_test, split.y_test))}
    rates = {"accuracy": float(np.mean(model.predict(split.X_test) == split.y_test))}
    if len(classes) == 2:
        from sklearn.metrics import roc_auc_score

        scores = model.decision_function(split.X_test)
        rates["AUC"] = float(roc_auc_score(split.y_test == model.classes_[1], scores))
    if hasattr(model, "predict_proba"):
        chosen = np.searchsorted(model.classes_, split.y_test)
        logs = model.predict_log_proba(split.X_test)
        rates["log loss"] = float(-np.mean(logs[np.arange(len(logs)), chosen]))
    return rates


def seed_of(split: int, epsilon: float) -> int:
    """The seed of the noise: all settings of a split and an ε have the same."""
    return SEED * 10**7 + split * 10**5 + round(1000 * epsilon)


def fits(section: str, name: str, *, before: bool) -> Iterator[tuple[str, float, dict[str, float]]]:
    """(column, ε, figures) of every fit of a table."""
    if not before:
        from expost.data.unit_ball import default_intercept
    columns, y = SECTIONS[section][name]()
    classes = [] if section == "ridge" else np.unique(y).tolist()
    for index in range(SPLITS):
        split = Split(columns, y, index, cut=math.inf if before else 2.0)
        for epsilon in EPSILONS:
            given: dict[str, Any] = {"epsilon": epsilon, "random_state": seed_of(index, epsilon)}
            if before:
                given |= {"mechanism": "objective"} if section == "softmax" else {}
                if section == "ridge":
                    from expost import PrivateRidge

                    bound = float(max(map(abs, RANGES[name])))
                    model = PrivateRidge(label_bound=bound, **given)
                else:
                    model = estimator_of(section, name, classes, **given)
                yield "before", epsilon, rate(model.fit(split.X, split.y), split, classes)
                continue
            given |= {"data_norm": math.sqrt(split.p) / 2}
            # Of the columns of the table, as a command has it; X has their features.
            given |= {"intercept_scaling": default_intercept(split.p)}
            model = estimator_of(section, name, classes, **given).fit(split.X, split.y)
            yield "default", epsilon, rate(model, split, classes)
            penalty = model.release_.mechanism.regularization
            for factor in FACTORS:
                given["regularization"] = factor * penalty
                model = estimator_of(section, name, classes, **given).fit(split.X, split.y)
                yield f"oracle {factor:g}", epsilon, rate(model, split, classes)


def fits_before(section: str, name: str) -> Iterator[tuple[str, float, dict[str, float]]]:
    """The fits of the package as it was, in a process of its own."""
    import utility

    utility.BEFORE = BEFORE
    command = [sys.executable, __file__, "--before", section, name]
    import os

    environment = {**os.environ, "PYTHONPATH": str(utility._sources_before())}
    process = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=environment, check=True
    )
    for line in process.stdout.splitlines():
        yield tuple(json.loads(line))


# -- results ---------------------------------------------------------------------------------------


def base_of(section: str, name: str) -> dict[str, float]:
    """What predicting the shares of the classes gives, on average over the splits."""
    columns, y = SECTIONS[section][name]()
    if section == "ridge":
        return {"R²": 0.0}
    bases: dict[str, list[float]] = {"accuracy": [], "log loss": []}
    for index in range(SPLITS):
        split = Split(columns, y, index, cut=2.0)
        levels, counts = np.unique(split.y, return_counts=True)
        shares = dict(zip(levels.tolist(), counts / len(split.y), strict=True))
        bases["accuracy"].append(float(np.mean(split.y_test == max(shares, key=shares.get))))
        bases["log loss"].append(
            float(-np.mean([math.log(shares[label]) for label in split.y_test]))
        )
    return {key: round(float(np.mean(values)), 4) for key, values in bases.items()}


def best(measure_name: str, means: list[float]) -> float:
    return min(means) if measure_name == "log loss" else max(means)


def recorded_before(section: str, name: str) -> Iterator[tuple[str, float, dict[str, float]]]:
    """The recorded means of the package as it was, as if they were fits."""
    recorded = json.loads(EVIDENCE.read_text())["figures"][section]["tables"][name]["epsilon"]
    for epsilon, line in recorded.items():
        yield "before", float(epsilon), {key: cell["before"] for key, cell in line.items()}


def results_of(section: str, name: str, *, current: bool) -> dict[str, Any]:
    """{ε: {measure: {column: mean}}}; [mean, standard error over splits] of "default"."""
    values: dict[tuple[str, float, str], list[float]] = {}
    before = recorded_before if current else fits_before
    for results in (fits(section, name, before=False), before(section, name)):
        for column, epsilon, figures in results:
            for key, value in figures.items():
                values.setdefault((column, epsilon, key), []).append(value)
    lines: dict[str, Any] = {}
    for epsilon in EPSILONS:
        line: dict[str, Any] = {}
        for key in dict.fromkeys(key for _, at, key in values if at == epsilon):
            cells = {
                column: each
                for (column, at, k), each in values.items()
                if (at, k) == (epsilon, key)
            }
            error = float(np.std(cells["default"], ddof=1) / math.sqrt(SPLITS))
            line[key] = {
                "before": round(float(np.mean(cells["before"])), 3),
                "default": [round(float(np.mean(cells["default"])), 3), round(error, 3)],
            }
            means = [
                float(np.mean(each))
                for column, each in cells.items()
                if column.startswith("oracle")
            ]
            line[key]["oracle"] = round(best(key, means), 3)
        lines[f"{epsilon:g}"] = line
    return {"base rate": base_of(section, name), "epsilon": lines}


def print_section(section: str, results: dict[str, Any]) -> None:
    """Markdown: a line for each table and ε."""
    keys = list(next(iter(results.values()))["epsilon"]["1"])
    heads = [f"{key}: before | default | oracle" for key in keys]
    print(f"\n{section}\n\n| table | ε | {' | '.join(heads)} |")
    print("|---|---|" + "---|" * 3 * len(keys))
    for name, table in results.items():
        for epsilon, line in table["epsilon"].items():
            cells = [
                f"{line[key]['before']:.3f} | {line[key]['default'][0]:.3f} ±"
                f" {line[key]['default'][1]:.3f} | {line[key]['oracle']:.3f}"
                for key in keys
            ]
            print(f"| {name} | {epsilon} | {' | '.join(cells)} |", flush=True)


def means_of(results: dict[str, Any]) -> dict[str, Any]:
    """Means over the tables, {ε: {measure: {column: mean}}}."""
    first = next(iter(results.values()))["epsilon"]
    return {
        epsilon: {
            key: {
                column: round(
                    float(
                        np.mean(
                            [
                                np.ravel(t["epsilon"][epsilon][key][column])[0]
                                for t in results.values()
                            ]
                        )
                    ),
                    4,
                )
                for column in ("before", "default", "oracle")
            }
            for key in line
        }
        for epsilon, line in first.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="sections, separated by commas (default: all)")
    parser.add_argument(
        "--current", action="store_true", help='fit nothing for "before": it stays as recorded'
    )
    parser.add_argument("--before", nargs=2, help="print the fits of the package before")
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # seeds, and bounds read from the data before
    if options.before:
        for fit in fits(*options.before, before=True):
            print(json.dumps(fit))
        return
    figures: dict[str, Any] = {}
    for section in options.only.split(",") if options.only else SECTIONS:
        results = {
            name: results_of(section, name, current=options.current) for name in SECTIONS[section]
        }
        print_section(section, results)
        figures[section] = {"tables": results, "means": means_of(results)}
        print(json.dumps(figures[section]["means"], indent=1))
    if options.record:
        if EVIDENCE.exists():
            figures = json.loads(EVIDENCE.read_text())["figures"] | figures
        measure.record("useful-losses", __file__, SEED, figures)


if __name__ == "__main__":
    main()
