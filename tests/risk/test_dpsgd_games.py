"""DP-SGD's figures against games that are played, dp-accounting's own curves, and riskcal."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from riskcal import analysis
from riskcal.calibration import dpsgd as riskcal_dpsgd

from evidence import record
from expost import risk
from expost.errors import ExpostError
from expost.risk import DPSGD, GaussianNoise

SIGMA, RATE, STEPS = 1.0, 0.3, 5
DELTA = 0.01


def play(games, rng, sigma=SIGMA):
    """ℓ of a row with gradient 1, in games where it was there and in games where it was not."""
    losses = []
    for there in (True, False):
        loss = np.zeros(games)
        for _ in range(STEPS):
            seen = sigma * rng.standard_normal(games)
            if there:
                seen += rng.random(games) < RATE
            loss += np.log((1 - RATE) + RATE * np.exp((2 * seen - 1) / (2 * sigma**2)))
        losses.append(loss)
    return losses


def scores(promise, games, seed, sigma=SIGMA):
    """Standard errors between what was played and what is promised, by figure."""
    there, absent = play(games, np.random.default_rng(seed), sigma)

    def score(mean, spread, told):
        # The figures of a distribution on a grid are themselves bounds, right to about 1e-4.
        return float((mean - told) / (spread / math.sqrt(games) + 1e-4 * told))

    hits, alarms = there > 0, absent > 0
    found = {
        "advantage": score(
            hits.mean() - alarms.mean(), math.hypot(hits.std(), alarms.std()), promise.advantage
        )
    }
    for epsilon in (0.5, 1.0):
        # The larger of the two directions: the row there against absent, and the other way.
        terms = [np.maximum(-np.expm1(epsilon - way), 0.0) for way in (there, -absent)]
        worst = max(terms, key=np.mean)
        found[f"delta at {epsilon}"] = score(worst.mean(), worst.std(), promise.delta(epsilon))
    for fpr in (0.01, 0.1):
        threshold = np.quantile(absent, 1 - fpr)
        rate = np.mean(there > threshold)
        # The threshold was sampled, too: by the slope of the curve, e^threshold.
        spread = math.hypot(
            math.sqrt(rate * (1 - rate)), math.exp(threshold) * math.sqrt(fpr * (1 - fpr))
        )
        found[f"found at {fpr}"] = score(rate, spread, promise.true_positive_rate(fpr))
    return found, (
        float(np.mean(there > promise.loss(DELTA))),
        float(np.mean(absent < -promise.loss(DELTA))),
    )


def check(games, seed):
    promise = DPSGD(noise_multiplier=SIGMA, sampling_rate=RATE, steps=STEPS)
    found, passed = scores(promise, games, seed)
    wrong, _ = scores(promise, games, seed, sigma=0.95 * SIGMA)
    return found, wrong, passed


def test_figures_are_those_of_games_that_are_played():
    found, wrong, passed = check(100_000, 11)
    assert max(map(abs, found.values())) < 3.5
    assert max(map(abs, wrong.values())) > 5
    assert max(passed) < DELTA + 3.5 * math.sqrt(DELTA / 100_000)


@pytest.mark.long
def test_figures_are_those_of_a_million_games():
    found, wrong, passed = check(1_000_000, 12)
    assert max(map(abs, found.values())) < 3
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
            "standard errors off": found,
            "standard errors off, noise 5 % smaller": wrong,
            "loss(0.01) passed with, there and absent": passed,
            "dp-accounting's curve over the closed form, Gaussian mu = 1, less 1": gaps,
        },
    )


def test_a_full_batch_is_gaussian_as_dp_accounting_has_it():
    promise, curve = DPSGD(noise_multiplier=2.0, steps=4), pld.from_gaussian_mechanism(1.0)
    for epsilon in (0.0, 1.0, 3.0):
        told = promise.delta(epsilon)
        assert told == pytest.approx(float(curve.get_delta_for_epsilon(epsilon)), rel=1e-6)
        assert told == pytest.approx(GaussianNoise(mu=1.0).delta(epsilon), rel=1e-12)


def test_riskcal_agrees_about_dp_sgd():
    sigma, rate, steps = 0.8, 0.02, 500
    promise = DPSGD(noise_multiplier=sigma, sampling_rate=rate, steps=steps)
    theirs = pld.from_gaussian_mechanism(sigma, sampling_prob=rate).self_compose(steps)
    # Both are bounds from above; theirs is on a grid of 1e-4.
    assert promise.advantage == pytest.approx(analysis.get_advantage_from_pld(theirs), abs=1e-3)
    for fpr in (0.001, 0.01, 0.1):
        beta = float(analysis.get_beta_from_pld(theirs, alpha=fpr))
        assert 1 - promise.true_positive_rate(fpr) == pytest.approx(beta, abs=2e-3)
        assert abs(1 - 1.02 * promise.true_positive_rate(fpr) - beta) > 2e-4
    assert promise.epsilon(1e-5) == pytest.approx(theirs.get_epsilon_for_delta(1e-5), rel=1e-3)


def test_riskcal_agrees_about_the_noise_that_keeps_an_advantage():
    ours = risk.calibrate(DPSGD, advantage=0.2, steps=300, sampling_rate=0.02).noise_multiplier
    theirs = riskcal_dpsgd.get_advantage_for_dpsgd(
        noise_multiplier=ours, sample_rate=0.02, num_steps=300
    )
    assert theirs == pytest.approx(0.2, abs=2e-3)
    assert DPSGD(noise_multiplier=ours, sampling_rate=0.02, steps=300).advantage <= 0.2


def test_calibrations_keep_their_goal_and_little_more():
    plan = {"steps": 200, "sampling_rate": 0.05}
    goals = {
        "epsilon": (risk.calibrate(DPSGD, epsilon=2.0, delta=1e-5, **plan).noise_multiplier, 2.0),
        "posterior": (
            risk.calibrate(DPSGD, posterior=0.9, delta=1e-5, **plan).noise_multiplier,
            0.9,
        ),
    }

    def told(goal, sigma):
        promise = DPSGD(noise_multiplier=sigma, **plan)
        return promise.epsilon(1e-5) if goal == "epsilon" else promise.posterior(delta=1e-5)

    for goal, (sigma, most) in goals.items():
        assert told(goal, sigma) <= most
        assert told(goal, 0.99 * sigma) > most


@pytest.mark.parametrize("bad", [math.nan, -1.0, 0.0, math.inf, None, "1"])
def test_no_noise_multiplier_that_is_no_number_is_private(bad):
    """dp-accounting answers 0, perfect privacy, for a σ that is NaN."""
    with pytest.raises(ExpostError):
        DPSGD(noise_multiplier=bad, sampling_rate=0.01, steps=10).epsilon(1e-5)
