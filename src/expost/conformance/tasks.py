"""Rows whose gradients are known, and the training on them that a trainer is asked for.

The model is linear in its parameters: the loss of a row is y·Σ⟨parameters, x⟩ over its layers, so
that its gradient is y·x at any parameters. Rows have gradients in the first coordinates of each
layer (``SIGNAL`` of them). The others receive noise alone.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from expost.conformance.claims import LAYERS, Claims
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["FREE", "GROUPS", "SIGNAL", "Group", "Run", "Task", "Trainer", "observe"]

SIGNAL = 8
_SIZES = tuple(LAYERS.values())
_WIDTH = sum(_SIZES)
# The first coordinate of each layer.
STARTS = tuple(_WIDTH - sum(_SIZES[at:]) for at in range(len(_SIZES)))
_PARTS = {
    name: slice(start, start + LAYERS[name]) for name, start in zip(LAYERS, STARTS, strict=True)
}
# Coordinates without gradients.
FREE = np.concatenate([np.arange(part.start + SIGNAL, part.stop) for part in _PARTS.values()])
# The layer of each free coordinate.
FREE_LAYER = np.repeat(np.arange(len(LAYERS)), [size - SIGNAL for size in _SIZES])


@dataclass(frozen=True, kw_only=True)
class Group:
    """Equal rows, but for signs.

    Parameters
    ----------
    length : float
        The length of a gradient, over C.
    parts : tuple[float, ...]
        The share of each layer; their squares sum to 1.
    opposite : bool, default=False
        Whether a third of the rows points in the opposite direction, with ten times the length.
    """

    length: float
    parts: tuple[float, ...]
    opposite: bool = False


# Short, hardly clipped, and long gradients, spread over the layers in different proportions.
GROUPS = (
    Group(length=0.5, parts=(0.6, 0.48, 0.64)),
    Group(length=0.9, parts=(0.64, 0.6, 0.48)),
    Group(length=1.2, parts=(0.48, 0.64, 0.6)),
    Group(length=10.0, parts=(0.6, 0.8, 0.0)),
    Group(length=100.0, parts=(0.28, 0.0, 0.96)),
    Group(length=10.0, parts=(0.8, 0.36, 0.48), opposite=True),
)


@dataclass(kw_only=True, eq=False)
class Task:
    """A training that a trainer is asked for.

    Parameters
    ----------
    X : NDArray
        (n, d) rows.
    y : NDArray
        (n,) labels.
    rate : float
        The probability with which each row is in a batch; 1: every batch has all rows.
    learning_rate : float
        α.
    steps : int
        How many steps are observed at most.
    parameters : dict of str to NDArray
        θ at the start, by layer: zeros.
    accountant : callable, optional
        A trainer sets it to a function from δ to the ε spent so far.
    """

    X: Any
    y: Any
    rate: float
    learning_rate: float
    steps: int
    parameters: dict[str, Any] = field(
        default_factory=lambda: {name: np.zeros(size) for name, size in LAYERS.items()}
    )
    accountant: Callable[[float], float] | None = None

    @property
    def batch_size(self) -> int:
        """The expected number of rows of a batch, rounded."""
        return max(1, round(self.rate * len(self.X)))

    @staticmethod
    def loss(parameters: Mapping[str, Any], x: Any, y: Any) -> Any:
        """Return the loss of one row, for arrays of any library with ``@``.

        Parameters
        ----------
        parameters : Mapping of str to array
            θ by layer.
        x : array
            (d,) the row.
        y : scalar
            Its label.

        Returns
        -------
        scalar
            y·Σ⟨parameters, x⟩.
        """
        return y * sum(parameters[name] @ x[part] for name, part in _PARTS.items())

    @staticmethod
    def gradients(X: Any, y: Any) -> dict[str, Any]:
        """Return the gradients of rows, for trainers without automatic differentiation.

        Parameters
        ----------
        X : array
            (n, d) rows.
        y : array
            (n,) labels.

        Returns
        -------
        dict of str to array
            (n, parameters) by layer.
        """
        return {name: y[:, None] * X[:, part] for name, part in _PARTS.items()}


Rows = tuple[FloatArray, FloatArray]
# Trains as a task asks for, and yields the parameters by layer after each step.
Trainer = Callable[[Task], Iterator[Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What a trainer published.

    Parameters
    ----------
    sums : FloatArray
        (steps, d) the noisy sums: the move of θ, over −α/divisor for the claimed divisor.
    rows : int
        The number of rows.
    rate : float
        The rate that was asked for.
    divisor : float
        The claimed divisor.
    largest : float
        The largest number of the parameters' type.
    epsilon : float, optional
        The ε that the trainer's accountant reports after the last step.
    """

    sums: FloatArray
    rows: int
    rate: float
    divisor: float
    largest: float
    epsilon: float | None = None

    @property
    def free(self) -> FloatArray:
        """(steps, coordinates) sums where no row has a gradient: noise alone."""
        return self.sums[:, FREE]


class TrainerFailed(InvalidInput):
    """A trainer raised an error or made fewer steps than it was asked for."""


def observe(
    trainer: Trainer,
    claims: Claims,
    rows: Rows,
    *,
    rate: float,
    steps: int,
    accounted: bool = False,
    finite: bool = True,
) -> Run:
    """Train on ``rows``, (X, y), and return what was published.

    Parameters
    ----------
    accounted : bool, default=False
        Whether ε is read from the accountant.
    finite : bool, default=True
        Whether parameters that are not finite are refused.

    Raises
    ------
    TrainerFailed
        If the trainer raises an error, makes fewer steps, or yields other parameters.
    """
    task = Task(
        X=rows[0].copy(),
        y=rows[1].copy(),
        rate=rate,
        learning_rate=claims.learning_rate,
        steps=steps,
    )
    published = [np.zeros(_WIDTH)]
    dtype = np.dtype(np.float64)
    run: Iterator[Mapping[str, Any]] = iter(())
    try:
        run = iter(trainer(task))
        while len(published) <= steps:
            parameters = next(run)
            published.append(_flat(parameters))
            dtype = np.asarray(parameters[next(iter(LAYERS))]).dtype
        spent = task.accountant(claims.delta) if accounted and task.accountant else None
    except StopIteration:
        raise TrainerFailed(
            f"trainer: yielded {len(published) - 1} steps where {steps} are observed; yield after"
            " each step, and train until the caller stops (or task.steps steps)."
        ) from None
    except TrainerFailed:
        raise
    # The trainer is code of others and may raise anything; a script's exit is no verdict.
    except (Exception, SystemExit) as error:
        raise TrainerFailed(
            f"trainer: raised {type(error).__name__} at step {len(published)} ({error})."
        ) from error
    finally:
        getattr(run, "close", lambda: None)()
    if finite and not np.all(np.isfinite(published)):
        raise TrainerFailed(
            "trainer: the parameters are not finite after a step on finite gradients; fix it first."
        )
    divisor = claims.divisor_of(len(rows[0]), rate)
    moves = -np.diff(np.array(published), axis=0) * (divisor / claims.learning_rate)
    return Run(
        sums=moves,
        rows=len(rows[0]),
        rate=rate,
        divisor=divisor,
        largest=float(np.finfo(dtype).max),
        epsilon=None if spent is None else float(spent),
    )


def _flat(parameters: Any) -> FloatArray:
    if not isinstance(parameters, Mapping) or set(parameters) != set(LAYERS):
        raise TrainerFailed(
            f"trainer: must yield the parameters of {', '.join(LAYERS)} after each step; it yielded"
            f" a {type(parameters).__name__}."
        )
    parts = [np.asarray(parameters[name], dtype=np.float64).ravel() for name in LAYERS]
    if [len(part) for part in parts] != list(LAYERS.values()):
        raise TrainerFailed("trainer: yielded parameters of another shape than task.parameters.")
    return np.concatenate(parts)


# -- rows ------------------------------------------------------------------------------------------


def labelled(gradients: FloatArray) -> Rows:
    """Return (X, y) with these gradients and labels of both signs."""
    signs = np.where(np.arange(len(gradients)) % 2, -1.0, 1.0)
    return gradients * signs[:, None], signs


def clipping_rows(claims: Claims, share: int = 1) -> tuple[Rows, int]:
    """Return the rows of all groups, shuffled, and how many a group has, divided by ``share``."""
    return _rows_of_groups(claims, _members(claims) // share)


def clipping_rows_sampled(claims: Claims) -> tuple[Rows, int]:
    """Return the same for sampled batches: as many rows that hardly a batch is empty."""
    rate = claims.sampling_rate
    # A multiple of 1/q rows, so that a batch has an integer expected size, and a third of a group.
    period = round(1 / rate)
    period = math.lcm(3, period // math.gcd(period, len(GROUPS)))
    members = max(_members(claims), min(math.ceil(4 / rate), 3000))
    return _rows_of_groups(claims, members + -members % period)


def _members(claims: Claims) -> int:
    """Return how many rows a group has, for their contribution to exceed the noise."""
    return 12 * max(2, math.ceil(0.75 * claims.noise_scale / claims.bound))


def _rows_of_groups(claims: Claims, members: int) -> tuple[Rows, int]:
    gradients = []
    for group in GROUPS:
        rows = np.repeat(gradient_of(group, claims), members, axis=0)
        if group.opposite:
            rows[::3] *= -10
        gradients.append(rows)
    order = np.random.default_rng(0).permutation(len(GROUPS) * members)
    return labelled(np.concatenate(gradients)[order]), members


def gradient_of(group: Group, claims: Claims) -> FloatArray:
    """Return (1, d) the gradient of a row, at the group's own coordinate of each layer."""
    gradient = np.zeros((1, _WIDTH))
    at = GROUPS.index(group)
    for start, part in zip(STARTS, group.parts, strict=True):
        gradient[0, start + at] = group.length * part * claims.bound
    return gradient


# A sampled row is too short to be clipped: this length over the bound of the first layer, half of
# its square in coordinate 0, and half in the coordinate of its group of consecutive rows.
_LENGTH = 0.9
SAMPLED_GROUPS = SIGNAL - 1


def unit(claims: Claims) -> float:
    """Return what a sampled row adds to coordinate 0, and to that of its group."""
    least = claims.clip[0] if isinstance(claims.clip, tuple) else claims.bound
    return _LENGTH * least / math.sqrt(2)


def sampled_rows(claims: Claims) -> Rows:
    """Return rows enough for the sizes of their batches to show in spite of the noise."""
    rate, noise = claims.sampling_rate, claims.noise_scale / unit(claims)
    each = math.ceil(8 * noise**2 / (rate * (1 - rate)) / SAMPLED_GROUPS)
    each = min(max(each, 8), 3000)
    # A multiple of 1/q rows, so that a batch has an integer expected size.
    period = round(1 / rate)
    each += -each % period
    gradients = np.zeros((SAMPLED_GROUPS * each, _WIDTH))
    gradients[:, 0] = unit(claims)
    gradients[np.arange(len(gradients)), 1 + np.arange(len(gradients)) // each] = unit(claims)
    return labelled(gradients)


def few_rows(claims: Claims) -> Rows:
    """Return 1/q rows: about a third of their batches is empty."""
    gradients = np.zeros((round(1 / claims.sampling_rate), _WIDTH))
    gradients[:, 0] = unit(claims) * math.sqrt(2)
    return labelled(gradients)


def rows_with(x: float, y: float) -> Rows:
    """Return eight rows, of which seven have no gradient, and the other one x·y in coordinate 0."""
    X, labels = np.zeros((8, _WIDTH)), np.ones(8)
    X[3, 0], labels[3] = x, y
    return X, labels
