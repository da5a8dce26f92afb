"""Everything on a page without a mouse."""

import pytest

from .pages import KINDS, MANY
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
    assert page.locator("[tabindex]").evaluate_all("all => all.every(e => e.tabIndex <= 0)")
    visited = []
    for _ in range(expected):
        page.keyboard.press("Tab")
        visited.append(page.evaluate(FOCUSED) or {"place": None})
    assert [stop["place"] for stop in visited] == list(range(expected))
    # Nothing holds the focus: it leaves the page, or begins again where there is nothing else.
    page.keyboard.press("Tab")
    after = page.evaluate(FOCUSED)
    assert after is None or after["place"] == 0
    assert [stop["shown"] for stop in visited if not stop["marked"] or not stop["seen"]] == []


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


def test_the_largest_page_answers_keys_at_once(open_page, made):
    page = open_page(made("large"))
    tabbed_to(page, "input[type=search]")
    page.keyboard.type(f"person {MANY - 1}")
    assert "1 row matches" in page.locator("[data-status]").inner_text()
