"""Gradients of linear models, exactly and without forming them; and which models are linear.

Conventions
-----------
x       a row, with its 1 where there is an intercept; Θ (K, d) one predictor a class, z = Θx.
u       (K,) the derivative of the row's loss in z (K = 1: f′), so that g = u ⊗ x and

            ∥g∥ = ∥u∥∥x∥,    g·V = u·Vx for V (K, d),    g·g' = (u·u')(x·x').

S       what the members' gradients sum to at a fitted model, −(penalty)·Θ: −Θ/C where scikit-learn
        minimises C·Σ ℓ + ½∥Θ∥², −αΘ for ridge regression, −nΛθ − b for ours with b unknown.
"""

from dataclasses import dataclass
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
from expost.attacks.gradients import gradient_norm, gradient_ratio
from expost.errors import InvalidInput
from expost.glm import Objective
from expost.labels import class_codes, signs
from expost.losses import Logistic, Loss, Softmax, Squared
from expost.release import Release
from expost.types import FloatArray, IntArray

__all__ = ["LinearGradients", "gradient_scores", "linear_gradients"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearGradients:
    """g = u ⊗ x of n rows.

    ``features``        (n, d) x.  ``residuals``  (n, K) u.
    ``total``           (K·d,) S, class by class; None where it is not known.
    ``noise_variance``  of each coordinate of the noise on S.
    ``members``         how many rows the model was trained on; None where it does not say.
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
        """From plain arrays: θ as :mod:`expost.glm` and :mod:`expost.losses` have it.

        ``regularization``  Λ and ``members`` n of the averaged objective that θ minimises, where
                            that is known.
        """
        features = _checks.matrix(X, min_rows=1)
        target = _checks.vector(targets, name="targets", length=len(features))
        found = _checks.vector(theta, name="theta")
        if len(found) % features.shape[1]:
            raise InvalidInput(
                f"theta: must hold a number for each of {features.shape[1]} columns."
            )
        total = None
        if regularization is not None:
            n = _checks.whole("members", members, least=1)
            total = -n * _checks.regularization(regularization) * found
        predictors = features @ found.reshape(-1, features.shape[1]).T
        z = predictors if isinstance(loss, Softmax) else predictors[:, 0]
        return cls(features=features, residuals=_columns(loss.slope(z, target)), total=total)

    @property
    def rows(self) -> int:
        """n."""
        return len(self.features)

    @property
    def dimension(self) -> int:
        """D = K·d."""
        return int(self.features.shape[1] * self.residuals.shape[1])

    def squares(self) -> FloatArray:
        """(n,) ∥u∥²∥x∥²."""
        found: FloatArray = _squares(self.residuals) * _squares(self.features)
        return found

    def mean(self) -> FloatArray:
        """(D,) the mean gradient."""
        found: FloatArray = (self.residuals.T @ self.features).ravel() / self.rows
        return found

    def along(self, direction: FloatArray) -> FloatArray:
        """(n,) u·Vx."""
        matrix = direction.reshape(self.residuals.shape[1], -1)
        found: FloatArray = np.einsum("ij,ij->i", self.residuals, self.features @ matrix.T)
        return found

    def take(self, rows: IntArray) -> "LinearGradients":
        """The gradients of some of the rows."""
        return LinearGradients(features=self.features[rows], residuals=self.residuals[rows])

    def gram(self, others: "LinearGradients") -> FloatArray:
        """(n, k) (u·u')(x·x')."""
        found: FloatArray = self.residuals @ others.residuals.T
        found *= self.features @ others.features.T
        return found


def gradient_scores(
    model: Any,
    X: Any,
    y: Any,
    *,
    members: int,
    population: tuple[Any, Any] | None = None,
    trained_on: int | None = None,
) -> dict[str, FloatArray]:
    """The white-box scores of a linear model's rows, by name, for ``Evidence.extras``.

    ``members``      how many of these rows the target was trained on.
    ``population``   (X, y) of rows that surely were not. None: she who attacks goes by the rows in
                     question alone, and knows that ``members`` of them are (see
                     :func:`~expost.attacks.gradients.gradient_ratio`).
    ``trained_on``   how many rows the target was trained on in all; None: a release says so, and
                     of any other model it is ``members``.

    {} for a model that is not linear; ``gradient-norm``; and ``gradient-inner-product`` where it is
    known what the model minimises. A model that has a method of this name speaks for itself (that
    of a torch module does: :class:`expost.torch.TorchModel`).
    """
    own = getattr(model, "gradient_scores", None)
    if callable(own):
        told: dict[str, FloatArray] = own(
            X, y, members=members, population=population, trained_on=trained_on
        )
        return told
    rows = linear_gradients(model, X, y)
    if rows is None:
        return {}
    scores = {"gradient-norm": gradient_norm(rows)}
    outside = None if population is None else linear_gradients(model, *population)
    if rows.total is None or (outside is None and not members < rows.rows):
        return scores
    scores["gradient-inner-product"] = gradient_ratio(
        rows,
        outside,
        members=trained_on or rows.members or members,
        within=members,
        total=rows.total,
        noise_variance=rows.noise_variance,
    )
    return scores


def linear_gradients(model: Any, X: Any, y: Any) -> LinearGradients | None:
    """The gradients of (X, y) at a fitted linear model, or None for a model that is not one.

    Taken: a release (model.json, its path, an expost estimator), scikit-learn's LogisticRegression,
    Ridge, RidgeClassifier, LinearRegression and LinearSVC, and a Pipeline that ends in one of them
    (gradients are then in its coefficients).
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
    how = release.mechanism
    found = LinearGradients.of(
        problem.held.X,
        problem.held.y,
        theta,
        problem.loss,
        regularization=how.total_regularization,
        members=how.rows,
    )
    variance = 0.0
    if how.is_private:
        curved = _mean_square_curvature(problem, theta, how.total_regularization)
        variance = how.gradient_variance(curved)
    return LinearGradients(
        features=found.features,
        residuals=found.residuals,
        total=found.total,
        noise_variance=variance,
        members=how.rows,
    )


def _mean_square_curvature(objective: Objective, theta: FloatArray, regularization: float) -> float:
    """tr H²/d of H = (1/n) Σ∇²ℓ + ΛI: noise that is even in θ is taken to be so in S."""
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
    """A scikit-learn model's rows (with their 1), predictors and S."""

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
    """λ of the sum Σℓ + (λ/2)∥Θ∥² that the model minimises, or None where it minimises another."""
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
        # LogisticRegressionCV chose its own, one for each class.
        return 1 / float(model.C) if hasattr(model, "C") else None
    if isinstance(model, LinearSVC):
        # At the hinge's corner the solver takes some slope between 0 and 1, we do not know which.
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
    """(n, K) ±1, or (n, 1) for two classes."""
    if len(classes) == 2:
        return _columns(signs(y, classes))
    codes = class_codes(y, classes)
    return np.where(codes[:, None] == np.arange(len(classes)), 1.0, -1.0)


def _squared_slope(z: FloatArray, y: FloatArray) -> FloatArray:
    """Of (z − y)²/2."""
    return Squared(label_bound=1.0).slope(z, y)


def _hinge_slope(model: LinearSVC) -> Any:
    """Of max(0, 1 − yz), or of its square."""
    squared = model.loss == "squared_hinge"

    def slope(z: FloatArray, y: FloatArray) -> FloatArray:
        gap = np.maximum(1 - y * z, 0.0)
        found: FloatArray = -y * (2 * gap if squared else (gap > 0).astype(np.float64))
        return found

    return slope


def _columns(values: NDArray[Any]) -> NDArray[Any]:
    return values[:, None] if values.ndim == 1 else values


def _squares(rows: FloatArray) -> FloatArray:
    found: FloatArray = np.einsum("ij,ij->i", rows, rows)
    return found
