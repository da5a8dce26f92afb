"""Held-out utility against scikit-learn's scores of models that are perturbed one by one."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

from expost.epsilon import folds as folds_module
from expost.epsilon.folds import HeldOutRows
from expost.epsilon.sweep import child
from expost.epsilon.utility import Trials, measures_of
from expost.errors import InvalidInput
from expost.glm import Objective
from expost.losses import HuberHinge, Logistic, Softmax, Squared
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation
from expost.rows import HeldRows
from recorded_progress import RecordedProgress

LOSSES = {"logistic": Logistic(), "huber-hinge": HuberHinge(), "squared": Squared(label_bound=1.5)}
EPSILONS = (0.5, 5.0, 1e4)
KINDS = {"output": OutputPerturbation, "objective": ObjectivePerturbation}
SEED = np.random.SeedSequence(1)


def make(name="logistic", n=90, share=0.4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X /= np.linalg.norm(X, axis=1).max()
    signal = X @ [2.0, -1.0, 0.5] + 0.3 * rng.normal(size=n)
    if name == "squared":
        y = np.clip(signal, -1.5, 1.5)
    elif name == "softmax":
        y = np.digitize(signal, np.quantile(signal, [0.3, 0.7])).astype(float)
    else:
        y = np.where(signal > np.quantile(signal, 1 - share), 1.0, -1.0)
    loss = Softmax(classes=3) if name == "softmax" else LOSSES[name]
    return Objective.of(X=X, y=y, loss=loss, penalty=np.full(3 * loss.outputs, 1.0))


def planned(objective, kind="output", noise="gaussian"):
    """How a model is released at each ε, with a Λ of its own."""

    def plan(epsilon):
        return KINDS[kind](
            epsilon=epsilon,
            delta=1e-5 if noise == "gaussian" else None,
            noise=noise,
            loss=objective.loss,
            regularization=0.002 + 0.02 / (1 + epsilon),
            rows=objective.count,
            dimension=objective.dimension,
        )

    return plan


def trials(objective, *, kind="output", noise="gaussian", folds=3, releases=4, **options):
    return Trials(
        objective=objective,
        plan=planned(objective, kind, noise),
        folds=folds,
        releases=releases,
        seed=SEED,
        **options,
    )


def scored(study, *epsilons):
    study.score(*(epsilons or EPSILONS))
    return study.utility()


def refit(loss, X, y, penalty, linear=0.0):
    """The minimiser of the averaged objective and c·θ, by a route of its own."""

    def value(theta):
        return (
            np.mean(loss.value(X @ theta, y))
            + penalty / 2 * theta @ theta
            + theta @ (linear + np.zeros(len(theta)))
        )

    return minimize(value, np.zeros(X.shape[1]), method="BFGS", options={"gtol": 1e-9}).x


def scores(name, y, z):
    """What scikit-learn says of the margins z."""
    if name == "squared":
        return {"r2": r2_score(y, z)}
    collected = {"accuracy": accuracy_score(y > 0, z > 0), "auc": roc_auc_score(y > 0, z)}
    if name == "logistic":
        collected["log_loss"] = log_loss(y > 0, 1 / (1 + np.exp(-z)))
    return collected


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("kind", "noise"), [("output", "laplace"), ("objective", "gaussian")])
def test_against_models_that_are_perturbed_one_by_one(name, kind, noise):
    if (name, kind) == ("squared", "objective"):
        pytest.skip("objective perturbation of the squared loss has no guarantee")
    objective = make(name)
    study = trials(objective, kind=kind, noise=noise)
    result = scored(study)
    assert tuple(result.curves) == measures_of(objective.loss)
    rows, fold = study.rows.rows, study.rows.fold
    every = {measure: np.empty((len(EPSILONS), 3, 4)) for measure in result.curves}
    base = {measure: [] for measure in result.curves}
    for part in range(3):
        out = fold == part
        X, y, kept, labels = rows.X[out], rows.y[out], rows.X[~out], rows.y[~out]
        draws = study.plan(1.0).unit_noise.sample(4, np.random.default_rng(child(SEED, part)))
        known = (
            labels.mean() if name == "squared" else np.log((labels > 0).sum() / (labels < 0).sum())
        )
        for measure, value in scores(name, y, np.full(len(y), known)).items():
            base[measure].append(value)
        for index, epsilon in enumerate(EPSILONS):
            mechanism = study.plan(epsilon)
            for release, draw in enumerate(mechanism.resolution * draws):
                penalty = mechanism.total_regularization
                if kind == "output":
                    theta = refit(objective.loss, kept, labels, penalty) + draw
                else:
                    # The noise of all rows: the average over the others stands for that over all.
                    theta = refit(objective.loss, kept, labels, penalty, draw / objective.count)
                for measure, value in scores(name, y, X @ theta).items():
                    every[measure][index, part, release] = value
    for measure, curve in result.curves.items():
        cells, sign = every[measure], -1 if measure == "log_loss" else 1
        means, known = cells.mean(axis=2), np.array(base[measure])
        close = {"rtol": 1e-4, "atol": 1e-4}
        np.testing.assert_allclose(curve.mean, means.mean(axis=1), **close)
        np.testing.assert_allclose(curve.error, means.std(axis=1, ddof=1) / np.sqrt(3), **close)
        pooled = cells.reshape(len(EPSILONS), -1)
        np.testing.assert_allclose(curve.low, np.quantile(pooled, 0.05, axis=1), **close)
        np.testing.assert_allclose(curve.high, np.quantile(pooled, 0.95, axis=1), **close)
        assert curve.base_rate == pytest.approx(known.mean(), rel=1e-9, abs=1e-12)
        gains = sign * (means - known)
        np.testing.assert_allclose(curve.gain, gains.mean(axis=1), **close)
        np.testing.assert_allclose(
            curve.gain_error, gains.std(axis=1, ddof=1) / np.sqrt(3), **close
        )
        least = gains.mean(axis=1) + (sign * (cells - means[:, :, None])).min(axis=(1, 2))
        np.testing.assert_allclose(curve.least_gain, least, **close)
        np.testing.assert_allclose(curve.gap, curve.best_gain - curve.gain, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(curve.share, curve.gain / curve.best_gain, rtol=1e-12)


def test_three_classes_have_accuracy_and_log_loss():
    objective = make("softmax", n=150)
    result = scored(trials(objective, kind="objective"), 1e4)
    assert set(result.curves) == {"log_loss", "accuracy"}
    assert result.measure == "log_loss"
    curve = result.curves["accuracy"]
    assert curve.base_rate == pytest.approx(0.4, abs=0.05)
    assert curve.mean[0] > curve.base_rate + 0.1
    assert curve.best > curve.base_rate + 0.1


def test_the_best_model_is_tuned_on_training_rows_alone():
    """Other labels in the held-out fold change neither the penalty nor the model of that fold."""
    objective = make(n=120)
    study = trials(objective)
    inner = study.rows.inner(0, 3, 10_000)
    out = study.rows.fold == 0
    assert set(map(tuple, inner.rows.X)) <= set(map(tuple, study.rows.rows.X[~out]))
    assert inner.rows.count == np.count_nonzero(~out)
    # It is at least as good as a model of any one penalty, within the noise of folds.
    best = scored(study, 1.0).leading.best
    for penalty in (0.01, 1.0, 10.0):
        reached = []
        for fold in range(3):
            train, held = study.rows.split(fold)
            theta = refit(objective.loss, train.X, train.y, penalty / train.count)
            reached.append(log_loss(held.y > 0, 1 / (1 + np.exp(-held.X @ theta))))
        assert best < np.mean(reached) + 0.02


def test_pure_noise_has_no_gain():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)) / 4
    objective = Objective.of(
        X=X, y=np.where(rng.random(600) < 0.3, 1.0, -1.0), loss=Logistic(), penalty=np.ones(4)
    )
    curve = scored(trials(objective, folds=5), 1.0).leading
    assert curve.best_gain < 2 * curve.best_error


# -- folds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logistic", "squared", "softmax"])
@pytest.mark.parametrize("folds", [2, 3, 7])
def test_folds_cover_all_rows_and_are_stratified(name, folds):
    objective = make(name, n=101)
    parts = HeldOutRows.of(objective, folds, key=5)
    np.testing.assert_array_equal(parts.rows.X, objective.held.X)
    sizes = np.bincount(parts.fold, minlength=folds)
    assert sizes.max() - sizes.min() <= 1
    if name != "squared":
        for label in np.unique(objective.held.y):
            each = np.bincount(parts.fold[parts.rows.y == label], minlength=folds)
            assert each.max() - each.min() <= 1
    for fold in range(folds):
        train, held = parts.split(fold)
        assert (train.count, held.count) == (101 - sizes[fold], sizes[fold])
    # Another key, other folds.
    assert not np.array_equal(parts.fold, HeldOutRows.of(objective, folds, key=6).fold)


def test_a_sample_of_a_large_table_is_a_random_share(monkeypatch):
    """Each row with the same probability, whatever the blocks are; the folds are stratified."""
    monkeypatch.setattr(folds_module, "MOST_ROWS", 300)
    objective = make(n=1000)
    counts = np.zeros(1000)
    for key in range(200):
        parts = HeldOutRows.of(objective, 5, key=key)
        here = (objective.held.X[:, None, 0] == parts.rows.X[None, :, 0]).any(axis=1)
        counts += here
    assert counts.mean() / 200 == pytest.approx(0.3, abs=0.01)
    # Binomial: 1,000 rows, 200 draws each.
    assert np.std(counts) == pytest.approx(np.sqrt(200 * 0.3 * 0.7), rel=0.1)
    first = HeldOutRows.of(objective, 5, key=1)
    monkeypatch.setattr(
        HeldRows, "blocks", lambda rows: (slice(i, i + 7) for i in range(0, 1000, 7))
    )
    again = HeldOutRows.of(objective, 5, key=1)
    np.testing.assert_array_equal(first.rows.X, again.rows.X)
    np.testing.assert_array_equal(first.fold, again.fold)


def test_a_sample_has_the_noise_of_all_rows(monkeypatch):
    """Utility on a tenth of the rows is near that on all of them, and not that of a tenth."""
    objective = make(n=3000)
    whole = scored(trials(objective, kind="objective", releases=8), 0.3).leading
    few = Objective.of(
        X=objective.held.X[:300], y=objective.held.y[:300], loss=Logistic(), penalty=np.ones(3)
    )
    small = scored(trials(few, kind="objective", releases=8), 0.3).leading
    monkeypatch.setattr(folds_module, "MOST_ROWS", 300)
    study = trials(objective, kind="objective", releases=8)
    sampled = scored(study, 0.3).leading
    assert study.utility().rows < 400
    assert abs(sampled.gain[0] - whole.gain[0]) < 0.35 * abs(whole.gain[0])
    assert small.gain[0] < sampled.gain[0] - 0.3 * whole.gain[0]


@pytest.mark.parametrize(
    ("name", "n", "folds", "word"),
    [
        ("logistic", 90, 30, "rarest class"),
        ("squared", 20, 6, "20 rows"),
        ("softmax", 30, 9, "rar"),
    ],
)
def test_too_few_rows_are_refused(name, n, folds, word):
    with pytest.raises(InvalidInput, match=word):
        scored(trials(make(name, n=n), kind="objective", folds=folds), 1.0)


# -- laws ------------------------------------------------------------------------------------------


def test_each_epsilon_is_scored_once_and_progress_is_reported():
    recorded = RecordedProgress()
    study = trials(make(), progress=recorded)
    study.score(1.0, 5.0)
    first = study.utility()
    study.score(1.0, 9.0)
    second = study.utility()
    assert second.epsilons.tolist() == [1.0, 5.0, 9.0]
    np.testing.assert_array_equal(first.leading.mean, second.leading.mean[:2])
    alone = scored(trials(make()), 9.0)
    # Up to the gradient at which a model is good enough.
    assert alone.leading.mean[0] == pytest.approx(second.leading.mean[2], rel=1e-4)


def test_a_larger_epsilon_is_better_and_ends_near_the_noiseless_model():
    result = scored(trials(make(n=2000), releases=10), 0.01, 0.1, 1.0, 10.0, 1e4).leading
    assert np.all(np.diff(result.gain) > -2 * result.gain_error[1:])
    assert result.mean[-1] - result.best < 0.05


@pytest.mark.parametrize("measure", ["log_loss", "auc", "accuracy"])
def test_the_requested_measure_leads(measure):
    result = scored(trials(make(), measure=measure), 1.0)
    assert result.measure == measure
    assert result.leading is result.curves[measure]


def test_ties_count_half():
    """Rows of one binary feature: the AUC is that of the feature, with half of the ties."""
    rng = np.random.default_rng(1)
    for share in (0.3, 0.7):
        x = np.where(rng.random(400) < 0.5, 1.0, -1.0)
        y = np.where(rng.random(400) < share + 0.125 * x, 1.0, -1.0)
        objective = Objective.of(
            X=x[:, np.newaxis], y=y, loss=LOSSES["logistic"], penalty=np.ones(1)
        )
        study = trials(objective, folds=2, releases=20)
        auc = scored(study, 1e6).curves["auc"].mean[0]
        held_out = (study.rows.split(fold)[1] for fold in range(2))
        expected = [roc_auc_score(part.y > 0, part.X[:, 0]) for part in held_out]
        assert auc == pytest.approx(np.mean(expected), rel=1e-12)


def test_constant_labels_have_no_r2():
    objective = make("squared")
    flat = Objective.of(X=objective.held.X, y=np.zeros(90), loss=objective.loss, penalty=np.ones(3))
    with pytest.raises(InvalidInput, match="R²"):
        scored(trials(flat), 1.0)


def test_a_release_scores_in_the_interval_nine_times_of_ten():
    objective = make(n=200)
    result = scored(trials(objective, releases=200), 2.0).leading
    again = Trials(
        objective=objective,
        plan=planned(objective),
        folds=3,
        releases=200,
        seed=np.random.SeedSequence(9),
    )
    again.score(2.0)
    scores = again.scores[2.0]["log_loss"]
    inside = (scores >= result.low) & (scores <= result.high)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.04)
    assert dataclasses.asdict(result)
