"""The rank-averaged profile against the plain loop of the paper's recipe, on the same draws."""

import tracemalloc

import numpy as np
import pytest

from expost._order import Histogram
from expost.epsilon import ranked
from expost.epsilon.ranked import RankedProfiles, rank_averages, sketched_ranks
from expost.neighbouring.shifts import Shifts
from expost.noise import Gaussian, NormLaplace

RESOLUTIONS = np.array([30.0, 1.0, 0.1, 1e-3])
# Exposures are rounded to single precision before they are averaged.
ROUNDED = 2.0**-23


def unit(noise, d):
    return (
        NormLaplace(rate=1.0, dimension=d)
        if noise == "laplace"
        else Gaussian(scale=1.0, dimension=d)
    )


def make(noise="laplace", n=60, d=3, models=25, seed=0):
    """Structured shifts, as neighbours have them, and the same as a plain array."""
    rng = np.random.default_rng(seed)
    X, matrix = rng.normal(size=(n, d)), rng.normal(size=(d, d))
    scale = rng.exponential(size=n) * 0.1
    constant = 0.05 * rng.normal(size=d)
    shifts = Shifts(constant=constant, scale=scale, X=X, matrix=matrix @ matrix.T)
    plain = constant + scale[:, None] * (X @ (matrix @ matrix.T))
    law = unit(noise, d)
    return shifts, plain, law, law.sample(models, rng)


def naive(plain, noise, resolutions, draws):
    """Per model: norms of differences, a sort; then mean and standard error of each rank."""
    mean, error = [], []
    for resolution in resolutions:
        profiles = []
        for draw in draws:
            b = resolution * draw.astype(np.longdouble)
            apart = np.sqrt(((b - plain) ** 2).sum(axis=1))
            length = np.sqrt((b**2).sum())
            if noise == "laplace":
                loss = (apart - length) / resolution
            else:
                loss = (apart**2 - length**2) / (2 * resolution**2)
            profiles.append(np.sort(np.abs(loss)))
        mean.append(np.mean(profiles, axis=0))
        error.append(np.std(profiles, axis=0, ddof=1) / np.sqrt(len(draws)))
    return np.array(mean, dtype=np.float64), np.array(error, dtype=np.float64)


def run(shifts, plain, law, draws, resolutions=RESOLUTIONS, **options):
    distance = np.linalg.norm(plain, axis=1)
    return rank_averages(shifts, distance, law, resolutions, draws, **options)


def same(left: RankedProfiles, right: RankedProfiles):
    for name in ("ranks", "mean", "error"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_against_the_plain_loop(noise, d):
    shifts, plain, law, draws = make(noise, d=d)
    result = run(shifts, plain, law, draws)
    mean, error = naive(plain, noise, RESOLUTIONS, draws)
    size = np.abs(mean).max(axis=1, keepdims=True)
    np.testing.assert_allclose(result.mean, mean, rtol=ROUNDED, atol=0)
    assert np.all(np.abs(result.error - error) <= 4 * ROUNDED * size)
    assert result.ranks.tolist() == list(range(1, 61))
    assert result.resolution == 2.0**-21
    assert np.all(np.diff(result.mean, axis=1) >= 0), "ascending"
    # Power: neither another noise nor an unsorted mean would pass.
    wrong, _ = naive(plain, "gaussian" if noise == "laplace" else "laplace", RESOLUTIONS, draws)
    assert np.max(np.abs(wrong / mean - 1)) > 0.05
    profiles, _ = naive(plain[:1], noise, RESOLUTIONS, draws)
    assert not np.allclose(result.mean[:, 0], profiles[:, 0], rtol=0.05)


def test_rank_averages_are_not_averages_of_rows():
    """The ranking changes from model to model: the least rank lies below every row's own mean."""
    shifts, plain, law, draws = make(models=200)
    result = run(shifts, plain, law, draws, resolutions=np.ones(1))
    rows = np.array([naive(row[None], "laplace", np.ones(1), draws)[0][0, 0] for row in plain])
    assert result.mean[0, 0] < 0.6 * rows.min()
    assert result.mean[0].sum() == pytest.approx(rows.sum(), rel=1e-6), "a sort keeps the sum"


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_another_sampler_agrees(noise):
    """Losses of models drawn by another route; five standard errors at each of 60 ranks."""
    shifts, plain, law, draws = make(noise, models=3000)
    result = run(shifts, plain, law, draws, resolutions=np.array([0.2]))
    rng = np.random.default_rng(99)
    direction = rng.normal(size=(3000, 3))
    if noise == "laplace":
        direction /= np.linalg.norm(direction, axis=1)[:, None]
        others = direction * rng.exponential(size=(3000, 3)).sum(axis=1)[:, None]
    else:
        others = direction
    mean, error = naive(plain, noise, np.array([0.2]), others)
    spread = np.hypot(result.error, error)
    assert np.all(np.abs(result.mean - mean) < 5 * spread)
    # Power: 10 % more noise is seen, and a Gamma(d − 1) norm even more so.
    mean, _ = naive(plain, noise, np.array([0.22]), others)
    assert np.max(np.abs(result.mean - mean) / spread) > 8


def test_the_standard_error_is_that_of_the_mean():
    """Over 200 repetitions the means scatter as the errors say (within 20 %)."""
    shifts, plain, law, _ = make(n=20)
    rng = np.random.default_rng(5)
    means, errors = [], []
    for _ in range(200):
        result = run(shifts, plain, law, law.sample(12, rng), resolutions=np.ones(1), workers=1)
        means.append(result.mean[0])
        errors.append(result.error[0] ** 2)
    ratio = np.std(means, axis=0, ddof=1) / np.sqrt(np.mean(errors, axis=0))
    assert np.all((ratio > 0.8) & (ratio < 1.25))


def test_one_model_has_no_spread():
    shifts, plain, law, draws = make(models=1)
    assert np.all(run(shifts, plain, law, draws).error == np.inf)


@pytest.mark.parametrize("limit", [200_000, 0], ids=["sorted", "sketched"])
def test_workers_change_no_byte(monkeypatch, limit):
    monkeypatch.setattr(ranked, "MOST_ROWS", limit)
    shifts, plain, law, draws = make(n=500)
    first = run(shifts, plain, law, draws, workers=1)
    for workers in (2, 3, 7, None):
        same(first, run(shifts, plain, law, draws, workers=workers))


def close(left, right):
    np.testing.assert_array_equal(left.ranks, right.ranks)
    np.testing.assert_allclose(left.mean, right.mean, rtol=1e-10)
    np.testing.assert_allclose(left.error, right.error, rtol=1e-8)


def test_blocks_change_nothing(monkeypatch):
    shifts, plain, law, draws = make(n=300)
    first = run(shifts, plain, law, draws)
    for products in (1, 300, 700, 2**30):
        monkeypatch.setattr(ranked, "_BLOCK_PRODUCTS", products)
        close(first, run(shifts, plain, law, draws))
    monkeypatch.setattr(ranked, "MOST_ROWS", 0)
    first = run(shifts, plain, law, draws)
    for models, rows in ((1, 2**16), (3, 7), (100, 299), (8, 300)):
        monkeypatch.setattr(ranked, "_SKETCHED_MODELS", models)
        monkeypatch.setattr(ranked, "_SKETCHED_ROWS", rows)
        close(first, run(shifts, plain, law, draws))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("d", [1, 4])
def test_the_sketch_agrees_with_the_sort(monkeypatch, noise, d):
    """The same draws, so that what differs is the sketch alone, and within what it states."""
    shifts, plain, law, draws = make(noise, n=2500, d=d, models=11)
    exact = run(shifts, plain, law, draws)
    monkeypatch.setattr(ranked, "MOST_ROWS", 2499)
    result = run(shifts, plain, law, draws)
    assert result.resolution == Histogram.RELATIVE_ERROR
    assert len(result.ranks) < 2500
    at = exact.mean[:, result.ranks - 1]
    slack = (result.resolution + ROUNDED) * at + Histogram.ABSOLUTE_ERROR * exact.mean[:, -1:] * 1e3
    assert np.all(np.abs(result.mean - at) <= slack)
    largest = exact.mean.max(axis=1, keepdims=True)
    assert np.all(np.abs(result.error - exact.error[:, result.ranks - 1]) <= 2**-9 * largest)
    # Power: the neighbouring rank is another figure at the sparse top, by more than the slack.
    assert np.any(np.abs(exact.mean[:, result.ranks[:-1]] - at[:, :-1]) > slack[:, :-1])


def test_exposures_stay_below_the_sketches_top():
    for noise in ("laplace", "gaussian"):
        _, plain, law, draws = make(noise, models=400)
        # A row right behind the largest noise, as far off as any.
        far = np.linalg.norm(plain, axis=1).max()
        norms = np.linalg.norm(draws, axis=1)
        behind = -far * draws[np.argmax(norms)] / norms.max()
        plain = np.vstack([plain, behind])
        sweep = ranked.SampledModels(
            shifts=Shifts.dense(plain),
            distance=np.linalg.norm(plain, axis=1),
            noise=law,
            resolutions=RESOLUTIONS,
            draws=draws,
        )
        for index, resolution in enumerate(RESOLUTIONS):
            top = sweep.largest(index)
            b = resolution * draws
            largest = max(
                np.max(np.abs(law.loss(b / resolution, row / resolution))) for row in plain
            )
            assert largest <= top
            assert top <= largest * (1 + 1e-6), "and it is attained"


def test_the_sketch_holds_no_array_of_models_by_rows(monkeypatch):
    """128 models of 60,000 rows would be 61 MB; blocks, sketches and a few vectors are not."""
    monkeypatch.setattr(ranked, "MOST_ROWS", 1000)
    monkeypatch.setattr(ranked, "_SKETCHED_ROWS", 2**13)
    rng = np.random.default_rng(0)
    shifts, law = Shifts.dense(rng.normal(size=(60_000, 2))), unit("laplace", 2)
    draws, distance = law.sample(128, rng), shifts.norms()
    run_once = lambda some: rank_averages(  # noqa: E731 (measured twice)
        shifts, distance, law, np.ones(1), some, workers=1
    )
    run_once(draws[:2])
    tracemalloc.start()
    try:
        run_once(draws)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8e6 < 128 * 60_000 * 8 / 7


@pytest.mark.parametrize("rows", [200_001, 1_000_000, 10_000_000])
def test_two_thousand_ranks(rows):
    ranks = sketched_ranks(rows)
    assert len(ranks) == 2000
    assert ranks[0] == 1
    assert ranks[-1] == rows
    assert np.all(np.diff(ranks) > 0)
    assert np.all(np.isin(np.arange(rows - 40, rows + 1), ranks)), "the most exposed, one by one"
    assert np.max(np.diff(ranks)) <= rows / 990, "and nowhere a hole"


def test_few_rows_have_as_many_ranks():
    assert sketched_ranks(7).tolist() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("limit", [200_000, 0], ids=["sorted", "sketched"])
def test_rows_that_do_not_move_the_model(monkeypatch, noise, limit):
    monkeypatch.setattr(ranked, "MOST_ROWS", limit)
    law = unit(noise, 2)
    draws = law.sample(5, np.random.default_rng(0))
    plain = np.zeros((6, 2))
    result = run(Shifts.dense(plain), plain, law, draws)
    np.testing.assert_array_equal(result.mean, np.zeros((4, 6)))
    plain[3] = [0.3, 0.4]
    result = run(Shifts.dense(plain), plain, law, draws)
    assert np.all(result.mean[:, :5] == 0)
    assert np.all(result.mean[:, 5] > 0)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_resolutions_of_any_size(noise):
    """ε from 1e-50 to 1e50 is taken: exposures of that size are averaged to the same digits."""
    shifts, plain, law, draws = make(noise)
    sizes = np.array([1e50, 1e44, 1e39, 1e20]) if noise == "laplace" else np.array([1e40, 1e25])
    sizes = np.concatenate([sizes, 1 / sizes])
    result = run(shifts, plain, law, draws, resolutions=sizes)
    assert np.all(np.isfinite(result.mean))
    for mean, size in zip(result.mean, sizes, strict=True):
        # In units of the noise the rows are plain/size apart: scale lengths, not the noise.
        expected, _ = naive(plain / size, noise, np.ones(1), draws)
        if size > 1:
            # To first order the loss is −b·s/∥b∥ (−b·s), which the definition would cancel.
            inner = np.abs(draws @ plain.T) / size
            if noise == "laplace":
                inner /= np.linalg.norm(draws, axis=1)[:, None]
            expected = np.sort(inner, axis=1).mean(axis=0)[None]
        np.testing.assert_allclose(mean, expected[0], rtol=1e-6)


def test_inner_products_of_a_block():
    shifts, plain, _, draws = make(n=40)
    for rows in (slice(0, 40), slice(3, 11), slice(39, 40), slice(5, 5)):
        np.testing.assert_allclose(
            shifts.inners(draws, rows), draws @ plain[rows].T, rtol=1e-10, atol=1e-12
        )
        np.testing.assert_allclose(
            Shifts.dense(plain).inners(draws, rows), draws @ plain[rows].T, rtol=1e-10, atol=1e-12
        )
    for index, draw in enumerate(draws[:3]):
        np.testing.assert_allclose(
            shifts.inners(draws, slice(0, 40))[index], shifts.inner(draw), rtol=1e-10, atol=1e-12
        )
