"""Every block in every format: nothing is lost, nothing is markup, and the same page twice."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from expost.report.document import (
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
    Verdict,
    Widget,
)
from expost.report.figure import Figure
from expost.report.html import render_fragment, render_html, style_sheet
from expost.report.markdown import render_markdown
from expost.report.stored import parse_json, render_json
from expost.report.text import render_text
from expost.types import Audience

from .conftest import HOSTILE
from .examples import every_block, every_page, hostile

VOID = {"meta", "input", "br", "hr", "img", "link"}


class Parsed(HTMLParser):
    """Elements with their attributes and texts, and whether every element is closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], ["script"]):
            self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts).replace("\N{NO-BREAK SPACE}", " ")

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def texts_of(block):
    """Every text of a block that a reader sees in all formats."""
    match block:
        case Text(text=text) | Heading(text=text):
            return [text]
        case Bullets(items=items):
            return list(items)
        case Facts(pairs=pairs):
            return [text for pair in pairs for text in pair]
        case Code(text=text):
            return [text]
        case Table():
            titles = [column.title for column in block.columns]
            return [block.caption, *titles, *(cell for cells in block.cells for cell in cells)]
        case Figure(caption=caption):
            return [caption]
        case Fold(title=title, blocks=blocks):
            return [title, *(text for inner in blocks for text in texts_of(inner))]
        case Widget(blocks=blocks):
            return [text for inner in blocks for text in texts_of(inner)]


def unescaped(markdown):
    return re.sub(r"\\(.)", r"\1", markdown)


@pytest.mark.parametrize("document", [every_block(), hostile()], ids=["every", "hostile"])
def test_pages_and_markdown_hold_every_text(document):
    page = Parsed(render_html(document)).text
    markdown = unescaped(render_markdown(document))
    for section in document.sections:
        for text in (section.title, *(t for block in section.blocks for t in texts_of(block))):
            assert text in page
            assert text in markdown
    for tile in document.tiles:
        for text in (tile.label, tile.value, *tile.lines):
            assert text in page
            assert text in markdown
            assert text in render_text(document)
    for alert in document.alerts:
        assert f"{alert.title} {alert.text}" in page
    assert document.verdict.text in page
    assert document.steps[0].text in page


def test_a_command_in_a_sentence_is_code_in_every_format():
    sentence = "`expost epsilon --max-posterior` recommends one, `<b>` and `not this`."
    document = replace(
        every_block(),
        verdict=Verdict(text="Too much.", more=sentence),
        sections=(Section(id="s", title="S", blocks=(Text(text=sentence),), brief=True),),
    )
    html, text = render_html(document), render_text(document)
    assert html.count("<code>expost epsilon --max-posterior</code>") == 2
    assert "`&lt;b&gt;` and `not this`" in html
    assert render_markdown(document).count("`expost epsilon --max-posterior` recommends") == 2
    assert r"\`not this\`" in render_markdown(document)
    assert text.count("\nexpost epsilon --max-posterior recommends") == 2
    assert "`not this`" in text


def test_terminal_text_and_fragments_hold_the_brief_sections():
    document = every_block()
    brief, others = [s for s in document.sections if s.brief], document.sections[1:]
    fragment, text = Parsed(render_fragment(document)).text, render_text(document)
    for section in brief:
        for block in section.blocks:
            if not isinstance(block, Figure):
                assert all(part in fragment and part in text for part in texts_of(block))
    for section in others:
        assert section.title not in fragment


def test_a_fragment_shows_a_figure_where_there_is_one():
    document = every_block()
    still = replace(
        document, sections=tuple(replace(each, brief=False) for each in document.sections)
    )
    shown = re.findall(r'data-figure="(\w+)"', render_fragment(still))
    assert shown == ["profile"]
    without = tuple(each for each in still.sections if each.nav in ("Find a row", "Details"))
    assert "<figure" not in render_fragment(replace(still, sections=without))


def test_tables_have_one_column_count_and_the_same_cells_in_all_formats():
    document = every_block()
    table = next(b for s in document.sections for b in s.blocks if isinstance(b, Table))
    page = render_html(document).replace("\N{NO-BREAK SPACE}", " ")
    head, *lines = re.findall(r"<tr>(.*?)</tr>", page)[: 1 + len(table.cells)]
    shown = [tuple(re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line)) for line in (head, *lines)]
    assert shown == [tuple(column.title for column in table.columns), *table.cells]
    markdown = [line for line in render_markdown(document).splitlines() if line.startswith("| row")]
    assert [
        tuple(unescaped(cell) for cell in line.strip("| ").split(" | ")) for line in markdown[1:]
    ] == list(table.cells)


def test_hostile_text_makes_no_element():
    honest, page = Parsed(render_html(every_block())), Parsed(render_html(hostile()))
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in honest.elements}
    names = {name for _, attributes in page.elements for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("style", "src")}
    assert "<script>alert" not in render_fragment(hostile())
    assert "\u202e" in HOSTILE  # The renderers leave printable() to the documents.


@pytest.mark.parametrize("document", [every_block(), hostile()], ids=["every", "hostile"])
def test_ids_are_unique_and_all_references_lead_somewhere(document):
    for text in (render_html(document), render_fragment(document)):
        parsed = Parsed(text)
        ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        references = []
        for _, attributes in parsed.elements:
            for name in ("aria-labelledby", "aria-describedby", "for"):
                references += (attributes.get(name) or "").split()
            references += re.findall(r"url\(#(.*?)\)", attributes.get("clip-path") or "")
            references += [link[1:] for link in [attributes.get("href") or ""] if link]
        assert set(references) <= set(ids)


def test_headings_do_not_skip_levels():
    tags = [tag for tag, _ in Parsed(render_html(every_page())).elements]
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_policy_allows_the_pages_own_style_and_script_alone():
    text = render_html(every_page())
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (code,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)

    def digest(content):
        return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest(style)}'; script-src"
        f" 'sha256-{digest(code)}'; base-uri 'none'; form-action 'none'"
    )
    assert not [a for _, a in Parsed(text).elements if "style" in a]
    assert not re.findall(r"(?:src|href)=\"(?!#)", text)


def test_a_page_without_widgets_has_no_script():
    section = Section(id="a", title="A", blocks=(Text(text="b"),), nav="Exposure")
    text = render_html(Document(kind="k", title="t", audience=Audience.PUBLIC, sections=(section,)))
    assert "<script" not in text
    assert "script-src" not in text


def test_data_cannot_end_its_block_and_is_read_back():
    document = hostile()
    text = render_html(document)
    (data,) = re.findall(
        r'<script type="application/json" id="expost-data">(.*?)</script>', text, re.DOTALL
    )
    assert not set("<>&\u2028\u2029") & set(data)
    widget = document.sections[0].blocks[-1]
    assert json.loads(data) == {"hostile": {"search": dict(widget.data)}}
    infinite = replace(widget, data={**widget.data, "far": math.inf})
    section = replace(document.sections[0], blocks=(infinite,))
    with pytest.raises(ValueError, match="JSON"):
        render_html(replace(document, sections=(section,)))


def test_the_same_page_gives_the_same_bytes_also_after_storing():
    page = every_page()
    assert render_html(page) == render_html(page)
    assert render_html(parse_json(render_json(page))) == render_html(page)
    assert render_fragment(every_block()) == render_fragment(every_block())


def test_sections_of_several_documents_stand_in_the_order_of_the_navigation():
    other = replace(every_block(), kind="other", title="Other", tiles=(), alerts=())
    text = render_html(Page(documents=(other, every_block())))
    places = [
        text.index(f'<h2 id="{key}"') for key in ("exposure", "exposure-2", "groups", "search")
    ]
    assert places == sorted(places)
    (data,) = re.findall(r'id="expost-data">(.*?)</script>', text, re.DOTALL)
    # Each slider moves the charts of its own document.
    assert set(json.loads(data)) == {"other", "profile"}


def test_fragments_have_no_script_and_share_no_ids():
    first, second = render_fragment(every_block()), render_fragment(hostile())
    assert "<script" not in first
    ids = [set(re.findall(r' id="([^"]*)"', text)) for text in (first, second)]
    assert all(ids)
    assert not ids[0] & ids[1]
    assert Audience.CURATOR_ONLY.meaning.partition(":")[0] in first


def test_the_style_sheet_styles_nothing_but_reports():
    style = re.sub(r"/\*.*?\*/", "", style_sheet(), flags=re.DOTALL)
    rules, depth, start = [], 0, 0
    for position, character in enumerate(style):
        if character == "{":
            if depth == 0:
                rules.append(style[start:position].strip())
            depth += 1
        elif character == "}":
            depth -= 1
            start = position + 1
            assert depth >= 0
    assert depth == 0
    root = ":root:has(> body.expost)"
    media = {"@media print", "@media screen and (prefers-color-scheme: dark)"}
    assert all(rule.startswith(".expost") for rule in set(rules) - media - {root})
