"""What an audit is given that it cannot take: one sentence, before anything is trained."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

import expost
from expost.auditing.arrays import arrays_of, read_arrays
from expost.errors import InvalidInput
from expost.jobs.audit_rows import named_estimator

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = (X[:, 0] + RNG.normal(size=60) > 0).astype(int)
X_OUT = RNG.normal(size=(60, 3))
GAP = np.where(np.arange(180).reshape(60, 3) == 4, np.nan, X_OUT)
TREE = DecisionTreeClassifier()


class Odd(ClassifierMixin, BaseEstimator):
    """Fits anything, and answers oddly."""

    def __init__(self, mode="raises"):
        self.mode = mode

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        if self.mode == "raises":
            raise RuntimeError(f"kanarie {X[0]}")
        return [[0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (Odd("raises"), {}, "it raised RuntimeError in"),
        (Odd("ragged"), {}, "lists of different lengths"),
        (DecisionTreeClassifier(max_depth=-3), {}, "The 'max_depth' parameter"),
        (TREE, {"population": X_OUT}, "population: must be a pair"),
        (TREE, {"population": (X_OUT[:, :1], Y)}, "the target: could not be evaluated"),
        (LogisticRegression(), {"population": (GAP, Y)}, "the target: could not be evaluated"),
        (TREE, {"references": 1}, "references=1: must be 0, or at least 2"),
        (TREE, {"groups": [1, 2]}, "groups: must be columns by their names"),
        (TREE, {"exposure": 5}, "exposure: is a int"),
        (TREE, {"attacks": [3]}, "attacks: has a int"),
    ],
)
def test_mistakes_are_one_sentence_before_a_reference_is_trained(model, options, words):
    calls = []
    options = {"references": 2, "progress": lambda done, _: calls.append(done)} | options
    with pytest.raises(InvalidInput) as caught:
        expost.audit(model, X, Y, random_state=0, **options)
    assert words in str(caught.value)
    assert "kanarie" not in str(caught.value)
    assert not any(calls)


def test_too_few_rows_are_refused_by_the_name_that_the_user_knows():
    with pytest.raises(InvalidInput, match=r"^X: 60 members and 1 non-members"):
        expost.audit(DecisionTreeClassifier().fit(X, Y), X, Y, X_OUT[:1], Y[:1], references=2)
    with pytest.raises(InvalidInput, match="member: 1 members and 3 non-members"):
        expost.auditing.audit_arrays(arrays_of(losses=np.arange(4.0), member=[1, 0, 0, 0]))


@pytest.mark.parametrize(
    ("model", "rows", "labels", "words"),
    [
        (LogisticRegression(), X, np.where(np.arange(60) < 2, 7 + np.arange(60), Y), "every class"),
        (LogisticRegression(), scipy.sparse.csr_matrix(X), Y, "sparse"),
        (Ridge(), X, np.ones(60), "do not vary"),
    ],
)
def test_gradients_that_cannot_be_had_do_not_cost_the_audit(model, rows, labels, words):
    seed = next(s for s in range(20) if words != "every class" or _apart(s))
    audit = expost.audit(model, rows, labels, references=0, random_state=seed)
    assert "loss" in audit.scores
    assert "gradient-inner-product" not in audit.scores
    (notice,) = audit.notices
    assert notice.startswith("The attacks on gradients were left out")
    assert words in notice


def _apart(seed):
    """Whether the coins of this seed leave a class of one row out of the training."""
    truth = expost.audit(TREE, X, Y, references=0, random_state=seed).truth
    return not truth[:2].all()


def test_answers_are_arrays_or_the_path_of_a_file():
    with pytest.raises(InvalidInput, match="answers: is a dict"):
        expost.auditing.audit_arrays({"losses": [1.0, 2]})


def test_a_population_needs_no_references(tmp_path):
    path = tmp_path / "a.npz"
    losses = RNG.exponential(size=40)
    np.savez(path, losses=losses, member=np.arange(40) < 20, population=losses[:10])
    audit = expost.auditing.audit_arrays(path)
    assert {"loss", "population"} <= set(audit.scores)


def test_truth_values_of_a_table_may_be_words(tmp_path):
    path = tmp_path / "a.csv"
    lines = [f"{loss},{'true' if index < 3 else 'false'}" for index, loss in enumerate(range(6))]
    path.write_text("\n".join(["loss,member", *lines]) + "\n")
    assert read_arrays(path).member.tolist() == [True] * 3 + [False] * 3


@pytest.mark.parametrize(
    "what", ["subprocess.Popen:args=['touch','{0}']", "io.FileIO:file='{0}',mode='w'"]
)
def test_what_is_no_estimator_is_not_even_made(tmp_path, what):
    trace = tmp_path / "trace"
    with pytest.raises(InvalidInput, match="has no fit"):
        named_estimator(what.format(trace))
    assert not trace.exists()


def test_a_parameter_is_given_once():
    with pytest.raises(InvalidInput, match="gives 'max_depth' twice"):
        named_estimator("sklearn.tree.DecisionTreeClassifier:max_depth=1,max_depth=2")


def test_lists_of_a_sweep_are_lists():
    model = expost.PrivateLogisticRegression(data_norm=10.0, classes=(0, 1))
    for wrong in (5, None, "1"):
        with pytest.raises(InvalidInput, match=r"epsilons=.*: must be a list of numbers"):
            expost.auditing.audit_sweep(model, X, Y, epsilons=wrong)
