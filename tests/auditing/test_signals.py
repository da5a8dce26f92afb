"""Signals against the same in fifty digits."""

import mpmath
import numpy as np
import pytest

from expost.auditing.evidence import LARGEST
from expost.auditing.signals import (
    confidence,
    confidence_of_losses,
    confidence_of_squares,
    probabilities_of_scores,
    views,
)
from expost.errors import InvalidInput


def naive_log_odds(p, label):
    """log p_y − log Σ_{k≠y} p_k, clipped, as it is written."""
    with mpmath.workdps(50):
        own = mpmath.mpf(p[label])
        others = mpmath.fsum(mpmath.mpf(x) for k, x in enumerate(p) if k != label)
        if own == 0:
            return -LARGEST
        if others == 0:
            return LARGEST
        return max(-LARGEST, min(LARGEST, float(mpmath.log(own) - mpmath.log(others))))


def drawn(rows, classes, seed=0):
    rng = np.random.default_rng(seed)
    # Certain rows too: the softmax of wide scores.
    scores = rng.standard_normal((rows, classes)) * rng.choice([1, 10, 60], size=(rows, 1))
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True), rng.integers(classes, size=rows)


@pytest.mark.parametrize("classes", [2, 3, 30])
def test_confidence_is_the_log_odds_of_the_own_label(classes):
    p, labels = drawn(200, classes)
    expected = [naive_log_odds(row, label) for row, label in zip(p, labels, strict=True)]
    computed = confidence(p, labels)
    assert computed.dtype == np.float32
    np.testing.assert_allclose(computed, expected, rtol=1e-6, atol=1e-6)
    # Power: of another label it is another number.
    other = confidence(p, (labels + 1) % classes)
    assert np.mean(np.abs(other - expected) > 0.1) > 0.5


def test_near_certainty_is_not_rounded_to_it():
    """1 − p has lost what the other class says."""
    computed = confidence([[1.0, 1e-15]], [0])
    assert computed[0] == pytest.approx(15 * np.log(10), rel=1e-6)


def test_certain_models_reach_the_ends_and_no_further():
    computed = confidence([[1.0, 0.0], [0.0, 1.0]], [0, 0])
    assert computed.tolist() == [LARGEST, -LARGEST]


def test_of_losses_undoes_the_log():
    p, labels = drawn(200, 3, seed=1)
    own = p[np.arange(len(p)), labels]
    # Where p is near 1 its log has lost digits, not the formula.
    inner = (own > 0) & (own < 1 - 1e-6)
    losses = confidence_of_losses(-np.log(own[inner]))
    np.testing.assert_allclose(losses, confidence(p, labels)[inner], rtol=1e-4)
    with mpmath.workdps(50):
        for loss in (1e-12, 1e-3, 1.0, 30.0):
            exact = -mpmath.log(mpmath.expm1(mpmath.mpf(loss)))
            assert confidence_of_losses([loss])[0] == pytest.approx(float(exact), rel=1e-6)


def test_ends_of_losses():
    assert confidence_of_losses([0.0, np.inf, 1e6]).tolist() == [LARGEST, -LARGEST, -LARGEST]


def test_squares_are_losses_of_a_normal_law():
    predicted, target = np.array([0.0, 1.0, 3.0]), np.array([0.5, 1.0, -1.0])
    losses = confidence_of_squares(predicted, target, 2.0)
    expected = confidence_of_losses([0.25 / 8, 0.0, 16 / 8])
    assert losses.tolist() == expected.tolist()
    assert losses[1] == LARGEST
    # A column is a vector; a larger scale is more confident of every row alike.
    assert confidence_of_squares(predicted[:, None], target, 2.0).tolist() == losses.tolist()
    wider = confidence_of_squares(predicted, target, 4.0)
    assert np.all(wider[[0, 2]] > losses[[0, 2]])


@pytest.mark.parametrize("classes", [2, 3, 30])
def test_views_are_the_largest_falling(classes):
    p, _ = drawn(100, classes)
    computed = views(p)
    expected = np.sort(p, axis=1)[:, ::-1][:, :3]
    assert computed.dtype == np.float32
    np.testing.assert_allclose(computed, expected, rtol=1e-6, atol=1e-30)


def test_scores_become_their_softmax():
    rng = np.random.default_rng(3)
    scores = 300 * rng.standard_normal((50, 4))
    computed = probabilities_of_scores(scores)
    exact = [[mpmath.exp(s - max(row)) for s in row] for row in scores]
    expected = [[float(e / mpmath.fsum(row)) for e in row] for row in exact]
    np.testing.assert_allclose(computed, expected, rtol=1e-9, atol=1e-300)
    two = probabilities_of_scores(np.array([2.0, -30.0]))
    np.testing.assert_allclose(confidence(two, [1, 0]), [2.0, 30.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([[np.nan, 1.0]], "NaN or negative"),
        ([[-0.1, 1.1]], "NaN or negative"),
        ([[0.3, 0.3]], "sum to 1"),
        ([[np.inf, 0.5]], "sum to 1"),
        ([0.3, 0.7], "shape"),
        ([["a", "b"]], "type"),
    ],
)
def test_what_is_no_probability_is_refused_by_the_model_s_name(p, message):
    with pytest.raises(InvalidInput, match=f"(?s)reference 7.*{message}"):
        confidence(p, [0], name="reference 7")
    with pytest.raises(InvalidInput, match="reference 7"):
        views(p, name="reference 7")


@pytest.mark.parametrize("labels", [[2], [-1], [0, 1], [0.0], ["0"]])
def test_labels_must_be_numbers_of_columns(labels):
    with pytest.raises(InvalidInput, match="labels"):
        confidence([[0.5, 0.5]], labels)


@pytest.mark.parametrize("losses", [[np.nan], [-1e-9], ["a"]])
def test_what_is_no_loss_is_refused(losses):
    with pytest.raises(InvalidInput, match="reference 7"):
        confidence_of_losses(losses, name="reference 7")


def test_a_prediction_that_is_not_finite_is_refused():
    with pytest.raises(InvalidInput, match="reference 7"):
        confidence_of_squares([np.nan], np.zeros(1), 1.0, name="reference 7")
    with pytest.raises(InvalidInput, match="scale"):
        confidence_of_squares([0.0], np.zeros(1), np.nan)
    with pytest.raises(InvalidInput, match="reference 7"):
        probabilities_of_scores([[np.nan, 1.0]], name="reference 7")
