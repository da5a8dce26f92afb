"""Tables of every sort, read as a model reads them: looked at, encoded, and streamed."""

import json
import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from expost.data import Encoding, UnitBall, open_table
from expost.errors import ExpostError
from expost.rows import RowStream

from . import tables
from .damage import damaged
from .harness import Fault, Target


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What is read, and how. ``secret``: no message may show a cell, and none is a path or a name."""

    source: Any
    options: dict[str, Any] = field(default_factory=dict)
    target: str = "income"
    regression: bool = False
    streamed: bool = True
    secret: bool = True


def options(rng: random.Random, *, file: bool = False) -> dict[str, Any]:
    """How a person may ask for a table."""
    chosen: dict[str, Any] = {}
    if rng.random() < 0.5:
        chosen["id_column"] = rng.choice(["number"] * 9 + ["age", "city", "absent"])
    if rng.random() < 0.5:
        chosen["missing"] = rng.choice(
            [("", "?"), ("",), (), ("nan", "NULL"), ("32", "no"), ("'",)]
        )
    if rng.random() < 0.15:
        chosen["kinds"] = {rng.choice(["age", "city", "hours"]): rng.choice(["numeric", "text"])}
    if rng.random() < 0.05:
        chosen["columns"] = rng.choice(
            [["age", "city", "income"], ["income"], ["age", "absent"], []]
        )
    if file and rng.random() < 0.1:
        chosen["delimiter"] = rng.choice([",", ";", "\t"])
    return chosen


def opened(rng: random.Random, source: Any, *, file: bool = False, **more: Any) -> Opened:
    chosen = options(rng, file=file)
    goal = rng.choice(
        [{}] * 12 + [{"target": "age", "regression": True}] * 2 + [{"target": "city"}]
    )
    return Opened(source=source, options={**chosen, **more.pop("options", {})}, **goal, **more)


def read(case: Opened) -> None:
    """The rows of a case are numbers, and a stream of them is the same rows."""
    try:
        _read(case)
    except ExpostError as error:
        if case.secret and tables.SECRET in str(error):
            raise Fault(f"a message shows a cell: {error}") from error
        raise


def _read(case: Opened) -> None:
    table = open_table(case.source, **case.options)
    encoding = Encoding.read(table, target=case.target, regression=case.regression)
    encoded = encoding.encode_table(table)
    assert encoded.X.shape == (table.rows, len(encoding.feature_names))
    # Numbers are cut; NaN fails too.
    assert np.all(np.abs(encoded.X) <= 2)
    assert np.all(np.isfinite(encoded.y))
    if not case.regression:
        # Two classes are −1 and +1, more are counted from 0; every one that was read has a row.
        count = len(encoding.target.classes)
        assert set(encoded.y) == ({-1.0, 1.0} if count == 2 else set(range(count)))
    assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding
    if encoded.ids is not None:
        assert len(set(encoded.ids)) == table.rows
        assert all(isinstance(each, str) and each for each in encoded.ids)
    if case.streamed:
        _check_stream(table, encoding, encoded)


def _check_stream(table: Any, encoding: Encoding, encoded: Any) -> None:
    ball = UnitBall(data_norm=encoding.data_norm, fit_intercept=True)
    rows, clipped = ball.rows(encoded.X)
    assert 0 <= clipped <= table.rows
    assert np.all(np.linalg.norm(rows, axis=1) <= 1)
    stream = RowStream.of(table, encoding, ball, size=5)
    blocks = [block for item in stream.items() for block in stream.blocks(item)]
    assert [block.start for block in blocks] == list(range(0, table.rows, 5))
    assert np.array_equal(np.concatenate([block.X for block in blocks]), rows)
    assert np.array_equal(np.concatenate([block.y for block in blocks]), encoded.y)
    if encoded.ids is not None:
        keys = [block.ids for block in blocks if block.ids is not None]
        assert np.array_equal(np.concatenate(keys), encoded.ids)


# Cases ---------------------------------------------------------------------------------------------


@cache
def plain_bytes(kind: str) -> bytes:
    """A whole file of a kind, to take pieces from."""
    write = {"csv": tables.csv_bytes, "parquet": tables.parquet_bytes, "arrow": tables.arrow_bytes}
    return write[kind](random.Random(1), tables.base())


def _bytes(rng: random.Random, kind: str) -> tuple[bytes, bool]:
    """A file of a kind, and whether its bytes are as they were written."""
    write = {"csv": tables.csv_bytes, "parquet": tables.parquet_bytes, "arrow": tables.arrow_bytes}
    whole = rng.random() < 0.5
    data = write[kind](rng, tables.odd_table(rng) if whole else tables.base())
    return (data, True) if whole else (damaged(rng, data, plain_bytes(kind)), False)


def _file(kind: str) -> Any:
    def make(rng: random.Random, folder: Path) -> Opened:
        data, whole = _bytes(rng, kind)
        name = rng.choice([f"t.{kind}"] * 8 + ["t", "t.txt", "é b'[1].csv", "t*.gz"])
        (folder / name).write_bytes(data)
        # Damaged text may turn any cell into a name.
        secret = whole or kind != "csv"
        streamed = kind == "parquet" or rng.random() < 0.3
        return opened(rng, folder / name, file=True, secret=secret, streamed=streamed)

    return make


_PARTS = [
    "year=2024",
    "year=2025",
    "year=",
    "year=__HIVE_DEFAULT_PARTITION__",
    "year=%zz",
    "year=a/b=1",
]
_PARTS += [
    "year=20%2F24",
    "plain",
    "=",
    "year",
    "age=1",
    "AGE=1",
    "c0=1",
    "_hidden=1",
    ".x",
    "year=1e400",
]
_PARTS += [
    "year='; --",
    "year= 2024 ",
    "city=é",
    "x=%00",
    "y=%0A",
    "a b=c d",
    "year=2024=5",
    "year=nan",
]


def make_folder(rng: random.Random, folder: Path) -> Opened:
    """Parquet files in folders, whose names are columns or are not, or a glob of files."""
    top = folder / "top"
    kind = "parquet" if rng.random() < 0.9 else "csv"
    places = rng.choice([[_PARTS[0], _PARTS[1]], [rng.choice(_PARTS), rng.choice(_PARTS)], ["."]])
    base = tables.odd_table(rng)
    for number, path in enumerate(places):
        (top / path).mkdir(parents=True, exist_ok=True)
        if rng.random() < 0.85:
            write = tables.parquet_bytes if kind == "parquet" else tables.csv_bytes
            data = write(rng, base if rng.random() < 0.8 else tables.odd_table(rng))
        else:
            data, _ = _bytes(rng, kind)
        name = rng.choice([f"part-{number}.{kind}"] * 12 + ["_metadata", "a=b.parquet"])
        (top / path / name).write_bytes(data)
    source = top if rng.random() < 0.8 else f"{top}/**/*.{kind}"
    return opened(rng, source, secret=False)


def make_sqlite(rng: random.Random, folder: Path) -> Opened:
    path = folder / "t.db"
    whole = rng.random() < 0.6
    tables.write_sqlite(path, tables.odd_table(rng) if whole else tables.base())
    if not whole:
        data = path.read_bytes()
        head = data.startswith(b"SQLite format 3\0") and rng.random() < 0.8
        broken = damaged(rng, data, data)
        path.write_bytes(data[:16] + broken[16:] if head else broken)
    query = rng.choice(["people"] * 20 + ["SELECT * FROM people WHERE age > 30", "SELECT 1", "PRAGMA x", "SELECT *, 1/0 AS z FROM people", "absent", "SELECT number, number FROM people", "DELETE FROM people"])  # fmt: skip
    source = path if rng.random() < 0.5 else f"sqlite:///{path}"
    return opened(rng, source, options={"query": query, "id_column": rng.choice(["number"] * 10 + ["age", None])})  # fmt: skip


def make_in_memory(rng: random.Random, folder: Path) -> Opened:
    """As a person has it: Arrow, pandas, polars, a dict of lists or of arrays, a dataset."""
    del folder
    columns = tables.odd_table(rng)
    table = tables.as_table(columns)
    source: Any = table
    match rng.randrange(7):
        case 0:
            source = {name: array.to_pylist() for name, array in columns.items()}
        case 1:
            source = {name: _mixed(rng, array.to_pylist()) for name, array in columns.items()}
        case 2:
            source = _or_not(table, lambda: table.to_pandas())
        case 3:
            import polars as pl

            # Polars panics, and prints, where it does not know a type.
            known = [name for name, array in columns.items() if _is_known(array.type)]
            source = pl.from_arrow(table.select(known)) if len(known) == len(set(known)) else table
        case 4:
            source = _or_not(table, lambda: pa.dataset.dataset(table))
        case 5:
            source = {name: _or_not(array, lambda each=array: each.to_numpy(zero_copy_only=False)) for name, array in columns.items()}  # fmt: skip
    return opened(rng, source)


def _or_not(otherwise: Any, make: Any) -> Any:
    """What another library makes of it; it may not take every type."""
    try:
        return make()
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        return otherwise


def _is_known(type_: Any) -> bool:
    return str(type_) in ("double", "int64", "string", "bool", "large_string", "null", "float")


def _mixed(rng: random.Random, cells: list[Any]) -> Any:
    """Python's own odd values among the cells, and odd containers around them."""
    odd = [
        object(),
        10**400,
        1j,
        "\ud800",
        {1},
        b"x",
        np.float32(1),
        np.datetime64("NaT"),
        [1],
        float,
    ]
    if cells and rng.random() < 0.4:
        cells[rng.randrange(len(cells))] = rng.choice(odd)
    around = [list, tuple, lambda each: np.array(each, dtype=object), iter, lambda each: np.ma.array(each, mask=False), lambda each: [each], lambda each: each[:-1], lambda _: None, lambda _: 5]  # fmt: skip
    return (
        around[0](cells)
        if rng.random() < 0.7
        else _or_not(cells, lambda: rng.choice(around)(cells))
    )


READERS = {
    target.name: target
    for target in (
        Target(name="csv", make=_file("csv"), read=read),
        Target(name="parquet", make=_file("parquet"), read=read),
        Target(name="arrow", make=_file("arrow"), read=read),
        Target(name="folder", make=make_folder, read=read),
        Target(name="sqlite", make=make_sqlite, read=read),
        Target(name="in-memory", make=make_in_memory, read=read),
    )
}
