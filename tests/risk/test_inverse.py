"""Inverses: what is returned keeps the goal in many digits, and a little more would not."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from riskcal import analysis

from expost import risk
from expost.errors import InvalidInput
from expost.risk import EpsilonDelta, GaussianNoise, paper

PRIORS = [1e-12, 1e-3, 0.2, 0.5, 0.9]
SHARES = [1e-6, 0.01, 0.3, 0.6, 0.95, 1 - 1e-6]
SLIPS = [0.0, 1e-300, 1e-9, 1e-3, 0.2]
RATES = [1e-12, 1e-4, 0.01, 0.1, 0.7]


def lies_between(low, high, share):
    """A goal between what nothing gives and certainty."""
    return low + (high - low) * share


# --------------------------------------------------------------------------- round trips

# In the order of the tests 30 + 360 + 30 + 30 + 150 + 300 + 5 + 30 + 49 + 3 = 987 inverses for one
# release, and 65 for several: 1,052 sets of parameters.


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("share", SHARES)
def test_epsilon_from_belief(prior, share):
    belief = lies_between(prior, 1.0, share)
    epsilon = risk.epsilon_from_belief(belief, prior=prior)
    assert EpsilonDelta(epsilon=epsilon).belief(prior) <= belief
    with mp.workdps(50):
        b, q = mp.mpf(belief), mp.mpf(prior)
        exact = mp.log(b / (1 - b)) - mp.log(q / (1 - q))
        # A belief is known to a few roundings, which its log odds feel 1/(1 − b) times.
        felt = 1e-14 / (1 - b)
        assert exact * (1 - 1e-14) - felt <= epsilon <= exact
    assert EpsilonDelta(epsilon=epsilon * (1 + 1e-9) + float(felt)).belief(prior) > belief


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("slip", [1e-300, 1e-9, 1e-3, 0.2])
def test_epsilon_from_belief_with_delta(prior, share, slip):
    belief = lies_between(prior, 1.0, share)
    for factor in (1 + 1e-6, 1.5, 4.9):
        exceeded = factor * slip
        try:
            epsilon = risk.epsilon_from_belief(belief, prior=prior, delta=slip, exceeded=exceeded)
        except InvalidInput:
            # Not even ε = 1e-9 keeps it.
            assert EpsilonDelta(epsilon=1e-9, delta=slip).belief(prior, delta=exceeded) > belief
            continue
        assert EpsilonDelta(epsilon=epsilon, delta=slip).belief(prior, delta=exceeded) <= belief
        more = EpsilonDelta(epsilon=epsilon * (1 + 1e-6) + 1e-8, delta=slip)
        assert more.belief(prior, delta=exceeded) > belief


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("share", SHARES)
def test_epsilon_from_one_in(prior, share):
    k = lies_between(1.0, 1 / prior, share)
    epsilon = risk.epsilon_from_one_in(k, prior=prior)
    assert EpsilonDelta(epsilon=epsilon).one_in(prior) >= k
    with mp.workdps(50):
        q, K = mp.mpf(prior), mp.mpf(k)
        exact = -mp.log(K - 1) - mp.log(q / (1 - q))
        felt = 1e-14 * K / (K - 1)
        assert exact * (1 - 1e-14) - felt <= epsilon <= exact


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("share", SHARES)
def test_epsilon_from_advantage(slip, share):
    advantage = lies_between(slip, 1.0, share)
    epsilon = risk.epsilon_from_advantage(advantage, delta=slip)
    assert EpsilonDelta(epsilon=epsilon, delta=slip).advantage <= advantage
    with mp.workdps(50):
        a, s = mp.mpf(advantage), mp.mpf(slip)
        exact = mp.log((1 + a - 2 * s) / (1 - a))
        felt = 1e-14 * a / (1 - a)
        assert exact * (1 - 1e-14) - felt <= epsilon <= exact
        if slip == 0:
            assert epsilon == pytest.approx(float(2 * mp.atanh(a)), rel=1e-9)


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("fpr", RATES)
def test_epsilon_from_true_positive_rate(slip, fpr):
    for share in SHARES:
        tpr = lies_between(fpr + slip, 1.0, share)
        epsilon = risk.epsilon_from_true_positive_rate(tpr, false_positive_rate=fpr, delta=slip)
        promise = EpsilonDelta(epsilon=epsilon, delta=slip)
        assert promise.true_positive_rate(fpr) <= tpr
        theirs = analysis.get_epsilon_from_err_rates(slip, fpr, 1 - tpr)
        rest = min(tpr - slip - fpr, 1 - tpr)
        assert epsilon == pytest.approx(float(theirs), rel=1e-13, abs=1e-14 / rest + 1e-14 / fpr)
        more = EpsilonDelta(epsilon=epsilon * (1 + 1e-6) + 1e-9, delta=slip)
        assert more.true_positive_rate(fpr) > tpr


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("delta", [1e-300, 1e-9, 1e-3, 0.5, 0.9])
def test_mu_from_belief_and_one_in(prior, delta):
    for share in SHARES:
        belief = lies_between(prior, 1.0, share)
        mu = risk.mu_from_belief(belief, prior=prior, delta=delta)
        assert GaussianNoise(mu=mu).belief(prior, delta=delta) <= belief
        more = mu * (1 + 1e-8) + 1e-14 * prior / (belief - prior) + 1e-14 / (1 - belief)
        assert GaussianNoise(mu=more).belief(prior, delta=delta) > belief
        k = lies_between(1.0, 1 / prior, share)
        mu = risk.mu_from_one_in(k, prior=prior, delta=delta)
        assert GaussianNoise(mu=mu).one_in(prior, delta=delta) >= k
        assert mu == pytest.approx(
            risk.mu_from_belief(1 / k, prior=prior, delta=delta), rel=1e-7, abs=1e-9
        )


@pytest.mark.parametrize("advantage", [1e-300, 1e-9, 0.2562, 0.9, 1 - 1e-9])
def test_mu_from_advantage(advantage):
    mu = risk.mu_from_advantage(advantage)
    with mp.workdps(50):
        # In 50 digits too, and not by a millionth of a millionth more.
        assert mp.erf(mp.mpf(mu) / mp.sqrt(8)) <= mp.mpf(advantage)
        more = mp.mpf(mu) * (1 + mp.mpf(10) ** -12) + mp.mpf(10) ** -13 / (1 - mp.mpf(advantage))
        assert mp.erf(more / mp.sqrt(8)) > mp.mpf(advantage)


@pytest.mark.parametrize("fpr", RATES)
def test_mu_from_true_positive_rate(fpr):
    for share in SHARES:
        tpr = lies_between(fpr, 1.0, share)
        mu = risk.mu_from_true_positive_rate(tpr, false_positive_rate=fpr)
        assert GaussianNoise(mu=mu).true_positive_rate(fpr) <= tpr
        more = mu * (1 + 1e-9) + 1e-13 * fpr / (tpr - fpr) + 1e-14
        assert GaussianNoise(mu=more).true_positive_rate(fpr) > tpr


@pytest.mark.parametrize("epsilon", [0.0, 1e-8, 1e-3, 0.5, 3.0, 100.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-50, 1e-12, 1e-5, 0.01, 0.3, 0.9])
def test_mu_from_epsilon_and_back(epsilon, delta):
    mu = risk.mu_from_epsilon(epsilon, delta=delta)
    noise = GaussianNoise(mu=mu)
    assert noise.delta(epsilon) <= delta
    assert GaussianNoise(mu=mu * (1 + 1e-10)).delta(epsilon) > delta
    back = risk.epsilon_from_mu(mu, delta=delta)
    # Forward is rounded up, backward down: ε comes back, or a little less.
    assert back == pytest.approx(epsilon, rel=1e-9, abs=1e-9 * mu)


def test_mu_from_epsilon_against_many_digits():
    for epsilon, delta in ((1e-4, 1e-9), (1.0, 1e-5), (8.0, 1e-30)):
        mu = risk.mu_from_epsilon(epsilon, delta=delta)
        with mp.workdps(80):
            e, m = mp.mpf(epsilon), mp.mpf(mu)

            def curve(m, e=e):
                return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)

            assert curve(m) <= mp.mpf(delta) < curve(m * (1 + mp.mpf(10) ** -10))


# --------------------------------------------------------------------------- several releases


@pytest.mark.parametrize("releases", [1, 2, 7, 1000, 10**6])
def test_releases_compose_exactly(releases):
    """Pure ε: k releases lose k·ε at most. Gaussian: k of μ are one of √k·μ."""
    for prior, share in itertools.product((1e-6, 0.5), (0.1, 0.9)):
        belief = lies_between(prior, 1.0, share)
        each = risk.epsilon_from_belief(belief, prior=prior, releases=releases)
        one = risk.epsilon_from_belief(belief, prior=prior)
        assert each == pytest.approx(one / releases, rel=1e-12)
        assert EpsilonDelta(epsilon=each * releases).belief(prior) <= belief
        assert risk.belief_from_epsilon(each, prior=prior, releases=releases) <= belief
        k = 1 / belief
        each = risk.epsilon_from_one_in(k, prior=prior, releases=releases)
        assert risk.one_in_from_epsilon(each, prior=prior, releases=releases) >= k
        assert each == pytest.approx(one / releases, rel=1e-12)
    root = math.sqrt(releases)
    for each, whole in (
        (
            risk.mu_from_belief(0.9, delta=1e-5, releases=releases),
            risk.mu_from_belief(0.9, delta=1e-5),
        ),
        (
            risk.mu_from_one_in(50.0, prior=1e-4, delta=1e-5, releases=releases),
            risk.mu_from_one_in(50.0, prior=1e-4, delta=1e-5),
        ),
        (risk.mu_from_advantage(0.2, releases=releases), risk.mu_from_advantage(0.2)),
        (
            risk.mu_from_true_positive_rate(0.1, false_positive_rate=0.01, releases=releases),
            risk.mu_from_true_positive_rate(0.1, false_positive_rate=0.01),
        ),
        (
            risk.mu_from_epsilon(1.0, delta=1e-5, releases=releases),
            risk.mu_from_epsilon(1.0, delta=1e-5),
        ),
    ):
        assert each == pytest.approx(whole / root, rel=1e-12)
        assert each * root <= whole * (1 + 1e-15)
    mu = risk.mu_from_advantage(0.2, releases=releases)
    assert risk.advantage_from_mu(mu, releases=releases) <= 0.2
    mu = risk.mu_from_belief(0.9, delta=1e-5, releases=releases)
    assert risk.belief_from_mu(mu, delta=1e-5, releases=releases) <= 0.9
    assert risk.one_in_from_mu(mu, delta=1e-5, releases=releases) >= (1 - 1e-14) / 0.9


def test_the_published_belief_as_an_exact_figure():
    """ρ_β = 0.9, δ = 0.01: exact Gaussian noise needs less noise than the RDP route of D5.3."""
    mu = risk.mu_from_belief(0.9, delta=0.01)
    assert mu > paper.rdp_mu_from_belief(0.9, 0.01)
    assert GaussianNoise(mu=mu).advantage == pytest.approx(0.3127, abs=1e-4)


# --------------------------------------------------------------------------- twins


def test_forward_twins_are_the_promises():
    promise, noise = EpsilonDelta(epsilon=0.7, delta=1e-3), GaussianNoise(mu=0.7)
    assert risk.advantage_from_epsilon(0.7, delta=1e-3) == promise.advantage
    assert risk.true_positive_rate_from_epsilon(
        0.7, false_positive_rate=0.02, delta=1e-3
    ) == promise.true_positive_rate(0.02)
    assert risk.belief_from_epsilon(0.7, prior=0.1, delta=1e-3, exceeded=0.01) == promise.belief(
        0.1, delta=0.01
    )
    assert risk.one_in_from_epsilon(0.7, prior=0.1, delta=1e-3, exceeded=0.01) == promise.one_in(
        0.1, delta=0.01
    )
    assert risk.belief_from_epsilon(0.7, prior=0.1) == EpsilonDelta(epsilon=0.7).belief(0.1)
    assert risk.advantage_from_mu(0.7) == noise.advantage
    assert risk.true_positive_rate_from_mu(
        0.7, false_positive_rate=0.02
    ) == noise.true_positive_rate(0.02)
    assert risk.belief_from_mu(0.7, prior=0.1, delta=0.01) == noise.belief(0.1, delta=0.01)
    assert risk.one_in_from_mu(0.7, prior=0.1, delta=0.01) == noise.one_in(0.1, delta=0.01)
    assert risk.epsilon_from_mu(0.7, delta=0.01) == noise.epsilon(0.01)
    assert risk.belief_from_epsilon(math.inf) == risk.belief_from_mu(math.inf, delta=0.1) == 1


def test_monotone_in_the_goal():
    beliefs = np.linspace(0.51, 0.999, 25)
    rates = np.linspace(0.02, 0.99, 25)
    for values in (
        [risk.epsilon_from_belief(b) for b in beliefs],
        [risk.mu_from_belief(b, delta=1e-6) for b in beliefs],
        [risk.epsilon_from_advantage(a) for a in rates],
        [risk.mu_from_advantage(a) for a in rates],
        [risk.epsilon_from_true_positive_rate(r, false_positive_rate=0.01) for r in rates],
        [risk.mu_from_true_positive_rate(r, false_positive_rate=0.01) for r in rates],
        [risk.mu_from_epsilon(e, delta=1e-6) for e in np.logspace(-4, 3, 15)],
        [risk.mu_from_epsilon(1.0, delta=d) for d in np.logspace(-100, -0.1, 15)],
        [-risk.epsilon_from_one_in(k, prior=1e-3) for k in np.linspace(2, 990, 25)],
    ):
        assert np.all(np.diff(values) > 0)


# --------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("bad", [math.nan, None, "0.9", -0.1, math.inf, True, 0.0])
def test_refusals_of_goals(bad):
    for call in (
        lambda: risk.epsilon_from_belief(bad),
        lambda: risk.epsilon_from_belief(0.9, prior=bad),
        lambda: risk.epsilon_from_one_in(bad, prior=0.1),
        lambda: risk.epsilon_from_one_in(2.0, prior=bad),
        lambda: risk.epsilon_from_advantage(bad),
        lambda: risk.epsilon_from_true_positive_rate(bad, false_positive_rate=0.1),
        lambda: risk.epsilon_from_true_positive_rate(0.5, false_positive_rate=bad),
        lambda: risk.mu_from_belief(bad, delta=0.1),
        lambda: risk.mu_from_belief(0.9, delta=bad),
        lambda: risk.mu_from_one_in(bad, prior=0.1, delta=0.1),
        lambda: risk.mu_from_one_in(2.0, prior=0.1, delta=bad),
        lambda: risk.mu_from_advantage(bad),
        lambda: risk.mu_from_true_positive_rate(bad, false_positive_rate=0.1),
        lambda: risk.mu_from_epsilon(1.0, delta=bad),
        lambda: risk.epsilon_from_mu(1.0, delta=bad),
        lambda: risk.mu_from_advantage(0.5, releases=bad),
        lambda: risk.epsilon_from_belief(0.9, releases=bad),
        lambda: risk.belief_from_epsilon(1.0, releases=bad),
    ):
        with pytest.raises(InvalidInput):
            call()
    if bad != 0:
        for call in (
            lambda: risk.mu_from_epsilon(bad, delta=0.1),
            lambda: risk.epsilon_from_advantage(0.5, delta=bad),
            lambda: risk.epsilon_from_belief(0.9, delta=bad),
            lambda: risk.epsilon_from_belief(0.9, delta=0.1, exceeded=bad),
        ):
            with pytest.raises(InvalidInput):
                call()


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: risk.epsilon_from_belief(0.5), "the prior and certainty"),
        (lambda: risk.epsilon_from_belief(1.0), "the prior and certainty"),
        (lambda: risk.epsilon_from_belief(0.1, prior=0.2), "the prior and certainty"),
        (lambda: risk.epsilon_from_belief(0.9, delta=1e-5), "exceeded=2"),
        (lambda: risk.epsilon_from_belief(0.9, delta=1e-5, exceeded=1e-5), "exceeded=2"),
        (lambda: risk.belief_from_epsilon(0.9, delta=1e-5), "exceeded=2"),
        (
            lambda: risk.epsilon_from_belief(0.51, delta=0.1, exceeded=0.2),
            "no epsilon keeps this belief",
        ),
        (
            lambda: risk.epsilon_from_belief(0.9, delta=1e-5, exceeded=1e-4, releases=2),
            "Composition",
        ),
        (lambda: risk.epsilon_from_belief(0.5 + 2e-16), "allow a little more"),
        (lambda: risk.epsilon_from_one_in(10.0, prior=0.1), "certainty and 1/prior"),
        (lambda: risk.epsilon_from_one_in(1.0, prior=0.1), "certainty and 1/prior"),
        (lambda: risk.epsilon_from_advantage(0.1, delta=0.1), "no promise"),
        (
            lambda: risk.epsilon_from_true_positive_rate(0.2, false_positive_rate=0.1, delta=0.1),
            "no promise",
        ),
        (lambda: risk.mu_from_true_positive_rate(0.1, false_positive_rate=0.1), "no promise"),
        (lambda: risk.mu_from_epsilon(math.inf, delta=0.1), "must be finite"),
    ],
)
def test_refusals_say_why(call, remedy):
    with pytest.raises(InvalidInput, match=remedy):
        call()
