"""Beliefs on a page: as many rows as pass them, and every figure towards more exposed."""

import dataclasses
import html
import math
import re
from itertools import pairwise

import numpy as np
import pytest

import expost
from expost import Profile
from expost.errors import InvalidInput
from expost.mechanisms import RowLosses
from expost.noise import GaussianLaw
from expost.profiles.posterior import RowIdentifiability
from expost.report import (
    collect,
    collect_beliefs,
    parse_json,
    render_html,
    render_json,
    render_markdown,
)
from expost.risk import GaussianNoise
from expost.types import Audience, Neighbouring

from .conftest import HOSTILE, fitted, noiseless, synthetic
from .pages import Page, check
from .test_risk_part import plain, sigmoid, spaced
from .test_texts import unescaped


def losses_of(loss, width=0.05, **changes):
    loss = np.asarray(loss, dtype=np.float64)
    given = {
        "loss": loss,
        "low": loss - width,
        "high": loss + width,
        "distance": np.ones(len(loss)),
        "distance_error": np.zeros(len(loss)),
        "relation": Neighbouring.REMOVE,
        "law": GaussianLaw(separation=np.nan_to_num(np.abs(loss), nan=1.0) + 0.1),
        "far_law": GaussianLaw(separation=np.nan_to_num(np.abs(loss), nan=1.0) + 0.2),
        "worst_case": 9.0,
        "worst_case_passed": 1e-5,
        "guarantee": GaussianNoise(mu=1.5),
    }
    return RowLosses(**(given | changes))


def beliefs(loss, *, prior=0.5, ids=None, unit="row", width=0.05, **changes):
    return RowIdentifiability(
        losses=losses_of(loss, width, **changes),
        prior=prior,
        description="a model",
        ids=ids,
        unit=unit,
    )


LOSS = np.concatenate([np.linspace(-3, 3, 61), [5.0, -6.0, 0.4, 0.4]])


@pytest.mark.parametrize("prior", [0.5, 0.01, 0.9])
def test_rows_are_counted_one_by_one(prior):
    found = beliefs(LOSS, prior=prior)
    part = collect_beliefs(found)
    odds = prior / (1 - prior)
    for level, times in zip(part.levels, (1.5, 3.0, 9.0, 99.0), strict=True):
        raised = times * odds / (1 + times * odds)
        assert level.belief == pytest.approx(raised, rel=0.05)
        mirrored = times / odds / (1 + times / odds)
        assert level.doubt == pytest.approx(mirrored, rel=0.05)
        surer = [sigmoid(math.log(odds) + loss + 0.05) > level.belief for loss in LOSS]
        assert level.rows == sum(surer)
        doubted = [sigmoid(-math.log(odds) - loss + 0.05) > level.doubt for loss in LOSS]
        assert level.rows_out == sum(doubted)
    if prior == 0.5:
        assert [level.belief for level in part.levels] == [0.6, 0.75, 0.9, 0.99]
        assert [level.doubt for level in part.levels] == [0.6, 0.75, 0.9, 0.99]
    page, text = Page(render_html(collect(found))), render_markdown(collect(found))
    check(page)
    for level in part.levels:
        share = sum(sigmoid(math.log(odds) + loss + 0.05) > level.belief for loss in LOSS)
        assert f"| {100 * level.belief:g}\N{NO-BREAK SPACE}% | {share} |" in text


def test_quantiles_are_rows_own_and_rounded_up():
    part = collect_beliefs(beliefs(LOSS))
    high = np.sort(LOSS) + 0.05
    for quantile in part.quantiles:
        assert np.mean(high <= quantile.log_odds) >= quantile.share
        assert np.mean(high < quantile.log_odds) < quantile.share
        exact = 100 * sigmoid(quantile.log_odds)
        assert exact * (1 - 1e-12) <= plain(quantile.text) <= exact + 0.11
    assert [quantile.share for quantile in part.quantiles] == [0.5, 0.9, 1.0]


def test_the_surest_rows_in_and_out_are_named_with_their_intervals():
    ids = tuple(f"person {place}" for place in range(len(LOSS)))
    summary = collect(beliefs(LOSS, ids=ids))
    part, page = summary.beliefs, Page(render_html(summary))
    assert (part.surest.key, part.least.key) == ("person 61", "person 62")
    assert (part.surest.low, part.surest.log_odds, part.surest.high) == (4.95, 5.0, 5.05)
    assert part.either_way == pytest.approx(6.05)
    assert sum("row person 61, proved" in block for block in page.blocks) == 1
    wide = collect_beliefs(beliefs(LOSS, width=0.5)).surest
    low, high = re.findall(r"[\d.]+(?=\s%)", wide.interval_text)
    assert float(low) <= 100 * sigmoid(4.5) < float(low) + 0.11
    assert float(high) - 0.11 < 100 * sigmoid(5.5) <= float(high)
    assert "within 0.1" in collect_beliefs(beliefs(LOSS, width=1e-9)).surest.interval_text


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        # 1 − sigmoid(ℓ) by hand; the more often right, the more exposed, so k is rounded up.
        (math.log(99), "wrong about it 1 time in 100"),
        (math.log(9999), "wrong about it 1 time in 10,000"),
        (math.log(19.5), "wrong about it 1 time in 21"),
        (math.log(3), "wrong about it 25 times in 100"),
        (math.log(1.5), "wrong about it 40 times in 100"),
        (40.0, "as good as never wrong"),
        (math.inf, "never wrong"),
    ],
)
def test_a_belief_is_told_as_one_in_k(loss, told):
    law = None if loss == math.inf else GaussianLaw(separation=np.ones(3))
    found = beliefs([loss, 0.0, -0.1], width=0.0, law=law, far_law=law)
    (first, *_) = collect(found).lead(collect(found).beliefs)
    assert told in first
    against = beliefs([-loss, 0.0, 0.1], width=0.0, law=law, far_law=law)
    part = collect_beliefs(against)
    assert told in part.answer[-1]
    assert "sure that it was not" in part.answer[-1]


def test_beliefs_that_only_fell_and_other_priors():
    fell = collect_beliefs(beliefs([-1.0, -2.0, -0.2]))
    assert fell.answer[0].startswith("No row's presence is any more probable")
    assert "88.6\N{NO-BREAK SPACE}% sure that it was not" in fell.answer[1]
    few = collect(beliefs([1.0, -2.0], prior=0.01, width=0.0))
    # 1/belief = 1 + 99/e, rounded down.
    assert "one of 100 suspects has become 1 in 37.4" in " ".join(few.beliefs.answer)
    assert 1 + 99 / math.e == pytest.approx(37.42, abs=0.01)
    assert "held it for 1\N{NO-BREAK SPACE}% likely" in few.answer[1]
    assert "in or out" not in Page(render_html(few)).text
    assert "in or out" in Page(render_html(collect(beliefs(LOSS)))).text


def test_it_stands_beside_what_the_promise_allows():
    found = beliefs(LOSS)
    summary = collect(found)
    part, page = summary.beliefs, Page(render_html(summary))
    worst = found.worst_case
    assert (part.worst.advantage, part.worst.found) == (worst.advantage, worst.true_positive_rate)
    assert plain(part.worst.belief_text) >= 100 * sigmoid(9.0) * (1 - 1e-12)
    assert "1 in 100,000" in part.worst.failure_text
    assert part.advantage.surest == found.advantage_high[found.row]
    assert part.advantage.largest == np.max(found.advantage_high)
    for shown in (part.advantage.largest_text, part.worst.advantage_text, part.worst.found_text):
        assert spaced(shown) in page.blocks
    assert "The promise, Gaussian noise" in summary.answer[0]
    nothing = collect(beliefs(LOSS, guarantee=None, worst_case=math.inf, worst_case_passed=0.0))
    assert nothing.answer[0].startswith("Nothing is promised about any row")
    assert "Nothing is promised, which allows everything." in render_html(nothing)
    assert nothing.beliefs.worst.promise is None


def test_the_unknown_counts_as_exposed():
    loss = np.array([0.1, np.nan, -0.2])
    part = collect_beliefs(beliefs(loss, far_law=None))
    assert part.surest.key == "1"
    assert plain(part.surest.belief_text) == 100
    assert part.levels[-1].rows == part.levels[-1].rows_out == 1
    assert part.advantage.surest == 1


# With a profile ----------------------------------------------------------------------------------


def test_a_profile_brings_its_beliefs_with_it(laplace):
    release, _, _, profile = laplace
    summary = collect(profile, release=release)
    assert [*summary.by_name] == ["profile", "beliefs"]
    part, page = summary.beliefs, Page(render_html(summary))
    check(page)
    assert page.sections.count("beliefs") == 1
    assert part.answer == collect_beliefs(profile.identifiability()).answer
    # The profile has said the main thing on top of the page.
    assert summary.answer == collect(profile, release=release).answer
    assert part.headline == dataclasses.replace(part.headline, epsilon=None, exposed=None)
    assert part.advantage is not None
    given = collect(profile, profile.identifiability(0.2), release=release)
    assert given.beliefs.prior == 0.2
    assert given.beliefs.headline.exposed is not None
    assert [*collect(noiseless()).by_name] == ["profile"]
    assert summary.audience is part.audience is Audience.FAIL


def test_an_advantage_that_must_be_sampled_is_left_out_beside_a_profile():
    def draw(models, rng):
        raise AssertionError("nothing is sampled for a page")

    losses = losses_of(LOSS, law=None, far_law=None, draw=draw)
    profile = Profile(losses=losses, description="d", rows=len(LOSS))
    summary = collect(profile)
    assert summary.beliefs.advantage is None
    assert "not computed for this page" in Page(render_html(summary)).text
    assert "not computed" in render_markdown(summary)
    with pytest.raises(AssertionError, match="nothing is sampled"):
        collect(profile.identifiability())
    _, _, _, small = fitted(rows=40, mechanism="objective")
    exact = collect(small.identifiability()).beliefs
    assert exact.advantage.error > 0
    assert "±" in exact.advantage.surest_text


def test_persons_are_persons():
    release, X, y, _ = fitted(rows=60)
    profile = expost.profile(release, X, y, persons=[f"p{row // 3}" for row in range(60)])
    summary = collect(profile, release=release)
    part, page = summary.beliefs, Page(render_html(summary))
    assert (part.unit, part.rows) == ("person", 20)
    assert "How sure an attacker gets of each person" in page.blocks
    assert "that they were in: persons" in page.blocks
    assert "person" in part.answer[0]


@pytest.mark.parametrize("name", [HOSTILE, "<script>alert(1)</script>"])
def test_hostile_text_is_text(name):
    found = dataclasses.replace(
        beliefs(LOSS, ids=(name,) * len(LOSS)), description=name, notices=(name,)
    )
    summary = collect(found)
    source, text = render_html(summary), render_markdown(summary)
    check(Page(source))
    assert html.escape("<script>alert(") in source
    assert not re.search(r"(?<!\\)<(?!\s)", text)
    assert parse_json(render_json(summary)) == summary
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()]
    for before, after in pairwise(widths):
        assert before == after or not before or not after
    assert name[:20] in unescaped(text)


def test_levels_and_doubts_are_checked():
    found = beliefs(LOSS)
    for doubt in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidInput, match="doubt"):
            found.rows_doubted(doubt)
    assert found.rows_doubted(0.0) == len(LOSS)
    assert found.rows_doubted(1.0) == 0
    assert synthetic(30).identifiability().levels == (0.6, 0.75, 0.9, 0.99)
