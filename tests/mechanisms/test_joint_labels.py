"""The bounds of all labels of one row hold at once: the events behind them, and real releases."""

import numpy as np
import pytest
from scipy import stats

from expost.losses import Logistic
from expost.mechanisms import OutputPerturbation, Tangent
from expost.mechanisms.bounds import ObjectiveBound
from expost.mechanisms.output_bound import OutputBound
from expost.types import Neighbouring
from mechanisms.changes import changed

from .test_bounds import RHO, objective
from .test_softmax_bound import CLASSES, setting, table


def numbers(formula):
    """Every number of a formula, in order."""
    if isinstance(formula, dict):
        return [number for value in formula.values() for number in numbers(value)]
    if isinstance(formula, tuple):
        return [number for value in formula for number in numbers(value)]
    return np.ravel(formula).tolist() if not isinstance(formula, str | None) else []


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_with_one_output_no_event_depends_on_the_label(noise):
    """So nothing is split: the bound of seven labels is that of one."""
    for bound in objective(Logistic(), noise)[:2]:
        constants = {name: getattr(bound, name) for name in ("mechanism", "theta", "failure")}
        known = {"tangent": bound.tangent, "released": bound.released}
        several = ObjectiveBound(**constants, **known, labels=7)
        assert numbers(several.formula()) == numbers(bound.formula())
        assert several.failure_probability == bound.failure_probability


def across(labels):
    mechanism, problem = setting()
    theta = mechanism.release(problem, np.random.default_rng(1))
    bound = ObjectiveBound(mechanism=mechanism, theta=theta, failure=RHO, labels=labels)
    return bound.formula()["noise"]["across"] / mechanism.resolution


def test_the_pairs_of_classes_are_split_over_the_labels():
    """G·u is normal in each class: over 200,000 draws all pairs of the shown labels stay below."""
    rng = np.random.default_rng(5)
    draws = rng.normal(size=(200_000, CLASSES))
    gaps = np.abs(draws[:, :, None] - draws[:, None, :])

    def failed(labels, limit):
        return int(np.count_nonzero(gaps[:, :labels].max(axis=(1, 2)) > limit))

    for labels in (1, 2, CLASSES):
        assert stats.binom.sf(failed(labels, across(labels)) - 1, len(draws), RHO) > 1e-6
    # Power: for all labels the limit of one label is passed too often.
    assert stats.binom.sf(failed(CLASSES, across(1)) - 1, len(draws), RHO) < 1e-6
    # Pairs are counted once: all labels have K/2 times those of one.
    tail = RHO / (CLASSES * (CLASSES - 1))
    assert across(CLASSES) == pytest.approx(np.sqrt(2) * stats.norm.isf(tail), rel=1e-4)
    assert across(100) == across(CLASSES)


@pytest.mark.parametrize("labels", [1, 2, 5])
def test_the_shifts_of_output_perturbation_are_split_over_the_labels(labels):
    """The distance fails with ρ/2 for all labels, each b·s/∥s∥ with ρ/2m."""
    mechanism = OutputPerturbation(
        **{"epsilon": 1.0, "delta": 1e-3, "noise": "gaussian", "loss": Logistic()},
        **{"regularization": 0.1, "rows": 50, "dimension": 3},
    )
    theta = np.zeros(3)
    bound = OutputBound(mechanism=mechanism, theta=theta, failure=RHO, labels=labels)
    single = OutputBound(mechanism=mechanism, theta=theta, failure=RHO)
    spent = labels * 2 * stats.norm.sf(bound.formula()["quantile"])
    assert RHO / 2 * (1 - 1e-3) < spent <= RHO / 2
    assert bound.radius == single.radius
    assert bound.failure_probability == RHO


def test_all_labels_of_real_releases_hold_at_once():
    """People outside, each with every label: a release fails if one label of a person does."""
    mechanism, problem = setting()
    X, _ = table(25, seed=8)
    rows, labels = np.repeat(X, CLASSES, axis=0), np.tile(np.arange(CLASSES) * 1.0, len(X))
    count, rng = 120, np.random.default_rng(6)
    failed, weak = np.zeros(len(X)), np.zeros(len(X))
    for _ in range(count):
        theta = mechanism.release(problem, rng)
        tangent = Tangent.at(mechanism, problem, theta)
        entering = (rows, labels)
        loss = np.concatenate(
            [
                tangent.row_losses(changed(problem, Neighbouring.ADD, part)).loss
                for part in _parts(entering, len(problem.held.y))
            ]
        )
        for share, total in ((RHO, failed), (0.999, weak)):
            bound = ObjectiveBound(
                mechanism=mechanism, theta=theta, failure=share, labels=CLASSES
            ).exposure(rows, labels)
            total += np.any((np.abs(loss) > bound).reshape(len(X), CLASSES), axis=1)
    assert np.min(stats.binom.sf(failed - 1, count, RHO)) * len(X) > 1e-3
    # Power: at a failure probability of nearly 1 some do fail.
    assert np.max(weak) > count * RHO


def _parts(entering, size):
    X, y = entering
    return [(X[start : start + size], y[start : start + size]) for start in range(0, len(X), size)]
