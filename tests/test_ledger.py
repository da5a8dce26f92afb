"""The ledger: it only grows, whole or not at all, and nothing that was edited passes for one."""

import copy
import dataclasses
import hashlib
import json
import math
import multiprocessing
import os
import signal
import warnings

import numpy as np
import pytest

import expost
from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from expost.errors import InvalidInput, NoGuaranteeWarning, SeededReleaseWarning
from expost.files import atomic
from expost.ledger import (
    NAME,
    Entry,
    Ledger,
    append,
    entries_of,
    ledger_notice,
    ledger_path,
    list_release,
)
from expost.mechanisms.publishing import PublishingBudget
from expost.risk import EpsilonDelta, GaussianNoise, NormLaplaceNoise
from program import mode, names
from settings import OUTPUT

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(60, 3))
Y = np.where(X[:, 0] > X[:, 1], "yes", "no")
BOUNDS = {"data_norm": 2.0, "classes": ("no", "yes")}
BUDGET = PublishingBudget(epsilon_gradient=0.4, epsilon_hessian=0.2, delta=1e-6)
MODELS = {
    "laplace": PrivateLogisticRegression(2.0, **OUTPUT, **BOUNDS),
    "gaussian": PrivateLogisticRegression(
        1.5, **{**OUTPUT, "noise": "gaussian", "delta": 1e-5}, **BOUNDS
    ),
    "svc": PrivateLinearSVC(0.5, **OUTPUT, **BOUNDS),
    "objective": PrivateLogisticRegression(
        1.0, delta=1e-6, noise="gaussian", mechanism="objective",
        regularization="for-publishing", publishing=BUDGET, **BOUNDS,
    ),
    "bare": PrivateLogisticRegression(math.inf, **OUTPUT, **BOUNDS),
    "read": PrivateLogisticRegression(1.0, data_norm=2.0, **OUTPUT),
}  # fmt: skip


def fitted(name="laplace"):
    model = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return type(model)(**model.get_params()).fit(X, Y).release_


def saved(folder, name="laplace", file="model.json"):
    return fitted(name).save(folder / file)


def listed(path, *models):
    """List these files, and return the ledger."""
    return append(path, lambda ledger: [entry for model in models for entry in entries_of(model)])


# What an entry holds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "guarantee", "epsilon", "delta"),
    [
        ("laplace", NormLaplaceNoise(separation=2.0, dimension=4), 2.0, 0.0),
        ("gaussian", None, 1.5, 1e-5),
        ("objective", EpsilonDelta(epsilon=1.0, delta=1e-6), 1.0, 1e-6),
        ("bare", EpsilonDelta(epsilon=math.inf), math.inf, 0.0),
    ],
)
def test_a_model_is_listed_with_its_guarantee(tmp_path, name, guarantee, epsilon, delta):
    path = saved(tmp_path, name)
    (entry,) = entries_of(path)
    value = json.loads(path.read_text())
    mechanism = expost.Release.load(path).mechanism
    assert entry.release == value["sha256"]
    assert (entry.kind, entry.name, entry.mechanism) == ("model", str(path), mechanism.kind)
    assert (entry.epsilon, entry.delta, entry.rows, entry.dimension) == (epsilon, delta, 60, 4)
    assert entry.guarantee == (mechanism.guarantee() if guarantee is None else guarantee)
    assert not entry.seeded
    assert entry.read_from_data == 0
    assert entry.has_guarantee is (epsilon < math.inf)
    assert Entry.from_json(json.loads(json.dumps(entry.to_json()))) == entry
    if name == "gaussian":
        assert isinstance(entry.guarantee, GaussianNoise)
        assert entry.guarantee.delta(1.5) <= 1e-5 * (1 + 1e-9)


def test_what_a_model_does_not_guarantee_is_stated(tmp_path):
    assert entries_of(saved(tmp_path, "read"))[0].read_from_data == 1
    with pytest.warns(SeededReleaseWarning):
        release = (
            PrivateLogisticRegression(1.0, random_state=1, **OUTPUT, **BOUNDS).fit(X, Y).release_
        )
    assert entries_of(release.save(tmp_path / "seeded.json"))[0].seeded
    constants = {**OUTPUT, "mechanism": "objective", "data_norm": 2.0}
    with pytest.warns(NoGuaranteeWarning):
        release = (
            PrivateRidge(1.0, label_range=(-1.0, 1.0), huber_width=None, **constants)
            .fit(X, X[:, 0])
            .release_
        )
    (entry,) = entries_of(release.save(tmp_path / "ridge.json"))
    assert entry.epsilon == 1.0
    assert not entry.has_guarantee
    ledger = Ledger.new().with_entries([entry, *entries_of(saved(tmp_path))])
    assert ledger.epsilon_by_addition == math.inf


@pytest.mark.parametrize("options", [{}, {"noise": "gaussian", "delta": 1e-5}])
def test_a_large_epsilon_is_still_a_guarantee(tmp_path, options):
    """Its advantage rounds to 1, and yet it is not nothing."""
    model = PrivateLogisticRegression(1e4, **{**OUTPUT, **options}, **BOUNDS).fit(X, Y).release_
    (entry,) = entries_of(model.save(tmp_path / "model.json"))
    assert entry.guarantee.advantage == 1.0
    assert entry.has_guarantee
    ledger = Ledger.new().with_entries([entry])
    assert ledger.epsilon_by_addition == 1e4
    assert ledger.guarantee.epsilon(1e-5) <= 1e4 * (1 + 1e-9)


def test_all_together_is_composed_three_ways(tmp_path):
    paths = [saved(tmp_path, name, f"{name}.json") for name in ("laplace", "gaussian", "svc")]
    ledger = listed(tmp_path / NAME, *paths)
    composed = ledger.composed(1e-5)
    assert composed.releases == 3
    assert composed.row("pld").epsilon == ledger.guarantee.epsilon(1e-5)
    assert composed.row("pld").epsilon < composed.row("rdp-tight").epsilon
    assert composed.row("rdp-mironov").epsilon < composed.row("sequential").epsilon < 4.5
    with pytest.raises(InvalidInput, match="lists no release yet"):
        Ledger.new().composed(1e-5)


def test_reports_are_listed_for_what_they_add(tmp_path):
    model = saved(tmp_path, "objective")
    simple = expost.publish(model).save(tmp_path / "simple.json")
    options = {"kind": "data-dependent", "epsilon_gradient": 0.4, "epsilon_hessian": 0.2}
    report = expost.publish(model, X, Y, **options)
    path = report.save(tmp_path / "report.json")
    (only,) = entries_of(simple)
    first, second = entries_of(path)
    # A report from the model alone adds nothing to it.
    assert only.release == first.release == entries_of(model)[0].release
    assert (second.kind, second.mechanism) == ("report", "gradient and Hessian")
    assert second.epsilon == pytest.approx(0.6)
    assert second.delta == 2e-6
    assert second.guarantee == report.tangent.guarantee
    assert Entry.from_json(json.loads(json.dumps(second.to_json()))) == second
    ledger = listed(tmp_path / NAME, model, simple, path)
    assert len(ledger) == 2
    assert ledger.epsilon_by_addition == pytest.approx(1.6)
    assert ledger.delta_by_addition == pytest.approx(3e-6)


def test_a_copy_is_the_same_release(tmp_path):
    model = saved(tmp_path)
    copied = tmp_path / "copy.json"
    copied.write_text(json.dumps(json.loads(model.read_text())))
    assert copied.read_bytes() != model.read_bytes()
    ledger = listed(tmp_path / NAME, model)
    again = listed(tmp_path / NAME, copied, model)
    assert again == ledger
    assert [entry.name for entry in again.entries] == [str(model)]


# The rows ------------------------------------------------------------------------------------------


def test_the_digest_knows_the_rows_under_its_own_salt():
    ledger = Ledger.new()
    digest = ledger.digest(X, Y)
    codes = np.array([["no", "yes"].index(label) for label in Y], dtype="<i8")
    # The 60 rows are one leaf.
    leaf = hashlib.blake2b(
        X.astype("<f8").tobytes() + codes.astype("<f8").tobytes(), digest_size=32
    )
    content = b'{"columns": 3, "names": ["no", "yes"]}' + leaf.digest() + b"60"
    whole = hashlib.blake2b(content, digest_size=32).digest()
    naive = hashlib.blake2b(whole, key=bytes.fromhex(ledger.salt), digest_size=32)
    assert digest == naive.hexdigest()
    assert ledger.digest(np.asfortranarray(X), list(Y)) == digest
    others = [(X[::-1], Y[::-1]), (X[:-1], Y[:-1]), (X[:, ::-1], Y), (X, np.roll(Y, 1))]
    nearly = X.copy()
    nearly[7, 1] = np.nextafter(nearly[7, 1], 2)
    for rows, labels in [*others, (nearly, Y)]:
        assert ledger.digest(rows, labels) != digest
    assert Ledger.new().digest(X, Y) != digest
    assert Ledger.new().salt != ledger.salt
    assert ledger.digest(X * 0, Y) == ledger.digest(-X * 0, Y)
    numbers = (codes - 0.5).tolist()
    assert ledger.digest(X, numbers) == ledger.digest(X, np.array(numbers))
    assert ledger.digest(X, numbers) != ledger.digest(X, codes)


def test_a_release_made_in_python_is_listed_with_its_rows(tmp_path):
    model = saved(tmp_path)
    ledger = list_release(tmp_path, model, X, Y)
    assert ledger == Ledger.load(tmp_path / NAME)
    assert ledger.entries[0].data == ledger.digest(X, Y)
    other = list_release(tmp_path / "other.json", str(model))
    assert other.entries[0].data is None
    assert (tmp_path / "other.CURATOR-ONLY.json").exists()
    with pytest.raises(InvalidInput, match="pass both"):
        list_release(tmp_path, model, X)
    with pytest.raises(InvalidInput, match="folder does not exist"):
        list_release(tmp_path / "none" / "x.json", model)
    with pytest.raises(InvalidInput, match="cannot be read"):
        list_release(tmp_path / "third.json", tmp_path / "no.json")
    assert not (tmp_path / "third.CURATOR-ONLY.json").exists()


# The file ------------------------------------------------------------------------------------------


def test_a_ledger_is_for_the_curator(tmp_path):
    path = tmp_path / NAME
    ledger = listed(path, saved(tmp_path))
    assert NAME == "ledger.CURATOR-ONLY.json"
    assert mode(path) == 0o600
    assert json.loads(path.read_text())["audience"] == "curator-only"
    assert Ledger.load(path) == ledger
    listed(path, saved(tmp_path, file="other.json"))
    assert mode(path) == 0o600
    assert names(tmp_path) == {NAME, "model.json", "other.json"}


def test_it_only_grows(tmp_path):
    path, first = tmp_path / NAME, saved(tmp_path)
    single = listed(path, first)
    before = path.stat()
    assert listed(path, first) == single
    # Nothing new: the file was not even written.
    assert path.stat().st_ino == before.st_ino
    two = listed(path, saved(tmp_path, file="b.json"), first)
    assert two.entries[:1] == single.entries
    assert len(two) == 2
    assert two.salt == single.salt


@pytest.mark.parametrize(
    ("name", "final_name"),
    [
        ("a.json", "a.CURATOR-ONLY.json"),
        ("x.CURATOR-ONLY.json", "x.CURATOR-ONLY.json"),
        (".", NAME),
    ],
)
def test_the_name_states_the_audience(tmp_path, name, final_name):
    assert ledger_path(tmp_path / name) == tmp_path / final_name
    with pytest.raises(InvalidInput, match="must be a file whose name ends in"):
        ledger_path(tmp_path / "none")


WRONG = {
    "release": ["abc", 3, None, "G" * 64, "AB" * 32, "../" * 21 + "a"],
    "kind": ["modle", None],
    "made": ["yesterday", 7, "2026-13-01T00:00:00Z"],
    "name": [3],
    "mechanism": ["", "a" * 41, "<b>", 3, None],
    "noise": [3, "", "a\n\x1b[31mb"],
    "epsilon": [0.0, -1.0, 10**400, "many", True, None],
    "delta": [1.0, -0.5, 10**400, None],
    "guarantee": [None, {}, {"law": "cauchy"}, {"law": "gaussian", "mu": -1.0}, {"law": "gaussian"},
                  {"law": "gaussian", "mu": 10**400},
                  {"law": "norm-laplace", "separation": 1.0, "dimension": 10**30},
                  {"law": "norm-laplace", "separation": 1.0, "dimension": 0}],
    "dimension": [0, 2.5],
    "rows": [1, 10**400, "60"],
    "seeded": ["no"],
    "read_from_data": [-1, None],
    "data": [5, "abc"],
}  # fmt: skip


@pytest.mark.parametrize("name", list(WRONG))
def test_an_entry_of_nonsense_is_refused(tmp_path, name):
    good = entries_of(saved(tmp_path))[0].to_json()
    for wrong in WRONG[name]:
        value = copy.deepcopy(good) | {name: wrong}
        with pytest.raises(InvalidInput):
            Entry.from_json(value)
    with pytest.raises(InvalidInput):
        Entry.from_json({key: field for key, field in good.items() if key != name})


def test_what_is_no_ledger_is_refused(tmp_path):
    entry = entries_of(saved(tmp_path))[0]
    with pytest.raises(InvalidInput, match="twice"):
        Ledger(salt="0" * 64, entries=(entry, entry))
    for salt in ("", "0" * 63, "x" * 64, None):
        with pytest.raises(InvalidInput, match="salt"):
            Ledger(salt=salt)

    (tmp_path / "x.json").write_text('{"format": "expost-profile/1"}')
    with pytest.raises(InvalidInput, match="neither a released model"):
        entries_of(tmp_path / "x.json")
    model = saved(tmp_path)
    model.write_text(model.read_text().replace('"seeded": false', '"seeded": true'))
    with pytest.raises(InvalidInput, match="is damaged"):
        entries_of(model)


# Two at once, and crashes ----------------------------------------------------------------------------


TEMPLATE = Entry(
    release="0" * 64, kind="model", made="2026-11-16T00:00:00Z", name="x", mechanism="output",
    noise="laplace", epsilon=1.0, delta=0.0, guarantee=NormLaplaceNoise(separation=1.0, dimension=2),
    dimension=2, rows=10, seeded=False, read_from_data=0, data=None,
)  # fmt: skip


def started(work, *arguments):
    """A process of its own; a fork, which need not import everything again."""
    with warnings.catch_warnings():
        # Threads of other tests may be about, and none of them is needed in it.
        warnings.simplefilter("ignore", DeprecationWarning)
        worker = multiprocessing.get_context("fork").Process(target=work, args=arguments)
        worker.start()
    return worker


def append_many(path, seed, count):
    """List so many releases, one at a time."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        entry = dataclasses.replace(TEMPLATE, release=rng.bytes(32).hex(), name=str(seed))
        append(path, lambda ledger, entry=entry: [entry])


def test_processes_that_append_at_once_lose_nothing(tmp_path):
    """Four of them, from a ledger that is not there yet; it is whole at any time."""
    path, count = tmp_path / NAME, 15
    workers = [started(append_many, path, seed, count) for seed in range(4)]
    while any(worker.is_alive() for worker in workers):
        if path.exists():
            assert len(Ledger.load(path)) >= 1
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    ledger = Ledger.load(path)
    assert len(ledger) == 4 * count
    for seed in range(4):
        assert sum(entry.name == str(seed) for entry in ledger.entries) == count
    assert names(tmp_path) == {NAME}


def test_without_the_lock_entries_would_be_lost(tmp_path, monkeypatch):
    """Power: the same with a lock that does nothing loses some."""
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    path = tmp_path / NAME
    append(path, lambda ledger: [TEMPLATE])

    def meddling(ledger):
        # Another process lists one while this one is at work.
        other = dataclasses.replace(TEMPLATE, release="1" * 64)
        append(path, lambda now: [other])
        return [dataclasses.replace(TEMPLATE, release="2" * 64)]

    append(path, lambda ledger: meddling(ledger) if len(ledger) == 1 else [])
    assert not Ledger.load(path).holds("1" * 64)


def die(path):
    append(path, lambda ledger: os.kill(os.getpid(), signal.SIGKILL))


def test_a_process_that_dies_lets_go_of_the_ledger(tmp_path):
    path = tmp_path / NAME
    append(path, lambda ledger: [TEMPLATE])
    worker = started(die, path)
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    other = dataclasses.replace(TEMPLATE, release="1" * 64)
    assert len(append(path, lambda ledger: [other])) == 2


def test_a_full_disk_leaves_the_old_ledger(tmp_path, monkeypatch):
    path = tmp_path / NAME

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        append(path, lambda ledger: [TEMPLATE])
    assert names(tmp_path) == set()
    monkeypatch.undo()
    append(path, lambda ledger: [TEMPLATE])
    before = path.read_bytes()
    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        append(path, lambda ledger: [dataclasses.replace(TEMPLATE, release="1" * 64)])
    assert path.read_bytes() == before
    assert names(tmp_path) == {NAME}


# The notice ------------------------------------------------------------------------------------------


def test_a_model_beside_a_ledger_that_does_not_list_it(tmp_path):
    model = saved(tmp_path)
    assert ledger_notice(model) is None
    listed(tmp_path / NAME, model)
    assert ledger_notice(str(model)) is None
    other = saved(tmp_path, file="other.json")
    notice = ledger_notice(other)
    assert "is not in the ledger next to it" in notice
    assert "--add" in notice
    (tmp_path / NAME).write_text("{}")
    assert "cannot be used" in ledger_notice(model)
