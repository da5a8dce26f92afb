"""How time and memory of a profile grow with the rows of a Parquet file, here and on Dask workers.

Run by ``make bench-scale``. Every run is the command that users type, in a process of its own:
release a model, profile every row, rank them, write parts and page. Times are ratios of runs that
follow one another; memory is the peak of the process as the kernel counts it (VmHWM: ``ru_maxrss``
would start at the size of this process).

The *floor* is measured in the same run with two threads: the file is decoded as often as the
command passed over its rows (those that a phase reports, one to open it, and three that explore
columns), and one n·d·d product is made for each Hessian and for each vector of leverages that the
mathematics needs: of the passes of both minimisers, and two for each of the releases behind
expected exposures and for the released model.

What one block and one reduce cost is measured beside, for the arithmetic of docs/scale.md.
"""

import argparse
import itertools
from concurrent.futures import ThreadPoolExecutor
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from expost.preparing import read_rows
from expost.data import Encoding, UnitBall, open_table
from expost.rows import RowStream, block_rows, TableRows
from expost.engine import engine_of
from expost.engine.threads import one_blas_thread
from expost.estimators import PrivateLogisticRegression
from expost.glm import _Evaluate

SEED = 20261116
COLUMNS = 50
ROWS = (10**5, 10**6, 10**7)
_CHUNK = 2**17
# A layout that many writers choose: readers decode whole row groups.
_GROUP = 2**15


def write_rows(path: Path, rows: int, columns: int = COLUMNS) -> None:
    """A Parquet file of normal features and two classes, a row group at a time."""
    rng = np.random.default_rng(SEED)
    weights = rng.standard_normal(columns)
    schema = pa.schema([*((f"x{i}", pa.float64()) for i in range(columns)), ("y", pa.string())])
    options = {"compression": "none", "use_dictionary": ["y"], "write_statistics": False}
    with pa.parquet.ParquetWriter(path, schema, **options) as file:
        for start in range(0, rows, _CHUNK):
            X = rng.standard_normal((min(_CHUNK, rows - start), columns))
            noisy = X @ weights + 3 * rng.standard_normal(len(X))
            y = np.where(noisy > 0, "yes", "no")
            file.write_table(pa.table([*X.T.copy(), y], schema=schema), row_group_size=_GROUP)


PROGRAM = """
import sys
try:
    from expost.cli.main import program; program()
finally:
    status = dict(line.split(":") for line in open("/proc/self/status"))
    print("peak", status["VmHWM"].split()[0], file=sys.stderr)
"""
# Passes that no phase reports: opening, and the exposures by column with the tree.
_OPENING, _EXPLORING = 1, 3
# Releases behind the expected exposures of so many rows.
_RELEASES = 8


@dataclass(frozen=True)
class Ran:
    """One run: seconds, GiB at its peak, and what its phases and passes took.

    ``fits`` are the passes of the phase that fits.
    """

    seconds: float
    peak: float
    phases: dict[str, float]
    passes: int
    fits: int


def floor(path: Path, passes: int, products: int, columns: int = COLUMNS) -> float:
    """Seconds of decoding the file and of n·d·d products, as often as given; two threads."""
    groups = pa.parquet.ParquetFile(path).metadata.num_row_groups

    def decode(group: int) -> int:
        file = pa.parquet.ParquetFile(path)
        return file.read_row_group(group, use_threads=False).num_rows

    X = np.random.default_rng(SEED).standard_normal((block_rows(columns + 1), columns + 1))

    def product(_: int) -> float:
        weighted = X * X[:, :1]
        return float((weighted.T @ X)[0, 0])

    with ThreadPoolExecutor(2) as threads, one_blas_thread():
        start = time.perf_counter()
        rows = sum(threads.map(decode, range(groups)))
        decoding = time.perf_counter() - start
        blocks = -(-rows // len(X))
        start = time.perf_counter()
        sum(threads.map(product, range(blocks)))
        multiplying = time.perf_counter() - start
    return passes * decoding + products * multiplying


def floor_of(path: Path, run: Ran) -> float:
    """The floor of ``expost profile``: see the head of this file."""
    passes = run.passes + _OPENING + _EXPLORING
    return floor(path, passes, run.fits + 2 * (_RELEASES + 1))


def profile(path: Path, engine: str) -> Ran:
    """``expost profile`` over the file; its results are removed."""
    out = path.with_name("profile")
    command = ["profile", str(path), "--target", "y", "--engine", engine, "--out", str(out)]
    start = time.perf_counter()
    with path.with_name("log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *command, "--log-json"],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        status = process.wait()
        seconds = time.perf_counter() - start
        log.seek(0)
        lines = log.read().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        peak = int(lines[-1].removeprefix("peak "))
    if status:
        raise SystemExit(f"expost profile ended with status {status}")
    shutil.rmtree(out)
    begun = [
        (event.get("phase", "end"), datetime.fromisoformat(event["time"]))
        for event in events
        if event["event"] in ("phase", "done")
    ]
    phases = {
        name: (after - before).total_seconds()
        for (name, before), (_, after) in itertools.pairwise(begun)
    }
    whole = [
        event for event in events if event["event"] == "rows" and event["done"] == event["total"]
    ]
    fits = sum(event["phase"] == "fitting the model" for event in whole)
    return Ran(seconds, peak / 2**20, phases, len(whole), fits)


def growth(folder: Path, sizes: tuple[int, ...]) -> dict[str, object]:
    """Times and peaks over the number of rows."""
    figures: dict[str, object] = {}
    seconds, peaks = [], []
    for rows in sizes:
        path = folder / f"{rows}.parquet"
        write_rows(path, rows)
        # The small ones are over before a machine has settled.
        runs = [profile(path, "local:2") for _ in range(3 if rows < 10**7 else 1)]
        seconds.append(float(np.median([run.seconds for run in runs])))
        peaks.append(max(run.peak for run in runs))
        print(f"{rows:>12,} rows: {seconds[-1]:8.1f} s, peak {peaks[-1]:.2f} GiB", flush=True)
        least = floor_of(path, runs[-1])
        ratio = seconds[-1] / least
        print(f"{f'{rows:,} rows over the floor':<{measure.WIDTH}} {ratio:>11.2f}", flush=True)
        figures[f"{rows} rows"] = {
            "seconds": round(seconds[-1], 2),
            "floor": round(least, 2),
            "over_the_floor": round(ratio, 2),
            "peak_gib": round(peaks[-1], 3),
            "passes": runs[-1].passes,
            "phases": {name: round(took, 2) for name, took in runs[-1].phases.items()},
        }
        if rows == 10**7:
            path.unlink()
    for k in range(1, len(sizes)):
        name = f"{sizes[k]} rows over {sizes[k - 1]}"
        figures[name] = round(seconds[k] / seconds[k - 1], 2)
        print(f"{name:<{measure.WIDTH}} {figures[name]:>11}")
    spread = (max(peaks) - min(peaks)) / 2 / np.mean([max(peaks), min(peaks)])
    figures["peaks differ from their middle by"] = round(float(spread), 3)
    print(f"{'peaks differ from their middle by':<{measure.WIDTH}} {spread:>11.1%}")
    return figures


def beside_dask(path: Path, times: int) -> dict[str, object]:
    """Two Dask workers over two threads, in turn."""
    ratios = []
    for _ in range(times):
        local = profile(path, "local:2").seconds
        ratios.append(profile(path, "dask:2").seconds / local)
    return measure.row(
        "two Dask workers / two threads, the cluster's start with it", np.array(ratios)
    )


def costs(path: Path) -> dict[str, object]:
    """Of one pass of the minimiser: a block on one core, a reduce of (d², d, 1) here, its bytes."""
    table = open_table(str(path))
    encoding = Encoding.read(table, target="y")
    ball = UnitBall(data_norm=encoding.data_norm, fit_intercept=True, intercept_scaling=0.1)
    stream = RowStream.of(table, encoding, ball)
    estimator = PrivateLogisticRegression(
        data_norm=encoding.data_norm, classes=encoding.target.classes
    )
    with engine_of("local:1") as engine:
        rows = TableRows(stream=stream, engine=engine)
        read, facts = read_rows(rows)
        problem = estimator.ready_table(read, rows, facts).objective
        task = _Evaluate(constants=problem.constants, theta=problem.start(), hessian=True)
        blocks = -(-stream.count // block_rows(stream.columns))
        start = time.perf_counter()
        sums = list(problem.map(task))
        block = (time.perf_counter() - start) / blocks
    size = len(pickle.dumps(sums[0]))
    start, times = time.perf_counter(), 200
    for _ in range(times):
        for part in sums[:4]:
            total = np.zeros((stream.columns, stream.columns))
            total += pickle.loads(pickle.dumps(part)).curved
    reduce = (time.perf_counter() - start) / (4 * times)
    figures = {
        "rows of a block": block_rows(stream.columns),
        "seconds of a block on one core": round(block, 4),
        "seconds of a reduce": round(reduce, 6),
        "bytes that travel for a block": size,
    }
    for name, value in figures.items():
        print(f"{name:<{measure.WIDTH}} {value:>11,}")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--most", type=float, default=ROWS[-1], help="leave larger sizes out")
    parser.add_argument("--folder", type=Path, help="where the tables are made (5 GB)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        sizes = tuple(rows for rows in ROWS if rows <= options.most)
        table: dict[str, object] = {"profile, local:2": growth(folder, sizes)}
        middle = folder / f"{min(10**6, sizes[-1])}.parquet"
        table["dask:2 / local:2"] = beside_dask(middle, options.times)
        table["one pass"] = costs(middle)
    if options.record:
        measure.record("bench-scale", __file__, SEED, table)


if __name__ == "__main__":
    main()
