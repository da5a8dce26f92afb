"""Tables that are odd in one or two ways, and the files that they are written to."""

import csv
import datetime
import decimal
import gzip
import io
import random
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

# In cells alone, and never in a message.
SECRET = "zq7kanarie"
ROWS = 12
_DAY = datetime.date(2026, 1, 31)
_TEXTS = ["", " ", "?", "nan", "NaN", "inf", "-Infinity", "1_000", "+-1", "0x10", "1e5", "1e400"]
_TEXTS += [
    "-0",
    "1e-400",
    "9007199254740993",
    "9" * 400,
    "true",
    "NULL",
    "None",
    "\x00",
    "\x1b[31m",
]
_TEXTS += ["\u202e", "\ufeff", "é", "\U0001f600", "a\nb", "a\r\nb", 'a"b', '""', "a,b", "a;b", "\\"]
_TEXTS += [
    "'; DROP TABLE people; --",
    SECRET,
    f" {SECRET} ",
    SECRET * 200,
    "\x7f",
    "\u2028",
    "١٢",
    "½",
]
_NUMBERS = [0.0, -0.0, 1.0, -1.5, float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 1e150]
_NUMBERS += [1.1e150, 5e-324, 1e-310, 2.0**53, 2.0**53 + 2, 0.1]
_NAMES = ["", " ", "c0", "c1", "t0", "v0", "w0", "one", "id", "key", "source", "nothing", "rowid"]
_NAMES += [
    "AGE",
    "age ",
    "age",
    "a b",
    "a=b",
    "city=Oslo",
    "hours is missing",
    'q"q',
    "q'q",
    "1",
    "é",
]
_NAMES += ["x" * 300, "\x07", "a\nb", "select", "*", "[a]", "a.b", "\ufeff", "count(*)", "income "]


def base() -> dict[str, Any]:
    """A key, a number, a text, a number with missing cells, and two classes."""
    return {
        "number": pa.array([f"p{row:02d}" for row in range(ROWS)]),
        "age": pa.array([20.0 + 3 * (row * 7 % ROWS) for row in range(ROWS)]),
        "city": pa.array([("Oslo", "Bergen", SECRET)[row % 3] for row in range(ROWS)]),
        "hours": pa.array([None if row % 5 == 1 else 30 + row for row in range(ROWS)], pa.int64()),
        "income": pa.array([("no", "yes")[row * 5 % 7 % 2] for row in range(ROWS)]),
    }


def odd_table(rng: random.Random) -> dict[str, Any]:
    """:func:`base` with up to three oddities; {name: Arrow array}, names perhaps odd too."""
    if rng.random() < 0.005:
        return {}
    table = base()
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        table = _odd(rng, table)
    return table


def _odd(rng: random.Random, table: dict[str, Any]) -> dict[str, Any]:
    if not table:
        return table
    name = rng.choice(sorted(table))
    cells = table[name].to_pylist()
    match rng.randrange(14):
        case 0 | 1 | 2:
            for index in _some(rng, cells):
                cells[index] = rng.choice([None, *_TEXTS] if isinstance(cells[index], str) else [None, *_NUMBERS])  # fmt: skip
            table[name] = _array(cells)
        case 3 | 4 | 5:
            table[name] = _other_type(rng, len(cells))
        case 6:
            # The same cells as text, or all of them one.
            texts = [None if cell is None else str(cell) for cell in cells]
            table[name] = rng.choice([pa.array(texts), _array(cells[:1] * len(cells))])
        case 7 | 8:
            other = rng.choice(_NAMES)
            return {other if each == name else each: array for each, array in table.items()}
        case 9:
            del table[name]
        case 10:
            length = rng.choice([0, 1, 2, 3])
            return {each: array.slice(0, length) for each, array in table.items()}
        case 11:
            # Classes, and keys.
            table["income"] = _array([rng.choice(["no", "yes", rng.choice([None, *_TEXTS])]) for _ in cells])  # fmt: skip
        case 12:
            for index in _some(rng, cells):
                cells[index] = rng.choice(cells)
            table[name] = _array(cells)
        case _:
            # Wide tables are slow; they come seldom.
            width = rng.choice([2, 5, 20]) if rng.random() < 0.97 else 300
            for index in range(width):
                table[f"more{index}"] = rng.choice(
                    [table[name], pa.array([0.5 * index] * len(cells))]
                )
    return table


def _some(rng: random.Random, cells: list[Any]) -> list[int]:
    if not cells:
        return []
    return [rng.randrange(len(cells)) for _ in range(rng.choice([1, 1, 2, 12]))]


def _array(cells: list[Any]) -> Any:
    try:
        return pa.array(cells)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None if cell is None else str(cell) for cell in cells])


def _other_type(rng: random.Random, rows: int) -> Any:
    """A column of a type that a feature may have, or not."""
    small = [index % 5 for index in range(rows)]
    texts = [(SECRET, "b", None)[index % 3] for index in range(rows)]
    makers = [
        lambda: pa.array(small, rng.choice([pa.int8(), pa.uint8(), pa.int16(), pa.uint64()])),
        lambda: pa.array([2**64 - 1] * rows, pa.uint64()),
        lambda: pa.array([2**63 - 1 - each for each in small], pa.int64()),
        lambda: pa.array([float(each) for each in small], rng.choice([pa.float16(), pa.float32()])),
        lambda: pa.array([np.float16(np.inf)] * rows, pa.float16()),
        lambda: pa.array([decimal.Decimal(each) / 8 for each in small], pa.decimal128(20, 5)),
        lambda: pa.array([decimal.Decimal(10) ** 60] * rows, pa.decimal256(70, 2)),
        lambda: pa.array([decimal.Decimal(1000 * each) for each in small], pa.decimal128(5, -3)),
        lambda: pa.array([_DAY] * rows, rng.choice([pa.date32(), pa.date64()])),
        lambda: pa.array([each * 10**9 for each in small], pa.timestamp("ns", tz="Europe/Oslo")),
        lambda: pa.array([each * 1000 for each in small], rng.choice([pa.time32("s"), pa.duration("ms"), pa.time64("ns")])),
        lambda: pa.array([b"\xff\x00"] * rows, rng.choice([pa.binary(), pa.large_binary(), pa.binary(2)])),
        lambda: pa.array(texts, rng.choice([pa.large_string(), pa.string_view()])),
        lambda: pa.array(texts).dictionary_encode(),
        lambda: pa.DictionaryArray.from_arrays(pa.array(small, pa.int8()), pa.array(["a", "b", None, "a", SECRET])),
        lambda: pa.DictionaryArray.from_arrays(pa.array(small, pa.uint16()), pa.array([1.5, 2.0, None, np.nan, 4.0])),
        lambda: pa.array([each > 2 if each else None for each in small]),
        lambda: pa.array([[each] for each in small]),
        lambda: pa.array([{"a": each, "b": SECRET} for each in small]),
        lambda: pa.array([[("k", each)] for each in small], pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([[1.0, 2.0]] * rows, pa.list_(pa.float64(), 2)),
        lambda: pa.nulls(rows, rng.choice([pa.null(), pa.string(), pa.float64(), pa.int64(), pa.bool_()])),
        lambda: pa.array([_month(each) for each in small], pa.month_day_nano_interval()),
        lambda: pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([1.5])) if rows else pa.nulls(0),
        lambda: pa.UnionArray.from_sparse(pa.array([index % 2 for index in small], pa.int8()), [pa.array(small), pa.array(texts)]),
        lambda: pa.array([str(each) * 10**4 for each in small]),
        lambda: pa.array([each * 1e-320 for each in small]),
        lambda: pa.array(["\x00" + SECRET] * rows),
    ]  # fmt: skip
    return rng.choice(makers)()


def _month(index: int) -> Any:
    return pa.MonthDayNano([index, 1, 1])


# Files -------------------------------------------------------------------------------------------


def as_table(columns: dict[str, Any]) -> Any:
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def csv_bytes(rng: random.Random, columns: dict[str, Any]) -> bytes:
    """In one of the dialects, and perhaps an encoding that is none of ours."""
    stream = io.StringIO()
    writer = csv.writer(
        stream,
        delimiter=rng.choice([",", ",", ",", ";", "\t", "|"]),
        lineterminator=rng.choice(["\n", "\n", "\r\n", "\r"]),
        quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    )
    writer.writerow(columns)
    for row in zip(*(array.to_pylist() for array in columns.values()), strict=True):
        writer.writerow(["" if cell is None else cell for cell in row])
    text = stream.getvalue()
    encoding = rng.choice(["utf-8"] * 12 + ["utf-8-sig", "utf-16", "latin-1"])
    data = text.encode(encoding, "replace")
    return gzip.compress(data) if rng.random() < 0.08 else data


def parquet_bytes(rng: random.Random, columns: dict[str, Any]) -> bytes:
    """With row groups of any size, an empty one among them; what Parquet cannot hold is left out."""
    table = _storable(columns, _parquet_holds)
    stream = io.BytesIO()
    options = {
        "compression": rng.choice(["snappy", "zstd", "none", "gzip", "lz4", "brotli"]),
        "use_dictionary": rng.random() < 0.5,
        "version": rng.choice(["1.0", "2.4", "2.6"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "store_schema": rng.random() < 0.8,
        "write_statistics": rng.random() < 0.8,
        "write_page_checksum": rng.random() < 0.2,
    }
    with pa.parquet.ParquetWriter(stream, table.schema, **options) as writer:
        if rng.random() < 0.2:
            writer.write_table(table.slice(0, 0))
        writer.write_table(table, row_group_size=rng.choice([1, 4, 5, 1000]))
    return stream.getvalue()


def arrow_bytes(rng: random.Random, columns: dict[str, Any]) -> bytes:
    """An IPC file, or the stream format, which is none of ours."""
    table = as_table(columns)
    stream = io.BytesIO()
    make = pa.ipc.new_stream if rng.random() < 0.05 else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=rng.choice([None, None, "lz4", "zstd"]))
    with make(stream, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rng.choice([3, 1000]))
    return stream.getvalue()


def write_sqlite(path: Path, columns: dict[str, Any]) -> None:
    """The table ``people``, columns without a type; what SQLite cannot hold is left out."""
    names = [name for name in columns if name and "\x00" not in name]
    cells = [[_sqlite_cell(cell) for cell in columns[name].to_pylist()] for name in names]
    connection = sqlite3.connect(path)
    try:
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        connection.execute(f"CREATE TABLE people ({quoted or 'nothing'})")
        marks = ", ".join("?" * len(names))
        for row in zip(*cells, strict=True):
            connection.execute(f"INSERT INTO people VALUES ({marks})", row)
        connection.commit()
    except sqlite3.Error:  # two columns of one name
        connection.rollback()
    finally:
        connection.close()


def _sqlite_cell(cell: Any) -> Any:
    if isinstance(cell, int) and not isinstance(cell, bool) and abs(cell) >= 2**63:
        return str(cell)
    return cell if cell is None or isinstance(cell, int | float | str | bytes) else str(cell)


def _storable(columns: dict[str, Any], holds: Any) -> Any:
    return as_table({name: array for name, array in columns.items() if holds(array)})


def _parquet_holds(array: Any) -> bool:
    try:
        pa.parquet.write_table(pa.table({"x": array.slice(0, 1)}), io.BytesIO())
    except (pa.ArrowException, OSError, ValueError):
        return False
    return True
