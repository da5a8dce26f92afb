"""All-row neighbours with certificates, beside what cannot be avoided and what others do.

Run by ``make bench``; :mod:`measure` says how ratios are taken.
"""

import warnings
from collections.abc import Callable

import measure
import numpy as np

from expost.neighbouring.neighbours import neighbours_of
from expost.glm import Minimiser, Objective, minimise
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


def fitted(rows: int, columns: int) -> tuple[Objective, Minimiser]:
    X, y = data(rows, columns)
    problem = Objective.of(X=X, y=y, loss=Logistic(), penalty=np.full(columns, LAMBDA))
    return problem, minimise(problem)


def blas_passes(problem: Objective) -> Callable[[], object]:
    """XᵀWX and one n×d×d product: what any all-row second-order method pays."""
    rng = np.random.default_rng(SEED)
    weights = rng.random(problem.count)
    matrix = rng.random((problem.columns, problem.columns))

    def work() -> object:
        gram = (problem.held.X * weights[:, None]).T @ problem.held.X
        return gram, problem.held.X @ matrix

    return work


def blas_passes_in_blocks(problem: Objective) -> Callable[[], object]:
    """The same products through one buffer that stays in the cache: no array of all rows."""
    rng = np.random.default_rng(SEED)
    weights = rng.random(problem.count)
    matrix = rng.random((problem.columns, problem.columns))
    step = 2**16 // problem.columns
    space = np.empty((step, problem.columns))

    def work() -> object:
        gram = np.zeros_like(matrix)
        for start in range(0, problem.count, step):
            part = problem.held.X[start : start + step]
            out = space[: len(part)]
            gram += np.multiply(part, weights[start : start + step, None], out=out).T @ part
            np.matmul(part, matrix, out=out)
        return gram

    return work


def against_blas(rows: int, columns: int, times: int, *, blocks: bool) -> dict[str, object]:
    problem, base = fitted(rows, columns)
    passes = blas_passes_in_blocks(problem) if blocks else blas_passes(problem)
    seconds = measure.paired(lambda: neighbours_of(problem, base), passes, times)
    form = "in blocks" if blocks else "it cannot avoid"
    name = f"neighbours / the BLAS passes {form}, {rows:,} × {columns}"
    return measure.row(name, seconds[:, 0] / seconds[:, 1])


def against_statsmodels(rows: int, columns: int, times: int) -> dict[str, object]:
    """GLMInfluence's one-step parameters: no penalty, no certificate."""
    import statsmodels.api as sm

    problem, base = fitted(rows, columns)
    result = sm.GLM((problem.held.y + 1) / 2, problem.held.X, family=sm.families.Binomial()).fit()

    def other() -> object:
        return result.get_influence(observed=False).d_params

    seconds = measure.paired(lambda: neighbours_of(problem, base), other, times)
    name = f"statsmodels GLMInfluence.d_params / neighbours, {rows:,} × {columns}"
    return measure.row(name, seconds[:, 1] / seconds[:, 0])


def against_retraining(rows: int, columns: int, times: int, refits: int = 30) -> dict[str, object]:
    """A warm scikit-learn loop, extrapolated from ``refits`` rows to all of them."""
    from sklearn.linear_model import LogisticRegression

    problem, base = fitted(rows, columns)
    model = LogisticRegression(
        C=1 / (LAMBDA * rows), fit_intercept=False, tol=1e-8, max_iter=1000, warm_start=True
    ).fit(problem.held.X, problem.held.y)
    keep = np.ones(rows, dtype=bool)

    def other() -> object:
        for index in range(refits):
            keep[index] = False
            model.fit(problem.held.X[keep], problem.held.y[keep])
            keep[index] = True
        return model

    seconds = measure.paired(lambda: neighbours_of(problem, base), other, times)
    name = f"scikit-learn warm retraining (from {refits} rows) / neighbours, {rows:,} × {columns}"
    return measure.row(name, seconds[:, 1] / seconds[:, 0] * rows / refits)


def main() -> None:
    options = measure.options(__doc__, peak=2)
    if options.peak:
        neighbours_of(*fitted(*map(int, options.peak)))
        measure.print_peak()
        return
    warnings.simplefilter("ignore")
    print(f"{'ratio of paired times, one thread each':<{measure.WIDTH}} {'median':>11}  (range)")
    table: dict[str, object] = {}
    for size in SIZES:
        for kind, blocks in (("blas", False), ("blas in blocks", True)):
            table[f"{kind} {size[0]}x{size[1]}"] = against_blas(*size, options.times, blocks=blocks)
    for size in SIZES[:2]:
        table[f"statsmodels {size[0]}x{size[1]}"] = against_statsmodels(*size, options.times)
        table[f"retraining {size[0]}x{size[1]}"] = against_retraining(*size, options.times)
    name = "neighbours of 1,000,000 × 100"
    table["peak 1000000x100"] = measure.peak_memory(name, __file__, "1000000", "100")
    if options.record:
        measure.record("bench-neighbours", __file__, SEED, table)


if __name__ == "__main__":
    main()
