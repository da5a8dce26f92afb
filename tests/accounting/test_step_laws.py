"""One release's law of the loss: its nodes against mpmath, the exact law and the closed forms."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr

from expost.accounting.laws import (
    NormLaplaceStep,
    RandomizedResponse,
    SampledGaussian,
    SampledRows,
)
from expost.accounting.rdp import gathered
from expost.noise import NormLaplaceLaw

LAWS = [
    SampledGaussian(mu=1 / 1.1, rate=0.01),
    SampledGaussian(mu=1e-6, rate=1e-8),
    SampledGaussian(mu=1000.0, rate=0.5),
    SampledGaussian(mu=20.0, rate=0.999),
    SampledGaussian(mu=2.0),
    SampledGaussian(mu=0.7, rate=0.2, replace=True),
    SampledGaussian(mu=30.0, rate=1e-4, replace=True),
    SampledRows(mu=0.8, rate=0.05, rows=8),
    SampledRows(mu=1e-6, rate=1e-6, rows=3),
    SampledRows(mu=12.0, rate=0.3, rows=3),
    NormLaplaceStep(separation=1.0, dimension=1),
    NormLaplaceStep(separation=500.0, dimension=1),
    NormLaplaceStep(separation=1e-8, dimension=2),
    NormLaplaceStep(separation=30.0, dimension=50),
    RandomizedResponse(epsilon=1.0, delta=0.01),
    RandomizedResponse(epsilon=1e4),
]


def aligned(law, spacing, low, high):
    blocks = list(law.nodes(spacing, low, high))
    return (np.concatenate(each) for each in zip(*blocks, strict=True))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_masses_of_both_worlds_add_up(law):
    losses, log_masses = gathered(law, False)
    assert np.exp(log_masses).sum() == pytest.approx(1 - law.revealed, abs=1e-13)
    if not (isinstance(law, NormLaplaceStep) and law.separation > 100):
        # There the masses of Q lie where P has none that float64 holds.
        backward, log_backward = gathered(law, True)
        assert np.exp(log_backward).sum() == pytest.approx(1 - law.revealed, abs=1e-11)
        if law.symmetric:
            mean = np.exp(log_masses) @ losses
            assert np.exp(log_backward) @ backward == pytest.approx(mean, rel=1e-9)
    assert np.max(np.abs(losses)) <= law.largest


@pytest.mark.parametrize("law", LAWS[:14], ids=repr)
def test_nodes_that_keep_to_the_grid_have_the_same_masses(law):
    """Between any two lines of the grid there is as much as between them without alignment."""
    losses, log_masses = gathered(law, False)
    expected_exposure = float(np.exp(log_masses) @ np.abs(losses))
    spacing = expected_exposure / 200
    at, log_mass = aligned(law, spacing, -5 * expected_exposure, 5 * expected_exposure)
    assert np.exp(log_mass).sum() == pytest.approx(1 - law.revealed, abs=1e-13)
    for shift in (-0.5, 0.5):
        whole = np.exp(log_masses) @ np.tanh(losses / expected_exposure + shift)
        assert np.exp(log_mass) @ np.tanh(at / expected_exposure + shift) == pytest.approx(
            whole, abs=1e-12
        )


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("mu", "rate"), [(1 / 1.1, 0.01), (3.0, 0.2), (12.0, 0.7)])
def test_sampled_gaussian_between_two_losses(mu, rate, replace):
    """P(a < ℓ ≤ b) by bisecting the loss itself for the z of a and b."""
    law = SampledGaussian(mu=mu, rate=rate, replace=replace)

    def loss(z):
        with mp.workdps(30):
            moved = mp.exp(mu * z - mu**2 / 2)
            other = mp.exp(-mu * z - mu**2 / 2)
            ratio = (1 - rate + rate * moved) / ((1 - rate + rate * other) if replace else 1)
            return float(mp.log(ratio))

    def below(target):
        low, high = -40.0, mu + 40.0
        for _ in range(80):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if loss(middle) <= target else (low, middle)
        return (1 - rate) * ndtr(low) + rate * ndtr(low - mu)

    spacing = 0.25
    at, log_mass = aligned(law, spacing, -20.0, 20.0)
    for a, b in ((-0.25, 0.25), (0.25, 0.5), (1.0, 2.0), (-1.0, -0.25)):
        computed = np.exp(log_mass[(at > a) & (at <= b)]).sum()
        assert computed == pytest.approx(below(b) - below(a), abs=1e-11)
    # The power of the test: a rate of a twentieth less is seen.
    wrong = SampledGaussian(mu=mu, rate=0.95 * rate, replace=replace)
    other, log_other = aligned(wrong, spacing, -20.0, 20.0)
    computed = np.exp(log_mass[at > 0.5]).sum()
    assert abs(np.exp(log_other[other > 0.5]).sum() / computed - 1) > 0.01


@pytest.mark.parametrize(("separation", "dimension"), [(1.0, 2), (4.0, 6), (0.01, 3), (60.0, 20)])
def test_norm_laplace_is_the_exact_law(separation, dimension):
    law = NormLaplaceStep(separation=separation, dimension=dimension)
    exact = NormLaplaceLaw(separation=np.array([separation]), dimension=dimension)
    spacing = separation / 8
    at, log_mass = aligned(law, spacing, -separation, separation)
    for k in (-6, -1, 0, 2, 5, 7):
        computed = np.exp(log_mass[at > k * spacing]).sum()
        assert computed == pytest.approx(float(exact.survival(k * spacing)[0]), abs=2e-11)


@pytest.mark.parametrize(
    ("mu", "rate", "epsilon"), [(1.0, 0.1, 0.2), (2.5, 0.3, 1.0), (1.5, 0.9, 0.0)]
)
def test_no_other_pair_is_worse(mu, rate, epsilon):
    """Rows that move a sum in the plane by less, or not straight apart, give less away."""
    line = np.linspace(-8, 8, 241)
    x, y = np.meshgrid(line, line, indexing="ij")

    def world(moved):
        both = [np.exp(-((x - mu * a) ** 2 + (y - mu * b) ** 2) / 2) for a, b in ((0, 0), moved)]
        return (1 - rate) * both[0] + rate * both[1]

    def delta(first, other):
        return float(np.maximum(world(first) - math.exp(epsilon) * world(other), 0).sum())

    replaced, removed = delta((1, 0), (-1, 0)), delta((1, 0), (0, 0))
    for length in (1.0, 0.6, 0.0):
        for angle in (0.0, 0.5, 1.5, 2.5):
            other = (-length * math.cos(angle), length * math.sin(angle))
            # The plain sum over a grid errs by 1e-3 or so, according to the direction.
            assert delta((1, 0), other) <= replaced * 1.003
            assert delta(other, (0, 0)) <= removed * 1.003
    assert delta((1, 0), (-0.9, 0)) < replaced


def test_norm_laplace_on_a_line():
    """Atoms ½ and ½e^(−t), ¼e^((ℓ−t)/2) between."""
    at, log_mass = aligned(NormLaplaceStep(separation=2.0, dimension=1), 0.5, -2.0, 2.0)
    assert np.exp(log_mass[at == 2.0]).sum() == pytest.approx(0.5)
    assert np.exp(log_mass[at == -2.0]).sum() == pytest.approx(0.5 * math.exp(-2))
    computed = np.exp(log_mass[(at > 0.5) & (at < 1.5)]).sum()
    assert computed == pytest.approx(0.5 * (math.exp(-0.25) - math.exp(-0.75)), rel=1e-12)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(
    ("mu", "rate", "order"), [(1.0, 0.01, 40.0), (0.1, 0.5, 300.0), (5.0, 1e-4, 6.0)]
)
def test_what_the_nodes_leave_out_is_bounded(mu, rate, order, replace):
    law = SampledGaussian(mu=mu, rate=rate, replace=replace)
    with mp.workdps(40):

        def height(z):
            moved, other = mp.exp(mu * z - mu**2 / 2), mp.exp(-mu * z - mu**2 / 2)
            top = 1 - rate + rate * moved
            below = 1 - rate + rate * other if replace else 1
            return mp.npdf(z) * top * (top / below) ** order

        beyond = mp.quad(height, [mu + 45, mu + 60, mu + 100, mu + 200, mu + 600])
        assert mp.log(beyond) <= law.log_remainder(order, False) * (1 - 1e-12) + 1e-9
        assert law.log_remainder(order, False) < mp.log(beyond) + 20 + order * (2 * rate + 0.02)


@pytest.mark.parametrize(("mu", "rate"), [(0.8, 0.05), (3.0, 0.4), (9.0, 0.01)])
def test_one_row_of_several_is_a_sampled_row(mu, rate):
    several = gathered(SampledRows(mu=mu, rate=rate, rows=1), False)
    single = gathered(SampledGaussian(mu=mu, rate=rate), False)
    for order in (-1.0, 0.5, 2.0):
        moments = [np.exp(log_mass + order * loss).sum() for loss, log_mass in (several, single)]
        assert moments[0] == pytest.approx(moments[1], rel=1e-10)


def hockey_stick(p, q, epsilon):
    """The larger of both directions, of masses on one grid."""
    factor = math.exp(epsilon)
    return max(np.maximum(p - factor * q, 0).sum(), np.maximum(q - factor * p, 0).sum())


def test_rows_of_a_person_in_other_directions_reveal_less():
    """Three rows whose gradients point anywhere, in the plane, against all of one direction."""
    rate, rows, mu = 0.3, 3, 1.2
    side = np.linspace(-9, 9 + rows * mu, 500)
    x, y = np.meshgrid(side, side, indexing="ij")
    area = (side[1] - side[0]) ** 2

    def masses(moves):
        total = np.zeros_like(x)
        for chosen in range(2**rows):
            inside = [row for row in range(rows) if chosen >> row & 1]
            at = sum((moves[row] for row in inside), np.zeros(2))
            weight = rate ** len(inside) * (1 - rate) ** (rows - len(inside))
            total += weight * np.exp(-0.5 * ((x - at[0]) ** 2 + (y - at[1]) ** 2))
        return total * area / (2 * math.pi)

    none = np.exp(-0.5 * (x**2 + y**2)) * area / (2 * math.pi)
    straight = masses([np.array([mu, 0.0])] * rows)
    rng = np.random.default_rng(2)
    for _ in range(12):
        angles, lengths = rng.uniform(0, 2 * math.pi, rows), mu * rng.uniform(0.3, 1, rows)
        lengths[: rng.integers(rows + 1)] = mu
        moves = [
            a * np.array([math.cos(t), math.sin(t)]) for a, t in zip(lengths, angles, strict=True)
        ]
        other = masses(moves)
        for epsilon in (0.0, 0.3, 1.0, 2.5):
            most = hockey_stick(straight, none, epsilon)
            assert hockey_stick(other, none, epsilon) <= most * (1 + 1e-6) + 1e-9
