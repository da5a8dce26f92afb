"""Markdown, piece by piece: text from outside that stays text, headings and tables."""

import re
from collections.abc import Callable, Sequence

from expost.groups.exposure import printable
from expost.report.wording import figure

__all__ = ["escaped", "or_unknown", "section", "table"]

# What could begin markup, a tag, an entity, a link or a table cell anywhere in a line.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|!~&$@])")
# Bare addresses become links by themselves.
_ADDRESS = re.compile(r"(://|www\.)", re.IGNORECASE)
_LONGEST = 2000


def section(heading: str, body: Sequence[str]) -> list[str]:
    """A heading and its lines."""
    return [f"## {heading}", "", *body, ""]


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no link."""
    marked = _MARKUP.sub(r"\\\1", printable(text, _LONGEST))
    return _ADDRESS.sub(lambda found: rf"{found[0][:-1]}\{found[0][-1]}", marked)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; cells from outside must be escaped."""
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def or_unknown(value: float | None, form: Callable[[float], str] = figure) -> str:
    """A figure, where it is known."""
    return "unknown" if value is None else form(value)
