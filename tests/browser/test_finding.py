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


@pytest.mark.parametrize("name", finding.NAMES)
def test_a_browser_on_the_path_is_taken_and_nothing_is_installed(machine, name):
    path = machine.program(name, BROWSER)
    machine.installer("apt-get", "bin/other")
    assert finding.install() == str(path)
    assert machine.log() == []


def test_a_program_that_opens_no_page_is_passed_over(machine):
    machine.program("chromium", "echo this needs a snap >&2; exit 1")
    machine.program("chromium-browser", "echo nothing of the page")
    path = machine.program("google-chrome", BROWSER)
    assert finding.find() == str(path)


def test_the_one_asked_for_comes_first(machine, monkeypatch):
    machine.program("chromium", BROWSER)
    mine = machine.program("mine", BROWSER, "elsewhere")
    monkeypatch.setenv(VARIABLE, str(mine))
    assert finding.find() == str(mine)


@pytest.mark.parametrize("script", [None, "exit 1"])
def test_the_one_asked_for_must_work_and_no_other_is_taken(machine, monkeypatch, script):
    machine.program("chromium", BROWSER)
    machine.installer("apt-get", "bin/other")
    if script:
        machine.program("mine", script)
    monkeypatch.setenv(VARIABLE, "mine")
    with pytest.raises(NoBrowser, match="EXPOST_BROWSER is 'mine'"):
        finding.install()
    assert machine.log() == []


def test_playwrights_cache_is_looked_into(machine):
    assert not list(finding.candidates())
    path = machine.program("chrome", BROWSER, str(Path(CACHED).parent))
    assert finding.find() == str(path)


def test_the_one_found_is_remembered_until_it_goes(machine, capsys):
    path = machine.program("chromium", BROWSER)
    assert finding.main([]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    # Not looked at again: this would not pass.
    machine.program("chromium", "exit 1")
    assert finding.find() == str(path)
    path.unlink()
    with pytest.raises(NoBrowser):
        finding.find()


def test_root_installs_debians(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine.installer("apt-get", "bin/chromium")
    assert finding.install() == str(machine.folder / "bin/chromium")
    assert machine.log() == [
        "apt-get update -qq",
        "apt-get install -y -qq --no-install-recommends chromium",
    ]


def test_others_install_debians_with_sudo_that_asks_for_no_password(machine):
    machine.installer("apt-get", "bin/chromium")
    machine.program("sudo", 'shift; case "$1" in true) exit 0;; esac; exec "$@"')
    assert finding.install() == str(machine.folder / "bin/chromium")
    assert len(machine.log()) == 2


@pytest.mark.parametrize("sudo", [None, "echo a password is required >&2; exit 1"])
def test_without_rights_playwright_is_asked(machine, monkeypatch, sudo):
    machine.installer("apt-get", "bin/chromium")
    if sudo:
        machine.program("sudo", sudo)
    monkeypatch.setattr(sys, "executable", str(machine.installer("python", CACHED, "store")))
    assert finding.install() == str(machine.folder / CACHED)
    assert machine.log() == ["python -m playwright install chromium"]


def test_where_debian_has_none_playwright_is_asked(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine.installer("apt-get", None)
    monkeypatch.setattr(sys, "executable", str(machine.installer("python", CACHED, "store")))
    assert finding.install() == str(machine.folder / CACHED)
    assert [line.split()[0] for line in machine.log()] == ["apt-get", "apt-get", "python"]


def test_where_nothing_helps_it_says_what_is_missing_and_what_was_tried(
    machine, monkeypatch, capsys
):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine.installer("apt-get", None)
    assert finding.main(["--install"]) == 1
    said = capsys.readouterr().err
    for words in (
        "need a Chromium or Chrome",
        "apt-get install chromium",
        "playwright install chromium",
        "EXPOST_BROWSER",
        "apt-get install chromium: no network",
        "playwright install chromium: no network",
    ):
        assert words in said
    assert not finding.note().exists()


def test_a_broken_download_is_told_from_a_failed_one(machine, monkeypatch):
    path = machine.program("python", "exit 0", "store")
    monkeypatch.setattr(sys, "executable", str(path))
    with pytest.raises(NoBrowser, match="installed, but it opens no page"):
        finding.install()


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
