"""Laws of hypothesis testing that every guarantee keeps, and games against the Bayes adversary.

A test of two laws is a point (fpr, tpr); the best ones form a concave curve, which δ(ε) describes
from outside (its supporting lines) and the loss from inside (its slopes). Each figure here is
computed by a formula of its own, so that these laws are checks and not definitions.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri

from evidence import record
from expost.risk import (
    EpsilonDelta,
    GaussianNoise,
    NormLaplaceNoise,
    calibrate,
)

GUARANTEES = [
    EpsilonDelta(epsilon=0.0, delta=0.2),
    EpsilonDelta(epsilon=1e-6),
    EpsilonDelta(epsilon=1.0),
    EpsilonDelta(epsilon=3.0, delta=1e-3),
    EpsilonDelta(epsilon=0.2, delta=0.4),
    GaussianNoise(mu=1e-5),
    GaussianNoise(mu=0.4),
    GaussianNoise(mu=2.5),
    NormLaplaceNoise(separation=1.5, dimension=1),
    NormLaplaceNoise(separation=1e-4, dimension=2),
    NormLaplaceNoise(separation=1.5, dimension=2),
    NormLaplaceNoise(separation=6.0, dimension=12),
]
RATES = [1e-9, 1e-3, 0.05, 0.3, 0.6, 0.95]


@pytest.fixture(params=GUARANTEES, ids=repr)
def guarantee(request):
    return request.param


def log_curve(guarantee, x):
    """δ(x) for x of either sign: P(S) − e^x Q(S) with the worlds exchanged, for x < 0."""
    return guarantee.delta(x) if x >= 0 else 1 - math.exp(x) * (1 - guarantee.delta(-x))


def test_advantage_is_the_largest_gap_of_the_rates(guarantee):
    """max over fpr of tpr − fpr = δ(0)."""

    def gap(fpr):
        return fpr - guarantee.true_positive_rate(fpr)

    grid = np.linspace(0, 1, 21)
    best = grid[int(np.argmin([gap(x) for x in grid]))]
    bounds = (max(best - 0.05, 0.0), min(best + 0.05, 1.0))
    optimum = minimize_scalar(gap, bounds=bounds, method="bounded", options={"xatol": 1e-7})
    assert -optimum.fun <= guarantee.advantage * (1 + 1e-10) + 1e-15
    assert -optimum.fun == pytest.approx(guarantee.advantage, rel=1e-6, abs=1e-8)


def test_rates_are_the_lower_envelope_of_the_privacy_curve(guarantee):
    """tpr(fpr) = min over x of e^x·fpr + δ(x), x of either sign."""
    for fpr in (1e-3, 0.05, 0.6):

        def line(x, fpr=fpr):
            return math.exp(x) * fpr + log_curve(guarantee, x)

        reach = guarantee.loss(1e-12)
        reach = 30.0 if math.isinf(reach) else reach
        grid = np.linspace(-reach, reach, 41)
        k = int(np.argmin([line(x) for x in grid]))
        bounds = (grid[max(k - 1, 0)], grid[min(k + 1, 40)])
        optimum = minimize_scalar(
            line, bounds=bounds, method="bounded", options={"xatol": 1e-7 * reach}
        )
        lowest = min(optimum.fun, *(line(x) for x in bounds))
        tpr = guarantee.true_positive_rate(fpr)
        assert tpr <= lowest * (1 + 1e-10)
        assert tpr == pytest.approx(lowest, rel=1e-6)


def test_rates_are_concave_and_mirror_themselves(guarantee):
    grid = np.linspace(0, 1, 33)
    curve = np.array([guarantee.true_positive_rate(x) for x in grid])
    assert np.all(np.diff(curve) >= 0)
    assert np.all(np.diff(curve, 2) <= 1e-11)
    assert np.all(curve >= grid)
    assert np.all(curve <= 1)
    for fpr in RATES:
        tpr = guarantee.true_positive_rate(fpr)
        # The worlds exchanged: to miss 1 − tpr is to accuse as often, and the curve is the same.
        if tpr < 1 - 1e-6:
            mirrored = guarantee.true_positive_rate(1 - tpr)
            assert 1 - mirrored == pytest.approx(fpr, rel=1e-6, abs=1e-9)


def test_the_curve_and_its_inverse(guarantee):
    grid = [0.0, 1e-7, 1e-3, 0.3, 1.0, 2.0, 5.0, 40.0]
    curve = [guarantee.delta(x) for x in grid]
    assert all(a >= b for a, b in pairwise(curve))
    for x, delta in zip(grid, curve, strict=True):
        if 0 < delta < 1 - 1e-3:
            assert guarantee.epsilon(delta) <= x * (1 + 1e-9) + 1e-9
    for delta in RATES:
        epsilon = guarantee.epsilon(delta)
        if epsilon < math.inf:
            assert guarantee.delta(epsilon) <= delta
        if 0 < epsilon < math.inf:
            # The curve may jump where the loss has an atom, but not below ε.
            assert guarantee.delta(epsilon * (1 - 1e-6)) > delta * (1 - 1e-9)


def test_losses_and_posteriors_fall_with_delta(guarantee):
    losses = [guarantee.loss(p) for p in (0.0, *RATES)]
    assert all(a >= b for a, b in pairwise(losses))
    for p, loss in zip((0.0, *RATES), losses, strict=True):
        assert loss >= guarantee.epsilon(p)
        for prior in (1e-12, 0.3):
            posterior = guarantee.posterior(prior, delta=p)
            assert prior <= posterior <= 1
            assert guarantee.one_in(prior, delta=p) == pytest.approx(1 / posterior, rel=1e-14)


# --------------------------------------------------------------------------- who is tighter


@pytest.mark.parametrize("epsilon", [1e-8, 0.1, 1.0, 4.0, 30.0])
def test_pure_epsilon_bounds_everything_with_that_epsilon(epsilon):
    """advantage ≤ tanh(ε/2), posterior ≤ sigmoid(ε), norm-Laplace noise at t = ε below both."""
    pure = EpsilonDelta(epsilon=epsilon)
    assert pure.advantage == pytest.approx(math.tanh(epsilon / 2), rel=1e-14)
    assert pure.posterior() == pytest.approx(1 / (1 + math.exp(-epsilon)), rel=1e-14)
    for d in (1, 2, 9):
        noise = NormLaplaceNoise(separation=epsilon, dimension=d)
        assert noise.advantage <= pure.advantage
        assert noise.posterior() == pure.posterior()
        for p in RATES:
            assert noise.true_positive_rate(p) <= pure.true_positive_rate(p)
            assert noise.posterior(0.2, delta=p) <= pure.posterior(0.2)
            assert noise.epsilon(p) <= pure.epsilon(p)
    # In more dimensions the same ε tells less.
    advantages = [
        NormLaplaceNoise(separation=epsilon, dimension=d).advantage for d in (1, 2, 9, 99)
    ]
    assert all(a >= b for a, b in pairwise(advantages))


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 2.0, 10.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_gaussian_noise_stays_below_its_epsilon_delta(epsilon, delta):
    noise = calibrate(GaussianNoise, epsilon=epsilon, delta=delta)
    guarantee = EpsilonDelta(epsilon=epsilon, delta=delta)
    assert noise.advantage < guarantee.advantage
    for p in (1e-9, 1e-3, 0.01, 0.3, 0.9):
        assert noise.true_positive_rate(p) <= guarantee.true_positive_rate(p)
    for factor in (1.01, 2.0, 5.0):
        # Erratum 10: the posterior of any (ε, δ) mechanism at a probability above δ.
        assert noise.loss(factor * delta) <= guarantee.loss(factor * delta)
    # Power: a mechanism with 10 % more μ breaks its guarantee somewhere.
    wrong = GaussianNoise(mu=1.1 * noise.mu)
    grid = np.concatenate([np.logspace(-14, -1, 300), np.linspace(0.1, 0.99, 90)])
    assert any(wrong.true_positive_rate(p) > guarantee.true_positive_rate(p) for p in grid)


def test_monotone_in_epsilon_delta_and_mu():
    def figures(guarantee):
        rates = [guarantee.true_positive_rate(p) for p in RATES]
        curve = [guarantee.delta(x) for x in (0.0, 0.1, 1.0)]
        inner = [min(f(p), 1e9) for p in (0.05, 0.95) for f in (guarantee.epsilon, guarantee.loss)]
        return np.array([guarantee.advantage, *rates, *curve, *inner])

    families = (
        [EpsilonDelta(epsilon=e, delta=1e-3) for e in (*np.logspace(-8, 4, 40), math.inf)],
        [EpsilonDelta(epsilon=0.7, delta=d) for d in (*np.logspace(-300, -1, 30), 0.5, 0.9)],
        [GaussianNoise(mu=m) for m in (0.0, *np.logspace(-9, 3, 40), math.inf)],
    )
    for family in families:
        for less, more in pairwise(map(figures, family)):
            assert np.all(less <= more * (1 + 1e-15))


# --------------------------------------------------------------------------- games


def play(mu, games, rng):
    """D5.3's Experiment 2: a fair coin picks the world; ℓ is what the attacker works out."""
    there = rng.random(games) < 0.5
    release = rng.normal(size=games) + np.where(there, mu, 0.0)
    return there, mu * release - 0.5 * mu * mu


def scores(there, loss, mu, delta):
    """Standard errors between what the games show and what GaussianNoise(μ) says."""
    noise = GaussianNoise(mu=mu)
    right = np.mean((loss > 0) == there)
    adv = (2 * right - 1 - noise.advantage) / (2 * math.sqrt(right * (1 - right) / len(loss)))
    values = {"advantage": adv}
    # The Bayes adversary with prior 0.2: how often she is right is a supporting line of δ(ε).
    guess = loss > math.log(4)
    gain = np.where(there, guess * 1.0, -4.0 * guess)
    values["delta"] = score(2 * gain, noise.delta(math.log(4)))
    for fpr in (0.01, 0.1):
        # Neyman and Pearson: the threshold that a share fpr of the others passes, if μ is right.
        threshold = -mu * (ndtri(fpr) + 0.5 * mu)
        values[f"fpr {fpr}"] = score(loss[~there] > threshold, fpr)
        values[f"tpr at {fpr}"] = score(loss[there] > threshold, noise.true_positive_rate(fpr))
    values["belief"] = score(loss[there] > noise.loss(delta), delta)
    values["belief in the other"] = score(-loss[~there] > noise.loss(delta), delta)
    return values


def score(draws, expected):
    draws = np.asarray(draws, dtype=float)
    spread = max(draws.std(), 1 / math.sqrt(len(draws)))
    return float((draws.mean() - expected) / (spread / math.sqrt(len(draws))))


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_games(mu):
    """100,000 games: eight figures within 3 standard errors (2 % false alarms; the seed is fixed);
    a μ that is 8 % off is rejected."""
    there, loss = play(mu, 100_000, np.random.default_rng(20261116))
    assert max(map(abs, scores(there, loss, mu, 0.05).values())) < 3
    for factor in (0.92, 1.08):
        assert max(map(abs, scores(there, loss, factor * mu, 0.05).values())) > 4


@pytest.mark.long
def test_a_million_games():
    """The same with 10⁶ games (24 figures: 6 % false alarms); a μ that is 2 % off is rejected."""
    seed, figures = 20261117, {}
    for part, mu in enumerate((0.5, 1.0, 2.0)):
        there, loss = play(mu, 1_000_000, np.random.default_rng([seed, part]))
        right = scores(there, loss, mu, 0.05)
        wrong = scores(there, loss, 1.02 * mu, 0.05)
        assert max(map(abs, right.values())) < 3
        assert max(map(abs, wrong.values())) > 4
        noise = GaussianNoise(mu=mu)
        figures[str(mu)] = {
            "epsilon at delta 1e-5": noise.epsilon(1e-5),
            "advantage, exact": noise.advantage,
            "advantage, played": float(2 * np.mean((loss > 0) == there) - 1),
            "tpr at fpr 0.01, exact": noise.true_positive_rate(0.01),
            "tpr at fpr 0.01, played": float(
                np.mean(loss[there] > -mu * (float(ndtri(0.01)) + 0.5 * mu))
            ),
            "belief passed with probability 0.05": noise.posterior(delta=0.05),
            "belief passed, played": float(np.mean(loss[there] > noise.loss(0.05))),
            "standard errors off": right,
            "standard errors off, mu 2 % too large": wrong,
        }
    record(
        "risk-games",
        command="python -m pytest -m long tests/risk/test_laws.py",
        seed=seed,
        figures={"games": 1_000_000, "by mu": figures},
    )


def test_games_are_fair():
    """The game itself: E[e^(−ℓ)] = 1 where the row was there, and half the rows were."""
    there, loss = play(1.0, 100_000, np.random.default_rng(1))
    assert abs(score(there, 0.5)) < 3
    assert abs(score(np.exp(-loss[there]), 1.0)) < 3
    assert np.mean(loss[there] > 0) == pytest.approx(ndtr(0.5), abs=0.005)
