"""Laws that every run of DP-SGD keeps; the tests run them, and the mutants must break one.

Statistical laws have fixed seeds and fail by chance less than once in 10⁵ seeds. Rows that are one
coordinate each have gradients that no other row's noise touches, so that a training of n rows is
n independent ones.
"""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, chi2, kstest, norm
from torch import nn

from dpsgd.naive import Recorder, gradients, losses, scale_of
from expost.errors import ConvergenceError
from expost.torch.draws import SeededDraws
from expost.torch.training import prepare

CHANCE = 1e-5
CLIP, SIGMA = 1.3, 0.9


def small(*, rows=6, rate=None, relation="remove", adversary="known-batches", **more):
    """A small perceptron on random rows, in float64."""
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    X, y = 3 * rng.normal(size=(rows, 4)), rng.integers(3, size=rows)
    candidates = (rng.normal(size=(rows, 4)), rng.integers(3, size=rows))
    options = {"noise_multiplier": SIGMA, "clip": CLIP, "learning_rate": 0.8, "steps": 3}
    return prepare(
        net,
        X,
        y,
        sampling_rate=rate,
        relation=relation,
        candidates=candidates if relation == "replace" else None,
        adversary=adversary,
        dtype=torch.float64,
        **options | more,
    )


def run(trainer, seed=5):
    recorder = Recorder()
    return trainer.run(SeededDraws(np.random.default_rng(seed)), recorder), recorder.steps


def densities() -> None:
    """Losses are the ratio of the transcript's densities, 1e-9."""
    for rate in (None, 0.5):
        for relation in ("remove", "replace"):
            for adversary in ("known-batches", "hidden-batches"):
                trainer = small(rate=rate, relation=relation, adversary=adversary)
                training, steps = run(trainer)
                expected = losses(trainer, steps)
                np.testing.assert_allclose(training.losses, expected, rtol=0, atol=1e-9)


def noise() -> None:
    """What is published less the clipped gradients is N(0, s²I), each number drawn anew."""
    trainer = small(rows=4, steps=60)
    _, steps = run(trainer)
    rest = [s.noisy_sum.numpy() - gradients(trainer, s.parameters).sum(axis=0) for s in steps]
    scores = np.concatenate(rest) / scale_of(trainer)
    assert kstest(scores, norm.cdf).pvalue > CHANCE
    spread = chi2(len(scores)).cdf
    assert CHANCE < spread(float(scores @ scores)) < 1 - CHANCE
    assert spread(float(scores @ scores) / 1.15**2) < CHANCE
    assert len(np.unique(np.round(scores, 9))) == len(scores) == 60 * 35


def step() -> None:
    """θ moves by −α/(q·n) times what was published, whoever was in the batch."""
    trainer = small(rows=10, rate=0.3, steps=6)
    _, steps = run(trainer)
    for now, after in itertools.pairwise(steps):
        moved = now.parameters - 0.8 / 3.0 * now.noisy_sum
        torch.testing.assert_close(after.parameters, moved, rtol=0, atol=1e-12)


def batches() -> None:
    """Every row is in a batch with probability q, whoever else is."""
    rows, rate = 30, 0.3
    trainer = small(rows=rows, rate=rate, steps=80)
    _, steps = run(trainer)
    inside = np.array([np.isin(np.arange(rows), s.batch) for s in steps])
    assert binomtest(int(inside.sum()), inside.size, rate).pvalue > CHANCE
    # Two rows are together in it with probability q²: batch sizes scatter.
    sizes = inside.sum(axis=1)
    spread = float(np.var(sizes)) / (rows * rate * (1 - rate))
    assert 0.5 < spread < 1.8


def lengths() -> None:
    """No row moves a sum by more than C, nor all sums by more than the filter allows."""
    training, _ = run(small(rows=10))
    assert np.all(training.profile().distance <= CLIP * np.sqrt(3))
    assert np.max(training.profile().distance) > 0.99 * CLIP * np.sqrt(3)
    filtered, _ = run(small(rows=10, norm_budget=1.5))
    assert np.all(filtered.profile().distance <= 1.5)
    assert filtered.guarantee.gaussian.mu == pytest.approx(1.5 / (SIGMA * CLIP))


def not_a_number() -> None:
    """A gradient that is not finite is refused, neither clipped nor counted as 0."""
    trainer = small()
    X, _ = trainer.data
    for wrong in (float("nan"), float("inf")):
        worse = X.clone()
        worse[2, 1] = wrong
        object.__setattr__(trainer, "data", (worse, trainer.data[1]))
        with pytest.raises(ConvergenceError):
            run(trainer)


def apart(
    rows: int, *, relation="remove", rate=None, adversary="known-batches", sigma=1.75, **more
):
    """Row i has one feature of its own; logistic loss, so that gradients react to the noise."""
    rng = np.random.default_rng(8)
    X = np.diag(rng.uniform(1.0, 1.8, size=rows))
    y = rng.integers(2, size=(rows, 1)).astype(float)
    net = nn.Linear(rows, 1, bias=False)
    nn.init.zeros_(net.weight)
    options = {
        "noise_multiplier": sigma,
        "clip": 0.8,
        "learning_rate": 0.7,
        "divisor": 1.0,
        "steps": 3,
        "loss": nn.functional.binary_cross_entropy_with_logits,
        "dtype": torch.float64,
    }
    return prepare(
        net,
        X,
        y,
        relation=relation,
        candidates=(X, 1 - y) if relation == "replace" else None,
        sampling_rate=rate,
        adversary=adversary,
        **options | more,
    )


def sampled_losses(trainer, trainings: int, seed: int = 0):
    """(trainings × n,) losses, and the largest μ of a row among them."""
    losses, widest = [], 0.0
    for draw in range(trainings):
        training = trainer.run(SeededDraws(np.random.default_rng([seed, draw])))
        losses.append(training.losses)
        widest = max(widest, float(np.max(training.transcript.separation)))
    return np.concatenate(losses), widest


def deviation(loss) -> float:
    """How many standard errors the mean of e^(−loss) is from 1.

    Of independent losses, or of (trainings, n) whose rows are not independent of each other.
    """
    values = np.exp(-loss).reshape(len(loss), -1).mean(axis=1)
    return float((values.mean() - 1) / (values.std(ddof=1) / np.sqrt(len(values))))


EXPECTATIONS = {
    "full batch, remove": ({}, 40),
    "full batch, replace": ({"relation": "replace"}, 40),
    "Poisson, known": ({"rate": 0.6}, 80),
    "Poisson, hidden": ({"rate": 0.6, "adversary": "hidden-batches"}, 100),
}


def expectation() -> None:
    """E[e^(−loss)] = 1, at μ ≤ 1, with draws enough to see losses × 1.2."""
    for more, trainings in EXPECTATIONS.values():
        loss, widest = sampled_losses(apart(400, **more), trainings)
        assert widest <= 1.0
        assert abs(deviation(loss)) < 4.5
        assert deviation(1.2 * loss) > 4.5


def fixed_gradients(rows: int = 1500, trainings: int = 3) -> None:
    """Where gradients do not react, the loss is N(μ²/2, μ²), and not with μ × 1.2."""
    rng = np.random.default_rng(4)
    size = rng.uniform(0.2, 1.0, size=rows)
    trainer = prepare(
        nn.Linear(rows, 1, bias=False),
        np.diag(size),
        np.ones((rows, 1)),
        loss=lambda outputs, targets: (outputs * targets).sum(),
        noise_multiplier=2.0,
        clip=0.8,
        learning_rate=0.1,
        steps=3,
        dtype=torch.float64,
    )
    mu = np.sqrt(3) * np.minimum(size, 0.8) / 1.6
    np.testing.assert_allclose(run(trainer)[0].transcript.separation, mu, rtol=1e-9)
    loss, _ = sampled_losses(trainer, trainings)
    mu = np.tile(mu, trainings)
    assert kstest((loss - mu**2 / 2) / mu, norm.cdf).pvalue > CHANCE
    wrong = 1.2 * mu
    assert kstest((loss - wrong**2 / 2) / wrong, norm.cdf).pvalue < CHANCE


LAWS: dict[str, Callable[[], None]] = {
    "densities": densities,
    "noise": noise,
    "step": step,
    "batches": batches,
    "lengths": lengths,
    "not a number": not_a_number,
    "expectation": expectation,
    "fixed gradients": fixed_gradients,
}
