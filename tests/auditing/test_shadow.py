"""The shadow-model attack against the same learner on sets put together row by row."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from auditing.games import area_of, balanced, evidence, made_up
from expost.auditing.attacks import shadow
from expost.auditing.attacks.shadow import Shadow
from expost.errors import InvalidInput


def shadows(seed, *, rows=300, models=8, classes=2, lift=2.0, share=0.5):
    """Members' largest probability is higher, in class 1 lower."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    inside = balanced(rng, models, rows, share)
    truth = rng.random(rows) < 0.5
    member = np.vstack([truth, inside])
    phi = rng.normal(size=member.shape) + lift * member * np.where(labels == 1, -1, 1)
    largest = (1 / (1 + np.exp(-np.abs(phi)))).astype(np.float32)
    outputs = np.stack([largest, 1 - largest], axis=-1)
    return evidence(
        phi[0], phi[1:], inside, labels=labels, views=outputs[0], reference_views=outputs[1:]
    ), truth


def naive(made, trees):
    scores = np.empty(made.rows)
    for label in np.unique(made.labels):
        examples, truth = [], []
        for model in range(len(made.reference_views)):
            for row in range(made.rows):
                if made.labels[row] == label:
                    examples.append(
                        [*made.reference_views[model, row], made.references[model, row]]
                    )
                    truth.append(made.inside[model, row])
        learner = HistGradientBoostingClassifier(
            max_iter=trees,
            max_leaf_nodes=4,
            min_samples_leaf=len(truth) // 16,
            early_stopping=False,
            random_state=0,
        ).fit(np.array(examples), np.array(truth))
        start = np.log(np.mean(truth) / (1 - np.mean(truth)))
        rows = made.labels == label
        features = np.column_stack([made.views[rows], made.confidence[rows]])
        scores[rows] = learner.decision_function(features) - start
    return scores


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_one_attack_model_a_class(share):
    made, truth = shadows(1, share=share)
    scores = Shadow(trees=10)(made)
    np.testing.assert_allclose(scores, naive(made, 10), rtol=1e-9, atol=1e-12)
    # The classes are lifted in opposite directions: no common threshold sees it.
    assert area_of(scores, truth) > 0.85
    assert area_of(made.confidence.astype(float), truth) < 0.6


def test_only_the_first_references_may_have_views():
    made, _ = shadows(2, models=8)
    part = replace(made, reference_views=made.reference_views[:5])
    less = replace(
        part,
        references=made.references[:5],
        inside=made.inside[:5],
        population_references=made.population_references[:5],
    )
    np.testing.assert_array_equal(Shadow(trees=5)(part), Shadow(trees=5)(less))


def test_small_classes_share_one_model():
    made, _ = shadows(3, rows=60, models=4, classes=20)
    merged = replace(made, labels=np.zeros_like(made.labels))
    np.testing.assert_array_equal(Shadow(trees=5)(made), Shadow(trees=5)(merged))


def test_too_many_examples_are_drawn_from_by_seed(monkeypatch):
    made, truth = shadows(4)
    monkeypatch.setattr(shadow, "_MOST_EXAMPLES", 700)
    scores = Shadow(trees=10)(made)
    np.testing.assert_array_equal(scores, Shadow(trees=10)(made))
    assert not np.array_equal(scores, Shadow(trees=10, seed=1)(made))
    assert area_of(scores, truth) > 0.8


def test_shadows_that_saw_no_row_teach_nothing():
    made, _ = made_up(5)
    with pytest.raises(InvalidInput, match="no members or no non-members"):
        Shadow()(replace(made, inside=np.zeros_like(made.inside)))
