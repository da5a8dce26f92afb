"""DP-SGD as a mechanism whose ε is to be chosen: its trainings are sampled, their losses exact."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from expost import _checks
from expost.engine.threads import one_torch_thread
from expost.risk import DPSGD, GaussianNoise, calibrate
from expost.torch.draws import SeededDraws
from expost.torch.training import Trainer, prepare
from expost.types import FloatArray, Neighbouring

__all__ = ["TrainingMechanism", "training_mechanism"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainingMechanism:
    """A training at any ε (a :class:`~expost.epsilon.SampledMechanism`).

    What an attacker sees of a training is its transcript, and all that a transcript says of the
    rows is their losses: these stand for it where other mechanisms have a vector of parameters.

    ``noise``  σ for an ε.
    """

    trainer: Trainer
    noise: Callable[[float], float]

    @property
    def rows(self) -> int:
        """n."""
        return self.trainer.mechanism.rows

    @property
    def description(self) -> str:
        """What would be released."""
        how = self.trainer.mechanism
        batch = "full batch" if how.sampling_rate == 1 else f"Poisson rate {how.sampling_rate:g}"
        return (
            f"the transcript of {self.trainer.steps} steps of DP-SGD, clip {how.clip:g}, {batch},"
            f" seen by an adversary with {self.trainer.adversary.value.replace('-', ' ')}"
        )

    def sample(self, epsilon: float, size: int, rng: np.random.Generator) -> FloatArray:
        """(size, n) the transcripts of so many trainings, by what they say of the rows."""
        sigma = _checks.positive("noise_multiplier", self.noise(epsilon))
        mechanism = replace(self.trainer.mechanism, noise_multiplier=sigma)
        trainer = replace(self.trainer, mechanism=mechanism)
        with one_torch_thread():
            return np.stack([trainer.run(SeededDraws(rng)).losses for _ in range(size)])

    def losses(
        self, epsilon: float, models: FloatArray, seed: np.random.SeedSequence
    ) -> FloatArray:
        """(size, n) the losses that ``models`` are."""
        return models


def training_mechanism(
    module: Any,
    X: Any,
    y: Any,
    *,
    delta: float,
    noise_multiplier: Callable[[float], float] | None = None,
    **options: Any,
) -> TrainingMechanism:
    """For ``choose_epsilon(X, y, mechanism=training_mechanism(module, X, y, …))``.

    ``delta``             of the (ε, δ) that an ε means.
    ``noise_multiplier``  a function that gives σ for an ε; None: the least σ with which the whole
                          run is (ε, δ)-private, batches hidden where they are sampled.
    ``options``           those of :func:`expost.torch.train` but its noise: clip, learning_rate,
                          epochs or steps, sampling_rate, relation, candidates, adversary, …
    """
    delta = _checks.probability("delta", delta)
    for name in ("random_state", "on_step"):
        if name in options:
            raise TypeError(f"{name} is an option of train, not of a mechanism")
    trainer = prepare(module, X, y, noise_multiplier=1.0, **options)
    noise = _Calibrated(trainer, delta) if noise_multiplier is None else noise_multiplier
    return TrainingMechanism(trainer=trainer, noise=noise)


@dataclass(frozen=True)
class _Calibrated:
    """The least σ for (ε, δ)."""

    trainer: Trainer
    delta: float

    def __call__(self, epsilon: float) -> float:
        how, steps = self.trainer.mechanism, self.trainer.steps
        if how.sampling_rate == 1:
            mu = calibrate(GaussianNoise, epsilon=epsilon, delta=self.delta).mu
            return math.sqrt(steps) / mu * (1 + 2.0**-50)
        noise = calibrate(
            DPSGD,
            epsilon=epsilon,
            delta=self.delta,
            steps=steps,
            sampling_rate=how.sampling_rate,
            relation=how.relation,
        ).noise_multiplier
        # It counts in units of C, and noise for rows that are replaced is in units of 2C here.
        return noise / 2 if how.relation is Neighbouring.REPLACE else noise
