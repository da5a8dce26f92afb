"""Softmax regression: its bounds, its certified minimiser, and labels of more than two classes."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from expost._numerics import ROUNDOFF
from expost.errors import ConvergenceError, InvalidInput
from expost.glm import Objective, minimise, two_classes_only
from expost.labels import class_codes, class_set
from expost.losses import (
    Logistic,
    Softmax,
    SoftmaxDerivatives,
)


def rows(n, d, K, seed=0):
    """Rows in the unit ball, and a class for each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X *= (rng.uniform(0.4, 1.0, n) / np.linalg.norm(X, axis=1))[:, None]
    y = rng.integers(0, K, n).astype(float)
    y[:K] = np.arange(min(K, n))
    return X, y


def problem(n, d, K, penalty, *, seed=0, linear=None):
    X, y = rows(n, d, K, seed)
    return Objective.of(X=X, y=y, loss=Softmax(classes=K), penalty=penalty, linear=linear)


def probabilities(z):
    return [mpmath.exp(value) / mpmath.fsum(map(mpmath.exp, z)) for value in z]


def exact_gradient(case, theta):
    """∇J at 50 digits."""
    K, d = case.loss.classes, case.columns
    Theta = [[mpmath.mpf(theta[k * d + j]) for j in range(d)] for k in range(K)]
    total = [[mpmath.mpf(0)] * d for _ in range(K)]
    for x, code in zip(case.held.X, case.held.y.astype(int), strict=True):
        p = probabilities([mpmath.fdot(row, x) for row in Theta])
        p[code] -= 1
        for k in range(K):
            for j in range(d):
                total[k][j] += p[k] * mpmath.mpf(x[j])
    tilt = np.zeros(K * d) if case.linear is None else case.linear
    return [
        total[k][j] / case.count + mpmath.mpf(case.penalty[0]) * Theta[k][j] + mpmath.mpf(tilt[k * d + j])
        for k in range(K)
        for j in range(d)
    ]  # fmt: skip


# The loss and its bounds.


@pytest.mark.parametrize("K", [2, 3, 7])
def test_the_derivatives_are_those_of_the_value(K):
    rng = np.random.default_rng(K)
    loss, z, y = Softmax(classes=K), 3 * rng.normal(size=(5, K)), rng.integers(0, K, 5)
    u, S = loss.derivatives(z, y)
    with mp.workdps(50):
        for row in range(5):

            def value(*point, row=row):
                return mpmath.log(mpmath.fsum(map(mpmath.exp, point))) - point[y[row]]

            for a in range(K):
                first = [int(k == a) for k in range(K)]
                slope = mpmath.diff(value, tuple(map(mpmath.mpf, z[row])), tuple(first))
                assert u[row, a] == pytest.approx(float(slope), rel=1e-13)
                for b in range(K):
                    order = tuple(first[k] + int(k == b) for k in range(K))
                    curved = mpmath.diff(value, tuple(map(mpmath.mpf, z[row])), order)
                    assert S[row, a, b] == pytest.approx(float(curved), rel=1e-12, abs=1e-16)
    np.testing.assert_allclose(loss.slope(z, y), u)
    np.testing.assert_allclose(loss.curvature(z, y), S)
    naive = np.log(np.exp(z).sum(axis=1)) - z[np.arange(5), y]
    np.testing.assert_allclose(loss.value(z, y), naive, rtol=1e-13, atol=1e-15)


def test_two_classes_are_the_logistic_loss_of_the_difference():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(50, 2)), rng.integers(0, 2, 50)
    value, sign = Softmax(classes=2).value(z, y), 2.0 * y - 1
    np.testing.assert_allclose(value, Logistic().value(z[:, 1] - z[:, 0], sign), rtol=1e-13)


@pytest.mark.parametrize("size", [1e-12, 1e-3, 0.9, 30.0])
def test_increments_do_not_cancel(size):
    rng = np.random.default_rng(1)
    z, step = rng.normal(size=(20, 4)), size * rng.uniform(-1, 1, (20, 4))
    result = Softmax(classes=4).increment(z, np.zeros(20), step)
    with mp.workdps(50):
        for row in range(20):
            after = probabilities([mpmath.mpf(a) + mpmath.mpf(b) for a, b in zip(z[row], step[row], strict=True)])  # fmt: skip
            before = probabilities([mpmath.mpf(a) for a in z[row]])
            exact = [float(a - b) for a, b in zip(after, before, strict=True)]
            np.testing.assert_allclose(result[row], exact, rtol=1e-12, atol=1e-14 * min(size, 1))


@settings(max_examples=200)
@given(
    st.lists(st.floats(-60, 60), min_size=2, max_size=8),
    st.integers(0, 7),
    st.floats(1e-3, 1e3),
)
def test_the_bounds_on_one_row(z, code, t):
    K = len(z)
    u, S = Softmax(classes=K).derivatives(np.array([z]), np.array([code % K]))
    assert np.linalg.norm(u) <= math.sqrt(2) * (1 + 1e-15)
    eigenvalues = np.linalg.eigvalsh(S[0])
    assert eigenvalues[-1] <= 0.5 + 1e-15
    assert np.trace(S[0]) <= 1 - 1 / K + 1e-15
    assert np.log1p(t * np.maximum(eigenvalues, 0)).sum() <= (K - 1) * math.log1p(t / K) * (1 + 1e-12)  # fmt: skip


@pytest.mark.parametrize("K", [2, 3, 4, 7])
def test_the_bounds_on_one_row_are_reached(K):
    loss = Softmax(classes=K)
    wrong = np.zeros((1, K))
    wrong[0, 1] = 50.0
    assert np.linalg.norm(loss.slope(wrong, np.zeros(1))) > math.sqrt(2) * (1 - 1e-12)
    pair = np.full((1, K), -50.0)
    pair[0, :2] = 0.0
    assert np.linalg.eigvalsh(loss.curvature(pair, np.zeros(1))[0])[-1] > 0.5 - 1e-12
    even = np.linalg.eigvalsh(loss.curvature(np.zeros((1, K)), np.zeros(1))[0])
    for t in (0.1, 10.0):
        assert np.log1p(t * even).sum() == pytest.approx((K - 1) * math.log1p(t / K), rel=1e-12)


def ratio_range(K, z, h):
    """The least and largest wᵀS(z + h)w / wᵀS(z)w over w with no part along (1, …, 1)."""
    loss = Softmax(classes=K)
    Q = np.linalg.qr(np.column_stack([np.ones(K), np.eye(K)[:, : K - 1]]))[0][:, 1:]
    before, after = (Q.T @ loss.curvature(point[None], np.zeros(1))[0] @ Q for point in (z, z + h))
    L = np.linalg.cholesky(before)
    values = np.linalg.eigvalsh(np.linalg.solve(L, np.linalg.solve(L, after).T))
    return values[0], values[-1]


def test_curvatures_change_by_no_more_than_the_third_order_bound():
    rng = np.random.default_rng(2)
    tightest = 0.0
    for _ in range(2000):
        K = int(rng.integers(2, 7))
        z, h = 2 * rng.normal(size=K), rng.normal(size=K) * 10 ** rng.uniform(-2, 0.5)
        least, largest = ratio_range(K, z, h)
        bound = math.sqrt(2) * np.linalg.norm(h)
        spread = np.ptp(h)
        assert spread <= bound
        assert math.exp(-spread) * (1 - 1e-7) <= least
        assert largest <= math.exp(spread) * (1 + 1e-7)
        tightest = max(tightest, math.log(largest) / bound)
    # Power: where the second class is rare, its curvature grows like e^(h₂ − h₁).
    z, h = np.array([12.0, 0.0, 2.0]), np.array([-0.5, 0.5, 0.0])
    assert math.log(ratio_range(3, z, h)[1]) > 0.99 * math.sqrt(2) * np.linalg.norm(h)
    assert tightest > 0.5


@settings(max_examples=100)
@given(st.lists(st.floats(-800, 800), min_size=2, max_size=6), st.integers(0, 5))
def test_the_rounding_of_u_is_bounded(z, code):
    K = len(z)
    result = SoftmaxDerivatives.of(np.array([z]), np.array([code % K]))
    with mp.workdps(60):
        p = probabilities([mpmath.mpf(value) for value in z])
        # 1 − p as the sum of the others, which needs no more digits.
        rest = [mpmath.fsum(p[:k] + p[k + 1 :]) for k in range(K)]
        exact = [-rest[k] if k == code % K else p[k] for k in range(K)]
        error = mpmath.norm(
            [a - mpmath.mpf(b) for a, b in zip(exact, result.slope[0], strict=True)]
        )
        assert error <= result.rounding(ROUNDOFF)[0] + 1e-300
        trace = float(mpmath.fdot(p, rest))
    assert result.trace[0] == pytest.approx(trace, rel=1e-11, abs=1e-300)


def test_solutions_stay_within_their_bound():
    for penalty in (1e-3, 0.1, 10.0):
        K = 4
        X = np.eye(K)
        case = Objective.of(X=X, y=np.arange(4.0), loss=Softmax(classes=K), penalty=penalty)
        length = np.linalg.norm(minimise(case).theta)
        assert length <= case.loss.solution_bound(penalty)


# The minimiser.


@pytest.mark.parametrize("penalty", [1.0, 1e-2, 1e-4])
def test_it_agrees_with_scikit_learn(penalty):
    X, y = load_iris(return_X_y=True)
    X = X / np.linalg.norm(X, axis=1).max()
    case = Objective.of(X=X, y=y.astype(float), loss=Softmax(classes=3), penalty=penalty)
    theirs = LogisticRegression(
        C=1 / (len(X) * penalty), fit_intercept=False, solver="newton-cg", tol=1e-10, max_iter=10_000
    ).fit(X, y)  # fmt: skip
    ours = minimise(case).theta.reshape(3, -1)
    np.testing.assert_allclose(ours, theirs.coef_, atol=1e-7 * max(1, np.abs(ours).max()))
    # Power: not with the penalty of a sum for that of a mean.
    other = Objective.of(X=X, y=y.astype(float), loss=Softmax(classes=3), penalty=penalty * 1.05)
    far = minimise(other).theta.reshape(3, -1)
    assert np.abs(far - theirs.coef_).max() > 1e-3 * np.abs(ours).max()


def tilt(K, d, size, seed=5):
    return size * np.random.default_rng(seed).normal(size=K * d)


CASES = {
    "plain": lambda: problem(12, 2, 3, 0.1),
    "seven classes": lambda: problem(20, 3, 7, 1e-2),
    "hardly penalised": lambda: problem(8, 2, 3, 1e-6),
    "heavily penalised": lambda: problem(8, 2, 4, 1e3),
    "tilted": lambda: problem(12, 2, 3, 0.1, linear=tilt(3, 2, 1.0)),
    "tilted far": lambda: problem(12, 2, 3, 0.1, linear=tilt(3, 2, 300.0)),
    "one column": lambda: problem(5, 1, 3, 0.3),
    "a class without rows": lambda: Objective.of(
        X=np.eye(3), y=np.array([0.0, 1, 1]), loss=Softmax(classes=4), penalty=0.01
    ),
    "equal rows": lambda: Objective.of(
        X=np.ones((6, 1)), y=np.array([0.0, 1, 2, 2, 2, 2]), loss=Softmax(classes=3), penalty=1e-4
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_certificate_holds(case):
    case = case()
    solution = minimise(case)
    with mp.workdps(50):
        gradient = float(mpmath.norm(exact_gradient(case, solution.theta)))
    assert gradient <= solution.gradient_bound <= 1e-12
    # Power: a point that is off by 1e-11 is not certified.
    moved = solution.theta + 1e-11 * np.eye(case.dimension)[0] / case.penalty
    with mp.workdps(50):
        assert float(mpmath.norm(exact_gradient(case, moved))) > 1e-12


def test_a_start_changes_only_the_path():
    case = problem(40, 3, 4, 1e-2)
    solution = minimise(case)
    again = minimise(case, start=solution.theta + 0.1)
    assert 0 < again.iterations <= solution.iterations
    np.testing.assert_allclose(again.theta, solution.theta, atol=1e-9)


def test_more_rows_than_a_block():
    X, y = rows(70_000, 2, 3, seed=3)
    case = Objective.of(X=X, y=y, loss=Softmax(classes=3), penalty=1e-3)
    solution = minimise(case)
    z = X @ solution.theta.reshape(3, 2).T
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    gradient = (p - np.eye(3)[y.astype(int)]).T @ X / len(X) + 1e-3 * solution.theta.reshape(3, 2)
    assert np.linalg.norm(gradient) < 1e-11
    assert solution.gradient_bound <= 1e-12


def test_a_tilt_that_float64_cannot_resolve_is_refused():
    with pytest.raises(ConvergenceError, match="raise regularization or epsilon"):
        minimise(problem(12, 2, 3, 0.1, linear=tilt(3, 2, 1e8)))


@pytest.mark.parametrize("y", [[0.0, 3.0], [0.0, -1.0], [0.0, 0.5], [0.0, math.nan]])
def test_classes_out_of_range(y):
    with pytest.raises(InvalidInput, match="classes from 0 to 2"):
        Objective.of(X=np.eye(2), y=np.array(y), loss=Softmax(classes=3), penalty=1.0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"penalty": 0.0}, "penalty"),
        ({"penalty": math.nan}, "penalty"),
        ({"linear": np.zeros(2)}, "linear"),
        ({"X": np.full((2, 2), 1e40)}, "longer"),
    ],
)
def test_bad_problems(change, expected):
    good = {"X": np.eye(2), "y": np.arange(2.0), "loss": Softmax(classes=3), "penalty": 1.0}
    Objective.of(**good)
    with pytest.raises(InvalidInput, match=expected):
        Objective.of(**{**good, **change})


@pytest.mark.parametrize("classes", [1, 0, 2.5, True, "3"])
def test_bad_numbers_of_classes(classes):
    with pytest.raises(InvalidInput, match="classes"):
        Softmax(classes=classes)


def test_what_works_on_two_classes_refuses_more():
    loss = Softmax(classes=3)
    binary = Objective.of(X=np.eye(2), y=np.array([1.0, -1.0]), loss=Logistic(), penalty=np.ones(2))
    assert two_classes_only(binary) is binary
    with pytest.raises(InvalidInput, match="has 3 classes"):
        two_classes_only(Objective.of(X=np.eye(2), y=np.arange(2.0), loss=loss, penalty=1.0))
    with pytest.raises(InvalidInput, match="one number ≥ 0 for each coefficient"):
        Objective.of(X=np.eye(2), y=np.arange(2.0), loss=loss, penalty=np.ones(2))
    with pytest.raises(InvalidInput, match="an array of 3 predictors for each row"):
        loss.at(np.zeros(2), np.arange(2.0))


# Labels.


def test_labels_and_their_codes():
    y = np.array(["b", "c", "a", "b"])
    classes = class_set(y)
    assert classes.tolist() == ["a", "b", "c"]
    assert class_codes(y, classes).tolist() == [1, 2, 0, 1]
    wider = class_set(y, ["d", "c", "b", "a"])
    assert wider.tolist() == ["a", "b", "c", "d"]
    assert class_codes([2.5, 0.5], np.array([0.5, 1.5, 2.5])).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("y", "classes", "expected"),
    [
        (["a", "b", "c"], ["a", "b"], "other than"),
        (["a", "b", "c"], ["a", "b", "c", "c"], "all differ"),
        (["a", "b", "c"], [["a"], ["b"], ["c"]], "all differ"),
        (["a", "a"], ["a", "b", "c"], "one class only"),
        (np.array([1, "a", 2.0], dtype=object), None, "types"),
    ],
)
def test_bad_labels(y, classes, expected):
    """The other refusals: tests/test_labels.py."""
    with pytest.raises(InvalidInput, match=expected):
        class_set(y, classes)


def test_a_label_that_is_no_class():
    with pytest.raises(InvalidInput, match="other than"):
        class_codes(["a", "z"], np.array(["a", "b", "c"]))
