"""The page of a choice of ε: its figures are those of the choice, and nothing else is on it."""

import dataclasses
import html
import json
import math
import re
from functools import cache

import numpy as np
import pytest

import expost
from expost.epsilon.sweep import LawSweep
from expost.report import (
    Choice,
    Origin,
    collect,
    collect_epsilon,
    render_html,
    render_json,
    render_markdown,
)
from expost.report.axes import LinearScale, LogScale, linear_ticks, log_ticks
from expost.report.epsilon_chart import epsilon_panels
from expost.report.epsilon_curves import epsilon_curves
from expost.report.transition_display import TransitionDisplay

from .conftest import HOSTILE
from .epsilon_choices import KINDS, chosen, data
from .pages import Page, check
from .test_html import coordinates


@cache
def summary_of(kind="laplace", **options):
    return collect(
        chosen(kind),
        command="expost profile people.csv",
        choices=[Choice(name="noise", value="laplace", origin=Origin.READ)],
        **options,
    )


def typed(text):
    """Numbers as the terminal has them: without separators, and powers of ten by an e."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    return re.sub(r"(?<![\d.])10⁻⁶", "1e-06", plain)


# What a reader sees ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_whole_whatever_was_found(kind):
    summary = summary_of(kind)
    page = Page(render_html(summary))
    check(page)
    for heading in (
        "The answer",
        "From much noise to little",
        "What to know",
        "The same in numbers",
        "Which rows leave the plateau when",
        "What a private choice would cost",
        "Choices made",
        "How to read this page",
    ):
        assert heading in page.text
    for word in ("nan", "None", "inf"):
        assert word not in page.text.split()
    for reason in chosen(kind).reasons:
        assert typed(" ".join(reason.split())) in typed(page.text)
    json.loads(render_json(summary), parse_constant=pytest.fail)
    text = render_markdown(summary)
    assert text.startswith("> **FAIL**")
    assert summary.answer[0].replace("\xa0", " ") in text.replace("\xa0", " ")
    measured = summary.epsilon.utility is not None
    assert page.tags.count("polygon") == measured
    assert f"The {'three' if measured else 'two'} charts share" in page.text
    assert page.text.index("FAIL For the curator only") < page.text.index("The answer")


def test_hostile_text_is_text():
    choice = dataclasses.replace(
        chosen(),
        description=HOSTILE,
        notices=(HOSTILE,),
        recommendation=dataclasses.replace(chosen().recommendation, reasons=(HOSTILE,)),
    )
    summary = collect(
        choice,
        command=f"expost profile {HOSTILE}",
        choices=[Choice(name=HOSTILE, value=HOSTILE, origin=Origin.GIVEN)],
        notices=[HOSTILE, "{{ 7 * 7 }}"],
        source=HOSTILE,
        made=HOSTILE,
        versions={HOSTILE: HOSTILE},
    )
    source = render_html(summary)
    page = Page(source)
    check(page)
    assert '<script>alert("x")</script><img src=x' in page.text
    assert "{{ 7 * 7 }}" in page.text
    # The page's own two, the data and the script, and no third.
    assert source.count("<script") == 2
    assert html.escape("<script>") in source
    text = render_markdown(summary)
    code = next(line for line in text.splitlines() if line.startswith("    expost profile"))
    # But for the command, which is code, nothing can be taken for markup.
    assert not re.search(r"(?<!\\)<", text.replace(code, ""))


def test_no_training_value_and_no_key_is_on_the_page():
    X, y = data()
    ids = [f"key-{row}" for row in range(len(X))]
    choice = expost.choose_epsilon(
        X, y, regularization=0.05, models=10, folds=3, data_norm=6.0, ids=ids, random_state=1
    )
    summary = collect(choice)
    shown = [render_html(summary), render_markdown(summary), render_json(summary)]
    canaries = {f"{abs(value):.{digits}g}" for value in X.ravel() for digits in (9, 12, 17)}
    for text in shown:
        assert not [canary for canary in canaries if canary in text]
        assert "key-" not in text
    assert [canary for canary in canaries if canary in shown[0] + f"{X[3, 1]:.9g}"]


def test_the_same_summary_gives_the_same_bytes():
    assert render_html(summary_of()) == render_html(summary_of.__wrapped__())
    assert "1999-12-31" in render_html(summary_of(made="1999-12-31"))


# Its figures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_has_the_figures_of_the_choice(kind):
    choice = chosen(kind)
    rows = {row.epsilon: row for row in summary_of(kind).epsilon.table}
    slider = summary_of(kind).epsilon.slider
    assert list(rows) == sorted(rows)
    tried = choice.epsilons if choice.utility is None else choice.utility.epsilons
    sweep = dataclasses.replace(choice.sweep, epsilons=tried)
    for place, epsilon in enumerate(tried.tolist()):
        row = rows[epsilon]
        assert row.posterior == pytest.approx(choice.posterior_at(tried)[place], rel=1e-9)
        # Of 90 rows the 45th, as on the slider, and not between it and the next.
        middle = sorted(sweep.typical[place])[44]
        assert row.middle == pytest.approx(middle, rel=1e-9)
        assert row.middle == pytest.approx(slider.figures(epsilon).typical[0], rel=1e-6)
        assert row.largest == pytest.approx(sweep.typical[place].max(), rel=1e-9)
        if choice.utility is None:
            assert row.scores == ()
            continue
        for score, curve in zip(row.scores, choice.utility.curves.values(), strict=True):
            figures = (score.mean, score.low, score.high)
            assert figures == (curve.mean[place], curve.low[place], curve.high[place])
    marks = {word: row for row in rows.values() for word in row.mark.split(", ") if word}
    ends = {
        "recommended": choice.recommended,
        "ceiling": choice.ceiling,
        "transition begins": choice.low,
        "transition ends": choice.high,
    }
    shown = {word: e for word, e in ends.items() if e is not None and 0 < e < math.inf}
    assert set(marks) == set(shown)
    for word, row in marks.items():
        # Towards safety: what is kept up to an ε, or lost from there on, is so at what is shown.
        short = (
            row.epsilon - shown[word] if word == "transition ends" else shown[word] - row.epsilon
        )
        assert 0 <= short < 0.01 * shown[word]
    if "recommended" in marks:
        assert marks["recommended"].posterior <= choice.limit.max_posterior


@pytest.mark.parametrize("kind", ["laplace", "line", "regression", "unmeasured", "none"])
def test_an_end_has_the_same_digits_wherever_it_stands(kind):
    choice, summary = chosen(kind), summary_of(kind)
    page = Page(render_html(summary)).text
    figure = next(
        text.get_text()
        for ax in TransitionDisplay.from_choice(choice).plot().axes_
        if (text := ax.get_legend().get_title()).get_text()
    )
    high = [
        *re.findall(r"from ε = (\S+) on \S+\s%\sof the rows have hardly any protection", page),
        *re.findall(r"Shaded: the transition, from ε = \S+ to ε = (\S+)\.", page),
        *re.findall(r"(\d\S*) (?:[a-z ]+, )*transition ends", page),
        *re.findall(r"to (\S+)$", figure),
        *re.findall(r"\| (\S+) \| [a-z, ]*transition ends \|", render_markdown(summary)),
    ]
    low = [
        *re.findall(r"Up to ε = (\S+) the exposure of every row", page),
        *re.findall(r"Shaded: the transition, from ε = (\S+) to", page),
        *re.findall(r"(\d\S*) (?:[a-z ]+, )*transition begins", page),
        *re.findall(r"transition, (\S+) to", figure),
        *re.findall(r"\| (\S+) \| [a-z, ]*transition begins \|", render_markdown(summary)),
    ]
    assert len(high) == len(low) == 5
    assert len(set(high)) == len(set(low)) == 1
    printed = re.search(r"Up to ε = (\S+) the exposure .*; from ε = (\S+) on \S+ %", str(choice))
    assert (typed(low[0]), typed(high[0])) == printed.groups()
    assert float(printed[1]) <= choice.low
    assert float(printed[2]) >= choice.high


def test_a_belief_never_reads_like_a_certainty():
    summary = summary_of()
    assert max(row.posterior for row in summary.epsilon.table) < 1
    assert "100 %</td>" not in render_html(summary)
    assert "< 100 %" in Page(render_html(summary)).text.replace("\xa0", " ")


def told(summary):
    """The page's answer, and the sentences that open the section."""
    return (*summary.answer, *summary.lead(summary.epsilon))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_answer_says_which_epsilon_how_sure_and_at_what_cost(kind):
    choice = chosen(kind)
    answer = " ".join(told(summary_of(kind))).replace("\xa0", " ")
    (shown,) = re.findall(r"ε = ([\d.,]+) is the most that the limit allows", answer)
    epsilon = float(shown.replace(",", ""))
    assert 0.99 * choice.recommended < epsilon <= choice.recommended
    limit, sweep = choice.limit, choice.sweep
    posterior = float(choice.posterior_at(np.array([choice.recommended]))[0])
    assert (
        f"at most {math.ceil(1000 * posterior) / 10:.1f} % in {100 * limit.quantile:g} % of"
        f" releases, from a prior of {100 * limit.prior:g} %" in answer
    )
    # Naively: the quantile of losses drawn at the farthest distance, under norm-Laplace noise.
    if kind == "laplace":
        draws = losses_at(choice, sweep.distances.farthest, choice.recommended)[0]
        naive = 1 / (1 + math.exp(-np.quantile(draws, limit.quantile)))
        assert posterior == pytest.approx(naive, abs=0.003)
    curve = choice.utility.leading
    place = list(choice.utility.epsilons).index(choice.recommended)
    assert (
        f"held-out log loss {curve.mean[place]:.3f}, {curve.base_rate:.3f} by the base rate,"
        f" {curve.best:.3f} at best" in answer
    )


def test_when_there_is_no_answer_the_reasons_are_the_answer():
    summary = summary_of("none")
    assert summary.epsilon.recommended is None
    which, why, what = summary.answer
    assert typed(which) == typed(chosen("none").reasons[0])
    assert which.startswith("No ε within the limit makes a model that is better")
    assert "the most exposed row was in the training data is at most" in why
    assert what.startswith("Gather more rows")


def test_shares_of_rows_that_left_the_plateau():
    choice = chosen()
    critical = np.sort(choice.critical_epsilon)
    found = {entry.share: entry.epsilon for entry in summary_of().epsilon.critical}
    assert found[0.0] == critical[0] == choice.low
    assert found[1.0] == critical[-1]
    assert 0.01 not in found  # 90 rows have no hundredth part.
    for share in (0.1, 0.5, 0.9):
        # At least that share has left by then, and not before.
        assert np.mean(critical <= found[share]) >= share
        assert np.mean(critical < found[share]) < share
    still = summary_of("still").epsilon
    assert still.critical[-1].epsilon > 1e10
    assert not chosen("no plateau").low > 0
    assert summary_of("no plateau").epsilon.critical[0].epsilon is None
    assert "any" in Page(render_html(summary_of("no plateau"))).text.split()


def test_what_a_private_choice_would_lose():
    summary = summary_of()
    # (2·sensitivity/ε)·ln(k/β) at sensitivity 1, ε = 0.1 and β = 0.05: the bound of select_privately.
    assert summary.epsilon.candidates == len(chosen().epsilons) == 25
    assert summary.epsilon.lost == pytest.approx(2 / 0.1 * math.log(25 / 0.05))
    assert "at most 125 such rows" in Page(render_html(summary)).text


# The curves ------------------------------------------------------------------------------------


def losses_at(choice, distance, epsilon, draws=200_000):
    """Losses of a row in sampled noise as the definition has it, and the noise, in units of 1/β."""
    how = dataclasses.replace(choice.sweep.mechanism, epsilon=epsilon)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(draws, how.dimension))
    noise *= (rng.gamma(how.dimension, 1.0, draws) / np.linalg.norm(noise, axis=1))[:, None]
    shift = np.zeros(how.dimension)
    shift[0] = distance / how.resolution
    return np.linalg.norm(noise - shift, axis=1) - np.linalg.norm(noise, axis=1), noise


def sampled_way(choice, distance, epsilon):
    """Naively: s = (E∣ℓ∣/t − c)/(1 − c), c being its limit as t → 0."""
    loss, noise = losses_at(choice, distance, epsilon)
    t = distance / dataclasses.replace(choice.sweep.mechanism, epsilon=epsilon).resolution
    start = float(np.mean(np.abs(noise[:, 0]) / np.linalg.norm(noise, axis=1)))
    if noise.shape[1] == 1:
        return loss.mean() / t
    return (np.abs(loss).mean() / t - start) / (1 - start)


@pytest.mark.parametrize("kind", ["laplace", "line"])
def test_the_way_is_that_of_sampled_noise_and_crosses_where_the_transition_is(kind):
    choice = chosen(kind)
    curves = epsilon_curves(choice)
    distance, _ = choice.sweep.held
    for apart, way in ((distance.max(), curves.way[0]), (np.median(distance), curves.way[1])):
        for place in (30, 60, 90):
            naive = sampled_way(choice, apart, float(curves.epsilons[place]))
            assert way[place] == pytest.approx(naive, abs=0.01)
    grid = np.log(curves.epsilons)
    assert np.interp(math.log(choice.low), grid, curves.way.farthest) == pytest.approx(
        0.1, abs=0.01
    )
    if kind == "laplace":
        # Half of the rows are past the end: the median row is at nine tenths there.
        middle = np.interp(math.log(choice.high), grid, curves.way.median)
        assert middle == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_the_posteriors_are_those_of_the_choice(kind):
    choice = chosen(kind)
    curves = epsilon_curves(choice)
    np.testing.assert_allclose(curves.posterior, choice.posterior_at(curves.epsilons))
    assert np.all(curves.middle_posterior <= curves.posterior * (1 + 1e-9))
    assert np.all(np.diff(curves.posterior) >= -1e-12)
    # Under a public limit the transition may end far beyond any ε that is of use.
    ends = (choice.low, choice.ceiling, *(() if choice.is_public else (choice.high,)))
    for end in ends:
        if 0 < end < math.inf:
            assert curves.axis[0] < end < curves.axis[1]
    tried = choice.epsilons if choice.utility is None else choice.utility.epsilons
    assert curves.axis[0] <= tried[0]
    assert curves.axis[1] >= tried[-1]
    assert curves.is_way == (choice.sweep.mechanism.noise == "laplace")


class Estimated:
    """A sweep of which nothing but its values at its own ε is known."""

    def __init__(self, sweep):
        self.sweep = sweep
        far = sweep.one_sidedness.farthest.copy()
        far[:3] = math.nan
        self.one_sidedness = sweep.one_sidedness._replace(farthest=far)

    def __getattr__(self, name):
        return getattr(self.sweep, name)


def test_a_mechanism_that_can_only_be_sampled_has_a_page_too():
    choice = dataclasses.replace(chosen("unmeasured"), sweep=Estimated(chosen().sweep))
    assert not isinstance(choice.sweep, LawSweep)
    summary = collect_epsilon(choice)
    assert len(summary.curve) == len(choice.epsilons) == len(summary.table)
    assert summary.curve[0].way is None
    assert summary.curve[0].middle_posterior is None
    page = Page(render_html(collect(choice)))
    assert "How one-sided the evidence about a row is" in page.text
    posterior, way = epsilon_panels(summary)
    assert len(coordinates(way.lines[0].points)) == len(choice.epsilons) - 3
    assert len(posterior.lines) == 2
    json.loads(render_json(collect(choice)), parse_constant=pytest.fail)


# The charts ------------------------------------------------------------------------------------


def read_axis(ticks, log):
    """A function from the drawing's units to values, fitted to what the ticks say."""
    powers = {"⁻": "-", **{sign: str(digit) for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}}

    def value(label):
        plain = label.replace("\xa0", "").replace(",", "").replace("−", "-")
        if plain.endswith("%"):
            return float(plain.removesuffix("%")) / 100
        if plain.startswith("10") and any(sign in plain for sign in powers):
            return 10.0 ** int("".join(powers[sign] for sign in plain[2:]))
        return float(plain)

    values = np.array([value(tick.label) for tick in ticks])
    values = np.log10(values) if log else values
    slope = np.polyfit([tick.at for tick in ticks], values, 1)
    return lambda at: 10 ** np.polyval(slope, at) if log else np.polyval(slope, at)


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "regression", "line", "still"])
def test_everything_is_drawn_where_the_ticks_say(kind):
    choice = chosen(kind)
    summary = summary_of(kind).epsilon
    for panel in epsilon_panels(summary):
        x, y = read_axis(panel.x_ticks, log=True), read_axis(panel.y_ticks, log=False)
        assert 2 <= len(panel.y_ticks) <= 6
        assert 2 <= len(panel.x_ticks) <= 10
        line = coordinates(panel.lines[0].points)
        if panel.key == "utility":
            epsilons = choice.utility.epsilons
            curve = choice.utility.leading
            np.testing.assert_allclose(x(line[:, 0]), epsilons, rtol=0.02)
            ends = y(panel.bottom), y(panel.top)
            band = coordinates(panel.band)
            count = len(epsilons)
            for drawn, figures in (
                (line[:, 1], curve.mean),
                (band[:count, 1], curve.high),
                (band[count:, 1][::-1], curve.low),
            ):
                # What lies past an end of the axis is drawn past it.
                np.testing.assert_allclose(
                    np.clip(y(drawn), *ends), np.clip(figures, *ends), atol=0.006 * np.ptp(ends)
                )
            levels = [y(coordinates(part.points)[0, 1]) for part in panel.lines[1:]]
            expected = (curve.best, curve.base_rate)
            np.testing.assert_allclose(levels, expected, atol=0.006 * np.ptp(ends))
        else:
            epsilons = [point.epsilon for point in summary.curve]
            np.testing.assert_allclose(x(line[:, 0]), epsilons, rtol=0.02)
            pick = {"posterior": lambda p: p.posterior, "way": lambda p: p.way}[panel.key]
            np.testing.assert_allclose(y(line[:, 1]), [*map(pick, summary.curve)], atol=0.01)
        left, width = panel.shade
        assert x(left) == pytest.approx(choice.low, rel=0.03)
        end = min(choice.high, summary.axis[1])
        assert x(left + width) == pytest.approx(end, rel=0.03)
        marks = {mark.style: x(mark.at) for mark in panel.marks}
        assert ("chosen" in marks) == (choice.recommended is not None)
        if "chosen" in marks:
            assert marks["chosen"] == pytest.approx(choice.recommended, rel=0.03)
        if "limit" in marks:
            assert marks["limit"] == pytest.approx(choice.ceiling, rel=0.03)
        for mark in panel.marks:
            assert panel.left <= mark.at <= panel.right


def test_a_bound_that_is_the_answer_is_marked_once():
    (mark,) = epsilon_panels(summary_of("unmeasured").epsilon)[0].marks
    assert mark.style == "chosen"
    first = epsilon_panels(summary_of("enough").epsilon)[0].marks
    assert {mark.style for mark in first} == {"chosen", "limit"}
    # Their labels hang on either side.
    anchors = [mark.anchor for mark in sorted(first, key=lambda mark: mark.at)]
    assert anchors == ["end", "start"]
    (alone,) = epsilon_panels(summary_of("none").epsilon)[0].marks
    assert alone.style == "limit"


def test_ticks_of_all_sizes():
    for width in (0.003, 0.01, 0.04, 0.31, 1.0, 7.0, 46.0):
        for low in (0.0, -0.7 * width, 0.123):
            scale = LinearScale(low=low, high=low + width, start=200, end=0)
            ticks = linear_ticks(scale, percent=False)
            values = [float(tick.label.replace("−", "-")) for tick in ticks]
            assert 2 <= len(ticks) <= 6
            assert len(set(values)) == len(values)
            for tick, value in zip(ticks, values, strict=True):
                assert tick.at == pytest.approx(scale(value), abs=0.1)
    for decades in (0.4, 2, 5, 9, 40):
        scale = LogScale(low=0.02, high=0.02 * 10**decades, start=0, end=500)
        assert 1 <= len(log_ticks(scale, most=8)) <= 9


def test_the_worst_regressions_are_cut_off():
    choice = chosen("regression")
    r2 = dataclasses.replace(choice.utility.leading, low=choice.utility.leading.low - 1e6)
    utility = dataclasses.replace(choice.utility, curves={"r2": r2})
    panel = epsilon_panels(collect_epsilon(dataclasses.replace(choice, utility=utility)))[-1]
    y = read_axis(panel.y_ticks, log=False)
    assert -2 < y(panel.bottom) < 0 < y(panel.top) < 1.5


def test_the_worst_log_losses_are_cut_off():
    """At ε = 0.01 it is 9.4, and what matters lies between 0.41 and the base rate's 0.69."""
    assert chosen().utility.leading.mean.max() > 5
    panel = epsilon_panels(summary_of().epsilon)[-1]
    y = read_axis(panel.y_ticks, log=False)
    assert 0.3 < y(panel.bottom) < 0.41
    assert 0.8 < y(panel.top) < 1.1
