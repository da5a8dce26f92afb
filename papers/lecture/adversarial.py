"""Min–max adversarial regularisation: a classifier that learns against its own attacker.

Conventions
-----------
f       the classifier; f(x) its probabilities.
h       the inference model: of (f(x), y), the probability that (x, y) was a training row.
D, D'   the training rows; reference rows of the same source, on which f's loss is never taken.

Nasr, Shokri and Houmansadr (2018) play the game

    min_f max_h  L_D(f) + λ·G(f, h),   G = ½ mean_D log h(f(x), y) + ½ mean_D' log(1 − h(f(x), y)),

by turns: h ascends G for k steps on batches of D and D', then f descends loss + λ·log h on a batch
of D (their Algorithm 1: the part of the game that D takes part in, doubled). G is −log 2 where h
knows nothing, and 0 where it knows all.

With ``through_reference`` f descends all of L + λ·G. The part that they leave out pulls f on D' to
where members are, that is to the labels of D': f learns from them, tests better for it, and gives
D' away too.

It is a defence by example. f learns to fool this h, on these reference rows; a row that it still
reveals to another attacker is not visible, and nothing is guaranteed: no ε follows from λ.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from expost import _checks
from expost.errors import ConvergenceError, InvalidInput
from expost.torch.training import as_tensors
from expost.types import Audience, FloatArray
from papers.common.drawn import Drawn
from papers.common.figures import Display
from papers.lecture import displays

__all__ = ["KNOWS_NOTHING", "AdversarialTraining", "InferenceModel", "adversarial_regularization"]

Rows = tuple[torch.Tensor, torch.Tensor]

# G of an attacker who tosses a coin.
KNOWS_NOTHING = -math.log(2)
# Log probabilities below this look alike to h: a certain classifier must not blow up its inputs.
_LEAST_LOG = -20.0
_HIDDEN = 64


class InferenceModel(torch.nn.Module):  # type: ignore[misc]  # torch ships no types here
    """h: two hidden layers on log f(x), the label, and the log probability of that label.

    The last follows from the other two; it spares h to learn the product of them.
    """

    def __init__(self, classes: int, hidden: int = _HIDDEN) -> None:
        super().__init__()
        self.classes = classes
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2 * classes + 1, hidden),
            torch.nn.ReLU(),
            torch.nn.Linear(hidden, hidden),
            torch.nn.ReLU(),
            torch.nn.Linear(hidden, 1),
        )

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(rows,) the log odds of having been a training row, of f's outputs before softmax."""
        logs = functional.log_softmax(outputs, dim=1).clamp(min=_LEAST_LOG)
        label = functional.one_hot(labels, self.classes).to(logs.dtype)
        own = torch.sum(label * logs, dim=1, keepdim=True)
        logits: torch.Tensor = self.layers(torch.cat([logs, label, own], dim=1))
        return logits.squeeze(1)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AdversarialTraining(Drawn):
    """What a training against an attacker gives back. For the curator only, but for ``module``.

    ``module``     the trained copy f.
    ``inference``  h as it stood at the end: it was trained on who was a member.
    ``weight``     λ.
    ``losses``     (epochs,) the mean of f's own loss over D's batches.
    ``gains``      (epochs,) G on the batches drawn for h, before each step of it: about
                   ``KNOWS_NOTHING`` to 0, and a little below where f has just fooled it. NaN where
                   ``weight`` is 0: there is no h to ask.
    """

    module: torch.nn.Module
    inference: torch.nn.Module
    weight: float
    losses: FloatArray
    gains: FloatArray

    audience = Audience.CURATOR_ONLY

    def display(self) -> Display:
        """Return the model's loss and its attacker's gain over the epochs."""
        return displays.adversarial_training(self)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the softmax of the module's outputs, (rows, classes)."""
        return probabilities(self.module, X)

    def __repr__(self) -> str:
        gain = f", gain {self.gains[-1]:.3g} of {KNOWS_NOTHING:.3g} … 0" if self.weight else ""
        return (
            f"AdversarialTraining(weight={self.weight:g}, {len(self.gains)} epochs, loss"
            f" {self.losses[-1]:.3g}{gain}; no guarantee)"
        )


def adversarial_regularization(
    module: torch.nn.Module,
    X: Any,
    y: Any,
    X_reference: Any,
    y_reference: Any,
    *,
    weight: float = 1.0,
    epochs: int = 50,
    batch_rows: int = 64,
    learning_rate: float = 1e-3,
    inference_steps: int = 1,
    inference_learning_rate: float = 1e-2,
    inference: torch.nn.Module | None = None,
    through_reference: bool = False,
    loss: Callable[[Any, Any], torch.Tensor] = functional.cross_entropy,
    random_state: int = 0,
) -> AdversarialTraining:
    """Train a copy of ``module`` whose outputs no longer identify members to an inference model.

    ``module``           maps rows to one output a class, before softmax.
    ``X_reference, y_reference``  rows of the same source that are not trained on: what members are
                         to look like. They steer the training, and so are not safe from it.
    ``weight``           λ, the price of the attacker's gain; 0 trains without a defence.
    ``batch_rows``       of D, and of D', in a step.
    ``inference_steps``  k, h's steps before each of f's.
    ``inference``        h, called with (outputs, labels) for log odds; :class:`InferenceModel`.
    ``through_reference``  whether f also learns to make reference rows look like members: then
                         they must be such that may be trained on, and known to have been.
    ``loss``             of (outputs, labels) for a batch, its mean.
    ``random_state``     of the batches and of h's first parameters; the module's are those it has.
    """
    game = _Game(
        module=module,
        members=_labelled(module, X, y, "X, y"),
        others=_labelled(module, X_reference, y_reference, "X_reference, y_reference"),
        weight=_weight(weight),
        batch_rows=_checks.integer("batch_rows", batch_rows, least=1),
        rates=(
            _checks.positive("learning_rate", learning_rate),
            _checks.positive("inference_learning_rate", inference_learning_rate),
        ),
        inference_steps=_checks.integer("inference_steps", inference_steps, least=1),
        inference=inference,
        through_reference=bool(through_reference),
        loss=loss,
        seed=_checks.integer("random_state", random_state, least=0),
    )
    return game.play(_checks.integer("epochs", epochs, least=1))


def probabilities(module: torch.nn.Module, X: Any) -> FloatArray:
    """Return the softmax of a module's outputs, in its evaluation mode, (rows, classes)."""
    parameter = next(module.parameters())
    rows = torch.as_tensor(np.asarray(X)).to(parameter.device, parameter.dtype)
    was_training = module.training
    module.eval()
    with torch.no_grad():
        shares = functional.softmax(module(rows).double(), dim=1)
    module.train(was_training)
    return np.asarray(shares.cpu().numpy())


class _Game:
    """One training: f, h, their optimisers, and where batches come from."""

    def __init__(
        self,
        *,
        module: torch.nn.Module,
        members: Rows,
        others: Rows,
        weight: float,
        batch_rows: int,
        rates: tuple[float, float],
        inference_steps: int,
        inference: torch.nn.Module | None,
        through_reference: bool,
        loss: Callable[[Any, Any], torch.Tensor],
        seed: int,
    ) -> None:
        self.members, self.others = members, others
        self.weight, self.batch_rows, self.loss = weight, batch_rows, loss
        self.inference_steps, self.through_reference = inference_steps, through_reference
        self.draws = torch.Generator().manual_seed(seed)
        self.f = copy.deepcopy(module)
        self.h = self._inference(inference, seed)
        self._descends = torch.optim.Adam(self.f.parameters(), lr=rates[0])
        self._ascends = torch.optim.Adam(self.h.parameters(), lr=rates[1])

    def play(self, epochs: int) -> AdversarialTraining:
        """Play all turns of all epochs."""
        history = [self._epoch() for _ in range(epochs)]
        losses, gains = np.array(history, dtype=np.float64).T
        return AdversarialTraining(
            module=self.f,
            inference=self.h,
            weight=self.weight,
            losses=np.ascontiguousarray(losses),
            gains=np.ascontiguousarray(gains),
        )

    def _epoch(self) -> tuple[float, float]:
        """Mean loss and gain over one pass through D."""
        losses, gains, rows = 0.0, [], 0
        for batch in self._batches(self.members):
            # A defence that is not paid for needs no attacker, and is as fast as plain training.
            gains += [self._attack() for _ in range(self.inference_steps if self.weight else 0)]
            losses += self._defend(batch) * len(batch[0])
            rows += len(batch[0])
        gain = math.fsum(gains) / len(gains) if gains else 0.0
        if not math.isfinite(losses) or not math.isfinite(gain):
            raise ConvergenceError(
                "the training against an attacker left the finite numbers; lower learning_rate,"
                " inference_learning_rate or weight."
            )
        return losses / rows, gain if gains else math.nan

    def _attack(self) -> float:
        """Move h one step up G, with f fixed; return G before it."""
        (inside, y_inside), (outside, y_outside) = self._draw(self.members), self._draw(self.others)
        with torch.no_grad():
            members, others = self.f(inside), self.f(outside)
        gain = (self._log_h(members, y_inside) + self._log_h(others, y_outside, -1)) / 2
        self._ascends.zero_grad()
        (-gain).backward()
        self._ascends.step()
        return float(gain.detach())

    def _defend(self, batch: Rows) -> float:
        """Move f one step down loss + λ·log h on a batch of D, or down L + λ·G; h is fixed."""
        rows, labels = batch
        outputs = self.f(rows)
        loss = self.loss(outputs, labels)
        total = loss
        if self.weight and self.through_reference:
            others, their_labels = self._draw(self.others)
            gain = self._log_h(outputs, labels) + self._log_h(self.f(others), their_labels, -1)
            total = loss + self.weight / 2 * gain
        elif self.weight:
            total = loss + self.weight * self._log_h(outputs, labels)
        self._descends.zero_grad()
        total.backward()
        self._descends.step()
        return float(loss.detach())

    def _log_h(self, outputs: torch.Tensor, labels: torch.Tensor, sign: int = 1) -> torch.Tensor:
        """Return the mean of log h, or of log(1 − h) for −1."""
        return functional.logsigmoid(sign * self.h(outputs, labels)).mean()

    def _batches(self, data: Rows) -> Iterator[Rows]:
        order = torch.randperm(len(data[0]), generator=self.draws)
        for chosen in order.split(self.batch_rows):
            yield data[0][chosen], data[1][chosen]

    def _draw(self, data: Rows) -> Rows:
        chosen = torch.randint(
            len(data[0]), (min(self.batch_rows, len(data[0])),), generator=self.draws
        )
        return data[0][chosen], data[1][chosen]

    def _inference(self, inference: torch.nn.Module | None, seed: int) -> torch.nn.Module:
        """Return a copy of the user's h, or a new one with parameters from the seed."""
        if inference is not None:
            if not isinstance(inference, torch.nn.Module):
                raise InvalidInput(
                    f"inference: is a {type(inference).__name__}; pass a torch.nn.Module of"
                    " (outputs, labels), or None."
                )
            return copy.deepcopy(inference)
        with torch.no_grad():
            outputs = self.f(self.members[0][:1])
        if outputs.ndim != 2:
            raise InvalidInput(
                f"module: its outputs have {outputs.ndim} dimensions: must have two, one number for"
                " each row and class."
            )
        classes = int(outputs.shape[1])
        largest = int(max(self.members[1].max(), self.others[1].max()))
        if not largest < classes:
            raise InvalidInput(
                f"y: holds the class {largest}, and the module has {classes} outputs: must be"
                " numbered from 0, with one output for each."
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return InferenceModel(classes).to(outputs.device, outputs.dtype)


def _labelled(module: torch.nn.Module, X: Any, y: Any, name: str) -> Rows:
    """Rows and whole class numbers."""
    if not isinstance(module, torch.nn.Module) or next(module.parameters(), None) is None:
        raise InvalidInput(
            f"module: is a {type(module).__name__}; pass a torch.nn.Module with parameters."
        )
    rows, labels = as_tensors(module, X, y, name)
    if labels.ndim != 1 or labels.is_floating_point() or not bool((labels >= 0).all()):
        raise InvalidInput(f"{name}: labels must be one integer a row, from 0.")
    return rows.to(next(module.parameters()).dtype), labels.long()


def _weight(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidInput(f"weight={value!r}: must be a finite number of at least 0.")
    return float(value)
