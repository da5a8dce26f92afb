"""Documents as Markdown, for tickets and logs; figures are left to the page."""

import re
from collections.abc import Iterator

from expost.report.document import (
    Block,
    Bullets,
    Code,
    Document,
    Facts,
    Fold,
    Heading,
    Page,
    Table,
    Text,
    Widget,
    prose,
    table,
)

__all__ = ["render_markdown"]

# Characters with a meaning in Markdown or HTML at any position.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|!~&$@])")
# A line that starts like a list.
_START = re.compile(r"^(\s*\d*)([-+=.)])(?=\s|$)")


def render_markdown(page: Page | Document) -> str:
    """Return the whole page; the same page gives the same text.

    Parameters
    ----------
    page : Page | Document
        The page, or one document.

    Returns
    -------
    str
        Markdown.
    """
    page = Page(documents=(page,)) if isinstance(page, Document) else page
    return "\n".join(_lines(page)).rstrip("\n") + "\n"


def _lines(page: Page) -> Iterator[str]:
    yield from (f"> **{escaped(page.audience.meaning)}**", "", f"# {escaped(page.title)}", "")
    for line in (" · ".join(page.subtitle), *page.sources):
        if line:
            yield from (escaped(line), "")
    for verdict in page.verdicts:
        more = f" {escaped(verdict.more)}" if verdict.more else ""
        yield from (f"**{escaped(verdict.text)}**{more}", "")
    if page.tiles:
        tiles = table(
            page.tiles,
            ("", lambda tile: tile.label, str),
            ("", lambda tile: tile.value, str),
            ("", lambda tile: "; ".join(tile.lines), str),
        )
        yield from _block(tiles)
    if page.alerts:
        yield from ("## Alerts", "")
        for alert in page.alerts:
            text = f" {escaped(alert.text)}" if alert.text else ""
            yield f"- {alert.severity}: **{escaped(alert.title)}**{text}"
        yield ""
    if page.steps:
        yield from ("## What to do next", "")
        for step in page.steps:
            yield from _block(step)
    for section in page.sections:
        yield from (f"## {escaped(section.title)}", "")
        for block in section.blocks:
            yield from _block(block)
    if page.settings:
        yield from ("## Settings", "")
        yield from _block(
            table(
                page.settings,
                ("setting", lambda s: s.name, str),
                ("value", lambda s: s.value, str),
                ("origin", lambda s: s.origin.value, str),
            )
        )
    if page.glossary:
        yield from ("## Terms", "")
        yield from _block(Facts(pairs=page.glossary))
    yield escaped(", ".join(f"{name} {version}" for name, version in page.versions))


def _block(block: Block) -> Iterator[str]:
    match block:
        case Text(text=text):
            yield from (escaped(text), "")
        case Heading(text=text):
            yield from (f"### {escaped(text)}", "")
        case Bullets(items=items):
            yield from (*(f"- {escaped(item)}" for item in items), "")
        case Facts(pairs=pairs):
            yield from (*(f"- {escaped(name)}: {escaped(value)}" for name, value in pairs), "")
        case Code(text=text, purpose=purpose):
            if purpose:
                yield from (f"{escaped(purpose)}:", "")
            yield from (*(f"    {line}" for line in text.splitlines()), "")
        case Table():
            yield from _table(block)
        case Fold(title=title, blocks=blocks):
            yield from (f"### {escaped(title)}", "")
            for inner in blocks:
                yield from _block(inner)
        case Widget(blocks=blocks):
            for inner in blocks:
                yield from _block(inner)
        case _:
            if block.caption:
                yield from (escaped(block.caption), "")


def _table(block: Table) -> Iterator[str]:
    if block.caption:
        yield from (escaped(block.caption), "")
    yield "| " + " | ".join(escaped(column.title) for column in block.columns) + " |"
    yield "|" + "".join(" ---: |" if column.numeric else " --- |" for column in block.columns)
    yield from ("| " + " | ".join(map(escaped, cells)) + " |" for cells in block.cells)
    yield ""


def escaped(text: str) -> str:
    """Return text in which nothing is markup but the commands."""
    shown = prose(text, lambda words: _MARKUP.sub(r"\\\1", words), "`{}`".format)
    return _START.sub(r"\1\\\2", shown)
