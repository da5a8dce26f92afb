"""Published reports of every kind, and random rows as people type them, for the person's page."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge, publish
from expost.errors import ClippedRowsWarning
from expost.mechanisms.publishing import PublishingBudget
from expost.publishing.report import PublishedReport

ROWS = 300
BUDGET = PublishingBudget(epsilon_gradient=0.7, epsilon_hessian=0.3, delta=1e-6)
SPENT = {
    "kind": "data-dependent",
    "epsilon_gradient": 0.7,
    "epsilon_hessian": 0.3,
    "delta": 1e-6,
}
OUTPUT = {"mechanism": "output", "epsilon": 3.0, "regularization": 0.05}
OBJECTIVE = {"mechanism": "objective", "epsilon": 2.0}
GAUSSIAN = {"noise": "gaussian", "delta": 1e-6}
LAPLACE = {"noise": "laplace", "delta": None}
DEPENDENT = {"regularization": "for-publishing", "publishing": BUDGET}
LEVELS = ["clerk", "nurse", "pilot", "sailor"]
# Columns of every kind: cut and not cut, with and without missing cells, some out of the data norm.
COLUMNS = {
    "age": {"mean": 45, "scale": 15, "unit": "years"},
    "income": {"mean": 3, "scale": 2, "cut": None},
    "hours": {"range": [0, 60], "fill": 38},
    "job": {"levels": LEVELS, "missing_level": True},
    "town": {"levels": ["Bergen", "Oslo"]},
}
TWO, THREE = ("no", "yes"), ("high", "low", "middle")


@dataclass(frozen=True)
class Case:
    """A report, its classes (None: a number) and the columns of its form."""

    build: Callable[[], PublishedReport]
    classes: tuple[str, ...] | None = TWO
    columns: tuple[str, ...] = tuple(COLUMNS)


@cache
def people(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    hours = np.where(rng.uniform(size=rows) < 0.1, np.nan, rng.integers(5, 60, rows))
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, rows),
            "income": rng.exponential(3.0, rows),
            "hours": hours,
            "job": rng.choice([*LEVELS, ""], rows),
            "town": rng.choice(["Bergen", "Oslo"], rows),
        }
    )


def _labels(classes: tuple[str, ...] | None) -> Any:
    table, rng = people(), np.random.default_rng(12)
    score = table["age"] / 20 + table["income"] / 3 + rng.normal(scale=0.7, size=len(table))
    if classes is None:
        return np.clip(score.to_numpy(), 0, 8)
    edges = np.quantile(score, np.linspace(0, 1, len(classes) + 1)[1:-1])
    return np.array(classes)[np.searchsorted(edges, score)]


def _report(
    estimator: Any, classes: tuple[str, ...] | None = TWO, spent: Any = None, **options: Any
) -> PublishedReport:
    target = {} if classes is None else {"target": {"classes": list(classes)}}
    given = {"columns": COLUMNS, **target, "data_norm": 2.4}
    bound = {"classes": classes} if classes is not None else {"label_range": (0.0, 8.0)}
    y = _labels(classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator(encoding=given, **bound, **options).fit(people(), y)
        return publish(model) if spent is None else publish(model, people(), y, **spent)


def _case(estimator: Any, classes: Any = TWO, spent: Any = None, **options: Any) -> Case:
    return Case(build=cache(lambda: _report(estimator, classes, spent, **options)), classes=classes)


def _private_encoding() -> PublishedReport:
    """Its histograms are in the bound, too; levels are given, so that no threshold is passed."""
    given = {name: dict(entry) for name, entry in COLUMNS.items()}
    given["age"] = {"range": [15, 90], "unit": "years"}
    known = {"columns": given, "target": {"classes": list(TWO)}, "data_norm": 2.4}
    model = PrivateLogisticRegression(
        encoding=known, classes=TWO, private_encoding=0.3, **OBJECTIVE, **GAUSSIAN, margin=0.0
    )
    return publish(_fitted(model, people()))


def _plain() -> PublishedReport:
    """Of numbers without an encoding."""
    model = PrivateLogisticRegression(
        data_norm=80.0, classes=TWO, **OBJECTIVE, **GAUSSIAN, margin=0.0
    )
    return publish(_fitted(model, people()[["age", "income"]].to_numpy()))


def _fitted(model: Any, table: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedRowsWarning)
        return model.fit(table, _labels(TWO))


LOGISTIC, HINGE, RIDGE = PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge
CASES: dict[str, Case] = {
    "output, laplace, logistic": _case(LOGISTIC, **OUTPUT, **LAPLACE, margin=0.0),
    "output, gaussian, logistic with margin": _case(LOGISTIC, **OUTPUT, **GAUSSIAN, margin=1.5),
    "output, gaussian, huber hinge": _case(HINGE, **OUTPUT, **GAUSSIAN),
    "output, laplace, huber": _case(RIDGE, None, **OUTPUT, **LAPLACE),
    "output, gaussian, squared": _case(RIDGE, None, **OUTPUT, **GAUSSIAN, huber_width=None),
    "objective, gaussian, logistic with margin": _case(
        LOGISTIC, **OBJECTIVE, **GAUSSIAN, margin=1.5
    ),
    "objective, laplace, logistic": _case(LOGISTIC, **OBJECTIVE, **LAPLACE, margin=0.0),
    "objective, laplace, huber hinge": _case(HINGE, **OBJECTIVE, **LAPLACE),
    "objective, gaussian, squared": _case(RIDGE, None, **OBJECTIVE, **GAUSSIAN, huber_width=None),
    "objective, gaussian, softmax": _case(LOGISTIC, THREE, **OBJECTIVE, **GAUSSIAN, margin=0.0),
    "objective, laplace, softmax": _case(LOGISTIC, THREE, **OBJECTIVE, **LAPLACE, margin=0.0),
    "dependent, gaussian, logistic": _case(
        LOGISTIC, TWO, SPENT, **OBJECTIVE, **GAUSSIAN, **DEPENDENT, margin=0.0
    ),
    "dependent, gaussian, logistic with margin": _case(
        LOGISTIC, TWO, SPENT, **OBJECTIVE, **GAUSSIAN, **DEPENDENT, margin=1.5
    ),
    "dependent, laplace, logistic": _case(
        LOGISTIC, TWO, SPENT, **OBJECTIVE, **LAPLACE, **DEPENDENT, margin=0.0
    ),
    "dependent, gaussian, huber hinge": _case(
        HINGE, TWO, SPENT, **OBJECTIVE, **GAUSSIAN, **DEPENDENT
    ),
    "dependent, gaussian, squared": _case(
        RIDGE, None, SPENT, **OBJECTIVE, **GAUSSIAN, **DEPENDENT, huber_width=None
    ),
    "private encoding, gaussian, logistic": Case(build=cache(_private_encoding)),
    "plain numbers, gaussian, logistic": Case(build=cache(_plain), columns=("age", "income")),
}


def random_rows(
    case: Case, rows: int, seed: int
) -> list[tuple[dict[str, str], str | None, list[str]]]:
    """Values by column, the label of a regression, and the same as the page takes them.

    A tenth of the cells is missing, some levels are unknown, numbers lie far outside.
    """
    rng = np.random.default_rng(seed)

    def number(centre: float, spread: float, *, may_miss: bool) -> str:
        if may_miss and rng.uniform() < 0.15:
            return str(rng.choice(["", "?"]))
        wide = 10.0 ** rng.choice([0, 0, 0, 1, 4])
        return repr(float(rng.normal(centre, spread * wide)))

    def level(levels: list[str]) -> tuple[str, str]:
        index = int(rng.integers(-2, len(levels)))
        if index == -2:
            return "", "missing"
        return ("unheard of", "none") if index == -1 else (levels[index], str(index))

    drawn = []
    for _ in range(rows):
        job, town = level(LEVELS), level(["Bergen", "Oslo"])
        numbers = {
            "age": number(45, 15, may_miss=False),
            "income": number(3, 2, may_miss=False),
            "hours": number(30, 20, may_miss=True),
        }
        label = None if case.classes is not None else repr(float(rng.uniform(-2, 10)))
        values = {**numbers, "job": job[0], "town": town[0]}
        typed = {**numbers, "job": job[1], "town": town[1]}
        # A model of plain numbers knows its columns by their numbers.
        names = case.build().form.names
        given = {own: values[name] for own, name in zip(names, case.columns, strict=True)}
        texts = [typed[name] for name in case.columns] + ([] if label is None else [label])
        drawn.append((given, label, texts))
    return drawn


# -- random models ---------------------------------------------------------------------------------


def random_report(rng: np.random.Generator) -> tuple[PublishedReport, np.ndarray]:
    """A report of a random model of plain numbers, of any kind and size; and its rows."""
    kind = str(rng.choice(["logistic", "hinge", "ridge", "softmax"]))
    dependent = kind != "softmax" and bool(rng.uniform() < 0.4)
    several = dependent or kind == "softmax"
    noise = GAUSSIAN if rng.uniform() < 0.5 else LAPLACE
    rows, width = int(rng.choice([40, 200, 1000])), int(rng.choice([2, 5, 30]))
    X = rng.normal(size=(rows, width)) * 10 ** rng.uniform(-2, 2)
    score, length = X[:, 0] / np.std(X[:, 0]), np.median(np.linalg.norm(X, axis=1))
    options: dict[str, Any] = {
        "mechanism": "objective" if several else str(rng.choice(["objective", "output"])),
        **noise,
        "epsilon": float(10 ** rng.uniform(-1, 1.5)),
        "data_norm": float(length * rng.choice([0.3, 1, 3])),
        "fit_intercept": bool(rng.uniform() < 0.7),
        "regularization": float(10 ** rng.uniform(-3, 0)),
    }
    rho = float(rng.choice([1e-6, 1e-3, 0.2]))
    spent: dict[str, Any] = {"failure_probability": rho}
    if dependent:
        budget = {"epsilon_gradient": 0.5, "epsilon_hessian": 0.5, "delta": 1e-6}
        options["regularization"] = "for-publishing"
        options["publishing"] = PublishingBudget(**budget, failure_probability=rho)
        spent |= {"kind": "data-dependent", **budget}
    y: Any = (score > 0) * 1
    match kind:
        case "ridge":
            # A data-dependent report needs the squared loss.
            width_of_huber = None if dependent or rng.uniform() < 0.5 else 0.5
            model = RIDGE(label_range=(-2.0, 3.0), huber_width=width_of_huber, **options)
            y = np.clip(score, -2, 3)
        case "softmax":
            classes = int(rng.choice([3, 7]))
            model = LOGISTIC(classes=tuple(range(classes)), margin=0.0, **options)
            y = np.digitize(score, np.linspace(-1, 1, classes - 1))
        case "hinge":
            model = HINGE(classes=(0, 1), **options)
        case _:
            model = LOGISTIC(classes=(0, 1), margin=float(rng.choice([0, 0.5, 3, 20])), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return publish(model.fit(X, y), X, y, **spent), X
