"""Running the program in tests, and what is expected of it whatever it is asked."""

import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expost.jobs.output import MANIFEST
from expost.report import Page, parse_json

PROGRAM = Path(sys.executable).with_name("expost")
# Whatever an error says, it never says these: they stand in the cells of the tables below.
CANARIES = ("kanarie", "90210")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """What went wrong, on one line, without the box that usage errors are drawn in."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self.err)
        return " ".join(re.sub("[│╭╮╰╯─]", " ", plain).split())


def installed(*arguments: object, **options) -> Ran:
    """Run the installed program, in a process of its own."""
    return finished([str(PROGRAM), *map(str, arguments)], **options)


def finished(command: list[str], **options) -> Ran:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, **options
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def page_in(folder: Path) -> Page:
    """The page that a command wrote there."""
    (path,) = folder.glob("summary*.json")
    return parse_json(path.read_text())


def settings_in(folder: Path) -> dict[str, tuple[str, str]]:
    """Every setting of the page there: its value and where it comes from, by its name."""
    return {each.name: (each.value, each.origin.value) for each in page_in(folder).settings}


def imported(done: Ran) -> set[str]:
    """The modules that ``python -X importtime`` tells of."""
    return {line.rpartition("|")[2].strip() for line in done.err.splitlines()}


def people(rows: int = 60, seed: int = 0) -> list[list[str]]:
    """A small mixed table: a key, numbers, text, a boolean, missing cells, two classes."""
    rng = np.random.default_rng(seed)
    table = [["number", "age", "city", "smoker", "hours", "income"]]
    for row in range(rows):
        age = int(rng.integers(18, 80))
        table.append(
            [
                f"p{row:03d}",
                str(age),
                str(rng.choice(["Oslo", "Bergen", "Paris"])),
                str(rng.choice(["true", "false"])),
                "?" if rng.random() < 0.15 else f"{rng.normal(40, 8):.2f}",
                ">50K" if age + rng.normal(0, 10) > 50 else "<=50K",
            ]
        )
    return table


def text(table: list[list[str]]) -> str:
    return "".join(",".join(line) + "\n" for line in table)


def refused(done: Ran, out: Path, words: str) -> None:
    """One sentence with these words on stderr, exit code 2, nothing written, no cell shown."""
    assert (done.code, done.out) == (2, ""), done
    assert "Traceback" not in done.err
    for word in words.split(" | "):
        assert word in done.message, (word, done.message)
    if done.err.startswith("expost: "):
        assert done.err.endswith((".\n", ")\n", "?\n"))
        assert done.err.count("\n") == 1
    for canary in CANARIES:
        assert canary not in done.err
    assert not out.exists()


def names(folder: Path) -> set[str]:
    """What a person finds there: all but the list that expost keeps of its own files."""
    return {path.name for path in folder.iterdir()} - {MANIFEST}


def listed(folder: Path) -> list[Path]:
    """The files that a person finds there."""
    return [folder / name for name in sorted(names(folder))]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def naive_features(
    table: list[list[str]], like: list[list[str]] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The table as numbers, by the words of docs/data.md: one column after the other.

    Means, scales, medians and levels are those of ``like`` (default: of the table itself).
    """
    cells, known = (
        {column[0]: np.array(column[1:]) for column in zip(*rows, strict=True)}
        for rows in (table, like or table)
    )
    features = []
    for name in ("age", "city", "smoker", "hours"):
        if name in ("city", "smoker"):
            features += [(cells[name] == level).astype(float) for level in sorted(set(known[name]))]
            continue
        missing = cells[name] == "?"
        values = known[name][known[name] != "?"].astype(float)
        filled = np.where(
            missing, np.median(values), np.where(missing, "0", cells[name]).astype(float)
        )
        features.append(np.clip((filled - values.mean()) / values.std(), -2, 2))
        if (known[name] == "?").any():
            features.append(missing.astype(float))
    return np.column_stack(features), np.where(cells["income"] == ">50K", 1.0, -1.0)


def naive_unit_rows(features: np.ndarray, columns: int) -> np.ndarray:
    """Rows clipped to √p/2 of p columns, divided by it, and the constant 1/√(p + 1)."""
    norm, constant = np.sqrt(columns) / 2, 1 / np.sqrt(columns + 1)
    longest = np.maximum(norm, np.linalg.norm(features, axis=1))
    scaled = features / longest[:, None] * np.sqrt(1 - constant**2)
    return np.column_stack([scaled, np.full(len(features), constant)])


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """A limit on the size of a file stands in for a disk that is full after so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
