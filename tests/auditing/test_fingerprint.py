"""The fingerprint of a model names what it was fitted to, not its parameters alone."""

import numpy as np

from expost import PrivateLogisticRegression
from expost.auditing.training import fingerprint


def fitted(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 2)) / 3
    y = np.where(X[:, 0] > 0, 1, -1)
    settings = {"data_norm": 2.0, "classes": (-1, 1), "regularization": 0.1}
    return PrivateLogisticRegression(epsilon=np.inf, **settings).fit(X, y)


def test_estimators_with_equal_parameters_and_other_releases_differ():
    assert fitted(0).get_params() == fitted(1).get_params()
    assert fingerprint(fitted(0)) == fingerprint(fitted(0))
    assert fingerprint(fitted(0)) != fingerprint(fitted(1))
