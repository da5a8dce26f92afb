"""Held-out AUC and log loss by where means, scales and levels come from, at one total (ε, δ).

    python bench/useful_encodings.py             prints the table
    python bench/useful_encodings.py --record    also writes docs/evidence/useful-encodings.json

read      from the training rows, which no ε covers: the default.
given     public ranges, mapped to [−1, 1], and public levels: nothing is spent.
private   public ranges; noisy histograms spend a tenth of ε on means, scales and levels.

A public range is that of the column, rounded outwards to one digit: it stands for a code book. The
model is logistic regression with nothing else set; 25 % of the rows are held out, in other splits
and with other noise each time. The synthetic tables have ranges that outliers of their draws set.
"""

import measure  # isort: skip (it pins BLAS to one thread)
import argparse
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.metrics import log_loss, roc_auc_score

import expost
from tables import TABLES, RawTable

SEED = 20
SPLITS = 5
SHARE = 0.1
EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)
EVIDENCE = Path(__file__).parent.parent / "docs" / "evidence" / "useful-encodings.json"


def outwards(value: float, up: bool) -> float:
    """Round to one digit, up or down."""
    if value == 0:
        return 0.0
    unit = 10.0 ** math.floor(math.log10(abs(value)))
    return (math.ceil if up else math.floor)(value / unit) * unit


def public_range(column: np.ndarray) -> list[float]:
    """The range of a column, rounded outwards."""
    low, high = outwards(float(column.min()), False), outwards(float(column.max()), True)
    return [low, high if high > low else low + 1.0]


def encodings(table: RawTable) -> dict[str, dict[str, Any]]:
    """The parameters of an estimator for each column of the results."""
    numbers = {
        name: {"range": public_range(column)}
        for name, column in table.columns.items()
        if column.dtype.kind != "U"
    }
    texts = {name: column for name, column in table.columns.items() if column.dtype.kind == "U"}
    levels = {name: {"levels": np.unique(column).tolist()} for name, column in texts.items()}
    blank = {name: {"kind": "levels"} for name in texts}
    return {
        "read": {"encoding": {}},
        "given": {"encoding": {"columns": numbers | levels}},
        "private": {"encoding": {"columns": numbers | blank}, "private_encoding": SHARE},
    }


def scored(table: RawTable, parameters: dict[str, Any], epsilon: float, split: int) -> list[float]:
    """AUC and log loss of one model on the rows that it has not seen."""
    train, test = table.split(SEED + split)
    frame = pa.table(table.columns)
    seed = 1000 * split + round(100 * epsilon)
    model = expost.PrivateLogisticRegression(
        epsilon=epsilon, classes=(-1.0, 1.0), random_state=seed, **parameters
    )
    try:
        model.fit(frame.take(train), table.y[train])
    except expost.errors.InvalidInput:
        # No level passed the threshold: the base rate is all that can be released.
        share = float(np.mean(table.y[train] > 0))
        return [0.5, log_loss(table.y[test], np.full(len(test), share))]
    chance = model.predict_proba(frame.take(test))[:, 1]
    return [roc_auc_score(table.y[test], chance), log_loss(table.y[test], chance)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument("--only", help="names of tables, with commas between them")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = options.only.split(",") if options.only else list(TABLES)
    tables: dict[str, Any] = {}
    for name in names:
        table = TABLES[name]()
        cells: dict[str, Any] = {"kind": table.kind, "rows": table.rows}
        for epsilon in EPSILONS:
            line = {}
            for column, parameters in encodings(table).items():
                each = np.array(
                    [scored(table, parameters, epsilon, split) for split in range(SPLITS)]
                )
                error = each.std(axis=0, ddof=1) / math.sqrt(SPLITS)
                line[column] = {
                    "auc": round(float(each[:, 0].mean()), 4),
                    "auc_error": round(float(error[0]), 4),
                    "log_loss": round(float(each[:, 1].mean()), 4),
                    "log_loss_error": round(float(error[1]), 4),
                }
            cells[f"{epsilon:g}"] = line
            shown = "  ".join(f"{key} {value['auc']:.3f}" for key, value in line.items())
            print(f"{name:<18} ε = {epsilon:<4g} {shown}", flush=True)
        tables[name] = cells
    real = [cells for cells in tables.values() if cells["kind"] == "real"]
    means = {
        f"{epsilon:g}": {
            column: {
                figure: round(float(np.mean([c[f"{epsilon:g}"][column][figure] for c in real])), 4)
                for figure in ("auc", "log_loss")
            }
            for column in ("read", "given", "private")
        }
        for epsilon in EPSILONS
    }
    print(json.dumps(means, indent=1))
    if options.record:
        figures = {"mean of real tables": means, "share": SHARE, "splits": SPLITS, "tables": tables}
        measure.record("useful-encodings", __file__, SEED, figures)


if __name__ == "__main__":
    main()
