"""Several snapshots put together: against densities written out, and against single snapshots."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.metrics import roc_auc_score

from expost.auditing.attacks.lira import LiraOffline, LiraOnline
from expost.auditing.evidence import Evidence
from expost.errors import InvalidInput
from papers.lecture.snapshots import (
    LECTURE,
    SHRINKAGE,
    Snapshots,
    accuracy_by_epochs,
    mean_score,
    offline_score,
    ratio_score,
    snapshot_scores,
)


def training(n=400, models=16, epochs=4, *, gap=1.0, together=0.6, seed=0, population=50):
    """Simulate φ that rises by ``gap`` a snapshot for members; a model's noise is correlated.

    Half of the rows move, half do not; the target is one more model.
    """
    rng = np.random.default_rng(seed)
    inside = np.array([rng.permutation(models) < models // 2 for _ in range(n)]).T
    truth = rng.random(n) < 0.5
    everyone = np.vstack([truth, inside])
    level = rng.normal(0, 3, size=n)
    moves = np.where(np.arange(n) % 2, gap, 0.0)
    common = rng.normal(size=(models + 1, n))
    phi = np.array(
        [
            level
            + everyone * moves * (t + 1) / epochs
            + np.sqrt(together) * common
            + np.sqrt(1 - together) * rng.normal(size=(models + 1, n))
            for t in range(epochs)
        ]
    )
    outside = rng.normal(0, 3, size=(epochs, population))
    snapshots = Snapshots(
        epochs=5 * np.arange(1, epochs + 1),
        confidence=phi[:, 0],
        references=phi[:, 1:],
        inside=inside,
        population=outside,
    )
    return snapshots, truth


def side(snapshots, with_row):
    """(s, n) means and (s, s) covariance, by a loop over rows and references."""
    s, _, n = snapshots.references.shape
    chosen = snapshots.inside if with_row else ~snapshots.inside
    mean, total, freedom = np.empty((s, n)), np.zeros((s, s)), 0
    for j in range(n):
        theirs = snapshots.references[:, chosen[:, j], j].astype(np.float64)
        mean[:, j] = theirs.mean(axis=1)
        for k in range(theirs.shape[1]):
            total += np.outer(theirs[:, k] - mean[:, j], theirs[:, k] - mean[:, j])
        freedom += theirs.shape[1] - 1
    covariance = total / freedom
    return mean, (1 - SHRINKAGE) * covariance + SHRINKAGE * np.diag(np.diag(covariance))


def naive(snapshots, i, with_row, joint):
    """log N(φ; μ, (1 + 1/k)Σ) of one row."""
    mean, covariance = side(snapshots, with_row)
    covariance = covariance if joint else np.diag(np.diag(covariance))
    k = int(np.sum(snapshots.inside[:, i] == with_row))
    return multivariate_normal(mean[:, i], (1 + 1 / k) * covariance).logpdf(
        snapshots.confidence[:, i]
    )


@pytest.mark.parametrize("joint", [True, False])
def test_the_ratio_is_that_of_two_densities(joint, monkeypatch):
    snapshots, _ = training(n=12, models=8, epochs=3)
    scores = ratio_score(snapshots, joint=joint)
    slow = [naive(snapshots, i, True, joint) - naive(snapshots, i, False, joint) for i in range(12)]
    np.testing.assert_allclose(scores, slow, rtol=1e-5, atol=1e-5)
    other = ratio_score(snapshots, joint=not joint)
    assert not np.allclose(other, scores, atol=0.01)
    monkeypatch.setattr("expost._numerics._BLOCK_ROWS", 5)
    np.testing.assert_allclose(ratio_score(snapshots, joint=joint), scores, atol=1e-5)


def test_one_snapshot_is_lira():
    models = 600
    snapshots, _ = training(epochs=1, n=60, models=models)
    evidence = Evidence(
        confidence=snapshots.confidence[0],
        labels=np.zeros(60, np.int32),
        references=snapshots.references[0],
        inside=snapshots.inside,
        population=np.zeros(0, np.float32),
        population_labels=np.zeros(0, np.int32),
        population_references=np.zeros((models, 0), np.float32),
        views=np.zeros((60, 0), np.float32),
        reference_views=np.zeros((0, 60, 0), np.float32),
    )
    # Up to the 1 + 1/k of a mean of k = 300 references.
    online, offline = LiraOnline(estimates="pooled"), LiraOffline(estimates="pooled")
    np.testing.assert_allclose(ratio_score(snapshots), online(evidence), atol=0.02)
    np.testing.assert_allclose(offline_score(snapshots), offline(evidence), atol=0.02)
    assert not np.allclose(offline_score(snapshots), online(evidence), atol=0.02)


def test_the_mean_is_that_of_standardised_confidences():
    snapshots, _ = training(n=9, epochs=3, population=6)
    scores = mean_score(snapshots)
    for i in range(9):
        terms = [
            (snapshots.confidence[t, i] - np.mean(snapshots.population[t]))
            / np.std(snapshots.population[t])
            for t in range(3)
        ]
        assert scores[i] == pytest.approx(np.mean(terms), rel=1e-5)
    alone = Snapshots(epochs=snapshots.epochs, confidence=snapshots.confidence)
    scores = mean_score(alone)
    assert scores.mean() == pytest.approx(0, abs=1e-6)
    # What is the same for all says nothing, and divides nothing by 0.
    flat = np.vstack([snapshots.confidence[:1], np.full((1, 9), 36.0)])
    half = mean_score(Snapshots(epochs=np.array([1, 2]), confidence=flat))
    single = mean_score(Snapshots(epochs=np.array([1]), confidence=flat[:1]))
    np.testing.assert_allclose(half, single / 2)


def test_offline_weighs_snapshots_by_what_they_add():
    snapshots, _ = training(n=300, epochs=3, together=0.8, gap=0.0)
    mean, covariance = side(snapshots, False)
    deviation = np.sqrt(np.diag(covariance))
    weights = np.linalg.inv(covariance) @ deviation
    scale = np.sqrt(weights @ covariance @ weights * (1 + 1 / 8))
    slow = [weights @ (snapshots.confidence[:, i] - mean[:, i]) / scale for i in range(300)]
    scores = offline_score(snapshots)
    np.testing.assert_allclose(scores, slow, rtol=1e-4, atol=1e-4)
    assert np.std(scores) == pytest.approx(1, abs=0.1)


def area(function, **options):
    areas = [
        roc_auc_score(truth, function(snapshots))
        for snapshots, truth in (training(seed=seed, **options) for seed in range(5))
    ]
    return float(np.mean(areas))


def test_several_snapshots_tell_more_than_the_last_and_references_more_than_none():
    last = area(lambda s: ratio_score(s.at(s.epochs[-1:])), together=0.0, gap=2.0)
    several = area(ratio_score, together=0.0, gap=2.0)
    assert several > last + 0.015
    assert several > area(mean_score, together=0.0, gap=2.0) + 0.1
    assert abs(area(ratio_score, gap=0.0) - 0.5) < 0.04
    # Where all that differs goes together, later snapshots less earlier ones tell most.
    apart = area(lambda s: ratio_score(s, joint=False), together=0.95)
    assert area(ratio_score, together=0.95) > apart + 0.03


def test_which_scores_are_possible():
    snapshots, _ = training(n=20)
    assert set(snapshot_scores(snapshots)) == {
        "snapshots-mean",
        "snapshots-offline",
        "snapshots-ratio",
    }
    without = Snapshots(
        epochs=snapshots.epochs,
        confidence=snapshots.confidence,
        references=snapshots.references,
        inside=np.zeros_like(snapshots.inside),
    )
    assert set(snapshot_scores(without)) == {"snapshots-mean", "snapshots-offline"}
    with pytest.raises(InvalidInput, match="trained with it"):
        ratio_score(without)
    alone = Snapshots(epochs=snapshots.epochs, confidence=snapshots.confidence)
    assert set(snapshot_scores(alone)) == {"snapshots-mean"}
    with pytest.raises(InvalidInput, match="trained without it"):
        offline_score(alone)


def test_references_that_never_differ_and_certain_models():
    snapshots, truth = training(n=20, models=4)
    flat = Snapshots(
        epochs=snapshots.epochs,
        confidence=np.full((4, 20), 80.0),
        references=np.full((4, 4, 20), 36.0),
        inside=snapshots.inside[:4],
    )
    for scores in snapshot_scores(flat).values():
        assert np.all(np.isfinite(scores))
        assert np.ptp(scores) == pytest.approx(0, abs=1e-9)
    assert flat.confidence.max() == 36
    assert len(truth) == 20


def test_the_table_has_a_line_for_each_set_of_epochs():
    snapshots, truth = training(epochs=6, gap=3.0)
    table = accuracy_by_epochs(snapshots, truth, [(5,), (5, 10, 15), (20, 25, 30)])
    assert table.score == "ratio"
    assert [line.epochs for line in table.lines] == [(5,), (5, 10, 15), (20, 25, 30)]
    accuracies = [line.figures.accuracy for line in table.lines]
    assert accuracies[0].value < accuracies[2].value
    assert accuracies[2].low > 0.5
    text = str(table).splitlines()
    assert text[0].startswith("Observed epochs")
    assert text[2].startswith("5, 10, 15")
    assert str(accuracies[1]) in text[2]
    assert table.to_json()["lines"][2]["epochs"] == [20, 25, 30]
    every = accuracy_by_epochs(snapshots, truth, score="mean", confidence=0.9)
    assert [len(line.epochs) for line in every.lines] == [1, 2, 3, 4, 5, 6]
    assert every.lines[0].figures.auc.confidence == 0.9
    assert LECTURE[0] == (5, 10, 15, 20, 25)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": np.array([5, 5, 15, 20])}, "must rise"),
        ({"confidence": np.zeros((3, 20))}, "must have 4 rows"),
        ({"confidence": np.full((4, 20), np.nan)}, "confidence: must hold log odds"),
        ({"references": np.zeros((4, 16, 19))}, "references: has the shape"),
        ({"inside": np.zeros((15, 20), bool)}, "inside: must hold one bool"),
        ({"population": np.zeros((2, 5))}, "population: has the shape"),
    ],
    ids=str,
)
def test_wrong_shapes_are_refused(change, message):
    snapshots, _ = training(n=20)
    fields = {name: getattr(snapshots, name) for name in snapshots.__dataclass_fields__}
    with pytest.raises(InvalidInput, match=message):
        Snapshots(**fields | change)


def test_epochs_that_were_not_observed_are_refused():
    snapshots, truth = training(n=20)
    with pytest.raises(InvalidInput, match="must be among the observed"):
        snapshots.at([5, 7])
    with pytest.raises(InvalidInput, match="sets: must name"):
        accuracy_by_epochs(snapshots, truth, [])
    with pytest.raises(InvalidInput, match="score='best'"):
        accuracy_by_epochs(snapshots, truth, score="best")
