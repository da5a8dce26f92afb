"""Everything on a page without a mouse."""

import pytest

from .pages import KINDS, MANY, PEOPLE
from .watching import PHONE

# What the keyboard can come to, in the order of the page.
REACHED = """() => [...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex]'
)].filter(one => one.tabIndex >= 0 && !one.disabled && one.checkVisibility())"""

# What has the focus: its place among them, whether one sees that it has it, and where it is.
FOCUSED = f"""() => {{
    const one = document.activeElement;
    if (one === document.body) return null;
    const style = getComputedStyle(one);
    const box = one.getBoundingClientRect();
    return {{
        place: ({REACHED})().indexOf(one),
        marked: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
        seen: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
        shown: one.outerHTML.slice(0, 120),
    }};
}}"""


def tabbed_to(page, selector):
    """Press Tab until it is there; so often that it must be."""
    for _ in range(page.evaluate(f"({REACHED})().length") + 1):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return page.locator(selector)
    pytest.fail(f"Tab does not come to {selector}")


@pytest.mark.parametrize("kind", KINDS)
def test_tab_comes_to_everything_in_order_and_out_again(open_page, made, kind):
    page = open_page(made(kind), size=PHONE)
    expected = page.evaluate(f"({REACHED})().length")
    assert expected
    assert page.locator("[tabindex]").evaluate_all("all => all.every(one => one.tabIndex <= 0)")
    visited = []
    for _ in range(expected):
        page.keyboard.press("Tab")
        visited.append(page.evaluate(FOCUSED) or {"place": None})
    assert [one["place"] for one in visited] == list(range(expected))
    # Nothing holds the focus: it leaves the page, or begins again where there is nothing else.
    page.keyboard.press("Tab")
    after = page.evaluate(FOCUSED)
    assert after is None or after["place"] == 0
    assert [one["shown"] for one in visited if not one["marked"] or not one["seen"]] == []


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_can_be_reached_has_a_name(open_page, made, kind):
    page = open_page(made(kind))
    spoken = page.locator("body").aria_snapshot()
    for role in ("textbox", "searchbox", "slider", "spinbutton", "button", "combobox", "link"):
        nameless = [
            line
            for line in spoken.splitlines()
            if line.strip().startswith(f"- {role}") and '"' not in line and "/" not in line
        ]
        assert nameless == []


def test_arrows_move_epsilon_and_its_figures(open_page, made):
    page = open_page(made("profile"))
    slider = tabbed_to(page, "input[type=range]")
    figures = page.locator("output[data-output]")
    before, shown = slider.get_attribute("aria-valuetext"), figures.all_inner_texts()
    page.keyboard.press("End")
    page.wait_for_function(
        "before => document.querySelector('output[data-output]').textContent !== before",
        arg=shown[0],
    )
    assert slider.get_attribute("aria-valuetext") != before
    assert all(
        later != earlier for later, earlier in zip(figures.all_inner_texts(), shown, strict=True)
    )
    page.keyboard.press("ArrowLeft")
    last = slider.get_attribute("aria-valuetext")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('button[data-reset]')")
    page.keyboard.press("Enter")
    assert slider.get_attribute("aria-valuetext") == before != last


def test_arrows_walk_along_the_profile(open_page, made):
    page = open_page(made("profile"))
    chart = tabbed_to(page, ".chart[role=slider]")
    told = [chart.get_attribute("aria-valuetext")]
    for key in ("ArrowRight", "PageUp", "End", "Home"):
        page.keyboard.press(key)
        told.append(chart.get_attribute("aria-valuetext"))
        assert page.locator(".readout").is_visible()
    assert told[0] == told[4]
    assert len(set(told)) == 4
    # The same in words as in the panel.
    words = page.locator(".readout").inner_text()
    for fact in ("rank", "certainty", "evidence", "exposure", "certified to"):
        assert fact in told[0]
        assert fact in words
    assert f"1 of {PEOPLE}" in told[0]
    assert f"{PEOPLE} of {PEOPLE}" in told[3]


def test_a_row_is_found_by_typing(open_page, made):
    page = open_page(made("profile"))
    tabbed_to(page, "input[type=search]")
    page.keyboard.type("p017")
    page.keyboard.press("Enter")
    found = page.locator("[data-results] tbody tr")
    assert found.count() == 1
    assert "p017" in found.inner_text()
    assert "1 row matches" in page.locator("[data-status]").inner_text()


def test_the_largest_page_answers_keys_at_once(open_page, made):
    page = open_page(made("large"))
    tabbed_to(page, "input[type=search]")
    page.keyboard.type(f"person {MANY - 1}")
    assert "1 row matches" in page.locator("[data-status]").inner_text()
