"""Text that tries to get out of the page, in every block of a document."""

from report.conftest import HOSTILE

# As the examples have it: documents hold printable text on one line.
TEXT = HOSTILE.replace("\n", " ")


def test_hostile_text_is_text(open_page, made):
    page = open_page(made("hostile"))
    text = page.evaluate("document.body.textContent")
    assert text.count(TEXT) > 20
    assert page.title().startswith('</style><script>alert("x")</script>')
    assert page.locator("img, iframe, svg[onload], [onerror]").count() == 0
    scripts = page.locator("script").evaluate_all(
        "all => all.filter(one => one.type !== 'application/json').map(one => one.textContent)"
    )
    assert len(scripts) == 1
    assert "alert(" not in scripts[0]


def test_nothing_runs_where_the_policy_is_not_there(open_page, made):
    # The policy is the second line: without it the texts must still be text.
    page = open_page(made("hostile"), bypass=True)
    page.wait_for_timeout(100)
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.locator("img").count() == 0


def test_hostile_keys_are_found_and_shown_as_text(open_page, made):
    page = open_page(made("hostile"))
    page.locator("input[type=search]").fill("</style>")
    assert page.locator("[data-results] tbody tr").count() == 50
    assert page.locator("[data-results] tbody th").first.text_content() == TEXT
    assert page.locator("[data-results] :is(script, img)").count() == 0


def test_long_names_do_not_widen_the_page(open_page, made):
    page = open_page(made("hostile"), size=(320, 640))
    assert page.evaluate("document.documentElement.scrollWidth") == 320
