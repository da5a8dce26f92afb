"""A browser for the tests of this folder, and pages that are watched while they are open."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from .finding import FLAGS, NoBrowser, find
from .pages import page
from .watching import Opener, Window

# The rules of axe-core that can change their mind with the colours.
_COLOURS = ["color-contrast", "link-in-text-block"]


# Not for the whole session: while playwright's loop runs in this process no other test could run
# one of its own (asyncio.run). Both end when the last test of this folder is done.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    try:
        path = find()
    except NoBrowser as error:
        pytest.fail(str(error), pytrace=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def windows(browser) -> dict[tuple[bool, bool], list[Window]]:
    """Windows that no test uses now."""
    return {}


@pytest.fixture
def open_page(browser, windows) -> Iterator[Opener]:
    opener = Opener(browser, windows)
    yield opener
    opener.close()


@pytest.fixture(scope="session")
def axe_source() -> str:
    """The rules of axe-core as one script: axe-playwright-python carries it, nothing else is used."""
    files = metadata.files("axe-playwright-python") or []
    (path,) = (file for file in files if file.name == "axe.min.js")
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Axe:
    """axe-core on a page; its script needs to be let through the page's policy."""

    source: str
    opener: Opener

    def open(self, path: Path, **options: Any) -> Page:
        page = self.opener(path, bypass=True, **options)
        page.evaluate(self.source)
        return page

    def violations(self, page: Page) -> list[str]:
        """What it finds as the page is now, but for colours: impact, rule, where, a line each."""
        off = {rule: {"enabled": False} for rule in _COLOURS}
        return self._run(page, {}, {"rules": off})

    def contrasts(self, page: Page) -> list[str]:
        """What it finds amiss with the colours.

        That is nearly all of its time, so that of plain rows of a table it looks at two, and of
        drawings at none, which it does not judge anyway.
        """
        alike = ("tbody tr:nth-child(n+3):not([class])", "dl > :nth-child(n+9)", "svg")
        shown = {"exclude": [[selector] for selector in alike]}
        return self._run(page, shown, {"runOnly": {"type": "rule", "values": _COLOURS}})

    def _run(self, page: Page, context: Any, options: Any) -> list[str]:
        options = {"resultTypes": ["violations"], **options}
        report = page.evaluate(
            "([context, options]) => axe.run({include: [['html']], ...context}, options)",
            [context, options],
        )
        assert report["passes"] or report["violations"], "axe-core checked nothing"
        return [
            f"{violation['impact']}: {violation['id']}: {violation['help']}: {node['target']}: {node['html'][:200]}"
            for violation in report["violations"]
            for node in violation["nodes"]
        ]


@pytest.fixture
def axe(open_page, axe_source) -> Axe:
    return Axe(axe_source, open_page)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory) -> Callable[[str, Callable[[], str]], Path]:
    """Pages by name, each made once for all test processes.

    The same page comes out whoever makes it, so that two that begin at once do no harm.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "pages"
    folder.mkdir(exist_ok=True)

    def call(name: str, build: Callable[[], str]) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            part.write_text(build(), encoding="utf-8")
            part.replace(path)
        return path

    return call


@pytest.fixture(scope="session")
def made(shelf) -> Callable[[str], Path]:
    """The page of a kind, see pages.py."""
    return lambda kind: shelf(kind, lambda: page(kind))
