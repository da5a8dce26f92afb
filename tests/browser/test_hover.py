"""Reading single rows off the chart of the profile, by pointer and by keyboard."""

import math

import pytest
from playwright.sync_api import expect

from expost.report import page_of, render_html
from report.conftest import fitted, noiseless, synthetic

IDS = tuple(f"p{number}" for number in range(2000))


def plain():
    release, _, _, profile = fitted()
    return render_html(page_of(profile, release=release))


def keyed():
    return render_html(page_of(synthetic(2000, ids=IDS)))


def facts(page):
    terms = page.locator(".readout dt").all_inner_texts()
    return dict(zip(terms, page.locator(".readout dd").all_inner_texts(), strict=True))


def number(text):
    """The number that a text begins with, which may have a power of ten."""
    mantissa, *power = text.replace(",", "").split()
    if power[:1] == ["×"]:
        raised = power[1].removeprefix("10").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
        return float(f"{mantissa}e{raised}")
    return float(mantissa)


def test_keys_move_along_the_ranks(open_page, shelf):
    page = open_page(shelf("hover-keyed", keyed))
    profile = synthetic(2000, ids=IDS)
    chart = page.get_by_role("slider", name="row by rank")
    chart.focus()
    rank = 1

    def check():
        row = profile.ranking[rank - 1]
        shown_facts = facts(page)
        assert shown_facts["rank"] == f"{rank:,} of 2,000"
        assert shown_facts["row"] == IDS[row]
        assert number(shown_facts["exposure"]) == pytest.approx(profile.exposure[row], rel=5e-3)
        posterior = profile.posterior[row]
        certainty = number(shown_facts["attacker’s certainty"])
        assert 0 <= certainty - 100 * max(posterior, 1 - posterior) < 0.101
        assert shown_facts["evidence of"] == ("presence" if profile.loss[row] > 0 else "absence")
        assert shown_facts["certified to"].startswith("±")
        assert chart.get_attribute("aria-valuenow") == str(rank)
        assert IDS[row] in chart.get_attribute("aria-valuetext")

    check()
    for key, step in (
        ("ArrowRight", 2),
        ("ArrowUp", 3),
        ("ArrowLeft", 2),
        ("End", 2000),
        ("ArrowRight", 2000),
        ("ArrowDown", 1999),
        ("PageDown", 1599),
        ("Home", 1),
        ("PageUp", 2),
        ("ArrowLeft", 1),
        ("ArrowLeft", 1),
    ):
        page.keyboard.press(key)
        rank = step
        check()


def test_a_pointer_reads_the_rank_under_it(open_page, shelf):
    page = open_page(shelf("hover-keyed", keyed))
    profile = synthetic(2000, ids=IDS)
    svg = page.locator(".chart[role=slider] svg")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    left, right, width = svg.evaluate(
        """one => { const area = one.querySelector('clipPath rect');
            const x = area.x.baseVal.value;
            return [x, x + area.width.baseVal.value, one.viewBox.baseVal.width]; }"""
    )
    for share in (0.0, 0.31, 0.77, 1.0):
        at = box["x"] + box["width"] * (left + share * (right - left)) / width
        page.mouse.move(at, box["y"] + box["height"] / 2)
        rank = int(facts(page)["rank"].split()[0].replace(",", ""))
        # A pixel is a few ranks at the right end.
        assert math.log(rank) == pytest.approx(share * math.log(2000), abs=0.02 + 1 / rank)
        assert facts(page)["row"] == IDS[profile.ranking[rank - 1]]
    assert page.locator("line.cursor").count() == 1


def test_the_expected_certainty_of_the_row_follows_the_slider(open_page, shelf):
    page = open_page(shelf("hover-plain", plain))
    _, _, _, profile = fitted()
    page.get_by_role("slider", name="row by rank").focus()
    row = profile.ranking[0]
    expected = 100 / (1 + math.exp(-profile.expected[row]))
    assert number(facts(page)["expected certainty at ε = 2"]) == pytest.approx(expected, abs=0.101)
    page.get_by_label("ε =", exact=True).fill("40")
    expect(page.locator(".readout")).to_contain_text("expected certainty at ε = 40")
    assert number(facts(page)["expected certainty at ε = 40"]) > expected + 1
    assert number(facts(page)["exposure"]) == pytest.approx(profile.exposure[row], rel=5e-3)


def test_without_noise_it_tells_distances(open_page, shelf):
    page = open_page(shelf("hover-noiseless", lambda: render_html(page_of(noiseless()))))
    profile = noiseless()
    page.get_by_role("slider", name="row by rank").focus()
    shown_facts = facts(page)
    assert set(shown_facts) == {"rank", "row", "distance"}
    assert number(shown_facts["distance"]) == pytest.approx(max(profile.distance), rel=5e-3)


def test_without_scripts_the_chart_is_a_picture(open_page, shelf):
    page = open_page(shelf("hover-keyed", keyed), scripts=False)
    assert page.get_by_role("slider").count() == 0
    assert page.get_by_role("img", name="certainty by rank").is_visible()
    assert page.locator(".readout").count() == 0
