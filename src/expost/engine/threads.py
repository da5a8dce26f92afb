"""The cores of this machine, and the number of threads that BLAS and torch compute with.

With more threads sums change their order, and results their last digits. Everything that must not
depend on the machine is computed with one thread.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  loads its own BLAS, which must be there to be limited
from threadpoolctl import ThreadpoolController

__all__ = ["available_cores", "one_blas_thread", "one_torch_thread"]

_lock = threading.Lock()
_inside = 0
_limits: Any = None


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _blas_libraries() -> Any:
    """Return the BLAS libraries of this process; finding them takes as long as a small task."""
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread until the last caller has left.

    The number of threads belongs to the process: the caller that left first would restore it while
    others still compute.
    """
    global _inside, _limits
    with _lock:
        if _inside == 0:
            _limits = _blas_libraries().limit(limits=1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limits.restore_original_limits()
                _limits = None


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Limit torch, if it is imported, to one thread."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
