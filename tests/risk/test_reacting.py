"""Releases that react to those before them pass no more than is promised."""

import math

import numpy as np
import pytest

from expost.risk import DPSGD, Composition, GaussianNoise


def test_gaussian_releases_that_react_are_those_of_a_full_batch():
    """Eight releases of μ = ½, one after the other, are eight steps of DP-SGD with σ = 2."""
    several = Composition((GaussianNoise(mu=0.5),) * 8)
    steps = DPSGD(noise_multiplier=2.0, steps=8)
    for delta in (1e-9, 1e-5, 0.05):
        assert several.loss(delta) == pytest.approx(steps.loss(delta), rel=1e-12)
        # Releases that do not react pass less.
        assert several.loss(delta) > GaussianNoise(mu=0.5 * math.sqrt(8)).loss(delta) * 1.001
    assert several.epsilon(1e-5) == pytest.approx(steps.epsilon(1e-5), rel=1e-12)
    assert Composition((GaussianNoise(mu=0.5),)).loss(0.05) == GaussianNoise(mu=0.5).loss(0.05)


def test_a_row_that_stops_does_not_pass_the_loss_of_gaussian_releases():
    """The row moves the model until the evidence has passed b, then no more."""
    parts, mu, delta, games = 8, 0.5, 0.05, 200_000
    bound = Composition((GaussianNoise(mu=mu),) * parts).loss(delta)
    fixed = GaussianNoise(mu=mu * math.sqrt(parts)).loss(delta)
    rng = np.random.default_rng(4)
    passed = {}
    for name, level in {"bound": bound, "fixed": fixed}.items():
        loss = np.zeros(games)
        for _ in range(parts):
            step = mu * (0.5 * mu + rng.standard_normal(games))
            loss = np.where(loss > level, loss, loss + step)
        passed[name] = np.mean(loss > level)
    error = math.sqrt(delta * (1 - delta) / games)
    assert passed["bound"] < delta + 3 * error
    # Power: the quantile of releases that do not react is passed too often.
    assert passed["fixed"] > delta + 5 * error
