"""Reports on persons: what the page, the text and the JSON say where all rows of one are removed."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest

import expost
from expost import Profile
from expost.errors import InvalidInput
from expost.mechanisms import RowLosses
from expost.report import Accuracy, collect, render_html, render_json, render_markdown
from expost.report.chart import profile_chart
from expost.report.displays import ProfileDisplay
from expost.report.wording import number_up
from expost.types import Audience, Neighbouring

from .conftest import HOSTILE, noiseless, synthetic
from .pages import Page, check

# 150 rows of 40 persons; the last owns 33.
OWNER = np.random.default_rng(1).permutation(np.minimum(np.arange(150) // 3, 39))
NAMES = [f"person {place}" for place in range(40)]


def of_persons(parts):
    """The profile of persons of a model that was fitted in conftest."""
    release, X, y, _ = parts
    return expost.profile(release, X, y, persons=[NAMES[place] for place in OWNER])


def made_up(persons, sizes, **changes):
    """A profile of persons with random losses and these numbers of rows."""
    profile = synthetic(persons)
    owner = np.repeat(np.arange(persons), sizes)
    losses = dataclasses.replace(profile.losses, **changes)
    return Profile(losses=losses, description="m", rows=len(owner), owner=owner)


def reported(parts, **options):
    release, X, y, _ = parts
    profile = of_persons(parts)
    return profile, collect(
        profile,
        release=release,
        groups=[profile.by(y, name="answer"), profile.by(X[:, 0], name="size")],
        explanation=profile.explain(X),
        accuracy=Accuracy(released=0.8, base_rate=0.5),
        versions={"expost": "1"},
        **options,
    )


@pytest.fixture(scope="module", params=["laplace", "gaussian", "exact"])
def report(request):
    return reported(request.getfixturevalue(request.param))


def sure(loss):
    return 1 / (1 + math.exp(-loss))


def test_the_owner_of_each_row_is_kept(laplace):
    profile = of_persons(laplace)
    first = list(dict.fromkeys(OWNER.tolist()))
    assert [profile.ids[place] for place in profile.owner] == [NAMES[p] for p in OWNER]
    assert profile.sizes.tolist() == [np.count_nonzero(p == OWNER) for p in first]
    assert laplace[3].owner is None
    assert laplace[3].sizes is None


def test_groups_are_of_the_rows_of_exposed_persons(laplace):
    _, X, y, _ = laplace
    profile = of_persons(laplace)
    grouping = profile.by(y, name="answer")
    assert grouping.rows == 150
    for group in grouping:
        rows = [row for row in range(150) if y[row] == group.label]
        exposures = [profile.exposure[profile.owner[row]] for row in rows]
        assert group.rows == len(rows)
        assert group.persons == len({profile.owner[row] for row in rows})
        assert group.mean == pytest.approx(np.mean(exposures))
        assert group.largest == max(exposures)
    assert profile.explain(X).rows == 150
    # A cell a person is not a cell a row; it is spread over her rows.
    cells = np.arange(len(profile)) % 2
    with pytest.raises(InvalidInput, match="one value for each of 150 rows"):
        profile.by(cells)
    spread = profile.by(cells[profile.owner])
    assert [group.persons for group in spread] == [20, 20]


def test_one_person_with_many_rows_is_no_group_to_show(laplace):
    profile = of_persons(laplace)
    largest = int(np.argmax(profile.sizes))
    assert profile.sizes[largest] == 33
    alone = profile.by(np.where(profile.owner == largest, "a", "b"))
    assert alone.audience is Audience.FAIL
    assert laplace[3].by(np.where(profile.owner == largest, "a", "b")).audience is Audience.REVIEW


def test_the_summary_counts_persons_and_their_rows(report):
    profile, summary = report[0], report[1].profile
    assert summary.rows == 150
    assert summary.unit == "person"
    assert summary.heading == "40 persons with 150 rows"
    assert (summary.persons.count, summary.persons.median_rows) == (40, 3)
    assert summary.persons.most_rows == 33
    assert summary.curve[-1].rank == 40
    assert summary.keyed
    place = {name: index for index, name in enumerate(profile.ids)}
    assert [row.rows for row in summary.top] == [profile.sizes[place[r.key]] for r in summary.top]
    assert summary.persons.passed == profile.losses.worst_case_passed


def test_the_answer_is_about_persons(laplace, gaussian, exact):
    profile, summary = reported(laplace)
    promise, exposed, advice = summary.answer
    (others,) = summary.lead(summary.profile)
    assert "its most exposed person" in exposed
    assert "knows the rows of all others" in exposed
    assert f"{math.ceil(1000 * sure(profile.exposure.max())) / 10:.1f}" in exposed
    assert "whether that person was in the data" in exposed
    assert "Half of the 40 persons" in others
    # 66 nats are no certainty, though the nearest number to it is 1.
    assert "ε = 2 for a row, and so at most 66 nats (<\xa0100\xa0% sure) for any person" in promise
    assert "any person of up to 33 rows of any data, and the most exposed person here" in promise
    assert "came from a seed" in advice
    profile, summary = reported(gaussian)
    promise = summary.answer[0]
    risk = profile.losses.worst_case_passed
    assert risk > 0
    assert "ε = 2 with δ = 1\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}10⁻⁵ for a row" in promise
    assert f", except with probability {number_up(risk)}," in promise
    summary = reported(exact)[1]
    assert "carries no noise" in summary.answer[0]
    certain = "certain whether a person was in the data, for 40 of its 40 persons"
    assert certain in summary.answer[1]
    assert "Persons can only be told apart" in summary.lead(summary.profile)[0]


def test_a_promise_to_persons_is_told_whatever_became_of_it():
    sizes = [1, 2, 3, 4, 5, 6]
    exposure = np.sort(made_up(6, sizes).exposure)
    broken = collect(made_up(6, sizes, worst_case=float(exposure[2]))).answer[0]
    assert "The promise is broken" in broken
    assert "for any person of up to 6 rows of any data, and 3 of the persons" in broken
    passed = made_up(6, sizes, worst_case=float(exposure[3]), worst_case_passed=0.25)
    told = collect(passed).answer[0]
    assert "except with probability 0.25, and 2 of the persons here lose more." in told
    # Without the release the promise to a row is not known.
    assert "for a row" not in told
    none = collect(made_up(6, sizes, worst_case=math.inf))
    assert "promises no ε" in none.answer[0]
    assert "none to persons" in Page(render_html(none)).text
    one = collect(made_up(6, [1] * 6))
    assert "any person of up to 1 row of any data" in one.answer[0]
    assert "at most 1 row, and nobody has more than 1." in render_html(one)


def test_a_bound_on_rows_is_not_taken_for_one_on_persons():
    loss = np.array([2.0, 0.1, -3.0])
    past = made_up(3, [1, 2, 3], loss=loss, low=loss, high=loss, worst_case=50.0)
    advice = collect(past).answer[2]
    assert advice.startswith("2 persons are exposed past 75\xa0%")
    assert advice.endswith(
        "for a person of several rows choose a smaller one, and profile persons again."
    )
    calm = collect(made_up(3, [1, 2, 3])).answer[2]
    assert calm.startswith("No person is exposed past 75\xa0%")


def test_the_page_speaks_of_persons(report):
    part = report[1].profile
    page = Page(render_html(report[1]))
    check(page)
    for words in (
        "Privacy profile of 40 persons with 150 rows",
        "How exposed the persons are",
        "All rows of a person are taken out at once. Half of the persons have at most 3 rows, and"
        " nobody has more than 33.",
        "The most exposed persons",
        "share of the persons",
        "Persons by rank",
        "the data without any row of the person",
        f"Each row counts with the {part.measure} of its person",
    ):
        assert words in page.text, words
    assert "rank of the person" in page.text
    if not part.is_noiseless:
        assert re.search(r"ε = 2(, δ = 1 × 10⁻⁵)?, to a row; at most [\d.]+ nats to any", page.text)
        assert "belief that they were in" in page.text
        assert re.search(r"promised: at most [\d.]+ nats, any person of up to 33 rows", page.text)


OF_ROWS = (
    "How exposed the rows are",
    "The most exposed rows",
    "share of the rows",
    "Rows by rank",
    "rank of the row",
    "of the rows show evidence",
    "the data without the row",
    "belief that it was in",
    "every other row",
    "The row's mean",
    "the row had bad luck",
    "any row of any data",
    "all other rows",
)


def test_nothing_that_is_said_of_rows_is_said_of_persons(laplace):
    release, _, _, profile = laplace
    rows = Page(render_html(collect(profile, release=release))).text
    persons = Page(render_html(reported(laplace)[1])).text
    for words in OF_ROWS:
        assert words in rows, words
        assert words not in persons, words
    assert "person" not in rows


def test_the_text_speaks_of_persons(report):
    summary = report[1].profile
    shown = render_markdown(report[1])
    assert "# Privacy profile of 40 persons with 150 rows" in shown
    assert summary.persons.sentence in shown
    assert "## The most exposed persons" in shown
    assert re.search(r"^\| rank \| person \| rows \| (exposure|distance)", shown, re.MULTILINE)
    assert re.search(r"^\| answer \| rows \| persons \| mean", shown, re.MULTILINE)
    assert shown.count("Each row counts with its person's exposure.") == 3
    first = summary.top[0]
    assert re.search(rf"^\| 1 \| {first.key} \| {first.rows} \|", shown, re.MULTILINE)


def test_json_tells_of_persons_or_says_that_there_are_none(report, laplace):
    summary = report[1].profile
    content = json.loads(render_json(report[1]))["profile"]
    assert content["rows"] == 150
    assert content["persons"] == {
        "count": 40,
        "median_rows": 3,
        "most_rows": 33,
        "row_epsilon": None if summary.is_noiseless else 2.0,
        "passed": summary.persons.passed,
    }
    assert [row["rows"] for row in content["top"]] == [row.rows for row in summary.top]
    assert content["groups"][0]["groups"][0]["persons"] == summary.groups[0].groups[0].persons
    plain = json.loads(render_json(collect(laplace[3])))["profile"]
    assert plain["persons"] is None
    assert {row["rows"] for row in plain["top"]} == {None}


def test_charts_are_of_persons(report, laplace):
    profile, summary = report[0], report[1].profile
    chart = profile_chart(summary)
    assert chart.description.startswith(f"The {summary.measure} of 40 persons by rank")
    assert "rank of the person" in chart.x_label
    drawn = ProfileDisplay.from_profile(profile)
    assert drawn.plot().ax_.get_xlabel() == "rank of the person, least exposed first"
    plain = ProfileDisplay.from_profile(laplace[3])
    assert plain.plot().ax_.get_xlabel() == "rank of the row, least exposed first"


def test_names_of_persons_are_escaped():
    losses = noiseless(3).losses
    profile = Profile(
        losses=losses,
        description="m",
        rows=4,
        ids=(HOSTILE, "b", "c"),
        owner=np.array([0, 0, 1, 2]),
    )
    page = Page(render_html(collect(profile)))
    check(page)
    assert page.tags.count("script") == 2
    assert '<script>alert("x")</script>' in page.text
    assert "<script>" not in render_markdown(collect(profile)).replace("\\<", "")


def test_errors_without_a_bound_are_counted_by_person():
    high = synthetic(6).losses.high.copy()
    high[2:4] = math.inf
    text = Page(render_html(collect(made_up(6, [2] * 6, high=high)))).text
    assert "but for 2 persons whose error has no bound" in text
    zero = np.zeros(6)
    still = RowLosses.without_noise(zero, zero, Neighbouring.REMOVE)
    profile = Profile(losses=still, description="m", rows=6, owner=np.arange(6))
    assert "No person is exposed at all" in Page(render_html(collect(profile))).text
