"""Lower bounds from one training whose coins are not fair: brute force, known ε, and shift."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import expit, logit

import evidence
from expost._counts import Share
from expost.auditing import one_run
from expost.auditing.one_run import Guesses, Priors, count_law, epsilon_lower_bound, p_value
from expost.errors import InvalidInput


def worlds(count):
    return np.array(list(itertools.product([True, False], repeat=count)))


def delta_of(mechanism, epsilon, count):
    """The δ of a mechanism at ε, over all pairs of worlds that differ in one membership."""
    pairs = [
        (a, b)
        for a, first in enumerate(worlds(count))
        for b, two in enumerate(worlds(count))
        if np.sum(first != two) == 1
    ]
    slope = math.exp(epsilon)
    return max(float(np.maximum(mechanism[a] - slope * mechanism[b], 0).sum()) for a, b in pairs)


def naive_law(probabilities):
    law = np.ones(1)
    for probability in probabilities:
        law = np.convolve(law, [1 - probability, probability])
    return law


def random_mechanisms(rng, count):
    for concentration in (0.1, 1.0, 10.0):
        yield rng.dirichlet(np.full(8, concentration), size=2**count)
    for epsilon, revealed in ((0.5, 0.0), (1.0, 0.05), (2.0, 0.3)):
        agree = (worlds(count)[:, None] == worlds(count)[None]).sum(axis=2)
        q = expit(epsilon)
        response = q**agree * (1 - q) ** (count - agree)
        yield (1 - revealed) * response + revealed * np.eye(2**count)


def best_guesses(mechanism, prior, count, amount, one_sided):
    """For each output, the ``amount`` guesses that are most likely right: (outputs, count) of ±1, 0."""
    joint = prior[:, None] * mechanism
    inside = (worlds(count).T @ joint) / joint.sum(axis=0)
    guesses = np.zeros((mechanism.shape[1], count), dtype=int)
    for output, posterior in enumerate(inside.T):
        sure = posterior if one_sided else np.maximum(posterior, 1 - posterior)
        for canary in np.argsort(-sure, kind="stable")[:amount]:
            guesses[output, canary] = 1 if one_sided or posterior[canary] >= 0.5 else -1
    return guesses


def test_the_law_of_a_count():
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 7, 64, 100):
        probabilities = rng.random(count)
        np.testing.assert_allclose(count_law(probabilities), naive_law(probabilities), atol=1e-14)
    many = rng.random(3000)
    law = count_law(many)
    assert law.sum() == pytest.approx(1, abs=1e-11)
    assert law @ np.arange(3001) == pytest.approx(many.sum(), rel=1e-11)


def test_no_small_mechanism_passes_the_bound():
    """P(p-value ≤ a) ≤ a, summed over all worlds, outputs and guesses of small mechanisms."""
    rng = np.random.default_rng(1)
    checked, tight = 0, 0
    for count in (2, 3):
        for mechanism in random_mechanisms(rng, count):
            propensity = rng.uniform(0.1, 0.9, count)
            prior = np.prod(np.where(worlds(count), propensity, 1 - propensity), axis=1)
            for amount, one_sided in itertools.product(range(1, count + 1), (False, True)):
                guesses = best_guesses(mechanism, prior, count, amount, one_sided)
                for epsilon in (0.0, 0.5, 1.5):
                    delta = delta_of(mechanism, epsilon, count)
                    values, weights = [], []
                    for output, guess in enumerate(guesses):
                        odds = np.where(guess > 0, logit(propensity), -logit(propensity))
                        priors = Priors(guessed=odds[guess != 0], propensity=propensity)
                        for world, chance in enumerate(prior):
                            right = int(np.sum(guess * np.where(worlds(count)[world], 1, -1) > 0))
                            told = Guesses(right, amount, count, one_sided, priors)
                            values.append(p_value(told, epsilon, delta))
                            weights.append(chance * mechanism[world, output])
                    for level in set(values):
                        if level < 1:
                            reached = sum(
                                weight
                                for value, weight in zip(values, weights, strict=True)
                                if value <= level
                            )
                            assert reached <= level + 1e-9
                            checked += 1
                            tight += reached > 0.9 * level
    assert checked > 300
    assert tight > 10


def test_without_delta_it_is_the_law_of_the_count():
    """At δ = 0 the bound is the tail of coins with odds e^ε·o, which randomised response reaches."""
    rng = np.random.default_rng(2)
    odds = rng.normal(size=40)
    priors = Priors(guessed=odds, propensity=expit(odds))
    for right in (1, 20, 35, 40):
        computed = p_value(Guesses(right, 40, 40, False, priors), 0.7, 0.0)
        assert computed == pytest.approx(naive_law(expit(odds + 0.7))[right:].sum(), abs=1e-8)


def responses(rng, propensity, epsilon, *, posterior=False):
    """Randomised response about each membership: ε exactly; the scores may use the propensity."""
    truth = rng.random(len(propensity)) < propensity
    shown = np.where(rng.random(len(truth)) < expit(epsilon), truth, ~truth)
    score = np.where(shown, 1.0, -1.0) * epsilon
    if posterior:
        score = score + logit(propensity)
    return score + 0.01 * rng.random(len(truth)), truth


def sometimes_all(rng, propensity, delta):
    """(0, δ)-private: all memberships with probability δ, else nothing but the propensity."""
    truth = rng.random(len(propensity)) < propensity
    revealed = rng.random() < delta
    score = truth + 0.0 if revealed else propensity
    return score + 1e-3 * rng.random(len(truth)), truth


def test_fair_coins_are_the_present_bound():
    rng = np.random.default_rng(3)
    score, truth = responses(rng, np.full(400, 0.5), 1.0)
    for delta in (0.0, 1e-5, 1e-3):
        plain = epsilon_lower_bound(score, truth, coins=True, delta=delta)
        for propensity in (0.5, np.full(400, 0.5)):
            same = epsilon_lower_bound(score, truth, coins=True, delta=delta, propensity=propensity)
            assert same == plain
    # By the other formula it is nearly so: both are proved, (5) is sharper.
    for right in (280, 300):
        fair = Guesses(right, 400, 400)
        general = fair._replace(priors=Priors(guessed=np.zeros(400), propensity=np.full(400, 0.5)))
        assert p_value(general, 0.5, 0.0) == pytest.approx(p_value(fair, 0.5, 0.0), abs=2e-9)
        cost = p_value(general, 0.5, 1e-4) - p_value(general, 0.5, 0.0)
        sharp = p_value(fair, 0.5, 1e-4) - p_value(fair, 0.5, 0.0)
        assert sharp <= cost <= 40 * sharp + 1e-2


def test_shift_alone_proves_nothing():
    """The propensity as a score, without any model: fair coins would "prove" a large ε."""
    rng = np.random.default_rng(4)
    propensity = expit(rng.normal(scale=1.5, size=2000))
    truth = rng.random(2000) < propensity
    honest = epsilon_lower_bound(propensity, truth, coins=True, propensity=propensity)
    naive = epsilon_lower_bound(propensity, truth, coins=True)
    assert honest.epsilon == 0
    assert naive.epsilon > 1


def test_rows_without_a_choice_are_no_canaries():
    rng = np.random.default_rng(5)
    propensity = np.repeat([0.0, 0.01, 0.5, 1.0], 100)
    truth = rng.random(400) < propensity
    score = truth + 0.1 * rng.random(400)
    bound = epsilon_lower_bound(score, truth, coins=True, propensity=propensity)
    assert "about 100 rows" in bound.detail
    void = epsilon_lower_bound(score, truth, coins=True, propensity=np.where(truth, 0.99, 0.01))
    assert (void.epsilon, void.most) == (0, 0)
    for wrong in (1.5, -0.1, np.nan, [0.5] * 399, "0.5"):
        with pytest.raises(InvalidInput, match="propensity"):
            epsilon_lower_bound(score, truth, coins=True, propensity=wrong)


def test_the_bound_grows_with_what_is_revealed():
    rng = np.random.default_rng(6)
    propensity = expit(rng.normal(size=3000))
    bounds = []
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        score, truth = responses(rng, propensity, epsilon)
        bound = epsilon_lower_bound(score, truth, coins=True, propensity=propensity, delta=1e-6)
        assert bound.epsilon <= epsilon
        assert bound.epsilon <= bound.most
        bounds.append(bound.epsilon)
    assert bounds == sorted(bounds)
    assert bounds[-2] > 1.6


GAMES = {
    "response, fair": (lambda rng, p: responses(rng, p, 1.0), 0.0, 1.0),
    "response, shift": (lambda rng, p: responses(rng, p, 1.0), 1.0, 1.0),
    "response with the propensity, shift": (
        lambda rng, p: responses(rng, p, 1.0, posterior=True),
        1.0,
        1.0,
    ),
    "response, strong shift": (lambda rng, p: responses(rng, p, 0.5, posterior=True), 2.0, 0.5),
    "no model, shift": (lambda rng, p: responses(rng, p, 0.0, posterior=True), 1.0, 0.0),
    "all with probability delta, shift": (lambda rng, p: sometimes_all(rng, p, 0.02), 1.0, 0.0),
}
ROWS, CONFIDENCE = 400, 0.9


def audits(name, count, seed):
    """How often the bound with the true, and with fair, propensities passes ε; and their means."""
    game, spread, epsilon = GAMES[name]
    delta = 0.02 if "delta" in name else 1e-6
    rng = np.random.default_rng(seed)
    propensity = expit(rng.normal(scale=spread, size=ROWS)) if spread else np.full(ROWS, 0.5)
    known, fair = [], []
    for _ in range(count):
        score, truth = game(rng, propensity)
        options = {"coins": True, "delta": delta, "confidence": CONFIDENCE}
        known.append(epsilon_lower_bound(score, truth, propensity=propensity, **options).epsilon)
        fair.append(epsilon_lower_bound(score, truth, **options).epsilon)
    return np.array(known), np.array(fair), epsilon


@pytest.mark.parametrize("name", GAMES)
def test_bounds_are_rarely_wrong(name):
    known, fair, epsilon = audits(name, 60, 7)
    # 60 audits pass 16 times or more with probability 1e-4 if they are wrong in a tenth.
    assert np.sum(known > epsilon) <= 15
    if "no model" in name:
        # Power: fair coins are the wrong hypothesis, and are nearly always refuted.
        assert np.mean(fair > epsilon) > 0.9


@pytest.mark.long
def test_how_often_the_bounds_are_wrong():
    figures = {}
    for number, name in enumerate(GAMES):
        known, fair, epsilon = audits(name, 1000, 100 + number)
        wrong = Share(hits=int(np.sum(known > epsilon)), trials=1000, confidence=0.999)
        assert wrong.low <= 1 - CONFIDENCE
        figures[name] = {
            "epsilon": epsilon,
            "wrong_with_true_propensities": float(np.mean(known > epsilon)),
            "wrong_with_fair_coins": float(np.mean(fair > epsilon)),
            "mean_bound_true_propensities": float(known.mean()),
            "mean_bound_fair_coins": float(fair.mean()),
        }
    assert figures["no model, shift"]["wrong_with_fair_coins"] > 0.9
    assert figures["response, fair"]["mean_bound_true_propensities"] == pytest.approx(
        figures["response, fair"]["mean_bound_fair_coins"]
    )
    evidence.record(
        "audit-zero-run",
        command="pytest -m long tests/auditing/test_propensity.py",
        seed=100,
        figures={
            "audits": 1000,
            "rows": ROWS,
            "confidence": CONFIDENCE,
            "games": figures,
        },
    )


def test_guesses_name_their_priors():
    rng = np.random.default_rng(8)
    propensity = rng.uniform(0.2, 0.8, 200)
    score = rng.random(200)
    truth = rng.random(200) < propensity
    order = np.argsort(-score)
    both = one_run.make_guesses(score, truth, 0, propensity)[1]
    np.testing.assert_allclose(
        both.priors.guessed,
        np.concatenate([logit(propensity[order[:50]]), -logit(propensity[order[-50:]])]),
    )
