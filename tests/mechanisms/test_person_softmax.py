"""Losses of persons for more than two classes: against densities with whole determinants."""

import itertools

import numpy as np
import pytest

from expost.mechanisms.person_losses import person_losses
from expost.mechanisms.tangent import Tangent
from expost.neighbouring.persons import read_persons
from mechanisms.test_softmax_losses import NOISES, log_density, perturbation, problem_of, rows


def brute_force(mechanism, X, y, groups, theta):
    here = log_density(mechanism, X, y, theta)
    people = dict.fromkeys(groups.tolist())
    return np.array(
        [here - log_density(mechanism, X[groups != k], y[groups != k], theta) for k in people]
    )


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("K", "d"), [(3, 1), (4, 3), (6, 4)])
def test_losses_are_the_log_ratio_of_densities(noise, K, d):
    n, largest = 25, 0.0
    X, y = rows(n, d, K, 1)
    groups = np.random.default_rng(K).permutation(np.repeat(np.arange(5), [1, 2, 3, 6, 13]))
    for epsilon, regularization in itertools.product((0.5, 8.0), (1.0, 1e-3)):
        mechanism = perturbation(
            n, d, K, noise=noise, epsilon=epsilon, regularization=regularization
        )
        theta = mechanism.release(problem_of(mechanism, X, y), np.random.default_rng(0))
        tangent = Tangent.at(mechanism, problem_of(mechanism, X, y), theta)
        losses = person_losses(tangent, read_persons(groups, n))
        truth = brute_force(mechanism, X, y, groups, theta)
        condition = 1 + n / mechanism.penalty_sum
        assert np.max(np.abs(losses.loss - truth)) <= 1e-10 + 1e-13 * condition
        assert np.all((losses.low <= truth + 1e-10) & (truth - 1e-10 <= losses.high))
        if noise == "laplace":
            sizes = read_persons(groups, n).sizes
            assert np.all(np.abs(truth) <= sizes * epsilon)
            assert losses.worst_case == 13 * epsilon
        largest = max(largest, float(np.max(np.abs(truth))))
        # Power: the sum of the losses of her rows is another number.
        summed = np.bincount(read_persons(groups, n).owner, weights=tangent.row_losses().loss)
        assert np.max(np.abs(summed - truth)) > 1e3 * np.max(np.abs(losses.loss - truth))
    assert largest > 0.1


@pytest.mark.parametrize("noise", NOISES)
def test_intervals_hold_anywhere_in_the_cell(noise):
    X, y = rows(12, 2, 3, 4)
    groups = np.arange(12) // 4
    mechanism = perturbation(12, 2, 3, noise=noise, epsilon=4.0, regularization=1e-2)
    problem = problem_of(mechanism, X, y)
    theta = mechanism.release(problem, np.random.default_rng(2))
    losses = person_losses(Tangent.at(mechanism, problem, theta), read_persons(groups, 12))
    rng, used = np.random.default_rng(3), 0.0
    for _ in range(50):
        corner = theta + 0.5 * mechanism.grid.step * rng.choice([-1.0, 1.0], len(theta))
        truth = brute_force(mechanism, X, y, groups, corner)
        assert np.all((losses.low - 1e-11 <= truth) & (truth <= losses.high + 1e-11))
        used = max(used, float(np.max(np.abs(truth - losses.loss) / (losses.high - losses.loss))))
    assert used > 0.02
