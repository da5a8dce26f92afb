"""Laws of all attacks: the optimum where it is known, memory found, and nothing found in nothing."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom, norm
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression

from auditing.games import area_of, evidence, mean_game, mean_log_ratio, trained_game
from evidence import record
from expost.auditing.attacks import ATTACKS, available
from expost.auditing.attacks.lira import LiraOnline
from papers.datasets import load_adult

SEED = 71
ONLINE, OFFLINE = ("lira-online", "rmia-online"), ("lira-offline", "rmia-offline")


def against_the_optimum(targets, *, seed=SEED, unlike=False, **settings):
    """Mean AUC of the likelihood ratio and of each attack, over ``targets`` models of new rows."""
    areas = {name: [] for name in ("optimum", "loss", *ONLINE, *OFFLINE, "row estimates")}
    for number in range(targets):
        rng = np.random.default_rng([seed, number])
        lengths = rng.choice([0.2, 1.0, 3.0], 400) if unlike else None
        made, truth, best = mean_game(rng, lengths=lengths, **settings)
        for name, values in areas.items():
            if name == "optimum":
                scores = best
            elif name == "row estimates":
                scores = LiraOnline(estimates="row")(made)
            else:
                scores = ATTACKS[name](made)
            values.append(area_of(scores, truth))
    return {name: round(float(np.mean(computed)), 4) for name, computed in areas.items()}


def enumerated(X, theta, noise):
    """The exact log likelihood ratio of each coin: every set of rows tried."""
    rows = len(X)
    coins = (np.arange(2**rows)[:, None] >> np.arange(rows)) & 1
    means = coins @ X * (2 / rows)
    squares = ((theta - means) ** 2).sum(axis=1) / (2 * noise**2)
    weights = np.exp(squares.min() - squares)
    return np.log(weights @ coins) - np.log(weights @ (1 - coins))


def test_the_optimum_is_the_likelihood_ratio():
    """Ten rows, 1,024 sets: the normal law of the other coins changes nothing that counts."""
    rng = np.random.default_rng(SEED)
    exact, normal, truths = [], [], []
    for _ in range(200):
        X = rng.normal(size=(10, 60)) / math.sqrt(60)
        truth, noise = rng.random(10) < 0.5, 2 / (10 * 1.2)
        theta = truth @ X * 0.2 + noise * rng.normal(size=60)
        exact.append(enumerated(X, theta, noise))
        normal.append(mean_log_ratio(X, theta, noise))
        truths.append(truth)
    exact, normal, truth = (np.concatenate(each) for each in (exact, normal, truths))
    assert np.corrcoef(exact, normal)[0, 1] > 0.99
    assert area_of(normal, truth) == pytest.approx(area_of(exact, truth), abs=0.005)
    # A log likelihood ratio is calibrated: of coins at odds e^L, the share e^L/(1 + e^L) is heads.
    assert abs(truth.sum() - (1 / (1 + np.exp(-exact))).sum()) < 3 * math.sqrt(2000 / 4)


def test_lira_and_rmia_come_to_the_optimum():
    areas = against_the_optimum(5)
    # 2,000 rows: the optimum itself is Φ(1.2/√2) within 4 of its standard errors of about 0.01.
    assert areas["optimum"] == pytest.approx(ndtr(1.2 / math.sqrt(2)), abs=0.04)
    for name in (*ONLINE, *OFFLINE):
        assert areas["optimum"] - 0.02 < areas[name] < areas["optimum"] + 0.01, name
    # The law has power: an attack that does not know the rows is far from it.
    assert areas["loss"] < areas["optimum"] - 0.1


def test_few_references_suffice_for_shared_estimates():
    areas = against_the_optimum(5, models=16)
    for name in ONLINE:
        assert areas[name] > areas["optimum"] - 0.02, name
    assert areas["row estimates"] < areas["optimum"] - 0.02


def test_what_offline_attacks_lack_where_rows_are_unlike():
    """Rows of lengths 0.2, 1 and 3 move by as much: only models with the row tell by how much."""
    areas = against_the_optimum(5, unlike=True)
    for name in ONLINE:
        assert areas[name] > areas["optimum"] - 0.02, name
    for name in OFFLINE:
        assert areas["optimum"] - 0.15 < areas[name] < areas["optimum"] - 0.03, name


@cache
def adult(rows):
    """Rows of Adult, six numeric columns standardised, labels 0 and 1."""
    table = load_adult().rows("train")
    names = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
    chosen = np.random.default_rng(SEED).choice(32_561, rows, replace=False)
    X = table.numeric(names)[chosen]
    return (X - X.mean(axis=0)) / X.std(axis=0), (table.labels()[chosen] > 0).astype(int)


def trees(count):
    """Grown to the last row: every member is fitted for certain."""

    def make(seed):
        return ExtraTreesClassifier(count, max_features=1, random_state=seed)

    return make


def test_memory_is_found():
    made, truth = trained_game(trees(30), *adult(900), models=16, strangers=300, seed=SEED)
    for name in (*ONLINE, *OFFLINE):
        assert area_of(ATTACKS[name](made), truth) > 0.9, name
    assert area_of(ATTACKS["loss"](made), truth) > 0.8


def within_99(area, truth):
    """Whether ½ lies in the 99 % interval: Mann and Whitney's variance without a difference."""
    members, others = int(truth.sum()), int((~truth).sum())
    error = math.sqrt((members + others + 1) / (12 * members * others))
    return abs(area - 0.5) <= norm.ppf(0.995) * error


def logistic(seed):
    return LogisticRegression(C=100.0, max_iter=500, random_state=seed)


@cache
def clusters(rows):
    """Three classes that overlap, in more dimensions than a model of 100 rows can bear."""
    rng = np.random.default_rng(SEED)
    y = rng.integers(0, 3, rows)
    X = rng.normal(size=(rows, 30))
    X[:, :3] += np.eye(3)[y]
    return X, y


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_found_in_a_model_of_none_of_the_rows(seed):
    settings = {"models": 8, "strangers": 400, "seed": seed}
    made, truth = trained_game(logistic, *clusters(700), **settings, null=True)
    assert list(available(made)) == list(ATTACKS)
    for name, attack in ATTACKS.items():
        assert within_99(area_of(attack(made), truth), truth), name
    # The interval has power: the same models with the rows in are outside it.
    made, truth = trained_game(logistic, *clusters(700), **settings)
    for name, attack in ATTACKS.items():
        assert not within_99(area_of(attack(made), truth), truth), name


def test_evidence_says_which_attacks_it_suffices_for():
    def names(rows=30, models=0, **others):
        inside = np.arange(models)[:, None] % 2 == np.zeros(rows)
        return list(available(evidence(np.zeros(rows), np.zeros((models, rows)), inside, **others)))

    assert names() == ["loss"]
    assert names(population=np.zeros(4)) == ["loss", "population"]
    # One model, with all the rows: of no use; two, with and without them.
    assert names(models=1) == ["loss"]
    assert names(models=2) == ["loss", "class-loss", *sorted((*ONLINE, *OFFLINE))]
    never = evidence(np.zeros(5), np.zeros((3, 5)), np.zeros((3, 5), bool))
    assert list(available(never)) == ["loss", *OFFLINE]


@pytest.mark.long
def test_the_laws_at_full_counts():
    figures = {"mean model": {}, "memory": {}, "nothing": {}}
    for name, settings in {
        "rows alike, 64 references": {},
        "rows alike, 16 references": {"models": 16},
        "rows alike, 4 references": {"models": 4},
        "rows alike, half the effect": {"effect": 0.6},
        "rows alike, twice the effect": {"effect": 2.4},
        "lengths 0.2, 1 and 3, 64 references": {"unlike": True},
        "lengths 0.2, 1 and 3, 256 references": {"unlike": True, "models": 256},
    }.items():
        areas = against_the_optimum(40, **settings)
        figures["mean model"][name] = areas
        for attack in ONLINE if settings.get("models", 64) >= 16 else ():
            assert areas[attack] > areas["optimum"] - 0.02, (name, attack)
    for count in (30, 100):
        made, truth = trained_game(trees(count), *adult(3000), models=64, strangers=1000, seed=SEED)
        areas = {name: round(area_of(attack(made), truth), 4) for name, attack in ATTACKS.items()}
        figures["memory"][f"{count} trees"] = areas
        assert min(areas[name] for name in (*ONLINE, *OFFLINE)) > 0.9
    games = 200
    outside, sums = dict.fromkeys(ATTACKS, 0), dict.fromkeys(ATTACKS, 0.0)
    for seed in range(games):
        made, truth = trained_game(
            logistic, *clusters(700), models=8, strangers=400, seed=1000 + 20 * seed, null=True
        )
        for name, attack in ATTACKS.items():
            area = area_of(attack(made), truth)
            outside[name] += not within_99(area, truth)
            sums[name] += area / games
    allowed = int(binom.ppf(0.999, games, 0.01))
    figures["nothing"] = {
        "games": games,
        "outside the 99 % interval": outside,
        "allowed (99.9 %)": allowed,
        "mean AUC": {name: round(mean, 4) for name, mean in sums.items()},
    }
    assert max(outside.values()) <= allowed
    assert all(abs(mean - 0.5) < 0.01 for mean in sums.values())
    record(
        "audit-optimum",
        command="pytest -m long tests/auditing/test_optimum.py",
        seed=SEED,
        figures=figures,
    )
