"""Composed privacy-loss distributions against closed forms, naive convolutions and dp_accounting.

Every interval must hold the true value, be narrow, and move away from it when a parameter is off by
a little: that is the power of each test.
"""

import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.special import ndtr

from expost.accounting import gaussian_delta, gaussian_epsilon
from expost.accounting.laws import NormLaplaceStep, RandomizedResponse, SampledGaussian
from expost.accounting.pld import EPSILON_TOLERANCE, PrivacyLoss
from expost.accounting.rdp import mironov_epsilon, tight_delta, tight_epsilon
from expost.risk import EpsilonDelta, GaussianNoise, NormLaplaceNoise


def composed(*laws):
    """One or more (law, count)."""
    return PrivacyLoss(steps=tuple(laws))


def of_one_step(mu, rate, epsilon, backward):
    """δ(ε) of one step in 40 digits and more, where both worlds cross once."""
    with mp.workdps(700):
        m, q, e = mp.mpf(mu), mp.mpf(rate), mp.mpf(epsilon)
        sign = -1 if backward else 1
        odds = (mp.exp(sign * e) - 1 + q) / q
        if odds <= 0:
            return mp.mpf(0) if backward else 1 - mp.exp(e)
        z = mp.log(odds) / m + m / 2
        if backward:
            return mp.ncdf(z) - mp.exp(e) * ((1 - q) * mp.ncdf(z) + q * mp.ncdf(z - m))
        return (1 - q) * mp.ncdf(-z) + q * mp.ncdf(m - z) - mp.exp(e) * mp.ncdf(-z)


@pytest.mark.parametrize("mu", [1e-4, 0.3, 2.0, 30.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-40, 1e-5, 0.01, 0.8])
def test_gaussian_noise_has_its_closed_form(mu, delta):
    loss = composed((SampledGaussian(mu=mu / 3), 4), (SampledGaussian(mu=mu * math.sqrt(5) / 3), 1))
    low, high = loss.epsilon_interval(delta)
    exact = gaussian_epsilon(mu, delta)
    assert low <= exact * (1 + 1e-9)
    assert exact <= high * (1 + 1e-9)
    assert high <= exact * (1 + EPSILON_TOLERANCE)
    if exact > 0:
        assert not low <= gaussian_epsilon(1.01 * mu, delta) <= high
        # δ falls by its slope, ε/μ² a nat or so.
        assert loss.delta(exact) <= delta * (1 + 2e-3 * (exact / mu) ** 2)


@pytest.mark.parametrize(("mu", "rate"), [(1 / 1.1, 0.01), (3.0, 0.2), (0.05, 1e-6), (8.0, 0.9)])
def test_one_step_in_closed_form(mu, rate):
    loss = composed((SampledGaussian(mu=mu, rate=rate), 1))
    for delta in (1e-200, 1e-30, 1e-6):
        low, high = loss.epsilon_interval(delta)
        with mp.workdps(700):
            above = max(of_one_step(mu, rate, high, back) for back in (False, True))
            below = max(of_one_step(mu, rate, 0.999 * low, back) for back in (False, True))
            assert above <= delta, "what is guaranteed holds"
            assert low == 0 or below > delta, "nothing smaller does"
        assert high - low <= 3e-3 * high


def test_both_directions_count():
    """Removing is worse at ε > 0, adding no better at 0; the larger one is told."""
    loss = composed((SampledGaussian(mu=1.0, rate=0.3), 1))
    for epsilon in (0.0, 0.1, 0.3):
        exact = [float(of_one_step(1.0, 0.3, epsilon, back)) for back in (False, True)]
        low, high = loss.delta_interval(epsilon)
        assert low <= max(exact) <= high <= max(exact) * 1.002
    assert exact[0] > 1.2 * exact[1]


def rounded(cdf, spacing, low, high, up):
    """Masses of a loss rounded up or down to a grid; what is above goes to infinity if up."""
    edges = np.arange(low, high + 1)
    below = cdf(edges * spacing)
    masses = np.diff(below)
    if up:
        return np.append(below[0], masses), 1 - below[-1]
    return np.append(masses, 1 - below[-1]), 0.0


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("count", [2, 5])
def test_few_steps_against_a_naive_convolution(count, replace):
    """Losses rounded up and down, convolved by hand: the truth lies between."""
    mu, rate, spacing = 1.0, 0.2, 2.5e-4
    law = SampledGaussian(mu=mu, rate=rate, replace=replace)
    z = np.linspace(-9, 10, 400_001)
    loss = np.log1p(rate * np.expm1(mu * z - mu**2 / 2))
    if replace:
        loss -= np.log1p(rate * np.expm1(-mu * z - mu**2 / 2))

    def cdf(at):
        where = np.interp(at, loss, z)
        return (1 - rate) * ndtr(where) + rate * ndtr(where - mu)

    low, high = math.floor(loss[0] / spacing), math.ceil(loss[-1] / spacing)
    bounds = []
    for up in (False, True):
        first, infinite = rounded(cdf, spacing, low, high, up)
        size = count * (len(first) - 1) + 1
        masses = np.fft.irfft(np.fft.rfft(first, 2 * size) ** count, 2 * size)[:size]
        losses = spacing * (count * low + np.arange(size))
        certain = 1 - (1 - infinite) ** count
        bounds.append(
            [certain + masses @ np.maximum(-np.expm1(e - losses), 0) for e in (0.0, 0.5, 1.5)]
        )
    figures = composed((law, count))
    for epsilon, down, up in zip((0.0, 0.5, 1.5), *bounds, strict=True):
        low, high = figures.delta_interval(epsilon)
        assert down * (1 - 1e-9) <= high
        assert low <= up * (1 + 1e-9)
        # Much narrower than what rounding by hand leaves.
        assert high - low < 0.5 * (up - down) + 1e-2 * high
    other = composed((SampledGaussian(mu=1.02 * mu, rate=rate, replace=replace), count))
    assert other.delta_interval(0.5)[0] > up_at(bounds, 1), "two hundredths are seen"


def up_at(bounds, index):
    return bounds[1][index]


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 50), (1.0, 7), (1e-5, 300)])
def test_randomised_response_by_counting(epsilon, count):
    """k of n answers are true with a binomial law; the loss is (2k − n)ε."""
    truth = 1 / (1 + math.exp(-epsilon))
    losses = epsilon * (2 * np.arange(count + 1) - count)
    masses = [math.comb(count, k) * truth**k * (1 - truth) ** (count - k) for k in range(count + 1)]
    figures = composed((RandomizedResponse(epsilon=epsilon, delta=1e-7), count))
    kept = (1 - 1e-7) ** count
    for at in (0.0, 0.3 * epsilon * count, 0.45 * epsilon * count):
        exact = (1 - kept) + kept * (np.array(masses) @ np.maximum(-np.expm1(at - losses), 0))
        low, high = figures.delta_interval(at)
        assert low <= exact * (1 + 1e-9)
        assert exact * (1 - 1e-9) <= high <= exact * (1 + 2e-3)
    assert composed((RandomizedResponse(epsilon=epsilon), count)).loss(0.0) == pytest.approx(
        count * epsilon, rel=1e-15
    )


@pytest.mark.parametrize(("separation", "dimension"), [(1.0, 1), (1.0, 2), (5.0, 6), (20.0, 40)])
def test_norm_laplace_noise_is_what_its_tails_say(separation, dimension):
    """The same guarantee by another route, :class:`NormLaplaceNoise`."""
    figures = composed((NormLaplaceStep(separation=separation, dimension=dimension), 1))
    noise = NormLaplaceNoise(separation=separation, dimension=dimension)
    for share in (0.0, 0.3, 0.8):
        exact = noise.delta(share * separation)
        low, high = figures.delta_interval(share * separation)
        assert low <= exact * (1 + 1e-9)
        assert exact * (1 - 1e-9) <= high <= exact * (1 + 2e-3)
    for rate in (1e-6, 0.05, 0.7):
        exact = noise.true_positive_rate(rate)
        assert exact * (1 - 1e-9) <= figures.true_positive_rate(rate) <= exact * (1 + 2e-3)


def test_unlike_releases_together():
    """Gaussian noise and randomised response: an integral over the noise for each answer."""
    mu, epsilon = 0.8, 0.7
    truth = 1 / (1 + math.exp(-epsilon))
    figures = composed((SampledGaussian(mu=mu), 1), (RandomizedResponse(epsilon=epsilon), 1))
    for at in (0.0, 0.9, 2.5):
        # δ(ε) of the noise, and δ(−ε) = 1 − e^(−ε)(1 − δ(ε)).
        curve = [
            gaussian_delta(x, mu) if x >= 0 else 1 - math.exp(x) * (1 - gaussian_delta(-x, mu))
            for x in (at - epsilon, at + epsilon)
        ]
        exact = truth * curve[0] + (1 - truth) * curve[1]
        low, high = figures.delta_interval(at)
        assert low <= exact <= high <= exact * 1.002


@pytest.mark.parametrize(
    ("sigma", "rate", "count"), [(1.1, 0.01, 10_000), (0.6, 0.005, 1000), (2.0, 0.1, 300)]
)
def test_epsilon_of_dp_accounting(sigma, rate, count):
    """Its default grid gives an upper bound, which ours lies below or just above."""
    accountant = PLDAccountant()
    accountant.compose(
        SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), count)
    )
    figures = composed((SampledGaussian(mu=1 / sigma, rate=rate), count))
    for delta in (1e-7, 1e-5):
        low, high = figures.epsilon_interval(delta)
        theirs = accountant.get_epsilon(delta)
        assert low <= theirs
        assert high == pytest.approx(theirs, rel=2e-4)
        assert high - low <= 2e-3 * high
        off = composed((SampledGaussian(mu=1.005 / sigma, rate=rate), count))
        assert off.epsilon_interval(delta)[0] > theirs


class TestLoss:
    def test_it_is_sharp_for_gaussian_noise(self):
        """log(δ/u) with Φ(Φ⁻¹(u) + μ) = δ: the pair that tells one event alone reaches it."""
        for mu, delta in ((1.0, 1e-5), (0.1, 1e-3), (3.0, 0.4)):
            loss = composed((SampledGaussian(mu=mu), 1)).loss(delta)
            rate = math.exp(-loss) * delta
            computed = GaussianNoise(mu=mu).true_positive_rate(rate)
            assert computed <= delta * (1 + 1e-6)
            assert computed == pytest.approx(delta, rel=2e-3)
            assert loss > GaussianNoise(mu=mu).loss(delta)

    @pytest.mark.parametrize("delta", [1e-4, 1e-2, 0.3, 0.9])
    @pytest.mark.parametrize("guarantee", [(1.0, 0.0), (0.3, 1e-5), (3.0, 1e-3)])
    def test_it_is_that_of_any_mechanism(self, guarantee, delta):
        epsilon, slip = guarantee
        figures = composed((RandomizedResponse(epsilon=epsilon, delta=slip), 1))
        exact = EpsilonDelta(epsilon=epsilon, delta=slip).loss(delta)
        if exact == math.inf:
            assert figures.loss(delta) == math.inf
        else:
            assert figures.loss(delta) == pytest.approx(exact, rel=1e-6, abs=1e-9)

    def test_nothing_is_certain_without_delta(self):
        assert composed((SampledGaussian(mu=1.0, rate=0.1), 3)).loss(0.0) == math.inf
        assert composed((SampledGaussian(mu=1.0, rate=0.1), 3)).epsilon(0.0) == math.inf


@pytest.mark.parametrize(
    "law",
    [SampledGaussian(mu=1.0, rate=0.05), NormLaplaceStep(separation=0.5, dimension=4)],
    ids=repr,
)
def test_order_and_consistency(law):
    """exact ≤ PLD ≤ Rényi, tight ≤ Mironov; the figures are figures of one curve."""
    figures = composed((law, 200))
    for delta in (1e-12, 1e-6, 1e-2):
        low, high = figures.epsilon_interval(delta)
        tight = tight_epsilon(figures.steps, delta).value
        assert low <= high <= tight <= mironov_epsilon(figures.steps, delta).value
        assert figures.delta(high) <= delta * (1 + 1e-9)
        assert high <= figures.loss(delta) <= mironov_epsilon(figures.steps, delta).value
        assert figures.delta(high) <= tight_delta(figures.steps, high)
    advantage = figures.delta(0.0)
    rates = [1e-9, 1e-4, 0.02, 0.3, 0.8]
    computed = [figures.true_positive_rate(rate) for rate in rates]
    assert all(
        rate <= tpr <= rate + advantage + 1e-12 for rate, tpr in zip(rates, computed, strict=True)
    )
    assert np.all(np.diff(computed) > 0)
    for rate, tpr in zip(rates, computed, strict=True):
        for epsilon in (0.1, 1.0, 2.0):
            assert tpr <= figures.delta(epsilon) + math.exp(epsilon) * rate + 1e-12


def test_a_draft_is_a_bound_too():
    full = composed((SampledGaussian(mu=1.0, rate=0.01), 1000))
    draft = PrivacyLoss(steps=full.steps, draft=True)
    for delta in (1e-6, 1e-3):
        low, high = full.epsilon_interval(delta)
        assert low <= draft.epsilon(delta) <= high * 1.001
