"""The ``expost`` program: options in, files out; no mathematics here.

This module needs the standard library alone, so that it can report in one sentence what is broken
if the rest cannot be imported. The commands are in :mod:`expost.cli.app`.
"""

import gc
import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO, cast

from expost.cli.mistakes import (
    Reported,
    exit_code,
    handle_signals,
    interruption,
    received_signal,
    sentence,
)
from expost.cli.stream import Stream
from expost.notices import is_captured

__all__ = ["main", "program"]


def __getattr__(name: str) -> Any:
    if name == "app":
        from expost.cli.app import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def program() -> None:
    """Run the program as a process; signals that arrive after its end are ignored."""
    # Imports make many objects that stay: to look for cycles among them takes a twentieth of a run.
    gc.set_threshold(20_000, 20, 20)
    main(after=signal.SIG_IGN)


def main(after: Any = None) -> None:
    """Run the program; a user error is one sentence and exit code 2, never a traceback.

    Parameters
    ----------
    after : Any, optional
        How signals are handled afterwards (default: as before).
    """
    # Closed by the caller: the next file to be opened would get its descriptor, and with it the
    # output of libraries.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (it stays open to the end)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (it stays open to the end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot print Λ must not fail a job that is done.
            stream.reconfigure(errors="backslashreplace")
    with handle_signals(after):
        try:
            with _output():
                _run()
        except BaseException as error:
            if after is not None:
                # A second Ctrl-C must not break the sentence.
                for handled in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(handled, after)
            number = received_signal()
            if number is None or (isinstance(error, SystemExit) and not error.code):
                raise
            if not isinstance(error, Reported):
                _print_error(interruption(error) or "interrupted.")
            raise SystemExit(128 + number) from None


def _run() -> None:
    try:
        from expost.cli.app import app_for
        from expost.cli.options import with_values

        app = app_for(sys.argv[1:])
    # A library that draws the command line may be broken in any way.
    except Exception as error:
        if received_signal() is not None:
            raise
        _report_broken_import(error)
    try:
        with _noted_warnings():
            app(with_values(sys.argv[1:]))
    except SystemExit as end:
        message = interruption(end)
        if message is not None and received_signal() is None and not isinstance(end, Reported):
            _print_error(message)
        raise
    except Exception as error:
        if received_signal() is not None:
            raise
        message = sentence(error)
        if message is None:
            raise
        _print_error(message)
        raise SystemExit(exit_code(error)) from None


def _report_broken_import(error: Exception) -> NoReturn:
    """Report that the command line cannot be imported; ``doctor`` names the broken library."""
    if sys.argv[1:2] != ["doctor"]:
        _print_error(
            f"the command line cannot be started ({type(error).__name__}: {error}); run expost"
            " doctor to find the cause."
        )
        raise SystemExit(2)
    from expost.jobs.doctor import checkup

    print("\n".join(checkup().lines()))
    raise SystemExit(1)


@contextmanager
def _output() -> Iterator[None]:
    """Let the reader of stdout close it; exit with 1 if stdout fails for another reason.

    The files of a command are complete before it prints.
    """
    before, output = sys.stdout, Stream(sys.stdout)
    sys.stdout = cast(TextIO, output)
    try:
        yield
    except SystemExit as end:
        output.flush()
        if output.fault is None or end.code:
            raise
    finally:
        sys.stdout = before
    if output.fault is not None:
        _print_error(
            f"stdout: {output.fault.strerror}; the printed text is incomplete, but the files that"
            " the command wrote are complete."
        )
        raise SystemExit(1)


@contextmanager
def _noted_warnings() -> Iterator[None]:
    """Let a job collect the warnings of other libraries too."""
    emit = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not is_captured(str(message), category):
            emit(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = emit


def _print_error(message: str) -> None:
    # One line, even if a path or a column name holds line breaks.
    print(f"expost: {' '.join(message.splitlines())}", file=sys.stderr)
