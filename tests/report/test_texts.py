"""Markdown and JSON: the same figures, and hostile text that stays text."""

import dataclasses
import json
import math
import re

import numpy as np

from expost.report import Accuracy, Choice, Origin, collect, render_json, render_markdown

from .conftest import HOSTILE, noiseless, synthetic
from .test_html import everything


def unescaped(line):
    """What CommonMark shows of a line that has backslash escapes."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", line)


def test_markdown_shows_the_summary(laplace):
    text = render_markdown(everything(*laplace, source="data.csv", made="2024-05-06"))
    lines = text.splitlines()
    assert lines[0].startswith("> **FAIL** For the curator only")
    assert "# Privacy profile of 150 rows" in lines
    assert "data.csv, 2024-05-06" in lines
    for heading in ("The most exposed rows", "In plain conditions", "By answer", "Choices made"):
        assert f"## {heading}" in lines
    assert "| epsilon | 2 | read from the data |" in lines
    assert "| this released model | 0.810 |" in lines
    assert text == render_markdown(everything(*laplace, source="data.csv", made="2024-05-06"))


def test_markdown_tables_have_one_width_each(laplace):
    width = None
    for line in render_markdown(everything(*laplace)).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line))
        if not line.startswith("|"):
            width = None
        elif width is None:
            width = cells
        else:
            assert cells == width


def test_hostile_text_stays_text_in_markdown(laplace):
    release, X, _, profile = laplace
    url = "see https://evil.example www.evil.example a@b.c ![x](y) <a> **b** `c`"
    summary = collect(
        dataclasses.replace(profile, ids=(HOSTILE,) * len(profile)),
        release=release,
        choices=[Choice(name=HOSTILE, value=url, origin=Origin.GIVEN)],
        groups=[profile.by(np.where(X[:, 1] > 0, HOSTILE, url), name=HOSTILE)],
        accuracy=Accuracy(released=1, base_rate=0, measure=HOSTILE, rows="r"),
        notices=[HOSTILE],
    )
    part = summary.profile
    raw = dataclasses.replace(part.groups[0], name="a\n# b", notices=("c\n| d",))
    part = dataclasses.replace(part, groups=(*part.groups, raw))
    text = render_markdown(dataclasses.replace(summary, profile=part))
    assert not re.search(r"(?<!\\)<", text)
    assert not re.search(r"(?<!\\)[`\[\]*_~!]", re.sub(r"> \*\*FAIL\*\*", "", text, count=1))
    assert "://" not in text
    assert "www." not in text
    assert "# b" not in text.splitlines()
    assert url in unescaped(text)
    headings = [line for line in text.splitlines() if line.startswith("#")]
    shown = [heading for heading in headings if not heading.startswith("## By ")]
    assert len(headings) == len(shown) + 2
    assert shown == [
        "# Privacy profile of 150 rows",
        "## How exposed the rows are",
        "## The most exposed rows",
        "## What the model is good for",
        "## The model",
        "## How sure an attacker gets of each row",
        "## The guarantee",
        "## What the noise leaves",
        "## Choices made",
        "## What to know",
    ]


def test_json_holds_every_figure(laplace):
    summary = everything(*laplace, versions={"expost": "1"})
    content = json.loads(render_json(summary))
    assert content["format"] == "expost-report/2"
    assert content["audience"] == "fail"
    assert content["versions"] == [["expost", "1"]]
    assert content["answer"] == list(summary.answer)
    part, shown = content["profile"], summary.profile
    assert part["rows"] == 150
    assert part["relation"] == "remove"
    assert [p["score"] for p in part["curve"]] == [p.score for p in shown.curve]
    assert [r["key"] for r in part["top"]] == [r.key for r in shown.top]
    for told, where in (
        (part["groups"][0], shown.groups[0]),
        (part["explanation"], shown.explanation),
    ):
        # The mark follows from the groups, and is not told by each.
        assert told.items() <= where.to_json().items()
        assert len(told["groups"]) == len(where.groups)
    assert part["choices"] == [{"name": "epsilon", "value": "2", "origin": "read from the data"}]
    assert part["accuracy"]["noiseless"] == 0.93
    for told, where in ((content, summary), (part, shown)):
        assert {field.name for field in dataclasses.fields(where)} <= set(told)


def test_json_is_strict_where_losses_are_infinite(exact):
    for summary in (everything(*exact), collect(noiseless(5))):
        text = render_json(summary)

        def refuse(name):
            raise AssertionError(name)

        content = json.loads(text, parse_constant=refuse)["profile"]
        assert content["worst_case"] == "infinity"
        assert content["top"][0]["loss"] == "infinity"
        assert "distance at most" in render_markdown(summary)


def test_the_smallest_profiles():
    for profile in (synthetic(1), synthetic(2), noiseless(2)):
        summary = collect(profile)
        assert json.loads(render_json(summary))["profile"]["rows"] == len(profile)
        assert "rows" in render_markdown(summary)
        assert all(math.isfinite(q.score) for q in summary.profile.quantiles)
