"""The interface of engines, their names, and the engine of this machine's threads."""

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any, Protocol, TypeVar

from expost import _checks
from expost.engine.pool import Call, Threads
from expost.engine.threads import available_cores, one_blas_thread
from expost.errors import InvalidInput

__all__ = ["Engine", "LocalEngine", "engine_of"]

Item = TypeVar("Item")
Result = TypeVar("Result")
# Items per worker that are read ahead: one is being processed, one waits.
_AHEAD = 2
_SCHEMES = {"dask": "tcp", "dask+tls": "tls"}


class Engine(Protocol):
    """A pool of workers that maps a task over items.

    Formal guarantees
    -----------------
    ``map`` yields task(item) once for every item, in the order of the items. A lost worker costs
    time, never a result: its items are processed again. An exception of a task is raised by
    ``map``. A bounded number of items is taken from the iterable before their results are consumed.
    """

    @property
    def workers(self) -> int:
        """The number of tasks that run at the same time."""

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield task(item) for each item, in order.

        Parameters
        ----------
        task : callable
            A function of one item. A Dask engine sends it to its workers.
        items : Iterable[Item]
            The items, such as blocks of rows.

        Returns
        -------
        Iterator[Result]
            The result for the next item.
        """


def engine_of(name: Any = "local") -> "AbstractContextManager[Engine]":
    """Return the engine of this name, as a context manager.

    Parameters
    ----------
    name : Any, default="local"
        One of:

        "local"             threads, one per core; "local:3": three.
        "dask"              a Dask cluster of processes on this machine; "dask:2": of two workers.
        "dask://host:port"  the scheduler of a running Dask cluster; "dask+tls://host:port" if it
                            uses TLS (Dask's own configuration names the certificates).
        a Dask client       the cluster that it is connected to; it is left open.

    Returns
    -------
    AbstractContextManager[Engine]
        The engine. Its threads or its own cluster end with the context.

    Raises
    ------
    InvalidInput
        If the name is none of these, or no scheduler or worker can be reached.
    """
    if type(name).__module__.partition(".")[0] == "distributed":
        from expost.engine.dask import dask_engine

        return dask_engine(client=name)
    kind, _, rest = str(name).partition(":")
    if kind == "local":
        return closing(LocalEngine(_count(name, rest) if ":" in name else None))
    if kind in _SCHEMES and rest.startswith("//") and len(rest) > 2:
        host, _, port = rest.removeprefix("//").rpartition(":")
        complete = host and host.startswith("[") == host.endswith("]")
        if not complete or not (port.isascii() and port.isdigit() and 1 <= int(port) < 2**16):
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
        return _checks.integer("engine", int(text), least=1)
    except ValueError:
        raise InvalidInput(f"engine={name!r}: must end in a number of workers.") from None


class LocalEngine:
    """Threads, each with one BLAS thread; memory holds two items for each of them.

    Reading and BLAS both release the interpreter's lock. The number of BLAS threads belongs to the
    process and is limited while a map runs.

    Parameters
    ----------
    workers : int, optional
        The number of threads; None: one for each core.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or available_cores()
        self._threads = Threads(self._workers)
        # An engine that is not closed ends with its last reference, at the latest with the program.
        self._end = weakref.finalize(self, self._threads.end)

    @property
    def workers(self) -> int:
        """The number of tasks that run at the same time."""
        return self._workers

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield task(item) for each item, in order."""
        waiting: deque[Call[Result]] = deque()
        with one_blas_thread():
            try:
                for item in items:
                    # The call is listed before it can run, so that an interruption cancels it.
                    waiting.append(Call(task, item))
                    self._threads.start(waiting[-1])
                    if len(waiting) >= _AHEAD * self._workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                # A task may have failed, or the caller may have stopped.
                for call in waiting:
                    call.cancel()

    def close(self) -> None:
        """End the threads, once each has finished its task."""
        self._end()
        self._threads.join()
