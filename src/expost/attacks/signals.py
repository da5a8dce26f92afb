"""What attacks are given of a model's answers: numbers of one row each.

Conventions
-----------
p    (n, K) probabilities of K classes, one row each.
φ    log p_y − log Σ_{k≠y} p_k, y the row's own class: the log odds (Carlini et al. 2022, section
     VI.A), with the others summed and not taken from 1, which would round to 0. Within ± LARGEST.
ℓ    −log p_y, so that φ = −log(e^ℓ − 1).

A regression has no classes. Its rows have ℓ = (y − ŷ)²/(2s²), minus the log of a normal density
of standard deviation s over its peak; s is one number for all models, so that it shifts no row
against another. φ follows from ℓ as above.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.attacks.evidence import LARGEST, Confidences
from expost.errors import InvalidInput
from expost.types import FloatArray

__all__ = [
    "VIEWS",
    "confidence",
    "confidence_of_losses",
    "confidence_of_squares",
    "probabilities_of_scores",
    "views",
]

# The largest probabilities that are kept of a row (Shokri et al. 2017, section VI.E: three do
# nearly as well as all).
VIEWS = 3
# Probabilities of single precision add up to 1 within this.
_SLACK = 1e-3


def confidence(probabilities: Any, labels: Any, *, name: str = "the model") -> Confidences:
    """(n,) φ of (n, K) ``probabilities``, ``labels`` (n,) the number of each row's own class."""
    p = _checked(probabilities, name)
    classes = np.asarray(labels)
    if classes.shape != (len(p),) or classes.dtype.kind not in "iu":
        raise InvalidInput(f"labels: must be {len(p)} numbers of classes, one a row.")
    if len(p) and not (classes.min() >= 0 and classes.max() < p.shape[1]):
        raise InvalidInput(f"labels: must lie from 0 to {p.shape[1] - 1}, the classes of {name}.")
    rows = np.arange(len(p))
    own = p[rows, classes]
    others = p.copy()
    others[rows, classes] = 0.0
    with np.errstate(divide="ignore"):
        return _clipped(np.log(own) - np.log(others.sum(axis=1)))


def confidence_of_losses(losses: Any, *, name: str = "the model") -> Confidences:
    """φ = −log(e^ℓ − 1) of losses ℓ = −log p ≥ 0, of any shape; infinity is a loss, NaN is none."""
    loss = np.asarray(losses)
    if loss.dtype.kind not in "biuf":
        raise InvalidInput(f"losses: {name} gives {loss.dtype} values; must be numbers.")
    loss = loss.astype(np.float64, copy=False)
    if not np.all(loss >= 0):
        raise InvalidInput(
            f"losses: {name} gives some that are NaN or negative; must be −log p of each row's own"
            " label, at least 0."
        )
    with np.errstate(divide="ignore", over="ignore"):
        # Where e^ℓ overflows φ is past its end anyway.
        return _clipped(-np.log(np.expm1(loss)))


def confidence_of_squares(
    predictions: Any, targets: FloatArray, scale: float, *, name: str = "the model"
) -> Confidences:
    """(n,) φ of a regression (module docstring), s = ``scale``."""
    if not scale > 0:
        raise InvalidInput(f"scale={scale!r}: must be > 0.")
    found = np.asarray(predictions, dtype=np.float64)
    if found.shape == (len(targets), 1):
        found = found[:, 0]
    if found.shape != targets.shape or not np.all(np.isfinite(found)):
        raise InvalidInput(f"{name}: must predict one finite number for each row.")
    with np.errstate(over="ignore"):
        return confidence_of_losses(((found - targets) / scale) ** 2 / 2, name=name)


def views(probabilities: Any, *, name: str = "the model") -> Confidences:
    """(n, c) the c = min(3, K) largest probabilities of each row, falling."""
    p = _checked(probabilities, name)
    kept = min(VIEWS, p.shape[1])
    largest = np.partition(p, p.shape[1] - kept, axis=1)[:, p.shape[1] - kept :]
    return np.ascontiguousarray(np.sort(largest, axis=1)[:, ::-1], dtype=np.float32)


def probabilities_of_scores(scores: Any, *, name: str = "the model") -> FloatArray:
    """(n, K) softmax of ``scores`` (n, K); of (n,), which speak for the second class, (n, 2).

    A margin is no log odds, but attacks need its order and its differences alone.
    """
    found = np.asarray(scores, dtype=np.float64)
    if found.ndim not in (1, 2) or not np.all(np.isfinite(found)):
        raise InvalidInput(f"{name}: gives scores that are not finite numbers, one row each.")
    if found.ndim == 1:
        found = np.column_stack([-found / 2, found / 2])
    raised = np.exp(found - found.max(axis=1, keepdims=True, initial=-np.inf))
    shares: FloatArray = raised / raised.sum(axis=1, keepdims=True)
    return shares


def _checked(probabilities: Any, name: str) -> NDArray[np.float64]:
    """(n, K) finite, none negative, each row of sum 1; or an error that names the model."""
    p = np.asarray(probabilities)
    if p.ndim != 2 or p.shape[1] < 1 or p.dtype.kind not in "biuf":
        raise InvalidInput(
            f"{name}: gives probabilities of shape {p.shape} and type {p.dtype}; must be a number"
            " for each row and class."
        )
    p = p.astype(np.float64, copy=False)
    if not np.all(p >= 0):
        raise InvalidInput(f"{name}: gives probabilities that are NaN or negative.")
    if not np.all(np.abs(p.sum(axis=1) - 1) <= _SLACK):
        raise InvalidInput(
            f"{name}: gives probabilities that do not add up to 1 in every row; give those of all"
            " classes, after the softmax."
        )
    return p


def _clipped(log_odds: FloatArray) -> Confidences:
    """Float32 within ± LARGEST; both ends are reached by models that are certain."""
    return np.clip(log_odds, -LARGEST, LARGEST).astype(np.float32)
