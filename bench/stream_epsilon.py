"""The sweep over ε of rows that are read from a Parquet file in blocks, and the memory it takes.

Every size is run in a process of its own, by what ``expost epsilon --engine local:2`` runs: 25
values of ε, every row's distance and critical ε written as parts, the utility of 200 models at
each ε on held-out rows, the page. Memory is the peak of the process as the kernel counts it
(VmHWM).

The *floor* of the job is measured after it: the file is decoded once to open it and once for each
pass that the job reports, and every such pass makes one n·d·d product; two threads.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
import numpy as np
import pyarrow.parquet
import scale

from expost.jobs import epsilon
from expost.jobs.requests import EpsilonRequest

COLUMNS = 20
ROWS = (10**6, 10**7)
ENGINE = "local:2"


class Passes:
    """Counts the passes over all rows."""

    def __init__(self) -> None:
        self.count = 0

    def phase(self, name: str) -> None:
        """Phases are not counted."""

    def rows(self, total: int) -> None:
        """A pass begins."""
        self.count += 1

    def advance(self, rows: int) -> None:
        """It goes on."""


def peak() -> float:
    """GiB, so far."""
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return round(int(status["VmHWM"].split()[0]) / 2**20, 3)


def worked() -> float:
    """Seconds of processors, so far: what a machine's other work does not change."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round(used.ru_utime + used.ru_stime, 1)


def sweep(path: Path) -> dict[str, object]:
    """Run the job, in a process that does nothing else."""
    passes, start = Passes(), time.perf_counter()
    out = path.with_name("choice")
    job = EpsilonRequest(
        source=str(path),
        target="y",
        out=out,
        name=path.name,
        seed=scale.SEED,
        engine=ENGINE,
    )
    outcome = epsilon.run(job, passes)
    choice = outcome.choice
    assert choice.utility is not None
    curve = choice.utility.leading
    index = np.flatnonzero(choice.utility.epsilons == choice.recommended)
    rows = sum(
        pyarrow.parquet.read_metadata(part).num_rows
        for part in outcome.files["table"].glob("part-*.parquet")
    )
    figures: dict[str, object] = {
        "rows written": rows,
        "seconds": round(time.perf_counter() - start, 1),
        "processor seconds": worked(),
        "passes over the rows": passes.count,
        "gibibytes": peak(),
        "values of epsilon": len(choice.epsilons),
        "recommended": choice.recommended,
        "low": choice.low,
        "high": choice.high,
        "verdict": choice.verdict,
        "ceiling": choice.ceiling,
        f"{choice.utility.measure} there": [round(float(x), 4) for x in curve.mean[index]],
        f"{choice.utility.measure} at best": round(curve.best, 4),
        "page bytes": outcome.files["report"].stat().st_size,
    }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", type=Path, help="sweep this file alone, and print the figures")
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    options = parser.parse_args()
    if options.path is not None:
        print(json.dumps(sweep(options.path)))
        return
    table: dict[str, object] = {"columns": COLUMNS, "engine": ENGINE}
    for rows in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            scale.write_rows(path, rows, COLUMNS)
            command = [sys.executable, __file__, "--path", str(path)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            size, ran = path.stat().st_size, json.loads(done.stdout)
            passes = ran["passes over the rows"]
            least = scale.floor(path, passes + 1, passes, COLUMNS)
        ran |= {"floor": round(least, 1), "over the floor": round(ran["seconds"] / least, 2)}
        figures = {"file in gibibytes": round(size / 2**30, 3), **ran}
        print(f"{rows:,} rows × {COLUMNS}")
        for name, value in figures.items():
            print(f"  {name:<{measure.WIDTH}} {value}", flush=True)
        table[f"{rows} rows"] = figures
    if options.record:
        measure.record("stream-epsilon", __file__, scale.SEED, table)


if __name__ == "__main__":
    main()
