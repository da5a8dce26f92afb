"""Every page on paper."""

import re

import pytest

from .pages import KINDS

# A4 within margins of 1 cm, at 96 pixels an inch.
PAPER = (718, 1047)
# The chart is a control too, and stays: it is what is read.
CONTROLS = "input, button, select, textarea"

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_paper_shows_all_that_can_be_read_and_nothing_that_must_be_pressed(open_page, made, kind):
    page = open_page(made(kind), size=PAPER)
    hidden_on_screen = _headings(page, "h1, h2, h3, caption, figcaption, th, td, dd")
    page.emulate_media(media="print")
    assert page.locator(CONTROLS).locator("visible=true").count() == 0
    hidden_on_paper = _headings(page, "h1, h2, h3, caption, figcaption, th, td, dd")
    assert hidden_on_paper <= hidden_on_screen | _of_controls(page)
    # Nothing scrolls on paper: what is too wide would be lost.
    lost = page.evaluate(
        """[...document.querySelectorAll('body *')].filter(one =>
            one instanceof HTMLElement && one.clientWidth > 1 &&
            one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible'
        ).map(one => one.outerHTML.slice(0, 200))"""
    )
    assert lost == []


@kinds
def test_dark_pages_are_printed_in_ink_on_paper(open_page, made, kind):
    page = open_page(made(kind), scheme="dark", size=PAPER)
    dark = _brightness(page)
    assert dark["paper"] < 80 < 175 < dark["ink"]
    page.emulate_media(media="print", color_scheme="dark")
    printed = _brightness(page)
    assert printed["ink"] < 80 < 200 < printed["paper"]


def _headings(page, selector):
    """The texts among these that are not shown."""
    return set(
        page.locator(selector).evaluate_all(
            "all => all.filter(one => !one.checkVisibility()).map(one => one.textContent.trim())"
        )
    )


def _of_controls(page):
    """Texts that belong to what is only pressed: they may go with it."""
    return set(
        page.locator(".controls, .readout, .hint, .card:has([data-widget=search])").evaluate_all(
            """all => all.flatMap(one => [one, ...one.querySelectorAll('*')])
                .map(one => one.textContent.trim())"""
        )
    )


def _brightness(page):
    """Of the page's background and of its text, 0 to 255."""
    pixels = page.evaluate(
        """() => {
            const style = getComputedStyle(document.body);
            return {paper: style.backgroundColor, ink: style.color};
        }"""
    )
    return {
        name: sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3
        for name, colour in pixels.items()
    }
