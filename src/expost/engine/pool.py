"""Threads that run calls, and that no signal can leave waiting.

Python raises the exception of a signal in the main thread, between any two of its instructions. If
that thread has just locked something written in Python (``Condition``, ``Semaphore``, ``Event``,
``Queue``, and with them ``Future`` and ``ThreadPoolExecutor``), it is never unlocked, and threads
that need it wait for ever: Ctrl-C would not end the program. Here the main thread meets the others
in ``SimpleQueue`` alone, whose methods are written in C and are not interrupted halfway.
"""

import _thread
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

__all__ = ["Call", "Threads"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Call(Generic[Result]):
    """task(item), which one thread runs and another one waits for.

    The task has its own copy of the caller's context variables.
    """

    def __init__(self, task: Callable[[Item], Result], item: Item) -> None:
        self._run: Callable[[], Result] | None = partial(copy_context().run, task, item)
        self._outcome: SimpleQueue[tuple[Result | None, BaseException | None]] = SimpleQueue()

    def run(self) -> None:
        """Run the task, unless it was cancelled; its exception is raised by :meth:`result`."""
        run, self._run = self._run, None
        if run is None:
            return
        try:
            self._outcome.put((run(), None))
        except BaseException as error:  # noqa: BLE001 (raised where the result is awaited)
            self._outcome.put((None, error))

    def cancel(self) -> None:
        """Keep a task that has not begun from running."""
        self._run = None
        self._outcome.put((None, RuntimeError("the engine was closed before this task began.")))

    def result(self) -> Result:
        """Wait for the result, or raise the exception of the task."""
        result, error = self._outcome.get()
        if error is None:
            return cast(Result, result)
        try:
            raise error
        finally:
            # The error refers to this frame: without a cycle it goes as soon as it is handled.
            del error


class Threads:
    """Threads that run calls in their order, until they are ended.

    Parameters
    ----------
    count : int
        How many.
    """

    def __init__(self, count: int) -> None:
        self._calls: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._is_ended = False
        # Thread.start() waits for an Event: a thread other than the main one has to call it.
        starting = Call(partial(_started, self._calls), count)
        _thread.start_new_thread(starting.run, ())
        self._threads = starting.result()

    def start(self, call: Call[Any]) -> None:
        """Run a call as soon as a thread is free."""
        if self._is_ended:
            raise RuntimeError("the engine is closed.")
        self._calls.put(call)

    def end(self) -> None:
        """Cancel the calls that have not begun, and end each thread after its current one."""
        self._is_ended = True
        with suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if call is not None:
                    call.cancel()
        for _ in self._threads:
            self._calls.put(None)

    def join(self) -> None:
        """Wait for the threads, after :meth:`end`."""
        for thread in self._threads:
            thread.join()


def _started(calls: "SimpleQueue[Call[Any] | None]", count: int) -> list[threading.Thread]:
    threads: list[threading.Thread] = []
    try:
        while len(threads) < count:
            name = f"expost_{len(threads)}"
            thread = threading.Thread(target=_run_calls, args=(calls,), name=name, daemon=True)
            thread.start()
            threads.append(thread)
    except BaseException:
        # The system may allow no more of them.
        for _ in threads:
            calls.put(None)
        raise
    return threads


def _run_calls(calls: "SimpleQueue[Call[Any] | None]") -> None:
    while (call := calls.get()) is not None:
        call.run()
        # The result belongs to the caller, and may be large.
        del call
