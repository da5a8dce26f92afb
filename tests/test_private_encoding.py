"""Private encodings: the encoding and the model as one release."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import expost
from expost.errors import InvalidInput
from expost.jobs.ledger import composition_notices
from expost.ledger import Ledger, entries_of
from expost.mechanisms.encoded import EncodingLosses, model_mechanism
from expost.numbers import summed_up
from expost.publishing.compare import compare
from expost.publishing.publish import ReleasedRows
from expost.release import Release
from expost.report import document_of
from expost.types import Audience
from program import page_in

# Nearly every row is clipped by default; tests/test_warnings.py has the warning.
pytestmark = pytest.mark.filterwarnings("ignore::expost.errors.ClippedRowsWarning")

GIVEN = {
    "columns": {
        "age": {"range": [0, 100]},
        "job": {"kind": "levels"},
        "town": {"kind": "levels"},
    }
}


def people(rows=400, seed=0):
    """Rows with a number, common levels, and levels that a few rows have or one row alone."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(45, 15, rows).round(1),
            "job": rng.choice(["clerk", "nurse", "smith"], rows),
            "town": [f"t{min(int(value), 30)}" for value in rng.geometric(0.15, rows)],
        }
    )
    score = (frame.age - 45) / 15 + (frame.job == "nurse") + rng.normal(size=rows)
    return frame, np.where(score > 0.3, "yes", "no")


def model(**changes):
    known = {
        "epsilon": 8.0,
        "delta": 1e-3,
        "classes": ("no", "yes"),
        "encoding": GIVEN,
        "private_encoding": 0.2,
    }
    return expost.PrivateLogisticRegression(**known | changes)


@pytest.fixture
def table(tmp_path):
    frame, labels = people()
    path = tmp_path / "people.csv"
    frame.assign(ill=labels).to_csv(path, index=False)
    (tmp_path / "public.json").write_text(json.dumps(GIVEN))
    return path


@pytest.fixture
def ask(program, table, tmp_path):
    def call(*more, out="o"):
        return program(
            *("profile", table, "--target", "ill", "--classes", "no,yes", "--epsilon", 8),
            *("--delta", 0.001, "--encoding", tmp_path / "public.json"),
            *("--out", tmp_path / out, *more),
        )

    return call


# -- one release -------------------------------------------------------------------------------


def test_epsilon_and_delta_are_those_of_both():
    fitted = model().fit(*people())
    mechanism = fitted.release_.mechanism
    assert (mechanism.epsilon, mechanism.delta) == (8.0, 1e-3)
    own = fitted.release_.table_encoding.histograms
    assert own.epsilon == pytest.approx(1.6, rel=1e-6)
    assert summed_up([own.epsilon, model_mechanism(mechanism).epsilon]) == 8.0
    assert mechanism.delta_at(8.0) <= 1e-3
    assert fitted.release_.audience is Audience.PUBLIC
    assert fitted.release_.read_from_data == ()


def test_only_the_classes_are_read_where_they_are_not_given():
    with pytest.warns(Warning, match="classes"):
        fitted = model(classes=None).fit(*people())
    assert fitted.release_.audience is Audience.NEEDS_REVIEW
    assert all("classes" in name for name in fitted.release_.read_from_data)


def test_model_json_keeps_the_histograms(tmp_path):
    fitted = model().fit(*people())
    read = Release.load(fitted.save(tmp_path / "model.json"))
    assert read.mechanism.describe() == fitted.release_.mechanism.describe()
    assert (read.mechanism.epsilon, read.mechanism.delta) == (8.0, 1e-3)
    frame, _ = people()
    np.testing.assert_array_equal(read.scores(frame), fitted.release_.scores(frame))


@pytest.mark.parametrize("position", ["scale", "epsilon", "counts"])
def test_edited_histograms_are_refused(tmp_path, position):
    value = model().fit(*people()).release_.table_encoding.to_json()
    if position == "counts":
        value["histograms"]["columns"][0]["counts"][3] += 1000
    else:
        value["histograms"][position] *= 0.5
    with pytest.raises(InvalidInput, match="histograms"):
        model(encoding=value, private_encoding=None).fit(*people())


def test_losses_are_those_of_the_histograms_and_of_the_model():
    frame, labels = people()
    fitted = model().fit(frame, labels)
    whole = expost.profile(fitted, frame, labels)
    mechanism, objective = fitted.release_.mechanism, fitted.release_.objective(frame, labels)
    alone = model_mechanism(mechanism).losses(
        objective, fitted.release_.theta, change_of(objective)
    )
    own = encoding_losses(mechanism, objective.held)
    finite = np.isfinite(own.loss)
    np.testing.assert_allclose(
        whole.losses.loss[finite], (own.loss + alone.loss)[finite], atol=1e-12
    )
    assert np.all(np.isinf(whole.exposure[~finite]))
    assert np.all(whole.loss_low <= whole.losses.loss)
    assert np.all(whole.loss_high >= whole.losses.loss)
    assert any("histograms" in notice for notice in whole.notices)


def encoding_losses(mechanism, rows):
    """The losses of the histograms alone."""
    return EncodingLosses.of(mechanism.histograms, rows.counted).rows(rows.cells)


def change_of(objective):
    from expost.neighbouring.change import Change

    return Change.of(objective.held)


def test_the_pair_of_encoding_and_model_keeps_its_law():
    """E[e^(−loss)] = 1 over releases of both, and δ(ε) of the worst row stays below δ.

    400 releases of 40 rows, five standard errors. Losses that are half as large again fail, and so
    would losses without the part of the histograms.
    """
    frame, labels = people(40, seed=3)
    labels[:2] = "no", "yes"
    both, alone = [], []
    for seed in range(400):
        fitted = model(epsilon=2.0, delta=0.05, private_encoding=0.5, random_state=seed)
        with pytest.warns(expost.errors.SeededReleaseWarning):
            fitted.fit(frame, labels)
        mechanism, objective = fitted.release_.mechanism, fitted.release_.objective(frame, labels)
        change = change_of(objective)
        both.append(mechanism.losses(objective, fitted.release_.theta, change).loss)
        part = model_mechanism(mechanism).losses(objective, fitted.release_.theta, change)
        alone.append(part.loss)
    both, alone = np.stack(both), np.stack(alone)
    evidence = np.exp(-both)
    error = evidence.std(axis=0) / math.sqrt(len(both))
    assert np.all(np.abs(evidence.mean(axis=0) - 1) < 5 * error + 1e-9)
    # δ(ε) = E[(1 − e^(ε − loss))₊] of every row, the infinite losses of single levels included.
    spent = np.maximum(-np.expm1(2.0 - both), 0.0)
    slack = 5 * spent.std(axis=0) / math.sqrt(len(both))
    assert np.all(spent.mean(axis=0) <= 0.05 + slack)
    # Power: losses twice as large fail in the mean over all rows, which these pass, too, and the
    # histograms' part is of the size that their noise has.
    known = both[:, np.isfinite(both).all(axis=0)]
    assert abs(standardised(np.exp(-known).mean(axis=1) - 1)) < 5
    assert standardised(np.exp(-2 * known).mean(axis=1) - 1) > 5
    left = (both - alone)[:, np.isfinite(both).all(axis=0)]
    assert left.std(axis=0).min() > 0.1


def standardised(values):
    """The mean in units of its standard error."""
    return values.mean() / (values.std() / math.sqrt(len(values)))


def test_models_that_share_an_encoding_count_it_once():
    frame, labels = people()
    first = model().fit(frame, labels)
    shared = {"encoding": first.release_.table_encoding, "private_encoding": None}
    second = model(**shared).fit(frame, labels)
    both = expost.profile([first, second], frame, labels)
    left, other = (expost.profile(fitted, frame, labels) for fitted in (first, second))
    objective = first.release_.objective(frame, labels)
    own = encoding_losses(first.release_.mechanism, objective.held)
    known = np.isfinite(own.loss)
    expected = (left.loss + other.loss - own.loss)[known]
    np.testing.assert_allclose(both.loss[known], expected, atol=1e-9)


def test_seeded_histograms_are_not_public(tmp_path):
    frame, labels = people()
    with pytest.warns(expost.errors.SeededReleaseWarning):
        seeded = model(random_state=1).fit(frame, labels)
    encoding = seeded.release_.table_encoding
    assert encoding.audience is Audience.NEEDS_REVIEW
    second = model(encoding=encoding, private_encoding=None).fit(frame, labels)
    assert second.release_.seeded
    assert second.release_.audience is Audience.NEEDS_REVIEW


def test_rows_with_other_levels_are_refused():
    frame, labels = people(3000)
    fitted = model().fit(frame, labels)
    moved = frame.copy()
    moved.loc[:600, "job"] = "smith"
    with pytest.raises(expost.errors.WrongRows):
        expost.profile(fitted, moved, labels)


def test_missing_cells_are_encoded_as_they_were_given():
    frame, labels = people()
    frame.loc[3, "age"] = None
    given = {
        "columns": {
            **GIVEN["columns"],
            "age": {"range": [0, 100], "fill": 7},
            "job": {"kind": "levels", "levels": None, "missing_level": True},
        }
    }
    fitted = model(encoding=given).fit(frame, labels)
    age, job, _ = fitted.release_.table_encoding.entries
    assert age.fill == 7
    assert job.missing_level
    assert fitted.release_.audience is Audience.PUBLIC
    again = Release.from_json(fitted.release_.to_json())
    assert again.table_encoding == fitted.release_.table_encoding


def test_publishing_compares_with_the_losses_of_both():
    frame, labels = people()
    fitted = model().fit(frame, labels)
    report = expost.publish(fitted, frame, labels)
    comparison = compare(report, ReleasedRows.of_arrays(fitted.release_, frame, labels))
    exact = expost.profile(fitted, frame, labels)
    np.testing.assert_allclose(comparison.columns()["exposure"], exact.exposure, atol=1e-12)


def test_persons_leave_with_all_their_rows():
    frame, labels = people()
    owner = np.arange(len(frame)) // 2
    fitted = model(rows_per_person=2).fit(frame, labels, persons=owner)
    assert fitted.release_.table_encoding.histograms.rows_per_person == 2
    profile = expost.profile(fitted, frame, labels, persons=owner)
    assert len(profile.exposure) == 200
    assert profile.losses.worst_case == pytest.approx(8.0)


def test_a_published_bound_covers_both():
    frame, labels = people()
    fitted = model().fit(frame, labels)
    report = expost.publish(fitted, failure_probability=0.01)
    exact = expost.profile(fitted, frame, labels)
    bound, _, _ = report.bound(frame, labels)
    assert np.all(np.isfinite(bound))
    finite = np.isfinite(exact.exposure)
    assert np.mean(bound[finite] >= exact.exposure[finite]) == 1
    own = fitted.release_.table_encoding.histograms
    assert bound.min() > math.sqrt(3) / own.scale


def test_a_report_that_bounds_nothing_states_it():
    """A level that one row has may pass its threshold with more than half of ρ."""
    fitted = model().fit(*people())
    for rho, is_void in ((1e-6, True), (0.01, False)):
        report = expost.publish(fitted, failure_probability=rho)
        assert report.is_void == is_void
        titles = [alert.title for alert in document_of(report).alerts]
        assert ("The bound is 100 % for everyone." in titles) == is_void


# -- the command line --------------------------------------------------------------------------


def test_memory_and_blocks_agree(ask, tmp_path):
    done = ask("--private-encoding", 0.2)
    assert (done.code, done.err) == (0, "")
    again = ask("--model", tmp_path / "o" / "model.json", "--engine", "local", out="b")
    # The model has settled the rest.
    assert again.code == 2
    first = pd.read_parquet(tmp_path / "o" / "profile.CURATOR-ONLY.parquet")
    in_blocks = blocks(tmp_path)
    for name in ("loss", "loss_low", "loss_high"):
        np.testing.assert_allclose(in_blocks[name], first[name], atol=1e-9)


def blocks(tmp_path):
    from expost.jobs import profile
    from expost.jobs.requests import ProfileRequest

    job = ProfileRequest(
        source=tmp_path / "people.csv",
        target="ill",
        model=tmp_path / "o" / "model.json",
        engine="local",
        out=tmp_path / "blocks",
    )
    profile.run(job)
    return pd.read_parquet(tmp_path / "blocks" / "profile.CURATOR-ONLY.parquet")


def test_the_command_states_the_whole_budget(ask, tmp_path):
    done = ask("--private-encoding")
    assert (done.code, done.err) == (0, "")
    assert "ε = 8" in done.out
    assert "private encoding" in done.out
    release = Release.load(tmp_path / "o" / "model.json")
    assert release.audience is Audience.PUBLIC
    assert release.table_encoding.histograms.epsilon == pytest.approx(0.8, rel=1e-6)
    ledger = Ledger.load(tmp_path / "people.ledger.CURATOR-ONLY.json")
    assert [entry.kind for entry in ledger.entries] == ["encoding", "model"]
    assert ledger.epsilon_by_addition == 8.0
    assert ledger.delta_by_addition <= 1e-3 * (1 + 1e-9)
    page = page_in(tmp_path / "o")
    assert "released 2 times" not in json.dumps(page.get("profile").facts)


def test_no_exact_count_is_in_a_public_file(ask, tmp_path):
    """The noisy counts are public; the exact ones, and levels that were not released, are not."""
    frame, _ = people()
    assert ask("--private-encoding", 0.2).code == 0
    text = (tmp_path / "o" / "model.json").read_text()
    shown = Release.load(tmp_path / "o" / "model.json").table_encoding.histograms
    town = next(column for column in shown.columns if column.name == "town")
    hidden = set(frame.town) - set(town.levels)
    assert hidden
    assert not [level for level in hidden if f'"{level}"' in text]


def test_an_interrupted_run_leaves_no_encoding_or_resumes_with_it(ask, tmp_path, monkeypatch):
    from expost.jobs import profile, runs

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(profile, "training_of", stopped)
        assert ask("--private-encoding", 0.2).code == 130
        assert not (tmp_path / "o").exists()
        # As a run that is killed leaves it.
        patch.setattr(runs.Run, "has_results", True)
        assert ask("--private-encoding", 0.2).code == 130
    (kept,) = tmp_path.glob("o/**/encoding.json")
    before = json.loads(kept.read_text())["value"]["histograms"]
    done = ask("--private-encoding", 0.2, "--resume")
    assert done.code == 0, done.err
    after = Release.load(tmp_path / "o" / "model.json").table_encoding.histograms
    assert after.to_json() == before


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"encoding": None}, "age"),
        ({"encoding": {"columns": {"age": {"range": [0, 100]}}}}, "job"),
        ({"delta": 0}, "delta"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"private_encoding": 0.0}, "private_encoding"),
        ({"encoding": {"columns": {"age": {"range": None}, "job": {}, "town": {}}}}, "age"),
    ],
    ids=str,
)
def test_what_cannot_be_private_is_refused(changes, word):
    with pytest.raises(InvalidInput, match=word):
        model(**changes).fit(*people())


def test_too_few_rows_for_any_level_are_refused():
    frame, labels = people(60)
    given = {"columns": {"job": {"kind": "levels"}, "town": {"kind": "levels"}}}
    with pytest.raises(InvalidInput, match="too few rows"):
        model(encoding=given, epsilon=0.1).fit(frame[["job", "town"]], labels)


def test_nothing_is_drawn_where_nothing_is_released():
    frame, labels = people()
    with pytest.raises(InvalidInput, match="private_encoding"):
        expost.choose_epsilon(frame, labels, estimator=model())
    fitted = model().fit(frame, labels)
    released = model(encoding=fitted.release_.table_encoding, private_encoding=None)
    with pytest.raises(InvalidInput, match="is a private release"):
        expost.choose_epsilon(frame, labels, estimator=released)
    features = fitted.release_.table_encoding.encode_features(frame)
    with pytest.raises(InvalidInput, match="table"):
        expost.profile(fitted, features, labels)


def test_columns_that_are_given_cost_nothing():
    frame, labels = people()
    levels = sorted(set(frame.job))
    given = {"columns": {**GIVEN["columns"], "job": {"levels": levels}}}
    fitted = model(encoding=given).fit(frame, labels)
    names = [column.name for column in fitted.release_.table_encoding.histograms.columns]
    assert names == ["age", "town"]


def test_notices_count_an_encoding_with_its_model(tmp_path):
    X, y = people()
    lines = []
    for name in ("a.json", "b.json"):
        lines += entries_of(model().fit(X, y).save(tmp_path / name), data="1" * 64)
    assert len(lines) == 4
    ledger = Ledger.new().with_entries(lines)
    first, second = composition_notices(ledger, tmp_path / "ledger.json", "2" * 64)
    assert "has 2 releases" in first
    assert second.startswith("2 of the 2 were made from other rows")
