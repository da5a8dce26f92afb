"""A trainer that can only be sampled, as a mechanism: losses by coverage (LeBlond 4.1).

The estimate
------------
θ is drawn from D; N reference models from D and N from D₋ᵢ, all of them fresh (θ is not among them:
it would be its own nearest neighbour, and count for D). Of the k pooled references nearest to θ let
a be from D and b = k − a from D₋ᵢ. In the ball they fill,

    ℓ_k = log((a + ½)/(b + ½))

estimates log C(D, θ)/C(D₋ᵢ, θ), the paper's loss with a radius that adapts to θ.

noise       given the ball, a is binomial to a good approximation, and ℓ_k has the variance
            1/(a + ½) + 1/(b + ½) and a bias of O(1/k²) (Haldane; Gart and Zweifel 1967).
blur        a ball of radius r has the loss −log E[e^(−ℓ)] over p(· ∣ D) in the ball, which is
            ℓ(θ) + c·r² + O(r⁴). It is nearly always too small: averaging hides differences. With
            the ball of 2k references, of radius r₂, the term in r² is taken out (Richardson):

                ℓ̂ = (1 + F)·ℓ_k − F·ℓ_2k,   F = r²/(r₂² − r²),

            of variance (1+F)²(1/a + 1/b) − F(2+F)(1/a₂ + 1/b₂), counts with their halves. In d
            dimensions F ≈ 1/(4^(1/d) − 1), about d/1.4 for large d: there the noise grows until
            nothing is resolved, and so nothing reads as private. What the extrapolation leaves is
            taken to be as large as what it added (``correction``).
saturation  with a = 0 or b = 0 the loss is not resolved: ∣ℓ_k∣ = log(2k + 1) is then a lower end.
shared      all models share their references. Moving the weight of one of them moves the mean of
            the errors by its influence, the mean over models of ±(1/a or 1/b, with the factors
            above); the variance of the mean is the sum of squared influences (the infinitesimal
            jackknife), the largest of those for the means of ℓ, ∣ℓ∣ and sigmoid(ℓ).

Distances are taken after whitening by the references from D, a linear map: losses do not depend on
it, but a coordinate of large spread would hide all others in the ball. References at the same
distance as the k-th count too, so that mechanisms with atoms, or without noise, are handled.

What cannot be seen
-------------------
Draws do not resolve densities that differ on scales below the distance between draws: two laws that
differ only in the last bits of θ are indistinguishable. Every figure assumes that the densities
vary smoothly over the balls. No number of draws can check this assumption about the trainer; see
docs/theory/black-box.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from expost import _checks
from expost.epsilon.row_figures import EstimatedLosses
from expost.epsilon.sampled import SampledMechanism
from expost.epsilon.sweep import child
from expost.errors import InvalidInput
from expost.results import row_keys
from expost.types import FloatArray, IntArray

__all__ = ["BlackBox", "Trainer", "fixed_to"]

Trainer = Callable[[Any, Any, float, int, np.random.Generator], Any]

_CALL = "sampler(X, y, epsilon, size, rng)"
# The least number of draws per coordinate, to estimate the spread of all of them.
_DRAWS_A_COORDINATE = 10
# Spreads below this share of the magnitude of θ are rounding.
_ROUNDING = 1e-13
# Where coordinates depend on each other, spreads below this share of the largest are rounding.
_COLLINEAR = 1e-12


@dataclass(frozen=True, eq=False)
class BlackBox:
    """A private trainer that is known only by its draws.

    Parameters
    ----------
    sampler : Trainer
        ``sampler(X, y, epsilon, size, rng)`` trains ``size`` models, independently and with all of
        their randomness from ``rng``, and returns (size, d): what an attacker sees of each.
    draws : int, default=1000
        N, the reference models of each data set. An ε costs (n + 1)·N + ``models`` of them, n the
        rows whose losses are estimated.
    neighbours : int, optional
        k, the references around a model that are counted; N^(2/3) if None.
    rows : Sequence[int], optional
        The positions of the rows whose losses are estimated; all if None.
    """

    sampler: Trainer
    _: KW_ONLY
    draws: int = 1000
    neighbours: int | None = None
    rows: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not callable(self.sampler):
            raise InvalidInput(
                "sampler: must be a function of (X, y, epsilon, size, rng) that returns models."
            )
        _checks.integer("draws", self.draws, least=100)
        if self.neighbours is not None:
            _checks.integer("neighbours", self.neighbours, least=10)
        if not 2 * self.count <= self.draws:
            raise InvalidInput(
                f"neighbours={self.neighbours}: must be at most half of draws={self.draws}."
            )

    @property
    def count(self) -> int:
        """The number k of neighbours."""
        return round(self.draws ** (2 / 3)) if self.neighbours is None else self.neighbours

    def on(self, X: Any, y: Any) -> "BlackBoxOnRows":
        """Return the mechanism on these rows: arrays or frames, passed to ``sampler`` unchanged.

        Parameters
        ----------
        X, y : Any
            The training rows and their labels.

        Returns
        -------
        BlackBoxOnRows
            The mechanism, which ``choose_epsilon`` samples.

        Raises
        ------
        InvalidInput
            If ``X`` and ``y`` differ in length, or have too few rows.
        InvalidInput
            If ``X`` has fewer than two rows, or ``y`` another number of entries.
        """
        table, labels = _rows_of(X), None if y is None else _rows_of(y)
        total = len(table)
        if not total >= 2:
            raise InvalidInput(f"X has {total} row(s): must have at least 2.")
        if labels is not None and len(labels) != total:
            raise InvalidInput(
                f"y has {len(labels)} entries: must have one for each of {total} rows."
            )
        return BlackBoxOnRows(
            box=self, table=table, labels=labels, positions=_positions(self.rows, total)
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BlackBoxOnRows:
    """A :class:`BlackBox` on fixed rows (a :class:`~expost.epsilon.sampled.SampledMechanism`)."""

    box: BlackBox
    table: Any
    labels: Any
    positions: IntArray

    @property
    def rows(self) -> int:
        """The number of rows whose losses are estimated."""
        return len(self.positions)

    @property
    def description(self) -> str:
        """The sampler and its settings in one line."""
        return (
            f"a black box, {self.box.draws} draws for each data set and {self.box.count} neighbours"
            f" counted, n={len(self.table)}, losses of {self.rows} rows"
        )

    def sample(self, epsilon: float, size: int, rng: np.random.Generator) -> FloatArray:
        """Return models trained on all rows."""
        return self._draw(self._everything, epsilon, size, rng)

    def losses(
        self, epsilon: float, models: FloatArray, seed: np.random.SeedSequence
    ) -> EstimatedLosses:
        """Estimate the losses by coverage; data set j draws from the j-th child of ``seed``."""
        # Imported here: commands do not need it.
        from scipy.spatial.distance import cdist

        base = self._references(self._everything, epsilon, child(seed, 0), models.shape[1])
        self._check(models, base)
        space = _Whitened.by(base)
        points = space.of(models)
        home = cdist(points, space.of(base))
        loss, noise, correction = (np.empty((len(models), self.rows)) for _ in range(3))
        shared = np.empty(self.rows)
        for column, row in enumerate(self.positions.tolist()):
            without = self._references(
                np.delete(self._everything, row), epsilon, child(seed, 1 + row), models.shape[1]
            )
            balls = _Balls.around(home, cdist(points, space.of(without)), self.box.count)
            loss[:, column], noise[:, column], correction[:, column] = balls.estimate
            shared[column] = balls.shared
        return EstimatedLosses(loss=loss, noise=noise, correction=correction, shared=shared)

    @cached_property
    def _everything(self) -> IntArray:
        return np.arange(len(self.table))

    def _references(
        self, kept: IntArray, epsilon: float, seed: np.random.SeedSequence, width: int
    ) -> FloatArray:
        drawn = self._draw(kept, epsilon, self.box.draws, np.random.default_rng(seed))
        if drawn.shape[1] != width:
            raise InvalidInput(
                f"{_CALL} has {drawn.shape[1]} columns, and {width} in another call: must always"
                " have the same, one for each coefficient."
            )
        return drawn

    def _draw(
        self, kept: IntArray, epsilon: float, size: int, rng: np.random.Generator
    ) -> FloatArray:
        # Copies: a trainer that shuffles its rows in place does not shuffle ours.
        labels = None if self.labels is None else _taken(self.labels, kept)
        drawn = self.box.sampler(_taken(self.table, kept), labels, epsilon, size, rng)
        models = _checks.matrix(drawn, name=_CALL, min_rows=1)
        if len(models) != size:
            raise InvalidInput(
                f"{_CALL} has {len(models)} rows for size={size}: must have one for each model."
            )
        return models

    def _check(self, models: FloatArray, base: FloatArray) -> None:
        width = base.shape[1]
        if not self.box.draws >= _DRAWS_A_COORDINATE * width:
            raise InvalidInput(
                f"draws={self.box.draws}: must be at least {_DRAWS_A_COORDINATE * width} for models"
                f" of {width} coefficients; draw more, or return fewer of them."
            )
        both = min(len(models), len(base))
        if np.any(base[:both] != base[0]) and np.array_equal(models[:both], base[:both]):
            raise InvalidInput(
                f"{_CALL} returned the same models for two states of rng: must take all of its"
                " randomness from rng."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Whitened:
    """The linear map after which the references from D have the identity as their covariance."""

    centre: FloatArray
    scale: FloatArray
    axes: FloatArray

    @classmethod
    def by(cls, base: FloatArray) -> "_Whitened":
        centre = np.mean(base, axis=0)
        # A coordinate without spread separates any two values of it.
        floor = _ROUNDING * float(np.max(np.abs(base)))
        scale = np.maximum(np.std(base, axis=0), floor if floor > 0 else 1.0)
        # By QR: an eigenvalue of the covariance would lose half of the digits.
        triangle = np.linalg.qr((base - centre) / scale, mode="r")
        _, spread, axes = np.linalg.svd(triangle / np.sqrt(len(base)))
        spread = np.maximum(spread, _COLLINEAR * max(float(spread[0]), 1.0))
        return cls(centre=centre, scale=scale, axes=axes.T / spread)

    def of(self, models: FloatArray) -> FloatArray:
        return ((models - self.centre) / self.scale) @ self.axes


@dataclass(frozen=True, kw_only=True, eq=False)
class _Balls:
    """Two balls around each of m models, and the references in them.

    Parameters
    ----------
    home, away : FloatArray
        (m, N) distances of the references from D and from D₋ᵢ.
    inner, outer : FloatArray
        (m, 1) the radii that take in k and 2k of them.
    """

    home: FloatArray
    away: FloatArray
    inner: FloatArray
    outer: FloatArray

    @classmethod
    def around(cls, home: FloatArray, away: FloatArray, count: int) -> "_Balls":
        both = np.concatenate([home, away], axis=1)
        both.partition((count - 1, 2 * count - 1), axis=1)
        inner, outer = both[:, count - 1, np.newaxis], both[:, 2 * count - 1, np.newaxis]
        return cls(home=home, away=away, inner=inner, outer=outer)

    @cached_property
    def counts(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """a, b, a₂, b₂, each (m,) and half a reference more than there are."""
        a, b, more_a, more_b = (
            np.count_nonzero(distance <= radius, axis=1) + 0.5
            for radius in (self.inner, self.outer)
            for distance in (self.home, self.away)
        )
        return a, b, more_a, more_b

    @cached_property
    def factor(self) -> FloatArray:
        """F, 0 where the ball is a point, ∞ where both balls are one."""
        # As a ratio of radii: squares of whitened lengths may underflow.
        with np.errstate(divide="ignore", invalid="ignore"):
            wider = self.outer[:, 0] / self.inner[:, 0]
            factor = 1 / ((wider - 1) * (wider + 1))
        return np.where(self.inner[:, 0] == 0, 0.0, factor)

    @cached_property
    def resolved(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        a, b, _, _ = self.counts
        return (a > 1) & (b > 1) & np.isfinite(self.factor)

    @cached_property
    def estimate(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(m,) ℓ̂, its noise, and the correction in it."""
        a, b, more_a, more_b = self.counts
        factor = np.where(self.resolved, self.factor, 0.0)
        plain = np.log(a / b)
        correction = factor * (plain - np.log(more_a / more_b))
        variance = (1 + factor) ** 2 * (1 / a + 1 / b) - factor * (2 + factor) * (
            1 / more_a + 1 / more_b
        )
        noise = np.where(self.resolved, np.sqrt(np.maximum(variance, 0.0)), np.inf)
        return plain + correction, noise, correction

    @property
    def shared(self) -> float:
        """The standard deviation of a mean of the errors, by influences."""
        a, b, more_a, more_b = self.counts
        loss = self.estimate[0]
        factor = np.where(self.resolved, self.factor, 0.0)
        # The slopes of ℓ, ∣ℓ∣ and 4·sigmoid(ℓ).
        slopes = np.stack([np.ones_like(loss), np.sign(loss), 1 - np.tanh(loss / 2) ** 2])
        slopes = slopes * self.resolved / len(loss)
        squares = np.zeros(len(slopes))
        for distance, count, more in ((self.home, a, more_a), (self.away, b, more_b)):
            influence = (slopes * (1 + factor) / count) @ (distance <= self.inner)
            influence -= (slopes * factor / more) @ (distance <= self.outer)
            squares += np.sum(influence**2, axis=1)
        return float(np.sqrt(np.max(squares)))


def fixed_to(
    X: Any, y: Any, mechanism: Any, ids: Sequence[Any] | None
) -> tuple[SampledMechanism, tuple[Any, ...] | None]:
    """Return the mechanism on these rows, and the keys of its rows."""
    if isinstance(mechanism, BlackBox):
        on_rows = mechanism.on(X, y)
        keys = row_keys(ids, len(on_rows.table))
        if mechanism.rows is None:
            return on_rows, keys
        positions = on_rows.positions.tolist()
        return on_rows, tuple(
            positions if keys is None else (keys[position] for position in positions)
        )
    if not isinstance(mechanism, SampledMechanism):
        raise InvalidInput(
            f"mechanism is a {type(mechanism).__name__}: must be 'output', a BlackBox, or have the"
            " rows, description, sample and losses of a SampledMechanism."
        )
    if len(X) != mechanism.rows:
        raise InvalidInput(
            f"X has {len(X)} rows: must have the {mechanism.rows} that the mechanism is fixed to."
        )
    return mechanism, row_keys(ids, mechanism.rows)


def _rows_of(values: Any) -> Any:
    """Return a frame unchanged, anything else as an array."""
    return values if hasattr(values, "iloc") else np.asarray(values)


def _taken(values: Any, kept: IntArray) -> Any:
    return values.iloc[kept].copy() if hasattr(values, "iloc") else values[kept]


def _positions(rows: Sequence[int] | None, total: int) -> IntArray:
    if rows is None:
        return np.arange(total)
    positions = [_checks.integer("rows", row, least=0) for row in rows]
    if not positions or len(set(positions)) != len(positions) or not max(positions) < total:
        raise InvalidInput(
            f"rows: must hold at least one position from 0 to {total - 1}, none of them twice."
        )
    return np.array(positions, dtype=np.int64)
