"""Checks of the arrays that the noises and their laws take. NaN fails every one of them."""

from typing import Any

import numpy as np

from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["aligned", "finite", "levels", "nonnegative", "numbers", "points", "spread", "triple"]


def numbers(name: str, values: Any) -> FloatArray:
    """``values`` as a float64 array of any shape, infinities allowed."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{name} is not numeric: must be a number or an array of numbers."
        ) from None
    if np.any(np.isnan(array)):
        raise InvalidInput(f"{name} holds NaN: every entry must be a number.")
    return array


def finite(name: str, values: Any) -> FloatArray:
    """``values`` as a finite float64 array of any shape."""
    array = numbers(name, values)
    if not np.all(np.isfinite(array)):
        raise InvalidInput(f"{name} holds infinite values: every entry must be finite.")
    return array


def nonnegative(name: str, values: Any) -> FloatArray:
    """``values`` as a read-only float64 array of numbers ≥ 0, infinity allowed."""
    array = numbers(name, values).copy()
    if not np.all(array >= 0):
        raise InvalidInput(f"{name} has negative entries: every entry must be at least 0.")
    array.setflags(write=False)
    return array


def levels(probability: Any) -> FloatArray:
    """``probability`` as an array with entries in [0, 1]."""
    array = numbers("probability", probability)
    if not np.all((array >= 0) & (array <= 1)):
        raise InvalidInput("probability has entries outside [0, 1]: every entry must lie in it.")
    return array


def points(name: str, values: Any, dimension: int) -> FloatArray:
    """``values`` as finite float64 vectors of length ``dimension`` along the last axis."""
    array = finite(name, values)
    if array.ndim == 0 or array.shape[-1] != dimension:
        raise InvalidInput(
            f"{name} has shape {array.shape}: its last axis must have the noise's"
            f" dimension={dimension}."
        )
    return array


def spread(**named: Any) -> tuple[FloatArray, ...]:
    """Nonnegative arguments, infinity allowed, broadcast against each other."""
    return aligned(**{name: nonnegative(name, values) for name, values in named.items()})


def aligned(**arrays: FloatArray) -> tuple[FloatArray, ...]:
    """``arrays`` broadcast against each other."""
    try:
        return np.broadcast_arrays(*arrays.values())
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InvalidInput(f"{shapes}: the shapes must agree, one entry a row.") from None


def triple(noise_norm: Any, inner: Any, distance: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """∥b∥ ≥ 0, b·s and ∥s∥ ≥ 0, all finite, broadcast against each other."""
    norm, product, apart = aligned(
        noise_norm=nonnegative("noise_norm", finite("noise_norm", noise_norm)),
        inner=finite("inner", inner),
        distance=nonnegative("distance", finite("distance", distance)),
    )
    return norm, product, apart
