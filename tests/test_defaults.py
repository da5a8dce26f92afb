"""The defaults: rules that know n, p, d, ε and δ, and nothing else of the data."""

import inspect
import json
import math
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

import expost
from conformance.laws import naive_rows
from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from expost.errors import (
    ClippedRowsWarning,
    PrivacyLeakWarning,
    ReleaseRefused,
    SeededReleaseWarning,
    UnscaledColumnsWarning,
)
from expost.losses import HuberHinge, Logistic, Softmax, Squared
from expost.release import Release
from expost.selection import select_regularization
from expost.types import Audience
from naive import gaussian_scale
from program import text

CLASSES = ("no", "yes")


def mechanism_of(n=1000, d=10, *, loss=None, **parameters):
    """The mechanism of a logistic regression of so many rows and coefficients."""
    return PrivateLogisticRegression(**parameters).mechanism_for(loss or Logistic(), n, d)


def rows(n=300, p=5, *, classes=CLASSES, seed=0):
    """Standardised columns, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    score = X @ np.linspace(1, 2, p) + rng.normal(size=n)
    cuts = np.quantile(score, np.linspace(0, 1, len(classes) + 1)[1:-1])
    return X, np.array(classes)[np.searchsorted(cuts, score)]


@pytest.fixture(autouse=True)
def _clipping_is_intended():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedRowsWarning)
        yield


# Mechanism, noise and δ.


@pytest.mark.parametrize(
    ("n", "expected"),
    [(5, 1e-6), (99_999, 1e-6), (100_000, 1e-6), (100_001, 1e-7), (10**7, 1e-8), (10**12, 1e-13)],
)
def test_delta_is_the_largest_power_of_ten_within_both_bounds(n, expected):
    bound = min(Fraction(1, 10**6), Fraction(1, 10 * n))
    power = next(k for k in range(30) if Fraction(1, 10**k) <= bound)
    assert mechanism_of(n).delta == float(f"1e-{power}") == expected


@pytest.mark.parametrize(
    ("d", "delta", "noise", "spent"),
    [
        (1, "auto", "laplace", None),
        (3, "auto", "laplace", None),
        (4, "auto", "gaussian", 1e-6),
        (400, "auto", "gaussian", 1e-6),
        (400, 0, "laplace", None),
        (3, 1e-5, "gaussian", 1e-5),
    ],
)
def test_noise_is_gaussian_unless_it_is_to_be_pure_or_coefficients_are_few(d, delta, noise, spent):
    mechanism = mechanism_of(d=d, delta=delta)
    assert (mechanism.kind, mechanism.noise, mechanism.delta) == ("objective", noise, spent)


def test_objective_perturbation_unless_the_gradient_is_unbounded():
    for kind, loss in (
        (PrivateLogisticRegression, Logistic()),
        (PrivateLogisticRegression, Softmax(classes=3)),
        (PrivateLinearSVC, HuberHinge()),
    ):
        assert kind().mechanism_for(loss, 1000, 12).kind == "objective"
    assert PrivateRidge().mechanism_for(Squared(label_bound=1.0), 1000, 12).kind == "output"


def test_the_same_defaults_everywhere():
    """Parameters of one name have one default, in every function."""
    of_model = PrivateLogisticRegression().get_params()
    shared = {"mechanism", "noise", "delta", "regularization", "intercept_scaling", "data_norm"}
    assert {name: of_model[name] for name in shared} == dict.fromkeys(shared, "auto")
    for function in (expost.choose_epsilon, select_regularization):
        own = inspect.signature(function).parameters
        for name in shared & set(own):
            assert own[name].default == "auto", (function.__name__, name)


# Λ.


def naive_regularization(n, d, epsilon, delta):
    """max(r/20 + r², floor): ν² is E∥b∥² of the noise that spends nothing on determinants."""
    if delta is None:
        square = d * (d + 1) * (2 / epsilon) ** 2  # of Gamma(d, 2/ε)
    else:
        square = d * gaussian_scale(epsilon, delta) ** 2
    r = math.sqrt(square) / n
    return max(r / 20 + r**2, 2 * 0.25 / (math.exp(epsilon / 2) - 1) / n)


def has_grid(mechanism):
    try:
        return mechanism.grid is not None
    except ReleaseRefused:
        return False


def test_ten_million_rows_have_a_grid():
    mechanism = mechanism_of(10**7, 51, epsilon=1.0)
    plain = naive_regularization(10**7, 51, 1.0, mechanism.delta)
    assert not has_grid(replace(mechanism, regularization=plain))
    assert has_grid(mechanism)
    assert mechanism.regularization < 1e-4


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0])
@pytest.mark.parametrize("n", [100, 30_000, 2_000_000])
@pytest.mark.parametrize(("d", "delta"), [(1, "auto"), (64, "auto"), (64, 0), (64, 1e-9)])
def test_regularization_against_its_formula(n, d, delta, epsilon):
    mechanism = mechanism_of(n, d, epsilon=epsilon, delta=delta)
    expected = naive_regularization(n, d, epsilon, mechanism.delta)
    # Where float64 has no grid that is finer than the noise, Λ is raised until it has one.
    while not has_grid(replace(mechanism, regularization=expected)):
        expected *= 4
    # σ is rounded up by a factor of 1 + 1e-6.
    assert mechanism.regularization == pytest.approx(expected, rel=3e-6)
    assert has_grid(mechanism)
    assert not mechanism.is_raised
    # Next to nothing is spent on determinants by Gaussian noise, at most half of ε by the other.
    plain = mechanism_of(n, d, epsilon=epsilon, delta=delta, regularization=1e9)
    most = 4 if mechanism.delta is None else 1.02
    assert mechanism.law.mean_square <= most * plain.law.mean_square


def test_the_floor_is_active_for_many_rows_alone():
    """At 2,000,000 rows r/20 + r² is too little; at 100 it is not."""
    floor = 0.5 / math.expm1(0.005)
    assert mechanism_of(2_000_000, 2, epsilon=0.01, delta=1e-2).regularization == pytest.approx(
        floor / 2_000_000, rel=1e-12
    )
    assert mechanism_of(100, 2, epsilon=0.01).regularization > 10 * floor / 100


def test_without_noise_regularization_is_that_of_scikit_learn():
    assert mechanism_of(500, epsilon=np.inf).regularization == 1 / 500


# The unit ball.


def naive_share(p):
    """The constant's share of the squared length: one of p + 1 equal ones, an eighth at least."""
    return 1 / (p + 1) if p <= 7 else 1 / 8


@pytest.mark.parametrize("p", [1, 4, 7, 8, 30])
def test_the_clip_and_the_intercept_follow_from_the_number_of_columns(p):
    X, y = rows(p=p)
    ball = PrivateLogisticRegression(classes=CLASSES).fit(X, y).release_.ball
    assert ball.data_norm == pytest.approx(math.sqrt(p) / 2, rel=1e-15)
    assert ball.intercept_scaling**2 == pytest.approx(naive_share(p), rel=1e-15)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge])
def test_the_intercept_is_the_same_for_every_loss_epsilon_and_number_of_rows(kind):
    """It depends on p alone: every ε that choose_epsilon tries has the rows of all others."""
    given = {"label_range": (-1, 1)} if kind is PrivateRidge else {"classes": CLASSES}
    scales = set()
    for n, epsilon in ((60, 0.01), (60, 8.0), (200, 1.0)):
        X, _ = rows(p=12, n=n)
        y = np.where(np.arange(n) % 3 > 0, 1.0, -1.0) if kind is PrivateRidge else rows(n=n)[1]
        scales.add(kind(epsilon, **given).fit(X, y).release_.ball.intercept_scaling)
    assert len(scales) == 1
    assert scales.pop() ** 2 == pytest.approx(naive_share(12), rel=1e-15)


@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
def test_a_rare_label_is_learnt_among_many_columns():
    """One label in ten, 40 columns that say nothing, r = 0.05: the mean of intercepts over seeds.

    The rule brings the predicted share below a fifth; with 1/√(p + 1) it stays above a quarter.
    """
    n, p = 4_000, 40
    rng = np.random.default_rng(18)
    X, y = rng.normal(size=(n, p)), np.array(CLASSES)[(rng.random(n) < 0.1).astype(int)]

    def predicted(scaling):
        given = {"classes": CLASSES, "intercept_scaling": scaling}
        fits = [
            PrivateLogisticRegression(0.12, random_state=seed, **given).fit(X, y)
            for seed in range(9)
        ]
        ratio = fits[0].release_.mechanism.forecast.noise_ratio
        assert ratio == pytest.approx(0.05, rel=0.1)
        return 1 / (1 + math.exp(-np.mean([fit.intercept_ for fit in fits])))

    assert predicted("auto") < 0.2
    assert predicted(1 / math.sqrt(p + 1)) > 0.25


def test_nothing_is_read_from_the_data_once_classes_are_given():
    """Other rows and labels give the same public constants, all of them."""
    fits = []
    for seed, factor in ((0, 1.0), (1, 0.2), (2, 5.0)):
        X, y = rows(seed=seed)
        fits.append(PrivateLogisticRegression(classes=CLASSES).fit(factor * X, y).release_)
        assert fits[-1].read_from_data == ()
        assert fits[-1].audience is Audience.PUBLIC
    assert fits[0].mechanism == fits[1].mechanism == fits[2].mechanism
    assert fits[0].ball == fits[1].ball == fits[2].ball
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        assert PrivateLogisticRegression().fit(X, y).release_.audience is Audience.NEEDS_REVIEW


# Prediction.

MODELS = [
    (PrivateLogisticRegression, CLASSES),
    (PrivateLogisticRegression, ("a", "b", "c")),
    (PrivateLinearSVC, CLASSES),
]


def clipped(X):
    """Rows of at most √p/2, written down again; a hair shorter, so that rounding clips none."""
    norm = math.sqrt(X.shape[1]) / 2
    return X * np.minimum(1, norm / np.linalg.norm(X, axis=1))[:, None] * (1 - 1e-13)


@pytest.mark.parametrize(("kind", "classes"), MODELS)
def test_scores_against_a_naive_loop(kind, classes, tmp_path):
    """Of the estimator and of model.json, clipping and intercept by the rules, row by row."""
    X, y = rows(60, classes=classes)
    X[0], X[1] = 0.0, 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnscaledColumnsWarning)
        model = kind(classes=classes).fit(X, y)
    theta = model.release_.theta.reshape(-1, 6)
    scores = [theta @ row for row in naive_rows(X, math.inf)]
    scores = np.array(scores) if len(classes) > 2 else np.array(scores)[:, 0]
    loaded = Release.load(model.save(tmp_path / "model.json"))
    for result in (model.decision_function(X), model.release_.scores(X), loaded.scores(X)):
        np.testing.assert_allclose(result, scores, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("kind", "classes"), MODELS)
def test_model_json_holds_what_predicts(kind, classes, tmp_path):
    X, y = rows(classes=classes)
    model = kind(classes=classes).fit(X, y)
    path = model.save(tmp_path / "model.json")
    loaded = kind.load(path)
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(Release.load(path).scores(X), model.decision_function(X))
    assert loaded.release_.mechanism == model.release_.mechanism
    # Values stand in place of "auto", so that another fit is the same mechanism.
    assert "auto" not in loaded.get_params().values()
    assert loaded.mechanism_for(
        model.release_.mechanism.loss, 300, 6 * max(1, len(classes) % 2 * 3)
    ) == (model.release_.mechanism)


# The command line.


@pytest.mark.parametrize("columns", [2, 6])
def test_the_command_line_releases_the_same_model(program, tmp_path, columns):
    """Numbers with declared means and scales, cut at ±2; the third coefficient decides the noise."""
    X, y = rows(200, columns)
    names = [f"x{column}" for column in range(columns)]
    cells = [[*map(repr, (10 * row + 3).tolist()), label] for row, label in zip(X, y, strict=True)]
    (tmp_path / "t.csv").write_text(text([[*names, "label"], *cells]))
    given = {
        "columns": {name: {"mean": 3, "scale": 10} for name in names},
        "target": {"classes": list(CLASSES)},
    }
    (tmp_path / "given.json").write_text(json.dumps(given))
    done = program(
        "profile", tmp_path / "t.csv", "--target", "label", "--encoding", tmp_path / "given.json",
        "--seed", 7, "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.code == 0, done
    theirs = Release.load(tmp_path / "out" / "model.json")
    with pytest.warns(SeededReleaseWarning):
        model = PrivateLogisticRegression(classes=CLASSES, random_state=7).fit(np.clip(X, -2, 2), y)
    ours = model.release_
    assert theirs.mechanism == ours.mechanism
    assert theirs.mechanism.noise == ("laplace" if columns == 2 else "gaussian")
    assert theirs.ball == ours.ball
    assert theirs.read_from_data == ()
    np.testing.assert_allclose(theirs.theta, ours.theta, rtol=1e-6, atol=1e-9)


# Columns of other scales.


def warned(X, y, **parameters):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PrivateLogisticRegression(**parameters).fit(X, y)
    assert all(warning.filename == __file__ for warning in caught)
    return [str(w.message) for w in caught if w.category is UnscaledColumnsWarning]


def test_unscaled_columns_are_named_with_the_remedy():
    """Breast cancer: areas up to 2,501, concavities below 0.5."""
    frame, y = load_breast_cancer(return_X_y=True, as_frame=True)
    [message] = warned(frame, y, classes=(0, 1))
    scales = np.sqrt((frame**2).mean())
    odd = [name for name in frame if not 0.1 <= scales[name] <= 10]
    assert all(repr(name) in message for name in odd[:5])
    assert f"and {len(odd) - 5} more" in message
    assert "give ranges= or encoding=" in message
    standard = (frame - frame.mean()) / frame.std()
    assert warned(standard, y, classes=(0, 1)) == []
    assert warned(frame, y, classes=(0, 1), data_norm=3000.0) == []


@pytest.mark.parametrize(
    ("factor", "named"), [(0.1, True), (0.11, False), (9.5, False), (10.5, True), (0.0, False)]
)
def test_scales_from_a_tenth_to_ten_are_no_matter(factor, named):
    """A constant 0 has no scale: it counts for nothing, clipped or not."""
    X, y = rows()
    X[:, 2] *= factor / np.sqrt(np.mean(X[:, 2] ** 2)) * (1 - 1e-9)
    frame = pd.DataFrame(X, columns=list("abcde"))
    messages = warned(frame, y, classes=CLASSES)
    assert len(messages) == named
    assert all("'c'" in message and "'a'" not in message for message in messages)
