"""One noisy step of Opacus, and the sources that its rows' products are read from.

Conventions
-----------
piece    the rows of one backward pass; a step sums one or more pieces and adds noise once.
b, g, s  as in :mod:`expost.mechanisms.dpsgd`: noise, a row's clipped gradient, σC.
e        the published noisy sum minus (Σ g + b): rounding, because Opacus clips and sums in the
         model's own precision. Its effect on a row's loss is at most ∥e∥∥g∥/s².
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from expost.errors import ConvergenceError
from expost.torch.account import Products

__all__ = [
    "BLOCK",
    "NoisyStep",
    "Piece",
    "ProductSource",
    "Reading",
    "finite_products",
    "packed",
    "unit_of",
    "widened",
]

# Entries that are held in float64 at a time (2 MiB).
BLOCK = 2**18


@dataclass(kw_only=True, eq=False)
class NoisyStep:
    """One step in progress.

    Parameters
    ----------
    noise : list[torch.Tensor]
        b, a tensor a parameter, as Opacus drew it.
    unit : float
        The distance from 1 to the next number, of the coarsest precision that a row's products
        were computed in.
    length : float, default=0.0
        Σ∥g∥ over everything that was summed, stand-ins for empty batches too (see Piece).
    inner : float, default=0.0
        Σ b·g over the same.
    rounding : float, default=0.0
        ∥e∥.
    noise_norm : float, default=0.0
        ∥b∥, when the noise has been added.
    """

    noise: list[torch.Tensor]
    noise_multiplier: float
    clip: float
    unit: float
    length: float = 0.0
    inner: float = 0.0
    rounding: float = 0.0
    noise_norm: float = 0.0

    @property
    def is_certified(self) -> bool:
        """Whether everything was computed in float32 or float64."""
        return bool(self.unit <= torch.finfo(torch.float32).eps)

    @property
    def scale(self) -> float:
        """The noise scale s = σC."""
        return self.noise_multiplier * self.clip


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """What was read of the rows of one or more backward passes.

    Parameters
    ----------
    lengths : list[int]
        The number of rows of each pass.
    products : Products
        b·g and ∥g∥² of each row.
    length : float
        Σ∥g∥, or what rounding is in proportion to instead.
    rounding : float
        A bound or an estimate of ∥e∥ of their sum, as the source documents.
    combined : callable, optional
        A function from weights (k, rows) to (k, d) the weighted sums of the rows' g, while the
        gradients are held; None: no row's gradient exists.
    """

    lengths: list[int]
    products: Products
    length: float
    rounding: float
    combined: Callable[[torch.Tensor], torch.Tensor] | None = None


# Gives the step in progress, and remembers if reading from it failed.
Reading = Callable[[], AbstractContextManager[NoisyStep]]


class ProductSource(Protocol):
    """A source of the products b·g and ∥g∥² of the rows that Opacus sums.

    ``summing`` names the optimizer's method that adds a piece to the step's sum; ``waits``: a
    step's only piece can be read after its noise was added; ``notices`` is what to know about
    products of this source.
    """

    summing: str
    waits: bool
    notices: tuple[str, ...]

    def attach(self, reading: Reading) -> None:
        """Start to read; ``reading`` opens the step in progress."""

    def detach(self) -> None:
        """Restore what was changed."""

    def summed(self, step: NoisyStep, add: Callable[[], None] | None) -> Piece:
        """Call ``add``, Opacus' own method, and return what it has summed.

        Without ``add`` Opacus has summed the only piece already.
        """

    def computed(self, step: NoisyStep, loss: Any) -> Products:
        """Return the products of rows that are not summed, from their ``loss``."""


def packed(sizes: list[int], most: int) -> Iterator[list[tuple[int, slice]]]:
    """Yield parts (index, slice) of vectors of these sizes, at most ``most`` entries together."""
    parts: list[tuple[int, slice]] = []
    room = most
    for index, size in enumerate(sizes):
        start = 0
        while start < size:
            stop = min(size, start + room)
            parts.append((index, slice(start, stop)))
            room -= stop - start
            start = stop
            if not room:
                yield parts
                parts, room = [], most
    if parts:
        yield parts


def widened(vectors: list[torch.Tensor], parts: list[tuple[int, slice]]) -> torch.Tensor:
    """Return these parts of the vectors as one float64 vector."""
    return torch.cat([vectors[index][part] for index, part in parts]).double()


def unit_of(tensors: list[torch.Tensor]) -> float:
    """Return the coarsest distance from 1 to the next number of these tensors' types."""
    return max(float(torch.finfo(tensor.dtype).eps) for tensor in tensors)


def finite_products(
    inner: torch.Tensor, length: torch.Tensor, error: torch.Tensor | None = None
) -> Products:
    """Return the products of rows (float64); refuse NaN and infinity."""
    if not bool(torch.isfinite(length).all() and torch.isfinite(inner).all()):
        raise ConvergenceError(
            "a row's gradient is NaN or infinite, which neither clipping nor noise can hide;"
            " lower the learning rate or fix the loss."
        )
    return Products(
        inner=inner.cpu().numpy(),
        square=length.square().cpu().numpy(),
        error=None if error is None else error.cpu().numpy(),
    )
