"""The rank-averaged profile of rows that are not held: that of a random sample of them.

A profile sorts the exposures of all rows in each of k·m models, which over n = 10⁷ rows is 5·10¹⁰
evaluations and answers to the last rank a question that nobody asks so finely. So rows are drawn,
independently and with the same chance each, and theirs are sorted.

Formal guarantees
-----------------
In one model let F be the distribution function of the n exposures, and F_s that of s rows drawn
independently. By Dvoretzky, Kiefer, Wolfowitz and Massart P(sup∣F_s − F∣ > t) ≤ 2e^(−2st²). With

    t = √(ln(2·k·m/10⁻³)/(2s))

this holds in all k·m models at once with probability 1 − 10⁻³: what is given for rank r of n is,
before it is averaged over models, the exposure at a rank between r − t·n and r + t·n (and one more
on either side, for rounding). The farthest row is not among these figures: the law of its loss is
exact (:class:`expost.epsilon.sweep.LawSweep`).
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from expost.epsilon.ranked import RankedProfiles, rank_averages
from expost.glm import Objective
from expost.neighbouring.shifts import Shifts
from expost.noise import Noise
from expost.profiles.streamed_losses import BlockLosses
from expost.rows import RowBlock
from expost.types import FloatArray, IntArray

__all__ = ["RANKED_ROWS", "rank_error", "ranked_sample"]

# Rows that are drawn at most, and entries of their shifts (32 MiB): 0.8 % of the ranks.
RANKED_ROWS = 2**17
_ENTRIES = 2**22
# The probability with which any of the models may be further off than is stated.
_SELDOM = 1e-3


def rank_error(sampled: int, profiles: int) -> float:
    """t: by what share of n a rank may be off, in so many profiles at once."""
    return math.sqrt(math.log(2 * profiles / _SELDOM) / (2 * sampled))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sample:
    """The shifts (s, d) and distances (s,) of those rows of a block that were drawn.

    ``seed``  from which whoever has a block draws the same places: they need not travel.
    """

    losses: BlockLosses
    seed: np.random.SeedSequence
    rows: int
    size: int

    @cached_property
    def places(self) -> IntArray:
        """(s,) the rows, counted from 0, ascending; some of them twice."""
        if self.size >= self.rows:
            return np.arange(self.rows)
        return np.sort(np.random.default_rng(self.seed).integers(self.rows, size=self.size))

    def __call__(self, block: RowBlock) -> tuple[FloatArray, FloatArray] | None:
        """Those of one block."""
        first, last = np.searchsorted(self.places, (block.start, block.start + len(block)))
        if first == last:
            return None
        drawn = self.places[first:last] - block.start
        near = self.losses.neighbours(block.take(drawn))
        return near.shifts.all(), near.distance

    def __reduce__(self) -> tuple[object, ...]:
        """It travels without its places."""
        return _made, (self.losses, self.seed, self.rows, self.size)


def _made(losses: BlockLosses, seed: np.random.SeedSequence, rows: int, size: int) -> _Sample:
    return _Sample(losses=losses, seed=seed, rows=rows, size=size)


def ranked_sample(
    problem: Objective,
    losses: BlockLosses,
    noise: Noise,
    resolutions: FloatArray,
    draws: FloatArray,
    seed: np.random.SeedSequence,
) -> RankedProfiles:
    """:func:`expost.epsilon.ranked.rank_averages` of all rows, or of a sample: one pass."""
    n = problem.count
    size = min(n, RANKED_ROWS, max(1, _ENTRIES // problem.columns))
    task = _Sample(losses=losses, seed=seed, rows=n, size=size)
    found = [part for part in problem.map(task) if part is not None]
    shifts, distance = (np.concatenate(column) for column in zip(*found, strict=True))
    workers = problem.table.engine.workers
    profiles = rank_averages(
        Shifts.dense(shifts), distance, noise, resolutions, draws, workers=workers
    )
    if size >= n:
        return profiles
    # A sample's rank stands for the middle of the n/s ranks that it may have among all.
    ranks = np.ceil((profiles.ranks - 0.5) * (n / size)).astype(np.int64)
    off = rank_error(size, len(resolutions) * len(draws))
    return replace(profiles, ranks=np.clip(ranks, 1, n), rank_error=off)
