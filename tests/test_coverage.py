"""The coverage of a black box: against noises whose coverage is known, and a loop over draws."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from expost._counts import lower_limit, upper_limit
from expost._numerics import row_blocks
from expost.errors import InvalidInput
from expost.noise import Gaussian, NormLaplace
from expost.noise.coverage import empirical_coverage
from expost.types import Audience
from parameters import every_parameter_reaches


def clopper_pearson(inside, samples, confidence):
    miss = (1 - confidence) / 2
    return lower_limit(inside, samples, miss), upper_limit(inside, samples, miss)


@pytest.mark.parametrize(
    "noise", [NormLaplace(rate=3.0, dimension=4), Gaussian(scale=0.7, dimension=4)]
)
@pytest.mark.parametrize("offset", [0.0, 0.8])
def test_it_finds_a_known_coverage_and_not_another(noise, offset):
    # The interval at 1 − 1e-6 misses the truth with that probability at most, four times over.
    centre = np.array([1.0, -2.0, 0.5, 0.0])
    model = centre + offset * np.array([0.6, 0.0, 0.0, 0.8])

    def sampler(size, rng):
        return centre + noise.sample(size, rng)

    coverage = empirical_coverage(sampler, model, 1.1, 40_000, confidence=1 - 1e-6, random_state=7)
    truth = float(noise.coverage(offset, 1.1))
    assert coverage.low <= truth <= coverage.high
    for wrong in (noise.coverage(offset, 1.1 * 1.1), noise.coverage(offset + 0.35, 1.1)):
        assert not coverage.low <= float(wrong) <= coverage.high


def test_it_is_the_fraction_of_a_loop():
    def sampler(size, rng):
        return rng.normal(size=(size, 3))

    coverage = empirical_coverage(sampler, [0.1, 0.2, 0.3], 1.0, 3000, random_state=5)
    inside, seeds = 0, np.random.SeedSequence(5).spawn(len(list(row_blocks(3000, 3))))
    for block, seed in zip(row_blocks(3000, 3), seeds, strict=True):
        for draw in sampler(block.stop - block.start, np.random.default_rng(seed)):
            inside += math.dist(draw, [0.1, 0.2, 0.3]) <= 1.0
    assert coverage.inside == inside
    assert coverage.probability == inside / 3000
    assert (coverage.samples, coverage.radius, coverage.confidence) == (3000, 1.0, 0.95)


def _held(interval, samples, probability):
    """P(the interval holds the truth), summed over every outcome."""
    outcomes = np.arange(samples + 1)
    ends = np.array([interval(int(k), samples) for k in outcomes])
    covers = (ends[:, 0] <= probability) & (probability <= ends[:, 1])
    return float(stats.binom.pmf(outcomes, samples, probability)[covers].sum())


def test_the_interval_keeps_its_guarantee_for_every_truth():
    def exact(inside, samples):
        return clopper_pearson(inside, samples, 0.95)

    def narrow(inside, samples):
        return clopper_pearson(inside, samples, 0.9)

    def wald(inside, samples):
        p = inside / samples
        half = 1.96 * math.sqrt(p * (1 - p) / samples)
        return p - half, p + half

    truths = np.linspace(0.002, 0.998, 250)
    assert min(_held(exact, 60, truth) for truth in truths) >= 0.95
    # The sum sees a wrong level and the wrong kind of interval.
    assert min(_held(narrow, 60, truth) for truth in truths) < 0.93
    assert min(_held(wald, 60, truth) for truth in truths) < 0.5


def test_repeated_runs_hold_the_truth_as_often_as_guaranteed():
    # 400 runs: fewer than 350 hold it with probability < 1e-7 if each does with 0.95; of intervals
    # at 0.5, which each hold it with about 0.6, fewer than 350 always do.
    noise = Gaussian(scale=1.0, dimension=2)
    truth = float(noise.coverage(0.5, 0.6))

    def runs(confidence):
        collected = [
            empirical_coverage(
                noise.sample, [0.5, 0.0], 0.6, 100, confidence=confidence, random_state=seed
            )
            for seed in range(400)
        ]
        return sum(each.low <= truth <= each.high for each in collected)

    assert runs(0.95) >= 350
    assert runs(0.5) < 350


def test_a_seed_gives_the_same_result_again():
    noise = NormLaplace(rate=1.0, dimension=2)

    def run(state):
        return empirical_coverage(noise.sample, [0.0, 0.0], 1.0, 5000, random_state=state)

    assert run(3) == run(3)
    assert run(3) != run(4)
    assert run(np.random.default_rng(3)) == run(np.random.default_rng(3))
    # Without a seed the entropy is the system's: ten runs do not all agree (but for 1e-15).
    assert len({run(None) for _ in range(10)}) > 1


def test_draws_come_in_blocks_of_bounded_size():
    sizes = []

    def sampler(size, rng):
        sizes.append(size)
        return np.zeros((size, 5000))

    coverage = empirical_coverage(sampler, np.zeros(5000), 1.0, 1000, random_state=0)
    assert coverage.probability == 1
    assert sum(sizes) == 1000
    assert max(sizes) <= 64


def test_the_ends_are_certain_only_as_far_as_they_are():
    all_in = empirical_coverage(lambda size, rng: np.zeros((size, 1)), [0.0], 1.0, 50)
    none_in = empirical_coverage(lambda size, rng: np.zeros((size, 1)), [5.0], 1.0, 50)
    assert (all_in.high, none_in.low) == (1.0, 0.0)
    assert all_in.low == pytest.approx(0.025 ** (1 / 50))
    assert none_in.high == pytest.approx(1 - 0.025 ** (1 / 50))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.full((10, 2), math.nan), "NaN"),
        (np.full((10, 2), math.inf), "infinite"),
        (np.zeros((10, 3)), "shape (10, 3)"),
        (np.zeros((9, 2)), "shape (9, 2)"),
        (np.zeros((20, 2)), "shape (20, 2)"),
        (np.zeros(2), "dimensions"),
        (np.zeros((0, 2)), "0 row"),
        ([["a", "b"]] * 10, "numeric"),
        (None, "sampler(size, rng)"),
    ],
)
def test_draws_that_are_no_draws_are_refused(returned, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        empirical_coverage(lambda size, rng: returned, [0.0, 0.0], 1.0, 10)


def test_bad_arguments_are_refused():
    arguments = {
        "sampler": lambda size, rng: np.zeros((size, 1)),
        "model": [0.0],
        "radius": 1.0,
        "samples": 10,
        "confidence": 0.9,
        "random_state": 0,
    }
    every_parameter_reaches(empirical_coverage, arguments)
    for model in ([], [[1.0, 2.0]], [math.nan]):
        with pytest.raises(InvalidInput, match="model"):
            empirical_coverage(**{**arguments, "model": model})


def test_it_is_for_the_curator_only():
    coverage = empirical_coverage(lambda size, rng: np.zeros((size, 1)), [0.0], 1.0, 50)
    assert coverage.audience is Audience.CURATOR_ONLY
