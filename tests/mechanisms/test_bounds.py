"""Each inequality behind a published bound, against brute force: it holds, and is not idle."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from expost.data import UnitBall
from expost.glm import Objective, minimise
from expost.losses import HuberHinge, Logistic, Squared
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation, Tangent
from expost.mechanisms.bounds import (
    ObjectiveBound,
    largest_cosine,
    least_norm,
    normal_quantile,
    upper_norms,
)
from expost.mechanisms.output_bound import OutputBound
from expost.mechanisms.publishing import (
    PublishingBudget,
    TangentMechanism,
    regularization_for_publishing,
)
from expost.noise import NormLaplace, goe_largest_eigenvalue_quantile
from expost.rows import HeldRows
from expost.types import Neighbouring
from mechanisms.changes import changed

ROWS, WIDTH, RHO = 60, 4, 0.05
LOSSES = [Logistic(), HuberHinge(width=0.5), Squared(label_bound=2.0)]
BUDGET = PublishingBudget(
    epsilon_gradient=2.0, epsilon_hessian=2.0, delta=1e-3, failure_probability=RHO
)


def rows(loss, seed=0, count=ROWS, width=WIDTH):
    rng = np.random.default_rng(seed)
    X, _ = UnitBall(data_norm=2.0, fit_intercept=False).rows(rng.normal(size=(count, width)))
    y = X @ np.linspace(2, -1, width) + 0.3 * rng.normal(size=count)
    return X, np.clip(y, -2, 2) if isinstance(loss, Squared) else np.where(y > 0, 1.0, -1.0)


def objective(loss, noise="gaussian", seed=0, epsilon=1.0):
    """(bound, dependent bound, tangent) of one release by objective perturbation."""
    constants = {
        "epsilon": epsilon,
        "delta": 1e-3 if noise == "gaussian" else None,
        "noise": noise,
        "loss": loss,
        "rows": ROWS,
        "dimension": WIDTH,
    }
    needed = regularization_for_publishing(BUDGET, **constants)
    mechanism = ObjectivePerturbation(regularization=needed, **constants)
    X, y = rows(loss)
    problem = Objective.of(
        X=X, y=y, loss=loss, penalty=np.full(WIDTH, mechanism.total_regularization)
    )
    rng = np.random.default_rng(seed)
    theta = mechanism.release(problem, rng)
    tangent = Tangent.at(mechanism, problem, theta)
    plain = ObjectiveBound(mechanism=mechanism, theta=theta, failure=RHO)
    second = TangentMechanism(budget=BUDGET, mechanism=mechanism, theta=theta)
    dependent = replace(plain, tangent=second, released=second.release(tangent, rng))
    return plain, dependent, tangent


def test_the_published_volume_is_that_of_a_removal():
    """Three equal rows and hardly any noise on H: −log(1 − f″μ), which log(1 + f″μ) is below."""
    budget = replace(BUDGET, epsilon_hessian=1e6)
    loss = Squared(label_bound=1.0)
    mechanism = ObjectivePerturbation(
        epsilon=1e3, delta=1e-3, loss=loss, regularization=0.1 / 3, rows=3, dimension=2
    )
    X, y = np.tile([[1.0, 0.0]], (3, 1)) * (1 - 1e-12), np.array([1.0, -1.0, 0.5])
    problem = Objective.of(X=X, y=y, loss=loss, penalty=np.full(2, mechanism.total_regularization))
    rng = np.random.default_rng(0)
    theta = mechanism.release(problem, rng)
    tangent, second = (
        Tangent.at(mechanism, problem, theta),
        TangentMechanism(budget=budget, mechanism=mechanism, theta=theta),
    )
    bound = ObjectiveBound(
        mechanism=mechanism,
        theta=theta,
        failure=RHO,
        tangent=second,
        released=second.release(tangent, rng),
    )
    norms = upper_norms(X)
    bounds = bound.volume_bound(X, norms, np.ones(3))
    true = -np.log1p(-1 / 3.1)
    assert np.all(bounds >= true)
    assert bounds == pytest.approx(true, rel=0.02)


def test_failure_probabilities():
    plain, dependent, _ = objective(Logistic())
    assert plain.failure_probability == RHO
    assert dependent.failure_probability == pytest.approx(3 * RHO)
    assert not plain.is_uniform


@pytest.mark.parametrize("loss", LOSSES)
def test_the_determinants_of_rows_in_and_out(loss):
    """log det H − log det H' by brute force is never above the volume bound of either report."""
    plain, dependent, tangent = objective(loss)
    inside, outside = rows(loss), rows(loss, seed=9)
    logdet = np.linalg.slogdet(tangent.hessian)[1]
    good = np.linalg.eigvalsh(dependent.released.hessian - tangent.hessian)[-1]
    assert good <= dependent.hessian_shift
    for (X, y), sign in ((inside, -1), (outside, 1)):
        norms = upper_norms(X)
        _, curvature = loss.derivatives(X @ plain.theta, y)
        _, upper = plain.derivatives(X, y, norms)
        assert np.all(upper >= curvature)
        for bound in (plain, dependent):
            bounds = bound.volume_bound(X, norms, upper)
            for i, x in enumerate(X):
                changed = tangent.hessian + sign * curvature[i] * np.outer(x, x)
                true = abs(np.linalg.slogdet(changed)[1] - logdet)
                assert true <= bounds[i] + 1e-12
        assert np.all(
            dependent.volume_bound(X, norms, upper) <= plain.volume_bound(X, norms, upper)
        )


def test_the_volume_bound_is_reached():
    """A single row and H = λI without it: log(1 + f″∥x∥²/λ) is what its removal loses."""
    mechanism = ObjectivePerturbation(
        epsilon=5.0, delta=1e-3, loss=Logistic(), regularization=0.5, rows=2, dimension=2
    )
    X, y = np.array([[0.6, 0.0], [0.0, 0.0]]), np.array([1.0, -1.0])
    problem = Objective.of(
        X=X, y=y, loss=Logistic(), penalty=np.full(2, mechanism.total_regularization)
    )
    theta = mechanism.release(problem, np.random.default_rng(0))
    bound = ObjectiveBound(mechanism=mechanism, theta=theta, failure=RHO)
    norms = upper_norms(X)
    _, curvature = bound.derivatives(X, y, norms)
    hessian = Tangent.at(mechanism, problem, theta).hessian
    gone = hessian - Logistic().curvature(X[:1] @ theta, y[:1])[0] * np.outer(X[0], X[0])
    true = np.linalg.slogdet(hessian)[1] - np.linalg.slogdet(gone)[1]
    assert bound.volume_bound(X, norms, curvature)[0] == pytest.approx(true, rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_leverage_against_inverses(loss):
    """μ ≤ μ̄ ≤ 3μ (Thm 10.3), and μ̄ is no worse than either formula of the paper and erratum 6."""
    _, bound, tangent = objective(loss)
    X, _ = rows(loss, seed=3, count=200)
    bounds = bound.leverage_bound(X, upper_norms(X))
    noisy, penalty, d = bound.released.hessian, bound.mechanism.penalty_sum, WIDTH
    shift = bound.tangent.hessian_scale * goe_largest_eigenvalue_quantile(1 - RHO, d)
    assert bound.hessian_shift == pytest.approx(shift, rel=1e-4)
    assert bound.hessian_shift > shift
    assert penalty >= 2 * bound.tangent.hessian_scale * goe_largest_eigenvalue_quantile(
        1 - RHO / 2, d
    )
    true = np.einsum("ij,jk,ik->i", X, np.linalg.inv(tangent.hessian), X)
    shifted = noisy - bound.hessian_shift * np.eye(d)
    candidates = [
        np.sum(X**2, axis=1) / penalty,
        1.5 * np.einsum("ij,jk,ik->i", X, np.linalg.inv(noisy), X),
    ]
    if np.linalg.eigvalsh(shifted)[0] > 0:
        candidates.append(np.einsum("ij,jk,ik->i", X, np.linalg.inv(shifted), X))
    assert np.all(bounds <= np.min(candidates, axis=0) * (1 + 1e-6))
    event = np.linalg.eigvalsh(noisy - tangent.hessian)
    assert event[-1] <= shift
    assert event[0] >= -shift
    assert np.all(true <= bounds)
    assert np.all(bounds <= 3 * true * (1 + 1e-6))


def test_what_holds_of_the_gradient_term():
    """∣g·x∣ ≤ the bound ≤ ∣g·x∣ + 2σ₂∥x∥Φ⁻¹(1−ρ/2) where ĝ's noise along x is within its quantile."""
    _, bound, tangent = objective(Logistic())
    X, _ = rows(Logistic(), seed=5, count=500)
    norms = upper_norms(X)
    inner = bound.inner_bound(X, norms)
    noise = np.abs(X @ (bound.released.gradient - tangent.gradient)) / norms
    quantile = float(ndtri(1 - RHO / 2)) * bound.tangent.gradient_scale
    within = noise <= quantile
    assert 0.5 < np.mean(within) <= 1
    true = np.abs(X @ tangent.gradient)
    assert np.all((true <= inner)[within])
    assert np.all((inner <= true + 2 * norms * quantile + 1e-4)[within])
    # Power: with half the quantile it would fail for some of them.
    halved = replace(bound, failure=2 * stats.norm.sf(ndtri(1 - RHO / 2) / 8))
    weak = halved.inner_bound(X, norms)
    assert np.any(true > weak)


def test_the_gradient_terms_are_those_of_the_paper():
    """By their formulas: two-sided quantiles, and what the cell of θ and the grid of ĝ hide."""
    plain, bound, _ = objective(Logistic())
    X, _ = rows(Logistic(), seed=6, count=20)
    norms, quantile = np.linalg.norm(X, axis=1), float(ndtri(1 - RHO / 2))
    mechanism = plain.mechanism
    moved = mechanism.steepest * mechanism.reach_of_cell
    assert moved > 1e-9 * mechanism.resolution
    hidden = plain.direction_bound - mechanism.resolution * quantile
    assert hidden == pytest.approx(2 * moved, abs=1e-8)
    second = bound.tangent
    hidden = bound.inner_bound(X, norms) - np.abs(X @ bound.released.gradient)
    hidden -= norms * second.gradient_scale * quantile
    cell = second.gradient_grid.step * np.sqrt(WIDTH) / 2
    assert hidden == pytest.approx(norms * (moved + cell), abs=2e-8)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_noise_term_against_densities(loss, noise):
    """∣log p(g) − log p(g ∓ ∇ℓ)∣ over many g within the quantiles is at most the bound."""
    plain, _, _ = objective(loss, noise)
    law, rng = plain.mechanism.law, np.random.default_rng(11)
    X, y = rows(loss, seed=12, count=8)
    norms = upper_norms(X)
    slope, _ = plain.derivatives(X, y, norms)
    bounds = plain.noise_bound(slope, norms, None)
    draws = law.sample(20_000, rng)
    reached = 0.0
    for i, x in enumerate(X):
        u = x / np.linalg.norm(x)
        length = np.linalg.norm(draws, axis=1)
        if noise == "gaussian":
            within = np.abs(draws @ u) <= law.scale * ndtri(1 - RHO / 2)
        else:
            within = np.abs(draws @ u) <= length * largest_cosine(WIDTH, RHO / 2)
            within &= length >= least_norm(law, RHO / 2)
        assert np.mean(within) > 1 - RHO - 0.01
        step = slope[i] * np.linalg.norm(x) * u
        for turned in (step, -step):
            loss_of = np.abs(law.log_density(draws) - law.log_density(draws - turned))[within]
            assert np.all(loss_of <= bounds[i])
            reached = max(reached, float(np.max(loss_of)) / bounds[i])
    assert reached > 0.8
    if noise == "laplace":
        assert np.all(bounds < law.rate * slope * norms)


def test_norm_laplace_noise_with_a_known_inner_product():
    """The bound from ĝ, over all g with ∣g·u∣ ≤ T, ∥g∥ ≥ R and ∣cos∣ ≤ C in the plane of g and u."""
    plain, _, _ = objective(Logistic(), "laplace")
    law = plain.mechanism.law
    least, angle = least_norm(law, RHO / 2), largest_cosine(WIDTH, RHO / 2)
    for step in (0.05, 0.5, 1.0):
        plainly = plain.noise_bound(np.array([step]), np.ones(1), None)[0]
        for share in (0.05, 0.5, 0.99, 3.0):
            reach = share * least
            bounds = plain.noise_bound(np.array([step]), np.ones(1), np.array([reach]))[0]
            norms = np.linspace(least, 20 * least, 400)[:, None]
            for most in (1.0, angle):
                inner = np.linspace(-1, 1, 401)[None, :] * np.minimum(reach, most * norms)
                squares = norms**2 - 2 * step * inner + step**2
                change = law.rate * np.max(np.abs(np.sqrt(np.maximum(squares, 0)) - norms))
                if most == 1.0:
                    assert bounds <= plainly
                    assert bounds == pytest.approx(min(change, plainly), rel=0.03)
                else:
                    assert change <= bounds


@pytest.mark.parametrize("dimension", [1, 2, 3, 14, 200])
@pytest.mark.parametrize("tail", [0.2, 0.01])
def test_angles_and_norms(dimension, tail):
    """Against simulated directions: 40,000, at 1e-6; a tail 1.3 times as large is seen."""
    rng, count = np.random.default_rng(13), 40_000
    draws = rng.normal(size=(count, dimension))
    cosine = np.abs(draws[:, 0]) / np.linalg.norm(draws, axis=1)
    law = NormLaplace(rate=3.0, dimension=dimension)
    norms = np.linalg.norm(law.sample(count, rng), axis=1)
    beyond = [int(np.sum(norms < least_norm(law, tail)))]
    if dimension > 1:
        beyond.append(int(np.sum(cosine > largest_cosine(dimension, tail))))
    for bounds in beyond:
        assert (
            min(stats.binom.cdf(bounds, count, tail), stats.binom.sf(bounds - 1, count, tail))
            > 1e-6
        )
        assert stats.binom.cdf(bounds, count, 1.3 * tail) < 1e-3
    assert largest_cosine(1, tail) == 1.0
    assert largest_cosine(dimension, 1e-12) <= 1.0


def test_normal_quantiles_are_rounded_up():
    for tail in (0.5, 0.025, 1e-6, 1e-12):
        assert normal_quantile(tail) >= stats.norm.isf(tail)
        assert normal_quantile(tail) == pytest.approx(stats.norm.isf(tail), rel=1e-8)
    assert normal_quantile(0.7) == 0.0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_bound_holds_for_the_whole_cell(loss, noise):
    """At the corners of θ's cell, with any noise within its quantile, nothing passes the bound."""
    plain, dependent, tangent = objective(loss, noise, seed=4)
    X, y = tangent.problem.held.X, tangent.problem.held.y
    rng = np.random.default_rng(5)
    within = np.abs(tangent.gradient @ X.T) <= plain.direction_bound * np.linalg.norm(X, axis=1)
    half = plain.mechanism.grid.step / 2
    for _ in range(20):
        corner = plain.theta + half * rng.choice([-1.0, 1.0], size=WIDTH)
        losses = np.abs(Tangent.at(plain.mechanism, tangent.problem, corner).row_losses().loss)
        for bound in (plain, dependent):
            assert np.all((losses <= bound.exposure(X, y))[within])


def test_pure_epsilon_caps_the_bound():
    plain, _, _ = objective(Logistic(), "laplace", epsilon=0.05)
    X = np.array([[1.0, 0, 0, 0]])
    assert plain.exposure(X, np.array([1.0]))[0] <= 0.05
    assert np.all(plain.exposure(np.zeros((1, WIDTH)), np.ones(1)) == 0)


def output(loss, noise="laplace", regularization=0.1, seed=0, epsilon=1.0):
    mechanism = OutputPerturbation(
        epsilon=epsilon,
        delta=1e-3 if noise == "gaussian" else None,
        noise=noise,
        loss=loss,
        regularization=regularization,
        rows=ROWS,
        dimension=WIDTH,
    )
    X, y = rows(loss)
    problem = Objective.of(X=X, y=y, loss=loss, penalty=np.full(WIDTH, regularization))
    theta = mechanism.release(problem, np.random.default_rng(seed))
    return OutputBound(mechanism=mechanism, theta=theta, failure=RHO), problem


def pulls(bound, points, X, y):
    """∥ΛA + ∇ℓ(A)∥ for every row (rows) and point (columns): the definition."""
    margin = X @ points.T
    slope = bound.mechanism.loss.slope(margin, y[:, None])
    rate = bound.mechanism.regularization
    squares = rate**2 * np.sum(points**2, axis=1) + 2 * rate * slope * margin
    return np.sqrt(squares + slope**2 * np.sum(X**2, axis=1)[:, None])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("regularization", [0.01, 0.3, 5.0])
def test_the_supremum_over_the_ball(loss, regularization):
    """Against 50,000 points of the ball, most of them on its sphere: never passed, nearly met."""
    bound, _ = output(loss, regularization=regularization, epsilon=20.0)
    X, y = rows(loss, seed=21, count=12)
    X[-1] = 0
    rng = np.random.default_rng(22)
    directions = rng.normal(size=(50_000, WIDTH))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    # Toward where the supremum often lies: along θ, and along each row.
    for i, toward in enumerate((bound.theta, *X[:-1])):
        part = slice(2000 * i, 2000 * (i + 1))
        mix = directions[part] * np.linspace(0.02, 1, 2000)[:, None]
        near = mix + toward / np.linalg.norm(toward) * rng.choice([-1, 1], size=(2000, 1))
        directions[part] = near / np.linalg.norm(near, axis=1)[:, None]
    radii = np.where(np.arange(50_000) % 10, 1.0, rng.uniform(size=50_000))
    points = bound.theta + bound.radius * radii[:, None] * directions
    best = pulls(bound, points, X, y).max(axis=1)
    bounds = bound.largest_pull(X, y)
    assert np.all(best <= bounds)
    assert np.all(bounds <= best * 1.05)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_neighbour_of_any_minimiser_is_within_the_distance(loss, noise):
    """Rows removed and added, refitted: no neighbour lies farther than the bound says."""
    bound, problem = output(loss, noise, regularization=0.05)
    base = minimise(problem)
    assert np.linalg.norm(base.theta - bound.theta) <= bound.radius
    inside = bound.distance_bound(problem.held.X, problem.held.y)
    X, y = rows(loss, seed=31, count=10)
    outside = bound.distance_bound(X, y)
    for i in range(12):
        keep = np.arange(ROWS) != i
        gone = minimise(replace(problem, rows=problem.held.take(keep)))
        assert np.linalg.norm(gone.theta - base.theta) <= inside[i]
    for i in range(10):
        grown = HeldRows(X=np.vstack([problem.held.X, X[i]]), y=np.append(problem.held.y, y[i]))
        more = replace(problem, rows=grown)
        assert np.linalg.norm(minimise(more).theta - base.theta) <= outside[i]
    assert np.all(inside <= bound.mechanism.sensitivity)


def test_the_distance_is_reached_where_nothing_curves():
    """All rows on the linear piece of the hinge and hardly any noise: v/(Λ(n−1)) exactly."""
    loss = HuberHinge(width=0.5)
    mechanism = OutputPerturbation(
        epsilon=1e7, noise="laplace", loss=loss, regularization=10.0, rows=8, dimension=2
    )
    X, y = np.random.default_rng(3).normal(size=(8, 2)), np.array([1.0, -1.0] * 4)
    X /= 1.001 * np.linalg.norm(X, axis=1).max()
    problem = Objective.of(X=X, y=y, loss=loss, penalty=np.full(2, 10.0))
    base = minimise(problem)
    bound = OutputBound(
        mechanism=mechanism, theta=mechanism.add_noise(base, np.random.default_rng(4)), failure=RHO
    )
    bounds = bound.distance_bound(X, y)
    for i in range(8):
        keep = np.arange(8) != i
        gone = minimise(replace(problem, rows=problem.held.take(keep)))
        true = np.linalg.norm(gone.theta - base.theta)
        assert true <= bounds[i]
        assert bounds[i] == pytest.approx(true, rel=1e-3)


def test_output_perturbation_never_passes_epsilon_under_norm_laplace_noise():
    bound, problem = output(Logistic(), epsilon=0.1, regularization=1e-4)
    assert bound.is_uniform
    assert np.all(bound.exposure(problem.held.X, problem.held.y) <= 0.1)
    gaussian, _ = output(Logistic(), "gaussian")
    assert not gaussian.is_uniform
    assert gaussian.failure_probability == RHO
    # Norm-Laplace noise has one use for ρ, Gaussian noise two, and one of them two sides.
    assert bound.radius == pytest.approx(bound.mechanism.law.norm_exceeded_with(RHO), rel=1e-4)
    assert gaussian.radius == pytest.approx(
        gaussian.mechanism.law.norm_exceeded_with(RHO / 2), rel=1e-4
    )
    mu = gaussian.distance_bound(problem.held.X, problem.held.y) / gaussian.mechanism.resolution
    expected = mu**2 / 2 + mu * stats.norm.isf(RHO / 4)
    assert gaussian.exposure(problem.held.X, problem.held.y) == pytest.approx(expected, rel=1e-4)


def test_the_relations_share_one_bound():
    """Objective perturbation: people outside the data, by addition, are bounded as well."""
    loss = Logistic()
    for noise in ("gaussian", "laplace"):
        plain, dependent, tangent = objective(loss, noise, seed=8)
        X, y = rows(loss, seed=77, count=300)
        losses = np.abs(tangent.row_losses(changed(tangent.problem, Neighbouring.ADD, (X, y))).loss)
        failures = np.mean(losses > plain.exposure(X, y))
        assert failures <= 0.2  # one draw of the noise: rows share it
        assert np.mean(losses > dependent.exposure(X, y)) <= 0.3
