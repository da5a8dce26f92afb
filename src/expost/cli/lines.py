"""What every command with a report prints at its end."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from expost.report import Summary

__all__ = ["choice_lines", "end_lines", "print_json"]

# A longer one is cut on the screen; the report has the whole.
_LONGEST_NOTICE = 400


def print_json(summary: "Summary", files: dict[str, Path], **more: Sequence[str] | None) -> None:
    """What a program reads at the end of a run."""
    from expost.report import render_json

    content = {
        "files": {name: str(path) for name, path in files.items()},
        **more,
        "summary": json.loads(render_json(summary)),
    }
    print(json.dumps(content, indent=1, allow_nan=False))


def choice_lines(summary: "Summary") -> list[str]:
    """Every choice and where it came from."""
    width = max(len(choice.name) for choice in summary.choices)
    return [
        "",
        "Choices",
        *(
            f"  {choice.name:<{width}}  {choice.value}  ({choice.origin.value})"
            for choice in summary.choices
        ),
    ]


def end_lines(summary: "Summary", files: dict[str, Path], onward: Sequence[str] = ()) -> list[str]:
    """What to know, where everything is, what to do next, and the report last."""
    from expost.groups.exposure import printable

    lines = []
    if summary.notices:
        lines += ["", "Notices"]
        lines += [f"  {printable(notice, _LONGEST_NOTICE)}" for notice in summary.notices]
    lines += ["", "Files", *(f"  {name:<9} {path}" for name, path in files.items())]
    if onward:
        lines += ["", *onward]
    return [*lines, "", f"Report: {files['report'].resolve()}"]
