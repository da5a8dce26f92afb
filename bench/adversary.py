"""Trials of the strong adversary: in processes against one process, and against a plain loop.

Run by ``make bench``; :mod:`measure` says how ratios are taken. Processes are started anew in each
run, as an experiment starts them; to see the work and not the start, a run has many trials.
"""

import measure
import numpy as np
import torch
from torch import nn

from expost._processes import available
from expost.reproduce.d53_training import CLIP, RATE, cnn, sigma
from expost.torch import strong_adversary

SEED = 20261116
ROWS, STEPS = 100, 5
torch.set_num_threads(1)


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Random images of MNIST's size: the time does not depend on the values."""
    rng = np.random.default_rng(SEED)
    images = rng.random((ROWS, 1, 28, 28), dtype=np.float32)
    return images, rng.integers(10, size=ROWS)


def experiment(trainings: int, workers: int) -> None:
    strong_adversary(
        cnn(),
        *rows(),
        row=0,
        trainings=trainings,
        noise_multiplier=sigma(),
        clip=CLIP,
        learning_rate=RATE,
        steps=STEPS,
        workers=workers,
        random_state=SEED,
    )


def plain(trainings: int) -> None:
    """The same by the book: one process, one row's gradient at a time, both sums in full."""
    images, labels = (torch.from_numpy(part) for part in rows())
    for number in range(trainings):
        module = cnn()
        generator = torch.Generator().manual_seed(number)
        parameters = list(module.parameters())
        belief = 0.0
        for _ in range(STEPS):
            sums = {True: 0.0, False: 0.0}
            for place in range(ROWS):
                at = slice(place, place + 1)
                loss = nn.functional.cross_entropy(module(images[at]), labels[at])
                found = torch.autograd.grad(loss, parameters)
                g = torch.cat([part.reshape(-1) for part in found])
                g = g / max(1.0, float(g.norm()) / CLIP)
                sums[True] = sums[True] + g
                if place:
                    sums[False] = sums[False] + g
            scale = sigma() * CLIP
            noise = torch.randn(len(sums[True]), generator=generator) * scale
            noisy = sums[number % 2 == 0] + noise
            gaps = {world: float((noisy - total).square().sum()) for world, total in sums.items()}
            belief += (gaps[False] - gaps[True]) / (2 * scale**2)
            with torch.no_grad():
                moves = (RATE / ROWS * noisy).split([p.numel() for p in parameters])
                for p, move in zip(parameters, moves, strict=True):
                    p -= move.view_as(p)


def main() -> None:
    options = measure.options(__doc__, peak=1)
    print(f"{'ratio of paired times, one thread each':<{measure.WIDTH}} {'median':>11}  (range)")
    table: dict[str, object] = {}
    few, many, workers = 4, 60, available()
    seconds = measure.paired(lambda: experiment(few, 1), lambda: plain(few), options.times)
    name = f"trials a second, one process / plain loop, {few} trials of {STEPS} steps"
    table[name] = measure.row(name, seconds[:, 1] / seconds[:, 0])
    table["trials a second, one process"] = round(few / float(np.median(seconds[:, 0])), 3)
    seconds = measure.paired(
        lambda: experiment(many, workers), lambda: experiment(many, 1), options.times
    )
    name = f"trials a second, {workers} processes / one, {many} trials with the start"
    table[name] = measure.row(name, seconds[:, 1] / seconds[:, 0])
    if options.record:
        measure.record("bench-adversary", __file__, SEED, table)


if __name__ == "__main__":
    main()
