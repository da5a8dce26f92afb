"""Threshold attacks against their definitions, row by row."""

import math

import numpy as np
import pytest

from auditing.games import area_of, evidence, made_up
from expost.auditing.attacks.thresholds import (
    ClassThresholds,
    LossThreshold,
    Population,
    best_cut,
    share_at_most,
)


def test_the_loss_is_minus_the_log_of_the_probability():
    made, _ = made_up(1)
    expected = [math.log(1 / (1 + math.exp(-float(phi)))) for phi in made.confidence]
    np.testing.assert_allclose(LossThreshold()(made), expected, rtol=1e-12)


def test_the_loss_keeps_apart_rows_that_are_nearly_certain():
    made = evidence(np.array([34.0, 35.0, 36.0, -36.0]), np.zeros((0, 4)), np.zeros((0, 4), bool))
    scores = LossThreshold()(made)
    assert scores[3] < scores[0] < scores[1] < scores[2] <= 0


def naive_cut(values, truth):
    """The gain TPR − FPR of the best cut, tried between all neighbours."""
    cuts = [-np.inf, *(np.unique(values)[:-1] + np.diff(np.unique(values)) / 2)]
    gains = [(values[truth] > cut).mean() - (values[~truth] > cut).mean() for cut in cuts]
    return max(gains)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [3, 50, 10**6])
def test_the_cut_is_the_best_one(seed, levels):
    rng = np.random.default_rng(seed)
    truth = rng.random(60) < 0.4
    values = np.round((rng.normal(size=60) + truth) * levels) / levels
    cut = best_cut(values, truth)
    gain = (values[truth] >= cut).mean() - (values[~truth] >= cut).mean()
    assert gain == pytest.approx(max(naive_cut(values, truth), 0), abs=1e-12)


def test_a_cut_needs_both_sides():
    values = np.array([1.0, 2.0])
    assert best_cut(values, np.array([True, True])) is None
    assert best_cut(values, np.array([False, False])) is None


def test_members_below_the_others_leave_the_cut_at_the_least_value():
    assert best_cut(np.array([1.0, 2.0]), np.array([True, False])) == 1.0


def test_each_class_has_its_own_threshold():
    made, _ = made_up(2)
    scores = ClassThresholds()(made)
    for label in range(3):
        rows = made.labels == label
        cut = best_cut(made.references[:, rows].astype(float).ravel(), made.inside[:, rows].ravel())
        np.testing.assert_allclose(scores[rows], made.confidence[rows] - cut, rtol=1e-6)


def test_a_class_on_one_side_takes_the_threshold_of_all():
    made, _ = made_up(3)
    made.inside[:, made.labels == 1] = True
    common = best_cut(made.references.astype(float).ravel(), made.inside.ravel())
    rows = made.labels == 1
    expected = made.confidence[rows] - common
    np.testing.assert_allclose(ClassThresholds()(made)[rows], expected, rtol=1e-6)


def test_classes_that_are_fitted_differently_are_put_right():
    """Class 1 is fitted 5 better by every model: the loss sees the class, not the member."""
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, 400)
    truth, inside = rng.random(400) < 0.5, rng.random((20, 400)) < 0.5
    phi = rng.normal(size=(21, 400)) + 5 * labels + 2 * np.vstack([truth, inside])
    made = evidence(phi[0], phi[1:], inside, labels=labels)
    assert area_of(ClassThresholds()(made), truth) > area_of(LossThreshold()(made), truth) + 0.1


def test_the_population_attack_counts_strangers_of_the_class():
    made, _ = made_up(5, strangers=60)
    for least in (1, 1000):
        scores = Population(least=least)(made)
        for row, phi in enumerate(made.confidence):
            alike = made.population_labels == made.labels[row]
            strangers = made.population[alike] if least == 1 else made.population
            count = sum(stranger <= phi for stranger in strangers)
            # The count alone decides; the rest only orders equals.
            assert math.floor(scores[row] * (len(strangers) + 1)) == count
            assert 0 < scores[row] < 1


def test_rows_beyond_all_strangers_keep_their_order():
    scores = share_at_most(np.array([5.0, 7.0, -9.0, -8.0]), np.array([0.0, 1.0]))
    assert scores[2] < scores[3] < 1 / 3 < 2 / 3 < scores[0] < scores[1] < 1


def test_strangers_at_the_same_value_count():
    scores = share_at_most(np.array([1.0, 0.9]), np.array([0.0, 1.0, 1.0, 2.0]))
    assert np.floor(scores * 5).tolist() == [3, 1]


def test_a_share_of_nothing_is_the_order_itself():
    assert np.all(np.diff(share_at_most(np.array([-3.0, 0.0, 2.0]), np.array([]))) > 0)
