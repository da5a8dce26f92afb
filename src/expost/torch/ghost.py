"""Products from the hooks of ghost clipping: no row's gradient exists.

Conventions
-----------
a, e     what a layer was given and the derivative of the loss by its output, per row, as Opacus'
         hooks have them in the first backward pass.
B        the noise b of the layer's parameters.
c        the factor by which Opacus clips a row, min(1, C/(∥g∥ + 1e-6)), from its ghost norms.

A row's product with the noise is the sum over layers of ⟨e, D layer(a)[B]⟩, the derivative of the
layer by its parameters along B (for a linear layer Σ_t e_tᵀ B a_t). For a layer that is linear in
its parameters that is the layer itself with B in place of them, one forward pass of the layer; for
all others it is a forward-mode derivative, also of the layer alone. Products are additive over
layers and over several uses of a parameter. They are read from the arguments that Opacus' own
hooks get: the same masks, precision and weights, and no second forward pass of the model.

Rounding is estimated, not proved. With v the root of the sum of squares of the terms of a row's
product, over s (its ∥g∥ if a layer has one e and one a for each row, more where terms cancel), a
product may be off by κ·u·s·v, ∥g∥² by κ·u·v² and a row's part of the sum by κ·u·v, where κ is
``_ROUNDING``. What was measured is in docs/evidence/ghost-law.json; the gap of each step's products
is checked. Norms are Opacus' own. Where they are not those of the gradient that is summed
(parameters that two layers share, padding, layers of other shapes) the pass is refused; in the
first pass two rows' gradients are computed layer by layer, and compared.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

from expost.errors import InvalidInput, require
from expost.torch.account import Products
from expost.torch.noisy_step import NoisyStep, Piece, Reading, finite_products, unit_of

__all__ = ["GhostHooks", "has_dropout", "layer_products"]

# κ of the intervals.
_ROUNDING = 16.0
# Entries of a layer's output that are computed at a time (4 MiB in float32).
BLOCK = 2**20
# Layers whose output is linear in their parameters.
_LINEAR = (
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding, nn.LayerNorm, nn.GroupNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.RMSNorm),
)
# Rows whose gradients are computed in the first pass.
_COMPARED = 2
_ESTIMATED = (
    "Ghost clipping: the intervals cover a rounding that was measured, not proved; the sum of each"
    " step was checked."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Clipped:
    """Of the rows of a pass: c, their products, and Σ c·v."""

    factors: torch.Tensor
    products: Products
    length: float


@dataclass(eq=False)
class _ComparedRow:
    """∥g∥² and b·g of a row's gradient by autograd, and parts of it that are not complete."""

    square: float = 0.0
    inner: float = 0.0
    pending: dict[int, torch.Tensor] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class _Pass:
    """What one backward pass has given so far."""

    noise: dict[int, torch.Tensor]
    rows: int
    inner: torch.Tensor
    spread: torch.Tensor
    uses: dict[int, int] = field(default_factory=dict)
    # Parameters whose norms come from a ghost rule, which takes them to be used once.
    ruled: set[int] = field(default_factory=set)
    # The first rows, in the first pass.
    compared: list[_ComparedRow] = field(default_factory=list)


class GhostHooks:
    """The hooks of Opacus' ghost and fast gradient clipping.

    Parameters
    ----------
    optimizer : Any
        The optimizer that ``make_private(..., grad_sample_mode="ghost")`` returned.
    model : Any
        The first of what it returned: the wrapped model, or the hooks with ``wrap_model=False``.
    """

    summing = "accumulate"
    waits = False
    notices: tuple[str, ...] = (_ESTIMATED,)

    def __init__(self, optimizer: Any, model: Any) -> None:
        opacus = require("opacus.grad_sample", caller="expost.torch.track", extra="torch")
        if not isinstance(model, opacus.GradSampleHooksFastGradientClipping):
            raise InvalidInput(
                "model: ghost clipping is read from the model's hooks; pass model=, the first of"
                " what make_private(..., grad_sample_mode='ghost') returned."
            )
        if type(model) not in (
            opacus.GradSampleHooksFastGradientClipping,
            opacus.GradSampleModuleFastGradientClipping,
        ):
            raise InvalidInput(
                f"model: is a {type(model).__name__}; distributed training is not tracked, train in"
                " one process."
            )
        if "get_clipping_coef" in vars(model):
            raise InvalidInput("model: is already tracked; use the existing tracker.")
        self._optimizer = optimizer
        self._model = model
        self._own = (model.rearrange_grad_samples, model.get_clipping_coef)
        self._reading: Reading | None = None
        self._pass: _Pass | None = None
        self._piece: Piece | None = None
        # The step of rows that are not summed, while their losses are differentiated.
        self._unsummed: NoisyStep | None = None
        self._is_compared = False
        # Opacus' norms are those of the parameters that were trained when it made its hooks.
        self._trained = {id(p) for p in model.trainable_parameters}
        self._watch: Any = None

    def attach(self, reading: Reading) -> None:
        """Read what Opacus' hooks get from now on."""
        self._reading = reading
        self._model.rearrange_grad_samples = self._layer
        self._model.get_clipping_coef = self._clipped
        self._watch = self._model._module.register_forward_pre_hook(self._check_trained)

    def detach(self) -> None:
        """Restore the methods of the model."""
        for name in ("rearrange_grad_samples", "get_clipping_coef"):
            vars(self._model).pop(name, None)
        self._watch.remove()

    def summed(self, step: NoisyStep, add: Callable[[], None] | None) -> Piece:
        """Call Opacus' method, and return the piece of the last backward pass."""
        if add is not None:
            add()
        piece, self._piece = self._piece, None
        if piece is None:
            raise InvalidInput(
                "optimizer: makes a step on gradients that no backward pass of its criterion has"
                " clipped; call criterion(...).backward() of what make_private returned (adaptive"
                " clipping is not tracked)."
            )
        return piece

    def computed(self, step: NoisyStep, loss: Any) -> Products:
        """Return the products of rows whose ``loss`` Opacus' criterion gives: one pass back."""
        if not hasattr(loss, "loss_per_sample"):
            raise InvalidInput(
                "loss: must return what Opacus' criterion returns in ghost mode; pass"
                " loss=lambda batch: criterion(model(batch[0]), batch[1])."
            )
        norms = self._model._per_sample_gradient_norms
        self._unsummed = step
        try:
            reduced = torch.mean if loss.loss_reduction == "mean" else torch.sum
            reduced(loss.loss_per_sample).backward()
            return self._products(step).products
        finally:
            self._unsummed = None
            self._pass = None
            self._model.per_sample_gradient_norms = norms

    @contextmanager
    def _step(self) -> Iterator[NoisyStep]:
        if self._unsummed is not None:
            yield self._unsummed
        elif self._reading is not None:
            with self._reading() as step:
                yield step

    def _layer(self, *, module: nn.Module, **options: Any) -> Any:
        """Read what a layer's hook gets, and pass it on."""
        activations, backprops = self._own[0](module=module, **options)
        with self._step() as step:
            self._read(step, module, activations, backprops)
        return activations, backprops

    def _clipped(self) -> torch.Tensor:
        """Return Opacus' factors, when the first backward pass has ended."""
        with self._step() as step:
            if self._piece is not None:
                raise InvalidInput(
                    "optimizer: two backward passes were made before a step, of which Opacus keeps"
                    " the last in ghost mode; call optimizer.step() after each, and split a batch"
                    " that is too large for the memory by its BatchMemoryManager."
                )
            clipped = self._products(step)
            self._piece = Piece(
                lengths=[len(clipped.factors)],
                products=clipped.products,
                length=clipped.length,
                rounding=_ROUNDING * step.unit * clipped.length,
            )
            self._pass = None
        return clipped.factors

    def _read(
        self,
        step: NoisyStep,
        module: nn.Module,
        activations: list[torch.Tensor],
        backprops: torch.Tensor,
    ) -> None:
        """Add the products of one layer."""
        rows: int = module.max_batch_len  # set by Opacus' hook
        current = self._pass
        if current is None:
            current = self._pass = self._begun(step, rows, backprops.device)
        if rows != current.rows:
            raise InvalidInput(
                f"model: a {type(module).__name__} gets {rows} rows where others get"
                f" {current.rows}; every layer that is trained must get one entry for each row."
            )
        _check_layer(module, backprops, ghost=self._has_rule(module))
        own = {name: p for name, p in module.named_parameters() if p.requires_grad}
        for p in own.values():
            current.uses[id(p)] = current.uses.get(id(p), 0) + 1
        if self._has_rule(module):
            current.ruled |= {id(p) for p in own.values()}
        noise = {name: current.noise[id(p)] for name, p in own.items() if id(p) in current.noise}
        step.unit = max(step.unit, unit_of([backprops]))
        if not step.is_certified:
            current.compared.clear()
        inner, spread = layer_products(module, activations, backprops, noise)
        current.inner[: len(inner)] += inner
        current.spread[: len(inner)] += spread
        for row, compared in enumerate(current.compared):
            if row < len(backprops):
                at = slice(row, row + 1)
                _compare(compared, current, module, [a[at] for a in activations], backprops[at])

    def _has_rule(self, module: nn.Module) -> bool:
        return bool(self._model.use_ghost_clipping) and type(module) in self._model.NORM_SAMPLERS

    def _begun(self, step: NoisyStep, rows: int, device: torch.device) -> _Pass:
        self._check_trained(self._model._module)
        parameters = self._optimizer.params
        first = not self._is_compared and step.is_certified
        return _Pass(
            noise={id(p): b for p, b in zip(parameters, step.noise, strict=True)},
            rows=rows,
            inner=torch.zeros(rows, dtype=torch.float64, device=device),
            spread=torch.zeros(rows, dtype=torch.float64, device=device),
            compared=[_ComparedRow() for _ in range(min(_COMPARED, rows))] if first else [],
        )

    def _products(self, step: NoisyStep) -> _Clipped:
        """Return what the pass that has ended gives."""
        bound, clip = float(self._model.max_grad_norm), float(self._optimizer.max_grad_norm)
        if bound != clip:
            raise InvalidInput(
                f"model: clips to {bound:g} where the optimizer adds noise for {clip:g}; set"
                " max_grad_norm of both, a scheduler of Opacus sets the optimizer's alone."
            )
        current = self._pass
        if current is None:
            raise InvalidInput(
                "model: its hooks did not see the backward pass; train the model that make_private"
                " returned, in training mode."
            )
        self._check_uses(current)
        factors: torch.Tensor = self._own[1]()
        norms = self._model.per_sample_gradient_norms.double()
        terms = torch.maximum(current.spread.sqrt() / step.scale, norms)
        # c·v; c·b·g + c²∥g∥²/2 may be off by κ·u·(s·c·v + (c·v)²/2).
        clipped = terms * factors
        error = _ROUNDING * step.unit * clipped * (step.scale + clipped / 2)
        products = finite_products(current.inner * factors, norms * factors, error)
        self._check_compared(step, current, norms, terms)
        return _Clipped(factors=factors, products=products, length=float(clipped.sum()))

    def _check_trained(self, module: nn.Module, *_inputs: Any) -> None:
        """Refuse other parameters than Opacus computes the norms of; a hook of the model."""
        if {id(p) for p in module.parameters() if p.requires_grad} != self._trained:
            raise InvalidInput(
                "model: a parameter was frozen or unfrozen after make_private, of which Opacus"
                " keeps an old norm or has none; call make_private and track again after such a"
                " change, or use grad_sample_mode='hooks' to freeze some."
            )

    def _check_uses(self, current: _Pass) -> None:
        """Refuse parameters without a norm of this pass, or with one of a part of their uses."""
        if not current.uses.keys() == current.noise.keys() == self._trained:
            raise InvalidInput(
                "model: not every parameter that the optimizer trains took part in the backward"
                " pass, or others did, so that Opacus' norms are not those of this step; freeze"
                " them before make_private, and train all others."
            )
        if any(current.uses[key] > 1 for key in current.ruled):
            raise InvalidInput(
                "model: two layers share a parameter, of which ghost clipping computes the norm of"
                " one use; use grad_sample_mode='hooks', or GradSampleModuleFastGradientClipping"
                " (..., use_ghost_clipping=False)."
            )

    def _check_compared(
        self, step: NoisyStep, current: _Pass, norms: torch.Tensor, terms: torch.Tensor
    ) -> None:
        """Refuse norms or products that are not those of the rows' gradients."""
        if not current.compared:
            return
        self._is_compared = True
        most = 3 * step.unit**0.5
        for row, compared in enumerate(current.compared):
            norm, inner = compared.square**0.5, compared.inner
            gap = abs(inner - float(current.inner[row])) / step.scale
            v = float(terms[row])
            if not (
                abs(norm**2 - float(norms[row]) ** 2) <= most * norm**2 + 100 * step.unit * v**2
                and gap <= most * v
            ):
                raise InvalidInput(
                    "model: the norm that Opacus' hooks compute is not that of a row's gradient, so"
                    " that clipping is not what it states; use grad_sample_mode='hooks'."
                )


def _compare(
    compared: _ComparedRow,
    current: _Pass,
    module: nn.Module,
    a: list[torch.Tensor],
    e: torch.Tensor,
) -> None:
    """Add a row's gradient of this layer by autograd; no more than what is incomplete is kept."""
    own = {name: p for name, p in module.named_parameters() if p.requires_grad}
    with torch.enable_grad(), _plain():
        weights = {name: p.detach().requires_grad_() for name, p in own.items()}
        parts = torch.autograd.grad(_applied(module, weights, a), list(weights.values()), e)
    for p, part in zip(own.values(), parts, strict=True):
        whole = part + compared.pending.pop(id(p), 0)
        if p._forward_counter > 1:  # Opacus' count of uses whose pass is to come, with this one
            compared.pending[id(p)] = whole
        elif id(p) in current.noise:
            compared.square += float(whole.norm()) ** 2
            compared.inner += float(torch.dot(whole.reshape(-1), current.noise[id(p)].reshape(-1)))


def _check_layer(module: nn.Module, backprops: torch.Tensor, *, ghost: bool) -> None:
    """Refuse layers of which Opacus' norms are not those of the gradient that is summed."""
    reason = None
    if isinstance(module, nn.Linear) and ghost and backprops.dim() not in (2, 3):
        reason = f"its input has {backprops.dim()} dimensions, for which Opacus computes no norm"
    elif isinstance(module, nn.EmbeddingBag):
        reason = "Opacus' norm leaves repeated entries out"
    elif isinstance(module, nn.Embedding):
        odd = [
            name
            for name in ("padding_idx", "max_norm", "scale_grad_by_freq", "sparse")
            if getattr(module, name) is not None and getattr(module, name) is not False
        ]
        reason = f"Opacus' norm does not know its {odd[0]}" if odd else None
    elif isinstance(module, _ConvNd) and module.padding_mode != "zeros":
        reason = f"Opacus' norm does not know its padding_mode={module.padding_mode!r}"
    elif type(module) not in _LINEAR and has_dropout(module):
        reason = "Opacus draws its dropout once more to compute the norm"
    if reason is not None:
        raise InvalidInput(
            f"model: has a {type(module).__name__}: {reason}; use grad_sample_mode='hooks'."
        )


def has_dropout(model: Any) -> bool:
    """Return whether a layer of the model, or of the model of these hooks, draws masks."""
    module = getattr(model, "_module", model)
    return isinstance(module, nn.Module) and any(
        isinstance(part, _DropoutNd) and part.training and part.p > 0 for part in module.modules()
    )


def layer_products(
    module: nn.Module,
    activations: list[torch.Tensor],
    backprops: torch.Tensor,
    noise: dict[str, torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ⟨e, D layer(a)[B]⟩ of each row and the sum of squares of its terms, float64.

    ``noise`` is B by the names of the parameters.
    """
    rows = len(backprops)
    products, spread = torch.zeros(2, rows, dtype=torch.float64, device=backprops.device)
    if not noise or not rows:
        return products, spread
    wide = next(iter(noise.values())).dtype
    size = max(1, BLOCK * rows // max(1, backprops.numel()))
    with torch.no_grad(), _plain():
        for start in range(0, rows, size):
            at = slice(start, min(start + size, rows))
            a = [_cast(part[at], wide) for part in activations]
            moved = _moved(module, a, noise)
            if moved.shape != backprops[at].shape:
                raise InvalidInput(
                    f"model: a {type(module).__name__} has an output of other rows than its input,"
                    " or several outputs; use grad_sample_mode='hooks'."
                )
            terms = moved.mul_(_cast(backprops[at], wide)).flatten(1)
            products[at] = terms.sum(1)
            spread[at] = terms.square_().sum(1)
    return products, spread


def _moved(
    module: nn.Module, a: list[torch.Tensor], noise: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Return the derivative of a layer's output by its parameters along B."""
    if type(module) in _LINEAR:
        weights = {
            name: noise[name] if name in noise else torch.zeros_like(p)
            for name, p in module.named_parameters()
        }
        return _applied(module, weights, a)
    values = {name: p.detach() for name, p in module.named_parameters() if name in noise}
    # Fused attention has no forward-mode derivative.
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        # Of torch itself, which compiles such derivatives by a deprecated function of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        moved: torch.Tensor = jvp(
            lambda weights: _applied(module, weights, a), (values,), (dict(noise),)
        )[1]
    return moved


def _applied(module: nn.Module, weights: dict[str, torch.Tensor], a: list[torch.Tensor]) -> Any:
    """Return the output of a layer with these weights, without the hooks that a call would run."""
    bare = nn.Module()
    bare.layer, bare.forward = module, module.forward
    named = {f"layer.{name}": value for name, value in weights.items()}
    return functional_call(bare, named, tuple(a))


@contextmanager
def _plain() -> Iterator[None]:
    """Compute in the types that are given."""
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield


def _cast(values: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    return values.to(wide) if values.is_floating_point() else values
