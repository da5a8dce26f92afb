"""An audit by LiRA beside the fitting of its references alone.

Run by ``make bench``; :mod:`measure` says how ratios are taken. Both sides fit the same models to
the same rows, one after the other: what is measured is asking them, keeping what they say and
scoring every row. The goal is at most 2.
"""

import measure
import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from expost.auditing.evidence import Evidence
from expost.auditing.attacks.lira import LiraOnline
from expost.auditing.references import evidence_of, train_references
from expost.auditing.targets import target_of
from papers.datasets import load_adult
from papers.leblond.setting import encoded_rows

SEED = 20261116
ROWS, MODELS = 10_000, 64
NUMBERS = 6
ESTIMATOR = LogisticRegression(max_iter=1000)


def adult(columns: int | None) -> tuple[np.ndarray, np.ndarray]:
    """10,000 rows of Adult; all columns, one feature a level, or the six of numbers alone."""
    table = load_adult()
    if columns is None:
        X, y = encoded_rows(table)
    else:
        names = (
            "age",
            "fnlwgt",
            "education-num",
            "capital-gain",
            "capital-loss",
            "hours-per-week",
        )
        X, y = table.numeric(names[:columns]), table.labels()
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    rows = np.random.default_rng(SEED).permutation(len(X))[:ROWS]
    return X[rows] * np.sqrt(X.shape[1]), y[rows]


def gathered(X: np.ndarray, y: np.ndarray) -> Evidence:
    """Half of the rows are members."""
    half = ROWS // 2
    target = target_of(clone(ESTIMATOR).fit(X[:half], y[:half]), y)
    references = train_references(target, X, y, models=MODELS, random_state=SEED)
    return evidence_of(target, references, X, y)


def against_fitting(columns: int | None, times: int) -> dict[str, object]:
    """The audit over the fits."""
    X, y = adult(columns)
    inside = gathered(X, y).inside

    def audited() -> object:
        return LiraOnline()(gathered(X, y))

    def fitted() -> object:
        return [clone(ESTIMATOR).fit(X[part], y[part]) for part in inside]

    seconds = measure.paired(audited, fitted, times)
    name = f"LiRA with {MODELS} references / fitting them, Adult {ROWS:,} × {X.shape[1]}, logistic"
    return measure.row(name, seconds[:, 0] / seconds[:, 1])


def main() -> None:
    options = measure.options(__doc__, peak=2)
    if options.peak:
        rows, models = map(int, options.peak)
        rng = np.random.default_rng(SEED)
        X = rng.standard_normal((rows, NUMBERS))
        y = (X[:, 0] > 0).astype(int)
        target = target_of(LogisticRegression().fit(X, y), y)
        train_references(target, X, y, models=models, random_state=SEED, most_memory=2**26)
        measure.print_peak()
        return
    print(f"{'ratio of paired times, one thread each':<{measure.WIDTH}} {'median':>11}  (range)")
    table: dict[str, object] = {
        "adult 10000 all columns": against_fitting(None, options.times),
        "adult 10000 six numbers": against_fitting(NUMBERS, options.times),
        "peak 1000000 rows 64 references": measure.peak_memory(
            f"64 references of 1,000,000 × {NUMBERS}, in files", __file__, "1000000", "64"
        ),
    }
    if options.record:
        measure.record("bench-audit", __file__, SEED, table)


if __name__ == "__main__":
    main()
