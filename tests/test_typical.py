"""The expected exposure of many rows: the table against the law, row by row."""

import numpy as np
import pytest

from expost._numerics import row_blocks
from expost.noise import GaussianLaw, NormLaplaceLaw
from expost.noise.tabulated import TABLE_ERROR, Table, expected_exposures

DIMENSIONS = (1, 2, 3, 6, 30, 300, 3000)


def laplace(d):
    return lambda t: NormLaplaceLaw(separation=t, dimension=d)


def naive(law, distance, scales):
    """One call of the law for each ε, in the order of the rows, no table."""
    return np.stack([law(scale * distance).expected_exposure for scale in scales])


class Counting:
    """A law that counts the separations it was asked for."""

    def __init__(self, law):
        self.law, self.evaluated = law, 0

    def __call__(self, t):
        self.evaluated += t.size
        return self.law(t)


@pytest.mark.parametrize("law", [*map(laplace, DIMENSIONS), lambda t: GaussianLaw(separation=t)])
def test_the_table_is_the_law(law):
    """Separations from 1e-9 to 1e6, in no order; enough rows a piece that tables are used."""
    rng = np.random.default_rng(0)
    distance = np.exp(rng.uniform(np.log(1e-6), np.log(1e3), 1000))
    scales = np.array([1e3, 1e-3, 1.0])
    counting = Counting(law)
    exposures = expected_exposures(counting, distance, scales)
    expected = naive(law, distance, scales)
    np.testing.assert_allclose(exposures, expected, rtol=1e-11, atol=0)
    # It was the table: the law was asked for less than half of the 3,000 figures.
    assert 0 < counting.evaluated < 1500
    # Power: a tenth of the certified digits would be noticed.
    assert np.max(np.abs(exposures * (1 + 1e-10) / expected - 1)) > 1e-11
    assert TABLE_ERROR < 1e-11


@pytest.mark.parametrize("d", [1, 2, 30])
def test_few_rows_are_not_tabulated(d):
    distance = np.array([0.3, 1e-5, 4.0, 0.3])
    counting = Counting(laplace(d))
    scales = np.geomspace(1e-2, 1e2, 5)
    exposures = expected_exposures(counting, distance, scales)
    np.testing.assert_allclose(exposures, naive(laplace(d), distance, scales), rtol=1e-14)
    assert counting.evaluated == 20


def test_cost_does_not_grow_with_the_rows():
    rng = np.random.default_rng(1)
    counts = []
    for rows in (2_000, 40_000):
        counting = Counting(laplace(6))
        distance = rng.uniform(0.01, 1.0, rows)
        expected_exposures(counting, distance, np.geomspace(0.1, 1e3, 10))
        counts.append(counting.evaluated)
    assert counts[1] < counts[0] + 1000
    assert counts[1] < 0.01 * 40_000 * 10


@pytest.mark.parametrize("law", [laplace(1), laplace(2), laplace(6)])
def test_zero_infinity_ties_and_edges_of_pieces(law):
    """log t is whole at the edges of pieces; the rows beside them belong to either."""
    edges = np.exp(np.arange(-4.0, 5.0))
    distance = np.concatenate(
        [np.zeros(7), np.full(50, 0.5), np.full(2, np.inf), edges, np.nextafter(edges, 0), [1e-300]]
    )
    distance = np.concatenate([distance, np.exp(np.linspace(-4, 5, 400))])
    rng = np.random.default_rng(2)
    distance = distance[rng.permutation(len(distance))]
    exposures = expected_exposures(law, distance, np.ones(1))[0]
    assert np.all(exposures[distance == 0] == 0)
    assert np.all(exposures[np.isinf(distance)] == np.inf)
    assert len(np.unique(exposures[distance == 0.5])) == 1
    np.testing.assert_allclose(exposures, law(distance).expected_exposure, rtol=1e-11)
    finite = np.sort(distance[np.isfinite(distance)])
    ascending = expected_exposures(law, finite, np.ones(1))[0]
    assert np.all(np.diff(ascending) >= -1e-11 * ascending[1:])


def test_permuting_rows_permutes_exposures():
    rng = np.random.default_rng(3)
    distance = np.exp(rng.uniform(-6, 2, 3000))
    distance[::50] = 0.0
    scales = np.array([0.1, 10.0])
    order = rng.permutation(len(distance))
    exposures = expected_exposures(laplace(6), distance, scales)
    np.testing.assert_array_equal(
        exposures[:, order], expected_exposures(laplace(6), distance[order], scales)
    )
    # The order of the scales may change which rows pay for a table, within the certified digits.
    turned = expected_exposures(laplace(6), distance, scales[::-1])[::-1]
    np.testing.assert_allclose(turned, exposures, rtol=1e-11)


def test_no_rows_that_move_the_model():
    np.testing.assert_array_equal(
        expected_exposures(laplace(2), np.zeros(5), np.ones(3)), np.zeros((3, 5))
    )
    assert expected_exposures(laplace(2), np.ones(5), np.ones(0)).shape == (0, 5)


@pytest.mark.parametrize(
    ("distance", "scale"),
    [
        (np.concatenate([np.zeros(40_000), [1.0]]), 1.0),
        (np.array([1e-200, 0.0, 2e-200]), 1e-200),
        (np.array([np.inf, np.inf]), 1.0),
    ],
    ids=["a whole block of zeros", "underflow", "infinities alone"],
)
def test_a_block_without_an_ordinary_row(distance, scale):
    assert len(list(row_blocks(40_001, 1))) > 1
    exposures = expected_exposures(laplace(3), distance, np.array([scale]))[0]
    np.testing.assert_allclose(
        exposures, laplace(3)(scale * distance).expected_exposure, rtol=1e-11
    )


class Kinked:
    """E∣ℓ∣ with a corner at t = 2, which no polynomial follows."""

    def __init__(self, t):
        self.expected_exposure = t * (1 + 0.1 * np.abs(t - 2))


def test_a_piece_that_misses_the_law_is_not_used():
    distance = np.linspace(1.0, 7.0, 500)
    exposures = expected_exposures(Kinked, distance, np.ones(1))[0]
    np.testing.assert_allclose(exposures, Kinked(distance).expected_exposure, rtol=1e-12)


@pytest.mark.parametrize("law", [laplace(1), laplace(6), lambda t: GaussianLaw(separation=t)])
def test_a_table_made_once_is_the_law_in_any_blocks(law):
    rng = np.random.default_rng(6)
    table = Table.of(law, 1e3, 50.0)
    # Down to what the table holds and below, up to its end and past it.
    distance = 1e-3 * np.exp(rng.uniform(np.log(1e-20), np.log(500), 600))
    exposures = table(distance)
    np.testing.assert_allclose(exposures, law(1e3 * distance).expected_exposure, rtol=1e-11, atol=0)
    order = rng.permutation(600)
    np.testing.assert_array_equal(table(distance[order]), exposures[order])
    np.testing.assert_array_equal(
        np.concatenate([table(part[None]) for part in distance]), exposures
    )


def test_a_table_knows_no_row_that_is_not_exposed_but_at_no_distance():
    table = Table.of(laplace(3), 2.0, 10.0)
    ends = table(np.array([0.0, 5e-324, np.inf, np.nan, 1e308]))
    assert ends[0] == 0
    assert 0 <= ends[1] < 1e-300
    assert np.all(ends[2:] == np.inf)
