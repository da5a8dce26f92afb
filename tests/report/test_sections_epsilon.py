"""The document of a choice of ε: its figures are those of the choice, bounds on the safe side."""

import dataclasses
import math
import re
from decimal import Decimal
from functools import cache

import numpy as np
import pytest

import expost
from expost.epsilon.black_box import BlackBox
from expost.epsilon.sweep import LawSweep
from expost.report import document_of, parse_json, render_json, render_markdown, render_text
from expost.report.document import Table, Widget
from expost.report.sections.epsilon_figures import epsilon_curves
from expost.report.slider import SHARES, epsilon_range, slider_of_choice, slider_widget
from expost.types import Audience
from read_figures import read

from .cells import column, section, table_of, tile
from .conftest import HOSTILE
from .epsilon_choices import KINDS, chosen, data

ENDS = "transition ends"


def gaussian_means(X, y, epsilon, size, rng):
    """A trainer of which only draws exist: the noisy mean of the first column."""
    return X[:, 0].mean() + rng.normal(size=(size, 1)) / epsilon


@cache
def choice_of(kind):
    if kind == "black box":
        X, y = data(rows=12)
        box = BlackBox(gaussian_means, draws=150, rows=(0, 1, 2))
        options = {
            "epsilons": [0.1, 1.0, 10.0],
            "models": 120,
            "random_state": 0,
            "max_posterior": 0.9,
        }
        return expost.choose_epsilon(X, y, mechanism=box, **options)
    return chosen(kind)


EVERY = (*KINDS, "black box")


@cache
def document(kind="laplace"):
    return document_of(choice_of(kind), command="expost profile people.csv")


def on_the_safe_side(shown, value, *, up):
    number, exact = read(shown), Decimal(repr(float(value)))
    beyond = number - exact if up else exact - number
    assert 0 <= beyond <= abs(exact) / 50 + Decimal("0.001"), (shown, value)


# -- whole -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
def test_it_is_whole_whatever_was_found(kind):
    described, choice = document(kind), choice_of(kind)
    assert described.kind == "epsilon"
    assert described.audience is Audience.CURATOR_ONLY
    assert parse_json(render_json(described)).documents == (described,)
    assert len({part.id for part in described.sections}) == len(described.sections)
    assert ("frontier" in described.figures) == (choice.utility is not None)
    # The first figure of the page, and of plot().
    assert [*described.figures].index("posterior") == (choice.utility is not None)
    assert {"posterior", "transition"} <= set(described.figures)
    assert described.facts["verdict"] == choice.verdict
    for text in (render_text(described), render_markdown(described), str(choice)):
        assert not {"nan", "None", "inf"} & set(re.findall(r"\w+", text))
        assert described.verdict.text in text.replace("\\", "")
    for alert in described.alerts:
        assert "which is not private" in alert.title or alert.severity == "note"
    assert described.alerts[0].severity == "review"


def test_hostile_text_is_text():
    choice = dataclasses.replace(
        chosen(), description=HOSTILE, notices=(HOSTILE,), read_from_data=(HOSTILE,)
    )
    described = document_of(choice, command=f"expost profile {HOSTILE}")
    assert parse_json(render_json(described)).documents == (described,)
    assert "\u202e" not in render_text(described)
    assert "\n" not in described.steps[0].text
    code = next(line for line in render_markdown(described).splitlines() if "    expost" in line)
    assert not re.search(r"(?<!\\)<", render_markdown(described).replace(code, ""))


def test_no_training_value_and_no_key_is_in_it():
    X, y = data()
    ids = [f"key-{row}" for row in range(len(X))]
    choice = expost.choose_epsilon(
        X, y, regularization=0.05, models=10, folds=3, data_norm=6.0, ids=ids, random_state=1
    )
    described = document_of(choice)
    canaries = {f"{abs(value):.{digits}g}" for value in X.ravel() for digits in (9, 12, 17)}
    for text in (render_text(described), render_markdown(described), render_json(described)):
        assert not [canary for canary in canaries if canary in text]
        assert "key-" not in text


# -- verdict and tiles -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
def test_the_verdict_names_the_epsilon_rounded_down(kind):
    choice, described = choice_of(kind), document(kind)
    tones = {"enough": "good", "most": "caution", "none": "bad", "useless": "bad"}
    assert described.verdict.tone == tones[choice.verdict]
    assert described.verdict.priority == 60
    if choice.recommended is None:
        assert described.facts["recommended"] is None
        assert tile(described, "Guarantee").value == "none"
        return
    shown = re.match(r"ε = (\S+) is (enough|the most)", described.verdict.text)
    on_the_safe_side(shown[1], choice.recommended, up=False)
    assert 0 <= choice.recommended - described.facts["recommended"] < 0.01 * choice.recommended
    assert read(tile(described, "Guarantee").value.removeprefix("ε = ")) == Decimal(
        repr(described.facts["recommended"])
    )
    if choice.utility is not None:
        learnt = re.search(
            r"reach (\d+) % of what a linear model can learn", described.verdict.text
        )
        assert int(learnt[1]) <= 100 * choice.share < int(learnt[1]) + 1 or int(learnt[1]) == 100


@pytest.mark.parametrize("kind", EVERY)
def test_tiles_hold_the_figures_of_the_choice(kind):
    choice, described = choice_of(kind), document(kind)
    epsilon, limit = choice.recommended or choice.ceiling, choice.limit
    assert read(tile(described, "Limit").value) == Decimal(repr(limit.max_posterior))
    if epsilon > 0:
        posterior = float(choice.posterior_at(np.array([epsilon]))[0])
        exposed = tile(described, "Most exposed row")
        on_the_safe_side(exposed.value, posterior, up=True)
        assert 100 * posterior <= exposed.people + 1e-6
        if choice.posteriors is not None:
            on_the_safe_side(
                exposed.lines[-1].rpartition(": ")[2], choice.posteriors.all_rows, up=True
            )
    useful = tile(described, "Useful?")
    if choice.utility is None:
        assert useful.value == "not measured"
        return
    curve = choice.utility.leading
    index = list(choice.utility.epsilons).index(epsilon)
    shown = [
        useful.value.rpartition(" ")[2],
        *(line.partition(" ")[0] for line in useful.lines[:2]),
    ]
    for text, value in zip(shown, (curve.mean[index], curve.best, curve.base_rate), strict=True):
        assert float(text.replace("−", "-")) == pytest.approx(value, abs=5.1e-4)


def test_the_guarantee_allows_what_the_mechanism_guarantees():
    choice, described = chosen("enough"), document("enough")
    mechanism = choice.plan(described.facts["recommended"])
    allowed, passed = tile(described, "Guarantee").lines[1:]
    worst = 1 / (1 + math.exp(-mechanism.worst_case))
    on_the_safe_side(re.search(r"at most (.+ %) certain", allowed)[1], worst, up=True)
    on_the_safe_side(passed.partition("probability ")[2], mechanism.worst_case_passed, up=True)
    # Pure ε: never passed.
    assert len(tile(document("laplace"), "Guarantee").lines) == 2
    # A prior of another size: certainty counts either answer.
    tenth = tile(document("gaussian"), "Guarantee").lines[1]
    perturbation = chosen("gaussian").plan(document("gaussian").facts["recommended"])
    certain = 1 / (1 + math.exp(-perturbation.worst_case - math.log(9)))
    on_the_safe_side(re.search(r"(?:at most|less than) (.+ %) certain", tenth)[1], certain, up=True)


def test_what_is_missing_is_named_with_its_numbers():
    choice = chosen("none")
    more = document("none").verdict.more
    rows = int(re.search(r"about ([\d,]+) rows", more)[1].replace(",", ""))
    assert choice.rows_needed <= rows <= 1.1 * choice.rows_needed
    on_the_safe_side(
        re.search(r"would take ε = (\S+),", more)[1], choice.recommendation.better, up=True
    )
    at = re.search(r"at ε = (\S+), the most", more)[1]
    on_the_safe_side(at, choice.ceiling, up=False)


def test_constants_that_were_read_are_to_be_reviewed():
    given = dataclasses.replace(chosen(), read_from_data=())
    read_too = dataclasses.replace(chosen(), read_from_data=("the scale of 'age'",))
    severities = [
        [alert.severity for alert in document_of(choice).alerts].count("review")
        for choice in (given, read_too)
    ]
    assert severities == [1, 2]
    assert any("the scale of 'age'" in alert.text for alert in document_of(read_too).alerts)


# -- tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
def test_the_table_of_tried_values(kind):
    choice, described = choice_of(kind), document(kind)
    utility = choice.utility
    if utility is None:
        assert not [part for part in described.sections if part.brief]
        return
    tried = table_of(described, "frontier")
    shown, epsilons = column(tried, "ε")
    assert epsilons == [*utility.epsilons.tolist(), None, None]
    for text, value in zip(shown[:-2], utility.epsilons, strict=True):
        on_the_safe_side(text, value, up=False)
    _, marks = column(tried, "")
    if choice.recommended is not None:
        assert epsilons[marks.index("recommended")] == choice.recommended
    assert marks[-2:] == ["best reachable, no noise", "base rate"]
    shown, posteriors = column(tried, "posterior")
    exact = choice.posterior_at(utility.epsilons)
    np.testing.assert_allclose(posteriors[:-2], exact, rtol=1e-12)
    for text, value in zip(shown[:-2], exact, strict=True):
        assert text == "< 100 %" or read(text) >= Decimal(repr(float(value)))
        assert text != "100 %"
    names = {"log_loss": "log loss", "auc": "AUC", "accuracy": "accuracy", "r2": "R²"}
    for name, curve in utility.curves.items():
        _, values = column(tried, names[name])
        np.testing.assert_array_equal(values, [*curve.mean, curve.best, curve.base_rate])
    shown, shares = column(tried, "share of gain")
    if utility.leading.best_gain > 0:
        np.testing.assert_array_equal(shares[:-2], utility.leading.share)
        for text, value in zip(shown, shares, strict=True):
            assert value < 0 if text == "< 0 %" else int(text[:-2]) <= 100 * value + 1e-9


@pytest.mark.parametrize("kind", EVERY)
def test_the_table_in_detail(kind):
    choice, described = choice_of(kind), document(kind)
    detailed = table_of(described, "epsilon-table")
    shown, epsilons = column(detailed, "ε")
    assert epsilons == sorted(epsilons)
    is_law = isinstance(choice.sweep, LawSweep)
    tried = choice.epsilons if choice.utility is None else choice.utility.epsilons
    sweep = dataclasses.replace(choice.sweep, epsilons=tried) if is_law else choice.sweep
    _, medians = column(detailed, "expected exposure, median row (nats)")
    _, largest = column(detailed, "largest (nats)")
    _, posteriors = column(detailed, "posterior, most exposed row")
    slider = slider_of_choice(choice)
    for index, epsilon in enumerate(tried.tolist()):
        at = epsilons.index(epsilon)
        middle = sorted(sweep.expected[index])[(choice.sweep.rows - 1) // 2]
        # A row's own, as on the slider, and not between it and the next.
        assert medians[at] == pytest.approx(middle, rel=1e-9)
        assert medians[at] == pytest.approx(slider.figures(epsilon).exposures[0], rel=1e-6)
        assert largest[at] == pytest.approx(sweep.expected[index].max(), rel=1e-9)
        assert posteriors[at] == pytest.approx(choice.posterior_at(tried)[index], rel=1e-9)
    _, marks = column(detailed, "")
    marked = {
        word: (value, text)
        for word_list, value, text in zip(marks, epsilons, shown, strict=True)
        for word in word_list.split(", ")
        if word
    }
    ends = {
        "recommended": choice.recommended,
        "largest within the limit": choice.ceiling,
        "transition begins": choice.low,
        ENDS: choice.high,
    }
    known = {word: e for word, e in ends.items() if e is not None and 0 < e < 1e10}
    if is_law:
        assert set(marked) == set(known)
    for word, (_, text) in marked.items():
        on_the_safe_side(text, known[word], up=word == ENDS)
    if "recommended" in marked:
        at = epsilons.index(marked["recommended"][0])
        assert posteriors[at] <= choice.limit.max_posterior


def test_shares_of_rows_that_left_the_plateau():
    choice = chosen()
    critical = np.sort(choice.critical_epsilon)
    values = dict(table_of(document(), "transition").values)
    assert values[0.0] == critical[0] == choice.low
    assert values[1.0] == critical[-1]
    assert 0.01 not in values  # 90 rows have no hundredth part.
    for share in (0.1, 0.5, 0.9):
        # At least that share has left by then, and not before.
        assert np.mean(critical <= values[share]) >= share
        assert np.mean(critical < values[share]) < share
    for (_, value), (_, text) in zip(
        *(getattr(table_of(document(), "transition"), name) for name in ("values", "cells")),
        strict=True,
    ):
        on_the_safe_side(text, value, up=False)
    assert table_of(document("still"), "transition").values[-1][1] > 1e10
    assert table_of(document("no plateau"), "transition").cells[0][1] == "any"
    sampled = choice_of("black box")
    first, *_ = table_of(document("black box"), "transition").values
    # A row of which nothing is known has left its plateau at every ε.
    assert first[1] == np.min(np.nan_to_num(sampled.critical_epsilon, nan=0.0))


# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
def test_series_are_those_of_the_choice(kind):
    choice, drawn = choice_of(kind), document(kind).figures
    curves = epsilon_curves(choice)
    np.testing.assert_allclose(curves.posterior, choice.posterior_at(curves.epsilons))
    assert np.all(np.diff(curves.posterior) >= -1e-12) or kind == "black box"
    (posterior,), (transition,) = drawn["posterior"].panels, drawn["transition"].panels
    np.testing.assert_array_equal(posterior.lines[0].y, curves.posterior)
    np.testing.assert_array_equal(posterior.lines[0].x, curves.epsilons)
    if curves.median_posterior is not None:
        np.testing.assert_array_equal(posterior.lines[1].y, curves.median_posterior)
        assert np.all(curves.median_posterior <= curves.posterior * (1 + 1e-9))
    assert posterior.rules[0].at == choice.limit.max_posterior
    for line, values in zip(transition.lines, curves.transition, strict=False):
        # What is not known is left out.
        np.testing.assert_array_equal(line.y, values[~np.isnan(values)])
    is_laplace = isinstance(choice.sweep, LawSweep) and choice.sweep.mechanism.noise == "laplace"
    assert curves.has_plateaus == is_laplace
    for figure in (drawn["posterior"], drawn["transition"]):
        for panel in figure.panels:
            assert (panel.x.quantity, panel.x.log) == ("epsilon", True)
            assert (panel.x.low, panel.x.high) == epsilon_range(choice)
            marks = [rule for rule in panel.rules if rule.axis == "x" and rule.to is None]
            ceiling = 0 < choice.ceiling < math.inf and choice.ceiling != choice.recommended
            assert len(marks) == (choice.recommended is not None) + ceiling
            for rule in marks:
                assert panel.x.low <= rule.at <= panel.x.high


@pytest.mark.parametrize("kind", EVERY)
def test_the_frontier_is_that_of_the_choice(kind):
    choice, described = choice_of(kind), document(kind)
    if choice.utility is None:
        assert choice.frontier == choice.alternatives == ()
        return
    utility, curve = choice.utility, choice.utility.leading
    own, *others = choice.frontier
    np.testing.assert_array_equal(own.posterior, choice.posterior_at(utility.epsilons))
    index = [*utility.epsilons].index(choice.recommended) if choice.recommended else None
    for panel, over in zip(
        described.figures["frontier"].panels, ("epsilons", "posterior"), strict=True
    ):
        marked = [line for line in panel.lines if line.dots]
        lines = [line for line in panel.lines if not line.dots]
        assert [line.name for line in lines] == [each.name for each in choice.frontier]
        assert len({line.role for line in lines}) == len(lines)
        for line, each in zip(lines, choice.frontier, strict=True):
            np.testing.assert_array_equal(line.x, getattr(each, over))
            np.testing.assert_array_equal(line.y, each.score)
        (band,) = panel.bands
        for series, values in (
            (lines[0].y, curve.mean),
            (band.x, lines[0].x),
            (band.low, curve.low),
            (band.high, curve.high),
        ):
            np.testing.assert_array_equal(series, values)
        best, base, *_ = panel.rules
        assert (best.at, base.at) == (curve.best, curve.base_rate)
        # The recommended point is marked once, inside of the panel.
        points = [] if index is None else [(lines[0].x[index], curve.mean[index])]
        assert [(line.x[0], line.y[0]) for line in marked] == points
        for x, y in points:
            assert panel.x.low <= x <= panel.x.high
            assert panel.y.low <= y <= panel.y.high
    (limit,) = (rule for rule in panel.rules if rule.axis == "x")
    assert limit.at == choice.limit.max_posterior
    shown = [
        block for block in section(described, "frontier-others").blocks if isinstance(block, Table)
    ]
    for other, each in zip(shown, others, strict=True):
        assert other.caption == each.name
        assert other.values == (*zip(each.epsilons, each.score, each.posterior, strict=True),)
        for text, posterior in zip(column(other, "posterior")[0], each.posterior, strict=True):
            on_the_safe_side(text, posterior, up=True)


@pytest.mark.parametrize("kind", ["objective", "regression"])
def test_what_one_more_unit_of_epsilon_buys(kind):
    utility = choice_of(kind).utility
    texts, rates = column(table_of(document(kind), "frontier"), "gain per ε")
    scores, sign = utility.leading.mean, -1 if utility.measure == "log_loss" else 1
    assert rates[-3:] == [None] * 3
    for index, rate in enumerate(rates[:-3]):
        step = utility.epsilons[index + 1] - utility.epsilons[index]
        gain = sign * (scores[index + 1] - scores[index])
        assert rate == pytest.approx(gain / step, rel=1e-6, abs=1e-9)
        if texts[index].startswith("<"):
            assert rate < read(texts[index][2:])
        else:
            assert float(read(texts[index])) == pytest.approx(rate, rel=0.05)


def test_plot_draws_the_frontier_side_by_side():
    made = choice_of("objective").plot()
    assert made.figure.key == "frontier"
    first, second = (ax.get_position() for ax in made.axes_)
    assert made.png()
    assert first.y0 == second.y0
    assert first.x1 < second.x0
    (legend,) = made.figure_.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == len(set(names))
    assert {curve.name for curve in choice_of("objective").frontier} <= set(names)


def losses_at(choice, distance, epsilon, draws=200_000):
    """Losses of a row in sampled noise as the definition has it, and the noise, in units of 1/β."""
    mechanism = dataclasses.replace(choice.sweep.mechanism, epsilon=epsilon)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(draws, mechanism.dimension))
    noise *= (rng.gamma(mechanism.dimension, 1.0, draws) / np.linalg.norm(noise, axis=1))[:, None]
    shift = np.zeros(mechanism.dimension)
    shift[0] = distance / mechanism.resolution
    return np.linalg.norm(noise - shift, axis=1) - np.linalg.norm(noise, axis=1), noise


def sampled_transition(choice, distance, epsilon):
    """Naively: s = (E∣ℓ∣/t − c)/(1 − c), c being its limit as t → 0."""
    loss, noise = losses_at(choice, distance, epsilon)
    t = distance / dataclasses.replace(choice.sweep.mechanism, epsilon=epsilon).resolution
    if choice.sweep.mechanism.dimension == 1:
        return loss.mean() / t
    first = np.abs(noise[:, 0] / np.linalg.norm(noise, axis=1)).mean()
    return (np.abs(loss).mean() / t - first) / (1 - first)


@pytest.mark.parametrize("kind", ["laplace", "line"])
def test_the_transition_is_that_of_sampled_losses(kind):
    choice = chosen(kind)
    curves = epsilon_curves(choice)
    distance, _ = choice.sweep.held
    for apart, values in zip((distance.max(), np.median(distance)), curves.transition, strict=True):
        for index in (30, 60, 90):
            naive = sampled_transition(choice, apart, float(curves.epsilons[index]))
            assert values[index] == pytest.approx(naive, abs=0.01)
    grid = np.log(curves.epsilons)
    assert np.interp(math.log(choice.low), grid, curves.transition.farthest) == pytest.approx(
        0.1, abs=0.01
    )
    if kind == "laplace":
        # Half of the rows are past the end: the median row is at nine tenths there.
        middle = np.interp(math.log(choice.high), grid, curves.transition.median)
        assert middle == pytest.approx(0.9, abs=0.01)
        # Naively: the quantile of losses drawn at the farthest distance.
        draws = losses_at(choice, choice.sweep.distances.farthest, choice.recommended)[0]
        naive = 1 / (1 + math.exp(-np.quantile(draws, choice.limit.quantile)))
        posterior = float(choice.posterior_at(np.array([choice.recommended]))[0])
        assert posterior == pytest.approx(naive, abs=0.003)


# -- the slider ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["laplace", "objective", "black box"])
def test_the_widget_begins_with_the_figures_of_the_slider(kind):
    choice = choice_of(kind)
    slider = slider_of_choice(choice)
    (widget,) = (
        block for block in section(document(kind), "epsilon-slider").blocks
        if isinstance(block, Widget)
    )  # fmt: skip
    assert widget == slider_widget(slider)
    assert (widget.name, widget.data["start"]) == ("slider", slider.start)
    assert (widget.data["exact"] is None) == (slider.exact is None) == (kind == "black box")
    (_, epsilon), *pairs = widget.blocks[0].pairs
    assert read(epsilon.partition(",")[0]) == Decimal(f"{slider.start:.3g}")
    start = slider.figures(slider.start)
    for (_, text), value in zip(pairs[: len(SHARES)], start.exposures, strict=True):
        on_the_safe_side(text.removeprefix("at most ").partition(" nats")[0], value, up=True)
    on_the_safe_side(pairs[len(SHARES)][1], start.posterior, up=True)
    assert len(pairs) == len(SHARES) + (1 if start.advantage is None else 3)
    if start.advantage is not None:
        on_the_safe_side(pairs[-1][1], start.advantage, up=True)
