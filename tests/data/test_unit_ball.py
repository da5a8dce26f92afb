"""The unit ball: the norm bound in exact arithmetic, and θ there and back."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from expost.data import UnitBall
from expost.errors import InvalidInput
from parameters import WRONG, every_parameter_reaches


def exact_square_norm(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(value)) ** 2 for value in row), Fraction(0))


def adversarial_rows(rng: np.random.Generator, norm: float, width: int) -> np.ndarray:
    """Rows whose length is norm, an ulp more or less, far past it, and far below it."""
    rows = rng.normal(size=(6, width))
    rows *= (norm / np.linalg.norm(rows, axis=1))[:, None]
    rows[1] = np.nextafter(rows[1], 2 * rows[1])
    rows[2] = np.nextafter(rows[2], 0)
    rows[3] *= 1e6
    rows[4] *= 1e-160
    rows[5] = 0
    rows[5, 0] = norm
    return rows


@pytest.mark.parametrize("scaling", [1e-3, 0.1, 0.5, 0.999, 1 - 2**-53])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_no_row_passes_one_in_exact_arithmetic(fit_intercept, scaling):
    rng = np.random.default_rng(1)
    for _ in range(60):
        width = int(rng.integers(1, 12))
        norm = float(rng.lognormal(sigma=3))
        ball = UnitBall(data_norm=norm, fit_intercept=fit_intercept, intercept_scaling=scaling)
        rows, _ = ball.rows(adversarial_rows(rng, norm, width))
        assert rows.shape == (6, width + fit_intercept)
        for row in rows:
            assert exact_square_norm(row) <= 1
        # Little is given away: a row on the sphere stays within (p + 24)u of it.
        assert exact_square_norm(rows[3]) >= 1 - 2 * (width + 25) * Fraction(1, 2**53)


def test_plain_division_does_pass_one():
    """Power: without the factor the same check fails."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 6))
    unit = X / np.linalg.norm(X, axis=1)[:, None]
    assert sum(exact_square_norm(row) > 1 for row in unit) > 40


def test_clipping_is_counted_and_keeps_the_direction():
    ball = UnitBall(data_norm=2.0, fit_intercept=False)
    rows, clipped = ball.rows([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]])
    assert clipped == 1
    assert rows == pytest.approx(np.array([[0.6, 0.8], [0.5, 0.0], [0.0, 0.0]]))


def test_the_largest_norm_clips_no_row():
    rng = np.random.default_rng(3)
    for scale in (1.0, 1e140, 1e-140, 1e-160, 5e-324, 1e-310):
        for width in (1, 2, 7, 40):
            X = rng.normal(size=(50, width)) * scale
            norm = UnitBall.largest_norm(X)
            rows, clipped = UnitBall(data_norm=norm, fit_intercept=True).rows(X)
            assert clipped == 0
            assert np.isfinite(rows).all()
    assert UnitBall.largest_norm(np.zeros((3, 2))) == 1.0
    assert UnitBall.largest_norm([[3.0, 4.0], [0.0, 1.0]]) == pytest.approx(5, rel=1e-14)


def test_no_overflow_at_the_largest_values():
    X = np.array([[1e150, -1e150], [1e-300, 5e-324], [-0.0, 0.0]])
    rows, clipped = UnitBall(data_norm=1.0, fit_intercept=False).rows(X)
    assert clipped == 1
    assert rows[0] == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)])
    assert rows[1, 0] == pytest.approx(1e-300)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_coefficients_give_the_same_score(fit_intercept):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 5)) * 7
    ball = UnitBall(data_norm=UnitBall.largest_norm(X), fit_intercept=fit_intercept)
    rows, _ = ball.rows(X)
    theta = rng.normal(size=rows.shape[1])
    coef, intercept = ball.coefficients(theta)
    assert coef.shape == (5,)
    assert X @ coef + intercept == pytest.approx(rows @ theta, rel=1e-12, abs=1e-13)
    assert ball.theta(coef, intercept) == pytest.approx(theta, rel=1e-14)


def test_the_constant_is_the_last_column():
    rows, _ = UnitBall(data_norm=1.0, fit_intercept=True, intercept_scaling=0.25).rows([[0.0, 0.5]])
    assert rows[0, -1] == pytest.approx(0.25, rel=1e-13)
    assert rows[0, 1] == pytest.approx(0.5 * math.sqrt(1 - 0.0625), rel=1e-13)


def test_any_layout_and_type_simply_works():
    X = np.arange(12, dtype=np.float64).reshape(4, 3)
    ball = UnitBall(data_norm=30.0, fit_intercept=True)
    expected, _ = ball.rows(X)
    frozen = X.copy()
    frozen.setflags(write=False)
    for other in (np.asfortranarray(X), X.astype(np.float16), X.astype(np.int32), frozen):
        assert np.array_equal(ball.rows(other)[0], expected)
    assert np.array_equal(frozen, X)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_nan_and_overflow_are_found_before_clipping(bad):
    X = np.ones((3, 2))
    X[1, 1] = bad
    ball = UnitBall(data_norm=1.0, fit_intercept=False)
    with pytest.raises(InvalidInput, match="X holds"):
        ball.rows(X)
    with pytest.raises(InvalidInput, match="X holds"):
        UnitBall.largest_norm(X)


def test_bad_constants_are_refused():
    good = {"data_norm": 1.0, "fit_intercept": True, "intercept_scaling": 0.1}
    every_parameter_reaches(UnitBall, good, wrong=(*WRONG, 0.0, math.inf))
    for edge in ({"data_norm": 1e-200}, {"intercept_scaling": 1.0}, {"fit_intercept": 1}):
        with pytest.raises(InvalidInput, match=next(iter(edge))):
            UnitBall(**good | edge)


def test_bad_vectors_are_refused():
    ball = UnitBall(data_norm=1.0, fit_intercept=False)
    for theta in ([], [[1.0]], [np.nan]):
        with pytest.raises(InvalidInput, match="theta"):
            ball.coefficients(np.array(theta))
    with pytest.raises(InvalidInput, match="intercept"):
        ball.theta(np.ones(2), 1.0)
    with pytest.raises(InvalidInput, match="intercept"):
        ball.theta(np.ones(2), math.nan)
    with pytest.raises(InvalidInput, match="feature"):
        UnitBall(data_norm=1.0, fit_intercept=True).coefficients(np.ones(1))


def test_json_round_trip_and_strictness():
    ball = UnitBall(data_norm=3.7, fit_intercept=True, intercept_scaling=0.3)
    text = json.dumps(ball.to_json())
    assert UnitBall.from_json(json.loads(text)) == ball
    good = ball.to_json()
    for bad in (
        None,
        [],
        {},
        good | {"more": 1},
        {key: good[key] for key in list(good)[:2]},
        good | {"data_norm": "3.7"},
        good | {"data_norm": True},
        good | {"data_norm": 10**400},
        good | {"fit_intercept": "yes"},
        good | {"intercept_scaling": None},
    ):
        with pytest.raises(InvalidInput):
            UnitBall.from_json(bad)
