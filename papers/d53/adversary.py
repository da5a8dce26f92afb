"""The strong adversary as an experiment: D5.3's Exp^DI (Def. 1) with Algorithm 1.

Conventions are those of :mod:`papers.d53.pair`. Every other training is made on D, the ones
between on D': the adversary, undecided before, says D where the loss is above 0.
"""

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from expost import _checks
from expost.engine.threads import available_cores
from expost.errors import InvalidInput
from expost.torch.gradients import check_module
from expost.torch.training import as_tensors
from expost.types import Neighbouring
from papers.common.trials import Trials
from papers.d53.experiment import Experiment
from papers.d53.pair import PairTraining, Trial

__all__ = ["prepare_pair", "strong_adversary"]

Loss = Callable[[Any, Any], torch.Tensor]


def strong_adversary(
    module: torch.nn.Module,
    X: Any,
    y: Any,
    *,
    row: int,
    candidate: tuple[Any, Any] | None = None,
    trainings: int,
    noise_multiplier: float,
    clip: float,
    learning_rate: float,
    steps: int,
    loss: Loss = torch.nn.functional.cross_entropy,
    sensitivity: str = "global",
    optimizer: str = "sgd",
    fresh: bool = False,
    test: tuple[Any, Any] | None = None,
    belief: float = 0.9,
    confidence: float = 0.95,
    workers: int | None = None,
    checkpoint: str | Path | None = None,
    random_state: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Experiment:
    """Train ``trainings`` times, half with ``row`` and half without, and play the adversary.

    The adversary sees every noisy gradient and the first parameters, knows all other rows and both
    versions of this one, and sums the evidence (D5.3 Alg. 1). Full batch: an epoch is a step.

    ``candidate``    (x, y) of the row that stands in for it in D' (bounded); None: it is left out.
    ``noise_multiplier``, ``clip``, ``learning_rate``, ``steps``, ``loss``
                     as in :func:`expost.torch.train`.
    ``sensitivity``  "global": the noise is σC, 2σC where the row is replaced; "local": σ times the
                     distance of the two sums at each step, which reaches the bound.
    ``optimizer``    "sgd", or "adam": which then works on the noisy gradients.
    ``fresh``        every training starts from parameters that its layers draw again.
    ``test``         (X, y) on which accuracies are measured.
    ``belief``       ρ_β, of which it is counted how often beliefs pass it.
    ``confidence``   of every interval.
    ``workers``      processes of one thread each; None: one for each processor. A result does not
                     depend on it.
    ``checkpoint``   a file of the finished trainings, from which the same call continues. It
                     holds the row's losses: for the curator only.
    ``random_state`` a seed, or None: drawn from the operating system (and kept in the checkpoint).
    ``progress``     receives the number of finished trainings and of all.
    """
    training = prepare_pair(
        module,
        X,
        y,
        row=row,
        candidate=candidate,
        noise_multiplier=noise_multiplier,
        clip=clip,
        learning_rate=learning_rate,
        steps=steps,
        loss=loss,
        sensitivity=sensitivity,
        optimizer=optimizer,
        fresh=fresh,
        test=test,
    )
    if random_state is not None:
        random_state = _checks.integer("random_state", random_state, least=0)
    trials = Trials(
        work=_Worlds(training),
        count=_checks.integer("trainings", trainings, least=2),
        fields=("loss", "length", "scale", "accuracy"),
        workers=available_cores()
        if workers is None
        else _checks.integer("workers", workers, least=1),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        digest=_digest(training),
        entropy=random_state,
        progress=progress,
    )
    _checks.probability("belief", belief)
    _checks.probability("confidence", confidence)
    results = trials.run()
    return Experiment(
        losses=results["loss"],
        lengths=results["length"],
        scales=results["scale"],
        accuracies=results["accuracy"],
        truth=np.arange(trials.count) % 2 == 0,
        noise_multiplier=training.noise_multiplier,
        relation=Neighbouring.REMOVE if candidate is None else Neighbouring.REPLACE,
        is_local=training.local,
        belief=belief,
        confidence=confidence,
    )


def prepare_pair(
    module: torch.nn.Module,
    X: Any,
    y: Any,
    *,
    row: int,
    candidate: tuple[Any, Any] | None,
    noise_multiplier: float,
    clip: float,
    learning_rate: float,
    steps: int,
    loss: Loss,
    sensitivity: str,
    optimizer: str,
    fresh: bool,
    test: tuple[Any, Any] | None,
) -> PairTraining:
    """Return the checked training that is repeated many times."""
    check_module(module)
    module = copy.deepcopy(module)
    if next(module.parameters()).device.type != "cpu":
        raise InvalidInput("module: is not on the CPU, where the trainings are made; call cpu().")
    data = as_tensors(module, X, y, "X, y")
    n = len(data[0])
    if not (n >= 2 and _checks.integer("row", row, least=0) < n):
        raise InvalidInput(f"row={row!r}: must be the number of one of {n} rows, of at least two.")
    kept = torch.arange(n) != row
    rows = [[part[row : row + 1], part[kept]] for part in data]
    if candidate is not None:
        if not isinstance(candidate, tuple | list) or len(candidate) != 2:
            raise InvalidInput("candidate: must be a pair (row, label).")
        other = as_tensors(
            module,
            torch.as_tensor(candidate[0]).unsqueeze(0),
            torch.as_tensor(candidate[1]).reshape(1, *data[1].shape[1:]),
            "candidate",
        )
        if other[0].shape[1:] != data[0].shape[1:] or other[1].dtype != data[1].dtype:
            raise InvalidInput(
                "candidate: must be shaped as a row of X, with a label like those of y."
            )
        rows = [[mine, its, rest] for (mine, rest), its in zip(rows, other, strict=True)]
    return PairTraining(
        module=module,
        loss=loss,
        rows=(torch.cat(rows[0]), torch.cat(rows[1])),
        shared=n - 1,
        noise_multiplier=_checks.positive("noise_multiplier", noise_multiplier),
        clip=_checks.positive("clip", clip),
        learning_rate=_checks.positive("learning_rate", learning_rate),
        divisor=float(n),
        steps=_checks.integer("steps", steps, least=1),
        local=_checks.one_of("sensitivity", sensitivity, ("global", "local")) == "local",
        adam=_checks.one_of("optimizer", optimizer, ("sgd", "adam")) == "adam",
        fresh=bool(fresh),
        test=None if test is None else as_tensors(module, test[0], test[1], "test"),
    )


@dataclass(frozen=True)
class _Worlds:
    """The work of a worker: one training, in the world of its number."""

    training: PairTraining

    def __call__(self, number: int, seed: np.random.SeedSequence) -> dict[str, Any]:
        trial: Trial = self.training.run(seed, number % 2 == 0)
        return {
            "loss": trial.loss,
            "length": trial.length,
            "scale": trial.scale,
            "accuracy": trial.accuracy,
        }


def _digest(training: PairTraining) -> str:
    """Of everything that a trial depends on but its seed."""
    digest = hashlib.sha256()
    named = {f"data {k}": part for k, part in enumerate((*training.rows, *(training.test or ())))}
    named |= training.module.state_dict()
    for name, tensor in named.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    settings = ("noise_multiplier", "clip", "learning_rate", "divisor", "steps", "local", "adam")
    values = {name: getattr(training, name) for name in (*settings, "fresh", "shared")}
    loss = getattr(training.loss, "__qualname__", type(training.loss).__qualname__)
    digest.update(f"{values} {training.module!r} {loss}".encode())
    return digest.hexdigest()
