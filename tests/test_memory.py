"""--memory is a limit: the peak of a run stays below it, or the run is refused with the least."""

import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expost.errors import InvalidInput
from expost.jobs.streaming import Streaming, check_memory, needed_memory

# ru_maxrss would start at the size of the test process.
PROGRAM = """
import sys
try:
    from expost.cli.main import program; program()
finally:
    status = dict(line.split(":") for line in open("/proc/self/status"))
    print(status["VmHWM"].split()[0], file=sys.stderr)
"""
MIB = 2**20


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 20))
    y = np.where(X[:, 0] + rng.normal(size=len(X)) > 0, "yes", "no")
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table([*X.T.copy(), y], names=[*(f"x{i}" for i in range(20)), "y"]), path)
    return path


def profiled(table, mebibytes):
    """Exit code, messages, and peak in MiB."""
    out = ("--target", "y", "--out", str(table.with_name("out")))
    command = [sys.executable, "-c", PROGRAM, "profile", str(table), *out]
    done = subprocess.run(
        [*command, "--memory", f"{mebibytes}MiB"], capture_output=True, text=True, check=False
    )
    messages, _, peak = done.stderr.strip().rpartition("\n")
    return done.returncode, messages, int(peak) / 2**10


def test_the_peak_of_a_run_is_kept_or_the_run_is_refused(table):
    code, message, _ = profiled(table, 200)
    assert code == 2
    assert not table.with_name("out").exists()
    least = int(re.search(r"--memory (\d+)MiB\b(?!:)", message.partition("possible")[2])[1])
    code, _, peak = profiled(table, least)
    assert (code, peak <= least) == (0, True)
    # Power: the run does need more than was refused.
    assert peak > 200


def test_what_is_needed_grows_with_rows_columns_and_threads():
    sizes = [(10**3, 5), (10**5, 5), (10**5, 50), (10**7, 50)]
    held = [needed_memory(*size) for size in sizes]
    read = [needed_memory(*size, workers=1) for size in sizes]
    assert held == sorted(held)
    assert read == sorted(read)
    # In blocks the number of rows does not matter any more.
    assert needed_memory(10**9, 50, workers=1) - needed_memory(10**7, 50, workers=1) < MIB
    assert needed_memory(10**7, 50, workers=2) > needed_memory(10**7, 50, workers=1)


@pytest.mark.parametrize("engine", [None, "local", "local:2", "dask"])
def test_a_limit_that_is_too_small_is_refused(engine):
    with pytest.raises(InvalidInput, match="least that is possible"):
        check_memory(Streaming(engine=engine, memory=MIB), 10**6, 20, blocks=True)
    with pytest.raises(InvalidInput, match="--memory 10: "):
        check_memory(Streaming(engine=engine, memory=10), 10**6, 20, blocks=True)
    check_memory(Streaming(engine=engine, memory=2**40), 10**6, 20, blocks=True)
    check_memory(Streaming(engine=engine), 10**9, 20, blocks=True)
