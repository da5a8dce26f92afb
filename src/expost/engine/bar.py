"""How far a job is, in one line: a bar at a terminal, lines of text elsewhere.

The command line and the verbs of Python show the same. rich is imported with this module, and the
module where something is shown.
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
from expost.engine.pace import Moment, Tracker

__all__ = ["drawn", "shown"]

# A job that is over sooner shows no bar.
PATIENCE = 2.0
# From these widths of the terminal on there is room for a short bar, and for everything.
_NARROW, _WIDE = 60, 100
_UNITS = ("", "k ", "M ", "G ", "T ")


def shown(progress: bool | Progress, phases: int) -> AbstractContextManager[Progress]:
    """Return who listens to a job of so many phases that was started from Python.

    ``progress``  True shows how far it is on stderr; a :class:`Progress` listens itself.
    """
    if not isinstance(progress, bool):
        return nullcontext(progress)
    if not progress or sys.stderr is None:
        return nullcontext(SILENT)
    return drawn(phases, sys.stderr) if sys.stderr.isatty() else _printed(phases, sys.stderr)


@contextmanager
def _printed(phases: int, stream: TextIO) -> Iterator[Progress]:
    """Print a line for each phase, and once a second how far it is."""

    def line(moment: Moment) -> None:
        words = [f"{moment.number}/{moment.of}", moment.phase, *_figures(moment)]
        print(*words, sep="  ", file=stream, flush=True)

    tracker = Tracker(phases, on_phase=line, on_rows=line)
    try:
        yield tracker
    finally:
        tracker.close()


@contextmanager
def drawn(phases: int, stream: TextIO) -> Iterator[Progress]:
    """Draw a bar at the terminal behind ``stream``, once the job has taken two seconds."""
    tracker = Tracker(phases)
    console = Console(file=stream)
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
