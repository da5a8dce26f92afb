"""Every page for people who do not see it, do not see it well, or have no mouse."""

import pytest

from .conftest import DESKTOP, PHONE
from .pages import KINDS

GRAVE = ("serious", "critical")


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_grave(axe, made, kind):
    """On a desktop and a phone, light and dark; axe-core's own rules, best practice included."""
    page = axe.open(made(kind))
    found = {}
    for size in (DESKTOP, PHONE):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            # Of all rules only these can change their mind with the colours.
            rules = () if scheme == "light" else ("color-contrast", "link-in-text-block")
            found[size[0], scheme] = axe.violations(page, *rules)
    grave = {
        view: [line for line in lines if line.startswith(GRAVE)] for view, lines in found.items()
    }
    assert grave == {view: [] for view in found}


def test_axe_sees_what_is_wrong(axe, tmp_path):
    path = tmp_path / "wrong.html"
    path.write_text(
        "<!doctype html><html><title>wrong</title><style>p {color: #aaa; background: #fff}</style>"
        "<main><h1>x</h1><p>pale</p><input><button></button></main>"
    )
    rules = {line.split(": ")[1] for line in axe.violations(axe.open(path))}
    assert {"html-has-lang", "color-contrast", "label", "button-name"} <= rules
