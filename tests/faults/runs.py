"""Runs that are killed or interrupted, and what must hold of their folder at any time."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expost import PrivateLogisticRegression
from expost.data import Encoding, open_table
from expost.errors import InvalidInput
from expost.files.directory import RUN
from expost.files.parts import PartStore
from expost.jobs.output import MANIFEST, check_place, is_unfinished
from expost.ledger import NAME, Ledger
from expost.mechanisms.publishing import PublishingBudget
from expost.publishing.report import PublishedReport
from expost.release import Release
from settings import OUTPUT_OPTIONS

ROWS = 1_500
# Nothing is waited for longer than this.
_PATIENCE = 120.0


@dataclass(frozen=True)
class Ended:
    """How a process ended, after so many ``seconds`` of a processor's time."""

    code: int
    err: str
    seconds: float

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class ForkServer:
    """Starts processes of the program, one at a time."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.run("--version")

    def close(self) -> None:
        self._parent.stdin.close()
        self._parent.stdout.close()
        self._parent.wait(timeout=_PATIENCE)
        self._folder.cleanup()

    def run(
        self,
        *arguments: object,
        cwd: Path | None = None,
        kill_after: float | Callable[[], bool] | None = None,
        kill_signal: int = signal.SIGKILL,
        limit: int | None = None,
        killed_at_sync: int | None = None,
    ) -> Ended:
        """Let it run; after ``kill_after`` seconds its whole group is sent the signal ``kill_signal``.

        Seconds of a processor's time, so that it makes no difference what else the machine does;
        or as soon as ``kill_after()`` is true. Or it kills itself, when it has flushed something to
        the disk for the ``killed_at_sync``-th time.
        """
        out, err = (Path(self._folder.name) / name for name in ("out", "err"))
        request = {
            "argv": [str(argument) for argument in arguments],
            "out": str(out),
            "err": str(err),
            "limit": limit,
            "killed_at_sync": killed_at_sync,
            "cwd": str(cwd or self._folder.name),
        }
        # Of a process that is killed before it could open it, nothing is read.
        err.write_text("")
        self._parent.stdin.write(json.dumps(request) + "\n")
        self._parent.stdin.flush()
        pid = int(self._parent.stdout.readline())
        if callable(kill_after):
            _wait_for(pid, kill_after)
        elif kill_after is not None:
            _wait(pid, kill_after)
        if kill_after is not None:
            _send(pid, kill_signal)
        code, seconds = self._parent.stdout.readline().split()
        return Ended(code=int(code), err=err.read_text(), seconds=float(seconds))


def _wait(pid: int, seconds: float) -> None:
    """Until the process has used its processor for so long, or has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            used = process.cpu_times()
            left = seconds - used.user - used.system
            # The system counts in hundredths.
            if left <= 0.01:
                time.sleep(max(left, 0.0))
                return
            time.sleep(min(left / 4, 0.02))


def _wait_for(pid: int, holds: Callable[[], bool]) -> None:
    """Until ``holds()``, or the process has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE and not holds():
            time.sleep(0.002)


def _send(pid: int, kill_signal: int) -> None:
    try:
        os.killpg(pid, kill_signal)
    except (ProcessLookupError, PermissionError):
        # It had ended before, or was not yet a group: then the process itself.
        with suppress(ProcessLookupError):
            os.kill(pid, kill_signal)


def rows_file(folder: Path) -> Path:
    """A small table, in a file of several row groups."""
    rng = np.random.default_rng(9)
    x = rng.normal(size=(ROWS, 3))
    score = x[:, 0] - x[:, 1] + rng.normal(size=ROWS)
    table = pa.table(
        {
            "a": x[:, 0],
            "b": x[:, 1],
            "level": pa.array(rng.choice(["u", "v", "w"], ROWS)),
            "y": pa.array(np.where(score > 0, "yes", "no")),
            "key": pa.array([f"k{i}" for i in range(ROWS)]),
        }
    )
    path = folder / "rows.parquet"
    pq.write_table(table, path, row_group_size=400)
    return path


def contents(out: Path) -> dict[str, bytes]:
    """All files of the results but the ledger, which has a salt and a clock of its own.

    What a process left that was killed while it put away its tools is no result.
    """
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != NAME and RUN not in path.parts
    }


def leftovers(out: Path) -> list[str]:
    """Files under temporary names, outside of the run's own folder."""
    hidden = [path for path in out.rglob(".*") if RUN not in path.parts and path.name != MANIFEST]
    return [str(path) for path in hidden]


def check_folder(out: Path) -> dict[str, object]:
    """Look into a folder, at any moment: what has its final name is whole, and says what it is."""
    counts = {"json": 0, "parquet": 0, "tables": 0, "begun": is_unfinished(out)}
    for path in sorted(out.rglob("*")) if out.exists() else ():
        if any(part.startswith(".") and part != RUN for part in path.relative_to(out).parts):
            continue
        if path.is_dir():
            if path.suffix == ".parquet":
                store = PartStore(folder=path)
                assert sum(table.num_rows for table in store.tables()) == ROWS, path
                assert {entry.name for entry in path.iterdir()} == {
                    "_manifest.json", *(part.name for part in store.parts())
                }  # fmt: skip
                counts["tables"] += 1
        elif path.suffix == ".json":
            json.loads(path.read_text())
            counts["json"] += 1
        elif path.suffix == ".parquet":
            assert pq.read_table(path).num_rows > 0
            counts["parquet"] += 1
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>")
        elif path.suffix == ".png":
            assert path.read_bytes()[-8:-4] == b"IEND"
        elif path.suffix == ".md":
            assert path.read_bytes().endswith(b"\n")
    for name, kind in (("model.json", Release), ("report.json", PublishedReport)):
        if (out / name).exists():
            kind.load(out / name)
    if (out / NAME).exists():
        Ledger.load(out / NAME)
    if is_unfinished(out):
        # Nobody takes it for finished.
        with pytest.raises(InvalidInput, match="holds an unfinished run; pass --resume"):
            check_place(out, resume=False, force=False)
        for folder in (out / RUN).iterdir():
            if folder.is_dir() and not (folder / "_manifest.json").exists():
                with pytest.raises(InvalidInput, match="is not finished"):
                    PartStore(folder=folder).parts()
    return counts


# -- commands --------------------------------------------------------------------------------------


# Constants that are known without the data, so that a model may be published.
GIVEN = {
    "columns": {
        "a": {"mean": 0, "scale": 1},
        "b": {"mean": 0, "scale": 1},
        "level": {"levels": ["u", "v", "w"]},
    },
    "target": {"classes": ["no", "yes"]},
    "data_norm": 5,
}
BUDGET = PublishingBudget(epsilon_gradient=0.7, epsilon_hessian=0.3, delta=1e-6)
SPENDS = ("--kind", "data-dependent", "--epsilon-gradient", 0.7, "--epsilon-hessian", 0.3)
# The folder of the results; in the folder where a run is begun, for pages name it.
OUT = Path("o")


def publishable(rows: Path) -> Path:
    """A model by objective perturbation, with noise of the operating system: it may be published."""
    table = open_table(str(rows), columns=["a", "b", "level", "y"])
    encoding = Encoding.read(table, target="y", given=GIVEN)
    encoded = encoding.encode_table(encoding.open(str(rows)))
    made = PrivateLogisticRegression(
        data_norm=5.0,
        classes=("no", "yes"),
        mechanism="objective",
        noise="gaussian",
        delta=1e-6,
        regularization="for-publishing",
        publishing=BUDGET,
    ).fit(encoded.X, np.where(encoded.y > 0, "yes", "no"))
    names = {"encoding": encoding.to_json(), "feature_names": encoding.feature_names}
    return replace(made.release_, **names).save(rows.parent / "model.json")


@dataclass(frozen=True)
class Undisturbed:
    """A run that nothing happened to: its command, its results, and how long it took."""

    command: tuple[object, ...]
    results: dict[str, bytes]
    seconds: float


class Commands:
    """The commands that are interrupted; each is run once, undisturbed."""

    def __init__(self, server, rows: Path, model: Path, folder: Path) -> None:
        rows_of = (rows, "--target", "y", "--id", "key")
        table = (*rows_of, *OUTPUT_OPTIONS)
        common = (*table, "--engine", "local:2")
        known = (*rows_of, "--model", model)
        tree = "sklearn.tree.DecisionTreeClassifier:max_depth=3"
        sweep = ("--epsilons", "0.5,2", "--folds", 0, "--seed", 1)
        # In the folder where a run is begun: the commands share a table, and no ledger.
        kept = ("--ledger", NAME)
        self._server, self._folder = server, folder
        self._commands = {
            "profile": ("profile", *common, *kept, "--seed", 1),
            "profile, no seed": ("profile", *common, *kept),
            "epsilon": ("epsilon", *common, *sweep),
            "publish": ("publish", *known, "--engine", "local:2"),
            "publish, data-dependent": ("publish", *known, "--engine", "local:2", *SPENDS, *kept),
            "profile, in memory": ("profile", *table, *kept, "--seed", 1),
            "profile, in memory, no seed": ("profile", *table, *kept),
            "epsilon, in memory": ("epsilon", *table, *sweep),
            "publish, in memory": ("publish", *known),
            "publish, in memory, data-dependent": ("publish", *known, *SPENDS, *kept),
            "audit": ("audit", *rows_of, "--estimator", tree, "--references", 4, "--seed", 1),
        }
        self._done: dict[str, Undisturbed] = {}

    def __getitem__(self, name: str) -> Undisturbed:
        if name not in self._done:
            folder, command = self._folder / name.replace(", ", "-"), self._commands[name]
            folder.mkdir()
            done = self._server.run(*command, "--out", OUT, cwd=folder)
            assert done.code == 0, done.err
            assert not check_folder(folder / OUT)["begun"]
            self._done[name] = Undisturbed(command, contents(folder / OUT), done.seconds)
        return self._done[name]


def other_bytes(wanted: Undisturbed, folder: Path) -> list[str]:
    """The files that differ from those of the undisturbed run."""
    current = contents(folder / OUT)
    every = sorted({*current, *wanted.results})
    return [name for name in every if current.get(name) != wanted.results.get(name)]
