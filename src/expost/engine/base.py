"""What every engine does, and how one is named."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from expost import _checks
from expost.errors import InvalidInput

__all__ = ["Engine", "engine_of"]

Item = TypeVar("Item")
Result = TypeVar("Result")
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

    def close(self) -> None:
        """Give back what was started for it."""


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
        from expost.engine.local import local_engine

        return local_engine(_count(name, rest) if ":" in name else None)
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
