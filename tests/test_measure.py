"""The measuring tool: on a package of a few lines whose figures are counted by hand."""

import json
import random
import shutil
import subprocess
import sys
from difflib import SequenceMatcher
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from similar_functions import SIMILAR, Function, functions_of, similar_pairs  # noqa: E402

import measure  # noqa: E402 (a tool, not a package)

INIT = '''"""A package."""

from expost._one import Shape  # kept: there is code on this line

# A comment.
__all__ = ["Shape"]
'''
ONE = '''def _registered():
    return 1


NUMBER = _registered()


class Shape:
    """A shape."""

    corners = 3
    """How many corners it has."""

    def area(self):
        """Return the area,
        in square metres.
        """
        text = """not a
        docstring"""
        return text
'''
CLI = """import threading

from expost.data import helper


def program():
    thread = threading.Thread(target=helper.in_a_thread)
    thread.start()
    thread.join()
    print([helper.called() for _ in range(3)])
"""
HELPER = """class _Shape:
    pass


def in_a_thread():
    pass


def called():
    return (lambda: 1)()


def not_called():
    pass
"""
PROJECT = """[[tool.importlinter.contracts]]
type = "layers"
layers = ["expost.cli", "expost.data", "expost._one | expost.types"]
"""
FILES = {
    "src/expost/__init__.py": INIT,
    "src/expost/_one.py": ONE,
    "src/expost/cli.py": CLI,
    "src/expost/data/__init__.py": "",
    "src/expost/data/helper.py": HELPER,
    "pyproject.toml": PROJECT,
}


@pytest.fixture
def checkout(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path / "checkout"


def test_code_is_counted_without_docstrings_comments_and_blanks():
    assert measure.size_of(INIT) == measure.Size(files=1, lines=6, code=2)
    assert measure.size_of(ONE) == measure.Size(files=1, lines=20, code=9)
    assert measure.size_of("") == measure.Size(files=1)


def test_a_checkout_is_measured(checkout):
    result = measure.measure(checkout, runs=False)
    assert result["parts"] == {
        "cli": {"files": 1, "lines": 10, "code": 7},
        "data": {"files": 2, "lines": 14, "code": 8},
        "flat": {"files": 2, "lines": 26, "code": 11},
    }
    assert result["package"] == {"files": 5, "lines": 50, "code": 26}
    assert result["core as reviewed"] == {"files": 4, "lines": 40, "code": 19}
    assert result["underscored modules"] == result["top-level names"] == 1
    assert result["import contract"] == {"layers": 3, "of one name": 2, "of one module": 1}
    assert result["classes defined more than once"] == {"Shape": ["_one.py:8", "data/helper.py:1"]}
    text = measure.table_of({"this": result, "that": result | {"underscored modules": 1234}})
    (line,) = (line for line in text.splitlines() if line.startswith("underscored"))
    assert line.split() == ["underscored", "modules", "1", "1,234"]


def test_only_functions_that_a_command_calls_are_traced(checkout, tmp_path):
    result = measure.trace_run(checkout, tmp_path, ())
    assert result == {
        "files": 2,
        "functions": 3,
        "files without report and CLI": 1,
        "functions without report and CLI": 2,
    }
    called = json.loads((tmp_path / "called.json").read_text("utf-8"))["called"]
    assert called == [
        ["cli.py", "program"],
        ["data/helper.py", "called"],
        ["data/helper.py", "in_a_thread"],
    ]


def test_a_command_that_fails_is_reported(checkout, tmp_path):
    (checkout / "src/expost/cli.py").write_text("def main():\n    raise SystemExit('no such')\n")
    runs = {"profile, in memory": measure.trace_run(checkout, tmp_path, ("profile",))}
    assert runs == {"profile, in memory": "no such"}
    assert measure.table_of({"this": {"runs": runs}}).split()[-1] == "failed"


# Old and new files -------------------------------------------------------------------------------


def test_moved_code_stays_in_the_core_and_a_forgotten_file_is_named():
    files = measure.FileMap(
        revision="r",
        files={"_a.py": ["a/*.py"], "_b.py": ["risk/verb.py", "papers/*b.py"], "_c.py": "deleted"},
        added=["new.py"],
        outside=["risk/*", "cli.py"],
    )
    paths = ["_b.py", "a/one.py", "cli.py", "new.py", "other.py", "risk/verb.py", "risk/x.py"]
    assert files.core(paths) == ["_b.py", "a/one.py", "new.py", "other.py", "risk/verb.py"]
    assert files.core(["papers/x/b.py", "papers/x/c.py"]) == ["papers/x/b.py"]
    assert files.missing(["_a.py", "_d.py", "risk/x.py"], paths) == (["_d.py"], ["other.py"])


def test_the_map_names_every_file_that_was_reviewed():
    files = measure.FileMap.load()
    assert len(files.files) == 159
    for new in files.files.values():
        assert new in ("deleted", "moved out") or (isinstance(new, list) and new)
    verbs = {"neighbours", "profile", "publish", "audit"}
    assert not verbs & {target.removesuffix(".py").split("/")[0] for target in files.targets}


def test_a_revision_is_checked_out_and_removed(tmp_path, monkeypatch):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")

    def git(*arguments):
        name = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
        command = ["git", *name, *arguments]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout

    git("init", "--quiet")
    (tmp_path / "file").write_text("before")
    git("add", "file")
    git("commit", "--quiet", "-m", "one")
    (tmp_path / "file").write_text("after")
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    with measure.checked_out("HEAD") as folder:
        assert (folder / "file").read_text() == "before"
    assert not folder.exists()
    assert len(git("worktree", "list").splitlines()) == 1


# Similar functions -------------------------------------------------------------------------------


def test_pairs_are_those_that_difflib_finds_without_bounds():
    rng = random.Random(0)
    functions = []
    for number in range(60):
        if number % 6 == 0:
            tokens = rng.choices("abcdefgh", k=rng.randrange(20, 60))
        else:
            tokens = list(functions[-1].tokens)
            for _ in range(rng.randrange(8)):
                index = rng.randrange(len(tokens))
                tokens[index : index + rng.randrange(3)] = rng.choices(
                    "abcdefgh", k=rng.randrange(3)
                )
        functions.append(Function(path="a.py", line=number, name="f", tokens=tuple(tokens)))
    collected = {(a.line, b.line): ratio for ratio, a, b in similar_pairs(functions)}
    ordered = sorted(functions, key=lambda f: (len(f.tokens), f.line))
    naive = {}
    for index, second in enumerate(ordered):
        for first in ordered[:index]:
            ratio = SequenceMatcher(None, first.tokens, second.tokens, autojunk=False).ratio()
            if ratio >= SIMILAR:
                naive[tuple(sorted((first.line, second.line)))] = ratio
    assert collected == naive
    assert 50 < len(collected) < 60 * 59 / 2


def test_names_constants_annotations_and_docstrings_do_not_matter():
    body = "\n".join(f"    {{name}}{index} = {{name}} + {{number}}" for index in range(8))
    first = "def f(x):\n" + body.format(name="x", number=1)
    second = 'class C:\n    def g(y: int) -> "str":\n        """Return."""\n' + body.replace(
        "    ", "        "
    ).format(name="y", number=2)
    short = "def h(x):\n    return x\n"
    functions = functions_of({"a.py": first, "b.py": f"{short}\n{second}"})
    assert [each.location for each in functions] == ["a.py:1 f", "b.py:5 C.g"]
    ((ratio, *pair),) = similar_pairs(functions)
    assert ratio == 1
    assert pair == functions
