"""LeBlond under objective perturbation: the models are minimisers, and the claim can fail."""

import math
from dataclasses import replace

import numpy as np
import pytest

from expost.epsilon.sweep import Pair
from expost.noise import NormLaplace
from papers.common.claims import Verdict
from papers.leblond import points
from papers.leblond.objective import (
    ObjectiveTransition,
    draw_objective_samples,
    measure_objective,
    objective_claim,
    objective_exhibit,
    similarity,
)
from papers.leblond.setting import normalised_rows

from .conftest import small_adult

SEED = np.random.SeedSequence(4)


@pytest.fixture(scope="module")
def rows():
    return normalised_rows(small_adult().rows("train"))


@pytest.fixture(scope="module")
def drawn(rows):
    """Figure 1 and its default."""
    return (
        draw_objective_samples(*rows, np.random.SeedSequence(4)),
        draw_objective_samples(*rows, np.random.SeedSequence(4), penalty=1.0),
    )


def noises(penalty):
    """Return the noise of every model, (e, 51, 20, 2), by Chaudhuri et al.'s Algorithm 2."""
    rng = np.random.default_rng(np.random.SeedSequence(4))
    all_of_them = []
    for power in points.LOG_EPSILONS:
        left = 10.0**power - 2 * math.log(1 + 0.25 / penalty)
        assert left > 0
        law = NormLaplace(rate=left / 2, dimension=2)
        all_of_them.append(law.sample(51 * 20, rng).reshape(51, 20, 2))
    return np.array(all_of_them)


def pull(X, y, theta, penalty, b):
    """Return the gradient of Σ log(1 + e^(−y x·θ)) + (λ/2)∥θ∥² + b·θ, row by row."""
    total = penalty * theta + b
    for row, label in zip(X, y, strict=True):
        total = total - label * row / (1 + math.exp(label * float(row @ theta)))
    return float(np.linalg.norm(total))


@pytest.mark.parametrize(("index", "penalty"), [(0, 100.0), (1, 1.0)])
def test_every_model_minimises_its_own_objective(rows, drawn, index, penalty):
    X, y = rows[0][:100], rows[1][:100]
    samples, noise = drawn[index], noises(penalty)
    assert samples.base.shape == (9, 20, 2)
    assert samples.neighbours.shape == (9, 50, 20, 2)
    np.testing.assert_array_equal(samples.rows, np.arange(0, 100, 2))
    for power in (0, 3, 8):
        for model in (0, 19):
            b = noise[power, 0, model]
            assert pull(X, y, samples.base[power, model], penalty, b) < 1e-7
            for which in (0, 27, 49):
                kept = np.arange(100) != samples.rows[which]
                theta, b = samples.neighbours[power, which, model], noise[power, 1 + which, model]
                assert pull(X[kept], y[kept], theta, penalty, b) < 1e-7
                # Power: neither the row that was removed nor 1 % of the noise can be mistaken.
                assert pull(X, y, theta, penalty, b) > 1e-4
                assert pull(X[kept], y[kept], theta, penalty, 1.01 * b) > 2e-7


def test_neighbours_are_ordered_by_their_distance(rows, drawn):
    samples = drawn[0]
    # At ε = 10⁴ the noise is nothing beside the distances of far neighbours.
    far = np.linalg.norm(
        samples.neighbours[-1].mean(axis=1) - samples.base[-1].mean(axis=0), axis=1
    )
    order = np.argsort(samples.order)
    assert set(samples.order) == set(np.arange(50) / 49)
    assert np.argmax(far) == order[-1]
    assert np.corrcoef(np.argsort(np.argsort(far)), samples.order)[0, 1] > 0.99


def test_both_figures_are_alike_and_a_scaled_one_is_not(rows, drawn):
    output = points.draw_samples(*rows, SEED)
    size, apart = similarity(output, drawn[0])
    assert 1 <= size < 1.25
    assert 1 <= apart < 1.25
    assert similarity(output, output) == (1.0, 1.0)
    centre = output.base.mean(axis=1)[:, None, :]
    wider = replace(
        output,
        base=centre + 1.5 * (output.base - centre),
        neighbours=centre[:, None] + 1.5 * (output.neighbours - centre[:, None]),
    )
    assert similarity(output, wider) == pytest.approx((1.5, 1.5))
    assert similarity(wider, output) == pytest.approx((1.5, 1.5))
    # The default's models lie elsewhere altogether.
    assert min(similarity(output, drawn[1])) > 3


def curve(epsilons, middle):
    return 1 / (1 + (middle / epsilons) ** 1.5)


def transition(**options):
    """One in which objective and output perturbation agree."""
    epsilons, fine = np.geomspace(0.1, 1e5, 13), np.geomspace(1e-2, 1e6, 161)
    ranks = np.arange(1, 41) / 40
    given = {
        "rows": 40,
        "models": 20,
        "epsilons": epsilons,
        "objective": Pair(curve(epsilons, 5.0), curve(epsilons, 20.0)),
        "profile": np.tile(ranks, (13, 1)),
        "fine": fine,
        "output": Pair(curve(fine, 5.0), curve(fine, 20.0)),
        "output_profile": np.tile(ranks, (13, 1)),
        "low": 1.0,
        "high": 90.0,
        "similar": (1.1, 1.05),
    }
    return ObjectiveTransition(**(given | options))


def test_onset_and_end_are_where_the_curves_pass():
    measured = transition()
    for which, middle, level in ((measured.onsets, 5.0, 0.1), (measured.ends, 20.0, 0.9)):
        exact = middle * (level / (1 - level)) ** (1 / 1.5)
        assert which[1] == pytest.approx(exact, rel=0.01)
        assert which[0] == pytest.approx(exact, rel=0.15)


def steps(change):
    profile = transition().profile.copy()
    profile[change] *= 1.2
    return profile


@pytest.mark.parametrize(
    ("options", "failed"),
    [
        ({}, set()),
        ({"similar": (1.3, 1.0)}, {0}),
        ({"similar": (1.0, 1.3)}, {1}),
        (
            {
                "objective": Pair(
                    curve(transition().epsilons, 15.0), curve(transition().epsilons, 20.0)
                )
            },
            {2},
        ),
        (
            {
                "objective": Pair(
                    curve(transition().epsilons, 5.0), curve(transition().epsilons, 9.0)
                )
            },
            {3},
        ),
        ({"objective": Pair(np.full(13, np.nan), curve(transition().epsilons, 20.0))}, {2}),
        ({"profile": steps(0)}, {4}),
        ({"profile": steps(12)}, {5}),
        ({"profile": steps(6)}, set()),
    ],
)
def test_the_claim_is_decided_by_the_numbers(options, failed):
    claim = objective_claim(transition(**options))
    assert {k for k, check in enumerate(claim.checks) if not check.passed} == failed
    assert claim.verdict is (Verdict.PARTLY if failed else Verdict.HOLDS)


def test_the_lowest_twentieth_does_not_count():
    profile = transition().profile.copy()
    profile[0, :2] *= 3
    assert transition(profile=profile).changes[0] == 0
    profile[0, 2] *= 3
    assert transition(profile=profile).changes[0] > 0.5


def test_the_transition_of_a_small_table(setting, rows, drawn):
    samples = (points.draw_samples(*rows, SEED), drawn[0])
    measured = measure_objective(setting, samples, 40, np.random.SeedSequence(2))
    assert measured.rows == len(np.union1d(np.arange(0, 300, 16), [setting.farthest]))
    assert measured.profile.shape == measured.output_profile.shape == (13, measured.rows)
    # Pure ε bounds every exposure.
    assert np.all((measured.profile >= 0) & (measured.profile <= 1))
    assert np.all(np.diff(measured.profile, axis=1) >= 0)
    # From two-sided to one-sided, near output perturbation's exact curves.
    for sampled, exact in zip(measured.objective, measured.output, strict=True):
        there = np.interp(np.log(measured.epsilons), np.log(measured.fine), exact)
        # Small losses need few models, large ones are all of one sign; in between 40 say little.
        np.testing.assert_allclose(sampled[:3], there[:3], rtol=0.4)
        assert np.max(np.abs(sampled - 1.8 * there)[:3] / there[:3]) > 0.4
        np.testing.assert_allclose(sampled[6:], there[6:], atol=0.02)
    onset, exact_onset = measured.onsets
    assert onset / exact_onset == pytest.approx(1, abs=0.3)
    exhibit = objective_exhibit(measured)
    assert {stem: len(t.csv().splitlines()) for stem, t in exhibit.tables.items()} == {
        "objective": 1 + 13 + 161,
        "objective-profiles": 1 + 13 * measured.rows,
    }
    assert len(exhibit.draw().axes) == 2
