"""Trials of the strong adversary: in processes against one process, and against a plain loop.

Run by ``make bench``; :mod:`measure` says how ratios are taken. Processes are started once, before
the clock: an experiment starts them once for thousands of trials.
"""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import measure
import numpy as np
import torch
from torch import nn

from expost.engine.threads import available_cores
from papers.common.processes import _call, _start
from papers.common.trials import _Block
from papers.d53.training import CLIP, RATE, cnn, sigma
from papers.d53.adversary import _Worlds, prepare_pair

SEED = 20261116
ROWS, STEPS = 100, 5
torch.set_num_threads(1)


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Random images of MNIST's size: the time does not depend on the values."""
    rng = np.random.default_rng(SEED)
    images = rng.random((ROWS, 1, 28, 28), dtype=np.float32)
    return images, rng.integers(10, size=ROWS)


def work() -> _Block:
    """A worker's part of an experiment."""
    training = prepare_pair(
        cnn(),
        *rows(),
        row=0,
        candidate=None,
        noise_multiplier=sigma(),
        clip=CLIP,
        learning_rate=RATE,
        steps=STEPS,
        loss=nn.functional.cross_entropy,
        sensitivity="global",
        optimizer="sgd",
        fresh=False,
        test=None,
    )
    return _Block(_Worlds(training), SEED)


def plain(trainings: int) -> None:
    """The same by the book: one process, one row's gradient at a time, both sums in full."""
    images, labels = (torch.from_numpy(part) for part in rows())
    for number in range(trainings):
        module = cnn()
        generator = torch.Generator().manual_seed(number)
        parameters = list(module.parameters())
        evidence = 0.0
        for _ in range(STEPS):
            sums = {True: 0.0, False: 0.0}
            for index in range(ROWS):
                at = slice(index, index + 1)
                loss = nn.functional.cross_entropy(module(images[at]), labels[at])
                gradients = torch.autograd.grad(loss, parameters)
                g = torch.cat([part.reshape(-1) for part in gradients])
                g = g / max(1.0, float(g.norm()) / CLIP)
                sums[True] = sums[True] + g
                if index:
                    sums[False] = sums[False] + g
            scale = sigma() * CLIP
            noise = torch.randn(len(sums[True]), generator=generator) * scale
            noisy = sums[number % 2 == 0] + noise
            gaps = {world: float((noisy - total).square().sum()) for world, total in sums.items()}
            evidence += (gaps[False] - gaps[True]) / (2 * scale**2)
            with torch.no_grad():
                moves = (RATE / ROWS * noisy).split([p.numel() for p in parameters])
                for p, move in zip(parameters, moves, strict=True):
                    p -= move.view_as(p)


def main() -> None:
    options = measure.options(__doc__, peak=1)
    print(f"{'ratio of paired times, one thread each':<{measure.WIDTH}} {'median':>11}  (range)")
    table: dict[str, object] = {}
    workers = available_cores()
    numbers, few = list(range(4 * workers)), 2
    here = work()
    seconds = measure.paired(lambda: here(numbers[:few]), lambda: plain(few), options.times)
    name = f"trials a second, one process / plain loop, {few} trials of {STEPS} steps"
    table[name] = measure.row(name, seconds[:, 1] / seconds[:, 0])
    table["milliseconds of a step, one process"] = round(
        1e3 * float(np.median(seconds[:, 0])) / few / STEPS, 1
    )
    with ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=_start,
        initargs=(pickle.dumps(here),),
    ) as pool:

        def together() -> None:
            list(pool.map(_call, [numbers[k::workers] for k in range(workers)]))

        seconds = measure.paired(together, lambda: here(numbers), options.times)
    name = f"trials a second, {workers} processes / one, {len(numbers)} trials"
    table[name] = measure.row(name, seconds[:, 1] / seconds[:, 0])
    if options.record:
        measure.record("bench-adversary", __file__, SEED, table)


if __name__ == "__main__":
    main()
