"""DP-SGD as a mechanism for ``choose_epsilon``: trainings are sampled, their losses exact."""

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

    An attacker sees the transcript of a training. The rows' privacy losses represent it, where
    other mechanisms have a vector of parameters.

    Parameters
    ----------
    trainer : Trainer
        The training.
    noise : callable
        The function that returns σ for an ε.
    """

    trainer: Trainer
    noise: Callable[[float], float]

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.trainer.mechanism.rows

    @property
    def description(self) -> str:
        """The release in one line."""
        mechanism = self.trainer.mechanism
        rate = mechanism.sampling_rate
        batch = "full batch" if rate == 1 else f"Poisson rate {rate:g}"
        return (
            f"the transcript of {self.trainer.steps} steps of DP-SGD, clip {mechanism.clip:g},"
            f" {batch}, seen by an adversary with {self.trainer.adversary.value.replace('-', ' ')}"
        )

    def sample(self, epsilon: float, size: int, rng: np.random.Generator) -> FloatArray:
        """Return (size, n) the transcripts of ``size`` trainings, as the rows' losses.

        Parameters
        ----------
        epsilon : float
            The ε of the releases, which sets the noise.
        size : int
            The number of trainings.
        rng : np.random.Generator
            The generator of every draw.

        Returns
        -------
        FloatArray
            The losses in nats.
        """
        sigma = _checks.positive("noise_multiplier", self.noise(epsilon))
        mechanism = replace(self.trainer.mechanism, noise_multiplier=sigma)
        trainer = replace(self.trainer, mechanism=mechanism)
        with one_torch_thread():
            return np.stack([trainer.run(SeededDraws(rng)).losses for _ in range(size)])

    def losses(
        self, epsilon: float, models: FloatArray, seed: np.random.SeedSequence
    ) -> FloatArray:
        """Return (size, n) the losses, which are ``models`` themselves.

        Parameters
        ----------
        epsilon : float
            The ε of the releases.
        models : FloatArray
            (size, n) what :meth:`sample` returned.
        seed : np.random.SeedSequence
            Not used: nothing is estimated.

        Returns
        -------
        FloatArray
            The losses in nats.
        """
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
    """Return DP-SGD as a mechanism for ``choose_epsilon``.

    Use as ``choose_epsilon(X, y, mechanism=training_mechanism(module, X, y, …))``.

    Parameters
    ----------
    module : Any
        The network before the training.
    X, y : Any
        The rows and their labels.
    delta : float
        δ of the (ε, δ) that an ε means.
    noise_multiplier : callable, optional
        A function that gives σ for an ε; None: the least σ with which the whole run is (ε,
        δ)-private, batches hidden where they are sampled.
    options : Any
        Those of :func:`expost.torch.train` but its noise: clip, learning_rate, epochs or steps,
        sampling_rate, relation, candidates, adversary, ….

    Returns
    -------
    TrainingMechanism
        The mechanism.

    Raises
    ------
    InvalidInput
        If an argument is invalid.
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
        mechanism, steps = self.trainer.mechanism, self.trainer.steps
        if mechanism.sampling_rate == 1:
            mu = calibrate(GaussianNoise, epsilon=epsilon, delta=self.delta).mu
            return math.sqrt(steps) / mu * (1 + 2.0**-50)
        noise = calibrate(
            DPSGD,
            epsilon=epsilon,
            delta=self.delta,
            steps=steps,
            sampling_rate=mechanism.sampling_rate,
            relation=mechanism.relation,
        ).noise_multiplier
        # ``noise`` is in units of C; for replaced rows the noise multiplier is in units of 2C.
        return noise / 2 if mechanism.relation is Neighbouring.REPLACE else noise
