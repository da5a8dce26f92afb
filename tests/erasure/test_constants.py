"""Public constants stay when rows leave or enter; ε follows; rows are left out of passes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from erasure.pairs import Case
from expost import PrivateLogisticRegression, forget
from expost.data import UnitBall
from expost.engine import LocalEngine
from expost.erasure.plan import ErasurePlan
from expost.errors import InvalidInput, ReleaseRefused
from expost.files.sealed import checksum
from expost.glm import Objective
from expost.losses import Logistic
from expost.mechanisms.output import OutputPerturbation
from expost.mechanisms.perturbation import Calibrated
from expost.mechanisms.tangent import Tangent
from expost.release import Release
from expost.rows import HeldRows, RowBlock, RowStream, TableRows, rows_at, without
from naive import gaussian_delta
from test_streamed import opened, table

KINDS = [(kind, noise) for kind in ("output", "objective") for noise in ("laplace", "gaussian")]


def mechanism_of(kind, noise, **constants):
    case = Case(kind=kind, noise=noise, separation=1.0, rows=50, **constants)
    return case.mechanism(1.0)


@pytest.mark.parametrize(("kind", "noise"), KINDS)
def test_constants_stay(kind, noise):
    first = mechanism_of(kind, noise, dimension=2)
    for rows in (49, 30, 60):
        other = first.with_rows(rows)
        assert (other.rows, other.law, other.grid) == (rows, first.law, first.grid)
        assert other.calibrated == Calibrated(rows=50, epsilon=1.0)
        assert other.first == first
        # Steps lead to the same as one change.
        assert first.with_rows(45).with_rows(rows) == other
        assert other.with_rows(50) == first
        if kind == "objective":
            assert other.penalty_sum == first.penalty_sum
            assert other.total_regularization == pytest.approx(first.penalty_sum / rows)
            assert other.epsilon == first.epsilon
        else:
            assert other.total_regularization == first.regularization


def test_epsilon_of_output_perturbation():
    laplace = mechanism_of("output", "laplace").with_rows(40)
    assert laplace.epsilon == pytest.approx(50 / 40, rel=1e-9)
    # The noise at the new sensitivity: never below what is needed.
    assert laplace.epsilon >= laplace.sensitivity * laplace.law.rate
    gaussian = mechanism_of("output", "gaussian")
    fewer = gaussian.with_rows(40)
    mu = fewer.sensitivity / fewer.resolution
    assert mu == pytest.approx(gaussian.sensitivity / gaussian.resolution * 50 / 40, rel=1e-9)
    assert gaussian_delta(fewer.epsilon, mu) <= fewer.delta * (1 + 1e-9)
    assert gaussian_delta(fewer.epsilon * (1 - 1e-6), mu) > fewer.delta
    assert fewer.guarantee().delta(fewer.epsilon) <= fewer.delta * (1 + 1e-6)
    # Rows that enter lower it.
    assert gaussian.with_rows(60).epsilon < gaussian.epsilon


@pytest.mark.parametrize(("kind", "noise"), KINDS)
def test_edited_epsilon_is_refused(kind, noise):
    fewer = mechanism_of(kind, noise).with_rows(40)
    with pytest.raises(InvalidInput, match="edited"):
        replace(fewer, epsilon=fewer.epsilon * 0.999)


def released(kind="objective", noise="gaussian", rows=60, **options):
    """A model of a few rows, with its rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (rows, 2))
    y = np.where(X[:, 0] + rng.normal(0, 0.5, rows) > 0, "yes", "no")
    model = PrivateLogisticRegression(
        epsilon=2.0,
        delta=1e-3 if noise == "gaussian" else None,
        mechanism=kind,
        noise=noise,
        regularization=0.1,
        data_norm=1.5,
        classes=("no", "yes"),
        **options,
    ).fit(X, y)
    return model.release_, X, y


@pytest.mark.parametrize(("kind", "noise"), KINDS)
def test_model_survives_json(kind, noise):
    release, X, y = released(kind, noise)
    erasure = forget(release, X, y, remove=[3, 4], fresh=False, requests_independent=True)
    value = erasure.release.to_json()
    again = Release.from_json(value)
    assert again.mechanism == erasure.release.mechanism
    assert again.history == erasure.release.history
    assert again.mechanism.law == release.mechanism.law
    edited = {**value, "mechanism": {**value["mechanism"], "epsilon": 0.5}}
    edited["sha256"] = checksum({name: edited[name] for name in edited if name != "sha256"})
    with pytest.raises(InvalidInput, match="edited"):
        Release.from_json(edited)


@pytest.mark.parametrize(("kind", "noise"), KINDS)
def test_errors_of_a_chain_add_up(kind, noise):
    """The law of a model that was coupled before is itself known to a bound only."""
    release, X, y = released(kind, noise)
    totals = []
    for _ in range(3):
        erasure = forget(release, X, y, remove=[0], fresh=False, requests_independent=True)
        totals.append(erasure.certificate.total_variation)
        release, X, y = erasure.release, X[1:], y[1:]
    assert 0 < totals[0] < totals[1] < totals[2] < 1e-3
    assert totals[2] == pytest.approx(3 * totals[0], rel=0.2)
    # A fresh redraw starts again.
    fresh = forget(release, X, y, remove=[0], fresh=True)
    assert fresh.certificate.total_variation == 0
    after = forget(fresh.release, X[1:], y[1:], remove=[0], fresh=False, requests_independent=True)
    assert after.certificate.total_variation == pytest.approx(totals[0], rel=0.2)


def test_model_from_more_rows_is_not_coupled():
    """Rows entered, and two changes later a kept model is less precise than its rows suggest."""
    release, X, y = released("objective", "gaussian")
    enter = np.arange(10)
    first = forget(
        release,
        np.vstack([X, X[:10]]),
        np.concatenate([y, y[:10]]),
        insert=60 + enter,
        fresh=False,
        requests_independent=True,
    ).release
    X, y = np.vstack([X, X[:10]]), np.concatenate([y, y[:10]])
    second = forget(first, X, y, remove=[0], fresh=False, requests_independent=True).release
    X, y = X[1:], y[1:]
    with pytest.raises(ReleaseRefused, match="more rows than it has now"):
        forget(second, X, y, remove=[0], fresh=False, requests_independent=True)
    assert forget(second, X, y, remove=[0], fresh=True).release.mechanism.rows == 68


def test_coupling_without_a_bound_is_refused():
    release, X, y = released()
    weak = replace(release.mechanism, epsilon=60.0, regularization=1e-6)
    small = replace(release, mechanism=weak, theta=np.zeros(3))
    with pytest.raises(ReleaseRefused, match="fresh=True"):
        ErasurePlan(release=small, changed=50, is_fresh=False, requests_independent=True).pair(
            small.objective(X, y), np.arange(50)
        )


# -- rows without some of them ---------------------------------------------------------------------


def block_objectives(removed):
    """J over a table in blocks without some rows, and over arrays from which they were deleted."""
    whole, encoding = opened(table(rows=400), "logistic")
    ball = UnitBall(data_norm=encoding.data_norm, fit_intercept=True)
    stream = RowStream.of(whole, encoding, ball, size=64)
    rows = TableRows(stream=stream, engine=LocalEngine(workers=1))
    encoded = encoding.encode_table(whole)
    X, _ = ball.rows(encoded.X)
    kept = np.setdiff1d(np.arange(400), removed)
    penalty = np.full(X.shape[1], 0.01)
    return (
        Objective(rows=without(rows, removed), loss=Logistic(), penalty=penalty),
        Objective(rows=HeldRows(X=X[kept], y=encoded.y[kept]), loss=Logistic(), penalty=penalty),
        rows_at(rows, removed),
        RowBlock.of(X[removed], encoded.y[removed]),
    )


@pytest.mark.parametrize(
    "removed", [np.array([0]), np.array([5, 70, 399]), np.arange(60, 140), np.arange(1, 400, 2)]
)
def test_rows_are_left_out_of_every_pass(removed):
    blocks, arrays, gone, expected = block_objectives(removed)
    assert blocks.count == arrays.count == 400 - len(removed)
    mechanism = OutputPerturbation(
        epsilon=1.0,
        loss=Logistic(),
        regularization=0.01,
        rows=blocks.count,
        dimension=blocks.dimension,
    )
    both = [objective.minimiser(1e-12) for objective in (blocks, arrays)]
    assert np.linalg.norm(both[0].theta - both[1].theta) <= 2e-12 / 0.01
    objective_mechanism = Case(
        kind="objective", noise="gaussian", separation=1.0, rows=blocks.count
    ).mechanism(1.0)
    objective_mechanism = replace(objective_mechanism, dimension=blocks.dimension)
    tangents = [
        Tangent.at(objective_mechanism, objective, both[0].theta) for objective in (blocks, arrays)
    ]
    assert np.allclose(tangents[0].gradient, tangents[1].gradient, rtol=0, atol=1e-12)
    assert np.allclose(tangents[0].hessian, tangents[1].hessian, rtol=1e-13)
    assert np.array_equal(gone.X, expected.X)
    assert np.array_equal(gone.y, expected.y)
    assert mechanism.rows == blocks.count


def test_held_rows_are_deleted():
    rows = Case(kind="output", noise="laplace", separation=1.0, rows=9).data()
    rest = without(rows, np.array([0, 4, 8]))
    assert isinstance(rest, HeldRows)
    assert np.array_equal(rest.X, np.delete(rows.X, [0, 4, 8], axis=0))
    assert np.array_equal(rest.y, np.delete(rows.y, [0, 4, 8]))
    assert math.isclose(float(rest.norms.max()), rest.longest)
