"""Tables of results: columns, libraries, the file's name and mode, keys of rows."""

import datetime
import stat
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from expost.errors import InvalidInput
from expost.results import RowTable, row_keys
from expost.types import Audience


@dataclass(frozen=True, kw_only=True)
class Result(RowTable):
    keys: tuple | None = None
    audience = Audience.CURATOR_ONLY

    def columns(self):
        keys = {} if self.keys is None else {"id": list(self.keys)}
        return {"row": np.arange(3), **keys, "figure": np.array([0.5, np.inf, np.nan])}


def test_a_table_needs_columns():
    with pytest.raises(TypeError, match="abstract"):
        RowTable()


def test_arrow_carries_the_audience():
    table = Result(keys=("a", "b", "c")).to_arrow()
    assert table.column_names == ["row", "id", "figure"]
    assert table.schema.metadata == {b"audience": b"curator-only"}
    assert table["id"].to_pylist() == ["a", "b", "c"]
    assert table["figure"].to_numpy()[1] == np.inf
    assert isinstance(table, pa.Table)


def test_frames_of_both_libraries():
    frame = Result().to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame["row"].tolist() == [0, 1, 2]
    other = Result().to_frame("polars")
    assert isinstance(other, pl.DataFrame)
    assert other["figure"][0] == 0.5
    with pytest.raises(InvalidInput, match="library"):
        Result().to_frame("dask")


def test_parquet_states_its_audience(tmp_path):
    path = Result(keys=(1, 2, 3)).to_parquet(tmp_path / "rows.parquet")
    assert path.name == "rows.CURATOR-ONLY.parquet"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name], "nothing is left behind"
    back = pyarrow.parquet.read_table(path)
    assert back.schema.metadata[b"audience"] == b"curator-only"
    assert back["id"].to_pylist() == [1, 2, 3]
    # A name that says so already is kept.
    again = Result().to_parquet(path)
    assert again == path
    assert "id" not in pyarrow.parquet.read_table(again).column_names
    with pytest.raises(InvalidInput, match="suffix"):
        Result().to_parquet(tmp_path / "rows")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["a", "b", "c"], ("a", "b", "c")),
        (np.array(["a", "b", "c"]), ("a", "b", "c")),
        (np.array([1, 2, 3]), (1, 2, 3)),
        (range(3), (0, 1, 2)),
        ((0.5, 1.5, 2.5), (0.5, 1.5, 2.5)),
        (pd.Series([7, 8, 9], index=[3, 1, 2]), (7, 8, 9)),
        (pl.Series(["x", "y", "z"]), ("x", "y", "z")),
        ([1, "b", None], ("1", "b", "None")),
        ([1, 2.5, 3], ("1", "2.5", "3")),
        (
            [datetime.date(2026, 1, day) for day in (1, 2, 3)],
            ("2026-01-01", "2026-01-02", "2026-01-03"),
        ),
        ((key for key in "abc"), ("a", "b", "c")),
    ],
)
def test_keys_become_plain(ids, expected):
    result = row_keys(ids, 3)
    assert result == expected
    assert {type(key) for key in result} == {type(expected[0])}
    assert pa.table({"id": list(result)}).num_rows == 3


def test_no_keys():
    assert row_keys(None, 3) is None


@pytest.mark.parametrize("bad", [["a", "b"], [], range(4), np.arange(2)])
def test_one_key_for_each_row(bad):
    with pytest.raises(InvalidInput, match=r"^ids has \d entries.* 3 rows"):
        row_keys(bad, 3)


@pytest.mark.parametrize("bad", ["abc", 5, 5.0, True])
def test_what_is_no_sequence_of_keys(bad):
    with pytest.raises(InvalidInput, match="ids: must be a sequence"):
        row_keys(bad, 3)


def test_keys_are_not_shown_in_errors():
    with pytest.raises(InvalidInput) as caught:
        row_keys(["canary-1", "canary-2"], 3)
    assert "canary" not in str(caught.value)
