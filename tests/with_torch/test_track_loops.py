"""Loops that a tracker follows, and those that it refuses in a sentence."""

import copy
import math
import sys

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DistributedDPOptimizer, DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, default_collate

import expost.torch
from dpsgd.tracked import HOOKS, Run, quiet
from expost.errors import InvalidInput, MissingExtra
from expost.torch import track
from expost.torch.batches import check_order

pytestmark = [
    pytest.mark.filterwarnings(HOOKS),
    # Nothing is stated of the number of rows.
    pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning"),
]


def assert_followed(run, tolerance=1e-9):
    expected = run.losses()
    assert np.max(np.abs(expected)) > 0.1
    np.testing.assert_allclose(run.tracker.profile().loss, expected, rtol=0, atol=tolerance)


def only_full(run):
    for batch in run.loader:
        if len(batch[0]):
            run.step(batch)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_leaves_empty_batches_out_is_refused(workers):
    run = Run(batch_size=1, workers=workers)
    with pytest.raises(InvalidInput, match="left an empty batch out"):
        only_full(run)


def test_an_empty_batch_at_the_end_may_not_be_left_out_either():
    run = Run(tracking=None)
    run.loader.batch_sampler.__class__ = EndsEmpty
    run.tracker = track(run.optimizer, run.loader)
    with pytest.raises(InvalidInput, match="left an empty batch out"):
        only_full(run)
    assert len(run.noted) == 2


class EndsEmpty(UniformWithReplacementSampler):
    def __iter__(self):
        return iter([[0, 1], [2, 3], []])


def test_a_random_row_may_stand_in_for_an_empty_batch():
    run = Run(batch_size=1, private={"rand_on_empty": True}, tracking=None)
    nobody, sizes = 0, []

    class Watched(UniformWithReplacementSampler):
        def __iter__(self):
            for batch in super().__iter__():
                sizes.append(len(batch))
                yield batch

    run.loader.batch_sampler.__class__ = Watched
    run.tracker = track(run.optimizer, run.loader)
    for _ in range(2):
        for batch in run.loader:
            empty = sizes[-1] == 0
            run.step(batch)
            if empty and len(batch[0]):
                # Its gradient was in the sum, and it is no row: take it out for the densities.
                nobody += 1
                noted = run.noted[-1]
                alone = Run(rows=1, batch_size=1, given=(batch[0], batch[1]), tracking=None)
                noted.published -= alone.gradients(noted)[0]
                noted.batch = []
    assert nobody > 2
    assert_followed(run)


def test_passes_that_are_left_early_or_only_looked_at():
    run = Run()
    next(iter(run.loader))
    for batch in run.loader:
        run.step(batch)
        break
    assert sum(len(batch[0]) for batch in run.loader) >= 0
    run.epochs(1)
    for _ in range(4):
        run.step(next(iter(run.loader)))
    assert len(run.noted) == 1 + 3 + 4
    assert_followed(run)
    assert run.tracker.posteriors.shape[0] == 1


def test_workers_that_ran_ahead_of_a_loop_that_was_left():
    run = Run(workers=2, batch_size=2)
    for batch in run.loader:
        run.step(batch)
        break
    run.epochs(1)
    assert len(run.noted) == 1 + 6
    assert_followed(run)


def test_gradients_of_several_batches_in_one_step():
    run = Run(poisson=False, tracking={"public_batches": True}, batch_size=3)
    batches = iter(run.loader)
    run.optimizer.zero_grad()
    for _ in range(2):
        batch = next(batches)
        run.loss(batch).backward()
        run.current = run.current + batch[2].tolist()
    run.optimizer.step()
    run.optimizer.zero_grad()
    for batch in batches:
        run.step(batch)
    assert [len(noted.batch) for noted in run.noted] == [6, 3, 3]
    assert_followed(run)


def test_virtual_steps_by_hand():
    run = Run(poisson=False, tracking={"public_batches": True}, batch_size=3)
    for number, batch in enumerate(run.loader):
        run.optimizer.signal_skip_step(do_skip=number % 2 == 0)
        run.step(batch)
    assert [len(noted.batch) for noted in run.noted] == [6, 6]
    assert_followed(run)


def skip_a_step(run):
    for number, batch in enumerate(run.loader):
        run.optimizer.signal_skip_step(do_skip=number % 2 == 0)
        run.step(batch)


def step_on_a_list(run):
    run.hooks.allow_grad_accumulation()
    for number, batch in enumerate(run.loader):
        run.loss(batch).backward()
        if number % 2:
            run.optimizer.step()


def leave_a_batch(run):
    manager = BatchMemoryManager(
        data_loader=run.loader, max_physical_batch_size=2, optimizer=run.optimizer
    )
    with manager as loader:
        run.step(next(iter(loader)))
        run.step(next(iter(loader)))


@pytest.mark.parametrize(
    ("loop", "mode"),
    [
        (skip_a_step, "hooks"),
        (skip_a_step, "ghost"),
        (step_on_a_list, "hooks"),
        (leave_a_batch, "hooks"),
    ],
)
@pytest.mark.parametrize("tracking", [{}, {"adversary": "hidden-batches"}], ids=str)
def test_several_sampled_batches_in_one_step_are_refused(loop, mode, tracking):
    # Some six rows of two hundred: the rows of two batches are often distinct.
    run = Run(mode=mode, rows=200, batch_size=6, tracking=tracking)
    with pytest.raises(InvalidInput, match="a step sums several of its batches"):
        loop(run)
    assert run.tracker.steps == 0
    with pytest.raises(InvalidInput, match="could not be tracked"):
        run.tracker.profile()


def test_one_training_is_tracked_where_the_loader_is_used_twice():
    run = Run()
    sampler = run.loader.batch_sampler
    assert isinstance(sampler, UniformWithReplacementSampler)
    assert type(sampler) is not UniformWithReplacementSampler
    run.tracker.detach()
    assert type(sampler) is UniformWithReplacementSampler
    assert "add_noise" not in vars(run.optimizer)
    run.tracker = track(run.optimizer, run.loader)
    assert_followed(run.epochs())


# Loops whose batches cannot be told.


def skip(run):
    for number, batch in enumerate(run.loader):
        if number:
            run.step(batch)


def fetch_ahead(run):
    batches = iter(run.loader)
    held = next(batches)
    for batch in batches:
        run.step(held)
        held = batch


def evaluate_within(run):
    for batch in run.loader:
        for _ in run.loader:
            pass
        run.step(batch)


def other_rows(run):
    next(iter(run.loader))
    run.step([part[:1] for part in run.data.tensors])


def own_rows(run):
    run.step([part[:3] for part in run.data.tensors])


def fewer_rows(run):
    for batch in run.loader:
        run.step([part[:-1] for part in batch])


def noise_alone(run):
    for p in run.optimizer.params:
        p.summed_grad = torch.zeros_like(p)
        p.grad_sample = torch.zeros(0, *p.shape, dtype=p.dtype)
    run.optimizer.add_noise()


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        (skip, "the loop took 2 batches for a step on 1"),
        (fetch_ahead, "the loop took 2 batches for a step on 1"),
        (evaluate_within, "the loop took 3 batches for a step on 1"),
        (other_rows, "gradients of 1 rows|before all rows"),
        (own_rows, "rows that this loader did not give"),
        (fewer_rows, "before all rows"),
        (noise_alone, "rows that this loader did not give"),
    ],
)
@pytest.mark.parametrize("shuffled", [False, True])
def test_loops_that_are_refused(loop, message, shuffled):
    public = {"poisson": False, "tracking": {"public_batches": True}} if shuffled else {}
    run = Run(**public)
    with pytest.raises(InvalidInput, match=message):
        loop(run)
    with pytest.raises(InvalidInput, match="could not be tracked"):
        run.tracker.profile()


class Sequences(torch.utils.data.Dataset):
    """Rows of different lengths; those that are read first have one label."""

    def __len__(self):
        return 16

    def __getitem__(self, row):
        return torch.arange(7 * row % 5 + 1.0) + row, 0


def packed(rows):
    return pack_sequence([X for X, _ in rows], enforce_sorted=False), labels_of(rows)


def joined(rows):
    offsets = np.cumsum([0, *(len(X) for X, _ in rows)])[:-1]
    return torch.cat([X for X, _ in rows]), torch.tensor(offsets), labels_of(rows)


def packed_by_length(rows):
    rows = sorted(rows, key=lambda row: -len(row[0]))
    return pack_sequence([X for X, _ in rows]), labels_of(rows)


def labels_of(rows):
    return torch.tensor([y for _, y in rows])


def test_positions_in_packed_or_joined_sequences_are_no_order_of_rows():
    for collate in (packed, joined):
        check_order(DataLoader(Sequences(), batch_size=4, collate_fn=collate))
    with pytest.raises(InvalidInput, match="in another order than the sampler"):
        check_order(DataLoader(Sequences(), batch_size=4, collate_fn=packed_by_length))


def by_first_entry(rows):
    return default_collate(sorted(rows, key=lambda row: float(row[0][0])))


def as_mapping(rows):
    X, y, numbers = by_first_entry(rows)
    return {"X": X, "more": [y, {"numbers": numbers}]}


def by_label(rows):
    """A part of the rows moves."""
    return default_collate(sorted(rows, key=lambda row: int(row[1])))


@pytest.mark.parametrize("collate", [by_first_entry, as_mapping, by_label])
@pytest.mark.parametrize("adversary", ["known-batches", "hidden-batches"])
def test_a_loader_that_changes_the_order_of_rows_is_refused(collate, adversary):
    run = Run(tracking=None)
    run.loader.collate_fn.wrapped_collator_fn = collate
    hidden = {"adversary": adversary, "loss": run.loss} if "hidden" in adversary else {}
    with pytest.raises(InvalidInput, match="in another order than the sampler"):
        track(run.optimizer, run.loader, **hidden)
    assert "add_noise" not in vars(run.optimizer)


DRAWS = np.random.default_rng(0)


def own_noise(rows):
    """Random features, of a generator that is not torch's."""
    X, y, numbers = default_collate(rows)
    return [X + torch.as_tensor(DRAWS.normal(size=X.shape)), 0 * y, 0 * numbers]


def popped(rows):
    """Takes the rows apart, as some functions of transformers do."""
    return [
        torch.stack([part.pop(0) for part in rows]),
        torch.tensor([part.pop() for part in rows]),
    ]


def second_dimension(rows):
    X, y, numbers = default_collate(rows)
    return [X.T.contiguous(), y, numbers]


def nothing_known(rows):
    X, *rest = default_collate(rows)
    return [X * math.nan, *(0 * part for part in rest)]


@pytest.mark.parametrize("collate", [own_noise, second_dimension, nothing_known, popped])
def test_orders_that_are_kept_or_cannot_be_told_are_not_refused(collate):
    run = Run(tracking=None)
    if collate is popped:
        run.loader = DPDataLoader(
            [[x, float(i)] for i, x in enumerate(run.data.tensors[0])], sample_rate=0.5
        )
    run.loader.collate_fn.wrapped_collator_fn = collate
    state = torch.get_rng_state()
    track(run.optimizer, run.loader)
    assert torch.equal(torch.get_rng_state(), state)
    if collate is popped:
        assert all(len(row) == 2 for row in run.loader.dataset)


def test_sampling_with_replacement_is_refused():
    run = Run(tracking=None)
    sampler = BatchSampler(RandomSampler(run.data, replacement=True), 12, drop_last=False)
    run.loader = DataLoader(run.data, batch_sampler=sampler)
    track(run.optimizer, run.loader, public_batches=True)
    with pytest.raises(InvalidInput, match="a row is twice in one step"):
        run.epochs(1)


# What an optimizer may have done to the sum: each is another one than that of clipped gradients.


def no_clipping(optimizer):
    for p in optimizer.params:
        p.summed_grad = p.grad_sample.sum(dim=0)


def clipping_after_the_sum(optimizer):
    no_clipping(optimizer)
    norm = sum(p.summed_grad.square().sum() for p in optimizer.params).sqrt()
    for p in optimizer.params:
        p.summed_grad *= (optimizer.max_grad_norm / norm).clamp(max=1.0)


def half_the_clip(optimizer, clip_and_accumulate=DPOptimizer.clip_and_accumulate):
    clip_and_accumulate(optimizer)
    for p in optimizer.params:
        p.summed_grad *= 0.999


@pytest.mark.parametrize("fault", [no_clipping, clipping_after_the_sum, half_the_clip])
def test_another_sum_than_that_of_clipped_gradients_is_refused(fault, monkeypatch):
    monkeypatch.setattr(DPOptimizer, "clip_and_accumulate", fault)
    run = Run(tracking=None, dtype=torch.float32)
    track(run.optimizer, run.loader)
    with pytest.raises(InvalidInput, match="another sum than the noisy sum"):
        run.epochs(1)


# What cannot be tracked.


def private(mode="hooks", **options):
    module = nn.Linear(5, 3)
    return quiet(PrivacyEngine).make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(Run(tracking=None).data, batch_size=4),
        grad_sample_mode=mode,
        **{"noise_multiplier": 1.0, "max_grad_norm": 1.0, **options},
    )


def ghost():
    _, optimizer, _, loader = private("ghost")
    return optimizer, loader


def adaptive():
    limits = {"max_clipbound": 2.0, "min_clipbound": 0.1, "clipbound_learning_rate": 0.2}
    count = {"target_unclipped_quantile": 0.5, "unclipped_num_std": 1.0}
    return private(clipping="adaptive", **limits, **count)[1:]


def noiseless():
    return private(noise_multiplier=0.0)[1:]


def plain_optimizer():
    _, optimizer, loader = private()
    return optimizer.original_optimizer, loader


def engine():
    return quiet(PrivacyEngine), private()[2]


def distributed():
    _, optimizer, loader = private()
    optimizer.__class__ = DistributedDPOptimizer
    return optimizer, loader


def subclass():
    _, optimizer, loader = private()
    optimizer.__class__ = type("MyOptimizer", (DPOptimizer,), {})
    return optimizer, loader


def twice():
    _, optimizer, loader = private()
    track(optimizer, loader)
    return optimizer, loader


def not_poisson():
    return private(poisson_sampling=False)[1:]


def other_size():
    _, optimizer, loader = private()
    loader.batch_sampler.num_samples = 11
    return optimizer, loader


def out_of_order():
    _, optimizer, loader = private()
    loader.in_order = False
    return optimizer, loader


def no_batches():
    return private()[1], DataLoader(Run(tracking=None).data, batch_size=None)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (ghost, "pass model="),
        (adaptive, "adaptive clipping"),
        (noiseless, "noise_multiplier=0.0 adds no noise"),
        (plain_optimizer, "is a SGD"),
        (engine, "is a PrivacyEngine"),
        (distributed, "distributed training is not tracked"),
        (subclass, "is a MyOptimizer"),
        (twice, "is already tracked"),
        (not_poisson, "is not Poisson sampling"),
        (other_size, "11 rows where its dataset has 12"),
        (out_of_order, "in_order=False loses the order"),
        (no_batches, "has no batch sampler"),
    ],
)
def test_what_cannot_be_tracked(made, message):
    optimizer, loader = made()
    with pytest.raises(InvalidInput, match=message) as error:
        track(optimizer, loader)
    assert str(error.value).count(".\n") == 0


def test_opacus_is_named_where_it_is_missing(monkeypatch):
    made = private()[1:]
    monkeypatch.setitem(sys.modules, "opacus.optimizers", None)
    with pytest.raises(MissingExtra, match=r"opacus.*'expost\[torch\]'"):
        track(*made)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"adversary": "hidden-batches"}, "^loss=None"),
        ({"adversary": "hidden-batches", "public_batches": True}, "hide no row"),
        ({"adversary": "everyone"}, "adversary='everyone'"),
        ({"every": 2}, "only hidden batches need them"),
        ({"every": 0}, "every=0"),
        ({"loss": len}, "only hidden batches need them"),
        ({"adversary": "hidden-batches", "loss": 3}, "^loss=3: must be a function"),
        ({"model": "net"}, "^model: is a str"),
        ({"model": nn.Linear(5, 3)}, "does not have the parameters"),
    ],
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(InvalidInput, match=message):
        track(*private()[1:], **options)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([["a", "b"]], "does not give lists of row numbers"),
        ([[0, 12]], "row numbers outside of its 12 rows"),
        ([[-1, 0]], "row numbers outside of its 12 rows"),
    ],
)
def test_samplers_that_give_no_row_numbers(batches, message):
    class Odd(UniformWithReplacementSampler):
        def __iter__(self):
            return iter(batches)

    optimizer, loader = private()[1:]
    loader.batch_sampler.__class__ = Odd
    track(optimizer, loader)
    with pytest.raises(InvalidInput, match=message):
        next(iter(loader))
    listed = DataLoader(loader.dataset, batch_sampler=[[0, 1], [2, 3]])
    with pytest.raises(InvalidInput, match="is a list, which cannot be watched"):
        track(private()[1], listed, public_batches=True)


def test_a_loss_of_other_rows_is_refused():
    run = Run(tracking=None)
    tracker = track(
        run.optimizer,
        run.loader,
        adversary="hidden-batches",
        loss=lambda batch: run.loss([part[:1] for part in batch]),
    )
    with pytest.raises(InvalidInput, match="gradients of 1 rows"):
        run.epochs(1)
    with pytest.raises(InvalidInput, match="could not be tracked"):
        tracker.profile()


def test_a_loss_that_returns_nothing_is_refused():
    run = Run(tracking={"adversary": "hidden-batches", "loss": lambda batch: None})
    with pytest.raises(InvalidInput, match="loss: returned a NoneType"):
        run.epochs(1)


def test_a_change_of_the_noise_within_a_step_is_refused():
    run = Run(poisson=False, tracking={"public_batches": True}, batch_size=3)
    batches = iter(run.loader)
    run.optimizer.signal_skip_step()
    run.step(next(batches))
    run.optimizer.noise_multiplier *= 2
    with pytest.raises(InvalidInput, match="changed within a step"):
        run.step(next(batches))


def test_loaders_and_samplers_can_still_be_copied():
    run = Run()
    copied = copy.deepcopy(run.loader.batch_sampler)
    assert len(list(copied)) == len(run.loader)
    assert isinstance(run.loader, DPDataLoader)
    assert {"track", "Tracker"} <= set(expost.torch.__all__)
