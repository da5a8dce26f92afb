"""What the program says of itself, and what the shell completes."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from typer.main import get_command

from expost.auditing.attacks import ATTACKS
from expost.cli.app import app
from expost.estimators import ESTIMATORS
from expost.jobs.requests.base import RELATIONS
from expost.jobs.requests.models import LOSSES, NOISES
from expost.jobs.requests.models import MECHANISMS as NAMES
from expost.jobs.requests.releases import KINDS as COMPLETED_KINDS
from expost.mechanisms import MECHANISMS
from expost.profiles import identifiability
from expost.publishing.publish import KINDS
from program import PROGRAM, Ran, finished, imported

COMMANDS = {
    "demo", "doctor", "encoding", "epsilon", "profile", "risk", "audit", "publish", "lookup", "forget", "card", "report",
    "ledger", "check", "conform", "dossier", "verify",
}  # fmt: skip


def words_of(done: Ran) -> str:
    return Ran(code=0, out="", err=done.out).message


# The manual ------------------------------------------------------------------------------------


def test_the_help_is_a_short_manual(program):
    done = program("--help")
    shown = words_of(done)
    assert done.code == 0
    # The verbs stand in the order in which a person uses them.
    places = [shown.index(f"expost {verb} ") for verb in ("epsilon", "profile", "publish", "risk")]
    assert places == sorted(places)
    for words in ("CURATOR-ONLY", "Exit codes", "Environment", "--install-completion"):
        assert words in shown
    assert len(done.out.splitlines()) < 90
    assert program("-h").out == done.out


def test_every_command_is_in_a_panel():
    listed = {command.name: command.rich_help_panel for command in app.registered_commands}
    assert set(listed) == COMMANDS
    assert None not in listed.values()
    assert not app.registered_groups


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_a_command_has_an_example_and_fits(program, command):
    done = program(command, "--help")
    shown = words_of(done)
    assert done.code == 0
    assert "Example" in shown or command == "demo"
    assert f"expost {command}" in shown
    # Every option with its default, at 80 columns.
    assert len(done.out.splitlines()) < 100
    # No option shows how it is stored in place of what it is.
    assert "list[str]" not in shown


def parsed(words: list[str]) -> None:
    """Read a command's options as the program does, and do nothing."""
    program = get_command(app)
    with program.make_context("expost", list(words)) as outer:
        name, command, rest = program.resolve_command(outer, list(words))
        command.make_context(name, rest, parent=outer)


def test_every_example_in_the_help_parses(program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    examples = []
    for command in sorted(COMMANDS):
        shown = program(command, "--help").out
        examples += re.findall(rf"^ (expost {command} .*?)\s*$", shown, re.MULTILINE)
    manual = re.findall(r"(expost [a-z]+ .*?)\s*$", program("--help").out, re.MULTILINE)
    examples += [line for line in manual if "--out" in line and "." not in line.split("--out")[1]]
    assert len(examples) > 20
    for line in examples:
        parsed(shlex.split(line)[1:])
    # Power: an option that there is not would be seen.
    with pytest.raises(Exception, match="No such option"):
        parsed(["profile", "x.csv", "--target", "y", "--out", "z", "--nonsense"])


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_exit_codes_are_those_of_the_manual(program, monkeypatch):
    assert program("risk", "--epsilon", "1").code == 0
    assert program("risk", "--epsilon", "-1").code == 2
    assert program("profile").code == 2
    assert program("nonsense").code == 2
    monkeypatch.setattr(identifiability, "identifiability", interrupt)
    stopped = program("risk", "--epsilon", "1")
    assert (stopped.code, stopped.out) == (130, "")
    assert "Traceback" not in stopped.err


# A command line that cannot be drawn -----------------------------------------------------------


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_without_its_libraries_the_program_says_so_and_the_doctor_works(tmp_path, library):
    (tmp_path / f"{library}.py").write_text("raise RuntimeError('kaputt')")
    # Metadata that asks for these two alone: the others need not be looked at.
    described = tmp_path / "expost-9.9.dist-info"
    described.mkdir()
    asked = "Requires-Dist: typer\nRequires-Dist: rich\n"
    (described / "METADATA").write_text(f"Name: expost\nVersion: 9.9\n{asked}\n")
    environment = {"PYTHONPATH": str(tmp_path)}
    done = finished([str(PROGRAM), "profile", "x.csv"], env=environment)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("expost: the command line cannot be started (")
    assert done.err.endswith("run expost doctor to find the cause.\n")
    assert done.err.count("\n") == 1
    found = finished([str(PROGRAM), "doctor"], env=environment)
    assert (found.code, found.err) == (1, "")
    assert re.search(rf"^  {library} .*broken .*RuntimeError: kaputt", found.out, re.MULTILINE)


# Completion ------------------------------------------------------------------------------------


@pytest.fixture
def completed(monkeypatch, capsys):
    """What the program answers to bash, which completes ``line``."""

    def call(line: str) -> str:
        words = line.split(" ")
        monkeypatch.setenv("_EXPOST_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises(SystemExit) as left:
            get_command(app).main(args=[], prog_name="expost")
        assert left.value.code == 0
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("expost pro", "profile"),
        ("expost re", "report"),
        ("expost profile --mech", "--mechanism"),
        ("expost profile --mechanism ", "auto output objective"),
        ("expost profile --mechanism ob", "objective"),
        ("expost epsilon x.csv --noise g", "gaussian"),
        ("expost profile --loss ", "logistic huber-hinge squared"),
        ("expost profile --regularization ", "auto"),
        ("expost publish --kind data-d", "data-dependent"),
        ("expost risk --relation rep", "replace"),
        ("expost audit --attack lira", "lira-offline lira-online"),
        # Files and folders are left to the shell.
        ("expost profile ", ""),
        ("expost profile --model rep", ""),
        ("expost profile --out ", ""),
        ("expost report some", ""),
        ("expost lookup ", ""),
    ],
)
def test_what_is_completed(completed, line, answer):
    assert completed(line).split() == answer.split()


def test_completion_imports_nothing_heavy():
    words = "expost profile --mechanism "
    environment = {
        "_EXPOST_COMPLETE": "complete_bash",
        "COMP_WORDS": words.replace(" ", "\n"),
        "COMP_CWORD": "3",
    }
    done = finished([sys.executable, "-X", "importtime", str(PROGRAM)], env=environment)
    assert done.out.split() == ["auto", "output", "objective"]
    heavy = {"numpy", "scipy", "sklearn", "pyarrow", "jinja2", "dp_accounting", "pandas"}
    assert not imported(done) & heavy


def test_the_names_that_are_completed_are_those_that_are_taken(completed):
    assert set(LOSSES) == set(ESTIMATORS)
    assert set(NOISES) - {"auto"} == {
        noise for kind in MECHANISMS.values() for noise in kind.noises
    }
    assert set(COMPLETED_KINDS) == set(KINDS)
    assert completed("expost audit --attack ").split() == list(ATTACKS)


def test_every_name_that_is_completed_is_taken(program, tmp_path):
    asked = ("profile", "no.csv", "--target", "a", "--out", tmp_path, "--mechanism")
    for name in NAMES:
        assert "mechanism=" not in program(*asked, name).message
    training = ("--noise-multiplier", "2", "--sampling-rate", "1", "--delta", "1e-5")
    for name in RELATIONS:
        assert program("risk", *training, "--relation", name).code == 0


SHELLS = {
    "bash": (
        "complete_it() { COMP_WORDS=(expost $1); COMP_CWORD=1; _expost_completion expost;"
        ' printf "%s\\n" "${COMPREPLY[@]}"; }; complete_it pro; complete_it demo'
    ),
    "zsh": (
        "autoload -Uz compinit; compinit -u -D; source $HOME/.zfunc/_expost;"
        " _arguments() { print -- $* };"
        " words=(expost pro); CURRENT=2; _expost_completion;"
        " words=(expost demo); CURRENT=2; _expost_completion"
    ),
    "fish": "complete -C 'expost pro'; complete -C 'expost demo'",
}
STARTED = {
    "bash": ["bash", "--rcfile", "/dev/null", "-c", "source $HOME/.bashrc; {}"],
    "zsh": ["zsh", "-f", "-c", "{}"],
    "fish": ["fish", "-c", "{}"],
}


@pytest.mark.parametrize("shell", list(SHELLS))
def test_an_installed_completion_completes_in_a_real_shell(tmp_path, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / ".config"),
        "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}",
    }
    switch = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    installed = subprocess.run(
        [str(PROGRAM), "--install-completion", shell],
        env=environment | switch, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert f"{shell} completion installed in" in installed.stdout
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("expost" in path.name for path in written)
    command = [part.replace("{}", SHELLS[shell]) for part in STARTED[shell]]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert re.search(r"\bprofile\b", done.stdout), done
    assert re.search(r"\bdemo\b", done.stdout), done
    assert "Traceback" not in done.stdout + done.stderr
