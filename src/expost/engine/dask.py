"""The engine of a Dask cluster: workers read their own parts, and only the results are sent.

The tasks of a lost worker are repeated by another one, on the same rows in the same blocks, so that
the result is the same bit for bit.
"""

import errno
import pickle
import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_info

from expost.engine.threads import available_cores, one_blas_thread
from expost.errors import ExpostError, InvalidInput, require

__all__ = ["DaskEngine", "computing", "dask_engine"]

Item = TypeVar("Item")
Result = TypeVar("Result")
# Items per thread of the cluster that are submitted ahead: a scheduler may be slow to reach.
_AHEAD = 4
# A scheduler gives up an item after several workers that had it were lost (`allowed-failures`,
# commonly four), whether the item is the cause or not. It is submitted this many times.
_ROUNDS = 3
# Seconds to wait for a scheduler and its workers at the start, between checks that a worker is
# left, and for a worker to come back.
_PATIENCE, _POLL, _NO_WORKER_TIMEOUT = 20.0, 5.0, 120.0
# The errors of a path that does not exist, or that this user may not read.
_UNREACHED = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
# Data is sent through the scheduler, which keeps it, so that a task can be repeated. Dask warns of
# that; scattered data, of which it does not warn, is lost with its worker.
_QUIET = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}

# The packages that read the rows and compute with them.
_PACKAGES = ("expost", "numpy", "scipy", "pyarrow")


class DaskEngine:
    """The workers of a Dask client; each task runs there with one BLAS thread.

    Formal guarantees
    -----------------
    All workers have the local versions of expost and its numerical packages, and have the same
    processor and BLAS kernels as each other. Otherwise :class:`InvalidInput` is raised, at the
    start, or by a worker that joined later. An item that is a Dask collection, or a list of them,
    is computed by the cluster and stays there: the task is called on the worker that holds it.

    Attributes
    ----------
    client : distributed.Client
        The client of the cluster.
    restart : Callable[[], Any] | None
        Replaces lost workers, where the cluster does not.
    """

    def __init__(self, client: Any, *, restart: Callable[[], Any] | None = None) -> None:
        """Check the workers of ``client``.

        ``restart`` replaces lost workers, where the cluster does not.
        """
        self.client, self.restart = client, restart
        self._config = require("dask", caller="engine='dask'", extra="dask").config
        distributed = require("distributed", caller="engine='dask'", extra="dask")
        self._killed, self._futures_of = distributed.KilledWorker, distributed.futures_of
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise InvalidInput(
                f"engine={client.scheduler.address!r}: the scheduler there has no workers; start"
                " some with `dask worker`."
            ) from None
        except _disconnected():
            raise self._lost() from None
        with self._connection_checked():
            remote = client.get_versions(packages=list(_PACKAGES))
        packages = {"the scheduler": remote["scheduler"]["packages"]}
        packages |= {name: about["packages"] for name, about in remote["workers"].items()}
        check_versions(packages)
        # Workers that restart are checked again before their first task.
        with self._connection_checked():
            kinds = client.run(machine, on_error="ignore")
        self._machine = check_machines(kinds) if kinds else machine()

    @property
    def workers(self) -> int:
        """The number of tasks that run at the same time."""
        with self._connection_checked():
            return max(1, sum(int(count) for count in self.client.nthreads().values()))

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield task(item) for each item, in order."""
        # The task is sent once, not with every item.
        shared = self._send(_content, _Parcel.of(_Task(task, self._machine)))
        waiting: deque[tuple[Item, Any]] = deque()
        window = _AHEAD * self.workers
        try:
            for item in items:
                waiting.append((item, self._submit(shared, item)))
                if len(waiting) >= window:
                    yield self._result(shared, *waiting.popleft())
            while waiting:
                yield self._result(shared, *waiting.popleft())
        finally:
            # A task may have failed, or the caller may have stopped.
            if waiting and self.client.status == "running":
                with suppress(*_disconnected()):
                    self.client.cancel([future for _, future in waiting])

    def _submit(self, shared: Any, item: Any) -> Any:
        if _is_collection(item):
            several = isinstance(item, list | tuple)
            value = list(map(self._compute, item)) if several else self._compute(item)
            return self._send(_call, shared, value)
        return self._send(_call_parcel, shared, _Parcel.of(item))

    def _compute(self, collection: Any) -> Any:
        if any(future.client is not self.client for future in self._futures_of(collection)):
            raise InvalidInput(
                "engine: parts of this collection are held by another cluster, or by another client"
                " of this one; give the client that they were persisted with as the engine."
            )
        with self._config.set(_QUIET), self._connection_checked():
            return self.client.compute(collection)

    def _send(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # Not pure: the same item may be read twice, from a file that has changed. No retries: a
        # task that raises would raise again.
        with self._config.set(_QUIET), self._connection_checked():
            return self.client.submit(function, *arguments, pure=False)

    def _result(self, shared: Any, item: Any, future: Any) -> Any:
        for left in reversed(range(_ROUNDS)):
            try:
                return self._wait(future, collection=_is_collection(item))
            except self._killed:
                future = self._submit(shared, item) if left else None
        raise ExpostError(
            "engine: several workers died while they processed the same rows, probably for lack of"
            " memory; give each worker more memory, or use fewer workers."
        )

    def _wait(self, future: Any, *, collection: bool) -> Any:
        workers_lost_at: float | None = None
        while True:
            try:
                return future.result(timeout=_POLL)
            except self._killed:
                raise
            except Exception as error:
                if future.status == "error":
                    self._check_task(error, collection)
                    raise
                if isinstance(error, _disconnected()) and not isinstance(error, TimeoutError):
                    raise self._lost() from None
                if not isinstance(error, TimeoutError):
                    raise
            with self._connection_checked():
                if self.restart is not None:
                    self.restart()
                has_workers = bool(self.client.nthreads())
            if has_workers:
                workers_lost_at = None
                continue
            now = time.monotonic()
            workers_lost_at = now if workers_lost_at is None else workers_lost_at
            if now - workers_lost_at > _NO_WORKER_TIMEOUT:
                raise ExpostError(
                    f"engine: the cluster has had no worker for {_NO_WORKER_TIMEOUT:.0f} seconds;"
                    " start some, and run this command again."
                )

    def _check_task(self, error: Exception, collection: bool) -> None:
        """Raise :class:`InvalidInput` for an error of a task that its worker caused."""
        if isinstance(error, ExpostError) and self.restart is None:
            error.add_note(
                "A worker of the cluster raised this error: every worker must have the same files"
                " under the same paths."
            )
        # The job that writes handles a full disk.
        reached = not isinstance(error, OSError) or error.errno not in _UNREACHED
        if not reached or (collection and not isinstance(error, ExpostError | OSError)):
            raise _fault(error) from None

    @contextmanager
    def _connection_checked(self) -> Iterator[None]:
        """Raise :class:`ExpostError` if the scheduler does not answer."""
        try:
            yield
        except _disconnected():
            raise self._lost() from None

    def _lost(self) -> ExpostError:
        return ExpostError(
            f"engine: the scheduler at {self.client.scheduler.address} was lost; start it, and"
            " run this command, again."
        )


def _disconnected() -> tuple[type[BaseException], ...]:
    """Return the types of the errors of a client that lost its scheduler."""
    distributed = require("distributed", caller="engine='dask'", extra="dask")
    return (CancelledError, OSError, getattr(distributed.client, "ClosedClientError", OSError))


@contextmanager
def computing() -> Iterator[None]:
    """Compute a user's collection; hide the messages of its errors, which may quote cells."""
    try:
        yield
    except ExpostError:
        raise
    except Exception as error:  # noqa: BLE001 (see above)
        raise _fault(error) from None


def _fault(error: Exception) -> InvalidInput:
    """Return the error to raise for one on a worker: an unreachable path, or a user's own code."""
    if isinstance(error, OSError) and error.errno in _UNREACHED:
        return InvalidInput(
            f"engine: a worker cannot reach {str(error.filename)!r} ({error.strerror}); give every"
            " worker the table and the folder of the results under the same paths, with the same"
            " rights."
        )
    return InvalidInput(
        f"the Dask collection: could not be computed ({type(error).__name__}); call its compute()"
        " to see why."
    )


def _is_collection(item: Any) -> bool:
    """Return whether ``item`` is a Dask collection, or a list with one."""
    several = isinstance(item, list | tuple)
    return any(hasattr(part, "__dask_graph__") for part in (item if several else [item]))


@dataclass(frozen=True)
class _Parcel:
    """A pickled value, which the scheduler neither unpickles nor prints: it may hold rows."""

    content: bytes = field(repr=False)

    @classmethod
    def of(cls, value: Any) -> "_Parcel":
        return cls(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))


class _Task:
    """A task with one BLAS thread, on a worker that has been checked against the others."""

    def __init__(self, task: Callable[[Any], Any], kind: tuple[str, ...]) -> None:
        self._task, self._kind = task, kind

    def __call__(self, item: Any) -> Any:
        """Return the result of the task."""
        check_machines({"one worker": self._kind, "one that joined later": machine()})
        with one_blas_thread():
            return self._task(item)


def _content(parcel: _Parcel) -> bytes:
    # Workers unpickle what they receive from each other outside of any task, where a failure would
    # be retried for ever: so they receive bytes.
    return parcel.content


@lru_cache(maxsize=2)
def _unpacked(content: bytes) -> Any:
    """Return the task, unpickled once for all its items on a worker."""
    return pickle.loads(content)


def _call(task: bytes, item: Any) -> Any:
    return _unpacked(task)(item)


def _call_parcel(task: bytes, parcel: _Parcel) -> Any:
    return _unpacked(task)(pickle.loads(parcel.content))


@contextmanager
def dask_engine(
    *, address: str | None = None, workers: int | None = None, client: Any = None
) -> Iterator[DaskEngine]:
    """Yield the engine of a cluster: that at ``address``, that of ``client``, or a new local one.

    A local cluster ends with the context.
    """
    with ExitStack() as opened:
        restart = None
        if client is None and address is None:
            client, restart = _local_cluster(workers or available_cores(), opened)
        elif client is None:
            client = _connect(str(address))
            opened.callback(client.close)
        yield DaskEngine(client, restart=restart)


def _connect(address: str) -> Any:
    distributed = require("distributed", caller="engine='dask'", extra="dask")
    try:
        return distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    # Dask raises a TypeError where TLS is not configured.
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise InvalidInput(
            f"engine={address!r}: no scheduler answers there ({type(error).__name__}); start one"
            " with `dask scheduler`, or use engine='dask'."
        ) from None


def _local_cluster(workers: int, opened: ExitStack) -> tuple[Any, Callable[[], Any]]:
    """Return a client of a new cluster on this machine, and a function to replace lost workers."""
    dask = require("dask", caller="engine='dask'", extra="dask")
    distributed = require("distributed", caller="engine='dask'", extra="dask")
    require("cryptography", caller="engine='dask'", extra="dask")
    folder = opened.enter_context(TemporaryDirectory(prefix="expost-", ignore_cleanup_errors=True))
    settings: dict[str, Any] = {
        # No environment variable of this process is set, and no HTTP server is started.
        "distributed.nanny.pre-spawn-environ": {},
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        # A busy machine takes longer than Dask's 15 seconds to restart a worker, and a cluster
        # that has given up on a worker does not try again by itself.
        "distributed.deploy.lost-worker-timeout": "60s",
    }
    # Until the cluster ends: workers are started later too.
    opened.enter_context(dask.config.set(settings))
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        # Without a key other users of this machine could run code in the workers.
        security=True,
        # As in threads: no row is spilled to the disk, and no worker is paused for its memory.
        memory_limit=0,
        local_directory=folder,
    )
    opened.callback(cluster.close)
    client = distributed.Client(cluster, set_as_default=False)
    opened.callback(client.close)
    return client, lambda: cluster.scale(workers)


# -- versions, processor and BLAS, on which the last bits of a result depend -----------------------


@cache
def versions() -> dict[str, str | None]:
    """Return the local version of each of the packages."""
    installed: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = None
    return installed


@cache
def machine() -> tuple[str, ...]:
    """Return the local packages, NumPy's view of the processor, and the kernels of BLAS."""
    import scipy.linalg  # loads its own BLAS

    del scipy
    kernels = {
        f"{library['internal_api']} {library['version']} for {library.get('architecture', 'any')}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    vectors = np.show_config(mode="dicts")["SIMD Extensions"]
    known = (*vectors.get("baseline", ()), *vectors.get("found", ()))
    packages = (f"{name} {number}" for name, number in versions().items())
    return (*packages, platform.machine(), f"NumPy for {', '.join(known)}", *sorted(kernels))


def check_versions(workers: Mapping[str, Mapping[str, str | None]]) -> None:
    """Raise unless every worker has the local versions of the packages."""
    for address, packages in workers.items():
        for package, here in versions().items():
            there = packages.get(package)
            if there != here:
                raise InvalidInput(
                    f"engine: {address} has {package} {there or '(not installed)'}, and here it is"
                    f" {here}: results could differ in their last bits; install the same version in"
                    " both."
                )


def check_machines(workers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the :func:`machine` of all the workers; raise if two of them differ."""
    kinds = {kind: address for address, kind in workers.items()}
    (first, first_address), *others = kinds.items()
    if others:
        other, other_address = others[0]
        differing = sorted({*first} ^ {*other})
        raise InvalidInput(
            f"engine: {first_address} and {other_address} compute differently"
            f" ({'; '.join(differing)}), so that the result would depend on which worker gets which"
            " rows; install the same on all and use one kind of processor, or set"
            " OPENBLAS_CORETYPE and NPY_DISABLE_CPU_FEATURES to the same values on all."
        )
    return first
