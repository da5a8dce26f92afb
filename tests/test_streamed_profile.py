"""Profiles in parts: what adds up, what is exact, and the verb in Python."""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import expost
import streams
from expost._order import Histogram
from expost.engine import LocalEngine
from expost.errors import InvalidInput
from expost.files.parts import PartStore
from expost.jobs.profile import run
from expost.profiles.streamed import Fits, Tops, digest, most_exposed, ranked_parts, tops_of
from expost.profiles.streamed_result import QUANTILE_ERROR, StreamedProfile
from expost.rows import RowBlock
from expost.types import Audience

RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def engine():
    engine = LocalEngine(2)
    yield engine
    engine.close()


def figures(rows, start=0, ties=False):
    """Rows of a made-up profile; with ties most exposures are equal."""
    loss = RNG.normal(0, 0.1, rows)
    if ties:
        loss = np.where(RNG.random(rows) < 0.9, 0.05, loss)
    width = RNG.uniform(0, 0.01, rows)
    distance = RNG.uniform(0.01, 1, rows)
    return pa.table(
        {
            "row": np.arange(start, start + rows),
            "loss": loss,
            "loss_low": loss - width,
            "loss_high": loss + width,
            "exposure": np.abs(loss),
            "typical": distance / 10,
            "distance": distance,
            "distance_error": distance * RNG.choice([1e-6, 1e-2], rows),
        }
    )


def stored(folder, tables, **tops):
    store = PartStore.at(folder)
    parts = {}
    for index, table in enumerate(tables):
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        own = Tops(
            exposure=float(np.max(columns["exposure"])),
            loss=1.0,
            typical=float(np.max(columns["typical"])),
            distance=float(np.max(columns["distance"])),
            **tops,
        )
        about = table.replace_schema_metadata({"expost": own.to_json()})
        parts[index] = store.write(index, about)
    return store, parts


# -- what adds up ----------------------------------------------------------------------------------


def test_fits_of_blocks_add_up_to_those_of_all_rows():
    X, y = RNG.normal(size=(90, 3)), RNG.normal(5, 2, 90)
    models = (RNG.normal(size=3), RNG.normal(size=3))
    total = Fits()
    for start in (0, 20, 25):
        stop = {0: 20, 20: 25, 25: 90}[start]
        total = total.merged(Fits.of(RowBlock.of(X[start:stop], y[start:stop]), models))
    z = [X @ theta for theta in models]
    assert total.rows == 90
    assert total.right == tuple(int(np.sum((one > 0) == (y > 0))) for one in z)
    np.testing.assert_allclose(total.errors, [np.sum((one - y) ** 2) for one in z])
    np.testing.assert_allclose([total.mean, total.spread], [np.mean(y), 90 * np.var(y)])


def test_what_a_part_says_of_itself_keeps_every_digit():
    fits = Fits(rows=3, right=(1, 2), errors=(0.1, 1 / 3), mean=math.pi, spread=1e-300)
    tops = Tops(exposure=0.1, loss=0.2, typical=1 / 3, distance=1e-17, fits=fits)
    assert Tops.from_json(tops.to_json().encode()) == tops


@pytest.mark.parametrize("noiseless", [False, True])
def test_the_digest_of_parts_is_that_of_all_rows(tmp_path, engine, noiseless):
    tables = [figures(rows, start) for rows, start in ((500, 0), (300, 500), (7, 800))]
    store, parts = stored(tmp_path, tables)
    tops = tops_of(store, parts, engine)
    worst = np.inf if noiseless else 0.2
    found = digest(store, parts, tops, engine, worst_case=worst, noiseless=noiseless)
    table = pa.concat_tables(tables)
    loss, low, high, exposure, distance, error = (
        table.column(name).to_numpy()
        for name in ("loss", "loss_low", "loss_high", "exposure", "distance", "distance_error")
    )
    assert found.rows == 807
    assert found.inside == np.sum(loss > 0)
    assert found.loose == np.sum(error > 1e-3 * distance)
    assert 300 < found.loose < 500
    assert found.past_promise == (0 if noiseless else np.sum(exposure > 0.2))
    assert found.past_belief == np.sum(exposure > np.log(3)) == 0
    assert found.proved_past == np.sum(np.maximum(low, -high) > worst)
    assert found.half_width == (0 if noiseless else np.max((high - low) / 2))
    assert found.outer == np.max(np.maximum(np.abs(low), np.abs(high)))
    assert found.farthest == np.max(distance + error)
    assert found.nearest == np.min(distance)
    assert (found.unproved, found.infinite) == (0, 0)
    assert found.scores.count == found.distance.count == 807
    assert (found.typical is None) is noiseless


def test_a_figure_that_is_not_a_number_is_no_exposure(tmp_path, engine):
    table = figures(5)
    broken = table.set_column(4, "exposure", pa.array([0.1, np.nan, 0.1, 0.1, 0.1]))
    store, parts = stored(tmp_path, [table])
    store, parts = store, {0: store.write(0, broken)}
    with pytest.raises(ArithmeticError, match="not a number"):
        digest(store, parts, Tops(exposure=1.0), engine, worst_case=1.0, noiseless=False)


# -- ranks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("most", [1, 25, 10_000])
def test_ranks_lie_within_their_error_and_the_top_is_exact(tmp_path, engine, ties, most):
    tables = [figures(rows, start, ties) for rows, start in ((500, 0), (300, 500), (7, 800))]
    store, parts = stored(tmp_path / "losses", tables)
    tops = tops_of(store, parts, engine)
    found = digest(store, parts, tops, engine, worst_case=1.0, noiseless=False)
    target = PartStore.at(tmp_path / "ranked")
    options = {"noiseless": False, "most": most}
    made, top = ranked_parts(store, parts, target, found.scores, engine, **options)
    whole = pa.concat_tables(tables)
    exposure, distance, row = (
        whole.column(name).to_numpy() for name in ("exposure", "distance", "row")
    )
    # Naively: sort all of them.
    order = sorted(range(807), key=lambda at: (-exposure[at], -distance[at], row[at]))
    assert top.column("row").to_pylist() == order[:most]
    ranked = pa.concat_tables([target.read(made[index]) for index in range(3)])
    rank, error = (ranked.column(name).to_numpy() for name in ("rank", "rank_error"))
    true = np.empty(807, dtype=int)
    true[order] = np.arange(1, 808)
    assert np.all(np.abs(rank - true) <= error)
    assert np.all(rank >= 1)
    assert np.all(rank <= 807)
    if not ties:
        assert np.mean(error) < 3
    # Once more: nothing is written again, and the same rows are found.
    before = {path.name: path.stat().st_mtime_ns for path in target.folder.iterdir()}
    again, same = ranked_parts(store, parts, target, found.scores, engine, **options)
    assert again == made
    assert same.equals(top)
    assert {path.name: path.stat().st_mtime_ns for path in target.folder.iterdir()} == before


def test_without_noise_rows_rank_by_distance():
    table = figures(50).set_column(1, "loss", pa.array([np.inf] * 50))
    found = most_exposed(table, 10, noiseless=True).column("distance").to_numpy()
    assert list(found) == sorted(table.column("distance").to_numpy(), reverse=True)[:10]


# -- the result ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model of a small table, and its streamed profile."""
    folder = tmp_path_factory.mktemp("made")
    source = streams.write(folder)
    with pytest.MonkeyPatch.context() as patch:
        streams.small_blocks(patch)
        outcome = run(streams.job(source, folder / "o"))
    return source, folder / "o", outcome.profile


def test_the_verb_profiles_a_model_again(made, tmp_path, monkeypatch):
    source, out, first = made
    streams.small_blocks(monkeypatch)
    found = expost.profile_stream(
        out / "model.json", source, out=tmp_path / "o", id_column="number", engine="local:1"
    )
    assert isinstance(found, StreamedProfile)
    assert str(found) == str(first)
    assert found.lines()[0] == "Privacy profile of 400 rows (remove)"
    assert repr(found).startswith("StreamedProfile(400 rows, logistic by output perturbation")
    assert (len(found), found.audience) == (400, Audience.FAIL)
    assert [path.name for path in found.parts] == [path.name for path in first.parts]
    rows = pa.concat_tables(found.batches())
    assert len(rows) == 400
    assert found.top[0]["id"] in found.lines()[8]
    assert len(found.top) == 20
    exposure = rows.column("exposure").to_numpy()
    assert found.largest == np.max(exposure) == found.quantile(1.0)
    # A release in memory serves as well, and rows that are no file.
    again = expost.profile_stream(found.release, streams.table(), out=tmp_path / "again")
    assert not again.keyed
    assert again.figures.middle == found.figures.middle
    with pytest.raises(InvalidInput, match="is not empty"):
        expost.profile_stream(found.release, source, out=tmp_path / "o")


def test_the_verb_refuses_what_knows_no_table(made, tmp_path):
    source, _, found = made
    for model in (replace(found.release, encoding=None), np.zeros(3)):
        with pytest.raises(InvalidInput, match="with the encoding of its table"):
            expost.profile_stream(model, source, out=tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_quantiles_are_rounded_to_the_exposed_side(made):
    *_, found = made
    exposure = np.sort(pa.concat_tables(found.batches()).column("exposure").to_numpy())
    ranks = np.arange(1, 401)
    told = found.scores_of(ranks)
    assert np.all(told >= exposure)
    assert np.all(told <= exposure * (1 + QUANTILE_ERROR) + 2**-39 * exposure[-1])
    assert np.any(told > exposure)
    typical = np.sort(pa.concat_tables(found.batches()).column("typical").to_numpy())
    assert np.all(found.typical_of(ranks) >= typical)


def test_infinite_exposures_are_infinite(made):
    *_, found = made
    scores = Histogram(1.0)
    scores.add(np.array([0.1] * 398 + [np.inf] * 2))
    infinite = replace(found, digest=replace(found.digest, scores=scores, infinite=2))
    assert infinite.largest == math.inf
    assert infinite.quantile(0.99) < 0.11
    assert infinite.quantile(1.0) == math.inf
    assert infinite.figures.largest == math.inf


def test_a_broken_promise_is_the_first_thing_that_is_said(made):
    *_, found = made
    broken = replace(found, digest=replace(found.digest, proved_past=3, least=1.5))
    assert broken.lines()[0] == (
        "PROMISE BROKEN: 3 of 400 rows (remove) lose more than the 1 nat that was promised, one of"
        " them at least 1.5"
    )
    loose = replace(found, digest=replace(found.digest, unproved=1))
    assert "precision    every loss is proved to within inf nats" in loose.lines()


def test_the_json_file_says_where_the_rows_are(made, tmp_path):
    *_, found = made
    value = json.loads(found.to_json(tmp_path / "x.json").read_text())
    assert value["format"] == "expost-profile-parts/1"
    assert value["table"] == "profile.CURATOR-ONLY.parquet"
    assert value["quantile_error"] == QUANTILE_ERROR == 2**-9
    assert [entry["share"] for entry in value["quantiles"]] == [0.5, 0.9, 0.99, 0.999, 1.0]
    assert value["top"] == found.top
    assert (tmp_path / "x.CURATOR-ONLY.json").stat().st_mode & 0o077 == 0
