"""Targets: the model under attack, and how to train another one like it.

    target = target_of(model, y)             # any of the models below, y all labels of the game
    target.signals(X, y)                     # what the attacker sees of these rows
    target.trained(X_half, y_half, seed=1)   # a reference: trained like the target, on other rows

====================================  ========================================================
model.json, its path or its Release,  used as it is and never redrawn; references come from the
a fitted expost estimator             same mechanism with its constants, their own n, and a
                                      seed: simulations, not releases
a scikit-learn estimator, Pipeline,   evaluated by predict_proba, else decision_function, else,
search, fitted or not                 for a regression, predict; references are refitted clones
a saved model, its path               loaded if that is safe (expost.auditing.model_files), and
                                      evaluated; boosters and ONNX cannot be trained again
train(X, y, seed) -> predict_proba    any training function (torch: see expost.torch)
predict_proba, with ``train=``        a model that such a function has trained
====================================  ========================================================

``seed`` sets every ``random_state`` of an estimator, nested ones included, so that references
differ from each other and are reproducible.
"""

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.validation import check_is_fitted

from expost import _checks
from expost.auditing.model_files import load_model
from expost.auditing.signals import Labels, Signals, count_rows, probabilities_of_scores
from expost.auditing.training import (
    fingerprint,
    prototype,
    seeded,
    without_addresses,
    without_warnings,
)
from expost.errors import ExpostError, InvalidInput
from expost.files.model_format import model_format
from expost.mechanisms import Mechanism
from expost.release import Release
from expost.types import FloatArray

__all__ = [
    "EstimatorTarget",
    "FunctionTarget",
    "ReleaseTarget",
    "Signals",
    "Target",
    "target_of",
]

# The longest description of an estimator, in characters.
_LONGEST = 10**6


class Target(Protocol):
    """A model, or a method to train one.

    The law: ``trained`` depends on its arguments alone, and nothing changes a target.
    """

    @property
    def name(self) -> str:
        """The name in errors: ``the target``, ``reference 7``."""

    @property
    def labels(self) -> Labels:
        """The labels of the game."""

    @property
    def is_fitted(self) -> bool:
        """Whether there is a model to evaluate."""

    @property
    def can_train(self) -> bool:
        """Whether others like it can be trained."""

    @property
    def description(self) -> str:
        """One line on how models like it are trained."""

    @property
    def untrained(self) -> "Target":
        """The same without its model, if it can be trained: what workers receive."""

    def signals(self, X: Any, y: Any) -> Signals:
        """Return what the attacker sees of these rows with these labels.

        Parameters
        ----------
        X, y : Any
            The rows and their labels.

        Returns
        -------
        Signals
            The confidences of the model in the labels, and the white-box signals if it has any.
        """

    def trained(self, X: Any, y: Any, seed: int, *, name: str = "a reference") -> "Target":
        """Train a model like this one on these rows alone.

        Parameters
        ----------
        X, y : Any
            The rows and their labels.
        seed : int
            The seed of every draw of the training.
        name : str, default="a reference"
            The model's name in error messages.

        Returns
        -------
        Target
            The new model as a target.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatorTarget:
    """An object of scikit-learn's interface.

    Parameters
    ----------
    prototype : Any
        What is cloned and fitted; None if it cannot be cloned.
    """

    estimator: Any
    prototype: Any
    labels: Labels
    name: str = "the target"

    @property
    def is_fitted(self) -> bool:
        """Whether the estimator is fitted."""
        return _is_fitted(self.estimator)

    @property
    def can_train(self) -> bool:
        """Whether it can be cloned and fitted."""
        return self.prototype is not None

    @property
    def untrained(self) -> "EstimatorTarget":
        """The prototype alone."""
        return replace(self, estimator=self.prototype) if self.can_train else self

    @property
    def description(self) -> str:
        """The class, and every parameter that is not a default; without random states."""
        model = self.prototype if self.can_train else self.estimator
        # A model that was loaded from a file describes itself.
        own = getattr(model, "description", None)
        if isinstance(own, str):
            return own
        whole = isinstance(model, BaseEstimator)
        representation = model.__repr__(N_CHAR_MAX=_LONGEST) if whole else repr(model)
        text = without_addresses(" ".join(representation.split()))
        module = _public_module(type(model))
        return f"{module}.{text}" if text.startswith(type(model).__name__) else f"{module}: {text}"

    def signals(self, X: Any, y: Any) -> Signals:
        """Return what the attacker sees of these rows with these labels."""
        model = self.estimator
        if not self.is_fitted:
            raise InvalidInput(f"{self.name}: {type(model).__name__} is not fitted; call its fit.")
        with _evaluating(self.name):
            if self.labels.classes is None:
                return self.labels.of_predictions(model.predict, X, y, self.name)
            return self.labels.of_probabilities(self._evaluate, X, y, self.name)

    def _evaluate(self, X: Any) -> tuple[Any, Any]:
        model = self.estimator
        if hasattr(model, "predict_proba"):
            return model.predict_proba(X), model.classes_
        scores = model.decision_function(X)
        return probabilities_of_scores(scores, name=self.name), model.classes_

    def trained(self, X: Any, y: Any, seed: int, *, name: str = "a reference") -> "EstimatorTarget":
        """Return a clone, seeded and fitted to these rows."""
        if not self.can_train:
            raise InvalidInput(
                f"model: {type(self.estimator).__name__} cannot be cloned by scikit-learn and"
                " fitted; pass train=, a function (X, y, seed) -> predict_proba."
            )
        with without_warnings(), _training(name):
            fitted = seeded(clone(self.prototype), seed)
            fitted.fit(X, y)
        return replace(self, estimator=fitted, name=name)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleaseTarget:
    """A model that expost released, as it is in model.json."""

    release: Release
    labels: Labels
    name: str = "the target"

    @property
    def is_fitted(self) -> bool:
        """True: it was released."""
        return True

    @property
    def can_train(self) -> bool:
        """True: model.json describes the mechanism."""
        return True

    @property
    def untrained(self) -> "ReleaseTarget":
        """Itself: the mechanism is stored with θ."""
        return self

    @property
    def description(self) -> str:
        """The mechanism, its privacy parameters, and how rows are mapped into the unit ball."""
        fields = self.release.to_json()
        kept = ("mechanism", "loss", "n", "regularization", "unit_ball", "classes")
        return "expost release: " + ", ".join(f"{name}={fields[name]!r}" for name in kept)

    def signals(self, X: Any, y: Any) -> Signals:
        """Return what the attacker sees of these rows with these labels."""
        if self.labels.classes is None:
            return self.labels.of_predictions(self._linear, X, y, self.name)
        return self.labels.of_probabilities(self._evaluate, X, y, self.name)

    def _evaluate(self, X: Any) -> tuple[FloatArray, Any]:
        """Return probabilities and classes; one score is that of the release's second class."""
        scores = probabilities_of_scores(self._linear(X), name=self.name)
        return scores, self.release.classes

    def _linear(self, X: Any) -> FloatArray:
        """Return x·coef + intercept, as the estimators compute it."""
        names, expected = getattr(X, "columns", None), self.release.feature_names
        if names is not None and expected is not None and tuple(map(str, names)) != expected:
            raise InvalidInput(
                "X: its columns are not those of the model, in their order; the model was trained"
                f" with {', '.join(expected)}."
            )
        coef, intercept = self.release.coefficients
        rows = _checks.matrix(X, min_rows=1)
        if rows.shape[1] != coef.shape[-1]:
            raise InvalidInput(
                f"X has {rows.shape[1]} columns: the model was made with {coef.shape[-1]}."
            )
        scores: FloatArray = rows @ coef.T + intercept
        return scores

    def trained(self, X: Any, y: Any, seed: int, *, name: str = "a reference") -> "ReleaseTarget":
        """Run the same mechanism on these rows with noise from ``seed``: a simulation.

        ε, Λ, the ball and the classes are the release's; n, and with it the noise, is that of the
        rows. The model is not saved and does not count against a privacy budget.
        """
        mechanism = self.release.mechanism.with_constants(rows=count_rows(X))
        with _training(name):
            theta = self._simulated(mechanism, X, y, np.random.default_rng(seed))
        drawn = replace(self.release, mechanism=mechanism, theta=theta, seeded=True)
        return replace(self, release=drawn, name=name)

    def _simulated(
        self, mechanism: Mechanism, X: Any, y: Any, rng: np.random.Generator
    ) -> FloatArray:
        problem, penalty = self.release.objective(X, y), mechanism.total_regularization
        # The regularization that objective perturbation adds to Λ depends on n.
        problem = replace(problem, penalty=np.full(mechanism.dimension, penalty))
        return mechanism.release(problem, rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionTarget:
    """A training function, ``train(X, y, seed)``, and optionally a model that it has trained.

    It returns a function of X: (n, K) probabilities of the sorted classes, or (n,) predictions of a
    regression; or an object with ``predict_proba`` (and ``classes_``).
    """

    train: Callable[[Any, Any, int], Any] | None
    model: Any
    labels: Labels
    name: str = "the target"

    @property
    def is_fitted(self) -> bool:
        """Whether there is a model to evaluate."""
        return self.model is not None

    @property
    def can_train(self) -> bool:
        """Whether there is a training function."""
        return self.train is not None

    @property
    def untrained(self) -> "FunctionTarget":
        """The training function alone."""
        return replace(self, model=None) if self.can_train else self

    @property
    def description(self) -> str:
        """The function's name, and the fingerprint of its code."""
        own = getattr(self.model, "description", None)
        if isinstance(own, str):
            return own
        function = self.train if self.train is not None else self.model
        named = function if hasattr(function, "__qualname__") else type(function)
        name = f"{named.__module__}.{named.__qualname__}"
        return f"training function {name} ({fingerprint(function)})"

    def signals(self, X: Any, y: Any) -> Signals:
        """Return what the attacker sees of these rows with these labels."""
        if self.model is None:
            raise InvalidInput(f"{self.name}: is a training function; train a model first.")
        with _evaluating(self.name):
            if self.labels.classes is None:
                predict = getattr(self.model, "predict", self.model)
                return self.labels.of_predictions(predict, X, y, self.name)
            evaluate = getattr(self.model, "predict_proba", self.model)
            known = getattr(self.model, "classes_", self.labels.classes)
            return self.labels.of_probabilities(
                lambda part: (evaluate(part), known), X, y, self.name
            )

    def trained(self, X: Any, y: Any, seed: int, *, name: str = "a reference") -> "FunctionTarget":
        """Train a model on these rows."""
        if self.train is None:
            raise InvalidInput(
                "model: answers, but cannot be trained again; pass train=, a function (X, y, seed)"
                " -> predict_proba."
            )
        with _training(name):
            model = self.train(X, y, seed)
        if not callable(model) and not hasattr(model, "predict_proba"):
            raise InvalidInput(
                f"{name}: its training returned a {type(model).__name__}; must return a function of"
                " X, or an object with predict_proba."
            )
        return replace(self, model=model, name=name)


def target_of(
    model: Any,
    y: Any,
    *,
    train: Callable[[Any, Any, int], Any] | None = None,
    regression: bool | None = None,
) -> Target:
    """Return the target of an attack on ``model``.

    Parameters
    ----------
    model : Any
        What is attacked, or what trains it.
    y : Any
        All labels of the game, with those of the population.
    train : callable, optional
        For a model that is a function or has no ``fit``: how others like it are trained.
    regression : bool, optional
        Whether labels are numbers to be predicted; None: decided by the estimator, and False for a
        function.

    Returns
    -------
    Target

    Raises
    ------
    InvalidInput
        If the model has no probabilities, scores or predictions that an attack can use.
    """
    if isinstance(model, str | Path):
        model = _loaded(model)
    release = model if isinstance(model, Release) else getattr(model, "release_", None)
    if isinstance(release, Release):
        if release.classes is None:
            return ReleaseTarget(release=release, labels=Labels.of_numbers(y))
        return ReleaseTarget(release=release, labels=Labels.of_classes(y, release.classes))
    if isinstance(model, type):
        raise InvalidInput(f"model={model.__name__}: is a class; pass an instance of it.")
    if train is not None and not callable(train):
        raise InvalidInput(f"train={train!r}: must be a function (X, y, seed) -> predict_proba.")
    if train is None and (hasattr(model, "fit") or not callable(model)):
        return _estimator_target(model, y, regression)
    if train is None and _is_torch(model):
        raise InvalidInput(
            "model: is a torch module; pass its training function as train=, or use"
            " expost.torch.torch_target."
        )
    if regression is None:
        regression = bool(getattr(model, "predicts_numbers", False))
    labels = Labels.of_numbers(y) if regression else _classes_of(y, model)
    if train is None:
        return FunctionTarget(train=model, model=None, labels=labels)
    return FunctionTarget(train=train, model=model, labels=labels)


def _loaded(path: str | Path) -> Any:
    """Return the model in a file: a release, or a saved model of another library."""
    kind = model_format(path)
    if kind is None or not kind.is_foreign:
        return Release.load(path)
    return load_model(path).answering()


def _estimator_target(model: Any, y: Any, regression: bool | None) -> EstimatorTarget:
    kind = type(model).__name__
    answers = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    numbers = _predicts_numbers(model) if regression is None else regression
    if not (hasattr(model, "predict") if numbers else answers):
        raise InvalidInput(
            f"model: {kind} has neither predict_proba nor decision_function, nor is it a regressor;"
            " wrap it in sklearn.calibration.CalibratedClassifierCV, or pass a training function."
        )
    if getattr(model, "is_assumed", False) and regression is None and len(np.unique(y)) <= 2:
        raise InvalidInput(
            "model: has one output and does not state what it is, and the labels have two values;"
            " name them in the order NO,YES with --classes (classes=) if the output is the"
            " probability of the second, or pass regression=True in Python."
        )
    known = None
    if not numbers and _is_fitted(model):
        known = getattr(model, "classes_", None)
        if known is None:
            raise InvalidInput(f"model: {kind} has no classes_; pass its predict_proba and train=.")
    labels = Labels.of_numbers(y) if numbers else Labels.of_classes(y, known)
    return EstimatorTarget(estimator=model, prototype=prototype(model), labels=labels)


def _predicts_numbers(model: Any) -> bool:
    if hasattr(model, "predicts_numbers"):
        return bool(model.predicts_numbers)
    try:
        # Only estimators of scikit-learn have tags: 1.7 warns about others, later versions raise.
        return hasattr(model, "__sklearn_tags__") and bool(is_regressor(model))
    except (AttributeError, TypeError):
        return False


def _classes_of(y: Any, model: Any) -> Labels:
    labels = Labels.of_classes(y, getattr(model, "classes_", None))
    assert labels.classes is not None
    if labels.classes.dtype.kind == "f" and np.any(labels.classes % 1 != 0):
        raise InvalidInput("y: holds fractions, which are no classes; pass regression=True.")
    return labels


def _public_module(kind: type) -> str:
    """Return the module to import a class from: sklearn.tree, not sklearn.tree._classes."""
    public = kind.__module__.partition("._")[0]
    is_there = getattr(sys.modules.get(public), kind.__name__, None) is kind
    return public if is_there else kind.__module__


def _is_fitted(model: Any) -> bool:
    if not hasattr(model, "fit"):
        return True
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    except (AttributeError, TypeError):
        return any(name.endswith("_") and not name.startswith("_") for name in vars(model))
    return True


def _is_torch(model: Any) -> bool:
    return any(base.__module__.partition(".")[0] == "torch" for base in type(model).__mro__)


@contextmanager
def _training(name: str) -> Iterator[None]:
    """Raise errors of a training as InvalidInput, with the model's name and the line of code.

    The message of the error is not repeated, because it may quote a cell of the data; messages
    about parameters do not.
    """
    try:
        yield
    except ExpostError:
        raise
    except InvalidParameterError as error:
        raise InvalidInput(f"{name}: could not be trained: {error}") from None
    # Code of the user or of a library runs here: it may raise anything.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{name}: could not be trained (its fit raised {_raised(error)}). The model must accept"
            " rows like these, and a random part of them in which some class may have few rows."
        ) from None


@contextmanager
def _evaluating(name: str) -> Iterator[None]:
    """Raise errors of an evaluation as InvalidInput, with the model's name and the line."""
    try:
        yield
    except ExpostError:
        raise
    # As above.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{name}: could not be evaluated (it raised {_raised(error)}). The model must accept"
            " every row in question, with the columns it was trained on, and return a probability"
            " for every class."
        ) from None


def _raised(error: Exception) -> str:
    """Return the type of an error, and the line that raised it."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{type(error).__name__} in {Path(frame.f_code.co_filename).name}, line {line}"
