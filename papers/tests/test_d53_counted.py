"""Counted attacks: against brute force and games with a known answer."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from expost._counts import Share
from expost.errors import InvalidInput
from papers.d53.counted import Attack, best_threshold


def test_an_attack_counts_and_refutes_by_hand():
    scores = [3.0, 2.0, 0.5, -1.0, 0.5, -2.0, -3.0]
    truth = [True, True, True, True, False, False, False]
    attack = Attack.at(scores, truth, 0.0, confidence=0.8)
    assert (attack.true.hits, attack.true.trials) == (3, 4)
    assert (attack.false.hits, attack.false.trials) == (1, 3)
    true, false = attack.limits
    assert true == pytest.approx(binomtest(3, 4).proportion_ci(0.8, method="exact").low)
    assert false == pytest.approx(binomtest(1, 3).proportion_ci(0.8, method="exact").high)
    sure = Attack(true=Share(hits=990, trials=1000), false=Share(hits=10, trials=1000))
    true, false = sure.limits
    assert sure.epsilon(0.0) == pytest.approx(math.log(true / false), rel=1e-12)
    assert sure.epsilon(0.1) == pytest.approx(
        max(math.log((true - 0.1) / false), math.log((1 - false - 0.1) / (1 - true)))
    )
    assert sure.mu() == pytest.approx(norm.ppf(true) - norm.ppf(false))
    # Rare errors of the other kind count as well.
    rare = Attack(true=Share(hits=1000, trials=1000), false=Share(hits=400, trials=1000))
    assert rare.epsilon(0.0) > 4 > math.log(1 / 0.37)
    nothing = Attack(true=Share(hits=5, trials=10), false=Share(hits=5, trials=10))
    assert nothing.epsilon(0.0) == nothing.mu() == 0


def test_what_is_refuted_is_seldom_true_and_something_is_refuted():
    # Randomised response is (ε, 0)-private with ε = 1 exactly.
    rng, epsilon, k = np.random.default_rng(4), 1.0, 2000
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    truth = np.arange(k) % 2 == 0
    epsilons = []
    for _ in range(200):
        answers = np.where(rng.random(k) < keep, truth, ~truth)
        epsilons.append(Attack.at(answers.astype(float), truth, 0.5).epsilon(0.0))
    assert np.mean(np.array(epsilons) > epsilon) <= 0.05
    assert np.mean(np.array(epsilons) > epsilon / 1.4) > 0.9


def test_a_threshold_is_chosen_where_it_refutes_most():
    rng = np.random.default_rng(0)
    truth = np.arange(4000) % 2 == 0
    # In one of twenty runs the row shows, far out; elsewhere it does not.
    scores = rng.normal(size=4000) + np.where(truth & (rng.random(4000) < 0.05), 8.0, 0.0)
    chosen = best_threshold(scores[:2000], truth[:2000], delta=1e-5, confidence=0.95)
    assert chosen > 2
    far = Attack.at(scores[2000:], truth[2000:], chosen).epsilon(1e-5)
    assert far > 1 > Attack.at(scores[2000:], truth[2000:], 0.0).epsilon(1e-5)


def test_wrong_counts_are_refused():
    for make, message in (
        (lambda: Attack.at([1.0, 2.0], [True, True]), "of either kind"),
        (lambda: Attack.at([1.0, math.nan], [True, False]), "NaN"),
        (lambda: Attack.at([1.0, 2.0], [True, False]).epsilon(1.0), "delta=1.0"),
    ):
        with pytest.raises(InvalidInput, match=message):
            make()
