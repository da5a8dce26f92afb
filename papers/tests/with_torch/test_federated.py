"""Federated rounds: against a plain loop; and an active observer sees more."""

import doctest
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf
from sklearn.metrics import roc_auc_score
from torch import nn

import evidence
from expost.errors import ConvergenceError, InvalidInput
from expost.torch.attacks import fresh_copy
from papers.lecture.experiments import (
    ATTACKERS,
    FIRST_SEED,
    Effort,
    areas,
    epochs_table,
    measure_observers,
)
from papers.lecture.federated import Ascent, federated_game, federated_rounds
from parameters import refuse_nan


def network(hidden=5, inputs=4, outputs=3):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
    return layers.double()


def data(rows=24, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 4)), rng.integers(3, size=rows)


POOL = data()
PARTIES = [(POOL[0][:8], POOL[1][:8]), (POOL[0][8:12], POOL[1][8:12])]
OUTSIDE = data(rows=20, seed=1)
SEED = 7


def training(**options):
    given = {
        "rounds": 3,
        "learning_rate": 0.3,
        "local_epochs": 2,
        "batch_size": 3,
        "population": OUTSIDE,
        "random_state": SEED,
    }
    return federated_rounds(network(), PARTIES, POOL, **given | options)


def confidence(module, X, y):
    """log p/(1 − p) of each row's own label."""
    p = torch.softmax(module(torch.tensor(X)), dim=1).detach().numpy()[np.arange(len(y)), y]
    return np.log(p / (1 - p))


def step(module, X, y, rate):
    """One step of gradient descent in place; up where ``rate`` is negative."""
    module.zero_grad()
    nn.functional.cross_entropy(module(torch.tensor(X)), torch.tensor(y)).backward()
    with torch.no_grad():
        for p in module.parameters():
            p -= rate * p.grad


def naive(ascent=None, rounds=3, local_epochs=2, batch_size=3):
    """Modules all the way: what each round sends, what is uploaded, what is merged."""
    seed = np.random.SeedSequence(SEED)
    merged = fresh_copy(network(), np.random.default_rng(seed))
    history, uploads = [confidence(merged, *POOL)], []
    for number in range(1, rounds + 1):
        attacks = ascent is not None and ascent.attacks(number)
        sent = fresh_copy(merged, np.random.default_rng(0))
        sent.load_state_dict(merged.state_dict())
        if attacks and ascent.by == "server":
            step(sent, *POOL, -ascent.rate)
        modules = []
        for k, (X, y) in enumerate(PARTIES):
            mine = fresh_copy(sent, np.random.default_rng(0))
            mine.load_state_dict(sent.state_dict())
            rng = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(number, k)))
            for _ in range(local_epochs):
                order = rng.permutation(len(X)) if batch_size else np.arange(len(X))
                size = batch_size or len(X)
                for start in range(0, len(X), size):
                    rows = order[start : start + size]
                    step(mine, X[rows], y[rows], 0.3)
            modules.append(mine)
        uploads.append([confidence(mine, *POOL) for mine in modules])
        raised = None
        if attacks and ascent.by == "participant":
            raised = fresh_copy(sent, np.random.default_rng(0))
            raised.load_state_dict(sent.state_dict())
            step(raised, *POOL, -ascent.rate)
        with torch.no_grad():
            for name, p in merged.named_parameters():
                p.copy_(
                    (8 * modules[0].get_parameter(name) + 4 * modules[1].get_parameter(name)) / 12
                )
                if raised is not None:
                    p += raised.get_parameter(name) - sent.get_parameter(name)
        history.append(confidence(merged, *POOL))
    return np.array(history), np.array(uploads).swapaxes(0, 1)


@pytest.mark.parametrize(
    "ascent",
    [
        None,
        Ascent(rate=0.5, first_round=2),
        Ascent(rate=0.5, first_round=1, by="participant"),
    ],
    ids=["passive", "server", "participant"],
)
@pytest.mark.parametrize("steps", [{}, {"local_epochs": 1, "batch_size": None}], ids=["avg", "sgd"])
def test_rounds_are_those_of_a_plain_loop(ascent, steps):
    run = training(ascent=ascent, **steps)
    merged, uploads = naive(ascent, **steps)
    np.testing.assert_allclose(run.merged, merged, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run.uploads, uploads, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(confidence(run.module, *POOL), merged[-1], rtol=1e-9)
    np.testing.assert_allclose(
        confidence(run.module, *OUTSIDE), run.population[-1], rtol=1e-5, atol=1e-5
    )
    if ascent is not None:
        # Until it begins nothing differs.
        quiet = training(**steps)
        before = ascent.first_round
        np.testing.assert_array_equal(run.merged[:before], quiet.merged[:before])
        assert not np.allclose(run.merged[before], quiet.merged[before], atol=1e-3)


def test_what_can_be_read_off_a_run():
    run = training(ascent=Ascent(rate=0.5, first_round=1, by="participant"), rounds=5)
    assert run.rounds == 5
    # It raises the loss in rounds 1, 3 and 5, and watches in 2 and 4.
    expected = (run.merged[2].astype(float) + run.merged[4]) / 2 - run.merged[0]
    np.testing.assert_allclose(run.rise(1), expected, atol=1e-6)
    with pytest.raises(InvalidInput, match="no round is left to watch"):
        run.rise(5)
    np.testing.assert_allclose(
        run.rise(3, 1), run.uploads[1, 2:].mean(axis=0) - run.merged[2], atol=1e-6
    )
    quiet = training()
    np.testing.assert_allclose(
        quiet.rise(2), quiet.merged[2:].mean(axis=0) - quiet.merged[1], atol=1e-6
    )
    snapshots = quiet.snapshots()
    assert snapshots.epochs.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(snapshots.confidence, quiet.merged[1:])
    np.testing.assert_array_equal(snapshots.population, quiet.population[1:])
    theirs = quiet.snapshots(1)
    np.testing.assert_array_equal(theirs.confidence, quiet.uploads[1])
    assert theirs.population.shape == (3, 20)
    for fact in ("2 participants", "3 rounds", "24 rows", "passive"):
        assert fact in repr(quiet)
    assert "active participant" in repr(run)


def test_an_upload_of_one_step_gives_its_gradients_away():
    run = training(local_epochs=1, batch_size=None, updates=True, rounds=2)
    module = fresh_copy(network(), np.random.default_rng(np.random.SeedSequence(SEED)))

    def gradients(X, y):
        rows = []
        for x, label in zip(X, y, strict=True):
            module.zero_grad()
            nn.functional.cross_entropy(
                module(torch.tensor(x)[None]), torch.tensor([label])
            ).backward()
            rows.append(torch.cat([p.grad.reshape(-1) for p in module.parameters()]).numpy().copy())
        return np.array(rows)

    g, p, theirs = gradients(*POOL), gradients(*OUTSIDE), gradients(*PARTIES[1])
    covariance, _ = ledoit_wolf(p - p.mean(axis=0), assume_centered=True)
    inverse = np.linalg.inv(4 * (1 + 4 / 20) * covariance)
    gap = theirs.sum(axis=0) - 4 * p.mean(axis=0)
    slow = [h @ inverse @ gap - h @ inverse @ h / 2 for h in g - p.mean(axis=0)]
    np.testing.assert_allclose(run.ratios[1, 0], slow, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run.update_ratio(1), run.ratios[1].sum(axis=0))
    # Of four rows' sum in 43 coordinates it is fairly plain who was in it.
    owner = np.r_[np.zeros(8), np.ones(4), np.full(12, 2)] == 1
    assert roc_auc_score(owner, run.update_ratio(1)) > 0.85


def test_the_module_and_the_seed_are_left_alone():
    module = network()
    before = [p.detach().clone() for p in module.parameters()]
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    options = {"rounds": 1, "learning_rate": 0.3}
    run = federated_rounds(module, PARTIES, POOL, **options, fresh=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    for mine, its in zip(module.parameters(), before, strict=True):
        assert torch.equal(mine, its)
    np.testing.assert_allclose(run.merged[0], confidence(module, *POOL), rtol=1e-5, atol=1e-5)
    other = federated_rounds(module, PARTIES, POOL, **options)
    assert not np.allclose(other.merged[0], run.merged[0])
    assert other.population.shape == (2, 0)


def test_parameters_are_checked():
    given = {"module": network(), "participants": PARTIES, "pool": POOL}
    numbers = {"rounds": 1, "learning_rate": 0.1}
    names = refuse_nan(federated_rounds, given | numbers)
    assert names == ["rounds", "learning_rate", "local_epochs", "batch_size", "random_state"]
    with pytest.raises(InvalidInput, match="FedSGD"):
        training(updates=True)


def test_other_refusals():
    with pytest.raises(InvalidInput, match="participants: must be"):
        federated_rounds(network(), [], POOL, rounds=1, learning_rate=0.1)
    with pytest.raises(InvalidInput, match=r"torch\.nn\.Module"):
        federated_rounds("network", PARTIES, POOL, rounds=1, learning_rate=0.1)
    with pytest.raises(ConvergenceError, match="lower"):
        training(learning_rate=1e308)
    with pytest.raises(InvalidInput, match="by='outsider'"):
        Ascent(rate=1.0, by="outsider")
    with pytest.raises(InvalidInput, match="rate=0"):
        Ascent(rate=0.0)
    run = training(rounds=1)
    with pytest.raises(InvalidInput, match="since=2"):
        run.rise(2)
    with pytest.raises(InvalidInput, match="participant=2"):
        run.snapshots(2)
    with pytest.raises(InvalidInput, match="updates=False"):
        run.update_ratio(0)
    with pytest.raises(InvalidInput, match="references=3"):
        federated_game(network(), *POOL, participants=2, references=3, rounds=1, learning_rate=0.1)
    with pytest.raises(InvalidInput, match="at least 26 rows"):
        federated_game(network(), *POOL, participants=13, rounds=1, learning_rate=0.1)


def test_a_game_deals_half_of_the_rows_and_each_to_half_of_the_references():
    progress = []
    game = federated_game(
        network(),
        *POOL,
        participants=3,
        references=4,
        rounds=2,
        learning_rate=0.2,
        random_state=1,
        progress=lambda done, total: progress.append((done, total)),
    )
    assert progress == [(k, 5) for k in range(1, 6)]
    assert game.truth.sum() == 12
    np.testing.assert_array_equal(game.owner >= 0, game.truth)
    assert np.bincount(game.owner[game.truth]).tolist() == [4, 4, 4]
    assert game.snapshots.references.shape == (2, 4, 24)
    assert np.all(game.snapshots.inside.sum(axis=0) == 2)
    np.testing.assert_array_equal(game.snapshots.confidence, game.target.merged[1:])
    again = federated_game(
        network(), *POOL, participants=3, rounds=2, learning_rate=0.2, random_state=1, references=4
    )
    np.testing.assert_array_equal(again.snapshots.references, game.snapshots.references)
    alone = federated_game(
        network(), *POOL, participants=3, rounds=2, learning_rate=0.2, random_state=1
    )
    np.testing.assert_array_equal(alone.snapshots.confidence, game.snapshots.confidence)
    np.testing.assert_array_equal(alone.owner, game.owner)


# -- the experiment: digits, three participants of forty rows each -------------------------------


def test_an_active_observer_sees_more_than_a_passive_one():
    """Paired by seed: the same rows, first parameters and batches. The long test counts."""
    areas_by_name = {
        name: [areas(seed, ascent, rounds=12) for seed in range(2)]
        for name, ascent in ATTACKERS.items()
    }
    best = [
        max(area[name] for name in area if name != "rise in uploads")
        for area in areas_by_name["passive"]
    ]
    for name in ("active server", "active participant"):
        gain = [
            active["rise"] - quiet for active, quiet in zip(areas_by_name[name], best, strict=True)
        ]
        assert np.mean(gain) > 0.01, name
    for quiet, active in zip(areas_by_name["passive"], areas_by_name["active server"], strict=True):
        assert active["rise in uploads"] > quiet["rise in uploads"]


@pytest.mark.long
def test_observers_over_many_seeds():
    observers = measure_observers(Effort())
    for gain in observers.gains.values():
        assert gain["merged models"][0] > 0
    assert observers.gains["active server"]["uploads"][0] > 0
    evidence.record(
        "federated",
        command="pytest -m long papers/tests/with_torch/test_federated.py",
        seed=FIRST_SEED,
        figures={
            "auc": observers.auc,
            "gain_over_passive": observers.gains,
            "best_passive_score": observers.best,
            "trainings": observers.trainings,
            "accuracy_by_observed_rounds": observers.accuracy,
        },
    )


def test_the_table_of_observed_rounds():
    accuracy = epochs_table(0, references=2, rounds=25)
    assert list(accuracy["ratio"]) == ["1, 2, 3, 4, 5", "5, 10, 15, 20, 25"]
    assert accuracy["ratio"]["5, 10, 15, 20, 25"] > 0.5


def test_the_page_runs():
    page = Path(__file__).parents[3] / "docs" / "papers" / "federated.md"
    assert doctest.testfile(str(page), module_relative=False, encoding="utf-8").failed == 0
