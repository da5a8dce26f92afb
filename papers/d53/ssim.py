"""The structural similarity of images (Wang, Bovik, Sheikh and Simoncelli 2004), for many pairs.

Conventions
-----------
x, y     two images in [0, L]; means, variances and the covariance are taken under a Gaussian window
         of 11 × 11 with σ = 1.5, normalised to 1, wherever it lies inside the image (their Sec. 3).
SSIM     the mean over the window's places of
         (2μₓμ_y + C₁)(2σ_xy + C₂)/((μₓ² + μ_y² + C₁)(σₓ² + σ_y² + C₂)), their Eq. 13,
         C₁ = (0.01 L)², C₂ = (0.03 L)².
"""

from functools import cache
from typing import Any

import numpy as np

from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = ["images", "ssim_distances"]

_WINDOW, _SIGMA = 11, 1.5
_LUMINANCE, _CONTRAST = 0.01, 0.03
# Products of pixels held at a time (32 MiB): more does not fit into a cache.
_BLOCK = 2**22


def ssim_distances(X: Any, others: Any, *, largest: float | None = None) -> FloatArray:
    """Return 1 − SSIM of each image of X with each of ``others``; in [0, 2], (n, m).

    ``largest``  L, the range of the pixels; None: 255 for integers, 1 for real numbers.
    """
    if largest is None:
        largest = 255.0 if np.asarray(X).dtype.kind in "iu" else 1.0
    mine, its = images(X, "X"), images(others, "others")
    if mine.shape[1:] != its.shape[1:]:
        raise InvalidInput(
            f"X has images of {mine.shape[1:]} and others of {its.shape[1:]}: must be of one size."
        )
    first, second = (_LUMINANCE * largest) ** 2, (_CONTRAST * largest) ** 2
    mean, spread = _moments(mine)
    its_mean, its_spread = _moments(its)
    distances = np.empty((len(mine), len(its)))
    size = max(1, _BLOCK // mine[0].size)
    for start in range(0, len(its), size):
        block = slice(start, start + size)
        theirs, mean_y, spread_y = its[block], its_mean[block], its_spread[block]
        for row in range(len(mine)):
            product = mean[row] * mean_y
            covariance = _windowed(mine[row] * theirs) - product
            above = (2 * product + first) * (2 * covariance + second)
            below = (mean[row] ** 2 + mean_y**2 + first) * (spread[row] + spread_y + second)
            distances[row, block] = 1 - np.mean(above / below, axis=(1, 2))
    return np.clip(distances, 0.0, 2.0)


def images(X: Any, name: str) -> FloatArray:
    """X as (n, height, width) float64; one channel is dropped, more are refused."""
    array = np.asarray(X)
    if array.ndim == 4 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 3 or min(array.shape[1:]) < _WINDOW or array.dtype.kind not in "iuf":
        raise InvalidInput(
            f"{name} has shape {array.shape}: must be grey images (n, height, width) of at least"
            f" {_WINDOW} × {_WINDOW} pixels; pass another distance for anything else."
        )
    array = array.astype(np.float64)
    if not np.all(np.isfinite(array)):
        raise InvalidInput(f"{name}: holds NaN or infinite pixels; drop those images.")
    return array


def _moments(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    mean = _windowed(X)
    return mean, _windowed(X**2) - mean**2


def _windowed(X: FloatArray) -> FloatArray:
    """(n, h − 10, w − 10): the window's mean at each of its places; it is a product of two."""
    down, across = _band(X.shape[1]), _band(X.shape[2])
    filtered: FloatArray = down.T @ (X @ across)
    return filtered


@cache
def _band(length: int) -> FloatArray:
    """Return (length, length − 10): column k holds the weights of the window that begins at k."""
    offsets = np.arange(_WINDOW) - _WINDOW // 2
    weights = np.exp(-(offsets**2) / (2 * _SIGMA**2))
    weights /= np.sum(weights)
    band = np.zeros((length, length - _WINDOW + 1))
    for start in range(band.shape[1]):
        band[start : start + _WINDOW, start] = weights
    return band
