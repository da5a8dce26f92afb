"""The length s of the constant feature: where its rule comes from, and what it changes.

    python bench/useful_intercept.py --choose     the grid of s on the tables that choose the rule
    python bench/useful_intercept.py --judge      the rule next to 1/√(p + 1) on the utility tables
    python bench/useful_intercept.py --losses     the same for softmax, hinge and ridge
    python bench/useful_intercept.py --limits     any s and Λ where the base rate is not reached
    python bench/useful_intercept.py --record     all; writes docs/evidence/useful-intercept.json

The rule s = 1/√(min(p, k) + 1) is derived in docs/utility.md; k = 7 is its one constant. CHOOSING
are the tables that it was chosen on, JUDGED those of :mod:`tables` that are real and took no part.

Choosing: held-out AUC and log loss at each noise ratio r of RATIOS (ε follows from r) and each s of
SCALES; SPLITS splits with DRAWS draws of the noise, the same for all s. A rule's regret in a cell
is what it loses to the best s of that cell, AUC regret/0.004 + log-loss regret/0.017: the weights
that the rule of Λ was chosen with. Between two values of SCALES figures are interpolated.

Judging: paired differences (rule minus 1/√(p + 1), p raw columns) over the splits and the noise of
:mod:`utility`, fits as the command line makes them. The other losses: the same, over the splits of
:mod:`useful_losses`.

Limits: letter at ε = 0.01, where the log loss stays above that of the base rate. Every s of WIDER
and every multiple of Λ in FACTORS is tried there, also with the automatic margin. That shows what
s and Λ can do, after the rule was fixed; no setting was taken from it.
"""

import measure  # isort: skip (it pins BLAS to one thread)
import argparse
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq

import useful_losses
import utility
from expost.data.unit_ball import default_intercept
from sklearn.datasets import load_digits
from tables import TABLES, TUNING_TABLES, RawTable, _drawn, _labels, _signs, encode
from utility_peers import Split, auc, fit_default, gaussian_scale, log_loss

SEED = 18
EVIDENCE = utility.EVIDENCE.with_name("useful-intercept.json")
RATIOS = (0.001, 0.003, 0.01, 0.03, 0.06, 0.1)
SCALES = (0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7)
SPLITS, DRAWS = 2, 3
WEIGHTS = {"auc": 0.004, "log loss": 0.017}
KAPPAS = (0.2, 0.5, 0.7, 1.0, 1.4, 2.0)
WIDER = (0.2425, 0.3536, 0.5, 0.6, 0.7071, 0.8, 0.9, 0.95)
FACTORS = (1 / 4, 1 / 2, 1.0, 2.0, 4.0)
SHARED = (3, 4, 5, 6, 7, 8, 10, 12, 16, 25)


# -- tables that choose ----------------------------------------------------------------------------


def _digit(digit: int) -> Callable[[], RawTable]:
    """One digit of scikit-learn's digits against the others: 1,797 × 64."""

    def make() -> RawTable:
        data = load_digits()
        return _drawn(f"digit {digit}", data.data, _signs(data.target == digit))

    return make


def _rare(seed: int, rows: int, width: int, strength: float, base: float) -> Callable[[], RawTable]:
    """Drawn as the tuning tables are, with fewer positive labels."""

    def make() -> RawTable:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((rows, width)) @ (
            np.eye(width) + 0.4 * rng.standard_normal((width, width)) / np.sqrt(width)
        )
        z = X @ (rng.standard_normal(width) * (rng.random(width) < 0.5))
        return _drawn(f"rare-{width}", X, _labels(rng, strength * z / z.std() + base))

    return make


CHOOSING: dict[str, Callable[[], RawTable]] = {
    **TUNING_TABLES,
    **{name: TABLES[name] for name in ("imbalanced", "heavy-tailed", "wide", "noise")},
    **{f"digit {digit}": _digit(digit) for digit in (0, 4, 8)},
    "rare, 8 columns": _rare(3, 20_000, 8, 2.0, -3.0),
    "rare, 16 columns": _rare(1, 20_000, 16, 3.0, -6.0),
    "rare, 16 columns, weak": _rare(4, 20_000, 16, 1.0, -3.5),
    "rare, 50 columns": _rare(2, 40_000, 50, 3.0, -4.2),
}
JUDGED = tuple(name for name in TABLES if name not in CHOOSING)


# -- choosing --------------------------------------------------------------------------------------


def epsilon_of(ratio: float, rows: int, width: int) -> float:
    """The ε at which rows of so many features, and the constant one, have the noise ratio."""
    delta = utility.delta_of(rows)

    def excess(log_epsilon: float) -> float:
        scale = gaussian_scale(math.exp(log_epsilon), delta)
        return math.log(scale * math.sqrt(width + 1) / rows / ratio)

    return math.exp(brentq(excess, math.log(1e-4), math.log(200)))


def grid_of(table: RawTable) -> dict[str, Any]:
    """Mean AUC and log loss at every r and s: {r: {measure: [by s]}}."""
    from expost import PrivateLogisticRegression

    p = len(table.columns)
    scores = np.zeros((len(RATIOS), len(SCALES), 2))
    bases = []
    for split in range(SPLITS):
        train, test = table.split(split)
        X, held_out = (np.clip(part, -2, 2) for part in encode(table.columns, train, test))
        y, y_test = table.y[train], table.y[test]
        share = np.mean(y > 0)
        bases.append(log_loss(np.full(len(y_test), np.log(share / (1 - share))), y_test))
        for k, ratio in enumerate(RATIOS):
            epsilon = epsilon_of(ratio, *X.shape)
            for m, scale in enumerate(SCALES):
                for draw in range(DRAWS):
                    model = PrivateLogisticRegression(
                        epsilon,
                        data_norm=math.sqrt(p) / 2,
                        intercept_scaling=scale,
                        classes=(-1.0, 1.0),
                        random_state=SEED * 1000 + 100 * split + draw,
                    ).fit(X, y)
                    z = model.decision_function(held_out)
                    scores[k, m] += np.array([auc(z, y_test), log_loss(z, y_test)])
    scores /= SPLITS * DRAWS
    return {
        "columns": p,
        "training rows": len(train),
        "share of positive labels": round(float(np.mean(table.y > 0)), 4),
        "base rate": round(float(np.mean(bases)), 4),
        "r": {
            f"{ratio:g}": {
                "auc": np.round(scores[k, :, 0], 4).tolist(),
                "log loss": np.round(scores[k, :, 1], 4).tolist(),
            }
            for k, ratio in enumerate(RATIOS)
        },
    }


Rule = Callable[[int, float], float]


def by_least(shared: int, power: float = 0.0) -> Rule:
    """s² = 1/(min(p, k) + 1), where k may fall with a power of r/0.03."""
    return lambda p, r: 1 / math.sqrt(min(p, shared * (0.03 / r) ** power) + 1)


def by_root(kappa: float, power: float = 0.0) -> Rule:
    """s² = 1/(1 + √p/κ), where κ may grow with a power of r/0.03."""
    return lambda p, r: 1 / math.sqrt(1 + math.sqrt(p) / (kappa * (r / 0.03) ** power))


RULES: dict[str, Rule] = {
    "1/√(p + 1)": lambda p, r: 1 / math.sqrt(p + 1),
    **{f"k = {k}": by_least(k) for k in SHARED},
    **{f"k = {k}·(0.03/r)^{power:g}": by_least(k, power) for k in SHARED for power in (0.25, 0.5)},
    **{f"κ = {kappa:g}": by_root(kappa) for kappa in KAPPAS},
    **{
        f"κ = {kappa:g}·(r/0.03)^{power:g}": by_root(kappa, power)
        for kappa in KAPPAS
        for power in (-0.25, 0.25, 0.5, 1.0)
    },
}


def regrets(table: dict[str, Any], rule: Rule) -> np.ndarray:
    """(len(RATIOS), 2): what a rule loses to the best s of the grid, in AUC and in log loss."""
    losses = []
    for ratio, line in zip(RATIOS, table["r"].values(), strict=True):
        s = min(max(rule(table["columns"], ratio), SCALES[0]), SCALES[-1])
        at = {key: float(np.interp(s, SCALES, line[key])) for key in WEIGHTS}
        losses.append((max(line["auc"]) - at["auc"], at["log loss"] - min(line["log loss"])))
    return np.array(losses)


def ranked(grids: dict[str, Any]) -> dict[str, Any]:
    """{rule: mean regrets, and the weighted one}, the best first."""
    weights = np.array(list(WEIGHTS.values()))
    ranking = {}
    for name, rule in RULES.items():
        every = np.stack([regrets(table, rule) for table in grids.values()])
        mean = every.mean(axis=(0, 1))
        ranking[name] = {
            "auc": round(float(mean[0]), 5),
            "log loss": round(float(mean[1]), 5),
            "weighted": round(float(np.sum(mean / weights)), 3),
            "weighted by r": np.round((every / weights).sum(axis=2).mean(axis=0), 2).tolist(),
        }
    return dict(sorted(ranking.items(), key=lambda entry: entry[1]["weighted"]))


def choose() -> dict[str, Any]:
    """Measure the grids, rank the rules, and leave every table out once."""
    grids = {}
    for name, make in CHOOSING.items():
        grids[name] = grid_of(make())
        print(f"  {name}", flush=True)
    rules = ranked(grids)
    left_out = {
        name: next(
            rule
            for rule in ranked({other: grid for other, grid in grids.items() if other != name})
            if rule in {f"k = {k}" for k in SHARED}
        )
        for name in grids
    }
    for name, line in rules.items():
        print(f"{name:<24} {line}", flush=True)
    print("without each table:", left_out)
    return {"s": SCALES, "grids": grids, "rules": rules, "best k without a table": left_out}


# -- judging ---------------------------------------------------------------------------------------


def compared(name: str) -> dict[str, Any]:
    """Both rules on the splits of a table: means, and paired differences with their errors."""
    scores = np.empty((len(utility.EPSILONS), utility.COLUMNS["default"].splits, 2, 2))
    for number in range(scores.shape[1]):
        split = Split(str(utility.write_split(name, number)))
        for k, epsilon in enumerate(utility.EPSILONS):
            seed = utility.seed_of(number, epsilon)
            root = 1 / math.sqrt(len(split.names) + 1)
            for side, setting in enumerate(({"intercept_scaling": root}, {})):
                z = fit_default(split, epsilon, 0.0, seed, setting)
                scores[k, number, side] = auc(z, split.y_test), log_loss(z, split.y_test)
    return {
        f"{epsilon:g}": {key: _paired(scores[k, :, :, m]) for m, key in enumerate(WEIGHTS)}
        for k, epsilon in enumerate(utility.EPSILONS)
    }


def _paired(values: np.ndarray) -> dict[str, Any]:
    """Means over splits of (splits, 2), and of the difference with its standard error."""
    before, after = values.mean(axis=0)
    change = values[:, 1] - values[:, 0]
    error = change.std(ddof=1) / math.sqrt(len(change))
    return {
        "1/√(p + 1)": round(float(before), 4),
        "rule": round(float(after), 4),
        "change": [round(float(change.mean()), 4), round(float(error), 4)],
    }


def _described(line: dict[str, Any]) -> str:
    """The figures of all measures in one line."""
    return "; ".join(
        f"{key} {cell['1/√(p + 1)']:.4f} → {cell['rule']:.4f}"
        f" ({cell['change'][0]:+.4f} ± {cell['change'][1]:.4f})"
        for key, cell in line.items()
    )


def judge() -> dict[str, Any]:
    """Compare the rules on every table of the utility benchmark."""
    figures = {}
    for name in TABLES:
        figures[name] = compared(name)
        part = "judged" if name in JUDGED else "took part in choosing"
        for epsilon, line in figures[name].items():
            print(f"{name} ({part}), ε = {epsilon}: {_described(line)}", flush=True)
    means = {
        epsilon: {
            key: {
                side: round(
                    float(np.mean([figures[name][epsilon][key][side] for name in JUDGED])), 4
                )
                for side in ("1/√(p + 1)", "rule")
            }
            for key in WEIGHTS
        }
        for epsilon in figures[JUDGED[0]]
    }
    print(json.dumps(means, indent=1, ensure_ascii=False))
    return {"judged": JUDGED, "tables": figures, "means over the judged tables": means}


def compared_losses() -> dict[str, Any]:
    """Both rules under softmax, hinge and ridge: {section: {table: {ε: {measure: figures}}}}."""
    sections: dict[str, Any] = {}
    for section, tables in useful_losses.SECTIONS.items():
        sections[section] = {}
        for name, make in tables.items():
            columns, y = make()
            classes = [] if section == "ridge" else np.unique(y).tolist()
            cells: dict[tuple[float, str], list[tuple[float, float]]] = {}
            for index in range(useful_losses.SPLITS):
                split = useful_losses.Split(columns, y, index, cut=2.0)
                for epsilon in useful_losses.EPSILONS:
                    sides = []
                    for s in (1 / math.sqrt(split.p + 1), default_intercept(split.p)):
                        model = useful_losses.estimator_of(
                            section,
                            name,
                            classes,
                            epsilon=epsilon,
                            data_norm=math.sqrt(split.p) / 2,
                            intercept_scaling=s,
                            random_state=useful_losses.seed_of(index, epsilon),
                        ).fit(split.X, split.y)
                        sides.append(useful_losses.rate(model, split, classes))
                    for key in sides[0]:
                        cells.setdefault((epsilon, key), []).append((sides[0][key], sides[1][key]))
            lines: dict[str, Any] = {}
            for (epsilon, key), pairs in cells.items():
                lines.setdefault(f"{epsilon:g}", {})[key] = _paired(np.array(pairs))
            sections[section][name] = lines
            for epsilon, line in lines.items():
                print(f"{section}, {name}, ε = {epsilon}: {_described(line)}", flush=True)
    return sections


def limits() -> dict[str, Any]:
    """Mean AUC and log loss of letter at ε = 0.01 for any s and Λ."""
    name, epsilon = "letter", utility.EPSILONS[0]
    splits = [
        Split(str(utility.write_split(name, number)))
        for number in range(utility.COLUMNS["default"].splits)
    ]
    bases = []
    for split in splits:
        share = np.mean(split.y > 0)
        odds = np.full(len(split.y_test), np.log(share / (1 - share)))
        bases.append(log_loss(odds, split.y_test))
    count, width = splits[0].X.shape
    scale = gaussian_scale(epsilon, utility.delta_of(count))
    r = scale * math.sqrt(width + 1) / count
    settings: dict[str, dict[str, Any]] = {
        f"{factor:g} Λ": {"regularization": factor * (r / 20 + r * r)} for factor in FACTORS
    }
    settings["margin"] = {"margin": "auto"}
    curves: dict[str, Any] = {}
    for label, setting in settings.items():
        curves[label] = {}
        for s in WIDER:
            values = []
            for number, split in enumerate(splits):
                seed = utility.seed_of(number, epsilon)
                z = fit_default(split, epsilon, 0.0, seed, {"intercept_scaling": s, **setting})
                values.append((auc(z, split.y_test), log_loss(z, split.y_test)))
            curves[label][f"{s:g}"] = np.round(np.mean(values, axis=0), 4).tolist()
        print(f"{label}: {curves[label]}", flush=True)
    return {
        "table": f"{name}, ε = {epsilon:g}, r = {r:.3g}",
        "base rate": round(float(np.mean(bases)), 4),
        "[AUC, log loss] by s": curves,
    }


SECTIONS = {"choose": choose, "judge": judge, "losses": compared_losses, "limits": limits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, work in SECTIONS.items():
        parser.add_argument(f"--{name}", action="store_true", help=work.__doc__)
    parser.add_argument(
        "--record",
        action="store_true",
        help="also write docs/evidence; sections that were not asked for stay as they are",
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # seeds, clipped rows, useless models
    chosen = [name for name in SECTIONS if getattr(options, name)] or list(SECTIONS)
    figures = {name: SECTIONS[name]() for name in chosen}
    if options.record:
        if EVIDENCE.exists():
            figures = json.loads(EVIDENCE.read_text())["figures"] | figures
        measure.record("useful-intercept", __file__, SEED, figures)


if __name__ == "__main__":
    main()
