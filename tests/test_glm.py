"""The minimiser: its certificate in fifty digits, scikit-learn, row blocks, memory."""

import tracemalloc

import mpmath as mp
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, Ridge

from expost import _numerics
from expost.errors import ConvergenceError, InvalidInput
from expost.glm import Objective, minimise
from expost.losses import HuberHinge, Logistic, Squared

LOSSES = [Logistic(), HuberHinge(), Squared(label_bound=1.0)]
FAMILIES = ["plain", "near-separable", "separable", "collinear", "duplicated", "heavy-tailed"]


def make(family, n, d, seed):
    """Rows in the unit ball and labels ±1, of the kinds that trouble a Newton iteration."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    match family:
        case "near-separable":
            y = np.where(X[:, 0] > 0, 1.0, -1.0)
            y[np.argmin(np.abs(X[:, 0]))] *= -1
        case "separable":
            y = np.where(X[:, 0] > 0, 1.0, -1.0)
        case "collinear":
            X = X[:, :1] * rng.normal(size=d)
        case "duplicated":
            X = X[rng.integers(0, max(1, n // 3), n)]
        case "heavy-tailed":
            X = rng.standard_cauchy((n, d)) ** 3
    y[0], y[-1] = 1.0, -1.0
    return X / np.linalg.norm(X, axis=1).max(), y


def problem_of(X, y, loss, regularization):
    return Objective.of(X=X, y=y, loss=loss, penalty=np.full(X.shape[1], regularization))


def exact_slope(loss, z, y):
    if isinstance(loss, Logistic):
        return -y / (1 + mp.exp(y * z))
    if isinstance(loss, Squared):
        return z - y
    u, h = y * z, mp.mpf(loss.width)
    return -y * min(max((1 + h - u) / (2 * h), mp.mpf(0)), mp.mpf(1))


def exact_gradient_norm(problem, theta):
    """∥∇J∥ in fifty digits, straight from the definition."""
    with mp.workdps(50):
        point = [mp.mpf(float(t)) for t in theta]
        total = [mp.mpf(float(p)) * t for p, t in zip(problem.penalty, point, strict=True)]
        for row, label in zip(problem.held.X, problem.held.y, strict=True):
            x = [mp.mpf(float(v)) for v in row]
            slope = exact_slope(problem.loss, mp.fdot(x, point), mp.mpf(float(label)))
            total = [t + slope * v / problem.count for t, v in zip(total, x, strict=True)]
        return float(mp.sqrt(mp.fdot(total, total)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_certificate_is_true_in_fifty_digits(family, loss):
    for seed, (n, d) in enumerate([(2, 1), (2, 3), (7, 2), (40, 6), (12, 20)]):
        for regularization in (1.0, 1e-3, 1e-6):
            problem = problem_of(*make(family, n, d, seed), loss, regularization)
            solution = minimise(problem)
            truth = exact_gradient_norm(problem, solution.theta)
            assert truth <= solution.gradient_bound <= 1e-12
            # Power: a point that is off by more than the bound allows would be found out.
            off = solution.theta.copy()
            off[0] += 10 * solution.gradient_bound / regularization
            assert exact_gradient_norm(problem, off) > solution.gradient_bound


def test_the_certificate_is_not_idle():
    """It stays within a few hundred times the gradient that rounding alone leaves."""
    problem = problem_of(*make("plain", 40, 6, 5), Logistic(), 1.0)
    solution = minimise(problem)
    assert solution.gradient_bound < 1e-13


@pytest.mark.parametrize("exponent", [-200, -100, 3, 8])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_certificate_is_true_for_any_scale_of_the_rows(loss, exponent):
    """Squares of 1e-200 underflow, predictors of 1e8 saturate: the bound says what it knows."""
    X, y = make("plain", 9, 3, 8)
    problem = problem_of(X * 10.0**exponent, y, loss, 1e-2)
    solution = minimise(problem, tolerance=1e-12 * max(1.0, 10.0**exponent), require=False)
    assert exact_gradient_norm(problem, solution.theta) <= solution.gradient_bound


def test_wide_long_and_square_problems():
    for n, d in [(2, 3000), (300, 1200), (30_000, 12)]:
        X, y = make("plain", n, d, 3)
        solution = minimise(problem_of(X, y, Logistic(), 1e-3))
        assert solution.gradient_bound <= 1e-12


def test_a_long_gradient_is_certified_too():
    """50,000 rows against a gradient in extended precision with pairwise sums."""
    X, y = make("heavy-tailed", 50_000, 4, 9)
    solution = minimise(problem_of(X, y, Logistic(), 1e-4))
    wide = X.astype(np.longdouble)
    slope = -y / (1 + np.exp(y * (wide @ solution.theta.astype(np.longdouble))))
    gradient = (wide * slope[:, None]).mean(axis=0) + np.longdouble(1e-4) * solution.theta
    assert float(np.sqrt(np.sum(gradient**2))) <= solution.gradient_bound <= 1e-12


@pytest.mark.parametrize("regularization", [1.0, 1e-2, 1e-4])
def test_agrees_with_scikit_learn(regularization):
    data = load_breast_cancer()
    X = (data.data - data.data.mean(0)) / data.data.std(0)
    X /= np.linalg.norm(X, axis=1).max()
    y = np.where(data.target == 1, 1.0, -1.0)
    n = len(X)
    theirs = LogisticRegression(
        C=1 / (n * regularization), fit_intercept=False, tol=1e-12, solver="newton-cholesky"
    ).fit(X, y)
    ours = minimise(problem_of(X, y, Logistic(), regularization))
    np.testing.assert_allclose(ours.theta, theirs.coef_[0], rtol=0, atol=1e-9)
    # Power: the other reading of Λ, a sum instead of a mean, is far away.
    assert (
        np.abs(minimise(problem_of(X, y, Logistic(), regularization * 2)).theta - ours.theta).max()
        > 1e-3
    )
    ridge = Ridge(alpha=n * regularization, fit_intercept=False, solver="cholesky").fit(X, y)
    ours = minimise(problem_of(X, y, Squared(label_bound=1.0), regularization))
    np.testing.assert_allclose(ours.theta, ridge.coef_, rtol=0, atol=1e-9)


def test_an_unpenalised_intercept_agrees_with_scikit_learn():
    X, y = make("plain", 200, 3, 4)
    y = np.where(X[:, 0] + 0.2 > 0.3 * np.sin(np.arange(200)), 1.0, -1.0)
    theirs = LogisticRegression(C=1 / (200 * 0.05), tol=1e-12, solver="newton-cholesky").fit(X, y)
    penalty = np.array([0.05, 0.05, 0.05, 0.0])
    with_one = np.column_stack([X, np.ones(200)])
    ours = minimise(Objective.of(X=with_one, y=y, loss=Logistic(), penalty=penalty))
    np.testing.assert_allclose(ours.theta[:3], theirs.coef_[0], atol=1e-9)
    assert ours.theta[3] == pytest.approx(theirs.intercept_[0], abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_start_does_not_matter(loss):
    X, y = make("plain", 50, 4, 2)
    problem = problem_of(X, y, loss, 1e-3)
    far = minimise(problem, start=np.full(4, 50.0))
    np.testing.assert_allclose(far.theta, minimise(problem).theta, atol=2e-9)


def test_the_start_is_left_alone():
    X, y = make("plain", 20, 2, 2)
    start = np.ones(2)
    minimise(problem_of(X, y, Logistic(), 1.0), start=start)
    np.testing.assert_array_equal(start, 1.0)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_block_size_changes_nothing_beyond_rounding(loss, monkeypatch):
    X, y = make("near-separable", 3000, 5, 6)
    problem = problem_of(X, y, loss, 1e-3)
    whole = minimise(problem).theta
    for entries in (64 * 5, 1000 * 5):
        monkeypatch.setattr(_numerics, "_BLOCK_ENTRIES", entries)
        np.testing.assert_allclose(minimise(problem).theta, whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_memory_beyond_the_rows_is_a_few_blocks(loss):
    """64 MB of rows: blocks of 2 MB, some vectors of n, d × d; never a copy of X."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 40))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.where(X[:, 0] + 0.1 * rng.normal(size=len(X)) > 0, 1.0, -1.0)
    tracemalloc.start()
    minimise(problem_of(X, y, loss, 1e-2))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    block, vectors = 2**18 * 8, 8 * len(X)
    assert peak < 8 * block + 8 * vectors
    assert 8 * block + 8 * vectors < X.nbytes / 2


def test_an_accuracy_that_cannot_be_had_is_not_claimed():
    problem = problem_of(*make("plain", 30, 3, 1), Logistic(), 1.0)
    with pytest.raises(ConvergenceError, match="raise regularization"):
        minimise(problem, tolerance=1e-30)
    best = minimise(problem, tolerance=1e-30, require=False)
    assert exact_gradient_norm(problem, best.theta) <= best.gradient_bound


def test_norms_are_rounded_up():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 7)) * 10.0 ** rng.integers(-300, 20, size=(50, 1))
    X[3] = 0
    norms = problem_of(X, np.ones(50), Logistic(), 1.0).held.norms
    for row, norm in zip(X, norms, strict=True):
        exact = mp.sqrt(mp.fsum(mp.mpf(float(v)) ** 2 for v in row))
        assert exact <= mp.mpf(float(norm)) <= exact * (1 + mp.mpf("1e-13"))


@pytest.mark.parametrize("penalty", [[1.0], [1.0, -1.0], [1.0, np.nan]])
def test_bad_penalties_are_refused(penalty):
    with pytest.raises(InvalidInput, match="penalty"):
        Objective.of(
            X=np.eye(2), y=np.array([1.0, -1.0]), loss=Logistic(), penalty=np.array(penalty)
        )


def test_rows_that_would_overflow_are_refused():
    with pytest.raises(InvalidInput, match="longer than"):
        problem_of(np.full((2, 2), 1e100), np.array([1.0, -1.0]), Logistic(), 1.0)
