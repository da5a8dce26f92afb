"""Each row's own ROC curve over models with it and without it."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from expost.auditing import roc as module
from expost.auditing.roc import row_auc

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("ties", [False, True])
def test_it_is_the_area_under_each_rows_curve(ties, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 64)
    phi = RNG.normal(size=(16, 23)).astype(np.float32)
    if ties:
        phi = np.round(phi)
    inside = np.argsort(RNG.uniform(size=(16, 23)), axis=0) < 6
    found = row_auc(phi, inside)
    naive = [roc_auc_score(inside[:, row], phi[:, row]) for row in range(23)]
    np.testing.assert_allclose(found.value, naive, rtol=1e-12)


def test_a_row_of_one_kind_is_not_known():
    phi = RNG.normal(size=(5, 3)).astype(np.float32)
    inside = np.array([[True, False, True]] * 4 + [[True, False, False]])
    found = row_auc(phi, inside)
    assert np.isnan(found.value[:2]).all()
    assert np.isnan(found.error[:2]).all()
    assert np.isfinite(found.value[2])
    assert np.isnan(row_auc(phi[:0], inside[:0]).value).all()


@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_the_error_is_the_spread_or_a_little_more(shift):
    inside = np.zeros((40, 4000), dtype=bool)
    inside[:20] = True
    phi = (RNG.normal(size=inside.shape) + shift * inside).astype(np.float32)
    found = row_auc(phi, inside)
    stated = np.sqrt(np.mean(found.error**2))
    assert 0.9 < stated / np.std(found.value) < 1.4
    assert np.all(found.error > 0)
