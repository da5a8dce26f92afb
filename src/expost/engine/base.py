"""What every engine does, and how one is named."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from expost import _validate
from expost.errors import InvalidInput

__all__ = ["Engine", "engine_of"]

Item = TypeVar("Item")
Result = TypeVar("Result")


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


def engine_of(name: str = "local") -> "AbstractContextManager[Engine]":
    """The engine that a name stands for, as a context.

    "local"             threads, as many as there are cores; "local:3": three.
    "dask"              a Dask cluster of processes on this machine; "dask:2": of two workers.
    "dask://host:port"  the scheduler of a Dask cluster that runs already.
    """
    kind, _, rest = name.partition(":")
    if kind == "local":
        from expost.engine.local import local_engine

        return local_engine(None if not rest else _count(name, rest))
    if kind == "dask":
        from expost.engine.dask import dask_engine

        if rest.startswith("//"):
            return dask_engine(address=f"tcp://{rest[2:]}")
        return dask_engine(workers=None if not rest else _count(name, rest))
    raise InvalidInput(
        f"engine={name!r}: must be local, local:WORKERS, dask, dask:WORKERS or dask://HOST:PORT."
    )


def _count(name: str, text: str) -> int:
    try:
        return _validate.whole("engine", int(text), least=1)
    except ValueError:
        raise InvalidInput(f"engine={name!r}: must end in a number of workers.") from None
