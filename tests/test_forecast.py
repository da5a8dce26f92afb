"""The forecast of a model's use from public constants, and where it is shown."""

import json
import math
import warnings

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from expost import PrivateLogisticRegression, PrivateRidge, Release, identifiability
from expost.errors import InvalidInput, SeededReleaseWarning, UselessModelWarning
from expost.forecast import LEVELS, NEAR, USELESS, Forecast
from expost.glm import Objective
from expost.losses import HuberHinge, Logistic, Softmax, Squared
from expost.mechanisms import MECHANISMS
from expost.numbers import symbols
from expost.report import document_of
from program import installed

SETTINGS = {"epsilon": 1.0, "delta": 1e-6, "noise": "gaussian", "rows": 500, "dimension": 7}


def mechanism(kind="objective", loss=None, **constants):
    settings = {**SETTINGS, "loss": loss or Logistic(), "regularization": 0.01, **constants}
    if settings["noise"] == "laplace":
        settings["delta"] = None
    return MECHANISMS.create(kind, **settings)


# -- r ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "dimension", "epsilon", "ratio"),
    [
        # The tables of the note that the levels come from (σ√d/n at δ = 1e-6).
        (30891, 64, 1.0, 0.0011),
        (30891, 64, 0.1, 0.0094),
        (36632, 87, 0.01, 0.0780),
        (750, 62, 0.1, 0.3811),
        (427, 31, 0.3, 0.1694),
        (300, 6, 1.0, 0.0345),
    ],
)
def test_the_ratio_of_the_default_is_that_of_the_measured_tables(rows, dimension, epsilon, ratio):
    estimator = PrivateLogisticRegression(epsilon, 1e-6)
    forecast = estimator.mechanism_for(Logistic(), rows, dimension).forecast.noise_ratio
    assert forecast == pytest.approx(ratio, rel=0.03, abs=5e-5)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(width=0.5), Softmax(classes=3)])
def test_objective_noise_is_compared_with_the_gradients_of_all_rows(loss, noise):
    perturbation = mechanism(loss=loss, noise=noise, dimension=9)
    rng = np.random.default_rng(1)
    draws = perturbation.law.sample(20_000, rng)
    length = math.sqrt(np.mean(np.sum(draws**2, axis=1)))
    # L√q of three classes.
    slope = math.sqrt(2) * math.sqrt(3) if isinstance(loss, Softmax) else 1.0
    # A false alarm is a mean square off by 4 %: past six standard errors.
    assert perturbation.forecast.noise_ratio == pytest.approx(length / (500 * slope), rel=0.02)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_output_noise_counts_as_the_gradient_that_it_leaves(noise):
    """Of rows whose Hessian has equal eigenvalues nothing is approximate."""
    d, rows, bound = 4, 400, 3.0
    perturbation = mechanism(
        "output", Squared(label_bound=bound), rows=rows, dimension=d, noise=noise
    )
    rng = np.random.default_rng(2)
    X = np.tile(np.eye(d), (rows // d, 1))
    y = rng.uniform(-bound, bound, rows)
    objective = Objective.of(
        X=X, y=y, loss=perturbation.loss, penalty=np.full(d, perturbation.regularization)
    )
    exact = objective.minimiser(1e-12).theta
    length = []
    for noise_drawn in perturbation.law.sample(4_000, rng):
        theta = exact + noise_drawn
        gradient = X.T @ (X @ theta - y) + rows * perturbation.regularization * theta
        length.append(gradient @ gradient)
    measured = math.sqrt(np.mean(length)) / (rows * bound)
    assert perturbation.forecast.noise_ratio == pytest.approx(measured, rel=0.05)


def test_softmax_of_two_classes_has_the_ratio_of_logistic_regression():
    """Where nothing is spent on determinants both release the same difference of classes."""
    plain = {"regularization": 1e6}
    two = mechanism(loss=Softmax(classes=2), dimension=14, **plain).forecast
    single = mechanism(dimension=7, **plain).forecast
    assert two.noise_ratio == pytest.approx(single.noise_ratio, rel=1e-3)


def test_the_unit_of_the_labels_does_not_count():
    small = mechanism("output", Squared(label_bound=1.0)).forecast
    large = mechanism("output", Squared(label_bound=1000.0)).forecast
    assert large.noise_ratio == pytest.approx(small.noise_ratio, rel=1e-9)
    assert "AUC" not in mechanism("output", Squared(label_bound=1.0), rows=10_000).forecast.sentence


def test_a_release_without_noise_has_ratio_0():
    forecast = mechanism(epsilon=math.inf).forecast
    assert forecast.noise_ratio == 0
    assert forecast.level is LEVELS[0]
    assert not forecast.fields()["rows_needed"]


@pytest.mark.parametrize("kind", ["objective", "output"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_so_many_rows_have_that_ratio(kind, noise):
    # At this Λ determinants spend next to nothing of ε, so that ν is the same for any n.
    perturbation = mechanism(kind, noise=noise, epsilon=0.2, regularization=1.0)
    for wanted in (0.003, 0.01, 0.1, 0.3):
        rows = perturbation.forecast.rows_needed(wanted)
        assert perturbation.with_constants(rows=rows).forecast.noise_ratio <= wanted * 1.001
        fewer = perturbation.with_constants(rows=int(rows * 0.97)).forecast
        assert fewer.noise_ratio > wanted


# -- what it means ---------------------------------------------------------------------------------


def test_levels_follow_one_another():
    names = [
        Forecast(noise_ratio=ratio, rows=10).level.name
        for ratio in (0, 0.003, 0.0031, 0.01, 0.011, 0.29, 0.3, 5.0, math.inf)
    ]
    order = [level.name for level in LEVELS]
    assert names == [order[index] for index in (0, 0, 1, 1, 2, 2, 3, 3, 3)]
    assert Forecast(noise_ratio=USELESS, rows=10).is_useless
    assert not Forecast(noise_ratio=math.nextafter(USELESS, 0), rows=10).is_useless
    with pytest.raises(ArithmeticError):
        Forecast(noise_ratio=math.nan, rows=10)


def test_rows_needed_are_rounded_up():
    forecast = Forecast(noise_ratio=0.0334, rows=1000)
    assert forecast.rows_needed(NEAR) == 3340
    assert "about 3,400 for 'near non-private'" in str(forecast)
    assert forecast.fields()["rows_needed"]["near non-private"] == 3340
    with pytest.raises(InvalidInput, match="noise_ratio"):
        forecast.rows_needed(0.0)


def held_out_auc(rows, epsilon, seed):
    """The AUC of a private model on rows of its own, and its forecast."""
    rng = np.random.default_rng(seed)
    X = np.clip(rng.normal(size=(rows + 2_000, 5)), -2, 2)
    y = (X @ [1.5, -1.0, 0.5, 0.0, 0.0] + rng.logistic(size=len(X)) > 0).astype(int)
    estimator = PrivateLogisticRegression(epsilon, classes=(0, 1), random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X[:rows], y[:rows])
    auc = roc_auc_score(y[rows:], estimator.decision_function(X[rows:]))
    return auc, estimator.release_.mechanism.forecast


def test_models_are_as_good_as_forecast():
    """The mean AUC of ten models at each level; their standard error is at most .01 but at 1."""
    exact = np.mean([held_out_auc(4_000, math.inf, seed)[0] for seed in range(10)])
    fine, forecast = zip(*(held_out_auc(4_000, 1.0, seed) for seed in range(10)), strict=True)
    assert forecast[0].noise_ratio <= 0.003
    assert np.mean(fine) > exact - 0.005
    some, forecast = zip(*(held_out_auc(4_000, 0.05, seed) for seed in range(10)), strict=True)
    assert 0.01 < forecast[0].noise_ratio < 0.1
    assert exact - 0.15 < np.mean(some) < exact - 0.005
    none, forecast = zip(*(held_out_auc(200, 0.02, seed) for seed in range(40)), strict=True)
    assert forecast[0].noise_ratio > 1
    assert np.mean(none) < 0.65


# -- where it is shown -----------------------------------------------------------------------------


def fitted(rows, epsilon=1.0, kind=PrivateLogisticRegression, **options):
    rng = np.random.default_rng(3)
    X = rng.uniform(-0.4, 0.4, (rows, 5))
    y = (X[:, 0] > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        return kind(epsilon, random_state=0, **options).fit(X, y)


def test_fit_warns_of_a_useless_model_and_names_the_rows_needed():
    with pytest.warns(UselessModelWarning, match=r"no better than the base rate.*r = ") as all_:
        fitted(60, 0.1, classes=(0, 1))
    assert "rows for a model near a non-private one" in str(all_[0].message)
    with pytest.warns(UselessModelWarning):
        fitted(60, 0.1, kind=PrivateRidge, label_range=(-1.0, 1.0), huber_width=None)


def test_fit_does_not_warn_of_a_useful_model():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UselessModelWarning)
        fitted(4_000, classes=(0, 1))


def test_risk_forecasts_a_table_that_was_not_read():
    risk = identifiability(epsilon=1.0, rows=750, features=61)
    perturbation = PrivateLogisticRegression(1.0).mechanism_for(Logistic(), 750, 62)
    assert risk.delta == perturbation.delta == 1e-6
    assert risk.forecast == perturbation.forecast
    assert risk.fields()["forecast"]["level"] == "some loss"
    assert "rows needed" in str(risk).lower()
    assert identifiability(epsilon=1.0).forecast is None
    assert identifiability(epsilon=1.0, delta=0, rows=750, features=61).forecast == (
        PrivateLogisticRegression(1.0, 0).mechanism_for(Logistic(), 750, 62).forecast
    )


def test_risk_forecasts_the_epsilon_of_a_goal():
    risk = identifiability(max_posterior=0.75, releases=3, rows=750, features=61)
    each = risk.figure("epsilon_each").by["any"]
    assert (
        risk.forecast == PrivateLogisticRegression(each).mechanism_for(Logistic(), 750, 62).forecast
    )


def test_risk_forecasts_a_released_model(tmp_path):
    path = fitted(60, 0.1, classes=(0, 1)).save(tmp_path / "model.json")
    risk = identifiability(path)
    assert risk.forecast == Release.load(path).mechanism.forecast
    assert symbols(risk.forecast.warning) in str(risk)
    assert document_of(risk).verdict.priority == 90


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epsilon": 1.0, "rows": 100}, "features=None"),
        ({"epsilon": 1.0, "features": 100}, "rows=None"),
        ({"mu": 1.0, "rows": 100, "features": 3}, "a forecast is for epsilon or a goal"),
        ({"epsilon": 1.0, "rows": 1, "features": 3}, "rows=1"),
    ],
)
def test_a_forecast_needs_both_numbers(options, match):
    with pytest.raises(InvalidInput, match=match):
        identifiability(**options)


def test_the_command_forecasts_too():
    content = json.loads(
        installed("risk", "--epsilon", "0.1", "--rows", "400", "--features", "30", "--json").out
    )
    assert content["forecast"]["level"] == "useless"
    assert content["forecast"]["rows_needed"]["near non-private"] > 400
