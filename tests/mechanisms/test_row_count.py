"""The number of rows: what a divisor that depends on it reveals, and a noisy count."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2, norm

from expost.errors import InvalidInput, SeededReleaseWarning
from expost.mechanisms.row_count import (
    NoisyCount,
    RowCount,
    Scaling,
    divisor_loss,
    noisy_count,
)
from expost.risk import DPSGD, Composition


def test_the_divisor_of_issue_819():
    # 256 and 257 at d = 100,000: about 1.5 nats a step, from either side.
    assert divisor_loss(100_000, 256, 257) == pytest.approx(1.5, rel=0.03)
    assert divisor_loss(100_000, 257, 256) == pytest.approx(1.5, rel=0.03)
    # To second order d(κ − 1)²; the next order has another sign in the other direction.
    second = 100_000 / 256**2
    assert divisor_loss(100_000, 256, 257) == pytest.approx(second, rel=0.01)
    assert divisor_loss(100_000, 256, 256) == 0
    # m' = 2m: (d/2)(3 − ln 4), and m' = m/2: (d/2)(−3/4 + ln 4).
    assert divisor_loss(2, 1, 2) == pytest.approx(3 - math.log(4))
    assert divisor_loss(2, 2, 1) == pytest.approx(math.log(4) - 0.75)
    with pytest.raises(InvalidInput):
        divisor_loss(1, 0.0, 1)


@pytest.mark.parametrize(("divisor", "other"), [(60, 59), (59, 60), (8, 7)])
def test_it_is_the_expected_loss_of_the_noise(divisor, other):
    rng = np.random.default_rng(5)
    d, runs = 400, 20_000
    # What a step uses where the gradients of both data sets agree: noise over the divisor.
    squares = rng.chisquare(d, runs) / divisor**2
    losses = d * math.log(divisor / other) - 0.5 * squares * (divisor**2 - other**2)
    some = rng.normal(size=d) / divisor
    naive = norm.logpdf(some, scale=1 / divisor).sum() - norm.logpdf(some, scale=1 / other).sum()
    assert naive == pytest.approx(
        d * math.log(divisor / other) - 0.5 * np.sum(some**2) * (divisor**2 - other**2)
    )
    error = 4 * losses.std() / math.sqrt(runs)
    assert abs(losses.mean() - divisor_loss(d, divisor, other)) < error
    # It would have seen d instead of d/2.
    assert abs(losses.mean() - 2 * divisor_loss(d, divisor, other)) > error


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_a_noisy_count_has_two_sided_geometric_noise(epsilon):
    runs = 4000
    with pytest.warns(SeededReleaseWarning):
        drawn = Counter(
            noisy_count(10_000, epsilon=epsilon, random_state=seed).count - 10_000
            for seed in range(runs)
        )
    ratio = math.exp(-epsilon)
    law = {k: (1 - ratio) / (1 + ratio) * ratio ** abs(k) for k in range(-60, 61)}
    common = [k for k, p in law.items() if runs * p >= 8]
    rest = 1 - sum(law[k] for k in common)
    observed = [drawn[k] for k in common] + [runs - sum(drawn[k] for k in common)]
    expected = [runs * law[k] for k in common] + [runs * rest]

    def statistic(expected):
        return sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))

    limit = chi2.isf(1e-6, len(common))
    assert statistic(expected) < limit
    wrong = [runs * law[k] * math.exp(0.2 * abs(k) * epsilon) for k in common] + [runs * rest]
    assert statistic(wrong) > limit


def test_a_count_is_at_least_one_and_not_seeded_by_default():
    drawn = {noisy_count(1, epsilon=0.05).count for _ in range(60)}
    assert min(drawn) == 1
    assert len(drawn) > 5
    for options in ({"epsilon": 0}, {"epsilon": math.nan}, {"epsilon": 1e9}):
        with pytest.raises(InvalidInput):
            noisy_count(5, **options)


def scaling(**options):
    return Scaling(
        rows=600, dimension=1000, sampling_rate=0.1, divisor=60.0, source="a test", **options
    )


def test_what_is_stated_of_the_number_of_rows():
    unknown = scaling(neighbour_divisor=59.0)
    assert "59" in unknown.notice
    assert unknown.loss == divisor_loss(1000, 60, 59)
    for stated in ("public", "fixed", RowCount.PUBLIC):
        known, noisy = Scaling.parse(stated)
        assert noisy is None
        assert scaling(row_count=known).notice is None
        assert scaling(row_count=known).guarantee is None
    with pytest.raises(InvalidInput, match="row_count"):
        Scaling.parse("secret")
    released = NoisyCount(count=612, epsilon=0.25)
    known, noisy = Scaling.parse(released)
    paid = scaling(row_count=known, noisy=noisy)
    assert "0.25" in paid.notice
    steps = DPSGD(noise_multiplier=1.5, sampling_rate=0.1, steps=50)
    together = Composition((steps, paid.guarantee))
    least, most = steps.epsilon(1e-5), steps.epsilon(1e-5) + 0.25
    assert least < together.epsilon(1e-5) <= most * (1 + 1e-3)
    undivided = Scaling(rows=6, dimension=2, sampling_rate=0.5, divisor=None, source="a test")
    assert "divisor" not in undivided.notice.split(".")[0]
    assert undivided.loss is None
    assert dict(undivided.facts())["sampling rate (q)"] == "0.5"
