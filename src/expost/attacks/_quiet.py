"""Trainings that are simulations: without the warnings of a release, and in one thread.

Thread limits belong to a process, not to a thread. Trainings that overlap in several threads share
one change of them: the first sets it, the last takes it back.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

from expost.engine import processes
from expost.errors import (
    BudgetWarning,
    ClippedRowsWarning,
    NoPromiseWarning,
    PrivacyLeakWarning,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
    UselessModelWarning,
)
from expost.notices import ignored

__all__ = ["one_thread", "without_warnings"]

# True of a release; a reference is none, and the target's own fit has said them.
_OF_RELEASES = (
    BudgetWarning,
    ClippedRowsWarning,
    NoPromiseWarning,
    PrivacyLeakWarning,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
    UselessModelWarning,
)


def without_warnings() -> AbstractContextManager[None]:
    """Ignore, in this thread, the warnings of a release."""
    return ignored(*_OF_RELEASES)


class _Shared:
    """A change of the process that is made by the first to ask for it, undone by the last."""

    def __init__(self, change: Callable[[], AbstractContextManager[Any]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._users = 0
        self._made = ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._made.enter_context(self._change())
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._made.close()


@contextmanager
def _single() -> Iterator[None]:
    """Sums of more threads round differently, and workers would take each other's cores."""
    with threadpool_limits(limits=1), processes.one_thread():
        yield


one_thread = _Shared(_single)
