"""DP-SGD and adversarial regularisation as defences of :mod:`papers.lecture.compare`.

Each is a small frozen value with a name and a way to train; labels are numbers from 0. Trainings
are simulations: their noise comes from a seed, and nothing of them is a release.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from expost import _checks
from expost.errors import InvalidInput
from expost.numbers import upper_text
from expost.risk import DPSGD, calibrate
from expost.torch.draws import draws_from
from expost.torch.training import prepare
from expost.types import FloatArray, Neighbouring
from papers.lecture.adversarial import adversarial_regularization, probabilities

__all__ = ["AdversarialDefence", "DPSGDDefence", "Perceptron"]

Predict = Callable[[Any], FloatArray]
# Makes an untrained module of (features, classes).
Network = Callable[[int, int], torch.nn.Module]


@dataclass(frozen=True)
class Perceptron:
    """Layers of ``hidden`` rectified units each; without any, softmax regression."""

    hidden: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for units in self.hidden:
            _checks.integer("hidden", units, least=1)

    def __call__(self, features: int, classes: int) -> torch.nn.Module:
        """Return a new module; its parameters are drawn from torch's own generator."""
        layers: list[torch.nn.Module] = []
        for units in self.hidden:
            layers += [torch.nn.Linear(features, units), torch.nn.ReLU()]
            features = units
        return torch.nn.Sequential(*layers, torch.nn.Linear(features, classes))

    def __str__(self) -> str:
        return f"{' and '.join(map(str, self.hidden))} units" if self.hidden else "linear"


@dataclass(frozen=True, kw_only=True)
class DPSGDDefence:
    """DP-SGD with all rows in each step, and the least noise that keeps (ε, δ).

    ``epsilon, delta``  of a row more or less.
    ``clip``            C, to which each row's gradient is clipped.
    ``scale``           rows are multiplied by it first.
    """

    epsilon: float
    delta: float = 1e-5
    clip: float = 1.0
    learning_rate: float = 1.0
    steps: int = 50
    network: Network = Perceptron()
    scale: float = 1.0

    def __post_init__(self) -> None:
        _checks.positive("epsilon", self.epsilon)
        _checks.probability("delta", self.delta)
        _checks.positive("clip", self.clip)
        _checks.positive("learning_rate", self.learning_rate)
        _checks.integer("steps", self.steps, least=1)
        _checks.positive("scale", self.scale)

    @property
    def name(self) -> str:
        """As it stands in the table."""
        return (
            f"DP-SGD, ε = {upper_text(self.epsilon)}, δ = {upper_text(self.delta)}, {self.network}"
        )

    @property
    def noise_multiplier(self) -> float:
        """σ."""
        return _noise_multiplier(self.epsilon, self.delta, self.steps)

    def attack_limit(self, X: Any, y: Any) -> float:
        """Return (1 + advantage)/2 of noise that hides one row exchanged for another."""
        guarantee = DPSGD(
            noise_multiplier=self.noise_multiplier,
            steps=self.steps,
            relation=Neighbouring.REPLACE,
        )
        return (1 + guarantee.advantage) / 2

    def trained(self, X: Any, y: Any, seed: int) -> Predict:
        """Train once, with noise and first parameters from ``seed``."""
        rows, labels = _arrays(X, y, self.scale)
        module = _new(self.network, rows, labels, seed)
        trainer = prepare(
            module,
            rows,
            labels,
            noise_multiplier=self.noise_multiplier,
            clip=self.clip,
            learning_rate=self.learning_rate,
            steps=self.steps,
        )
        training = trainer.run(draws_from(np.random.default_rng(seed)))
        return _predicts(training.module, self.scale)


@dataclass(frozen=True, kw_only=True, eq=False)
class AdversarialDefence:
    """Min–max adversarial regularisation; see :mod:`papers.lecture.adversarial`.

    ``weight``     λ; 0 is the same network without a defence, to compare with.
    ``reference``  (X, y) rows of the same source that are neither members nor judged on, y the
                   numbers of classes; needed where ``weight`` > 0.
    ``scale``      rows are multiplied by it first.
    """

    weight: float = 1.0
    reference: tuple[Any, Any] | None = None
    network: Network = Perceptron((64,))
    epochs: int = 100
    batch_rows: int = 64
    learning_rate: float = 1e-3
    inference_steps: int = 1
    inference_learning_rate: float = 1e-2
    through_reference: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.weight and self.reference is None:
            raise InvalidInput(
                f"reference=None: weight={self.weight!r} needs rows (X, y) that are not trained on;"
                " give some, or weight=0 for no defence."
            )
        _checks.positive("scale", self.scale)

    @property
    def name(self) -> str:
        """As it stands in the table."""
        network = f"{self.network}, {self.epochs} epochs"
        if not self.weight:
            return f"no defence, {network}"
        kind = "adversarial, both ways" if self.through_reference else "adversarial"
        return f"{kind}, λ = {self.weight:g}, {network}"

    def attack_limit(self, X: Any, y: Any) -> None:
        """None: nothing is guaranteed."""

    def trained(self, X: Any, y: Any, seed: int) -> Predict:
        """Play one game, with batches and first parameters from ``seed``."""
        rows, labels = _arrays(X, y, self.scale)
        # Without a defence they are not used.
        others = (
            (rows, labels)
            if not self.weight or self.reference is None
            else _arrays(*self.reference, self.scale)
        )
        training = adversarial_regularization(
            _new(self.network, rows, labels, seed),
            rows,
            labels,
            *others,
            weight=self.weight,
            epochs=self.epochs,
            batch_rows=self.batch_rows,
            learning_rate=self.learning_rate,
            inference_steps=self.inference_steps,
            inference_learning_rate=self.inference_learning_rate,
            through_reference=self.through_reference,
            random_state=seed,
        )
        return _predicts(training.module, self.scale)


@lru_cache(maxsize=64)
def _noise_multiplier(epsilon: float, delta: float, steps: int) -> float:
    """Kept: finding it takes as long as a small training."""
    return calibrate(DPSGD, epsilon=epsilon, delta=delta, steps=steps).noise_multiplier


def _arrays(X: Any, y: Any, scale: float) -> tuple[Any, Any]:
    return _checks.matrix(X) * scale, np.asarray(y)


def _new(network: Network, rows: Any, labels: Any, seed: int) -> torch.nn.Module:
    """Return an untrained module in double precision; torch's generator is left unchanged."""
    if labels.dtype.kind not in "iu" or not labels.min(initial=0) >= 0:
        raise InvalidInput("y: must be the number of each row's class, from 0.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_checks.integer("seed", seed, least=0))
        return network(rows.shape[1], int(labels.max()) + 1).double()


def _predicts(module: torch.nn.Module, scale: float) -> Predict:
    def predict_proba(X: Any) -> FloatArray:
        return probabilities(module, _checks.matrix(X, min_rows=1) * scale)

    return predict_proba
