"""A text stream that survives a closed reader; needs the standard library alone."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

__all__ = ["Stream"]


class Stream:
    """A text stream whose reader may close it: later output is dropped without an error.

    Attributes
    ----------
    fault : OSError | None
        The error if the stream could not be written for another reason, or None.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def write(self, text: str) -> int:
        """Write ``text``; an error is stored in ``fault``."""
        self._try(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._try(lambda stream: stream.flush())

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream."""
        if self._stream is None:
            raise OSError("the stream is closed")
        return self._stream.fileno()

    @property
    def encoding(self) -> str:
        """The encoding of the stream."""
        return "ascii" if self._stream is None else self._stream.encoding

    @property
    def errors(self) -> str | None:
        """How the stream treats characters that it cannot encode."""
        return None if self._stream is None else self._stream.errors

    def _try(self, use: Callable[[TextIO], object]) -> None:
        if self._stream is None:
            return
        try:
            use(self._stream)
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.fault = error
            lost, self._stream = self._stream, None
            # What is still buffered would fail once more when the interpreter ends, and change the
            # exit code.
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, lost.fileno())
                os.close(null)
        except ValueError:
            # The stream was closed, or cannot encode the characters.
            pass
