"""Profiles of persons: every mechanism against a refit without all rows of one, and what is said."""

import json
import math
import warnings

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge, profile
from expost.errors import (
    InvalidInput,
    NoGuaranteeWarning,
    RaisedRegularizationWarning,
    SeededReleaseWarning,
)
from naive import logistic_minimiser as minimiser
from settings import OUTPUT

N, D = 60, 3
RNG = np.random.default_rng(7)
X = RNG.normal(size=(N, D))
X /= np.linalg.norm(X, axis=1).max()
Y = np.where(X @ np.array([3.0, -1.0, 0.5]) + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
# Persons of 1, 2, 3, 4, 12 and 30 rows, and eight of one: names in the order they appear in.
WHO = RNG.permutation(np.repeat(list("abcdefghijklmn"), [1, 2, 3, 4, 12, 30, *[1] * 8]))
NAMES = list(dict.fromkeys(WHO.tolist()))
SIZES = np.array([np.sum(name == WHO) for name in NAMES])


def model(kind=PrivateLogisticRegression, **parameters):
    given = {
        **OUTPUT,
        "epsilon": 2.0,
        "regularization": 0.1,
        "data_norm": 1.0,
        "fit_intercept": False,
        "random_state": 0,
    }
    given |= {"label_range": (-1.0, 1.0)} if kind is PrivateRidge else {"classes": [-1.0, 1.0]}
    return kind(**{**given, **parameters})


def fit(kind=PrivateLogisticRegression, labels=Y, **parameters):
    with warnings.catch_warnings():
        for expected in (SeededReleaseWarning, NoGuaranteeWarning, RaisedRegularizationWarning):
            warnings.simplefilter("ignore", expected)
        return model(kind, **parameters).fit(X, labels)


def without(name):
    return X[name != WHO], Y[name != WHO]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_output_perturbation_against_refits(noise):
    delta = None if noise == "laplace" else 1e-4
    fitted = fit(noise=noise, delta=delta)
    profiled = profile(fitted, X, Y, persons=WHO)
    mechanism, theta = fitted.release_.mechanism, fitted.release_.theta
    base, others = minimiser(X, Y), np.array([minimiser(*without(name)) for name in NAMES])
    far, near = np.linalg.norm(theta - others, axis=1), np.linalg.norm(theta - base)
    truth = (far - near) / mechanism.resolution
    if noise == "gaussian":
        truth = (far**2 - near**2) / (2 * mechanism.resolution**2)
    assert len(profiled) == len(NAMES)
    assert list(profiled.ids) == NAMES
    assert np.all((profiled.loss_low - 1e-9 <= truth) & (truth <= profiled.loss_high + 1e-9))
    apart = np.linalg.norm(others - base, axis=1)
    assert np.all(np.abs(profiled.distance - apart) <= profiled.losses.distance_error + 1e-13)
    # Power: the sum of the losses of her rows is far outside the interval of nearly everyone.
    rows = profile(fitted, X, Y)
    summed = np.array([np.sum(rows.loss[name == WHO]) for name in NAMES])
    several = SIZES > 1
    outside = (summed < profiled.loss_low) | (summed > profiled.loss_high)
    assert np.all(outside[several])
    assert not np.any(outside[~several & (np.abs(summed - truth) < 1e-9)])


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_law_of_a_person_is_that_of_her_distance(noise):
    """E∣loss∣ of the law, by drawing the noise: 14 persons at 4.5 standard errors."""
    delta = None if noise == "laplace" else 1e-4
    fitted = fit(noise=noise, delta=delta)
    profiled = profile(fitted, X, Y, persons=WHO)
    law = fitted.release_.mechanism.law
    b = law.sample(20_000, np.random.default_rng(3))
    shift = profiled.neighbours.shift
    losses = np.array([law.loss(b, np.broadcast_to(s, b.shape)) for s in shift])
    mean, error = np.abs(losses).mean(axis=1), np.abs(losses).std(axis=1) / math.sqrt(len(b))
    assert np.all(np.abs(mean - profiled.expected) <= 4.5 * error)
    # Law 2: E exp(−loss) = 1; a scale 1.2 times off is seen.
    tilt, doubt = np.exp(-losses).mean(axis=1), np.exp(-losses).std(axis=1) / math.sqrt(len(b))
    assert np.all(np.abs(tilt - 1) <= 4.5 * doubt)
    wrong = np.exp(-1.2 * losses).mean(axis=1)
    assert np.any(np.abs(wrong - 1) > 6 * doubt)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge])
@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_everyone_with_one_row_gives_the_very_same_profile(kind, mechanism):
    fitted = fit(kind, mechanism=mechanism, noise="laplace", regularization=1.0)
    plain = profile(fitted, X, Y)
    profiled = profile(fitted, X, Y, persons=range(N))
    for name in ("loss", "loss_low", "loss_high", "distance"):
        assert getattr(profiled, name).tobytes() == getattr(plain, name).tobytes()
    # Sampled under objective perturbation, of rows by a control variate.
    error = 5 * (profiled.expected_error + plain.expected_error) if mechanism == "objective" else 0
    assert np.all(np.abs(profiled.expected - plain.expected) <= error)
    assert profiled.worst_case == plain.worst_case
    assert profiled.losses.worst_case_passed == plain.losses.worst_case_passed
    assert profiled.sizes.tolist() == [1] * N


@pytest.mark.parametrize(
    ("parameters", "worst", "passed"),
    [
        ({"noise": "laplace"}, 60.0, 0.0),
        ({"noise": "laplace", "mechanism": "objective"}, 60.0, 0.0),
        ({"noise": "gaussian", "delta": 1e-4}, None, "row"),
        ({"noise": "gaussian", "delta": 1e-4, "mechanism": "objective"}, None, "rows"),
    ],
)
def test_what_is_guaranteed_to_the_largest_person(parameters, worst, passed):
    fitted = fit(regularization=1.0, **parameters)
    profiled, plain = profile(fitted, X, Y, persons=WHO), profile(fitted, X, Y)
    if worst is None:
        mechanism = fitted.release_.mechanism
        step = mechanism.sensitivity if mechanism.kind == "output" else mechanism.slope_bound
        worst = 30 * 2.0 + 30 * 29 * (step / mechanism.resolution) ** 2 / 2
    times = {"row": 1, "rows": 30}.get(passed, 1)
    assert profiled.worst_case == pytest.approx(worst, rel=1e-12)
    most = min(times * plain.losses.worst_case_passed, 1.0)
    assert 0.5 * most <= profiled.losses.worst_case_passed <= most * (1 + 1e-6)
    assert profiled.losses.guarantee is not None
    assert profiled.losses.guarantee.advantage > plain.losses.guarantee.advantage
    assert not profiled.guarantee_exceeded
    assert "any person with up to 30 rows" in str(profiled)
    assert "any row" in str(plain)


@pytest.mark.parametrize("name", ["logistic", "ridge"])
def test_scikit_learn_models_rank_persons_by_distance(name):
    """Refits by scikit-learn at the same C or alpha, which keep n·Λ."""
    target = Y if name == "logistic" else X @ [1.0, 2.0, 3.0] + 0.1 * RNG.normal(size=N)

    def refit(rows, labels):
        kind = (
            LogisticRegression(C=2.0, tol=1e-10, max_iter=5000) if name == "logistic" else Ridge()
        )
        profiled = kind.fit(rows, labels)
        return profiled, np.append(np.ravel(profiled.coef_), profiled.intercept_)

    fitted, base = refit(X, target)
    profiled = profile(fitted, X, target, persons=WHO)
    assert profiled.is_noiseless
    apart = [
        np.linalg.norm(refit(X[who != WHO], target[who != WHO])[1] - base) for who in NAMES
    ]  # fmt: skip
    assert profiled.distance == pytest.approx(apart, rel=1e-3, abs=1e-6)
    assert np.all(np.isinf(profiled.loss))
    assert "Persons exposed" in str(profiled)
    (notice,) = profiled.notices
    assert "persons rank by distance" in notice


def test_three_classes():
    y = np.array(["a", "b", "c"])[RNG.integers(3, size=N)]
    options = {"labels": y, "classes": ["a", "b", "c"], "mechanism": "objective"}
    fitted = fit(noise="gaussian", delta=1e-4, regularization=1.0, **options)
    profiled = profile(fitted, X, y, persons=WHO)
    assert len(profiled) == len(NAMES)
    assert np.all(profiled.expected > 0)
    with pytest.raises(InvalidInput, match="more than two classes without noise"):
        profile(fit(epsilon=math.inf, noise="laplace", **options), X, y, persons=WHO)


def test_frames_and_pipelines():
    frame = pd.DataFrame(X, columns=["age", "sex", "city"])
    who = pd.Series(WHO, index=np.arange(N)[::-1])
    pipe = make_pipeline(StandardScaler(with_std=False), model())
    with pytest.warns(SeededReleaseWarning):
        pipe.fit(frame, Y)
    profiled = profile(pipe, frame, Y, persons=who)
    assert list(profiled.ids) == NAMES
    assert np.all(profiled.exposure > 0)


def test_tables_and_files_name_persons(tmp_path):
    profiled = profile(fit(), X, Y, persons=WHO)
    columns = profiled.columns()
    assert list(columns)[:3] == ["person", "id", "rows"]
    assert columns["rows"].tolist() == SIZES.tolist()
    assert "row" not in columns
    read = json.loads(profiled.to_json())
    assert read["unit"] == "person"
    assert read["table"]["id"] == NAMES
    table = pyarrow.parquet.read_table(profiled.to_parquet(tmp_path / "profile.parquet"))
    assert table.column("id").to_pylist() == NAMES
    text = str(profiled)
    assert "14 persons with 60 rows" in text
    assert repr(profiled).startswith("Profile(14 persons")
    top = NAMES[int(np.argmax(profiled.exposure))]
    assert f"about person {top}" in text
    assert json.loads(profile(fit(), X, Y).to_json())["unit"] == "row"


def test_labels_of_any_kind():
    fitted = fit()
    numbers = np.unique(WHO, return_inverse=True)[1]
    profiled = profile(fitted, X, Y, persons=numbers)
    assert set(profiled.ids) == set(range(14))
    tuples = profile(fitted, X, Y, persons=[(int(k), "x") for k in numbers])
    assert tuples.loss.tobytes() == profiled.loss.tobytes()
    assert tuples.ids[0] == str((profiled.ids[0], "x"))


def test_what_is_refused():
    fitted = fit()
    for options, message in (
        ({"persons": WHO, "ids": NAMES}, "ids: cannot be combined with persons"),
        # Other persons that are refused: tests/test_persons.py.
        ({"persons": [None, *WHO[1:]]}, "entry 0 is missing"),
        ({"persons": WHO, "relation": "add", "candidates": (X[:1], Y[:1])}, "changes single rows"),
    ):
        with pytest.raises(InvalidInput, match=message):
            profile(fitted, X, Y, **options)


def test_a_person_of_most_rows_under_objective_perturbation():
    """Half of all rows leave: the interval still holds, and is narrow."""
    fitted = fit(mechanism="objective", noise="gaussian", delta=1e-4, regularization=1e-4)
    profiled = profile(fitted, X, Y, persons=WHO)
    mechanism, theta = fitted.release_.mechanism, fitted.release_.theta

    def log_density(rows, labels):
        p = 1 / (1 + np.exp(labels * (rows @ theta)))
        g = -rows.T @ (labels * p) + mechanism.penalty_sum * theta
        hessian = rows.T @ (rows * (p * (1 - p))[:, None]) + mechanism.penalty_sum * np.eye(D)
        return norm.logpdf(g, scale=mechanism.resolution).sum() + np.linalg.slogdet(hessian)[1]

    truth = np.array([log_density(X, Y) - log_density(*without(name)) for name in NAMES])
    assert profiled.loss == pytest.approx(truth, abs=1e-9)
    assert np.max(profiled.loss_high - profiled.loss_low) < 1e-5
