"""Which ε, for rows that are read in blocks: the answer of rows in memory, to what is stated."""

import json
import math
import pickle
import warnings
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import expost
from expost._order import Histogram, Sorted
from expost.data import Encoding, UnitBall, open_table
from expost.engine import SILENT, LocalEngine
from expost.epsilon import folds as folds_module
from expost.epsilon import ranked as ranked_module
from expost.epsilon.choose import choose_for, seeds_of
from expost.epsilon.folds import HeldOutRows
from expost.epsilon.sweep import Distances
from expost.epsilon.utility import Trials
from expost.errors import InvalidInput, PrivacyLeakWarning
from expost.estimators import ESTIMATORS
from expost.files.parts import PartStore
from expost.glm import Objective
from expost.jobs import epsilon as epsilon_job
from expost.jobs import runs
from expost.jobs.output import MANIFEST
from expost.jobs.requests import EpsilonRequest
from expost.jobs.workspace import Workspace
from expost.labels import LabelScale
from expost.preparing import read_rows
from expost.report import document_of, parse_json, render_json
from expost.report.slider import slider_of_choice
from expost.rows import RowStream, TableRows
from program import names as names_of
from recorded_progress import RecordedProgress
from report.cells import table_of
from settings import question_of

ROWS = 1_500
CASES = [
    ("logistic", "laplace"),
    ("logistic", "gaussian"),
    ("huber-hinge", "laplace"),
    ("squared", "laplace"),
]
by_case = pytest.mark.parametrize(("loss", "noise"), CASES)


def table(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    score = x[:, 0] - x[:, 1] + rng.normal(size=rows)
    return pa.table(
        {
            "a": x[:, 0],
            "b": x[:, 1],
            "level": pa.array(rng.choice(["u", "v", "w"], rows)),
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
    pq.write_table(whole.slice(0, 700), folder / "1.parquet", row_group_size=333)
    pq.write_table(whole.slice(700), folder / "2.parquet", row_group_size=700)
    return str(folder / "*.parquet")


@pytest.fixture(scope="module")
def engine():
    engine = LocalEngine(2)
    yield engine
    engine.close()


@cache
def opened(source, loss="logistic"):
    target, other = ("value", "y") if loss == "squared" else ("y", "value")
    names = [name for name in table(2).column_names if name not in (other, "key")]
    rows = open_table(source, columns=names, id_column="key")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return rows, Encoding.read(rows, target=target, regression=loss == "squared")


def options_of(encoding, noise):
    bounds = {
        "mechanism": "output",
        "data_norm": encoding.data_norm,
        "regularization": 0.01,
        "intercept_scaling": 0.1,
        "noise": noise,
    }
    bounds |= {"delta": 1e-5} if noise == "gaussian" else {}
    if encoding.target.classes is None:
        return {**bounds, "label_range": (-3.0, 3.0)}
    return {**bounds, "classes": encoding.target.classes}


def in_memory(source, loss="logistic", noise="laplace", **question):
    rows, encoding = opened(source, loss)
    encoded = encoding.encode_table(rows)
    classes = encoding.target.classes
    labels = encoded.y if classes is None else np.where(encoded.y > 0, classes[1], classes[0])
    return expost.choose_epsilon(
        encoded.X, labels, loss=loss, **options_of(encoding, noise), **question
    )


def prepared_of(source, engine, loss="logistic", noise="laplace", size=256):
    rows, encoding = opened(source, loss)
    ball = UnitBall(data_norm=encoding.data_norm, fit_intercept=True)
    scale = LabelScale.within((-3.0, 3.0)) if loss == "squared" else None
    stream = RowStream.of(rows, encoding, ball, label_scale=scale, size=size)
    estimator = ESTIMATORS[loss](epsilon=1.0, **options_of(encoding, noise))
    rows = TableRows(stream=stream, engine=engine)
    read, facts = read_rows(rows)
    return estimator.ready_table(read, rows, facts)


def streamed(
    source, engine, folder, loss="logistic", noise="laplace", size=256, seed=0, **question
):
    prepared = prepared_of(source, engine, loss, noise, size)
    store = PartStore.at(folder / f"{loss}-{noise}-{size}")
    choice = choose_for(prepared, question_of(**question), seeds_of(seed), store=store)
    store.finish(choice.parts, {})
    return choice, pa.concat_tables(store.tables())


# -- the answer ------------------------------------------------------------------------------------


@by_case
def test_the_answer_is_that_of_rows_in_memory(parquet, engine, tmp_path, loss, noise):
    expected = in_memory(parquet, loss, noise, folds=0)
    result, rows = streamed(parquet, engine, tmp_path, loss, noise, folds=0)
    single = result.sweep.distances
    every = expected.sweep.distances
    # Both ends are proved, by certificates that need not be the same one.
    slack = 3e-3 if loss == "huber-hinge" else 1e-5
    assert single.farthest == pytest.approx(every.farthest, rel=slack)
    assert single.largest == pytest.approx(every.largest, rel=slack)
    for name in ("low", "ceiling", "recommended"):
        assert getattr(result, name) == pytest.approx(getattr(expected, name), rel=2 * slack), name
    # No sooner than in memory, and later by a bucket at most.
    width = 2 * Histogram.RELATIVE_ERROR
    assert expected.high * (1 - slack) <= result.high
    assert result.high <= expected.high * (1 + 2 * width + 2 * slack)
    assert result.sweep.share == 0.5
    assert document_of(result).verdict.more == document_of(expected).verdict.more
    assert result.description == expected.description
    # Arrays do not say where their columns come from.
    assert set(expected.read_from_data) < set(result.read_from_data)
    assert result.notices[:-1] == expected.notices
    assert result.notices[-1].startswith("The rows were read in blocks")
    assert f"{100 * width:.1f} %" in result.notices[-1]
    grid = expected.epsilons
    np.testing.assert_allclose(result.sweep.posterior(grid), expected.posterior, rtol=4 * slack)
    other = replace(result.sweep, epsilons=grid).one_sidedness
    np.testing.assert_allclose(other.farthest, expected.one_sidedness.farthest, atol=4 * slack)
    np.testing.assert_allclose(other.median, expected.one_sidedness.median, atol=2 * width)
    # Every row's own line.
    names = ["row", "id", "critical_epsilon", "distance", "distance_error"]
    assert rows.column_names == names
    assert rows.column("row").to_pylist() == list(range(ROWS))
    assert rows.column("id").to_pylist() == [f"k{i}" for i in range(ROWS)]
    whole = replace(expected, ids=tuple(rows.column("id").to_pylist())).columns()
    assert list(whole) == names
    distance, error = (rows.column(name).to_numpy() for name in names[3:])
    assert np.all(np.abs(distance - whole["distance"]) <= error + whole["distance_error"])
    at = result.sweep.mechanism.epsilon_at(result.sweep.transition.leaves, distance + error)
    np.testing.assert_array_equal(rows.column("critical_epsilon").to_numpy(), at)


def test_the_document_is_that_of_rows_in_memory(parquet, engine, tmp_path):
    choice, rows = streamed(parquet, engine, tmp_path, folds=0)
    # The same rows, held.
    held = Distances.of(
        rows.column("distance").to_numpy(), rows.column("distance_error").to_numpy()
    )
    again = replace(choice, sweep=replace(choice.sweep, distances=held))
    result, expected = document_of(choice), document_of(again)
    assert parse_json(render_json(result)).documents == (result,)
    assert expected.facts == document_of(in_memory(parquet, folds=0)).facts
    assert result.facts == expected.facts
    assert result.facts["rows"] == ROWS
    assert (result.verdict, result.tiles) == (expected.verdict, expected.tiles)
    for (share, first), (other_share, other) in zip(
        *(table_of(each, "transition").values for each in (result, expected)), strict=True
    ):
        assert share == other_share
        # Rows leave no later than is said; the first and the last one just then.
        bucket = 0.0 if share in (0, 1) else 2.1 * Histogram.RELATIVE_ERROR
        assert other * (1 - bucket) <= first <= other
    for first, other in zip(
        *(table_of(each, "epsilon-table").values for each in (result, expected)), strict=True
    ):
        (*same, middle, largest), (*too, other_middle, other_largest) = first, other
        assert (same, largest) == (too, other_largest)
        # More exposed than it is, if at all.
        assert other_middle <= middle <= other_middle * (1 + 4.1 * Histogram.RELATIVE_ERROR)
    exact, other = slider_of_choice(choice).exact, slider_of_choice(again).exact
    assert exact.farthest == other.farthest
    apart = np.array(exact.distances) / np.array(other.distances)
    assert np.all((apart >= 1) & (apart <= 1 + 2.001 * Histogram.RELATIVE_ERROR))
    assert np.any(apart > 1)
    assert other.error < 1e-9 < Histogram.RELATIVE_ERROR < exact.error


def test_no_row_has_a_figure_in_memory_or_in_the_json(parquet, engine, tmp_path):
    choice, _ = streamed(parquet, engine, tmp_path, folds=0)
    for name in ("critical_epsilon", "expected"):
        with pytest.raises(InvalidInput, match="read the folder epsilon"):
            getattr(choice, name)
    with pytest.raises(InvalidInput, match="holds no figure of each row"):
        choice.to_arrow()
    fields = json.loads(choice.to_json())
    assert fields["table"] == "epsilon.CURATOR-ONLY.parquet"
    assert fields["rows"] == ROWS
    assert len(choice.to_json()) < 20_000


class Elsewhere:
    """An engine whose tasks, items and results travel."""

    workers = 1

    def map(self, task, items):
        there = pickle.dumps(task)
        for item in items:
            yield pickle.loads(pickle.dumps(pickle.loads(there)(pickle.loads(pickle.dumps(item)))))


def test_no_byte_depends_on_where_the_rows_are(parquet, engine, tmp_path, monkeypatch):
    monkeypatch.setattr(ranked_module, "SAMPLED_ROWS", 300)
    options = {"folds": 2, "models": 6, "epsilons": [1.0, 50.0]}
    here, rows = streamed(parquet, engine, tmp_path / "here", **options)
    there, others = streamed(parquet, Elsewhere(), tmp_path / "there", **options)
    assert here.to_json() == there.to_json()
    assert rows.equals(others)
    assert here.ranked.tobytes() == there.ranked.tobytes()
    # Another size of blocks only rounds.
    other, _ = streamed(parquet, engine, tmp_path / "other", size=1024, **options)
    assert other.low == pytest.approx(here.low, rel=1e-10)
    np.testing.assert_allclose(other.ranked, here.ranked, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(other.utility.leading.mean, here.utility.leading.mean, rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_objective_perturbation_is_followed_in_blocks(engine, tmp_path, classes):
    """All figures are those of rows in memory, to what is stated."""
    rows = table(300)
    a, b = (rows.column(name).to_numpy() for name in "ab")
    codes = np.argmax(np.stack([a, b, np.zeros(300)])[:classes], axis=0)
    labels = pa.array(np.array(["p", "q", "r"])[codes])
    path = tmp_path / "few.parquet"
    pq.write_table(rows.set_column(rows.column_names.index("y"), "y", labels), path)
    names = ["a", "b", "y"]
    opened_rows = open_table(str(path), columns=names, id_column="key")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        encoding = Encoding.read(opened_rows, target="y")
    ball = UnitBall(data_norm=encoding.data_norm, fit_intercept=True)
    stream = RowStream.of(opened_rows, encoding, ball, size=64)
    source = TableRows(stream=stream, engine=engine)
    estimator = ESTIMATORS["logistic"](
        mechanism="objective",
        regularization=0.02,
        intercept_scaling=0.1,
        data_norm=encoding.data_norm,
        classes=encoding.target.classes,
    )
    question = question_of(epsilons=[1.0, 30.0], models=20, folds=2)
    choices = []
    for hold in (False, True):
        read, facts = read_rows(source, hold=hold)
        store = None if hold else PartStore.at(tmp_path / "parts")
        ready = estimator.ready_table(read, source, facts)
        choices.append(choose_for(ready, question, seeds_of(4), store=store))
    result, true = choices
    assert result.sweep.mechanism.loss.outputs == (1 if classes == 2 else 3)
    # What is public, or follows from a bound on every gradient, is the same to the last digits.
    assert (result.verdict, result.ceiling) == (true.verdict, true.ceiling)
    assert result.recommended == true.recommended
    assert result.low == pytest.approx(true.low, rel=1e-9)
    assert result.sweep.farthest == pytest.approx(true.sweep.farthest, rel=1e-12)
    np.testing.assert_array_equal(result.posterior, true.posterior)
    # The rest is counted: no sooner than in memory, and later by a bucket at most.
    width = 2 * Histogram.RELATIVE_ERROR
    assert true.high * (1 - 1e-9) <= result.high <= true.high * (1 + 4 * width)
    assert list(result.utility.curves) == list(true.utility.curves)
    assert ("auc" in result.utility.curves) == (classes == 2)
    for name, curve in result.utility.curves.items():
        np.testing.assert_allclose(curve.mean, true.utility.curves[name].mean, rtol=1e-6)
    assert result.notices[:-1] == true.notices
    assert result.notices[-1].startswith("The rows were read in blocks")
    store = PartStore(folder=tmp_path / "parts")
    store.finish(result.parts, {})
    table_of_rows = pa.concat_tables(store.tables())
    names = ["critical_epsilon", "distance", "distance_error"]
    assert table_of_rows.column_names == ["row", "id", *names]
    for name in names:
        np.testing.assert_allclose(
            table_of_rows.column(name).to_numpy(), true.columns()[name], rtol=1e-7
        )
    assert json.loads(result.to_json())["table"] == "epsilon.CURATOR-ONLY.parquet"
    np.testing.assert_allclose(result.ranked, true.ranked, rtol=1e-3, atol=1e-6)


# -- counted distances -----------------------------------------------------------------------------


def distances(seed, n=4_001):
    rng = np.random.default_rng(seed)
    distance = np.exp(rng.normal(-9, 1.5, n))
    error = distance * rng.choice([1e-9, 1e-3, 0.3], n)
    if seed == 1:
        distance[:50], error[7] = 0.0, np.inf
    return distance, error


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_counted_distances_err_to_the_safe_side(seed):
    distance, error = distances(seed)
    every = Distances.of(distance, error)
    # The second one's largest rows lie past the top.
    top = float(np.max(distance)) * (1.0 if seed < 2 else 0.1)
    count = partial(Histogram.of, top=top)
    single = Distances.of(distance, error, count)
    parts = [
        Distances.of(d, e, count)
        for d, e in zip(np.array_split(distance, 7), np.array_split(error, 7), strict=True)
    ]
    total = parts[3]
    for part in [*parts[:3], *parts[4:]]:
        total = total.merged(part)
    ranks = np.array([1, 2, 3, 40, 2_000, 2_001, 3_000, 4_001])
    width = 2 * Histogram.RELATIVE_ERROR
    for result in (single, total):
        for name in ("rows", "farthest", "largest"):
            assert getattr(result, name) == getattr(every, name), name
        assert result.distance.least_positive == every.distance.least_positive
        near = np.array([result.near(int(rank)) for rank in ranks])
        true = np.array([every.near(int(rank)) for rank in ranks])
        assert np.all(near <= true)
        assert np.any(near < true)
        inside = true < top
        assert np.all(near[inside] >= true[inside] * (1 - width))
        far, true = result.far(ranks), every.far(ranks)
        assert np.all(far >= true)
        inside = (true < top * (1 - width)) & (true > 0)
        assert np.all(far[inside] <= true[inside] * (1 + width))
        assert far[0] == true[0] == result.farthest
        assert far[-1] == true[-1]
    np.testing.assert_array_equal(total.at(ranks), single.at(ranks))
    inside = every.at(ranks) < top
    at, true = single.at(ranks)[inside], every.at(ranks)[inside]
    assert np.all((true <= at) & (at <= true * (1 + width)))
    assert np.any(true < at)
    assert every.median <= single.median <= every.median * (1 + width)
    assert single.at(np.array([1]))[0] == every.largest


def test_a_distance_that_is_no_number_is_not_counted():
    for statistics in (Sorted, partial(Histogram.of, top=1.0)):
        with pytest.raises(ArithmeticError):
            Distances.of(np.array([1.0, math.nan]), np.zeros(2), statistics)
        # An error that is none proves nothing: the row may be anywhere.
        result = Distances.of(np.array([0.5, 0.25]), np.array([math.nan, 0.0]), statistics)
        assert result.farthest == math.inf
        assert result.near(2) == 0


# -- models on held-out rows -----------------------------------------------------------------------


def rows_of(prepared):
    stream = prepared.objective.table.stream
    blocks = [block for item in stream.items() for block in stream.blocks(item)]
    X, y = (np.concatenate([getattr(block, name) for block in blocks]) for name in "Xy")
    return X, y


def held_of(prepared):
    """The same rows in memory."""
    problem, (X, y) = prepared.objective, rows_of(prepared)
    return Objective.of(X=X, y=y, loss=problem.loss, penalty=problem.penalty)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_rows_fold_is_its_own_whatever_block_it_is_in(parquet, engine, loss):
    prepared = prepared_of(parquet, engine, loss, size=192)
    single = HeldOutRows.of(prepared.objective, 7, key=2**64 - 3)
    assert single.rows.count == ROWS
    for other in (held_of(prepared), prepared_of(parquet, engine, loss, size=960).objective):
        again = HeldOutRows.of(other, 7, key=2**64 - 3)
        np.testing.assert_array_equal(again.fold, single.fold)
        np.testing.assert_array_equal(again.order, single.order)
        np.testing.assert_array_equal(again.rows.y, single.rows.y)
    other = HeldOutRows.of(prepared.objective, 7, key=2)
    assert np.mean(other.fold == single.fold) < 0.3


def test_rows_that_are_drawn_from_many_do_not_depend_on_blocks(parquet, engine, monkeypatch):
    monkeypatch.setattr(folds_module, "MOST_ROWS", 400)
    prepared = prepared_of(parquet, engine, size=192)
    single = HeldOutRows.of(prepared.objective, 4, key=9)
    # Each row is taken with probability 400/1,500: five standard deviations are 86.
    assert abs(single.rows.count - 400) < 86
    for other in (held_of(prepared), prepared_of(parquet, engine, size=960).objective):
        again = HeldOutRows.of(other, 4, key=9)
        np.testing.assert_array_equal(again.order, single.order)
        np.testing.assert_array_equal(again.fold, single.fold)


@pytest.mark.parametrize("loss", ["logistic", "huber-hinge", "squared"])
def test_the_utility_is_that_of_rows_in_memory(parquet, engine, loss):
    """Which test_utility.py compares with scikit-learn."""
    prepared = prepared_of(parquet, engine, loss, size=512)
    result, true = (
        Trials(
            objective=problem,
            plan=prepared.mechanism_at,
            folds=3,
            releases=4,
            seed=np.random.SeedSequence(3),
        )
        for problem in (prepared.objective, held_of(prepared))
    )
    for trials in (result, true):
        trials.score(0.5, 20.0)
    result, true = result.utility(), true.utility()
    assert set(result.curves) == set(true.curves)
    for name, curve in result.curves.items():
        for figure, value in vars(curve).items():
            expected = getattr(true.curves[name], figure)
            np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-9)


def test_too_few_rows_of_a_class_are_refused(engine, tmp_path):
    rows = table(400)
    few = np.where(np.arange(400) < 10, "yes", "no")
    path = tmp_path / "few.parquet"
    pq.write_table(rows.set_column(rows.column_names.index("y"), "y", pa.array(few)), path)
    # Two rows of the rarest class in every fold, whatever the seed.
    choice, _ = streamed(str(path), engine, tmp_path, seed=1, folds=5, models=10)
    assert np.all(np.isfinite(choice.utility.curves["auc"].mean))
    with pytest.raises(InvalidInput, match="folds=6: the rarest class has 10 rows"):
        streamed(str(path), engine, tmp_path, folds=6, models=10)


# -- ranked ----------------------------------------------------------------------------------------


def test_few_rows_are_ranked_as_in_memory(parquet, engine, tmp_path):
    options = {"folds": 0, "models": 30, "epsilons": [1.0, 50.0]}
    choice, _ = streamed(parquet, engine, tmp_path, **options)
    every = in_memory(parquet, random_state=0, **options)
    for result, true in zip(choice.ranked, every.ranked, strict=True):
        np.testing.assert_allclose(result, true, rtol=1e-3, atol=1e-5 * true[-1])
    np.testing.assert_array_equal(choice.ranks, np.arange(1, ROWS + 1))
    assert choice.rank_error == 0


def test_a_sample_of_many_rows_is_ranked_to_its_stated_error(
    parquet, engine, tmp_path, monkeypatch
):
    options = {"folds": 0, "models": 20, "epsilons": [1.0, 3e3]}
    every, _ = streamed(parquet, engine, tmp_path, **options)
    assert every.ranked.shape == (2, ROWS)
    monkeypatch.setattr(ranked_module, "SAMPLED_ROWS", 800)
    some, _ = streamed(parquet, engine, tmp_path / "again", size=128, **options)
    assert len(some.ranks) == 800
    assert np.all(np.diff(some.ranks) > 0)
    assert (some.ranks[0], some.ranks[-1]) == (1, ROWS)
    # P(sup∣F_s − F∣ > t) ≤ 2e^(−2st²) in each of 40 models: 1e-3 in all.
    assert 40 * 2 * math.exp(-2 * 800 * some.rank_error**2) == pytest.approx(1e-3)

    def is_between(error):
        off = math.ceil(error * ROWS) + 2
        low = np.maximum(some.ranks - off, 1) - 1
        high = np.minimum(some.ranks + off, ROWS) - 1
        inside = (every.ranked[:, low] <= some.ranked) & (some.ranked <= every.ranked[:, high])
        return bool(np.all(inside))

    assert is_between(some.rank_error)
    assert not is_between(some.rank_error / 20)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def run_job(tmp_path, monkeypatch):
    """Run the job on one file of 700 rows, cut into parts of 256 rows."""
    monkeypatch.setattr("expost.rows._BLOCK_ROWS", 64)
    monkeypatch.setattr("expost.data._feeds._BLOCKS_AN_ITEM", 4)
    monkeypatch.setattr(runs, "made_now", lambda: "2026-11-16 12:00 UTC")
    monkeypatch.setattr(runs.secrets, "token_hex", lambda count: "5a" * count)
    path = tmp_path / "people.parquet"
    pq.write_table(table(700).drop_columns(["value"]), path, row_group_size=300)

    def call(out="o", *, engine="local:2", resume=False, progress=SILENT, **options):
        values = {"models": 10, "folds": 2, "regularization": 0.01, **options}
        job = EpsilonRequest(
            source=str(path),
            target="y",
            out=tmp_path / out,
            name="people.parquet",
            id_column="key",
            engine=engine,
            resume=resume,
            **values,
        )
        return epsilon_job.run(job, progress)

    return call


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def test_the_same_bytes_for_every_engine_and_interruption(run_job, tmp_path, monkeypatch):
    out = tmp_path / "o"
    recorded = RecordedProgress()
    outcome = run_job(engine="local:1", progress=recorded)
    assert len(recorded.phases) == epsilon_job.PHASES
    undisturbed = contents(out)
    names = {name.split("/")[0] for name in undisturbed}
    assert names == {
        "encoding.CURATOR-ONLY.json",
        "epsilon.CURATOR-ONLY.json",
        "epsilon.CURATOR-ONLY.parquet",
        "report.CURATOR-ONLY.html",
        "summary.CURATOR-ONLY.json",
    }
    assert sum(name.startswith("epsilon.CURATOR-ONLY.parquet/part-") for name in undisturbed) == 3
    assert outcome.files["table"].name == "epsilon.CURATOR-ONLY.parquet"
    assert pq.read_table(outcome.files["table"]).num_rows == 700
    assert parse_json(undisturbed["summary.CURATOR-ONLY.json"]).documents[0].facts["rows"] == 700
    assert outcome.command[:3] == ("expost", "profile", str(tmp_path / "people.parquet"))

    # Over that run: the second part cannot be written; then the process ends at the last step.
    write, written = PartStore.write, []

    def full(store, index, rows):
        if index >= 1:
            raise OSError(28, "No space left on device")
        written.append(index)
        return write(store, index, rows)

    monkeypatch.setattr(PartStore, "write", full)
    with pytest.raises(InvalidInput, match=r"No space left.*continue with --resume"):
        run_job(force=True)
    assert written == [0]
    assert names_of(out) == {".expost-run"}
    monkeypatch.setattr(
        PartStore, "write", lambda *part: (written.append(part[1]), write(*part))[1]
    )
    with monkeypatch.context() as broken:
        broken.setattr(Workspace, "finish", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_job(resume=True, engine="local:3")
    assert run_job(resume=True, engine="local:3").choice.recommended == outcome.choice.recommended
    assert contents(out) == undisturbed
    # No part was made twice.
    assert sorted(written) == [0, 1, 2]


def test_only_the_same_rows_and_question_are_resumed(run_job, tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(epsilon_job, "page_of", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_job()
    for options, words in (({"max_posterior": 0.6}, "--max-posterior"), ({"seed": 3}, "--seed")):
        with pytest.raises(InvalidInput, match=f"differs in {words}"):
            run_job(resume=True, **options)
    with pytest.raises(InvalidInput, match="pass --resume to continue"):
        run_job()
    rows = table(700, seed=8).drop_columns(["value"])
    pq.write_table(rows, tmp_path / "people.parquet", row_group_size=300)
    with pytest.raises(InvalidInput, match=r"differs in the files \(they changed\)"):
        run_job(resume=True)
