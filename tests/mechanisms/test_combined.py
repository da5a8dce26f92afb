"""Several releases of one data set: their losses add, and nothing else does."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

import expost
from expost.errors import InvalidInput
from expost.glm import Objective, minimise
from expost.losses import Logistic
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation, RowLosses
from expost.mechanisms.combined import check_distinct, combine, combine_gaussian
from expost.neighbouring.neighbours import neighbours_of
from expost.noise import GaussianLaw, NormLaplaceLaw
from expost.risk import GaussianNoise
from expost.risk.composition import Composition
from expost.types import Neighbouring

REMOVE, ADD = Neighbouring.REMOVE, Neighbouring.ADD
ROWS, COLUMNS, PENALTY = 30, 3, 0.05


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, COLUMNS))
    X /= 1.01 * np.linalg.norm(X, axis=1).max()
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=ROWS) > 0, 1.0, -1.0)


X, Y = rows()
CONSTANTS = {"loss": Logistic(), "rows": ROWS, "dimension": COLUMNS}
LAPLACE = OutputPerturbation(epsilon=2.0, regularization=PENALTY, **CONSTANTS)
GAUSSIAN = OutputPerturbation(
    epsilon=1.5, delta=1e-3, noise="gaussian", regularization=2 * PENALTY, **CONSTANTS
)
OBJECTIVE = ObjectivePerturbation(
    epsilon=3.0, delta=1e-4, noise="gaussian", regularization=PENALTY, **CONSTANTS
)
MECHANISMS = (LAPLACE, GAUSSIAN, OBJECTIVE)


def posed(mechanism, keep=slice(None)):
    penalty = np.full(COLUMNS, mechanism.total_regularization)
    return Objective.of(X=X[keep], y=Y[keep], loss=Logistic(), penalty=penalty)


def released(mechanism, seed):
    rng = np.random.default_rng(seed)
    data = posed(mechanism)
    return mechanism.release(data, rng)


def losses_of(mechanism, theta, **options):
    return expost.profile(theta, X, Y, mechanism=mechanism, **options).losses


def made(separation, *, law=None, loss=0.1, width=0.01, relation=REMOVE, **changes):
    """Losses with this law, as a mechanism would give them."""
    separation = np.asarray(separation, dtype=float)
    loss = np.broadcast_to(np.asarray(loss, dtype=float), separation.shape)
    values = {
        "loss": loss, "low": loss - width, "high": loss + width, "distance": separation,
        "distance_error": 0.01 * separation, "relation": relation,
        "law": GaussianLaw(separation=separation) if law is None else law, "worst_case": 1.0,
        **changes,
    }  # fmt: skip
    return RowLosses(**values)


def laplace(separation, dimension, **changes):
    law = NormLaplaceLaw(separation=np.asarray(separation, dtype=float), dimension=dimension)
    return made(separation, law=law, **changes)


# The losses -------------------------------------------------------------------------------------


def naive_minimiser(mechanism, keep):
    return minimise(posed(mechanism, keep)).theta


def naive_log_density(mechanism, theta, keep):
    """log p(θ ∣ these rows): of the noise, and of the map from noise to θ, n and Λ kept."""
    if mechanism.kind == "output":
        return float(mechanism.law.log_density(theta - naive_minimiser(mechanism, keep)))
    features, labels = X[keep], Y[keep]
    p = 1 / (1 + np.exp(labels * (features @ theta)))
    gradient = -(features.T @ (labels * p)) + mechanism.penalty_sum * theta
    hessian = (features.T * (p * (1 - p))) @ features + mechanism.penalty_sum * np.eye(COLUMNS)
    return float(mechanism.law.log_density(gradient)) + math.log(np.linalg.det(hessian))


@pytest.mark.parametrize("chosen", [(0, 1), (0, 2), (1, 2), (0, 1, 2), (0, 0), (1, 1)])
def test_it_is_the_log_ratio_of_the_joint_densities(chosen):
    """Brute force: every release's density with and without each row, the row's refit included."""
    thetas = [released(MECHANISMS[kind], seed) for seed, kind in enumerate(chosen)]
    combined = combine(
        [losses_of(MECHANISMS[kind], theta) for kind, theta in zip(chosen, thetas, strict=True)]
    )
    naive = np.zeros(ROWS)
    for row in range(ROWS):
        rest = np.arange(ROWS) != row
        for kind, theta in zip(chosen, thetas, strict=True):
            mechanism = MECHANISMS[kind]
            naive[row] += naive_log_density(mechanism, theta, slice(None))
            naive[row] -= naive_log_density(mechanism, theta, rest)
    np.testing.assert_allclose(combined.loss, naive, rtol=0, atol=1e-4)
    assert np.all((combined.low - 1e-9 <= naive) & (naive <= combined.high + 1e-9))
    # Power: a release more or less is seen.
    assert np.max(np.abs(combined.loss - losses_of(MECHANISMS[chosen[0]], thetas[0]).loss)) > 1e-2


def test_intervals_add_outwards():
    rng = np.random.default_rng(0)
    parts = [
        made(np.ones(500), loss=rng.normal(size=500) * 10.0 ** rng.integers(-9, 9), width=scale)
        for scale in (0.0, 1e-9, 3.0)
    ]
    combined = combine(parts)
    for row in range(500):
        with mpmath.workprec(2000):
            low, high = (
                mpmath.fsum(mpmath.mpf(float(getattr(part, end)[row])) for part in parts)
                for end in ("low", "high")
            )
            assert combined.low[row] <= low
            assert high <= combined.high[row]
            assert float(high - combined.high[row]) >= -1e-14 * max(1, abs(float(high)))
    assert np.all((combined.low <= combined.loss) & (combined.loss <= combined.high))


def test_the_distance_is_that_of_the_product_space():
    """(A₁, A₂, A₃) is one point; a row moves it by the root of the sum of squares."""
    combined = combine([made([3.0, 0.0]), made([4.0, 0.0]), made([12.0, 0.0])])
    np.testing.assert_allclose(combined.distance, [13.0, 0.0])
    assert combined.distance_error[0] >= 0.13
    assert combined.distance_error[0] == pytest.approx(0.13)
    hows = (LAPLACE, GAUSSIAN)
    joint = np.hstack(
        [neighbours_of(posed(mechanism), minimise(posed(mechanism))).shift for mechanism in hows]
    )
    both = combine([losses_of(mechanism, released(mechanism, 3)) for mechanism in hows])
    np.testing.assert_allclose(both.distance, np.linalg.norm(joint, axis=1), rtol=1e-2)


# Laws -------------------------------------------------------------------------------------------


def test_gaussian_losses_add_to_a_gaussian_law():
    combined = combine([made([0.3, 1.2]), made([0.4, 0.5]), made([1.2, 0.0])])
    assert isinstance(combined.law, GaussianLaw)
    np.testing.assert_allclose(combined.law.separation, [1.3, 1.3], rtol=1e-15)
    assert combined.sampled is None
    assert combined.draw is None
    assert combined.far_law is None
    far = [made([mu], far_law=GaussianLaw(separation=np.array([2 * mu]))) for mu in (0.3, 0.4)]
    np.testing.assert_allclose(combine(far).far_law.separation, [1.0], rtol=1e-15)
    # By simulation of two real releases of the row that moves most.
    base = minimise(posed(GAUSSIAN))
    near = neighbours_of(posed(GAUSSIAN), base)
    shift = near.shift[int(np.argmax(near.distance))]
    draws = GAUSSIAN.law.sample(40_000, np.random.default_rng(1))
    total = GAUSSIAN.law.loss(draws, shift).reshape(2, -1).sum(axis=0)
    both = combine([losses_of(GAUSSIAN, released(GAUSSIAN, seed)) for seed in (1, 2)]).law
    expected_exposure, error = np.abs(total).mean(), np.abs(total).std() / math.sqrt(len(total))
    assert abs(expected_exposure - both.expected_exposure.max()) < 4 * error
    single = GAUSSIAN.law.law(near.distance.max()).expected_exposure
    assert abs(expected_exposure - single) > 4 * error
    assert abs(expected_exposure - 2 * single) > 4 * error


def by_quantiles(first, second, points=600):
    """E∣ℓ₁ + ℓ₂∣ from the exact laws: equal slices of probability, every pair of them."""
    levels = (np.arange(points) + 0.5) / points
    first_losses, two = first.quantile(levels), second.quantile(levels)
    return np.abs(first_losses[:, None] + two[None, :]).mean()


@pytest.mark.parametrize("dimension", [1, 2, 5])
@pytest.mark.parametrize(("t", "s"), [(0.5, 0.5), (3.0, 1.0), (0.01, 8.0)])
def test_expected_exposures_of_norm_laplace_releases(dimension, t, s):
    parts = [laplace([t, t / 2], dimension), laplace([s, s / 2], dimension, loss=0.2)]
    combined = combine(parts)
    assert combined.law is None
    mean, error = combined.sampled()
    exact = [
        by_quantiles(
            NormLaplaceLaw(separation=np.array([t / k]), dimension=dimension),
            NormLaplaceLaw(separation=np.array([s / k]), dimension=dimension),
        )
        for k in (1, 2)
    ]
    assert np.all(np.abs(mean - exact) < 4 * error + 2e-3 * np.array(exact))
    assert np.all(error < 0.05 * mean)
    # Power: neither the sum of the two typical exposures nor less than one.
    if t == s:
        both = 2 * parts[0].law.expected_exposure
        assert np.all(np.abs(mean - both) > 4 * error)
        assert np.all(np.abs(mean - 0.7 * both / 2) > 4 * error)
    again, _ = combine(parts).sampled()
    np.testing.assert_array_equal(mean, again)


def test_mixed_noises_are_sampled_too():
    combined = combine([made([0.8]), laplace([1.5], 4, loss=0.2)])
    mean, error = combined.sampled()
    exact = by_quantiles(
        GaussianLaw(separation=np.array([0.8])),
        NormLaplaceLaw(separation=np.array([1.5]), dimension=4),
    )
    assert abs(mean[0] - exact) < 4 * error[0] + 2e-3 * exact


def test_many_rows_take_fewer_draws(monkeypatch):
    monkeypatch.setattr(expost.mechanisms.combined, "_WORK", 3000)
    t = np.linspace(0.1, 2, 30)
    coarse, error = combine([laplace(t, 3), laplace(t, 3, loss=0.2)]).sampled()
    monkeypatch.undo()
    fine, small = combine([laplace(t, 3), laplace(t, 3, loss=0.2)]).sampled()
    assert np.all(np.abs(coarse - fine) < 4 * error)
    assert np.all(error > 2 * small)


LAWS = {
    "laplace": lambda sign: [laplace([0.5, 1.5], 1, relation=sign), laplace([1.0, 1.0], 6, loss=0.2, relation=sign)],
    "mixed": lambda sign: [made([0.4, 0.7], relation=sign), laplace([1.0, 0.3], 2, loss=0.2, relation=sign)],
}  # fmt: skip


@pytest.mark.parametrize("kind", list(LAWS))
@pytest.mark.parametrize("relation", [REMOVE, ADD])
def test_the_expected_likelihood_ratio_is_one(kind, relation):
    """E exp(−ℓ) = 1 where the row was there, E exp(+ℓ) = 1 where it was not (law 2)."""
    combined = combine(LAWS[kind](relation))
    turn = 1.0 if relation is REMOVE else -1.0
    drawn = np.array(list(combined.draw(12_000, np.random.default_rng(5))))
    assert drawn.shape == (12_000, 2)

    def far(factor):
        ratio = np.exp(-turn * factor * drawn)
        return np.abs(ratio.mean(axis=0) - 1) / (ratio.std(axis=0) / math.sqrt(len(drawn)))

    # Eight comparisons at four standard errors: a false alarm in two thousand runs of other seeds.
    assert np.all(far(1.0) < 4)
    assert np.max(far(1.5)) > 4
    assert np.all(far(-1.0) > 4)


def test_releases_of_both_mechanisms_are_drawn_together():
    """E exp(−ℓ) = 1 with fitted models among them; different seeds for two alike."""
    mild = dataclasses.replace(OBJECTIVE, epsilon=0.8, delta=1e-3)
    parts = [losses_of(mild, released(mild, seed)) for seed in (1, 2)]
    parts.append(losses_of(LAPLACE, released(LAPLACE, 3)))
    combined = combine(parts)
    mean, error = combined.sampled()
    assert np.all(mean > 0)
    assert np.all((error > 0) & (error < mean))
    drawn = np.array(list(combined.draw(800, np.random.default_rng(7))))
    for turn in (1, -1):
        ratio = np.exp(-turn * drawn)
        far = (ratio.mean(axis=0) - 1) / (ratio.std(axis=0) / math.sqrt(len(drawn)))
        # Power: the other sign is seen.
        assert bool(np.max(np.abs(far)) < 4.5) is (turn == 1)
    # Two alike are independent: their sum has twice the variance of one, not four times.
    alone, both = (
        np.array(list(part.draw(400, np.random.default_rng(8))))
        for part in (parts[0], combine(parts[:2]))
    )
    ratio = both.var(axis=0).sum() / alone.var(axis=0).sum()
    assert 1.6 < ratio < 2.5


def test_a_release_that_cannot_be_drawn_is_left_out():
    def draw(size, rng):
        for index in range(size):
            yield np.full(2, np.inf if index % 2 else 0.5)

    odd = made([1.0, 1.0], loss=0.3)
    odd = dataclasses.replace(odd, law=None, draw=draw)
    mean, error = combine([odd, laplace([1e-9, 1e-9], 2)]).sampled()
    np.testing.assert_allclose(mean, 0.5, atol=1e-8)
    assert np.all(error < 1e-8)

    def nothing(size, rng):
        return iter([np.full(2, np.inf)] * size)

    lost = dataclasses.replace(odd, draw=nothing)
    mean, error = combine([lost, laplace([1.0, 1.0], 2)]).sampled()
    assert np.all(np.isinf(mean) & np.isinf(error))


# No noise ---------------------------------------------------------------------------------------


def bare(distance, error, relation=REMOVE):
    return RowLosses.without_noise(np.array(distance), np.array(error), relation)


def test_a_release_without_noise_settles_it():
    noisy = made([1.0, 1.0, 1.0], loss=[0.1, -0.2, 0.3])
    # The second row may or may not be distinguished, the third moves nothing.
    plain = bare([1.0, 1.0, 0.0], [0.1, 2.0, 0.0])
    for parts in ([noisy, plain], [plain, noisy]):
        combined = combine(parts)
        assert combined.loss.tolist() == [math.inf, math.inf, 0.3]
        assert combined.low[0] == math.inf
        assert combined.low[1:] == pytest.approx([-0.21, 0.29])
        assert combined.high[:2].tolist() == [math.inf, math.inf]
        assert combined.high[2] == pytest.approx(0.31)
        assert combined.noiseless
        assert combined.law is None
        assert combined.sampled is None
        assert combined.draw is None
        assert (combined.worst_case, combined.worst_case_passed) == (math.inf, 0.0)


def test_an_unknown_interval_does_not_undo_a_proof():
    """inf − inf: what is not known of one release is finite, what another proves is not."""
    unknown = made([1.0, 1.0], low=np.full(2, -math.inf), high=np.full(2, math.inf))
    combined = combine([unknown, bare([1.0, 1.0], [0.0, 2.0])])
    assert combined.low.tolist() == [math.inf, -math.inf]
    assert combined.high.tolist() == [math.inf, math.inf]
    absent = dataclasses.replace(unknown, relation=ADD)
    combined = combine([absent, bare([1.0, 1.0], [0.0, 2.0], ADD)])
    assert combined.loss.tolist() == [-math.inf, -math.inf]
    assert combined.low.tolist() == [-math.inf, -math.inf]
    assert combined.high.tolist() == [-math.inf, math.inf]
    both = combine([unknown, made([1.0, 1.0], low=np.full(2, -math.inf), loss=0.2)])
    assert combined.law is None
    assert both.low.tolist() == [-math.inf, -math.inf]


def test_infinities_of_both_signs_are_an_error():
    odd = made([1.0], loss=-math.inf, low=np.array([-math.inf]), high=np.array([0.0]))
    with pytest.raises(ArithmeticError, match="no sum"):
        combine([odd, bare([1.0], [0.0])])


# Promises ---------------------------------------------------------------------------------------


def test_pure_guarantees_add():
    combined = combine(
        [laplace([0.5], 2, worst_case=1.0), laplace([0.5], 3, worst_case=0.5, loss=1)]
    )
    assert 1.5 <= combined.worst_case < 1.5 + 1e-12
    assert combined.worst_case_passed == 0
    # One release of two that guarantees nothing.
    combined = combine([laplace([0.5], 2), laplace([0.5], 2, worst_case=math.inf, loss=1)])
    assert (combined.worst_case, combined.worst_case_passed) == (math.inf, 0.0)


def two_sided(b, mu):
    return norm.sf(b, mu * mu / 2, mu) + norm.cdf(-b, mu * mu / 2, mu)


def ever_two_sided(b, mu):
    """A Brownian motion of drift ½ that has passed b, or −b, by the time μ²."""
    up, down = norm.sf(b, mu * mu / 2, mu), norm.cdf(-b, mu * mu / 2, mu)
    return (1 + math.exp(-b)) * up + (1 + math.exp(b)) * down


def test_gaussian_guarantees_combine():
    """Of mechanisms with known μ = Δ/σ: one of √Σμ², at the sum of the probabilities."""
    hows = [GAUSSIAN, dataclasses.replace(GAUSSIAN, epsilon=0.7, delta=1e-5)]
    parts = [losses_of(mechanism, released(mechanism, seed)) for seed, mechanism in enumerate(hows)]
    combined = combine(parts)
    mus = [mechanism.sensitivity / mechanism.resolution for mechanism in hows]
    chance = sum(mechanism.worst_case_passed for mechanism in hows)
    assert combined.worst_case_passed == pytest.approx(chance, rel=1e-12)
    assert combined.worst_case < sum(mechanism.epsilon for mechanism in hows)
    mu = math.hypot(*mus)
    assert ever_two_sided(combined.worst_case, mu) == pytest.approx(chance, rel=1e-8)
    assert ever_two_sided(combined.worst_case, mu) <= chance
    assert ever_two_sided(combined.worst_case * (1 - 1e-6), mu) > chance
    # A mixture: the Gaussian ones first, then the union bound.
    pure = losses_of(LAPLACE, released(LAPLACE, 5))
    mixed = combine([*parts, pure])
    assert mixed.worst_case == pytest.approx(combined.worst_case + LAPLACE.epsilon)
    assert mixed.worst_case_passed == pytest.approx(chance)
    single = combine([parts[0], pure])
    assert single.worst_case == pytest.approx(GAUSSIAN.epsilon + LAPLACE.epsilon)
    assert single.worst_case_passed == pytest.approx(GAUSSIAN.worst_case_passed)


@pytest.mark.parametrize("releases", [2, 8])
def test_a_row_that_keeps_the_evidence_there_is(releases):
    """It moves no centre any more once ∣ℓ∣ > b: more than b guarantees releases that do not react.

    Private here and below: no mechanism has a chance of passing ε that can be set freely.
    """
    mu, epsilon = 0.5, 1.2
    chance = two_sided(epsilon, mu)
    bound, passed = combine_gaussian([(epsilon, chance)] * releases)
    assert bound < releases * epsilon

    def reached(b):
        """P(∣ℓ∣ > b), the law of what is left within ±b on a grid of midpoints."""
        grid, step = np.linspace(-b, b, 1001, retstep=True)
        grid = grid[:-1] + step / 2
        moved = step * norm.pdf(grid[:, None] - grid, mu * mu / 2, mu)
        left = step * norm.pdf(grid, mu * mu / 2, mu)
        for _ in range(releases - 1):
            left = moved @ left
        return 1 - left.sum()

    assert reached(bound) <= passed
    # Power: b of releases that do not react is passed more often than it says, by such a row.
    together = mu * math.sqrt(releases)
    low, high = 0.0, releases * epsilon
    for _ in range(60):
        low, high = (
            ((low + high) / 2, high)
            if two_sided((low + high) / 2, together) > passed
            else (low, (low + high) / 2)
        )
    assert two_sided(high, together) == pytest.approx(passed)
    assert reached(high) > 1.01 * passed


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 3.0, 500.0])
@pytest.mark.parametrize("chance", [1e-300, 1e-12, 0.3])
def test_gaussian_guarantees_at_the_extremes(epsilon, chance):
    worst, passed = combine_gaussian([(epsilon, chance), (2 * epsilon, chance / 2)])
    assert passed == pytest.approx(1.5 * chance)
    assert 0 < worst <= 3 * epsilon * (1 + 1e-15)
    # Against 40 digits: the μ that each guarantee allows, and what their root of squares passes.
    with mpmath.workdps(60):

        def tail(b, mu):
            return mpmath.ncdf(mu / 2 - b / mu) + mpmath.ncdf(-mu / 2 - b / mu)

        mus = []
        for b, p in ((epsilon, chance), (2 * epsilon, chance / 2)):
            low, high = mpmath.mpf(0), mpmath.sqrt(2 * b) * 4 + 100
            for _ in range(120):
                middle = (low + high) / 2
                low, high = (middle, high) if tail(b, middle) < p else (low, middle)
            mus.append(high)
        mu = mpmath.sqrt(sum(part**2 for part in mus))

        def ever(b):
            up, down = mpmath.ncdf(mu / 2 - b / mu), mpmath.ncdf(-mu / 2 - b / mu)
            return (1 + mpmath.exp(-b)) * up + (1 + mpmath.exp(b)) * down

        if worst < 3 * epsilon * (1 - 1e-9):
            assert ever(mpmath.mpf(worst)) <= mpmath.mpf(passed) * (1 + mpmath.mpf(1e-13))
            assert ever(mpmath.mpf(worst) * (1 - mpmath.mpf(1e-6))) > passed * 0.999
        else:
            # The union bound, which is all there is where the chances are large.
            assert ever(3 * mpmath.mpf(epsilon) * (1 - mpmath.mpf(1e-6))) > passed * 0.999


def test_chances_pass_no_more_than_one():
    combined = combine(
        [made([1.0], worst_case_passed=0.7), made([1.0], worst_case_passed=0.6, loss=0.2)]
    )
    assert combined.worst_case_passed == 1.0


def test_the_guarantees_are_composed():
    pair = [losses_of(mechanism, released(mechanism, 0)) for mechanism in (LAPLACE, GAUSSIAN)]
    guarantee = combine(pair).guarantee
    assert guarantee == Composition(parts=(LAPLACE.guarantee(), GAUSSIAN.guarantee()))
    assert 0 < guarantee.epsilon(1e-3) < LAPLACE.epsilon + GAUSSIAN.epsilon
    assert combine(pair).worst_case <= LAPLACE.epsilon + GAUSSIAN.epsilon + 1e-12
    # Two of Gaussian noise are one.
    two = combine([losses_of(GAUSSIAN, released(GAUSSIAN, seed)) for seed in (1, 2)]).guarantee
    both = GaussianNoise(mu=math.sqrt(2) * GAUSSIAN.guarantee().mu)
    assert two.epsilon(1e-5) == pytest.approx(both.epsilon(1e-5))
    assert combine([pair[0], made(np.ones(ROWS))]).guarantee is None


# What is refused --------------------------------------------------------------------------------


def test_the_same_release_twice_is_refused():
    single = losses_of(LAPLACE, released(LAPLACE, 0))
    again = losses_of(LAPLACE, released(LAPLACE, 0))
    other = losses_of(LAPLACE, released(LAPLACE, 1))
    for pair in ([single, single], [single, again], [other, single, again]):
        with pytest.raises(InvalidInput, match="are the same release"):
            combine(pair)
    assert len(combine([single, other]).loss) == ROWS
    with pytest.raises(InvalidInput, match="models 1 and 2 are the same release"):
        combine([bare([1.0], [0.0]), bare([1.0], [0.0])])
    # Rows that move nothing tell nothing: two such releases look alike and are not the same.
    zero = [made([0.0], loss=0.0, width=0.0) for _ in range(2)]
    assert combine(zero).loss.tolist() == [0.0]


def test_the_same_coefficients_twice_are_refused():
    first, second = released(LAPLACE, 0), released(LAPLACE, 1)
    check_distinct([first, second, first[:2]])
    with pytest.raises(InvalidInput, match="models 2 and 3 are the same release"):
        check_distinct([first, second, second.copy()])


def test_one_release_is_itself():
    single = made([1.0])
    assert combine([single]) is single


def test_what_cannot_be_combined():
    with pytest.raises(InvalidInput, match="at least one release"):
        combine([])
    with pytest.raises(InvalidInput, match="one is of 1 rows, another of 2"):
        combine([made([1.0]), made([1.0, 2.0])])
    with pytest.raises(InvalidInput, match="'remove', another for 'add'"):
        combine([made([1.0]), made([1.0], relation=ADD)])
    silent = dataclasses.replace(made([1.0], loss=0.3), law=None)
    with pytest.raises(InvalidInput, match="release 2 can neither be drawn"):
        combine([made([1.0]), silent])


def test_combining_in_steps_is_combining_at_once():
    parts = [laplace([0.5, 2.0], 3), made([0.4, 0.1], loss=0.2), laplace([1.0, 1.0], 2, loss=0.4)]
    once, steps = combine(parts), combine([combine(parts[:2]), parts[2]])
    for name in ("loss", "low", "high", "distance", "distance_error"):
        np.testing.assert_allclose(getattr(once, name), getattr(steps, name), rtol=1e-12)
    assert once.worst_case == pytest.approx(steps.worst_case)
    (fine, small), (coarse, large) = once.sampled(), steps.sampled()
    assert np.all(np.abs(fine - coarse) < 4 * np.hypot(small, large))
