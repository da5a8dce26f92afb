"""(ε, δ) and Gaussian noise against 60 digits and against mechanisms built to reach the bounds."""

import math

import mpmath as mp
import numpy as np
import pytest
from riskcal import analysis
from scipy.special import ndtri

from expost.risk import EpsilonDelta, GaussianNoise

EPSILONS = [0.0, 1e-8, 1e-4, 0.1, 1.0, 5.0, 40.0, 800.0, 1e4]
SLIPS = [0.0, 1e-300, 1e-20, 1e-5, 0.01, 0.3, 0.9]
MUS = [1e-9, 1e-4, 0.1, 0.5, 1.0, 3.0, 30.0, 1e3]
RATES = [1e-300, 1e-20, 1e-5, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9]


def rounded_up(got, exact, tolerance=1e-13):
    """``got`` is a float at or above ``exact``, and not far above."""
    # A float cannot say 1 − 1e-300, nor can a subnormal be a few roundings above another.
    return exact <= got <= exact * (1 + tolerance) + mp.mpf(2) ** -1070


def digits(epsilon):
    """Enough to tell 1 − e^(−ε) and 1 − 1e-300 from 1, with 40 left."""
    return 340 + int(epsilon / 2)


# --------------------------------------------------------------------------- (ε, δ)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("slip", SLIPS)
def test_epsilon_delta_against_60_digits(epsilon, slip):
    guarantee = EpsilonDelta(epsilon=epsilon, delta=slip)
    with mp.workdps(digits(epsilon)):
        e, s = mp.mpf(epsilon), mp.mpf(slip)
        advantage = (mp.exp(e) - 1 + 2 * s) / (mp.exp(e) + 1)
        assert rounded_up(guarantee.advantage, advantage)
        for share in (0.0, 1e-9, 0.3, 0.999, 1.0, 2.0):
            below = epsilon * share
            curve = s + (1 - s) * max(mp.exp(e) - mp.exp(mp.mpf(below)), 0) / (1 + mp.exp(e))
            assert rounded_up(guarantee.delta(below), curve)
        for fpr in RATES:
            f = mp.mpf(fpr)
            reference = min(1, s + mp.exp(e) * f, 1 - mp.exp(-e) * (1 - s - f))
            assert rounded_up(guarantee.true_positive_rate(fpr), reference)
        assert guarantee.true_positive_rate(0.0) == slip
        assert guarantee.true_positive_rate(1.0) == 1


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("slip", SLIPS)
def test_epsilon_inverts_delta(epsilon, slip):
    guarantee = EpsilonDelta(epsilon=epsilon, delta=slip)
    assert guarantee.epsilon(slip) == epsilon
    for delta in [*SLIPS, 0.5, 0.99]:
        got = guarantee.epsilon(delta)
        if delta < slip:
            assert got == math.inf
            continue
        with mp.workdps(digits(epsilon)):
            e, s = mp.mpf(epsilon), mp.mpf(slip)
            rest = 1 - (mp.mpf(delta) - s) * (1 + mp.exp(-e)) / (1 - s)
            exact = max(e + mp.log(rest), mp.mpf(0)) if rest > 0 else mp.mpf(0)
            # What the logarithm is taken of is a difference from 1, known to a few roundings.
            felt = 1e-14 * (1 + e) + (1e-14 / (rest * (1 - s)) if exact > 0 else 0)
            assert exact <= got <= exact + felt


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("slip", SLIPS)
def test_loss_against_60_digits(epsilon, slip):
    guarantee = EpsilonDelta(epsilon=epsilon, delta=slip)
    assert guarantee.loss() == (epsilon if slip == 0 else math.inf)
    for delta in [slip, *SLIPS[1:], 0.5, 0.99, 1 - 1e-12]:
        got = guarantee.loss(delta)
        if slip > 0 and delta <= slip:
            assert got == math.inf
            continue
        with mp.workdps(digits(epsilon)):
            exact = naive_loss(mp.mpf(epsilon), mp.mpf(slip), mp.mpf(delta))
            # The share δ/δ' is known to a few roundings; close to 1 its logarithm feels them.
            near = mp.mpf(delta) / max(mp.mpf(delta) - mp.mpf(slip), mp.mpf(10) ** -320)
            assert exact <= got <= exact * (1 + 1e-14) + 1e-14 * near * (exact < 60)


def naive_loss(e, s, d):
    """Smallest b at which one of the two bounds of P(ℓ > b) is at most d."""
    if d == 0:
        return e
    first = e - mp.log(1 - s / d)
    rest = 1 - ((1 - d) * (mp.exp(e) - 1) + s) / d
    return min(first, -mp.log(rest)) if rest > 0 else first


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("slip", [0.0, 1e-4, 0.1])
@pytest.mark.parametrize("delta", [2e-4, 0.15, 0.6, 0.9, 0.999])
def test_loss_is_reached_by_a_two_point_mechanism(epsilon, slip, delta):
    """P(yes) = p, Q(yes) = p·e^(−b): it keeps (ε, δ), and shows b with probability p > δ'."""
    if delta <= slip:
        return
    loss = EpsilonDelta(epsilon=epsilon, delta=slip).loss(delta)
    p, b = delta * (1 + 1e-9), loss * (1 - 1e-6)
    yes, no = (p, p * math.exp(-b)), (1 - p, 1 - p * math.exp(-b))
    slack = 1e-8 * math.exp(epsilon)
    for event in (yes, no):
        for first, other in (event, event[::-1]):
            assert first <= math.exp(epsilon) * other + slip + slack
    # Power: a loss 1 % larger is not allowed at this probability.
    b = loss * 1.01
    yes, no = (p, p * math.exp(-b)), (1 - p, 1 - p * math.exp(-b))
    assert (
        max(yes[0] - math.exp(epsilon) * yes[1], no[1] - math.exp(epsilon) * no[0]) > slip + slack
    )


def test_every_finite_pair_keeps_its_guarantee():
    """Random pairs of laws on six points: ε is picked, δ is theirs, every figure must hold."""
    rng = np.random.default_rng(5)
    smallest_gap = math.inf
    for _ in range(300):
        spread = rng.choice([0.1, 1.0, 4.0])
        p = rng.dirichlet(np.ones(6))
        q = p * np.exp(spread * rng.normal(size=6))
        q /= q.sum()
        loss = np.log(p) - np.log(q)
        epsilon = spread * rng.uniform(0, 1.5)
        slip = max(excess(p, q, epsilon), excess(q, p, epsilon))
        guarantee = EpsilonDelta(epsilon=epsilon, delta=slip)
        room = 1 + 1e-12
        gap = guarantee.advantage - 0.5 * np.abs(p - q).sum()
        assert gap >= -1e-12
        smallest_gap = min(smallest_gap, gap)
        for other in (0.0, 0.5 * epsilon, 0.9 * epsilon, 2 * epsilon):
            assert max(excess(p, q, other), excess(q, p, other)) <= guarantee.delta(other) * room
        # Every deterministic test of the pair; the curve is concave, so it bounds mixtures too.
        order = np.argsort(-loss)
        fprs, tprs = np.cumsum(q[order]), np.cumsum(p[order])
        for fpr, tpr in zip(fprs, tprs, strict=True):
            assert tpr <= guarantee.true_positive_rate(min(fpr, 1.0)) * room
        for delta in (1e-3, 0.05, 0.3, 0.7, 0.95):
            bound = guarantee.loss(delta)
            passed = max(p[loss > bound * room].sum(), q[-loss > bound * room].sum())
            assert passed <= delta
    # Power: some pairs come close to their bound.
    assert smallest_gap < 0.01


def excess(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def test_no_guarantee():
    guarantee = EpsilonDelta(epsilon=math.inf, delta=1e-5)
    assert guarantee.describe() == "no guarantee"
    assert guarantee.advantage == guarantee.delta(3.0) == guarantee.delta(math.inf) == 1
    assert guarantee.epsilon(0.5) == guarantee.loss(0.9) == math.inf
    assert guarantee.posterior(1e-12, delta=0.9) == guarantee.one_in(1e-12) == 1
    assert guarantee.true_positive_rate(0.0) == guarantee.true_positive_rate(0.2) == 1


def test_repr_and_equality():
    guarantee = EpsilonDelta(epsilon=1, delta=1e-5)
    assert eval(repr(guarantee)) == guarantee == EpsilonDelta(epsilon=1.0, delta=1e-5)
    assert guarantee != EpsilonDelta(epsilon=1.0)
    with pytest.raises(AttributeError):
        guarantee.guaranteed_epsilon = 0.5


# --------------------------------------------------------------------------- Gaussian


def exact_score(p):
    """Φ⁻¹(p): one Newton step from the float, which squares its error."""
    x = mp.mpf(float(ndtri(p)))
    density = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
    x -= (mp.ncdf(x) - mp.mpf(p)) / density
    return x


@pytest.mark.parametrize("mu", MUS)
def test_gaussian_against_40_digits(mu):
    noise = GaussianNoise(mu=mu)
    with mp.workdps(40):
        m = mp.mpf(mu)
        assert rounded_up(noise.advantage, mp.erf(m / mp.sqrt(8)))
        for p in RATES:
            score = exact_score(p)
            reference = mp.ncdf(score + m)
            # The score is known to a few roundings; Φ feels them score times.
            feel = 1e-14 * (1 + float(abs(score)) * (float(abs(score)) + 1))
            assert rounded_up(noise.true_positive_rate(p), reference, feel)
            if p < 0.95:
                loss = max(m * m / 2 - m * score, mp.mpf(0))
                assert loss <= noise.loss(p) <= loss + 1e-14 * m * (m + abs(score))
    for epsilon in (1e-8 * mu, 0.1 * mu, mu, 0.5 * mu * mu, mu * (1 + mu)):
        if epsilon > 1000:
            continue
        with mp.workdps(digits(epsilon)):
            e, m = mp.mpf(epsilon), mp.mpf(mu)
            exact = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
            assert rounded_up(noise.delta(epsilon), exact, 2e-11)


def test_gaussian_edges():
    nothing, everything = GaussianNoise(mu=0), GaussianNoise(mu=math.inf)
    assert nothing.advantage == nothing.delta(1.0) == nothing.epsilon(0.0) == nothing.loss() == 0
    assert nothing.true_positive_rate(0.3) == 0.3
    assert nothing.posterior(0.2) == 0.2
    assert everything.advantage == everything.delta(5.0) == everything.true_positive_rate(0.0) == 1
    assert everything.epsilon(0.5) == everything.loss(0.5) == math.inf
    assert everything.delta(math.inf) == 1
    assert everything.posterior(1e-12, delta=0.5) == 1
    noise = GaussianNoise(mu=1.0)
    assert noise.epsilon(0.0) == noise.loss(0.0) == noise.loss() == math.inf
    assert noise.posterior() == noise.one_in() == 1
    assert noise.true_positive_rate(0.0) == 0
    assert noise.true_positive_rate(1.0) == 1
    assert noise.delta(math.inf) == 0
    # About e^(−5e7), and never 0.
    assert noise.delta(1e4) == math.ulp(0.0)
    # More than half of the losses are below 0 there.
    assert GaussianNoise(mu=0.1).loss(0.9) == 0


def test_gaussian_epsilon_and_loss_at_the_same_delta_are_not_the_same():
    """Erratum 10: P(ℓ > ε(δ)) is well above δ."""
    noise = GaussianNoise(mu=0.5)
    epsilon, loss = noise.epsilon(1e-5), noise.loss(1e-5)
    assert 1.05 * epsilon < loss
    assert float(mp.ncdf(0.25 - loss / 0.5)) == pytest.approx(1e-5, rel=1e-12)
    assert float(mp.ncdf(0.25 - epsilon / 0.5)) > 4e-5


# --------------------------------------------------------------------------- posteriors


@pytest.mark.parametrize("prior", [1e-300, 1e-12, 1e-3, 0.5, 0.9, 1 - 1e-12])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_posterior_and_one_in_against_60_digits(prior, epsilon):
    guarantee = EpsilonDelta(epsilon=epsilon)
    with mp.workdps(digits(epsilon)):
        q = mp.mpf(prior)
        exact = q / (q + (1 - q) * mp.exp(-mp.mpf(epsilon)))
        assert rounded_up(guarantee.posterior(prior), exact)
        k = guarantee.one_in(prior)
        assert (1 - 1e-14) / exact <= k
        assert k <= 1 / exact or epsilon == 0


def test_close_to_certainty_only_the_last_digits_are_lost():
    """What is left to 1 keeps its digits: the inverses of goals near 1 need them."""
    few = 4 * 2.0**-52
    for epsilon in (3.0, 10.0, 25.0, 33.0):
        guarantee, rest = EpsilonDelta(epsilon=epsilon), mp.exp(-epsilon)
        assert 1 - rest / (1 + rest) <= guarantee.posterior() <= 1 - rest / (1 + rest) + few
        assert 1 - 2 * rest / (1 + rest) <= guarantee.advantage <= 1 - 2 * rest / (1 + rest) + few
        reference = 1 - rest * mp.mpf(0.75)
        assert reference <= guarantee.true_positive_rate(0.25) <= reference + few
    for mu in (3.0, 8.0, 15.0):
        noise = GaussianNoise(mu=mu)
        assert mp.erf(mu / mp.sqrt(8)) <= noise.advantage <= mp.erf(mu / mp.sqrt(8)) + few
        assert mp.ncdf(mu) <= noise.true_positive_rate(0.5) <= mp.ncdf(mu) + few


def test_one_in_of_a_tiny_prior():
    """One in 10¹² before, one in 10¹²/e after ε = 1."""
    assert EpsilonDelta(epsilon=1.0).one_in(1e-12) == pytest.approx(
        1 + (1e12 - 1) / math.e, rel=1e-14
    )
    assert EpsilonDelta(epsilon=0.0).one_in(1e-12) == 1e12


# --------------------------------------------------------------------------- riskcal


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-3, 0.2])
def test_agrees_with_riskcal_on_epsilon_delta(epsilon, delta):
    """Closed forms in float64 on its side: differences of numbers near 1."""
    guarantee = EpsilonDelta(epsilon=epsilon, delta=delta)
    assert guarantee.advantage == pytest.approx(
        analysis.get_advantage_from_adp(epsilon, delta), abs=4e-15
    )
    alphas = np.linspace(0.001, 0.999, 41)
    true_rates = [guarantee.true_positive_rate(a) for a in alphas]
    np.testing.assert_allclose(
        1 - np.array(true_rates), analysis.get_beta_from_adp(epsilon, delta, alphas), atol=4e-15
    )


@pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 4.0])
def test_agrees_with_riskcal_on_gaussian_noise(mu):
    noise = GaussianNoise(mu=mu)
    assert noise.advantage == pytest.approx(analysis.get_advantage_from_gdp(mu), abs=4e-15)
    alphas = np.linspace(0.001, 0.999, 41)
    true_rates = [noise.true_positive_rate(a) for a in alphas]
    np.testing.assert_allclose(
        1 - np.array(true_rates), analysis.get_beta_from_gdp(mu, alphas), atol=1e-13
    )
    for prior in (0.5, 0.7, 0.9):
        # Its Bayes risk is (1 − prior)(1 − δ(logit prior)).
        risk = (1 - prior) * (1 - noise.delta(math.log(prior / (1 - prior))))
        assert risk == pytest.approx(analysis.get_bayes_risk_from_gdp(mu, prior), abs=1e-11)


# --------------------------------------------------------------------------- refusals
