"""Mechanisms whose law is not known in closed form: the sweep over ε from sampled models.

The transition is followed in the one-sidedness E[ℓ]/E∣ℓ∣ of the losses, from 0 to 1 for every
mechanism and dimension: a row leaves its first plateau where that passes ``tolerance`` τ, and is in
its second regime from 1 − τ on. Every answer is an ε at which models were drawn: a crossing between
two values is closed in on by halving, never interpolated, and the end that is safe is returned.

All ε share their random numbers, so that curves over ε are smooth, and results do not depend on the
order of the calls.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from expost import _checks
from expost._numerics import ROUNDOFF
from expost.epsilon.limit import PosteriorLimit
from expost.epsilon.ranked import MOST_ROWS, RankedProfiles, sketched_ranks
from expost.epsilon.row_figures import CONFIDENCE, EstimatedLosses, RowFigures, row_figures
from expost.epsilon.sweep import LawSweep, Pair, child
from expost.errors import InvalidInput
from expost.types import FloatArray, IntArray

__all__ = ["DEFAULT_EPSILONS", "EstimatedLosses", "SampledMechanism", "SampledSweep", "Sweep"]

DEFAULT_EPSILONS = np.geomspace(1e-2, 1e3, 13)
# Fewer models do not suffice for a limit.
LEAST_MODELS = 20
# If the posterior exceeds the limit at all ε of the grid, smaller ε are tried down to here.
_SMALLEST = 1e-6
# Losses held at a time (256 MiB).
_MOST_LOSSES = 2**25


@runtime_checkable
class SampledMechanism(Protocol):
    """A mechanism on fixed data D that can draw models, and return all rows' losses in each.

    The law they share: with θ drawn by :meth:`sample`, E[exp(−loss)] ≤ 1, with equality where D can
    produce whatever D without the row can. A result depends on the arguments alone.
    """

    @property
    def rows(self) -> int:
        """The number n of rows whose losses it returns."""

    @property
    def description(self) -> str:
        """The release in one line, without values of rows."""

    def sample(self, epsilon: float, size: int, rng: np.random.Generator) -> FloatArray:
        """Return ``size`` models θ ~ p(· ∣ D), one per row.

        Parameters
        ----------
        epsilon : float
            The ε of the releases.
        size : int
            The number of models.
        rng : np.random.Generator
            The generator of every draw.

        Returns
        -------
        FloatArray
            (size, …) the models.
        """

    def losses(
        self, epsilon: float, models: FloatArray, seed: np.random.SeedSequence
    ) -> FloatArray | EstimatedLosses:
        """Return log p(θ ∣ D) − log p(θ ∣ D₋ᵢ), (size, n): exact as an array, or estimated.

        ``seed`` is for what the estimate draws itself; it is the same for every ε.

        Parameters
        ----------
        epsilon : float
            The ε of the releases.
        models : FloatArray
            (size, …) models that :meth:`sample` returned for this ε.
        seed : np.random.SeedSequence
            The seed of draws that the estimate makes itself, the same for every ε.

        Returns
        -------
        FloatArray | EstimatedLosses
            (size, n) the losses in nats.
        """


class _Crossing(NamedTuple):
    """Where a verdict changes: the last ε before, the first after, and all tried between them."""

    below: float
    above: float = math.nan
    tried: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledSweep:
    """The sweep of a sampled mechanism.

    Limits are one-sided at 95 % (:mod:`~expost.epsilon.row_figures`). ``low`` is NaN where no row's
    exposure stands out of the noise of its estimate, ``low`` and ``high`` where the grid does not
    hold them; ``remarks`` state which.

    Parameters
    ----------
    epsilons : FloatArray
        (k,) ascending; where none are given, ``DEFAULT_EPSILONS``.
    share : float
        The share of the rows that must have reached the second regime at ``high``.
    models : int
        The number of models drawn at each ε.
    limit : PosteriorLimit
        The posterior that no row may pass.
    halvings : int, default=4
        How often the step between two values of ε is halved, if a crossing lies in it.
    """

    mechanism: SampledMechanism
    epsilons: FloatArray
    tolerance: float
    share: float
    models: int
    limit: PosteriorLimit
    seed: np.random.SeedSequence
    halvings: int = 4
    _passes: dict[float, tuple[RowFigures, RankedProfiles]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if not len(self.epsilons):
            object.__setattr__(self, "epsilons", DEFAULT_EPSILONS)
        _checks.integer("models", self.models, least=LEAST_MODELS)
        if not 1e-6 <= _checks.positive("tolerance", self.tolerance) < 0.5:
            raise InvalidInput(f"tolerance={self.tolerance!r}: must lie between 1e-6 and 0.5.")
        if not self.models * self.rows <= _MOST_LOSSES:
            raise InvalidInput(
                f"models={self.models}: must be at most {_MOST_LOSSES // self.rows} for"
                f" {self.rows} rows, whose losses are held in memory; take fewer models or rows."
            )

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.mechanism.rows

    @property
    def measure(self) -> str:
        """The measure of the transition."""
        return (
            "the one-sidedness E[loss]/E|loss| of the losses in sampled models, from 0 to 1, by its"
            f" {CONFIDENCE:.0%} limits"
        )

    @cached_property
    def low(self) -> float:
        """The largest ε at which every row that stands out of the noise is shown to be within τ."""
        return self._low.below

    @cached_property
    def _low(self) -> _Crossing:
        crossing = self._last_within(self._on_plateau)
        # If no value is past it, the grid ends too early.
        ended = not any(self._on_plateau(e) is False for e in self.epsilons.tolist())
        return crossing._replace(below=math.nan) if ended else crossing

    @cached_property
    def high(self) -> float:
        """The smallest ε from which on the share of rows is shown to be past 1 − τ."""
        grid = self.epsilons.tolist()
        missing = [index for index, e in enumerate(grid) if not self._arrived(e)]
        if not missing or missing[-1] == len(grid) - 1:
            return math.nan
        below, above = grid[missing[-1]], grid[missing[-1] + 1]
        return self._closed_in(lambda epsilon: not self._arrived(epsilon), below, above).above

    @cached_property
    def critical(self) -> FloatArray:
        """(n,) the largest ε tried up to which each row is shown to be within τ.

        0 where it is past it at the first ε, NaN where its exposure does not stand out of the noise
        before it is past.
        """
        tried = np.union1d(self.epsilons, self._low.tried).tolist()
        upper = np.stack([self.figures(e).one_sidedness_high for e in tried])
        within, known = upper <= self.tolerance, ~np.isnan(upper)
        # Past once is past for good.
        within &= np.cumsum(known & ~within, axis=0) == 0
        value = np.max(np.where(within, np.array(tried)[:, np.newaxis], 0.0), axis=0)
        return np.where((value > 0) | known[0], value, np.nan)

    def critical_at(self, ranks: IntArray) -> FloatArray:
        """Return the critical ε at these ranks, 1 for the row that leaves first.

        A row without one has left its plateau at every ε: 0.
        """
        critical = np.where(np.isnan(self.critical), 0.0, self.critical)
        return np.asarray(np.sort(critical)[ranks - 1])

    @cached_property
    def one_sidedness(self) -> Pair:
        """Of the rows with the largest and the median expected loss; NaN within the noise."""
        pairs = []
        for epsilon in self.epsilons.tolist():
            figures = self.figures(epsilon)
            order = np.argsort(figures.expected_loss, kind="stable")
            pairs.append(figures.one_sidedness[order[[-1, len(order) // 2]]])
        farthest, median = np.stack(pairs, axis=1)
        return Pair(farthest, median)

    @cached_property
    def expected(self) -> FloatArray:
        """(k, n) the mean of ∣ℓ∣ over the models; the noise of an estimate makes it larger."""
        return np.stack([self.figures(e).exposure for e in self.epsilons.tolist()])

    @cached_property
    def expected_error(self) -> FloatArray:
        """(k, n) its standard error; ∞ where a loss was beyond what the draws resolve."""
        return np.stack([self.figures(e).exposure_error for e in self.epsilons.tolist()])

    @cached_property
    def ranked(self) -> RankedProfiles:
        """The rank-averaged profile over the models."""
        parts = [self._pass(e)[1] for e in self.epsilons.tolist()]
        return RankedProfiles(
            ranks=parts[0].ranks,
            mean=np.concatenate([part.mean for part in parts]),
            error=np.concatenate([part.error for part in parts]),
            resolution=max(part.resolution for part in parts),
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know of the answers, a sentence each."""
        remarks = []
        if math.isnan(self.low):
            remarks.append(self._no_low())
        elif count := int(np.count_nonzero(np.isnan(self._upper(self.low)))):
            remarks.append(
                f"At the end of the first plateau {count} of {self.rows} rows have exposures within"
                " the noise of their estimates: nothing is known about those."
            )
        if math.isnan(self.high):
            remarks.append(
                "The end of the transition does not lie among the values of ε that were tried;"
                " widen epsilons."
            )
        if self.ceiling() == 0:
            remarks.append(
                "No ε was found at which every posterior keeps the limit; a limit on a quantile"
                " needs many models: 59 at 0.95 where losses are exact, 119 where they are"
                " estimated."
            )
        if self.ceiling() == self.epsilons[-1]:
            remarks.append(
                "No posterior exceeds the limit at any ε that was tried, so that a larger ε may"
                " keep it too; widen epsilons."
            )
        return tuple(remarks)

    def ceiling(self) -> float:
        """Return the largest ε tried up to which no posterior exceeds the limit, at 95 %.

        Below the grid where all of that is past it; 0 if not even 1e-6 keeps it.
        """

        def within(epsilon: float) -> bool:
            return bool(self._largest_posterior(epsilon) <= self.limit.max_posterior)

        last = self._last_within(within).below
        if not math.isnan(last):
            return last
        above = float(self.epsilons[0])
        while above > _SMALLEST:
            below = max(above / 10, _SMALLEST)
            if within(below):
                return self._closed_in(within, below, above).below
            above = below
        return 0.0

    def posterior(self, epsilons: FloatArray) -> FloatArray:
        """Return the largest upper limit of any row's posterior at the quantile, for each ε."""
        return np.array([self._largest_posterior(float(e)) for e in epsilons])

    def row_columns(self) -> dict[str, FloatArray]:
        """Return every figure of each row, by name."""
        return {"critical_epsilon": self.critical}

    def figures(self, epsilon: float) -> RowFigures:
        """Return every row's figures at any ε."""
        return self._pass(epsilon)[0]

    def _upper(self, epsilon: float) -> FloatArray:
        return self.figures(epsilon).one_sidedness_high

    def _on_plateau(self, epsilon: float) -> bool | None:
        """Return whether every row above the noise is within τ; None if no row is above it."""
        upper = self._upper(epsilon)
        if np.any(upper > self.tolerance):
            return False
        return True if np.any(upper <= self.tolerance) else None

    def _arrived(self, epsilon: float) -> bool:
        count = np.count_nonzero(self.figures(epsilon).one_sidedness_low >= 1 - self.tolerance)
        return bool(count >= max(1, math.ceil(self.share * self.rows - 1e-9)))

    def _largest_posterior(self, epsilon: float) -> float:
        return float(np.max(self._pass(epsilon)[0].posterior_high))

    def _last_within(self, within: Callable[[float], bool | None]) -> _Crossing:
        """Return the last ε that is within, before the first that is not; NaN if none is."""
        grid = self.epsilons.tolist()
        verdicts = [within(epsilon) for epsilon in grid]
        end = verdicts.index(False) if False in verdicts else len(grid)
        indices = [index for index in range(end) if verdicts[index]]
        if not indices:
            return _Crossing(math.nan)
        if indices[-1] == len(grid) - 1:
            return _Crossing(grid[-1])
        return self._closed_in(within, grid[indices[-1]], grid[indices[-1] + 1])

    def _closed_in(
        self, within: Callable[[float], bool | None], below: float, above: float
    ) -> _Crossing:
        """Halve the step from ``below``, which is within, to ``above``, which is not."""
        tried = []
        for _ in range(self.halvings):
            between = math.sqrt(below * above)
            tried.append(between)
            below, above = (between, above) if within(between) else (below, between)
        return _Crossing(below, above, tuple(tried))

    def _no_low(self) -> str:
        verdicts = [self._on_plateau(e) for e in self.epsilons.tolist()]
        if None in verdicts and True not in verdicts:
            return (
                "Where rows might be on their first plateau their exposures are within the noise of"
                " the estimates, so that its end is not known; take more draws and more models."
            )
        side = "below" if verdicts[0] is False else "above"
        return (
            f"The end of the first plateau lies {side} the values of ε that were tried;"
            " widen epsilons."
        )

    def _pass(self, epsilon: float) -> tuple[RowFigures, RankedProfiles]:
        """Draw the models of one ε, once, and keep the rows' figures."""
        if epsilon not in self._passes:
            losses = self._losses(epsilon)
            self._passes[epsilon] = row_figures(losses, self.limit), _ranked(losses)
        return self._passes[epsilon]

    def _losses(self, epsilon: float) -> EstimatedLosses:
        rng = np.random.default_rng(child(self.seed, 0))
        models = self.mechanism.sample(epsilon, self.models, rng)
        drawn = self.mechanism.losses(epsilon, models, child(self.seed, 1))
        losses = (
            drawn
            if isinstance(drawn, EstimatedLosses)
            else EstimatedLosses.exact(np.asarray(drawn, dtype=np.float64))
        )
        if losses.loss.shape != (self.models, self.rows):
            raise InvalidInput(
                f"losses(epsilon, models, seed) has shape {losses.loss.shape}: must be"
                f" ({self.models}, {self.rows}), models and rows."
            )
        return losses


# What is known of the losses of n rows at each of k values of ε.
Sweep = LawSweep | SampledSweep


def _ranked(losses: EstimatedLosses) -> RankedProfiles:
    """Return the mean over models of the sorted exposures, (1, r)."""
    rows = losses.loss.shape[1]
    ranks: IntArray = np.arange(1, rows + 1) if rows <= MOST_ROWS else sketched_ranks(rows)
    profiles = np.sort(np.abs(losses.loss), axis=1)[:, ranks - 1]
    with np.errstate(invalid="ignore"):
        error = np.std(profiles, axis=0, ddof=1, keepdims=True) / math.sqrt(len(profiles))
    return RankedProfiles(
        ranks=ranks,
        mean=np.mean(profiles, axis=0, keepdims=True),
        error=np.where(np.isnan(error), np.inf, error),
        resolution=_relative_noise(losses),
    )


def _relative_noise(losses: EstimatedLosses) -> float:
    """Return the relative noise of an exposure (root mean squares); rounding if exact."""
    if not np.any(losses.noise):
        return ROUNDOFF
    size = math.sqrt(float(np.mean(np.clip(losses.loss, -1e100, 1e100) ** 2)))
    noise = math.sqrt(float(np.mean(losses.noise**2)))
    return noise / size if size > 0 else math.inf
