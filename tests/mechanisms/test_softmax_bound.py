"""The bound for more than two classes: each inequality against brute force, and how often it fails."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy import stats

from expost import PrivateLogisticRegression, profile
from expost.data import UnitBall
from expost.errors import InvalidInput, ReleaseRefused, WrongRows
from expost.glm import Objective
from expost.losses import Softmax, SoftmaxDerivatives
from expost.mechanisms import ObjectivePerturbation
from expost.mechanisms.bounds import ObjectiveBound, softmax_volume
from expost.mechanisms.tangent import Tangent
from expost.publishing.publish import publish
from expost.publishing.report import PublishedReport
from expost.types import Neighbouring
from mechanisms.changes import changed

ROWS, WIDTH, CLASSES, RHO = 90, 3, 4, 0.05


def table(count=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    X, _ = UnitBall(data_norm=2.0, fit_intercept=False).rows(rng.normal(size=(count, WIDTH)))
    centres = np.random.default_rng(99).normal(size=(CLASSES, WIDTH))
    return X, np.argmax(X @ centres.T + 0.2 * rng.normal(size=(count, CLASSES)), axis=1) * 1.0


def setting(noise="gaussian", epsilon=2.0):
    mechanism = ObjectivePerturbation(
        epsilon=epsilon,
        delta=1e-3 if noise == "gaussian" else None,
        noise=noise,
        loss=Softmax(classes=CLASSES),
        regularization=0.05,
        rows=ROWS,
        dimension=CLASSES * WIDTH,
    )
    X, y = table()
    problem = Objective.of(X=X, y=y, loss=mechanism.loss, penalty=mechanism.total_regularization)
    return mechanism, problem


def test_the_volume_is_a_determinant():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(200, CLASSES)) * np.geomspace(0.1, 30, 200)[:, None]
    derivatives = SoftmaxDerivatives.of(z, rng.integers(CLASSES, size=200))
    share = rng.uniform(0.001, 10, size=200)
    bound = softmax_volume(derivatives, share)
    for p, a, limit in zip(derivatives.p, share, bound, strict=True):
        true = np.linalg.slogdet(np.eye(CLASSES) + a * (np.diag(p) - np.outer(p, p)))[1]
        assert limit == pytest.approx(true, rel=1e-9, abs=1e-12)
        assert limit >= true - 1e-15


@pytest.mark.parametrize("classes", [2, 3, 40])
def test_the_volume_keeps_its_digits(classes):
    """To 1e-10 of itself in fifty digits, also where one class is nearly certain or a is tiny."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(60, classes)) * np.geomspace(0.1, 40, 60)[:, None]
    derivatives = SoftmaxDerivatives.of(z, rng.integers(classes, size=60))
    share = 10 ** rng.uniform(-8, 6, size=60)
    with mpmath.workdps(50):
        for p, a, limit in zip(
            derivatives.p, share, softmax_volume(derivatives, share), strict=True
        ):
            exact = [mpmath.mpf(float(each)) for each in p]
            exact = [each / mpmath.fsum(exact) for each in exact]
            scaled = [1 + mpmath.mpf(float(a)) * each for each in exact]
            inverse = mpmath.fsum(each / rise for each, rise in zip(exact, scaled, strict=True))
            true = mpmath.log(mpmath.fprod(scaled) * inverse)
            assert true <= limit <= true * (1 + mpmath.mpf("1e-10"))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_determinants_of_rows_in_and_out(noise):
    mechanism, problem = setting(noise)
    theta = mechanism.release(problem, np.random.default_rng(2))
    hessian = Tangent.at(mechanism, problem, theta).hessian
    logdet = np.linalg.slogdet(hessian)[1]
    for (X, y), sign in ((table(), -1), (table(seed=7), 1)):
        derivatives = SoftmaxDerivatives.of(X @ theta.reshape(CLASSES, WIDTH).T, y.astype(int))
        bound = softmax_volume(derivatives, np.sum(X**2, axis=1) / mechanism.penalty_sum)
        for p, x, limit in zip(derivatives.p, X, bound, strict=True):
            curved = np.kron(np.diag(p) - np.outer(p, p), np.outer(x, x))
            assert abs(np.linalg.slogdet(hessian + sign * curved)[1] - logdet) <= limit + 1e-12


def failures(noise, count, failure, seed=3):
    """How often the exposure of each row, in and out, passed the bound."""
    mechanism, problem = setting(noise)
    entering = table(40, seed=8)
    everyone = np.vstack([problem.held.X, entering[0]]), np.append(problem.held.y, entering[1])
    failed, rng = np.zeros(ROWS + 40), np.random.default_rng(seed)
    for _ in range(count):
        theta = mechanism.release(problem, rng)
        tangent = Tangent.at(mechanism, problem, theta)
        inside = tangent.row_losses().loss
        outside = tangent.row_losses(changed(problem, Neighbouring.ADD, entering)).loss
        bound = ObjectiveBound(mechanism=mechanism, theta=theta, failure=failure)
        failed += np.abs(np.append(inside, outside)) > bound.exposure(*everyone)
    return failed


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_bound_holds(noise):
    """Row by row, with Bonferroni, at 1e-3; a sixth of the quantile is seen."""
    count = 150 if noise == "gaussian" else 50
    failed = failures(noise, count, RHO)
    assert np.min(stats.binom.sf(failed - 1, count, RHO)) * len(failed) > 1e-3
    if noise == "laplace":
        assert not np.any(failed)
    else:
        quantile = stats.norm.isf(RHO / 6) / 6
        weak = failures(noise, count, 6 * stats.norm.sf(quantile) * (1 - 1e-9))
        assert np.min(stats.binom.sf(weak - 1, count, RHO)) * len(weak) < 1e-3


def test_the_bound_holds_for_the_whole_cell():
    mechanism, problem = setting()
    rng = np.random.default_rng(4)
    theta = mechanism.release(problem, rng)
    bound = ObjectiveBound(mechanism=mechanism, theta=theta, failure=1e-6).exposure(
        problem.held.X, problem.held.y
    )
    for _ in range(10):
        corner = theta + mechanism.grid.step / 2 * rng.choice([-1.0, 1.0], size=len(theta))
        losses = Tangent.at(mechanism, problem, corner).row_losses().loss
        assert np.all(np.abs(losses) <= bound)


def fitted(**options):
    X, y = table()
    names = np.array(["a", "b", "c", "d"])
    model = PrivateLogisticRegression(
        mechanism="objective", data_norm=1.0, classes=("a", "b", "c", "d"), **options
    )
    return model.fit(X, names[y.astype(int)]), X, names[y.astype(int)]


@pytest.mark.parametrize(
    "options",
    [{"regularization": 0.5}, {"noise": "gaussian", "delta": 1e-6, "regularization": 0.5}],
)
def test_a_report_of_four_classes(tmp_path, options):
    model, X, y = fitted(**options)
    report = publish(model, X, y)
    exposure, first, second = report.bound(X, y)
    assert np.all(profile(model, X, y).exposure <= exposure)
    assert not np.any(first)
    assert not np.any(second)
    again = PublishedReport.load(report.save(tmp_path / "report.json"))
    assert np.array_equal(again.bound(X, y)[0], exposure)
    values = {f"column {index}": X[0, index] for index in range(WIDTH)}
    answers = again.lookup(values)
    assert [answer.label for answer in answers] == ["a", "b", "c", "d"]
    assert again.lookup(values, y[0])[0].exposure == pytest.approx(exposure[0])
    with pytest.raises(InvalidInput, match="must be 'a', 'b', 'c' or 'd'"):
        again.lookup(values, "e")
    with pytest.raises(ReleaseRefused, match=r"4 classes.*data-independent"):
        publish(
            model, X, y, kind="data-dependent", epsilon_gradient=1, epsilon_hessian=1, delta=1e-6
        )
    with pytest.raises(WrongRows):
        publish(model, X[1:], y[1:])


def test_pure_epsilon_caps_it():
    mechanism, problem = setting("laplace", epsilon=0.05)
    theta = mechanism.release(problem, np.random.default_rng(5))
    bound = ObjectiveBound(mechanism=mechanism, theta=theta, failure=RHO)
    assert np.all(bound.exposure(problem.held.X, problem.held.y) <= 0.05)
    assert replace(bound, failure=0.5).failure_probability == 0.5
