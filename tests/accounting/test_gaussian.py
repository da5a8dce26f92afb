"""The Gaussian mechanism: δ against 80 digits, σ and ε by round trip and by dp_accounting."""

import itertools
import math

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from scipy.stats import norm

from expost.accounting.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_epsilon_below,
    gaussian_scale,
)
from expost.errors import ConvergenceError, InvalidInput
from parameters import refuse_nan

EPSILONS = [1e-6, 1e-3, 0.1, 1.0, 10.0, 300.0]
DELTAS = [1e-100, 1e-20, 1e-10, 1e-5, 0.1, 0.9]


def naive_delta(epsilon, mu):
    e, m = mp.mpf(epsilon), mp.mpf(mu)
    return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


def test_delta_against_mpmath():
    for epsilon in (0.0, 1e-8, 1e-4, 0.01, 0.1, 1.0, 3.0, 10.0, 50.0, 300.0):
        for mu in (1e-8, 1e-5, 1e-3, 0.1, 0.2499, 0.25, 0.3, 1.0, 3.0, 10.0, 30.0):
            if epsilon / mu > 35:
                continue
            with mp.workdps(100 + int(epsilon) + int((epsilon / mu) ** 2)):
                expected = float(naive_delta(epsilon, mu))
            assert gaussian_delta(epsilon, mu) == pytest.approx(expected, rel=1e-12)


def test_delta_at_the_edges():
    assert gaussian_delta(0.0, 2.0) == pytest.approx(2 * norm.cdf(1.0) - 1)
    assert gaussian_delta(1.0, 0.0) == 0
    assert gaussian_delta(math.inf, 3.0) == 0
    assert gaussian_delta(1.0, math.inf) == 1
    assert gaussian_delta(1.0, 1e300) == 1
    assert gaussian_delta(1.0, 1e-300) == 0
    # ε/μ overflows there, without a word.
    assert gaussian_delta(1.0, 1e-310) == gaussian_delta(1.0, 5e-324) == 0
    assert gaussian_delta(1e308, 1.0) == 0
    grid = [gaussian_delta(1.0, mu) for mu in np.logspace(-4, 3, 400)]
    assert np.all(np.diff(grid) >= 0)
    grid = [gaussian_delta(epsilon, 1.0) for epsilon in np.linspace(0, 60, 400)]
    assert np.all(np.diff(grid) <= 0)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_scale_is_the_least_that_keeps_delta(epsilon, delta):
    scale = gaussian_scale(epsilon, delta, 2.5)
    mu = 2.5 / scale
    assert gaussian_delta(epsilon, mu) <= delta
    assert gaussian_delta(epsilon, mu * (1 + 1e-10)) > delta
    assert scale == pytest.approx(2.5 * dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-6)
    with mp.workdps(400):
        assert naive_delta(epsilon, mp.mpf(2.5) / mp.mpf(scale)) <= mp.mpf(delta)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("delta", [1e-20, 1e-5, 0.1])
def test_epsilon_inverts_delta(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert epsilon == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / mu, delta), abs=1e-9)
    if epsilon > 0:
        assert gaussian_delta(epsilon * (1 - 1e-6), mu) > delta
        assert 1 / gaussian_scale(epsilon, delta, 1.0) == pytest.approx(mu, rel=1e-6)


def test_epsilon_at_the_edges():
    assert gaussian_epsilon(0.0, 1e-5) == 0
    assert gaussian_epsilon(1e-9, 1e-5) == 0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    assert gaussian_epsilon(1e200, 1e-5) == math.inf
    assert gaussian_epsilon(1e10, 1e-5) == pytest.approx(5e19, rel=1e-8)


def test_every_parameter_reaches_its_validator():
    given = {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 1.0}
    assert refuse_nan(gaussian_scale, given) == ["epsilon", "delta", "sensitivity"]
    assert refuse_nan(gaussian_epsilon, {"mu": 1.0, "delta": 1e-5}) == ["mu", "delta"]
    assert refuse_nan(gaussian_delta, {"epsilon": 1.0, "mu": 1.0}) == ["epsilon", "mu"]
    assert refuse_nan(gaussian_epsilon_below, {"mu": np.ones(2), "delta": 1e-5}) == ["delta"]
    for mu in (-1.0, math.nan, -math.inf):
        with pytest.raises(InvalidInput, match="mu"):
            gaussian_epsilon_below(np.array([1.0, mu]), 1e-5)


def test_nan_never_means_privacy():
    # The library that is wrapped says 0 here: perfect privacy.
    assert dp_accounting.get_epsilon_gaussian(math.nan, 1e-5) == 0
    for epsilon, mu in ((-1.0, 1.0), (math.inf, math.inf)):
        with pytest.raises(InvalidInput):
            gaussian_delta(epsilon, mu)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-12, 1e-300), (1e-8, 1e-300), (1e-8, 1e-12)])
def test_a_tiny_epsilon_has_its_exact_scale(epsilon, delta):
    """Where the differences of Φ cancel: dp_accounting's σ is 2e-5 too small at the second."""
    scale = gaussian_scale(epsilon, delta, 1.0)
    with mp.workdps(800):
        ratio = naive_delta(epsilon, 1 / mp.mpf(scale)) / mp.mpf(delta)
        larger = naive_delta(epsilon, (1 + mp.mpf(10) ** -9) / mp.mpf(scale)) / mp.mpf(delta)
    assert 1 - 1e-10 < ratio <= 1 < larger


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity"),
    [(1e300, 1e-5, 1.0), (1.0, 1e-5, 1e308)],
)
def test_extremes_are_refused_not_guessed(epsilon, delta, sensitivity):
    with pytest.raises(ConvergenceError, match="extreme"):
        gaussian_scale(epsilon, delta, sensitivity)


class TestEpsilonBelow:
    MU = np.array([0.01, 0.3, 1.0, 2.353, 10.0, 1e3, 1e6])

    @pytest.mark.parametrize("delta", [1e-20, 1e-5, 1e-3, 0.3])
    def test_it_is_the_largest_whose_noise_suffices(self, delta):
        """σ of an actual release at this ε leaves at most μ; a little more ε leaves more."""
        computed = gaussian_epsilon_below(self.MU, delta)
        for mu, epsilon in zip(self.MU, computed, strict=True):
            if epsilon == 0:
                # The least that any ε leaves is δ(0, μ₀) = δ.
                assert gaussian_delta(0.0, mu) < delta * (1 + 1e-10)
                continue
            assert gaussian_delta(epsilon, mu) >= delta
            assert gaussian_delta(epsilon * (1 + 1e-9), mu) < delta
            assert 1 / gaussian_scale(float(epsilon), delta, 1.0) <= mu
            assert 1 / gaussian_scale(float(epsilon) * (1 + 1e-5), delta, 1.0) > mu

    def test_it_lies_right_below_its_counterpart(self):
        for mu in (0.3, 1.0, 5.0, 40.0):
            above, below = (
                gaussian_epsilon(mu, 1e-5),
                gaussian_epsilon_below(np.array([mu]), 1e-5)[0],
            )
            assert below <= above
            assert below == pytest.approx(above, rel=1e-9)

    def test_the_edges(self):
        computed = gaussian_epsilon_below(np.array([0.0, 1e-310, 1e-9, 1e160, np.inf]), 1e-5)
        assert computed[:3].tolist() == [0, 0, 0], "no ε has that much noise at this δ"
        assert computed[3] > 1e200
        assert computed[4] == np.inf
        assert gaussian_epsilon_below(np.zeros(0), 1e-5).shape == (0,)
        assert gaussian_epsilon_below(np.float64(1.0), 1e-5).shape == ()
        assert gaussian_epsilon_below(np.ones((2, 3)), 1e-5).shape == (2, 3)
        grown = gaussian_epsilon_below(np.geomspace(1e-4, 1e4, 300), 1e-5)
        assert np.all(np.diff(grown) >= 0)
        assert np.all(np.diff(grown[grown > 0]) > 0)

    def test_in_fifty_digits(self):
        with mp.workdps(60):
            for mu, delta in itertools.product((0.05, 0.5, 1.0, 5.0, 20.0), (1e-12, 1e-6, 1e-3)):
                below = float(gaussian_epsilon_below(np.array([mu]), delta)[0])
                exact = mp.findroot(lambda e, m=mu, p=delta: naive_delta(e, m) - mp.mpf(p), below)
                assert mp.mpf(below) <= exact
                assert abs(below / exact - 1) < 1e-9
