"""Whether ``--memory`` is kept: the peak of runs with the least memory that is not refused.

Each run is the command that users type, in a process of its own; the peak is the kernel's
high-water mark of that process alone (VmHWM: ``ru_maxrss`` would start at the size of this one).

    python bench/memory.py [--record]
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import measure
import scale

SEED = scale.SEED
SIZES = ((3_000, 5), (30_000, 50), (300_000, 5), (300_000, 50), (120_000, 200))
LEAST = re.compile(r"least that is possible is --memory (\d+)MiB")
PROGRAM = """
import sys
try:
    from expost.cli.main import program; program()
finally:
    status = dict(line.split(":") for line in open("/proc/self/status"))
    print(status["VmHWM"].split()[0], file=sys.stderr)
"""


def run(command: str, path: Path, mebibytes: int) -> tuple[int, str, float]:
    """Exit code, messages and peak in MiB of a command with a limit."""
    out = ("--target", "y", "--out", str(path.with_name("out")), "--force")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, command, str(path), *out, "--memory", f"{mebibytes}MiB"],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    messages, _, peak = done.stderr.strip().rpartition("\n")
    return done.returncode, messages, int(peak) / 2**10


def main() -> None:
    options = measure.options(__doc__, peak=1)
    table: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        for rows, columns in SIZES:
            path = Path(folder) / f"{rows}-{columns}.parquet"
            scale.write_rows(path, rows, columns)
            for command in ("profile", "epsilon"):
                limit = 200
                code, messages, peak = run(command, path, limit)
                if code == 2:
                    limit = int(LEAST.search(messages)[1])
                    code, messages, peak = run(command, path, limit)
                if code not in (0, 3):
                    raise SystemExit(f"{command} ended with {code}\n{messages}")
                name = f"{command}, {rows:,} x {columns}"
                print(f"{name:<{measure.WIDTH}} {peak:>6.0f} of {limit} MiB", flush=True)
                table[name] = {"peak_mib": round(peak), "limit_mib": limit, "kept": peak <= limit}
    if options.record:
        measure.record("memory", __file__, SEED, table)


if __name__ == "__main__":
    main()
