"""The sweep over ε of all rows, beside the plain NumPy loop of the paper's recipe.

Run by ``make bench``; :mod:`measure` says how ratios are taken. Ours works in threads, as users get
it; the loop is what a person would write from LeBlond 4.4.
"""

import measure
import numpy as np

from expost.neighbouring.neighbours import Neighbours, neighbours
from expost.epsilon.limit import PosteriorLimit
from expost.epsilon.sweep import LawSweep
from expost.noise.tabulated import expected_exposures
from papers.datasets import load_adult
from expost.losses import Logistic
from expost.mechanisms import OutputPerturbation

SEED = 20261115
MODELS = 200
EPSILONS = np.geomspace(0.1, 1e4, 25)
COLUMNS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")


def adult() -> Neighbours:
    """All 48,842 rows, six columns, Λ = 1, as the paper prepares them."""
    table = load_adult()
    X = table.numeric(COLUMNS)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return neighbours(X / np.linalg.norm(X, axis=1).max(), table.labels())


def made_up(rows: int, columns: int) -> Neighbours:
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((rows, columns))
    X /= np.linalg.norm(X, axis=1).max()
    return neighbours(X, np.where(X[:, 0] > 0.1 * rng.standard_normal(rows), 1, -1))


def sweep(near: Neighbours) -> LawSweep:
    n, d = near.shifts.shape
    mechanism = OutputPerturbation(
        epsilon=1.0, loss=Logistic(), regularization=1.0, rows=n, dimension=d
    )
    return LawSweep.of(
        near,
        mechanism=mechanism,
        limit=PosteriorLimit(),
        epsilons=EPSILONS,
        tolerance=0.1,
        share=0.5,
        models=MODELS,
        seed=np.random.SeedSequence(SEED),
    )


def paper_recipe(near: Neighbours) -> np.ndarray:
    """For each ε and model: norms of differences, sort, accumulate."""
    rng = np.random.default_rng(SEED)
    base, points = near.base, near.base + near.shift
    n, d = points.shape
    profiles = np.zeros((len(EPSILONS), n))
    for profile, epsilon in zip(profiles, EPSILONS, strict=True):
        beta = n * epsilon / 2
        for _ in range(MODELS):
            direction = rng.standard_normal(d)
            noise = direction / np.linalg.norm(direction) * rng.gamma(d, 1 / beta)
            model = base + noise
            loss = np.linalg.norm(points - model, axis=1) - np.linalg.norm(base - model)
            profile += np.sort(beta * np.abs(loss))
    return profiles / MODELS


def against_the_recipe(near: Neighbours, times: int) -> dict[str, object]:
    seconds = measure.paired(lambda: sweep(near).ranked, lambda: paper_recipe(near), times)
    name = "plain NumPy loop / ranked, Adult 48,842 × 6, 25 ε × 200 models, in threads"
    return measure.row(name, seconds[:, 1] / seconds[:, 0])


def against_the_law(near: Neighbours, times: int) -> dict[str, object]:
    """The table of the universal function, beside one quadrature for each row and ε."""
    ours = sweep(near)
    scales = 1 / ours.resolutions

    def other() -> object:
        law = ours.mechanism.loss_law
        return [law(scale * near.distance).expected_exposure for scale in scales]

    def tabulated() -> object:
        return expected_exposures(ours.mechanism.loss_law, near.distance, scales)

    seconds = measure.paired(tabulated, other, times)
    name = "a quadrature for each row / typical, Adult 48,842 × 6, 25 ε"
    return measure.row(name, seconds[:, 1] / seconds[:, 0])


def main() -> None:
    options = measure.options(__doc__, peak=1)
    if options.peak:
        near = adult() if options.peak[0] == "adult" else made_up(1_000_000, 20)
        everything = sweep(near)
        assert everything.low < everything.high
        assert everything.ranked.mean.shape[0] == everything.expected.shape[0] == len(EPSILONS)
        measure.print_peak()
        return
    print(f"{'ratio of paired times':<{measure.WIDTH}} {'median':>11}  (range)")
    near = adult()
    table: dict[str, object] = {
        "recipe adult": against_the_recipe(near, options.times),
        "law adult": against_the_law(near, options.times),
        "peak adult": measure.peak_memory("the whole Adult sweep", __file__, "adult"),
        "peak 1000000x20": measure.peak_memory("1,000,000 × 20, 25 ε", __file__, "million"),
    }
    if options.record:
        measure.record("bench-epsilon", __file__, SEED, table)


if __name__ == "__main__":
    main()
