"""From the gradients of a step to the losses of its rows.

Conventions
-----------
As in :mod:`expost.mechanisms.dpsgd`: b the noise, g a row's clipped gradient, g' that of the row
which replaces it. Everything is float64.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expost._numerics import gamma
from expost.mechanisms.dpsgd import Adversary, Transcript, step_rounding
from expost.types import FloatArray, IntArray

__all__ = ["Exchange", "Products", "StepAccount", "squares"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Exchange:
    """Products of replaced rows: b·g', ∥g'∥², g·g', b·(g − g') and ∥g − g'∥²."""

    inner: FloatArray
    square: FloatArray
    cross: FloatArray
    apart_inner: FloatArray
    apart_square: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Products:
    """The products b·g and ∥g∥² of each row whose gradient was computed in a step.

    Of a person g is the sum over the person's rows in the batch; ``rows`` is their number, and
    ``reach`` the sum of their lengths, at least ∥g∥. None: units are rows.
    ``error`` is how far b·g + ∥g∥²/2 may be off beyond the rounding of float64; None: not at all.
    """

    inner: FloatArray
    square: FloatArray
    exchange: Exchange | None = None
    error: FloatArray | None = None
    rows: IntArray | None = None
    reach: FloatArray | None = None

    @classmethod
    def of(cls, g: torch.Tensor, noise: torch.Tensor, others: torch.Tensor | None) -> "Products":
        """Return those of gradients (rows, d); ``others`` is g', one for each row or for all."""
        exchange = None
        if others is not None:
            others = others.expand_as(g)
            apart = g - others
            exchange = Exchange(
                inner=_array(others @ noise),
                square=squares(others),
                cross=_array((g * others).sum(dim=1)),
                apart_inner=_array(apart @ noise),
                apart_square=squares(apart),
            )
        return cls(inner=_array(g @ noise), square=squares(g), exchange=exchange)

    @classmethod
    def joined(cls, parts: "list[Products]") -> "Products":
        """Return those of all blocks; empty without blocks."""
        exchanges = [part.exchange for part in parts if part.exchange is not None]
        exchange = Exchange(**_joined(Exchange, exchanges)) if exchanges else None
        simple = _joined(cls, parts)
        errors = [np.zeros(len(p.inner)) if p.error is None else p.error for p in parts]
        return cls(
            inner=simple["inner"],
            square=simple["square"],
            exchange=exchange,
            error=np.concatenate(errors) if errors else None,
        )

    def scaled(self, unit: float) -> "Products":
        """Return those of gradients and noise in a unit of length that is 1/``unit`` as long."""
        return replace(
            self,
            inner=self.inner * unit**2,
            square=self.square * unit**2,
            error=None if self.error is None else self.error * unit**2,
            reach=None if self.reach is None else self.reach * unit,
        )


class StepAccount:
    """An account that adds each step's terms to a transcript."""

    def __init__(self, transcript: Transcript, dimension: int) -> None:
        self.transcript = transcript
        self._dimension = dimension
        # ∥g∥² (replaced: ∥g − g'∥²) when last computed.
        self._last: FloatArray = np.zeros(transcript.mechanism.rows)

    def add(
        self,
        computed: IntArray,
        batch: NDArray[np.bool_],
        products: Products,
        noise_norm: float,
        scale: float,
        rounding: float = 0.0,
    ) -> None:
        """Add one step: ``computed`` the rows of ``products``, ``batch`` (n,) its members.

        ``rounding``: the error of the published noisy sum beyond float64's own rounding.
        """
        inside = batch[computed]
        error = self._error(products, inside, noise_norm, scale, rounding)
        if self.transcript.adversary is Adversary.KNOWN_BATCHES:
            self._known(computed, products, scale, error)
        else:
            self._hidden(computed, inside, products, scale, error)
            missed = np.setdiff1d(np.flatnonzero(~batch), computed, assume_unique=True)
            self.transcript.add_unseen(missed, self._last[missed])
        self.transcript.end_step()

    def _error(
        self,
        products: Products,
        inside: NDArray[np.bool_],
        noise_norm: float,
        scale: float,
        rounding: float,
    ) -> FloatArray:
        longest = products.square if products.reach is None else products.reach**2
        if products.exchange is not None:
            # ∥g − g'∥ is at most twice the longer one.
            longest = 4 * np.maximum(longest, products.exchange.square)
        # The published sum minus the others' gradients is b up to the rounding of the sum.
        lengths = np.sqrt(products.square) if products.reach is None else products.reach
        count = np.count_nonzero(inside) if products.rows is None else products.rows.sum()
        slack = gamma(int(count) + 8) * (float(np.sum(lengths[inside])) + noise_norm)
        bound = step_rounding(
            noise_norm, longest, scale, dimension=self._dimension, noise_error=slack + rounding
        )
        return bound if products.error is None else bound + products.error / scale**2

    def _known(self, rows: IntArray, products: Products, scale: float, error: FloatArray) -> None:
        exchange = products.exchange
        if exchange is None:
            count = 1 if products.rows is None else products.rows
            self.transcript.add_known(
                rows, products.inner, products.square, scale, error, count=count
            )
        else:
            self.transcript.add_known(
                rows, exchange.apart_inner, exchange.apart_square, scale, error
            )

    def _hidden(
        self,
        rows: IntArray,
        inside: NDArray[np.bool_],
        products: Products,
        scale: float,
        error: FloatArray,
    ) -> None:
        rate, exchange = self.transcript.mechanism.sampling_rate, products.exchange
        # r = b + g where the row was in the batch.
        inner = products.inner + inside * products.square
        if exchange is None:
            self.transcript.add_hidden(rows, inner, products.square, scale, rate, error)
            self._last[rows] = products.square
            return
        self.transcript.add_hidden_replaced(
            rows,
            inner,
            products.square,
            exchange.inner + inside * exchange.cross,
            exchange.square,
            exchange.apart_square,
            scale,
            rate,
            error,
        )
        self._last[rows] = exchange.apart_square


def _array(values: torch.Tensor) -> FloatArray:
    array: FloatArray = values.cpu().numpy()
    return array


def squares(vectors: torch.Tensor) -> FloatArray:
    """Return (rows,) the squared norms."""
    return _array(torch.linalg.vector_norm(vectors, dim=1).square())


def _joined(kind: type, parts: list[Any]) -> dict[str, FloatArray]:
    left_out = ("exchange", "error", "rows", "reach")
    names = [field.name for field in fields(kind) if field.name not in left_out]
    if not parts:
        return {name: np.empty(0) for name in names}
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
