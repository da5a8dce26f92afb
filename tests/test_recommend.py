"""The recommendation's rule, branch by branch, on sweeps made of plain numbers."""

import math
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from expost.epsilon.recommend import recommend
from expost.epsilon.sweep import BeliefBound
from expost.epsilon.utility import Curve, Utility
from expost.rounding import rounded_down

BOUND = BeliefBound(largest=0.75)


@dataclass
class Plain:
    """Belief is ε/(1 + ε) here, so that it is .75 at ε = 3."""

    low: float = 5.0
    high: float = 100.0
    measure: str = "what the test follows"
    least: float = 0.0

    def belief(self, bound, epsilons):
        return np.maximum(epsilons / (1 + epsilons), self.least)


def curve(mean, error=0.01, noiseless=0.99, base_rate=0.6):
    mean = np.array(mean, dtype=float)
    return Curve(
        mean=mean,
        low=mean - 0.05,
        high=mean + 0.03,
        error=np.full(len(mean), error),
        base_rate=base_rate,
        noiseless=noiseless,
    )


def utility(epsilons, mean, measure="accuracy", **options):
    return Utility(
        epsilons=np.array(epsilons, dtype=float),
        folds=5,
        releases=40,
        **{measure: curve(mean, **options)},
    )


def said(recommendation):
    text = " ".join(recommendation.reasons)
    # Whole sentences, none of them with a number that is not one.
    assert all(reason.endswith(".") for reason in recommendation.reasons)
    assert all(reason[0].isupper() or reason[0] == "ε" for reason in recommendation.reasons)
    assert "nan" not in text
    assert "inf " not in text
    return text


class TestWithoutUtility:
    def test_the_belief_decides_below_the_transition(self):
        found = recommend(Plain(), BOUND, 2.9999, None, None)
        assert found.epsilon == 2.9999
        text = said(found)
        assert "The belief decides: up to ε = 2.99 " in text
        assert "stays within 0.75" in text
        assert "The transition lies above that" in text
        assert "0.833" in text, "the belief at low = 5"
        assert "Below ε = 5 every row is on its first plateau" in text
        assert "above ε = 100 no more privacy is lost" in text
        assert "what the test follows" in text
        assert "not measured" in text

    def test_the_belief_decides_inside_the_transition(self):
        found = recommend(Plain(), BOUND, 42.9, None, None)
        assert found.epsilon == 42.9
        assert "decides inside the transition: up to ε = 42.9 " in said(found)
        assert "lies above that" not in said(found)

    def test_the_belief_does_not_decide(self):
        for limit in (100.0, 250.0, math.inf):
            found = recommend(Plain(), BeliefBound(largest=0.995), limit, None, None)
            assert found.epsilon == 100
            text = said(found)
            assert "does not limit ε here" in text
            assert "0.991 at ε = 100, within 0.995" in text

    def test_rows_that_never_arrive(self):
        found = recommend(Plain(high=math.inf), BOUND, 3.0, None, None)
        assert found.epsilon == 3
        assert "no ε brings the asked share of rows to its second regime" in said(found)
        found = recommend(Plain(high=math.inf), BOUND, 30.0, None, None)
        assert found.epsilon == 30
        assert "inside the transition" in said(found)

    def test_no_epsilon_has_all_rows_on_their_plateau(self):
        """Gaussian noise at a large δ: no bound of the user's is broken by that."""
        found = recommend(Plain(low=0.0), BOUND, 3.0, None, None)
        assert found.epsilon == 3
        assert "At no ε is every row on its first plateau" in said(found)

    def test_a_transition_that_was_not_found(self):
        """A sampled sweep may not find it: what is not known is no bound, the belief decides."""
        for sweep in (
            Plain(low=math.nan),
            Plain(high=math.nan),
            Plain(low=math.nan, high=math.nan),
        ):
            found = recommend(sweep, BOUND, 3.0, None, None)
            assert found.epsilon == 3
            assert "not found" in said(found)
            assert "stays within 0.75" in said(found)
        found = recommend(Plain(high=math.nan), BOUND, math.inf, None, None)
        assert found.epsilon is None

    def test_the_words_name_prior_and_quantile(self):
        bound = BeliefBound(largest=0.4, prior=0.125, quantile=0.95)
        text = said(recommend(Plain(), bound, 3.0, None, None))
        assert "0.95-quantile of belief" in text
        assert "from a prior of 0.125" in text
        assert "within 0.4" in text


class TestNone:
    def test_no_epsilon_keeps_the_belief(self):
        for limit in (0.0, math.nan):
            found = recommend(Plain(low=0.0, least=0.83), BOUND, limit, None, None)
            assert found.epsilon is None
            text = said(found)
            assert "0.75" in text
            assert "0.83" in text, "what even the smallest ε leaves"
            assert "0.08 more" in text, "by how much"

    def test_nothing_limits_epsilon(self):
        found = recommend(Plain(low=math.inf, high=math.inf), BOUND, math.inf, None, None)
        assert found.epsilon is None
        assert "Nothing limits ε" in said(found)

    def test_the_utility_fails_and_by_how_much(self):
        measured = utility([1, 3, 5, 30, 100], [0.5, 0.612, 0.7, 0.9, 0.95])
        found = recommend(Plain(), BOUND, 3.0, measured, 0.9)
        assert found.epsilon is None
        text = said(found)
        assert "No ε keeps every bound: at ε = 3, the largest that is left" in text
        assert "accuracy is 0.612, which is 0.288 short of the 0.9 asked for" in text
        assert "It is reached at ε = 30" in text
        assert "is 0.968, 0.218 more than allowed" in text

    def test_it_is_reached_past_the_transition(self):
        measured = utility([5, 100, 1000], [0.5, 0.8, 0.95])
        text = said(recommend(Plain(), BeliefBound(largest=0.9999), 5000.0, measured, 0.9))
        assert "0.1 short" in text
        assert "reached at ε = 1000" in text
        assert "past the end of the transition" in text
        assert "more than allowed" not in text

    def test_not_even_without_noise(self):
        measured = utility([3, 100], [0.6, 0.7], noiseless=0.85)
        found = recommend(Plain(), BOUND, 3.0, measured, 0.9)
        assert found.epsilon is None
        assert "Not even without noise is it reached: accuracy is 0.850" in said(found)

    def test_no_value_tried_reaches_it(self):
        measured = utility([3, 100], [0.6, 0.7], noiseless=0.95)
        found = recommend(Plain(), BOUND, 3.0, measured, 0.9)
        assert found.epsilon is None
        assert "widen epsilons" in said(found)

    def test_a_shortfall_is_never_shown_as_nothing(self):
        measured = utility([3, 100], [0.89962, 0.95])
        text = said(recommend(Plain(), BOUND, 3.0, measured, 0.9))
        assert "0.000 short" not in text

    def test_an_epsilon_that_keeps_every_bound_is_not_denied(self):
        """Means need not be monotone: a smaller ε that was tried may reach what the ceiling misses."""
        measured = utility([1, 2, 5], [0.91, 0.89, 0.95])
        found = recommend(Plain(), BOUND, 2.0, measured, 0.9)
        assert found.epsilon == 1
        said(found)

    def test_a_utility_that_was_not_measured_there_is_not_granted(self):
        measured = utility([1000.0], [0.5])
        found = recommend(Plain(), BOUND, 3.0, measured, 0.4)
        assert found.epsilon is None
        assert "not measured" in said(found)
        free = recommend(Plain(), BOUND, 3.0, measured, None)
        assert free.epsilon == 3
        assert "not measured" in said(free)


class TestUtility:
    def test_the_smallest_that_reaches_what_was_asked(self):
        measured = utility([1, 5, 8, 20, 60, 100, 500], [0.5, 0.6, 0.7, 0.82, 0.9, 0.93, 0.99])
        found = recommend(Plain(), BeliefBound(largest=0.9999), 60.0, measured, 0.8)
        assert found.epsilon == 20
        text = said(found)
        assert "At ε = 20 the mean" in text
        assert "as at no smaller value tried" in text
        assert "0.820, reaches the 0.8 asked for" in text
        assert "0.600 for a model that knows the labels alone" in text
        assert "0.990 without noise" in text
        assert "between 0.770 and 0.850" in text

    def test_never_below_low_unless_the_belief_asks(self):
        """Below low more noise changes no shape: the smallest is low itself."""
        measured = utility([1, 5, 20, 100], [0.95, 0.95, 0.95, 0.95])
        assert recommend(Plain(), BOUND, 60.0, measured, 0.8).epsilon == 5
        measured = utility([1, 2, 5, 100], [0.95, 0.95, 0.95, 0.95])
        assert recommend(Plain(), BOUND, 2.0, measured, 0.8).epsilon == 2

    def test_within_a_standard_error_of_the_ceiling(self):
        measured = utility([5, 8, 20, 60, 100], [0.7, 0.85, 0.895, 0.9, 0.99])
        found = recommend(Plain(), BOUND, 60.0, measured, None)
        assert found.epsilon == 20
        text = said(found)
        assert "0.895, is within a standard error (0.010) of the 0.900 at ε = 60" in text

    def test_a_smaller_epsilon_would_cost_utility(self):
        measured = utility([5, 8, 20, 60, 100], [0.7, 0.85, 0.88, 0.9, 0.99])
        found = recommend(Plain(), BOUND, 60.0, measured, None)
        assert found.epsilon == 60
        assert "A smaller ε would cost accuracy: it is 0.900" in said(found)
        assert "0.700 at ε = 5" in said(found)

    def test_only_the_ceiling_is_left(self):
        measured = utility([1, 3, 5, 100], [0.7, 0.9, 0.95, 0.99])
        found = recommend(Plain(), BOUND, 3.0, measured, None)
        assert found.epsilon == 3
        assert "There the mean held-out accuracy is 0.900" in said(found)
        assert "would cost" not in said(found)

    def test_it_says_where_a_smaller_one_costs_nothing(self):
        measured = utility([0.1, 0.5, 1, 3, 5, 100], [0.8, 0.895, 0.88, 0.897, 0.9, 0.99])
        found = recommend(Plain(), BOUND, 5.0, measured, None)
        assert found.epsilon == 5
        # Without a gap: .895 lies within an error too, but .88 between them does not.
        assert "Down to ε = 3 the mean accuracy stays within" in said(found)

    def test_a_model_that_does_not_beat_the_labels(self):
        measured = utility([3, 5, 100], [0.6, 0.6, 0.6], noiseless=0.6, base_rate=0.6)
        assert "Not even without noise does this model beat the labels alone" in said(
            recommend(Plain(), BOUND, 3.0, measured, None)
        )
        measured = utility([3, 5, 100], [0.6, 0.6, 0.6], noiseless=0.61, base_rate=0.6)
        assert "Not even" not in said(recommend(Plain(), BOUND, 3.0, measured, None))

    def test_regression_speaks_of_r2(self):
        measured = utility([3, 5, 100], [0.2, 0.3, 0.4], measure="r2", noiseless=0.5, base_rate=0.0)
        text = said(recommend(Plain(), BOUND, 3.0, measured, None))
        assert "R²" in text
        assert "accuracy" not in text


@settings(max_examples=300, deadline=None)
@given(
    low=st.floats(0.1, 50),
    width=st.floats(1.01, 50),
    limit=st.floats(0.05, 1e4),
    means=st.lists(st.floats(0, 1), min_size=6, max_size=6),
    least=st.none() | st.floats(0, 1),
)
def test_a_recommendation_keeps_every_bound(low, width, limit, means, least):
    sweep = Plain(low=low, high=low * width)
    tried = np.union1d(np.geomspace(0.01, 1e5, 3), [low, low * width, limit])
    means = (means * 2)[: len(tried)]
    measured = utility(tried, means)
    found = recommend(sweep, BOUND, limit, measured, least)
    said(found)
    if found.epsilon is None:
        inside = (tried >= min(low, limit)) & (tried <= min(limit, sweep.high))
        assert least is not None
        assert not np.any(np.array(means)[inside] >= least)
        return
    assert found.epsilon <= min(limit, sweep.high)
    if least is None:
        assert found.epsilon >= min(low, limit)
    else:
        assert np.array(means)[tried == found.epsilon][0] >= least
        if found.epsilon < min(low, limit):
            inside = (tried >= min(low, limit)) & (tried <= min(limit, sweep.high))
            assert not np.any(np.array(means)[inside] >= least)


class TestRounding:
    @settings(max_examples=500)
    @given(st.floats(5e-324, 1.7e308))
    @example(0.7)
    @example(2.3)
    @example(1e-7)
    @example(9.999999)
    @example(999.9999999)
    @example(5e-324)
    @example(1.7976931348623157e308)
    def test_never_up_and_never_by_a_digit(self, epsilon):
        short = rounded_down(epsilon)
        assert 0 < short <= epsilon
        digits = len(Decimal(repr(short)).normalize().as_tuple().digits)
        assert digits <= 3
        # The next one up with three digits would be too large.
        if epsilon > 1e-300:
            step = Decimal(1).scaleb(Decimal(repr(epsilon)).adjusted() - 2)
            assert Decimal(repr(short)) + step > Decimal(repr(epsilon))

    def test_three_digits_stay(self):
        for exponent in range(-12, 12):
            for digits in range(100, 1000, 7):
                value = float(f"{digits}e{exponent}")
                assert rounded_down(value) == value

    def test_what_is_no_ordinary_number_stays(self):
        assert rounded_down(0.0) == 0
        assert rounded_down(math.inf) == math.inf
        assert math.isnan(rounded_down(math.nan))

    def test_numbers_of_numpy(self):
        assert rounded_down(np.float64(1.2345)) == 1.23
