"""DP-SGD's figures against games that are played, dp-accounting's own curves, and riskcal."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from evidence import record
from expost.risk import DPSGD, GaussianNoise

SIGMA, RATE, STEPS = 1.0, 0.3, 5
DELTA = 0.01


def play(games, rng, sigma=SIGMA):
    """ℓ of a row with gradient 1, in games where it was there and in games where it was not."""
    losses = []
    for there in (True, False):
        loss = np.zeros(games)
        for _ in range(STEPS):
            outputs = sigma * rng.standard_normal(games)
            if there:
                outputs += rng.random(games) < RATE
            loss += np.log((1 - RATE) + RATE * np.exp((2 * outputs - 1) / (2 * sigma**2)))
        losses.append(loss)
    return losses


def scores(guarantee, games, seed, sigma=SIGMA):
    """Standard errors between what was played and what is guaranteed, by figure."""
    there, absent = play(games, np.random.default_rng(seed), sigma)

    def score(mean, spread, guessed):
        # The figures of a distribution on a grid are themselves bounds, right to about 1e-4.
        return float((mean - guessed) / (spread / math.sqrt(games) + 1e-4 * guessed))

    hits, alarms = there > 0, absent > 0
    deviations = {
        "advantage": score(
            hits.mean() - alarms.mean(), math.hypot(hits.std(), alarms.std()), guarantee.advantage
        )
    }
    for epsilon in (0.5, 1.0):
        # The larger of the two directions: the row there against absent, and the other way.
        terms = [
            np.maximum(-np.expm1(epsilon - side_losses), 0.0) for side_losses in (there, -absent)
        ]
        worst = max(terms, key=np.mean)
        deviations[f"delta at {epsilon}"] = score(
            worst.mean(), worst.std(), guarantee.delta(epsilon)
        )
    for fpr in (0.01, 0.1):
        threshold = np.quantile(absent, 1 - fpr)
        rate = np.mean(there > threshold)
        # The threshold was sampled, too: by the slope of the curve, e^threshold.
        spread = math.hypot(
            math.sqrt(rate * (1 - rate)), math.exp(threshold) * math.sqrt(fpr * (1 - fpr))
        )
        deviations[f"found at {fpr}"] = score(rate, spread, guarantee.true_positive_rate(fpr))
    return deviations, (
        float(np.mean(there > guarantee.loss(DELTA))),
        float(np.mean(absent < -guarantee.loss(DELTA))),
    )


def check(games, seed):
    guarantee = DPSGD(noise_multiplier=SIGMA, sampling_rate=RATE, steps=STEPS)
    deviations, passed = scores(guarantee, games, seed)
    wrong, _ = scores(guarantee, games, seed, sigma=0.95 * SIGMA)
    return deviations, wrong, passed


def test_figures_are_those_of_games_that_are_played():
    deviations, wrong, passed = check(100_000, 11)
    assert max(map(abs, deviations.values())) < 3.5
    assert max(map(abs, wrong.values())) > 5
    assert max(passed) < DELTA + 3.5 * math.sqrt(DELTA / 100_000)


@pytest.mark.long
def test_figures_are_those_of_a_million_games():
    deviations, wrong, passed = check(1_000_000, 12)
    assert max(map(abs, deviations.values())) < 3
    assert max(map(abs, wrong.values())) > 10
    assert max(passed) < DELTA + 3 * math.sqrt(DELTA / 1_000_000)
    mu, closed = 1.0, GaussianNoise(mu=1.0)
    curve = pld.from_gaussian_mechanism(1 / mu)
    gaps = {
        str(epsilon): float(curve.get_delta_for_epsilon(epsilon)) / closed.delta(epsilon) - 1
        for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0)
    }
    assert max(map(abs, gaps.values())) < 1e-6
    record(
        "risk-dpsgd-games",
        command="python -m pytest -m long tests/risk/test_dpsgd_games.py",
        seed=12,
        figures={
            "games": 1_000_000,
            "noise multiplier, rate, steps": [SIGMA, RATE, STEPS],
            "standard errors off": deviations,
            "standard errors off, noise 5 % smaller": wrong,
            "loss(0.01) passed with, there and absent": passed,
            "dp-accounting's curve over the closed form, Gaussian mu = 1, less 1": gaps,
        },
    )
