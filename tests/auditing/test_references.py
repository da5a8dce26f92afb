"""References: each is what a person would train by hand, whoever trains it, whenever."""

import json
import stat

import joblib
import numpy as np
import pandas as pd
import pytest
from joblib._parallel_backends import ThreadingBackend
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from expost import PrivateLogisticRegression
from expost.auditing import references as module
from expost.auditing.references import evidence_of, no_references, train_references
from expost.auditing.targets import target_of
from expost.errors import ConvergenceError, InvalidInput
from parameters import refuse_nan

ROWS, MODELS = 60, 6
SEED = 20261116


def rows(n=ROWS, seed=0, classes=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    y = np.argmax(X[:, :classes] + rng.gumbel(size=(n, classes)), axis=1)
    return X, np.array(["a", "b", "c"])[y]


class Counting:
    """A training function that counts, and stops when told to."""

    def __init__(self, fails_at=None):
        self.seeds, self.fails_at = [], fails_at

    def __getstate__(self):
        # What it has counted does not change what it trains.
        return {}

    def __call__(self, X, y, seed):
        if self.fails_at is not None and len(self.seeds) == self.fails_at:
            raise ConvergenceError("stop")
        self.seeds.append(seed)
        # Every row and the seed show in the answers.
        return DecisionTreeClassifier(max_depth=3, random_state=seed % 2**31).fit(X, y)


def same(first, other):
    return all(
        np.array_equal(getattr(first, name), getattr(other, name))
        for name in ("confidence", "inside", "population", "views")
    )


def trained(target=None, **settings):
    X, y = rows()
    if target is None:
        target = target_of(DecisionTreeClassifier(max_depth=3, max_features=2), y)
    settings = {"models": MODELS, "random_state": SEED, **settings}
    return train_references(target, X, y, **settings)


def test_each_reference_is_trained_on_its_rows_and_asked_about_all():
    X, y = rows()
    outside = rows(20, seed=9)
    target = target_of(LogisticRegression(), y)
    references = trained(target, population=outside, shadows=2)
    for number in range(MODELS):
        part = references.inside[number]
        p = LogisticRegression().fit(X[part], y[part]).predict_proba(X)
        own = p[np.arange(ROWS), np.searchsorted(["a", "b", "c"], y)]
        np.testing.assert_allclose(
            references.confidence[number], np.log(own / (1 - own)), rtol=1e-3, atol=1e-4
        )
        if number < 2:
            np.testing.assert_allclose(references.views[number], np.sort(p)[:, ::-1], rtol=1e-4)
        p = LogisticRegression().fit(X[part], y[part]).predict_proba(outside[0])
        own = p[np.arange(20), np.searchsorted(["a", "b", "c"], outside[1])]
        np.testing.assert_allclose(
            references.population[number], np.log(own / (1 - own)), rtol=1e-3, atol=1e-4
        )
    assert references.views.shape == (2, ROWS, 3)
    assert (
        references.confidence.dtype
        == references.population.dtype
        == references.views.dtype
        == np.float32
    )
    assert references.models == MODELS


@pytest.mark.parametrize(("share", "held"), [(0.5, 3), (0.8, 5), (0.01, 1), (0.99, 5)])
def test_each_row_lies_in_as_many_references(share, held):
    inside = trained(share=share).inside
    assert inside.sum(axis=0).tolist() == [held] * ROWS


def test_places_are_uniform_and_rows_do_not_know_of_each_other(monkeypatch):
    """Of the 20 choices of 3 among 6 each comes as often (χ², false alarm 1e-3)."""

    def spread(count):
        X, y = rows(count)
        return train_references(
            target_of(DummyClassifier(), y), X, y, models=6, random_state=SEED
        ).inside

    inside = spread(40_000)
    codes = 2 ** np.arange(6) @ inside
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == 20
    statistic = np.sum((counts - 2000) ** 2 / 2000)
    assert statistic < 43.82
    # Power: one choice 10 % more frequent would be seen.
    assert np.sum((np.where(np.arange(20) == 0, 2400, counts) - 2000) ** 2 / 2000) > 43.82
    pairs = np.mean(inside[:, 0::2] & inside[:, 1::2])
    assert pairs == pytest.approx(0.25, abs=0.01)
    # Drawn in pieces they are as many in each, and the same again.
    monkeypatch.setattr(module, "_DRAWN", 7)
    cut = spread(100)
    assert np.array_equal(cut, spread(100))
    assert np.all(cut.sum(axis=0) == 3)


class AllAtOnce(ThreadingBackend):
    """A backend that gives nothing before the end."""

    supports_return_generator = False


def test_workers_do_not_matter():
    """Threads, processes and one after the other; also a function that only cloudpickle takes."""
    _, y = rows()
    local = target_of(
        lambda X, y, seed: DecisionTreeClassifier(max_depth=3, random_state=seed).fit(X, y), y
    )
    alone, functions = trained(), trained(local)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert same(trained(), alone)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert same(trained(), alone)
        assert same(trained(local), functions)
    with joblib.parallel_config(backend=AllAtOnce(), n_jobs=2):
        assert same(trained(), alone)
    # Power: they depend on the seed.
    assert not same(trained(random_state=SEED + 1), alone)


def test_what_is_not_seeded_differs():
    assert not np.array_equal(trained(random_state=None).inside, trained(random_state=None).inside)


def test_a_class_that_is_missing_from_a_half_has_probability_zero():
    X, y = rows()
    y[y == "c"] = "a"
    y[0] = "c"
    target = target_of(KNeighborsClassifier(1), y)
    references = train_references(target, X, y, models=4, random_state=SEED)
    assert np.array_equal(references.confidence[:, 0] > 0, references.inside[:, 0])
    assert np.all(np.isfinite(references.confidence))
    assert references.views.shape == (4, ROWS, 3)


def test_frames_and_private_models(recwarn):
    X, y = rows(classes=2)
    frame = pd.DataFrame(X, columns=list("abcd"))
    release = PrivateLogisticRegression(2.0, data_norm=6.0, classes=("a", "b")).fit(frame, y)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        references = train_references(target_of(release, y), frame, y, models=4, random_state=1)
        unfitted = target_of(PrivateLogisticRegression(2.0), y)
        other = train_references(unfitted, X, y, models=4, random_state=1)
    assert references.confidence.shape == other.confidence.shape == (4, ROWS)
    assert len(recwarn) == 0


def test_progress_counts_to_the_end():
    counts = []
    trained(progress=lambda done, all_: counts.append((done, all_)))
    assert counts == [(done, MODELS) for done in range(MODELS + 1)]


def test_beyond_the_memory_they_lie_in_a_file(tmp_path):
    inside, filed = trained(), trained(most_memory=MODELS * ROWS - 1)
    assert isinstance(filed.confidence, np.memmap)
    assert isinstance(filed.inside, np.memmap)
    assert not isinstance(inside.confidence, np.memmap)
    assert same(inside, filed)
    kept = trained(most_memory=0, checkpoint=tmp_path / "kept")
    assert same(inside, kept)
    # The file has no name: nothing is left of it.
    names = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert names == [*(f"reference-000{number}.npz" for number in range(MODELS)), "settings.json"]


def test_an_interrupted_training_goes_on(tmp_path):
    _, y = rows()
    whole = Counting()
    expected = trained(target_of(whole, y), shadows=2)
    with pytest.raises(ConvergenceError):
        trained(target_of(Counting(fails_at=4), y), checkpoint=tmp_path, shadows=2)
    assert len(list(tmp_path.glob("reference-*.npz"))) == 4
    rest, counts = Counting(), []
    references = trained(
        target_of(rest, y),
        checkpoint=tmp_path,
        shadows=2,
        progress=lambda done, _: counts.append(done),
    )
    assert same(references, expected)
    assert rest.seeds == whole.seeds[4:]
    assert len(set(whole.seeds)) == MODELS
    assert counts == [4, 5, 6]
    idle = Counting()
    assert same(trained(target_of(idle, y), checkpoint=tmp_path, shadows=2), expected)
    assert idle.seeds == []
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_a_seed_the_folder_remembers_it(tmp_path):
    first = trained(random_state=None, checkpoint=tmp_path)
    assert same(trained(random_state=None, checkpoint=tmp_path), first)
    entropy = int(json.loads((tmp_path / "settings.json").read_text())["entropy"])
    assert same(trained(random_state=entropy), first)


def test_a_torn_file_is_made_again(tmp_path):
    expected = trained(checkpoint=tmp_path)
    torn = tmp_path / "reference-0002.npz"
    torn.write_bytes(torn.read_bytes()[:-200])
    (tmp_path / "reference-0003.npz").write_bytes(b"")
    with np.load(tmp_path / "reference-0004.npz") as file:
        arrays = dict(file)
    arrays["confidence"][0] = np.nan
    np.savez(tmp_path / "reference-0004.npz", **arrays)
    counts = []
    references = trained(checkpoint=tmp_path, progress=lambda done, _: counts.append(done))
    assert same(references, expected)
    assert counts == [3, 4, 5, 6]


def test_foreign_files_are_refused(tmp_path):
    X, y = rows()
    trained(checkpoint=tmp_path)
    target = target_of(DecisionTreeClassifier(max_depth=3, max_features=2), y)
    common = {"models": MODELS, "random_state": SEED, "checkpoint": tmp_path}
    moved = X + np.where(np.arange(ROWS) == 7, 1e-9, 0.0)[:, None]
    relabelled = np.where(np.arange(ROWS) == 7, "b", np.where(y == "b", "b", y))
    relabelled[7] = "a" if y[7] == "b" else "b"
    for change in (
        {"target": target_of(DecisionTreeClassifier(max_depth=4, max_features=2), y)},
        {"X": moved},
        {"y": relabelled},
        {"models": MODELS + 1},
        {"share": 0.7},
        {"random_state": SEED + 1},
        {"population": rows(5, seed=3)},
        {"shadows": 1},
    ):
        arguments = {"target": target, "X": X, "y": y, **common, **change}
        with pytest.raises(InvalidInput, match="another random_state"):
            train_references(**arguments)
    # A file of one reference is not another's.
    (tmp_path / "reference-0001.npz").write_bytes((tmp_path / "reference-0000.npz").read_bytes())
    with pytest.raises(InvalidInput, match="another audit"):
        train_references(target, X, y, **common)


def test_what_a_crash_has_left_does_not_matter(tmp_path):
    (tmp_path / ".settings.json.abc.part").write_text("{")
    assert same(trained(checkpoint=tmp_path), trained())


def test_folders_of_something_else_are_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InvalidInput, match="empty"):
        trained(checkpoint=tmp_path)
    (tmp_path / "settings.json").write_text('{"theme": "dark"}')
    with pytest.raises(InvalidInput, match="not of references"):
        trained(checkpoint=tmp_path)
    with pytest.raises(InvalidInput, match="cannot be written"):
        trained(checkpoint=tmp_path / "thesis.tex" / "kept")


def test_evidence_puts_both_together():
    X, y = rows()
    outside = rows(20, seed=9)
    target = target_of(DecisionTreeClassifier(max_depth=3).fit(X[:30], y[:30]), y)
    references = train_references(target, X, y, models=4, random_state=1, population=outside)
    evidence = evidence_of(target, references, X, y, outside)
    assert (evidence.rows, evidence.models) == (ROWS, 4)
    assert np.array_equal(evidence.confidence, target.signals(X, y).confidence)
    assert evidence.labels.tolist() == np.searchsorted(["a", "b", "c"], y).tolist()
    assert evidence.population_labels.tolist() == (
        np.searchsorted(["a", "b", "c"], outside[1]).tolist()
    )
    alone = evidence_of(target, no_references(target, X, y, outside), X, y, outside)
    assert (alone.models, len(alone.population)) == (0, 20)
    assert evidence_of(target, no_references(target, X, y), X, y).population.shape == (0,)


def test_what_makes_no_sense_is_refused_before_any_training():
    counting, (X, y) = Counting(), rows()
    given = {"target": target_of(counting, y), "X": X, "y": y, "models": MODELS}
    names = refuse_nan(train_references, given, skip=("most_memory",))
    assert names == ["models", "share", "random_state", "workers", "shadows"]
    for settings, message in (
        ({"models": 1}, "models=1"),
        ({"share": 0.0}, "share"),
        ({"population": (np.zeros((2, 4)), ["a"])}, "population"),
        ({"population": (np.zeros((1, 4)), ["z"])}, "classes"),
    ):
        with pytest.raises(InvalidInput, match=message):
            train_references(**given | settings)
    assert counting.seeds == []


def test_a_reference_without_numbers_is_named():
    X, y = rows()
    target = target_of(lambda X, y, seed: lambda X: np.full((len(X), 3), np.nan), y)
    with pytest.raises(InvalidInput, match="reference 0"):
        train_references(target, X, y, models=3, random_state=1)
