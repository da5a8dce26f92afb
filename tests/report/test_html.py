"""The page: what a browser would make of it, and what an attacker could not."""

import base64
import dataclasses
import html
import json

import numpy as np
import pytest

from expost import Profile
from expost.groups.exposure import group_exposure
from expost.mechanisms import RowLosses
from expost.report import Accuracy, Choice, Origin, collect, collect_profile, render_html
from expost.report.chart import profile_chart
from expost.types import Neighbouring

from .conftest import HOSTILE, fitted, noiseless, synthetic
from .pages import Page, check
from .summaries import MAKERS, summary


def everything(release, X, y, profile, name="answer", **options):
    return collect(
        profile,
        release=release,
        choices=[Choice(name="epsilon", value="2", origin=Origin.READ)],
        groups=[profile.by(y, name=name), profile.by(X[:, 0], name="size")],
        explanation=profile.explain(X, feature_names=[name, "b", "c"]),
        accuracy=Accuracy(released=0.81, base_rate=0.52, noiseless=0.93),
        **options,
    )


@pytest.fixture(scope="module")
def page(laplace):
    return Page(render_html(everything(*laplace, source="data.csv")))


def test_it_is_whole_and_shows_every_panel(page, laplace):
    _, _, _, profile = laplace
    for heading in (
        "The answer",
        "What to know",
        "How exposed the rows are",
        "The most exposed rows",
        "Who they are",
        "What the model is good for",
        "The release",
        "Choices made",
        "How to read this page",
    ):
        assert heading in page.text
    assert page.text.index("FAIL For the curator only") < page.text.index("The answer")
    for shown in ("0.810", "0.520", "0.930", "data.csv", "By answer", "By size", "a seed"):
        assert shown in page.text
    assert str(profile.ranking[0]) in page.text
    assert "not private" in page.text


def test_tables_have_headings(page):
    assert page.tags.count("table") >= 6
    assert ("th", "scope", "col") in page.attributes


@pytest.mark.parametrize("kind", MAKERS)
def test_every_page_is_whole_and_nothing_comes_from_outside(kind):
    page = Page(render_html(summary(kind)))
    check(page)
    assert "prefers-color-scheme: dark" in page.style
    for word in ("nan", "None", "inf", "Undefined"):
        assert word not in page.text.split()
    # The mark comes first; what to know stands at the end, and is pointed to from the top.
    mark = summary(kind).audience
    assert page.text.index(f"{mark.value.upper()} {mark.meaning}") < page.text.index("The answer")
    assert page.values("href") == (["#notices"] if summary(kind).notices else [])
    for notice in summary(kind).notices:
        assert page.blocks.count(" ".join(notice.split())) == 1
    for name, version in summary(kind).versions:
        assert page.text.count(f"{name} {version}") == 1


@pytest.mark.parametrize(
    "change",
    [
        ('<p class="quiet">', '<p class="quiet" onclick="x()">'),
        ('<p class="quiet">', '<p class="quiet" style="color: red">'),
        ('href="#notices"', 'href="https://example.org/#notices"'),
        ('href="#notices"', 'href="#nowhere"'),
        ('<h2 id="answer">', '<h2 id="notices">'),
        ('<h2 id="answer">', '<h2 id="answer"><img>'),
        ("</main>", "<script>1</script></main>"),
        ("</style>", " .more { color: red }</style>"),
        ("script-src ", "script-src 'unsafe-inline' "),
        ("default-src 'none'", "default-src 'self'"),
        ('id="expost-data">{', 'id="expost-data">{"<": 1,'),
    ],
)
def test_what_a_page_must_keep_to_would_be_missed(change):
    """Power: the check of every page refuses each of these."""
    source = render_html(summary("profile-laplace"))
    assert change[0] in source
    check(Page(source))
    with pytest.raises(AssertionError):
        check(Page(source.replace(*change, 1)))


def test_hostile_text_is_text(laplace):
    release, X, _, profile = laplace
    named = dataclasses.replace(profile, ids=(HOSTILE,) * len(profile), description=HOSTILE)
    levels = np.where(X[:, 1] > 0, HOSTILE, "{{ 7 * 7 }}")
    summary = collect(
        named,
        release=release,
        choices=[Choice(name=HOSTILE, value=HOSTILE, origin=Origin.GIVEN)],
        groups=[profile.by(levels, name=HOSTILE)],
        explanation=profile.explain(X, feature_names=[HOSTILE, "'\"><b>", "c"]),
        accuracy=Accuracy(released=1, base_rate=0, measure=HOSTILE, rows=HOSTILE),
        notices=[HOSTILE],
        source=f"{HOSTILE}.csv",
        made=HOSTILE,
        versions={HOSTILE: HOSTILE},
    )
    # By hand, past the checks of the function that makes groupings.
    raw = dataclasses.replace(summary.profile.groups[0], name=HOSTILE, notices=(HOSTILE,))
    part = dataclasses.replace(summary.profile, groups=(raw,))
    for shown in (summary, dataclasses.replace(summary, profile=part)):
        source = render_html(shown)
        page = Page(source)
        check(page)
        assert '<script>alert("x")</script><img src=x' in page.text
        assert "{{ 7 * 7 }}" in page.text
        # The page's own two, the data and the script, and no third.
        assert source.count("<script") == 2
        assert html.escape("<script>") in source


def test_no_training_value_is_on_the_page():
    release, X, y, profile = fitted(rows=200)
    X, y = np.asarray(X), np.asarray(y)
    source = render_html(everything(release, X, y, profile))
    canaries = {f"{abs(value):.{digits}g}" for value in X.ravel() for digits in (6, 9, 12, 17)}
    assert not [canary for canary in canaries if canary in source]
    # Nor in the arrays that its script reads.
    rows = json.loads(Page(source).data[0])["rows"]
    arrays = {name: rows[name] for name in ("loss", "within", "distance")}
    packed = {name: np.frombuffer(base64.b64decode(text), "<f4") for name, text in arrays.items()}
    for values in packed.values():
        assert not np.isin(values, X.astype(np.float32)).any()
    np.testing.assert_array_equal(packed["loss"], profile.loss[profile.ranking].astype("<f4"))
    assert set(rows) - set(arrays) == {
        *("unit", "total", "rows", "noiseless", "inOrder", "keys", "numbers")
    }
    # The search would find one: a row's id is shown.
    told = dataclasses.replace(profile, ids=tuple(f"{value:.9g}" for value in X[:, 0]))
    shown = render_html(everything(release, X, y, told))
    assert [canary for canary in canaries if canary in shown]


def test_the_same_summary_gives_the_same_bytes(laplace):
    assert render_html(everything(*laplace)) == render_html(everything(*laplace))
    assert "made" not in Page(render_html(collect(synthetic(5)))).text.split()
    assert "1999-12-31" in render_html(collect(synthetic(5), made="1999-12-31"))


def test_a_large_table_makes_a_small_page():
    rows = 48_842
    profile = synthetic(rows, ids=tuple(f"person {i}" for i in range(rows)))
    rng = np.random.default_rng(0)
    groups = [
        profile.by(rng.choice([f"level {i}" for i in range(90)], rows), name=f"c{i}")
        for i in range(14)
    ]
    summary = collect(
        profile, groups=groups, explanation=profile.explain(rng.normal(size=(rows, 3)))
    )
    source = render_html(summary)
    assert len(source.encode()) < 3_000_000
    assert "48,842" in source


@pytest.mark.parametrize("kind", ["gaussian", "exact"])
def test_other_releases(kind, request):
    release, X, y, profile = request.getfixturevalue(kind)
    page = Page(render_html(everything(release, X, y, profile)))
    if kind == "gaussian":
        assert "δ = 1\xa0×\xa010⁻⁵" in " ".join(page.texts)
    else:
        assert "no noise" in page.text
        assert "distance" in page.text
        assert "typical" not in page.text
        assert "belief" not in page.text
        assert "ε = 2" not in page.text


@pytest.mark.parametrize("profile", [synthetic(2), noiseless(2), synthetic(1)])
def test_the_smallest_profiles(profile):
    page = Page(render_html(collect(profile)))
    assert f"Privacy profile of {len(profile)} rows" in page.text
    assert "Who they are" not in page.text


def test_nothing_exposed_draws_no_chart():
    zero = np.zeros(3)
    losses = RowLosses.without_noise(zero, zero, Neighbouring.REMOVE)
    summary = collect(Profile(losses=losses, description="m", rows=3))
    assert profile_chart(summary.profile) is None
    assert "polyline" not in Page(render_html(summary)).tags
    assert "every distance is 0" in Page(render_html(summary)).text


def test_a_group_with_infinite_scores_is_shown():
    grouping = group_exposure([np.inf, 1.0], ["a", "b"])
    assert "∞" in Page(render_html(collect(synthetic(2), groups=[grouping]))).text


# ── the chart ────────────────────────────────────────────────────────────────────────────────────


def coordinates(points):
    return np.array([[float(c) for c in point.split(",")] for point in points.split()])


@pytest.mark.parametrize("rows", [2, 9, 10, 400, 5000, 48_842])
def test_the_lines_are_where_the_ticks_say(rows):
    summary = collect_profile(synthetic(rows))
    chart = profile_chart(summary)
    x, y = coordinates(chart.scores).T
    ranks = np.array([point.rank for point in summary.curve])
    scores = np.array([point.score for point in summary.curve])
    ticks = {tick.label: tick.at for tick in chart.x_ticks}
    # Two ticks give the scale; every point must lie on it.
    first, last = ticks["1"], ticks[f"{rows:,}"]
    expected = first + np.log(ranks) / np.log(rows) * (last - first)
    np.testing.assert_allclose(x, expected, atol=0.11)
    tick_values = [float(tick.label) for tick in chart.y_ticks]
    slope = np.polyfit(np.log10(tick_values), [tick.at for tick in chart.y_ticks], 1)
    np.testing.assert_allclose(y, np.polyval(slope, np.log10(scores)), atol=0.3)
    assert chart.worst_case == pytest.approx(np.polyval(slope, 0.0), abs=0.3)
    assert np.all(np.diff(y) >= 0)
    assert y[0] > chart.top
    assert (x[0], x[-1]) == (chart.left, chart.right)
    labels = [tick.label for tick in chart.x_ticks]
    assert len(labels) == len(set(labels))
    assert all(chart.top <= tick.at <= chart.bottom for tick in chart.y_ticks)
    assert 2 <= len(chart.y_ticks) <= 12


def test_a_few_tiny_exposures_do_not_flatten_the_rest():
    losses = synthetic(1000).losses
    loss = losses.loss.copy()
    loss[:3] = [0.0, 1e-300, 1e-17]
    profile = Profile(losses=dataclasses.replace(losses, loss=loss), description="", rows=1000)
    chart = profile_chart(collect_profile(profile))
    x, y = coordinates(chart.scores).T
    assert np.all(np.isfinite(y))
    inside = (y >= chart.top) & (y <= chart.bottom)
    assert np.mean(inside) > 0.9
    assert y[-1] > chart.bottom  # The zero: below the area, where it is cut off.
    assert len(x) == len(y)


def test_the_axis_is_at_most_a_few_decades_long():
    base = noiseless(60)
    spread = np.where(np.arange(60) < 50, 1e-40, 1.0) * (1 + base.distance)
    losses = dataclasses.replace(base.losses, distance=spread)
    chart = profile_chart(collect_profile(dataclasses.replace(base, losses=losses)))
    assert 5 <= len(chart.y_ticks) <= 8
    assert coordinates(chart.scores)[:8, 1].max() < chart.bottom / 2


def test_ticks_cover_ranges_of_all_sizes():
    for scale in (1e-12, 1e-5, 1.0, 1e4, 1e9):
        base = noiseless(50)
        losses = dataclasses.replace(base.losses, distance=scale * (1 + base.distance))
        chart = profile_chart(collect_profile(dataclasses.replace(base, losses=losses)))
        assert len(chart.y_ticks) >= 2
