"""The experiments of the lecture on public or made-up rows; all numbers of its page come from here.

Conventions
-----------
Defences   weakly separated classes of 50 features: 500 rows that are parted into members and
           others, 250 reference rows for adversarial regularisation.
Observers  scikit-learn's digits: three participants of forty rows each, 120 rows that no
           participant has, 200 of a population; a perceptron of 64 units; federated averaging.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import nn

from expost.types import FloatArray, IntArray
from papers.lecture.compare import compare_defences
from papers.lecture.defence import Defence, LogisticDefence
from papers.lecture.federated import Ascent, federated_game
from papers.lecture.snapshots import LECTURE, accuracy_by_epochs, mean_score
from papers.lecture.table import DefenceTable
from papers.lecture.torch_defences import AdversarialDefence, DPSGDDefence

__all__ = [
    "ATTACKERS",
    "DEFENDED",
    "FIRST_SEED",
    "PLAIN",
    "Effort",
    "Interval",
    "Observers",
    "areas",
    "defences",
    "digits",
    "epochs_table",
    "fedsgd",
    "interval",
    "measure_defences",
    "measure_observers",
    "perceptron",
    "problem",
]

Interval = tuple[float, float, float]
# The attacker looks, or meddles from this round on.
FIRST = 4
HOW: Mapping[str, Any] = {
    "rounds": 20,
    "learning_rate": 0.3,
    "local_epochs": 4,
    "batch_size": 10,
}
ATTACKERS: Mapping[str, Ascent | None] = {
    "passive": None,
    "active participant": Ascent(rate=2.0, first_round=FIRST, by="participant"),
    "active server": Ascent(rate=2.0, first_round=FIRST),
}
# The attacker's rate was tried out on the draws of 0 to 5.
FIRST_SEED = 6
_UPLOADS = "rise in uploads"
_EPOCHS = 60
# Networks without a defence and with the published one, as the table names them.
PLAIN = AdversarialDefence(weight=0.0, epochs=_EPOCHS)
DEFENDED = "adversarial, λ = 1,"


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is trained; the tests take less.

    ``rows``         of the comparison of defences;  ``epochs`` of its networks.
    ``references``   models that attacks on defences have, and ``repetitions`` of each defence.
    ``trainings``    of each kind of observer.
    ``tables``       games of the table by observed rounds, with ``observed`` rounds each.
    """

    rows: int = 500
    epochs: int = _EPOCHS
    references: int = 8
    repetitions: int = 3
    trainings: int = 16
    tables: int = 3
    observed: int = 50


def problem(
    rows: int, *, seed: int = 0, classes: int = 5, features: int = 50
) -> tuple[FloatArray, IntArray]:
    """Return weakly separated classes: a network fits every row, and learns a part of it."""
    rng = np.random.default_rng(seed)
    centres = 0.3 * np.random.default_rng(0).standard_normal((classes, features))
    y = rng.integers(classes, size=rows)
    return centres[y] + rng.standard_normal((rows, features)), y


def defences(X: FloatArray, reference: tuple[Any, Any], epochs: int = _EPOCHS) -> list[Defence]:
    """Return the rows of the table, the model without a defence first."""
    norm = float(np.linalg.norm(X, axis=1).max())
    game: dict[str, Any] = {"reference": reference, "epochs": epochs}
    return [
        *(LogisticDefence(regularization=weight, data_norm=norm) for weight in (1e-6, 1e-2, 1e-1)),
        *(
            LogisticDefence(regularization="auto", epsilon=epsilon, data_norm=norm)
            for epsilon in (1.0, 10.0, 100.0)
        ),
        *(DPSGDDefence(epsilon=epsilon) for epsilon in (1.0, 10.0, 100.0)),
        AdversarialDefence(weight=0.0, epochs=epochs),
        AdversarialDefence(weight=0.0, epochs=epochs // 4),
        AdversarialDefence(weight=1.0, **game),
        AdversarialDefence(weight=30.0, through_reference=True, **game),
    ]


def measure_defences(
    effort: Effort, seed: int = 0, *, progress: Callable[[int, int], None] | None = None
) -> dict[int, DefenceTable]:
    """Return the table by the number of references: for the loss threshold alone, and for all."""
    X, y = problem(effort.rows)
    chosen = defences(X, problem(effort.rows // 2, seed=9), effort.epochs)
    return {
        count: compare_defences(
            X,
            y,
            defences=chosen,
            references=count,
            repetitions=effort.repetitions,
            random_state=seed,
            progress=progress,
        )
        for count in (0, effort.references)
    }


def digits(seed: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Return 240 rows in question, and 200 that no participant has; float32, as networks are."""
    X, y = load_digits(return_X_y=True)
    chosen = np.random.default_rng(seed).permutation(len(X))[:440]
    X, y = (X[chosen] / 16).astype(np.float32), y[chosen]
    return (X[:240], y[:240]), (X[240:], y[240:])


def perceptron() -> nn.Module:
    """Return a network of 64 units for digits."""
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))


def areas(seed: int, ascent: Ascent | None, **options: Any) -> dict[str, float]:
    """Return the AUC of what each observer makes of one training."""
    pool, outside = digits(seed)
    game = federated_game(
        perceptron(),
        *pool,
        participants=3,
        population=outside,
        random_state=seed,
        ascent=ascent,
        **{**HOW, **options},
    )
    run, truth = game.target, game.truth
    each = [roc_auc_score(game.owner == k, run.rise(FIRST, k)) for k in range(3)]
    return {
        "last snapshot": roc_auc_score(truth, run.merged[-1]),
        "mean of snapshots": roc_auc_score(truth, mean_score(run.snapshots())),
        "rise": roc_auc_score(truth, run.rise(FIRST)),
        _UPLOADS: float(np.mean(each)),
    }


def fedsgd(seed: int) -> dict[str, float]:
    """Return the AUC of what single gradient steps reveal: five rounds."""
    pool, outside = digits(seed)
    game = federated_game(
        perceptron(),
        *pool,
        participants=3,
        population=outside,
        random_state=seed,
        updates=True,
        rounds=5,
        learning_rate=0.3,
    )
    run, owner = game.target, game.owner

    def mean(scores: Callable[[int], Any]) -> float:
        return float(np.mean([roc_auc_score(owner == k, scores(k)) for k in range(3)]))

    return {
        "inner product": mean(run.update_ratio),
        "inner product, one round": mean(lambda k: run.ratios[k, 0]),
        "confidence": mean(lambda k: run.uploads[k, -1]),
    }


def epochs_table(seed: int, references: int = 8, rounds: int = 50) -> dict[str, dict[str, float]]:
    """Return the lecture's table: balanced accuracies by the rounds observed, by score."""
    pool, outside = digits(seed)
    game = federated_game(
        perceptron(),
        *pool,
        participants=3,
        references=references,
        population=outside,
        random_state=seed,
        rounds=rounds,
        learning_rate=0.3,
        local_epochs=1,
        batch_size=10,
    )
    tables = {}
    for score in ("ratio", "mean"):
        sets = [epochs for epochs in ((1, 2, 3, 4, 5), *LECTURE[:2]) if epochs[-1] <= rounds]
        table = accuracy_by_epochs(game.snapshots, game.truth, sets, score=score)
        tables[score] = {
            ", ".join(map(str, line.epochs)): line.figures.accuracy.value for line in table.lines
        }
    return tables


def interval(values: Sequence[float] | FloatArray, confidence: float = 0.95) -> Interval:
    """Return (low, mean, high) of Student's interval over seeds."""
    each = np.asarray(values)
    half = student.ppf((1 + confidence) / 2, len(each) - 1) * each.std(ddof=1)
    half /= math.sqrt(len(each))
    mean = float(each.mean())
    return mean - float(half), mean, mean + float(half)


@dataclass(frozen=True, kw_only=True)
class Observers:
    """What observers of federated rounds reach, as intervals over trainings.

    ``auc``       by observer, then by score.
    ``gains``     of an active observer over the best passive score, in pairs by seed.
    ``best``      the passive score of merged models that is best in the mean.
    ``accuracy``  by the rounds that were observed, then by score.
    """

    auc: dict[str, dict[str, Interval]]
    gains: dict[str, dict[str, Interval]]
    best: str
    accuracy: dict[str, dict[str, Interval]]
    trainings: int


def measure_observers(
    effort: Effort, seed: int = 0, *, phase: Callable[[str], None] = lambda name: None
) -> Observers:
    """Train federated rounds with every observer; seed 0 draws those of the page."""
    first = FIRST_SEED + seed * effort.trainings
    seeds = range(first, first + effort.trainings)
    runs_by_name = {}
    for name, ascent in ATTACKERS.items():
        phase(f"watching: {name}")
        runs_by_name[name] = [areas(seed, ascent) for seed in seeds]
    scores = list(runs_by_name["passive"][0])
    quiet = {score: np.array([area[score] for area in runs_by_name["passive"]]) for score in scores}
    figures = {
        name: {score: interval([area[score] for area in runs]) for score in scores}
        for name, runs in runs_by_name.items()
    }
    # The strongest of the passive scores in the mean, not in each run: it is chosen beforehand.
    merged = [score for score in scores if score != _UPLOADS]
    best = max(merged, key=lambda score: float(quiet[score].mean()))
    gains = {}
    for name in ("active participant", "active server"):
        active = {score: np.array([area[score] for area in runs_by_name[name]]) for score in scores}
        gains[name] = {
            "merged models": interval(active["rise"] - quiet[best]),
            "uploads": interval(active[_UPLOADS] - quiet[_UPLOADS]),
        }
    phase("watching single gradient steps")
    steps = [fedsgd(seed) for seed in seeds]
    figures["passive server, FedSGD"] = {
        name: interval([step[name] for step in steps]) for name in steps[0]
    }
    phase("observing some rounds")
    tables = [
        epochs_table(seed, references=effort.references, rounds=effort.observed)
        for seed in seeds[: effort.tables]
    ]
    return Observers(
        auc=figures,
        gains=gains,
        best=best,
        accuracy={
            key: {
                score: interval([table[score][key] for table in tables])
                for score in ("ratio", "mean")
            }
            for key in tables[0]["ratio"]
        },
        trainings=effort.trainings,
    )
