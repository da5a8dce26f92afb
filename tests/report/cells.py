"""Cells of a document's tables, held against the values behind them."""

import math
from decimal import Decimal

from expost.report import parse_json, render_json, render_markdown, render_text
from expost.report.document import Fold, Page, Table, Widget
from expost.types import Audience
from read_figures import read


def blocks(document):
    """Every block, also those inside of others."""

    def flat(inner):
        for block in inner:
            yield block
            if isinstance(block, Fold | Widget):
                yield from flat(block.blocks)

    for section in document.sections:
        yield from flat(section.blocks)


def tables(document):
    return [block for block in blocks(document) if isinstance(block, Table)]


def section(document, name):
    return next(each for each in document.sections if each.id == name)


def table_of(document, name):
    """The first table of a section."""
    return next(block for block in section(document, name).blocks if isinstance(block, Table))


def tile(document, label):
    return next(each for each in document.tiles if each.label == label)


def column(table, title):
    """The cells and the values of the one column with this title."""
    (index,) = (at for at, each in enumerate(table.columns) if each.title == title)
    return [row[index] for row in table.cells], [row[index] for row in table.values]


def rounded_up(shown, value, digits=3):
    """Whether a figure is an upper bound of the value, as close as its digits allow."""
    if math.isinf(value):
        return shown == "∞"
    if shown == "0":
        return value == 0
    exact, number = Decimal(repr(float(value))), read(shown)
    return 0 <= number - exact <= abs(exact) * Decimal(10) ** (1 - digits)


def rounded_down(shown, value, digits=3):
    exact, number = Decimal(repr(float(value))), read(shown)
    return 0 <= exact - number <= abs(exact) * Decimal(10) ** (1 - digits)


def certainty_up(shown, exposure):
    """Whether a percentage is an upper bound of the certainty at an exposure."""
    if shown == "< 100 %":
        return math.exp(-exposure) < 1e-6
    if math.isinf(exposure):
        return shown == "100 %"
    exact = 1 / (1 + (-Decimal(repr(float(exposure)))).exp())
    return 0 <= read(shown) - exact <= Decimal("0.001")


def check_document(document):
    """What holds of every document: it can be rendered, stored and read again."""
    page = Page(documents=(document,))
    assert parse_json(render_json(page)) == page
    text = render_text(page)
    assert document.title in text
    assert document.audience.meaning in text
    assert render_markdown(page) == render_markdown(document)
    assert len(document.tiles) <= 4
    assert len(document.steps) <= 2
    assert isinstance(document.audience, Audience)
    identifiers = [section.id for section in document.sections]
    assert len(set(identifiers)) == len(identifiers)
    for table in tables(document):
        assert all(len(row) == len(table.columns) for row in (*table.cells, *table.values))
    for figure in document.figures.values():
        for panel in figure.panels:
            assert panel.x.low < panel.x.high
            assert panel.y.low < panel.y.high
            for line in panel.lines:
                assert len(line.x) == len(line.y)
                assert all(map(math.isfinite, (*line.x, *line.y)))
    return page
