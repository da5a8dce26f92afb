"""The least noise that keeps a goal: it keeps it, a little less does not, and riskcal agrees."""

import math

import pytest
from riskcal.calibration.dpsgd import find_noise_multiplier_for_advantage

from expost.errors import InvalidInput
from expost.risk import (
    DPSGD,
    GaussianNoise,
    mu_from_advantage,
    mu_from_epsilon,
    mu_from_true_positive_rate,
    noise_multiplier_for_advantage,
    noise_multiplier_for_belief,
    noise_multiplier_for_epsilon,
    noise_multiplier_for_one_in,
    noise_multiplier_for_true_positive_rate,
)
from expost.types import Neighbouring

RUN = {"steps": 200, "sampling_rate": 0.05}
GOALS = {
    "epsilon": (
        lambda run: noise_multiplier_for_epsilon(1.5, delta=1e-5, **run),
        lambda promise: promise.epsilon(1e-5) <= 1.5,
    ),
    "belief": (
        lambda run: noise_multiplier_for_belief(0.9, delta=1e-4, prior=0.3, **run),
        lambda promise: promise.belief(0.3, delta=1e-4) <= 0.9,
    ),
    "one_in": (
        lambda run: noise_multiplier_for_one_in(11.0, prior=0.01, delta=1e-3, **run),
        lambda promise: promise.one_in(0.01, delta=1e-3) >= 11,
    ),
    "advantage": (
        lambda run: noise_multiplier_for_advantage(0.1, **run),
        lambda promise: promise.advantage <= 0.1,
    ),
    "true_positive_rate": (
        lambda run: noise_multiplier_for_true_positive_rate(0.05, false_positive_rate=0.01, **run),
        lambda promise: promise.true_positive_rate(0.01) <= 0.05,
    ),
}


@pytest.mark.parametrize("name", GOALS)
def test_it_is_the_least_that_keeps_the_goal(name):
    calibrate, keeps = GOALS[name]
    noise = calibrate(RUN)
    assert keeps(DPSGD(noise_multiplier=noise, **RUN))
    assert not keeps(DPSGD(noise_multiplier=noise * (1 - 1e-3), **RUN))


def test_replacing_needs_more():
    removed = noise_multiplier_for_advantage(0.2, **RUN)
    replaced = noise_multiplier_for_advantage(0.2, relation=Neighbouring.REPLACE, **RUN)
    assert replaced > 1.5 * removed
    promise = DPSGD(noise_multiplier=replaced, relation="replace", **RUN)
    assert promise.advantage <= 0.2


def test_without_sampling_it_is_the_closed_form():
    run = {"steps": 25, "sampling_rate": 1.0}
    assert noise_multiplier_for_epsilon(1.0, delta=1e-6, **run) == pytest.approx(
        5 / mu_from_epsilon(1.0, delta=1e-6), rel=1e-9
    )
    assert noise_multiplier_for_advantage(0.1, **run) == pytest.approx(
        5 / mu_from_advantage(0.1), rel=1e-9
    )
    assert noise_multiplier_for_true_positive_rate(0.1, false_positive_rate=0.02, **run) == (
        pytest.approx(5 / mu_from_true_positive_rate(0.1, false_positive_rate=0.02), rel=1e-9)
    )
    noise = noise_multiplier_for_belief(0.9, delta=1e-5, steps=1, sampling_rate=1.0)
    assert GaussianNoise(mu=1 / noise).belief(delta=1e-5) == pytest.approx(0.9, rel=1e-9)
    # Steps may react to those before them, and need more noise than one release of their √Σμ².
    assert noise_multiplier_for_belief(0.9, delta=1e-5, **run) > 5 * noise


def test_riskcal_agrees():
    """To its tolerance of 1e-3 in the advantage, at a grid of 1e-3."""
    theirs = find_noise_multiplier_for_advantage(
        advantage=0.1, sample_rate=0.05, num_steps=200, grid_step=1e-3
    )
    ours = noise_multiplier_for_advantage(0.1, **RUN)
    assert DPSGD(noise_multiplier=theirs, **RUN).advantage == pytest.approx(0.1, abs=1e-3)
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_a_row_that_is_hardly_ever_sampled_needs_no_noise():
    """It is told all with a chance of 1e-8, which the goal allows: the least noise there is."""
    noise = noise_multiplier_for_belief(0.9, delta=1e-3, steps=1, sampling_rate=1e-8)
    assert noise == 1e-4
    assert DPSGD(noise_multiplier=noise, sampling_rate=1e-8).belief(delta=1e-3) < 0.501


def test_more_is_asked_of_more_steps():
    few, many = (
        noise_multiplier_for_epsilon(1.0, delta=1e-5, steps=steps, sampling_rate=0.02)
        for steps in (100, 1000)
    )
    assert many > 1.5 * few


def test_goals_that_cannot_be_kept():
    with pytest.raises(InvalidInput, match="no noise multiplier"):
        noise_multiplier_for_advantage(1e-12, steps=10**6, sampling_rate=1.0)
    for bad in (0.5, 0.2, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="belief"):
            noise_multiplier_for_belief(bad, delta=1e-5, **RUN)
    with pytest.raises(InvalidInput, match="k="):
        noise_multiplier_for_one_in(200.0, prior=0.01, delta=1e-5, **RUN)
    with pytest.raises(InvalidInput, match="true_positive_rate"):
        noise_multiplier_for_true_positive_rate(0.01, false_positive_rate=0.02, **RUN)
    for bad in (0.0, -1.0, math.nan, math.inf, "1"):
        with pytest.raises(InvalidInput, match="epsilon"):
            noise_multiplier_for_epsilon(bad, delta=1e-5, **RUN)
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="delta"):
            noise_multiplier_for_epsilon(1.0, delta=bad, **RUN)
        with pytest.raises(InvalidInput, match="advantage"):
            noise_multiplier_for_advantage(bad, **RUN)
    with pytest.raises(InvalidInput, match="steps"):
        noise_multiplier_for_advantage(0.1, steps=0, sampling_rate=0.1)
    with pytest.raises(InvalidInput, match="sampling_rate"):
        noise_multiplier_for_advantage(0.1, steps=10, sampling_rate=1.5)
