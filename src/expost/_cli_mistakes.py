"""Errors as the one sentence that a person reads; the standard library is all that it needs."""

import signal

from expost.errors import ExpostError

__all__ = ["Terminated", "interruption", "sentence"]


class Terminated(SystemExit):
    """The system asks the program to end (SIGTERM); whoever is at work tidies up, as for Ctrl-C."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def interruption(error: BaseException) -> str | None:
    """What is said of work that was stopped from outside; None if it was not."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, KeyboardInterrupt | Terminated):
        # Command lines turn an interruption into an exit code, and an exit code into an exit.
        hidden = None if found.__suppress_context__ else found.__context__
        found = found.__cause__ or hidden
    return None if found is None else " ".join(["interrupted.", *notes(found)])


def notes(error: BaseException) -> list[str]:
    """What whoever saw the error pass had to add."""
    return list(getattr(error, "__notes__", ()))


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
