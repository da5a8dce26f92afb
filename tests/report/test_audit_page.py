"""The page of an audit: its figures are those of the summary, and nothing else is on it."""

import dataclasses
import html
import math
import re

import numpy as np
import pytest

from expost.attacks.roc import figures
from expost.audits.disparity import disparity
from expost.report import Choice, Origin, collect, render_html, render_json, render_markdown
from expost.report.audit_chart import roc_chart, roc_floor, scatter_chart, stepped

from .audits import KINDS, MEMBERS, OTHERS, audited
from .conftest import HOSTILE
from .pages import Page, check, ends
from .test_epsilon_page import read_axis
from .test_html import coordinates


def summary_of(kind="promised", **options):
    chosen = [Choice(name="seed", value="3", origin=Origin.GIVEN)]
    return collect(audited(kind), choices=chosen, **options)


@pytest.fixture(scope="module")
def page():
    return Page(render_html(summary_of(source="data.csv", made="2026-11-16")))


# What a reader sees ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_whole_whatever_was_found(kind):
    summary = summary_of(kind)
    page = Page(render_html(summary))
    check(page)
    text = render_markdown(summary)
    for heading in (
        "The attacks in numbers",
        "Which rows are vulnerable",
        "What is proved about ε",
        "For a data-protection impact assessment",
        "What to know",
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
    assert ("Beside what theory says" in page.text) == (summary.audit.measure is not None)
    assert page.text.count("This is an attack, not a guarantee") == 2
    assert "**This is an attack, not a guarantee" in text
    assert text.startswith("> **FAIL**")
    for sentence in summary.answer:
        assert " ".join(sentence.split()) in page.text
    refuted = "the promise is refuted" in page.text
    assert refuted == (kind == "refuted")


def test_it_says_the_figures(page):
    summary = summary_of()
    part = summary.audit
    for attack in part.attacks:
        for one in (attack.auc, attack.accuracy, attack.advantage):
            assert ends(one) in page.text
    for row in part.vulnerable:
        assert row.key in page.text
    assert "data.csv, 2026-11-16" in page.text
    assert "Members were chosen by coins." in page.text
    assert page.text.index("FAIL For the curator only") < page.text.index("The answer")
    text = render_markdown(summary)
    for row in part.disagreements:
        assert f"| {row.key} |" in text
    assert f"| {part.correlations[0].what} |" in text


def test_every_chart_says_what_is_to_be_seen(page):
    assert page.pictures == page.tags.count("desc") == 2
    assert "A coin finds as many members as others." in page.text
    assert "rank correlation of" in page.text
    # Nothing moves on this page, and so nothing runs.
    assert page.scripts == page.data == []
    assert "script-src" not in page.rules


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
    summary = collect(
        hostile(name),
        choices=[Choice(name=name, value=name, origin=Origin.GIVEN)],
        notices=[name, "{{ 7 * 7 }}"],
        source=name,
        made=name,
        versions={name: name},
    )
    source = render_html(summary)
    page = Page(source)
    check(page)
    assert "<script" not in source
    assert html.escape("<script>alert(") in source
    # A column, a group, a row and an attack of this name are shown as they are called.
    assert page.text.count("<script>alert(") > 20
    assert "{{ 7 * 7 }}" in page.text
    # Only "< 0.1 %", which begins no tag, stands there as it is.
    assert not re.search(r"(?<!\\)<(?!\xa0)", render_markdown(summary))
    assert "<script>alert(" in render_json(summary)


def test_the_same_summary_gives_the_same_bytes():
    first, second = (summary_of(versions={"expost": "1"}) for _ in range(2))
    assert render_html(first) == render_html(second)
    assert render_markdown(first) == render_markdown(second)
    assert render_json(first) == render_json(second)


# The charts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_curves_are_drawn_where_the_ticks_say(kind):
    summary = summary_of(kind).audit
    chart = roc_chart(summary)
    x, y = read_axis(chart.x_ticks, log=True), read_axis(chart.y_ticks, log=True)
    floor = roc_floor(summary)
    assert floor == 1e-3 < 1 / OTHERS < 1 / MEMBERS
    for attack, curve in zip(summary.attacks, chart.curves, strict=False):
        line = coordinates(curve.points)
        kept = [
            (max(p.false_positive_rate, floor), max(p.true_positive_rate, floor))
            for p in attack.curve
        ]
        drawn = [*zip(x(line[:, 0]), y(line[:, 1]), strict=True)]
        for false, true in kept:
            near = [
                math.isclose(a, false, rel_tol=0.02) and math.isclose(b, true, rel_tol=0.02)
                for a, b in drawn
            ]
            assert any(near)
        for (_, low), (_, high), step in zip(line, line[1:], np.diff(line, axis=0), strict=False):
            # To the right or up, and never both.
            assert low >= high
            assert step[0] >= 0
            assert 0 in step
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


@pytest.mark.parametrize("kind", KINDS)
def test_no_curve_shows_more_members_than_the_figures_beside_it(kind):
    """The line at an FPR is the TPR of the last threshold with no more false ones, naively."""
    audit, part = audited(kind), summary_of(kind).audit
    for attack in part.attacks:
        scores, truth = audit.scores[attack.name], audit.truth
        corners = [*stepped([(p.false_positive_rate, p.true_positive_rate) for p in attack.curve])]
        for rate in (0.0, 0.001, 0.003, 0.01, 0.05, 0.3, 1.0):
            most = max(
                np.mean(scores[truth] > threshold)
                for threshold in (*scores, -np.inf)
                if np.mean(scores[~truth] > threshold) <= rate
            )
            height = max(true for false, true in corners if false <= rate)
            assert height <= most + 1e-12
            if rate in (0.0, 0.001, 0.01):
                assert height == pytest.approx(most, abs=1e-12)
            if rate == 0.01:
                assert height == pytest.approx(attack.tpr_at_1_percent.value)


def test_a_few_points_make_steps():
    """One threshold that finds half of the members with a tenth of the others."""
    assert [*stepped([(0.0, 0.0), (0.1, 0.5), (1.0, 1.0)])] == [
        (0.0, 0.0),
        (0.1, 0.0),
        (0.1, 0.5),
        (1.0, 0.5),
        (1.0, 1.0),
    ]
    assert [*stepped([(0.0, 0.0), (0.0, 0.4), (1.0, 0.4)])] == [(0.0, 0.0), (0.0, 0.4), (1.0, 0.4)]
    assert [*stepped([])] == []


def test_members_are_drawn_where_the_ticks_say():
    summary = summary_of().audit
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
    assert scatter_chart(summary_of("memorised").audit) is None
    assert scatter_chart(summary_of("one attack").audit) is None


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
    summary = collect(many)
    part = summary.audit
    assert (part.placed, len(part.scatter)) == (times * MEMBERS, 1000)
    assert "every so many of 1,440" in Page(render_html(summary)).text
    assert all(len(attack.curve) < 200 for attack in part.attacks)
