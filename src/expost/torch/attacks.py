"""White-box scores of a module's rows, and a module with its training as a target of ``audit``.

Scores are those of :mod:`expost.auditing.attacks.gradients`, whose docstring derives which inner
product is a likelihood ratio; the gradients of single rows come from ``torch.func``. A network is
not a minimiser, but near the end of a training that averages its loss the members' gradients sum to
about −nwθ, w the weight decay. This S is assumed.
"""

import copy
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expost import _checks
from expost.auditing.attacks.gradients import (
    GRADIENT_INNER_PRODUCT,
    GRADIENT_NORM,
    MOST_ROWS,
    gradient_norm,
    gradient_ratio,
)
from expost.auditing.evidence import LARGEST, Confidences
from expost.errors import ConvergenceError, InvalidInput
from expost.labels import class_codes
from expost.torch.gradients import RowGradients
from expost.torch.training import as_tensors
from expost.types import FloatArray, IntArray

__all__ = [
    "ModuleGradients",
    "TorchModel",
    "TorchTraining",
    "evaluate",
    "fresh_copy",
    "gradient_scores",
    "log_odds",
    "torch_target",
]

Loss = Callable[[Any, Any], torch.Tensor]
# Gradients of at most this many entries are kept (512 MiB in float64); others are recomputed.
_KEPT = 2**26
# Rows evaluated at a time.
_EVALUATED = 1024
# torch's generator is shared by all threads: only one training uses it at a time.
_GENERATOR = threading.Lock()


class ModuleGradients:
    """The gradients of rows (X, y) at θ, as :class:`expost.auditing.attacks.gradients.Gradients`.

    Parameters
    ----------
    each : RowGradients
        Computes the gradient of each row of a batch.
    X, y : torch.Tensor
        The rows and their labels.
    theta : torch.Tensor, optional
        The parameters θ (D,); None: the module's own.
    """

    def __init__(
        self,
        each: RowGradients,
        X: torch.Tensor,
        y: torch.Tensor,
        *,
        theta: torch.Tensor | None = None,
    ) -> None:
        self._each, self._X, self._y = each, X, y
        self._theta = each.start if theta is None else theta

    @classmethod
    def of(
        cls,
        module: torch.nn.Module,
        X: Any,
        y: Any,
        *,
        loss: Loss = torch.nn.functional.cross_entropy,
    ) -> "ModuleGradients":
        """Return the gradients at a module in evaluation mode.

        Parameters
        ----------
        module : torch.nn.Module
            The network. It is copied, and stays as it is.
        X, y : Any
            The rows and their labels.
        loss : Loss, default=torch.nn.functional.cross_entropy
            The loss of (outputs, targets) for a batch of one row.

        Returns
        -------
        ModuleGradients
            The gradients of the rows.
        """
        frozen = copy.deepcopy(module).eval() if isinstance(module, torch.nn.Module) else module
        # An infinite clipping norm: nothing is clipped.
        each = RowGradients(frozen, loss, math.inf)
        return cls(each, *as_tensors(frozen, X, y, "X, y"))

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return len(self._X)

    @property
    def dimension(self) -> int:
        """The number D of parameters."""
        return self._each.dimension

    @property
    def parameters(self) -> FloatArray:
        """The parameters θ (D,)."""
        return _array(self._theta)

    def squares(self) -> FloatArray:
        """Return (n,) ∥g∥².

        Returns
        -------
        FloatArray
            The squared lengths.
        """
        return self._over(lambda g: torch.einsum("ij,ij->i", g, g))

    def mean(self) -> FloatArray:
        """Return (D,) the mean gradient.

        Returns
        -------
        FloatArray
            The mean over the rows.
        """
        total = torch.zeros(self.dimension, dtype=torch.float64, device=self._X.device)
        for block in self._each.blocks(self.rows):
            total += self._vectors(block).sum(dim=0)
        return _array(total / self.rows)

    def along(self, direction: FloatArray) -> FloatArray:
        """Return (n,) g·direction.

        Parameters
        ----------
        direction : FloatArray
            (D,) a vector.

        Returns
        -------
        FloatArray
            The inner products.
        """
        vector = torch.from_numpy(np.ascontiguousarray(direction)).to(self._X.device)
        return self._over(lambda g: g @ vector)

    def take(self, rows: IntArray) -> "ModuleGradients":
        """Return the gradients of some of the rows.

        Parameters
        ----------
        rows : IntArray
            (k,) row numbers.

        Returns
        -------
        ModuleGradients
            The gradients of these rows.
        """
        chosen = torch.from_numpy(np.asarray(rows)).to(self._X.device)
        return ModuleGradients(self._each, self._X[chosen], self._y[chosen], theta=self._theta)

    def gram(self, others: "ModuleGradients") -> FloatArray:
        """Return (n, k) the inner products.

        Parameters
        ----------
        others : ModuleGradients
            The gradients of k other rows of the same module.

        Returns
        -------
        FloatArray
            The inner products.
        """
        products = np.empty((self.rows, others.rows))
        for here in self._each.blocks(self.rows):
            mine = self._vectors(here)
            for there in self._each.blocks(others.rows):
                products[here, there] = _array(mine @ others._vectors(there).T)
        return products

    @cached_property
    def _kept(self) -> torch.Tensor | None:
        if not self.rows * self.dimension <= _KEPT:
            return None
        return torch.cat([self._computed(block) for block in self._each.blocks(self.rows)])

    def _vectors(self, block: slice) -> torch.Tensor:
        return self._computed(block) if self._kept is None else self._kept[block]

    def _computed(self, block: slice) -> torch.Tensor:
        return self._each.at(self._theta, self._X[block], self._y[block])

    def _over(self, function: Callable[[torch.Tensor], torch.Tensor]) -> FloatArray:
        parts = [function(self._vectors(block)) for block in self._each.blocks(self.rows)]
        return _array(torch.cat(parts))


def gradient_scores(
    module: torch.nn.Module,
    X: Any,
    y: Any,
    *,
    members: int,
    population: tuple[Any, Any] | None = None,
    trained_on: int | None = None,
    loss: Loss = torch.nn.functional.cross_entropy,
    weight_decay: float = 0.0,
) -> dict[str, FloatArray]:
    """Return the white-box scores of a module's rows, by name, for ``Evidence.extras``.

    Parameters
    ----------
    module : torch.nn.Module
        The trained network.
    X, y : Any
        The rows and their labels.
    members : int
        The number of these rows that the module was trained on.
    population : tuple[Any, Any], optional
        (X, y) of rows that were certainly not trained on; None: the rows in question are used.
    trained_on : int, optional
        The number of rows it was trained on in total; None for ``members``.
    loss : Loss, default=torch.nn.functional.cross_entropy
        The loss of (outputs, targets) for a batch of one row.
    weight_decay : float, default=0.0
        The weight decay w of a training that minimises the mean loss plus (w/2)∥θ∥².

    Returns
    -------
    dict
        ``gradient-norm``, and ``gradient-inner-product`` if non-members are known.

    Raises
    ------
    InvalidInput
        If a row's gradient is not a function of that row alone, or an argument is invalid.
    """
    if not 0 <= weight_decay < math.inf:
        raise InvalidInput(f"weight_decay={weight_decay!r}: must be a finite number ≥ 0.")
    members = _checks.integer("members", members, least=1)
    if trained_on is not None:
        trained_on = _checks.integer("trained_on", trained_on, least=1)
    rows = ModuleGradients.of(module, X, y, loss=loss)
    scores = {GRADIENT_NORM.name: gradient_norm(rows)}
    if population is None and not members < rows.rows:
        return scores
    n = members if trained_on is None else trained_on
    scores[GRADIENT_INNER_PRODUCT.name] = gradient_ratio(
        rows,
        None if population is None else ModuleGradients.of(module, *population, loss=loss),
        members=n,
        within=members,
        total=-n * weight_decay * rows.parameters,
        most_rows=min(MOST_ROWS, max(64, _KEPT // rows.dimension)),
    )
    return scores


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchModel:
    """A trained module with ``predict_proba``, the probabilities of the labels ``classes_``.

    Parameters
    ----------
    module : torch.nn.Module
        The trained network.
    classes_ : NDArray[Any]
        (K,) the label of each output.
    loss : Loss, default=torch.nn.functional.cross_entropy
        The loss of (outputs, targets).
    weight_decay : float, default=0.0
        The weight decay w of the training.
    """

    module: torch.nn.Module
    classes_: NDArray[Any]
    loss: Loss = torch.nn.functional.cross_entropy
    weight_decay: float = 0.0

    def predict_proba(self, X: Any) -> FloatArray:
        """Return (n, K) the softmax of the module's outputs, in evaluation mode.

        Parameters
        ----------
        X : Any
            The rows.

        Returns
        -------
        FloatArray
            The probability of each label.

        Raises
        ------
        InvalidInput
            If the module does not have one output per label.
        """
        outputs = evaluate(self.module, X)
        if outputs.ndim != 2 or outputs.shape[1] != len(self.classes_):
            raise InvalidInput(
                f"module: has outputs of shape {tuple(outputs.shape)}; must have one for each of"
                f" {len(self.classes_)} classes."
            )
        return _array(torch.softmax(outputs.double(), dim=1))

    def gradient_scores(
        self,
        X: Any,
        y: Any,
        *,
        members: int,
        population: tuple[Any, Any] | None = None,
        trained_on: int | None = None,
    ) -> dict[str, FloatArray]:
        """Return :func:`gradient_scores` of rows with labels among ``classes_``.

        Parameters
        ----------
        X, y : Any
            The rows and their labels.
        members, population, trained_on : int, tuple[Any, Any] | None, int | None
            As for :func:`gradient_scores`.

        Returns
        -------
        dict[str, FloatArray]
            (n,) scores by the names of the attacks.

        Raises
        ------
        InvalidInput
            If a label is not among ``classes_``, or an argument is invalid.
        """
        if population is not None:
            population = (population[0], _codes(population[1], self.classes_))
        return gradient_scores(
            self.module,
            X,
            _codes(y, self.classes_),
            members=members,
            population=population,
            trained_on=trained_on,
            loss=self.loss,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchTraining:
    """A training function ``(X, y, seed) -> TorchModel``, made by :func:`torch_target`.

    The fields are the parameters of :func:`torch_target`.

    Parameters
    ----------
    module : torch.nn.Module
        The network before the training.
    classes : NDArray[Any]
        (K,) the label of each output.
    epochs : int
        The number of passes over the rows.
    learning_rate : float
        The step size.
    batch_size : int | None
        The number of rows of a step; None: all rows.
    optimizer : str
        "sgd" or "adam".
    momentum : float
        The momentum of "sgd".
    weight_decay : float
        The weight decay of the optimizer.
    loss : Loss
        The mean loss of (outputs, targets) over a batch.
    train : callable | None
        The caller's own training, in place of epochs of batches.
    fresh : bool
        Whether every training draws its own first parameters.
    """

    module: torch.nn.Module
    classes: NDArray[Any]
    epochs: int
    learning_rate: float
    batch_size: int | None
    optimizer: str
    momentum: float
    weight_decay: float
    loss: Loss
    train: Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], None] | None
    fresh: bool

    def __call__(self, X: Any, y: Any, seed: int) -> TorchModel:
        """Train a copy on these rows, every draw from ``seed``."""
        rng = np.random.default_rng(_checks.integer("seed", seed, least=0))
        with _GENERATOR, torch.random.fork_rng(devices=[]):
            module = fresh_copy(self.module, rng) if self.fresh else copy.deepcopy(self.module)
            rows, labels = as_tensors(module, X, _codes(y, self.classes), "X, y")
            torch.manual_seed(int(rng.integers(2**62)))
            module.train()
            if self.train is not None:
                self.train(module, rows, labels)
            else:
                self._descend(module, rows, labels)
        if not all(bool(torch.isfinite(p).all()) for p in module.parameters()):
            raise ConvergenceError(
                f"learning_rate={self.learning_rate!r}: parameters are NaN or infinite after the"
                " training; lower it."
            )
        return self.model(module)

    def model(self, module: torch.nn.Module | None = None) -> TorchModel:
        """Return a trained module as a model (None: the module passed to ``torch_target``).

        Parameters
        ----------
        module : torch.nn.Module, optional
            The trained module; None: the module passed to ``torch_target``.

        Returns
        -------
        TorchModel
            The model, as ``audit`` takes it.
        """
        return TorchModel(
            module=self.module if module is None else module,
            classes_=self.classes,
            loss=self.loss,
            weight_decay=self.weight_decay,
        )

    def _descend(self, module: torch.nn.Module, X: torch.Tensor, y: torch.Tensor) -> None:
        """Train in batches, in a new order each epoch."""
        options: dict[str, Any] = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        if self.optimizer == "sgd":
            rule = torch.optim.SGD(module.parameters(), momentum=self.momentum, **options)
        else:
            rule = torch.optim.Adam(module.parameters(), **options)
        size = len(X) if self.batch_size is None else self.batch_size
        for _ in range(self.epochs):
            for rows in torch.randperm(len(X)).to(X.device).split(size):
                rule.zero_grad()
                self.loss(module(X[rows]), y[rows]).backward()
                rule.step()


def torch_target(
    module: torch.nn.Module,
    *,
    classes: Any,
    epochs: int = 1,
    learning_rate: float = 0.1,
    batch_size: int | None = None,
    optimizer: str = "sgd",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    loss: Loss = torch.nn.functional.cross_entropy,
    train: Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], None] | None = None,
    fresh: bool = True,
) -> TorchTraining:
    """Return a training function of ``module``, as ``audit`` takes it.

        train = expost.torch.torch_target(module, classes=range(10), epochs=50)
        expost.audit(train, X, y)                               # trained here, on half of the rows
        expost.audit(train.model(), X, y, X_out, y_out, train=train)  # trained already, on X and y

    Parameters
    ----------
    module : torch.nn.Module
        The network. Copies of it are trained.
    classes : Any
        The label of each output of the module, in its order.
    epochs : int, default=1
        The number of passes over the rows.
    learning_rate : float, default=0.1
        The step size of the optimizer.
    batch_size : int, optional
        None for all rows at once.
    optimizer : str, default="sgd"
        "sgd" or "adam".
    momentum : float, default=0.0
        The momentum of "sgd".
    weight_decay : float, default=0.0
        The weight decay of the optimizer.
    loss : Loss, default=torch.nn.functional.cross_entropy
        The mean loss of (outputs, targets) over a batch.
    train : callable, optional
        Your own training of (module, X, y) in place, instead of epochs of batches.
    fresh : bool, default=True
        Whether every training draws its own first parameters (``reset_parameters`` of every layer);
        else all start from the module's.

    Returns
    -------
    TorchTraining
        The training function.

    Raises
    ------
    InvalidInput
        If an argument is invalid.
    """
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"module: is a {type(module).__name__}; pass a torch.nn.Module.")
    if not 0 <= momentum < 1:
        raise InvalidInput(f"momentum={momentum!r}: must be at least 0 and below 1.")
    if not 0 <= weight_decay < math.inf:
        raise InvalidInput(f"weight_decay={weight_decay!r}: must be a finite number ≥ 0.")
    known = np.asarray(list(classes))
    if known.ndim != 1 or len(known) < 2 or len(np.unique(known)) != len(known):
        raise InvalidInput("classes: must be at least two different labels, one per output.")
    return TorchTraining(
        module=copy.deepcopy(module),
        classes=known,
        epochs=_checks.integer("epochs", epochs, least=1),
        learning_rate=_checks.positive("learning_rate", learning_rate),
        batch_size=None
        if batch_size is None
        else _checks.integer("batch_size", batch_size, least=1),
        optimizer=_checks.one_of("optimizer", optimizer, ("sgd", "adam")),
        momentum=momentum,
        weight_decay=weight_decay,
        loss=loss,
        train=train,
        fresh=fresh,
    )


def evaluate(module: torch.nn.Module, X: Any) -> torch.Tensor:
    """Return the module's outputs for rows X, in evaluation mode and without gradients."""
    parameter = next(module.parameters())
    rows = torch.as_tensor(X if isinstance(X, torch.Tensor) else np.asarray(X))
    rows = rows.to(parameter.device)
    rows = rows.to(parameter.dtype) if rows.is_floating_point() else rows
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            return torch.cat([module(part) for part in rows.split(_EVALUATED)])
    finally:
        module.train(was_training)


def log_odds(outputs: torch.Tensor, labels: torch.Tensor) -> Confidences:
    """Return (n,) φ = z_y − log Σ_{k≠y} e^(zₖ), without computing a p that rounds to 1."""
    z = outputs.detach().double()
    own = z.gather(1, labels[:, None])
    rest = z.scatter(1, labels[:, None], -math.inf)
    phi = (own[:, 0] - torch.logsumexp(rest, dim=1)).clamp(-LARGEST, LARGEST)
    values: Confidences = phi.cpu().numpy().astype(np.float32)
    if np.any(np.isnan(values)):
        raise ConvergenceError("a module's outputs are NaN; lower the learning rate.")
    return values


def _codes(y: Any, classes: NDArray[Any]) -> IntArray:
    labels = y.cpu().numpy() if isinstance(y, torch.Tensor) else y
    return class_codes(labels, classes).astype(np.int64)


def _array(values: torch.Tensor) -> FloatArray:
    array: FloatArray = values.detach().double().cpu().numpy()
    return array


def fresh_copy(module: torch.nn.Module, rng: np.random.Generator) -> torch.nn.Module:
    """Return a copy whose layers have redrawn their parameters, from ``rng`` alone."""
    module = copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**62)))
        for part in module.modules():
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()
    return module
