"""The trainer as it is called: results, refusals, filters, and a planted outlier."""

import dataclasses
import doctest
import inspect

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.datasets import load_digits
from torch import nn

import expost.torch
from dpsgd import page
from dpsgd.laws import EXPECTATIONS, apart, deviation, run, sampled_losses, small
from dpsgd.naive import Recorder, losses
from evidence import record
from expost.errors import (
    ConvergenceError,
    InvalidInput,
    PrivacyLeakWarning,
    SeededReleaseWarning,
)
from expost.mechanisms.dpsgd import Adversary
from expost.risk import GaussianNoise
from expost.torch import train
from expost.torch.draws import SecureDraws, SeededDraws, draws_from
from expost.torch.training import prepare
from parameters import refuse_nan

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(8, 4)), RNG.integers(3, size=8)
PLAIN = {"noise_multiplier": 1.5, "clip": 1.0, "learning_rate": 0.5, "epochs": 2}


def net():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def test_a_run_from_the_system_is_a_profile():
    module = net()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    training = train(module, X, Y, **PLAIN)
    assert all(torch.equal(module.state_dict()[name], value) for name, value in before.items())
    assert not torch.equal(training.module.weight, module.weight)
    assert set(training.state_dict) == {"weight", "bias"}
    assert not training.is_simulation
    assert training.steps == 2
    profile = training.profile(ids=[f"p{i}" for i in range(8)])
    np.testing.assert_array_equal(profile.loss, training.losses)
    assert profile.key(3) == "p3"
    assert "1.5, clip 1, full batch, 2 steps, n=8" in str(profile)
    assert any("not in every run" in n for n in profile.notices)
    assert training.posteriors.shape == (2, 8)
    np.testing.assert_allclose(training.posteriors[-1], expit(training.losses), rtol=1e-6)
    np.testing.assert_allclose(profile.posterior, expit(training.losses))
    # Fresh noise each time, and none of it in what is shown.
    assert not np.array_equal(train(module, X, Y, **PLAIN).losses, training.losses)
    assert "simulation" not in repr(training)
    # Both are the worst case of a full batch.
    mu = np.sqrt(2) / 1.5
    assert training.guarantee.gaussian.mu == pytest.approx(mu, rel=1e-9)
    assert profile.worst_case == pytest.approx(training.guarantee.loss(1e-5), rel=1e-6)


def test_a_seeded_run_is_a_simulation_and_says_so():
    with pytest.warns(SeededReleaseWarning, match="use None"):
        first = train(net(), X, Y, random_state=3, **PLAIN)
    with pytest.warns(SeededReleaseWarning):
        two = train(net(), X, Y, random_state=np.random.default_rng(3), **PLAIN)
    np.testing.assert_array_equal(first.losses, two.losses)
    assert first.is_simulation
    assert "a simulation" in repr(first)
    assert any("seed" in notice for notice in first.profile().notices)


def test_local_sensitivity_guarantees_nothing():
    with pytest.warns(PrivacyLeakWarning, match="which is not private"):
        training = train(net(), X, Y, sensitivity="local", row=1, **PLAIN)
    assert training.guarantee is None
    profile = training.profile()
    assert profile.worst_case == np.inf
    assert profile.losses.guarantee is None
    assert any("local sensitivity" in notice for notice in profile.notices)
    with pytest.raises(InvalidInput, match="there is no epsilon"):
        training.individual_epsilon(1e-5)
    # The other rows' far law knows that their noise was not made for them.
    far = profile.losses.far_law.separation
    assert np.all(far >= profile.losses.law.separation - 1e-12)


def test_noise_of_local_sensitivity_does_not_vanish_in_silence():
    zero = prepare(
        nn.Linear(4, 3),
        np.zeros((3, 4)),
        np.zeros((3, 3)),
        loss=lambda outputs, targets: 0.0 * outputs.sum(),
        sensitivity="local",
        row=0,
        **PLAIN,
    )
    with pytest.raises(ConvergenceError, match="has become 0"):
        zero.run(SecureDraws())


def test_hidden_batches_every_kth_step():
    options = {"rows": 30, "rate": 0.15, "steps": 24, "adversary": "hidden-batches"}
    for relation in ("remove", "replace"):
        exact, _ = run(small(relation=relation, **options))
        rough, _ = run(small(relation=relation, every=6, **options))
        # The same draws: the same model.
        torch.testing.assert_close(rough.module[0].weight, exact.module[0].weight)
        low, high = rough.transcript.interval()
        assert np.all((low <= exact.losses) & (exact.losses <= high))
        assert not np.allclose(rough.losses, exact.losses, atol=0.01)
        # It is no idle interval: a twentieth of it would fail.
        middle, half = (low + high) / 2, (high - low) / 40
        assert np.any(np.abs(exact.losses - middle) > half)
        assert any("fails with probability 1e-06" in n for n in rough.profile().notices)
    assert rough.profile().losses.law is None


def test_batches_known_are_not_amplified():
    known, steps = run(small(rows=30, rate=0.15, steps=24))
    most = max(sum(row in step.batch for step in steps) for row in range(30))
    guarantee = known.profile().losses.guarantee
    assert guarantee.gaussian.mu == pytest.approx(np.sqrt(most) / 0.9, rel=1e-9)
    assert any("sampling does not protect" in n for n in known.profile().notices)


def test_an_epoch_is_as_many_steps_as_see_each_row_once():
    counts = []
    training = prepare(net(), X, Y, sampling_rate=0.25, **PLAIN | {"epochs": 3}).run(
        SecureDraws(), counts.append
    )
    assert len(counts) == training.steps == 12
    assert training.posteriors.shape == (3, 8)
    odd = prepare(net(), X, Y, sampling_rate=0.25, **PLAIN | {"epochs": None, "steps": 6})
    assert odd.run(SecureDraws()).posteriors.shape == (2, 8)


def test_an_empty_batch_is_a_step():
    recorder = Recorder()
    trainer = prepare(net(), X, Y, sampling_rate=0.01, **PLAIN | {"epochs": None, "steps": 5})
    training = trainer.run(SeededDraws(np.random.default_rng(1)), recorder)
    empty = [step for step in recorder.steps if len(step.batch) == 0]
    assert empty
    assert training.steps == 5
    assert all(torch.equal(step.noisy_sum, step.noise) for step in empty)
    np.testing.assert_allclose(training.losses, losses(trainer, recorder.steps), atol=1e-4)


class TestIndividualEpsilon:
    def test_without_a_filter_it_is_an_account(self):
        training, _ = run(small(rows=10, learning_rate=20.0, steps=12))
        epsilons = training.individual_epsilon(1e-5)
        mu = training.transcript.separation
        expected = [GaussianNoise(mu=m).epsilon(1e-5) for m in mu]
        np.testing.assert_allclose(epsilons.epsilon, expected, rtol=1e-6)
        assert np.all(epsilons.epsilon >= np.array(expected) * (1 - 1e-12))
        assert epsilons.worst_case == pytest.approx(training.guarantee.epsilon(1e-5), rel=1e-6)
        assert np.max(epsilons.epsilon) <= epsilons.worst_case
        assert np.min(epsilons.epsilon) < 0.9 * epsilons.worst_case
        assert not epsilons.filtered
        assert "Computed after the fact, not a guarantee" in str(epsilons)
        assert epsilons.audience.value == "curator-only"
        assert list(epsilons.to_frame()) == ["row", "epsilon"]
        assert "after the fact" in epsilons._repr_html_()

    def test_a_filter_guarantees(self):
        training, _ = run(small(rows=10, steps=12, norm_budget=2.0))
        epsilons = training.individual_epsilon(1e-5)
        guaranteed = GaussianNoise(mu=2.0 / (0.9 * 1.3)).epsilon(1e-5)
        assert epsilons.worst_case == pytest.approx(guaranteed, rel=1e-6)
        assert np.all(epsilons.epsilon <= guaranteed * (1 + 1e-9))
        assert epsilons.filtered
        assert "The filter guarantees" in str(epsilons)
        free, _ = run(small(rows=10, steps=12))
        assert free.individual_epsilon(1e-5).worst_case > guaranteed
        # A budget that no row reaches changes nothing.
        wide, _ = run(small(rows=10, steps=12, norm_budget=100.0))
        np.testing.assert_array_equal(wide.losses, free.losses)
        assert wide.guarantee == free.guarantee

    def test_where_it_is_not_known(self):
        sampled, _ = run(small(rate=0.5))
        with pytest.raises(InvalidInput, match="train with all rows in every batch"):
            sampled.individual_epsilon(1e-5)
        replaced, _ = run(small(relation="replace"))
        with pytest.raises(InvalidInput, match="relation='replace'"):
            replaced.individual_epsilon(1e-5)


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(nn.functional.dropout(x, 0.5))


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "use torch.nn.GroupNorm"),
        (nn.Sequential(nn.InstanceNorm1d(4), nn.Linear(4, 3)), "use torch.nn.GroupNorm"),
        (nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)), "dropout"),
        (Dropping(), "dropout"),
        (nn.Linear(4, 3).requires_grad_(False), "nothing to train"),
        (nn.Linear(4, 3).bfloat16(), "float32 or all float64"),
        ("a model", "pass a torch.nn.Module"),
    ],
)
def test_modules_without_gradients_of_single_rows_are_refused(module, match):
    with pytest.raises(InvalidInput, match=match):
        train(module, X, Y, **PLAIN)


def test_layers_that_do_not_train_are_let_through():
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)).eval()
    assert train(module, X, Y, **PLAIN).steps == 2


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epochs": None}, "exactly one"),
        ({"steps": 3}, "exactly one"),
        ({"relation": "add"}, "relation='add'"),
        ({"relation": "replace"}, "needs a pair"),
        ({"candidates": (X, Y)}, "takes none"),
        ({"relation": "replace", "candidates": (X[:3], Y[:3])}, "one for all"),
        ({"relation": "replace", "candidates": (X[:, :2], Y)}, "shaped as X"),
        ({"sensitivity": "both"}, "sensitivity"),
        ({"sensitivity": "local"}, "needs the number of the row"),
        ({"sensitivity": "local", "row": 8}, "from 0 to 7"),
        ({"row": 1}, "only sensitivity='local'"),
        ({"sensitivity": "local", "row": 1, "sampling_rate": 0.5}, "use the full batch"),
        ({"sensitivity": "local", "row": 1, "norm_budget": 1.0}, "sensitivity='global'"),
        ({"norm_budget": 1.0, "sampling_rate": 0.5}, "full batch"),
        ({"adversary": "blind"}, "adversary"),
        ({"every": 2}, "hidden-batches"),
        ({"every": 2, "adversary": "hidden-batches"}, "sampling_rate"),
        ({"dtype": torch.float16}, "dtype"),
        ({"random_state": "seed"}, "random_state"),
    ],
)
@pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
def test_what_makes_no_sense_is_refused(options, match):
    with pytest.raises(InvalidInput, match=match):
        train(net(), X, Y, **PLAIN | options)


def test_parameters_are_checked():
    given = {"module": net(), "X": X, "y": Y, **PLAIN}
    names = refuse_nan(prepare, given)
    assert {*PLAIN, "sampling_rate", "divisor", "norm_budget", "every", "row"} <= set(names)
    with pytest.raises(InvalidInput, match="sampling_rate"):
        prepare(**given, sampling_rate=1.5)


@pytest.mark.parametrize(
    ("rows", "labels", "match"),
    [
        (X, Y[:5], "as many labels"),
        (np.full((8, 4), np.nan), Y, "NaN"),
        (X[:0], Y[:0], "at least one"),
        ([["a"]], Y, "numbers"),
    ],
)
def test_tables_that_cannot_be_worked_with(rows, labels, match):
    with pytest.raises(InvalidInput, match=match) as error:
        train(net(), rows, labels, **PLAIN)
    assert str(X[0, 0]) not in str(error.value)


def test_a_run_that_diverges_is_refused():
    with pytest.raises(ConvergenceError, match="NaN or infinite"):
        train(net(), X, Y, loss=lambda o, t: torch.sqrt(-(o**2).sum()), **PLAIN)
    with pytest.raises(ConvergenceError, match="learning_rate"):
        train(net(), X, Y, **PLAIN | {"learning_rate": 1e300, "divisor": 1e-10})


def test_draws():
    assert isinstance(draws_from(None), SecureDraws)
    draws = SecureDraws()
    normals = draws.normals(20_000)
    assert abs(normals.mean()) < 0.04
    assert abs(normals.std() - 1) < 0.03
    assert not np.array_equal(normals, draws.normals(20_000))
    coins = draws.coins(20_000, 0.3)
    assert abs(coins.mean() - 0.3) < 0.02
    assert draws.coins(100, 1.0).all()


def test_results_are_frozen():
    training = train(net(), X, Y, **PLAIN)
    with pytest.raises(dataclasses.FrozenInstanceError):
        training.is_local = True
    before = training.losses
    before[0] = 99.0
    assert training.losses[0] != 99.0
    assert expost.torch.Adversary is Adversary


def test_the_last_model_alone():
    """(2) and (3) of docs/dp-sgd.md where θ_T is normal: ½(θ_i − x_i)², x_i replaced by 0."""
    rows, trainings, steps, rate, s = 300, 5, 4, 0.3, 2.0
    x = np.random.default_rng(2).uniform(0.5, 1.5, size=rows)
    start = nn.Linear(rows, 1, bias=False)
    nn.init.zeros_(start.weight)
    trainer = prepare(
        start,
        np.eye(rows),
        x[:, None],
        loss=lambda outputs, targets: 0.5 * ((outputs - targets) ** 2).sum(),
        relation="replace",
        candidates=(np.eye(rows), np.zeros((rows, 1))),
        noise_multiplier=s / 40.0,
        clip=20.0,
        learning_rate=rate,
        divisor=1.0,
        steps=steps,
        dtype=torch.float64,
    )
    runs = [trainer.run(SeededDraws(np.random.default_rng([0, k]))) for k in range(trainings)]
    last = np.concatenate([r.module.weight.detach().numpy().ravel() for r in runs])
    loss = np.concatenate([r.losses for r in runs])
    # θ ← (1 − α)θ + αx − αb
    mean = np.tile(x, trainings) * (1 - (1 - rate) ** steps)
    variance = (rate * s) ** 2 * sum((1 - rate) ** (2 * k) for k in range(steps))
    own = (2 * last * mean - mean**2) / (2 * variance)
    ratio = np.exp(own - loss)
    # E[e^(ℓ_T − ℓ) ∣ θ_T] = 1, whatever θ_T is.
    for some in (own > -9, own > np.median(own), own < np.median(own)):
        error = ratio[some].std() / np.sqrt(np.count_nonzero(some))
        assert abs(ratio[some].mean() - 1) < 4.5 * error
        assert abs(np.exp(own - 1.2 * loss)[some].mean() - 1) > error
        assert own[some].mean() < loss[some].mean()
    # On average, not in every run.
    assert 0.2 < np.mean(own > loss) < 0.5


def test_the_page_runs():
    block = page.example("from expost.torch import train\n")
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest(block, {}, "dp-sgd.md", str(page.PAGE), 0))
    assert runner.summarize(verbose=False) == (0, 14)


def planted(row: int, seed: int, *, rows: int, steps: int, sigma: float):
    """The rank of a digit with a wrong label among all exposures, from one run; 0 the first."""
    images, labels = load_digits(return_X_y=True)
    images, labels = images[:rows] / 16, labels[:rows].copy()
    labels[row] = (labels[row] + 5) % 10
    torch.manual_seed(seed)
    trainer = prepare(
        nn.Linear(64, 10),
        images,
        labels,
        noise_multiplier=sigma,
        clip=6.0,
        learning_rate=1.0,
        steps=steps,
    )
    profile = trainer.run(SeededDraws(np.random.default_rng(seed))).profile()
    return int(np.flatnonzero(profile.ranking == row)[0])


def test_a_mislabelled_digit_is_among_the_most_exposed():
    assert planted(27, 2, rows=1000, steps=50, sigma=0.5) < 10


@pytest.mark.long
def test_record_mislabelled_digits():
    rows = np.random.default_rng(1).choice(1797, size=20, replace=False).tolist()
    ranks = [planted(row, seed, rows=1797, steps=150, sigma=0.5) for seed, row in enumerate(rows)]
    inside = sum(rank < 1797 / 100 for rank in ranks)
    record(
        "dpsgd-outliers",
        command="pytest -m long tests/with_torch/test_trainer.py",
        seed=1,
        figures={
            "planted": len(rows),
            "in_the_top_hundredth": inside,
            "ranks": ranks,
            "rows": 1797,
        },
    )
    assert inside >= 18


@pytest.mark.long
def test_record_the_law_of_the_loss():
    """E[e^(−loss)] = 1 also where rows share every parameter."""
    figures = {}
    for name, (more, trainings) in EXPECTATIONS.items():
        loss, widest = sampled_losses(apart(400, **more), 5 * trainings, seed=1)
        figures[name] = _figures(loss, widest)
    shared = small(rows=6, steps=3, noise_multiplier=1.8, learning_rate=3.0)
    loss, widest = sampled_losses(shared, 8_000, seed=1)
    by_row = loss.reshape(-1, 6)
    figures["shared parameters"] = _figures(by_row, widest) | {
        "rows": [deviation(column) for column in by_row.T]
    }
    record(
        "dpsgd-law",
        command="pytest -m long tests/with_torch/test_trainer.py",
        seed=1,
        figures=figures | {"torch": torch.__version__},
    )
    for figure in figures.values():
        assert figure["largest_mu"] <= 1.0
        assert abs(figure["standard_errors"]) < 4.5
        assert figure["standard_errors_at_1.2"] > 4.5
    assert max(map(abs, figures["shared parameters"]["rows"])) < 4.5


def _figures(loss, widest):
    return {
        "losses": loss.size,
        "largest_mu": widest,
        "mean": float(np.exp(-loss).mean()),
        "standard_errors": deviation(loss),
        "standard_errors_at_1.2": deviation(1.2 * loss),
    }


def test_the_options_are_declared_once_and_shown_by_help():
    shown, declared = (inspect.signature(function).parameters for function in (train, prepare))
    assert [*shown] == [*declared, "random_state", "on_step"]
    assert all(shown[name] == parameter for name, parameter in declared.items())
    assert shown["clip"].default is inspect.Parameter.empty
    with pytest.raises(TypeError, match="clop"):
        train(torch.nn.Linear(1, 2), [[0.0]], [0], clop=1.0)
