"""Densities, losses, their error bounds and tails of the norm, for both noises."""

import mpmath as mp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chi, gamma, laplace, multivariate_normal

from expost.errors import InvalidInput
from expost.noise import Gaussian, NormLaplace
from parameters import refuse_nan


def noises(d):
    return [NormLaplace(rate=3.0, dimension=d), Gaussian(scale=0.4, dimension=d)]


def both(*dimensions):
    cases = [noise for d in dimensions for noise in noises(d)]
    return pytest.mark.parametrize("noise", cases, ids=repr)


def exact_loss(noise, b, s):
    """The loss by definition, norms subtracted, in mpmath from exact entries."""
    size = lambda v: mp.sqrt(mp.fsum(x * x for x in v))  # noqa: E731 - short
    rest = [x - y for x, y in zip(b, s, strict=True)]
    if isinstance(noise, NormLaplace):
        return mp.mpf(noise.rate) * (size(rest) - size(b))
    return (size(rest) ** 2 - size(b) ** 2) / (2 * mp.mpf(noise.scale) ** 2)


def exact(vector):
    return [mp.mpf(float(x)) for x in vector]


def test_density_is_the_textbook_one():
    rng = np.random.default_rng(0)
    b = rng.normal(size=(50, 1))
    np.testing.assert_allclose(
        NormLaplace(rate=3.0, dimension=1).log_density(b), laplace.logpdf(b[:, 0], scale=1 / 3.0)
    )
    b = rng.normal(size=(50, 5))
    np.testing.assert_allclose(
        Gaussian(scale=0.4, dimension=5).log_density(b),
        multivariate_normal(np.zeros(5), 0.16 * np.eye(5)).logpdf(b),
    )


@both(1, 2, 6, 100, 3000)
def test_density_is_normalised(noise):
    """Integrated over spheres: area of the unit sphere × ∫ r^(d−1) p(r) dr = 1."""
    d = noise.dimension
    low, high = noise.norm_exceeded_with(1 - 1e-12), noise.norm_exceeded_with(1e-12)
    points, weights = np.polynomial.legendre.leggauss(200)
    r = low + 0.5 * (high - low) * (points + 1)
    b = np.zeros((200, d))
    b[:, 0] = r
    with mp.workdps(30):
        log_area = float(mp.log(2) + mp.mpf(d) / 2 * mp.log(mp.pi) - mp.loggamma(mp.mpf(d) / 2))
    terms = noise.log_density(b) + (d - 1) * np.log(r) + log_area
    total = logsumexp(terms, b=weights * 0.5 * (high - low))
    assert total == pytest.approx(0, abs=1e-9)


@both(1, 4, 500)
def test_norm_tails_and_quantiles(noise):
    d = noise.dimension
    law = gamma(d, scale=1 / 3.0) if isinstance(noise, NormLaplace) else chi(d, scale=0.4)
    x = law.ppf([1e-9, 0.1, 0.5, 0.99, 1 - 1e-12])
    below, above = noise.norm_tails(x)
    np.testing.assert_allclose(below, law.cdf(x), rtol=1e-10)
    np.testing.assert_allclose(above, law.sf(x), rtol=1e-10)
    for probability in (0.5, 1e-3, 1e-12, 1e-100):
        quantile = noise.norm_exceeded_with(probability)
        assert float(noise.norm_tails(quantile)[1]) == pytest.approx(probability, rel=1e-9)
    assert [float(v) for v in noise.norm_tails(0.0)] == [0, 1]
    assert [float(v) for v in noise.norm_tails(np.inf)] == [1, 0]


def test_small_tail_quantile_against_mpmath():
    with mp.workdps(40):
        for d in (1, 14, 1000):
            x = 3.0 * NormLaplace(rate=3.0, dimension=d).norm_exceeded_with(1e-12)
            tail = mp.gammainc(d, mp.mpf(x), regularized=True)
            assert abs(tail / mp.mpf("1e-12") - 1) < 1e-10


@both(1, 2, 7)
@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, 1e4])
def test_losses_against_the_definition(noise, size):
    rng = np.random.default_rng(5)
    b = noise.sample(20, rng)
    s = size * rng.normal(size=(20, noise.dimension))
    with mp.workdps(60):
        expected = [exact_loss(noise, exact(x), exact(y)) for x, y in zip(b, s, strict=True)]
        scale = noise.law(np.linalg.norm(s, axis=1)).expected_exposure
        for got in (noise.loss(b, s), loss_from_rows(noise, b, s)):
            error = [abs(float(mp.mpf(float(x)) - y)) for x, y in zip(got, expected, strict=True)]
            assert np.all(np.array(error) <= 1e-13 * scale)
    # The definition in float64 is not good enough, which is why it is not used.
    if size == 1e-9:
        naive = noise.log_density(b) - noise.log_density(b - s)
        assert np.max(np.abs(naive - noise.loss(b, s)) / scale) > 1e-10


def loss_from_rows(noise, b, s):
    return noise.loss_from(
        np.linalg.norm(b, axis=1), np.einsum("ij,ij->i", b, s), np.linalg.norm(s, axis=1)
    )


@both(3)
def test_one_noise_vector_serves_all_rows(noise):
    rng = np.random.default_rng(3)
    b, s = noise.sample(1, rng)[0], rng.normal(size=(8, 3))
    got = noise.loss_from(float(np.linalg.norm(b)), s @ b, np.linalg.norm(s, axis=1))
    np.testing.assert_allclose(got, noise.loss(b, s), rtol=1e-12)
    np.testing.assert_allclose(got, [float(noise.loss(b, row)) for row in s], rtol=1e-12)


@both(1, 3)
def test_losses_at_the_edges(noise):
    d = noise.dimension
    b = np.linspace(0.5, 1.0, d)
    zero = np.zeros(d)
    assert float(noise.loss(zero, zero)) == 0
    assert float(noise.loss(b, zero)) == 0
    assert float(noise.loss_from(0.0, 0.0, 0.0)) == 0
    # b = s: the largest possible evidence against the row, −β∥s∥ (norm-Laplace).
    size = float(np.linalg.norm(b))
    expected = -3.0 * size if isinstance(noise, NormLaplace) else -(size**2) / 2 / 0.16
    assert float(noise.loss(b, b)) == pytest.approx(expected, rel=1e-14)
    assert float(noise.loss_from(size, b @ b, size)) == pytest.approx(expected, rel=1e-7)
    # Nothing passes β∥s∥, whatever the rounding of b·s.
    if isinstance(noise, NormLaplace):
        inner = size * size * (1 + np.linspace(-1e-14, 1e-14, 101))
        assert np.all(np.abs(noise.loss_from(size, inner, size)) <= 3.0 * size)


def perturbed(rng, noise, n):
    """(b, s, b', s', shift_error, base_error): b', s' within the errors, in the worst directions."""
    d = noise.dimension
    b = noise.sample(n, rng)
    s = 10.0 ** rng.uniform(-6, 2, (n, 1)) * rng.normal(size=(n, d))
    near = rng.random(n) < 0.2
    s[near] = b[near] * (1 + 10.0 ** rng.uniform(-16, -1, (near.sum(), 1)))
    size, length = np.linalg.norm(s, axis=1), np.linalg.norm(b, axis=1)
    shift_error = size * 10.0 ** rng.uniform(-14, 0.3, n) * (rng.random(n) < 0.7)
    base_error = length * 10.0 ** rng.uniform(-14, 0.3, n) * (rng.random(n) < 0.7)
    unit = lambda v: v / np.linalg.norm(v, axis=1, keepdims=True)  # noqa: E731 - short
    rest = np.where(np.linalg.norm(b - s, axis=1, keepdims=True) > 0, b - s, b)
    sign = rng.choice([-1, 1], (n, 1))
    along = sign * unit(rest) * shift_error[:, None]
    steepest = unit(rest) - unit(b) + 1e-9 * rng.normal(size=(n, d))
    across = -sign * unit(steepest) * base_error[:, None]
    if isinstance(noise, Gaussian):
        along, across = (
            sign * unit(rest) * shift_error[:, None],
            sign * unit(s) * base_error[:, None],
        )
    return b, s, along, across, shift_error, base_error


@both(1, 2, 9)
def test_loss_error_bounds_the_loss(noise):
    """No violation in the worst directions; and the bound is reached within a factor of 3."""
    rng = np.random.default_rng(11)
    n = 1500
    b, s, along, across, shift_error, base_error = perturbed(rng, noise, n)
    length, size = np.linalg.norm(b, axis=1), np.linalg.norm(s, axis=1)
    got = loss_from_rows(noise, b, s)
    bound = noise.loss_error(length, size, shift_error, base_error)
    only_shift = noise.loss_error(length, size, shift_error)
    only_base = noise.loss_error(length, size, 0.0, base_error)
    error = np.empty(n)
    with mp.workdps(50):
        for i in range(n):
            true_b = [x + y for x, y in zip(exact(b[i]), exact(across[i]), strict=True)]
            true_s = [x + y for x, y in zip(exact(s[i]), exact(along[i]), strict=True)]
            error[i] = abs(mp.mpf(float(got[i])) - exact_loss(noise, true_b, true_s))
    # The perturbations have their nominal length up to a rounding.
    assert np.all(error <= bound * (1 + 1e-12))
    large = (shift_error > 1e-3 * size) | (base_error > 1e-3 * length)
    # On a line the loss often does not move at all, and rarely against its bound.
    large &= error > 0
    assert np.median(bound[large] / error[large]) < 3
    # Power: each of the two terms is needed.
    assert np.any(error > 1.01 * only_shift)
    assert np.any(error > 1.01 * only_base)


@both(2, 9)
def test_loss_error_counts_the_error_of_the_inner_product(noise):
    rng = np.random.default_rng(12)
    b, s, *_ = perturbed(rng, noise, 2000)
    length, size = np.linalg.norm(b, axis=1), np.linalg.norm(s, axis=1)
    off = length * size * 10.0 ** rng.uniform(-12, 0.5, 2000)
    inner = np.einsum("ij,ij->i", b, s)
    bound = noise.loss_error(length, size, 0.0, inner_error=off)
    rounding = noise.loss_error(length, size, 0.0)
    for sign in (-1, 1):
        moved = np.abs(noise.loss_from(length, inner + sign * off, size) - noise.loss(b, s))
        assert np.all(moved <= bound)
        assert np.any(moved > 2 * rounding)


@both(14)
def test_rounding_alone_is_small_and_covers(noise):
    """Without errors of shift and base the bound is a few ulps of β∥s∥ (or its like)."""
    rng = np.random.default_rng(13)
    b = noise.sample(400, rng)
    s = 1e-3 * rng.normal(size=(400, 14))
    bound = noise.loss_error(np.linalg.norm(b, axis=1), np.linalg.norm(s, axis=1), 0.0)
    got = loss_from_rows(noise, b, s)
    with mp.workdps(50):
        error = np.array(
            [
                float(abs(mp.mpf(float(got[i])) - exact_loss(noise, exact(b[i]), exact(s[i]))))
                for i in range(400)
            ]
        )
    assert np.all(error <= bound)
    scale = noise.law(np.linalg.norm(s, axis=1)).quantile(0.999)
    assert np.max(bound / scale) < 1e-12


@both(3)
def test_unbounded_errors_stay_unbounded(noise):
    assert np.all(noise.loss_error(1.0, [0.0, 1.0], np.inf) == np.inf)
    assert np.all(noise.loss_error(1.0, [0.0, 1.0], np.inf, 0.5) == np.inf)
    assert np.all(noise.loss_error(1.0, 1.0, 0.1, np.inf) >= noise.loss_error(1.0, 1.0, 0.1, 1e6))
    assert float(noise.loss_error(0.0, 0.0, 0.0)) == 0


def test_every_parameter_reaches_its_validator():
    assert refuse_nan(NormLaplace, {"rate": 1.0, "dimension": 2}) == ["rate", "dimension"]
    assert refuse_nan(Gaussian, {"scale": 1.0, "dimension": 2}) == ["scale", "dimension"]


@both(2)
def test_bad_arguments_raise(noise):
    b = np.ones(2)
    calls = [
        lambda: noise.log_density([1.0, np.nan]),
        lambda: noise.log_density([1.0, 2.0, 3.0]),
        lambda: noise.log_density(1.0),
        lambda: noise.loss(b, [np.inf, 0.0]),
        lambda: noise.loss(b, "shift"),
        lambda: noise.loss_from(1.0, np.nan, 1.0),
        lambda: noise.loss_from(np.nan, 1.0, 1.0),
        lambda: noise.loss_from(1.0, 1.0, -1.0),
        lambda: noise.loss_from(1.0, 1.0, np.inf),
        lambda: noise.loss_from(np.ones(2), np.ones(3), np.ones(3)),
        lambda: noise.loss_from(1.0, np.ones(3), np.ones(2)),
        lambda: noise.loss_error(1.0, 1.0, np.nan),
        lambda: noise.loss_error(1.0, 1.0, -0.1),
        lambda: noise.loss_error(1.0, np.ones(3), np.ones(2)),
        lambda: noise.norm_tails(np.nan),
        lambda: noise.norm_tails(-1.0),
        lambda: noise.norm_exceeded_with(0.0),
        lambda: noise.norm_exceeded_with(np.nan),
        lambda: noise.coverage(np.nan, 1.0),
        lambda: noise.coverage(1.0, np.nan),
        lambda: noise.coverage(1.0, 0.0),
        lambda: noise.sample(-1, np.random.default_rng(0)),
        lambda: noise.sample_secure(1.5),
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            call()


@both(1, 2, 7)
@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, 1e4])
def test_losses_in_place_against_the_definition(noise, size):
    """The inner loop of simulations: lengths in units of the noise, the excess overwritten."""
    unit = type(noise)(
        **{name: 1.0 for name in vars(noise) if name != "dimension"}, dimension=noise.dimension
    )
    rng = np.random.default_rng(6)
    s = size * rng.normal(size=(20, noise.dimension))
    for b in unit.sample(3, rng):
        distance = np.linalg.norm(s, axis=1)
        excess = distance**2 - 2 * s @ b
        scratch = np.full(20, np.nan)
        losses = excess.copy()
        assert unit.loss_in_place(float(np.linalg.norm(b)), losses, scratch) is None
        with mp.workdps(60):
            expected = np.array([float(exact_loss(unit, exact(b), exact(row))) for row in s])
        scale = unit.law(distance).expected_exposure
        np.testing.assert_array_less(np.abs(losses - expected), 1e-13 * scale + 1e-300)
        # And as the checked function says, whose clip at ±t only takes rounding away.
        np.testing.assert_allclose(losses, unit.loss(b, s), rtol=1e-9, atol=1e-13 * size)


def test_losses_in_place_where_the_noise_ends_at_the_neighbour():
    """∥b − s∥² is rounding there, possibly below 0: taken for 0, never NaN."""
    noise = NormLaplace(rate=1.0, dimension=2)
    for norm in (1.0, 0.3, 1e-3, 7.7):
        excess = np.array([-norm * norm, -norm * norm * (1 + 1e-15), 0.0])
        noise.loss_in_place(norm, excess, np.empty(3))
        np.testing.assert_allclose(excess, [-norm, -norm, 0.0], rtol=1e-7)
