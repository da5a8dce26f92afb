"""Errors and signals as one printed sentence; needs the standard library alone."""

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
    "handle_signals",
    "interruption",
    "received_signal",
    "sentence",
]

# The last of SIGINT and SIGTERM that reached this process while it worked.
_received: int | None = None
# An interruption that a library swallowed is repeated after so many seconds.
_AGAIN = 0.05


class Terminated(SystemExit):
    """The exit on SIGTERM, which is cleaned up like Ctrl-C."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class Reported(SystemExit):
    """The exit of a program whose error has been reported already."""


@contextmanager
def handle_signals(after: Any = None) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the work, even if a library swallows the exception.

    A query or an import may replace the exception, and a destructor drops it: the signal is
    recorded, and a dropped one is sent again. Handlers other than the default ones are kept.

    Parameters
    ----------
    after : Any, optional
        How the signals are handled from then on (default: as before).
    """
    global _received
    _received = None
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before: dict[int, Any] = {}
    hook = sys.unraisablehook
    if threading.current_thread() is threading.main_thread():
        before = {n: handler for n, handler in defaults.items() if signal.getsignal(n) is handler}
    try:
        for number in before:
            signal.signal(number, _end)
        if before:
            sys.unraisablehook = _repeating(hook)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if after is None else after)
        # The program ends: objects that an interruption left unfinished may warn when freed.
        if _received is None or after is None:
            sys.unraisablehook = hook


def _end(number: int, _: object) -> NoReturn:
    global _received
    _received = number
    if number == signal.SIGTERM:
        raise Terminated
    raise KeyboardInterrupt


def _repeating(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a hook that sends a signal again if its exception was dropped.

    After a signal, other dropped exceptions come from objects it left unfinished: ignored.
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
    """Return the message of an interruption, or None if the error is not one."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    stopped = any(isinstance(link, KeyboardInterrupt | Terminated) for link in chain)
    if _received is None and not stopped:
        return None
    lines = dict.fromkeys(note for link in chain for note in notes(link))
    return " ".join(["interrupted.", *lines])


def notes(error: BaseException) -> list[str]:
    """Return the notes that were added to an error."""
    return list(getattr(error, "__notes__", ()))


def exit_code(error: BaseException) -> int:
    """Return the exit code of a reported error: 2, or 0 if the run had finished before."""
    return 0 if isinstance(error, AlreadyFinished) else 2


def sentence(error: BaseException) -> str | None:
    """Return the message of an error on one line; None for an error in expost itself."""
    match error:
        case ExpostError():
            message = str(error)
        case OSError():
            prefix = f"{error.filename}: " if error.filename else ""
            message = f"{prefix}{error.strerror or error}."
        case MemoryError():
            message = f"{str(error) or 'not enough memory'}; drop columns, or use fewer rows."
        case _:
            return None
    if "--resume" not in message:
        message = " ".join([message, *notes(error)])
    # One line, even if a path or a column name holds line breaks.
    return " ".join(message.splitlines())
