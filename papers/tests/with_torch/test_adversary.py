"""The strong adversary: beliefs by brute force, the advantage against what noise allows."""

import math
import re

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm
from torch import nn

import evidence
from dpsgd.naive import gradient, load, log_normal
from expost.errors import ConvergenceError, InvalidInput
from expost.risk import GaussianNoise, calibrate
from expost.types import Neighbouring
from papers.d53.adversary import prepare_pair, strong_adversary
from parameters import refuse_nan

CLIP, SIGMA, STEPS, ROW = 1.3, 2.0, 3, 2
CHANCE = 1e-4


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()


def data(rows=6):
    rng = np.random.default_rng(3)
    return 3 * rng.normal(size=(rows, 4)), rng.integers(2, size=rows)


OTHER = (np.array([5.0, -4.0, 3.0, 1.0]), 1)
CASES = pytest.mark.parametrize(
    ("candidate", "sensitivity"),
    [(None, "global"), (None, "local"), (OTHER, "global"), (OTHER, "local")],
    ids=["remove-global", "remove-local", "replace-global", "replace-local"],
)


def experiment(module=None, **options):
    X, y = data()
    given = {
        "row": ROW,
        "trainings": 4,
        "noise_multiplier": SIGMA,
        "clip": CLIP,
        "learning_rate": 0.3,
        "steps": STEPS,
        "random_state": 1,
        "workers": 1,
    }
    return strong_adversary(network() if module is None else module, X, y, **given | options)


def naive(seed, with_row, candidate, sensitivity, adam):
    """One training by plain autograd and torch.optim; both worlds' densities in full."""
    rng = np.random.default_rng(seed)
    X, y = data()
    module = network()
    worlds = {
        True: list(zip(X, y, strict=True)),
        False: [pair for index, pair in enumerate(zip(X, y, strict=True)) if index != ROW],
    }
    if candidate is not None:
        worlds[False].append(candidate)
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).requires_grad_()
    optimizer = (torch.optim.Adam if adam else torch.optim.SGD)([theta], lr=0.3)
    losses, total = [], 0.0
    for _ in range(STEPS):
        now = load(module, theta.detach())
        sums = {
            world: np.sum(
                [
                    gradient(
                        now, nn.functional.cross_entropy, torch.tensor(x), torch.tensor(t), CLIP
                    )
                    for x, t in rows
                ],
                axis=0,
            )
            for world, rows in worlds.items()
        }
        reach = CLIP if candidate is None else 2 * CLIP
        if sensitivity == "local":
            reach = np.linalg.norm(sums[True] - sums[False])
        noisy = sums[with_row] + rng.standard_normal(len(theta)) * SIGMA * reach
        total += log_normal(noisy, sums[True], SIGMA * reach)
        total -= log_normal(noisy, sums[False], SIGMA * reach)
        losses.append(total)
        theta.grad = torch.tensor(noisy) / len(X)
        optimizer.step()
    return losses


@CASES
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_losses_are_those_of_brute_force(candidate, sensitivity, optimizer):
    played = experiment(candidate=candidate, sensitivity=sensitivity, optimizer=optimizer)
    assert played.truth.tolist() == [True, False, True, False]
    for number, world in enumerate(played.truth):
        seed = np.random.SeedSequence(1, spawn_key=(number,))
        expected = naive(seed, world, candidate, sensitivity, optimizer == "adam")
        np.testing.assert_allclose(played.losses[number], expected, rtol=0, atol=1e-9)
    reach = 1 if candidate is None else 2
    if sensitivity == "global":
        np.testing.assert_allclose(played.scales, SIGMA * CLIP * reach)
        assert np.all(played.lengths <= CLIP * reach)
        assert np.all(played.separations <= played.guarantee.mu * (1 + 1e-12))
    else:
        np.testing.assert_allclose(played.scales, SIGMA * played.lengths)
        np.testing.assert_allclose(played.separations, played.guarantee.mu)
    expected = Neighbouring.REMOVE if candidate is None else Neighbouring.REPLACE
    assert played.relation is expected


def test_more_blocks_than_one_give_the_same(monkeypatch):
    whole = experiment(candidate=OTHER, sensitivity="local")
    monkeypatch.setattr("expost.torch.gradients._BLOCK_ENTRIES", 1)
    single = experiment(candidate=OTHER, sensitivity="local")
    np.testing.assert_allclose(single.losses, whole.losses, atol=1e-12)


def points():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8, 2)), rng.integers(2, size=8)
    X[ROW] *= 9
    return X, y


def near():
    """Return a close candidate of the row's label: the noise is made for far more than that."""
    X, y = points()
    return X[ROW] + np.array([2.0, -2.0]), y[ROW]


def line(**options):
    """Logistic regression on two columns, two steps: trainings that cost next to nothing.

    Intervals are wide, so that one fails by chance at one seed in a thousand.
    """
    torch.manual_seed(0)
    X, y = points()
    given = {
        "confidence": 0.999,
        "row": ROW,
        "trainings": 400,
        "noise_multiplier": 1.0,
        "clip": 1.0,
        "learning_rate": 0.5,
        "steps": 2,
        "random_state": 6,
        "workers": 1,
    }
    return strong_adversary(nn.Linear(2, 2).double(), X, y, **given | options)


def check_against_bound(played):
    """Never above what noise allows; at local sensitivity the bound itself, and no other."""
    bound = played.analytic_advantage
    assert bound == pytest.approx(2 * norm.cdf(math.sqrt(2) / 2) - 1)
    assert played.advantage.low <= bound
    assert played.believed_advantage.low <= bound * 1.001
    assert played.passed.low <= played.analytic_passed
    assert played.attack().mu() <= played.guarantee.mu
    for threshold in (0.0, None):
        assert played.epsilon_lower_bound(1e-3, threshold=threshold) <= played.guarantee.epsilon(
            1e-3
        )
    if not played.is_local:
        return
    assert played.advantage.low <= bound <= played.advantage.high
    wide = played.believed_advantage.high - played.believed_advantage.low
    assert abs(played.believed_advantage.value - bound) < wide
    for counted, believed in ((0.4, 1 / 1.4), (2.0, 1.4)):
        wrong, other = (
            2 * norm.cdf(factor * played.guarantee.mu / 2) - 1 for factor in (counted, believed)
        )
        assert not played.advantage.low <= wrong <= played.advantage.high
        assert not played.believed_advantage.low <= other <= played.believed_advantage.high
    # The loss in favour of the truth is N(μ²/2, μ²), which rejects μ × 1.2.
    scores = np.where(played.truth, played.losses[:, -1], -played.losses[:, -1])
    mu = played.guarantee.mu
    assert kstest(scores, norm(mu**2 / 2, mu).cdf).pvalue > CHANCE
    wrong = 1.2 * mu
    assert kstest(scores, norm(wrong**2 / 2, wrong).cdf).pvalue < CHANCE * 100
    assert played.epsilon_lower_bound(1e-3) > 0.5


@pytest.mark.parametrize("candidate", [None, near()], ids=["remove", "replace"])
def test_at_local_sensitivity_the_bound_is_reached(candidate):
    check_against_bound(line(candidate=candidate, sensitivity="local"))


def test_at_global_sensitivity_it_is_not_passed():
    played = line(candidate=near(), trainings=200)
    check_against_bound(played)
    # Here the gradients do not use what the noise is made for, and both ways of counting see it.
    assert np.max(played.separations) < 0.8 * played.guarantee.mu
    assert played.believed_advantage.high < played.analytic_advantage
    typical = 2 * norm.cdf(np.mean(played.separations) / 2) - 1
    assert played.believed_advantage.low <= typical <= played.believed_advantage.high


def test_figures_follow_from_the_losses():
    played = line(trainings=60, belief=0.6)
    final = played.losses[:, -1]
    belief = 1 / (1 + np.exp(-np.where(played.truth, final, -final)))
    np.testing.assert_allclose(played.beliefs[:, -1], belief)
    assert played.advantage.value == pytest.approx(2 * np.mean((final > 0) == played.truth) - 1)
    assert played.believed_advantage.value == pytest.approx(np.mean(np.abs(2 * belief - 1)))
    assert played.passed.hits == np.count_nonzero(belief > 0.6)
    mu = played.guarantee.mu
    assert played.analytic_passed == pytest.approx(norm.sf(math.log(0.6 / 0.4), mu**2 / 2, mu))
    assert played.attack(1.0).true.hits == np.count_nonzero(final[played.truth] > 1.0)
    text = str(played)
    assert f"{math.ceil(1000 * played.analytic_advantage) / 1000:.3f}" in text
    assert "60 trainings of 2 steps" in text
    assert repr(played).startswith("Experiment(60 trainings, remove, global")


def test_noise_for_a_belief_lets_it_pass_as_often_as_was_allowed():
    sigma = math.sqrt(STEPS) / calibrate(GaussianNoise, posterior=0.9, delta=0.01).mu
    played = experiment(noise_multiplier=sigma, trainings=2)
    assert played.analytic_passed == pytest.approx(0.01, rel=1e-6)
    less = experiment(noise_multiplier=sigma / 1.1, trainings=2)
    assert less.analytic_passed > 0.015


def test_fresh_trainings_start_from_new_parameters_and_accuracies_are_measured():
    X, y = data()
    fixed, fresh = (experiment(fresh=new, test=(X, y), trainings=6) for new in (False, True))
    assert np.ptp(fixed.lengths[:, 0]) == 0
    assert np.ptp(fresh.lengths[:, 0]) > 0
    assert np.all((fixed.accuracies >= 0) & (fixed.accuracies <= 1))
    assert np.all(np.isnan(experiment().accuracies))
    # The module that was passed, and torch's own generator, are as they were.
    torch.manual_seed(9)
    before = torch.rand(3)
    torch.manual_seed(9)
    module = network()
    torch.manual_seed(9)
    experiment(module, fresh=True)
    assert torch.equal(torch.rand(3), before)
    for mine, its in zip(module.parameters(), network().parameters(), strict=True):
        assert torch.equal(mine, its)


def test_the_accuracy_is_that_of_the_trained_module():
    X = data()[0]
    y = (X[:, 0] > 0).astype(np.int64)
    pair = prepare_pair(
        network(),
        X,
        y,
        row=ROW,
        candidate=None,
        noise_multiplier=1e-3,
        clip=10.0,
        learning_rate=2.0,
        steps=60,
        loss=nn.functional.cross_entropy,
        sensitivity="global",
        optimizer="sgd",
        fresh=False,
        test=(X, y),
    )
    assert pair.run(np.random.SeedSequence(0), True).accuracy == 1.0


def test_workers_and_interruptions_change_nothing(tmp_path):
    calm = line(trainings=24)

    def stop(done, total):
        if done >= 8:
            raise KeyboardInterrupt

    file = tmp_path / "trainings.npz"
    with pytest.raises(KeyboardInterrupt):
        line(trainings=24, checkpoint=file, progress=stop)
    # Two processes go on from what one has left.
    resumed = line(trainings=24, checkpoint=file, workers=2)
    for name in ("losses", "lengths", "scales", "truth"):
        assert np.array_equal(getattr(resumed, name), getattr(calm, name)), name
    for change in ({"learning_rate": 0.4}, {"clip": 1.1}, {"row": 3}, {"candidate": near()}):
        with pytest.raises(InvalidInput, match="other data, settings"):
            line(trainings=24, checkpoint=file, **change)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"row": 6}, "row=6"),
        ({"trainings": 1}, "trainings=1"),
        ({"sensitivity": "some"}, "sensitivity='some'"),
        ({"optimizer": "lion"}, "optimizer='lion'"),
        ({"candidate": (np.zeros(3), 1)}, "candidate: must be shaped"),
        ({"candidate": np.zeros(4)}, "candidate: must be a pair"),
        ({"module": nn.BatchNorm1d(4)}, "torch.nn.GroupNorm"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_before_any_work(options, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        experiment(**options, progress=lambda done, total: pytest.fail("work was begun"))


def test_parameters_are_checked():
    X, y = data()
    numbers = {"noise_multiplier": SIGMA, "clip": CLIP, "learning_rate": 0.3, "steps": STEPS}
    given = {"module": network(), "X": X, "y": y, "row": ROW, "trainings": 4, **numbers}
    names = {"belief", "confidence", "workers", "random_state", *numbers}
    assert names <= set(refuse_nan(strong_adversary, given))


def test_worlds_that_do_not_differ_have_no_local_sensitivity():
    X, y = data()
    with pytest.raises(ConvergenceError, match="would be 0; use 'global'"):
        experiment(candidate=(X[ROW], y[ROW]), sensitivity="local")
    same = experiment(candidate=(X[ROW], y[ROW]))
    assert np.all(same.losses == 0)


@pytest.mark.long
def test_thousands_of_trainings():
    figures = {}
    for name, options in (
        ("remove, local", {"sensitivity": "local"}),
        ("replace, local", {"sensitivity": "local", "candidate": near()}),
        ("remove, global", {}),
        ("replace, global", {"candidate": near()}),
    ):
        played = line(trainings=4000, random_state=11, workers=None, **options)
        check_against_bound(played)
        figures[name] = {
            "advantage": [played.advantage.low, played.advantage.value, played.advantage.high],
            "believed": [
                played.believed_advantage.low,
                played.believed_advantage.value,
                played.believed_advantage.high,
            ],
            "analytic": played.analytic_advantage,
            "median_mu": float(np.median(played.separations)),
            "promised_mu": played.guarantee.mu,
            "epsilon_shown_at_0.001": played.epsilon_lower_bound(1e-3),
            "epsilon_shown_by_a_chosen_threshold": played.epsilon_lower_bound(1e-3, threshold=None),
            "epsilon_promised_at_0.001": played.guarantee.epsilon(1e-3),
            "passed": played.passed.value,
            "passed_at_most": played.analytic_passed,
        }
    evidence.record(
        "strong-adversary",
        command="pytest -m long papers/tests/with_torch/test_adversary.py",
        seed=11,
        figures={"trainings": 4000, "cases": figures},
    )
