"""The transition: the published separations, dense scans, closed forms, and what is refused."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import kve
from scipy.stats import norm

from expost.errors import InvalidInput
from expost.noise import GaussianLaw, NormLaplaceLaw
from expost.noise.transition import first_plateau, transition
from parameters import every_parameter_reaches

# Issue 3: t at the end of the first plateau, tolerance 0.1.
PUBLISHED = {2: 3.87354, 6: 4.11611, 14: 7.43125, 30: 13.3127}
TOLERANCES = (0.001, 0.01, 0.1, 0.25, 0.299)


def laplace(d, tolerance=0.1):
    return transition(noise="laplace", dimension=d, tolerance=tolerance)


def gaussian(tolerance=0.1, d=3):
    return transition(noise="gaussian", dimension=d, tolerance=tolerance)


def plateau(d):
    return math.gamma(d / 2) / (math.sqrt(math.pi) * math.gamma((d + 1) / 2))


def naive_way(t, d):
    """s(t) from the density of DESIGN.md, ℓ = t·cos φ, by adaptive quadrature of the plain sum."""
    kappa = 2 * (d - 1) / t * kve(d / 2, t / 2) / kve(d / 2 - 1, t / 2)

    def weight(phi):
        return (
            math.exp(t * (math.cos(phi) - 1) / 2)
            * math.sin(phi) ** (d - 2)
            * (kappa + math.sin(phi) ** 2)
        )

    total, exposure = 0.0, 0.0
    for low, high in ((0, math.pi / 2), (math.pi / 2, math.pi)):
        total += quad(weight, low, high, epsabs=0, epsrel=1e-12, limit=200)[0]
        exposure += quad(
            lambda phi: abs(math.cos(phi)) * weight(phi),
            low,
            high,
            epsabs=0,
            epsrel=1e-12,
            limit=200,
        )[0]
    return (exposure / total - plateau(d)) / (1 - plateau(d))


def scan(d, t):
    ratio = NormLaplaceLaw(separation=t, dimension=d).expected_exposure / t
    return (ratio - plateau(d)) / (1 - plateau(d))


@pytest.mark.parametrize(("d", "t"), PUBLISHED.items())
def test_the_published_ends_of_the_first_plateau(d, t):
    ends = laplace(d).leaves
    assert float(f"{ends:.6g}") == t
    # The defining equation, by a route of its own; a tenth of a per cent off is noticed.
    assert naive_way(ends, d) == pytest.approx(0.1, abs=1e-10)
    assert abs(naive_way(ends * 1.001, d) - 0.1) > 1e-5
    assert naive_way(laplace(d).arrives, d) == pytest.approx(0.9, abs=1e-10)


@pytest.mark.parametrize("d", [2, 3, 6, 30, 200])
@pytest.mark.parametrize("tolerance", TOLERANCES)
def test_they_are_the_last_of_a_dense_scan(d, tolerance):
    """The last t with s ≤ τ: no t beyond has s ≤ τ again, and s grows from there on."""
    computed = laplace(d, tolerance)
    t = np.geomspace(1e-3, 50 * (d + 4) / tolerance, 1500)
    s = scan(d, t)
    for end, level in ((computed.leaves, tolerance), (computed.arrives, 1 - tolerance)):
        last = np.flatnonzero(s <= level)[-1]
        assert t[last] <= end <= t[last + 1]
        assert np.all(s[: last + 1] <= level), "one crossing alone: all smaller t are on it too"
        beyond = s[last:]
        assert np.all(np.diff(beyond) >= -1e-13)
    # Rounded: the one end is still on the plateau, the other has arrived.
    ends = np.array([computed.leaves, computed.arrives])
    assert scan(d, ends)[0] <= tolerance + 1e-13
    assert scan(d, ends * (1 + 1e-9))[0] > tolerance
    assert scan(d, ends)[1] >= 1 - tolerance - 1e-13
    assert scan(d, ends * (1 - 1e-9))[1] < 1 - tolerance


def test_two_dimensions_dip_below_the_plateau_first():
    """So that the first t with s = 0 is not where the plateau ends (issue 3)."""
    t = np.geomspace(1e-2, 10, 2000)
    s = scan(2, t)
    deepest = int(np.argmin(s))
    assert s[deepest] < -0.03
    assert 0.5 < t[deepest] < 3
    assert naive_way(t[deepest], 2) == pytest.approx(s[deepest], abs=1e-10)
    # And only there: from d = 3 on s never falls.
    for d in (3, 4, 5, 6, 14, 30):
        assert scan(d, t).min() > -1e-12
    # A bracket that started at the dip's far end, where s = 0 again, would be far too early.
    back = t[deepest + int(np.flatnonzero(s[deepest:] >= 0)[0])]
    assert laplace(2, 0.01).leaves > back > t[deepest]


@pytest.mark.parametrize("tolerance", TOLERANCES)
def test_one_dimension_follows_the_expected_loss(tolerance):
    """E[ℓ]/t = 1 − (1 − e^(−t))/t; the exposures have c₁ = 1 and no transition."""
    expected_loss = lambda t: 1 + math.expm1(-t) / t  # noqa: E731 (a formula)
    ends = laplace(1, tolerance)
    top = 2 / tolerance
    assert ends.leaves == pytest.approx(
        brentq(lambda t: expected_loss(t) - tolerance, 1e-6, top), rel=1e-9
    )
    assert ends.arrives == pytest.approx(
        brentq(lambda t: expected_loss(t) - 1 + tolerance, 1e-6, top), rel=1e-9
    )
    assert "expected loss" in ends.measure
    assert "exposure" not in ends.measure
    assert "from 0.637 to 1" in laplace(2).measure
    assert "exposure" in laplace(2).measure


def folded(mu):
    """E∣N(μ²/2, μ²)∣, from the textbook's folded normal distribution."""
    mean = mu * mu / 2
    return 2 * mu * norm.pdf(mean / mu) + mean * (1 - 2 * norm.cdf(-mean / mu))


def test_the_published_gaussian_ends():
    ends = gaussian()
    assert round(ends.leaves, 3) == 0.902
    assert round(ends.arrives, 3) == 2.353
    assert ends == gaussian(d=1) == gaussian(d=3000)


@pytest.mark.parametrize("tolerance", TOLERANCES)
def test_gaussian_ends_solve_their_equations(tolerance):
    start = lambda mu: folded(mu) - (1 + tolerance) * mu * math.sqrt(2 / math.pi)  # noqa: E731
    end = lambda mu: folded(mu) - (1 + tolerance) * mu * mu / 2  # noqa: E731
    ends = gaussian(tolerance)
    assert ends.leaves == pytest.approx(brentq(start, 1e-3, 5, xtol=1e-15), rel=1e-9)
    assert ends.arrives == pytest.approx(brentq(end, 0.5, 30, xtol=1e-15), rel=1e-9)
    assert ends.leaves < ends.arrives
    # Before and after, in a scan: one crossing each.
    mu = np.geomspace(1e-3, 60, 4000)
    exposure = GaussianLaw(separation=mu).expected_exposure
    np.testing.assert_allclose(exposure[::400], [folded(m) for m in mu[::400]], rtol=1e-11)
    on = exposure <= (1 + tolerance) * mu * math.sqrt(2 / math.pi)
    arrived = exposure <= (1 + tolerance) * mu * mu / 2
    np.testing.assert_array_equal(on, mu <= ends.leaves)
    np.testing.assert_array_equal(arrived, mu >= ends.arrives)


@pytest.mark.parametrize("d", [1, 2, 6, 30, 300, 3000])
def test_more_tolerance_narrows_the_transition(d):
    ends = [laplace(d, tolerance) for tolerance in (1e-6, 1e-4, *TOLERANCES)]
    leaves, arrives = [f.leaves for f in ends], [f.arrives for f in ends]
    assert leaves == sorted(set(leaves))
    assert arrives == sorted(set(arrives), reverse=True)
    assert leaves[-1] < arrives[-1]
    # Far out E∣ℓ∣ = t − E[∥b∥ + b·s/∥s∥] = t − d (in one dimension so is E[ℓ], from 0 on).
    slope = d if d == 1 else d / (1 - plateau_of(d))
    assert arrives[0] * 1e-6 == pytest.approx(slope, rel=1e-3)


def plateau_of(d):
    with mp.workdps(30):
        half = mp.mpf(d) / 2
        return float(mp.gamma(half) / (mp.sqrt(mp.pi) * mp.gamma(half + mp.mpf(1) / 2)))


@pytest.mark.parametrize("d", [1, 2, 3, 6, 30, 300, 3000])
def test_first_plateau(d):
    assert first_plateau(d) == pytest.approx(plateau_of(d), rel=1e-11)
    t = np.array([1e-6])
    ratio = NormLaplaceLaw(separation=t, dimension=d).expected_exposure / t
    assert ratio[0] == pytest.approx(first_plateau(d), rel=2e-6)


def test_known_plateaus():
    assert first_plateau(1) == pytest.approx(1, rel=1e-14)
    assert first_plateau(2) == pytest.approx(2 / math.pi, rel=1e-14)
    assert first_plateau(3) == pytest.approx(0.5, rel=1e-14)


def test_every_parameter_reaches_its_validator():
    good = {"noise": "laplace", "dimension": 2, "tolerance": 0.1}
    every_parameter_reaches(transition, good)
    for tolerance in (0.0, 0.3, 1e-7, math.inf):
        with pytest.raises(InvalidInput, match="tolerance="):
            transition(**{**good, "tolerance": tolerance})
