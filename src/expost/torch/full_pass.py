"""The products of rows that were not sampled, at a step's parameters.

The tracked model computes them as it computes those of a batch, piece by piece, so that they are
Opacus' whatever the layers. Afterwards everything is as before: ``grad``, ``grad_sample`` and
``summed_grad`` of each parameter, and the random generators.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from expost.errors import InvalidInput
from expost.torch.account import Products
from expost.torch.noisy_step import NoisyStep, ProductSource
from expost.types import IntArray

__all__ = ["FullPass", "Generators", "rows_of"]

_KEPT = ("grad", "grad_sample", "summed_grad")


class FullPass:
    """Computes the products of any rows of a data loader.

    ``loss(batch)`` gives the loss of a batch as the loader gives it, reduced as in training.
    """

    def __init__(
        self,
        optimizer: Any,
        data_loader: Any,
        source: ProductSource,
        loss: Callable[[Any], Any],
    ) -> None:
        self._optimizer = optimizer
        self._dataset = data_loader.dataset
        self._collate = data_loader.collate_fn
        self._source = source
        self._loss = loss

    def pieces(
        self, step: NoisyStep, rows: IntArray, size: int
    ) -> Iterator[tuple[IntArray, Products]]:
        """Yield pieces of ``size`` rows with their products."""
        with self._restored(), torch.enable_grad():
            for start in range(0, len(rows), size):
                piece = rows[start : start + size]
                for p in self._optimizer.params:
                    p.grad = p.grad_sample = None
                loss = self._loss(self._collate(rows_of(self._dataset, piece)))
                products = self._source.computed(step, loss)
                if len(products.inner) != len(piece):
                    raise InvalidInput(
                        f"loss: computed gradients of {len(products.inner)} rows from a batch of"
                        f" {len(piece)}; it must apply the model that make_private returned to one"
                        " batch of the loader."
                    )
                yield piece, products

    @contextmanager
    def _restored(self) -> Iterator[None]:
        parameters = self._optimizer.params
        kept = [[getattr(p, name) for name in _KEPT] for p in parameters]
        before = Generators()
        try:
            yield
            drew = Generators() != before
        finally:
            before.restore()
            for p, values in zip(parameters, kept, strict=True):
                for name, value in zip(_KEPT, values, strict=True):
                    setattr(p, name, value)
        if drew:
            raise InvalidInput(
                "loss: draws random numbers (dropout, augmentation), so that a row which was not"
                " sampled has no gradient of its own; leave them out, or use"
                " adversary='known-batches'."
            )


def rows_of(dataset: Any, rows: IntArray) -> list[Any]:
    """Return these rows of a data set, as a loader reads them."""
    numbers = [int(row) for row in rows]
    if hasattr(dataset, "__getitems__"):
        return list(dataset.__getitems__(numbers))
    return [dataset[number] for number in numbers]


class Generators:
    """The states of the generators that a model or a data set may draw from."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state()  # noqa: NPY002 (a data set may draw from it)
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def restore(self) -> None:
        """Restore the states."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002 (see above)
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Generators) and self._states() == other._states()

    __hash__ = None  # type: ignore[assignment]  # states are compared, never kept in sets

    def _states(self) -> list[Any]:
        numpy: Any = self._numpy
        drawn = [state.numpy().tobytes() for state in (self._torch, *self._cuda)]
        return [self._python, numpy[1].tobytes(), numpy[2:], *drawn]
