"""What a private trainer claims about its steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.types import FloatArray, Neighbouring

__all__ = ["LAYERS", "NOT_FINITE", "Claims"]

# The layers of the model that a check trains, with their numbers of parameters.
LAYERS = {"first": 96, "second": 64, "third": 32}
# What becomes of a row whose gradient is NaN or infinite.
NOT_FINITE = ("bounded", "refused", "absent")


@dataclass(frozen=True, kw_only=True)
class Claims:
    """The settings of a private training step, as its accountant assumes them.

    A step publishes θ ← θ − α·(Σ g + b)/divisor, over the rows of a batch, with g the gradient of a
    row, clipped, and b ~ N(0, s²I).

    Parameters
    ----------
    clip : float | Sequence[float]
        C, the largest length of a row's gradient; three numbers: of its part in each layer, and C
        is then the root of the sum of their squares.
    noise_multiplier : float
        σ, with s = σC, or 2σC where a row is replaced.
    sampling_rate : float, default=1.0
        q, the probability that a row is in a batch, independently of all others; 1: full batch.
    learning_rate : float, default=1.0
        α.
    divisor : float, optional
        The constant by which sums are divided; None: the expected batch size, q times the number of
        rows.
    n_public : bool, default=False
        Whether the number of rows is public. A divisor that is computed from it needs that.
    relation : Neighbouring | str, default=Neighbouring.REMOVE
        "remove" (s = σC) or "replace" (s = 2σC).
    not_finite : str, default="bounded"
        What becomes of a row whose gradient is NaN or infinite: "bounded" (the trainer raises an
        error, or the row contributes C at most), "refused" (the trainer raises an error) or
        "absent" (there are no such rows: not checked).
    secure : bool, default=False
        Whether the noise comes from a generator that no seed controls.
    norm_budget : float, optional
        B of a filter that leaves a row out before the root of its sum of squared lengths over the
        steps exceeds B.
    delta : float, default=1e-05
        δ at which the accountant's ε is compared.
    """

    clip: float | Sequence[float]
    noise_multiplier: float
    sampling_rate: float = 1.0
    learning_rate: float = 1.0
    divisor: float | None = None
    n_public: bool = False
    relation: Neighbouring | str = Neighbouring.REMOVE
    not_finite: str = "bounded"
    secure: bool = False
    norm_budget: float | None = None
    delta: float = 1e-5

    def __post_init__(self) -> None:
        several = isinstance(self.clip, Sequence) and not isinstance(self.clip, str)
        limits = tuple(self.clip) if isinstance(self.clip, Sequence) else (self.clip,)
        if several and len(limits) != len(LAYERS):
            raise InvalidInput(
                f"clip has {len(limits)} entries: must be one number, or {len(LAYERS)}, one for"
                " each layer of the model that is trained."
            )
        checked = tuple(_checks.positive("clip", limit) for limit in limits)
        object.__setattr__(self, "clip", checked if several else checked[0])
        for name in ("noise_multiplier", "learning_rate"):
            object.__setattr__(self, name, _checks.positive(name, getattr(self, name)))
        for name in ("divisor", "norm_budget"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _checks.positive(name, getattr(self, name)))
        if self.sampling_rate != 1:
            _checks.probability("sampling_rate", self.sampling_rate)
        _checks.probability("delta", self.delta)
        _checks.one_of("not_finite", self.not_finite, NOT_FINITE)
        object.__setattr__(self, "relation", Neighbouring.parse(self.relation))
        if self.relation is Neighbouring.ADD:
            raise InvalidInput("relation='add': is the same as 'remove'; use 'remove'.")
        if self.norm_budget is not None and self.sampling_rate != 1:
            raise InvalidInput(
                f"norm_budget={self.norm_budget!r}: is checked with full batches only; use"
                " sampling_rate=1."
            )

    @property
    def bound(self) -> float:
        """C, the largest length of a row's whole gradient."""
        return math.hypot(*self.clip) if isinstance(self.clip, tuple) else float(self.clip)  # type: ignore[arg-type] # a float (__post_init__)

    @property
    def noise_scale(self) -> float:
        """The standard deviation s of the noise on a sum."""
        factor = 2.0 if self.relation is Neighbouring.REPLACE else 1.0
        return factor * self.noise_multiplier * self.bound

    def divisor_of(self, rows: int, rate: float) -> float:
        """Return the divisor of a step on sampled batches of ``rows`` rows.

        Parameters
        ----------
        rows : int
            The number of rows.
        rate : float
            The probability with which each of them is in a batch.

        Returns
        -------
        float
            The divisor.
        """
        return rows * rate if self.divisor is None else self.divisor

    def clipped(self, gradients: FloatArray) -> FloatArray:
        """Return gradients after clipping.

        Parameters
        ----------
        gradients : FloatArray
            (rows, d), the layers one after the other.

        Returns
        -------
        FloatArray
            (rows, d).
        """
        if not isinstance(self.clip, tuple):
            return shortened(gradients, self.bound)
        parts = np.split(gradients, np.cumsum(list(LAYERS.values()))[:-1], axis=1)
        return np.hstack([shortened(p, c) for p, c in zip(parts, self.clip, strict=True)])


def shortened(gradients: FloatArray, length: float) -> FloatArray:
    """Return g·min(1, length/∥g∥) of each row."""
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    factors: FloatArray = np.minimum(1.0, length / np.maximum(norms, np.finfo(float).tiny))
    return gradients * factors
