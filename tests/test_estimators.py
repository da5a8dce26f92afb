"""The scikit-learn estimators: conventions, exactness, the noise of their guarantee, refusals."""

import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from expost.errors import (
    ClippedRowsWarning,
    InvalidInput,
    NoGuaranteeWarning,
    PrivacyLeakWarning,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
    UselessModelWarning,
)
from expost.estimators import BudgetWarning
from expost.release import Release
from expost.types import Audience
from naive import gaussian_scale
from settings import OUTPUT

KINDS = (PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge)
CLASSIFIERS = KINDS[:2]
DATA_NORM, LABEL_BOUND = 10.0, 1.0
# What is read from the data unless it is given.
BOUND = {**dict.fromkeys(CLASSIFIERS, "classes"), PrivateRidge: "label_range"}


def make(kind, **parameters):
    """An estimator whose every bound is given, by default of output perturbation."""
    own = (
        {"label_range": (-LABEL_BOUND, LABEL_BOUND), "huber_width": None}
        if kind is PrivateRidge
        else {"classes": ("a", "b")}
    )
    return kind(**{**OUTPUT, "data_norm": DATA_NORM, **own, **parameters})


def rows(kind, *, n=60, d=4, seed=0):
    """Rows within the bounds, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    signal = X @ np.linspace(1, 2, d) / np.sqrt(d) + 0.3 * rng.normal(size=n)
    return X, np.clip(signal, -4, 4) / 5 if kind is PrivateRidge else np.where(signal > 0, "b", "a")


# scikit-learn's own checks.

# The only checks that a private estimator cannot pass, and why; the tuple names the instance.
EXPECTED_FAILED_CHECKS = {
    ("PrivateRidge", 1.0): {
        "check_regressors_train": "wants R² > 0.5 from 200 rows: not to be had with the noise of"
        " epsilon=1 and the shrinkage of regularization=1 (passes at a large epsilon)"
    },
}

EXACT = {"data_norm": DATA_NORM, "regularization": 1e-3, "random_state": 0}
# The defaults (objective perturbation), and output perturbation with hardly any noise.
CHECKED = [
    *(kind() for kind in CLASSIFIERS),
    PrivateRidge(label_range=(-LABEL_BOUND, LABEL_BOUND), huber_width=None),
    *(kind(1e6, **{**OUTPUT, **EXACT}) for kind in CLASSIFIERS),
    PrivateRidge(
        1e6, **{**OUTPUT, **EXACT}, label_range=(-LABEL_BOUND, LABEL_BOUND), huber_width=None
    ),
]


# The checks use many label sets, so classes are read from the data; they have rows of any length,
# they set random_state themselves, and they clone without end.
@pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore::expost.errors.ClippedRowsWarning")
@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
@pytest.mark.filterwarnings("ignore::expost.estimators.BudgetWarning")
@pytest.mark.filterwarnings("ignore::expost.errors.RaisedRegularizationWarning")
@pytest.mark.filterwarnings("ignore::expost.errors.NoGuaranteeWarning")
@pytest.mark.filterwarnings("ignore::expost.errors.UnscaledColumnsWarning")
@parametrize_with_checks(
    CHECKED,
    expected_failed_checks=lambda estimator: EXPECTED_FAILED_CHECKS.get(
        (type(estimator).__name__, estimator.epsilon), {}
    ),
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Exactness: epsilon=inf.


def unit_rows(X, *, intercept, scaling=0.1):
    """The public map into the unit ball, written down again (without its last few ulps)."""
    if not intercept:
        return X / DATA_NORM
    return np.column_stack([np.sqrt(1 - scaling**2) * X / DATA_NORM, np.full(len(X), scaling)])


def naive_loss(kind, z, y, *, width=0.5):
    """(f, f′) of every row; y is ±1, or real."""
    if kind is PrivateRidge:
        return (z - y) ** 2 / 2, z - y
    if kind is PrivateLogisticRegression:
        return np.log1p(np.exp(-y * z)), -y / (1 + np.exp(y * z))
    u = y * z
    value = np.select([u > 1 + width, u < 1 - width], [0, 1 - u], (1 + width - u) ** 2 / 4 / width)
    slope = np.select([u > 1 + width, u < 1 - width], [0, -1], -(1 + width - u) / 2 / width)
    return value, y * slope


def naive_minimiser(kind, Z, y, regularization, **options):
    """A(D) by a general optimiser."""
    target = y if kind is PrivateRidge else np.where(y == "b", 1.0, -1.0)

    def objective(theta):
        value, slope = naive_loss(kind, Z @ theta, target, **options)
        penalty = regularization / 2 * theta @ theta
        return value.mean() + penalty, Z.T @ slope / len(Z) + regularization * theta

    solution = scipy.optimize.minimize(
        objective, np.zeros(Z.shape[1]), jac=True, method="L-BFGS-B", tol=1e-15,
        options={"gtol": 1e-11, "maxiter": 10_000},
    )  # fmt: skip
    assert np.linalg.norm(objective(solution.x)[1]) < 1e-7 * regularization
    return solution.x


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("regularization", [1.0, 0.01])
@pytest.mark.parametrize("kind", KINDS)
def test_infinite_epsilon_is_the_minimiser(kind, regularization, intercept):
    X, y = rows(kind)
    model = make(kind, epsilon=np.inf, regularization=regularization, fit_intercept=intercept).fit(
        X, y
    )
    naive = naive_minimiser(kind, unit_rows(X, intercept=intercept), y, regularization)
    np.testing.assert_allclose(model.release_.theta, naive, atol=1e-6, rtol=1e-6)
    assert not np.allclose(model.release_.theta, 1.001 * naive, atol=1e-6, rtol=1e-6)
    scores = unit_rows(X, intercept=intercept) @ naive
    shown = model.predict(X) if kind is PrivateRidge else model.decision_function(X)
    np.testing.assert_allclose(shown, scores, atol=1e-5)
    assert model.release_.audience is Audience.NEEDS_REVIEW


def test_infinite_epsilon_honours_huber_width():
    X, y = rows(PrivateLinearSVC)
    model = make(PrivateLinearSVC, epsilon=np.inf, regularization=0.01, huber_width=0.1).fit(X, y)
    Z = unit_rows(X, intercept=True)
    naive = naive_minimiser(PrivateLinearSVC, Z, y, 0.01, width=0.1)
    np.testing.assert_allclose(model.release_.theta, naive, atol=1e-5)
    other = naive_minimiser(PrivateLinearSVC, Z, y, 0.01, width=0.5)
    assert not np.allclose(model.release_.theta, other, atol=1e-5)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateRidge])
def test_infinite_epsilon_agrees_with_scikit_learn(kind, intercept):
    """C Σℓ + ½∥w∥² with C = 1/(nΛ); Σ(z − y)² + alpha∥w∥² with alpha = nΛ."""
    X, y = rows(kind)
    regularization = 0.05
    total = len(X) * regularization
    theirs = (
        Ridge(alpha=total, fit_intercept=False)
        if kind is PrivateRidge
        else LogisticRegression(C=1 / total, fit_intercept=False, tol=1e-12, max_iter=10_000)
    ).fit(unit_rows(X, intercept=intercept), y)
    ours = make(kind, epsilon=np.inf, regularization=regularization, fit_intercept=intercept).fit(
        X, y
    )
    np.testing.assert_allclose(ours.release_.theta, np.ravel(theirs.coef_), atol=1e-6)
    if kind is PrivateLogisticRegression:
        theirs_proba = theirs.predict_proba(unit_rows(X, intercept=intercept))
        np.testing.assert_allclose(ours.predict_proba(X), theirs_proba, atol=1e-6)
        np.testing.assert_allclose(np.exp(ours.predict_log_proba(X)), theirs_proba, atol=1e-6)


def test_log_probabilities_do_not_underflow():
    """The noise of so small an ε makes a model whose probabilities are 0 and 1 as numbers."""
    X, y = rows(PrivateLogisticRegression)
    model = make(PrivateLogisticRegression, epsilon=1e-6).fit(X, y)
    scores = model.decision_function(X)
    assert np.abs(scores).max() > 1e3
    logs = model.predict_log_proba(X)
    assert np.all(np.isfinite(logs))
    np.testing.assert_allclose(logs.min(axis=1), -np.abs(scores), rtol=1e-9, atol=1)


# The noise that was guaranteed.

DRAWS, ALARM = 2000, 1e-9


def naive_lipschitz(kind, regularization):
    if kind is not PrivateRidge:
        return 1.0
    singular = np.linspace(0, 1, 100_001)
    return LABEL_BOUND * (1 + np.max(singular / (singular**2 + regularization)))


@pytest.mark.parametrize(
    ("kind", "noise"), [*((kind, "laplace") for kind in KINDS), (PrivateRidge, "gaussian")]
)
def test_noise_follows_the_guaranteed_law(kind, noise):
    """∥θ − A∥ over real releases, from the operating system's randomness, which has no seed.

    So the false-alarm rate is 1e-9 a test; and a scale that is off by 1.1 either way is rejected
    (it moves the distribution by about 0.13, where 0.075 is enough).
    """
    n, d, epsilon, delta, regularization = 30, 9, 0.7, 1e-5, 0.3
    X, y = rows(kind, n=n, d=d)
    model = make(
        kind, epsilon=epsilon, noise=noise, regularization=regularization,
        delta=delta if noise == "gaussian" else None,
    )  # fmt: skip
    base = naive_minimiser(kind, unit_rows(X, intercept=True), y, regularization)
    # Every fit prepares the same rows, and releases again.
    prepared = model.prepared(X, y)
    releases = [model.fit(X, y).release_, *(model.release(prepared) for _ in range(DRAWS))]
    norms = [np.linalg.norm(release.theta - base) for release in releases]
    sensitivity = 2 * naive_lipschitz(kind, regularization) / (n * regularization)
    if noise == "laplace":
        law = scipy.stats.gamma(d + 1, scale=sensitivity / epsilon)
    else:
        law = scipy.stats.chi(d + 1, scale=gaussian_scale(epsilon, delta, sensitivity))
    assert scipy.stats.kstest(norms, law.cdf).pvalue > ALARM
    for factor in (1.1, 1 / 1.1):
        assert scipy.stats.kstest(np.multiply(norms, factor), law.cdf).pvalue < ALARM


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_two_releases_differ_and_a_seed_repeats(mechanism):
    X, y = rows(PrivateLinearSVC)
    model = make(PrivateLinearSVC, mechanism=mechanism)
    first = model.fit(X, y).coef_
    assert not np.any(first == model.fit(X, y).coef_)
    seeded = make(PrivateLinearSVC, mechanism=mechanism, random_state=3)
    with pytest.warns(SeededReleaseWarning):
        first = seeded.fit(X, y).coef_
    with pytest.warns(SeededReleaseWarning):
        np.testing.assert_array_equal(first, seeded.fit(X, y).coef_)


@pytest.mark.parametrize("kind", KINDS)
def test_automatic_regularization_sees_the_shape_alone(kind):
    def chosen(*, n=60, d=4, seed=0, scale=1.0, **parameters):
        X, y = rows(kind, n=n, d=d, seed=seed)
        model = make(kind, regularization="auto", **parameters).fit(scale * X, y)
        return model.release_.mechanism.regularization

    known = chosen()
    assert all(chosen(seed=seed, scale=1 / seed) == known for seed in range(1, 6))
    assert chosen(n=600) < known
    assert chosen(epsilon=10.0) < known
    assert chosen(d=8) != known


def test_automatic_regularization_does_not_see_labels_through_their_bound():
    X, y = rows(PrivateRidge)
    collected = set()
    for factor in (1, 0.37, 1e-3):
        model = PrivateRidge(regularization="auto", data_norm=DATA_NORM)
        with pytest.warns(PrivacyLeakWarning, match="label_range"):
            collected.add(model.fit(X, factor * y).release_.mechanism.regularization)
    assert len(collected) == 1


# Warnings: one each, at the caller's line.


def caught(call):
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        # Of so few rows most models are; tests/test_forecast.py has that warning.
        warnings.simplefilter("ignore", UselessModelWarning)
        call()
    assert all(warning.filename == __file__ for warning in records)
    return [(warning.category, str(warning.message)) for warning in records]


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_given_and_kept_warn_of_nothing(kind):
    assert caught(lambda: make(kind).fit(*rows(kind))) == []


@pytest.mark.parametrize(
    ("kind", "dropped", "named"),
    [
        (PrivateLogisticRegression, "classes", "classes (the label set)"),
        (PrivateLinearSVC, "classes", "classes (the label set)"),
        (PrivateRidge, "label_range", "label_range"),
    ],
)
def test_a_bound_read_from_the_data_leaks_and_warns_once(kind, dropped, named):
    X, y = rows(kind)
    model = make(kind, **{dropped: None})
    [(category, text)] = caught(lambda: model.fit(X, y))
    assert category is PrivacyLeakWarning
    assert named in text
    assert len(model.release_.read_from_data) == 1
    assert model.release_.audience is Audience.NEEDS_REVIEW
    assert make(kind).fit(X, y).release_.audience is Audience.PUBLIC
    if dropped == "label_range":
        ends = (y.min(), y.max())
        assert model.release_.label_scale.ends == pytest.approx(ends, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_past_the_bound_are_clipped_with_one_warning(kind):
    X, y = rows(kind)
    longer = X * np.where(np.arange(len(X)) < 3, 1e4, 1)[:, None]
    model = make(kind, epsilon=np.inf)
    [(category, text)] = caught(lambda: model.fit(longer, y))
    assert category is ClippedRowsWarning
    assert "3 of 60 rows" in text
    assert f"{DATA_NORM:g} (data_norm)" in text
    clipped = X * np.where(np.arange(len(X)) < 3, DATA_NORM / np.linalg.norm(X, axis=1), 1)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedRowsWarning)  # an ulp past the bound
        np.testing.assert_allclose(model.coef_, make(kind, epsilon=np.inf).fit(clipped, y).coef_)


def test_labels_past_the_bound_are_clipped_with_one_warning():
    X, y = rows(PrivateRidge)
    model = make(PrivateRidge, epsilon=np.inf, label_range=(-0.2, 0.2))
    [(category, text)] = caught(lambda: model.fit(X, y))
    assert category is ClippedRowsWarning
    assert f"{np.count_nonzero(np.abs(y) > 0.2)} labels" in text
    np.testing.assert_array_equal(model.coef_, clone(model).fit(X, np.clip(y, -0.2, 0.2)).coef_)


@pytest.mark.parametrize(
    "seed", [0, np.int64(3), np.random.default_rng(0), np.random.RandomState(0)]
)  # fmt: skip
def test_a_seed_warns_and_is_in_the_repr(seed, tmp_path):
    X, y = rows(PrivateRidge)
    model = make(PrivateRidge, random_state=seed)
    [(category, text)] = caught(lambda: model.fit(X, y))
    assert category is SeededReleaseWarning
    assert "random_state" in text
    loaded = PrivateRidge.load(model.save(tmp_path / "model.json"))
    for shown in (model, model.release_, loaded):
        assert "not a private release" in repr(shown)
    assert model.release_.audience is Audience.NEEDS_REVIEW
    assert "random_state" not in repr(make(PrivateRidge).fit(X, y))


def test_a_seed_without_noise_to_draw_is_no_matter():
    model = make(PrivateRidge, epsilon=np.inf, random_state=0)
    assert caught(lambda: model.fit(*rows(PrivateRidge))) == []
    assert not model.release_.seeded


# Every fit spends: copies are counted.


def test_the_second_copy_warns_once():
    model = make(PrivateRidge)
    assert caught(lambda: clone(model)) == []
    [(category, text)] = caught(lambda: clone(model))
    assert category is BudgetWarning
    assert "epsilon again" in text
    assert caught(lambda: [clone(model) for _ in range(5)]) == []
    # Each estimator has its own count, and a copy starts at none.
    assert caught(lambda: clone(make(PrivateRidge))) == []
    assert caught(lambda: clone(clone(model))) == []


def test_clone_copies_parameters_and_nothing_else():
    X, y = rows(PrivateLogisticRegression)
    model = make(PrivateLogisticRegression, epsilon=3.0).fit(X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(X)


GRID = {"regularization": [0.1, 1.0]}


@pytest.mark.parametrize("jobs", [None, 2])
def test_a_grid_search_warns_that_it_spends(jobs):
    X, y = rows(PrivateRidge)
    search = GridSearchCV(make(PrivateRidge), GRID, cv=3, n_jobs=jobs)
    with pytest.warns(BudgetWarning) as records:
        search.fit(X, y)
    assert [item.category for item in records].count(BudgetWarning) == 1
    # 2 settings × 3 folds and the refit.
    assert "copy 7 of one estimator" in repr(search.best_estimator_)
    assert search.best_estimator_.release_.mechanism.rows == len(X)
    assert search.predict(X).shape == (len(X),)


def test_a_search_through_a_pipeline_warns_that_it_spends():
    X, y = rows(PrivateLinearSVC)
    pipeline = make_pipeline(FunctionTransformer(np.tanh), make(PrivateLinearSVC))
    grid = {"privatelinearsvc__epsilon": [0.5, 5.0]}
    with pytest.warns(BudgetWarning) as records:
        search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert [item.category for item in records].count(BudgetWarning) == 1
    assert "copy 5 of one estimator" in repr(search.best_estimator_[-1])


def test_cross_validation_warns_that_it_spends():
    X, y = rows(PrivateLogisticRegression, n=600)
    with pytest.warns(BudgetWarning) as records:
        scores = cross_val_score(make(PrivateLogisticRegression, epsilon=1e3), X, y, cv=4)
    assert len(records) == 1
    assert np.all(scores > 0.8)


def test_as_an_error_the_warning_stops_a_search_before_a_second_fit(monkeypatch):
    fits = []
    fit = PrivateRidge.fit
    monkeypatch.setattr(PrivateRidge, "fit", lambda *a, **k: (fits.append(1), fit(*a, **k))[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BudgetWarning):
            GridSearchCV(make(PrivateRidge), GRID).fit(*rows(PrivateRidge))
    assert len(fits) <= 1


# What is accepted.


@pytest.mark.parametrize("kind", KINDS)
def test_array_forms_give_the_same_model(kind):
    X, y = rows(kind)
    X = np.round(4 * X).clip(-4, 4)  # exact in every type below
    model = make(kind, epsilon=np.inf)
    expected = model.fit(X, y).coef_
    frozen = X.copy()
    frozen.flags.writeable = False
    forms = [X.astype(dtype) for dtype in (np.float16, np.float32, np.longdouble, np.int8, int)]
    forms += [frozen, np.asfortranarray(X), X[::-1][::-1], X.tolist(), X.astype(object)]
    for form in forms:
        np.testing.assert_array_equal(model.fit(form, y).coef_, expected)
        np.testing.assert_array_equal(model.predict(form), model.predict(X))
    np.testing.assert_array_equal(model.fit(X, y.tolist()).coef_, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_left_alone(kind):
    X, y = rows(kind)
    before = X.copy(), y.copy()
    with pytest.warns(ClippedRowsWarning):
        make(kind, data_norm=0.1).fit(X, y).predict(X)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])


# polars 2 dropped the interchange protocol through which scikit-learn read names before 1.9.
names_unread = pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9)
    and not hasattr(pl.DataFrame, "__dataframe__"),
    reason="scikit-learn before 1.9 does not see the column names of polars 2",
)


@pytest.mark.parametrize("library", [pd, pytest.param(pl, marks=names_unread)])
@pytest.mark.parametrize("kind", KINDS)
def test_frames_keep_their_names(kind, library, tmp_path):
    X, y = rows(kind, d=3)
    frame = library.DataFrame({"age": X[:, 0], "height": X[:, 1], "weight": X[:, 2]})
    model = make(kind, epsilon=np.inf).fit(frame, library.Series(y.tolist()))
    np.testing.assert_array_equal(model.coef_, make(kind, epsilon=np.inf).fit(X, y).coef_)
    assert model.release_.feature_names == ("age", "height", "weight")
    loaded = kind.load(model.save(tmp_path / "model.json"))
    for fitted in (model, loaded):
        assert fitted.feature_names_in_.tolist() == ["age", "height", "weight"]
        np.testing.assert_array_equal(fitted.predict(frame), fitted.predict(frame))
        for columns in (["height", "age", "weight"], ["age", "height"]):
            with pytest.raises(InvalidInput, match="feature names should match"):
                fitted.predict(frame[columns])
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            np.testing.assert_array_equal(fitted.predict(X), fitted.predict(frame))
    assert not hasattr(model.fit(X, y), "feature_names_in_")
    assert model.release_.feature_names is None


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize(
    "labels",
    [("a", "b"), ("no", "yes"), (0, 2), (-1, 1), (False, True), (0.0, 2.0), (-7, 10**12)],
)
def test_any_two_labels(kind, labels, tmp_path):
    X, y = rows(kind)
    spoken = np.where(y == "b", labels[1], labels[0])
    expected = make(kind, epsilon=np.inf).fit(X, y)
    model = make(kind, epsilon=np.inf, classes=labels).fit(X, spoken)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert model.classes_.tolist() == list(labels)
    np.testing.assert_array_equal(
        model.predict(X), np.where(expected.predict(X) == "b", labels[1], labels[0])
    )
    loaded = kind.load(model.save(tmp_path / "model.json"))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.predict(X).dtype == model.predict(X).dtype
    assert loaded.score(X, spoken) == model.score(X, spoken) > 0.8
    for container in (pd.Series(spoken), pd.Series(spoken, dtype="category"), pl.Series(spoken)):
        np.testing.assert_array_equal(model.fit(X, container).coef_, expected.coef_)


def test_classes_are_sorted():
    """scikit-learn's scorers count on it: an unsorted pair turned a curve of 0.98 into 0.02."""
    X, y = rows(PrivateLogisticRegression, n=200)
    areas = []
    for classes in (("a", "b"), ("b", "a"), np.array(["b", "a"])):
        model = make(PrivateLogisticRegression, epsilon=np.inf, classes=classes)
        assert model.fit(X, y).classes_.tolist() == ["a", "b"]
        with pytest.warns(BudgetWarning):
            areas.append(cross_val_score(model, X, y, scoring="roc_auc", cv=2).min())
    assert areas[0] == areas[1] == areas[2] > 0.9


def test_pipeline():
    X, y = rows(PrivateLogisticRegression)
    pipeline = make_pipeline(FunctionTransformer(np.tanh), make(PrivateLogisticRegression))
    pipeline.fit(X, y)
    np.testing.assert_array_equal(pipeline.predict_proba(X), pipeline[-1].predict_proba(np.tanh(X)))
    assert "PrivateLogisticRegression(" in repr(pipeline)
    assert "PrivateLogisticRegression" in pipeline._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
def test_prediction_clips_rows_as_fitting_does(kind):
    """x·coef + intercept of a row within the bound; a longer one counts as its clipped self."""
    X, y = rows(kind)
    model = make(kind).fit(X, y)
    scores = model.predict if kind is PrivateRidge else model.decision_function
    np.testing.assert_allclose(scores(X), X @ np.ravel(model.coef_) + model.intercept_, rtol=1e-12)
    clipped = X * (DATA_NORM / np.linalg.norm(X, axis=1))[:, None]
    np.testing.assert_allclose(scores(1e5 * X), scores(clipped), rtol=1e-9)
    assert not np.allclose(scores(1e5 * X), scores(X))


# What is kept.


@pytest.mark.filterwarnings("ignore::expost.errors.NoGuaranteeWarning")
@pytest.mark.filterwarnings("ignore::expost.errors.RaisedRegularizationWarning")
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"noise": "gaussian", "delta": 1e-6},
        {"mechanism": "objective"},
        {"mechanism": "objective", "noise": "gaussian", "delta": 1e-6, "calibration": "published"},
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load(kind, parameters, tmp_path):
    X, y = rows(kind)
    parameters = {"epsilon": 0.3, "regularization": 0.2, "intercept_scaling": 0.25, **parameters}
    if kind is PrivateLinearSVC:
        parameters["huber_width"] = 0.125
    model = make(kind, **parameters).fit(X, y)
    path = model.save(tmp_path / "model.json")
    loaded = kind.load(path)
    assert loaded.get_params() == model.get_params()
    assert loaded.n_features_in_ == model.n_features_in_
    for name in ("coef_", "intercept_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
        assert np.shape(getattr(loaded, name)) == np.shape(getattr(model, name))
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(model, method):
            np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(model, method)(X))
    assert loaded.save(tmp_path / "again.json").read_bytes() == path.read_bytes()
    for other in KINDS:
        if other is not kind:
            with pytest.raises(InvalidInput, match=f"{other.__name__} needs one with"):
                other.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_has_not_been_given_what_was_read(kind, tmp_path):
    X, y = rows(kind)
    with pytest.warns(PrivacyLeakWarning):
        model = make(kind, **{BOUND[kind]: None}).fit(X, y)
    loaded = kind.load(model.save(tmp_path / "model.json"))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.get_params() == model.get_params()
    with pytest.warns(PrivacyLeakWarning):
        loaded.fit(X, y)


def numbers_in(thing, visited=None):
    """Every number within an object, however deep."""
    visited = set() if visited is None else visited
    if id(thing) in visited or isinstance(thing, str | bytes | bool | None):
        return []
    visited.add(id(thing))
    if isinstance(thing, int | float | np.number):
        return [float(thing)]
    if isinstance(thing, np.ndarray):
        return [] if thing.dtype.kind not in "iuf" else thing.astype(float).ravel().tolist()
    if isinstance(thing, dict):
        return numbers_in([*thing.keys(), *thing.values()], visited)
    if isinstance(thing, list | tuple | set):
        return [number for entry in thing for number in numbers_in(entry, visited)]
    return numbers_in(getattr(thing, "__dict__", {}), visited)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fitted_estimator_holds_nothing_else_of_the_data(kind):
    X, y = rows(kind)
    model = make(kind).fit(X, y)
    blob = pickle.dumps(model)
    held = np.array(numbers_in(pickle.loads(blob)))
    assert np.all(np.isin(model.release_.theta, held))  # the search does find what is there
    base = naive_minimiser(kind, unit_rows(X, intercept=True), y, 1.0)
    noise = model.release_.theta - base
    secrets = [X.ravel(), unit_rows(X, intercept=False).ravel(), base, noise]
    if kind is PrivateRidge:
        secrets.append(y)
    for secret in np.concatenate(secrets):
        assert not np.any(np.isclose(held, secret, rtol=1e-7, atol=1e-12))
    assert len(blob) < 10_000


# Bad input: one clear error each, that never shows a cell.

SECRET = "31337.0625"


def spoilt(value, dtype=float):
    X, _ = rows(PrivateRidge)
    X = X.astype(dtype)
    X[3, 1] = value
    return X


X_GOOD, _ = rows(PrivateRidge)
HIDDEN = np.full_like(X_GOOD, float(SECRET))
BAD_X = {
    "NaN": (spoilt(np.nan), "NaN"),
    "None": (spoilt(None, object), "NaN"),
    "infinity": (spoilt(np.inf), "infinity"),
    "huge": (spoilt(1e300), "huge"),
    "long integers": (spoilt(2**60, np.int64), "past 2\\*\\*53"),
    "complex": (HIDDEN + 1j, "Complex data not supported"),
    "sparse matrix": (scipy.sparse.csr_matrix(X_GOOD), "X is a sparse matrix"),
    "sparse array": (scipy.sparse.csc_array(X_GOOD), "pass X.toarray"),
    "masked": (np.ma.masked_array(X_GOOD), "X is a masked array"),
    "text": (HIDDEN.astype(str), "numeric"),
    "a text cell": (spoilt(f"{SECRET}x", object), "must be numeric"),
    "a text column": (pd.DataFrame({"a": [f"{SECRET}x"] * 60}), "must be numeric"),
    "a polars text column": (pl.DataFrame({"a": [f"{SECRET}x"] * 60}), "must be numeric"),
    "dates": (np.full((60, 2), np.datetime64("2020-01-01")), "must be numeric"),
    "one dimension": (HIDDEN[:, 0], "two dimensions"),
    "three dimensions": (HIDDEN[None], "dim 3"),
    "no column": (X_GOOD[:, :0], "0 feature"),
    "no row": (X_GOOD[:0], "0 sample"),
    "one row": (X_GOOD[:1], "minimum of 2"),
    "rows of two lengths": ([[1.0, 2.0], [3.0]], "inhomogeneous"),
    "duplicate names": (pd.DataFrame(X_GOOD, columns=list("abca")), "(?i)column names"),
    "too few labels": (X_GOOD[:50], "inconsistent numbers of samples"),
}


@pytest.mark.parametrize("case", BAD_X)
def test_bad_features(case):
    X, expected = BAD_X[case]
    _, y = rows(PrivateRidge)
    labels = y if case == "too few labels" else y[: X.shape[0] if hasattr(X, "shape") else len(X)]
    model = make(PrivateRidge)
    with pytest.raises(InvalidInput, match=expected) as error:
        model.fit(X, labels)
    assert SECRET not in str(error.value)
    assert not hasattr(model, "release_")


def test_another_width_at_prediction():
    model = make(PrivateRidge).fit(*rows(PrivateRidge))
    with pytest.raises(InvalidInput, match=r"X has 3 features.*expecting 4"):
        model.predict(X_GOOD[:, :3])


HALF = np.arange(60) % 2
# What scikit-learn refuses before expost.labels (test_labels.py) sees the labels, and one of the latter.
BAD_LABELS = {
    "one class": (np.full(60, "a"), "one class only"),
    "continuous": (X_GOOD[:, 0], "Unknown label type"),
    "NaN": (np.where(HALF, np.nan, 1.0), "NaN"),
    "a missing label": (np.array(["a", None] * 30, dtype=object), "several types, or missing"),
    "bytes": (np.array([b"a", b"b"] * 30), "bytes"),
    "sparse": (scipy.sparse.csr_array(HALF[:, None]), "y is a sparse"),
    "two columns": (np.column_stack([HALF, HALF]), "1d array"),
    "absent": (None, "requires y"),
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_bad_labels(case):
    y, expected = BAD_LABELS[case]
    with pytest.raises(InvalidInput, match=expected):
        make(PrivateLogisticRegression, classes=None).fit(X_GOOD, y)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classes_that_do_not_fit(kind):
    for classes in (("a", "c"), (0, 1), ("a", "a"), "ab", 1):
        with pytest.raises(InvalidInput, match="classes"):
            make(kind, classes=classes).fit(*rows(kind))


BAD_TARGETS = {
    "text": (np.full(60, f"{SECRET}x"), "y holds .* must be numeric"),
    "a text cell": (np.array([f"{SECRET}x", *[1.0] * 59], dtype=object), "must be numeric"),
    "NaN": (np.where(HALF, np.nan, 1.0), "y contains NaN"),
    "huge": (np.where(HALF, 1e300, 1.0), "y holds huge"),
    "masked": (np.ma.masked_array(X_GOOD[:, 0]), "y is a masked array"),
    "two columns": (HIDDEN[:, :2], "1d array"),
    "absent": (None, "requires y"),
}


@pytest.mark.parametrize("case", BAD_TARGETS)
def test_bad_targets(case):
    y, expected = BAD_TARGETS[case]
    with pytest.raises(InvalidInput, match=expected) as error:
        make(PrivateRidge).fit(X_GOOD, y)
    assert SECRET not in str(error.value)


@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
@pytest.mark.parametrize("mechanism", ["output", "objective"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_reaches_its_validator(kind, mechanism):
    """What each refuses: test_validate.py, data/test_unit_ball.py, test_losses.py."""
    X, y = rows(kind)
    for name in kind().get_params():
        if name == "calibration" and mechanism == "output":
            continue  # Not an option of output perturbation.
        for value in (np.nan, -1, object()):
            model = make(kind, **{"mechanism": mechanism, name: value})
            with pytest.raises(InvalidInput, match=f"^{name}"):
                model.fit(X, y)
            assert not hasattr(model, "release_"), name


@pytest.mark.parametrize("kind", KINDS)
def test_sample_weight_is_refused_clearly(kind):
    X, y = rows(kind)
    with pytest.raises(InvalidInput, match="sample_weight"):
        make(kind).fit(X, y, sample_weight=np.ones(len(X)))
    make(kind).fit(X, y, sample_weight=None)  # what meta-estimators pass where there is none
    with pytest.raises(TypeError, match="unexpected keyword arguments: weights"):
        make(kind).fit(X, y, weights=np.ones(len(X)))


@pytest.mark.parametrize("kind", KINDS)
def test_not_fitted(kind, tmp_path):
    with pytest.raises(NotFittedError):
        make(kind).predict(X_GOOD)
    with pytest.raises(NotFittedError):
        make(kind).save(tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


def test_two_rows_are_enough():
    for kind in KINDS:
        y = np.array([1.0, -1.0]) if kind is PrivateRidge else np.array(["a", "b"])
        model = make(kind).fit(np.array([[1.0], [-1.0]]), y)
        assert isinstance(model.release_, Release)


def test_every_class_documents_its_parameters():
    for kind in KINDS:
        documented = set(re.findall(r"^    (\w+) :", kind.__doc__, flags=re.MULTILINE))
        assert documented == set(kind().get_params())
        assert "spends ``epsilon`` again" in kind.__doc__


# Objective perturbation.


def objective(kind, **parameters):
    """An estimator that releases by it; λ need not be raised at the ε of 3."""
    return make(kind, **{"mechanism": "objective", "epsilon": 3.0, **parameters})


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_objective_noise_follows_the_guaranteed_law(kind, noise):
    """∥Σ∇ℓ + λθ∥ = ∥b∥ over 200 real releases; 1e-9 a test, and a scale × 2 is rejected."""
    n, d = 30, 9
    X, y = rows(kind, n=n, d=d)
    delta = 1e-5 if noise == "gaussian" else None
    model = objective(kind, noise=noise, delta=delta, regularization=3.0)
    Z, target = unit_rows(X, intercept=True), np.where(y == "b", 1.0, -1.0)
    norms, prepared = [], model.prepared(X, y)
    for release in (model.fit(X, y).release_, *(model.release(prepared) for _ in range(200))):
        theta = release.theta
        norms.append(np.linalg.norm(Z.T @ naive_loss(kind, Z @ theta, target)[1] + 3 * n * theta))
    # λ = 90: the determinant costs the logistic loss nothing, the hinge log(1 + 1/90).
    left = 3.0 if kind is PrivateLogisticRegression else 3.0 - np.log1p(1 / 90)
    if noise == "laplace":
        law = scipy.stats.gamma(d + 1, scale=2 / left)
    else:
        law = scipy.stats.chi(d + 1, scale=gaussian_scale(left, delta))
    assert scipy.stats.kstest(norms, law.cdf).pvalue > ALARM
    for factor in (2, 0.5):
        assert scipy.stats.kstest(np.multiply(norms, factor), law.cdf).pvalue < ALARM


@pytest.mark.parametrize("kind", KINDS)
def test_regularization_is_raised_with_one_warning(kind):
    X, y = rows(kind)
    model = objective(kind, epsilon=0.01, regularization=1e-3)
    result = caught(lambda: model.fit(X, y))
    raised = [text for category, text in result if category is RaisedRegularizationWarning]
    mechanism = model.release_.mechanism
    assert len(raised) == 1
    assert "regularization=0.001 is too little" in raised[0]
    assert f"raised to {mechanism.total_regularization:.4g}" in raised[0]
    assert mechanism.is_raised
    # What is named is enough: it is not raised again.
    enough = objective(kind, epsilon=0.01, regularization=1.0001 * mechanism.total_regularization)
    again = caught(lambda: enough.fit(X, y))
    assert not any(category is RaisedRegularizationWarning for category, _ in again)
    assert not enough.release_.mechanism.is_raised


def test_the_squared_loss_warns_that_nothing_is_guaranteed():
    X, y = rows(PrivateRidge)
    model = objective(PrivateRidge)
    [(category, text)] = caught(lambda: model.fit(X, y))
    assert category is NoGuaranteeWarning
    assert "mechanism='output'" in text
    assert model.release_.audience is Audience.NEEDS_REVIEW
    for kind in CLASSIFIERS:
        assert caught(lambda kind=kind: objective(kind).fit(*rows(kind))) == []


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_an_objective_release_holds_neither_the_minimiser_nor_its_noise(kind):
    X, y = rows(kind)
    model = objective(kind, regularization=0.1).fit(X, y)
    held = np.array(numbers_in(pickle.loads(pickle.dumps(model))))
    Z, target = unit_rows(X, intercept=True), np.where(y == "b", 1.0, -1.0)
    theta = model.release_.theta
    total = Z.T @ naive_loss(kind, Z @ theta, target)[1] + 0.1 * len(X) * theta
    base = naive_minimiser(kind, Z, y, 0.1)
    for secret in np.concatenate([X.ravel(), Z[:, :-1].ravel(), base, total, total / len(X)]):
        assert not np.any(np.isclose(held, secret, rtol=1e-7, atol=1e-12))


def test_objective_needs_less_noise_than_output_at_a_small_regularization():
    """Why it is offered: at Λ = 1e-3 and d = 20 its models predict far better (0.85 and 0.70)."""
    X, y = rows(PrivateLogisticRegression, n=1000, d=20)
    scores = {}
    for mechanism in ("output", "objective"):
        models = [
            make(PrivateLogisticRegression, mechanism=mechanism, epsilon=2.0, regularization=1e-3)
            for _ in range(9)
        ]
        scores[mechanism] = np.median([model.fit(X, y).score(X, y) for model in models])
    assert scores["objective"] >= 0.8
    assert scores["objective"] > scores["output"] + 0.03


# The page.

PAGE = Path(__file__).parent.parent / "docs" / "estimators.md"


def test_the_page_names_every_parameter_with_its_default():
    defaults = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", PAGE.read_text(), flags=re.MULTILINE))
    real = {}
    for kind in KINDS:
        real |= kind().get_params()
    assert {name: value.strip('"') for name, value in defaults.items()} == {
        name: str(value) for name, value in real.items()
    }
