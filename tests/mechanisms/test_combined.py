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
from expost.mechanisms.combined import _one_gaussian, check_distinct, combine
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


def posed(how, keep=slice(None)):
    penalty = np.full(COLUMNS, how.total_regularization)
    return Objective.of(X=X[keep], y=Y[keep], loss=Logistic(), penalty=penalty)


def released(how, seed):
    rng = np.random.default_rng(seed)
    data = posed(how)
    return how.release(data, rng)


def losses_of(how, theta, **options):
    return expost.profile(theta, X, Y, mechanism=how, **options).losses


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


def naive_minimiser(how, keep):
    return minimise(posed(how, keep)).theta


def naive_log_density(how, theta, keep):
    """log p(θ ∣ these rows): of the noise, and of the map from noise to θ, n and Λ kept."""
    if how.kind == "output":
        return float(how.law.log_density(theta - naive_minimiser(how, keep)))
    features, labels = X[keep], Y[keep]
    p = 1 / (1 + np.exp(labels * (features @ theta)))
    gradient = -(features.T @ (labels * p)) + how.penalty_sum * theta
    hessian = (features.T * (p * (1 - p))) @ features + how.penalty_sum * np.eye(COLUMNS)
    return float(how.law.log_density(gradient)) + math.log(np.linalg.det(hessian))


@pytest.mark.parametrize("chosen", [(0, 1), (0, 2), (1, 2), (0, 1, 2), (0, 0), (1, 1)])
def test_it_is_the_log_ratio_of_the_joint_densities(chosen):
    """Brute force: every release's density with and without each row, the row's refit included."""
    thetas = [released(MECHANISMS[kind], seed) for seed, kind in enumerate(chosen)]
    found = combine(
        [losses_of(MECHANISMS[kind], theta) for kind, theta in zip(chosen, thetas, strict=True)]
    )
    naive = np.zeros(ROWS)
    for row in range(ROWS):
        rest = np.arange(ROWS) != row
        for kind, theta in zip(chosen, thetas, strict=True):
            how = MECHANISMS[kind]
            naive[row] += naive_log_density(how, theta, slice(None))
            naive[row] -= naive_log_density(how, theta, rest)
    np.testing.assert_allclose(found.loss, naive, rtol=0, atol=1e-4)
    assert np.all((found.low - 1e-9 <= naive) & (naive <= found.high + 1e-9))
    # Power: a release more or less is seen.
    assert np.max(np.abs(found.loss - losses_of(MECHANISMS[chosen[0]], thetas[0]).loss)) > 1e-2


def test_intervals_add_outwards():
    rng = np.random.default_rng(0)
    parts = [
        made(np.ones(500), loss=rng.normal(size=500) * 10.0 ** rng.integers(-9, 9), width=scale)
        for scale in (0.0, 1e-9, 3.0)
    ]
    found = combine(parts)
    for row in range(500):
        with mpmath.workprec(2000):
            low, high = (
                mpmath.fsum(mpmath.mpf(float(getattr(part, end)[row])) for part in parts)
                for end in ("low", "high")
            )
            assert found.low[row] <= low
            assert high <= found.high[row]
            assert float(high - found.high[row]) >= -1e-14 * max(1, abs(float(high)))
    assert np.all((found.low <= found.loss) & (found.loss <= found.high))


def test_the_distance_is_that_of_the_product_space():
    """(A₁, A₂, A₃) is one point; a row moves it by the root of the sum of squares."""
    found = combine([made([3.0, 0.0]), made([4.0, 0.0]), made([12.0, 0.0])])
    np.testing.assert_allclose(found.distance, [13.0, 0.0])
    assert found.distance_error[0] >= 0.13
    assert found.distance_error[0] == pytest.approx(0.13)
    hows = (LAPLACE, GAUSSIAN)
    joint = np.hstack([neighbours_of(posed(how), minimise(posed(how))).shift for how in hows])
    both = combine([losses_of(how, released(how, 3)) for how in hows])
    np.testing.assert_allclose(both.distance, np.linalg.norm(joint, axis=1), rtol=1e-2)


# Laws -------------------------------------------------------------------------------------------


def test_gaussian_losses_add_to_a_gaussian_law():
    found = combine([made([0.3, 1.2]), made([0.4, 0.5]), made([1.2, 0.0])])
    assert isinstance(found.law, GaussianLaw)
    np.testing.assert_allclose(found.law.separation, [1.3, 1.3], rtol=1e-15)
    assert found.sampled is None
    assert found.draw is None
    assert found.far_law is None
    far = [made([mu], far_law=GaussianLaw(separation=np.array([2 * mu]))) for mu in (0.3, 0.4)]
    np.testing.assert_allclose(combine(far).far_law.separation, [1.0], rtol=1e-15)
    # By simulation of two real releases of the row that moves most.
    base = minimise(posed(GAUSSIAN))
    near = neighbours_of(posed(GAUSSIAN), base)
    shift = near.shift[int(np.argmax(near.distance))]
    draws = GAUSSIAN.law.sample(40_000, np.random.default_rng(1))
    total = GAUSSIAN.law.loss(draws, shift).reshape(2, -1).sum(axis=0)
    both = combine([losses_of(GAUSSIAN, released(GAUSSIAN, seed)) for seed in (1, 2)]).law
    typical, error = np.abs(total).mean(), np.abs(total).std() / math.sqrt(len(total))
    assert abs(typical - both.expected_exposure.max()) < 4 * error
    single = GAUSSIAN.law.law(near.distance.max()).expected_exposure
    assert abs(typical - single) > 4 * error
    assert abs(typical - 2 * single) > 4 * error


def by_quantiles(first, second, points=600):
    """E∣ℓ₁ + ℓ₂∣ from the exact laws: equal slices of probability, every pair of them."""
    levels = (np.arange(points) + 0.5) / points
    one, two = first.quantile(levels), second.quantile(levels)
    return np.abs(one[:, None] + two[None, :]).mean()


@pytest.mark.parametrize("dimension", [1, 2, 5])
@pytest.mark.parametrize(("t", "s"), [(0.5, 0.5), (3.0, 1.0), (0.01, 8.0)])
def test_typical_exposures_of_norm_laplace_releases(dimension, t, s):
    parts = [laplace([t, t / 2], dimension), laplace([s, s / 2], dimension, loss=0.2)]
    found = combine(parts)
    assert found.law is None
    mean, error = found.sampled()
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
    found = combine([made([0.8]), laplace([1.5], 4, loss=0.2)])
    mean, error = found.sampled()
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
    found = combine(LAWS[kind](relation))
    turn = 1.0 if relation is REMOVE else -1.0
    drawn = np.array(list(found.draw(12_000, np.random.default_rng(5))))
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
    found = combine(parts)
    mean, error = found.sampled()
    assert np.all(mean > 0)
    assert np.all((error > 0) & (error < mean))
    drawn = np.array(list(found.draw(800, np.random.default_rng(7))))
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
        for place in range(size):
            yield np.full(2, np.inf if place % 2 else 0.5)

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
    # The second row may or may not be told apart, the third moves nothing.
    plain = bare([1.0, 1.0, 0.0], [0.1, 2.0, 0.0])
    for parts in ([noisy, plain], [plain, noisy]):
        found = combine(parts)
        assert found.loss.tolist() == [math.inf, math.inf, 0.3]
        assert found.low[0] == math.inf
        assert found.low[1:] == pytest.approx([-0.21, 0.29])
        assert found.high[:2].tolist() == [math.inf, math.inf]
        assert found.high[2] == pytest.approx(0.31)
        assert found.noiseless
        assert found.law is None
        assert found.sampled is None
        assert found.draw is None
        assert (found.worst_case, found.worst_case_passed) == (math.inf, 0.0)


def test_an_unknown_interval_does_not_undo_a_proof():
    """inf − inf: what is not known of one release is finite, what another proves is not."""
    unknown = made([1.0, 1.0], low=np.full(2, -math.inf), high=np.full(2, math.inf))
    found = combine([unknown, bare([1.0, 1.0], [0.0, 2.0])])
    assert found.low.tolist() == [math.inf, -math.inf]
    assert found.high.tolist() == [math.inf, math.inf]
    absent = dataclasses.replace(unknown, relation=ADD)
    found = combine([absent, bare([1.0, 1.0], [0.0, 2.0], ADD)])
    assert found.loss.tolist() == [-math.inf, -math.inf]
    assert found.low.tolist() == [-math.inf, -math.inf]
    assert found.high.tolist() == [-math.inf, math.inf]
    both = combine([unknown, made([1.0, 1.0], low=np.full(2, -math.inf), loss=0.2)])
    assert found.law is None
    assert both.low.tolist() == [-math.inf, -math.inf]


def test_infinities_of_both_signs_are_an_error():
    odd = made([1.0], loss=-math.inf, low=np.array([-math.inf]), high=np.array([0.0]))
    with pytest.raises(ArithmeticError, match="no sum"):
        combine([odd, bare([1.0], [0.0])])


# Promises ---------------------------------------------------------------------------------------


def test_pure_promises_add():
    found = combine([laplace([0.5], 2, worst_case=1.0), laplace([0.5], 3, worst_case=0.5, loss=1)])
    assert 1.5 <= found.worst_case < 1.5 + 1e-12
    assert found.worst_case_passed == 0
    # One release of two that promises nothing.
    found = combine([laplace([0.5], 2), laplace([0.5], 2, worst_case=math.inf, loss=1)])
    assert (found.worst_case, found.worst_case_passed) == (math.inf, 0.0)


def two_sided(b, mu):
    return norm.sf(b, mu * mu / 2, mu) + norm.cdf(-b, mu * mu / 2, mu)


def ever_two_sided(b, mu):
    """A Brownian motion of drift ½ that has passed b, or −b, by the time μ²."""
    up, down = norm.sf(b, mu * mu / 2, mu), norm.cdf(-b, mu * mu / 2, mu)
    return (1 + math.exp(-b)) * up + (1 + math.exp(b)) * down


def test_gaussian_promises_combine():
    """Of mechanisms with known μ = Δ/σ: one of √Σμ², at the sum of the probabilities."""
    hows = [GAUSSIAN, dataclasses.replace(GAUSSIAN, epsilon=0.7, delta=1e-5)]
    parts = [losses_of(how, released(how, seed)) for seed, how in enumerate(hows)]
    found = combine(parts)
    mus = [how.sensitivity / how.resolution for how in hows]
    chance = sum(how.worst_case_passed for how in hows)
    assert found.worst_case_passed == pytest.approx(chance, rel=1e-12)
    assert found.worst_case < sum(how.epsilon for how in hows)
    mu = math.hypot(*mus)
    assert ever_two_sided(found.worst_case, mu) == pytest.approx(chance, rel=1e-8)
    assert ever_two_sided(found.worst_case, mu) <= chance
    assert ever_two_sided(found.worst_case * (1 - 1e-6), mu) > chance
    # A mixture: the Gaussian ones first, then the union bound.
    pure = losses_of(LAPLACE, released(LAPLACE, 5))
    mixed = combine([*parts, pure])
    assert mixed.worst_case == pytest.approx(found.worst_case + LAPLACE.epsilon)
    assert mixed.worst_case_passed == pytest.approx(chance)
    single = combine([parts[0], pure])
    assert single.worst_case == pytest.approx(GAUSSIAN.epsilon + LAPLACE.epsilon)
    assert single.worst_case_passed == pytest.approx(GAUSSIAN.worst_case_passed)


@pytest.mark.parametrize("releases", [2, 8])
def test_a_row_that_keeps_the_evidence_there_is(releases):
    """It moves no centre any more once ∣ℓ∣ > b: more than b promises releases that do not react."""
    mu, epsilon = 0.5, 1.2
    chance = two_sided(epsilon, mu)
    bound, passed = _one_gaussian([(epsilon, chance)] * releases)
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
def test_gaussian_promises_at_the_extremes(epsilon, chance):
    worst, passed = _one_gaussian([(epsilon, chance), (2 * epsilon, chance / 2)])
    assert passed == pytest.approx(1.5 * chance)
    assert 0 < worst <= 3 * epsilon * (1 + 1e-15)
    # Against 40 digits: the μ that each promise allows, and what their root of squares passes.
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
        mu = mpmath.sqrt(sum(one**2 for one in mus))

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
    found = combine(
        [made([1.0], worst_case_passed=0.7), made([1.0], worst_case_passed=0.6, loss=0.2)]
    )
    assert found.worst_case_passed == 1.0


def test_the_promises_are_composed():
    pair = [losses_of(how, released(how, 0)) for how in (LAPLACE, GAUSSIAN)]
    found = combine(pair).guarantee
    assert found == Composition(parts=(LAPLACE.guarantee(), GAUSSIAN.guarantee()))
    assert 0 < found.epsilon(1e-3) < LAPLACE.epsilon + GAUSSIAN.epsilon
    assert combine(pair).worst_case <= LAPLACE.epsilon + GAUSSIAN.epsilon + 1e-12
    # Two of Gaussian noise are one.
    two = combine([losses_of(GAUSSIAN, released(GAUSSIAN, seed)) for seed in (1, 2)]).guarantee
    both = GaussianNoise(mu=math.sqrt(2) * GAUSSIAN.guarantee().mu)
    assert two.epsilon(1e-5) == pytest.approx(both.epsilon(1e-5))
    assert combine([pair[0], made(np.ones(ROWS))]).guarantee is None


# What is refused --------------------------------------------------------------------------------


def test_the_same_release_twice_is_refused():
    one = losses_of(LAPLACE, released(LAPLACE, 0))
    again = losses_of(LAPLACE, released(LAPLACE, 0))
    other = losses_of(LAPLACE, released(LAPLACE, 1))
    for pair in ([one, one], [one, again], [other, one, again]):
        with pytest.raises(InvalidInput, match="are the same release"):
            combine(pair)
    assert len(combine([one, other]).loss) == ROWS
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
    one = made([1.0])
    assert combine([one]) is one


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
