"""The Gaussian guarantee that a guarantee implies: valid everywhere, nearly the least, its error."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import expost
from expost.errors import InvalidInput
from expost.risk import DPSGD, Composition, EpsilonDelta, GaussianNoise, NormLaplaceNoise
from expost.risk.gaussian_dp import gaussian_dp

# With the additive term of the statement, and the width of the proof.
CASES = (
    (EpsilonDelta(epsilon=0.01), 0.0, 1e-3),
    (EpsilonDelta(epsilon=1.0), 0.0, 1e-3),
    (EpsilonDelta(epsilon=6.0), 0.0, 1e-3),
    (EpsilonDelta(epsilon=1.0, delta=1e-3), 1e-3, 1e-3),
    (EpsilonDelta(epsilon=1.0, delta=1e-3), 0.01, 1e-3),
    (NormLaplaceNoise(separation=1.0, dimension=1), 0.0, 1e-3),
    (NormLaplaceNoise(separation=3.0, dimension=6), 0.0, 1e-3),
    (NormLaplaceNoise(separation=1.0, dimension=30), 1e-6, 1e-3),
    (Composition(parts=(EpsilonDelta(epsilon=0.4),) * 5), 0.0, 1e-3),
    (DPSGD(noise_multiplier=1.0, sampling_rate=0.05, steps=200), 1e-5, 1e-2),
)


def excess(guarantee, mu, slip, epsilons):
    """δ of the guarantee over that of the statement."""
    noise = GaussianNoise(mu=mu)
    return np.array([guarantee.delta(e) - noise.delta(e) - slip for e in epsilons])


@pytest.mark.parametrize(("guarantee", "slip", "width"), CASES, ids=lambda each: str(each))
def test_valid_and_nearly_the_least(guarantee, slip, width):
    stated = gaussian_dp(guarantee, slip=slip)
    noise = GaussianNoise(mu=stated.mu)
    for alpha in (*np.geomspace(1e-9, 0.5, 25).tolist(), 0.7, 0.95):
        allowed = noise.true_positive_rate(alpha) + slip
        assert guarantee.true_positive_rate(alpha) <= allowed * (1 + 1e-9)
    epsilons = np.linspace(0, guarantee.epsilon(slip) * 1.1, 24)
    assert np.all(excess(guarantee, stated.mu, slip, epsilons) <= 1e-12)
    assert stated.least <= stated.mu <= stated.least * (1 + width)


@pytest.mark.parametrize(("guarantee", "slip", "width"), CASES[:9], ids=lambda each: str(each))
def test_a_smaller_mu_is_not_valid(guarantee, slip, width):
    stated = gaussian_dp(guarantee, slip=slip)
    smaller = stated.least * (1 - 1e-3)
    epsilons = np.linspace(0, guarantee.epsilon(slip), 400)
    assert np.max(excess(guarantee, smaller, slip, epsilons)) > 0


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, 5.0])
def test_pure_epsilon_has_a_closed_form(epsilon):
    """−2Φ⁻¹(1/(1 + e^ε)): the Gaussian curve touches that of randomised response at ε = 0."""
    closed = -2 * float(ndtri(1 / (1 + math.exp(epsilon))))
    assert gaussian_dp(EpsilonDelta(epsilon=epsilon)).mu == pytest.approx(closed, rel=1e-6)
    assert gaussian_dp(EpsilonDelta(epsilon=epsilon)).mu >= closed


@pytest.mark.parametrize(("guarantee", "slip", "width"), CASES, ids=lambda each: str(each))
def test_the_error_is_the_largest_loss_over_priors(guarantee, slip, width):
    """(δ_μ + δ₀ − δ)/(1 + e^ε) on a fine grid: never above the error, and close to it."""
    stated = gaussian_dp(guarantee, slip=slip)
    is_slow = isinstance(guarantee, DPSGD)
    epsilons = np.linspace(0, 1.5 * guarantee.epsilon(slip), 60 if is_slow else 600)
    naive = np.max(-excess(guarantee, stated.mu, slip, epsilons) / (1 + np.exp(epsilons)))
    assert naive <= stated.error * (1 + 1e-9)
    assert stated.error <= 1.15 * naive + 1e-6


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_error_is_the_divergence_of_the_trade_off_curves(epsilon):
    """The least κ with f(α + κ) − κ ≤ g(α) for all α, by brute force."""
    guarantee = EpsilonDelta(epsilon=epsilon)
    stated = gaussian_dp(guarantee)
    alpha = np.linspace(0, 1, 4001)

    def misses(at):
        at = np.minimum(at, 1.0)
        return np.maximum.reduce(
            [np.zeros_like(at), 1 - math.exp(epsilon) * at, math.exp(-epsilon) * (1 - at)]
        )

    gaussian = ndtr(ndtri(1 - alpha) - stated.mu)
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if np.all(misses(alpha + middle) - middle <= gaussian + 1e-12):
            high = middle
        else:
            low = middle
    assert stated.error == pytest.approx(high, rel=0.06)
    assert stated.error >= high * (1 - 1e-3)


def test_gaussian_noise_is_itself():
    for guarantee, mu in (
        (GaussianNoise(mu=0.5), 0.5),
        (DPSGD(noise_multiplier=2.0, sampling_rate=1.0, steps=4), 1.0),
        (Composition(parts=(GaussianNoise(mu=3.0), GaussianNoise(mu=4.0))), 5.0),
    ):
        stated = gaussian_dp(guarantee)
        assert stated.mu == pytest.approx(mu, rel=1e-14)
        assert stated.error == stated.slip == 0


def test_edges():
    assert gaussian_dp(EpsilonDelta(epsilon=0.0)).mu == 0
    assert gaussian_dp(EpsilonDelta(epsilon=math.inf)).mu == math.inf
    assert gaussian_dp(EpsilonDelta(epsilon=1e5)).mu == math.inf
    # With δ > 0 no μ bounds the curve at a false-positive rate of 0.
    assert gaussian_dp(EpsilonDelta(epsilon=1.0, delta=1e-9)).mu == math.inf
    for slip in (-0.1, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="slip"):
            gaussian_dp(EpsilonDelta(epsilon=1.0), slip=slip)


def test_beside_epsilon_and_delta():
    answer = expost.identifiability(epsilon=1.0, delta=1e-5)
    stated = gaussian_dp(EpsilonDelta(epsilon=1.0, delta=1e-5), slip=1e-5)
    assert answer.gaussian_dp == stated.mu
    assert answer.gaussian_dp_error == stated.error
    assert answer.figure("gaussian_dp").by["gaussian"] == answer.mu
    assert answer.figure("gaussian_dp_error").by["gaussian"] == 0
    pure = expost.identifiability(epsilon=1.0)
    assert pure.gaussian_dp == gaussian_dp(EpsilonDelta(epsilon=1.0)).mu
    assert expost.identifiability(epsilon=math.inf).gaussian_dp is None
