"""Low bits prove nothing about a released θ, and everything about one that was not rounded.

What *provable* means
---------------------
The attacker knows everything but which of two data sets was used: both centres A and A' as the
product computes them, every public constant, and that the noise is some vector b of doubles. A
released value is *possible* under a centre if there is a double b whose computed sum with it is
that value (and, with the grid, whose rounded sum is). A release is *provable* if some coordinate
of it is impossible under the centre that was not used: the attacker then knows, whatever the
noise was. No claim of this kind needs a probability, so ε does not enter: an ε-private release
must never be provable (Mironov 2012; Haney et al. 2022).

``reachable`` decides the control exactly: b ↦ fl(A + b) is monotone and its preimages are
intervals around θ − A, so if a double lies in one, fl(θ − A) or a neighbour of it does. On the
grid a witness decides: one b that leads to the released value is enough.
"""

from dataclasses import replace

import numpy as np
import pytest

from evidence import record
from expost.glm import Minimiser, Objective, minimise
from expost.losses import Logistic
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation
from expost.noise import NormLaplace, _secure

SEED = 2012
DIMENSION = 14


def reachable(theta, centre):
    """For each coordinate, whether any double b has fl(centre + b) = θ."""
    nearest = theta - centre
    candidates = (nearest, np.nextafter(nearest, np.inf), np.nextafter(nearest, -np.inf))
    return np.logical_or.reduce([centre + b == theta for b in candidates])


def reachable_on_grid(theta, centre, grid):
    """For each coordinate, whether b = fl(θ − centre) is a witness: it leads to θ."""
    return grid.snap(centre + (theta - centre)) == theta


def provable(theta, other, grid=None):
    """For each release, whether it is impossible under the centre that was not used."""
    possible = reachable(theta, other) if grid is None else reachable_on_grid(theta, other, grid)
    return ~np.all(possible, axis=-1)


def base_at(theta):
    return Minimiser(theta=theta, gradient_bound=0.0, iterations=0)


def releases(mechanism, base, count, rng):
    return np.array([mechanism.add_noise(base, rng) for _ in range(count)])


def zero_or_one():
    """β = 1 in 14 dimensions; the centres are 0 and 1 in every coordinate."""
    mechanism = OutputPerturbation(
        epsilon=1.0, loss=Logistic(), regularization=0.02, rows=100, dimension=DIMENSION
    )
    assert mechanism.law.rate == pytest.approx(1.0)
    return mechanism, np.zeros(DIMENSION), np.ones(DIMENSION)


def one_hot():
    """(mechanism at β = 100, A with the only row of a one-hot column, A without it, the column)."""
    rng = np.random.default_rng(SEED)
    rows, column = 250, DIMENSION - 1
    X = np.zeros((rows, DIMENSION))
    X[:, :column] = rng.normal(size=(rows, column))
    X /= 2 * np.linalg.norm(X, axis=1, keepdims=True)
    X[0, column] = 0.85
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    regularization = 0.01
    mechanism = OutputPerturbation(
        epsilon=80.0, loss=Logistic(), regularization=regularization, rows=rows, dimension=DIMENSION
    )
    assert mechanism.law.rate == pytest.approx(100.0)
    penalty = np.full(DIMENSION, regularization)
    whole = Objective.of(X=X, y=y, loss=Logistic(), penalty=penalty)
    dropped = Objective.of(X=X[1:], y=y[1:], loss=Logistic(), penalty=penalty)
    return mechanism, minimise(whole).theta, minimise(dropped).theta, column


def attack_zero_or_one(count):
    """Shares provable: (control, the 2⁻⁵³ test alone, control from 1, grid from 0, grid from 1)."""
    mechanism, zeros, ones = zero_or_one()
    rng = np.random.default_rng(SEED)
    noise = mechanism.law.sample(count, rng)
    # fl(1 + b) near 0 is a multiple of 2⁻⁵³, which a small b itself rarely is.
    fine = np.any(np.abs(noise) * 2.0**53 != np.round(np.abs(noise) * 2.0**53), axis=1)
    released = [releases(mechanism, base_at(centre), count, rng) for centre in (zeros, ones)]
    return {
        "control, 0 used": float(np.mean(provable(zeros + noise, ones))),
        "control, 0 used, multiples of 2^-53 alone": float(np.mean(fine)),
        "control, 1 used": float(np.mean(provable(ones + noise, zeros))),
        "grid, 0 used": int(np.sum(provable(released[0], ones, mechanism.grid))),
        "grid, 1 used": int(np.sum(provable(released[1], zeros, mechanism.grid))),
        "releases": count,
    }


def attack_one_hot(count):
    """The same for a row that is the only one of its one-hot column."""
    mechanism, whole, without, column = one_hot()
    rng = np.random.default_rng(SEED)
    noise = mechanism.law.sample(count, rng)
    alone = slice(column, column + 1)
    bare = without + noise
    released = {
        "without": releases(mechanism, base_at(without), count, rng),
        "with": releases(mechanism, base_at(whole), count, rng),
    }
    grid = mechanism.grid
    return {
        "control, row dropped, its column alone": float(
            np.mean(provable(bare[:, alone], whole[alone]))
        ),
        "control, row dropped, every column": float(np.mean(provable(bare, whole))),
        "control, row kept, every column": float(np.mean(provable(whole + noise, without))),
        "grid, row dropped": int(np.sum(provable(released["without"], whole, grid))),
        "grid, row kept": int(np.sum(provable(released["with"], without, grid))),
        "releases": count,
    }


def lattice_point(rate, norm):
    """The sampler's b in one dimension that is nearest to norm: −log of a 53-bit uniform."""
    uniform = np.minimum(np.exp(-rate * norm), 1 - 2.0**-53)
    # Below ½ the uniforms are finer than −log is; above it they are multiples of 2⁻⁵³.
    uniform = np.where(uniform > 0.5, np.round(uniform * 2.0**53) * 2.0**-53, uniform)
    return -np.log(np.minimum(uniform, 1 - 2.0**-53)) / rate


def attack_lattice(count):
    """One dimension, where −log U shows the lattice of U: which b the sampler can make at all."""
    mechanism = OutputPerturbation(
        epsilon=1.0, loss=Logistic(), regularization=0.02, rows=100, dimension=1
    )
    law, grid, other = mechanism.law, mechanism.grid, 0.01
    noise = law.sample_secure(count)[:, 0]

    def attainable(theta, centre):
        """Whether a point of the lattice, ± the roundings after it, leads to θ."""
        apart = np.abs(theta - centre)
        nearest = lattice_point(law.rate, apart)
        return np.abs(nearest - apart) <= 8 * np.spacing(np.maximum(apart, np.abs(centre)))

    def attainable_on_grid(theta, centre):
        apart = theta - centre
        return grid.snap(centre + np.sign(apart) * lattice_point(law.rate, np.abs(apart))) == theta

    released = np.array([mechanism.add_noise(base_at(np.zeros(1)))[0] for _ in range(count)])
    assert np.all(attainable(noise, 0.0))
    return {
        "control": float(np.mean(~attainable(other + noise, 0.0))),
        "grid": int(np.sum(~attainable_on_grid(released, other))),
        "releases": count,
    }


def its_own_column():
    """Objective perturbation of a row that alone has a feature: (mechanism, D, D without it)."""
    rows = 180
    mechanism = ObjectivePerturbation(
        epsilon=5.0, noise="laplace", loss=Logistic(), regularization=0.03, rows=rows, dimension=1
    )
    X, y = np.zeros((rows, 1)), np.ones(rows)
    X[0] = 0.85
    present, absent = (
        Objective.of(X=part, y=y[: len(part)], loss=Logistic(), penalty=np.array([share]))
        for part, share in ((X, mechanism.penalty_sum / rows), (X[1:], mechanism.penalty_sum / 179))
    )
    return mechanism, present, absent


def has_witness(theta, problem, mechanism, grid=None):
    """Whether some double b leads to exactly θ; sought from −∇J(θ) by secants, then all around."""

    def led_to(b):
        tilted = replace(problem, linear=np.array([b / problem.count]))
        solution = minimise(tilted, tolerance=mechanism.tolerance).theta
        return float((solution if grid is None else grid.snap(solution))[0])

    z = problem.held.X[:, 0] * theta
    slope, curvature = problem.loss.derivatives(z, problem.held.y)
    steepness = mechanism.penalty_sum + curvature @ problem.held.X[:, 0] ** 2
    b = -(mechanism.penalty_sum * theta + slope @ problem.held.X[:, 0])
    for _ in range(8):
        if led_to(b) == theta:
            return True
        b += steepness * (led_to(b) - theta)
    around = b + np.spacing(b) * np.arange(-8, 9)
    return any(led_to(candidate) == theta for candidate in around)


def attack_objective(count):
    """The low bits of an exact minimiser show which data set it minimises on."""
    mechanism, present, absent = its_own_column()
    noise = mechanism.law.sample(count, np.random.default_rng(SEED))

    def without_witness(used, other, grid=None):
        number = 0
        for b in noise:
            tilted = replace(used, linear=b / used.count)
            theta = minimise(tilted, tolerance=mechanism.tolerance).theta
            theta = theta if grid is None else grid.snap(theta)
            number += not has_witness(float(theta[0]), other, mechanism, grid)
        return number

    return {
        "control, row kept": without_witness(present, absent) / count,
        "control, row dropped, sought where it was": without_witness(absent, absent) / count,
        "grid, row kept": without_witness(present, absent, mechanism.grid),
        "grid, row dropped": without_witness(absent, present, mechanism.grid),
        "releases": count,
    }


def check(zero_one, hot):
    """The controls fail as DESIGN.md says, the grid does not fail at all."""
    assert zero_one["control, 0 used"] > 0.9
    assert zero_one["control, 0 used, multiples of 2^-53 alone"] == pytest.approx(0.63, abs=0.04)
    assert zero_one["grid, 0 used"] == zero_one["grid, 1 used"] == 0
    assert hot["control, row dropped, its column alone"] == pytest.approx(0.82, abs=0.05)
    assert hot["control, row dropped, every column"] > 0.75
    assert hot["grid, row dropped"] == hot["grid, row kept"] == 0


def test_reachable_is_exact_on_a_small_scale():
    """Against every float16 b: the argument of the module's docstring, exhausted."""
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    rng = np.random.default_rng(SEED)
    for centre in rng.choice(every, 40):
        with np.errstate(over="ignore", invalid="ignore"):
            result = reachable(every, centre)
            truth = np.isin(every, centre + every)
            finite = np.isfinite(every - centre)
        assert result.dtype == bool
        assert np.array_equal(result[finite], truth[finite])
        assert 0 < np.mean(truth) < 1


def test_a_dropped_singleton_column_is_exactly_zero():
    _, whole, without, column = one_hot()
    assert without[column] == 0.0
    assert abs(whole[column]) > 0.1


def test_zero_against_one():
    check(attack_zero_or_one(2000), attack_one_hot(2000))


def test_the_grid_hides_which_data_was_minimised_on():
    result = attack_objective(60)
    assert result["control, row kept"] > 0.1
    assert result["control, row dropped, sought where it was"] == 0
    assert result["grid, row kept"] == result["grid, row dropped"] == 0


def test_the_grid_hides_the_lattice_of_the_sampler():
    result = attack_lattice(2000)
    assert result["control"] > 0.01
    assert result["grid"] == 0


def test_secure_releases_are_not_provable_either():
    mechanism, whole, without, _ = one_hot()
    thetas = releases(mechanism, base_at(without), 300, None)
    assert not np.any(provable(thetas, whole, mechanism.grid))
    noise = np.array([mechanism.law.sample_secure() for _ in range(300)])
    assert np.mean(provable(without + noise, whole)) > 0.7


def test_the_attack_would_see_a_grid_that_is_too_fine():
    """Power: on a grid of 2⁻⁶⁰ the same attack proves most releases."""
    mechanism, whole, without, _ = one_hot()
    rng = np.random.default_rng(SEED)
    fine = type(mechanism.grid)(clamp=mechanism.grid.clamp, exponent=-60)
    thetas = fine.snap(without + mechanism.law.sample(500, rng))
    assert np.mean(provable(thetas, whole, fine)) > 0.5


def test_uniforms_lie_on_the_lattice_that_the_attack_assumes():
    drawn = _secure.uniforms(100_000)
    upper = drawn[drawn > 0.5]
    assert np.all(upper * 2.0**53 == np.round(upper * 2.0**53))
    assert isinstance(NormLaplace(rate=1.0, dimension=1).sample_secure()[0], float)


@pytest.mark.long
def test_record_the_attacks():
    count = 100_000
    zero_one, hot = attack_zero_or_one(count), attack_one_hot(count)
    lattice, objective = attack_lattice(count), attack_objective(2000)
    check(zero_one, hot)
    assert objective["grid, row kept"] == objective["grid, row dropped"] == 0
    assert lattice["grid"] == 0
    record(
        "precision",
        command="pytest -m long tests/test_precision_attacks.py",
        seed=SEED,
        figures={
            "0 against 1 (d = 14, beta = 1)": zero_one,
            "one-hot singleton (d = 14, beta = 100)": hot,
            "lattice of the sampler (d = 1, operating system's randomness)": lattice,
            "only row of its column, objective perturbation (d = 1)": objective,
        },
    )
