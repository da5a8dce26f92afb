"""Every page for people who do not see it, do not see it well, or have no mouse."""

import pytest

from .conftest import PHONE
from .pages import KINDS

GRAVE = ("serious", "critical")


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_grave(axe, made, kind):
    """On a desktop and a phone, light and dark; axe-core's own rules, best practice included."""
    page = axe.open(made(kind))
    found = axe.violations(page) + axe.contrasts(page)
    page.emulate_media(color_scheme="dark")
    found += axe.contrasts(page)
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    found += axe.violations(page) + axe.contrasts(page)
    page.emulate_media(color_scheme="light")
    found += axe.contrasts(page)
    assert [line for line in found if line.startswith(GRAVE)] == []


def test_axe_sees_what_is_wrong(axe, tmp_path):
    path = tmp_path / "wrong.html"
    path.write_text(
        "<!doctype html><html><title>wrong</title><style>p {color: #aaa; background: #fff}</style>"
        "<main><h1>x</h1><p>pale</p><input><button></button></main>"
    )
    page = axe.open(path)
    rules = {line.split(": ")[1] for line in axe.violations(page) + axe.contrasts(page)}
    assert {"html-has-lang", "color-contrast", "label", "button-name"} <= rules
