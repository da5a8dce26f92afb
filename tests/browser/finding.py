"""A Chromium or Chrome to test the pages in: found, or installed where that may be done.

    python tests/browser/finding.py --install

Looked for in this order: EXPOST_BROWSER, the one found last time, the PATH, the places where
systems put one, playwright's own cache. With ``--install``, where none works: Debian's package,
then playwright's download. What is found is written to ``.browser`` of the virtual environment,
because seeing whether a browser works takes a second.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "EXPOST_BROWSER"
NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
# A page needs no sandbox against itself, and nothing but the page is to be asked for.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
_CACHES = (".cache/ms-playwright", "Library/Caches/ms-playwright")
_CACHED = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*")
_WORD = "this-browser-opens-files"


class NoBrowser(Exception):
    """No browser works; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A way to get a browser: what it is called, and its commands, one after the other."""

    name: str
    commands: tuple[tuple[str, ...], ...]


def find(works: Callable[[str], bool] | None = None) -> str:
    """The path of a browser that works; the one asked for by EXPOST_BROWSER, or none."""
    works = works or opens_files
    requested = os.environ.get(VARIABLE)
    if requested:
        path = shutil.which(requested)
        if path is None or not works(path):
            raise NoBrowser(
                f"{VARIABLE} is {requested!r}, which is no browser that opens a page here; unset it,"
                " or set it to the path of a Chromium or Chrome."
            )
        return path
    known = remembered()
    if known is not None:
        return known
    for path in candidates():
        if works(path):
            return path
    raise NoBrowser(
        "the tests of the pages need a Chromium or Chrome, and none was found that works: install"
        " one (on Debian: apt-get install chromium; anywhere: python -m playwright install"
        f" chromium), or set {VARIABLE} to the path of one."
    )


def candidates() -> Iterator[str]:
    """What may be a browser, without looking closer."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            yield path
    yield from (path for path in PLACES if Path(path).exists())
    chosen = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    folders = [Path(chosen)] if chosen else [Path.home() / cache for cache in _CACHES]
    for folder in folders:
        for pattern in _CACHED:
            # The newest first: chromium-1254, then chromium-1181.
            yield from (str(path) for path in sorted(folder.glob(pattern), reverse=True))


def opens_files(path: str) -> bool:
    """Whether it shows a file of the temporary folder, headless.

    That a program of this name is there says little: Ubuntu's chromium-browser may be a note that
    points to a snap, and a snap has a temporary folder of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(f"<!doctype html><title>{_WORD}</title>")
        profile = f"--user-data-dir={Path(folder, 'profile')}"
        command = [path, "--headless", *FLAGS, profile, "--dump-dom", page.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode == 0 and _WORD in done.stdout


def note() -> Path:
    """Where the path of the browser found is kept."""
    return Path(sys.prefix, ".browser")


def remembered() -> str | None:
    """The browser found last time, if it is still there."""
    try:
        path = note().read_text().strip()
    except OSError:
        return None
    return path if path and os.access(path, os.X_OK) else None


def attempts() -> Iterator[Attempt]:
    """The ways to install one that are open to this user on this machine."""
    apt, sudo = shutil.which("apt-get"), shutil.which("sudo")
    rights: tuple[str, ...] | None = None
    if apt and os.geteuid() == 0:
        rights = ()
    elif apt and sudo and _runs((sudo, "-n", "true")) is None:
        rights = (sudo, "-n")
    if apt and rights is not None:
        yield Attempt(
            name="apt-get install chromium",
            commands=(
                (*rights, apt, "update", "-qq"),
                (*rights, apt, "install", "-y", "-qq", "--no-install-recommends", "chromium"),
            ),
        )
    yield Attempt(
        name="playwright install chromium",
        commands=((sys.executable, "-m", "playwright", "install", "chromium"),),
    )


def install(works: Callable[[str], bool] | None = None) -> str:
    """Find a browser, else install one; raise with every reason where that cannot be done."""
    try:
        return find(works)
    except NoBrowser as error:
        if os.environ.get(VARIABLE):
            raise
        missing = str(error)
    tried = []
    for attempt in attempts():
        print(f"No browser yet: {attempt.name}", file=sys.stderr)
        # An update that fails may leave lists that are good enough: the last command decides.
        reason = [_runs(command) for command in attempt.commands][-1]
        try:
            return find(works)
        except NoBrowser:
            tried.append(f"{attempt.name}: {reason or 'installed, but it opens no page'}")
    raise NoBrowser("\n  ".join([missing, "What was tried:", *tried]))


def _runs(command: tuple[str, ...]) -> str | None:
    """Run it; None if all went well, else the last line of what it said."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    output = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return output[-1] if output else f"exit code {done.returncode}"


def main(arguments: list[str]) -> int:
    """Print the path of a browser, and remember it."""
    try:
        path = install() if "--install" in arguments else find()
    except NoBrowser as error:
        print(f"expost: {error}", file=sys.stderr)
        return 1
    note().write_text(path + "\n")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
