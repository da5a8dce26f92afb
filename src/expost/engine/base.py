"""What every engine does, how one is named, and the engine of this machine's threads."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import copy_context
from functools import cache
from typing import Any, Protocol, TypeVar

import scipy.linalg  # noqa: F401  brings a BLAS of its own, which must be there to be held
from threadpoolctl import ThreadpoolController

from expost import _checks
from expost.engine.processes import available
from expost.errors import InvalidInput

__all__ = ["Engine", "LocalEngine", "engine_of", "one_blas_thread"]

Item = TypeVar("Item")
Result = TypeVar("Result")
# Items that are read ahead for each worker: one is worked on, one waits.
_AHEAD = 2
_SCHEMES = {"dask": "tcp", "dask+tls": "tls"}


class Engine(Protocol):
    """A way to map a task over items.

    Formal guarantees
    -----------------
    ``map`` gives task(item) for every item once, in the order of the items. A worker that is lost
    costs time, never a result: its items are done again. What a task raises is raised by ``map``.
    No more than ``window`` items are taken from the iterable before their results are asked for.
    """

    @property
    def workers(self) -> int:
        """How many tasks run at the same time."""

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """task(item) for each item, in order."""


def engine_of(name: Any = "local") -> "AbstractContextManager[Engine]":
    """The engine that a name stands for, as a context.

    "local"             threads, as many as there are cores; "local:3": three.
    "dask"              a Dask cluster of processes on this machine; "dask:2": of two workers.
    "dask://host:port"  the scheduler of a Dask cluster that runs already; "dask+tls://host:port"
                        where it speaks TLS (Dask's own configuration names the certificates).
    a Dask client       the cluster that it is connected to; it is left open.
    """
    if type(name).__module__.partition(".")[0] == "distributed":
        from expost.engine.dask import dask_engine

        return dask_engine(client=name)
    kind, _, rest = str(name).partition(":")
    if kind == "local":
        return closing(LocalEngine(_count(name, rest) if ":" in name else None))
    if kind in _SCHEMES and rest.startswith("//") and len(rest) > 2:
        host, _, port = rest.removeprefix("//").rpartition(":")
        whole = host and host.startswith("[") == host.endswith("]")
        if not whole or not (port.isascii() and port.isdigit() and 1 <= int(port) < 2**16):
            raise InvalidInput(
                f"engine={name!r}: must end in HOST:PORT, the address that `dask scheduler` prints,"
                " with a port from 1 to 65535."
            )
        from expost.engine.dask import dask_engine

        return dask_engine(address=f"{_SCHEMES[kind]}:{rest}")
    if kind == "dask" and not rest.startswith("//"):
        from expost.engine.dask import dask_engine

        return dask_engine(workers=_count(name, rest) if ":" in name else None)
    raise InvalidInput(
        f"engine={name!r}: must be local, local:WORKERS, dask, dask:WORKERS, dask://HOST:PORT or"
        " dask+tls://HOST:PORT."
    )


def _count(name: str, text: str) -> int:
    try:
        return _checks.whole("engine", int(text), least=1)
    except ValueError:
        raise InvalidInput(f"engine={name!r}: must end in a number of workers.") from None


# -- threads of this process ---------------------------------------------------------------------


_lock = threading.Lock()
_inside = 0
_limits: Any = None


@cache
def _libraries() -> Any:
    """The BLAS libraries of this process; finding them takes as long as a small task."""
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread until the last caller has left: with more, sums change their order.

    The number of threads belongs to the process: the caller that left first would give it back
    while others still compute.
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


class LocalEngine:
    """Threads, each with one BLAS thread; memory holds two items for each of them.

    Reading and BLAS both let go of the interpreter's lock. The number of BLAS threads belongs to
    the process, so it is set for as long as a map runs.
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
                # A task may have failed, or the caller have stopped.
                for future in waiting:
                    future.cancel()

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=True, cancel_futures=True)
