"""scikit-learn estimators that release one private linear model.

A fitted estimator holds ``release_`` (θ and public constants) and what follows from it: nothing
else of the data, neither the minimiser nor the noise.
"""

import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from expost import _validate
from expost._labels import signs, two_classes
from expost.data import UnitBall
from expost.errors import (
    ClippedRowsWarning,
    InvalidInput,
    PrivacyLeakWarning,
    SeededReleaseWarning,
)
from expost.glm import Problem, minimise
from expost.losses import HuberHinge, Logistic, Loss, Squared
from expost.mechanisms import OutputPerturbation, Release, automatic_regularization
from expost.mechanisms.output import TOLERANCE
from expost.types import FloatArray

__all__ = ["PrivateLinearSVC", "PrivateLogisticRegression", "PrivateRidge"]


class _PrivateLinearModel(BaseEstimator):
    """What the three estimators share: bounds, the minimiser, one release.

    Parameters
    ----------
    epsilon : the privacy budget of this one fit; ``inf`` gives the exact minimiser.
    delta : needed by Gaussian noise, refused by norm-Laplace noise, which is pure.
    mechanism : "output", A(D) + b.
    noise : "laplace" (density ∝ exp(−β∥b∥)) or "gaussian".
    regularization : Λ of the averaged objective, or "auto": from n, d and epsilon alone.
    fit_intercept, intercept_scaling : a constant feature of that length inside the unit ball.
    data_norm : a bound on ∥x∥ known without the data; longer rows are clipped to it. None reads
        it from the data, under PrivacyLeakWarning.
    random_state : None draws the noise from the operating system, which is what a release needs.
        A seed is for simulation: whoever knows it can take the noise off, and it warns.

    Each fit spends ``epsilon`` anew: a grid search over k settings and f folds spends k·f times.
    """

    _loss_name: str

    def _fit(self, X: FloatArray, y: Any, unsupported: dict[str, Any]) -> Self:
        """Minimise, add noise, keep the release."""
        _refuse(unsupported)
        _validate.one_of("mechanism", self.mechanism, ("output",))
        read: list[str] = []
        X, target, classes, loss = self._targets(X, y, read)
        ball = UnitBall(
            data_norm=self._data_norm(X, read),
            fit_intercept=self.fit_intercept,
            intercept_scaling=self.intercept_scaling,
        )
        rows, clipped = ball.rows(X)
        if clipped:
            warnings.warn(
                f"{clipped} rows are longer than data_norm={ball.data_norm:g} and were clipped to"
                " it; give a larger bound if that is too many.",
                ClippedRowsWarning,
                stacklevel=3,
            )
        how = self._mechanism(loss, *rows.shape)
        problem = Problem(
            X=rows, y=target, loss=loss, penalty=np.full(rows.shape[1], how.regularization)
        )
        if how.is_private:
            _ = how.grid  # Refuses before the data is looked at, where no safe grid exists.
        theta = how.release(minimise(problem, tolerance=TOLERANCE), self._rng())
        self._warn_of_leaks(read)
        names = getattr(self, "feature_names_in_", None)
        return self._keep(
            Release(
                theta=theta,
                mechanism=how,
                ball=ball,
                classes=classes,
                feature_names=None if names is None else tuple(str(name) for name in names),
                read_from_data=tuple(read),
                seeded=self.random_state is not None,
            )
        )

    def _mechanism(self, loss: Loss, rows: int, dimension: int) -> OutputPerturbation:
        regularization = self.regularization
        budget: dict[str, Any] = {
            "epsilon": _validate.positive("epsilon", self.epsilon, finite=False),
            "delta": self.delta,
            "noise": _validate.one_of("noise", self.noise, ("laplace", "gaussian")),
            "loss": loss,
            "rows": rows,
            "dimension": dimension,
        }
        if isinstance(regularization, str):
            _validate.one_of("regularization", regularization, ("auto",))
            regularization = automatic_regularization(**budget)
        return OutputPerturbation(
            regularization=_validate.positive("regularization", regularization), **budget
        )

    def _data_norm(self, X: FloatArray, read: list[str]) -> float:
        if self.data_norm is not None:
            return _validate.positive("data_norm", self.data_norm)
        read.append("data_norm (the largest row norm)")
        return UnitBall.largest_norm(X)

    def _rng(self) -> np.random.Generator | None:
        """None, for the operating system's randomness, or a seeded generator that warns."""
        seed = self.random_state
        if seed is None:
            return None
        warnings.warn(
            "random_state is set: the noise can be taken off by whoever knows the seed; leave it"
            " at None for a real release.",
            SeededReleaseWarning,
            stacklevel=4,
        )
        if isinstance(seed, np.random.Generator):
            return seed
        if isinstance(seed, np.random.RandomState):
            return np.random.default_rng(seed.randint(2**31, size=4))
        return np.random.default_rng(_validate.whole("random_state", seed, least=0))

    def _warn_of_leaks(self, read: list[str]) -> None:
        if read:
            warnings.warn(
                f"read from the data, which is not private: {', '.join(read)}; give bounds that"
                " you know without the data.",
                PrivacyLeakWarning,
                stacklevel=4,
            )

    def _keep(self, release: Release) -> Self:
        self.release_ = release
        coef, intercept = release.coefficients
        self.n_features_in_ = len(coef)
        self._shape_coefficients(coef, intercept)
        return self

    def _linear(self, X: Any) -> FloatArray:
        check_is_fitted(self, "release_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        coef, intercept = self.release_.coefficients
        scores: FloatArray = X @ coef + intercept
        return scores

    def save(self, path: str | Path) -> Path:
        """Write model.json: θ and public constants, no pickle."""
        check_is_fitted(self, "release_")
        return self.release_.save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that wrote ``path``."""
        return cls._from_release(Release.load(path))

    @classmethod
    def _from_release(cls, release: Release) -> Self:
        how = release.mechanism
        if how.loss.name != cls._loss_name:
            raise InvalidInput(
                f"model.json holds a model with {how.loss.name} loss: {cls.__name__} needs"
                f" {cls._loss_name}."
            )
        estimator = cls(
            epsilon=how.epsilon,
            delta=how.delta,
            noise=how.noise,
            regularization=how.regularization,
            fit_intercept=release.ball.fit_intercept,
            intercept_scaling=release.ball.intercept_scaling,
            data_norm=release.ball.data_norm,
            **cls._own_parameters(release),
        )
        if release.feature_names is not None:
            estimator.feature_names_in_ = np.array(release.feature_names, dtype=object)
        return estimator._keep(release)


class _PrivateClassifier(ClassifierMixin, _PrivateLinearModel):
    """A classifier of two classes."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any, **unsupported: Any) -> Self:
        """Release one model of these rows, at a cost of ``epsilon``."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        return self._fit(X, y, unsupported)

    def _targets(
        self, X: FloatArray, y: Any, read: list[str]
    ) -> tuple[FloatArray, FloatArray, NDArray[Any], Loss]:
        if self.classes is None:
            read.append("classes (the label set)")
        from sklearn.utils.multiclass import check_classification_targets

        check_classification_targets(y)
        classes = two_classes(y, self.classes)
        return _validate.matrix(X), signs(y, classes), classes, self._loss()

    def _shape_coefficients(self, coef: FloatArray, intercept: float) -> None:
        assert self.release_.classes is not None
        self.classes_ = self.release_.classes
        self.coef_ = coef[None, :]
        self.intercept_ = np.array([intercept])

    def decision_function(self, X: Any) -> FloatArray:
        """x·coef + intercept; > 0 for the second class."""
        return self._linear(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row."""
        scores = self._linear(X)
        labels: NDArray[Any] = self.classes_[(scores > 0).astype(int)]
        return labels


class PrivateLogisticRegression(_PrivateClassifier):
    __doc__ = f"""Logistic regression, released once under differential privacy.

    {_PrivateLinearModel.__doc__}
    classes : the two labels, second one positive; None reads them from the data, and warns.
    """

    _loss_name = "logistic"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        mechanism: str = "output",
        noise: str = "laplace",
        regularization: float | str = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.1,
        data_norm: float | None = None,
        classes: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.noise = noise
        self.regularization = regularization
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.data_norm = data_norm
        self.classes = classes
        self.random_state = random_state

    def _loss(self) -> Loss:
        return Logistic()

    @classmethod
    def _own_parameters(cls, release: Release) -> dict[str, Any]:
        return {"classes": release.classes}

    def predict_proba(self, X: Any) -> FloatArray:
        """σ(decision) for the second class, and what is left for the first."""
        scores = self._linear(X)
        return np.column_stack([expit(-scores), expit(scores)])

    def predict_log_proba(self, X: Any) -> FloatArray:
        """log of :meth:`predict_proba`, without underflow."""
        scores = self._linear(X)
        return -np.logaddexp(0, np.column_stack([scores, -scores]))


class PrivateLinearSVC(_PrivateClassifier):
    __doc__ = f"""A linear support vector classifier (Huber-smoothed hinge), released once.

    {_PrivateLinearModel.__doc__}
    huber_width : h, half the width of the smoothed corner.
    classes : the two labels, second one positive; None reads them from the data, and warns.
    """

    _loss_name = "huber-hinge"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        mechanism: str = "output",
        noise: str = "laplace",
        regularization: float | str = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.1,
        data_norm: float | None = None,
        huber_width: float = 0.5,
        classes: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.noise = noise
        self.regularization = regularization
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.data_norm = data_norm
        self.huber_width = huber_width
        self.classes = classes
        self.random_state = random_state

    def _loss(self) -> Loss:
        return HuberHinge(width=self.huber_width)

    @classmethod
    def _own_parameters(cls, release: Release) -> dict[str, Any]:
        loss = release.mechanism.loss
        assert isinstance(loss, HuberHinge)
        return {"classes": release.classes, "huber_width": loss.width}


class PrivateRidge(RegressorMixin, _PrivateLinearModel):
    __doc__ = f"""Ridge regression, released once under differential privacy.

    {_PrivateLinearModel.__doc__}
    label_bound : a bound on ∣y∣ known without the data; labels past it are clipped. None reads it
        from the data, and warns.
    """

    _loss_name = "squared"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        mechanism: str = "output",
        noise: str = "laplace",
        regularization: float | str = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.1,
        data_norm: float | None = None,
        label_bound: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.noise = noise
        self.regularization = regularization
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.data_norm = data_norm
        self.label_bound = label_bound
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **unsupported: Any) -> Self:
        """Release one model of these rows, at a cost of ``epsilon``."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, y_numeric=True)
        return self._fit(X, y, unsupported)

    def _targets(
        self, X: FloatArray, y: Any, read: list[str]
    ) -> tuple[FloatArray, FloatArray, None, Loss]:
        target = _validate.vector(y)
        if self.label_bound is None:
            read.append("label_bound (the largest label)")
            # Any positive bound serves labels that are all 0.
            bound = float(np.max(np.abs(target))) or 1.0
        else:
            bound = _validate.positive("label_bound", self.label_bound)
        beyond = int(np.count_nonzero(np.abs(target) > bound))
        if beyond:
            warnings.warn(
                f"{beyond} labels are past label_bound={bound:g} and were clipped to it.",
                ClippedRowsWarning,
                stacklevel=4,
            )
        loss = Squared(label_bound=bound)
        return _validate.matrix(X), np.clip(target, -bound, bound), None, loss

    def _shape_coefficients(self, coef: FloatArray, intercept: float) -> None:
        self.coef_ = coef
        self.intercept_ = intercept

    @classmethod
    def _own_parameters(cls, release: Release) -> dict[str, Any]:
        loss = release.mechanism.loss
        assert isinstance(loss, Squared)
        return {"label_bound": loss.label_bound}

    def predict(self, X: Any) -> FloatArray:
        """x·coef + intercept."""
        return self._linear(X)


def _refuse(unsupported: dict[str, Any]) -> None:
    """Weights would change each row's sensitivity, which the noise is calibrated to."""
    if "sample_weight" in unsupported:
        raise InvalidInput(
            "sample_weight: is not supported, since the noise is calibrated to rows of equal"
            " weight 1/n; leave it out."
        )
    if unsupported:
        raise TypeError(f"fit() got unexpected keyword arguments: {', '.join(unsupported)}.")
