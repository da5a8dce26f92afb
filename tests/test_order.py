"""Order statistics against a sort: every rank, any order, any split."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from expost._order import (
    Histogram,
    SignedHistogram,
    Sorted,
    rank_numbers,
    ranking,
    share_ranks,
    top_weights,
)
from expost.errors import InvalidInput

RELATIVE, ABSOLUTE = 2.0**-10, 2.0**-40


def counted(values, top, blocks=1):
    histogram = Histogram(top)
    for block in np.array_split(np.asarray(values, dtype=np.float64), blocks):
        histogram.add(block)
    return histogram


def misses(values, top, sketch):
    """Which ranks break the stated guarantee."""
    exact = np.sort(values)
    off = np.abs(sketch - exact)
    return off > np.where(exact >= ABSOLUTE * top, RELATIVE * exact, ABSOLUTE * top)


def everything(histogram):
    return histogram.at(np.arange(1, histogram.count + 1))


def test_the_stated_errors():
    assert Histogram.RELATIVE_ERROR == RELATIVE
    assert Histogram.ABSOLUTE_ERROR == ABSOLUTE


@settings(max_examples=200)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
    st.floats(1e-200, 1e200, exclude_min=True),
)
@example([0.0, 0.0], 1.0)
@example([1.0, 0.5, 0.5 - 2**-54, 0.25], 1.0)
@example([5e-324, 2.2e-308, 1e-300], 1.0)
@example([1.0 - 2**-53, 1.0], 3.7)
@example([2**-39.5, 2**-40.5, 2**-41.0], 1.0)
def test_every_rank_is_within_the_guarantee(shares, top):
    values = np.array(shares) * top
    assert not misses(values, top, everything(counted(values, top))).any()


def test_random_values_of_every_size():
    rng = np.random.default_rng(0)
    for top in (1e-200, 0.037, 1.0, 1.9999999, 4096.0, 1e250):
        values = top * np.exp(-rng.exponential(6, size=20_000))
        values[:5] = top
        values[5:9] = 0.0
        sketch = everything(counted(values, top))
        assert not misses(values, top, sketch).any()
        # Power: figures off by another 2⁻⁹, or shifted by 10 ranks of the sparse top, are caught.
        assert misses(values, top, sketch * (1 + 2**-9)).any()
        assert misses(values, top, np.concatenate([sketch[10:], sketch[-10:]])).any()
        assert np.all(np.diff(sketch) >= 0)


@pytest.mark.parametrize("top", [1.0, 1.5, 0.7, 1.9990234375, 3e-9])
def test_the_least_value_that_is_not_taken_for_zero(top):
    """Values around 2⁻⁴⁰·top and at every edge of a bucket next to it."""
    values = top * 2.0**-40 * np.linspace(0.98, 1.02, 81)
    for value in values:
        sketch = counted([value], top).at(np.array([1]))
        assert not misses(np.array([value]), top, sketch).any()


def test_edges_of_octaves_and_of_buckets():
    octaves = 2.0 ** np.arange(-37, 1)
    below = np.nextafter(octaves, 0)
    second = octaves / 2 * (1 + 2.0**-9)
    values = np.concatenate([octaves, below, second, np.nextafter(second, 0)])
    for value in values:
        sketch = float(counted([value], 1.0).at(np.array([1]))[0])
        assert abs(sketch - value) <= RELATIVE * value


def test_neither_order_nor_blocks_nor_merging_matters():
    rng = np.random.default_rng(1)
    values = rng.exponential(size=5000)
    top = float(values.max())
    whole = everything(counted(values, top))
    np.testing.assert_array_equal(whole, everything(counted(rng.permutation(values), top)))
    np.testing.assert_array_equal(whole, everything(counted(values, top, blocks=37)))
    left, right = counted(values[:1234], top), counted(values[1234:], top)
    left.merge(right)
    assert left.count == 5000
    assert right.count == 5000 - 1234, "merging leaves the other as it was"
    np.testing.assert_array_equal(whole, everything(left))


def test_merging_needs_one_top():
    with pytest.raises(InvalidInput, match="same top"):
        Histogram(1.0).merge(Histogram(2.0))


def test_not_a_number_and_negative_values_are_refused():
    for bad in (np.nan, -1e-300, -1.0, -np.inf):
        histogram = Histogram(1.0)
        with pytest.raises(ArithmeticError):
            histogram.add(np.array([0.5, bad]))
        assert histogram.count == 0, "nothing of a refused block is counted"
    # −0.0 is 0.
    assert everything(counted([-0.0, 0.5], 1.0))[0] == 0


def test_rounding_past_the_top_counts_as_the_top():
    sketch = everything(counted([1.0 + 2**-52, 1.0], 1.0))
    assert np.all(np.abs(sketch - 1) <= RELATIVE)


@pytest.mark.parametrize("top", [0.0, -1.0, math.nan, math.inf, 1e-251])
def test_bad_tops(top):
    with pytest.raises(InvalidInput, match="top"):
        Histogram(top)


def test_bad_ranks():
    histogram = counted([0.1, 0.2], 1.0)
    for bad in (0, 3, -1):
        with pytest.raises(InvalidInput, match="between 1 and 2"):
            histogram.at(np.array([1, bad]))


def test_memory_does_not_depend_on_the_stream():
    histogram = Histogram(1.0)
    rng = np.random.default_rng(2)
    before = sum(np.asarray(value).nbytes for value in vars(histogram).values())
    for _ in range(20):
        histogram.add(rng.random(10_000))
    assert histogram.count == 200_000
    assert sum(np.asarray(value).nbytes for value in vars(histogram).values()) == before < 200_000


def test_a_strided_view_counts_its_own_values():
    values = np.linspace(0.1, 1.0, 20)
    np.testing.assert_array_equal(
        everything(counted(values[::2], 1.0)), everything(counted(values[::2].copy(), 1.0))
    )


# -- what both kinds share -------------------------------------------------------------------------


def samples():
    """Values with ties, zeros, infinities, all of one kind, and one alone."""
    rng = np.random.default_rng(3)
    mixed = np.round(rng.exponential(size=301), 2)
    yield mixed
    yield np.concatenate([mixed, [0.0, 0.0, math.inf, math.inf]])
    yield rng.exponential(size=500)
    yield np.zeros(7)
    yield np.full(4, math.inf)
    yield np.array([0.25])
    yield np.array([1e-30, 1e-25, 1.0])


def top_of(values):
    return float(np.max(values[np.isfinite(values)], initial=0.0))


@pytest.mark.parametrize("values", list(samples()))
def test_bounds_hold_a_sort_between_them(values):
    exact, n = np.sort(values), len(values)
    ranks = np.arange(1, n + 1)
    for sketch in (Sorted(values), Histogram.of(values, top_of(values))):
        least, most = sketch.at_least(ranks), sketch.at_most(ranks)
        assert np.all(least <= exact)
        assert np.all(exact <= most)
        slack = ABSOLUTE * 2 * top_of(values)
        finite = np.isfinite(exact)
        room = sketch.error * exact[finite] * 1.0001 + slack
        assert np.all(most[finite] - exact[finite] <= room)
        assert np.all(exact[finite] - least[finite] <= room)
        assert (sketch.count, sketch.smallest, sketch.largest) == (n, exact[0], exact[-1])
        assert least[-1] == most[-1] == exact[-1]
        assert most[0] == exact[0]
        positive = exact[exact > 0]
        assert sketch.least_positive == (positive[0] if len(positive) else math.inf)


@pytest.mark.parametrize("values", list(samples()))
def test_quantiles_and_medians_are_those_of_numpy_rounded_up(values):
    shares = np.array([0.0, 1e-9, 0.01, 0.25, 0.5, 0.75, 0.99, 1 - 1e-12, 1.0])
    exact = np.quantile(values, shares, method="inverted_cdf")
    held, counts = Sorted(values), Histogram.of(values, top_of(values))
    np.testing.assert_array_equal(held.quantile(shares), exact)
    assert held.median == np.median(values)
    slack = ABSOLUTE * 2 * top_of(values)
    for sketch, expected in (
        (counts.quantile(shares), exact),
        (np.array([counts.median]), np.array([np.median(values)])),
    ):
        assert np.all(sketch >= expected)
        finite = np.isfinite(expected)
        assert np.all(sketch[finite] <= expected[finite] * (1 + 1.0001 * counts.error) + slack)
        assert np.all(sketch[~finite] == math.inf)


@pytest.mark.parametrize("values", list(samples()))
def test_merging_gives_the_statistics_of_both(values):
    ranks = np.arange(1, len(values) + 1)
    half = len(values) // 2
    for make in (Sorted, lambda some: Histogram.of(some, top_of(values))):
        whole, left, right = make(values), make(values[:half]), make(values[half:])
        left.merge(right)
        assert right.count == len(values) - half
        for name in ("count", "smallest", "largest", "least_positive", "median"):
            assert getattr(left, name) == getattr(whole, name)
        np.testing.assert_array_equal(left.at_most(ranks), whole.at_most(ranks))
        np.testing.assert_array_equal(left.at_least(ranks), whole.at_least(ranks))


def test_what_lies_past_the_top_is_rounded_up_to_the_largest():
    values = np.array([0.5, 3.0, 7.0, math.inf])
    sketch = Histogram.of(values, 1.0).at_most(np.arange(1, 5))
    np.testing.assert_array_equal(sketch[1:], [7.0, 7.0, math.inf])


def test_nothing_is_known_of_no_values():
    for empty in (Sorted(np.zeros(0)), Histogram.of(np.zeros(0), 0.0)):
        assert empty.count == 0
        assert empty.largest == -math.inf
        assert empty.smallest == empty.least_positive == math.inf
        with pytest.raises(InvalidInput, match="ranks"):
            empty.at_most(np.array([1]))


def test_sorted_values_refuse_what_is_not_a_number():
    with pytest.raises(ArithmeticError, match="not a number"):
        Sorted(np.array([0.5, math.nan]))


@pytest.mark.parametrize("signs", ["both", "negative", "positive"])
def test_values_of_either_sign(signs):
    rng = np.random.default_rng(4)
    values = np.round(rng.normal(size=400), 2)
    values[:4] = [math.inf, -math.inf, 0.0, -1e-30]
    values = {"both": values, "negative": -np.abs(values), "positive": np.abs(values)}[signs]
    top, exact, ranks = 5.0, np.sort(values), np.arange(1, len(values) + 1)
    sketch = SignedHistogram(values[:150], top)
    sketch.merge(SignedHistogram(values[150:], top))
    assert (sketch.count, sketch.smallest, sketch.largest) == (400, exact[0], exact[-1])
    least, near, most = (sketch.at_least(ranks), sketch.at(ranks), sketch.at_most(ranks))
    assert np.all(least <= exact)
    assert np.all(exact <= most)
    finite = np.isfinite(exact)
    room = sketch.error * np.abs(exact[finite]) * 1.0001 + 2 * ABSOLUTE * top
    for values_at in (least, near, most):
        assert np.all(np.abs(values_at[finite] - exact[finite]) <= room)
        assert np.all(values_at[~finite] == exact[~finite])
    low, high = sketch.ranks(values)
    naive = rank_numbers(ranking(values, np.zeros(400)))
    assert np.all((low <= naive) & (naive <= high))
    assert np.mean(high - low) < 40
    with pytest.raises(ArithmeticError, match="not a number"):
        SignedHistogram(np.array([math.nan]), 1.0)


# -- ranking ---------------------------------------------------------------------------------------


def test_ties_are_decided_by_distance_and_then_by_place():
    score = np.array([1.0, 2.0, 1.0, 1.0, math.inf, 1.0])
    distance = np.array([0.3, 0.1, 0.7, 0.3, 0.0, 0.7])
    order = ranking(score, distance)
    naive = sorted(range(6), key=lambda row: (-score[row], -distance[row], row))
    assert order.tolist() == naive == [4, 1, 2, 5, 0, 3]
    assert rank_numbers(order).tolist() == [5, 2, 3, 6, 1, 4]


def test_what_is_not_a_number_ranks_first():
    score = np.array([1.0, math.nan, 5.0])
    assert ranking(score, np.zeros(3)).tolist() == [1, 2, 0]
    assert ranking(np.ones(3), np.array([1.0, 2.0, math.nan])).tolist() == [2, 1, 0]


@pytest.mark.parametrize("values", list(samples()))
def test_ranks_of_values_count_the_larger_ones(values):
    least, most = Sorted(values).ranks(values)
    np.testing.assert_array_equal(least, [1 + np.sum(values > value) for value in values])
    np.testing.assert_array_equal(most, [np.sum(values >= value) for value in values])
    order = rank_numbers(ranking(values, np.zeros(len(values))))
    low, high = Histogram.of(values, top_of(values)).ranks(values)
    assert np.all((low <= least) & (most <= high))
    assert np.all((least <= order) & (order <= most))


@pytest.mark.parametrize("values", list(samples()))
@pytest.mark.parametrize("places", [1, 3])
def test_ties_share_the_places_at_the_top(values, places):
    places = min(places, len(values))
    edge = np.sort(values)[-places]
    tied = values == edge
    left = places - np.sum(values > edge)
    naive = np.where(values > edge, 1.0, np.where(tied, left / np.sum(tied), 0.0))
    np.testing.assert_allclose(top_weights(Sorted(values), values, places), naive, rtol=1e-15)
    for sketch in (Sorted(values), Histogram.of(values, top_of(values))):
        assert np.sum(top_weights(sketch, values, places)) == pytest.approx(places, rel=1e-12)


def test_ranks_of_shares():
    assert share_ranks(4, np.array([0.0, 0.25, 0.26, 0.5, 1.0])).tolist() == [1, 1, 2, 2, 4]
