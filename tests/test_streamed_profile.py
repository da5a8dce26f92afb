"""Profiles in parts: what adds up, what is exact, and the verb in Python."""

import json
import math
import re
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
from expost.groups import tree
from expost.jobs.profile import run
from expost.losses import Logistic, Squared
from expost.mechanisms import sampling
from expost.profiles import subpopulations
from expost.profiles.digest import FIGURES, Maxima, Terms
from expost.profiles.fit import FitScores
from expost.profiles.parts import (
    digest_of_parts,
    maxima_of_parts,
    most_exposed,
    ranked_parts,
)
from expost.rows import RowBlock
from expost.types import Audience, Neighbouring

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
            "expected": distance / 10,
            "distance": distance,
            "distance_error": distance * RNG.choice([1e-6, 1e-2], rows),
        }
    )


def stored(folder, tables):
    store = PartStore.at(folder)
    parts = {}
    for index, table in enumerate(tables):
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        own = Maxima(
            exposure=float(np.max(columns["exposure"])),
            loss=1.0,
            expected=float(np.max(columns["expected"])),
            distance=float(np.max(columns["distance"])),
        )
        about = table.replace_schema_metadata({"expost": own.to_json()})
        parts[index] = store.write(index, about)
    return store, parts


def terms(worst_case=1.0, *, noiseless=False):
    return Terms(
        relation=Neighbouring.REMOVE,
        noiseless=noiseless,
        worst_case=np.inf if noiseless else worst_case,
        worst_case_passed=0.0,
        guarantee=None,
    )


# -- what adds up ----------------------------------------------------------------------------------


def test_fits_of_blocks_add_up_to_those_of_all_rows():
    X, y = RNG.normal(size=(90, 3)), RNG.normal(5, 2, 90)
    models = (RNG.normal(size=3), RNG.normal(size=3))

    def fit_in_blocks(labels, loss):
        total = FitScores()
        for start, stop in ((0, 20), (20, 25), (25, 90)):
            block = RowBlock.of(X[start:stop], labels[start:stop])
            total = total.merged(FitScores.of(block, models, loss))
        return total

    z = [X @ theta for theta in models]
    total = fit_in_blocks(y, Squared(label_bound=20.0))
    assert total.rows == 90
    np.testing.assert_allclose(total.errors, [np.sum((item - y) ** 2) for item in z])
    np.testing.assert_allclose([total.mean, total.spread], [np.mean(y), 90 * np.var(y)])
    signs = np.where(RNG.random(90) < 0.3, 1.0, -1.0)
    total = fit_in_blocks(signs, Logistic())
    assert total.right == tuple(int(np.sum((item > 0) == (signs > 0))) for item in z)
    assert total.classes == (int(np.sum(signs < 0)), int(np.sum(signs > 0)))
    np.testing.assert_allclose(
        total.log_losses, [np.sum(np.log1p(np.exp(-signs * item))) for item in z]
    )


def test_the_summary_of_a_part_keeps_every_digit():
    scores = FitScores(
        rows=3,
        right=(1, 2),
        log_losses=(0.1, 1 / 7),
        classes=(1, 2),
        errors=(0.1, 1 / 3),
        mean=math.pi,
        spread=1e-300,
    )
    maxima = Maxima(exposure=0.1, loss=0.2, expected=1 / 3, distance=1e-17, scores=scores)
    assert Maxima.from_json(maxima.to_json().encode()) == maxima


@pytest.mark.parametrize("noiseless", [False, True])
def test_the_digest_of_parts_is_that_of_all_rows(tmp_path, engine, noiseless):
    tables = [figures(rows, start) for rows, start in ((500, 0), (300, 500), (7, 800))]
    store, parts = stored(tmp_path, tables)
    maxima = maxima_of_parts(store, parts, engine)
    worst = np.inf if noiseless else 0.2
    given = terms(worst, noiseless=noiseless)
    digest = digest_of_parts(store, parts, maxima, given, engine)
    table = pa.concat_tables(tables)
    loss, low, high, exposure, distance, error = (
        table.column(name).to_numpy()
        for name in ("loss", "loss_low", "loss_high", "exposure", "distance", "distance_error")
    )
    assert digest.count == 807
    assert digest.inside == np.sum(loss > 0)
    assert digest.past_guarantee == (0 if noiseless else np.sum(exposure > 0.2))
    assert digest.past_posterior == np.sum(exposure > np.log(3)) == 0
    assert digest.proved_past == np.sum(np.maximum(low, -high) > worst)
    assert digest.half_width == (0 if noiseless else np.max((high - low) / 2))
    assert digest.outer == np.max(np.maximum(np.abs(low), np.abs(high)))
    assert digest.farthest == np.max(distance + error)
    assert digest.distance.least_positive == np.min(distance)
    assert digest.unproved == 0
    assert digest.scores.count == digest.distance.count == 807
    assert (digest.expected is None) is noiseless


def test_a_figure_that_is_not_a_number_is_no_exposure(tmp_path, engine):
    table = figures(5)
    broken = table.set_column(4, "exposure", pa.array([0.1, np.nan, 0.1, 0.1, 0.1]))
    store, parts = stored(tmp_path, [table])
    store, parts = store, {0: store.write(0, broken)}
    with pytest.raises(ArithmeticError, match="not a number"):
        digest_of_parts(store, parts, Maxima(exposure=1.0), terms(), engine)


# -- ranks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("most", [1, 25, 10_000])
def test_ranks_lie_within_their_error_and_the_top_is_exact(tmp_path, engine, ties, most):
    tables = [figures(rows, start, ties) for rows, start in ((500, 0), (300, 500), (7, 800))]
    store, parts = stored(tmp_path / "losses", tables)
    maxima = maxima_of_parts(store, parts, engine)
    digest = digest_of_parts(store, parts, maxima, terms(), engine)
    target = PartStore.at(tmp_path / "ranked")
    made, top = ranked_parts(store, parts, target, digest, terms(), engine, most=most)
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
    again, same = ranked_parts(store, parts, target, digest, terms(), engine, most=most)
    assert again == made
    assert same.equals(top)
    assert {path.name: path.stat().st_mtime_ns for path in target.folder.iterdir()} == before


def test_without_noise_rows_rank_by_distance():
    table = figures(50).set_column(1, "loss", pa.array([np.inf] * 50))
    result = most_exposed(table, 10).column("distance").to_numpy()
    assert list(result) == sorted(table.column("distance").to_numpy(), reverse=True)[:10]


# -- the result ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model of a small table, and its streamed profile."""
    folder = tmp_path_factory.mktemp("made")
    source = streams.write(folder)
    with pytest.MonkeyPatch.context() as patch:
        streams.small_blocks(patch)
        outcome = run(streams.job(source, folder / "o"))
        yield source, folder / "o", outcome.profile


def test_the_verb_profiles_a_model_again(made, tmp_path, monkeypatch):
    source, out, first = made
    streams.small_blocks(monkeypatch)
    profile = expost.profile(
        out / "model.json", source, out=tmp_path / "o", ids="number", engine="local:1"
    )
    assert isinstance(profile, expost.Profile)
    assert not profile.is_held
    assert str(profile) == str(first)
    assert "Privacy profile of 400 rows" in str(profile)
    assert repr(profile).startswith("Profile(400 rows, ")
    assert (len(profile), profile.audience) == (400, Audience.CURATOR_ONLY)
    names = [
        [path.name for path in sorted(p.parts.store.folder.iterdir())] for p in (profile, first)
    ]
    assert names[0] == names[1]
    rows = pa.concat_tables(profile.batches())
    assert len(rows) == 400
    top = profile.most(20).to_pylist()
    assert f"about row {top[0]['id']}" in str(profile)
    assert len(top) == 20
    exposure = rows.column("exposure").to_numpy()
    assert profile.scores.largest == np.max(exposure) == profile.quantile(1.0)
    # A release in memory serves as well, and rows that are no file.
    again = expost.profile(profile.release, streams.table(), out=tmp_path / "again", engine="local")
    assert not again.keyed
    assert again.quantile(0.5) == profile.quantile(0.5)
    with pytest.raises(InvalidInput, match="is not empty"):
        expost.profile(profile.release, source, out=tmp_path / "o")


def test_the_verb_refuses_what_knows_no_table(made, tmp_path):
    source, _, result = made
    for model in (replace(result.release, encoding=None), np.zeros(3)):
        with pytest.raises(InvalidInput, match="with the encoding of its table"):
            expost.profile(model, source, out=tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_arrays_of_rows_that_are_not_held_are_refused(made):
    *_, result = made
    names = (*FIGURES, "loss", "expected_error", "ranking", "ranked")
    for name in names:
        if name != "distance_error":
            with pytest.raises(InvalidInput, match="processed in blocks"):
                getattr(result, name)
    for method in (result.columns, result.to_arrow, result.to_frame):
        with pytest.raises(InvalidInput, match="batches"):
            method()
    posterior = result.identifiability()
    for name in ("posterior", "certainty_high", "ranking", "advantage"):
        with pytest.raises(InvalidInput, match="processed in blocks"):
            getattr(posterior, name)


def test_quantiles_are_rounded_to_the_exposed_side(made):
    *_, result = made
    table = pa.concat_tables(result.batches())
    exposure = np.sort(table.column("exposure").to_numpy())
    ranks = np.arange(1, 401)
    bounds = result.scores.at_most(ranks)
    assert np.all(bounds >= exposure)
    assert np.all(bounds <= exposure * (1 + result.scores.error) + 2**-39 * exposure[-1])
    assert np.any(bounds > exposure)
    expected = np.sort(table.column("expected").to_numpy())
    assert np.all(result.expected_scores.at_most(ranks) >= expected)


def medians(profile):
    """The median and the largest expected exposure."""
    order = profile.expected_scores
    return float(order.quantile(np.array([0.5]))[0]), order.largest


def with_digest(profile, **changes):
    parts = replace(profile.parts, digest=replace(profile.digest, **changes))
    return replace(profile, parts=parts)


def test_infinite_exposures_are_infinite(made):
    *_, result = made
    scores = Histogram.of(np.array([0.1] * 398 + [np.inf] * 2), 1.0)
    infinite = with_digest(result, scores=scores)
    assert infinite.quantile(0.99) == 0.1
    assert infinite.quantile(1.0) == infinite.scores.largest == math.inf


def test_a_broken_guarantee_is_the_first_notice(made):
    *_, result = made
    broken = with_digest(result, proved_past=3, least_exposure=1.5)
    assert broken.guarantee_exceeded
    assert str(broken).startswith("The guarantee is exceeded: 3 of 400 rows")
    loose = with_digest(result, unproved=1)
    assert "1 row without a certified interval" in str(loose)


# -- in memory and in blocks -----------------------------------------------------------------------

# What a job leaves out that profiles a model.
OF_A_MODEL = dict.fromkeys(("seed", "drop"))


@pytest.fixture(scope="module", params=[1.0, math.inf], ids=["noise", "noiseless"])
def both(request, tmp_path_factory):
    """The profiles of one model: of the rows in memory, and of the rows in blocks."""
    folder = tmp_path_factory.mktemp("both")
    source = streams.write(folder)
    with pytest.MonkeyPatch.context() as patch:
        streams.small_blocks(patch)
        made = streams.job(source, folder / "o", epsilon=request.param, data_norm=4.0)
        blocks = run(made).profile
        given = {"engine": None, "model": folder / "o" / "model.json", **OF_A_MODEL}
        yield run(streams.job(source, folder / "m", **given)).profile, blocks


def test_one_profile_whatever_the_source_of_the_rows(both):
    held, blocks = both
    assert (held.is_held, blocks.is_held) == (True, False)
    for name in ("rows", "relation", "is_noiseless", "worst_case", "rows_past_guarantee"):
        assert getattr(held, name) == getattr(blocks, name), name
    assert held.terms.worst_case_passed == blocks.terms.worst_case_passed
    for name in ("past_guarantee", "inside", "proved_past", "past_posterior"):
        assert getattr(held.digest, name) == getattr(blocks.digest, name), name
    for name in ("least_exposure", "outer"):
        first, other = getattr(held.digest, name), getattr(blocks.digest, name)
        assert other == pytest.approx(first, rel=1e-6), name
    assert blocks.scores.largest == pytest.approx(held.scores.largest, rel=1e-6)
    assert held.most(5, ())["id"].to_pylist() == blocks.most(5, ())["id"].to_pylist()
    assert [len(profile) for profile in both] == [400, 400]
    assert [len(list(profile.batches())) for profile in both] == [
        1,
        len(blocks.parts.store.parts()),
    ]


def test_medians_are_the_same_figure_and_never_less_in_blocks(both):
    """Defect 1: np.median in memory, and the order statistic below it in blocks, at ε = ∞."""
    held, blocks = both
    scores = np.sort(held.distance if held.is_noiseless else held.exposure)
    # The figure is a row's own: the 200th of 400.
    assert held.quantile(0.5) == scores[199]
    for share in (0.5, 0.99):
        first, other = (profile.quantile(share) for profile in (held, blocks))
        assert first * (1 - 1e-6) <= other <= first * (1 + 2**-9 + 1e-6)
    if not held.is_noiseless:
        first, other = (medians(profile) for profile in (held, blocks))
        assert first[0] == np.sort(held.expected)[199]
        assert first[0] * (1 - 1e-6) <= other[0] <= first[0] * (1 + 2**-9 + 1e-6)
        assert other[1] == pytest.approx(first[1], rel=1e-6)


def test_widths_are_the_same_figure(both):
    """Defect 2: ∞ − ∞ is no number in memory, and was 0 in blocks, at ε = ∞."""
    held, blocks = both
    if held.is_noiseless:
        assert held.digest.half_width == blocks.digest.half_width == 0.0
    else:
        assert 0 < held.digest.half_width < math.inf
        assert 0 < blocks.digest.half_width < math.inf
    unknown = replace(held.losses, noiseless=False, high=np.full(400, np.inf), worst_case=1.0)
    if not held.is_noiseless:
        assert replace(held, losses=unknown).digest.unproved == 400


def test_one_schema_of_the_json_file(both, tmp_path):
    """Defect 3: two formats that shared three keys."""
    held, blocks = both
    values = [json.loads(profile.to_json()) for profile in both]
    assert [value["format"] for value in values] == ["expost-profile/2"] * 2
    assert list(values[0]) == list(values[1])
    for name in ("figures", "quantiles", "top"):
        entries = [value[name] if name == "figures" else value[name][0] for value in values]
        assert list(entries[0]) == list(entries[1]), name
        kinds = [{key: type(cell) for key, cell in entry.items()} for entry in entries]
        assert kinds[0] == kinds[1], name
    for value in values:
        assert value["rows"] == value["figures"]["count"] == 400
        assert [entry["share"] for entry in value["quantiles"]] == [0.5, 0.9, 0.99, 0.999, 1.0]
        assert value["quantiles"][0]["at_most"] == value["figures"]["median"]
        assert len(value["top"]) == 20
    assert list(values[0]["table"]) == list(held.columns())
    assert values[1]["table"] == "profile.CURATOR-ONLY.parquet"
    assert [value["quantile_error"] for value in values] == [0.0, 2**-9]
    path = blocks.to_json(tmp_path / "x.json")
    assert path == tmp_path / "x.CURATOR-ONLY.json"
    assert path.stat().st_mode & 0o077 == 0


def test_one_table_of_figures(both):
    held, blocks = both
    columns = [name for name in blocks.batches().__next__().column_names if name != "rank_error"]
    assert columns == list(held.columns())
    # Predictions are those of models without noise.
    known = [name for name in FIGURES if held.is_noiseless or "prediction" not in name]
    assert columns[-len(known) :] == known
    rows = pa.concat_tables(blocks.batches())
    for name in ("loss", "exposure", "distance", "posterior"):
        mine, theirs = held.columns()[name], rows.column(name).to_numpy()
        np.testing.assert_allclose(theirs, mine, rtol=1e-6, err_msg=name)
    names = ("loss", "distance")
    most = [profile.most(20, names).to_pydict() for profile in both]
    assert most[0]["id"] == most[1]["id"]
    for name in names:
        np.testing.assert_allclose(most[1][name], most[0][name], rtol=1e-6)


@pytest.mark.parametrize("prior", [0.5, 0.1])
def test_posteriors_are_the_same_in_blocks(both, prior):
    held, _ = both
    mine, theirs = (profile.identifiability(prior, baseline=0.01) for profile in both)
    assert theirs.largest_attack_bound == pytest.approx(mine.largest_attack_bound, rel=1e-6)
    assert len(mine) == len(theirs) == 400
    for level in mine.levels:
        assert mine.rows_above(level) == theirs.rows_above(level)
    for level in mine.doubt_levels:
        assert mine.rows_doubted(level) == theirs.rows_doubted(level)
    assert mine.digest.most_certain.key == theirs.digest.most_certain.key
    assert mine.digest.least.key == theirs.digest.least.key
    for name in ("most_certain_advantage", "largest_advantage"):
        first, other = getattr(mine, name), getattr(theirs, name)
        assert first.key == other.key
        assert other.high == pytest.approx(first.high, rel=1e-6)
    if not held.is_noiseless:
        with pytest.raises(InvalidInput, match="processed in blocks"):
            theirs.rows_above(0.777)


def test_a_table_that_fits_into_memory_needs_no_folder(made, tmp_path):
    source, out, first = made
    profile = expost.profile(out / "model.json", source, ids="number")
    assert profile.is_held
    assert profile.ids[0] == "p0"
    lines = pa.concat_tables(first.batches())
    np.testing.assert_allclose(profile.loss, lines.column("loss").to_numpy(), rtol=1e-9)
    for frame in (streams.table(), streams.table().to_pandas()):
        again = expost.profile(out / "model.json", frame)
        assert np.array_equal(again.loss, profile.loss)
    with pytest.raises(InvalidInput, match="need a folder for their results"):
        expost.profile(out / "model.json", source, engine="local")
    with pytest.raises(InvalidInput, match="need a folder for their results"):
        expost.profile(out / "model.json", source, memory=1)
    with pytest.raises(InvalidInput, match=r"persons: .*name of a column"):
        expost.profile(out / "model.json", source, persons=["p0"] * 400)
    persons = expost.profile(out / "model.json", source, persons="number")
    assert len(persons) == 400


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_expected_exposures_under_objective_perturbation(tmp_path, monkeypatch, noise):
    """They are sampled: the same 64 releases in memory and in blocks."""
    source = streams.write(tmp_path)
    streams.small_blocks(monkeypatch)
    options = {"mechanism": "objective", "noise": noise}
    options |= {"delta": 1e-5} if noise == "gaussian" else {}
    blocks = run(streams.job(source, tmp_path / "o", **options)).profile
    given = {"engine": None, "model": tmp_path / "o" / "model.json", **OF_A_MODEL}
    held = run(streams.job(source, tmp_path / "m", **given)).profile
    rows = pa.concat_tables(blocks.batches())
    np.testing.assert_allclose(rows.column("expected").to_numpy(), held.expected, rtol=1e-6)
    first, other = medians(held), medians(blocks)
    assert first[0] * (1 - 1e-6) <= other[0] <= first[0] * (1 + 2**-9 + 1e-6)
    assert other[1] == pytest.approx(first[1], rel=1e-6)


def test_expected_exposures_of_many_coefficients_are_left_out(tmp_path, monkeypatch):
    source = streams.write(tmp_path)
    streams.small_blocks(monkeypatch)
    monkeypatch.setattr(sampling, "_MOST_COEFFICIENTS", 5)
    made = run(streams.job(source, tmp_path / "o", mechanism="objective", noise="laplace"))
    assert made.profile.expected_scores is None
    assert "expected" not in next(made.profile.batches()).column_names
    assert any("Expected exposures are left out" in alert.title for alert in made.page.alerts)


# -- exposures by column, and the tree -------------------------------------------------------------


def same_groups(held, blocks, *, error=2**-9):
    """Whether the groups are the same, but for medians, which are rounded up in blocks."""
    assert [group.label for group in held] == [group.label for group in blocks]
    for first, other in zip(held, blocks, strict=True):
        assert (first.rows, first.share, first.persons) == (other.rows, other.share, other.persons)
        for name in ("mean", "largest"):
            assert getattr(other, name) == pytest.approx(getattr(first, name), rel=1e-6)
        assert first.median * (1 - 1e-6) <= other.median <= first.median * (1 + error + 1e-6)
        # Rows that fall into one bucket of the histogram share the places of the top.
        assert abs(first.top_share - other.top_share) <= 0.5


@pytest.mark.parametrize("column", ["age", "hours", "city"])
@pytest.mark.parametrize("workers", [1, 2])
def test_exposures_by_column_in_blocks(both, column, workers):
    held, blocks = both
    cells = streams.table().column(column)
    mine = held.by(cells, name=column)
    theirs = blocks.by(column, engine=f"local:{workers}")
    assert (mine.name, mine.audience) == (theirs.name, theirs.audience)
    same_groups(mine, theirs)
    assert theirs.rows == 400
    assert sum(group.top_share for group in theirs) == pytest.approx(1, rel=1e-12)
    assert "processed in blocks" in theirs.notices[0]


def test_the_tree_in_blocks(both):
    held, blocks = both
    table = streams.table()
    cities = table.column("city").to_numpy(zero_copy_only=False)
    names = blocks.parts.cells.stream.encoding.feature_names
    X = np.column_stack(
        [
            cities == name.partition("=")[2] if "=" in name else table.column(name).to_numpy()
            for name in names
        ]
    ).astype(float)
    mine, theirs = held.explain(X, feature_names=names), blocks.explain()
    assert len(mine) > 1
    same_groups(mine, theirs)
    assert theirs.explained == pytest.approx(mine.explained, abs=1e-4)
    assert theirs.notices == mine.notices == ()


def test_rules_of_a_sample_are_applied_to_all_rows(made, monkeypatch):
    *_, result = made
    monkeypatch.setattr(tree, "_MOST_ROWS", 60)
    table, exposure = streams.table(), pa.concat_tables(result.batches()).column("exposure")
    grouping = result.by("hours")
    assert grouping.rows == 400
    assert "60 rows drawn at random" in grouping.notices[1]
    hours, scores = table.column("hours").to_numpy(), exposure.to_numpy()
    for group in grouping:
        edges = [float(word) for word in re.findall(r"-?[0-9.]+", group.label)]
        low = edges[0] if group.label.startswith(">") else -np.inf
        high = edges[-1] if "<=" in group.label else np.inf
        inside = (hours > low) & (hours <= high)
        assert group.rows == np.sum(inside)
        assert group.mean == pytest.approx(np.mean(scores[inside]), rel=1e-12)
        assert group.largest == np.max(scores[inside])
    # Values that the sample does not hold go together.
    ages = result.by("city")
    assert ages.rows == 400
    explanation = result.explain(depth=1)
    assert explanation.rows == 400
    (notice,) = explanation.notices
    assert "60 rows" in notice


def test_what_cannot_be_grouped_in_blocks_is_refused(made):
    *_, result = made
    for call, word in (
        (lambda: result.by(np.zeros(400)), "name a column"),
        (lambda: result.by("shoe size"), "shoe size"),
        (lambda: result.by("age", bins=0), "bins"),
        (lambda: result.explain(np.zeros((400, 2))), "leave it out"),
        (lambda: result.explain(depth=4), "depth"),
    ):
        with pytest.raises(InvalidInput, match=word):
            call()
    elsewhere = replace(result, parts=replace(result.parts, stream=None))
    with pytest.raises(InvalidInput, match="not available"):
        elsewhere.by("age")


def test_wide_tables_are_counted_in_several_passes(made, monkeypatch):
    *_, result = made
    whole = result.parts.cells.explored(["age", "hours", "city"], engine_of_one())
    monkeypatch.setattr(subpopulations, "_GROUPS_A_PASS", 7)
    again = result.parts.cells.explored(["age", "hours", "city"], engine_of_one())
    assert whole == again


def engine_of_one():
    return LocalEngine(1)
