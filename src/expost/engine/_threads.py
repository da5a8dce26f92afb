"""One BLAS thread for each task: with more, sums come out in another order."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  brings a BLAS of its own, which must be there to be held
from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]

_lock = threading.Lock()
_inside = 0
_limits: Any = None


@cache
def _libraries() -> Any:
    """The BLAS libraries of this process; finding them takes as long as a small task."""
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread until the last who asked for it is done.

    The number of threads is one of the process: whoever left first would give it back while others
    still compute.
    """
    global _inside, _limits
    with _lock:
        if _inside == 0:
            _limits = _libraries().limit(limits=1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limits.restore_original_limits()
                _limits = None
