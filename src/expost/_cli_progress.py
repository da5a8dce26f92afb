"""A bar for jobs that take a while, at a terminal."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["progress"]

# A job that is over sooner shows no bar.
PATIENCE = 2.0


@contextmanager
def progress(phases: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar for a job of more than two seconds, at a terminal; silence elsewhere."""
    # Not the console's own word for it: FORCE_COLOR makes that of any file a terminal.
    if quiet or not sys.stderr.isatty():
        yield lambda name: None
        return
    bar = Progress(
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
    started = 0

    def phase(name: str) -> None:
        nonlocal started
        bar.update(task, description=name, completed=started)
        started += 1

    try:
        yield phase
    finally:
        timer.cancel()
        # A bar that is being started this very moment must not outlive its job.
        timer.join()
        bar.stop()
