"""Every command that docs/evidence names can still be given: its files, tests and modules exist."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EVIDENCE = sorted((ROOT / "docs" / "evidence").glob("*.json"))
# A file of the repository, with the name of a test in it or without.
FILE = re.compile(r"(?<![\w/-])((?:tests|papers|bench|tools)/[\w/.-]*\w)(?:::(\w+))?")
SCRIPT = re.compile(r"python ([\w/.-]+\.py)\b")
TARGET = re.compile(r"\bmake ([\w-]+)")
MODULE = re.compile(r"python -m (papers[\w.]*)")
SCRIPTS = sorted(path for folder in ("bench", "tools") for path in (ROOT / folder).glob("*.py"))


def missing(text: str) -> list[str]:
    """Return what a command names and the repository does not have."""
    lost = []
    for path, test in FILE.findall(text):
        file = ROOT / path
        if not file.exists() or (test and f"def {test}(" not in file.read_text("utf-8")):
            lost.append(f"{path}::{test}" if test else path)
    lost += [script for script in SCRIPT.findall(text) if not (ROOT / script).exists()]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    lost += [f"make {target}" for target in TARGET.findall(text) if target not in targets]
    for module in MODULE.findall(text):
        path = ROOT.joinpath(*module.split("."))
        if not (path / "__main__.py").exists() and not path.with_suffix(".py").exists():
            lost.append(module)
    return lost


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_a_record_can_be_made_again(path):
    """Defaults change: figures belong to the revision and the versions that they were made at."""
    content = json.loads(path.read_text("utf-8"))
    assert content["command"]
    assert not missing(content["command"])
    assert re.fullmatch("[0-9a-f]{7,40}", content["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", content["date"])
    assert content["versions"]


@pytest.mark.full
def test_the_tests_of_the_commands_are_collected():
    commands = [json.loads(path.read_text("utf-8"))["command"] for path in EVIDENCE]
    named = {
        f"{path}::{test}" if test else path
        for command in commands
        if re.search("pytest|make test-long", command)
        for path, test in FILE.findall(command)
        if "with_torch" not in path or importlib.util.find_spec("torch")
    }
    options = ("--collect-only", "-q", "-o", "addopts=", "-m", "long")
    collect = ["-m", "pytest", *options, *sorted(named)]
    done = subprocess.run([sys.executable, *collect], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = done.stdout.splitlines()
    assert not [name for name in named if not any(line.startswith(name) for line in listed)]


def test_the_list_names_what_there_is():
    assert not missing((ROOT / "docs" / "evidence" / "README.md").read_text("utf-8"))


def test_a_missing_name_is_detected():
    assert missing("pytest tests/test_nothing.py") == ["tests/test_nothing.py"]
    assert missing("pytest tests/test_evidence.py::test_gone") == [
        "tests/test_evidence.py::test_gone"
    ]
    assert missing("make gone") == ["make gone"]
    assert missing("python demo/gone.py --record") == ["demo/gone.py"]
    assert missing("python -m papers.gone --record") == ["papers.gone"]


def imported(source: str) -> list[tuple[str, str]]:
    """Return (module, name) of what a script takes from the package without torch."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "expost"
        if not (node.module or "").startswith("expost.torch")
        for alias in node.names
    ]


def absent(source: str) -> list[str]:
    lost = []
    for module, name in imported(source):
        package = importlib.import_module(module)
        has_module = hasattr(package, "__path__") and importlib.util.find_spec(f"{module}.{name}")
        if not hasattr(package, name) and not has_module:
            lost.append(f"{module}.{name}")
    return lost


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_import_what_the_package_has(path):
    assert absent(path.read_text("utf-8")) == []


def test_an_import_of_nothing_is_detected():
    assert absent("from expost.estimators import objective_of_nothing") == [
        "expost.estimators.objective_of_nothing"
    ]
