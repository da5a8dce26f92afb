"""Targets: every kind is asked and trained as a person would do it by hand."""

import functools
import pickle
import threading
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from expost.auditing import signals
from expost.auditing.evidence import LARGEST
from expost.auditing.targets import ReleaseTarget, target_of
from expost.auditing.training import fingerprint, seeded, without_warnings
from expost.errors import (
    BudgetWarning,
    InvalidInput,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
)
from expost.notices import warn
from expost.release import Release

ROWS = 120


def table(classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((ROWS, 3))
    y = np.argmax(X @ rng.standard_normal((3, classes)) + rng.gumbel(size=(ROWS, classes)), axis=1)
    return X, y


def naive(p, numbers):
    own = p[np.arange(len(p)), numbers].astype(float)
    with np.errstate(divide="ignore"):
        return np.clip(np.log(own) - np.log(p.sum(axis=1) - own), -LARGEST, LARGEST)


NAMES = np.array(["no", "yes", "maybe"])


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: y,
        lambda y: y - 1.0,
        lambda y: NAMES[y],
        lambda y: NAMES[y].astype(object),
        lambda y: pd.Series(NAMES[y]),
        lambda y: pd.Series(NAMES[y], dtype="category"),
        lambda y: NAMES[y].tolist(),
        lambda y: y[:, None],
    ],
    ids=["int", "float", "text", "object", "series", "categorical", "list", "column"],
)
def test_labels_of_any_kind(labels):
    X, y = table(classes=3)
    given = labels(y)
    fitted = LogisticRegression().fit(X, np.ravel(given))
    computed = target_of(fitted, given).signals(X, given)
    numbers = [fitted.classes_.tolist().index(label) for label in np.ravel(given).tolist()]
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(computed.confidence, naive(p, numbers), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(computed.views, np.sort(p, axis=1)[:, ::-1], rtol=1e-5, atol=1e-5)


def test_two_classes_alone_are_asked_through_every_kind_of_answer():
    X, y = table()
    margin = LinearSVC().fit(X, y)
    computed = target_of(margin, y).signals(X, y)
    signed = np.where(y == 1, 1, -1) * margin.decision_function(X)
    np.testing.assert_allclose(computed.confidence, signed, rtol=1e-5, atol=1e-5)
    tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    certain = target_of(tree, y).signals(X, y)
    assert np.all(certain.confidence == LARGEST)


def test_a_class_that_the_model_has_not_seen_has_probability_zero():
    X, y = table(classes=3)
    known = y != 1
    fitted = LogisticRegression().fit(X[known], y[known])
    target = target_of(fitted, y)
    assert target.labels.classes.tolist() == [0, 1, 2]
    computed = target.signals(X, y)
    assert np.all(computed.confidence[~known] == -LARGEST)
    assert np.all(np.abs(computed.confidence[known]) < LARGEST)
    assert computed.views.shape == (ROWS, 3)
    assert np.all(computed.views[:, 2] == 0)
    p = fitted.predict_proba(X[known])
    expected = naive(p, y[known] // 2)
    np.testing.assert_allclose(computed.confidence[known], expected, rtol=1e-5, atol=1e-5)


def test_a_class_is_named_as_it_is_imported():
    X, y = table()
    model = DecisionTreeClassifier(max_depth=3).fit(X, y)
    described = target_of(model, y).description
    assert described == "sklearn.tree.DecisionTreeClassifier(max_depth=3)"


def test_labels_that_were_not_named_are_refused():
    X, y = table()
    target = target_of(LogisticRegression().fit(X, y), y)
    with pytest.raises(InvalidInput, match="not among the classes"):
        target.signals(X, y + 5)
    with pytest.raises(InvalidInput, match="strings"):
        target.signals(X, y.astype(str))
    with pytest.raises(InvalidInput, match="strings"):
        target_of(LogisticRegression().fit(X, y), y.astype(str))
    with pytest.raises(InvalidInput, match="one for each"):
        target.signals(X, y[:-1])


def mixed(kind):
    X, y = table()
    columns = {"a": X[:, 0], "b": X[:, 1], "town": np.array(["x", "y", "z"])[y + (X[:, 2] > 0)]}
    return kind(columns), y


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_pipelines_take_frames(kind):
    X, y = mixed(kind)
    pipeline = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), ["town"]), (StandardScaler(), ["a", "b"])
        ),
        LogisticRegression(),
    )
    target = target_of(pipeline, y)
    assert not target.is_fitted
    half = np.arange(0, ROWS, 2)
    reference = target.trained(signals.take_rows(X, half), y[half], seed=1)
    by_hand = clone(pipeline).fit(signals.take_rows(X, half), y[half])
    p = by_hand.predict_proba(X)
    np.testing.assert_allclose(
        reference.signals(X, y).confidence, naive(p, y), rtol=1e-4, atol=1e-5
    )
    assert not target.is_fitted


def test_sparse_rows_and_lists():
    X, y = table()
    fitted = LogisticRegression().fit(X, y)
    expected = target_of(fitted, y).signals(X, y).confidence
    sparse = target_of(fitted, y).signals(scipy.sparse.coo_matrix(X), y).confidence
    np.testing.assert_allclose(sparse, expected, rtol=1e-6)
    np.testing.assert_array_equal(target_of(fitted, y).signals(X.tolist(), y).confidence, expected)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, np.array, scipy.sparse.csr_matrix])
def test_rows_are_taken_stacked_and_cut_alike(kind):
    X, _ = table()
    rows = (
        kind(dict(zip("abc", X.T, strict=True)))
        if kind in (pd.DataFrame, pl.DataFrame)
        else kind(X)
    )

    def plain(rows):
        return rows.toarray() if scipy.sparse.issparse(rows) else np.asarray(rows)

    some = np.array([5, 2, 9])
    np.testing.assert_array_equal(plain(signals.take_rows(rows, some)), X[some])
    both = signals.stack_rows(signals.take_rows(rows, some), rows)
    np.testing.assert_array_equal(plain(both), np.concatenate([X[some], X]))
    cut = list(signals.blocks_of_rows(rows, 50))
    assert [part.stop - part.start for part, _ in cut] == [50, 50, 20]
    np.testing.assert_array_equal(np.concatenate([plain(part) for _, part in cut]), X)


def test_rows_of_different_kinds_are_not_stacked():
    X, _ = table()
    frame = pd.DataFrame(X, columns=list("abc"))
    with pytest.raises(InvalidInput, match="frames of one kind"):
        signals.stack_rows(frame, X)
    with pytest.raises(InvalidInput, match="same columns"):
        signals.stack_rows(frame, frame.rename(columns={"a": "z"}))
    with pytest.raises(InvalidInput, match="same columns"):
        signals.stack_rows(X, X[:, :2])
    with pytest.raises(InvalidInput, match="one kind"):
        signals.stack_rows(X, scipy.sparse.csr_matrix(X))
    with pytest.raises(InvalidInput, match="masked"):
        signals.as_rows(np.ma.masked_array(X))
    with pytest.raises(InvalidInput, match="at least one"):
        signals.as_rows(X[:0])


def test_blocks_of_rows_change_nothing(monkeypatch):
    X, y = table(classes=3)
    target = target_of(LogisticRegression().fit(X, y), y)
    whole = target.signals(X, y)
    monkeypatch.setattr(signals, "_BLOCK", 3 * 7)
    cut = target.signals(X, y)
    np.testing.assert_allclose(cut.confidence, whole.confidence, rtol=1e-6)
    np.testing.assert_allclose(cut.views, whole.views, rtol=1e-6)


def test_a_seed_sets_every_random_state():
    forest = RandomForestClassifier(5)
    splitter = KFold(3, shuffle=True)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), forest),
        {"randomforestclassifier__max_depth": [2, 3]},
        cv=splitter,
    )
    first, again, other = (seeded(clone(search), seed) for seed in (1, 1, 2))
    inside = [seeded_search.estimator[-1].random_state for seeded_search in (first, again, other)]
    folds = [seeded_search.cv.random_state for seeded_search in (first, again, other)]
    assert inside[0] == inside[1] != inside[2]
    assert folds[0] == folds[1] != folds[2]
    assert forest.random_state is None
    assert splitter.random_state is None


def test_references_differ_by_their_seeds_and_come_out_again():
    X, y = table()
    target = target_of(RandomForestClassifier(5, random_state=0), y)
    first, again, other = (
        target.trained(X, y, seed).signals(X, y).confidence for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_search_is_asked_and_trained():
    X, y = table()
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=3)
    reference = target_of(search, y).trained(X, y, seed=0)
    by_hand = clone(search).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(
        reference.signals(X, y).confidence, naive(by_hand, y), rtol=1e-4, atol=1e-5
    )


def test_a_regression_has_squares():
    X, _ = table()
    y = X @ [1.0, 2.0, 0.0] + np.random.default_rng(0).standard_normal(ROWS)
    target = target_of(LinearRegression().fit(X[:60], y[:60]), y)
    assert target.labels.classes is None
    computed = target.signals(X, y)
    loss = (LinearRegression().fit(X[:60], y[:60]).predict(X) - y) ** 2 / (2 * np.var(y))
    np.testing.assert_allclose(computed.confidence, -np.log(np.expm1(loss)), rtol=1e-4, atol=1e-5)
    assert computed.views.shape == (ROWS, 0)
    assert target.labels.numbers(y).tolist() == [0] * ROWS
    memorised = target_of(DecisionTreeRegressor(), y).trained(X, y, seed=0)
    assert np.all(memorised.signals(X, y).confidence == LARGEST)
    constant = target_of(Ridge().fit(X, np.ones(ROWS)), np.ones(ROWS))
    assert np.all(np.isfinite(constant.signals(X, np.ones(ROWS)).confidence))


def model_of(X, y, **settings):
    settings = {"data_norm": 5.0, "classes": (0, 1), **settings}
    return PrivateLogisticRegression(5.0, **settings).fit(X, y)


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_a_release_is_asked_as_it_is_and_never_redrawn(mechanism, tmp_path):
    X, y = table()
    private = model_of(X, y, mechanism=mechanism)
    path = private.save(tmp_path / "model.json")
    before = path.read_bytes()
    expected = naive(private.predict_proba(X), y)
    for given in (path, str(path), private, private.release_):
        target = target_of(given, y)
        np.testing.assert_allclose(target.signals(X, y).confidence, expected, rtol=1e-4, atol=1e-5)
        assert target.is_fitted
    reference = target.trained(X[:80], y[:80], seed=4)
    assert path.read_bytes() == before
    assert np.array_equal(target.release.theta, Release.load(path).theta)
    assert not np.array_equal(reference.release.theta, target.release.theta)


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_references_of_a_release_are_simulations_of_its_mechanism(mechanism):
    X, y = table()
    private = model_of(X, y, mechanism=mechanism, regularization=1.0)
    target = target_of(private, y)
    part = slice(0, 80)
    reference = target.trained(X[part], y[part], seed=4)
    with pytest.warns(SeededReleaseWarning):
        by_hand = clone(private).set_params(random_state=4).fit(X[part], y[part])
    np.testing.assert_array_equal(reference.release.theta, by_hand.release_.theta)
    assert reference.release.seeded
    assert reference.release.mechanism == replace(private.release_.mechanism, rows=80)
    assert np.array_equal(target.trained(X[part], y[part], 4).release.theta, by_hand.release_.theta)
    other = target.trained(X[part], y[part], seed=5)
    assert not np.array_equal(other.release.theta, by_hand.release_.theta)


def test_references_of_a_release_raise_the_penalty_as_their_rows_ask():
    X, y = table()
    settings = {"mechanism": "objective", "regularization": 1e-4}
    with pytest.warns(RaisedRegularizationWarning):
        private = model_of(X, y, **settings)
    reference = target_of(private, y).trained(X[:40], y[:40], seed=4)
    with pytest.warns((RaisedRegularizationWarning, SeededReleaseWarning)):
        by_hand = model_of(X[:40], y[:40], random_state=4, **settings)
    np.testing.assert_array_equal(reference.release.theta, by_hand.release_.theta)


def test_releases_of_every_loss():
    X, y = table(classes=3)
    many = PrivateLogisticRegression(
        50.0, mechanism="objective", data_norm=5.0, classes=(0, 1, 2)
    ).fit(X, y)
    target = target_of(many, y)
    p = many.predict_proba(X)
    np.testing.assert_allclose(target.signals(X, y).confidence, naive(p, y), rtol=1e-4, atol=1e-5)
    assert target.trained(X[:90], y[:90], seed=1).signals(X, y).views.shape == (ROWS, 3)
    two = (y > 0).astype(int)
    hinge = PrivateLinearSVC(5.0, data_norm=5.0, classes=(0, 1)).fit(X, two)
    margins = np.where(two == 1, 1, -1) * hinge.decision_function(X)
    computed = target_of(hinge, two).signals(X, two).confidence
    np.testing.assert_allclose(computed, margins, rtol=1e-4, atol=1e-5)
    ridge = PrivateRidge(5.0, data_norm=5.0, label_range=(-4.0, 4.0), huber_width=None).fit(
        X, X[:, 0]
    )
    numbers = target_of(ridge, X[:, 0])
    loss = (ridge.predict(X) - X[:, 0]) ** 2 / (2 * np.var(X[:, 0]))
    expected = -np.log(np.expm1(loss))
    np.testing.assert_allclose(
        numbers.signals(X, X[:, 0]).confidence, expected, rtol=1e-3, atol=1e-5
    )
    assert numbers.trained(X[:90], X[:90, 0], seed=1).labels.classes is None


def test_a_release_with_classes_in_another_order():
    """signs() takes the second one for positive, wherever the alphabet has it."""
    X, y = table()
    words = np.array(["b", "a"])[y]
    private = model_of(X, words, classes=("b", "a"))
    flipped = replace(
        private.release_, classes=private.release_.classes[::-1], theta=-private.release_.theta
    )
    first, other = (target_of(release, words) for release in (private.release_, flipped))
    computed, same = (target.signals(X, words).confidence for target in (first, other))
    np.testing.assert_array_equal(computed, same)
    assert isinstance(other, ReleaseTarget)


def test_a_release_knows_its_columns():
    X, y = table()
    frame = pd.DataFrame(X, columns=list("abc"))
    target = target_of(model_of(frame, y), y)
    assert len(target.signals(frame, y).confidence) == ROWS
    with pytest.raises(InvalidInput, match="in their order"):
        target.signals(frame[["b", "a", "c"]], y)
    with pytest.raises(InvalidInput, match="columns"):
        target.signals(X[:, :2], y)


def test_refits_of_private_estimators_neither_warn_nor_spend():
    X, y = table()
    unfitted = PrivateLogisticRegression(1.0)  # bounds read from the data: a fit would warn
    for model in (unfitted, make_pipeline(StandardScaler(), unfitted)):
        target = target_of(model, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            computed = [target.trained(X, y, seed).signals(X, y).confidence for seed in (1, 1, 2)]
        assert np.array_equal(computed[0], computed[1])
        assert not np.array_equal(computed[0], computed[2])
        assert not target.is_fitted
    with pytest.warns(SeededReleaseWarning):
        PrivateLogisticRegression(1.0, data_norm=5.0, classes=(0, 1), random_state=1).fit(X, y)


def test_warnings_come_back_after_trainings_that_overlap():
    before = list(warnings.filters)
    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def first():
        with without_warnings():
            first_in.set()
            second_in.wait(5)
        first_out.set()

    thread = threading.Thread(target=first)
    thread.start()
    first_in.wait(5)
    with without_warnings():
        second_in.set()
        first_out.wait(5)
        warn("still quiet", SeededReleaseWarning)
    thread.join()
    assert list(warnings.filters) == before


def train(X, y, seed):
    model = LogisticRegression(C=1 + seed).fit(X, y)
    return model.predict_proba


def test_a_training_function():
    X, y = table()
    target = target_of(train, NAMES[y])
    assert (target.is_fitted, target.can_train) == (False, True)
    with pytest.raises(InvalidInput, match="train a model first"):
        target.signals(X, NAMES[y])
    p = LogisticRegression(C=4).fit(X, NAMES[y]).predict_proba(X)
    computed = target.trained(X, NAMES[y], seed=3).signals(X, NAMES[y])
    np.testing.assert_allclose(
        computed.confidence, naive(p, 1 * (NAMES[y] == "yes")), rtol=1e-4, atol=1e-5
    )
    assert "train" in target.description
    assert pickle.loads(pickle.dumps(target)).can_train


def test_a_model_with_its_training_function():
    X, y = table()
    fitted = LogisticRegression(C=4).fit(X, y)
    for model in (fitted.predict_proba, fitted):
        target = target_of(model, y, train=train)
        assert target.is_fitted
        same = target.trained(X, y, seed=3).signals(X, y).confidence
        np.testing.assert_array_equal(target.signals(X, y).confidence, same)
    alone = target_of(fitted.predict_proba, y, train=train)
    assert not replace(alone, train=None).can_train
    with pytest.raises(InvalidInput, match="pass train="):
        replace(alone, train=None).trained(X, y, 1)


def test_a_training_function_for_a_regression():
    X, _ = table()
    target = target_of(lambda X, y, seed: Ridge().fit(X, y).predict, X[:, 0], regression=True)
    computed = target.trained(X, X[:, 0], 0).signals(X, X[:, 0])
    loss = (Ridge().fit(X, X[:, 0]).predict(X) - X[:, 0]) ** 2 / (2 * np.var(X[:, 0]))
    np.testing.assert_allclose(computed.confidence, -np.log(np.expm1(loss)), rtol=1e-3, atol=1e-5)
    with pytest.raises(InvalidInput, match="regression=True"):
        target_of(train, X[:, 0])


def test_answers_of_the_wrong_kind_are_refused_by_name():
    X, y = table()
    target = target_of(lambda X, y, seed: 5, y)
    with pytest.raises(InvalidInput, match="reference 3"):
        target.trained(X, y, 0, name="reference 3")
    for answer in (lambda X: np.full((len(X), 2), np.nan), lambda X: expit(X[:, 0])):
        bad = target_of(lambda X, y, seed, answer=answer: answer, y)
        with pytest.raises(InvalidInput, match="reference 3"):
            bad.trained(X, y, 0, name="reference 3").signals(X, y)


def test_a_training_that_fails_is_named_with_its_place():
    X, y = table()
    target = target_of(LogisticRegression(), y)
    pattern = r"reference 3: .*ValueError in \w+\.py, line \d+"
    with pytest.raises(InvalidInput, match=pattern) as caught:
        target.trained(X[y == 0], y[y == 0], 0, name="reference 3")
    # The words of another library's error may quote a cell.
    assert caught.value.__cause__ is None


def test_a_half_without_a_class_is_no_failure_where_the_estimator_takes_it():
    X, y = table()
    computed = target_of(DummyClassifier(), y).trained(X[y == 0], y[y == 0], 0).signals(X, y)
    assert np.all(computed.confidence == np.where(y == 0, LARGEST, -LARGEST))


class Odd:
    """Neither cloneable nor a classifier."""


class Answers:
    """A model from elsewhere that only answers."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        return np.column_stack([expit(-X[:, 0]), expit(X[:, 0])])


def test_what_cannot_be_attacked_is_refused_with_a_remedy():
    X, y = table()
    hard = VotingClassifier([("k", KNeighborsClassifier())], voting="hard").fit(X, y)
    for model, message in [
        (Odd(), "training function"),
        (hard, "predict_proba"),
        (LogisticRegression, "instance"),
        (None, "training function"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            target_of(model, y)
    with pytest.raises(InvalidInput, match="train=5"):
        target_of(Answers(), y, train=5)
    with pytest.raises(InvalidInput, match="not fitted"):
        target_of(LogisticRegression(), y).signals(X, y)
    answers = target_of(Answers(), y)
    assert answers.is_fitted
    assert not answers.can_train
    np.testing.assert_allclose(
        answers.signals(X, y).confidence, np.where(y == 1, 1, -1) * X[:, 0], rtol=1e-4
    )
    with pytest.raises(InvalidInput, match="train="):
        answers.trained(X, y, 1)


def test_a_description_says_how_and_not_where_in_memory():
    _, y = table()
    first, two = (
        target_of(
            make_pipeline(FunctionTransformer(np.log1p), LogisticRegression(C=3.0, max_iter=7)), y
        ).description
        for _ in range(2)
    )
    assert first == two
    assert "C=3.0" in first
    named = FunctionTransformer(lambda X: X)
    assert "0x" not in target_of(make_pipeline(named, LogisticRegression()), y).description


def made(C, scale=None):
    """A training function that closes over its settings."""

    def train(X, y, seed, tolerance=1e-4):
        return LogisticRegression(C=C, tol=tolerance).fit(X * scale[0] if scale else X, y)

    return train


def endless(C):
    """A training function that calls itself."""

    def train(X, y, seed):
        return train(X, y, 0) if seed else LogisticRegression(C=C).fit(X, y)

    return train


@dataclass(frozen=True)
class Recipe:
    C: float

    def __call__(self, X, y, seed):
        return LogisticRegression(C=self.C).fit(X, y)


class Trainer:
    def __init__(self, C):
        self.C = C

    def __call__(self, X, y, seed):
        return LogisticRegression(C=self.C).fit(X, y)

    def method(self, X, y, seed):
        return self(X, y, seed)


def test_a_description_tells_training_functions_apart():
    _, y = table()
    functions = {
        "one": made(1.0),
        "two": made(2.0),
        "list": made(1.0, scale=[2.0]),
        "lambda": lambda X, y, seed: made(1.0)(X, y, seed),
        "other lambda": lambda X, y, seed: made(3.0)(X, y, seed),
        "partial": functools.partial(made(1.0), tolerance=1e-3),
        "other partial": functools.partial(made(1.0), tolerance=1e-5),
        "object": Trainer(1.0),
        "other object": Trainer(2.0),
        "method": Trainer(1.0).method,
        "other method": Trainer(2.0).method,
        "unpicklable": made(threading.Lock()),
        "endless": endless(1.0),
        "other endless": endless(2.0),
        "recipe": Recipe(1.0),
        "other recipe": Recipe(2.0),
    }
    descriptions = {
        name: target_of(function, y).description for name, function in functions.items()
    }
    assert len(set(descriptions.values())) == len(descriptions)
    assert descriptions["one"] == target_of(made(1.0), y).description
    assert descriptions["object"] == target_of(Trainer(1.0), y).description
    assert descriptions["partial"] == (
        target_of(functools.partial(made(1.0), tolerance=1e-3), y).description
    )
    assert descriptions["unpicklable"] == target_of(made(threading.Lock()), y).description


def test_an_audit_does_not_use_up_the_warning_of_a_search():
    X, y = table()
    private = PrivateLogisticRegression(1.0, data_norm=5.0, classes=(0, 1))
    nested = make_pipeline(StandardScaler(), private)

    def audited():
        for model in (private, nested):
            target = target_of(model, y)
            for seed in range(3):
                target.trained(X, y, seed)

    audited()
    clone(private)  # the first copy, of which nothing is said
    audited()
    with pytest.warns(BudgetWarning):
        clone(nested)


def test_what_workers_are_given_is_small():
    X, y = table()
    forest = RandomForestClassifier(50, random_state=np.random.RandomState(1)).fit(X, y)
    target = target_of(forest, y)
    assert len(pickle.dumps(target.untrained)) < 0.05 * len(pickle.dumps(target))
    assert not target.untrained.is_fitted
    trained = target.trained(X, y, 1)
    assert trained.description == target.description == target.untrained.description
    function = target_of(forest.predict_proba, y, train=train)
    assert not function.untrained.is_fitted
    assert function.untrained.description == function.description


def fitted(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 2)) / 3
    y = np.where(X[:, 0] > 0, 1, -1)
    settings = {"data_norm": 2.0, "classes": (-1, 1), "regularization": 0.1}
    return PrivateLogisticRegression(epsilon=np.inf, **settings).fit(X, y)


def test_estimators_with_equal_parameters_and_other_releases_differ():
    assert fitted(0).get_params() == fitted(1).get_params()
    assert fingerprint(fitted(0)) == fingerprint(fitted(0))
    assert fingerprint(fitted(0)) != fingerprint(fitted(1))
