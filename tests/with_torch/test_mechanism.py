"""An ε for a training function in torch: by its exact losses, and as a black box."""

import math

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import norm
from torch import nn

from expost import choose_epsilon
from expost.epsilon import BlackBox, SampledMechanism
from expost.risk import GaussianNoise
from expost.torch import training_mechanism

DELTA = 1e-3


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 2))
    X[0] *= 50
    return X, rng.integers(2, size=5)


def mechanism(**options):
    torch.manual_seed(0)
    given = {"delta": DELTA, "clip": 1.0, "learning_rate": 0.1, "steps": 1}
    return training_mechanism(nn.Linear(2, 2).double(), *rows(), **given | options)


def quantile_posterior(epsilon):
    """sigmoid of the 95 % quantile of ℓ ~ N(μ²/2, μ²), of a gradient as long as clipping allows."""
    low, high = 1e-6, 50.0
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (
            (middle, high) if GaussianNoise(mu=middle).delta(epsilon) <= DELTA else (low, middle)
        )
    return float(expit(low**2 / 2 + low * norm.ppf(0.95)))


def test_epsilon_is_chosen_from_sampled_trainings():
    blackbox = mechanism()
    assert isinstance(blackbox, SampledMechanism)
    choice = choose_epsilon(
        *rows(), mechanism=blackbox, models=400, epsilons=[0.5, 2.0, 8.0], random_state=0
    )
    assert choice.sweep.rows == 5
    assert "1 steps of DP-SGD, clip 1, full batch" in choice.sweep.mechanism.description
    # Row 0 has a gradient of full length: its posterior is known, and the limit is on the safe side.
    assert quantile_posterior(choice.ceiling) <= 0.75
    assert quantile_posterior(2.5 * choice.ceiling) > 0.75


def test_the_noise_is_that_of_the_whole_run():
    for steps in (1, 9):
        sigma = mechanism(steps=steps).noise(1.0)
        spent = GaussianNoise(mu=math.sqrt(steps) / sigma)
        assert spent.epsilon(DELTA) <= 1.0 + 1e-9
        assert GaussianNoise(mu=spent.mu * 1.001).epsilon(DELTA) > 1.0
    given = mechanism(noise_multiplier=lambda epsilon: 3 / epsilon)
    assert given.noise(2.0) == 1.5
    sample = given.sample(2.0, 3, np.random.default_rng(0))
    assert sample.shape == (3, 5)
    again = given.sample(2.0, 3, np.random.default_rng(0))
    assert np.array_equal(sample, again)
    assert np.array_equal(given.losses(2.0, sample, None), sample)
    # Half the noise, and losses that grow.
    assert np.mean(np.abs(given.sample(4.0, 3, np.random.default_rng(0)))) > np.mean(np.abs(sample))


def test_options_of_a_single_run_are_refused():
    for name in ("random_state", "on_step"):
        with pytest.raises(TypeError, match=name):
            mechanism(**{name: None})


def test_a_training_function_of_ones_own_is_a_black_box():
    def trainer(X, y, epsilon, size, rng):
        """One step of full-batch DP-SGD from 0, and the two coefficients are all that is seen."""
        points, labels = torch.as_tensor(X), torch.as_tensor(y, dtype=torch.float64)
        weights = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        loss = nn.functional.binary_cross_entropy_with_logits(
            points @ weights, labels, reduction="none"
        )
        rows = [torch.autograd.grad(row_loss, weights, retain_graph=True)[0] for row_loss in loss]
        total = sum(g / max(1.0, float(g.norm())) for g in rows).numpy()
        return total + rng.normal(scale=4 / epsilon, size=(size, 2))

    choice = choose_epsilon(
        *rows(),
        mechanism=BlackBox(trainer, draws=4000, rows=[0]),
        models=150,
        epsilons=[0.5, 2.0, 8.0],
        random_state=0,
    )
    # The row's gradient has length 1, so that μ = ε/4; the truth is at 4·0.569, and limits are
    # below it.
    assert 0.5 < choice.ceiling < 4 * 0.57
