"""Whether a model predicts its own rows: against scikit-learn's figures, and models read wrongly."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expost import audit
from expost.auditing import arrays_of, audit_arrays


class Reversed:
    """A model whose classes are named in the wrong order."""

    def __init__(self, model):
        self.classes_, self.predict_proba = model.classes_[::-1], model.predict_proba


def halves(data, seed=0):
    X, y = data
    rows = np.random.default_rng(seed).permutation(len(y))
    first, second = np.array_split(rows, 2)
    return X[first], y[first], X[second], y[second]


def attacked(model, parts):
    return audit(model, *parts, references=0, random_state=0)


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_accuracies_are_those_of_scikit_learn(load):
    parts = halves(load(return_X_y=True))
    model = RandomForestClassifier(7, max_depth=3, random_state=0).fit(*parts[:2])
    result = attacked(model, parts)
    # A tie between two classes counts as half.
    for got, X, y in ((result.fit.members, *parts[:2]), (result.fit.non_members, *parts[2:])):
        assert got == pytest.approx(accuracy_score(y, model.predict(X)), abs=0.01)
    assert result.fit.baseline == np.bincount(parts[1]).max() / len(parts[1])
    assert not result.is_misread
    assert result.aggregate()["fit"]["members"] == result.fit.members
    assert "most frequent label reaches" in str(result)


def test_r2_is_that_of_scikit_learn():
    parts = halves(load_diabetes(return_X_y=True))
    model = LinearRegression().fit(*parts[:2])
    result = attacked(model, parts)
    assert result.fit.members == pytest.approx(
        r2_score(parts[1], model.predict(parts[0])), abs=1e-4
    )
    assert result.fit.non_members == pytest.approx(
        r2_score(parts[3], model.predict(parts[2])), abs=1e-4
    )
    assert not result.is_misread
    X = parts[0][:, ::-1], parts[2][:, ::-1]
    assert attacked(model, (X[0], parts[1], X[1], parts[3])).is_misread


def test_a_model_that_is_read_wrongly_gets_no_all_clear():
    """Reversed classes, permuted columns: attacks find nothing in nonsense."""
    parts = halves(load_breast_cancer(return_X_y=True))
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(*parts[:2])
    text = str(attacked(model, parts))
    assert text.startswith("The attacks found no leakage.")
    swapped = parts[0][:, ::-1], parts[1], parts[2][:, ::-1], parts[3]
    for wrong in (attacked(Reversed(model), parts), attacked(model, swapped)):
        assert wrong.is_misread
        text = str(wrong)
        assert text.startswith("No conclusion")
        assert "--classes" in text


def test_members_predicted_worse_than_others_are_no_all_clear():
    """Probabilities of arrays in the wrong order, where the accuracy alone shows nothing."""
    rng = np.random.default_rng(0)
    member = np.arange(800) < 400
    own = np.where(member, rng.uniform(0.5, 0.8, 800), rng.uniform(0.7, 1.0, 800))
    labels = rng.integers(0, 2, 800)
    answers = np.where(np.arange(2) == labels[:, None], own[:, None], 1 - own[:, None])
    result = audit_arrays(
        arrays_of(probabilities=answers, labels=labels, member=member), attacks=["loss"]
    )
    assert result.fit.is_certain
    assert result.is_misread
    assert str(result).startswith("No conclusion")


def test_unbalanced_labels_alone_are_no_alarm():
    """Balanced weights cost accuracy below the base rate; the recall of both classes is high."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 3))
    y = (X[:, 0] + rng.normal(size=4000) > 2.6).astype(int)
    parts = halves((X, y))
    model = LogisticRegression(class_weight="balanced").fit(*parts[:2])
    result = attacked(model, parts)
    assert result.fit.members < result.fit.baseline
    assert not result.is_misread
    # The most frequent label for every row shows nothing.
    assert attacked(DummyClassifier().fit(*parts[:2]), parts).is_misread
