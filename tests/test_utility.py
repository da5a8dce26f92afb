"""Held-out utility against scikit-learn's scores of models that are perturbed one by one."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import chi2
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

from expost.epsilon import folds as folds_module
from expost.epsilon import utility
from expost.epsilon.folds import Folds
from expost.epsilon.utility import held_out_utility
from expost.errors import InvalidInput
from expost.glm import Objective, minimise
from expost.losses import HuberHinge, Logistic, Softmax, Squared
from expost.mechanisms import OutputPerturbation
from expost.rows import RowBlock

LOSSES = {"logistic": Logistic(), "huber-hinge": HuberHinge(), "squared": Squared(label_bound=1.5)}
EPSILONS = np.array([0.5, 5.0, 1e4])
LAMBDA = 0.05


def make(name="logistic", n=90, noise="laplace", share=0.4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X /= np.linalg.norm(X, axis=1).max()
    signal = X @ [2.0, -1.0, 0.5] + 0.3 * rng.normal(size=n)
    if name == "squared":
        y = np.clip(signal, -1.5, 1.5)
    else:
        y = np.where(signal > np.quantile(signal, 1 - share), 1.0, -1.0)
    problem = Objective.of(X=X, y=y, loss=LOSSES[name], penalty=np.full(3, LAMBDA))
    mechanism = OutputPerturbation(
        epsilon=1.0,
        delta=1e-5 if noise == "gaussian" else None,
        noise=noise,
        loss=LOSSES[name],
        regularization=LAMBDA,
        rows=n,
        dimension=3,
    )
    return problem, mechanism


def run(problem, mechanism, *, folds=3, releases=4, seed=1, epsilons=EPSILONS):
    return held_out_utility(
        problem,
        mechanism,
        epsilons,
        folds=folds,
        releases=releases,
        rng=np.random.default_rng(seed),
    )


def folds_of(problem, folds, rng):
    """The rows of each fold, with the draw of a key that the utility begins with."""
    parts = Folds.of(problem, folds, int(rng.integers(2**64, dtype=np.uint64)))
    where = np.concatenate(list(problem.map(parts.where)))
    return [np.flatnonzero(where == fold) for fold in range(folds)]


def refit(name, X, y):
    """The minimiser by a route of its own."""
    if name == "logistic":
        model = LogisticRegression(
            C=1 / (len(X) * LAMBDA), fit_intercept=False, tol=1e-12, max_iter=10_000
        )
        return model.fit(X, y).coef_[0]
    if name == "squared":
        return np.linalg.solve(X.T @ X / len(X) + LAMBDA * np.eye(3), X.T @ y / len(X))
    problem = Objective.of(X=X, y=y, loss=LOSSES[name], penalty=np.full(3, LAMBDA))
    return minimise(problem, tolerance=1e-12).theta


def scores(name, y, z):
    """What scikit-learn says of the margins z."""
    if name == "squared":
        return {"r2": r2_score(y, z)}
    found = {"accuracy": accuracy_score(y > 0, z > 0), "auc": roc_auc_score(y > 0, z)}
    if name == "logistic":
        found["log_loss"] = log_loss(y > 0, 1 / (1 + np.exp(-z)))
    return found


def naive(name, problem, mechanism, *, folds, releases, seed):
    """(measure) → scores (fold, ε, release), base rates (fold,), noiseless (fold,)."""
    rng = np.random.default_rng(seed)
    parts = folds_of(problem, folds, rng)
    draws = mechanism.unit_noise.sample(folds * releases, rng)
    every, ignorant, noiseless = {}, {}, {}
    for fold, part in enumerate(parts):
        kept = np.array([row for row in range(problem.count) if row not in set(part.tolist())])
        theta = refit(name, problem.held.X[kept], problem.held.y[kept])
        how = dataclasses.replace(mechanism, rows=len(kept))
        X, y = problem.held.X[part], problem.held.y[part]
        for epsilon in EPSILONS:
            law = dataclasses.replace(how, epsilon=float(epsilon)).law
            scale = 1 / law.rate if how.noise == "laplace" else law.scale
            for release in range(releases):
                released = theta + scale * draws[fold * releases + release]
                for measure, value in scores(name, y, X @ released).items():
                    every.setdefault(measure, {}).setdefault((fold, epsilon), []).append(value)
        if name == "squared":
            known = np.full(len(y), problem.held.y[kept].mean())
        else:
            known = np.full(
                len(y), np.log((problem.held.y[kept] > 0).sum() / (problem.held.y[kept] < 0).sum())
            )
        for measure, value in scores(name, y, known).items():
            ignorant.setdefault(measure, []).append(value)
        for measure, value in scores(name, y, X @ theta).items():
            noiseless.setdefault(measure, []).append(value)
    arrays = {
        measure: np.array([[cell[fold, epsilon] for epsilon in EPSILONS] for fold in range(folds)])
        for measure, cell in every.items()
    }
    return arrays, ignorant, noiseless


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_against_scikit_learn(name, noise):
    problem, mechanism = make(name, noise=noise)
    found = run(problem, mechanism)
    arrays, ignorant, noiseless = naive(name, problem, mechanism, folds=3, releases=4, seed=1)
    measures = {"logistic": {"accuracy", "auc", "log_loss"}, "huber-hinge": {"accuracy", "auc"}}
    assert set(found.curves) == set(arrays) == measures.get(name, {"r2"})
    for measure, curve in found.curves.items():
        cells = arrays[measure]
        fold_means = cells.mean(axis=2)
        np.testing.assert_allclose(curve.mean, fold_means.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(
            curve.error, fold_means.std(axis=0, ddof=1) / np.sqrt(3), rtol=1e-5, atol=1e-9
        )
        pooled = np.concatenate(list(cells), axis=1)
        np.testing.assert_allclose(curve.low, np.quantile(pooled, 0.05, axis=1), rtol=1e-6)
        np.testing.assert_allclose(curve.high, np.quantile(pooled, 0.95, axis=1), rtol=1e-6)
        assert curve.base_rate == pytest.approx(np.mean(ignorant[measure]), rel=1e-9, abs=1e-12)
        assert curve.noiseless == pytest.approx(np.mean(noiseless[measure]), rel=1e-6)
    # Power: the noise of all n rows instead of the fold's would be seen in a continuous score.
    wrong, _, _ = naive(
        name,
        problem,
        dataclasses.replace(mechanism, regularization=LAMBDA * 1.5),
        folds=3,
        releases=4,
        seed=1,
    )
    measure = "r2" if name == "squared" else "auc"
    gap = found.curves[measure].mean - wrong[measure].mean(axis=(0, 2))
    assert np.max(np.abs(gap)) > 1e-4


@pytest.mark.parametrize("name", ["logistic", "squared"])
@pytest.mark.parametrize("folds", [2, 3, 7])
def test_folds_are_disjoint_and_cover_and_are_alike(name, folds):
    problem, _ = make(name, n=101, share=0.17)
    parts = folds_of(problem, folds, np.random.default_rng(3))
    assert len(parts) == folds
    assert sorted(row for part in parts for row in part.tolist()) == list(range(101))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    if name == "logistic":
        positive = [int(np.count_nonzero(problem.held.y[part] > 0)) for part in parts]
        assert max(positive) - min(positive) <= 1
        assert sum(positive) == 17 or sum(positive) == 18
    # Which rows they are is random.
    others = folds_of(problem, folds, np.random.default_rng(4))
    assert sorted(parts[0].tolist()) != sorted(others[0].tolist())


def naive_folds(y, folds, key):
    """Row by row: numbers class by class, groups of ``folds`` in the order of their hashes."""
    mask = 2**64 - 1

    def mix(value, key):
        value = (value * 0x9E3779B97F4A7C15 + key) & mask
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
        return value ^ (value >> 31)

    numbered = [row for label in sorted(set(y)) for row in np.flatnonzero(y == label).tolist()]
    where = np.empty(len(y), dtype=int)
    for start in range(0, len(y), folds):
        group = numbered[start : start + folds]
        mixed = len({y[row] for row in group}) > 1 or len(group) < folds
        hashes = [
            mix(place, key ^ 0x5851F42D4C957F2D) if mixed else mix(start + place, key)
            for place in range(folds)
        ]
        for place, row in enumerate(group):
            where[row] = sorted(hashes).index(hashes[place])
    return where


@pytest.mark.parametrize(("classes", "folds"), [(1, 4), (2, 2), (2, 5), (4, 3), (4, 7)])
def test_folds_and_scored_rows_against_a_loop(monkeypatch, classes, folds):
    rng = np.random.default_rng(classes)
    shares = rng.dirichlet(np.ones(classes)) * 0.6 + 0.4 / classes
    y = rng.choice(classes, 997, p=shares).astype(float)
    loss = {1: LOSSES["squared"], 2: Logistic()}.get(classes, Softmax(classes=max(classes, 2)))
    labels = {1: rng.uniform(-1, 1, 997), 2: 2 * y - 1}.get(classes, y)
    problem = Objective.of(X=rng.normal(size=(997, 2)), y=labels, loss=loss, penalty=LAMBDA)
    for key, most in ((2**64 - 3, 10**6), (12, 41), (7, 3)):
        monkeypatch.setattr(folds_module, "MOST_SCORED", most)
        parts = Folds.of(problem, folds, key)
        where, scored = (
            np.concatenate(column) for column in zip(*problem.map(parts.scored), strict=True)
        )
        np.testing.assert_array_equal(where, naive_folds(y if classes > 1 else 0 * y, folds, key))
        sizes = np.array([[np.sum((y == c) & (where == f)) for f in range(folds)] for c in set(y)])
        np.testing.assert_array_equal(parts.sizes, sizes)
        assert np.all(np.ptp(sizes, axis=1) <= 1)
        assert np.ptp(sizes.sum(axis=0)) <= 1
        # One of every ``step`` rows of a class in a fold, wherever the class begins.
        step = -(-int(sizes.sum(axis=0).max()) // most)
        assert parts.step == step
        for label in set(y):
            for fold in range(folds):
                rows = np.flatnonzero((y == label) & (where == fold))
                chosen = np.flatnonzero(np.isin(rows, scored))
                np.testing.assert_array_equal(chosen // step, np.arange(-(-len(rows) // step)))


def test_scored_rows_are_a_random_share():
    """Every place of a run is as likely: false alarms once in 10⁶."""
    folds = Folds(count=2, key=99, totals=(80_000,), step=8)
    X = np.zeros((80_000, 1))
    where, scored = folds.scored(RowBlock.of(X, X[:, 0]))
    for fold in range(2):
        rows = np.flatnonzero(where == fold)
        places = np.flatnonzero(np.isin(rows, scored)) % 8
        counts = np.bincount(places, minlength=8)
        assert counts.sum() == 5_000
        assert np.sum((counts - 625) ** 2 / 625) < chi2.isf(1e-6, 7)


def test_more_than_two_classes():
    """Accuracy and log loss, against scikit-learn on the folds of a loop."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(160, 3))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.argmax(X + 0.1 * rng.normal(size=X.shape), axis=1).astype(float)
    problem = Objective.of(X=X, y=y, loss=Softmax(classes=3), penalty=LAMBDA)
    parts = Folds.of(problem, 4, key=6)
    base = problem.minimiser(1e-12).theta
    thetas, sums = utility._without_each(problem, parts, base)
    where = np.concatenate(list(problem.map(parts.where)))
    draws = rng.normal(size=(4, 5, 9))
    held, expected, rest = [], [], []
    for fold in range(4):
        kept, out = where != fold, where == fold
        alone = Objective.of(X=X[kept], y=y[kept], loss=problem.loss, penalty=LAMBDA)
        exact = minimise(alone, tolerance=1e-12).theta
        np.testing.assert_allclose(thetas[fold], exact, atol=2e-9 / LAMBDA)
        known = utility._known(problem.loss, parts, sums.labels, fold)
        np.testing.assert_allclose(np.exp(known), np.bincount(y[kept].astype(int)))
        models = exact + 0.3 * draws[fold]
        held.append(
            utility.HeldOut(
                exact=exact, X=X[out], y=y[out], known=known, models=lambda _, models=models: models
            )
        )

        def measures(theta, out=out):
            z = X[out] @ theta.reshape(3, 3).T
            p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
            return accuracy_score(y[out], z.argmax(axis=1)), log_loss(y[out], p, labels=[0, 1, 2])

        expected.append([measures(model) for model in models])
        shares = np.tile(np.bincount(y[kept].astype(int)) / kept.sum(), (out.sum(), 1))
        guess = accuracy_score(y[out], shares.argmax(axis=1)), log_loss(y[out], shares)
        rest.append((guess, measures(exact)))
    found = utility._utility_of(held, problem.loss, np.array([1.0]), folds=4, releases=5)
    assert list(found.curves) == ["accuracy", "log_loss"]
    for place, curve in enumerate((found.accuracy, found.log_loss)):
        cells = np.array(expected)[:, :, place]
        np.testing.assert_allclose(curve.mean, [cells.mean()])
        ends = np.mean(np.array(rest)[:, :, place], axis=0)
        np.testing.assert_allclose([curve.base_rate, curve.noiseless], ends)
    assert found.accuracy.noiseless > found.accuracy.base_rate + 0.2


def test_the_limits():
    """Without noise it is the noiseless score; with very much it is chance."""
    problem, mechanism = make(n=200)
    epsilons = np.array([1e-3, 5.0, 1e4])
    found = run(problem, mechanism, releases=300, epsilons=epsilons)
    accuracy, auc, loss = found.accuracy, found.auc, found.log_loss
    assert accuracy.mean[-1] == pytest.approx(accuracy.noiseless, abs=0.005)
    assert accuracy.error[-1] > 0
    assert 0.45 < auc.mean[0] < 0.6
    assert auc.base_rate == 0.5
    assert accuracy.base_rate == pytest.approx(0.6, abs=0.005)
    assert np.all(np.diff(accuracy.mean) > 0)
    assert np.all(np.diff(loss.mean) < 0), "log loss is the other way round"
    for curve in found.curves.values():
        assert np.all(curve.low <= curve.mean + 1e-12)
        assert np.all(curve.low <= curve.high)
    assert found.leading == ("accuracy", accuracy)
    assert (found.folds, found.releases) == (3, 300)
    np.testing.assert_array_equal(found.epsilons, epsilons)


def test_a_release_lands_in_the_interval_nine_times_of_ten():
    """180 fresh ones of the folds' fits, 90 % ± four standard deviations of a count."""
    problem, mechanism = make("squared")
    found = run(problem, mechanism, releases=400).r2
    arrays, _, _ = naive("squared", problem, mechanism, folds=3, releases=60, seed=55)
    inside = (arrays["r2"] >= found.low[:, None]) & (arrays["r2"] <= found.high[:, None])
    share = inside.mean(axis=(0, 2))[:2]
    assert np.all((share > 0.81) & (share < 0.985))


@pytest.mark.parametrize("name", LOSSES)
def test_deterministic_and_free_of_block_sizes(monkeypatch, name):
    problem, mechanism = make(name)
    first = run(problem, mechanism)
    other = run(problem, mechanism, seed=2)
    for size in (1, 50, 100, 2**30):
        monkeypatch.setattr(utility, "_BLOCK_SCORES", size)
        again = run(problem, mechanism)
        for measure, curve in first.curves.items():
            for field in ("mean", "low", "high", "error"):
                np.testing.assert_allclose(
                    getattr(again.curves[measure], field),
                    getattr(curve, field),
                    rtol=1e-10,
                    atol=1e-13,
                )
    assert not np.array_equal(other.leading[1].mean, first.leading[1].mean)


def test_very_large_folds_are_thinned_and_stay_stratified(monkeypatch):
    """Also where the rarer class has fewer rows than the stride: an AUC needs both."""
    problem, mechanism = make(n=400, share=0.012)
    positive = int(np.count_nonzero(problem.held.y > 0))
    assert 4 <= positive <= 6
    whole = run(problem, mechanism, folds=2)
    monkeypatch.setattr(folds_module, "MOST_SCORED", 20)
    found = run(problem, mechanism, folds=2)
    for curve in found.curves.values():
        assert np.all(np.isfinite(curve.mean))
    assert found.auc.mean[-1] == pytest.approx(whole.auc.mean[-1], abs=0.3)
    # A share of rows known from enough of them stays what it was.
    monkeypatch.undo()
    problem, mechanism = make(n=4000)
    whole = run(problem, mechanism, folds=2)
    monkeypatch.setattr(folds_module, "MOST_SCORED", 900)
    found = run(problem, mechanism, folds=2)
    np.testing.assert_allclose(found.accuracy.mean, whole.accuracy.mean, atol=0.03)
    assert found.accuracy.base_rate == pytest.approx(whole.accuracy.base_rate, abs=0.005)


def test_ties_count_half():
    y = np.array([1.0, 1.0, -1.0, -1.0, -1.0])
    z = np.array([[0.0, 1.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 3.0, 0.0]])
    expected = [roc_auc_score(y > 0, row) for row in z]
    np.testing.assert_allclose(utility._auc(z, y), expected, rtol=1e-14)
    np.testing.assert_allclose(utility._auc(z, -y), 1 - np.array(expected), rtol=1e-14)


@pytest.mark.parametrize(
    ("name", "n", "folds", "word"),
    [("logistic", 30, 10, "rarest class"), ("squared", 11, 3, "too few")],
)
def test_too_few_rows_are_refused(name, n, folds, word):
    problem, mechanism = make(name, n=n)
    with pytest.raises(InvalidInput, match=f"^folds={folds}.*{word}.*fewer folds"):
        run(problem, mechanism, folds=folds)


def test_constant_labels_have_no_r2():
    problem, mechanism = make("squared", n=30)
    flat = Objective.of(
        X=problem.held.X, y=np.full(30, 0.7), loss=problem.loss, penalty=problem.penalty
    )
    with pytest.raises(InvalidInput, match="constant"):
        run(flat, mechanism)
