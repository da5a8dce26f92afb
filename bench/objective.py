"""The losses of all rows under objective perturbation, beside what cannot be avoided.

Run by ``make bench``; :mod:`measure` says how ratios are taken. BLAS has one thread.
"""

from dataclasses import replace

import measure
import numpy as np
from neighbours import blas_passes, data

from papers.datasets import load_adult
from expost.glm import Objective, minimise
from expost.losses import Logistic
from expost.mechanisms import ObjectivePerturbation, Tangent
from expost.mechanisms.sampling import ObjectiveSampler

SEED = 20261115
LAMBDA = 0.01
MODELS = 200
COLUMNS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")


def posed(
    X: np.ndarray, y: np.ndarray, **budget: object
) -> tuple[ObjectivePerturbation, Objective]:
    """Logistic regression on these rows, ε = 1."""
    rows, columns = X.shape
    mechanism = ObjectivePerturbation(
        **{"epsilon": 1.0, "delta": 1e-6, "noise": "gaussian", **budget},
        loss=Logistic(),
        regularization=LAMBDA,
        rows=rows,
        dimension=columns,
    )
    penalty = np.full(columns, mechanism.total_regularization)
    return mechanism, Objective.of(X=X, y=y, loss=mechanism.loss, penalty=penalty)


def adult() -> tuple[ObjectivePerturbation, Objective]:
    """All 48,842 rows, six columns, as LeBlond et al. prepare them."""
    table = load_adult()
    X = table.numeric(COLUMNS)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return posed(X / np.linalg.norm(X, axis=1).max(), table.labels())


def losses(mechanism: ObjectivePerturbation, problem: Objective, theta: np.ndarray) -> object:
    return Tangent.at(mechanism, problem, theta).row_losses().loss


def against_blas(rows: int, columns: int, times: int, **budget: object) -> dict[str, object]:
    """g, H, its factor, and the loss of every row with its interval."""
    mechanism, problem = posed(*data(rows, columns), **budget)
    theta = mechanism.release(problem, np.random.default_rng(SEED))
    seconds = measure.paired(lambda: losses(mechanism, problem, theta), blas_passes(problem), times)
    name = (
        f"row losses ({mechanism.noise}) / the BLAS passes they cannot avoid, {rows:,} × {columns}"
    )
    return measure.row(name, seconds[:, 0] / seconds[:, 1])


def against_one_by_one(times: int) -> dict[str, object]:
    """200 releases of Adult with the losses of all rows, beside minimising each from scratch."""
    mechanism, problem = adult()
    sampler = ObjectiveSampler(mechanism=mechanism, objective=problem)
    noise = mechanism.law.sample(MODELS, np.random.default_rng(SEED))

    def together() -> object:
        models = sampler.perturbed(mechanism.epsilon, noise / mechanism.resolution)
        return [losses(mechanism, problem, theta) for theta in models]

    def one_by_one() -> object:
        tilted = (replace(problem, linear=b / mechanism.rows) for b in noise)
        return [losses(mechanism, problem, minimise(each).theta) for each in tilted]

    seconds = measure.paired(together, one_by_one, times)
    name = f"minimising one by one / {MODELS} sampled releases with losses, Adult 48,842 × 6"
    return measure.row(name, seconds[:, 1] / seconds[:, 0])


def main() -> None:
    options = measure.options(__doc__, peak=2)
    if options.peak:
        mechanism, problem = posed(*data(*map(int, options.peak)))
        losses(mechanism, problem, mechanism.release(problem, np.random.default_rng(SEED)))
        measure.print_peak()
        return
    print(f"{'ratio of paired times, one thread each':<{measure.WIDTH}} {'median':>11}  (range)")
    table: dict[str, object] = {}
    for rows, columns in ((48_842, 14), (48_842, 100)):
        table[f"blas gaussian {rows}x{columns}"] = against_blas(rows, columns, options.times)
        table[f"blas laplace {rows}x{columns}"] = against_blas(
            rows, columns, options.times, delta=None, noise="laplace"
        )
    table["one by one adult"] = against_one_by_one(options.times)
    name = "release and row losses of 1,000,000 × 100"
    table["peak 1000000x100"] = measure.peak_memory(name, __file__, "1000000", "100")
    if options.record:
        measure.record("bench-objective", __file__, SEED, table)


if __name__ == "__main__":
    main()
