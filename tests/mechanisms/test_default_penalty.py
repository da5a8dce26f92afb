"""The rule for Λ of objective perturbation: its formula, what it must not depend on, its floor."""

import itertools
import math

import pytest

from expost.losses import HuberHinge, Logistic, Softmax
from expost.mechanisms import ObjectivePerturbation
from naive import gaussian_scale

DELTA = 1e-6
# (loss, its largest slope L, its largest curvature c, rank and curvature of its determinant)
LOSSES = [
    (Logistic(), 1.0, 0.25, 1, 0.25),
    (HuberHinge(width=0.5), 1.0, 1.0, 1, 1.0),
    (HuberHinge(width=1.0), 1.0, 0.5, 1, 0.5),
    (Softmax(classes=3), math.sqrt(2), 0.5, 2, 1 / 3),
    (Softmax(classes=10), math.sqrt(2), 0.5, 9, 0.1),
]


def rule(loss, *, rows=5000, dimension=60, epsilon=1.0, **given):
    known = {"delta": DELTA, "noise": "gaussian"} | given
    return ObjectivePerturbation.automatic_regularization(
        loss=loss, rows=rows, dimension=dimension, epsilon=epsilon, **known
    )


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize(("loss", "slope", "curvature", "rank", "each"), LOSSES)
def test_the_rule_by_its_definition(loss, slope, curvature, rank, each, noise):
    active = set()
    # Of more rows Λ may be raised for its grid: tests/test_defaults.py.
    for epsilon, rows, dimension in itertools.product((0.1, 1.0, 8.0), (200, 10**5), (3, 600)):
        if noise == "laplace":
            given = {"noise": noise, "delta": None}
            square = dimension * (dimension + 1) * (2 * slope / epsilon) ** 2
        else:
            given = {}
            square = dimension * gaussian_scale(epsilon, DELTA / rank, slope) ** 2
        r = math.sqrt(square / loss.outputs) / rows
        # s·g(z/w), g the logistic loss.
        w, s = slope / (4 * curvature), slope**2 / (4 * curvature)
        halves = 2 if isinstance(loss, Logistic) else 4
        floor = 2 * each / math.expm1(epsilon / (halves * rank)) / rows
        expected = max(r / (20 * w) + r**2 / s, floor)
        active.add(floor == expected)
        penalty = rule(loss, rows=rows, dimension=dimension, epsilon=epsilon, **given)
        assert penalty == pytest.approx(expected, rel=1e-4)
    assert active == {True, False}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_softmax_of_two_classes_has_the_minimiser_of_logistic_regression(epsilon):
    # Θ = (θ, −θ)/2 has ∥Θ∥² = ∥θ∥²/2, so its penalty is twice as large; d counts both classes.
    for rows in (300, 3000):
        softmax = rule(Softmax(classes=2), rows=rows, dimension=1200, epsilon=epsilon)
        logistic = rule(Logistic(), rows=rows, dimension=600, epsilon=epsilon)
        assert softmax == pytest.approx(2 * logistic, rel=1e-4)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_scaled_loss_has_the_scaled_rule(factor):
    # The hinge of width h is h times that of width 1 at z/h but for where its corner lies.
    wide = rule(HuberHinge(width=0.5), dimension=400)
    other = rule(HuberHinge(width=0.5 * factor), dimension=400)
    assert other == pytest.approx(wide / factor, rel=1e-9)


@pytest.mark.parametrize(("loss", "slope", "curvature", "rank", "each"), LOSSES)
def test_the_noise_at_the_rule_is_little_more_than_without_determinants(
    loss, slope, curvature, rank, each
):
    for epsilon, rows in itertools.product((0.01, 0.1, 1.0, 8.0), (100, 100_000)):
        penalty = rule(loss, rows=rows, epsilon=epsilon)
        mechanism = ObjectivePerturbation(
            epsilon=epsilon, delta=DELTA, loss=loss, regularization=penalty, rows=rows, dimension=60
        )
        assert not mechanism.is_raised
        most = 1.02 if isinstance(loss, Logistic) else 8 / 7 * 1.03
        assert mechanism.law.scale <= most * gaussian_scale(epsilon, DELTA / rank, slope)
