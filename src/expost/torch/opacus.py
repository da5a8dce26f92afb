"""Tracking of Opacus' optimizer: clipped gradients, noise, and their inner products.

Conventions
-----------
piece    the rows of one backward pass; a step sums one or more pieces and adds noise once.
b, g, s  as in :mod:`expost.mechanisms.dpsgd`: noise, a row's clipped gradient, σC. Gradients
         before clipping are taken as the machine computed them; clipping, products and sums are
         float64 here.
e        Opacus' published sum minus (Σ g + b): its rounding, because it clips and sums in the
         model's own precision. Its norm bounds the effect on a loss, ∥e∥∥g∥/s² per step; a larger
         one is not rounding, but another sum than that of the clipped gradients.

Two methods of the one optimizer object are wrapped, ``clip_and_accumulate`` and ``add_noise``;
its step hook (the accountant's) is not touched. A step of one piece adds its noise while the
gradients exist, and b is what was added. A step of several pieces needs b with the first, so it is
drawn then, by Opacus' own ``add_noise`` on sums of zeros, and added at the step's end. A
seeded run has the same weights, bit for bit, as without tracking, unless a step has several pieces
and something else draws from the noise's generator between them (dropout, or workers' samplers,
where there is no ``noise_generator``): then the noise is other noise of the same law.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch

from expost.errors import ConvergenceError, InvalidInput, require
from expost.torch.account import Products

__all__ = ["NoisyStep", "StepWatch", "check_optimizer"]

_WRAPPED = ("clip_and_accumulate", "add_noise")
# Entries of gradients that are held in float64 at a time (1 MiB), and the width below which
# parameters are joined first: a call a parameter and block would cost more than its work.
_BLOCK = 2**17
_NARROW = 1024
# The largest ∥e∥/(u·(Σ∥g∥ + ∥b∥)) that is taken as rounding; in float32 it was 0.1 to 0.4.
_MOST_ROUNDING = 100.0


@dataclass(kw_only=True, eq=False)
class NoisyStep:
    """One step in progress.

    Parameters
    ----------
    noise : torch.Tensor
        (d,) b, in float64; ``drawn`` the same, a tensor a parameter, where it is still to be added.
    length : float, default=0.0
        Σ∥g∥ over everything that was summed, stand-ins for empty batches too.
    rounding : float, default=0.0
        ∥e∥.
    """

    noise: torch.Tensor
    noise_multiplier: float
    clip: float
    drawn: list[torch.Tensor] | None = None
    length: float = 0.0
    rounding: float = 0.0

    @cached_property
    def noise_norm(self) -> float:
        """The norm ∥b∥ of the noise."""
        return float(self.noise.norm())

    @cached_property
    def total(self) -> torch.Tensor:
        """The sum Σ g (d,) so far."""
        return torch.zeros_like(self.noise)

    @property
    def scale(self) -> float:
        """The noise scale s = σC."""
        return self.noise_multiplier * self.clip


def check_optimizer(optimizer: Any) -> None:
    """Refuse what has no per-row gradients to read, or publishes more than their noisy sum."""
    opacus = require("opacus.optimizers", caller="expost.torch.track", extra="torch")
    kind = type(optimizer)
    if kind in (opacus.DPOptimizer, opacus.DPPerLayerOptimizer):
        if not optimizer.noise_multiplier > 0:
            raise InvalidInput(
                f"optimizer: noise_multiplier={optimizer.noise_multiplier!r} adds no noise, so"
                " that every loss is infinite; set it above 0."
            )
        if any(name in vars(optimizer) for name in _WRAPPED):
            raise InvalidInput("optimizer: is already tracked; use the existing tracker.")
        return
    if not isinstance(optimizer, opacus.DPOptimizer):
        raise InvalidInput(
            f"optimizer: is a {kind.__name__}; pass the optimizer that Opacus'"
            " PrivacyEngine.make_private returned."
        )
    if isinstance(optimizer, opacus.DPOptimizerFastGradientClipping):
        reason = "ghost clipping computes no row's gradient; use grad_sample_mode='hooks'"
    elif isinstance(optimizer, opacus.AdaClipDPOptimizer):
        reason = "adaptive clipping also publishes a noisy count; use clipping='flat'"
    elif "Distributed" in kind.__name__:
        reason = "distributed training is not tracked; train in one process"
    else:
        reason = "it may clip or add noise differently; use Opacus' DPOptimizer"
    raise InvalidInput(f"optimizer: is a {kind.__name__}: {reason}.")


class StepWatch:
    """A watch that calls ``on_piece`` and ``on_step`` during Opacus' steps.

    ``on_piece(lengths, products)``: gradients of so many rows were clipped and summed.
    ``on_step(step)``: their noisy sum is about to be used; nothing is trained if this raises.
    """

    def __init__(
        self,
        optimizer: Any,
        *,
        on_piece: Callable[[list[int], Products], None],
        on_step: Callable[[NoisyStep], None],
    ) -> None:
        self.optimizer = optimizer
        self._on_piece = on_piece
        self._on_step = on_step
        self._clip, self._add_noise = optimizer.clip_and_accumulate, optimizer.add_noise
        # True while a step is read, so that a step which raised is remembered.
        self._failed = False
        self._step: NoisyStep | None = None
        self._block: torch.Tensor | None = None
        optimizer.clip_and_accumulate, optimizer.add_noise = self._piece, self._finish

    def detach(self) -> None:
        """Restore the optimizer's own methods."""
        for name in _WRAPPED:
            vars(self.optimizer).pop(name, None)

    def products(self, step: NoisyStep, *, total: torch.Tensor | None = None) -> Products:
        """Return b·g and ∥g∥² of the rows whose gradients are held now; ``total`` += Σ g."""
        samples = [sample.flatten(start_dim=1) for sample in self.optimizer.grad_samples]
        parts = _joined(samples)
        count, buffer = len(parts[0]), self._room(len(step.noise))
        columns = buffer.split([part.shape[1] for part in parts], dim=1)
        inner, length = torch.empty(2, count, dtype=buffer.dtype, device=buffer.device)
        for start in range(0, count, len(buffer)):
            at = slice(start, min(start + len(buffer), count))
            g = buffer[: at.stop - start]
            for target, part in zip(columns, parts, strict=True):
                target[: len(g)].copy_(part[at])
            factor = self._clipped_by_layer(g, samples)
            norm = torch.linalg.vector_norm(g, dim=1)
            if factor is None:
                factor = _factor(norm, step.clip)
            torch.mul(torch.mv(g, step.noise), factor, out=inner[at])
            torch.mul(norm, factor, out=length[at])
            if total is not None:
                total.addmv_(g.T, factor)
        if not bool(torch.isfinite(length).all() and torch.isfinite(inner).all()):
            raise ConvergenceError(
                "a row's gradient is NaN or infinite, which neither clipping nor noise can hide;"
                " lower the learning rate or fix the loss."
            )
        return Products(inner=inner.cpu().numpy(), square=length.square().cpu().numpy())

    def _clipped_by_layer(
        self, g: torch.Tensor, samples: list[torch.Tensor]
    ) -> torch.Tensor | None:
        """Clip the parts of ``g`` in place if Opacus clips each by itself; else None."""
        bounds = getattr(self.optimizer, "max_grad_norms", None)
        if bounds is None:
            return None
        sizes = [sample.shape[1] for sample in samples]
        for part, bound in zip(g.split(sizes, dim=1), bounds, strict=True):
            part *= _factor(part.norm(dim=1, keepdim=True), bound)
        return torch.ones_like(g[:, 0])

    def _room(self, dimension: int) -> torch.Tensor:
        """Return a buffer (rows, d) in float64, kept from step to step."""
        if self._block is None or self._block.shape[1] != dimension:
            rows = max(1, _BLOCK // dimension)
            device = self.optimizer.params[0].device
            self._block = torch.empty(rows, dimension, dtype=torch.float64, device=device)
        return self._block

    def check(self) -> None:
        """Refuse to continue after a step that could not be tracked."""
        if self._failed:
            raise InvalidInput(
                "tracker: a step could not be tracked, so that the losses are unknown; see the"
                " error that it raised, and train again."
            )

    def _piece(self) -> None:
        self.check()
        self._clip()
        # Called before Opacus does, which removes the value from its queue.
        if self._step is None and not self.optimizer._check_skip_next_step(pop_next=False):
            return
        self._failed = True
        self._step = self._step or self._drawn()
        self._read_piece(self._step)
        self._failed = False

    def _read_piece(self, step: NoisyStep) -> None:
        """Read the gradients of a piece."""
        if step.scale != self._scale:
            raise InvalidInput(
                "optimizer: noise_multiplier or max_grad_norm changed within a step; change them"
                " between steps only."
            )
        products = self.products(step, total=step.total)
        step.length += float(np.sum(np.sqrt(products.square)))
        sample = self.optimizer.params[0].grad_sample
        lengths = [len(part) for part in sample] if isinstance(sample, list) else [len(sample)]
        self._on_piece(lengths, products)

    def _finish(self) -> None:
        self.check()
        self._failed = True
        step = self._step
        if step is None:
            self._add_noise()
            step = self._made(self._published - self._summed)
            self._read_piece(step)
        else:
            self._add_drawn(step)
        self._check_sum(step)
        self._on_step(step)
        self._step = None
        self._failed = False

    def _check_sum(self, step: NoisyStep) -> None:
        """Measure e, and refuse one that is not rounding."""
        step.rounding = float((self._published - step.total - step.noise).norm())
        unit = max(torch.finfo(p.dtype).eps for p in self.optimizer.params)
        if not step.rounding <= _MOST_ROUNDING * unit * (step.length + step.noise_norm):
            raise InvalidInput(
                "optimizer: it publishes another sum than the noisy sum of its rows' clipped"
                " gradients; do not change grad_sample or summed_grad, and use Opacus' clipping."
            )

    @property
    def _published(self) -> torch.Tensor:
        return _flat([p.grad for p in self.optimizer.params])

    @property
    def _summed(self) -> torch.Tensor:
        return _flat([p.summed_grad for p in self.optimizer.params])

    @property
    def _scale(self) -> float:
        return float(self.optimizer.noise_multiplier) * float(self.optimizer.max_grad_norm)

    def _made(self, noise: torch.Tensor, drawn: list[torch.Tensor] | None = None) -> NoisyStep:
        return NoisyStep(
            noise=noise,
            noise_multiplier=float(self.optimizer.noise_multiplier),
            clip=float(self.optimizer.max_grad_norm),
            drawn=drawn,
        )

    def _drawn(self) -> NoisyStep:
        """Draw the noise of a step before its end, by Opacus' own method on sums of zeros."""
        parameters = self.optimizer.params
        kept = [(p.summed_grad, p.grad) for p in parameters]
        try:
            for p in parameters:
                p.summed_grad = torch.zeros_like(p, requires_grad=False)
            self._add_noise()
            drawn = [p.grad for p in parameters]
        finally:
            for p, (total, grad) in zip(parameters, kept, strict=True):
                p.summed_grad, p.grad = total, grad
        return self._made(_flat(drawn), drawn)

    def _add_drawn(self, step: NoisyStep) -> None:
        """Run Opacus' own method without noise, then add the drawn noise: the same bits."""
        multiplier = self.optimizer.noise_multiplier
        try:
            self.optimizer.noise_multiplier = 0.0
            self._add_noise()
        finally:
            self.optimizer.noise_multiplier = multiplier
        for p, noise in zip(self.optimizer.params, step.drawn or [], strict=True):
            p.grad += noise


def _joined(samples: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the same columns in the same order, narrow adjacent parts joined."""
    parts: list[torch.Tensor] = []
    for is_narrow, run in groupby(samples, key=lambda sample: sample.shape[1] < _NARROW):
        neighbours = list(run)
        parts += [torch.cat(neighbours, dim=1)] if is_narrow else neighbours
    return parts


def _factor(norm: torch.Tensor, bound: float) -> torch.Tensor:
    """Return the factor by which Opacus clips a gradient of this norm."""
    return (bound / (norm + 1e-6)).clamp(max=1.0)


def _flat(parts: list[torch.Tensor]) -> torch.Tensor:
    """Return one float64 vector."""
    return torch.cat([part.reshape(-1) for part in parts]).double()
