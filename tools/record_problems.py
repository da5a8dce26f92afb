"""The problems whose values ``tools/record.py`` records, and how expost is reached.

The first section is the only one that knows how expost spells its names. Where a redesign moves or
renames something, add the new spelling in front of the old one: every section below stays.
"""

import importlib
import inspect
import json
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

__all__ = [
    "Problem",
    "block_values",
    "find_name",
    "neighbour_values",
    "problem_values",
    "read_rows",
    "uncut",
]

Values = dict[str, list[Any]]

# --- Spellings of expost: the new one first -----------------------------------------------------

ESTIMATORS = {
    "logistic": ("expost.PrivateLogisticRegression", "expost.estimators.PrivateLogisticRegression"),
    "huber-hinge": ("expost.PrivateLinearSVC", "expost.estimators.PrivateLinearSVC"),
    "squared": ("expost.PrivateRidge", "expost.estimators.PrivateRidge"),
}
REFUSAL = ("expost.errors.ExpostError", "expost.ExpostError")
PERSONS = ("persons", "groups")
THETA = ("release_.theta", "release_.coefficients_vector", "theta_")
# What is recorded of a profile, and where the profile holds it.
PROFILE = {
    "loss": ("loss",),
    "low": ("low", "loss_low"),
    "high": ("high", "loss_high"),
    "distance": ("distance",),
    "error": ("error_bound", "distance_error", "losses.distance_error"),
}
NEIGHBOURS = {
    "theta": ("base",),
    "base_error": ("base_error",),
    "distance": ("distance",),
    "error": ("error_bound",),
    "shift": ("shift",),
}
# The columns of the table that a run in blocks writes, one row for each row of the data.
COLUMNS = {
    "loss": ("loss",),
    "low": ("low", "loss_low"),
    "high": ("high", "loss_high"),
    "distance": ("distance",),
    "error": ("error_bound", "distance_error"),
}


def uncut() -> dict[str, None]:
    """Return what an encoding says of a number that is not cut; older versions cut none."""
    try:
        find_name(("expost.data._entries.CUT",))
    except LookupError:
        return {}
    return {"cut": None}


def find_name(spellings: tuple[str, ...]) -> Any:
    """Return the first of these dotted names that can be imported."""
    for spelling in spellings:
        module, _, name = spelling.rpartition(".")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise LookupError(f"expost has none of {', '.join(spellings)}: add its new name.")


def find_field(value: Any, spellings: tuple[str, ...]) -> Any:
    """Return the first of these dotted attributes that ``value`` has."""
    for spelling in spellings:
        field = value
        for name in spelling.split("."):
            field = getattr(field, name, None)
        if field is not None:
            return field
    raise LookupError(
        f"{type(value).__name__} has none of {', '.join(spellings)}: add its new name."
    )


def find_parameter(function: Callable[..., Any], spellings: tuple[str, ...]) -> str:
    """Return the first of these names that ``function`` takes as a parameter."""
    known = inspect.signature(function).parameters
    for spelling in spellings:
        if spelling in known:
            return spelling
    raise LookupError(f"{function.__name__} takes none of {', '.join(spellings)}: add its name.")


def profile_in_blocks(model: Path, table: Path, out: Path) -> None:
    """Write the profile of ``table``, processed in blocks, to the folder ``out``."""
    expost = importlib.import_module("expost")
    stream = getattr(expost, "profile_stream", None)
    if stream is None:
        expost.profile(model, table, out=out, engine="local")
    else:
        stream(model, str(table), out=out, id_column=None, engine="local")


def read_rows(folder: Path) -> pyarrow.Table:
    """Return the rows of the profile in ``folder``, a file or a folder of parts."""
    (path,) = folder.glob("profile*.parquet")
    if path.is_file():
        return pyarrow.parquet.read_table(path)
    parts = sorted(path.glob("*.parquet"))
    return pyarrow.concat_tables([pyarrow.parquet.read_table(part) for part in parts])


# --- Problems -----------------------------------------------------------------------------------

FloatArray = NDArray[np.float64]
DATA_NORM = 3.0
LABEL_BOUND = 2.0
DELTA = 1e-5
PENALTIES = (1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
SHAPES = ((40, 3), (120, 7), (300, 12))
RELATIONS = ("remove", "add", "replace", "persons")
METHODS = ("worst-case", "newton", "exact", "retrain")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One model of one small data set, with every setting given.

    ``classes`` is 2, or more for softmax regression; the squared loss ignores it. The relation
    "persons" removes all rows of a person at once.
    """

    loss: str
    relation: str
    mechanism: str
    noise: str
    regularization: float
    rows: int
    columns: int
    classes: int = 2
    epsilon: float = 1.0

    @property
    def key(self) -> str:
        """The name under which the values are recorded."""
        loss = self.loss if self.classes == 2 else f"softmax{self.classes}"
        end = "" if self.epsilon == 1 else f"/epsilon={self.epsilon:g}"
        return (
            f"memory/{loss}/{self.relation}/{self.mechanism}/{self.noise}/"
            f"{self.regularization:g}/{self.rows}x{self.columns}{end}"
        )


def problems() -> Iterator[Problem]:
    """Yield every combination of settings, with three penalties and shapes for each."""
    kinds = [(loss, 2, name) for loss in ESTIMATORS for name in ("output", "objective")]
    kinds += [("logistic", classes, "objective") for classes in (3, 4)]
    number = 0
    for loss, classes, mechanism in kinds:
        for noise in ("laplace", "gaussian"):
            for relation in RELATIONS:
                for rows, columns in SHAPES:
                    # 7 penalties and 3 shapes: each pair comes up in turn.
                    number += 1
                    yield Problem(
                        loss=loss,
                        relation=relation,
                        mechanism=mechanism,
                        noise=noise,
                        regularization=PENALTIES[number % len(PENALTIES)],
                        rows=rows,
                        columns=columns,
                        classes=classes,
                    )
    for loss, mechanism in (("logistic", "output"), ("huber-hinge", "output")):
        for penalty in (1e-6, 1e-3):
            for relation in ("remove", "persons"):
                yield Problem(
                    loss=loss,
                    relation=relation,
                    mechanism=mechanism,
                    noise="laplace",
                    regularization=penalty,
                    rows=569,
                    columns=30,
                )
    for loss in ESTIMATORS:
        for mechanism, epsilon in (("objective", 5.0), ("output", float("inf"))):
            yield Problem(
                loss=loss,
                relation="remove",
                mechanism=mechanism,
                noise="laplace",
                regularization=1e-2,
                rows=569 if mechanism == "objective" else 120,
                columns=30 if mechanism == "objective" else 7,
                epsilon=epsilon,
            )


def seed_of(text: str) -> int:
    """Return a seed that depends on ``text`` alone."""
    return zlib.crc32(text.encode())


def make_data(
    loss: str, classes: int, rows: int, columns: int
) -> tuple[FloatArray, NDArray[Any], FloatArray, NDArray[Any]]:
    """Return the rows and labels of a data set, and as many candidates that are not in it."""
    rng = np.random.default_rng(seed_of(f"{loss}/{classes}/{rows}x{columns}"))
    if (rows, columns) == (569, 30):
        X, label = load_breast_cancer(return_X_y=True)
        X = (X - X.mean(axis=0)) / X.std(axis=0) / 3
        X = np.vstack([X, X[::-1] + rng.normal(0, 0.1, X.shape)])
        score = np.concatenate([label, label[::-1]]) - 0.5
    else:
        X = rng.normal(0, rng.uniform(0.2, 1.0, columns), (2 * rows, columns))
        # Rows that are zero, equal, or beyond the norm are where special cases lie.
        X[3] = 0.0
        X[5] = X[4]
        X[7] *= 20
        score = X @ rng.normal(0, 1, columns) + rng.normal(0, 0.5, 2 * rows)
    if loss == "squared":
        y: NDArray[Any] = np.clip(score, -LABEL_BOUND, LABEL_BOUND)
    elif classes == 2:
        y = np.where(score > 0, 1.0, -1.0)
    else:
        y = np.searchsorted(np.quantile(score, np.arange(1, classes) / classes), score)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def persons_of(rows: int) -> NDArray[np.int64]:
    """Return whose row each row is: persons of one to five rows, not in order."""
    rng = np.random.default_rng(seed_of(f"persons/{rows}"))
    sizes = np.resize([1, 2, 3, 5], rows)
    return rng.permutation(np.repeat(np.arange(rows), sizes)[:rows])


def relation_options(
    function: Callable[..., Any], relation: str, candidates: tuple[FloatArray, NDArray[Any]]
) -> dict[str, Any]:
    """Return the options that ask ``function`` for one relation."""
    if relation == "persons":
        rows = len(candidates[0])
        return {"relation": "remove", find_parameter(function, PERSONS): persons_of(rows)}
    if relation == "remove":
        return {"relation": relation}
    return {"relation": relation, "candidates": candidates}


def numbers(value: Any) -> list[float]:
    """Return an array, of any shape, as a list of floats."""
    return [float(entry) for entry in np.ravel(np.asarray(value, dtype=np.float64))]


def fit(problem: Problem, X: FloatArray, y: NDArray[Any]) -> Any:
    """Return the fitted estimator of a problem, every parameter given."""
    settings: dict[str, Any] = {
        "epsilon": problem.epsilon,
        "delta": DELTA if problem.noise == "gaussian" else None,
        "mechanism": problem.mechanism,
        "noise": problem.noise,
        "regularization": problem.regularization,
        "calibration": "tight",
        "fit_intercept": True,
        "intercept_scaling": 0.1,
        "data_norm": DATA_NORM,
        "random_state": seed_of(problem.key),
    }
    if problem.loss == "squared":
        settings |= {"label_range": (-LABEL_BOUND, LABEL_BOUND), "huber_width": None}
    else:
        settings["classes"] = sorted(set(y.tolist()))
    if problem.loss == "huber-hinge":
        settings["huber_width"] = 0.5
    return find_name(ESTIMATORS[problem.loss])(**settings).fit(X, y)


def profile_problem(problem: Problem) -> Values:
    """Return θ and what the profile says of each row, or that expost refuses the problem."""
    X, y, *candidates = make_data(problem.loss, problem.classes, problem.rows, problem.columns)
    profile = find_name(("expost.profile",))
    options = relation_options(profile, problem.relation, (candidates[0], candidates[1]))
    try:
        model = fit(problem, X, y)
        result = profile(model, X, y, **options)
    except find_name(REFUSAL):
        return {"refused": [True]}
    values = {"theta": numbers(find_field(model, THETA))}
    for name, spellings in PROFILE.items():
        values[name] = numbers(find_field(result, spellings))
    return values


def problem_values() -> dict[str, Values]:
    """Return the values of every problem in memory, by its key."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {problem.key: profile_problem(problem) for problem in problems()}


def neighbour_values() -> dict[str, Values]:
    """Return the leave-one-out minimisers of small problems by every method."""
    neighbours = find_name(("expost.neighbours",))
    values: dict[str, Values] = {}
    number = 0
    for loss in ESTIMATORS:
        for relation in RELATIONS:
            for method in METHODS:
                number += 1
                rows, columns = SHAPES[number % 2]
                penalty = PENALTIES[number % len(PENALTIES)]
                X, y, *candidates = make_data(loss, 2, rows, columns)
                options = relation_options(neighbours, relation, (candidates[0], candidates[1]))
                key = f"neighbours/{loss}/{relation}/{method}/{penalty:g}/{rows}x{columns}"
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = neighbours(
                        X, y, loss=loss, regularization=penalty, method=method, **options
                    )
                values[key] = {
                    name: numbers(find_field(result, spellings))
                    for name, spellings in NEIGHBOURS.items()
                }
    return values


# --- Tables processed in blocks -----------------------------------------------------------------


# Blocks have at most 32,768 rows: only the last two tables need more than one.
LONG = (40_000, 3)


def block_problems() -> Iterator[Problem]:
    """Yield the problems that are also processed in blocks."""
    number = 0
    for loss in ESTIMATORS:
        for mechanism in ("output", "objective"):
            for noise in ("laplace", "gaussian"):
                number += 1
                rows, columns = SHAPES[1 + number % 2]
                yield Problem(
                    loss=loss,
                    relation="remove",
                    mechanism=mechanism,
                    noise=noise,
                    regularization=PENALTIES[1 + number % (len(PENALTIES) - 1)],
                    rows=rows,
                    columns=columns,
                )
    for loss, mechanism in (("logistic", "output"), ("huber-hinge", "objective")):
        yield Problem(
            loss=loss,
            relation="remove",
            mechanism=mechanism,
            noise="laplace",
            regularization=1e-3,
            rows=LONG[0],
            columns=LONG[1],
        )


def block_values(run: Callable[..., Any]) -> dict[str, Values]:
    """Return the values of tables processed in blocks, by two routes.

    ``run(*arguments)`` runs the program, which fits the model in blocks: the first route. The
    second one profiles the model again, in blocks, from Python.
    """
    values: dict[str, Values] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for problem in block_problems():
            key = problem.key.replace("memory/", "blocks/", 1)
            with tempfile.TemporaryDirectory() as name:
                for route, result in profile_table(problem, Path(name), run):
                    values[f"{key}/{route}"] = result
    return values


def profile_table(
    problem: Problem, folder: Path, run: Callable[..., Any]
) -> Iterator[tuple[str, Values]]:
    """Yield the name and the values of each route through the blocks of one table."""
    table = write_table(folder, problem.loss, problem.rows, problem.columns)
    arguments = ["profile", table, "--target", "label", "--out", folder / "first"]
    arguments += ["--loss", problem.loss, "--mechanism", problem.mechanism]
    arguments += ["--noise", problem.noise, "--epsilon", problem.epsilon]
    arguments += ["--regularization", problem.regularization, "--engine", "local"]
    arguments += ["--encoding", folder / "encoding.json", "--seed", seed_of(problem.key)]
    if problem.noise == "gaussian":
        arguments += ["--delta", DELTA]
    if problem.loss == "squared":
        arguments += ["--label-range", f"{-LABEL_BOUND},{LABEL_BOUND}"]
    run(*arguments)
    model = folder / "first" / "model.json"
    theta = numbers(json.loads(model.read_text())["theta"])
    profile_in_blocks(model, table, folder / "second")
    for route in ("first", "second"):
        read = read_rows(folder / route)
        yield (
            route,
            {"theta": theta}
            | {
                field: numbers(read.column(find_column(read, spellings)))
                for field, spellings in COLUMNS.items()
            },
        )


def find_column(table: pyarrow.Table, spellings: tuple[str, ...]) -> str:
    """Return the first of these names that is a column of ``table``."""
    for spelling in spellings:
        if spelling in table.column_names:
            return spelling
    raise LookupError(f"the table of rows has none of {', '.join(spellings)}: add its new name.")


def write_table(folder: Path, loss: str, rows: int, columns: int) -> Path:
    """Write a Parquet table of several row groups, and the encoding that is known without it."""
    X, y, *_ = make_data(loss, 2, rows, columns)
    names = [f"x{column}" for column in range(columns)]
    label: Any = y if loss == "squared" else np.where(y > 0, "yes", "no")
    table = pyarrow.table({**dict(zip(names, X.T, strict=True)), "label": label})
    pyarrow.parquet.write_table(table, folder / "table.parquet", row_group_size=max(64, rows // 3))
    encoding: dict[str, Any] = {
        "columns": {name: {"mean": 0.0, "scale": 1.0, **uncut()} for name in names},
        "data_norm": DATA_NORM,
    }
    if loss != "squared":
        encoding["target"] = {"classes": ["no", "yes"]}
    (folder / "encoding.json").write_text(json.dumps(encoding))
    return folder / "table.parquet"
