"""The progress of a job: a bar in a terminal, JSON lines, or nothing.

All of it goes to stderr. If stderr is closed, the job continues.
"""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, TextIO, cast

from expost.cli.mistakes import (
    Reported,
    exit_code,
    interruption,
    received_signal,
    sentence,
)
from expost.cli.stream import Stream
from expost.engine import SILENT, Progress
from expost.engine.tracker import JobStatus, Tracker

__all__ = ["progress"]


def progress(phases: int, *, quiet: bool, log: bool) -> AbstractContextManager[Progress]:
    """Return the listener of a job with this number of phases.

    Parameters
    ----------
    quiet : bool
        No bar, not even in a terminal.
    log : bool
        JSON lines in place of the bar, also if quiet. A user error is then the last line, and ends
        the program.
    """
    if log:
        return _logged(phases)
    # Not the console's `is_terminal`, which FORCE_COLOR sets for any file.
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        return nullcontext(SILENT)
    # Imported here: it imports rich, which the help of commands may not need.
    from expost.engine.bar import progress_bar

    return progress_bar(phases, cast(TextIO, Stream(sys.stderr)))


# -- for machines ----------------------------------------------------------------------------------


@contextmanager
def _logged(phases: int) -> Iterator[Progress]:
    log, began = _Log(Stream(sys.stderr)), time.monotonic()
    tracker = Tracker(phases, on_phase=log.phase, on_rows=log.rows)
    try:
        yield tracker
    except BaseException as error:
        tracker.close()
        message, code = interruption(error), 128 + (received_signal() or signal.SIGINT)
        if message is None:
            message, code = sentence(error), exit_code(error)
        # The message of an unexpected error may contain a cell of the data.
        unexpected = f"an error in expost itself ({type(error).__name__})."
        log.write("failed", error=message or unexpected)
        if message is None:
            raise
        # Already reported as JSON; do not print it again.
        raise Reported(code) from None
    tracker.close()
    log.write("done", seconds=round(time.monotonic() - began, 3))


class _Log:
    """A log of one JSON object per line."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def write(self, event: str, **figures: object) -> None:
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"event": event, "time": when, **figures}, allow_nan=False)
        # One write: lines of other programs may come in between.
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def phase(self, status: JobStatus) -> None:
        self.write("phase", phase=status.phase, number=status.number, of=status.phases)

    def rows(self, status: JobStatus) -> None:
        figures: dict[str, Any] = {
            "phase": status.phase,
            "number": status.number,
            "of": status.phases,
            "pass": status.pass_number,
            "done": status.done,
            "total": status.total,
            "seconds": round(status.seconds, 3),
            "rows_per_second": None if status.speed is None else round(status.speed, 1),
            "seconds_left": None if status.left is None else round(status.left, 1),
        }
        self.write("rows", **figures)
