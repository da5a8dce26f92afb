"""Errors as the one sentence that a person reads; the standard library is all that it needs."""

from expost.errors import ExpostError

__all__ = ["sentence"]


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
    # One line, whatever a path or a column is called.
    return " ".join(message.splitlines())
