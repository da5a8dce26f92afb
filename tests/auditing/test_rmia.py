"""RMIA against its definition: every row compared with every stranger."""

import math
from dataclasses import replace

import numpy as np
import pytest

from auditing.games import area_of, balanced, evidence, made_up
from expost.auditing.attacks.rmia import RmiaOffline, RmiaOnline


def sigmoid(phi):
    return 1 / (1 + math.exp(-float(phi)))


def ratios(made, attack, a):
    """p(x ∣ θ)/p(x) of rows and strangers."""
    rows, strangers = [], []
    for row, phi in enumerate(made.confidence):
        p = np.array([sigmoid(value) for value in made.references[:, row]])
        inner, outer = p[made.inside[:, row]], p[~made.inside[:, row]]
        if isinstance(attack, RmiaOnline):
            general = 0.5 * (inner.mean() + outer.mean())
        else:
            general = 0.5 * ((1 + a) * outer.mean() + (1 - a))
        rows.append(sigmoid(phi) / general)
    for row, phi in enumerate(made.population):
        outer = np.mean([sigmoid(value) for value in made.population_references[:, row]])
        strangers.append(sigmoid(phi) / (0.5 * ((1 + a) * outer + (1 - a))))
    return rows, strangers


def least_squares(made):
    p = 1 / (1 + np.exp(-made.references.astype(float)))
    inner = np.array([1 - p[made.inside[:, i], i].mean() for i in range(made.rows)])
    outer = np.array([1 - p[~made.inside[:, i], i].mean() for i in range(made.rows)])
    return float(np.linalg.lstsq(outer[:, None], inner, rcond=None)[0][0])


@pytest.mark.parametrize("gamma", [1.0, 2.0])
@pytest.mark.parametrize("kind", [RmiaOnline, RmiaOffline])
def test_scores_count_the_strangers_that_a_row_beats(kind, gamma):
    made, _ = made_up(1)
    attack = kind(gamma=gamma) if kind is RmiaOnline else kind(gamma=gamma, a=0.6)
    a = least_squares(made) if kind is RmiaOnline else 0.6
    assert 0 < a < 1
    scores = attack(made)
    rows, strangers = ratios(made, attack, a)
    for score, ratio in zip(scores, rows, strict=True):
        beaten = sum(ratio / stranger >= gamma for stranger in strangers)
        assert math.floor(score * (len(strangers) + 1)) == beaten
    # Ties of the count follow the ratio, so that the whole order does.
    assert np.array_equal(np.argsort(scores), np.argsort(rows))


@pytest.mark.parametrize("attack", [RmiaOnline(), RmiaOffline(a=0.3), RmiaOffline()])
def test_without_a_population_the_other_rows_stand_in(attack):
    made, _ = made_up(2)
    alone = replace(
        made,
        population=made.population[:0],
        population_labels=made.population_labels[:0],
        population_references=made.population_references[:, :0],
    )
    assert np.array_equal(np.argsort(attack(alone)), np.argsort(attack(made)))


def test_a_lift_past_1_is_1():
    """Models that fit the rows outside them better; and models that are certain of every row."""
    made, _ = made_up(1)
    turned = replace(made, inside=~made.inside)
    assert least_squares(turned) > 1
    certain = replace(made, references=np.full_like(made.references, 50.0))
    for given in (turned, certain):
        rows, strangers = ratios(given, RmiaOnline(), 1.0)
        for score, ratio in zip(RmiaOnline()(given), rows, strict=True):
            beaten = sum(ratio >= stranger for stranger in strangers)
            assert math.floor(score * (len(strangers) + 1)) == beaten


GRID = [step / 10 for step in range(11)]


def chosen(made):
    """The values of a that score as the attack does that chooses its own."""
    scores = RmiaOffline()(made)
    return [a for a in GRID if np.array_equal(RmiaOffline(a=a)(made), scores)]


def naive_choice(made):
    """The a by which the first four references are told from each other, all pairs compared."""
    p = 1 / (1 + np.exp(-made.references.astype(float)))
    areas = np.zeros(11)
    for model in range(4):
        rest = np.arange(made.models) != model
        for index, a in enumerate(GRID):
            ratio, truth = [], []
            for row in range(made.rows):
                outer = p[rest & ~made.inside[:, row], row]
                if len(outer):
                    ratio.append(p[model, row] / (0.5 * ((1 + a) * outer.mean() + (1 - a))))
                    truth.append(made.inside[model, row])
            areas[index] += area_of(np.array(ratio), np.array(truth))
    return areas


@pytest.mark.parametrize("seed", [4, 5])
def test_a_is_chosen_by_references_that_attack_each_other(seed):
    made, _ = made_up(seed, models=6)
    areas = naive_choice(made)
    (a,) = chosen(made)
    assert areas[GRID.index(a)] == pytest.approx(areas.max(), abs=1e-9)


def test_nothing_of_the_target_enters_the_choice():
    made, _ = made_up(6)
    other = replace(made, confidence=-made.confidence[::-1], population=-made.population)
    assert len(chosen(made)) == 1
    assert chosen(made) == chosen(other)


def test_models_that_lift_members_to_certainty_have_a_small_a():
    rng = np.random.default_rng(7)
    inside = balanced(rng, 8, 600)
    easy = rng.uniform(-4, 4, 600) + 0.3 * rng.normal(size=(9, 600))
    member = np.vstack([rng.random(600) < 0.5, inside])
    made = evidence(*(lambda phi: (phi[0], phi[1:]))(np.where(member, 6.0, easy)), inside)
    assert chosen(made)
    assert max(chosen(made)) <= 0.5


def test_one_reference_takes_the_default():
    made, _ = made_up(8, models=1, share=0.0)
    np.testing.assert_array_equal(RmiaOffline()(made), RmiaOffline(a=0.3)(made))
