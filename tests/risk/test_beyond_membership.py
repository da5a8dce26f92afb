"""Re-identification, attribute inference and reconstruction: the bound against games that are played.

The theorem is checked by brute force on random finite mechanisms, the Gaussian bound by games of a
Bayes attacker, and every guarantee by a mechanism that reaches it.
"""

import json
import math
import re
from importlib.metadata import version

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from riskcal import analysis
from scipy.special import expit, logit, ndtr

import evidence
import expost
from expost.errors import InvalidInput
from expost.noise import GaussianLaw, NormLaplaceLaw
from expost.noise.rates import true_positive_rate_above
from expost.risk import DPSGD, Composition, EpsilonDelta, GaussianNoise, NormLaplaceNoise
from expost.risk.attacks import RISKS, baselines_of, gain_over

GUARANTEES = (
    EpsilonDelta(epsilon=1.0),
    EpsilonDelta(epsilon=0.5, delta=1e-3),
    GaussianNoise(mu=0.7),
    NormLaplaceNoise(separation=2.0, dimension=1),
    NormLaplaceNoise(separation=2.0, dimension=6),
    Composition(parts=(EpsilonDelta(epsilon=0.3),) * 4),
)
BASELINES = (1e-6, 1e-3, 0.1, 0.5, 0.9)


def bound(guarantee, baseline):
    attacks = expost.identifiability(guarantee, baseline=baseline).attacks
    assert [attack.risk.name for attack in attacks] == list(RISKS)
    values = {next(iter(attack.by.values())) for attack in attacks}
    assert len(values) == 1, "the same baseline has the same bound"
    return values.pop()


# --------------------------------------------------------------------------- the theorem


def pair_curve(pairs, alpha):
    """The least concave curve above the TPR of every test of every pair: inf e^x·α + max δ(x)."""
    directions = [*pairs, *((q, p) for p, q in pairs)]
    ratios = np.concatenate([np.geomspace(1e-4, 1e4, 801), *(p / q for p, q in directions)])
    deltas = np.max(
        [np.maximum(p - ratios[:, None] * q, 0.0).sum(axis=1) for p, q in directions], axis=0
    )
    return min(1.0, float(np.min(ratios * alpha + deltas)))


def one_curve(p, q, alpha):
    """The largest TPR at ``alpha`` of a test of P against Q, by Neyman and Pearson."""
    order = np.argsort(-p / q)
    points = (np.append(0.0, np.cumsum(each[order])) for each in (q, p))
    return float(np.interp(alpha, *points))


def games(rng, targets):
    """Which guesses are right: the target itself, its attribute, or what is close to it."""
    place = rng.normal(size=targets)
    yield np.eye(targets, dtype=bool)
    attribute = rng.integers(0, 2, size=targets)
    yield attribute[:, None] == np.arange(2)
    yield np.abs(place[:, None] - np.linspace(-2, 2, 9)) <= 0.7


def test_no_attack_on_a_finite_mechanism_passes_the_bound():
    """Every attack is enumerated: the best guess for each output, whatever the prior."""
    rng, close = np.random.default_rng(3), 0
    for _ in range(200):
        targets, outputs = rng.integers(2, 6), rng.integers(2, 7)
        without = rng.dirichlet(np.ones(outputs))
        released = rng.dirichlet(3 * np.ones(outputs), size=targets)
        prior = rng.dirichlet(np.ones(targets))
        for right in games(rng, targets):
            baseline = float(np.max(prior @ right))
            success = float(np.sum(np.max((prior[:, None] * released).T @ right, axis=1)))
            allowed = pair_curve([(row, without) for row in released], baseline)
            assert success <= allowed + 1e-12
            close += success > allowed - 0.1
    assert close > 100, "the bound is not vacuous"


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda each: each.describe())
@pytest.mark.parametrize("candidates", [2, 5, 100])
def test_a_mechanism_with_the_guarantee_reaches_the_bound(guarantee, candidates):
    """N outputs: the target's own with probability TPR(1/N), the others equally; 1/N without it."""
    baseline = 1 / candidates
    allowed = bound(guarantee, baseline)
    without = np.full(candidates, baseline)
    released = np.full((candidates, candidates), (1 - allowed) / (candidates - 1))
    np.fill_diagonal(released, allowed)
    for alpha in (1e-4, 0.01, 0.2, 0.5, 0.8, 0.99):
        kept = guarantee.true_positive_rate(alpha)
        assert one_curve(released[0], without, alpha) <= kept + 1e-9, "it keeps the guarantee"
        assert one_curve(without, released[0], alpha) <= kept + 1e-9, "in both directions"
    success = np.sum(np.max(released / candidates, axis=0))
    assert success == pytest.approx(allowed, rel=1e-12)


# --------------------------------------------------------------------------- Gaussian games


def play(centres, draws, rng):
    """The share of games that the Bayes attacker wins: which centre was the noise added to?"""
    target = rng.integers(0, len(centres), size=draws)
    seen = centres[target] + rng.normal(size=(draws, centres.shape[1]))
    evidence = seen @ centres.T - 0.5 * np.sum(centres**2, axis=1)
    return float(np.mean(np.argmax(evidence, axis=1) == target))


def test_two_candidates_on_both_sides_reach_the_gaussian_bound():
    """±μ against 0: the attacker is right with Φ(μ), the bound at ½. 3.3 standard errors: 0.1 %."""
    mu, draws = 0.8, 200_000
    won = play(np.array([[mu], [-mu]]), draws, np.random.default_rng(1))
    error = 3.3 * math.sqrt(0.25 / draws)
    allowed = bound(GaussianNoise(mu=mu), 0.5)
    assert allowed == pytest.approx(float(ndtr(mu)), rel=1e-12)
    assert abs(won - allowed) <= error
    assert won > bound(GaussianNoise(mu=0.9 * mu), 0.5) + error, "a tenth less μ is distinguished"


@pytest.mark.parametrize("candidates", [3, 10, 100])
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_candidates_in_all_directions_stay_below_the_gaussian_bound(candidates, mu):
    """N orthogonal candidates at distance μ: reconstruction by the nearest one."""
    draws = 50_000
    won = play(mu * np.eye(candidates), draws, np.random.default_rng(2))
    allowed = bound(GaussianNoise(mu=mu), 1 / candidates)
    error = 3.3 * math.sqrt(0.25 / draws)
    assert won <= allowed + error
    assert won > 1 / candidates + error, "the attacker learns something"


# --------------------------------------------------------------------------- riskcal


@pytest.mark.parametrize("baseline", BASELINES)
def test_agrees_with_riskcal(baseline):
    """1 − β of riskcal at the false-positive rate of the baseline."""
    for epsilon, delta in ((1.0, 0.0), (0.5, 1e-3)):
        theirs = 1 - analysis.get_beta_from_adp(epsilon, delta, baseline)
        ours = bound(EpsilonDelta(epsilon=epsilon, delta=delta), baseline)
        assert ours == pytest.approx(theirs, abs=4e-15)
    theirs = 1 - analysis.get_beta_from_gdp(0.7, baseline)
    assert bound(GaussianNoise(mu=0.7), baseline) == pytest.approx(theirs, abs=1e-13)


def test_agrees_with_riskcal_on_dpsgd():
    """Their grid of 1e-4, and a tolerance of 1e-3."""
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, sampling_prob=0.05, value_discretization_interval=1e-4
    ).self_compose(200)
    run = DPSGD(noise_multiplier=1.0, sampling_rate=0.05, steps=200)
    answer = expost.identifiability(run, delta=1e-5, baseline=0.01)
    reached = 1 - analysis.get_beta_from_pld(theirs, alpha=0.01)
    for attack in answer.attacks:
        assert attack.by["model"] == pytest.approx(reached, abs=1e-3)
        assert attack.by["model"] >= reached * (1 - 1e-6), "never less"
        gain = analysis.get_advantage_from_pld(theirs)
        assert attack.gain["model"] <= gain + 1e-3


@pytest.mark.long
def test_the_differences_to_riskcal_are_recorded():
    """The largest difference to riskcal over guarantees and baselines, for each of three kinds."""
    differences: dict[str, list[float]] = {"epsilon_delta": [], "gaussian": [], "dpsgd": []}
    for baseline in BASELINES:
        for epsilon in (0.1, 0.5, 1.0, 2.0, 5.0):
            for delta in (0.0, 1e-6, 1e-3):
                theirs = 1 - analysis.get_beta_from_adp(epsilon, delta, baseline)
                ours = bound(EpsilonDelta(epsilon=epsilon, delta=delta), baseline)
                differences["epsilon_delta"].append(ours - theirs)
        for mu in (0.1, 0.5, 0.7, 1.0, 3.0):
            theirs = 1 - analysis.get_beta_from_gdp(mu, baseline)
            differences["gaussian"].append(bound(GaussianNoise(mu=mu), baseline) - theirs)
    for noise, rate, steps in ((1.0, 0.05, 200), (1.1, 0.01, 1000), (2.0, 0.02, 500)):
        law = privacy_loss_distribution.from_gaussian_mechanism(
            noise, sampling_prob=rate, value_discretization_interval=1e-4
        ).self_compose(steps)
        run = DPSGD(noise_multiplier=noise, sampling_rate=rate, steps=steps)
        for baseline in BASELINES:
            theirs = 1 - analysis.get_beta_from_pld(law, alpha=baseline)
            differences["dpsgd"].append(run.true_positive_rate(baseline) - theirs)
    largest = {name: float(np.max(np.abs(each))) for name, each in differences.items()}
    assert largest["epsilon_delta"] < 4e-15
    assert largest["gaussian"] < 1e-13
    assert largest["dpsgd"] < 1e-3
    assert min(differences["dpsgd"]) > -1e-6, "never less"
    evidence.record(
        "risk-riskcal",
        command="pytest -m long tests/risk/test_beyond_membership.py",
        seed=None,
        figures={
            "riskcal": version("riskcal"),
            "baselines": list(BASELINES),
            "compared": {name: len(each) for name, each in differences.items()},
            "largest_difference": largest,
            "least_difference": {name: float(min(each)) for name, each in differences.items()},
        },
    )


# --------------------------------------------------------------------------- laws


@settings(max_examples=60)
@given(
    guarantee=st.sampled_from(GUARANTEES),
    first=st.floats(1e-9, 1 - 1e-9),
    second=st.floats(1e-9, 1 - 1e-9),
)
def test_laws_of_the_bound(guarantee, first, second):
    low, high = sorted((first, second))
    below, above = guarantee.true_positive_rate(low), guarantee.true_positive_rate(high)
    assert low <= below <= above <= 1
    assert gain_over(low, below) <= guarantee.advantage * (1 + 1e-9) + 1e-15
    assert low + gain_over(low, below) >= below * (1 - 1e-15), "the gain is rounded up"


def printed(text):
    """Return the number in '1 in 142', '0.7 %' or '95.2 in 100'."""
    match = re.search(r"([\d.,e-]+) in ([\d,^]+)|([\d.e-]+) %", text)
    if match[3]:
        return mpmath.mpf(match[3]) / 100
    of = match[2].replace(",", "")
    return mpmath.mpf(match[1].replace(",", "")) / mpmath.mpf(of.replace("10^", "1e"))


@settings(max_examples=150)
@given(
    guarantee=st.sampled_from(GUARANTEES),
    baseline=st.one_of(
        st.sampled_from([0.007, 1.5e-12, 1 / 3, 1 / 142, 0.001, 0.9999]), st.floats(1e-12, 0.9999)
    ),
)
def test_a_sentence_is_true_at_its_printed_numbers(guarantee, baseline):
    """The bound at the baseline that is printed, not at the one behind it."""
    attack = expost.identifiability(guarantee, baseline=baseline).attacks[0]
    before, after = attack.sentence.split(" before seeing ")
    stated = printed(before)
    assert stated == pytest.approx(baseline, rel=1e-15)
    if "always" in after:
        assert attack.by[next(iter(attack.by))] > 1 - 1e-6
        return
    reached = guarantee.true_positive_rate(float(stated))
    assert printed(after) >= reached * (1 - 1e-12)
    assert "at most <" not in after
    assert "at most fewer" not in after


@pytest.mark.parametrize("baseline", BASELINES)
def test_nothing_guaranteed_allows_everything(baseline):
    assert bound(EpsilonDelta(epsilon=math.inf), baseline) == 1
    assert bound(EpsilonDelta(epsilon=0.0), baseline) == pytest.approx(baseline, rel=1e-14)


# --------------------------------------------------------------------------- the answer


def test_each_risk_has_its_own_baseline():
    own = {"reconstruction": 1e-6, "attribute_inference": 0.5}
    answer = expost.identifiability(mu=1.0, delta=1e-5, baseline=own)
    assert {attack.risk.name: attack.baseline for attack in answer.attacks} == own
    fields = json.loads(answer.to_json())["attacks"]
    for attack in answer.attacks:
        written = fields[attack.risk.name]
        assert written["baseline"] == attack.baseline
        assert written["bound"] == dict(attack.by)
        assert written["gain"] == dict(attack.gain)
        expected = GaussianNoise(mu=1.0).true_positive_rate(attack.baseline)
        assert attack.by["gaussian"] == expected
        assert attack.by["any"] >= expected
    assert expost.identifiability(mu=1.0, delta=1e-5).attacks == ()


@pytest.mark.parametrize(
    "baseline", [0.0, 1.0, -0.1, math.nan, {}, {"membership": 0.1}, {"reconstruction": 1.0}]
)
def test_refuses_what_is_no_baseline(baseline):
    with pytest.raises(InvalidInput, match="baseline"):
        baselines_of(baseline)


# --------------------------------------------------------------------------- rows


@pytest.mark.parametrize("alpha", [1e-4, 0.01, 0.3, 0.9])
@pytest.mark.parametrize("dimension", [1, 2, 6, 30])
def test_rates_of_a_rows_law_are_those_of_its_guarantee(dimension, alpha):
    separation = np.array([0.0, 0.01, 0.5, 2.0, 6.0, np.inf])
    rates = true_positive_rate_above(
        NormLaplaceLaw(separation=separation, dimension=dimension), alpha
    )
    exact = [
        NormLaplaceNoise(separation=t, dimension=dimension).true_positive_rate(alpha)
        for t in separation.tolist()
    ]
    np.testing.assert_allclose(rates, exact, rtol=1e-6, atol=1e-8)
    assert np.all(rates >= np.array(exact) * (1 - 1e-10))
    gaussian = true_positive_rate_above(GaussianLaw(separation=separation), alpha)
    exact = [GaussianNoise(mu=mu).true_positive_rate(alpha) for mu in separation.tolist()]
    np.testing.assert_allclose(gaussian, exact, rtol=1e-6, atol=1e-8)
    assert np.all(gaussian >= np.array(exact) * (1 - 1e-10))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] + rng.normal(size=60) > 0).astype(int)
    return X / np.linalg.norm(X, axis=1).max(), y


@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_rows_of_a_profile(table, mechanism):
    """By the row's own law where there is one, else by the guarantee; the posterior is ex post."""
    X, y = table
    model = expost.PrivateLogisticRegression(
        epsilon=2.0, mechanism=mechanism, classes=[0, 1], data_norm=1.0, random_state=0
    ).fit(X, y)
    profile = expost.profile(model, X, y)
    rows = expost.identifiability(profile, baseline=0.01)
    allowed = rows.losses.guarantee.true_positive_rate(0.01)
    assert np.all(rows.attack_bound >= 0.01)
    assert np.all(rows.attack_bound <= allowed * (1 + 1e-9))
    assert rows.largest_attack_bound == np.max(rows.attack_bound)
    if rows.losses.law is None:
        assert np.all(rows.attack_bound == allowed)
    else:
        assert np.median(rows.attack_bound) < 0.9 * allowed, "most rows are bounded by less"
    np.testing.assert_allclose(
        rows.baseline_posterior, expit(logit(0.01) + rows.losses.high), rtol=1e-12
    )
    table_of_rows = rows.columns()
    assert {"attack_bound", "baseline_posterior"} <= table_of_rows.keys()
    assert "success of an attack from 1 %" in str(rows)
    plain = expost.identifiability(profile)
    assert "attack_bound" not in plain.columns()
    with pytest.raises(InvalidInput, match="baseline"):
        _ = plain.attack_bound
    with pytest.raises(InvalidInput, match="one number"):
        expost.identifiability(profile, baseline={"reconstruction": 0.1})
