"""Rows of Dask collections: the bytes of the same rows in a file, wherever their partitions end."""

import itertools
import os
import pickle
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import expost
import streams
from expost import profile
from expost.data import Encoding, UnitBall, dask_rows, open_table
from expost.engine import engine_of
from expost.errors import InvalidInput, PrivacyLeakWarning, SeededReleaseWarning
from expost.estimators import PrivateLogisticRegression
from expost.glm import Objective
from expost.jobs.profile import run
from expost.labels import LabelScale
from expost.losses import Logistic, Squared
from expost.rows import RowStream, TableRows
from test_streamed import table

ROWS, SIZE = 700, 64
# Where partitions begin and end: one is empty, one smaller than a block, one of several.
ENDS = (0, 5, 5, 300, 301, 560, 700)
NAMES = ["a", "b.c", "level", "d", "y"]
BALL = UnitBall(data_norm=6.0, fit_intercept=True)


def part(span):
    """Rows of the table, made where they are asked for."""
    return table(ROWS).slice(span[0], span[1] - span[0]).to_pandas()


def frame(ends=ENDS):
    return dd.from_map(part, list(itertools.pairwise(ends)), meta=part((0, 1)))


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(table(ROWS), path, row_group_size=123)
    return str(path)


@pytest.fixture(scope="module")
def local():
    with engine_of("local:2") as engine:
        yield engine


def opened(source):
    rows = open_table(source, columns=NAMES, id_column="key")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return rows, Encoding.read(rows, target="y")


def problem_of(stream, engine, loss=None):
    penalty = np.full(stream.columns, 0.01)
    return Objective(
        rows=TableRows(stream=stream, engine=engine), loss=loss or Logistic(), penalty=penalty
    )


def sums(block):
    return (block.X.T @ block.X).tobytes() + (block.X.T @ block.y).tobytes()


def figures(stream, engine, loss=None):
    """One pass; all that a profile is made of is compared by its files, at the end."""
    sums_of_blocks = list(problem_of(stream, engine, loss).map(sums))
    assert len({*sums_of_blocks}) == -(-ROWS // SIZE)
    return sums_of_blocks


def blocks(stream):
    return [block for item in stream.items() for block in stream.blocks(item)]


def test_a_frame_has_the_blocks_and_the_bytes_of_a_file(parquet, local, two_workers, monkeypatch):
    rows, encoding = opened(parquet)
    spread, other = opened(frame())
    assert other.to_json() == encoding.to_json()
    assert spread.columns == rows.columns
    wanted = RowStream.of(rows, encoding, BALL, size=SIZE)
    stream = RowStream.of(spread, encoding, BALL, size=SIZE)
    assert isinstance(stream.reader.feed, dask_rows.DaskFeed)
    for first, two in zip(blocks(wanted), blocks(stream), strict=True):
        assert (first.start, len(first)) == (two.start, len(two))
        assert first.X.tobytes() == two.X.tobytes()
        assert first.y.tobytes() == two.y.tobytes()
        assert first.ids.tolist() == two.ids.tolist()
    expected = figures(wanted, local)
    assert figures(stream, local) == expected
    # On a cluster this process computes no rows.
    monkeypatch.setattr(dask_rows, "_value", None)
    assert figures(stream, two_workers) == expected


def who(block):
    return os.getpid()


def test_rows_stay_on_the_cluster(two_workers):
    spread, encoding = opened(frame())
    stream = RowStream.of(spread, encoding, BALL, size=SIZE)
    owners = {*problem_of(stream, two_workers).map(who)}
    assert owners <= {*two_workers.client.run(os.getpid).values()}
    # Nor does the recipe go along with the way to read it.
    assert len(pickle.dumps(stream)) < 8_000
    with pytest.raises(InvalidInput, match="only the process that opened"):
        next(pickle.loads(pickle.dumps(stream)).items())


def test_a_cluster_opens_a_frame_itself(parquet, two_workers, monkeypatch):
    rows, encoding = opened(parquet)
    # This process computes no rows.
    monkeypatch.setattr(dask_rows, "_value", None)
    spread = open_table(frame(), columns=NAMES, id_column="key", engine=two_workers)
    assert spread.columns == rows.columns
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        assert Encoding.read(spread, target="y").to_json() == encoding.to_json()
        table = open_table(parquet, columns=NAMES, id_column="key", engine=two_workers)
        assert Encoding.read(table, target="y").to_json() == encoding.to_json()


@pytest.mark.parametrize("ends", [(0, 700), (0, 64, 128, 700), (0, *range(1, 20), 700)])
def test_where_partitions_end_changes_no_block(ends):
    spread = open_table(frame(ends), columns=NAMES, id_column="key")
    _, encoding = opened(table(ROWS))
    stream = RowStream.of(spread, encoding, BALL, size=SIZE)
    whole = RowStream.of(opened(table(ROWS))[0], encoding, BALL, size=SIZE)
    for first, two in zip(blocks(whole), blocks(stream), strict=True):
        assert first.start == two.start
        assert first.X.tobytes() == two.X.tobytes()


def test_a_frame_that_the_cluster_holds_already(parquet, two_workers, local):
    rows, encoding = opened(parquet)
    expected = figures(RowStream.of(rows, encoding, BALL, size=SIZE), local)
    held = two_workers.client.persist(frame())
    spread, _ = opened(held)
    stream = RowStream.of(spread, encoding, BALL, size=SIZE)
    assert figures(stream, two_workers) == expected
    assert figures(stream, local) == expected
    # A second client knows nothing of what the first one holds.
    with (
        distributed.Client(two_workers.client.cluster, set_as_default=False) as other,
        engine_of(other) as engine,
        pytest.raises(InvalidInput, match="persisted with"),
    ):
        list(problem_of(stream, engine).map(who))


def arrays(seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, 5))
    y = np.where(X[:, 0] + rng.normal(size=ROWS) > 0, 1, 0)
    return X, y


@pytest.mark.parametrize("regression", [False, True])
def test_arrays_have_the_bytes_of_a_file(local, two_workers, tmp_path, regression):
    X, y = arrays()
    y = y + 0.25 if regression else y
    columns = {f"x{index}": X[:, index] for index in range(5)}
    pq.write_table(pa.table({**columns, "y": y}), tmp_path / "rows.parquet")
    classes, loss = (None, Squared(label_bound=2.0)) if regression else ((0, 1), None)
    scale = LabelScale(bound=2.0) if regression else None
    X, y = da.from_array(X, chunks=((5, 295, 400), (2, 3))), da.from_array(y, chunks=(333,))
    stream = RowStream.of_arrays(X, y, BALL, classes=classes, label_scale=scale, size=SIZE)
    file = open_table(tmp_path / "rows.parquet", missing=())
    wanted = RowStream.of(file, stream.encoding, BALL, label_scale=scale, size=SIZE)
    expected = figures(wanted, local, loss)
    assert figures(stream, local, loss) == expected
    assert figures(stream, two_workers, loss) == expected


def test_opening_arrays_computes_nothing():
    def refuse(*_):
        raise AssertionError

    X = da.zeros((10, 2), chunks=(5, 2)).map_blocks(refuse, dtype=float)
    y = da.zeros(10, chunks=5).map_blocks(refuse, dtype=float)
    stream = RowStream.of_arrays(X, y, BALL)
    assert (stream.count, stream.columns) == (10, 3)
    with pytest.raises(InvalidInput, match=r"could not be computed \(AssertionError\)"):
        blocks(stream)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (da.zeros((10, 2)), da.zeros(9), "10 and 9 rows"),
        (da.zeros(10), da.zeros(10), r"of shapes \(n, d\) and \(n,\)"),
        (np.zeros(10), np.zeros(10), r"of shapes \(n, d\) and \(n,\)"),
        (da.zeros((10, 0)), da.zeros(10), "at least one row and one column"),
        (da.zeros((10, 2))[da.zeros(10) == 0], da.zeros(10), "X: has an unknown length"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(X, y, message):
    with pytest.raises(InvalidInput, match=message):
        RowStream.of_arrays(X, y, BALL)


def test_a_cell_that_is_no_number_is_told_by_its_row(two_workers):
    X, y = arrays()
    X[612, 3] = np.nan
    X, y = da.from_array(X, chunks=(100, 5)), da.from_array(y, chunks=100)
    stream = RowStream.of_arrays(X, y, BALL, classes=(0, 1), size=SIZE)
    with pytest.raises(InvalidInput, match=r"column 'x3', row 613: is missing"):
        list(problem_of(stream, two_workers).map(who))
    other = RowStream.of_arrays(X, y, BALL, classes=(0, 2), size=SIZE)
    with pytest.raises(InvalidInput, match="is neither '0' nor '2'"):
        blocks(other)


def test_partitions_that_differ_in_type_are_refused():
    first = dask.delayed(pd.DataFrame)({"a": pd.Series([1, 2], dtype=object)})
    second = dask.delayed(pd.DataFrame)({"a": pd.Series(["u", "v"], dtype=object)})
    meta = pd.DataFrame({"a": pd.Series([], dtype=object)})
    with dask.config.set({"dataframe.convert-string": False}):
        mixed = dd.from_delayed([first, second], meta=meta, verify_meta=False)
        with pytest.raises(InvalidInput, match=r"column 'a': .*\(int64, string\)"):
            open_table(mixed)
        empty = dask.delayed(pd.DataFrame)({"a": pd.Series([None, None], dtype=object)})
        text = dd.from_delayed([empty, second, empty], meta=meta, verify_meta=False)
        opened_text = open_table(text)
    assert opened_text["a"].kind == "text"
    assert opened_text["a"].missing == 4
    assert opened_text.column("a").to_pylist() == [None, None, "u", "v", None, None]


def test_names_and_columns_that_cannot_be_used():
    numbers = dd.from_pandas(pd.DataFrame({0: [1.0, 2.0]}), npartitions=1)
    with pytest.raises(InvalidInput, match="name of a column is not a string"):
        open_table(numbers)
    dates = pd.DataFrame({"a": [1.0, 2.0], "when": pd.to_datetime(["2026-01-01", "2026-01-02"])})
    dated = dd.from_pandas(dates, npartitions=2)
    assert open_table(dated, columns=["a"]).rows == 2
    with pytest.raises(InvalidInput, match="column 'when': is of type timestamp"):
        open_table(dated)
    levels = pd.DataFrame({"a": pd.Categorical(["u", "v", "u"]), "b": [1.0, 2.0, 3.0]})
    table_ = open_table(dd.from_pandas(levels, npartitions=2))
    assert table_["a"].kind == "text"
    assert table_.levels(["a"], at_most=5) == {"a": ("u", "v")}


def shrink(span, path):
    return part(span) if not path.exists() else part(span).iloc[:-1]


def test_a_partition_that_changes_is_told(tmp_path):
    spans = list(itertools.pairwise(ENDS))
    source = dd.from_map(shrink, spans, path=tmp_path / "mark", meta=part((0, 1)))
    spread, encoding = opened(source)
    stream = RowStream.of(spread, encoding, BALL, size=SIZE)
    (tmp_path / "mark").touch()
    with pytest.raises(InvalidInput, match="partition changed"):
        blocks(stream)


def people(span):
    return streams.table().slice(span[0], span[1] - span[0]).to_pandas()


def test_a_profile_has_the_files_of_one_from_parquet(two_workers, tmp_path, monkeypatch):
    streams.small_blocks(monkeypatch)
    source = streams.write(tmp_path)
    run(streams.job(source, tmp_path / "made", engine="local:1"))
    model = tmp_path / "made" / "model.json"
    spans = list(itertools.pairwise((0, 7, 200, 201, streams.ROWS)))
    frame = dd.from_map(people, spans, meta=people((0, 1)))
    options = {"ids": "number"}
    profile(model, source, out=tmp_path / "file", engine="local:2", **options)
    profile(model, frame, out=tmp_path / "frame", engine=two_workers.client, **options)
    name = "profile.CURATOR-ONLY.parquet"
    wanted = streams.contents(tmp_path / "file" / name)
    assert len(wanted) >= 5
    assert streams.contents(tmp_path / "frame" / name) == wanted


def test_a_profile_of_arrays_is_that_of_rows_in_memory(tmp_path):
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(700, 3)), rng.integers(0, 2, size=700)
    with pytest.warns(PrivacyLeakWarning), pytest.warns(SeededReleaseWarning):
        model = PrivateLogisticRegression(data_norm=5.0, random_state=0).fit(X, y)
    arrays = da.from_array(X, chunks=(300, 2)), da.from_array(y, chunks=90)
    result = profile(model, *arrays, out=tmp_path / "arrays")
    wanted = expost.profile(model, X, y)
    lines = pa.concat_tables(result.batches())
    assert lines.num_rows == 700
    loss = lines.column("loss").to_numpy()
    np.testing.assert_allclose(loss, wanted.loss, rtol=1e-6, atol=1e-9)
    with pytest.raises(InvalidInput, match="X has 2 columns, and the model 3"):
        profile(model, arrays[0][:, :2], arrays[1], out=tmp_path / "other")
    with pytest.raises(InvalidInput, match="are for tables"):
        profile(model, X, y, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()
