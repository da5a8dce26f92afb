"""Losses of persons under objective perturbation, and what k rows are guaranteed.

Against densities with every determinant taken, in float64 and (intervals) in fifty digits.
"""

import itertools
import math

import numpy as np
import pytest
from mpmath import mp
from scipy.special import ndtr

from expost.accounting import gaussian_delta
from expost.glm import minimise
from expost.losses import HuberHinge, Logistic, Squared
from expost.mechanisms import OutputPerturbation
from expost.mechanisms.person_losses import person_losses
from expost.mechanisms.sampling import drawn_losses, expected_exposures
from expost.neighbouring.persons import read_persons
from expost.risk import EpsilonDelta, GaussianNoise, NormLaplaceNoise
from mechanisms.changes import changed, of_persons
from mechanisms.test_tangent import (
    LOSSES,
    NOISES,
    SHAPES,
    Case,
    draw,
    gradients_on_a_line,
    mechanism,
    minimisers_on_a_line,
    naive_derivatives,
    naive_log_density,
    nodes_of_noise,
    posed,
    tangent_of,
)


def partition(rng, n, d):
    """Persons of 1, 2, 3, d and more than d rows, in no order."""
    sizes = [1, 2, 3, d, 2 * d + 1]
    groups = np.repeat(np.arange(len(sizes)), sizes)[:n]
    groups = np.concatenate([groups, np.arange(n - len(groups)) + len(sizes)])
    groups = groups if len(np.unique(groups)) > 1 else np.arange(n) % 2
    return rng.permutation(groups)


def without(X, y, groups, person):
    return X[groups != person], y[groups != person]


def naive_losses(mechanism, X, y, groups, theta):
    here = naive_log_density(mechanism, X, y, theta)
    people = dict.fromkeys(groups.tolist())
    return np.array(
        [
            here - naive_log_density(mechanism, *without(X, y, groups, name), theta)
            for name in people
        ]
    )


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_losses_are_the_log_ratio_of_the_densities(loss, noise):
    rng = np.random.default_rng(11)
    sizes = itertools.cycle([(5, 1), (40, 3), (200, 12), (30, 30), (60, 2)])
    shapes = itertools.cycle(SHAPES)
    largest = 0.0
    for epsilon, penalty, calibration in itertools.product(
        (0.1, 10.0), (1e-6, 1e-3, 0.1, 10.0), ("tight", "published")
    ):
        n, d = next(sizes)
        perturbation = mechanism(
            loss=loss, noise=noise, epsilon=epsilon, calibration=calibration, rows=n, dimension=d,
            regularization=penalty,
        )  # fmt: skip
        X, y, _ = draw(rng, perturbation, shape=next(shapes))
        groups = partition(rng, n, d)
        theta = perturbation.release(posed(perturbation, X, y), rng)
        losses = person_losses(tangent_of(perturbation, X, y, theta), read_persons(groups, n))
        truth = naive_losses(perturbation, X, y, groups, theta)
        condition = 1 + n * loss.curvature_bound / perturbation.penalty_sum
        lost = 1e-10 + 8 * d * 2.0**-53 * condition
        assert np.all(np.abs(losses.loss - truth) <= lost * np.maximum(1, np.abs(truth)))
        assert np.all(losses.low <= losses.loss)
        assert np.all(losses.loss <= losses.high)
        largest = max(largest, np.max(np.abs(truth)))
    assert largest > 0.3


def test_the_sum_of_the_losses_of_rows_is_seen():
    """The mutant: rows removed one by one from the same H, and added up."""
    perturbation = mechanism(epsilon=10.0, regularization=1e-3, rows=40, dimension=3)
    rng = np.random.default_rng(0)
    X, y, _ = draw(rng, perturbation)
    groups = np.arange(40) // 8
    theta = perturbation.release(posed(perturbation, X, y), rng)
    tangent = tangent_of(perturbation, X, y, theta)
    losses = person_losses(tangent, read_persons(groups, 40))
    truth = naive_losses(perturbation, X, y, groups, theta)
    summed = tangent.row_losses().loss.reshape(5, 8).sum(axis=1)
    assert np.all((losses.low <= truth) & (truth <= losses.high))
    assert not np.any((losses.low <= summed) & (summed <= losses.high))
    assert np.min(np.abs(summed - truth)) > 1e5 * np.max(losses.high - losses.low)


def test_everyone_with_one_row_gives_the_very_same_numbers():
    perturbation = mechanism(epsilon=3.0)
    X, y, _ = draw(np.random.default_rng(0), perturbation)
    tangent = tangent_of(
        perturbation,
        X,
        y,
        perturbation.release(posed(perturbation, X, y), np.random.default_rng(1)),
    )
    plain = tangent.row_losses()
    losses = person_losses(tangent, read_persons(np.arange(40), 40))
    for name in ("loss", "low", "high", "distance"):
        assert getattr(losses, name).tobytes() == getattr(plain, name).tobytes()
    # Among others, who make a block of another shape, they differ by rounding alone.
    mixed = person_losses(tangent, read_persons(np.minimum(np.arange(40), 30), 40))
    assert np.max(np.abs(mixed.loss[:30] - plain.loss[:30])) <= 1e-12


def test_order_does_not_matter_and_blocks_neither(monkeypatch):
    perturbation = mechanism(epsilon=10.0, rows=60)
    rng = np.random.default_rng(2)
    X, y, _ = draw(rng, perturbation)
    groups = rng.integers(0, 9, 60)
    groups[:25] = 3
    theta = perturbation.release(posed(perturbation, X, y), rng)
    persons = read_persons(groups, 60)
    losses = person_losses(tangent_of(perturbation, X, y, theta), persons)
    order = rng.permutation(60)
    other = read_persons(groups[order], 60)
    turned = person_losses(tangent_of(perturbation, X[order], y[order], theta), other)
    same = [other.names.index(name) for name in persons.names]
    assert same != sorted(same)
    assert turned.loss[same] == pytest.approx(losses.loss, abs=1e-12)
    monkeypatch.setattr("expost.neighbouring.change._ENTRIES", 20)
    monkeypatch.setattr("expost.neighbouring.change._CHUNK", 4)
    again = person_losses(tangent_of(perturbation, X, y, theta), persons)
    assert again.loss == pytest.approx(losses.loss, abs=1e-12)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_change_of_measure_by_integration(loss, noise):
    """E exp(−loss) = 1 of every person to 1e-6; without the determinant it is not."""
    perturbation = mechanism(loss=loss, noise=noise, epsilon=3.0, delta=0.1, rows=6, dimension=1,
                    regularization=0.15)  # fmt: skip
    X, y, _ = draw(np.random.default_rng(5), perturbation)
    groups = np.array([0, 1, 1, 2, 2, 2])
    b, weight = nodes_of_noise(
        perturbation, X, y, [without(X, y, groups, person) for person in range(3)]
    )
    persons, losses, noise_part = read_persons(groups, 6), [], []
    for theta in minimisers_on_a_line(perturbation, X, y, b):
        tangent = tangent_of(perturbation, X, y, np.array([theta]))
        losses.append(person_losses(tangent, persons).loss)
        _, curvature = naive_derivatives(loss, X[:, 0] * theta, y)
        whole = tangent.hessian[0, 0]
        taken = np.bincount(groups, weights=curvature * X[:, 0] ** 2)
        noise_part.append(losses[-1] + np.log1p(-taken / whole))
    assert np.max(np.abs(weight @ np.exp(-np.array(losses)) - 1)) <= 1e-6
    assert np.max(np.abs(weight @ np.exp(-1.01 * np.array(losses)) - 1)) > 1e-4
    assert np.max(np.abs(weight @ np.exp(-np.array(noise_part)) - 1)) > 1e-2
    assert np.all(weight @ np.array(losses) > 0)


def test_intervals_hold_the_loss_at_every_minimiser():
    """In fifty digits, at minimisers that would have been rounded to θ; also at knots."""
    number = shrunk = 0
    for seed in range(36):
        case = Case(seed=seed)
        X, y, _ = case.data
        groups = np.random.default_rng(seed).integers(0, 3, len(X))
        groups[0], groups[-1] = 0, 1
        persons = read_persons(groups, len(X))
        losses = person_losses(case.tangent, persons)
        others = [case.truth(*without(X, y, groups, name)) for name in persons.names]
        for point in case.minimisers(3):
            with mp.workdps(50):
                here = case.truth(X, y).log_density(point)
                for person, other in enumerate(others):
                    loss = here - other.log_density(point)
                    low, high, middle = (
                        getattr(losses, name)[person] for name in ("low", "high", "loss")
                    )
                    assert low <= loss <= high, (seed, person)
                    number += 1
                    shrunk += not abs(loss - middle) <= 0.05 * max(high - middle, middle - low)
    assert number >= 200
    # Power: intervals a twentieth as wide would be broken.
    assert shrunk >= 20


def test_expected_exposures_are_means_over_releases():
    perturbation = mechanism(epsilon=2.0, rows=40)
    X, y, _ = draw(np.random.default_rng(3), perturbation)
    groups = np.arange(40) // 5
    problem, persons = posed(perturbation, X, y), read_persons(groups, 40)
    mean, error = expected_exposures(perturbation, problem, of_persons(problem, persons))
    rng, draws = np.random.default_rng(9), []
    for noise in perturbation.law.sample(300, rng):
        theta = perturbation.minimiser(problem, noise).theta
        draws.append(np.abs(naive_losses(perturbation, X, y, groups, theta)))
    wanted = np.mean(draws, axis=0)
    spread = np.std(draws, axis=0, ddof=1) / math.sqrt(300)
    # Eight persons at 4.5 standard errors: a false alarm in 2e-5 of all seeds.
    assert np.all(np.abs(mean - wanted) <= 4.5 * np.hypot(error, spread))
    single, _ = expected_exposures(perturbation, problem, changed(problem))
    assert np.all(np.abs(single.reshape(8, 5).sum(axis=1) - wanted) > 6 * np.hypot(error, spread))
    drawn = list(
        drawn_losses(
            perturbation, problem, of_persons(problem, persons), 2, np.random.default_rng(0)
        )
    )
    assert np.shape(drawn) == (2, 8)


# What is guaranteed to k rows.


def output(**changes):
    values = {
        "epsilon": 0.5, "loss": Logistic(), "regularization": 0.01, "rows": 50, "dimension": 2,
        **changes,
    }  # fmt: skip
    return OutputPerturbation(**values)


@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_k_rows_move_a_minimiser_by_at_most_k_sensitivities(k):
    """And by more than 0.9 of that where the others all pull the other way."""
    mechanism = output(regularization=1000.0, dimension=1)
    X, y = np.ones((50, 1)), np.where(np.arange(50) < k, 1.0, -1.0)
    if k == 1:
        y[0] = 1.0
    problem = posed(mechanism, X, y)
    base = minimise(problem).theta
    rest = minimise(posed(mechanism, X[k:], y[k:])).theta
    moved = float(np.abs(rest - base)[0])
    assert moved <= k * mechanism.sensitivity
    assert moved > 0.45 * k * mechanism.sensitivity * (1 - k / 100)
    assert mechanism.worst_case_of(k) == (k * 0.5, 0.0)
    guarantee = mechanism.guarantee(k)
    assert isinstance(guarantee, NormLaplaceNoise)
    assert guarantee.separation == k * 0.5


@pytest.mark.parametrize("k", [1, 2, 5, 30])
def test_gaussian_noise_on_a_minimiser_passes_no_more_often_than_for_a_row(k):
    mechanism = output(noise="gaussian", delta=1e-5)
    mu = mechanism.sensitivity / mechanism.resolution
    worst, passed = mechanism.worst_case_of(k)
    exactly = ndtr(k * mu / 2 - worst / (k * mu)) + ndtr(-k * mu / 2 - worst / (k * mu))
    assert exactly <= passed * (1 + 1e-12)
    assert passed == pytest.approx(exactly, rel=1e-9)
    assert passed <= mechanism.worst_case_passed * (1 + 1e-12)
    assert worst >= k * mechanism.epsilon
    guarantee = mechanism.guarantee(k)
    assert isinstance(guarantee, GaussianNoise)
    assert guarantee.mu == pytest.approx(k * mu, rel=1e-12)
    assert guarantee.mu >= k * mu
    # Power: a bound a little lower is passed more often than that.
    lower = 0.95 * worst
    assert ndtr(k * mu / 2 - lower / (k * mu)) > passed


def losses_on_a_line(mechanism, X, y, gone, theta):
    """The loss of the rows ``gone`` at every θ (m,), by the densities written out."""
    slope, curvature = naive_derivatives(mechanism.loss, theta[:, None] * X[:, 0], y)
    all_of_it = mechanism.penalty_sum * theta + slope @ X[:, 0]
    rest = all_of_it - slope[:, gone] @ X[gone, 0]
    here, there = np.abs(all_of_it) / mechanism.resolution, np.abs(rest) / mechanism.resolution
    curved = curvature * X[:, 0] ** 2
    volume = np.log(mechanism.penalty_sum + curved.sum(axis=1))
    volume -= np.log(mechanism.penalty_sum + curved[:, ~gone].sum(axis=1))
    if mechanism.noise == "laplace":
        return there - here + volume
    return (there**2 - here**2) / 2 + volume


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("k", [2, 3, 6])
def test_what_objective_perturbation_guarantees_k_rows_holds_on_a_line(loss, k):
    """k rows of full length leave; P(∣loss∣ > b) by summing over b, and pure ε by its maximum."""
    gone = np.arange(12) < k
    labels = (
        np.where(gone, 1.0, -1.0),
        np.ones(12),
        np.where(gone | (np.arange(12) % 2 == 0), 1.0, -1.0),
    )
    X, largest = np.ones((12, 1)), 0.0
    for noise, y, penalty in itertools.product(NOISES, labels, (0.02, 0.3)):
        perturbation = mechanism(loss=loss, noise=noise, epsilon=1.0, delta=0.05, rows=12, dimension=1,
                        regularization=penalty)  # fmt: skip
        worst, passed = perturbation.worst_case_of(k)
        ends = minimisers_on_a_line(
            perturbation, X, y, perturbation.resolution * np.array([12.0, -12.0])
        )
        theta = np.linspace(*ends, 4001)
        # θ falls as b grows: each takes the noise half way to its neighbours.
        b = -gradients_on_a_line(perturbation, X, y, theta) / perturbation.resolution
        edges = ndtr(np.concatenate([[np.inf], (b[1:] + b[:-1]) / 2, [-np.inf]]))
        weight = edges[:-1] - edges[1:]
        losses = losses_on_a_line(perturbation, X, y, gone, theta)
        largest = max(largest, float(np.max(np.abs(losses[np.abs(b) < 4]))))
        if noise == "laplace":
            assert (worst, passed) == (k * 1.0, 0.0)
            assert np.max(np.abs(losses)) <= worst
            assert perturbation.guarantee(k).delta(worst) == 0.0
            continue
        assert np.sum(weight[np.abs(losses) > worst]) <= passed
        assert passed <= min(k * perturbation.worst_case_passed, 1.0) * (1 + 1e-6)
        guarantee = perturbation.guarantee(k)
        for at in (guarantee.guaranteed_epsilon, k * 1.0):
            real = np.sum(weight * np.maximum(1 - np.exp(at - losses), 0))
            assert real <= guarantee.delta(at)
    # Power: a row's own ε is passed by the person.
    assert largest > 1.0


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge()], ids=lambda loss: loss.name)
def test_a_person_is_guaranteed_more_than_by_equal_shares(loss):
    """(kε, δ(1 + e^ε + … + e^((k−1)ε))) is the chain that every (ε, δ) has."""
    perturbation = mechanism(loss=loss, epsilon=0.7, delta=1e-6, regularization=0.2)
    for k in (2, 3, 10):
        guarantee = perturbation.guarantee(k)
        assert isinstance(guarantee, EpsilonDelta)
        assert guarantee.guaranteed_epsilon == pytest.approx(k * 0.7, rel=1e-12)
        common = 1e-6 * sum(math.exp(j * 0.7) for j in range(k))
        assert 1e-6 < guarantee.guaranteed_delta < 0.95 * common
    for k in (200, 5000):
        assert perturbation.guarantee(k).advantage == 1.0
    mu = output(noise="gaussian", delta=1e-5)
    exact = mu.guarantee(4)
    assert exact.delta(4 * 0.5) == pytest.approx(
        float(gaussian_delta(2.0, 4 * mu.sensitivity / mu.resolution)), rel=1e-6
    )


def test_nothing_is_guaranteed_for_squared_loss_nor_without_noise():
    perturbation = mechanism(loss=Squared(label_bound=1.5))
    assert perturbation.worst_case_of(3) == (math.inf, 0.0)
    assert perturbation.guarantee(3).advantage == 1.0
    plain = output(epsilon=math.inf)
    assert plain.worst_case_of(3)[0] == math.inf
    assert plain.guarantee(3).advantage == 1.0
