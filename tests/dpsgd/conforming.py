"""Trainers for ``expost.torch.conform``: ours, with the seeded faults, and Opacus'."""

import contextlib
import itertools
import logging
import warnings

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader, TensorDataset

from conform.steps import CLAIMS as LIKE_JAX
from conform.steps import Step
from dpsgd.laws import CLIP, SIGMA
from dpsgd.mutants import MUTANTS
from expost.conformance import Claims
from expost.conformance import conform as conform_arrays
from expost.torch import conform
from expost.torch.draws import SeededDraws
from expost.torch.training import prepare

ALPHA, RATE = 0.8, 0.25
OWN = Claims(
    clip=CLIP,
    noise_multiplier=SIGMA,
    sampling_rate=RATE,
    learning_rate=ALPHA,
    n_public=True,
    not_finite="refused",
)


def own(seed, *, sums=False, **options):
    """Our trainer; ``sums``: its parameters after each step are those of the noisy sums."""
    rng = np.random.default_rng(seed)

    def trainer(task):
        candidates = (task.X, task.y) if options.get("relation") == "replace" else None
        run = prepare(
            task.module,
            task.X,
            task.y,
            noise_multiplier=SIGMA,
            clip=CLIP,
            learning_rate=task.learning_rate,
            steps=task.steps,
            loss=task.loss,
            sampling_rate=None if task.rate == 1 else task.rate,
            candidates=candidates,
            **options,
        )
        made = []
        training = run.run(SeededDraws(rng), made.append)
        task.accountant = lambda delta: training.guarantee.epsilon(delta)
        named = {name: p.numel() for name, p in training.module.named_parameters()}
        if sums:
            moves = torch.stack([step.noisy_sum for step in made]).cumsum(0)
            after = -moves * task.learning_rate / training.divisor
        else:
            last = torch.cat([p.detach().ravel() for p in training.module.parameters()])
            after = torch.stack([*(step.parameters for step in made[1:]), last])
        for theta in after:
            yield dict(zip(named, theta.split(list(named.values())), strict=True))

    return trainer


def like_jax(seed):
    """The step of tests/conform, with draws of its own in each run."""
    seeds = np.random.default_rng(seed)
    return Step(seed=lambda: int(seeds.integers(2**60)))


def opacus(*, sigma=1.1, clip=1.0, pieces=0, accountant="rdp", **options):
    """A loop of Opacus, as a user writes it, with a ``yield`` after each step."""

    def trainer(task):
        logging.getLogger("opacus").setLevel(logging.ERROR)
        logging.getLogger().setLevel(logging.ERROR)
        engine = PrivacyEngine(accountant=accountant)
        ghost = options.get("grad_sample_mode") == "ghost"
        model, optimizer, *criterion, loader = engine.make_private(
            module=task.module,
            optimizer=torch.optim.SGD(task.module.parameters(), lr=task.learning_rate),
            data_loader=DataLoader(TensorDataset(task.X, task.y), batch_size=task.batch_size),
            noise_multiplier=sigma,
            max_grad_norm=clip,
            **({"criterion": Mean()} if ghost else {}),
            **options,
        )
        task.accountant = engine.get_epsilon
        loss = criterion[0] if criterion else task.loss
        for _ in itertools.count():
            with held(optimizer, loader, pieces) as batches:
                for X, y in batches:
                    optimizer.zero_grad()
                    loss(model(X), y).backward()
                    optimizer.step()
                    # A piece of a batch is no step.
                    if not (pieces and optimizer._is_last_step_skipped):
                        yield

    return trainer


class Mean(torch.nn.Module):
    """The loss of a task, as ghost clipping takes it."""

    def __init__(self):
        super().__init__()
        self.reduction = "mean"

    def forward(self, outputs, targets):
        each = outputs.squeeze(-1) * targets
        return each if self.reduction == "none" else each.mean()


def held(optimizer, loader, pieces):
    if not pieces:
        return contextlib.nullcontext(loader)
    return BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=pieces, optimizer=optimizer
    )


FLAT = Claims(
    clip=1.0, noise_multiplier=1.1, sampling_rate=RATE, n_public=True, not_finite="absent"
)
LAYERED = Claims(
    clip=(1.0, 0.5, 0.25),
    noise_multiplier=1.1,
    sampling_rate=RATE,
    n_public=True,
    not_finite="absent",
)
# Correct trainers, by their numbers of runs: their trainer from a seed, and its claims.
RIGHT = {
    "a step like that of jax_privacy": (100, like_jax, LIKE_JAX),
    "expost": (30, own, OWN),
    "expost, a constant divisor": (
        10,
        lambda seed: own(seed, divisor=30.0),
        Claims(**{**vars(OWN), "divisor": 30.0, "n_public": False}),
    ),
    "expost, rows replaced": (
        5,
        lambda seed: own(seed, relation="replace"),
        Claims(**{**vars(OWN), "relation": "replace"}),
    ),
    "Opacus": (30, lambda seed: opacus(), FLAT),
    "Opacus, clipping per layer": (
        10,
        lambda seed: opacus(clip=[1.0, 0.5, 0.25], clipping="per_layer"),
        LAYERED,
    ),
    "Opacus, batches in pieces": (5, lambda seed: opacus(pieces=20), FLAT),
    "Opacus, ghost clipping": (10, lambda seed: opacus(grad_sample_mode="ghost"), FLAT),
}

# The check that is meant for each fault of the trainer that changes a step.
MEANT_FOR = {
    **dict.fromkeys(
        (
            "no clipping",
            "clipping after the sum",
            "each layer clipped on its own",
            "gradients scaled to C, short ones too",
            "clipped to the squared length",
        ),
        "clipping",
    ),
    **dict.fromkeys(
        (
            "noise without C",
            "noise of one removed row where rows are replaced",
            "noise of the variance for its scale",
            "no noise at all",
            "noise accounted for but not added",
        ),
        "noise scale",
    ),
    "the same noise for all layers": "noise independence",
    "the same noise at every step": "noise independence",
    "noise that is uniform": "noise distribution",
    "batch size read from n": "divisor",
    "batch size read from the batch": "divisor",
    "batches of a fixed size": "sampling",
    "one coin for all rows": "sampling",
    "rows sampled too rarely": "sampling",
    "a filter that never closes": "norm budget",
    "a gradient that is NaN counted as 0": "not finite",
    "a gradient that is NaN let through the clip": "not finite",
}
# Faults in the account of losses: no step shows them.
NOT_IN_STEPS = {mutant.name for mutant in MUTANTS} - set(MEANT_FOR)


def checked(name, seed):
    """The result for our trainer with one seeded fault."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    options, claims = {}, dict(vars(OWN))
    if "replaced" in name:
        options["relation"] = claims["relation"] = "replace"
    if "filter" in name:
        options["norm_budget"] = claims["norm_budget"] = 5 * CLIP
        claims["sampling_rate"] = 1.0
    if "read from" in name:
        # The patch takes a step in float64.
        options["dtype"] = torch.float64
    if "not added" in name:
        options["sums"] = True
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        mutant.patch(patch)
        return conform(own(seed, **options), Claims(**claims))


def violated(run):
    """The checks that report a trainer of ``RIGHT``, or ours with a fault: (name, seed)."""
    name, seed = run
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if name in MEANT_FOR:
        return checked(name, seed).violated
    _, make, claims = RIGHT[name]
    torch.manual_seed(seed)
    check = conform_arrays if claims is LIKE_JAX else conform
    return check(make(seed), claims).violated
