"""Rényi divergences against dp_accounting, mpmath and closed forms; conversions as bounds."""

import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.special import ndtr, ndtri

from expost.accounting.laws import NormLaplaceStep, RandomizedResponse, SampledGaussian
from expost.accounting.rdp import (
    mironov_epsilon,
    renyi_advantage,
    renyi_divergence,
    renyi_true_positive_rate,
    revealed,
    tight_delta,
    tight_epsilon,
)
from expost.risk import NormLaplaceNoise


def steps(law, count=1):
    return ((law, count),)


@pytest.mark.parametrize(("sigma", "rate"), [(1.1, 0.01), (0.5, 0.2), (3.0, 1e-4), (10.0, 0.9)])
def test_sampled_gaussian_is_that_of_dp_accounting(sigma, rate):
    """At whole orders. At others its series drops the signs of its terms, and bounds from above."""
    orders = np.array([1.2, 1.9, 2, 3, 3.5, 8, 17, 40])
    accountant = RdpAccountant(orders)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)))
    law = SampledGaussian(mu=1 / sigma, rate=rate)
    computed = np.array([renyi_divergence(steps(law), order) for order in orders])
    whole = orders == np.round(orders)
    # It adds up 1 + 1e-9: seven digits are left of that.
    np.testing.assert_allclose(computed[whole], accountant.rdp[whole], rtol=1e-6)
    assert np.all(computed <= accountant.rdp * (1 + 1e-6))
    assert np.all(np.diff(computed) > 0)
    off = [renyi_divergence(steps(SampledGaussian(mu=1.01 / sigma, rate=rate)), a) for a in orders]
    assert np.all(off / computed - 1 > 1e-3), "a hundredth is seen"


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("order", [1.5, 6.0])
def test_sampled_gaussian_against_mpmath(replace, order):
    mu, rate = 0.8, 0.05

    def mixture(z, at):
        return (1 - rate) * mp.npdf(z) + rate * mp.npdf(z, at)

    with mp.workdps(20):

        def height(z):
            other = mixture(z, -mu) if replace else mp.npdf(z)
            return mixture(z, mu) ** order * other ** (1 - order)

        integral = mp.quad(height, np.linspace(-12, 18, 11).tolist())
        expected = float(mp.log(integral) / (order - 1))
    law = SampledGaussian(mu=mu, rate=rate, replace=replace)
    assert renyi_divergence(steps(law), order) == pytest.approx(expected, rel=1e-10)
    assert renyi_divergence(steps(law, 500), order) == pytest.approx(500 * expected, rel=1e-10)


def test_small_losses_keep_their_digits():
    """α(q μ)²/2 as q μ → 0."""
    law = SampledGaussian(mu=1e-6, rate=1e-8)
    for order in (2.0, 100.0):
        assert renyi_divergence(steps(law), order) == pytest.approx(order * 0.5e-28, rel=1e-5)


@pytest.mark.parametrize("order", [1.01, 2.0, 30.0])
def test_the_other_laws(order):
    """Randomised response by its two outcomes; norm-Laplace on a line by its closed form."""
    truth, lie = math.exp(1) / (1 + math.exp(1)), 1 / (1 + math.exp(1))
    direct = math.log(truth**order * lie ** (1 - order) + lie**order * truth ** (1 - order))
    computed = renyi_divergence(steps(RandomizedResponse(epsilon=1.0)), order)
    assert computed == pytest.approx(direct / (order - 1), rel=1e-11)
    # Mironov 2017, Table II: Laplace noise of scale 1.
    laplace = math.log(
        order / (2 * order - 1) * math.exp(order - 1)
        + (order - 1) / (2 * order - 1) * math.exp(-order)
    )
    computed = renyi_divergence(steps(NormLaplaceStep(separation=1.0, dimension=1)), order)
    assert computed == pytest.approx(laplace / (order - 1), rel=1e-9)
    assert renyi_divergence(steps(RandomizedResponse(epsilon=1.0, delta=0.1)), order) == math.inf


@pytest.mark.parametrize("mu", [1e-3, 0.5, 4.0, 300.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.3])
def test_gaussian_conversions(mu, delta):
    """Mironov's in closed form; both bound what they say they bound."""
    law = SampledGaussian(mu=mu)
    level = math.sqrt(2 * math.log(1 / delta))
    computed = mironov_epsilon(steps(law), delta)
    assert computed.value == pytest.approx(0.5 * mu**2 + mu * level, rel=1e-9)
    assert computed.order == pytest.approx(1 + level / mu, rel=1e-3)
    # P(ℓ > ε) = Φ(μ/2 − ε/μ).
    assert ndtr(0.5 * mu - computed.value / mu) <= delta
    tight = tight_epsilon(steps(law), delta)
    assert tight.value <= computed.value
    with mp.workdps(400):
        m, e = mp.mpf(mu), mp.mpf(tight.value)
        assert mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m) <= delta


@pytest.mark.parametrize(("sigma", "rate", "count"), [(1.1, 0.01, 10_000), (4.0, 0.1, 100)])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_tight_conversion_is_the_best_of_dp_accounting(sigma, rate, count, delta):
    """Over a dense grid of orders its answer comes down to ours, never below."""
    accountant = RdpAccountant(np.linspace(1.1, 24, 400))
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(sigma))
    accountant.compose(SelfComposedDpEvent(event, count))
    theirs = accountant.get_epsilon(delta)
    ours = tight_epsilon(steps(SampledGaussian(mu=1 / sigma, rate=rate), count), delta)
    assert ours.value <= theirs * (1 + 1e-9)
    assert ours.value == pytest.approx(theirs, rel=1e-4)
    assert tight_delta(steps(SampledGaussian(mu=1 / sigma, rate=rate), count), ours.value) == (
        pytest.approx(delta, rel=1e-5)
    )


@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
def test_rates_and_advantage_of_gaussian_noise(mu):
    law = SampledGaussian(mu=mu)
    for rate in (1e-9, 0.01, 0.5):
        bound = renyi_true_positive_rate(steps(law), rate)
        assert ndtr(ndtri(rate) + mu) <= bound <= 1
    advantage = 2 * ndtr(mu / 2) - 1
    assert advantage <= renyi_advantage(steps(law)) <= min(1, 1.6 * advantage)


@pytest.mark.parametrize(("separation", "dimension"), [(1.0, 2), (1.0, 1), (20.0, 7), (0.01, 30)])
def test_orders_past_what_the_nodes_resolve(separation, dimension):
    """θt from below at the most probable of the large losses, θt − O(log θ), never above θt."""
    law = NormLaplaceStep(separation=separation, dimension=dimension)
    last = 0.0
    for theta in np.geomspace(1, 1e9, 19):
        moment = theta * renyi_divergence(steps(law), 1 + theta)
        assert last < moment <= theta * separation * (1 + 1e-12)
        last = moment
    # Few rows are found where few others are: e^t times as many in the limit, and just below it.
    computed = renyi_true_positive_rate(steps(law), 1e-12)
    exact = NormLaplaceNoise(separation=separation, dimension=dimension).true_positive_rate(1e-12)
    assert exact * (1 - 1e-9) <= computed <= math.exp(separation) * 1e-12 * (1 + 1e-8)


def test_what_is_told_comes_on_top():
    extra = ((RandomizedResponse(epsilon=1.0, delta=0.01), 2), (RandomizedResponse(epsilon=2.0), 1))
    assert revealed(extra) == pytest.approx(1 - 0.99**2)
    assert mironov_epsilon(extra, 0.0199).value == math.inf
    assert mironov_epsilon(extra, 0.02).value < math.inf
    nothing_left = ((RandomizedResponse(epsilon=math.inf), 1), (SampledGaussian(mu=1.0), 1))
    assert revealed(nothing_left) == 1
    assert tight_delta(nothing_left, 3.0) == renyi_true_positive_rate(nothing_left, 0.1) == 1
    assert tight_epsilon(nothing_left, 0.5).value == math.inf
