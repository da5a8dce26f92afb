"""Tests use public names: a private one of the code only where a test must break it.

A private name is a function, class, method or attribute whose name begins with an underscore. The
names without an underscore of a module such as ``expost._order`` are an interface within the
package, with laws of their own, and may be tested. A private constant in capitals, such as a block
size or a time limit, may be patched, but not read.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PATCHES = {"setattr", "delattr", "setitem", "getattr"}

MUTATED = {
    "tests/conformance/mutants.py": (
        "_ScalarLeverage", "_assemble", "_grid_width", "_own", "_shares", "_volume",
    ),
    "tests/dpsgd/mutants.py": (
        "_Run", "_add", "_filtered", "_hidden", "_pass", "_sizes", "_values",
    ),
}  # fmt: skip
# The private names that tests break on purpose, by file and name, with the reason.
BROKEN = {
    (file, name): "a mutant changes one step of the computation"
    for file, names in MUTATED.items()
    for name in names
} | {
    ("tests/conformance/conftest.py", "_own"): "the plug-in is registered for one test only",
    ("tests/engine/test_dask_rows.py", "_value"): "rows may not be computed in this process",
    ("tests/fuzz/test_power.py", "_agree"): "a check of model files is switched off",
    ("tests/fuzz/test_power.py", "_decoded"): "a check of CSV files is switched off",
}


def is_private(name):
    """Return whether a name begins with one underscore; ``_repr_html_`` is IPython's."""
    return name.startswith("_") and not name.startswith("__") and not name.endswith("_")


def defined(tree):
    """Yield the names that a module, its classes and their ``self`` define."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def used(tree):
    """Yield the names that a module imports, takes from an object or patches."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=names):
                yield from (alias.name for alias in names)
            case ast.Attribute(attr=name, ctx=context):
                if not (name.isupper() and isinstance(context, ast.Store)):
                    yield name
            case ast.Call(func=ast.Attribute(attr=call) | ast.Name(id=call)) if call in PATCHES:
                for value in node.args[:2]:
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        name = value.value.rpartition(".")[2]
                        if not name.isupper():
                            yield name


def trees(*folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8"))


def is_test(file):
    return file.startswith(("tests/", "papers/tests/"))


def private_uses():
    """Return how often each test file uses each private name of the code."""
    sources = {file: tree for file, tree in trees("src", "papers", "tools") if not is_test(file)}
    private = {name for tree in sources.values() for name in defined(tree) if is_private(name)}
    private -= {Path(file).stem for file in sources}
    uses = Counter()
    for file, tree in trees("tests", "papers/tests"):
        foreign = private.difference(defined(tree))
        uses.update((file, name) for name in used(tree) if name in foreign)
    return uses


def test_private_names_are_used_only_where_they_are_broken():
    uses = set(private_uses())
    assert uses - BROKEN.keys() == set()
    # An entry that is no longer used goes.
    assert BROKEN.keys() - uses == set()


@pytest.mark.parametrize(
    "line",
    [
        "from expost.ledger import _sum",
        "ledger._sum(1)",
        "monkeypatch.setattr(ledger, '_sum', None)",
        "monkeypatch.setattr('expost.ledger._sum', None)",
        "getattr(ledger, '_sum')",
        "ledger._sum = 1",
    ],
)
def test_a_use_is_found(line):
    assert "_sum" in used(ast.parse(line))


def test_a_constant_may_be_patched_and_not_read():
    assert "_ROWS" in used(ast.parse("ledger._ROWS"))
    assert "_ROWS" not in used(ast.parse("monkeypatch.setattr(ledger, '_ROWS', 1)"))
    assert "_ROWS" not in used(ast.parse("ledger._ROWS = 1"))
