"""Row losses of objective perturbation: against densities by brute force, and their intervals.

``naive`` takes every determinant and every norm of the definition, in float64 for many rows and at
50 digits (:mod:`conformance.perturbed`) where an interval is tried.
"""

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import expit

from conformance.perturbed import Perturbed, points
from evidence import record
from expost.errors import WrongRows
from expost.glm import Objective, minimise
from expost.losses import HuberHinge, Logistic, Squared
from expost.mechanisms import ObjectivePerturbation, Tangent
from expost.types import Neighbouring
from mechanisms.changes import changed, neighbour

REMOVE, ADD, REPLACE = Neighbouring.REMOVE, Neighbouring.ADD, Neighbouring.REPLACE
LOSSES = (Logistic(), HuberHinge(), Squared(label_bound=1.5))
NOISES = ("gaussian", "laplace")


def mechanism(**changes):
    values = {
        "epsilon": 1.0,
        "delta": 1e-3,
        "noise": "gaussian",
        "loss": Logistic(),
        "regularization": 0.1,
        "rows": 40,
        "dimension": 3,
        **changes,
    }
    if values["noise"] == "laplace":
        values["delta"] = None
    return ObjectivePerturbation(**values)


def draw(rng, mechanism, *, shape="ordinary"):
    """(rows, labels) in the unit ball, as many as the mechanism has, and as many to enter."""
    n, d = mechanism.rows, mechanism.dimension
    X = rng.normal(size=(2 * n, d))
    X *= rng.uniform(0.3, 1.0, (2 * n, 1)) / np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(rng.random(2 * n) < 0.5, 1.0, -1.0)
    if not mechanism.loss.is_classification:
        y = rng.uniform(-1.5, 1.5, 2 * n)
    match shape:
        case "separable":
            X[:n, 0] = np.abs(X[:n, 0]) * np.sign(y[:n])
        case "duplicated":
            X[n - 1], y[n - 1] = X[0], y[0]
        case "collinear":
            X[:, -1] = X[:, 0]
            X /= 2
        case "singleton":
            X[1:n, -1] = 0.0
        case "short":
            # Rows that enter are then a thousand times longer than any that is there.
            X[:n] *= 1e-3
        case "zero":
            X[0] = 0.0
        case "all but equal":
            X[n:], y[n:] = X[:n] * (1 - 1e-9), y[:n]
    return X[:n], y[:n], (X[n:], y[n:])


SHAPES = (
    "ordinary",
    "separable",
    "duplicated",
    "collinear",
    "singleton",
    "short",
    "zero",
    "all but equal",
)


def posed(mechanism, X, y):
    return Objective.of(
        X=X,
        y=y,
        loss=mechanism.loss,
        penalty=np.full(mechanism.dimension, mechanism.total_regularization),
    )


def tangent_of(mechanism, X, y, theta):
    return Tangent.at(mechanism, posed(mechanism, X, y), theta)


# The definition, in float64.


def naive_derivatives(loss, z, y):
    if isinstance(loss, Squared):
        return z - y, np.ones_like(z)
    if isinstance(loss, Logistic):
        return -y * expit(-y * z), expit(z) * expit(-z)
    inside = np.abs(1 - y * z) < loss.width
    slope = -y * np.clip((1 + loss.width - y * z) / (2 * loss.width), 0, 1)
    return slope, np.where(inside, 1 / (2 * loss.width), 0.0)


def naive_log_density(mechanism, X, y, theta):
    slope, curvature = naive_derivatives(mechanism.loss, X @ theta, y)
    gradient = X.T @ slope + mechanism.penalty_sum * theta
    hessian = X.T @ (curvature[:, None] * X) + mechanism.penalty_sum * np.eye(len(theta))
    norm = np.linalg.norm(gradient) / mechanism.resolution
    return np.linalg.slogdet(hessian)[1] - (norm if mechanism.noise == "laplace" else norm**2 / 2)


def naive_losses(mechanism, X, y, entering, relation, theta, rows):
    here = naive_log_density(mechanism, X, y, theta)
    there = np.array(
        [
            naive_log_density(mechanism, *neighbour(X, y, entering, relation, row), theta)
            for row in rows
        ]
    )
    return there - here if relation is ADD else here - there


@pytest.mark.parametrize("relation", Neighbouring, ids=lambda relation: relation.value)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_losses_are_the_log_ratio_of_the_densities(loss, noise, relation):
    """To 1e-10, but for what slogdet itself loses where H is ill-conditioned."""
    rng = np.random.default_rng(7)
    sizes = itertools.cycle([(5, 1), (40, 3), (300, 12), (12, 12)])
    shapes = itertools.cycle(SHAPES)
    largest = 0.0
    for epsilon, penalty, calibration in itertools.product(
        (0.01, 1.0, 100.0), (1e-6, 1e-3, 0.1, 10.0), ("tight", "published")
    ):
        n, d = next(sizes)
        perturbation = mechanism(
            loss=loss, noise=noise, epsilon=epsilon, calibration=calibration, rows=n, dimension=d,
            regularization=penalty,
        )  # fmt: skip
        X, y, entering = draw(rng, perturbation, shape=next(shapes))
        theta = perturbation.release(posed(perturbation, X, y), rng)
        losses = tangent_of(perturbation, X, y, theta).row_losses(
            changed(posed(perturbation, X, y), relation, entering)
        )
        rows = rng.permutation(n)[:12]
        truth = naive_losses(perturbation, X, y, entering, relation, theta, rows)
        condition = 1 + n * loss.curvature_bound / perturbation.penalty_sum
        lost = 1e-10 + 8 * d * 2.0**-53 * condition
        assert np.all(np.abs(losses.loss[rows] - truth) <= lost * np.maximum(1, np.abs(truth)))
        assert np.all(losses.low <= losses.loss)
        assert np.all(losses.loss <= losses.high)
        largest = max(largest, np.max(np.abs(truth)))
    assert largest > 0.3


@pytest.mark.parametrize("noise", NOISES)
def test_the_row_that_is_exchanged_for_itself_loses_nothing(noise):
    perturbation = mechanism(noise=noise, epsilon=20.0)
    X, y, _ = draw(np.random.default_rng(0), perturbation)
    theta = perturbation.release(posed(perturbation, X, y), np.random.default_rng(1))
    losses = tangent_of(perturbation, X, y, theta).row_losses(
        changed(posed(perturbation, X, y), REPLACE, (X, y))
    )
    assert np.max(np.abs(losses.loss)) <= 1e-14
    assert np.all(losses.distance == 0)


def test_adding_what_was_removed_is_the_same_loss():
    """loss of row i in D = loss of adding it to D₋ᵢ, at the same θ: one number, two ways."""
    for loss, noise in itertools.product(LOSSES, NOISES):
        perturbation = mechanism(loss=loss, noise=noise, regularization=1e-3, epsilon=5.0)
        X, y, _ = draw(np.random.default_rng(3), perturbation)
        theta = perturbation.release(posed(perturbation, X, y), np.random.default_rng(4))
        removed = tangent_of(perturbation, X, y, theta).row_losses().loss
        # Its public constants stay: λ and the law of b do not follow the number of rows.
        without = tangent_of(perturbation, X[1:], y[1:], theta)
        added = without.row_losses(changed(without.problem, ADD, (X[:1], y[:1]))).loss
        assert added[0] == pytest.approx(removed[0], abs=1e-12)


def test_a_row_without_any_feature_loses_nothing():
    perturbation = mechanism(rows=8)
    X, y, _ = draw(np.random.default_rng(0), perturbation, shape="zero")
    theta = perturbation.release(posed(perturbation, X, y), np.random.default_rng(1))
    assert tangent_of(perturbation, X, y, theta).row_losses().loss[0] == 0.0


def test_copies_have_equal_losses_and_order_does_not_matter():
    perturbation = mechanism(epsilon=10.0)
    X, y, _ = draw(np.random.default_rng(2), perturbation, shape="duplicated")
    theta = perturbation.release(posed(perturbation, X, y), np.random.default_rng(1))
    losses = tangent_of(perturbation, X, y, theta).row_losses().loss
    assert losses[0] == losses[-1]
    order = np.random.default_rng(0).permutation(len(X))
    turned = tangent_of(perturbation, X[order], y[order], theta).row_losses().loss
    assert np.max(np.abs(turned - losses[order])) <= 1e-13
    assert np.max(np.abs(turned - losses)) > 1e-3


# E exp(−loss) = 1, by integration over b.


def gradients_on_a_line(mechanism, X, y, theta):
    slope, _ = naive_derivatives(mechanism.loss, theta[:, None] * X[:, 0], y)
    return mechanism.penalty_sum * theta + slope @ X[:, 0]


def minimisers_on_a_line(mechanism, X, y, noise):
    """θ(b) for every b (m,), by bisection: λθ + Σ f′x + b grows with θ."""
    low = -(np.abs(noise) + 3 * len(X)) / mechanism.penalty_sum
    high = -low
    for _ in range(120):
        middle = (low + high) / 2
        below = gradients_on_a_line(mechanism, X, y, middle) + noise <= 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return middle


def nodes_of_noise(mechanism, X, y, neighbours, knots=None):
    """b and its probabilities: Gauss–Legendre between the kinks of all densities that take part.

    ``neighbours``: the other data sets; ``knots``: rows and labels of which f″ may jump.
    """
    kinks = [0.0]
    for other in neighbours:
        # Where the neighbour's own b is 0, and where f″ jumps.
        there = minimisers_on_a_line(mechanism, *other, np.zeros(1))
        kinks.extend(-gradients_on_a_line(mechanism, X, y, there))
    if isinstance(mechanism.loss, HuberHinge):
        rows, labels = (X, y) if knots is None else knots
        for side in (-1, 1):
            at = labels * (1 + side * mechanism.loss.width) / rows[:, 0]
            kinks.extend(-gradients_on_a_line(mechanism, X, y, at))
    unit, reach = mechanism.resolution, 16.0 if mechanism.noise == "gaussian" else 80.0
    inner = [kink / unit for kink in kinks if abs(kink) < reach * unit]
    edges = np.unique(np.concatenate([inner, np.linspace(-reach, reach, 17)]))
    points, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(edges)[:, None] / 2
    at = (edges[:-1, None] + half * (1 + points)).ravel()
    density = np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi)
    if mechanism.noise == "laplace":
        density = np.exp(-np.abs(at)) / 2
    return unit * at, (half * weights).ravel() * density


@pytest.mark.parametrize("relation", Neighbouring, ids=lambda relation: relation.value)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_change_of_measure_by_integration(loss, noise, relation):
    """E exp(−loss) = 1 to 1e-6; losses × 1.01 are seen a hundred times over."""
    perturbation = mechanism(loss=loss, noise=noise, epsilon=3.0, delta=0.1, rows=3, dimension=1,
                    regularization=0.3)  # fmt: skip
    X, y, entering = draw(np.random.default_rng(5), perturbation)
    neighbours = [neighbour(X, y, entering, relation, row) for row in range(3)]
    knots = np.vstack([X, entering[0]]), np.append(y, entering[1])
    b, weight = nodes_of_noise(perturbation, X, y, neighbours, knots)
    assert weight.sum() == pytest.approx(1, abs=1e-9)
    problem = posed(perturbation, X, y)
    losses = np.array(
        [
            Tangent.at(perturbation, problem, np.array([theta]))
            .row_losses(changed(problem, relation, entering))
            .loss
            for theta in minimisers_on_a_line(perturbation, X, y, b)
        ]
    )
    sign = 1.0 if relation is ADD else -1.0
    assert np.max(np.abs(weight @ np.exp(sign * losses) - 1)) <= 1e-6
    assert np.max(np.abs(weight @ np.exp(1.01 * sign * losses) - 1)) > 1e-4
    assert np.all(-sign * (weight @ losses) > 0)


# The interval holds the loss at every minimiser that would have been rounded to θ.


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A release of awkward data, and the 50-digit losses at minimisers that round to it."""

    seed: int

    @cached_property
    def rng(self):
        return np.random.default_rng(self.seed)

    @cached_property
    def mechanism(self):
        rng = np.random.default_rng(10_000 + self.seed)
        width = float(rng.choice([0.1, 0.5, 1.0]))
        loss = (Logistic(), HuberHinge(width=width), LOSSES[2])[self.seed % 3]
        return mechanism(
            loss=loss,
            noise=str(rng.choice(NOISES)),
            calibration=str(rng.choice(["tight", "published"])),
            epsilon=float(10 ** rng.uniform(-2, 2)),
            delta=float(10 ** rng.uniform(-8, -0.5)),
            regularization=float(10 ** rng.uniform(-5, 1)),
            rows=int(rng.integers(2, 7)),
            dimension=int(rng.integers(1, 4)),
        )

    @cached_property
    def data(self):
        X, y, entering = draw(self.rng, self.mechanism, shape=SHAPES[self.seed // 3 % len(SHAPES)])
        if isinstance(self.mechanism.loss, HuberHinge) and self.rng.random() < 0.5:
            self.put_on_knots(X, y)
        return X, y, entering

    @cached_property
    def theta(self):
        rng = np.random.default_rng(self.seed)
        X, y, _ = draw(rng, self.mechanism)
        return self.mechanism.release(posed(self.mechanism, X, y), rng)

    def put_on_knots(self, X, y):
        """Shorten or turn rows until f″ jumps for them just at θ."""
        width, theta = self.mechanism.loss.width, self.theta
        for row in range(len(X)):
            z = X[row] @ theta
            knot = 1 + width * self.rng.choice([-1, 1])
            if knot < 1e-9 and np.any(theta) and len(theta) > 1:
                X[row] -= z * theta / (theta @ theta)
            elif abs(z) > knot > 0:
                X[row] *= knot / abs(z)
                y[row] = np.sign(z)

    @cached_property
    def tangent(self):
        X, y, _ = self.data
        return tangent_of(self.mechanism, X, y, self.theta)

    def truth(self, X, y):
        mechanism = self.mechanism
        return Perturbed(
            X=X,
            y=y,
            penalty_sum=mechanism.penalty_sum,
            loss=mechanism.loss.name,
            noise=mechanism.noise,
            unit=mechanism.resolution,
            width=getattr(mechanism.loss, "width", 0.5),
        )

    def minimisers(self, count):
        """Exact minimisers θ*: the computed one lay in θ's cell, with a gradient of n·tolerance."""
        mechanism, truth = self.mechanism, self.truth(*self.data[:2])
        half = mechanism.grid.step / 2
        for k in range(count):
            offset = self.rng.uniform(-half, half, mechanism.dimension)
            if k % 3 == 1:
                offset = half * self.rng.choice([-1.0, 1.0], mechanism.dimension)
            if k % 3 == 2:
                along = (self.data[0], self.data[2][0])[k % 2][-1]
                along = along if np.any(along) else np.ones(mechanism.dimension)
                offset = half * along / np.max(np.abs(along))
            computed = points(self.theta, 0.999 * offset)
            residual = self.rng.normal(size=mechanism.dimension)
            residual *= mechanism.rows * mechanism.tolerance / np.linalg.norm(residual)
            with mp.workdps(50):
                _, hessian = truth.tangent(computed)
                # One Newton step: the residual is tiny, and what is left of it is 1e-24 of it.
                step = mp.lu_solve(hessian, mp.matrix([mpf(float(e)) for e in residual]))
                yield [t + s for t, s in zip(computed, step, strict=True)]

    def tried(self, count, *, shrink=1.0):
        """(how many losses were compared, how many lie outside their interval × ``shrink``)."""
        X, y, entering = self.data
        number = outside = 0
        answers = {
            relation: self.tangent.row_losses(changed(self.tangent.problem, relation, entering))
            for relation in Neighbouring
        }
        neighbours = {
            (relation, row): self.truth(*neighbour(X, y, entering, relation, row))
            for relation in Neighbouring
            for row in range(len(X))
        }
        for point in self.minimisers(count):
            here = self.truth(X, y).log_density(point)
            for (relation, row), other in neighbours.items():
                loss = here - other.log_density(point)
                loss = -loss if relation is ADD else loss
                computed = answers[relation]
                low, high, middle = computed.low[row], computed.high[row], computed.loss[row]
                number += 1
                if shrink == 1.0:
                    outside += not low <= loss <= high
                else:
                    outside += not abs(loss - middle) <= shrink * max(high - middle, middle - low)
        return number, outside


def try_intervals(seeds, count=3):
    number = outside = shrunk = 0
    for seed in seeds:
        tried, missed = Case(seed=seed).tried(count)
        number, outside = number + tried, outside + missed
        if seed % 10 == 0:
            shrunk += Case(seed=seed).tried(count, shrink=0.05)[1]
    return number, outside, shrunk


def test_intervals_hold_the_loss_at_every_minimiser():
    """Separable, copied, collinear, singleton, short, zero rows, at knots; none outside."""
    number, outside, shrunk = try_intervals(range(48))
    assert number >= 1200
    assert outside == 0
    # Power: intervals a twentieth as wide would be broken.
    assert shrunk >= 20


def test_a_longer_row_that_enters():
    """Its f″ moves by its own length, not by that of the longest row that is there."""
    for seed in range(6):
        perturbation = mechanism(
            epsilon=0.24, delta=1e-2, calibration="published", rows=4, dimension=2,
            regularization=1e-5,
        )  # fmt: skip
        case = Case(seed=seed)
        case.__dict__["mechanism"] = perturbation
        case.__dict__["data"] = draw(np.random.default_rng(seed), perturbation, shape="short")
        assert case.tried(6)[1] == 0


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_interval_holds_the_loss_at_the_true_minimiser(loss, noise):
    for seed in range(3):
        perturbation = mechanism(loss=loss, noise=noise, rows=5, dimension=2, epsilon=10.0,
                        regularization=(1e-4, 0.01, 1.0)[seed])  # fmt: skip
        X, y, _ = draw(np.random.default_rng(seed), perturbation)
        theta = perturbation.release(posed(perturbation, X, y), np.random.default_rng(seed))
        b = perturbation.law.sample(1, np.random.default_rng(seed))[0]
        losses = tangent_of(perturbation, X, y, theta).row_losses()
        known = {"penalty_sum": perturbation.penalty_sum, "loss": loss.name, "noise": noise,
                 "unit": perturbation.resolution}  # fmt: skip
        whole = Perturbed(X=X, y=y, **known)
        star = whole.minimiser(b, theta)
        for row in range(5):
            other = Perturbed(X=np.delete(X, row, axis=0), y=np.delete(y, row), **known)
            truth = whole.log_density(star) - other.log_density(star)
            assert losses.low[row] <= truth <= losses.high[row]


def test_intervals_are_narrow():
    """At the default grid, in units of the loss that the noise allows at most."""
    for loss, noise, regularization in itertools.product(LOSSES, NOISES, (1e-4, 1e-2, 1.0)):
        perturbation = mechanism(loss=loss, noise=noise, regularization=regularization, rows=300)
        X, y, _ = draw(np.random.default_rng(0), perturbation)
        theta = perturbation.release(posed(perturbation, X, y), np.random.default_rng(0))
        losses = tangent_of(perturbation, X, y, theta).row_losses()
        assert np.max(losses.high - losses.low) <= 1e-5


def test_rows_at_a_knot_count_with_any_curvature():
    perturbation = mechanism(
        loss=HuberHinge(), rows=4, dimension=2, regularization=1.0, epsilon=10.0
    )
    theta = perturbation.grid.snap(np.array([0.75, 0.25]))
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.0], [0.0, 0.8]])
    X[0] *= 0.5 / theta[0]
    y = np.ones(4)
    losses = tangent_of(perturbation, X, y, theta).row_losses()
    width = losses.high - losses.low
    volume = math.log1p(
        perturbation.loss.curvature_bound * (X[0] @ X[0]) / perturbation.penalty_sum
    )
    assert volume <= width[0] <= 2.5 * volume
    moved = X.copy()
    moved[0] *= 1.01
    assert (
        np.max((clear := tangent_of(perturbation, moved, y, theta).row_losses()).high - clear.low)
        < 1e-4
    )


@pytest.mark.parametrize("noise", NOISES)
def test_a_coefficient_on_the_clamp_proves_nothing(noise):
    perturbation = mechanism(noise=noise)
    X, y, entering = draw(np.random.default_rng(0), perturbation)
    theta = np.array([perturbation.grid.clamp, 0.0, 0.0])
    tangent = tangent_of(perturbation, X, y, theta)
    tangent.check_rows()
    for relation in Neighbouring:
        losses = tangent.row_losses(changed(tangent.problem, relation, entering))
        limit = perturbation.epsilon if noise == "laplace" else np.inf
        assert np.all(losses.low == -limit)
        assert np.all(losses.high == limit)


# What a loss guarantees.


@pytest.mark.parametrize("loss", LOSSES[:2], ids=lambda loss: loss.name)
def test_pure_losses_stay_within_epsilon(loss):
    rng = np.random.default_rng(1)
    for epsilon, regularization in itertools.product((0.05, 1.0, 20.0), (1e-6, 1e-2, 1.0)):
        perturbation = mechanism(
            noise="laplace", loss=loss, epsilon=epsilon, regularization=regularization
        )
        X, y, entering = draw(rng, perturbation)
        problem = posed(perturbation, X, y)
        for _ in range(5):
            tangent = Tangent.at(perturbation, problem, perturbation.release(problem, rng))
            for relation in Neighbouring:
                losses = tangent.row_losses(changed(tangent.problem, relation, entering))
                assert np.max(np.abs(losses.loss)) <= epsilon
                assert np.max(losses.high) <= epsilon
                assert np.min(losses.low) >= -epsilon
                assert losses.worst_case == epsilon
                assert losses.worst_case_passed == 0.0


def test_what_is_said_of_the_worst_case():
    perturbation = mechanism()
    X, y, entering = draw(np.random.default_rng(0), perturbation)
    tangent = tangent_of(
        perturbation,
        X,
        y,
        perturbation.release(posed(perturbation, X, y), np.random.default_rng(0)),
    )
    for relation in (REMOVE, ADD):
        losses = tangent.row_losses(changed(tangent.problem, relation, entering))
        assert losses.worst_case == perturbation.epsilon
        assert 0 < losses.worst_case_passed == perturbation.worst_case_passed_by(relation) < 0.05
        assert losses.law is None
        assert not losses.noiseless
    assert tangent.row_losses(changed(tangent.problem, REPLACE, entering)).worst_case == math.inf


def test_without_noise_every_loss_is_infinite():
    perturbation = mechanism(epsilon=math.inf)
    X, y, _ = draw(np.random.default_rng(0), perturbation, shape="zero")
    tangent = tangent_of(perturbation, X, y, perturbation.release(posed(perturbation, X, y)))
    tangent.check_rows()
    losses = tangent.row_losses()
    assert losses.noiseless
    assert np.all(losses.loss[1:] == np.inf)
    assert losses.loss[0] == 0.0


# Rows that cannot have made θ.


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("epsilon", [5.0, math.inf])
def test_wrong_rows_are_refused(noise, epsilon):
    perturbation = mechanism(noise=noise, epsilon=epsilon, rows=2000, regularization=0.01)
    rng = np.random.default_rng(0)
    X, y, (others, labels) = draw(rng, perturbation)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    theta = perturbation.release(posed(perturbation, X, y), rng)
    tangent_of(perturbation, X, y, theta).check_rows()
    for rows, named in ((X, -y), (X, np.roll(y, 1)), (-X, y), (others, labels), (X[::-1], y)):
        with pytest.raises(WrongRows, match="cannot have made this model"):
            tangent_of(perturbation, rows, named, theta).check_rows()


def test_true_rows_are_not_refused():
    """A thousand releases, at a false-alarm rate of 1e-9 each."""
    rng = np.random.default_rng(0)
    for noise, epsilon in itertools.product(NOISES, (0.01, 1.0, 30.0)):
        perturbation = mechanism(noise=noise, epsilon=epsilon)
        X, y, _ = draw(rng, perturbation)
        problem = posed(perturbation, X, y)
        for b in perturbation.law.sample(50, rng):
            theta = perturbation.grid.snap(
                minimise(replace(problem, linear=b / 40), tolerance=1e-12).theta
            )
            Tangent.at(perturbation, problem, theta).check_rows()


@pytest.mark.long
def test_record_the_losses():
    """Full counts; the figures go to docs/evidence/objective-losses.json."""
    worst = {}
    rng = np.random.default_rng(20261115)
    compared = 0
    for loss, noise, relation in itertools.product(LOSSES, NOISES, Neighbouring):
        error = 0.0
        for k in range(200):
            perturbation = mechanism(
                loss=loss, noise=noise, calibration=("tight", "published")[k % 2],
                epsilon=float(10 ** rng.uniform(-2, 2)), regularization=float(10 ** rng.uniform(-6, 1)),
                rows=int(rng.integers(5, 301)), dimension=int(rng.integers(1, 13)),
            )  # fmt: skip
            X, y, entering = draw(rng, perturbation, shape=SHAPES[k % len(SHAPES)])
            theta = perturbation.release(posed(perturbation, X, y), rng)
            losses = tangent_of(perturbation, X, y, theta).row_losses(
                changed(posed(perturbation, X, y), relation, entering)
            )
            truth = naive_losses(
                perturbation, X, y, entering, relation, theta, range(perturbation.rows)
            )
            condition = 1 + perturbation.rows * loss.curvature_bound / perturbation.penalty_sum
            if condition > 1e4:
                continue
            apart = np.abs(losses.loss - truth) / np.maximum(1, np.abs(truth))
            error = max(error, float(np.max(apart)))
            compared += perturbation.rows
        worst[f"{loss.name}, {noise}, {relation.value}"] = error
    assert max(worst.values()) <= 1e-10
    number, outside, shrunk = try_intervals(range(100_000, 101_500))
    assert outside == 0
    record(
        "objective-losses",
        command="pytest -m long tests/mechanisms/test_tangent.py",
        seed=20261115,
        figures={
            "largest error of a loss against brute-force densities (relative beyond 1)": worst,
            "losses compared in float64": compared,
            "losses at exact minimisers compared at 50 digits": number,
            "of these outside their interval": outside,
            "outside intervals a twentieth as wide (a tenth of the problems)": shrunk,
        },
    )
