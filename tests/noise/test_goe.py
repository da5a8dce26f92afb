"""Quantiles of GOE's largest eigenvalue against routes that share nothing with the code (issue 4).

* The definition in 50 digits: de Bruijn's Pfaffian of monomials, its entries by quadrature, its
  constant from Selberg's integral. For larger d the entries come by recurrence, in 150 digits.
* Closed forms at d = 1 and d = 2.
* Simulated matrices, dense and tridiagonal. (Householder's reflections of a GOE matrix leave the
  diagonal N(0, 2) and put the norm of the rest of a column, χ_{d−1}, χ_{d−2}, …, χ₁, next to it.)
* The expected number of eigenvalues above x, by integrating Mehta's one-point density.
* The Tracy–Widom law F₁, as the Fredholm determinant of Ai(s + t + x) on the half line (Ferrari
  and Spohn 2005), itself held against published figures.
"""

import math
from functools import cache
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from mpmath.calculus.quadrature import GaussLegendre
from scipy.special import airy, erfc, eval_hermitenorm, gammaln, ndtr, ndtri
from scipy.stats import binomtest

from evidence import record
from expost.errors import InvalidInput
from expost.noise import goe, goe_largest_eigenvalue_quantile
from parameters import every_parameter_reaches

COMMAND = "python -m pytest -m long tests/noise/test_goe.py"
SEED = 20261115
PARTS = {"simulation", "far tail", "Tracy-Widom", "digits", "rounding up beyond 200"}
DIMENSIONS = (2, 5, 10, 21, 50)
LEVELS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
# Together over all levels and dimensions of one test.
FALSE_ALARM = 1e-6


@pytest.fixture(scope="module")
def evidence():
    """What the long tests find; written when all of them passed in one run."""
    parts = {}
    yield parts
    if set(parts) == PARTS:
        record("goe", command=COMMAND, seed=SEED, figures=parts)


# --------------------------------------------------------------------------- the definition


def lower_moment(i, t):
    """∫_{−∞}^t s^i e^(−s²/4) ds."""
    half = mp.mpf(i + 1) / 2
    scale = mp.mpf(2) ** i
    to_zero = (-1) ** i * scale * mp.gamma(half)
    return to_zero + mp.sign(t) ** (i + 1) * scale * mp.gammainc(half, 0, t * t / 4)


def products_by_quadrature(x, d):
    """∬_{s<t≤x} (s^i t^j − s^j t^i) e^(−(s²+t²)/4) ds dt: inner integral closed, outer Gauss."""
    rule = GaussLegendre(mp.mp).calc_nodes(5, mp.mp.prec)
    edges = mp.linspace(mp.mpf(-24), x, 5)
    matrix = mp.matrix(d)
    for a, b in pairwise(edges):
        for node, weight in rule:
            t = (a + b) / 2 + (b - a) / 2 * node
            inner = [lower_moment(i, t) for i in range(d)]
            outer = [weight * (b - a) / 2 * t**i * mp.exp(-t * t / 4) for i in range(d)]
            for i in range(d):
                for j in range(d):
                    matrix[i, j] += inner[i] * outer[j] - inner[j] * outer[i]
    return matrix


def products_by_recurrence(x, d):
    """The same by parts: t^(j+1)w = 2j t^(j−1)w − 2(t^j w)', w = e^(−t²/4).

    <t^i, (t^j w)'> = x^j w(x) ∫t^i w − 2∫t^(i+j) w², both integrals up to x.
    """
    weight = mp.exp(-x * x / 4)
    single = [mp.sqrt(mp.pi) * mp.erfc(-x / 2), -2 * weight]
    square = [mp.sqrt(mp.pi / 2) * mp.erfc(-x / mp.sqrt(2)), -(weight**2)]
    for k in range(2, 2 * d):
        single.append(2 * (k - 1) * single[k - 2] - 2 * x ** (k - 1) * weight)
        square.append((k - 1) * square[k - 2] - x ** (k - 1) * weight**2)
    matrix = mp.matrix(d)
    for i in range(d):
        for j in range(i, d - 1):
            before = 2 * j * matrix[i, j - 1] if j else 0
            matrix[i, j + 1] = before - 2 * (x**j * weight * single[i] - 2 * square[i + j])
            matrix[j + 1, i] = -matrix[i, j + 1]
    return matrix


def pfaffian(matrix):
    """By elimination, a pair of rows at a time."""
    value = mp.mpf(1)
    rest = np.array(matrix.tolist(), dtype=object)
    while len(rest):
        pivot = rest[0, 1]
        value *= pivot
        update = np.outer(rest[0, 2:] / pivot, rest[1, 2:])
        rest = rest[2:, 2:] - (update - update.T)
    return value


def naive_cdf(x, d, products, digits=50):
    """d!/Z times the Pfaffian, bordered for odd d; Z by Selberg and Mehta for e^(−Σλ²/4)."""
    with mp.workdps(digits):
        x = mp.mpf(x)
        entries = products(x, d)
        matrix = mp.matrix(d + d % 2)
        matrix[:d, :d] = entries
        if d % 2:
            for i in range(d):
                matrix[i, d] = lower_moment(i, x)
                matrix[d, i] = -matrix[i, d]
        selberg = (2 * mp.pi) ** (mp.mpf(d) / 2) * mp.sqrt(2) ** (d + d * (d - 1) // 2)
        for j in range(1, d + 1):
            selberg *= mp.gamma(1 + mp.mpf(j) / 2) / mp.gamma(mp.mpf(3) / 2)
        return pfaffian(matrix) * mp.factorial(d) / selberg


def relative_error(x, d, products, digits=50):
    """(1 − F, relative error of ``survival``)."""
    with mp.workdps(digits):
        exact = 1 - naive_cdf(x, d, products, digits)
        return float(exact), float(abs(goe.survival(x, d) / exact - 1))


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_definition_in_fifty_digits(d):
    for tail in (0.9, 1e-2, 5e-7, 1e-12):
        x = goe_largest_eigenvalue_quantile(tail, d, upper=True)
        exact = 1 - naive_cdf(x, d, products_by_quadrature)
        assert exact <= tail
        assert exact > tail * (1 - 1e-10)
        assert abs(goe.survival(x, d) / exact - 1) < 1e-13


def test_recurrence_is_the_definition():
    with mp.workdps(50):
        for d in (4, 7):
            x = mp.mpf("2.75")
            gap = products_by_quadrature(x, d) - products_by_recurrence(x, d)
            assert mp.norm(gap) < mp.mpf(10) ** -40


def test_pfaffian_is_the_root_of_the_determinant():
    with mp.workdps(50):
        matrix = products_by_recurrence(mp.mpf("1.5"), 6)
        assert abs(pfaffian(matrix) / mp.sqrt(mp.det(matrix)) - 1) < mp.mpf(10) ** -35


def test_larger_dimensions_in_150_digits():
    for d, level in ((20, 0.3), (21, 1 - 1e-7), (34, 0.999)):
        x = goe_largest_eigenvalue_quantile(level, d)
        tail, error = relative_error(x, d, products_by_recurrence, digits=150)
        assert error < 1e-13
        # 1e-6 below x the level is missed.
        assert goe.survival(x - 1e-6, d) > 1 - level >= tail


@pytest.mark.long
def test_digits(evidence):
    worst = {}
    few, many = (0.9, 5e-7), (0.9999, 0.9, 0.5, 1e-2, 1e-3, 1e-5, 1e-7, 5e-7, 1e-20, 1e-60)
    for d, tails in ((20, many), (21, many), (60, many), (61, many), (131, few), (200, few)):
        errors = []
        for tail in tails:
            x = goe_largest_eigenvalue_quantile(tail, d, upper=True)
            exact, error = relative_error(x, d, products_by_recurrence, digits=300 + 2 * d)
            assert exact <= tail < goe.survival(x - 1e-6, d)
            errors.append(error)
        worst[str(d)] = max(errors)
    assert max(worst.values()) < 1e-13
    counted = {}
    for d in (401, 2000, 19999, 20000):
        points = [2 * d**0.5 + u * d ** (-1 / 6) for u in (-1.5, 0, 3, 8, 14)]
        errors = [abs(goe.alternate_count(x, d) / alternate_count_50(x, d) - 1) for x in points]
        counted[str(d)] = float(max(errors))
    assert max(counted.values()) < 1e-10
    evidence["digits"] = {
        "largest relative error of 1 - F": worst,
        "largest relative error of the alternate count": counted,
    }


def alternate_count_50(x, d):
    """The sum for E⌈N/2⌉ term by term in 50 digits: what rounding costs."""
    with mp.workdps(50):
        x = mp.mpf(x)
        before, now = mp.mpf(0), mp.exp(-x * x / 4) / mp.root(2 * mp.pi, 4)
        first = 2 * mp.sqrt(mp.pi) / mp.root(2 * mp.pi, 4)
        whole, beyond = [first, 4 / first], [first * mp.erfc(x / 2) / 2, 2 * now]
        square, total = mp.erfc(x / mp.sqrt(2)) / 2, d % 2 * mp.erfc(x / 2) / 2
        for n in range(d - d % 2):
            side, root = n % 2, mp.sqrt(n)
            if n >= 2:
                ratio = mp.sqrt(mp.mpf(n - 1) / n)
                whole[side] *= ratio
                beyond[side] = beyond[side] * ratio + 2 * before / root
            if n >= 1:
                square += now * before / root
            if side == d % 2:
                total += square + now * (whole[side] - beyond[side]) / 2
            before, now = now, (x * now - root * before) / mp.sqrt(n + 1)
        return total


# --------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("tail", [1e-200, 1e-20, 5e-7, 1e-3, 0.2, 0.5, 0.9, 0.9999])
def test_one_dimension_is_a_normal(tail):
    expected = -math.sqrt(2) * ndtri(tail)
    quantile = goe_largest_eigenvalue_quantile(tail, 1, upper=True)
    assert expected <= quantile < expected + 1e-7


@pytest.mark.parametrize("tail", [1e-200, 1e-20, 5e-7, 1e-3, 0.2, 0.5, 0.9, 0.9999])
def test_two_dimensions(tail):
    """λ_max = Z + R, Z standard normal, R Rayleigh: 1 − F = Φ(−x) + e^(−x²/4)Φ(x/√2)/√2."""

    def above(x):
        return ndtr(-x) + math.exp(-x * x / 4) / math.sqrt(2) * ndtr(x / math.sqrt(2))

    x = goe_largest_eigenvalue_quantile(tail, 2, upper=True)
    assert above(x) <= tail < above(x - 1e-7)


# --------------------------------------------------------------------------- simulation


def dense_eigenvalues(d, count, rng, diagonal=2.0):
    """Eigenvalues of ``count`` matrices, the diagonal of variance ``diagonal``."""
    matrix = rng.standard_normal((count, d, d))
    matrix = np.tril(matrix, -1)
    matrix += matrix.transpose(0, 2, 1)
    spots = np.arange(d)
    matrix[:, spots, spots] = math.sqrt(diagonal) * rng.standard_normal((count, d))
    return np.linalg.eigvalsh(matrix)


def tridiagonal_counts(levels, d, count, rng, diagonal=2.0):
    """How many of ``count`` tridiagonal matrices have λ_max below each level.

    λ_max < x where every pivot of x − T is positive.
    """
    counts = np.zeros(len(levels), dtype=int)
    left = count
    while left:
        block = min(left, 20_000)
        left -= block
        centre = math.sqrt(diagonal) * rng.standard_normal((d, block))
        beside = np.array([rng.chisquare(k, block) for k in range(d - 1, 0, -1)])
        for index, x in enumerate(levels):
            pivot = x - centre[0]
            below = pivot > 0
            for row in range(1, d):
                pivot = x - centre[row] - beside[row - 1] / np.where(below, pivot, 1.0)
                below &= pivot > 0
            counts[index] += below.sum()
    return counts


def least_p_value(counts, count):
    """The smallest of the exact binomial p-values over LEVELS."""
    pairs = zip(counts, LEVELS, strict=True)
    return min(binomtest(int(k), count, p).pvalue for k, p in pairs)


@cache
def quantiles(d):
    return [goe_largest_eigenvalue_quantile(p, d) for p in LEVELS]


def test_dense_simulation_and_its_power():
    """False alarm 1e-6 in all; the wrong diagonal and the wrong dimension are seen."""
    count = 40_000
    alarm = FALSE_ALARM / (2 * len(LEVELS))
    rng = np.random.default_rng(SEED)
    for d in (3, 6):

        def counts_of(size, diagonal=2.0, d=d):
            largest = dense_eigenvalues(size, count, rng, diagonal)[:, -1]
            return [(largest <= x).sum() for x in quantiles(d)]

        assert least_p_value(counts_of(d), count) > alarm
        assert least_p_value(counts_of(d, diagonal=1.0), count) < 1e-3 * alarm
        assert least_p_value(counts_of(d - 1), count) < 1e-9 * alarm
        assert least_p_value(counts_of(d + 1), count) < 1e-9 * alarm


def test_tridiagonal_simulation():
    rng = np.random.default_rng(SEED)
    counts = tridiagonal_counts(quantiles(10), 10, 100_000, rng)
    assert least_p_value(counts, 100_000) > FALSE_ALARM / len(LEVELS)


@pytest.mark.parametrize("d", [4, 7])
def test_alternate_count_is_the_mean_of_half_the_number(d):
    """Also deep inside the spectrum, where 1 − F, E⌈N/2⌉ and E N differ widely."""
    rng = np.random.default_rng(SEED)
    eigenvalues = dense_eigenvalues(d, 60_000, rng)
    for x in (-2.0, 0.0, 1.5, 3.0):
        number = (eigenvalues > x).sum(axis=1)
        half = np.ceil(number / 2)
        error = half.std() / math.sqrt(len(half))
        assert abs(half.mean() - goe.alternate_count(x, d)) < 5.5 * error
        assert x > 0 or abs(number.mean() - goe.alternate_count(x, d)) > 50 * error


@pytest.mark.long
def test_million_matrices(evidence):
    count = 1_000_000
    alarm = FALSE_ALARM / (len(DIMENSIONS) * len(LEVELS))
    rng = np.random.default_rng(SEED)
    figures = {}
    for d in DIMENSIONS:
        computed = tridiagonal_counts(quantiles(d), d, count, rng)
        deviations = [
            (k / count - p) / math.sqrt(p * (1 - p) / count)
            for k, p in zip(computed, LEVELS, strict=True)
        ]
        wrong = {
            "diagonal variance 1": tridiagonal_counts(quantiles(d), d, count, rng, diagonal=1.0),
            "d - 1": tridiagonal_counts(quantiles(d), d - 1, count, rng),
            "d + 1": tridiagonal_counts(quantiles(d), d + 1, count, rng),
        }
        powers = {name: least_p_value(counts, count) for name, counts in wrong.items()}
        assert least_p_value(computed, count) > alarm
        assert max(powers.values()) < 1e-3 * alarm
        figures[str(d)] = {
            "levels": list(LEVELS),
            "share below the quantile": [int(k) / count for k in computed],
            "in standard deviations": [round(z, 2) for z in deviations],
            "least p-value": least_p_value(computed, count),
            "least p-value of wrong matrices": powers,
        }
    evidence["simulation"] = {"matrices each": count, "dimensions": figures}


# --------------------------------------------------------------------------- one-point density


def wave(n, x):
    scale = 0.25 * math.log(2 * math.pi) + 0.5 * gammaln(n + 1)
    return eval_hermitenorm(n, x) * np.exp(-0.25 * x * x - scale)


def panel_rule(a, b, nodes=60):
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return a + (b - a) / 2 * (points + 1), (b - a) / 2 * weights


def density(x, d):
    """Mehta: Σ_{n<d} φ_n² + (√d/2) φ_{d−1} εφ_d, for odd d also φ_{d−1}/∫φ_{d−1}."""
    line = np.linspace(-60, 60, 20_001)
    beyond = np.empty_like(x)
    for index, start in enumerate(x):
        t, weight = panel_rule(start, max(start, 2 * math.sqrt(d)) + 12, 100)
        beyond[index] = (weight * wave(d, t)).sum()
    # εf = ½∫sgn(x − t)f(t)dt = ½∫f − ∫_x^∞ f.
    half = 0.0 if d % 2 else 0.5 * wave(d, line).sum() * (line[1] - line[0])
    value = sum(wave(n, x) ** 2 for n in range(d))
    value += 0.5 * math.sqrt(d) * wave(d - 1, x) * (half - beyond)
    if d % 2:
        value += wave(d - 1, x) / (wave(d - 1, line).sum() * (line[1] - line[0]))
    return value


def count_above(x, d):
    """E #{λ > x}."""
    t, weight = panel_rule(x, x + 6)
    return float((weight * density(t, d)).sum())


def far_tail(d, tail):
    x = goe_largest_eigenvalue_quantile(tail, d, upper=True)
    return x, count_above(x, d) / tail - 1


@pytest.mark.parametrize("d", [2, 5, 6])
def test_density_counts_every_eigenvalue(d):
    edge = 2 * math.sqrt(d) + 7
    pieces = [panel_rule(a, a + edge / 4) for a in np.arange(-edge, edge - 1e-9, edge / 4)]
    total = sum(float((weight * density(t, d)).sum()) for t, weight in pieces)
    assert total == pytest.approx(d, abs=1e-8)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_far_tail_against_the_expected_number(d):
    x, excess = far_tail(d, 5e-7)
    # An upper bound of 1 − F, and it differs by P(two eigenvalues above x) and rounding only.
    assert -1e-10 < excess < 1e-6
    # A quantile 1e-6 lower, or of another d, is seen.
    assert count_above(x - 1e-6, d) > 5e-7 * (1 + 2e-6)
    for other in (d - 1, d + 1):
        wrong = goe_largest_eigenvalue_quantile(5e-7, other, upper=True)
        assert abs(count_above(wrong, d) / 5e-7 - 1) > 0.05


@pytest.mark.long
def test_far_tail(evidence):
    figures = {}
    for d in (*DIMENSIONS, 60):
        rows = {}
        for tail in (1e-3, 1e-5, 5e-7, 1e-7, 1e-12):
            x, excess = far_tail(d, tail)
            assert -1e-10 < excess < 30 * tail
            rows[f"{tail:g}"] = {"quantile": x, "E number / tail - 1": excess}
        figures[str(d)] = rows
    evidence["far tail"] = figures


# --------------------------------------------------------------------------- Tracy–Widom

# Tracy & Widom's F₁: mean and variance (Bornemann 2010), upper percentage points to the digits
# that tables give.
PUBLISHED_MEAN, PUBLISHED_VARIANCE = -1.2065335745820, 1.6077810345810
PUBLISHED = {0.90: 0.4501, 0.95: 0.9793, 0.99: 2.0234}


def tracy_widom(s):
    """F₁(s) = det(1 − Ai(x + y + s)) on (0, ∞), by Gauss–Legendre (Bornemann 2010)."""
    nodes, weights = panel_rule(0, 16 - s / 2, 60)
    kernel = airy(np.add.outer(nodes, nodes) + s)[0]
    root = np.sqrt(weights)
    return np.linalg.det(np.eye(60) - root[:, None] * kernel * root)


def moments(cdf, nodes=80):
    """Mean and variance from 1 − F on [−9, 13]."""
    s, weight = panel_rule(-9, 13, nodes)
    above = 1 - np.array([cdf(point) for point in s])
    mean = -9 + (weight * above).sum()
    return mean, 81 + 2 * (weight * s * above).sum() - mean**2


def standardised(d, s):
    """The x that Tracy–Widom's s stands for: 2√(d − ½) is nearer the limit than 2√d."""
    return 2 * math.sqrt(d - 0.5) + s * d ** (-1 / 6)


def limit(values, dimensions):
    """The constant of a fit in d^0, d^(−2/3), d^(−1), d^(−4/3), …"""
    powers = np.array([0, *np.arange(2, len(dimensions) + 1) / 3])
    table = np.array(dimensions, dtype=float)[:, None] ** -powers
    return np.linalg.solve(table, np.array(values))[0]


def test_the_reference_is_tracy_widom():
    mean, variance = moments(tracy_widom)
    assert mean == pytest.approx(PUBLISHED_MEAN, abs=1e-10)
    assert variance == pytest.approx(PUBLISHED_VARIANCE, abs=1e-10)
    for p, s in PUBLISHED.items():
        assert tracy_widom(s - 1e-4) < p < tracy_widom(s + 1e-4)


def tracy_widom_figures(dimensions):
    points = (-3.0, -1.5, 0.0, 1.0, 2.0)
    gaps = {}
    for s in points:
        above = [goe.survival(standardised(d, s), d) for d in dimensions]
        gaps[str(s)] = float(limit(above, dimensions) / (1 - tracy_widom(s)) - 1)
    computed_moments = [
        moments(lambda s, d=d: 1 - goe.survival(standardised(d, s), d)) for d in dimensions
    ]
    levels = {}
    for p in PUBLISHED:
        x = [goe_largest_eigenvalue_quantile(p, d) for d in dimensions]
        scaled = [
            (a - standardised(d, 0)) * d ** (1 / 6) for a, d in zip(x, dimensions, strict=True)
        ]
        levels[str(p)] = {"at the largest d": scaled[-1], "limit": float(limit(scaled, dimensions))}
    return {
        "dimensions": list(dimensions),
        "limit of 1 - F over Tracy-Widom's, minus 1": gaps,
        "mean": float(limit([m for m, _ in computed_moments], dimensions)),
        "variance": float(limit([v for _, v in computed_moments], dimensions)),
        "quantiles": levels,
    }


def check_tracy_widom(figures, within):
    assert max(map(abs, figures["limit of 1 - F over Tracy-Widom's, minus 1"].values())) < within
    assert figures["mean"] == pytest.approx(PUBLISHED_MEAN, abs=within)
    assert figures["variance"] == pytest.approx(PUBLISHED_VARIANCE, abs=within)
    for p, s in PUBLISHED.items():
        assert figures["quantiles"][str(p)]["limit"] == pytest.approx(s, abs=within)


def test_limit_is_tracy_widom():
    check_tracy_widom(tracy_widom_figures((12, 24, 48, 96)), 1e-3)


@pytest.mark.long
def test_tracy_widom_limit(evidence):
    figures = tracy_widom_figures((20, 40, 80, 120, 200))
    check_tracy_widom(figures, 2e-4)
    evidence["Tracy-Widom"] = figures


# --------------------------------------------------------------------------- beyond d = 200


def exact_least(tail, x, d):
    """A point just below x at which exact F still misses the level, by bisection in steps."""
    low, high = x - d ** (-1 / 6), x
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if goe.survival(middle, d) <= tail else (middle, high)
    return low


def bonferroni(x, d):
    """1 − F ≥ E Z − E Z(Z−1)/2 for Z = ⌈N/2⌉: the first two coefficients of Pf(J − ξE)."""
    matrix = goe.tail_matrix(x, d)
    # J⁻¹ = −J takes row 2k+1 to row 2k with a minus, and row 2k to row 2k+1.
    product = np.empty_like(matrix)
    product[0::2], product[1::2] = -matrix[1::2], matrix[0::2]
    first = 0.5 * np.trace(product)
    return first, first - 0.5 * (first**2 - 0.5 * np.sum(product * product.T))


def test_beyond_the_exact_range_it_is_a_bound():
    for d, p in ((201, 0.9), (300, 0.5), (350, 1 - 5e-7)):
        x = goe_largest_eigenvalue_quantile(p, d)
        assert goe.survival(x, d) <= 1 - p < goe.survival(x - 5e-4 * d ** (-1 / 6), d)
        first, least = bonferroni(x, d)
        assert first == pytest.approx(goe.alternate_count(x, d), rel=1e-12)
        assert first >= goe.survival(x, d) * (1 - 1e-13) >= least * (1 - 2e-12)


def test_far_beyond_it_is_concentration():
    d = 10**6
    expected = 2000 + math.sqrt(2) * ndtri(0.999)
    assert expected <= goe_largest_eigenvalue_quantile(0.999, d) < expected + 1e-9
    assert 2000 <= goe_largest_eigenvalue_quantile(0.2, d) < 2000 + 1e-9


@pytest.mark.parametrize("d", [1, 2, 7, 60, 130, 300])
def test_concentration_and_the_count_bound_the_quantile(d):
    for tail in (0.5, 0.05, 1e-7):
        x = goe_largest_eigenvalue_quantile(tail, d, upper=True)
        assert x < goe.concentration_bound(tail, d)
        assert goe.alternate_count(x, d) >= goe.survival(x, d) * (1 - 1e-12)


@pytest.mark.long
def test_rounding_up_beyond_200(evidence):
    limits = {0.1: 0.1, 0.5: 5e-4, 0.9: 1e-6, 0.99: 1e-8, 1 - 5e-7: 1e-8}
    figures = {}
    for d in (201, 400, 600):
        rows = {}
        for p, allowed in limits.items():
            x = goe_largest_eigenvalue_quantile(p, d)
            gap = (x - exact_least(1 - p, x, d)) * d ** (1 / 6)
            assert 0 <= gap < allowed
            rows[f"{p:.7g}"] = gap
        figures[str(d)] = rows
    # Where the exact distribution takes minutes, a lower bound of 1 − F takes one matrix.
    proved = {}
    for d in (1000, 2000, 3000):
        for p, allowed in limits.items():
            if p >= 0.5:
                x = goe_largest_eigenvalue_quantile(p, d)
                below = x - allowed * d ** (-1 / 6)
                assert bonferroni(below, d)[1] > 1 - p
        proved[str(d)] = "within the stated distance at p = 0.5 and above, by Bonferroni"
    evidence["rounding up beyond 200"] = {
        "above the exact quantile, in units of d^(-1/6)": figures,
        "stated": {f"{p:.7g}": allowed for p, allowed in limits.items()},
        "proved": proved,
    }


# --------------------------------------------------------------------------- behaviour


def test_round_trip_and_order():
    levels = np.array([1e-4, 0.01, 0.3, 0.7, 0.99, 1 - 1e-7])
    before = np.full(len(levels), -np.inf)
    for d in (1, 2, 3, 4, 9, 30, 61):
        x = np.array([goe_largest_eigenvalue_quantile(p, d) for p in levels])
        assert np.all(np.diff(x) > 0)
        # Interlacing: a larger matrix has the larger quantile.
        assert np.all(x > before)
        before = x
        for point, p in zip(x, levels, strict=True):
            assert goe.survival(point, d) <= 1 - p
            assert goe.survival(point - 1e-6, d) > 1 - p


def test_small_levels_are_rounded_up():
    for d in (1, 5, 60):
        least = goe_largest_eigenvalue_quantile(1e-6, d)
        assert goe_largest_eigenvalue_quantile(1e-9, d) == pytest.approx(least, abs=1e-4)
        assert goe_largest_eigenvalue_quantile(1e-300, d) == pytest.approx(least, abs=1e-4)
        assert goe.survival(-50.0, d) == 1.0


def test_upper_is_the_tail():
    tail = 2.0**-20
    quantile = goe_largest_eigenvalue_quantile(tail, 12, upper=True)
    assert quantile == goe_largest_eigenvalue_quantile(1 - tail, 12)
    # Far out the tail keeps its digits where 1 − p would be 1.
    x = goe_largest_eigenvalue_quantile(1e-40, 12, upper=True)
    assert goe.survival(x, 12) == pytest.approx(1e-40, rel=1e-9)
    assert 0.5 * erfc(x / 2) < 1e-40


@pytest.mark.parametrize("upper", [False, True])
def test_every_parameter_reaches_its_validator(upper):
    good = {"p": 0.9, "d": 3, "upper": upper}
    every_parameter_reaches(goe_largest_eigenvalue_quantile, good)
    for p in (0, 1, 0.0, 1.0):
        with pytest.raises(InvalidInput, match="p="):
            goe_largest_eigenvalue_quantile(p, 3, upper=upper)
    with pytest.raises(InvalidInput, match="1e-250"):
        goe_largest_eigenvalue_quantile(1e-251, 3, upper=True)
