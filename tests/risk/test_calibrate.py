"""Calibration: the result keeps the goal in many digits, and slightly less noise would not."""

import contextlib
import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riskcal import analysis
from riskcal.calibration.dpsgd import find_noise_multiplier_for_advantage

from expost.errors import InvalidInput
from expost.risk import (
    DPSGD,
    Composition,
    EpsilonDelta,
    GaussianNoise,
    NormLaplaceNoise,
    calibrate,
)
from expost.types import Neighbouring
from papers.d53 import formulas

# Figures are rounded up by a few roundings: the goal is met to this part of itself.
TIGHT = 1e-13


def log_uniform(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


PRIORS = log_uniform(1e-12, 0.9)
SHARES = st.one_of(
    st.floats(0.01, 0.99), log_uniform(1e-6, 0.01), log_uniform(1e-6, 0.01).map(lambda x: 1 - x)
)
CHANCES = log_uniform(1e-30, 0.9)
RATES = log_uniform(1e-12, 0.7)


def between(low, high, share):
    """A goal between what an attacker has without a release and certainty."""
    return low + (high - low) * share


# --------------------------------------------------------------------------- closed forms


def logit(p):
    return mp.log(p / (1 - p))


def quantile(p):
    return mp.sqrt(2) * mp.erfinv(2 * mp.mpf(p) - 1)


def gaussian_mu(room, delta):
    """The positive root of μ²/2 + μz = room, z = Φ⁻¹(1 − δ)."""
    z = -quantile(delta)
    root = mp.sqrt(z * z + 2 * room)
    return 2 * room / (z + root) if z > 0 else root - z


def generic_epsilon(room, delta, exceeded):
    """The larger of what the two bounds of the loss allow."""
    if delta == 0:
        return room
    first = room + mp.log(1 - mp.mpf(delta) / exceeded)
    rest = (exceeded * -mp.expm1(-room) - delta) / (1 - mp.mpf(exceeded))
    return max(first, mp.log1p(rest) if rest > 0 else mp.mpf(0))


def assert_calibrated(number, closed_form, value):
    """``number`` is at most the closed form at the goal, and at least that slightly below it."""
    with mp.workdps(60):
        goal = mp.mpf(value)
        exact, less = closed_form(goal), closed_form(goal * (1 - mp.mpf(TIGHT)))
        assert number <= exact
        assert number >= less * (1 - mp.mpf(TIGHT))


# --------------------------------------------------------------------------- round trips


@settings(max_examples=150)
@given(PRIORS, SHARES)
def test_pure_epsilon_for_a_posterior(prior, share):
    posterior = between(prior, 1.0, share)
    guarantee = calibrate(EpsilonDelta, posterior=posterior, prior=prior)
    assert guarantee.guaranteed_delta == 0
    assert guarantee.posterior(prior) <= posterior
    assert_calibrated(
        guarantee.guaranteed_epsilon, lambda b: logit(b) - logit(mp.mpf(prior)), posterior
    )


@settings(max_examples=150)
@given(PRIORS, SHARES, log_uniform(1e-30, 0.2), st.floats(1.001, 4.9))
def test_epsilon_at_a_delta_for_a_posterior(prior, share, delta, factor):
    posterior, exceeded = between(prior, 1.0, share), factor * delta
    limits = {"posterior": posterior, "prior": prior, "delta": delta, "exceeded": exceeded}
    with mp.workdps(60):
        room = logit(mp.mpf(posterior)) - logit(mp.mpf(prior))
        exact = generic_epsilon(room, delta, exceeded)
    if exact < 1e-9:
        # No ε keeps it, or next to none.
        with contextlib.suppress(InvalidInput):
            assert calibrate(EpsilonDelta, **limits).guaranteed_epsilon <= exact
        return
    guarantee = calibrate(EpsilonDelta, **limits)
    assert guarantee.posterior(prior, delta=exceeded) <= posterior
    assert guarantee.guaranteed_delta == delta
    assert guarantee.guaranteed_epsilon <= exact
    more = EpsilonDelta(epsilon=guarantee.guaranteed_epsilon * (1 + 1e-9) + 1e-10, delta=delta)
    assert more.posterior(prior, delta=exceeded) > posterior


@settings(max_examples=100)
@given(PRIORS, SHARES, CHANCES)
def test_one_in_is_the_inverse_of_a_posterior(prior, share, delta):
    k = between(1.0, 1 / prior, share)
    pure = calibrate(EpsilonDelta, one_in=k, prior=prior)
    noise = calibrate(GaussianNoise, one_in=k, prior=prior, delta=delta)
    assert pure.one_in(prior) >= k
    assert noise.one_in(prior, delta=delta) >= k
    with mp.workdps(60):
        q = mp.mpf(prior)

        def room(size):
            return -mp.log(mp.mpf(size) - 1) - logit(q)

        for value, exact, less in (
            (pure.guaranteed_epsilon, room(k), room(k * (1 + 1e-13))),
            (noise.mu, gaussian_mu(room(k), delta), gaussian_mu(room(k * (1 + 1e-13)), delta)),
        ):
            assert less * (1 - mp.mpf(TIGHT)) <= value <= exact


@settings(max_examples=100)
@given(SHARES, st.one_of(st.just(0.0), log_uniform(1e-300, 0.3)))
def test_epsilon_for_an_advantage(share, delta):
    advantage = between(delta, 1.0, share)
    guarantee = calibrate(EpsilonDelta, advantage=advantage, delta=delta)
    assert guarantee.advantage <= advantage
    assert_calibrated(
        guarantee.guaranteed_epsilon, lambda a: mp.log((1 + a - 2 * delta) / (1 - a)), advantage
    )


@settings(max_examples=100)
@given(SHARES, RATES, st.one_of(st.just(0.0), log_uniform(1e-300, 0.2)))
def test_epsilon_for_a_true_positive_rate(share, fpr, delta):
    tpr = between(fpr + delta, 1.0, share)
    limits = {"true_positive_rate": tpr, "false_positive_rate": fpr}
    guarantee = calibrate(EpsilonDelta, **limits, delta=delta)
    assert guarantee.true_positive_rate(fpr) <= tpr
    epsilon = guarantee.guaranteed_epsilon
    assert_calibrated(
        epsilon, lambda t: mp.log(1 + (t - delta - fpr) / min(mp.mpf(fpr), 1 - t)), tpr
    )
    theirs = analysis.get_epsilon_from_err_rates(delta, fpr, 1 - tpr)
    rest = min(tpr - delta - fpr, 1 - tpr)
    assert epsilon == pytest.approx(float(theirs), rel=1e-13, abs=1e-14 / rest + 1e-14 / fpr)


@settings(max_examples=150)
@given(PRIORS, SHARES, CHANCES)
def test_gaussian_noise_for_a_posterior(prior, share, delta):
    posterior = between(prior, 1.0, share)
    noise = calibrate(GaussianNoise, posterior=posterior, prior=prior, delta=delta)
    assert noise.posterior(prior, delta=delta) <= posterior
    assert_calibrated(
        noise.mu, lambda b: gaussian_mu(logit(b) - logit(mp.mpf(prior)), delta), posterior
    )
    # The probability with which it may be exceeded is δ unless it is given.
    named = calibrate(GaussianNoise, posterior=posterior, prior=prior, exceeded=delta)
    assert named == noise


@pytest.mark.parametrize("advantage", [1e-300, 1e-9, 0.2562, 0.9, 1 - 1e-9])
def test_gaussian_noise_for_an_advantage(advantage):
    noise = calibrate(GaussianNoise, advantage=advantage)
    assert noise.advantage <= advantage
    with mp.workdps(60):
        # In 60 digits too, and not by a millionth of a millionth more.
        assert mp.erf(mp.mpf(noise.mu) / mp.sqrt(8)) <= mp.mpf(advantage)
        more = mp.mpf(noise.mu) * (1 + mp.mpf(10) ** -12) + mp.mpf(10) ** -13 / (1 - advantage)
        assert mp.erf(more / mp.sqrt(8)) > mp.mpf(advantage)


@settings(max_examples=100)
@given(SHARES, RATES)
def test_gaussian_noise_for_a_true_positive_rate(share, fpr):
    tpr = between(fpr, 1.0, share)
    noise = calibrate(GaussianNoise, true_positive_rate=tpr, false_positive_rate=fpr)
    assert noise.true_positive_rate(fpr) <= tpr
    with mp.workdps(60):
        low, high = quantile(fpr), quantile(tpr)
        # Scores are rounded to a few roundings of themselves.
        felt = 1e-13 * (1 + abs(low) + abs(high)) + 1e-13 * (tpr / mp.npdf(high))
        assert high - low - felt <= noise.mu <= high - low


@pytest.mark.parametrize("epsilon", [0.0, 1e-8, 1e-3, 0.5, 3.0, 100.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-50, 1e-12, 1e-5, 0.01, 0.3, 0.9])
def test_gaussian_noise_for_epsilon_and_back(epsilon, delta):
    noise = calibrate(GaussianNoise, epsilon=epsilon, delta=delta)
    assert noise.keeps(epsilon, delta)
    assert not GaussianNoise(mu=noise.mu * (1 + 1e-10)).keeps(epsilon, delta)
    # ε(δ) is rounded up: it comes back, or a little less.
    assert noise.epsilon(delta) == pytest.approx(epsilon, rel=1e-9, abs=1e-9 * noise.mu)


def test_gaussian_noise_for_epsilon_in_many_digits():
    for epsilon, delta in ((1e-4, 1e-9), (1.0, 1e-5), (8.0, 1e-30)):
        mu = calibrate(GaussianNoise, epsilon=epsilon, delta=delta).mu
        with mp.workdps(80):
            e, m = mp.mpf(epsilon), mp.mpf(mu)

            def curve(m, e=e):
                return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)

            assert curve(m) <= mp.mpf(delta) < curve(m * (1 + mp.mpf(10) ** -10))


@settings(max_examples=50)
@given(PRIORS, SHARES, st.floats(0.0, 0.5))
def test_norm_laplace_noise_on_a_line(prior, share, delta):
    """d = 1: the loss is t with probability ½, and the advantage 1 − e^(−t/2)."""
    posterior = between(prior, 1.0, share)
    noise = calibrate(NormLaplaceNoise, posterior=posterior, prior=prior, delta=delta, dimension=1)
    assert noise.dimension == 1
    assert_calibrated(noise.separation, lambda b: logit(b) - logit(mp.mpf(prior)), posterior)
    noise = calibrate(NormLaplaceNoise, advantage=share, dimension=1)
    assert_calibrated(noise.separation, lambda a: -2 * mp.log(1 - a), share)


def test_norm_laplace_noise_in_more_dimensions():
    limits = {"posterior": 0.9, "prior": 0.2, "delta": 1e-3}
    separations = []
    for dimension in (1, 2, 20):
        noise = calibrate(NormLaplaceNoise, **limits, dimension=dimension)
        assert noise.posterior(0.2, delta=1e-3) <= 0.9
        more = NormLaplaceNoise(separation=noise.separation * (1 + 1e-9), dimension=dimension)
        assert more.posterior(0.2, delta=1e-3) > 0.9
        separations.append(noise.separation)
    assert separations == sorted(separations)
    # Pure ε is its largest loss.
    assert calibrate(NormLaplaceNoise, epsilon=0.7, dimension=5).separation == 0.7


def test_the_published_posterior_as_an_exact_figure():
    """ρ_β = 0.9, δ = 0.01: exact Gaussian noise needs less noise than the RDP route of D5.3."""
    noise = calibrate(GaussianNoise, posterior=0.9, delta=0.01)
    assert noise.mu > formulas.rdp_mu_from_belief(0.9, 0.01)
    assert noise.advantage == pytest.approx(0.3127, abs=1e-4)


# --------------------------------------------------------------------------- DP-SGD

RUN = {"steps": 200, "sampling_rate": 0.05}
GOALS = {
    "epsilon": (
        {"epsilon": 1.5, "delta": 1e-5},
        lambda guarantee: guarantee.epsilon(1e-5) <= 1.5,
    ),
    "posterior": (
        {"posterior": 0.9, "delta": 1e-4, "prior": 0.3},
        lambda guarantee: guarantee.posterior(0.3, delta=1e-4) <= 0.9,
    ),
    "one_in": (
        {"one_in": 11.0, "prior": 0.01, "delta": 1e-3},
        lambda guarantee: guarantee.one_in(0.01, delta=1e-3) >= 11,
    ),
    "advantage": ({"advantage": 0.1}, lambda guarantee: guarantee.advantage <= 0.1),
    "true_positive_rate": (
        {"true_positive_rate": 0.05, "false_positive_rate": 0.01},
        lambda guarantee: guarantee.true_positive_rate(0.01) <= 0.05,
    ),
}


@pytest.mark.parametrize("name", GOALS)
def test_dpsgd_has_the_least_noise_that_keeps_the_goal(name):
    goal, keeps = GOALS[name]
    run = calibrate(DPSGD, **goal, **RUN)
    assert type(run) is DPSGD
    assert (run.steps, run.sampling_rate) == (200, 0.05)
    assert keeps(run)
    assert not keeps(DPSGD(noise_multiplier=run.noise_multiplier * (1 - 1e-3), **RUN))


def test_replacing_needs_more_noise():
    removed = calibrate(DPSGD, advantage=0.2, **RUN)
    replaced = calibrate(DPSGD, advantage=0.2, relation="replace", **RUN)
    assert replaced.relation is Neighbouring.REPLACE
    assert replaced.noise_multiplier > 1.5 * removed.noise_multiplier
    assert replaced.advantage <= 0.2


def test_dpsgd_without_sampling_is_gaussian_noise():
    for goal in (
        {"epsilon": 1.0, "delta": 1e-6},
        {"advantage": 0.1},
        {"true_positive_rate": 0.1, "false_positive_rate": 0.02},
    ):
        run, noise = calibrate(DPSGD, **goal, steps=25), calibrate(GaussianNoise, **goal)
        assert run.noise_multiplier == pytest.approx(5 / noise.mu, rel=1e-9)
    goal = {"posterior": 0.9, "delta": 1e-5}
    single = calibrate(DPSGD, **goal)
    assert single.posterior(delta=1e-5) == pytest.approx(0.9, rel=1e-9)
    # Steps may react to those before them, and need more noise than one release of their √Σμ².
    assert calibrate(DPSGD, **goal, steps=25).noise_multiplier > 5 * single.noise_multiplier


def test_riskcal_agrees():
    """To its tolerance of 1e-3 in the advantage, at a grid of 1e-3."""
    theirs = find_noise_multiplier_for_advantage(
        advantage=0.1, sample_rate=0.05, num_steps=200, grid_step=1e-3
    )
    assert DPSGD(noise_multiplier=theirs, **RUN).advantage == pytest.approx(0.1, abs=1e-3)
    ours = calibrate(DPSGD, advantage=0.1, **RUN)
    assert ours.noise_multiplier == pytest.approx(theirs, rel=1e-3)


def test_a_row_that_is_hardly_ever_sampled_needs_no_noise():
    """It is revealed with a chance of 1e-8, which the goal allows: the least noise there is."""
    run = calibrate(DPSGD, posterior=0.9, delta=1e-3, sampling_rate=1e-8)
    assert run.noise_multiplier == 1e-4
    assert run.posterior(delta=1e-3) < 0.501


# --------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        (EpsilonDelta, {}, "no goal given"),
        (EpsilonDelta, {"posterior": 0.9, "advantage": 0.1}, "posterior and advantage given"),
        (Composition, {"posterior": 0.9}, "Composition has no parameter"),
        (EpsilonDelta, {"posterior": 0.5}, "the prior"),
        (EpsilonDelta, {"posterior": 1.0}, "the prior"),
        (EpsilonDelta, {"posterior": 0.1, "prior": 0.2}, "the prior"),
        (EpsilonDelta, {"posterior": 0.9, "delta": 1e-5}, "exceeded=2"),
        (EpsilonDelta, {"posterior": 0.9, "delta": 1e-5, "exceeded": 1e-5}, "exceeded=2"),
        (
            EpsilonDelta,
            {"posterior": 0.51, "delta": 0.1, "exceeded": 0.2},
            "no epsilon .* keeps this goal",
        ),
        (EpsilonDelta, {"posterior": 0.5 + 2e-16}, "allow a little more"),
        (EpsilonDelta, {"one_in": 10.0, "prior": 0.1}, "1/prior = 10"),
        (EpsilonDelta, {"one_in": 1.0, "prior": 0.1}, "certainty"),
        (EpsilonDelta, {"advantage": 0.1, "delta": 0.1}, "must lie strictly between 0.1"),
        (
            EpsilonDelta,
            {"true_positive_rate": 0.2, "false_positive_rate": 0.1, "delta": 0.1},
            "must lie strictly between 0.2",
        ),
        (GaussianNoise, {"posterior": 0.9}, "needs a delta"),
        (GaussianNoise, {"epsilon": 1.0}, "needs a delta"),
        (GaussianNoise, {"epsilon": math.inf, "delta": 0.1}, "must be finite"),
        (
            GaussianNoise,
            {"true_positive_rate": 0.1, "false_positive_rate": 0.1},
            "must lie strictly between 0.1",
        ),
        (DPSGD, {"advantage": 1e-12, "steps": 10**6}, "no noise_multiplier"),
        (DPSGD, {"one_in": 200.0, "prior": 0.01, "delta": 1e-5}, "one_in=200.0"),
        (DPSGD, {"advantage": 0.1, "steps": 0}, "steps"),
        (DPSGD, {"advantage": 0.1, "sampling_rate": 1.5}, "sampling_rate"),
    ],
)
def test_refusals_state_the_reason(family, options, words):
    with pytest.raises(InvalidInput, match=words):
        calibrate(family, **options)
