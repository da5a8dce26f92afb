"""Sums, norms, blocks, quadrature and the one root finder."""

import math
from fractions import Fraction

import numpy as np
import pytest

from expost import _numerics
from expost._numerics import (
    ROUNDOFF,
    CompensatedSum,
    bracket_root,
    gamma,
    gauss_legendre,
    row_blocks,
    row_norms,
    row_products,
    weighted_gram,
)


def test_roundoff_is_half_an_ulp():
    assert 1.0 + ROUNDOFF == 1.0
    assert 1.0 + 1.0001 * ROUNDOFF > 1.0


def test_gamma_bounds_a_sum_in_any_order():
    rng = np.random.default_rng(0)
    for k in (2, 10, 1000):
        for _ in range(20):
            a, b = rng.normal(size=k), rng.normal(size=k)
            exact = sum(Fraction(float(x)) * Fraction(float(z)) for x, z in zip(a, b, strict=True))
            size = float(np.abs(a) @ np.abs(b))
            plain = 0.0
            for x, z in zip(a, b, strict=True):
                plain += float(x) * float(z)
            for result in (plain, float(a @ b), float(np.sum(a * b))):
                assert abs(float(Fraction(result) - exact)) <= gamma(k) * size
    assert gamma(1) >= ROUNDOFF
    with pytest.raises(ArithmeticError):
        gamma(2**53)
    with pytest.raises(ArithmeticError):
        gamma(math.nan)


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 10_000])
@pytest.mark.parametrize("columns", [1, 7, 4096, 10**6])
def test_row_blocks_cover_every_row_once(rows, columns):
    covered = [index for block in row_blocks(rows, columns) for index in range(rows)[block]]
    assert covered == list(range(rows))


def test_row_blocks_depend_on_the_width_alone(monkeypatch):
    assert next(row_blocks(10**6, 10)) == next(row_blocks(2 * 10**6, 10))
    monkeypatch.setattr(_numerics, "_BLOCK_ENTRIES", 1000)
    assert next(row_blocks(10**6, 10)) == slice(0, 100)


def test_row_norms_of_any_magnitude():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 5)) * 10.0 ** rng.integers(-307, 100, size=(60, 1))
    rows[7] = 0.0
    rows[8] = 5e-324
    for row, result in zip(rows, row_norms(rows), strict=True):
        assert result == pytest.approx(math.hypot(*row), rel=1e-14, abs=1e-323)
    assert np.sqrt(np.einsum("ij,ij->i", rows, rows))[8] == 0, "what squaring would give"


def test_compensated_sum_does_not_lose_small_terms():
    total, plain = CompensatedSum(), 0.0
    terms = [1e16, 1.0, -1e16, 1.0] * 1000
    for term in terms:
        total.add(np.asarray(term))
        plain += term
    assert float(total.value) == math.fsum(terms) == 2000.0
    assert plain != 2000.0


def test_compensated_sum_of_vectors():
    rng = np.random.default_rng(2)
    terms = rng.normal(size=(5000, 3)) * 10.0 ** rng.integers(-8, 8, size=(5000, 3))
    total = CompensatedSum((3,))
    for term in terms:
        total.add(term)
    np.testing.assert_array_equal(total.value, [math.fsum(column) for column in terms.T])


@pytest.mark.parametrize("blocks", [1, 7, 3000])
def test_compensated_sums_that_are_merged(blocks):
    """Wildly different sizes that nearly cancel, against fractions: u∣Σ∣ + γ²Σ∣p∣, however cut."""
    rng = np.random.default_rng(4)
    terms = rng.normal(size=6000) * 10.0 ** rng.integers(-12, 12, size=6000)
    terms = rng.permutation(np.concatenate([terms, -terms * (1 + 1e-13), [1e-9]]))
    whole, plain = CompensatedSum(), 0.0
    for block in np.array_split(terms, blocks):
        part = CompensatedSum()
        for term in block:
            part.add(np.asarray(term))
            plain += float(term)
        whole.merge(part)
    exact = sum(map(Fraction, map(float, terms)))
    count, size = len(terms) + 2 * blocks, float(np.sum(np.abs(terms)))
    bound = ROUNDOFF * abs(float(exact)) + gamma(2 * count) ** 2 * size
    assert abs(float(Fraction(float(whole.value)) - exact)) <= bound
    assert abs(float(Fraction(plain) - exact)) > bound


@pytest.mark.parametrize("columns", [1, 2, 5, 17, 64, 129])
def test_row_products_do_not_depend_on_the_rows_beside(columns):
    rng = np.random.default_rng(5)
    rows, vector = rng.normal(size=(70, columns)), rng.normal(size=columns)
    products = row_products(rows, vector)
    assert products == pytest.approx(rows @ vector, rel=1e-12, abs=1e-13)
    for removed in (0, 33, 69):
        others = np.arange(70) != removed
        np.testing.assert_array_equal(row_products(rows[others], vector), products[others])
    alone = [row_products(row[None], vector)[0] for row in rows]
    np.testing.assert_array_equal(alone, products)
    np.testing.assert_array_equal(row_products(np.asfortranarray(rows), vector), products)
    np.testing.assert_array_equal(row_products(rows[3:], vector), products[3:])


@pytest.mark.parametrize("nodes", [1, 5, 40])
def test_gauss_legendre_integrates_polynomials(nodes):
    points, weights = gauss_legendre(nodes)
    for power in range(2 * nodes):
        wanted = 2 / (power + 1) if power % 2 == 0 else 0.0
        assert weights @ points**power == pytest.approx(wanted, abs=1e-14)
    assert abs(weights @ points ** (2 * nodes) - 2 / (2 * nodes + 1)) > 1e-15 or nodes > 20
    with pytest.raises(ValueError, match="read-only"):
        points[0] = 0.0


def test_bracket_root_ends_on_neighbouring_floats():
    targets = np.array([1e-300, 1e-5, 0.3, 2.0, 1e5, 1e300])
    below, above = bracket_root(lambda x: x - targets, 1e-305, 1e308)
    assert np.all(below <= targets)
    assert np.all(above > targets)
    np.testing.assert_array_equal(np.nextafter(below, np.inf), above)


def test_bracket_root_holds_the_root_at_every_count_of_halvings():
    for halvings in (0, 1, 7, 60):
        below, above = bracket_root(lambda x: x**3 - 2, 0.0, 4.0, halvings=halvings)
        assert below**3 <= 2 < above**3
    assert float(below) == pytest.approx(2 ** (1 / 3), abs=1e-15)


def test_bracket_root_without_a_root():
    below, above = bracket_root(lambda x: x + 10, 1.0, 2.0)
    assert float(below) == 1.0, "positive throughout: the lower end stays"
    below, above = bracket_root(lambda x: x - 10, 1.0, 2.0)
    assert float(above) == 2.0, "nowhere positive: the upper end stays"
    _, above = bracket_root(lambda x: x * np.nan, 1.0, 2.0)
    assert float(above) == pytest.approx(1.0), "NaN counts as positive"


def test_bracket_root_finds_a_root_far_from_the_middle():
    """The geometric mean crosses three hundred powers of ten in some dozens of halvings."""
    below, above = bracket_root(lambda x: np.log(x) + 600, 1e-300, 1e300)
    assert float(below) == pytest.approx(math.exp(-600), rel=1e-12)
    assert below <= above


SHAPES = {
    "cubic": (lambda x: x**3 - 2, 0.0, 4.0),
    "steep": (lambda x: np.exp(40 * x) - np.exp(30), 0.0, 1.0),
    "flat at the root": (lambda x: (x - 0.3) ** 3, 0.0, 1.0),
    "a kink": (lambda x: np.maximum(x - 0.9, 1e-9 * (x - 0.9)), 0.0, 1.0),
    "a sign": (lambda x: np.sign(x - 0.3), 0.0, 1.0),
    "infinite values": (lambda x: np.where(x < 0.3, -np.inf, x - 0.4), 0.0, 1.0),
    "a root next to an end": (lambda x: x - 1e-12, 0.0, 1.0),
    "rounding": (
        lambda x: np.float64(1 + 1e8) * (1 + x * 1e-10) - (1 + 1e8) * (1 + 3e-11),
        0.0,
        1.0,
    ),
    "powers of ten": (lambda x: np.log10(x) + 77.7, 1e-150, 1e150),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("halvings", [22, 60, 120])
def test_bracket_root_is_as_narrow_as_after_the_halvings(name, halvings):
    function, low, high = SHAPES[name]
    below, above = bracket_root(function, low, high, halvings=halvings)
    assert low <= below < above <= high
    assert below == low or function(below) <= 0
    assert above == high or function(above) > 0
    if name != "powers of ten":
        assert above - below <= max((high - low) * 2.0**-halvings, 2 * np.spacing(above))
    else:
        assert halvings == 22 or np.nextafter(below, 1) == above


def calls_of(function, low, high):
    calls = []

    def counted(x):
        calls.append(x)
        return function(x)

    bracket_root(counted, low, high)
    return len(calls)


def test_bracket_root_calls_a_smooth_function_a_dozen_times():
    for name, most in {"cubic": 14, "steep": 14, "powers of ten": 40, "a sign": 75}.items():
        assert calls_of(*SHAPES[name]) <= most, name


def test_the_entries_of_bracket_root_do_not_depend_on_each_other():
    targets = np.concatenate([[1e-200, 1e-9, 0.3, 1.0, 7e5], np.random.default_rng(0).random(40)])
    for halvings in (22, 120):
        together = bracket_root(lambda x: x**3 - targets, 0.0, 1e3, halvings=halvings)
        for i, target in enumerate(targets):
            alone = bracket_root(lambda x, t=target: x**3 - t, 0.0, 1e3, halvings=halvings)
            assert (together[0][i], together[1][i]) == alone


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (1, 1), (1000, 3), (20_000, 14), (150, 300)])
def test_weighted_gram_is_the_sum_of_its_rows(rows, columns):
    rng = np.random.default_rng(rows)
    X, weights = rng.standard_normal((rows, columns)), rng.random(rows)
    exact = np.einsum("i,ij,ik->jk", weights.astype(np.longdouble), X, X, optimize=False)
    size = gamma(rows + 3) * (np.abs(X) * weights[:, None]).T @ np.abs(X)
    assert np.all(np.abs(weighted_gram(X, weights) - exact) <= size)
