"""Mechanisms whose ε is known exactly, to be audited: one training, and many of one row."""

import numpy as np
from scipy.special import expit
from scipy.stats import binom


def responses(rng, count, epsilon):
    """Randomised response for each canary: ε exactly, and every canary for itself."""
    truth = rng.random(count) < 0.5
    revealed = np.where(rng.random(count) < expit(epsilon), truth, ~truth)
    return revealed + 0.1 * rng.random(count), truth


def laplace(rng, count, epsilon):
    """Each canary's bit with Laplace noise of scale 1/ε."""
    truth = rng.random(count) < 0.5
    return truth + rng.laplace(scale=1 / epsilon, size=count), truth


def gaussian_sums(rng, count, mu, *, dimensions=None):
    """A sum of canaries of length 1 (in few dimensions they overlap) with Gaussian noise: μ-GDP."""
    dimensions = dimensions or 4 * count
    truth = rng.random(count) < 0.5
    canaries = rng.normal(size=(count, dimensions))
    canaries /= np.linalg.norm(canaries, axis=1, keepdims=True)
    released = canaries.T @ (truth - 0.5) + rng.normal(size=dimensions) / mu
    return canaries @ released, truth


def all_or_nothing(rng, count, delta):
    """All coins with probability δ, else noise: (0, δ)-private."""
    truth = rng.random(count) < 0.5
    revealed = rng.random() < delta
    return (truth + 0.0 if revealed else np.zeros(count)) + 1e-3 * rng.random(count), truth


def sharp(rng, count, v, epsilon, delta):
    """Reaches the bound of one training: v or more right are as likely as (ε, δ) allows."""
    q = expit(epsilon)
    law = binom.pmf(np.arange(count + 1), count, q)
    step = count * delta / (v * law[v])
    law *= 1 - step * law[v:].sum() + step * (np.arange(count + 1) >= v)
    truth = rng.random(count) < 0.5
    wrong = rng.permutation(count) >= rng.choice(count + 1, p=law / law.sum())
    return np.where(wrong, ~truth, truth) + 0.1 * rng.random(count), truth


def subsets(rng, models, rows):
    """(models, rows): each row lies in a random half of the models."""
    return np.stack([rng.permutation(models) < models // 2 for _ in range(rows)], axis=1)


def noisy_bits(rng, models, rows, noise):
    """Trainings that tell each row's bit with a noise of its own, drawn by ``noise``."""
    inside = subsets(rng, models, rows)
    return (inside + noise((models, rows))).astype(np.float32), inside


def responded_bits(rng, models, rows, epsilon):
    """Trainings that answer about each row by randomised response."""
    inside = subsets(rng, models, rows)
    revealed = np.where(rng.random((models, rows)) < expit(epsilon), inside, ~inside)
    return revealed.astype(np.float32), inside


def counted_sums(rng, models, rows, epsilon):
    """Trainings that release how many rows they had, with Laplace noise of scale 1/ε: one number.

    A row's signal is the same number: what is told of one row depends on all others.
    """
    inside = subsets(rng, models, rows)
    count = inside.sum(axis=1) + rng.laplace(scale=1 / epsilon, size=models)
    return np.repeat(count[:, None], rows, axis=1).astype(np.float32), inside
