"""Looking rows up in a real browser: by number and by id."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

import expost.report as report
from report.conftest import HOSTILE, fitted, noiseless, synthetic

ROWS = 130
IDS = (*(f"Person-{number}" for number in range(ROWS - 3)), HOSTILE, "Ångström", "7")


def page_of(profile, **options):
    return report.render_html(report.page_of(profile, **options))


def numbered():
    return page_of(synthetic(ROWS))


def keyed():
    return page_of(synthetic(ROWS, ids=IDS))


def results(page, where="[data-results]"):
    """Rows of a table of results, as texts by their heading."""
    table = page.locator(where)
    if not table.is_visible():
        return []
    heads = table.locator("thead th").all_inner_texts()
    return [
        dict(zip(heads, line.locator("th, td").all_inner_texts(), strict=True))
        for line in table.locator("tbody tr").all()
    ]


def rank_of(profile, row):
    return list(profile.ranking).index(row) + 1


def test_a_number_finds_its_row_first_and_then_those_that_begin_alike(open_page, shelf):
    page = open_page(shelf("search-numbered", numbered))
    profile = synthetic(ROWS)
    page.get_by_label("Number of the row").fill("12")
    matches = results(page)
    expected = [row for row in range(ROWS) if str(row).startswith("12") and row != 12]
    expected.sort(key=lambda row: rank_of(profile, row))
    assert [line["row"] for line in matches] == ["12", *map(str, expected)]
    for line in matches:
        row = int(line["row"])
        assert line["rank"] == str(rank_of(profile, row))
        assert float(line["exposure"].split()[0]) == pytest.approx(profile.exposure[row], rel=5e-3)
        less = np.mean(profile.exposure < profile.exposure[row])
        assert float(line["more exposed than"].split()[0]) == pytest.approx(100 * less, abs=0.051)
        certainty = float(line["attacker’s certainty"].split()[0])
        posterior = profile.posterior[row]
        assert 0 <= certainty - 100 * max(posterior, 1 - posterior) < 0.101
    assert page.locator("[data-status]").inner_text() == "11 rows match."


@pytest.mark.parametrize(
    ("wanted", "outcome"), [("999", "No row matches."), ("12.5", "No row matches."), ("", "")]
)
def test_what_is_not_there_is_not_found(open_page, shelf, wanted, outcome):
    page = open_page(shelf("search-numbered", numbered))
    box = page.get_by_label("Number of the row")
    box.fill("5")
    assert results(page)
    box.fill(wanted)
    assert results(page) == []
    assert page.locator("[data-status]").inner_text() == outcome


def test_ids_are_found_whatever_their_case(open_page, shelf):
    page = open_page(shelf("search-keyed", keyed))
    profile = synthetic(ROWS, ids=IDS)
    box = page.get_by_label("Key or number of the row")
    box.fill("pErSoN-12")
    matches = results(page)
    assert matches[0]["row"] == "Person-12"
    assert matches[0]["rank"] == str(rank_of(profile, 12))
    assert matches[0]["number"] == "12"
    assert {line["row"] for line in matches[1:]} == {f"Person-12{digit}" for digit in range(7)}
    box.fill("ÅNG")
    assert [line["row"] for line in results(page)] == ["Ångström"]
    # An id goes before a number that reads alike.
    box.fill("7")
    assert [line["number"] for line in results(page)] == [str(ROWS - 1), "7"]
    box.fill("row 9")
    assert [line["row"] for line in results(page)] == ["Person-9"]


def test_hostile_ids_are_text(open_page, shelf):
    page = open_page(shelf("search-keyed", keyed))
    page.get_by_label("Key or number of the row").fill("</style><script>")
    (line,) = results(page)
    assert line["row"].startswith('</style><script>alert("x")</script>')
    assert line["row"].endswith("\\n\\u202e&lt;")
    assert page.locator("[data-results] :is(script, img)").count() == 0


def test_many_matches_are_counted_and_the_most_exposed_shown(open_page, shelf):
    page = open_page(shelf("search-keyed", keyed))
    page.get_by_label("Key or number of the row").fill("person")
    assert re.findall(r"\d+", page.locator("[data-status]").inner_text()) == ["127", "50"]
    ranks = [int(line["rank"]) for line in results(page)]
    assert len(ranks) == 50
    assert ranks == sorted(ranks)


def test_results_follow_the_slider(open_page, shelf):
    release, _, _, profile = fitted()
    page = open_page(shelf("search-slider", lambda: page_of(profile, release=release)))
    page.get_by_label("Number of the row").fill("3")
    before = float(results(page)[0]["expected certainty at ε = 2"].split()[0])
    assert before == pytest.approx(100 / (1 + np.exp(-profile.expected[3])), abs=0.101)
    page.get_by_label("ε =", exact=True).fill("40")
    expect(page.locator("[data-results] thead")).to_contain_text("ε = 40")
    assert float(results(page)[0]["expected certainty at ε = 40"].split()[0]) > before + 0.5


def test_without_noise_there_are_distances(open_page, shelf):
    page = open_page(shelf("search-noiseless", lambda: page_of(noiseless(20))))
    page.get_by_label("Number of the row").fill("0")
    (line,) = results(page)
    assert line["distance"] == "0"
    assert line["more exposed than"].split() == ["0", "%", "of", "all"]
    assert "exposure" not in line


def test_without_scripts_it_says_so(open_page, shelf):
    page = open_page(shelf("search-numbered", numbered), scripts=False)
    assert "The search needs JavaScript" in page.locator("[data-widget=search]").inner_text()
    assert not page.locator("[data-widget=search] input").first.is_visible()
