"""The page of an audit: its figures are those of the summary, and nothing else is on it."""

import base64
import dataclasses
import hashlib
import html
import re
from itertools import pairwise

import numpy as np
import pytest

from expost._disparity import disparity
from expost.attacks.roc import figures
from expost.report import (
    Choice,
    Origin,
    collect_audit,
    render_audit_html,
    render_audit_markdown,
    render_json,
)
from expost.report.audit_chart import roc_chart, roc_floor, scatter_chart

from .audits import KINDS, MEMBERS, OTHERS, audited
from .conftest import HOSTILE
from .test_epsilon_page import read_axis
from .test_html import TAGS, Page, coordinates

AUDIT_TAGS = TAGS | {"strong"}


def summary_of(kind="promised", **options):
    chosen = [Choice(name="seed", value="3", origin=Origin.GIVEN)]
    return collect_audit(audited(kind), choices=chosen, **options)


@pytest.fixture(scope="module")
def page():
    return Page(render_audit_html(summary_of(source="data.csv", made="2026-11-16")))


# What a reader sees ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_whole_whatever_was_found(kind):
    summary = summary_of(kind)
    page = Page(render_audit_html(summary))
    assert set(page.tags) <= AUDIT_TAGS
    text = render_audit_markdown(summary)
    for heading in (
        "The attacks in numbers",
        "Which rows are vulnerable",
        "What is proved about ε",
        "For a data-protection impact assessment",
        "What to know first",
        "Choices made",
    ):
        assert heading in page.text
        assert f"## {heading}" in text
    for heading in ("The answer", "How many members the attacks find", "How to read this page"):
        assert heading in page.text
    for word in ("nan", "None", "inf", "Undefined"):
        assert word not in page.text.split()
        assert word not in text.split()
    assert ("Whom it hits" in page.text) == (kind != "bare")
    assert ("Beside what theory says" in page.text) == (summary.measure is not None)
    assert page.text.count("This is an attack, not a guarantee") == 2
    assert "**This is an attack, not a guarantee" in text
    assert text.startswith("> **FAIL**")
    for sentence in summary.answer:
        assert " ".join(sentence.split()) in page.text
    refuted = "the promise is refuted" in page.text
    assert refuted == (kind == "refuted")


def test_it_says_the_figures(page):
    summary = summary_of()
    for attack in summary.attacks:
        for one in (attack.auc, attack.accuracy, attack.advantage):
            shown = f"{one.value:.3f} {one.low:.3f} to {one.high:.3f}".replace("-", "−")
            assert shown in page.text
    for row in summary.vulnerable:
        assert row.key in page.text
    assert "data.csv, 2026-11-16" in page.text
    assert "Members were chosen by coins." in page.text
    assert page.text.index("FAIL For the curator only") < page.text.index("The answer")
    text = render_audit_markdown(summary)
    for row in summary.disagreements:
        assert f"| {row.key} |" in text
    assert f"| {summary.correlations[0].what} |" in text


def test_headings_are_in_order_and_everything_has_a_name(page):
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    named = " ".join(value for _, name, value in page.attributes if name == "aria-labelledby")
    assert set(named.split()) <= set(ids)
    # Every chart has a title and says what is to be seen.
    assert page.tags.count("desc") == 2
    assert "A coin finds as many members as others." in page.text
    assert "rank correlation of" in page.text


def test_nothing_comes_from_outside_and_nothing_runs(page):
    names = {name for _, name, _ in page.attributes}
    assert not names & {"src", "href", "srcset", "action", "style", "data", "xlink:href"}
    assert not any(name.startswith("on") for name in names)
    (policy,) = [value for _, _, value in page.attributes if "default-src" in value]
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == f"'sha256-{digest}'"
    for words in {value for _, name, value in page.attributes if name == "class"}:
        for word in words.split():
            assert f".{word}" in page.style or word == "title", word


def hostile(name):
    """An audit whose every text came from somebody who means ill."""
    audit = audited()
    scores = {name: audit.scores["lira-online"]}
    cells = np.where(np.arange(len(audit.truth)) % 2, name, "b")
    return dataclasses.replace(
        audit,
        description=name,
        scores=scores,
        figures={name: figures(scores[name], audit.truth)},
        bounds=tuple(
            dataclasses.replace(one, method=name, detail=name, assumption=name)
            for one in audit.bounds
        ),
        disparity=(disparity(scores[name], audit.truth, cells, name=name, attack=name),),
        skipped={name: name},
        ids=tuple(f"{name}{row}" for row in range(len(audit.truth))),
        notices=(name,),
    )


@pytest.mark.parametrize("name", [HOSTILE, "<script>alert(1)</script>"])
def test_hostile_text_is_text(name):
    summary = collect_audit(
        hostile(name),
        choices=[Choice(name=name, value=name, origin=Origin.GIVEN)],
        notices=[name, "{{ 7 * 7 }}"],
        source=name,
        made=name,
        versions={name: name},
    )
    source = render_audit_html(summary)
    page = Page(source)
    assert set(page.tags) <= AUDIT_TAGS
    assert page.tags.count("style") == 1
    assert "<script" not in source
    assert html.escape("<script>alert(") in source
    # A column, a group, a row and an attack of this name are shown as they are called.
    assert page.text.count("<script>alert(") > 20
    assert "{{ 7 * 7 }}" in page.text
    # Only "< 0.1 %", which begins no tag, stands there as it is.
    assert not re.search(r"(?<!\\)<(?!\xa0)", render_audit_markdown(summary))
    assert "<script>alert(" in render_json(summary)


def test_the_same_summary_gives_the_same_bytes():
    first, second = (summary_of(versions={"expost": "1"}) for _ in range(2))
    assert render_audit_html(first) == render_audit_html(second)
    assert render_audit_markdown(first) == render_audit_markdown(second)
    assert render_json(first) == render_json(second)


# The charts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_curves_are_drawn_where_the_ticks_say(kind):
    summary = summary_of(kind)
    chart = roc_chart(summary)
    x, y = read_axis(chart.x_ticks, log=True), read_axis(chart.y_ticks, log=True)
    floor = roc_floor(summary)
    assert floor == 1e-3 < 1 / OTHERS < 1 / MEMBERS
    for attack, curve in zip(summary.attacks, chart.curves, strict=False):
        line = coordinates(curve.points)
        false = [max(p.false_positive_rate, floor) for p in attack.curve]
        true = [max(p.true_positive_rate, floor) for p in attack.curve]
        np.testing.assert_allclose(x(line[:, 0]), false, rtol=0.02)
        np.testing.assert_allclose(y(line[:, 1]), true, rtol=0.02)
        assert curve.name.startswith(attack.name)
    names = [curve.name for curve in chart.curves[len(summary.attacks) :]]
    assert names[-1] == "a coin"
    assert (len(names) == 2) == (summary.promise is not None)
    coin = coordinates(chart.curves[-1].points)
    np.testing.assert_allclose(x(coin[:, 0]), y(coin[:, 1]), rtol=0.02)
    styles = [curve.style for curve in chart.curves]
    assert len(set(styles)) == len(styles)
    if summary.promised:
        allowed = coordinates(chart.curves[-2].points)
        # No promise lies below the coin.
        assert np.all(y(allowed[:, 1]) >= 0.97 * x(allowed[:, 0]))


def test_members_are_drawn_where_the_ticks_say():
    summary = summary_of()
    chart = scatter_chart(summary)
    x, y = read_axis(chart.x_ticks, log=True), read_axis(chart.y_ticks, log=False)
    np.testing.assert_allclose(
        x(np.array([dot.x for dot in chart.dots])),
        [point.measured for point in summary.scatter],
        rtol=0.03,
    )
    np.testing.assert_allclose(
        y(np.array([dot.y for dot in chart.dots])),
        [point.told_apart for point in summary.scatter],
        atol=0.01,
    )
    assert scatter_chart(summary_of("memorised")) is None
    assert scatter_chart(summary_of("one attack")) is None


def test_many_members_are_thinned_out():
    audit = audited()
    times = 12
    exposures = dataclasses.replace(
        audit.exposures,
        **{
            name: np.tile(getattr(audit.exposures, name), times)
            for name in ("loss", "typical", "distance")
        },
    )
    rows = np.concatenate([np.arange(MEMBERS)] * times + [np.arange(MEMBERS, MEMBERS + OTHERS)])
    told = dataclasses.replace(
        audit.told_apart, value=audit.told_apart.value[rows], error=audit.told_apart.error[rows]
    )
    scores = {name: one[rows] for name, one in audit.scores.items()}
    many = dataclasses.replace(
        audit,
        truth=audit.truth[rows],
        scores=scores,
        figures={name: figures(one, audit.truth[rows]) for name, one in scores.items()},
        told_apart=told,
        exposures=exposures,
        ids=None,
        disparity=(),
    )
    summary = collect_audit(many)
    assert (summary.placed, len(summary.scatter)) == (times * MEMBERS, 1000)
    assert "every so many of 1,440" in Page(render_audit_html(summary)).text
    assert all(len(attack.curve) < 200 for attack in summary.attacks)
