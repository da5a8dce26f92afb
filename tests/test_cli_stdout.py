"""A reader of stdout that goes away, a full device and a closed stdout: the results are kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from expost.cli.main import main
from program import names
from runs import make_release

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
ROWS = ("--target", "income", "--id", "number")
# Every command prints by way of the same stream: one of each kind.
WRITE = {
    "profile": ("profile", "people.csv", *ROWS, "--epsilon", "2"),
    "risk": ("risk", "profile/model.json"),
    "report": ("report", "profile"),
}
READ = {
    "help of a command": ("profile", "--help"),
    "version": ("--version",),
    "ledger without files": ("ledger", "profile"),
}


def run(*arguments):
    """The exit code."""
    sys.argv = ["expost", *map(str, arguments)]
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code or 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_release(tmp_path_factory.mktemp("stdout"))


def gone():
    """The end of a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w")


def full():
    return FULL.open("w")


def closed():
    return None


def printed(kind, monkeypatch, *command):
    """The exit code of a command whose stdout is of this kind."""
    with monkeypatch.context() as patch:
        stream = kind()
        patch.setattr(sys, "stdout", stream)
        code = run(*command)
        # As the interpreter does at its end.
        for left in {stream, sys.stdout} - {None}:
            left.close()
    return code


def check(code, kind, capfd, fine=0):
    message = capfd.readouterr().err
    if kind is full and not fine:
        assert code == 1
        assert message.startswith("expost: stdout: No space left")
        assert message.count("\n") == 1
    else:
        assert (code, message) == (fine, "")


@pytest.mark.parametrize("name", WRITE)
def test_the_files_are_complete(folder, tmp_path, monkeypatch, capfd, name):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [])
    assert run(*WRITE[name], "--out", tmp_path / "usual") == 0
    capfd.readouterr()
    for number, (kind, form) in enumerate([(gone, ()), (full, ("--json",)), (closed, ())]):
        out = tmp_path / str(number)
        check(printed(kind, monkeypatch, *WRITE[name], "--out", out, *form), kind, capfd)
        assert names(out) == names(tmp_path / "usual")


@pytest.mark.parametrize("name", READ)
def test_commands_that_only_print(folder, monkeypatch, capfd, name):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [])
    fine = run(*READ[name])
    capfd.readouterr()
    for kind in (gone, full, closed):
        check(printed(kind, monkeypatch, *READ[name]), kind, capfd, fine)


@pytest.mark.parametrize(("shell", "code"), [("| head -1", 0), ("> /dev/full", 1), (">&- 2>&-", 0)])
def test_in_a_shell(folder, shell, code):
    program = f"{sys.executable} -c 'from expost.cli.main import main; main()'"
    command = f"set -o pipefail; {program} risk profile/model.json --out risk --force {shell}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code
    assert done.stderr.count("\n") == code
    assert (folder / "risk/report.html").read_text().rstrip().endswith("</html>")
    assert done.stdout.count("\n") == ("head" in shell)
