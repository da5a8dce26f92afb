"""A browser for the tests of this folder, and pages that are watched while they are open."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from .finding import FLAGS, NoBrowser, find
from .pages import page

# Widths and heights of what people read the report on.
DESKTOP, PHONE, NARROW = (1280, 900), (390, 844), (320, 640)
_MILLISECONDS = 20_000
# The rules of axe-core that can change their mind with the colours.
_COLOURS = ["color-contrast", "link-in-text-block"]


@dataclass
class Watched:
    """An open page, and everything that it did besides being shown."""

    context: BrowserContext
    own: str
    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Listen before it loads: requests (also blocked ones), messages, errors, dialogs."""
        self.context.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))
        page.on("console", lambda message: self._say(message.type, message.text))
        page.on("pageerror", lambda error: self._say("error", str(error)))
        page.on("dialog", self._dismiss)

    def _say(self, kind: str, text: str) -> None:
        if kind in ("error", "warning", "assert"):
            self.console.append(f"{kind}: {text}")

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def is_quiet(self) -> None:
        """Asked for nothing but its own file, complained of nothing, opened no dialog."""
        assert [url for url in self.requests if url.partition("#")[0] != self.own] == []
        assert self.console == []
        assert self.dialogs == []
        assert self.requests, "the page itself was not seen to be asked for: nothing is watched"


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


@dataclass
class Opener:
    """Opens files, each in a context of its own."""

    browser: Browser
    opened: list[Watched] = field(default_factory=list)

    def __call__(
        self,
        path: Path,
        *,
        size: tuple[int, int] = DESKTOP,
        scheme: str = "light",
        motion: str = "no-preference",
        bypass: bool = False,
        scripts: bool = True,
    ) -> Page:
        """Open a file; when the test is over the page must have kept quiet.

        ``size`` in CSS pixels, ``scheme`` light or dark, ``motion`` reduce or no-preference; with
        ``bypass`` scripts of the test are let through the page's content policy; without
        ``scripts`` the page's own are not run.
        """
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            reduced_motion=motion,
            bypass_csp=bypass,
            java_script_enabled=scripts,
        )
        context.set_default_timeout(_MILLISECONDS)
        page = context.new_page()
        watched = Watched(context=context, own=path.as_uri())
        watched.watch(page)
        self.opened.append(watched)
        page.goto(path.as_uri())
        return page

    def let_off(self) -> Watched:
        """The page opened last, which may be loud."""
        return self.opened.pop()


@pytest.fixture
def open_page(browser) -> Iterator[Opener]:
    opener = Opener(browser)
    yield opener
    for watched in opener.opened:
        watched.context.close()
    for watched in opener.opened:
        watched.is_quiet()


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

        That is nearly all of its time, so that of plain rows of a table it looks at the first few.
        """
        shown = {"exclude": [["tbody tr:nth-child(n+4):not([class])"]]}
        return self._run(page, shown, {"runOnly": {"type": "rule", "values": _COLOURS}})

    def _run(self, page: Page, context: Any, options: Any) -> list[str]:
        options = {"resultTypes": ["violations"], **options}
        found = page.evaluate(
            "([context, options]) => axe.run({include: [['html']], ...context}, options)",
            [context, options],
        )
        assert found["passes"] or found["violations"], "axe-core checked nothing"
        return [
            f"{one['impact']}: {one['id']}: {one['help']}: {node['target']}: {node['html'][:200]}"
            for one in found["violations"]
            for node in one["nodes"]
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


def embedded(page: Page) -> Any:
    """The data that the page carries for its scripts; None where it carries none."""
    text = page.evaluate("document.getElementById('expost-data')?.textContent ?? null")
    return None if text is None else json.loads(text)


@pytest.fixture(scope="session")
def made(shelf) -> Callable[[str], Path]:
    """The page of a kind, see pages.py."""
    return lambda kind: shelf(kind, lambda: page(kind))
