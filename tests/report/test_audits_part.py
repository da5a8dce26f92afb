"""Audits over ε on a page: every figure beside its ε, and nothing of a row."""

import dataclasses
import html
import re

import numpy as np
import pytest

from expost.attacks.roc import auc, figures
from expost.audits.sweep import AuditSweep
from expost.report import collect, parse_json, render_html, render_json, render_markdown
from expost.report.audits_chart import audit_panels
from expost.types import Audience

from .audits import audited
from .conftest import HOSTILE
from .pages import Page, check, ends
from .test_epsilon_page import read_axis
from .test_html import coordinates
from .test_risk_part import plain, spaced
from .test_texts import unescaped

SWEEPS = {
    "usual": ((0.1, 1.0, 30.0), ("one attack", "promised", "promised")),
    "unknown": ((0.1, 1.0), ("nothing", "memorised")),
    "refuted": ((0.1, 1.0, 10.0), ("promised", "refuted", "promised")),
    "one": ((2.0,), ("promised",)),
}


def sweep_of(kind):
    epsilons, kinds = SWEEPS[kind]
    return AuditSweep(epsilons=epsilons, audits=tuple(audited(one) for one in kinds))


@pytest.mark.parametrize("kind", SWEEPS)
def test_every_figure_stands_beside_its_epsilon(kind):
    sweep, summary = sweep_of(kind), collect(sweep_of(kind))
    part, page, text = summary.audits, Page(render_html(summary)), render_markdown(summary)
    check(page)
    assert page.sections.count("audits") == 1
    assert summary.audience is Audience.REVIEW
    assert len(part.lines) == len(sweep)
    rows = [line for line in text.splitlines() if re.match(r"\| [\d.]+ \|", line)]
    for line, (epsilon, audit), row in zip(part.lines, sweep, rows, strict=True):
        best = max(audit.figures, key=lambda name: audit.figures[name].auc.value)
        found = audit.figures[best]
        assert (line.epsilon, line.attack) == (epsilon, best)
        assert (line.auc, line.advantage) == (found.auc, found.advantage)
        assert line.allowed == audit.advantage_bound
        assert ends(found.auc) in page.blocks
        assert ends(found.auc, to=" (", end=")") in row
        assert row.startswith(f"| {epsilon:g} | {best} |")
        if audit.guarantee is not None:
            assert plain(line.allowed_text) >= audit.guarantee.advantage
        related = audit.correlations[-1] if audit.correlations else None
        assert (line.relation is None) == (related is None)
        if related is not None:
            assert (line.relation.value, line.relation.rows) == (related.value, related.rows)
            assert f"{related.value:.2f}".replace("-", "−") in " ".join(part.answer)
        assert line.proved == (max(b.epsilon for b in audit.bounds) if audit.bounds else None)
    assert page.blocks.count(part.warning) == 1
    assert f"**{part.warning}**" in text
    for sentence in (*summary.answer, *part.answer):
        assert page.blocks.count(spaced(sentence)) == 1
    assert parse_json(render_json(summary)) == summary


def test_nothing_of_a_row_is_on_it():
    """The audits in it name rows by their ids; the page may not."""
    sweep = sweep_of("usual")
    assert any(one.ids is not None for one in sweep.audits)
    summary = collect(sweep)
    for text in (render_html(summary), render_markdown(summary), render_json(summary)):
        assert "person 1" not in text


@pytest.mark.parametrize("kind", ["usual", "refuted", "unknown"])
def test_it_is_drawn_where_the_ticks_say(kind):
    part = collect(sweep_of(kind)).audits
    panels = audit_panels(part)
    assert len(panels) == (2 if kind == "unknown" else 3)
    told = {
        "audits-auc": [line.auc for line in part.lines],
        "audits-advantage": [line.advantage for line in part.lines],
        "audits-relation": [line.relation for line in part.lines if line.relation],
    }
    for panel in panels:
        x, y = read_axis(panel.x_ticks, log=True), read_axis(panel.y_ticks, log=False)
        found = told[panel.key]
        line = coordinates(panel.lines[0].points)
        np.testing.assert_allclose(y(line[:, 1]), [one.value for one in found], atol=0.01)
        epsilons = [
            one.epsilon for one in part.lines if panel.key != "audits-relation" or one.relation
        ]
        np.testing.assert_allclose(x(line[:, 0]), epsilons, rtol=0.03)
        band = coordinates(panel.band)
        expected = [one.high for one in found] + [one.low for one in found][::-1]
        np.testing.assert_allclose(y(band[:, 1]), expected, atol=0.01)
        names = [each.name for each in panel.lines]
        assert ("the most that the promise allows" in names) == (
            panel.key == "audits-advantage" and kind != "unknown"
        )
    assert audit_panels(collect(sweep_of("one")).audits) == ()


def test_its_sentences():
    usual = collect(sweep_of("usual"))
    assert usual.answer[0].startswith("From ε = 0.1 to 30 no attack got further")
    assert "at ε = 0.1 and" in usual.answer[1]
    refuted = collect(sweep_of("refuted"))
    assert refuted.answer[0].startswith("The promise is refuted at ε = 1:")
    assert refuted.answer[2].startswith("Do not release")
    assert refuted.audits.headline.alarm
    assert not usual.audits.headline.alarm
    unknown = collect(sweep_of("unknown"))
    assert "no promise is known" in unknown.answer[0]
    # An attack is called better than a coin where its interval says so, widened for all of them.
    sweep = sweep_of("unknown")
    tried = sum(len(one.figures) for one in sweep.audits)
    for line, one in zip(unknown.audits.lines, sweep.audits, strict=True):
        sure = 1 - 0.05 / tried
        lows = [auc(score, one.truth, confidence=sure).low for score in one.scores.values()]
        assert line.above_coin == (max(lows) > 0.5)
    assert [line.above_coin for line in unknown.audits.lines] == [False, True]
    assert unknown.answer[2].startswith("From ε = 1 on attacks are surely better than a coin")
    nothing = AuditSweep(epsilons=(1.0,), audits=(audited("nothing"),))
    assert collect(nothing).answer[2].startswith("At none of these ε is any attack surely better")
    partly = AuditSweep(
        epsilons=(1.0, 2.0, 3.0), audits=tuple(map(audited, ("memorised", "nothing", "promised")))
    )
    assert collect(partly).answer[0].startswith("At ε = 3, where a promise is known,")


def test_a_page_of_both_an_audit_and_audits(laplace):
    summary = collect(sweep_of("usual"), audited("promised"))
    assert [*summary.by_name] == ["audit", "audits"]
    page = Page(render_html(summary))
    check(page)
    assert page.sections.index("questions") < page.sections.index("audits")
    assert summary.audience is Audience.FAIL


@pytest.mark.parametrize("name", [HOSTILE, "<script>alert(1)</script>"])
def test_hostile_text_is_text(name):
    audit = audited("promised")
    scores = {name: audit.scores["lira-online"]}
    bad = dataclasses.replace(
        audit,
        description=f"{name}, epsilon=3, n=4",
        scores=scores,
        figures={name: figures(scores[name], audit.truth)},
        notices=(name,),
    )
    summary = collect(AuditSweep(epsilons=(1.0, 2.0), audits=(bad, bad)))
    source, text = render_html(summary), render_markdown(summary)
    check(Page(source))
    assert html.escape("<script>alert(") in source
    assert not re.search(r"(?<!\\)<(?!\s)", text)
    assert name[:20] in unescaped(text)
    # The line of all models names none's ε.
    assert "epsilon=3" not in summary.audits.model
    assert summary.audits.model.endswith(", n=4")
    assert parse_json(render_json(summary)) == summary
