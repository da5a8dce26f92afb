"""Pages as JSON: read again exactly, and refused where they were edited."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.errors import InvalidInput
from expost.files.sealed import checksum
from expost.report import parse_json, render_json
from expost.report.document import (
    Bullets,
    Code,
    Document,
    Facts,
    Fold,
    Heading,
    Page,
    Section,
    Text,
    Tile,
    Widget,
    one_line,
    table,
)
from expost.report.figure import Axis, Band, Figure, Line, Panel, Rule
from expost.types import Audience

# Every text of a document is printable, and on one line.
text = st.text(max_size=20).map(one_line)
finite = st.floats(allow_nan=False)


def example(words="a", values=(1.0, math.inf)):
    points = np.linspace(0, 1, len(values))
    panel = Panel(
        title=words,
        x=Axis(label=words, low=0.0, high=1.0),
        y=Axis(label=words, low=0.0, high=1.0, format="percent"),
        lines=(Line(name=words, x=points, y=values),),
        bands=(Band(name=words, x=points, low=values, high=values),),
        rules=(Rule(name=words, at=0.5, to=None),),
    )
    blocks = (
        Text(text=words, small=True),
        Heading(text=words),
        Bullets(items=(words,)),
        Facts(pairs=((words, words),)),
        Code(text=words),
        table(values, (words, lambda value: value, repr), ("none", lambda value: None, str)),
        Figure(key="f", description=words, panels=(panel,)),
        Widget(name="search", data={"keys": [words], "n": 1}, blocks=(Text(text=words),)),
        Fold(title=words, blocks=(Text(text=words),)),
    )
    return Document(
        kind="profile",
        title=words,
        audience=Audience.CURATOR_ONLY,
        tiles=(Tile(label=words, value=words, people=3),),
        sections=(Section(id="s", title=words, blocks=blocks, nav="Exposure"),),
        facts={"epsilon": 1.0, "rows": 3, "model": words, "none": None},
    )


@settings(max_examples=50)
@given(words=text, values=st.lists(finite, min_size=1, max_size=5))
def test_what_is_stored_is_read_again(words, values):
    stored = render_json(example(words, tuple(values)))
    page = parse_json(stored)
    assert render_json(page) == stored
    figure = page.documents[0].figures["f"]
    assert list(figure.panels[0].lines[0].y) == values


def test_infinite_values_are_numbers_again():
    document = dataclasses.replace(example(), facts={"epsilon": math.inf, "delta": -math.inf})
    again = parse_json(render_json(document)).documents[0]
    assert again.facts == {"epsilon": math.inf, "delta": -math.inf}
    (rows,) = (block for block in again.sections[0].blocks if hasattr(block, "cells"))
    assert [row[0] for row in rows.values] == [1.0, math.inf]


def test_an_edited_page_is_refused():
    stored = render_json(example())
    for old, new in (('"a"', '"b"'), ('"curator-only"', '"public"'), ("1.0", "2.0")):
        assert old in stored
        with pytest.raises(InvalidInput, match="checksum"):
            parse_json(stored.replace(old, new))


@pytest.mark.parametrize(
    "edit",
    [
        lambda page: page.update(documents=[]),
        lambda page: page["documents"][0].update(audience="public"),
        lambda page: page["documents"][0].update(more=1),
        lambda page: page["documents"][0]["sections"][0].update(nav="Elsewhere"),
        lambda page: page["documents"][0]["sections"][0]["blocks"][0].update(type="Verdict"),
        lambda page: page["documents"][0].update(sections=3),
    ],
)
def test_a_page_that_is_none_is_refused_though_its_checksum_is_right(edit):
    value = json.loads(render_json(example()))
    del value["sha256"]
    edit(value["page"])
    with pytest.raises(InvalidInput):
        parse_json(json.dumps({**value, "sha256": checksum(value)}))


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"null", b"\xff", "[" * 100_000, "NaN"])
def test_what_is_no_page_is_refused(content):
    with pytest.raises(InvalidInput):
        parse_json(content)


def test_what_is_not_a_number_is_not_stored():
    with pytest.raises(ArithmeticError):
        render_json(example(values=(math.nan,)))


def test_two_documents_of_one_kind_are_no_page():
    with pytest.raises(InvalidInput, match="two results of the kind 'profile'"):
        Page(documents=(example(), example()))
