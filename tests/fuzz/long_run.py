"""Many cases of every target, each target in worker processes, and what became of them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .harness import Tally

_TESTS = Path(__file__).parent.parent
# Cases a process: what a library leaks over thousands of broken files stays small.
_CHUNK = 10_000


def run(name: str, count: int, folder: Path) -> Tally:
    """Cases 0 to ``count`` of a target, those that are in ``folder`` already left out.

    A worker that dies is a fault, and the next one goes on.
    """
    tally = Tally()
    progress = folder / f"{name}.jsonl"
    done = len(list(_told(progress)))
    while done < count:
        length = min(_CHUNK, count - done)
        died = _worker(name, done, length, progress)
        told = list(_told(progress))
        done = len(told)
        if died is not None:
            tally.faults.append(f"{name} {done}: {died}")
            with progress.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"number": done, "died": died}) + "\n")
            done += 1
    for each in _told(progress):
        _add(tally, name, each)
    return tally


def _add(tally: Tally, name: str, told: dict[str, Any]) -> None:
    if "fault" in told:
        tally.faults.append(f"{name} {told['number']}: {told['fault']}")
    elif "accepted" in told:
        tally.add(told["accepted"], told["seconds"])


def _told(progress: Path) -> Iterator[dict[str, Any]]:
    if progress.exists():
        yield from map(json.loads, progress.read_text("utf-8").splitlines())


def _worker(name: str, first: int, count: int, progress: Path) -> str | None:
    """Why the worker died, or None."""
    command = [sys.executable, "-m", "fuzz.worker", name, str(first), str(count), str(progress)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": _path()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    return f"the process ended with {done.returncode}: {done.stderr[-1500:]}"


def _path() -> str:
    known = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(_TESTS), *([known] if known else [])])
