"""The commands whose machine-readable output ``tools/record.py`` records, on three small tables.

The first section is the only one that knows how the program spells its commands and options. Keys
of the output that are renamed are declared in ``KEYS`` of ``tools/record.py``.
"""

import contextlib
import csv
import dataclasses
import functools
import io
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from record_problems import find_name, read_rows, uncut

__all__ = ["command_values", "flatten", "run"]

Values = dict[str, list[Any]]

# --- Spellings of the program: the new one first ------------------------------------------------

PROGRAM = ("expost.cli.main.main", "expost.cli.main", "expost.cli.program", "expost.cli.app")
RELEASE = ("expost.mechanisms.Release", "expost.Release")
# An option as it is written below, and what a version of the program may call it.
OPTIONS = {
    "--person": ("--person", "--group"),
    "--by": ("--by", "--group"),
    "--max-posterior": ("--max-posterior", "--max-belief"),
    "--posterior": ("--posterior", "--max-posterior", "--belief"),
    "--json-curator": ("--json-curator", "--json"),
}
# Different in every run or on every machine (times, versions), or the options of another command.
IGNORED = re.compile(
    r"(^|\.|\])(made|time|seconds|versions?|command|format|size|bytes|created|date)($|\.|\[)"
)
# A string is recorded if it is one word: sentences are rewritten; digests, dates and paths vary.
WORD = re.compile(r"(?![0-9a-f]{16,}$|\d{4}-\d\d)(?!.*\.(json|parquet|html|csv)$)[^\s/\\]{1,40}")


def run(*arguments: Any) -> Any:
    """Run the program in this process and return the JSON that it prints, if any.

    Raises
    ------
    RuntimeError
        If the program does not end with exit code 0.
    """
    words = [spell(str(arguments[0]), str(word)) for word in arguments]
    code, out, err = call(words)
    if code:
        raise RuntimeError(f"expost {' '.join(words)} ended with exit code {code}: {err.strip()}")
    return json.loads(out) if out.lstrip().startswith("{") else None


def call(words: list[str]) -> tuple[int, str, str]:
    """Return the exit code, the output and the messages of the program."""
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["expost", *words]
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            find_name(PROGRAM)()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = argv
    return code, out.getvalue(), err.getvalue()


def spell(command: str, word: str) -> str:
    """Return an option as this version of the program spells it for ``command``."""
    if word not in OPTIONS:
        return word
    for spelling in OPTIONS[word]:
        if spelling in help_words(command):
            return spelling
    raise LookupError(f"expost {command} has none of {', '.join(OPTIONS[word])}: add its new name.")


@functools.cache
def help_words(command: str) -> frozenset[str]:
    """Return the options that the help of a command lists."""
    return frozenset(re.findall(r"--[a-z-]+", call([command, "--help"])[1]))


def unmark_seed(model: Path, copy: Path) -> Path:
    """Write a copy of a seeded model that says it is not: only such a model can be published."""
    release = find_name(RELEASE).load(model)
    copy.parent.mkdir(parents=True, exist_ok=True)
    dataclasses.replace(release, seeded=False).save(copy)
    return copy


# --- Output as values ---------------------------------------------------------------------------


def flatten(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the key path and the value of every number, boolean and word in a document.

    The entries of a list share one path, ``curve[].score``, unless each has a name of its own:
    ``choices[epsilon].value``. A key whose value is null counts as missing.
    """
    if isinstance(document, dict):
        for key, value in document.items():
            if value is None or (key == "name" and path.endswith(f"[{value}]")):
                continue
            yield from flatten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(document, list):
        names = [entry.get("name") if isinstance(entry, dict) else None for entry in document]
        named = None not in names and len(set(names)) == len(names)
        for name, entry in zip(names, document, strict=True):
            yield from flatten(entry, f"{path}[{name if named else ''}]")
    elif IGNORED.search(path):
        return
    elif not isinstance(document, str) or WORD.fullmatch(document):
        yield path, document


def collect(document: Any, prefix: str) -> Values:
    """Return the values of a document, a list for each key path."""
    values: Values = {}
    for path, value in flatten(document):
        values.setdefault(f"{prefix}:{path}", []).append(value)
    return values


def collect_folder(folder: Path) -> Values:
    """Return the values of the JSON files and the tables of rows in a folder."""
    values: Values = {}
    for path in sorted(folder.glob("*")):
        name = path.name.partition(".")[0]
        # The summary is printed too; the manifest lists files.
        if path.suffix == ".json" and name not in ("", "summary"):
            values |= collect(json.loads(path.read_text()), name)
        elif path.suffix == ".parquet":
            table = read_rows(folder) if path.is_dir() and name == "profile" else None
            if table is None:
                table = pyarrow.parquet.read_table(path)
            columns = {column: table.column(column).to_pylist() for column in table.column_names}
            values |= collect(columns, f"{name}-table")
    return values


# --- Tables -------------------------------------------------------------------------------------

CITIES = ("Oslo", "Bergen", "Narvik")
BOUNDS = {
    "age": {"mean": 45, "scale": 20, **uncut()},
    "hours": {"mean": 40, "scale": 10, "fill": 40, **uncut()},
    "city": {"levels": list(CITIES)},
}


def write_rows(path: Path, header: list[str], rows: list[list[Any]]) -> Path:
    """Write a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def make_rows(rows: int, seed: int) -> list[list[Any]]:
    """Return age, hours, city and a score for each row."""
    rng = np.random.default_rng(seed)
    age, hours = rng.integers(18, 80, rows), np.round(rng.normal(40, 8, rows), 2)
    city = rng.integers(0, len(CITIES), rows)
    score = (age - 48) / 20 + (hours - 40) / 30 + 0.3 * city + rng.normal(0, 0.6, rows)
    return [
        [int(age[row]), float(hours[row]), CITIES[city[row]], float(np.round(score[row], 4))]
        for row in range(rows)
    ]


def write_tables(folder: Path) -> None:
    """Write the three tables, other rows like those of the first, and their public bounds."""
    header = ["age", "hours", "city"]
    for name, seed in (("two", 1), ("others", 2)):
        rows = [[*row[:3], "yes" if row[3] > 0.3 else "no"] for row in make_rows(120, seed)]
        write_rows(folder / f"{name}.csv", [*header, "ill"], rows)
    write_rows(folder / "wages.csv", [*header, "wage"], make_rows(100, 3))
    rng = np.random.default_rng(4)
    visits = []
    for number, (age, hours, city, score) in enumerate(make_rows(150, 4)):
        patient = f"p{int(rng.integers(0, 60)):02d}"
        shown = "?" if rng.random() < 0.15 else hours
        visits.append([number, patient, age, shown, city, "yes" if score > 0.3 else "no"])
    write_rows(folder / "visits.csv", ["number", "patient", *header, "ill"], visits)
    for name, target in (("two", {"classes": ["no", "yes"]}), ("wages", None)):
        bounds: dict[str, Any] = {"columns": BOUNDS, "data_norm": 3}
        if target is not None:
            bounds["target"] = target
        (folder / f"{name}.json").write_text(json.dumps(bounds))


# --- Commands -----------------------------------------------------------------------------------

TWO = ("two.csv", "--target", "ill")
WAGES = ("wages.csv", "--target", "wage")
VISITS = ("visits.csv", "--target", "ill")
RIDGE = ("--loss", "squared", "--label-range", "-3,3")
OBJECTIVE = ("--mechanism", "objective", "--noise", "gaussian", "--delta", "1e-5")
SEED = ("--seed", "7")
BLOCKS = ("--engine", "local")
OUTPUT = ("--mechanism", "output", "--noise", "laplace")
PENALTY = ("--epsilon", "1", "--regularization", "0.05")
FIXED = (*PENALTY, *OUTPUT)
SWEEP = (
    "--models",
    "20",
    "--folds",
    "2",
    "--epsilons",
    "0.1,1,10,100",
    "--regularization",
    "0.05",
)
CHOICE = (*SWEEP, *OUTPUT)
TREE = ("--estimator", "sklearn.tree.DecisionTreeClassifier:max_depth=3,random_state=0")
PERSON = ("--set", "age=39", "--set", "city=Oslo", "--set", "hours=41")

# By the folder of their results. Each is run in a folder that holds the tables, in this order.
COMMANDS: dict[str, tuple[str, ...]] = {
    "two/profile": ("profile", *TWO, "--encoding", "two.json", *FIXED, *SEED),
    "two/profile-read": ("profile", *TWO, "--epsilon", "2", "--regularization", "auto", *SEED),
    "two/profile-objective": (
        *("profile", *TWO, "--encoding", "two.json", *PENALTY, *OBJECTIVE, *SEED),
    ),
    "two/profile-svc": ("profile", *TWO, *FIXED, "--loss", "huber-hinge", *SEED),
    "two/profile-blocks": ("profile", *TWO, "--encoding", "two.json", *FIXED, *SEED, *BLOCKS),
    "two/profile-objective-blocks": ("profile", *TWO, *PENALTY, *OBJECTIVE, *SEED, *BLOCKS),
    "two/profile-model": ("profile", *TWO, "--model", "two/profile/model.json"),
    "two/profile-model-blocks": ("profile", *TWO, "--model", "two/profile/model.json", *BLOCKS),
    "two/epsilon": ("epsilon", *TWO, *CHOICE, "--max-posterior", "0.7", *SEED),
    "two/epsilon-objective": ("epsilon", *TWO, *SWEEP, *OBJECTIVE, *SEED),
    "two/epsilon-blocks": ("epsilon", *TWO, *CHOICE, *SEED, *BLOCKS),
    "two/publish": ("publish", *TWO, "--model", "two/public/model.json"),
    "two/publish-blocks": ("publish", *TWO, "--model", "two/public/model.json", *BLOCKS),
    "two/publish-alone": ("publish", "--model", "two/public/model.json"),
    "two/lookup": ("lookup", "two/publish/report.json", *PERSON),
    "two/audit": ("audit", *TWO, *TREE, "--references", "6", "--by", "city", *SEED),
    "two/audit-model": (
        *("audit", *TWO, "--model", "two/profile/model.json", "--holdout", "others.csv"),
        *("--references", "4", *SEED),
    ),
    "two/ledger": ("ledger", "two/profile", "--delta", "1e-5"),
    "two/risk-model": ("risk", "two/profile/model.json", "--releases", "3"),
    "two/report": ("report", "two/profile", "two/epsilon", "two/publish"),
    "two/report-public": ("report", "two/profile", "two/publish", "--public"),
    "wages/profile": ("profile", *WAGES, "--encoding", "wages.json", *FIXED, *RIDGE, *SEED),
    "wages/profile-objective": ("profile", *WAGES, *PENALTY, *RIDGE, *OBJECTIVE, *SEED),
    "wages/profile-blocks": ("profile", *WAGES, *FIXED, *RIDGE, *SEED, *BLOCKS),
    "wages/epsilon": ("epsilon", *WAGES, *CHOICE, *RIDGE, *SEED),
    "wages/epsilon-blocks": ("epsilon", *WAGES, *CHOICE, *RIDGE, *SEED, *BLOCKS),
    "wages/publish": ("publish", *WAGES, "--model", "wages/public/model.json"),
    "wages/lookup": ("lookup", "wages/publish/report.json", *PERSON, "--label", "0.5"),
    "wages/ledger": ("ledger", "wages/profile", "--delta", "1e-5"),
    "visits/profile": ("profile", *VISITS, *FIXED, "--id", "number", *SEED),
    "visits/profile-persons": (
        *("profile", *VISITS, *FIXED, "--drop", "number", "--person", "patient", *SEED),
    ),
    "visits/profile-persons-objective": (
        *("profile", *VISITS, *PENALTY, *OBJECTIVE, "--drop", "number", "--person", "patient"),
        *SEED,
    ),
    "visits/profile-blocks": ("profile", *VISITS, *FIXED, "--id", "number", *SEED, *BLOCKS),
    "visits/epsilon": ("epsilon", *VISITS, *CHOICE, "--id", "number", *SEED),
    "visits/audit": ("audit", *VISITS, *TREE, "--id", "number", "--references", "4", *SEED),
    "risk/epsilon": ("risk", "--epsilon", "1", "--delta", "1e-5", "--prior", "0.3"),
    "risk/mu": ("risk", "--mu", "0.5", "--delta", "1e-6", "--fpr", "0.001"),
    "risk/training": (
        *("risk", "--noise-multiplier", "1.1", "--sampling-rate", "0.01", "--steps", "500"),
        *("--delta", "1e-5"),
    ),
    "risk/posterior": ("risk", "--posterior", "0.9", "--delta", "1e-5"),
    "risk/advantage": ("risk", "--advantage", "0.1", "--delta", "1e-5"),
}
# A model that may be published, made before the first command that needs it.
PUBLIC = {"two/profile": "two/public", "wages/profile": "wages/public"}
# Without a folder of results unless a page is asked for.
PRINTING = ("lookup", "ledger", "risk")


def command_values() -> dict[str, Values]:
    """Return the values in the output of every command."""
    values: dict[str, Values] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        write_tables(Path())
        for key, words in COMMANDS.items():
            output = [] if words[0] in PRINTING else ["--out", key]
            if words[0] == "profile" and "--model" not in words:
                # By default all releases of a table are in one ledger, whatever command made them.
                output += ["--ledger", f"{key}/ledger.CURATOR-ONLY.json"]
            document = run(*words, *output, "--json-curator")
            # Pages are for people; the figures behind them are in the files of the results.
            document.pop("summary", None)
            values[f"commands/{key}"] = collect(document, "stdout") | collect_folder(Path(key))
            if key in PUBLIC:
                unmark_seed(Path(key) / "model.json", Path(PUBLIC[key]) / "model.json")
    return values
