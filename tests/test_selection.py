"""The private choice: its law, its exact sampler, its privacy, what it costs, refusals."""

import inspect
import itertools
import math
import secrets
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.stats

from expost.errors import InvalidInput, SeededReleaseWarning
from expost.selection.private import (
    METHODS,
    SelectionCost,
    accepts,
    byte_source,
    choose,
    select_privately,
    selection_cost,
    selection_probabilities,
    uniform_below,
)
from expost.types import Audience
from parameters import every_parameter_reaches

SCORES = [3.0, 5.0, 4.5, 1.0, 5.0]


def probabilities(scores, sensitivity, epsilon, method, monotone=False):
    return selection_probabilities(scores, sensitivity, epsilon, method=method, monotone=monotone)


# Naive, in as many digits as it takes.


def naive_weights(scores, sensitivity, epsilon, monotone=False):
    rate = mpmath.mpf(epsilon) / (mpmath.mpf(sensitivity) * (1 if monotone else 2))
    return [mpmath.exp(-rate * (mpmath.mpf(max(scores)) - mpmath.mpf(s))) for s in scores]


def naive_exponential(scores, *arguments):
    weights = naive_weights(scores, *arguments)
    return [weight / mpmath.fsum(weights) for weight in weights]


def naive_permute_and_flip(scores, *arguments):
    """Every order of the candidates, one by one."""
    weights = naive_weights(scores, *arguments)
    chances = [mpmath.mpf(0)] * len(scores)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = mpmath.mpf(1) / len(orders)
        for candidate in order:
            chances[candidate] += left * weights[candidate]
            left *= 1 - weights[candidate]
    return chances


def naive_polynomial(scores, *arguments):
    """a·∫Π(1 − at) by the coefficients of the polynomial, which cancel: many digits."""
    weights = naive_weights(scores, *arguments)
    chances = []
    for own, weight in enumerate(weights):
        coefficients = [mpmath.mpf(1)]
        for other, factor in enumerate(weights):
            if other != own:
                padded = [mpmath.mpf(0), *coefficients]
                coefficients = [
                    c - factor * p for c, p in zip([*coefficients, 0], padded, strict=True)
                ]
        chances.append(weight * sum(c / (k + 1) for k, c in enumerate(coefficients)))
    return chances


def agree(result, expected, tolerance=1e-12):
    expected = np.array([float(value) for value in expected])
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=1e-300)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 7.0, 300.0])
def test_the_law_of_a_few_candidates(epsilon, monotone):
    with mpmath.workdps(40):
        for scores in (SCORES, [2.0], [1.0, 1.0, 1.0], [0.0, -80.5, 3.25, 3.0]):
            for method, naive in (
                ("exponential", naive_exponential),
                ("permute-and-flip", naive_permute_and_flip),
                ("permute-and-flip", naive_polynomial),
            ):
                law = probabilities(scores, 0.75, epsilon, method, monotone)
                agree(law, naive(scores, 0.75, epsilon, monotone))


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("count", [30, 80])
def test_permute_and_flip_of_many_candidates(count, spread):
    scores = (spread * np.random.default_rng(count).uniform(size=count)).tolist()
    with mpmath.workdps(150):
        expected = naive_polynomial(scores, 1.0, 1.0)
    agree(probabilities(scores, 1.0, 1.0, "permute-and-flip"), expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_hundred_thousand_candidates(method):
    scores = np.random.default_rng(0).integers(0, 30, size=30_000)
    assert probabilities(scores, 1, 0.5, method).sum() == pytest.approx(1, abs=1e-12)
    ties = probabilities(np.zeros(100_000), 1, 0.5, method)
    np.testing.assert_allclose(ties, 1e-5, rtol=1e-12)


# The sampler, exactly: every branch of the tree of its draws, until little probability is left.


class _NextDraw(Exception):
    def __init__(self, count):
        self.count = count


def enumerate_draws(run, least):
    """({result: probability}, what is left): both exact, branches below ``least`` are left."""
    outcome, left = {}, Fraction(0)
    pending = [((), Fraction(1))]
    while pending:
        script, chance = pending.pop()
        if chance < least:
            left += chance
            continue
        draws = iter(script)

        def below(count, draws=draws):
            for value in draws:
                return value
            raise _NextDraw(count)

        try:
            result = run(below)
        except _NextDraw as draw:
            pending += [((*script, v), chance / draw.count) for v in range(draw.count)]
        else:
            outcome[result] = outcome.get(result, 0) + chance
    return outcome, left


@pytest.mark.parametrize("exponent", ["0", "1/7", "1/2", "2/3", "1", "3/2", "2", "10/3"])
def test_a_coin_has_exactly_its_probability(exponent):
    exponent = Fraction(exponent)
    law, left = enumerate_draws(lambda below: accepts(exponent, below), Fraction(1, 20_000))
    assert left < 0.02
    true = math.exp(-exponent)
    assert law[True] - 1e-15 <= true <= law[True] + left + 1e-15
    assert not law[True] <= math.exp(-exponent * 1.1 - 0.1) <= law[True] + left


def test_an_infinite_exponent_is_never_accepted():
    assert not accepts(None, lambda count: 0)


def test_a_huge_exponent_takes_few_draws():
    draws = []

    def below(count):
        draws.append(count)
        return uniform_below(count, np.random.default_rng(len(draws)).bytes)

    assert not accepts(Fraction(10) ** 400, below)
    assert len(draws) < 200


@pytest.mark.parametrize("method", METHODS)
def test_the_choice_has_exactly_its_law(method):
    exponents = [Fraction(1, 2), Fraction(0), Fraction(2)]
    scores = [-0.5, 0.0, -2.0]
    law, left = enumerate_draws(
        lambda below: choose(exponents, method, below), Fraction(1, 1_000_000)
    )
    assert left < 0.04
    for index, chance in enumerate(probabilities(scores, 1.0, 2.0, method)):
        assert law[index] - 1e-12 <= chance <= law[index] + left + 1e-12
    # Power: the other law, and the same law at 1.5 times the budget, do not fit.
    other = METHODS[1 - METHODS.index(method)]
    for wrong in (
        probabilities(scores, 1.0, 2.0, other),
        probabilities(scores, 1.0, 3.0, method),
    ):
        assert any(not law[i] <= wrong[i] <= law[i] + left for i in range(3))


def test_uniform_integers_from_bytes():
    for count in (1, 2, 5, 7, 8, 200, 256):
        results = []
        for byte in range(256):
            source = iter([bytes([byte])])
            try:
                results.append(
                    uniform_below(count, lambda size, s=source: b"" if size == 0 else next(s))
                )
            except StopIteration:
                continue
        assert set(np.bincount(results, minlength=count)) == {len(results) // count}
    rng = np.random.default_rng(0)
    large = [uniform_below(3 * 2**200, rng.bytes) for _ in range(300)]
    assert all(0 <= value < 3 * 2**200 for value in large)
    assert len({value >> 200 for value in large}) == 3


@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
def test_scores_an_ulp_apart_are_distinguished():
    """0.1 + 0.2 against 0.3, the classic: γ is the exact difference, not 0 and not rounded.

    The budget makes of this difference an exponent of 1.1. A fixed seed; of all seeds one in a
    thousand would fail the first line.
    """
    epsilon = 4e16
    exponent = float(Fraction(epsilon) / 2 * (Fraction(0.1 + 0.2) - Fraction(0.3)))
    counts = draws([0.1 + 0.2, 0.3], epsilon, "exponential", 4_000, np.random.default_rng(3))
    assert fits(counts, [1.0, math.exp(-exponent)]) > 1e-3
    assert fits(counts, [1.0, 1.0]) < 1e-12
    assert fits(counts, [1.0, math.exp(-1.5 * exponent)]) < 1e-9


# Draws.


def draws(scores, epsilon, method, count, random_state=None):
    result = np.zeros(len(scores), dtype=int)
    for _ in range(count):
        result[
            select_privately(scores, 1.0, epsilon, method=method, random_state=random_state)
        ] += 1
    return result


def fits(counts, chances):
    """The p-value of a chi-square test."""
    chances = np.asarray(chances)
    return scipy.stats.chisquare(counts, chances / chances.sum() * counts.sum()).pvalue


@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
@pytest.mark.parametrize("method", METHODS)
def test_draws_follow_the_law(method):
    """A fixed seed; of all seeds one in a thousand would fail the first line."""
    counts = draws(SCORES, 1.0, method, 12_000, np.random.default_rng(7))
    assert fits(counts, probabilities(SCORES, 1, 1.0, method)) > 1e-3
    assert fits(counts, probabilities(SCORES, 1, 1.5, method)) < 1e-12
    # A missing factor 2, either way.
    assert fits(counts, probabilities(SCORES, 1, 2.0, method)) < 1e-12
    assert fits(counts, probabilities(SCORES, 1, 0.5, method)) < 1e-12
    assert fits(counts, probabilities(SCORES, 1, 1.0, method, monotone=True)) < 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_draws_of_the_operating_system_follow_the_law(method, monkeypatch):
    """Not seeded: fails once in 10⁹ runs."""

    def no_generator(*arguments):
        raise AssertionError("a release must not draw from NumPy")

    monkeypatch.setattr(np.random, "default_rng", no_generator)
    counts = draws(SCORES, 1.0, method, 6_000)
    assert fits(counts, probabilities(SCORES, 1, 1.0, method)) > 1e-9
    assert fits(counts, probabilities(SCORES, 1, 2.0, method)) < 1e-12


def test_without_a_random_state_bytes_are_the_operating_systems():
    assert byte_source(None) is secrets.token_bytes


def test_a_random_state_repeats_and_warns():
    scores = np.zeros(1000)
    with pytest.warns(SeededReleaseWarning, match=r"seed.*use None") as caught:
        first = select_privately(scores, 1, 1, random_state=3)
    assert caught[0].filename == __file__
    with pytest.warns(SeededReleaseWarning):
        assert select_privately(scores, 1, 1, random_state=3) == first
    with pytest.warns(SeededReleaseWarning):
        assert select_privately(scores, 1, 1, random_state=4) != first
    rng = np.random.default_rng(3)
    with pytest.warns(SeededReleaseWarning):
        assert select_privately(scores, 1, 1, random_state=rng) == first
    with pytest.warns(SeededReleaseWarning):
        assert select_privately(scores, 1, 1, random_state=rng) != first


# Privacy, from the exact probabilities.


def log_ratio(scores, others, epsilon, method, monotone=False, sensitivity=1.0):
    here = probabilities(scores, sensitivity, epsilon, method, monotone)
    there = probabilities(others, sensitivity, epsilon, method, monotone)
    return float(np.max(np.abs(np.log(here) - np.log(there))))


@pytest.mark.parametrize("method", METHODS)
def test_neighbours_are_within_epsilon(method):
    rng = np.random.default_rng(1)
    largest = {False: 0.0, True: 0.0, "wrong": 0.0}
    for _ in range(300):
        count = int(rng.integers(2, 9))
        epsilon, sensitivity = float(rng.uniform(0.05, 4)), float(rng.uniform(0.1, 3))
        scores = rng.normal(scale=rng.choice([0.3, 3.0]), size=count)
        signs = rng.choice([-1.0, 1.0], size=count) * sensitivity
        for monotone, change in ((False, signs), (True, (signs + sensitivity) / 2)):
            ratio = log_ratio(scores, scores + change, epsilon, method, monotone, sensitivity)
            assert ratio <= epsilon + 1e-10
            largest[monotone] = max(largest[monotone], ratio / epsilon)
        wrong = log_ratio(scores, scores + signs, epsilon, method, True, sensitivity)
        largest["wrong"] = max(largest["wrong"], wrong / epsilon)
    assert largest[False] > 0.9
    assert largest[True] > 0.9
    # Power: scores that are not monotone cost more than what monotone ones would.
    assert largest["wrong"] > 1.5


@pytest.mark.parametrize("method", METHODS)
def test_the_bound_is_reached(method):
    """A candidate far down moves up, the others down: nothing of epsilon is left unused."""
    scores, others = np.array([-30.0, 0.0, 0.0]), np.array([-29.0, -1.0, -1.0])
    assert log_ratio(scores, others, 1.0, method) == pytest.approx(1.0, abs=1e-6)
    others = np.array([-30.0, 1.0, 1.0])
    assert log_ratio(scores, others, 1.0, method, monotone=True) == pytest.approx(1, abs=1e-6)


# What it costs.


def test_the_lectures_hair_colours():
    """500 dark against 399 brown at ε = 0.1: dark with probability at least 1 − 4e⁻⁵ = 0.973."""
    for method in METHODS:
        for rest in ([399, 399], [0, 0], [398, 12]):
            cost = selection_cost([399, 500, *rest], 1, 0.1, method=method)
            assert cost.best_probability >= 1 - 4 * math.exp(-5) >= 0.973
            assert cost.best_probability < 0.9995
    bound = selection_cost([500, 399, 50, 51], 1, 0.1, failure=4 * math.exp(-5)).shortfall_bound
    assert bound == pytest.approx(500 - 400, rel=1e-12)


def test_the_cost_is_that_of_the_probabilities():
    cost = selection_cost(SCORES, 2.0, 1.5, method="permute-and-flip", failure=0.1)
    chances = probabilities(SCORES, 2.0, 1.5, "permute-and-flip")
    np.testing.assert_array_equal(cost.probabilities, chances)
    assert cost.best_probability == pytest.approx(chances[1] + chances[4])
    assert cost.expected_shortfall == pytest.approx(5 - chances @ SCORES)
    assert cost.shortfall_bound == pytest.approx(2 * 2.0 / 1.5 * math.log(5 / (0.1 * 2)))
    half = selection_cost(SCORES, 2.0, 1.5, monotone=True, failure=0.1)
    assert half.shortfall_bound == pytest.approx(cost.shortfall_bound / 2)
    assert cost.audience is Audience.NEEDS_REVIEW
    assert isinstance(cost, SelectionCost)
    assert "Private choice among 5 candidates" in str(cost)


@pytest.mark.parametrize("method", METHODS)
def test_the_bound_holds(method):
    rng = np.random.default_rng(2)
    closest = 0.0
    for _ in range(300):
        scores = rng.integers(0, rng.integers(2, 40), size=rng.integers(2, 30))
        epsilon, failure = float(rng.uniform(0.1, 3)), float(rng.uniform(0.01, 0.9))
        cost = selection_cost(scores, 1, epsilon, method=method, failure=failure)
        short = scores.max() - scores
        chance = float(cost.probabilities[short > cost.shortfall_bound].sum())
        assert chance <= failure
        closest = max(closest, chance / failure)
    # The bound is no idle one.
    assert closest > 0.1


def test_permute_and_flip_never_loses_more():
    rng = np.random.default_rng(3)
    saved = []
    for _ in range(500):
        scores = rng.exponential(rng.choice([0.1, 1.0, 10.0]), size=rng.integers(1, 40))
        epsilon = float(rng.uniform(0.05, 5))
        flip = selection_cost(scores, 1, epsilon, method="permute-and-flip")
        plain = selection_cost(scores, 1, epsilon)
        assert flip.expected_shortfall <= plain.expected_shortfall * (1 + 1e-11) + 1e-300
        assert flip.best_probability >= plain.best_probability * (1 - 1e-11)
        if len(scores) > 1:
            saved.append(flip.expected_shortfall / plain.expected_shortfall)
    # It saves up to a half.
    assert 0.5 <= min(saved) < 0.6


# Edges.


@pytest.mark.parametrize("method", METHODS)
def test_an_infinite_epsilon_chooses_the_best(method):
    assert {select_privately(SCORES, 1, math.inf, method=method) for _ in range(60)} == {1, 4}
    np.testing.assert_allclose(
        probabilities(SCORES, 1, math.inf, method), [0, 0.5, 0, 0, 0.5], atol=1e-15
    )
    cost = selection_cost(SCORES, 1, math.inf, method=method)
    assert (cost.expected_shortfall, cost.shortfall_bound) == (0, 0)


@pytest.mark.parametrize("method", METHODS)
def test_extreme_numbers(method):
    assert select_privately([7], 1, 1, method=method) == 0
    assert probabilities([7], 1, 1, method).tolist() == pytest.approx([1.0])
    assert select_privately([1e150, -1e150], 5e-324, 1e300, method=method) == 0
    assert probabilities([1e150, -1e150], 5e-324, 1e300, method).tolist() == pytest.approx([1, 0])
    np.testing.assert_allclose(probabilities([0, 1, 1e6], 1e300, 1e-300, method), 1 / 3)
    assert select_privately([0, 1, 1e6], 1e300, 1e-300, method=method) in (0, 1, 2)
    assert selection_cost([0, 1], 1e308, 5e-324, method=method).shortfall_bound == math.inf
    assert type(select_privately(np.array([1, 2]), np.int64(1), np.float64(1))) is int


@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
@pytest.mark.parametrize("function", [select_privately, selection_probabilities, selection_cost])
def test_every_parameter_reaches_its_validator(function):
    good = {"scores": [1.0, 2.0], "sensitivity": 1.0, "epsilon": 1.0}
    names = inspect.signature(function).parameters
    every_parameter_reaches(function, good, names)
    for change in ({"scores": []}, {"scores": [1.0, math.nan]}, {"scores": [[1.0, 2.0]]},
                   {"sensitivity": 0}, {"sensitivity": math.inf}, {"epsilon": 0}):  # fmt: skip
        with pytest.raises(InvalidInput, match=next(iter(change))):
            function(**{**good, **change})


# The page.
