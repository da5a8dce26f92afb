"""The divisor and the sampling rate of a tracked run, and what they make of the number of rows."""

import warnings

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import expost.torch
from dpsgd.tracked import CLIP, HOOKS, SIGMA, Run, quiet
from expost.errors import InvalidInput, PrivacyLeakWarning
from expost.mechanisms.row_count import NoisyCount, RowCount, divisor_loss
from expost.report import document_of
from expost.risk import DPSGD

pytestmark = pytest.mark.filterwarnings(HOOKS)


def made(rows, batch_size, **options):
    """A model, its private optimizer and its loader."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(rows, 5), torch.randint(3, (rows,)))
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    return (options.pop("engine", None) or quiet(PrivacyEngine)).make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=options.pop("data_loader", None) or DataLoader(data, batch_size=batch_size),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        **options,
    )


@pytest.mark.parametrize("rows", [600, 601, 659])
def test_constants_that_make_private_computes_are_reported_and_warned_of(rows):
    model, optimizer, loader = made(rows, 60)
    with pytest.warns(PrivacyLeakWarning, match="row_count='public'"):
        tracker = expost.torch.track(optimizer, loader)
    scaling = tracker.scaling
    batches = -(-rows // 60)
    assert scaling.divisor == optimizer.expected_batch_size == rows // batches
    assert scaling.sampling_rate == 1 / batches
    d = sum(p.numel() for p in model.parameters())
    assert scaling.loss == divisor_loss(d, scaling.divisor, scaling.neighbour_divisor)
    assert any("divisor" in notice for notice in tracker.notices)


def divisor_of(rows, size, drop_last, poisson):
    """(k, m) of a loader, m as make_private computes it; (0, 0) where it cannot."""
    data = TensorDataset(torch.zeros(rows, 5), torch.zeros(rows, dtype=torch.int64))
    loader = DataLoader(data, batch_size=size, drop_last=drop_last)
    if not len(loader):
        return 0, 0
    options = {"data_loader": loader, "poisson_sampling": poisson}
    return len(loader), made(rows, size, **options)[1].expected_batch_size


@pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning")
@pytest.mark.parametrize("poisson", [True, False], ids=["Poisson", "public batches"])
# Persons have two rows each, and there are two of them at least.
@pytest.mark.parametrize(
    ("rows", "persons"), [(2, False), (3, True), (9, False), (9, True), (13, False), (13, True)]
)
def test_the_neighbour_divisor_is_the_worst_that_make_private_can_compute(rows, poisson, persons):
    changed = range(-2, 3) if persons else range(-1, 2)
    options = {"persons": [row // 2 for row in range(rows)]} if persons else {}
    table = {
        (other, size, drops): divisor_of(other, size, drops, poisson)
        for other in (rows + more for more in changed if rows + more > 0)
        for size in range(1, rows + 3)
        for drops in (False, True)
    }
    for size in range(1, rows + 3):
        for drops in (False, True):
            batches, divisor = table[rows, size, drops]
            if not divisor:
                continue
            # A Poisson loader does not keep its size: any that has as many batches will do.
            possible = [
                (s, d)
                for s in range(1, rows + 3)
                for d in (False, True)
                if ((s, d) == (size, drops) if not poisson else table[rows, s, d][0] == batches)
                and not (poisson and d and batches == 1)
            ]
            others = [
                table[rows + more, s, d][1] if rows + more else 0
                for more in changed
                for s, d in possible
            ]
            _, optimizer, loader = made(
                rows,
                size,
                data_loader=DataLoader(
                    TensorDataset(torch.zeros(rows, 5), torch.zeros(rows, dtype=torch.int64)),
                    batch_size=size,
                    drop_last=drops,
                ),
                poisson_sampling=poisson,
            )
            public = {} if poisson else {"public_batches": True}
            scaling = expost.torch.track(optimizer, loader, **public, **options).scaling
            d = scaling.dimension
            assert scaling.loss == max(
                divisor_loss(d, divisor, other) if other else np.inf for other in others
            )


@pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning")
@pytest.mark.parametrize(
    ("rows", "divisor", "other"), [(257, 128, 256), (513, 171, 256), (601, 54, 60)]
)
def test_a_row_less_can_be_a_batch_less(rows, divisor, other):
    _, optimizer, loader = made(rows, 60 if rows == 601 else 256)
    scaling = expost.torch.track(optimizer, loader).scaling
    assert (scaling.divisor, scaling.neighbour_divisor) == (divisor, other)
    ratio = (other / divisor) ** 2
    expected = scaling.dimension / 2 * (ratio - 1 - np.log(ratio))
    assert scaling.loss == pytest.approx(expected)
    assert scaling.loss > 0.4
    assert "reveals" in scaling.notice


def test_a_rate_that_was_chosen_does_not_depend_on_the_number_of_rows():
    data = TensorDataset(torch.randn(40, 5), torch.randint(3, (40,)))
    loader = DPDataLoader(data, sample_rate=0.21)
    _, optimizer, loader = made(40, 8, data_loader=loader, poisson_sampling=False)
    with pytest.warns(PrivacyLeakWarning):
        scaling = expost.torch.track(optimizer, loader).scaling
    assert (scaling.divisor, scaling.neighbour_divisor) == (10, 9)


def test_what_is_divided_is_read_from_the_optimizer():
    for options in ({}, {"loss_reduction": "sum"}):
        model, optimizer, loader = made(40, 10, **options)
        tracker = expost.torch.track(optimizer, loader, row_count="public")
        for inputs, labels in loader:
            optimizer.zero_grad()
            reduced = options.get("loss_reduction", "mean")
            nn.CrossEntropyLoss(reduction=reduced)(model(inputs), labels).backward()
            optimizer.pre_step()
            published = torch.cat([p.summed_grad.ravel() for p in optimizer.params])
            used = torch.cat([p.grad.ravel() for p in optimizer.params])
            break
        divisor = tracker.scaling.divisor or 1.0
        # The noise of what is used, over that of the sum: one over the divisor.
        noise = (used * divisor - published).double().numpy()
        assert np.std(noise) == pytest.approx(1.0, rel=0.5)
        assert (tracker.scaling.divisor is None) == bool(options)


def test_stated_row_counts_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        for stated in ("public", "fixed"):
            run = Run(tracking={"row_count": stated})
            assert not any("divisor" in notice for notice in run.tracker.notices)
            assert run.tracker.scaling.row_count is RowCount(stated)
    with pytest.raises(InvalidInput, match="row_count"):
        Run(tracking={"row_count": "secret"})


def test_a_noisy_count_is_paid_for_once():
    count = NoisyCount(count=13, epsilon=0.5)
    plain, paid = Run().epochs(), Run(tracking={"row_count": count}).epochs()
    np.testing.assert_array_equal(plain.tracker.profile().loss, paid.tracker.profile().loss)
    least, most = plain.tracker.guarantee().epsilon(1e-5), paid.tracker.guarantee().epsilon(1e-5)
    assert least < most <= (least + 0.5) * (1 + 1e-3)
    known = [document_of(run.tracker).sections[0].blocks[0].values[1][1] for run in (plain, paid)]
    assert known[0] < known[1] <= (known[0] + 0.5) * (1 + 1e-3)
    assert any("0.5" in notice for notice in paid.tracker.profile().notices)


def test_a_noisy_count_costs_a_person_its_epsilon_for_each_of_the_rows():
    persons = [f"writer {row // 6}" for row in range(12)]
    options = {"private": {"noise_multiplier": 60.0}}
    paid = {"row_count": NoisyCount(count=13, epsilon=0.5)}
    plain, paid = (
        Run(tracking={"persons": persons, **count}, **options).epochs().tracker
        for count in ({}, paid)
    )
    # Six rows change the number by six: the count alone has ε = 6 · 0.5.
    assert paid.guarantee().epsilon(1e-5) >= 3.0
    assert paid.guarantee().epsilon(1e-5) <= plain.guarantee().epsilon(1e-5) + 3.0 * (1 + 1e-3)
    assert any("at most 3 nats" in notice for notice in paid.notices)


def test_the_recipe_for_a_rate_and_a_divisor_that_follow_from_a_noisy_count():
    """As docs/dp-sgd.md shows it."""
    count = expost.torch.noisy_count(40, epsilon=5.0)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 5), torch.randint(3, (40,)))
    rate = 8 / count.count
    loader = DPDataLoader(data, sample_rate=rate)
    _, optimizer, loader = made(40, 8, data_loader=loader, poisson_sampling=False)
    optimizer.expected_batch_size = 8
    tracker = expost.torch.track(optimizer, loader, row_count=count)
    assert tracker.scaling.divisor == 8
    assert tracker.scaling.sampling_rate == rate
    assert tracker.transcript.mechanism.sampling_rate == rate


def test_the_accountant_is_read_and_not_touched():
    model, optimizer, loader = made(40, 10)
    tracker = expost.torch.track(optimizer, loader, row_count="public")
    assert tracker.accountant_epsilon() is None
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.CrossEntropyLoss()(model(inputs), labels).backward()
        optimizer.step()
    reported = tracker.accountant_epsilon(1e-5)
    exact = DPSGD(noise_multiplier=1.0, sampling_rate=0.25, steps=4).epsilon(1e-5)
    assert exact <= reported < 1.3 * exact
    assert f"{reported:.1f}" in str(tracker)
    # A hook of somebody else's holds no accountant.
    assert Run().epochs().tracker.accountant_epsilon() is None


@pytest.mark.parametrize("when", ["before", "after", "loaded"])
@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_steps_that_were_not_tracked_are_reported_at_the_figures(when, accountant):
    engine = quiet(PrivacyEngine, accountant=accountant)
    model, optimizer, loader = made(40, 10, engine=engine)

    def epochs(number):
        for _ in range(number):
            for inputs, labels in loader:
                optimizer.zero_grad()
                nn.CrossEntropyLoss()(model(inputs), labels).backward()
                optimizer.step()

    if when == "before":
        epochs(5)
    tracker = expost.torch.track(optimizer, loader, row_count="public")
    if when == "loaded":
        history = [(1.0, 0.25, 20)]
        state = {"history": history, "mechanism": engine.accountant.mechanism()}
        engine.accountant.load_state_dict(state)
    epochs(1)
    whole, profile = str(tracker), tracker.profile()
    assert ("20 more steps" in whole) == (when != "after")
    tracker.detach()
    if when == "after":
        assert "Every guarantee for all steps holds" in str(profile)
        epochs(5)
    for shown in (str(tracker), str(tracker.profile())):
        assert "20 more steps than were tracked" in shown
        assert "not of 20 others" in shown
        assert "holds for the final model" not in shown
        assert "heuristic" not in shown
    assert "The training of 4 steps that were tracked, without 20 others" in str(tracker)
    (final,) = (line for line in tracker.attackers().lines if line.is_final)
    assert final.epsilon is None
    assert tracker.accountant_epsilon() > tracker.guarantee().epsilon(1e-5)


def test_the_trainer_reports_its_divisor():
    X, y = np.random.default_rng(0).normal(size=(30, 5)), np.arange(30) % 3
    torch.manual_seed(0)
    module = nn.Linear(5, 3)
    options = {"noise_multiplier": SIGMA, "clip": CLIP, "learning_rate": 0.1, "steps": 2}
    computed = expost.torch.train(module, X, y, **options)
    (notice,) = computed.notices
    assert "divisor 30" in notice
    assert computed.scaling.loss == divisor_loss(18, 30, 29)
    assert notice in str(computed.profile())
    given = expost.torch.train(module, X, y, divisor=25.0, **options)
    assert given.notices == ()
    facts = dict(given.scaling.facts())
    assert facts["divisor of the noisy sum"] == "25"
