"""The losses of all rows over ε, before any model is released, for :func:`choose_epsilon`.

A sweep answers from the exact law of a row's loss where there is one (:class:`LawSweep`). Its
separations are those of the certified *upper* end of each distance wherever a figure is a bound
(``critical``, ``ceiling``), and those of its lower end in ``high``: outside of [low, high] no row
changes its regime, for certain. Under objective perturbation the law is an approximation
(:mod:`.gradients`), in which ``low`` alone holds for every gradient.

Order statistics of the distances are exact for rows in memory. Those of rows that are read in
blocks are counted, and rounded to the safe side: the transition ends no sooner, and rows leave
their plateau no later, than is reported. Figures of the farthest row alone (``low``, the ceiling)
are exact for both.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from expost._numerics import bracket_root
from expost._order import OrderStatistics, Sorted
from expost.epsilon.gradients import RowGradients
from expost.epsilon.limit import PosteriorLimit
from expost.epsilon.ranked import RankedProfiles, RankedRows
from expost.errors import ConvergenceError, InvalidInput
from expost.mechanisms import ClosedForm
from expost.neighbouring.neighbours import Neighbours
from expost.noise.tabulated import expected_exposures
from expost.noise.transition import Transition
from expost.types import FloatArray, IntArray

__all__ = [
    "Distances",
    "LawSweep",
    "Pair",
    "child",
    "distance_columns",
    "ends_of",
]

# The number of values of ε that are tabulated where none are given.
_EPSILONS = 25
# An end past this is left out of them: no model needs it, and Gaussian noise has no scale there.
_LARGEST_END = 1e10
# How far they reach beyond the ends of interest: below, the accuracy is still to fall.
_BELOW, _ABOVE = 100.0, 10.0
# Order statistics are rounded by a bucket of the histogram, 2⁻⁹.
_COUNTED = (
    "The rows were read in blocks: the end of the transition, the ε at which a share of the rows"
    " leaves its plateau, and figures of the median row come from a sketch of the rows' distances,"
    " accurate to 0.2 % of a distance and rounded to the safe side. Figures of the most exposed row"
    " are as exact as in memory."
)


class Pair(NamedTuple):
    """A figure of two rows over ε, each (k,): the farthest from the base, and the median one."""

    farthest: FloatArray
    median: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Distances:
    """Order statistics of how far each of n rows moves the minimiser.

    Ranks of rows count from 1, the farthest.

    Parameters
    ----------
    distance : OrderStatistics
        The order statistics of the distances themselves.
    lower, upper : OrderStatistics
        Those of the two ends of each distance's certified interval, at least 0.
    """

    distance: OrderStatistics
    lower: OrderStatistics
    upper: OrderStatistics

    @classmethod
    def of(
        cls,
        distance: FloatArray,
        error: FloatArray,
        statistics: Callable[[FloatArray], OrderStatistics] = Sorted,
    ) -> "Distances":
        """Return the statistics of distances that are known to ``error``.

        Parameters
        ----------
        statistics : callable, default=Sorted
            Exact where the rows are held, or the counts of a histogram.
        """
        # An error that is not a number proves nothing.
        error = np.where(np.isnan(error), np.inf, error)
        return cls(
            distance=statistics(distance),
            lower=statistics(np.maximum(distance - error, 0.0)),
            upper=statistics(distance + error),
        )

    def merged(self, other: "Distances") -> "Distances":
        """Return the statistics of the rows of both; ``other`` stays as it is."""
        for name in ("distance", "lower", "upper"):
            getattr(self, name).merge(getattr(other, name))
        return self

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.distance.count

    @property
    def farthest(self) -> float:
        """The largest upper end: no row is farther away, for certain."""
        return self.upper.largest

    @property
    def largest(self) -> float:
        """The largest distance."""
        return self.distance.largest

    @cached_property
    def median(self) -> float:
        """The median distance, rounded up."""
        return self.distance.median

    def at(self, ranks: IntArray) -> FloatArray:
        """Return the distances at ``ranks``, rounded up."""
        return self.distance.at_most(self.rows + 1 - ranks)

    def near(self, rank: int) -> float:
        """Return the rank-th largest lower end, rounded down."""
        return float(self.lower.at_least(np.array([self.rows + 1 - rank]))[0])

    def far(self, ranks: IntArray) -> FloatArray:
        """Return the largest upper ends of these ranks, rounded up."""
        return self.upper.at_most(self.rows + 1 - ranks)


def distance_columns(
    mechanism: ClosedForm, leaves: float, distance: FloatArray, error: FloatArray
) -> dict[str, FloatArray]:
    """Return every figure of rows whose distances are known to ``error``, by name.

    Parameters
    ----------
    leaves : float
        The separation at which a row leaves its first plateau. Under norm-Laplace noise the ε of
        that is ∝ 1/distance (LeBlond Fig. 7).
    """
    return {
        "critical_epsilon": mechanism.epsilon_at(leaves, distance + error),
        "distance": distance,
        "distance_error": error,
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class LawSweep:
    """The sweep of a mechanism whose loss has a law that depends on a row's distance.

    Parameters
    ----------
    mechanism : ClosedForm
        Its public constants; its own ε is not used.
    distances : Distances
        How far the rows are from the base, or how long their gradients are.
    limit : PosteriorLimit
        The posterior that no row may pass.
    tolerance : float
        How far off its plateau a row still counts as on it.
    share : float
        The share of the rows that must have reached the second regime at ``high``.
    models : int
        The number drawn for ``ranked``, from ``seed``: the only figure that is sampled.
    ranked_rows : callable
        Returns the shifts of all rows, or of a sample that it draws from a seed.
    held : tuple[FloatArray, FloatArray], optional
        (distance, error) of rows in memory; those of rows that are read are in their parts.
    most : float, optional
        A bound on every distance; None: their certified upper ends.
    notices : tuple[str, ...], default=()
        What a reader must know of the law, a sentence each.
    epsilons : FloatArray, optional
        (k,) ascending; where none are given, 25 around the transition.
    """

    mechanism: ClosedForm
    distances: Distances
    limit: PosteriorLimit
    tolerance: float
    share: float
    models: int
    seed: np.random.SeedSequence
    ranked_rows: Callable[[np.random.SeedSequence], RankedRows]
    held: tuple[FloatArray, FloatArray] | None = None
    most: float | None = None
    notices: tuple[str, ...] = ()
    workers: int | None = None
    epsilons: FloatArray = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if not len(self.epsilons):
            ends = ends_of(self.low, self.high, self.ceiling())
            object.__setattr__(self, "epsilons", _around(ends))

    @classmethod
    def of(cls, near: Neighbours | RowGradients, **settings: Any) -> "LawSweep":
        """Return the sweep of rows in memory."""
        distance, error = near.distance, near.error_bound
        return cls(
            held=(distance, error),
            distances=Distances.of(distance, error),
            ranked_rows=lambda _: RankedRows(
                shifts=near.shifts, distance=distance, count=len(distance)
            ),
            **settings,
        )

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.distances.rows

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know of the answers, a sentence each."""
        counted = () if self.distances.distance.error == 0 else (_COUNTED,)
        return (*self.notices, *counted)

    @cached_property
    def transition(self) -> Transition:
        """The separations at which any row leaves its first plateau and reaches its second."""
        return self.mechanism.transition(self.tolerance)

    @property
    def measure(self) -> str:
        """The measure of the transition from the first plateau to the second regime."""
        return self.transition.measure

    @cached_property
    def low(self) -> float:
        """The largest ε at which the farthest row, and so every row, is on its first plateau."""
        farthest = np.array([self.farthest])
        return float(self.mechanism.epsilon_at(self.transition.leaves, farthest)[0])

    @cached_property
    def high(self) -> float:
        """The smallest ε at which the share of rows is past ``transition.arrives``."""
        count = max(1, math.ceil(self.share * self.rows - 1e-9))
        return self.mechanism.epsilon_from(self.transition.arrives, self.distances.near(count))

    def critical_at(self, ranks: IntArray) -> FloatArray:
        """Return at most the critical ε at these ranks, 1 for the row that leaves first."""
        return self.mechanism.epsilon_at(self.transition.leaves, self.distances.far(ranks))

    def expected_at(self, ranks: IntArray) -> FloatArray:
        """Return (k, r) the expected exposures at these ranks, 1 for the largest.

        They grow with the distance, at most like its square: they are right to twice the relative
        error of the distances.
        """
        apart = self.distances.at(ranks)
        laws = (self.mechanism.loss_law(apart / resolution) for resolution in self.resolutions)
        return np.stack([law.expected_exposure for law in laws])

    @property
    def farthest(self) -> float:
        """A certified bound on every distance."""
        return self.distances.farthest if self.most is None else self.most

    @cached_property
    def resolutions(self) -> FloatArray:
        """(k,) 1/β or σ at each ε."""
        return self._resolutions_at(self.epsilons)

    def _resolutions_at(self, epsilons: FloatArray) -> FloatArray:
        each = (self.mechanism.with_constants(epsilon=float(e)) for e in epsilons)
        return np.array([mechanism.resolution for mechanism in each])

    @cached_property
    def one_sidedness(self) -> Pair:
        """E[ℓ]/E∣ℓ∣ of the farthest and of the median row.

        From 0 (losses of either sign) to 1 (each model proves the row was in).
        """
        pair = []
        for apart in (self.distances.largest, self.distances.median):
            law = self.mechanism.loss_law(apart / self.resolutions)
            with np.errstate(invalid="ignore"):
                ratio = law.expected_loss / law.expected_exposure
            # A row that the model does not depend on has no loss of either sign.
            pair.append(np.where(law.expected_exposure == 0, 0.0, ratio))
        return Pair(*pair)

    def ceiling(self) -> float:
        """Return the ε of the largest separation whose posterior keeps the limit."""
        # The quantile passes the limit where the losses past it have more than 1 − q.
        most = self.limit.largest_loss * (1 - 1e-11)
        left = 1 - self.limit.quantile

        def passed(separation: FloatArray) -> FloatArray:
            return self.mechanism.loss_law(separation).survival(most) + 1e-11 - left

        top = 1.0
        while not passed(np.array([top]))[0] > 0:
            top *= 4
            if not top < 1e30:
                raise ConvergenceError("no separation passes the posterior; take a smaller one.")
        below, _ = bracket_root(passed, np.array([1e-12]), np.array([top]))
        if not passed(below)[0] <= 0:
            return 0.0
        return float(self.mechanism.epsilon_at(float(below[0]), np.array([self.farthest]))[0])

    def posterior(self, epsilons: FloatArray) -> FloatArray:
        """Return the posterior of the farthest row at the quantile, for each of ``epsilons``."""
        return self.posterior_at(self.farthest, epsilons)

    def posterior_at(self, distance: float, epsilons: FloatArray) -> FloatArray:
        """Return the posterior of a row at ``distance``, for each of ``epsilons``."""
        law = self.mechanism.loss_law(distance / self._resolutions_at(epsilons))
        return self.limit.posterior(law.quantile(self.limit.quantile))

    @cached_property
    def ranked(self) -> RankedProfiles:
        """The rank-averaged profile over sampled models."""
        noise = self.mechanism.unit_noise
        draws = noise.sample(self.models, np.random.default_rng(self.seed))
        # Not by `spawn`, which counts: the same rows are drawn at every call.
        rows = self.ranked_rows(child(self.seed, 0))
        return rows.averages(noise, self.resolutions, draws, workers=self.workers)

    # -- figures of each row, in memory ------------------------------------------------------------

    @cached_property
    def critical(self) -> FloatArray:
        """(n,) the ε at which each row leaves its first plateau."""
        return self.row_columns()["critical_epsilon"]

    @cached_property
    def expected(self) -> FloatArray:
        """(k, n) E∣ℓ∣ by quadrature of the exact law (LeBlond 4.4)."""
        distance, _ = self._held()
        return expected_exposures(self.mechanism.loss_law, distance, 1 / self.resolutions)

    def row_columns(self) -> dict[str, FloatArray]:
        """Return every figure of each row in memory, by name."""
        return distance_columns(self.mechanism, self.transition.leaves, *self._held())

    def _held(self) -> tuple[FloatArray, FloatArray]:
        """Return the distances of rows in memory, and their errors."""
        if self.held is None:
            raise InvalidInput(
                "the sweep over rows that are read in blocks holds no figure of each row; read the"
                " folder epsilon.CURATOR-ONLY.parquet."
            )
        return self.held


def child(seed: np.random.SeedSequence, *key: int) -> np.random.SeedSequence:
    """Return a seed that depends on ``seed`` and ``key`` alone, not on earlier spawned ones."""
    return np.random.SeedSequence(entropy=seed.entropy, spawn_key=(*seed.spawn_key, *key))


def ends_of(*epsilons: float) -> list[float]:
    """Return the ends of interest: those that models can have."""
    return [end for end in epsilons if 0 < end < _LARGEST_END]


def _around(ends: list[float]) -> FloatArray:
    """Return 25 values from well below the first end of interest to well above the last."""
    ends = [end for end in ends if end > 1e-40]
    if not ends:
        return np.geomspace(1e-2, 1e2, _EPSILONS)
    return np.geomspace(min(ends) / _BELOW, max(ends) * _ABOVE, _EPSILONS)
