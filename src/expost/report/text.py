"""Documents as terminal text: what commands print and ``str(result)`` returns.

The text holds the overview (verdict, tiles, alerts, next step) and the sections that are brief;
the page and its Markdown hold everything.
"""

from collections.abc import Iterator

from expost.report.document import (
    Alert,
    Block,
    Bullets,
    Code,
    Document,
    Facts,
    Fold,
    Heading,
    Page,
    Section,
    Table,
    Text,
    Tile,
    Widget,
    prose,
)

__all__ = ["render_text"]

_SEVERITY = {"problem": "!", "review": "*", "note": "-"}


def render_text(page: Page | Document) -> str:
    """Return the overview and the brief sections as plain text.

    Parameters
    ----------
    page : Page | Document
        The page, or one document.

    Returns
    -------
    str
        Plain text.
    """
    page = Page(documents=(page,)) if isinstance(page, Document) else page
    return prose("\n".join(_lines(page)), str, str)


def _lines(page: Page) -> Iterator[str]:
    for verdict in page.verdicts:
        yield verdict.text
        if verdict.more:
            yield verdict.more
        yield ""
    yield page.title
    if page.subtitle:
        yield " · ".join(page.subtitle)
    yield from _tiles(page.tiles)
    for section in page.sections:
        if section.brief:
            yield from _section(section)
    yield from _alerts(page.alerts)
    if page.steps:
        yield from ("", "Next")
        for step in page.steps:
            yield f"  {step.text}" + (f"  # {step.purpose}" if step.purpose else "")
    yield from ("", page.audience.meaning)


def _tiles(tiles: tuple[Tile, ...]) -> Iterator[str]:
    if not tiles:
        return
    yield ""
    width = max(len(tile.label) for tile in tiles)
    for tile in tiles:
        value = "; ".join((tile.value, *tile.lines))
        yield f"{tile.label:<{width}}  {value}"


def _alerts(alerts: tuple[Alert, ...]) -> Iterator[str]:
    if not alerts:
        return
    yield from ("", "Alerts")
    for alert in alerts:
        yield f"  {_SEVERITY[alert.severity]} {alert.title}" + (
            f" {alert.text}" if alert.text else ""
        )


def _section(section: Section) -> Iterator[str]:
    yield from ("", section.title)
    for block in section.blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Text(text=text):
            yield text
        case Heading(text=text):
            yield from ("", text)
        case Bullets(items=items):
            yield from (f"- {item}" for item in items)
        case Facts(pairs=pairs):
            width = max((len(name) for name, _ in pairs), default=0)
            yield from (f"  {name:<{width}}  {value}" for name, value in pairs)
        case Code(text=text):
            yield f"  {text}"
        case Table():
            yield from _table(block)
        case Widget(blocks=blocks) | Fold(blocks=blocks):
            for inner in blocks:
                yield from _block(inner)
        case _:
            # A figure is left to the page.
            return


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield table.caption
    titles = tuple(column.title for column in table.columns)
    lines = (titles, *table.cells)
    widths = [max(len(line[at]) for line in lines) for at in range(len(titles))]
    for line in lines:
        cells = (
            cell.rjust(width) if column.numeric else cell.ljust(width)
            for cell, width, column in zip(line, widths, table.columns, strict=True)
        )
        yield "  " + "  ".join(cells).rstrip()
