"""Every command that docs/evidence names can still be given: its files, tests and modules exist."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EVIDENCE = sorted((ROOT / "docs" / "evidence").glob("*.json"))
# A file of the repository, with the name of a test in it or without.
FILE = re.compile(r"(?<![\w/-])((?:tests|papers|bench|tools)/[\w/.-]*\w)(?:::(\w+))?")
MODULE = re.compile(r"python -m (papers[\w.]*)")
SCRIPTS = sorted(path for folder in ("bench", "tools") for path in (ROOT / folder).glob("*.py"))


def missing(text: str) -> list[str]:
    """Return what a command names and the repository does not have."""
    lost = []
    for path, test in FILE.findall(text):
        file = ROOT / path
        if not file.exists() or (test and f"def {test}(" not in file.read_text("utf-8")):
            lost.append(f"{path}::{test}" if test else path)
    for module in MODULE.findall(text):
        path = ROOT.joinpath(*module.split("."))
        if not (path / "__main__.py").exists() and not path.with_suffix(".py").exists():
            lost.append(module)
    return lost


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_the_command_names_what_there_is(path):
    command = json.loads(path.read_text("utf-8")).get("command") or ""
    assert not missing(command)
    # A statistical run is one that `make test-long` selects.
    for file, _ in FILE.findall(command):
        if "-m long" in command and file.endswith(".py"):
            assert "pytest.mark.long" in (ROOT / file).read_text("utf-8"), file


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_every_record_carries_its_commit(path):
    """Defaults change: figures belong to the revision that they were made at."""
    assert re.fullmatch("[0-9a-f]{7,40}", json.loads(path.read_text("utf-8"))["commit"])


def test_the_list_names_what_there_is():
    assert not missing((ROOT / "docs" / "evidence" / "README.md").read_text("utf-8"))


def test_a_missing_name_is_detected():
    assert missing("pytest tests/test_nothing.py") == ["tests/test_nothing.py"]
    assert missing("pytest tests/test_evidence.py::test_gone") == [
        "tests/test_evidence.py::test_gone"
    ]
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
