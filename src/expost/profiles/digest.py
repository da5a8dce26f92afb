"""The per-row figures of a profile, declared once, and what is known of all rows together.

A :class:`Digest` holds counts, maxima and order statistics of some rows. The digests of two blocks
merge into that of both. Rows that are held in memory are one block, whose order statistics are
exact (:class:`~expost._order.Sorted`). Rows that are processed in blocks are counted
(:class:`~expost._order.Histogram`), in ranges that their :class:`Maxima` set.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit

from expost._order import Histogram, OrderStatistics, SignedHistogram, Sorted, ranking
from expost.mechanisms import Mechanism, RowLosses
from expost.profiles.fit import FitScores
from expost.profiles.left_out import LeftOut
from expost.risk import Guarantee
from expost.types import FloatArray, Neighbouring

__all__ = [
    "FIGURES",
    "POSTERIOR",
    "Digest",
    "ExtremeRow",
    "Maxima",
    "PosteriorDigest",
    "RowFigures",
    "Terms",
    "figure_columns",
    "known",
    "posterior_levels",
]

# The default limit of `choose_epsilon`.
POSTERIOR = 0.75
# Posteriors whose rows are counted: 60, 75, 90 and 99 % from a prior of ½.
_RAISED_ODDS = (1.5, 3.0, 9.0, 99.0)

Statistics = Callable[[str, FloatArray], OrderStatistics]


# -- the figures of a row --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class RowFigures:
    """What the figures of some rows are computed from.

    Parameters
    ----------
    losses : RowLosses
        The rows' losses.
    expected : Callable[[], FloatArray | None], optional
        Returns E∣loss∣ over releases, or None if it is unknown.
    """

    losses: RowLosses
    expected: Callable[[], FloatArray | None] = lambda: None


# Every per-row figure with its function: the arrays of a profile, the columns of its table in
# memory and of its Parquet parts, and docs/api/results.md have these names.
FIGURES: Mapping[str, Callable[[RowFigures], FloatArray | None]] = {
    "loss": lambda rows: rows.losses.loss,
    "loss_low": lambda rows: rows.losses.low,
    "loss_high": lambda rows: rows.losses.high,
    "exposure": lambda rows: np.abs(rows.losses.loss),
    "posterior": lambda rows: expit(rows.losses.loss),
    "certainty": lambda rows: expit(np.abs(rows.losses.loss)),
    "expected": lambda rows: rows.expected(),
    "distance": lambda rows: rows.losses.distance,
    "distance_error": lambda rows: rows.losses.distance_error,
    "prediction": lambda rows: _predicted(rows, "prediction"),
    "prediction_without": lambda rows: _predicted(rows, "prediction_without"),
    "prediction_without_low": lambda rows: _predicted(rows, "low"),
    "prediction_without_high": lambda rows: _predicted(rows, "high"),
}


def _predicted(rows: RowFigures, name: str) -> FloatArray | None:
    """Return a figure of the rows' own predictions; None of a model with noise."""
    predictors = rows.losses.predictors
    return None if predictors is None else getattr(predictors, name)


def figure_columns(rows: RowFigures) -> dict[str, FloatArray]:
    """Return every known figure of ``rows`` by name."""
    columns = {name: function(rows) for name, function in FIGURES.items()}
    return {name: values for name, values in columns.items() if values is not None}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the mechanism guarantees about each row, and how rows are compared.

    Parameters
    ----------
    noiseless : bool
        The model carries no noise: rows are compared by distance and not by exposure.
    worst_case : float
        The guaranteed bound on an exposure, exceeded with probability ``worst_case_passed`` at
        most.
    guarantee : Guarantee | None
        The guarantee itself; None if there is none.
    """

    relation: Neighbouring
    noiseless: bool
    worst_case: float
    worst_case_passed: float
    guarantee: Guarantee | None

    @classmethod
    def of(cls, losses: RowLosses) -> "Terms":
        """Return the terms that ``losses`` state."""
        return cls(**{name: getattr(losses, name) for name in cls.__dataclass_fields__})

    @classmethod
    def of_removal(cls, mechanism: Mechanism) -> "Terms":
        """Return the terms of ``mechanism`` where one row is removed."""
        noisy = mechanism.is_private
        return cls(
            relation=Neighbouring.REMOVE,
            noiseless=not noisy,
            worst_case=mechanism.worst_case if noisy else math.inf,
            worst_case_passed=mechanism.worst_case_passed if noisy else 0.0,
            guarantee=mechanism.guarantee() if noisy else None,
        )

    @property
    def measure(self) -> str:
        """The figure by which rows are compared: "exposure" or "distance"."""
        return "distance" if self.noiseless else "exposure"


# -- what is merged over blocks --------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Maxima:
    """The largest finite value of each figure of some rows: the ranges of their histograms.

    Parameters
    ----------
    loss : float, default=0.0
        The largest size of either end of a loss's interval.
    reach : float, default=0.0
        The largest distance plus its error.
    scores, left_out : FitScores, optional
        How well the models predict these rows, and without each of them where there is no noise.
    """

    exposure: float = 0.0
    loss: float = 0.0
    expected: float = 0.0
    distance: float = 0.0
    reach: float = 0.0
    scores: FitScores = field(default_factory=FitScores)
    left_out: LeftOut = field(default_factory=LeftOut)

    @classmethod
    def of(
        cls,
        columns: Mapping[str, FloatArray],
        scores: FitScores,
        left_out: LeftOut | None = None,
    ) -> "Maxima":
        """Return the maxima of the figures in ``columns``."""

        def most(*names: str) -> float:
            sizes = [np.abs(columns[name]) for name in names if name in columns]
            return max((_largest_finite(size) for size in sizes), default=0.0)

        return cls(
            exposure=most("exposure"),
            loss=most("loss", "loss_low", "loss_high"),
            expected=most("expected"),
            distance=most("distance"),
            reach=_largest_finite(columns["distance"] + columns["distance_error"]),
            scores=scores,
            left_out=LeftOut() if left_out is None else left_out,
        )

    def merged(self, other: "Maxima") -> "Maxima":
        """Return the maxima of the rows of both."""
        names = ("exposure", "loss", "expected", "distance", "reach")
        most = {name: max(getattr(self, name), getattr(other, name)) for name in names}
        return Maxima(
            **most,
            scores=self.scores.merged(other.scores),
            left_out=self.left_out.merged(other.left_out),
        )

    def statistics(self, name: str, values: FloatArray) -> OrderStatistics:
        """Count the values of the figure ``name``; losses may have either sign."""
        if name == "loss":
            return SignedHistogram(values, self.loss)
        return Histogram.of(values, getattr(self, name))

    def to_json(self) -> str:
        """Return the maxima as a part of a table stores them, with every digit."""
        left_out = {**self.left_out.__dict__, "scores": {**self.left_out.scores.__dict__}}
        value = {**self.__dict__, "scores": {**self.scores.__dict__}}
        if self.left_out.rows:
            # An infinite change is written as none: JSON has no infinity.
            left_out["change"] = self.left_out.change if self.left_out.change < np.inf else None
            value["left_out"] = left_out
        else:
            del value["left_out"]
        return json.dumps(value, allow_nan=False)

    @classmethod
    def from_json(cls, text: bytes) -> "Maxima":
        """Return the maxima that :meth:`to_json` wrote."""
        value = json.loads(text)
        scores, left_out = _scores(value.pop("scores")), value.pop("left_out", None)
        if left_out is None:
            return cls(**value, scores=scores)
        left_out |= {"scores": _scores(left_out["scores"])}
        left_out["change"] = np.inf if left_out["change"] is None else left_out["change"]
        return cls(**value, scores=scores, left_out=LeftOut(**left_out))


def _scores(value: dict[str, Any]) -> FitScores:
    """Return scores that were read from JSON."""
    lists = {name: tuple(counts) for name, counts in value.items() if isinstance(counts, list)}
    return FitScores(**(value | lists))


def _largest_finite(sizes: FloatArray) -> float:
    return float(np.max(sizes[np.isfinite(sizes)], initial=0.0))


def _exact(name: str, values: FloatArray) -> OrderStatistics:
    """Sort the values of the figure ``name``: what :class:`Digest` needs for rows in memory."""
    return Sorted(values)


def known(values: FloatArray, unknown: float) -> FloatArray:
    """Return ``values`` with NaN replaced by ``unknown``, the exposed end."""
    return np.where(np.isnan(values), unknown, values)


# -- what an attacker learns -----------------------------------------------------------------------


def posterior_levels(prior: float) -> tuple[float, ...]:
    """Return the posteriors whose rows are counted."""
    return tuple(_round_level(prior, odds) for odds in _RAISED_ODDS)


def _round_level(prior: float, odds: float) -> float:
    """Return the posterior with ``odds`` times the odds of the prior, rounded as it is printed."""
    share, rest = odds * prior, 1 - prior
    if share > rest:
        return 1 - float(f"{rest / (share + rest):.2g}")
    return float(f"{share / (share + rest):.2g}")


@dataclass(frozen=True, kw_only=True)
class ExtremeRow:
    """A row that is extreme in some figure: its number, key and figures."""

    row: int
    key: Any
    loss: float
    loss_low: float
    loss_high: float
    distance: float
    distance_error: float

    @classmethod
    def at(
        cls, columns: Mapping[str, FloatArray], index: int, start: int, ids: Any
    ) -> "ExtremeRow":
        """Return the row at ``index`` of the figures in ``columns``."""
        names = ("loss", "loss_low", "loss_high", "distance", "distance_error")
        key = start + index if ids is None else ids[index]
        return cls(
            row=start + index,
            key=key.as_py() if hasattr(key, "as_py") else key,
            **{name: float(columns[name][index]) for name in names},
        )

    @property
    def lowest(self) -> float:
        """The lower end of the loss's interval; −∞ where it is not known."""
        return -math.inf if math.isnan(self.loss_low) else self.loss_low

    @property
    def highest(self) -> float:
        """The upper end of the loss's interval; ∞ where it is not known."""
        return math.inf if math.isnan(self.loss_high) else self.loss_high


@dataclass(frozen=True, kw_only=True, eq=False)
class PosteriorDigest:
    """What an attacker with prior ``prior`` learns of all rows together (D5.3 Lemma 1).

    A loss that is not a number counts as exposed.

    Parameters
    ----------
    above, doubted : tuple[int, ...]
        The numbers of rows whose posterior of presence, and of absence, may exceed each of the
        levels.
    most_certain, least : ExtremeRow
        The rows whose presence and whose absence may be most probable.
    farthest : ExtremeRow
        The row that may move the model most.
    highest : OrderStatistics
        Order statistics of the upper ends of the losses' intervals.
    """

    prior: float
    above: tuple[int, ...]
    doubted: tuple[int, ...]
    most_certain: ExtremeRow
    least: ExtremeRow
    farthest: ExtremeRow
    highest: OrderStatistics

    @classmethod
    def of(
        cls,
        columns: Mapping[str, FloatArray],
        statistics: Statistics = _exact,
        *,
        prior: float = 0.5,
        start: int = 0,
        ids: Any = None,
    ) -> "PosteriorDigest":
        """Return the digest of the rows whose figures are in ``columns``; see :class:`Digest`."""
        distance, error = columns["distance"], columns["distance_error"]
        high, low = known(columns["loss_high"], np.inf), known(columns["loss_low"], -np.inf)
        odds = float(logit(prior))
        presence, absence = expit(odds + high), expit(-odds - low)
        indices = ranking(high, distance)[0], np.argmin(low), np.argmax(distance + error)
        most_certain, least, farthest = (
            ExtremeRow.at(columns, int(index), start, ids) for index in indices
        )
        return cls(
            prior=prior,
            above=_counts(presence, posterior_levels(prior)),
            doubted=_counts(absence, posterior_levels(1 - prior)),
            most_certain=most_certain,
            least=least,
            farthest=farthest,
            highest=statistics("loss", high),
        )

    def merged(self, other: "PosteriorDigest") -> "PosteriorDigest":
        """Return the digest of the rows of both; the order statistics of ``self`` are reused."""
        self.highest.merge(other.highest)
        # Ties are decided as by `ranking`: by distance, then by number.
        return replace(
            self,
            above=tuple(map(sum, zip(self.above, other.above, strict=True))),
            doubted=tuple(map(sum, zip(self.doubted, other.doubted, strict=True))),
            most_certain=min(
                self.most_certain,
                other.most_certain,
                key=lambda at: (-at.highest, -at.distance, at.row),
            ),
            least=min(self.least, other.least, key=lambda at: (at.lowest, at.row)),
            farthest=min(
                self.farthest,
                other.farthest,
                key=lambda at: (-at.distance - at.distance_error, at.row),
            ),
        )

    @property
    def extremes(self) -> tuple[ExtremeRow, ...]:
        """The extreme rows, each once."""
        rows = (self.most_certain, self.least, self.farthest)
        return tuple({extreme.row: extreme for extreme in rows}.values())


def _counts(posterior: FloatArray, levels: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(int(np.count_nonzero(posterior > level)) for level in levels)


@dataclass(frozen=True, kw_only=True, eq=False)
class Digest:
    """What is known of all rows of a profile together.

    Parameters
    ----------
    count : int
        The number of rows, candidates or persons; of ``inside`` the loss is > 0.
    unproved : int
        Rows without a finite interval of their loss; ``half_width`` is the largest half width of
        the others.
    past_guarantee, proved_past : int
        Rows with an exposure past the worst case, and provably.
    past_posterior : int
        Rows whose certainty, from a prior of ½, exceeds ``POSTERIOR``.
    least_exposure : float
        The largest lower end of an exposure's interval; ``outer`` the largest upper end.
    farthest : float
        The largest distance plus its error.
    scores : OrderStatistics
        Order statistics of exposures, or of distances where there is no noise.
    reach : OrderStatistics | None
        Order statistics of distances plus their errors; None with noise.
    expected : OrderStatistics | None
        Order statistics of expected exposures; None where they are not known.
    posterior : PosteriorDigest | None
        The posteriors of the rows from a prior of ½; None without noise.
    """

    count: int
    inside: int
    unproved: int
    past_guarantee: int
    proved_past: int
    past_posterior: int
    half_width: float
    least_exposure: float
    outer: float
    farthest: float
    scores: OrderStatistics
    distance: OrderStatistics
    reach: OrderStatistics | None
    expected: OrderStatistics | None
    posterior: PosteriorDigest | None

    @classmethod
    def of(
        cls,
        columns: Mapping[str, FloatArray],
        terms: Terms,
        statistics: Statistics = _exact,
        *,
        start: int = 0,
        ids: Any = None,
    ) -> "Digest":
        """Return the digest of the rows whose figures are in ``columns``.

        Parameters
        ----------
        columns : Mapping[str, FloatArray]
            By the names of ``FIGURES``; "expected" may be missing.
        statistics : Statistics, optional
            Makes the order statistics of a figure.
        start, ids : int, Any
            The number of the first row, and the keys of all of them.
        """
        names = ("loss", "loss_low", "loss_high", "exposure", "distance", "distance_error")
        loss, low, high, exposure, distance, error = (columns[name] for name in names)
        with np.errstate(invalid="ignore"):
            # Without noise distances are compared; no loss has a width.
            half = np.where(np.isfinite(error), 0.0, np.inf)
            half = half if terms.noiseless else 0.5 * (high - low)
        proved = np.isfinite(half)
        least = np.maximum(np.maximum(low, -high), 0.0)
        expected = None if terms.noiseless else columns.get("expected")
        distances = statistics("distance", distance)
        return cls(
            count=len(loss),
            inside=int(np.count_nonzero(loss > 0)),
            unproved=int(np.count_nonzero(~proved)),
            past_guarantee=int(np.count_nonzero(exposure > terms.worst_case)),
            proved_past=int(np.count_nonzero(least > terms.worst_case)),
            past_posterior=int(np.count_nonzero(expit(exposure) > POSTERIOR)),
            half_width=float(np.max(half[proved], initial=0.0)),
            least_exposure=float(np.max(least)),
            outer=float(np.max(np.maximum(np.abs(low), np.abs(high)))),
            farthest=float(np.max(distance + error)),
            scores=distances if terms.noiseless else statistics("exposure", exposure),
            distance=distances,
            reach=statistics("reach", distance + error) if terms.noiseless else None,
            expected=None if expected is None else statistics("expected", expected),
            posterior=None
            if terms.noiseless
            else PosteriorDigest.of(columns, statistics, start=start, ids=ids),
        )

    def merged(self, other: "Digest") -> "Digest":
        """Return the digest of the rows of both; the order statistics of ``self`` are reused."""
        self.distance.merge(other.distance)
        if self.scores is not self.distance:
            self.scores.merge(other.scores)
        if self.expected is not None and other.expected is not None:
            self.expected.merge(other.expected)
        if self.reach is not None and other.reach is not None:
            self.reach.merge(other.reach)
        counts = (
            *("count", "inside", "unproved"),
            *("past_guarantee", "proved_past", "past_posterior"),
        )
        most = ("half_width", "least_exposure", "outer", "farthest")
        return replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in counts},
            **{name: max(getattr(self, name), getattr(other, name)) for name in most},
            posterior=None
            if self.posterior is None or other.posterior is None
            else self.posterior.merged(other.posterior),
        )
