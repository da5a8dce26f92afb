"""Gradients of linear models: exact, and never formed.

Conventions
-----------
With x a row (and its 1 if there is an intercept), Θ (K, d) one predictor per class, z = Θx and
u (K,) the derivative of the row's loss in z (K = 1: f′), a row's gradient is g = u ⊗ x and

    ∥g∥ = ∥u∥∥x∥,    g·V = u·Vx for V (K, d),    g·g' = (u·u')(x·x').

At a fitted model S = −(penalty)·Θ: −Θ/C where scikit-learn minimises C·Σ ℓ + ½∥Θ∥², −αΘ for ridge
regression, −nΛθ − b for an expost model with b unknown. :mod:`expost.auditing.attacks.gradients`
defines S and the scores.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
)
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from expost import _checks
from expost.auditing.attacks.gradients import (
    GRADIENT_INNER_PRODUCT,
    GRADIENT_NORM,
    gradient_norm,
    gradient_ratio,
)
from expost.errors import InvalidInput
from expost.glm import Objective
from expost.labels import class_codes, signs
from expost.losses import Logistic, Loss, Softmax, Squared
from expost.release import Release
from expost.types import FloatArray, IntArray

__all__ = ["LinearGradients", "gradient_scores", "linear_gradients"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearGradients:
    """The gradients g = u ⊗ x of n rows.

    Parameters
    ----------
    features : FloatArray
        (n, d) x.
    residuals : FloatArray
        (n, K) u.
    total : FloatArray, optional
        (K·d,) S, class by class; None where it is not known.
    noise_variance : float, default=0.0
        The variance of each coordinate of the noise on S.
    members : int, optional
        The number of rows the model was trained on; None if unknown.
    """

    features: FloatArray
    residuals: FloatArray
    total: FloatArray | None = None
    noise_variance: float = 0.0
    members: int | None = None

    def __post_init__(self) -> None:
        if self.residuals.ndim != 2 or len(self.residuals) != len(self.features):
            raise InvalidInput("residuals: must hold a row for each row of the features.")
        if self.total is not None and self.total.shape != (self.dimension,):
            raise InvalidInput(f"total: must hold {self.dimension} numbers.")

    @classmethod
    def of(
        cls,
        X: Any,
        targets: Any,
        theta: Any,
        loss: Loss | Softmax,
        *,
        regularization: float | None = None,
        members: int | None = None,
    ) -> "LinearGradients":
        """Return the gradients of plain arrays, θ as in :mod:`expost.glm`.

        ``regularization`` Λ and ``members`` n are those of the averaged objective that θ minimises;
        None if unknown.
        """
        features = _checks.matrix(X, min_rows=1)
        target = _checks.vector(targets, name="targets", length=len(features))
        parameters = _checks.vector(theta, name="theta")
        if len(parameters) % features.shape[1]:
            raise InvalidInput(
                f"theta: must hold a number for each of {features.shape[1]} columns."
            )
        total = None
        if regularization is not None:
            n = _checks.integer("members", members, least=1)
            total = -n * _checks.regularization(regularization) * parameters
        predictors = features @ parameters.reshape(-1, features.shape[1]).T
        z = predictors if isinstance(loss, Softmax) else predictors[:, 0]
        return cls(features=features, residuals=_columns(loss.slope(z, target)), total=total)

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return len(self.features)

    @property
    def dimension(self) -> int:
        """The number of parameters D = K·d."""
        return int(self.features.shape[1] * self.residuals.shape[1])

    def squares(self) -> FloatArray:
        """Return (n,) ∥u∥²∥x∥²."""
        squares: FloatArray = _squares(self.residuals) * _squares(self.features)
        return squares

    def mean(self) -> FloatArray:
        """Return (D,) the mean gradient."""
        mean: FloatArray = (self.residuals.T @ self.features).ravel() / self.rows
        return mean

    def along(self, direction: FloatArray) -> FloatArray:
        """Return (n,) u·Vx."""
        matrix = direction.reshape(self.residuals.shape[1], -1)
        products: FloatArray = np.einsum("ij,ij->i", self.residuals, self.features @ matrix.T)
        return products

    def take(self, rows: IntArray) -> "LinearGradients":
        """Return the gradients of some of the rows."""
        return LinearGradients(features=self.features[rows], residuals=self.residuals[rows])

    def gram(self, others: "LinearGradients") -> FloatArray:
        """Return (n, k) (u·u')(x·x')."""
        gram: FloatArray = self.residuals @ others.residuals.T
        gram *= self.features @ others.features.T
        return gram


def gradient_scores(
    model: Any,
    X: Any,
    y: Any,
    *,
    members: int,
    population: tuple[Any, Any] | None = None,
    trained_on: int | None = None,
) -> dict[str, FloatArray]:
    """Return the white-box scores of a linear model's rows, by name, for ``Evidence.extras``.

    Parameters
    ----------
    members : int
        The number of these rows that the target was trained on.
    population : tuple[Any, Any], optional
        (X, y) of rows that were certainly not trained on. None: the attack uses the rows in
        question alone, and that ``members`` of them are members (see
        :func:`~expost.auditing.attacks.gradients.gradient_ratio`).
    trained_on : int, optional
        The number of rows that the target was trained on in total; None: that of a release, and
        ``members`` for any other model.

    Returns
    -------
    dict
        ``gradient-norm``, and ``gradient-inner-product`` if the model's objective is known; empty
        for a model that is not linear. A model with a method of this name computes its own scores
        (:class:`expost.torch.TorchModel`).
    """
    members = _checks.integer("members", members, least=1)
    own = getattr(model, "gradient_scores", None)
    if callable(own):
        own_scores: dict[str, FloatArray] = own(
            X, y, members=members, population=population, trained_on=trained_on
        )
        return own_scores
    rows = linear_gradients(model, X, y)
    if rows is None:
        return {}
    scores = {GRADIENT_NORM.name: gradient_norm(rows)}
    outside = None if population is None else linear_gradients(model, *population)
    if rows.total is None or (outside is None and not members < rows.rows):
        return scores
    scores[GRADIENT_INNER_PRODUCT.name] = gradient_ratio(
        rows,
        outside,
        members=trained_on or rows.members or members,
        within=members,
        total=rows.total,
        noise_variance=rows.noise_variance,
    )
    return scores


def linear_gradients(model: Any, X: Any, y: Any) -> LinearGradients | None:
    """Return the gradients of (X, y) at a fitted linear model, or None for any other model.

    Linear are a release (model.json, its path, an expost estimator), scikit-learn's
    LogisticRegression, Ridge, RidgeClassifier, LinearRegression and LinearSVC, and a Pipeline that
    ends in one of them (gradients are then those of its coefficients).
    """
    if isinstance(model, Pipeline):
        if len(model) > 1:
            X = model[:-1].transform(X)
            X = X.toarray() if hasattr(X, "toarray") else X
        return linear_gradients(model[-1], X, y)
    if isinstance(model, str | Path):
        model = Release.load(model)
    release = model if isinstance(model, Release) else getattr(model, "release_", None)
    if isinstance(release, Release):
        return _released(release, X, y)
    if isinstance(model, LogisticRegression):
        return _logistic(model, X, y)
    if isinstance(model, LinearSVC) and model.multi_class != "ovr":
        return None
    if isinstance(model, RidgeClassifier | LinearSVC):
        slope = _squared_slope if isinstance(model, RidgeClassifier) else _hinge_slope(model)
        rows = _fitted(model, X)
        target = _one_against_rest(y, model.classes_)
        return rows.result(slope(rows.predictors, target))
    if isinstance(model, Ridge | LinearRegression):
        rows = _fitted(model, X)
        target = _checks.matrix(_columns(np.asarray(y)), name="y", min_rows=1)
        if target.shape != rows.predictors.shape:
            raise InvalidInput(f"y: must have {rows.predictors.shape[1]} value(s) for each row.")
        return rows.result(_squared_slope(rows.predictors, target))
    return None


def _released(release: Release, X: Any, y: Any) -> LinearGradients:
    problem, theta = release.objective(X, y), release.theta
    mechanism = release.mechanism
    gradients = LinearGradients.of(
        problem.held.X,
        problem.held.y,
        theta,
        problem.loss,
        regularization=mechanism.total_regularization,
        members=mechanism.rows,
    )
    variance = 0.0
    if mechanism.is_private:
        curved = _mean_square_curvature(problem, theta, mechanism.total_regularization)
        variance = mechanism.gradient_variance(curved)
    return replace(gradients, noise_variance=variance, members=mechanism.rows)


def _mean_square_curvature(objective: Objective, theta: FloatArray, regularization: float) -> float:
    """Return tr H²/d of H = (1/n) Σ∇²ℓ + ΛI: noise isotropic in θ is assumed isotropic in S."""
    hessian = regularization * np.eye(objective.dimension)
    for block in objective.held.blocks():
        X, y = objective.held.X[block], objective.held.y[block]
        hessian += objective.constants.at(X, y, theta).curvature_sum(X) / objective.count
    return float(np.sum(hessian**2)) / len(hessian)


def _logistic(model: LogisticRegression, X: Any, y: Any) -> LinearGradients:
    rows = _fitted(model, X)
    if len(model.classes_) == 2:
        slope = Logistic().slope(rows.predictors[:, 0], signs(y, model.classes_))
    else:
        codes = class_codes(y, model.classes_)
        slope = Softmax(classes=len(model.classes_)).slope(rows.predictors, codes)
    return rows.result(slope)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fitted:
    """The rows (with their 1), predictors and S of a scikit-learn model."""

    features: FloatArray
    predictors: FloatArray
    total: FloatArray | None

    def result(self, slope: FloatArray) -> LinearGradients:
        return LinearGradients(features=self.features, residuals=_columns(slope), total=self.total)


def _fitted(model: Any, X: Any) -> _Fitted:
    if not hasattr(model, "coef_"):
        raise InvalidInput(f"model: {type(model).__name__} is not fitted; call its fit first.")
    features = _checks.matrix(X, min_rows=1)
    weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    if features.shape[1] != weights.shape[1]:
        raise InvalidInput(
            f"X has {features.shape[1]} columns: the model was fitted on {weights.shape[1]}."
        )
    penalty = _penalty(model)
    total = None if penalty is None else -penalty * weights
    if model.fit_intercept:
        ones, offset = _intercept_column(model), np.reshape(model.intercept_, (-1, 1)).astype(float)
        features = np.column_stack([features, np.full(len(features), ones)])
        weights = np.column_stack([weights, offset / ones])
        if total is not None:
            # liblinear penalises its intercept as one more column; the other solvers do not.
            total = np.column_stack([total, -_intercept_penalty(model) * weights[:, -1:]])
    return _Fitted(
        features=features,
        predictors=features @ weights.T,
        total=None if total is None else total.ravel(),
    )


def _penalty(model: Any) -> float | None:
    """Return λ of the sum Σℓ + (λ/2)∥Θ∥² that the model minimises; None for another objective."""
    if getattr(model, "class_weight", None) is not None or getattr(model, "positive", False):
        return None
    if isinstance(model, LinearRegression):
        return 0.0
    if isinstance(model, LogisticRegression):
        kind = getattr(model, "penalty", "l2")
        if getattr(model, "l1_ratio", 0) not in (None, 0) or kind in ("l1", "elasticnet"):
            return None
        if kind is None:
            return 0.0
        # LogisticRegressionCV has chosen one for each class.
        return 1 / float(model.C) if hasattr(model, "C") else None
    if isinstance(model, LinearSVC):
        # At the kink of the hinge the solver's slope, between 0 and 1, is unknown.
        smooth = model.loss == "squared_hinge" and model.penalty == "l2"
        return 1 / float(model.C) if smooth else None
    alpha = np.ravel(model.alpha)
    return float(alpha[0]) if len(alpha) == 1 else None


def _is_liblinear(model: Any) -> bool:
    return isinstance(model, LinearSVC) or getattr(model, "solver", None) == "liblinear"


def _intercept_column(model: Any) -> float:
    return float(model.intercept_scaling) if _is_liblinear(model) else 1.0


def _intercept_penalty(model: Any) -> float:
    return 1 / float(model.C) if _is_liblinear(model) else 0.0


def _one_against_rest(y: Any, classes: NDArray[Any]) -> FloatArray:
    """Return (n, K) ±1, or (n, 1) for two classes."""
    if len(classes) == 2:
        return _columns(signs(y, classes))
    codes = class_codes(y, classes)
    return np.where(codes[:, None] == np.arange(len(classes)), 1.0, -1.0)


def _squared_slope(z: FloatArray, y: FloatArray) -> FloatArray:
    """Return the derivative of (z − y)²/2."""
    return Squared(label_bound=1.0).slope(z, y)


def _hinge_slope(model: LinearSVC) -> Any:
    """Return the derivative of max(0, 1 − yz), or of its square."""
    squared = model.loss == "squared_hinge"

    def slope(z: FloatArray, y: FloatArray) -> FloatArray:
        gap = np.maximum(1 - y * z, 0.0)
        derivative: FloatArray = -y * (2 * gap if squared else (gap > 0).astype(np.float64))
        return derivative

    return slope


def _columns(values: NDArray[Any]) -> NDArray[Any]:
    return values[:, None] if values.ndim == 1 else values


def _squares(rows: FloatArray) -> FloatArray:
    squares: FloatArray = np.einsum("ij,ij->i", rows, rows)
    return squares
