"""Windows that pages are opened in, and watched: what they ask for, complain of and pop up."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from playwright.sync_api import Browser, BrowserContext, Error, Page

# Widths and heights of what people read the report on.
DESKTOP, PHONE, NARROW = (1280, 900), (390, 844), (320, 640)
_MILLISECONDS = 20_000
_BLANK = "about:blank"


@dataclass
class Window:
    """One page after the other, and everything that the last one did besides being shown.

    A window is kept for the next test, for a new one takes five times as long as a page in it.
    """

    context: BrowserContext
    page: Page
    own: str = _BLANK
    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, browser: Browser, *, bypass: bool, scripts: bool) -> Self:
        """A new one, with ears: requests (also blocked ones), messages, errors, dialogs."""
        context = browser.new_context(bypass_csp=bypass, java_script_enabled=scripts)
        context.set_default_timeout(_MILLISECONDS)
        window = cls(context=context, page=context.new_page())
        context.on("request", lambda request: window.requests.append(request.url))
        window.page.on("websocket", lambda socket: window.requests.append(socket.url))
        window.page.on("console", lambda message: window._say(message.type, message.text))
        window.page.on("pageerror", lambda error: window._say("error", str(error)))
        window.page.on("dialog", window._dismiss)
        return window

    def open(self, path: Path, size: tuple[int, int], scheme: str, motion: str) -> Page:
        self.own, self.requests, self.console, self.dialogs = path.as_uri(), [], [], []
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.emulate_media(media="null", color_scheme=scheme, reduced_motion=motion)
        # Where the last test left the mouse nothing is to be pointed at.
        self.page.mouse.move(0, 0)
        self.page.goto(self.own)
        return self.page

    def leave(self) -> bool:
        """Whether the page could be left; what it does at its end is heard, too."""
        try:
            self.page.goto(_BLANK)
        except Error:
            self.context.close()
            return False
        return True

    def is_quiet(self) -> None:
        """Asked for nothing but its own file, complained of nothing, opened no dialog."""
        requested = {url.partition("#")[0] for url in self.requests}
        assert requested - {self.own, _BLANK} == set()
        assert self.console == []
        assert self.dialogs == []
        assert self.own in requested, (
            "the page itself was not seen to be asked for: nothing is watched"
        )

    def _say(self, kind: str, text: str) -> None:
        if kind in ("error", "warning", "assert"):
            self.console.append(f"{kind}: {text}")

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()


@dataclass
class Opener:
    """Opens files in windows, those of a test in one each."""

    browser: Browser
    free: dict[tuple[bool, bool], list[Window]]
    opened: list[tuple[tuple[bool, bool], Window]] = field(default_factory=list)

    def __call__(
        self,
        path: Path,
        *,
        size: tuple[int, int] = DESKTOP,
        scheme: str = "light",
        motion: str = "no-preference",
        bypass: bool = False,
        scripts: bool = True,
        fresh: bool = False,
    ) -> Page:
        """Open a file; when the test is over the page must have kept quiet.

        ``size`` in CSS pixels, ``scheme`` light or dark, ``motion`` reduce or no-preference; with
        ``bypass`` scripts of the test are let through the page's content policy; without
        ``scripts`` the page's own are not run; ``fresh``: in a window that had no page before.
        """
        kept = self.free.setdefault((bypass, scripts), [])
        window = (
            kept.pop()
            if kept and not fresh
            else Window.of(self.browser, bypass=bypass, scripts=scripts)
        )
        self.opened.append(((bypass, scripts), window))
        return window.open(path, size, scheme, motion)

    def let_off(self) -> Window:
        """The window of the page opened last, which may be loud; the test closes it."""
        return self.opened.pop()[1]

    def close(self) -> None:
        """Leave all pages; each must have been quiet to its end."""
        for kind, window in self.opened:
            if window.leave():
                self.free[kind].append(window)
        for _, window in self.opened:
            window.is_quiet()
