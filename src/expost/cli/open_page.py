"""Opening a page in the browser."""

import sys
from pathlib import Path

__all__ = ["show"]


def show(page: Path) -> None:
    """Open ``page`` in the user's browser, or report that none opens.

    The page is on the disk by then, so a failing browser does not fail the job.
    """
    # Imported here: few commands open a page, and its import takes as long as typer's.
    import webbrowser

    # The printed text comes before the output of a browser in the terminal.
    sys.stdout.flush()
    path = page.resolve()
    try:
        opened = webbrowser.open(path.as_uri())
    # A browser may fail in any way.
    except Exception:  # noqa: BLE001 (see above)
        opened = False
    if not opened:
        print(f"No browser could be opened. The report is in {path}", file=sys.stderr)
