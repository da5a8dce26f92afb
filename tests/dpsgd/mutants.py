"""Faults to seed in the trainer, most of them from real bugs of DP-SGD code: each breaks a law."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.stats import norm

from dpsgd.laws import CLIP, LAWS, SIGMA
from expost.mechanisms import dpsgd
from expost.mechanisms.dpsgd import SGDMechanism, Transcript
from expost.torch import account, training
from expost.torch.draws import SeededDraws
from expost.torch.gradients import RowGradients

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault: what it is, and the law that should see it first."""

    name: str
    law: str
    patch: Patch

    def killed_by(self) -> str | None:
        """The first law that fails, or None: it survived."""
        order = [self.law, *(name for name in LAWS if name != self.law)]
        with pytest.MonkeyPatch.context() as patch:
            self.patch(patch)
            for name in order:
                try:
                    LAWS[name]()
                except (AssertionError, pytest.fail.Exception):
                    return name
        return None


MUTANTS: list[Mutant] = []


def mutant(name: str, *, law: str) -> Callable[[Patch], Patch]:
    """Seed the decorated patch."""

    def register(patch: Patch) -> Patch:
        MUTANTS.append(Mutant(name=name, law=law, patch=patch))
        return patch

    return register


# Clipping.


@mutant("no clipping", law="densities")
def _(patch):
    patch.setattr(RowGradients, "clipped", lambda self, gradients: gradients)


@mutant("clipping after the sum", law="densities")
def _(patch):
    patch.setattr(RowGradients, "clipped", lambda self, gradients: gradients)
    plain = training._Run._pass

    def summed(self, looked, batch, noise):
        total, products = plain(self, looked, batch, noise)
        return total * min(1.0, self.gradients.clip / float(total.norm())), products

    patch.setattr(training._Run, "_pass", summed)


@mutant("each layer clipped on its own", law="densities")
def _(patch):
    def layers(self, gradients):
        parts = gradients.split(self._sizes, dim=1)
        return torch.cat(
            [p * (self.clip / p.norm(dim=1, keepdim=True)).clamp(max=1.0) for p in parts], dim=1
        )

    patch.setattr(RowGradients, "clipped", layers)


@mutant("gradients scaled to C, short ones too", law="densities")
def _(patch):
    patch.setattr(
        RowGradients, "clipped", lambda self, g: g * self.clip / g.norm(dim=1, keepdim=True)
    )


@mutant("clipped to the squared length", law="densities")
def _(patch):
    def squared(self, g):
        return g * (self.clip / g.norm(dim=1, keepdim=True) ** 2).clamp(max=1.0)

    patch.setattr(RowGradients, "clipped", squared)


# Noise.


@mutant("noise without C", law="densities")
def _(patch):
    patch.setattr(SGDMechanism, "noise_scale", property(lambda self: self.noise_multiplier))


@mutant("noise of one removed row where rows are replaced", law="densities")
def _(patch):
    patch.setattr(
        SGDMechanism, "noise_scale", property(lambda self: self.noise_multiplier * self.clip)
    )


def _redrawn(patch, wrong):
    """Noise from ``wrong(draws, count)`` in place of independent normals."""
    plain = SeededDraws.normals
    patch.setattr(
        SeededDraws, "normals", lambda self, count: wrong(lambda k: plain(self, k), count)
    )


@mutant("noise of the variance for its scale", law="noise")
def _(patch):
    _redrawn(patch, lambda draw, count: SIGMA * CLIP * draw(count))


@mutant("the same noise for all layers", law="noise")
def _(patch):
    _redrawn(patch, lambda draw, count: np.resize(draw(4), count))


@mutant("the same noise at every step", law="noise")
def _(patch):
    fixed = np.random.default_rng(0).standard_normal(5000)
    _redrawn(patch, lambda draw, count: fixed[:count])


@mutant("noise that is uniform", law="noise")
def _(patch):
    _redrawn(patch, lambda draw, count: np.sqrt(12) * (norm.cdf(draw(count)) - 0.5))


@mutant("no noise at all", law="noise")
def _(patch):
    _redrawn(patch, lambda draw, count: 1e-12 * draw(count))


@mutant("noise accounted for but not added", law="noise")
def _(patch):
    plain = training._Run.step

    def forgetful(self, number):
        step = plain(self, number)
        object.__setattr__(step, "noisy_sum", step.noisy_sum - step.noise)
        return step

    patch.setattr(training._Run, "step", forgetful)


# Batches and steps.


def _stepped(patch, divisor):
    """θ moved again from where it was, by the noisy sum over ``divisor(trainer, step)``."""
    plain = training._Run.step

    def step(self, number):
        made = plain(self, number)
        rate = self.trainer.learning_rate / divisor(self.trainer, made)
        self.theta = made.parameters - rate * made.noisy_sum
        return made

    patch.setattr(training._Run, "step", step)


@mutant("batch size read from n", law="step")
def _(patch):
    _stepped(patch, lambda trainer, step: trainer.mechanism.rows)


@mutant("batch size read from the batch", law="step")
def _(patch):
    _stepped(patch, lambda trainer, step: max(1, len(step.batch)))


@mutant("batches of a fixed size", law="batches")
def _(patch):
    def fixed(self, count, rate):
        return np.isin(np.arange(count), self.rng.permutation(count)[: round(count * rate)])

    patch.setattr(SeededDraws, "coins", fixed)


@mutant("one coin for all rows", law="batches")
def _(patch):
    patch.setattr(
        SeededDraws, "coins", lambda self, count, rate: np.full(count, self.rng.random() < rate)
    )


@mutant("rows sampled too rarely", law="batches")
def _(patch):
    patch.setattr(SeededDraws, "coins", lambda self, count, rate: self.rng.random(count) < rate**2)


@mutant("a filter that never closes", law="lengths")
def _(patch):
    patch.setattr(training._Run, "_filtered", lambda self, rows, g: g)


# What is not a number.


@mutant("a gradient that is NaN counted as 0", law="not a number")
def _(patch):
    plain = RowGradients.clipped
    patch.setattr(
        RowGradients, "clipped", lambda self, g: plain(self, torch.nan_to_num(g, 0.0, 1.0, -1.0))
    )


@mutant("a gradient that is NaN let through the clip", law="not a number")
def _(patch):
    def unchecked(self, g):
        return g * (self.clip / g.norm(dim=1, keepdim=True)).clamp(max=1.0)

    patch.setattr(RowGradients, "clipped", unchecked)
    patch.setattr(
        Transcript,
        "_values",
        lambda self, at, **values: [np.broadcast_to(v, at.shape) for v in values.values()],
    )
    patch.setattr(torch, "isfinite", lambda value: torch.ones_like(value, dtype=torch.bool))


# The account.


@mutant("a loss without its square", law="densities")
def _(patch):
    plain = Transcript.add_known

    def add(self, rows, inner, square, scale, error=0.0, **options):
        plain(self, rows, inner - 0.5 * square, square, scale, error, **options)

    patch.setattr(Transcript, "add_known", add)


@mutant("a loss of the other sign", law="expectation")
def _(patch):
    plain = Transcript._add
    patch.setattr(Transcript, "_add", lambda self, at, term, error: plain(self, at, -term, error))


@mutant("losses × 1.2", law="expectation")
def _(patch):
    plain = Transcript._add
    patch.setattr(
        Transcript, "_add", lambda self, at, term, error: plain(self, at, 1.2 * term, error)
    )


@mutant("losses × 0.8", law="fixed gradients")
def _(patch):
    plain = Transcript._add
    patch.setattr(
        Transcript, "_add", lambda self, at, term, error: plain(self, at, 0.8 * term, error)
    )


@mutant("hidden batches without the row's own gradient", law="densities")
def _(patch):
    plain = account.StepAccount._hidden

    def absent(self, rows, inside, products, scale, error):
        plain(self, rows, np.zeros_like(inside), products, scale, error)

    patch.setattr(account.StepAccount, "_hidden", absent)


@mutant("hidden batches with the coin left out", law="densities")
def _(patch):
    patch.setattr(dpsgd, "hidden_term", lambda exponent, rate: np.asarray(exponent))


@mutant("a row replaced accounted for as removed", law="densities")
def _(patch):
    plain = account.Products.of.__func__

    def removed(cls, g, noise, others):
        return plain(cls, g, noise, None)

    patch.setattr(account.Products, "of", classmethod(removed))


@mutant("the noise of the step before", law="densities")
def _(patch):
    plain = account.Products.of.__func__
    before = {}

    def late(cls, g, noise, others):
        used = before.get(len(noise), noise)
        before[len(noise)] = noise
        return plain(cls, g, used, others)

    patch.setattr(account.Products, "of", classmethod(late))


@mutant("all rows accounted for, whoever was in the batch", law="densities")
def _(patch):
    plain_pass, plain_add = training._Run._pass, account.StepAccount.add

    def everyone(self, looked, batch, noise):
        return plain_pass(self, np.arange(len(batch)), batch, noise)

    def add(self, looked, batch, products, norm, scale):
        plain_add(self, np.arange(len(batch)), batch, products, norm, scale)

    patch.setattr(training._Run, "_pass", everyone)
    patch.setattr(account.StepAccount, "add", add)
