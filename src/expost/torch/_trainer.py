"""The reference trainer: DP-SGD that keeps account of what it gives away about every row.

Conventions
-----------
As in :mod:`expost.mechanisms.dpsgd`. A step is θ ← θ − α·(Σ g + b)/divisor, over the batch's rows;
the divisor is a public constant, never the number of rows that happened to be sampled.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expost._numerics import gamma
from expost.errors import ConvergenceError
from expost.mechanisms.dpsgd import Adversary, SGDMechanism, Transcript
from expost.torch._account import Products, StepAccount, squares
from expost.torch._draws import Draws, SeededDraws
from expost.torch._gradients import RowGradients
from expost.torch._training import Training
from expost.types import FloatArray, IntArray

__all__ = ["Step", "Trainer"]

Loss = Callable[[Any, Any], torch.Tensor]
Rows = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One step as it was made. For the curator only: it holds the noise.

    ``parameters``  (d,) θ before the step; ``noisy_sum`` (d,) what the step published;
    ``noise`` (d,) b; ``scale`` s; ``batch`` the rows in it.
    """

    number: int
    parameters: torch.Tensor
    batch: IntArray
    noisy_sum: torch.Tensor
    noise: torch.Tensor
    scale: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trainer:
    """A training that may be run many times; :func:`expost.torch.train` runs one.

    ``data``         (X, y); ``candidates`` the rows that stand in, one for each row or one for all.
    ``divisor``      of the noisy sum.
    ``epoch_steps``  after how many steps losses are remembered.
    ``local_row``    the row whose gradient sets the noise (local sensitivity), or None: global.
    """

    module: torch.nn.Module
    loss: Loss
    data: Rows
    mechanism: SGDMechanism
    learning_rate: float
    divisor: float
    steps: int
    epoch_steps: int
    candidates: Rows | None = None
    adversary: Adversary = Adversary.KNOWN_BATCHES
    every: int = 1
    local_row: int | None = None

    def run(self, draws: Draws, on_step: Callable[[Step], None] | None = None) -> Training:
        """Train once with these draws."""
        run = _Run(self, draws)
        for number in range(self.steps):
            step = run.step(number)
            if on_step is not None:
                on_step(step)
            if (number + 1) % self.epoch_steps == 0 or number + 1 == self.steps:
                run.transcript.end_epoch()
        module = copy.deepcopy(self.module)
        with torch.no_grad():
            for name, value in run.gradients.named(run.theta).items():
                module.get_parameter(name).copy_(value)
        return Training(
            module=module,
            transcript=run.transcript,
            learning_rate=self.learning_rate,
            divisor=self.divisor,
            every=self.every,
            is_local=self.local_row is not None,
            is_simulation=isinstance(draws, SeededDraws),
        )


class _Run:
    """One run while it is made."""

    def __init__(self, trainer: Trainer, draws: Draws) -> None:
        self.trainer = trainer
        self.draws = draws
        self.gradients = RowGradients(trainer.module, trainer.loss, trainer.mechanism.clip)
        self.theta = self.gradients.start.clone()
        self.transcript = Transcript(trainer.mechanism, adversary=trainer.adversary)
        self._account = StepAccount(self.transcript, self.gradients.dimension)
        # Σ∥g∥² of the filter.
        self._spent: FloatArray = np.zeros(trainer.mechanism.rows)

    def step(self, number: int) -> Step:
        """Make one step and keep account of it."""
        trainer, theta = self.trainer, self.theta
        how = trainer.mechanism
        full = how.sampling_rate == 1
        everyone = np.ones(how.rows, dtype=np.bool_)
        batch = everyone if full else self.draws.coins(how.rows, how.sampling_rate)
        scale = self._scale()
        # Drawn first, so that b·g is read while the gradients exist; it knows nothing of them.
        noise = torch.from_numpy(self.draws.normals(self.gradients.dimension) * scale)
        noise = noise.to(theta.device)
        hidden = self.transcript.adversary is Adversary.HIDDEN_BATCHES
        looked = np.flatnonzero(everyone if hidden and number % trainer.every == 0 else batch)
        total, products = self._pass(looked, batch, noise)
        noisy = total + noise
        norm = float(torch.linalg.vector_norm(noise))
        self._account.add(looked, batch, products, norm, scale)
        self.theta = (theta.double() - trainer.learning_rate / trainer.divisor * noisy).to(
            theta.dtype
        )
        if not bool(torch.isfinite(self.theta).all()):
            raise ConvergenceError(
                f"learning_rate={trainer.learning_rate!r}: parameters are no longer finite after"
                f" {number + 1} steps; lower it."
            )
        return Step(
            number=number,
            parameters=theta,
            batch=np.flatnonzero(batch),
            noisy_sum=noisy,
            noise=noise,
            scale=scale,
        )

    def _scale(self) -> float:
        """s; local: σ·∥difference of the two sums∥, one row's gradient or its exchange.

        D5.3 Sec. 5 with erratum 11: ∥n·ĝ(D) − (n−1)·ĝ(D')∥ = ∥g∥, and ∥g − g'∥ where replaced.
        """
        row, how = self.trainer.local_row, self.trainer.mechanism
        if row is None:
            return how.noise_scale
        X, y = self.trainer.data
        difference = self.gradients.at(self.theta, X[row : row + 1], y[row : row + 1])
        others = self._others(np.array([row]))
        if others is not None:
            difference = difference - others
        scale = how.noise_multiplier * float(torch.linalg.vector_norm(difference))
        if not scale > 0:
            raise ConvergenceError(
                f"row={row}: its gradient, or the difference to its candidate's, has become 0, and"
                " with it the noise of local sensitivity; use sensitivity='global'."
            )
        return scale

    def _others(self, rows: IntArray) -> torch.Tensor | None:
        """(rows, d) or (1, d): g' of these rows."""
        if self.trainer.candidates is None:
            return None
        X, y = self.trainer.candidates
        if len(X) > 1:
            X, y = X[rows], y[rows]
        return self.gradients.at(self.theta, X, y)

    def _pass(
        self, looked: IntArray, batch: NDArray[np.bool_], noise: torch.Tensor
    ) -> tuple[torch.Tensor, Products]:
        """The sum of the batch's gradients, and the products of all rows that are looked at."""
        X, y = self.trainer.data
        total = torch.zeros_like(noise)
        parts = []
        for block in self.gradients.blocks(len(looked)):
            rows = looked[block]
            g = self._filtered(rows, self.gradients.at(self.theta, X[rows], y[rows]))
            total += torch.from_numpy(batch[rows].astype(np.float64)).to(g.device) @ g
            parts.append(Products.of(g, noise, self._others(rows)))
        return total, Products.joined(parts)

    def _filtered(self, rows: IntArray, g: torch.Tensor) -> torch.Tensor:
        """Rows whose budget is spent count as 0 from then on (Feldman and Zrnic 2021, Alg. 3)."""
        budget = self.trainer.mechanism.norm_budget
        if budget is None:
            return g
        self._spent[rows] += squares(g)
        # So that Σ∥g∥² ≤ B² holds in spite of the rounding of squares and sums.
        room = budget**2 * (1 - 2 * gamma(self.gradients.dimension + self.trainer.steps + 8))
        active = torch.from_numpy(self._spent[rows] <= room).to(g.device)
        return torch.where(active.unsqueeze(1), g, 0.0)
