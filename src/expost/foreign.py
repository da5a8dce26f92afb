"""Fitted scikit-learn estimators, read as an objective.

These models carry no noise, so every privacy loss is infinite. The distance by which each row moves
the model is still defined. Each model is J of :mod:`expost.glm` with an unpenalised intercept
column. The total penalty stays the same when a row is removed, because a refit would keep C or
alpha.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeClassifier,
)
from sklearn.utils.validation import check_is_fitted

from expost import _checks
from expost._numerics import gamma
from expost.errors import InvalidInput, WrongRows
from expost.glm import Minimiser, Objective, gradient_at
from expost.labels import signs
from expost.losses import Logistic, Loss, Squared
from expost.numbers import upper_text
from expost.rows import RowBlock
from expost.types import FloatArray

__all__ = ["ForeignModel", "read_foreign"]

# A model this close to the minimiser, relative to its norm, is that of these rows.
_NEAR = 0.05
# A model this close is the minimiser for every purpose here.
_CONVERGED = 1e-6
# Past this tolerance the gradient does not tell these rows from others.
_LARGEST_TOLERANCE = 1e-3
# The solvers that stop where no ∣∂J/∂θⱼ∣ is larger than tol, J being the averaged form.
_BY_GRADIENT = ("lbfgs", "newton-cg", "newton-cholesky")


@dataclass(frozen=True, kw_only=True, eq=False)
class ForeignModel:
    """A fitted model's θ and the objective on these rows that it minimises.

    Attributes
    ----------
    theta : FloatArray
        (d,) θ.
    problem : Objective
        The objective.
    signs : bool
        Whether the sign of a prediction is the class, for any loss.
    tolerance : float
        The largest ∣∂J/∂θⱼ∣ at which its solver stops; 0 if it stops by another rule.
    """

    theta: FloatArray
    problem: Objective
    signs: bool = False
    tolerance: float = 0.0

    def distance(self, base: Minimiser, base_error: float) -> float:
        """Return a certified bound on ∥θ − A(D)∥.

        Parameters
        ----------
        base : Minimiser
            The minimiser of the objective, as computed.
        base_error : float
            A bound on its distance from A(D).

        Returns
        -------
        float
            The bound.
        """
        apart = float(np.linalg.norm(self.theta - base.theta))
        return apart * (1 + 1e-12) + base_error

    def check_converged(self, base: Minimiser, base_error: float) -> None:
        """Refuse rows of which θ is not the minimiser.

        A model that stopped early by the tolerance of its own solver is taken: another data set
        does not have such a gradient at θ.

        Parameters
        ----------
        base : Minimiser
            The minimiser of the objective, as computed.
        base_error : float
            A bound on its distance from A(D).

        Raises
        ------
        WrongRows
            If θ is too far from A(D).
        """
        distance, length = self.distance(base, base_error), float(np.linalg.norm(base.theta))
        if distance <= _NEAR * (1 + length) or self._has_stopped():
            return
        raise WrongRows(
            f"X, y: the model does not minimise its objective on these rows: it is"
            f" {upper_text(distance, 3)} from the minimiser, whose norm is {length:.3g}. Pass the"
            " rows that it was fitted on, or let it converge (a smaller tol, a larger max_iter)."
        )

    def _has_stopped(self) -> bool:
        """Return whether the gradient at θ is one at which the solver stops."""
        gradient = gradient_at(self.problem, self.theta)
        return bool(np.max(np.abs(gradient)) <= min(self.tolerance, _LARGEST_TOLERANCE))

    def early(self, base: Minimiser, base_error: float) -> tuple[str, ...]:
        """Return a notice if the solver of the model stopped visibly before the minimiser.

        Parameters
        ----------
        base : Minimiser
            The minimiser of the objective, as computed.
        base_error : float
            A bound on its distance from A(D).

        Returns
        -------
        tuple[str, ...]
            The notice, or nothing.
        """
        distance = self.distance(base, base_error)
        if distance <= _CONVERGED * (1 + float(np.linalg.norm(base.theta))):
            return ()
        predictors = self.problem.map(_Apart(shift=self.theta - base.theta))
        # (x·(θ − A) of each row, with the rounding of the product and the error of A.)
        longest = self.problem.rows.longest
        slack = (base_error + gamma(len(base.theta) + 2) * distance) * longest
        return (
            f"The solver stopped early: the model is within {upper_text(distance, 3)} of the"
            f" minimiser, and its linear predictors within {upper_text(max(predictors) + slack, 3)}"
            " of those of the minimiser. Shifts and predictions are those of the minimiser; a"
            " smaller tol gives a model that is closer to it.",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Apart:
    """The largest ∣x·shift∣ of the rows of a block."""

    shift: FloatArray

    def __call__(self, block: RowBlock) -> float:
        return float(np.max(np.abs(block.X @ self.shift)))


def read_foreign(model: Any, X: Any, y: Any) -> ForeignModel | None:
    """Return the objective of a scikit-learn model, or None for a type that is not supported.

    Parameters
    ----------
    model : Any
        The fitted model.
    X : Any
        (n, d) the rows that it was fitted on.
    y : Any
        (n,) their labels.

    Returns
    -------
    ForeignModel | None
        The model and its objective on these rows.

    Raises
    ------
    InvalidInput
        If the model is not fitted, or has a setting under which its objective cannot be read.
    """
    is_linear = isinstance(model, LogisticRegression | RidgeClassifier | Ridge)
    if is_linear and hasattr(model, "epsilon"):
        raise InvalidInput(
            f"model: {type(model).__name__} of {type(model).__module__.split('.')[0]} has its"
            " own epsilon, and its noise is unknown here; pass θ with its mechanism."
        )
    # An estimator of expost is no release without a fit; the attributes of others are not known.
    package = type(model).__module__.partition(".")[0]
    if is_linear or (isinstance(model, BaseEstimator) and package in ("expost", "sklearn")):
        try:
            check_is_fitted(model)
        except NotFittedError:
            raise InvalidInput("model: is not fitted; call its fit first.") from None
    if is_linear and np.shape(X)[:1] != np.shape(y)[:1]:
        raise InvalidInput("y: must have one entry for each row of X.")
    if isinstance(model, LogisticRegressionCV):
        raise InvalidInput(
            "model: LogisticRegressionCV is not supported: its C was chosen from the rows. Refit a"
            " LogisticRegression with that C, or attack the model: expost.audit(model, X, y, X_out,"
            " y_out)."
        )
    if isinstance(model, LogisticRegression):
        return _logistic(model, X, y)
    if isinstance(model, RidgeClassifier):
        return replace(_ridge(model, X, signs(y, _fitted_classes(model))), signs=True)
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
    tolerance = float(model.tol) if model.solver in _BY_GRADIENT else 0.0
    foreign = _model(model, X, signs(y, classes), Logistic(), 1 / model.C, model.coef_[0])
    return replace(foreign, tolerance=tolerance)


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
