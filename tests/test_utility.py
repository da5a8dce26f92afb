"""Held-out utility against scikit-learn's scores of models that are perturbed one by one."""

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

from expost.epsilon import utility
from expost.epsilon.utility import _parts, held_out_utility
from expost.errors import InvalidInput
from expost.glm import Objective, minimise
from expost.losses import HuberHinge, Logistic, Squared
from expost.mechanisms import OutputPerturbation

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
    parts = _parts(problem, folds, rng)
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
    parts = _parts(problem, folds, np.random.default_rng(3))
    assert len(parts) == folds
    assert sorted(row for part in parts for row in part.tolist()) == list(range(101))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    if name == "logistic":
        positive = [int(np.count_nonzero(problem.held.y[part] > 0)) for part in parts]
        assert max(positive) - min(positive) <= 1
        assert sum(positive) == 17 or sum(positive) == 18
    # Which rows they are is random.
    others = _parts(problem, folds, np.random.default_rng(4))
    assert sorted(parts[0].tolist()) != sorted(others[0].tolist())


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
    monkeypatch.setattr(utility, "MOST_SCORED", 20)
    found = run(problem, mechanism, folds=2)
    for curve in found.curves.values():
        assert np.all(np.isfinite(curve.mean))
    assert found.auc.mean[-1] == pytest.approx(whole.auc.mean[-1], abs=0.3)
    # A share of rows known from enough of them stays what it was.
    problem, mechanism = make(n=4000)
    whole = run(problem, mechanism, folds=2)
    monkeypatch.setattr(utility, "MOST_SCORED", 900)
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
    [("logistic", 30, 10, "rarer class"), ("squared", 11, 3, "too few")],
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
