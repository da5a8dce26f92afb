"""A Dask cluster: workers read their own parts, and only what tasks give travels.

Whatever a worker was doing when it was lost is done again by another, from the same rows in the
same blocks, so that the result is the same bit for bit.
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

from expost.engine.base import one_blas_thread
from expost.engine.processes import available
from expost.errors import ExpostError, InvalidInput, require

__all__ = ["DaskEngine", "computing", "dask_engine"]

Item = TypeVar("Item")
Result = TypeVar("Result")
# Items that are handed out for each thread of the cluster; a scheduler is far away.
_AHEAD = 4
# A scheduler gives an item up when several workers (`allowed-failures`, commonly four) were lost
# while they had it, were it to blame or not. So often it is handed out again.
_ROUNDS = 3
# Seconds to wait for a scheduler and its workers at the start; between looks whether any worker is
# left; and for one to come back.
_PATIENCE, _LOOK, _ALONE = 20.0, 5.0, 120.0
# What the system says of a path that is not there, or not for this user.
_UNREACHED = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
# The scheduler keeps what it is sent, so that it can be done again; scattered data, of which Dask
# would not warn, is lost with its worker.
_QUIET = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}

# What reads the rows and computes with them.
_PACKAGES = ("expost", "numpy", "scipy", "pyarrow", "duckdb")


class DaskEngine:
    """The workers of a Dask client; each task runs there with one BLAS thread.

    Formal guarantees
    -----------------
    All workers have the versions of expost and its numerical packages that are here, and compute
    alike among themselves, or :class:`InvalidInput` is raised: at the start, and by a worker that
    came later. An item that is a Dask collection, or a list of them, is computed by the cluster and
    stays there: the task is called with its value where that lies.
    """

    def __init__(self, client: Any, *, mend: Callable[[], Any] | None = None) -> None:
        """``mend`` starts lost workers again, where the cluster does not."""
        self._client, self._mend = client, mend
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
        with self._asking():
            found = client.get_versions(packages=list(_PACKAGES))
        there = {"the scheduler": found["scheduler"]["packages"]}
        there |= {name: about["packages"] for name, about in found["workers"].items()}
        check_versions(there)
        # Workers that restart are checked again before their first task.
        with self._asking():
            kinds = client.run(machine, on_error="ignore")
        self._machine = check_machines(kinds) if kinds else machine()

    @property
    def workers(self) -> int:
        """How many tasks run at the same time."""
        with self._asking():
            return max(1, sum(int(count) for count in self._client.nthreads().values()))

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """task(item) for each item, in order."""
        # Sent once, not with every item.
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
            # A task may have failed, or the caller have stopped.
            if waiting and self._client.status == "running":
                with suppress(*_disconnected()):
                    self._client.cancel([future for _, future in waiting])

    def _submit(self, shared: Any, item: Any) -> Any:
        if _is_collection(item):
            several = isinstance(item, list | tuple)
            value = [self._compute(one) for one in item] if several else self._compute(item)
            return self._send(_call, shared, value)
        return self._send(_call_parcel, shared, _Parcel.of(item))

    def _compute(self, collection: Any) -> Any:
        if any(future.client is not self._client for future in self._futures_of(collection)):
            raise InvalidInput(
                "engine: parts of this collection are held by another cluster, or by another client"
                " of this one; give the client that they were persisted with as the engine."
            )
        with self._config.set(_QUIET), self._asking():
            return self._client.compute(collection)

    def _send(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # Not pure: the same item may be asked for twice, of a file that has changed. No retries: a
        # task that raises would do so again.
        with self._config.set(_QUIET), self._asking():
            return self._client.submit(function, *arguments, pure=False)

    def _result(self, shared: Any, item: Any, future: Any) -> Any:
        for left in reversed(range(_ROUNDS)):
            try:
                return self._wait(future, collection=_is_collection(item))
            except self._killed:
                future = self._submit(shared, item) if left else None
        raise ExpostError(
            "engine: worker after worker died while it had the same rows, most likely for want of"
            " memory; give each worker more, or take fewer of them."
        )

    def _wait(self, future: Any, *, collection: bool) -> Any:
        alone: float | None = None
        while True:
            try:
                return future.result(timeout=_LOOK)
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
            with self._asking():
                if self._mend is not None:
                    self._mend()
                there = bool(self._client.nthreads())
            if there:
                alone = None
                continue
            now = time.monotonic()
            alone = now if alone is None else alone
            if now - alone > _ALONE:
                raise ExpostError(
                    f"engine: no worker has been there for {_ALONE:.0f} seconds; start some, and"
                    " this command again."
                )

    def _check_task(self, error: Exception, collection: bool) -> None:
        """Raise an error of expost's own for what a task raised, where its worker is to blame."""
        if isinstance(error, ExpostError) and self._mend is None:
            error.add_note(
                "A worker of the cluster raised it: every worker must see the same files under the"
                " same paths."
            )
        # A disk that is full is the business of the job that writes.
        reached = not isinstance(error, OSError) or error.errno not in _UNREACHED
        if not reached or (collection and not isinstance(error, ExpostError | OSError)):
            raise _fault(error) from None

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask the scheduler; one that does not answer is lost."""
        try:
            yield
        except _disconnected():
            raise self._lost() from None

    def _lost(self) -> ExpostError:
        return ExpostError(
            f"engine: the scheduler at {self._client.scheduler.address} was lost; start it, and"
            " this command, again."
        )


def _disconnected() -> tuple[type[BaseException], ...]:
    """The errors of a client whose scheduler is gone; those of a connection are OSErrors."""
    distributed = require("distributed", caller="engine='dask'", extra="dask")
    return (CancelledError, OSError, getattr(distributed.client, "ClosedClientError", OSError))


@contextmanager
def computing() -> Iterator[None]:
    """Compute a user's collection; errors of its own code, which may quote cells, are not shown."""
    try:
        yield
    except ExpostError:
        raise
    except Exception as error:  # noqa: BLE001 (see above)
        raise _fault(error) from None


def _fault(error: Exception) -> InvalidInput:
    """What is said of an error on a worker: a path that it cannot reach, or a user's own code."""
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
    """Whether it is a Dask collection, or a list with one."""
    several = isinstance(item, list | tuple)
    return any(hasattr(one, "__dask_graph__") for one in (item if several else [item]))


@dataclass(frozen=True)
class _Parcel:
    """Something that the scheduler passes on unopened and does not print: it may hold rows."""

    content: bytes = field(repr=False)

    @classmethod
    def of(cls, value: Any) -> "_Parcel":
        return cls(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))


class _Task:
    """A task with one BLAS thread, on a worker that computes like the others."""

    def __init__(self, task: Callable[[Any], Any], kind: tuple[str, ...]) -> None:
        self._task, self._kind = task, kind

    def __call__(self, item: Any) -> Any:
        """The task's result."""
        check_machines({"one worker": self._kind, "one that came later": machine()})
        with one_blas_thread():
            return self._task(item)


def _content(parcel: _Parcel) -> bytes:
    # What workers get from one another is unpacked outside of any task, where a failure would be
    # tried for ever: so they get bytes.
    return parcel.content


@lru_cache(maxsize=2)
def _unpacked(content: bytes) -> Any:
    """A task, once for all the items that a worker has of it."""
    return pickle.loads(content)


def _call(task: bytes, item: Any) -> Any:
    return _unpacked(task)(item)


def _call_parcel(task: bytes, parcel: _Parcel) -> Any:
    return _unpacked(task)(pickle.loads(parcel.content))


@contextmanager
def dask_engine(
    *, address: str | None = None, workers: int | None = None, client: Any = None
) -> Iterator[DaskEngine]:
    """The cluster at ``address``, that of a ``client``, or one here that ends with the context."""
    with ExitStack() as opened:
        mend = None
        if client is None and address is None:
            client, mend = _started(workers or available(), opened)
        elif client is None:
            client = _connected(str(address))
            opened.callback(client.close)
        yield DaskEngine(client, mend=mend)


def _connected(address: str) -> Any:
    distributed = require("distributed", caller="engine='dask'", extra="dask")
    try:
        return distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    # A TLS that is not configured is a TypeError there.
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise InvalidInput(
            f"engine={address!r}: no scheduler answers there ({type(error).__name__}); start one"
            " with `dask scheduler`, or take engine='dask'."
        ) from None


def _started(workers: int, opened: ExitStack) -> tuple[Any, Callable[[], Any]]:
    """A client of a cluster of processes on this machine, and how lost ones are replaced."""
    dask = require("dask", caller="engine='dask'", extra="dask")
    distributed = require("distributed", caller="engine='dask'", extra="dask")
    require("cryptography", caller="engine='dask'", extra="dask")
    folder = opened.enter_context(TemporaryDirectory(prefix="expost-", ignore_cleanup_errors=True))
    settings: dict[str, Any] = {
        # Nothing is set in the environment of this process, and nothing is served over HTTP.
        "distributed.nanny.pre-spawn-environ": {},
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        # A busy machine takes longer than Dask's 15 seconds to start a worker again, and a cluster
        # that has given up on one does not try once more by itself.
        "distributed.deploy.lost-worker-timeout": "60s",
    }
    # For as long as the cluster lives: workers are started later too.
    opened.enter_context(dask.config.set(settings))
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        # Others of this machine could run what they like in the workers: they lack the key.
        security=True,
        # As in threads: no row is spilled to the disk, no worker stopped for its memory.
        memory_limit=0,
        local_directory=folder,
    )
    opened.callback(cluster.close)
    client = distributed.Client(cluster, set_as_default=False)
    opened.callback(client.close)
    return client, lambda: cluster.scale(workers)


# -- what the last bits of a result depend on besides the rows: versions, processor, BLAS ---------


@cache
def versions() -> dict[str, str | None]:
    """The version of each of the packages, here."""
    found: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


@cache
def machine() -> tuple[str, ...]:
    """The packages here, the processor as NumPy sees it, and the kernels that BLAS chose."""
    import scipy.linalg  # brings a BLAS of its own

    del scipy
    found = {
        f"{library['internal_api']} {library['version']} for {library.get('architecture', 'any')}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    vectors = np.show_config(mode="dicts")["SIMD Extensions"]
    known = (*vectors.get("baseline", ()), *vectors.get("found", ()))
    packages = (f"{name} {number}" for name, number in versions().items())
    return (*packages, platform.machine(), f"NumPy for {', '.join(known)}", *sorted(found))


def check_versions(workers: Mapping[str, Mapping[str, str | None]]) -> None:
    """Raise unless every worker has the packages that are here."""
    for address, found in workers.items():
        for package, here in versions().items():
            there = found.get(package)
            if there != here:
                raise InvalidInput(
                    f"engine: {address} has {package} {there or '(not installed)'}, and here it is"
                    f" {here}: the same rows would give other bytes there; install the same version"
                    " in both."
                )


def check_machines(workers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What all the workers have in common, where they compute alike; else raise."""
    kinds = {kind: address for address, kind in workers.items()}
    (first, one), *others = kinds.items()
    if others:
        other, two = others[0]
        differing = sorted({*first} ^ {*other})
        raise InvalidInput(
            f"engine: {one} and {two} compute differently ({'; '.join(differing)}), so that the"
            " result would depend on who gets which rows; install the same on all and take one kind"
            " of processor, or set OPENBLAS_CORETYPE and NPY_DISABLE_CPU_FEATURES alike for all."
        )
    return first
