"""Ridge regression: Huber's loss by brute force, the label range, what is released and read back."""

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.datasets import load_diabetes

from expost import PrivateRidge, profile
from expost.errors import (
    ClippedRowsWarning,
    InvalidInput,
    ReleaseRefused,
    SeededReleaseWarning,
)
from expost.labels import LabelScale
from expost.losses import Huber
from expost.mechanisms import ObjectivePerturbation
from expost.mechanisms.publishing import PublishingBudget
from expost.release import Release

RNG = np.random.default_rng(4)
X = RNG.normal(size=(80, 3))
Y = 20 + 5 * np.tanh(X[:, 0] - X[:, 1] + 0.3 * RNG.normal(size=80))
RANGE = (10.0, 30.0)


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedRowsWarning)
        warnings.simplefilter("ignore", SeededReleaseWarning)
        return call()


def naive_huber(gap, width):
    """∫₀^gap of the clipped residual."""
    return quad(lambda t: max(min(t, width), -width), 0, gap, points=[-width, width])[0]


# -- the loss --------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [0.1, 0.5, 1.0])
def test_hubers_loss_by_its_definition(width):
    loss = Huber(width=width)
    gaps = np.array([-3.0, -1.01, -0.51, -0.2, 0.0, 0.05, 0.3, 0.9, 2.5])
    for y in (-1.0, 0.0, 0.7):
        z, labels = gaps + y, np.full(len(gaps), y)
        wanted = [naive_huber(gap, width) for gap in z - labels]
        np.testing.assert_allclose(loss.value(z, labels), wanted, atol=1e-9)
        slope, curvature = loss.derivatives(z, labels)
        np.testing.assert_allclose(slope, np.clip(z - labels, -width, width))
        np.testing.assert_array_equal(curvature, np.abs(z - labels) < width)
        for step in (-2.0, -0.3, 1e-9, 0.4, 3.0):
            moved = loss.slope(z + step, labels) - slope
            np.testing.assert_allclose(loss.increment(z, labels, step + 0 * z), moved, atol=1e-12)
    near = loss.increment(np.array([0.05]), np.array([0.0]), np.array([1e-20]))
    assert near == 1e-20 or width <= 0.05


def test_the_solution_keeps_its_bound():
    rng = np.random.default_rng(0)
    for width, penalty in itertools.product((0.1, 0.5, 1.0), (1e-3, 0.1, 2.0)):
        loss = Huber(width=width)
        rows = rng.normal(size=(40, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        y = np.sign(rows[:, 0])

        def value(theta, rows=rows, y=y, loss=loss, penalty=penalty):
            return np.mean(loss.value(rows @ theta, y)) + penalty / 2 * theta @ theta

        solution = minimize(value, np.zeros(2), method="Nelder-Mead", options={"fatol": 1e-14}).x
        bound = loss.solution_bound(penalty)
        assert np.linalg.norm(solution) <= bound * (1 + 1e-6)
        assert bound <= width / penalty


# -- its guarantee ---------------------------------------------------------------------------------


def largest_loss(z, reach, spent):
    """The most that removing a row may lose where b/σ has the component z along it."""
    slopes = np.linspace(-reach, reach, 2001)
    return spent + np.max(slopes**2 / 2 + slopes * z)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (3.0, 1e-5)])
def test_delta_of_slopes_with_both_signs(epsilon, delta):
    mechanism = ObjectivePerturbation(
        epsilon=epsilon, delta=delta, loss=Huber(), regularization=0.1, rows=200, dimension=4
    )
    reach, spent = 0.5 / mechanism.law.scale, math.log1p(1 / mechanism.penalty_sum)

    def delta_of(reach):
        grid = np.linspace(-9, 9, 20001)
        losses = np.array([largest_loss(z, reach, spent) for z in grid])
        lost = norm.pdf(grid) * np.maximum(-np.expm1(epsilon - losses), 0.0)
        return float(np.sum(lost) * (grid[1] - grid[0]))

    exact = delta_of(reach)
    assert exact <= delta * (1 + 1e-6)
    # Both signs are needed: with the noise of one sign, δ would be passed.
    single = ObjectivePerturbation(
        epsilon=epsilon, delta=2 * delta, loss=Huber(), regularization=0.1, rows=200, dimension=4
    )
    assert delta_of(0.5 / single.law.scale) > delta
    assert mechanism.guarantee().delta(epsilon) == pytest.approx(delta)
    assert mechanism.worst_case_of(1)[1] <= 1


def test_the_exposure_of_rows_by_the_densities_of_two_data_sets():
    # d = 1: θ ↦ b is monotone, b = −Σ∇ℓ − λθ, so that both densities are known by a derivative.
    rng = np.random.default_rng(2)
    rows, y = rng.uniform(0.2, 1.0, (12, 1)), rng.uniform(-1, 1, 12)
    model = quietly(
        lambda: PrivateRidge(
            2.0, 1e-5, noise="gaussian", fit_intercept=False, data_norm=1.0, regularization=0.4,
            label_range=(-1, 1), random_state=3,
        ).fit(rows, y)
    )  # fmt: skip
    mechanism, theta = model.release_.mechanism, float(model.release_.theta[0])
    unit = model.release_.objective(rows, y).held.X[:, 0]
    result = quietly(lambda: profile(model, rows, y))

    def log_density(keep):
        def noise(at):
            gap = np.clip(unit[keep] * at - y[keep], -0.5, 0.5)
            return -np.sum(gap * unit[keep]) - mechanism.penalty_sum * at

        slope = (noise(theta + 1e-6) - noise(theta - 1e-6)) / 2e-6
        return norm.logpdf(noise(theta), scale=mechanism.law.scale) + math.log(abs(slope))

    every = np.arange(12)
    for row in every:
        wanted = log_density(every) - log_density(every[every != row])
        assert result.losses.loss[row] == pytest.approx(wanted, abs=1e-5)


# -- the label range -------------------------------------------------------------------------------


def test_labels_are_centred_scaled_and_clipped_and_predictions_mapped_back():
    given = {"data_norm": 5.0, "epsilon": np.inf, "regularization": 1e-4, "huber_width": None}
    model = PrivateRidge(label_range=RANGE, **given).fit(X, Y)
    unit = PrivateRidge(label_range=(-1, 1), **given).fit(X, (Y - 20) / 10)
    np.testing.assert_allclose(model.predict(X), 20 + 10 * unit.predict(X))
    np.testing.assert_allclose(X @ model.coef_ + model.intercept_, model.predict(X))
    with pytest.warns(ClippedRowsWarning, match=r"label_range=\(18, 22\)"):
        narrow = PrivateRidge(label_range=(18, 22), **given).fit(X, Y)
    clipped = PrivateRidge(label_range=(18, 22), **given).fit(X, np.clip(Y, 18, 22))
    np.testing.assert_array_equal(narrow.coef_, clipped.coef_)
    assert np.all((narrow.predict(9 * X) >= 18) & (narrow.predict(9 * X) <= 22))


@pytest.mark.parametrize("shift", [0.0, 1e3])
@pytest.mark.parametrize("factor", [1.0, 1e-4, 250.0])
def test_the_model_does_not_depend_on_the_unit_of_the_labels(shift, factor):
    def fitted(y, ends):
        return quietly(
            lambda: PrivateRidge(1.0, label_range=ends, data_norm=2.0, random_state=7).fit(X, y)
        )

    low, high = RANGE
    plain = fitted(Y, RANGE)
    other = fitted(shift + factor * Y, (shift + factor * low, shift + factor * high))
    assert other.release_.mechanism == plain.release_.mechanism
    np.testing.assert_allclose(
        other.predict(X), shift + factor * plain.predict(X), rtol=1e-6, atol=1e-6 * factor
    )


def test_model_json_keeps_the_range_and_the_loss(tmp_path):
    model = quietly(lambda: PrivateRidge(label_range=RANGE, data_norm=2.0).fit(X, Y))
    path = model.save(tmp_path / "model.json")
    again = PrivateRidge.load(path)
    assert again.label_range == RANGE
    assert again.huber_width == 0.5
    assert isinstance(Release.load(path).mechanism.loss, Huber)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(
        again.release_.objective(X, Y).held.y, LabelScale.within(RANGE).inside(Y)
    )


@pytest.mark.parametrize(
    "wrong", [3.0, (1, 1), (2, 1), (1, 2, 3), ("a", "b"), (0, math.inf), (0, 1e101)]
)
def test_ranges_that_are_none(wrong):
    with pytest.raises(InvalidInput, match="label_range="):
        PrivateRidge(label_range=wrong).fit(X, Y)


def test_no_data_dependent_report():
    budget = PublishingBudget(epsilon_gradient=1, epsilon_hessian=1, delta=1e-6)
    with pytest.raises(InvalidInput, match="only classifiers of two classes"):
        PrivateRidge(label_range=RANGE, publishing=budget).fit(X, Y)
    model = quietly(lambda: PrivateRidge(label_range=RANGE, data_norm=2.0).fit(X, Y))
    with pytest.raises(ReleaseRefused, match="no sign of their own"):
        model.release_.mechanism.check_report()


# -- it is useful ----------------------------------------------------------------------------------


def test_the_default_predicts_diabetes():
    # Of 442 patients: R² is about .45 without privacy; before, it was below 0 up to ε = 3.
    data = load_diabetes(scaled=False)
    Z = np.clip((data.data - data.data.mean(0)) / data.data.std(0), -2, 2)
    collected = [
        quietly(
            lambda seed=seed: (
                PrivateRidge(1.0, label_range=(0, 400), random_state=seed)
                .fit(Z, data.target)
                .score(Z, data.target)
            )
        )
        for seed in range(10)
    ]
    assert np.mean(collected) > 0.35
    assert min(collected) > 0.1


def test_a_useless_regression_is_forecast():
    # A row adds at most h to the sum of gradients: that is what the noise is compared with.
    def forecast(rows, epsilon):
        mechanism = PrivateRidge(epsilon, label_range=RANGE).mechanism_for(Huber(), rows, 11)
        share = math.sqrt(mechanism.law.mean_square) / (rows * 0.5)
        assert mechanism.forecast.noise_ratio == pytest.approx(share)
        return mechanism.forecast

    assert forecast(331, 0.1).is_useless
    assert not forecast(331, 1.0).is_useless
