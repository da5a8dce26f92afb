"""Losses: derivatives, proved bounds, increments without cancellation, the ridge solution bound."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import expit

from expost.errors import InvalidInput
from expost.losses import HuberHinge, Logistic, Softmax, Squared, default_margin, make_loss

U = 2.0**-53
HINGES = [HuberHinge(), HuberHinge(width=0.1), HuberHinge(width=1.0)]
LOGISTIC = [Logistic(), Logistic(margin=0.3), Logistic(margin=3.0), Logistic(margin=20.0)]
LOSSES = [*LOGISTIC, *HINGES, Squared(label_bound=2.0)]
GRID = np.concatenate([-np.logspace(-9, 2.84, 40), [0.0], np.logspace(-9, 2.84, 40)])


def _id(loss):
    parameter = getattr(loss, "width", None) or getattr(loss, "margin", None)
    return loss.name + (f"-{parameter}" if parameter else "")


@pytest.fixture(autouse=True)
def _many_digits():
    # e^(−700) beside 1 takes that many digits to be distinguished.
    with mp.workdps(350):
        yield


def naive_value(loss, z, y):
    """f as the papers write it."""
    if isinstance(loss, Logistic):
        return mp.log(1 + mp.exp(mp.mpf(loss.margin) - y * z))
    if isinstance(loss, Squared):
        return (z - y) ** 2 / 2
    u, h = y * z, mp.mpf(loss.width)
    if u > 1 + h:
        return mp.mpf(0)
    return (1 + h - u) ** 2 / (4 * h) if abs(1 - u) <= h else 1 - u


def naive_slope(loss, z, y):
    if isinstance(loss, Logistic):
        return -y / (1 + mp.exp(y * z - mp.mpf(loss.margin)))
    if isinstance(loss, Squared):
        return z - y
    u, h = y * z, mp.mpf(loss.width)
    if u > 1 + h:
        return mp.mpf(0)
    return -y * (1 + h - u) / (2 * h) if abs(1 - u) <= h else -y


def naive_curvature(loss, z, y):
    if isinstance(loss, Logistic):
        w = z - y * mp.mpf(loss.margin)
        return mp.exp(w) / (1 + mp.exp(w)) ** 2
    if isinstance(loss, Squared):
        return mp.mpf(1)
    return 1 / (2 * mp.mpf(loss.width)) if abs(1 - y * z) < mp.mpf(loss.width) else mp.mpf(0)


def relative(computed, wanted):
    """Largest ∣found − wanted∣/∣wanted∣, exact values against floats."""
    pairs = zip(np.ravel(computed), wanted, strict=True)
    return max(float(abs(mp.mpf(float(a)) - b) / abs(b)) if b else float(abs(a)) for a, b in pairs)


def test_the_naive_derivatives_are_derivatives():
    """The formulas above against numerical differentiation, away from the knots."""
    with mp.workdps(60):
        for loss in LOSSES:
            for z in map(mp.mpf, ("-3.3", "-0.7", "0.2", "0.83", "1.31", "2.9")):
                for y in (mp.mpf(1), mp.mpf(-1)):
                    first = mp.diff(lambda t, loss=loss, y=y: naive_value(loss, t, y), z)
                    second = mp.diff(lambda t, loss=loss, y=y: naive_slope(loss, t, y), z)
                    assert abs(first - naive_slope(loss, z, y)) < 1e-20
                    assert abs(second - naive_curvature(loss, z, y)) < 1e-20


each_logistic = pytest.mark.parametrize("loss", LOGISTIC, ids=_id)


@each_logistic
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_logistic_is_right_to_sixteen_roundings(loss, y):
    """The relative accuracy of f, f′ and f″ that the error bounds count on, tails included."""
    labels = np.full_like(GRID, y)
    exact = [mp.mpf(float(z)) for z in GRID]
    assert relative(loss.value(GRID, labels), [naive_value(loss, z, y) for z in exact]) < 16 * U
    slopes, curvatures = loss.derivatives(GRID, labels)
    for computed in (loss.slope(GRID, labels), slopes):
        assert relative(computed, [naive_slope(loss, z, y) for z in exact]) < 16 * U
    for computed in (loss.curvature(GRID, labels), curvatures):
        assert relative(computed, [naive_curvature(loss, z, y) for z in exact]) < 16 * U


def test_a_margin_that_is_subtracted_would_lose_the_tail():
    """Why e^a multiplies e^(−yz): the rounding of a − yz is hundreds of those of f′ there."""
    z, margin = np.linspace(600.0, 601.0, 101), 0.3
    labels, exact = np.ones_like(z), [mp.mpf(float(t)) for t in z]
    loss = Logistic(margin=margin)
    wanted = [naive_slope(loss, t, 1) for t in exact]
    assert relative(Logistic().slope(z - margin, labels), wanted) > 100 * U
    assert relative(loss.slope(z, labels), wanted) < 16 * U


def test_a_margin_of_zero_is_the_plain_loss():
    """Every function, to the last bit, against scipy's."""
    rng = np.random.default_rng(5)
    z, y = rng.normal(size=1000) * 20, rng.choice([-1.0, 1.0], 1000)
    loss = Logistic(margin=0.0)
    assert loss == Logistic()
    np.testing.assert_array_equal(loss.value(z, y), np.logaddexp(0, -y * z))
    np.testing.assert_array_equal(loss.slope(z, y), -y * expit(-y * z))
    np.testing.assert_array_equal(loss.curvature(z, y), expit(z) * expit(-z))
    assert loss.solution_bound(0.1) == min(10.0, math.sqrt(2 * math.log(2) / 0.1))


def test_the_log_loss_of_a_margin_is_that_of_its_probabilities():
    """σ(z) is what is predicted: −log of it is the loss without the margin."""
    z, y = np.array([-2.0, 0.5, 3.0]), np.array([1.0, -1.0, 1.0])
    for loss in LOGISTIC:
        assert loss.likelihood == Logistic()
        np.testing.assert_allclose(loss.likelihood.value(z, y), -np.log(expit(y * z)))
    assert HuberHinge().likelihood is None
    assert Softmax(classes=3).likelihood == Softmax(classes=3)


@pytest.mark.parametrize(
    ("ratio", "margin"),
    [(0.0, 0.0), (1e-4, 0.0), (1e-3, 0.0), (0.01, 1.0), (0.1, 2.0), (1.0, 3.0), (50.0, 3.0)],
)
def test_the_automatic_margin(ratio, margin):
    assert default_margin(ratio) == pytest.approx(margin, abs=1e-12)


@each_logistic
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_logistic_slope_in_extended_precision(loss, y):
    """The polish of the minimiser counts on 64 roundings of the platform's long double."""
    unit = float(np.finfo(np.longdouble).eps)
    wide = GRID.astype(np.longdouble)
    computed = loss.slope(wide, np.full_like(wide, y))
    assert computed.dtype == np.longdouble
    for value, z in zip(computed, GRID, strict=True):
        # A long double is the sum of two doubles.
        high = float(value)
        exact_value = mp.mpf(high) + mp.mpf(float(value - np.longdouble(high)))
        wanted = naive_slope(loss, mp.mpf(float(z)), y)
        assert abs(exact_value - wanted) <= 64 * unit * abs(wanted)


@pytest.mark.parametrize("loss", [*HINGES, Squared(label_bound=2.0)], ids=_id)
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_piecewise_polynomials_are_right(loss, y):
    z = np.concatenate([np.linspace(-4, 4, 161), [1 + 0.5, 1 - 0.5, 1.1, 0.9]])
    labels = np.full_like(z, y)
    exact = [mp.mpf(float(t)) for t in z]
    # The rounding of 1 + h − u, over the width.
    tolerance = 16 * U * 6 / getattr(loss, "width", 1.0)
    first, second = loss.derivatives(z, labels)
    np.testing.assert_array_equal(first, loss.slope(z, labels))
    np.testing.assert_array_equal(second, loss.curvature(z, labels))
    for k, t in enumerate(exact):
        assert abs(loss.value(z, labels)[k] - naive_value(loss, t, y)) <= 6 * tolerance
        assert abs(first[k] - naive_slope(loss, t, y)) <= tolerance
        knot = isinstance(loss, HuberHinge) and abs(abs(1 - y * t) - loss.width) < 1e-12
        assert knot or abs(second[k] - naive_curvature(loss, t, y)) <= tolerance


@pytest.mark.parametrize("loss", HINGES, ids=_id)
def test_hinge_is_smooth_at_its_knots(loss):
    """f and f′ are continuous at u = 1 ± h; f″ jumps by the whole curvature bound."""
    for knot in (1 - loss.width, 1 + loss.width):
        sides = np.array([knot - 1e-9, knot + 1e-9])
        ones = np.ones(2)
        assert abs(np.diff(loss.value(sides, ones))[0]) < 3e-9
        assert abs(np.diff(loss.slope(sides, ones))[0]) < 3e-9 * loss.curvature_bound
        assert abs(np.diff(loss.curvature(sides, ones))[0]) == loss.curvature_bound
        assert loss.knot_distance(np.array([knot + 1e-3]), np.ones(1)) == pytest.approx(1e-3)
    far = np.linspace(-5, 5, 1001)
    reach = loss.knot_distance(far, np.ones_like(far))
    for share in (-0.999, 0.999):
        moved = loss.curvature(far + share * reach, np.ones_like(far))
        np.testing.assert_array_equal(moved, loss.curvature(far, np.ones_like(far)))


@pytest.mark.parametrize("loss", LOSSES, ids=_id)
def test_bounds_hold_on_a_dense_grid_and_are_attained(loss):
    z = np.linspace(-40, 40, 400_001)
    for y in (1.0, -1.0):
        labels = np.full_like(z, y)
        slope, curvature = loss.slope(z, labels), loss.curvature(z, labels)
        assert np.all(curvature >= 0)
        assert curvature.max() <= loss.curvature_bound <= curvature.max() * (1 + 1e-6)
        assert np.all(np.diff(slope) >= -1e-15), "f is convex"
        if loss.is_classification:
            assert np.abs(slope).max() <= loss.lipschitz(1.0) <= np.abs(slope).max() * (1 + 1e-6)


@each_logistic
def test_third_and_fourth_derivative_of_the_logistic_loss(loss):
    """∣f‴∣ ≤ f″ (M = 1, and no smaller M), ∣f⁗∣ ≤ f″, from derivatives taken numerically."""
    largest = {3: mp.mpf(0), 4: mp.mpf(0)}
    with mp.workdps(60):
        for z in np.linspace(-30, 30, 121):
            t = mp.mpf(float(z))
            second = naive_curvature(loss, t, 1)
            for order in (3, 4):
                value = mp.diff(lambda s: naive_curvature(loss, s, 1), t, order - 2)
                assert abs(value) <= second * (1 + mp.mpf("1e-20"))
                largest[order] = max(largest[order], abs(value) / second)
                if order == 3:
                    computed = float(loss.third(np.array([z]), np.ones(1))[0])
                    assert abs(computed - value) <= 16 * U * second
                    mirrored = float(loss.third(np.array([-z]), -np.ones(1))[0])
                    assert mirrored == -computed
    assert largest[3] > 0.999999
    assert largest[4] > 0.999999
    assert loss.third_ratio == 1.0


def test_self_concordance_in_the_large():
    """f″(z)e^(−∣a∣) ≤ f″(z + a) ≤ f″(z)e^∣a∣, what the certificate uses; e^(∣a∣/2) would be false."""
    loss = Logistic()
    z, a = np.meshgrid(np.linspace(-30, 30, 301), np.linspace(-8, 8, 161))
    here, there = loss.curvature(z, z), loss.curvature(z + a, z)
    assert np.all(there <= here * np.exp(np.abs(a)) * (1 + 1e-12))
    assert np.all(there >= here * np.exp(-np.abs(a)) * (1 - 1e-12))
    assert np.any(there > here * np.exp(np.abs(a) / 2))


STEPS = np.concatenate([[1e-300, 1e-200, 1e-100, 1e-40], np.logspace(-20, 3, 70)])
PREDICTORS = [0.0, 1e-12, 0.3, 1.0, 5.0, 36.0, 37.5, 200.0, 690.0]


def _sigmoid_tolerance(z, step):
    """Relative: some roundings, and past a step of 1 that of z + step, which the bounds count."""
    return (64 + (2 * (abs(z) + abs(step)) if abs(step) >= 1 else 0)) * U


@each_logistic
def test_logistic_increment_does_not_cancel(loss):
    for z in (sign * value for value in PREDICTORS for sign in (1, -1)):
        for step in (sign * value for value in STEPS for sign in (1, -1)):
            a, b = mp.mpf(float(z)), mp.mpf(float(step))
            for y in (1.0, -1.0):
                w = a - y * mp.mpf(loss.margin)
                wanted = 1 / (1 + mp.exp(-w - b)) - 1 / (1 + mp.exp(-w))
                computed = loss.increment(np.array(z), np.array(y), np.array(step))
                error = abs(mp.mpf(float(computed)) - wanted)
                tolerance = _sigmoid_tolerance(z, step) * abs(wanted) + mp.mpf("1e-300")
                assert error <= tolerance, (z, step)


def test_subtracting_slopes_would_cancel():
    """Why there is an increment at all: the plain difference is off by 10 % and more here."""
    loss, z, step = Logistic(), np.array(-0.3), np.array(1e-15)
    wanted = float(loss.curvature(z, z) * step)
    plain = float(loss.slope(z + step, np.array(1.0)) - loss.slope(z, np.array(1.0)))
    assert abs(plain - wanted) > 0.1 * wanted
    assert abs(float(loss.increment(z, np.array(1.0), step)) - wanted) < 1e-13 * wanted


@each_logistic
@pytest.mark.parametrize("z", [-2000.0, -800.0, -723.5370364, 723.5370364, 746.0, 800.0, 2000.0])
def test_logistic_increment_where_the_sigmoid_underflows(loss, z):
    """A step back from the far tail: a quotient of subnormal numbers would be wrong, or NaN."""
    mp.mp.dps = 900
    for step in -z + np.array([-60.0, -5.0, -1e-3, 0.0, 1e-3, 5.0, 60.0]):
        a, b = mp.mpf(z) - mp.mpf(loss.margin), mp.mpf(float(step))
        wanted = 1 / (1 + mp.exp(-a - b)) - 1 / (1 + mp.exp(-a))
        computed = loss.increment(np.array(z), np.array(1.0), np.array(step))
        assert abs(mp.mpf(float(computed)) - wanted) <= _sigmoid_tolerance(z, step) * abs(wanted)


def _hinge_error(loss, z, y, step):
    a, b = mp.mpf(float(z)), mp.mpf(float(step))
    wanted = naive_slope(loss, a + b, y) - naive_slope(loss, a, y)
    computed = loss.increment(np.array(z), np.array(y), np.array(step))
    return abs(mp.mpf(float(computed)) - wanted), abs(wanted)


@pytest.mark.parametrize("loss", HINGES, ids=_id)
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_hinge_increment_is_as_accurate_as_the_predictor(loss, y):
    for z in (sign * value for value in (0.0, 0.9, 1.2, 3.0, 40.0) for sign in (1, -1)):
        for step in (sign * value for value in STEPS for sign in (1, -1)):
            error, _ = _hinge_error(loss, z, y, step)
            assert error <= 8 * U * loss.curvature_bound * (2 + abs(z) + abs(step))


@pytest.mark.parametrize("loss", HINGES, ids=_id)
def test_hinge_increment_keeps_a_tiny_step(loss):
    """Inside the parabola the increment is the step over 2h, however short."""
    for z in (1.0, 1 - 0.7 * loss.width, 1 + 0.6 * loss.width):
        for step in (sign * value for value in STEPS for sign in (1, -1)):
            if abs(step) < 0.1 * loss.width:
                error, size = _hinge_error(loss, z, 1.0, step)
                assert error <= 8 * U * size


def test_squared_increment_is_the_step():
    step = np.array([1e-300, -3.0, 0.1])
    increment = Squared(label_bound=1.0).increment(np.ones(3), np.zeros(3), step)
    np.testing.assert_array_equal(increment, step)


def _ridge(X, y, regularization):
    n, d = X.shape
    return np.linalg.solve(X.T @ X / n + regularization * np.eye(d), X.T @ y / n)


@pytest.mark.parametrize("regularization", [1e-6, 1e-4, 1e-2, 0.5, 1.0, 3.0, 1e3])
def test_ridge_solution_bound_holds_and_is_nearly_attained(regularization):
    """∥A∥ ≤ Y·max s/(s² + Λ), and ∥∇ℓ∥ ≤ Y + ∥A∥, for rows in the unit ball."""
    rng = np.random.default_rng(11)
    loss = Squared(label_bound=3.0)
    bound, steepest = loss.solution_bound(regularization), loss.lipschitz(regularization)
    largest = 0.0
    for trial in range(60):
        n, d = int(rng.integers(1, 30)), int(rng.integers(1, 8))
        X = rng.normal(size=(n, d))
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
        y = 3.0 * rng.uniform(-1, 1, n)
        if trial % 3 == 0:
            X = X[:, :1] @ rng.normal(size=(1, d))
            X /= max(1.0, np.linalg.norm(X, axis=1).max())
            y = 3.0 * np.sign(X @ rng.normal(size=d))
        A = _ridge(X, y, regularization)
        assert np.linalg.norm(A) <= bound
        gradients = np.abs(X @ A - y) * np.linalg.norm(X, axis=1)
        assert gradients.max() <= steepest
        largest = max(largest, float(np.linalg.norm(A)))
    # The adversary: every row at the length where s/(s² + Λ) peaks, every label at the bound.
    length = min(1.0, math.sqrt(regularization))
    worst = float(np.linalg.norm(_ridge(np.full((4, 1), length), np.full(4, 3.0), regularization)))
    assert 0.999 * bound <= worst <= bound * (1 + 1e-12)
    assert largest <= bound


def test_one_is_no_bound_on_a_ridge_solution():
    """A Lipschitz constant that takes ∥A∥ ≤ 1 is exceeded many times over at Λ = 1e-4."""
    A = _ridge(np.full((4, 1), 0.01), np.ones(4), 1e-4)
    assert np.linalg.norm(A) > 40
    assert Squared(label_bound=1.0).solution_bound(1e-4) >= np.linalg.norm(A)


def test_gradient_of_a_ridge_reaches_its_lipschitz_constant():
    """One row whose label disagrees with all the others sees nearly Y + ∥A∥."""
    regularization, n = 1e-4, 100_000
    X = np.full((n, 1), 0.01)
    y = np.ones(n)
    X[0], y[0] = 1.0, -1.0
    A = _ridge(X, y, regularization)
    gradient = abs(float(X[0] @ A) - y[0])
    bound = Squared(label_bound=1.0).lipschitz(regularization)
    assert 0.9 * bound < gradient <= bound


@pytest.mark.parametrize("loss", [*LOGISTIC, *HINGES], ids=_id)
@pytest.mark.parametrize("regularization", [1e-6, 1e-2, 1.0, 100.0])
def test_classifier_solution_bounds(loss, regularization):
    """One feature, all rows at x = y: the longest minimiser there is; found by bisection."""
    low, high = 0.0, 1e7
    for _ in range(200):
        middle = (low + high) / 2
        slope = float(loss.slope(np.array(middle), np.array(1.0))) + regularization * middle
        low, high = (middle, high) if slope < 0 else (low, middle)
    assert 0 < low <= loss.solution_bound(regularization)


def test_make_loss():
    assert make_loss("logistic") == Logistic()
    assert make_loss("logistic", margin=2) == Logistic(margin=2.0)
    assert make_loss("huber-hinge", width=0.25) == HuberHinge(width=0.25)
    assert make_loss("squared", label_bound=2) == Squared(label_bound=2)
    own = HuberHinge(width=0.3)
    assert make_loss(own) is own


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: make_loss("hinge"), "loss='hinge'"),
        (lambda: make_loss("squared"), "label_bound=None"),
        (lambda: Squared(label_bound=0.0), "label_bound=0.0"),
        (lambda: Squared(label_bound=math.nan), "label_bound=nan"),
        (lambda: Squared(label_bound=math.inf), "label_bound=inf"),
        (lambda: HuberHinge(width=0.0), "width=0.0"),
        (lambda: HuberHinge(width=1.5), "width=1.5"),
        (lambda: HuberHinge(width=math.nan), "width=nan"),
        (lambda: Logistic(margin=-0.1), "margin=-0.1: must lie between 0 and 100"),
        (lambda: Logistic(margin=math.inf), "margin=inf"),
        (lambda: Logistic(margin=math.nan), "margin=nan"),
        (lambda: Logistic(margin="1"), "margin='1'"),
    ],
)
def test_bad_losses_are_refused(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()
