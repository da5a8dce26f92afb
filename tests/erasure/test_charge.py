"""What coupled models reveal about the others: exact curves on a line against the charge.

Output perturbation with Gaussian noise, unit deviation. The centres are those of the laws with
everybody (P), without i (Q), and the same two without j (P̃, Q̃).
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from erasure.pairs import Case, draws, line_advantage, naive_log_density
from expost.losses import Logistic
from expost.mechanisms.output import OutputPerturbation
from expost.mechanisms.ratio_error import ratio_error
from expost.release import coupling_charge
from expost.risk.composition import Composition
from naive import gaussian_delta

GRID = np.linspace(-9.0, 9.0, 721)
STEP = GRID[1] - GRID[0]
COARSE = np.linspace(-7.0, 7.0, 113)


def law(centre, grid):
    weights = norm.pdf(grid - centre)
    return weights / weights.sum()


def pair_law(first, second):
    """(diagonal, off the diagonal) of a maximal coupling of two laws on a grid."""
    kept = np.minimum(first, second)
    gone, come = first - kept, second - kept
    mass = gone.sum()
    off = np.outer(gone, come) / mass if mass > 0 else np.zeros((len(first), len(second)))
    return kept, off


def pair_delta(epsilon, laws, others):
    """δ(ε) of the pair of models: sup of M(S) − e^ε M̃(S)."""
    parts = zip(pair_law(*laws), pair_law(*others), strict=True)
    return sum(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in parts)


def steps(first, second):
    """The transition of a coupling: the probability of keeping, and the law of what is redrawn."""
    kept = np.minimum(first, second)
    mass = (second - kept).sum()
    return kept / first, (second - kept) / mass


def chain_law(laws):
    """The law of three coupled models: kept and redrawn at each step, as arrays of any shape."""
    first = laws[0]
    one, two = steps(laws[0], laws[1]), steps(laws[1], laws[2])
    kept = first * one[0]
    redrawn = np.outer(first * (1 - one[0]), one[1])
    return (
        kept * two[0],
        np.outer(kept * (1 - two[0]), two[1]),
        redrawn * two[0][None, :],
        redrawn[:, :, None] * (1 - two[0])[None, :, None] * two[1][None, None, :],
    )


def mechanism_with(mu, rows=200):
    """Output perturbation whose one row moves the centre by ``mu`` deviations at most."""
    unit = OutputPerturbation(
        epsilon=1.0,
        delta=1e-3,
        noise="gaussian",
        loss=Logistic(),
        regularization=0.1,
        rows=rows,
        dimension=1,
    )
    low, high = 1e-3, 50.0
    for _ in range(80):
        middle = math.sqrt(low * high)
        at = unit.with_constants(epsilon=middle)
        low, high = (middle, high) if at.sensitivity / at.resolution < mu else (low, middle)
    return unit.with_constants(epsilon=low)


@pytest.mark.parametrize("mu", [0.05, 0.237, 0.5])
def test_pair_is_within_the_charge(mu):
    """The worst centres of a search stay below the first model composed with the charge."""
    mechanism = mechanism_with(mu)
    charge = coupling_charge(mechanism, (mechanism.rows, mechanism.rows - 1))
    eta = charge.guaranteed_delta
    assert charge.guaranteed_epsilon == 0
    largest = 0.0
    shares = (-1.0, -0.5, 0.0, 0.5, 1.0)
    for q, p2, q2 in itertools.product(shares, repeat=3):
        # Nobody moves a centre by more than μ.
        if abs(q2 - q) > 1 or abs(q2 - p2) > 1 or q == 0:
            continue
        laws = law(0.0, GRID), law(q * mu, GRID)
        others = law(p2 * mu, GRID), law(q2 * mu, GRID)
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
            alone = gaussian_delta(epsilon, mu)
            allowed = alone + eta * (1 - alone)
            exact = pair_delta(epsilon, laws, others)
            assert exact <= allowed + 1e-9
            largest = max(largest, exact / allowed)
    # The redraw alone is T of the δ₁(0) + T ≈ 2T that are charged.
    assert largest > 0.4


def test_ledger_composes_the_charge():
    """What is listed for the first model and the erasure composes to the curve of the proof."""
    mu = 0.237
    mechanism = mechanism_with(mu)
    charge = coupling_charge(mechanism, (mechanism.rows, mechanism.rows - 1))
    composed = Composition(parts=(mechanism.guarantee(), charge))
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
        alone = gaussian_delta(epsilon, mu)
        allowed = alone + charge.guaranteed_delta * (1 - alone)
        assert allowed * (1 - 1e-9) <= composed.delta(epsilon) <= allowed * (1 + 1e-6)


def test_pair_is_not_free():
    """ "Kept costs nothing" is false: without the charge the curve is passed by far."""
    mu = 0.237
    laws = law(0.0, GRID), law(mu, GRID)
    others = law(-mu, GRID), law(0.0, GRID)
    assert pair_delta(2.0, laws, others) > 10 * gaussian_delta(2.0, mu)


def test_figures_of_the_note():
    """μ = 0.01: T = 0.004 and 5e-5; μ = 0.237: T = 0.094 and 0.024."""
    fine = np.linspace(-9, 9, 200_001)
    for mu, advantage, expected in ((0.01, 0.004, 5e-5), (0.237, 0.094, 0.024)):
        first, second = law(0.0, fine), law(mu, fine)
        loss = mu**2 / 2 - mu * fine
        other = loss - mu**2
        r, r2 = (np.maximum(1 - np.exp(-value), 0) for value in (loss, other))
        s, s2 = (np.maximum(1 - np.exp(value), 0) for value in (loss, other))
        delta = first @ np.maximum(r - r2, 0) + second @ np.maximum(s - s2, 0)
        assert 2 * ndtr(mu / 2) - 1 == pytest.approx(advantage, rel=0.06)
        assert delta == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("mu", [0.2, 0.5])
def test_chain_of_two_is_within_the_charge(mu):
    mechanism = mechanism_with(mu)
    rows = mechanism.rows
    charge = coupling_charge(mechanism, (rows, rows - 1, rows - 2))
    # (2m − 1)b with m = 2.
    bound, _ = mechanism.with_rows(rows - 2).worst_case_of(1)
    assert charge.guaranteed_epsilon == pytest.approx(3 * bound, rel=1e-6)
    largest = 0.0
    signs = (-1.0, 0.0, 1.0)
    for a, b, shift in itertools.product(signs, signs, signs):
        if a == 0 or b == 0 or shift == 0:
            continue
        laws = [law(centre * mu, COARSE) for centre in (0.0, a, a + b)]
        others = [law((centre + shift) * mu, COARSE) for centre in (0.0, a, a + b)]
        parts = zip(chain_law(laws), chain_law(others), strict=True)
        factor = math.exp(charge.guaranteed_epsilon)
        exact = sum(float(np.maximum(one - factor * two, 0).sum()) for one, two in parts)
        assert exact <= charge.guaranteed_delta + 1e-9
        largest = max(largest, exact / charge.guaranteed_delta)
    assert largest > 0


def test_chain_on_the_diagonal():
    """F = P₀Πκ is at most e^((2m − 1)b) times F̃ where all exposures are at most b."""
    rng = np.random.default_rng(0)
    for _ in range(2000):
        m = int(rng.integers(1, 5))
        bound = float(rng.uniform(0.01, 1))
        first = rng.exponential(size=m + 1)
        other = first * np.exp(rng.choice([-bound, bound], m + 1))
        kept, kept_other = (
            values[0] * np.prod(np.minimum(1, values[1:] / values[:-1]))
            for values in (first, other)
        )
        assert kept <= math.exp((2 * m - 1) * bound) * kept_other * (1 + 1e-12)
        assert kept <= first.min() * (1 + 1e-12)


def test_charge_counts_what_is_proved():
    mechanism = mechanism_with(0.1)
    rows = mechanism.rows
    one = coupling_charge(mechanism, (rows, rows - 1)).guaranteed_delta
    advantage = mechanism.advantage_of(1)
    after = mechanism.with_rows(rows - 1)
    width = 2 * ratio_error(mechanism, after)
    assert one >= (after.advantage_of(1) + advantage + 3 * width) / (1 - advantage)
    assert one == pytest.approx((after.advantage_of(1) + advantage) / (1 - advantage), rel=1e-6)
    # More rows at once, and persons with more rows, cost more.
    assert coupling_charge(mechanism, (rows, rows - 3)).guaranteed_delta > one
    persons = coupling_charge(mechanism, (rows, rows - 1), rows_per_person=3).guaranteed_delta
    assert persons > one
    # Insertion is charged with the larger of the two distances.
    assert coupling_charge(mechanism, (rows, rows + 1)).guaranteed_delta > 0
    # So many rows guarantee nothing.
    assert coupling_charge(mechanism, (rows, 2)).guaranteed_epsilon == math.inf


@pytest.mark.parametrize("changed", [1, 3])
def test_added_rows_pass_the_worst_case_no_more_often(changed):
    """(b, p) of a chain holds for θ drawn with a person's rows and without them."""
    case = Case(kind="objective", noise="gaussian", separation=0.5, rows=7, changed=changed)
    mechanism = replace(case.calibrated(), delta=0.2, epsilon=0.3, rows_per_person=changed)
    whole, rest = case.both()
    fewer = mechanism.with_rows(rest.count)
    present, without = case.objective(mechanism, whole), case.objective(fewer, rest)
    bound, passed = mechanism.worst_case_either(changed)
    assert (bound, passed) >= mechanism.worst_case_of(changed)
    rng, size = np.random.default_rng(0), 20_000
    for theta in (draws(mechanism, present, size, rng), draws(fewer, without, size, rng)):
        loss = naive_log_density(mechanism, present, theta)
        loss -= naive_log_density(fewer, without, theta)
        share = np.mean(np.abs(loss) > bound)
        assert share <= passed + 5 * math.sqrt(0.25 / size)
    assert passed > 0


@pytest.mark.parametrize("kind", ["output", "objective"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_advantage_is_a_bound(kind, noise):
    """T of a setting on a line is at most what public constants say."""
    for separation in (0.5, 2.0):
        for changed in (1, 3):
            case = Case(kind=kind, noise=noise, separation=separation, rows=7, changed=changed)
            setting = case.setting()
            assert line_advantage(setting) <= setting.before.advantage_of(changed) + 1e-4
