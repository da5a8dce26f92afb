"""Profiles to report on: real small ones, and large ones put together from random losses."""

import warnings

import numpy as np
import pytest

import expost
from expost.errors import SeededReleaseWarning
from expost.mechanisms import RowLosses
from expost.noise import NormLaplace
from expost.profiles.profile import Profile
from expost.profiles.verb import profile
from expost.types import Neighbouring
from settings import OUTPUT

HOSTILE = '</style><script>alert("x")</script><img src=x onerror=alert(1)>[a](javascript:x)|`*_\n\u202e&lt;'


def fitted(epsilon=2.0, rows=150, **options):
    """A release, its rows and its profile."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(rows, 3))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=rows) > 0, "yes", "no")
    y[:2] = ["yes", "no"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        settings = {**OUTPUT, "regularization": 0.1, "data_norm": 8.0, **options}
        model = expost.PrivateLogisticRegression(
            epsilon=epsilon, classes=["no", "yes"], random_state=0, **settings
        ).fit(X, y)
    return model.release_, X, y, profile(model.release_, X, y)


def synthetic(rows, *, epsilon=1.0, ids=None, seed=0):
    """A profile of many rows without a table behind it."""
    rng = np.random.default_rng(seed)
    noise = NormLaplace(rate=1.0, dimension=6)
    distance = np.minimum(rng.lognormal(-4, 1, rows), 0.9 * epsilon)
    loss = distance * rng.uniform(-1, 1, rows)
    losses = RowLosses(
        loss=loss,
        low=loss - 1e-7,
        high=loss + 1e-7,
        distance=distance,
        distance_error=np.full(rows, 1e-8),
        relation=Neighbouring.REMOVE,
        law=noise.law(distance),
        worst_case=epsilon,
    )
    return Profile(losses=losses, description="a model", rows=rows, ids=ids)


def noiseless(rows=50, *, seed=0):
    """A profile of a model without noise, the first row of which does not move it."""
    rng = np.random.default_rng(seed)
    distance = rng.exponential(size=rows)
    distance[0] = 0
    error = np.where(distance > 0, 1e-9, 0.0)
    losses = RowLosses.without_noise(distance, error, Neighbouring.REMOVE)
    return Profile(losses=losses, description="no noise", rows=rows)


@pytest.fixture(scope="session")
def laplace():
    return fitted()


@pytest.fixture(scope="session")
def gaussian():
    return fitted(noise="gaussian", delta=1e-5)


@pytest.fixture(scope="session")
def exact():
    return fitted(epsilon=np.inf)
