"""The error of every ratio is within the bound of public constants, and ℓ within its interval.

ℓ is computed naively in fifty digits.
"""

import math

import mpmath as mp
import numpy as np
import pytest

import fifty_digits
from erasure.pairs import Case, Setting
from expost.erasure.coupling import total_variation
from expost.glm import Objective
from expost.losses import HuberHinge, Logistic, Softmax
from expost.mechanisms.objective import ObjectivePerturbation
from expost.mechanisms.output import OutputPerturbation
from expost.mechanisms.ratio_error import clamp_probability, ratio_error
from expost.mechanisms.tangent import Tangent
from expost.rows import HeldRows, rows_at, without


def random_setting(kind, seed):
    """Rows, constants and a change at random, some of them extreme."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(4, 30)), int(rng.integers(1, 5))
    many = kind == "objective" and rng.uniform() < 0.3
    loss = Softmax(classes=3) if many else Logistic(margin=float(rng.choice([0.0, 1.0])))
    X = rng.standard_normal((n, d))
    X /= np.maximum(np.linalg.norm(X, axis=1), 1)[:, None]
    if rng.uniform() < 0.3:
        X[: n // 2] = X[0] / np.linalg.norm(X[0])
    y = rng.integers(0, 3, n).astype(float) if many else rng.choice([-1.0, 1.0], n)
    rows, changed = HeldRows(X=X, y=y), int(rng.integers(1, min(n - 2, 6) + 1))
    noise = str(rng.choice(["laplace", "gaussian"]))
    mechanism = {"output": OutputPerturbation, "objective": ObjectivePerturbation}[kind](
        epsilon=float(np.exp(rng.uniform(np.log(0.1), np.log(20)))),
        delta=1e-4 if noise == "gaussian" else None,
        noise=noise,
        loss=loss,
        regularization=float(np.exp(rng.uniform(np.log(1e-3), np.log(1)))),
        rows=n,
        dimension=d * loss.outputs,
    )
    numbers = np.sort(rng.choice(n, changed, replace=False))
    fewer = mechanism.with_rows(n - changed)
    sides = [
        (m, Objective(rows=part, loss=loss, penalty=np.full(m.dimension, m.total_regularization)))
        for m, part in ((mechanism, rows), (fewer, without(rows, numbers)))
    ]
    insertion = bool(rng.uniform() < 0.3)
    return Setting.between(*sides, rows_at(rows, numbers), insertion=insertion), rng


def points(setting, rng):
    """Draws from P and Q, and points where the norms of b and s are the same."""
    near = [setting.pair.draw(-math.inf, rng) for _ in range(3)]
    near += [setting.pair.point_of(setting.before.release(setting.present, rng), rng)]
    if isinstance(setting.before, OutputPerturbation):
        base, shift = setting.pair.base.theta, setting.pair.shift
        near += [base, base + shift, base + shift * (1 + 1e-9), base - shift]
    return near


def exact_log_density(mechanism, objective, theta):
    """log p(θ ∣ D) but for a constant, in fifty digits."""
    penalty = mp.mpf(float(mechanism.penalty_sum))
    q, loss = objective.loss.outputs, objective.loss
    rows, labels = fifty_digits.exact_rows(objective.rows.X, objective.rows.y)
    at = [mp.mpf(float(value)) for value in theta]
    d, size = len(at) // q, len(at)
    gradient, hessian = [penalty * value for value in at], mp.matrix(size, size)
    for a in range(size):
        hessian[a, a] = penalty
    for x, label in zip(rows, labels, strict=True):
        z = [mp.fdot(x, at[k * d : (k + 1) * d]) for k in range(q)]
        if q == 1:
            u = [fifty_digits.slope(loss, z[0], label)]
            S = [[fifty_digits.curvature(loss, z[0], label)]]
        else:
            e = [mp.exp(value) for value in z]
            p = [value / mp.fsum(e) for value in e]
            u = [value - (k == int(label)) for k, value in enumerate(p)]
            S = [[p[a] * (a == b) - p[a] * p[b] for b in range(q)] for a in range(q)]
        for a in range(size):
            gradient[a] += u[a // d] * x[a % d]
            for b in range(size):
                hessian[a, b] += S[a // d][b // d] * x[a % d] * x[b % d]
    norm = fifty_digits.norm(gradient)
    return exact_noise(mechanism.law, norm) + mp.log(mp.det(hessian))


def exact_noise(law, norm):
    if hasattr(law, "rate"):
        return -mp.mpf(law.rate) * norm
    return -(norm**2) / (2 * mp.mpf(law.scale) ** 2)


def exact_ratio(setting, theta):
    sides = ((setting.before, setting.present), (setting.after, setting.changed))
    if isinstance(setting.before, ObjectivePerturbation):
        first, second = (exact_log_density(*side, theta) for side in sides)
        return first - second
    values = []
    for mechanism, objective in sides:
        rows, labels = fifty_digits.exact_rows(objective.rows.X, objective.rows.y)
        start = objective.minimiser(1e-12).theta
        centre, _ = fifty_digits.solve(
            rows, labels, objective.loss, mechanism.regularization, start
        )
        at = [mp.mpf(float(value)) - c for value, c in zip(theta, centre, strict=True)]
        values.append(exact_noise(mechanism.law, fifty_digits.norm(at)))
    return values[0] - values[1]


@pytest.mark.parametrize("kind", ["output", "objective"])
def test_errors_are_within_the_public_bound(kind):
    used = []
    for seed in range(120):
        setting, rng = random_setting(kind, seed)
        for theta in points(setting, rng):
            used.append(setting.pair.ratio(theta).error / setting.pair.error_bound)
    assert max(used) <= 1
    # Not out of all proportion either.
    assert np.median(used) > 1e-4


def test_errors_are_within_the_bound_where_the_noise_is_as_long_as_the_gradient():
    """Norm-Laplace noise with ∥b∥ = ∥G∥, where rounding is largest."""
    setting = Case(kind="objective", noise="laplace", separation=4.0).setting()
    rows = setting.present.rows
    low, high = -50.0, 50.0
    for _ in range(200):
        middle = (low + high) / 2
        g = Tangent.at(setting.before, setting.present, np.array([middle])).gradient[0]
        gone = -rows.y[0] / (1 + np.exp(rows.y[0] * rows.X[0, 0] * middle)) * rows.X[0, 0]
        low, high = (middle, high) if g < gone else (low, middle)
    errors = [setting.pair.ratio(np.array([low + t])).error for t in (0.0, 1e-12, 1e-9, 1e-6)]
    assert max(errors) <= setting.pair.error_bound
    assert max(errors) > 2 * min(errors)


@pytest.mark.parametrize("kind", ["output", "objective"])
def test_ratio_holds_in_fifty_digits(kind):
    with mp.workdps(50):
        for seed in range(25):
            setting, rng = random_setting(kind, 1000 + seed)
            for theta in points(setting, rng)[1:]:
                ratio = setting.pair.ratio(theta)
                assert ratio.low <= exact_ratio(setting, theta) <= ratio.high


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("insertion", [False, True])
def test_no_draw_that_would_be_accepted_is_left_out(noise, insertion):
    """A draw that is refused by its noise alone has a −ℓ below the level."""
    left_out = 0
    for classes in (2, 3):
        case = Case(
            kind="objective",
            noise=noise,
            separation=1.0,
            dimension=2,
            classes=classes,
            rows=6,
            changed=2,
        )
        pair = case.setting(insertion=insertion).pair
        for seed in range(150):
            theta = pair.draw(-math.inf, np.random.default_rng(seed))
            level = -pair.ratio(theta).high
            assert pair.draw(level, np.random.default_rng(seed)) is not None
            left_out += pair.draw(level + 8, np.random.default_rng(seed)) is None
    # It is of use.
    assert left_out > 20


def test_bound_follows_from_public_constants():
    first, _ = random_setting("objective", 3)
    mechanism = first.before
    assert ratio_error(mechanism, first.after) == first.pair.error_bound
    assert total_variation(mechanism, first.after) >= 4 * first.pair.error_bound
    # More rows are known less precisely.
    bounds = [ratio_error(mechanism, mechanism.with_rows(mechanism.rows - k)) for k in (1, 2)]
    assert bounds[0] < bounds[1]


def test_losses_without_bounds_have_none():
    hinge = ObjectivePerturbation(
        epsilon=1.0,
        delta=1e-5,
        noise="gaussian",
        loss=HuberHinge(width=0.5),
        regularization=0.1,
        rows=50,
        dimension=2,
    )
    assert ratio_error(hinge, hinge.with_rows(49)) == math.inf


@pytest.mark.parametrize("kind", ["output", "objective"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_clamp_probability_is_a_bound(kind, noise):
    mechanism = Case(kind=kind, noise=noise, separation=1.0, dimension=2).calibrated()
    known = clamp_probability(mechanism)
    assert 0 <= known < 1e-11
    # With rows that enter, θ may be longer, and the clamp stays.
    assert clamp_probability(mechanism.with_rows(4 * mechanism.rows)) >= known


def test_kept_models_are_as_precise_as_others():
    """The gradient that the solver leaves is the same, summed, with fewer rows."""
    mechanism = Case(kind="objective", noise="gaussian", separation=1.0, rows=20).calibrated()
    reaches = [mechanism.with_rows(rows).reach_of_cell for rows in (20, 15, 5)]
    assert max(reaches) <= reaches[0] * (1 + 1e-12)
    assert min(reaches) >= reaches[0] * (1 - 1e-12)
