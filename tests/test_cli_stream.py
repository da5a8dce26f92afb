"""``expost profile`` in blocks: the same as in memory, and the same bytes after any crash."""

import json
import os
import shutil
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest

import streams
from expost.errors import AlreadyFinished, InvalidInput, WrongRows
from expost.files.atomic import read_json
from expost.files.parts import PartStore
from expost.jobs import profile as profile_module
from expost.jobs import streaming as facts_module
from expost.jobs.profile import run
from expost.jobs.runs import running
from expost.jobs.streaming import Streaming, is_streamed
from expost.ledger import Ledger
from expost.mechanisms import OutputPerturbation, RowLosses
from expost.profiles.posterior import RowIdentifiability
from expost.release import Release
from expost.report import render_json
from expost.report.document import Table
from expost.report.sections.posterior import posterior_sections
from expost.types import Neighbouring
from program import names, page_in, refused
from report.cells import column, tables

TABLE = "profile.CURATOR-ONLY.parquet"
FILES = {
    *("model.json", "ledger.CURATOR-ONLY.json", "encoding.CURATOR-ONLY.json"),
    *("profile.CURATOR-ONLY.json", "report.CURATOR-ONLY.html", "summary.CURATOR-ONLY.json"),
    TABLE,
}


@pytest.fixture(autouse=True)
def _blocks(monkeypatch):
    streams.small_blocks(monkeypatch)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return streams.write(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def undisturbed(source, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        streams.small_blocks(patch)
        # Named as those of the tests are: a page names the folder of its model.
        out = tmp_path_factory.mktemp("runs") / "o"
        outcome = run(streams.job(source, out))
    return out, outcome


@pytest.fixture
def same(undisturbed):
    """Whether a folder holds the bytes of an undisturbed run, and one release of it is listed."""

    def check(out):
        assert streams.contents(out) == streams.contents(undisturbed[0])
        (entry,) = Ledger.load(out / "ledger.CURATOR-ONLY.json").entries
        assert entry.release == read_json(out / "model.json")["sha256"]
        return True

    return check


def in_memory(source, out, **options):
    return run(streams.job(source, out, engine=None, **options))


def rows_of(out):
    return pyarrow.dataset.dataset(out / TABLE, format="parquet").to_table()


# The same as in memory ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"noise": "gaussian", "delta": 1e-5}, marks=pytest.mark.long),
        {"mechanism": "objective", "epsilon": 2.0},
        {"epsilon": np.inf, "seed": None},
        {
            "target": "pay",
            "loss": "squared",
            "drop": ("income", "number"),
            "label_range": (-5.0, 5.0),
            "id_column": None,
        },
        pytest.param(
            {"loss": "huber-hinge", "id_column": None, "drop": ("pay", "number")},
            marks=pytest.mark.long,
        ),
    ],
    ids=["laplace", "gaussian", "objective", "no noise", "squared", "hinge"],
)
def test_a_streamed_profile_is_that_of_rows_in_memory(source, tmp_path, options):
    streamed = run(streams.job(source, tmp_path / "s", **options))
    whole = in_memory(source, tmp_path / "m", **options).profile
    assert names(tmp_path / "s") == names(tmp_path / "m")
    released = [Release.load(tmp_path / folder / "model.json") for folder in "sm"]
    if whole.is_noiseless:
        # Sums in another order: no grid takes the last digits off.
        np.testing.assert_allclose(released[0].theta, released[1].theta, rtol=1e-12, atol=1e-12)
    else:
        assert released[0].to_json() == released[1].to_json()
    table = rows_of(tmp_path / "s")
    collected = {name: table.column(name).to_numpy() for name in table.column_names}
    expected = whole.columns()
    assert list(collected["row"]) == list(range(streams.ROWS))
    assert "id" not in collected or list(collected["id"]) == list(expected["id"])
    # Both intervals hold the one true loss of each row.
    assert np.all(collected["loss_low"] <= expected["loss_high"])
    assert np.all(collected["loss_high"] >= expected["loss_low"])
    slack = collected["distance_error"] + expected["distance_error"]
    assert np.all(np.abs(collected["distance"] - expected["distance"]) <= slack)
    # Its rank among its own scores lies within the error that is told of it.
    scores = collected["distance" if whole.is_noiseless else "exposure"]
    above = np.sum(scores[:, None] < scores, axis=1)
    least, most = above + 1, above + np.sum(scores[:, None] == scores, axis=1)
    assert np.all(collected["rank"] - collected["rank_error"] <= most)
    assert np.all(collected["rank"] + collected["rank_error"] >= least)
    assert np.median(collected["rank_error"]) <= 2
    # Quantiles are no less than they are, and hardly more.
    for share in (0.1, 0.5, 0.9, 0.99, 1.0):
        exact = float(np.quantile(scores, share, method="inverted_cdf"))
        assert exact <= streamed.profile.quantile(share) <= exact * (1 + 2**-8)
    assert streamed.profile.digest.inside == np.sum(collected["loss"] > 0)
    mine, theirs = (page_in(tmp_path / name).get("profile") for name in "sm")
    stored = (tmp_path / "s" / "summary.CURATOR-ONLY.json").read_text()
    assert stored == render_json(streamed.page)
    ranked = [table_of(document, "rank") for document in (mine, theirs)]
    unit = ranked[0].columns[1].title
    assert column(ranked[0], unit)[1][:5] == column(ranked[1], unit)[1][:5]
    # The released model, the base rate, and the model without noise.
    scores = [table_of(document, "model") for document in (mine, theirs)]
    for own, other in zip(scores[0].values, scores[1].values, strict=True):
        assert own[0] == other[0]
        assert own[1:] == pytest.approx(other[1:])
    _check_posteriors(streamed, collected)
    if "expected" in collected and not whole.is_noiseless:
        np.testing.assert_allclose(collected["expected"], whole.expected, rtol=1e-2)


def table_of(document, title):
    """The table of a document whose first column has this title."""
    return next(each for each in tables(document) if each.columns[0].title == title)


def _check_posteriors(streamed, result):
    """Those of the page are those of all rows at once."""
    mechanism, document = streamed.release.mechanism, streamed.page.get("profile")
    shown = {section.id: section for section in document.sections}
    if not mechanism.is_private:
        assert "posterior" not in shown
        return
    distance, error = result["distance"], result["distance_error"]
    law = isinstance(mechanism, OutputPerturbation)
    losses = RowLosses(
        loss=result["loss"],
        low=result["loss_low"],
        high=result["loss_high"],
        distance=distance,
        distance_error=error,
        relation=Neighbouring.REMOVE,
        law=mechanism.law.law(distance) if law else None,
        far_law=mechanism.law.law(distance + error) if law else None,
        worst_case=mechanism.worst_case,
        worst_case_passed=mechanism.worst_case_passed,
        guarantee=mechanism.guarantee(),
    )
    every = RowIdentifiability(
        losses=losses,
        description=streamed.profile.description,
        ids=tuple(result["id"]) if "id" in result else None,
        notices=streamed.profile.notices,
    )
    expected = {section.id: section for section in posterior_sections(every, brief=False)}
    ours, exact = (
        [block for block in sections["posterior"].blocks if isinstance(block, Table)]
        for sections in (shown, expected)
    )
    assert ours[0] == exact[0]
    for (part, mine), (share, log_odds) in zip(ours[1].values, exact[1].values, strict=True):
        assert part == share
        assert 0 <= mine - log_odds <= 2**-8 * abs(log_odds)
    ours, exact = (
        # Without a law an advantage is sampled, which takes all rows in memory.
        [row for row in sections["allowed"].blocks[0].cells if law or "advantage" not in row[0]]
        for sections in (shown, expected)
    )
    assert len(ours) >= 3
    assert ours == exact


def test_the_engine_changes_no_byte(source, tmp_path, same):
    # Those of the undisturbed run are two.
    run(streams.job(source, tmp_path / "o", engine="local:3"))
    assert same(tmp_path / "o")


def test_what_is_left_is_the_results_and_nothing_else(undisturbed):
    out, outcome = undisturbed
    assert names(out) == FILES
    assert set(outcome.files) == {
        *("model", "ledger", "encoding", "profile", "table", "summary", "report"),
    }
    assert {path.name for path in outcome.files.values()} == FILES
    parts = sorted(path.name[:11] for path in (out / TABLE).iterdir())
    assert parts == ["_manifest.j", *(f"part-{index:06d}" for index in range(4))]
    for path in out.rglob("*CURATOR*"):
        assert path.stat().st_mode & 0o077 == 0
    value = read_json(out / "profile.CURATOR-ONLY.json")
    assert (value["rows"], value["table"], value["audience"]) == (400, TABLE, "curator-only")
    assert value["quantiles"][-1]["at_most"] == outcome.profile.scores.largest
    assert len(value["top"]) == 20


def test_the_program_prints_the_same_in_memory_and_in_blocks(program, source, tmp_path):
    command = ("profile", source, "--target", "income", "--id", "number", "--seed", 1)
    streamed = program(*command, "--out", tmp_path / "s", "--engine", "local")
    assert program(*command, "--out", tmp_path / "m").code == 0
    assert (streamed.code, streamed.err) == (0, "")
    first, second = (page_in(tmp_path / name).get("profile") for name in "sm")
    assert first.verdict == second.verdict
    # Quantiles are rounded up: half of the rows are below one.
    assert [(tile.label, tile.value) for tile in first.tiles] == [
        (tile.label, tile.value) for tile in second.tiles
    ]
    assert first.facts == pytest.approx(second.facts)
    # What was done in blocks is stated, and nothing else is.
    (blocks,) = set(first.alerts) - set(second.alerts)
    assert blocks.severity == "note"
    assert blocks.title in streamed.out
    assert not set(second.alerts) - set(first.alerts)


# When it is streamed -----------------------------------------------------------------------------


def test_rows_that_take_more_than_the_memory_are_streamed(program, source, tmp_path):
    command = ("profile", source, "--target", "income", "--id", "number", "--drop", "pay")
    assert program(*command, "--out", tmp_path / "s", "--memory", "10kB").code == 2
    assert program(*command, "--out", tmp_path / "m", "--memory", "8GB").code == 0
    assert not (tmp_path / "s").exists()
    assert (tmp_path / "m" / TABLE).is_file()
    assert is_streamed(Streaming(memory=2**30), tmp_path, 10**6, 50)
    assert is_streamed(Streaming(engine="local"), tmp_path, 2, 1)
    assert not is_streamed(Streaming(), tmp_path, 10**4, 10)
    assert is_streamed(Streaming(), tmp_path, 10**9, 1000)
    # A run is resumed as it was begun; where none was, as usual.
    assert not is_streamed(Streaming(resume=True), tmp_path, 2, 1)
    for blocks in (False, True):
        with (
            suppress(KeyboardInterrupt),
            running(tmp_path, {}, resume=False, force=True, blocks=blocks) as begun,
        ):
            begun.keep("model", {})
            raise KeyboardInterrupt
        assert is_streamed(Streaming(resume=True), tmp_path, 2, 1) is blocks


def test_persons_are_not_streamed(program, source, tmp_path):
    out = tmp_path / "o"
    done = program(
        *("profile", source, "--target", "income", "--person", "number", "--out", out),
        *("--engine", "local"),
    )
    refused(
        done, out, "--person 'number' | cannot be combined with processing in blocks | --memory"
    )


# A model that exists -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def again(source, undisturbed):
    """The model of an undisturbed run, profiled once more."""

    def call(out, **options):
        given = {"seed": None, "drop": None, "model": undisturbed[0] / "model.json", **options}
        return run(streams.job(source, out, **given))

    return call


@pytest.fixture(scope="module")
def profiled(again, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        streams.small_blocks(patch)
        out = tmp_path_factory.mktemp("again") / "o"
        again(out)
    return streams.contents(out)


def test_a_model_that_exists_is_profiled_and_never_redrawn(profiled, undisturbed, tmp_path):
    ours, theirs = profiled, streams.contents(undisturbed[0])
    assert ours["model.json"] == theirs["model.json"]
    parts = [name for name in theirs if "part-" in name]
    assert len(parts) == 4
    assert [ours[name] for name in parts] == [theirs[name] for name in parts]
    other = streams.write(tmp_path, rows=390)
    with pytest.raises(WrongRows, match=r"390 rows.* 400"):
        run(
            streams.job(
                other, tmp_path / "w", seed=None, drop=None, model=undisturbed[0] / "model.json"
            )
        )
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("path_part", "after"),
    [
        pytest.param("/facts.json", True, marks=pytest.mark.long),
        ("/o/model.json", False),
        pytest.param("/copied.json", False, marks=pytest.mark.long),
        (f"/o/{TABLE}", True),
    ],
)
def test_a_model_that_exists_is_resumed(again, profiled, tmp_path, monkeypatch, path_part, after):
    with monkeypatch.context() as patch:
        streams.Disk(patch, path_part, after=after)
        with pytest.raises(streams.Killed):
            again(tmp_path / "o")
    again(tmp_path / "o", resume=True)
    assert streams.contents(tmp_path / "o") == profiled
    # Another one cannot take its place.
    with pytest.raises(InvalidInput, match="is not empty"):
        again(tmp_path / "o")


# Killed, and resumed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path_part", "after"),
    [
        pytest.param("/state.json", False, marks=pytest.mark.long),
        pytest.param("/state.json", True, marks=pytest.mark.long),
        ("/facts.json", True),
        ("/.expost-run/model.json", False),
        pytest.param("/.expost-run/model.json", True, marks=pytest.mark.long),
        pytest.param("/ledger.CURATOR-ONLY.json", False, marks=pytest.mark.long),
        ("/ledger.CURATOR-ONLY.json", True),
        ("/o/model.json", False),
        pytest.param("/o/model.json", True, marks=pytest.mark.long),
        ("losses/part-000002", False),
        pytest.param("losses/part-000001", True, marks=pytest.mark.long),
        pytest.param("/losses.json", False, marks=pytest.mark.long),
        ("profile/part-000001", True),
        ("_manifest.json", False),
        pytest.param("_manifest.json", True, marks=pytest.mark.long),
        pytest.param(f"/o/{TABLE}", False, marks=pytest.mark.long),
        (f"/o/{TABLE}", True),
        ("/report.CURATOR-ONLY.html", False),
        pytest.param("/report.CURATOR-ONLY.html", True, marks=pytest.mark.long),
    ],
)
def test_a_killed_run_is_resumed(source, tmp_path, monkeypatch, same, path_part, after):
    out = tmp_path / "o"
    with monkeypatch.context() as patch:
        disk = streams.Disk(patch, path_part, after=after)
        with pytest.raises(streams.Killed):
            run(streams.job(source, out, engine="local:1"))
        assert disk.dead
    if (out / TABLE).exists():
        assert PartStore(folder=out / TABLE).is_finished
    drawn = _drawn(out)
    # Of a run that had drawn a model nothing is drawn again.
    if drawn:
        monkeypatch.setattr(profile_module, "training_of", None)
    run(streams.job(source, out, resume=True))
    assert same(out)
    # Drafts of a ledger are left alone: another process may be writing one.
    assert {name for name in names(out) if not name.startswith(".ledger")} == FILES
    assert not drawn or drawn == {read_json(out / "model.json")["sha256"]}


def _drawn(out):
    """The checksum that the run has kept."""
    kept = out / ".expost-run" / "model.json"
    return {read_json(kept)["value"]["sha256"]} if kept.exists() else set()


def test_a_finished_step_is_not_taken_again(source, tmp_path, monkeypatch, same):
    out = tmp_path / "o"
    with monkeypatch.context() as patch:
        streams.Disk(patch, "_manifest.json", after=False)
        with pytest.raises(streams.Killed):
            run(streams.job(source, out))
    monkeypatch.setattr(facts_module, "read_rows", None)
    for name in ("row_parts", "training_of"):
        monkeypatch.setattr(profile_module, name, None)
    run(streams.job(source, out, resume=True))
    assert same(out)


def test_a_damaged_part_is_made_again(source, tmp_path, monkeypatch, same):
    out = tmp_path / "o"
    with monkeypatch.context() as patch:
        streams.Disk(patch, f"/o/{TABLE}", after=False)
        with pytest.raises(streams.Killed):
            run(streams.job(source, out))
    for step in ("losses", "profile"):
        path = sorted((out / ".expost-run" / step).glob("part-*"))[2]
        path.write_bytes(path.read_bytes()[:-7])
    run(streams.job(source, out, resume=True))
    assert same(out)


def test_a_model_that_was_listed_and_is_gone_is_not_drawn_again(source, tmp_path, monkeypatch):
    out = tmp_path / "o"
    with monkeypatch.context() as patch:
        streams.Disk(patch, "/o/model.json", after=True)
        with pytest.raises(streams.Killed):
            run(streams.job(source, out))
    (out / "model.json").unlink()
    with pytest.raises(InvalidInput, match="is gone; it is not drawn a second time"):
        run(streams.job(source, out, resume=True))
    # Nor is another one that lies there taken for it.
    (out / "model.json").write_text("{}")
    with pytest.raises(InvalidInput, match="not drawn a second time"):
        run(streams.job(source, out, resume=True))
    # Another release must be asked for, and both count.
    (out / "model.json").unlink()
    run(streams.job(source, out, force=True, seed=2))
    assert len(Ledger.load(out / "ledger.CURATOR-ONLY.json")) == 2


def test_an_error_before_there_is_anything_leaves_no_trace(source, tmp_path, monkeypatch):
    out = tmp_path / "a" / "o"

    def failing(*arguments, **options):
        raise InvalidInput("no.")

    monkeypatch.setattr(profile_module, "training_of", failing)
    with pytest.raises(InvalidInput, match="no"):
        run(streams.job(source, out))
    assert not (tmp_path / "a").exists()


def test_an_error_after_the_model_names_resume(program, source, tmp_path, monkeypatch, same):
    out = tmp_path / "o"

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    command = ("profile", source, "--target", "income", "--id", "number", "--out", out)
    with monkeypatch.context() as patch:
        patch.setattr(PartStore, "write", full)
        done = program(*command, "--engine", "local")
    assert (done.code, done.out) == (2, "")
    assert "No space left on device" in done.err
    assert "--resume" in done.err
    assert done.err.count("\n") == 1
    done = program(*command, "--engine", "local", "--resume", "--json-curator")
    assert done.code == 0
    assert set(json.loads(done.out)) >= {"files", "summary"}
    named = {"ledger-path.CURATOR-ONLY.json"}
    assert names(out) == FILES - {"ledger.CURATOR-ONLY.json"} | named


# Other options, other rows -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def broken_off(source, tmp_path_factory):
    """A run that was begun, and was killed after its model."""
    out = tmp_path_factory.mktemp("begun") / "o"
    with pytest.MonkeyPatch.context() as patch:
        streams.small_blocks(patch)
        streams.Disk(patch, "losses/part-000002", after=False)
        with pytest.raises(streams.Killed):
            run(streams.job(source, out))
    return out


@pytest.fixture
def begun(broken_off, tmp_path):
    """The same, to work on."""
    return shutil.copytree(broken_off, tmp_path / "o")


def test_another_task_is_refused(source, begun):
    before = streams.contents(begun)
    for options, words in (
        ({"epsilon": 2.0}, "--epsilon"),
        ({"seed": 2}, "--seed"),
        ({"id_column": None}, "--id-column"),
    ):
        with pytest.raises(InvalidInput, match=rf"differs in .*{words}"):
            run(streams.job(source, begun, resume=True, **options))
    assert streams.contents(begun) == before


def test_a_file_that_changed_is_refused(source, begun):
    before = source.stat()
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(InvalidInput, match=r"differs in the files \(they changed\)"):
        run(streams.job(source, begun, resume=True))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_rows_without_files_are_compared_themselves(tmp_path, monkeypatch, same):
    rows = streams.table()
    with monkeypatch.context() as patch:
        streams.Disk(patch, "losses/part-000002", after=False)
        with pytest.raises(streams.Killed):
            run(_of_rows(rows, tmp_path / "o"))
    changed = rows.set_column(2, "hours", pa.array([*rows["hours"].to_pylist()[:-1], 3.0]))
    with pytest.raises(InvalidInput, match="its rows are not those"):
        run(_of_rows(changed, tmp_path / "o", resume=True))
    run(_of_rows(rows, tmp_path / "o", resume=True))
    assert same(tmp_path / "o")


def _of_rows(rows, out, **options):
    request = streams.job("", out, **options)
    return type(request)(**{**request.__dict__, "source": rows})


def test_an_unfinished_run_is_not_overwritten_without_force(source, begun):
    out = begun
    with pytest.raises(InvalidInput, match=r"unfinished run.*--resume.*--force"):
        run(streams.job(source, out))
    # In memory neither.
    with pytest.raises(InvalidInput, match="holds an unfinished run"):
        in_memory(source, out)
    in_memory(source, out, force=True)
    assert not (out / ".expost-run").exists()
    assert (out / TABLE).is_file()
    with pytest.raises(AlreadyFinished, match="this run is finished"):
        run(streams.job(source, out, resume=True))
    with pytest.raises(InvalidInput, match=r"no unfinished run.*--resume"):
        run(streams.job(source, out, resume=True, seed=5))


def test_resume_begins_where_nothing_is(source, tmp_path, same):
    run(streams.job(source, tmp_path / "o", resume=True))
    assert same(tmp_path / "o")


# Over an earlier run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path_part", "streamed_before"),
    [
        ("/.expost-run/model.json", True),
        ("/o/model.json", False),
        pytest.param("/losses.json", True, marks=pytest.mark.long),
        pytest.param("/losses.json", False, marks=pytest.mark.long),
    ],
)
def test_force_takes_the_place_of_an_earlier_run(
    source, tmp_path, monkeypatch, undisturbed, streamed_before, path_part
):
    out = tmp_path / "o"
    engine = "local:1" if streamed_before else None
    run(streams.job(source, out, engine=engine, seed=7, memory=None))
    first = (out / "model.json").read_bytes()
    with monkeypatch.context() as patch:
        streams.Disk(patch, path_part, after=False)
        with pytest.raises(streams.Killed):
            run(streams.job(source, out, force=True))
    # The model that was there is there until the other one appears, and is never taken for it.
    if path_part != "/losses.json":
        assert (out / "model.json").read_bytes() == first
    assert not (out / TABLE).exists()
    run(streams.job(source, out, resume=True))
    assert streams.contents(out).keys() == streams.contents(undisturbed[0]).keys()
    assert (out / "model.json").read_bytes() != first
    ours = {name: b for name, b in streams.contents(out).items() if "part-" in name}
    theirs = {name: b for name, b in streams.contents(undisturbed[0]).items() if "part-" in name}
    assert ours == theirs
    assert len(Ledger.load(out / "ledger.CURATOR-ONLY.json")) == 2
