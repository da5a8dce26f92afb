"""The probability of landing in a ball, against elementary caps, a mixture and Monte Carlo."""

import mpmath as mp
import numpy as np
import pytest
from scipy.special import chndtr
from scipy.stats import binom, gamma, laplace, norm

from expost.noise import Gaussian, NormLaplace


def naive(noise, offset, radius):
    """∫ f_R(r)·cap(r) dr in mpmath, with the caps of the plane and of space: d = 2, 3 only."""
    d = noise.dimension
    p, c = mp.mpf(offset), mp.mpf(radius)
    if isinstance(noise, NormLaplace):
        rate = mp.mpf(noise.rate)
        density = lambda r: rate**d * r ** (d - 1) * mp.exp(-rate * r) / mp.gamma(d)  # noqa: E731 - as below
    else:
        s = mp.mpf(noise.scale)
        density = lambda r: (  # noqa: E731 - two formulas of one shape
            r ** (d - 1) * mp.exp(-((r / s) ** 2) / 2) / s**d / 2 ** (mp.mpf(d) / 2 - 1)
            / mp.gamma(mp.mpf(d) / 2)
        )  # fmt: skip

    def cap(r):
        h = max(min((r * r + p * p - c * c) / (2 * r * p), mp.mpf(1)), mp.mpf(-1))
        return mp.acos(h) / mp.pi if d == 2 else (1 - h) / 2

    near, far = abs(c - p), c + p
    cuts = sorted({near, far} | {near + (far - near) * k / 8 for k in range(1, 8)})
    cuts = sorted({*cuts, *(near * 30**k for k in range(1, 6) if near * 30**k < far)})
    inside = mp.quad(density, mp.linspace(0, near, 9)) if c > p else mp.mpf(0)
    return inside + mp.quad(lambda r: density(r) * cap(r) if r > 0 else mp.mpf(0), cuts)


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("make", [NormLaplace, Gaussian])
def test_plane_and_space_against_mpmath(make, d):
    noise = make(**{"rate" if make is NormLaplace else "scale": 1.7}, dimension=d)
    cases = [(1, 1), (1.0001, 1), (0.9999999, 1), (2, 0.01), (8, 3), (0.5, 3), (0.01, 2), (1e-9, 1)]
    with mp.workdps(25):
        for offset, radius in cases:
            expected = float(naive(noise, offset, radius))
            assert float(noise.coverage(offset, radius)) == pytest.approx(expected, rel=1e-9)
            # Power: a radius 1 ‰ off is seen.
            wrong = float(noise.coverage(offset, 1.001 * radius))
            assert wrong != pytest.approx(expected, rel=1e-9)


def test_line_has_closed_forms():
    p = np.array([0.0, 1e-9, 0.3, 0.999999, 1.0, 1.000001, 4.0, 60.0])
    for c in (0.01, 1.0, 30.0):
        np.testing.assert_allclose(
            NormLaplace(rate=2.0, dimension=1).coverage(p, c),
            laplace.cdf(p + c, scale=0.5) - laplace.cdf(p - c, scale=0.5),
            atol=1e-14,
        )
        np.testing.assert_allclose(
            Gaussian(scale=0.5, dimension=1).coverage(p, c),
            norm.cdf(p + c, scale=0.5) - norm.cdf(p - c, scale=0.5),
            atol=1e-14,
        )
    # The tail keeps its relative accuracy: ½(e^−2(p−c) − e^−2(p+c)).
    far = float(NormLaplace(rate=2.0, dimension=1).coverage(60.0, 1.0))
    assert far == pytest.approx(0.5 * np.exp(-118) * (1 - np.exp(-4)), rel=1e-11)


def mixture(d, offset, radius):
    """exp(−∥b∥) is a mixture of Gaussians whose variance is Gamma((d+1)/2, 2): an own route."""
    law = gamma((d + 1) / 2, scale=2)
    low, high = np.log(law.ppf(1e-12)), np.log(law.isf(1e-17))
    points, weights = np.polynomial.legendre.leggauss(400)
    variance = np.exp(low + 0.5 * (high - low) * (points + 1))
    share = weights * 0.5 * (high - low) * variance * law.pdf(variance)
    return float(share @ chndtr(radius**2 / variance, d, offset**2 / variance))


@pytest.mark.parametrize("d", [2, 6, 30, 300, 3000])
def test_norm_laplace_is_a_gaussian_mixture(d):
    noise = NormLaplace(rate=1.0, dimension=d)
    for offset, radius in [
        (0.01, d),
        (np.sqrt(d), d),
        (d, d),
        (2 * d, 2.2 * d),
        (0.3 * d, 1.1 * d),
    ]:
        expected = mixture(d, offset, radius)
        assert float(noise.coverage(offset, radius)) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("d", [1, 2, 3, 14, 300, 10_000])
def test_gaussian_is_noncentral_chi_square(d):
    noise = Gaussian(scale=2.0, dimension=d)
    offset = 2 * np.logspace(-3, 2.5, 40)
    for radius in (0.2, 2.0, 2 * np.sqrt(d), 2 * np.sqrt(d) + 20):
        expected = chndtr((radius / 2) ** 2, d, (offset / 2) ** 2)
        np.testing.assert_allclose(noise.coverage(offset, radius), expected, atol=1e-11)


def test_gaussian_where_the_library_gives_up():
    noise = Gaussian(scale=1.0, dimension=3)
    assert float(noise.coverage(1e6 + 1, 1e6)) == pytest.approx(norm.cdf(-1), rel=1e-5)
    # A small ball far out: volume × density at its middle, with the first correction.
    expected = 4 / 3 * np.pi * 1e-6 * np.exp(-450) / (2 * np.pi) ** 1.5
    assert float(noise.coverage(30.0, 0.01)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("make", [NormLaplace, Gaussian])
@pytest.mark.parametrize("d", [1, 4, 50])
def test_against_monte_carlo(make, d):
    """Binomial at a false-alarm rate of 1e-6 each; the coverage at 0.9 × the offset is rejected."""
    noise = make(**{"rate" if make is NormLaplace else "scale": 1.3}, dimension=d)
    draws = noise.sample(200_000, np.random.default_rng(d))
    median_norm = noise.norm_exceeded_with(0.5)
    offset = np.zeros(d)
    offset[0] = median_norm
    radius = 1.2 * median_norm
    hits = int(np.sum(np.linalg.norm(draws - offset, axis=1) <= radius))

    def plausible(probability):
        tails = (
            binom.cdf(hits, len(draws), probability),
            binom.sf(hits - 1, len(draws), probability),
        )
        return min(tails) > 0.5e-6

    assert plausible(float(noise.coverage(median_norm, radius)))
    assert not plausible(float(noise.coverage(0.9 * median_norm, radius)))


@pytest.mark.parametrize("make", [NormLaplace, Gaussian])
@pytest.mark.parametrize("d", [1, 2, 6, 1000])
def test_limits_and_monotony(make, d):
    noise = make(**{"rate" if make is NormLaplace else "scale": 1.0}, dimension=d)
    radius = noise.norm_exceeded_with(0.3)
    offset = np.concatenate(
        [[0.0, 1e-300, 1e-12], radius * np.logspace(-6, 3, 60), [1e160, np.inf]]
    )
    covered = noise.coverage(offset, radius)
    assert covered[0] == pytest.approx(0.7, rel=1e-12)
    assert covered[1] == pytest.approx(0.7, rel=1e-12)
    assert covered[-1] == covered[-2] == 0
    assert np.all(np.diff(covered) <= 1e-11)
    assert noise.coverage(np.ones((2, 3)), radius).shape == (2, 3)
    assert noise.coverage(1.0, radius).shape == ()
    assert float(noise.coverage(1.0, 1e9)) == pytest.approx(1, abs=1e-12)
