"""The Gaussian mechanism: δ against 80 digits, σ and ε by round trip and by dp_accounting."""

import math

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from scipy.stats import norm

from expost.accounting import gaussian_delta, gaussian_epsilon, gaussian_scale
from expost.errors import ConvergenceError, InvalidInput

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
    assert gaussian_delta(epsilon, mu * (1 + 1e-6)) > delta
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


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "1", None, True])
def test_bad_parameters_raise(bad):
    for arguments in ((bad, 1e-5, 1.0), (1.0, 1e-5, bad)):
        with pytest.raises(InvalidInput):
            gaussian_scale(*arguments)
    for delta in (0.0, 1.0, -0.1, math.nan, "small"):
        with pytest.raises(InvalidInput, match="delta"):
            gaussian_scale(1.0, delta, 1.0)
        with pytest.raises(InvalidInput, match="delta"):
            gaussian_epsilon(1.0, delta)


def test_nan_never_means_privacy():
    # The library that is wrapped says 0 here: perfect privacy.
    assert dp_accounting.get_epsilon_gaussian(math.nan, 1e-5) == 0
    for call in (
        lambda: gaussian_epsilon(math.nan, 1e-5),
        lambda: gaussian_delta(math.nan, 1.0),
        lambda: gaussian_delta(1.0, math.nan),
        lambda: gaussian_delta(-1.0, 1.0),
        lambda: gaussian_delta(math.inf, math.inf),
    ):
        with pytest.raises(InvalidInput):
            call()


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity"),
    [(1e-12, 1e-300, 1.0), (1e300, 1e-5, 1.0), (1.0, 1e-5, 1e308)],
)
def test_extremes_are_refused_not_guessed(epsilon, delta, sensitivity):
    with pytest.raises(ConvergenceError, match="extreme"):
        gaussian_scale(epsilon, delta, sensitivity)
