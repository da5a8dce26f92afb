"""D5.3's formulas against 50 digits, the published figure, and the errata."""

import inspect
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from expost.errors import InvalidInput
from expost.risk import EpsilonDelta, GaussianNoise, calibrate
from papers.d53 import formulas
from parameters import refuse_nan

EPSILONS = [0.0, 1e-8, 1e-3, 0.5, 1.0, 7.0, 40.0, 1e4]
DELTAS = [1e-300, 1e-20, 1e-5, 0.01, 0.9]
MUS = [1e-9, 1e-3, 0.3, 1.0, 20.0, 1e3]


def quantile(p):
    """Φ⁻¹ to the working precision."""
    return mp.sqrt(2) * mp.erfinv(2 * p - 1)


def smallest_exponent(mu, delta):
    """(4.7): ε_RDP + ln(1/δ)/(α − 1), ε_RDP = αμ²/2, at the best real order α, by search."""

    def exponent(log_order):
        order = 1 + math.exp(log_order)
        return order * mu**2 / 2 + math.log(1 / delta) / (order - 1)

    minimum = minimize_scalar(exponent, bounds=(-12, 12), method="bounded", options={"xatol": 1e-9})
    return minimum.fun


def test_published_figure():
    """Sec. 5.2: ρ_β = 0.9 and δ = 0.01 give ρ_α = 0.2562, and no variant of it (erratum 8)."""
    advantage = formulas.rdp_advantage_from_belief(0.9, 0.01)
    assert f"{advantage:.4f}" == "0.2562"
    assert min(abs(advantage - wrong) for wrong in (0.2557, 0.3256)) > 4e-4
    mu = brentq(lambda mu: smallest_exponent(mu, 0.01) - math.log(9), 0.1, 2.0, xtol=1e-13)
    assert advantage == pytest.approx(2 * norm.cdf(mu / 2) - 1, rel=1e-9)


def test_published_figure_is_not_that_of_whole_orders():
    def whole(mu):
        return min(a * mu**2 / 2 + math.log(100) / (a - 1) for a in range(2, 100)) - math.log(9)

    mu = brentq(whole, 0.1, 2.0)
    assert f"{2 * norm.cdf(mu / 2) - 1:.4f}" == "0.2557"


@pytest.mark.parametrize("mu", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("delta", [1e-10, 0.01, 0.5])
def test_rdp_belief_is_4_7_at_its_best_order(mu, delta):
    expected = 1 / (1 + math.exp(-smallest_exponent(mu, delta)))
    assert formulas.rdp_belief(mu, delta) == pytest.approx(expected, rel=1e-12)


def test_rdp_belief_holds_for_gaussian_noise():
    """Mironov's conversion bounds P(ℓ > ε): the exact figure is never above it."""
    for mu in (1e-3, 0.1, 1.0, 5.0):
        for delta in (1e-100, 1e-5, 0.1):
            noise = GaussianNoise(mu=mu)
            assert noise.loss(delta) < mu * (mu / 2 + math.sqrt(-2 * math.log(delta)))
            assert noise.posterior(delta=delta) <= formulas.rdp_belief(mu, delta) * (1 + 1e-14)


def test_against_50_digits():
    for delta in DELTAS:
        with mp.workdps(50):
            classical = mp.sqrt(2 * mp.log(mp.mpf("1.25") / mp.mpf(delta)))
            spread = mp.sqrt(2 * mp.log(1 / mp.mpf(delta)))
        for epsilon in EPSILONS:
            with mp.workdps(50):
                sure = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
                x = mp.mpf(epsilon) / (2 * classical)
                advantage = mp.erf(x / mp.sqrt(2))
            assert formulas.belief(epsilon) == pytest.approx(float(sure), rel=1e-15)
            assert formulas.gaussian_advantage(epsilon, delta) == pytest.approx(
                float(advantage), rel=1e-14
            )
        for mu in MUS:
            with mp.workdps(50):
                belief = 1 / (1 + mp.exp(-(mp.mpf(mu) ** 2 / 2 + mu * spread)))
            assert formulas.rdp_belief(mu, delta) == pytest.approx(float(belief), rel=1e-14)


def test_general_advantage_is_the_papers_two_bounds():
    for epsilon in (1e-8, 0.1, 0.6, math.log(2)):
        with mp.workdps(30):
            growth = float(mp.expm1(mp.mpf(epsilon)))
        assert formulas.general_advantage(epsilon) == pytest.approx(growth / 2, rel=1e-14)
        yeom = formulas.general_advantage(epsilon, false_positive_rate=1.0)
        assert yeom == pytest.approx(min(growth, 1), rel=1e-14)
        # Erratum 9: the tight one is below both.
        assert EpsilonDelta(epsilon=epsilon).advantage < formulas.general_advantage(epsilon) < yeom
    assert formulas.general_advantage(math.log(3) + 1e-9) == formulas.general_advantage(1e4) == 1
    assert formulas.general_advantage(1e4, false_positive_rate=0.0) == 0
    assert formulas.general_advantage(800.0, false_positive_rate=1e-320) == 1


def test_erratum_7_the_printed_inverse_lacks_a_factor_of_two():
    for epsilon in (1e-6, 0.01, 0.3, 0.99):
        for delta in (1e-100, 1e-6, 0.1):
            advantage = formulas.gaussian_advantage(epsilon, delta)
            back = formulas.epsilon_from_gaussian_advantage(advantage, delta)
            assert back == pytest.approx(epsilon, rel=1e-13)
            with mp.workdps(50):
                root = mp.sqrt(2 * mp.log(mp.mpf("1.25") / mp.mpf(delta)))
                printed = float(root * quantile((mp.mpf(advantage) + 1) / 2))
            assert printed == pytest.approx(epsilon / 2, rel=1e-12)


def test_theorem_3_understates_what_exact_calibration_allows():
    """The classical σ is larger than needed for ε < 1, so that its advantage is smaller."""
    for epsilon in (0.1, 0.5, 0.9):
        exact = calibrate(GaussianNoise, epsilon=epsilon, delta=1e-5).advantage
        assert formulas.gaussian_advantage(epsilon, 1e-5) < exact


def test_round_trips():
    for belief in (0.5, 0.5 + 1e-12, 0.6, 0.9, 1 - 1e-12):
        assert formulas.belief(formulas.epsilon_from_belief(belief)) == pytest.approx(
            belief, rel=1e-15
        )
        for delta in DELTAS:
            mu = formulas.rdp_mu_from_belief(belief, delta)
            assert formulas.rdp_belief(mu, delta) == pytest.approx(belief, rel=1e-14)
            # The same noise in terms of any order: ε_RDP = αμ²/2.
            order = 7.5
            assert formulas.rdp_advantage(order * mu * mu / 2, order) == pytest.approx(
                formulas.rdp_advantage_from_belief(belief, delta), rel=1e-12
            )
    with mp.workdps(50):
        b = mp.mpf(0.5 + 1e-12)
        expected = float(mp.log(b / (1 - b)))
    assert formulas.epsilon_from_belief(0.5 + 1e-12) == pytest.approx(expected, rel=1e-14)


def test_monotone():
    grid = np.logspace(-8, 4, 60)
    for delta in (1e-300, 1e-5, 0.9):
        assert np.all(np.diff([formulas.gaussian_advantage(e, delta) for e in grid]) >= 0)
        assert np.all(np.diff([formulas.rdp_belief(m, delta) for m in grid]) >= 0)
    assert np.all(np.diff([formulas.belief(e) for e in grid]) >= 0)
    assert np.all(np.diff([formulas.general_advantage(e) for e in grid]) >= 0)


GIVEN = {"belief": 0.9, "advantage": 0.1, "order": 2.0, "false_positive_rate": 0.5, "delta": 0.01}


@pytest.mark.parametrize("name", formulas.__all__)
def test_parameters_are_checked(name):
    function = getattr(formulas, name)
    given = {key: GIVEN.get(key, 1.0) for key in inspect.signature(function).parameters}
    assert refuse_nan(function, given) == [*given]


def test_refusals_of_the_edges():
    for call in (
        lambda: formulas.epsilon_from_belief(0.49),
        lambda: formulas.epsilon_from_belief(1.0),
        lambda: formulas.rdp_advantage(1.0, 1.0),
        lambda: formulas.rdp_advantage(1.0, math.inf),
        lambda: formulas.rdp_belief(1.0, 0.0),
    ):
        with pytest.raises(InvalidInput):
            call()
    # No noise, no protection.
    assert formulas.belief(math.inf) == formulas.rdp_belief(math.inf, 0.1) == 1
