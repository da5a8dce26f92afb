"""Losses equal the log-density ratio of the whole transcript, recomputed row by row."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from dpsgd.naive import Recorder, gradients, losses, scale_of
from expost.torch.draws import SeededDraws
from expost.torch.gradients import RowGradients
from expost.torch.training import prepare

ROWS, STEPS = 7, 4


def perceptron():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def convolution():
    return nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.GroupNorm(1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    )


NETS = {"perceptron": (perceptron, (5,)), "convolution": (convolution, (1, 3, 3))}


def setting(net="perceptron", *, rate=None, relation="remove", first=False, seed=0, **more):
    torch.manual_seed(seed)
    make, shape = NETS[net]
    rng = np.random.default_rng(seed)
    X, y = 3 * rng.normal(size=(ROWS, *shape)), rng.integers(3, size=ROWS)
    candidates = None
    if relation == "replace":
        count = 1 if first else ROWS
        candidates = (rng.normal(size=(count, *shape)), rng.integers(3, size=count))
    options = {
        "noise_multiplier": 0.7,
        "clip": 1.3,
        "learning_rate": 0.8,
        "steps": STEPS,
        "dtype": torch.float64,
    }
    return prepare(
        make(), X, y, sampling_rate=rate, relation=relation, candidates=candidates, **options | more
    )


def run(trainer, seed=1):
    recorder = Recorder()
    return trainer.run(SeededDraws(np.random.default_rng(seed)), recorder), recorder.steps


CASES = list(
    itertools.product(NETS, [None, 0.4], ["remove", "replace"], ["known-batches", "hidden-batches"])
)


@pytest.mark.parametrize(("net", "rate", "relation", "adversary"), CASES)
def test_losses_are_the_ratio_of_densities(net, rate, relation, adversary):
    trainer = setting(net, rate=rate, relation=relation, adversary=adversary)
    training, steps = run(trainer)
    expected = losses(trainer, steps)
    assert len(steps) == STEPS
    assert np.max(np.abs(expected)) > 0.1
    np.testing.assert_allclose(training.losses, expected, rtol=0, atol=1e-9)
    low, high = training.transcript.interval()
    assert np.all((low <= training.losses) & (training.losses <= high))
    # The densities themselves are subtracted at about 1e-13.
    assert np.all((low <= expected + 1e-12) & (expected - 1e-12 <= high))
    assert np.max(high - low) < 1e-9
    # It would have seen the other relation, adversary or scale.
    assert np.max(np.abs(losses(trainer, steps, [1.01 * s.scale for s in steps]) - expected)) > 1e-4


def test_the_two_adversaries_differ_where_batches_are_sampled():
    losses = [
        run(setting(rate=0.4, adversary=a))[0].losses for a in ("known-batches", "hidden-batches")
    ]
    assert np.max(np.abs(losses[0] - losses[1])) > 0.05
    full = [run(setting(adversary=a))[0].losses for a in ("known-batches", "hidden-batches")]
    np.testing.assert_array_equal(full[0], full[1])


def test_one_candidate_stands_in_for_all():
    trainer = setting(rate=0.5, relation="replace", first=True, adversary="hidden-batches")
    training, steps = run(trainer)
    np.testing.assert_allclose(training.losses, losses(trainer, steps), rtol=0, atol=1e-9)


@pytest.mark.parametrize("relation", ["remove", "replace"])
def test_local_sensitivity(relation):
    trainer = setting(relation=relation, sensitivity="local", row=2)
    training, steps = run(trainer)
    scales = []
    for step in steps:
        apart = gradients(trainer, step.parameters)[2]
        if trainer.candidates is not None:
            apart = apart - gradients(trainer, step.parameters, trainer.candidates)[2]
        scales.append(0.7 * np.linalg.norm(apart))
    np.testing.assert_allclose([step.scale for step in steps], scales, rtol=1e-12)
    np.testing.assert_allclose(training.losses, losses(trainer, steps, scales), rtol=0, atol=1e-9)
    # The chosen row is as far apart as the noise is made for.
    assert training.transcript.separation[2] == pytest.approx(np.sqrt(STEPS) / 0.7, rel=1e-12)


def test_filtered_rows_lose_nothing_more():
    trainer = setting(norm_budget=2.0)
    training, steps = run(trainer)
    spent, expected = np.zeros(ROWS), np.zeros(ROWS)
    s = scale_of(trainer)
    for step in steps:
        g = gradients(trainer, step.parameters)
        spent += (g**2).sum(axis=1)
        g[spent > 4.0] = 0.0
        noise = step.noisy_sum.numpy() - g.sum(axis=0)
        expected += (2 * g @ noise + (g**2).sum(axis=1)) / (2 * s**2)
    assert np.any(spent > 4.0)
    np.testing.assert_allclose(training.losses, expected, rtol=0, atol=1e-9)
    assert np.max(training.profile().distance) <= 2.0


def test_steps_follow_the_noisy_sums():
    trainer = setting(rate=0.4, divisor=2.5)
    training, steps = run(trainer)
    for step, after in itertools.pairwise(steps):
        moved = step.parameters - 0.8 / 2.5 * step.noisy_sum
        torch.testing.assert_close(after.parameters, moved, rtol=0, atol=1e-14)
    last = torch.cat([p.detach().reshape(-1) for p in training.module.parameters()])
    moved = steps[-1].parameters - 0.8 / 2.5 * steps[-1].noisy_sum
    torch.testing.assert_close(last, moved, rtol=0, atol=1e-14)


def test_single_precision_gives_nearly_the_same():
    double, _ = run(setting("convolution"))
    single, _ = run(setting("convolution", dtype=torch.float32))
    assert next(single.module.parameters()).dtype == torch.float32
    np.testing.assert_allclose(single.losses, double.losses, rtol=0, atol=1e-4)
    assert not np.array_equal(single.losses, double.losses)
    # What is published in it is still the sum of its own gradients and the noise.
    trainer = setting("convolution", dtype=torch.float32)
    _, steps = run(trainer)
    noise = steps[0].noisy_sum.numpy() - gradients(trainer, steps[0].parameters).sum(axis=0)
    np.testing.assert_allclose(noise, steps[0].noise.numpy(), rtol=0, atol=1e-5)


def test_blocks_change_nothing(monkeypatch):
    plain, _ = run(setting(rate=0.6, adversary="hidden-batches"))
    monkeypatch.setattr(RowGradients, "block_rows", 2)
    blocked, _ = run(setting(rate=0.6, adversary="hidden-batches"))
    np.testing.assert_allclose(blocked.losses, plain.losses, rtol=0, atol=1e-12)


def test_frozen_parameters_are_not_trained():
    torch.manual_seed(0)
    net = perceptron()
    net[0].requires_grad_(False)
    rng = np.random.default_rng(0)
    trainer = prepare(
        net,
        rng.normal(size=(ROWS, 5)),
        rng.integers(3, size=ROWS),
        noise_multiplier=1.0,
        clip=1.0,
        learning_rate=0.5,
        steps=3,
        dtype=torch.float64,
    )
    training, steps = run(trainer)
    assert len(steps[0].noise) == 4 * 3 + 3
    assert torch.equal(training.module[0].weight, net[0].weight.double())
    np.testing.assert_allclose(training.losses, losses(trainer, steps), rtol=0, atol=1e-9)
