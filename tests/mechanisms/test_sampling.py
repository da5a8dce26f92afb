"""Many releases at once: minimisers one by one, losses as of one release, typical exposures."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from scipy.special import expit

from expost.glm import Objective, minimise
from expost.losses import HuberHinge, Logistic, Squared
from expost.mechanisms import ObjectivePerturbation, Tangent, sampling
from expost.mechanisms.sampling import ObjectiveSampler, expected_exposures, perturbed_minimisers
from mechanisms.changes import changed

LOSSES = (Logistic(), HuberHinge(), HuberHinge(width=0.05), Squared(label_bound=1.5))
NOISES = ("gaussian", "laplace")


def mechanism(**changes):
    values = {
        "epsilon": 1.0,
        "delta": 1e-3,
        "noise": "gaussian",
        "loss": Logistic(),
        "regularization": 0.1,
        "rows": 60,
        "dimension": 3,
        **changes,
    }
    if values["noise"] == "laplace":
        values["delta"] = None
    return ObjectivePerturbation(**values)


def posed(mechanism, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(mechanism.rows, mechanism.dimension))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=mechanism.rows) > 0, 1.0, -1.0)
    if not mechanism.loss.is_classification:
        y = np.clip(3 * X[:, 0] + rng.normal(size=mechanism.rows), -1.5, 1.5)
    penalty = np.full(mechanism.dimension, mechanism.total_regularization)
    return Objective.of(X=X, y=y, loss=mechanism.loss, penalty=penalty)


def naive_gradient(problem, theta, linear):
    """∇J + c, averaged, written out again."""
    z = problem.held.X @ theta
    match problem.loss:
        case Logistic():
            slope = -problem.held.y * expit(-problem.held.y * z)
        case HuberHinge(width=width):
            slope = -problem.held.y * np.clip((1 + width - problem.held.y * z) / (2 * width), 0, 1)
        case _:
            slope = z - problem.held.y
    return problem.held.X.T @ slope / problem.count + problem.penalty * theta + linear


def naive_gradients(problem, theta):
    """∇ℓ of each row, from one-row gradients without penalty."""
    return np.stack(
        [
            naive_gradient(
                Objective.of(X=x[None], y=y[None], loss=problem.loss, penalty=0.0), theta, 0.0
            )
            for x, y in zip(problem.held.X, problem.held.y, strict=True)
        ]
    )


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("size", [1e-6, 0.1, 3.0, 1e3], ids=lambda size: f"noise {size:g}")
def test_minimisers_are_those_of_one_at_a_time(loss, size):
    """The averaged gradient is below 1e-10 and strong convexity gives the distance, 1e-10/Λ."""
    rng = np.random.default_rng(1)
    for regularization in (1e-5, 1e-2, 1.0):
        problem = posed(mechanism(loss=loss))
        problem = replace(problem, penalty=np.full(3, regularization))
        linear = size * rng.normal(size=(7, 3)) * min(1.0, 1e3 * regularization)
        models = perturbed_minimisers(problem, linear)
        assert models.shape == (7, 3)
        for theta, tilt in zip(models, linear, strict=True):
            assert np.linalg.norm(naive_gradient(problem, theta, tilt)) <= 1.1e-10
            alone = minimise(replace(problem, linear=tilt), tolerance=1e-11)
            assert np.linalg.norm(theta - alone.theta) <= 1.2e-10 / regularization
        # Power: another model's minimiser is not this one's.
        assert np.linalg.norm(naive_gradient(problem, models[0], linear[1])) > 1e-9


def test_a_model_does_not_depend_on_those_beside_it():
    problem = posed(mechanism())
    linear = np.random.default_rng(0).normal(size=(4, 3))
    together = perturbed_minimisers(problem, linear)
    for index in range(4):
        alone = perturbed_minimisers(problem, linear[index : index + 1])
        assert np.linalg.norm(alone[0] - together[index]) <= 2e-9


def test_blocks_of_models_change_nothing(monkeypatch):
    problem = posed(mechanism(loss=HuberHinge(), regularization=1e-3))
    linear = np.random.default_rng(0).normal(size=(9, 3))
    whole = perturbed_minimisers(problem, linear)
    monkeypatch.setattr(sampling, "_BLOCK", 2 * problem.count)
    blocked = perturbed_minimisers(problem, linear)
    assert np.max(np.abs(whole - blocked)) <= 2e-10 / problem.penalty[0]


def test_no_model_is_asked_for():
    assert perturbed_minimisers(posed(mechanism()), np.empty((0, 3))).shape == (0, 3)


def test_most_models_need_no_minimiser_of_their_own(monkeypatch):
    """One for the base: the chord steps do the rest at an ordinary noise."""
    calls = []

    def counted(*args, **options):
        calls.append(1)
        return minimise(*args, **options)

    monkeypatch.setattr(sampling, "minimise", counted)
    perturbation = mechanism(rows=500)
    noise = perturbation.law.sample(50, np.random.default_rng(0))
    perturbed_minimisers(posed(perturbation), noise / perturbation.rows)
    assert len(calls) <= 5


# The sampler.


@pytest.mark.parametrize("noise", NOISES)
def test_sampled_releases_have_the_law_of_released_ones(noise):
    """b = −n·(∇J of the averaged form) over 400 models; a scale × 1.25 is seen (1e-9)."""
    perturbation = mechanism(noise=noise, epsilon=7.0)
    problem = posed(perturbation)
    sampler = ObjectiveSampler(mechanism=perturbation, objective=problem)
    for epsilon in (0.3, 7.0):
        here = replace(perturbation, epsilon=epsilon)
        there = replace(problem, penalty=np.full(3, here.total_regularization))
        models = sampler.sample(epsilon, 400, np.random.default_rng(3))
        norms = [60 * np.linalg.norm(naive_gradient(there, theta, 0.0)) for theta in models]
        law = scipy.stats.chi(3) if noise == "gaussian" else scipy.stats.gamma(3)
        scaled = np.array(norms) / here.resolution
        assert scipy.stats.kstest(scaled, law.cdf).pvalue > 1e-6
        for factor in (1.4, 1 / 1.4):
            assert scipy.stats.kstest(factor * scaled, law.cdf).pvalue < 1e-9


def test_the_draws_of_every_epsilon_are_multiples_of_one_another():
    perturbation = mechanism()
    problem = posed(perturbation)
    sampler = ObjectiveSampler(mechanism=perturbation, objective=problem)
    noises = []
    for epsilon in (0.5, 2.0):
        here = replace(perturbation, epsilon=epsilon)
        there = replace(problem, penalty=np.full(3, here.total_regularization))
        models = sampler.sample(epsilon, 5, np.random.default_rng(8))
        gradients = np.array([naive_gradient(there, theta, 0.0) for theta in models])
        noises.append(-60 * gradients / here.resolution)
    assert np.allclose(*noises, atol=1e-7)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("loss", LOSSES[1:], ids=str)
def test_sampled_losses_are_those_of_one_release(loss, noise):
    perturbation = mechanism(loss=loss, noise=noise)
    sampler = ObjectiveSampler(mechanism=perturbation, objective=posed(perturbation))
    seed = np.random.SeedSequence(1)
    for epsilon in (0.05, 4.0):
        here = replace(perturbation, epsilon=epsilon)
        models = sampler.sample(epsilon, 3, np.random.default_rng(8))
        losses = sampler.losses(epsilon, models, seed)
        assert losses.shape == (3, 60)
        for theta, row in zip(models, losses, strict=True):
            alone = Tangent.at(here, posed(here), theta).row_losses().loss
            # Products with L⁻¹ instead of solves with L: the rounding differs, and nothing else.
            np.testing.assert_allclose(row, alone, rtol=1e-11, atol=1e-14)
    assert sampler.rows == 60
    assert "objective perturbation" in sampler.description
    assert perturbation.loss.name in sampler.description


# Typical exposures.


@pytest.mark.parametrize(("loss", "noise"), [(LOSSES[0], "gaussian"), (LOSSES[1], "laplace")])
def test_expected_exposures_are_what_releases_average_to(loss, noise):
    """Against 400 other releases; five standard errors of both, and × 1.3 is rejected."""
    perturbation = mechanism(loss=loss, noise=noise, epsilon=5.0, rows=40)
    problem = posed(perturbation)
    mean, error = expected_exposures(perturbation, problem, changed(problem))
    sampler = ObjectiveSampler(mechanism=perturbation, objective=problem)
    models = sampler.sample(perturbation.epsilon, 400, np.random.default_rng(12))
    exposures = np.abs(sampler.losses(perturbation.epsilon, models, np.random.SeedSequence(0)))
    known, spread = exposures.mean(axis=0), exposures.std(axis=0)
    both = np.hypot(error, spread / np.sqrt(400))
    assert np.all(np.abs(mean - known) <= 5 * both)
    # The control variate pays: plain means of 64 draws have a larger error.
    assert np.median(error / (spread / 8)) < 0.8
    pooled = exposures.mean(axis=1)
    slack = 5 * pooled.std() * np.sqrt(1 / 64 + 1 / 400)
    assert abs(mean.mean() - pooled.mean()) <= slack
    assert abs(1.3 * mean.mean() - pooled.mean()) > slack


@pytest.mark.parametrize("models", [8, 64])
@pytest.mark.parametrize(("loss", "noise"), [(LOSSES[0], "gaussian"), (LOSSES[1], "laplace")])
def test_the_error_of_expected_exposures_is_that_of_repetitions(loss, noise, models, monkeypatch):
    """The spread over 40 seeds is the error that is stated, and their mean is that of plain ones.

    A spread of 40 numbers has a relative standard error of 11 %, and the median of rows less.
    """
    perturbation = mechanism(loss=loss, noise=noise, epsilon=2.0, rows=40, regularization=0.02)
    problem = posed(perturbation)
    monkeypatch.setattr(sampling, "_MOST_MODELS", models)
    estimates = []
    for seed in range(40):
        monkeypatch.setattr(sampling, "_SEED", seed)
        estimates.append(expected_exposures(perturbation, problem, changed(problem)))
    means, errors = (np.stack(arrays) for arrays in zip(*estimates, strict=True))
    stated = np.sqrt(np.mean(errors**2, axis=0))
    # Gradients on a linear piece of the hinge do not vary, and nor does the difference.
    varied = stated > 1e-9
    assert np.mean(varied) > 0.5
    ratio = means.std(axis=0, ddof=1)[varied] / stated[varied]
    assert np.median(ratio) == pytest.approx(1, abs=0.25)
    losses = sampling.drawn_losses(
        perturbation, problem, changed(problem), 1_000, np.random.default_rng(99)
    )
    plain, error = sampling.mean_exposures(losses, problem.count)
    apart = (means.mean(axis=0) - plain) / np.hypot(error, stated / np.sqrt(40))
    assert np.max(np.abs(apart)) < 5
    # Power: the mean of the control alone is not theirs.
    fixed = problem.minimiser(1e-10).theta
    shifts = np.linalg.norm(naive_gradients(problem, fixed), axis=1)
    control = perturbation.law.law(shifts).expected_exposure
    away = np.abs(control - means.mean(axis=0))[varied] / stated[varied] * np.sqrt(40)
    assert np.max(away) > 3


def test_fewer_releases_of_large_tables(monkeypatch):
    problem = posed(mechanism(rows=50, dimension=4))
    assert sampling.model_count(problem) == 64
    for work, count in ((50 * 16 * 20, 20), (50 * 16 * 20 - 1, 19), (1, 8)):
        monkeypatch.setattr(sampling, "_WORK", work)
        assert sampling.model_count(problem) == count


def test_expected_exposures_are_the_same_twice():
    perturbation = mechanism()
    problem = posed(perturbation)
    first, again = (
        expected_exposures(perturbation, problem, changed(problem)),
        expected_exposures(perturbation, problem, changed(problem)),
    )
    assert first[0].tobytes() == again[0].tobytes()
    assert first[1].tobytes() == again[1].tobytes()
