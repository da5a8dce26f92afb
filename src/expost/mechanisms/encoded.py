"""A model whose encoding was itself released from the rows: noisy histograms, then θ.

Conventions
-----------
As in :mod:`expost.data.histograms`. e is what is released of the histograms, and the mechanism of
the model releases θ from the rows as e encodes them.

Formal guarantees
-----------------
sensitivity  A row is in one cell of each of p columns, so that removing it moves the counts by √p
             (replacing it by √(2p)), and k rows of a person by k√p at most, when all of them are in
             the same cells. σ is that of the analytic Gaussian mechanism at (ε₁, δ₁).
threshold    Let D₋ be D without the k rows, and call a cell *theirs* if it is empty in D₋. Its
             count is at most k, and there are at most k of them in a column of levels: one passes T
             with probability at most

                 δ_T = k·p_L·Φ((k − T)/σ),     p_L columns of levels.

             D to D₋: P(S) ≤ δ_T + P(S, none of theirs passes), and the second is at most the
             probability of S without their cells, which are counts of smaller sensitivity:
             e^ε₁ P₋(S) + δ₁. D₋ to D: draw noise for their cells in D₋, too, where they are empty;
             one of them then passes T with probability at most δ_T, and else nothing has changed:
             P₋(S) ≤ δ_T + e^ε₁ P(S) + δ₁. A replacement has cells of both kinds: 2δ_T.
together     (ε₁ + ε₂, δ₁ + δ_T + δ₂) if the model is (ε₂, δ₂) for every e: adaptive composition.

The loss of rows that leave is log p(e ∣ D) − log p(e ∣ D₋) plus the loss of the model given e. With
k of them in a cell, the first is a sum over cells of

    N released            (2k(N − c) + k²)/(2σ²); +∞ for a level of which c = k: D₋ never has it
    level not released    log Φ((T − c)/σ) − log Φ((T − c + k)/σ), the second 0 where c = k

which for one row and no threshold is (Σ 2·noise + p)/(2σ²). The N are rounded to a grid of step h:
on a cell of the grid the log-ratio of densities moves by at most kh/(2σ²) to either side, and a
level is not released if c + noise < T + h/2 (T is on the grid), so that T + h/2 stands for T above.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from expost._numerics import ROUNDOFF, gamma
from expost.accounting import gaussian_scale
from expost.data.histograms import (
    Counted,
    CountedColumn,
    HistogramColumn,
    Histograms,
    LevelHistogram,
    NumericHistogram,
    bins_for,
    released_columns,
)
from expost.data.sources import Table
from expost.errors import InvalidInput, ReleaseRefused, WrongRows
from expost.glm import Objective
from expost.mechanisms.base import IMPLAUSIBLE, Losses, Mechanism
from expost.mechanisms.bounds import ExposureBound, normal_quantile
from expost.mechanisms.combined import combine
from expost.mechanisms.grid import Grid
from expost.mechanisms.row_losses import RowLosses
from expost.neighbouring.change import Change
from expost.neighbouring.persons import Persons
from expost.noise import Gaussian
from expost.numbers import decimal, summed_up, upper_text
from expost.risk import EpsilonDelta, GaussianNoise, Guarantee
from expost.risk.composition import Composition
from expost.rows import RowBlock, Rows
from expost.types import FloatArray, IntArray, Neighbouring

if TYPE_CHECKING:
    from expost.mechanisms.publishing import NoisyTangent, PublishingBudget, TangentMechanism
    from expost.mechanisms.tangent import Tangent

__all__ = [
    "EncodingBudget",
    "EncodingLosses",
    "draw_histograms",
    "guarantee_of",
    "left_of",
    "model_mechanism",
    "with_histograms",
]

# Normals of the operating system never pass 9.4.
_REACH = 10.0
# A bound on the error of scipy's log Φ, relative to its size and 1.
_TAIL_ERROR = 1e-12


# -- the budget --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EncodingBudget:
    """What histograms may spend of a total (ε, δ); the rest is the model's.

    Parameters
    ----------
    epsilon, delta : float
        The total.
    share : float
        The share of ε that the histograms spend, in (0, 1).
    rows_per_person : int, default=1
        k: the guarantee holds for all rows of a person who has at most k.
    replaces : bool, default=False
        Whether it must also cover a row that is replaced.
    """

    epsilon: float
    delta: float
    share: float
    rows_per_person: int = 1
    replaces: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidInput(f"private_encoding={self.share!r}: must be between 0 and 1.")
        if not 0 < self.epsilon < math.inf:
            raise InvalidInput(
                f"epsilon={self.epsilon!r}: a private encoding needs a finite epsilon; leave"
                " private_encoding out."
            )
        if not 0 < self.delta < 1:
            raise InvalidInput(
                f"delta={self.delta!r}: a private encoding needs a delta above 0; leave"
                " private_encoding or delta out."
            )

    @property
    def encoding_epsilon(self) -> float:
        """ε₁."""
        return float(decimal(self.share) * decimal(self.epsilon))

    @property
    def part_of_delta(self) -> float:
        """δ₁, and as much for the levels: a third of δ."""
        return self.delta / 3


def left_of(total: float, *spent: float) -> float:
    """Return what is left of a budget, rounded down: the sum of all parts is at most ``total``.

    Numbers are the decimals that they are written as: 0.9 is left of 1 and 0.1.
    """
    exact = decimal(total) - sum(map(decimal, spent))
    rest = float(exact)
    return rest if decimal(rest) <= exact else math.nextafter(rest, -math.inf)


def _sensitivity(columns: int, rows: int, replaces: bool) -> float:
    """Return how far ``rows`` rows can move the counts."""
    return rows * math.sqrt(2 * columns if replaces else columns)


def _constants(
    columns: int, levels: int, *, epsilon: float, delta: float, threshold_delta: float, **known: Any
) -> tuple[float, float, Grid]:
    """Return σ, T and the grid of histograms of ``columns``, ``levels`` of them with levels.

    Parameters
    ----------
    known : Any
        Rows, rows_per_person and replaces.
    """
    person, replaces = known["rows_per_person"], known["replaces"]
    scale = gaussian_scale(epsilon, delta, _sensitivity(columns, person, replaces))
    grid = Grid.for_noise(reach=known["rows"] + _REACH * scale, resolution=scale, dimension=columns)
    threshold = 0.0
    if levels:
        tail = threshold_delta / (person * levels * (2 if replaces else 1))
        threshold = person + scale * normal_quantile(tail)
        # On the grid, rounded up.
        threshold = math.ceil(threshold / grid.step) * grid.step
    return scale, threshold, grid


def draw_histograms(
    table: Table,
    columns: Mapping[str, tuple[float, float] | None],
    budget: EncodingBudget,
    rng: np.random.Generator | None = None,
) -> tuple[Histograms, Counted]:
    """Release histograms of ``columns``, which have a range, or None if they have levels.

    The noise is the operating system's; ``rng`` is for simulation and tests, as its seed reveals
    the noise. The exact counts, which are not private, are returned too.
    """
    levels = sum(ends is None for ends in columns.values())
    constants: dict[str, Any] = {
        "rows": table.rows,
        "epsilon": budget.encoding_epsilon,
        "delta": budget.part_of_delta,
        "threshold_delta": budget.part_of_delta if levels else 0.0,
        "rows_per_person": budget.rows_per_person,
        "replaces": budget.replaces,
    }
    scale, threshold, grid = _constants(len(columns), levels, **constants)
    counted = Counted.of(table, columns, bins_for(table.rows, scale))
    noisy = [
        grid.snap(column.counts + _noise(len(column.counts), scale, rng))
        for column in counted.columns
    ]
    histograms = Histograms(
        columns=released_columns(counted.columns, noisy, threshold),
        scale=scale,
        threshold=threshold,
        step=grid.step,
        seeded=rng is not None,
        **constants,
    )
    return histograms, counted


def _noise(cells: int, scale: float, rng: np.random.Generator | None) -> FloatArray:
    law = Gaussian(scale=scale, dimension=cells)
    return law.sample_secure() if rng is None else law.sample(1, rng)[0]


def check_constants(histograms: Histograms) -> None:
    """Refuse histograms whose noise is not the one that their guarantee asks for."""
    levels = histograms.open_columns
    scale, threshold, grid = _constants(
        len(histograms.columns),
        levels,
        epsilon=histograms.epsilon,
        delta=histograms.delta,
        threshold_delta=histograms.threshold_delta,
        rows=histograms.rows,
        rows_per_person=histograms.rows_per_person,
        replaces=histograms.replaces,
    )
    stored = histograms.scale, histograms.threshold, histograms.step
    if stored != (scale, threshold, grid.step):
        raise InvalidInput(
            "encoding.histograms: their noise is not what their own epsilon and delta give; the"
            " file was edited."
        )
    if histograms.bins != bins_for(histograms.rows, scale) and histograms.open_columns < len(
        histograms.columns
    ):
        raise InvalidInput("encoding.histograms: have another number of bins; was edited.")
    counts = [count for column in histograms.columns for count in (*column.counts, column.missing)]
    passed = [
        count
        for column in histograms.columns
        if isinstance(column, LevelHistogram)
        for count in column.counts
    ]
    if not grid.holds(np.array(counts)) or not all(count > threshold for count in passed):
        raise InvalidInput("encoding.histograms: a count cannot have been released; was edited.")


# -- what the histograms reveal ------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Column:
    """The cells of a column: counts c, noisy counts N (NaN: not released), which are levels."""

    counts: FloatArray
    noisy: FloatArray
    is_level: NDArray[np.bool_]

    @classmethod
    def of(cls, counted: CountedColumn, released: HistogramColumn) -> "_Column":
        """Join what is released of a column with the counts that it was released from."""
        counts = counted.counts.astype(np.float64)
        if isinstance(released, NumericHistogram):
            noisy = np.array([*released.counts, released.missing])
            return cls(counts=counts, noisy=noisy, is_level=np.zeros(len(counts), dtype=bool))
        known = dict(zip(released.levels, released.counts, strict=True))
        if not set(known) <= set(counted.levels):
            raise WrongRows(
                f"column {released.name!r}: has released a level that no row holds: these rows"
                " cannot have made this model; pass the training rows."
            )
        noisy = np.array(
            [*(known.get(level, np.nan) for level in counted.levels), released.missing]
        )
        is_level = np.ones(len(counts), dtype=bool)
        is_level[-1] = False
        return cls(counts=counts, noisy=noisy, is_level=is_level)

    @property
    def noise(self) -> FloatArray:
        """The noises of the cells that are always released."""
        return (self.noisy - self.counts)[~self.is_level]

    def plausible(self, histograms: Histograms, levels: int) -> bool:
        """Return whether the levels may have these counts: each but with 1e-9 over ``levels``."""
        scale, barrier = histograms.scale, histograms.threshold + histograms.step / 2
        counts, noisy = self.counts[self.is_level], self.noisy[self.is_level]
        released = ~np.isnan(noisy)
        size = (np.abs(noisy - counts)[released] - histograms.step) / scale
        hidden = (barrier - counts[~released]) / scale
        tails = np.concatenate([2 * ndtr(-size), ndtr(hidden)])
        return bool(np.all(tails >= IMPLAUSIBLE / levels))

    def drawn(self, scale: float, barrier: float, rng: np.random.Generator) -> "_Column":
        """Return the column as another release would have it."""
        noisy = self.counts + scale * rng.standard_normal(len(self.counts))
        hidden = self.is_level & (noisy < barrier)
        return replace(self, noisy=np.where(hidden, np.nan, noisy))

    def losses(
        self, cells: IntArray | slice, leaving: FloatArray | float, *, scale: float, barrier: float
    ) -> FloatArray:
        """Return the loss of ``leaving`` rows of each of ``cells``."""
        counts, noisy, is_level = self.counts[cells], self.noisy[cells], self.is_level[cells]
        left = counts - leaving
        with np.errstate(invalid="ignore"):
            released = leaving * (2 * (noisy - counts) + leaving) / (2 * scale**2)
        released = np.where(is_level & (left <= 0), np.inf, released)
        without = np.where(left > 0, log_ndtr((barrier - left) / scale), 0.0)
        hidden = log_ndtr((barrier - counts) / scale) - without
        return np.where(np.isnan(noisy), hidden, released)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EncodingLosses:
    """What released histograms reveal about the rows that they were counted from.

    It holds counts and no row, and is pickled to where rows are read.
    """

    histograms: Histograms
    columns: tuple[_Column, ...]

    @classmethod
    def of(cls, histograms: Histograms, counted: Counted) -> "EncodingLosses":
        """Join histograms with the counts of their rows; refuse rows that cannot have made them."""
        names = [column.name for column in histograms.columns]
        if counted.names != names:
            raise InvalidInput("histograms: are of other columns than those that were counted.")
        columns = tuple(
            _Column.of(column, released)
            for column, released in zip(counted.columns, histograms.columns, strict=True)
        )
        noise = np.concatenate([column.noise for column in columns])
        levels = sum(len(column.counts) for column in columns)
        if not all(column.plausible(histograms, levels) for column in columns):
            raise WrongRows(
                "X: these rows cannot have made the private encoding of this model: a level has"
                " another count; pass the training rows, as a table."
            )
        law = Gaussian(scale=histograms.scale, dimension=len(noise))
        slack = math.sqrt(len(noise)) * histograms.step
        norm = float(np.linalg.norm(noise))
        below, _ = law.norm_tails(norm + slack)
        _, above = law.norm_tails(max(norm - slack, 0.0))
        if not min(float(below), float(above)) >= IMPLAUSIBLE / 2:
            raise WrongRows(
                "X: these rows cannot have made the private encoding of this model (its noise would"
                f" have a norm of {norm:.3g}); pass the training rows, as a table."
            )
        return cls(histograms=histograms, columns=columns)

    @property
    def barrier(self) -> float:
        """T + h/2: a level is not released below it."""
        return self.histograms.threshold + self.histograms.step / 2

    def rows(self, cells: NDArray[np.int32]) -> RowLosses:
        """Return the losses of rows in these cells (m, p), each of which leaves alone."""
        return self._of([slice(None)] * len(self.columns), 1.0, _Gather(cells))

    def persons(self, cells: NDArray[np.int32], persons: Persons) -> RowLosses:
        """Return the losses of persons, all of whose rows leave; ``cells`` (n, p) of all rows."""
        gather = _PersonCells.of(cells, persons.owner, len(persons.names), self.columns)
        return self._of(gather.cells, gather.leaving, gather)

    def _of(
        self,
        cells: Sequence[IntArray | slice],
        leaving: "float | Sequence[FloatArray]",
        gather: "_Gather | _PersonCells",
    ) -> RowLosses:
        """Return the sums of the losses of cells by row or by person."""
        histograms, columns = self.histograms, self.columns
        k: Sequence[FloatArray | float] = (
            [leaving] * len(columns) if isinstance(leaving, float) else leaving
        )
        options = {"scale": histograms.scale, "barrier": self.barrier}

        def summed(columns: Sequence[_Column]) -> list[FloatArray]:
            return [
                column.losses(some, gone, **options)
                for column, some, gone in zip(columns, cells, k, strict=True)
            ]

        losses = summed(columns)
        loss = gather(losses)
        step = histograms.step / (2 * histograms.scale**2)
        errors = [
            np.where(np.isinf(each), 0.0, gone * step + _TAIL_ERROR * (1 + np.abs(each)))
            for each, gone in zip(losses, k, strict=True)
        ]
        size = gather([np.where(np.isinf(each), 0.0, np.abs(each)) for each in losses])
        error = gather(errors) + gamma(len(columns) + 4) * size
        rows = gather.largest
        worst, passed = worst_case_of(histograms, rows)

        def draw(size: int, rng: np.random.Generator) -> Iterator[FloatArray]:
            for _ in range(size):
                other = [
                    column.drawn(histograms.scale, self.barrier, rng) for column in self.columns
                ]
                yield gather(summed(other))

        return RowLosses(
            loss=loss,
            low=loss - error,
            high=loss + error,
            distance=np.zeros(len(loss)),
            distance_error=np.zeros(len(loss)),
            relation=Neighbouring.REMOVE,
            law=None,
            worst_case=worst,
            worst_case_passed=passed,
            draw=draw,
            guarantee=guarantee_of(histograms, rows),
        )


@dataclass(frozen=True, eq=False)
class _Gather:
    """Sums over the columns of figures of cells, for rows in the cells (m, p)."""

    cells: NDArray[np.int32]
    largest: int = 1

    def __call__(self, figures: Sequence[FloatArray]) -> FloatArray:
        total = np.zeros(len(self.cells))
        for column, figure in enumerate(figures):
            total += figure[self.cells[:, column]]
        return total


@dataclass(frozen=True, kw_only=True, eq=False)
class _PersonCells:
    """The cells that each person's rows are in, and how many of the rows.

    Parameters
    ----------
    cells : list[IntArray]
        Of each column, the cells of the (person, cell) pairs that occur.
    persons : list[IntArray]
        The person.
    leaving : list[FloatArray]
        The numbers of rows of the pairs.
    """

    cells: list[IntArray]
    persons: list[IntArray]
    leaving: list[FloatArray]
    count: int
    largest: int

    @classmethod
    def of(
        cls, cells: NDArray[np.int32], owner: IntArray, count: int, columns: Sequence[_Column]
    ) -> "_PersonCells":
        """Count the rows of persons by cell."""
        pairs = [
            np.unique(owner * len(column.counts) + cells[:, index], return_counts=True)
            for index, column in enumerate(columns)
        ]
        sizes = [len(column.counts) for column in columns]
        return cls(
            cells=[pair % size for (pair, _), size in zip(pairs, sizes, strict=True)],
            persons=[pair // size for (pair, _), size in zip(pairs, sizes, strict=True)],
            leaving=[rows.astype(np.float64) for _, rows in pairs],
            count=count,
            largest=int(np.bincount(owner).max()),
        )

    def __call__(self, figures: Sequence[FloatArray]) -> FloatArray:
        total = np.zeros(self.count)
        for persons, figure in zip(self.persons, figures, strict=True):
            np.add.at(total, persons, figure)
        return total


# -- what the histograms guarantee ---------------------------------------------------------------


def _separation(histograms: Histograms, rows: int) -> float:
    """Return μ, rounded up."""
    moved = _sensitivity(len(histograms.columns), rows, histograms.replaces)
    return moved / histograms.scale * (1 + 8 * ROUNDOFF)


def _threshold_delta(histograms: Histograms, rows: int) -> float:
    """Return δ_T of ``rows`` rows, rounded up."""
    if not histograms.open_columns:
        return 0.0
    tail = float(ndtr((rows - histograms.threshold) / histograms.scale)) * (1 + 1e-9)
    sides = 2 if histograms.replaces else 1
    return min(sides * rows * histograms.open_columns * tail, 1.0)


def guarantee_of(histograms: Histograms, rows: int = 1) -> Guarantee:
    """Return what two data sets are guaranteed, one of which lacks ``rows`` rows."""
    noise = GaussianNoise(mu=_separation(histograms, rows))
    slip = _threshold_delta(histograms, rows)
    if slip == 0:
        return noise
    if not slip < 1:
        return EpsilonDelta(epsilon=math.inf)
    return Composition(parts=(noise, EpsilonDelta(epsilon=0.0, delta=slip)))


def loss_passed(histograms: Histograms, bound: float, rows: int = 1) -> float:
    """Bound the probability with which the exposure of ``rows`` rows passes ``bound``.

    Without levels the loss is normal. With them, none of the rows' own levels passes T but with
    probability δ_T. Given that, ℓ = ℓ′ + log h, where h ≥ 1 − δ_T is the probability of it and ℓ′
    is the loss of the other cells, of which thresholds show less than all noisy counts. Rényi
    divergences do not grow by that: E[e^(sℓ′)] ≤ e^(s(s + 1)μ²/2) for s ≥ 0 and s ≤ −1, and
    Chernoff's bounds at the best s are

        P(ℓ′ > b) ≤ e^(−(b − μ²/2)²/(2μ²)),     P(ℓ′ < −b) ≤ e^(−(b + μ²/2)²/(2μ²)).
    """
    mu = _separation(histograms, rows)
    if not histograms.open_columns:
        bound -= _grid_error(histograms, rows)
        return float(ndtr(mu / 2 - bound / mu) + ndtr(-mu / 2 - bound / mu)) * (1 + _TAIL_ERROR)
    slip = _threshold_delta(histograms, rows)
    if not (slip < 1 and bound > mu * mu / 2):
        return 1.0
    above = math.exp(-((bound - mu * mu / 2) ** 2) / (2 * mu * mu))
    lower = max(bound + math.log1p(-slip) + mu * mu / 2, 0.0)
    below = math.exp(-(lower**2) / (2 * mu * mu))
    return min((slip + above + below) * (1 + _TAIL_ERROR), 1.0)


def _grid_error(histograms: Histograms, rows: int) -> float:
    """Return how far the loss of grid cells may be from that of their centres."""
    step = histograms.step / (2 * histograms.scale**2)
    return rows * len(histograms.columns) * step * (1 + _TAIL_ERROR)


def worst_case_of(histograms: Histograms, rows: int) -> tuple[float, float]:
    """Return (b, p): the exposure of ``rows`` rows together passes b with probability ≤ p."""
    bound = histograms.epsilon * max(rows / histograms.rows_per_person, 1.0)
    return bound, loss_passed(histograms, bound, rows)


def loss_quantile(histograms: Histograms, tail: float) -> float:
    """Bound the exposure that one fixed row passes with probability ``tail`` at most."""
    mu = _separation(histograms, 1)
    slip = _threshold_delta(histograms, 1)
    if not tail > slip:
        return math.inf
    if not histograms.open_columns:
        loss = mu * (mu / 2 + normal_quantile(tail / 2)) + _grid_error(histograms, 1)
        return loss * (1 + _TAIL_ERROR)
    # Half of what is left for either side.
    room = math.sqrt(2 * math.log(2 / (tail - slip)))
    return (mu * (mu / 2 + room) - math.log1p(-slip)) * (1 + _TAIL_ERROR)


# -- the mechanism -------------------------------------------------------------------------------


def with_histograms(model: Mechanism, histograms: Histograms | None) -> Mechanism:
    """Return the mechanism of the model and of the histograms that its encoding was made from."""
    if histograms is None:
        return model
    check_constants(histograms)
    if histograms.rows != model.rows or histograms.rows_per_person != model.rows_per_person:
        raise InvalidInput(
            "encoding.histograms: are of another number of rows, or of rows per person, than the"
            " model."
        )
    # It has every member of the Protocol; most of them are those of the model.
    return cast(Mechanism, _EncodedMechanism(model=model, histograms=histograms))


@dataclass(frozen=True, kw_only=True)
class _EncodedMechanism:
    """A mechanism of rows whose encoding was released before.

    Everything that is not stated here is that of the mechanism of the model: its noise, its
    regularization, its grid and its JSON.
    """

    model: Mechanism
    histograms: Histograms

    has_report = False

    def __getattr__(self, name: str) -> Any:
        """Return what the mechanism of the model has."""
        if name in ("model", "histograms") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.model, name)

    @property
    def epsilon(self) -> float:
        """ε of both."""
        return summed_up([self.histograms.epsilon, self.model.epsilon])

    @property
    def delta(self) -> float:
        """δ of both."""
        histograms = self.histograms
        return summed_up([histograms.delta, histograms.threshold_delta, self.model.delta or 0.0])

    @property
    def closed_form(self) -> None:
        """None: the law of a loss is not known in closed form."""

    @property
    def gradient_noise(self) -> None:
        """None: more than the sum of gradients is perturbed."""

    def loss_law(self, separation: FloatArray) -> None:
        """Return None: the law of a loss is not known in closed form."""

    def covers(self, relation: Neighbouring) -> bool:
        """Return whether both guarantees hold for this relation."""
        own = relation is not Neighbouring.REPLACE or self.histograms.replaces
        return own and self.model.covers(relation)

    def guarantee(self, rows: int = 1) -> Guarantee:
        """Return what two data sets are guaranteed, one of which lacks ``rows`` rows."""
        parts = guarantee_of(self.histograms, rows), self.model.guarantee(rows)
        return Composition(parts=parts)

    def delta_at(self, epsilon: float) -> float:
        """Return δ at another ε, rounded up."""
        return self.guarantee(self.model.rows_per_person).delta(epsilon)

    @property
    def worst_case(self) -> float:
        """The exposure of one row that is guaranteed."""
        return self.worst_case_of(1)[0]

    @property
    def worst_case_passed(self) -> float:
        """The probability with which the exposure of one row may pass ``worst_case``."""
        return self.worst_case_of(1)[1]

    def worst_case_of(self, rows: int) -> tuple[float, float]:
        """Return (b, p): the exposure of ``rows`` rows together passes b with probability ≤ p."""
        first, slip = worst_case_of(self.histograms, rows)
        second, passed = self.model.worst_case_of(rows)
        return first + second, min(slip + passed, 1.0)

    def loss_quantile(self, quantile: float, *, two_sided: bool = False) -> float:
        """Bound the q-quantile of the loss (exposure) of one row, from constants alone.

        By the union bound: each part passes its own bound with a part of 1 − q.
        """
        tail = 1 - quantile
        return min(
            loss_quantile(self.histograms, share * tail)
            + self.model.loss_quantile(1 - (1 - share) * tail, two_sided=two_sided)
            for share in (0.01, 0.05, 0.2, 0.5)
        )

    def losses(self, objective: Objective, theta: FloatArray, change: Change) -> RowLosses:
        """Return the losses of all rows in memory: of the histograms and of the model."""
        if change.relation is not Neighbouring.REMOVE:
            raise InvalidInput(
                "relation: a model with a private encoding is profiled for 'remove' only."
            )
        rows, persons = objective.held, change.persons
        own = self._encoding_losses(rows)
        assert rows.cells is not None
        first = own.rows(rows.cells) if persons is None else own.persons(rows.cells, persons)
        return _together(first, self.model.losses(objective, theta, change))

    def _encoding_losses(self, rows: Rows) -> EncodingLosses:
        """Return what the histograms reveal about their rows."""
        if rows.counted is None:
            raise InvalidInput(
                "X: the model has a private encoding, whose losses follow from the cells of the"
                " table; pass the table (a frame, or its file) and not encoded features."
            )
        return EncodingLosses.of(self.histograms, rows.counted)

    def prepare(
        self, objective: Objective, theta: FloatArray, *, expected: bool = False
    ) -> "_PreparedLosses":
        """Return what the losses of any block follow from."""
        return _PreparedLosses(
            mechanism=cast(Mechanism, self),
            encoding=self._encoding_losses(objective.rows),
            model=self.model.prepare(objective, theta),
        )

    def check(self, objective: Objective, theta: FloatArray) -> None:
        """Refuse rows that cannot have made the histograms or ``theta``."""
        self._encoding_losses(objective.rows)
        self.model.check(objective, theta)

    def check_report(self) -> None:
        """Refuse: there is no data-dependent report."""
        raise ReleaseRefused(
            "kind='data-dependent': a model with a private encoding has only a data-independent"
            " report; take that."
        )

    def tangent_mechanism(
        self, budget: "PublishingBudget", theta: FloatArray
    ) -> "TangentMechanism":
        """Refuse: there is no data-dependent report."""
        raise InvalidInput("budget: a model with a private encoding takes none.")

    def bound(
        self,
        theta: FloatArray,
        failure: float,
        tangent: "TangentMechanism | None" = None,
        released: "NoisyTangent | None" = None,
        labels: int = 1,
    ) -> ExposureBound:
        """Return the bound of the model's report, and of what the histograms add to it.

        Cells do not depend on the label: their part counts once for all labels.
        """
        return _EncodedBound(
            model=self.model.bound(theta, failure / 2, tangent, released, labels=labels),
            added=loss_quantile(self.histograms, failure / 2),
            failure_probability=failure,
        )

    def with_constants(self, **constants: Any) -> Mechanism:
        """Return the model's mechanism with other constants, and these histograms."""
        if "epsilon" in constants:
            raise InvalidInput("epsilon: histograms were released at their own; fit again.")
        return cast(Mechanism, replace(self, model=self.model.with_constants(**constants)))

    @property
    def title(self) -> str:
        """What is released and how, in a few words."""
        return f"{self.model.title}, private encoding"

    def describe(self, *, epsilon: bool = True) -> str:
        """Return one line about the release, with its ε or for any."""
        text, model = self.model.describe(epsilon=epsilon), self.model
        for name, own, total in (
            ("epsilon", model.epsilon, self.epsilon),
            ("delta", model.delta or 0.0, self.delta),
        ):
            text = text.replace(f"{name}={upper_text(own)}", f"{name}={upper_text(total)}")
        if model.delta is None:
            text += f", delta={upper_text(self.delta)}"
        spent = f" of epsilon={upper_text(self.histograms.epsilon)}" if epsilon else ""
        return f"{text}, private encoding{spent}"


def model_mechanism(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism of the model alone, which is ``mechanism`` without histograms."""
    return mechanism.model if isinstance(mechanism, _EncodedMechanism) else mechanism


def _together(histograms: RowLosses, model: RowLosses) -> RowLosses:
    """Return the losses of both; distances are those of the model."""
    drawn = model.draw is not None or model.law is not None
    return replace(
        combine([histograms, model], expected=drawn),
        distance=model.distance,
        distance_error=model.distance_error,
        neighbours=model.neighbours,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _PreparedLosses:
    """The losses of the rows of any block: of the histograms, and of the model."""

    mechanism: Mechanism
    encoding: EncodingLosses
    model: Losses

    exact: ClassVar[None] = None

    @property
    def tangent(self) -> "Tangent | None":
        """None: there is no data-dependent report."""
        return None

    def refined(self, objective: Objective, *, top: int) -> "_PreparedLosses":
        """Return these losses: all are certified."""
        return self

    def __call__(self, block: RowBlock) -> RowLosses:
        """Return the losses of the rows of ``block``."""
        assert block.cells is not None
        return _together(self.encoding.rows(block.cells), self.model(block))


@dataclass(frozen=True, kw_only=True, eq=False)
class _EncodedBound:
    """The bound of a model's report with what histograms can add, of a row fixed beforehand."""

    model: ExposureBound
    added: float
    failure_probability: float

    is_uniform = False

    def exposure(self, X: FloatArray, y: FloatArray) -> FloatArray:
        """(m,) the sum of both bounds."""
        return (self.model.exposure(X, y) + self.added) * (1 + 4 * ROUNDOFF)

    def formula(self) -> dict[str, Any] | None:
        """Return the constants of the model's bound, and what is added; None: it is infinite."""
        formula = self.model.formula()
        added = self.added if self.added < math.inf else None
        return None if formula is None else formula | {"added": added}
