"""Fitted scikit-learn estimators, read as an objective.

These models carry no noise, so every privacy loss is infinite. The distance by which each row moves
the model is still defined. Each model is J of :mod:`expost.glm` with an unpenalised intercept
column. The total penalty stays the same when a row is removed, because a refit would keep C or
alpha.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeClassifier,
)
from sklearn.utils.validation import check_is_fitted

from expost import _checks
from expost.errors import InvalidInput
from expost.glm import Objective
from expost.labels import signs
from expost.losses import Logistic, Loss, Squared
from expost.types import FloatArray

__all__ = ["ForeignModel", "read_foreign"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ForeignModel:
    """A fitted model's θ and the objective on these rows that it minimises."""

    theta: FloatArray
    problem: Objective


def read_foreign(model: Any, X: Any, y: Any) -> ForeignModel | None:
    """Return the objective of a scikit-learn model, or None for a type that is not supported.

    Raises
    ------
    InvalidInput
        If the model is not fitted, or has a setting under which its objective cannot be read.
    """
    if isinstance(model, LogisticRegression | RidgeClassifier | Ridge):
        if hasattr(model, "epsilon"):
            raise InvalidInput(
                f"model: {type(model).__name__} of {type(model).__module__.split('.')[0]} has its"
                " own epsilon, and its noise is unknown here; pass θ with its mechanism."
            )
        try:
            check_is_fitted(model)
        except NotFittedError:
            raise InvalidInput("model: is not fitted; call its fit first.") from None
        if np.shape(X)[:1] != np.shape(y)[:1]:
            raise InvalidInput("y: must have one entry for each row of X.")
    if isinstance(model, LogisticRegressionCV):
        raise InvalidInput(
            "model: LogisticRegressionCV is not supported; refit a LogisticRegression with its C."
        )
    if isinstance(model, LogisticRegression):
        return _logistic(model, X, y)
    if isinstance(model, RidgeClassifier):
        return _ridge(model, X, signs(y, _fitted_classes(model)))
    if isinstance(model, Ridge):
        return _ridge(model, X, _checks.vector(y))
    return None


def _logistic(model: LogisticRegression, X: Any, y: Any) -> ForeignModel:
    classes = _fitted_classes(model)
    if model.class_weight is not None:
        raise InvalidInput(
            f"class_weight={model.class_weight!r}: only equal row weights are supported."
        )
    ratio = model.l1_ratio
    if (ratio is not None and ratio != 0) or getattr(model, "penalty", None) in ("l1", None):
        raise InvalidInput("model: only an L2 penalty (l1_ratio=0) is supported.")
    if model.solver == "liblinear" and model.fit_intercept:
        raise InvalidInput(
            "solver='liblinear': it penalises its intercept; refit with solver='lbfgs'."
        )
    return _model(model, X, signs(y, classes), Logistic(), 1 / model.C, model.coef_[0])


def _ridge(model: Any, X: Any, target: FloatArray) -> ForeignModel:
    if np.ndim(model.coef_) == 2 and np.shape(model.coef_)[0] != 1:
        raise InvalidInput("model: has several outputs; fit one at a time.")
    if getattr(model, "class_weight", None) is not None or model.positive:
        raise InvalidInput("model: class_weight and positive=True are not supported.")
    alpha = _checks.positive("alpha", model.alpha)
    loss = Squared(label_bound=max(float(np.max(np.abs(target))), 1e-300))
    return _model(model, X, target, loss, alpha, np.ravel(model.coef_))


def _model(
    model: Any, X: Any, target: FloatArray, loss: Loss, total: float, coef: FloatArray
) -> ForeignModel:
    """Return the model of Σ ℓ + (total/2)∥w∥²; the intercept is an unpenalised column of ones."""
    features = _checks.matrix(X)
    if features.shape[1] != len(coef):
        raise InvalidInput(
            f"X has {features.shape[1]} columns: the model was fitted on {len(coef)}."
        )
    theta = np.asarray(coef, dtype=np.float64)
    penalty = np.full(len(theta), total / len(features))
    if model.fit_intercept:
        features = np.column_stack([features, np.ones(len(features))])
        theta = np.append(theta, float(np.ravel(model.intercept_)[0]))
        penalty = np.append(penalty, 0.0)
    return ForeignModel(
        theta=theta, problem=Objective.of(X=features, y=target, loss=loss, penalty=penalty)
    )


def _fitted_classes(model: Any) -> Any:
    if len(model.classes_) != 2:
        raise InvalidInput(f"model: has {len(model.classes_)} classes; two are needed here.")
    return model.classes_
