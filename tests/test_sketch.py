"""The sketch's guarantee against a sort: every rank, any order, any split."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from expost._order import Sketch
from expost.errors import InvalidInput

RELATIVE, ABSOLUTE = 2.0**-10, 2.0**-40


def sketched(values, top, blocks=1):
    sketch = Sketch(top)
    for block in np.array_split(np.asarray(values, dtype=np.float64), blocks):
        sketch.add(block)
    return sketch


def misses(values, top, found):
    """Which ranks break the stated guarantee."""
    exact = np.sort(values)
    off = np.abs(found - exact)
    return off > np.where(exact >= ABSOLUTE * top, RELATIVE * exact, ABSOLUTE * top)


def everything(sketch):
    return sketch.at(np.arange(1, len(sketch) + 1))


def test_the_stated_errors():
    assert Sketch.RELATIVE_ERROR == RELATIVE
    assert Sketch.ABSOLUTE_ERROR == ABSOLUTE


@settings(max_examples=200, deadline=None)
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
    assert not misses(values, top, everything(sketched(values, top))).any()


def test_random_values_of_every_size():
    rng = np.random.default_rng(0)
    for top in (1e-200, 0.037, 1.0, 1.9999999, 4096.0, 1e250):
        values = top * np.exp(-rng.exponential(6, size=20_000))
        values[:5] = top
        values[5:9] = 0.0
        found = everything(sketched(values, top))
        assert not misses(values, top, found).any()
        # Power: figures off by another 2⁻⁹, or shifted by 10 ranks of the sparse top, are caught.
        assert misses(values, top, found * (1 + 2**-9)).any()
        assert misses(values, top, np.concatenate([found[10:], found[-10:]])).any()
        assert np.all(np.diff(found) >= 0)


@pytest.mark.parametrize("top", [1.0, 1.5, 0.7, 1.9990234375, 3e-9])
def test_the_least_value_that_is_not_taken_for_zero(top):
    """Values around 2⁻⁴⁰·top and at every edge of a bucket beside it."""
    values = top * 2.0**-40 * np.linspace(0.98, 1.02, 81)
    for value in values:
        found = sketched([value], top).at(np.array([1]))
        assert not misses(np.array([value]), top, found).any()


def test_edges_of_octaves_and_of_buckets():
    octaves = 2.0 ** np.arange(-37, 1)
    below = np.nextafter(octaves, 0)
    second = octaves / 2 * (1 + 2.0**-9)
    values = np.concatenate([octaves, below, second, np.nextafter(second, 0)])
    for value in values:
        found = float(sketched([value], 1.0).at(np.array([1]))[0])
        assert abs(found - value) <= RELATIVE * value


def test_neither_order_nor_blocks_nor_merging_matters():
    rng = np.random.default_rng(1)
    values = rng.exponential(size=5000)
    top = float(values.max())
    whole = everything(sketched(values, top))
    np.testing.assert_array_equal(whole, everything(sketched(rng.permutation(values), top)))
    np.testing.assert_array_equal(whole, everything(sketched(values, top, blocks=37)))
    left, right = sketched(values[:1234], top), sketched(values[1234:], top)
    left.merge(right)
    assert len(left) == 5000
    assert len(right) == 5000 - 1234, "merging leaves the other as it was"
    np.testing.assert_array_equal(whole, everything(left))


def test_merging_needs_one_top():
    with pytest.raises(InvalidInput, match="same top"):
        Sketch(1.0).merge(Sketch(2.0))


def test_not_a_number_and_negative_values_are_refused():
    for bad in (np.nan, -1e-300, -1.0, -np.inf):
        sketch = Sketch(1.0)
        with pytest.raises(ArithmeticError):
            sketch.add(np.array([0.5, bad]))
        assert len(sketch) == 0, "nothing of a refused block is counted"
    # −0.0 is 0.
    assert everything(sketched([-0.0, 0.5], 1.0))[0] == 0


def test_rounding_past_the_top_counts_as_the_top():
    found = everything(sketched([1.0 + 2**-52, 1.0], 1.0))
    assert np.all(np.abs(found - 1) <= RELATIVE)


@pytest.mark.parametrize("top", [0.0, -1.0, math.nan, math.inf, 1e-251])
def test_bad_tops(top):
    with pytest.raises(InvalidInput, match="top"):
        Sketch(top)


def test_bad_ranks():
    sketch = sketched([0.1, 0.2], 1.0)
    for bad in (0, 3, -1):
        with pytest.raises(InvalidInput, match="between 1 and 2"):
            sketch.at(np.array([1, bad]))


def test_memory_does_not_depend_on_the_stream():
    sketch = Sketch(1.0)
    rng = np.random.default_rng(2)
    before = sum(np.asarray(value).nbytes for value in vars(sketch).values())
    for _ in range(20):
        sketch.add(rng.random(10_000))
    assert len(sketch) == 200_000
    assert sum(np.asarray(value).nbytes for value in vars(sketch).values()) == before < 200_000


def test_a_strided_view_counts_its_own_values():
    values = np.linspace(0.1, 1.0, 20)
    np.testing.assert_array_equal(
        everything(sketched(values[::2], 1.0)), everything(sketched(values[::2].copy(), 1.0))
    )
