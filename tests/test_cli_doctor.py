"""``expost doctor``: what is installed, what is missing, and what the machine can do.

Fake packages stand before the real ones on the path, with metadata of their own; the installed
program looks at them in a process of its own.
"""

import json
import re
import sys
import time
import tomllib
import webbrowser
from importlib import metadata
from pathlib import Path

import pytest

from expost.jobs import doctor
from expost.jobs.doctor import PREVENTS, Status, checkup, parse_requirement, satisfies
from program import PROGRAM, finished, imported

PYPROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


class Fakes:
    """A folder of fake packages; the first is expost's own metadata, which asks for the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requirements: list[str] = []
        self.describe("expost", "9.1", python=">=3.11")

    def describe(self, name: str, version: str, *, python: str = "") -> None:
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        if python:
            lines += [f"Requires-Python: {python}"]
        if name == "expost":
            lines += [f"Requires-Dist: {text}" for text in self.requirements]
        information = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        information.mkdir(exist_ok=True)
        (information / "METADATA").write_text("\n".join(lines) + "\n\n")

    def add(self, requirement: str, version: str | None, code: str | None = "") -> None:
        self.requirements.append(requirement)
        parsed = parse_requirement(requirement)
        if version is not None:
            self.describe(parsed.name, version)
        if code is not None:
            (self.folder / f"{parsed.name.replace('-', '_')}.py").write_text(code)
        self.describe("expost", "9.1", python=">=3.11")

    def findings(self, monkeypatch) -> dict[str, doctor.Finding]:
        monkeypatch.syspath_prepend(self.folder)
        return {finding.name: finding for finding in checkup().findings}

    def ask(self, *options: str, **environment: str):
        command = [str(PROGRAM), "doctor", *options]
        return finished(command, env={"PYTHONPATH": str(self.folder), **environment})


@pytest.fixture
def fakes(tmp_path) -> Fakes:
    return Fakes(tmp_path)


# The metadata ----------------------------------------------------------------------------------


def test_every_requirement_of_our_metadata_is_understood():
    """The parser knows no markers but extras: our metadata has no others, nor other forms."""
    wanted = {(None, text) for text in PYPROJECT["dependencies"]}
    for extra, texts in PYPROJECT["optional-dependencies"].items():
        wanted |= {(extra, text) for text in texts}
    read = [parse_requirement(text) for text in metadata.requires("expost")]
    assert None not in read
    for extra, text in wanted:
        parsed = parse_requirement(text)
        assert parsed.name + parsed.bounds == re.sub(r"\[.*\]", "", text)
        assert parsed.extra is None
        if extra is not None:
            marked = parse_requirement(f"{text}; extra == '{extra}'")
            assert (marked.name, marked.bounds, marked.extra) == (parsed.name, parsed.bounds, extra)
    for text in metadata.requires("expost"):
        marker = text.partition(";")[2].strip()
        assert not marker or marker.startswith("extra == "), text


def test_every_extra_states_what_its_absence_prevents():
    packages = {
        parse_requirement(text).name
        for extra, texts in PYPROJECT["optional-dependencies"].items()
        if extra not in ("dev", "docs")
        for text in texts
    }
    assert set(PREVENTS) == packages


@pytest.mark.parametrize(
    ("version", "bounds", "kept"),
    [
        ("2.0.dev3+gabc", ">=2.0", False),
        ("2.0.post1", ">=2.0", True),
        ("2.13.0+cpu", ">=2.6", True),
        ("4.0", ">=3,<4", False),
        ("1.5", "==1.5.*", True),
        ("1.6", "==1.5.*", False),
        ("rubbish", ">=1", False),
        ("rubbish", "", True),
    ],
)
def test_versions_against_bounds(version, bounds, kept):
    assert satisfies(version, bounds) is kept


def test_versions_against_packaging():
    """The naive way is the library that pip itself uses."""
    specifiers = pytest.importorskip("packaging.specifiers")
    versions = ["1.0", "1.0.1", "1.1", "2.0rc1", "2.0", "2.0.post1", "2.10", "11.3.2"]
    for sign in (">=", "<=", "==", "!=", "~="):
        for bound in ("1.0", "1.1", "2.0", "2.10"):
            naive = specifiers.SpecifierSet(sign + bound)
            for version in versions:
                if "post" in version and sign in ("<=", "==", "!="):
                    continue  # A post-release counts here as its release.
                expected = naive.contains(version, prereleases=True)
                assert satisfies(version, sign + bound) is expected, (version, sign, bound)


def test_what_is_no_requirement_is_none():
    assert parse_requirement(">=2") is None
    assert parse_requirement("") is None
    shaped = parse_requirement('name [one, two] (>=2, <3) ; extra == "x"')
    assert shaped == doctor.Requirement(name="name", bounds=">=2,<3", extra="x")


# What is found ---------------------------------------------------------------------------------


def test_the_packages_that_are_really_installed_are_well():
    """The installed program on this environment, and it needs no numerics itself."""
    done = finished([sys.executable, "-X", "importtime", str(PROGRAM), "doctor", "--json"])
    answer = json.loads(done.out)
    assert done.code == 0
    assert answer["well"] is True
    collected = {finding["name"]: finding for finding in answer["findings"]}
    for text in PYPROJECT["dependencies"]:
        parsed = parse_requirement(text)
        assert collected[parsed.name]["status"] == "ok", collected[parsed.name]
        assert collected[parsed.name]["versions"] == parsed.bounds
        assert collected[parsed.name]["version"] == metadata.version(parsed.name)
    assert {"expost", "Python", "randomness", "file locks", "terminal", "browser"} <= set(collected)
    assert not imported(done) & {"numpy", "scipy", "pandas", "torch"}


def test_one_line_each_with_the_word_for_it(fakes):
    fakes.add("sound>=1.2", "1.10")
    fakes.add("aged>=2", "1.9")
    fakes.add("cracked", "3.0", "raise RuntimeError('kaputt\\n\\x1b[31m twice')")
    fakes.add("absent>=5", None, None)
    fakes.add("pandas>=2; extra == 'pandas'", "1.0", "")
    fakes.add("polars>=2; extra == 'polars'", "9", "import no_such_module")
    fakes.add("never; extra == 'dev'", None, None)
    done = fakes.ask()
    assert (done.code, done.err) == (1, "")
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.startswith("  ")}
    assert lines["sound"].split() == ["sound", "1.10", "ok", ">=1.2"]
    assert "too old" in lines["aged"]
    assert "pip install --upgrade 'aged>=2'" in lines["aged"]
    assert "broken" in lines["cracked"]
    assert "RuntimeError: kaputt [31m twice" in lines["cracked"]
    assert "missing" in lines["absent"]
    assert "pip install absent" in lines["absent"]
    assert "prevents to_frame() of results" in lines["pandas"]
    assert "ModuleNotFoundError" in lines["polars"]
    assert "prevents to_frame('polars')" in lines["polars"]
    assert "never" not in done.out
    assert "\x1b" not in done.out
    assert "aged, cracked, absent" in done.out.splitlines()[-1]


def test_what_is_optional_never_costs_the_exit_code(fakes):
    fakes.add("sound", "1")
    fakes.add("torch>=2.6; extra == 'torch'", None, None)
    fakes.add("pandas>=2; extra == 'pandas'", "3", "raise SystemExit(3)")
    fakes.add("newcomer; extra == 'later'", None, None)
    fakes.add("torch>=2.6; extra == 'more'", None, None)
    done = fakes.ask("--json")
    answer = json.loads(done.out)
    assert (done.code, answer["well"]) == (0, True)
    collected = {finding["name"]: finding for finding in answer["findings"]}
    assert collected["torch"]["status"] == "missing"
    assert "pip install 'expost[torch]'" in done.out
    assert collected["pandas"]["status"] == "broken"
    assert collected["newcomer"]["detail"].startswith("prevents the features of expost[later]")
    # A package of two extras is named once.
    assert answer["sentence"].count("torch") == 1


def test_a_package_that_takes_its_process_down_hides_no_other(fakes, monkeypatch):
    fakes.add("first", "1")
    fakes.add("crasher", "1", "import os; os.abort()")
    fakes.add("leaver", "1", "import os; os._exit(0)")
    fakes.add("talker", "1", 'print(\'["last", "a lie"]\', flush=True)')
    fakes.add("last", "1")
    findings = fakes.findings(monkeypatch)
    statuses = {
        name: findings[name].status for name in ("first", "crasher", "leaver", "talker", "last")
    }
    assert list(statuses.values()) == [
        Status.OK, Status.BROKEN, Status.BROKEN, Status.OK, Status.OK,
    ]  # fmt: skip
    assert "crashed when imported" in findings["crasher"].detail


def test_a_package_that_hangs_is_broken(fakes, monkeypatch):
    fakes.add("hanging", "1", "import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "_PATIENCE", 1.0)
    start = time.monotonic()
    assert fakes.findings(monkeypatch)["hanging"].status is Status.BROKEN
    assert time.monotonic() - start < 20


def test_a_missing_python_is_reported(fakes, monkeypatch, tmp_path):
    fakes.add("sound", "1")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no" / "python"))
    finding = fakes.findings(monkeypatch)["sound"]
    assert (finding.status, finding.needed) == (Status.BROKEN, True)
    assert "could not be checked" in finding.detail


def test_metadata_that_is_not_there_is_one_finding(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "metadata", absent)
    result = checkup()
    own = result.findings[0]
    assert (own.name, own.status) == ("expost", Status.BROKEN)
    assert "pip install expost" in own.detail
    assert not result.is_well


def test_a_python_that_is_too_old(fakes, monkeypatch):
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.10.2")
    finding = fakes.findings(monkeypatch)["Python"]
    assert (finding.status, finding.versions) == (Status.TOO_OLD, ">=3.11")


# The machine -----------------------------------------------------------------------------------


@pytest.fixture
def machine(fakes, monkeypatch):
    """The findings about the machine, by their names."""
    return lambda: fakes.findings(monkeypatch)


def test_randomness_that_repeats_or_fails_is_needed(machine, monkeypatch):
    assert machine()["randomness"].status is Status.OK
    monkeypatch.setattr(doctor.secrets, "token_bytes", lambda size: b"4" * size)
    assert machine()["randomness"].harms

    def refuse(size):
        raise NotImplementedError("no source of randomness")

    monkeypatch.setattr(doctor.secrets, "token_bytes", refuse)
    finding = machine()["randomness"]
    assert finding.harms
    assert finding.detail == "no source of randomness"


def test_no_file_locks(machine, monkeypatch):
    assert machine()["file locks"].status is Status.OK
    monkeypatch.setattr("filelock.has_fcntl", False)
    finding = machine()["file locks"]
    assert (finding.status, finding.harms) == (Status.MISSING, True)


def test_a_temporary_folder_that_is_not_there(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.tempfile, "tempdir", str(tmp_path / "none"))
    finding = machine()["temporary files"]
    assert (finding.status, finding.harms) == (Status.BROKEN, False)
    assert "none" in finding.detail


def test_a_terminal_without_greek(fakes):
    done = fakes.ask("--json", PYTHONIOENCODING="latin-1", BROWSER="no-such-browser")
    collected = {finding["name"]: finding for finding in json.loads(done.out)["findings"]}
    assert collected["terminal"]["status"] == "missing"
    assert "PYTHONUTF8=1" in collected["terminal"]["detail"]
    assert done.code == 0
    # The table too is shown there, whatever stands in it.
    assert fakes.ask(PYTHONIOENCODING="ascii").code == 0


def test_a_browser_or_none(machine, monkeypatch):
    def none():
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(doctor.webbrowser, "get", none)
    assert machine()["browser"].status is Status.MISSING
    browser = webbrowser.GenericBrowser("/no/such/lynx")
    monkeypatch.setattr(doctor.webbrowser, "get", lambda: browser)
    assert "/no/such/lynx" in machine()["browser"].detail
    browser.name = sys.executable
    assert machine()["browser"].detail == f"--open uses {Path(sys.executable).name}"
