"""Every warning of expost, and the two ways of keeping one from the user.

The filters of :mod:`warnings` belong to the process: a thread that changes them changes them for
all threads, and two changes that overlap are never undone. What is ignored or collected here
belongs to the running thread (or asynchronous task) alone, and the filters stay as they are.
"""

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["ALONE", "collected", "ignored", "listed", "taken", "warn"]

# Held around functions of scikit-learn that change the filters for a moment: two threads of expost
# in them at once would leave the filters changed.
ALONE = threading.RLock()

_ignored: ContextVar[tuple[type[Warning], ...]] = ContextVar("_ignored", default=())
_collected: ContextVar[list[tuple[type[Warning], str]] | None] = ContextVar(
    "_collected", default=None
)


def warn(message: str, category: type[Warning], *, stacklevel: int = 1) -> None:
    """Warn as :func:`warnings.warn` does, unless this thread ignores or collects the category."""
    if not taken(message, category):
        warnings.warn(message, category, stacklevel=stacklevel + 1)


def taken(message: str, category: type[Warning]) -> bool:
    """Whether this thread ignores the warning or has collected it now."""
    if issubclass(category, _ignored.get()):
        return True
    found = _collected.get()
    if found is not None:
        found.append((category, message))
    return found is not None


def listed(parts: Sequence[str], most: int = 6) -> str:
    """Return the first parts of a sentence, and how many more there are."""
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
    """Collect expost's warnings, each with its category, in place of emitting them."""
    found: list[tuple[type[Warning], str]] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)
