"""The releases behind a data-dependent report: calibration, law, sensitivity, cost."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import eigvalsh

from expost.accounting import gaussian_delta, gaussian_epsilon, gaussian_scale
from expost.errors import ReleaseRefused
from expost.glm import Objective
from expost.losses import HuberHinge, Logistic, Squared
from expost.mechanisms import ObjectivePerturbation, Tangent, publishing
from expost.mechanisms.publishing import (
    CostTable,
    PublishingBudget,
    TangentMechanism,
    exact_costs,
    regularization_for_publishing,
    steady_hessian,
    steepest_slope,
)
from expost.noise import goe_largest_eigenvalue_quantile
from expost.rows import RowBlock
from parameters import WRONG, every_parameter_reaches

ROWS, WIDTH = 120, 4
LOSSES = [Logistic(), HuberHinge(width=0.5), Squared(label_bound=2.0)]
BUDGET = PublishingBudget(
    epsilon_gradient=1.0, epsilon_hessian=0.5, delta=1e-5, failure_probability=0.01
)


def rows(loss, seed=0, count=ROWS):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, WIDTH))
    X /= np.maximum(np.linalg.norm(X, axis=1), 1)[:, None] * (1 + 1e-12)
    y = X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.3 * rng.normal(size=count)
    return X, np.clip(y, -2, 2) if isinstance(loss, Squared) else np.where(y > 0, 1.0, -1.0)


def mechanism(loss=LOSSES[0], budget=BUDGET, noise="gaussian", **changes):
    constants = {
        "epsilon": 1.0,
        "delta": 1e-5 if noise == "gaussian" else None,
        "noise": noise,
        "loss": loss,
        "rows": ROWS,
        "dimension": WIDTH,
    } | changes
    needed = regularization_for_publishing(budget, **constants)
    return ObjectivePerturbation(regularization=needed, **constants)


def released(loss=LOSSES[0], seed=0, budget=BUDGET):
    """A mechanism, its rows, one θ and the tangent there."""
    perturbation, (X, y) = mechanism(loss, budget), rows(loss)
    problem = Objective.of(
        X=X, y=y, loss=loss, penalty=np.full(WIDTH, perturbation.total_regularization)
    )
    theta = perturbation.release(problem, np.random.default_rng(seed))
    return TangentMechanism(budget=budget, mechanism=perturbation, theta=theta), Tangent.at(
        perturbation, problem, theta
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_the_scales_are_those_of_the_analytic_gaussian_mechanism(loss):
    mechanism, _ = released(loss)
    hessian = gaussian_scale(0.5, 1e-5, loss.curvature_bound / math.sqrt(2))
    assert mechanism.hessian_scale == pytest.approx(hessian, rel=1e-6)
    assert mechanism.hessian_scale >= hessian
    assert mechanism.gradient_scale == pytest.approx(
        gaussian_scale(1.0, 1e-5, mechanism.slope_bound), rel=1e-6
    )
    quantile = goe_largest_eigenvalue_quantile(1 - 0.005, WIDTH)
    assert BUDGET.penalty(loss, ROWS, WIDTH) == pytest.approx(2 * hessian * quantile, rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_row_moves_the_two_by_more_than_their_sensitivities(loss):
    """Over many rows of the unit ball at one θ, and the bound is nearly reached."""
    mechanism, _ = released(loss)
    theta = mechanism.theta * 3
    mechanism = TangentMechanism(budget=BUDGET, mechanism=mechanism.mechanism, theta=theta)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, WIDTH))
    X /= np.linalg.norm(X, axis=1)[:, None]
    X[:2] = theta / np.linalg.norm(theta), -theta / np.linalg.norm(theta)
    labels = np.array([-2.0, 2.0]) if isinstance(loss, Squared) else np.array([-1.0, 1.0])
    y = rng.choice(labels, size=len(X))
    y[:2] = labels
    slope, curvature = loss.derivatives(X @ theta, y)
    assert 0.999 * mechanism.slope_bound < np.max(np.abs(slope)) <= mechanism.slope_bound
    assert 0.9 * loss.curvature_bound < np.max(curvature) <= loss.curvature_bound


@pytest.mark.parametrize("length", [0.0, 0.5, 7.0])
def test_the_steepest_slope(length):
    assert steepest_slope(Logistic(), length) == pytest.approx(1 / (1 + math.exp(-length)))
    assert steepest_slope(HuberHinge(width=0.5), length) == pytest.approx(1.0)
    assert steepest_slope(Squared(label_bound=3.0), length) == pytest.approx(3 + length)


def test_the_noise_of_the_hessian_is_the_gaussian_orthogonal_ensemble():
    """Entry by entry over 4,000 draws: χ² of the variances at 1e-6; off by 10 % is seen."""
    mechanism, tangent = released()
    rng, count = np.random.default_rng(2), 4000
    draws = np.array([mechanism.release(tangent, rng).hessian for _ in range(count)])
    noise = (draws - tangent.hessian) / mechanism.hessian_scale
    assert np.array_equal(draws, np.swapaxes(draws, 1, 2))
    for i, j in itertools.combinations_with_replacement(range(WIDTH), 2):
        total = float(np.sum(noise[:, i, j] ** 2))
        variance = 2 if i == j else 1
        assert stats.chi2(count).cdf(total / variance) > 1e-6
        assert stats.chi2(count).sf(total / variance) > 1e-6
        for wrong in (variance * 1.25, variance / 1.25):
            law = stats.chi2(count)
            assert min(law.cdf(total / wrong), law.sf(total / wrong)) < 1e-6
    places = np.tril_indices(WIDTH)
    correlations = np.corrcoef(noise[:, places[0], places[1]].T) - np.eye(len(places[0]))
    assert np.max(np.abs(correlations)) < 6 / math.sqrt(count)


def test_the_noise_of_the_gradient():
    mechanism, tangent = released()
    rng, count = np.random.default_rng(3), 4000
    draws = np.array([mechanism.release(tangent, rng).gradient for _ in range(count)])
    noise = ((draws - tangent.gradient) / mechanism.gradient_scale).ravel()
    assert stats.kstest(noise, "norm").pvalue > 1e-6
    assert stats.kstest(noise * 1.1, "norm").pvalue < 1e-6


def log_density(matrices, scale):
    """Of σ₃·GOE(d), entry by entry: the definition."""
    total = np.zeros(len(matrices))
    for i in range(WIDTH):
        for j in range(i + 1):
            spread = scale * (math.sqrt(2) if i == j else 1)
            total += stats.norm(scale=spread).logpdf(matrices[:, i, j])
    return total


def test_a_row_costs_what_its_separation_says():
    """The loss of Ĥ, from the densities of its entries, is N(μ²/2, μ²): Thm 10.2, erratum 6."""
    mechanism, _ = released()
    rng = np.random.default_rng(4)
    x = rng.normal(size=WIDTH)
    shift = 0.21 * np.outer(x, x)
    _, mu = mechanism.separations(np.zeros(1), np.array([0.21 * x @ x]))
    square = rng.normal(size=(2000, WIDTH, WIDTH))
    noise = mechanism.hessian_scale * (square + np.swapaxes(square, 1, 2)) / math.sqrt(2)
    losses = log_density(noise, mechanism.hessian_scale) - log_density(
        noise + shift, mechanism.hessian_scale
    )
    inner = np.sum(shift * (2 * noise + shift), axis=(1, 2)) / (4 * mechanism.hessian_scale**2)
    assert losses == pytest.approx(inner, rel=1e-9, abs=1e-12)
    law = stats.norm(mu[0] ** 2 / 2, mu[0])
    assert stats.kstest(losses, law.cdf).pvalue > 1e-6
    wrong = stats.norm(mu[0] ** 2, mu[0] * math.sqrt(2))
    assert stats.kstest(losses, wrong.cdf).pvalue < 1e-6


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-10])
def test_the_cost_of_a_person(delta):
    mu = np.geomspace(1e-9, 30, 60)
    cost = exact_costs(mu, delta)
    for row_mu, epsilon in zip(mu, cost, strict=True):
        assert epsilon == pytest.approx(gaussian_epsilon(row_mu, delta), rel=1e-6, abs=1e-12)
        assert gaussian_delta(epsilon, row_mu) <= delta
    published = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    assert np.all(cost <= published)
    assert np.all(np.diff(cost) >= 0)
    assert exact_costs(np.zeros(2), delta).tolist() == [0, 0]


@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_costs_are_interpolated_from_above(delta):
    """Between exact values, on chords of a convex function: above the exact value, by 3e-5 of it."""
    rng = np.random.default_rng(8)
    mu = np.append(np.exp(rng.uniform(math.log(1e-7), math.log(5), size=5000)), [0.0])
    table = CostTable.of(5.0, delta)
    many = table(mu)
    some = rng.integers(5000, size=200)
    exact = exact_costs(mu[some], delta)
    assert np.all(many[some] >= exact)
    assert np.all(many[some] <= exact * (1 + 3e-5) + 3e-9)
    assert many[-1] == 0
    assert table(np.array([5.01]))[0] == np.inf
    # The cost of a row is the same whatever rows are asked for with it.
    assert [float(table(row_mu[None])[0]) for row_mu in mu] == many.tolist()
    # Convex: the slopes of chords grow.
    points = np.linspace(1e-3, 6, 400)
    slopes = np.diff(exact_costs(points, delta)) / np.diff(points)
    assert np.all(np.diff(slopes) > -1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_budget_of_the_worst_row(loss):
    mechanism, _ = released(loss)
    worst = mechanism.separations(
        np.array([mechanism.slope_bound]), np.array([loss.curvature_bound])
    )
    for separation, epsilon in zip(worst, (1.0, 0.5), strict=True):
        assert exact_costs(separation, 1e-5)[0] == pytest.approx(epsilon, rel=1e-5)
    mu = math.hypot(float(worst[0][0]), float(worst[1][0]))
    assert mechanism.epsilon_together == pytest.approx(gaussian_epsilon(mu, 2e-5), rel=1e-9)
    # Composed exactly they cost less than one after the other.
    assert mechanism.epsilon_together < 1.5
    published = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / 2e-5))
    assert mechanism.epsilon_together < published


def test_the_guarantee_is_that_of_the_worst_row():
    mechanism, _ = released()
    assert mechanism.guarantee.mu >= mechanism.separation
    assert mechanism.guarantee.mu == pytest.approx(mechanism.separation)
    assert mechanism.guarantee.epsilon(2 * BUDGET.delta) == pytest.approx(
        mechanism.epsilon_together
    )
    assert mechanism.epsilon_together < BUDGET.epsilon_gradient + BUDGET.epsilon_hessian


@pytest.mark.parametrize("loss", LOSSES)
def test_both_lie_on_grids_and_come_from_the_operating_system(loss, monkeypatch):
    mechanism, tangent = released(loss)
    monkeypatch.setattr(np.random, "default_rng", None)
    first, second = mechanism.release(tangent), mechanism.release(tangent)
    for published, grid in (
        (np.array([first.gradient, second.gradient]), mechanism.gradient_grid),
        (np.array([first.hessian, second.hessian]), mechanism.hessian_grid),
    ):
        assert np.all(published / grid.step == np.round(published / grid.step))
        assert not np.any(published[0] == published[1])
        assert not grid.is_clamped(published)
    assert mechanism.holds(first)
    assert mechanism.gradient_grid.step <= 2**-10 * mechanism.gradient_scale
    assert mechanism.hessian_grid.step <= 2**-10 * mechanism.hessian_scale


def test_the_grids_reach_past_anything_that_can_be_drawn():
    mechanism, _ = released()
    largest = ROWS * mechanism.slope_bound + mechanism.mechanism.penalty_sum * np.linalg.norm(
        mechanism.theta
    )
    assert mechanism.gradient_grid.clamp > largest + 9.42 * mechanism.gradient_scale
    largest = ROWS * 0.25 + mechanism.mechanism.penalty_sum
    assert mechanism.hessian_grid.clamp > largest + math.sqrt(2) * 9.42 * mechanism.hessian_scale


def test_what_cannot_have_been_released_is_seen():
    mechanism, tangent = released()
    good = mechanism.release(tangent)
    for gradient, hessian in (
        (good.gradient + mechanism.gradient_grid.step / 3, good.hessian),
        (good.gradient, good.hessian + mechanism.hessian_grid.step / 3),
        (good.gradient, np.triu(good.hessian)),
        (good.gradient[:-1], good.hessian),
        (good.gradient * np.nan, good.hessian),
        (good.gradient, good.hessian * np.inf),
        (good.gradient + 2 * mechanism.gradient_grid.clamp, good.hessian),
    ):
        assert not mechanism.holds(type(good)(gradient=gradient, hessian=hessian))


def test_a_row_at_a_knot_counts_as_flat():
    """A row that sits on a knot of the Huber hinge leaves the Hessian that is released."""
    loss = HuberHinge(width=0.5)
    mechanism, tangent = released(loss)
    X, y = rows(loss)
    assert np.array_equal(steady_hessian(tangent), tangent.hessian)
    x = mechanism.theta / np.linalg.norm(mechanism.theta)
    theta = x * 0.75
    X[7], y[7] = x / 1.5 * (1 + 1e-15), 1.0  # margin ½ = 1 − h
    problem = Objective.of(X=X, y=y, loss=loss, penalty=tangent.problem.penalty)
    moved = Tangent.at(mechanism.mechanism, problem, theta)
    assert abs(1 - y[7] * (X[7] @ theta) - 0.5) < 1e-12
    steady = steady_hessian(moved)
    low = eigvalsh(moved.hessian - steady)
    assert low[0] > -1e-12
    others = np.arange(ROWS) != 7
    _, curvature = loss.derivatives(X[others] @ theta, y[others])
    naive = (X[others] * curvature[:, None]).T @ X[others]
    assert steady == pytest.approx(
        naive + mechanism.mechanism.penalty_sum * np.eye(WIDTH), abs=1e-10
    )


def rows_counted(loss, theta, x, count):
    """How many of ``count`` copies of a row the Hessian that is released holds."""
    block = RowBlock.of(np.tile(x, (count, 1)), np.ones(count))
    total = publishing.FarFromKnots(loss=loss, theta=theta, room=1e-3)(block)
    return round(float(np.trace(total)) / (loss.curvature_bound * float(x @ x)), 6)


def at_the_edge(loss, theta, x):
    """The row scaled to where it just stops to be near a knot: one ulp decides."""
    low, high = 0.5, 1.0
    assert rows_counted(loss, theta, low * x, 1) == 0
    assert rows_counted(loss, theta, high * x, 1) == 1
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            return high * x
        if rows_counted(loss, theta, middle * x, 1) > 0:
            high = middle
        else:
            low = middle


def counted_at_edges(loss, tries=40):
    """Of 68 copies of a row at the edge, and of 67: how many count."""
    rng = np.random.default_rng(5)
    counts = []
    for _ in range(tries):
        theta, x = rng.normal(size=(2, 17))
        # Beyond the first knot, 1 − h = ½, at its full length.
        x *= 0.7 / float(x @ theta)
        edge = at_the_edge(loss, theta, x)
        counts.append([rows_counted(loss, theta, edge, count) for count in (68, 67)])
    return np.array(counts)


def test_removing_a_row_changes_what_no_other_adds(monkeypatch):
    """At the edge of f″'s jump the last digit decides, which BLAS lets depend on a row's place."""
    loss = HuberHinge(width=0.5)
    counts = counted_at_edges(loss)
    assert counts == pytest.approx(np.array([[68.0, 67.0]] * len(counts)))
    monkeypatch.setattr(publishing, "row_products", lambda X, v: X @ v)
    by_blas = counted_at_edges(loss)
    x, v = np.random.default_rng(6).normal(size=(2, 17))
    places = {float(margin) for count in (68, 67) for margin in np.tile(x, (count, 1)) @ v}
    # More than a row's worth; not on a machine whose BLAS knows no places.
    assert np.max(np.abs(by_blas[:, 0] - by_blas[:, 1])) > 1.5 or len(places) == 1


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
@pytest.mark.parametrize(
    ("noise", "calibration"),
    [("gaussian", "tight"), ("gaussian", "published"), ("laplace", "tight")],
)
def test_the_regularization_for_publishing(epsilon, noise, calibration):
    perturbation = mechanism(epsilon=epsilon, noise=noise, calibration=calibration)
    report = BUDGET.penalty(perturbation.loss, ROWS, WIDTH)
    alone = {
        ("gaussian", "tight"): 0.25 / math.expm1(epsilon / 2),
        ("gaussian", "published"): 0.5 / epsilon,
        ("laplace", "tight"): 0.25 / math.expm1(epsilon / 2),
    }[noise, calibration]
    assert perturbation.penalty_sum == pytest.approx(max(alone, report), rel=1e-7)
    assert not perturbation.is_raised
    BUDGET.check_penalty(perturbation)


def test_too_little_regularization_is_refused_with_what_is_needed():
    needed = BUDGET.penalty(Logistic(), ROWS, WIDTH)
    constants = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "loss": Logistic(),
        "rows": ROWS,
        "dimension": WIDTH,
    }
    small = ObjectivePerturbation(regularization=0.99 * needed / ROWS, **constants)
    with pytest.raises(ReleaseRefused, match="for-publishing") as error:
        BUDGET.check_penalty(small)
    named = [
        float(word.strip("(),;"))
        for word in str(error.value).split()
        if word.strip("(),;")[:1].isdigit()
    ]
    assert named[0] == pytest.approx(needed, rel=2e-3)
    assert named[0] >= needed
    assert named[1] == pytest.approx(needed / ROWS, rel=2e-3)
    assert named[1] >= needed / ROWS
    enough = ObjectivePerturbation(regularization=named[1], **constants)
    BUDGET.check_penalty(enough)
    mechanism = TangentMechanism(budget=BUDGET, mechanism=small, theta=np.zeros(WIDTH))
    with pytest.raises(ReleaseRefused, match="lambda of at least"):
        mechanism.check()


def test_every_part_of_a_budget_reaches_its_validator():
    good = {"epsilon_gradient": 1, "epsilon_hessian": 1, "delta": 1e-6, "failure_probability": 1e-6}
    every_parameter_reaches(PublishingBudget, good, wrong=(*WRONG, 0, math.inf, None))
