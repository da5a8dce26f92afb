"""The output of commands that write a report."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expost.jobs.requests import Request
    from expost.report import Page

__all__ = ["finished_lines", "page_json", "page_lines", "print_json"]


def print_json(
    request: "Request",
    files: Mapping[str, Path],
    public: Mapping[str, Any],
    curator: Callable[[], Mapping[str, Any]],
) -> None:
    """Print JSON: the ``public`` figures, with --json-curator all of them.

    Standard output may end up in build logs, so curator-only figures must be requested.
    """
    private = curator() if getattr(request, "curator_json", False) else {}
    content = {"files": {name: str(path) for name, path in files.items()}, **public, **private}
    print(json.dumps(content, indent=1, allow_nan=False))


def page_json(page: "Page") -> dict[str, Any]:
    """Return the figures of a page."""
    from expost.report import render_json

    return {"summary": json.loads(render_json(page))}


def finished_lines(page: "Page", files: dict[str, Path]) -> list[str]:
    """Return the overview of the page, where every file is, and the report last."""
    from expost.report import render_text

    return [
        render_text(page),
        "",
        "Files",
        *(f"  {name:<9} {path}" for name, path in files.items()),
        "",
        f"Report: {files['report'].resolve()}",
    ]


def page_lines(files: Mapping[str, Path]) -> list[str]:
    """Return the paths of all files, and the page last; nothing if nothing was written."""
    if not files:
        return []
    lines = ["", "Files", *(f"  {name:<9} {path}" for name, path in files.items())]
    return [*lines, "", f"Report: {files['report'].resolve()}"] if "report" in files else lines
