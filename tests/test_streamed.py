"""Rows that never stand in memory together: the same figures as if they did."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import expost
from expost.data import Encoding, UnitBall, open_table
from expost.engine import LocalEngine
from expost.errors import InvalidInput, PrivacyLeakWarning, SeededReleaseWarning
from expost.estimators import ESTIMATORS
from expost.glm import Objective, minimise
from expost.neighbouring.neighbours import neighbours_of
from expost.rows import RowBlock, RowStream, TableRows
from settings import OUTPUT

ROWS = 3_000


def table(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    score = x[:, 0] - x[:, 1] + rng.normal(size=rows)
    return pa.table(
        {
            "a": x[:, 0],
            "b.c": x[:, 1],
            "level": pa.array(rng.choice(["u", "v", "w"], rows)),
            "d": np.round(x[:, 2], 2),
            "y": pa.array(np.where(score > 0, "yes", "no")),
            "value": np.clip(score, -3, 3),
            "key": pa.array([f"k{i}" for i in range(rows)]),
        }
    )


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """Two files, with row groups that fit no block."""
    folder = tmp_path_factory.mktemp("parts")
    whole = table()
    pq.write_table(whole.slice(0, 1100), folder / "1.parquet", row_group_size=333)
    pq.write_table(whole.slice(1100), folder / "2.parquet", row_group_size=700)
    return str(folder / "*.parquet")


def opened(source, loss="logistic"):
    target = "value" if loss == "squared" else "y"
    other = "y" if loss == "squared" else "value"
    names = [name for name in table(2).column_names if name not in (other, "key")]
    rows = open_table(source, columns=names, id_column="key")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return rows, Encoding.read(
            rows, target=target, regression=loss == "squared", given={"data_norm": 4.0}
        )


def released(source, loss="logistic", **options):
    rows, encoding = opened(source, loss)
    encoded = encoding.encode_table(rows)
    classes = encoding.target.classes
    labels = encoded.y if classes is None else np.where(encoded.y > 0, classes[1], classes[0])
    squared = {"label_range": (-3.0, 3.0), "huber_width": None}
    bounds = squared if classes is None else {"classes": classes}
    settings = {**OUTPUT, "epsilon": 2.0, "regularization": 0.01, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        model = ESTIMATORS[loss](
            data_norm=encoding.data_norm, random_state=0, **bounds, **settings
        ).fit(encoded.X, labels)
    return model.release_, expost.profile(model, encoded.X, labels), rows, encoding


def streamed(release, rows, encoding, engine, size=None):
    loss = release.mechanism.loss
    stream = RowStream.of(rows, encoding, release.ball, label_scale=release.label_scale, size=size)
    penalty = np.full(stream.columns, release.mechanism.total_regularization)
    return Objective(rows=TableRows(stream=stream, engine=engine), loss=loss, penalty=penalty)


def figures(release, problem):
    every = release.mechanism.prepare(problem, release.theta)
    parts = [
        every(RowBlock.of(block.X, block.y))
        for item in problem.table.stream.items()
        for block in problem.table.stream.blocks(item)
    ]
    names = ("loss", "low", "high", "distance", "distance_error")
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("logistic", {}),
        ("logistic", {"noise": "gaussian", "delta": 1e-5}),
        ("huber-hinge", {}),
        ("squared", {}),
        ("logistic", {"margin": 1.5}),
        ("logistic", {"mechanism": "objective"}),
        ("logistic", {"mechanism": "objective", "margin": 1.5}),
        ("logistic", {"mechanism": "objective", "noise": "gaussian", "delta": 1e-5}),
        ("huber-hinge", {"mechanism": "objective"}),
    ],
)
def test_streamed_losses_are_those_of_rows_in_memory(parquet, loss, options):
    release, profile, rows, encoding = released(parquet, loss, **options)
    engine = LocalEngine(2)
    result = figures(release, streamed(release, rows, encoding, engine, size=256))
    engine.close()
    # The intervals of both hold the one true loss of each row.
    assert np.all(result["low"] <= profile.loss_high)
    assert np.all(result["high"] >= profile.loss_low)
    if profile.neighbours is None:
        scale = np.max(np.abs(profile.losses.loss))
        np.testing.assert_allclose(
            result["loss"], profile.losses.loss, rtol=1e-9, atol=1e-11 * scale
        )
        widths = profile.loss_high - profile.loss_low
        assert np.all(result["high"] - result["low"] <= 1.1 * widths + 1e-15)
        return
    # Rows are refined to the thousandth that rows in memory are, and are where those are.
    assert np.all(result["distance_error"] <= 1e-3 * result["distance"])
    problem = profile.neighbours.objective
    exact = neighbours_of(problem, minimise(problem), method="exact", tolerance=1e-5, warn=False)
    losses = release.mechanism.row_losses(release.theta, exact)
    half = 0.5 * (result["high"] - result["low"]) + 0.5 * (losses.high - losses.low)
    assert np.all(np.abs(result["loss"] - losses.loss) <= half)
    apart = np.abs(result["distance"] - exact.distance)
    assert np.all(apart <= result["distance_error"] + exact.error_bound)


def test_workers_change_no_byte_and_the_block_size_only_rounding(parquet):
    release, _, rows, encoding = released(parquet)
    every = []
    for workers, size in ((1, 256), (2, 256), (3, 256), (2, 100)):
        engine = LocalEngine(workers)
        every.append(figures(release, streamed(release, rows, encoding, engine, size)))
        engine.close()
    first, *same, other = every
    for again in same:
        assert all(np.array_equal(first[name], again[name]) for name in first)
    np.testing.assert_allclose(other["loss"], first["loss"], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(other["distance"], first["distance"], rtol=1e-10)


def test_the_layout_of_the_files_changes_no_byte(parquet, tmp_path):
    release, _, rows, encoding = released(parquet)
    pq.write_table(table(), tmp_path / "one.parquet", row_group_size=50)
    other, _ = opened(str(tmp_path / "one.parquet"))
    memory, _ = opened(table())
    engine = LocalEngine(2)
    first, two, three = (
        figures(release, streamed(release, source, encoding, engine, 256))
        for source in (rows, other, memory)
    )
    engine.close()
    assert all(np.array_equal(first[name], two[name]) for name in first)
    assert all(np.array_equal(first[name], three[name]) for name in first)


@pytest.mark.parametrize("loss", ["logistic", "huber-hinge", "squared"])
def test_the_minimiser_is_that_of_rows_in_memory(parquet, loss):
    release, profile, rows, encoding = released(parquet, loss, regularization=1e-4)
    engine = LocalEngine(2)
    problem = streamed(release, rows, encoding, engine, size=256)
    solution = minimise(problem)
    engine.close()
    assert solution.gradient_bound <= 1e-12
    apart = np.linalg.norm(solution.theta - profile.neighbours.base)
    assert apart <= 2e-12 / 1e-4


def test_blocks_are_of_one_size_and_in_order(parquet):
    rows, encoding = opened(parquet)
    stream = RowStream.of(rows, encoding, UnitBall(data_norm=8.0, fit_intercept=True), size=64)
    collected = [block for item in stream.items() for block in stream.blocks(item)]
    assert [len(block) for block in collected[:-1]] == [64] * (len(collected) - 1)
    assert [block.start for block in collected] == [64 * index for index in range(len(collected))]
    assert [key for block in collected for key in block.ids] == [f"k{i}" for i in range(ROWS)]
    assert sum(len(block) for block in collected) == ROWS


@pytest.mark.parametrize("size", [0, 2**15 + 1, 1.5])
def test_blocks_are_as_long_as_the_proofs_assume(parquet, size):
    rows, encoding = opened(parquet, "logistic")
    ball = UnitBall(data_norm=1.0, fit_intercept=True)
    with pytest.raises(InvalidInput, match="size="):
        RowStream.of(rows, encoding, ball, size=size)
