"""The verdict's rule, branch by branch, on gains made of plain numbers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.epsilon.recommend import GRID, Verdict, decide, search
from expost.epsilon.utility import Curve, Utility
from expost.estimators import PrivateLogisticRegression
from expost.losses import Logistic

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
ROWS = 1000


def plan(epsilon):
    return PrivateLogisticRegression(epsilon=epsilon).mechanism_for(Logistic(), ROWS, 20)


def utility(gains, *, best=0.2, error=0.001, gap_error=0.001, epsilons=EPSILONS, least=None):
    gains = np.array(gains, dtype=float)
    few = np.full(len(gains), error)
    curve = Curve(
        mean=0.6 - gains,
        low=0.6 - gains - 0.01,
        high=0.6 - gains + 0.01,
        error=few,
        base_rate=0.6,
        best=0.6 - best,
        gain=gains,
        gain_error=few,
        least_gain=gains - 0.01 if least is None else np.array(least),
        gap=best - gains,
        gap_error=np.full(len(gains), gap_error),
        best_gain=best,
        best_error=error,
    )
    return Utility(
        epsilons=np.array(epsilons),
        measure="log_loss",
        folds=5,
        releases=4,
        rows=ROWS,
        curves={"log_loss": curve},
    )


def decided(gains, ceiling=3.0, share=0.95, **options):
    advice = decide(plan, ceiling, utility(gains, **options), share=share)
    assert (advice.ceiling, advice.required_share) == (ceiling, share)
    return advice


def test_the_smallest_that_is_enough_with_all_larger_ones():
    advice = decided([0.1, 0.15, 0.191, 0.195, 0.199])
    assert (advice.verdict, advice.epsilon, advice.enough) == (Verdict.ENOUGH, 1.0, 1.0)
    assert advice.share == pytest.approx(0.955)
    # One that is not enough above it moves it up.
    assert decided([0.1, 0.191, 0.15, 0.195, 0.199]).epsilon == 3.0
    # Another share.
    assert decided([0.1, 0.15, 0.191, 0.195, 0.199], share=0.7).epsilon == 0.3


def test_a_gap_within_a_standard_error_is_enough():
    gains = [0.1, 0.15, 0.18, 0.195, 0.199]
    assert decided(gains, gap_error=0.03).epsilon == 1.0
    assert decided(gains, gap_error=0.01).epsilon == 3.0


def test_a_gain_that_may_be_chance_is_not_enough():
    assert decided([0.1, 0.15, 0.191, 0.195, 0.199], error=0.097).epsilon == 3.0


def test_the_most_that_the_limit_allows():
    advice = decided([0.1, 0.15, 0.17, 0.181, 0.195])
    assert (advice.verdict, advice.epsilon, advice.enough) == (Verdict.MOST, 3.0, 10.0)
    assert advice.share == pytest.approx(0.905)
    # By the ratio of the noises: with so many rows the ceiling is what ε = 10 is now.
    ratio = plan(3.0).forecast.noise_ratio / plan(10.0).forecast.noise_ratio
    assert advice.rows_needed == math.ceil(ROWS * ratio)
    beyond = decided([0.1, 0.15, 0.17, 0.18, 0.18])
    assert (beyond.verdict, beyond.enough, beyond.rows_needed) == (Verdict.MOST, None, None)


@pytest.mark.parametrize(
    "options", [{"gains": [-0.1, -0.1, 0.0, 0.001, 0.15]}, {"least": [0, 0, 0, -0.001, 0.1]}]
)
def test_none_beats_the_base_rate(options):
    advice = decided(**{"gains": [0.01, 0.02, 0.05, 0.1, 0.15], **options})
    assert (advice.verdict, advice.epsilon) == (Verdict.NONE, None)
    assert advice.better == 10.0
    assert advice.rows_needed > ROWS
    assert 0 < advice.columns_needed < plan(3.0).dimension == 20
    worse = decided([-0.1] * 5)
    assert (worse.better, worse.rows_needed, worse.columns_needed) == (None, None, None)


def test_a_constant_that_beats_another_is_no_model():
    """Much noise leaves θ near 0: a certain gain that is next to nothing."""
    advice = decided([0.002] * 4 + [0.195], error=1e-5, least=[0.001] * 4 + [0.19])
    assert (advice.verdict, advice.epsilon) == (Verdict.NONE, None)


def test_useless_even_without_noise():
    advice = decided([0.001] * 5, best=0.001, error=0.001)
    assert (advice.verdict, advice.epsilon) == (Verdict.USELESS, None)
    assert decided([0.1] * 5, best=-0.1).verdict is Verdict.USELESS


def test_without_a_utility_the_ceiling_is_all_that_is_known():
    advice = decide(plan, 2.6, None, share=0.95)
    assert (advice.verdict, advice.epsilon) == (Verdict.MOST, 2.6)
    assert (advice.share, advice.enough) == (None, None)
    nothing = decide(None, 0.0, None, share=0.95)
    assert (nothing.verdict, nothing.epsilon) == (Verdict.NONE, None)


def test_no_epsilon_keeps_the_limit():
    advice = decide(plan, 0.0, utility([0.1, 0.15, 0.19, 0.2, 0.2]), share=0.95)
    assert (advice.verdict, advice.epsilon) == (Verdict.NONE, None)
    assert (advice.ceiling, advice.share, advice.rows_needed) == (0.0, None, None)


@settings(max_examples=200)
@given(
    gains=st.lists(st.floats(-0.5, 0.3), min_size=5, max_size=5),
    best=st.floats(-0.1, 0.3),
    error=st.floats(1e-4, 0.1),
    ceiling=st.sampled_from([0.1, 0.3, 1.0, 3.0, 10.0]),
)
def test_a_recommendation_keeps_every_guarantee(gains, best, error, ceiling):
    advice = decided(gains, ceiling, best=best, error=error, gap_error=error)
    if advice.epsilon is None:
        assert advice.verdict in (Verdict.NONE, Verdict.USELESS)
        return
    assert advice.epsilon <= ceiling
    index = EPSILONS.index(advice.epsilon)
    # Better than the base rate, and not by chance, nor by next to nothing.
    assert gains[index] > 2 * error
    assert gains[index] > 0.05 * best
    assert best > 2 * error
    if advice.verdict is Verdict.ENOUGH:
        assert all(best - gain <= max(error, 0.05 * best) + 1e-12 for gain in gains[index:])
    assert advice.share == pytest.approx(gains[index] / best)


class Staged:
    """Trials whose gain follows a curve of ε: what is tried is recorded."""

    def __init__(self, gain):
        self.gain, self.tried = gain, []

    def score(self, *epsilons):
        self.tried += [epsilon for epsilon in epsilons if epsilon not in self.tried]

    def utility(self):
        epsilons = sorted(self.tried)
        return utility([self.gain(epsilon) for epsilon in epsilons], epsilons=epsilons)


def test_the_search_closes_in_on_the_first_that_is_enough():
    trials = Staged(lambda epsilon: 0.2 * epsilon / (epsilon + 0.02))
    advice = search(trials, 2.5, 0.95, ())
    assert set(trials.tried) > {*GRID, 2.5}
    chosen = decide(plan, 2.5, advice, share=0.95)
    # 95 % at ε = .38: within a factor of 1.35 above it.
    assert 0.38 <= chosen.epsilon <= 0.38 * 1.35
    # A grid that is given is not refined.
    given_grid = Staged(trials.gain)
    search(given_grid, 2.5, 0.95, (0.1, 1.0))
    assert sorted(given_grid.tried) == [0.1, 1.0, 2.5]


def test_the_search_goes_beyond_the_grid_where_nothing_is_enough():
    trials = Staged(lambda epsilon: 0.2 * epsilon / (epsilon + 1.0))
    advice = search(trials, 2.5, 0.95, ())
    assert max(trials.tried) == 30.0
    assert decide(plan, 2.5, advice, share=0.95).enough > 10
    # And nowhere where nothing can be learnt.
    nothing = Staged(lambda epsilon: -0.1)
    nothing.utility = lambda: utility(
        [-0.1] * len(nothing.tried), best=0.0, epsilons=sorted(nothing.tried)
    )
    search(nothing, 2.5, 0.95, ())
    assert max(nothing.tried) == 10.0
