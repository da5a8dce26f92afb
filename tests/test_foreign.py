"""scikit-learn models without noise: distances against refits with the same C or alpha."""

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import (
    Lasso,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expost import PrivateLogisticRegression, profile
from expost.errors import InvalidInput, WrongRows
from penalties import CROSS_VALIDATED, ELASTIC_NET, L1

N = 40
RNG = np.random.default_rng(5)
# Neither in the unit ball nor centred: foreign models are taken as they are.
X = RNG.normal(loc=[1.0, -3.0, 0.0], scale=[2.0, 0.5, 1.0], size=(N, 3))
Y = np.where(X @ np.array([1.0, 2.0, -1.0]) + 5 + RNG.normal(size=N) > 0, "in", "out")
TARGET = X @ np.array([2.0, -1.0, 0.5]) + RNG.normal(size=N) + 100.0

MODELS = {
    "logistic": (LogisticRegression(C=0.7, tol=1e-7, max_iter=5000), Y),
    "logistic, no intercept": (
        LogisticRegression(C=20.0, tol=1e-7, max_iter=5000, fit_intercept=False),
        Y,
    ),
    "logistic, newton": (LogisticRegression(C=3.0, solver="newton-cholesky", tol=1e-12), Y),
    "logistic, liblinear": (
        LogisticRegression(solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=1000),
        Y,
    ),
    "ridge": (Ridge(alpha=2.5), TARGET),
    "ridge, no intercept": (Ridge(alpha=0.1, fit_intercept=False), TARGET),
    "ridge classifier": (RidgeClassifier(alpha=1.5), Y),
    "ridge classifier, no intercept": (RidgeClassifier(fit_intercept=False), Y),
}


def coefficients(model):
    theta = np.ravel(model.coef_)
    return np.append(theta, np.ravel(model.intercept_)) if model.fit_intercept else theta


def refits(model, y):
    """The model refitted without each row, by scikit-learn, at the same C or alpha."""
    kind, parameters = type(model), model.get_params()
    for row in range(N):
        again = kind(**parameters)
        again.fit(np.delete(X, row, axis=0), np.delete(y, row))
        yield coefficients(again)


@pytest.mark.parametrize("name", MODELS)
def test_distances_are_those_of_refits(name):
    model, y = MODELS[name]
    model.fit(X, y)
    found = profile(model, X, y)
    shift = np.array(list(refits(model, y))) - coefficients(model)
    apart = np.linalg.norm(shift, axis=1)
    # lbfgs and liblinear stop early: 1e-4 is theirs.
    tolerance = 1e-9 if "ridge" in name else 2e-4
    slack = found.losses.distance_error + tolerance * np.max(apart)
    assert np.all(np.abs(found.distance - apart) <= slack)
    assert np.all(np.linalg.norm(found.neighbours.shift - shift, axis=1) <= slack)
    # Power: keeping Λ for C or alpha would move an intercept-free fit elsewhere.
    assert np.max(found.losses.distance_error / found.distance) <= 2e-3
    assert found.ranking[0] == np.argmax(apart)


def test_other_models_are_pointed_to_audit(tmp_path):
    """A forest has no losses to certify, as an object or in a file; attacks take both."""
    forest = RandomForestClassifier(5).fit(X, Y)
    with pytest.raises(InvalidInput, match=r"RandomForestClassifier.*expost\.audit\(model"):
        profile(forest, X, Y)
    path = tmp_path / "forest.joblib"
    joblib.dump(forest, path)
    with pytest.raises(InvalidInput) as refused:
        profile(path, X, Y)
    assert f"expost audit DATA --target COLUMN --model {path}" in str(refused.value)


def test_the_total_penalty_is_what_is_kept():
    """Removing a row keeps C, so Λ = 1/(nC) becomes 1/((n−1)C): it matters at this size."""
    model = Ridge(alpha=30.0, fit_intercept=False).fit(X, TARGET)
    found = profile(model, X, TARGET)
    other = Ridge(alpha=30.0 * (N - 1) / N, fit_intercept=False)
    other.fit(np.delete(X, 0, axis=0), np.delete(TARGET, 0))
    wrong = np.linalg.norm(coefficients(other) - coefficients(model))
    assert abs(found.distance[0] - wrong) > 10 * found.losses.distance_error[0] + 1e-6


def test_no_noise_is_said_in_every_way():
    model, y = MODELS["logistic"]
    found = profile(model.fit(X, y), X, y)
    assert found.is_noiseless
    assert np.all(found.loss == np.inf)
    assert np.all(found.exposure == np.inf)
    assert found.worst_case == np.inf
    assert np.array_equal(found.ranking, np.argsort(-found.distance, kind="stable"))
    assert any("no noise" in notice for notice in found.notices)
    assert "LogisticRegression" in found.description
    assert "no noise" in str(found)
    assert found.to_frame()["loss"].tolist() == [np.inf] * N


def test_pipelines_frames_and_ids():
    names = ["a", "b", "c"]
    frame = pd.DataFrame(X, columns=names)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-7)).fit(frame, Y)
    found = profile(pipeline, frame, Y, ids=[f"p{k}" for k in range(N)])
    scaled = StandardScaler().fit_transform(X)
    straight = profile(LogisticRegression(tol=1e-7).fit(scaled, Y), scaled, Y)
    assert np.allclose(found.distance, straight.distance, rtol=1e-6)
    assert found.key(0) == "p0"


@pytest.mark.parametrize(
    ("model", "y", "word"),
    [
        (LogisticRegression(class_weight="balanced"), Y, "class_weight"),
        (LogisticRegression(**L1, solver="liblinear"), Y, "L2"),
        (LogisticRegression(**ELASTIC_NET, solver="saga", max_iter=5000), Y, "L2"),
        (LogisticRegression(solver="liblinear"), Y, "liblinear"),
        (LogisticRegression(), np.arange(N) % 3, "two"),
        (RidgeClassifier(), np.arange(N) % 3, "two"),
        (RidgeClassifier(class_weight="balanced"), Y, "class_weight"),
        (Ridge(positive=True), TARGET, "positive"),
        (Ridge(alpha=0.0), TARGET, "alpha"),
        (Ridge(alpha=np.array([1.0, 2.0])), np.column_stack([TARGET, TARGET]), "dimensions"),
        (Lasso(), TARGET, "not known"),
        (LogisticRegressionCV(cv=3, scoring="accuracy", **CROSS_VALIDATED), Y, "C"),
    ],
)
def test_models_that_cannot_be_read_are_refused(model, y, word):
    if "saga" in str(model):
        model.set_params(tol=1e-3)
    model.fit(X, y)
    with pytest.raises(InvalidInput, match=word):
        profile(model, X, y)


class Constant(BaseEstimator):
    """A model of another package."""

    def fit(self, X, y):
        self.most = y[0]
        return self


def test_unfitted_models_are_refused():
    for model in (LogisticRegression(), RidgeClassifier(), Ridge()):
        with pytest.raises((NotFittedError, InvalidInput)):
            profile(model, X, TARGET if isinstance(model, Ridge) else Y)
    for model in (PrivateLogisticRegression(), RandomForestClassifier()):
        with pytest.raises(InvalidInput, match="is not fitted; call its fit first"):
            profile(model, X, Y)
    # One that is fitted without attributes of scikit-learn's convention.
    with pytest.raises(InvalidInput, match="Attack it"):
        profile(Constant().fit(X, Y), X, Y)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda X, y: (X[::-1], y), WrongRows),
        (lambda X, y: (X + 3, y), WrongRows),
        (lambda X, y: (X[:, :2], y), InvalidInput),
        (lambda X, y: (X, y[:-1]), InvalidInput),
        (lambda X, y: (X, np.full(N, "else")), InvalidInput),
        (lambda X, y: (X * np.nan, y), InvalidInput),
        (lambda X, y: (X[:5], y[:5]), WrongRows),
    ],
    ids=["reversed", "moved", "narrow", "short", "labels", "nan", "few"],
)
def test_rows_that_did_not_make_the_model_are_refused(change, error):
    model, y = MODELS["logistic"]
    model.fit(X, y)
    with pytest.raises(error):
        profile(model, *change(X, y))


def test_a_model_that_did_not_converge_is_refused():
    model = LogisticRegression(C=1e4, max_iter=2)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    with pytest.raises(WrongRows, match="max_iter"):
        profile(model, X, Y)


@pytest.mark.parametrize("relation", ["add", "replace"])
def test_only_removal_is_answered(relation):
    model, y = MODELS["ridge"]
    model.fit(X, y)
    with pytest.raises(InvalidInput, match="remove"):
        profile(model, X, y, relation=relation, candidates=(X, y))


def test_a_private_model_of_another_library_is_not_taken_for_one_without_noise():
    class Private(LogisticRegression):
        epsilon = 1.0

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.where(X[:, 0] > 0, 1, 0)
    with pytest.raises(InvalidInput, match="its own epsilon"):
        profile(Private().fit(X, y), X, y)
