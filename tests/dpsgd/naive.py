"""DP-SGD and its losses the slow way: one row at a time, densities as they are defined."""

import copy
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.special import logsumexp

from expost.mechanisms.dpsgd import Adversary
from expost.torch.training import Step, Trainer
from expost.types import Neighbouring


@dataclass
class Recorder:
    """Keeps every step of a run."""

    steps: list[Step] = field(default_factory=list)

    def __call__(self, step: Step) -> None:
        self.steps.append(step)


def load(module, theta):
    """A copy of ``module`` with the trained parameters ``theta``, one vector."""
    module = copy.deepcopy(module)
    trained = [p for p in module.parameters() if p.requires_grad]
    with torch.no_grad():
        for p, part in zip(trained, theta.split([p.numel() for p in trained]), strict=True):
            p.copy_(part.view_as(p))
    return module


def gradient(module, loss, x, y, clip):
    """One row's clipped gradient by plain autograd, as NumPy float64."""
    trained = [p for p in module.parameters() if p.requires_grad]
    value = loss(module(x.unsqueeze(0)), y.unsqueeze(0))
    parts = torch.autograd.grad(value, trained)
    flat = np.concatenate([part.detach().double().numpy().ravel() for part in parts])
    return flat / max(1.0, float(np.linalg.norm(flat)) / clip)


def gradients(trainer: Trainer, theta, rows=None):
    """(n, d) of the data, or of other ``rows`` (X, y), at θ."""
    X, y = trainer.data if rows is None else rows
    module = load(trainer.module, theta)
    clip = trainer.mechanism.clip
    return np.array([gradient(module, trainer.loss, x, t, clip) for x, t in zip(X, y, strict=True)])


def log_normal(point, mean, scale):
    """log N(point; mean, s²I)."""
    gap = (point - mean) / scale
    return -0.5 * float(gap @ gap) - len(point) * np.log(scale * np.sqrt(2 * np.pi))


def scale_of(trainer: Trainer) -> float:
    """s of global sensitivity: σC where a row is removed, 2σC where it is replaced."""
    mechanism = trainer.mechanism
    return (
        mechanism.noise_multiplier
        * mechanism.clip
        * (2 if mechanism.relation is Neighbouring.REPLACE else 1)
    )


def losses(trainer: Trainer, steps: list[Step], scales=None):
    """(n,) Σ log p(noisy sum ∣ the past, D) − log p(noisy sum ∣ the past, D')."""
    n = len(trainer.data[0])
    total = np.zeros(n)
    for number, step in enumerate(steps):
        g = gradients(trainer, step.parameters)
        other = np.zeros_like(g)
        if trainer.candidates is not None:
            other[:] = gradients(trainer, step.parameters, trainer.candidates)
        s = scale_of(trainer) if scales is None else scales[number]
        noisy_sum = step.noisy_sum.numpy()
        inside = np.isin(np.arange(n), step.batch)
        for row in range(n):
            rest = g[inside & (np.arange(n) != row)].sum(axis=0)
            total[row] += _term(trainer, noisy_sum, rest, g[row], other[row], inside[row], s)
    return total


def _term(trainer, noisy_sum, rest, mine, other, was_in, s):
    if trainer.adversary is Adversary.KNOWN_BATCHES:
        with_row = log_normal(noisy_sum, rest + (mine if was_in else 0), s)
        return with_row - log_normal(noisy_sum, rest + (other if was_in else 0), s)
    q = trainer.mechanism.sampling_rate

    def mixture(gradient):
        logs = [log_normal(noisy_sum, rest, s), log_normal(noisy_sum, rest + gradient, s)]
        return logsumexp(logs, b=[1 - q, q])

    return mixture(mine) - mixture(other)
