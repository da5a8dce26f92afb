"""Boosters: saved models of XGBoost and LightGBM."""

import json
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.auditing.saved_model import (
    EXTRA,
    LoadedModel,
    SavedModel,
    as_frame,
    as_probabilities,
    ordered_classes,
    with_categories,
)
from expost.errors import InvalidInput, MissingExtra, require
from expost.types import FloatArray

__all__ = ["load_lightgbm", "load_xgboost"]

# Objectives of boosters by what they predict; others (ranks, survival times) are refused.
_XGBOOST_SCORES = ("binary:logitraw", "binary:hinge", "multi:softmax")
_NUMBERS = (
    *("reg:", "count:", "regression", "huber", "fair", "poisson", "quantile", "mape"),
    *("gamma", "tweedie"),
)
# Seen with NumPy 2.0 and pandas 2.2.2; 3.1.1 and later predict as before the file was saved.
_WRONG_CATEGORIES = "3.1.0"
# The bytes of a value of UBJSON by its type.
_WIDTHS = {**dict.fromkeys(b"ZNTF", 0), **dict.fromkeys(b"iUC", 1), ord("I"): 2}
_WIDTHS |= {**dict.fromkeys(b"ld", 4), **dict.fromkeys(b"LD", 8)}
# The names that LightGBM gives to columns without one.
_UNNAMED = re.compile(r"Column_\d+")


def load_xgboost(path: Path) -> LoadedModel:
    """Load a file of XGBoost, JSON or UBJSON."""
    try:
        xgboost = import_module("xgboost")
    except ImportError as error:
        # In no extra: xgboost and xgboost-cpu are one module, and only one may be installed.
        raise MissingExtra(
            "an XGBoost file needs xgboost, which is not installed: pip install xgboost (or"
            " xgboost-cpu, which is smaller)."
        ) from error
    content = path.read_bytes()
    # An object of JSON begins with a name in quotes, one of UBJSON with a length.
    if content[1:].lstrip()[:1] != b'"':
        _check_ubjson(path, content)
    booster = xgboost.Booster({"nthread": 1})
    # From memory: by its content, whatever its name ends in.
    booster.load_model(bytearray(content))
    learner = json.loads(booster.save_config())["learner"]
    objective = str(learner["objective"]["name"])
    count = int(learner["learner_model_param"].get("num_class", 0))
    names, types = booster.feature_names, booster.feature_types or ()
    categorical = [index for index, kind in enumerate(types) if kind == "c"]
    categories = _stored_categories(booster) if categorical else {}
    if len(categories) != len(categorical):
        raise InvalidInput(
            f"{path}: has columns of categories, but not their names, so rows cannot be mapped to"
            " them; save the model with XGBoost 3.1 or later."
        )
    if categorical and xgboost.__version__ == _WRONG_CATEGORIES:
        raise InvalidInput(
            f"{path}: has columns of categories, which XGBoost {_WRONG_CATEGORIES} predicts wrongly"
            " or crashes on once its file is loaded; install a later version."
        )
    stop = booster.attr("best_iteration")
    rounds = (0, 0) if stop is None else (0, int(stop) + 1)

    def evaluate(X: Any) -> FloatArray:
        frame = with_categories(as_frame(X, names), categories)
        rows = xgboost.DMatrix(frame, enable_categorical=True, nthread=1)
        scores = booster.predict(
            rows, iteration_range=rounds, output_margin=objective in _XGBOOST_SCORES
        )
        return np.asarray(scores, dtype=np.float64)

    return _booster(
        path,
        f"XGBoost {objective}",
        names=None if not names else tuple(names),
        width=booster.num_features(),
        evaluate=evaluate,
        objective=objective,
        count=count,
        scores=objective in _XGBOOST_SCORES,
        categories=categories,
    )


def _check_ubjson(path: Path, content: bytes) -> None:
    """Refuse a file whose values do not end where it ends: XGBoost would read past it and crash."""
    try:
        whole = _end_of_value(content, 0) == len(content)
    except (IndexError, KeyError):
        whole = False
    if not whole:
        raise InvalidInput(
            f"{path}: looks like a file of XGBoost, but is not whole: it ends too early, or is"
            " damaged. Save the model again."
        )


def _end_of_value(content: bytes, start: int) -> int:
    """Return where a value of UBJSON ends; raise IndexError or KeyError where it is none."""
    kind, at = content[start], start + 1
    if kind in b"SH":
        count, at = _length(content, at)
        return at + count
    if kind == ord("{"):
        while content[at] != ord("}"):
            count, at = _length(content, at)
            at = _end_of_value(content, at + count)
        return at + 1
    if kind != ord("["):
        return at + _WIDTHS[kind]
    if content[at : at + 1] == b"$":
        count, end = _length(content, at + 3)
        return end + count * _WIDTHS[content[at + 1]]
    if content[at : at + 1] == b"#":
        count, at = _length(content, at + 1)
        for _ in range(count):
            at = _end_of_value(content, at)
        return at
    while content[at] != ord("]"):
        at = _end_of_value(content, at)
    return at + 1


def _length(content: bytes, start: int) -> tuple[int, int]:
    """Return a length of UBJSON, and where it ends."""
    end = start + 1 + _WIDTHS[content[start]]
    count = int.from_bytes(content[start + 1 : end], "big")
    if end > len(content):
        raise IndexError
    return count, end


def _stored_categories(booster: Any) -> dict[int, NDArray[Any]]:
    if not hasattr(booster, "get_categories"):
        return {}
    stored = booster.get_categories(export_to_arrow=True).to_arrow()
    return {
        index: levels.to_numpy(zero_copy_only=False)
        for index, (_, levels) in enumerate(stored)
        if levels is not None
    }


def load_lightgbm(path: Path) -> LoadedModel:
    """Load a text file of LightGBM."""
    lightgbm = require("lightgbm", caller="a LightGBM file", extra=EXTRA)
    header = _lightgbm_header(path)
    _check_whole(path, header)
    booster = lightgbm.Booster(model_file=str(path))
    names = tuple(booster.feature_name())
    levels = [np.array(each) for each in booster.pandas_categorical or []]
    infos = header.get("feature_infos", "").split()
    categorical = [
        index for index, info in enumerate(infos) if not info.startswith("[") and info != "none"
    ]
    if len(levels) not in (0, len(categorical)):
        raise InvalidInput(
            f"{path}: stores the names of {len(levels)} columns of categories, and has"
            f" {len(categorical)}; save the model again."
        )
    named = header.get("objective")
    if named is None:
        raise InvalidInput(
            f"{path}: was trained with an objective of its own, which the file does not name, so"
            " that its outputs may be scores of any kind; compute the model's answers and pass"
            " them as --arrays."
        )
    objective = named.split()[0]
    categories = dict(zip(categorical, levels, strict=True)) if levels else {}
    unnamed = all(_UNNAMED.fullmatch(name) for name in names)

    def evaluate(X: Any) -> FloatArray:
        frame = with_categories(as_frame(X, names), categories)
        return np.asarray(booster.predict(frame, num_threads=1), dtype=np.float64)

    return _booster(
        path,
        f"LightGBM {objective}",
        names=None if unnamed else names,
        width=len(names),
        evaluate=evaluate,
        objective=objective,
        count=int(header.get("num_class", "1")),
        scores=False,
        categories=categories,
    )


def _lightgbm_header(path: Path) -> dict[str, str]:
    """Return the lines before the first tree, ``name=value``."""
    header: dict[str, str] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            name, equals, value = line.strip().partition("=")
            if name == "Tree":
                break
            if equals:
                header[name] = value
    return header


def _check_whole(path: Path, header: dict[str, str]) -> None:
    """Refuse a file whose trees do not have the declared sizes: LightGBM would crash."""
    content = path.read_bytes()
    sizes = header.get("tree_sizes", "").split()
    first = max(content.find(b"\nTree=0"), 0) + 1
    end = first + sum(int(size) for size in sizes if size.isdecimal())
    rest = content[end:]
    cut = b"\nparameters:" in rest and b"\nend of parameters" not in rest
    if cut or not rest.startswith(b"end of trees"):
        raise InvalidInput(
            f"{path}: looks like a file of LightGBM, but is not whole: it ends too early, or its"
            " trees do not have the sizes that it declares. Save the model again."
        )
    width = int(header.get("max_feature_idx", "-1")) + 1
    for line in re.findall(rb"^split_feature=(.*)$", content[:end], re.MULTILINE):
        if not all(each.isdigit() and int(each) < width for each in line.split()):
            raise InvalidInput(
                f"{path}: is damaged: a tree splits a column that the model does not have ({width}"
                " columns). Save the model again."
            )


def _booster(
    path: Path,
    description: str,
    *,
    names: tuple[str, ...] | None,
    width: int,
    evaluate: Callable[[Any], FloatArray],
    objective: str,
    count: int,
    scores: bool,
    categories: Mapping[int, NDArray[Any]],
) -> LoadedModel:
    """Return a booster whose objective decides what its outputs are."""
    numbers = objective.startswith(_NUMBERS)
    if not numbers and not objective.startswith(("binary", "multi", "cross_entropy")):
        raise InvalidInput(
            f"{path}: was trained for {objective!r}; only classification and regression are"
            " attacked."
        )
    count = 0 if numbers else max(2, count)

    def probabilities(X: Any) -> FloatArray:
        return as_probabilities(evaluate(X), scores)

    def finish(rows: Any, classes: tuple[str, ...] | None) -> SavedModel:
        del rows
        if numbers and classes is not None:
            raise InvalidInput(
                f"--classes: the model predicts numbers ({objective}); leave it out. If they are"
                " probabilities, compute the answers and pass them as --arrays."
            )
        return SavedModel(
            description=f"{description}, {width} columns",
            evaluate=evaluate if numbers else probabilities,
            classes_=None if numbers else ordered_classes(count, classes),
            is_numbered=not numbers and classes is None,
        )

    return LoadedModel(
        path=path,
        description=f"{description}, {width} columns",
        columns=names,
        width=width,
        as_matrix=False,
        finish=finish,
        categories=categories,
    )
