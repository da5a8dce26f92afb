"""Held-out AUC and log loss of the logistic loss with margin 0 and with the automatic margin.

    python bench/useful_margin.py              prints the table
    python bench/useful_margin.py --record     also writes docs/evidence/useful-margin.json

Every fit with a margin has the same rows, Λ and noise as its pair without one. Numbers are
(x − mean)/standard deviation of the training rows, cut at ±2; strings become one column a level.
The formula of the automatic margin was chosen on other splits of adult, credit and cancer, and of
tables that are not here; cardiotocography, wine and car took no part.
"""

import measure  # isort: skip (it pins BLAS to one thread)
import argparse
import math
import warnings
from typing import Any

import numpy as np

from sklearn.metrics import log_loss, roc_auc_score
from tables import TABLES, encode

SEED = 18
NAMES = ("adult", "credit", "cancer", "cardiotocography", "wine", "car", "noise")
EPSILONS = (0.1, 0.3, 1.0)
SPLITS, DRAWS = 3, 3


def fits(name: str, epsilon: float) -> tuple[float, float, Any]:
    """(mean r, mean margin, (splits, draws, 2 margins, 2 measures)) of a table."""
    from expost import PrivateLogisticRegression
    from expost.data.unit_ball import default_intercept

    table = TABLES[name]()
    p, ratios, margins = len(table.columns), [], []
    scores = np.empty((SPLITS, DRAWS, 2, 2))
    for index in range(SPLITS):
        train, test = table.split(SEED + index)
        X, held_out = (np.clip(part, -2, 2) for part in encode(table.columns, train, test))
        for draw in range(DRAWS):
            for column, margin in enumerate((0.0, "auto")):
                model = PrivateLogisticRegression(
                    epsilon,
                    margin=margin,
                    data_norm=math.sqrt(p) / 2,
                    intercept_scaling=default_intercept(p),
                    classes=(-1.0, 1.0),
                    random_state=SEED * 1000 + 100 * index + draw,
                ).fit(X, table.y[train])
                scores[index, draw, column] = (
                    roc_auc_score(table.y[test], model.decision_function(held_out)),
                    log_loss(table.y[test], model.predict_proba(held_out)),
                )
            ratios.append(model.release_.mechanism.forecast.noise_ratio)
            margins.append(model.release_.mechanism.loss.margin)
    return float(np.mean(ratios)), float(np.mean(margins)), scores


def base_rate(name: str) -> float:
    """The log loss of the base rate, on average over the splits."""
    table, values = TABLES[name](), []
    for index in range(SPLITS):
        train, test = table.split(SEED + index)
        share = np.mean(table.y[train] > 0)
        values.append(log_loss(table.y[test], np.full(len(test), share)))
    return round(float(np.mean(values)), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # seeds, clipped rows, useless models
    figures: dict[str, Any] = {}
    print("| table | ε | r | a | AUC: 0 | auto | change | log loss: 0 | auto | change |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in NAMES:
        figures[name] = {"base rate": base_rate(name), "epsilon": {}}
        for epsilon in EPSILONS:
            ratio, margin, scores = fits(name, epsilon)
            by_split = scores.mean(axis=1)
            change = by_split[:, 1] - by_split[:, 0]
            error = change.std(axis=0, ddof=1) / math.sqrt(SPLITS)
            line: dict[str, Any] = {"r": round(ratio, 5), "margin": round(margin, 2)}
            for k, key in enumerate(("AUC", "log loss")):
                line[key] = {
                    "0": round(float(by_split[:, 0, k].mean()), 4),
                    "auto": round(float(by_split[:, 1, k].mean()), 4),
                    "change": [
                        round(float(change[:, k].mean()), 4),
                        round(float(error[k]), 4),
                    ],
                }
            figures[name]["epsilon"][f"{epsilon:g}"] = line
            cells = [
                f"{cell['0']:.3f} | {cell['auto']:.3f} | {cell['change'][0]:+.3f} ±"
                f" {cell['change'][1]:.3f}"
                for cell in (line["AUC"], line["log loss"])
            ]
            print(f"| {name} | {epsilon:g} | {ratio:.2g} | {margin:.2g} | {' | '.join(cells)} |")
    means = {
        f"{epsilon:g}": {
            key: round(
                float(np.mean([t["epsilon"][f"{epsilon:g}"][key]["change"][0] for t in tables])), 4
            )
            for key in ("AUC", "log loss")
        }
        for epsilon in EPSILONS
        for tables in [list(figures.values())]
    }
    print(means)
    if options.record:
        measure.record("useful-margin", __file__, SEED, {"tables": figures, "means": means})


if __name__ == "__main__":
    main()
