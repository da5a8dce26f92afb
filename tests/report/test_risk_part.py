"""What a promise allows, on a page: the figures of the answer, rounded to the safe side."""

import dataclasses
import html
import math
import re
from functools import cache

import numpy as np
import pytest

from expost import identifiability
from expost.report import collect, parse_json, render_html, render_json, render_markdown
from expost.report.risk_chart import risk_panels
from expost.report.wording import sure_text, symbols, upper
from expost.types import Audience

from .conftest import HOSTILE
from .pages import Page, check
from .test_epsilon_page import read_axis
from .test_html import coordinates
from .test_texts import unescaped

ASKED = {
    "promise": {"epsilon": 1.0, "delta": 1e-5},
    "pure": {"epsilon": 0.5},
    "goal": {"belief": 0.75, "delta": 1e-5},
    "many": {"epsilon": 0.5, "delta": 1e-6, "releases": 10},
    "noise": {"mu": 0.5},
    "suspects": {"one_in": 11, "prior": 0.01},
    "unbounded": {"epsilon": 800.0},
}


@cache
def answer(kind):
    return identifiability(**ASKED[kind])


@cache
def summary_of(kind):
    return collect(answer(kind))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def spaced(text):
    """As a block of a page reads."""
    return " ".join(text.split())


def plain(text):
    """The number that a text shows."""
    signs = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    text = re.sub(r"\s", "", text.replace(",", "").replace("<", "")).removesuffix("%")
    mantissa, times, power = text.partition("×10")
    if not times and text.startswith("10") and text != text.translate(signs):
        return 10.0 ** int(text[2:].translate(signs))
    return float(mantissa) * (10.0 ** int(power.translate(signs)) if times else 1.0)


@pytest.mark.parametrize("kind", ASKED)
def test_every_figure_of_the_answer_is_on_the_page(kind):
    found, summary = answer(kind), summary_of(kind)
    part, page, text = summary.risk, Page(render_html(summary)), render_markdown(summary)
    check(page)
    assert summary.audience is Audience.PASS
    assert summary.public() == summary
    assert page.sections.count("risk") == 1
    assert [figure.name for figure in part.figures] == [figure.name for figure in found.figures]
    keys = [route.key for route in found.routes]
    for mine, theirs in zip(part.figures, found.figures, strict=True):
        assert mine.values == tuple(theirs.by.get(key) for key in keys)
        for key, shown in zip(keys, mine.shown, strict=True):
            assert (shown == "–") == (key not in theirs.by)
            assert spaced(shown) in page.blocks
        cells = " | ".join(mine.shown)
        assert f"| {mine.label} | {cells} |" in unescaped(text)
    for sentence in found.sentences:
        told = symbols(sentence)
        # Each stands on the page once, alone or after what was asked for.
        assert sum(spaced(told) in block for block in page.blocks) == 1
        assert told in unescaped(text)
    for route in found.routes:
        assert page.blocks.count(spaced(symbols(route.note))) == 1
    for notice in found.notices:
        assert spaced(symbols(notice)) in page.blocks
    assert parse_json(render_json(summary)) == summary


def test_the_figures_by_hand():
    part = summary_of("pure").risk
    by_name = {figure.name: figure for figure in part.figures}
    place = [route.name for route in part.routes].index("any mechanism")
    for name, exact in (
        ("belief", 100 * sigmoid(0.5)),
        ("advantage", math.tanh(0.25)),
        ("true_positive_rate", math.exp(0.5)),
    ):
        shown = plain(by_name[name].shown[place])
        # An upper bound stays one when it is shown, and within a unit of its last digit.
        assert exact <= shown <= 1.05 * exact
    assert plain(by_name["one_in"].shown[place]) <= 1 / sigmoid(0.5)
    assert "2.72 times" in " ".join(summary_of("promise").lead(summary_of("promise").risk))


def test_a_goal_says_what_keeps_it():
    summary = summary_of("goal")
    first, second, third = summary.answer
    assert first == (
        "Asked for: a belief of at most 75\N{NO-BREAK SPACE}%. Any mechanism with ε = 0.9932 at"
        " δ = 10⁻⁵ keeps it."
    )
    assert "at most 75.0\N{NO-BREAK SPACE}% sure" in second
    assert third.startswith("Release with that much noise")
    assert any("3.996 times" in text for text in summary.lead(summary.risk))
    assert summary.title == "What keeps a belief of at most 75\N{NO-BREAK SPACE}%"
    assert summary.risk.heading == "What keeps the goal"
    other = summary_of("promise")
    assert other.title == "What is allowed by ε = 1, δ = 10⁻⁵"
    assert other.answer[0] == "Promised to any row of any data: ε = 1, δ = 10⁻⁵."
    # Without a belief the advantage is what is told.
    assert "guesses right" in summary_of("noise").answer[1]


@pytest.mark.parametrize("kind", ["promise", "pure", "goal", "suspects"])
def test_curves_are_those_of_figure_4_2_and_drawn_where_the_ticks_say(kind):
    part = summary_of(kind).risk
    found = answer(kind)
    curves = found.curves()
    pure = part.curves[-1]
    odds = found.prior / (1 - found.prior)
    for point in pure.points:
        likely = odds * math.exp(point.epsilon)
        assert point.belief == pytest.approx(likely / (1 + likely), rel=1e-9)
        assert point.advantage == pytest.approx(math.tanh(point.epsilon / 2), rel=1e-9)
    assert len(part.curves) == len(curves.deltas) + 2
    assert sum(curve.asked for curve in part.curves) == 1
    assert next(curve for curve in part.curves if curve.asked).delta == found.delta
    for panel, name in zip(risk_panels(part), ("belief", "advantage"), strict=True):
        x, y = read_axis(panel.x_ticks, log=True), read_axis(panel.y_ticks, log=False)
        drawn = [c for c in part.curves if getattr(c.points[0], name) is not None]
        assert [line.name for line in panel.lines] == [curve.name for curve in drawn]
        assert len({line.style for line in panel.lines}) == len(panel.lines)
        for line, curve in zip(panel.lines, drawn, strict=True):
            places = coordinates(line.points)
            expected = np.array([(p.epsilon, getattr(p, name)) for p in curve.points])
            np.testing.assert_allclose(x(places[:, 0]), expected[:, 0], rtol=0.02)
            np.testing.assert_allclose(y(places[:, 1]), expected[:, 1], atol=0.01)
        (mark,) = panel.marks
        assert x(mark.at) == pytest.approx(found.epsilon, rel=0.02)


@pytest.mark.parametrize("kind", ["noise", "unbounded"])
def test_there_is_no_chart_without_a_finite_epsilon_to_draw_it_around(kind):
    part = summary_of(kind).risk
    assert bool(part.curves) == (part.epsilon is not None)
    assert bool(risk_panels(part)) == bool(part.curves)


def test_several_releases_are_added_up():
    found, summary = answer("many"), summary_of("many")
    part, page = summary.risk, Page(render_html(summary))
    assert "Several releases" in page.blocks
    assert "## Several releases" in render_markdown(summary)
    for way, row in zip(part.ways, found.comparison.rows, strict=True):
        assert (way.epsilon, way.belief, way.advantage) == (row.epsilon, row.belief, row.advantage)
        assert row.epsilon * (1 - 1e-12) <= plain(way.epsilon_text) <= 1.001 * row.epsilon
        assert 100 * row.belief * (1 - 1e-12) <= plain(way.belief_text)
        assert spaced(way.epsilon_text) in page.blocks
    assert not summary_of("promise").risk.ways
    # What is all but certain does not read as certain.
    sure = dataclasses.replace(part.ways[0], belief=1.0, loss=90.0, advantage=1.0, epsilon=90.0)
    assert "<" in sure.belief_text
    assert "<" in sure.advantage_text
    told = dataclasses.replace(sure, loss=math.inf, epsilon=math.inf)
    assert (plain(told.belief_text), told.advantage_text, told.epsilon_text) == (100, "1", "∞")


@pytest.mark.parametrize("name", [HOSTILE, "<script>alert(1)</script>"])
def test_hostile_text_is_text(name):
    found = answer("many")
    routes = tuple(dataclasses.replace(one, name=name, note=name) for one in found.routes)
    figures = tuple(dataclasses.replace(one, label=name, sentence=name) for one in found.figures)
    found = dataclasses.replace(
        found, question=name, routes=routes, figures=figures, notices=(name, "{{ 7 * 7 }}")
    )
    summary = collect(found, source=name, versions={name: name})
    source = render_html(summary)
    check(Page(source))
    assert html.escape("<script>alert(") in source
    assert "{{ 7 * 7 }}" in source
    assert not re.search(r"(?<!\\)<(?!\s)", render_markdown(summary))
    assert parse_json(render_json(summary)).risk == summary.risk


def test_a_bound_that_is_shown_is_still_a_bound():
    rng = np.random.default_rng(0)
    for value in np.exp(rng.uniform(-40, 20, 300)).tolist():
        shown = plain(upper(value))
        assert value * (1 - 1e-12) <= shown <= 1.0101 * value
    assert (upper(0.0), upper(math.inf), upper(1e-5)) == ("0", "∞", "10⁻⁵")
    for odds in rng.uniform(-12, 12, 300).tolist():
        assert plain(sure_text(odds)) >= 100 * sigmoid(odds) * (1 - 1e-12)
        assert plain(sure_text(odds)) < 100
    assert sure_text(math.inf) == "100\N{NO-BREAK SPACE}%"
    assert "<" in sure_text(700.0)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("epsilon = 1, delta = 1e-05", "ε = 1, δ = 10⁻⁵"),
        ("sigma / sensitivity, mu of each", "σ / sensitivity, μ of each"),
        ("expost risk --epsilon 1 --delta 1", "expost risk --epsilon 1 --delta 1"),
        ("epsilon_each, epsilon=2, my.delta", "epsilon_each, epsilon=2, my.delta"),
        ("2.5e-07 of 1e+12", "2.5\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}10⁻⁷ of 10¹²"),
        ("deltas, formula, 0x1e-05, a1e-5", "deltas, formula, 0x1e-05, a1e-5"),
        ("50 % of 7 %", "50\N{NO-BREAK SPACE}% of 7\N{NO-BREAK SPACE}%"),
    ],
)
def test_symbols_are_written_as_a_page_does(text, written):
    assert symbols(text) == written
