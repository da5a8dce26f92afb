"""What tracking costs an Opacus run: the same seeded run with it and without.

Run by ``make bench``; :mod:`measure` says how ratios are taken. Torch has one thread, and times are
those of the processor, because the machine may be shared.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import measure
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import expost.torch

SEED = 20261116
torch.set_num_threads(1)
# Opacus says that its generator is not a secure one, and torch that Opacus hooks into backward.
warnings.filterwarnings("ignore", message="Secure RNG turned off|Full backward hook is firing")
# Layers of a network whose parameters are most of its memory.
WIDTHS = (1500, 1500, 1500, 1500, 10)
TOKENS, LENGTH = 1000, 64


def digits() -> TensorDataset:
    """1,797 images of 8 × 8."""
    X, y = load_digits(return_X_y=True)
    images = torch.tensor(X / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return TensorDataset(images, torch.tensor(y))


def large(rows: int = 1000) -> TensorDataset:
    """As many random images of 28 × 28, of MNIST's size: the time does not depend on the values."""
    generator = torch.Generator().manual_seed(SEED)
    images = torch.rand(rows, 1, 28, 28, generator=generator)
    return TensorDataset(images, torch.randint(10, (rows,), generator=generator))


def sentences(rows: int = 256) -> TensorDataset:
    """Random tokens; the first of the next ones is what to predict."""
    generator = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(TOKENS, (rows, LENGTH + 1), generator=generator)
    return TensorDataset(tokens[:, :-1], tokens[:, 1:])


def vectors(rows: int = 64) -> TensorDataset:
    """Rows of a network with few rows and many parameters."""
    generator = torch.Generator().manual_seed(SEED)
    X = torch.rand(rows, WIDTHS[0], generator=generator)
    return TensorDataset(X, torch.randint(10, (rows,), generator=generator))


def network(side: int) -> nn.Module:
    """Two convolutions with group norm, one hidden layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 4) ** 2, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def wide() -> nn.Module:
    """A network whose parameters are most of its memory."""
    layers = [nn.Linear(before, after) for before, after in pairwise(WIDTHS)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))


def language_model() -> nn.Module:
    """A small GPT-2 with LoRA, from its configuration."""
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": LENGTH}
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=TOKENS, **sizes, **dropout, **ends))
    lora = LoraConfig(r=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
    return get_peft_model(model, lora).train()


@dataclass(frozen=True)
class Task:
    """Rows, the network that is trained on them, and the size of a batch."""

    data: Callable[[], TensorDataset]
    model: Callable[[], nn.Module]
    batch: int
    tokens: bool = False


TASKS = {
    "digits, batches of 64": Task(digits, lambda: network(8), 64),
    "digits, batches of 256": Task(digits, lambda: network(8), 256),
    "images of MNIST's size, batches of 128": Task(large, lambda: network(28), 128),
    "GPT-2 with LoRA, batches of 16": Task(sentences, language_model, 16, tokens=True),
    "6.8 million parameters, batches of 16": Task(vectors, wide, 16),
}


def epoch(
    task: Task,
    data: TensorDataset,
    *,
    tracked: bool,
    mode: str = "hooks",
    pieces: int = 0,
    batch: int = 0,
    **options: object,
) -> nn.Module:
    """One epoch of Opacus, in pieces of a bounded size where that is asked for."""
    torch.manual_seed(SEED)
    model = task.model()
    trained = [p for p in model.parameters() if p.requires_grad]
    model, optimizer, *between, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(trained, lr=0.1),
        data_loader=DataLoader(data, batch_size=batch or task.batch),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
    )
    criterion = between[0] if between else nn.CrossEntropyLoss()

    def loss(given: list[torch.Tensor]) -> torch.Tensor:
        if not task.tokens:
            return criterion(model(given[0]), given[1])
        logits = model(input_ids=given[0]).logits
        shape = {"shape": logits.shape} if between else {}
        return criterion(logits.flatten(0, 1), given[1].flatten(), **shape)

    if "every" in options:
        options |= {"adversary": "hidden-batches", "loss": loss}
    if between:
        options |= {"model": model}
    tracker = (
        expost.torch.track(optimizer, loader, row_count="public", **options) if tracked else None
    )

    def steps(batches: Iterator[list[torch.Tensor]]) -> None:
        for given in batches:
            optimizer.zero_grad()
            loss(given).backward()
            optimizer.step()

    if pieces:
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=pieces, optimizer=optimizer
        ) as batches:
            steps(batches)
    else:
        steps(loader)
    if tracker is not None:
        assert tracker.profile().exposure.max() > 0
    return model


def overhead(name: str, times: int, suffix: str = "", **options: object) -> object:
    task = TASKS[name]
    rows = task.data()
    seconds = measure.paired(
        lambda: epoch(task, rows, tracked=True, **options),
        lambda: epoch(task, rows, tracked=False, **options),
        times,
        clock=time.process_time,
    )
    return measure.row(f"tracked / untracked, {name}{suffix}", seconds[:, 0] / seconds[:, 1])


def peak(case: str, mode: str, side: str) -> dict[str, object]:
    """The peak memory of one epoch; images come 500 at a time, in pieces of 50 or as a whole.

    Both sides have used the code of torch before, which the process then holds: tracking calls
    more of it, 5 MiB whatever the model.
    """
    task, small = TASKS[case], TASKS["digits, batches of 64"]
    data, pieces = task.data(), {}
    if case.startswith("images"):
        data, pieces = large(500), {"batch": 500, "pieces": 50}
    if side == "whole":
        pieces["pieces"] = 0
    few = Subset(small.data(), range(128))

    def work() -> None:
        epoch(small, few, mode=mode, tracked=True)
        epoch(task, data, mode=mode, tracked=side == "tracked", **pieces)

    return measure.forked_peak(f"{case}, {mode}, {side}", work)


def rows(times: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Name every figure, with what measures it."""
    for case in list(TASKS)[2:]:
        for mode in ("hooks", "ghost"):
            for side in ("tracked", "untracked"):
                yield f"peak {case}, {mode}, {side}", partial(peak, case, mode, side)
    # What holding the gradients until the noise is drawn would cost.
    images = list(TASKS)[2]
    yield f"peak {images}, hooks, whole", partial(peak, images, "hooks", "whole")
    for mode in ("hooks", "ghost"):
        # Of the last one memory counts.
        for name in list(TASKS)[:-1]:
            suffix = f", {mode}"
            yield name + suffix, partial(overhead, name, times, suffix, mode=mode)
        name = "digits, batches of 256"
        suffix = f" in pieces of 64, {mode}"
        yield name + suffix, partial(overhead, name, times, suffix, mode=mode, pieces=64)
    for mode, every in (("hooks", 1), ("hooks", 10), ("ghost", 1)):
        suffix = f", {mode}, hidden, a full pass every {every} steps"
        yield name + suffix, partial(overhead, name, times, suffix, mode=mode, every=every)


def main() -> None:
    options = measure.options(__doc__)
    print(f"{'ratio of paired times, one thread each':<{measure.WIDTH}} {'median':>11}  (range)")
    table = {name: work() for name, work in rows(options.times) if options.only in name}
    if options.record:
        measure.record("bench-tracking", __file__, SEED, table, options.only)


if __name__ == "__main__":
    main()
