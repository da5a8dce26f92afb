"""Documents of small results: their figures are those of the results, bounds on the safe side."""

import dataclasses
import re

import numpy as np
import pytest

from expost.numbers import posterior_at
from expost.profiles.transcript import IndividualEpsilon
from expost.report import document_of, render_json, render_markdown, render_text
from expost.report.sections.ranks import drawn_ranks, ranked_figure
from expost.report.sections.row_results import comparison_figure
from expost.risk import GaussianNoise, compare_compositions
from expost.selection import selection_cost
from expost.types import Audience

from .cells import (
    blocks,
    certainty_up,
    check_document,
    column,
    rounded_down,
    rounded_up,
    tables,
)
from .results import RESULTS

NAMES = (
    *("certificate", "certificate of a coupling", "erasure", "erasure by a redraw"),
    *("release after an erasure", "conformance", "dossier"),
    *("answer", "attack figures", "comparison", "composition", "coverage", "disparity"),
    *("estimated losses", "explanation", "grouping", "individual epsilon", "ledger"),
    *("lower bound", "neighbours", "published report", "release", "roc", "row losses"),
    *("row losses without noise", "selected regularization", "selection cost", "transcript"),
)


def drawn(name, key):
    """The one line of a figure of one panel."""
    (panel,) = document_of(RESULTS[name]()).figures[key].panels
    return panel.lines[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_result_has_a_document(name):
    result = RESULTS[name]()
    document = document_of(result)
    check_document(document)
    assert document.audience is getattr(result, "audience", Audience.CURATOR_ONLY)
    assert str(result) == render_text(document)
    assert render_json(document) == render_json(document_of(result))


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_stay_text(name):
    text = render_markdown(document_of(RESULTS[name]()))
    rest = [line for line in text.splitlines() if not line.startswith("    ")]
    assert not any(re.search(r"(?<!\\)<(?!\s)", line) for line in rest)


@pytest.mark.parametrize("name", ["grouping", "explanation"])
def test_groups(name):
    result = RESULTS[name]()
    document = document_of(result)
    (table,) = tables(document)
    titles = [each.title for each in table.columns]
    median, largest = titles[-2:]
    for title, field in (("rows", "rows"), ("lift", "lift"), (median, "median")):
        assert column(table, title)[1] == [getattr(group, field) for group in result.groups]
    assert largest.startswith("largest")
    assert all(map(rounded_up, *column(table, largest)))
    exposures, shares = document.figures["groups"].panels
    for line in exposures.lines:
        expected = tuple(posterior_at(getattr(group, line.name)) for group in result.groups)
        assert line.x == expected
    assert shares.lines[0].x == tuple(group.share for group in result.groups)
    assert shares.lines[1].x == tuple(group.top_share for group in result.groups)


@pytest.mark.parametrize("name", ["row losses", "row losses without noise"])
def test_row_losses(name):
    losses = RESULTS[name]()
    document = document_of(losses)
    (table,) = tables(document)
    size = losses.distance if losses.noiseless else np.abs(losses.loss)
    cells, values = column(table, table.columns[1].title)
    assert values == np.quantile(size, (0.5, 0.9, 0.99, 1.0), method="higher").tolist()
    assert all(map(rounded_up, cells, values))
    line = drawn(name, "row-losses")
    ordered = np.sort(size)[::-1][drawn_ranks(len(size)) - 1]
    expected = ordered if losses.noiseless else [posterior_at(float(value)) for value in ordered]
    np.testing.assert_array_equal(line.y, expected)
    (band,) = document.figures["row-losses"].panels[0].bands
    assert np.all(np.array(band.low) <= line.y)
    assert np.all(np.array(band.high) >= line.y)


def test_neighbours_and_individual_epsilon_by_rank():
    neighbours = RESULTS["neighbours"]()
    assert drawn("neighbours", "neighbours").y[0] == np.max(neighbours.distance)
    pairs = dict(
        next(each.pairs for each in blocks(document_of(neighbours)) if hasattr(each, "pairs"))
    )
    assert rounded_up(pairs["certified to ±"], float(np.max(neighbours.error_bound)))
    spent = IndividualEpsilon(
        epsilon=np.random.default_rng(7).exponential(size=201),
        delta=1e-5,
        worst_case=7.5,
        filtered=True,
    )
    (panel,) = document_of(spent).figures["individual-epsilon"].panels
    assert panel.rules[0].at == spent.worst_case
    ranks = drawn_ranks(201)
    assert panel.lines[0].x == tuple(ranks)
    assert panel.lines[0].y == tuple(np.sort(spent.epsilon)[::-1][ranks - 1])


def test_estimated_losses_leave_out_what_is_not_resolved():
    losses = RESULTS["estimated losses"]()
    line = drawn("estimated losses", "estimated-losses")
    size = np.where(np.isfinite(losses.noise), np.abs(losses.loss), np.nan)
    means = np.sort(np.nanmean(size, axis=0))[::-1]
    np.testing.assert_allclose(line.y, [posterior_at(float(mean)) for mean in means])
    assert any("1 losses" in alert.title for alert in document_of(losses).alerts)


def test_a_comparison_shows_each_row_and_every_failure():
    comparison = RESULTS["comparison"]()
    line = drawn("comparison", "comparison")
    columns = comparison.columns()
    assert len(line.x) == len(drawn_ranks(len(comparison)))
    points = {
        (posterior_at(float(x)), posterior_at(float(y)))
        for x, y in zip(columns["exposure"], columns["bound"], strict=True)
    }
    assert set(zip(line.x, line.y, strict=True)) <= points
    (table,) = tables(document_of(comparison))
    assert table.values[1][1:] == (
        comparison.figures.median_bound,
        comparison.figures.largest_bound,
    )
    assert all(map(rounded_up, *column(table, "largest")))
    # Of many rows some are drawn, and among them all that fail.
    exposure = np.linspace(0.1, 1.0, 5000)
    bound = np.where(np.arange(5000) == 1234, 0.01, 2.0)
    many = dataclasses.replace(comparison, held={"exposure": exposure, "bound": bound})
    line = comparison_figure(many).panels[0].lines[0]
    assert len(line.x) < 1000
    assert posterior_at(0.01) in line.y
    # Rows in blocks have no columns, and no figure.
    assert document_of(dataclasses.replace(comparison, held=None)).figures == {}


@pytest.mark.parametrize("prior", [0.5, 0.1])
def test_compositions(prior):
    comparison = compare_compositions([GaussianNoise(mu=0.2)] * 7, delta=1e-5, prior=prior)
    (table,) = tables(document_of(comparison))
    assert [row[1] for row in table.values] == [row.epsilon for row in comparison.rows]
    odds = np.log(prior / (1 - prior))
    for cells, row in zip(table.cells, comparison.rows, strict=True):
        assert certainty_up(cells[3], odds + row.loss)


def test_choices():
    cost = selection_cost(np.random.default_rng(7).normal(size=6), 1.0, 0.7)
    document = document_of(cost)
    (table,) = tables(document)
    assert [row[1] for row in table.values] == sorted(cost.probabilities.tolist(), reverse=True)
    shown = re.search(r"at most (.*?) with probability", document.verdict.more)[1]
    assert rounded_up(shown, cost.shortfall_bound)
    selected = RESULTS["selected regularization"]()
    (table,) = tables(document_of(selected))
    assert [row[0] for row in table.values] == list(selected.candidates)
    assert [row[2] for row in table.values].index("chosen") == selected.index
    release = RESULTS["release"]()
    (table,) = tables(document_of(release))
    coefficients, intercept = release.coefficients
    assert [row[1] for row in table.values] == [*coefficients.ravel(), *np.ravel(intercept)]


def test_attacks():
    figures = RESULTS["attack figures"]()
    (table,) = tables(document_of(figures))
    assert table.values[0][1:] == (figures.auc.value, figures.auc.low, figures.auc.high)
    assert rounded_down(table.cells[0][2], figures.auc.low)
    assert rounded_up(table.cells[0][3], figures.auc.high)
    roc = RESULTS["roc"]()
    line = drawn("roc", "roc")
    assert (line.x, line.y) == (tuple(roc.fpr), tuple(roc.tpr))
    bound = RESULTS["lower bound"]()
    shown = re.search(r"at least (\S+)", document_of(bound).verdict.text)[1]
    assert rounded_down(shown, bound.epsilon)
    disparity = RESULTS["disparity"]()
    (table,) = tables(document_of(disparity))
    assert [row[1] for row in table.values] == [group.members for group in disparity.groups]
    coverage = RESULTS["coverage"]()
    text = str(coverage)
    low, high = re.search(r"interval +(\S+) to (\S+)", text).groups()
    assert rounded_down(low, coverage.low)
    assert rounded_up(high, coverage.high)


@pytest.mark.parametrize("count", [1, 2, 100, 101, 5000, 10**6])
def test_ranks_hold_both_ends(count):
    ranks = drawn_ranks(count)
    assert (ranks[0], ranks[-1]) == (1, count)
    assert np.all(np.diff(ranks) > 0)
    assert len(ranks) <= 400


def test_ranked_figures_of_degenerate_values():
    texts = {"key": "k", "title": "t", "label": "l", "description": "d"}
    for values in ([0.0], [0.0, 0.0], [0.5, 0.5], [1e-9, 1.0]):
        for percent in (False, True):
            (panel,) = ranked_figure(np.array(values), **texts, percent=percent).panels
            assert panel.y.low < panel.y.high
            assert panel.x.low < panel.x.high
