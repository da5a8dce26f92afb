"""The rank-averaged privacy profile: the paper's typical profile (LeBlond 4.4, Fig. 5).

A model's profile is its exposures sorted; the ranking differs from model to model, so that its mean
over models has no closed form and is sampled. Here the models of every ε share their draws: with b
the noise at unit resolution, ρ·b is the noise at resolution ρ (1/β or σ), so one matrix product
with the shifts serves all ε, and curves over ε do not jump about. What is left for each ε and model
is a few operations a row and one sort, in threads.

With lengths in units of ρ, a row's loss depends on r = ∥b∥ and the excess

    ∥b − s/ρ∥² − ∥b∥² = (distance/ρ)² − 2 b·s/ρ.
"""

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost._expansion import Shifts
from expost._sketch import Sketch
from expost.noise import Noise
from expost.types import FloatArray, IntArray

__all__ = ["MOST_ROWS", "RankedProfiles", "rank_averages", "sketched_ranks"]

# Past so many rows a profile is sketched at `_RANKS` ranks.
MOST_ROWS = 200_000
_RANKS = 2_000
# Inner products held at a time (32 MiB), whatever n and the number of models are.
_BLOCK_PRODUCTS = 2**22
# Models and rows at a time where profiles are sketched.
_SKETCHED_MODELS = 8
_SKETCHED_ROWS = 2**16
# Exposures are sorted in single precision, which takes two thirds of the time.
_SORTED_ERROR = 2.0**-24


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedProfiles:
    """Means over models of the exposure at each rank, for every ε.

    ``ranks``       (r,) counted from 1, the least exposed; all of 1 … n unless sketched.
    ``mean``        (k, r) the mean over models.
    ``error``       (k, r) its standard error.
    ``resolution``  the relative error of each exposure before it is averaged: of rounding, or of
                    the sketch.
    """

    ranks: IntArray
    mean: FloatArray
    error: FloatArray
    resolution: float


def rank_averages(
    shifts: Shifts,
    distance: FloatArray,
    noise: Noise,
    resolutions: FloatArray,
    draws: FloatArray,
    *,
    workers: int | None = None,
) -> RankedProfiles:
    """Average the sorted exposures over the models A + ρ·b, for each resolution ρ.

    ``noise``    at unit resolution, and ``draws`` (models, d) of it.
    ``workers``  threads, as many as there are cores if None; the result does not depend on it.
    """
    sweep = _Sweep(
        shifts=shifts, distance=distance, noise=noise, resolutions=resolutions, draws=draws
    )
    work = _sorted_profiles if len(distance) <= MOST_ROWS else _sketched_profiles
    with ThreadPoolExecutor(workers or _cores()) as pool:

        def each(task: Callable[[int], None]) -> None:
            # Every ε is one task: its models are added in their order, whichever thread it is.
            for _ in pool.map(task, range(len(resolutions))):
                pass

        return work(sweep, each)


def sketched_ranks(rows: int) -> IntArray:
    """2,000 ranks: half of them evenly spread, half ever closer towards the most exposed row."""
    ranks = set(np.round(np.linspace(1, rows, _RANKS // 2)).astype(int).tolist())
    from_the_top = rows + 1 - np.round(np.geomspace(1, rows, 2 * _RANKS)).astype(int)
    for rank in from_the_top.tolist():
        if len(ranks) == _RANKS:
            break
        ranks.add(rank)
    return np.array(sorted(ranks), dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sweep:
    """Sampled models, and the exposures of rows in them."""

    shifts: Shifts
    distance: FloatArray
    noise: Noise
    resolutions: FloatArray
    draws: FloatArray

    def exposures(
        self, place: int, models: slice, inner: FloatArray, rows: slice
    ) -> Iterator[FloatArray]:
        """∣loss∣ of ``rows`` at the place-th ε, model after model; each overwrites the last."""
        scale = 1 / float(self.resolutions[place])
        squares = (scale * self.distance[rows]) ** 2
        loss, scratch = np.empty_like(squares), np.empty_like(squares)
        norms = np.linalg.norm(self.draws[models], axis=1)
        for norm, products in zip(norms, inner, strict=True):
            np.multiply(products, -2 * scale, out=loss)
            np.add(loss, squares, out=loss)
            self.noise.loss_in_place(float(norm), loss, scratch)
            yield np.abs(loss, out=loss)

    def largest(self, place: int) -> float:
        """A bound on every exposure: that of the farthest row, right behind the largest noise."""
        norm = float(np.max(np.linalg.norm(self.draws, axis=1)))
        apart = float(np.max(self.distance)) / float(self.resolutions[place])
        behind = np.array([apart * (apart + 2 * norm)])
        self.noise.loss_in_place(norm, behind, np.empty(1))
        return max(float(behind[0]) * (1 + 1e-9), 1e-200)


class _Moments:
    """Mean and standard error of vectors, taken from their differences to the first one."""

    def __init__(self, size: int) -> None:
        self._first = np.zeros(size)
        self._sum, self._squares = np.zeros(size), np.zeros(size)
        self._count = 0

    def add(self, values: NDArray[Any]) -> None:
        if self._count == 0:
            self._first[:] = values
        else:
            difference = values - self._first
            self._sum += difference
            difference *= difference
            self._squares += difference
        self._count += 1

    def mean_and_error(self) -> tuple[FloatArray, FloatArray]:
        shift = self._sum / self._count
        variance = np.maximum(self._squares / self._count - shift * shift, 0.0)
        # One model says nothing of the spread.
        error = np.sqrt(variance / (self._count - 1)) if self._count > 1 else variance + np.inf
        return self._first + shift, error


def _collected(moments: list[_Moments], ranks: IntArray, resolution: float) -> RankedProfiles:
    pairs = [moment.mean_and_error() for moment in moments]
    return RankedProfiles(
        ranks=ranks,
        mean=np.stack([mean for mean, _ in pairs]),
        error=np.stack([error for _, error in pairs]),
        resolution=resolution,
    )


def _sorted_profiles(
    sweep: _Sweep, each: Callable[[Callable[[int], None]], None]
) -> RankedProfiles:
    """Every rank: one sort for each ε and model."""
    everything = slice(0, len(sweep.distance))
    moments = [_Moments(everything.stop) for _ in sweep.resolutions]
    # A power of two near the largest exposure, so that single precision neither over- nor
    # underflows.
    units = [2.0 ** round(math.log2(sweep.largest(place))) for place in range(len(moments))]
    for models in _slices(len(sweep.draws), max(1, _BLOCK_PRODUCTS // everything.stop)):
        inner = sweep.shifts.inners(sweep.draws[models], everything)

        def average(place: int, models: slice = models, inner: FloatArray = inner) -> None:
            for exposure in sweep.exposures(place, models, inner, everything):
                exposure /= units[place]
                profile = exposure.astype(np.float32)
                profile.sort()
                moments[place].add(profile)

        each(average)
    scale = np.array(units)[:, None]
    found = _collected(moments, np.arange(1, everything.stop + 1), _SORTED_ERROR)
    return replace(found, mean=scale * found.mean, error=scale * found.error)


def _sketched_profiles(
    sweep: _Sweep, each: Callable[[Callable[[int], None]], None]
) -> RankedProfiles:
    """2,000 ranks of very many rows, which are passed over block by block."""
    rows = len(sweep.distance)
    ranks = sketched_ranks(rows)
    moments = [_Moments(len(ranks)) for _ in sweep.resolutions]
    tops = [sweep.largest(place) for place in range(len(moments))]
    for models in _slices(len(sweep.draws), _SKETCHED_MODELS):
        sketches = [[Sketch(top) for _ in sweep.draws[models]] for top in tops]
        for block in _slices(rows, _SKETCHED_ROWS):
            inner = sweep.shifts.inners(sweep.draws[models], block)

            def count(
                place: int,
                models: slice = models,
                block: slice = block,
                inner: FloatArray = inner,
                sketches: list[list[Sketch]] = sketches,
            ) -> None:
                exposures = sweep.exposures(place, models, inner, block)
                for sketch, exposure in zip(sketches[place], exposures, strict=True):
                    sketch.add(exposure)

            each(count)
        for moment, drawn in zip(moments, sketches, strict=True):
            for sketch in drawn:
                moment.add(sketch.at(ranks))
    return _collected(moments, ranks, Sketch.RELATIVE_ERROR)


def _slices(total: int, step: int) -> Iterator[slice]:
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
