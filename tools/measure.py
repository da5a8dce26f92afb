"""Measure a revision of the source: size, layers, files run by a command, functions written twice.

    python tools/measure.py                            this checkout
    python tools/measure.py --rev 420fb71 --rev HEAD   several revisions, one column each
    python tools/measure.py --src FOLDER --json FILE   another checkout; also write JSON
    python tools/measure.py --pairs                    also print the similar pairs of functions
    python tools/measure.py map --check                is every file named in measure_map.toml?

Conventions
-----------
A *part* is ``flat`` (the modules directly in src/expost), ``cli`` (the modules of the command line
there) or a package of src/expost. *Code lines* are lines without docstrings, comments and blanks.

The *core as reviewed* is what redesign/core.md counted at commit 420fb71. ``measure_map.toml``
names for each of these files the files that it becomes, so that moved code is not counted as
deleted. A new file that the map does not name counts as core unless it matches ``outside``: a file
missing from the map can make the core larger, never smaller.

Files and functions *run by a command* are those of which a function is called while the ``expost``
program of the measured revision runs in a process of its own on a table of 400 rows. All modules
are imported before; what runs at import is not counted, nor are lambdas and comprehensions.

Similar functions are those of similar_functions.py.
"""

import argparse
import ast
import io
import json
import os
import pkgutil
import random
import subprocess
import sys
import tempfile
import threading
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

from similar_functions import functions_of, is_string, similar_pairs

ROOT = Path(__file__).parent.parent
MAP = ROOT / "tools" / "measure_map.toml"
# Parts whose functions are compared only with --all-parts: the outer layers have their own review.
_NOT_COMPARED = frozenset({"report", "reproduce", "attacks", "torch", "cli"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CO_OPTIMIZED = 1  # A flag of code objects: set for functions, not for modules and class bodies.
_ENCODING = {
    "columns": {
        "age": {"mean": 40, "scale": 15},
        "hours": {"mean": 40, "scale": 10},
        "city": {"levels": ["Oslo", "Bergen"]},
    },
    "target": {"classes": ["high", "low"]},
    "data_norm": 5,
}
_TABLE = ("people.csv", "--target", "income", "--id", "number")
_BLOCKS = ("--engine", "local:1")
# Models for publish, which refuses seeded ones; each has a ledger of its own.
_MODEL = ("profile", *_TABLE, "--mechanism", "objective", "--encoding", "encoding.json")
_PUBLISH = ("publish", *_TABLE, "--model")
_RUNS = {
    "profile, in memory": ("profile", *_TABLE, "--seed", "1", "--out", "p1"),
    "profile, in blocks": ("profile", *_TABLE, "--seed", "1", "--out", "p2", *_BLOCKS),
    "epsilon, in memory": ("epsilon", *_TABLE, "--seed", "1", "--out", "e1"),
    "epsilon, in blocks": ("epsilon", *_TABLE, "--seed", "1", "--out", "e2", *_BLOCKS),
    "profile for publish, in memory": (*_MODEL, "--out", "m1"),
    "profile for publish, in blocks": (*_MODEL, "--out", "m2", *_BLOCKS),
    "publish, in memory": (*_PUBLISH, "m1/model.json", "--out", "r1"),
    "publish, in blocks": (*_PUBLISH, "m2/model.json", "--out", "r2", *_BLOCKS),
}


# Lines -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Size:
    """Number of files, lines, and lines of code of some files."""

    files: int = 0
    lines: int = 0
    code: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(
            files=self.files + other.files,
            lines=self.lines + other.lines,
            code=self.code + other.code,
        )


def size_of(source: str) -> Size:
    """Return the size of one file with this source."""
    lines = source.splitlines()
    left_out = {number for number, line in enumerate(lines, 1) if not line.strip()}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, *_DEFINITIONS)):
            # Of a function only the first string is a docstring; attributes have theirs too.
            body = node.body[:1] if isinstance(node, _DEFINITIONS) else node.body
            for statement in filter(is_string, body):
                left_out.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1].strip().startswith("#"):
            left_out.add(token.start[0])
    return Size(files=1, lines=len(lines), code=len(lines) - len(left_out))


def part_of(path: str) -> str:
    """Return the part to which a file belongs; ``path`` is relative to src/expost."""
    if "/" in path:
        return path.split("/")[0]
    return "cli" if path == "cli.py" or path.startswith("_cli_") else "flat"


def sources_of(checkout: Path) -> dict[str, str]:
    """Return the source of every Python file by its path relative to src/expost.

    The files of papers/, which hold what moves out of the package, keep that prefix.
    """
    package = checkout / "src" / "expost"
    paths = {p.relative_to(package).as_posix(): p for p in sorted(package.rglob("*.py"))}
    moved = sorted((checkout / "papers").rglob("*.py"))
    paths |= {p.relative_to(checkout).as_posix(): p for p in moved}
    return {name: path.read_text("utf-8") for name, path in paths.items()}


# Old and new files -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FileMap:
    """The files that the files of the core at ``revision`` become.

    Attributes
    ----------
    revision : str
        The commit that core.md reviewed.
    files : dict of str to list of str or str
        Old path to new paths (patterns of fnmatch), or "deleted", or "moved out".
    added : list of str
        Patterns of new files of the core that continue no old one.
    outside : list of str
        Patterns of files that are not part of the core.
    """

    revision: str
    files: dict[str, list[str] | str]
    added: list[str]
    outside: list[str]

    @classmethod
    def load(cls, path: Path = MAP) -> "FileMap":
        """Read the map from a TOML file."""
        return cls(**tomllib.loads(path.read_text("utf-8")))

    @property
    def targets(self) -> list[str]:
        """Patterns of all new files, without repetition."""
        lists = [new for new in self.files.values() if isinstance(new, list)]
        return list(dict.fromkeys([*(each for new in lists for each in new), *self.added]))

    def core(self, paths: Iterable[str]) -> list[str]:
        """Return those of ``paths`` that are the core as reviewed, with what moved to papers/."""
        named = [*self.files, *self.targets]
        outside = [*self.outside, "papers/*"]
        return [path for path in paths if _matches(path, named) or not _matches(path, outside)]

    def missing(self, old: Iterable[str], new: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return old files of the core without an entry, and new files named by no entry."""
        lost = [p for p in old if not _matches(p, self.outside) and p not in self.files]
        named = [*self.files, *self.targets, *self.outside, "papers/*"]
        return lost, [path for path in new if not _matches(path, named)]


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


# Layers and names --------------------------------------------------------------------------------


def layers_of(checkout: Path) -> dict[str, int]:
    """Count the layers of the import contract, and those that are one name or one module."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))
    contracts = project.get("tool", {}).get("importlinter", {}).get("contracts", [])
    layers = [
        layer
        for contract in contracts
        if contract["type"] == "layers"
        for layer in contract["layers"]
    ]
    single = [layer for layer in layers if isinstance(layer, str) and "|" not in layer]
    modules = [n for n in single if (checkout / "src" / f"{n.replace('.', '/')}.py").exists()]
    return {"layers": len(layers), "of one name": len(single), "of one module": len(modules)}


def repeated_classes(sources: dict[str, str]) -> dict[str, list[str]]:
    """Return the names of classes, without underscores, defined more than once, and where."""
    definitions = defaultdict(list)
    for path, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                definitions[node.name.lstrip("_")].append(f"{path}:{node.lineno}")
    return {name: places for name, places in sorted(definitions.items()) if len(places) > 1}


# What a command runs -----------------------------------------------------------------------------


def trace(out: Path, arguments: Sequence[str]) -> None:
    """Run the ``expost`` program that can be imported; write the functions it calls to ``out``."""
    expost = import_module("expost")
    package = f"{Path(expost.__file__ or '').parent}{os.sep}"
    for module in pkgutil.walk_packages(expost.__path__, "expost.", onerror=lambda name: None):
        # An optional dependency may be missing.
        with suppress(ImportError):
            import_module(module.name)
    try:
        program = import_module("expost.cli.main").program
    except ModuleNotFoundError:
        cli = import_module("expost.cli")
        program = cli.program if hasattr(cli, "program") else cli.main
    called: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & _CO_OPTIMIZED and code.co_name[0] != "<":
            called.add((code.co_filename, code.co_qualname))

    sys.argv = ["expost", *arguments]
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        program()
    finally:
        sys.setprofile(None)
        names = sorted((f[len(package) :], n) for f, n in called if f.startswith(package))
        out.write_text(json.dumps({"package": package, "called": names}), "utf-8")


def runs_of(checkout: Path) -> dict[str, dict[str, int] | str]:
    """Return the numbers of files and functions that each command runs, or its error message."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_table(folder)
        return {name: trace_run(checkout, folder, run) for name, run in _RUNS.items()}


def trace_run(checkout: Path, folder: Path, arguments: Sequence[str]) -> dict[str, int] | str:
    """Return how many functions one command calls, or the error of a command that fails."""
    out = folder / "called.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, __file__, "trace", "--json", str(out), "--", *arguments]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode or not out.exists():
        return done.stderr.strip()[-300:] or f"exit code {done.returncode}"
    traced = json.loads(out.read_text("utf-8"))
    if not Path(traced["package"]).samefile(checkout / "src" / "expost"):
        raise RuntimeError(f"{traced['package']} was imported, not the package in {checkout}.")
    called = traced["called"]
    inner = [(path, name) for path, name in called if part_of(path) not in ("report", "cli")]
    return {
        "files": len({path for path, _ in called}),
        "functions": len(called),
        "files without report and CLI": len({path for path, _ in inner}),
        "functions without report and CLI": len(inner),
    }


def _write_table(folder: Path) -> None:
    rng = random.Random(0)
    lines = ["number,age,hours,city,income"]
    for number in range(400):
        age = rng.randrange(18, 80)
        income = "high" if age + rng.gauss(0, 10) > 50 else "low"
        city = rng.choice(["Oslo", "Bergen"])
        lines.append(f"p{number},{age}.0,{rng.gauss(40, 8):.3f},{city},{income}")
    (folder / "people.csv").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "encoding.json").write_text(json.dumps(_ENCODING), "utf-8")


# The measurement ---------------------------------------------------------------------------------


def measure(checkout: Path, *, all_parts: bool = False, runs: bool = True) -> dict[str, Any]:
    """Return all figures of one checkout.

    Parameters
    ----------
    checkout : Path
        A folder with pyproject.toml and src/expost.
    all_parts : bool
        Compare the functions of the outer layers too.
    runs : bool
        Run the commands, which takes about a minute.
    """
    sources = sources_of(checkout)
    inside = {p: source for p, source in sources.items() if part_of(p) != "papers"}
    sizes = {path: size_of(source) for path, source in sources.items()}
    parts: dict[str, Size] = defaultdict(Size)
    for path, size in sizes.items():
        parts[part_of(path)] += size
    core = FileMap.load().core(sources)
    compared = {p: s for p, s in inside.items() if all_parts or part_of(p) not in _NOT_COMPARED}
    return {
        "parts": {name: asdict(size) for name, size in sorted(parts.items())},
        "package": _total(sizes[path] for path in inside),
        "core as reviewed": _total(sizes[path] for path in core),
        "of these in papers": _total(sizes[p] for p in core if part_of(p) == "papers"),
        "underscored modules": sum(
            path.startswith("_") and not path.startswith("__") and part_of(path) == "flat"
            for path in sources
        ),
        "top-level names": _names(checkout),
        "import contract": layers_of(checkout),
        "runs": runs_of(checkout) if runs else {},
        "similar pairs": [
            {"ratio": round(ratio, 3), "first": first.location, "second": second.location}
            for ratio, first, second in similar_pairs(functions_of(compared))
        ],
        "classes defined more than once": repeated_classes(inside),
    }


def _total(sizes: Iterable[Size]) -> dict[str, int]:
    return asdict(sum(sizes, Size()))


def _names(checkout: Path) -> int:
    command = [sys.executable, "-c", "import expost; print(len(expost.__all__))"]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Check a revision out into a temporary git worktree."""
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "checkout"
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder), revision], check=True)
        try:
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def table_of(measured: dict[str, dict[str, Any]]) -> str:
    """Lay the figures out as lines of a table, with a column for each revision."""
    columns = {name: dict(_lines(figures)) for name, figures in measured.items()}
    labels = list(dict.fromkeys(label for column in columns.values() for label in column))
    widths = [max(map(len, [name, *column.values()])) for name, column in columns.items()]
    first = max(map(len, labels))
    rows = [("", list(columns))] + [(n, [c.get(n, "–") for c in columns.values()]) for n in labels]
    return "\n".join(
        "  ".join([label.ljust(first), *(c.rjust(w) for c, w in zip(cells, widths, strict=True))])
        for label, cells in rows
    )


def _lines(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in figures.items():
        if name in ("parts", "runs"):
            yield from _lines(value)
        elif name == "import contract":
            yield name + ": layers / of one name / of one module", _slashed(value)
        elif isinstance(value, dict) and "code" in value:
            yield f"{name}: files / lines / code", _slashed(value)
        elif isinstance(value, dict) and "functions" in value:
            yield f"{name}: files / functions / the same without report and CLI", _slashed(value)
        elif isinstance(value, str):
            yield f"{name}: files / functions / the same without report and CLI", "failed"
        else:
            yield name, f"{value if isinstance(value, int) else len(value):,}"


def _slashed(value: dict[str, int]) -> str:
    return " / ".join(f"{each:,}" for each in value.values())


# The command line --------------------------------------------------------------------------------


def check_map(checkout: Path) -> int:
    """Print the files that the map does not name; return 1 if there are any, else 0."""
    files = FileMap.load()
    with checked_out(files.revision) as old:
        lost, new = files.missing(sources_of(old), sources_of(checkout))
    for path in lost:
        print(f"{path}: a file of {files.revision} without an entry in {MAP.name}")
    for path in new:
        print(f"{path}: a new file that no entry of {MAP.name} names")
    if not lost and not new:
        print(f"All {len(files.files)} files of {files.revision} and all new files have entries.")
    return int(bool(lost or new))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; return its exit code."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    commands = ["measure", "map", "trace"]
    parser.add_argument("command", nargs="?", default="measure", choices=commands)
    parser.add_argument("--src", type=Path, help="a checkout, or its folder src")
    parser.add_argument("--rev", action="append", default=[], help="a revision (repeatable)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--pairs", action="store_true", help="print the similar pairs")
    parser.add_argument("--all-parts", action="store_true", help="compare the outer layers too")
    parser.add_argument("--without-runs", action="store_true", help="run no commands (faster)")
    parser.add_argument("--check", action="store_true", help="of map: name files without an entry")
    given = list(sys.argv[1:] if arguments is None else arguments)
    split = given.index("--") if "--" in given else len(given)
    namespace = parser.parse_args(given[:split])
    if namespace.command == "trace":
        trace(namespace.json, given[split + 1 :])
        return 0
    checkout = (namespace.src or ROOT).resolve()
    checkout = checkout.parent if (checkout / "expost").is_dir() else checkout
    if namespace.command == "map":
        return check_map(checkout)
    options = {"all_parts": namespace.all_parts, "runs": not namespace.without_runs}
    measured = {}
    if namespace.src or not namespace.rev:
        measured["checkout"] = measure(checkout, **options)
    for revision in namespace.rev:
        with checked_out(revision) as folder:
            measured[revision] = measure(folder, **options)
    print(table_of(measured))
    for name, figures in measured.items():
        for run, value in figures["runs"].items():
            if isinstance(value, str):
                print(f"{name}: {run} failed: {value}", file=sys.stderr)
        if namespace.pairs:
            print(f"\nSimilar pairs of {name}")
            for pair in figures["similar pairs"]:
                print(f"{pair['ratio']:.2f}  {pair['first']}  {pair['second']}")
    if namespace.json:
        namespace.json.write_text(
            json.dumps(measured, indent=1, ensure_ascii=False) + "\n", "utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
