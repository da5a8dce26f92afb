"""``train``: DP-SGD on a module, with the exposure of every row."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from expost import _checks
from expost.errors import InvalidInput, PrivacyLeakWarning, SeededReleaseWarning
from expost.mechanisms.dpsgd import Adversary, SGDMechanism
from expost.notices import warn
from expost.torch._draws import draws_from
from expost.torch._gradients import check_module
from expost.torch._trainer import Loss, Rows, Step, Trainer
from expost.torch._training import Training
from expost.types import Neighbouring

__all__ = ["prepare", "train"]


def train(
    module: torch.nn.Module,
    X: Any,
    y: Any,
    *,
    noise_multiplier: float,
    clip: float,
    learning_rate: float,
    epochs: int | None = None,
    steps: int | None = None,
    loss: Loss = torch.nn.functional.cross_entropy,
    sampling_rate: float | None = None,
    divisor: float | None = None,
    relation: Neighbouring | str = Neighbouring.REMOVE,
    candidates: tuple[Any, Any] | None = None,
    sensitivity: str = "global",
    row: int | None = None,
    adversary: Adversary | str = Adversary.KNOWN_BATCHES,
    every: int = 1,
    norm_budget: float | None = None,
    dtype: torch.dtype | None = None,
    random_state: int | np.random.Generator | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Training:
    """Train a copy of ``module`` by DP-SGD and keep account of what each step says of every row.

    ``loss``              of (outputs, targets) for a batch of one row.
    ``noise_multiplier``  σ: the noise on the sum of gradients has standard deviation σC, where
                          rows are replaced 2σC (local sensitivity: σ times one row's difference).
    ``clip``              C, the length to which each row's gradient is clipped.
    ``epochs``, ``steps`` one of them; an epoch is about 1/sampling_rate steps.
    ``sampling_rate``     None: every step takes all rows; else each row takes part in each step
                          with this probability (Poisson sampling).
    ``divisor``           public constant that the noisy sum is divided by; n·sampling_rate unless
                          it is given.
    ``relation``          "remove", or "replace" by ``candidates`` = (rows, labels), one for each
                          row or one for all.
    ``sensitivity``       "local" scales the noise to the gradient of ``row`` (D5.3 Sec. 5): for
                          experiments, since it depends on the data and promises nothing.
    ``adversary``         "known-batches", or "hidden-batches": one who does not see whether the
                          row was sampled. The latter needs the gradients of all rows at each step
                          (1/sampling_rate times the work), or at ``every`` k-th, with losses whose
                          interval then holds but with probability 1e-6.
    ``norm_budget``       leaves a row out for good before √Σ∥g∥² passes it (full batch): makes
                          each row's own epsilon a promise.
    ``dtype``             torch.float64 to compute gradients in double precision.
    ``random_state``      for simulations; None draws from the operating system.
    ``on_step``           called after each step with what was drawn and published in it.
    """
    trainer = prepare(
        module,
        X,
        y,
        noise_multiplier=noise_multiplier,
        clip=clip,
        learning_rate=learning_rate,
        epochs=epochs,
        steps=steps,
        loss=loss,
        sampling_rate=sampling_rate,
        divisor=divisor,
        relation=relation,
        candidates=candidates,
        sensitivity=sensitivity,
        row=row,
        adversary=adversary,
        every=every,
        norm_budget=norm_budget,
        dtype=dtype,
    )
    if trainer.local_row is not None:
        warn(
            "sensitivity='local': the noise is scaled to a row of the data, which is not private;"
            " use 'global' for a release.",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    if random_state is not None:
        warn(
            "random_state is set: the noise can be taken off by whoever knows the seed; leave it"
            " at None for a real release.",
            SeededReleaseWarning,
            stacklevel=2,
        )
    return trainer.run(draws_from(random_state), on_step)


def prepare(
    module: torch.nn.Module,
    X: Any,
    y: Any,
    *,
    noise_multiplier: float,
    clip: float,
    learning_rate: float,
    epochs: int | None = None,
    steps: int | None = None,
    loss: Loss = torch.nn.functional.cross_entropy,
    sampling_rate: float | None = None,
    divisor: float | None = None,
    relation: Neighbouring | str = Neighbouring.REMOVE,
    candidates: tuple[Any, Any] | None = None,
    sensitivity: str = "global",
    row: int | None = None,
    adversary: Adversary | str = Adversary.KNOWN_BATCHES,
    every: int = 1,
    norm_budget: float | None = None,
    dtype: torch.dtype | None = None,
) -> Trainer:
    """The training that :func:`train` runs, checked, to be run many times; warns of nothing."""
    check_module(module)
    module = copy.deepcopy(module)
    if dtype is not None:
        if dtype not in (torch.float32, torch.float64):
            raise InvalidInput(f"dtype={dtype!r}: must be torch.float32 or torch.float64.")
        module = module.to(dtype)
    data = _tensors(module, X, y, "X, y")
    n = len(data[0])
    rate = 1.0 if sampling_rate is None else sampling_rate
    mechanism = SGDMechanism(
        rows=n,
        noise_multiplier=noise_multiplier,
        clip=clip,
        sampling_rate=rate,
        relation=Neighbouring.parse(relation),
        norm_budget=norm_budget,
    )
    an_epoch = max(1, round(1 / rate))
    trainer = Trainer(
        module=module,
        loss=loss,
        data=data,
        mechanism=mechanism,
        learning_rate=_checks.positive("learning_rate", learning_rate),
        divisor=_checks.positive("divisor", n * rate if divisor is None else divisor),
        steps=_steps(epochs, steps, an_epoch),
        epoch_steps=an_epoch,
        candidates=_candidates(module, data, mechanism.relation, candidates),
        adversary=Adversary.parse(adversary),
        every=_checks.whole("every", every, least=1),
        local_row=_local_row(sensitivity, row, n),
    )
    _check_together(trainer)
    return trainer


def _steps(epochs: int | None, steps: int | None, an_epoch: int) -> int:
    if (epochs is None) == (steps is None):
        raise InvalidInput(f"epochs={epochs!r}, steps={steps!r}: give exactly one of them.")
    if steps is not None:
        return _checks.whole("steps", steps, least=1)
    return an_epoch * _checks.whole("epochs", epochs, least=1)


def _local_row(sensitivity: str, row: int | None, n: int) -> int | None:
    _checks.one_of("sensitivity", sensitivity, ("global", "local"))
    if sensitivity == "global":
        if row is not None:
            raise InvalidInput(f"row={row!r}: only sensitivity='local' takes one; leave it out.")
        return None
    if row is None or not _checks.whole("row", row, least=0) < n:
        raise InvalidInput(
            f"row={row!r}: sensitivity='local' needs the number of the row that sets the noise,"
            f" from 0 to {n - 1}."
        )
    return int(row)


def _check_together(trainer: Trainer) -> None:
    """Refuse what is only wrong in company."""
    how = trainer.mechanism
    hidden = trainer.adversary is Adversary.HIDDEN_BATCHES
    if trainer.every > 1 and not (hidden and how.sampling_rate < 1):
        raise InvalidInput(
            f"every={trainer.every}: only adversary='hidden-batches' with a sampling_rate leaves"
            " steps out; use 1."
        )
    if trainer.local_row is not None and how.sampling_rate < 1:
        raise InvalidInput(
            f"sampling_rate={how.sampling_rate!r}: local sensitivity is 0 at steps without the"
            " row, and so would be the noise; use the full batch (sampling_rate=None)."
        )
    if trainer.local_row is not None and how.norm_budget is not None:
        raise InvalidInput(
            f"norm_budget={how.norm_budget!r}: a filter promises nothing where the noise depends on"
            " the data; use sensitivity='global'."
        )


def _candidates(
    module: torch.nn.Module, data: Rows, relation: Neighbouring, candidates: Any
) -> Rows | None:
    if relation is Neighbouring.REMOVE:
        if candidates is not None:
            raise InvalidInput("candidates: relation='remove' takes none; leave it out.")
        return None
    if not isinstance(candidates, tuple | list) or len(candidates) != 2:
        raise InvalidInput("candidates: relation='replace' needs a pair (rows, labels).")
    others = _tensors(module, candidates[0], candidates[1], "candidates")
    if len(others[0]) not in (1, len(data[0])) or others[0].shape[1:] != data[0].shape[1:]:
        raise InvalidInput(
            f"candidates: must be one row for each of {len(data[0])}, or one for all, shaped as X."
        )
    return others


def _tensors(module: torch.nn.Module, X: Any, y: Any, name: str) -> Rows:
    """(X, y) on the module's device; real numbers in its precision."""
    parameter = next(module.parameters())

    def tensor(values: Any) -> torch.Tensor:
        try:
            found = torch.as_tensor(values).detach().to(parameter.device)
        except (TypeError, ValueError, RuntimeError):
            raise InvalidInput(f"{name}: must be tensors or arrays of numbers.") from None
        return found.to(parameter.dtype) if found.is_floating_point() else found

    rows, labels = tensor(X), tensor(y)
    if rows.ndim < 1 or labels.ndim < 1 or not len(rows) == len(labels) >= 1:
        raise InvalidInput(f"{name}: must have as many labels as rows, and at least one.")
    if rows.is_floating_point() and not bool(torch.isfinite(rows).all()):
        raise InvalidInput(f"{name}: holds NaN or infinite values; drop or fill them.")
    return rows, labels
