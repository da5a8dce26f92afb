"""Held-out AUC and log loss of private models: expost before, by default, at best, and its peers.

    python bench/utility.py                       fills in what is missing and prints the table
    python bench/utility.py --only opacus,before  only these columns
    python bench/utility.py --tune opacus         the search that OPACUS below comes from
    python bench/utility.py --record              also writes docs/evidence/useful-peers.json;
                                                  with --only the other columns stay as they are

The tables are those of :mod:`tables`; 25 % of the rows are held out, again in each split, and δ is
min(1e-6, 1/(10n)) rounded down to a power of ten. Fits run one after the other, in the environment
of their library (:mod:`utility_peers`). Every result is kept in build/utility by (column, table, ε,
split, setting), so that another run computes only what is missing. Results of the current package
are also kept by a digest of its sources. docs/utility.md describes the columns.
"""

import measure  # isort: skip (it pins BLAS to one thread)
import argparse
import hashlib
import io
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tables import TABLES, TUNING_TABLES, RawTable, encode
from utility_peers import gaussian_scale

SEED = 18
EPSILONS = (0.01, 0.1, 0.3, 1.0, 3.0, 8.0)
HALVES = tuple(epsilon / 2 for epsilon in EPSILONS)
ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "utility"
EVIDENCE = ROOT / "docs" / "evidence" / "useful-peers.json"
BEFORE = "50f0466"
WORKER = Path(__file__).with_name("utility_peers.py")
ENVIRONMENTS = {
    "diffprivlib": ("diffprivlib==0.6.6", "scikit-learn<1.8"),
    "interpret": ("interpret-core==0.7.8",),
}

ORACLE = [
    {"clip": clip, "factor": factor}
    for clip in (0.25, 0.35, 0.5, 0.7, 1.0)
    for factor in (1 / 8, 1, 8)
]
DIFFPRIVLIB = [{"clip": clip, "C": C} for clip in (0.25, 0.5, 1.0) for C in (1.0, 0.03, 0.001)]
# For each ε, of the settings whose mean AUC on TUNING_TABLES is within TIE of the best, the one
# with the lowest mean log loss there (--tune opacus).
TIE = 0.005
OPACUS: dict[float, dict[str, Any]] = {
    0.01: {"batches": 10, "steps": 100, "rate": 0.01},
    0.1: {"batches": 1, "steps": 30, "rate": 0.1},
    0.3: {"batches": 10, "steps": 300, "rate": 0.1, "clip": 0.5},
    1.0: {"batches": 10, "steps": 100, "rate": 1.0, "clip": 0.5},
    3.0: {"batches": 10, "steps": 100, "rate": 1.0, "clip": 0.5},
    8.0: {"batches": 10, "steps": 100, "rate": 1.0, "clip": 0.5},
}
OPACUS_GRID: list[dict[str, Any]] = [
    {"batches": batches, "steps": steps, "rate": rate, **clip}
    for batches, steps in ((1, 30), (10, 100), (10, 300))
    for rate in (0.01, 0.1, 1.0, 10.0)
    for clip in ({}, {"clip": 0.5})
]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the results: whose fits, with which settings, on how many splits."""

    worker: str
    epsilons: tuple[float, ...] = EPSILONS
    settings: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    splits: int = 5
    by_epsilon: dict[float, dict[str, Any]] | None = None

    def settings_at(self, epsilon: float) -> list[dict[str, Any]]:
        """The settings that are tried at an ε; the best one counts."""
        return self.settings if self.by_epsilon is None else [self.by_epsilon[epsilon]]


COLUMNS = {
    "without": Column(worker="without", epsilons=(math.inf,)),
    "before": Column(worker="before"),
    "default": Column(worker="default"),
    "default at ε/2": Column(worker="default", epsilons=HALVES),
    "diffprivlib": Column(worker="diffprivlib"),
    "interpret": Column(worker="interpret", splits=3),
    "opacus": Column(worker="opacus", splits=3, by_epsilon=OPACUS),
    "oracle": Column(worker="oracle", splits=3, settings=ORACLE),
    "diffprivlib best": Column(worker="diffprivlib", settings=DIFFPRIVLIB),
}
RELATIONS = {
    "before": "replacement (pure ε)",
    "default": "a row removed or added, as a row of zeros (ε, δ)",
    "oracle": "a row removed or added, as a row of zeros (ε, δ)",
    "diffprivlib": "replacement (pure ε)",
    "diffprivlib best": "replacement (pure ε)",
    "interpret": "a row removed or added (ε, δ)",
    "opacus": "a row removed or added (ε, δ)",
}


def delta_of(rows: int) -> float:
    """Return min(1e-6, 1/(10n)), rounded down to a power of ten."""
    return 10.0 ** -max(6, math.ceil(1 + math.log10(rows)))


def seed_of(split: int, epsilon: float) -> int:
    """The seed of the noise: all settings of a split and an ε have the same."""
    return SEED * 10**7 + split * 10**5 + (0 if math.isinf(epsilon) else round(1000 * epsilon))


# -- kept results ----------------------------------------------------------------------------------


class Cache:
    """One file of JSON lines for each worker; a line for each fit."""

    def __init__(self, worker: str) -> None:
        self._path = BUILD / "cells" / f"{worker}.jsonl"
        self._sources = _digest() if worker == "default" else None
        self._cells: dict[str, dict[str, float]] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                cell = json.loads(line)
                self._cells[json.dumps(cell["key"])] = cell["found"]

    def _key(self, table: str, epsilon: float, split: int, setting: dict[str, Any]) -> list[Any]:
        key = [table, str(epsilon), split, sorted(setting.items())]
        return key if self._sources is None else [*key, self._sources]

    def get(
        self, table: str, epsilon: float, split: int, setting: dict[str, Any]
    ) -> dict[str, float] | None:
        return self._cells.get(json.dumps(self._key(table, epsilon, split, setting)))

    def put(
        self,
        table: str,
        epsilon: float,
        split: int,
        setting: dict[str, Any],
        figures: dict[str, float],
    ) -> None:
        key = self._key(table, epsilon, split, setting)
        self._cells[json.dumps(key)] = figures
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "found": figures}) + "\n")


def _digest() -> str:
    """What the current package's sources are known by."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src" / "expost").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# -- environments ----------------------------------------------------------------------------------


def interpreter(worker: str, torch: Path) -> tuple[str, dict[str, str]]:
    """The interpreter that has the worker's library, and what its PYTHONPATH is."""
    if worker == "opacus":
        if not torch.exists():
            sys.exit(f"{torch} is not there; run make bench-utility, or give --torch.")
        return str(torch), {}
    if worker == "before":
        return sys.executable, {"PYTHONPATH": str(_sources_before())}
    if worker not in ENVIRONMENTS:
        return sys.executable, {"PYTHONPATH": str(ROOT / "src")}
    folder = ROOT / "build" / "environments" / worker
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, *ENVIRONMENTS[worker]], check=True)
        (folder / ".ready").touch()
    return str(python), {"PYTHONPATH": ""}


def _sources_before() -> Path:
    """The package as it was at BEFORE, out of this repository's history."""
    folder = BUILD / f"expost-{BEFORE}"
    if not folder.exists():
        command = ["git", "-C", str(ROOT), "archive", BEFORE, "src"]
        folder.parent.mkdir(parents=True, exist_ok=True)
        content = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                archive.extractall(name, filter="data")
            (Path(name) / "src").rename(folder)
    return folder


class Worker:
    """A process that fits with one library."""

    def __init__(self, name: str, torch: Path) -> None:
        python, variables = interpreter(name, torch)
        self._log = BUILD / f"{name}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [python, str(WORKER), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("w"),
            text=True,
            env={**os.environ, **variables},
        )

    def fits(self, data: Path, fits: list[dict[str, Any]]) -> Iterator[dict[str, float]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"data": str(data), "fits": fits}) + "\n")
        self._process.stdin.flush()
        for _ in fits:
            line = self._process.stdout.readline()
            if not line:
                sys.exit(f"The worker ended with status {self._process.wait()}; see {self._log}.")
            yield json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# -- fits ------------------------------------------------------------------------------------------

_made: dict[str, RawTable] = {}


def table_of(name: str) -> RawTable:
    """The table, read once."""
    if name not in _made:
        _made[name] = (TABLES | TUNING_TABLES)[name]()
    return _made[name]


def write_split(name: str, split: int) -> Path:
    """The .npz of one split, which the workers read."""
    path = BUILD / "data" / f"{name}-{split}.npz"
    if not path.exists():
        table = table_of(name)
        train, test = table.split(split)
        X, X_test = encode(table.columns, train, test)
        arrays = {"X_train": X, "X_test": X_test, "y_train": table.y[train]}
        arrays |= {"y_test": table.y[test], "names": np.array(list(table.columns))}
        for k, column in enumerate(table.columns.values()):
            arrays |= {f"train:{k}": column[train], f"test:{k}": column[test]}
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part.npz")
        np.savez(unfinished, **arrays)
        unfinished.rename(path)
    return path


def fill(column: Column, names: list[str], torch: Path, splits: int | None = None) -> None:
    """Compute what the column lacks, split by split."""
    cache, worker = Cache(column.worker), None
    for split in range(column.splits if splits is None else min(splits, column.splits)):
        for name in names:
            missing = [
                {"epsilon": epsilon, "setting": setting}
                for epsilon in column.epsilons
                for setting in column.settings_at(epsilon)
                if cache.get(name, epsilon, split, setting) is None
            ]
            if not missing:
                continue
            if worker is None:
                worker = Worker(column.worker, torch)
            data, start = write_split(name, split), time.perf_counter()
            delta = delta_of(table_of(name).rows - round(table_of(name).rows / 4))
            for fit in missing:
                fit |= {"delta": delta, "seed": seed_of(split, fit["epsilon"])}
            seconds = 0.0
            for fit, figures in zip(missing, worker.fits(data, missing), strict=True):
                cache.put(name, fit["epsilon"], split, fit["setting"], figures)
                seconds += figures["seconds"]
            print(
                f"  {column.worker}, {name}, split {split}: {len(missing)} fits,"
                f" {seconds:.1f} s of CPU, {time.perf_counter() - start:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    if worker is not None:
        worker.close()


# -- the results -----------------------------------------------------------------------------------


def summary(column: Column, cache: Cache, table: str, epsilon: float) -> dict[str, Any] | None:
    """Mean and standard error over splits of the best setting, by either measure."""
    settings = column.settings_at(epsilon)
    # Of a run that was interrupted: the splits that have every setting.
    cells = [
        [cache.get(table, epsilon, split, setting) for setting in settings]
        for split in range(column.splits)
    ]
    whole = [[cell for cell in line if cell is not None] for line in cells]
    whole = [line for line in whole if len(line) == len(settings)]
    if not whole:
        return None
    results: dict[str, Any] = {"splits": len(whole)}
    for measure_name, sign in (("auc", 1), ("log_loss", -1)):
        values = np.array([[cell[measure_name] for cell in line] for line in whole])
        means = values.mean(axis=0)
        best = int(np.argmax(sign * means))
        error = values[:, best].std(ddof=1) / math.sqrt(len(whole)) if len(whole) > 1 else 0.0
        results[measure_name] = [round(float(means[best]), 4), round(float(error), 4)]
        if len(settings) > 1:
            results[f"{measure_name} setting"] = settings[best]
    return results


def results_of(names: list[str], columns: list[str]) -> dict[str, Any]:
    """{table: {ε: {column: summary}}}, with r, the base rate's log loss and the shape."""
    caches = {column.worker: Cache(column.worker) for column in COLUMNS.values()}
    results: dict[str, Any] = {}
    for name in names:
        table = table_of(name)
        with np.load(write_split(name, 0)) as file:
            rows, width = file["X_train"].shape
        share = float(np.mean(table.y > 0))
        delta = delta_of(rows)
        lines: dict[str, Any] = {}
        for epsilon in EPSILONS:
            line: dict[str, Any] = {
                "r": float(f"{gaussian_scale(epsilon, delta) * math.sqrt(width + 1) / rows:.3g}")
            }
            for key in columns:
                column = COLUMNS[key]
                at = column.epsilons[0] if len(column.epsilons) == 1 else epsilon
                at = epsilon / 2 if column.epsilons is HALVES else at
                entry = summary(column, caches[column.worker], name, at)
                if entry is not None:
                    line[key] = entry
            lines[f"{epsilon:g}"] = line
        results[name] = {
            "kind": table.kind,
            "training rows": rows,
            "held-out rows": table.rows - rows,
            "columns": len(table.columns),
            "string columns": table.strings,
            "d": width + 1,
            "delta": delta,
            "base rate log loss": round(
                -share * math.log(share) - (1 - share) * math.log(1 - share), 4
            ),
            "epsilon": lines,
        }
    return results


def with_recorded(results: dict[str, Any]) -> dict[str, Any]:
    """The results with the columns of the evidence file that they do not have."""
    if not EVIDENCE.exists():
        return results
    recorded = json.loads(EVIDENCE.read_text())["figures"]["tables"]
    for name, table in results.items():
        for epsilon, line in table["epsilon"].items():
            kept = recorded.get(name, {}).get("epsilon", {}).get(epsilon, {})
            table["epsilon"][epsilon] = {**kept, **line}
    return results


def means_of(results: dict[str, Any], columns: list[str], measure_name: str) -> dict[str, Any]:
    """The mean over the real tables of each column at each ε, where all of them have a result."""
    real = [table for table in results.values() if table["kind"] == "real"]
    means: dict[str, Any] = {}
    for epsilon in (f"{epsilon:g}" for epsilon in EPSILONS):
        means[epsilon] = {}
        for key in columns:
            cells = [table["epsilon"][epsilon].get(key) for table in real]
            if real and all(cells):
                mean = np.mean([cell[measure_name][0] for cell in cells])
                means[epsilon][key] = round(float(mean), 4)
    return means


def print_table(results: dict[str, Any], columns: list[str]) -> None:
    """Markdown: a table for each measure, and the means over the real tables."""
    for measure_name, title in (("auc", "AUC"), ("log_loss", "log loss")):
        print(f"\n{title}, mean ± standard error over splits\n")
        print(f"| table (n, d) | ε | r | {' | '.join(columns)} |")
        print("|---|---|---|" + "---|" * len(columns))
        for name, table in results.items():
            shape = f"{name} ({table['training rows']:,}, {table['d']})"
            for epsilon, line in table["epsilon"].items():
                cells = [
                    f"{line[key][measure_name][0]:.3f} ± {line[key][measure_name][1]:.3f}"
                    if key in line
                    else ""
                    for key in columns
                ]
                print(f"| {shape} | {epsilon} | {line['r']:g} | {' | '.join(cells)} |")
                shape = ""
        print(f"\n{title}, mean over the real tables\n")
        print(f"| ε | {' | '.join(columns)} |")
        print("|---|" + "---|" * len(columns))
        for epsilon, line in means_of(results, columns, measure_name).items():
            cells = [f"{line[key]:.3f}" if key in line else "" for key in columns]
            print(f"| {epsilon} | {' | '.join(cells)} |")


def tune(torch: Path) -> None:
    """Choose one Opacus setting for each ε on tables that are not measured (rule: see OPACUS)."""
    column = Column(worker="opacus", splits=2, settings=OPACUS_GRID)
    fill(column, list(TUNING_TABLES), torch)
    cache = Cache("opacus")
    for epsilon in EPSILONS:
        means = []
        for setting in OPACUS_GRID:
            cells = [
                cache.get(name, epsilon, split, setting)
                for name in TUNING_TABLES
                for split in (0, 1)
            ]
            known = [cell for cell in cells if cell is not None]
            mean = [np.mean([cell[key] for cell in known]) for key in ("auc", "log_loss")]
            means.append((float(mean[0]), float(mean[1]), setting))
        least = max(means, key=lambda entry: entry[0])[0] - TIE
        auc, loss, setting = min(
            (entry for entry in means if entry[0] >= least), key=lambda entry: entry[1]
        )
        print(f"ε = {epsilon:g}: AUC {auc:.4f}, log loss {loss:.4f}  {setting}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="columns to fill in, separated by commas (default: all)")
    parser.add_argument("--tables", help="tables, separated by commas (default: all)")
    parser.add_argument("--splits", type=int, help="at most so many splits")
    parser.add_argument("--show", action="store_true", help="fit nothing, print what there is")
    parser.add_argument("--tune", choices=["opacus"], help="choose settings on other tables")
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument(
        "--torch",
        type=Path,
        default=ROOT / ".venv-torch" / "bin" / "python",
        help="an interpreter that has torch and Opacus",
    )
    options = parser.parse_args()
    if options.tune:
        tune(options.torch)
        return
    names = options.tables.split(",") if options.tables else list(TABLES)
    columns = options.only.split(",") if options.only else list(COLUMNS)
    for key in [] if options.show else columns:
        fill(COLUMNS[key], names, options.torch, options.splits)
    print_table(results_of(names, columns), columns)
    if options.record:
        results = with_recorded(results_of(names, columns))
        figures = {
            "tables": results,
            "mean AUC over the real tables": means_of(results, list(COLUMNS), "auc"),
            "mean log loss over the real tables": means_of(results, list(COLUMNS), "log_loss"),
            "guarantees": RELATIONS,
            "settings": {"opacus": {f"{k:g}": v for k, v in OPACUS.items()}},
        }
        measure.record("useful-peers", __file__, SEED, figures)


if __name__ == "__main__":
    main()
