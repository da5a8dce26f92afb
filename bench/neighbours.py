"""All-row neighbours with certificates, beside what cannot be avoided and what others do.

A benchmark is a ratio: the two sides alternate in one run with one BLAS thread each, and the
median and range of the paired ratios are printed (DESIGN.md, Evidence). Run by ``make bench``.
"""

import os

# Before NumPy is imported: one thread for either side.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import gc
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from expost._neighbours import neighbours_of
from expost.glm import Minimiser, Problem, minimise
from expost.losses import Logistic

LAMBDA = 0.01
SEED = 20261115
SIZES = ((48_842, 14), (48_842, 100), (1_000_000, 100))


def data(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the unit ball and noisy labels."""
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((rows, columns))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(rows) * X[:, 0].std() > 0, 1.0, -1.0)
    return X, y


def fitted(rows: int, columns: int) -> tuple[Problem, Minimiser]:
    X, y = data(rows, columns)
    problem = Problem(X=X, y=y, loss=Logistic(), penalty=np.full(columns, LAMBDA))
    return problem, minimise(problem)


def paired(ours: Callable[[], object], other: Callable[[], object], times: int) -> np.ndarray:
    """(times, 2) seconds of alternating runs, after one of each to warm up."""
    ours(), other()
    seconds = np.empty((times, 2))
    for k in range(times):
        for side, work in enumerate((ours, other)):
            gc.collect()
            start = time.perf_counter()
            work()
            seconds[k, side] = time.perf_counter() - start
    return seconds


def blas_passes(problem: Problem) -> Callable[[], object]:
    """XᵀWX and one n×d×d product: what any all-row second-order method pays."""
    rng = np.random.default_rng(SEED)
    weights = rng.random(problem.rows)
    matrix = rng.random((problem.columns, problem.columns))

    def work() -> object:
        gram = (problem.X * weights[:, None]).T @ problem.X
        return gram, problem.X @ matrix

    return work


def row(name: str, ratios: np.ndarray) -> dict[str, object]:
    low, middle, high = np.min(ratios), np.median(ratios), np.max(ratios)
    print(f"{name:<68} {middle:>11,.2f}  ({low:,.2f} … {high:,.2f})", flush=True)
    return {
        "median": round(float(middle), 3),
        "range": [round(float(low), 3), round(float(high), 3)],
    }


def against_blas(rows: int, columns: int, times: int) -> dict[str, object]:
    problem, base = fitted(rows, columns)
    seconds = paired(lambda: neighbours_of(problem, base), blas_passes(problem), times)
    name = f"neighbours / the BLAS passes it cannot avoid, {rows:,} × {columns}"
    return row(name, seconds[:, 0] / seconds[:, 1])


def against_statsmodels(rows: int, columns: int, times: int) -> dict[str, object]:
    """GLMInfluence's one-step parameters: no penalty, no certificate."""
    import statsmodels.api as sm

    problem, base = fitted(rows, columns)
    result = sm.GLM((problem.y + 1) / 2, problem.X, family=sm.families.Binomial()).fit()

    def other() -> object:
        return result.get_influence(observed=False).d_params

    seconds = paired(lambda: neighbours_of(problem, base), other, times)
    name = f"statsmodels GLMInfluence.d_params / neighbours, {rows:,} × {columns}"
    return row(name, seconds[:, 1] / seconds[:, 0])


def against_retraining(rows: int, columns: int, times: int, refits: int = 30) -> dict[str, object]:
    """A warm scikit-learn loop, extrapolated from ``refits`` rows to all of them."""
    from sklearn.linear_model import LogisticRegression

    problem, base = fitted(rows, columns)
    model = LogisticRegression(
        C=1 / (LAMBDA * rows), fit_intercept=False, tol=1e-8, max_iter=1000, warm_start=True
    ).fit(problem.X, problem.y)
    keep = np.ones(rows, dtype=bool)

    def other() -> object:
        for index in range(refits):
            keep[index] = False
            model.fit(problem.X[keep], problem.y[keep])
            keep[index] = True
        return model

    seconds = paired(lambda: neighbours_of(problem, base), other, times)
    name = f"scikit-learn warm retraining (from {refits} rows) / neighbours, {rows:,} × {columns}"
    return row(name, seconds[:, 1] / seconds[:, 0] * rows / refits)


def peak_memory(rows: int, columns: int) -> dict[str, object]:
    """Peak resident memory of a process that fits and finds all neighbours."""
    found = subprocess.run(
        [sys.executable, __file__, "--peak", str(rows), str(columns)],
        capture_output=True,
        text=True,
        check=True,
    )
    gibibytes = float(found.stdout)
    print(f"{f'peak memory in GiB, {rows:,} × {columns}':<68} {gibibytes:>11.2f}", flush=True)
    return {"gibibytes": round(gibibytes, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peak", nargs=2, type=int, help="print the peak memory of one size")
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument("--times", type=int, default=9)
    options = parser.parse_args()
    if options.peak:
        neighbours_of(*fitted(*options.peak))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
        return
    warnings.simplefilter("ignore")
    print(f"{'ratio of paired times, one thread each':<68} {'median':>11}  (range)")
    table: dict[str, object] = {}
    for size in SIZES:
        table[f"blas {size[0]}x{size[1]}"] = against_blas(*size, options.times)
    for size in SIZES[:2]:
        table[f"statsmodels {size[0]}x{size[1]}"] = against_statsmodels(*size, options.times)
        table[f"retraining {size[0]}x{size[1]}"] = against_retraining(*size, options.times)
    table["peak 1000000x100"] = peak_memory(1_000_000, 100)
    if options.record:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        from evidence import record

        command = "python bench/neighbours.py --record"
        record("bench-neighbours", command=command, seed=SEED, figures=table)


if __name__ == "__main__":
    main()
