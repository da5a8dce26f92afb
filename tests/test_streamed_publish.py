"""``expost publish`` of rows that never stand in memory together: the same as if they did."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expost import PrivateLinearSVC, PrivateLogisticRegression, profile
from expost._order import Histogram
from expost.data import Encoding, open_table
from expost.engine import LocalEngine
from expost.errors import InvalidInput, WrongRows
from expost.files.directory import RUN, Directory
from expost.files.parts import PartStore
from expost.glm import Objective
from expost.jobs import publish as publish_job
from expost.jobs.requests import PublishRequest
from expost.ledger import NAME, Ledger, list_release
from expost.mechanisms import Tangent
from expost.mechanisms.bounds import ObjectiveBound
from expost.mechanisms.publishing import PublishingBudget, exact_costs
from expost.publishing.compare import Comparison, compare, compare_parts, read_comparison
from expost.publishing.publish import ReleasedRows, ReportPlan, publish
from expost.publishing.report import PublishedReport
from expost.rows import RowStream, TableRows
from program import names
from streams import Killed

ROWS = 5_000
GIVEN = {
    "columns": {
        "a": {"mean": 0, "scale": 1},
        "b": {"mean": 0, "scale": 1},
        "level": {"levels": ["u", "v", "w"]},
    },
    "target": {"classes": ["no", "yes"]},
    "data_norm": 5,
}
BUDGET = PublishingBudget(epsilon_gradient=0.7, epsilon_hessian=0.3, delta=1e-6)
OBJECTIVE = {
    "mechanism": "objective",
    "noise": "gaussian",
    "delta": 1e-6,
    "regularization": "for-publishing",
    "publishing": BUDGET,
}
SPENDS = {"kind": "data-dependent", "epsilon_gradient": 0.7, "epsilon_hessian": 0.3}
COLUMNS = ("row", "loss", "exposure", "bound", "everything")
TABLE, FIGURES = "comparison.CURATOR-ONLY.parquet", "comparison.CURATOR-ONLY.json"
RESULTS = {"report.json", "report.html", "report.md", "summary.json", TABLE, FIGURES}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Row groups that fit no block."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, 2))
    score = x[:, 0] - x[:, 1] + rng.normal(size=ROWS)
    table = pa.table(
        {
            "a": x[:, 0],
            "b": x[:, 1],
            "level": pa.array(rng.choice(["u", "v", "w"], ROWS)),
            "y": pa.array(np.where(score > 0, "yes", "no")),
            "key": pa.array([f"k{i}" for i in range(ROWS)]),
        }
    )
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    pq.write_table(table, path, row_group_size=1500)
    return path


class Made:
    """A model of the rows, in memory and on the disk."""

    def __init__(self, data: Path, folder: Path, estimator=PrivateLogisticRegression, **options):
        table = open_table(str(data), columns=["a", "b", "level", "y"], id_column="key")
        self.encoding = Encoding.read(table, target="y", given=GIVEN)
        self.table = self.encoding.open(str(data), id_column="key")
        encoded = self.encoding.encode_table(self.table)
        self.X, self.labels = encoded.X, np.where(encoded.y > 0, "yes", "no")
        model = estimator(data_norm=5.0, classes=("no", "yes"), **options)
        self.release = replace(
            model.fit(self.X, self.labels).release_,
            encoding=self.encoding.to_json(),
            feature_names=self.encoding.feature_names,
        )
        self.path = self.release.save(folder / "model.json")

    def problem(self, engine, size) -> Objective:
        stream = RowStream.of(self.table, self.encoding, self.release.ball, size=size)
        mechanism = self.release.mechanism
        penalty = np.full(stream.columns, mechanism.total_regularization)
        return Objective(
            rows=TableRows(stream=stream, engine=engine), loss=mechanism.loss, penalty=penalty
        )


@pytest.fixture(scope="module")
def objective(data, tmp_path_factory) -> Made:
    return Made(data, tmp_path_factory.mktemp("objective"), **OBJECTIVE)


@pytest.fixture(scope="module")
def output(data, tmp_path_factory) -> Made:
    return Made(data, tmp_path_factory.mktemp("output"), epsilon=2.0, regularization=0.01)


@pytest.fixture
def engine():
    engine = LocalEngine(2)
    yield engine
    engine.close()


def whole(store: PartStore) -> dict[str, np.ndarray]:
    table = pa.concat_tables(store.tables())
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


def compared(made: Made, report, folder: Path, engine, size=256):
    """Every row, and the aggregates, from parts of eight blocks."""
    rows = ReleasedRows.of(made.release, made.problem(engine, size))
    store = PartStore.at(folder)
    store.finish(compare_parts(report, rows, store), {})
    return whole(store), read_comparison(report, "a model", store, engine).figures


def in_memory(made: Made, report) -> Comparison:
    rows = ReleasedRows.of_arrays(made.release, made.X, made.labels)
    comparison = compare(report, rows)
    losses = profile(made.release, made.X, made.labels).loss
    np.testing.assert_allclose(comparison.columns()["loss"], losses, rtol=1e-10)
    return comparison


# -- the report ------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [PrivateLogisticRegression, PrivateLinearSVC])
def test_what_is_released_is_drawn_around_the_tangent_of_all_rows(
    data, tmp_path, engine, estimator
):
    made = Made(data, tmp_path, estimator, **OBJECTIVE)
    problem = made.problem(engine, 256)
    rows = ReleasedRows.of(made.release, problem)
    mechanism, theta = made.release.mechanism, made.release.theta
    naive = Tangent.at(mechanism, made.release.problem(made.X, made.labels), theta)
    assert np.allclose(rows.tangent.gradient, naive.gradient, rtol=0, atol=1e-10)
    assert np.allclose(rows.tangent.hessian, naive.hessian, rtol=1e-12, atol=1e-10)
    request = ReportPlan.of(made.release, failure_probability=1e-6, delta=None, **SPENDS)
    report = request.report(rows)
    assert request.matches(report)
    extra = report.tangent
    # 6 + 36 normals are never nine standard deviations out, and the wrong centre would be.
    away = np.abs(report.released.gradient - naive.gradient) / extra.gradient_scale
    across = np.abs(report.released.hessian - naive.hessian) / extra.hessian_scale
    if estimator is PrivateLogisticRegression:
        assert np.max(across) < 9
    assert 0 < np.max(away) < 9
    assert not np.allclose(report.released.gradient, naive.gradient, atol=0.1 * np.max(away))
    again = request.report(rows)
    assert not np.array_equal(again.released.gradient, report.released.gradient), "drawn again"


def test_a_report_that_spends_nothing_is_the_one_in_memory(output, engine):
    problem = output.problem(engine, 256)
    none = {"epsilon_gradient": None, "epsilon_hessian": None, "delta": None}
    request = ReportPlan.of(
        output.release, kind="data-independent", failure_probability=1e-6, **none
    )
    report = request.report(ReleasedRows.of(output.release, problem))
    assert report.to_json() == publish(output.release, output.X, output.labels).to_json()


# -- the comparison --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["data-dependent", "data-independent", "by output"])
def test_bounds_and_losses_are_those_of_rows_in_memory(objective, output, tmp_path, engine, kind):
    made = output if kind == "by output" else objective
    options = SPENDS if kind == "data-dependent" else {}
    report = publish(made.release, made.X, made.labels, **options)
    comparison, figures = compared(made, report, tmp_path / "parts", engine)
    naive = in_memory(made, report)
    expected = naive.columns()
    assert list(comparison["id"]) == [f"k{i}" for i in range(ROWS)]
    assert [name for name in comparison if name != "id"] == list(expected)
    # Under output perturbation a step is refined in memory by other means than in blocks: both
    # losses lie in their intervals, of which half a thousandth of the largest loss is the length.
    loose = 5e-4 * np.max(expected["exposure"]) if kind == "by output" else 0.0
    for name in COLUMNS:
        room = loose if name in ("loss", "exposure") else 0.0
        scale = np.max(expected[name][np.isfinite(expected[name])])
        assert np.allclose(
            comparison[name], expected[name], rtol=1e-9, atol=room + 1e-10 * scale
        ), name
    # Where next to nothing is lost the ratio has fewer digits than what it is made of.
    assert np.allclose(
        comparison["ratio"], comparison["bound"] / comparison["exposure"], rtol=1e-12
    )
    for name in ("epsilon_gradient", "epsilon_hessian"):
        # Both are above the exact one, by a few 1e-5 at most.
        assert np.allclose(comparison[name], expected[name], rtol=1e-4, atol=1e-8), name
        assert (np.max(comparison[name]) > 0) == (kind == "data-dependent")
    exact = naive.figures
    assert (figures.rows, figures.failures) == (ROWS, exact.failures)
    assert figures.fails_with == exact.fails_with
    for name in ("largest_exposure", "largest_bound"):
        assert np.isclose(getattr(figures, name), getattr(exact, name), rtol=1e-4), name
    for name in ("median_exposure", "median_bound", "median_ratio"):
        # One bucket and what the losses themselves differ by.
        error = Histogram.RELATIVE_ERROR * 1.01
        assert np.isclose(getattr(figures, name), getattr(exact, name), rtol=error, atol=0), name
        assert not np.isclose(getattr(figures, name), 1.01 * getattr(exact, name), rtol=error)


def test_parts_do_not_depend_on_who_makes_them_or_on_what_was_there(objective, tmp_path, engine):
    report = publish(objective.release, objective.X, objective.labels, **SPENDS)
    problem = objective.problem(engine, 256)
    rows = ReleasedRows.of(objective.release, problem)
    first, two = PartStore.at(tmp_path / "1"), PartStore.at(tmp_path / "2")
    parts = compare_parts(report, rows, first)
    assert len(parts) >= 3
    # A run that was killed after its second part, and resumed by a single worker.
    (tmp_path / "2" / parts[1].name).write_bytes((tmp_path / "1" / parts[1].name).read_bytes())
    (tmp_path / "2" / ".part-000002-x.parquet.ab.part").write_bytes(b"half")
    alone = LocalEngine(1)
    rows = ReleasedRows.of(objective.release, objective.problem(alone, 256))
    assert compare_parts(report, rows, two) == parts
    alone.close()
    for part in parts.values():
        path = tmp_path / "2" / part.name
        assert path.read_bytes() == (tmp_path / "1" / part.name).read_bytes()
    other, figures = compared(objective, report, tmp_path / "3", engine, size=1024)
    first.finish(parts, {})
    mine = whole(first)
    # The ratio follows from two of the others; where next to nothing is lost it has fewer digits.
    for name in set(mine) - {"id", "ratio"}:
        assert np.allclose(other[name], mine[name], rtol=1e-10, atol=1e-12), name
    assert figures.rows == ROWS


def test_infinite_and_vanishing_figures_are_those_in_memory(tmp_path, engine, objective):
    report = publish(objective.release)
    cases = [
        ([0.0, 0.0, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0]),
        ([1e-18, 1e-18, 0.3, 0.5, 0.7], [1.0, 1.0, 0.5, np.inf, 0.6]),
        ([1.0, 2.0], [np.inf, np.inf]),
        ([1e-15, 0.2, 0.4], [1.0, 0.4, 0.5]),
    ]
    for number, (exposure, bound) in enumerate(cases):
        exposure, bound = np.array(exposure), np.array(bound)
        store = PartStore.at(tmp_path / str(number))
        for index, some in enumerate((slice(0, 1), slice(1, None))):
            part = {"exposure": exposure[some], "bound": bound[some]}
            most = {name: max([0.0, *values[values < np.inf]]) for name, values in part.items()}
            about = {"expost": json.dumps(most)}
            store.write(index, pa.table(part).replace_schema_metadata(about))
        store.finish(store.finished(), {})
        comparison = read_comparison(report, "a model", store, engine)
        result = comparison.figures
        with np.errstate(divide="ignore"):
            ratio = np.where(exposure > 0, bound / exposure, np.inf)
        # So much is as good as that.
        ratio = np.where(ratio > 2.0**39, np.inf, ratio)
        naive = [np.median(exposure), np.max(exposure), np.median(bound), np.max(bound)]
        mine = [result.median_exposure, result.largest_exposure]
        mine += [result.median_bound, result.largest_bound]
        assert np.allclose(mine, naive, rtol=Histogram.RELATIVE_ERROR, atol=0)
        assert np.isclose(
            result.median_ratio, np.median(ratio), rtol=Histogram.RELATIVE_ERROR, atol=0
        )
        assert result.failures == np.count_nonzero(exposure > bound)
        json.dumps(comparison.summary(), allow_nan=False)
        assert str(result.rows) in str(comparison)


def test_costs_are_above_the_exact_ones_and_close(objective):
    report = publish(objective.release, objective.X, objective.labels, **SPENDS)
    table = report.tangent.costs
    rng = np.random.default_rng(0)
    top = table.points[-1]
    separation = np.concatenate(
        [[0.0], rng.uniform(0, top, 500), top * 2.0 ** -rng.uniform(0, 40, 500)]
    )
    exact = exact_costs(separation, BUDGET.delta)
    result = table(separation)
    assert np.all(result >= exact)
    assert np.all(result <= exact * (1 + 3e-5) + 3e-9)
    assert np.all(table(np.array([1.01 * top])) == np.inf), "nothing is known there"


def test_what_a_person_reads_does_not_depend_on_who_else_asks(objective):
    """Alone, among all rows, or in a block of them (core.md 1.2, defect 4)."""
    report = publish(objective.release, objective.X, objective.labels, **SPENDS)
    every = report.bound(objective.X, objective.labels)
    assert np.min(every[1]) > 0
    assert np.min(every[2]) > 0
    for row in (0, 1, 777, ROWS - 1):
        alone = report.bound(objective.X[row], objective.labels[row])
        assert alone[1:] == (every[1][row], every[2][row])
        assert alone[0] == pytest.approx(every[0][row], rel=1e-12)


def test_the_bound_of_a_row_is_computed_once(objective, monkeypatch):
    """For the comparison and for an answer (core.md 1.2, defect 7)."""
    report = publish(objective.release, objective.X, objective.labels, **SPENDS)
    plain, bounded = ObjectiveBound.exposure, []

    def counted(bound, rows, y):
        bounded.append(len(rows))
        return plain(bound, rows, y)

    monkeypatch.setattr(ObjectiveBound, "exposure", counted)
    compare(report, ReleasedRows.of_arrays(objective.release, objective.X, objective.labels))
    assert sum(bounded) == ROWS
    bounded.clear()
    values = {"a": 0.5, "b": -1.0, "level": "u"}
    assert len(report.lookup(values)) == 2
    assert bounded == [1, 1]


# -- the job ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [None, "local:1"])
def test_the_tangent_is_computed_once(objective, data, tmp_path, monkeypatch, engine):
    """For the report and for the exact losses (core.md 1.2, defect 8)."""
    plain, made = Tangent.at.__func__, []
    monkeypatch.setattr(
        Tangent,
        "at",
        classmethod(lambda cls, *arguments: (made.append(1), plain(cls, *arguments))[1]),
    )
    job = job_of(objective, data, tmp_path / "o", **SPENDS, engine=engine)
    outcome = publish_job.run(job)
    assert len(made) == 1
    assert (outcome.comparison.held is None) == (engine is not None)
    assert outcome.comparison.figures.rows == ROWS


def job_of(made: Made, data: Path, out: Path, **options) -> PublishRequest:
    usual = {"source": str(data), "target": "y", "id_column": "key", "model": made.path, "out": out}
    return PublishRequest(**{**usual, "engine": "local:2", **options})


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_streamed_run_writes_what_one_in_memory_does(objective, data, tmp_path):
    outcome = publish_job.run(job_of(objective, data, tmp_path / "s", **SPENDS, ledger=tmp_path))
    assert names(tmp_path / "s") == RESULTS
    report = PublishedReport.load(tmp_path / "s" / "report.json")
    naive = in_memory(objective, report)
    table = pq.read_table(tmp_path / "s" / TABLE)
    assert table.column("id").to_pylist() == [f"k{i}" for i in range(ROWS)]
    assert np.allclose(table.column("bound").to_numpy(), naive.columns()["bound"], rtol=1e-9)
    value = json.loads((tmp_path / "s" / FIGURES).read_text())
    assert value["table"] == TABLE
    assert value["rows"] == value["summary"]["rows"] == ROWS
    assert value["summary"]["median error"] == Histogram.RELATIVE_ERROR
    with pytest.raises(InvalidInput, match="read the folder comparison"):
        outcome.comparison.columns()
    assert value["summary"] == outcome.comparison.summary()
    assert all(path.exists() for path in outcome.files.values())
    assert any(
        "Published bounds and exact exposures" in line
        for line in publish_job.outcome_lines(outcome)
    )
    ledger = Ledger.load(tmp_path / NAME)
    assert len(ledger) == 2
    assert {entry.data for entry in ledger.entries} == {
        ledger.digest(objective.X, objective.labels)
    }
    assert (tmp_path / "s" / TABLE).stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "s" / RUN).exists()


def test_more_than_two_classes(tmp_path):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 2))
    labels = np.array(["no", "some", "yes"])[np.digitize(x[:, 0] + 0.3 * x[:, 1], [-0.5, 0.5])]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": x[:, 0], "b": x[:, 1], "y": labels}), path)
    given = {**GIVEN, "columns": {n: {**GIVEN["columns"][n], "cut": None} for n in "ab"}}
    given["target"] = {"classes": ["no", "some", "yes"]}
    encoding = Encoding.read(open_table(str(path)), target="y", given=given)
    model = PrivateLogisticRegression(
        data_norm=5.0, classes=("no", "some", "yes"), mechanism="objective", regularization=0.1
    )
    release = replace(
        model.fit(x, labels).release_,
        encoding=encoding.to_json(),
        feature_names=encoding.feature_names,
    )
    release.save(tmp_path / "model.json")
    usual = {"source": str(path), "target": "y", "model": tmp_path / "model.json"}
    held = publish_job.run(PublishRequest(out=tmp_path / "m", **usual))
    read = publish_job.run(PublishRequest(out=tmp_path / "s", engine="local:2", **usual))
    table = pq.read_table(tmp_path / "s" / TABLE)
    columns = held.comparison.columns()
    assert table.column_names == list(columns)
    for name, values in columns.items():
        assert np.allclose(table.column(name).to_numpy(), values, rtol=1e-9, atol=1e-12), name
    assert read.comparison.figures.failures == held.comparison.figures.failures == 0
    profiled = profile(release, x, labels)
    np.testing.assert_allclose(columns["loss"], profiled.loss, rtol=1e-9, atol=1e-12)


def stopped(*arguments):
    raise Killed


def stopping_before(name: str, number: int, patch) -> None:
    """Let the process be stopped before the ``number``-th time that something gets this name."""
    plain, count = Directory.replace, 0

    def stopping(source, draft, folder, final):
        nonlocal count
        count += final == name
        if final == name and count == number:
            raise Killed
        plain(source, draft, folder, final)

    patch.setattr(Directory, "replace", stopping)


def report_in(path: Path) -> dict:
    """A report, also one that a run has kept."""
    value = json.loads(path.read_text())
    return value.get("value", value)


@pytest.mark.parametrize(
    ("name", "number"),
    # Kept by the run, listed, published, compared.
    [("report.json", 1), (NAME, 1), ("report.json", 2), (TABLE, 1)],
)
def test_wherever_it_is_stopped_the_report_is_drawn_once(
    objective, data, tmp_path, monkeypatch, name, number
):
    """Beside tests/faults, which kill processes: here the moment is chosen."""
    job = job_of(objective, data, tmp_path / "o", **SPENDS, ledger=tmp_path / "ledger.json")
    # Not the first release of the data, so that the ledger is renamed and not begun.
    list_release(tmp_path / "ledger.json", objective.path)
    with monkeypatch.context() as patch:
        stopping_before(name, number, patch)
        with pytest.raises(Killed):
            publish_job.run(job)
    kept = [job.out / "report.json", job.out / RUN / "report.json"]
    drawn = [report_in(path) for path in kept if path.exists()]
    assert len(drawn) == {("report.json", 1): 0, (TABLE, 1): 2}.get((name, number), 1)
    resumed = replace(job, engine="local:1", resume=True)
    publish_job.run(resumed)
    assert all(item == report_in(kept[0]) for item in drawn), "drawn once"
    assert len(Ledger.load(tmp_path / NAME)) == 2, "listed, and once"
    assert names(job.out) == RESULTS


def test_a_resumed_run_ends_with_the_same_bytes(output, data, tmp_path, monkeypatch):
    publish_job.run(job_of(output, data, tmp_path / "whole"))
    job = job_of(output, data, tmp_path / "stopped")
    with monkeypatch.context() as patch:
        patch.setattr(publish_job, "read_comparison", stopped)
        with pytest.raises(Killed):
            publish_job.run(job)
    assert (job.out / RUN).is_dir()
    with monkeypatch.context() as patch:
        # What is finished is not done again.
        patch.setattr(publish_job.ReleasedRows, "of", stopped)
        publish_job.run(replace(job, engine=None, resume=True))
    mine, other = contents(tmp_path / "whole"), contents(job.out)
    assert mine.keys() == other.keys()
    # The pages bear the minute at which the run was begun.
    differing = {name for name in mine if mine[name] != other[name]}
    assert differing <= {"report.html", "report.md", "summary.json"}


def test_what_a_run_must_not_do_is_refused_before_anything_is_lost(
    objective, output, data, tmp_path
):
    publish_job.run(job_of(objective, data, tmp_path / "o", **SPENDS))
    before = contents(tmp_path / "o")
    with pytest.raises(InvalidInput, match="is not empty"):
        publish_job.run(job_of(objective, data, tmp_path / "o", **SPENDS))
    job = job_of(objective, data, tmp_path / "o", **SPENDS, engine=None, resume=True)
    with pytest.raises(InvalidInput, match="this run is finished"):
        publish_job.run(job)
    fewer = tmp_path / "fewer.parquet"
    pq.write_table(pq.read_table(data).slice(1), fewer)
    with pytest.raises(WrongRows, match="was made from 5000"):
        publish_job.run(job_of(objective, fewer, tmp_path / "o", force=True))
    other = tmp_path / "other.parquet"
    table = pq.read_table(data)
    pq.write_table(table.set_column(3, "y", table.column("y").take(np.arange(ROWS)[::-1])), other)
    with pytest.raises(WrongRows, match="cannot have made this model"):
        publish_job.run(job_of(output, other, tmp_path / "o", force=True))
    assert contents(tmp_path / "o") == before
    done = publish_job.run(job_of(objective, data, tmp_path / "o", **SPENDS, force=True))
    assert "has spent epsilon 0.7 + 0.3" in done.notices[0]
    assert PublishedReport.load(tmp_path / "o" / "report.json").to_json() != json.loads(
        before["report.json"]
    )
