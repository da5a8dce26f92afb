"""Shares and their limits, against SciPy and brute force."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from expost._counts import Share, lower_limit, upper_limit
from expost.errors import InvalidInput


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("trials", [1, 2, 17, 400, 1000])
def test_the_interval_is_clopper_and_pearsons(trials, confidence):
    for hits in {0, 1, trials // 3, trials - 1, trials}:
        share = Share(hits=hits, trials=trials, confidence=confidence)
        exact = binomtest(hits, trials).proportion_ci(confidence, method="exact")
        expected = pytest.approx((exact.low, exact.high), rel=1e-10)
        assert (share.low, share.high) == expected
        assert share.low <= share.value <= share.high
        miss = (1 - confidence) / 2
        assert (lower_limit(hits, trials, miss), upper_limit(hits, trials, miss)) == expected


def test_limits_miss_no_more_often_than_they_may():
    # Summed over all counts, not sampled; a mixture of two rates spreads less than one rate.
    trials, rate, miss = 40, 0.3, 0.05
    lows = np.array([lower_limit(k, trials, miss) for k in range(trials + 1)])
    single = [
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(trials + 1)
    ]
    assert np.sum(np.array(single)[lows > rate]) <= miss
    mixed = np.convolve(
        [math.comb(20, k) * 0.1**k * 0.9 ** (20 - k) for k in range(21)],
        [math.comb(20, k) * 0.5**k * 0.5 ** (20 - k) for k in range(21)],
    )
    assert np.sum(mixed[lows > rate]) <= miss
    # With three times the miss it would not hold.
    short = np.array([lower_limit(k, trials, 3 * miss) for k in range(trials + 1)])
    assert np.sum(np.array(single)[short > rate]) > miss


def test_wrong_counts_are_refused():
    for make, message in (
        (lambda: Share(hits=3, trials=2), "hits=3"),
        (lambda: Share(hits=0, trials=0), "trials=0"),
        (lambda: Share(hits=0, trials=1, confidence=1.0), "confidence=1.0"),
    ):
        with pytest.raises(InvalidInput, match=message):
            make()
    assert str(Share(hits=1, trials=4)) == "0.250 (0.006 … 0.806)"
