"""The document of a profile: its figures are those of the profile, and bounds stay bounds."""

import dataclasses
import math
import re

import numpy as np
import pytest
from scipy.special import expit

import expost
from expost import Profile
from expost.numbers import certainty, count, number
from expost.profiles.digest import POSTERIOR
from expost.report import (
    document_of,
    page_of,
    parse_json,
    render_json,
    render_markdown,
    render_text,
)
from expost.report.document import Context, Document, Heading, Origin, Setting, Table
from expost.report.figure import Figure
from expost.types import Audience
from read_figures import read

from .cells import certainty_up, column, section, table_of, tile
from .conftest import HOSTILE, fitted, noiseless, synthetic

# 150 rows of 40 persons; the last owns 33.
OWNER = np.random.default_rng(1).permutation(np.minimum(np.arange(150) // 3, 39))


@pytest.fixture(params=["laplace", "gaussian", "synthetic", "persons"])
def profile(request):
    if request.param == "synthetic":
        return synthetic(400, seed=3)
    if request.param == "persons":
        release, X, y, _ = request.getfixturevalue("laplace")
        return expost.profile(release, X, y, persons=[f"person {number}" for number in OWNER])
    return request.getfixturevalue(request.param)[3]


def test_tiles_hold_the_figures_of_the_profile(profile):
    document = document_of(profile)
    unit = "person" if profile.owner is not None else "row"
    outer = float(np.max(np.maximum(np.abs(profile.loss_low), np.abs(profile.loss_high))))
    most = tile(document, f"Most exposed {unit}")
    assert most.value == certainty(outer)
    assert float(read(most.value)) >= expit(outer) - 1e-15
    assert most.people == math.ceil(100 * expit(outer))
    past = int(np.count_nonzero(expit(profile.exposure) > POSTERIOR))
    assert tile(document, f"{unit.capitalize()}s above the limit").value == count(past)
    allowed = certainty(profile.worst_case)
    assert any(allowed.removeprefix("< ") in line for line in tile(document, "Guarantee").lines)


def test_the_table_of_rows_is_that_of_the_profile(profile):
    document, ranked = document_of(profile), profile.ranking[:20]
    loss = profile.loss[ranked]
    table = table_of(document, "most-exposed")
    cells, values = column(table, "attacker's certainty")
    assert values == np.abs(loss).tolist()
    # Rounded up, as in the tile above the table.
    above = np.array([float(read(cell)) for cell in cells]) - expit(values)
    assert np.all(above >= -1e-12)
    assert np.all(above <= 1e-3)
    assert column(table, "expected over releases")[1] == profile.expected[ranked].tolist()
    assert column(table, "evidence of")[1] == ["presence" if x > 0 else "absence" for x in loss]
    _, table = (b for b in section(document, "nats").blocks if isinstance(b, Table))
    assert column(table, "exposure (nats)")[1] == np.abs(loss).tolist()
    shown, widths = column(table, "certified to ±")
    naive = np.maximum(profile.loss_high[ranked] - loss, loss - profile.loss_low[ranked])
    assert widths == naive.tolist()
    assert all(float(read(text)) >= width for text, width in zip(shown, widths, strict=True))
    assert column(table, "expected exposure (nats)")[1] == profile.expected[ranked].tolist()
    assert len(cells) == min(20, len(profile))


def test_quantiles_are_rounded_up(profile):
    document = document_of(profile)
    nats, table = table_of(document, "nats"), table_of(document, "exposure")
    for nat, title in (
        ("exposure (nats), at most", "attacker's certainty, at most"),
        ("expected exposure (nats), at most", "expected certainty, at most"),
    ):
        cells, values = column(nats, nat)
        assert all(float(read(text)) >= value for text, value in zip(cells, values, strict=True))
        cells, values = column(table, title)
        for text, value in zip(cells, values, strict=True):
            assert float(read(text)) >= expit(value) - 1e-15
    assert column(nats, "exposure (nats), at most")[1][-1] == np.max(profile.exposure)


def test_the_figure_is_the_certainty_by_rank(profile):
    figure = document_of(profile).figures["profile"]
    line, expected = figure.panels[0].lines
    ranked = np.sort(profile.exposure)[::-1]
    np.testing.assert_allclose(line.y, expit(ranked[np.array(line.x, dtype=int) - 1]))
    usual = np.sort(profile.expected)[::-1]
    np.testing.assert_allclose(expected.y, expit(usual[np.array(expected.x, dtype=int) - 1]))
    y = figure.panels[0].y
    assert y.low == 0.5
    assert max(line.y) <= y.high


def test_a_document_is_stored_and_read_again(profile):
    page = page_of(profile, versions={"expost": "1"})
    text = render_json(page)
    again = parse_json(text)
    assert render_json(again) == text
    assert render_markdown(again) == render_markdown(page)
    assert render_text(again) == render_text(page)


def test_verdicts():
    profile = fitted(rows=60)[3]
    assert document_of(profile).verdict.tone == "caution"  # Seeded.
    certain = dataclasses.replace(profile.losses, loss=profile.losses.loss + 5.0)
    certain = dataclasses.replace(certain, low=certain.loss - 1e-9, high=certain.loss + 1e-9)
    broken = document_of(dataclasses.replace(profile, losses=certain))
    assert broken.verdict.priority == 100
    assert broken.verdict.tone == "bad"
    assert broken.alerts[0].severity == "problem"
    open_ended = dataclasses.replace(certain, worst_case_passed=0.01)
    past = document_of(dataclasses.replace(profile, losses=open_ended))
    assert past.verdict.text.startswith("60 rows exceed the limit")
    assert document_of(noiseless()).verdict.tone == "bad"


def test_a_useless_model_is_judged_first():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), np.where(rng.random(300) > 0.5, 1, 0)
    model = expost.PrivateLogisticRegression(epsilon=0.01, data_norm=9.0, classes=(0, 1)).fit(X, y)
    document = document_of(expost.profile(model, X, y))
    assert document.verdict.priority == 90
    assert "base rate" in document.verdict.text
    assert tile(document, "Useful?").tone == "bad"


def test_the_tile_of_usefulness_is_the_auc_of_the_released_model():
    from sklearn.metrics import roc_auc_score

    release, X, y, profile = fitted(rows=150)
    scores = release.decision_function(X) if hasattr(release, "decision_function") else None
    area = float(tile(document_of(profile), "Useful?").value.removeprefix("AUC "))
    if scores is None:
        rows = release.objective(X, y).held
        scores = rows.X @ release.theta
        y = rows.y
    assert area == pytest.approx(roc_auc_score(y, scores), abs=2e-3)


def test_without_noise_rows_are_ranked_by_distance():
    profile = noiseless(30)
    document = document_of(profile)
    _, values = column(table_of(document, "most-exposed"), "distance")
    assert values == np.sort(profile.distance)[::-1][:20].tolist()
    assert tile(document, "Guarantee").value == "none"
    assert not any(each.id == "posterior" for each in document.sections)


def test_hostile_names_stay_text():
    ids = tuple(f"{number} {HOSTILE}" for number in range(30))
    profile = synthetic(30, ids=ids)
    document = document_of(
        profile,
        Context(
            settings=(Setting(name=HOSTILE, value=HOSTILE, origin=Origin.READ),),
            notices=(HOSTILE,),
            source=HOSTILE,
        ),
        groups=(profile.by(np.where(np.arange(30) % 2, HOSTILE, "b"), name=HOSTILE),),
    )
    assert isinstance(document, Document)
    markdown = render_markdown(document)
    assert "<script>" not in markdown
    assert "\u202e" not in markdown + render_text(document)
    assert render_json(parse_json(render_json(document))) == render_json(document)


def test_groups_are_those_of_the_profile(laplace):
    _, X, y, profile = laplace
    grouping, explanation = profile.by(y, name="answer"), profile.explain(X)
    document = document_of(profile, groups=(grouping,), explanation=explanation)
    tables = [b for b in section(document, "groups").blocks if isinstance(b, Table)]
    assert column(tables[0], "lift")[1] == [group.lift for group in grouping]
    cells, values = column(tables[0], "certainty, largest")
    assert values == [group.largest for group in grouping]
    assert all(map(certainty_up, cells, values))
    assert column(tables[1], "rows")[1] == [group.rows for group in explanation]
    nats = [b for b in section(document, "nats").blocks if isinstance(b, Table)][2:]
    assert column(nats[0], "mean exposure (nats)")[1] == [group.mean for group in grouping]
    assert column(nats[1], "median (nats)")[1] == [group.median for group in explanation]
    drawn = document.figures["groups"].panels[0]
    ranked = sorted(grouping, key=lambda group: -group.lift)[:8]
    assert list(drawn.lines[1].x) == [group.top_share for group in ranked]
    names = [drawn.y.categories[int(place)] for place in drawn.lines[1].y]
    assert names == [group.label for group in ranked]
    assert list(drawn.lines[1].y) == sorted(drawn.lines[1].y, reverse=True)


def test_the_open_part_shows_percentages_after_their_chart(laplace):
    _, X, _, profile = laplace
    columns = [profile.by(X[:, number] > 0, name=f"column {number}") for number in range(3)]
    document = document_of(profile, groups=columns, explanation=profile.explain(X))
    for part in document.sections:
        if part.nav == "Details":
            continue
        kinds = [type(block) for block in part.blocks]
        assert Figure not in kinds or kinds.index(Figure) < kinds.index(Table), part.id
        titles = [
            each.title
            for block in part.blocks
            if isinstance(block, Table)
            for each in block.columns
            if part.nav != "Utility"
        ]
        assert not [title for title in titles if "nats" in title or "±" in title]
    # One column is open, and the others are folded.
    headings = [b.text for b in section(document, "groups").blocks if isinstance(b, Heading)]
    assert headings == ["By column 0", "By conditions"]
    assert "certified to ±" in {
        each.title
        for b in section(document, "nats").blocks
        if isinstance(b, Table)
        for each in b.columns
    }


def test_persons_are_counted_with_their_rows(laplace):
    release, X, y, _ = laplace
    profile = expost.profile(release, X, y, persons=[f"person {number}" for number in OWNER])
    document = document_of(profile)
    assert re.findall(r"\d+", document.title) == ["40", "150"]
    _, values = column(table_of(document, "most-exposed"), "rows")
    assert values == profile.sizes[profile.ranking[:20]].tolist()
    assert any("33 rows" in line for line in tile(document, "Guarantee").lines)


# -- posteriors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [0.5, 0.1])
def test_posteriors_are_those_of_the_rows(prior):
    result = synthetic(200, seed=5).identifiability(prior)
    document = document_of(result)
    largest = float(np.max(result.posterior_high))
    assert float(read(tile(document, "Most exposed row").lines[0].split("at most ")[1])) >= largest
    line = document.figures["posterior"].panels[0].lines[0]
    assert line.y[0] == largest
    assert list(line.y) == sorted(result.posterior_high, reverse=True)[: len(line.y)]
    _, values = column(table_of(document, "posterior"), "rows, present")
    naive = [int(np.count_nonzero(result.posterior_high > level)) for level in result.levels]
    assert values == naive
    assert render_json(parse_json(render_json(document))) == render_json(document)


def test_what_the_guarantee_allows_stands_beside_the_model(gaussian):
    result = gaussian[3].identifiability()
    text = render_text(document_of(result))
    assert number(result.worst_case.advantage, "up") in text
    assert certainty(float(result.losses.worst_case)) in text


def test_the_audience_is_the_curator(laplace):
    page = page_of(laplace[3], versions={})
    assert page.audience is Audience.CURATOR_ONLY
    with pytest.raises(expost.errors.InvalidInput, match="nothing here is public"):
        page.public()


def test_an_unproved_row_is_an_alert():
    profile = synthetic(10)
    high = profile.losses.high.copy()
    high[3] = np.inf
    loose = Profile(losses=dataclasses.replace(profile.losses, high=high), description="m", rows=10)
    alerts = document_of(loose).alerts
    assert any(alert.severity == "problem" and "1 row" in alert.title for alert in alerts)
