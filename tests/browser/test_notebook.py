"""Fragments among the cells of a notebook whose own style sheet is in the way."""

import pytest

from expost.report import render_fragment
from report.examples import every_block, hostile

from .test_access import GRAVE

# As strong as that of JupyterLab, and as little in keeping with a report: a dark theme, whatever
# the reader's system says.
STYLE = """
body { background: #111; color: #ddd; font: 13px sans-serif }
.cell { color: #ddd }
.cell td, .cell th, .cell tr { text-align: right; border: none; padding: 0.5em }
.cell tbody tr:nth-child(odd) { background: #000 }
.cell tbody tr:hover { background: #444 }
.cell h2 { font-size: 2em; color: #f99 }
.cell p, .cell li { color: #9f9 }
"""
DOCUMENTS = (every_block, hostile)


def notebook(documents=DOCUMENTS):
    cells = [f'<div class="cell">{render_fragment(make())}</div>' for make in documents]
    own = '<div class="cell"><h2>Mine</h2><p id="mine">text</p><table><tr><td>1</td></tr></table>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A notebook</title>'
        f"<style>{STYLE}</style></head><body><main><h1>Cells</h1>{own}</div>{''.join(cells)}"
        "</main></body></html>"
    )


def looks(page, selector):
    return page.locator(selector).evaluate_all(
        "all => all.map(one => { const style = getComputedStyle(one);"
        " return [style.color, style.backgroundColor, style.fontSize, style.textAlign] })"
    )


@pytest.fixture
def cells(shelf):
    return shelf("notebook", notebook)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_fragment_looks_like_the_report(open_page, cells, scheme):
    page = open_page(cells, scheme=scheme)
    assert page.locator(".expost").count() == len(DOCUMENTS)
    ink, paper = {
        "light": ("rgb(26, 31, 36)", "rgb(245, 246, 248)"),
        "dark": ("rgb(231, 234, 238)", "rgb(18, 22, 26)"),
    }[scheme]
    assert {style[1] for style in looks(page, ".expost")} == {paper}
    for selector in (".expost h2", ".expost tbody td", ".expost section > p:not([class])"):
        styles = looks(page, selector)
        assert styles
        assert {style[0] for style in styles} == {ink}
    # Nothing of the notebook's shines through.
    assert {style[1] for style in looks(page, ".expost tr")} == {"rgba(0, 0, 0, 0)"}
    assert {style[3] for style in looks(page, ".expost tbody th.t")} == {"left"}


def test_a_fragment_changes_nothing_else(open_page, cells, shelf):
    before = open_page(shelf("empty-notebook", lambda: notebook(())))
    after = open_page(cells)
    for selector in ("body", "#mine", "h1", ".cell > h2", ".cell > table td"):
        assert looks(before, selector) == looks(after, selector)[: len(looks(before, selector))]


def test_axe_finds_nothing_grave(axe, cells):
    page = axe.open(cells)
    violations = axe.violations(page) + axe.contrasts(page)
    page.emulate_media(color_scheme="dark")
    violations += axe.contrasts(page)
    assert [line for line in violations if line.startswith(GRAVE)] == []
