"""Opening a table: summaries merged over any blocks are those of the whole, in one pass."""

import itertools
import math
import signal
import statistics
import subprocess
import sys
import time
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.data import Encoding, _feeds, _origins, _summaries, open_table
from expost.data._cells import RawColumn
from expost.data._columns import CellSummary, ColumnScan
from expost.engine import engine_of
from expost.errors import InvalidInput, PrivacyLeakWarning

MISSING = ("", "?")
cells = st.sampled_from(
    ["1", "2.5", " 3 ", "-7e3", "", "?", "a", "b ", "nan", "inf", "1e400", "1e200", "9" * 17, "é "]
)


def naive(column: list[str]) -> dict[str, object]:
    """What a summary says of a column of a CSV file, a cell at a time."""
    texts = [cell.strip(" ") for cell in column]
    texts = [None if text in MISSING else text for text in texts]
    present = [text for text in texts if text is not None]
    values = {text: number(text) for text in present}
    finite = [values[text] for text in present if values[text] is not None]
    words = [text for text in present if text in ("nan", "inf")]
    others = {text for text in present if values[text] is None}

    def first(holds) -> int | None:
        return next((n for n, t in enumerate(texts, 1) if t is not None and holds(t)), None)

    faults = {
        "other": first(lambda text: values[text] is None),
        "large": first(lambda text: values[text] is not None and abs(values[text]) > 1e150),
        "long": first(lambda text: text.isdigit() and int(text) > 2**53),
    }
    return {
        "present": len(present),
        "strings": len(present),
        "numbers": len(finite),
        "low": min(finite, default=math.inf),
        "high": max(finite, default=-math.inf),
        "words": len(words),
        "overflow": sum(text == "1e400" for text in present),
        "other": others.pop() if len(others) == 1 else None,
        "levels": frozenset(present),
        **{name: row for name, row in faults.items() if row is not None},
    }


def number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@settings(max_examples=300)
@given(column=st.lists(cells, min_size=1, max_size=30), ends=st.sets(st.integers(1, 29)))
def test_merged_summaries_are_those_of_the_whole(column, ends):
    raw = RawColumn(name="x", type="cell", described="text")
    scan = ColumnScan(index=0, raw=raw, kind=None)
    merged = CellSummary(has_numbers=True)
    edges = [0, *sorted(end for end in ends if end < len(column)), len(column)]
    for start, stop in itertools.pairwise(edges):
        merged = merged.merged(scan.summary(pa.array(column[start:stop]), MISSING, start)[0])
    expected = naive(column)
    found = {name: getattr(merged, name) for name in expected if hasattr(merged, name)}
    found |= {name: row for name, row in merged.first if name in ("other", "large", "long")}
    assert found == expected


def mixed_table(rows: int = 5000) -> dict[str, list[object]]:
    rng = np.random.default_rng(3)
    sparse = [None if rng.random() < 0.3 else float(x) for x in 1e6 + rng.normal(size=rows)]
    return {
        "far": (1e9 + rng.normal(size=rows)).tolist(),
        "tiny": (rng.normal(size=rows) * 1e-200).tolist(),
        "sparse": sparse,
        "count": rng.integers(0, 9, rows).tolist(),
        "level": rng.choice(["a", "b", "c"], rows).tolist(),
        "y": rng.choice(["no", "yes"], rows).tolist(),
    }


def constants(source: object, engine: object = None) -> dict[str, object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return Encoding.read(open_table(source, engine=engine), target="y").to_json()


def test_constants_depend_on_neither_blocks_nor_sources_nor_workers(tmp_path, monkeypatch):
    columns = mixed_table()
    expected = constants(columns)
    for name in ("far", "tiny", "sparse", "count"):
        present = [x for x in columns[name] if x is not None]
        entry = expected["columns"][name]
        assert entry["mean"] == pytest.approx(math.fsum(present) / len(present), rel=1e-14)
        # Scaled by a power of two: the squares of tiny numbers would be 0.
        scale = 2.0**660 if name == "tiny" else 1.0
        spread = statistics.pstdev([x * scale for x in present]) / scale
        assert entry["scale"] == pytest.approx(spread, rel=1e-12)
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=700)
    for cells_a_block in (1, 2**14):
        monkeypatch.setattr(_summaries, "_BLOCK_CELLS", cells_a_block)
        for workers in ("local:1", "local:3"):
            with engine_of(workers) as engine:
                assert constants(columns, engine) == expected
                assert constants(tmp_path / "t.parquet", engine) == expected
    assert (
        constants({**columns, "more": columns["count"]})["columns"]["far"]
        == (expected["columns"]["far"])
    )


def test_spans_end_with_the_parts_and_hold_every_row_once():
    for ends in ([1], [5, 5, 300, 301, 560, 700], [10_000], list(range(3, 900, 3))):
        for size in (1, 7, 64, 1000):
            spans = list(_feeds.aligned_spans(ends, size))
            rows = [row for span in spans for row in range(span.start, span.stop)]
            assert rows == list(range(ends[-1]))
            assert all(span.start % size == 0 for span in spans)


# Passes and time --------------------------------------------------------------------------------


def written(folder: Path, rows: int, columns: int) -> Path:
    rng = np.random.default_rng(rows)
    path = folder / f"{rows}x{columns}.csv"
    with path.open("w") as file:
        file.write(",".join(f"x{i}" for i in range(columns - 1)) + ",y\n")
        for row in rng.normal(size=(rows, columns - 1)):
            file.write(",".join(f"{x:.6f}" for x in row) + f",{'ab'[int(row[0] > 0)]}\n")
    return path


@pytest.mark.parametrize("holes", [False, True])
def test_a_table_is_opened_and_its_encoding_read_in_one_pass(tmp_path, monkeypatch, holes):
    path = written(tmp_path, 200, 5)
    if holes:
        path.write_text(path.read_text() + ",1,,2,a\n3,,,,b\n")
    passes = []
    read = _origins.csv_batches

    def counted(*arguments, **options):
        passes.append(options["check"])
        return read(*arguments, **options)

    monkeypatch.setattr(_origins, "csv_batches", counted)
    assert constants(path)["columns"]["x0"]["scale"] > 0.5
    # Medians need another: only the last row shows which columns have missing cells.
    assert passes == ([True, False] if holes else [True])


def test_the_time_to_open_a_wide_table_is_linear_in_its_columns(tmp_path):
    """Four times as many columns take about four times as long; sixteen would be quadratic."""

    def seconds(path: Path) -> float:
        start = time.process_time()
        constants(path)
        return time.process_time() - start

    narrow, wide = written(tmp_path, 6, 500), written(tmp_path, 6, 2000)
    seconds(narrow)
    ratios = [seconds(wide) / seconds(narrow) for _ in range(3)]
    assert min(ratios) < 8


def test_an_interrupt_stops_the_opening_of_a_table(tmp_path):
    path = written(tmp_path, 20_000, 60)
    # A shell starts background jobs with SIGINT ignored, which processes inherit.
    code = f"""
import signal
from expost.data import open_table
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
while True:
    open_table({str(path)!r})
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_duckdb_is_gone():
    about = Path(__file__).parents[2] / "pyproject.toml"
    dependencies = tomllib.loads(about.read_text())["project"]["dependencies"]
    assert not any("duckdb" in dependency for dependency in dependencies)


def test_strings_that_are_not_utf8_are_refused(tmp_path):
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff")]
    )
    table = pa.table({"w": bad, "x": [1, 2]})
    with pytest.raises(InvalidInput, match="not UTF-8"):
        open_table(table)
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match=r"t\.parquet: is not a whole Parquet file"):
        open_table(tmp_path / "t.parquet")
