"""What the benchmarks share: paired times as ratios, peak memory of a process of its own.

Import it before NumPy: it pins BLAS to one thread. Ratios are of two sides that alternate in one
run; their median and range are printed (DESIGN.md, Evidence).
"""

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import ctypes
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

WIDTH = 76
# Tables and trainings of the papers are beside this folder.
sys.path.insert(0, str(Path(__file__).parent.parent))


def paired(
    ours: Callable[[], object],
    other: Callable[[], object],
    times: int,
    clock: Callable[[], float] = time.perf_counter,
) -> np.ndarray:
    """(times, 2) seconds of alternating runs, after one of each to warm up.

    ``time.process_time`` as the ``clock`` does not count what other processes take.
    """
    ours(), other()
    seconds = np.empty((times, 2))
    for k in range(times):
        for side, work in enumerate((ours, other)):
            gc.collect()
            start = clock()
            work()
            seconds[k, side] = clock() - start
    return seconds


def row(name: str, ratios: np.ndarray) -> dict[str, object]:
    """Print a line of the table, and return it."""
    low, middle, high = np.min(ratios), np.median(ratios), np.max(ratios)
    print(f"{name:<{WIDTH}} {middle:>11,.2f}  ({low:,.2f} … {high:,.2f})", flush=True)
    return {
        "median": round(float(middle), 3),
        "range": [round(float(low), 3), round(float(high), 3)],
    }


def peak_memory(name: str, script: str, *arguments: str) -> dict[str, object]:
    """Peak resident memory of a process that runs ``script --peak arguments``."""
    command = [sys.executable, script, "--peak", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return _peak(name, float(run.stdout), 2)


def forked_peak(name: str, work: Callable[[], object]) -> dict[str, object]:
    """Peak resident memory of a copy of this process that calls ``work``.

    The C library returns blocks of more than 64 KiB to the system when they are released, so that
    the peak does not count free memory that it has kept.
    """
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).mallopt(-3, 2**16)  # M_MMAP_THRESHOLD
        work()
        os.write(sender, str(_own_peak()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return _peak(name, float(os.read(receiver, 64)), 4)


def _peak(name: str, gibibytes: float, digits: int) -> dict[str, object]:
    print(f"{f'peak memory in GiB, {name}':<{WIDTH}} {gibibytes:>11.{digits}f}", flush=True)
    return {"gibibytes": round(gibibytes, max(digits, 3))}


def _own_peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def print_peak() -> None:
    """The answer to :func:`peak_memory`."""
    print(_own_peak())


def options(description: str | None, peak: int = 0) -> argparse.Namespace:
    """The command line of a benchmark."""
    parser = argparse.ArgumentParser(description=description)
    if peak:
        parser.add_argument("--peak", nargs=peak, help="print the peak memory of one case")
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument(
        "--only", default="", help="rows whose name contains this; others stay as recorded"
    )
    return parser.parse_args()


def record(name: str, script: str, seed: int, table: dict[str, object], only: str = "") -> None:
    """Keep the table as docs/evidence/<name>.json; with ``only`` add to what is there."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    import evidence

    if only:
        table = json.loads((evidence.FOLDER / f"{name}.json").read_text())["figures"] | table
    command = f"python bench/{Path(script).name} --record"
    evidence.record(name, command=command, seed=seed, figures=table)
