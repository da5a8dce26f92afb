"""One training by DP-SGD in one of two worlds, and what its transcript says of which it was.

Conventions
-----------
D, D'   the rows with the row in question, and without it or with its candidate.
d       ḡ(D) − ḡ(D'), the difference of the two sums of clipped gradients: the row's clipped
        gradient, less its candidate's. All that differs between the worlds (D5.3 Alg. 1).
s       the noise's standard deviation: σC, replaced 2σC; local sensitivity: σ∥d∥ (erratum 11).
b       the step's noise. The step publishes the sum of its world plus b.
loss    log p(transcript ∣ D) − log p(transcript ∣ D'): a step adds (2b·d + ∥d∥²)/(2s²) in the
        world D and (2b·d − ∥d∥²)/(2s²) in the world D'.

The divisor is n, the rows of D, in both worlds: a public constant.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from expost.errors import ConvergenceError
from expost.torch.attacks import fresh_copy
from expost.torch.gradients import RowGradients
from expost.types import FloatArray

__all__ = ["PairTraining", "Trial"]

Rows = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One training: (steps,) the loss so far, ∥d∥ and s at each step; the accuracy, or NaN."""

    loss: FloatArray
    length: FloatArray
    scale: FloatArray
    accuracy: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PairTraining:
    """The settings of a training that can be made in either world.

    ``rows``       (X, y): the row, its candidate if it is replaced, then those of both worlds,
                   of which there are ``shared``.
    ``local``      whether the noise is scaled to ∥d∥.
    ``adam``       whether noisy gradients go through Adam: post-processing, which the adversary
                   can follow.
    ``fresh``      whether each training draws its own first parameters (the adversary knows them).
    ``test``       rows on which the accuracy is measured, or None.
    """

    module: torch.nn.Module
    loss: Callable[[Any, Any], torch.Tensor]
    rows: Rows
    shared: int
    noise_multiplier: float
    clip: float
    learning_rate: float
    divisor: float
    steps: int
    local: bool = False
    adam: bool = False
    fresh: bool = False
    test: Rows | None = None

    def run(self, seed: np.random.SeedSequence, with_row: bool) -> Trial:
        """Train once on D or on D'."""
        rng = np.random.default_rng(seed)
        module = fresh_copy(self.module, rng) if self.fresh else self.module
        gradients = RowGradients(module, self.loss, self.clip)
        theta = gradients.start.clone()
        rule = _Adam(self.learning_rate) if self.adam else _Descent(self.learning_rate)
        loss, length, scale = np.zeros((3, self.steps))
        for step in range(self.steps):
            total, difference = self._sums(gradients, theta, with_row)
            length[step] = float(torch.linalg.vector_norm(difference))
            scale[step] = self._scale(length[step])
            noise = torch.from_numpy(rng.standard_normal(len(theta)) * scale[step])
            sign = 1 if with_row else -1
            term = (2 * float(noise @ difference) + sign * length[step] ** 2) / 2
            loss[step] = term / scale[step] ** 2
            moved = theta.double() - rule.move((total + noise) / self.divisor)
            theta = moved.to(theta.dtype)
            if not bool(torch.isfinite(theta).all()):
                raise ConvergenceError(
                    f"learning_rate={self.learning_rate!r}: parameters are no longer finite after"
                    f" {step + 1} steps; lower it."
                )
        return Trial(
            loss=np.cumsum(loss),
            length=length,
            scale=scale,
            accuracy=self._accuracy(module, gradients, theta),
        )

    def _sums(
        self, gradients: RowGradients, theta: torch.Tensor, with_row: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum of the world's clipped gradients, and d."""
        X, y = self.rows
        count = len(X) - self.shared
        total, pair = torch.zeros(len(theta), dtype=torch.float64), []
        for block in gradients.blocks(len(X)):
            g = gradients.at(theta, X[block], y[block])
            first = max(0, count - block.start)
            pair += list(g[:first])
            total += g[first:].sum(dim=0)
        if count == 1:
            return (total + pair[0] if with_row else total), pair[0]
        return total + pair[0 if with_row else 1], pair[0] - pair[1]

    def _scale(self, length: float) -> float:
        if not self.local:
            return self.noise_multiplier * self.clip * (len(self.rows[0]) - self.shared)
        if not length > 0:
            raise ConvergenceError(
                "sensitivity='local': the two worlds have the same gradients, and the noise would"
                " be 0; use 'global'."
            )
        return self.noise_multiplier * length

    def _accuracy(
        self, module: torch.nn.Module, gradients: RowGradients, theta: torch.Tensor
    ) -> float:
        if self.test is None:
            return math.nan
        X, y = self.test
        with torch.no_grad():
            parts = [
                torch.func.functional_call(module, gradients.named(theta), (block,))
                for block in X.split(1000)
            ]
        return float((torch.cat(parts).argmax(dim=1) == y).double().mean())


class _Descent:
    """θ ← θ − α·g̃ (D5.3 Alg. 1, line 12)."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def move(self, gradient: torch.Tensor) -> torch.Tensor:
        return self._rate * gradient


class _Adam:
    """Kingma and Ba (2015), Algorithm 1, with their constants."""

    _DECAY = 0.9, 0.999
    _LEAST = 1e-8

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._mean = self._square = torch.zeros(1, dtype=torch.float64)
        self._steps = 0

    def move(self, gradient: torch.Tensor) -> torch.Tensor:
        first, second = self._DECAY
        self._steps += 1
        self._mean = first * self._mean + (1 - first) * gradient
        self._square = second * self._square + (1 - second) * gradient.square()
        mean = self._mean / (1 - first**self._steps)
        square = self._square / (1 - second**self._steps)
        return self._rate * mean / (square.sqrt() + self._LEAST)
