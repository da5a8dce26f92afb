"""Warnings of expost, and how to ignore or collect them.

The filters of :mod:`warnings` belong to the process: a thread that changes them changes them for
all threads, and two changes that overlap are never undone. This module ignores or collects
warnings for the running thread (or asynchronous task) alone and does not change the filters.
"""

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["FILTER_LOCK", "collected", "ignored", "is_captured", "listed", "warn"]

# Held around functions of scikit-learn that change the filters temporarily: two threads that call
# them at the same time would leave the filters changed.
FILTER_LOCK = threading.RLock()

_ignored: ContextVar[tuple[type[Warning], ...]] = ContextVar("_ignored", default=())
_collected: ContextVar[list[tuple[type[Warning], str]] | None] = ContextVar(
    "_collected", default=None
)


def warn(message: str, category: type[Warning], *, stacklevel: int = 1) -> None:
    """Warn as :func:`warnings.warn` does, unless this thread ignores or collects the category."""
    if not is_captured(message, category):
        warnings.warn(message, category, stacklevel=stacklevel + 1)


def is_captured(message: str, category: type[Warning]) -> bool:
    """Return whether this thread ignores the warning or collects it, which is then done."""
    if issubclass(category, _ignored.get()):
        return True
    warnings_so_far = _collected.get()
    if warnings_so_far is not None:
        warnings_so_far.append((category, message))
    return warnings_so_far is not None


def listed(parts: Sequence[str], most: int = 6) -> str:
    """Return the first ``most`` parts, separated by commas, and the number of the others."""
    more = f" and {len(parts) - most} more" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more


@contextmanager
def ignored(*categories: type[Warning]) -> Iterator[None]:
    """Ignore expost's warnings of these categories."""
    token = _ignored.set((*_ignored.get(), *categories))
    try:
        yield
    finally:
        _ignored.reset(token)


@contextmanager
def collected() -> Iterator[list[tuple[type[Warning], str]]]:
    """Collect expost's warnings, each with its category, instead of emitting them."""
    collection: list[tuple[type[Warning], str]] = []
    token = _collected.set(collection)
    try:
        yield collection
    finally:
        _collected.reset(token)
