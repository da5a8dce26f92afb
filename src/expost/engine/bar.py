"""The progress of a job on stderr: a bar at a terminal, lines of text elsewhere.

The command line and the Python functions display the same. This module imports rich; it is imported
only where progress is displayed.
"""

import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from expost.engine import SILENT, Progress
from expost.engine.tracker import JobStatus, Tracker

__all__ = ["progress_bar", "progress_display"]

# Seconds; a shorter job has no bar.
PATIENCE = 2.0
# The least widths of the terminal for a short bar, and for the whole line.
_NARROW, _WIDE = 60, 100
_UNITS = ("", "k ", "M ", "G ", "T ")


def progress_display(progress: bool | Progress, phases: int) -> AbstractContextManager[Progress]:
    """Return the receiver of the progress of a job of ``phases``, started from Python.

    Parameters
    ----------
    progress : bool | Progress
        True displays it on stderr; a :class:`Progress` receives it itself.
    """
    if not isinstance(progress, bool):
        return nullcontext(progress)
    if not progress or sys.stderr is None:
        return nullcontext(SILENT)
    if sys.stderr.isatty():
        return progress_bar(phases, sys.stderr)
    return _progress_lines(phases, sys.stderr)


@contextmanager
def _progress_lines(phases: int, stream: TextIO) -> Iterator[Progress]:
    """Print a line for each phase, and the progress of its passes once per second."""

    def print_line(status: JobStatus) -> None:
        words = [f"{status.number}/{status.phases}", status.phase, *_figures(status)]
        print(*words, sep="  ", file=stream, flush=True)

    tracker = Tracker(phases, on_phase=print_line, on_rows=print_line)
    try:
        yield tracker
    finally:
        tracker.close()


@contextmanager
def progress_bar(phases: int, stream: TextIO) -> Iterator[Progress]:
    """Draw a bar on the terminal of ``stream`` after two seconds."""
    tracker = Tracker(phases)
    console = Console(file=stream)
    spinner = Spinner("dots" if console.encoding.startswith("utf") else "line")
    started = time.monotonic()
    live = Live(
        get_renderable=lambda: _bar(
            tracker.status(), spinner, time.monotonic() - started, width=console.width
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
        # A bar that is just being started must end with its job.
        timer.join()
        live.stop()


def _bar(status: JobStatus, spinner: Spinner, elapsed: float, *, width: int) -> Table:
    """Return one line; a narrow one has no bar and no clock, and cuts the words."""
    words = Text(status.phase, no_wrap=True, overflow="ellipsis")
    cells: list[RenderableType] = [spinner, f"{status.number}/{status.phases}", words]
    if width >= _NARROW:
        cells.append(_gauge(status, width=20 if width >= _WIDE else 10))
    if status.pass_number > 1:
        cells.append(f"pass {status.pass_number}")
    cells += _figures(status)
    if width >= _WIDE or not status.pass_number:
        cells.append(Text(_duration(elapsed), style="dim"))
    line = Table.grid(padding=(0, 1))
    for cell in cells:
        # Only columns that may wrap become narrower in a table.
        line.add_column(no_wrap=cell is not words)
    line.add_row(*cells)
    return line


def _gauge(status: JobStatus, *, width: int) -> ProgressBar:
    if not status.pass_number:
        return ProgressBar(total=None, width=width, pulse=True)
    return ProgressBar(total=1.0, completed=_part(status), width=width)


def _figures(status: JobStatus) -> list[str]:
    """Return the percentage, the speed and the remaining time of the current pass."""
    if not status.pass_number:
        return []
    figures = [f"{math.floor(100 * _part(status))} %"]
    if status.speed is not None:
        figures.append(f"{_amount(status.speed)}rows/s")
    if status.left is not None:
        figures.append(f"{_duration(math.ceil(status.left))} left")
    return figures


def _part(status: JobStatus) -> float:
    return min(status.done / status.total, 1.0) if status.total > 0 else 1.0


def _amount(value: float) -> str:
    """Return two or three digits and a unit: 1.2 M, 45 k, 7.0."""
    unit = 0
    while round(value) >= 1000 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    digits = 1 if round(value, 1) < 10 else 0
    return f"{value:.{digits}f} {_UNITS[unit]}"


def _duration(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}"
