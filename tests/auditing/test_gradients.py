"""White-box scores of linear models: against gradients row by row, and against the optimum."""

import math
import warnings

import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from expost.auditing.attacks.gradients import (
    DenseGradients,
    gradient_norm,
    gradient_ratio,
    update_ratio,
)
from expost.auditing.attacks.linear_gradients import (
    LinearGradients,
    gradient_scores,
    linear_gradients,
)
from expost.errors import InvalidInput
from expost.estimators import PrivateLogisticRegression
from expost.losses import HuberHinge, Logistic, Softmax, Squared
from parameters import refuse_nan
from penalties import CROSS_VALIDATED, L1


def sample(n, d, classes=2, seed=0):
    """Labels of a noisy linear rule that is the same for every seed."""
    rule = np.random.default_rng(99).normal(size=(classes, d))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rule.T + 2 * rng.gumbel(size=(n, classes))).argmax(axis=1)


def difference_quotient(loss, parameters, step=1e-6):
    """∇loss by central differences, a coordinate at a time."""
    flat = parameters.ravel()
    computed = np.empty(len(flat))
    for j in range(len(flat)):
        move = np.zeros(len(flat))
        move[j] = step
        up, down = (loss((flat + sign * move).reshape(parameters.shape)) for sign in (1, -1))
        computed[j] = (up - down) / (2 * step)
    return computed


def row_loss(model, x, label):
    """The loss of one row as a function of (K, d + 1) coefficients, written out."""
    if isinstance(model, LogisticRegression):
        if len(model.classes_) == 2:
            return lambda w: -math.log(expit((1 if label == 1 else -1) * float(w[0] @ x)))
        return lambda w: -math.log(softmax(w @ x)[label])
    if isinstance(model, RidgeClassifier | LinearSVC):
        classes = len(model.classes_)
        signs = (
            [1 if label == 1 else -1]
            if classes == 2
            else [1 if label == k else -1 for k in range(classes)]
        )
        if isinstance(model, RidgeClassifier):
            return lambda w: sum((w[k] @ x - s) ** 2 / 2 for k, s in enumerate(signs))
        power = 2 if model.loss == "squared_hinge" else 1
        return lambda w: sum(
            max(0.0, 1 - s * float(w[k] @ x)) ** power for k, s in enumerate(signs)
        )
    return lambda w: (float(w[0] @ x) - label) ** 2 / 2


MODELS = {
    "logistic": (LogisticRegression(C=2.0, tol=1e-12, max_iter=5000), 2),
    "logistic-no-intercept": (LogisticRegression(fit_intercept=False, tol=1e-12), 2),
    "logistic-liblinear": (
        LogisticRegression(solver="liblinear", tol=1e-12, intercept_scaling=2.0),
        2,
    ),
    "softmax": (LogisticRegression(tol=1e-12, max_iter=5000), 3),
    "ridge": (Ridge(alpha=0.7), 2),
    "least-squares": (LinearRegression(), 2),
    "ridge-classifier": (RidgeClassifier(), 2),
    "ridge-classifier-3": (RidgeClassifier(), 3),
    "svc": (LinearSVC(tol=1e-12, max_iter=100_000, random_state=0), 2),
    "svc-3": (LinearSVC(tol=1e-12, max_iter=100_000, random_state=0), 3),
    "svc-hinge": (LinearSVC(loss="hinge", max_iter=100_000, random_state=0), 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_each_row_alone(name):
    model, classes = MODELS[name]
    X, y = sample(30, 4, classes)
    model.fit(X, y)
    members = linear_gradients(model, X, y)
    # Others than it was fitted on, which the hinge has at its corner.
    X, y = sample(30, 4, classes, seed=1)
    gradients = linear_gradients(model, X, y)
    scaling = (
        getattr(model, "intercept_scaling", 1.0) if "liblinear" in name or "svc" in name else 1.0
    )
    weights = np.atleast_2d(model.coef_)
    if model.fit_intercept:
        weights = np.column_stack([weights, np.reshape(model.intercept_, (-1, 1)) / scaling])
        X = np.column_stack([X, np.full(len(X), scaling)])
    each = np.array(
        [
            difference_quotient(row_loss(model, x, label), weights)
            for x, label in zip(X, y, strict=True)
        ]
    )
    norms = np.linalg.norm(each, axis=1)
    tolerance = 1e-7 * norms.max()
    np.testing.assert_allclose(-gradient_norm(gradients), norms, atol=tolerance)
    direction = np.random.default_rng(1).normal(size=each.shape[1])
    np.testing.assert_allclose(gradients.along(direction), each @ direction, atol=10 * tolerance)
    np.testing.assert_allclose(gradients.mean(), each.mean(axis=0), atol=tolerance)
    np.testing.assert_allclose(
        gradients.gram(gradients), each @ each.T, atol=10 * tolerance * norms.max()
    )
    np.testing.assert_allclose(
        gradients.take(np.array([3, 5])).squares(), norms[[3, 5]] ** 2, rtol=1e-5
    )
    if name == "svc-hinge":
        assert gradients.total is None
    else:
        # The members' gradients sum to S: that is what makes the model a minimiser.
        summed = members.rows * members.mean()
        np.testing.assert_allclose(summed, members.total, atol=1e-4 * norms.sum())


@pytest.mark.parametrize(
    "loss", [Logistic(), HuberHinge(), Squared(label_bound=1.0), Softmax(classes=3)]
)
def test_plain_arrays(loss):
    rng = np.random.default_rng(2)
    many = 3 if isinstance(loss, Softmax) else 1
    X, theta = rng.normal(size=(9, 3)), rng.normal(size=3 * many)
    y = rng.integers(3, size=9) if many == 3 else rng.choice([-1.0, 1.0], size=9)
    computed = LinearGradients.of(X, y, theta, loss, regularization=0.1, members=40)

    def value(w, i):
        z = X[i : i + 1] @ w.T
        return float(loss.value(z if many == 3 else z[:, 0], np.array([y[i]]))[0])

    for i in range(9):
        slow = difference_quotient(lambda w, i=i: value(w, i), theta.reshape(many, 3))
        np.testing.assert_allclose(computed.squares()[i], slow @ slow, rtol=1e-5, atol=1e-12)
        np.testing.assert_allclose(computed.along(theta)[i], slow @ theta, atol=1e-6)
    np.testing.assert_allclose(computed.total, -40 * 0.1 * theta)


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_a_release_has_the_gradients_of_its_own_objective(mechanism, tmp_path):
    X, y = sample(60, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateLogisticRegression(
            epsilon=5.0, regularization=0.1, mechanism=mechanism, data_norm=4.0, random_state=0
        ).fit(X, y)
    release = model.release_
    problem = release.objective(X, y)
    slow = np.array(
        [
            -label * expit(-label * float(x @ release.theta)) * x
            for x, label in zip(problem.held.X, problem.held.y, strict=True)
        ]
    )
    path = release.save(tmp_path / "model.json")
    for source in (model, release, path, str(path)):
        gradients = linear_gradients(source, X, y)
        np.testing.assert_allclose(gradients.squares(), np.sum(slow**2, axis=1), rtol=1e-10)
        np.testing.assert_allclose(gradients.mean(), slow.mean(axis=0), atol=1e-12)
    perturbation = release.mechanism
    np.testing.assert_allclose(
        gradients.total, -60 * perturbation.total_regularization * release.theta
    )
    draws = perturbation.law.sample(4000, np.random.default_rng(1))
    variance = float(np.mean(draws**2))
    if mechanism == "output":
        curvature = expit(problem.held.X @ release.theta) * expit(-problem.held.X @ release.theta)
        hessian = (problem.held.X.T * curvature) @ problem.held.X / 60 + 0.1 * np.eye(
            perturbation.dimension
        )
        variance = float(np.mean((draws @ hessian * 60) ** 2))
    # Noise that is even in θ is taken to be even in S: right in the mean over coordinates.
    assert gradients.noise_variance == pytest.approx(variance, rel=0.1)
    assert gradients.noise_variance != pytest.approx(1.5 * variance, rel=0.1)


def test_the_update_ratio_is_the_ratio_of_two_normal_densities():
    rng = np.random.default_rng(3)
    g, others, scale = rng.normal(size=(5, 4)), rng.normal(size=4), 0.7
    update = others + g[0] + scale * rng.normal(size=4)
    computed = update_ratio(DenseGradients(vectors=g), update, others=others, scale=scale)
    slow = [
        multivariate_normal(others + row, scale**2).logpdf(update)
        - multivariate_normal(others, scale**2).logpdf(update)
        for row in g
    ]
    np.testing.assert_allclose(computed, slow, rtol=1e-10)
    # Of the row that was in it: what DP-SGD's account says.
    noise = update - others - g[0]
    assert computed[0] == pytest.approx((2 * noise @ g[0] + g[0] @ g[0]) / (2 * scale**2))
    plain = update_ratio(DenseGradients(vectors=g), update, others=others)
    np.testing.assert_allclose(plain, computed * scale**2)
    assert not np.allclose(update_ratio(DenseGradients(vectors=g), update), plain)


def naive_ratio(g, population, members, total, noise_variance, centre=None, of=None):
    """Eq. 2 with every matrix written out."""
    size = g.shape[1]
    centre = population.mean(axis=0) if centre is None else centre
    covariance, _ = ledoit_wolf(population - centre, assume_centered=True)
    noisy = members * (
        1 + members / (of or len(population))
    ) * covariance + noise_variance * np.eye(size)
    inverse = np.linalg.inv(noisy)
    h = g - centre
    return np.array(
        [row @ inverse @ (total - members * centre) - row @ inverse @ row / 2 for row in h]
    )


@pytest.mark.parametrize(("k", "d"), [(40, 3), (12, 30)])
@pytest.mark.parametrize("noise_variance", [0.0, 2.5])
def test_the_ratio_equals_the_one_with_every_matrix_written_out(k, d, noise_variance, monkeypatch):
    rng = np.random.default_rng(4)
    mix = rng.normal(size=(d, d))
    g, population = (rng.normal(size=(n, d)) @ mix + 0.3 for n in (25, k))
    total = rng.normal(size=d)
    options = {"members": 10, "total": total, "noise_variance": noise_variance}
    rows, outside = DenseGradients(vectors=g), DenseGradients(vectors=population)
    computed = gradient_ratio(rows, outside, **options)
    slow = naive_ratio(g, population, 10, total, noise_variance)
    np.testing.assert_allclose(computed, slow, rtol=1e-6, atol=1e-9)
    # Without a population: the rows in question, corrected for the members among them.
    alone = gradient_ratio(rows, **options, within=8)
    centre = (g.sum(axis=0) - 8 * total / 10) / (25 - 8)
    slow = naive_ratio(g, g, 10, total, noise_variance, centre)
    np.testing.assert_allclose(alone, slow, rtol=1e-6, atol=1e-9)
    monkeypatch.setattr("expost._numerics._BLOCK_ENTRIES", 1)
    monkeypatch.setattr("expost._numerics._BLOCK_ROWS", 4)
    np.testing.assert_allclose(gradient_ratio(rows, outside, **options), computed, rtol=1e-9)
    some = population[np.linspace(0, k - 1, 10).astype(int)]
    fewer = gradient_ratio(rows, outside, **options, most_rows=10)
    slow = naive_ratio(g, some, 10, total, noise_variance, population.mean(axis=0), of=k)
    np.testing.assert_allclose(fewer, slow, rtol=1e-6, atol=1e-9)
    assert not np.allclose(fewer, computed)


def optimum(row, total, n, centre, inverse):
    """log p(total ∣ with the row) − log p(total ∣ without it), up to a constant."""
    with_row, without = total - row - (n - 1) * centre, total - n * centre
    return -with_row @ inverse @ with_row / (2 * (n - 1)) + without @ inverse @ without / (2 * n)


def test_on_gaussian_sums_the_ratio_is_the_optimum():
    """n rows of N(ḡ, C) are summed; the plain inner product is not the optimum there."""
    rng = np.random.default_rng(5)
    n, d = 30, 12
    mix = np.diag(np.linspace(0.1, 3, d))
    centre, inverse = rng.normal(size=d), np.linalg.inv(mix @ mix)
    scores = {name: [] for name in ("ratio", "optimum", "plain", "norm")}
    truth = []
    for _ in range(60):
        rows, population = (rng.normal(size=(size, d)) @ mix + centre for size in (2 * n, 800))
        total = rows[:n].sum(axis=0)
        given = DenseGradients(vectors=rows)
        computed = gradient_ratio(given, DenseGradients(vectors=population), members=n, total=total)
        scores["ratio"].extend(computed)
        scores["optimum"].extend(optimum(row, total, n, centre, inverse) for row in rows)
        scores["plain"].extend((rows - centre) @ (total - n * centre))
        scores["norm"].extend(gradient_norm(given))
        truth.extend([True] * n + [False] * n)
    area = {name: roc_auc_score(truth, values) for name, values in scores.items()}
    assert area["optimum"] > 0.65
    assert area["ratio"] > area["optimum"] - 0.02
    assert area["plain"] < area["optimum"] - 0.04
    assert abs(area["norm"] - 0.5) < 0.05
    # In nats, too: half of the scores' size is not enough, nor one and a half of it.
    slope = np.polyfit(scores["optimum"], scores["ratio"], 1)[0]
    assert slope == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("alone", [False, True], ids=["population", "rows in question"])
def test_gradients_tell_more_of_a_linear_model_than_losses_do(alone):
    area = {"loss": [], "gradient-norm": [], "gradient-inner-product": [], "untrained": []}
    n = 150
    truth = np.arange(2 * n) < n
    for seed in range(6):
        X, y = sample(2 * n, 60, seed=seed)
        model = LogisticRegression(C=10.0, max_iter=2000).fit(X[:n], y[:n])
        population = None if alone else sample(1000, 60, seed=100 + seed)
        scores = gradient_scores(model, X, y, members=n, population=population)
        scores["loss"] = model.predict_log_proba(X)[np.arange(2 * n), y]
        strangers = sample(2 * n, 60, seed=200 + seed)
        outside = sample(1000, 60, seed=100 + seed)
        scores["untrained"] = gradient_scores(model, *strangers, members=n, population=outside)[
            "gradient-inner-product"
        ]
        for name, values in scores.items():
            area[name].append(roc_auc_score(truth, values))
    mean = {name: float(np.mean(values)) for name, values in area.items()}
    assert mean["loss"] > 0.53
    assert mean["gradient-inner-product"] > mean["loss"] + 0.05
    assert mean["gradient-inner-product"] > mean["gradient-norm"] + 0.05
    # The same rows in the role of members, of which none was: √(1/(6·n)) is the spread of a mean.
    assert abs(mean["untrained"] - 0.5) < 0.05


def test_which_models_are_taken():
    X, y = sample(40, 3)
    assert gradient_scores(DecisionTreeClassifier().fit(X, y), X, y, members=20) == {}
    assert linear_gradients(SGDClassifier().fit(X, y), X, y) is None
    assert linear_gradients(LinearSVC(multi_class="crammer_singer").fit(X, y), X, y) is None
    weighted = LogisticRegression(class_weight="balanced").fit(X, y)
    assert set(gradient_scores(weighted, X, y, members=20)) == {"gradient-norm"}
    lasso = LogisticRegression(**L1, solver="liblinear").fit(X, y)
    assert linear_gradients(lasso, X, y).total is None
    chosen = LogisticRegressionCV(Cs=2, cv=2, scoring="accuracy", **CROSS_VALIDATED).fit(X, y)
    assert linear_gradients(chosen, X, y).total is None
    free = linear_gradients(LogisticRegression(C=np.inf).fit(X, y), X, y)
    assert not np.any(free.total)
    assert set(gradient_scores(LogisticRegression().fit(X, y), X, y, members=40)) == {
        "gradient-norm"
    }


def test_a_pipeline_is_read_through_its_last_step():
    X, y = sample(50, 3)
    scaled = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    inner = linear_gradients(scaled[-1], scaled[0].transform(X), y)
    np.testing.assert_array_equal(linear_gradients(scaled, X, y).squares(), inner.squares())
    words = np.where(X > 0, "yes", "no")
    sparse = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(words, y)
    assert set(gradient_scores(sparse, words, y, members=25)) == {
        "gradient-norm",
        "gradient-inner-product",
    }
    alone = make_pipeline(LogisticRegression()).fit(X, y)
    assert linear_gradients(alone, X, y).rows == 50


def test_a_release_knows_how_many_rows_made_it():
    X, y = sample(80, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateLogisticRegression(
            epsilon=50.0, regularization=0.1, data_norm=4.0, random_state=0
        ).fit(X[:60], y[:60])
    part = gradient_scores(model, X[40:], y[40:], members=20)["gradient-inner-product"]
    stated = gradient_scores(model, X[40:], y[40:], members=20, trained_on=60)
    np.testing.assert_array_equal(part, stated["gradient-inner-product"])
    other = gradient_scores(model, X[40:], y[40:], members=20, trained_on=20)
    assert not np.allclose(part, other["gradient-inner-product"])


def test_what_cannot_be_done_is_refused():
    X, y = sample(20, 3)
    model = LogisticRegression().fit(X, y)
    rows = linear_gradients(model, X, y)
    with pytest.raises(InvalidInput, match="X has 2 columns"):
        linear_gradients(model, X[:, :2], y)
    with pytest.raises(InvalidInput, match="is not fitted"):
        linear_gradients(LogisticRegression(), X, y)
    with pytest.raises(InvalidInput, match="labels other than"):
        linear_gradients(model, X, y + 5)
    with pytest.raises(InvalidInput, match="pass a population"):
        gradient_ratio(rows, members=20)
    with pytest.raises(InvalidInput, match="of the same model"):
        gradient_ratio(rows, DenseGradients(vectors=np.ones((4, 2))), members=5)
    with pytest.raises(InvalidInput, match="at least two rows"):
        gradient_ratio(rows, rows.take(np.array([0])), members=5)
    with pytest.raises(InvalidInput, match="do not vary"):
        gradient_ratio(rows, rows.take(np.array([0, 0])), members=5)
    assert len(refuse_nan(gradient_ratio, {"gradients": rows, "members": 5})) == 4
    assert refuse_nan(update_ratio, {"gradients": rows, "update": np.ones(4)}) == ["scale"]
    with pytest.raises(InvalidInput, match="update has 2 entries"):
        update_ratio(rows, np.ones(2))
    with pytest.raises(InvalidInput, match="vectors holds NaN"):
        DenseGradients(vectors=np.full((2, 2), np.nan))
    with pytest.raises(InvalidInput, match="residuals"):
        LinearGradients(features=X, residuals=np.ones((3, 1)))
    with pytest.raises(InvalidInput, match="theta"):
        LinearGradients.of(X, y, np.ones(4), Logistic())


def test_even_noise_alone_makes_the_plain_inner_product():
    """Where the noise is far larger than what rows differ by, Eq. 2 becomes Eq. 1."""
    rng = np.random.default_rng(6)
    g, total = rng.normal(size=(7, 3)), rng.normal(size=3)
    rows = DenseGradients(vectors=g - g.mean(axis=0))
    computed = gradient_ratio(rows, rows, members=2, total=total, noise_variance=1e8)
    np.testing.assert_allclose(computed, update_ratio(rows, total, scale=1e4), rtol=1e-5)


class Speaks:
    """A model that knows its own gradients."""

    def gradient_scores(self, X, y, *, members, population, trained_on):
        return {"gradient-norm": np.full(len(X), float(members))}


def test_a_model_may_speak_for_itself():
    X, y = sample(5, 3)
    assert gradient_scores(Speaks(), X, y, members=2)["gradient-norm"].tolist() == [2.0] * 5
