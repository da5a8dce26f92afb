"""What is shown of a job that takes a while: a bar at a terminal, or JSON lines, or nothing.

All of it goes to stderr, and a reader of stderr who goes away costs no result.
"""

import json
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, TextIO, cast

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from expost.cli.blocks import Stream
from expost.cli.mistakes import (
    Reported,
    exit_code,
    interruption,
    received_signal,
    sentence,
)
from expost.cli.pace import Moment, Tracker
from expost.engine import SILENT, Progress

__all__ = ["progress"]

# A job that is over sooner shows no bar.
PATIENCE = 2.0
# From these widths of the terminal on there is room for a short bar, and for everything.
_NARROW, _WIDE = 60, 100
_UNITS = ("", "k ", "M ", "G ", "T ")


def progress(phases: int, *, quiet: bool, log: bool) -> AbstractContextManager[Progress]:
    """Who listens to a job of so many phases.

    ``quiet``  no bar, not even at a terminal.
    ``log``    JSON lines in place of the bar, terminal or not, quiet or not. An error that is one
               sentence is then the last line, and ends the program.
    """
    if log:
        return _logged(phases)
    # Not the console's own word for it: FORCE_COLOR makes that of any file a terminal.
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        return nullcontext(SILENT)
    return _drawn(phases)


# -- at a terminal ---------------------------------------------------------------------------------


@contextmanager
def _drawn(phases: int) -> Iterator[Progress]:
    tracker = Tracker(phases)
    console = Console(file=cast(TextIO, Stream(sys.stderr)))
    spinner = Spinner("dots" if console.encoding.startswith("utf") else "line")
    began = time.monotonic()
    live = Live(
        get_renderable=lambda: _bar(
            tracker.moment(), spinner, time.monotonic() - began, width=console.width
        ),
        console=console,
        refresh_per_second=8,
        transient=True,
    )
    timer = threading.Timer(PATIENCE, live.start)
    timer.daemon = True
    timer.start()
    try:
        yield tracker
    finally:
        timer.cancel()
        # A bar that is being started this very moment must not outlive its job.
        timer.join()
        live.stop()


def _bar(moment: Moment, spinner: Spinner, elapsed: float, *, width: int) -> Table:
    """One line; where there is no room, the bar and the clock give way, and the words are cut."""
    words = Text(moment.phase, no_wrap=True, overflow="ellipsis")
    cells: list[RenderableType] = [spinner, f"{moment.number}/{moment.of}", words]
    if width >= _NARROW:
        cells.append(_gauge(moment, width=20 if width >= _WIDE else 10))
    if moment.lap > 1:
        cells.append(f"pass {moment.lap}")
    cells += _figures(moment)
    if width >= _WIDE or not moment.lap:
        cells.append(Text(_duration(elapsed), style="dim"))
    line = Table.grid(padding=(0, 1))
    for cell in cells:
        # Of a table, only columns that may wrap become narrower.
        line.add_column(no_wrap=cell is not words)
    line.add_row(*cells)
    return line


def _gauge(moment: Moment, *, width: int) -> ProgressBar:
    if not moment.lap:
        return ProgressBar(total=None, width=width, pulse=True)
    return ProgressBar(total=1.0, completed=_part(moment), width=width)


def _figures(moment: Moment) -> list[str]:
    """Per cent, speed and time left of the pass that is under way."""
    if not moment.lap:
        return []
    shown = [f"{math.floor(100 * _part(moment))} %"]
    if moment.speed is not None:
        shown.append(f"{_amount(moment.speed)}rows/s")
    if moment.left is not None:
        shown.append(f"{_duration(math.ceil(moment.left))} left")
    return shown


def _part(moment: Moment) -> float:
    return min(moment.done / moment.total, 1.0) if moment.total > 0 else 1.0


def _amount(value: float) -> str:
    """Two digits or three, and a unit: 1.2 M, 45 k, 7.0."""
    unit = 0
    while round(value) >= 1000 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    digits = 1 if round(value, 1) < 10 else 0
    return f"{value:.{digits}f} {_UNITS[unit]}"


def _duration(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}"


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
        # The words of an error that nobody foresaw are not expost's, and might hold a cell.
        unforeseen = f"an error in expost itself ({type(error).__name__})."
        log.write("failed", error=message or unforeseen)
        if message is None:
            raise
        # Said already: a second time, and not as JSON, would be one too many.
        raise Reported(code) from None
    tracker.close()
    log.write("done", seconds=round(time.monotonic() - began, 3))


class _Log:
    """Writes one JSON object a line."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def write(self, event: str, **figures: object) -> None:
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"event": event, "time": when, **figures}, allow_nan=False)
        # In one piece: lines of other programs may come in between.
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def phase(self, moment: Moment) -> None:
        self.write("phase", phase=moment.phase, number=moment.number, of=moment.of)

    def rows(self, moment: Moment) -> None:
        figures: dict[str, Any] = {
            "phase": moment.phase,
            "number": moment.number,
            "of": moment.of,
            "pass": moment.lap,
            "done": moment.done,
            "total": moment.total,
            "seconds": round(moment.seconds, 3),
            "rows_per_second": None if moment.speed is None else round(moment.speed, 1),
            "seconds_left": None if moment.left is None else round(moment.left, 1),
        }
        self.write("rows", **figures)
