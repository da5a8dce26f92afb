"""A published report on a page: what it spent, what it bounds, and what it answers to a person."""

import dataclasses
import html
import math
import re
import shlex
from functools import cache

import numpy as np
import pandas as pd
import pytest

import expost
from expost import PrivateLogisticRegression, PrivateRidge, publish
from expost.data import Encoding, open_table
from expost.mechanisms.publishing import PublishingBudget
from expost.publishing.report import PublishedReport
from expost.report import (
    collect,
    collect_published,
    parse_json,
    render_html,
    render_json,
    render_markdown,
)
from expost.types import Audience

from .conftest import HOSTILE
from .pages import Page, check
from .test_risk_part import plain, sigmoid, spaced
from .test_texts import unescaped

ROWS = 80
BUDGET = PublishingBudget(epsilon_gradient=0.7, epsilon_hessian=0.3, delta=1e-6)
PERSON = {"age": 73.5192837, "town": "Bergen"}
PUBLIC = {
    "columns": {"age": {"mean": 45, "scale": 20}, "town": {"levels": ["Bergen", "Oslo"]}},
    "target": {"classes": ["poor", "rich"]},
    "data_norm": 5,
}


@cache
def report(kind="data-dependent", noise="gaussian"):
    """Of a model made from a table, whose noise came from no seed."""
    rng = np.random.default_rng(2)
    ages, towns = rng.integers(18, 90, ROWS), rng.choice(["Bergen", "Oslo"], ROWS)
    labels = np.where(ages + rng.normal(scale=20, size=ROWS) > 50, "rich", "poor")
    table = open_table(pd.DataFrame({"age": ages, "town": towns, "income": labels}))
    encoding = Encoding.read(table, target="income", given=PUBLIC)
    X = encoding.encode_table(table).X
    how = {"mechanism": "objective", "noise": noise, "regularization": 0.5}
    if noise == "gaussian":
        how |= {"delta": 1e-6, "regularization": "for-publishing", "publishing": BUDGET}
    model = PrivateLogisticRegression(**how, data_norm=5.0, classes=("poor", "rich"))
    release = dataclasses.replace(
        model.fit(X, labels).release_,
        encoding=encoding.to_json(),
        feature_names=encoding.feature_names,
    )
    spent = {"epsilon_gradient": 0.7, "epsilon_hessian": 0.3}
    return publish(release, X, labels, kind=kind, **(spent if kind == "data-dependent" else {}))


KINDS = {
    "dependent": lambda: (report(), ()),
    "independent": lambda: (report("data-independent"), ()),
    "pure": lambda: (report("data-independent", "laplace"), ()),
    "asked": lambda: (report(), report().lookup(PERSON)),
    "one label": lambda: (report(), report().lookup(PERSON, "rich")),
    "nothing spent": lambda: (
        report("data-independent", "laplace"),
        report("data-independent", "laplace").lookup(PERSON, "rich"),
    ),
}


def made(kind):
    found, answers = KINDS[kind]()
    return found, answers, collect(found, answers=answers)


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_was_spent_and_what_it_bounds(kind):
    found, _, summary = made(kind)
    part, page, text = summary.published, Page(render_html(summary)), render_markdown(summary)
    check(page)
    assert summary.audience is Audience.PASS
    assert summary.public() == summary
    assert page.sections.count("published") == 1
    spent = found.spending
    costs = {"the model": spent.model}
    if kind in ("dependent", "asked", "one label"):
        costs |= {"gradient": (0.7, 1e-6), "Hessian": (0.3, 1e-6), "together": spent.together}
        assert spent.together[0] <= spent.sequential[0]
    else:
        costs |= {"this report": (0.0, 0.0)}
    assert {line.what: (line.epsilon, line.delta) for line in part.budget} == costs
    for line in part.budget:
        for value, shown in ((line.epsilon, line.epsilon_text), (line.delta, line.delta_text)):
            assert value * (1 - 1e-12) <= plain(shown) <= 1.0101 * value
            assert spaced(shown) in page.blocks
        assert f"{line.what}: {line.words} | {line.epsilon_text}" in text
    assert part.fails_with == found.fails_with
    assert any(spaced(part.fails_text) in block for block in page.blocks)
    for limit in part.limits:
        assert page.blocks.count(limit) == 1
        assert limit in unescaped(text)
    # Of norm-Laplace noise nobody's bound is above what is promised.
    assert (part.most is None) == (found.release.mechanism.noise != "laplace")
    assert parse_json(render_json(summary)) == summary


@pytest.mark.parametrize("kind", ["asked", "one label", "nothing spent"])
def test_a_person_reads_her_own_bound_and_none_of_her_values(kind):
    _, answers, summary = made(kind)
    part, source, text = summary.published, render_html(summary), render_markdown(summary)
    for bound, answer in zip(part.bounds, answers, strict=True):
        assert bound.exposure == answer.exposure
        assert bound.everything == answer.everything
        for shown, exposure in (
            (bound.belief_text, answer.exposure),
            (bound.everything_text, answer.everything),
        ):
            exact = 100 * sigmoid(exposure)
            assert exact * (1 - 1e-12) <= plain(shown) <= exact + 0.11
        assert spaced(bound.belief_text) in Page(source).blocks
        assert bound.belief_text in text
        assert (bound.label is None) == (len(answers) == 1)
    worst = max(part.bounds, key=lambda one: one.everything)
    assert f"at most {worst.everything_text} sure of it" in summary.answer[0]
    assert summary.title == "What a released model can give away about you, at most"
    # What she typed: her age, and her label where she gave one. Towns are listed nowhere.
    for everything in (source, text, render_json(summary)):
        assert "73.5192837" not in everything
        assert "Bergen" not in everything
    if len(answers) == 1:
        # The labels that there are, and nothing of which is hers.
        named = [block for block in Page(source).blocks if "rich" in block]
        assert len(named) == 1
        assert "poor or rich" in named[0]


def test_a_value_that_the_model_does_not_know_is_not_repeated():
    found = report()
    typed = "Trondheim is none of the levels of 'secret'"
    summary = collect(found, answers=found.lookup({"age": 40, "town": typed}))
    assert "Trondheim" in found.lookup({"age": 40, "town": typed})[0].notes[0]
    for text in (render_html(summary), render_markdown(summary), render_json(summary)):
        assert "Trondheim" not in text
        assert "secret" not in text
    (notice,) = summary.notices
    assert notice.startswith("A value that you gave is none of the levels of 'town'")
    far = collect(found, answers=found.lookup({"age": 43219876, "town": "Oslo"}))
    assert "cut to that range" in " ".join(far.notices)
    assert "43219876" not in render_html(far)
    left_out = collect(found, answers=found.lookup({"age": 40, "town": ""}))
    assert "'town' has no value" in " ".join(left_out.notices)


def test_the_command_asks_for_every_column():
    found, _, summary = made("independent")
    assert summary.published.command == (
        "expost lookup report.json --set age=… --set town=… --label …"
    )
    assert summary.published.command in Page(render_html(summary)).text
    assert f"\n    {summary.published.command}\n" in render_markdown(summary)
    assert summary.published.columns == ("age", "town")
    assert summary.published.labels == ("poor", "rich")
    other = collect(found, command="expost lookup o/report.json")
    assert other.published.command == "expost lookup o/report.json"


def test_a_regression_asks_for_a_number():
    rng = np.random.default_rng(6)
    X = rng.uniform(-1, 1, size=(60, 2))
    frame = pd.DataFrame(X, columns=["first column", "$(rm -rf)"])
    model = PrivateRidge(data_norm=2.0, label_range=(-1.0, 1.0), huber_width=None).fit(
        frame, np.clip(X[:, 0], -1, 1)
    )
    found = publish(model)
    values = {"first column": 0.3, "$(rm -rf)": -0.2}
    summary = collect(found, answers=found.lookup(values, 0.43719283))
    part = summary.published
    assert part.labels == ()
    # A shell reads a name as one word, whatever is in it.
    words = shlex.split(part.command.replace("…", ""))
    assert words[2:7] == ["report.json", "--set", "first column=", "--set", "$(rm -rf)="]
    assert summary.audience is found.audience
    for text in (render_html(summary), render_json(summary)):
        assert "0.43719283" not in text


@pytest.mark.parametrize("name", [HOSTILE, "<script>alert(1)</script>"])
def test_hostile_names_are_text(name):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, 2))
    y = np.where(X[:, 0] > 0, name, "other")
    frame = pd.DataFrame(X, columns=[name, "b"])
    model = PrivateLogisticRegression(data_norm=5.0, classes=(name, "other")).fit(frame, y)
    found = publish(model)
    assert isinstance(found, PublishedReport)
    summary = collect(found, answers=found.lookup({name: 0.1, "b": 0.2}), source=name)
    source = render_html(summary)
    page = Page(source)
    check(page)
    assert html.escape("<script>alert(") in source
    assert page.text.count("<script>alert(") >= 4
    command = f"    {summary.published.command}"
    # The command is code, which Markdown shows as it stands.
    rest = [line for line in render_markdown(summary).splitlines() if line != command]
    assert not any(re.search(r"(?<!\\)<(?!\s)", line) for line in rest)
    assert parse_json(render_json(summary)) == summary


def test_it_goes_where_its_model_may():
    found = report()
    part = collect_published(found)
    assert part.audience is found.audience is Audience.PASS
    assert part.title == f"What anybody may know about a model of {ROWS} rows"
    risk = expost.identifiability(epsilon=1.0)
    both = collect(found, risk)
    assert [*both.by_name] == ["risk", "published"]
    assert both.public() == both
    # A bound without end is no number.
    endless = dataclasses.replace(
        collect_published(found, answers=found.lookup(PERSON, "rich")).bounds[0],
        exposure=math.inf,
        everything=math.inf,
    )
    assert (endless.exposure_text, plain(endless.belief_text)) == ("∞", 100)
