"""The package and its documentation use the vocabulary of the field, one term for each notion."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Words of the old vocabulary, and what to write instead.
INSTEAD = {
    r"promis(?:e|es|ed|ing)": "guarantee",
    r"beliefs?": "posterior, or certainty",
    r"surest|how sure": "most certain",
    r"told apart": "per-row AUC, distinguished",
    r"whoever|whichever|whosoever": "the subject itself",
    r"somebody|nobody": "a person, no one",
    r"anew": "again",
    r"mend(?:s|ed|ing)?": "fix",
    r"gone on with|goes on with": "resumed",
    r"gives? (?:it|them|her|him|each row|a row|rows?) away": "reveals",
    r"speaks? against|vouch(?:es)? for": "a sentence about the evidence",
    r"truth values?|whole numbers?": "boolean, integer",
}
FORBIDDEN = re.compile(r"\b(?:" + "|".join(INSTEAD) + r")\b", re.IGNORECASE)
TEXTS = (
    "src/**/*.py",
    "src/**/*.html",
    "src/**/*.js",
    "papers/**/*.py",
    "papers/**/*.html",
    "tools/*.py",
    "bench/*.py",
    "docs/**/*.md",
    "*.md",
    "pyproject.toml",
    "CITATION.cff",
    "mkdocs.yml",
)
# Errata quote the papers, and the changelog names what was renamed.
LEFT_OUT = ("docs/evidence/", "docs/theory/errata.md", "CHANGELOG.md", "papers/tests/")
# "Belief" is the term of D5.3, and of revisions whose values tools/record.py compares.
BELIEF = (
    "papers/d53/",
    "docs/papers/d53.md",
    "docs/papers/strong-adversary.md",
    "tools/record.py",
    "tools/record_commands.py",
)


def texts():
    for pattern in TEXTS:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(LEFT_OUT):
                yield pytest.param(path, id=name)


@pytest.mark.parametrize("path", list(texts()))
def test_no_word_of_the_old_vocabulary(path):
    allowed = path.relative_to(ROOT).as_posix().startswith(BELIEF)
    lines = path.read_text("utf-8").splitlines()
    old = [
        f"{number}: {match.group()}"
        for number, line in enumerate(lines, 1)
        for match in FORBIDDEN.finditer(line)
        if not (allowed and match.group().lower().startswith("belief"))
    ]
    assert old == []


@pytest.mark.parametrize(
    "text", ["the guarantee that it promises", "Her belief", "It gives each row away.", "mended"]
)
def test_old_words_are_detected(text):
    assert FORBIDDEN.search(text)


@pytest.mark.parametrize("text", ["compromise", "recommended", "a posterior of 60 %", "renewed"])
def test_other_words_are_not(text):
    assert not FORBIDDEN.search(text)


# Names that say nothing of what they name. Call it what it is: profile, section, index, mechanism.
UNNAMED = frozenset(
    ("found", "told", "asked", "said", "one", "place", "how", "way", "look", "seen")
)
# (file, name) -> which library or format asks for the name.
EXCEPTIONS: dict[tuple[str, str], str] = {}
FOLDERS = ("src", "papers", "tools", "bench")


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that the code binds, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.alias(name=name, asname=other):
                yield node.lineno, other or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node.lineno, name


def sources():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield pytest.param(path, id=path.relative_to(ROOT).as_posix())


@pytest.mark.parametrize("path", list(sources()))
def test_every_name_names_something(path):
    file = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text("utf-8"))
    unnamed = [
        f"{line}: {name}"
        for line, name in bound_names(tree)
        if name in UNNAMED and (file, name) not in EXCEPTIONS
    ]
    assert unnamed == []


def test_every_exception_is_needed():
    for file, name in EXCEPTIONS:
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        assert name in {bound for _, bound in bound_names(tree)}


@pytest.mark.parametrize(
    "code",
    [
        "found = 1",
        "found: int = 1",
        "found: int",
        "found += 1",
        "a, (found, *b) = c",
        "*found, b = c",
        "if (found := f()): pass",
        "del found",
        "for found in c: pass",
        "[found for found in c]",
        "{a: b for a, found in c}",
        "with f() as found: pass",
        "def f(found): pass",
        "def f(*, found=1): pass",
        "def f(found, /): pass",
        "def f(*found): pass",
        "def f(**found): pass",
        "lambda found: 1",
        "def found(): pass",
        "async def found(): pass",
        "class found: pass",
        "class C:\n    found: int",
        "class C:\n    def found(self): pass",
        "self.found = 1",
        "self.found += 1",
        "import found",
        "import found.part",
        "import a as found",
        "from a import found",
        "from a import b as found",
        "try: pass\nexcept E as found: pass",
        "match a:\n    case found: pass",
        "match a:\n    case C() as found: pass",
        "match a:\n    case [*found]: pass",
        "match a:\n    case {**found}: pass",
    ],
)
def test_each_form_of_binding_is_detected(code):
    assert "found" in {name for _, name in bound_names(ast.parse(code))}


@pytest.mark.parametrize("code", ["f(found=1)", "a.found", "a['found']", "founded = 1", "found()"])
def test_uses_are_not_bindings(code):
    assert "found" not in {name for _, name in bound_names(ast.parse(code))}
