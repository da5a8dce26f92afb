"""What a person with k rows is guaranteed, against pairs of data sets that were searched for.

δ(ε) of every pair is computed from both laws: in closed form (noise on a minimiser), by exact masses
on a line, or by quadrature of both densities in the plane. The code of the package only says what is
guaranteed.
"""

import dataclasses
import itertools
import math
from functools import partial

import numpy as np
import pytest
from scipy.special import expit, softmax

from conformance.line import Line, divergence, largest_ratio, pair
from expost.accounting import gaussian_delta
from expost.errors import InvalidInput
from expost.glm import Objective, minimise
from expost.losses import HuberHinge, Logistic, Softmax
from expost.mechanisms import ObjectivePerturbation, OutputPerturbation
from expost.mechanisms.calibration import chained, person_delta, person_scale
from expost.risk import EpsilonDelta, GaussianNoise, NormLaplaceNoise

MECHANISMS = (OutputPerturbation, ObjectivePerturbation)
NOISES = (("laplace", None), ("gaussian", 1e-5))
SIZES = (2, 3)


def build(mechanism, k=1, **changes):
    constants = {
        "epsilon": 1.0,
        "noise": "laplace",
        "delta": None if changes.get("noise", "laplace") == "laplace" else 1e-5,
        "loss": Logistic(),
        "regularization": 0.1,
        "rows": 100,
        "dimension": 1,
        "rows_per_person": k,
        **changes,
    }
    return mechanism(**constants)


# -- the lemma and the chain ---------------------------------------------------------------------


def plane(reach=9.0, points=1201):
    """Points of the plane, and the weight of the normal density at each."""
    at = np.linspace(-reach, reach, points)
    x, y = np.meshgrid(at, at)
    xi = np.stack([x.ravel(), y.ravel()], axis=1)
    weight = np.exp(-0.5 * np.sum(xi**2, axis=1)) / (2 * np.pi) * (at[1] - at[0]) ** 2
    return xi, weight


def vertices(parts):
    """All sums of one vector of each part."""
    return np.array([np.sum(some, axis=0) for some in itertools.product(*parts)])


def largest_loss(parts, xi):
    """F: the maximum of ∥v∥²/2 + v·ξ over the sum of the convex hulls of the parts."""
    largest = np.full(len(xi), -np.inf)
    for v in vertices(parts):
        largest = np.maximum(largest, 0.5 * v @ v + xi @ v)
    return largest


def test_the_gaussian_bound_holds_whatever_the_angles_between_rows():
    """And k rows of one direction reach it; that of k − 1 rows is passed."""
    xi, weight = plane()
    rng = np.random.default_rng(0)
    reached, fewer = 0.0, 0.0
    for k, reach, epsilon in itertools.product((2, 3, 4), (0.2, 0.5), (0.7, 2.0, 4.0)):
        if epsilon < k * (k - 1) * reach**2 / 2:
            continue
        for turn in (0.0, 0.3, 1.0, 2.0):
            angles = rng.uniform(-turn, turn, k) if turn else np.zeros(k)
            parts = [np.array([[0, 0], [reach * np.cos(t), reach * np.sin(t)]]) for t in angles]
            delta = weight @ -np.expm1(np.minimum(epsilon - largest_loss(parts, xi), 0.0))
            bound = gaussian_delta(epsilon, k * reach)
            assert delta <= bound * (1 + 1e-3) + 1e-13
            if bound > 1e-10:
                reached = max(reached, delta / bound)
                fewer = max(fewer, delta / gaussian_delta(epsilon, (k - 1) * reach))
    assert reached > 0.999
    assert fewer > 10


def test_the_gaussian_bound_holds_for_simplices():
    """Parts with r vectors of length A, as K = r + 1 classes have: r times the bound of one."""
    xi, weight = plane(points=901)
    rng = np.random.default_rng(1)
    for k, classes in itertools.product((1, 2, 3), (3, 4)):
        reach, epsilon = 0.4, 1.2
        for _ in range(4):
            angles = rng.uniform(-2, 2, (k, classes - 1))
            parts = [
                np.concatenate([[[0, 0]], reach * np.stack([np.cos(t), np.sin(t)], axis=1)])
                for t in angles
            ]
            delta = weight @ -np.expm1(np.minimum(epsilon - largest_loss(parts, xi), 0.0))
            assert delta <= (classes - 1) * gaussian_delta(epsilon, k * reach) * (1 + 1e-4)


def _delta_of(reach, epsilon):
    return gaussian_delta(epsilon, reach)


@pytest.mark.parametrize("k", [1, 2, 5, 16])
def test_a_chain_of_gaussian_mechanisms_is_one_of_k_times_the_slope(k):
    for epsilon, reach in itertools.product((0.5, 3.0), (0.01, 0.05)):
        delta = chained(partial(_delta_of, reach), epsilon, reach=reach, rows=k)
        assert delta == pytest.approx(gaussian_delta(epsilon, k * reach), rel=1e-6)


def test_a_long_chain_is_a_bound_and_a_close_one():
    exact = gaussian_delta(2.0, 100 * 0.003)
    delta = chained(partial(_delta_of, 0.003), 2.0, reach=0.003, rows=100)
    assert exact <= delta <= 1.01 * exact


def test_the_scale_is_the_least_that_keeps_delta():
    for k, epsilon, delta in itertools.product((1, 2, 9), (0.1, 1.0, 30.0), (1e-8, 1e-3, 0.4)):
        sigma = person_scale(epsilon, delta, 1.5, k)
        reach = 1.5 / sigma
        assert epsilon * (1 + 1e-12) >= k * (k - 1) * reach**2 / 2
        assert gaussian_delta(epsilon, k * reach) <= delta * (1 + 1e-10)
        assert person_delta(epsilon, reach, k) <= delta * (1 + 1e-9)


def test_below_the_condition_the_bound_is_a_chain_with_shares_of_at_least_0():
    """ε < k(k − 1)A²/2: larger than δ_Gauss(ε, kA), never above 1, and still monotone."""
    for k in (2, 4, 9):
        deltas = [person_delta(epsilon, 0.8, k) for epsilon in np.linspace(0, 40, 81)]
        gauss = [gaussian_delta(float(epsilon), 0.8 * k) for epsilon in np.linspace(0, 40, 81)]
        assert np.all(np.diff(deltas) <= 1e-12)
        assert np.all(np.array(deltas) >= np.array(gauss) * (1 - 1e-9))
        assert deltas[0] <= 1
    assert person_delta(-0.1, 0.1, 2) == 1.0


# -- noise on a minimiser ------------------------------------------------------------------------


def farthest(mechanism, k):
    """How far k rows of one label move the minimiser where all others have the other label."""
    n = mechanism.rows
    y = np.where(np.arange(n) < k, 1.0, -1.0)

    def minimiser(y):
        penalty = np.full(1, mechanism.regularization)
        problem = Objective.of(X=np.ones((len(y), 1)), y=y, loss=mechanism.loss, penalty=penalty)
        return float(minimise(problem).theta[0])

    return abs(minimiser(y) - minimiser(y[k:]))


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize(("noise", "delta"), NOISES)
def test_noise_on_a_minimiser(noise, delta, k):
    """The separation of the two laws is all that their δ(ε) depends on."""
    mechanism = build(
        OutputPerturbation, k, noise=noise, loss=HuberHinge(), regularization=1000.0, rows=1000
    )
    apart = farthest(mechanism, k) / mechanism.resolution
    law = (
        NormLaplaceNoise(separation=apart, dimension=1)
        if delta is None
        else GaussianNoise(mu=apart)
    )
    slip = delta or 0.0
    assert law.epsilon(slip) <= mechanism.epsilon * (1 + 1e-9)
    assert law.epsilon(slip) > 0.98 * mechanism.epsilon
    guaranteed = mechanism.guarantee(k)
    assert law.epsilon(slip) <= guaranteed.epsilon(slip)
    assert mechanism.guarantee(k).epsilon(slip) == pytest.approx(mechanism.epsilon, rel=1e-9)
    # Power: what fewer rows are guaranteed is broken.
    assert law.epsilon(slip) > 1.3 * mechanism.guarantee(k - 1).epsilon(slip)
    # As is a mechanism that was calibrated to fewer.
    less = dataclasses.replace(mechanism, rows_per_person=k - 1)
    assert farthest(mechanism, k) / less.resolution > 1.3 * apart


# -- noise in the objective, on a line -----------------------------------------------------------

TILTED = 100_000


def line_of(mechanism, rows, labels, tilt, unit=1.0):
    """The person's rows, each once or ``times`` over, and others next to 0 that tilt the gradient."""
    return Line(
        x=np.append(rows, -2 * tilt / TILTED),
        y=np.append(labels, 1.0),
        times=np.append(np.ones(len(rows)), TILTED),
        loss=mechanism.loss.name,
        penalty_sum=mechanism.penalty_sum,
        noise=mechanism.noise,
        unit=unit * mechanism.resolution,
    )


def without_person(line, k):
    return dataclasses.replace(line, x=line.x[k:], y=line.y[k:], times=line.times[k:])


def pairs_on_a_line(mechanism, k, rng):
    """Both laws of many pairs: equal rows, rows of two labels, shorter rows; over many tilts."""
    far = 8 * mechanism.penalty_sum + 3 * k
    equal = (np.ones(k), np.ones(k))
    mixed = (np.ones(k), np.where(np.arange(k) == 0, -1.0, 1.0))
    others = [(rng.uniform(0.3, 1.0, k), rng.choice([-1.0, 1.0], k)) for _ in range(2)]
    for (x, y), tilt in itertools.product((equal, mixed, *others), np.linspace(-far / 4, far, 21)):
        line = line_of(mechanism, x, y, tilt)
        yield pair(line, without_person(line, k))


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge()], ids=lambda loss: loss.name)
def test_gaussian_noise_in_the_objective(loss, epsilon, k):
    """Removing and adding k rows on a line keep (ε, δ) at λ from the least one to a large one."""
    reached, fewer = 0.0, 0.0
    for penalty in (1e-9, 3 * k / epsilon / 100, 1.0, 100.0):
        mechanism = build(
            ObjectivePerturbation, k, noise="gaussian", loss=loss, epsilon=epsilon,
            regularization=penalty,
        )  # fmt: skip
        assert mechanism.guarantee(k) == EpsilonDelta(epsilon=epsilon, delta=1e-5)
        below = mechanism.guarantee(k - 1)
        assert below.guaranteed_epsilon < epsilon
        assert below.guaranteed_delta < 1e-5
        for p, q in pairs_on_a_line(mechanism, k, np.random.default_rng(k)):
            for first, second in ((p, q), (q, p)):
                delta = divergence(first, second, epsilon)
                assert delta <= 1e-5
                reached = max(reached, delta / 1e-5)
                fewer = max(
                    fewer,
                    divergence(first, second, below.guaranteed_epsilon) / below.guaranteed_delta,
                )
    assert reached > 0.8
    # Power: the guarantee of k − 1 rows is broken by k.
    assert fewer > 10


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge()], ids=lambda loss: loss.name)
def test_noise_for_one_row_fewer_is_too_little(loss):
    """And so is k times the noise of one row without the λ that k rows need."""
    k = 3
    perturbation = build(ObjectivePerturbation, k, noise="gaussian", loss=loss, regularization=1e-9)
    less = dataclasses.replace(perturbation, rows_per_person=k - 1)
    broken = dataclasses.replace(perturbation, rows_per_person=1)
    tilts = np.linspace(0, 40, 41)

    def worst(mechanism, unit=1.0):
        largest = 0.0
        for tilt in tilts:
            line = line_of(mechanism, np.ones(k), np.ones(k), tilt, unit)
            p, q = pair(line, without_person(line, k))
            largest = max(largest, divergence(p, q, 1.0), divergence(q, p, 1.0))
        return largest

    assert worst(perturbation) <= 1e-5
    assert worst(less) > 5e-5
    assert worst(broken, unit=k) > 2e-5


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge()], ids=lambda loss: loss.name)
def test_norm_laplace_noise_in_the_objective(loss, k):
    """Removing, adding and exchanging k rows lose at most ε; an exchange comes close."""
    reached = 0.0
    for penalty in (1e-9, 0.05, 1.0):
        mechanism = build(ObjectivePerturbation, k, loss=loss, epsilon=1.0, regularization=penalty)
        for p, q in pairs_on_a_line(mechanism, k, np.random.default_rng(k)):
            assert largest_ratio(p, q) <= 1 + 1e-6
        for tilt in np.linspace(-8 * mechanism.penalty_sum, 8 * mechanism.penalty_sum, 9):
            line = line_of(mechanism, np.ones(k), np.ones(k), tilt)
            other = dataclasses.replace(line, y=np.append(-np.ones(k), 1.0))
            lost = largest_ratio(*pair(line, other))
            assert lost <= 1 + 1e-6
            reached = max(reached, lost)
        assert mechanism.guarantee(k) == EpsilonDelta(epsilon=1.0)
        assert mechanism.guarantee(k - 1).guaranteed_epsilon == pytest.approx((k - 1) / k)
    # Slopes of the logistic loss that pull apart on a line add up to 1, those of the hinge to 2.
    assert reached > (0.45 if isinstance(loss, Logistic) else 0.9)
    # Power: what k − 1 rows are guaranteed is broken by an exchange of k.
    assert (
        isinstance(loss, Logistic) or reached > mechanism.guarantee(k - 1).guaranteed_epsilon * 1.2
    )


# -- noise in the objective, in the plane --------------------------------------------------------


def densities(mechanism, X, y, tilt, theta):
    """(m,) the density of θ (m, 2) with rows X, y and a constant ``tilt`` in the gradient."""
    z = theta @ X.T
    if isinstance(mechanism.loss, Logistic):
        slope, curvature = -y * expit(-y * z), expit(z) * expit(-z)
    else:
        h = mechanism.loss.width
        slope = -y * np.clip((1 + h - y * z) / (2 * h), 0, 1)
        curvature = np.where(np.abs(1 - y * z) < h, 1 / (2 * h), 0.0)
    g = mechanism.penalty_sum * theta + slope @ X + tilt
    H = mechanism.penalty_sum * np.eye(2) + np.einsum("mi,ij,ik->mjk", curvature, X, X)
    exponent = -0.5 * np.sum(g**2, axis=1) / mechanism.resolution**2
    return np.exp(exponent) * np.linalg.det(H) / (2 * np.pi * mechanism.resolution**2)


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge()], ids=lambda loss: loss.name)
def test_rows_at_angles_in_the_plane(loss, k):
    """δ(ε) by quadrature of both densities, as the rows open from one direction to a fan."""
    reached = 0.0
    for requested in (1e-9, 0.1, 10.0):
        mechanism = build(
            ObjectivePerturbation, k, noise="gaussian", delta=0.01, loss=loss, dimension=2,
            regularization=requested,
        )  # fmt: skip
        for spread, pull in itertools.product((0.0, 0.4, 1.0, np.pi), (0.0, 2.0, 5.0)):
            turn = np.linspace(-spread / 2, spread / 2, k)
            X = np.stack([np.cos(turn), np.sin(turn)], axis=1)
            tilt = np.array([pull * mechanism.penalty_sum, 0.0])
            wide = 9 * mechanism.resolution / mechanism.penalty_sum
            at = np.linspace(-wide, wide, 501)
            grid = np.stack([axis.ravel() for axis in np.meshgrid(at, at)], axis=1)
            grid = grid - tilt / mechanism.penalty_sum
            with_, without = (
                densities(mechanism, rows, np.ones(len(rows)), tilt, grid) * (at[1] - at[0]) ** 2
                for rows in (X, X[:0])
            )
            # The knots of the hinge are lines that the grid does not follow.
            assert without.sum() == pytest.approx(1.0, abs=1e-6)
            assert with_.sum() == pytest.approx(1.0, abs=5e-3)
            for first, second in ((with_, without), (without, with_)):
                delta = np.sum(np.maximum(first - math.e * second, 0.0))
                assert delta <= 0.01 + 2e-5
                reached = max(reached, delta)
    assert reached > 0.008


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize(("noise", "delta"), [("laplace", None), ("gaussian", 0.01)])
def test_softmax(noise, delta, k):
    """Three classes and one column: θ lies in the plane across (1, 1, 1), along which g = λθ."""
    basis = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    reached, fewer = 0.0, 0.0
    for requested in (1e-9, 1.0):
        mechanism = build(
            ObjectivePerturbation, k, noise=noise, delta=delta, loss=Softmax(classes=3),
            dimension=3, regularization=requested,
        )  # fmt: skip
        lam, unit = mechanism.penalty_sum, mechanism.resolution

        def density(theta, rows, tilt, lam=lam, unit=unit):
            p = softmax(theta @ basis, axis=1)
            u = p - np.eye(3)[0]
            g = lam * theta + rows * u @ basis.T + tilt
            S = np.einsum("mi,ij->mij", p, np.eye(3)) - np.einsum("mi,mj->mij", p, p)
            H = lam * np.eye(2) + rows * np.einsum("ai,mij,bj->mab", basis, S, basis)
            return g, np.linalg.det(H)

        wide = (9 if noise == "gaussian" else 14) * unit / lam
        at = np.linspace(-wide, wide, 501)
        plain = np.stack([axis.ravel() for axis in np.meshgrid(at, at)], axis=1)
        below = mechanism.guarantee(k - 1)
        for pull, toward in itertools.product((0.0, 3.0, 12.0), (0, 1)):
            # Towards class 1 alone, or classes 1 and 2 together: p_y → 0.
            aim = np.array([[-1.0, 1.0, 0.0], [-2.0, 1.0, 1.0]])[toward] @ basis.T
            grid = plain + pull * aim / np.linalg.norm(aim)
            tilt = -lam * pull * aim / np.linalg.norm(aim)
            (g, H), (rest, H_) = (density(grid, rows, tilt) for rows in (k, 0))
            if noise == "laplace":
                # Across (1, 1, 1) both have the same component t: the ratio is largest at t = 0.
                ratio = np.linalg.norm(rest, axis=1) - np.linalg.norm(g, axis=1)
                lost = np.max(np.abs(ratio / unit + np.log(H / H_)))
                assert lost <= 1 + 1e-9
                # Of two rows that are exchanged, whose gradients are opposite, about twice that.
                reached = max(reached, 2 * lost)
                continue
            cell = (at[1] - at[0]) ** 2 / (2 * np.pi * unit**2)
            p = np.exp(-0.5 * np.sum(g**2, axis=1) / unit**2) * H * cell
            q = np.exp(-0.5 * np.sum(rest**2, axis=1) / unit**2) * H_ * cell
            assert p.sum() == pytest.approx(1.0, abs=1e-4)
            for first, second in ((p, q), (q, p)):
                spent = np.sum(np.maximum(first - math.e * second, 0.0))
                assert spent <= 0.01 * (1 + 1e-6)
                reached = max(reached, spent / 0.01)
                at_fewer = np.sum(
                    np.maximum(first - np.exp(below.guaranteed_epsilon) * second, 0.0)
                )
                fewer = max(fewer, at_fewer / below.guaranteed_delta)
    # The bound counts both other classes; one pair of laws meets one of them.
    assert reached > 0.3
    assert noise == "laplace" or fewer > 1


# -- laws ----------------------------------------------------------------------------------------

LOSSES = (Logistic(), HuberHinge(), Softmax(classes=3))


def everything():
    for mechanism, (noise, delta), loss in itertools.product(MECHANISMS, NOISES, LOSSES):
        if mechanism is ObjectivePerturbation or not isinstance(loss, Softmax):
            yield pytest.param(
                mechanism, noise, delta, loss, id=f"{mechanism.kind}-{noise}-{loss.name}"
            )


@pytest.mark.parametrize(("mechanism", "noise", "delta", "loss"), list(everything()))
def test_more_rows_are_guaranteed_less(mechanism, noise, delta, loss):
    """Round trip at k; monotone in the rows, and in k: more rows a person need more noise."""
    scales, row = [], []
    for k in (1, 2, 3, 8):
        perturbation = build(mechanism, k, noise=noise, loss=loss, dimension=3, regularization=0.3)
        slip = delta or 0.0
        kept = perturbation.guarantee(k)
        assert kept.delta(perturbation.epsilon) <= slip * (1 + 1e-9)
        assert kept.epsilon(slip * (1 + 1e-9)) == pytest.approx(perturbation.epsilon, rel=1e-6)
        sizes = (1, 2, 3, 5, 8, 9, 40)
        guarantees = [perturbation.guarantee(rows) for rows in sizes]
        if mechanism is ObjectivePerturbation:
            epsilons = [guarantee.guaranteed_epsilon for guarantee in guarantees]
            deltas = [
                guarantee.guaranteed_delta
                for guarantee in guarantees
                if guarantee.guaranteed_epsilon < math.inf
            ]
            assert deltas == sorted(deltas)
            assert guarantees[0].guaranteed_delta <= slip
        else:
            epsilons = [guarantee.epsilon(slip) for guarantee in guarantees]
        assert epsilons == sorted(epsilons)
        bounds = [perturbation.worst_case_of(rows) for rows in sizes]
        assert bounds == sorted(bounds, key=lambda pair: pair[0])
        assert bounds[0] == (perturbation.worst_case, perturbation.worst_case_passed)
        assert perturbation.worst_case_of(k)[0] == perturbation.epsilon
        assert all(0 <= passed <= 1 for _, passed in bounds)
        scales.append(perturbation.resolution)
        row.append(epsilons[0])
    assert scales == sorted(scales)
    assert row == sorted(row, reverse=True)
    assert scales[-1] >= 7 * scales[0]


def test_a_guarantee_for_more_rows_is_never_weaker_than_equal_shares():
    """(mε, δ(e^(mε) − 1)/(e^ε − 1)), at small and large λ."""
    for loss, penalty, m in itertools.product(LOSSES, (1e-9, 0.02, 1.0), (2, 3, 7)):
        mechanism = build(
            ObjectivePerturbation, noise="gaussian", loss=loss, epsilon=0.8, dimension=3,
            regularization=penalty,
        )  # fmt: skip
        guarantee = mechanism.guarantee(m)
        common = 1e-5 * math.expm1(m * 0.8) / math.expm1(0.8)
        assert guarantee.guaranteed_epsilon == m * 0.8
        assert guarantee.guaranteed_delta <= common * (1 + 1e-9)


def test_determinants_that_cost_nothing_need_k_times_the_noise():
    """λ ≥ k/ε and a little: σ is that of the Gaussian mechanism, k times that of one row."""
    for k, epsilon in itertools.product((2, 5, 20), (0.5, 3.0)):
        options = {"noise": "gaussian", "epsilon": epsilon, "regularization": 10.0}
        single = build(ObjectivePerturbation, **options)
        many = build(ObjectivePerturbation, k, **options)
        assert many.resolution == pytest.approx(k * single.resolution, rel=1e-5)
    small = {"noise": "gaussian", "regularization": 1e-9}
    many, single = build(ObjectivePerturbation, 5, **small), build(ObjectivePerturbation, **small)
    assert many.penalty_sum > 4.5 * single.penalty_sum


def test_what_was_published_is_for_one_row():
    with pytest.raises(InvalidInput, match="published"):
        build(ObjectivePerturbation, 2, calibration="published")
    mechanism = build(ObjectivePerturbation, noise="gaussian", calibration="published")
    assert mechanism.guarantee(2).guaranteed_epsilon >= mechanism.epsilon
    assert mechanism.guarantee(9).guaranteed_epsilon > mechanism.guarantee(2).guaranteed_epsilon
    assert mechanism.guarantee(2).guaranteed_delta >= 1e-5
