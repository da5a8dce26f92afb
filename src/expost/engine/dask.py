"""A Dask cluster: workers read their own parts, and only what tasks give travels.

Dask does the items of a lost worker again, so that a result comes out bit for bit the same.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from expost._optional import require
from expost.errors import InvalidInput

__all__ = ["DaskEngine", "dask_engine"]

Item = TypeVar("Item")
Result = TypeVar("Result")
# Items that are handed out for each thread of the cluster; a scheduler is far away.
_AHEAD = 4
# How often an item is given to another worker after one was lost with it.
_RETRIES = 10
# Seconds to wait for a scheduler.
_PATIENCE = 20


class DaskEngine:
    """The workers of a Dask client; each task runs there with one BLAS thread."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def workers(self) -> int:
        """How many tasks run at the same time."""
        return max(1, sum(int(count) for count in self._client.nthreads().values()))

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """task(item) for each item, in order."""
        # Sent once, not with every item.
        shared = self._client.scatter(_OneThread(task), broadcast=True, hash=False)
        waiting: deque[Any] = deque()
        window = _AHEAD * self.workers
        try:
            for item in items:
                waiting.append(self._submit(shared, item))
                if len(waiting) >= window:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            self._client.cancel(list(waiting))

    def _submit(self, shared: Any, item: Any) -> Any:
        # Not pure: the same item may be asked for twice, of a file that has changed.
        return self._client.submit(_call, shared, item, pure=False, retries=_RETRIES)

    def close(self) -> None:
        """Leave the cluster."""
        self._client.close()


class _OneThread:
    """A task with one BLAS thread, wherever it runs."""

    def __init__(self, task: Callable[[Any], Any]) -> None:
        self._task = task

    def __call__(self, item: Any) -> Any:
        """The task's result."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1, user_api="blas"):
            return self._task(item)


def _call(task: Callable[[Any], Any], item: Any) -> Any:
    return task(item)


@contextmanager
def dask_engine(*, address: str | None = None, workers: int | None = None) -> Iterator[DaskEngine]:
    """The cluster at ``address``, or one on this machine that ends with the context."""
    distributed = require("distributed", caller="engine='dask'", extra="dask")
    if address is not None:
        try:
            client = distributed.Client(address, timeout=_PATIENCE)
        except (OSError, TimeoutError) as error:
            raise InvalidInput(
                f"engine={address!r}: no scheduler answers there ({type(error).__name__}); start"
                " one with `dask scheduler`, or take engine='dask'."
            ) from None
        cluster = None
    else:
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, processes=True
        )
        client = distributed.Client(cluster)
    engine = DaskEngine(client)
    try:
        yield engine
    finally:
        engine.close()
        if cluster is not None:
            cluster.close()
