"""Norm-Laplace noise: δ, ε, loss and rates against integrals in mpmath and the noise itself.

The reference integrates DESIGN's density of ℓ over the tail, P(ℓ > c) and Q(ℓ > c) = P(−ℓ > c)
separately, and subtracts; nothing of the module's folding or windows is in it. The samples do not
use the density: b has a uniform direction and ∥b∥ ~ Gamma(d), ℓ = ∥b − s∥ − ∥b∥.
"""

import math
from functools import cache
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

from expost.noise import NormLaplaceLaw
from expost.risk import EpsilonDelta, NormLaplaceNoise

PAIRS = [(2, 1e-8), (2, 30.0), (3, 2.0), (6, 1e-3), (6, 1.0), (30, 5.0), (300, 40.0)]


class Naive:
    """Tails of ℓ = t cos ψ in mpmath; the angle only takes the density's poles at ±t away."""

    def __init__(self, t, d):
        self.t, self.d = mp.mpf(t), d
        order = mp.mpf(d) / 2
        bessel = mp.besselk(order, self.t / 2) / mp.besselk(order - 1, self.t / 2)
        self.kappa = 2 * (d - 1) / self.t * bessel
        self.total = self.mass(-self.t, 1)

    def height(self, angle, sign):
        sine = mp.sin(angle)
        tilt = mp.exp(sign * self.t * mp.cos(angle) / 2)
        return tilt * sine ** (self.d - 2) * (self.kappa + sine * sine)

    def mass(self, low, sign):
        """∫ over ℓ > low of the density where the row was there (1) or was not (−1)."""
        end, pieces = mp.acos(low / self.t), 2 + int(math.sqrt(self.d)) // 2
        edges = [end * mp.mpf(k) / pieces for k in range(pieces + 1)]
        # mp.quad's tolerance is absolute.
        unit = max(self.height(edge, sign) for edge in edges)
        return unit * mp.quad(
            lambda angle: self.height(angle, sign) / unit, edges, method="gauss-legendre"
        )

    def present(self, c):
        return self.mass(mp.mpf(c), 1) / self.total

    def absent(self, c):
        return self.mass(mp.mpf(c), -1) / self.total

    def delta(self, epsilon):
        return self.present(epsilon) - mp.exp(mp.mpf(epsilon)) * self.absent(epsilon)


@cache
def naive(t, d):
    return Naive(t, d)


@pytest.mark.parametrize(("d", "t"), PAIRS)
def test_delta_epsilon_and_loss_against_mpmath(d, t):
    noise = NormLaplaceNoise(separation=t, dimension=d)
    with mp.workdps(40):
        law = naive(t, d)
        for share in (0.0, 0.4, 0.95):
            exact = law.delta(share * t)
            got = noise.delta(share * t)
            assert exact <= got <= exact * (1 + 1e-11)
            # The inverses at the figure itself.
            back = noise.epsilon(got)
            slope = float(mp.exp(share * t) * law.absent(share * t))
            assert abs(back - share * t) <= 1e-9 * t + 1e-11 * got / slope
            assert noise.delta(back) <= got
            passed = law.present(share * t)
            loss = noise.loss(float(passed))
            assert passed * (1 - 1e-11) <= law.present(loss) <= passed


@pytest.mark.parametrize(("d", "t"), PAIRS)
def test_rates_against_mpmath(d, t):
    """The test at threshold c has fpr = Q(ℓ > c) and tpr = P(ℓ > c); c < 0 is its mirror."""
    noise = NormLaplaceNoise(separation=t, dimension=d)
    with mp.workdps(40):
        law = naive(t, d)
        for share in (0.0, 0.5, 0.95):
            fpr, tpr = law.absent(share * t), law.present(share * t)
            # fpr was rounded to a float: the curve's slope there is e^c.
            room = float(mp.exp(share * t) * fpr) * 2e-16 + 1e-11 * float(tpr)
            assert abs(noise.true_positive_rate(float(fpr)) - tpr) <= room
            assert abs((1 - noise.true_positive_rate(float(1 - tpr))) - fpr) <= 1e-11


def test_tails_far_out():
    """δ down to 1e-300, relative to itself: d = 3000, where a loss near t hardly ever happens."""
    t, d = 1000.0, 3000
    noise = NormLaplaceNoise(separation=t, dimension=d)
    with mp.workdps(40):
        law = naive(t, d)
        for epsilon in (400.0, 600.0, 680.0):
            exact = law.delta(epsilon)
            got = noise.delta(epsilon)
            assert exact <= got <= exact * (1 + 1e-10)
            assert noise.epsilon(float(exact)) == pytest.approx(epsilon, rel=1e-10)
    assert 1e-300 < got < 1e-250
    # About 1e-600, and never 0.
    assert noise.delta(900.0) == math.ulp(0.0)


def test_the_line_has_closed_forms():
    """d = 1: atoms ½ and ½e^(−t) at ±t; every figure from the definition of the Laplace law."""
    for t in (1e-8, 0.1, 1.0, 5.0, 40.0, 1e4):
        noise = NormLaplaceNoise(separation=t, dimension=1)
        with mp.workdps(60):
            T = mp.mpf(t)
            for share in (0.0, 0.3, 0.99):
                exact = 1 - mp.exp((mp.mpf(share * t) - T) / 2)
                assert exact <= noise.delta(share * t) <= exact * (1 + 1e-13)
            for delta in (1e-300, 1e-5, 0.3, 0.5, 0.6, 0.9):
                exact = max(T + 2 * mp.log(1 - mp.mpf(delta)), mp.mpf(0))
                assert exact <= noise.epsilon(delta) <= min(exact + 1e-14 * (T + 5), T)
                exact = T + 2 * mp.log(2 * (1 - mp.mpf(delta))) if delta > 0.5 else T
                exact = max(exact, mp.mpf(0))
                assert exact <= noise.loss(delta) <= min(exact + 1e-14 * (T + 5), T)
            for fpr in (1e-300, 1e-6, 0.01, 0.2, 0.5, 0.7, 1 - 1e-9):
                f = mp.mpf(fpr)
                if f <= mp.exp(-T) / 2:
                    exact = mp.exp(T) * f
                elif f <= 0.5:
                    exact = 1 - mp.exp(-T) / (4 * f)
                else:
                    exact = 1 - mp.exp(-T) * (1 - f)
                assert exact <= noise.true_positive_rate(fpr) <= exact * (1 + 1e-13)


@pytest.mark.parametrize("d", [1, 2, 3, 30, 1000, 100_000])
def test_extremes(d):
    """A right number at every t: against the other implementation where that is exact enough."""
    for t in (1e-200, 1e-8, 1e-3, 1.0, 50.0, 1e4):
        noise = NormLaplaceNoise(separation=t, dimension=d)
        law = NormLaplaceLaw(separation=np.array([t]), dimension=d)
        if t > 1e-100:
            assert noise.advantage == pytest.approx(float(law.advantage[0]), rel=2e-9)
        assert 0 < noise.advantage <= EpsilonDelta(epsilon=t).advantage * (1 + 1e-14)
        for p in (1e-300, 1e-5, 0.9):
            loss, epsilon = noise.loss(p), noise.epsilon(p)
            assert 0 <= epsilon <= loss <= t
            true_rate = noise.true_positive_rate(p)
            assert p <= true_rate <= EpsilonDelta(epsilon=t).true_positive_rate(p) * (1 + 1e-14)
        quantile = max(float(law.quantile(0.9)[0]), 0.0)
        assert noise.loss(0.1) == pytest.approx(quantile, rel=1e-7, abs=1e-9 * t)


def test_edges():
    nothing = NormLaplaceNoise(separation=0.0, dimension=4)
    everything = NormLaplaceNoise(separation=math.inf, dimension=4)
    assert nothing.advantage == nothing.loss() == nothing.epsilon(0.0) == nothing.delta(2.0) == 0
    assert nothing.true_positive_rate(0.3) == nothing.posterior(0.3) == 0.3
    assert (
        everything.advantage == everything.posterior(1e-9) == everything.true_positive_rate(0) == 1
    )
    assert everything.loss(0.5) == everything.epsilon(0.5) == math.inf
    noise = NormLaplaceNoise(separation=2.0, dimension=4)
    assert noise.loss() == noise.epsilon(0.0) == 2
    assert noise.delta(2.0) == noise.true_positive_rate(0.0) == 0
    assert noise.true_positive_rate(1.0) == 1
    assert noise.delta(2.0 * (1 - 1e-15)) < 1e-30
    assert noise.describe().endswith("in 4 dimensions, epsilon = 2")
    line = NormLaplaceNoise(separation=2.0, dimension=1)
    assert line.describe().endswith("in 1 dimension, epsilon = 2")


def losses(t, d, count, rng):
    """ℓ where the row was there, from draws of the noise."""
    direction = rng.normal(size=(count, d))
    noise = direction * (rng.gamma(d, size=count) / np.linalg.norm(direction, axis=1))[:, None]
    inner, norm = noise[:, 0].copy(), np.linalg.norm(noise, axis=1)
    noise[:, 0] -= t
    return (t * t - 2 * t * inner) / (np.linalg.norm(noise, axis=1) + norm)


@pytest.mark.parametrize("d", [1, 2, 6, 30])
def test_against_the_noise_itself(d):
    """200,000 draws in each world, seven figures within 3.5 standard errors (1 false alarm in 300
    of these tests); a separation 10 % off is rejected."""
    count, t = 200_000, 2.0
    rng = np.random.default_rng(d)
    there, absent = losses(t, d, count, rng), -losses(t, d, count, rng)

    def scores(noise):
        yield mean_score((there > 0) * 1.0, (absent > 0) * 1.0, noise.advantage)
        for epsilon in (0.3, 1.0):
            yield mean_score(
                np.maximum(-np.expm1(epsilon - there), 0), np.zeros(1), noise.delta(epsilon)
            )
        # The line has atoms, and no threshold there has these rates.
        for fpr in (0.01, 0.1) if d > 1 else ():
            threshold = np.quantile(absent, 1 - fpr)
            error = math.exp(threshold) * math.sqrt(fpr * (1 - fpr) / count)
            hits = (there > threshold) * 1.0
            spread = math.hypot(error, hits.std() / math.sqrt(count))
            yield (hits.mean() - noise.true_positive_rate(fpr)) / spread
        for delta in (0.01, 0.2) if d > 1 else (0.6, 0.7):
            passed = np.mean(there > noise.loss(delta))
            yield (passed - delta) / math.sqrt(delta * (1 - delta) / count)

    right = list(scores(NormLaplaceNoise(separation=t, dimension=d)))
    assert np.max(np.abs(right)) < 3.5
    for wrong in (0.9 * t, 1.1 * t):
        off = list(scores(NormLaplaceNoise(separation=wrong, dimension=d)))
        assert np.max(np.abs(off)) > 5


def mean_score(first, second, expected):
    variance = first.var() / len(first) + second.var() / len(second)
    return (first.mean() - second.mean() - expected) / math.sqrt(variance)


def test_the_furthest_pair_bounds_the_others():
    """Log-concave noise: P(ℓ > c) for c ≥ 0, and with it every figure, grows with the distance."""
    for d in (1, 2, 50):
        noises = [NormLaplaceNoise(separation=t, dimension=d) for t in (0.1, 0.5, 2.0, 9.0)]
        for near, far in pairwise(noises):
            for x in (0.0, 0.3, 2.0):
                assert near.delta(x) <= far.delta(x)
            for p in (1e-9, 0.3, 0.6):
                assert near.loss(p) <= far.loss(p)
                assert near.epsilon(p) <= far.epsilon(p)
                assert near.true_positive_rate(p) <= far.true_positive_rate(p)
