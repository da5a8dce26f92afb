"""What the benchmarks share: paired times as ratios, peak memory of a process of its own.

Import it before NumPy: it pins BLAS to one thread. Ratios are of two sides that alternate in one
run; their median and range are printed (DESIGN.md, Evidence).
"""

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import gc
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


def paired(ours: Callable[[], object], other: Callable[[], object], times: int) -> np.ndarray:
    """(times, 2) seconds of alternating runs, after one of each to warm up."""
    ours(), other()
    seconds = np.empty((times, 2))
    for k in range(times):
        for side, work in enumerate((ours, other)):
            gc.collect()
            start = time.perf_counter()
            work()
            seconds[k, side] = time.perf_counter() - start
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
    gibibytes = float(run.stdout)
    print(f"{f'peak memory in GiB, {name}':<{WIDTH}} {gibibytes:>11.2f}", flush=True)
    return {"gibibytes": round(gibibytes, 3)}


def print_peak() -> None:
    """The answer to :func:`peak_memory`."""
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def options(description: str | None, peak: int) -> argparse.Namespace:
    """The command line of a benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--peak", nargs=peak, help="print the peak memory of one case")
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument("--times", type=int, default=9)
    return parser.parse_args()


def record(name: str, script: str, seed: int, table: dict[str, object]) -> None:
    """Keep the table as docs/evidence/<name>.json."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    import evidence

    command = f"python bench/{Path(script).name} --record"
    evidence.record(name, command=command, seed=seed, figures=table)
