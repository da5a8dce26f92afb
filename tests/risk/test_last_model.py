"""The heuristic for the final model: as if every loss were linear."""

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom, norm

from expost.errors import InvalidInput
from expost.risk import DPSGD, GaussianNoise
from expost.risk.last_model import LinearLastModel

CASES = [(1.5, 0.1, 50), (0.7, 0.3, 6), (1.0, 0.02, 400), (3.0, 0.5, 40)]


def densities(sigma, rate, steps):
    """(x, P, Q): the laws of the sum of all noisy sums, on a fine grid."""
    scale = sigma * math.sqrt(steps)
    x = np.linspace(-14 * scale, 14 * scale + steps, 400_001)
    q = norm.pdf(x, scale=scale)
    p = sum(binom.pmf(k, steps, rate) * norm.pdf(x, loc=k, scale=scale) for k in range(steps + 1))
    return x, p, q


@pytest.mark.parametrize(("sigma", "rate", "steps"), [CASES[1], (1.2, 0.4, 3), (2.0, 0.9, 5)])
def test_figures_are_those_of_the_two_laws(sigma, rate, steps):
    x, p, q = densities(sigma, rate, steps)
    width, delta = x[1] - x[0], 1e-3
    model = LinearLastModel(noise_multiplier=sigma, sampling_rate=rate, steps=steps)

    def least(epsilon):
        factor = math.exp(epsilon)
        sums = [np.sum(np.maximum(a - factor * b, 0)) * width for a, b in ((p, q), (q, p))]
        return max(sums)

    epsilon = model.epsilon(delta)
    assert least(epsilon) == pytest.approx(delta, rel=1e-3)
    # It would have seen an ε that is 1 % off.
    assert least(1.01 * epsilon) < 0.99 * delta
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(np.log(p) - np.log(q))
    b = model.loss(delta)
    passed = max(np.sum(p[ratio > b]), np.sum(q[-ratio > b])) * width
    assert passed == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize("steps", [1, 10, 1000])
def test_with_the_full_batch_it_is_gaussian_noise(steps):
    model, exact = (
        LinearLastModel(noise_multiplier=30.0, steps=steps),
        GaussianNoise(mu=math.sqrt(steps) / 30),
    )
    for delta in (1e-2, 1e-5):
        assert model.epsilon(delta) == pytest.approx(exact.epsilon(delta), rel=1e-6)
        assert model.loss(delta) == pytest.approx(exact.loss(delta), rel=1e-6)


@pytest.mark.parametrize(("sigma", "rate"), [(0.7, 0.3), (2.0, 0.01), (1.0, 0.9)])
def test_one_step_is_that_of_the_transcript(sigma, rate):
    options = {"noise_multiplier": sigma, "sampling_rate": rate}
    model, exact = LinearLastModel(**options), DPSGD(**options)
    for delta in (1e-2, 1e-5):
        assert model.epsilon(delta) == pytest.approx(exact.epsilon(delta), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("sigma", "rate", "steps"), CASES)
def test_a_function_of_the_transcript_reveals_no_more(sigma, rate, steps):
    options = {"noise_multiplier": sigma, "sampling_rate": rate, "steps": steps}
    model, transcript = LinearLastModel(**options), DPSGD(**options)
    assert 0 < model.epsilon(1e-5) < transcript.epsilon(1e-5)
    assert 0.5 < expit(model.loss(1e-5)) < expit(transcript.loss(1e-5))


def test_long_runs_do_not_overflow():
    model = LinearLastModel(noise_multiplier=1.0, sampling_rate=0.5, steps=20_000)
    assert math.isfinite(model.epsilon(1e-5))
    assert LinearLastModel(noise_multiplier=1e6, sampling_rate=1e-6).epsilon(0.5) == 0
    for options in ({"noise_multiplier": math.nan}, {"noise_multiplier": 1, "sampling_rate": 0}):
        with pytest.raises(InvalidInput):
            LinearLastModel(**options)
