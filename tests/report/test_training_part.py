"""A training on a page: what its steps promise, and how its rows' losses grew."""

import dataclasses
import html
import math
import re

import numpy as np
import pytest
from scipy.stats import norm

import expost
from expost.errors import InvalidInput
from expost.mechanisms.dpsgd import Adversary, SGDMechanism, Transcript
from expost.profiles.transcript import individual_epsilon, transcript_profile
from expost.report import (
    collect,
    collect_training,
    parse_json,
    render_html,
    render_json,
    render_markdown,
)
from expost.report.training_chart import training_panels
from expost.risk.dpsgd import DPSGD
from expost.types import Audience

from .audits import audited
from .conftest import HOSTILE, fitted
from .epsilon_choices import chosen
from .pages import Page, check
from .test_audits_part import sweep_of
from .test_epsilon_page import read_axis
from .test_html import coordinates
from .test_published_part import report
from .test_risk_part import plain, spaced
from .test_texts import unescaped

ROWS, EPOCHS = 60, 8


def trained(*, rate=1.0, adversary=Adversary.KNOWN_BATCHES, epochs=EPOCHS, sigma=3.0, **options):
    """A run whose gradients are of fixed lengths."""
    rng = np.random.default_rng(1)
    how = SGDMechanism(rows=ROWS, noise_multiplier=sigma, clip=1.0, sampling_rate=rate, **options)
    found, scale = Transcript(how, adversary=adversary), how.noise_scale
    length = rng.uniform(0.1, 1.0, ROWS)
    for _ in range(epochs):
        for _ in range(round(1 / rate)):
            batch = rng.uniform(size=ROWS) < rate
            noise = scale * length * rng.normal(size=ROWS)
            if found.adversary is Adversary.HIDDEN_BATCHES:
                inner = noise + batch * length**2
                found.add_hidden(np.arange(ROWS), inner, length**2, scale, rate)
            else:
                rows = np.flatnonzero(batch)
                found.add_known(rows, noise[rows], length[rows] ** 2, scale)
            found.end_step()
        found.end_epoch()
    return found


@dataclasses.dataclass
class Run:
    """What a training or a tracker looks like from here."""

    transcript: Transcript
    guarantee: object = None
    is_local: bool = False

    def profile(self):
        return transcript_profile(self.transcript, promised=not self.is_local)


def naive_delta(epsilon, mu):
    """δ(ε) of Gaussian noise (Balle and Wang 2018)."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def test_the_figures_are_those_of_the_run():
    run = trained()
    summary = collect(run)
    part, page, text = summary.training, Page(render_html(summary)), render_markdown(summary)
    check(page)
    assert [*summary.by_name] == ["profile", "beliefs", "training"]
    assert page.sections.count("training") == 1
    assert summary.audience is part.audience is Audience.FAIL
    worst = max(range(ROWS), key=lambda row: abs(run.loss[row]))
    assert (part.row, part.loss, part.steps) == (worst, run.loss[worst], EPOCHS)
    for point, losses in zip(part.epochs, run.epochs, strict=True):
        exposure = sorted(abs(float(loss)) for loss in losses)
        assert point.middle == exposure[math.ceil(0.5 * ROWS) - 1]
        assert point.late == exposure[math.ceil(0.99 * ROWS) - 1]
        assert point.largest == exposure[-1]
        assert point.own == float(losses[worst])
    # T full-batch steps are one Gaussian mechanism of μ = √T/σ.
    assert naive_delta(part.epsilon, math.sqrt(EPOCHS) / 3) <= 1e-5
    assert naive_delta(part.epsilon * 0.99, math.sqrt(EPOCHS) / 3) > 1e-5
    assert (part.spent[0].steps, part.spent[-1].steps) == (1, EPOCHS)
    for one in part.spent:
        assert naive_delta(one.epsilon, math.sqrt(one.steps) / 3) <= 1e-5
        assert naive_delta(one.epsilon * 0.99, math.sqrt(one.steps) / 3) > 1e-5
    own = individual_epsilon(run, 1e-5)
    assert part.own.largest == np.max(own.epsilon) <= part.epsilon
    assert part.own.middle == np.sort(own.epsilon)[math.ceil(0.5 * ROWS) - 1]
    shown = re.search(r"promise ε = ([\d.]+)", summary.answer[0])[1]
    assert part.epsilon <= plain(shown) <= 1.002 * part.epsilon
    sure = 1 / (1 + math.exp(-abs(part.loss)))
    assert f"{math.ceil(1000 * sure) / 10:.1f}\N{NO-BREAK SPACE}% sure" in summary.answer[1]
    for sentence in (*summary.answer, *part.answer):
        assert page.blocks.count(spaced(sentence)) == 1
        assert sentence in unescaped(text)
    for name, value in part.facts:
        assert f"| {name} | {value} |" in unescaped(text)
    assert parse_json(render_json(summary)) == summary


def test_it_is_drawn_where_the_ticks_say():
    part = collect_training(trained())
    losses, spent = training_panels(part)
    x, y = read_axis(losses.x_ticks, log=False), read_axis(losses.y_ticks, log=False)
    for line, values in zip(
        losses.lines,
        (
            [abs(one.own) for one in part.epochs],
            [one.largest for one in part.epochs],
            [one.late for one in part.epochs],
            [one.middle for one in part.epochs],
        ),
        strict=True,
    ):
        drawn = coordinates(line.points)
        np.testing.assert_allclose(x(drawn[:, 0]), range(1, EPOCHS + 1), atol=0.02)
        np.testing.assert_allclose(y(drawn[:, 1]), values, atol=0.02)
    drawn = coordinates(spent.lines[0].points)
    y = read_axis(spent.y_ticks, log=False)
    np.testing.assert_allclose(y(drawn[:, 1]), [one.epsilon for one in part.spent], atol=0.02)
    assert training_panels(collect_training(trained(epochs=1))) == ()


def test_batches_that_are_known_and_hidden_ones():
    known = trained(rate=0.25)
    steps = known.steps
    alone = collect_training(known)
    # A transcript of known batches does not say what sampling would have hidden.
    assert (alone.epsilon, alone.spent) == (None, ())
    assert alone.known_epsilon == known.guarantee().epsilon(1e-5)
    assert alone.headline.epsilon.endswith("to whoever knows the batches.")
    promise = DPSGD(noise_multiplier=3.0, sampling_rate=0.25, steps=steps)
    told = collect_training(Run(transcript=known, guarantee=lambda: promise))
    assert told.epsilon == promise.epsilon(1e-5) < told.known_epsilon
    assert "to whoever does not know the batches, and ε" in told.headline.epsilon
    assert told.spent[0].epsilon < told.spent[-1].epsilon == told.epsilon
    assert (told.spent[0].steps, told.spent[-1].steps) == (1, steps)
    # A tracker tells it when it is asked, a training has it at hand.
    short = trained(rate=0.25, epochs=1)
    promise = DPSGD(noise_multiplier=3.0, sampling_rate=0.25, steps=short.steps)
    at_hand = collect_training(Run(transcript=short, guarantee=promise))
    assert at_hand.epsilon == promise.epsilon(1e-5)
    hidden = trained(rate=0.25, epochs=1, adversary=Adversary.HIDDEN_BATCHES)
    part = collect_training(hidden)
    assert part.epsilon == pytest.approx(promise.epsilon(1e-5), rel=1e-6)
    assert (part.known_epsilon, part.knows_batches) == (None, False)
    assert "which an attacker is not told" in part.batches
    assert "which an attacker knows" in alone.batches


def test_what_is_not_promised_is_not_told():
    local = collect(Run(transcript=trained(), is_local=True))
    part = local.training
    assert (part.epsilon, part.known_epsilon, part.spent, part.own) == (None, None, (), None)
    assert local.answer[0].startswith("This training promises no ε")
    assert any("local sensitivity" in notice for notice in local.notices)
    # Where a filter cut in, or the noise changed, ε after some of the steps is not known.
    filtered = collect_training(trained(norm_budget=1.0))
    assert filtered.own.filtered
    assert filtered.spent == ()
    assert filtered.epsilon < collect_training(trained()).epsilon
    assert "a filter keeps every row to that" in " ".join(filtered.answer)
    changed = trained(epochs=4)
    changed.add_known(np.arange(ROWS), np.zeros(ROWS), np.full(ROWS, 0.1), 9.0)
    changed.end_step()
    assert collect_training(changed).spent == ()
    assert collect_training(changed).epsilon is not None
    replaced = collect_training(trained(relation="replace"))
    assert ("compared with", "the data with the row replaced") in replaced.facts
    assert replaced.own is None
    assert replaced.spent[-1].steps == EPOCHS


@pytest.mark.parametrize("run", [Transcript(SGDMechanism(rows=3, noise_multiplier=1, clip=1)), 7])
def test_nothing_but_a_run_is_a_training(run):
    with pytest.raises(InvalidInput, match="must be a run of DP-SGD"):
        collect_training(run)
    with pytest.raises(InvalidInput):
        collect(object())


def test_its_profile_and_beliefs_go_with_it():
    run = trained()
    profile = transcript_profile(run, ids=[f"id {row}" for row in range(ROWS)])
    both = collect(run, profile)
    assert both.profile.top[0].key == f"id {both.training.row}"
    assert collect(run).profile.top[0].key == str(both.training.row)
    # Of the two that tell of one run, the training is on top of the page.
    assert both.answer == collect(run).answer
    assert "promise ε =" in both.answer[0]
    # The profile of another model has its own say.
    other = collect(run, fitted(rows=20)[3])
    assert other.profile.headline == collect(fitted(rows=20)[3]).profile.headline
    assert other.profile.headline != both.profile.headline
    alone = collect(profile)
    assert alone.training is None
    # The profile alone knows a bound with exceptions, which is no ε.
    assert "except with probability" in alone.answer[0]
    assert "ε =" not in alone.answer[0]


def test_long_trainings_are_thinned_out():
    part = collect_training(trained(epochs=150, sigma=20.0))
    assert len(part.epochs) == 60
    assert (part.epochs[0].epoch, part.epochs[-1].epoch) == (1, 150)
    assert len(part.shown_epochs) == 8
    assert part.shown_epochs[-1] == part.epochs[-1]
    assert len(part.spent) <= 33


@pytest.mark.parametrize("name", [HOSTILE, "<script>alert(1)</script>"])
def test_hostile_text_is_text(name):
    profile = transcript_profile(trained(), description=name, ids=(name,) * ROWS, notices=(name,))
    summary = collect(trained(), profile, source=name, notices=[name])
    source, text = render_html(summary), render_markdown(summary)
    check(Page(source))
    assert html.escape("<script>alert(") in source
    assert not re.search(r"(?<!\\)<(?!\s)", text)
    assert parse_json(render_json(summary)) == summary


def test_a_page_of_all_parts_has_each_section_once_and_in_order(laplace):
    """Profile, choice, who, beliefs, promise, report, training, attacks, attacks over ε."""
    release, _, y, profile = laplace
    asked = report().lookup({"age": 40, "town": "Oslo"})
    results = [
        sweep_of("usual"),
        audited("promised"),
        trained(epochs=3),
        report(),
        expost.identifiability(epsilon=1.0, delta=1e-5),
        profile.identifiability(),
        chosen("laplace"),
        profile,
    ]
    summary = collect(
        *results, release=release, groups=[profile.by(y, name="answer")], answers=asked
    )
    order = ["profile", "epsilon", "beliefs", "risk", "published", "training", "audit", "audits"]
    assert [*summary.by_name] == order
    page, text = Page(render_html(summary)), render_markdown(summary)
    check(page)
    wanted = ["profile", "transition", "groups", "beliefs", "risk", "published", "training"]
    wanted += ["roc", "audits", "reading"]
    assert [name for name in page.sections if name in wanted] == wanted
    assert summary.audience is Audience.FAIL
    assert [*summary.public().by_name] == ["risk", "published"]
    places = [
        text.index(f"## {heading}")
        for heading in (
            "How exposed the rows are",
            "From much noise to little",
            "How sure an attacker gets of each row",
            "What the promise allows",
            "What is known of your row",
            "How it was trained",
            "What attacks find",
            "Attacks and theory over ε",
        )
    ]
    assert places == sorted(places)
    assert parse_json(render_json(summary)) == summary
    small = fitted(rows=20)[3]
    assert [*collect(small).by_name] == ["profile", "beliefs"]
