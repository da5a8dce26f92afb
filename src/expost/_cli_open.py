"""Showing a page that was written, and where pages go that nobody named a folder for."""

import sys
import tempfile
import webbrowser
from pathlib import Path

__all__ = ["page_folder", "show"]


def show(page: Path, wanted: bool) -> None:
    """Open ``page`` in the user's browser, if that is ``wanted``; where none opens, say so.

    The result is on the disk by then: whatever a browser does, the job is done.
    """
    if not wanted:
        return
    # What was printed stands above whatever a browser in the terminal shows.
    sys.stdout.flush()
    path = page.resolve()
    try:
        opened = webbrowser.open(path.as_uri())
    # A browser may fail in any way.
    except Exception:  # noqa: BLE001 (see above)
        opened = False
    if not opened:
        print(f"No browser could be opened. The report is in {path}", file=sys.stderr)


def page_folder(out: Path | None, wanted: bool) -> Path | None:
    """Where a command writes that need not write: ``out``, else a folder of its own for --open.

    That folder is new and readable by its owner alone (mode 0700).
    """
    if out is None and wanted:
        return Path(tempfile.mkdtemp(prefix="expost-"))
    return out
