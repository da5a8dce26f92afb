"""Noise on the sum of gradients, and the transition that is followed in it: against loops."""

import math
from functools import cache

import numpy as np
import pytest

from expost.epsilon.gradients import Gradients
from expost.epsilon.limit import PosteriorLimit
from expost.epsilon.sweep import LawSweep
from expost.glm import Objective
from expost.losses import HuberHinge, Logistic, Softmax
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation
from expost.rows import RowBlock

LOSSES = {"logistic": Logistic(), "hinge": HuberHinge(width=0.5), "softmax": Softmax(classes=3)}
NOISES = ("gaussian", "laplace")
EPSILONS = (1e-3, 0.1, 1.0, 8.0, 100.0)
by_case = pytest.mark.parametrize(("loss", "noise"), [(a, b) for a in LOSSES for b in NOISES])


def table(loss, rows=40, columns=2):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, columns))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    if loss == "softmax":
        scores = X @ rng.normal(size=(columns, 3)) + 0.3 * rng.normal(size=(rows, 3))
        return X, np.argmax(scores, axis=1).astype(float)
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=rows) > 0, 1.0, -1.0)


def mechanism(loss, noise, *, regularization=0.05, **constants):
    return ObjectivePerturbation(
        **{
            "epsilon": 1.0,
            "delta": 1e-6 if noise == "gaussian" else None,
            "noise": noise,
            "loss": LOSSES[loss],
            "regularization": regularization,
            "rows": 40,
            "dimension": 2 * LOSSES[loss].outputs,
            **constants,
        }
    )


def naive_gradient(loss, x, label, theta):
    """∇ℓ of one row by its formula, (q·d,)."""
    if loss == "logistic":
        return -label * x / (1 + math.exp(label * float(x @ theta)))
    if loss == "hinge":
        # 0 past the margin, −y from a width before it, linear between: Chaudhuri et al., eq. 21.
        width, margin = 0.5, label * float(x @ theta)
        slope = min(max((1 + width - margin) / (2 * width), 0.0), 1.0)
        return -label * slope * x
    scores = [float(x @ part) for part in theta.reshape(3, -1)]
    total = sum(math.exp(score) for score in scores)
    weights = [math.exp(score) / total - (label == k) for k, score in enumerate(scores)]
    return np.concatenate([weight * x for weight in weights])


@cache
def followed(loss, noise, regularization):
    """(the sweep as choose_epsilon makes it, its sampler, the mechanism)."""
    X, y = table(loss)
    perturbation = mechanism(loss, noise, regularization=regularization)
    penalty = np.full(perturbation.dimension, perturbation.total_regularization)
    objective = Objective.of(X=X, y=y, loss=perturbation.loss, penalty=penalty)
    theta = objective.minimiser(1e-10).theta
    sweep = LawSweep.of(
        Gradients(loss=perturbation.loss, theta=theta)(RowBlock.of(X, y)),
        mechanism=perturbation.gradient_noise,
        most=perturbation.loss.lipschitz(perturbation.total_regularization)
        * objective.rows.longest,
        limit=PosteriorLimit(),
        tolerance=0.1,
        share=0.5,
        models=20,
        seed=np.random.SeedSequence(1),
        epsilons=np.array([1.0]),
    )
    return sweep, perturbation.sampler(objective), perturbation


@pytest.mark.parametrize("loss", LOSSES)
def test_distances_and_shifts_are_those_of_a_loop(loss):
    X, y = table(loss)
    theta = np.random.default_rng(3).normal(size=2 * LOSSES[loss].outputs)
    gradients = Gradients(loss=LOSSES[loss], theta=theta)(RowBlock.of(X, y))
    naive = np.array([naive_gradient(loss, *row, theta) for row in zip(X, y, strict=True)])
    np.testing.assert_allclose(gradients.shifts.all(), naive, atol=1e-14)
    np.testing.assert_allclose(gradients.distance, np.linalg.norm(naive, axis=1), atol=1e-14)
    assert np.ptp(gradients.distance) > 0.1
    assert not np.any(gradients.error_bound)


@by_case
@pytest.mark.parametrize("regularization", [1e-3, 0.05, 10.0])
@pytest.mark.parametrize("person", [1, 3])
def test_a_separation_is_not_underestimated(loss, noise, regularization, person):
    perturbation = mechanism(loss, noise, regularization=regularization, rows_per_person=person)
    plain = perturbation.gradient_noise
    for epsilon in EPSILONS:
        real = perturbation.with_constants(epsilon=epsilon).resolution
        stated = plain.with_constants(epsilon=epsilon).resolution
        assert stated <= real * (1 + 1e-9), epsilon
        # Where determinants cost nothing it is the noise of the release.
        vast = mechanism(loss, noise, regularization=1e12, epsilon=epsilon, rows_per_person=person)
        assert stated == pytest.approx(vast.resolution, rel=1e-4)
    # So a row that keeps a separation at an ε keeps it in a release.
    distance = np.array([0.05, 0.3, perturbation.slope_bound])
    for separation in (0.1, 0.9, 4.0):
        at = plain.epsilon_at(separation, distance).tolist()
        for epsilon, length in zip(at, distance, strict=True):
            release = perturbation.with_constants(epsilon=epsilon)
            assert length / release.resolution <= separation * (1 + 1e-9)


def test_only_the_perturbed_objective_has_one():
    perturbation = OutputPerturbation(
        epsilon=1.0, loss=Logistic(), regularization=0.1, rows=40, dimension=2, noise="laplace"
    )
    assert perturbation.gradient_noise is None
    assert mechanism("logistic", "gaussian").closed_form is None


def excess(noise, dimension, exposure, separation):
    """How far off the first plateau rows are: the measures of the transition, from means."""
    if noise == "gaussian":
        return exposure / (math.sqrt(2 / math.pi) * separation) - 1
    first = math.gamma(dimension / 2) / (math.sqrt(math.pi) * math.gamma((dimension + 1) / 2))
    return (exposure / separation - first) / (1 - first)


def sampled(loss, noise, regularization, epsilon, models=4000):
    """(losses, the same without determinants, ∥g∥ in units of the noise), each (models, rows)."""
    _, sampler, mechanism = followed(loss, noise, regularization)
    thetas = sampler.sample(epsilon, models, np.random.default_rng(2))
    losses = np.asarray(sampler.losses(epsilon, thetas, np.random.SeedSequence(0)))
    at = mechanism.with_constants(epsilon=epsilon)
    X, y = table(loss)
    parts, lengths = [], []
    for theta in thetas:
        gradients = Gradients(loss=mechanism.loss, theta=theta)(RowBlock.of(X, y)).shifts.all()
        b = -(gradients.sum(axis=0) + at.penalty_sum * theta) / at.resolution
        g = gradients / at.resolution
        if noise == "gaussian":
            parts.append(g @ b + np.sum(g * g, axis=1) / 2)
        else:
            parts.append(np.linalg.norm(b + g, axis=1) - np.linalg.norm(b))
        lengths.append(np.linalg.norm(g, axis=1))
    return losses, np.array(parts), np.array(lengths), at


@by_case
@pytest.mark.parametrize("regularization", [0.01, 1.0])
def test_up_to_low_no_gradient_of_any_release_is_past_the_plateau(loss, noise, regularization):
    """What is certain: ∥g∥/σ ≤ the separation that leaves, and 0 ≤ u ≤ r·log(1 + c/λ)."""
    sweep, _, mechanism = followed(loss, noise, regularization)
    for factor in (1.0, 0.3):
        losses, law, length, at = sampled(
            loss, noise, regularization, factor * sweep.low, models=300
        )
        assert np.max(length) <= sweep.transition.leaves * (1 + 1e-9)
        rank, curvature = mechanism.loss.determinant
        most = rank * math.log1p(curvature / at.penalty_sum)
        assert np.min(losses - law) >= -1e-9
        assert np.max(losses - law) <= most + 1e-9


@by_case
def test_low_holds_in_releases_whose_gradients_hardly_vary(loss, noise):
    """Λ = 1: every row of 2,000 releases is on its first plateau, to five standard errors.

    80 comparisons: a false alarm in 10⁴; an ε three times as large is seen.
    """
    sweep, _, mechanism = followed(loss, noise, 1.0)

    def is_on(epsilon):
        losses, _, length, _ = sampled(loss, noise, 1.0, epsilon, models=2000)
        exposure, apart = np.abs(losses), length.mean(axis=0)
        error = exposure.std(axis=0) / math.sqrt(2000)
        return excess(noise, mechanism.dimension, exposure.mean(axis=0) - 5 * error, apart) <= 0.1

    assert np.all(is_on(sweep.low))
    assert np.all(is_on(0.3 * sweep.low))
    assert not np.all(is_on(10 * sweep.low))


def test_low_does_not_hold_where_the_noise_moves_the_gradients():
    """Λ = 0.01: the model is hardly more than noise, and slopes and determinants follow it."""
    sweep, _, mechanism = followed("logistic", "gaussian", 0.01)
    losses, law, length, _ = sampled("logistic", "gaussian", 0.01, 0.3 * sweep.low, models=2000)
    for values in (losses, law):
        off = excess(
            "gaussian", mechanism.dimension, np.abs(values).mean(axis=0), length.mean(axis=0)
        )
        assert np.max(off) > 0.3
