"""Whose gradient each entry of ``grad_sample`` is: two rows by autograd through the model.

Opacus takes the first dimension of what a layer gets for the rows. Where it is something else of
the same length (positions without a batch dimension), the gradients of single rows are wrong and
their sum is right, so that no sum shows it. The forward pass is made once more with the same draws,
and the derivative of the loss by the outputs is passed back for one row at a time.
"""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from expost.errors import InvalidInput
from expost.torch.full_pass import Generators
from expost.torch.noisy_step import NoisyStep, unit_of

__all__ = ["RowCheck"]

_COMPARED = 2


class RowCheck:
    """Compares rows of the first training pass whose outputs have an entry for each row.

    A pass is left out where one more is no repetition: several passes before a step (a row's
    gradient is their sum), half precision, parameters that were changed since.

    Parameters
    ----------
    optimizer, model : Any
        Of ``make_private(..., grad_sample_mode="hooks")``.
    """

    def __init__(self, optimizer: Any, model: Any) -> None:
        self._optimizer, self._hooks, self._module = optimizer, model, model._module
        self._given: Any = None
        self._passes = 0  # since rows were last summed
        # Outputs by their positions, and the derivatives of the loss by them.
        self._backprops: dict[int, torch.Tensor] = {}
        self._handles = [
            self._module.register_forward_pre_hook(self._before, with_kwargs=True),
            self._module.register_forward_hook(self._after),
        ]

    def remove(self) -> None:
        """Stop watching the model."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._given = [], None
        self._backprops = {}

    def check(self, step: NoisyStep) -> None:
        """Compare rows of the last pass, where its outputs have an entry for each row."""
        parameters = self._optimizer.params
        samples = [p.grad_sample for p in parameters]
        summed = len(samples[0]) if isinstance(samples[0], list) else 1
        samples = [part[-1] if isinstance(part, list) else part for part in samples]
        backprops, rows = dict(self._backprops), len(samples[0])
        passes, self._passes = self._passes, 0
        repeatable = (
            passes == summed
            and unit_of(samples) <= torch.finfo(torch.float32).eps
            and all(e.dim() and len(e) == rows for e in backprops.values())
        )
        if not (self._handles and rows and backprops and repeatable):
            return
        *given, versions = self._given
        if versions != self._versions():
            return
        self.remove()
        for row, parts in enumerate(self._gradients(given, backprops, parameters, rows)):
            gap, norm = (
                float(torch.stack([part.double().norm() for part in vectors]).norm())
                for vectors in (
                    [part - own[row] for part, own in zip(parts, samples, strict=True)],
                    parts,
                )
            )
            if not gap <= 3 * step.unit**0.5 * (norm + 0.01 * step.clip):
                raise InvalidInput(
                    "model: the gradients that Opacus holds for a row are not those of the row, so"
                    " that clipping is not what it states; give every trained layer, positions"
                    " too, an input with one entry for each row."
                )

    def _gradients(
        self, given: Any, backprops: dict[int, torch.Tensor], parameters: Any, rows: int
    ) -> list[list[torch.Tensor]]:
        """Return the gradients of the first rows, by one more forward pass."""
        args, kwargs, before = given
        now, scale = Generators(), rows if self._optimizer.loss_reduction == "mean" else 1
        self._hooks.disable_hooks()
        try:
            before.restore()
            with torch.enable_grad():
                leaves = tree_leaves(self._module(*args, **kwargs))
            outputs = [leaves[index] for index in backprops]
            return [
                list(
                    torch.autograd.grad(
                        outputs,
                        parameters,
                        [_only(row, scale * e) for e in backprops.values()],
                        retain_graph=True,
                        materialize_grads=True,
                        allow_unused=True,
                    )
                )
                for row in range(min(_COMPARED, rows))
            ]
        finally:
            self._hooks.enable_hooks()
            now.restore()

    def _versions(self) -> list[int]:
        """Return how often each parameter was changed in place."""
        return [p._version for p in self._module.parameters()]

    def _before(self, module: Any, args: Any, kwargs: Any) -> None:
        if module.training and torch.is_grad_enabled():
            self._passes += 1
            self._given, self._backprops = (args, kwargs, Generators(), self._versions()), {}

    def _after(self, module: Any, args: Any, output: Any) -> None:
        half = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        if half or not (module.training and torch.is_grad_enabled()):
            return
        backprops = self._backprops

        def note(index: int, e: torch.Tensor) -> None:
            backprops[index] = e.detach()

        for index, leaf in enumerate(tree_leaves(output)):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaf.register_hook(lambda e, index=index: note(index, e))


def _only(row: int, e: torch.Tensor) -> torch.Tensor:
    alone = torch.zeros_like(e)
    alone[row] = e[row]
    return alone
