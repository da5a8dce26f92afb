"""Rows of whatever a model takes: arrays, sparse matrices, frames of pandas or polars, tensors."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from expost import _checks
from expost.errors import InvalidInput

__all__ = ["blocks", "count", "stacked", "take", "whole"]


def whole(X: Any, *, name: str = "X") -> Any:
    """``X``, or an array of it where it is a plain list; at least one row."""
    if isinstance(X, np.ma.MaskedArray):
        raise InvalidInput(f"{name}: is a masked array; fill or drop what is masked.")
    if isinstance(X, list | tuple):
        X = _checks.array(X, name)
    if not hasattr(X, "shape") or not len(X.shape) >= 1 or not X.shape[0] >= 1:
        raise InvalidInput(f"{name}: must be rows, an array or a frame, and at least one.")
    return X.tocsr() if _is_sparse(X) else X


def count(X: Any) -> int:
    """The number of rows."""
    return int(X.shape[0])


def take(X: Any, rows: NDArray[np.intp]) -> Any:
    """The rows of these numbers."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def blocks(X: Any, size: int) -> Iterator[tuple[slice, Any]]:
    """``X`` itself if it has at most ``size`` rows, else pieces of that many, in order."""
    rows = count(X)
    if rows <= size:
        yield slice(0, rows), X
        return
    for start in range(0, rows, size):
        part = slice(start, min(start + size, rows))
        yield part, X.iloc[part] if hasattr(X, "iloc") else X[part]


def stacked(first: Any, second: Any) -> Any:
    """The rows of ``first``, then those of ``second``; both must be of one kind."""
    first, second = whole(first), whole(second)
    if first.shape[1:] != second.shape[1:]:
        raise InvalidInput(
            f"X has rows of shape {first.shape[1:]}, the others of {second.shape[1:]}: they must"
            " have the same columns."
        )
    if _is_sparse(first) and _is_sparse(second):
        return scipy.sparse.vstack([first, second], format="csr")
    if hasattr(first, "columns") or hasattr(second, "columns"):
        return _frames(first, second)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        try:
            return np.concatenate([first, second])
        except TypeError:
            raise InvalidInput(
                f"X holds {first.dtype} values, the others {second.dtype}: they must be of one"
                " type."
            ) from None
    raise InvalidInput(
        f"X is a {type(first).__name__}, the others are a {type(second).__name__}: rows in question"
        " must be of one kind, arrays or frames."
    )


def _is_sparse(X: Any) -> bool:
    return bool(scipy.sparse.issparse(X))


def _frames(first: Any, second: Any) -> Any:
    """Of pandas or polars, whichever has made both; neither is imported here."""
    if type(first) is not type(second) or list(first.columns) != list(second.columns):
        raise InvalidInput("X and the others: must be frames of one kind with the same columns.")
    if hasattr(first, "iloc"):
        return sys.modules["pandas"].concat([first, second], ignore_index=True)
    return first.vstack(second)
