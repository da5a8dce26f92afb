"""Dataset sensitivity: SSIM against a double loop, neighbours against brute force."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from dpsgd.naive import gradient
from expost.errors import InvalidInput
from expost.types import Audience, Neighbouring
from papers.d53.sensitivity import Sensitivity, dataset_sensitivity, gradient_sensitivity
from papers.d53.ssim import ssim_distances


def naive_ssim(x, y, largest):
    """Wang et al. (2004), Eq. 13 and Sec. 3, a window at a time."""
    weight = np.array(
        [
            [math.exp(-((i - 5) ** 2 + (j - 5) ** 2) / (2 * 1.5**2)) for j in range(11)]
            for i in range(11)
        ]
    )
    weight /= weight.sum()
    c1, c2 = (0.01 * largest) ** 2, (0.03 * largest) ** 2
    values = []
    for i in range(x.shape[0] - 10):
        for j in range(x.shape[1] - 10):
            a, b = x[i : i + 11, j : j + 11], y[i : i + 11, j : j + 11]
            mean_a, mean_b = (weight * a).sum(), (weight * b).sum()
            var_a = (weight * (a - mean_a) ** 2).sum()
            var_b = (weight * (b - mean_b) ** 2).sum()
            cov = (weight * (a - mean_a) * (b - mean_b)).sum()
            values.append(
                (2 * mean_a * mean_b + c1)
                * (2 * cov + c2)
                / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
            )
    return np.mean(values)


def pictures(count, seed=0, shape=(14, 17)):
    return np.random.default_rng(seed).integers(0, 256, size=(count, *shape)).astype(np.uint8)


def test_ssim_is_that_of_a_double_loop():
    mine, its = pictures(3), pictures(4, seed=1)
    # Whatever is alike: an image and itself, its negative, one that is all black.
    its = np.concatenate([its, mine[:1], 255 - mine[:1], np.zeros_like(mine[:1])])
    distances = ssim_distances(mine, its)
    for i, x in enumerate(mine.astype(float)):
        for j, y in enumerate(its.astype(float)):
            assert distances[i, j] == pytest.approx(1 - naive_ssim(x, y, 255.0), abs=1e-10)
    assert distances[0, 4] == pytest.approx(0, abs=1e-12)
    assert distances[0, 5] > 1
    # Real numbers have the range 1, and the same distances.
    np.testing.assert_allclose(ssim_distances(mine / 255, its / 255), distances, atol=1e-12)
    np.testing.assert_allclose(ssim_distances(mine[:, None], its), distances, atol=0)
    assert not np.allclose(
        ssim_distances(mine / 255, its / 255, largest=255.0), distances, atol=1e-3
    )


def test_blocks_change_nothing(monkeypatch):
    mine, its = pictures(3), pictures(9, seed=1)
    whole = ssim_distances(mine, its)
    monkeypatch.setattr("papers.d53.ssim._BLOCK", 2 * mine[0].size)
    np.testing.assert_allclose(ssim_distances(mine, its), whole, atol=1e-14)


def test_the_furthest_neighbours_are_found():
    mine, its = pictures(4), pictures(5, seed=1)
    its[3] = mine[2]
    sensitivity = dataset_sensitivity(mine, its)
    all_pairs = {
        (i, j): 1 - naive_ssim(x.astype(float), y.astype(float), 255.0)
        for i, x in enumerate(mine)
        for j, y in enumerate(its)
    }
    ordered = sorted(all_pairs, key=all_pairs.get)
    assert (sensitivity.row, sensitivity.candidate) == ordered[-1]
    assert sensitivity.value == pytest.approx(all_pairs[ordered[-1]])
    assert [tuple(pair) for pair in sensitivity.furthest(3)] == ordered[::-1][:3]
    assert [tuple(pair) for pair in sensitivity.nearest(3)] == ordered[:3]
    assert tuple(sensitivity.nearest(1)[0]) == (2, 3)
    assert sensitivity.audience is Audience.CURATOR_ONLY
    assert "20 neighbours" in repr(sensitivity)


def test_the_most_atypical_is_the_furthest_from_all_others():
    images = np.repeat(pictures(1), 5, axis=0)
    images[3] = 255 - images[3]
    sensitivity = dataset_sensitivity(images, relation="remove")
    assert (sensitivity.row, sensitivity.candidate) == (3, None)
    assert sensitivity.relation is Neighbouring.REMOVE
    distance = 1 - naive_ssim(images[0].astype(float), images[3].astype(float), 255.0)
    np.testing.assert_allclose(
        sensitivity.distances,
        [distance / 4, distance / 4, distance / 4, distance, distance / 4],
        atol=1e-12,
    )


def test_any_distance_serves():
    X, pool = np.array([[0.0], [3.0]]), np.array([[1.0], [-5.0], [3.5]])
    sensitivity = dataset_sensitivity(X, pool, distance=lambda a, b: np.abs(a - b.T))
    assert (sensitivity.row, sensitivity.candidate, sensitivity.value) == (1, 1, 8.0)
    for distance in (lambda a, b: np.zeros((1, 1)), lambda a, b: np.full((2, 3), np.nan)):
        with pytest.raises(InvalidInput, match="finite matrix"):
            dataset_sensitivity(X, pool, distance=distance)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def test_gradients_are_compared_exactly():
    rng = np.random.default_rng(2)
    X, y = 2 * rng.normal(size=(4, 3)), rng.integers(2, size=4)
    pool = np.concatenate([X[:1], 2 * rng.normal(size=(5, 3))]), np.append(y[0], [0, 1, 0, 1, 1])
    clip = 2.2

    def slow(x, t):
        point, label = torch.tensor(x), torch.tensor(t)
        return gradient(network(), nn.functional.cross_entropy, point, label, clip)

    mine = [slow(x, t) for x, t in zip(X, y, strict=True)]
    its = [slow(x, t) for x, t in zip(*pool, strict=True)]
    expected = np.array([[np.linalg.norm(g - other) for other in its] for g in mine])
    sensitivity = gradient_sensitivity(network(), X, y, pool, clip=clip)
    np.testing.assert_allclose(sensitivity.distances, expected, atol=1e-12)
    # Differences are not taken of squares: what is the same is at distance 0.
    assert sensitivity.distances[0, 0] == 0
    assert (sensitivity.row, sensitivity.candidate) == np.unravel_index(
        expected.argmax(), expected.shape
    )
    assert np.max(expected) <= 2 * clip
    lengths = gradient_sensitivity(network(), X, y, clip=clip, relation="remove")
    np.testing.assert_allclose(lengths.distances, [np.linalg.norm(g) for g in mine], atol=1e-12)
    assert any(np.linalg.norm(g) < 0.95 * clip for g in mine)


def test_two_distances_are_compared_by_ranks():
    rng = np.random.default_rng(0)
    first = Sensitivity(distances=rng.random((3, 4)), relation=Neighbouring.REPLACE)
    alike = Sensitivity(distances=np.exp(first.distances), relation=Neighbouring.REPLACE)
    against = Sensitivity(distances=-first.distances, relation=Neighbouring.REPLACE)
    assert first.rank_correlation(alike) == pytest.approx(1)
    assert first.rank_correlation(against) == pytest.approx(-1)
    with pytest.raises(InvalidInput, match="same rows and the same pool"):
        first.rank_correlation(
            Sensitivity(distances=first.distances[:2], relation=Neighbouring.REPLACE)
        )


def test_wrong_questions_are_refused():
    images = pictures(3)
    for ask, message in (
        (lambda: dataset_sensitivity(images), "needs a pool"),
        (lambda: dataset_sensitivity(images, images, relation="remove"), "takes no pool"),
        (lambda: dataset_sensitivity(images, images, relation="add"), "relation='add'"),
        (lambda: dataset_sensitivity(images, images, distance="psnr"), "distance='psnr'"),
        (lambda: dataset_sensitivity(images[:, :5], images[:, :5]), "at least 11"),
        (lambda: dataset_sensitivity(images, images[:, :12]), "of one size"),
        (lambda: dataset_sensitivity(images[:1], relation="remove"), "at least two"),
        (lambda: dataset_sensitivity(np.full((2, 11, 11), np.nan), images), "NaN"),
        (lambda: dataset_sensitivity(images, images).furthest(10), "9 neighbours"),
        (lambda: gradient_sensitivity(network(), [[0.0] * 3], [0], clip=1.0), "needs a pool"),
    ):
        with pytest.raises(InvalidInput, match=message):
            ask()
