"""Finding a browser on machines that are made up: a PATH of small scripts, nothing installed."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import finding
from .finding import VARIABLE, NoBrowser

# Shows the file that it is given last, as a browser with --dump-dom does.
BROWSER = 'for last; do :; done; exec /bin/cat "${last#file://}"'
CACHED = "cache/chromium-1254/chrome-linux64/chrome"


@dataclass(frozen=True)
class Machine:
    """A folder with programs, a home without any, and a log of what was run."""

    folder: Path

    def program(self, name: str, script: str, folder: str = "bin") -> Path:
        path = self.folder / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def installer(self, name: str, brings: str | None, folder: str = "bin") -> Path:
        """A program that logs how it was called, and puts a browser there on ``install``."""
        body = 'case "$*" in *install*) echo first >&2; echo no network >&2; exit 100;; esac'
        if brings:
            goal = self.folder / brings
            copied = f"/bin/cp {self.program('browser', BROWSER, 'store')} {goal}"
            body = f'case "$*" in *install*) /bin/mkdir -p {goal.parent}; {copied};; esac'
        log = self.folder / "log"
        return self.program(name, f'echo "{name} $*" >> {log}\n{body}', folder)

    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """No browser, no apt-get, no sudo, not root; playwright cannot download."""
    (tmp_path / "bin").mkdir()
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(finding, "PLACES", ())
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(made.installer("python", None, "store")))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return made


def test_a_browser_that_opens_pages_is_taken_and_nothing_is_installed(machine):
    machine.program("chromium", "echo this needs a snap >&2; exit 1")
    machine.program("chromium-browser", "echo nothing of the page")
    path = machine.program("google-chrome", BROWSER)
    machine.installer("apt-get", "bin/other")
    assert finding.install() == str(path)
    assert machine.log() == []


def test_the_one_asked_for_is_taken_or_none(machine, monkeypatch):
    machine.program("chromium", BROWSER)
    machine.installer("apt-get", "bin/other")
    mine = machine.program("mine", BROWSER, "elsewhere")
    monkeypatch.setenv(VARIABLE, str(mine))
    assert finding.find() == str(mine)
    machine.program("broken", "exit 1")
    for name in ("broken", "absent"):
        monkeypatch.setenv(VARIABLE, name)
        with pytest.raises(NoBrowser, match=f"EXPOST_BROWSER is '{name}'"):
            finding.install()
    assert machine.log() == []


def test_the_one_found_is_remembered(machine, monkeypatch):
    path = machine.program("chromium", BROWSER)
    assert finding.main([]) == 0
    assert finding.remembered() == str(path)
    path.unlink()
    with pytest.raises(NoBrowser):
        finding.find()


def test_root_and_sudo_install_debians(machine, monkeypatch):
    machine.installer("apt-get", "bin/chromium")
    machine.program("sudo", 'shift; case "$1" in true) exit 0;; esac; exec "$@"')
    assert finding.install() == str(machine.folder / "bin/chromium")
    (machine.folder / "bin/chromium").unlink()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert finding.install() == str(machine.folder / "bin/chromium")
    installed = "apt-get install -y -qq --no-install-recommends chromium"
    assert machine.log() == ["apt-get update -qq", installed] * 2


def test_without_rights_playwright_is_asked(machine, monkeypatch):
    machine.installer("apt-get", "bin/chromium")
    machine.program("sudo", "echo a password is required >&2; exit 1")
    monkeypatch.setattr(sys, "executable", str(machine.installer("python", CACHED, "store")))
    assert finding.install() == str(machine.folder / CACHED)
    assert machine.log() == ["python -m playwright install chromium"]


def test_where_nothing_helps_it_says_what_was_tried(machine, monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine.installer("apt-get", None)
    assert finding.main(["--install"]) == 1
    printed = capsys.readouterr().err
    for words in (
        "apt-get install chromium: no network",
        "playwright install chromium: no network",
    ):
        assert words in printed
    assert not finding.note().exists()


def test_as_a_program_it_needs_nothing_but_python(tmp_path):
    done = subprocess.run(
        [sys.executable, "-S", finding.__file__, "--install"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "", VARIABLE: str(tmp_path / "none")},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("expost: EXPOST_BROWSER is ")
    assert done.stderr.count("\n") == 1
