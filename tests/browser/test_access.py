"""Every page for people who do not see it, do not see it well, or have no mouse."""

import re

import pytest

from .pages import KINDS
from .watching import PHONE

GRAVE = ("serious", "critical")


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_grave(axe, made, kind):
    """On a desktop and a phone, light and dark; axe-core's own rules, best practice included."""
    page = axe.open(made(kind))
    violations = axe.violations(page) + axe.contrasts(page)
    # No colour depends on the width: both schemes are looked at where the page is short, and
    # axe-core is quicker.
    page.emulate_media(color_scheme="dark")
    violations += axe.contrasts(page)
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    violations += axe.violations(page)
    assert [line for line in violations if line.startswith(GRAVE)] == []


def test_axe_sees_what_is_wrong(axe, tmp_path):
    path = tmp_path / "wrong.html"
    path.write_text(
        "<!doctype html><html><title>wrong</title><style>p {color: #aaa; background: #fff}</style>"
        "<main><h1>x</h1><p>pale</p><input><button></button></main>"
    )
    page = axe.open(path)
    rules = {line.split(": ")[1] for line in axe.violations(page) + axe.contrasts(page)}
    assert {"html-has-lang", "color-contrast", "label", "button-name"} <= rules


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_drawings_can_be_told_from_what_they_are_drawn_on(open_page, made, scheme):
    """WCAG 2.2: text 4.5 to 1 (1.4.3), lines that mean something 3 to 1 (1.4.11).

    axe-core does not judge text within drawings.
    """
    page = open_page(made("every"), scheme=scheme)
    paper = page.locator(".card").first.evaluate("one => getComputedStyle(one).backgroundColor")
    texts = _colours(page, "figure svg[role=img] text, figcaption, figure .legend li", "fill")
    lines = _colours(page, "figure svg[role=img] .series, figure .axis, figure .bar", "stroke")
    assert len(texts) >= 2
    assert len(lines) >= 4
    assert {
        colour: _contrast(colour, paper) for colour in texts if _contrast(colour, paper) < 4.5
    } == {}
    assert {
        colour: _contrast(colour, paper) for colour in lines if _contrast(colour, paper) < 3
    } == {}


def test_contrast_is_what_wcag_says():
    assert _contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert _contrast("rgb(255, 255, 255)", "rgb(119, 119, 119)") == pytest.approx(4.48, abs=0.005)


def _colours(page, selector, property_):
    colours = page.locator(selector).evaluate_all(
        """(all, property) => all.map(one => {
            const style = getComputedStyle(one);
            return one instanceof SVGElement ? style[property] : style.color;
        })""",
        property_,
    )
    return set(colours) - {"none"}


def _contrast(first, other):
    """(L₁ + 0.05)/(L₂ + 0.05) of the relative luminances, the lighter on top."""
    dark, light = sorted(map(_luminance, (first, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour):
    """Of an sRGB colour as the browser writes it: rgb(r, g, b)."""
    parts = [
        int(part) / 255 for part in re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour).groups()
    ]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
