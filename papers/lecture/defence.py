"""Ways to train a classifier that are compared as defences: small values under one Protocol."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from sklearn.base import clone

from expost import _checks
from expost.auditing.training import seeded
from expost.estimators import PrivateLogisticRegression
from expost.mechanisms import MECHANISMS
from expost.numbers import upper_text
from expost.release import Release
from expost.types import FloatArray, Neighbouring

__all__ = ["Defence", "LogisticDefence", "NamedDefence", "Predict"]

Predict = Callable[[Any], FloatArray]


@runtime_checkable
class Defence(Protocol):
    """A way to train a classifier.

    The law: ``trained`` depends on its arguments alone. Labels are the numbers of the classes, from
    0; answers are probabilities, a column a class.
    """

    @property
    def name(self) -> str:
        """As it stands in the table."""

    def attack_limit(self, X: Any, y: Any) -> float | None:
        """Return the accuracy that no attack on such a training exceeds; None: no guarantee."""

    def trained(self, X: Any, y: Any, seed: int) -> Predict:
        """predict_proba of a model of these rows."""


@dataclass(frozen=True, kw_only=True)
class LogisticDefence:
    """Logistic regression (softmax for more classes): plain, with a larger Λ, or perturbed.

    ``epsilon``         inf: the exact minimiser, no defence but Λ.
    ``regularization``  Λ, or "auto": from n, d and ε alone.
    ``mechanism``       "output" (two classes) or "objective", as of the estimators.
    ``data_norm``       a number, or "auto": √p/2, as of the estimators.

    A training is a simulation, its noise from a seed; it is no release and warns of nothing.
    """

    regularization: float | str
    epsilon: float = np.inf
    delta: float | None = None
    mechanism: str = "objective"
    noise: str = "laplace"
    data_norm: float | str = "auto"

    def __post_init__(self) -> None:
        _checks.positive("epsilon", self.epsilon, finite=False)
        _checks.one_of("mechanism", self.mechanism, tuple(MECHANISMS))
        if isinstance(self.regularization, str):
            _checks.one_of("regularization", self.regularization, ("auto",))
        else:
            _checks.regularization(self.regularization)

    @property
    def name(self) -> str:
        """As it stands in the table."""
        penalty = "" if isinstance(self.regularization, str) else f"Λ = {self.regularization:g}"
        if not self.epsilon < np.inf:
            return f"logistic regression, {penalty or 'Λ = 1/n'}"
        noise = "" if self.noise == type(self).noise else f", {self.noise}"
        guarantee = f"ε = {upper_text(self.epsilon)}"
        guarantee += f", δ = {upper_text(self.delta)}" if self.delta else ""
        return ", ".join(
            filter(None, (f"{self.mechanism} perturbation{noise}", guarantee, penalty))
        )

    def attack_limit(self, X: Any, y: Any) -> float | None:
        """Bound it by the mechanism's guarantee for two sets of rows of which one is exchanged."""
        if not self.epsilon < np.inf:
            return None
        mechanism = self._estimator(y).prepared(X, y).mechanism
        advantage = mechanism.guarantee().advantage
        # Some noises have a guarantee for one row more or less only.
        exchanged = mechanism.covers(Neighbouring.REPLACE)
        return (1 + advantage) / 2 if exchanged else min(1.0, 0.5 + advantage)

    def trained(self, X: Any, y: Any, seed: int) -> Predict:
        """predict_proba of a model whose noise comes from ``seed``."""
        prepared = self._estimator(y).prepared(X, y)
        mechanism = prepared.mechanism
        rng = np.random.default_rng(seed) if mechanism.is_private else None
        release = Release(
            theta=mechanism.release(prepared.objective, rng),
            mechanism=mechanism,
            ball=prepared.ball,
            classes=prepared.classes,
            feature_names=None,
            read_from_data=(),
            seeded=True,
        )
        predict: Predict = PrivateLogisticRegression.from_release(release).predict_proba
        return predict

    def _estimator(self, y: Any) -> PrivateLogisticRegression:
        return PrivateLogisticRegression(
            epsilon=self.epsilon,
            delta=self.delta,
            mechanism=self.mechanism,
            noise=self.noise,
            regularization=self.regularization,
            data_norm=self.data_norm,
            classes=tuple(range(int(np.max(y)) + 1)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedDefence:
    """Any estimator of scikit-learn's, or function (X, y, seed) -> predict_proba, under a name."""

    name: str
    method: Any

    def attack_limit(self, X: Any, y: Any) -> None:
        """None: nothing is known of it."""

    def trained(self, X: Any, y: Any, seed: int) -> Predict:
        """predict_proba of a seeded clone, or of what the function gives."""
        if hasattr(self.method, "fit"):
            predict: Predict = seeded(clone(self.method), seed).fit(X, y).predict_proba
            return predict
        model = self.method(X, y, seed)
        function: Predict = getattr(model, "predict_proba", model)
        return function
