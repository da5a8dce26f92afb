"""Errors as the one sentence that a person reads; the standard library is all that it needs."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from expost.errors import AlreadyFinished, ExpostError

__all__ = [
    "Reported",
    "Terminated",
    "exit_code",
    "heeding_signals",
    "interruption",
    "received_signal",
    "sentence",
]

# The last of SIGINT and SIGTERM that reached this process while it worked.
_received: int | None = None
# An interruption that a library swallowed is repeated after so many seconds.
_AGAIN = 0.05


class Terminated(SystemExit):
    """The system asks the program to end (SIGTERM); the work is tidied up as for Ctrl-C."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class Reported(SystemExit):
    """The end of a program whose error has been reported already."""


@contextmanager
def heeding_signals(after: Any = None) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the work, whatever a library makes of the exception.

    A query or an import may turn the exception into one of its own, and a destructor drops it: the
    signal is remembered, and a dropped one repeated. Handlers that are not the system's own stay.

    ``after``  how the signals are handled from then on (default: as before).
    """
    global _received
    _received = None
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before: dict[int, Any] = {}
    hook = sys.unraisablehook
    if threading.current_thread() is threading.main_thread():
        before = {one: usual[one] for one in usual if signal.getsignal(one) is usual[one]}
    try:
        for number in before:
            signal.signal(number, _end)
        if before:
            sys.unraisablehook = _repeating(hook)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if after is None else after)
        # The program ends: what an interruption left half-made is freed later, and may complain.
        if _received is None or after is None:
            sys.unraisablehook = hook


def _end(number: int, _: object) -> NoReturn:
    global _received
    _received = number
    if number == signal.SIGTERM:
        raise Terminated
    raise KeyboardInterrupt


def _repeating(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Send a signal again whose exception was dropped, where nothing could be raised.

    After a signal other dropped exceptions are those of objects that it left half-made: ignored.
    """

    def unraisable(dropped: Any) -> None:
        if _received is None:
            hook(dropped)
            return
        if not issubclass(dropped.exc_type, KeyboardInterrupt | Terminated):
            return
        timer = threading.Timer(_AGAIN, signal.raise_signal, [_received])
        timer.daemon = True
        timer.start()

    return unraisable


def received_signal() -> int | None:
    """Return the signal that asked the program to end, if one did."""
    return _received


def interruption(error: BaseException) -> str | None:
    """Return what is printed of work that was stopped from outside; None if it was not."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    stopped = any(isinstance(one, KeyboardInterrupt | Terminated) for one in chain)
    if _received is None and not stopped:
        return None
    lines = dict.fromkeys(note for one in chain for note in notes(one))
    return " ".join(["interrupted.", *lines])


def notes(error: BaseException) -> list[str]:
    """Return what was added to an error on its way."""
    return list(getattr(error, "__notes__", ()))


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error that is one sentence: 2, or 0 where all was done before."""
    return 0 if isinstance(error, AlreadyFinished) else 2


def sentence(error: BaseException) -> str | None:
    """What is said of an error, on one line; None if nobody but a programmer can mend it."""
    match error:
        case ExpostError():
            message = str(error)
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            message = f"{where}{error.strerror or error}."
        case MemoryError():
            message = f"{str(error) or 'not enough memory'}; drop columns, or take fewer rows."
        case _:
            return None
    if "--resume" not in message:
        message = " ".join([message, *notes(error)])
    # One line, whatever a path or a column is called.
    return " ".join(message.splitlines())
