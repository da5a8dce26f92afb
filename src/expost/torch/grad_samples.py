"""Products from the per-row gradients that Opacus holds (``grad_sample``).

Gradients before clipping and the factors that clip them are taken as Opacus computed them;
products and sums are float64 here, in blocks of columns, so that no second copy of a gradient is
held. ∥e∥ of a piece is measured: Opacus' own sum less that of the clipped gradients.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from expost.errors import InvalidInput
from expost.torch.account import Products
from expost.torch.noisy_step import (
    BLOCK,
    NoisyStep,
    Piece,
    Reading,
    finite_products,
    packed,
    unit_of,
    widened,
)
from expost.torch.row_check import RowCheck

__all__ = ["GradSamples"]

# Columns of a block: runs of one row are long enough to be copied fast.
WIDTH = 2**15
# Columns of a parameter that is copied together with adjacent ones of this kind.
_NARROW = 2**10


class GradSamples:
    """The per-row gradients of an optimizer's parameters."""

    summing = "clip_and_accumulate"
    waits = True
    notices: tuple[str, ...] = ()

    def __init__(self, optimizer: Any, model: Any = None) -> None:
        self._optimizer = optimizer
        self._buffer: torch.Tensor | None = None
        known = hasattr(model, "disable_hooks") and hasattr(model, "_module")
        self._rows = RowCheck(optimizer, model) if known else None

    def attach(self, reading: Reading) -> None:
        """Nothing to change: gradients are there when Opacus sums them."""

    def detach(self) -> None:
        """Stop watching the model, where rows were not compared yet."""
        if self._rows is not None:
            self._rows.remove()

    def summed(self, step: NoisyStep, add: Callable[[], None] | None) -> Piece:
        """Call Opacus' method on this piece alone, read it, and add it to the sum so far."""
        parameters = self._optimizer.params
        before = [None if add is None else p.summed_grad for p in parameters]
        if add is not None:
            for p in parameters:
                p.summed_grad = None
            add()
        if self._rows is not None:
            self._rows.check(step)
        sample = parameters[0].grad_sample
        lengths = [len(part) for part in sample] if isinstance(sample, list) else [len(sample)]
        clipped, products, rounding = self._read(step, [p.summed_grad for p in parameters])
        for p, earlier in zip(parameters, before, strict=True):
            if earlier is not None:
                # As Opacus adds it: the same bits.
                p.summed_grad = earlier.add_(p.summed_grad)
                rounding += unit_of([p]) * float(p.summed_grad.norm())
        length = float(np.sum(np.sqrt(products.square)))
        return Piece(
            lengths=lengths,
            products=products,
            length=length,
            rounding=rounding,
            combined=lambda weights: self._combined(clipped, weights),
        )

    def computed(self, step: NoisyStep, loss: Any) -> Products:
        """Return the products of rows whose gradients the backward pass of ``loss`` computes."""
        if not isinstance(loss, torch.Tensor):
            raise InvalidInput(
                f"loss: returned a {type(loss).__name__}; it must return the loss of the batch,"
                " reduced as in training."
            )
        loss.backward()
        return self._read(step, None)[1]

    def _read(
        self, step: NoisyStep, sums: list[torch.Tensor] | None
    ) -> tuple["_Clipped", Products, float]:
        """Return the rows whose gradients are held, their products, and ∥``sums`` − Σ g∥."""
        parameters = self._optimizer.params
        samples = [
            sample.reshape(len(sample), p.numel())  # a parameter may have no dimension
            for sample, p in zip(self._optimizer.grad_samples, parameters, strict=True)
        ]
        step.unit = max(step.unit, unit_of(samples))
        factors = self._factors(samples, step.clip)
        noise = [b.reshape(-1) for b in step.noise]
        totals = None if sums is None else [total.reshape(-1) for total in sums]
        if len(factors) == 1:
            runs = _narrow_runs(samples)
            samples, noise = _joined(samples, runs), _joined(noise, runs)
            totals = None if totals is None else _joined(totals, runs)
        count, device = len(samples[0]), samples[0].device
        inner, square = torch.zeros(2, count, dtype=torch.float64, device=device)
        clipped = _Clipped(samples=samples, factors=factors)
        own = clipped.factor
        gap = 0.0
        for parts in packed(clipped.widths, WIDTH):
            b = widened(noise, parts)
            total = torch.zeros_like(b)
            for at, g in self._blocks(clipped, parts, len(b)):
                inner[at] += torch.mv(g, b)
                square[at] += torch.linalg.vector_norm(g, dim=1).square_()
                total.addmv_(g.T, own[at])
            if totals is not None:
                apart = total.sub_(widened(totals, parts))
                gap += float(torch.dot(apart, apart))
        length = square.sqrt_().mul_(own)
        return clipped, finite_products(inner.mul_(own), length), math.sqrt(gap)

    def _combined(self, clipped: "_Clipped", weights: torch.Tensor) -> torch.Tensor:
        """Return (k, d) the sums of the clipped gradients by ``weights`` (k, rows), in float64."""
        own = clipped.factor
        weights = weights.to(own) * own
        sums = torch.zeros(len(weights), sum(clipped.widths), dtype=own.dtype, device=own.device)
        stop = 0
        for parts in packed(clipped.widths, WIDTH):
            start, stop = stop, stop + sum(part.stop - part.start for _, part in parts)
            for at, g in self._blocks(clipped, parts, stop - start):
                sums[:, start:stop] += weights[:, at] @ g
        return sums

    def _blocks(
        self, clipped: "_Clipped", parts: list[tuple[int, slice]], size: int
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield rows and their entries in these columns in float64, a block at a time.

        By layer, gradients are clipped in the buffer; otherwise ``clipped.factor`` is still to be
        applied.
        """
        samples = clipped.samples
        if self._buffer is None:
            device = samples[0].device
            self._buffer = torch.empty(BLOCK, dtype=torch.float64, device=device)
        count, most = len(samples[0]), BLOCK // size
        for start in range(0, count, most):
            at = slice(start, min(start + most, count))
            g = self._buffer[: (at.stop - start) * size].view(-1, size)
            stop = 0
            for index, part in parts:
                start, stop = stop, stop + part.stop - part.start
                g[:, start:stop].copy_(samples[index][at, part])
            if clipped.by_layer:
                _clip_by_layer(g, parts, [factor[at] for factor in clipped.factors])
            yield at, g

    def _factors(self, samples: list[torch.Tensor], clip: float) -> list[torch.Tensor]:
        """Return Opacus' factors as Opacus computes them: one for all parameters, or one each."""
        norms = [sample.norm(2, dim=-1) for sample in samples]
        bounds = getattr(self._optimizer, "max_grad_norms", None)
        if bounds is None:
            norms, bounds = [torch.stack(norms, dim=1).norm(2, dim=1)], [clip]
        return [
            (bound / (norm + 1e-6)).clamp(max=1.0).double()
            for norm, bound in zip(norms, bounds, strict=True)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Clipped:
    """The gradients of rows that are held, and the factors that clip them.

    Parameters
    ----------
    samples : list[torch.Tensor]
        (rows, k) of each parameter, or of adjacent ones together.
    factors : list[torch.Tensor]
        (rows,) for all parameters, or one for each of ``samples``.
    """

    samples: list[torch.Tensor]
    factors: list[torch.Tensor]

    @property
    def by_layer(self) -> bool:
        """Whether each parameter has factors of its own."""
        return len(self.factors) > 1

    @property
    def factor(self) -> torch.Tensor:
        """(rows,) what blocks are still to be multiplied by."""
        return torch.ones_like(self.factors[0]) if self.by_layer else self.factors[0]

    @property
    def widths(self) -> list[int]:
        """The columns of each of ``samples``."""
        return [sample.shape[1] for sample in self.samples]


def _narrow_runs(samples: list[torch.Tensor]) -> list[slice]:
    """Return runs of adjacent parameters, of which narrow ones are copied together."""
    runs: list[slice] = []
    for index, sample in enumerate(samples):
        is_narrow = sample.shape[1] < _NARROW
        if runs and is_narrow and samples[index - 1].shape[1] < _NARROW:
            runs[-1] = slice(runs[-1].start, index + 1)
        else:
            runs.append(slice(index, index + 1))
    return runs


def _joined(tensors: list[torch.Tensor], runs: list[slice]) -> list[torch.Tensor]:
    return [
        tensors[run.start] if run.stop == run.start + 1 else torch.cat(tensors[run], dim=-1)
        for run in runs
    ]


def _clip_by_layer(
    g: torch.Tensor, parts: list[tuple[int, slice]], factors: list[torch.Tensor]
) -> None:
    """Scale the columns of each parameter by its own factors, in place."""
    stop = 0
    for index, part in parts:
        start, stop = stop, stop + part.stop - part.start
        g[:, start:stop] *= factors[index].unsqueeze(1)
