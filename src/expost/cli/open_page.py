"""Show a page that was written."""

import sys
import webbrowser
from pathlib import Path

__all__ = ["show"]


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
