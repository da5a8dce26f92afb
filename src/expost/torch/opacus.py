"""Tracking of Opacus' optimizer: its noise, the products of its rows, and a check of each step.

Conventions
-----------
As in :mod:`expost.torch.noisy_step`. Σ b·g over the rows of a step must equal b·(noisy sum − b): a
gap beyond rounding is another sum than that of the clipped gradients, and refused.

Two methods of the one optimizer object are wrapped, the one that sums a piece and ``add_noise``;
its step hook (the accountant's) is not touched. Where the gradients still exist when the noise of a
step is added, b is what was added. A step of several pieces, and ghost clipping, need b before: it
is drawn when the first piece is read, by Opacus' own ``add_noise`` on sums of zeros, and added at
the step's end. A seeded run has the same weights, bit for bit, as without tracking, unless a step
has several pieces and something else draws from the noise's generator between them (dropout, or
workers' samplers, where there is no ``noise_generator``): then the noise is other noise of the same
law.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from expost.errors import InvalidInput, require
from expost.torch.ghost import GhostHooks
from expost.torch.grad_samples import GradSamples
from expost.torch.noisy_step import BLOCK, NoisyStep, Piece, ProductSource, packed, unit_of, widened

__all__ = ["StepWatch", "check_optimizer", "product_source"]

# The largest ∥e∥/(u·(Σ∥g∥ + ∥b∥)) that is taken as rounding; in float32 it was 0.1 to 0.4. The gap
# of the products may be as large times s.
_MOST_ROUNDING = 100.0


def check_optimizer(optimizer: Any) -> None:
    """Refuse what has no products to read, or publishes more than a noisy sum."""
    opacus = require("opacus.optimizers", caller="expost.torch.track", extra="torch")
    kind = type(optimizer)
    tracked = (
        opacus.DPOptimizer,
        opacus.DPPerLayerOptimizer,
        opacus.DPOptimizerFastGradientClipping,
    )
    if kind in tracked:
        if not optimizer.noise_multiplier > 0:
            raise InvalidInput(
                f"optimizer: noise_multiplier={optimizer.noise_multiplier!r} adds no noise, so"
                " that every loss is infinite; set it above 0."
            )
        if "add_noise" in vars(optimizer):
            raise InvalidInput("optimizer: is already tracked; use the existing tracker.")
        return
    if not isinstance(optimizer, opacus.DPOptimizer):
        raise InvalidInput(
            f"optimizer: is a {kind.__name__}; pass the optimizer that Opacus'"
            " PrivacyEngine.make_private returned."
        )
    if isinstance(optimizer, opacus.AdaClipDPOptimizer):
        reason = "adaptive clipping also publishes a noisy count; use clipping='flat'"
    elif "Distributed" in kind.__name__ or "FSDP" in kind.__name__:
        reason = "distributed training is not tracked; train in one process"
    else:
        reason = "it may clip or add noise differently; use Opacus' DPOptimizer"
    raise InvalidInput(f"optimizer: is a {kind.__name__}: {reason}.")


def product_source(optimizer: Any, model: Any) -> ProductSource:
    """Return where the products of this optimizer's rows are read."""
    opacus = require("opacus.optimizers", caller="expost.torch.track", extra="torch")
    if isinstance(optimizer, opacus.DPOptimizerFastGradientClipping):
        hooks = GhostHooks(optimizer, model)
        _check_model(optimizer, model)
        return hooks
    if model is not None:
        _check_model(optimizer, model)
    return GradSamples(optimizer, model)


def _check_model(optimizer: Any, model: Any) -> None:
    """Refuse a model, or hooks of one, that this optimizer does not train."""
    module = getattr(model, "_module", model)
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(
            f"model: is a {type(model).__name__}; pass the first of what make_private returned."
        )
    own = {id(p) for p in module.parameters()}
    if any(id(p) not in own for p in optimizer.params):
        raise InvalidInput(
            "model: does not have the parameters that the optimizer trains; pass the first of what"
            " make_private returned with this optimizer."
        )


class StepWatch:
    """A watch that calls ``on_piece`` and ``on_step`` during Opacus' steps.

    ``on_piece(piece)``: gradients of rows were clipped and summed.
    ``on_step(step)``: their noisy sum is about to be used; nothing is trained if this raises.
    """

    def __init__(
        self,
        optimizer: Any,
        source: ProductSource,
        *,
        on_piece: Callable[[Piece], None],
        on_step: Callable[[NoisyStep], None],
    ) -> None:
        self.optimizer = optimizer
        self.source = source
        self._on_piece = on_piece
        self._on_step = on_step
        self._sum, self._add_noise = getattr(optimizer, source.summing), optimizer.add_noise
        # True while a step is read, so that a step which raised is remembered.
        self._failed = False
        self._step: NoisyStep | None = None
        setattr(optimizer, source.summing, self._piece)
        optimizer.add_noise = self._finish
        source.attach(self._reading)

    def detach(self) -> None:
        """Restore the optimizer's own methods."""
        self.source.detach()
        for name in (self.source.summing, "add_noise"):
            vars(self.optimizer).pop(name, None)

    def check(self) -> None:
        """Refuse to continue after a step that could not be tracked."""
        if self._failed:
            raise InvalidInput(
                "tracker: a step could not be tracked, so that the losses are unknown; see the"
                " error that it raised, and train again."
            )

    @contextmanager
    def _reading(self) -> Iterator[NoisyStep]:
        """Give the step in progress, whose noise is drawn where it is new."""
        self.check()
        self._failed = True
        self._step = self._step or self._drawn()
        yield self._step
        self._failed = False

    def _piece(self) -> None:
        self.check()
        self._failed = True
        _refuse_scaler()
        self._failed = False
        # Called before Opacus does, which removes the value from its queue.
        skips = self.optimizer._check_skip_next_step(pop_next=False)
        if self._step is None and self.source.waits and not skips:
            self._sum()
            return
        with self._reading() as step:
            self._take(step, self.source.summed(step, self._sum))

    def _take(self, step: NoisyStep, piece: Piece) -> None:
        """Add a piece to the step."""
        if step.scale != self._scale:
            raise InvalidInput(
                "optimizer: noise_multiplier or max_grad_norm changed within a step; change them"
                " between steps only."
            )
        step.length += piece.length
        step.inner += math.fsum(piece.products.inner)
        step.rounding += piece.rounding
        self._on_piece(piece)

    def _finish(self) -> None:
        self.check()
        self._failed = True
        if self._step is not None:
            self._add_drawn(self._step)
        elif self.source.waits:
            self._add_noise()
            parameters = self.optimizer.params
            sums = [p.summed_grad.view_as(p) for p in parameters]
            self._step = self._made(torch._foreach_sub([p.grad for p in parameters], sums))
            self._take(self._step, self.source.summed(self._step, None))
        else:
            raise InvalidInput(
                "optimizer: noise is added to gradients of rows that this loader did not give;"
                " call optimizer.step() on the loader's batches."
            )
        step, self._step = self._step, None
        self._check_sum(step)
        if not step.is_certified:
            step.rounding = math.inf
        self._on_step(step)
        self._failed = False

    def _check_sum(self, step: NoisyStep) -> None:
        """Measure the rounding of the noisy sum, and refuse what is not rounding."""
        parameters = self.optimizer.params
        published, sums, noise = (
            [part.detach().reshape(-1) for part in parts]
            for parts in (
                [p.grad for p in parameters],
                [p.summed_grad for p in parameters],
                step.noise,
            )
        )
        projected, apart, square = 0.0, 0.0, 0.0
        for parts in packed([len(b) for b in noise], BLOCK // 8):
            total, b = widened(sums, parts), widened(noise, parts)
            gap = widened(published, parts).sub_(total).sub_(b)
            projected += float(torch.dot(total, b))
            apart += float(torch.dot(gap, gap))
            square += float(torch.dot(b, b))
        step.noise_norm = math.sqrt(square)
        step.rounding += math.sqrt(apart)
        most = _MOST_ROUNDING * step.unit
        inner_gap = abs(projected - step.inner)
        if not (
            step.rounding <= most * (step.length + step.noise_norm)
            and inner_gap <= most * step.scale * (step.length + step.scale)
        ):
            raise InvalidInput(
                "optimizer: it publishes another sum than the noisy sum of its rows' clipped"
                " gradients; do not change grad, grad_sample or summed_grad, and use Opacus'"
                " clipping."
            )

    @property
    def _scale(self) -> float:
        return float(self.optimizer.noise_multiplier) * float(self.optimizer.max_grad_norm)

    def _drawn(self) -> NoisyStep:
        """Draw the noise of a step before its end, by Opacus' own method on sums of zeros."""
        parameters = self.optimizer.params
        kept = [(p.summed_grad, p.grad) for p in parameters]
        try:
            for p in parameters:
                p.summed_grad = torch.zeros_like(p, requires_grad=False)
            self._add_noise()
            noise = [p.grad for p in parameters]
        finally:
            for p, (total, grad) in zip(parameters, kept, strict=True):
                p.summed_grad, p.grad = total, grad
        return self._made(noise)

    def _made(self, noise: list[torch.Tensor]) -> NoisyStep:
        return NoisyStep(
            noise=noise,
            noise_multiplier=float(self.optimizer.noise_multiplier),
            clip=float(self.optimizer.max_grad_norm),
            unit=unit_of(self.optimizer.params),
        )

    def _add_drawn(self, step: NoisyStep) -> None:
        """Run Opacus' own method without noise, then add the drawn noise: the same bits."""
        multiplier = self.optimizer.noise_multiplier
        try:
            self.optimizer.noise_multiplier = 0.0
            self._add_noise()
        finally:
            self.optimizer.noise_multiplier = multiplier
        torch._foreach_add_([p.grad for p in self.optimizer.params], step.noise)


def _refuse_scaler() -> None:
    """Refuse a step that a GradScaler makes: it skips steps by what gradients look like."""
    scaled = torch.amp.GradScaler._maybe_opt_step.__code__
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is scaled:
            raise InvalidInput(
                "optimizer: a GradScaler makes its steps, which skips some because of the"
                " gradients: no noise covers that; use bfloat16 or float32 without a scaler."
            )
        frame = frame.f_back
