"""The other mechanisms on the rows of a choice, against models that are made one by one."""

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import expost
from expost.epsilon.choose import seeds_of
from expost.epsilon.sweep import child
from expost.epsilon.utility import Trials
from expost.estimators import PrivateLogisticRegression, PrivateRidge
from expost.mechanisms import MECHANISMS
from expost.mechanisms.base import mechanism_name
from expost.report import document_of, render_markdown

FOLDS, RELEASES = 3, 2
PAIRS = {mechanism_name(kind.kind, noise) for kind in MECHANISMS.own for noise in kind.noises}


def make(classes=2, n=240):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 4))
    signal = X @ [2.0, -1.0, 0.5, 0.0] + 0.5 * rng.normal(size=n)
    if classes == 0:
        return X, np.clip(signal / 8, -1, 1)
    return X, np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))


def chosen(X, y, **options):
    return expost.choose_epsilon(X, y, folds=FOLDS, models=4, random_state=5, **options)


def test_scores_are_those_of_models_fitted_by_scikit_learn():
    """Output perturbation: the minimiser of the rows outside of a fold, and noise for all rows."""
    X, y = make()
    choice = chosen(X, y, epsilons=[0.5, 4.0], classes=(0, 1))
    curve = next(
        each for each in choice.alternatives if "output" in each.name and "Gaussian" in each.name
    )
    assert curve.epsilons.tolist() == [0.5, 4.0]
    for index, epsilon in enumerate(curve.epsilons):
        model = PrivateLogisticRegression(
            epsilon, mechanism="output", noise="gaussian", classes=(0, 1)
        )
        ready = model.prepared(X, y)
        mechanism, seed = ready.mechanism, seeds_of(5)[1]
        trials = Trials(
            objective=ready.objective, plan=ready.mechanism_at, folds=FOLDS, releases=1, seed=seed
        )
        scores = []
        for fold in range(FOLDS):
            kept, out = trials.rows.split(fold)
            penalty = 1 / (mechanism.regularization * kept.count)
            fitted = LogisticRegression(C=penalty, fit_intercept=False, tol=1e-10, max_iter=10_000)
            theta = fitted.fit(kept.X, kept.y).coef_[0]
            rng = np.random.default_rng(child(seed, fold))
            for noise in mechanism.law.scale * rng.standard_normal((RELEASES, len(theta))):
                scores.append(log_loss(out.y > 0, expit(out.X @ (theta + noise))))
        assert curve.score[index] == pytest.approx(np.mean(scores), abs=1e-3)
        loss = mechanism.loss_quantile(choice.limit.quantile)
        posterior = expit(logit(choice.limit.prior) + loss)
        assert curve.posterior[index] == pytest.approx(posterior, rel=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_every_mechanism_that_takes_the_loss_is_compared(classes):
    X, y = make(classes)
    given = {"loss": "squared", "label_range": (-1, 1)} if not classes else {}
    choice = chosen(X, y, **given)
    takes = {
        mechanism_name(kind.kind, noise)
        for kind in MECHANISMS.own
        for noise in kind.noises
        if classes < 3 or kind.is_multiclass
    }
    assert {curve.name for curve in choice.frontier} == takes <= PAIRS
    assert (takes < PAIRS) == (classes == 3)
    assert choice.not_compared == ()
    for curve in choice.frontier:
        assert np.all(np.diff(curve.epsilons) > 0)
        assert np.all(np.diff(curve.posterior) > 0)
        assert np.all(np.isfinite(curve.score))
    for curve in choice.alternatives:
        # At values of ε at which this mechanism was measured as well.
        assert set(curve.epsilons) <= set(choice.utility.epsilons)


def test_mechanisms_without_a_guarantee_are_named():
    """The gradient of the squared loss is not bounded: nothing bounds a posterior."""
    X, y = make(0)
    choice = chosen(X, y, estimator=PrivateRidge(label_range=(-1, 1), huber_width=None))
    assert len(choice.frontier) == len(choice.not_compared) == 2
    assert {curve.name for curve in choice.frontier} | {*choice.not_compared} == PAIRS
    text = render_markdown(document_of(choice))
    assert all(name in text for name in choice.not_compared)


def test_a_given_delta_is_kept_and_a_given_regularization_is_not():
    """Λ belongs to the mechanism that it is given with; that of others follows the rule."""
    X, y = make()
    options = {"mechanism": "output", "noise": "gaussian", "delta": 1e-7, "epsilons": [1.0]}
    first = chosen(X, y, regularization=0.01, **options)
    second = chosen(X, y, regularization=0.1, **options)
    for left, other in zip(first.alternatives, second.alternatives, strict=True):
        assert left.name == other.name
        np.testing.assert_allclose(left.score, other.score, atol=1e-3)
        np.testing.assert_array_equal(left.posterior, other.posterior)
    assert not np.allclose(first.frontier[0].score[0], second.frontier[0].score[0], rtol=0.01)
    smaller = chosen(X, y, regularization=0.01, **options | {"delta": 1e-9})
    needs = [
        left.posterior != other.posterior
        for left, other in zip(first.alternatives, smaller.alternatives, strict=True)
    ]
    assert [*map(bool, needs)] == ["Gaussian" in curve.name for curve in first.alternatives]


def test_many_values_of_epsilon_are_thinned():
    X, y = make()
    values = np.geomspace(0.1, 10, 9).tolist()
    for curve in chosen(X, y, epsilons=values).alternatives:
        assert len(curve.epsilons) == 4
        assert (curve.epsilons[0], curve.epsilons[-1]) == (values[0], values[-1])
