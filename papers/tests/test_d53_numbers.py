"""D5.3's numbers against naive ones: mpmath, dp_accounting, counting."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant
from scipy.integrate import quad

from papers.d53 import advantage as d53_advantage
from papers.d53 import belief as d53_belief
from papers.d53 import composition as d53_composition
from papers.d53 import curves as d53_curves
from papers.d53 import published as d53_published
from papers.d53 import worlds as d53_worlds
from papers.d53.composition import BELIEF, DELTA, STEPS
from papers.d53.worlds import classical_mu, least_mu

GOAL = math.log(9)


def naive_delta(epsilon, mu):
    """Balle and Wang, Theorem 8, in 40 digits."""
    with mpmath.workdps(40):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return float(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m))


def naive_past(epsilon, mu):
    """P(ℓ > ε): the mass under D of the releases whose log ratio is above ε."""
    with mpmath.workdps(40):
        # r ~ N(0, 1) under D and N(μ, 1) under D'; the ratio is above ε left of this r.
        end = mpmath.mpf(mu) / 2 - mpmath.mpf(epsilon) / mu
        return float(mpmath.quad(mpmath.npdf, [end - 30, end - 5, end]))


@pytest.fixture(scope="module")
def curves():
    return d53_curves.measure_curves()


@pytest.fixture(scope="module")
def passed():
    return d53_belief.measure_passed(np.random.SeedSequence(0))


@pytest.fixture(scope="module")
def composed():
    return d53_composition.measure_composed()


@pytest.fixture(scope="module")
def routes():
    return {route.key: route for route in d53_published.measure_routes()}


# Two worlds.


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (6.0, 1e-6), (0.05, 0.1)])
def test_the_least_noise_is_the_least(epsilon, delta):
    mu = least_mu(epsilon, delta)
    assert naive_delta(epsilon, mu) <= delta < naive_delta(epsilon, mu * 1.0001)
    assert classical_mu(epsilon, delta) == pytest.approx(
        epsilon / math.sqrt(2 * math.log(1.25 / delta)), rel=1e-15
    )


def test_worlds_have_the_areas_of_their_errors():
    for world in d53_worlds.measure_worlds():
        density = np.exp(-((world.output - 1) ** 2) / (2 * world.scale**2))
        density /= world.scale * math.sqrt(2 * math.pi)
        assert world.there == pytest.approx(density, rel=1e-12)
        assert world.belief == pytest.approx(world.here / (world.here + density), rel=1e-9)
        wrong, _ = quad(
            lambda r, s=world.scale: math.exp(-(r**2) / (2 * s**2)) / (s * math.sqrt(2 * math.pi)),
            0.5,
            60 * world.scale,
        )
        assert world.error == pytest.approx(wrong, rel=1e-6)
        assert world.least_error < world.error
        assert world.boundary == pytest.approx(0.5, abs=1e-12)
    # Fig. 4.1, by hand: √(2 ln 1.25e6) = 5.29880.
    six = d53_worlds.measure_worlds()[1]
    assert (six.epsilon, six.delta) == (6.0, 1e-6)
    assert six.scale == pytest.approx(0.883134, abs=1e-6)
    exact = float(mpmath.erf(6 / (4 * mpmath.sqrt(mpmath.log(1.25e6)))))
    assert six.advantage == pytest.approx(exact, rel=1e-12)


def test_steps_add_up_and_wrong_ones_do_not(monkeypatch):
    steps = d53_worlds.measure_steps(np.random.SeedSequence(2))
    assert max(steps.difference, steps.one_step) < 1e-12
    # The steps must tell something, or the comparison would be empty.
    monkeypatch.setattr(d53_worlds, "expit", lambda x: 1 / (1 + np.exp(-1.01 * x)))
    assert d53_worlds.measure_steps(np.random.SeedSequence(2)).difference > 1e-3


# Theorem 2.


def test_the_bound_is_attained_to_the_last_digit():
    attained = d53_belief.measure_attained()
    assert -1e-14 < attained.excess < 1e-14
    assert -1e-14 < attained.shortfall < 1e-14
    # In rational numbers: odds of 3 to 1, twice.
    answers = Fraction(3, 4), Fraction(1, 4)
    belief = answers[0] ** 2 / (answers[0] ** 2 + answers[1] ** 2)
    assert belief == Fraction(9, 10)
    assert d53_belief.repeated_belief((0.75, 0.25), 2) == pytest.approx(0.9, abs=1e-15)
    assert attained.often[1] == pytest.approx(0.52497918747894**30, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (1.0, 0.01), (5.0, 1e-4), (0.1, 0.1)])
def test_tilted_randomised_response_is_the_counterexample(epsilon, delta):
    truth = mpmath.mpf(d53_belief.tilted_truth(epsilon, delta))
    pairs = [(truth, 1 - truth), (1 - truth, truth)]

    def hockey(e):
        return float(sum(max(p - mpmath.exp(e) * q, 0) for p, q in pairs))

    assert hockey(epsilon) == pytest.approx(delta, rel=1e-9, abs=1e-14)
    # Its loss is above ε exactly when it tells the truth.
    assert mpmath.log(truth / (1 - truth)) > epsilon
    assert hockey(0.99 * epsilon) > delta * (1 + 1e-6)


def test_how_often_the_belief_is_passed(passed):
    for epsilon, delta in ((1.0, 1e-6), (1.0, 0.01), (6.0, 1e-6)):
        for name, mu in (
            ("least", least_mu(epsilon, delta)),
            ("classical", classical_mu(epsilon, delta)),
        ):
            assert passed.at(name, epsilon, delta) == pytest.approx(
                naive_past(epsilon, mu), rel=1e-8
            )
    least, tilted = passed.at("least", 1.0, 0.01), passed.at("tilted", 1.0, 0.01)
    for share, expected in zip(passed.sampled, (least, tilted), strict=True):
        error = math.sqrt(expected * (1 - expected) / 1e6)
        assert abs(share - expected) < 5 * error
        assert abs(share - 1.05 * expected) > 5 * error
    # Where Eq. (2.1) begins to pass it too often.
    at = passed.crossing
    assert naive_past(0.999 * at, classical_mu(0.999 * at, 1e-6)) < 1e-6
    assert naive_past(1.001 * at, classical_mu(1.001 * at, 1e-6)) > 1e-6


# Figure 4.2.


def test_curves_against_their_definitions(curves):
    rng = np.random.default_rng(0)
    for _ in range(6):
        row = int(rng.integers(len(curves.delta)))
        column = int(rng.integers(len(curves.epsilon)))
        epsilon, delta = float(curves.epsilon[column]), float(curves.delta[row])
        assert curves.belief[column] == pytest.approx(1 / (1 + math.exp(-epsilon)), rel=1e-12)
        for kind, mu in (
            ("least", least_mu(epsilon, delta)),
            ("classical", classical_mu(epsilon, delta)),
        ):
            belief = float(getattr(curves, f"belief_{kind}")[row, column])
            loss = math.log(belief) - math.log1p(-belief)
            assert naive_past(loss, mu) == pytest.approx(delta, rel=1e-5)
            advantage = float(2 * mpmath.ncdf(mu / 2) - 1)
            assert getattr(curves, f"advantage_{kind}")[row, column] == pytest.approx(
                advantage, rel=1e-9
            )
        assert curves.kept[row, column] == pytest.approx(
            naive_delta(epsilon, classical_mu(epsilon, delta)) / delta, rel=1e-8
        )


def test_eq_2_1_fails_from_the_crossing_on_and_not_before(curves):
    for delta, crossing in zip(curves.delta, curves.crossing, strict=True):
        for factor, kept in ((0.999, True), (1.001, False)):
            epsilon = float(factor * crossing)
            excess = naive_delta(epsilon, classical_mu(epsilon, float(delta))) / delta
            assert bool(excess < 1) is kept
    # One crossing a row, and with it Theorem 3 turns from too low to too high.
    beyond = curves.epsilon > curves.crossing[:, None]
    assert np.array_equal(curves.kept > 1, beyond)
    assert np.array_equal(curves.advantage > curves.advantage_least, beyond)
    assert np.all(curves.crossing > 5)


def test_games_see_the_advantage():
    games = d53_curves.play(np.random.SeedSequence(5))
    exact = float(2 * mpmath.ncdf(classical_mu(2.0, 1e-6) / 2) - 1)
    assert abs(games.advantage - exact) < 4 * games.error
    assert abs(games.advantage - 1.05 * exact) > 4 * games.error
    assert games.error == pytest.approx(1e-3, rel=0.05)
    # Surer than 80 %: ∣ℓ∣ > ln 4 in either world.
    mu = classical_mu(2.0, 1e-6)
    sure = naive_past(math.log(4), mu) + float(mpmath.ncdf(-mu / 2 - math.log(4) / mu))
    assert abs(games.sure - sure) < 5 * math.sqrt(sure / games.games)


# Proposition 2 and the inverse.


def test_a_mechanism_against_the_argument_of_proposition_two():
    tpr, fpr = d53_advantage.measure_general().rates
    # ε-DP with ε = 1 in both directions, for both answers, and tight.
    ratios = [tpr / fpr, (1 - tpr) / (1 - fpr)]
    assert max(abs(math.log(ratio)) for ratio in ratios) == pytest.approx(1.0, abs=1e-12)
    # "Yes" is the likelier answer under D, and "no" under D': the Bayes adversary believes both.
    assert tpr > fpr
    assert (1 + tpr - fpr) / 2 > 0.5 < fpr
    assert tpr - fpr <= (math.e - 1) / 2


def test_general_bounds_and_randomised_response():
    bounds = d53_advantage.measure_general()
    assert bounds.response == pytest.approx(np.tanh(bounds.epsilon / 2), rel=1e-9)
    assert bounds.tight == pytest.approx(np.tanh(bounds.epsilon / 2), rel=1e-9)
    grown = np.exp(bounds.epsilon)
    assert bounds.slack == pytest.approx((grown - 1 + 0.2) / (grown + 1), rel=1e-9)
    assert bounds.half == pytest.approx((grown - 1) / 2, rel=1e-9)


def test_the_printed_inverse_in_mpmath():
    inverse = d53_advantage.measure_inverse()
    for goal, printed in zip(inverse.goals, inverse.printed, strict=True):
        root = mpmath.sqrt(2) * mpmath.erfinv(goal)
        assert printed == pytest.approx(float(2 * mpmath.ncdf(root / 2) - 1), rel=1e-12)
    assert inverse.corrected == pytest.approx(inverse.goals, rel=1e-12)


# Composition.


def dp_accounting_epsilon(mu, delta):
    """Its conversion, over orders of our own."""
    orders = 1 + np.geomspace(0.02, 1e3, 4000)
    epsilon, _ = rdp_privacy_accountant.compute_epsilon(orders, orders * mu * mu / 2, delta)
    return epsilon


@pytest.mark.parametrize(("mu", "delta"), [(0.65, 0.01), (0.2, 1e-6), (3.0, 1e-5)])
def test_conversions_against_the_library_and_brute_force(mu, delta):
    assert d53_composition.tighter_epsilon(mu, delta) == pytest.approx(
        dp_accounting_epsilon(mu, delta), rel=1e-5
    )
    orders = 1 + np.geomspace(1e-3, 1e4, 100_000)
    mironov = orders * mu * mu / 2 + math.log(1 / delta) / (orders - 1)
    best = int(np.argmin(mironov))
    assert d53_composition.mironov_epsilon(mu, delta) == pytest.approx(mironov[best], rel=1e-6)
    assert d53_composition.mironov_order(mu, delta) == pytest.approx(orders[best], rel=1e-3)


def test_the_published_advantage_and_the_other_routes(routes):
    shown = {key: round(route.advantage, 4) for key, route in routes.items()}
    assert shown["mironov"] == 0.2562
    assert shown["integer"] == 0.2557
    assert shown["tighter"] == 0.3256
    # Integer orders, by trying them.
    best = max(
        math.sqrt(2 * (GOAL - math.log(1 / DELTA) / (order - 1)) / order)
        for order in range(2, 200)
        if math.log(1 / DELTA) / (order - 1) < GOAL
    )
    assert routes["integer"].mu == pytest.approx(best, rel=1e-12)
    assert dp_accounting_epsilon(routes["tighter"].mu, DELTA) == pytest.approx(GOAL, rel=1e-5)
    assert naive_past(GOAL, routes["belief"].mu) == pytest.approx(DELTA, rel=1e-9)
    assert naive_delta(GOAL, routes["least"].mu) == pytest.approx(DELTA, rel=1e-6)
    for route in routes.values():
        assert route.passed == pytest.approx(naive_past(GOAL, route.mu), rel=1e-8)
    # Two of the six pass the belief too often, although (ε, δ) holds.
    assert {key for key, route in routes.items() if route.passed > DELTA * (1 + 1e-9)} == {
        "tighter",
        "least",
    }


def test_composing_against_the_library(composed):
    loss = privacy_loss_distribution.from_gaussian_mechanism(
        math.sqrt(STEPS) / composed.mu, value_discretization_interval=1e-4
    )
    assert loss.self_compose(STEPS).get_epsilon_for_delta(DELTA) == pytest.approx(
        composed.exact, abs=5e-3
    )
    for steps in (1, 2, STEPS):
        part, share = composed.mu / math.sqrt(steps), DELTA / steps
        each = composed.sequential[composed.at(steps)] / steps
        assert naive_delta(each, part) <= share < naive_delta(each * (1 - 1e-6), part)
        each = composed.sequential_rdp[composed.at(steps)] / steps
        assert each == pytest.approx(
            part**2 / 2 + part * math.sqrt(2 * math.log(1 / share)), rel=1e-12
        )
        ratio = composed.noise[composed.at(steps)]
        mu = least_mu(GOAL, DELTA) / (ratio * math.sqrt(steps))
        assert naive_delta(GOAL / steps, mu) == pytest.approx(share, rel=1e-6)
    assert composed.exact < composed.tighter < composed.rdp == pytest.approx(GOAL, rel=1e-12)


def test_the_printed_equations(routes):
    equations = d53_composition.measure_printed()
    mu = routes["mironov"].mu
    order = 1 + math.sqrt(2 * math.log(100)) / mu
    divergence, term = order * mu**2 / 2, math.log(100) / (order - 1)
    assert equations.last == pytest.approx(divergence - term, rel=1e-12)
    assert equations.middle == pytest.approx(1 / (1 + math.exp(term - divergence)), rel=1e-12)
    assert equations.corrected == pytest.approx(BELIEF, rel=1e-12)
    loss = math.log(equations.exact / (1 - equations.exact))
    assert naive_past(loss, mu) == pytest.approx(DELTA, rel=1e-8)
    # δ^k in one case, in 40 digits: two steps of δ = 0.01 each at the order 5.
    with mpmath.workdps(40):
        loss = 5 * mu**2 / 2 + 2 * math.log(100) / 4
        assert mpmath.ncdf(mu / 2 - loss / mu) < mpmath.mpf(DELTA) ** 2
    assert equations.overrun < 0


def test_steps_that_are_played_see_the_advantage_of_one():
    trained = d53_published.measure_trained(np.random.SeedSequence(7))
    exact = 0.256185696
    assert trained.difference < 1e-12
    assert abs(trained.advantage - exact) < 4 * trained.error
    assert abs(trained.advantage - 1.1 * exact) > 4 * trained.error
    expected = naive_past(GOAL, 0.65361283836)
    assert abs(trained.passed - expected) < 5 * math.sqrt(expected / (trained.games / 2))
