"""Many pieces of work in single-threaded processes, whatever becomes of a process.

Two processes with a thread each do twice the work of one; two threads in one process, or many
trainings under one ``vmap``, do not (small tensors). A process that is killed, by the system for
want of memory or by hand, takes its pool with it: what had not come back is handed to a new one.
"""

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from expost.errors import ExpostError, InvalidInput

__all__ = ["available", "each", "one_thread"]

_Task = TypeVar("_Task")
# So many pools may die without anything having come back from the last of them.
_PATIENCE = 3


def available() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(
    work: Callable[[_Task], Any],
    tasks: Sequence[_Task],
    *,
    workers: int,
    done: Callable[[int, Any], None],
) -> None:
    """Call ``work`` on each task, and ``done(place, result)`` as results come, in any order.

    With more than one worker ``work`` must be picklable; with one it is called here.
    """
    if workers == 1 or len(tasks) == 1:
        with one_thread():
            for place, task in enumerate(tasks):
                done(place, work(task))
        return
    content = _pickled(work)
    pending, deaths = dict(enumerate(tasks)), 0
    while pending:
        before = len(pending)
        try:
            _in_pool(content, pending, workers, done)
        except BrokenProcessPool:
            deaths = 1 if len(pending) < before else deaths + 1
            if deaths >= _PATIENCE:
                raise ExpostError(
                    f"{deaths} times in a row the worker processes died before anything came"
                    " back, most likely for want of memory; take fewer workers. A script that"
                    ' starts them must be guarded by if __name__ == "__main__".'
                ) from None


def _in_pool(
    content: bytes, pending: dict[int, Any], workers: int, done: Callable[[int, Any], None]
) -> None:
    """Take from ``pending`` what comes back."""
    # Spawned, not forked: a fork of a process whose torch has threads may hang.
    pool = ProcessPoolExecutor(
        min(workers, len(pending)),
        mp_context=get_context("spawn"),
        initializer=_start,
        initargs=(content,),
    )
    try:
        with _unheard():
            places = {pool.submit(_call, task): place for place, task in pending.items()}
        for future in as_completed(places):
            result = future.result()
            place = places[future]
            del pending[place]
            done(place, result)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _unheard() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach before they can ignore it; it waits meanwhile."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pickled(work: Any) -> bytes:
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidInput(
            f"a function or class cannot be handed to other processes ({error}); define it at the"
            " top level of a file, or use workers=1."
        ) from None


@contextmanager
def one_thread() -> Iterator[None]:
    """As in a worker: torch sums with one thread; with more they round differently."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# In a worker: what it was started with.
_work: Callable[[Any], Any] | None = None


def _start(content: bytes) -> None:
    global _work
    # Ctrl-C stops the parent, which stops its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    _work = pickle.loads(content)
    # Not imported before, and not by work that does without.
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _follow_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(task: Any) -> Any:
    assert _work is not None
    return _work(task)
