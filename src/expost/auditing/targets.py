"""What is attacked, and what trains another like it.

    target = target_of(model, y)             # any of the models below, y all labels of the game
    target.signals(X, y)                     # what the attacker sees of these rows
    target.trained(X_half, y_half, seed=1)   # a reference: trained like the target, on other rows

====================================  ========================================================
model.json, its path or its Release,  asked as it is and never redrawn; references come from the
a fitted expost estimator             same mechanism with its constants, n being theirs, and a
                                      seed: simulations, no releases
a scikit-learn estimator, Pipeline,   asked through predict_proba, else decision_function, else,
search, fitted or not                 for a regression, predict; references are refitted clones
train(X, y, seed) -> predict_proba    any training at all (torch: see expost.torch)
predict_proba, with ``train=``        such a model that is there already
====================================  ========================================================

``seed`` sets every ``random_state`` of an estimator, nested ones included, so that references
differ from each other and come out the same again.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.validation import check_is_fitted

from expost import _checks
from expost.auditing.signals import Labels, Signals, count_rows, probabilities_of_scores
from expost.auditing.training import (
    fingerprint,
    prototype,
    seeded,
    without_addresses,
    without_warnings,
)
from expost.errors import ExpostError, InvalidInput
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

# Parameters of an estimator are told in full up to this many characters.
_TOLD = 10**6


class Target(Protocol):
    """A model, or a way to train one.

    The law: ``trained`` depends on its arguments alone, and nothing changes a target.
    """

    @property
    def name(self) -> str:
        """As errors call it: ``the target``, ``reference 7``."""

    @property
    def labels(self) -> Labels:
        """The labels of the game."""

    @property
    def classes(self) -> NDArray[Any] | None:
        """(K,) every label that may be asked about, sorted; None for a regression."""

    @property
    def is_fitted(self) -> bool:
        """Whether there is a model to be asked."""

    @property
    def can_train(self) -> bool:
        """Whether there is a way to train others like it."""

    @property
    def description(self) -> str:
        """One line that says how models like it are made."""

    @property
    def untrained(self) -> "Target":
        """The same without a model to be asked, where it can do without: for those who train."""

    def signals(self, X: Any, y: Any) -> Signals:
        """What the attacker sees of these rows with these labels."""

    def trained(self, X: Any, y: Any, seed: int, *, name: str = "a reference") -> "Target":
        """A model trained like this one, on these rows alone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatorTarget:
    """An object of scikit-learn's interface.

    ``prototype``  what is cloned and fitted; None where it cannot be.
    """

    estimator: Any
    prototype: Any
    labels: Labels
    name: str = "the target"

    @property
    def classes(self) -> NDArray[Any] | None:
        """(K,) every label that may be asked about, sorted; None for a regression."""
        return self.labels.classes

    @property
    def is_fitted(self) -> bool:
        """Whether there is a model to be asked."""
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
        """Its class, and every parameter that is not a default; random states are none."""
        model = self.prototype if self.can_train else self.estimator
        whole = isinstance(model, BaseEstimator)
        told = model.__repr__(N_CHAR_MAX=_TOLD) if whole else repr(model)
        return f"{type(model).__module__}: {without_addresses(' '.join(told.split()))}"

    def signals(self, X: Any, y: Any) -> Signals:
        """What the attacker sees of these rows with these labels."""
        model = self.estimator
        if not self.is_fitted:
            raise InvalidInput(f"{self.name}: {type(model).__name__} is not fitted; call its fit.")
        with _asking(self.name):
            if self.classes is None:
                return self.labels.of_predictions(model.predict, X, y, self.name)
            return self.labels.of_probabilities(self._ask, X, y, self.name)

    def _ask(self, X: Any) -> tuple[Any, Any]:
        model = self.estimator
        if hasattr(model, "predict_proba"):
            return model.predict_proba(X), model.classes_
        scores = model.decision_function(X)
        return probabilities_of_scores(scores, name=self.name), model.classes_

    def trained(self, X: Any, y: Any, seed: int, *, name: str = "a reference") -> "EstimatorTarget":
        """A clone, seeded and fitted to these rows."""
        if not self.can_train:
            raise InvalidInput(
                f"model: {type(self.estimator).__name__} is not to be cloned by scikit-learn and"
                " fitted; pass train=, a function (X, y, seed) -> predict_proba."
            )
        with without_warnings(), _training(name):
            fitted = seeded(clone(self.prototype), seed)
            fitted.fit(X, y)
        return replace(self, estimator=fitted, name=name)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleaseTarget:
    """A model that expost released, asked as it stands in model.json."""

    release: Release
    labels: Labels
    name: str = "the target"

    @property
    def classes(self) -> NDArray[Any] | None:
        """(K,) every label that may be asked about, sorted; None for a regression."""
        return self.labels.classes

    @property
    def is_fitted(self) -> bool:
        """It was released."""
        return True

    @property
    def can_train(self) -> bool:
        """model.json says how it was made."""
        return True

    @property
    def untrained(self) -> "ReleaseTarget":
        """Itself: how it was made stands beside θ."""
        return self

    @property
    def description(self) -> str:
        """The mechanism, its budget, and how rows come into the unit ball."""
        fields = self.release.to_json()
        kept = ("mechanism", "loss", "n", "regularization", "unit_ball", "classes")
        return "expost release: " + ", ".join(f"{name}={fields[name]!r}" for name in kept)

    def signals(self, X: Any, y: Any) -> Signals:
        """What the attacker sees of these rows with these labels."""
        if self.classes is None:
            return self.labels.of_predictions(self._linear, X, y, self.name)
        return self.labels.of_probabilities(self._ask, X, y, self.name)

    def _ask(self, X: Any) -> tuple[FloatArray, Any]:
        """One score speaks for the second class of the release, sorted or not."""
        scores = probabilities_of_scores(self._linear(X), name=self.name)
        return scores, self.release.classes

    def _linear(self, X: Any) -> FloatArray:
        """x·coef + intercept, as the estimators have it."""
        names, expected = getattr(X, "columns", None), self.release.feature_names
        if names is not None and expected is not None and tuple(map(str, names)) != expected:
            raise InvalidInput(
                "X: its columns are not those of the model, in their order; the model was made with"
                f" {', '.join(expected)}."
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
        """The same mechanism on these rows, its noise from ``seed``: a simulation.

        ε, Λ, the ball and the classes are the release's; n, and with it the noise, is that of the
        rows. It is not saved, and nobody's budget pays for it.
        """
        how = self.release.mechanism.with_constants(rows=count_rows(X))
        with _training(name):
            theta = self._simulated(how, X, y, np.random.default_rng(seed))
        drawn = replace(self.release, mechanism=how, theta=theta, seeded=True)
        return replace(self, release=drawn, name=name)

    def _simulated(self, how: Mechanism, X: Any, y: Any, rng: np.random.Generator) -> FloatArray:
        problem, penalty = self.release.objective(X, y), how.total_regularization
        # What objective perturbation adds to Λ depends on n.
        problem = replace(problem, penalty=np.full(how.dimension, penalty))
        return how.release(problem, rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionTarget:
    """A training function, ``train(X, y, seed)``, and perhaps a model that it has made.

    What it gives back is a function of X: (n, K) probabilities of the sorted classes, or (n,)
    predictions of a regression; or an object with ``predict_proba`` (and ``classes_``).
    """

    train: Callable[[Any, Any, int], Any] | None
    model: Any
    labels: Labels
    name: str = "the target"

    @property
    def classes(self) -> NDArray[Any] | None:
        """(K,) every label that may be asked about, sorted; None for a regression."""
        return self.labels.classes

    @property
    def is_fitted(self) -> bool:
        """Whether there is a model to be asked."""
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
        """The function's name, and a fingerprint of what it does."""
        function = self.train if self.train is not None else self.model
        named = function if hasattr(function, "__qualname__") else type(function)
        name = f"{named.__module__}.{named.__qualname__}"
        return f"training function {name} ({fingerprint(function)})"

    def signals(self, X: Any, y: Any) -> Signals:
        """What the attacker sees of these rows with these labels."""
        if self.model is None:
            raise InvalidInput(f"{self.name}: is a training function; train a model first.")
        with _asking(self.name):
            if self.classes is None:
                predict = getattr(self.model, "predict", self.model)
                return self.labels.of_predictions(predict, X, y, self.name)
            ask = getattr(self.model, "predict_proba", self.model)
            known = getattr(self.model, "classes_", self.classes)
            return self.labels.of_probabilities(lambda part: (ask(part), known), X, y, self.name)

    def trained(self, X: Any, y: Any, seed: int, *, name: str = "a reference") -> "FunctionTarget":
        """What the function makes of these rows."""
        if self.train is None:
            raise InvalidInput(
                "model: answers, but cannot be trained again; pass train=, a function (X, y, seed)"
                " -> predict_proba."
            )
        with _training(name):
            model = self.train(X, y, seed)
        if not callable(model) and not hasattr(model, "predict_proba"):
            raise InvalidInput(
                f"{name}: its training gave a {type(model).__name__}; must give a function of X, or"
                " an object with predict_proba."
            )
        return replace(self, model=model, name=name)


def target_of(
    model: Any,
    y: Any,
    *,
    train: Callable[[Any, Any, int], Any] | None = None,
    regression: bool | None = None,
) -> Target:
    """The target that ``model`` is (module docstring).

    Args:
        model: what is attacked, or what trains it.
        y: every label that will be asked about, of the population too.
        train: for a model that is a function or has no ``fit``: how others like it are trained.
        regression: whether labels are numbers to be predicted; None asks the estimator, and holds
            a function for a classifier.
    """
    if isinstance(model, str | Path):
        model = Release.load(model)
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
            "model: is a torch module; pass its training function as train=, or take"
            " expost.torch.torch_target."
        )
    labels = Labels.of_numbers(y) if regression else _classes_of(y)
    if train is None:
        return FunctionTarget(train=model, model=None, labels=labels)
    return FunctionTarget(train=train, model=model, labels=labels)


def _estimator_target(model: Any, y: Any, regression: bool | None) -> EstimatorTarget:
    kind = type(model).__name__
    answers = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    numbers = _predicts_numbers(model) if regression is None else regression
    if not (hasattr(model, "predict") if numbers else answers):
        raise InvalidInput(
            f"model: {kind} has neither predict_proba nor decision_function, nor is it a regressor;"
            " wrap it in sklearn.calibration.CalibratedClassifierCV, or pass a training function."
        )
    known = None
    if not numbers and _is_fitted(model):
        known = getattr(model, "classes_", None)
        if known is None:
            raise InvalidInput(f"model: {kind} has no classes_; pass its predict_proba and train=.")
    labels = Labels.of_numbers(y) if numbers else Labels.of_classes(y, known)
    return EstimatorTarget(estimator=model, prototype=prototype(model), labels=labels)


def _predicts_numbers(model: Any) -> bool:
    try:
        # Only estimators of scikit-learn have tags: 1.7 warns about others, later versions raise.
        return hasattr(model, "__sklearn_tags__") and bool(is_regressor(model))
    except (AttributeError, TypeError):
        return False


def _classes_of(y: Any) -> Labels:
    labels = Labels.of_classes(y)
    assert labels.classes is not None
    if labels.classes.dtype.kind == "f" and np.any(labels.classes % 1 != 0):
        raise InvalidInput("y: holds fractions, which are no classes; pass regression=True.")
    return labels


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
    """Name the model that could not be trained, and where in the code that was.

    The message of the error is not repeated, because it may quote a cell; of a parameter it does
    not.
    """
    try:
        yield
    except ExpostError:
        raise
    except InvalidParameterError as error:
        raise InvalidInput(f"{name}: could not be trained: {error}") from None
    # The user's own code, or a library's, runs here: it may raise anything.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{name}: could not be trained (its fit raised {_raised(error)}): it must take"
            " rows like these, of numbers and without gaps where it asks for that, and a random"
            " part of them, in which every class needs enough rows."
        ) from None


@contextmanager
def _asking(name: str) -> Iterator[None]:
    """The same of a model that is asked."""
    try:
        yield
    except ExpostError:
        raise
    # As above.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{name}: could not answer (it raised {_raised(error)}): it must take every row"
            " in question, of the columns that it was trained with, and give each a probability"
            " for every class."
        ) from None


def _raised(error: Exception) -> str:
    """The kind of an error, and the line that raised it."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{type(error).__name__} in {Path(frame.f_code.co_filename).name}, line {line}"
