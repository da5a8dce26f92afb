"""``conform`` for trainers in PyTorch: the task as a module, tensors and a loss."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from expost.conformance import Claims, Conformance, Task
from expost.conformance import conform as conform_arrays
from expost.conformance.claims import LAYERS
from expost.conformance.conform import numpy_seeded

__all__ = ["AdditiveModule", "TorchTask", "conform"]


class AdditiveModule(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
    """The model of a check: linear layers without bias, each on its own columns, summed up."""

    def __init__(self) -> None:
        super().__init__()
        for name, size in LAYERS.items():
            layer = torch.nn.Linear(size, 1, bias=False)
            torch.nn.init.zeros_(layer.weight)
            self.add_module(name, layer)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return (n, 1) outputs of (n, d) rows."""
        parts = X.split(list(LAYERS.values()), dim=1)
        layers = [self.get_submodule(name) for name in LAYERS]
        return torch.stack([layer(part) for layer, part in zip(layers, parts, strict=True)]).sum(0)


@dataclass(kw_only=True, eq=False)
class TorchTask:
    """A training that a trainer is asked for.

    Parameters
    ----------
    module : torch.nn.Module
        The model to train, with parameters 0.
    X : torch.Tensor
        (n, d) rows.
    y : torch.Tensor
        (n,) labels.
    rate : float
        The probability with which each row is in a batch; 1: every batch has all rows.
    batch_size : int
        The expected number of rows of a batch.
    learning_rate : float
        α, of plain SGD.
    steps : int
        How many steps are observed at most.
    accountant : callable, optional
        A trainer sets it to a function from δ to the ε spent so far.
    """

    module: torch.nn.Module
    X: torch.Tensor
    y: torch.Tensor
    rate: float
    batch_size: int
    learning_rate: float
    steps: int
    accountant: Callable[[float], float] | None = None

    @staticmethod
    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch.

        Parameters
        ----------
        outputs : torch.Tensor
            (n, 1) outputs of the module.
        targets : torch.Tensor
            (n,) labels.

        Returns
        -------
        torch.Tensor
            The mean of outputs times labels.
        """
        return (outputs.squeeze(-1) * targets).mean()


def conform(
    trainer: Callable[[TorchTask], Iterable[Any]],
    claims: Claims,
    *,
    false_alarm: float = 1e-3,
    steps: int = 60,
    name: str | None = None,
) -> Conformance:
    """Check a private trainer in PyTorch against its claims, from what it publishes.

    Parameters
    ----------
    trainer : callable
        A function of a :class:`TorchTask`: a training loop that yields after each step. It yields
        nothing if it trained ``task.module`` in place, else the trained module, or tensors by the
        names of its parameters.
    claims : Claims
        What the trainer claims.
    false_alarm : float, default=0.001
        The largest probability with which a trainer that keeps all claims is reported to violate
        one.
    steps : int, default=60
        The steps of a run; more steps find smaller faults.
    name : str, optional
        The name of the trainer in the result; None: that of the function.

    Returns
    -------
    Conformance
        A verdict on each claim, with its evidence.

    Raises
    ------
    InvalidInput
        If the trainer fails, makes fewer steps than it is asked for, or yields something else.
    """

    def on_arrays(task: Task) -> Iterator[Mapping[str, Any]]:
        converted = TorchTask(
            module=AdditiveModule(),
            X=torch.from_numpy(task.X).to(torch.get_default_dtype()),
            y=torch.from_numpy(task.y).to(torch.get_default_dtype()),
            rate=task.rate,
            batch_size=task.batch_size,
            learning_rate=task.learning_rate,
            steps=task.steps,
        )
        for published in trainer(converted):
            task.accountant = converted.accountant
            yield _arrays(converted.module if published is None else published)

    return conform_arrays(
        on_arrays,
        claims,
        false_alarm=false_alarm,
        steps=steps,
        seeded=_seeded,
        name=name or str(getattr(trainer, "__name__", "trainer")),
    )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with numpy_seeded(seed), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _arrays(published: Any) -> Any:
    """Return the parameters of a module, or of tensors by name, as arrays by layer."""
    if isinstance(published, torch.nn.Module):
        published = dict(published.named_parameters())
    if not isinstance(published, Mapping):
        return published
    # Wrappers put a prefix before the names, as "_module.".
    return {
        layer: torch.as_tensor(value).detach().cpu().numpy().copy()
        for name, value in published.items()
        for layer in LAYERS
        if name.removesuffix(".weight").split(".")[-1] == layer
    }
