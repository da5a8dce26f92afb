"""The sweep against brute force: every row by itself, dense scans over ε, sampled models."""

import dataclasses
import math
from functools import cache

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, kve, logit
from scipy.stats import norm

from expost.epsilon.limit import PosteriorLimit
from expost.epsilon.sweep import LawSweep, Pair
from expost.glm import Objective, minimise
from expost.losses import Logistic
from expost.mechanisms import OutputPerturbation
from expost.neighbouring.neighbours import tight_neighbours
from expost.noise import Gaussian, GaussianLaw, NormLaplace, NormLaplaceLaw

DELTA = 1e-5
CASES = [("laplace", 1), ("laplace", 2), ("laplace", 6), ("gaussian", 1), ("gaussian", 3)]
by_case = pytest.mark.parametrize(("noise", "d"), CASES)
LIMITS = [
    PosteriorLimit(max_posterior=0.75),
    PosteriorLimit(max_posterior=0.51),
    PosteriorLimit(max_posterior=0.999),
    PosteriorLimit(max_posterior=0.3, prior=0.05),
    PosteriorLimit(max_posterior=0.9, prior=0.8),
    PosteriorLimit(max_posterior=0.75, quantile=0.5),
    PosteriorLimit(max_posterior=0.9, quantile=0.99),
    PosteriorLimit(max_posterior=0.4, prior=0.2, quantile=0.75),
]


@cache
def neighbours(d, n=24):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    problem = Objective.of(X=X, y=y, loss=Logistic(), penalty=np.full(d, 0.1))
    return tight_neighbours(problem, minimise(problem, tolerance=1e-12))


def make(noise, d, *, near=None, **changes):
    near = near or neighbours(d)
    mechanism = OutputPerturbation(
        epsilon=1.0,
        delta=DELTA if noise == "gaussian" else None,
        noise=noise,
        loss=Logistic(),
        regularization=0.1,
        rows=len(near),
        dimension=d,
    )
    values = {
        "mechanism": mechanism,
        "limit": LIMITS[0],
        "epsilons": np.geomspace(0.1, 1e3, 9),
        "tolerance": 0.1,
        "share": 0.5,
        "models": 20,
        "seed": np.random.SeedSequence(5),
        "workers": 1,
        **changes,
    }
    return LawSweep.of(near, **values)


def moved(near, distance, error):
    """Neighbours whose distances and certificates are given."""
    return dataclasses.replace(
        near, distance=np.asarray(distance, float), error_bound=np.asarray(error, float)
    )


def separations(sweep, epsilon, distance):
    """β·distance or distance/σ of every row, with the noise of an actual release at this ε."""
    law = dataclasses.replace(sweep.mechanism, epsilon=float(epsilon)).law
    if isinstance(law, NormLaplace):
        return [law.rate * apart for apart in distance]
    return [apart / law.scale for apart in distance]


def ends(sweep):
    """The upper and the lower end of each distance."""
    distance, error = sweep.held
    upper = [a + e for a, e in zip(distance, error, strict=True)]
    lower = [max(a - e, 0.0) for a, e in zip(distance, error, strict=True)]
    return upper, lower


def distances_to_regimes(sweep, t):
    """(how far off the first plateau, how far short of the second regime), 0.1 being the limit."""
    d, t = sweep.mechanism.dimension, np.array(t)
    if sweep.mechanism.noise == "gaussian":
        exposure = GaussianLaw(separation=t).expected_exposure
        return exposure / (t * math.sqrt(2 / math.pi)) - 1, exposure / (t**2 / 2) - 1
    law = NormLaplaceLaw(separation=t, dimension=d)
    if d == 1:
        return law.expected_loss / t, 1 - law.expected_loss / t
    first = math.gamma(d / 2) / (math.sqrt(math.pi) * math.gamma((d + 1) / 2))
    s = (law.expected_exposure / t - first) / (1 - first)
    return s, 1 - s


def naive_mean(noise, d, t, function):
    """E[function(ℓ)] from the density of DESIGN.md by adaptive quadrature."""
    if noise == "gaussian":
        density = lambda z: function(t * t / 2 + t * z) * norm.pdf(z)  # noqa: E731 (a formula)
        # Split where the loss is 0.
        parts = ((-14, min(-t / 2, 14)), (max(-t / 2, -14), 14))
        return sum(quad(density, *part, epsabs=1e-13, limit=500)[0] for part in parts)
    if d == 1:
        between = quad(lambda x: function(x) * math.exp((x - t) / 2) / 4, -t, t, epsabs=1e-13)[0]
        return between + function(t) / 2 + function(-t) * math.exp(-t) / 2
    kappa = 2 * (d - 1) / t * kve(d / 2, t / 2) / kve(d / 2 - 1, t / 2)

    def weight(phi):
        tilt = math.exp(t * (math.cos(phi) - 1) / 2)
        return tilt * math.sin(phi) ** (d - 2) * (kappa + math.sin(phi) ** 2)

    total = quad(weight, 0, math.pi, epsabs=0, epsrel=1e-12, limit=500)[0]
    mean = quad(
        lambda phi: function(t * math.cos(phi)) * weight(phi),
        0,
        math.pi,
        epsabs=1e-13,
        limit=500,
        points=[math.pi / 2],
    )[0]
    return mean / total


def naive_survival(noise, d, t, loss):
    """P(ℓ > loss) from the same density, over the losses past it alone."""
    if noise == "gaussian":
        return float(norm.sf(loss / t - t / 2))
    if loss >= t:
        return 0.0
    if d == 1:
        inside = quad(lambda x: math.exp((x - t) / 2) / 4, loss, t, epsabs=1e-13)[0]
        return 0.5 + inside
    kappa = 2 * (d - 1) / t * kve(d / 2, t / 2) / kve(d / 2 - 1, t / 2)

    def weight(phi):
        tilt = math.exp(t * (math.cos(phi) - 1) / 2)
        return tilt * math.sin(phi) ** (d - 2) * (kappa + math.sin(phi) ** 2)

    whole, past = (
        quad(weight, 0, end, epsabs=0, epsrel=1e-12, limit=500)[0]
        for end in (math.pi, math.acos(loss / t))
    )
    return past / whole


def law_of(noise, d, t):
    if noise == "gaussian":
        return GaussianLaw(separation=np.array(t))
    return NormLaplaceLaw(separation=np.array(t), dimension=d)


def posteriors(sweep, epsilon, distance):
    """The posterior of every row at the quantile, one by one."""
    noise, d, limit = sweep.mechanism.noise, sweep.mechanism.dimension, sweep.limit
    law = law_of(noise, d, separations(sweep, epsilon, distance))
    return expit(logit(limit.prior) + law.quantile(limit.quantile))


class TestTransition:
    @by_case
    @pytest.mark.parametrize("tolerance", [0.1, 0.02])
    def test_low_is_the_largest_with_every_row_on_its_plateau(self, noise, d, tolerance):
        sweep = make(noise, d, tolerance=tolerance)
        upper, _ = ends(sweep)

        def everyone(epsilon):
            return np.all(
                distances_to_regimes(sweep, separations(sweep, epsilon, upper))[0]
                <= tolerance + 1e-12
            )

        assert everyone(sweep.low)
        assert not everyone(sweep.low * (1 + 1e-6))
        grid = np.geomspace(sweep.low / 30, sweep.low * 30, 24)
        on = [bool(everyone(epsilon)) for epsilon in grid]
        assert on == [epsilon <= sweep.low for epsilon in grid]

    @by_case
    @pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
    def test_high_is_the_smallest_with_the_share_in_its_second_regime(self, noise, d, share):
        sweep = make(noise, d, share=share)
        _, lower = ends(sweep)

        def arrived(epsilon):
            short = distances_to_regimes(
                sweep, np.maximum(separations(sweep, epsilon, lower), 1e-300)
            )[1]
            return np.count_nonzero(short <= 0.1 + 1e-12)

        assert arrived(sweep.high) >= share * 24
        assert arrived(sweep.high * (1 - 1e-6)) < share * 24
        # Not only to rounding: the separations themselves have arrived.
        there = np.array(separations(sweep, sweep.high, lower))
        assert np.count_nonzero(there >= sweep.transition.arrives) >= share * 24
        grid = np.geomspace(sweep.high / 20, sweep.high * 20, 14)
        assert [arrived(e) >= share * 24 for e in grid] == [e >= sweep.high for e in grid]
        assert sweep.low < sweep.high

    @by_case
    def test_critical_is_low_for_each_row_alone(self, noise, d):
        sweep = make(noise, d)
        upper, _ = ends(sweep)
        assert sweep.critical.shape == (24,)
        assert sweep.low == sweep.critical.min()
        for row, epsilon in enumerate(sweep.critical):
            here = separations(sweep, epsilon, upper[row : row + 1])
            above = separations(sweep, epsilon * (1 + 1e-6), upper[row : row + 1])
            assert distances_to_regimes(sweep, here)[0][0] <= 0.1 + 1e-12
            assert distances_to_regimes(sweep, above)[0][0] > 0.1

    def test_critical_is_inversely_proportional_to_the_distance(self):
        """LeBlond Fig. 7: β*·distance is one constant; β = ε/Δ."""
        for d in (1, 2, 6):
            sweep = make("laplace", d)
            beta = sweep.critical / sweep.mechanism.sensitivity
            constant = beta * np.array(ends(sweep)[0])
            np.testing.assert_allclose(constant, sweep.transition.leaves, rtol=1e-13)
            assert np.all(constant <= sweep.transition.leaves)
        # Gaussian noise has no such constant: ε and 1/σ are not proportional.
        sweep = make("gaussian", 3)
        product = sweep.critical * sweep.held[0]
        assert product.max() / product.min() > 1.2

    def test_nothing_depends_on_the_values_tabulated(self):
        for noise, d in CASES:
            first, other = make(noise, d), make(noise, d, epsilons=np.array([7.0]))
            assert (first.low, first.high) == (other.low, other.high)
            np.testing.assert_array_equal(first.critical, other.critical)
            assert first.ceiling() == other.ceiling()

    def test_scaling_the_data_scales_epsilon(self):
        """Under pure ε everything is a function of ε·distance/Δ."""
        near = neighbours(2)
        single = make("laplace", 2)
        two = make("laplace", 2, near=moved(near, 2 * near.distance, 2 * near.error_bound))
        half = make("laplace", 2)
        half = dataclasses.replace(
            half, mechanism=dataclasses.replace(half.mechanism, regularization=0.2)
        )
        for other in (two, half):
            assert other.low == pytest.approx(single.low / 2, rel=1e-9)
            assert other.high == pytest.approx(single.high / 2, rel=1e-9)
            np.testing.assert_allclose(other.critical, single.critical / 2, rtol=1e-9)
            for limit in (LIMITS[0], LIMITS[3]):
                ceiling = dataclasses.replace(other, limit=limit).ceiling()
                expected = dataclasses.replace(single, limit=limit).ceiling() / 2
                assert ceiling == pytest.approx(expected, rel=1e-8)


class TestPosterior:
    @by_case
    @pytest.mark.parametrize("limit", LIMITS)
    def test_it_is_the_largest_that_no_row_passes(self, noise, d, limit):
        sweep = make(noise, d, limit=limit)
        upper, _ = ends(sweep)
        ceiling, most = sweep.ceiling(), limit.max_posterior
        assert np.all(posteriors(sweep, ceiling, upper) <= most)
        assert np.any(posteriors(sweep, ceiling * (1 + 1e-6), upper) > most)
        grid = np.geomspace(ceiling / 20, ceiling * 20, 12)
        worst = [posteriors(sweep, epsilon, upper).max() for epsilon in grid]
        assert [p > most for p in worst] == [e > ceiling for e in grid]
        assert np.all(np.diff(worst) >= -1e-12), "the posterior grows with ε"
        np.testing.assert_allclose(sweep.posterior(grid), worst, rtol=1e-12)

    @by_case
    @pytest.mark.parametrize(
        ("prior", "largest", "level"), [(0.5, 0.75, 0.95), (0.05, 0.3, 0.6), (0.8, 0.9, 0.95)]
    )
    def test_the_quantile_against_a_quadrature_of_its_own(self, noise, d, prior, largest, level):
        """P(posterior > m) = 1 − q at the ε found."""
        limit = PosteriorLimit(max_posterior=largest, prior=prior, quantile=level)
        sweep = make(noise, d, limit=limit)
        upper, _ = ends(sweep)
        epsilon = sweep.ceiling()
        most = float(logit(largest) - logit(prior))

        def passed(factor):
            t = max(separations(sweep, epsilon, upper)) * factor
            return naive_survival(noise, d, t, most)

        # On a line half of the releases have the largest loss there is: the quantile jumps.
        jumps = noise == "laplace" and d == 1
        assert passed(1.0) <= 1 - level + 1e-9
        assert passed(1.0) == pytest.approx(0.0 if jumps else 1 - level, abs=1e-9)
        # Power: a separation that is 1 ‰ off is distinguished.
        assert passed(1.001) > 1 - level + (0.1 if jumps else 1e-6)
        assert sweep.posterior(np.array([epsilon]))[0] == pytest.approx(largest, rel=1e-9)

    def test_a_pure_bound_is_never_beaten_by_its_worst_case(self):
        """sigmoid(β·distance) bounds every posterior: ε is at least logit(0.75)·Δ/distance.

        It is just that on a line, where half of the releases reach the bound.
        """
        for d in (1, 2, 6):
            sweep = make("laplace", d)
            upper, _ = ends(sweep)
            least = logit(0.75) * sweep.mechanism.sensitivity / max(upper)
            ceiling = sweep.ceiling()
            assert ceiling == pytest.approx(least, rel=1e-9) if d == 1 else ceiling > 1.001 * least

    def test_the_posterior_under_gaussian_noise_in_closed_form(self):
        """expit(μ²/2 + z_q·μ): .75 at μ = .569 for q = .95."""
        sweep = make("gaussian", 3)
        mu = max(separations(sweep, sweep.ceiling(), ends(sweep)[0]))
        assert expit(mu**2 / 2 + norm.ppf(0.95) * mu) == pytest.approx(0.75, rel=1e-9)
        assert mu == pytest.approx(0.569, abs=5e-4)

    def test_a_bound_that_no_epsilon_keeps(self):
        """At δ = 0.9 Gaussian noise stays below what a row at Δ itself needs."""
        near = neighbours(1)
        sweep = make("gaussian", 1)
        mechanism = dataclasses.replace(sweep.mechanism, delta=0.9)
        far = moved(near, np.full(24, mechanism.sensitivity), np.zeros(24))
        sweep = dataclasses.replace(
            make("gaussian", 1, near=far, limit=LIMITS[1]), mechanism=mechanism
        )
        assert sweep.ceiling() == 0
        assert sweep.posterior(np.array([1e-6]))[0] > 0.51
        assert sweep.low == 0
        assert np.all(sweep.critical == 0)
        kept = dataclasses.replace(sweep, limit=PosteriorLimit(max_posterior=0.999, quantile=0.5))
        ceiling = kept.ceiling()
        assert 0 < ceiling < 10
        assert np.all(posteriors(kept, ceiling, ends(kept)[0]) <= 0.999)


class TestCertificates:
    @by_case
    def test_guarantees_use_the_far_end_and_high_the_near_end(self, noise, d):
        near = neighbours(d)
        rng = np.random.default_rng(0)
        error = rng.uniform(0.1, 0.9, 24) * near.distance
        error[3] = 2 * near.distance[3]
        loose = make(noise, d, near=moved(near, near.distance, error))
        far = make(noise, d, near=moved(near, near.distance + error, np.zeros(24)))
        close = make(noise, d, near=moved(near, np.maximum(near.distance - error, 0), np.zeros(24)))
        assert loose.low == far.low < make(noise, d).low
        np.testing.assert_array_equal(loose.critical, far.critical)
        assert loose.high == close.high > make(noise, d).high
        for limit in (LIMITS[0], LIMITS[6]):
            first, other = (dataclasses.replace(sweep, limit=limit) for sweep in (loose, far))
            assert first.ceiling() == other.ceiling()
            np.testing.assert_array_equal(
                first.posterior(first.epsilons), other.posterior(first.epsilons)
            )

    def test_whatever_the_true_distances_are(self):
        """Any distances within their certificates: low and the limit on the posterior still hold."""
        near = neighbours(2)
        error = 0.5 * near.distance
        sweep = make("laplace", 2, near=moved(near, near.distance, error))
        ceiling = sweep.ceiling()
        rng = np.random.default_rng(1)
        for _ in range(20):
            true = near.distance + error * rng.uniform(-1, 1, 24)
            assert np.all(
                distances_to_regimes(sweep, separations(sweep, sweep.low, true))[0] <= 0.1 + 1e-12
            )
            assert np.all(posteriors(sweep, ceiling, true) <= 0.75)
            arrived = (
                distances_to_regimes(sweep, separations(sweep, sweep.high, true))[1] <= 0.1 + 1e-12
            )
            assert np.count_nonzero(arrived) >= 12

    @by_case
    def test_rows_that_do_not_move_the_model(self, noise, d):
        near = neighbours(d)
        distance = near.distance.copy()
        distance[:13] = 0
        error = np.zeros(24)
        sweep = make(noise, d, near=moved(near, distance, error))
        assert np.all(sweep.critical[:13] == np.inf)
        assert sweep.high == np.inf, "more than half never arrive"
        assert 0 < sweep.low < np.inf
        assert make(noise, d, near=moved(near, distance, error), share=0.4).high < np.inf
        assert np.all(sweep.one_sidedness.median == 0)
        assert np.all(sweep.expected[:, :13] == 0)
        nothing = make(noise, d, near=moved(near, np.zeros(24), error))
        assert nothing.low == nothing.high == nothing.ceiling() == np.inf
        np.testing.assert_array_equal(nothing.posterior(np.ones(2)), [0.5, 0.5])
        assert np.all(nothing.one_sidedness.farthest == 0)
        assert np.all(nothing.expected == 0)


class TestMonotone:
    SEPARATIONS = np.geomspace(1e-3, 1e3, 200)

    @pytest.mark.parametrize("d", [1, 2, 3, 6, 30])
    @pytest.mark.parametrize("level", [0.5, 0.500001, 0.6, 0.95])
    def test_quantiles_from_the_half_on_never_fall(self, d, level):
        """So that the farthest row decides, and more noise never raises a posterior."""
        quantile = NormLaplaceLaw(separation=self.SEPARATIONS, dimension=d).quantile(level)
        assert np.all(np.diff(quantile) > 0)

    @pytest.mark.parametrize("d", [2, 3, 30])
    def test_quantiles_below_the_half_do_fall(self, d):
        """Which is why they are refused."""
        quantile = NormLaplaceLaw(separation=self.SEPARATIONS, dimension=d).quantile(0.25)
        assert np.any(np.diff(quantile) < 0)

    @pytest.mark.parametrize("prior", [0.01, 0.5, 0.99])
    @pytest.mark.parametrize("d", [1, 2, 3, 30])
    def test_mean_posteriors_never_fall(self, d, prior):
        """An f-divergence, and a larger norm-Laplace noise is a smaller one plus independent noise."""
        law = NormLaplaceLaw(separation=self.SEPARATIONS, dimension=d)
        assert np.all(np.diff(law.expected_posterior(prior)) >= -1e-15)
        gaussian = GaussianLaw(separation=self.SEPARATIONS).expected_posterior(prior)
        assert np.all(np.diff(gaussian) >= -1e-15)


class TestCurves:
    @by_case
    def test_one_sidedness_is_the_ratio_and_runs_from_0_to_1(self, noise, d):
        sweep = make(noise, d, epsilons=np.geomspace(1e-3, 1e5, 30))
        one_sidedness = sweep.one_sidedness
        assert isinstance(one_sidedness, Pair)
        distance, _ = sweep.held
        for values, apart in (
            (one_sidedness.farthest, max(distance)),
            (one_sidedness.median, float(np.median(distance))),
        ):
            assert np.all((values >= 0) & (values <= 1))
            assert np.all(np.diff(values) >= -1e-12)
            assert values[0] < 0.01
            assert values[-1] > 0.99
            for index in (8, 15):
                t = separations(sweep, sweep.epsilons[index], [apart])[0]
                loss = naive_mean(noise, d, t, lambda x: x)
                exposure = naive_mean(noise, d, t, abs)
                assert values[index] == pytest.approx(loss / exposure, rel=1e-6)

    @by_case
    def test_expected_exposure_is_the_law_of_every_row(self, noise, d):
        sweep = make(noise, d)
        assert sweep.expected.shape == (9, 24)
        for index in (0, 4, 8):
            t = separations(sweep, sweep.epsilons[index], sweep.held[0])
            for row in (0, 7, 23):
                expected = float(law_of(noise, d, [t[row]]).expected_exposure[0])
                assert sweep.expected[index, row] == pytest.approx(expected, rel=1e-11)

    @by_case
    def test_sampled_models_agree_with_the_exact_law(self, noise, d):
        """Models θ = A + b; losses from two log densities; no law, no shortcut.

        100,000 draws, five standard errors: a false alarm in 10⁵; 5 % off is seen.
        """
        sweep = make(noise, d, epsilons=np.array([3.0]))
        law = dataclasses.replace(sweep.mechanism, epsilon=3.0).law
        near = neighbours(d)
        theta = near.base + law.sample(100_000, np.random.default_rng(8))
        row = int(np.argmax(near.distance))
        loss = law.log_density(theta - near.base) - law.log_density(
            theta - near.base - near.shift[row]
        )
        # The share of the releases that pass the posterior at the quantile, none of them just so.
        apart = max(near.distance)
        quantile = float(logit(sweep.posterior_at(apart, np.array([3.0]))[0]))
        t = separations(sweep, 3.0, [apart])
        survival = float(law_of(noise, d, t).survival(quantile + 1e-9)[0])
        assert survival == pytest.approx(0.0 if (noise, d) == ("laplace", 1) else 0.05, abs=1e-6)
        for values, expected in (
            (np.abs(loss), sweep.expected[0, row]),
            (loss, sweep.expected[0, row] * sweep.one_sidedness.farthest[0]),
            (loss > quantile + 1e-9, survival),
        ):
            error = values.std() / math.sqrt(len(values))
            assert abs(values.mean() - expected) < 5 * error + 1e-9
        assert abs(np.abs(loss).mean() - 1.05 * sweep.expected[0, row]) > 5 * error
        result = (loss > 0).mean() - (loss < 0).mean()
        assert 0 < result < 1

    def test_resolutions_are_those_of_a_release(self):
        for noise, d in CASES:
            sweep = make(noise, d)
            for epsilon, resolution in zip(sweep.epsilons, sweep.resolutions, strict=True):
                law = dataclasses.replace(sweep.mechanism, epsilon=float(epsilon)).law
                expected = law.scale if isinstance(law, Gaussian) else 1 / law.rate
                assert resolution == expected
            assert np.all(np.diff(sweep.resolutions) < 0)

    @by_case
    def test_ranked_depends_on_the_seed_alone(self, noise, d):
        first = make(noise, d).ranked
        again = make(noise, d, workers=2).ranked
        np.testing.assert_array_equal(first.mean, again.mean)
        np.testing.assert_array_equal(first.error, again.error)
        other = make(noise, d, seed=np.random.SeedSequence(6)).ranked
        assert not np.array_equal(first.mean, other.mean)
        assert first.mean.shape == first.error.shape == (9, 24)

    @by_case
    def test_ranks_sum_to_what_the_rows_sum_to(self, noise, d):
        """Sorting keeps a sum, so the ranks' means sum to the rows' typical exposures."""
        sweep = make(noise, d, models=4000, epsilons=np.array([2.0, 50.0]))
        total, expected = sweep.ranked.mean.sum(axis=1), sweep.expected.sum(axis=1)
        np.testing.assert_allclose(total, expected, rtol=0.05)
        # Ranks are at least as uneven as rows: the largest is larger, the least smaller.
        assert np.all(sweep.ranked.mean[:, -1] > 0.97 * sweep.expected.max(axis=1))
        assert np.all(sweep.ranked.mean[:, 0] < 1.03 * sweep.expected.min(axis=1))
