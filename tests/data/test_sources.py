"""Tables from every source: kinds, missing cells, refusals, order and block sizes."""

import itertools
import math
import os
import re
import subprocess
import sys
import tracemalloc
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expost.data import _cells, open_table
from expost.data._cells import LONGEST, RawColumn
from expost.data._columns import ColumnScan
from expost.data.readers import reader_of
from expost.errors import InvalidInput


def csv_of(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def column_csv(folder: Path, cells: list[str]) -> Path:
    return csv_of(folder, "x,row\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells)))


def kinds(table) -> dict[str, str]:
    return {column.name: column.kind for column in table.columns}


# Kinds of CSV columns --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-2.5", "+3e4", ".5", "5.", "1E-3", "-0.0"], "numeric"),
        ([" 1", "2 ", ""], "numeric"),
        (["5e-324", "1e-400"], "numeric"),
        (["1_000", "2"], "text"),
        (["+-1", "2"], "text"),
        (["0x10", "2"], "text"),
        (["1 2", "3"], "text"),
        (["١", "2"], "text"),
        (["a", "b"], "text"),
        (["nan", "Inf"], "text"),
        (["true", "false"], "text"),
        (["", ""], "text"),
    ],
)
def test_a_csv_column_is_numeric_if_all_its_cells_are_numbers(tmp_path, cells, kind):
    table = open_table(column_csv(tmp_path, cells))
    assert table["x"].kind == kind
    stripped = [cell.strip() for cell in cells]
    present = [cell for cell in stripped if cell]
    assert table["x"].missing == len(cells) - len(present)
    expected = [
        None if not cell else float(cell) if kind == "numeric" else cell for cell in stripped
    ]
    assert table.column("x").to_pylist() == expected


def test_numbers_are_rounded_as_python_rounds_them(tmp_path):
    rng = np.random.default_rng(5)
    values = np.concatenate(
        [rng.normal(size=300), 10.0 ** rng.uniform(-300, 149, size=300), [5e-324, 2.0**52 + 0.5]]
    )
    cells = [repr(float(value)) for value in values] + [f"{value:.30e}" for value in values]
    table = open_table(column_csv(tmp_path, cells))
    assert table.column("x").to_pylist() == [float(cell) for cell in cells]


def naive_number(text: str) -> float | None:
    """The obviously right reading of a cell."""
    grammar = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
    value = float(text) if re.fullmatch(grammar, text, re.ASCII) else math.nan
    return value if math.isfinite(value) else None


def numbers_of(cells: list[str]) -> list[float | None]:
    """The finite numbers as a table reads them, other cells as None."""
    column = RawColumn(name="x", type="cell", described="text")
    scan = ColumnScan(index=0, raw=column, kind=None)
    summary, numbers = scan.summary(pa.array(cells), (), 0)
    assert summary.numbers == np.count_nonzero(~np.isnan(numbers))
    return [None if math.isnan(number) else float(number) for number in numbers]


def test_numbers_are_those_of_the_grammar():
    alphabet = "01+-.e_ nx"
    tokens = ["".join(p) for k in range(1, 5) for p in itertools.product(alphabet, repeat=k)]
    tokens += ["nan", "inf", "-Infinity", "1e5", "1e999", "0b1", "1d5", "1,5", "1e+5", "1.5e-07"]
    tokens += ["\n1", "1\n", "1\t", "１", "1\u00a00", "nan(1)", "0x1p3", "2.5e-324", "1" * 400]
    tokens = [token for token in tokens if token == token.strip(" ")]
    expected = [naive_number(token) for token in tokens]
    # Many distinct cells at once, few at once, and alone: each takes another path.
    assert numbers_of(tokens) == expected
    for start in range(0, 800, 7):
        assert numbers_of(tokens[start : start + 7]) == expected[start : start + 7]
    accepted = [token for token, value in zip(tokens, expected, strict=True) if value is not None]
    assert numbers_of(accepted) == [value for value in expected if value is not None]
    assert 100 < len(accepted) < len(tokens) - 100


@settings(max_examples=300)
@given(
    cells=st.lists(
        st.one_of(
            st.floats(allow_nan=False).map(repr),
            st.decimals(allow_nan=False, allow_infinity=False).map(str),
            st.from_regex(re.compile(_cells.NUMBER, re.ASCII), fullmatch=True),
            st.text(alphabet="0123456789+-.eE_nainfINFx\u0661", max_size=9),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_numbers_are_those_of_python(cells):
    assert numbers_of(cells) == [naive_number(cell) for cell in cells]


@pytest.mark.parametrize("token", ["?", "NA", "n/a", "-"])
def test_an_undeclared_token_makes_text_and_a_hint(tmp_path, token):
    path = column_csv(tmp_path, ["1", token, "3", token])
    table = open_table(path)
    assert table["x"].kind == "text"
    assert table["x"].missing == 0
    (notice,) = table.notices
    assert "2 of 4 cells are not numbers" in notice
    assert f"if {token!r} means missing, declare it" in notice
    declared = open_table(path, missing=("", token))
    assert declared["x"].kind == "numeric"
    assert declared["x"].missing == 2
    assert declared.notices == ()
    assert declared.column("x").to_pylist() == [1.0, None, 3.0, None]


def test_other_tokens_are_never_shown(tmp_path):
    (notice,) = open_table(column_csv(tmp_path, ["1", "canary", "3"])).notices
    assert "1 of 3 cells are not numbers" in notice
    assert "canary" not in notice
    assert open_table(column_csv(tmp_path, ["inf", "Bob", "Nan"])).notices == ()


def test_missing_may_be_nothing(tmp_path):
    table = open_table(column_csv(tmp_path, ["a", "", "b"]), missing=())
    assert table["x"].missing == 0
    assert table.column("x").to_pylist() == ["a", "", "b"]


def test_a_first_line_of_numbers_is_doubted(tmp_path):
    table = open_table(csv_of(tmp_path, "1.5,x\n2,y\n"))
    assert "the first line is taken as the header" in table.notices[0]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1", "nan"], "row 2: is not a finite number"),
        (["1", "2", "-Inf"], "row 3: is not a finite number"),
        (["+infinity", "1"], "row 1: is not a finite number"),
        (["1", "nan", "1e400"], "row 2: is not a finite number"),
        (["1", "1e400"], "row 2: is too large for float64"),
        (["1e400", "-1e999"], "row 1: is too large for float64"),
        (["1", "1e300"], "row 2: is too large: must be at most 1e\\+150"),
        (["1", "2", "-1e151"], "row 3: is too large"),
        (["1", "9007199254740993"], "row 2: is an integer past 2\\*\\*53"),
        (["-9007199254740993", "1"], "row 1: is an integer past"),
        (["1", "1" * 60], "row 2: is an integer past"),
    ],
)
def test_numbers_that_float64_cannot_hold_are_refused(tmp_path, cells, message):
    path = column_csv(tmp_path, cells)
    with pytest.raises(InvalidInput, match=message) as caught:
        open_table(path)
    assert "column 'x'" in str(caught.value)
    assert not any(cell in str(caught.value) for cell in cells if len(cell) > 4)
    # The other column is fine alone, and so is the column as text or as the id.
    assert open_table(path, columns=["row"]).rows == len(cells)
    assert open_table(path, kinds={"x": "text"}).column("x").to_pylist() == cells
    table = open_table(path, id_column="x")
    assert table.column("x").to_pylist() == cells


def test_large_floats_and_the_largest_integer_pass(tmp_path):
    cells = ["9007199254740992", "-9007199254740992", "1e20", "12345678901234567890.5", "1e150"]
    assert open_table(column_csv(tmp_path, cells)).column("x").to_pylist() == [
        float(cell) for cell in cells
    ]


def test_kinds_known_beforehand(tmp_path):
    path = csv_of(tmp_path, "zip,age\n01,5\n1,?\n")
    table = open_table(path, kinds={"zip": "text"}, missing=("?",))
    assert table.column("zip").to_pylist() == ["01", "1"]
    assert table.retyped({"zip": "numeric"}).column("zip").to_pylist() == [1.0, 1.0]
    with pytest.raises(InvalidInput, match=r"'age', row 2: is not a number \(1 of 2.*'\?' means"):
        open_table(path, kinds={"age": "numeric"})
    with pytest.raises(InvalidInput, match="kinds"):
        open_table(path, kinds={"age": "date"})
    blank = open_table(csv_of(tmp_path, "a,b\n,1\n,2\n"), kinds={"a": "numeric"})
    assert (blank["a"].kind, blank["a"].missing) == ("numeric", 2)


# Names, ids and parameters ---------------------------------------------------------------------


def test_awkward_column_names(tmp_path):
    names = ['x"y', "<script>", "a'b", "select", "c1", "t0", "é", "; drop table"]
    frame = pd.DataFrame({name: [index, index + 1] for index, name in enumerate(names)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (tmp_path / "t.csv", tmp_path / "t.parquet", frame, pl.from_pandas(frame)):
        table = open_table(source)
        assert table.names == tuple(names)
        for index, name in enumerate(names):
            assert table.column(name).to_pylist() == [index, index + 1]


def test_ids_are_text_in_whatever_form(tmp_path):
    path = csv_of(tmp_path, "id,x\n007,1\n 7,2\n12345678901234567890,3\n")
    table = open_table(path, id_column="id")
    assert table.names == ("x",)
    assert table.column("id").to_pylist() == ["007", "7", "12345678901234567890"]
    assert next(table.blocks(5)).schema.names == ["x", "id"]
    big = open_table({"id": [2**63 - 1, 5], "x": [1, 2]}, id_column="id")
    assert big.column("id").to_pylist() == [str(2**63 - 1), "5"]


def test_ids_are_present_and_different(tmp_path):
    with pytest.raises(InvalidInput, match="id column 'id', row 2: is missing"):
        open_table(csv_of(tmp_path, "id,x\n1,1\n,2\n"), id_column="id")
    with pytest.raises(InvalidInput, match=r"id column 'id': 2 row\(s\) repeat"):
        open_table({"id": ["a", "a", "b", "a"], "x": [1, 2, 3, 4]}, id_column="id")


def test_ids_may_repeat_where_they_are_of_persons(tmp_path):
    path = csv_of(tmp_path, "who,x\n7,1\n b,2\n7,3\n")
    table = open_table(path, id_column="who", ids_repeat=True)
    assert table.names == ("x",)
    assert table.column("who").to_pylist() == ["7", "b", "7"]
    with pytest.raises(InvalidInput, match="person column 'who', row 3: is missing"):
        open_table({"who": ["a", "b", None], "x": [1, 2, 3]}, id_column="who", ids_repeat=True)
    with pytest.raises(InvalidInput, match="'who': one person owns every row"):
        open_table({"who": ["a", "a"], "x": [1, 2]}, id_column="who", ids_repeat=True)
    assert open_table({"who": ["a", "b"], "x": [1, 2]}, id_column="who", ids_repeat=True).rows == 2


def test_bad_parameters(tmp_path):
    path = csv_of(tmp_path, "a,b\n1,2\n")
    for options in ({"columns": ["c"]}, {"id_column": "c"}, {"kinds": {"c": "text"}}):
        with pytest.raises(InvalidInput, match=r"column 'c': is not in .* columns are 'a', 'b'"):
            open_table(path, **options)
    for options in ({"columns": "a"}, {"missing": "?"}, {"missing": (None,)}):
        with pytest.raises(InvalidInput, match="must be a list"):
            open_table(path, **options)
    table = open_table(path)
    for size in (0, -1, 1.5, True):
        with pytest.raises(InvalidInput, match="size"):
            next(table.blocks(size))
    with pytest.raises(InvalidInput, match="column 'z'"):
        table.column("z")
    for source in (3, [1, 2], np.zeros((2, 2)), None, pl.LazyFrame({"a": [1]})):
        with pytest.raises(InvalidInput, match="table"):
            open_table(source)


# Typed sources ---------------------------------------------------------------------------------


def frames() -> dict[str, object]:
    columns = {
        "whole": [1, 2, None, 4],
        "real": [0.5, None, -2.5, 1e-310],
        "flag": [True, False, None, True],
        "word": ["a", " b ", None, ""],
        "group": ["u", "v", "u", None],
    }
    arrow = pa.table(
        {
            "whole": pa.array(columns["whole"], pa.int64()),
            "real": pa.array(columns["real"], pa.float64()),
            "flag": pa.array(columns["flag"], pa.bool_()),
            "word": pa.array(columns["word"], pa.string()),
            "group": pa.array(columns["group"], pa.string()).dictionary_encode(),
        }
    )
    pandas = pd.DataFrame(
        {
            "whole": pd.array(columns["whole"], dtype="Int64"),
            "real": columns["real"],
            "flag": pd.array(columns["flag"], dtype="boolean"),
            "word": columns["word"],
            "group": pd.Categorical(columns["group"]),
        }
    )
    polars = pl.DataFrame(columns).with_columns(pl.col("group").cast(pl.Categorical))
    return {
        "arrow": arrow,
        "batch": arrow.to_batches()[0],
        "pandas": pandas,
        "polars": polars,
        "dict": columns,
        "chunks": pa.concat_tables([arrow.slice(0, 1), arrow.slice(1)]),
    }


@pytest.mark.parametrize("kind", [*frames(), "parquet", "polars-parquet"])
def test_every_typed_source_reads_the_same(tmp_path, kind):
    if kind == "parquet":
        source = tmp_path / "t.parquet"
        pq.write_table(frames()["arrow"], source)
    elif kind == "polars-parquet":
        source = tmp_path / "t.parquet"
        frames()["polars"].write_parquet(source)
    else:
        source = frames()[kind]
    table = open_table(source)
    assert kinds(table) == {
        "whole": "numeric",
        "real": "numeric",
        "flag": "boolean",
        "word": "text",
        "group": "text",
    }
    assert [column.missing for column in table.columns] == [1, 1, 1, 2, 1]
    assert table.column("whole").to_pylist() == [1.0, 2.0, None, 4.0]
    assert table.column("real").to_pylist() == [0.5, None, -2.5, 1e-310]
    assert table.column("flag").to_pylist() == [True, False, None, True]
    assert table.column("word").to_pylist() == ["a", "b", None, None]
    assert table.column("group").to_pylist() == ["u", "v", "u", None]
    texts = table.retyped(dict.fromkeys(table.names, "text"))
    assert texts.column("flag").to_pylist() == ["true", "false", None, "true"]
    assert texts.column("whole").to_pylist() == ["1", "2", None, "4"]
    assert texts.column("real").to_pylist()[:3] == ["0.5", None, "-2.5"]


def test_labels_of_floats_are_those_of_integers():
    table = open_table({"y": [0.0, 2.0, 2.5, -0.0]}, kinds={"y": "text"})
    assert table.column("y").to_pylist() == ["0", "2", "2.5", "0"]


def test_a_categorical_of_numbers_is_text():
    frame = pd.DataFrame({"g": pd.Categorical([3, 1, 3]), "h": pd.Categorical([1.5, 2.0, 1.5])})
    table = open_table(frame)
    assert kinds(table) == {"g": "text", "h": "text"}
    assert table.column("g").to_pylist() == ["3", "1", "3"]
    assert table.column("h").to_pylist() == ["1.5", "2", "1.5"]


def test_narrow_and_wide_types_simply_work():
    table = open_table(
        {
            "half": np.array([1.5, -2, 0.25], dtype=np.float16),
            "single": np.array([0.1, 1, 2], dtype=np.float32),
            "byte": np.array([1, 2, 255], dtype=np.uint8),
            "exact": [Decimal("1.25"), Decimal("2"), None],
            "empty": [None, None, None],
            "view": pa.array(["a", "b", None], pa.string_view()),
            "wide": pa.array(["a", "b", None], pa.large_string()),
        }
    )
    assert table.column("half").to_pylist() == [1.5, -2.0, 0.25]
    assert table.column("single").to_pylist() == [float(np.float32(0.1)), 1.0, 2.0]
    assert table.column("byte").to_pylist() == [1.0, 2.0, 255.0]
    assert table.column("exact").to_pylist() == [1.25, 2.0, None]
    assert (table["empty"].kind, table["empty"].missing) == ("text", 3)
    assert table.column("view").to_pylist() == table.column("wide").to_pylist()


def test_a_number_may_stand_for_missing():
    table = open_table({"x": [1, -999, 3], "z": [-999.0, 1.0, 2.0]}, missing=("", "-999"))
    assert table.column("x").to_pylist() == [1.0, None, 3.0]
    assert table.column("z").to_pylist() == [None, 1.0, 2.0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([1.0, np.nan]), "row 2: is NaN"),
        (np.array([np.inf, 1.0]), "row 1: is infinite"),
        (np.array([1.0, 1e300]), "row 2: is too large"),
        ([1, LONGEST + 1], "row 2: is an integer past"),
        (np.array([2**64 - 1, 1], dtype=np.uint64), "row 1: is an integer past"),
        (np.array([1 + 2j, 3j]), "column of one type"),
        (np.ma.masked_array([1.0, 2.0], mask=[True, False]), "masked array"),
        ([1, "a"], "column of one type"),
        ([10**40, 1], "column of one type"),
        (np.zeros((2, 2)), "column of one type"),
        ([date(2020, 1, 1), date(2021, 1, 1)], "is of type date32"),
        ([[1], [2]], "is of type list"),
        ([b"a", b"b"], "is of type binary"),
        ([1.0], "different lengths"),
    ],
)
def test_bad_columns_are_refused(values, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        open_table({"x": values, "row": [1, 2]})
    assert "'x'" in str(caught.value) or "lengths" in message


def test_a_column_of_another_type_may_be_left_out():
    frame = pd.DataFrame({"when": pd.to_datetime(["2020-01-01", "2021-01-01"]), "x": [1, 2]})
    assert open_table(frame, columns=["x"]).names == ("x",)
    with pytest.raises(InvalidInput, match=r"'when': is of type timestamp.*\(--drop\)"):
        open_table(frame)


def test_pandas_nan_is_missing_and_polars_nan_is_refused():
    assert open_table(pd.DataFrame({"x": [1.0, np.nan]})).column("x").to_pylist() == [1.0, None]
    with pytest.raises(InvalidInput, match="fill_nan"):
        open_table(pl.DataFrame({"x": [1.0, float("nan")]}))


def test_frames_without_rows_columns_or_distinct_names():
    for source in ({}, pd.DataFrame(), pl.DataFrame(), pa.table({})):
        with pytest.raises(InvalidInput, match="no columns"):
            open_table(source)
    for source in ({"a": []}, pd.DataFrame({"a": []}), pl.DataFrame({"a": []})):
        with pytest.raises(InvalidInput, match="no rows"):
            open_table(source)
    twice = pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    for source in (twice, {"a": [1], "A": [2]}, pa.table([[1], [2]], names=["a", "a"])):
        with pytest.raises(InvalidInput, match="columns 1 and 2 have the same name"):
            open_table(source)
    assert open_table(pd.DataFrame([[1, 2], [3, 4]])).names == ("0", "1")


def test_parquet_faults(tmp_path):
    whole = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": list(range(5000)), "w": ["word"] * 5000}), whole)
    content = whole.read_bytes()
    for name, damaged in (("cut", content[:-10]), ("head", content[:100])):
        path = tmp_path / name
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput, match="not a whole Parquet file"):
            open_table(path)
    broken = bytearray(content)
    broken[4:400] = b"\xff" * 396
    path = tmp_path / "broken"
    path.write_bytes(bytes(broken))
    with pytest.raises(InvalidInput, match="could not be read") as caught:
        open_table(path).column("x")
    assert "word" not in str(caught.value)
    pq.write_table(pa.table({"x": [1], "v": ["word"]}), tmp_path / "b.parquet")
    with pytest.raises(InvalidInput, match=r"b\.parquet: its columns or types differ"):
        open_table(str(tmp_path / "*.parquet"))
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "none.pq")
    with pytest.raises(InvalidInput, match="no rows"):
        open_table(tmp_path / "none.pq")


def test_parquet_globs_keep_their_order(tmp_path):
    for part in (2, 0, 1):
        values = list(range(part * 1000, part * 1000 + 1000))
        pq.write_table(pa.table({"k": values}), tmp_path / f"part{part}.parquet", row_group_size=64)
    table = open_table(str(tmp_path / "part*.parquet"))
    assert table.column("k").to_pylist() == list(range(3000))


# Blocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 1000, 2048, 16384, 10**6])
def test_blocks_have_their_size_and_the_same_rows(size):
    n = 5003
    words = [f"w{i % 13}" for i in range(n)]
    table = open_table({"k": np.arange(n), "w": words})
    blocks = list(table.blocks(size, columns=["w", "k"]))
    assert [block.num_rows for block in blocks[:-1]] == [size] * (len(blocks) - 1)
    assert sum(block.num_rows for block in blocks) == n
    assert np.concatenate([block.column(1) for block in blocks]).tolist() == list(range(n))
    assert [w for block in blocks for w in block.column(0).to_pylist()] == words


def test_two_readings_at_once_do_not_disturb_each_other():
    first = open_table({"k": np.arange(50_000)})
    second = open_table({"k": -np.arange(50_000)})
    for a, b, c in zip(first.blocks(900), second.blocks(900), first.blocks(900), strict=True):
        assert a.equals(c)
        assert np.array_equal(a.column(0), -np.asarray(b.column(0)))


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Arrow's and Python's memory while reading 40 MB stays below a few blocks."""
    line = ",".join(["0.123456789"] * 20) + "\n"
    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write(",".join(f"c{i}" for i in range(20)) + "\n")
        for _ in range(170):
            file.write(line * 1000)
    assert path.stat().st_size > 40e6
    tracemalloc.start()
    table = open_table(path)
    arrow, rows = 0, 0
    for block in table.blocks(1000):
        rows += block.num_rows
        arrow = max(arrow, pa.total_allocated_bytes())
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == table.rows == 170_000
    assert arrow < 20e6
    # The walk holds a chunk of 4 MiB and a dozen masks of it.
    assert python < 120e6


def test_levels_and_medians():
    rng = np.random.default_rng(6)
    for n in (1, 2, 7, 1000, 1001):
        x = rng.normal(size=n) * 10.0 ** rng.integers(-100, 100)
        table = open_table(
            {"x": [*x.tolist(), None], "w": ["b", "a"] * (n // 2) + ["c"] * (n % 2 + 1)}
        )
        assert table.median("x") == np.median(x)
        found = table.levels(["w"], at_most=3)["w"]
        assert found == tuple(sorted({"c"} | ({"a", "b"} if n > 1 else set())))
    assert table.levels(["w"], at_most=2) == {"w": None}
    with pytest.raises(InvalidInput, match="no median"):
        open_table({"x": pa.array([None, None], pa.float64())}).median("x")


def test_repr_shows_no_value():
    table = open_table({"x": [123.456, 7.0], "w": ["canary", "b"]}, id_column="w")
    assert "123.456" not in repr(table)
    assert "canary" not in repr(table)
    assert "123.456" not in repr(table["x"])


# Fuzz ------------------------------------------------------------------------------------------

tokens = st.one_of(
    st.sampled_from(["", "?", "1", "2.5", "nan", "inf", "1e300", "1e400", "x", '"a,b"', "1" * 20]),
    st.text(alphabet=list('01.eE+-_?ab "\n'), max_size=4),
)


@settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    rows=st.lists(st.tuples(tokens, tokens), max_size=6),
    missing=st.sampled_from([("",), ("", "?")]),
)
def test_random_tables_give_a_table_or_invalid_input(tmp_path, rows, missing):
    path = csv_of(tmp_path, "a,b\n" + "".join(f"{a},{b}\n" for a, b in rows))
    try:
        table = open_table(path, missing=missing)
    except InvalidInput:
        return
    blocks = list(table.blocks(4))
    assert sum(block.num_rows for block in blocks) == table.rows
    for column in table.columns:
        array = table.column(column.name)
        assert array.null_count == column.missing
        if column.kind == "numeric":
            values = np.asarray(array.drop_null())
            assert np.isfinite(values).all()
            if len(values):
                assert (values.min(), values.max()) == (column.low, column.high)


def test_pandas_and_polars_are_not_needed(tmp_path):
    path = csv_of(tmp_path, "x,w,y\n1,a,0\n2,b,1\n,a,1\n")
    pq.write_table(pa.table({"x": [1.0, 2.0], "w": ["a", "b"]}), tmp_path / "t.parquet")
    script = f"""
import sys, warnings

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "polars"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from expost.data import Encoding, open_table
warnings.simplefilter("ignore")
table = open_table({str(path)!r})
assert Encoding.read(table, target="y").encode_table(table).X.shape == (3, 4)
assert open_table({str(tmp_path / "t.parquet")!r}).column("w").to_pylist() == ["a", "b"]
assert open_table({{"x": [1, None]}}).column("x").to_pylist() == [1.0, None]
assert not {{"pandas", "polars"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_names_that_are_no_text(tmp_path):
    """Arrow does not look at the names in a file before they are asked for."""
    table = pa.table({"name-0": [1.0, 2.0], "name-1": ["a", "b"]})
    pq.write_table(table, tmp_path / "t.parquet", store_schema=False)
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("t.parquet", "t.arrow"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes().replace(b"name-1", b"name\xff1"))
        with pytest.raises(InvalidInput, match=r"(not UTF-8|not a whole)") as caught:
            open_table(path)
        assert caught.value.__suppress_context__
    with pa.memory_map(str(tmp_path / "t.arrow")) as file:
        read = pa.ipc.open_file(file).read_all()
        with pytest.raises(InvalidInput, match="the table: the name of a column is not UTF-8"):
            open_table(read)


def test_a_damaged_page_of_parquet_is_found_when_it_is_streamed(tmp_path):
    path = tmp_path / "t.parquet"
    values = np.random.default_rng(0).uniform(size=500)
    pq.write_table(pa.table({"x": values, "y": values > 0.5}), path, compression="none")
    whole = path.read_bytes()
    table = open_table(path)
    reader = reader_of(table, ["x"], 100)
    assert sum(block.batch.num_rows for item in reader.items() for block in reader.blocks(item)) == 500  # fmt: skip
    status = path.stat()
    # The header of the first page, and the time as it was: as if the disk had done it.
    path.write_bytes(whole[:4] + bytes(20) + whole[24:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    reader = reader_of(table, ["x"], 100)
    with pytest.raises(InvalidInput, match="is not a whole Parquet file"):
        list(reader.blocks(next(iter(reader.items()))))
    path.unlink()
    reader = reader_of(table, ["x"], 100)
    with pytest.raises(InvalidInput, match=r"t\.parquet"):
        list(reader.blocks(next(iter(reader.items()))))
