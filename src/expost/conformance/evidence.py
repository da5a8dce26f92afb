"""The runs of a trainer on which the checks are based, and the scales that they share.

Conventions
-----------
V         a noisy sum as the claims scale it (:class:`~expost.conformance.tasks.Run`): under the
          claims Σ g + b with b ~ N(0, s²I).
factor    the number by which all of V is off: 1 if learning rate and divisor are as claimed.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from expost.conformance.claims import Claims
from expost.conformance.statistics import Interval, mean_interval, ratio_interval, scale_interval
from expost.conformance.tasks import (
    GROUPS,
    STARTS,
    Group,
    Run,
    Trainer,
    TrainerFailed,
    clipping_rows,
    clipping_rows_sampled,
    few_rows,
    gradient_of,
    observe,
    sampled_rows,
)
from expost.types import FloatArray

__all__ = ["Contribution", "Evidence"]

# The groups whose gradients clipping leaves as they are.
SHORT = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Contribution:
    """What a row of a group adds to one layer of a sum.

    Parameters
    ----------
    group : int
        The group.
    expected : float
        As claimed.
    values : FloatArray
        The values of V at the group's coordinate, over the rows of the group, one for each step.
    """

    group: int
    expected: float
    values: FloatArray


class Evidence:
    """What a trainer published.

    Parameters
    ----------
    level : float
        The probability of a false alarm of each check.
    """

    def __init__(
        self,
        trainer: Trainer,
        claims: Claims,
        *,
        steps: int,
        level: float,
        seeded: Callable[[int], AbstractContextManager[None]],
    ) -> None:
        self.trainer, self.claims, self.steps, self.level = trainer, claims, steps, level
        rows, self.members = clipping_rows(claims)
        full = claims.sampling_rate == 1
        self.runs = [
            observe(trainer, claims, rows, rate=1.0, steps=steps, accounted=full) for _ in range(2)
        ]
        half, _ = clipping_rows(claims, share=2)
        self.half = observe(trainer, claims, half, rate=1.0, steps=steps)
        self.seeded = []
        for _ in range(2):
            with seeded(7):
                self.seeded.append(observe(trainer, claims, rows, rate=1.0, steps=2))
        self.sampled: Run | None = None
        self.grouped: Run | None = None
        self.grouped_members = 0
        self.few: Run | TrainerFailed | None = None
        if claims.sampling_rate < 1:
            self._sample()

    def _sample(self) -> None:
        claims, rate = self.claims, self.claims.sampling_rate
        self.sampled = observe(
            self.trainer,
            claims,
            sampled_rows(claims),
            rate=rate,
            steps=4 * self.steps,
            accounted=True,
        )
        rows, self.grouped_members = clipping_rows_sampled(claims)
        self.grouped = observe(self.trainer, claims, rows, rate=rate, steps=2 * self.steps)
        # Enough steps for the mean of the counts to show that empty batches are missing.
        noise = (claims.noise_scale / claims.bound) ** 2
        steps = min(1000, int(150 * (1 + 3 * noise)))
        try:
            self.few = observe(
                self.trainer, claims, few_rows(claims), rate=rate, steps=steps, finite=False
            )
        except TrainerFailed as error:
            self.few = error

    @property
    def observed(self) -> int:
        """The number of steps."""
        runs: Iterable[Run | TrainerFailed | None] = (
            *(*self.runs, self.half, *self.seeded, self.sampled, self.grouped, self.few),
        )
        return sum(len(run.sums) for run in runs if isinstance(run, Run))

    @cached_property
    def noise(self) -> FloatArray:
        """(steps, coordinates) V of full batches where no row has a gradient."""
        return np.concatenate([run.free for run in self.runs])

    @property
    def has_noise(self) -> bool:
        """Whether there is noise at every step of full batches, beyond rounding."""
        return not np.any(self._silent(self.noise, axis=1))

    @cached_property
    def without_noise(self) -> dict[str, int]:
        """How many steps, and how many coordinates in some run, have no noise at all."""
        runs = [run for run in (*self.runs, self.half, self.sampled, self.grouped) if run]
        return {
            "steps": sum(int(np.sum(self._silent(run.free, axis=1))) for run in runs),
            "coordinates": int(
                np.sum(np.any([self._silent(r.free, axis=0) for r in runs], axis=0))
            ),
        }

    def _silent(self, noise: FloatArray, axis: int) -> NDArray[np.bool_]:
        least = 1e-9 * self.claims.noise_scale
        return np.asarray(~(np.abs(noise).max(axis=axis) > least))

    def open_steps(self, group: Group) -> tuple[int, int]:
        """Return how many first steps a row of the group takes part in, from below and above."""
        budget = self.claims.norm_budget
        if budget is None:
            return self.steps, self.steps
        turns = (
            budget / float(np.linalg.norm(self.claims.clipped(gradient_of(group, self.claims))))
        ) ** 2
        return min(self.steps, int(0.999 * turns)), min(self.steps, int(1.001 * turns) + 1)

    @cached_property
    def contributions(self) -> tuple[Contribution, ...]:
        """What rows of each group contribute to each layer, while they take part."""
        return tuple(
            self.contribution(at, layer, slice(0, self.open_steps(group)[0]))
            for at, group in enumerate(GROUPS)
            for layer, part in enumerate(group.parts)
            if part and self.open_steps(group)[0] > 2
        )

    def contribution(self, at: int, layer: int, steps: slice) -> Contribution:
        """Return what a row of group ``at`` contributes to ``layer`` in these steps."""
        group, claims = GROUPS[at], self.claims
        coordinate = STARTS[layer] + at
        clipped = claims.clipped(gradient_of(group, claims))[0]
        # A third of the rows of an opposite group is clipped to the opposite vector.
        net = 1 / 3 if group.opposite else 1.0
        values = np.concatenate([run.sums[steps, coordinate] for run in self.runs])
        return Contribution(
            group=at,
            expected=net * float(clipped[coordinate]),
            values=values / self.members,
        )

    @cached_property
    def noise_factor(self) -> Interval:
        """The factor from the noise alone, if it is N(0, s²) as claimed."""
        squares = float(np.sum(np.square(self.noise)))
        low, high = scale_interval(squares, self.noise.size, self.level / 4)
        return low / self.claims.noise_scale, high / self.claims.noise_scale

    @cached_property
    def short_factor(self) -> Interval:
        """The factor from short rows alone, which no clipping changes."""
        short = [each for each in self.contributions if each.group < SHORT]
        length = min(len(each.values) for each in short)
        weight = sum(each.expected**2 for each in short)
        means = sum(each.expected * each.values[:length] for each in short) / weight
        return _widened(mean_interval(np.asarray(means), self.level / 4))

    @cached_property
    def factor(self) -> Interval:
        """The factor: 1 if the noise has its claimed scale, else that of short rows.

        A wrong divisor changes noise and rows alike. If one of the two has its claimed scale, the
        other one is wrong by itself.
        """
        return (1.0, 1.0) if contains(self.noise_factor, 1.0) else self.short_factor

    def factor_of(self, run: Run) -> Interval:
        """Return the factor of another run, from the ratio of its noise."""
        low, high = ratio_interval(run.free, self.noise, self.level / 4)
        return low * self.factor[0], high * self.factor[1]


def contains(interval: Interval, value: float) -> bool:
    """Return whether a value lies in an interval; False for NaN."""
    return interval[0] <= value <= interval[1]


def _widened(interval: Interval) -> Interval:
    """Return the interval with room for the rounding of single precision."""
    return interval[0] * (1 - 1e-4), interval[1] * (1 + 1e-4)
