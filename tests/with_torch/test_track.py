"""Tracking a loop of Opacus: losses by brute force, and nothing about the training changes."""

import numpy as np
import pytest
import torch
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from scipy.special import expit
from sklearn.datasets import load_digits
from torch import nn

from dpsgd import page
from dpsgd.tracked import CLIP, HOOKS, SIGMA, Run
from expost.errors import ConvergenceError, InvalidInput
from expost.numbers import number
from expost.risk import DPSGD
from expost.torch.training import prepare

pytestmark = pytest.mark.filterwarnings(HOOKS)

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-9}
LOOPS = {
    "plain": {},
    "pieces": {"pieces": 2},
    "workers": {"workers": 2},
    "pieces and workers": {"pieces": 2, "workers": 2},
    "empty batches": {"batch_size": 1},
    "shuffled": {"poisson": False, "tracking": {"public_batches": True}},
    "full batch": {"batch_size": 12},
    "sums": {"private": {"loss_reduction": "mean", "grad_sample_mode": "ew"}},
    "by layer": {"private": {"clipping": "per_layer", "max_grad_norm": [0.5, 0.2, 1.0, 0.1]}},
}


def assert_losses(run, expected, tolerance):
    tracked = run.tracker.profile()
    assert np.max(np.abs(expected)) > 0.1
    np.testing.assert_allclose(tracked.loss, expected, rtol=0, atol=tolerance)
    # Rounding of the densities themselves aside.
    slack = 1e-5 if run.dtype is torch.float32 else 1e-12
    assert np.all(tracked.loss_low - slack <= expected)
    assert np.all(expected <= tracked.loss_high + slack)
    assert np.max(tracked.loss_high - tracked.loss_low) < (1e-3 if slack == 1e-5 else 1e-9)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("loop", LOOPS)
def test_losses_are_the_ratio_of_densities(loop, dtype):
    run = Run(dtype=dtype, **LOOPS[loop]).epochs()
    assert run.tracker.steps == len(run.noted) == 2 * len(run.loader)
    assert_losses(run, run.losses(), TOLERANCE[dtype])
    # It would have seen a scale that is 1 % off.
    assert np.max(np.abs(run.losses(stretch=1.01) - run.losses())) > 1e-3
    if loop == "empty batches":
        assert min(len(noted.batch) for noted in run.noted) == 0


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("loop", [{}, {"pieces": 3}], ids=str)
def test_hidden_batches(loop, dtype):
    run = Run(dtype=dtype, tracking={"adversary": "hidden-batches"}, **loop).epochs()
    assert_losses(run, run.losses(rate=1 / 3), TOLERANCE[dtype])
    known = run.losses()
    assert np.max(np.abs(run.tracker.profile().loss - known)) > 0.01
    assert "6 passes" in run.tracker.cost


@pytest.mark.parametrize("adversary", ["known-batches", "hidden-batches"])
@pytest.mark.parametrize(
    "loop",
    [
        {},
        {"pieces": 2},
        {"batch_size": 2},
        {"workers": 2},
        # Here workers draw batches between the pieces of a step.
        {"pieces": 2, "workers": 2, "separate": True},
        {"pieces": 2, "secure": True},
    ],
    ids=str,
)
def test_the_training_is_the_same_bit_for_bit(loop, adversary):
    tracked = Run(dtype=torch.float32, tracking={"adversary": adversary}, **loop).epochs()
    drawn = torch.get_rng_state()
    plain = Run(dtype=torch.float32, tracking=None, **loop).epochs()
    assert tracked.theta.tobytes() == plain.theta.tobytes()
    assert torch.equal(drawn, torch.get_rng_state())
    assert tracked.engine.accountant.history == plain.engine.accountant.history
    assert tracked.engine.accountant.history == [(SIGMA, 1 / len(plain.loader), len(plain.noted))]
    assert tracked.optimizer.noise_multiplier == SIGMA


def test_posteriors_after_each_epoch():
    run = Run()
    assert run.tracker.posteriors.shape == (0, 12)
    run.epochs(3)
    assert run.tracker.posteriors.shape == (3, 12)
    for epoch in range(3):
        steps = (epoch + 1) * len(run.loader)
        expected = expit(run.losses(upto=steps))
        np.testing.assert_allclose(run.tracker.posteriors[epoch], expected, atol=1e-6)
    run.tracker.detach()
    run.epochs(1)
    assert run.tracker.steps == 3 * len(run.loader)


@pytest.mark.parametrize("scheduler", [ExponentialNoise, ExponentialGradClip])
def test_schedules_of_noise_and_clipping(scheduler):
    run = Run()
    schedule = scheduler(run.optimizer, gamma=0.9)
    for _ in range(3):
        run.epochs(1)
        schedule.step()
    assert len({noted.scale for noted in run.noted}) == 3
    np.testing.assert_allclose(run.tracker.profile().loss, run.losses(), rtol=0, atol=1e-9)
    # What is guaranteed is what the least noise guarantees.
    least = 0.81 * SIGMA if scheduler is ExponentialNoise else SIGMA
    guarantee = DPSGD(noise_multiplier=least, sampling_rate=1 / 3, steps=9)
    assert run.tracker.guarantee().epsilon(1e-5) == pytest.approx(guarantee.epsilon(1e-5), rel=1e-6)


def test_the_guarantee_is_read_from_the_run():
    run = Run().epochs()
    guarantee = DPSGD(noise_multiplier=SIGMA, sampling_rate=1 / 3, steps=6)
    text = str(run.tracker)
    assert f"guarantees ε = {number(guarantee.epsilon(1e-5), 'up')} (δ = 10⁻⁵)" in text
    most = max(sum(row in noted.batch for noted in run.noted) for row in range(12))
    known = DPSGD(noise_multiplier=SIGMA, steps=most)
    profile = run.tracker.profile(ids=[f"p{i}" for i in range(12)], delta=1e-3)
    assert profile.worst_case == pytest.approx(known.loss(1e-3), rel=1e-6)
    assert profile.key(7) == "p7"
    assert f"noise multiplier {SIGMA}, clip {CLIP}" in profile.description
    assert any("at least as large on average" in notice for notice in profile.notices)
    assert any("secure_mode=False" in notice for notice in profile.notices)
    with pytest.raises(InvalidInput, match="sampling_rate"):
        run.tracker.individual_epsilon()
    assert repr(run.tracker) == "Tracker(12 rows, 6 steps)"
    assert "No step was made yet" in str(Run().tracker)
    with pytest.raises(InvalidInput, match="no step"):
        Run().tracker.guarantee()


def test_a_rows_own_epsilon_with_public_batches():
    run = Run(**LOOPS["shuffled"]).epochs()
    own = run.tracker.individual_epsilon(1e-5)
    assert np.all(own.epsilon <= run.tracker.guarantee().epsilon(1e-5) * (1 + 1e-9))
    assert "public batches" in run.tracker.description


def test_looking_at_every_kth_step_bounds_the_rest():
    exact = Run(tracking={"adversary": "hidden-batches"}).epochs(4)
    rare = Run(tracking={"adversary": "hidden-batches", "every": 3}).epochs(4)
    assert rare.theta.tobytes() == exact.theta.tobytes()
    profile = rare.tracker.profile()
    assert "4 passes" in rare.tracker.cost
    truth = exact.tracker.profile().loss
    assert np.all((profile.loss_low <= truth) & (truth <= profile.loss_high))
    assert np.max(np.abs(profile.loss - truth)) > 1e-3
    schedule = ExponentialNoise(rare.optimizer, gamma=0.9)
    schedule.step()
    with pytest.raises(InvalidInput, match=r"every=3: the noise multiplier changes"):
        rare.epochs(1)


def dropout():
    return nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.3), nn.Linear(4, 3))


def test_dropout_is_a_public_coin_or_refused():
    run = Run(make=dropout).epochs(1)
    assert run.tracker.steps == 3
    plain = Run(make=dropout, tracking=None).epochs(1)
    assert run.theta.tobytes() == plain.theta.tobytes()
    hidden = Run(make=dropout, tracking={"adversary": "hidden-batches"})
    with pytest.raises(InvalidInput, match="draws random numbers"):
        hidden.epochs(1)
    with pytest.raises(InvalidInput, match="could not be tracked"):
        hidden.tracker.profile()


def test_a_gradient_that_is_not_a_number_is_refused():
    run = Run()
    run.data.tensors[0][:, 0] = float("nan")
    with pytest.raises(ConvergenceError, match="NaN or infinite"):
        run.epochs(1)
    with pytest.raises(InvalidInput, match="could not be tracked"):
        run.tracker.posteriors.sum()


class Replayed:
    """The noise and the coins of a run of Opacus, once more."""

    def __init__(self, noise, coins):
        self._noise, self._coins = iter(noise), iter(coins)

    def normals(self, count):
        return next(self._noise)

    def coins(self, count, rate):
        return next(self._coins)


def test_digits_match_the_reference_trainer_with_the_same_noise():
    images, labels = load_digits(return_X_y=True)
    X, y = images[:120] / 16, labels[:120]

    def network():
        return nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))

    # The loss and C are large, so that the 1e-6 that Opacus adds to a gradient's length is not.
    options = {"rows": 120, "make": network, "given": (X, y), "weight": 1e3, "rate": 1e-3}
    run = Run(batch_size=24, private={"max_grad_norm": 1e3}, **options).epochs(3)
    noise, coins = [], []
    for noted in run.noted:
        total = run.gradients(noted)[noted.batch].sum(axis=0)
        noise.append((noted.published - total) / noted.scale)
        coins.append(np.isin(np.arange(120), noted.batch))
    torch.manual_seed(run.seed)
    trainer = prepare(
        network().double(),
        X,
        y,
        noise_multiplier=SIGMA,
        clip=1e3,
        learning_rate=1e-3,
        steps=len(run.noted),
        sampling_rate=0.2,
        divisor=run.optimizer.expected_batch_size,
        loss=lambda outputs, targets: 1e3 * nn.functional.cross_entropy(outputs, targets),
        dtype=torch.float64,
    )
    training = trainer.run(Replayed(noise, coins))
    tracked, expected = run.tracker.profile(), training.profile()
    np.testing.assert_allclose(tracked.loss, expected.loss, rtol=0, atol=1e-6)
    np.testing.assert_allclose(tracked.expected, expected.expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(tracked.ranking, expected.ranking)
    assert tracked.worst_case == pytest.approx(expected.worst_case)
    assert np.max(expected.exposure) > 3


@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
def test_the_page_runs():
    assert page.run(page.example("load_digits(return_X_y=True)\n>>> X, y = torch")) > 30
