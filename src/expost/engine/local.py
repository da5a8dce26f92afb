"""Threads of this process: reading and BLAS both let go of the interpreter's lock."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

from expost.engine._threads import one_blas_thread
from expost.engine.processes import available

__all__ = ["LocalEngine", "local_engine"]

Item = TypeVar("Item")
Result = TypeVar("Result")
# Items that are read ahead for each worker: one is worked on, one waits.
_AHEAD = 2


class LocalEngine:
    """Threads, each with one BLAS thread; memory holds two items for each of them.

    The number of BLAS threads is one of the process, so it is set for as long as a map runs.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or available()
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="expost")

    @property
    def workers(self) -> int:
        """How many tasks run at the same time."""
        return self._workers

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """task(item) for each item, in order."""
        waiting: deque[Future[Result]] = deque()
        with one_blas_thread():
            try:
                for item in items:
                    # With its own copy of what belongs to the calling thread.
                    waiting.append(self._pool.submit(copy_context().run, task, item))
                    if len(waiting) >= _AHEAD * self._workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                # A task may have failed, or whoever asked have stopped asking.
                for future in waiting:
                    future.cancel()

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def local_engine(workers: int | None = None) -> Iterator[LocalEngine]:
    """A local engine that is closed at the end."""
    engine = LocalEngine(workers)
    try:
        yield engine
    finally:
        engine.close()
