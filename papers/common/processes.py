"""Tasks in single-threaded worker processes, which may be killed.

Two processes of one thread do twice the work of one process; two threads in one process, or many
trainings under one ``vmap``, do not (small tensors). A process that is killed, by hand or for lack
of memory, ends its pool. The unfinished tasks are given to a new pool.
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

from expost.engine.threads import one_torch_thread
from expost.errors import ExpostError, InvalidInput

__all__ = ["run_each"]

_Task = TypeVar("_Task")
# This many pools in a row may die without a result.
_PATIENCE = 3


def run_each(
    work: Callable[[_Task], Any],
    tasks: Sequence[_Task],
    *,
    workers: int,
    done: Callable[[int, Any], None],
) -> None:
    """Call ``work`` on each task, and ``done(index, result)`` as results come, in any order.

    With more than one worker ``work`` must be picklable; with one it is called in this process.
    """
    if workers == 1 or len(tasks) == 1:
        with one_torch_thread():
            for index, task in enumerate(tasks):
                done(index, work(task))
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
                    f"{deaths} times in a row the worker processes died before their first result,"
                    " probably for lack of memory; use fewer workers. A script that starts them"
                    ' must be guarded by if __name__ == "__main__".'
                ) from None


def _in_pool(
    content: bytes, pending: dict[int, Any], workers: int, done: Callable[[int, Any], None]
) -> None:
    """Run the ``pending`` tasks, and remove those that are done."""
    # Spawned, not forked: a fork of a process whose torch has threads may hang.
    pool = ProcessPoolExecutor(
        min(workers, len(pending)),
        mp_context=get_context("spawn"),
        initializer=_start,
        initargs=(content,),
    )
    try:
        with _interrupts_blocked():
            indices = {pool.submit(_call, task): index for index, task in pending.items()}
        for future in as_completed(indices):
            result = future.result()
            index = indices[future]
            del pending[index]
            done(index, result)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C while processes are started, until they can ignore it."""
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
            f"a function or class cannot be sent to other processes ({error}); define it at the"
            " top level of a file, or use workers=1."
        ) from None


# The work of a worker process.
_work: Callable[[Any], Any] | None = None


def _start(content: bytes) -> None:
    global _work
    # Ctrl-C stops the parent, which stops its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    _work = pickle.loads(content)
    # Unpickling the work imports torch only if the work needs it.
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
