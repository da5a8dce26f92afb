"""All rows' losses over ε, before any model is released: what :func:`choose_epsilon` looks at.

A sweep answers from the exact law of a row's loss where there is one (:class:`LawSweep`). Its
separations are those of the proved *upper* end of each distance wherever a figure promises
something (``critical``, ``epsilon_for_belief``), and those of its lower end in ``high``: outside of
[low, high] nothing changes shape, for certain.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import expit, logit

from expost._numerics import bracket_root
from expost.epsilon.ranked import RankedProfiles, rank_averages
from expost.epsilon.transition import Transition, transition
from expost.errors import ConvergenceError
from expost.mechanisms import OutputPerturbation
from expost.neighbouring.neighbours import Neighbours
from expost.noise.tabulated import expected_exposures
from expost.types import FloatArray, IntArray

__all__ = [
    "BeliefBound",
    "Distances",
    "LawSweep",
    "OutputSweep",
    "Pair",
    "RowDistances",
    "Sweep",
]


class Pair(NamedTuple):
    """A figure of two rows over ε, each (k,): the farthest from the base, and the median one."""

    farthest: FloatArray
    median: FloatArray


@dataclass(frozen=True, kw_only=True)
class BeliefBound:
    """No row's typical belief may pass ``largest``, from the attacker's ``prior``.

    Typical is the mean over the models it might be, or their ``quantile`` if that is given.
    """

    largest: float
    prior: float = 0.5
    quantile: float | None = None


class Sweep(Protocol):
    """What is known of the losses of n rows at each of k values of ε."""

    @property
    def epsilons(self) -> FloatArray:
        """(k,) ascending."""

    @property
    def rows(self) -> int:
        """n, the rows that were looked at."""

    @property
    def measure(self) -> str:
        """What is followed from the first plateau to the second regime, in words."""

    @property
    def low(self) -> float:
        """The largest ε at which every row is on its first plateau; 0: none; NaN: not known."""

    @property
    def high(self) -> float:
        """The smallest ε at which the asked share of rows is in its second regime."""

    @property
    def critical(self) -> FloatArray:
        """(n,) the ε at which each row leaves its first plateau; 0: it has at any; NaN: unknown."""

    @property
    def one_sidedness(self) -> Pair:
        """E[ℓ]/E∣ℓ∣, from 0 (losses of either sign) to 1 (each model proves the row was in)."""

    @property
    def typical(self) -> FloatArray:
        """(k, n) E∣ℓ∣ of every row."""

    @property
    def ranked(self) -> RankedProfiles:
        """The rank-averaged profile."""

    def epsilon_for_belief(self, bound: BeliefBound) -> float:
        """The largest ε that keeps the bound, rounded down; 0 if none does."""

    def belief(self, bound: BeliefBound, epsilons: FloatArray) -> FloatArray:
        """The largest typical belief of any row, at each of ``epsilons``."""


class Distances(Protocol):
    """How far each of n rows moves the minimiser, all rows together: no row has a name here.

    Ranks are counted from 1, the farthest row. A distance is known to its own proved error; where
    order statistics are only known to lie between two ends, ``near`` takes the lower and all others
    the upper one.
    """

    @property
    def rows(self) -> int:
        """The number n of rows."""

    @property
    def farthest(self) -> float:
        """The largest upper end: no row is farther away, for certain."""

    @property
    def largest(self) -> float:
        """The largest distance."""

    @property
    def median(self) -> float:
        """The median distance."""

    @property
    def least(self) -> float:
        """The least distance > 0, or infinity where no row moves the model."""

    @property
    def error(self) -> float:
        """The relative error of ``median`` and ``at``: 0 where all rows are held."""

    def at(self, ranks: IntArray) -> FloatArray:
        """The distances at ``ranks``."""

    def near(self, rank: int) -> float:
        """At most the rank-th largest of all lower ends, and at least 0."""

    def far(self, ranks: IntArray) -> FloatArray:
        """At least the largest upper ends of these ranks."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RowDistances:
    """The distances (n,) of rows that are held, and the proved error of each."""

    distance: FloatArray
    error_bound: FloatArray

    error = 0.0

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return len(self.distance)

    @cached_property
    def farthest(self) -> float:
        """The largest upper end."""
        return float(np.max(self.distance + self.error_bound))

    @cached_property
    def largest(self) -> float:
        """The largest distance."""
        return float(np.max(self.distance))

    @cached_property
    def median(self) -> float:
        """The median distance."""
        return float(np.median(self.distance))

    @property
    def least(self) -> float:
        """The least distance > 0."""
        return float(np.min(self.distance[self.distance > 0], initial=math.inf))

    def at(self, ranks: IntArray) -> FloatArray:
        """The distances at ``ranks``."""
        return self._descending[ranks - 1]

    @cached_property
    def _descending(self) -> FloatArray:
        return np.sort(self.distance)[::-1]

    def near(self, rank: int) -> float:
        """The rank-th largest lower end."""
        near = np.maximum(self.distance - self.error_bound, 0.0)
        return float(np.partition(near, len(near) - rank)[len(near) - rank])

    def far(self, ranks: IntArray) -> FloatArray:
        """The largest upper ends."""
        return np.sort(self.distance + self.error_bound)[::-1][ranks - 1]


@dataclass(frozen=True, kw_only=True, eq=False)
class LawSweep(ABC):
    """The sweep of output perturbation, from the exact law of a row's loss at its distance.

    ``mechanism``  its public constants; its own ε plays no part.
    ``tolerance``  how far off its plateau a row still counts as on it.
    ``share``      of the rows that must have reached the second regime at ``high``.
    """

    mechanism: OutputPerturbation
    epsilons: FloatArray
    tolerance: float
    share: float

    @property
    @abstractmethod
    def distances(self) -> Distances:
        """How far the rows are from the base."""

    @property
    @abstractmethod
    def critical(self) -> FloatArray:
        """(n,) ∝ 1/distance under norm-Laplace noise (LeBlond Fig. 7)."""

    @property
    @abstractmethod
    def typical(self) -> FloatArray:
        """(k, n) E∣ℓ∣ by quadrature of the exact law (LeBlond 4.4)."""

    @property
    @abstractmethod
    def ranked(self) -> RankedProfiles:
        """The rank-averaged profile over sampled models."""

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.distances.rows

    @cached_property
    def transition(self) -> Transition:
        """The separations at which any row leaves its first plateau and reaches its second."""
        return transition(
            noise=self.mechanism.noise,
            dimension=self.mechanism.dimension,
            tolerance=self.tolerance,
        )

    @property
    def measure(self) -> str:
        """What is followed."""
        return self.transition.measure

    @cached_property
    def low(self) -> float:
        """The largest ε at which the farthest row, and so every row, is on its first plateau."""
        return float(self.mechanism.epsilon_at(self.transition.leaves, self._farthest)[0])

    @cached_property
    def high(self) -> float:
        """The smallest ε at which the share of rows is past ``transition.arrives``."""
        count = max(1, math.ceil(self.share * self.rows - 1e-9))
        return self.mechanism.epsilon_from(self.transition.arrives, self.distances.near(count))

    def critical_at(self, ranks: IntArray) -> FloatArray:
        """At most the critical ε at these ranks, 1 for the row that leaves first."""
        return self.mechanism.epsilon_at(self.transition.leaves, self.distances.far(ranks))

    def typical_at(self, ranks: IntArray) -> FloatArray:
        """(k, r) the typical exposures at these ranks, 1 for the largest: they grow with distance.

        To twice the relative error of the distances: E∣ℓ∣ grows at most like their squares.
        """
        apart = self.distances.at(ranks)
        laws = (self.mechanism.loss_law(apart / resolution) for resolution in self.resolutions)
        return np.stack([law.expected_exposure for law in laws])

    @property
    def _farthest(self) -> FloatArray:
        return np.array([self.distances.farthest])

    @cached_property
    def resolutions(self) -> FloatArray:
        """(k,) 1/β or σ at each ε."""
        return self.resolutions_at(self.mechanism, self.epsilons)

    @staticmethod
    def resolutions_at(mechanism: OutputPerturbation, epsilons: FloatArray) -> FloatArray:
        """1/β or σ at each of ``epsilons``."""
        return np.array([replace(mechanism, epsilon=float(e)).resolution for e in epsilons])

    @cached_property
    def one_sidedness(self) -> Pair:
        """E[ℓ]/E∣ℓ∣ of the farthest and of the median row."""
        pair = []
        for apart in (self.distances.largest, self.distances.median):
            law = self.mechanism.loss_law(apart / self.resolutions)
            with np.errstate(invalid="ignore"):
                ratio = law.expected_loss / law.expected_exposure
            # A row that the model does not depend on has no loss of either sign.
            pair.append(np.where(law.expected_exposure == 0, 0.0, ratio))
        return Pair(*pair)

    def epsilon_for_belief(self, bound: BeliefBound) -> float:
        """From the largest separation whose typical belief keeps the bound."""
        passed = self._passed(bound)
        top = 1.0
        while not passed(np.array([top]))[0] > 0:
            top *= 4
            if not top < 1e30:
                raise ConvergenceError("no separation passes the belief; take a smaller one.")
        below, _ = bracket_root(passed, np.array([1e-12]), np.array([top]))
        if not passed(below)[0] <= 0:
            return 0.0
        return float(self.mechanism.epsilon_at(float(below[0]), self._farthest)[0])

    def _passed(self, bound: BeliefBound) -> Callable[[FloatArray], FloatArray]:
        """A function of the separation that is > 0 where the bound is passed."""
        if bound.quantile is None:
            # The law's figures are right to about 1e-12.
            return lambda separation: (
                self.mechanism.loss_law(separation).expected_belief(bound.prior) * (1 + 1e-11)
                - bound.largest
            )
        # The quantile passes the bound where the losses past it have more than 1 − q.
        most = float(logit(bound.largest) - logit(bound.prior)) * (1 - 1e-11)
        left = 1 - bound.quantile
        return lambda separation: self.mechanism.loss_law(separation).survival(most) + 1e-11 - left

    def belief(self, bound: BeliefBound, epsilons: FloatArray) -> FloatArray:
        """That of the farthest row: a typical belief grows with the separation."""
        scales = 1 / self.resolutions_at(self.mechanism, epsilons)
        law = self.mechanism.loss_law(self._farthest * scales)
        if bound.quantile is None:
            return law.expected_belief(bound.prior)
        belief: FloatArray = expit(logit(bound.prior) + law.quantile(bound.quantile))
        return belief


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputSweep(LawSweep):
    """The sweep of rows that are held; only ``ranked`` samples models.

    ``models``  drawn for ``ranked``, from ``seed``.
    """

    neighbours: Neighbours
    models: int
    seed: np.random.SeedSequence
    workers: int | None = None

    @cached_property
    def distances(self) -> Distances:
        """Those of all rows."""
        near = self.neighbours
        return RowDistances(distance=near.distance, error_bound=near.error_bound)

    @property
    def far(self) -> FloatArray:
        """(n,) the upper end of each row's distance."""
        return self.neighbours.distance + self.neighbours.error_bound

    @cached_property
    def critical(self) -> FloatArray:
        """(n,) ∝ 1/distance under norm-Laplace noise (LeBlond Fig. 7)."""
        return self.mechanism.epsilon_at(self.transition.leaves, self.far)

    @cached_property
    def typical(self) -> FloatArray:
        """(k, n) E∣ℓ∣ by quadrature of the exact law (LeBlond 4.4)."""
        scales = 1 / self.resolutions
        return expected_exposures(self.mechanism.loss_law, self.neighbours.distance, scales)

    @cached_property
    def ranked(self) -> RankedProfiles:
        """The rank-averaged profile over sampled models."""
        noise = self.mechanism.unit_noise
        return rank_averages(
            self.neighbours.shifts,
            self.neighbours.distance,
            noise,
            self.resolutions,
            noise.sample(self.models, np.random.default_rng(self.seed)),
            workers=self.workers,
        )
