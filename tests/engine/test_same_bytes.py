"""Who computes changes no byte: threads or processes, one or several, however the file lies."""

import pickle

import distributed
import numpy as np
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from expost.data._feeds import ParquetFeed, StreamFeed
from expost.engine import engine_of
from expost.glm import minimise
from expost.neighbouring.expansion import curvature_of
from test_streamed import opened, released, streamed, table

# Blocks that neither row groups nor files fit, in two items.
ROWS, SIZE = 1_100, 96


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    whole = table(ROWS)
    pq.write_table(whole.slice(0, 437), folder / "1.parquet", row_group_size=111)
    pq.write_table(whole.slice(437), folder / "2.parquet", row_group_size=509)
    return str(folder / "*.parquet")


@pytest.fixture(scope="module")
def local():
    with engine_of("local:1") as engine:
        yield engine


@pytest.fixture(scope="module")
def losses(parquet, local):
    """What the losses of any block follow from, for three models of one table."""
    arrays = []
    for loss, options in (
        ("huber-hinge", {}),
        ("squared", {}),
        ("logistic", {"mechanism": "objective"}),
    ):
        release, _, rows, encoding = released(parquet, loss, **options)
        problem = streamed(release, rows, encoding, local, SIZE)
        arrays.append((release, rows, encoding, release.mechanism.prepare(problem, release.theta)))
    return arrays


def everything(losses, engine, source=None):
    """All that a profile is made of, as bytes."""
    arrays = []
    for release, rows, encoding, every in losses:
        problem = streamed(release, source or rows, encoding, engine, SIZE)
        for part in problem.map(every):
            arrays += [part.loss, part.low, part.high, part.distance, part.distance_error]
    release, rows, encoding, _ = losses[0]
    problem = streamed(release, source or rows, encoding, engine, SIZE)
    base = minimise(problem)
    curvature = curvature_of(problem, base)
    arrays += [base.theta, curvature.second, curvature.long_rows, np.array(curvature.weight)]
    return [np.asarray(array).tobytes() for array in arrays]


def test_the_engine_changes_no_byte(losses, local, two_workers):
    first = everything(losses, local)
    assert len(first) == 3 * 5 * -(-ROWS // SIZE) + 4
    assert len(set(first)) > 100
    # A process more would import everything once more.
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        engine_of(cluster.scheduler_address.replace("tcp", "dask")) as alone,
        engine_of("local:3") as three,
    ):
        for engine in (three, alone, two_workers):
            assert everything(losses, engine) == first


def test_a_table_that_is_read_from_its_beginning_is_handed_out(
    losses, local, two_workers, tmp_path
):
    pc.write_csv(table(ROWS), tmp_path / "table.csv")
    typed, _ = opened(str(tmp_path / "table.csv"), "huber-hinge")
    release, _, encoding, _ = losses[0]
    stream = streamed(release, typed, encoding, local, SIZE).table.stream
    assert isinstance(stream.reader.feed, StreamFeed)
    assert everything(losses[:1], two_workers, typed) == everything(losses[:1], local)


def test_what_travels_holds_no_rows(losses):
    release, rows, encoding, _ = losses[0]
    stream = streamed(release, rows, encoding, None, SIZE).table.stream
    assert isinstance(stream.reader.feed, ParquetFeed)
    assert all(len(pickle.dumps(item)) < 200 for item in stream.items())
    content = pickle.dumps(stream)
    assert len(content) < 8_000
    assert b"k1099" not in content
    # Nor does a table in memory go along with the way to read it.
    memory, _ = opened(table(ROWS))
    other = streamed(release, memory, encoding, None, SIZE).table.stream
    assert len(pickle.dumps(other)) < 8_000
