"""Lower bounds from many trainings: exact counts over small laws, and repeated audits."""

import itertools
import json
import math
from functools import cache

import numpy as np
import pytest
from mpmath import mp
from scipy.stats import beta, binom

from auditing import known_mechanisms as known
from evidence import record
from expost._counts import Share
from expost.auditing import one_run
from expost.auditing.lower_bounds import (
    LowerBound,
    epsilon_lower_bound,
    epsilon_of_mu,
    epsilon_of_rates,
    least_rate,
)
from expost.errors import InvalidInput
from expost.risk import GaussianNoise
from papers.d53.counted import Attack


def lower_limit(hits, trials, miss):
    """Clopper and Pearson's one-sided limit."""
    return 0.0 if hits == 0 else float(beta.ppf(miss, hits, trials - hits + 1))


def law_of_sum(probabilities):
    law = np.ones(1)
    for p in probabilities:
        law = np.convolve(law, [1 - p, p])
    return law


def missed(limit, probabilities, miss):
    """The probability that the limit passes the mean of the probabilities."""
    trials, mean = len(probabilities), float(np.mean(probabilities))
    law = law_of_sum(probabilities)
    return sum(p for hits, p in enumerate(law) if limit(hits, trials, miss) > mean)


def test_limits_hold_for_trials_that_differ():
    rng = np.random.default_rng(1)
    for miss in (0.025, 0.1, 0.25):
        for trials in (1, 2, 5, 12):
            for _ in range(60):
                odds = rng.beta(*rng.choice([0.05, 0.3, 1.0, 3.0], 2), size=trials)
                odds *= rng.choice([1.0, 0.1, miss / max(odds.sum(), 1e-12)])
                odds = np.minimum(odds, 1)
                assert missed(least_rate, odds, miss) <= miss * (1 + 1e-9)


def test_a_single_hit_is_likelier_when_trials_differ():
    """Where Clopper and Pearson's limit, meant for equal trials, is too good: by miss²/2."""
    miss, trials = 0.1, 20
    total = trials * lower_limit(1, trials, miss) * 0.999
    one_of_them = np.zeros(trials)
    one_of_them[0] = total
    equal = np.full(trials, total / trials)
    assert missed(lower_limit, equal, miss) <= miss
    assert missed(lower_limit, one_of_them, miss) > 1.04 * miss
    assert missed(least_rate, one_of_them, miss) <= miss
    assert least_rate(1, trials, miss) == miss / trials
    assert least_rate(7, trials, miss) == pytest.approx(lower_limit(7, trials, miss), rel=1e-12)


@pytest.mark.parametrize(("models", "size"), [(5, 2), (7, 4), (8, 4)])
def test_hits_over_a_random_subset_are_a_sum_of_independent_trials(models, size):
    """The generating function has real zeros only; its mean is size times the mean of all."""
    odds = np.random.default_rng(models).beta(0.5, 0.5, size=models)
    chosen = list(itertools.combinations(range(models), size))
    law = np.mean([law_of_sum(odds[list(single)]) for single in chosen], axis=0)
    zeros = np.roots(law[::-1])
    assert np.max(np.abs(zeros.imag)) < 1e-6
    assert np.max(zeros.real) < 0
    independent = 1 / (1 - zeros.real)
    assert law_of_sum(independent) == pytest.approx(law, abs=1e-8)
    assert independent.sum() == pytest.approx(size * odds.mean())


def test_rates_prove_what_the_counted_attacks_do():
    true, false = Share(hits=300, trials=400), Share(hits=80, trials=500)
    attack = Attack(true=true, false=false)
    assert epsilon_of_rates(*attack.limits, 0.01) == pytest.approx(attack.epsilon(0.01), rel=1e-12)
    assert epsilon_of_rates(0.5, 0.5, 0.0) == 0
    assert epsilon_of_rates(0.0, 1.0, 0.0) == 0
    assert epsilon_of_rates(0.02, 0.01, 0.05) == 0
    assert epsilon_of_mu(0.0, 1e-5) == 0
    assert epsilon_of_mu(1.0, 1e-5) == pytest.approx(GaussianNoise(mu=1.0).epsilon(1e-5), rel=1e-11)
    assert epsilon_of_mu(1.0, 1e-5) < GaussianNoise(mu=1.0).epsilon(1e-5)


def test_counts_by_hand():
    """60 models: 20 choose; of 40, the one row that tells is separated without a mistake."""
    rng = np.random.default_rng(2)
    inside = known.subsets(rng, 60, 6)
    signals = rng.normal(size=(60, 6)).astype(np.float32)
    signals[:, 3] += 40 * inside[:, 3] - 20
    computed = epsilon_lower_bound(signals, inside, delta=0.0, confidence=0.9)
    with_row = int(inside[20:, 3].sum())
    low = lower_limit(with_row, with_row, 0.05)
    high = 1 - lower_limit(40 - with_row, 40 - with_row, 0.05)
    assert computed.epsilon == pytest.approx(
        max(math.log(low / high), math.log((1 - high) / (1 - low)))
    )
    assert computed.most == computed.epsilon
    assert f"{with_row} of {with_row} models with it and 0 of {40 - with_row}" in computed.detail
    # The sign of the signal does not matter, nor what is added to it.
    turned = epsilon_lower_bound(5 - signals, inside, delta=0.0, confidence=0.9)
    assert turned.epsilon == computed.epsilon


def test_the_counted_models_have_no_part_in_the_choice():
    """With the counted models' signals shuffled among them, the same row is asked about."""
    rng = np.random.default_rng(3)
    signals, inside = known.noisy_bits(rng, 90, 8, lambda size: rng.normal(size=size))
    signals[:, 5] += 3 * inside[:, 5]
    honest = epsilon_lower_bound(signals, inside)
    broken = signals.copy()
    broken[30:] = signals[30:][rng.permutation(60)]
    assert honest.epsilon > 0.5
    assert epsilon_lower_bound(broken, inside).epsilon == 0


def exceeded(audits, truth):
    return float(np.mean(np.asarray(audits) > truth))


def trainings(rng, audits, models, rows, *, confidence):
    """Share of audits above the truth, by mechanism, with the mean bound."""
    mu, delta = 1.5, 1e-5
    cases = {
        "randomised response, ε = 1": (
            lambda: known.responded_bits(rng, models, rows, 1.0),
            {"delta": 0.0},
            1.0,
        ),
        "Laplace noise, ε = 2": (
            lambda: known.noisy_bits(
                rng, models, rows, lambda size: rng.laplace(scale=0.5, size=size)
            ),
            {"delta": 0.0},
            2.0,
        ),
        "a count with Laplace noise, ε = 3": (
            lambda: known.counted_sums(rng, models, rows, 3.0),
            {"delta": 0.0},
            3.0,
        ),
        "Gaussian noise, μ = 1.5": (
            lambda: known.noisy_bits(
                rng, models, rows, lambda size: rng.normal(scale=1 / mu, size=size)
            ),
            {"delta": delta},
            GaussianNoise(mu=mu).epsilon(delta),
        ),
        "Gaussian noise, μ = 1.5, as such": (
            lambda: known.noisy_bits(
                rng, models, rows, lambda size: rng.normal(scale=1 / mu, size=size)
            ),
            {"delta": delta, "gaussian": True},
            GaussianNoise(mu=mu).epsilon(delta),
        ),
    }
    shown = {}
    for name, (draw, settings, truth) in cases.items():
        computed = [
            epsilon_lower_bound(*draw(), confidence=confidence, **settings).epsilon
            for _ in range(audits)
        ]
        shown[name] = {
            "true epsilon": truth,
            "share above it": exceeded(computed, truth),
            "mean bound": float(np.mean(computed)),
            "largest bound": float(np.max(computed)),
        }
    return shown


def test_bounds_pass_the_truth_no_more_often_than_they_may():
    """At 80 %; more than 21 of 60 have a chance of 1 in 400 where the share is 0.2."""
    shown = trainings(np.random.default_rng(5), 60, 60, 5, confidence=0.8)
    assert max(case["share above it"] for case in shown.values()) <= 21 / 60
    assert shown["randomised response, ε = 1"]["mean bound"] > 0.15
    assert shown["Gaussian noise, μ = 1.5, as such"]["mean bound"] > 1.5


def test_choosing_on_the_models_that_are_counted_would_be_wrong():
    """Trainings that tell nothing, ε = 0: the best of 100 rows and nine thresholds seems to."""
    rng = np.random.default_rng(6)

    @cache
    def proved(true, false):
        low, high = lower_limit(true, 24, 0.025), 1 - lower_limit(24 - false, 24, 0.025)
        return epsilon_of_rates(low, high, 0.0)

    honest, greedy = [], []
    for _ in range(40):
        inside = known.subsets(rng, 48, 100)
        signals = rng.normal(size=inside.shape)
        honest.append(epsilon_lower_bound(signals, inside, delta=0.0).epsilon)
        counts = [
            ((signals > t) & side).sum(axis=0)
            for t in np.linspace(-1, 1, 9)
            for side in (inside, ~inside)
        ]
        pairs = zip(np.concatenate(counts[::2]), np.concatenate(counts[1::2]), strict=True)
        greedy.append(max(proved(int(true), int(false)) for true, false in pairs))
    assert exceeded(honest, 0) <= 0.15
    assert exceeded(greedy, 0) > 0.5


def test_twice_the_epsilon_moves_the_bound():
    rng = np.random.default_rng(7)
    single, two = (
        [epsilon_lower_bound(*known.responded_bits(rng, 300, 3, e)).epsilon for _ in range(8)]
        for e in (1.0, 2.0)
    )
    assert np.mean(two) > 1.6 * np.mean(single) > 0
    assert max(single) < 1.0


def test_rows_of_one_model_are_refused():
    rng = np.random.default_rng(8)
    signals, inside = known.noisy_bits(rng, 1, 500, lambda size: rng.normal(size=size))
    with pytest.raises(InvalidInput, match=r"(?i)rows of one model share its noise"):
        epsilon_lower_bound(signals, inside)
    signals, inside = known.noisy_bits(rng, 20, 5, lambda size: rng.normal(size=size))
    one_kind = epsilon_lower_bound(signals, np.ones_like(inside))
    assert one_kind.epsilon == one_kind.most == 0
    assert "no row is in some" in one_kind.detail
    with pytest.raises(InvalidInput, match="bools"):
        epsilon_lower_bound(signals, inside.astype(int))
    with pytest.raises(InvalidInput, match="not finite"):
        epsilon_lower_bound(np.full_like(signals, np.nan), inside)
    # Also where only a model that is counted does not answer: that is no "without".
    silent = signals.copy()
    silent[-1] = np.nan
    with pytest.raises(InvalidInput, match="not finite"):
        epsilon_lower_bound(silent, inside)
    with pytest.raises(InvalidInput, match="delta"):
        epsilon_lower_bound(signals, inside, delta=-0.1)
    with pytest.raises(InvalidInput, match="at least"):
        epsilon_lower_bound(signals, inside, confidence=0.4)


@pytest.mark.parametrize(
    ("mu", "delta"), [(2.6e-5, 1e-5), (0.1, 0.01), (0.5, 0.1), (1.0, 0.3), (2.0, 1e-5), (5.0, 0.3)]
)
def test_epsilon_of_mu_is_rounded_down(mu, delta):
    """At what is returned the mechanism's δ is still at least the one asked for."""
    with mp.workdps(50):
        epsilon = mp.mpf(epsilon_of_mu(mu, delta))
        reached = mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
        assert reached >= delta
        assert reached <= delta * (1 + mp.mpf("1e-9"))
    assert epsilon_of_mu(mu, 1 - 2.0**-53) == 0


def test_constant_signals_prove_nothing():
    inside = known.subsets(np.random.default_rng(9), 40, 3)
    computed = epsilon_lower_bound(np.zeros((40, 3)), inside)
    assert computed.epsilon == 0


def test_a_bound_can_be_read_and_written():
    computed = LowerBound(
        epsilon=1.2399, delta=1e-5, confidence=0.95, method="So", detail="9 of 9", most=2.0
    )
    assert computed.value == computed.epsilon
    assert "at least 1.23 at" in str(computed)
    assert json.loads(json.dumps(computed.to_json(), allow_nan=False))["epsilon"] == 1.2399
    with pytest.raises(InvalidInput, match="epsilon"):
        LowerBound(
            epsilon=math.nan, delta=0.0, confidence=0.9, method="So", detail="0 of 9", most=2.0
        )


def one_training(rng, audits, canaries, *, confidence):
    """The same for one training a case; ``sharp`` reaches what (ε, δ) allows at one v."""
    mu, delta = 2.0, 1e-5
    at_mu = GaussianNoise(mu=mu).epsilon(delta)
    v = int(binom.isf(0.03, canaries, 0.731))
    cases = {
        "randomised response, ε = 1": (
            lambda: known.responses(rng, canaries, 1.0),
            {"delta": 0.0},
            1.0,
        ),
        "Laplace noise, ε = 2": (
            lambda: known.laplace(rng, canaries, 2.0),
            {"delta": 0.0},
            2.0,
        ),
        "all told with probability δ = 0.1, ε = 0": (
            lambda: known.all_or_nothing(rng, canaries, 0.1),
            {"delta": 0.1},
            0.0,
        ),
        "the worst mechanism of ε = 1, δ = 1e-3": (
            lambda: known.sharp(rng, canaries, v, 1.0, 1e-3),
            {"delta": 1e-3},
            1.0,
        ),
        "Gaussian sum, μ = 2": (
            lambda: known.gaussian_sums(rng, canaries, mu),
            {"delta": delta},
            at_mu,
        ),
        "Gaussian sum, μ = 2, as such": (
            lambda: known.gaussian_sums(rng, canaries, mu),
            {"delta": delta, "gaussian": True},
            at_mu,
        ),
        "Gaussian sum of overlapping canaries, μ = 2, as such": (
            lambda: known.gaussian_sums(rng, canaries, mu, dimensions=canaries // 2),
            {"delta": delta, "gaussian": True},
            at_mu,
        ),
    }
    shown = {}
    for name, (draw, settings, truth) in cases.items():
        computed = [
            one_run.epsilon_lower_bound(
                *draw(), coins=True, confidence=confidence, **settings
            ).epsilon
            for _ in range(audits)
        ]
        shown[name] = {
            "true epsilon": truth,
            "share above it": exceeded(computed, truth),
            "mean bound": float(np.mean(computed)),
            "largest bound": float(np.max(computed)),
        }
    return shown


@pytest.mark.long
def test_five_hundred_audits():
    """0.083 is passed once in 1,000 where 0.05 is the truth, twelve cases: 1 % false alarms."""
    seed, audits = 20261116, 500
    many = trainings(np.random.default_rng([seed, 0]), audits, 200, 10, confidence=0.95)
    single = one_training(np.random.default_rng([seed, 1]), audits, 200, confidence=0.95)
    record(
        "audit-lower-bounds",
        command="python -m pytest -m long tests/auditing/test_lower_bounds.py",
        seed=seed,
        figures={
            "audits": audits,
            "confidence": 0.95,
            "many trainings of one row (200 trainings, 10 rows)": many,
            "one training (200 canaries)": single,
        },
    )
    for case in (*many.values(), *single.values()):
        assert case["share above it"] <= 0.083
    assert many["randomised response, ε = 1"]["mean bound"] > 0.3
    assert single["randomised response, ε = 1"]["mean bound"] > 0.5
    plain, sharper = single["Gaussian sum, μ = 2"], single["Gaussian sum, μ = 2, as such"]
    assert sharper["mean bound"] > plain["mean bound"] > 0.5
