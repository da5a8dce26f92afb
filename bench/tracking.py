"""What tracking costs an Opacus run: the same seeded run with it and without.

Run by ``make bench``; :mod:`measure` says how ratios are taken. Torch has one thread.
"""

import warnings
from collections.abc import Callable

import measure
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import expost.torch

SEED = 20261116
torch.set_num_threads(1)
# Opacus says that its generator is not a secure one, and torch that Opacus hooks into backward.
warnings.filterwarnings("ignore", message="Secure RNG turned off|Full backward hook is firing")


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


def epoch(
    data: TensorDataset, *, batch: int, tracked: bool, pieces: int = 0, **options: object
) -> nn.Module:
    """One epoch of Opacus, in pieces of a bounded size where that is asked for."""
    torch.manual_seed(SEED)
    model = network(data.tensors[0].shape[-1])
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=batch),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    criterion = nn.CrossEntropyLoss()

    def loss(given: list[torch.Tensor]) -> torch.Tensor:
        return criterion(model(given[0]), given[1])

    if "every" in options:
        options |= {"adversary": "hidden-batches", "loss": loss}
    tracker = expost.torch.track(optimizer, loader, **options) if tracked else None

    def steps(batches: DataLoader) -> None:
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


def overhead(name: str, data: Callable[[], TensorDataset], times: int, **options: object) -> object:
    rows = data()
    seconds = measure.paired(
        lambda: epoch(rows, tracked=True, **options),
        lambda: epoch(rows, tracked=False, **options),
        times,
    )
    return measure.row(f"tracked / untracked, {name}", seconds[:, 0] / seconds[:, 1])


def main() -> None:
    options = measure.options(__doc__, peak=1)
    if options.peak:
        side = options.peak[0]
        epoch(large(), batch=1000, pieces=0 if side == "whole" else 50, tracked=side == "tracked")
        measure.print_peak()
        return
    print(f"{'ratio of paired times, one thread each':<{measure.WIDTH}} {'median':>11}  (range)")
    table: dict[str, object] = {}
    # First, while this process is small: Linux counts its peak as one of its children's.
    for side, mode in (
        ("tracked", "tracked, pieces of 50"),
        ("untracked", "untracked, pieces of 50"),
        # What holding the gradients until the noise is drawn would cost.
        ("whole", "untracked, in one piece"),
    ):
        table[f"peak {side}"] = measure.peak_memory(f"1,000 images, {mode}", __file__, side)
    for batch in (64, 256):
        name = f"digits, batches of {batch}"
        table[name] = overhead(name, digits, options.times, batch=batch)
    name = "digits, batches of 256 in pieces of 64"
    table[name] = overhead(name, digits, options.times, batch=256, pieces=64)
    name = "images of MNIST's size, batches of 128"
    table[name] = overhead(name, large, options.times, batch=128)
    for every in (1, 10):
        name = f"digits, batches of 64, hidden, a full pass every {every} steps"
        table[name] = overhead(name, digits, options.times, batch=64, every=every)
    if options.record:
        measure.record("bench-tracking", __file__, SEED, table)


if __name__ == "__main__":
    main()
