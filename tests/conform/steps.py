"""A private training step of three parts with explicit state, as in jax_privacy, and its faults.

``clipped_sum`` clips and sums, ``privatizer`` adds noise with a key as its state, and ``batches``
selects rows. A fault replaces one of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from expost.conformance import Claims
from expost.risk import DPSGD

CLIP, SIGMA, RATE, ALPHA = 1.3, 0.9, 0.25, 0.5
CLAIMS = Claims(
    clip=CLIP,
    noise_multiplier=SIGMA,
    sampling_rate=RATE,
    learning_rate=ALPHA,
    n_public=True,
)


def flat(gradients):
    """(rows, d), and how to split it again."""
    sizes = np.cumsum([part.shape[-1] for part in gradients.values()])[:-1]
    return np.concatenate(list(gradients.values()), axis=-1), sizes


def clipped(g, clip=CLIP):
    norms = np.linalg.norm(g, axis=1, keepdims=True)
    safe = np.where(np.isfinite(norms), g, 0.0)
    return safe * np.minimum(1.0, clip / np.where(np.isfinite(norms) & (norms > 0), norms, clip))


def clipped_sum(g, sizes):
    return clipped(g).sum(axis=0)


def normals(rng, total, step):
    return SIGMA * CLIP * rng.standard_normal(len(total))


def poisson(rng, n, rate, step):
    return np.flatnonzero(rng.random(n) < rate)


def spent(steps, rate):
    def epsilon(delta):
        return DPSGD(noise_multiplier=SIGMA, sampling_rate=rate, steps=steps()).epsilon(delta)

    return epsilon


@dataclass(frozen=True)
class Step:
    """One trainer; every part can be replaced."""

    total: Callable[..., Any] = clipped_sum
    total_if_sampled: Callable[..., Any] | None = None
    noise: Callable[..., Any] = normals
    batch: Callable[..., Any] = poisson
    divisor: Callable[..., float] = lambda n, rate, batch: n * rate
    empty: str = "noise"
    seed: object = None
    account: Callable[..., Any] = spent
    skip_not_finite: bool = False

    def __call__(self, task):
        rng = np.random.default_rng(self.seed() if callable(self.seed) else self.seed)
        theta, sizes = flat(task.parameters)
        made = 0
        sampled = task.rate < 1 and self.total_if_sampled is not None
        sum_of = self.total_if_sampled if sampled else self.total
        task.accountant = self.account(lambda: made, task.rate)
        while True:
            batch = self.batch(rng, len(task.X), task.rate, made)
            if self.empty == "skip" and not len(batch):
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                g, _ = flat(task.gradients(task.X[batch], task.y[batch]))
                total = sum_of(g, sizes)
                total = total + self.noise(rng, total, made)
            made += 1
            if self.empty == "no noise" and not len(batch):
                total = 0 * total
            if self.skip_not_finite and not np.all(np.isfinite(g)):
                total = 0 * np.ones_like(total)
            divisor = self.divisor(len(task.X), task.rate, batch)
            theta = theta - task.learning_rate * total / divisor
            yield dict(zip(task.parameters, np.split(theta, sizes), strict=True))


# -- faults ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A trainer that breaks a claim, and the check that is meant for it."""

    check: str
    step: Any
    claims: Claims = CLAIMS
    weakens: bool = True


def layer_by_layer(g, sizes):
    return np.concatenate([clipped(part).sum(axis=0) for part in np.split(g, sizes, axis=1)])


def pairs(g, sizes):
    """Microbatches of two rows: their mean is clipped, and counts twice."""
    if len(g) % 2:
        g = np.vstack([g, np.zeros_like(g[:1])])
    return 2 * clipped(g.reshape(-1, 2, g.shape[1]).mean(axis=1)).sum(axis=0)


def laplace(rng, total, step):
    return SIGMA * CLIP * rng.laplace(scale=np.sqrt(0.5), size=len(total))


def truncated(rng, total, step):
    return SIGMA * CLIP * np.clip(rng.standard_normal(len(total)), -3, 3)


def where_gradients_are(rng, total, step):
    return normals(rng, total, step) * (total != 0)


def all_steps_but_one(rng, total, step):
    return normals(rng, total, step) * (step != 10)


def all_coordinates_but_one(rng, total, step):
    return normals(rng, total, step) * (np.arange(len(total)) != 50)


class FirstEmptyWithout:
    """The first empty batch of a run has no noise."""

    def __call__(self, rng, total, step):
        self.seen = step > 0 and self.seen
        if self.seen or np.any(total):
            return normals(rng, total, step)
        self.seen = True
        return 0.0


class EveryThirdAgain:
    """The noise of every third step is that of the step before."""

    def __call__(self, rng, total, step):
        if step % 3 != 2:
            self.noise = normals(rng, total, step)
        return self.noise


class Correlated:
    """A tenth of the noise of a step is left in the next one: an autoregressive process."""

    def __call__(self, rng, total, step):
        new = normals(rng, total, step)
        self.noise = new if step == 0 else np.sqrt(0.99) * new + 0.1 * self.noise
        return self.noise


def key_of_the_step(rng, total, step):
    """The key is derived from the number of the step alone."""
    return normals(np.random.default_rng([11, step]), total, step)


def one_key_for_layers(rng, total, step):
    noise = normals(rng, total, step)
    noise[96:128] = noise[:32]
    return noise


def partly_shared(rng, total, step):
    """Noise with a common part, so that coordinates are correlated."""
    return np.sqrt(0.5) * normals(rng, total, step) + np.sqrt(0.5) * SIGMA * CLIP * rng.normal()


def fixed_size(rng, n, rate, step):
    return rng.permutation(n)[: round(n * rate)]


class Epochs:
    """Rows assigned to the batches of an epoch at random: each is in exactly one."""

    def __call__(self, rng, n, rate, step):
        count = round(1 / rate)
        if step % count == 0:
            self.batch = rng.integers(count, size=n)
        return np.flatnonzero(self.batch == step % count)


class Static:
    """The first batch, again and again."""

    def __call__(self, rng, n, rate, step):
        if step == 0:
            self.batch = poisson(rng, n, rate, step)
        return self.batch


class Twice:
    """Each batch is used for two successive steps."""

    def __call__(self, rng, n, rate, step):
        if step % 2 == 0:
            self.batch = poisson(rng, n, rate, step)
        return self.batch


def without_the_last(rng, n, rate, step):
    return poisson(rng, n - n // 7, rate, step)


def let_through(g, sizes):
    norms = np.linalg.norm(g, axis=1, keepdims=True)
    return (g * np.minimum(1.0, CLIP / np.maximum(norms, 1e-300))).sum(axis=0)


def half_the_steps(steps, rate):
    return spent(lambda: steps() // 2, rate)


def half_the_rate(steps, rate):
    return spent(steps, rate / 2)


def crash(g, sizes):
    if not len(g):
        raise IndexError("no rows")
    return clipped_sum(g, sizes)


def global_normals(rng, total, step):
    return SIGMA * CLIP * np.random.normal(size=len(total))  # noqa: NPY002 (the fault)


RIGHT = Step()
FAULTS = {
    "no clipping": Fault("clipping", Step(total=lambda g, sizes: g.sum(axis=0))),
    "clipping after the sum": Fault(
        "clipping", Step(total=lambda g, sizes: clipped(g.sum(axis=0, keepdims=True))[0])
    ),
    "the mean is clipped": Fault(
        "clipping",
        Step(
            total=lambda g, sizes: (
                clipped(g.sum(axis=0, keepdims=True) / max(1, len(g)))[0] * len(g)
            )
        ),
    ),
    "layer by layer": Fault("clipping", Step(total=layer_by_layer)),
    "microbatches": Fault("clipping", Step(total=pairs)),
    "clipped to 1.1 C": Fault(
        "clipping", Step(total=lambda g, s: clipped(g, 1.1 * CLIP).sum(axis=0))
    ),
    "no clipping where batches are sampled": Fault(
        "sampled clipping", Step(total_if_sampled=lambda g, sizes: g.sum(axis=0))
    ),
    "short gradients scaled up": Fault(
        "clipping",
        Step(total=lambda g, s: (CLIP * g / np.linalg.norm(g, axis=1, keepdims=True)).sum(axis=0)),
        replace(CLAIMS, not_finite="absent"),
        weakens=False,
    ),
    "a tenth less noise": Fault("noise scale", Step(noise=lambda *a: 0.9 * normals(*a))),
    "a tenth more noise": Fault(
        "noise scale", Step(noise=lambda *a: 1.1 * normals(*a)), weakens=False
    ),
    "no noise": Fault("noise scale", Step(noise=lambda rng, total, step: 0.0)),
    "noise only where gradients are": Fault("noise scale", Step(noise=where_gradients_are)),
    "one layer has half the noise": Fault(
        "noise scale", Step(noise=lambda *a: normals(*a) * np.r_[np.ones(160), np.full(32, 0.5)])
    ),
    "one layer has no noise": Fault(
        "noise scale", Step(noise=lambda *a: normals(*a) * np.r_[np.ones(160), np.zeros(32)])
    ),
    "one step has no noise": Fault("noise scale", Step(noise=all_steps_but_one)),
    "a late step has no noise": Fault(
        "noise scale", Step(noise=lambda r, total, step: normals(r, total, step) * (step != 200))
    ),
    "one coordinate has no noise": Fault("noise scale", Step(noise=all_coordinates_but_one)),
    "Laplace noise": Fault("noise distribution", Step(noise=laplace)),
    "truncated noise": Fault("noise distribution", Step(noise=truncated)),
    "one key for two layers": Fault("noise independence", Step(noise=one_key_for_layers)),
    "noise of the step before": Fault("noise independence", Step(noise=EveryThirdAgain())),
    "noise with a tenth of that before": Fault("noise independence", Step(noise=Correlated())),
    "noise with a common part": Fault("noise independence", Step(noise=partly_shared)),
    "a key of the step alone": Fault("seeds", Step(noise=key_of_the_step)),
    "a fixed seed": Fault("seeds", Step(seed=5)),
    "a seed that is claimed to be none": Fault(
        "seeds", Step(noise=global_normals), replace(CLAIMS, secure=True)
    ),
    "twice the divisor": Fault(
        "divisor", Step(divisor=lambda n, rate, batch: 2 * n * rate), weakens=False
    ),
    "divided by all rows": Fault("divisor", Step(divisor=lambda n, rate, batch: n), weakens=False),
    "divided by the sampled rows": Fault(
        "divisor", Step(divisor=lambda n, rate, batch: max(1, len(batch)))
    ),
    "n is not public": Fault("number of rows", Step(), replace(CLAIMS, n_public=False)),
    "a constant that depends on n": Fault(
        "number of rows",
        Step(divisor=lambda n, rate, batch: 30 * n / 144),
        replace(CLAIMS, divisor=30.0, n_public=False),
    ),
    "batches of a fixed size": Fault("sampling", Step(batch=fixed_size)),
    "each row once an epoch": Fault("sampling", Step(batch=Epochs())),
    "the same batch at every step": Fault("sampling", Step(batch=Static())),
    "each batch used twice": Fault("sampling", Step(batch=Twice())),
    "the last rows never sampled": Fault("sampling", Step(batch=without_the_last)),
    "sampled a fifth too often": Fault(
        "sampling", Step(batch=lambda r, n, q, s: poisson(r, n, min(1, 1.2 * q), s))
    ),
    "empty batches skipped": Fault("empty batches", Step(empty="skip")),
    "no noise for empty batches": Fault("empty batches", Step(empty="no noise")),
    "no noise for one empty batch": Fault("empty batches", Step(noise=FirstEmptyWithout())),
    "empty batches fail": Fault("empty batches", Step(total=crash), weakens=False),
    "NaN let through": Fault("not finite", Step(total=let_through)),
    "no step if NaN": Fault("not finite", Step(skip_not_finite=True)),
    "NaN counted as 0 where refused": Fault(
        "not finite", Step(), replace(CLAIMS, not_finite="refused"), weakens=False
    ),
    "half of the steps recorded": Fault("accountant", Step(account=half_the_steps)),
    "half of the rate recorded": Fault("accountant", Step(account=half_the_rate)),
}
