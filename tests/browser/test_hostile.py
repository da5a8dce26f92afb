"""Names that try to get out of the page: of columns, levels, ids, classes and files."""

import pytest

from expost.report import render_html
from program import people

from .pages import profiled

SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
CLOSING = "</script><script>alert(2)</script>"
COMMENT = "<!--<script>]]>"
TEMPLATE = "{{ 7 * 7 }}${alert(3)}"
BACKWARDS = "\u202egnissap\u2066"
LONG = "Donaudampfschifffahrtsgesellschaft" * 12
NAMES = (SCRIPT, IMAGE, CLOSING, COMMENT, TEMPLATE, BACKWARDS, LONG)
# A file cannot have a slash in its name.
FILE = '"><img src=x onerror=alert(1)><svg onload=alert(2)>.csv'


@pytest.fixture(scope="module")
def hostile(shelf):
    """The page of `expost profile` on a table all of whose names are like that."""
    return shelf("hostile", lambda: render_html(profiled(_table(), FILE, **_OPTIONS)))


_OPTIONS = {"target": CLOSING, "id_column": IMAGE}


def _table():
    header, *rows = people(120)
    # number, age, city, smoker, hours, income
    header = [IMAGE, BACKWARDS, SCRIPT, TEMPLATE, LONG, CLOSING]
    cities = {"Oslo": SCRIPT, "Bergen": CLOSING, "Paris": LONG}
    classes = {">50K": IMAGE, "<=50K": COMMENT}
    keys = {0: SCRIPT, 1: CLOSING, 2: LONG, 3: BACKWARDS, 4: IMAGE}
    named = [
        [keys.get(at, number + IMAGE), age, cities[city], smoker, hours, classes[income]]
        for at, (number, age, city, smoker, hours, income) in enumerate(rows)
    ]
    return [header, *named]


def test_hostile_names_are_text(open_page, hostile):
    page = open_page(hostile, size=(1280, 900))
    text = page.evaluate("document.body.textContent")
    for name in (SCRIPT, IMAGE, CLOSING, COMMENT, TEMPLATE, LONG, FILE):
        assert name in text, name
    # Nothing of what they ask for came to be. The page's own scripts carry no such word.
    assert page.locator("img, iframe, svg[onload], [onerror]").count() == 0
    scripts = page.locator("script").evaluate_all(
        "all => all.filter(one => one.type !== 'application/json').map(one => one.textContent)"
    )
    assert not [script for script in scripts if script.startswith("alert(")]
    assert "49" not in page.title()


def test_nothing_runs_where_the_policy_is_not_there(open_page, hostile):
    # The policy is the second line: without it the names must still be text.
    page = open_page(hostile, bypass=True)
    page.wait_for_timeout(100)
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.locator("img").count() == 0


def test_text_that_runs_backwards_turns_nothing_else_around(open_page, hostile):
    page = open_page(hostile)
    assert "\u202e" not in page.evaluate("document.documentElement.outerHTML")
    assert "gnissap" in page.evaluate("document.body.textContent")


def test_a_long_name_does_not_widen_the_page(open_page, hostile):
    page = open_page(hostile, size=(320, 640))
    assert page.evaluate("document.documentElement.scrollWidth") == 320


def test_the_page_of_honest_names_has_as_many_elements(open_page, hostile, shelf):
    """A name that became an element would be one more."""
    header, *rows = people(120)
    options = {"target": "income", "id_column": "number"}
    honest = shelf("honest", lambda: render_html(profiled([header, *rows], **options)))
    shapes = [
        open_page(path).evaluate(
            "[...new Set([...document.querySelectorAll('*')].map(one => one.tagName))].sort()"
        )
        for path in (hostile, honest)
    ]
    assert shapes[0] == shapes[1]
