"""CPU time of commands at an earlier commit and now, in one run.

Both sides are the command that users type, in fresh processes that alternate, from cached bytecode
and with one BLAS thread; user and system time. The earlier commit is checked out into a folder of
its own and needs the packages that it imports (36b2572: duckdb).

    python bench/before.py [--commit 36b2572] [--record] [--times 5]
"""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import measure
import numpy as np
import scale
import tables
import useful_speed

SEED = scale.SEED
ROOT = Path(__file__).parent.parent
COMMIT = "36b2572"
ROWS = 10**6


def seconds(arguments: list[str], source: Path) -> float:
    """CPU seconds of a program with the package of ``source``."""
    os.environ["PYTHONPATH"] = str(source)
    try:
        return useful_speed.cpu_seconds(arguments)
    finally:
        del os.environ["PYTHONPATH"]


def compared(name: str, arguments: list[str], old: Path, times: int) -> dict[str, object]:
    """Print and return the ratio of CPU times, now over before."""
    sides = (ROOT / "src", old / "src")
    for source in sides:
        seconds(arguments, source)
    pairs = np.array([[seconds(arguments, source) for source in sides] for _ in range(times)])
    now, before = np.median(pairs, axis=0)
    figures = measure.row(f"CPU time now over before, {name}", pairs[:, 0] / pairs[:, 1])
    return figures | {"now": round(float(now), 3), "before": round(float(before), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default=COMMIT)
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        old = folder / "old"
        subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "add", "-q", "--detach", str(old), options.commit],
            check=True,
        )
        try:
            adult, bank = (
                useful_speed.write_csv(table(), folder) for table in (tables.adult, tables.bank)
            )
            large = folder / "large.parquet"
            scale.write_rows(large, ROWS)

            def profile(path: Path, target: str) -> list[str]:
                out = ["--out", str(folder / "out"), "--force"]
                program = ["-c", useful_speed.PROGRAM, "profile", str(path), "--target", target]
                return [*program, *out]

            cases = {
                "expost --help": ["-c", useful_speed.PROGRAM, "--help"],
                "profile, adult": profile(adult, "label"),
                "profile, bank": profile(bank, "label"),
                f"profile, {ROWS:,} x {scale.COLUMNS}": profile(large, "y"),
            }
            table: dict[str, object] = {"commit before": options.commit}
            for name, arguments in cases.items():
                times = options.times if str(large) not in arguments else 3
                table[name] = compared(name, arguments, old, times)
        finally:
            remove = ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(old)]
            subprocess.run(remove, check=True)
    if options.record:
        measure.record("bench-before", __file__, SEED, table)


if __name__ == "__main__":
    main()
