"""A bar for jobs that take a while, at a terminal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from expost._progress import SILENT, Progress

__all__ = ["progress"]

# A job that is over sooner shows no bar.
PATIENCE = 2.0


@contextmanager
def progress(phases: int, *, quiet: bool) -> Iterator[Progress]:
    """A bar for a job of more than two seconds, at a terminal; silence elsewhere."""
    # Not the console's own word for it: FORCE_COLOR makes that of any file a terminal.
    if quiet or not sys.stderr.isatty():
        yield SILENT
        return
    bar = RichProgress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("starting", total=phases)
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield _Bar(bar, task)
    finally:
        timer.cancel()
        # A bar that is being started this very moment must not outlive its job.
        timer.join()
        bar.stop()


class _Bar:
    """Shows phases."""

    def __init__(self, bar: RichProgress, task: TaskID) -> None:
        self._bar, self._task, self._started = bar, task, 0

    def phase(self, name: str) -> None:
        self._bar.update(self._task, description=name, completed=self._started)
        self._started += 1

    def rows(self, total: int) -> None:
        pass

    def advance(self, rows: int) -> None:
        pass
