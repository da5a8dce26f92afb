"""The document of a guarantee or a goal: the result's figures, on the safe side."""

import dataclasses
import json
import math
import re
from functools import cache
from html import escape

import numpy as np
import pytest

from expost import PrivateLogisticRegression, identifiability
from expost.errors import InvalidInput
from expost.numbers import symbols
from expost.report import document_of, render_html, render_json, render_markdown
from expost.report.document import Table
from expost.report.registry import page_of
from expost.report.sections.risk import epsilon_figure, rates_figure
from expost.risk.curves import risk_curves
from expost.risk.statement import REVIEWED
from expost.types import Audience
from read_figures import read

from .cells import blocks, check_document, rounded_up, tables, tile
from .conftest import HOSTILE

QUESTIONS = {
    "guarantee": {"epsilon": 1.0, "delta": 1e-5},
    "pure": {"epsilon": 0.5},
    "goal": {"max_posterior": 0.75, "delta": 1e-5},
    "goals": {"max_posterior": 0.9, "delta": 1e-6, "releases": 4},
    "many": {"epsilon": 0.5, "delta": 1e-6, "releases": 10},
    "noise": {"mu": 0.5},
    "training": {"noise_multiplier": 2.0, "steps": 20, "sampling_rate": 0.1, "delta": 1e-5},
    "suspects": {"one_in": 11, "prior": 0.01},
    "large": {"epsilon": 800.0},
    "nothing": {"epsilon": math.inf},
    "forecast": {"epsilon": 1.0, "rows": 750, "features": 61},
}


@cache
def answer(kind):
    return identifiability(**QUESTIONS[kind])


@pytest.mark.parametrize("kind", QUESTIONS)
def test_the_tables_hold_every_figure_by_every_route(kind):
    result = answer(kind)
    document = document_of(result)
    check_document(document)
    assert document.audience is result.audience is Audience.PUBLIC
    keys = [route.key for route in result.routes]
    rows = {}
    for table in tables(document)[:2]:
        if len(table.columns) == 1 + len(keys):
            rows |= {values[0]: (cells, values) for cells, values in zip(
                table.cells, table.values, strict=True
            )}  # fmt: skip
    for figure in result.figures:
        cells, values = rows[figure.name]
        assert cells[0] == symbols(figure.label)
        for key, cell, value in zip(keys, cells[1:], values[1:], strict=True):
            exact = figure.by.get(key)
            assert value == exact
            assert (cell == "–") == (exact is None)
            if exact is not None and exact < math.inf and not cell.startswith("<"):
                # What is set is rounded towards more noise, as ε is that keeps a goal.
                is_goal = result.is_goal and (figure.name, key) == ("epsilon", "any")
                if figure.name in ("one_in", "mu", "epsilon_each") or is_goal:
                    assert read(cell) <= exact * (1 + 1e-12)
                else:
                    assert read(cell) >= exact * (1 - 1e-12)
    text = json.dumps(render_json(page_of(result)), ensure_ascii=False)
    for sentence in result.sentences:
        assert symbols(sentence) in text
    for route in result.routes:
        assert symbols(route.note) in text


def test_the_verdict_of_a_guarantee_bounds_the_certainty():
    for kind in ("guarantee", "pure", "many", "training", "forecast"):
        result = answer(kind)
        document = document_of(result)
        shown = re.search(r"at most (\S+ %) certain about any row", document.verdict.text)[1]
        assert result.posterior <= read(shown) <= result.posterior + 0.0011
        assert shown in tile(document, "Attacker's certainty").value
        assert tile(document, "Attacker's certainty").people >= 100 * result.posterior - 1e-6
        assert document.verdict.priority == 20
    # 1/(1 + e⁻¹) = 73.106 %, rounded up.
    assert "at most 73.2 %" in document_of(identifiability(epsilon=1.0)).verdict.text
    right = re.search(
        r"right at most (\S+) times in 100", document_of(answer("noise")).verdict.text
    )
    assert (1 + answer("noise").advantage) / 2 <= float(right[1]) / 100
    assert "less than 100 %" in document_of(answer("large")).verdict.text
    assert "Nothing is guaranteed" in document_of(answer("nothing")).verdict.text


@pytest.mark.parametrize("kind", ["goal", "goals", "suspects"])
def test_the_verdict_of_a_goal_names_an_epsilon_that_keeps_it(kind):
    result = answer(kind)
    text = document_of(result).verdict.text
    epsilon = re.match(r"ε = (\S+)", text)[1]
    assert 0.999 * result.epsilon_each <= float(epsilon) <= result.epsilon_each
    if result.delta:
        delta = re.search(r"at δ = (.*?) (?:for|keeps)", text)[1]
        assert float(read(delta)) <= result.delta / result.releases * (1 + 1e-12)
    assert symbols(result.question) in text


@pytest.mark.parametrize("kind", ["guarantee", "pure", "goal", "suspects", "many", "training"])
def test_the_curves_over_epsilon_are_those_of_the_result(kind):
    result = answer(kind)
    curves, figure = result.curves(), epsilon_figure(result)
    for panel, name in zip(figure.panels, ("posterior", "advantage"), strict=True):
        *gaussian, pure, point = panel.lines
        for line, each in zip(gaussian, curves.deltas, strict=True):
            np.testing.assert_array_equal(line.x, each.epsilon)
            np.testing.assert_array_equal(line.y, getattr(each, name))
        np.testing.assert_array_equal(pure.x, curves.epsilon)
        np.testing.assert_array_equal(pure.y, getattr(curves, f"pure_{name}"))
        assert (point.x, point.y) == ((result.epsilon,), (getattr(result, name),))
        (rule,) = panel.rules
        assert panel.x.low <= rule.at == result.epsilon <= panel.x.high
        shown = result.figure("epsilon").shown[result.routes[0].key]
        assert rule.label == f"ε = {shown}"
        assert panel.x.quantity == "epsilon"
    odds = result.prior / (1 - result.prior) * np.exp(curves.epsilon)
    np.testing.assert_allclose(curves.pure_posterior, odds / (1 + odds), rtol=1e-9)
    np.testing.assert_allclose(curves.pure_advantage, np.tanh(curves.epsilon / 2), rtol=1e-9)


def test_gaussian_curves_are_what_is_answered_at_the_same_epsilon():
    (curve,) = (each for each in answer("guarantee").curves().deltas if each.delta == 1e-5)
    for index in (10, 40, 70):
        again = identifiability(epsilon=float(curve.epsilon[index]), delta=1e-5)
        for name in ("posterior", "advantage"):
            value = again.figure(name).by["gaussian"]
            assert getattr(curve, name)[index] == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("kind", QUESTIONS)
def test_rates_are_those_of_each_guarantee(kind):
    result = answer(kind)
    (panel,) = rates_figure(result).panels
    *lines, guessing = panel.lines
    for line, route in zip(lines, result.routes, strict=True):
        assert line.name == symbols(route.name)
        for index in (0, 8, 16):
            rate = route.guarantee.true_positive_rate(line.x[index])
            assert line.y[index] == rate >= line.x[index]
    assert guessing.x == guessing.y


def test_without_a_finite_epsilon_there_is_no_curve_over_it():
    for kind in ("noise", "nothing"):
        result = answer(kind)
        assert list(document_of(result).figures) == ["rates"]
        with pytest.raises(InvalidInput, match="name a delta"):
            result.curves()
    with pytest.raises(InvalidInput, match="low"):
        risk_curves([1e-5], low=2.0, high=1.0)
    assert list(document_of(answer("pure")).figures) == ["epsilon", "rates"]


def test_curves_alone():
    curves = risk_curves([1e-5, 0.2])
    document = document_of(curves)
    check_document(document)
    assert document.audience is Audience.PUBLIC
    for panel in document.figures["epsilon"].panels:
        assert len(panel.lines) == 3
        assert panel.rules == ()
    marked = dataclasses.replace(curves, audience=Audience.NEEDS_REVIEW)
    assert document_of(marked).audience is Audience.NEEDS_REVIEW
    assert len(curves.plot("epsilon").axes_) == 2


def test_several_releases_are_composed():
    result = answer("many")
    section = next(each for each in document_of(result).sections if each.id == "risk-composition")
    table = section.blocks[0]
    for cells, row in zip(table.cells, result.comparison.rows, strict=True):
        assert rounded_up(cells[1], row.epsilon)
        assert read(cells[3]) >= row.posterior * (1 - 1e-12)
    assert "risk-composition" not in {each.id for each in document_of(answer("pure")).sections}


def test_a_model_that_needs_review_has_an_alert():
    result = dataclasses.replace(answer("many"), audience=Audience.NEEDS_REVIEW)
    document = document_of(result)
    assert document.audience is Audience.NEEDS_REVIEW
    (alert,) = document.alerts
    assert (alert.severity, alert.title) == ("review", REVIEWED)
    with pytest.raises(InvalidInput, match="risk: needs-review"):
        page_of(result).public()


def test_a_model_gets_no_figures_of_another_mechanism():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(200, 2)), np.where(np.arange(200) % 2, "b", "a")
    model = PrivateLogisticRegression(
        1.0, mechanism="objective", noise="gaussian", delta=1e-6, data_norm=2.0, classes=("a", "b")
    ).fit(X, y)
    assert [route.key for route in identifiability(model).routes] == ["any"]
    assert len(identifiability(epsilon=1.0, delta=1e-6).routes) == 2


def test_a_useless_model_leads():
    result = identifiability(epsilon=0.01, rows=100, features=50)
    document = document_of(result)
    assert result.forecast.is_useless
    assert (document.verdict.tone, document.verdict.priority) == ("bad", 90)
    assert document.alerts[0].severity == "problem"
    assert tile(document, "Useful?").tone == "bad"


@pytest.mark.parametrize("name", [HOSTILE, "<script>alert(1)</script>"])
def test_hostile_text_is_text(name):
    result = answer("many")
    routes = tuple(dataclasses.replace(each, name=name, note=name) for each in result.routes)
    figures = tuple(dataclasses.replace(each, label=name, sentence=name) for each in result.figures)
    result = dataclasses.replace(
        result, question=name, routes=routes, figures=figures, notices=(name, "{{ 7 * 7 }}")
    )
    document = document_of(result)
    check_document(document)
    html = render_html(page_of(result))
    assert "<script>alert(" not in html
    assert escape("<script>alert(") in html
    assert "{{ 7 * 7 }}" in html
    assert not re.search(r"(?<!\\)<(?!\s)", render_markdown(document))
    assert all("\n" not in getattr(block, "text", "") for block in blocks(document))


@pytest.mark.parametrize("kind", ["guarantee", "training", "nothing"])
def test_attacks_beyond_membership_have_their_bounds(kind):
    baseline = {"re_identification": 1e-3, "attribute_inference": 0.5}
    result = identifiability(**QUESTIONS[kind], baseline=baseline)
    document = document_of(result)
    check_document(document)
    (section,) = (each for each in document.sections if each.id == "risk-attacks")
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    for attack, values, cells in zip(result.attacks, table.values, table.cells, strict=True):
        assert values[:2] == (attack.risk.name, baseline[attack.risk.name])
        for index, route in enumerate(result.routes):
            success, gain = values[2 + 2 * index : 4 + 2 * index]
            assert success == route.guarantee.true_positive_rate(attack.baseline)
            assert gain >= success - attack.baseline
            shown = cells[2 + 2 * index]
            assert shown == "100 %" if kind == "nothing" else rounded_up(shown, success, 2)
    ids = [each.id for each in document_of(answer(kind)).sections]
    assert "risk-attacks" not in ids, "without a baseline there is no section"
