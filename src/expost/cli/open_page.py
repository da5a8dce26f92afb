"""Showing a page that was written, and where pages go that nobody named a folder for."""

import sys
import tempfile
import webbrowser
from collections.abc import Mapping
from pathlib import Path

__all__ = ["check_page", "page_folder", "page_lines", "show"]


def show(page: Path) -> None:
    """Open ``page`` in the user's browser; where none opens, say so.

    The result is on the disk by then: whatever a browser does, the job is done.
    """
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


def check_page(out: Path | None, *, force: bool) -> None:
    """Refuse a folder for a page that cannot be written to, before any work."""
    if out is not None:
        from expost.jobs.output import check_page_folder

        check_page_folder(out, force=force)


def page_folder(out: Path | None) -> Path:
    """``out``, else a new folder that its owner alone can look into (mode 0700)."""
    return Path(tempfile.mkdtemp(prefix="expost-")) if out is None else out


def page_lines(files: Mapping[str, Path]) -> list[str]:
    """Where everything is, and the page last; nothing where nothing was written."""
    if not files:
        return []
    lines = ["", "Files", *(f"  {name:<9} {path}" for name, path in files.items())]
    return [*lines, "", f"Report: {files['report'].resolve()}"] if "report" in files else lines
