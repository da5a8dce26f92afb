"""How the CPU time of opening a table grows with its cells, and what it costs over decoding.

Wide tables of normal numbers, as CSV and as Parquet: columns double twice, and the last over the
first is the growth for four times the cells. A long Parquet file is compared with decoding it.

    python bench/opening.py [--record] [--times 9]
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import measure
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import scale

from expost.data import open_table
from expost.engine import engine_of

SEED = scale.SEED
SHAPES = ((6, (1_250, 2_500, 5_000)), (10_000, (500, 1_000, 2_000)))
LONG = 10**6


def write(folder: Path, rows: int, columns: int) -> dict[str, Path]:
    """The same numbers in two formats."""
    values = np.random.default_rng(SEED).standard_normal((columns, rows)).round(6)
    table = pa.table(list(values), names=[f"x{i}" for i in range(columns)])
    paths = {kind: folder / f"{rows}x{columns}.{kind}" for kind in ("csv", "parquet")}
    pa.csv.write_csv(table, paths["csv"])
    pa.parquet.write_table(table, paths["parquet"])
    return paths


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def opened(path: Path) -> float:
    """CPU seconds of opening a file with one thread."""
    with engine_of("local:1") as engine:
        return cpu(lambda: open_table(str(path), engine=engine))


def decoded(path: Path) -> float:
    """CPU seconds of decoding a Parquet file, a row group at a time."""

    def read() -> None:
        file = pa.parquet.ParquetFile(path)
        for group in range(file.metadata.num_row_groups):
            file.read_row_group(group, use_threads=False)

    return cpu(read)


def main() -> None:
    options = measure.options(__doc__, peak=1)
    table: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for rows, widths in SHAPES:
            paths = [write(folder, rows, columns) for columns in widths]
            for kind in ("csv", "parquet"):
                files = [path[kind] for path in paths]
                opened(files[0])
                times = min(options.times, 3) if rows > 6 else options.times
                seconds = np.array([[opened(file) for file in files] for _ in range(times)])
                name = f"{kind}, {rows:,} x {widths[0]:,} to {widths[-1]:,}: 4 times the cells"
                figures = measure.row(name, seconds[:, -1] / seconds[:, 0])
                figures["seconds"] = [round(float(x), 3) for x in np.median(seconds, axis=0)]
                table[name] = figures
        path = folder / "long.parquet"
        scale.write_rows(path, LONG)
        opened(path), decoded(path)
        pairs = np.array([[opened(path), decoded(path)] for _ in range(options.times)])
        name = f"opening over decoding, {LONG:,} x {scale.COLUMNS}"
        table[name] = measure.row(name, pairs[:, 0] / pairs[:, 1])
    if options.record:
        measure.record("bench-opening", __file__, SEED, table)


if __name__ == "__main__":
    main()
