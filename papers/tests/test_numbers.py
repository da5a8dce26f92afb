"""The numbers in the CSV files, against what a plain loop, a plain sum or a plain grid gives."""

import math

import numpy as np
import pytest

from expost.errors import InvalidInput
from expost.noise import NormLaplace
from papers.common.exhibits import Table, thinned
from papers.datasets import Dataset
from papers.leblond import gaussian, onset, peak, points, questions, regimes
from papers.leblond.setting import (
    SIX,
    Effort,
    Setting,
    encoded_rows,
    normalised_rows,
)

from .conftest import SMALL, column, small_adult

GOLDEN = (1 + math.sqrt(5)) / 2


def seeds():
    """Return the children of seed 0, in the order of ``compute``."""
    return np.random.SeedSequence(0).spawn(5)


# The setting.


def test_rows_are_prepared_as_in_footnote_two():
    train = small_adult().rows("train")
    X, y = normalised_rows(train)
    raw = train.numeric(["age", "education-num"])
    expected = [
        [(a - raw[:, j].mean()) / raw[:, j].std() for j, a in enumerate(row)] for row in raw
    ]
    longest = max(math.hypot(*row) for row in expected)
    np.testing.assert_allclose(X, np.array(expected) / longest, rtol=1e-12)
    assert np.linalg.norm(X, axis=1).max() == pytest.approx(1)
    assert set(y) == {-1.0, 1.0}


def test_a_constant_column_is_refused():
    adult = small_adult()
    index = adult.table.column_names.index("capital-gain")
    flat = adult.table.set_column(index, "capital-gain", [np.zeros(adult.table.num_rows, int)])
    still = Dataset(name="x", table=flat, target="income", positive=">50K", source="x")
    with pytest.raises(InvalidInput, match="constant"):
        normalised_rows(still, SIX)


def test_all_columns_are_encoded_without_a_warning():
    X, y = encoded_rows(small_adult())
    assert X.shape == (400, 6 + 2 + 3 + 2)
    assert np.linalg.norm(X, axis=1).max() == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(y, small_adult().labels())


def test_refitting_finds_the_neighbours(setting):
    for row in setting.spectrum(onset.SPECTRUM):
        again = setting.refitted(int(row)) - setting.neighbours.base
        np.testing.assert_allclose(again, setting.neighbours.shift[row], rtol=1e-7)
    assert setting.spectrum([0.0, 1.0])[1] == setting.farthest == np.argmax(setting.distance)
    assert setting.distance[setting.spectrum([0.0])[0]] == setting.distance.min()


# Figs 5 and 6.


def naive_profile(setting, draws, beta):
    """LeBlond's recipe: for each model, norms of differences, sort, accumulate."""
    base, total = setting.neighbours.base, np.zeros(setting.rows)
    for b in draws:
        model = base + b / beta
        losses = [
            abs(np.linalg.norm(base + shift - model) - np.linalg.norm(base - model))
            for shift in setting.neighbours.shift
        ]
        total += np.sort(losses)
    return total / len(draws)


def test_profiles_are_those_of_a_plain_loop(reproduction, setting):
    noise = NormLaplace(rate=1.0, dimension=2)
    draws = noise.sample(SMALL.models, np.random.default_rng(seeds()[1]))
    for stem in ("fig5a", "fig5b"):
        power, beta, rank, mean = column(
            reproduction, stem, "log10_epsilon", "beta", "rank", "mean_exposure_over_beta"
        )
        for value in np.unique(power)[:: max(1, len(np.unique(power)) // 4)]:
            here = power == value
            assert beta[here][0] == pytest.approx(setting.rows * 10**value / 2, rel=1e-6)
            naive = naive_profile(setting, draws, beta[here][0])
            np.testing.assert_allclose(mean[here], naive[rank[here].astype(int) - 1], rtol=2e-6)
    # Power: within the transition a β that is 5 % off is a hundred tolerances off.
    middle = np.median(np.unique(beta))
    right, wrong = (naive_profile(setting, draws, scale * middle) for scale in (1.0, 1.05))
    assert np.max(np.abs(wrong / right - 1)) > 2e-4


def test_both_limits_of_the_profiles(setting):
    measured = regimes.measure_regimes(setting, SMALL.models, seeds()[1])
    draws = NormLaplace(rate=1.0, dimension=2).sample(
        SMALL.models, np.random.default_rng(seeds()[1])
    )
    directions = draws / np.linalg.norm(draws, axis=1)[:, None]
    first = np.mean([np.sort(np.abs(setting.neighbours.shift @ u)) for u in directions], axis=0)
    np.testing.assert_allclose(measured.first, first, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(measured.last, np.sort(setting.distance), rtol=1e-6)


def test_crossing_is_the_last_one_by_a_plain_search():
    rng = np.random.default_rng(1)
    betas = np.geomspace(1, 1e4, 30)
    progress = np.sort(rng.random((30, 50)), axis=0) + 0.02 * rng.normal(size=(30, 50))
    progress[-1], progress[0] = 1.5, -1
    crossings = regimes.crossing(betas, progress, 0.3)
    for here in range(50):
        last = max(k for k in range(30) if progress[k, here] <= 0.3)
        share = (0.3 - progress[last, here]) / (progress[last + 1, here] - progress[last, here])
        expected = betas[last] * (betas[last + 1] / betas[last]) ** share
        assert crossings[here] == pytest.approx(expected)
    assert np.all(np.isnan(regimes.crossing(betas, progress * 0, 0.3)))
    assert np.all(np.isnan(regimes.crossing(betas, progress * 0 + 1, 0.3)))


# Fig. 7.


def test_mean_exposures_are_those_of_sampled_models(reproduction, setting):
    rows, betas, mean = column(reproduction, "fig7", "i", "beta", "mean_exposure_over_beta")
    draws = NormLaplace(rate=1.0, dimension=2).sample(200_000, np.random.default_rng(5))
    base = setting.neighbours.base
    checked = 0
    for row in np.unique(rows)[::3]:
        shift = setting.neighbours.shift[int(row) - 1]
        for index in np.flatnonzero(rows == row)[20::40]:
            model = base + draws / betas[index]
            exposure = np.abs(
                np.linalg.norm(base + shift - model, axis=1) - np.linalg.norm(base - model, axis=1)
            )
            error = exposure.std() / math.sqrt(len(exposure))
            # False alarms: 6e-5 for each of a dozen points.
            assert abs(exposure.mean() - mean[index]) <= 4 * error + 1e-6 * mean[index]
            assert abs(exposure.mean() - 1.02 * mean[index]) > 4 * error
            checked += 1
    assert checked >= 8


def test_sampled_onsets_agree_with_the_law_and_see_a_wrong_one(setting):
    effort = Effort(batches=8, draws=20_000)
    measured = onset.measure_onset(setting, effort, np.random.SeedSequence(3))
    assert measured.constant == pytest.approx(3.87354, abs=1e-5)
    for root in measured.sampled:
        assert abs(root.value - 3.87354) <= 5 * root.error
        assert root.error < 0.06
    pooled = np.mean([root.value for root in measured.sampled])
    assert abs(pooled - 3.87354) < 0.05
    # Per-coordinate Laplace noise, as if the normaliser of d = 1 were meant, is rejected.
    wrong = onset.sampled_onset(
        setting, setting.farthest, _PerCoordinate(), effort, np.random.SeedSequence(4)
    )
    assert abs(wrong.value - 3.87354) > 5 * wrong.error


class _PerCoordinate:
    def sample(self, size, rng):
        return rng.laplace(size=(size, 2))


def test_the_gaussian_onset_is_seen_by_sampling(setting):
    measured = gaussian.measure_gaussian(
        setting, Effort(models=10, batches=8, draws=20_000), np.random.SeedSequence(3)
    )
    assert measured.leaves == pytest.approx(0.902, abs=5e-4)
    assert measured.arrives == pytest.approx(2.353, abs=5e-4)
    pooled = np.mean([root.value for root in measured.sampled])
    assert pooled == pytest.approx(measured.leaves, rel=0.02)
    # Its profiles, by a plain loop over the same draws.
    child = np.random.SeedSequence(3).spawn(1)[0]
    draws = np.random.default_rng(child).standard_normal((10, 2))
    for index in (3, -1):
        inverse = measured.inverse_scales[index]
        naive = np.mean(
            [
                np.sort([abs(inverse**2 * (s @ s) / 2 - inverse * (b @ s)) for s in shifts])
                for b in draws
                for shifts in [setting.neighbours.shift]
            ],
            axis=0,
        )
        np.testing.assert_allclose(measured.profile[index] * inverse, naive, rtol=1e-5, atol=1e-12)


# The coverage peak.


def mean_over_noise(function, step=0.02, angles=300):
    """E over b ∈ R² of density e^(−∥b∥)/(2π), by the midpoint rule in polar coordinates."""
    radius = step * (np.arange(1500) + 0.5)
    angle = 2 * math.pi * (np.arange(angles) + 0.5) / angles
    x, y = radius[:, None] * np.cos(angle), radius[:, None] * np.sin(angle)
    weight = step * radius * np.exp(-radius) / angles
    return float(np.sum(weight[:, None] * function(x, y)))


def test_the_peaks_lie_where_a_plain_grid_finds_them():
    t = np.arange(2.4, 3.3, 0.02)
    log_mean = [2 * math.log(a) - mean_over_noise(lambda x, y, a=a: np.hypot(x - a, y)) for a in t]
    mean = [a**2 * mean_over_noise(lambda x, y, a=a: np.exp(-np.hypot(x - a, y))) for a in t]
    assert t[np.argmax(log_mean)] == pytest.approx(peak.geometric_peak(2), abs=0.02)
    assert t[np.argmax(mean)] == pytest.approx(peak.arithmetic_peak(2), abs=0.02)
    # Power: neither is the other, nor the onset.
    assert abs(peak.geometric_peak(2) - peak.arithmetic_peak(2)) > 0.4


def test_the_coverages_themselves():
    for beta, distance in ((1.0, 0.7), (3.0, 2.5)):
        t = beta * distance
        log_mean = math.log(beta**2 / (2 * math.pi)) - mean_over_noise(
            lambda x, y, t=t: np.hypot(x - t, y)
        )
        mean = (
            beta**2 / (2 * math.pi) * mean_over_noise(lambda x, y, t=t: np.exp(-np.hypot(x - t, y)))
        )
        given = np.array([beta])
        assert peak.geometric_coverage(given, distance, 2)[0] == pytest.approx(log_mean, abs=1e-3)
        assert peak.arithmetic_coverage(given, distance, 2)[0] == pytest.approx(
            math.log(mean), abs=2e-3
        )
    # At distance 0: β²/(2π)·e^(−2).
    assert peak.geometric_coverage(np.array([3.0]), 0.0, 2)[0] == pytest.approx(
        math.log(9 / (2 * math.pi)) - 2
    )


def test_peaks_with_a_closed_form():
    # d = 1: E[ℓ] = t + e^(−t) − 1, and E[C(y, M)] ∝ t(1 + t)e^(−t).
    top = peak.geometric_peak(1)
    assert top * (1 - math.exp(-top)) == pytest.approx(1, abs=1e-8)
    assert peak.arithmetic_peak(1) == pytest.approx(GOLDEN, abs=1e-9)
    # d = 3: t³(t² + 3t + 3)e^(−t), from K_{5/2}.
    t = peak.arithmetic_peak(3)
    slope = 3 / t + (2 * t + 3) / (t * t + 3 * t + 3) - 1
    assert abs(slope) < 1e-9


@pytest.mark.parametrize("d", [1000, 3000])
def test_peaks_of_many_dimensions(d):
    assert peak.geometric_peak(d) / d == pytest.approx(math.sqrt(GOLDEN), rel=1e-3)
    assert peak.arithmetic_peak(d) / d == pytest.approx(math.sqrt(2), rel=1e-3)


def test_the_slope_of_the_loss_at_one_dimension():
    t = np.array([0.01, 0.5, 3.0, 20.0])
    np.testing.assert_allclose(peak.loss_slope(t, 1), t * (1 - np.exp(-t)), rtol=1e-8)


# The open questions.


def test_dimensions_and_regularizations(reproduction):
    d, leaves, arrives = column(reproduction, "dimension", "d", "t_leaves", "t_arrives")
    np.testing.assert_array_equal(d, [1, 2, 6])
    np.testing.assert_allclose(leaves[1:], [3.87354, 4.11611], atol=1e-5)
    assert np.all(arrives > leaves)
    train = small_adult().rows("train")
    measured = questions.measure_regularizations(train, (0.01,))
    for columns in (("age", "education-num"), SIX):
        X, y = normalised_rows(train, columns)
        setting = Setting.of(X, y, regularization=0.01)
        # β = nΛε/2, at the exact t over the farthest and over the median row.
        where = setting.sweep().transition
        rate = len(X) * 0.01 / 2
        low = where.leaves / (rate * setting.distance.max())
        order = np.sort(setting.distance)
        high = where.arrives / (rate * order[len(X) // 2])
        width = len(columns)
        assert measured.low[width][0] == pytest.approx(low, rel=2e-3)
        assert measured.high[width][0] == pytest.approx(high, rel=1e-2)
        assert measured.worst_case_error[width][0] == pytest.approx(
            setting.worst_case_error.max(), rel=2e-3
        )
        z = X @ setting.neighbours.base
        bend = np.exp(-z) / (1 + np.exp(-z)) ** 2
        naive = np.linalg.eigvalsh(sum(b * np.outer(x, x) for b, x in zip(bend, X, strict=True)))
        assert measured.flattest[width] == pytest.approx(naive[0] / len(X), rel=1e-3)


# Fig. 8 and the tables.


def test_samples_lie_around_their_centres():
    X, y = normalised_rows(small_adult().rows("train"))
    drawn = points.draw_samples(X, y, np.random.SeedSequence(0))
    assert drawn.base.shape == (9, 20, 2)
    assert drawn.neighbours.shape == (9, 50, 20, 2)
    setting = Setting.of(X[:100], y[:100])
    for index, power in enumerate(drawn.log_epsilons):
        beta = 100 * 10**power / 2
        for centre, models in (
            (setting.neighbours.base, drawn.base[index]),
            (setting.refitted(int(drawn.rows[7])), drawn.neighbours[index, 7]),
        ):
            lengths = beta * np.linalg.norm(models - centre, axis=1)
            # ∥b∥ ~ Gamma(2): mean 2, standard deviation √2; 20 draws.
            assert abs(lengths.mean() - 2) < 5 * math.sqrt(2 / 20)
    far = np.argmax(setting.distance[drawn.rows])
    assert drawn.order[far] == 1.0


def test_tables_are_plain_csv():
    table = Table(columns={"i": np.array([1, 2]), "x": np.array([0.1, 1e-9]), "what": ["a,b", "c"]})
    assert table.csv() == b'i,x,what\n1,0.1,"a,b"\n2,1e-09,c\n'
    with pytest.raises(InvalidInput, match="one length"):
        Table(columns={"a": [1], "b": [1, 2]})


@pytest.mark.parametrize("count", [1, 7, 400, 401, 32_561])
def test_thinned_ranks_keep_both_ends(count):
    places = thinned(count)
    assert places[0] == 0
    assert places[-1] == count - 1
    assert len(places) <= 400
    assert np.all(np.diff(places) > 0)
