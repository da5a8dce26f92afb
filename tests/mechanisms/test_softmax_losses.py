"""Objective perturbation with more than two classes: calibration, losses, release and estimator."""

import copy
import json
import math

import mpmath
import numpy as np
import pytest
from mpmath import mp
from scipy.optimize import brentq
from scipy.special import ndtr
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from expost import PrivateLinearSVC, PrivateLogisticRegression, profile
from expost.accounting import gaussian_delta
from expost.errors import (
    InvalidInput,
    PrivacyLeakWarning,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
    WrongRows,
)
from expost.glm import Objective, minimise
from expost.losses import Softmax
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation
from expost.mechanisms.publishing import PublishingBudget
from expost.mechanisms.sampling import expected_exposures, perturbed_minimisers
from expost.mechanisms.tangent import Tangent
from expost.release import Release
from expost.types import Audience, Neighbouring
from mechanisms.changes import changed, neighbour
from mechanisms.test_release import sealed
from settings import OUTPUT
from test_softmax import rows

REMOVE, ADD, REPLACE = Neighbouring.REMOVE, Neighbouring.ADD, Neighbouring.REPLACE
NOISES = ("gaussian", "laplace")


def perturbation(n, d, K, *, noise="gaussian", epsilon=1.0, delta=1e-5, **options):
    options = {"regularization": 0.1, **options}
    return ObjectivePerturbation(
        epsilon=epsilon,
        delta=delta if noise == "gaussian" else None,
        noise=noise,
        loss=Softmax(classes=K),
        rows=n,
        dimension=K * d,
        **options,
    )


def problem_of(mechanism, X, y):
    return Objective.of(X=X, y=y, loss=mechanism.loss, penalty=mechanism.total_regularization)


def log_density(mechanism, X, y, theta):
    """log p(θ ∣ D) by its definition: the law of b = −∇J, and the determinant of the whole ∇²J."""
    K = mechanism.loss.classes
    z = X @ theta.reshape(K, -1).T
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    gradient = ((p - np.eye(K)[y.astype(int)]).T @ X).ravel() + mechanism.penalty_sum * theta
    hessian = mechanism.penalty_sum * np.eye(len(theta))
    for x, q in zip(X, p, strict=True):
        hessian += np.kron(np.diag(q) - np.outer(q, q), np.outer(x, x))
    return float(mechanism.law.log_density(gradient[None])[0]) + np.linalg.slogdet(hessian)[1]


def brute_force(mechanism, X, y, entering, relation, theta):
    """The loss of every row by its definition."""
    base = log_density(mechanism, X, y, theta)
    others = [
        log_density(mechanism, *neighbour(X, y, entering, relation, row), theta)
        for row in range(len(X))
    ]
    sign = -1 if relation is ADD else 1
    return sign * (base - np.array(others))


# The losses.

SHAPES = [(3, 1), (3, 2), (4, 3), (7, 6)]


@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize(("K", "d"), SHAPES)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("epsilon", "regularization"), [(0.5, 1.0), (8.0, 1e-3)])
def test_losses_are_the_log_ratio_of_densities(noise, K, d, relation, epsilon, regularization):
    n = 25
    X, y = rows(n, d, K, 1)
    entering = rows(n, d, K, 2)
    mechanism = perturbation(n, d, K, noise=noise, epsilon=epsilon, regularization=regularization)
    problem = problem_of(mechanism, X, y)
    theta = mechanism.release(problem, np.random.default_rng(3))
    tangent = Tangent.at(mechanism, problem, theta)
    tangent.check_rows()
    losses = tangent.row_losses(changed(problem, relation, entering))
    exact = brute_force(mechanism, X, y, entering, relation, theta)
    np.testing.assert_allclose(losses.loss, exact, atol=1e-10)
    assert np.all((losses.low <= exact) & (exact <= losses.high))
    assert np.all(losses.high - losses.low < 1e-5)
    # Power: nothing else comes as close.
    assert np.abs(losses.loss + exact).max() > 1e-3
    if relation is REMOVE:
        np.testing.assert_allclose(
            tangent.sampled_losses(changed(problem)), losses.loss, atol=1e-13
        )
    if relation is not REPLACE:
        limit = epsilon if noise == "laplace" else math.inf
        assert losses.worst_case == epsilon
        assert np.all(np.abs(losses.loss) <= limit)
    elif noise == "gaussian":
        # Gaussian noise is not calibrated to replacements.
        assert losses.worst_case == math.inf


@pytest.mark.parametrize("noise", NOISES)
def test_losses_against_differences_at_fifty_digits(noise):
    """The Jacobian of θ ↦ ∇J by differences: no formula for a Hessian is trusted."""
    n, d, K = 5, 2, 3
    X, y = rows(n, d, K, 7)
    mechanism = perturbation(n, d, K, noise=noise, epsilon=3.0, delta=1e-2, regularization=0.2)
    theta = mechanism.release(problem_of(mechanism, X, y), np.random.default_rng(1))
    losses = Tangent.at(mechanism, problem_of(mechanism, X, y), theta).row_losses()

    def gradient(point, members):
        total = [mpmath.mpf(mechanism.penalty_sum) * value for value in point]
        for i in members:
            z = [mpmath.fdot(point[k * d : k * d + d], X[i]) for k in range(K)]
            weights = [mpmath.exp(value) for value in z]
            for k in range(K):
                slope = weights[k] / mpmath.fsum(weights) - int(k == y[i])
                for j in range(d):
                    total[k * d + j] += slope * mpmath.mpf(X[i, j])
        return total

    def density(members):
        point, step = [mpmath.mpf(value) for value in theta], mpmath.mpf(10) ** -25
        jacobian = mpmath.matrix(K * d)
        for a in range(K * d):
            ends = []
            for sign in (1, -1):
                moved = list(point)
                moved[a] += sign * step
                ends.append(gradient(moved, members))
            for b in range(K * d):
                jacobian[b, a] = (ends[0][b] - ends[1][b]) / (2 * step)
        norm = mpmath.norm(gradient(point, members))
        law = mechanism.law
        exponent = -law.rate * norm if noise == "laplace" else -(norm**2) / (2 * mpmath.mpf(law.scale) ** 2)  # fmt: skip
        return exponent + mpmath.log(mpmath.det(jacobian))

    with mp.workdps(70):
        base = density(range(n))
        exact = [float(base - density([j for j in range(n) if j != i])) for i in range(n)]
    np.testing.assert_allclose(losses.loss, exact, atol=1e-12)


@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("epsilon", "regularization"), [(1.0, 0.1), (20.0, 1e-3)])
def test_intervals_hold_anywhere_in_the_cell(noise, relation, epsilon, regularization):
    n, d, K = 12, 2, 3
    X, y = rows(n, d, K, 4)
    entering = rows(n, d, K, 5)
    mechanism = perturbation(n, d, K, noise=noise, epsilon=epsilon, regularization=regularization)
    # A coarser grid, so that what moves is seen above the rounding of the brute force.
    reach = 1e-3 / mechanism.penalty_sum
    problem = problem_of(mechanism, X, y)
    theta = mechanism.release(problem, np.random.default_rng(6))
    tangent = Tangent.at(_Coarse(mechanism, reach), problem, theta)
    losses = tangent.row_losses(changed(problem, relation, entering))
    rng = np.random.default_rng(8)
    largest = np.zeros(n)
    for trial in range(60):
        step = rng.normal(size=K * d)
        if trial >= 40:
            # Towards the gradient and away from it, where g changes most.
            step = tangent.hessian @ tangent.gradient * (-1) ** trial + 0.1 * step
        moved = theta + reach * step / np.linalg.norm(step)
        exact = brute_force(mechanism, X, y, entering, relation, moved)
        assert np.all((losses.low <= exact) & (exact <= losses.high))
        largest = np.maximum(largest, np.abs(exact - losses.loss))
    # Power: the intervals are not far wider than what moves.
    assert np.median((losses.high - losses.loss) / largest) < 30


class _Coarse:
    """The same mechanism with another cell."""

    def __init__(self, mechanism, reach):
        self._mechanism, self.reach_of_cell, self.half_cell = mechanism, reach, reach

    def __getattr__(self, name):
        return getattr(self._mechanism, name)


def test_one_row_may_replace_every_row():
    mechanism = perturbation(10, 2, 3)
    X, y = rows(10, 2, 3, 0)
    problem = problem_of(mechanism, X, y)
    tangent = Tangent.at(mechanism, problem, mechanism.release(problem, np.random.default_rng(0)))
    row = (X[:1] / 2, np.array([2.0]))
    single = tangent.row_losses(changed(problem, REPLACE, row))
    each = tangent.row_losses(
        changed(problem, REPLACE, (np.tile(row[0], (10, 1)), np.full(10, 2.0)))
    )
    np.testing.assert_allclose(single.loss, each.loss, rtol=1e-12)
    with pytest.raises(InvalidInput, match="has 3 rows"):
        tangent.row_losses(changed(problem, REPLACE, (X[:3], y[:3])))
    with pytest.raises(InvalidInput, match="classes from 0 to 2"):
        tangent.row_losses(changed(problem, ADD, (X[:1], np.array([3.0]))))


def test_a_row_for_itself_costs_nothing():
    mechanism = perturbation(10, 3, 4, epsilon=5.0, regularization=1e-3)
    X, y = rows(10, 3, 4, 0)
    problem = problem_of(mechanism, X, y)
    tangent = Tangent.at(mechanism, problem, mechanism.release(problem, np.random.default_rng(0)))
    losses = tangent.row_losses(changed(problem, REPLACE, (X, y)))
    np.testing.assert_allclose(losses.loss, 0, atol=1e-13)
    assert np.all((losses.low <= 0) & (losses.high >= 0))


@pytest.mark.parametrize("noise", NOISES)
def test_losses_average_to_one_in_the_exponent(noise):
    """E over θ ~ p(· ∣ D) of exp(−loss) = 1, all rows together; false alarms: 7e-6."""
    n, d, K, models = 8, 2, 3, 3000
    X, y = rows(n, d, K, 9)
    epsilon = 4.0 if noise == "gaussian" else 12.0
    mechanism = perturbation(n, d, K, noise=noise, epsilon=epsilon, delta=0.1, regularization=0.1)
    problem = problem_of(mechanism, X, y)
    noise_draws = mechanism.law.sample(models, np.random.default_rng(10))
    thetas = perturbed_minimisers(problem, noise_draws / n)
    leaving = changed(problem)
    losses = np.array([Tangent.at(mechanism, problem, t).sampled_losses(leaving) for t in thetas])

    def off(values):
        means = np.exp(-values).mean(axis=1) - 1
        return abs(means.mean()) / (means.std() / math.sqrt(models))

    assert off(losses) < 4.5
    # Power: neither losses × 1.2 or × 0.8 nor those short of a fifth of their determinants pass.
    assert off(1.2 * losses) > 4.5
    assert off(0.8 * losses) > 4.5
    z = np.einsum("ij,mkj->mik", X, thetas.reshape(models, K, d))
    p = np.exp(z) / np.exp(z).sum(axis=2, keepdims=True)
    assert off(losses - (1 - (p**2).sum(axis=2)) * 0.2 / mechanism.penalty_sum) > 4.5


def test_expected_exposures_are_means_over_releases():
    n, d, K = 30, 2, 3
    X, y = rows(n, d, K, 11)
    mechanism = perturbation(n, d, K, noise="laplace", epsilon=2.0)
    problem = problem_of(mechanism, X, y)
    mean, error = expected_exposures(mechanism, problem, changed(problem))
    rng = np.random.default_rng(12)
    exact = np.mean(
        [
            np.abs(
                Tangent.at(mechanism, problem, mechanism.release(problem, rng)).row_losses().loss
            )
            for _ in range(400)
        ],
        axis=0,
    )
    assert np.all(np.abs(mean - exact) < 6 * error)
    assert np.max(np.abs(1.5 * mean - exact) / error) > 6


@pytest.mark.parametrize("size", [0.1, 30.0])
def test_sampled_models_are_minimisers(size):
    X, y = rows(40, 3, 4, 13)
    problem = Objective.of(X=X, y=y, loss=Softmax(classes=4), penalty=1e-2)
    linear = size * np.random.default_rng(14).normal(size=(5, 12)) / 40
    for theta, c in zip(perturbed_minimisers(problem, linear), linear, strict=True):
        tilted = Objective.of(X=X, y=y, loss=problem.loss, penalty=1e-2, linear=c)
        np.testing.assert_allclose(theta, minimise(tilted).theta, atol=1e-7)


# The guarantee.


@pytest.mark.parametrize("K", [3, 7])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_the_constants_of_the_calibrations(K, epsilon):
    n, d, delta = 50, 4, 1e-6
    published = perturbation(
        n, d, K, epsilon=epsilon, delta=delta, calibration="published", regularization=1e-9
    )
    assert published.penalty_sum == pytest.approx(2 * (1 - 1 / K) / epsilon, rel=1e-12)
    variance = 2 * (8 * math.log(2 * (K - 1) / delta) + 4 * epsilon) / epsilon**2
    assert published.law.scale == pytest.approx(math.sqrt(variance), rel=1e-12)
    for regularization in (1e-9, 1.0):
        tight = perturbation(n, d, K, epsilon=epsilon, delta=delta, regularization=regularization)
        most = (K - 1) * math.log1p(1 / (K * tight.penalty_sum))
        assert most <= epsilon / 2 * (1 + 1e-12)
        spent = max(0, 1 - tight.penalty_sum / (2 * tight.law.scale**2)) * most
        guaranteed_delta = (K - 1) * gaussian_delta(epsilon - spent, math.sqrt(2) / tight.law.scale)
        assert delta * (1 - 1e-4) < guaranteed_delta <= delta
        assert tight.law.scale < published.law.scale
        # What is published keeps the tight guarantee too.
        spent = (K - 1) * math.log1p(1 / (K * published.penalty_sum))
        assert (K - 1) * gaussian_delta(epsilon - spent, math.sqrt(2) / published.law.scale) <= delta  # fmt: skip
        pure = perturbation(
            n, d, K, noise="laplace", epsilon=epsilon, regularization=regularization
        )
        most = (K - 1) * math.log1p(1 / (K * pure.penalty_sum))
        share = min(1, pure.law.rate * pure.penalty_sum / (2 * math.sqrt(2)))
        longest = 2 * math.sqrt(2) * pure.law.rate
        assert longest + (1 - share) * most == pytest.approx(epsilon, rel=1e-12)
        assert pure.worst_case_passed == 0
    assert 0 < tight.worst_case_passed <= 1


def simplex_points(rng, K):
    """Points inside the simplex, on its edges, its vertices and its centre."""
    inside = rng.dirichlet(np.full(K, 10 ** rng.uniform(-1.5, 1.5)), size=100)
    a, b = np.eye(K)[rng.integers(0, K, 2)]
    edge = np.linspace(0, 1, 40)[:, None]
    return np.vstack([inside, edge * a + (1 - edge) * b, np.eye(K), np.full((1, K), 1 / K)])


def excess(share, trials=800):
    """By how much losses pass their bounds if the coupled ``share`` of the proof is taken."""
    rng = np.random.default_rng(18)
    gaussian = laplace = -math.inf
    for _ in range(trials):
        K, lam = int(rng.integers(2, 7)), 10 ** rng.uniform(-2, 2.5)
        most = (K - 1) * math.log1p(1 / (K * lam))
        p = simplex_points(rng, K)
        u = p - np.eye(K)[0]
        S = np.einsum("nk,kj->nkj", p, np.eye(K)) - p[:, :, None] * p[:, None, :]
        s = rng.choice([1.0, rng.uniform()])
        volume = np.log1p(s * s / lam * np.maximum(np.linalg.eigvalsh(S), 0)).sum(axis=1)
        scale = 10 ** rng.uniform(-0.5, 1.5)
        # All vertices equal, and what lies between them highest; or anything.
        Z = rng.choice([0, 0.1, 3]) * rng.normal(size=K) + (np.arange(K) > 0) * (-1 / scale)
        loss = volume + s**2 * np.sum(u**2, axis=1) / (2 * scale**2) + s / scale * (u @ Z)
        w = min(1, share * lam / (2 * scale**2))
        bound = (1 - w) * most + max(0, np.max(1 / scale**2 + (Z[1:] - Z[0]) / scale))
        gaussian = max(gaussian, float(np.max(loss)) - bound)
        rate = 10 ** rng.uniform(-2, 1.5)
        loss = volume + rate * s * np.linalg.norm(u, axis=1)
        w = min(1, share * rate * lam / (2 * math.sqrt(2)))
        bound = (1 - w) * most + math.sqrt(2) * rate
        laplace = max(laplace, (float(np.max(loss)) - bound) / bound)
    return gaussian, laplace


def test_slope_and_curvature_are_coupled():
    assert max(excess(1.0)) <= 1e-12
    # Power: no larger share is proved, in either bound.
    assert min(excess(1.3)) > 1e-3


PLANE = np.linalg.qr(np.column_stack([np.ones(3), np.eye(3)[:, :2]]))[0][:, 1:]


def plane_density(mechanism, X, y, points):
    """p(θ ∣ D) for K = 3, d = 1 at points of the plane Σ θₖ = 0.

    Across it ∇J is λ times the coordinate whatever the rows, so that part cancels.
    """
    theta, lam, scale = points @ PLANE.T, mechanism.penalty_sum, mechanism.law.scale
    gradient = lam * points
    hessian = np.tile(lam * np.eye(2), (len(points), 1, 1))
    for (x, code), count in zip(*np.unique(np.column_stack([X, y]), axis=0, return_counts=True), strict=True):  # fmt: skip
        p = np.exp(theta * x - np.max(theta * x, axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        u = p - np.eye(3)[int(code)]
        gradient = gradient + count * x * (u @ PLANE)
        mean = p @ PLANE
        hessian += count * x * x * (np.einsum("nk,ka,kb->nab", p, PLANE, PLANE) - mean[:, :, None] * mean[:, None, :])  # fmt: skip
    exponent = -np.sum(gradient**2, axis=1) / (2 * scale**2)
    return np.exp(exponent) / (2 * np.pi * scale**2) * np.linalg.det(hessian)


def hockey_stick(mechanism, X, y, row, epsilon, half):
    """δ(ε) of removing ``row`` and of adding it again, by quadrature over the plane."""
    problem = Objective.of(
        X=X[:, None], y=y, loss=mechanism.loss, penalty=mechanism.total_regularization
    )
    centre = minimise(problem).theta @ PLANE
    axis = np.linspace(-half, half, 400)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2) + centre
    weight = (axis[1] - axis[0]) ** 2
    p = plane_density(mechanism, X, y, points)
    q = plane_density(mechanism, np.delete(X, row), np.delete(y, row), points)
    assert p.sum() * weight == pytest.approx(1, abs=1e-5)
    assert q.sum() * weight == pytest.approx(1, abs=1e-5)
    over = math.exp(epsilon)
    return (
        float(np.maximum(p - over * q, 0).sum() * weight),
        float(np.maximum(q - over * p, 0).sum() * weight),
    )


@pytest.mark.parametrize("calibration", ["tight", "published"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-2), (0.3, 1e-2), (3.0, 1e-3)])
def test_tiny_data_keep_the_guarantee(calibration, epsilon, delta):
    for others in (2, 20):
        X, y = np.ones(others + 1), np.append(0.0, np.ones(others))
        mechanism = perturbation(
            others + 1, 1, 3, epsilon=epsilon, delta=delta, calibration=calibration,
            regularization=1e-6,
        )  # fmt: skip
        half = 8 * mechanism.law.scale / mechanism.penalty_sum
        assert max(hockey_stick(mechanism, X, y, 0, epsilon, half)) <= delta


def test_the_guarantee_is_nearly_used_up():
    """One row against thousands, with a λ that leaves little to the determinants."""
    others, epsilon, delta = 5000, 1.0, 1e-2
    X, y = np.ones(others + 1), np.append(0.0, np.ones(others))
    mechanism = perturbation(
        others + 1, 1, 3, epsilon=epsilon, delta=delta, regularization=20 / others
    )
    half = 9 * mechanism.law.scale / mechanism.penalty_sum
    removed, added = hockey_stick(mechanism, X, y, 0, epsilon, half)
    # Its u is near one vertex of two: about half of what is allowed for.
    assert 0.3 * delta < max(removed, added) <= delta
    # Power: a third less noise breaks it.
    less = copy.copy(mechanism)
    object.__setattr__(
        less, "law", type(mechanism.law)(scale=mechanism.law.scale / 1.5, dimension=3)
    )
    assert max(hockey_stick(less, X, y, 0, epsilon, half)) > delta


def far_thetas(rng, X, y, K, d):
    """Models near and far, towards the rows and away from them."""
    size = 10 ** rng.uniform(-1, 2)
    own = np.zeros((K, d))
    row = rng.integers(len(X))
    own[int(y[row])] -= X[row]
    own[rng.integers(K)] += X[row]
    return size * (rng.normal(size=K * d) * rng.choice([0.0, 0.1, 1.0]) + own.ravel())


@pytest.mark.parametrize("calibration", ["tight", "published"])
@pytest.mark.parametrize("relation", list(Neighbouring))
def test_pure_epsilon_holds_at_every_theta(relation, calibration):
    rng = np.random.default_rng(15)
    largest = 0.0
    for trial in range(150):
        n, d, K = 2 + trial % 4, 1 + trial % 3, 3 + trial % 2
        X, y = rows(n, d, K, trial)
        X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-12)
        entering = (-X, y) if trial % 2 else rows(n, d, K, trial + 1000)
        epsilon = float(10 ** rng.uniform(-1, 1))
        mechanism = perturbation(
            n, d, K, noise="laplace", epsilon=epsilon, calibration=calibration, regularization=1e-6
        )
        theta = far_thetas(rng, X, y, K, d)
        exact = brute_force(mechanism, X, y, entering, relation, theta)
        largest = max(largest, float(np.max(np.abs(exact))) / epsilon)
    assert largest <= 1
    assert largest > 0.3


def test_pure_epsilon_is_nearly_used_up_by_a_replacement():
    """Two opposite rows, both taken for the same wrong class, while the others decide θ."""
    d, K, others = 2, 3, 20_000
    turn = 0.5
    first = np.array([1.0, 0.0])
    second = np.array([-math.cos(turn), math.sin(turn)])
    X = np.vstack([first, np.tile(first, (others, 1)), np.tile(second, (others, 1))])
    y = np.append(0.0, np.ones(2 * others))
    mechanism = perturbation(len(X), d, K, noise="laplace", epsilon=1.0, regularization=20 / others)
    # Θ takes both for the second class, with the gradient along (e₀ − e₁) ⊗ (x₁ − x₂).
    problem = problem_of(mechanism, X, y)
    base = minimise(problem).theta
    pull = np.zeros((K, d))
    pull[0], pull[1] = first - second, second - first
    best = 0.0
    for size in (10.0, 300.0):
        linear = size * pull.ravel() / len(X)
        theta = minimise(
            Objective.of(X=X, y=y, loss=mechanism.loss, penalty=problem.penalty, linear=linear),
            start=base,
        ).theta
        tangent = Tangent.at(mechanism, problem, theta)
        losses = tangent.row_losses(changed(problem, REPLACE, (second[None], np.zeros(1))))
        best = max(best, abs(float(losses.loss[0])))
    # 2√2·β and hardly anything for the determinants: all but a little of ε.
    assert 0.85 < best <= 1


def test_how_often_epsilon_is_passed():
    n, d, K = 6, 2, 3
    X, y = rows(n, d, K, 16)
    mechanism = perturbation(n, d, K, epsilon=1.0, delta=0.2, regularization=5.0)
    problem = problem_of(mechanism, X, y)
    thetas = perturbed_minimisers(
        problem, mechanism.law.sample(2000, np.random.default_rng(17)) / n
    )
    leaving = changed(problem)
    losses = np.array([Tangent.at(mechanism, problem, t).sampled_losses(leaving) for t in thetas])
    passed = np.mean(np.abs(losses) > 1.0, axis=0)
    assert np.all(passed <= mechanism.worst_case_passed)
    assert passed.max() > 0
    a, r = math.sqrt(2) / mechanism.law.scale, K - 1
    most = r * math.log1p(1 / (K * mechanism.penalty_sum))
    spent = max(0, 1 - mechanism.penalty_sum / (2 * mechanism.law.scale**2)) * most
    above = r * ndtr(a / 2 - (1 - spent) / a)
    assert above < mechanism.worst_case_passed < 2 * above


@pytest.mark.parametrize("regularization", [0.05, 0.2, 5.0])
def test_how_often_the_losses_of_an_addition_pass_epsilon(regularization):
    """Of the worst p and ∥x∥ for each noise, one sign at a time; and of additions in releases."""
    n, d, K, epsilon = 6, 2, 3, 1.0
    mechanism = perturbation(n, d, K, epsilon=epsilon, delta=0.2, regularization=regularization)
    bound = mechanism.worst_case_passed_by(ADD)
    rng = np.random.default_rng(18)
    side = np.linspace(0, 1, 26)
    p = np.array([(a, b, 1 - a - b) for a in side for b in side if a + b <= 1 + 1e-12])
    u = p - [0.0, 0.0, 1.0]
    sized = np.einsum("mi,ij->mij", p, np.eye(K)) - np.einsum("mi,mj->mij", p, p)
    Z = rng.normal(size=(20_000, K))
    up, down = np.full((2, len(Z)), -np.inf)
    for r in (0.3, 0.6, 1.0):
        volume = np.linalg.slogdet(np.eye(K) + r**2 * sized / mechanism.penalty_sum)[1]
        square = r**2 * np.sum(u**2, axis=1) / (2 * mechanism.law.scale**2)
        inner = r * Z @ u.T / mechanism.law.scale
        up = np.maximum(up, np.max(volume - square + inner, axis=1))
        down = np.maximum(down, np.max(square - inner, axis=1))
    worst = np.mean(up > epsilon) + np.mean(down > epsilon)
    assert 0.4 * bound < worst < bound
    X, y = rows(n, d, K, 16)
    entering = rows(8, d, K, 19)
    problem = problem_of(mechanism, X, y)
    thetas = perturbed_minimisers(problem, mechanism.law.sample(500, rng) / n)
    passed = [
        Tangent.at(mechanism, problem, t).row_losses(changed(problem, ADD, entering))
        for t in thetas
    ]
    assert {losses.worst_case_passed for losses in passed} == {bound}
    assert np.mean([np.abs(losses.loss) > epsilon for losses in passed], axis=0).max() <= bound


def test_regularization_is_raised_only_where_epsilon_needs_it():
    assert perturbation(100, 2, 3, epsilon=0.1, regularization=1e-6).is_raised
    assert not perturbation(100, 2, 3, epsilon=0.1, regularization=1.0).is_raised
    limit = brentq(
        lambda value: 2 * math.log1p(1 / (300 * 10**value)) - 0.5, -6, 1
    )  # fmt: skip
    for factor, raised in ((1.001, False), (0.999, True)):
        mechanism = perturbation(100, 2, 3, epsilon=1.0, regularization=factor * 10**limit)
        assert mechanism.is_raised is raised


# The release and the estimator.

IRIS_X, IRIS_Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
FLOWERS = NAMES[IRIS_Y]
LONGEST = 12.0


def estimator(**options):
    settings = {**OUTPUT, "mechanism": "objective", "regularization": 0.05, "data_norm": LONGEST}
    return PrivateLogisticRegression(**{"epsilon": 5.0, "classes": tuple(NAMES), **settings, **options})  # fmt: skip


def test_without_noise_it_is_the_softmax_regression_of_scikit_learn():
    model = estimator(epsilon=math.inf, fit_intercept=False).fit(IRIS_X, FLOWERS)
    theirs = LogisticRegression(
        C=1 / (150 * 0.05), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(IRIS_X / LONGEST, FLOWERS)
    np.testing.assert_allclose(model.coef_ * LONGEST, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(IRIS_X), theirs.predict_proba(IRIS_X / LONGEST), atol=1e-6)  # fmt: skip
    assert model.predict(IRIS_X).tolist() == theirs.predict(IRIS_X / LONGEST).tolist()
    assert model.classes_.tolist() == theirs.classes_.tolist()


@pytest.mark.parametrize("options", [{}, {"noise": "gaussian", "delta": 1e-5}])
def test_a_fitted_model_of_three_classes(options, tmp_path):
    model = estimator(**options).fit(IRIS_X, FLOWERS)
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    assert model.n_features_in_ == 4
    scores = model.decision_function(IRIS_X)
    np.testing.assert_allclose(scores, IRIS_X @ model.coef_.T + model.intercept_)
    inside = model.release_.ball.rows(IRIS_X)[0] @ model.release_.theta.reshape(3, 5).T
    np.testing.assert_allclose(scores, inside, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(IRIS_X).sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(IRIS_X)), model.predict_proba(IRIS_X))
    assert model.predict(IRIS_X).tolist() == NAMES[scores.argmax(axis=1)].tolist()
    assert model.release_.audience is Audience.PUBLIC
    again = PrivateLogisticRegression.load(model.save(tmp_path / "model.json"))
    np.testing.assert_array_equal(again.coef_, model.coef_)
    assert again.get_params() == {**model.get_params(), "classes": tuple(NAMES.tolist())}
    assert again.release_.to_json() == model.release_.to_json()
    assert "softmax" in repr(model.release_)


def test_classes_without_rows_are_kept():
    model = estimator(classes=("z", *NAMES)).fit(IRIS_X, FLOWERS)
    assert model.classes_.tolist() == [*NAMES, "z"]
    assert model.coef_.shape == (4, 4)
    two = IRIS_Y > 0
    assert estimator().fit(IRIS_X[two], FLOWERS[two]).coef_.shape == (3, 4)


def test_two_classes_stay_one_vector():
    two = IRIS_Y > 0
    model = estimator(classes=None)
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        model.fit(IRIS_X[two], FLOWERS[two])
    assert model.coef_.shape == (1, 4)
    assert model.release_.mechanism.loss.name == "logistic"
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        assert model.fit(IRIS_X, FLOWERS).coef_.shape == (3, 4)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (estimator(mechanism="output"), "two different labels"),
        (estimator(mechanism="output", classes=None), "exactly two"),
        (PrivateLinearSVC(mechanism="objective", data_norm=LONGEST), "exactly two"),
        (estimator(classes=("setosa", "virginica")), "labels other than"),
    ],
)
def test_more_classes_where_they_cannot_be(model, expected):
    with pytest.raises(InvalidInput, match=expected):
        model.fit(IRIS_X, FLOWERS)


def test_what_works_on_two_classes_refuses_the_model():
    model = estimator().fit(IRIS_X, FLOWERS)
    with pytest.raises(InvalidInput, match="has 3 classes"):
        model.release_.problem(IRIS_X, FLOWERS)
    prepared = model.prepared(IRIS_X, FLOWERS)
    assert isinstance(prepared.objective, Objective)
    with pytest.raises(InvalidInput, match="has 3 classes"):
        _ = prepared.problem


def test_a_small_epsilon_raises_the_regularization_and_says_so():
    with pytest.warns(RaisedRegularizationWarning, match="epsilon=0.01"):
        estimator(epsilon=0.01, regularization=1e-3).fit(IRIS_X, FLOWERS)


@pytest.mark.parametrize("epsilon", [0.1, 5.0])
def test_automatic_regularization(epsilon):
    """√2(r/20 + r²/√2), r² = E∥b∥²/(3n²), β = ε/(2√2) in 15 dimensions; at ε = 5 the floor."""
    model = estimator(epsilon=epsilon, regularization="auto").fit(IRIS_X, FLOWERS)
    r = math.sqrt(15 * 16 / 3) * 2 * math.sqrt(2) / epsilon / 150
    rule = math.sqrt(2) * (r / 20 + r**2 / math.sqrt(2))
    # Twice the Λ at which two determinants of curvature 1/3 spend a quarter of ε.
    floor = 2 / 3 / math.expm1(epsilon / 8) / 150
    assert (rule < floor) == (epsilon == 5.0)
    expected = max(rule, floor)
    assert model.release_.mechanism.regularization == pytest.approx(expected, rel=1e-9)


CHECKED = [
    PrivateLogisticRegression(
        1e3, 1e-5, mechanism="objective", noise="gaussian", data_norm=10.0, regularization=1e-3, random_state=0
    ),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore::expost.errors.ClippedRowsWarning")
@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
@pytest.mark.filterwarnings("ignore::expost.estimators.BudgetWarning")
@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_tags():
    for mechanism, more in (("output", False), ("objective", True)):
        tags = PrivateLogisticRegression(mechanism=mechanism).__sklearn_tags__()
        assert tags.classifier_tags.multi_class is more
    svc = PrivateLinearSVC(mechanism="objective").__sklearn_tags__()
    assert svc.classifier_tags.multi_class is False


EDITS = {
    "a class too many": lambda value: value["classes"].append("rosa"),
    "a class too few": lambda value: value["classes"].pop(),
    "a class twice": lambda value: value.update(classes=["a", "b", "b"]),
    "no classes": lambda value: value.update(classes=None),
    "another number of classes": lambda value: value["loss"].update(classes=5),
    "a number that does not divide": lambda value: value["loss"].update(classes=4),
    "two classes": lambda value: value["loss"].update(classes=2),
    "no number of classes": lambda value: value["loss"].pop("classes"),
    "half a class": lambda value: value["loss"].update(classes=3.0),
    "another loss": lambda value: value.update(loss={"name": "logistic"}),
    "output perturbation": lambda value: value["mechanism"].update(kind="output"),
    "a shorter theta": lambda value: value["theta"].pop(),
    "another scale": lambda value: value["mechanism"].update(scale=1e-3),
    "a theta beside the grid": lambda value: value["theta"].__setitem__(0, 1e-30),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_model_is_refused(edit):
    value = json.loads(json.dumps(estimator().fit(IRIS_X, FLOWERS).release_.to_json()))
    assert Release.from_json(value).to_json() == value
    edit(value)
    with pytest.raises(InvalidInput):
        Release.from_json(sealed(value))


def test_output_perturbation_takes_no_more_than_two():
    model = estimator().fit(IRIS_X, FLOWERS)
    mechanism = OutputPerturbation(
        epsilon=5.0, loss=Softmax(classes=3), regularization=0.05, rows=150, dimension=15
    )
    fields = {"ball": model.release_.ball, "classes": model.classes_, "mechanism": mechanism}
    with pytest.raises(InvalidInput, match="only objective perturbation"):
        Release(theta=np.zeros(15), **fields)
    rows_inside, codes = model.release_.ball.rows(IRIS_X)[0], IRIS_Y.astype(float)
    with pytest.raises(InvalidInput, match="only objective perturbation"):
        profile(np.zeros(15), rows_inside, codes, mechanism=mechanism)


# The profile.


@pytest.mark.parametrize("options", [{}, {"noise": "gaussian", "delta": 1e-5}])
def test_the_profile_of_iris(options, tmp_path):
    model = estimator(**options).fit(IRIS_X, FLOWERS)
    result = profile(model, IRIS_X, FLOWERS)
    mechanism, release = model.release_.mechanism, model.release_
    X = release.ball.rows(IRIS_X)[0]
    codes = IRIS_Y.astype(float)
    exact = brute_force(mechanism, X, codes, None, REMOVE, release.theta)
    np.testing.assert_allclose(result.loss, exact, atol=1e-10)
    assert np.max(result.loss_high - result.loss_low) < 1e-5
    assert "softmax by objective perturbation" in str(result)
    assert result.worst_case == 5.0
    assert np.all(result.expected > 0)
    assert np.all(result.expected_error > 0)
    # Through the file, and with bare coefficients.
    path = release.save(tmp_path / "model.json")
    np.testing.assert_array_equal(profile(path, IRIS_X, FLOWERS).loss, result.loss)
    bare = profile(release.theta, X, codes, mechanism=mechanism)
    np.testing.assert_array_equal(bare.loss, result.loss)
    # People who are not in it.
    strangers = (IRIS_X[:7] + 0.1, FLOWERS[:7])
    added = profile(model, IRIS_X, FLOWERS, relation="add", candidates=strangers)
    exact = [
        log_density(mechanism, np.vstack([X, release.ball.rows(x[None])[0]]), np.append(codes, 0.0), release.theta)
        - log_density(mechanism, X, codes, release.theta)
        for x in strangers[0]
    ]  # fmt: skip
    np.testing.assert_allclose(added.loss, exact, atol=1e-10)
    swapped = profile(model, IRIS_X, FLOWERS, relation="replace", candidates=(IRIS_X[:1], ["virginica"]))  # fmt: skip
    assert len(swapped.loss) == 150


def test_other_rows_are_refused():
    model = estimator(epsilon=50.0, regularization=1e-3).fit(IRIS_X, FLOWERS)
    profile(model, IRIS_X, FLOWERS)
    with pytest.raises(WrongRows, match="cannot have made this model"):
        profile(model, IRIS_X, NAMES[(IRIS_Y + 1) % 3])
    mechanism, X = model.release_.mechanism, model.release_.ball.rows(IRIS_X)[0]
    with pytest.raises(InvalidInput, match="the coefficients have 5"):
        profile(model.release_.theta, X[:, :4], IRIS_Y.astype(float), mechanism=mechanism)
    with pytest.raises(InvalidInput, match="unit ball"):
        profile(model.release_.theta, 2 * X, IRIS_Y.astype(float), mechanism=mechanism)


def test_without_noise_rows_rank_by_distance():
    model = estimator(epsilon=math.inf).fit(IRIS_X, FLOWERS)
    result = profile(model, IRIS_X, FLOWERS)
    assert result.is_noiseless
    assert np.all(result.loss == math.inf)
    p = model.predict_proba(IRIS_X)
    u = p - np.eye(3)[IRIS_Y]
    X = model.release_.ball.rows(IRIS_X)[0]
    expected = np.linalg.norm(u, axis=1) * np.linalg.norm(X, axis=1)
    np.testing.assert_allclose(result.distance, expected, rtol=1e-6)


def test_the_profile_of_digits():
    X, y = load_digits(return_X_y=True)
    model = PrivateLogisticRegression(
        4.0, 1e-5, noise="gaussian", mechanism="objective", regularization=1e-3,
        data_norm=80.0, classes=tuple(range(10)), random_state=0,
    )  # fmt: skip
    with pytest.warns(SeededReleaseWarning):
        model.fit(X, y)
    assert model.score(X, y) > 0.85
    result = profile(model, X, y)
    assert np.max(result.exposure) < 4.0
    assert np.max(result.loss_high - result.loss_low) < 1e-5
    inside, mechanism = model.release_.ball.rows(X)[0], model.release_.mechanism
    theta, codes = model.release_.theta, y.astype(float)
    # The whole determinant for a few rows: 650 coordinates.
    hessian = Tangent.at(mechanism, problem_of(mechanism, inside, codes), theta).hessian
    whole = np.linalg.slogdet(hessian)[1]
    z = inside @ theta.reshape(10, -1).T
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    gradient = ((p - np.eye(10)[y]).T @ inside).ravel() + mechanism.penalty_sum * theta
    for row in result.ranking[:3]:
        own = np.kron(
            np.diag(p[row]) - np.outer(p[row], p[row]), np.outer(inside[row], inside[row])
        )
        volume = whole - np.linalg.slogdet(hessian - own)[1]
        slope = np.outer(p[row] - np.eye(10)[y[row]], inside[row]).ravel()
        noise = (slope @ slope - 2 * gradient @ slope) / (2 * mechanism.law.scale**2)
        assert result.loss[row] == pytest.approx(noise + volume, abs=1e-9)


def test_no_budget_for_a_data_dependent_report():
    budget = PublishingBudget(
        epsilon_gradient=0.5, epsilon_hessian=0.5, delta=1e-6, failure_probability=1e-6
    )
    for regularization in (1.0, "for-publishing"):
        model = estimator(
            noise="gaussian", delta=1e-5, publishing=budget, regularization=regularization
        )
        with pytest.raises(InvalidInput, match="only classifiers of two classes"):
            model.fit(IRIS_X, FLOWERS)
