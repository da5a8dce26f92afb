"""CPU time of expost's commands, as multiples of one scikit-learn fit in a fresh process.

The reference reads the CSV with pandas and fits one logistic regression behind StandardScaler and
OneHotEncoder. ``expost --help`` is compared with ``import typer``, and ``import expost`` with bare
Python. Each figure is user + system time of a child process (``os.wait4``): other work on
the machine disturbs it less than the clock. Reference and command alternate, and medians are kept.
Both sides run from cached bytecode and with one BLAS thread.

    python bench/useful_speed.py [--record] [--times 5]

Targets: ``expost epsilon`` on bank at most 6, ``expost profile`` at most 1.7, the help at most 3,
the import at most 2.
"""

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import measure
import numpy as np
import tables

SEED = 20261117
TARGETS = {
    "expost --help over import typer": 3.0,
    "import expost over bare Python": 2.0,
    "profile, bank": 1.7,
    "profile, adult": 1.7,
    "epsilon, bank": 6.0,
}
PROGRAM = "from expost.cli.main import program; program()"
REFERENCE = """
import sys
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

table = pd.read_csv(sys.argv[1])
y = table.pop("label")
encoder = make_column_transformer(
    (StandardScaler(), make_column_selector(dtype_include="number")),
    (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
)
make_pipeline(encoder, LogisticRegression()).fit(table, y)
"""


def write_csv(table: tables.RawTable, folder: Path) -> Path:
    """Write the table with its label as the last column."""
    path = folder / f"{table.name}.csv"
    columns = [*(column.tolist() for column in table.columns.values()), table.y.tolist()]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*table.columns, "label"])
        writer.writerows(zip(*columns, strict=True))
    return path


def environment() -> dict[str, str]:
    """The environment of a child process, which may write bytecode and read it the next time."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def cpu_seconds(arguments: list[str]) -> float:
    """User and system seconds of ``python arguments`` and of what it waited for."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stderr is not None
    messages = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    # 3: no ε is recommended.
    if code not in (0, 3):
        raise RuntimeError(f"{arguments}: exit code {code}\n{messages}")
    return used.ru_utime + used.ru_stime


def ratio(
    name: str, reference: Callable[[], float], command: Callable[[], float], times: int
) -> dict[str, object]:
    """Print and return the ratio of paired runs, after one of each that fills the caches."""
    reference(), command()
    seconds = np.array([[command(), reference()] for _ in range(times)])
    figures = measure.row(f"CPU time, {name}", seconds[:, 0] / seconds[:, 1])
    middle = np.median(seconds, axis=0)
    figures |= {"seconds": round(float(middle[0]), 3), "reference": round(float(middle[1]), 3)}
    if name in TARGETS:
        figures["target"] = TARGETS[name]
    return figures


def main() -> None:
    options = measure.options(__doc__, peak=1)
    print(f"{'ratio':<{measure.WIDTH}} {'median':>11}  (range)")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bank, adult = (write_csv(table(), folder) for table in (tables.bank, tables.adult))

        def fit(path: Path) -> Callable[[], float]:
            return lambda: cpu_seconds(["-c", REFERENCE, str(path)])

        def expost(*arguments: str) -> Callable[[], float]:
            return lambda: cpu_seconds(["-c", PROGRAM, *arguments])

        def made(command: str, path: Path) -> Callable[[], float]:
            out = ("--target", "label", "--out", str(folder / command), "--force")
            return expost(command, str(path), *out)

        def python(code: str) -> Callable[[], float]:
            return lambda: cpu_seconds(["-c", code])

        table: dict[str, object] = {
            name: ratio(name, reference, command, options.times)
            for name, reference, command in (
                (
                    "expost --help over import typer",
                    python("import typer"),
                    expost("--help"),
                ),
                ("import expost over bare Python", python("pass"), python("import expost")),
                ("expost risk over one fit", fit(adult), expost("risk", "--epsilon", "1")),
                ("profile, bank", fit(bank), made("profile", bank)),
                ("profile, adult", fit(adult), made("profile", adult)),
                ("epsilon, bank", fit(bank), made("epsilon", bank)),
            )
        }
    if options.record:
        measure.record("useful-speed", __file__, SEED, table)


if __name__ == "__main__":
    main()
