"""Clipped gradients of single rows, by ``torch.func``: no row depends on another.

Conventions
-----------
θ       (d,) all trained parameters in one vector, in the order of ``named_parameters``.
g       a row's gradient at θ over all parameters jointly, clipped to ∥g∥ ≤ C.

The network is evaluated in its own precision; everything after it (lengths, clipping, sums, inner
products) is float64, so that a loss is exact for the gradients that the network computed.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from expost._numerics import gamma
from expost.errors import ConvergenceError, InvalidInput

__all__ = ["RowGradients", "check_module"]

# Entries of a block of gradients, 16 MiB in float64: larger ones are slower, because their memory
# is allocated and released at every step.
_BLOCK_ENTRIES = 2**21


class RowGradients:
    """The clipped gradients g of rows (X, y) at θ; ``module`` is not changed.

    Parameters
    ----------
    loss : callable
        The loss of (outputs, targets), each a batch of one row.
    """

    def __init__(
        self, module: torch.nn.Module, loss: Callable[[Any, Any], torch.Tensor], clip: float
    ) -> None:
        check_module(module)
        self.clip = clip
        self._module = module
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        fixed = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
        self._fixed = fixed | {name: b.detach() for name, b in module.named_buffers()}
        self._shapes = {name: p.shape for name, p in trained.items()}
        self._sizes = [p.numel() for p in trained.values()]
        self.start = torch.cat([p.detach().reshape(-1) for p in trained.values()])
        self.dimension = len(self.start)
        # So that ∥g∥ ≤ C holds despite the rounding of the norm and of the product.
        self._short = 1 - 2 * gamma(self.dimension + 8)

        def row_loss(parameters: dict[str, torch.Tensor], x: Any, y: Any) -> torch.Tensor:
            outputs = functional_call(module, (parameters, self._fixed), (x.unsqueeze(0),))
            return loss(outputs, y.unsqueeze(0))

        self._gradients = vmap(grad(row_loss), in_dims=(None, 0, 0))

    @property
    def block_rows(self) -> int:
        """The number of rows whose gradients are held at a time."""
        return int(min(1024, max(1, _BLOCK_ENTRIES // self.dimension)))

    def blocks(self, count: int) -> Iterator[slice]:
        """Yield slices that cover ``count`` rows, a block of gradients each."""
        for start in range(0, count, self.block_rows):
            yield slice(start, min(start + self.block_rows, count))

    def named(self, theta: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return θ by the names and shapes of the parameters."""
        parts = theta.split(self._sizes)
        items = zip(self._shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in items}

    def at(self, theta: torch.Tensor, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return (rows, d) the clipped gradients, float64."""
        try:
            gradients = self._gradients(self.named(theta), X, y)
        except RuntimeError as error:
            if "randomness" in str(error):
                raise InvalidInput(_RANDOM) from None
            raise
        flat = torch.cat([gradients[name].reshape(len(X), -1) for name in self._shapes], dim=1)
        return self.clipped(flat.double())

    def clipped(self, gradients: torch.Tensor) -> torch.Tensor:
        """Return g/max(1, ∥g∥/C), in place (D5.3 Alg. 1, line 4); refuse NaN and infinity."""
        norms = torch.linalg.vector_norm(gradients, dim=1)
        if not bool(torch.isfinite(norms).all()):
            raise ConvergenceError(
                "a row's gradient is NaN or infinite, which neither clipping nor noise can hide;"
                " lower the learning rate, or fix the loss or the data."
            )
        return gradients.mul_((self._short * self.clip / norms).clamp(max=1.0).unsqueeze(1))


_RANDOM = (
    "module: its forward pass is random (dropout), so that a row's gradient is not one vector;"
    " remove dropout or call its eval()."
)


def check_module(module: torch.nn.Module) -> None:
    """Refuse layers with which a row's gradient is not a function of that row alone."""
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"module: is a {type(module).__name__}; pass a torch.nn.Module.")
    for name, part in module.named_modules():
        description = f"module: {name or 'it'} is a {type(part).__name__}"
        if isinstance(part, _NormBase) and (part.training or not part.track_running_stats):
            raise InvalidInput(
                f"{description}, which mixes rows or keeps their statistics, so that no row has a"
                " gradient of its own; use torch.nn.GroupNorm."
            )
        if isinstance(part, _DropoutNd) and part.training and part.p > 0:
            raise InvalidInput(_RANDOM)
    if not any(p.requires_grad for p in module.parameters()):
        raise InvalidInput("module: has no parameter that requires a gradient: nothing to train.")
    kinds = {p.dtype for p in module.parameters()}
    if not (len(kinds) == 1 and kinds <= {torch.float32, torch.float64}):
        raise InvalidInput(
            "module: its parameters must all be float32 or all float64; call module.float() or"
            " module.double()."
        )
