"""Several rows at once, rows that enter, and erasures one after the other."""

import numpy as np
import pytest
from scipy.special import ndtri

from erasure.pairs import ALARM, Case, Setting, alarms, compared, direction, erased, rejected
from expost.rows import rows_at, without

THRESHOLD = -ndtri(ALARM / 2)


@pytest.mark.parametrize("kind", ["output", "objective"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_several_rows_and_insertion(kind, noise):
    case = Case(kind=kind, noise=noise, separation=2.0, dimension=2, rows=7, changed=3)
    for insertion in (False, True):
        setting = case.setting(insertion=insertion)
        _, couplings = erased(setting, 700, 10)
        assert not rejected(compared(setting, couplings, 11))
        # Power: the model before is not accepted.
        same = erased(setting, 700, 10)[0]
        fresh = setting.fresh(10_000, np.random.default_rng(11))
        assert rejected(alarms(same, fresh, direction(setting)))


def chain(case, steps):
    """The settings of single erasures, one after the other, and that of all at once."""
    whole, first = case.data(), case.calibrated()
    kept = [without(whole, np.arange(count)) if count else whole for count in range(steps + 1)]
    models = [first.with_rows(rows.count) for rows in kept]
    sides = [(m, case.objective(m, rows)) for m, rows in zip(models, kept, strict=True)]
    each = [
        Setting.between(sides[k], sides[k + 1], rows_at(whole, np.array([k]))) for k in range(steps)
    ]
    return each, Setting.between(sides[0], sides[-1], rows_at(whole, np.arange(steps)))


@pytest.mark.parametrize("kind", ["output", "objective"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_three_erasures_and_one_of_all(kind, noise):
    size = 700
    case = Case(kind=kind, noise=noise, separation=2.0, dimension=1, rows=7, changed=3)
    each, batch = chain(case, 3)
    rng = np.random.default_rng(12)
    start = batch.released(size, rng)
    thetas, kept = start, np.ones(size, dtype=bool)
    for setting in each:
        couplings = setting.coupled(thetas, rng)
        thetas = np.array([coupled.theta for coupled in couplings])
        kept &= [coupled.is_kept for coupled in couplings]
    found = alarms(thetas, batch.fresh(20 * size, np.random.default_rng(13)), direction(batch))
    assert not rejected(found), found
    # One erasure of all rows keeps at least as often.
    at_once = np.mean([coupled.is_kept for coupled in batch.coupled(start, rng)])
    assert at_once > kept.mean() - THRESHOLD * np.sqrt(0.5 / size)
