"""The rank-averaged privacy profile, called typical profile in the paper (LeBlond 4.4, Fig. 5).

A model's profile is its exposures sorted; the ranking differs from model to model, so that its mean
over models has no closed form and is sampled. Here the models of every ε share their draws: with b
the noise at unit resolution, ρ·b is the noise at resolution ρ (1/β or σ), so one matrix product
with the shifts serves all ε, and curves over ε do not jump about. What is left for each ε and model
is a few operations a row and one sort, in threads.

With lengths in units of ρ, a row's loss depends on r = ∥b∥ and the excess

    ∥b − s/ρ∥² − ∥b∥² = (distance/ρ)² − 2 b·s/ρ.

Rows that are read. A profile sorts the exposures of all rows in each of k·m models, which over
n = 10⁷ rows is 5·10¹⁰ evaluations. So at most 2¹⁷ rows are drawn, independently and with the same
probability each, and their exposures are sorted. In one model let F be the distribution function
of the n exposures, and F_s that of s drawn rows. By Dvoretzky, Kiefer, Wolfowitz and Massart
P(sup∣F_s − F∣ > t) ≤ 2e^(−2st²). With

    t = √(ln(2·k·m/10⁻³)/(2s))

this holds in all k·m models at once with probability 1 − 10⁻³: what is given for rank r of n is,
before it is averaged over models, the exposure at a rank between r − t·n and r + t·n (and one more
on either side, for rounding). The farthest row is not among these figures: the law of its loss is
exact (:class:`expost.epsilon.sweep.LawSweep`).
"""

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost._order import Histogram
from expost.engine import Engine, LocalEngine
from expost.glm import Objective
from expost.neighbouring.shifts import Shifts
from expost.noise import Noise
from expost.rows import RowBlock
from expost.types import FloatArray, IntArray

__all__ = [
    "MOST_ROWS",
    "SAMPLED_ROWS",
    "RankedProfiles",
    "RankedRows",
    "SampledModels",
    "rank_averages",
    "rank_error",
    "sketched_ranks",
]

# Past so many rows a profile is sketched at `_RANKS` ranks.
MOST_ROWS = 200_000
_RANKS = 2_000
# Inner products held at a time (32 MiB), whatever n and the number of models are.
_BLOCK_PRODUCTS = 2**22
# Models and rows at a time where profiles are sketched.
_SKETCHED_MODELS = 8
_SKETCHED_ROWS = 2**16
# Once the excess is known nothing cancels any more: the rest is done in single precision, in half
# the time. A handful of roundings, each 2⁻²⁴.
_SORTED_ERROR = 2.0**-21
# Between these the squares of single precision neither over- nor underflow.
_SINGLE = (1e-15, 1e15)
# Profiles that are added up at a time.
_BATCH = 8
# Rows that are read and drawn at most, and entries of their shifts (32 MiB): 0.8 % of the ranks.
SAMPLED_ROWS = 2**17
_ENTRIES = 2**22
# The probability with which any of the models may be further off than is stated.
_FAILURE = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedProfiles:
    """Means over models of the exposure at each rank, for every ε.

    Parameters
    ----------
    ranks : IntArray
        (r,) counted from 1, the least exposed; all of 1 … n unless sketched.
    mean : FloatArray
        (k, r) the mean over models.
    error : FloatArray
        (k, r) its standard error.
    resolution : float
        The relative error of each exposure before it is averaged: of rounding, or of the sketch.
    rank_error : float, default=0.0
        The share of the rows by which a rank may be off, where only a sample of them was ranked; 0
        otherwise.
    """

    ranks: IntArray
    mean: FloatArray
    error: FloatArray
    resolution: float
    rank_error: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedRows:
    """The shifts and distances of the rows that are ranked: all of ``count``, or a sample."""

    shifts: Shifts
    distance: FloatArray
    count: int

    @classmethod
    def sampled(
        cls, objective: Objective, losses: Callable[[RowBlock], Any], seed: np.random.SeedSequence
    ) -> "RankedRows":
        """Return all rows, or a random sample of very many: one pass.

        Parameters
        ----------
        losses : callable
            A function of a block that returns its rows' ``shifts`` and ``distance``.
        """
        n = objective.count
        size = min(n, SAMPLED_ROWS, max(1, _ENTRIES // objective.columns))
        task = _SampledRows(losses=losses, seed=seed, rows=n, size=size)
        parts = [part for part in objective.map(task) if part is not None]
        shifts, distance = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(shifts=Shifts.dense(shifts), distance=distance, count=n)

    def averages(
        self, noise: Noise, resolutions: FloatArray, draws: FloatArray, *, workers: int | None
    ) -> "RankedProfiles":
        """Return the rank-averaged profile of all ``count`` rows (:func:`rank_averages`)."""
        profiles = rank_averages(
            self.shifts, self.distance, noise, resolutions, draws, workers=workers
        )
        n, size = self.count, len(self.distance)
        if size == n:
            return profiles
        # A sample's rank stands for the middle of the n/s ranks that it may have among all.
        ranks = np.ceil((profiles.ranks - 0.5) * (n / size)).astype(np.int64)
        error = rank_error(size, len(resolutions) * len(draws))
        return replace(profiles, ranks=np.clip(ranks, 1, n), rank_error=error)


def rank_error(sampled: int, profiles: int) -> float:
    """Return t: the error of a rank as a share of n, in ``profiles`` profiles at once."""
    return math.sqrt(math.log(2 * profiles / _FAILURE) / (2 * sampled))


@dataclass(frozen=True, kw_only=True, eq=False)
class _SampledRows:
    """Return the shifts (s, d) and distances (s,) of those rows of a block that were drawn.

    Parameters
    ----------
    seed : np.random.SeedSequence
        The seed by which every worker draws the same rows: their indices are not sent.
    """

    losses: Callable[[RowBlock], Any]
    seed: np.random.SeedSequence
    rows: int
    size: int

    @cached_property
    def index(self) -> IntArray:
        """(s,) the drawn rows, counted from 0, ascending; some of them twice."""
        if self.size >= self.rows:
            return np.arange(self.rows)
        return np.sort(np.random.default_rng(self.seed).integers(self.rows, size=self.size))

    def __call__(self, block: RowBlock) -> tuple[FloatArray, FloatArray] | None:
        """Return the drawn rows of a block, or None."""
        first, last = np.searchsorted(self.index, (block.start, block.start + len(block)))
        if first == last:
            return None
        near = self.losses(block.take(self.index[first:last] - block.start))
        return near.shifts.all(), near.distance

    def __getstate__(self) -> dict[str, object]:
        """Leave the indices out."""
        return {name: value for name, value in self.__dict__.items() if name != "index"}


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

    Parameters
    ----------
    noise : Noise
        At unit resolution, and ``draws`` (models, d) of it.
    workers : int, optional
        Threads, as many as there are cores if None; the result does not depend on it.
    """
    sweep = SampledModels(
        shifts=shifts, distance=distance, noise=noise, resolutions=resolutions, draws=draws
    )
    work = _sorted_profiles if len(distance) <= MOST_ROWS else _sketched_profiles
    # Every ε is one task: its models are added in their order, in any thread.
    with closing(LocalEngine(workers)) as engine:
        return work(sweep, engine)


def sketched_ranks(rows: int) -> IntArray:
    """Return 2,000 ranks: half evenly spread, half concentrated at the most exposed rows."""
    ranks = set(np.round(np.linspace(1, rows, _RANKS // 2)).astype(int).tolist())
    from_the_top = rows + 1 - np.round(np.geomspace(1, rows, 2 * _RANKS)).astype(int)
    for rank in from_the_top.tolist():
        if len(ranks) == _RANKS:
            break
        ranks.add(rank)
    return np.array(sorted(ranks), dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledModels:
    """Sampled models, and the exposures of rows in them.

    Parameters
    ----------
    shifts : Shifts
        From the minimiser to that without each row.
    distance : FloatArray
        (n,) their lengths.
    noise : Noise
        The law of the noise at resolution 1.
    resolutions : FloatArray
        (e,) the scale of the noise at each ε.
    draws : FloatArray
        (m, d) the noise of each model at resolution 1.
    """

    shifts: Shifts
    distance: FloatArray
    noise: Noise
    resolutions: FloatArray
    draws: FloatArray

    def exposures(
        self, index: int, models: slice, inner: FloatArray, rows: slice, kind: type = np.float64
    ) -> Iterator[NDArray[Any]]:
        """Yield ∣loss∣ of ``rows`` at the ε of ``index``, by model; each overwrites the last.

        ``kind`` is the precision of what follows the excess.
        """
        scale = 1 / float(self.resolutions[index])
        squares = (scale * self.distance[rows]) ** 2
        excess = np.empty_like(squares)
        loss: NDArray[Any] = np.empty(len(squares), kind)
        scratch: NDArray[Any] = np.empty(len(squares), kind)
        norms = np.linalg.norm(self.draws[models], axis=1)
        for norm, products in zip(norms, inner, strict=True):
            np.multiply(products, -2 * scale, out=excess)
            np.add(excess, squares, out=excess)
            np.copyto(loss, excess, casting="same_kind")
            self.noise.loss_in_place(float(norm), loss, scratch)
            yield np.abs(loss, out=loss)

    def largest(self, index: int) -> float:
        """Return a bound on every exposure: the farthest row, opposite to the largest noise."""
        norm = float(np.max(np.linalg.norm(self.draws, axis=1)))
        apart = float(np.max(self.distance)) / float(self.resolutions[index])
        behind = np.array([apart * (apart + 2 * norm)])
        self.noise.loss_in_place(norm, behind, np.empty(1))
        return max(float(behind[0]) * (1 + 1e-9), 1e-200)


class _Moments:
    """Mean and standard error of vectors, taken from their differences to the first one."""

    def __init__(self, size: int) -> None:
        self._first: NDArray[Any] | None = None
        self._sum, self._squares = np.zeros(size), np.zeros(size)
        self._count = 0

    def add(self, batch: NDArray[Any]) -> None:
        """Count the rows of ``batch`` (m, size), which is overwritten."""
        if self._first is None:
            self._first = batch[0].copy()
        batch -= self._first
        self._sum += np.add.reduce(batch, axis=0)
        self._squares += np.einsum("ij,ij->j", batch, batch)
        self._count += len(batch)

    def mean_and_error(self) -> tuple[FloatArray, FloatArray]:
        assert self._first is not None
        shift = self._sum / self._count
        variance = np.maximum(self._squares / self._count - shift * shift, 0.0)
        # One model does not determine the spread.
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


def _sorted_profiles(sweep: SampledModels, engine: Engine) -> RankedProfiles:
    """Every rank: one sort for each ε and model."""
    everything = slice(0, len(sweep.distance))
    moments = [_Moments(everything.stop) for _ in sweep.resolutions]
    kinds = [
        np.float32 if _SINGLE[0] < sweep.largest(index) < _SINGLE[1] else np.float64
        for index in range(len(moments))
    ]
    for models in _slices(len(sweep.draws), max(_BATCH, _BLOCK_PRODUCTS // everything.stop)):
        inner = sweep.shifts.inners(sweep.draws[models], everything)

        def average(index: int, models: slice = models, inner: FloatArray = inner) -> None:
            exposures = sweep.exposures(index, models, inner, everything, kinds[index])
            batch = np.empty((_BATCH, everything.stop), kinds[index])
            for some in _slices(len(inner), _BATCH):
                part = batch[: some.stop - some.start]
                for row in part:
                    row[:] = next(exposures)
                    row.sort()
                moments[index].add(part)

        list(engine.map(average, range(len(moments))))
    return _collected(moments, np.arange(1, everything.stop + 1), _SORTED_ERROR)


def _sketched_profiles(sweep: SampledModels, engine: Engine) -> RankedProfiles:
    """2,000 ranks of very many rows, which are passed over block by block."""
    rows = len(sweep.distance)
    ranks = sketched_ranks(rows)
    moments = [_Moments(len(ranks)) for _ in sweep.resolutions]
    tops = [sweep.largest(index) for index in range(len(moments))]
    for models in _slices(len(sweep.draws), _SKETCHED_MODELS):
        sketches = [[Histogram(top) for _ in sweep.draws[models]] for top in tops]
        for block in _slices(rows, _SKETCHED_ROWS):
            inner = sweep.shifts.inners(sweep.draws[models], block)

            def count(
                index: int,
                models: slice = models,
                block: slice = block,
                inner: FloatArray = inner,
                sketches: list[list[Histogram]] = sketches,
            ) -> None:
                exposures = sweep.exposures(index, models, inner, block)
                for sketch, exposure in zip(sketches[index], exposures, strict=True):
                    sketch.add(exposure)

            list(engine.map(count, range(len(moments))))
        for moment, drawn in zip(moments, sketches, strict=True):
            moment.add(np.stack([sketch.at(ranks) for sketch in drawn]))
    return _collected(moments, ranks, Histogram.RELATIVE_ERROR)


def _slices(total: int, step: int) -> Iterator[slice]:
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))
